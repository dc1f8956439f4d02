"""Events of ADK as entries of ours, and back, value for value.

An event with content is one message, or several: each response of a function is the result of a tool. What such
messages would not give back stands beside the last of them, in its ``extra``, as a difference (`BESIDE`). An event
without content is an entry of a kind of its own (`EVENT`). The last entry has the event's id, the others have ids that
were drawn.

Events are JSON here, as ADK prints them: camel case, without what is as its default.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, cast
from uuid import uuid4

from flue_py.adapters.adk.parts import part_of_gemini, part_of_ours, result_of_gemini, result_of_ours
from flue_py.adapters.shown import shown_groups
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.faithful import SUMMARIZED_ROLES, SYSTEM
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.core.kinds import COMPACTION, MESSAGE
from flue_py.core.usage_shapes import read_reported
from flue_py.errors import InvalidArgument, InvalidEntry, shown
from flue_py.wire.differences import difference, restored

EVENT = "adk.event"
"""The kind of an event without content: what an agent did, such as a change of the state."""

STATE = "adk.state"
"""The kind of an entry with state that came with no event (see `states`)."""

BESIDE = "adk"
"""The field of an entry's ``extra`` with what its message would not give back, and with what is known there."""

_PART = "part"  # an entry of an event that goes on in the next one
_PART_TEXT = f'{{"{BESIDE}":{{"{_PART}":true}}}}'
_TEXT = "text"  # the whole event as text: what no JSON in UTF-8 can hold
_STOPS: dict[JsonValue, str] = {"STOP": "stop", "MAX_TOKENS": "length"}
_FINISHES = {"stop": "STOP", "toolUse": "STOP", "length": "MAX_TOKENS"}


class Found(NamedTuple):
    """An event as its entries have it: nothing is decoded before it is asked for, and nothing is kept decoded.

    ``by_hand`` is what the event is if none made the entry.
    """

    entries: tuple[Entry, ...]
    by_hand: JsonObject | None = None

    @property
    def entry(self) -> Entry:
        """The entry that ends it."""
        return self.entries[-1]

    @property
    def event(self) -> JsonObject:
        """The event, made afresh. O(size)."""
        return _restored(self.entries, beside_of(self.entry) or {}) if self.by_hand is None else self.by_hand

    @property
    def time(self) -> float:
        """When it happened, in seconds since 1970. O(size of what stands beside it)."""
        return timestamp_of(self.entry) if self.by_hand is None else cast("float", self.by_hand["timestamp"])


def entries_of(event: JsonObject, beside: JsonObject, entry_id: str, *, is_same_call: bool = True) -> list[NewEntry]:
    """Return an event as entries, with what else is to stand beside the last of them. O(size).

    What it paid for goes by its own id, also where its entry has another one, unless ``is_same_call`` is False.
    """
    kept, is_whole = _storable(event)
    messages = _messages_of(kept)
    if not is_whole:
        beside = {**beside, _TEXT: as_text(event, "event")}
    if not messages:
        data = {name: value for name, value in kept.items() if name != "id" or value != entry_id}
        return [NewEntry.custom(EVENT, data if is_whole else None, id=entry_id, extra=_extra(beside))]
    if is_whole:
        beside = {**_difference(messages, event, entry_id), **beside}
    first = [NewEntry.message(message, extra={BESIDE: {_PART: True}}) for message in messages[:-1]]
    calls = _calls(messages[-1].get("usage"), event, entry_id) if is_same_call else []
    return [*first, NewEntry.message(messages[-1], id=entry_id, extra=_extra(beside), calls=calls)]


def _calls(usage: JsonValue, event: JsonObject, entry_id: str) -> list[JsonObject]:
    """Return what an event paid for under its own id, where its entry has another one."""
    return [{**usage, "callId": event["id"]}] if isinstance(usage, dict) and entry_id != event["id"] else []


class Compaction(NamedTuple):
    """What a compaction of ours says; ``first_kept`` is None where nothing is kept."""

    summary: str
    first_kept: str | None
    tokens: int


