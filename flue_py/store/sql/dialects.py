"""What differs between the databases in SQL: pieces of statements, as SQLite and as PostgreSQL has them."""

from __future__ import annotations

from collections.abc import Callable

from flue_py.store.seam import Nothing, P, R, Reader, Statement

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


def statement(takes: Callable[P, object], gives: type[R] | Reader[R]) -> Callable[[str], Statement[P, R]]:
    """Return what makes a statement of a text for SQLite."""
    return lambda sql: Statement(takes, gives, sql, for_postgres(sql))


def announced(takes: Callable[P, object]) -> Callable[[str], Statement[P, Nothing]]:
    """Return what makes a statement that writes to sessions, and that wakes their watchers at commit on PostgreSQL.

    SQLite has no such thing; its watchers look. A watcher holds a shared advisory lock on the session while it listens.
    If there is none, nothing is sent: all commits that notify wait for each other in one queue of the whole database.
    """
    return lambda sql: Statement(takes, Nothing, sql, f"{for_postgres(sql)} RETURNING {ANNOUNCEMENT}")


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
