"""Codex rollouts: from the rows of a file to a session ready to be stored.

A rollout is a line of items without ids and parents. An entry's id is derived from the session's id, the number of
its line and the line itself. What the model says between two results of tools (reasoning, a message, calls) is one
entry, whose id comes from its last row; the count of tokens that follows it is its usage. The events that repeat
messages for the screen are left out.

Codex reports the tokens of the whole session, and each count about twice: what a count has grown by since the one
before is what the message used. A rollout that begins in another way than when it was imported is another file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial

from flue_py.core.ids import derived_id
from flue_py.core.jsontext import JsonObject, encode_json
from flue_py.core.kinds import COMPACTION
from flue_py.core.layout import BASE, RANGES, Range
from flue_py.core.sessions import NewSession
from flue_py.core.spoken import message_text
from flue_py.errors import InvalidEntry, UnreadableFile
from flue_py.formats.codex.entries import Entries
from flue_py.formats.codex.rows import (
    FORMAT,
    PREFIX,
    CodexRow,
    looks_like_codex,
    read_codex_row,
    response_item,
    segment_of,
    started_thread,
    task_of,
)
from flue_py.formats.codex.steps import Step, TokenCounts
from flue_py.formats.kit.encoding import Content
from flue_py.formats.kit.parsed import TaskOf
from flue_py.formats.kit.report import ParseReport
from flue_py.formats.kit.rows import Notes, is_name, unusable_id
from flue_py.formats.kit.streaming import Recent, SessionPart
from flue_py.formats.kit.values import entry_kind, one_text, read_moment
from flue_py.wire.codex_items import (
    KEPT_BY_COMPACTION,
    Counts,
    call_ids,
    content_parts,
    counted_tokens,
    is_output,
    message_fields,
    output_message,
    said_message,
    spoken_parts,
)

__all__ = ["COMPACTED", "CodexReader", "looks_like_codex", "read_codex"]

COMPACTED = "The conversation before this point was compacted; what was kept of it follows."
"""The summary of a compaction that has none of its own."""

CONTINUES = ("forked_from_id", "history_base")
"""What the first row of a rollout has if its thread goes on where another one was."""

_MAX_PENDING = 10_000
_MAX_TURNS = 1_000


class CodexReader:
    """Reads a rollout row by row (see `Reader`). ``name`` is that of the file."""

    needs_scan = False
    needs_whole = False

    def __init__(self, name: str = "the file") -> None:
        self._name = name
        self.thread_name: str | None = None
        """What people call the thread, where that is known before its first row is read."""

        self._segment = ""
        self._notes = Notes()
        self._entries: Entries | None = None
        self._provider = "openai"
        self._model: str | None = None
        self._step: Step | None = None
        self._tokens = TokenCounts(self._notes)
        self._tools: Recent[str] = Recent(10_000)
        self._before_user: str | None = None
        self._turns: deque[str | None] = deque(maxlen=_MAX_TURNS)

    # -- the interface ------------------------------------------------------------------------------------------

    @property
    def ready(self) -> int:
        """How many entries can be taken."""
        return 0 if self._entries is None else self._entries.ready

    def scan(self, number: int, raw: bytes) -> None:
        """Nothing has to be known in advance."""

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
        row = read_codex_row(1, first, Notes(), is_first=True)
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
        """Take note that rows are missing before the next one: what they counted is not what that one used."""
        if self._entries is not None:
            self._close(self._entries)
            self._tokens.forget_total()

    def begin_own(self, notes: Sequence[str]) -> None:
        """Go on with the rows of the file itself; ``notes`` say what is not there of what comes before."""
        if self._entries is not None:
            self._begin_own(self._entries)
            self._entries.place = self._segment
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
        if row.type == "session_meta" and isinstance(session_id, str) and session_id and not is_name(session_id):
            raise UnreadableFile(f"{self._name}: its session_meta {unusable_id(session_id)}; nothing was imported")
        if row.type != "session_meta" or not is_name(session_id):
            raise UnreadableFile(
                f"{self._name} is not a Codex rollout: its first readable row is not a session_meta with an id; "
                "nothing was imported"
            )
        version = one_text(payload.get("cli_version"), 200) or ""
        self._provider = one_text(payload.get("model_provider"), 160) or "openai"
        imported: JsonObject = {"format": FORMAT, "version": version, "file": one_text(self._name) or ""}
        created = read_moment(payload.get("timestamp"))
        parent = task_of(payload)
        goes_on = parent is not None or any(isinstance(payload.get(name), (str, dict)) for name in CONTINUES)
        self._segment = segment = segment_of(self._name, session_id)
        way = f"{session_id} {segment}" if isinstance(payload.get("history_base"), dict) else ""
        self._tokens = TokenCounts(self._notes, goes_on=goes_on, way=way)
        session = NewSession(
            id=session_id,
            cwd=one_text(payload.get("cwd")),
            metadata_text=_metadata(imported, payload, parent),
            kind="root" if parent is None else "task",
            created_us=created if created is not None else read_moment(row.timestamp),
        )
        return Entries(self._notes, session, version, parent, segment, self.thread_name)

    def take(self) -> list[SessionPart]:
        """Return what is ready."""
        return [] if self._entries is None else self._entries.take()

    def finish(self, *, take_all: bool) -> list[SessionPart]:
        """Return the rest; an answer that may not be complete is held back, unless it reads like a whole one."""
        entries = self._entries
        if entries is None:
            raise UnreadableFile(f"{self._name} is not a Codex rollout: it has no readable row; nothing was imported")
        step = self._step
        if step is not None and take_all:
            self._close(entries)
        elif step is not None:
            held = step.pending
            if step.is_answer:
                step.pending = []
                self._close(entries)
                entries.leave_unfinished()
            else:
                self._book(entries, step.used, step.begins)
                # Where an import took the message as it was, the call is booked with that.
                for row in step.rows:
                    entries.settle(entries.id_of(row), step.begins)
                held = [*step.rows, *held]
            for row in held:
                self._notes.hold_back(row.line)
        since = self._tokens.owed_since
        if since is not None:
            owed = self._tokens.take_owed()
            self._notes.repair(
                since.line,
                f"{counted_tokens(owed)} tokens were counted after the last message; they are a call without an entry",
            )
            self._book(entries, owed, since)
        return entries.take()

    def _book(self, entries: Entries, used: Counts, since: CodexRow) -> None:
        """Add the call for tokens whose entry is not complete yet."""
        if any(used):
            name = entries.unsettled_id(since)
            entries.draft.calls.append(self._tokens.unsettled(used, since, name, self._provider, self._model))

    def report(self) -> ParseReport:
        """Return what came of the rows."""
        return self._notes.report()

    # -- rows ---------------------------------------------------------------------------------------------------

    def _read(self, entries: Entries, row: CodexRow) -> None:
        if row.is_repeating:
            if row.kind == "user_message":
                self._turns.append(self._before_user)
            self._notes.left_out["repeats a message for the screen"] += 1
        elif row.is_count:
            self._tokens.read(row, self._step)
        elif row.type == "response_item" and row.is_spoken:
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
        """Store what the model said, which is complete now, and what was waiting behind it."""
        step, self._step = self._step, None
        if step is None:
            return
        rows = step.rows
        self._notes.merged += len(step.items) - 1
        message = step.message(self._provider, self._model)
        content = entries.message(rows[-1], message, [row.payload for row in step.items])
        paid = self._tokens.paid(step, content, self._provider, self._model)
        entries.emit_step(rows, step.items[-1], paid, begins=step.begins)
        for row in step.pending:
            self._place(entries, row)

    # -- other rows ---------------------------------------------------------------------------------------------

    def _place(self, entries: Entries, row: CodexRow) -> None:
        """Store a row that the model did not say."""
        payload, kind = row.payload, row.kind
        if row.type == "response_item" and is_output(payload):
            entries.emit(row, self._output(entries, row))
        elif row.type == "response_item" and kind == "message" and isinstance(payload.get("role"), str):
            if payload["role"] == "user":
                self._before_user = entries.tail
            entries.emit(row, entries.message(row, said_message(payload), [payload]))
        elif row.type == "compacted":
            self._compacted(entries, row)
        else:
            self._aside(entries, row)

    def _output(self, entries: Entries, row: CodexRow) -> Content:
        """Return what a tool answered."""
        call = row.payload.get("call_id")
        tool = self._tools.get(call) if isinstance(call, str) else None
        thread = started_thread(tool, row.payload)
        if thread is not None and entries.tail is not None:
            entries.draft.began[thread] = entries.tail
        return entries.message(row, output_message(row.payload, tool), [row.payload])

    def _aside(self, entries: Entries, row: CodexRow) -> None:
        if row.type == "turn_context":
            self._model = one_text(row.payload.get("model"), 160) or self._model
        if not row.is_known:
            self._notes.unknown_kinds[row.name] += 1
        entries.emit(row, entries.custom(row, row.entry_kind, row.payload))
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
        """The replacement is the new context: its items are stored once more, as what the compaction keeps."""
        given = row.payload.get("replacement_history")
        text = row.payload.get("message")
        summary = text if isinstance(text, str) else ""
        items = [item for item in given if isinstance(item, dict)] if isinstance(given, list) else []
        if isinstance(given, list) and len(items) < len(given):
            self._notes.repair(
                row.line, f"{len(given) - len(items)} items of its replacement are not objects; left out"
            )
        first, ranges, kept = None, [], 0
        for item in items:
            said = message_text({"content": content_parts(item.get("content"))})
            is_summary = bool(text) and item.get("type") == "message" and item.get("role") == "user" and summary in said
            if is_summary:
                # It says the same as the summary, which the compaction shows.
                summary, text = said, None
                if first is None:
                    continue
            entry_id = derived_id(entries.id_of(row), len(items) if is_summary else kept)
            kept += not is_summary
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
            # The summary stands where Codex sends it: behind what was kept.
            fields |= {BASE: None, RANGES: [*ranges]}
        rest = {name: value for name, value in row.payload.items() if name not in ("message", "replacement_history")}
        if rest:
            fields["details"] = rest
        custom = partial(entries.custom, row, COMPACTION)
        since = self._tokens.owed_since
        if since is not None:
            entries.settle(entries.id_of(row), since)
        entries.emit(row, self._tokens.compaction(row, custom, fields, self._provider, self._model))

    def _copied(self, entries: Entries, row: CodexRow) -> Content:
        payload = row.payload
        if is_output(payload):
            return self._output(entries, row)
        if row.is_spoken or (row.kind in KEPT_BY_COMPACTION and isinstance(payload.get("encrypted_content"), str)):
            parts: JsonObject = {"role": "assistant", "content": [*spoken_parts(payload)], "api": "openai-responses"}
            fields = message_fields(payload) if row.kind == "message" else {}
            return entries.message(row, {**parts, "provider": self._provider, **fields}, [payload])
        if row.kind == "message" and isinstance(payload.get("role"), str):
            return entries.message(row, said_message(payload), [payload])
        return entries.custom(row, entry_kind(PREFIX, f"response_item.{row.kind}"), row.payload)


read_codex = CodexReader


def _metadata(imported: JsonObject, payload: JsonObject, parent: TaskOf | None) -> str:
    """Return the metadata of a session, with what its first row says of it, where that is not too much."""
    names: JsonObject = {} if parent is None else {"parentSession": parent.session_id, "taskId": parent.task_id}
    header: JsonObject = {
        name: value if not isinstance(value, str) else value[:1000]
        for name, value in payload.items()
        if name not in ("instructions", "base_instructions", "dynamic_tools")
    }
    try:
        text = encode_json({"imported": {**imported, "header": header}, **names}, "header")[0]
    except InvalidEntry:
        text = ""
    if not text or len(text) > 100_000:
        text = encode_json({"imported": imported, **names}, "header")[0]
    return text
