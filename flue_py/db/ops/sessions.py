"""Sessions: pages of them, making them, forks and tasks, and reading windows and trees."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from typing import Literal

from msgspec.structs import replace

from flue_py import errors
from flue_py.core import sessions
from flue_py.core.chain import NO_PARENT
from flue_py.core.context import begins_turn
from flue_py.core.entries import Entry
from flue_py.core.json import Frozen
from flue_py.core.kinds import MESSAGE, USER
from flue_py.core.ledger import LinkRow, MoveRow, RequestRow, SessionRow
from flue_py.core.operations import CreateTask, EndTask, LinkTask
from flue_py.core.usage import NO_USAGE, NOTHING_PAID, Usage, UsageWindow, usage_of_window
from flue_py.db import sql
from flue_py.db.ops import base
from flue_py.db.ops.seals import check_heads, head_of_row, links_of, put_link, read_rows_of_log, renew_heads, write_log
from flue_py.db.runner import (
    Nothing,
    Pages,
    Parameters,
    Plan,
    Position,
    Row,
    SessionState,
    Sources,
    Statement,
    Sums,
    Transaction,
    collector_held,
    sums_of,
)
from flue_py.db.sql import EntryColumns, columns, keyed, quoted, select, session_of, sessions_of, statement

# ---------------------------------------------------------------------------------------------------------------------
# Pages of sessions.

# How many sessions are read at a time where each is looked at.
_CANDIDATES = 256


def list_sessions(tx: Transaction, listing: sessions.Listing, limit: int, cursor: str | None) -> sessions.SessionPage:
    """Return a page of sessions (see `Backend.list_sessions`)."""
    if limit < 1:
        raise errors.InvalidArgument(f"limit: {limit!r} is not a number of sessions; ask for at least 1")
    ordering, where = listing.ordering, listing.where
    last = None if cursor is None else sessions.read_cursor(cursor, ordering)
    if not where.can_match or (listing.scope is not None and not sessions.is_storable(listing.scope)):
        return sessions.SessionPage((), unchecked=not tx.chain.checks)
    infos: list[sessions.SessionInfo] = []
    damaged: dict[str, None] = {}
    # No database compares JSON exactly as it was given: of metadata, what may be meant is looked at here.
    count = max(limit + 1, _CANDIDATES) if where.metadata else limit + 1
    while True:
        sound, others = _sessions_after(tx, listing, last, count)
        damaged |= dict.fromkeys(others)
        infos += filter(where.has_metadata, sound) if where.metadata else sound
        if len(sound) + len(others) < count or len(infos) > limit:
            break
        tx.require_snapshot()
        if sound:
            last = sessions.Place(sessions.sort_value(sound[-1], ordering.order), sound[-1].session_key)
        else:
            # The place of a damaged one may be anywhere.
            count *= 2
    page, next_cursor = tuple(infos[:limit]), None
    if len(infos) > limit:
        end = sessions.Place(sessions.sort_value(page[-1], ordering.order), page[-1].session_key)
        next_cursor = sessions.write_cursor(ordering, end)
    return sessions.SessionPage(page, next_cursor, tuple(damaged), unchecked=not tx.chain.checks)


# What a listing is sorted by. Every append changes the counters, so that no index has them (decision 0003): a page by
# one of them reads all sessions.
_SORTED_BY: dict[sessions.SessionOrder, str] = {
    "activity": "s.active_at",
    "updated": "s.updated_at",
    "created": "s.created_at",
    "title": "substr(COALESCE(NULLIF(s.title, ''), NULLIF(s.auto_title, ''), ''), 1, 200)",
    "messages": "s.message_count",
    "entries": "s.entry_count",
    "tokens": "s.spent_tokens",
    "cost": "s.spent_cost",
}
# These have an index of their own, whatever the scope.
_INDEXED: frozenset[sessions.SessionOrder] = frozenset({"created", "title"})
_SHOWN_TITLE = "lower(COALESCE(NULLIF(s.title, ''), NULLIF(s.auto_title, ''), NULLIF(s.key, ''), s.first_message, ''))"
_WHERE = {
    "title": f"{sql.PLACE_IN}({_SHOWN_TITLE}, :title_part) > 0",
    "scope": "s.scope = :scope",
    "scopes": f"s.scope {sql.IN_IDS}",
    "scope_prefix": "s.scope >= :prefix AND s.scope < :end_prefix",
    # What is read into more than this says is compared by `SessionFilter.has_metadata`. What links say is in no text.
    "metadata": f"({sql.PLACE_IN}(s.metadata, :needle) > 0 OR (:asks_links = 1 AND EXISTS"
    " (SELECT 1 FROM task_links t WHERE t.child_id = s.id)))",
    "kind": "s.kind = :kind",
    "key": "s.key = :key",
    "cwd": "s.cwd = :cwd",
    "completed": "(s.completed_at IS NOT NULL) = (:completed = 1)",
}


@lru_cache(maxsize=256)
def session_page(ordering: sessions.Ordering, filters: frozenset[str], *, is_first: bool) -> Statement[Row]:
    """Return the statement for a page of sessions in an order, filtered by these.

    Unless it ``is_first``, it begins behind the session with ``last_number`` (``last_text``, for titles) and
    ``last_key``.
    """
    value, way = _SORTED_BY[ordering.order], "DESC" if ordering.descending else "ASC"
    conditions = ["s.trashed_at IS NULL", *(_WHERE[name] for name in sorted(filters))]
    if ordering.order in _INDEXED:
        conditions = [condition.replace("s.scope", sql.SCOPE_OF_ROW) for condition in conditions]
    by = [f"{value} {way}", f"s.session_key {way}"]
    if ordering.order == "activity":
        # By the slot, which an index has, and by the exact time within a slot (decision 0003).
        by.insert(0, f"s.active_slot {way}")
        # Without a bound, newer SQLites (3.53) sort all sessions.
        conditions.append(f"s.active_slot > {-(2**62)}")
    if not is_first:
        last = "last_text" if ordering.order == "title" else "last_number"
        below = "<" if ordering.descending else ">"
        # The first of the two says where in an index to begin: SQLite does not see it in a pair with an expression.
        start = (
            f"s.active_slot {below}= (:{last} >> {sessions.SLOT_BITS})" if len(by) > 2 else f"{value} {below}= :{last}"
        )
        conditions.append(f"{start} AND ({value}, s.session_key) {below} (:{last}, :last_key)")
    order = ", ".join(by)
    tail = f"WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT :count"
    return statement(Row)(f"SELECT {sql.SESSION} FROM sessions s {tail}")


def _sessions_after(
    tx: Transaction, listing: sessions.Listing, last: sessions.Place | None, count: int
) -> tuple[list[sessions.SessionInfo], list[str]]:
    """Return the first sessions behind a place that match, except for their metadata, and the ids of damaged ones."""
    where = listing.where
    asked = where.asked
    asked |= {name: value for name, value in (("scope", listing.scope), ("kind", listing.kind)) if value is not None}
    prefix = where.scope_prefix or ""
    parameters: dict[str, object] = {
        **asked,
        "count": count,
        "title_part": asked.get("title"),
        "completed": int(where.completed is True),
        "ids": json.dumps([scope for scope in where.scopes or () if sessions.is_storable(scope)]),
        "prefix": prefix,
        "end_prefix": sessions.above_prefix(prefix),
        "needle": where.needle,
        "asks_links": int(where.asks_links),
    }
    if last is not None:
        parameters |= {"last_text": last.value, "last_number": last.value, "last_key": last.number}
    statement = session_page(listing.ordering, frozenset(asked), is_first=last is None)
    pages = tx.pages(statement, **{name: parameters[name] for name in statement.parameters})
    return sessions_of(tx.chain, chain.from_iterable(pages))


def session_heads(tx: Transaction) -> Sequence[sessions.SessionHead]:
    """Return the head of every session (see `Backend.session_heads`)."""
    heads = tx.rows(sql.SESSION_HEADS)
    for head in heads:
        # Nothing else is checked of a session that is only counted.
        if not (isinstance(head.entry_count, int) and isinstance(head.revision, int)):
            raise errors.damaged_session(head.id)
    return heads


# Entries with their payloads, and the pictures and the large texts that are stored apart.
_APART = "blobs b ON b.tree_id = e.tree_id AND b.sha256 ="
STORED_BYTES = statement(tuple[str, int])(
    "SELECT s.id, CAST(SUM(p.size) AS BIGINT) FROM sessions s JOIN ("
    f"SELECT e.session_key, LENGTH(COALESCE({sql.PAYLOAD_BYTES}, e.packed, b.data)) AS size"
    f" FROM entries e LEFT JOIN {_APART} e.blob UNION ALL SELECT e.session_key, LENGTH(b.data) FROM attachments a"
    " JOIN entries e ON e.tree_id = a.tree_id AND e.lane_id = a.lane_id AND e.depth = a.depth"
    f" JOIN {_APART} a.sha256) p ON p.session_key = s.session_key GROUP BY s.id"
)


def stored_bytes(tx: Transaction) -> dict[str, int]:
    """Return how many bytes of payload each session has (see `Backend.stored_bytes`)."""
    return dict(tx.rows(STORED_BYTES))


# ---------------------------------------------------------------------------------------------------------------------
# Creating sessions, forks and tasks; and writing down what is changed of a session beside its history.


SESSION_BY_ID = statement(Row)(f"SELECT {sql.SESSION} FROM sessions s WHERE s.id = :id AND s.trashed_at IS NULL")


def get_session(tx: Transaction, session_id: str, scope: str | None) -> sessions.SessionInfo | None:
    """Return a session, or None (see `Backend.get_session`)."""
    row = tx.first(SESSION_BY_ID, id=session_id) if sessions.is_storable(session_id) else None
    info = None if row is None else session_of(tx.chain, row)
    if info is None or (scope is not None and info.scope != scope):
        return None
    sessions.require_meant(session_id, info.session_key)
    return info


SESSION_BY_KEY = statement(Row)(
    f"SELECT {sql.SESSION} FROM sessions s WHERE s.scope = :scope AND s.key = :key AND s.key IS NOT NULL"
    " AND s.trashed_at IS NULL"
)


def get_session_by_key(tx: Transaction, key: str, scope: str) -> sessions.SessionInfo | None:
    """Return the session with a key, or None."""
    if not (sessions.is_storable(key) and sessions.is_storable(scope)):
        return None
    row = tx.first(SESSION_BY_KEY, key=key, scope=scope)
    return None if row is None else session_of(tx.chain, row)


def require_session(tx: Transaction, session_id: str) -> sessions.SessionInfo:
    """Return a session. Raises `SessionNotFound`."""
    info = get_session(tx, session_id, None)
    if info is None:
        raise errors.SessionNotFound(session_id)
    return info


def create_session(tx: Transaction, sources: Sources, new: sessions.NewSession) -> sessions.SessionInfo:
    """Create a root session, or a task session that waits for its parent (see `Backend.create_session`)."""
    depth = 1 if new.kind == "task" else 0
    return _insert_session(tx, _plan_session(tx, sources, new, new.kind, new.scope, task_depth=depth))


def _insert_session(tx: Transaction, planned: PlannedSession) -> sessions.SessionInfo:
    tx.insert(sql.INSERT_SESSION, [(planned.tree_id, *planned.row)])
    return planned.info


class PlannedSession(Frozen):
    """A session that is to be made: its tree, its row, and its place among tasks by links that were made before it."""

    tree_id: int
    row: SessionRow
    task_names: sessions.TaskNames

    @property
    def info(self) -> sessions.SessionInfo:
        """The session as it will be."""
        columns = (getattr(self.row, column) for column in sql.SESSION_COLUMNS)
        return sessions.SessionInfo(*(*columns, self.task_names))


# Whether an id is taken, and by which link a session with that id would be found: links may be made before it.
ID_TAKEN = statement(tuple[int | None, str | None])(
    f"SELECT (SELECT 1 FROM sessions s WHERE s.id = :id AND s.trashed_at IS NULL), {sql.LINK_TO_ID_AS_JSON}"
)


def _plan_session(
    tx: Transaction,
    sources: Sources,
    new: sessions.NewSession,
    kind: sessions.SessionKind,
    scope: str,
    *,
    source: SessionState | None = None,
    leaf: Position | None = None,
    task_depth: int = 0,
) -> PlannedSession:
    """Return a session that is to be made. Raises `SessionExists`."""
    if new.key is not None:
        taken = get_session_by_key(tx, new.key, scope)
        if taken is not None:
            raise errors.SessionExists(
                new.key,
                detail=f"a session with key {new.key!r} already exists in scope {scope!r} ({taken.id}); "
                "open it with mode='get' or 'get_or_create'",
            )
    session_id = sources.session_id() if new.id is None else new.id
    names = sessions.NO_TASK_NAMES
    # A generated id that is taken meets the unique key, and the transaction is run again with another.
    if new.id is not None:
        is_taken, parent = tx.first(ID_TAKEN, id=session_id) or (None, None)
        if is_taken is not None:
            raise errors.SessionExists(session_id)
        names = sql.task_of(kind, task_depth, None if parent is None else json.loads(parent))
    session_key = tx.new_key()
    tree_id = session_key if source is None else source.tree_id
    now = sources.now_us()
    created = now if new.created_us is None else new.created_us
    leaf_id = None if leaf is None else leaf.id
    row = SessionRow(
        session_key=session_key,
        id=session_id,
        scope=scope,
        key=new.key,
        title=new.title,
        kind=kind,
        task_depth=task_depth,
        forked_from_session=None if source is None else source.id,
        forked_from_entry=leaf_id,
        leaf=leaf_id,
        revision=0,
        metadata=new.metadata_text,
        cwd=new.cwd,
        config_path=new.config_path,
        created_at=created,
        updated_at=now,
        auto_title=new.auto_title,
        active_at=created,
        active_slot=sessions.slot_of(created),
    )
    head = head_of_row(tx.chain, tree_id, row, NO_PARENT if leaf is None else leaf.digest)
    return PlannedSession(tree_id, row._replace(head=head), names)


# Where the id of a deleted session is used again, its forks name none: the marks of the new one are not theirs to see.
FORGET_SOURCE = statement(Nothing)(
    "UPDATE sessions SET forked_from_session = NULL WHERE tree_id = :tree_id AND forked_from_session = :id"
)


class PlannedFork(Plan[sessions.SessionInfo]):
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
    def result(self) -> sessions.SessionInfo:
        """The session it makes."""
        return self.session.info

    def write(self, tx: Transaction) -> sessions.SessionInfo:
        """Write it; return the session."""
        if self.used_again:
            forks = {"tree_id": self.session.tree_id, "id": self.session.row.id}
            keys = [key for (key,) in tx.rows(FORKS_OF_ID, **forks)]
            tx.lock_sessions(keys)
            check_heads(tx, keys)
            tx.run(FORGET_SOURCE, **forks)
            renew_heads(tx, keys)
        info = _insert_session(tx, self.session)
        if (request := self.request) is not None:
            tx.insert(sql.INSERT_REQUEST, [request])
        return info

    @property
    def request(self) -> RequestRow | None:
        """The id as it is stored under the idempotency key, where there is one."""
        return base.request_row(self.source, self.idempotency_key, "fork", self.digest, self.session.row.id)


FORKS_OF_ID = statement(tuple[int])(
    "SELECT f.session_key FROM sessions f WHERE f.tree_id = :tree_id AND f.forked_from_session = :id"
)


def plan_fork(
    tx: Transaction,
    sources: Sources,
    session_id: str,
    at: sessions.LeafChoice,
    new: sessions.NewSession,
    expected: sessions.Expected,
    idempotency_key: str | None,
    scope: str | None = None,
    drawn_id: str | None = None,
) -> PlannedFork | sessions.SessionInfo:
    """Return the plan of a fork, or the session where this request has made it before. Writes nothing.

    ``drawn_id`` is an id that was made up for the fork: no other session has it or had it, and a retry has another.
    """
    state = base.read_state(tx, session_id)
    # What was asked for is the content: "at the stored leaf" stays the same request when the leaf moves on.
    leaves = "stored leaf" if isinstance(at, sessions.Stored) else [at]
    further = {"id": new.id, "scope": scope, "cwd": None if new.cwd == state.cwd else new.cwd}
    named = [{name: text for name, text in further.items() if text is not None}]
    described = (leaves, new.key, new.title, new.metadata_text, *(named if named[0] else ()))
    digest = b"" if idempotency_key is None else base.content_digest(*described)
    if (stored := base.replayed_result(tx, state, idempotency_key, "fork", digest)) is not None:
        return replayed_session(tx, json.loads(stored))
    state.require(expected)
    _, leaf = base.place(tx, state, at)
    scope = state.scope if scope is None else scope
    named_or_drawn = new if drawn_id is None else replace(new, id=drawn_id)
    session = _plan_session(tx, sources, named_or_drawn, "fork", scope, source=state, leaf=leaf)
    is_used_again = new.id is not None and tx.first(FORKS_OF_ID, tree_id=state.tree_id, id=new.id) is not None
    return PlannedFork(state, session, idempotency_key, digest, is_used_again)


def replayed_session(tx: Transaction, session_id: str) -> sessions.SessionInfo:
    """Return the session that a request made before. Raises `SessionNotFound` if it has been deleted since."""
    info = get_session(tx, session_id, None)
    if info is None:
        raise errors.SessionNotFound(
            session_id, detail=f"session {session_id!r}, which this request created before, has been deleted since"
        )
    return info


def create_task(tx: Transaction, sources: Sources, operation: CreateTask) -> sessions.SessionInfo:
    """Create a task session and its link, or return the one that is there (see `Backend.create_task`)."""
    parent_id, task_id, idempotency_key = operation.session_id, operation.task_id, operation.idempotency_key
    new = replace(operation.new, id=operation.session_made)
    sessions.check_name(task_id, "task_id")
    state = base.read_state(tx, parent_id)
    digest = b"" if idempotency_key is None else base.content_digest(task_id, new.key, new.title, new.metadata_text)
    if (stored := base.replayed_result(tx, state, idempotency_key, "task", digest)) is not None:
        return replayed_session(tx, json.loads(stored))
    info = _linked_child(tx, state, task_id)
    if info is None:
        state.require(operation.expected)
        depth = state.task_depth + 1
        if depth > operation.max_depth:
            raise errors.TaskDepthExceeded(
                f"session {parent_id!r}: Maximum task depth ({operation.max_depth}) exceeded; "
                "start the task from a session further up"
            )
        child = replace(new, metadata_text=sessions.without_parent(new.metadata_text))
        session = _insert_session(tx, _plan_session(tx, sources, child, "task", state.scope, task_depth=depth))
        _insert_link(tx, sources, state, task_id, session.id, state.leaf, "running")
        info = require_session(tx, session.id)
    base.remember_result(tx, state, idempotency_key, "task", digest, info.id)
    return info


TASK_CHILD = statement(tuple[str])(
    "SELECT t.child_id FROM task_links t WHERE t.parent_key = :parent_key AND t.task_id = :task_id ORDER BY t.position"
)


def _linked_child(tx: Transaction, state: SessionState, task_id: str) -> sessions.SessionInfo | None:
    for (child_id,) in tx.rows(TASK_CHILD, parent_key=state.key, task_id=task_id):
        if (info := get_session(tx, child_id, None)) is not None:
            return info
    return None


def link_task(tx: Transaction, sources: Sources, operation: LinkTask) -> None:
    """Link a task session to a parent (see `Backend.link_task`)."""
    child_id = operation.child_id
    sessions.check_name(operation.task_id, "task_id")
    sessions.check_name(child_id, "child session id")
    sessions.check_name(operation.entry_id, "entry_id")
    state = base.read_state(tx, operation.session_id)
    state.require(operation.expected)
    _insert_link(tx, sources, state, operation.task_id, child_id, operation.entry_id)
    if len(tx.rows(PARENT_KEYS, child_id=child_id)) == 1:
        # A task that waited for its parent is as deep as that says, and so are its own.
        _sink(tx, sources, child_id, state.task_depth + 1)


# Links may go round in circles: each session is as deep as the shortest way to it.
SUNK_TASKS = statement(tuple[int, str, int, int])(
    "WITH RECURSIVE below(id, depth) AS (SELECT s.id, CAST(:depth AS BIGINT) FROM sessions s WHERE s.id = :child_id"
    " UNION SELECT t.child_id, b.depth + 1 FROM below b JOIN sessions p ON p.id = b.id"
    " JOIN task_links t ON t.parent_key = p.session_key WHERE b.depth < 100)"
    " SELECT s.session_key, s.id, s.task_depth, MIN(b.depth) FROM below b CROSS JOIN sessions s ON s.id = b.id"
    " WHERE s.kind = 'task' GROUP BY s.session_key, s.id, s.task_depth HAVING MIN(b.depth) <> s.task_depth"
    " ORDER BY s.session_key"
)
UPDATE_DEPTH = statement(Nothing)("UPDATE sessions SET task_depth = :task_depth WHERE session_key = :session_key")


def _sink(tx: Transaction, sources: Sources, child_id: str, depth: int) -> None:
    """Note how deep a task is, and those below it: where that is new it is a revision, so that copies notice."""
    where = {"child_id": child_id, "depth": depth}
    keys = [key for key, *_ in tx.rows(SUNK_TASKS, **where)]
    if not keys:
        return
    tx.lock_sessions(keys)
    for _, session_id, before, after in tx.rows(SUNK_TASKS, **where):
        state = replace(base.read_state(tx, session_id), task_depth=after)
        tx.run(UPDATE_DEPTH, task_depth=after, session_key=state.key)
        write_edits(
            tx, sources, state, [sessions.Edit("depth", before=str(before), after=str(after))], sessions.NO_NOTE
        )


NEXT_POSITION = statement(tuple[int])(
    "SELECT COALESCE(MAX(t.position) + 1, 0) FROM task_links t WHERE t.parent_key = :parent_key"
)
LINKED_CHILD = select(LinkRow, "t", "task_links t WHERE t.parent_key = :parent_key AND t.child_id = :child_id")


def _insert_link(
    tx: Transaction,
    sources: Sources,
    state: SessionState,
    task_id: str,
    child_id: str,
    entry_id: str | None,
    status: sessions.TaskStatus | None = None,
) -> None:
    linked = tx.first(LINKED_CHILD, parent_key=state.key, child_id=child_id)
    if linked is None:
        (position,) = tx.first(NEXT_POSITION, parent_key=state.key) or (0,)
        put_link(tx, state, LinkRow(state.key, position, task_id, child_id, entry_id, status))
    elif linked.entry_id is None and entry_id is not None:
        put_link(tx, state, linked._replace(entry_id=entry_id))
    else:
        return
    write_edits(tx, sources, state, [sessions.Edit("task", after=child_id)], sessions.NO_NOTE)


def write_edits(
    tx: Transaction,
    sources: Sources,
    state: SessionState,
    edits: Sequence[sessions.Edit],
    note: sessions.Note,
    at: int | None = None,
) -> None:
    """Write down changes beside the history, made now or at a time, and count one revision.

    Whoever has changed other columns of the session's row gives it its head afterwards.
    """
    revision, at = state.revision + 1, sources.now_us() if at is None else at
    after = replace(state, revision=revision, updated_at=at)
    write_log(tx, after, [], [base.edit_row(state.key, revision, edit, note, at) for edit in edits])
    base.write_state(tx, after)


# ---------------------------------------------------------------------------------------------------------------------
# Reading: windows and trees, as range scans over lanes.

_LAST_DEPTH = 2**62


def _usage_window(row: Row) -> tuple[int, str, Sums, Sums]:
    session_key, leaf, *ends = row
    return session_key, leaf, sums_of(ends[: len(sql.POSITION)]), sums_of(ends[len(sql.POSITION) :])


# Both ends of a usage window, whose difference it is where they lie in one lane.
WINDOW = statement(_usage_window)(
    f"SELECT s.session_key, s.leaf, {columns('a', sql.POSITION)}, {columns('e', sql.POSITION)} FROM sessions s"
    " JOIN entries e ON e.tree_id = s.tree_id AND e.id = s.leaf"
    " JOIN entries a ON a.tree_id = s.tree_id AND a.id = :entry_id"
    + sql.LIVING
    + " AND NOT EXISTS (SELECT 1 FROM marks m"
    " WHERE m.session_key = s.session_key AND m.entry_id = :entry_id AND m.kind = 'retracted')"
)


def read_usage(
    tx: Transaction, session_id: str, since: str | None, *, leaf: sessions.LeafChoice = sessions.STORED
) -> UsageWindow:
    """Return a usage window (see `Backend.read_usage`)."""
    if (
        isinstance(leaf, sessions.Stored)
        and since is not None
        and sessions.is_storable(session_id)
        and sessions.is_storable(since)
    ):
        ends = tx.first(WINDOW, id=session_id, entry_id=since)
        if ends is not None:
            session_key, stored_leaf, before, until = ends
            sessions.require_meant(session_id, session_key)
            if before.lane_id == until.lane_id and before.depth <= until.depth:
                return _window(before, until, stored_leaf, since)
    tx.require_snapshot()
    state = base.read_state(tx, session_id)
    at, position = base.place(tx, state, leaf)
    if since is None:
        return _window(_NOTHING, position or _NOTHING, at, None)
    anchor = base.ancestor_of(tx, state, since, position)
    if anchor is None:
        return UsageWindow(Usage(), at, since, on_path=False)
    return _window(anchor, position or _NOTHING, at, since)


def locate(tx: Transaction, session_id: str, leaf: sessions.LeafChoice, since: str | None) -> Parameters | None:
    """Return where a stretch of path is, as statements over it take it; None where ``since`` is not on the path."""
    state = base.read_state(tx, session_id)
    _, position = base.place(tx, state, leaf)
    above = -1
    if since is not None:
        anchor = base.ancestor_of(tx, state, since, position)
        if anchor is None:
            return None
        above = anchor.depth
    lane_id, depth = (-1, -1) if position is None else (position.lane_id, position.depth)
    return {"tree_id": state.tree_id, "lane_id": lane_id, "depth": depth, "low_depth": above}


_NOTHING = Sums(-1, -1, NO_USAGE, NOTHING_PAID)


def _window(before: Position | Sums, until: Position | Sums, leaf: str | None, since: str | None) -> UsageWindow:
    """Return the usage between two places of a path."""
    paid = until.paid.minus(before.paid)
    used = until.totals.minus(before.totals)
    return UsageWindow(usage_of_window(used, paid), leaf, since, paid=paid, reported_cost=used.cost_total)


# The entries of a path, of which the messages of users alone have their payloads.
_ASKED = ", ".join(
    f"CASE WHEN e.kind = 'message' AND e.role = 'user' THEN {column} END"
    for column in (sql.PAYLOAD_BYTES, "e.packed", "e.blob")
)
LANE_TURNS = sql.entry_columns(sql.lane_range(sql.on_path(":low", _ASKED)))
SPANS_TURNS = sql.entry_columns(base.spans_range(sql.on_path(":low_depth", _ASKED)))


def read_turns(tx: Transaction, session_id: str, *, leaf: sessions.LeafChoice = sessions.STORED) -> list[Entry]:
    """Return the messages of the path that a turn begins with (see `Backend.read_turns`)."""
    state = base.read_state(tx, session_id)
    _, position = base.place(tx, state, leaf)
    if position is None:
        return []
    path = base.chained(tx, state, base.pages_of_path(tx, state, position, -1, LANE_TURNS, SPANS_TURNS))
    rows = [row for row in path if row[6] == MESSAGE and row[7] == USER]
    return [entry for entry in base.made_entries(tx, state, rows) if begins_turn(entry)]


_TO_ITS_END = 2**63 - 1
# The lanes that a session holds, each with the place that it forks from; its own to their ends.
HELD_LANES = statement(tuple[int, int | None, int, int])(
    f"{sql.WITH_HELD} SELECT h.lane_id, MIN(l.parent_lane), MIN(l.fork_depth), MAX(h.depth) FROM held h"
    " CROSS JOIN lanes l ON l.tree_id = :tree_id AND l.lane_id = h.lane_id GROUP BY h.lane_id"
)


def read_tree(tx: Transaction, session_id: str) -> list[Entry]:
    """Return every entry the session sees (see `Backend.read_tree`)."""
    state = base.read_state(tx, session_id)
    retracted = base.retracted_ids(tx, state)
    lanes = tx.rows(HELD_LANES, **base.held_by(state))
    with collector_held(sum(depth - low for *_, low, depth in lanes)):
        entries = base.entries_of_pages(tx, state, _pages_of_lanes(tx, state, lanes))
    fork_point = state.forked_from_entry
    if fork_point is not None and all(entry.id != fork_point for entry in entries):
        raise errors.damaged_entry(fork_point, "is not there", state.id)
    entries = [entry for entry in entries if entry.id not in retracted]
    inherited = [entry for entry in entries if entry.session_id != state.id]
    own = [entry for entry in entries if entry.session_id == state.id]
    if len(own) != state.entry_count:
        raise errors.damaged_path(state.id, len(own), state.entry_count)
    return sorted(inherited, key=attrgetter("depth")) + sorted(own, key=attrgetter("revision", "ordinal"))


def _pages_of_lanes(
    tx: Transaction, state: SessionState, lanes: Sequence[tuple[int, int | None, int, int]]
) -> Pages[EntryColumns]:
    """Yield the entries of lanes. Raises `CorruptStore` if one is not where its lane says, or another's."""
    places, forks = dict[tuple[int | None, int], str](), {(parent, low) for _, parent, low, _ in lanes}
    begins, creators = list[tuple[tuple[int | None, int], EntryColumns]](), set[int]()
    for lane_id, parent, low, end in lanes:
        depth = low
        where = {"tree_id": state.tree_id, "lane_id": lane_id, "low": low, "high": min(end, _LAST_DEPTH)}
        for page in tx.pages(sql.LANE_RANGE, **where):
            for row in page:
                depth += 1
                if row[0] != depth:
                    raise errors.damaged_entry(row[5], "is not where its lane says", state.id)
                if depth == low + 1:
                    begins.append(((parent, low), row))
                if (lane_id, depth) in forks:
                    places[lane_id, depth] = row[5]
                if end == _TO_ITS_END:
                    creators.add(row[4])
            yield page
    for place, row in begins:
        if places.get(place) != row[2]:
            raise errors.damaged_entry(row[5], "is not where its lane says", state.id)
    others = creators - {state.key}
    # Who is there continues only lanes of its own.
    if others and not others.isdisjoint(key for key, _ in tx.rows(sql.SESSION_IDS, tree_id=state.tree_id)):
        raise errors.damaged_session(state.id)


