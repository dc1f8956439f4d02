"""Several operations in one transaction: all of them, or none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

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
from flue_py.core.sessions import Appended, Deletion, Moved, Navigated, Seen, SessionInfo, is_storable
from flue_py.errors import FlueError, InvalidArgument, RevisionConflict, SessionNotFound
from flue_py.store.ops.append import append, appended_of, told_of
from flue_py.store.ops.delete import delete_tree
from flue_py.store.ops.edit import set_label, set_pin, update_session
from flue_py.store.ops.move import move, redo, undo
from flue_py.store.ops.navigate import go_to
from flue_py.store.ops.sessions import (
    create_session,
    create_task,
    fork,
    link_task,
    replayed_session,
    require_session,
)
from flue_py.store.ops.state import content_digest, read_state, remember_result, replayed_result
from flue_py.store.ops.tasks import end_task
from flue_py.store.schema.session_state import SessionState
from flue_py.store.seam import Sources, Transaction
from flue_py.store.sql import state as state_sql

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


def recall_atomic(
    tx: Transaction, operations: Sequence[Operation], idempotency_key: str
) -> list[Appended | None] | None:
    """Return what the appends of a batch came to the first time (see `Backend.recall_atomic`)."""
    names = sessions_named(operations)
    if not names or not is_storable(idempotency_key):
        return None
    state = _state(tx, names[0])
    row = tx.first(state_sql.REQUEST, session_key=state.key, idempotency_key=idempotency_key)
    known, _, result = row or ("", b"", "")
    told = json.loads(result) if known == _OPERATION else []
    if len(told) != len(operations):
        return None
    both = zip(operations, told, strict=True)
    # Another batch of as many operations may have had the key, which `atomic` says.
    return [
        appended_of(each) if isinstance(operation, AppendEntries) and _is_append(each) else None
        for operation, each in both
    ]


def _is_append(told: object) -> bool:
    return isinstance(told, list) and len(told) == _TOLD_OF_APPEND


def _state(tx: Transaction, session_id: str) -> SessionState:
    """Return a session, and keep it for the next operation."""
    state = tx.states[session_id] = read_state(tx, session_id)
    return state


def _touched(operations: Sequence[Operation], outcomes: Sequence[Outcome]) -> list[str]:
    """Return the ids of the sessions that operations named or made."""
    found: dict[str, None] = {}
    for operation, outcome in zip(operations, outcomes, strict=True):
        if not isinstance(operation, CreateSession):
            found[str(operation.session_id)] = None
        if isinstance(outcome, SessionInfo):
            found[outcome.id] = None
    return list(found)


def _left(tx: Transaction, session_ids: Sequence[str]) -> dict[str, Left]:
    """Return those of the sessions that are still there as they are now."""
    found = {}
    for session_id in session_ids:
        with suppress(SessionNotFound):
            state = _state(tx, session_id)
            found[session_id] = Left(state.leaf, state.revision)
    return found


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
        outcome: Outcome = None
        match operation:
            case AppendEntries(entries=entries, on_conflict=on_conflict, idempotency_key=key):
                outcome = append(tx, sources, session, entries, expected, on_conflict, key)
            case ForkSession(at=at, new=new, scope=scope, idempotency_key=key, drawn_id=drawn):
                outcome = fork(tx, sources, session, at, new, expected, key, scope, drawn)
            case CreateTask(task_id=task_id, new=new, idempotency_key=key, max_depth=depth):
                new = replace(new, id=operation.session_made)
                outcome = create_task(tx, sources, session, task_id, new, expected, key, depth)
            case LinkTask(child_id=child, task_id=task_id, entry_id=entry_id):
                link_task(tx, sources, session, child, task_id, entry_id, expected)
            case EndTask(status=status, summary=summary, note=note):
                outcome = end_task(tx, sources, session, status, summary, expected, note)
            case MoveLeaf(to=to, reason=reason, note=note, idempotency_key=key):
                outcome = move(tx, sources, session, to, expected, reason, note, key)
            case Navigate(entry_id=entry_id, summary=entry, label=label, note=note):
                outcome = go_to(tx, sources, session, entry_id, entry, label, expected, note)
            case Undo(note=note) | Redo(note=note):
                outcome = (undo if isinstance(operation, Undo) else redo)(tx, sources, session, expected, note)
            case UpdateSession(title=title, auto_title=auto, metadata_text=text, completed_us=completed, note=note):
                outcome = update_session(tx, sources, session, title, auto, text, completed, expected, note)
            case SetLabel(entry_id=entry_id, label=label, note=note):
                set_label(tx, sources, session, entry_id, label, expected, note)
            case SetPin(entry_id=entry_id, pinned=pinned, note=note):
                outcome = set_pin(tx, sources, session, entry_id, pinned, expected, note)
            case DeleteTree(scope=scope):
                outcome = delete_tree(tx, sources, session, scope, expected, dry_run=False)
        return outcome

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
        """Note what a retry has in place of the ids that an operation brought along."""
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
        self._digest = content_digest(content_of(operations))

    def first(self, tx: Transaction) -> tuple[Outcome, ...] | None:
        """Return what the first try came to; None if this is it."""
        state = _state(tx, self._session_id)
        stored = replayed_result(tx, state, self._key, _OPERATION, self._digest)
        if stored is None:
            return None
        told = zip(self._operations, json.loads(stored), strict=True)
        return tuple(_outcome(tx, operation, each) for operation, each in told)

    def remember(self, tx: Transaction, outcomes: Sequence[Outcome]) -> None:
        """Write down what came of it, unless its session has gone along with it."""
        gone = {name for outcome in outcomes if isinstance(outcome, Deletion) for name in outcome.session_ids}
        if self._session_id not in gone:
            state = _state(tx, self._session_id)
            told = [_told(outcome) for outcome in outcomes]
            remember_result(tx, state, self._key, _OPERATION, self._digest, told)


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
        return [
            outcome.session_ids,
            outcome.missing_ids,
            outcome.entries_deleted,
            outcome.entries_kept,
            outcome.links,
        ]
    return outcome


def _outcome(tx: Transaction, operation: Operation, told: Any) -> Outcome:  # noqa: ANN401 - what JSON held
    """Return an outcome from what was written down."""
    outcome: Outcome = None
    match operation:
        case AppendEntries():
            outcome = appended_of(told)
        case CreateSession() | ForkSession() | CreateTask():
            outcome = replayed_session(tx, told)
        case UpdateSession() | EndTask():
            outcome = require_session(tx, told)
        case MoveLeaf() | Undo() | Redo():
            outcome = None if told is None else replace(Moved(*told), replayed=True)
        case Navigate():
            outcome = Navigated(*told)
        case DeleteTree():
            session_ids, missing_ids, deleted, kept, links = told
            followed = tuple((parent, child) for parent, child in links)
            outcome = Deletion(tuple(session_ids), tuple(missing_ids), deleted, kept, followed)
        case SetPin():
            outcome = tuple(told)
    return outcome
