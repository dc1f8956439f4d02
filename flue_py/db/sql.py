"""SQL that several files share: pieces of statements, as SQLite and PostgreSQL have them, and whole statements."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary

from msgspec import DecodeError
from msgspec.json import Decoder, decode, encode
from msgspec.structs import replace

from flue_py.core import ledger
from flue_py.core.chain import NO_PARENT, Chain, Fields
from flue_py.core.json import Frozen, NamedTuple
from flue_py.core.sessions import IMPORTED_FILES, NO_TASK_NAMES, DocumentRow, SessionHead, SessionInfo, TaskNames
from flue_py.core.usage import PAID_COLUMNS, TOTAL_COLUMNS
from flue_py.db.runner import Insert, Nothing, Position, R, Reader, Row, SessionState, Statement, position_of
from flue_py.errors import damaged_session

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


K = TypeVar("K")


def statement(gives: type[R] | Reader[R]) -> Callable[[str], Statement[R]]:
    """Return a function that makes a statement of a text for SQLite."""
    return lambda sql: Statement(gives, sql, for_postgres(sql))


def keyed(key: type[K], make: Callable[[Row], R]) -> Reader[tuple[K, R]]:
    """Return a function that reads a row: its first column, a ``key``, and ``make`` of the others."""
    return lambda row: (row[0], make(row[1:]))


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
# PostgreSQL counts the elements of an array, and takes a hundred for granted in JSON, which `json.dumps` made here.
_TAIL = "unnest(string_to_array(btrim(:tails, '[]'), '], [')) AS tail"
_POSTGRES_TAILS = _TAILS.format(*(f"split_part(tail, ', ', {place})" for place in (1, 2, 3)), _TAIL)
IN_TAIL = "e.tree_id = t.tree_id AND e.lane_id = t.lane_id AND e.depth > t.low"
# SQLite counts each entry that it deletes by itself.
DELETE_TAILS = _piece(
    f"DELETE FROM entries WHERE rowid IN (SELECT e.rowid FROM ({_SQLITE_TAILS}) t CROSS JOIN entries e ON {IN_TAIL})"
    " RETURNING tree_id, blob, 1",
    f"WITH gone AS (DELETE FROM entries e USING ({_POSTGRES_TAILS}) t WHERE {IN_TAIL}"
    " RETURNING e.tree_id, e.blob) SELECT g.tree_id, g.blob, COUNT(*) FROM gone g GROUP BY g.tree_id, g.blob",
)
# What rows made by a query name. CROSS JOIN keeps newer SQLites (3.53) from going through the table instead, and giving
# those rows an index. Pieces that have it in them stand above.
for _table in ("entries e", "lanes l", "attachments a", "sessions s", "budgets b"):
    _piece(f"CROSS JOIN {_table} ON", f"JOIN {_table} ON")
# The same for what was cut out of those entries: what it deletes, so that blobs without a use can follow.
_IN_TAIL_TOO = IN_TAIL.replace("e.", "a.")
DELETE_TAIL_ATTACHMENTS = _piece(
    "DELETE FROM attachments WHERE (tree_id, lane_id, depth, place) IN (SELECT a.tree_id, a.lane_id, a.depth, a.place"
    f" FROM ({_SQLITE_TAILS}) t JOIN attachments a ON {_IN_TAIL_TOO}) RETURNING tree_id, sha256",
    f"DELETE FROM attachments a USING ({_POSTGRES_TAILS}) t WHERE {_IN_TAIL_TOO} RETURNING a.tree_id, a.sha256",
)
TAILS = _piece(_SQLITE_TAILS, _POSTGRES_TAILS)
# Has a connection overwrite with zeros what it deletes from then on.
OVERWRITE = _piece("PRAGMA secure_delete = ON", "SELECT 1")
# All tables with the pages to read, where a table can be read by these, else -1. A partition is read with its table.
ALL_TABLES = _piece(
    "SELECT name, -1 FROM sqlite_master WHERE type = 'table' UNION SELECT 'sqlite_master', -1 ORDER BY 1",
    "SELECT CAST(c.relname AS TEXT), CASE c.relkind WHEN 'p' THEN -1 ELSE"
    " pg_relation_size(c.oid) / CAST(current_setting('block_size') AS BIGINT) END"
    " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'm', 'p') AND NOT c.relispartition ORDER BY 1",
)
# A payload as the bytes that are stored, which may be no valid text.
PAYLOAD_BYTES = _piece("CAST(e.payload AS BLOB)", "convert_to(e.payload, 'UTF8')")
# How SQLite stores a payload, whatever the column declares; PostgreSQL holds its columns to it.
PAYLOAD_STORAGE = _piece("typeof(e.payload)", "CAST('text' AS TEXT)")


def _digest(entry: str) -> str:
    # SQLite may hold anything in it.
    return _piece(f"CAST({entry}.digest AS BLOB)", f"{entry}.digest")


DIGEST, DOCUMENT_DIGEST = _digest("e"), _digest("d")
HEAD = _piece("CAST(s.head AS BLOB)", "s.head")
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


# What an append changes of its session.


SPENDING = ("spent_tokens", "spent_cost", "unpriced_calls", "unknown_calls")
CHANGED = (
    "leaf", "revision", "updated_at", "entry_count", "message_count", "first_message", *SPENDING, "active_at", "head",
    *ledger.SEALS,
)  # fmt: skip
UPDATE_STATE = announced(
    f"UPDATE sessions SET {', '.join(f'{name} = :{name}' for name in CHANGED)} WHERE session_key = :session_key"
)
# Beside the other update, since SQLite writes the indexes of every column that an UPDATE names, changed or not.
UPDATE_SLOT = statement(Nothing)("UPDATE sessions SET active_slot = :active_slot WHERE session_key = :session_key")


# ---------------------------------------------------------------------------------------------------------------------
# What rows become that more than one statement gives.


class StoredEntry(NamedTuple):
    """An entry; exactly one of ``payload``, ``packed`` and ``blob`` is set. ``above`` is the digest of its parent.

    On a path that is None where the row before it is its parent's.
    """

    depth: int
    lane_id: int
    parent_id: str | None
    above: bytes | None
    session_key: int
    id: str
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

    @property
    def digest_above(self) -> bytes:
        """The digest above it, for one that was not read along a path."""
        return NO_PARENT if self.parent_id is None else self.above or b""

    @property
    def fields(self) -> Fields:
        """The fields that its digest covers."""
        return self[5:13]


EntryColumns: TypeAlias = tuple[
    int, int, str | None, bytes | None, int, str, str, str | None,
    str | None, int, int, int, str | None, bytes, bytes | None, bytes | None, bytes | None,
]  # fmt: skip
"""A `StoredEntry` as a plain tuple: nothing is made of the thousand rows of a path before they are entries."""

StoredBody = tuple[int, bytes | None, str | None, bytes, bytes | None, bytes | None, bytes | None]
"""Of an entry its depth, the digest above (None but for the first), its `FIELDS` (None for a message), its digest and
its payload's three columns: a plain tuple, since most of a request to a model is read this way."""


