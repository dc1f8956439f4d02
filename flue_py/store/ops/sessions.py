"""Creating sessions, forks and tasks; and writing down what is changed of a session beside its history."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from flue_py.core.listing import slot_of
from flue_py.core.log import NO_NOTE, Edit, Note
from flue_py.core.rows import EditRow, LinkRow, RequestRow, SessionRow
from flue_py.core.sessions import (
    Expected,
    LeafChoice,
    NewSession,
    SessionInfo,
    SessionKind,
    Stored,
    TaskStatus,
    check_name,
    is_storable,
    require_meant,
)
from flue_py.core.task_names import NO_TASK_NAMES, TaskNames, without_parent
from flue_py.errors import SessionExists, SessionNotFound, TaskDepthExceeded
from flue_py.store.ops.state import (
    content_digest,
    place,
    read_state,
    remember_result,
    replayed_result,
    request_row,
)
from flue_py.store.schema.session_state import SessionState
from flue_py.store.seam import Sources, Transaction
from flue_py.store.sql import sessions as sessions_sql
from flue_py.store.sql import tasks as tasks_sql
from flue_py.store.sql.inserts import INSERT_EDIT, INSERT_LINK, INSERT_REQUEST, INSERT_SESSION


def get_session(tx: Transaction, session_id: str, scope: str | None) -> SessionInfo | None:
    """Return a session, or None (see `Backend.get_session`)."""
    info = tx.first(sessions_sql.SESSION_BY_ID, id=session_id) if is_storable(session_id) else None
    if info is None or (scope is not None and info.scope != scope):
        return None
    require_meant(session_id, info.session_key)
    return info


def get_session_by_key(tx: Transaction, key: str, scope: str) -> SessionInfo | None:
    """Return the session with a key, or None."""
    if not (is_storable(key) and is_storable(scope)):
        return None
    return tx.first(sessions_sql.SESSION_BY_KEY, key=key, scope=scope)


def require_session(tx: Transaction, session_id: str) -> SessionInfo:
    """Return a session. Raises `SessionNotFound`."""
    info = get_session(tx, session_id, None)
    if info is None:
        raise SessionNotFound(session_id)
    return info


def create_session(tx: Transaction, sources: Sources, new: NewSession) -> SessionInfo:
    """Create a root session, or a task session that waits for its parent (see `Backend.create_session`)."""
    depth = 1 if new.kind == "task" else 0
    return _insert_session(tx, _plan_session(tx, sources, new, new.kind, new.scope, task_depth=depth))


def _insert_session(tx: Transaction, planned: PlannedSession) -> SessionInfo:
    tx.insert(INSERT_SESSION, [(planned.tree_id, *planned.row)])
    return planned.info


class PlannedSession(NamedTuple):
    """A session that is to be made: its tree, its row, and what links that were made before it say of it."""

    tree_id: int
    row: SessionRow
    task_names: TaskNames

    @property
    def info(self) -> SessionInfo:
        """The session as it will be."""
        columns = (getattr(self.row, column) for column in sessions_sql.SESSION_COLUMNS)
        return SessionInfo(*(*columns, self.task_names))


def _plan_session(
    tx: Transaction,
    sources: Sources,
    new: NewSession,
    kind: SessionKind,
    scope: str,
    *,
    source: SessionState | None = None,
    leaf: str | None = None,
    task_depth: int = 0,
) -> PlannedSession:
    """Return a session that is to be made. Raises `SessionExists`."""
    if new.key is not None:
        taken = get_session_by_key(tx, new.key, scope)
        if taken is not None:
            raise SessionExists(
                new.key,
                detail=f"a session with key {new.key!r} already exists in scope {scope!r} ({taken.id}); "
                "open it with mode='get' or 'get_or_create'",
            )
    session_id = sources.session_id() if new.id is None else new.id
    names = NO_TASK_NAMES
    # A generated id that is taken meets the unique key, and the transaction is run again with another.
    if new.id is not None:
        is_taken, parent = tx.first(sessions_sql.ID_TAKEN, id=session_id) or (None, None)
        if is_taken is not None:
            raise SessionExists(session_id)
        names = sessions_sql.task_of(kind, task_depth, None if parent is None else json.loads(parent))
    session_key = tx.new_key()
    now = sources.now_us()
    created = now if new.created_us is None else new.created_us
    row = SessionRow(
        session_key=session_key,
        id=session_id,
        scope=scope,
        key=new.key,
        title=new.title,
        kind=kind,
        task_depth=task_depth,
        forked_from_session=None if source is None else source.id,
        forked_from_entry=leaf,
        leaf=leaf,
        revision=0,
        metadata=new.metadata_text,
        cwd=new.cwd,
        config_path=new.config_path,
        created_at=created,
        updated_at=now,
        auto_title=new.auto_title,
        active_at=created,
        active_slot=slot_of(created),
    )
    return PlannedSession(session_key if source is None else source.tree_id, row, names)


def fork(
    tx: Transaction,
    sources: Sources,
    session_id: str,
    at: LeafChoice,
    new: NewSession,
    expected: Expected,
    idempotency_key: str | None,
    scope: str | None = None,
    drawn_id: str | None = None,
) -> SessionInfo:
    """Create a session whose leaf is an existing entry (see `Backend.fork`)."""
    planned = plan_fork(tx, sources, session_id, at, new, expected, idempotency_key, scope, drawn_id)
    return planned if isinstance(planned, SessionInfo) else planned.write(tx)


@dataclass(frozen=True)
class PlannedFork:
    """A fork that was checked and not yet written.

    Where it is ``used_again``, its id is that of a deleted session whose forks are in the tree: they must not seem to
    be made of the new one.
    """

    source: SessionState
    session: PlannedSession
    idempotency_key: str | None
    digest: bytes
    used_again: bool = False

    @property
    def result(self) -> SessionInfo:
        """The session it makes."""
        return self.session.info

    def write(self, tx: Transaction) -> SessionInfo:
        """Write it; return the session."""
        if self.used_again:
            tx.run(sessions_sql.FORGET_SOURCE, tree_id=self.session.tree_id, id=self.session.row.id)
        info = _insert_session(tx, self.session)
        if (request := self.request) is not None:
            tx.insert(INSERT_REQUEST, [request])
        return info

    @property
    def request(self) -> RequestRow | None:
        """The id as it is stored under the idempotency key, where there is one."""
        return request_row(self.source, self.idempotency_key, "fork", self.digest, self.session.row.id)


def plan_fork(
    tx: Transaction,
    sources: Sources,
    session_id: str,
    at: LeafChoice,
    new: NewSession,
    expected: Expected,
    idempotency_key: str | None,
    scope: str | None = None,
    drawn_id: str | None = None,
) -> PlannedFork | SessionInfo:
    """Return what a fork will write, or the session where this request has made it before. Writes nothing.

    ``drawn_id`` is an id that was made up for the fork: no other session has it or had it, and a retry has another.
    """
    state = read_state(tx, session_id)
    # What was asked for is the content: "at the stored leaf" stays the same request when the leaf moves on.
    asked = "stored leaf" if isinstance(at, Stored) else [at]
    further = {"id": new.id, "scope": scope, "cwd": None if new.cwd == state.cwd else new.cwd}
    named = [{name: text for name, text in further.items() if text is not None}]
    described = (asked, new.key, new.title, new.metadata_text, *(named if named[0] else ()))
    digest = b"" if idempotency_key is None else content_digest(*described)
    stored = replayed_result(tx, state, idempotency_key, "fork", digest)
    if stored is not None:
        return replayed_session(tx, json.loads(stored))
    state.require(expected)
    leaf, _ = place(tx, state, at)
    scope = state.scope if scope is None else scope
    named_or_drawn = new if drawn_id is None else replace(new, id=drawn_id)
    session = _plan_session(tx, sources, named_or_drawn, "fork", scope, source=state, leaf=leaf)
    is_used_again = (
        new.id is not None and tx.first(sessions_sql.FORK_OF_ID, tree_id=state.tree_id, id=new.id) is not None
    )
    return PlannedFork(state, session, idempotency_key, digest, is_used_again)


def replayed_session(tx: Transaction, session_id: str) -> SessionInfo:
    """Return the session that a request made before. Raises `SessionNotFound` if it has been deleted since."""
    info = get_session(tx, session_id, None)
    if info is None:
        raise SessionNotFound(
            session_id, detail=f"session {session_id!r}, which this request created before, has been deleted since"
        )
    return info


def create_task(
    tx: Transaction,
    sources: Sources,
    parent_id: str,
    task_id: str,
    new: NewSession,
    expected: Expected,
    idempotency_key: str | None,
    max_depth: int,
) -> SessionInfo:
    """Create a task session and its link, or return the one that is there (see `Backend.create_task`)."""
    check_name(task_id, "task_id")
    state = read_state(tx, parent_id)
    digest = b"" if idempotency_key is None else content_digest(task_id, new.key, new.title, new.metadata_text)
    stored = replayed_result(tx, state, idempotency_key, "task", digest)
    if stored is not None:
        return replayed_session(tx, json.loads(stored))
    info = _linked_child(tx, state, task_id)
    if info is None:
        state.require(expected)
        depth = state.task_depth + 1
        if depth > max_depth:
            raise TaskDepthExceeded(
                f"session {parent_id!r}: Maximum task depth ({max_depth}) exceeded; "
                "start the task from a session further up"
            )
        child = replace(new, metadata_text=without_parent(new.metadata_text))
        made = _insert_session(tx, _plan_session(tx, sources, child, "task", state.scope, task_depth=depth))
        _insert_link(tx, sources, state, task_id, made.id, state.leaf, "running")
        info = require_session(tx, made.id)
    remember_result(tx, state, idempotency_key, "task", digest, info.id)
    return info


def _linked_child(tx: Transaction, state: SessionState, task_id: str) -> SessionInfo | None:
    for (child_id,) in tx.rows(tasks_sql.TASK_CHILD, parent_key=state.key, task_id=task_id):
        info = get_session(tx, child_id, None)
        if info is not None:
            return info
    return None


def link_task(
    tx: Transaction,
    sources: Sources,
    parent_id: str,
    child_id: str,
    task_id: str,
    entry_id: str | None,
    expected: Expected,
) -> None:
    """Link a task session to a parent (see `Backend.link_task`)."""
    check_name(task_id, "task_id")
    check_name(child_id, "child session id")
    check_name(entry_id, "entry_id")
    state = read_state(tx, parent_id)
    state.require(expected)
    _insert_link(tx, sources, state, task_id, child_id, entry_id)
    parents = tx.first(tasks_sql.PARENTS_OF_CHILD, child_id=child_id)
    if parents == (1,):
        # A task that waited for its parent is as deep as that says, and so are its own.
        _sink(tx, sources, child_id, state.task_depth + 1)


def _sink(tx: Transaction, sources: Sources, child_id: str, depth: int) -> None:
    """Note how deep a task is, and those below it: where that is new it is a revision, so that copies notice."""
    where = tasks_sql.DepthChild(child_id=child_id, depth=depth)
    keys = [key for key, *_ in tx.rows(tasks_sql.SUNK_TASKS, **where)]
    if not keys:
        return
    tx.lock_sessions(keys)
    at = sources.now_us()
    for key, session_id, revision, before, after in tx.rows(tasks_sql.SUNK_TASKS, **where):
        tx.states.pop(session_id, None)
        tx.run(tasks_sql.UPDATE_DEPTH, task_depth=after, session_key=key)
        write_revision(tx, key, revision + 1, [Edit("depth", before=str(before), after=str(after))], NO_NOTE, at)


def _insert_link(
    tx: Transaction,
    sources: Sources,
    state: SessionState,
    task_id: str,
    child_id: str,
    entry_id: str | None,
    status: TaskStatus | None = None,
) -> None:
    linked = tx.first(tasks_sql.LINKED_CHILD, parent_key=state.key, child_id=child_id)
    if linked is None:
        (position,) = tx.first(tasks_sql.NEXT_POSITION, parent_key=state.key) or (0,)
        tx.insert(INSERT_LINK, [LinkRow(state.key, position, task_id, child_id, entry_id, status)])
    elif linked == (None,) and entry_id is not None:
        tx.run(tasks_sql.PLACE_LINK, parent_key=state.key, child_id=child_id, entry_id=entry_id)
    else:
        return
    write_edits(tx, sources, state, [Edit("task", after=child_id)], NO_NOTE)


def write_edits(tx: Transaction, sources: Sources, state: SessionState, edits: Sequence[Edit], note: Note) -> None:
    """Write down what was changed beside the history, and count one revision."""
    write_revision(tx, state.key, state.revision + 1, edits, note, sources.now_us())


def write_revision(
    tx: Transaction, session_key: int, revision: int, edits: Sequence[Edit], note: Note, at: int
) -> None:
    """Write down a revision of a session, and what was changed at it beside the history."""
    tx.run(sessions_sql.UPDATE_REVISION, revision=revision, at=at, session_key=session_key)
    tx.insert(INSERT_EDIT, [edit_row(session_key, revision, edit, note, at) for edit in edits])


def edit_row(session_key: int, revision: int, edit: Edit, note: Note, at: int) -> EditRow:
    """Return an edit as it is stored."""
    return EditRow(session_key, revision, edit.what, edit.entry_id, edit.before, edit.after, note.by, note.why, at)
