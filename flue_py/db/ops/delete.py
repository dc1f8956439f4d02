"""Deletions, with the texts that they erase, and several operations in one transaction."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from flue_py.core.erasure import LONG_RUN, Needles, Piece, Place, Run
from flue_py.core.json import Frozen
from flue_py.core.ledger import owners_of_tasks
from flue_py.core.operations import (
    AppendEntries,
    Committed,
    CreateSession,
    CreateTask,
    DeleteTree,
    EndTask,
    ForkSession,
    Left,
    LinkTask,
    MoveLeaf,
    Navigate,
    OnSession,
    Operation,
    Outcome,
    Redo,
    SetLabel,
    SetPin,
    Undo,
    UpdateSession,
    content_of,
    named,
    renamed,
    sessions_named,
)
from flue_py.core.sessions import (
    IMPORTED_FILES,
    NOTHING_SEEN,
    STORED,
    Appended,
    Deletion,
    Expected,
    Moved,
    Navigated,
    ScopeContents,
    Seen,
    SessionInfo,
    deletion_of,
    is_meant,
    is_storable,
)
from flue_py.core.trees import Hold, Lane, LaneFate, plan_lane_deletion
from flue_py.db import sql
from flue_py.db.ops import base, documents, ledger
from flue_py.db.ops.append import appended_of, plan_append, told_of
from flue_py.db.ops.edit import go_to, set_label, set_pin, update_session
from flue_py.db.ops.ledger import delete_scope_budgets, delete_session_budgets
from flue_py.db.ops.seals import change_calls, keep_call_seals
from flue_py.db.ops.sessions import (
    create_session,
    create_task,
    end_task,
    link_task,
    plan_fork,
    replayed_session,
    require_session,
)
from flue_py.db.payloads import unpacked
from flue_py.db.runner import Nothing, Row, SessionState, Sources, Transaction, written
from flue_py.db.schema import schema_statements
from flue_py.db.sql import announced, statement
from flue_py.errors import FlueError, InvalidArgument, RevisionConflict, SessionNotFound

if TYPE_CHECKING:
    from flue_py.core.erasure import Needles

# ---------------------------------------------------------------------------------------------------------------------
# The statements of a deletion.


_LANE = "l.tree_id, l.lane_id, l.owner_key, l.parent_lane, l.fork_depth"
DOOMED_LANES = statement(Lane)(f"SELECT {_LANE} FROM lanes l WHERE l.owner_key {sql.IN_KEYS}")
CHILD_LANES = statement(Lane)(
    f"SELECT {_LANE} FROM lanes p JOIN lanes l ON l.tree_id = p.tree_id AND l.parent_lane = p.lane_id"
    f" WHERE p.owner_key {sql.IN_KEYS}"
)


def _held_by(column: str) -> str:
    entry = f"FROM entries e WHERE e.tree_id = s.tree_id AND e.id = s.{column}"
    return (
        f"SELECT s.tree_id, (SELECT e.lane_id {entry}) AS lane_id, (SELECT e.depth {entry}) AS depth, s.session_key"
        f" FROM sessions s WHERE s.{column} IS NOT NULL AND NOT s.session_key {sql.IN_KEYS} AND s.tree_id IN"
        f" (SELECT d.tree_id FROM sessions d WHERE d.session_key {sql.IN_KEYS})"
    )


# Where other sessions hold on to the lanes: with their leaf, or the entry they were forked from. (An entry is looked
# up for each session; joined, PostgreSQL would read the whole tree.)
HOLDS = statement(Hold)(
    "SELECT h.tree_id, h.lane_id, h.depth, h.session_key"
    f" FROM ({_held_by('leaf')} UNION ALL {_held_by('forked_from_entry')}) h"
    " JOIN lanes l ON l.tree_id = h.tree_id AND l.lane_id = h.lane_id"
    f" WHERE l.owner_key {sql.IN_KEYS}"
)
# What the ends of lanes hold: how many entries per blob (None: those without one), for each tree.
TAILS_CONTENT = statement(tuple[int, bytes | None, int])(
    f"SELECT e.tree_id, e.blob, COUNT(*) FROM ({sql.TAILS}) t JOIN entries e ON {sql.IN_TAIL}"
    " GROUP BY e.tree_id, e.blob"
)
# The same of what it deletes, where SQLite counts each entry by itself.
DELETE_TAILS = statement(tuple[int, bytes | None, int])(sql.DELETE_TAILS)
DELETE_TAIL_ATTACHMENTS = statement(tuple[int, bytes])(sql.DELETE_TAIL_ATTACHMENTS)
HAND_OVER_LANE = statement(Nothing)(
    "UPDATE lanes SET owner_key = :owner_key WHERE tree_id = :tree_id AND lane_id = :lane_id"
)
DELETE_LANE = statement(Nothing)("DELETE FROM lanes WHERE tree_id = :tree_id AND lane_id = :lane_id")
LOCK_BLOB = statement(tuple[int])(
    "SELECT b.size FROM blobs b WHERE b.tree_id = :tree_id AND b.sha256 = :sha256 FOR UPDATE"
)
DELETE_UNUSED_BLOB = statement(Nothing)(
    "DELETE FROM blobs WHERE tree_id = :tree_id AND sha256 = :sha256 AND NOT EXISTS"
    " (SELECT 1 FROM entries e WHERE e.tree_id = :tree_id AND e.blob = :sha256 AND e.blob IS NOT NULL)"
    " AND NOT EXISTS (SELECT 1 FROM attachments a WHERE a.tree_id = :tree_id AND a.sha256 = :sha256)"
)
# By these an import knows that a session was deleted here (what others have paid is remembered anyway).
_IMPORTED = f"FROM sessions s WHERE s.session_key {sql.IN_KEYS} AND {sql.PLACE_IN}(s.metadata, '\"imported\"') > 0"
NOTE_IMPORTED = statement(Nothing)(
    "INSERT INTO ledger_sessions (session_key, session_id, tree_id, project)"
    f" SELECT s.session_key, s.id, s.tree_id, NULLIF(s.cwd, '') {_IMPORTED} ON CONFLICT DO NOTHING"
)
IMPORTED_AMONG = statement(tuple[str, str])(f"SELECT s.id, s.scope {_IMPORTED}")
# Files that imports remember are no files of the user's.
SCOPE_CONTENTS = statement(ScopeContents)(
    "SELECT (SELECT COUNT(*) FROM documents d WHERE d.scope = :scope AND d.kind = 'memory'),"
    " (SELECT COUNT(*) FROM documents d WHERE d.scope = :scope AND d.kind = 'file' AND d.space = ''),"
    " (SELECT COUNT(*) FROM budgets b WHERE b.scope = :scope), (SELECT COUNT(*) FROM ledger g WHERE g.scope = :scope)"
)
# A session that is gone and paid nothing has no scope any more, and nobody asks for its folder.
_PAID_NOTHING = (
    "(NOT EXISTS (SELECT 1 FROM ledger g WHERE g.session_key = ledger_sessions.session_key) AND NOT EXISTS"
    " (SELECT 1 FROM sessions s WHERE s.session_key = ledger_sessions.session_key))"
)
PAYERS_OF_SCOPE = statement(tuple[int])(
    "SELECT session_key FROM ledger WHERE scope = :scope"
    f" UNION SELECT session_key FROM ledger_sessions WHERE project IS NOT NULL AND {_PAID_NOTHING}"
)
FORGET_AGENTS = statement(Nothing)("UPDATE ledger SET agent = NULL WHERE scope = :scope AND agent IS NOT NULL")
FORGET_FOLDERS = statement(Nothing)(
    "UPDATE ledger_sessions SET project = NULL WHERE project IS NOT NULL AND (session_key IN"
    f" (SELECT g.session_key FROM ledger g WHERE g.scope = :scope) OR {_PAID_NOTHING})"
)
DELETE_SESSIONS = announced(f"DELETE FROM sessions WHERE session_key {sql.IN_KEYS}")


# ---------------------------------------------------------------------------------------------------------------------
# Deleting a session tree: exactly what nobody else sees, in one transaction.


# What a session's tasks have paid stays with it when the links to them go.
LINKS_OF_SESSIONS = statement(tuple[str, str])(
    "SELECT s.id, t.child_id FROM task_links t JOIN sessions s ON s.session_key = t.parent_key"
    f" WHERE t.parent_key {sql.IN_KEYS} ORDER BY t.parent_key, t.position"
)


def delete_tree(
    tx: Transaction,
    sources: Sources,
    session_id: str,
    scope: str | None,
    expected: Expected = STORED,
    *,
    dry_run: bool,
    erased: Needles | None = None,
    despite: Collection[str] = (),
) -> Deletion:
    """Delete a session, its task closure, and entries that only they saw (see `Backend.delete_tree`)."""
    if not is_storable(session_id):
        return Deletion(())
    doomed = _Doomed({}, [], set(), set())
    while (closure := _closure(tx, session_id, scope)) is not None:
        is_held = dry_run or tx.is_alone or closure.sessions.keys() <= doomed.sessions.keys()
        doomed = closure
        if is_held:
            break
        # A task may have been started while we waited: look again, until all there is is locked.
        tx.lock_sessions(closure.sessions)
    if closure is None or not doomed.sessions:
        return Deletion((), () if closure is None else tuple(doomed.missing))
    if expected not in (STORED, NOTHING_SEEN):
        # Only now is it certain that nobody adds anything any more.
        base.read_state(tx, session_id).require(expected)
    keys = json.dumps(list(doomed.sessions))
    holds = documents.check_holds(tx, doomed.scopes, doomed.sessions.values(), despite)
    links = tuple(tx.rows(LINKS_OF_SESSIONS, keys=keys))
    fates = _plan(tx, keys) if dry_run else _plan_locked(tx, keys)
    if not dry_run:
        base.leave_marks(tx, keys)
    tails = _tails(fates)
    entries_kept = sum(fate.keep_depth - fate.lane.fork_depth for fate in fates)
    shared: tuple[tuple[str, str], ...] = ()
    if erased is not None:
        shared = shared_entries(tx, fates)
        if not dry_run:
            begin_erasure(tx)
            take_sessions(tx, erased, fates, keys)
    content = tx.rows(TAILS_CONTENT if dry_run else DELETE_TAILS, tails=tails)
    deleted = sum(count for _, _, count in content)
    if not dry_run:
        delete_session_budgets(tx, doomed.sessions.values())
        if imported := tx.rows(IMPORTED_AMONG, keys=keys):
            change_calls(tx, doomed.sessions, lambda: tx.run(NOTE_IMPORTED, keys=keys))
        for place in imported:
            documents.put_document(tx, sources, deletion_of(*place))
        _note_tasks(tx, session_id, [link for link in links if link[1] not in doomed.others])
        blobs = {(tree_id, bytes(blob)) for tree_id, blob, _ in content if blob is not None}
        blobs.update((tree_id, bytes(blob)) for tree_id, blob in tx.rows(DELETE_TAIL_ATTACHMENTS, tails=tails))
        keep_call_seals(tx, doomed.sessions)
        _carry_out(tx, fates, blobs, keys)
        bodies = documents.remove_holds(tx, holds)
        if erased is not None:
            change_calls(tx, doomed.sessions, lambda: forget_payers(tx, keys))
            erased.add(*bodies)
    return Deletion(tuple(doomed.sessions.values()), tuple(doomed.missing), deleted, entries_kept, links, shared)


def empty_scope(
    tx: Transaction, scope: str, *, dry_run: bool, erased: Needles | None = None, despite: Collection[str] = ()
) -> ScopeContents:
    """Delete the documents, budgets and names of a scope (see `Backend.empty_scope`)."""
    documents.check_holds(tx, [scope], None, despite)
    (contents,) = tx.rows(SCOPE_CONTENTS, scope=scope)
    if not dry_run:
        if erased is not None:
            begin_erasure(tx)
            take_scope(tx, erased, scope)
        delete_scope_budgets(tx, scope)
        documents.remove_documents(tx, scope)
        keys = {key for (key,) in tx.rows(PAYERS_OF_SCOPE, scope=scope)}
        tx.lock_sessions(keys)
        for command in (FORGET_FOLDERS, FORGET_AGENTS):
            change_calls(tx, keys, partial(tx.run, command, scope=scope))
    return contents


class _Doomed(Frozen):
    sessions: dict[int, str]
    missing: list[str]
    others: set[str]
    """Tasks that are in other scopes: they are among the missing, and stay whose they were."""
    scopes: set[str]


def _closure(tx: Transaction, session_id: str, scope: str | None) -> _Doomed | None:
    """Return the session and its task closure, by key; None where it is another one, or of another scope."""
    sessions: dict[int, str] = {}
    missing: list[str] = []
    others: set[str] = set()
    scopes: set[str] = set()
    for child_id, session_key, child_scope in tx.rows(sql.TASK_CLOSURE, id=session_id, scope=scope):
        is_other = session_key is not None and scope not in (None, child_scope)
        if child_id == session_id and (is_other or (session_key is not None and not is_meant(session_id, session_key))):
            return None
        if session_key is not None and not is_other:
            sessions[session_key] = child_id
            scopes.add(child_scope or "")
        elif child_id != session_id:
            missing.append(child_id)
            others.update([child_id] if is_other else ())
    return _Doomed(sessions, missing, others, scopes)


# Of sessions that go or are gone, and of tasks that such a session took along without having paid for anything itself.
PAYERS_TO_NOTE = statement(tuple[int, str, str, str | None])(
    "SELECT n.session_key, n.session_id, n.session_id, n.task_of FROM ledger_sessions n"
    f" WHERE n.session_id {sql.IN_IDS}"
    " UNION ALL SELECT n.session_key, n.task_of, n.session_id, NULL FROM ledger_sessions n"
    f" WHERE n.task_of {sql.IN_IDS} AND NOT EXISTS"
    " (SELECT 1 FROM ledger_sessions p WHERE p.session_id = n.task_of)"
)


def _note_tasks(tx: Transaction, session_id: str, links: Sequence[tuple[str, str]]) -> None:
    """Write down whose tasks they were, for their calls, since the links to them go."""
    if not links:
        return
    ids = json.dumps(sorted({session_id, *(child for _, child in links)}))
    payers = tx.rows(PAYERS_TO_NOTE, ids=ids)
    owners = owners_of_tasks(session_id, links, {name for _, _, name, _ in payers})
    notes = [
        {"session_key": key, "task_of": owners[task]} for key, task, _, of in payers if of is None and task in owners
    ]
    change_calls(tx, {int(str(note["session_key"])) for note in notes}, lambda: tx.run_many(sql.NOTE_TASK, notes))


def _plan_locked(tx: Transaction, keys: str) -> list[LaneFate]:
    """Return the plan, with its heirs locked: one that was being deleted meanwhile would inherit for nobody."""
    locked: set[int] = set()
    while True:
        fates = _plan(tx, keys)
        heirs = {fate.heir for fate in fates if fate.heir is not None} - locked
        if tx.is_alone or not heirs:
            return fates
        tx.lock_sessions(heirs)
        locked |= heirs


def _plan(tx: Transaction, keys: str) -> list[LaneFate]:
    doomed = list(tx.rows(DOOMED_LANES, keys=keys))
    children = list(tx.rows(CHILD_LANES, keys=keys))
    holds = list(tx.rows(HOLDS, keys=keys))
    return plan_lane_deletion(doomed, children, holds)


def _tails(fates: Iterable[LaneFate]) -> str:
    return json.dumps([[fate.lane.tree_id, fate.lane.lane_id, fate.keep_depth] for fate in fates])


def _carry_out(tx: Transaction, fates: list[LaneFate], blobs: Iterable[tuple[int, bytes]], keys: str) -> None:
    """Delete the rest, when the ends of the lanes are gone; ``blobs`` (tree, SHA-256) are those they referred to."""
    # Lanes change hands here, of which other sessions' states tell.
    tx.states.clear()
    tx.run(ledger.NAME_CALLS_OF_SESSIONS, keys=keys)
    lanes = [(fate.heir, {"tree_id": fate.lane.tree_id, "lane_id": fate.lane.lane_id}) for fate in fates]
    handed_over = [{**lane, "owner_key": heir} for heir, lane in lanes if heir is not None]
    tx.run_many(HAND_OVER_LANE, handed_over)
    tx.run_many(DELETE_LANE, [lane for heir, lane in lanes if heir is None])
    unused = [{"tree_id": tree_id, "sha256": blob} for tree_id, blob in sorted(blobs)]
    if not tx.is_alone:
        # Whoever is just storing an entry with this blob holds it: waited for here, seen by the next statement.
        tx.run_many(LOCK_BLOB, unused)
    tx.run_many(DELETE_UNUSED_BLOB, unused)
    # Marks, moves, requests and links of the sessions go with their rows (ON DELETE CASCADE).
    tx.run(DELETE_SESSIONS, keys=keys)


# ---------------------------------------------------------------------------------------------------------------------
# Several operations in one transaction: all of them, or none.

_OPERATION = "atomic"
_TOLD_OF_APPEND = 6


def atomic(
    tx: Transaction, sources: Sources, operations: Sequence[Operation], idempotency_key: str | None
) -> Committed:
    """Do operations one after the other (see `Backend.atomic`)."""
    tx.lock_named(sessions_named(operations))
    remembered = None if idempotency_key is None else _Remembered(operations, idempotency_key)
    if remembered is not None and (outcomes := remembered.first(tx)) is not None:
        return Committed(outcomes, _left(tx, _touched(operations, outcomes)), replayed=True)
    batch = _Batch(tx, sources, operations)
    for number, operation in enumerate(operations):
        try:
            batch.do(operation)
        except FlueError as error:
            error.operation = number
            error.add_note(f"operation {number + 1} of {len(operations)}: {named(operation)}; none of them was done")
            raise
    if remembered is not None:
        remembered.remember(tx, batch.outcomes)
    return Committed(tuple(batch.outcomes), _left(tx, _touched(batch.done, batch.outcomes)))


def perform(tx: Transaction, sources: Sources, operation: Operation) -> Outcome:
    """Do one operation, for which nothing has to be remembered."""
    batch = _Batch(tx, sources, ())
    batch.do(operation)
    return batch.outcomes[0]


def recall_atomic(
    tx: Transaction, operations: Sequence[Operation], idempotency_key: str
) -> list[Appended | None] | None:
    """Return the first results of the appends of a batch (see `Backend.recall_atomic`)."""
    names = sessions_named(operations)
    if not names or not is_storable(idempotency_key):
        return None
    state = _state(tx, names[0])
    row = tx.first(sql.REQUEST, session_key=state.key, idempotency_key=idempotency_key)
    kind, _, result = row or ("", b"", "")
    stored = json.loads(result) if kind == _OPERATION else []
    if len(stored) != len(operations):
        return None
    both = zip(operations, stored, strict=True)
    # Another batch of as many operations may have had the key, which `atomic` says.
    return [
        appended_of(item) if isinstance(operation, AppendEntries) and _is_append(item) else None
        for operation, item in both
    ]


def _is_append(stored: object) -> bool:
    return isinstance(stored, list) and len(stored) == _TOLD_OF_APPEND


def _state(tx: Transaction, session_id: str) -> SessionState:
    """Return a session, and keep it for the next operation."""
    state = tx.states[session_id] = base.read_state(tx, session_id)
    return state


def _touched(operations: Sequence[Operation], outcomes: Sequence[Outcome]) -> list[str]:
    """Return the ids of the sessions that operations named or made."""
    names: dict[str, None] = {}
    for operation, outcome in zip(operations, outcomes, strict=True):
        if not isinstance(operation, CreateSession):
            names[str(operation.session_id)] = None
        if isinstance(outcome, SessionInfo):
            names[outcome.id] = None
    return list(names)


def _left(tx: Transaction, session_ids: Sequence[str]) -> dict[str, Left]:
    """Return those of the sessions that are still there as they are now."""
    links = {}
    for session_id in session_ids:
        with suppress(SessionNotFound):
            state = _state(tx, session_id)
            links[session_id] = Left(state.leaf, state.revision)
    return links


FUNCTIONS: dict[type[OnSession], Callable[[Transaction, Sources, Any], Outcome]] = {
    CreateTask: create_task,
    LinkTask: link_task,
    EndTask: end_task,
    MoveLeaf: base.move,
    Navigate: go_to,
    Undo: base.undo,
    Redo: base.redo,
    UpdateSession: update_session,
    SetLabel: set_label,
    SetPin: set_pin,
}


class _Batch:
    """Operations under way in one transaction."""

    def __init__(self, tx: Transaction, sources: Sources, operations: Sequence[Operation]) -> None:
        self._tx = tx
        self._sources = sources
        # The operations as they were done, and what they came to.
        self.done: list[Operation] = []
        self.outcomes: list[Outcome] = []
        # The sessions whose revision is compared, with the one before the batch.
        self._began: dict[str, int] = {}
        for operation in operations:
            if not isinstance(operation, CreateSession) and _expects_revision(operation):
                with suppress(SessionNotFound):
                    self._began[operation.session_id] = _state(tx, operation.session_id).revision
        # Of ids that were brought along, those that a retry has in their place.
        self._names: dict[str, str] = {}

    def do(self, operation: Operation) -> None:
        """Do one more operation."""
        operation = renamed(operation, self._names)
        if isinstance(operation, CreateSession):
            new = replace(operation.new, id=operation.session_made)
            outcome: Outcome = create_session(self._tx, self._sources, new)
        else:
            outcome = self._compared(operation) if _expects_revision(operation) else self._do(operation)
        self._note_names(operation, outcome)
        self.done.append(operation)
        self.outcomes.append(outcome)

    def _do(self, operation: OnSession) -> Outcome:
        tx, sources, session, expected = self._tx, self._sources, operation.session_id, operation.expected
        match operation:
            case AppendEntries(entries=entries, on_conflict=on_conflict, idempotency_key=key):
                return written(tx, plan_append(tx, sources, session, entries, expected, on_conflict, key))
            case ForkSession(at=at, new=new, scope=scope, idempotency_key=key, drawn_id=drawn):
                return written(tx, plan_fork(tx, sources, session, at, new, expected, key, scope, drawn))
            case DeleteTree(scope=scope):
                return delete_tree(tx, sources, session, scope, expected, dry_run=False)
        return FUNCTIONS[type(operation)](tx, sources, operation)

    def _compared(self, operation: OnSession) -> Outcome:
        """Do an operation that expects a revision: the one before the batch, whose own changes are no conflict."""
        began = self._began.get(operation.session_id)
        seen = operation.expected
        if began is None or not isinstance(seen, Seen) or seen.revision is None:
            return self._do(operation)
        done = _state(self._tx, operation.session_id).revision - began
        if not done:
            return self._do(operation)
        try:
            return self._do(replace(operation, expected=replace(seen, revision=seen.revision + done)))
        except RevisionConflict:
            raise RevisionConflict(str(operation.session_id), seen.revision, began) from None

    def _note_names(self, operation: Operation, outcome: Outcome) -> None:
        """Note the ids that a retry has in place of those that an operation brought along."""
        if isinstance(operation, AppendEntries) and isinstance(outcome, Appended) and outcome.replayed:
            ids = zip(operation.entries, outcome.entry_ids, strict=True)
            self._names.update({entry.id: there for entry, there in ids if entry.id is not None})
        elif isinstance(operation, (ForkSession, CreateTask)) and isinstance(outcome, SessionInfo):
            brought = operation.session_made or outcome.id
            if brought != outcome.id:
                self._names[brought] = outcome.id


def _expects_revision(operation: OnSession) -> bool:
    return isinstance(operation.expected, Seen) and operation.expected.revision is not None


class _Remembered:
    """A batch with an idempotency key, which belongs to the first session that it names and does not make itself."""

    def __init__(self, operations: Sequence[Operation], idempotency_key: str) -> None:
        names = sessions_named(operations)
        if not names:
            raise InvalidArgument(
                "idempotency_key: these operations name no session that is there already, which the key would belong "
                "to; leave it out, and give the new session a key of its own"
            )
        self._operations = operations
        self._key = idempotency_key
        self._session_id = names[0]
        self._digest = base.content_digest(content_of(operations))

    def first(self, tx: Transaction) -> tuple[Outcome, ...] | None:
        """Return the results of the first try; None if this is it."""
        state = _state(tx, self._session_id)
        stored = base.replayed_result(tx, state, self._key, _OPERATION, self._digest)
        if stored is None:
            return None
        pairs = zip(self._operations, json.loads(stored), strict=True)
        return tuple(_outcome(tx, operation, item) for operation, item in pairs)

    def remember(self, tx: Transaction, outcomes: Sequence[Outcome]) -> None:
        """Write down its results, unless its session has gone along with it."""
        deleted_ids = {name for outcome in outcomes if isinstance(outcome, Deletion) for name in outcome.session_ids}
        if self._session_id not in deleted_ids:
            state = _state(tx, self._session_id)
            results = [_told(outcome) for outcome in outcomes]
            base.remember_result(tx, state, self._key, _OPERATION, self._digest, results)


def _told(outcome: Outcome) -> object:
    """Return an outcome as it is written down."""
    if isinstance(outcome, Appended):
        return told_of(outcome)
    if isinstance(outcome, SessionInfo):
        return outcome.id
    if isinstance(outcome, Moved):
        return [outcome.from_id, outcome.to_id, outcome.revision, outcome.reason]
    if isinstance(outcome, Navigated):
        return [outcome.from_id, outcome.to_id, outcome.revision, outcome.summary_id, outcome.draft]
    if isinstance(outcome, Deletion):
        return [outcome.session_ids, outcome.missing_ids, outcome.entries_deleted, outcome.entries_kept, outcome.links]
    return outcome


def _outcome(tx: Transaction, operation: Operation, stored: Any) -> Outcome:  # noqa: ANN401 - what JSON held
    """Return an outcome as it was written down."""
    outcome: Outcome = None
    match operation:
        case AppendEntries():
            outcome = appended_of(stored)
        case CreateSession() | ForkSession() | CreateTask():
            outcome = replayed_session(tx, stored)
        case UpdateSession() | EndTask():
            outcome = require_session(tx, stored)
        case MoveLeaf() | Undo() | Redo():
            outcome = None if stored is None else replace(Moved(*stored), replayed=True)
        case Navigate():
            outcome = Navigated(*stored)
        case DeleteTree():
            session_ids, missing_ids, deleted, entries_kept, links = stored
            followed = tuple((parent, child) for parent, child in links)
            outcome = Deletion(tuple(session_ids), tuple(missing_ids), deleted, entries_kept, followed)
        case SetPin():
            outcome = tuple(stored)
    return outcome


# ---------------------------------------------------------------------------------------------------------------------
# Erased texts: those of the rows that are about to go, and the look for them in the rows that stay.

# The texts of people in the rows of sessions. Their ids stay in the ledger.
_TEXTS = {
    "sessions": 'session_key, "key", title, metadata, cwd, config_path, first_message, auto_title',
    "marks": "session_key, value",
    "leaf_moves": "session_key, moved_by, why",
    "requests": "session_key, idempotency_key",
    "session_edits": 'session_key, "before", "after", edited_by, why',
    "task_links": "parent_key, task_id, summary",
}
TEXTS_OF_SESSIONS = [
    statement(tuple[object, ...])(f"SELECT {columns} FROM {table} WHERE {columns.partition(',')[0]} {sql.IN_KEYS}")
    for table, columns in _TEXTS.items()
]
_IN_LANE = "tree_id = :tree_id AND {0}.lane_id = :lane_id AND {0}.depth > :low"
PAYLOADS_OF_LANE = statement(tuple[int, str | None, bytes | None, str | None])(
    "SELECT e.depth, e.payload, e.packed, e.extra FROM entries e"
    f" WHERE e.{_IN_LANE.format('e')} ORDER BY e.depth LIMIT 200"
)
BLOBS_OF_LANE = statement(tuple[bytes])(
    f"SELECT e.blob FROM entries e WHERE e.{_IN_LANE.format('e')} AND e.blob IS NOT NULL"
    f" UNION SELECT a.sha256 FROM attachments a WHERE a.{_IN_LANE.format('a')}"
)
BLOB = statement(tuple[bytes])("SELECT b.data FROM blobs b WHERE b.tree_id = :tree_id AND b.sha256 = :sha256")
NAMES_OF_PAYERS = statement(tuple[object, ...])(
    f"SELECT n.session_key, n.project, NULL FROM ledger_sessions n WHERE n.session_key {sql.IN_KEYS}"
    f" UNION SELECT g.session_key, NULL, g.agent FROM ledger g WHERE g.session_key {sql.IN_KEYS}"
)
# The entries of a lane that others see, with the sessions that added them, if these are there.
SHARED = statement(tuple[str, str])(
    "SELECT s.id, e.id FROM entries e JOIN sessions s ON s.session_key = e.session_key"
    f" WHERE e.{_IN_LANE.format('e')} AND e.depth <= :depth ORDER BY e.depth"
)
DOCUMENTS_OF_SCOPE = statement(tuple[object, ...])(
    "SELECT d.scope, d.space, d.project, d.name, d.source, d.body FROM documents d WHERE d.scope = :scope"
    f" AND (d.space <> '{IMPORTED_FILES}' OR d.project = '')"
)
NAMES_OF_SCOPE = statement(tuple[object, ...])(
    "SELECT DISTINCT g.scope, g.agent, n.project FROM ledger g"
    " LEFT JOIN ledger_sessions n ON n.session_key = g.session_key WHERE g.scope = :scope"
)
FORGET_AGENTS_OF_SESSIONS = statement(Nothing)(
    f"UPDATE ledger SET agent = NULL WHERE agent IS NOT NULL AND session_key {sql.IN_KEYS}"
)
FORGET_FOLDERS_OF_SESSIONS = statement(Nothing)(
    f"UPDATE ledger_sessions SET project = NULL WHERE project IS NOT NULL AND session_key {sql.IN_KEYS}"
)
OVERWRITE = statement(tuple[int])(sql.OVERWRITE)
ALL_TABLES = statement(tuple[str, int])(sql.ALL_TABLES)
# Until everything was looked through, another call knows by this that a process may have been killed before that.
UNFINISHED = statement(Nothing)(
    "INSERT INTO flue_store (name, value) VALUES ('erasing', 1) ON CONFLICT (name) DO NOTHING"
)
FINISHED = statement(Nothing)("DELETE FROM flue_store WHERE name = 'erasing'")


IS_ERASING = statement(tuple[int])("SELECT value FROM flue_store WHERE name = 'erasing'")


def is_erasing(tx: Transaction) -> bool:
    """Return whether an erasure has begun and was not finished (see `Backend.is_erasing`)."""
    return tx.first(IS_ERASING) is not None


def finish_erasure(tx: Transaction) -> None:
    """Note that everything was looked through."""
    tx.run(FINISHED)


def begin_erasure(tx: Transaction) -> None:
    """Have the database overwrite what this transaction deletes, as far as it can, and note that this has begun."""
    tx.rows(OVERWRITE)
    tx.run(UNFINISHED)


def take_sessions(tx: Transaction, needles: Needles, fates: Sequence[LaneFate], keys: str) -> None:
    """Take the texts of the sessions of these keys, and of the ends of their lanes that go. O(their size)."""
    for texts in (*TEXTS_OF_SESSIONS, NAMES_OF_PAYERS):
        for rows in tx.pages(texts, keys=keys):
            _add(needles, rows)
    for fate in fates:
        lane = {"tree_id": fate.lane.tree_id, "lane_id": fate.lane.lane_id}
        low = fate.keep_depth
        while payloads := tx.rows(PAYLOADS_OF_LANE, low=low, **lane):
            _add(needles, payloads)
            low = payloads[-1][0]
        for (sha256,) in tx.rows(BLOBS_OF_LANE, low=fate.keep_depth, **lane):
            _add(needles, [(None, *row) for row in tx.rows(BLOB, tree_id=fate.lane.tree_id, sha256=bytes(sha256))])


def shared_entries(tx: Transaction, fates: Sequence[LaneFate]) -> tuple[tuple[str, str], ...]:
    """Return the entries of lanes that others see, as (session, entry), as far as these sessions are there."""
    pairs: list[tuple[str, str]] = []
    for fate in fates:
        lane = {"tree_id": fate.lane.tree_id, "lane_id": fate.lane.lane_id}
        pairs += tx.rows(SHARED, low=fate.lane.fork_depth, depth=fate.keep_depth, **lane)
    return tuple(pairs)


def forget_payers(tx: Transaction, keys: str) -> None:
    """Take agents and folders out of the calls that sessions have paid for."""
    tx.run(FORGET_AGENTS_OF_SESSIONS, keys=keys)
    tx.run(FORGET_FOLDERS_OF_SESSIONS, keys=keys)


def take_scope(tx: Transaction, needles: Needles, scope: str) -> None:
    """Take the texts of the documents of a scope, and of the names in its calls. O(their size)."""
    for texts in (DOCUMENTS_OF_SCOPE, NAMES_OF_SCOPE):
        for rows in tx.pages(texts, scope=scope):
            _add(needles, rows)


def _add(needles: Needles, rows: Sequence[Row]) -> None:
    """Take all texts of rows but in their first column, which is a key."""
    for _, *values in rows:
        needles.add(*(value for value in values if isinstance(value, (str, bytes))))


# -- the look ---------------------------------------------------------------------------------------------------------

_BLOCKS = 64
"""How many pages of a table of PostgreSQL are read at once."""


def own_tables() -> frozenset[str]:
    """Return the names of the tables that a store brings with it."""
    names = (name for text in schema_statements() for name in re.findall(r"CREATE TABLE (\w+)", text))
    return frozenset([*names, "flue_store", "sqlite_master"])


def look_for_erased(tx: Transaction, needles: Needles) -> tuple[list[Place], list[Place]]:
    """Look for erased texts in the rows of all tables: those of other tables, and those of the store's. O(store)."""
    own = own_tables()
    tables = [_look_in(tx, needles, name, blocks, is_own=name in own) for name, blocks in tx.rows(ALL_TABLES)]
    return [table for table in tables if table.name not in own], [table for table in tables if table.name in own]


