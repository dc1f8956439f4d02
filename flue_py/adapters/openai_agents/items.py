"""One input item of the SDK, as an entry of ours and back, value for value.

Items are those of the Responses API, so `flue_py.providers` makes our messages of them. What differs from what it would
print again stands beside the message, where exports find it, too. An item that is in no form of that API, such as an
envelope of `EncryptedSession`, is kept as JSON text in a message of the role `OTHER`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from msgspec.structs import replace

from flue_py import providers
from flue_py.core.context import ContextEntry
from flue_py.core.entries import NewEntry, entry_of_message
from flue_py.core.json import JsonObject, JsonValue, decode_object, encode_json
from flue_py.core.kinds import COMPACTION, MESSAGE
from flue_py.errors import InvalidEntry, shown
from flue_py.providers.base import close_difference
from flue_py.providers.lists import Said, said_of
from flue_py.providers.openai_chat import arguments_from_text, arguments_text
from flue_py.providers.openai_responses import API, EXTRA, PROVIDER

if TYPE_CHECKING:
    from agents import TResponseInputItem


# Common item forms, converted without the general way through `flue_py.providers`
#
# A text of a role, a call of a function, its output as text, an answer of texts: of these the message and what stands
# beside it are known beforehand, and both ways give what the general one gives, for a fraction of its time. What is in
# any other form goes the general way: each function here returns None for it.

_SAID = frozenset({"role", "content", "type"})
_ANSWER = frozenset({"id", "type", "role", "status", "content", "phase"})
_CALL = frozenset({"id", "type", "status", "call_id", "name", "arguments"})
_OUTPUT = frozenset({"id", "type", "status", "call_id", "output"})
_TEXT = frozenset({"type", "text", "annotations", "logprobs"})
_ROLES = frozenset({"user", "assistant", "system", "developer"})
_UNTYPED: JsonObject = {"unset": ["type"]}

_PART = frozenset({"type", "id", "name", "arguments"})
_RESULT = frozenset({"role", "toolCallId", "toolName", "content"})
_ANSWERED = frozenset({"role", "content", "api", "provider", "model", "usage"})


def read(item: JsonObject, names: MutableMapping[str, str]) -> tuple[JsonObject, JsonObject] | None:
    """Return an item as a message of ours, and what printing it again would not give back. O(size)."""
    kind = item.get("type")
    if kind == "function_call":
        return _read_call(item, names)
    if kind == "function_call_output":
        return _read_output(item, names)
    if kind == "message" and type(item.get("content")) is list:
        return _read_answer(item)
    role, content = item.get("role"), item.get("content")
    if type(role) is not str or role not in _ROLES or type(content) is not str or not item.keys() <= _SAID:
        return None
    if kind != "message" and "type" in item:
        return None
    message: JsonObject = {"role": role, "content": content}
    if role == "assistant":
        message.update(api=API, provider=PROVIDER)
    return message, {} if kind == "message" else _UNTYPED


def _read_call(item: JsonObject, names: MutableMapping[str, str]) -> tuple[JsonObject, JsonObject] | None:
    call_id, name, text = item.get("call_id"), item.get("name"), item.get("arguments")
    if type(call_id) is not str or type(name) is not str or type(text) is not str or not item.keys() <= _CALL:
        return None
    arguments = arguments_from_text(text)
    part: JsonObject = {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments}
    names[call_id] = name
    printed = text if arguments is text else arguments_text(arguments)
    changed = {
        field: value
        for field, value in item.items()
        if field in ("id", "status") or (field == "arguments" and value != printed)
    }
    message: JsonObject = {"role": "assistant", "content": [part], "api": API, "provider": PROVIDER}
    return message, {"set": changed} if changed else {}


def _read_output(item: JsonObject, names: Mapping[str, str]) -> tuple[JsonObject, JsonObject] | None:
    call_id, output = item.get("call_id"), item.get("output")
    if type(call_id) is not str or type(output) is not str or not item.keys() <= _OUTPUT:
        return None
    message: JsonObject = {"role": "toolResult", "toolCallId": call_id}
    if call_id in names:
        message["toolName"] = names[call_id]
    message["content"] = output
    changed = {field: value for field, value in item.items() if field in ("id", "status")}
    return message, {"set": changed} if changed else {}


def _read_answer(item: JsonObject) -> tuple[JsonObject, JsonObject] | None:
    content = item["content"]
    if item.get("role") != "assistant" or not item.keys() <= _ANSWER or not isinstance(content, list) or not content:
        return None
    parts: list[JsonValue] = []
    beside: JsonObject = {}
    for number, part in enumerate(content):
        if type(part) is not dict or part.get("type") != "output_text" or not part.keys() <= _TEXT:
            return None
        text = part.get("text")
        if type(text) is not str:
            return None
        more = {field: value for field, value in part.items() if field not in ("type", "text")}
        parts.append({"type": "text", "text": text, **more})
        if more:
            beside[str(number)] = {"set": more}
    changed = {field: value for field, value in item.items() if field in ("id", "status", "phase")}
    message: JsonObject = {"role": "assistant", "content": parts, "api": API, "provider": PROVIDER}
    found: JsonObject = {"set": changed} if changed else {}
    if beside:
        found["inside"] = {"content": {"inside": beside}}
    return message, found


def shortcuts_printed(message: JsonObject, found: JsonValue) -> JsonObject | None:
    """Return the item that a message is, with the difference that stands beside it applied. O(size)."""
    changed = found.get("set", {}) if type(found) is dict and "unset" not in found else None
    if type(found) is not dict or type(changed) is not dict:
        return None
    content, inside = message.get("content"), found.get("inside")
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
    beside = {} if inside is None else _beside_parts(inside)
    if beside is None or not content:
        return None
    said: list[JsonValue] = []
    for number, part in enumerate(content):
        if type(part) is not dict or part.get("type") != "text":
            return None
        item: JsonObject = {"type": "output_text", "text": part.get("text")}
        if beside:
            more = beside.pop(str(number), _NOTHING)
            told = more.get("set") if type(more) is dict and len(more) == 1 else None
            if type(told) is not dict:
                return None
            item.update(told)
        said.append(item)
    # What is left stands beside a part that there is not.
    return None if beside else {"type": "message", "role": "assistant", "content": said, **changed}


_NOTHING: JsonObject = {"set": {}}


def _beside_parts(inside: JsonValue) -> JsonObject | None:
    """Return what stands beside parts by their places, if nothing else is said of the content."""
    if type(inside) is not dict or inside.keys() != {"content"}:
        return None
    found = inside["content"]
    parts = found.get("inside") if type(found) is dict and len(found) == 1 else None
    return {**parts} if type(parts) is dict else None


# Any input item as an entry, and back, value for value
#
# Items are those of the Responses API, so `flue_py.providers` makes our messages of them. What differs from what it
# would print again stands beside the message, where exports find it, too. An item that is in no form of that API, such
# as an envelope of `EncryptedSession`, is kept as JSON text in a message of the role `OTHER`.

SHAPE: providers.Shape = "openai-responses"

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
    short = read(plain, names)
    if short is not None:
        return _Said(plain, *short)
    try:
        [(message, _)] = providers.convert(plain, SHAPE, names, where)
    except InvalidEntry:
        return _Said(plain, None, {})
    printed = providers.to_provider(message, SHAPE).messages
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
        item = shortcuts_printed(message, beside.get(EXTRA, {}))
        if item is not None:
            return [cast("TResponseInputItem", item)]
    printed: list[Any] = list(providers.to_provider(message, SHAPE, beside).messages)
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
        if EXTRA not in said.extra and len(providers.to_provider(message, SHAPE).messages) == 1:
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
