"""A session as one HTML file that needs nothing else: the page, its styles, its scripts and its data.

The page asks no network for anything: its Content-Security-Policy allows the scripts and styles of this file, by
their hashes, and nothing more. The texts of a session reach the page as JSON and are set as text there, so that
it can be neither markup nor script.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files

from msgspec import Struct, field

from flue_py.core import context
from flue_py.core.entries import Entry, readable, tool_calls
from flue_py.core.json import Frozen, JsonObject, JsonValue, NamedTuple, encode_json, to_json
from flue_py.core.kinds import COMPACTION, CONTEXT_KINDS, MESSAGE, SHOWN_KINDS, message_text
from flue_py.core.ledger import Dimension, UsageRow
from flue_py.core.sessions import SessionInfo
from flue_py.core.usage import KINDS, ReportedUsage, agent_of, read_reported
from flue_py.providers.base import listed, objects_in
from flue_py.render.lines import entry_name, entry_text, one_line
from flue_py.render.tools import Media, Shown, shown_part, shown_parts
from flue_py.render.views import ListedSession, iso, minute, session_facts, session_name

# ---------------------------------------------------------------------------------------------------------------------
# The compactions of a report: the entries that went in, the summary, the losses, and who took one back.

_LINE_LENGTH = 300


def compactions_json(
    entries: Sequence[Entry],
    active: Sequence[Entry],
    losses: Mapping[str, JsonObject],
    sizes: Mapping[str, int],
    stretches: Callable[[Sequence[int]], list[tuple[int, int]]],
) -> dict[str, JsonObject]:
    """Return the data of the page on each compaction, by the id of its entry; entries are named by their places.

    ``active`` is the path to the leaf, ``losses`` are the loss reports as JSON, with ``entryIds``: the entries that
    went in. Without one, the loss was not worked out. ``stretches`` makes stretches of places. O(entries + losses).
    """
    place = _places(entries)
    latest = context.latest_compaction(active)
    in_effect = {item.entry_id for item in context.project(active) if item.kind == COMPACTION} | {latest and latest.id}
    compactions: dict[str, JsonObject] = {}
    takers: dict[str, list[JsonValue]] = {}
    for entry in entries:
        if entry.kind != COMPACTION:
            continue
        fields = entry.fields
        row: JsonObject = {"isInEffect": True} if entry.id in in_effect else {}
        if context.RESTORES in fields:
            taken, restored = fields.get(context.TAKES_BACK), fields.get(context.RESTORES)
            row["takesBack"] = place.get(taken) if isinstance(taken, str) else None
            row["restores"] = place.get(restored) if isinstance(restored, str) else None
            if isinstance(taken, str):
                takers.setdefault(taken, []).append(place[entry.id])
        elif entry.id in losses:
            row |= _loss_json(losses[entry.id], place, sizes, stretches)
        compactions[entry.id] = row
    for entry_id, places in takers.items():
        if entry_id in compactions:
            compactions[entry_id]["takenBackBy"] = places
    return compactions


def _loss_json(
    loss: JsonObject,
    place: Mapping[str, int],
    sizes: Mapping[str, int],
    stretches: Callable[[Sequence[int]], list[tuple[int, int]]],
) -> JsonObject:
    ids = [str(entry_id) for entry_id in listed(loss["entryIds"]) if entry_id in place]
    return {
        "in": [[first, last] for first, last in stretches([place[entry_id] for entry_id in ids])],
        "entries": len(ids),
        "tokensIn": sum(sizes.get(entry_id, 0) for entry_id in ids),
        "kinds": [_kind_json(kind, place) for _, kind in objects_in(loss["kinds"]) if kind["total"]],
    }


def _kind_json(kind: JsonObject, place: Mapping[str, int]) -> JsonValue:
    """Return a kind of facts: its name, how many there are, how many are still said, those lost, how many more are."""
    facts: list[JsonValue] = [
        [str(fact["text"])[:_LINE_LENGTH], place.get(str(listed(fact["entryIds"])[-1])), fact["count"]]
        for _, fact in objects_in(kind["lost"])
    ]
    return [kind["kind"], kind["total"], kind["covered"], facts, kind["leftOut"]]


# ---------------------------------------------------------------------------------------------------------------------
# How the input of each agent grew over its turns, and where it was compacted.

_COPIED = "copiedFrom"
"""The extra field in which a copy says where it comes from."""


class Turn(Frozen):
    """One turn of an agent, the sum of its answers that were sent input.

    ``input``, ``cache_read`` and ``cache_write`` together are the tokens sent; ``cumulative`` sums those over this
    agent's turns since the last compaction. ``entry`` is the place of the last of the answers among the entries.
    """

    entry: int
    input: int
    cache_read: int
    cache_write: int
    output: int
    cumulative: int
    known: Mapping[str, int | None]
    """The same tokens under their names in JSON; None if the answer does not report them."""

    @property
    def sent(self) -> int:
        """The tokens the model was sent in this turn, by all of its calls."""
        return self.input + self.cache_read + self.cache_write


class Compacted(Frozen):
    """A compaction after so many turns of an agent; ``entry`` is its place among the entries."""

    after_turn: int
    entry: int
    tokens_before: int


class Growth(Frozen):
    """One agent's line, along the active path of its session; ``session`` is that session's place in the report."""

    session: int
    agent: str
    turns: tuple[Turn, ...]
    compactions: tuple[Compacted, ...]


class GrowingSession(NamedTuple):
    """A session with a chart: its name, all its entries (parents before children), its leaf, and its answers."""

    name: str
    entries: Sequence[Entry]
    leaf: str | None
    answers: Mapping[str, Answer]


class _Line(Struct):
    turns: list[Turn]
    compactions: list[Compacted]
    cumulative: int = 0
    number: int = 0


def _together(first: Turn, then: Turn) -> Turn:
    """Return two calls of a turn as one; a number that one of them does not report is unknown."""
    return Turn(
        then.entry,
        first.input + then.input,
        first.cache_read + then.cache_read,
        first.cache_write + then.cache_write,
        first.output + then.output,
        then.cumulative,
        {
            name: None if count is None or (addend := then.known[name]) is None else count + addend
            for name, count in first.known.items()
        },
    )


def speaker_of(message: Mapping[str, JsonValue]) -> str | None:
    """Return the name of the agent that a message carries, on one line, or None."""
    name = agent_of(message)
    return None if name is None else one_line(name, 80)


def is_copy(entry: Entry) -> bool:
    """Return whether an entry is a copy of one in another session, where its usage is counted."""
    return entry.extra is not None and isinstance(entry.extra_fields.get(_COPIED), dict)


class Answer(Frozen):
    """Who gives an answer, if it says, and its usage: as it is counted, and by name; None is an unknown number."""

    speaker: str | None
    usage: ReportedUsage
    counts: Mapping[str, int | None]

    @classmethod
    def of(cls, message: JsonObject) -> Answer:
        """Return what a message says of itself."""
        usage = read_reported(message.get("usage"))
        return cls(speaker_of(message), usage, context.reported_counts(usage))


def answers_of(entries: Iterable[Entry]) -> dict[str, Answer]:
    """Return the answers that no copies are, by entry id. O(entries)."""
    return {
        entry.id: Answer.of(entry.fields)
        for entry in entries
        if entry.kind == MESSAGE and entry.role == "assistant" and not is_copy(entry)
    }


def growth_of(sessions: Sequence[GrowingSession]) -> list[Growth]:
    """Return the lines of all agents, those of the first session first.

    A session has one line, and one more for each agent whose name its messages carry. Agents without a turn have no
    line. Cost: O(entries).
    """
    growths = []
    for number, (name, entries, leaf, answers) in enumerate(sessions):
        lines = _lines_of(_path_to(leaf, entries, _places(entries)), entries, answers)
        for speaker, line in lines.items():
            label = name if speaker is None else speaker if number == 0 else f"{name}: {speaker}"
            if line.turns:
                growths.append(Growth(number, label, tuple(line.turns), tuple(line.compactions)))
    return growths


def _places(entries: Sequence[Entry]) -> dict[str, int]:
    return {entry.id: number for number, entry in enumerate(entries)}


def _path_to(leaf: str | None, entries: Sequence[Entry], place: Mapping[str, int]) -> list[int]:
    """Return the places, root to leaf, of the entries on the way to ``leaf``; none if it is not among them."""
    path: list[int] = []
    while leaf is not None and leaf in place:
        path.append(place[leaf])
        leaf = entries[place[leaf]].parent_id
    path.reverse()
    return path


def _lines_of(path: Sequence[int], entries: Sequence[Entry], answers: Mapping[str, Answer]) -> dict[str | None, _Line]:
    lines: dict[str | None, _Line] = {}
    counter = context.Turns()
    for number in path:
        entry = entries[number]
        turn = counter.add(context.part_of(entry))
        if entry.kind == COMPACTION:
            if context.RESTORES in entry.fields:
                # It takes a compaction back: the context grows again.
                continue
            before = entry.fields.get("tokensBefore")
            for line in lines.values():
                line.cumulative = 0
                line.compactions.append(Compacted(len(line.turns), number, before if isinstance(before, int) else 0))
        elif (answer := answers.get(entry.id)) is not None:
            usage = answer.usage.totals
            sent = usage.input + usage.cache_read + usage.cache_write
            if not sent:
                continue
            line = lines.setdefault(answer.speaker, _Line([], []))
            line.cumulative += sent
            call = Turn(
                number, usage.input, usage.cache_read, usage.cache_write, usage.output, line.cumulative, answer.counts
            )
            is_cut = bool(line.compactions) and line.compactions[-1].after_turn == len(line.turns)
            if line.number == turn and not is_cut:
                line.turns[-1] = _together(line.turns[-1], call)
            else:
                line.turns.append(call)
            line.number = turn
    return lines


def snapshot_rows(
    sessions: Sequence[GrowingSession], session_id: str, *, warn_at: int = 0, cutover_at: int = 0
) -> list[JsonObject]:
    """Return the same figures as rows of the context snapshots: one per turn, and one per compaction.

    Session by session, each in the order of its path. A compaction is a row of the agent ``system``.
    """
    rows: list[JsonObject] = []
    limits: JsonObject = {
        name: limit for name, limit in (("warn_at", warn_at), ("cutover_at", cutover_at)) if limit > 0
    }
    lines = growth_of(sessions)
    for number, (_, entries, _, _) in enumerate(sessions):
        ours = [line for line in lines if line.session == number]
        rows_by_turn: dict[int, JsonObject] = {}
        for line in ours:
            for count, turn in enumerate(line.turns, 1):
                rows_by_turn[turn.entry] = {
                    "agent": line.agent,
                    "turn": count,
                    "turn_input_tokens": turn.sent,
                    "turn_output_tokens": turn.output,
                    "cumulative_input_tokens": turn.cumulative,
                    **limits,
                }
            for mark in line.compactions:
                turns = max(
                    compaction.after_turn
                    for session in ours
                    for compaction in session.compactions
                    if compaction.entry == mark.entry
                )
                rows_by_turn[mark.entry] = {
                    "agent": "system",
                    "turn": turns,
                    "turn_input_tokens": 0,
                    "turn_output_tokens": 0,
                    "cumulative_input_tokens": 0,
                    **limits,
                    "compaction_occurred": True,
                }
        rows += [
            {"ts": iso(entries[place].created_at), "session": session_id, **rows_by_turn[place]}
            for place in sorted(rows_by_turn)
        ]
    return rows


# ---------------------------------------------------------------------------------------------------------------------
# The request of an agent, for the page: the effect of each step, and the outcome of each entry.


def sent_json(explained: JsonObject, place: Mapping[str, int | str]) -> JsonObject:
    """Return the explanation of a request: of the entries those not sent as they are, by place or id. O(items)."""
    changed: list[JsonValue] = [
        {"at": place[str(entry["entryId"])], "how": entry["sent"], "changes": entry["changes"]}
        for _, entry in objects_in(explained["entries"])
        if entry["sent"] != "whole" and entry["entryId"] in place
    ]
    repairs: list[JsonValue] = [
        {"at": place.get(str(repair["entryId"])), "what": repair["what"]}
        for _, repair in objects_in(explained["repairs"])
    ]
    names = ("agent", "target", "counter", "isEstimate", "tokensBefore", "tokensSent", "steps", "events", "broken")
    return {**{name: explained[name] for name in names}, "changed": changed, "repairs": repairs}


# ---------------------------------------------------------------------------------------------------------------------
# A session and its tasks, as JSON for the page: entries, contexts, growth, cost by model.
#
# Contexts are computed here, by the projection itself, and never in the page. An entry of most kinds leaves its
# parent's context as it is, or adds itself to it. Only the kinds in `RESHAPING_KINDS` change earlier entries of a
# context, so only their contexts are written out, as stretches of entries (decision 0006).

MOST_PICTURES = 20_000_000
"""How many characters of base64 the pictures of a page may have."""

RESHAPING_KINDS = frozenset({COMPACTION, "exclusion"})
"""The kinds that may change what earlier entries contribute; the context at each is written out whole."""

DAMAGED = "damaged entry"
"""The kind of what stands on a page for an entry that cannot be read; nobody knows its parent and its time."""

_REPORT_DATA_LINE_LENGTH = 160
_NO_MODEL = "model unknown"
_SHOWN_ELSEWHERE = frozenset({"role", "content", "usage", "timestamp", "summary", "command", "output", "errorMessage"})


class ReportedSession(Frozen):
    """One session of a report. ``entries`` are all it sees, parents before children, as `Session.get_tree` has them.

    ``task_id`` is its name in its parent, ``parent_id`` that parent; both None for the session reported on. ``sizes``
    are tokens by entry id, empty if they were not counted; ``costs`` are those of entries in the ledger. ``source``
    is the session that a fork without a name was forked from. ``losses`` are the loss reports of compactions, by
    their entries' ids, as JSON, with ``entryIds``. With ``is_part`` the entries are some that follow each other in the
    order of the tree: the page asks for contexts that begin before them.
    """

    info: SessionInfo
    entries: Sequence[Entry]
    labels: Mapping[str, str] = field(default_factory=dict)
    task_id: str | None = None
    parent_id: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    costs: Mapping[str, context.EntryCost] = field(default_factory=dict)
    source: SessionInfo | None = None
    losses: Mapping[str, JsonObject] = field(default_factory=dict)
    sent: JsonObject | None = None
    pins: frozenset[str] = frozenset()
    is_part: bool = False

    @property
    def name(self) -> str:
        """The name that people know the session by."""
        return session_name(self.info, self.source)


class Thresholds(Frozen):
    """Input tokens at which an agent is warned, and at which its context is compacted; 0 draws no line."""

    warn_at: int = 0
    cutover_at: int = 0


_NO_LINES = Thresholds()


def report_data(
    sessions: Sequence[ReportedSession],
    thresholds: Thresholds,
    *,
    bill: Sequence[UsageRow] = (),
    unchecked: bool = False,
    made_at: datetime | None = None,
) -> JsonObject:
    """Return everything the page shows, the session reported on first. Cost: O(entries), and O(path) a compaction."""
    rows, pictures = growing(sessions), Pictures()
    return {
        "title": sessions[0].name,
        "unchecked": unchecked,
        "made": None if made_at is None else f"{minute(made_at)} UTC",
        "sessions": [
            _session_json(session, row.answers, pictures) for session, row in zip(sessions, rows, strict=True)
        ],
        "pictures": pictures.rows,
        "growth": [_growth_json(line) for line in growth_of(rows)],
        "warnAt": thresholds.warn_at,
        "cutoverAt": thresholds.cutover_at,
        "models": models_json(bill),
    }


def growing(sessions: Sequence[ReportedSession]) -> list[GrowingSession]:
    """Return each session as the growth of contexts is computed from it. O(entries)."""
    return [
        GrowingSession(agent_name(session), session.entries, session.info.leaf_id, answers_of(session.entries))
        for session in sessions
    ]


def agent_name(session: ReportedSession) -> str:
    """Return the name of a session among the agents: its task id, or else its name."""
    return one_line(session.task_id, 80) if session.task_id else one_line(session.name, 80)


def _session_json(session: ReportedSession, answers: Mapping[str, Answer], pictures: Pictures) -> JsonObject:
    place = _places(session.entries)
    contexts = _begun_before(session.entries, place) if session.is_part else reshaped_contexts(session.entries)
    leaf = session.info.leaf_id
    active = [session.entries[number] for number in _path_to(leaf, session.entries, place)]
    compactions = compactions_json(session.entries, active, session.losses, session.sizes, _stretches)
    entries = _Rows(session, place, contexts, answers, pictures)
    rows: list[JsonValue] = [
        entries.row(entry) | ({"compaction": compactions[entry.id]} if entry.id in compactions else {})
        for entry in session.entries
    ]
    return {
        "id": session.info.id,
        "name": session.name,
        "agent": agent_name(session),
        "parent": session.parent_id,
        "leaf": None if leaf is None else place.get(leaf),
        # Money is a number in one shape everywhere; the page formats it.
        "facts": [
            [name, value] for name, value in session_facts(session.info, session.name) if value and name != "spent"
        ],
        "spent": spent_json(session.info),
        "counted": bool(session.sizes),
        "isPart": session.is_part,
        # A fork counts what is its own.
        "stored": session.info.entry_count if session.is_part and session.info.forked_from_session is None else None,
        "sent": None if session.sent is None else sent_json(session.sent, place),
        "entries": rows,
        "sorts": [*entries.sorts],
        "rests": [*entries.rests],
    }


def reshaped_contexts(entries: Sequence[Entry]) -> dict[str, list[tuple[int, int]]]:
    """Return the context at each entry of a kind that reshapes it, by id, as stretches (first, last) of ``entries``.

    At every other entry the context is its parent's, plus the entry itself if its kind is one of `CONTEXT_KINDS`.
    """
    place = _places(entries)
    stretches_by_step: dict[str, list[tuple[int, int]]] = {}
    for entry in entries:
        if entry.kind in RESHAPING_KINDS:
            path = [entries[number] for number in _path_to(entry.id, entries, place)]
            stretches_by_step[entry.id] = _stretches([place[item.entry_id] for item in context.project(path)])
    return stretches_by_step


def _begun_before(entries: Sequence[Entry], place: Mapping[str, int]) -> dict[str, list[tuple[int, int]] | None]:
    """Return None for each entry of a part of a session whose context is not its parent's on the page, and itself."""
    return {
        entry.id: None
        for entry in entries
        if entry.kind in (*RESHAPING_KINDS, DAMAGED) or (entry.parent_id is not None and entry.parent_id not in place)
    }


