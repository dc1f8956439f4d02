"""Events and state of ADK as entries of ours, and back, value for value; scopes and keys of its sessions."""

from __future__ import annotations

import json
import logging
import math
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, cast
from urllib.parse import quote_from_bytes, unquote_to_bytes
from uuid import uuid4

from google.adk.sessions.state import State as StateNames
from pydantic_core import to_jsonable_python

from flue_py.adapters.common import metadata_of, shown_groups
from flue_py.compaction.plan import estimate_context_tokens
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.json import Frozen, JsonObject, JsonValue, NamedTuple, encode_json
from flue_py.core.kinds import COMPACTION, MESSAGE, SUMMARIZED_ROLES, SYSTEM
from flue_py.core.usage import read_reported
from flue_py.errors import InvalidArgument, InvalidEntry, shown
from flue_py.providers.base import Leftovers, difference, fields_of, listed, restored, result_message
from flue_py.providers.gemini import part_from_gemini, printed_part
from flue_py.sessions.session import Session

if TYPE_CHECKING:
    from google.adk.events.event import Event


# Parts of Gemini's contents as parts of our messages, and back
#
# The parts are those of `flue_py.providers`; results of tools are written here, since ADK has its own way to put the
# return value of a tool into an object.


def part_of_ours(part: JsonObject, number: int) -> JsonValue:
    """Return a part of Gemini's (JSON, camel case) as ours. Not for function responses: they are messages. O(size)."""
    call = part.get("functionCall")
    signature: JsonValue = part.get("thoughtSignature")
    if isinstance(call, dict) and isinstance(call.get("name"), str):
        arguments = call.get("args")
        return {
            "type": "toolCall",
            "id": call.get("id") or f"call:{call['name']}:{number}",
            "name": call["name"],
            "arguments": {} if arguments is None else arguments,
            **({} if signature is None else {"thoughtSignature": signature}),
        }
    if part.get("thought") is True and isinstance(part.get("text"), str):
        signed: JsonObject = {} if signature is None else {"thinkingSignature": signature}
        return {"type": "thinking", "thinking": part["text"], **signed}
    return part_from_gemini(part)


def result_of_ours(part: JsonObject, number: int, agent: JsonValue) -> JsonObject:
    """Return a part with a function's response as a message of ours: the result of a tool. O(size)."""
    response = fields_of(part["functionResponse"])
    returned = response.get("response")
    plain = returned.get("result") if isinstance(returned, dict) and len(returned) == 1 else None
    text = plain if isinstance(plain, str) else json.dumps(returned, ensure_ascii=False, separators=(",", ":"))
    call_id, is_error = response.get("id") or f"call:{response.get('name')}:{number}", "error" in fields_of(returned)
    result = result_message(call_id, text, response.get("name"), is_error=is_error or None)
    return {**result, "agent": agent} if isinstance(agent, str) else result


def result_of_gemini(message: JsonObject) -> JsonObject:
    """Return the result of a tool as a part with a function's response. O(size)."""
    text = text_of(message.get("content"))
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return {
        "functionResponse": {
            "id": message.get("toolCallId"),
            "name": message.get("toolName"),
            "response": value if isinstance(value, dict) else {"error" if message.get("isError") else "result": text},
        }
    }


def text_of(content: JsonValue) -> str:
    """Return the text of a message's content, its parts one after the other."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def with_usual_base64(content: JsonValue) -> JsonValue:
    """Return a content whose files are in the base64 that everybody reads; ADK prints the one for URLs. O(size)."""
    for part in listed(fields_of(content).get("parts")):
        inline = fields_of(fields_of(part).get("inlineData"))
        if isinstance(data := inline.get("data"), str):
            inline["data"] = b64encode(b64decode(data.replace("-", "+").replace("_", "/"))).decode()
    return content


# Events of ADK as entries, and back, value for value
#
# An event with content is one message, or several: each response of a function is the result of a tool. The difference
# to the event that such messages print stands beside the last of them, in its ``extra`` (`BESIDE`). An event without
# content is an entry of a kind of its own (`EVENT`). The last entry has the event's id, the others have ids that were
# drawn.
#
# Events are JSON here, as ADK prints them: camel case, without fields that are as their default.

EVENT = "adk.event"
"""The kind of an event without content: an action of an agent, such as a change of the state."""

STATE = "adk.state"
"""The kind of an entry with state that came with no event (see `states`)."""

BESIDE = "adk"
"""The field of an entry's ``extra`` with the record of its event: the difference to its message, and the state."""

