"""The sessions that the rows of one Claude Code transcript belong to: the main one, and those of its sub-agents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from flue_py.core.ids import derived_id
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.core.sessions import NewSession
from flue_py.formats.claude_code.rows import CONSTANT, FORMAT, ClaudeRow
from flue_py.formats.kit.parsed import TaskOf
from flue_py.formats.kit.rows import is_name
from flue_py.formats.kit.streaming import Draft, Recent, SessionPart
from flue_py.formats.kit.values import one_text, read_moment

REMEMBERED = 50_000
"""How many rows back a row may name a row that was merged into another one."""


@dataclass(slots=True)
class Node:
    """A step of the conversation: its first entry, and the last one below which what follows hangs."""

    chain: Chain
    first: str | None = None
    tail: str | None = None
    after: Node | None = field(default=None, init=False, repr=False)
    """The latest compaction when this step began (of a compaction: itself)."""

    def __post_init__(self) -> None:
        self.after = self.chain.compacted


@dataclass(slots=True)
class Group:
    """The rows of one message that may still grow, and the rows after them that belong to it."""

    node: Node
    key: str
    parent: str | None
    lost_parent: bool
    rows: list[ClaudeRow]
    usage: JsonObject | None = None
    pending: list[ClaudeRow] = field(default_factory=list)
    pending_bytes: int = 0


@dataclass(slots=True)
class Chain(Draft):
    """A session while its rows come: the main one of the file, or a task session.

    Of a part, ``began`` has the entries that called agents, by the names of those; ``calls`` are what was paid for a
    message that may not be complete.
    """

    id: str
    header: JsonObject
    parent: TaskOf | None = None
    created_us: int | None = None
    open: Group | None = None
    tail: Node | None = None
    last_time: int | None = None
    boundary: JsonObject | None = None
    compacted: Node | None = None
    title_rank: int = -1
    has_messages: bool = False


class Chains:
    """The sessions of one file, by the rows that belong to them. ``session_id`` is that of the main one."""

    def __init__(self, file_name: str, session_id: str | None) -> None:
        self._file_name = file_name
        self._by_id: dict[str, Chain] = {}
        self._of_row: Recent[Chain] = Recent(REMEMBERED)
        self.session_id = session_id
        self.main: Chain | None = None

    def __iter__(self) -> Iterator[Chain]:
        return iter(self._by_id.values())

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def of(self, row: ClaudeRow) -> Chain:
        """Return the session a row belongs to: the main one, or the task session of its agent or its root."""
        fields = row.fields
        # Rows of the program's own, of requests say, name the agent alone.
        if not (fields["isSidechain"] is True if "isSidechain" in fields else is_name(fields.get("agentId"))):
            chain = self.main
            if chain is None:
                chain = self.main = self._begin(str(self.session_id), None)
        else:
            chain = self._of_task(row)
        if chain.created_us is None:
            chain.created_us = read_moment(fields.get("timestamp"))
        if "cwd" not in chain.header and "sessionId" in fields:
            # Up to the row that names the folder, so that it does not matter how much of the file there is yet.
            chain.header.update((name, fields[name]) for name in CONSTANT if name in fields)
        return chain

    def asker_of(self, row: ClaudeRow) -> Chain | None:
        """Return the session that asked for an answer which a fork repeats; None for an answer of its own.

        The bill is that session's, whether its file comes before, after or never.
        """
        asker = row.fields.get("requestSessionId")
        if not is_name(asker) or asker == self.session_id:
            return None
        chain = self._mentioned(row, asker, None)
        chain.header["sessionId"] = asker
        return chain

    def of_agent(self, row: ClaudeRow, agent: JsonValue) -> Chain:
        """Return the task session of an agent that a row tells of; the row's own session if it names none."""
        if not is_name(agent):
            return self.of(row)
        return self._mentioned(row, task_session_id(str(self.session_id), agent), agent)

    def _mentioned(self, row: ClaudeRow, session_id: str, agent: str | None) -> Chain:
        """Return a session by a row of another one, which says when and where, as long as none of its own did."""
        chain = self._by_id.get(session_id) or self._begin(session_id, agent)
        if not chain.header:
            chain.created_us = read_moment(row.fields.get("timestamp"))
            chain.header.update((name, row.fields[name]) for name in CONSTANT if name in row.fields)
        return chain

    def _of_task(self, row: ClaudeRow) -> Chain:
        agent = row.fields.get("agentId")
        found = None if is_name(agent) or row.parent is None else self._of_row.get(row.parent)
        if found is None:
            name = agent if is_name(agent) else row.uuid or derived_id(str(self.session_id), row.line)
            session_id = task_session_id(str(self.session_id), name)
            found = self._by_id.get(session_id) or self._begin(session_id, name)
        if row.uuid is not None and not is_name(agent):
            self._of_row.put(row.uuid, found)
        return found

    def _begin(self, session_id: str, agent: str | None) -> Chain:
        parent = None if agent is None else TaskOf(str(self.session_id), agent[:200])
        chain = self._by_id[session_id] = Chain(session_id, {}, parent)
        return chain

    def take_part(self, chain: Chain) -> SessionPart:
        """Return what a session has gained since the last part was taken."""
        version = one_text(chain.header.get("version")) or ""
        imported: JsonObject = {"format": FORMAT, "version": version, "file": one_text(self._file_name) or ""}
        imported["header"] = _shortened(chain.header)
        metadata: JsonObject = {"imported": imported}
        if chain.parent is not None:
            metadata |= {"parentSession": chain.parent.session_id, "taskId": chain.parent.task_id}
        names = {title.is_made: title.title for title in chain.titles}
        session = NewSession(
            id=chain.id,
            title=names.get(False),
            auto_title=names.get(True),
            cwd=one_text(chain.header.get("cwd")),
            metadata_text=encode_json(metadata, "header")[0],
            created_us=chain.created_us,
            kind="root" if chain.parent is None else "task",
        )
        # Rows at the beginning that bear no time have that of the first one which does.
        chain.entries = [
            replace(entry, created_us=chain.created_us) if entry.created_us is None else entry
            for entry in chain.entries
        ]
        part = chain.take(FORMAT, version, session, chain.parent, may_overlap=True)
        return replace(part, is_payer=chain.parent is None and chain.id != self.session_id)


def _shortened(header: JsonObject) -> JsonObject:
    return {name: value[:1000] if isinstance(value, str) else None for name, value in header.items()}


def task_session_id(session_id: str, agent: str) -> str:
    """Return the id of the task session of an agent: one that can be found by that of its parent."""
    whole = f"{session_id}:{agent}"
    return whole if len(whole.encode()) <= 500 else f"{session_id[:100]}:{derived_id(whole)}"
