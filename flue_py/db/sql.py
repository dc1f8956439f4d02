"""Every statement, a file for each idea."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, cast

from msgspec.structs import replace

from flue_py.core.kinds import ARTIFACT
from flue_py.core.ledger import (
    AttachmentRow,
    BlobRow,
    BudgetRow,
    CallRow,
    EditRow,
    EntryRow,
    LaneRow,
    LinkRow,
    MarkRow,
    MoveRow,
    Payer,
    RequestRow,
    ReservationRow,
    SessionRow,
)
from flue_py.core.sessions import (
    IMPORTED_FILES,
    NO_TASK_NAMES,
    SLOT_BITS,
    DocumentRow,
    EditKind,
    LoggedMove,
    MoveReason,
    Note,
    Ordering,
    SessionHead,
    SessionInfo,
    SessionOrder,
    TaskLink,
    TaskNames,
)
from flue_py.core.usage import PAID_COLUMNS, TOTAL_COLUMNS, Paid, UsageTotals
from flue_py.db.runner import Insert, Nothing, Position, R, Reader, Row, SessionState, Statement

# ---------------------------------------------------------------------------------------------------------------------
# What differs between the databases in SQL: pieces of statements, as SQLite and as PostgreSQL has them.

# What sets our advisory keys apart from those of other programs in the same database.
WATCH_SEED = 7_161_021
CHANNEL = "flue_py"
ANNOUNCEMENT = (
    f"CASE WHEN pg_try_advisory_xact_lock(hashtextextended(id, {WATCH_SEED})) THEN NULL"
    f" ELSE pg_notify('{CHANNEL}', id) END"
)
_POSTGRES: dict[str, str] = {}


def _piece(sqlite: str, postgres: str) -> str:
    """Return a piece as SQLite has it, and have PostgreSQL's written in its place for PostgreSQL."""
    _POSTGRES[sqlite] = postgres
    return sqlite


def for_postgres(sql: str) -> str:
    """Return a statement for SQLite as PostgreSQL has it."""
    for sqlite, postgres in _POSTGRES.items():
        sql = sql.replace(sqlite, postgres)
    return sql


def statement(gives: type[R] | Reader[R]) -> Callable[[str], Statement[R]]:
    """Return a function that makes a statement of a text for SQLite."""
    return lambda sql: Statement(gives, sql, for_postgres(sql))


def announced(sql: str) -> Statement[Nothing]:
    """Return a statement that writes to sessions, and that wakes their watchers at commit on PostgreSQL.

    SQLite has no such thing; its watchers look. A watcher holds a shared advisory lock on the session while it listens.
    If there is none, nothing is sent: all commits that notify wait for each other in one queue of the whole database.
    """
    return Statement(Nothing, sql, f"{for_postgres(sql)} RETURNING {ANNOUNCEMENT}")


# Whether the column before it is one of the numbers of the JSON array ``:keys``, or one of the texts of ``:ids``.
# PostgreSQL takes a set of rows for a hundred, and then reads whole tables for the one that is there; not an array.
IN_KEYS = _piece(
    "IN (SELECT CAST(value AS BIGINT) FROM json_each(:keys))",
    "= ANY (ARRAY(SELECT CAST(value AS BIGINT) FROM json_array_elements_text(CAST(:keys AS json))))",
)
IN_IDS = _piece(
    "IN (SELECT value FROM json_each(:ids))", "= ANY (ARRAY(SELECT json_array_elements_text(CAST(:ids AS json))))"
)
# The entries of a tree that ``:ids`` names. CROSS JOIN keeps SQLite from looking each entry up in the array.
ENTRIES_BY_ID = _piece(
    "json_each(:ids) AS asked CROSS JOIN entries e ON e.tree_id = :tree_id AND e.id = asked.value",
    "entries e WHERE e.tree_id = :tree_id"
    " AND e.id = ANY (ARRAY(SELECT value FROM json_array_elements_text(CAST(:ids AS json))))",
)
# The numbers of ``:keys``, as rows.
NUMBERS = _piece(
    "SELECT CAST(value AS BIGINT) AS number FROM json_each(:keys)",
    "SELECT CAST(value AS BIGINT) AS number FROM json_array_elements_text(CAST(:keys AS json)) AS value",
)
# A text that a recursive query starts from is compared as the column that it goes on with.
ID = _piece("CAST(:id AS TEXT)", 'CAST(:id AS TEXT) COLLATE "C"')
IDS = _piece("value FROM json_each(:ids)", 'value COLLATE "C" FROM json_array_elements_text(CAST(:ids AS json))')
# Each pair of a JSON array, to be joined, and its two texts. CROSS JOIN keeps SQLite from going through the array for
# each row of the other table.
PAIRS_OF_IDS = _piece("json_each(:ids) AS pair CROSS JOIN", "json_array_elements(CAST(:ids AS json)) AS pair JOIN")
PAIRS = _piece("json_each(:ids) AS pair", "json_array_elements(CAST(:ids AS json)) AS pair")
PAIRS_OF_KEYS = _piece("json_each(:keys) AS pair JOIN", "json_array_elements(CAST(:keys AS json)) AS pair JOIN")
FIRST_OF_PAIR = _piece("json_extract(pair.value, '$[0]')", "(pair.value ->> 0)")
SECOND_OF_PAIR = _piece("json_extract(pair.value, '$[1]')", "(pair.value ->> 1)")
# The ends of lanes that a JSON array of [tree, lane, depth to keep] names, as rows; and the entries in them.
_TAILS = "SELECT CAST({} AS BIGINT) AS tree_id, CAST({} AS BIGINT) AS lane_id, CAST({} AS BIGINT) AS low FROM {}"
_SQLITE_TAILS = _TAILS.format(*(f"json_extract(value, '$[{place}]')" for place in range(3)), "json_each(:tails)")
_POSTGRES_TAILS = _TAILS.format("value->>0", "value->>1", "value->>2", "json_array_elements(CAST(:tails AS json))")
IN_TAIL = "e.tree_id = t.tree_id AND e.lane_id = t.lane_id AND e.depth > t.low"
# SQLite counts each entry that it deletes by itself.
DELETE_TAILS = _piece(
    f"DELETE FROM entries WHERE rowid IN (SELECT e.rowid FROM ({_SQLITE_TAILS}) t JOIN entries e ON {IN_TAIL})"
    " RETURNING tree_id, blob, 1",
    f"WITH gone AS (DELETE FROM entries e USING ({_POSTGRES_TAILS}) t WHERE {IN_TAIL}"
    " RETURNING e.tree_id, e.blob) SELECT g.tree_id, g.blob, COUNT(*) FROM gone g GROUP BY g.tree_id, g.blob",
)
# The same for what was cut out of those entries: what it deletes, so that blobs without a use can follow.
_IN_TAIL_TOO = IN_TAIL.replace("e.", "a.")
DELETE_TAIL_ATTACHMENTS = _piece(
    "DELETE FROM attachments WHERE (tree_id, lane_id, depth, place) IN (SELECT a.tree_id, a.lane_id, a.depth, a.place"
    f" FROM ({_SQLITE_TAILS}) t JOIN attachments a ON {_IN_TAIL_TOO}) RETURNING tree_id, sha256",
    f"DELETE FROM attachments a USING ({_POSTGRES_TAILS}) t WHERE {_IN_TAIL_TOO} RETURNING a.tree_id, a.sha256",
)
TAILS = _piece(_SQLITE_TAILS, _POSTGRES_TAILS)
# A payload as the bytes that are stored, which may be no valid text.
PAYLOAD_BYTES = _piece("CAST(e.payload AS BLOB)", "convert_to(e.payload, 'UTF8')")
# How SQLite stores a payload, whatever the column declares; PostgreSQL holds its columns to it.
PAYLOAD_STORAGE = _piece("typeof(e.payload)", "CAST('text' AS TEXT)")
# The same of a document's text.
BODY_BYTES = _piece("CAST(d.body AS BLOB)", "convert_to(d.body, 'UTF8')")
BODY_STORAGE = _piece("typeof(d.body)", "CAST('text' AS TEXT)")
# The scope of a session, not to be found by an index: SQLite would take that for any question of one scope, and sort.
SCOPE_OF_ROW = _piece("+s.scope", "s.scope")
# The tree of an entry, not to be found by an index: SQLite would look all entries of the tree up in their table.
TREE_OF_ROW = _piece("+e.tree_id", "e.tree_id")
# What links say of the session ``s``, as JSON text: its depth, the first link to it, its own links. NULL if nothing;
# most sessions have no link, and most stores none at all, which is found out first.
_PARENT = (
    "(SELECT {array}(p.id, t.task_id) FROM task_links t JOIN sessions p ON p.session_key = t.parent_key"
    " WHERE t.child_id = {child} ORDER BY p.id LIMIT 1)"
)
_TASKS = (
    "(SELECT {group}({array}(t.position, t.task_id, t.child_id)) FROM task_links t WHERE t.parent_key = s.session_key)"
)
_LINKED = (
    "EXISTS (SELECT 1 FROM task_links) AND (EXISTS (SELECT 1 FROM task_links t WHERE t.parent_key = s.session_key)"
    " OR EXISTS (SELECT 1 FROM task_links t WHERE t.child_id = s.id))"
)
_LITE = {"array": "json_array", "group": "json_group_array"}
_POST = {"array": "json_build_array", "group": "json_agg"}
# A JSON value that went through a sorter is text again on SQLite.
LINKS_AS_JSON = _piece(
    f"CASE WHEN {_LINKED} THEN json_array(s.task_depth, json({_PARENT}), json({_TASKS})) END".format(
        **_LITE, child="s.id"
    ),
    f"CASE WHEN {_LINKED} THEN CAST(json_build_array(s.task_depth, {_PARENT}, {_TASKS}) AS TEXT) END".format(
        **_POST, child="s.id"
    ),
)
# The same for a session with the id ``:id`` that is not there yet: only a link to it can be.
LINK_TO_ID_AS_JSON = _piece(
    f"{_PARENT}".format(**_LITE, child=":id"), f"CAST({_PARENT} AS TEXT)".format(**_POST, child=":id")
)
# Where a text begins in another: a function.
PLACE_IN = _piece("instr", "strpos")
# What PostgreSQL does with a blob that is there: it is locked, so that who deletes it meanwhile sees its new use.
LOCK_BLOB_THAT_IS_THERE = " ON CONFLICT (tree_id, sha256) DO UPDATE SET size = excluded.size"