def compaction_entries(
    event: JsonObject, beside: JsonObject, entry_id: str, compaction: Compaction, *, is_same_call: bool
) -> list[NewEntry]:
    """Return an event that compacts as a compaction of ours, behind an entry with the event. O(size).

    Where nothing is kept, the compaction names that entry, which no model sees, as the first one kept.
    """
    kept, is_whole = _storable(event)
    usage = kept.get("usageMetadata")
    held = uuid4().hex
    return [
        NewEntry.custom(EVENT, kept, id=held, extra={BESIDE: {_PART: True}}),
        NewEntry.compaction(
            compaction.summary,
            first_kept_entry_id=compaction.first_kept or held,
            tokens_before=compaction.tokens,
            usage=usage if isinstance(usage, dict) else None,
            calls=_calls(usage, event, entry_id) if is_same_call else [],
            id=entry_id,
            extra=_extra(beside if is_whole else {**beside, _TEXT: as_text(event, "event")}),
        ),
    ]


def events_of(entries: Iterable[Entry]) -> Iterator[Found]:
    """Yield the events that entries of a path are, in its order. O(size).

    Messages that no event made, of a session that was begun by hand, are events too. Raises `InvalidArgument` for one
    that ADK has no event for.
    """
    yield from _events(_groups(entries))


def events_shown(path: Sequence[Entry]) -> list[Found]:
    """Return the events that the model is sent of a whole path, in order. Raises as `events_of`. O(size)."""
    found = list(_events(shown_groups(list(_groups(path)), is_own=_is_own_compaction)))
    # The framework puts them in the order of their times, and a summary is younger than what is kept behind it.
    for each, after in reversed([*pairwise(found)]):
        if each.by_hand is not None:
            each.by_hand["timestamp"] = min(each.time, after.time)
    return found


def _is_own_compaction(entry: Entry) -> bool:
    return entry.kind == COMPACTION and is_event(entry)


def _groups(entries: Iterable[Entry]) -> Iterator[Sequence[Entry]]:
    before: list[Entry] = []
    for entry in entries:
        before.append(entry)
        if entry.extra != _PART_TEXT:
            # The rest of an event whose end is not on this path stands for itself.
            is_whole = entry.kind != STATE and is_event(entry)
            yield from [before] if is_whole else ([each] for each in before)
            before = []
    yield from ([each] for each in before)


def _events(groups: Iterable[Sequence[Entry]]) -> Iterator[Found]:
    for group in groups:
        last = group[-1]
        if last.kind != STATE and is_event(last) and last.extra != _PART_TEXT:
            yield Found((*group,))
        elif (event := _event_by_hand(last)) is not None:
            yield Found((last,), event)


def beside_of(entry: Entry) -> JsonObject | None:
    """Return what stands beside an entry that is of an event, or None. O(size)."""
    if not is_event(entry):
        return None
    found = entry.extra_fields.get(BESIDE)
    return found if isinstance(found, dict) else None


def is_event(entry: Entry) -> bool:
    """Return whether an entry is of an event. O(size)."""
    return entry.extra is not None and f'"{BESIDE}"' in entry.extra


def is_part(beside: JsonObject) -> bool:
    """Return whether what stands beside an entry says that its event goes on in the next one."""
    return _PART in beside


def delta_of(entry: Entry) -> JsonObject:
    """Return how the event that an entry ends changed the state. O(size)."""
    beside = beside_of(entry) or {}
    text = beside.get(_TEXT)
    event = json.loads(text) if isinstance(text, str) else entry.fields if entry.kind == EVENT else beside.get("set")
    actions = event.get("actions") if isinstance(event, dict) else None
    delta = actions.get("stateDelta") if isinstance(actions, dict) else None
    return delta if isinstance(delta, dict) else {}


def timestamp_of(entry: Entry) -> float:
    """Return the time of the event that an entry ends; of one that no event made, its own. O(size)."""
    beside = beside_of(entry)
    if beside is None or is_part(beside) or entry.kind == STATE:
        return entry.created_us / 1_000_000
    text = beside.get(_TEXT)
    event = json.loads(text) if isinstance(text, str) else entry.fields if entry.kind == EVENT else beside.get("set")
    told = event.get("timestamp") if isinstance(event, dict) else None
    if not isinstance(told, (int, float)):
        told = beside.get("timestamp")
    return told if isinstance(told, (int, float)) else entry.created_us / 1_000_000


# --- An event as messages ---------------------------------------------------------------------------------------------


