"""Claude Code transcripts: from the rows of a file to sessions ready to be stored (rows I03, I04).

One message of the model lies in several rows, a row for each of its parts, and each repeats the usage so far. They
become one entry with the usage of the last row that reports any. Its id is the uuid of its **last** row: a message
that is still growing thereby changes its id, and never what is stored under one. All other entries have the uuid of
their row; rows without one get an id derived from the session, the line and its content.

What a message is followed by in the file hangs in one line below it: tool results, however many calls ran side by
side, then progress and other rows. Only what the user says, and the next message of the model, can begin a branch.

A message is complete when a row comes that cannot be part of it. Until then it and what belongs to it are held back;
at the end of a file a message that reads like a whole answer is handed over all the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from flue_py.core.entries import COMPACTION, MESSAGE, NewEntry, message_text
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.core.sessions import NewSession
from flue_py.core.usage import UsageTotals, read_usage
from flue_py.errors import InvalidEntry, UnreadableFile, shown
from flue_py.formats.claude_code_content import (
    assistant_message,
    is_answer,
    parts_of,
    tool_calls,
    tool_result_message,
    usage_of,
)
from flue_py.formats.encoding import encode_decoded, message_entry, with_call
from flue_py.formats.parsed import TaskOf
from flue_py.formats.report import ParseReport
from flue_py.formats.rows import Notes, decode_row, has_type, is_name
from flue_py.formats.streaming import (
    IdTable,
    Recent,
    SessionPart,
    TitleChange,
    derived_id,
    first_rows,
    one_text,
    read_time,
)

FORMAT = "claude-code"
PREFIX = "claude_code."
"""Before the type of a row that is no part of the conversation."""
UNREADABLE = "unreadable_"

REMEMBERED = 50_000
"""How many rows back a row may name a row that was merged into another one."""
_MAX_EARLY = 10_000
_MAX_PENDING = 10_000
_MAX_PENDING_BYTES = 16 * 2**20

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_BEGINNING = re.compile(rb"""\s*\{"parentUuid": ?(null|"[^"]{0,500}"),""")
_CONSTANT = ("sessionId", "cwd", "version", "gitBranch", "userType", "entrypoint")
_PLACED = frozenset({"type", "uuid", "parentUuid", "logicalParentUuid", "timestamp", "isSidechain", "message"})
# Written between two turns only: what they follow is complete.
_BETWEEN_TURNS = frozenset({"system", "summary", "custom-title", "last-prompt"})
_KNOWN = _BETWEEN_TURNS | {
    "permission-mode", "pr-link", "mode",
    "user", "assistant", "progress", "attachment", "file-history-snapshot", "queue-operation", "ai-title",
    "agent-name", "agent-color", "agent-setting", "worktree-state", "tag", "saved_hook_context", "content-replacement",
    "attribution-snapshot", "marble-origami-commit", "speculation-accept",
}  # fmt: skip
_TITLES = {"summary": ("summary", 0), "ai-title": ("aiTitle", 1), "custom-title": ("customTitle", 2)}
_ENTRY, _ENTRY_OF_TASK = 1, 2


def looks_like_claude_code(first_bytes: bytes, path: str) -> bool:
    """Return whether a file begins like a Claude Code transcript."""
    notes = Notes()
    for raw in first_rows(first_bytes):
        row = decode_row(2, raw, notes)
        if row is None or not isinstance(row.get("type"), str):
            continue
        if "parentUuid" in row and ("sessionId" in row or "isSidechain" in row):
            return True
        if row["type"] == "file-history-snapshot" and "messageId" in row:
            return True
        if row["type"] == "summary" and "leafUuid" in row:
            return True
        if row["type"] in _KNOWN and "sessionId" in row and "uuid" not in row and "payload" not in row:
            return True
    # A first line longer than what was read: a prompt with an image, say.
    start = first_bytes.removeprefix(b"\xef\xbb\xbf")
    return b"\n" not in start and _BEGINNING.match(start) is not None and b'"isSidechain":' in start[:2000]


@dataclass(slots=True)
class _Row:
    """One row, with what every row may have."""

    line: int
    raw: bytes
    type: str
    fields: JsonObject
    uuid: str | None
    parent: str | None
    lost_parent: bool = False