def taken_entry_ids(tx: Transaction, session_id: str, ids: Sequence[str]) -> set[str]:
    """Return those of the ids that entries of the session's tree have (see `Backend.taken_entry_ids`)."""
    return base.taken_ids(tx, base.read_state(tx, session_id), ids)


ENTRY_IDS_FROM = statement(tuple[str])(
    f"SELECT e.id FROM entries e WHERE {sql.TREE_OF_ROW} = :tree_id AND e.id >= :prefix AND e.id < :end_prefix"
    " ORDER BY e.id LIMIT :count"
)


def match_entry_ids(tx: Transaction, session_id: str, prefix: str, limit: int = 2) -> list[str]:
    """Return ids of visible entries that start with a prefix, in order of id."""
    state = base.read_state(tx, session_id)
    matches: list[str] = []
    if not sessions.is_storable(prefix):
        return matches
    after = prefix
    while len(matches) < limit:
        end = end_of_prefix(prefix)
        rows = tx.rows(ENTRY_IDS_FROM, tree_id=state.tree_id, prefix=after, end_prefix=end, count=64)
        for (entry_id,) in rows:
            if len(matches) < limit and base.find_visible(tx, state, entry_id) is not None:
                matches.append(entry_id)
        if len(rows) < 64:
            break
        after = rows[-1][0] + "\x01"
    return matches


