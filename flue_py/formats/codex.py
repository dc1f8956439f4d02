"""Codex rollouts."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache, partial
from pathlib import Path
from typing import BinaryIO, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from flue_py.core.entries import BASE, RANGES, NewEntry, Range
from flue_py.core.json import Frozen, JsonObject, JsonValue, without
from flue_py.core.kinds import COMPACTION, MESSAGE, message_text
from flue_py.core.sessions import NewSession, call_id, derived_id
from flue_py.core.usage import PaidCall, ReportedUsage, call_of
from flue_py.errors import InvalidEntry, UnreadableFile
from flue_py.formats import kit
from flue_py.formats.kit import entry_kind
from flue_py.providers.base import fields_of, objects_in
from flue_py.providers.openai_responses import (
    CALLS,
    HOSTED,
    KEPT_BY_COMPACTION,
    OUTPUTS,
    TOKEN_KINDS,
    Counts,
    call_ids,
    content_parts,
    counted_report,
    counted_usage,
    is_call,
    is_output,
    is_spoken,
    message_fields,
    output_message,
    said_message,
    spoken_parts,
    token_counts,
    total_usage,
)
from flue_py.system import ZSTD, open_if_plain, unpacked

# The rows of a Codex rollout: how a file of them begins, and the values in their envelopes.

FORMAT = "codex"
PREFIX = "codex."
"""Before the type of a row that is not part of the conversation."""
UNREADABLE = "unreadable_"
SPAWN = "spawn_agent"
"""The tool that starts a sub-agent, in a thread of its own."""

_ITEMS = frozenset({"message", "reasoning", *CALLS, *OUTPUTS, *HOSTED})
_REPEATING = frozenset({"user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content"})
_CLOSING_EVENTS = frozenset({
    "task_started", "turn_started", "task_complete", "turn_complete", "turn_aborted", "thread_rolled_back",
    "context_compacted",
})  # fmt: skip
_CLOSING_TYPES = frozenset({"session_meta", "turn_context", "compacted"})
USAGE_RECORD = "token_usage_record"
"""The type of a row that says what one call took."""
_KNOWN_TYPES = frozenset({
    *_CLOSING_TYPES, "response_item", "event_msg", "world_state", "inter_agent_communication_metadata", USAGE_RECORD,
})  # fmt: skip
_KNOWN_ITEMS = frozenset({"ghost_snapshot", "compaction", "compaction_summary", "context_compaction"})

_FOLDER = re.compile(r"<environment_context>\s*(?:<cwd>|Current working directory: )([^<\n]+)")
"""Where the program tells the model its folder: its headers did not name that before there were envelopes."""

PACKED = ".jsonl.zst"
"""How the names of rollouts end that Codex has packed: those that were not written to for a week."""


def looks_like_codex(first_bytes: bytes, path: str) -> bool:
    """Return whether a file begins like a Codex rollout, of today or from before rows had envelopes."""
    if first_bytes.startswith(ZSTD):
        return path.endswith(PACKED)
    has_header = False
    for row in kit.first_rows(first_bytes):
        if has_header:
            return _kind(row) in _ITEMS or "record_type" in row
        if _kind(row) in _KNOWN_TYPES and isinstance(row.get("payload"), dict):
            return True
        has_header = "type" not in row and "id" in row and "timestamp" in row
        if not has_header or "instructions" in row or "git" in row:
            return has_header
    # A first line longer than what was read: the instructions are in it.
    return first_bytes.startswith(b'{"timestamp":"') and b'"type":"session_meta"' in first_bytes[:200]


class CodexRow(kit.RawRow):
    """One row out of its envelope: its type, its payload, and the type of that."""

    type: str
    payload: JsonObject
    timestamp: JsonValue
    kind: str

    @property
    def is_repeating(self) -> bool:
        """Whether it repeats a message, for the screen."""
        return self.type == "event_msg" and self.kind in _REPEATING

    @property
    def is_count(self) -> bool:
        """Whether it reports tokens."""
        return self.type == USAGE_RECORD or (self.type == "event_msg" and self.kind == "token_count")

    @property
    def closes(self) -> bool:
        """Whether the words of the model before it are complete."""
        if self.type == "event_msg":
            return self.kind in _CLOSING_EVENTS
        return self.type in _CLOSING_TYPES or (self.type == "response_item" and self.kind == "message")

    @property
    def is_known(self) -> bool:
        """Whether rows of its type are known to have no part in the conversation."""
        return self.type in _KNOWN_TYPES and (self.type != "response_item" or self.kind in _KNOWN_ITEMS)

    @property
    def name(self) -> str:
        """Its type, and that of its payload."""
        return f"{self.type}.{self.kind}" if self.kind and self.type in ("response_item", "event_msg") else self.type


def response_item(row: CodexRow, item: JsonObject) -> CodexRow:
    """Return an item that a row holds, as a row of its own."""
    return CodexRow(row.line, row.raw, "response_item", item, row.timestamp, _kind(item))


def _kind(payload: JsonObject) -> str:
    kind = payload.get("type")
    return kind if isinstance(kind, str) else ""


def segment_of(name: str, thread: str) -> str:
    """Return the segment of its thread that a file has, by its name; "" for the file that the thread began with."""
    return name.removesuffix(".zst").removesuffix(".jsonl").partition(f"-{thread}_")[2]


def task_of(meta: JsonObject) -> kit.TaskOf | None:
    """Return whose task the thread of a sub-agent is, and its name there; None for any other thread."""
    source: JsonValue = meta.get("source")
    for name in ("subagent", "thread_spawn", "parent_thread_id"):
        source = fields_of(source).get(name)
    if not kit.is_name(source) or source == meta.get("id"):
        return None
    return kit.TaskOf(source, str(meta.get("id"))[:200])


def started_thread(output: JsonObject) -> str | None:
    """Return the thread of a sub-agent that the output of `SPAWN` says was started; None for any other output."""
    text = kit.text_in(output, "output")
    thread = kit.object_in(text.encode()).get("agent_id")
    return thread[:200] if kit.is_name(thread) else None


def read_codex_row(number: int, raw: bytes, notes: kit.Notes, *, is_first: bool) -> CodexRow | None:
    """Return the row on a line; None for a blank line, and if it is not an object, which is noted. O(size)."""
    fields = kit.decode_row(number, raw, notes)
    if fields is None:
        return None
    payload = fields.get("payload")
    kind = fields.get("type")
    if isinstance(payload, dict) and isinstance(kind, str):
        return CodexRow(number, raw, kind, payload, fields.get("timestamp"), _kind(payload))
    if isinstance(kind, str) and kind in _ITEMS:
        name = "response_item"
    elif is_first and kind is None and kit.is_name(fields.get("id")):
        name = "session_meta"
    else:
        name = kind if isinstance(kind, str) else "state" if "record_type" in fields else "row"
    return CodexRow(number, raw, name, fields, fields.get("timestamp"), _kind(fields))


# The entries of a Codex rollout while they are made, one below the other: their ids, and when they were.


def unsettled_id(begins: str) -> str:
    """Return the id of the call for tokens whose entry is not complete yet, by that of the row where it begins."""
    return f"codex:{begins}"


class Entries(Struct):
    """The entries of one rollout that were not returned yet. ``tail`` is the one that the next hangs below."""

    notes: kit.Notes
    session: NewSession
    version: str
    parent: kit.TaskOf | None
    segment: str
    name: str | None
    place: str
    """Which of the files that the session goes through the next rows are of; "" for the one that it began with."""
    pays: bool = True
    """Whether the calls of the next rows are the session's own."""
    draft: kit.Draft = field(default_factory=kit.Draft)
    tail: str | None = None
    last_time: int | None = None

    def take(self) -> list[kit.SessionPart]:
        """Return the part that is ready, and forget it."""
        if not self.draft.has_part:
            return []
        part = self.draft.take(FORMAT, self.version, self.session, self.parent)
        return [replace(part, segment=self.segment, name=self.name)]

    def id_of(self, row: CodexRow) -> str:
        """Return the id of the entry that a row becomes."""
        return derived_id(f"{self.session.id}{self.place}", row.line, row.raw.strip().decode(errors="replace"))

    def settle(self, entry_id: str, begins: str) -> None:
        """Note that an entry's call may have been booked before the entry was complete; it begins in a row."""
        self.draft.settles[entry_id] = (unsettled_id(begins),)

    def emit(self, row: CodexRow, content: NewEntry, *, entry_id: str | None = None, line: int | None = None) -> str:
        """Hand an entry over, below the one before it. Return its id."""
        name = entry_id or self.id_of(row)
        times = kit.read_moment(row.timestamp), self.last_time, self.session.created_us
        moment = self.last_time = next((time for time in times if time is not None), None)
        self.notes.surrogates_replaced += content.surrogates_replaced
        if content.calls and not self.pays:
            content = replace(content, calls=(), unpaid=True)
        extra = f'{{"line":{line or row.line}}}'
        entry = replace(content, id=name, parent_id=self.tail, created_us=moment, extra=extra)
        self.draft.entries.append(entry)
        self.draft.lines.append(line or row.line)
        if content.kind in (MESSAGE, COMPACTION):
            self.draft.leaves.append(name)
        self.tail = name
        return name

    def emit_step(self, rows: Sequence[CodexRow], spoken: CodexRow, content: NewEntry, *, begins: CodexRow) -> None:
        """Add the entry that several rows make, under the id of the last, at the time of the spoken one."""
        ids = [self.id_of(row) for row in rows]
        if content.calls:
            self.settle(ids[-1], ids[0] if begins is rows[0] else self.id_of(begins))
        self.emit(spoken, content, entry_id=ids[-1], line=rows[-1].line)
        if len(ids) > 1:
            self.draft.earlier[ids[-1]] = tuple(ids[:-1])

    def go_back(self, to: str | None) -> None:
        """Go on below an earlier entry: what follows is another branch."""
        self.tail = to
        if to is not None:
            self.draft.leaves.append(to)

    # their contents

    def message(
        self, row: CodexRow, message: JsonObject, items: Sequence[JsonObject], usage: ReportedUsage | None = None
    ) -> NewEntry:
        """Return a message; if it cannot be one, the items it was made of."""
        try:
            return kit.message_content(message, usage)
        except InvalidEntry as error:
            bodies: tuple[JsonObject, ...] = ({"items": list(items)}, {"line": row.text})
            return kit.unreadable_entry(f"{UNREADABLE}message", error, self.notes, row.line, *bodies)

    def custom(self, row: CodexRow, kind: str, body: JsonValue) -> NewEntry:
        """Return an entry that is not a message."""
        try:
            return kit.stored_entry(kind, body, kit.encode_decoded)
        except InvalidEntry as error:
            return kit.unreadable_entry(f"{UNREADABLE}entry", error, self.notes, row.line, {"line": row.text})