def _stretches(numbers: Sequence[int]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return spans


class Pictures:
    """The pictures of a page, each once, the first ones up to `MOST_PICTURES` characters; all others are named."""

    def __init__(self) -> None:
        self.rows: list[JsonValue] = []
        """Of each its MIME type, its base64, its width and its height."""
        self._places: dict[str, int] = {}
        self._characters = 0

    def part(self, media: Media) -> JsonValue:
        """Return a picture or a file as a part of an entry: its name, and of a picture on the page its place."""
        if not media.is_picture:
            return ["media", media.name]
        place = self._places.get(media.data)
        if place is None:
            if not media.is_small or self._characters + len(media.data) > MOST_PICTURES:
                return ["media", f"{media.name}, too large to be shown"]
            self._characters += len(media.data)
            place = self._places[media.data] = len(self.rows)
            self.rows.append([media.mime_type, media.data, *(media.size or ())])
        return ["media", media.name, place]


class _Sort(NamedTuple):
    """The fields that many entries have alike. ``model`` is a provider and a model, ``tool`` that of a result."""

    kind: str
    role: str | None
    source: str | None
    agent: str | None
    model: tuple[str, str] | None
    tool: str
    failed: bool

    def row(self, name: str) -> JsonObject:
        """Return the fields as the page takes them, without those that are empty."""
        fields: JsonObject = {
            **self._asdict(),
            "name": name,
            "seen": self.kind in CONTEXT_KINDS,
            "agent": None if self.agent is None else one_line(self.agent, 80),
            "model": None if self.model is None else one_line(" / ".join(filter(None, self.model)), 120),
        }
        return {name: value for name, value in fields.items() if value}


class _Rows:
    """Makes the rows of a session's entries. Values that many of them share stand once, and the rows have their places.

    ``sorts`` are groups of fields, ``rests`` the fields that are shown nowhere else, as JSON text.
    """

    def __init__(
        self,
        session: ReportedSession,
        place: Mapping[str, int],
        contexts: Mapping[str, list[tuple[int, int]] | None],
        answers: Mapping[str, Answer],
        pictures: Pictures,
    ) -> None:
        self.sorts: list[JsonObject] = []
        self.rests: dict[str, int] = {}
        self._sorts: dict[_Sort, int] = {}
        self._session, self._place, self._contexts, self._answers = session, place, contexts, answers
        self._pictures = pictures
        self._seconds = 0

    def row(self, entry: Entry) -> JsonObject:
        """Return the row of the next entry, without fields that are empty, zero or unknown.

        ``at`` are the seconds since the entry before. ``parent`` is left out if it is that one. ``paid`` is its cost:
        picodollars, calls, and how many of the calls have no known price. A fourth number is there if it is an answer
        without usage. ``asks`` says that a turn begins with it. ``outside`` is a parent that is not on the page, and
        how many entries are above.
        """
        value = entry.data
        fields = value if isinstance(value, dict) else {}
        sort = self._sort(entry, fields)
        seconds = entry.created_us // 1_000_000
        parts = _parts(entry, value, self._pictures)
        row: JsonObject = {"id": entry.id, "sort": sort, "at": seconds - self._seconds, "parts": parts}
        self._seconds = seconds
        # The page derives most lines from the text: where it is the whole message, without a look at the line.
        if not _is_said_by(parts, entry, fields):
            line = _beginning(entry_text(entry, value))
            if line != _line_from(self.sorts[sort], parts):
                row["line"] = line
        parent = None if entry.parent_id is None else self._place.get(entry.parent_id)
        if parent != self._place[entry.id] - 1:
            row["parent"] = parent
        if parent is None and entry.parent_id is not None:
            row["outside"] = [entry.parent_id, entry.depth]
        if entry.id in self._contexts:
            stretches = self._contexts[entry.id]
            row["context"] = None if stretches is None else [[first, last] for first, last in stretches]
        rest = _rest(entry, fields)
        extras: dict[str, JsonValue] = {
            "asks": context.begins_turn(entry),
            "label": self._session.labels.get(entry.id),
            "pinned": entry.id in self._session.pins,
            "tokens": self._session.sizes.get(entry.id),
            "calls": [str(call.get("name", "")) for call in tool_calls(fields)] if entry.kind == MESSAGE else None,
        }
        row.update({name: extra for name, extra in extras.items() if extra})
        if rest is not None:
            row["rest"] = self.rests.setdefault(rest, len(self.rests))
        row.update(self._paid(entry, fields))
        return row

    def _sort(self, entry: Entry, fields: JsonObject) -> int:
        """Return the place of an entry's sort, which is added if no entry before is of it."""
        is_message = entry.kind == MESSAGE
        is_result = is_message and entry.role == "toolResult"
        sort = _Sort(
            entry.kind,
            entry.role,
            entry.source,
            agent_of(fields) if is_message else None,
            _model(fields) if is_message and isinstance(fields.get("usage"), dict) else None,
            str(fields.get("toolName", "")) if is_result else "",
            is_result and fields.get("isError") is True,
        )
        place = self._sorts.setdefault(sort, len(self.sorts))
        if place == len(self.sorts):
            self.sorts.append(sort.row(entry_name(entry)[0].strip()))
        return place

    def _paid(self, entry: Entry, fields: JsonObject) -> JsonObject:
        cost = context.entry_cost(entry, self._session.costs)
        if cost is None:
            return {}
        paid: JsonObject = {"paid": paid_json(cost)}
        if isinstance(fields.get("usage"), dict):
            answer = self._answers.get(entry.id) or Answer.of(fields)
            if answer.usage.is_known:
                paid["usage"] = [*(answer.counts[name] for name in KINDS), answer.usage.totals.tokens]
        return paid


# The page does the same, in model.js.
def _beginning(text: str) -> str:
    return text if len(text) <= _REPORT_DATA_LINE_LENGTH else f"{text[: _REPORT_DATA_LINE_LENGTH - 1].rstrip()}…"


def _line_from(sort: Mapping[str, JsonValue], parts: Sequence[JsonValue]) -> str | None:
    """Return the line that the page derives from an entry's first part, if that is a text; None if it derives none."""
    first = parts[0] if parts else None
    if not isinstance(first, list) or first[0] != "text":
        return None
    ending = first[2] if len(first) > 2 else "failed" if "failed" in sort else None
    marks = [str(mark) for mark in (sort.get("tool"), ending) if mark]
    line = _beginning(one_line(f"[{', '.join(marks)}] {first[1]}" if marks else str(first[1])))
    # Scripts count a sign beyond U+FFFF as two.
    return line if line.isascii() or max(line) <= "\uffff" else None


def _is_said_by(parts: Sequence[JsonValue], entry: Entry, fields: JsonObject) -> bool:
    """Return whether the first part is the whole text of a message, in ASCII: its line is the text's beginning."""
    if entry.kind != MESSAGE or entry.role not in ("user", "assistant"):
        return False
    text = message_text(fields)
    return text.isascii() and bool(text.strip()) and parts[:1] == [["text", text]]


def _parts(entry: Entry, value: JsonValue, pictures: Pictures) -> list[JsonValue]:
    """Return the content of an entry as (kind, text, heading), in the form that the model sees if it sees it."""
    if entry.kind == MESSAGE and isinstance(value, dict):
        return [_part(part, pictures) for part in shown_parts(value)]
    if entry.kind in SHOWN_KINDS:
        content = context.ContextEntry(entry).data.get("content")
        parts = content if isinstance(content, list) else [] if content is None else [content]
        return [_part(shown, pictures) for part in parts for shown in shown_part(part, is_user=False)]
    artifact = readable(entry)
    return [["json", _json(value)]] if artifact is None else [["json", _json(artifact[0])], ["text", artifact[1]]]


def _part(part: Shown, pictures: Pictures) -> JsonValue:
    if part.media is not None:
        return pictures.part(part.media)
    kind = "text" if part.kind in ("words", "result") else part.kind
    has_heading = part.heading and part.heading != part.kind
    return [kind, part.text, part.heading] if has_heading else [kind, part.text]


def _json(value: JsonValue) -> str:
    """Return a value as the page takes it: as text, since scripts round large numbers, which the page indents."""
    return encode_json(value, "part", is_json=True)[0]


def _rest(entry: Entry, fields: JsonObject) -> str | None:
    """Return as JSON text the fields of an entry that are shown nowhere else."""
    rest: JsonObject = {}
    if entry.kind in SHOWN_KINDS:
        rest = {name: value for name, value in fields.items() if name not in _SHOWN_ELSEWHERE}
    rest.update(entry.extra_fields)
    return _json(rest) if rest else None


# -- money ------------------------------------------------------------------------------------------------------------


def _model(fields: JsonObject) -> tuple[str, str]:
    return (str(fields.get("provider") or ""), str(fields.get("model") or _NO_MODEL))


def models_json(bill: Sequence[UsageRow]) -> JsonObject:
    """Return the usage and the cost of each model's calls, the most expensive first, and the sum.

    Calls that name no model are grouped by their purpose.
    """
    models: dict[tuple[str, str], UsageRow] = {}
    total = UsageRow()
    for row in bill:
        purpose = row.group["purpose"]
        nameless = _NO_MODEL if purpose == "turn" else str(purpose)
        name = (str(row.group["provider"] or ""), str(row.group["model"] or nameless))
        models[name] = models.get(name, UsageRow()).plus(row)
        total = total.plus(row)
    ranked = sorted(models.items(), key=lambda item: (-item[1].picodollars, -item[1].total_tokens, item[0]))
    rows: list[JsonValue] = [
        {"provider": one_line(provider, 80), "model": one_line(model, 120), **bill_json(row)}
        for (provider, model), row in ranked
    ]
    return {"rows": rows, "total": bill_json(total)}


def bill_json(row: UsageRow) -> JsonObject:
    """Return usage and payments as the scripts of a page take them."""
    return {
        "usage": [row.known[name] for name in KINDS],
        "paid": [row.picodollars, row.calls, row.unpriced_calls],
        "unknown": row.unknown_calls,
    }


def paid_json(cost: context.EntryCost) -> JsonValue:
    """Return the cost of an entry as the scripts of a page take it."""
    return [cost.picodollars, cost.calls, cost.unpriced_calls, *([cost.untold] if cost.untold else [])]


def spent_json(info: SessionInfo) -> JsonObject:
    """Return the payments of a session itself. Its calls are those without a price, and one for all others."""
    unpriced = info.unpriced_calls
    calls = unpriced + (info.spent_picodollars > 0)
    return {"tokens": info.known_tokens, "paid": [info.spent_picodollars, calls, unpriced, int(info.is_untold)]}


_SENT = ("input", "cacheRead", "cacheWrite", "output")


def _growth_json(line: Growth) -> JsonObject:
    return {
        "session": line.session,
        "agent": line.agent,
        "turns": [[turn.entry, *(turn.known[name] for name in _SENT), turn.cumulative] for turn in line.turns],
        "compactions": [[mark.after_turn, mark.entry, mark.tokens_before] for mark in line.compactions],
    }


# ---------------------------------------------------------------------------------------------------------------------
# A session as one HTML file that needs nothing else: the page, its styles, its scripts and its data.
#
# The page asks no network for anything: its Content-Security-Policy allows the scripts and styles of this file, by
# their hashes, and nothing more. The texts of a session reach the page as JSON and are set as text there, so that
# it can be neither markup nor script.

SCRIPTS = (
    "page", "model", "money", "markdown", "messages", "tree", "map", "compare", "compaction", "sent", "context",
    "growth", "find", "address", "print", "start",
)  # fmt: skip
"""The page's own scripts, in the order in which they have to run."""

_LIBRARIES = ("uPlot.iife.min.js", "d3-hierarchy.min.js", "markdown-it.min.js")
_LICENSES = (
    ("uPlot 1.6.32", "uPlot.LICENSE"),
    ("d3-hierarchy 3.1.3", "d3-hierarchy.LICENSE"),
    ("markdown-it 15.0.3", "markdown-it.LICENSE"),
)
# A source map is a separate file, which a report does not have.
_SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*$", re.MULTILINE)
_SLOT = re.compile(r"@@([A-Z_]+)@@")
# Characters that could end the element or begin a comment, that old parsers take for a line end, or without UTF-8.
_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def html_report(
    sessions: Sequence[ReportedSession],
    thresholds: Thresholds = _NO_LINES,
    *,
    bill: Sequence[UsageRow] = (),
    unchecked: bool = False,
    made_at: datetime | None = None,
) -> str:
    """Return sessions as one HTML file: the one reported on first, its task sessions after it.

    ``bill`` has their payments, by provider, model and purpose; ``unchecked`` says that nothing was checked.
    The same arguments give the same text: the time of making is on the page only as ``made_at``. Cost: O(entries),
    and O(path) for each compaction; the text is about as long as the payloads, and 240 kB.
    """
    return session_page(report_data(sessions, thresholds, bill=bill, unchecked=unchecked, made_at=made_at))


def session_page(data: JsonObject, *, served: bool = False) -> str:
    """Return the page of this data. What is ``served`` may ask its own server, and does what a reader wants done."""
    scripts = (*SCRIPTS, "server", "live") if served else SCRIPTS
    return filled_page("report", scripts, data, title=str(data["title"]), libraries=_LIBRARIES, served=served)


def filled_page(
    name: str,
    scripts: Sequence[str],
    data: JsonObject,
    *,
    title: str,
    libraries: Sequence[str] = (),
    served: bool = False,
) -> str:
    """Return the page of this name with its scripts, styles and data."""
    texts = _scripts(scripts, libraries)
    licenses = "\n\n".join(f"{name}\n{_asset(f'vendor/{file}').strip()}" for name, file in _LICENSES)
    return _filled(
        _asset("page.html"),
        {
            "POLICY": _policy(texts, served=served),
            "TITLE": escape(title),
            "BODY": _filled(_asset(f"{name}.html"), {"LICENSES": escape(licenses)}),
            "STYLES": "\n".join(f"<style>{style}</style>" for style in _styles()),
            "SCRIPTS": "\n".join(f"<script>{script}</script>" for script in texts),
            "DATA": embedded_json(data),
        },
    )


def context_snapshots(sessions: Sequence[ReportedSession], thresholds: Thresholds = _NO_LINES) -> str:
    """Return the figures of the chart as JSON lines, for programs that read context snapshots."""
    rows = snapshot_rows(
        growing(sessions), sessions[0].info.id, warn_at=thresholds.warn_at, cutover_at=thresholds.cutover_at
    )
    return "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)


def embedded_json(value: JsonValue) -> str:
    """Return a value as JSON text that can stand in a script element: nothing in it can end the element."""
    try:
        text = to_json(value).decode()
    except ValueError:  # half of a surrogate pair
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def _filled(template: str, values: dict[str, str]) -> str:
    # In one pass, so that inserted text is never searched for slots.
    return _SLOT.sub(lambda match: values[match.group(1)], template)


@cache
def _asset(name: str) -> str:
    return files("flue_py.render").joinpath("assets").joinpath(*name.split("/")).read_text(encoding="utf-8")


def _styles() -> list[str]:
    return [_asset("vendor/uPlot.min.css"), _asset("report.css")]


def _scripts(names: Sequence[str], libraries: Sequence[str]) -> list[str]:
    own = "\n".join(_asset(f"{name}.js") for name in names)
    others = (_SOURCE_MAP.sub("", _asset(f"vendor/{name}")) for name in libraries)
    return [*others, f'(() => {{\n"use strict";\n{own}}})();\n']


def _policy(texts: Sequence[str], *, served: bool) -> str:
    scripts = " ".join(_hash(script) for script in texts)
    styles = " ".join(_hash(style) for style in _styles())
    asked = "connect-src 'self'; form-action 'self'" if served else "form-action 'none'"
    return (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; img-src data:; base-uri 'none';"
        f" {asked}; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


# ---------------------------------------------------------------------------------------------------------------------
# All sessions as one HTML file: the list, with filters, and what they cost, each with a link to its page.

_NAME = 200
SUMS: tuple[Dimension, ...] = ("day", "month", "project", "agent", "model")
"""The dimensions by which the list adds up payments."""


def overview_data(
    pages: Mapping[str, ListedSession],
    sums: Mapping[str, Sequence[UsageRow]],
    total: UsageRow | None,
    *,
    damaged: Sequence[str] = (),
    unchecked: bool = False,
    made_at: datetime | None = None,
) -> JsonObject:
    """Return sessions for `overview_page`, in their order, and by name of a dimension (`SUMS`) the payments.

    ``pages`` has the sessions by the addresses of their pages, ``damaged`` are the ids of those that have none. Each
    row of ``sums`` has that one group. The same arguments give the same data. O(sessions + rows).
    """
    return {
        "made": None if made_at is None else f"{minute(made_at)} UTC",
        "sessions": [_listed_json(session, file) for file, session in pages.items()],
        "damaged": [*damaged],
        "unchecked": unchecked,
        "sums": {name: sums_json(name, rows) for name, rows in sums.items()},
        "total": None if total is None else bill_json(total),
    }


def sums_json(name: str, rows: Sequence[UsageRow]) -> list[JsonValue]:
    """Return the sums by a dimension as the list has them: the newest period first, else the most expensive."""
    is_period = name in ("day", "month")
    ranked = rows[::-1] if is_period else sorted(rows, key=lambda row: (-row.picodollars, -row.total_tokens))
    return [_sum_json(row) for row in ranked]


def overview_page(data: JsonObject, *, served: bool = False) -> str:
    """Return the page of this data, as one HTML text; one that is ``served`` follows its server."""
    scripts = ("page", "money", "index", *(("server", "listing") if served else ()))
    return filled_page("index", scripts, data, title="Sessions", served=served)


def _listed_json(session: ListedSession, file: str) -> JsonValue:
    info = session.info
    return {
        "id": info.id,
        "name": one_line(session.name, _NAME),
        "first": one_line(info.first_message or "", _NAME),
        "href": file,
        "kind": info.kind,
        "program": session.program,
        "project": one_line(session.project, _NAME),
        "model": one_line(session.model, _NAME),
        "messages": info.message_count,
        "active": minute(info.active_at),
        **spent_json(info),
    }


def _sum_json(row: UsageRow) -> JsonValue:
    (value,) = row.group.values()
    return {"name": "" if value is None else one_line(str(value), _NAME), **bill_json(row)}