def end_of_prefix(prefix: str) -> str:
    """Return a text above every text that starts with ``prefix`` (by code point)."""
    return prefix + "\U0010ffff"


def is_ancestor(tx: Transaction, session_id: str, entry_id: str, of: str) -> bool:
    """Return whether one entry is another or an ancestor of it."""
    state = base.read_state(tx, session_id)
    base.see_entry(tx, state, entry_id)
    return base.ancestor_of(tx, state, entry_id, base.see_entry(tx, state, of)) is not None


def common_ancestor(
    tx: Transaction,
    session_id: str,
    other_id: str,
    *,
    leaf: sessions.LeafChoice = sessions.STORED,
    other_leaf: sessions.LeafChoice = sessions.STORED,
) -> str | None:
    """Return the deepest entry on two paths (see `Backend.common_ancestor`): where their spans end together."""
    state = base.read_state(tx, session_id)
    second = base.read_state(tx, other_id)
    _, position = base.place(tx, state, leaf)
    _, other_position = base.place(tx, second, other_leaf)
    if state.tree_id != second.tree_id or position is None or other_position is None:
        return None
    spans = dict(tx.rows(sql.SPANS, **base.spans_of(state, position)))
    others = tx.rows(sql.SPANS, **base.spans_of(second, other_position))
    shared = [(min(spans[lane_id], high), lane_id) for lane_id, high in others if lane_id in spans]
    if not shared:
        return None
    depth, lane_id = max(shared)
    return base.id_at(tx, state.tree_id, lane_id, depth)