# ---------------------------------------------------------------------------------------------------------------------
# Pieces that several statements are made of.


def columns(table: str, names: tuple[str, ...]) -> str:
    """Return the names as a list of columns of a table, which is named as in FROM."""
    return ", ".join(f"{table}.{name}" for name in names)


def select(row: type[R], table: str, rest: str) -> Statement[R]:
    """Return a statement that reads rows as they are stored; ``rest`` stands after FROM."""
    return statement(row)(f"SELECT {quoted(row, table)} FROM {rest}")


def quoted(row: type[object], table: str) -> str:
    """Return the columns of a row of a table, which is named as in FROM."""
    return ", ".join(f'{table}."{name}"' for name in row.__annotations__)


def call_columns(table: str) -> str:
    """Return the columns of a paid call, as `CallRow` has them: one that has no id of its own goes by its entry's."""
    own = f"{table}.call_id"
    return columns(table, ledger.CallRow._fields).replace(own, f"COALESCE({own}, {table}.entry_id)")


POSITION = ("lane_id", "depth", *TOTAL_COLUMNS, *PAID_COLUMNS)
# A payload is read as bytes: its digest is made of them, and they may be no valid text any more.
PAYLOAD = f"{PAYLOAD_BYTES} AS payload, e.packed, e.blob"
SEALED = f"{columns('e', StoredEntry._fields[5:13])}, {DIGEST} AS digest"
# The fields that a digest covers, as JSON.
_FIELDS = columns("e", StoredEntry._fields[5:13])
FIELDS = _piece(f"json_array({_FIELDS})", f"CAST(json_build_array({_FIELDS}) AS TEXT)")
ABOVE = f"(SELECT {_digest('p')} FROM entries p WHERE p.tree_id = e.tree_id AND p.id = e.parent_id)"
WITHOUT_PAYLOAD = f"e.depth, e.lane_id, e.parent_id, {ABOVE} AS above, e.session_key, {SEALED}"
ENTRY = f"{WITHOUT_PAYLOAD}, {PAYLOAD}"


