"""Every statement, named for its intention, in SQL that SQLite and PostgreSQL both read.

Where the two differ, the difference is one function, below, that takes the dialect; `_per_dialect` makes the
statement with both texts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Literal, TypeAlias

from flue_py.core.listing import Ordering, SessionOrder
from flue_py.core.usage import PAID_COLUMNS, TOTAL_COLUMNS
from flue_py.store.ledger_sums import all_tokens
from flue_py.store.transaction import Statement

Dialect: TypeAlias = Literal["sqlite", "postgresql"]

# What sets our advisory keys apart from those of other programs in the same database.
WATCH_SEED = 7_161_021
CHANNEL = "flue_py"
ANNOUNCEMENT = (
    f"CASE WHEN pg_try_advisory_xact_lock(hashtextextended(id, {WATCH_SEED})) THEN NULL"
    f" ELSE pg_notify('{CHANNEL}', id) END"
)


def _per_dialect(text: Callable[[Dialect], str]) -> Statement:
    return Statement(text("sqlite"), text("postgresql"))


def _in_keys(column: str, dialect: Dialect) -> str:
    """Whether a column is one of the numbers of the JSON array ``:keys``.

    PostgreSQL takes a set of rows for a hundred, and then reads whole tables for the one that is there; not an array.
    """
    if dialect == "sqlite":
        return f"{column} IN (SELECT CAST(value AS BIGINT) FROM json_each(:keys))"
    return f"{column} = ANY (ARRAY(SELECT CAST(value AS BIGINT) FROM json_array_elements_text(CAST(:keys AS json))))"


def _numbers(dialect: Dialect) -> str:
    """The numbers of the JSON array ``:keys``, as rows."""
    if dialect == "sqlite":
        return "SELECT CAST(value AS BIGINT) AS number FROM json_each(:keys)"
    return "SELECT CAST(value AS BIGINT) AS number FROM json_array_elements_text(CAST(:keys AS json)) AS value"


def _in_ids(column: str, dialect: Dialect) -> str:
    """Whether a column is one of the texts of the JSON array ``:ids``."""
    if dialect == "sqlite":
        return f"{column} IN (SELECT value FROM json_each(:ids))"
    return f"{column} = ANY (ARRAY(SELECT json_array_elements_text(CAST(:ids AS json))))"


def _tails_in(dialect: Dialect) -> str:
    """The ends of lanes that a JSON array of [tree, lane, depth to keep] names, as rows."""
    if dialect == "sqlite":
        items = [f"json_extract(value, '$[{index}]')" for index in range(3)]
        source = "json_each(:tails)"
    else:
        items = [f"value->>{index}" for index in range(3)]
        source = "json_array_elements(CAST(:tails AS json))"
    columns = zip(items, ("tree_id", "lane_id", "low"), strict=True)
    return "SELECT " + ", ".join(f"CAST({item} AS BIGINT) AS {name}" for item, name in columns) + f" FROM {source}"


def _same_as_column(dialect: Dialect, text: str) -> str:
    """A text that a recursive query starts from, compared as the column it goes on with."""
    return text if dialect == "sqlite" else f'{text} COLLATE "C"'


def _stored_bytes(dialect: Dialect, column: str) -> str:
    """A text as the bytes that are stored, which may be no valid text."""
    return f"CAST({column} AS BLOB)" if dialect == "sqlite" else f"convert_to({column}, 'UTF8')"


def _storage_class(dialect: Dialect, column: str) -> str:
    """How SQLite stores a value, whatever the column declares; PostgreSQL holds its columns to it."""
    return f"typeof({column})" if dialect == "sqlite" else "CAST('text' AS TEXT)"


def _announcing(dialect: Dialect) -> str:
    """Tell whoever watches the session, at commit (SQLite has no such thing; its watchers look).

    A watcher holds a shared advisory lock on the session while it listens. Where nobody does, nothing is sent:
    all commits that notify wait for each other in one queue of the whole database.
    """
    return "" if dialect == "sqlite" else f" RETURNING {ANNOUNCEMENT}"


def _if_new_blob(dialect: Dialect) -> str:
    """Keep the blob that is there. PostgreSQL has to lock it, so that who deletes it meanwhile sees its new use."""
    if dialect == "sqlite":
        return " ON CONFLICT DO NOTHING"
    return " ON CONFLICT (tree_id, sha256) DO UPDATE SET size = excluded.size"


def _columns(table: str, names: tuple[str, ...]) -> str:
    return ", ".join(f"{table}.{name}" for name in names)


def _insert_text(table: str, names: tuple[str, ...], tail: str = "") -> str:
    values = ", ".join(f":{name}" for name in names)
    columns = ", ".join(f'"{name}"' for name in names)
    return f"INSERT INTO {table} ({columns}) VALUES ({values}){tail}"


def insert_into(table: str, names: tuple[str, ...], tail: str = "") -> Statement:
    """Return the statement that inserts a row of these columns; its parameters have their names."""
    return Statement(_insert_text(table, names, tail))


SESSION_COLUMNS = (
    "id", "scope", "key", "title", "kind", "forked_from_session", "forked_from_entry", "leaf", "revision", "metadata",
    "cwd", "config_path", "completed_at", "trashed_at", "entry_count", "message_count", "first_message",
    "spent_tokens", "spent_cost", "created_at", "updated_at", "auto_title", "unpriced_calls", "active_at",
    "unknown_calls", "session_key",
)  # fmt: skip
ENTRY_COLUMNS = (
    "depth", "id", "lane_id", "session_key", "kind", "role", "source", "revision", "ordinal", "created_at", "extra",
    "digest", "payload", "packed", "blob",
)  # fmt: skip
_POSITION = ("lane_id", "depth", *TOTAL_COLUMNS, *PAID_COLUMNS)


def _payload_in(dialect: Dialect, text: str) -> str:
    """A text that reads payloads as the bytes that are stored, in the words of a dialect."""
    return text.replace(_stored_bytes("sqlite", "e.payload"), _stored_bytes(dialect, "e.payload"))


def _reading(text: str) -> Statement:
    return _per_dialect(lambda dialect: _payload_in(dialect, text))


# A payload is read as bytes: its digest is made of them, and they may be no valid text any more.
_PAYLOAD = f"e.digest, {_stored_bytes('sqlite', 'e.payload')} AS payload, e.packed, e.blob"
_ENTRY = f"{_columns('e', ENTRY_COLUMNS[:-4])}, {_PAYLOAD}"
_SESSION = ", ".join(f's."{name}"' for name in SESSION_COLUMNS)
_TOTALS = _columns("e", TOTAL_COLUMNS)
_PAID = _columns("e", PAID_COLUMNS)

# -- store state --------------------------------------------------------------------------------------------------

READ_STATE = Statement("SELECT value FROM flue_store WHERE name = :name")
WRITE_STATE = Statement("UPDATE flue_store SET value = :number WHERE name = :name")

# -- sessions -----------------------------------------------------------------------------------------------------

INSERT_SESSION = insert_into(
    "sessions",
    (
        "session_key", "id", "tree_id", "scope", "key", "title", "kind", "task_depth", "forked_from_session",
        "forked_from_entry", "leaf", "revision", "metadata", "cwd", "config_path", "completed_at", "trashed_at",
        "entry_count", "message_count", "first_message", "spent_tokens", "spent_cost", "created_at", "updated_at",
        "auto_title", "unpriced_calls", "active_at", "unknown_calls",
    ),
)  # fmt: skip
SESSION_BY_ID = Statement(f"SELECT {_SESSION} FROM sessions s WHERE s.id = :id AND s.trashed_at IS NULL")
SESSION_BY_KEY = Statement(
    f"SELECT {_SESSION} FROM sessions s WHERE s.scope = :scope AND s.key = :key AND s.key IS NOT NULL"
    " AND s.trashed_at IS NULL"
)
# What a listing is sorted by. A page by a counter is found by reading the index of listings through, which has them
# beside what every append changes anyway (decision 0014); the rows are looked up for that page alone.
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
_COUNTED: frozenset[SessionOrder] = frozenset({"updated", "messages", "entries", "tokens", "cost"})
_SHOWN_TITLE = "lower(COALESCE(NULLIF(s.title, ''), NULLIF(s.auto_title, ''), NULLIF(s.key, ''), s.first_message, ''))"
_WHERE = {
    "scope": "s.scope = :scope",
    "kind": "s.kind = :kind",
    "key": "s.key = :key",
    "cwd": "s.cwd = :cwd",
    "completed": "(s.completed_at IS NOT NULL) = (:completed = 1)",
    "min_messages": "s.message_count >= :min_messages",
    "max_messages": "s.message_count <= :max_messages",
    "min_entries": "s.entry_count >= :min_entries",
    "max_entries": "s.entry_count <= :max_entries",
    "min_tokens": "s.spent_tokens >= :min_tokens",
    "max_tokens": "s.spent_tokens <= :max_tokens",
    "min_cost": "s.spent_cost >= :min_cost",
    "max_cost": "s.spent_cost <= :max_cost",
    "created_after_us": "s.created_at > :created_after_us",
    "created_before_us": "s.created_at < :created_before_us",
    "updated_after_us": "s.updated_at > :updated_after_us",
    "updated_before_us": "s.updated_at < :updated_before_us",
}


@lru_cache(maxsize=256)
def session_page(ordering: Ordering, filters: frozenset[str], *, is_first: bool) -> Statement:
    """Return the statement for a page of sessions in an order, filtered by what is named.

    Its rows are those of `SESSION_COLUMNS`, with the session's key. Unless it ``is_first``, it begins behind the
    session with ``last_number`` (``last_text``, for titles) and ``last_key``.
    """
    return _per_dialect(lambda dialect: _session_page(ordering, filters, dialect, is_first=is_first))


def _session_page(ordering: Ordering, filters: frozenset[str], dialect: Dialect, *, is_first: bool) -> str:
    value, way = _SORTED_BY[ordering.order], "DESC" if ordering.descending else "ASC"
    found = "instr" if dialect == "sqlite" else "strpos"
    conditions = ["s.trashed_at IS NULL"]
    conditions += [
        f"{found}({_SHOWN_TITLE}, :title_part) > 0" if name == "title" else _WHERE[name] for name in sorted(filters)
    ]
    if not is_first:
        last = "last_text" if ordering.order == "title" else "last_number"
        below = "<" if ordering.descending else ">"
        # The first of the two says where in an index to begin: SQLite does not see it in a pair with an expression.
        conditions.append(f"{value} {below}= :{last} AND ({value}, s.session_key) {below} (:{last}, :last_key)")
    tail = f"WHERE {' AND '.join(conditions)} ORDER BY {value} {way}, s.session_key {way} LIMIT :count"
    # PostgreSQL reads no index through while it cannot know which of its rows are all visible.
    if ordering.order not in _COUNTED or dialect == "postgresql":
        return f"SELECT {_SESSION}, s.session_key FROM sessions s {tail}"
    return (
        f"SELECT {_SESSION}, s.session_key FROM sessions s WHERE s.session_key IN"
        f" (SELECT s.session_key FROM sessions s {tail}) ORDER BY {value} {way}, s.session_key {way}"
    )


SESSION_IDS_FROM = Statement(
    "SELECT s.id FROM sessions s WHERE s.id >= :prefix AND s.id < :end_prefix AND s.trashed_at IS NULL"
    " ORDER BY s.id LIMIT :count"
)
SESSION_IDS = Statement("SELECT s.session_key, s.id FROM sessions s WHERE s.tree_id = :tree_id")


def _place(entry: str, lane: str) -> str:
    """What `session_state.Position` is made of: an entry's place, its lane, and whether the lane goes on below it."""
    return (
        f"{_columns(entry, _POSITION)}, {lane}.owner_key, {lane}.parent_lane, {lane}.fork_depth,"
        f" (SELECT 1 FROM entries c WHERE c.tree_id = {entry}.tree_id AND c.lane_id = {entry}.lane_id"
        f" AND c.depth = {entry}.depth + 1)"
    )