# All entries of some revisions, in no order: SQLite would go through the whole tree for one.
ENTRIES_OF_REVISIONS = sql.entry_columns(
    f"{sql.WITH_RANGES} SELECT {sql.on_path('r.low')} FROM ranges r"
    " CROSS JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = r.lane_id AND e.depth > r.low AND e.depth <= r.high"
)


_BY_PLACE = itemgetter(1, 0)


def changes(tx: Transaction, session_id: str, after: int, limit: int) -> list[sessions.Change]:
    """Return the next revisions of a session (see `Backend.changes`)."""
    state = base.read_state(tx, session_id)
    last = min(after + limit, state.revision)
    if last <= after:
        return []
    where = {"session_key": state.key, "revision": after, "last_revision": last}
    moves, _ = read_rows_of_log(tx, state, after, last)
    rows = tx.rows(ENTRIES_OF_REVISIONS, **where, tree_id=state.tree_id, leaf=state.leaf)
    entries = sorted(base.made_entries(tx, state, sorted(rows, key=_BY_PLACE)), key=attrgetter("revision", "ordinal"))
    added = {revision: tuple(of_it) for revision, of_it in groupby(entries, attrgetter("revision"))}
    return [
        _change(state.id, revision, added.get(revision, ()), moves.get(revision))
        for revision in range(max(after, 0) + 1, last + 1)
    ]


