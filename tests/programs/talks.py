"""A made-up talk with everything that programs take differently, and the words in messages of any form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flue_py.core.json import JsonObject, JsonValue
from flue_py.providers.base import blocks_of, fields_of

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_MODEL: JsonObject = {"model": "gpt-5.5", "provider": "openai"}
TALK: tuple[JsonObject, ...] = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Look at two files."},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I look."},
            {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a"}},
            {"type": "toolCall", "id": "c2", "name": "read", "arguments": {"path": "b"}},
        ],
        "usage": {"input": 10, "output": 5},
        **_MODEL,
    },
    {"role": "toolResult", "toolCallId": "c1", "toolName": "read", "content": "AAA"},
    {"role": "toolResult", "toolCallId": "c2", "toolName": "read", "content": "no such file", "isError": True},
    {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "a has AAA, b is missing."}],
        "usage": {"input": 30, "output": 9},
        **_MODEL,
    },
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "And this picture?"},
            {"type": "image", "data": DOT, "mimeType": "image/png"},
        ],
    },
    {"role": "assistant", "content": "A dot.", "usage": {"input": 40, "output": 2}, **_MODEL},
)


def texts_in(messages: Sequence[Any]) -> list[str]:
    """Return texts, names and arguments of calls, and pictures, in their order, of messages of any provider's form."""
    return [text for message in messages for text in _texts(message)]


WITHOUT_PICTURES = ("mistral-vibe",)
"""The programs that a picture keeps from going on with a session: it is left out, and named."""


_OWN = ("text", "data", "image_url", "url", "name", "arguments")
_INSIDE = ("content", "tool_calls", "function", "parts", "output", "source", "functionResponse", "response")


def _texts(value: JsonValue) -> list[str]:
    fields = fields_of(value)
    kind = fields.get("type")
    if kind in ("thinking", "reasoning", "redacted_thinking") or fields.get("thought"):
        return []
    if isinstance(value, str):
        return [value] if value.strip() else []
    own = [str(fields[name]) for name in _OWN if isinstance(fields.get(name), str)]
    if kind in ("toolCall", "tool_use", "function_call"):
        own.append(f"{fields.get('name')} {fields.get('arguments', fields.get('input'))}")
    inside = [fields.get(name) for name in _INSIDE]
    return own + [text for part in inside for block in blocks_of(part) for text in _texts(block)]
