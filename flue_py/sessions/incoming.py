"""Messages on their way in: checked, and those of a provider converted into ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, cast

from flue_py import wire
from flue_py.core.entries import NewEntry, entry_of_message
from flue_py.core.ids import derived_id
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.core.sessions import Appended, ConvertedMessage
from flue_py.core.shell import SHELL_SOURCE, shell_exchange
from flue_py.errors import InvalidEntry
from flue_py.wire.responses import Response, response_in

if TYPE_CHECKING:
    from pydantic import BaseModel

    from flue_py.core.messages import Message
    from flue_py.core.shapes import Shape

_NEUTRAL = frozenset({"role", "content", "name"})
_OUR_MODELS = "flue_py.core.messages"
_SPEAKERS = frozenset({"user", "assistant", "system", "developer"})


class Incoming(NamedTuple):
    """Messages as entries ready to be written, and which entries each of them became."""

    entries: list[NewEntry]
    starts: list[int]
    """Where the entries of each message begin, and where the last ones end."""
    shapes: list[Shape | None]

    def became(self, entries: Sequence[Sequence[NewEntry]]) -> Incoming:
        """Return the messages with what has become of each entry."""
        begins = [0]
        for each in entries:
            begins.append(begins[-1] + len(each))
        return Incoming([entry for each in entries for entry in each], [begins[at] for at in self.starts], self.shapes)

    def noted_in(self, appended: Appended) -> Appended:
        """Return the result of the append with the messages that were converted."""
        if not any(self.shapes):
            return appended
        ids = appended.entry_ids
        spans = zip(self.shapes, pairwise(self.starts), strict=True)
        found = tuple(
            ConvertedMessage(number, shape, ids[start:end])
            for number, (shape, (start, end)) in enumerate(spans)
            if shape is not None
        )
        return replace(appended, converted=found)


def as_incoming(entries: list[NewEntry]) -> Incoming:
    """Return entries that are ours already, each a message of its own."""
    return Incoming(entries, list(range(len(entries) + 1)), [None] * len(entries))


def incoming_message(
    message: Mapping[str, JsonValue] | Message | BaseModel,
    source: str | None,
    calls: Sequence[Mapping[str, JsonValue]] = (),
    produced_under: str | None = None,
) -> Incoming:
    """Return one message as entries (see `incoming_messages`), its answer with the calls that made it."""
    value = _plain(message)
    if isinstance(value, (dict, Mapping)) and ("role" not in value or wire.shape_of(value) is not None):
        return _incoming([value], ["message"], source, calls, produced_under)
    return as_incoming([entry_of_message(value, source, calls=calls, produced_under=produced_under)])


def incoming_messages(
    messages: Sequence[Mapping[str, JsonValue] | Message | BaseModel],
    source: str | None,
    produced_under: str | None = None,
) -> Incoming:
    """Return messages as entries; those in the form of a provider are converted, all others taken as they are.

    A whole response is the messages in it. With ``produced_under``, answers with signed reasoning say so. Raises
    `InvalidEntry` naming the message and the field (``messages[1].content``). O(size).
    """
    where = [f"messages[{number}]" for number in range(len(messages))]
    return _incoming([_plain(message) for message in messages], where, source, (), produced_under)


def shell_entries(
    command: str, output: str, exit_code: int | None, drawn_id: str, idempotency_key: str | None
) -> list[NewEntry]:
    """Return the entries of a command. The call's id is that of its entry, or the same for each retry of a key."""
    if idempotency_key is None:
        return shell_exchange(command, output, exit_code, call_id=drawn_id, answer_id=drawn_id)
    return shell_exchange(command, output, exit_code, call_id=derived_id(SHELL_SOURCE, idempotency_key))


def _incoming(
    messages: Sequence[Mapping[str, JsonValue] | Message],
    where: Sequence[str],
    source: str | None,
    calls: Sequence[Mapping[str, JsonValue]],
    digest: str | None,
) -> Incoming:
    responses = [
        response_in(message, path) if isinstance(message, Mapping) else None
        for message, path in zip(messages, where, strict=True)
    ]
    shapes = [
        wire.shape_of(message, path) if whole is None and isinstance(message, Mapping) else whole and whole.shape
        for message, whole, path in zip(messages, responses, where, strict=True)
    ]
    in_use = {shape for shape in shapes if shape is not None}
    only = in_use.pop() if len(in_use) == 1 else None
    names: dict[str, str] = {}
    entries: list[NewEntry] = []
    starts = [0]
    for message, whole, shape, path in zip(messages, responses, shapes, where, strict=True):
        if shape is not None and isinstance(message, Mapping):
            # Check for JSON before the conversion, so that an error names the path where the value was given.
            encode_json(message, path)
            parts = ((dict(message), path),) if whole is None else whole.messages
            converted = [
                (each.message, each.beside, at) for part, at in parts for each in wire.convert(part, shape, names, at)
            ]
            last = len(converted) - 1
            if whole is not None:
                last = _answer_of(whole, converted, path)
            entries += [
                _beside(entry_of_message(each, source, at, calls if number == last else (), digest), beside)
                for number, (each, beside, at) in enumerate(converted)
            ]
        else:
            entry = entry_of_message(message, source, path, calls, digest)
            beside = wire.beside_ours(dict(message), only) if only is not None and _is_neutral(message) else {}
            entries.append(_beside(entry, beside))
        starts.append(len(entries))
    return Incoming(entries, starts, shapes)


def _answer_of(whole: Response, converted: Sequence[tuple[JsonObject, JsonObject, str]], where: str) -> int:
    """Put what a response says of its call on the last answer in it; return which that is."""
    answers = [number for number, (message, _, _) in enumerate(converted) if message.get("role") == "assistant"]
    if not answers:
        raise InvalidEntry(f"{where}: is a response without an answer; append the messages in it, one by one")
    message = converted[answers[-1]][0]
    message.update(whole.call)
    return answers[-1]


def _plain(message: Mapping[str, JsonValue] | Message | BaseModel) -> Mapping[str, JsonValue] | Message:
    """Return an object of a provider's library as JSON: what was set in it. Anything else is returned as it is."""
    if isinstance(message, dict) or type(message).__module__ == _OUR_MODELS or not hasattr(message, "model_dump"):
        return cast("Mapping[str, JsonValue] | Message", message)
    dumped: Mapping[str, JsonValue] = message.model_dump(mode="json", exclude_unset=True, warnings=False)
    return dumped


def _beside(entry: NewEntry, beside: JsonObject) -> NewEntry:
    return replace(entry, extra=encode_json(beside, "extra")[0]) if beside else entry


def _is_neutral(message: Mapping[str, JsonValue] | Message) -> bool:
    """Return whether a message of ours is one of each provider's, too."""
    if not isinstance(message, Mapping) or not message.keys() <= _NEUTRAL or message.get("role") not in _SPEAKERS:
        return False
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return all(isinstance(part, dict) and part.get("type") == "text" for part in parts)
