"""Items of OpenAI's Responses API as entries of ours and back, value for value.

`flue_py.providers` makes our messages of them. The difference to the item that it would print again stands beside the
message, where exports find it, too. An item that is in no form of that API, such as an envelope of `EncryptedSession`,
is kept as JSON text in a message of the role `OTHER`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from flue_py import providers
from flue_py.core.context import ContextEntry
from flue_py.core.entries import NewEntry, entry_of_message
from flue_py.core.json import JsonObject, JsonValue, NamedTuple, decode_object, encode_json
from flue_py.core.kinds import COMPACTION, MESSAGE
from flue_py.errors import InvalidEntry, shown
from flue_py.providers.base import close_difference, fields_of
from flue_py.providers.openai_chat import arguments_text
from flue_py.providers.openai_responses import EXTRA

if TYPE_CHECKING:
    from agents import TResponseInputItem


# Common item forms, printed without the general way through `flue_py.providers`
#
# A call of a function, its output as text, an answer of texts: of these a context is printed in a fraction of the time,
# and the same as the general way prints it. A message in any other form goes the general way: each function here
# returns None for it.

_PART = frozenset({"type", "id", "name", "arguments"})
_RESULT = frozenset({"role", "toolCallId", "toolName", "content"})
_ANSWERED = frozenset({"role", "content", "api", "provider", "model", "usage"})


def shortcuts_printed(message: JsonObject, difference: JsonValue) -> JsonObject | None:
    """Return the item that a message is, with the difference that stands beside it applied. O(size)."""
    changed = difference.get("set", {}) if type(difference) is dict and "unset" not in difference else None
    if type(difference) is not dict or type(changed) is not dict:
        return None
    content, inside = message.get("content"), difference.get("inside")
    if type(content) is str:
        return _printed_output(message, changed) if inside is None else None
    if message.get("role") != "assistant" or type(content) is not list or not message.keys() <= _ANSWERED:
        return None
    if inside is None and (call := _printed_call(content, changed)) is not None:
        return call
    return _printed_answer(content, changed, inside)


def _printed_output(message: JsonObject, changed: JsonObject) -> JsonObject | None:
    if message.get("role") != "toolResult" or not message.keys() <= _RESULT:
        return None
    call_id = message.get("toolCallId")
    return {"type": "function_call_output", "call_id": call_id, "output": message["content"], **changed}


def _printed_call(content: list[JsonValue], changed: JsonObject) -> JsonObject | None:
    part = content[0] if len(content) == 1 else None
    if type(part) is not dict or part.keys() != _PART or part["type"] != "toolCall":
        return None
    item: JsonObject = {"type": "function_call", "call_id": part["id"], "name": part["name"], **changed}
    if "arguments" not in changed:
        item["arguments"] = arguments_text(part["arguments"])
    return item


def _printed_answer(content: list[JsonValue], changed: JsonObject, inside: JsonValue) -> JsonObject | None:
    part_changes = {} if inside is None else _beside_parts(inside)
    if part_changes is None or not content:
        return None
    parts: list[JsonValue] = []
    for number, part in enumerate(content):
        if type(part) is not dict or part.get("type") != "text":
            return None
        item: JsonObject = {"type": "output_text", "text": part.get("text")}
        if part_changes:
            part_change = part_changes.pop(str(number), _NOTHING)
            extras = part_change.get("set") if type(part_change) is dict and len(part_change) == 1 else None
            if type(extras) is not dict:
                return None
            item.update(extras)
        parts.append(item)
    # A change that is left belongs to a part that there is not.
    return None if part_changes else {"type": "message", "role": "assistant", "content": parts, **changed}


_NOTHING: JsonObject = {"set": {}}


def _beside_parts(inside: JsonValue) -> JsonObject | None:
    """Return the changes of parts by their places, if they are the only changes of the content."""
    if type(inside) is not dict or inside.keys() != {"content"}:
        return None
    change = inside["content"]
    parts = change.get("inside") if type(change) is dict and len(change) == 1 else None
    return {**parts} if type(parts) is dict else None


# Any input item as an entry, and back, value for value

SHAPE: providers.Shape = "openai-responses"

OTHER = "item"
"""The role of a message whose content is an item as JSON text, because the item is in no form of the API."""

WHOLE = "openaiAgentsItem"
"""The field of ``extra`` that has an item as JSON text in ASCII, where our message cannot say all of it."""

USAGE = "openai_agents.usage"
"""The kind of an entry for calls that were paid without an answer to be stored, such as those of a tool's agent."""