# ---------------------------------------------------------------------------------------------------------------------
# The statements of an append.


def spending(paid: Paid) -> dict[str, int]:
    """Return the parameters that add calls, which came to ``paid``, to the spending of a session."""
    return dict(zip(_SPENDING, (paid.tokens, paid.picodollars, paid.unpriced_calls, paid.unknown_calls), strict=True))


_SPENDING = ("spent_tokens", "spent_cost", "unpriced_calls", "unknown_calls")
_ADD_SPENDING = ", ".join(f"{name} = {name} + :{name}" for name in _SPENDING)
# A session was last active at the time of its newest entry, by the entries' own times; one without, when it was made.
# ``newest`` is that of the entries of this revision; None where there are none. Only a session that counts no entry
# has to be asked whether it has some that were retracted.
ACTIVE_SINCE = (
    "CASE WHEN :newest IS NULL OR (:newest < active_at AND (entry_count > 0 OR EXISTS (SELECT 1 FROM"
    " marks m JOIN entries e ON e.tree_id = sessions.tree_id AND e.id = m.entry_id WHERE m.session_key = :session_key"
    " AND m.kind = 'retracted' AND e.session_key = :session_key))) THEN active_at ELSE :newest END"
)
UPDATE_AFTER_APPEND = announced(
    "UPDATE sessions SET leaf = :leaf, revision = :revision, updated_at = :at,"
    " entry_count = entry_count + :entry_count,"
    " message_count = message_count + :message_count, first_message = COALESCE(first_message, :first_message), "
    f"{_ADD_SPENDING}, active_at = {ACTIVE_SINCE}"
    " WHERE session_key = :session_key"
)
ADD_SPENDING = statement(Nothing)(f"UPDATE sessions SET {_ADD_SPENDING} WHERE session_key = :session_key")
# Beside the other update, since SQLite writes the indexes of every column that an UPDATE names, changed or not.
UPDATE_SLOT = statement(Nothing)(
    f"UPDATE sessions SET active_slot = active_at >> {SLOT_BITS}"
    f" WHERE session_key = :session_key AND active_slot <> active_at >> {SLOT_BITS}"
)
LAST_LANE = statement(tuple[int | None])("SELECT MAX(l.lane_id) FROM lanes l WHERE l.tree_id = :tree_id")


# ---------------------------------------------------------------------------------------------------------------------
# What rows become that more than one statement gives.


class StoredEntry(NamedTuple):
    """An entry; exactly one of ``payload``, ``packed`` and ``blob`` is set."""

    depth: int
    id: str
    lane_id: int
    parent_id: str | None
    session_key: int
    kind: str
    role: str | None
    source: str | None
    revision: int
    ordinal: int
    created_at: int
    extra: str | None
    digest: bytes
    payload: bytes | None
    packed: bytes | None
    blob: bytes | None


EntryColumns: TypeAlias = tuple[
    int,
    str,
    int,
    str | None,
    int,
    str,
    str | None,
    str | None,
    int,
    int,
    int,
    str | None,
    bytes,
    bytes | None,
    bytes | None,
    bytes | None,
]
"""What a `StoredEntry` is, as a plain tuple: nothing is made of the thousand rows of a path before they are entries."""

StoredBody = tuple[int, str | None, int | None, bytes, bytes | None, bytes | None, bytes | None]
"""Of an entry its depth, its kind and its time (both None for a message), its digest and its payload's three columns:
a plain tuple, since most of what a model is sent is read this way."""


class Compaction(NamedTuple):
    """A compaction, and where it is."""

    depth: int
    lane_id: int
    id: str
    digest: bytes
    payload: bytes | None
    packed: bytes | None
    blob: bytes | None


class Sums(NamedTuple):
    """A place, and the sums to it."""

    lane_id: int
    depth: int
    totals: UsageTotals
    paid: Paid


_TOTALS = len(TOTAL_COLUMNS)


def sums_of(columns: Sequence[Any]) -> Sums:
    """Return the columns of `parts.POSITION` as sums."""
    lane_id, depth, *sums = columns
    return Sums(lane_id, depth, UsageTotals._make(sums[:_TOTALS]), Paid._make(sums[_TOTALS:]))


def position_of(columns: Sequence[Any]) -> Position:
    """Return the columns of `parts.place_of` as a position."""
    entry_id, *sums, owner_key, parent_lane, fork_depth, child = columns
    return Position(entry_id, *sums_of(sums), owner_key, parent_lane, fork_depth, child is not None)


def state_of(columns: Sequence[Any]) -> SessionState:
    """Return the columns of `parts.STATE` as a session's state."""
    key, id_, tree_id, scope, leaf, revision, kind, task_depth, forked, tokens, cost, cwd, slot, *place = columns
    position = None if place[0] is None else position_of(place)
    return SessionState(
        key, id_, tree_id, scope, leaf, revision, kind, task_depth, forked, tokens, cost, cwd, slot, position
    )


# ---------------------------------------------------------------------------------------------------------------------
# Pieces that several statements are made of.


def columns(table: str, names: tuple[str, ...]) -> str:
    """Return the names as a list of columns of a table, which is named as in FROM."""
    return ", ".join(f"{table}.{name}" for name in names)


def call_columns(table: str) -> str:
    """Return the columns of a paid call, as `CallRow` has them: one that has no id of its own goes by its entry's."""
    own = f"{table}.call_id"
    return columns(table, CallRow._fields).replace(own, f"COALESCE({own}, {table}.entry_id)")


POSITION = ("lane_id", "depth", *TOTAL_COLUMNS, *PAID_COLUMNS)
# A payload is read as bytes: its digest is made of them, and they may be no valid text any more.
PAYLOAD = f"e.digest, {PAYLOAD_BYTES} AS payload, e.packed, e.blob"
ENTRY = f"{columns('e', StoredEntry._fields[:-4])}, {PAYLOAD}"
TOTALS = columns("e", TOTAL_COLUMNS)
PAID = columns("e", PAID_COLUMNS)


def place_of(entry: str, lane: str) -> str:
    """What `rows.position_of` reads: an entry's place, its lane, and whether the lane goes on below it."""
    return (
        f"{entry}.id, {columns(entry, POSITION)}, {lane}.owner_key, {lane}.parent_lane, {lane}.fork_depth,"
        f" (SELECT 1 FROM entries c WHERE c.tree_id = {entry}.tree_id AND c.lane_id = {entry}.lane_id"
        f" AND c.depth = {entry}.depth + 1)"
    )