# The words of the model between two results of tools in a Codex rollout, and the tokens it took.

_NOTHING: Counts = (None,) * len(TOKEN_KINDS)


class Step(Struct):
    """The words of the model between two results of tools, while more may come, and the rows behind them."""

    items: list[CodexRow] = field(default_factory=list)
    counts: list[CodexRow] = field(default_factory=list)
    pending: list[CodexRow] = field(default_factory=list)
    used: Counts = _NOTHING
    has_message: bool = False
    owed_since: CodexRow | None = None
    """The count before it that it pays for, too; the first, if there are several."""

    @property
    def begins(self) -> CodexRow:
        """The row that stands first in the file, of the counts that it pays for and the words of the model."""
        return self.owed_since or self.items[0]

    @property
    def rows(self) -> list[CodexRow]:
        """The rows that make the entry."""
        return sorted([*self.items, *self.counts], key=lambda row: row.line)

    @property
    def is_answer(self) -> bool:
        """Whether it reads like a whole answer: a message, and no call."""
        return self.items[-1].kind == "message" and not any(is_call(row.payload) for row in self.items)

    def message(self, provider: str, model: str | None) -> JsonObject:
        """Return it as a message."""
        items = [row.payload for row in self.items]
        content: list[JsonValue] = [part for item in items for part in spoken_parts(item)]
        message: JsonObject = {"role": "assistant", "content": content, "api": "openai-responses"}
        message["provider"] = provider
        if model is not None:
            message["model"] = model
        message["stopReason"] = "toolUse" if any(is_call(row.payload) for row in self.items) else "stop"
        for item in items:
            if item.get("type") == "message":
                message |= message_fields(item)
        if any(self.used):
            message["usage"] = counted_usage(self.used)
        return message