@dataclass(slots=True)
class _Node:
    """A step of the conversation: its first entry, and the last one below which what follows hangs."""

    chain: _Chain
    first: str | None = None
    tail: str | None = None
    after: _Node | None = field(default=None, init=False, repr=False)
    """The latest compaction when this step began (of a compaction: itself)."""

    def __post_init__(self) -> None:
        self.after = self.chain.compacted


@dataclass(slots=True)
class _Group:
    """The rows of one message that may still grow, and the rows after them that belong to it."""

    node: _Node
    key: str
    parent: str | None
    lost_parent: bool
    rows: list[_Row]
    usage: JsonObject | None = None
    pending: list[_Row] = field(default_factory=list)
    pending_bytes: int = 0


@dataclass(slots=True)
class _Chain:
    """A session while its rows come: the main one of the file, or a task session."""

    id: str
    header: JsonObject
    agent: str | None = None
    parent: TaskOf | None = None
    created_us: int | None = None
    open: _Group | None = None
    tail: _Node | None = None
    last_time: int | None = None
    boundary: JsonObject | None = None
    compacted: _Node | None = None
    title_rank: int = -1
    entries: list[NewEntry] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    leaves: list[str] = field(default_factory=list)
    earlier: dict[str, tuple[str, ...]] = field(default_factory=dict)
    titles: list[TitleChange] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)
    unfinished: frozenset[str] = frozenset()
    is_new: bool = True