_PART = "part"  # an entry of an event that goes on in the next one
_PART_TEXT = f'{{"{BESIDE}":{{"{_PART}":true}}}}'
_TEXT = "text"  # the whole event as text, if no JSON in UTF-8 can hold it
_STOPS: dict[JsonValue, str] = {"STOP": "stop", "MAX_TOKENS": "length"}
_FINISHES = {"stop": "STOP", "toolUse": "STOP", "length": "MAX_TOKENS"}


class Found(NamedTuple):
    """An event as its entries have it: nothing is decoded before it is asked for, and nothing is kept decoded.

    ``by_hand`` is the event of an entry that none made.
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
        """When it happened, in seconds since 1970. O(size of its record)."""
        return timestamp_of(self.entry) if self.by_hand is None else cast("float", self.by_hand["timestamp"])


def entries_of(event: JsonObject, extra: JsonObject, entry_id: str, *, is_same_call: bool = True) -> list[NewEntry]:
    """Return an event as entries; ``extra`` is recorded beside the last of them, too. O(size).

    Its call goes by its own id, also if its entry has another one, unless ``is_same_call`` is False.
    """
    storable, is_whole = _storable(event)
    messages = _messages_of(storable)
    if not is_whole:
        extra = {**extra, _TEXT: as_text(event, "event")}
    if not messages:
        data = {name: value for name, value in storable.items() if name != "id" or value != entry_id}
        return [NewEntry.custom(EVENT, data if is_whole else None, id=entry_id, extra={BESIDE: extra})]
    if is_whole:
        extra = {**_difference(messages, event, entry_id), **extra}
    first = [NewEntry.message(message, extra={BESIDE: {_PART: True}}) for message in messages[:-1]]
    calls = _calls(messages[-1].get("usage"), event, entry_id) if is_same_call else []
    return [*first, NewEntry.message(messages[-1], id=entry_id, extra={BESIDE: extra}, calls=calls)]


def _calls(usage: JsonValue, event: JsonObject, entry_id: str) -> list[JsonObject]:
    """Return the call of an event under its own id, if its entry has another one."""
    return [{**usage, "callId": event["id"]}] if isinstance(usage, dict) and entry_id != event["id"] else []


class Compaction(Frozen):
    """The content of a compaction of ours; ``first_kept`` is None if nothing is kept."""

    summary: str
    first_kept: str | None
    tokens: int


def compaction_entries(
    event: JsonObject, extra: JsonObject, entry_id: str, compaction: Compaction, *, is_same_call: bool
) -> list[NewEntry]:
    """Return an event that compacts as a compaction of ours, behind an entry with the event. O(size).

    Where nothing is kept, the compaction names that entry, which no model sees, as the first one kept.
    """
    storable, is_whole = _storable(event)
    usage = storable.get("usageMetadata")
    event_entry_id = uuid4().hex
    return [
        NewEntry.custom(EVENT, storable, id=event_entry_id, extra={BESIDE: {_PART: True}}),
        NewEntry.compaction(
            compaction.summary,
            first_kept_entry_id=compaction.first_kept or event_entry_id,
            tokens_before=compaction.tokens,
            usage=usage if isinstance(usage, dict) else None,
            calls=_calls(usage, event, entry_id) if is_same_call else [],
            id=entry_id,
            extra={BESIDE: extra if is_whole else {**extra, _TEXT: as_text(event, "event")}},
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
    groups = shown_groups(list(_groups(path)), is_own=lambda entry: entry.kind == COMPACTION and is_event(entry))
    events = list(_events(groups))
    # The framework puts them in the order of their times, and a summary is younger than the events kept behind it.
    for event, after in reversed([*pairwise(events)]):
        if event.by_hand is not None:
            event.by_hand["timestamp"] = min(event.time, after.time)
    return events


def _groups(entries: Iterable[Entry]) -> Iterator[Sequence[Entry]]:
    group: list[Entry] = []
    for entry in entries:
        group.append(entry)
        if entry.extra != _PART_TEXT:
            # The rest of an event whose end is not on this path stands for itself.
            is_whole = entry.kind != STATE and is_event(entry)
            yield from [group] if is_whole else ([entry] for entry in group)
            group = []
    yield from ([entry] for entry in group)


def _events(groups: Iterable[Sequence[Entry]]) -> Iterator[Found]:
    for group in groups:
        last = group[-1]
        if last.kind != STATE and is_event(last) and last.extra != _PART_TEXT:
            yield Found((*group,))
        elif (event := _event_by_hand(last)) is not None:
            yield Found((last,), event)


def beside_of(entry: Entry) -> JsonObject | None:
    """Return the record beside an entry that is of an event, or None. O(size)."""
    if not is_event(entry):
        return None
    record = entry.extra_fields.get(BESIDE)
    return record if isinstance(record, dict) else None


def is_event(entry: Entry) -> bool:
    """Return whether an entry is of an event. O(size)."""
    return entry.extra is not None and f'"{BESIDE}"' in entry.extra


def is_part(record: JsonObject) -> bool:
    """Return whether the record beside an entry says that its event goes on in the next one."""
    return _PART in record


def state_delta(event: JsonObject) -> JsonObject:
    """Return how an event changes the state. O(1)."""
    return fields_of(fields_of(event.get("actions")).get("stateDelta"))


def delta_of(entry: Entry) -> JsonObject:
    """Return how the event that an entry ends changed the state. O(size)."""
    return state_delta(_own_fields(entry, beside_of(entry) or {}))


def _own_fields(entry: Entry, record: JsonObject) -> JsonObject:
    """Return the fields of the event that an entry ends which its message does not have."""
    text = record.get(_TEXT)
    return fields_of(
        json.loads(text) if isinstance(text, str) else entry.fields if entry.kind == EVENT else record.get("set")
    )


def timestamp_of(entry: Entry) -> float:
    """Return the time of the event that an entry ends; of one that no event made, its own. O(size)."""
    record = beside_of(entry)
    if record is None or is_part(record) or entry.kind == STATE:
        return entry.created_us / 1_000_000
    times = (_own_fields(entry, record).get("timestamp"), record.get("timestamp"), entry.created_us / 1_000_000)
    return next(time for time in times if isinstance(time, (int, float)))


# An event as messages


def _messages_of(event: JsonObject) -> list[JsonObject]:
    """Return the messages that an event is, none if it says nothing."""
    author = event.get("author")
    messages: list[JsonObject] = []
    run: list[JsonValue] = []
    for number, part in enumerate(listed(fields_of(event.get("content")).get("parts"))):
        if not isinstance(part, dict):
            return []
        if isinstance(part.get("functionResponse"), dict):
            if run:
                messages.append(_message(run, author))
                run = []
            messages.append(result_of_ours(part, number, author))
        else:
            run.append(part_of_ours(part, number))
    if run:
        messages.append(_message(run, author))
    is_answer = author != "user" and ("usageMetadata" in event or "errorCode" in event)
    if not messages and is_answer:
        messages.append({"role": "assistant", "content": None, "agent": author})
    if messages and messages[-1]["role"] == "assistant":
        messages[-1].update(_answered(event, messages[-1]))
    return messages


def _message(parts: list[JsonValue], author: JsonValue) -> JsonObject:
    first = fields_of(parts[0])
    content = first["text"] if len(parts) == 1 and first.get("type") == "text" else parts
    if author == "user":
        return {"role": "user", "content": content}
    return {"role": "assistant", "content": content, "agent": author}


def _answered(event: JsonObject, message: JsonObject) -> JsonObject:
    """Return the fields of an answer: who gave it, its usage, and how it ended."""
    fields: JsonObject = {}
    model = event.get("modelVersion")
    if isinstance(model, str):
        fields["model"] = model
        if model.startswith(("gemini", "models/gemini")):
            fields["provider"] = "google"
    if isinstance(event.get("usageMetadata"), dict):
        fields["usage"] = event["usageMetadata"]
    calls = any(fields_of(part).get("type") == "toolCall" for part in listed(message.get("content")))
    if "errorCode" in event:
        fields["stopReason"] = "error"
        fields["errorMessage"] = str(event.get("errorMessage") or event["errorCode"])
    elif "finishReason" in event:
        stop = _STOPS.get(event["finishReason"], "error")
        fields["stopReason"] = "toolUse" if calls and stop == "stop" else stop
    return fields


# And back


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
            printed = [printed_part(part, Leftovers(), is_google=True) for part in content if isinstance(part, dict)]
            parts += [part[0] if part else {} for part in printed]  # Gemini has no place for some
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
    """Return the difference between an event and the event that its messages print."""
    printed = _printed(messages, entry_id)
    ours, theirs = printed.get("content"), event.get("content")
    parts: JsonObject = {}
    if isinstance(ours, dict) and isinstance(theirs, dict):
        pairs = zip(listed(ours["parts"]), listed(theirs.get("parts")), strict=True)
        for number, (our_part, their_part) in enumerate(pairs):
            if our_part != their_part or _sorted_text(our_part) != _sorted_text(their_part):
                parts[str(number)] = difference(fields_of(our_part), fields_of(their_part))
        event = {**event, "content": {**theirs, "parts": ours["parts"]}}
    changes = difference(printed, event)
    if parts:
        changes["parts"] = parts
    changed = changes.get("set")
    if isinstance(changed, dict) and isinstance(changed.get("content"), dict) and "content" in printed:
        # Only the role can be another one: the parts are told above.
        changes["role"] = fields_of(event["content"]).get("role")
        del changed["content"]
    return changes


def _sorted_text(value: JsonValue) -> str:
    return json.dumps(value, sort_keys=True)


def _restored(entries: Sequence[Entry], record: JsonObject) -> JsonObject:
    """Return the event that entries with this record are."""
    text, last = record.get(_TEXT), entries[-1]
    if isinstance(text, str):
        event = json.loads(text)
        assert isinstance(event, dict)
        return event
    if last.kind != MESSAGE:
        # The entries read may begin between the two of a compaction.
        is_half = len(entries) == 1 and last.kind == COMPACTION
        return {"id": last.id, **({"timestamp": record["timestamp"]} if is_half else entries[0].fields)}
    printed = _printed([entry.fields for entry in entries], last.id)
    content, parts = printed.get("content"), record.get("parts")
    if isinstance(content, dict):
        if isinstance(parts, dict):
            content["parts"] = [
                restored(part, parts.get(str(number))) if isinstance(part, dict) else part
                for number, part in enumerate(listed(content["parts"]))
            ]
        if "role" in record:
            content["role"] = record["role"]
    return restored(printed, record)


def _event_by_hand(entry: Entry) -> JsonObject | None:
    """Return the event that an entry is which no event made; None if it says nothing to ADK.

    ADK has no messages of the system among its events: they become the user's. Raises `InvalidArgument` for a role that
    ADK has no event for.
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
    if isinstance(content := printed.get("content"), dict):
        content["parts"] = [part for part in listed(content["parts"]) if part]
    if "usageMetadata" in printed:
        printed["usageMetadata"] = _usage(printed["usageMetadata"])
    author = "user" if entry.role in SYSTEM else printed.get("author") or "model"
    return {**event, **printed, "author": author}