class TokenCounts:
    """The tokens of calls in a rollout: totals of the whole session, most of them twice, and records of calls."""

    def __init__(self, notes: kit.Notes, provider: str = "openai", *, goes_on: bool = False, way: str = "") -> None:
        self._notes = notes
        self.provider = provider
        self.model: str | None = None
        self._goes_on = goes_on
        self._way = way
        self._counted: Counts = _NOTHING
        self._owed: Counts = _NOTHING
        self._by_records: Counts = _NOTHING
        self._by_totals: Counts = _NOTHING
        self.owed_since: CodexRow | None = None
        """The first count that no message was there for, while that is owed."""

        self.context_tokens = 0
        """How many tokens the last call had in all."""

    def forget_total(self) -> None:
        """Take the next total for the first one: the calls before it are missing."""
        self._counted = self._by_records = self._by_totals = _NOTHING

    def take_owed(self) -> Counts:
        """Return the tokens that were counted while there was no message to count them for, and owe them no longer."""
        owed, self._owed, self.owed_since = self._owed, _NOTHING, None
        self._by_totals = _NOTHING
        return owed

    def read(self, row: CodexRow, step: Step | None) -> None:
        """Count the tokens that a row reports and no row before it: for the message before, or else the next one."""
        reported = self._of_record(row) if row.type == USAGE_RECORD else self._of_total(row)
        if reported is None:
            return
        if not any(reported):
            self._notes.left_out["repeats a count of tokens"] += 1
            if step is not None and step.counts and step.counts[-1].type == USAGE_RECORD != row.type:
                # The entry keeps the id that it had before records were read, from the first total behind it.
                step.counts.append(row)
            return
        self._notes.merged += 1
        if step is None:
            self._owed = _sum(self._owed, reported)
            self.owed_since = self.owed_since or row
        else:
            step.used = _sum(step.used, reported)
            step.counts.append(row)

    def _of_record(self, row: CodexRow) -> Counts | None:
        """Return the tokens of a call by its own record; zeros if a total has counted it, None if it has none."""
        usage = token_counts(row.payload.get("usage"))
        if usage is None:
            self._notes.left_out["reports no tokens"] += 1
            return None
        self.context_tokens = usage[4] or 0
        by_totals, self._by_totals = self._by_totals, _NOTHING
        if any(by_totals) and not any(_without(usage, by_totals)):
            return _NOTHING
        self._by_records = _sum(self._by_records, usage)
        return usage

    def _of_total(self, row: CodexRow) -> Counts | None:
        """Return the growth of the total that no record has counted; None if there is no total."""
        total, last = total_usage(row.payload), total_usage(row.payload, "last_token_usage")
        if total is None:
            self._notes.left_out["reports no tokens"] += 1
            return None
        if _is_refusal(row, total, self._counted):
            # The program takes the window for used up, so that the next turn is compacted first.
            self._notes.left_out["counts a refused call as a full window"] += 1
            self._counted = total
            return None
        if last is not None:
            self.context_tokens = last[4] or 0
        begins_high = not any(self._counted) and last is not None and (last[4] or 0) < (total[4] or 0)
        grown = last if begins_high and last is not None else self._growth(row, total, last)
        # A kind that one count leaves out has not begun anew.
        self._counted = tuple(before if now is None else now for now, before in zip(total, self._counted, strict=True))
        if not any(grown):
            return grown
        rest = _without(grown, self._by_records)
        self._by_records, self._by_totals = _NOTHING, rest
        if any(rest) and begins_high and not self._goes_on:
            self._notes.repair(
                row.line,
                f"the first total is {total[4]} tokens, {grown[4]} of them of the last call; those before were not "
                "counted, since no row of the file tells of their calls",
            )
        return rest

    def _growth(self, row: CodexRow, total: Counts, last: Counts | None) -> Counts:
        grown = tuple(
            None if now is None else now - (before or 0) for now, before in zip(total, self._counted, strict=True)
        )
        if all(count is None or count >= 0 for count in grown):
            return grown
        if (grown[4] or 0) >= 0:
            return tuple(None if count is None else max(0, count) for count in grown)
        self._notes.repair(row.line, "the count of tokens began anew; what it reports of itself was counted")
        return last or total

    def unsettled(self, used: Counts, row: CodexRow, call_id: str) -> PaidCall:
        """Return the call for tokens whose entry is not complete yet."""
        call = call_of(counted_report(used), provider=self.provider, model=self.model, call_id=call_id)
        return replace(call, at_us=kit.read_moment(row.timestamp))

    def paid(self, step: Step, content: NewEntry) -> NewEntry:
        """Return the message of a step with the call that was paid for it, if that was counted."""
        if content.kind != MESSAGE or not any(content.usage):
            return content
        return self._with_call(content, counted_report(step.used), step.rows[-1].line, "turn")

    def compaction(self, row: CodexRow, custom: Callable[[JsonObject], NewEntry], fields: JsonObject) -> NewEntry:
        """Return a compaction with the call that made its summary: the tokens since the last message."""
        owed = self.take_owed()
        if not any(owed):
            return custom(fields)
        report = counted_report(owed)
        content = custom({**fields, "usage": counted_usage(owed)})
        if content.kind != COMPACTION:
            return content
        content = replace(content, usage=report.totals)
        return self._with_call(content, report, row.line, COMPACTION)

    def _with_call(self, content: NewEntry, reported: ReportedUsage, line: int, purpose: str) -> NewEntry:
        # The same call in the file of a fork is paid once: its words and the total tell it, times do not. Where a
        # thread went two ways, both may be alike, and no row of the other is repeated.
        alone = repr(self._by_records) if any(self._by_records) else ""
        name = call_id("codex", f"{content.payload}{self._counted!r}{alone}{self._way}".encode())
        names = {"provider": self.provider, "model": self.model or "", "call_id": name, "purpose": purpose}
        return kit.with_call(content, reported, self._notes, line, **names)