STATE = (
    "s.session_key, s.id, s.tree_id, s.scope, s.leaf, s.revision, s.kind, s.task_depth, s.forked_from_entry,"
    f" s.spent_tokens, s.spent_cost, s.cwd, s.active_slot, {place_of('e', 'l')}"
)
STATE_FROM = (
    " FROM sessions s"
    " LEFT JOIN entries e ON e.tree_id = s.tree_id AND e.id = s.leaf"
    " LEFT JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
)
LIVING = " WHERE s.id = :id AND s.trashed_at IS NULL"
EPOCH = "(SELECT f.value FROM flue_store f WHERE f.name = 'epoch')"
WITH_SPANS = (
    "WITH RECURSIVE spans(lane_id, low, high, parent_lane) AS ("
    "  SELECT l.lane_id, l.fork_depth, CAST(:depth AS BIGINT), l.parent_lane FROM lanes l"
    "   WHERE l.tree_id = :tree_id AND l.lane_id = :lane_id"
    "  UNION ALL SELECT l.lane_id, l.fork_depth, s.low, l.parent_lane FROM spans s"
    "   JOIN lanes l ON l.tree_id = :tree_id AND l.lane_id = s.parent_lane WHERE s.parent_lane IS NOT NULL"
    ") "
)
IN_SPAN = "e.tree_id = :tree_id AND e.lane_id = s.lane_id AND e.depth > s.low AND e.depth <= s.high"
# The entries below a place: the next one in its lane, and the first ones of the lanes that fork there.
CHILDREN = (
    "(SELECT CAST(:lane_id AS BIGINT) AS lane_id UNION ALL SELECT l.lane_id FROM lanes l"
    "  WHERE l.tree_id = :tree_id AND l.parent_lane = :lane_id AND l.fork_depth = :depth) below"
    " JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = below.lane_id AND e.depth = :depth + 1"
)
WITH_HELD = (
    "WITH RECURSIVE anchors(lane_id, depth) AS ("
    "  SELECT e.lane_id, e.depth FROM entries e WHERE e.tree_id = :tree_id AND e.id IN (:leaf, :forked_from_entry)"
    "  UNION SELECT l.lane_id, 9223372036854775807 FROM lanes l WHERE l.owner_key = :session_key"
    "), held(lane_id, depth) AS ("
    "  SELECT a.lane_id, a.depth FROM anchors a"
    "  UNION SELECT l.parent_lane, l.fork_depth FROM held h"
    "   JOIN lanes l ON l.tree_id = :tree_id AND l.lane_id = h.lane_id WHERE l.parent_lane IS NOT NULL)"
)


# ---------------------------------------------------------------------------------------------------------------------
# The statements that read entries.


class LeafMove(NamedTuple):
    """A move of a leaf."""

    revision: int
    reason: MoveReason
    from_id: str | None
    to_id: str | None
    at: int


def _window(row: Row) -> tuple[int, str, Sums, Sums]:
    session_key, leaf, *ends = row
    return session_key, leaf, sums_of(ends[: len(POSITION)]), sums_of(ends[len(POSITION) :])


def _session_and_compaction(row: Row) -> tuple[SessionState, int, Compaction | None]:
    epoch, depth, lane_id, entry_id, digest, payload, packed, blob, *state = row
    found = None if depth is None else Compaction(depth, lane_id, entry_id, digest, payload, packed, blob)
    return state_of(state), int(epoch or 0), found


def _leaf_entry(row: Row) -> tuple[str, int, str | None, StoredEntry]:
    session_id, session_key, creator, *columns = row
    return session_id, session_key, creator, StoredEntry._make(columns)


# Both ends of a usage window, whose difference it is where they lie in one lane.
WINDOW = statement(_window)(
    f"SELECT s.session_key, s.leaf, {columns('a', POSITION)}, {columns('e', POSITION)} FROM sessions s"
    " JOIN entries e ON e.tree_id = s.tree_id AND e.id = s.leaf"
    " JOIN entries a ON a.tree_id = s.tree_id AND a.id = :entry_id" + LIVING + " AND NOT EXISTS (SELECT 1 FROM marks m"
    " WHERE m.session_key = s.session_key AND m.entry_id = :entry_id AND m.kind = 'retracted')"
)
# What a session has not retracted: of an id, of a JSON array of ids, below a place, of the roots of its tree.
_NOT_RETRACTED = (
    " AND NOT EXISTS (SELECT 1 FROM marks m"
    " WHERE m.session_key = :session_key AND m.entry_id = e.id AND m.kind = 'retracted')"
)
ENTRY_BY_ID = statement(StoredEntry)(
    f"SELECT {ENTRY} FROM entries e WHERE e.tree_id = :tree_id AND e.id = :entry_id{_NOT_RETRACTED}"
)
# Of each tree that has an entry of this id, a session: the one that added it, or any.
SESSIONS_OF_ENTRY = statement(tuple[str])(
    "SELECT COALESCE(c.id, (SELECT MIN(s.id) FROM sessions s WHERE s.tree_id = e.tree_id)) AS found FROM entries e"
    " LEFT JOIN sessions c ON c.session_key = e.session_key WHERE e.id = :entry_id ORDER BY found LIMIT :count"
)
FOUND_ENTRY = statement(StoredEntry)(f"SELECT {ENTRY} FROM entries e WHERE e.tree_id = :tree_id AND e.id = :entry_id")
ENTRIES_OF_IDS = statement(StoredEntry)(f"SELECT {ENTRY} FROM {ENTRIES_BY_ID}{_NOT_RETRACTED}")
# Of sessions the entries at their leaves, behind the session, and who created the entry (NULL where that is deleted).
LEAVES = statement(_leaf_entry)(
    "SELECT s.id, s.session_key, (SELECT c.id FROM sessions c WHERE c.session_key = e.session_key) AS creator,"
    f" {ENTRY} FROM sessions s JOIN entries e ON e.tree_id = s.tree_id AND e.id = s.leaf"
    f" WHERE s.id {IN_IDS} AND s.trashed_at IS NULL"
)
CHILD_ENTRIES = statement(StoredEntry)(f"SELECT {ENTRY} FROM {CHILDREN}{_NOT_RETRACTED}")
ROOT_ENTRIES = statement(StoredEntry)(
    f"SELECT {ENTRY} FROM lanes l JOIN entries e ON e.tree_id = l.tree_id AND e.lane_id = l.lane_id AND e.depth = 0"
    f" WHERE l.tree_id = :tree_id AND l.parent_lane IS NULL AND l.fork_depth = -1{_NOT_RETRACTED}"
)
# A path as its stretches, leaf side first.
SPANS = statement(tuple[int, int])(WITH_SPANS + "SELECT s.lane_id, s.high FROM spans s")


_entries: Callable[[str], Statement[EntryColumns]] = statement(cast("type[EntryColumns]", EntryColumns))


# A path in one lane is one range; one over several lanes is the union of their ranges, in no order.
LANE_RANGE = _entries(
    f"SELECT {ENTRY} FROM entries e WHERE e.tree_id = :tree_id AND e.lane_id = :lane_id"
    " AND e.depth > :low AND e.depth <= :high ORDER BY e.depth"
)
SPANS_RANGE = _entries(
    WITH_SPANS + f"SELECT {ENTRY} FROM spans s JOIN entries e ON {IN_SPAN} AND e.depth > :low_depth"
    " WHERE s.high > :low_depth"
)
# The same for the messages alone: nothing is fetched that a message is not made of.
# (A message's kind and time are not: NULL for ten thousand of them is quicker than their values.)
_BODY = (
    "e.depth, CASE WHEN e.kind = 'message' THEN NULL ELSE e.kind END,"
    " CASE WHEN e.kind = 'message' THEN NULL ELSE e.created_at END,"
    f" {PAYLOAD}"
)


_bodies = statement(tuple[int, str | None, int | None, bytes, bytes | None, bytes | None, bytes | None])