def readable_entries(tx: Transaction, session_id: str, after: int, last: int) -> tuple[list[Entry], list[str]]:
    """Return the readable entries of some revisions (see `Backend.readable_entries`)."""
    state, damaged = base.read_state(tx, session_id), list[str]()
    where = {"session_key": state.key, "revision": after, "last_revision": last}
    try:
        # They say in which lanes its entries are.
        read_rows_of_log(tx, state, after, last)
    except errors.CorruptStore as error:
        damaged.append(str(error))
    rows = tx.rows(ENTRIES_OF_REVISIONS, **where, tree_id=state.tree_id, leaf=state.leaf)
    entries = base.made_entries(tx, state, sorted(rows, key=_BY_PLACE), damaged=damaged)
    return sorted(entries, key=attrgetter("revision", "ordinal")), damaged


def _change(session_id: str, revision: int, entries: tuple[Entry, ...], moved: MoveRow | None) -> sessions.Change:
    if moved is not None:
        return sessions.Change(session_id, revision, moved.reason, entries, moved.from_entry, moved.to_entry, moved.at)
    if not entries:
        return sessions.Change(session_id, revision, None)
    reason_append: Literal["append"] = "append"
    first, last = entries[0], entries[-1]
    return sessions.Change(session_id, revision, reason_append, entries, first.parent_id, last.id, last.created_us)


