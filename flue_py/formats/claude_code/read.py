"""Claude Code transcripts: from the rows of a file to sessions ready to be stored.

One message of the model lies in several rows, a row for each of its parts, and each repeats the usage so far. They
become one entry with the usage of the last row that reports any. Its id is the uuid of its **last** row: a message
that is still growing thereby changes its id, and never what is stored under one. All other entries have the uuid of
their row; rows without one get an id derived from the session, the line and its content.

What a message is followed by in the file hangs in one line below it: tool results, however many calls ran side by
side, then progress and other rows. Only what the user says, and the next message of the model, can begin a branch.

A message is complete when a row comes that cannot be part of it. Until then it and what belongs to it are held back;
at the end of a file a message that reads like a whole answer is returned all the same.
"""

from __future__ import annotations

import re
from dataclasses import replace

from flue_py.core.ids import derived_id
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import COMPACTION
from flue_py.core.spoken import message_text
from flue_py.errors import UnreadableFile, shown
from flue_py.formats.claude_code.answers import Answers
from flue_py.formats.claude_code.bills import Bills
from flue_py.formats.claude_code.chains import Chain, Chains, Group, Node
from flue_py.formats.claude_code.content import is_answer, parts_of, tool_result_message
from flue_py.formats.claude_code.entries import Entries
from flue_py.formats.claude_code.rows import (
    BETWEEN_TURNS,
    KNOWN,
    PREFIX,
    ClaudeRow,
    is_failure,
    is_result,
    is_said,
    kept_rows,
    kind_of,
    looks_like_claude_code,
    read_claude_row,
    sent_with,
)
from flue_py.formats.kit.report import ParseReport
from flue_py.formats.kit.rows import Notes, is_name
from flue_py.formats.kit.streaming import SessionPart
from flue_py.formats.kit.values import read_moment

__all__ = ["ClaudeCodeReader", "looks_like_claude_code", "read_claude_code"]

