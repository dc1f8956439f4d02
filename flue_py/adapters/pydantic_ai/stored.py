"""A message of a conversation as entries of a session, and the entries of a path as the messages they are.

All entries of one message lie behind each other. The last has the id of the message's entry in the conversation, and,
in its ``extra``, what makes the framework's message of ours again: the places where that differs from what ours would
be there (`ours`), and what no JSON can say (`exactness`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from pydantic import ValidationError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse
from pydantic_core import PydanticSerializationError, from_json, to_json

from flue_py.adapters.keys import key_of
from flue_py.adapters.pydantic_ai.by_hand import message_by_hand
from flue_py.adapters.pydantic_ai.exactness import repaired, repairs, without_surrogates
from flue_py.adapters.pydantic_ai.ours import (
    Said,
    arguments_as_text,
    form_of_arguments,
    request_of,
    response_of,
    said_in,
)
from flue_py.adapters.pydantic_ai.spending import calls_of, identity_of, named_call
from flue_py.adapters.shown import shown_groups
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.jsontext import JsonObject, JsonValue, decode_object
from flue_py.core.kinds import MESSAGE
from flue_py.errors import CorruptStore, InvalidEntry
from flue_py.wire.differences import close_difference, restored

if TYPE_CHECKING:
    from pydantic_ai.conversation_store import ConversationEntry

FIELD = "pydanticAi"
"""The field of an entry's ``extra``, and of a session's metadata, that is this adapter's."""

SILENT = "pydantic_ai.request"
"""The kind of an entry for a request that says nothing a message of ours could: one without parts, for example."""


class Group(NamedTuple):
    """The entries of one message, and what stands beside the last of them; None for one that was added by hand."""

    entries: Sequence[Entry]
    beside: JsonObject | None

    @property
    def id(self) -> str:
        """The id of the message's entry in the conversation."""
        named = (self.beside or {}).get("id")
        return named if isinstance(named, str) else self.entries[-1].id


# --- Writing ------------------------------------------------------------------------------------------------------


def entries_of(new: Sequence[ConversationEntry], state: JsonObject | None) -> list[list[NewEntry]]:
    """Return the entries of each message, in order; the last of all has ``state`` beside it.

    Raises `InvalidEntry` for a message with a value that JSON has no form for. O(size).
    """
    dumped = dumped_messages([entry.message for entry in new])
    read = _validated(dumped)
    last = len(new) - 1
    return [
        _entries(entry, message, again, state if number == last else None)
        for number, (entry, message, again) in enumerate(zip(new, dumped, read, strict=True))
    ]


def dumped_messages(messages: Sequence[ModelMessage]) -> list[JsonObject]:
    """Return messages as JSON, by the framework's own rules. Raises `InvalidEntry`. O(size)."""
    try:
        try:
            return _dumped_as_they_are(messages)
        except PydanticSerializationError:
            # Half of a surrogate pair has no place in UTF-8. It is put back from what stands beside the message.
            return _dumped_as_they_are([without_surrogates(message) for message in messages])
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        what = "messages: pydantic-ai cannot write them as JSON, so they cannot be kept"
        raise InvalidEntry(f"{what}: {error}") from error


def _dumped_as_they_are(messages: Sequence[ModelMessage]) -> list[JsonObject]:
    text = ModelMessagesTypeAdapter.dump_json(list(messages), warnings=False)
    return cast("list[JsonObject]", from_json(text))


def _entries(
    entry: ConversationEntry, dumped: JsonObject, read: ModelMessage, state: JsonObject | None
) -> list[NewEntry]:
    said, silent = said_in(dumped)
    is_response = isinstance(entry.message, ModelResponse)
    calls = calls_of(dumped) if is_response and dumped.get("failed_attempts") else []
    if len(calls) > 1:
        said = [_paid_by(said[0], calls)]
    beside: JsonObject = {}
    if silent:
        beside["silent"] = {str(index): part for index, part in silent.items()}
    if len(said) != 1:
        beside["count"] = len(said)
    made = _predicted([each.message for each in said], beside)
    texts = _texts(made, dumped) if is_response else None
    if texts:
        beside["texts"] = texts
    changes = close_difference(made, dumped)
    if changes:
        beside["changes"] = changes
    exact = repairs(entry.message, read)
    if exact:
        beside["exact"] = exact
    key = key_of(entry.id)
    if key != entry.id:
        beside["id"] = entry.id
    if state is not None:
        beside["state"] = state
    extra: JsonObject = {FIELD: held(beside)}
    if not said:
        return [NewEntry.custom(SILENT, None, id=key, extra=extra)]
    *before, last = said
    ends = NewEntry.message(last.message, last.source, id=key, calls=calls, extra=extra)
    if is_response and not calls:
        ends = named_call(ends, identity_of(dumped))
    return [*(NewEntry.message(*each) for each in before), ends]


