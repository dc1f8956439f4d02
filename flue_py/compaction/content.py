"""Reading messages that have not been checked: anything unexpected is skipped, never an error."""

from __future__ import annotations

from collections.abc import Mapping

from flue_py.compaction.policy import CompactionPolicy
from flue_py.core.faithful import ASSISTANT, TOOL_RESULT, USER, Message, parts_of, string_field
from flue_py.core.jsontext import JsonValue

__all__ = [
    "ASSISTANT",
    "TOOL_RESULT",
    "USER",
    "Message",
    "content_parts",
    "string_field",
]


def content_parts(message: Message, policy: CompactionPolicy) -> list[Mapping[str, JsonValue]]:
    """Return the content parts of a message in order, as `parts_of` does by the policy's ``read_plain_text``."""
    return parts_of(message, read_plain_text=policy.read_plain_text)
