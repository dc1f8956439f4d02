"""The rows of a Codex rollout: how a file of them begins, and what is in their envelopes."""

from __future__ import annotations

from dataclasses import dataclass

import pydantic_core

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.formats.kit.parsed import TaskOf
from flue_py.formats.kit.rows import Notes, decode_row, is_name
from flue_py.formats.kit.streaming import first_rows
from flue_py.formats.kit.values import entry_kind
from flue_py.wire.codex_items import CALLS, HOSTED, OUTPUTS, is_spoken

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
_KNOWN_TYPES = frozenset({*_CLOSING_TYPES, "response_item", "event_msg", "world_state", USAGE_RECORD})
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
class CodexRow:
    """One row out of its envelope: its type, what it holds, and what that says it is."""

    line: int
    raw: bytes
    type: str
    payload: JsonObject
    timestamp: JsonValue
    kind: str

    @property
    def text(self) -> str:
        """The row as it stands in the file."""
        return self.raw.decode(errors="replace").strip()

    @property
    def is_spoken(self) -> bool:
        """Whether it is a part of what the model says."""
        return is_spoken(self.payload)

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
        """Whether what the model said before it is complete."""
        if self.type == "event_msg":
            return self.kind in _CLOSING_EVENTS
        return self.type in _CLOSING_TYPES or (self.type == "response_item" and self.kind == "message")

    @property
    def is_known(self) -> bool:
        """Whether rows of its type are known to have no part in the conversation."""
        return self.type in _KNOWN_TYPES and (self.type != "response_item" or self.kind in _KNOWN_ITEMS)

    @property
    def entry_kind(self) -> str:
        """The kind of entry that it becomes outside the conversation."""
        return entry_kind(PREFIX, self.name)

    @property
    def name(self) -> str:
        """What it is: its type, and what it holds."""
        return f"{self.type}.{self.kind}" if self.kind and self.type in ("response_item", "event_msg") else self.type


def response_item(row: CodexRow, item: JsonObject) -> CodexRow:
    """Return an item that a row holds, as a row of its own."""
    return CodexRow(row.line, row.raw, "response_item", item, row.timestamp, _kind(item))


def _kind(payload: JsonObject) -> str:
    kind = payload.get("type")
    return kind if isinstance(kind, str) else ""


def segment_of(name: str, thread: str) -> str:
    """Return the segment of its thread that a file has, by its name; "" for the file that the thread began with."""
    return name.removesuffix(".jsonl").rpartition(f"-{thread}_")[2] if f"-{thread}_" in name else ""


def task_of(meta: JsonObject) -> TaskOf | None:
    """Return whose task the thread of a sub-agent is, and its name there; None for any other thread."""
    at: JsonValue = meta.get("source")
    for name in ("subagent", "thread_spawn"):
        at = at.get(name) if isinstance(at, dict) else None
    parent = at.get("parent_thread_id") if isinstance(at, dict) else None
    if not is_name(parent) or parent == meta.get("id"):
        return None
    return TaskOf(parent, str(meta.get("id"))[:200])


def started_thread(tool: str | None, output: JsonObject) -> str | None:
    """Return the thread of a sub-agent that a tool's output says was started; None for any other output."""
    text = output.get("output")
    if tool != SPAWN or not isinstance(text, str):
        return None
    try:
        said: JsonValue = pydantic_core.from_json(text)
    except ValueError:
        return None
    thread = said.get("agent_id") if isinstance(said, dict) else None
    return thread[:200] if is_name(thread) else None


def read_codex_row(number: int, raw: bytes, notes: Notes, *, is_first: bool) -> CodexRow | None:
    """Return the row on a line; None for a blank line, and if it is not an object, which is noted. O(size)."""
    fields = decode_row(number, raw, notes)
    if fields is None:
        return None
    payload = fields.get("payload")
    kind = fields.get("type")
    if isinstance(payload, dict) and isinstance(kind, str):
        return CodexRow(number, raw, kind, payload, fields.get("timestamp"), _kind(payload))
    if isinstance(kind, str) and kind in _ITEMS:
        name = "response_item"
    elif is_first and kind is None and is_name(fields.get("id")):
        name = "session_meta"
    else:
        name = kind if isinstance(kind, str) else "state" if "record_type" in fields else "row"
    return CodexRow(number, raw, name, fields, fields.get("timestamp"), _kind(fields))