_STATE = (
    "s.session_key, s.id, s.tree_id, s.scope, s.leaf, s.revision, s.kind, s.task_depth, s.forked_from_entry,"
    f" s.spent_tokens, s.spent_cost, s.cwd, {_place('e', 'l')}"
)
_STATE_FROM = (
    " FROM sessions s"
    " LEFT JOIN entries e ON e.tree_id = s.tree_id AND e.id = s.leaf"
    " LEFT JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
)
_LIVING = " WHERE s.id = :id AND s.trashed_at IS NULL"
_EPOCH = "(SELECT f.value FROM flue_store f WHERE f.name = 'epoch')"
# A session with the place of its leaf: what every operation starts from, in one statement. What a read asks for
# next comes with it, so that it takes one round trip less.
SESSION_STATE = Statement(f"SELECT {_STATE}{_STATE_FROM}{_LIVING}")
SESSION_AND_EPOCH = Statement(f"SELECT {_STATE}, {_EPOCH}{_STATE_FROM}{_LIVING}")
# Both ends of a usage window, whose difference it is where they lie in one lane.
WINDOW = Statement(
    f"SELECT s.session_key, s.leaf, {_columns('a', _POSITION)}, {_columns('e', _POSITION)} FROM sessions s"
    " JOIN entries e ON e.tree_id = s.tree_id AND e.id = s.leaf"
    " JOIN entries a ON a.tree_id = s.tree_id AND a.id = :entry_id" + _LIVING + " AND NOT EXISTS (SELECT 1 FROM marks m"
    " WHERE m.session_key = s.session_key AND m.entry_id = :entry_id AND m.kind = 'retracted')"
)
# For databases with several writers; both read again afterwards, because what they waited for may have changed.
LOCK_SESSION = Statement("SELECT s.session_key FROM sessions s WHERE s.id = :id FOR UPDATE")
# A session was last active at the time of its newest entry, by the entries' own times; one without, when it was made.
# ``newest`` is that of the entries of this revision; None where there are none. Only a session that counts no entry
# has to be asked whether it has some that were retracted.
ACTIVE_SINCE = (
    "active_at = CASE WHEN :newest IS NULL OR (:newest < active_at AND (entry_count > 0 OR EXISTS (SELECT 1 FROM"
    " entries e WHERE e.session_key = :session_key AND e.revision < :revision))) THEN active_at ELSE :newest END"
)
UPDATE_AFTER_APPEND = _per_dialect(
    lambda dialect: (
        "UPDATE sessions SET leaf = :leaf, revision = :revision, updated_at = :at,"
        " entry_count = entry_count + :entry_count,"
        " message_count = message_count + :message_count, first_message = COALESCE(first_message, :first_message),"
        " spent_tokens = spent_tokens + :spent_tokens, spent_cost = spent_cost + :spent_cost,"
        " unpriced_calls = unpriced_calls + :unpriced_calls, unknown_calls = unknown_calls + :unknown_calls,"
        f" {ACTIVE_SINCE}"
        " WHERE session_key = :session_key" + _announcing(dialect)
    )
)
UPDATE_LEAF = _per_dialect(
    lambda dialect: (
        "UPDATE sessions SET leaf = :leaf, revision = :revision, updated_at = :at,"
        " entry_count = entry_count + :entry_count,"
        " message_count = message_count + :message_count WHERE session_key = :session_key" + _announcing(dialect)
    )
)
UPDATE_REVISION = _per_dialect(
    lambda dialect: (
        "UPDATE sessions SET revision = :revision, updated_at = :at WHERE session_key = :session_key"
        + _announcing(dialect)
    )
)
UPDATE_TITLE = Statement("UPDATE sessions SET title = :title WHERE session_key = :session_key")
UPDATE_AUTO_TITLE = Statement("UPDATE sessions SET auto_title = :auto_title WHERE session_key = :session_key")
UPDATE_METADATA = Statement("UPDATE sessions SET metadata = :metadata WHERE session_key = :session_key")
UPDATE_COMPLETED = Statement("UPDATE sessions SET completed_at = :completed_at WHERE session_key = :session_key")