def _look_in(tx: Transaction, needles: Needles, table: str, blocks: int, *, is_own: bool) -> Place:
    count, pieces, where, long_bytes = 0, set[Piece](), "", 0
    for rows in _pages_of(tx, table, blocks):
        count += len(rows)
        for row in rows:
            for run, is_stored in _runs_in(row, needles):
                # A file has what is stored, and nothing of what is packed in that.
                pieces.update(run.pieces if is_stored else ())
                if run.size >= LONG_RUN or not is_own:
                    long_bytes += run.size
                    where = where or next((f"row {text[:80]}" for text in row if isinstance(text, str)), "")
    return Place(table, count, pieces, where, long_bytes)


def _runs_in(row: Sequence[object], needles: Needles) -> Iterator[tuple[Run, bool]]:
    """Yield the runs in the values of a row, and whether they are stored so; also those in what is packed."""
    for value in row:
        data = value.encode(errors="surrogatepass") if isinstance(value, str) else value
        if isinstance(data, bytes):
            yield from zip(needles.runs(data, of_rows=True), repeat(True))
        if isinstance(value, bytes) and value.startswith(b"x") and (text := unpacked(value)) is not None:
            yield from zip(needles.runs(text, of_rows=True), repeat(False))


def _pages_of(tx: Transaction, table: str, blocks: int) -> Iterator[Sequence[Row]]:
    text = f'SELECT * FROM "{table}"'
    if blocks < 0:
        yield from tx.pages(statement(tuple[object, ...])(text))
    for block in range(0, blocks, _BLOCKS):
        places = [f"CAST('({number},0)' AS tid)" for number in (block, block + _BLOCKS)]
        yield tx.rows(statement(tuple[object, ...])(f"{text} WHERE ctid >= {places[0]} AND ctid < {places[1]}"))
