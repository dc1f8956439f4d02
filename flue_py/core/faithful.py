"""The reference's estimate of how many tokens a message takes: its UTF-16 code units divided by four.

Messages need not have been checked: anything unexpected is skipped, never an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from flue_py.core.javascript import js_json
from flue_py.core.jsontext import JsonValue, utf16_length

Message: TypeAlias = Mapping[str, JsonValue]
"""A message as JSON, camelCase; roles and parts that are not known here are legal."""

USER = "user"
ASSISTANT = "assistant"
TOOL_RESULT = "toolResult"
SYSTEM = ("system", "developer")
"""The roles of what the system says."""
SUMMARIZED_ROLES = (USER, ASSISTANT, TOOL_RESULT)
"""A tuple, since a role read from unchecked JSON may be a list, which no set can be asked about."""

UNITS_PER_TOKEN = 4
IMAGE_UNITS = 4_800
"""What an image in a tool result counts, in UTF-16 code units. Images in user messages count nothing."""


def faithful_tokens(message: Message, *, read_plain_text: bool = True) -> int:
    """Return about how many tokens a message takes: its UTF-16 code units divided by four, rounded up.

    Text, thinking, and tool calls (name and arguments as compact JSON) count their length, an image in a tool
    result `IMAGE_UNITS`; other parts and other roles count nothing. Cost: O(size of the message).
    """
    role = message.get("role")
    if role not in SUMMARIZED_ROLES:
        return 0
    units = 0
    for part in parts_of(message, read_plain_text=read_plain_text):
        kind = part.get("type")
        if kind == "text":
            units += utf16_length(string_field(part, "text"))
        elif role == ASSISTANT and kind == "thinking":
            units += utf16_length(string_field(part, "thinking"))
        elif role == ASSISTANT and kind == "toolCall":
            units += utf16_length(string_field(part, "name"))
            if "arguments" in part:
                units += utf16_length(js_json(part["arguments"]))
        elif role == TOOL_RESULT and kind == "image":
            units += IMAGE_UNITS
    return -(-units // UNITS_PER_TOKEN)


def parts_of(message: Message, *, read_plain_text: bool) -> list[Mapping[str, JsonValue]]:
    """Return the content parts of a message in order; text given as a plain string is one text part.

    In messages that are not a user's, a plain string is read only with ``read_plain_text``.
    """
    content = message.get("content")
    if isinstance(content, str):
        if message.get("role") == USER or read_plain_text:
            return [{"type": "text", "text": content}]
        return []
    if isinstance(content, (list, tuple)):
        return [part for part in content if isinstance(part, Mapping)]
    return []


def string_field(part: Mapping[str, JsonValue], name: str) -> str:
    """Return a field that should be a string; the empty string if it is missing or not a string."""
    value = part.get(name)
    return value if isinstance(value, str) else ""