SESSION_IDS_FROM = statement(tuple[str])(
    "SELECT s.id FROM sessions s WHERE s.id >= :prefix AND s.id < :end_prefix AND s.trashed_at IS NULL"
    " ORDER BY s.id LIMIT :count"
)


def match_session_ids(tx: Transaction, prefix: str, limit: int = 2) -> list[str]:
    """Return session ids that start with a prefix, in order of id."""
    if not sessions.is_storable(prefix):
        return []
    end = end_of_prefix(prefix)
    rows = tx.rows(SESSION_IDS_FROM, prefix=prefix, end_prefix=end, count=limit)
    return [session_id for (session_id,) in rows]


def task_links(tx: Transaction, session_id: str) -> list[sessions.TaskLink]:
    """Return a session's task links, in the order they were made."""
    key = require_session(tx, session_id).session_key
    return [_task_link(parent_id, link) for parent_id, link in links_of(tx, [key])]


def _task_link(parent_id: str, link: LinkRow) -> sessions.TaskLink:
    return sessions.TaskLink(parent_id, *link[1:-1])


PARENT_KEYS = statement(tuple[int])("SELECT t.parent_key FROM task_links t WHERE t.child_id = :child_id")


def task_parents(tx: Transaction, session_id: str) -> list[sessions.TaskLink]:
    """Return the links that point to a session, by parent id."""
    require_session(tx, session_id)
    keys = {key for (key,) in tx.rows(PARENT_KEYS, child_id=session_id)}
    return [_task_link(parent_id, link) for parent_id, link in links_of(tx, keys) if link.child_id == session_id]