LANE_BODIES = _bodies(
    f"SELECT {_BODY} FROM entries e WHERE e.tree_id = :tree_id AND e.lane_id = :lane_id"
    " AND e.depth > :low AND e.depth <= :high ORDER BY e.depth"
)
SPANS_BODIES = _bodies(
    WITH_SPANS + f"SELECT {_BODY} FROM spans s JOIN entries e ON {IN_SPAN} AND e.depth > :low_depth"
    " WHERE s.high > :low_depth"
)
_COMPACTION = f"e.depth, e.lane_id, e.id, {PAYLOAD}"
_LATEST_COMPACTION = (
    f"SELECT {_COMPACTION} FROM spans s JOIN entries e ON {IN_SPAN} WHERE e.kind = 'compaction'"
    " ORDER BY e.depth DESC LIMIT 1"
)
LATEST_COMPACTION = statement(Compaction)(WITH_SPANS + _LATEST_COMPACTION)
COMPACTION_ON_PATH = statement(Compaction)(
    WITH_SPANS + f"SELECT {_COMPACTION} FROM entries e JOIN spans s ON {IN_SPAN}"
    " WHERE e.tree_id = :tree_id AND e.id = :entry_id AND e.depth < :depth"
)
SESSION_AND_COMPACTION = statement(_session_and_compaction)(
    "WITH RECURSIVE spans(tree_id, lane_id, low, high, parent_lane) AS ("
    "  SELECT l.tree_id, l.lane_id, l.fork_depth, e.depth, l.parent_lane FROM sessions s"
    "   JOIN entries e ON e.tree_id = s.tree_id AND e.id = s.leaf"
    "   JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
    "   WHERE s.id = :id AND s.trashed_at IS NULL"
    "  UNION ALL SELECT s.tree_id, l.lane_id, l.fork_depth, s.low, l.parent_lane FROM spans s"
    "   JOIN lanes l ON l.tree_id = s.tree_id AND l.lane_id = s.parent_lane WHERE s.parent_lane IS NOT NULL"
    f") SELECT {EPOCH}, n.depth, n.lane_id, n.id, n.digest, n.payload, n.packed, n.blob, {STATE}{STATE_FROM}"
    f" LEFT JOIN ({_LATEST_COMPACTION.replace(':tree_id', 's.tree_id')}) n ON 1 = 1" + LIVING
)
SETTING_KINDS = "('model_change', 'thinking_level_change')"
LAST_SETTING = statement(StoredEntry)(
    WITH_SPANS + f"SELECT {ENTRY} FROM spans s JOIN entries e ON {IN_SPAN}"
    f" WHERE e.kind IN {SETTING_KINDS} AND e.kind = :kind ORDER BY e.depth DESC LIMIT 1"
)
# From the end of a stretch of a lane, as far as is needed.
LAST_ANSWER = statement(StoredEntry)(
    f"SELECT {ENTRY} FROM entries e WHERE e.tree_id = :tree_id AND e.lane_id = :lane_id"
    " AND e.depth > :low AND e.depth <= :high AND e.kind = 'message' AND e.role = 'assistant'"
    " AND (e.source IS NULL OR e.source <> 'shell') ORDER BY e.depth DESC LIMIT 1"
)
# The depth of an entry on a path, above a place of it.
DEPTH_ON_PATH = statement(tuple[int])(
    WITH_SPANS + f"SELECT e.depth FROM entries e JOIN spans s ON {IN_SPAN}"
    " WHERE e.tree_id = :tree_id AND e.id = :entry_id AND e.depth < :depth"
)
# Entries on a path that are named, and its exclusions, up to a depth.
NAMED_ON_PATH = statement(StoredEntry)(
    WITH_SPANS + f"SELECT {ENTRY} FROM {ENTRIES_BY_ID}"
    f" AND e.depth <= :last_depth AND EXISTS (SELECT 1 FROM spans s WHERE {IN_SPAN})"
)
EXCLUSIONS_ON_PATH = statement(StoredEntry)(
    WITH_SPANS + f"SELECT {ENTRY} FROM spans s JOIN entries e ON {IN_SPAN} AND e.kind = 'exclusion'"
    " WHERE e.depth <= :last_depth"
)
PATH_STRETCH = _entries(
    WITH_SPANS + f"SELECT {ENTRY} FROM spans s JOIN entries e ON {IN_SPAN}"
    " AND e.depth > :low_depth AND e.depth <= :last_depth WHERE s.high > :low_depth AND s.low < :last_depth"
)
TURNS = statement(StoredEntry)(
    WITH_SPANS + f"SELECT {ENTRY} FROM spans s JOIN entries e ON {IN_SPAN} WHERE e.kind = 'message' AND e.role = 'user'"
)
BLOB_DATA = statement(tuple[bytes])("SELECT b.data FROM blobs b WHERE b.tree_id = :tree_id AND b.sha256 = :sha256")
HELD_SPANS = statement(tuple[int, int])(f"{WITH_HELD} SELECT h.lane_id, MAX(h.depth) FROM held h GROUP BY h.lane_id")
MOVES_AFTER = statement(LeafMove)(
    "SELECT m.revision, m.reason, m.from_entry, m.to_entry, m.at FROM leaf_moves m"
    " WHERE m.session_key = :session_key AND m.revision > :revision AND m.revision <= :last_revision"
    " ORDER BY m.revision"
)


# ---------------------------------------------------------------------------------------------------------------------
# The statements that read what was cut out of payloads.

# Of the entries on a stretch of a path. The bytes of a blob come with the first of its uses, and with no other: what
# numbers the uses has no bytes in it, so that none are sorted.
_USES = (
    WITH_SPANS + "SELECT n.depth, n.place, n.sha256, b.data FROM (SELECT a.depth, a.place, a.sha256,"
    " ROW_NUMBER() OVER (PARTITION BY a.sha256 ORDER BY a.depth, a.place) AS use FROM spans s JOIN attachments a"
    " ON a.tree_id = :tree_id AND a.lane_id = s.lane_id AND a.depth > s.low AND a.depth <= s.high"
    " AND a.depth > :low_depth WHERE s.high > :low_depth"
)
_THEIR_BYTES = (
    ") n LEFT JOIN blobs b ON n.use = 1 AND b.tree_id = :tree_id AND b.sha256 = n.sha256 ORDER BY n.depth, n.place"
)
OF_PATH = statement(tuple[int, int, bytes, bytes | None])(_USES + _THEIR_BYTES)
# The same without those of artifacts, whose bytes no context has.
OF_CONTEXT = statement(tuple[int, int, bytes, bytes | None])(
    _USES + " AND NOT EXISTS (SELECT 1 FROM entries e WHERE e.tree_id = :tree_id AND e.lane_id = a.lane_id"
    f" AND e.depth = a.depth AND e.kind = '{ARTIFACT}')" + _THEIR_BYTES
)
OF_ENTRY = statement(tuple[int, bytes])(
    "SELECT a.place, a.sha256 FROM entries e JOIN attachments a ON a.tree_id = e.tree_id AND a.lane_id = e.lane_id"
    " AND a.depth = e.depth WHERE e.tree_id = :tree_id AND e.id = :entry_id ORDER BY a.place"
)


# ---------------------------------------------------------------------------------------------------------------------
# The statements that insert a row, one for each table (a second one where copies of trees refuse what is there).

_UNLESS_THERE = " ON CONFLICT DO NOTHING"

INSERT_SESSION: Insert[Row] = Insert("sessions", SessionRow, first="tree_id")
INSERT_LANE: Insert[Row] = Insert("lanes", LaneRow, first="tree_id")
INSERT_ENTRY: Insert[Row] = Insert("entries", EntryRow, first="tree_id")
INSERT_BLOB: Insert[Row] = Insert("blobs", BlobRow, _UNLESS_THERE, LOCK_BLOB_THAT_IS_THERE, first="tree_id")
COPY_BLOB: Insert[Row] = Insert("blobs", BlobRow, first="tree_id")
INSERT_ATTACHMENT: Insert[Row] = Insert("attachments", AttachmentRow, first="tree_id")
INSERT_LINK = Insert("task_links", LinkRow, _UNLESS_THERE)
COPY_LINK = Insert("task_links", LinkRow)
INSERT_MOVE = Insert("leaf_moves", MoveRow)
INSERT_EDIT = Insert("session_edits", EditRow)
INSERT_REQUEST = Insert("requests", RequestRow)
PUT_MARK = Insert(
    "marks",
    MarkRow,
    " ON CONFLICT (session_key, entry_id, kind) DO UPDATE SET value = excluded.value, at = excluded.at",
)
COPY_MARK = Insert("marks", MarkRow)
KEEP_MARK = Insert("marks", MarkRow, _UNLESS_THERE)
INSERT_CALL: Insert[Row] = Insert("ledger", CallRow, _UNLESS_THERE, first="tree_id")
INSERT_PAYER: Insert[Row] = Insert("ledger_sessions", Payer, _UNLESS_THERE, first="tree_id")
INSERT_BUDGET: Insert[Row] = Insert("budgets", BudgetRow, first="budget_key")
INSERT_RESERVATION: Insert[Row] = Insert("reservations", ReservationRow, first="budget_key")

