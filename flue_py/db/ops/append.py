"""Appending: a chain of entries below a leaf, or entries that an importer brings with their parents."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence, Set
from itertools import chain
from operator import attrgetter
from os import urandom
from typing import Any

from msgspec.structs import replace

from flue_py.core import sessions
from flue_py.core.chain import NO_PARENT
from flue_py.core.entries import NewEntry
from flue_py.core.kinds import COMPACTION, SUMMARIES
from flue_py.core.ledger import (
    BlobRow,
    CallId,
    CallRow,
    LaneRow,
    MarkRow,
    MoveRow,
    Payer,
    RequestRow,
    call_row,
    default_call_id,
)
from flue_py.core.usage import NO_USAGE, NOTHING_PAID, PAID_COLUMNS, CallDifference, Paid
from flue_py.db import sql
from flue_py.db.ops import ledger
from flue_py.db.ops.base import (
    changed_columns,
    content_digest,
    pack,
    place,
    read_state,
    replayed_result,
    request_row,
    see_entry,
    taken_ids,
    write_state,
)
from flue_py.db.ops.read import with_pins
from flue_py.db.ops.seals import put_mark, sealed, with_calls
from flue_py.db.ops.sessions import create_session, require_session
from flue_py.db.runner import Plan, Position, Row, SessionState, Sources, Transaction, collector_held
from flue_py.db.sql import statement
from flue_py.errors import InvalidEntry


class PlannedAppend(Plan[sessions.Appended]):
    """An append that was checked and placed, and not yet written. ``result`` is its result once it is.

    Without entries there is no batch: only the idempotency key is written down.
    """

    state: SessionState
    batch: EntryBatch | None
    result: sessions.Appended
    idempotency_key: str | None
    digest: bytes

    def write(self, tx: Transaction) -> sessions.Appended:
        """Write it; return the result."""
        result = self.result
        if self.batch is not None:
            move = self.move if result.on_branch else None
            after = self.batch.write(tx, result.leaf_id, move)
            if move is None:
                tx.states[self.state.id] = after
        if (request := self.request) is not None:
            tx.insert(sql.INSERT_REQUEST, [request])
        return result

    @property
    def move(self) -> MoveRow | None:
        """The row of the log for an append beside the leaf, which is no plain append and leaves the leaf alone."""
        if self.batch is None or not self.result.on_branch:
            return None
        return self.batch.move("branch", self.result.leaf_id, self.result.leaf_id)

    @property
    def request(self) -> RequestRow | None:
        """The result as it is stored under the idempotency key, where there is one."""
        if self.idempotency_key is None:
            return None
        return request_row(self.state, self.idempotency_key, "append", self.digest, told_of(self.result))


_KIND, _REFERENCES, _REPLACED = map(attrgetter, ("kind", "references", "surrogates_replaced"))


def plan_append(
    tx: Transaction,
    sources: Sources,
    session_id: str,
    entries: Sequence[NewEntry],
    expected: sessions.Expected,
    on_conflict: sessions.OnConflict,
    idempotency_key: str | None,
) -> PlannedAppend | sessions.Appended:
    """Return the plan of an append, checked and placed, or the result where there is nothing to write.

    Writes nothing. Raises as `Backend.append` says.
    """
    state = read_state(tx, session_id)
    digest = b""
    if idempotency_key is not None:
        digest = content_digest([(new.kind, new.payload, new.source, new.extra) for new in entries])
        if (stored := replayed_result(tx, state, idempotency_key, "append", digest)) is not None:
            return appended_of(json.loads(stored))
    on_branch = not state.require(expected, on_conflict) and on_conflict == "branch"
    if not entries:
        nothing = sessions.Appended((), state.leaf, state.revision, parent_id=state.leaf)
        return nothing if idempotency_key is None else PlannedAppend(state, None, nothing, idempotency_key, digest)
    below, parent = place(tx, state, sessions.leaf_of(expected)) if on_branch else (state.leaf, state.position)
    if any(map(_REFERENCES, entries)):
        _require_references(tx, state, entries)
    batch = EntryBatch(tx, sources, state)
    if len(entries) > 1 and len(named := [new.id for new in entries if isinstance(new.id, str)]) > 1:
        batch.look_up(named)
    if COMPACTION in map(_KIND, entries):
        entries = with_pins(tx, state, parent, entries)
    for new in entries:
        parent = batch.add(parent, new)
    ids = tuple(batch.ids)
    replaced = sum(map(_REPLACED, entries))
    leaf = state.leaf if on_branch else ids[-1]
    result = sessions.Appended(ids, leaf, batch.revision, on_branch, surrogates_replaced=replaced, parent_id=below)
    return PlannedAppend(state, batch, result, idempotency_key, digest)


def told_of(result: sessions.Appended) -> list[object]:
    """Return the fields of the result of an append that are written down for a retry."""
    fields = (result.entry_ids, result.leaf_id, result.revision, result.on_branch, result.surrogates_replaced)
    return [*fields, result.parent_id]


def appended_of(fields: Sequence[Any]) -> sessions.Appended:
    """Return the result of an append from the fields that were written down."""
    ids, leaf, revision, on_branch, replaced, *below = fields
    # Earlier versions did not write down what it was appended below.
    parent_id = below[0] if below else None
    return sessions.Appended(tuple(ids), leaf, revision, on_branch, True, replaced, parent_id=parent_id)


def recall_append(tx: Transaction, session_id: str, idempotency_key: str) -> sessions.Appended | None:
    """Return the first result of an append (see `Backend.recall_append`)."""
    state = read_state(tx, session_id)
    if not sessions.is_storable(idempotency_key):
        return None
    row = tx.first(sql.REQUEST, session_key=state.key, idempotency_key=idempotency_key)
    operation, _, result = row or ("", b"", "")
    return appended_of(json.loads(result)) if operation == "append" else None


def import_entries(
    tx: Transaction,
    sources: Sources,
    session_id: str,
    entries: Sequence[NewEntry],
    *,
    leaf: str | None,
    expected: sessions.Expected = sessions.STORED,
) -> sessions.Appended:
    """Add entries with their own ids and parents, and set the leaf (see `Backend.import_entries`)."""
    with collector_held(len(entries)):
        state = read_state(tx, session_id)
        state.require(expected)
        named = [new.id for new in entries if isinstance(new.id, str)]
        return _import_entries(tx, sources, state, entries, leaf, named)


def _import_entries(
    tx: Transaction,
    sources: Sources,
    state: SessionState,
    entries: Sequence[NewEntry],
    leaf: str | None,
    named: Sequence[str],
) -> sessions.Appended:
    """Add entries to a session in this state. ``named`` are those of their ids that its tree may have already."""
    differing: list[CallDifference] = []
    batch = EntryBatch(tx, sources, state, differing.append)
    batch.look_up(named)
    for new in entries:
        parent = None if new.parent_id is None else batch.find(new.parent_id)
        batch.add(parent, new)
    if leaf is not None:
        batch.find(leaf)
    for reference in chain.from_iterable(map(_REFERENCES, entries)):
        batch.find(reference)
    if not batch.ids and leaf == state.leaf:
        return sessions.Appended((), leaf, state.revision)
    batch.write(tx, leaf, batch.move("import", state.leaf, leaf))
    replaced = sum(map(_REPLACED, entries))
    return sessions.Appended(tuple(batch.ids), leaf, batch.revision, False, False, replaced, tuple(differing))


def import_session(
    tx: Transaction,
    sources: Sources,
    new: sessions.NewSession,
    entries: Sequence[NewEntry],
    leaf: str | None,
    marks: Sequence[sessions.Mark],
) -> tuple[sessions.SessionInfo, tuple[CallDifference, ...]]:
    """Create a session together with its entries (see `Backend.import_session`); return the conflicts of calls, too."""
    info = create_session(tx, sources, new)
    alone = ledger.take_calls_of_deleted(tx, read_state(tx, info.id))
    if alone:
        entries = [_settling(entry, alone) for entry in entries]
    with collector_held(len(entries)):
        # Its tree is new: nothing in it has one of the ids.
        added = _import_entries(tx, sources, read_state(tx, info.id), entries, leaf, named=())
    if marks:
        state, now = read_state(tx, info.id), sources.now_us()
        for mark in marks:
            put_mark(tx, state, MarkRow(state.key, mark.entry_id, mark.kind, mark.value, now))
        write_state(tx, state)
    return require_session(tx, info.id), added.call_conflicts


def _settling(entry: NewEntry, alone: Set[CallId]) -> NewEntry:
    """Return an entry whose calls replace those that were booked without it."""
    calls = (
        replace(call, replaces=(*call.replaces, call.call_id))
        if call.call_id is not None and CallId(call.provider, call.call_id) in alone
        else call
        for call in entry.calls
    )
    return replace(entry, calls=tuple(calls))


def _require_references(tx: Transaction, state: SessionState, entries: Sequence[NewEntry]) -> None:
    added = {new.id for new in entries}
    for new in entries:
        for reference in new.references:
            if reference not in added:
                see_entry(tx, state, reference)


# Where in a row of sql.INSERT_ENTRY the sums of calls begin.
_FIRST_PAID = sql.INSERT_ENTRY.parameters.index(PAID_COLUMNS[0])


RETRACTED_OWN = statement(tuple[int])(
    "SELECT 1 FROM marks m JOIN entries e ON e.tree_id = :tree_id AND e.id = m.entry_id"
    " WHERE m.session_key = :session_key AND m.kind = 'retracted' AND e.session_key = :session_key LIMIT 1"
)
LAST_LANE = statement(tuple[int | None])("SELECT MAX(l.lane_id) FROM lanes l WHERE l.tree_id = :tree_id")


class EntryBatch:
    """New entries, placed into lanes: the rows of an append, with their totals, blobs and paid calls.

    Adding only reads; `write` writes everything, so that a database may do it in a single statement instead. A paid
    call that is in the ledger with other numbers is an error, unless there is somebody to tell of the ``conflict``.
    """

    def __init__(
        self,
        tx: Transaction,
        sources: Sources,
        state: SessionState,
        conflict: Callable[[CallDifference], None] | None = None,
    ) -> None:
        self._tx = tx
        self._sources = sources
        self.state = state
        self.revision = state.revision + 1
        self.ids: list[str] = []
        self.now_us = sources.now_us()
        # In the order of sql.INSERT_ENTRY; plain tuples, since an import adds many thousand.
        self.rows: list[Row] = []
        self.lanes: list[LaneRow] = []
        self.blobs: dict[bytes, BlobRow] = {}
        self.attachments: list[Row] = []
        self.calls: list[CallRow] = []
        self._replaced: list[tuple[CallRow, Sequence[str]]] = []
        # Calls of summaries, which are booked before their entries are made.
        self._booked_before: list[CallRow] = []
        self._conflict = conflict
        self._placed: dict[str, Position] = {}
        # The places that this call has filled, so that an imported sibling opens a lane of its own.
        self._filled: set[tuple[int, int]] = set()
        self._last_lane: int | None = None
        self._taken: set[str] | None = None
        self.message_count = 0
        self.newest_us: int | None = None
        self.first_message = state.first_message
        self._accounted: dict[str, int] = {}
        # Of each row its parent, and the calls that it adds to the sums of the path if the ledger has none of them.
        self._paying: list[tuple[Position | None, list[CallRow]]] = []
        self._reported: set[tuple[str, str, str]] = set()
        # The ids of entries that nobody can have named as a call before.
        self.drawn: set[str] = set()

    def look_up(self, ids: Sequence[str]) -> None:
        """Ask which of the ids are taken, of all at once: every id that entries bring along, and that
        its tree may have already, has to be among them."""
        self._taken = taken_ids(self._tx, self.state, ids)

    def add(self, parent: Position | None, new: NewEntry) -> Position:
        """Add one entry below ``parent`` and return its place."""
        entry_id = self._sources.entry_id() if new.id is None else self._checked_id(new.id)
        lane_id, depth, parent_lane, fork_depth = self._choose_place(parent)
        at = self.now_us if new.created_us is None else new.created_us
        if parent is None:
            parent_id, totals, paid = None, NO_USAGE, NOTHING_PAID
        else:
            parent_id, totals, paid = parent.id, parent.totals, parent.paid
        if new.counted and new.usage is not NO_USAGE:
            totals = totals.plus(new.usage)
        calls = self._book(new, entry_id, at) if new.calls else []
        self._paying.append((parent, calls))
        if calls:
            paid = paid.plus(ledger.paid_by(calls))
        above = NO_PARENT if parent is None else parent.digest
        ordinal = len(self.ids)
        fields = (entry_id, new.kind, new.role, new.source, self.revision, ordinal, at, new.extra)
        digest = self._tx.chain.digest(above, fields, new.payload.encode())
        payload, packed, blob_name, blobs, cuts = pack(new.payload)
        for blob in blobs:
            self.blobs[blob.sha256] = blob
        state = self.state
        for cut in cuts:
            self.attachments.append((state.tree_id, lane_id, depth, *cut))
        self.rows.append((
            state.tree_id, lane_id, depth, entry_id, parent_id, new.kind, new.role, new.source, state.key,
            self.revision, ordinal, at, int(new.counted), *totals, *paid, digest,
            blob_name, packed, new.extra, payload,
        ))  # fmt: skip
        self._count(new, entry_id, at)
        self._filled.add((lane_id, depth))
        position = Position(entry_id, digest, lane_id, depth, totals, paid, state.key, parent_lane, fork_depth, False)
        self._placed[entry_id] = position
        return position

    def find(self, entry_id: str) -> Position:
        """Return the place of an entry of this call, or of one the session sees. Raises `EntryNotFound`."""
        position = self._placed.get(entry_id)
        return see_entry(self._tx, self.state, entry_id) if position is None else position

    def write(self, tx: Transaction, leaf: str | None, move: MoveRow | None = None) -> SessionState:
        """Write the rows, a move of the leaf, and the session's new state; return that."""
        tree_id = self.state.tree_id
        if self.blobs:
            tx.insert(sql.INSERT_BLOB, self.blob_rows)
        if self.attachments:
            tx.insert(sql.INSERT_ATTACHMENT, self.attachments)
        if self.lanes:
            tx.insert(sql.INSERT_LANE, [(tree_id, *lane) for lane in self.lanes])
        replaces = self._write_calls(tx) if self.calls else False
        tx.insert(sql.INSERT_ENTRY, self.rows)
        if move is not None:
            tx.insert(sql.INSERT_MOVE, [move])
        after = self.state_after(leaf, move)
        tx.run(sql.UPDATE_STATE, **changed_columns(after))
        if after.active_slot != self.state.active_slot:
            tx.run(sql.UPDATE_SLOT, session_key=after.key, active_slot=after.active_slot)
        if replaces:
            ledger.renew_sums(tx, tree_id, self.state.key)
        return after

    def _write_calls(self, tx: Transaction) -> bool:
        """Write the paid calls, and note the sums they add; return whether sums have to be derived of the ledger anew.

        Raises `InvalidEntry` where the sums of a path would leave 64 bits.
        """
        replaced = ledger.take_back(tx, self._replaced)
        alone = ledger.take_alone(tx, self._booked_before)
        reported = ledger.insert_calls(tx, self.state.tree_id, self.calls, self._conflict, self.drawn)
        comes_back = False
        if len(reported) < len(self._reported):
            new = {call.identity for call in reported}
            self._renew_sums(new)
            comes_back = self._conflict is not None and self._has_paid(tx, self._reported - new)
        ledger.check_path(self.paid)
        if payer := self.new_payer(reported):
            tx.insert(sql.INSERT_PAYER, [(self.state.tree_id, *payer)])
        self.note_calls(reported, [*replaced, *alone])
        return bool(replaced) or comes_back

    def _has_paid(self, tx: Transaction, calls: set[tuple[str, str, str]]) -> bool:
        """Return whether the session has paid one of these calls, on these entries: it was deleted, and is back."""
        booked = ledger.find_calls(tx, self.state.scope, [CallId(provider, name) for _, provider, name in calls])
        ids = set(self.ids)
        return any(call.session_key == self.state.key and call.entry_id in ids for call in booked)

    def _renew_sums(self, new: set[tuple[str, str, str]]) -> None:
        """Let calls add nothing to the sums that the ledger had before, booked on another entry."""
        renewed: dict[tuple[int, int], Paid] = {}
        places = self._placed.values()
        for at, (own, (parent, calls)) in enumerate(zip(places, self._paying, strict=True)):
            above = NOTHING_PAID if parent is None else renewed.get((parent.lane_id, parent.depth), parent.paid)
            paid = above.plus(ledger.paid_by(call for call in calls if call.identity in new))
            row = self.rows[at]
            self.rows[at] = (*row[:_FIRST_PAID], *paid, *row[_FIRST_PAID + len(paid) :])
            renewed[own.lane_id, own.depth] = paid
        self._placed = {
            entry_id: position._replace(paid=renewed[position.lane_id, position.depth])
            for entry_id, position in self._placed.items()
        }

    @property
    def blob_rows(self) -> list[Row]:
        """The blobs, in the order in which every writer locks those that are there."""
        return [(self.state.tree_id, *self.blobs[sha256]) for sha256 in sorted(self.blobs)]

    @property
    def paid(self) -> list[Paid]:
        """The costs of the path to each new entry."""
        return [position.paid for position in self._placed.values()]

    def new_payer(self, calls: Sequence[CallRow]) -> Payer | None:
        """Return the session as the ledger names it, with the first of its paid calls; None if it does already."""
        return ledger.payer_row(self.state) if calls and not self.state.call_seal else None

    def note_calls(self, reported: Sequence[CallRow], replaced: Sequence[CallRow] = ()) -> None:
        """Note calls that the ledger has now, and those that it has no more. Raises `InvalidEntry` beyond 64 bits."""
        state, spent = self.state, ledger.paid_by(reported).minus(ledger.paid_by(replaced))
        ledger.check_spending(state.spent_tokens + spent.tokens, state.spent_cost + spent.picodollars)
        if reported or replaced:
            seal = with_calls(self._tx, state, reported, replaced, self.new_payer(reported))
            self._accounted = {**ledger.spending(state, spent), "call_seal": seal}

    def state_after(self, leaf: str | None, move: MoveRow | None = None) -> SessionState:
        """Return the session as this call leaves it, with its leaf and a move, and with the head that it gets."""
        old, after = self.state, replace(self.state)
        if leaf is None or leaf != old.leaf:
            after.leaf, after.position = leaf, None if leaf is None else self.find(leaf)
        after.revision, after.updated_at, after.first_message = self.revision, self.now_us, self.first_message
        after.entry_count += len(self.ids)
        after.message_count += self.message_count
        after.active_at = self._active_after()
        after.active_slot = sessions.slot_of(after.active_at)
        if self._accounted:
            after = replace(after, **self._accounted)
        if move is not None:
            after.log_seal = move.seal
        after.head = after.head_by(self._tx.chain)
        return after

    def _active_after(self) -> int:
        """Return when the session was last active: at the time of its newest entry, or when it was made.

        Only of a session that counts no entry it has to be looked up whether it has some that were retracted.
        """
        old, newest = self.state, self.newest_us
        if newest is None or (newest < old.active_at and (old.entry_count > 0 or self._has_retracted())):
            return old.active_at
        return newest

    def _has_retracted(self) -> bool:
        where = {"tree_id": self.state.tree_id, "session_key": self.state.key}
        return self._tx.first(RETRACTED_OWN, **where) is not None

    def move(
        self,
        reason: sessions.MoveReason,
        from_entry: str | None,
        to_entry: str | None,
        note: sessions.Note = sessions.NO_NOTE,
    ) -> MoveRow:
        """Return the row of the log which says that this revision is no plain append."""
        state = self.state
        row = MoveRow(state.key, self.revision, from_entry, to_entry, reason, None, note.by, self.now_us, note.why)
        return sealed(self._tx.chain, row, state.log_seal)

    def _choose_place(self, parent: Position | None) -> tuple[int, int, int | None, int]:
        """Return (lane, depth, parent lane, fork depth): the next place of the parent's lane, or a new lane.

        A lane continues only below its tip and only for its owner: else a fork would grow its source's lane, and
        deletion could not tell the two apart.
        """
        if parent is not None and parent.owner_key == self.state.key and not parent.has_child:
            place = (parent.lane_id, parent.depth + 1)
            if place not in self._filled:
                return (*place, parent.parent_lane, parent.fork_depth)
        lane_id = self._open_lane(parent)
        if parent is None:
            return lane_id, 0, None, -1
        return lane_id, parent.depth + 1, parent.lane_id, parent.depth

    def _open_lane(self, parent: Position | None) -> int:
        lane_id = self._new_lane_id()
        above = (None, -1) if parent is None else (parent.lane_id, parent.depth)
        self.lanes.append(LaneRow(lane_id, self.state.key, *above))
        return lane_id

    def _new_lane_id(self) -> int:
        if not self._tx.is_alone:
            return int.from_bytes(urandom(8)) >> 2
        if self._last_lane is None:
            (last,) = self._tx.first(LAST_LANE, tree_id=self.state.tree_id) or (None,)
            self._last_lane = last or 0
        self._last_lane += 1
        return self._last_lane

    def _checked_id(self, entry_id: str) -> str:
        sessions.check_entry_id(entry_id)
        if entry_id in self._placed or self._is_taken(entry_id):
            raise InvalidEntry(f"entry id {entry_id!r} is already there; ids are unique within a tree of sessions")
        return entry_id

    def _is_taken(self, entry_id: str) -> bool:
        if self._taken is not None:
            return entry_id in self._taken
        return self._tx.first(sql.ENTRY_POSITION, tree_id=self.state.tree_id, entry_id=entry_id) is not None

    def _count(self, new: NewEntry, entry_id: str, at: int) -> None:
        self.ids.append(entry_id)
        self.newest_us = at if self.newest_us is None else max(self.newest_us, at)
        if new.kind == "message":
            self.message_count += 1
            if self.first_message is None:
                self.first_message = new.preview

    def _book(self, new: NewEntry, entry_id: str, at: int) -> list[CallRow]:
        """Note the calls of an entry; return those of its calls that no other entry of this batch has reported."""
        unreported: list[CallRow] = []
        for number, call in enumerate(new.calls if new.counted else ()):
            call_id = call.call_id or default_call_id(entry_id, number)
            scope, key = self.state.scope, self.state.key
            row = call_row(call, scope=scope, call_id=call_id, session_key=key, entry_id=entry_id, at_us=at)
            self.calls.append(row)
            if row.identity not in self._reported:
                self._reported.add(row.identity)
                unreported.append(row)
            if number == 0 and call.call_id is None and new.id is None and self._sources.draws_entry_ids:
                self.drawn.add(entry_id)
            if call.replaces and self._conflict is not None:
                self._replaced.append((row, call.replaces))
            elif call.call_id is not None and new.kind in SUMMARIES and self._conflict is None:
                self._booked_before.append(row)
        return unreported