def _usage(reported: JsonValue) -> JsonObject:
    """Return usage in any known shape as Gemini's, which counts tokens of a cache as part of the prompt."""
    usage = read_reported(reported)
    tokens = usage.totals
    prompt = tokens.input + tokens.cache_read + tokens.cache_write
    counts = {
        "promptTokenCount": prompt if "input" in usage.told else None,
        "cachedContentTokenCount": tokens.cache_read if "cacheRead" in usage.told else None,
        "candidatesTokenCount": tokens.output if "output" in usage.told else None,
        "totalTokenCount": prompt + tokens.output if usage.is_known else None,
    }
    return {name: count for name, count in counts.items() if count is not None}


# Events that JSON in UTF-8 cannot hold


def _storable(event: JsonObject) -> tuple[JsonObject, bool]:
    """Return an event as it can be stored, and whether it is the same."""
    try:
        _, replaced = encode_json(event, "event")
        return event, not replaced
    except InvalidEntry:
        pass
    # NaN and infinities are null to who reads it without ADK; a field that is nested too deep is only in the text.
    finite_fields: JsonObject = {"author": event.get("author")}
    for name, value in event.items():
        try:
            finite = _finite(value)
            encode_json(finite, name)
        except InvalidEntry:
            continue
        finite_fields[name] = finite
    return finite_fields, False


