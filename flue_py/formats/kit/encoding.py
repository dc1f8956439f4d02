"""Entries made from JSON that was just decoded: the checks of values that JSON text cannot hold are not made again."""

from __future__ import annotations

from typing import NamedTuple

import pydantic_core

from flue_py.core.calls import PaidCall, by_model, call_of
from flue_py.core.entries import NewEntry, entry_of_message
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.core.kinds import MESSAGE
from flue_py.core.spoken import message_title
from flue_py.core.usage import NO_USAGE, UsageTotals
from flue_py.core.usage_shapes import read_reported, read_usage
from flue_py.formats.kit.rows import Notes

_CONTENT = {"user": (str, list), "assistant": (str, list, type(None)), "toolResult": (str, list, type(None))}
"""What the content of those messages may be that need no further look, by role."""


class Content(NamedTuple):
    """What an entry holds, before it has an id and a place: the fields of a `NewEntry`, made once and not copied."""

    kind: str
    payload: str
    role: str | None = None
    usage: UsageTotals = NO_USAGE
    surrogates_replaced: int = 0
    preview: str | None = None
    calls: tuple[PaidCall, ...] = ()
    unpaid: bool = False

    def placed(
        self, entry_id: str, parent_id: str | None, created_us: int | None, extra: str | None, surrogates_replaced: int
    ) -> NewEntry:
        """Return it as an entry with an id and a place, and with what stands beside it."""
        return NewEntry(
            self.kind,
            self.payload,
            self.role,
            None,
            self.usage,
            self.calls,
            id=entry_id,
            parent_id=parent_id,
            created_us=created_us,
            extra=extra,
            surrogates_replaced=surrogates_replaced,
            preview=self.preview,
            unpaid=self.unpaid,
            built=True,
        )


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


def message_content(message: JsonObject) -> Content:
    """Return what `entry_of_message` returns, but for paid calls, for a message that a reader put together, sooner.

    Every part has to be of its type's shape. Raises `InvalidEntry`.
    """
    role, content = message.get("role"), message.get("content")
    is_plain = isinstance(role, str) and type(content) in _CONTENT.get(role, ())
    if not isinstance(role, str) or not is_plain or (role == "toolResult" and not message.get("toolCallId")):
        made = entry_of_message(message)
        return Content(
            made.kind, made.payload, made.role, made.usage, made.surrogates_replaced, made.preview, made.calls
        )
    text, replaced = encode_decoded(message, "message")
    if role == "user":
        return Content(MESSAGE, text, role, NO_USAGE, replaced, message_title(message))
    reported = message.get("usage") if role == "assistant" else None
    usage = NO_USAGE if reported is None else read_usage(reported, "message.usage")
    return Content(MESSAGE, text, role, usage, replaced)


def with_call(
    content: Content,
    reported: JsonObject,
    notes: Notes,
    line: int,
    *,
    provider: str,
    model: str,
    call_id: str,
    purpose: str = "turn",
) -> Content:
    """Return an entry with the call that was paid for it, as ``reported``; what is odd about that is noted."""
    usage = read_reported(reported)
    for oddity in usage.oddities:
        notes.repair(line, oddity)
    call = call_of(usage, provider=provider, model=model, call_id=call_id, purpose=purpose)
    return content._replace(calls=by_model(call, usage))