def _paid_by(said: Said, calls: Sequence[JsonObject]) -> Said:
    """Return an answer with the usage of all its calls: the framework counts attempts that failed as part of a run."""
    message = {name: value for name, value in said.message.items() if name != "usage"}
    return Said(decode_object(NewEntry.message(message, calls=calls).payload))


def _texts(made: JsonObject, dumped: JsonObject) -> JsonObject:
    """Return of which calls the arguments came as text, and whether it was spaced; ``made`` gets these texts."""
    found: JsonObject = {}
    pairs = zip(cast("list[JsonObject]", made["parts"]), cast("list[JsonObject]", dumped["parts"]), strict=True)
    for index, (ours, theirs) in enumerate(pairs):
        if theirs.get("part_kind") == "tool-call":
            spaced = form_of_arguments(theirs.get("args"), ours.get("args"))
            if spaced is not None:
                found[str(index)] = spaced
                ours["args"] = theirs["args"]
    return found


def held(value: JsonObject) -> JsonValue:
    """Return JSON as it is stored: as text of JSON in ASCII where a string in it has what no store takes."""
    text = json.dumps(value)
    return text if "\\ud" in text or "\\u0000" in text else value


def told(value: JsonValue) -> JsonObject:
    """Return what `held` made into what a store takes. Raises `CorruptStore` if it is none of that."""
    try:
        read: JsonValue = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        read = None
    if not isinstance(read, dict):
        raise CorruptStore(f"the field {FIELD} is not what the adapter for pydantic-ai writes")
    return read


# --- Reading ------------------------------------------------------------------------------------------------------


def beside(entry: Entry) -> JsonObject | None:
    """Return what this adapter keeps beside an entry; None if it has not written it."""
    if entry.extra is None or FIELD not in entry.extra:
        return None
    found = entry.extra_fields.get(FIELD)
    return None if found is None else told(found)


def groups_of(path: Sequence[Entry]) -> list[Group]:
    """Return the messages that the model is sent of a path, in order: the whole path, unless all of it `is_plain`.

    What lies before the first whole message is left out. O(size).
    """
    found: list[Sequence[Entry]] = []
    end = len(path)
    while end:
        near = beside(path[end - 1])
        count = 1 if near is None else max(1, cast("int", near.get("count", 1)))
        if count > end:
            break
        found.append(path[end - count : end])
        end -= count
    groups = [Group(entries, beside(entries[-1])) for entries in shown_groups(found[::-1])]
    return [group for group in groups if group.beside is not None or group.entries[-1].kind == MESSAGE]


def messages_of(groups: Sequence[Group]) -> list[ModelMessage]:
    """Return messages of the framework, value for value as they were given. O(size).

    Raises `InvalidArgument` for an entry that was added by other means and is no message that the framework has.
    """
    names: dict[str, str] = {}
    read = _validated([_dumped(group, names) for group in groups])
    return [
        message if group.beside is None else cast("ModelMessage", repaired(message, group.beside.get("exact")))
        for group, message in zip(groups, read, strict=True)
    ]


def _dumped(group: Group, names: dict[str, str]) -> JsonObject:
    if group.beside is None:
        return message_by_hand(group.entries[-1], names)
    said = [entry.fields for entry in group.entries if entry.kind == "message"]
    made = _predicted(said, group.beside, is_whole=False)
    return restored(made, group.beside.get("changes"))


def _predicted(said: Sequence[JsonObject], beside: JsonObject, is_whole: bool = True) -> JsonObject:
    if len(said) == 1 and said[0].get("role") == "assistant":
        made = response_of(said[0], is_whole)
        parts = cast("list[JsonObject]", made["parts"])
        for index, spaced in cast("JsonObject", beside.get("texts", {})).items():
            parts[int(index)]["args"] = arguments_as_text(parts[int(index)], spaced=bool(spaced))
        return made
    return request_of(said, cast("JsonObject", beside.get("silent", {})), is_whole)


def _validated(dumped: Sequence[JsonObject]) -> list[ModelMessage]:
    try:
        read: list[ModelMessage] = ModelMessagesTypeAdapter.validate_json(to_json(dumped))
    except ValidationError as error:
        where = error.errors(include_url=False)[0]
        place = ".".join(map(str, where["loc"]))
        raise InvalidEntry(f"messages.{place}: this version of pydantic-ai does not read it: {where['msg']}") from error
    return read