# -- entries, lanes, paths ------------------------------------------------------------------------------------------

INSERT_ENTRY = insert_into(
    "entries",
    (
        "tree_id", "lane_id", "depth", "id", "kind", "role", "source", "session_key", "revision", "ordinal",
        "created_at", "counted", *TOTAL_COLUMNS, "digest", "payload", "packed", "blob", "extra",
        *PAID_COLUMNS,
    ),
)  # fmt: skip
INSERT_BLOB = _per_dialect(
    lambda dialect: _insert_text("blobs", ("tree_id", "sha256", "size", "data"), _if_new_blob(dialect))
)
INSERT_LANE = insert_into("lanes", ("tree_id", "lane_id", "owner_key", "parent_lane", "fork_depth"))
LAST_LANE = Statement("SELECT MAX(l.lane_id) FROM lanes l WHERE l.tree_id = :tree_id")
ENTRY_POSITION = Statement(
    f"SELECT e.id, e.session_key, e.kind, {_place('e', 'l')}"
    " FROM entries e JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
    " WHERE e.tree_id = :tree_id AND e.id = :entry_id"
)
# The same, with whether the session has retracted it.
ENTRY_AND_MARK = Statement(
    f"SELECT {_place('e', 'l')}, m.kind FROM entries e JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
    " LEFT JOIN marks m ON m.session_key = :session_key AND m.entry_id = :entry_id AND m.kind = 'retracted'"
    " WHERE e.tree_id = :tree_id AND e.id = :entry_id"
)
ENTRY_BY_ID = _reading(f"SELECT {_ENTRY} FROM entries e WHERE e.tree_id = :tree_id AND e.id = :entry_id")
# Those of a JSON array of ids that are taken. CROSS JOIN keeps SQLite from looking each entry up in the array.
TAKEN_IDS = Statement(
    "SELECT e.id FROM json_each(:ids) AS asked CROSS JOIN entries e ON e.tree_id = :tree_id AND e.id = asked.value",
    "SELECT e.id FROM entries e WHERE e.tree_id = :tree_id"
    " AND e.id = ANY (ARRAY(SELECT value FROM json_array_elements_text(CAST(:ids AS json))))",
)
ID_AT = Statement("SELECT e.id FROM entries e WHERE e.tree_id = :tree_id AND e.lane_id = :lane_id AND e.depth = :depth")