# What stays of a document under a name that is there already: when it was made. Each change of it is later than the one
# before, whatever the clock says.
_OF_DOCUMENTS = " ON CONFLICT (scope, kind, space, project, name) DO UPDATE SET"
PUT_DOCUMENT = Insert(
    "documents",
    DocumentRow,
    f"{_OF_DOCUMENTS} type = excluded.type, source = excluded.source,"
    " changed_at = CASE WHEN excluded.changed_at > documents.changed_at THEN excluded.changed_at"
    " ELSE documents.changed_at + 1 END,"
    " chars = excluded.chars, digest = excluded.digest, body = excluded.body"
    " WHERE documents.digest <> excluded.digest OR documents.type <> excluded.type"
    " OR COALESCE(documents.source, '') <> COALESCE(excluded.source, '')",
)
_COPIED = ", ".join(f"{name} = excluded.{name}" for name in DocumentRow._fields[5:])
COPY_DOCUMENT = Insert(
    "documents", DocumentRow, f"{_OF_DOCUMENTS} {_COPIED} WHERE documents.changed_at < excluded.changed_at"
)


# ---------------------------------------------------------------------------------------------------------------------
# The statements on the rows of sessions.


# The fields of a session that its row names otherwise; times are in microseconds (``_us``), and end in ``_at`` there.
_NAMED = {"leaf_id": "leaf", "metadata_text": "metadata", "spent_picodollars": "spent_cost"}
SESSION_COLUMNS = tuple(
    _NAMED.get(name, name.replace("_us", "_at")) for name in SessionInfo.__struct_fields__ if name != "task_names"
)
_KIND = SESSION_COLUMNS.index("kind")
# What `session_of` reads. The links come along, since they are part of the metadata that are shown.
SESSION = ", ".join([*(f's."{name}"' for name in SESSION_COLUMNS), LINKS_AS_JSON])


def session_of(row: Row) -> SessionInfo:
    """Return the columns of `SESSION` as a session."""
    if row[-1] is None:
        return SessionInfo(*row[:-1])
    depth, parent, tasks = json.loads(row[-1])
    named = tuple((task_id, child_id) for _, task_id, child_id in sorted(tasks or ()))
    return SessionInfo(*(*row[:-1], replace(task_of(row[_KIND], depth, parent), tasks=named)))


def task_of(kind: str, depth: int, parent: Sequence[str] | None) -> TaskNames:
    """Return whose task a session of this kind and depth is, by the link to it: the parent's id and the task's."""
    if parent is None:
        return NO_TASK_NAMES
    parent_id, task_id = parent
    return TaskNames(parent=(parent_id, task_id), depth=depth if kind == "task" else None)


SESSION_BY_ID = statement(session_of)(f"SELECT {SESSION} FROM sessions s WHERE s.id = :id AND s.trashed_at IS NULL")
SESSION_BY_KEY = statement(session_of)(
    f"SELECT {SESSION} FROM sessions s WHERE s.scope = :scope AND s.key = :key AND s.key IS NOT NULL"
    " AND s.trashed_at IS NULL"
)
# Whether an id is taken, and by which link a session with that id would be found: links may be made before it.
ID_TAKEN = statement(tuple[int | None, str | None])(
    f"SELECT (SELECT 1 FROM sessions s WHERE s.id = :id AND s.trashed_at IS NULL), {LINK_TO_ID_AS_JSON}"
)
SESSION_IDS = statement(tuple[int, str])("SELECT s.session_key, s.id FROM sessions s WHERE s.tree_id = :tree_id")
# Where the id of a deleted session is used again, its forks name none: the marks of the new one are not theirs to see.
FORGET_SOURCE = statement(Nothing)(
    "UPDATE sessions SET forked_from_session = NULL WHERE tree_id = :tree_id AND forked_from_session = :id"
)
FORK_OF_ID = statement(tuple[str])(
    "SELECT f.id FROM sessions f WHERE f.tree_id = :tree_id AND f.forked_from_session = :id LIMIT 1"
)
# For databases with several writers; both read again afterwards, because what they waited for may have changed.
LOCK_SESSION = statement(tuple[int])("SELECT s.session_key FROM sessions s WHERE s.id = :id FOR UPDATE")
UPDATE_REVISION = announced(
    "UPDATE sessions SET revision = :revision, updated_at = :at WHERE session_key = :session_key"
)
UPDATE_TITLE = statement(Nothing)("UPDATE sessions SET title = :title WHERE session_key = :session_key")
UPDATE_AUTO_TITLE = statement(Nothing)("UPDATE sessions SET auto_title = :auto_title WHERE session_key = :session_key")
UPDATE_METADATA = statement(Nothing)("UPDATE sessions SET metadata = :metadata WHERE session_key = :session_key")
UPDATE_SCOPE = statement(Nothing)("UPDATE sessions SET scope = :scope WHERE session_key = :session_key")
UPDATE_COMPLETED = statement(Nothing)(
    "UPDATE sessions SET completed_at = :completed_at WHERE session_key = :session_key"
)
# In order of key, so that two who lock the same sessions do not wait for each other.
LOCK_NAMED = statement(tuple[int])(
    f"SELECT s.session_key FROM sessions s WHERE s.id {IN_IDS} ORDER BY s.session_key FOR UPDATE"
)
LOCK_SESSIONS = statement(tuple[int])(
    f"SELECT s.session_key FROM sessions s WHERE s.session_key {IN_KEYS} ORDER BY s.session_key FOR UPDATE"
)

# Every session, those that were active last at the end: what a search compares with what its index knows.
SESSION_HEADS = statement(SessionHead)(
    "SELECT s.session_key, s.id, s.revision, s.scope, s.cwd, s.entry_count, s.forked_from_session, s.updated_at"
    " FROM sessions s WHERE s.trashed_at IS NULL ORDER BY s.active_at, s.session_key"
)


# ---------------------------------------------------------------------------------------------------------------------
# The statements that list sessions, and find ids by how they begin.

# What a page may take: what is filtered by, and where it begins.

