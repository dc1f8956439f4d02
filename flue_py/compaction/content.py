"""Reading messages that have not been checked: anything unexpected is skipped, never an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from flue_py.compaction.policy import CompactionPolicy
from flue_py.core.jsontext import JsonValue

Message: TypeAlias = Mapping[str, JsonValue]
"""A message as JSON, camelCase; roles and parts that are not known here are legal."""

USER = "user"
ASSISTANT = "assistant"
TOOL_RESULT = "toolResult"
SUMMARIZED_ROLES = (USER, ASSISTANT, TOOL_RESULT)
"""A tuple, since a role read from unchecked JSON may be a list, which no set can be asked about."""


def content_parts(message: Message, policy: CompactionPolicy) -> list[Mapping[str, JsonValue]]:
    """Return the content parts of a message in order; text given as a plain string is one text part.

    In messages that are not a user's, a plain string is read only with ``policy.read_plain_text``.
    """
    content = message.get("content")
    if isinstance(content, str):
        if message.get("role") == USER or policy.read_plain_text:
            return [{"type": "text", "text": content}]
        return []
    if isinstance(content, (list, tuple)):
        return [part for part in content if isinstance(part, Mapping)]
    return []


def string_field(part: Mapping[str, JsonValue], name: str) -> str:
    """Return a field that should be a string; the empty string if it is missing or not a string."""
    value = part.get(name)
    return value if isinstance(value, str) else ""
