"""The statements that read and write whole trees, in SQL that SQLite and PostgreSQL both read."""

from __future__ import annotations

from flue_py.core.trees import (
    BlobRow,
    CallRow,
    EditRow,
    EntryRow,
    LaneRow,
    LinkRow,
    MarkRow,
    MoveRow,
    Payer,
    RequestRow,
    SessionHead,
    SessionRow,
)
from flue_py.store.seam import Statement
from flue_py.store.sql.parts import insert_into

# A copy is told from other sessions by a request under this key, of this operation: its digest is the fingerprint of
# the tree as it was copied.
COPY_KEY = "flue-py copy 6f0d1c3a"
COPY_OPERATION = "copy"


def _select(names: tuple[str, ...], alias: str, rest: str) -> Statement:
    return Statement("SELECT " + ", ".join(f'{alias}."{name}"' for name in names) + f" FROM {rest}")


# -- which trees there are --------------------------------------------------------------------------------------------

TREE_IDS = Statement(
    "SELECT DISTINCT s.tree_id FROM sessions s WHERE s.tree_id > :after_key ORDER BY s.tree_id LIMIT :count"
)
HEADS = _select(
    ("tree_id", *SessionHead._fields),
    "s",
    "sessions s WHERE s.tree_id > :after_key AND s.tree_id <= :last_tree ORDER BY s.tree_id, s.session_key",
)
TREE_OF_SESSION = Statement("SELECT s.tree_id FROM sessions s WHERE s.id = :id")


def _stamped_heads(texts: str) -> str:
    """The trees that have sessions of a JSON array of ids, whole: with keys, and with the stamps of copies."""
    return (
        "SELECT s.tree_id, s.session_key, r.digest, " + ", ".join(f's."{name}"' for name in SessionHead._fields) + " "
        "FROM sessions s LEFT JOIN requests r ON r.session_key = s.session_key"
        f" AND r.idempotency_key = '{COPY_KEY}' AND r.operation = '{COPY_OPERATION}'"
        f" WHERE s.tree_id IN (SELECT f.tree_id FROM sessions f WHERE f.id IN ({texts}))"
        " ORDER BY s.tree_id, s.session_key"
    )


STAMPED_HEADS = Statement(
    _stamped_heads("SELECT value FROM json_each(:ids)"),
    _stamped_heads("SELECT json_array_elements_text(CAST(:ids AS json))"),
)


def _key_holders(pairs: str, scope: str, key: str) -> str:
    """The sessions that have the keys of a JSON array of [scope, key]."""
    return (
        f'SELECT s.scope, s."key", s.id FROM {pairs} AS pair JOIN sessions s ON s.scope = {scope} AND s."key" = {key}'
        ' WHERE s."key" IS NOT NULL AND s.trashed_at IS NULL'
    )


KEY_HOLDERS = Statement(
    _key_holders("json_each(:keys)", "json_extract(pair.value, '$[0]')", "json_extract(pair.value, '$[1]')"),
    _key_holders("json_array_elements(CAST(:keys AS json))", "(pair.value ->> 0)", "(pair.value ->> 1)"),
)

# -- reading a tree ---------------------------------------------------------------------------------------------------

_OF_SESSIONS = "JOIN sessions s ON s.session_key = t.session_key WHERE s.tree_id = :tree_id"
EPOCH = Statement("SELECT value FROM flue_store WHERE name = 'epoch'")
SESSIONS = _select(SessionRow._fields, "s", "sessions s WHERE s.tree_id = :tree_id ORDER BY s.session_key")
LANES = _select(LaneRow._fields, "t", "lanes t WHERE t.tree_id = :tree_id ORDER BY t.lane_id")
ENTRIES = _select(EntryRow._fields, "t", "entries t WHERE t.tree_id = :tree_id ORDER BY t.lane_id, t.depth")
BLOBS = _select(BlobRow._fields, "t", "blobs t WHERE t.tree_id = :tree_id ORDER BY t.sha256")
LINKS = _select(
    LinkRow._fields,
    "t",
    "task_links t JOIN sessions s ON s.session_key = t.parent_key WHERE s.tree_id = :tree_id"
    " ORDER BY t.parent_key, t.position",
)
MOVES = _select(MoveRow._fields, "t", f"leaf_moves t {_OF_SESSIONS} ORDER BY t.session_key, t.revision")
EDITS = _select(EditRow._fields, "t", f"session_edits t {_OF_SESSIONS} ORDER BY t.session_key, t.revision, t.what")
REQUESTS = _select(
    RequestRow._fields,
    "t",
    f"requests t {_OF_SESSIONS} AND t.operation <> '{COPY_OPERATION}' ORDER BY t.session_key, t.idempotency_key",
)
MARKS = _select(MarkRow._fields, "t", f"marks t {_OF_SESSIONS} ORDER BY t.session_key, t.entry_id, t.kind")
CALLS = _select(CallRow._fields, "t", f"ledger t {_OF_SESSIONS} ORDER BY t.session_key, t.provider, t.call_id")
PAYERS = _select(Payer._fields, "t", f"ledger_sessions t {_OF_SESSIONS} ORDER BY t.session_key")