def _sum(counts: Counts, added: Counts) -> Counts:
    return tuple(
        theirs if mine is None else mine if theirs is None else mine + theirs
        for mine, theirs in zip(counts, added, strict=True)
    )


def _without(counts: Counts, booked: Counts) -> Counts:
    """Return counts without the booked part of them."""
    return tuple(None if n is None else max(0, n - (less or 0)) for n, less in zip(counts, booked, strict=True))


def _is_refusal(row: CodexRow, total: Counts, before: Counts) -> bool:
    """Return whether a total stands for a call that was refused for its length: no parts, and the whole window."""
    window = fields_of(row.payload.get("info")).get("model_context_window")
    parts, parts_before = (counts[:4] + counts[5:] for counts in (total, before))
    return bool(total[4]) and not any(parts) and (total[4] == window or any(parts_before))


# Codex rollouts: from the rows of a file to a session ready to be stored.
#
# A rollout is a line of items without ids and parents. An entry's id is derived from the session's id, the number of
# its line and the line itself. What the model says between two results of tools (reasoning, a message, calls) is one
# entry, whose id comes from its last row; the count of tokens that follows it is its usage. The events that repeat
# messages for the screen are left out.
#
# Codex reports the tokens of the whole session, and each count about twice: the growth of a count since the one before
# are the tokens of the message. A rollout that begins in another way than when it was imported is another file.

COMPACTED = "The conversation before this point was compacted; what was kept of it follows."
"""The summary of a compaction that has none of its own."""