def first_below(depth: str) -> str:
    """Return the column that has the digest above an entry if it is the first below a depth; NULL for the others."""
    return f"CASE WHEN e.depth = {depth} + 1 THEN {ABOVE} END"


def on_path(below: str, payload: str = PAYLOAD) -> str:
    """Return the columns of `ENTRY` for the entries of a path below a depth: the digest above is read once."""
    return f"{WITHOUT_PAYLOAD.replace(ABOVE, first_below(below))}, {payload}"


PAID = columns("e", PAID_COLUMNS)


def place_of(entry: str, lane: str) -> str:
    """Return the columns that `position_of` reads: an entry's place, its lane, and whether that goes on below it."""
    return (
        f"{entry}.id, {_digest(entry)}, {columns(entry, POSITION)},"
        f" {columns(lane, ('owner_key', 'parent_lane', 'fork_depth'))},"
        f" (SELECT 1 FROM entries c WHERE c.tree_id = {entry}.tree_id AND c.lane_id = {entry}.lane_id"
        f" AND c.depth = {entry}.depth + 1)"
    )


# The fields of a session that its row names otherwise; times are in microseconds (``_us``), and end in ``_at`` there.
_NAMED = {"leaf_id": "leaf", "metadata_text": "metadata", "spent_picodollars": "spent_cost"}
SESSION_COLUMNS = tuple(
    _NAMED.get(name, name.replace("_us", "_at")) for name in SessionInfo.__struct_fields__ if name != "task_names"
)
PLACE = ("tree_id", "task_depth", "active_slot", *ledger.SEALS)
"""The columns that the head of a session covers before those."""
_STATE = ("session_key", *SessionState.__struct_fields__[1:-3])
ABOUT = tuple(name for name in SESSION_COLUMNS if name not in _STATE)
# `runner.state_of` reads these columns by their number.
STATE = f"{columns('s', _STATE)}, {HEAD}, {columns('s', ABOUT)}, {place_of('e', 'l')}"
STATE_FROM = (
    " FROM sessions s"
    " LEFT JOIN entries e ON e.tree_id = s.tree_id AND e.id = s.leaf"
    " LEFT JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
)
LIVING = " WHERE s.id = :id AND s.trashed_at IS NULL"
EPOCH = "(SELECT f.value FROM flue_store f WHERE f.name = 'epoch')"
# A lane forks from its parent below the place where that one forks: so the spans end, whatever a damaged row says.
WITH_SPANS = (
    "WITH RECURSIVE spans(lane_id, low, high, parent_lane) AS ("
    "  SELECT l.lane_id, l.fork_depth, CAST(:depth AS BIGINT), l.parent_lane FROM lanes l"
    "   WHERE l.tree_id = :tree_id AND l.lane_id = :lane_id"
    "  UNION ALL SELECT l.lane_id, l.fork_depth, s.low, l.parent_lane FROM spans s"
    "   JOIN lanes l ON l.tree_id = :tree_id AND l.lane_id = s.parent_lane AND l.fork_depth < s.low"
    ") "
)
IN_SPAN = "e.tree_id = :tree_id AND e.lane_id = s.lane_id AND e.depth > s.low AND e.depth <= s.high"
# The entries below a place: the next one in its lane, and the first ones of the lanes that fork there.
CHILDREN = (
    "(SELECT CAST(:lane_id AS BIGINT) AS lane_id UNION ALL SELECT l.lane_id FROM lanes l"
    "  WHERE l.tree_id = :tree_id AND l.parent_lane = :lane_id AND l.fork_depth = :depth) below"
    " CROSS JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = below.lane_id AND e.depth = :depth + 1"
)
WITH_HELD = (
    "WITH RECURSIVE anchors(lane_id, depth) AS ("
    "  SELECT e.lane_id, e.depth FROM entries e WHERE e.tree_id = :tree_id AND e.id IN (:leaf, :forked_from_entry)"
    "  UNION SELECT l.lane_id, 9223372036854775807 FROM lanes l WHERE l.owner_key = :session_key"
    "), held(lane_id, depth) AS ("
    "  SELECT a.lane_id, a.depth FROM anchors a"
    "  UNION SELECT l.parent_lane, l.fork_depth FROM held h"
    "   CROSS JOIN lanes l ON l.tree_id = :tree_id AND l.lane_id = h.lane_id WHERE l.parent_lane IS NOT NULL)"
)