def _finite(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {name: _finite(inside) for name, inside in value.items()}
    if isinstance(value, list):
        return [_finite(inside) for inside in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_text(value: JsonObject, name: str) -> str:
    """Return JSON as text, if no JSON in UTF-8 can hold it. Raises `InvalidArgument` if it could not be read again."""
    try:
        return json.dumps(value)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(
            f"{name}: it could not be read again ({error}); make text of large integers, and flatten what is nested"
        ) from None


# Compactions of ADK as our compactions
#
# ADK's stands for the events of a span of time, and leaves the others as they are. Ours stands for all that comes
# before the first kept entry. So the summary of ours is that of all of ADK's that count, one below the other; where
# they leave out something that came before, the event is kept as an event only.


class _Span(NamedTuple):
    start: float
    end: float
    text: str


async def compaction_of(
    session: Session, leaf: str | None, event: JsonObject, before: Sequence[Found]
) -> Compaction | None:
    """Return the compaction that an event asks for below the events of its path; None if ours has no form for it."""
    events = [*(earlier.event for earlier in before), event]
    spans = [span for span in map(_span, events) if span is not None]
    spans = [span for number, span in enumerate(spans) if not _is_within(span, spans[number + 1 :])]
    raw = [earlier for earlier in before if _span(earlier.event) is None]
    end = max(span.end for span in spans)
    old = [earlier for earlier in raw if earlier.time <= end]
    later = [earlier for earlier in raw if earlier.time > end]
    is_prefix = all(any(span.start <= earlier.time <= span.end for span in spans) for earlier in old)
    if not old or not is_prefix or raw != [*old, *later]:
        return None
    context = await session.build_context_entries(leaf=leaf)
    summary = "\n\n".join(span.text for span in sorted(spans))
    first = None if not later else later[0].entries[0].id
    return Compaction(summary, first, estimate_context_tokens(context).tokens)


def _is_within(span: _Span, later: Sequence[_Span]) -> bool:
    return any(later_span.start <= span.start and span.end <= later_span.end for later_span in later)


def _span(event: JsonObject) -> _Span | None:
    compaction = fields_of(fields_of(event.get("actions")).get("compaction"))
    start, end, content = (compaction.get(name) for name in ("startTimestamp", "endTimestamp", "compactedContent"))
    if not isinstance(start, (int, float)) or not isinstance(end, (int, float)) or not isinstance(content, dict):
        return None
    return _Span(start, end, _text(content.get("parts")))


def _text(parts: JsonValue) -> str:
    texts = [part for part in map(fields_of, listed(parts)) if part.get("text") and not part.get("thought")]
    return "\n".join(str(part["text"]) for part in texts)


# Scope and keys of the sessions of an app and a user
#
# The scope is ``app/user``, with a slash, a percent sign and characters that no scope may hold written as ``%`` and two
# hexadecimal digits for each byte, so that it can be read, typed and split again. State that the sessions of a user
# share, and state that an app shares, has a session of its own, in a scope that no session of a user is in.

_APP_STATE = "app"
_USER_STATE = "user:"
_NAMES = "adkNames"
_LONGEST = 450
"""How long one of the two names may be in a scope, of 1,000 bytes at most; a longer one is there as its digest."""

_ODD = re.compile(r"[%/\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def scope_of(app_name: str, user_id: str) -> str:
    """Return the scope of the sessions of a user of an app. No two users have the same. O(length)."""
    return f"{_written(app_name)}/{_written(user_id)}"


def app_prefix(app_name: str) -> str:
    """Return how the scopes of all users of an app begin, and those of no other app. O(length)."""
    return f"{_written(app_name)}/"


def names_of(scope: str, metadata: Mapping[str, JsonValue] = MappingProxyType({})) -> tuple[str, str]:
    """Return the app and the user whose scope this is.

    ``metadata`` are those of a session in it: names that are too long for a scope are there. Raises `InvalidArgument`
    for another scope. O(length).
    """
    names_text = metadata.get(_NAMES)
    if isinstance(names_text, str):
        names = json.loads(names_text)
        return (str(names[0]), str(names[1]))
    parts = scope.split("/")
    if len(parts) != 2:
        raise InvalidArgument(f"scope: {shown(scope)} is not that of an app and a user; scope_of makes it")
    return _read(parts[0]), _read(parts[1])


def session_metadata(app_name: str, user_id: str, session_id: str) -> JsonObject:
    """Return the metadata of a new session: empty, unless its names are not in its scope and key as they are."""
    metadata = metadata_of(session_id)
    if _is_long(app_name) or _is_long(user_id):
        metadata[_NAMES] = json.dumps([app_name, user_id])
    return metadata


def state_place(app_name: str, user_id: str | None) -> tuple[str, str]:
    """Return the scope and the key of the session with the state of an app, or of a user of it."""
    return _written(app_name), _APP_STATE if user_id is None else _USER_STATE + _written(user_id)


def _is_long(name: str) -> bool:
    if not isinstance(name, str):
        raise InvalidArgument(f"app_name, user_id: should be strings, not {shown(name)}")
    return len(_quoted(name).encode()) > _LONGEST


def _written(name: str) -> str:
    # Quoting never makes a percent sign that two other characters follow.
    return f"%sha256:{sha256(_bytes(name)).hexdigest()}" if _is_long(name) else _quoted(name)


def _quoted(name: str) -> str:
    return _ODD.sub(lambda match: quote_from_bytes(_bytes(match[0]), safe="") if match[0] != "%" else "%25", name)


def _read(written: str) -> str:
    # Characters that are not quoted stay as they are: `unquote` would take some for bytes of UTF-8.
    return re.sub(
        r"(?:%[0-9A-F]{2})+", lambda match: unquote_to_bytes(match[0]).decode("utf-8", "surrogatepass"), written
    )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# Events and state of ADK as JSON, with the values that ADK's own JSON loses
#
# That JSON has null for NaN and infinities, and other names for those with half of a surrogate pair. Here they stay as
# they are; how they are stored is said in `events`.

_log = logging.getLogger("flue_py.adapters.adk")

_OPEN_PARTS = (
    ("functionCall", "function_call", "args"),
    ("functionResponse", "function_response", "response"),
    ("toolCall", "tool_call", "args"),
    ("toolResponse", "tool_response", "response"),
)
"""The fields of a part with a field in them that may hold anything."""


def printed_event(event: Event) -> JsonObject:
    """Return an event as JSON in camel case, without defaults, and without temporary state. O(size).

    Raises `InvalidArgument` for a value that JSON has no form for.
    """
    try:
        printed: JsonObject = _without_state(event).model_dump(
            mode="json", by_alias=True, exclude_defaults=True, exclude_none=True
        )
    except ValueError as error:
        raise InvalidArgument(
            f"event {shown(event.id)}: {error}; let tools return, and events hold, what JSON has a form for"
        ) from error
    # Defaults of a model are left out, and these two are never the default.
    printed["id"], printed["timestamp"] = event.id, event.timestamp
    with_usual_base64(printed.get("content"))
    _set_exactly(printed, event)
    # Fields with a serializer of their own are printed whatever they hold.
    printed = {name: value for name, value in printed.items() if value is not None}
    actions = fields_of(printed.pop("actions", None))
    printed_actions: JsonObject = {name: value for name, value in actions.items() if value is not None}
    temporary = StateNames.TEMP_PREFIX
    delta = {name: value for name, value in event.actions.state_delta.items() if not name.startswith(temporary)}
    if delta:
        printed_actions["stateDelta"] = printed_state(delta)
    if printed_actions:
        printed["actions"] = printed_actions
    return printed


def printed_state(state: Mapping[str, object]) -> JsonObject:
    """Return state as JSON. O(size).

    A value that JSON has no form for is kept as its text, with a warning, as ADK's own services do. Raises
    `InvalidArgument` for bytes that are no text, and for a state that is no mapping.
    """
    if not isinstance(state, Mapping):
        raise InvalidArgument(f"state: should be a mapping of names to values, not {shown(state)}")
    try:
        printed = cast("JsonObject", to_jsonable_python(dict(state)))
    except ValueError:
        # ADK's own way out refuses names with half of a surrogate pair, too.
        printed = {str(name): _printing_printed(value, f"state[{shown(name)}]") for name, value in state.items()}
    return cast("JsonObject", _exact(printed, dict(state)))


def _without_state(event: Event) -> Event:
    # To leave it out by `exclude` would look up names inside of other fields, and refuse halves of surrogate pairs.
    if not event.actions.state_delta:
        return event
    return event.model_copy(update={"actions": event.actions.model_copy(update={"state_delta": {}})})


def _printing_printed(value: object, where: str) -> JsonValue:
    if isinstance(value, Mapping):
        return {
            name if isinstance(name, str) else str(to_jsonable_python(name, serialize_unknown=True)): _printing_printed(
                inside, f"{where}[{shown(name)}]"
            )
            for name, inside in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_printing_printed(inside, f"{where}[{number}]") for number, inside in enumerate(value)]
    if isinstance(value, (bytes, bytearray)):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise InvalidArgument(
                f"{where}: bytes that are no text have no form in JSON; save them as an artifact, or as text in base64"
            ) from None
    if isinstance(value, str):
        return value
    try:
        return cast("JsonValue", to_jsonable_python(value))
    except ValueError:
        _log.warning("%s is not JSON, and is kept as its text.", where, exc_info=True)
        return cast("JsonValue", to_jsonable_python(value, serialize_unknown=True))


def _set_exactly(printed: JsonObject, event: Event) -> None:
    """Put the values of fields that may hold anything, if printing has changed them."""
    printed_parts = listed(fields_of(printed.get("content")).get("parts"))
    parts = event.content.parts if event.content is not None else None
    for part_printed, part in zip(printed_parts, parts or (), strict=True):
        if not isinstance(part_printed, dict):
            continue
        for alias, name, field in _OPEN_PARTS:
            function = fields_of(part_printed.get(alias))
            if field in function:
                function[field] = _exact(function[field], getattr(getattr(part, name), field))
        if "partMetadata" in part_printed:
            part_printed["partMetadata"] = _exact(part_printed["partMetadata"], part.part_metadata)
    for alias, value in (("customMetadata", event.custom_metadata), ("output", event.output)):
        if value is not None:
            printed[alias] = _exact(printed.get(alias), value)
    _set_actions_exactly(printed.get("actions"), event)


def _set_actions_exactly(printed: JsonValue, event: Event) -> None:
    if not isinstance(printed, dict):
        return
    actions = event.actions
    for alias, value in (("agentState", actions.agent_state), ("setModelResponse", actions.set_model_response)):
        if value is not None:
            printed[alias] = _exact(printed.get(alias), value)
    confirmations = fields_of(printed.get("requestedToolConfirmations"))
    for id, confirmation in actions.requested_tool_confirmations.items():
        if confirmation.payload is not None:
            _set_payload(confirmations.get(id), confirmation.payload)
    widgets = listed(printed.get("renderUiWidgets"))
    for printed_widget, widget in zip(widgets, actions.render_ui_widgets or (), strict=True):
        _set_payload(printed_widget, widget.payload)


def _set_payload(printed: JsonValue, payload: object) -> None:
    if isinstance(printed, dict):
        printed["payload"] = _exact(printed.get("payload"), payload)


def _exact(printed: JsonValue, original: object) -> JsonValue:
    """Return what is printed with the numbers and the names that it was printed from. O(size)."""
    if isinstance(printed, dict) and isinstance(original, dict) and len(printed) == len(original):
        return {
            name if isinstance(name, str) else alias: _exact(inner, original_inner)
            for (alias, inner), (name, original_inner) in zip(printed.items(), original.items(), strict=True)
        }
    if isinstance(printed, list) and isinstance(original, (list, tuple)) and len(printed) == len(original):
        return [_exact(inner, original_inner) for inner, original_inner in zip(printed, original, strict=True)]
    if printed is None and isinstance(original, float) and not math.isfinite(original):
        return original
    return printed