CONTINUES = ("forked_from_id", "history_base")
"""The fields of the first row of a rollout whose thread goes on from that of another one."""

_MAX_PENDING = 10_000
_MAX_TURNS = 1_000


class CodexReader(kit.RowReader):
    """Reads a rollout row by row (see `Reader`). ``name`` is that of the file."""

    def __init__(self, name: str = "the file") -> None:
        super().__init__(name)
        self.thread_name: str | None = None
        """The name that people gave the thread, if that is known before its first row is read."""

        self._entries: Entries | None = None
        self._step: Step | None = None
        self._tokens = TokenCounts(self._notes)
        self._tools: kit.Recent[str] = kit.Recent(10_000)
        self._before_user: str | None = None
        self._turns: deque[str | None] = deque(maxlen=_MAX_TURNS)

    # the interface

    @property
    def ready(self) -> int:
        """How many entries can be taken."""
        return 0 if self._entries is None else len(self._entries.draft.entries)

    def feed(self, number: int, raw: bytes) -> None:
        """Read a line. Raises `UnreadableFile` if the first row names no session."""
        row = read_codex_row(number, raw, self._notes, is_first=self._entries is None)
        if row is None:
            return
        if self._entries is None:
            self._entries = self._begin(row)
        self._read(self._entries, row)

    def goes_on(self, first: bytes) -> None:
        """Take the session from the first row of the file, before rows of other files that it goes on from."""
        row = read_codex_row(1, first, kit.Notes(), is_first=True)
        if row is not None:
            self._entries = self._begin(row)

    def feed_before(self, number: int, raw: bytes, *, is_own: bool, place: str) -> None:
        """Read a line of a file that this one goes on from: of its own thread, or of another, which pays its calls.

        ``place`` tells the file from others; of the thread's own it is the segment.
        """
        row = read_codex_row(number, raw, self._notes, is_first=number == 1)
        if self._entries is not None and row is not None:
            if not is_own:
                self._entries.pays = False
            elif not self._entries.pays:
                self._begin_own(self._entries)
            if self._entries.place != place:
                self._close(self._entries)
                self._entries.place = place
            self._read(self._entries, row)

    def leave_gap(self) -> None:
        """Take note that rows are missing before the next one: their tokens are not those of that one."""
        if self._entries is not None:
            self._close(self._entries)
            self._tokens.forget_total()

    def begin_own(self, notes: Sequence[str]) -> None:
        """Go on with the rows of the file itself; ``notes`` name the earlier rows that are missing."""
        if self._entries is not None:
            self._begin_own(self._entries)
            self._entries.place = self._entries.segment
        self._notes.restart()
        for note in notes:
            advice = "delete the session, then import this file with again=True"
            self._notes.repair(1, f"{note}: its beginning is missing. Once that is there, {advice}")

    def _begin_own(self, entries: Entries) -> None:
        self._close(entries)
        if not entries.pays:
            self._tokens.take_owed()
        entries.pays = True

    def _begin(self, row: CodexRow) -> Entries:
        """Take the session from its first row."""
        payload = row.payload
        session_id = payload.get("id")
        if row.type == "session_meta" and isinstance(session_id, str) and session_id and not kit.is_name(session_id):
            raise UnreadableFile(f"{self._name}: its session_meta {kit.unusable_id(session_id)}; nothing was imported")
        if row.type != "session_meta" or not kit.is_name(session_id):
            raise UnreadableFile(
                f"{self._name} is not a Codex rollout: its first readable row is not a session_meta with an id; "
                "nothing was imported"
            )
        version = kit.one_text(payload.get("cli_version"), 200) or ""
        provider = kit.one_text(payload.get("model_provider"), 160) or "openai"
        header: JsonObject = {
            name: value[:1000] if isinstance(value, str) else value
            for name, value in payload.items()
            if name not in ("instructions", "base_instructions", "dynamic_tools")
        }
        about: JsonObject = {"version": version}
        if len(kit.json_line(header)) <= _LONGEST_HEADER:
            about["header"] = header
        created = kit.read_moment(payload.get("timestamp"))
        parent = task_of(payload)
        goes_on = parent is not None or any(isinstance(payload.get(name), (str, dict)) for name in CONTINUES)
        segment = segment_of(self._name, session_id)
        way = f"{session_id} {segment}" if isinstance(payload.get("history_base"), dict) else ""
        self._tokens = TokenCounts(self._notes, provider, goes_on=goes_on, way=way)
        session = kit.imported_session(
            session_id,
            FORMAT,
            self._name,
            about,
            self._notes,
            cwd=payload.get("cwd"),
            created_us=created if created is not None else kit.read_moment(row.timestamp),
            parent=parent,
        )
        return Entries(self._notes, session, version, parent, segment, self.thread_name, segment)

    def take(self) -> list[kit.SessionPart]:
        """Return the part that is ready."""
        return [] if self._entries is None else self._entries.take()

    def finish(self, *, take_all: bool) -> list[kit.SessionPart]:
        """Return the rest; an answer that may not be complete is held back, unless it reads like a whole one."""
        entries = self._entries
        if entries is None:
            raise UnreadableFile(f"{self._name} is not a Codex rollout: it has no readable row; nothing was imported")
        step = self._step
        if step is not None and take_all:
            self._close(entries)
        elif step is not None:
            waiting = step.pending
            if step.is_answer:
                step.pending = []
                self._close(entries)
                entries.draft.unfinished = frozenset(entries.draft.leaves[-1:])
            else:
                begins = self._book(entries, step.used, step.begins)
                # Where an import took the message as it was, the call is booked with that.
                for row in step.rows:
                    entries.settle(entries.id_of(row), begins)
                waiting = [*step.rows, *waiting]
            for row in waiting:
                self._notes.hold_back(row.line)
        since = self._tokens.owed_since
        if since is not None:
            owed = self._tokens.take_owed()
            self._notes.repair(
                since.line,
                f"{counted_report(owed).totals.total_tokens} tokens were counted after the last message; they are a "
                "call without an entry",
            )
            self._book(entries, owed, since)
        return entries.take()

    def _book(self, entries: Entries, used: Counts, since: CodexRow) -> str:
        """Add the call for tokens whose entry is not complete yet; return the id of the row where that begins."""
        begins = entries.id_of(since)
        if any(used):
            entries.draft.calls.append(self._tokens.unsettled(used, since, unsettled_id(begins)))
        return begins

    # rows

    def _read(self, entries: Entries, row: CodexRow) -> None:
        if row.is_repeating:
            if row.kind == "user_message":
                self._turns.append(self._before_user)
            self._notes.left_out["repeats a message for the screen"] += 1
        elif row.is_count:
            self._tokens.read(row, self._step)
        elif row.type == "response_item" and is_spoken(row.payload):
            self._speak(entries, row)
        elif self._step is not None and not row.closes:
            self._step.pending.append(row)
            if len(self._step.pending) > _MAX_PENDING:
                self._close(entries)
        else:
            self._close(entries)
            self._place(entries, row)

    def _speak(self, entries: Entries, row: CodexRow) -> None:
        step = self._step
        if step is not None:
            is_over = bool(step.counts) or any(is_output(waiting.payload) for waiting in step.pending)
            if is_over or (row.kind == "message" and step.has_message):
                self._close(entries)
                step = None
        if step is None:
            since = self._tokens.owed_since
            step = self._step = Step(used=self._tokens.take_owed(), owed_since=since)
        step.items.append(row)
        step.has_message = step.has_message or row.kind == "message"
        for call, name in call_ids([row.payload]):
            self._tools.put(call, name)

    def _close(self, entries: Entries) -> None:
        """Store the words of the model, which are complete now, and the rows that were waiting behind them."""
        step, self._step = self._step, None
        if step is None:
            return
        rows = step.rows
        self._notes.merged += len(step.items) - 1
        message = step.message(self._tokens.provider, self._tokens.model)
        used = counted_report(step.used) if any(step.used) else None
        content = entries.message(rows[-1], message, [row.payload for row in step.items], used)
        paid = self._tokens.paid(step, content)
        entries.emit_step(rows, step.items[-1], paid, begins=step.begins)
        for row in step.pending:
            self._place(entries, row)

    # other rows

    def _place(self, entries: Entries, row: CodexRow) -> None:
        """Store a row that the model did not say."""
        payload, kind = row.payload, row.kind
        if row.type == "response_item" and is_output(payload):
            entries.emit(row, self._output(entries, row))
        elif row.type == "response_item" and kind == "message" and isinstance(payload.get("role"), str):
            message = said_message(payload)
            if payload["role"] == "user":
                self._before_user = entries.tail
                if entries.session.cwd is None and (folder := _FOLDER.match(message_text(message).lstrip())):
                    cwd = (kit.one_text(folder[1], 4096) or "").strip()
                    entries.session = replace(entries.session, cwd=cwd or None)
            entries.emit(row, entries.message(row, message, [payload]))
        elif row.type == "response_item" and kind == "agent_message":
            # The words of another agent, among them the task of a sub-agent.
            entries.emit(row, entries.message(row, {**said_message(payload), "role": "user"}, [payload]))
        elif row.type == "compacted":
            self._compacted(entries, row)
        else:
            self._aside(entries, row)

    def _output(self, entries: Entries, row: CodexRow) -> NewEntry:
        """Return the answer of a tool."""
        call = row.payload.get("call_id")
        tool = self._tools.get(call) if isinstance(call, str) else None
        thread = started_thread(row.payload) if tool == SPAWN else None
        if thread is not None and entries.tail is not None:
            entries.draft.began[thread] = entries.tail
        return entries.message(row, output_message(row.payload, tool), [row.payload])

    def _aside(self, entries: Entries, row: CodexRow) -> None:
        if row.type == "turn_context":
            self._tokens.model = kit.one_text(row.payload.get("model"), 160) or self._tokens.model
        if not row.is_known:
            self._notes.unknown_kinds[row.name] += 1
        entries.emit(row, entries.custom(row, entry_kind(PREFIX, row.name), row.payload))
        if row.type == "event_msg" and row.kind == "thread_rolled_back":
            self._roll_back(entries, row)

    def _roll_back(self, entries: Entries, row: CodexRow) -> None:
        """Go back before the last turns: what follows is another branch."""
        count = row.payload.get("num_turns")
        if type(count) is not int or count < 1:
            return
        if count > len(self._turns):
            self._notes.repair(row.line, f"goes back {count} turns, of which only {len(self._turns)} are known")
            count = len(self._turns)
        tail = entries.tail
        for _ in range(count):
            tail = self._turns.pop()
        entries.go_back(tail)

    def _compacted(self, entries: Entries, row: CodexRow) -> None:
        """The replacement is the new context: its items are stored once more, as those that the compaction keeps."""
        replacement = row.payload.get("replacement_history")
        text = row.payload.get("message")
        summary = text if isinstance(text, str) else ""
        items = [item for _, item in objects_in(replacement)]
        if isinstance(replacement, list) and len(items) < len(replacement):
            self._notes.repair(
                row.line, f"{len(replacement) - len(items)} items of its replacement are not objects; left out"
            )
        first, ranges, number = None, [], 0
        for item in items:
            words = message_text({"content": content_parts(item.get("content"))})
            is_users = item.get("type") == "message" and item.get("role") == "user"
            is_summary = bool(text) and is_users and summary in words
            if is_summary:
                # It says the same as the summary, which the compaction shows.
                summary, text = words, None
                if first is None:
                    continue
            entry_id = derived_id(entries.id_of(row), len(items) if is_summary else number)
            number += not is_summary
            copied = response_item(row, item)
            entries.emit(copied, self._copied(entries, copied), entry_id=entry_id)
            first = first or entry_id
            if is_summary:
                ranges.append(Range(entry_id, entry_id, None).as_json)
        fields: JsonObject = {
            "summary": summary or COMPACTED,
            "firstKeptEntryId": first or "",
            "tokensBefore": self._tokens.context_tokens,
        }
        if ranges:
            # The summary stands where Codex sends it: behind the items that were kept.
            fields |= {BASE: None, RANGES: [*ranges]}
        if rest := without(row.payload, "message", "replacement_history"):
            fields["details"] = rest
        custom = partial(entries.custom, row, COMPACTION)
        since = self._tokens.owed_since
        if since is not None:
            entries.settle(entries.id_of(row), entries.id_of(since))
        entries.emit(row, self._tokens.compaction(row, custom, fields))

    def _copied(self, entries: Entries, row: CodexRow) -> NewEntry:
        payload = row.payload
        if is_output(payload):
            return self._output(entries, row)
        if is_spoken(payload) or (row.kind in KEPT_BY_COMPACTION and isinstance(payload.get("encrypted_content"), str)):
            parts: JsonObject = {"role": "assistant", "content": [*spoken_parts(payload)], "api": "openai-responses"}
            fields = message_fields(payload) if row.kind == "message" else {}
            return entries.message(row, {**parts, "provider": self._tokens.provider, **fields}, [payload])
        if row.kind == "message" and isinstance(payload.get("role"), str):
            return entries.message(row, said_message(payload), [payload])
        return entries.custom(row, entry_kind(PREFIX, f"response_item.{row.kind}"), row.payload)