# ---------------------------------------------------------------------------------------------------------------------
# The statements that several files run. Those of one file stand in it, beside the function that runs them.


# A path as its stretches, leaf side first.
SPANS = statement(tuple[int, int])(WITH_SPANS + "SELECT s.lane_id, s.high FROM spans s")


entry_columns: Callable[[str], Statement[EntryColumns]] = statement(cast("type[EntryColumns]", EntryColumns))


# A path in one lane is one range; one over several lanes is the union of their ranges, in no order.
def lane_range(entry: str) -> str:
    """Return the text that reads columns of the entries of a range of one lane, in order of depth."""
    return (
        f"SELECT {entry} FROM entries e WHERE e.tree_id = :tree_id AND e.lane_id = :lane_id"
        " AND e.depth > :low AND e.depth <= :high ORDER BY e.depth"
    )


LANE_RANGE = entry_columns(lane_range(on_path(":low")))


HELD_SPANS = statement(tuple[int, int])(f"{WITH_HELD} SELECT h.lane_id, MAX(h.depth) FROM held h GROUP BY h.lane_id")


# ---------------------------------------------------------------------------------------------------------------------
# The statements that insert a row, one for each table (a second one where copies of trees refuse what is there).

UNLESS_THERE = " ON CONFLICT DO NOTHING"

INSERT_SESSION: Insert[Row] = Insert("sessions", ledger.SessionRow, first="tree_id")
INSERT_LANE: Insert[Row] = Insert("lanes", ledger.LaneRow, first="tree_id")
INSERT_ENTRY: Insert[Row] = Insert("entries", ledger.EntryRow, first="tree_id")
INSERT_BLOB: Insert[Row] = Insert("blobs", ledger.BlobRow, UNLESS_THERE, LOCK_BLOB_THAT_IS_THERE, first="tree_id")
INSERT_ATTACHMENT: Insert[Row] = Insert("attachments", ledger.AttachmentRow, first="tree_id")
INSERT_MOVE = Insert("leaf_moves", ledger.MoveRow)
INSERT_EDIT = Insert("session_edits", ledger.EditRow)
INSERT_REQUEST = Insert("requests", ledger.RequestRow)
INSERT_MARK = Insert("marks", ledger.MarkRow)
INSERT_CALL: Insert[Row] = Insert("ledger", ledger.CallRow, UNLESS_THERE, first="tree_id")
INSERT_PAYER: Insert[Row] = Insert("ledger_sessions", ledger.Payer, UNLESS_THERE, first="tree_id")
INSERT_BUDGET: Insert[Row] = Insert("budgets", ledger.BudgetRow, first="budget_key")
INSERT_RESERVATION: Insert[Row] = Insert("reservations", ledger.ReservationRow, first="budget_key")

# What stays of a document under a name that is there already: when it was made. Each change of it is later than the one
# before, whatever the clock says.
SAME_DOCUMENT = " ON CONFLICT (scope, kind, space, project, name) DO UPDATE SET"
PUT_DOCUMENT = Insert(
    "documents",
    DocumentRow,
    f"{SAME_DOCUMENT} type = excluded.type, source = excluded.source,"
    " changed_at = CASE WHEN excluded.changed_at > documents.changed_at THEN excluded.changed_at"
    " ELSE documents.changed_at + 1 END,"
    " chars = excluded.chars, digest = excluded.digest, body = excluded.body, seal = excluded.seal"
    " WHERE documents.digest <> excluded.digest OR documents.type <> excluded.type"
    " OR COALESCE(documents.source, '') <> COALESCE(excluded.source, '')",
)


# ---------------------------------------------------------------------------------------------------------------------
# A session as its row has it.


# What `session_of` reads: the row as the head covers it, the head, and the links, which are part of the metadata that
# are shown. JSON is read in half the time of its columns, and need not be written again to be checked.
_NESTED = f"{columns('s', PLACE)}, {{array}}({columns('s', SESSION_COLUMNS)})"
_ROW = _piece(
    f"CAST(json_array({_NESTED.format(**_LITE)}) AS BLOB)",
    f"convert_to(CAST(json_build_array({_NESTED.format(**_POST)}) AS TEXT), 'UTF8')",
)
SESSION = f"{_ROW}, {HEAD}, {LINKS_AS_JSON}"
_decode = Decoder(tuple[int, int, int, int, int, int, int, SessionInfo]).decode