# What a listing is sorted by. Every append changes the counters, so that no index has them (decision 0003): a page by
# one of them reads all sessions.
_SORTED_BY: dict[SessionOrder, str] = {
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
_INDEXED: frozenset[SessionOrder] = frozenset({"created", "title"})
_SHOWN_TITLE = "lower(COALESCE(NULLIF(s.title, ''), NULLIF(s.auto_title, ''), NULLIF(s.key, ''), s.first_message, ''))"
_WHERE = {
    "title": f"{PLACE_IN}({_SHOWN_TITLE}, :title_part) > 0",
    "scope": "s.scope = :scope",
    "scopes": f"s.scope {IN_IDS}",
    "scope_prefix": "s.scope >= :prefix AND s.scope < :end_prefix",
    # What is read into more than this says is compared by `SessionFilter.has_metadata`. What links say is in no text.
    "metadata": f"({PLACE_IN}(s.metadata, :needle) > 0 OR (:asks_links = 1 AND EXISTS"
    " (SELECT 1 FROM task_links t WHERE t.child_id = s.id)))",
    "kind": "s.kind = :kind",
    "key": "s.key = :key",
    "cwd": "s.cwd = :cwd",
    "completed": "(s.completed_at IS NOT NULL) = (:completed = 1)",
}


@lru_cache(maxsize=256)
def session_page(ordering: Ordering, filters: frozenset[str], *, is_first: bool) -> Statement[SessionInfo]:
    """Return the statement for a page of sessions in an order, filtered by what is named.

    Unless it ``is_first``, it begins behind the session with ``last_number`` (``last_text``, for titles) and
    ``last_key``.
    """
    value, way = _SORTED_BY[ordering.order], "DESC" if ordering.descending else "ASC"
    conditions = ["s.trashed_at IS NULL", *(_WHERE[name] for name in sorted(filters))]
    if ordering.order in _INDEXED:
        conditions = [condition.replace("s.scope", SCOPE_OF_ROW) for condition in conditions]
    by = [f"{value} {way}", f"s.session_key {way}"]
    if ordering.order == "activity":
        # By the slot, which an index has, and by the exact time within a slot (decision 0003).
        by.insert(0, f"s.active_slot {way}")
    if not is_first:
        last = "last_text" if ordering.order == "title" else "last_number"
        below = "<" if ordering.descending else ">"
        # The first of the two says where in an index to begin: SQLite does not see it in a pair with an expression.
        start = f"s.active_slot {below}= (:{last} >> {SLOT_BITS})" if len(by) > 2 else f"{value} {below}= :{last}"
        conditions.append(f"{start} AND ({value}, s.session_key) {below} (:{last}, :last_key)")
    order = ", ".join(by)
    tail = f"WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT :count"
    return statement(session_of)(f"SELECT {SESSION} FROM sessions s {tail}")


SESSION_IDS_FROM = statement(tuple[str])(
    "SELECT s.id FROM sessions s WHERE s.id >= :prefix AND s.id < :end_prefix AND s.trashed_at IS NULL"
    " ORDER BY s.id LIMIT :count"
)
ENTRY_IDS_FROM = statement(tuple[str])(
    f"SELECT e.id FROM entries e WHERE {TREE_OF_ROW} = :tree_id AND e.id >= :prefix AND e.id < :end_prefix"
    " ORDER BY e.id LIMIT :count"
)


# ---------------------------------------------------------------------------------------------------------------------
# The statements of the log.


class LoggedEdit(NamedTuple):
    """A change beside the history, as the log has it."""

    revision: int
    what: EditKind
    entry_id: str | None
    before: str | None
    after: str | None
    edited_by: str | None
    why: str | None
    at: int


def _logged_move(row: Row) -> tuple[int, LoggedMove]:
    revision, reason, undoes, from_id, to_id, by, why, at = row
    return revision, LoggedMove(reason, undoes, from_id, to_id, Note.stored(by, why), at)


EDITS_AFTER = statement(LoggedEdit)(
    'SELECT x.revision, x.what, x.entry_id, x."before", x."after", x.edited_by, x.why, x.at FROM session_edits x'
    " WHERE x.session_key = :session_key AND x.revision > :revision AND x.revision <= :last_revision"
    " ORDER BY x.revision, x.what"
)
LOGGED_MOVES = statement(_logged_move)(
    "SELECT m.revision, m.reason, m.undoes, m.from_entry, m.to_entry, m.moved_by, m.why, m.at FROM leaf_moves m"
    " WHERE m.session_key = :session_key AND m.revision > :revision AND m.revision <= :last_revision"
)


# ---------------------------------------------------------------------------------------------------------------------
# The statements on marks.


class MarkOfSource(NamedTuple):
    """A mark of a session that a fork was made of, ``level`` forks above it; without ``entry_id``, that it has none.

    ``point_lane`` and ``point_depth`` are the place that was forked from, ``lane_id`` and ``depth`` those of the entry.
    """

    fork_key: int
    tree_id: int
    level: int
    point_lane: int
    point_depth: int
    entry_id: str | None
    kind: str | None
    value: str | None
    at: int | None
    lane_id: int | None
    depth: int | None


DROP_MARK = statement(Nothing)(
    "DELETE FROM marks WHERE session_key = :session_key AND entry_id = :entry_id AND kind = :kind"
)
MARK = statement(tuple[str | None])(
    "SELECT m.value FROM marks m WHERE m.session_key = :session_key AND m.entry_id = :entry_id AND m.kind = :kind"
)
MARKS = statement(tuple[str, str, str | None])(
    "SELECT m.entry_id, m.kind, m.value FROM marks m WHERE m.session_key = :session_key ORDER BY m.entry_id, m.kind"
)
MARKS_OF_KIND = statement(tuple[str, str | None])(
    "SELECT m.entry_id, m.value FROM marks m WHERE m.session_key = :session_key AND m.kind = :kind"
)
# The labels and pins of the sessions that forks were made of, and of those that these were made of, nearest first.
# (An id is used once among the sources of a tree's forks; the level ends what only a damaged store can have: a circle.)
_SOURCE = (
    "JOIN sessions p ON p.id = f.forked_from_session AND p.tree_id = f.tree_id WHERE f.forked_from_entry IS NOT NULL"
)
MARKS_OF_SOURCES = statement(MarkOfSource)(
    "WITH RECURSIVE sources(fork_key, level, source_key, tree_id, point) AS ("
    "  SELECT f.session_key, 1, p.session_key, p.tree_id, f.forked_from_entry"
    f"   FROM sessions f {_SOURCE} AND f.session_key {IN_KEYS}"
    "  UNION ALL SELECT s.fork_key, s.level + 1, p.session_key, p.tree_id, f.forked_from_entry"
    f"   FROM sources s JOIN sessions f ON f.session_key = s.source_key {_SOURCE} AND s.level < 100000"
    ") SELECT s.fork_key, s.tree_id, s.level, a.lane_id, a.depth, m.entry_id, m.kind, m.value, m.at, e.lane_id, e.depth"
    " FROM sources s JOIN entries a ON a.tree_id = s.tree_id AND a.id = s.point"
    " LEFT JOIN marks m ON m.session_key = s.source_key AND m.kind IN ('label', 'pin')"
    " LEFT JOIN entries e ON e.tree_id = s.tree_id AND e.id = m.entry_id ORDER BY s.fork_key, s.level"
)
# The forks that stay of sessions that go.
FORKS_THAT_STAY = statement(tuple[int])(
    "SELECT f.session_key FROM sessions p JOIN sessions f ON f.tree_id = p.tree_id AND f.forked_from_session = p.id"
    f" WHERE p.session_key {IN_KEYS} AND NOT f.session_key {IN_KEYS} AND f.forked_from_entry IS NOT NULL"
)
RETRACTED_IDS = statement(tuple[str])(
    "SELECT m.entry_id FROM marks m WHERE m.session_key = :session_key AND m.kind = 'retracted'"
)


# ---------------------------------------------------------------------------------------------------------------------
# The statements of leaf moves, undo and redo.


class FoundEntry(NamedTuple):
    """An entry of a tree: its parent, who added it, of what kind it is, and where it is."""

    id: str
    parent_id: str | None
    session_key: int
    kind: str
    position: Position


def _found_entry(row: Row) -> FoundEntry:
    entry_id, parent_id, session_key, kind, *place = row
    return FoundEntry(entry_id, parent_id, session_key, kind, position_of(place))


class LastMove(NamedTuple):
    """A move of the leaf, and what it undoes or redoes."""

    revision: int
    reason: str
    undoes: int | None
    from_id: str | None
    to_id: str | None


UPDATE_LEAF = announced(
    "UPDATE sessions SET leaf = :leaf, revision = :revision, updated_at = :at,"
    " entry_count = entry_count + :entry_count,"
    " message_count = message_count + :message_count WHERE session_key = :session_key"
)
ENTRY_POSITION = statement(_found_entry)(
    f"SELECT e.id, e.parent_id, e.session_key, e.kind, {place_of('e', 'l')}"
    " FROM entries e JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
    " WHERE e.tree_id = :tree_id AND e.id = :entry_id"
)
ID_AT = statement(tuple[str])(
    "SELECT e.id FROM entries e WHERE e.tree_id = :tree_id AND e.lane_id = :lane_id AND e.depth = :depth"
)
# Whether an entry lies on the path to a place.
IS_ON_PATH = statement(tuple[int])(
    WITH_SPANS + "SELECT 1 FROM spans s WHERE s.lane_id = :other_lane AND s.high >= :other_depth LIMIT 1"
)
CHILD_PLACES = statement(tuple[str, int, int, int])(
    f"SELECT e.id, e.lane_id, e.depth, o.owner_key FROM {CHILDREN}"
    " JOIN lanes o ON o.tree_id = e.tree_id AND o.lane_id = e.lane_id"
)
LAST_MOVE = statement(LastMove)(
    "SELECT m.revision, m.reason, m.undoes, m.from_entry, m.to_entry FROM leaf_moves m"
    " WHERE m.session_key = :session_key AND m.revision <= :revision ORDER BY m.revision DESC LIMIT 1"
)
# From where the leaf moved next after a revision.
NEXT_MOVE_FROM = statement(tuple[str | None])(
    "SELECT m.from_entry FROM leaf_moves m"
    " WHERE m.session_key = :session_key AND m.revision > :revision ORDER BY m.revision LIMIT 1"
)


# ---------------------------------------------------------------------------------------------------------------------
# Where the entries are that a session added, by revision: found in its lanes, without an index of revisions.
#
# What a living session adds is in lanes that it owns, and there stands below all that others left; revisions grow with
# the depth. So the first entry after a revision is found in a lane by halving. A session changes lanes by what its
# moves
# log: entries of some revisions are in the lanes of the leaves from which it moved then or next, and of its leaf. Only
# what it added beside its leaf, by an import or on a branch, may be in any lane of its own.


# The moves of some revisions, and those that add entries to any lane.
_MOVES = (
    "FROM leaf_moves m WHERE m.session_key = :session_key AND m.revision > :revision AND m.revision <= :last_revision"
)
_NEXT_MOVE = (
    "SELECT m.from_entry AS id FROM leaf_moves m WHERE m.session_key = :session_key AND m.revision > :last_revision"
    " ORDER BY m.revision LIMIT 1"
)
_LANES = (
    "found(lane_id) AS ("
    "  SELECT e.lane_id FROM"
    f"   (SELECT m.from_entry AS id {_MOVES} UNION ALL SELECT n.id FROM ({_NEXT_MOVE}) n UNION ALL SELECT :leaf) ends"
    "   JOIN entries e ON e.tree_id = :tree_id AND e.id = ends.id AND e.session_key = :session_key"
    "  UNION SELECT l.lane_id FROM lanes l WHERE l.owner_key = :session_key"
    f"   AND EXISTS (SELECT 1 {_MOVES} AND m.reason IN ('branch', 'import')))"
)


def _is_after(entry: str, revision: str) -> str:
    return f"{entry}.session_key = :session_key AND {entry}.revision > {revision}"


# In each lane, for the revisions before the first one asked for and for the last one: the deepest place that is not
# after it, where low is high; the fork depth where there is none.
_HALVED = (
    "halved(lane_id, revision, low, high) AS ("
    "  SELECT l.lane_id, b.revision,"
    f"   CASE WHEN {_is_after('t', 'b.revision')} THEN l.fork_depth ELSE t.depth END,"
    f"   CASE WHEN {_is_after('t', 'b.revision')} THEN t.depth - 1 ELSE t.depth END"
    "   FROM found f JOIN lanes l ON l.tree_id = :tree_id AND l.lane_id = f.lane_id"
    "   JOIN entries t ON t.tree_id = :tree_id AND t.lane_id = l.lane_id AND t.depth ="
    "    (SELECT MAX(d.depth) FROM entries d WHERE d.tree_id = :tree_id AND d.lane_id = l.lane_id)"
    "   JOIN (SELECT :revision AS revision UNION ALL SELECT :last_revision) b ON 1 = 1"
    "  UNION ALL SELECT h.lane_id, h.revision,"
    f"   CASE WHEN {_is_after('e', 'h.revision')} THEN h.low ELSE e.depth END,"
    f"   CASE WHEN {_is_after('e', 'h.revision')} THEN e.depth - 1 ELSE h.high END"
    "   FROM halved h JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = h.lane_id"
    "    AND e.depth = (h.low + h.high + 1) / 2 WHERE h.low < h.high)"
)
_RANGES = (
    "ranges(lane_id, low, high) AS (SELECT h.lane_id, MIN(h.low), MAX(h.low) FROM halved h WHERE h.low = h.high"
    " GROUP BY h.lane_id HAVING MIN(h.low) < MAX(h.low))"
)
_WITH_RANGES = f"WITH RECURSIVE {_LANES}, {_HALVED}, {_RANGES}"

# All entries of some revisions.
ENTRIES_OF_REVISIONS = statement(StoredEntry)(
    f"{_WITH_RANGES} SELECT {ENTRY} FROM ranges r JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = r.lane_id"
    " AND e.depth > r.low AND e.depth <= r.high ORDER BY e.revision, e.ordinal"
)

# -- the log ----------------------------------------------------------------------------------------------------------


class LoggedEntry(NamedTuple):
    """One of the first entries of a revision, or its last one. The payload is that of the very first, or None."""

    revision: int
    ordinal: int
    id: str
    kind: str
    created_at: int
    parent_id: str | None
    digest: bytes
    payload: bytes | None
    packed: bytes | None
    blob: bytes | None


# Each revision's stretches of lanes, from ``start`` to ``low``, where low is high: one after the other up to ``top``.
_STRETCHES = (
    "stretches(lane_id, top, start, revision, low, high) AS ("
    "  SELECT r.lane_id, r.high, r.low, CAST(0 AS BIGINT), r.low, r.low FROM ranges r"
    "  UNION ALL SELECT s.lane_id, s.top,"
    "   CASE WHEN s.low = s.high THEN e.depth ELSE s.start END,"
    "   CASE WHEN s.low = s.high THEN e.revision ELSE s.revision END,"
    "   CASE WHEN s.low = s.high OR e.revision = s.revision THEN e.depth ELSE s.low END,"
    "   CASE WHEN s.low = s.high THEN s.top WHEN e.revision = s.revision THEN s.high ELSE e.depth - 1 END"
    "   FROM stretches s JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = s.lane_id"
    "    AND e.depth = CASE WHEN s.low = s.high THEN s.low + 1 ELSE (s.low + s.high + 1) / 2 END WHERE s.low < s.top)"
)
# The first entries of each stretch, and the last.
LOGGED_ENTRIES = statement(LoggedEntry)(
    f"{_WITH_RANGES}, {_STRETCHES} SELECT e.revision, e.ordinal, e.id, e.kind, e.created_at, e.parent_id, e.digest,"
    f" CASE WHEN e.ordinal = 0 THEN {PAYLOAD_BYTES} END, CASE WHEN e.ordinal = 0 THEN e.packed END,"
    " CASE WHEN e.ordinal = 0 THEN e.blob END"
    " FROM stretches s JOIN (SELECT 0 AS is_end UNION ALL SELECT 1) k"
    "  ON s.low = s.high AND s.revision > 0 AND (k.is_end = 0 OR s.low >= s.start + :count)"
    " JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = s.lane_id"
    "  AND e.depth >= CASE WHEN k.is_end = 1 THEN s.low ELSE s.start END"
    "  AND e.depth <= CASE WHEN k.is_end = 1 OR s.low < s.start + :count THEN s.low ELSE s.start + :count - 1 END"
    " ORDER BY e.revision, e.ordinal"
)

# -- undo -------------------------------------------------------------------------------------------------------------


class LastOfRun(NamedTuple):
    """An entry, who added it, at which revision."""

    id: str
    session_key: int
    revision: int


_WITH_RUN = (
    "WITH RECURSIVE halved(lane_id, low, high) AS ("
    "  SELECT e.lane_id,"
    f"   CASE WHEN {_is_after('e', ':revision')} THEN l.fork_depth ELSE e.depth END,"
    f"   CASE WHEN {_is_after('e', ':revision')} THEN e.depth - 1 ELSE e.depth END"
    "   FROM entries e JOIN lanes l ON l.tree_id = :tree_id AND l.lane_id = e.lane_id"
    "   WHERE e.tree_id = :tree_id AND e.id = :entry_id"
    "  UNION ALL SELECT h.lane_id,"
    f"   CASE WHEN {_is_after('e', ':revision')} THEN h.low ELSE e.depth END,"
    f"   CASE WHEN {_is_after('e', ':revision')} THEN e.depth - 1 ELSE h.high END"
    "   FROM halved h JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = h.lane_id"
    "    AND e.depth = (h.low + h.high + 1) / 2 WHERE h.low < h.high) "
)
# Of an entry and those above it in its lane, the deepest that the session did not add after a revision.
LAST_IN_LANE = statement(LastOfRun)(
    f"{_WITH_RUN} SELECT e.id, e.session_key, e.revision FROM halved h"
    " JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = h.lane_id AND e.depth = h.low WHERE h.low = h.high"
)
# The parent of the first that it did add after it.
PARENT_OF_FIRST_IN_LANE = statement(tuple[str | None])(
    f"{_WITH_RUN} SELECT e.parent_id FROM halved h"
    " JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = h.lane_id AND e.depth = h.low + 1 WHERE h.low = h.high"
)


# ---------------------------------------------------------------------------------------------------------------------
# The statements that an operation starts with: the session, what it sees, and what it did before.


def _with_epoch(row: Row) -> tuple[SessionState, int]:
    epoch, *state = row
    return state_of(state), int(epoch or 0)


def _marked_place(row: Row) -> tuple[Position, bool]:
    mark, *place = row
    return position_of(place), mark is not None


# A session with the place of its leaf: what every operation starts from, in one statement. What a read asks for
# next comes with it, so that it takes one round trip less.
SESSION_STATE = statement(state_of)(f"SELECT {STATE}{STATE_FROM}{LIVING}")
SESSION_AND_EPOCH = statement(_with_epoch)(f"SELECT {EPOCH}, {STATE}{STATE_FROM}{LIVING}")
# The same, with whether the session has retracted it.
ENTRY_AND_MARK = statement(_marked_place)(
    f"SELECT m.kind, {place_of('e', 'l')} FROM entries e"
    " JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
    " LEFT JOIN marks m ON m.session_key = :session_key AND m.entry_id = :entry_id AND m.kind = 'retracted'"
    " WHERE e.tree_id = :tree_id AND e.id = :entry_id"
)
# Those of a JSON array of ids that are taken.
TAKEN_IDS = statement(tuple[str])(f"SELECT e.id FROM {ENTRIES_BY_ID}")
# Whether an entry is an ancestor of what the session holds: its leaf, its fork point, its lanes' fork points.
IS_HELD = statement(tuple[int])(
    "WITH RECURSIVE anchors(lane_id, depth) AS ("
    "  SELECT e.lane_id, e.depth FROM entries e WHERE e.tree_id = :tree_id AND e.id IN (:leaf, :forked_from_entry)"
    "  UNION SELECT l.parent_lane, l.fork_depth FROM lanes l"
    "   WHERE l.owner_key = :session_key AND l.parent_lane IS NOT NULL"
    "), held(lane_id, depth) AS ("
    "  SELECT a.lane_id, a.depth FROM anchors a"
    "  UNION SELECT l.parent_lane, l.fork_depth FROM held h"
    "   JOIN lanes l ON l.tree_id = :tree_id AND l.lane_id = h.lane_id WHERE l.parent_lane IS NOT NULL"
    ") SELECT 1 FROM held h WHERE h.lane_id = :lane_id AND h.depth >= :depth LIMIT 1"
)
REQUEST = statement(tuple[str, bytes, str])(
    "SELECT r.operation, r.digest, r.result FROM requests r"
    " WHERE r.session_key = :session_key AND r.idempotency_key = :idempotency_key"
)


# ---------------------------------------------------------------------------------------------------------------------
# The statements on the store itself.


READ_STATE = statement(tuple[int])("SELECT value FROM flue_store WHERE name = :name")
WRITE_STATE = statement(Nothing)("UPDATE flue_store SET value = :number WHERE name = :name")
COUNTS = statement(tuple[int, int, int, int])(
    "SELECT (SELECT COUNT(*) FROM sessions), (SELECT COUNT(*) FROM entries), (SELECT COUNT(*) FROM ledger),"
    f" (SELECT COUNT(*) FROM documents WHERE space <> '{IMPORTED_FILES}')"
)
# PostgreSQL alone.
DATABASE_SIZE = statement(tuple[int])("SELECT pg_database_size(current_database())")
# Which transactions have come to their end: it is another text after each commit.
SNAPSHOT = statement(tuple[str])("SELECT CAST(pg_current_snapshot() AS TEXT)")
SYNCHRONOUS_COMMIT = statement(tuple[str])("SELECT current_setting('synchronous_commit')")


# ---------------------------------------------------------------------------------------------------------------------
# The statements on links to tasks.


NEXT_POSITION = statement(tuple[int])(
    "SELECT COALESCE(MAX(t.position) + 1, 0) FROM task_links t WHERE t.parent_key = :parent_key"
)
LINKED_CHILD = statement(tuple[str | None])(
    "SELECT t.entry_id FROM task_links t WHERE t.parent_key = :parent_key AND t.child_id = :child_id"
)
PARENTS_OF_CHILD = statement(tuple[int])("SELECT COUNT(*) FROM task_links t WHERE t.child_id = :child_id")
# Links may go round in circles: each session is as deep as the shortest way to it.
SUNK_TASKS = statement(tuple[int, str, int, int, int])(
    "WITH RECURSIVE below(id, depth) AS (SELECT s.id, CAST(:depth AS BIGINT) FROM sessions s WHERE s.id = :child_id"
    " UNION SELECT t.child_id, b.depth + 1 FROM below b JOIN sessions p ON p.id = b.id"
    " JOIN task_links t ON t.parent_key = p.session_key WHERE b.depth < 100)"
    " SELECT s.session_key, s.id, s.revision, s.task_depth, MIN(b.depth) FROM below b JOIN sessions s ON s.id = b.id"
    " WHERE s.kind = 'task' GROUP BY s.session_key, s.id, s.revision, s.task_depth HAVING MIN(b.depth) <> s.task_depth"
    " ORDER BY s.session_key"
)
UPDATE_DEPTH = statement(Nothing)("UPDATE sessions SET task_depth = :task_depth WHERE session_key = :session_key")
PLACE_LINK = statement(Nothing)(
    "UPDATE task_links SET entry_id = :entry_id WHERE parent_key = :parent_key AND child_id = :child_id"
)
TASK_CHILD = statement(tuple[str])(
    "SELECT t.child_id FROM task_links t WHERE t.parent_key = :parent_key AND t.task_id = :task_id ORDER BY t.position"
)
_LINK = "s.id, t.position, t.task_id, t.child_id, t.entry_id, t.status, t.summary"
LINKS_OF = statement(TaskLink)(
    f"SELECT {_LINK} FROM sessions s"
    " JOIN task_links t ON t.parent_key = s.session_key WHERE s.id = :id ORDER BY t.position"
)
LINKS_TO = statement(TaskLink)(
    f"SELECT {_LINK} FROM task_links t"
    " JOIN sessions s ON s.session_key = t.parent_key WHERE t.child_id = :id ORDER BY s.id"
)


class ParentsLink(NamedTuple):
    """A link that leads to a task: the parent's key, id and revision, and what the link says of the task."""

    parent_key: int
    parent_id: str
    revision: int
    status: str | None
    summary: str | None


PARENTS_LINKS = statement(ParentsLink)(
    "SELECT t.parent_key, s.id, s.revision, t.status, t.summary FROM task_links t"
    " JOIN sessions s ON s.session_key = t.parent_key WHERE t.child_id = :child_id ORDER BY t.parent_key"
)
END_LINKS = statement(Nothing)("UPDATE task_links SET status = :status, summary = :summary WHERE child_id = :child_id")
# The tasks of a session of another scope than the one that is meant are not followed.
TASK_CLOSURE = statement(tuple[str, int | None, str | None])(
    "WITH RECURSIVE doomed(id) AS ("
    f"  SELECT {ID}"
    "  UNION SELECT t.child_id FROM doomed d"
    "   JOIN sessions s ON s.id = d.id AND (:scope IS NULL OR s.scope = :scope)"
    "   JOIN task_links t ON t.parent_key = s.session_key"
    ") SELECT d.id, s.session_key, s.scope FROM doomed d LEFT JOIN sessions s ON s.id = d.id"
)


def _pair(row: Row) -> tuple[str, str]:
    parent, child = row
    return parent, child


# What a session's tasks have paid stays with it when the links to them go.
LINKS_OF_SESSIONS = statement(_pair)(
    "SELECT s.id, t.child_id FROM task_links t JOIN sessions s ON s.session_key = t.parent_key"
    f" WHERE t.parent_key {IN_KEYS} ORDER BY t.parent_key, t.position"
)
# Of sessions that go or are gone, and of tasks that such a session took along without having paid for anything itself.
PAYERS_TO_NOTE = statement(tuple[int, str, str, str | None])(
    "SELECT n.session_key, n.session_id, n.session_id, n.task_of FROM ledger_sessions n"
    f" WHERE n.session_id {IN_IDS}"
    " UNION ALL SELECT n.session_key, n.task_of, n.session_id, NULL FROM ledger_sessions n"
    f" WHERE n.task_of {IN_IDS} AND NOT EXISTS"
    " (SELECT 1 FROM ledger_sessions p WHERE p.session_id = n.task_of)"
)
NOTE_TASK = statement(Nothing)("UPDATE ledger_sessions SET task_of = :task_of WHERE session_key = :session_key")
GONE_TASKS = statement(tuple[str])(
    f"WITH RECURSIVE gone(id) AS (SELECT {IDS}"
    " UNION SELECT n.session_id FROM gone g JOIN ledger_sessions n ON n.task_of = g.id) SELECT id FROM gone"
)
