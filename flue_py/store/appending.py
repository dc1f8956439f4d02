"""Appending: a chain of entries below a leaf, or entries that an importer brings with their parents."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import cast

import pydantic_core

from flue_py.core.entries import NewEntry
from flue_py.core.jsontext import payload_digest
from flue_py.core.sessions import Appended, LeafChoice, NewSession, OnConflict, SessionInfo, Stored, is_storable
from flue_py.core.usage import MAX_AMOUNT, NO_USAGE
from flue_py.errors import InvalidEntry, LeafConflict
from flue_py.store import queries
from flue_py.store.backend import Sources
from flue_py.store.creating import create_session, require_session
from flue_py.store.payloads import pack
from flue_py.store.session_state import Position, SessionState
from flue_py.store.state import content_digest, read_state, remember_result, replayed_result, see_entry
from flue_py.store.transaction import Row, Transaction


def append(
    tx: Transaction,
    sources: Sources,
    session_id: str,
    entries: Sequence[NewEntry],
    expected: LeafChoice,
    on_conflict: OnConflict,
    idempotency_key: str | None,
) -> Appended:
    """Append a chain of entries (see `Backend.append`)."""
    state = read_state(tx, session_id)
    digest = b""
    if idempotency_key is not None:
        digest = content_digest([(new.kind, new.payload, new.source, new.extra) for new in entries])
        stored = replayed_result(tx, state, idempotency_key, "append", digest)
        if stored is not None:
            return _replayed(stored)
    on_branch = not isinstance(expected, Stored) and expected != state.leaf
    if on_branch and on_conflict != "branch":
        raise LeafConflict(state.id, cast("str | None", expected), state.leaf)
    if not entries:
        nothing = Appended((), state.leaf, state.revision)
        _remember(tx, state, idempotency_key, digest, nothing)
        return nothing
    parent = state.position
    if on_branch:
        parent = None if expected is None else see_entry(tx, state, cast("str", expected))
    _require_references(tx, state, entries)
    writer = _EntryWriter(tx, sources, state)
    ids = writer.add_chain(parent, entries)
    leaf = state.leaf if on_branch else ids[-1]
    writer.finish(leaf)
    if on_branch:
        writer.record_move("branch", leaf, leaf)
    else:
        tx.states[session_id] = writer.state_after(ids[-1])
    result = Appended(ids, leaf, writer.revision, on_branch, False, sum(new.surrogates_replaced for new in entries))
    _remember(tx, state, idempotency_key, digest, result)
    return result


def _remember(
    tx: Transaction, state: SessionState, idempotency_key: str | None, digest: bytes, result: Appended
) -> None:
    values = [result.entry_ids, result.leaf_id, result.revision, result.on_branch, result.surrogates_replaced]
    remember_result(tx, state, idempotency_key, "append", digest, values)


def _replayed(stored: str) -> Appended:
    ids, leaf, revision, on_branch, replaced = pydantic_core.from_json(stored)
    return Appended(tuple(ids), leaf, revision, on_branch, True, replaced)


def import_entries(
    tx: Transaction,
    sources: Sources,
    session_id: str,
    entries: Sequence[NewEntry],
    leaf: str | None,
    expected: LeafChoice,
) -> Appended:
    """Add entries with their own ids and parents, and set the leaf (see `Backend.import_entries`)."""
    state = read_state(tx, session_id)
    state.require_leaf(expected)
    writer = _EntryWriter(tx, sources, state)
    for new in entries:
        parent = None if new.parent_id is None else writer.find(new.parent_id)
        writer.add(parent, new)
    if leaf is not None:
        writer.find(leaf)
    for new in entries:
        for reference in new.references:
            writer.find(reference)
    if not writer.ids and leaf == state.leaf:
        return Appended((), leaf, state.revision)
    writer.finish(leaf)
    writer.record_move("import", state.leaf, leaf)
    return Appended(
        tuple(writer.ids), leaf, writer.revision, False, False, sum(new.surrogates_replaced for new in entries)
    )


def import_session(
    tx: Transaction, sources: Sources, new: NewSession, entries: Sequence[NewEntry], leaf: str | None
) -> SessionInfo:
    """Create a session together with its entries (see `Backend.import_session`)."""
    info = create_session(tx, sources, new)
    import_entries(tx, sources, info.id, entries, leaf, None)
    return require_session(tx, info.id)


def _require_references(tx: Transaction, state: SessionState, entries: Sequence[NewEntry]) -> None:
    for new in entries:
        for reference in new.references:
            see_entry(tx, state, reference)


class _EntryWriter:
    """Places new entries into lanes, and writes them, their totals, their blobs and their paid calls."""

    def __init__(self, tx: Transaction, sources: Sources, state: SessionState) -> None:
        self._tx = tx
        self._sources = sources
        self._state = state
        self.revision = state.revision + 1
        self.ids: list[str] = []
        self._now = sources.now_us()
        self._rows: list[Row] = []
        self._placed: dict[str, Position] = {}
        # The places that this call has filled, so that an imported sibling opens a lane of its own.
        self._filled: set[tuple[int, int]] = set()
        self._has_paid = False
        self._spent_tokens = 0
        self._spent_cost = 0
        self._messages = 0
        self._preview: str | None = None

    def add_chain(self, parent: Position | None, entries: Sequence[NewEntry]) -> tuple[str, ...]:
        """Add entries, each the child of the one before; return their ids."""
        for new in entries:
            parent = self.add(parent, new)
        return tuple(self.ids)

    def add(self, parent: Position | None, new: NewEntry) -> Position:
        """Add one entry below ``parent`` and return its place."""
        entry_id = new.id if new.id is not None else self._sources.entry_id()
        if new.id is not None and not (new.id and is_storable(new.id)):
            raise InvalidEntry(f"entry id {new.id!r} is empty, or holds a NUL character or a lone surrogate")
        if new.id is not None and (entry_id in self._placed or self._is_taken(entry_id)):
            raise InvalidEntry(f"entry id {entry_id!r} is already there; ids are unique within a tree of sessions")
        lane_id, depth, parent_lane, fork_depth = self._choose_place(parent)
        own = new.usage if new.counted else NO_USAGE
        before = NO_USAGE if parent is None else parent.totals
        totals = before if own is NO_USAGE else before.plus(own)
        at = self._now if new.created_us is None else new.created_us
        stored = pack(new.payload)
        if stored.blob is not None:
            self._tx.run(
                queries.INSERT_BLOB,
                {
                    "tree_id": self._state.tree_id,
                    "sha256": stored.blob,
                    "size": len(new.payload.encode()),
                    "data": stored.blob_data,
                },
            )
        # In the order of INSERT_ENTRY.
        self._rows.append((
            self._state.tree_id, lane_id, depth, entry_id, new.kind, new.role, new.source,
            self._state.key, self.revision, len(self.ids), at, int(new.counted), *totals,
            payload_digest(new.payload), stored.payload, stored.packed, stored.blob, new.extra,
        ))  # fmt: skip
        self._count(new, entry_id, at)
        self._filled.add((lane_id, depth))
        position = Position(lane_id, depth, totals, self._state.key, parent_lane, fork_depth, has_child=False)
        self._placed[entry_id] = position
        return position

    def find(self, entry_id: str) -> Position:
        """Return the place of an entry of this call, or of one the session sees. Raises `EntryNotFound`."""
        position = self._placed.get(entry_id)
        return see_entry(self._tx, self._state, entry_id) if position is None else position

    def finish(self, leaf: str | None) -> None:
        """Write the rows and the session's new state."""
        self._tx.insert(queries.INSERT_ENTRY, self._rows)
        # A session that has spent something is named in the ledger already.
        if self._has_paid and not (self._state.spent_tokens or self._state.spent_cost):
            name = {"session_key": self._state.key, "session_id": self._state.id}
            self._tx.run(queries.INSERT_LEDGER_SESSION, name)
        self._tx.run(
            queries.UPDATE_AFTER_APPEND,
            {
                "leaf": leaf,
                "revision": self.revision,
                "at": self._now,
                "entry_count": len(self.ids),
                "message_count": self._messages,
                "first_message": self._preview,
                "spent_tokens": self._spent_tokens,
                "spent_cost": self._spent_cost,
                "session_key": self._state.key,
            },
        )

    def state_after(self, leaf: str) -> SessionState:
        """Return the session as this call leaves it, with its leaf at one of the new entries."""
        old = self._state
        return SessionState(
            old.key,
            old.id,
            old.tree_id,
            old.scope,
            leaf,
            self.revision,
            old.kind,
            old.task_depth,
            old.forked_from_entry,
            old.spent_tokens + self._spent_tokens,
            old.spent_cost + self._spent_cost,
            self._placed[leaf],
        )

    def record_move(self, reason: str, from_entry: str | None, to_entry: str | None) -> None:
        """Record that this revision is no plain append."""
        self._tx.run(
            queries.INSERT_MOVE,
            {
                "session_key": self._state.key, "revision": self.revision, "from_entry": from_entry,
                "to_entry": to_entry, "reason": reason, "undoes": None, "moved_by": None, "at": self._now,
            },
        )  # fmt: skip

    def _choose_place(self, parent: Position | None) -> tuple[int, int, int | None, int]:
        """Return (lane, depth, parent lane, fork depth): the next place of the parent's lane, or a new lane.

        A lane continues only below its tip and only for its owner: else a fork would grow its source's lane, and
        deletion could not tell the two apart.
        """
        if parent is not None and parent.owner_key == self._state.key and not parent.has_child:
            place = (parent.lane_id, parent.depth + 1)
            if place not in self._filled:
                return (*place, parent.parent_lane, parent.fork_depth)
        lane_id = self._open_lane(parent)
        if parent is None:
            return lane_id, 0, None, -1
        return lane_id, parent.depth + 1, parent.lane_id, parent.depth

    def _open_lane(self, parent: Position | None) -> int:
        tree = {"tree_id": self._state.tree_id}
        if self._tx.has_row_locks:
            lane_id = secrets.randbits(62)
        else:
            row = self._tx.first(queries.LAST_LANE, tree)
            lane_id = 1 if row is None or row[0] is None else int(row[0]) + 1
        self._tx.run(
            queries.INSERT_LANE,
            {
                **tree,
                "lane_id": lane_id,
                "owner_key": self._state.key,
                "parent_lane": None if parent is None else parent.lane_id,
                "fork_depth": -1 if parent is None else parent.depth,
            },
        )
        return lane_id

    def _require_spending_in_range(self) -> None:
        tokens = self._state.spent_tokens + self._spent_tokens
        if max(tokens, self._state.spent_cost + self._spent_cost) > MAX_AMOUNT:
            raise InvalidEntry(f"usage: what the session spent would exceed {MAX_AMOUNT}; check the reported numbers")

    def _is_taken(self, entry_id: str) -> bool:
        where = {"tree_id": self._state.tree_id, "entry_id": entry_id}
        return self._tx.first(queries.ENTRY_POSITION, where) is not None

    def _count(self, new: NewEntry, entry_id: str, at: int) -> None:
        self.ids.append(entry_id)
        if new.kind == "message":
            self._messages += 1
            self._preview = self._preview or new.preview
        for number, call in enumerate(new.calls if new.counted else ()):
            call_id = call.call_id or (entry_id if number == 0 else f"{entry_id}#{number}")
            usage = call.usage
            is_first_report = self._tx.run(queries.INSERT_CALL, {
                "scope": self._state.scope, "provider": call.provider, "call_id": call_id,
                "session_key": self._state.key, "tree_id": self._state.tree_id, "entry_id": entry_id,
                "purpose": call.purpose, "model": call.model, "input_tokens": usage.input,
                "output_tokens": usage.output, "cache_read_tokens": usage.cache_read,
                "cache_write_5m_tokens": usage.cache_write, "cache_write_1h_tokens": 0, "reasoning_tokens": 0,
                "total_tokens": usage.total_tokens, "cost": usage.cost_total, "price_source": None, "at": at,
            })  # fmt: skip
            if is_first_report:
                self._has_paid = True
                self._spent_tokens += usage.tokens
                self._spent_cost += usage.cost_total
                self._require_spending_in_range()