# -- reading what sessions that are gone have paid --------------------------------------------------------------------

PAYER = _select(Payer._fields, "t", "ledger_sessions t WHERE t.session_key = :session_key")
GONE_PAYERS = _select(
    Payer._fields,
    "t",
    "ledger_sessions t LEFT JOIN sessions s ON s.session_key = t.session_key"
    " WHERE t.session_key > :after_key AND s.session_key IS NULL ORDER BY t.session_key LIMIT :count",
)
CALLS_OF = _select(
    (*CallRow._fields, "tree_id"),
    "t",
    "ledger t WHERE t.session_key = :session_key ORDER BY t.scope, t.provider, t.call_id",
)
MEMBER_OF_TREE = Statement("SELECT s.id FROM sessions s WHERE s.tree_id = :tree_id ORDER BY s.session_key LIMIT 1")

# -- writing ----------------------------------------------------------------------------------------------------------

INSERT_SESSION = insert_into("sessions", ("tree_id", *SessionRow._fields))
INSERT_LANE = insert_into("lanes", ("tree_id", *LaneRow._fields))
INSERT_ENTRY = insert_into("entries", ("tree_id", *EntryRow._fields))
INSERT_BLOB = insert_into("blobs", ("tree_id", *BlobRow._fields))
INSERT_LINK = insert_into("task_links", LinkRow._fields)
INSERT_MOVE = insert_into("leaf_moves", MoveRow._fields)
INSERT_EDIT = insert_into("session_edits", EditRow._fields)
INSERT_REQUEST = insert_into("requests", RequestRow._fields)
INSERT_MARK = insert_into("marks", MarkRow._fields)
INSERT_CALL = insert_into("ledger", ("tree_id", *CallRow._fields), " ON CONFLICT DO NOTHING")
INSERT_PAYER = insert_into("ledger_sessions", (*Payer._fields, "tree_id"), " ON CONFLICT DO NOTHING")
RAISE_EPOCH = Statement("UPDATE flue_store SET value = :number WHERE name = 'epoch' AND value < :number")

# Who has a paid call, and whether that session is still there.
OWNER_OF_CALL = Statement(
    "SELECT g.session_key, g.tree_id, n.session_id, s.session_key FROM ledger g"
    " LEFT JOIN ledger_sessions n ON n.session_key = g.session_key"
    " LEFT JOIN sessions s ON s.session_key = g.session_key"
    " WHERE g.scope = :scope AND g.provider = :provider AND g.call_id = :call_id"
)
DELETE_CALLS_OF = Statement("DELETE FROM ledger WHERE session_key = :session_key")
COUNT_CALLS = Statement("SELECT COUNT(*) FROM ledger WHERE session_key = :session_key")
GIVE_CALL = Statement(
    "UPDATE ledger SET session_key = :session_key, tree_id = :tree_id"
    " WHERE scope = :scope AND provider = :provider AND call_id = :call_id"
)
DROP_PAYER = Statement(
    "DELETE FROM ledger_sessions WHERE session_key = :session_key AND NOT EXISTS"
    " (SELECT 1 FROM ledger g WHERE g.session_key = :session_key)"
)

# -- taking an earlier copy away --------------------------------------------------------------------------------------

# Sessions that stay are changed, not made anew: whoever waits for one of them finds it afterwards.
UPDATE_SESSION = Statement(
    "UPDATE sessions SET "
    + ", ".join(f'"{name}" = :{name}' for name in SessionRow._fields if name not in ("session_key", "id"))
    + " WHERE session_key = :session_key"
)
DELETE_SESSION = Statement("DELETE FROM sessions WHERE session_key = :session_key")
_IN_TREE = "IN (SELECT s.session_key FROM sessions s WHERE s.tree_id = :tree_id)"
DELETE_HISTORY = (
    Statement("DELETE FROM entries WHERE tree_id = :tree_id"),
    Statement("DELETE FROM lanes WHERE tree_id = :tree_id"),
    Statement("DELETE FROM blobs WHERE tree_id = :tree_id"),
    Statement(f"DELETE FROM task_links WHERE parent_key {_IN_TREE}"),
    Statement(f"DELETE FROM leaf_moves WHERE session_key {_IN_TREE}"),
    Statement(f"DELETE FROM session_edits WHERE session_key {_IN_TREE}"),
    Statement(f"DELETE FROM requests WHERE session_key {_IN_TREE}"),
    Statement(f"DELETE FROM marks WHERE session_key {_IN_TREE}"),
)