def session_of(chain: Chain, columns: Row) -> SessionInfo:
    """Return the columns of `SESSION` as a session. Raises `CorruptStore`, naming it, if its row has not its head."""
    sound, damaged = sessions_of(chain, (columns,))
    for session_id in damaged:
        raise damaged_session(session_id)
    return sound[0]


def sessions_of(chain: Chain, rows: Iterable[Row]) -> tuple[list[SessionInfo], list[str]]:
    """Return the sessions of rows of `SESSION`, and the ids of those of which the rows have not their heads."""
    sound, damaged, checked = list[SessionInfo](), list[str](), _checked.setdefault(chain, {})
    for row, head, links in rows:
        # What was checked and is as it was then needs no hash: a listing is often asked for again.
        text, info = checked.get(head, _UNKNOWN)
        if text != row:
            info = _check(chain, row, head, checked)
        if info is None:
            damaged.append(str(json.loads(row.decode(errors="replace"))[-1][0]))
        else:
            sound.append(info if links is None else _with_links(info, *json.loads(links)))
    return sound, damaged


CheckedRows: TypeAlias = dict[bytes, tuple[bytes, SessionInfo]]
"""Rows of sessions as JSON that had these heads, and the sessions that they are."""

_UNKNOWN = (b"", None)
_MOST_CHECKED, _LONGEST_CHECKED = 1_024, 2_000
_checked: WeakKeyDictionary[Chain, CheckedRows] = WeakKeyDictionary()


def _check(chain: Chain, row: bytes, head: bytes, checked: CheckedRows) -> SessionInfo | None:
    try:
        info = _decode(row)[-1]
        # PostgreSQL writes JSON with spaces.
        is_sound = chain.has_row(head, row) or chain.has_row(head, encode(decode(row)))
    except (DecodeError, UnicodeDecodeError):
        return None
    if is_sound and len(row) <= _LONGEST_CHECKED:
        if len(checked) >= _MOST_CHECKED:
            checked.clear()
        checked[head] = row, info
    return info if is_sound else None


def _with_links(
    info: SessionInfo, depth: int, parent: Sequence[str] | None, tasks: Sequence[tuple[int, str, str]] | None
) -> SessionInfo:
    named = tuple((task_id, child_id) for _, task_id, child_id in sorted(tasks or ()))
    return replace(info, task_names=replace(task_of(info.kind, depth, parent), tasks=named))


def task_of(kind: str, depth: int, parent: Sequence[str] | None) -> TaskNames:
    """Return whose task a session of this kind and depth is, by the link to it: the parent's id and the task's."""
    if parent is None:
        return NO_TASK_NAMES
    parent_id, task_id = parent
    return TaskNames(parent=(parent_id, task_id), depth=depth if kind == "task" else None)


TREE_OF = statement(tuple[int])("SELECT s.tree_id FROM sessions s WHERE s.id = :id")
SESSION_IDS = statement(tuple[int, str])("SELECT s.session_key, s.id FROM sessions s WHERE s.tree_id = :tree_id")
UPDATE_REVISION = announced(
    "UPDATE sessions SET revision = :revision, updated_at = :at WHERE session_key = :session_key"
)
UPDATE_AUTO_TITLE = statement(Nothing)("UPDATE sessions SET auto_title = :auto_title WHERE session_key = :session_key")
UPDATE_COMPLETED = statement(Nothing)(
    "UPDATE sessions SET completed_at = :completed_at WHERE session_key = :session_key"
)

# Every session, those that were active last at the end: what a search compares with what its index knows.
SESSION_HEADS = statement(SessionHead)(
    "SELECT s.session_key, s.id, s.revision, s.scope, s.cwd, s.entry_count, s.forked_from_session, s.updated_at"
    " FROM sessions s WHERE s.trashed_at IS NULL ORDER BY s.active_at, s.session_key"
)


class FoundEntry(Frozen):
    """An entry of a tree: its parent, who added it, of what kind it is, and where it is."""

    id: str
    parent_id: str | None
    session_key: int
    kind: str
    position: Position


def _found_entry(row: Row) -> FoundEntry:
    entry_id, parent_id, session_key, kind, *place = row
    return FoundEntry(entry_id, parent_id, session_key, kind, position_of(place))


ENTRY_POSITION = statement(_found_entry)(
    f"SELECT e.id, e.parent_id, e.session_key, e.kind, {place_of('e', 'l')}"
    " FROM entries e JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
    " WHERE e.tree_id = :tree_id AND e.id = :entry_id"
)