class ClaudeCodeReader:
    """Reads a transcript row by row (see `RowReader`). ``name`` is that of the file."""

    needs_scan = False

    def __init__(self, name: str = "the file") -> None:
        self._name = name
        self._notes = Notes()
        self._chains: dict[str, _Chain] = {}
        self._main: _Chain | None = None
        self._session_id: str | None = None
        stem = name.rpartition("/")[2].rpartition(".")[0]
        if _UUID.fullmatch(stem):
            self._session_id = stem
        self._early: list[_Row] | None = [] if self._session_id is None else None
        self._ids = IdTable()
        self._nodes: Recent[_Node] = Recent(REMEMBERED)
        self._chain_of: Recent[_Chain] = Recent(REMEMBERED)
        self._tools: Recent[tuple[str, _Node]] = Recent(REMEMBERED)
        self._counted: Recent[UsageTotals] = Recent(REMEMBERED)
        self._branch_titles: Recent[tuple[_Chain, TitleChange]] = Recent(1000)
        self.ready = 0

    # -- the interface ------------------------------------------------------------------------------------------

    def scan(self, number: int, raw: bytes) -> None:
        """Nothing has to be known in advance."""

    def feed(self, number: int, raw: bytes) -> None:
        """Read a line."""
        fields = decode_row(number, raw, self._notes)
        if fields is None or not has_type(number, fields, self._notes):
            return
        uuid, parent = fields.get("uuid"), fields.get("parentUuid")
        row = _Row(
            number,
            raw,
            str(fields["type"]),
            fields,
            uuid if is_name(uuid) else None,
            parent if isinstance(parent, str) and parent else None,
        )
        if self._early is not None:
            self._early.append(row)
            session_id = fields.get("sessionId")
            if is_name(session_id):
                self._begin(session_id)
            elif len(self._early) >= _MAX_EARLY:
                raise UnreadableFile(f"{self._name}: none of its first {_MAX_EARLY} rows names a session")
            return
        self._read(row)

    def _begin(self, session_id: str) -> None:
        self._session_id = session_id
        early, self._early = self._early, None
        for row in early or ():
            self._read(row)

    def take(self) -> list[SessionPart]:
        """Return what is ready."""
        self.ready = 0
        return [self._part(chain) for chain in self._chains.values() if chain.entries or chain.is_new or chain.titles]

    def finish(self, *, take_all: bool) -> list[SessionPart]:
        """Return what is left; a message that may still grow is held back, unless it reads like a whole answer."""
        if not self._chains:
            raise UnreadableFile(
                f"{self._name} is no Claude Code transcript: no row of it belongs to a session; nothing was imported"
            )
        for chain in self._chains.values():
            group = chain.open
            if group is None:
                continue
            if take_all:
                self._close(chain)
                continue
            held = group.pending
            if is_answer([_message(row) for row in group.rows]):
                group.pending = []
                self._close(chain)
                chain.unfinished = frozenset(chain.leaves[-1:])
            else:
                held = [*group.rows, *held]
            for row in held:
                self._notes.hold_back(row.line)
        return self.take()

    def report(self) -> ParseReport:
        """Return what came of the rows."""
        return self._notes.report()

    # -- whose row it is ----------------------------------------------------------------------------------------

    def _read(self, row: _Row) -> None:
        chain = self._chain(row)
        if row.uuid is not None:
            known = self._ids.get(row.uuid)
            if known is not None:
                self._repeated(chain, row)
                return
            self._ids.put(row.uuid)
        group = chain.open
        if row.type == "assistant" and isinstance(row.fields.get("message"), dict):
            key = _message_key(row)
            if group is not None and group.key == key:
                self._extend(group, row)
                return
            self._close(chain)
            self._open(chain, row, key)
            return
        if group is not None:
            if row.type not in _BETWEEN_TURNS and not _is_said(row):
                group.pending.append(row)
                group.pending_bytes += len(row.raw)
                if len(group.pending) > _MAX_PENDING or group.pending_bytes > _MAX_PENDING_BYTES:
                    self._close(chain)
                return
            self._close(chain)
        self._place(chain, row)

    def _chain(self, row: _Row) -> _Chain:
        """Return the session a row belongs to: the main one, or the task session of its agent or its root."""
        if row.fields.get("isSidechain") is not True:
            if self._main is None:
                self._main = self._new_chain(str(self._session_id), None)
            chain = self._main
        else:
            agent = row.fields.get("agentId")
            found = None if is_name(agent) or row.parent is None else self._chain_of.get(row.parent)
            if found is None:
                name = agent if is_name(agent) else row.uuid or derived_id(str(self._session_id), row.line)
                session_id = task_session_id(str(self._session_id), name)
                found = self._chains.get(session_id) or self._new_chain(session_id, name)
            chain = found
            if row.uuid is not None and not is_name(agent):
                self._chain_of.put(row.uuid, chain)
        if chain.created_us is None:
            chain.created_us = read_time(row.fields.get("timestamp"))
        if not chain.header and "sessionId" in row.fields:
            # From one row, so that it does not matter how much of the file there is yet.
            chain.header.update((name, row.fields[name]) for name in _CONSTANT if name in row.fields)
        return chain

    def _new_chain(self, session_id: str, agent: str | None) -> _Chain:
        chain = _Chain(session_id, {}, agent)
        if agent is not None:
            chain.parent = TaskOf(str(self._session_id), agent[:200])
        self._chains[session_id] = chain
        return chain

    def _part(self, chain: _Chain) -> SessionPart:
        version = one_text(chain.header.get("version")) or ""
        imported: JsonObject = {"format": FORMAT, "version": version, "file": one_text(self._name) or ""}
        imported["header"] = _shortened(chain.header)
        metadata: JsonObject = {"imported": imported}
        if chain.parent is not None:
            metadata |= {"parentSession": chain.parent.session_id, "taskId": chain.parent.task_id}
        part = SessionPart(
            FORMAT,
            version,
            NewSession(
                id=chain.id,
                title=chain.titles[-1].title if chain.titles else None,
                cwd=one_text(chain.header.get("cwd")),
                metadata_text=encode_json(metadata, "header")[0],
                created_us=chain.created_us,
            ),
            # Rows at the beginning that bear no time have that of the first one which does.
            tuple(
                replace(entry, created_us=chain.created_us) if entry.created_us is None else entry
                for entry in chain.entries
            ),
            tuple(chain.leaves),
            tuple(chain.lines),
            dict(chain.earlier),
            titles=tuple(chain.titles),
            parent=chain.parent,
            lost=chain.lost,
            unfinished=chain.unfinished,
            may_overlap=True,
        )
        chain.entries, chain.leaves, chain.lines, chain.titles = [], [], [], []
        chain.earlier, chain.lost = {}, {}
        chain.is_new = False
        return part

    # -- where it hangs -----------------------------------------------------------------------------------------

    def _node(self, chain: _Chain, row: _Row, name: str | None) -> _Node | None:
        """Return the step that a row names as its parent; None for a root, which is noted where the name was lost."""
        if name is None:
            return None
        node = self._nodes.get(name)
        if node is None:
            known = self._ids.get(name)
            if known == _ENTRY and chain is self._main:
                node = _Node(chain, name, name)
                self._nodes.put(name, node)
            else:
                why = "which is missing" if known is None else "which was merged or left out too far back"
                self._notes.repair(row.line, f"names the parent {shown(name)}, {why}; it became a root")
                row.lost_parent = True
                return None
        elif node.chain is not chain:
            row.lost_parent = True
            return None
        return node

    def _repeated(self, chain: _Chain, row: _Row) -> None:
        """A row that was there before. What a compaction has kept is written again below its summary."""
        parent = None if row.parent is None else self._nodes.get(row.parent)
        if row.uuid is not None and parent is not None and parent is chain.compacted:
            self._nodes.put(row.uuid, parent)
            self._notes.left_out["written again after a compaction"] += 1
            return
        self._notes.skip(row.line, f"repeats the uuid {row.uuid!r} of an earlier row; the first one counts")

    def _place(self, chain: _Chain, row: _Row) -> None:
        """Store a row that is no message of the model."""
        message = row.fields.get("message")
        if row.type == "user" and isinstance(message, dict):
            content = message.get("content")
            if row.fields.get("isCompactSummary") is True:
                self._summary(chain, row, message)
            elif isinstance(content, list) and any(_is_result(part) for part in content):
                self._results(chain, row, content)
            elif row.fields.get("isVisibleInTranscriptOnly") is True:
                self._aside(chain, row)
            else:
                self._said(chain, row, message)
        elif row.type == "system" and row.fields.get("subtype") == "compact_boundary":
            self._boundary(chain, row)
        else:
            self._aside(chain, row)

    # -- messages of the model ----------------------------------------------------------------------------------

    def _open(self, chain: _Chain, row: _Row, key: str) -> None:
        parent = self._node(chain, row, row.parent)
        chain.open = _Group(_Node(chain), key, None if parent is None else parent.tail, row.lost_parent, [])
        self._extend(chain.open, row)

    def _extend(self, group: _Group, row: _Row) -> None:
        group.rows.append(row)
        if row.uuid is not None:
            self._nodes.put(row.uuid, group.node)
        message = _message(row)
        usage = usage_of(message.get("usage"))
        if usage is not None:
            dollars = row.fields.get("costUSD")
            if isinstance(dollars, (int, float)) and not isinstance(dollars, bool):
                usage["cost"] = {"total": dollars}
            group.usage = usage
        for call, name in tool_calls(message):
            self._tools.put(call, (name, group.node))

    def _close(self, chain: _Chain) -> None:
        """Store the message that is complete now, and what was waiting behind it."""
        group = chain.open
        if group is None:
            return
        chain.open = None
        last = group.rows[-1]
        last.lost_parent = group.lost_parent
        entry, extra = self._answer(group)
        uuids = [row.uuid for row in group.rows if row.uuid is not None]
        if len(uuids) > 1:
            extra["rows"] = list(uuids)
        self._notes.merged += len(group.rows) - 1
        # What a message names as its parent is what its first row does; the others name each other.
        last.parent = group.rows[0].parent
        entry_id = self._emit(chain, group.node, last, entry, extra, parent=group.parent)
        if uuids[:-1]:
            chain.earlier[entry_id] = tuple(uuids[:-1])
        for row in group.pending:
            self._place(chain, row)

    def _answer(self, group: _Group) -> tuple[NewEntry, JsonObject]:
        last = group.rows[-1]
        messages = [_message(row) for row in group.rows]
        before = self._counted.get(group.key)
        usage = self._own_usage(group)
        message = assistant_message(messages, usage)
        extra = self._rest(group.node.chain, last)
        try:
            entry = message_entry(message)
        except InvalidEntry as error:
            given = message.pop("usage", None)
            try:
                entry = message_entry(message)
            except InvalidEntry as worse:
                return self._unreadable(last, worse, {"messages": list(messages)}), {}
            extra["usage"] = given
            self._notes.repair(last.line, f"{error}; the message is kept, its usage is not counted")
        self._counted.put(group.key, entry.usage.plus(self._counted.get(group.key) or UsageTotals()))
        is_paid = message.get("model") != "<synthetic>"
        model = one_text(message.get("model"), 160) or ""
        if usage is not None and is_paid and any(entry.usage):
            call_id = group.key[:200] if before is None else f"{group.key[:200]}:{group.rows[0].uuid or last.line}"
            entry = with_call(entry, usage, self._notes, last.line, provider="anthropic", model=model, call_id=call_id)
        return entry, extra

    def _own_usage(self, group: _Group) -> JsonObject | None:
        """Return what the message used, less what was counted already for rows of it that came long before."""
        before, usage = self._counted.get(group.key), group.usage
        if before is None:
            return usage
        self._notes.repair(
            group.rows[0].line,
            f"goes on with the message {shown(group.key)} after other rows; it is an entry of its own, and what was "
            "counted before is not counted again",
        )
        if usage is None:
            return None
        try:
            own = read_usage(usage).minus(before)
        except InvalidEntry:
            return usage
        names = ("input", "output", "cacheRead", "cacheWrite", "totalTokens")
        rest: JsonObject = {name: max(0, count) for name, count in zip(names, own[:5], strict=True)}
        for_an_hour = usage.get("cacheWrite1h")
        if isinstance(for_an_hour, int):
            rest["cacheWrite1h"] = min(for_an_hour, max(0, own.cache_write))
        return {**usage, **rest}

    # -- other rows ---------------------------------------------------------------------------------------------

    def _said(self, chain: _Chain, row: _Row, message: JsonObject) -> None:
        """What the user says begins a step of its own; what the program adds as the user belongs to the one before."""
        parent = self._node(chain, row, row.parent)
        entry = self._user_message(row, {**message, "role": "user", "content": parts_of(message.get("content"))})
        is_added = row.fields.get("isMeta") is True and parent is not None
        node = parent if is_added and parent is not None else _Node(chain)
        self._emit(chain, node, row, entry, self._rest(chain, row), parent=None if parent is None else parent.tail)

    def _user_message(self, row: _Row, message: JsonObject) -> NewEntry:
        try:
            return message_entry(message)
        except InvalidEntry as error:
            return self._unreadable(row, error, {"message": row.fields.get("message")})

    def _results(self, chain: _Chain, row: _Row, content: list[JsonValue]) -> None:
        """The results of tools hang below the message that called them, whichever of its rows they name."""
        node = self._node_of_calls(chain, row, content) or self._node(chain, row, row.parent) or _Node(chain)
        results = [part for part in content if isinstance(part, dict) and _is_result(part)]
        others = [part for part in content if not _is_result(part)]
        details = row.fields.get("toolUseResult")
        made = []
        for part in results:
            call = part.get("tool_use_id")
            tool = self._tools.get(call) if isinstance(call, str) else None
            alone = details if len(results) == 1 else None
            made.append(self._user_message(row, tool_result_message(part, tool[0] or None if tool else None, alone)))
        if others:
            made.append(self._user_message(row, {"role": "user", "content": parts_of(others)}))
        rest = self._rest(chain, row)
        if len(results) == 1:
            rest.pop("toolUseResult", None)
        for number, entry in enumerate(made, start=1):
            is_last = number == len(made)
            name = None if is_last else f"{row.uuid or derived_id(chain.id, row.line)}:{number}"
            self._emit(chain, node, row, entry, rest if is_last else {}, parent=node.tail, name=name)

    def _node_of_calls(self, chain: _Chain, row: _Row, content: list[JsonValue]) -> _Node | None:
        """Return the step of the message that made the calls; None where a compaction lies between, which stays."""
        own = None if row.parent is None else self._nodes.get(row.parent)
        for part in content:
            call = part.get("tool_use_id") if isinstance(part, dict) else None
            tool = self._tools.get(call) if isinstance(call, str) else None
            if tool is not None and tool[1].chain is chain and tool[1].tail is not None:
                is_apart = own is not None and own.chain is chain and own.after is not tool[1].after
                return None if is_apart else tool[1]
        return None

    def _boundary(self, chain: _Chain, row: _Row) -> None:
        """A compaction begins here: what is above goes on being above, though the row names no parent."""
        logical = row.fields.get("logicalParentUuid")
        parent = None
        if row.parent is not None:
            parent = self._node(chain, row, row.parent)
        elif isinstance(logical, str) and (parent := self._nodes.get(logical)) is None:
            known = self._ids.get(logical)
            if known == _ENTRY and chain is self._main:
                parent = _Node(chain, logical, logical)
            elif chain.tail is not None:
                self._notes.repair(
                    row.line, f"follows on {shown(logical)}, which is missing; it was put below the row before"
                )
        if parent is None or parent.chain is not chain:
            parent = chain.tail
        body = {**self._rest(chain, row), "logicalParentUuid": logical}
        metadata = row.fields.get("compactMetadata")
        chain.boundary = metadata if isinstance(metadata, dict) else {}
        entry = self._custom(row, f"{PREFIX}compact_boundary", body)
        self._emit(chain, _Node(chain), row, entry, {}, parent=None if parent is None else parent.tail)

    def _summary(self, chain: _Chain, row: _Row, message: JsonObject) -> None:
        """The summary stands for what is above the boundary, but for the rows that were kept."""
        parent = self._node(chain, row, row.parent)
        about, chain.boundary = chain.boundary or {}, None
        head, tail = _kept_rows(about)
        first = self._entry_of(chain, head)
        if first is None and head is not None:
            self._notes.repair(row.line, f"keeps {shown(head)}, which is missing; nothing is kept")
        tokens = about.get("preTokens")
        fields: JsonObject = {
            "summary": message_text(message),
            "firstKeptEntryId": first or "",
            "tokensBefore": tokens if type(tokens) is int and tokens >= 0 else 0,
        }
        if about:
            fields["details"] = about
        entry = self._custom(row, COMPACTION, fields)
        node = _Node(chain)
        self._emit(chain, node, row, entry, self._rest(chain, row), parent=None if parent is None else parent.tail)
        chain.compacted = node.after = node
        if first is not None and isinstance(tail, str):
            self._nodes.put(tail, node)

    def _entry_of(self, chain: _Chain, uuid: JsonValue) -> str | None:
        """Return the entry that a row became, or became part of."""
        if not isinstance(uuid, str):
            return None
        if self._ids.get(uuid) == _ENTRY:
            return uuid
        node = self._nodes.get(uuid)
        return node.first if node is not None and node.chain is chain else None

    def _aside(self, chain: _Chain, row: _Row) -> None:
        """A row that is no part of the conversation hangs in line below what it names, or else the row before."""
        node = chain.tail if row.parent is None else self._node(chain, row, row.parent)
        if row.type not in _KNOWN:
            self._notes.unknown_kinds[row.type] += 1
        subtype = row.fields.get("subtype")
        kind = f"{row.type}.{subtype}" if row.type == "system" and isinstance(subtype, str) else row.type
        body = self._rest(chain, row)
        if "message" in row.fields:
            body["message"] = row.fields["message"]
        node = node or _Node(chain)
        entry_id = self._emit(chain, node, row, self._custom(row, _kind(kind), body), {}, parent=node.tail)
        if row.type in _TITLES:
            self._title(chain, row, entry_id)

    def _title(self, chain: _Chain, row: _Row, entry_id: str) -> None:
        name, rank = _TITLES[row.type]
        title = (one_text(row.fields.get(name), 500) or "").strip()
        if not title:
            return
        change = TitleChange(entry_id, title)
        leaf = row.fields.get("leafUuid")
        if row.type == "summary" and isinstance(leaf, str) and self._ids.get(leaf) is None:
            # The title of a branch that comes later, or of another session.
            self._branch_titles.put(leaf, (chain, change))
        elif rank >= chain.title_rank:
            chain.title_rank = rank
            chain.titles.append(change)

    # -- entries ------------------------------------------------------------------------------------------------

    def _emit(
        self,
        chain: _Chain,
        node: _Node,
        row: _Row,
        entry: NewEntry,
        extra: JsonObject,
        *,
        parent: str | None,
        name: str | None = None,
    ) -> str:
        """Hand an entry over: below ``parent``, under the row's uuid, as the end of its step. Return its id."""
        entry_id = name or row.uuid or derived_id(chain.id, row.line, row.raw.strip().decode(errors="replace"))
        moment = read_time(row.fields.get("timestamp"))
        if moment is None:
            moment = chain.last_time if chain.last_time is not None else chain.created_us
            if row.uuid is not None:
                self._notes.repair(row.line, f"row {row.uuid!r} has no readable timestamp")
        else:
            chain.last_time = moment
        if row.parent != parent and row.uuid is not None:
            extra["parentUuid"] = row.parent
        text, replaced = None, entry.surrogates_replaced
        if extra:
            try:
                text, more = encode_decoded(extra, "extra")
                replaced += more
            except InvalidEntry as error:
                self._notes.repair(row.line, f"{error}; what stands beside the message is left out")
        self._notes.surrogates_replaced += replaced
        chain.entries.append(
            NewEntry(
                entry.kind,
                entry.payload,
                role=entry.role,
                usage=entry.usage,
                calls=entry.calls,
                id=entry_id,
                parent_id=parent,
                created_us=moment,
                extra=text,
                surrogates_replaced=replaced,
                preview=entry.preview,
            )
        )
        chain.lines.append(row.line)
        if row.lost_parent and parent is None and row.parent is not None:
            chain.lost[entry_id] = row.parent
        if entry.kind in (MESSAGE, COMPACTION):
            chain.leaves.append(entry_id)
        if node.first is None:
            node.first = entry_id
        node.tail = entry_id
        chain.tail = node
        self._ids.put(entry_id, _ENTRY if chain is self._main else _ENTRY_OF_TASK)
        if row.uuid is not None:
            self._nodes.put(row.uuid, node)
            named = self._branch_titles.get(row.uuid)
            if named is not None and named[0].title_rank <= 0:
                named[0].title_rank = 0
                named[0].titles.append(named[1])
        self.ready += 1
        return entry_id

    def _rest(self, chain: _Chain, row: _Row) -> JsonObject:
        """Return the fields of a row that have no other place, but for those that are the same all over the file."""
        header = chain.header
        return {
            name: value
            for name, value in row.fields.items()
            if name not in _PLACED and not (name in _CONSTANT and header.get(name) == value)
        }

    def _custom(self, row: _Row, kind: str, body: JsonValue) -> NewEntry:
        try:
            text, replaced = encode_decoded(body, kind)
        except InvalidEntry as error:
            return self._unreadable(row, error, {"line": row.raw.decode(errors="replace").strip()})
        return NewEntry(kind, text, surrogates_replaced=replaced)

    def _unreadable(self, row: _Row, error: InvalidEntry, body: JsonObject) -> NewEntry:
        kind = f"{UNREADABLE}message" if row.type in ("user", "assistant") else f"{UNREADABLE}entry"
        self._notes.repair(row.line, f"{error}; kept as {kind}, outside the context")
        try:
            text, replaced = encode_json({"type": row.type, **body}, kind)
        except InvalidEntry:
            text, replaced = encode_json({"type": row.type, "line": row.raw.decode(errors="replace").strip()}, kind)
        return NewEntry(kind, text, surrogates_replaced=replaced)


