"""One input item of the SDK, as an entry of ours and back, value for value.

Items are those of the Responses API, so `flue_py.wire` makes our messages of them. What differs from what it would
print again stands beside the message, where exports find it, too. An item that is in no form of that API, such as an
envelope of `EncryptedSession`, is kept as JSON text in a message of the role `OTHER`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from flue_py import wire
from flue_py.adapters.openai_agents import shortcuts
from flue_py.core.entries import NewEntry, entry_of_message
from flue_py.core.jsontext import JsonObject, JsonValue, decode_object, encode_json
from flue_py.core.kinds import COMPACTION, MESSAGE
from flue_py.core.projection import ContextEntry
from flue_py.errors import InvalidEntry, shown
from flue_py.wire.differences import close_difference
from flue_py.wire.lists.said import Said, said_of
from flue_py.wire.openai_responses import EXTRA

if TYPE_CHECKING:
    from agents import TResponseInputItem

SHAPE: wire.Shape = "openai-responses"

OTHER = "item"
"""The role of a message whose content is an item as JSON text, because the item is in no form of the API."""

WHOLE = "openaiAgentsItem"
"""The field of ``extra`` that has an item as JSON text in ASCII, where our message cannot say all of it."""

USAGE = "openai_agents.usage"
"""The kind of an entry for calls that were paid without an answer to be stored, such as those of a tool's agent."""

COMPACTED = "openaiAgentsItems"
"""The field of a compaction's details that has the items which stand for what was compacted."""

_PLAIN = '{"openaiResponses":{"unset":["type"]}}'
"""The ``extra`` of what is only a role and a content, as most of what people say is: it is read without printing."""

Call = Mapping[str, JsonValue]


def entries_of(
    items: Sequence[object], names: MutableMapping[str, str], calls: Sequence[Call] = (), model: str | None = None
) -> list[NewEntry]:
    """Return items as entries ready to be written; the last answer among them has the calls that were paid for it.

    Where there is no answer, an entry of its own has the calls. ``names`` are the names of the tool calls so far, by
    id; those of the items are added. Raises `InvalidEntry` for what JSON cannot hold. O(size).
    """
    entries: list[NewEntry] = []
    to_pay: Sequence[Call] = calls
    # From the end, since the last answer pays; the names of calls are known before, since they come first.
    said = [_said(item, names, f"items[{number}]") for number, item in enumerate(items)]
    for number in range(len(said) - 1, -1, -1):
        entry = _entry(said[number], to_pay, model, f"items[{number}]")
        entries.append(entry)
        to_pay = () if entry.role == "assistant" else to_pay
    entries.reverse()
    if to_pay:
        entries.append(NewEntry.custom(USAGE, {}, calls=to_pay))
    return entries


class _Said(NamedTuple):
    """An item, as a message if it is in a form of the API, and what stands beside that."""

    item: JsonObject
    message: JsonObject | None
    beside: JsonObject


def _said(item: object, names: MutableMapping[str, str], where: str) -> _Said:
    plain = _plain(item, where)
    short = shortcuts.read(plain, names)
    if short is not None:
        return _Said(plain, *short)
    try:
        [(message, _)] = wire.convert(plain, SHAPE, names, where)
    except InvalidEntry:
        return _Said(plain, None, {})
    printed = wire.to_provider(message, SHAPE).messages
    return _Said(plain, message, close_difference(printed[0] if len(printed) == 1 else {}, plain))


def _entry(said: _Said, calls: Sequence[Call], model: str | None, where: str) -> NewEntry:
    if said.message is not None:
        is_answer = said.message["role"] == "assistant"
        message = {**said.message, "model": model} if is_answer and model is not None else said.message
        try:
            entry = entry_of_message(message, calls=calls if is_answer else ())
            beside, replaced = encode_json({EXTRA: said.beside}, "extra") if said.beside else (None, 0)
        except InvalidEntry:
            pass
        else:
            if entry.surrogates_replaced or replaced:
                beside = encode_json({WHOLE: _whole(said.item, where)}, "extra")[0]
            return entry if beside is None else replace(entry, extra=beside, surrogates_replaced=0)
    return entry_of_message({"role": OTHER, "content": _whole(said.item, where)})


def items_of(shown_item: ContextEntry) -> list[TResponseInputItem]:
    """Return the items that an entry of the context is: one, unless another program wrote the entry. O(size)."""
    entry = shown_item.entry
    if entry.kind == COMPACTION:
        details = entry.fields.get("details")
        kept = details.get(COMPACTED) if isinstance(details, dict) else None
        if isinstance(kept, list):
            items: list[Any] = kept
            return items
    is_itself = entry.kind == MESSAGE and not shown_item.excluded_parts
    message = decode_object(entry.payload) if is_itself else shown_item.data
    if is_itself and entry.extra == _PLAIN and isinstance(message.get("content"), str):
        return [cast("TResponseInputItem", {"role": message["role"], "content": message["content"]})]
    if message.get("role") == OTHER and isinstance(message.get("content"), str):
        return [json.loads(cast("str", message["content"]))]
    beside = entry.extra_fields if is_itself else None
    if beside is not None:
        if isinstance(whole := beside.get(WHOLE), str):
            return [json.loads(whole)]
        item = shortcuts.printed(message, beside.get(EXTRA, {}))
        if item is not None:
            return [cast("TResponseInputItem", item)]
    printed: list[Any] = list(wire.to_provider(message, SHAPE, beside).messages)
    return printed


class Aside(str):
    """What stands in a message for an item that is in no form of the API, while a request is made around it."""

    item: JsonObject


def said_of_item(shown_item: ContextEntry, message: JsonObject) -> list[Said]:
    """Return the messages that a request is made of for an entry of the context, as it is: each prints as its items.

    An item that is in no form of the API stands in a message as `Aside`. O(size).
    """
    said = said_of(shown_item, message)
    is_odd = message.get("role") == OTHER or WHOLE in said.extra
    if not is_odd and shown_item.kind != COMPACTION:
        if EXTRA not in said.extra and len(wire.to_provider(message, SHAPE).messages) == 1:
            # Without this a request gives an answer an id that it did not come with.
            return [said.with_message(said.message, {EXTRA: {}})]
        return [said]
    names: dict[str, str] = {}
    entry_id = shown_item.entry_id
    return [_said_again(item, names, entry_id) for item in items_of(shown_item)]


def _said_again(item: TResponseInputItem, names: MutableMapping[str, str], entry_id: str) -> Said:
    plain, message, beside = _said(item, names, "item")
    if message is not None:
        return Said(message, {EXTRA: beside}, entry_id)
    aside = Aside("an item in no form of the API")
    aside.item = plain
    return Said({"role": "user", "content": aside}, entry_id=entry_id)


def _plain(item: object, where: str) -> JsonObject:
    """Return an item as an object of its own: a model of pydantic with the fields that were set."""
    dump = getattr(item, "model_dump", None)
    value = dump(mode="json", exclude_unset=True) if callable(dump) else item
    if not isinstance(value, Mapping):
        raise InvalidEntry(f"{where}: should be an input item, a dict or a model, not {shown(item)}")
    return dict(value)


def _whole(item: JsonObject, where: str) -> str:
    try:
        return json.dumps(item, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEntry(f"{where}: cannot be stored as JSON: {error}") from error
