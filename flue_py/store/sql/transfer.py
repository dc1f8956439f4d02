"""The statements that read and write whole trees, in SQL that SQLite and PostgreSQL both read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from flue_py.core.rows import (
    AttachmentRow,
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
    SessionRow,
)
from flue_py.core.trees import SessionHead
from flue_py.store.seam import Nothing, P, R, Row, Statement
from flue_py.store.sql.dialects import FIRST_OF_PAIR, IN_IDS, PAIRS_OF_KEYS, SECOND_OF_PAIR, statement
from flue_py.store.sql.parts import call_columns
from flue_py.store.sql.takes import AfterCount, Id, Ids, Keys, ScopeProviderCall, Session, Tree

Heads = TypedDict("Heads", {"after_key": int, "last_tree": int})
Number = TypedDict("Number", {"number": int})
GiveCall = TypedDict("GiveCall", {"tree_id": int, "session_key": int, "scope": str, "provider": str, "call_id": str})

# A copy has a request under this key, of this operation, which other sessions have not. Its digest is the fingerprint
# of the tree as it was copied.
COPY_KEY = "flue-py copy 6f0d1c3a"
COPY_OPERATION = "copy"


def _select(takes: Callable[P, object], row: type[R], alias: str, rest: str) -> Statement[P, R]:
    return statement(takes, row)(f"SELECT {_columns(row, alias)} FROM {rest}")


def _columns(row: type[object], alias: str) -> str:
    return ", ".join(f'{alias}."{name}"' for name in row.__annotations__)


def _head(row: Row) -> tuple[int, SessionHead]:
    tree_id, *head = row
    return tree_id, SessionHead._make(head)


def _stamped_head(row: Row) -> tuple[int, int, bytes | None, SessionHead]:
    tree_id, session_key, stamp, *head = row
    return tree_id, session_key, None if stamp is None else bytes(stamp), SessionHead._make(head)


def _call_in_tree(row: Row) -> tuple[int, CallRow]:
    tree_id, *call = row
    return tree_id, CallRow._make(call)


# -- which trees there are --------------------------------------------------------------------------------------------

TREE_IDS = statement(AfterCount, tuple[int])(
    "SELECT DISTINCT s.tree_id FROM sessions s WHERE s.tree_id > :after_key ORDER BY s.tree_id LIMIT :count"
)
HEADS = statement(Heads, _head)(
    f"SELECT s.tree_id, {_columns(SessionHead, 's')} FROM sessions s WHERE s.tree_id > :after_key"
    " AND s.tree_id <= :last_tree ORDER BY s.tree_id, s.session_key"
)
TREE_OF_SESSION = statement(Id, tuple[int])("SELECT s.tree_id FROM sessions s WHERE s.id = :id")
# The trees that have sessions of a JSON array of ids, whole: with keys, and with the stamps of copies.
STAMPED_HEADS = statement(Ids, _stamped_head)(
    f"SELECT s.tree_id, s.session_key, r.digest, {_columns(SessionHead, 's')} "
    "FROM sessions s LEFT JOIN requests r ON r.session_key = s.session_key"
    f" AND r.idempotency_key = '{COPY_KEY}' AND r.operation = '{COPY_OPERATION}'"
    f" WHERE s.tree_id IN (SELECT f.tree_id FROM sessions f WHERE f.id {IN_IDS})"
    " ORDER BY s.tree_id, s.session_key"
)
# The sessions that have the keys of a JSON array of [scope, key].
KEY_HOLDERS = statement(Keys, tuple[str, str, str])(
    f'SELECT s.scope, s."key", s.id FROM {PAIRS_OF_KEYS} sessions s ON s.scope = {FIRST_OF_PAIR}'
    f' AND s."key" = {SECOND_OF_PAIR} WHERE s."key" IS NOT NULL AND s.trashed_at IS NULL'
)

# -- reading a tree ---------------------------------------------------------------------------------------------------

_OF_SESSIONS = "JOIN sessions s ON s.session_key = t.session_key WHERE s.tree_id = :tree_id"
EPOCH = statement(Nothing, tuple[int])("SELECT value FROM flue_store WHERE name = 'epoch'")
SESSIONS = _select(Tree, SessionRow, "s", "sessions s WHERE s.tree_id = :tree_id ORDER BY s.session_key")
LANES = _select(Tree, LaneRow, "t", "lanes t WHERE t.tree_id = :tree_id ORDER BY t.lane_id")
ENTRIES = _select(Tree, EntryRow, "t", "entries t WHERE t.tree_id = :tree_id ORDER BY t.lane_id, t.depth")
BLOBS = _select(Tree, BlobRow, "t", "blobs t WHERE t.tree_id = :tree_id ORDER BY t.sha256")
ATTACHMENTS = _select(
    Tree, AttachmentRow, "t", "attachments t WHERE t.tree_id = :tree_id ORDER BY t.lane_id, t.depth, t.place"
)
LINKS = _select(
    Tree,
    LinkRow,
    "t",
    "task_links t JOIN sessions s ON s.session_key = t.parent_key WHERE s.tree_id = :tree_id"
    " ORDER BY t.parent_key, t.position",
)
MOVES = _select(Tree, MoveRow, "t", f"leaf_moves t {_OF_SESSIONS} ORDER BY t.session_key, t.revision")
EDITS = _select(Tree, EditRow, "t", f"session_edits t {_OF_SESSIONS} ORDER BY t.session_key, t.revision, t.what")
REQUESTS = _select(
    Tree,
    RequestRow,
    "t",
    f"requests t {_OF_SESSIONS} AND t.operation <> '{COPY_OPERATION}' ORDER BY t.session_key, t.idempotency_key",
)
MARKS = _select(Tree, MarkRow, "t", f"marks t {_OF_SESSIONS} ORDER BY t.session_key, t.entry_id, t.kind")
_CALL = call_columns("t")
_CALL_ID = "COALESCE(t.call_id, t.entry_id)"
CALLS = statement(Tree, CallRow)(
    f"SELECT {_CALL} FROM ledger t {_OF_SESSIONS} ORDER BY t.session_key, t.provider, {_CALL_ID}"
)
PAYERS = _select(Tree, Payer, "t", f"ledger_sessions t {_OF_SESSIONS} ORDER BY t.session_key")

# -- reading what sessions that are gone have paid --------------------------------------------------------------------

PAYER = _select(Session, Payer, "t", "ledger_sessions t WHERE t.session_key = :session_key")
GONE_PAYERS = _select(
    AfterCount,
    Payer,
    "t",
    "ledger_sessions t LEFT JOIN sessions s ON s.session_key = t.session_key"
    " WHERE t.session_key > :after_key AND s.session_key IS NULL ORDER BY t.session_key LIMIT :count",
)
CALLS_OF = statement(Session, _call_in_tree)(
    f"SELECT t.tree_id, {_CALL} FROM ledger t WHERE t.session_key = :session_key"
    f" ORDER BY t.scope, t.provider, {_CALL_ID}"
)
MEMBER_OF_TREE = statement(Tree, tuple[str])(
    "SELECT s.id FROM sessions s WHERE s.tree_id = :tree_id ORDER BY s.session_key LIMIT 1"
)

# -- writing ----------------------------------------------------------------------------------------------------------

RAISE_EPOCH = statement(Number, Nothing)(
    "UPDATE flue_store SET value = :number WHERE name = 'epoch' AND value < :number"
)

# Who has a paid call, and whether that session is still there.
OWNER_OF_CALL = statement(ScopeProviderCall, tuple[int, int, str, int | None])(
    "SELECT g.session_key, g.tree_id, n.session_id, s.session_key FROM ledger g"
    " LEFT JOIN ledger_sessions n ON n.session_key = g.session_key"
    " LEFT JOIN sessions s ON s.session_key = g.session_key"
    " WHERE g.scope = :scope AND g.provider = :provider AND g.call_id = :call_id"
)
DELETE_CALLS_OF = statement(Session, Nothing)("DELETE FROM ledger WHERE session_key = :session_key")
COUNT_CALLS = statement(Session, tuple[int])("SELECT COUNT(*) FROM ledger WHERE session_key = :session_key")
GIVE_CALL = statement(GiveCall, Nothing)(
    "UPDATE ledger SET session_key = :session_key, tree_id = :tree_id"
    " WHERE scope = :scope AND provider = :provider AND call_id = :call_id"
)

# -- taking an earlier copy away --------------------------------------------------------------------------------------

# Sessions that stay are changed, not made anew: a watcher of one of them finds it afterwards.
UPDATE_SESSION = statement(SessionRow, Nothing)(
    "UPDATE sessions SET "
    + ", ".join(f'"{name}" = :{name}' for name in SessionRow._fields if name not in ("session_key", "id"))
    + " WHERE session_key = :session_key"
)
DELETE_SESSION = statement(Session, Nothing)("DELETE FROM sessions WHERE session_key = :session_key")
_IN_TREE = "IN (SELECT s.session_key FROM sessions s WHERE s.tree_id = :tree_id)"
DELETE_HISTORY = (
    statement(Tree, Nothing)("DELETE FROM entries WHERE tree_id = :tree_id"),
    statement(Tree, Nothing)("DELETE FROM lanes WHERE tree_id = :tree_id"),
    statement(Tree, Nothing)("DELETE FROM blobs WHERE tree_id = :tree_id"),
    statement(Tree, Nothing)("DELETE FROM attachments WHERE tree_id = :tree_id"),
    statement(Tree, Nothing)(f"DELETE FROM task_links WHERE parent_key {_IN_TREE}"),
    statement(Tree, Nothing)(f"DELETE FROM leaf_moves WHERE session_key {_IN_TREE}"),
    statement(Tree, Nothing)(f"DELETE FROM session_edits WHERE session_key {_IN_TREE}"),
    statement(Tree, Nothing)(f"DELETE FROM requests WHERE session_key {_IN_TREE}"),
    statement(Tree, Nothing)(f"DELETE FROM marks WHERE session_key {_IN_TREE}"),
)