read_codex = CodexReader


# The files beside a Codex rollout: those that it goes on from, and the names of threads.
#
# Since Codex 0.171 a fork, and the rest of a session after a revert, is a file with new rows only. Its first row names
# the rollout that it goes on from (a file is called by the thread it began, or by a segment of one), and where in that.

_LONGEST_NAME, _LONGEST_HEADER = 1_000, 100_000
_MOST_FILES = 1_000
_ROOTS = ("sessions", "archived_sessions")
_ROLLOUT = re.compile(r"rollout-.*\.jsonl(\.zst)?")
_THREAD = re.compile(r"rollout-[\dT-]{19}-([0-9a-f-]{36})[_.]")


class _Piece(Frozen):
    """A file, and how many bytes of it come before the rows of another one; None for all of it."""

    path: Path
    first: bytes
    thread: str
    base: JsonObject | None
    end: int | None = None


Lines: TypeAlias = Callable[[BinaryIO], Iterator[tuple[int, bytes]]]
"""Given a file: its lines with their numbers, none larger than the limits allow."""


def before_codex(path: Path, reader: CodexReader, lines: Lines) -> Iterator[None]:
    """Give a reader its thread's name, and the rows of files that come before a rollout's; yields after each of them.

    Raises `UnreadableFile` for a rollout that goes on with its own thread in a file that is not there: the rows of that
    are then already stored, or lost. O(bytes before) and O(files of sessions).
    """
    own = _piece(path, lines)
    if own is not None:
        reader.thread_name = _names(path).get(own.thread)
    if own is None or own.base is None:
        return
    pieces, missing = _pieces_before(own, lines)
    last = pieces[-1] if pieces else own
    if missing is not None and last.thread == own.thread and segment_of(last.path.name, own.thread):
        raise UnreadableFile(
            f"{path.name} goes on with its thread where {missing} was reverted, and no file of that is beside it; "
            f"nothing was imported. Put rollout-...{missing}.jsonl into a folder of sessions with it"
        )
    reader.goes_on(own.first)
    notes = [] if missing is None else [f"goes on from {missing}, and no file of that is beside it"]
    for piece in reversed(pieces):
        is_own, segment = piece.thread == own.thread, segment_of(piece.path.name, piece.thread)
        place = segment if is_own else f" {piece.thread} {segment}"
        with unpacked(open(piece.path, "rb")) as file:
            for number, line in lines(file):
                if piece.end is not None and file.tell() > piece.end:
                    break
                reader.feed_before(number, line, is_own=is_own, place=place)
                yield
            if piece.end is not None and file.tell() < piece.end:
                notes.append(f"goes on behind byte {piece.end} of {piece.path.name}, which has {file.tell()}")
                reader.leave_gap()
    reader.begin_own(notes)


