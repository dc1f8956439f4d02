"""Conversations of the OpenHands SDK."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from flue_py.core.entries import BASE, RANGES, NewEntry, Range
from flue_py.core.json import JsonObject, JsonValue
from flue_py.core.kinds import COMPACTION, EXCLUSION
from flue_py.core.sessions import made_id
from flue_py.errors import UnreadableFile, shown
from flue_py.formats import kit, openhands_rows
from flue_py.formats.gathered import SESSION, GatheredReader, gathered_row, read_beside, states_of
from flue_py.formats.openhands_rows import ACTION, CONDENSATION, ENVELOPE, FORMAT, SHOWN, Event, Paid, text_of
from flue_py.providers.base import fields_of, listed, only, without

# A conversation is a folder: base_state.json, and a file for each event, which are gathered behind a row about it.
#
# Events are a tree; base_state.json has its leaf and the whole bill, in which a response has an id. The calls of one
# response are an event each, and here one message. A condensation takes events out of the view of the model, by their
# ids, and may put a summary in a place of it.
# docs/formats/openhands.md lists the fields that are kept.

_STATE, _TASKS, _META = "base_state.json", "subagents", "meta.json"
_BEGINNING = re.compile(rb'\s*\{\s*"id":\s*"[0-9a-fA-F-]{32,36}",\s*"agent":\s*\{')
_EVENT_FILE = re.compile(r"event-([0-9]{5,18})-(.+)\.json")
_ROOT, _SUMMARY = "__root__", "-summary"
_UPDATE, _ERROR = "ConversationStateUpdateEvent", "ConversationErrorEvent"
_BESIDE = frozenset({
    _UPDATE, _ERROR, "CondensationRequest", "PauseEvent", "InterruptEvent", "TokenEvent", "HookExecutionEvent",
    "LLMCompletionLogEvent", "ACPToolCallEvent", "StreamingDeltaEvent",
})  # fmt: skip
_STEPS_AN_EVENT = 50
"""How many steps condensations may take, for each event: only hostile ones take more."""


def looks_like_openhands(head: bytes, path_name: str = "") -> bool:
    """Return whether the beginning of a file may be the state of a conversation."""
    return bool(_BEGINNING.match(head.removeprefix(b"\xef\xbb\xbf")))


def gather_openhands(path: Path) -> Generator[bytes, None, None]:
    """Yield a row about the conversation that a state is of, and one for each of its events, in their order."""
    folder = path.absolute().parent
    about: JsonObject = {"file": f"{folder.name}/{path.name}"}
    about["meta"] = only(_object(folder / _META), "title", "created_at", "forked_from_conversation_id")
    about["billed"] = [
        name for file in folder.glob(f"{_TASKS}/*/{_STATE}") for name, _ in openhands_rows.bill_of(_object(file))
    ]
    if folder.parent.name == _TASKS:
        about["above"] = _object(folder.parent.parent / _STATE).get("id")
    yield _row(SESSION, path, about)
    matches = [(_EVENT_FILE.fullmatch(file.name), file) for file in folder.glob("events/event-*.json")]
    for _, name, file in sorted((int(match[1]), match[2], file) for match, file in matches if match):
        yield _row("event", file, {"name": name})


def states_beside(path: Path) -> JsonValue:
    """Return the states of the other files of a conversation. Never raises."""
    folder = path.absolute().parent
    events = made_id(FORMAT, kit.json_line(states_of(sorted(folder.glob("events/event-*.json")))))
    return {"events": events, "others": states_of([folder / _META, *sorted(folder.glob(f"{_TASKS}/*/{_STATE}"))])}


def _object(path: Path) -> JsonObject:
    return kit.decode_row(1, read_beside(path) or b"", kit.Notes()) or {}


def _row(kind: str, path: Path, fields: JsonObject) -> bytes:
    """Return a row with the text of a file in it as it is: no line ends, no type of its own."""
    data = (read_beside(path) or b"").removeprefix(b"\xef\xbb\xbf")
    return b'{"data":' + re.sub(rb"[\r\n]", b" ", data) + b"," + gathered_row(kind, fields)[1:]


class _View(Struct):
    """The entries that a model is shown at a place, each with the one behind it on the path; and the last on the path.

    A condensation stands for its summary. "" stands before the first entry.
    """

    names: list[str]
    behind: dict[str, str]
    last: str = ""
    dropped: list[str] = field(default_factory=list)
    """The names that the last condensation has taken out."""


class _Reading(Struct):
    """The events of a conversation as entries."""

    chain: kit.Chain
    bill: dict[tuple[str, int], Paid]
    events: list[Event] = field(default_factory=list)
    by_id: dict[str, int] = field(default_factory=dict)
    places: list[str | None] = field(default_factory=list)
    """Below which entry the children of an event stand."""
    earlier: dict[str, tuple[str, ...]] = field(default_factory=dict)
    views: dict[int, _View] = field(default_factory=dict)
    steps_left: int = 10_000

    def take(self, row: kit.Row) -> None:
        """Take over an event, with its place in the tree."""
        fields, index, notes = fields_of(row.fields.get("data")), len(self.events), self.chain.notes
        event_id, above = fields.get("id", row.fields.get("name")), fields.get("parent_id")
        if not kit.is_name(event_id) or event_id in self.by_id:
            fault = f"repeats the id {event_id!r}" if kit.is_name(event_id) else kit.unusable_id(event_id)
            notes.repair(row.line, f"{fault}; it got an id made from its line")
            event_id = made_id(self.chain.session_id, str(row.line))
        parent = index - 1 if above is None and index else self.by_id.get(above) if isinstance(above, str) else None
        if parent is None and above not in (None, _ROOT):
            notes.repair(row.line, f"names the parent {shown(above)}, which is no earlier event; it became a root")
        self.by_id[event_id] = index
        self.events.append(Event(row.line, event_id, text_of(fields, "kind"), fields, parent, index))
        if parent is not None and self.events[index].kind != _UPDATE:
            self.events[parent].children.append(index)
        self.steps_left += _STEPS_AN_EVENT

    def leaf(self, state: JsonObject) -> int | None:
        """Return the event that the program is at; None if it is at none."""
        leaf = state.get("leaf_event_id")
        if isinstance(leaf, str) and leaf in self.by_id:
            return self.by_id[leaf]
        newest = () if state.get("head_is_empty") is True else range(len(self.events) - 1, -1, -1)
        return next((index for index in newest if self.events[index].kind not in (_UPDATE, _ERROR)), None)

    def build(self, leaf: int | None) -> None:
        """Make the entries. The calls of a response are joined, unless something else follows one before the last."""
        for index in range(len(self.events) - 1, -1, -1):
            event = self.events[index]
            child = self.events[event.children[0]] if len(event.children) == 1 and index != leaf else event
            if event.kind == child.kind == ACTION and event.response == child.response != "":
                event.last = child.last
        for index, event in enumerate(self.events):
            self.chain.leaf = None if event.parent is None else self.places[event.parent]
            if event.last != index:
                self.chain.notes.merged += 1
            elif event.kind in SHOWN:
                self._say(index, event)
            elif event.kind == CONDENSATION:
                self._condense(index, event)
            else:
                self.chain.notes.unknown_kinds.update([] if event.kind in _BESIDE else [event.kind])
                self._add(event, self._aside(event))
            self.places.append(self.chain.leaf)
        self.chain.leaf = None if leaf is None else self.places[leaf]

    def _say(self, index: int, event: Event) -> None:
        batch, at = [event], event.parent
        while event.kind == ACTION and at is not None and self.events[at].last == index:
            batch.append(self.events[at])
            at = self.events[at].parent
        message, beside = openhands_rows.message_of([one.fields for one in reversed(batch)])
        paid = self.bill.get((event.response, 0))
        if paid is not None and message["role"] == "assistant":
            message |= {**only(paid.names, "provider", "model"), "usage": paid.usage}
        entry, extra = kit.message_entry(message, event.fields, event.line, self.chain.notes)
        entry = kit.with_response(entry, FORMAT, event.response)
        if len(batch) > 1:
            self.earlier[event.id] = tuple(action.id for action in batch[:0:-1])
        if paid is not None:
            entry = replace(entry, calls=tuple(replace(call, at_us=paid.at_us) for call in entry.calls))
        self._add(event, entry, {**beside, **extra})

    def _aside(self, event: Event) -> NewEntry:
        return kit.plain_entry(kit.entry_kind("openhands.", event.kind), without(event.fields, *ENVELOPE))

    def _add(self, event: Event, entry: NewEntry, beside: JsonObject | None = None, name: str | None = None) -> None:
        moment = kit.read_time(event.fields.get("timestamp"))
        self.chain.add(entry, event.line, beside=beside, entry_id=name or event.id, created_us=moment)

    def _condense(self, index: int, event: Event) -> None:
        """Take events out of the view: a summary stands in the place of a stretch, others are taken out one by one."""
        entry, notes, view = self._aside(event), self.chain.notes, self._view(index)
        holes = [name for name in view.dropped if not self._is_summary(name)]
        if self.steps_left < 0:
            holes = []
            notes.repair(event.line, "condenses too long a path; it is kept outside the context")
        elif event.has_summary:
            ranges, holes = self._stretches(event, view)
            body: JsonObject = {"summary": event.fields["summary"], "firstKeptEntryId": view.behind[""], BASE: None}
            body |= {RANGES: [item.as_json for item in ranges], "details": without(event.fields, *ENVELOPE, "summary")}
            entry = replace(kit.plain_entry(COMPACTION, body), references=())
        elif len(holes) < len(view.dropped):
            notes.repair(event.line, "forgets a summary and has none of its own: the summary stays in the context")
        if paid := self.bill.get((event.response, 0)):
            names = {**paid.names, "call_id": made_id(FORMAT, event.response), "purpose": "compaction"}
            entry = kit.with_call(entry, paid.usage, notes, event.line, **names)
        self._add(event, entry)
        for target in holes:
            name = made_id(self.chain.session_id, event.id, target)
            self._add(event, kit.plain_entry(EXCLUSION, {"entryId": target}), {"type": event.kind}, name)

    def _name(self, index: int) -> str:
        return self.events[self.events[index].last].id

    def _is_summary(self, name: str) -> bool:
        return self.events[self.by_id[name]].kind == CONDENSATION

    def _view(self, index: int) -> _View:
        """Return the view behind a condensation: that of the one before it on the path, and what was said since."""
        path: list[int] = []
        at: int | None = index
        while at is not None and at not in self.views and self.steps_left >= 0:
            path.append(at)
            at, self.steps_left = self.events[at].parent, self.steps_left - 1
        before = self.views.get(-1 if at is None else at, _View([], {}))
        view = _View([*before.names], {**before.behind}, before.last)
        self.steps_left -= len(view.names)
        for at in reversed(path):
            event, name = self.events[at], self._name(at)
            if event.kind == CONDENSATION:
                self._forget(event, view)
            elif event.kind in SHOWN and name not in view.names[-1:]:
                view.names.append(name)
            if name != view.last:
                view.behind[view.last] = name
                view.last = name
        view.behind = {name: view.behind[name] for name in ("", *view.names) if name in view.behind}
        self.views[index] = view
        return view

    def _forget(self, event: Event, view: _View) -> None:
        """Take over a condensation."""
        items = [item for item in listed(event.fields.get("forgotten_event_ids")) if isinstance(item, str)]
        places = [self.by_id.get(item.removesuffix(_SUMMARY)) for item in items]
        names = {self._name(place) for place in places if place is not None}
        view.dropped = [name for name in view.names if name in names]
        view.names = [name for name in view.names if name not in names]
        offset = event.fields.get("summary_offset")
        if event.has_summary and isinstance(offset, int):
            view.names.insert(min(offset, len(view.names)), event.id)

    def _stretches(self, event: Event, view: _View) -> tuple[list[Range], list[str]]:
        """Return the stretches of the path for which the summaries in a view stand, and the entries without one."""
        ranges: list[Range] = []
        holes: list[str] = []
        before, summary, is_lost = "", None, False
        for name in (*view.names, None):
            if name is not None and self._is_summary(name):
                is_lost, summary = is_lost or summary is not None, name
                continue
            end = name or event.id
            first, above = view.behind[before], self.events[self.by_id[end]].parent
            last = None if above is None else self.places[above]
            if summary is None:
                holes += self._between(first, end)
            elif first != end and last is not None:
                ranges.append(Range(first, last, None if summary == event.id else summary))
            else:
                is_lost = True
            before, summary = end, None
        if is_lost:
            self.chain.notes.repair(event.line, "puts a summary where nothing else was taken out; it is not shown")
        return ranges, holes

    def _between(self, first: str, end: str) -> list[str]:
        """Return the entries on the path that a model is shown, from one up to that before another."""
        names: dict[str, None] = {}
        at, name = self.events[self.by_id[end]].parent, end
        while at is not None and name != first and self.steps_left >= 0:
            name = self._name(at)
            if self.events[at].kind in SHOWN and name != end:
                names[name] = None
            at, self.steps_left = self.events[at].parent, self.steps_left - 1
        return [*names][::-1]


def parse_openhands(rows: Sequence[kit.Row], notes: kit.Notes, take_all: bool) -> kit.ParsedSession | None:
    """Return the conversation of a state and its events. Raises `UnreadableFile` if the state is none."""
    about = rows[0].fields if rows[0].type == SESSION else {}
    state, meta, file = fields_of(about.get("data")), fields_of(about.get("meta")), text_of(about, "file") or "the file"
    session_id, above = state.get("id"), about.get("above")
    if not kit.is_name(session_id) or not isinstance(state.get("agent"), dict):
        raise UnreadableFile(f"{file} is not the state of a conversation of OpenHands; nothing was imported")
    parent = kit.task_below(above, session_id)
    notes.left_out["is the state of the conversation"] += 1
    reading = _Reading(kit.Chain(session_id, notes), openhands_rows.bill_of(state))
    for row in rows[1:]:
        reading.take(row)
    leaf = reading.leaf(state)
    reading.build(leaf)
    chain, moments = reading.chain, [kit.read_time(event.fields.get("timestamp")) for event in reading.events]
    if leaf is None and moments:
        # A leaf at no event is one here, too: an entry without words, above which there is nothing.
        head = kit.plain_entry("openhands.empty_head", {})
        chain.add(head, rows[0].line, entry_id=made_id(session_id, "head_is_empty"), created_us=moments[-1])
    lists = ("token_usages", "costs", "response_latencies")
    sums: JsonObject = {name: without(value, *lists) for name, value in openhands_rows.stats_of(state).items()}
    document: JsonObject = {
        "leafId": chain.leaf,
        "meta": meta,
        "state": {**without(state, "id", "stats"), "usage": sums},
    }
    created = kit.read_time(meta.get("created_at")) or next(filter(None, moments), None)
    title, cwd = meta.get("title"), fields_of(state.get("workspace")).get("working_dir")
    fields: kit.SessionFields = {"auto_title": title, "cwd": cwd, "created_us": created, "parent": parent}
    parsed = chain.parsed(FORMAT, file, document, is_rewritten=False, **fields)
    booked = {call.call_id for entry in chain.entries for call in entry.calls}
    elsewhere = {name for name in listed(about.get("billed")) if isinstance(name, str)}
    bill = {call: paid for call, paid in reading.bill.items() if call[0] not in elsewhere}
    calls = openhands_rows.calls_alone(bill, booked)
    return replace(parsed, restates=True, earlier=reading.earlier, calls=calls)


read_openhands = partial(GatheredReader, parse_openhands)
