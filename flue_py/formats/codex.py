"""Codex rollouts: from the rows of a file to a session ready to be stored (rows I03, I05).

A rollout is a line of items without ids and parents. An entry's id is derived from the session's id, the number of
its line and the line itself. What the model says between two results of tools (reasoning, a message, calls) is one
entry, whose id comes from its last row; the count of tokens that follows it is its usage. The events that repeat
messages for the screen are left out.

Codex reports the tokens of the whole session, and each count about twice: what a count has grown by since the one
before is what the message used. A rollout that begins in another way than when it was imported is another file.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from flue_py.core.entries import COMPACTION, MESSAGE, NewEntry, message_text
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.core.sessions import NewSession
from flue_py.core.usage import read_usage
from flue_py.errors import InvalidEntry, UnreadableFile
from flue_py.formats.codex_content import (
    CALLS,
    HOSTED,
    OUTPUTS,
    TOKEN_KINDS,
    call_ids,
    content_parts,
    output_message,
    spoken_parts,
    total_usage,
    usage_json,
)
from flue_py.formats.encoding import encode_decoded, message_entry, with_call
from flue_py.formats.parsed import TaskOf
from flue_py.formats.report import ParseReport
from flue_py.formats.rows import Notes, decode_row, is_name
from flue_py.formats.streaming import Recent, SessionPart, derived_id, first_rows, one_text, read_time

FORMAT = "codex"
PREFIX = "codex."
"""Before the type of a row that is no part of the conversation."""
UNREADABLE = "unreadable_"
COMPACTED = "The conversation before this point was compacted; what was kept of it follows."
"""The summary of a compaction that has none of its own."""

_MAX_PENDING = 10_000
_MAX_TURNS = 1_000
_NOTHING = (0,) * len(TOKEN_KINDS)
_ITEMS = frozenset({"message", "reasoning", *CALLS, *OUTPUTS, *HOSTED})
_REPEATING = frozenset({"user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content"})
_CLOSING_EVENTS = frozenset({
    "task_started", "turn_started", "task_complete", "turn_complete", "turn_aborted", "thread_rolled_back",
    "context_compacted",
})  # fmt: skip
_CLOSING_TYPES = frozenset({"session_meta", "turn_context", "compacted"})
_KNOWN_TYPES = frozenset({*_CLOSING_TYPES, "response_item", "event_msg"})
_KNOWN_ITEMS = frozenset({"ghost_snapshot", "compaction", "compaction_summary", "context_compaction"})


def looks_like_codex(first_bytes: bytes, path: str) -> bool:
    """Return whether a file begins like a Codex rollout, of today or from before rows had envelopes."""
    has_header = False
    for raw in first_rows(first_bytes):
        row = decode_row(2, raw, Notes())
        if row is None:
            continue
        if has_header:
            return row.get("type") in _ITEMS or "record_type" in row
        if row.get("type") in _KNOWN_TYPES and isinstance(row.get("payload"), dict):
            return True
        has_header = "type" not in row and "id" in row and "timestamp" in row
        if not has_header or "instructions" in row or "git" in row:
            return has_header
    # A first line longer than what was read: the instructions are in it.
    return first_bytes.startswith(b'{"timestamp":"') and b'"type":"session_meta"' in first_bytes[:200]


@dataclass(slots=True)
class _Row:
    """One row out of its envelope: its type, and what it holds."""

    line: int
    raw: bytes
    type: str
    payload: JsonObject
    timestamp: JsonValue

    @property
    def kind(self) -> str:
        """What the payload says it is."""
        kind = self.payload.get("type")
        return kind if isinstance(kind, str) else ""


@dataclass(slots=True)
class _Step:
    """What the model says between two results of tools, while more may come, and the rows behind it."""

    items: list[_Row] = field(default_factory=list)
    counts: list[_Row] = field(default_factory=list)
    pending: list[_Row] = field(default_factory=list)
    used: tuple[int, ...] = _NOTHING
    has_message: bool = False

    @property
    def rows(self) -> list[_Row]:
        """The rows that make the entry."""
        return sorted([*self.items, *self.counts], key=lambda row: row.line)

    @property
    def is_answer(self) -> bool:
        """Whether it reads like a whole answer: a message, and no call."""
        return self.items[-1].kind == "message" and not any(row.kind in CALLS for row in self.items)


class CodexReader:
    """Reads a rollout row by row (see `RowReader`). ``name`` is that of the file."""

    needs_scan = False

    def __init__(self, name: str = "the file") -> None:
        self._name = name
        self._notes = Notes()
        self._session: NewSession | None = None
        self._parent: TaskOf | None = None
        self._id = ""
        self._version = ""
        self._provider = "openai"
        self._model: str | None = None
        self._step: _Step | None = None
        self._tail: str | None = None
        self._last_time: int | None = None
        self._tools: Recent[str] = Recent(10_000)
        self._counted: tuple[int, ...] = _NOTHING
        self._owed: tuple[int, ...] = _NOTHING
        self._context_tokens = 0
        self._before_user: str | None = None
        self._turns: deque[str | None] = deque(maxlen=_MAX_TURNS)
        self._entries: list[NewEntry] = []
        self._lines: list[int] = []
        self._leaves: list[str] = []
        self._earlier: dict[str, tuple[str, ...]] = {}
        self._unfinished: frozenset[str] = frozenset()
        self._is_new = True
        self.ready = 0

    # -- the interface ------------------------------------------------------------------------------------------

    def scan(self, number: int, raw: bytes) -> None:
        """Nothing has to be known in advance."""

    def feed(self, number: int, raw: bytes) -> None:
        """Read a line. Raises `UnreadableFile` where the first row names no session."""
        fields = decode_row(number, raw, self._notes)
        if fields is None:
            return
        payload = fields.get("payload")
        kind = fields.get("type")
        if isinstance(payload, dict) and isinstance(kind, str):
            row = _Row(number, raw, kind, payload, fields.get("timestamp"))
        elif isinstance(kind, str) and kind in _ITEMS:
            row = _Row(number, raw, "response_item", fields, fields.get("timestamp"))
        elif self._session is None and is_name(fields.get("id")):
            row = _Row(number, raw, "session_meta", fields, fields.get("timestamp"))
        else:
            name = kind if isinstance(kind, str) else "state" if "record_type" in fields else "row"
            row = _Row(number, raw, name, fields, fields.get("timestamp"))
        if self._session is None:
            self._begin(row)
        self._read(row)

    def _begin(self, row: _Row) -> None:
        """Take the session from its first row."""
        session_id = row.payload.get("id")
        if row.type != "session_meta" or not is_name(session_id):
            raise UnreadableFile(
                f"{self._name} is no Codex rollout: its first readable row is no session_meta with an id; "
                "nothing was imported"
            )
        payload = row.payload
        self._id, self._version = session_id, one_text(payload.get("cli_version"), 200) or ""
        self._provider = one_text(payload.get("model_provider"), 160) or "openai"
        header: JsonObject = {
            name: value if not isinstance(value, str) else value[:1000]
            for name, value in payload.items()
            if name not in ("instructions", "base_instructions", "dynamic_tools")
        }
        imported: JsonObject = {"format": FORMAT, "version": self._version, "file": one_text(self._name) or ""}
        self._parent = parent = _task_of(payload)
        names: JsonObject = {} if parent is None else {"parentSession": parent.session_id, "taskId": parent.task_id}
        try:
            text = encode_json({"imported": {**imported, "header": header}, **names}, "header")[0]
        except InvalidEntry:
            text = ""
        if not text or len(text) > 100_000:
            text = encode_json({"imported": imported, **names}, "header")[0]
        created = read_time(payload.get("timestamp"))
        self._session = NewSession(
            id=session_id,
            cwd=one_text(payload.get("cwd")),
            metadata_text=text,
            created_us=created if created is not None else read_time(row.timestamp),
        )

    def take(self) -> list[SessionPart]:
        """Return what is ready."""
        self.ready = 0
        if self._session is None or not (self._entries or self._is_new or self._leaves):
            return []
        part = SessionPart(
            FORMAT,
            self._version,
            self._session,
            tuple(self._entries),
            tuple(self._leaves),
            tuple(self._lines),
            dict(self._earlier),
            parent=self._parent,
            unfinished=self._unfinished,
        )
        self._entries, self._leaves, self._lines, self._earlier = [], [], [], {}
        self._is_new = False
        return [part]

    def finish(self, *, take_all: bool) -> list[SessionPart]:
        """Return what is left; what the model may not have finished is held back, unless it reads like an answer."""
        if self._session is None:
            raise UnreadableFile(f"{self._name} is no Codex rollout: it has no readable row; nothing was imported")
        step = self._step
        if step is not None and take_all:
            self._close()
        elif step is not None:
            held = step.pending
            if step.is_answer:
                step.pending = []
                self._close()
                self._unfinished = frozenset(self._leaves[-1:])
            else:
                held = [*step.rows, *held]
            for row in held:
                self._notes.hold_back(row.line)
        if any(self._owed):
            line = self._notes.rows
            self._notes.repair(line, f"{self._owed[4]} tokens were counted after the last message; they are no one's")
        return self.take()

    def report(self) -> ParseReport:
        """Return what came of the rows."""
        return self._notes.report()

    # -- rows ---------------------------------------------------------------------------------------------------

    def _read(self, row: _Row) -> None:
        if row.type == "event_msg" and row.kind in _REPEATING:
            if row.kind == "user_message":
                self._turns.append(self._before_user)
            self._notes.left_out["repeats a message for the screen"] += 1
        elif row.type == "event_msg" and row.kind == "token_count":
            self._count(row)
        elif row.type == "response_item" and self._is_spoken(row):
            self._speak(row)
        elif self._step is not None and not self._closes(row):
            self._step.pending.append(row)
            if len(self._step.pending) > _MAX_PENDING:
                self._close()
        else:
            self._close()
            self._place(row)

    @staticmethod
    def _is_spoken(row: _Row) -> bool:
        if row.kind == "message":
            return row.payload.get("role") == "assistant"
        return row.kind == "reasoning" or row.kind in CALLS or row.kind in HOSTED

    @staticmethod
    def _closes(row: _Row) -> bool:
        """Return whether what the model said before a row is complete."""
        if row.type == "event_msg":
            return row.kind in _CLOSING_EVENTS
        return row.type in _CLOSING_TYPES or (row.type == "response_item" and row.kind == "message")

    def _speak(self, row: _Row) -> None:
        step = self._step
        if step is not None:
            is_over = bool(step.counts) or any(waiting.kind in OUTPUTS for waiting in step.pending)
            if is_over or (row.kind == "message" and step.has_message):
                self._close()
                step = None
        if step is None:
            step = self._step = _Step(used=self._owed)
            self._owed = _NOTHING
        step.items.append(row)
        step.has_message = step.has_message or row.kind == "message"
        for call, name in call_ids([row.payload]):
            self._tools.put(call, name)

    def _count(self, row: _Row) -> None:
        """Count what the total has grown by: for the message before, or else for the next one."""
        total = total_usage(row.payload)
        last = total_usage(row.payload, "last_token_usage")
        if last is not None:
            self._context_tokens = last[4]
        if total is None:
            self._notes.left_out["reports no tokens"] += 1
            return
        grown = tuple(now - before for now, before in zip(total, self._counted, strict=True))
        if min(grown) < 0:
            if grown[4] >= 0:
                grown = tuple(max(0, count) for count in grown)
            else:
                grown = last or total
                self._notes.repair(row.line, "the count of tokens began anew; what it reports of itself was counted")
        self._counted = total
        if not any(grown):
            self._notes.left_out["repeats a count of tokens"] += 1
            return
        self._notes.merged += 1
        if self._step is None:
            self._owed = _sum(self._owed, grown)
        else:
            self._step.used = _sum(self._step.used, grown)
            self._step.counts.append(row)

    def _close(self) -> None:
        """Store what the model said, which is complete now, and what was waiting behind it."""
        step, self._step = self._step, None
        if step is None:
            return
        rows = step.rows
        last = rows[-1]
        self._notes.merged += len(step.items) - 1
        entry = self._said_by_model(step, last)
        ids = [self._id_of(row) for row in rows]
        self._emit(step.items[-1], entry, entry_id=ids[-1], line=last.line)
        if len(ids) > 1:
            self._earlier[ids[-1]] = tuple(ids[:-1])
        for row in step.pending:
            self._place(row)

    def _said_by_model(self, step: _Step, last: _Row) -> NewEntry:
        items = [row.payload for row in step.items]
        content: list[JsonValue] = [part for item in items for part in spoken_parts(item)]
        message: JsonObject = {"role": "assistant", "content": content, "api": "openai-responses"}
        message["provider"] = self._provider
        if self._model is not None:
            message["model"] = self._model
        message["stopReason"] = "toolUse" if any(row.kind in CALLS for row in step.items) else "stop"
        for item in items:
            if isinstance(item.get("phase"), str):
                message["phase"] = item["phase"]
        if any(step.used):
            message["usage"] = usage_json(step.used)
        entry = self._message(last, message, items)
        if entry.kind != MESSAGE or not any(entry.usage):
            return entry
        return self._with_call(entry, usage_json(step.used), last.line)

    def _with_call(self, entry: NewEntry, reported: JsonObject, line: int, purpose: str = "turn") -> NewEntry:
        """The same call in the file of a fork is paid once: what it said and the total tell it, times do not."""
        told_by = entry.payload.encode() + repr(self._counted).encode()
        return with_call(
            entry,
            reported,
            self._notes,
            line,
            provider=self._provider,
            model=self._model or "",
            call_id=f"codex:{blake2b(told_by, digest_size=12).hexdigest()}",
            purpose=purpose,
        )

    # -- other rows ---------------------------------------------------------------------------------------------

    def _place(self, row: _Row) -> None:
        """Store a row that the model did not say."""
        payload, kind = row.payload, row.kind
        if row.type == "response_item" and kind in OUTPUTS:
            call = payload.get("call_id")
            tool = self._tools.get(call) if isinstance(call, str) else None
            self._emit(row, self._message(row, output_message(payload, tool), [payload]))
        elif row.type == "response_item" and kind == "message" and isinstance(payload.get("role"), str):
            if payload["role"] == "user":
                self._before_user = self._tail
            message: JsonObject = {"role": payload["role"], "content": content_parts(payload.get("content"))}
            self._emit(row, self._message(row, message, [payload]))
        elif row.type == "compacted":
            self._compacted(row)
        else:
            self._aside(row)

    def _aside(self, row: _Row) -> None:
        if row.type == "turn_context":
            self._model = one_text(row.payload.get("model"), 160) or self._model
        is_known = row.type in _KNOWN_TYPES and (row.type != "response_item" or row.kind in _KNOWN_ITEMS)
        name = f"{row.type}.{row.kind}" if row.kind and row.type in ("response_item", "event_msg") else row.type
        if not is_known:
            self._notes.unknown_kinds[name] += 1
        self._emit(row, self._custom(row, (PREFIX + re.sub(r"[^A-Za-z0-9_.:-]", "_", name))[:64], row.payload))
        if row.type == "event_msg" and row.kind == "thread_rolled_back":
            self._roll_back(row)

    def _roll_back(self, row: _Row) -> None:
        """Go back before the last turns: what follows is another branch."""
        count = row.payload.get("num_turns")
        if type(count) is not int or count < 1:
            return
        if count > len(self._turns):
            self._notes.repair(row.line, f"goes back {count} turns, of which only {len(self._turns)} are known")
            count = len(self._turns)
        for _ in range(count):
            self._tail = self._turns.pop()
        if self._tail is not None:
            self._leaves.append(self._tail)

    def _compacted(self, row: _Row) -> None:
        """The replacement is the new context: its items are stored once more, as what the compaction keeps."""
        given = row.payload.get("replacement_history")
        text = row.payload.get("message")
        summary = text if isinstance(text, str) else ""
        items = [item for item in given if isinstance(item, dict)] if isinstance(given, list) else []
        if isinstance(given, list) and len(items) < len(given):
            self._notes.repair(row.line, f"{len(given) - len(items)} items of its replacement are no objects; left out")
        kept: list[JsonObject] = []
        for item in items:
            said = message_text({"content": content_parts(item.get("content"))})
            if text and item.get("type") == "message" and item.get("role") == "user" and summary in said:
                # It says the same as the summary, which the compaction shows.
                summary, text = said, None
            else:
                kept.append(item)
        first = None
        for number, item in enumerate(kept):
            entry_id = derived_id(self._id_of(row), number)
            copied = _Row(row.line, row.raw, "response_item", item, row.timestamp)
            self._emit(copied, self._copied(copied), entry_id=entry_id)
            first = first or entry_id
        fields: JsonObject = {
            "summary": summary or COMPACTED,
            "firstKeptEntryId": first or "",
            "tokensBefore": self._context_tokens,
        }
        rest = {name: value for name, value in row.payload.items() if name not in ("message", "replacement_history")}
        if rest:
            fields["details"] = rest
        if not any(self._owed):
            self._emit(row, self._custom(row, COMPACTION, fields))
            return
        # Counted since the last message: it is what making the summary took.
        usage, self._owed = usage_json(self._owed), _NOTHING
        entry = self._custom(row, COMPACTION, {**fields, "usage": usage})
        try:
            totals = read_usage(usage)
        except InvalidEntry as error:
            self._notes.repair(row.line, f"{error}; the compaction is kept, its usage is not counted")
        else:
            if entry.kind == COMPACTION:
                entry = self._with_call(replace(entry, usage=totals), usage, row.line, "compaction")
        self._emit(row, entry)

    def _copied(self, row: _Row) -> NewEntry:
        if row.kind in OUTPUTS:
            call = row.payload.get("call_id")
            tool = self._tools.get(call) if isinstance(call, str) else None
            return self._message(row, output_message(row.payload, tool), [row.payload])
        if self._is_spoken(row):
            parts: JsonObject = {"role": "assistant", "content": [*spoken_parts(row.payload)]}
            return self._message(row, {**parts, "api": "openai-responses", "provider": self._provider}, [row.payload])
        role = row.payload.get("role")
        if row.kind == "message" and isinstance(role, str):
            message: JsonObject = {"role": role, "content": content_parts(row.payload.get("content"))}
            return self._message(row, message, [row.payload])
        return self._custom(
            row, (f"{PREFIX}response_item." + re.sub(r"[^A-Za-z0-9_.:-]", "_", row.kind))[:64], row.payload
        )

    # -- entries ------------------------------------------------------------------------------------------------

    def _id_of(self, row: _Row) -> str:
        return derived_id(self._id, row.line, row.raw.strip().decode(errors="replace"))

    def _emit(self, row: _Row, entry: NewEntry, *, entry_id: str | None = None, line: int | None = None) -> None:
        name = entry_id or self._id_of(row)
        moment = read_time(row.timestamp)
        if moment is None:
            moment = self._last_time
            if moment is None and self._session is not None:
                moment = self._session.created_us
        else:
            self._last_time = moment
        self._notes.surrogates_replaced += entry.surrogates_replaced
        self._entries.append(
            NewEntry(
                entry.kind,
                entry.payload,
                role=entry.role,
                usage=entry.usage,
                calls=entry.calls,
                id=name,
                parent_id=self._tail,
                created_us=moment,
                extra=f'{{"line":{line or row.line}}}',
                surrogates_replaced=entry.surrogates_replaced,
                preview=entry.preview,
            )
        )
        self._lines.append(line or row.line)
        if entry.kind in (MESSAGE, COMPACTION):
            self._leaves.append(name)
        self._tail = name
        self.ready += 1

    def _message(self, row: _Row, message: JsonObject, items: Sequence[JsonObject]) -> NewEntry:
        try:
            return message_entry(message)
        except InvalidEntry as error:
            return self._unreadable(row, f"{UNREADABLE}message", error, {"items": list(items)})

    def _custom(self, row: _Row, kind: str, body: JsonValue) -> NewEntry:
        try:
            text, replaced = encode_decoded(body, kind)
        except InvalidEntry as error:
            return self._unreadable(row, f"{UNREADABLE}entry", error, None)
        return NewEntry(kind, text, surrogates_replaced=replaced)

    def _unreadable(self, row: _Row, kind: str, error: InvalidEntry, body: JsonValue) -> NewEntry:
        self._notes.repair(row.line, f"{error}; kept as {kind}, outside the context")
        try:
            if body is None:
                raise error
            text, replaced = encode_json(body, kind)
        except InvalidEntry:
            text, replaced = encode_json({"line": row.raw.decode(errors="replace").strip()}, kind)
        return NewEntry(kind, text, surrogates_replaced=replaced)


def _task_of(meta: JsonObject) -> TaskOf | None:
    """Return whose task the thread of a sub-agent is, and its name there; None for any other thread."""
    at: JsonValue = meta.get("source")
    for name in ("subagent", "thread_spawn"):
        at = at.get(name) if isinstance(at, dict) else None
    parent = at.get("parent_thread_id") if isinstance(at, dict) else None
    if not is_name(parent) or parent == meta.get("id"):
        return None
    return TaskOf(parent, str(meta.get("id"))[:200])


def _sum(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    return tuple(mine + theirs for mine, theirs in zip(one, other, strict=True))