def _pieces_before(own: _Piece, lines: Lines) -> tuple[list[_Piece], str | None]:
    """Return the files before a rollout, the nearest first, and the one that is not there, if so."""
    pieces: list[_Piece] = []
    seen, base = {own.path}, own.base
    while base is not None:
        name = base.get("thread_id")
        path = _find(own.path, name) if kit.is_name(name) else None
        piece = None if path is None or path in seen or len(pieces) > _MOST_FILES else _piece(path, lines)
        if piece is None:
            return pieces, name if kit.is_name(name) else "a rollout that has no name"
        seen.add(piece.path)
        pieces.append(replace(piece, end=_end(piece.path, base, lines)))
        base = piece.base
    return pieces, None


def _end(path: Path, base: JsonObject, lines: Lines) -> int | None:
    """Return where the rows end that come before: at a byte, or else before the row with a number."""
    end, ordinal = base.get("end_byte_offset"), base.get("end_ordinal_exclusive")
    if type(end) is int or type(ordinal) is not int:
        return end if type(end) is int else None
    before = 0
    with unpacked(open(path, "rb")) as file:
        for _, line in lines(file):
            number = re.search(rb'"ordinal": ?(\d+)', line[:200])
            if number is not None and int(number[1]) >= ordinal:
                return before
            before = file.tell()
    return None