def _message(row: _Row) -> JsonObject:
    message = row.fields.get("message")
    return message if isinstance(message, dict) else {}


def _message_key(row: _Row) -> str:
    """Return what the rows of one message have in common."""
    for name in (_message(row).get("id"), row.fields.get("requestId")):
        if isinstance(name, str) and name:
            return one_text(name) or name
    return f"row {row.uuid or row.line}"


def _kept_rows(about: JsonObject) -> tuple[JsonValue, JsonValue]:
    """Return the first and the last row that a compaction keeps: as the ends of a segment, or in a list of all."""
    segment, listed = about.get("preservedSegment"), about.get("preservedMessages")
    if isinstance(segment, dict):
        return segment.get("headUuid"), segment.get("tailUuid")
    uuids = listed.get("uuids") if isinstance(listed, dict) else None
    return (uuids[0], uuids[-1]) if isinstance(uuids, list) and uuids else (None, None)


def _is_result(part: JsonValue) -> bool:
    return isinstance(part, dict) and part.get("type") == "tool_result"


def _is_said(row: _Row) -> bool:
    """Return whether a row is something that the user said: then the message before it is complete.

    What the program adds as the user (the body of a skill, say) may stand between two calls of one message.
    """
    if row.type != "user" or not isinstance(row.fields.get("message"), dict) or row.fields.get("isMeta") is True:
        return False
    content = _message(row).get("content")
    return not (isinstance(content, list) and any(_is_result(part) for part in content))


def _kind(name: str) -> str:
    text = re.sub(r"[^A-Za-z0-9_.:-]", "_", name)
    return (PREFIX + text)[:64]


def _shortened(header: JsonObject) -> JsonObject:
    return {name: value[:1000] if isinstance(value, str) else None for name, value in header.items()}


def task_session_id(session_id: str, agent: str) -> str:
    """Return the id of the task session of an agent: one that can be found by that of its parent."""
    whole = f"{session_id}:{agent}"
    return whole if len(whole.encode()) <= 500 else f"{session_id[:100]}:{derived_id(whole)}"