_MAX_EARLY = 10_000
_MAX_PENDING = 10_000
_MAX_PENDING_BYTES = 16 * 2**20
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class ClaudeCodeReader:
    """Reads a transcript row by row (see `Reader`). ``name`` is that of the file."""

    needs_scan = False
    needs_whole = False

    def __init__(self, name: str = "the file") -> None:
        self._name = name
        self._notes = Notes()
        stem = name.rpartition("/")[2].rpartition(".")[0]
        self._chains = Chains(name, stem if _UUID.fullmatch(stem) else None)
        # What comes before a row has named the session.
        self._early: list[ClaudeRow] | None = [] if self._chains.session_id is None else None
        self._entries = Entries(self._notes)
        self._answers = Answers(self._notes, self._entries, self._chains)
        self._bills = Bills(self._notes, self._answers, self._chains)

    # -- the interface ------------------------------------------------------------------------------------------

    @property
    def ready(self) -> int:
        """How many entries can be taken."""
        return self._entries.ready

    def scan(self, number: int, raw: bytes) -> None:
        """Nothing has to be known in advance."""

    def feed(self, number: int, raw: bytes) -> None:
        """Read a line."""
        row = read_claude_row(number, raw, self._notes)
        if row is None:
            return
        if self._early is None:
            self._read(row)
            return
        self._early.append(row)
        session_id = row.fields.get("sessionId")
        if is_name(session_id):
            self._chains.session_id = session_id
            early, self._early = self._early, None
            for row in early:
                self._read(row)
        elif len(self._early) >= _MAX_EARLY:
            raise UnreadableFile(f"{self._name}: none of its first {_MAX_EARLY} rows names a session")

    def take(self) -> list[SessionPart]:
        """Return what is ready."""
        self._entries.ready = 0
        return [self._chains.take_part(chain) for chain in self._chains if chain.has_part]

    def finish(self, *, take_all: bool) -> list[SessionPart]:
        """Return what is left; a message that may still grow is held back, unless it reads like a whole answer."""
        if not self._chains:
            raise UnreadableFile(
                f"{self._name} is not a Claude Code transcript: no row of it belongs to a session; nothing was imported"
            )
        for chain in list(self._chains):
            group = chain.open
            if group is None:
                continue
            if take_all:
                self._close(chain)
                continue
            held = group.pending
            if is_answer([row.message for row in group.rows]):
                group.pending = []
                self._close(chain)
                chain.unfinished = frozenset(chain.leaves[-1:])
            else:
                # The tokens are paid, though the message is not there yet.
                content, _ = self._answers.content(group)
                at = read_moment(group.rows[-1].fields.get("timestamp"))
                chain.calls += [replace(call, at_us=at or chain.last_time) for call in content.calls]
                held = [*group.rows, *held]
            for row in held:
                self._notes.hold_back(row.line)
        self._bills.finish()
        return self.take()

    def report(self) -> ParseReport:
        """Return what came of the rows."""
        return self._notes.report()

    # -- rows ---------------------------------------------------------------------------------------------------

    def _read(self, row: ClaudeRow) -> None:
        chain = self._chains.of(row)
        if row.uuid is not None and self._entries.meet(row.uuid):
            self._repeated(chain, row)
            return
        group = chain.open
        if row.type == "assistant" and row.has_message and not is_failure(row):
            key = self._answers.key_of(row)
            if group is None or group.key != key:
                self._close(chain)
                tail = _tail(self._entries.parent_of(chain, row))
                group = chain.open = Group(Node(chain), key, tail, row.lost_parent, [])
            self._answers.extend(group, row)
            return
        if group is not None:
            if row.type not in BETWEEN_TURNS and not is_said(row) and not is_failure(row):
                group.pending.append(row)
                group.pending_bytes += len(row.raw)
                if len(group.pending) > _MAX_PENDING or group.pending_bytes > _MAX_PENDING_BYTES:
                    self._close(chain)
                return
            self._close(chain)
        self._place(chain, row)

    def _repeated(self, chain: Chain, row: ClaudeRow) -> None:
        """A row that was there before. What a compaction has kept is written again below its summary."""
        parent = None if row.parent is None else self._entries.step_of(row.parent)
        if row.uuid is not None and parent is not None and parent is chain.compacted:
            self._entries.belongs(row.uuid, parent)
            self._notes.left_out["written again after a compaction"] += 1
            return
        self._notes.skip(row.line, f"repeats the uuid {row.uuid!r} of an earlier row; the first one counts")

    def _close(self, chain: Chain) -> None:
        """Store the message that is complete now, and what was waiting behind it."""
        group = chain.open
        if group is None:
            return
        chain.open = None
        last = group.rows[-1]
        last.lost_parent = group.lost_parent
        content, extra = self._answers.content(group)
        uuids = [row.uuid for row in group.rows if row.uuid is not None]
        if len(uuids) > 1:
            extra["rows"] = list(uuids)
        self._notes.merged += len(group.rows) - 1
        # What a message names as its parent is what its first row does; the others name each other.
        last.parent = group.rows[0].parent
        entry_id = self._entries.emit(chain, group.node, last, content, extra, parent=group.parent)
        if uuids[:-1]:
            chain.earlier[entry_id] = tuple(uuids[:-1])
        for row in group.pending:
            self._place(chain, row)

    def _place(self, chain: Chain, row: ClaudeRow) -> None:
        """Store a row that is not a message of the model."""
        message = row.message
        self._answers.end_agents(row)
        if row.type == "user" and row.has_message:
            content = message.get("content")
            if row.fields.get("isCompactSummary") is True:
                self._summary(chain, row, message)
            elif isinstance(content, list) and any(is_result(part) for part in content):
                self._results(chain, row, content)
            elif row.fields.get("isVisibleInTranscriptOnly") is True:
                self._aside(chain, row)
            else:
                if is_said(row):
                    self._answers.note_prompt(row.uuid)
                self._said(chain, row, {**message, "role": "user"}, is_added=row.fields.get("isMeta") is True)
        elif row.type == "system" and row.fields.get("subtype") == "compact_boundary":
            self._boundary(chain, row)
        elif (sent := sent_with(row)) is not None:
            self._said(chain, row, sent, is_added=True)
        else:
            self._aside(chain, row)

    def _said(self, chain: Chain, row: ClaudeRow, message: JsonObject, *, is_added: bool) -> None:
        """What the user says begins a step of its own; what comes into a turn belongs to the step before."""
        parent = self._entries.parent_of(chain, row)
        said = {**message, "content": parts_of(message.get("content"))}
        if row.fields.get("isMeta") is True:
            said["isMeta"] = True
        content = self._entries.user_message(row, said)
        node = parent if is_added and parent is not None else Node(chain)
        self._entries.emit(chain, node, row, content, self._entries.beside(chain, row), parent=_tail(parent))

    def _results(self, chain: Chain, row: ClaudeRow, content: list[JsonValue]) -> None:
        """The results of tools hang below the message that called them, whichever of its rows they name."""
        node = self._node_of_calls(chain, row, content) or self._entries.parent_of(chain, row) or Node(chain)
        results = [part for part in content if is_result(part)]
        others = [part for part in content if not is_result(part)]
        details = row.fields.get("toolUseResult")
        made = []
        for part in results:
            tool = self._answers.tool(part.get("tool_use_id"))
            alone = details if len(results) == 1 else None
            message = tool_result_message(part, tool[0] or None if tool else None, alone)
            made.append(self._entries.user_message(row, message))
        if others:
            made.append(self._entries.user_message(row, {"role": "user", "content": parts_of(others)}))
        rest = self._entries.beside(chain, row)
        if len(results) == 1:
            rest.pop("toolUseResult", None)
        agent = details.get("agentId") if isinstance(details, dict) else None
        if is_name(agent) and node.first is not None:
            chain.began[agent[:200]] = node.first
        for number, result in enumerate(made, start=1):
            is_last = number == len(made)
            name = None if is_last else f"{row.uuid or derived_id(chain.id, row.line)}:{number}"
            self._entries.emit(chain, node, row, result, rest if is_last else {}, parent=node.tail, name=name)

    def _node_of_calls(self, chain: Chain, row: ClaudeRow, content: list[JsonValue]) -> Node | None:
        """Return the step of the message that made the calls; None if a compaction lies between, which stays."""
        own = None if row.parent is None else self._entries.step_of(row.parent)
        for part in content:
            tool = self._answers.tool(part.get("tool_use_id")) if isinstance(part, dict) else None
            if tool is not None and tool[1].chain is chain and tool[1].tail is not None:
                is_apart = own is not None and own.chain is chain and own.after is not tool[1].after
                return None if is_apart else tool[1]
        return None

    def _boundary(self, chain: Chain, row: ClaudeRow) -> None:
        """A compaction begins here: what is above goes on being above, though the row names no parent."""
        logical = row.fields.get("logicalParentUuid")
        parent = None
        if row.parent is not None:
            parent = self._entries.parent_of(chain, row)
        elif isinstance(logical, str) and (parent := self._entries.step_of(logical)) is None:
            parent = self._entries.entry_as_step(chain, logical)
            # A fork of what was compacted begins here, and has what was kept below the summary.
            if parent is None and chain.has_messages:
                self._notes.repair(
                    row.line, f"follows on {shown(logical)}, which is missing; it was put below the row before"
                )
        if parent is None or parent.chain is not chain:
            parent = chain.tail
        body = {**self._entries.beside(chain, row), "logicalParentUuid": logical}
        self._bills.note_compaction(row)
        metadata = row.fields.get("compactMetadata")
        chain.boundary = metadata if isinstance(metadata, dict) else {}
        content = self._entries.custom(row, f"{PREFIX}compact_boundary", body)
        self._entries.emit(chain, Node(chain), row, content, {}, parent=_tail(parent))

    def _summary(self, chain: Chain, row: ClaudeRow, message: JsonObject) -> None:
        """The summary stands for what is above the boundary, but for the rows that were kept."""
        parent = self._entries.parent_of(chain, row)
        about, chain.boundary = chain.boundary or {}, None
        head, tail = kept_rows(about)
        first = self._entries.entry_of(chain, head)
        if first is None and head is not None and chain.has_messages:
            self._notes.repair(row.line, f"keeps {shown(head)}, which is missing; nothing is kept")
        tokens = about.get("preTokens")
        fields: JsonObject = {
            "summary": message_text(message),
            "firstKeptEntryId": first or "",
            "tokensBefore": tokens if type(tokens) is int and tokens >= 0 else 0,
        }
        if about:
            fields["details"] = about
        content = self._entries.custom(row, COMPACTION, fields)
        node = Node(chain)
        self._entries.emit(chain, node, row, content, self._entries.beside(chain, row), parent=_tail(parent))
        chain.compacted = node.after = node
        if first is not None and isinstance(tail, str):
            self._entries.belongs(tail, node)

    def _aside(self, chain: Chain, row: ClaudeRow) -> None:
        """Put a row that is not part of the conversation below the row it names, or else the row before."""
        node = chain.tail if row.parent is None else self._entries.parent_of(chain, row)
        if row.type == "cost-state":
            self._bills.read_state(chain, row)
        elif row.type == "progress":
            self._bills.read_progress(row)
        elif row.type not in KNOWN:
            self._notes.unknown_kinds[row.type] += 1
        body = self._entries.beside(chain, row)
        if "message" in row.fields:
            body["message"] = row.fields["message"]
        node = node or Node(chain)
        content = self._entries.custom(row, kind_of(row), body)
        entry_id = self._entries.emit(chain, node, row, content, {}, parent=node.tail)
        self._entries.name_session(chain, row, entry_id)


read_claude_code = ClaudeCodeReader


def _tail(node: Node | None) -> str | None:
    return None if node is None else node.tail