def _piece(path: Path, lines: Lines) -> _Piece | None:
    file = open_if_plain(path)
    if file is None:
        return None
    with unpacked(file) as rows:
        first = next(lines(rows), (1, b""))[1]
    row = read_codex_row(1, first, kit.Notes(), is_first=True)
    if row is None or row.type != "session_meta":
        return None
    base = row.payload.get("history_base")
    return _Piece(path, first, str(row.payload.get("id")), base if isinstance(base, dict) else None)


def _find(path: Path, name: str) -> Path | None:
    """Return the file of a rollout, in the folder of another or where Codex keeps such files."""
    endings = tuple(f"{sign}{name}{suffix}" for sign in "-_" for suffix in (".jsonl", PACKED))
    home = _home(path)
    roots = [path.parent, *((home / root for root in _ROOTS) if home is not None else ())]
    for root in roots:
        for where, folders, files in os.walk(root):
            folders.sort()
            for file in sorted(files):
                # A link to nothing is passed over: the file may have been archived.
                if file.endswith(endings) and _ROLLOUT.fullmatch(file) and os.path.exists(os.path.join(where, file)):
                    return Path(where, file)
    return None


def _home(path: Path) -> Path | None:
    """Return the folder in which Codex keeps sessions and more, if a file is in one."""
    return next((folder.parent for folder in path.absolute().parents if folder.name in _ROOTS), None)


def beside_codex(path: Path) -> JsonValue:
    """Return the name that people gave to the thread of a rollout; of one that is called otherwise, all names."""
    names, thread = _names(path), _THREAD.match(path.name)
    return names.get(thread[1]) if thread else dict(names)


def _names(path: Path) -> Mapping[str, str]:
    """Return the names that people gave to threads, by their ids."""
    home = _home(path)
    try:
        if home is None:
            return {}
        state = (home / "session_index.jsonl").stat()
        return _index(home / "session_index.jsonl", state.st_mtime_ns, state.st_size)
    except OSError:
        return {}


@lru_cache(maxsize=8)
def _index(path: Path, changed_ns: int, size: int) -> Mapping[str, str]:
    """Return the names of an index, to which a line is added at each change, as it was at a time."""
    names, file = {}, open_if_plain(path)
    with file or nullcontext(()) as lines:
        for number, line in enumerate(lines, 2):
            row = kit.decode_row(number, line, kit.Notes())
            thread, name = (row or {}).get("id"), kit.one_text((row or {}).get("thread_name"), _LONGEST_NAME)
            if kit.is_name(thread) and name:
                names[thread] = name
    return names