ENTRY_IDS_FROM = Statement(
    "SELECT e.id FROM entries e WHERE e.tree_id = :tree_id AND e.id >= :prefix AND e.id < :end_prefix"
    " ORDER BY e.id LIMIT :count"
)

# Whether an entry is an ancestor of what the session holds: its leaf, its fork point, its lanes' fork points.
IS_HELD = Statement(
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
_SPANS = (
    "WITH RECURSIVE spans(lane_id, low, high, parent_lane) AS ("
    "  SELECT l.lane_id, l.fork_depth, CAST(:depth AS BIGINT), l.parent_lane FROM lanes l"
    "   WHERE l.tree_id = :tree_id AND l.lane_id = :lane_id"
    "  UNION ALL SELECT l.lane_id, l.fork_depth, s.low, l.parent_lane FROM spans s"
    "   JOIN lanes l ON l.tree_id = :tree_id AND l.lane_id = s.parent_lane WHERE s.parent_lane IS NOT NULL"
    ") "
)
_IN_SPAN = "e.tree_id = :tree_id AND e.lane_id = s.lane_id AND e.depth > s.low AND e.depth <= s.high"
# A path as its stretches, leaf side first.
SPANS = Statement(_SPANS + "SELECT s.lane_id, s.high FROM spans s")
# Whether an entry lies on the path to a place.
IS_ON_PATH = Statement(
    _SPANS + "SELECT 1 FROM spans s WHERE s.lane_id = :other_lane AND s.high >= :other_depth LIMIT 1"
)
# A path in one lane is one range; one over several lanes is the union of their ranges, in no order.
LANE_RANGE = _reading(
    f"SELECT {_ENTRY} FROM entries e WHERE e.tree_id = :tree_id AND e.lane_id = :lane_id"
    " AND e.depth > :low AND e.depth <= :high ORDER BY e.depth"
)
SPANS_RANGE = _reading(
    _SPANS + f"SELECT {_ENTRY} FROM spans s JOIN entries e ON {_IN_SPAN} AND e.depth > :low_depth"
    " WHERE s.high > :low_depth"
)
# The same for the messages alone: nothing is fetched that a message is not made of.
# (A message's kind and time are not: NULL for ten thousand of them is quicker than their values.)
_BODY = (
    "e.depth, CASE WHEN e.kind = 'message' THEN NULL ELSE e.kind END,"
    " CASE WHEN e.kind = 'message' THEN NULL ELSE e.created_at END,"
    f" {_PAYLOAD}"
)
LANE_BODIES = _reading(
    f"SELECT {_BODY} FROM entries e WHERE e.tree_id = :tree_id AND e.lane_id = :lane_id"
    " AND e.depth > :low AND e.depth <= :high ORDER BY e.depth"
)
SPANS_BODIES = _reading(
    _SPANS + f"SELECT {_BODY} FROM spans s JOIN entries e ON {_IN_SPAN} AND e.depth > :low_depth"
    " WHERE s.high > :low_depth"
)
_COMPACTION = f"e.depth, e.lane_id, e.id, {_PAYLOAD}"
_LATEST_COMPACTION = (
    f"SELECT {_COMPACTION} FROM spans s JOIN entries e ON {_IN_SPAN} WHERE e.kind = 'compaction'"
    " ORDER BY e.depth DESC LIMIT 1"
)
LATEST_COMPACTION = _reading(_SPANS + _LATEST_COMPACTION)
SESSION_AND_COMPACTION = _reading(
    "WITH RECURSIVE spans(tree_id, lane_id, low, high, parent_lane) AS ("
    "  SELECT l.tree_id, l.lane_id, l.fork_depth, e.depth, l.parent_lane FROM sessions s"
    "   JOIN entries e ON e.tree_id = s.tree_id AND e.id = s.leaf"
    "   JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
    "   WHERE s.id = :id AND s.trashed_at IS NULL"
    "  UNION ALL SELECT s.tree_id, l.lane_id, l.fork_depth, s.low, l.parent_lane FROM spans s"
    "   JOIN lanes l ON l.tree_id = s.tree_id AND l.lane_id = s.parent_lane WHERE s.parent_lane IS NOT NULL"
    f") SELECT {_STATE}, {_EPOCH}, n.depth, n.lane_id, n.id, n.digest, n.payload, n.packed, n.blob{_STATE_FROM}"
    f" LEFT JOIN ({_LATEST_COMPACTION.replace(':tree_id', 's.tree_id')}) n ON 1 = 1" + _LIVING
)
# The depth of an entry on a path, above a place of it.
DEPTH_ON_PATH = Statement(
    _SPANS + f"SELECT e.depth FROM entries e JOIN spans s ON {_IN_SPAN}"
    " WHERE e.tree_id = :tree_id AND e.id = :entry_id AND e.depth < :depth"
)
# Entries on a path that are named, and its exclusions, up to a depth.
NAMED_ON_PATH = _per_dialect(
    lambda dialect: (
        _SPANS + f"SELECT {_payload_in(dialect, _ENTRY)} FROM entries e JOIN spans s ON {_IN_SPAN}"
        f" WHERE e.tree_id = :tree_id AND {_in_ids('e.id', dialect)} AND e.depth <= :last_depth"
    )
)
EXCLUSIONS_ON_PATH = _reading(
    _SPANS + f"SELECT {_ENTRY} FROM spans s JOIN entries e ON {_IN_SPAN} AND e.kind = 'exclusion'"
    " WHERE e.depth <= :last_depth"
)
PATH_STRETCH = _reading(
    _SPANS + f"SELECT {_ENTRY} FROM spans s JOIN entries e ON {_IN_SPAN}"
    " AND e.depth > :low_depth AND e.depth <= :last_depth WHERE s.high > :low_depth AND s.low < :last_depth"
)
TURNS = _reading(
    _SPANS + f"SELECT {_ENTRY} FROM spans s JOIN entries e ON {_IN_SPAN} WHERE e.kind = 'message' AND e.role = 'user'"
)
ALL_BLOBS = Statement("SELECT b.tree_id, b.sha256, b.size, b.data FROM blobs b")
BLOB_DATA = Statement("SELECT b.data FROM blobs b WHERE b.tree_id = :tree_id AND b.sha256 = :sha256")

# -- what a session sees -------------------------------------------------------------------------------------------

WITH_HELD = (
    "WITH RECURSIVE anchors(lane_id, depth) AS ("
    "  SELECT e.lane_id, e.depth FROM entries e WHERE e.tree_id = :tree_id AND e.id IN (:leaf, :forked_from_entry)"
    "  UNION SELECT l.lane_id, 9223372036854775807 FROM lanes l WHERE l.owner_key = :session_key"
    "), held(lane_id, depth) AS ("
    "  SELECT a.lane_id, a.depth FROM anchors a"
    "  UNION SELECT l.parent_lane, l.fork_depth FROM held h"
    "   JOIN lanes l ON l.tree_id = :tree_id AND l.lane_id = h.lane_id WHERE l.parent_lane IS NOT NULL)"
)
HELD_SPANS = Statement(
    f"{WITH_HELD} SELECT h.lane_id, MAX(h.depth), l.parent_lane, l.fork_depth FROM held h"
    " JOIN lanes l ON l.tree_id = :tree_id AND l.lane_id = h.lane_id"
    " GROUP BY h.lane_id, l.parent_lane, l.fork_depth"
)
CHILD_IN_LANE = Statement(
    "SELECT e.id, e.session_key, e.lane_id, e.depth, l.owner_key FROM entries e"
    " JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
    " WHERE e.tree_id = :tree_id AND e.lane_id = :lane_id AND e.depth = :depth"
)
CHILDREN_IN_OTHER_LANES = Statement(
    "SELECT e.id, e.session_key, e.lane_id, e.depth, l.owner_key FROM lanes l"
    " JOIN entries e ON e.tree_id = l.tree_id AND e.lane_id = l.lane_id AND e.depth = :depth"
    " WHERE l.tree_id = :tree_id AND l.parent_lane = :lane_id AND l.fork_depth = :depth - 1"
)

# -- moves, marks, requests, ledger --------------------------------------------------------------------------------

INSERT_MOVE = insert_into(
    "leaf_moves", ("session_key", "revision", "from_entry", "to_entry", "reason", "undoes", "moved_by", "at", "why")
)
LAST_MOVE = Statement(
    "SELECT m.revision, m.reason, m.undoes, m.from_entry, m.to_entry FROM leaf_moves m"
    " WHERE m.session_key = :session_key AND m.revision <= :revision ORDER BY m.revision DESC LIMIT 1"
)
MOVES_AFTER = Statement(
    "SELECT m.revision, m.reason, m.undoes, m.from_entry, m.to_entry, m.at FROM leaf_moves m"
    " WHERE m.session_key = :session_key AND m.revision > :revision AND m.revision <= :last_revision"
    " ORDER BY m.revision"
)
INSERT_EDIT = insert_into(
    "session_edits", ("session_key", "revision", "what", "entry_id", "before", "after", "edited_by", "why", "at")
)
EDITS_AFTER = Statement(
    'SELECT x.revision, x.what, x.entry_id, x."before", x."after", x.edited_by, x.why, x.at FROM session_edits x'
    " WHERE x.session_key = :session_key AND x.revision > :revision AND x.revision <= :last_revision"
    " ORDER BY x.revision, x.what"
)
LOGGED_MOVES = Statement(
    "SELECT m.revision, m.reason, m.undoes, m.from_entry, m.to_entry, m.moved_by, m.why, m.at FROM leaf_moves m"
    " WHERE m.session_key = :session_key AND m.revision > :revision AND m.revision <= :last_revision"
)
_LAST_LOGGED = (
    "FROM entries l WHERE l.session_key = e.session_key AND l.revision = e.revision ORDER BY l.ordinal DESC LIMIT 1"
)
_PARENT_ID = (
    "COALESCE((SELECT p.id FROM entries p WHERE p.tree_id = e.tree_id AND p.lane_id = e.lane_id"
    " AND p.depth = e.depth - 1), (SELECT p.id FROM lanes l JOIN entries p ON p.tree_id = l.tree_id"
    " AND p.lane_id = l.parent_lane AND p.depth = l.fork_depth WHERE l.tree_id = e.tree_id"
    " AND l.lane_id = e.lane_id AND e.depth = l.fork_depth + 1))"
)
# The first entries of each of some revisions: the first itself, with its parent and what the last one is.
LOGGED_ENTRIES = _per_dialect(
    lambda dialect: (
        "SELECT e.revision, e.id, e.kind,"
        + ", ".join(
            f" CASE WHEN e.ordinal = 0 THEN ({value}) END"
            for value in (
                f"SELECT l.ordinal {_LAST_LOGGED}",
                f"SELECT l.id {_LAST_LOGGED}",
                f"SELECT l.created_at {_LAST_LOGGED}",
                _PARENT_ID,
                "e.digest",
                _stored_bytes(dialect, "e.payload"),
                "e.packed",
                "e.blob",
            )
        )
        + f" FROM ({_numbers(dialect)}) r JOIN entries e ON e.session_key = :session_key AND e.revision = r.number"
        " AND e.ordinal < :count ORDER BY e.revision, e.ordinal"
    )
)
LAST_APPEND = Statement(
    "SELECT MAX(e.revision) FROM entries e WHERE e.session_key = :session_key AND e.revision <= :revision"
)
ENTRIES_OF_REVISIONS = _reading(
    f"SELECT {_ENTRY} FROM entries e WHERE e.session_key = :session_key AND e.revision > :revision"
    " AND e.revision <= :last_revision ORDER BY e.revision, e.ordinal"
)
FIRST_OF_REVISION = Statement(
    "SELECT e.id, e.lane_id, e.depth FROM entries e"
    " WHERE e.session_key = :session_key AND e.revision = :revision ORDER BY e.ordinal LIMIT 1"
)
LAST_OF_REVISION = Statement(
    "SELECT e.id, e.lane_id, e.depth FROM entries e"
    " WHERE e.session_key = :session_key AND e.revision = :revision ORDER BY e.ordinal DESC LIMIT 1"
)
PARENT_LANE = Statement(
    "SELECT l.parent_lane, l.fork_depth FROM lanes l WHERE l.tree_id = :tree_id AND l.lane_id = :lane_id"
)

PUT_MARK = insert_into(
    "marks",
    ("session_key", "entry_id", "kind", "value", "at"),
    " ON CONFLICT (session_key, entry_id, kind) DO UPDATE SET value = excluded.value, at = excluded.at",
)
DROP_MARK = Statement("DELETE FROM marks WHERE session_key = :session_key AND entry_id = :entry_id AND kind = :kind")
MARK = Statement(
    "SELECT m.value FROM marks m WHERE m.session_key = :session_key AND m.entry_id = :entry_id AND m.kind = :kind"
)
MARKS = Statement(
    "SELECT m.entry_id, m.kind, m.value FROM marks m WHERE m.session_key = :session_key ORDER BY m.entry_id, m.kind"
)
MARKS_OF_KIND = Statement(
    "SELECT m.entry_id, m.value FROM marks m WHERE m.session_key = :session_key AND m.kind = :kind"
)
RETRACTED_IDS = Statement("SELECT m.entry_id FROM marks m WHERE m.session_key = :session_key AND m.kind = 'retracted'")

REQUEST = Statement(
    "SELECT r.operation, r.digest, r.result FROM requests r"
    " WHERE r.session_key = :session_key AND r.idempotency_key = :idempotency_key"
)
INSERT_REQUEST = insert_into("requests", ("session_key", "idempotency_key", "operation", "digest", "result"))

# -- tasks ----------------------------------------------------------------------------------------------------------

INSERT_LINK = insert_into(
    "task_links", ("parent_key", "position", "task_id", "child_id", "entry_id"), " ON CONFLICT DO NOTHING"
)
NEXT_POSITION = Statement("SELECT COALESCE(MAX(t.position) + 1, 0) FROM task_links t WHERE t.parent_key = :parent_key")
LINKED_CHILD = Statement(
    "SELECT t.entry_id FROM task_links t WHERE t.parent_key = :parent_key AND t.child_id = :child_id"
)
PARENTS_OF_CHILD = Statement("SELECT COUNT(*) FROM task_links t WHERE t.child_id = :child_id")
# Links may go round in circles: each session is as deep as the shortest way to it.
SUNK_TASKS = Statement(
    "WITH RECURSIVE below(id, depth) AS (SELECT s.id, CAST(:depth AS BIGINT) FROM sessions s WHERE s.id = :child_id"
    " UNION SELECT t.child_id, b.depth + 1 FROM below b JOIN sessions p ON p.id = b.id"
    " JOIN task_links t ON t.parent_key = p.session_key WHERE b.depth < 100)"
    " SELECT s.session_key, s.id, s.revision, s.task_depth, MIN(b.depth) FROM below b JOIN sessions s ON s.id = b.id"
    " WHERE s.kind = 'task' GROUP BY s.session_key, s.id, s.revision, s.task_depth HAVING MIN(b.depth) <> s.task_depth"
    " ORDER BY s.session_key"
)
UPDATE_DEPTH = Statement("UPDATE sessions SET task_depth = :task_depth WHERE session_key = :session_key")
PLACE_LINK = Statement(
    "UPDATE task_links SET entry_id = :entry_id WHERE parent_key = :parent_key AND child_id = :child_id"
)
TASK_CHILD = Statement(
    "SELECT t.child_id FROM task_links t WHERE t.parent_key = :parent_key AND t.task_id = :task_id ORDER BY t.position"
)
LINKS_OF = Statement(
    "SELECT s.id, t.position, t.task_id, t.child_id, t.entry_id FROM sessions s"
    " JOIN task_links t ON t.parent_key = s.session_key WHERE s.id = :id ORDER BY t.position"
)
LINKS_TO = Statement(
    "SELECT s.id, t.position, t.task_id, t.child_id, t.entry_id FROM task_links t"
    " JOIN sessions s ON s.session_key = t.parent_key WHERE t.child_id = :id ORDER BY s.id"
)

# -- the whole store ------------------------------------------------------------------------------------------------

COUNTS = Statement(
    "SELECT (SELECT COUNT(*) FROM sessions), (SELECT COUNT(*) FROM entries), (SELECT COUNT(*) FROM ledger)"
)

# PostgreSQL alone.
DATABASE_SIZE = Statement("SELECT pg_database_size(current_database())")
SYNCHRONOUS_COMMIT = Statement("SELECT current_setting('synchronous_commit')")

# -- deletion -------------------------------------------------------------------------------------------------------

_LANE = "l.tree_id, l.lane_id, l.owner_key, l.parent_lane, l.fork_depth"


TASK_CLOSURE = _per_dialect(
    lambda dialect: (
        "WITH RECURSIVE doomed(id) AS ("
        f"  SELECT {_same_as_column(dialect, 'CAST(:id AS TEXT)')}"
        "  UNION SELECT t.child_id FROM doomed d JOIN sessions s ON s.id = d.id"
        "   JOIN task_links t ON t.parent_key = s.session_key"
        ") SELECT d.id, s.session_key, s.scope FROM doomed d LEFT JOIN sessions s ON s.id = d.id"
    )
)
# What a session's tasks have paid stays with it when the links to them go.
LINKS_OF_SESSIONS = _per_dialect(
    lambda dialect: (
        "SELECT s.id, t.child_id FROM task_links t JOIN sessions s ON s.session_key = t.parent_key"
        f" WHERE {_in_keys('t.parent_key', dialect)} ORDER BY t.parent_key, t.position"
    )
)
# Of sessions that go or are gone, and of tasks that such a session took along without having paid for anything itself.
PAYERS_TO_NOTE = _per_dialect(
    lambda dialect: (
        "SELECT n.session_key, n.session_id, n.session_id, n.task_of FROM ledger_sessions n"
        f" WHERE {_in_ids('n.session_id', dialect)}"
        " UNION ALL SELECT n.session_key, n.task_of, n.session_id, NULL FROM ledger_sessions n"
        f" WHERE {_in_ids('n.task_of', dialect)} AND NOT EXISTS"
        " (SELECT 1 FROM ledger_sessions p WHERE p.session_id = n.task_of)"
    )
)
NOTE_TASK = Statement("UPDATE ledger_sessions SET task_of = :task_of WHERE session_key = :session_key")
GONE_TASKS = _per_dialect(
    lambda dialect: (
        f"UPDATE ledger_sessions SET task_of = :task_of WHERE ({_in_ids('session_id', dialect)} AND task_of IS NULL)"
        f" OR ({_in_ids('task_of', dialect)} AND NOT EXISTS"
        " (SELECT 1 FROM ledger_sessions p WHERE p.session_id = ledger_sessions.task_of))"
    )
)
GONE_TASKS = _per_dialect(
    lambda dialect: (
        "WITH RECURSIVE gone(id) AS (SELECT "
        + (
            "value FROM json_each(:ids)"
            if dialect == "sqlite"
            else 'value COLLATE "C" FROM json_array_elements_text(CAST(:ids AS json))'
        )
        + " UNION SELECT n.session_id FROM gone g JOIN ledger_sessions n ON n.task_of = g.id) SELECT id FROM gone"
    )
)
# In order of key, so that two who lock the same sessions do not wait for each other.
LOCK_SESSIONS = _per_dialect(
    lambda dialect: (
        f"SELECT s.session_key FROM sessions s WHERE {_in_keys('s.session_key', dialect)}"
        " ORDER BY s.session_key FOR UPDATE"
    )
)
DOOMED_LANES = _per_dialect(lambda dialect: f"SELECT {_LANE} FROM lanes l WHERE {_in_keys('l.owner_key', dialect)}")
CHILD_LANES = _per_dialect(
    lambda dialect: (
        f"SELECT {_LANE} FROM lanes p JOIN lanes l ON l.tree_id = p.tree_id AND l.parent_lane = p.lane_id"
        f" WHERE {_in_keys('p.owner_key', dialect)}"
    )
)


def _held_by(column: str, dialect: Dialect) -> str:
    entry = f"FROM entries e WHERE e.tree_id = s.tree_id AND e.id = s.{column}"
    return (
        f"SELECT s.tree_id, (SELECT e.lane_id {entry}) AS lane_id, (SELECT e.depth {entry}) AS depth, s.session_key"
        f" FROM sessions s WHERE s.{column} IS NOT NULL AND NOT {_in_keys('s.session_key', dialect)} AND s.tree_id IN"
        f" (SELECT d.tree_id FROM sessions d WHERE {_in_keys('d.session_key', dialect)})"
    )


# Where other sessions hold on to the lanes: with their leaf, or the entry they were forked from. (An entry is looked
# up for each session; joined, PostgreSQL would read the whole tree.)
HOLDS = _per_dialect(
    lambda dialect: (
        "SELECT h.tree_id, h.lane_id, h.depth, h.session_key"
        f" FROM ({_held_by('leaf', dialect)} UNION ALL {_held_by('forked_from_entry', dialect)}) h"
        " JOIN lanes l ON l.tree_id = h.tree_id AND l.lane_id = h.lane_id"
        f" WHERE {_in_keys('l.owner_key', dialect)}"
    )
)
_IN_TAIL = "e.tree_id = t.tree_id AND e.lane_id = t.lane_id AND e.depth > t.low"
# What the ends of lanes hold: how many entries per blob (None: those without one), for each tree.
TAILS_CONTENT = _per_dialect(
    lambda dialect: (
        f"SELECT e.tree_id, e.blob, COUNT(*) FROM ({_tails_in(dialect)}) t JOIN entries e ON {_IN_TAIL}"
        " GROUP BY e.tree_id, e.blob"
    )
)
# The same of what it deletes, where SQLite counts each entry by itself.
DELETE_TAILS = Statement(
    f"DELETE FROM entries WHERE rowid IN (SELECT e.rowid FROM ({_tails_in('sqlite')}) t JOIN entries e ON {_IN_TAIL})"
    " RETURNING tree_id, blob, 1",
    f"WITH gone AS (DELETE FROM entries e USING ({_tails_in('postgresql')}) t WHERE {_IN_TAIL}"
    " RETURNING e.tree_id, e.blob) SELECT g.tree_id, g.blob, COUNT(*) FROM gone g GROUP BY g.tree_id, g.blob",
)
HAND_OVER_LANE = Statement("UPDATE lanes SET owner_key = :owner_key WHERE tree_id = :tree_id AND lane_id = :lane_id")
DELETE_LANE = Statement("DELETE FROM lanes WHERE tree_id = :tree_id AND lane_id = :lane_id")
LOCK_BLOB = Statement("SELECT b.size FROM blobs b WHERE b.tree_id = :tree_id AND b.sha256 = :sha256 FOR UPDATE")
DELETE_UNUSED_BLOB = Statement(
    "DELETE FROM blobs WHERE tree_id = :tree_id AND sha256 = :sha256 AND NOT EXISTS"
    " (SELECT 1 FROM entries e WHERE e.tree_id = :tree_id AND e.blob = :sha256 AND e.blob IS NOT NULL)"
)
DELETE_SESSIONS = _per_dialect(
    lambda dialect: f"DELETE FROM sessions WHERE {_in_keys('session_key', dialect)}{_announcing(dialect)}"
)

# -- verification ---------------------------------------------------------------------------------------------------

INTEGRITY_CHECK = Statement("PRAGMA integrity_check")
FOREIGN_KEY_CHECK = Statement("PRAGMA foreign_key_check")
# Numbers that are compared or counted on are cast: SQLite may hold anything in them, which then is a wrong number.
ALL_SESSIONS = Statement(
    "SELECT s.session_key, s.id, s.tree_id, s.leaf, s.forked_from_entry, CAST(s.revision AS BIGINT),"
    " s.entry_count, s.message_count,"
    " s.spent_tokens, s.spent_cost, s.unpriced_calls, s.unknown_calls, s.first_message, s.active_at, s.created_at,"
    " s.scope, s.key, s.title FROM sessions s ORDER BY s.session_key"
)
ALL_LANES = Statement(
    "SELECT l.tree_id, l.lane_id, l.owner_key, l.parent_lane, CAST(l.fork_depth AS BIGINT) FROM lanes l"
    " ORDER BY l.tree_id, l.fork_depth, l.lane_id"
)
LANE_ENTRIES = _per_dialect(
    lambda dialect: (
        "SELECT CAST(e.depth AS BIGINT), e.id, e.session_key, e.kind, e.role, e.counted, CAST(e.revision AS BIGINT),"
        f" e.digest, {_TOTALS}, {_stored_bytes(dialect, 'e.payload')}, e.packed, e.blob, CAST(e.ordinal AS BIGINT),"
        f" {_storage_class(dialect, 'e.payload')}, CAST(e.created_at AS BIGINT), {_PAID} FROM entries e"
        " WHERE e.tree_id = :tree_id AND e.lane_id = :lane_id ORDER BY e.depth"
    )
)
COUNT_ENTRIES = Statement("SELECT COUNT(*) FROM entries")
LANELESS_ENTRIES = Statement(
    "SELECT e.id FROM entries e LEFT JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
    " WHERE l.lane_id IS NULL"
)
NAMELESS_CALLS = Statement(
    "SELECT g.call_id FROM ledger g LEFT JOIN ledger_sessions n ON n.session_key = g.session_key"
    " WHERE n.session_key IS NULL"
)
UNUSED_BLOBS = Statement(
    "SELECT b.sha256 FROM blobs b WHERE NOT EXISTS"
    " (SELECT 1 FROM entries e WHERE e.tree_id = b.tree_id AND e.blob = b.sha256 AND e.blob IS NOT NULL)"
)
ALL_RETRACTED = Statement("SELECT m.session_key, m.entry_id FROM marks m WHERE m.kind = 'retracted'")
LAST_REVISIONS = Statement(
    "SELECT m.session_key, CAST(MAX(m.revision) AS BIGINT) FROM leaf_moves m GROUP BY m.session_key"
)
LAST_KEY = Statement("SELECT MAX(s.session_key) FROM sessions s")
DANGLING_MARKS = Statement(
    "SELECT s.id, m.entry_id, m.kind FROM marks m JOIN sessions s ON s.session_key = m.session_key"
    " LEFT JOIN entries e ON e.tree_id = s.tree_id AND e.id = m.entry_id WHERE e.id IS NULL"
)
BOOKED_CALLS = Statement(
    "SELECT g.tree_id, g.session_key, g.entry_id, COUNT(*), COUNT(*) - COUNT(g.cost), CAST(SUM(g.unknown) AS BIGINT),"
    f" CAST(SUM({all_tokens()}) AS BIGINT), COALESCE(CAST(SUM(g.cost) AS BIGINT), 0)"
    " FROM ledger g WHERE g.entry_id IS NOT NULL GROUP BY g.tree_id, g.session_key, g.entry_id"
)
LEDGER_SUMS = Statement(
    f"SELECT g.session_key, CAST(SUM({all_tokens()}) AS BIGINT), COALESCE(CAST(SUM(g.cost) AS BIGINT), 0),"
    " COUNT(*) - COUNT(g.cost), CAST(SUM(g.unknown) AS BIGINT) FROM ledger g GROUP BY g.session_key"
)
STRAY_PAYERS = Statement(
    "SELECT n.session_id, n.tree_id, MIN(g.tree_id) FROM ledger_sessions n JOIN ledger g"
    " ON g.session_key = n.session_key AND (n.tree_id IS NULL OR g.tree_id <> n.tree_id)"
    " GROUP BY n.session_key, n.session_id, n.tree_id ORDER BY n.session_key"
)
STRAY_PROJECTS = Statement(
    "SELECT n.session_id, n.project, s.cwd FROM ledger_sessions n JOIN sessions s ON s.session_key = n.session_key"
    " WHERE n.project <> s.cwd ORDER BY n.session_key"
)
STRAY_BUDGETS = Statement(
    "SELECT b.id, b.session_id FROM budgets b LEFT JOIN sessions s ON s.id = b.session_id AND s.scope = b.scope"
    " WHERE b.session_id IS NOT NULL AND s.session_key IS NULL ORDER BY b.budget_key"
)
BUDGET_SUMS = Statement(
    "SELECT b.id, b.reserved, b.spent,"
    " COALESCE(CAST(SUM(CASE WHEN r.state = 'held' THEN r.amount END) AS BIGINT), 0),"
    " b.seeded + COALESCE(CAST(SUM(CASE WHEN r.state = 'committed' THEN r.used END) AS BIGINT), 0)"
    " FROM budgets b LEFT JOIN reservations r ON r.budget_key = b.budget_key"
    " GROUP BY b.budget_key, b.id, b.reserved, b.spent, b.seeded ORDER BY b.budget_key"
)
ROWS_OF_NO_SESSION = {
    table: Statement(
        f"SELECT t.{column}, COUNT(*), MIN({example}), (SELECT MIN(n.session_id) FROM ledger_sessions n"
        f" WHERE n.session_key = t.{column}) FROM {table} t LEFT JOIN sessions s ON s.session_key = t.{column}{join}"
        f" WHERE s.session_key IS NULL GROUP BY t.{column} ORDER BY t.{column}"
    )
    for table, column, example, join in (
        ("lanes", "owner_key", "e.id", " LEFT JOIN entries e ON e.tree_id = t.tree_id AND e.lane_id = t.lane_id"),
        ("task_links", "parent_key", "t.child_id", ""),
        ("leaf_moves", "session_key", "t.to_entry", ""),
        ("session_edits", "session_key", "t.what", ""),
        ("requests", "session_key", "t.idempotency_key", ""),
        ("marks", "session_key", "t.entry_id", ""),
    )
}
"""Of each table: the missing session's key, its rows (of lanes: their entries), one they name, and the session's id."""