# ---------------------------------------------------------------------------------------------------------------------
# Where the entries are that a session added, by revision: found in its lanes, without an index of revisions.
#
# What a living session adds is in lanes that it owns, and there stands below all that others left; revisions grow with
# the depth. So the first entry after a revision is found in a lane by halving. A session changes lanes by what its
# moves log: entries of some revisions are in the lanes of the leaves from which it moved then or next, and of its leaf.
# Only entries added beside its leaf, by an import or on a branch, may be in any lane of its own.

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


def is_after(entry: str, revision: str) -> str:
    return f"{entry}.session_key = :session_key AND {entry}.revision > {revision}"


def next_from(lane: str, depth: str) -> str:
    """Return the SQL of a place at a depth of a lane; where no row is there, of the next: a lost one hides no other."""
    return f"(SELECT MIN(depth) FROM entries WHERE tree_id = :tree_id AND lane_id = {lane} AND depth >= {depth})"


# In each lane, for the revisions before the first one asked for and for the last one: the deepest place that is not
# after it, where low is high; the fork depth where there is none.
_HALVED = (
    "halved(lane_id, revision, low, high) AS ("
    "  SELECT l.lane_id, b.revision,"
    f"   CASE WHEN {is_after('t', 'b.revision')} THEN l.fork_depth ELSE t.depth END,"
    f"   CASE WHEN {is_after('t', 'b.revision')} THEN t.depth - 1 ELSE t.depth END"
    "   FROM found f CROSS JOIN lanes l ON l.tree_id = :tree_id AND l.lane_id = f.lane_id"
    "   JOIN entries t ON t.tree_id = :tree_id AND t.lane_id = l.lane_id AND t.depth ="
    "    (SELECT MAX(d.depth) FROM entries d WHERE d.tree_id = :tree_id AND d.lane_id = l.lane_id"
    "     AND d.session_key = :session_key)"
    "   JOIN (SELECT :revision AS revision UNION ALL SELECT :last_revision) b ON 1 = 1"
    "  UNION ALL SELECT h.lane_id, h.revision,"
    f"   CASE WHEN {is_after('e', 'h.revision')} THEN h.low ELSE e.depth END,"
    f"   CASE WHEN {is_after('e', 'h.revision')} THEN (h.low + h.high + 1) / 2 - 1 ELSE h.high END"
    "   FROM halved h CROSS JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = h.lane_id"
    f"    AND e.depth = {next_from('h.lane_id', '(h.low + h.high + 1) / 2')} WHERE h.low < h.high)"
)
_RANGES = (
    "ranges(lane_id, low, high) AS (SELECT h.lane_id, MIN(h.low), MAX(h.low) FROM halved h WHERE h.low = h.high"
    " GROUP BY h.lane_id HAVING MIN(h.low) < MAX(h.low))"
)
WITH_RANGES = f"WITH RECURSIVE {_LANES}, {_HALVED}, {_RANGES}"


REQUEST = statement(tuple[str, bytes, str])(
    "SELECT r.operation, r.digest, r.result FROM requests r"
    " WHERE r.session_key = :session_key AND r.idempotency_key = :idempotency_key"
)


READ_STATE = statement(tuple[int])("SELECT value FROM flue_store WHERE name = :name")
WRITE_STATE = statement(Nothing)("UPDATE flue_store SET value = :number WHERE name = :name")
COUNTS = statement(tuple[int, int, int, int])(
    "SELECT (SELECT COUNT(*) FROM sessions), (SELECT COUNT(*) FROM entries), (SELECT COUNT(*) FROM ledger),"
    f" (SELECT COUNT(*) FROM documents WHERE space <> '{IMPORTED_FILES}')"
)


# The tasks of a session of another scope than the one that is meant are not followed.
TASK_CLOSURE = statement(tuple[str, int | None, str | None])(
    "WITH RECURSIVE doomed(id) AS ("
    f"  SELECT {ID}"
    "  UNION SELECT t.child_id FROM doomed d"
    "   JOIN sessions s ON s.id = d.id AND (:scope IS NULL OR s.scope = :scope)"
    "   JOIN task_links t ON t.parent_key = s.session_key"
    ") SELECT d.id, s.session_key, s.scope FROM doomed d LEFT JOIN sessions s ON s.id = d.id"
)


NOTE_TASK = statement(Nothing)("UPDATE ledger_sessions SET task_of = :task_of WHERE session_key = :session_key")
