"""Entries made from JSON that was just decoded: the checks of values that JSON text cannot hold are not made again."""

from __future__ import annotations

from dataclasses import replace

import pydantic_core

from flue_py.core.calls import PaidCall, call_of
from flue_py.core.entries import MESSAGE, NewEntry, message_preview, message_text, new_message
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.core.usage import NO_USAGE, read_usage
from flue_py.errors import InvalidEntry
from flue_py.formats.rows import Notes

_ROLES = frozenset({"user", "assistant", "toolResult"})
_CONTENT = frozenset({str, list, type(None)})


def encode_decoded(value: JsonValue, what: str) -> tuple[str, int]:
    """Return what `encode_json` returns for a value that was decoded by `pydantic_core.from_json`, sooner.

    Such a value holds nothing but JSON, is nested no deeper than can be stored, and has no integer that cannot be read
    back; what is left are numbers that overflow.
    """
    try:
        text = pydantic_core.to_json(value, inf_nan_mode="constants").decode()
    except Exception:  # noqa: BLE001 - as in `encode_json`, which says what is wrong
        return encode_json(value, what)
    if "Infinity" in text:
        return encode_json(value, what)
    return text, 0


def message_entry(message: JsonObject) -> NewEntry:
    """Return what `new_message` returns for a message whose parts were put together by a reader, sooner.

    Every part has to be of its type's shape. Raises `InvalidEntry`.
    """
    role, content = message.get("role"), message.get("content")
    if type(role) is not str or role not in _ROLES or type(content) not in _CONTENT:
        return new_message(message)
    text, replaced = encode_decoded(message, "message")
    if role == "user":
        preview = message_preview(message_text(message))
        return NewEntry(MESSAGE, text, role, surrogates_replaced=replaced, preview=preview)
    reported = message.get("usage") if role == "assistant" else None
    usage = NO_USAGE if reported is None else read_usage(reported, "message.usage")
    return NewEntry(MESSAGE, text, role, usage=usage, surrogates_replaced=replaced)


def with_call(
    entry: NewEntry,
    reported: JsonObject,
    notes: Notes,
    line: int,
    *,
    provider: str,
    model: str,
    call_id: str,
    purpose: str = "turn",
) -> NewEntry:
    """Return an entry with the call that was paid for it, as ``reported``; parts that contradict it are noted."""
    try:
        call = call_of(entry.usage, reported, "usage", provider=provider, model=model, call_id=call_id)
    except InvalidEntry as error:
        notes.repair(line, f"{error}; what the call used is counted without its parts")
        call = PaidCall(entry.usage, provider, model, call_id)
    return NewEntry(
        entry.kind,
        entry.payload,
        entry.role,
        usage=entry.usage,
        calls=(replace(call, purpose=purpose),),
        surrogates_replaced=entry.surrogates_replaced,
    )