def read_marks(tx: Transaction, session_id: str) -> list[sessions.Mark]:
    """Return the marks that a session sees, by entry id and kind."""
    return base.marks_of(tx, base.read_state(tx, session_id))


def read_revision(tx: Transaction, session_id: str) -> int | None:
    """Return the session's revision, or None where it is gone. Raises `SessionNotFound` as `get_session` does."""
    info = get_session(tx, session_id, None)
    return None if info is None else info.revision


# ---------------------------------------------------------------------------------------------------------------------
# How tasks end: what the links to them say.


def end_task(tx: Transaction, sources: Sources, operation: EndTask) -> sessions.SessionInfo:
    """Note how a task ended (see `Backend.end_task`)."""
    session_id, status, summary = operation.session_id, operation.status, operation.summary
    sessions.check_task_end(status, summary)
    links = _locked_links(tx, session_id)
    state = base.read_state(tx, session_id)
    state.require(operation.expected)
    if not links:
        raise errors.InvalidArgument(
            f"session {str(session_id)!r} is the task of no session; link it to its parent, or use set_completed()"
        )
    info = require_session(tx, session_id)
    changed = [of for of in links if (of[1].status, of[1].summary) != (status, summary)]
    if not changed and info.completed_us is not None:
        return info
    after = sessions.ended_task(info.id, status, summary)
    tx.run(sql.UPDATE_COMPLETED, session_key=state.key, completed_at=(at := sources.now_us()))
    states = {info.id: state}
    edits = {info.id: [sessions.Edit("completed", None, sessions.row_value(info, "completed"), str(at))]}
    for parent_id, link in changed:
        parent = states.get(parent_id) or states.setdefault(parent_id, base.read_state(tx, parent_id))
        before = sessions.ended_task(info.id, link.status, link.summary)
        edits.setdefault(parent_id, []).append(sessions.Edit("ended", None, before, after))
        put_link(tx, parent, link._replace(status=status, summary=summary))
    for session, its in edits.items():
        write_edits(tx, sources, states[session], its, operation.note, at)
    renew_heads(tx, [state.key])
    return require_session(tx, session_id)


PARENTS_LINKS = statement(keyed(str, LinkRow._make))(
    f"SELECT s.id, {quoted(LinkRow, 't')} FROM task_links t"
    " JOIN sessions s ON s.session_key = t.parent_key WHERE t.child_id = :child_id ORDER BY t.parent_key"
)


def _locked_links(tx: Transaction, session_id: str) -> Sequence[tuple[str, LinkRow]]:
    """Return the links to a session, with it and their parents locked, in the order in which deletion locks them."""
    locked: set[int] = set()
    while sessions.is_storable(session_id):
        links = tx.rows(PARENTS_LINKS, child_id=session_id)
        info = None if tx.is_alone or not links else get_session(tx, session_id, None)
        keys = set() if info is None else {info.session_key, *(link.parent_key for _, link in links)}
        if keys <= locked:
            return links
        tx.lock_sessions(keys)
        locked |= keys
    return ()