COMPACTED = "openaiAgentsItems"
"""The field of a compaction's details that has the items in place of the compacted ones."""

_PLAIN = '{"openaiResponses":{"unset":["type"]}}'
"""The ``extra`` of an item with only a role and a content, as most items of users are: it is read without printing."""

Call = Mapping[str, JsonValue]


def entries_of(
    items: Sequence[object], names: MutableMapping[str, str], calls: Sequence[Call] = (), model: str | None = None
) -> list[NewEntry]:
    """Return items as entries ready to be written; the last answer among them has the calls that were paid for it.

    Where there is no answer, an entry of its own has the calls. ``names`` are the names of the tool calls so far, by
    id; those of the items are added. Raises `InvalidEntry` for a value that JSON cannot hold. O(size).
    """
    entries: list[NewEntry] = []
    to_pay: Sequence[Call] = calls
    # From the end, since the last answer pays; the names of calls are known before, since they come first.
    readings = [item_reading(item, names, f"items[{number}]") for number, item in enumerate(items)]
    for number, reading in reversed([*enumerate(readings)]):
        entry = _entry(reading, to_pay, model, f"items[{number}]")
        entries.append(entry)
        to_pay = () if entry.role == "assistant" else to_pay
    entries.reverse()
    if to_pay:
        entries.append(NewEntry.custom(USAGE, {}, calls=to_pay))
    return entries


class Reading(NamedTuple):
    """An item, as a message if it is in a form of the API, and its difference to the item that the message prints."""

    item: JsonObject
    message: JsonObject | None
    difference: JsonObject


def item_reading(item: object, names: MutableMapping[str, str], where: str) -> Reading:
    """Return an item as it is stored; the name of its call is added to ``names``. Raises `InvalidEntry`. O(size)."""
    plain = _plain(item, where)
    try:
        [(message, _)] = providers.convert(plain, SHAPE, names, where)
    except InvalidEntry:
        return Reading(plain, None, {})
    printed = providers.to_provider(message, SHAPE).messages
    return Reading(plain, message, close_difference(printed[0] if len(printed) == 1 else {}, plain))


def _entry(reading: Reading, calls: Sequence[Call], model: str | None, where: str) -> NewEntry:
    if reading.message is not None:
        is_answer = reading.message["role"] == "assistant"
        message = {**reading.message, "model": model} if is_answer and model is not None else reading.message
        try:
            entry = entry_of_message(message, calls=calls if is_answer else ())
            extra, replaced = encode_json({EXTRA: reading.difference}, "extra") if reading.difference else (None, 0)
        except InvalidEntry:
            pass
        else:
            if entry.surrogates_replaced or replaced:
                extra = encode_json({WHOLE: _whole(reading.item, where)}, "extra")[0]
            return entry if extra is None else replace(entry, extra=extra, surrogates_replaced=0)
    return entry_of_message({"role": OTHER, "content": _whole(reading.item, where)})


def items_of(shown_item: ContextEntry) -> list[TResponseInputItem]:
    """Return the items that an entry of the context is: one, unless another program wrote the entry. O(size)."""
    entry = shown_item.entry
    if entry.kind == COMPACTION:
        stored = fields_of(entry.fields.get("details")).get(COMPACTED)
        if isinstance(stored, list):
            items: list[Any] = stored
            return items
    is_itself = entry.kind == MESSAGE and not shown_item.excluded_parts
    message = decode_object(entry.payload) if is_itself else shown_item.data
    if is_itself and entry.extra == _PLAIN and isinstance(message.get("content"), str):
        return [cast("TResponseInputItem", {"role": message["role"], "content": message["content"]})]
    if message.get("role") == OTHER and isinstance(message.get("content"), str):
        return [json.loads(cast("str", message["content"]))]
    extra = entry.extra_fields if is_itself else None
    if extra is not None:
        if isinstance(whole := extra.get(WHOLE), str):
            return [json.loads(whole)]
        item = shortcuts_printed(message, extra.get(EXTRA, {}))
        if item is not None:
            return [cast("TResponseInputItem", item)]
    printed: list[Any] = list(providers.to_provider(message, SHAPE, extra).messages)
    return printed


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