def _messages_of(event: JsonObject) -> list[JsonObject]:
    """Return the messages that an event is, none if it says nothing."""
    content = event.get("content")
    parts = content.get("parts") if isinstance(content, dict) else None
    author = event.get("author")
    made: list[JsonObject] = []
    said: list[JsonValue] = []
    for number, part in enumerate(parts if isinstance(parts, list) else ()):
        if not isinstance(part, dict):
            return []
        if isinstance(part.get("functionResponse"), dict):
            if said:
                made.append(_said(said, author))
                said = []
            made.append(result_of_ours(part, number, author))
        else:
            said.append(part_of_ours(part, number))
    if said:
        made.append(_said(said, author))
    is_answer = author != "user" and ("usageMetadata" in event or "errorCode" in event)
    if not made and is_answer:
        made.append({"role": "assistant", "content": None, "agent": author})
    if made and made[-1]["role"] == "assistant":
        made[-1].update(_answered(event, made[-1]))
    return made


def _said(parts: list[JsonValue], author: JsonValue) -> JsonObject:
    first = parts[0]
    is_text = len(parts) == 1 and isinstance(first, dict) and first.get("type") == "text"
    content = first["text"] if is_text and isinstance(first, dict) else parts
    if author == "user":
        return {"role": "user", "content": content}
    return {"role": "assistant", "content": content, "agent": author}


def _answered(event: JsonObject, message: JsonObject) -> JsonObject:
    """Return the fields of an answer: who gave it, what it used, and how it ended."""
    fields: JsonObject = {}
    model = event.get("modelVersion")
    if isinstance(model, str):
        fields["model"] = model
        if model.startswith(("gemini", "models/gemini")):
            fields["provider"] = "google"
    if isinstance(event.get("usageMetadata"), dict):
        fields["usage"] = event["usageMetadata"]
    content = message.get("content")
    calls = isinstance(content, list) and any(isinstance(p, dict) and p.get("type") == "toolCall" for p in content)
    if "errorCode" in event:
        fields["stopReason"] = "error"
        fields["errorMessage"] = str(event.get("errorMessage") or event["errorCode"])
    elif "finishReason" in event:
        stop = _STOPS.get(event["finishReason"], "error")
        fields["stopReason"] = "toolUse" if calls and stop == "stop" else stop
    return fields


# --- And back ---------------------------------------------------------------------------------------------------------


def _printed(messages: Sequence[JsonObject], entry_id: str) -> JsonObject:
    """Return the event that messages are as far as they go."""
    event: JsonObject = {"id": entry_id}
    parts: list[JsonValue] = []
    for message in messages:
        content = message.get("content")
        if message.get("role") == "toolResult":
            parts.append(result_of_gemini(message))
        elif isinstance(content, str):
            parts.append({"text": content})
        elif isinstance(content, list):
            parts += [part_of_gemini(part) for part in content if isinstance(part, dict)]
    last = messages[-1]
    role = "model" if last.get("role") == "assistant" else "user"
    if parts:
        event["content"] = {"parts": parts, "role": role}
    event["author"] = "user" if last.get("role") == "user" else last.get("agent")
    for ours, theirs in (("model", "modelVersion"), ("usage", "usageMetadata")):
        if last.get("role") == "assistant" and ours in last:
            event[theirs] = last[ours]
    stop = last.get("stopReason")
    if isinstance(stop, str) and stop in _FINISHES:
        event["finishReason"] = _FINISHES[stop]
    if "errorMessage" in last:
        event["errorMessage"] = last["errorMessage"]
    return event


def _difference(messages: Sequence[JsonObject], event: JsonObject, entry_id: str) -> JsonObject:
    """Return what makes the event of what its messages print."""
    printed = _printed(messages, entry_id)
    ours, theirs = printed.get("content"), event.get("content")
    parts: JsonObject = {}
    if isinstance(ours, dict) and isinstance(theirs, dict):
        made, wanted = ours["parts"], theirs.get("parts")
        assert isinstance(made, list)
        assert isinstance(wanted, list)
        for number, (one, other) in enumerate(zip(made, wanted, strict=True)):
            if one != other or json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True):
                assert isinstance(one, dict)
                assert isinstance(other, dict)
                parts[str(number)] = difference(one, other)
        event = {**event, "content": {**theirs, "parts": made}}
    found = difference(printed, event)
    if parts:
        found["parts"] = parts
    changed = found.get("set")
    if isinstance(changed, dict) and isinstance(changed.get("content"), dict) and "content" in printed:
        # Only the role can be another one: the parts are told above.
        found["role"] = event["content"].get("role") if isinstance(event["content"], dict) else None
        del changed["content"]
    return found


