"""How tasks end: what the links to them say."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.core.log import Edit, Note, ended_task, row_value
from flue_py.core.sessions import Expected, SessionInfo, TaskEnd, check_task_end, is_storable
from flue_py.errors import InvalidArgument
from flue_py.store.ops.sessions import get_session, require_session, write_revision
from flue_py.store.ops.state import read_state
from flue_py.store.seam import Sources, Transaction
from flue_py.store.sql import sessions as sessions_sql
from flue_py.store.sql import tasks as tasks_sql


def end_task(
    tx: Transaction,
    sources: Sources,
    session_id: str,
    status: TaskEnd,
    summary: str | None,
    expected: Expected,
    note: Note,
) -> SessionInfo:
    """Note how a task ended (see `Backend.end_task`)."""
    check_task_end(status, summary)
    links = _locked_links(tx, session_id)
    state = read_state(tx, session_id)
    state.require(expected)
    if not links:
        raise InvalidArgument(
            f"session {str(session_id)!r} is the task of no session; link it to its parent, or use set_completed()"
        )
    info = require_session(tx, session_id)
    changed = [link for link in links if (link.status, link.summary) != (status, summary)]
    if not changed and info.completed_us is not None:
        return info
    at = sources.now_us()
    tx.run(tasks_sql.END_LINKS, child_id=info.id, status=status, summary=summary)
    tx.run(sessions_sql.UPDATE_COMPLETED, session_key=state.key, completed_at=at)
    edits = {state.key: [Edit("completed", None, row_value(info, "completed"), str(at))]}
    revisions = {state.key: state.revision}
    after = ended_task(info.id, status, summary)
    for link in changed:
        # Which may be the session itself, and is another revision than was read before.
        tx.states.pop(link.parent_id, None)
        before = ended_task(info.id, link.status, link.summary)
        edits.setdefault(link.parent_key, []).append(Edit("ended", None, before, after))
        revisions.setdefault(link.parent_key, link.revision)
    for key, revision in revisions.items():
        write_revision(tx, key, revision + 1, edits[key], note, at)
    return require_session(tx, session_id)


def _locked_links(tx: Transaction, session_id: str) -> Sequence[tasks_sql.ParentsLink]:
    """Return the links to a session, with it and their parents locked, in the order in which deletion locks them."""
    locked: set[int] = set()
    while is_storable(session_id):
        links = tx.rows(tasks_sql.PARENTS_LINKS, child_id=session_id)
        info = None if tx.is_alone or not links else get_session(tx, session_id, None)
        keys = set() if info is None else {info.session_key, *(link.parent_key for link in links)}
        if keys <= locked:
            return links
        tx.lock_sessions(keys)
        locked |= keys
    return ()