def _restored(entries: Sequence[Entry], beside: JsonObject) -> JsonObject:
    """Return the event that entries with this beside them are."""
    text, last = beside.get(_TEXT), entries[-1]
    if isinstance(text, str):
        event = json.loads(text)
        assert isinstance(event, dict)
        return event
    if last.kind != MESSAGE:
        # What was read may begin between the two entries of a compaction.
        told = (
            {"timestamp": beside["timestamp"]} if len(entries) == 1 and last.kind == COMPACTION else entries[0].fields
        )
        return {"id": last.id, **told}
    printed = _printed([entry.fields for entry in entries], last.id)
    content, parts = printed.get("content"), beside.get("parts")
    if isinstance(content, dict):
        if isinstance(parts, dict):
            made = content["parts"]
            assert isinstance(made, list)
            content["parts"] = [
                restored(part, parts.get(str(number))) if isinstance(part, dict) else part
                for number, part in enumerate(made)
            ]
        if "role" in beside:
            content["role"] = beside["role"]
    return restored(printed, beside)


def _event_by_hand(entry: Entry) -> JsonObject | None:
    """Return the event that an entry is which no event made; None if it says nothing to ADK.

    ADK has no messages of the system among its events: what one says is said by the user. Raises `InvalidArgument` for
    a role that ADK has no event for.
    """
    if entry.kind != MESSAGE:
        return None
    if entry.role not in (*SUMMARIZED_ROLES, *SYSTEM):
        raise InvalidArgument(
            f"entry {entry.id!r}: ADK has no event for a message of the role {shown(entry.role)}; leave it out of the "
            "path, or read the session with flue_py"
        )
    event: JsonObject = {"id": entry.id, "invocationId": entry.id, "timestamp": entry.created_us / 1_000_000}
    printed = _printed([entry.fields], entry.id)
    content = printed.get("content")
    if isinstance(content, dict) and isinstance(content["parts"], list):
        content["parts"] = [part for part in content["parts"] if part]
    if "usageMetadata" in printed:
        printed["usageMetadata"] = _usage(printed["usageMetadata"])
    author = "user" if entry.role in SYSTEM else printed.get("author") or "model"
    return {**event, **printed, "author": author}


def _usage(reported: JsonValue) -> JsonObject:
    """Return usage in any known shape as Gemini's, which counts what comes from a cache as part of the prompt."""
    found = read_reported(reported)
    tokens = found.totals
    prompt = tokens.input + tokens.cache_read + tokens.cache_write
    counts = {
        "promptTokenCount": prompt if "input" in found.told else None,
        "cachedContentTokenCount": tokens.cache_read if "cacheRead" in found.told else None,
        "candidatesTokenCount": tokens.output if "output" in found.told else None,
        "totalTokenCount": prompt + tokens.output if found.is_known else None,
    }
    return {name: count for name, count in counts.items() if count is not None}


# --- What JSON in UTF-8 can hold ----------------------------------------------------------------------------------


def _storable(event: JsonObject) -> tuple[JsonObject, bool]:
    """Return an event as it can be stored, and whether it is the same."""
    try:
        _, replaced = encode_json(event, "event")
        return event, not replaced
    except InvalidEntry:
        pass
    # NaN and infinities are null to who reads it without ADK; what is nested too deep is only in the text.
    kept: JsonObject = {"author": event.get("author")}
    for name, value in event.items():
        try:
            finite = _finite(value)
            encode_json(finite, name)
        except InvalidEntry:
            continue
        kept[name] = finite
    return kept, False


def _finite(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {name: _finite(inside) for name, inside in value.items()}
    if isinstance(value, list):
        return [_finite(inside) for inside in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_text(value: JsonObject, what: str) -> str:
    """Return JSON as text: what no JSON in UTF-8 can hold. Raises `InvalidArgument` if it could not be read again."""
    try:
        return json.dumps(value)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(
            f"{what}: it could not be read again ({error}); make text of large integers, and flatten what is nested"
        ) from None


def _extra(beside: JsonObject) -> JsonObject:
    return {BESIDE: beside}
