"""The statements that insert a row, one for each table (a second one where copies of trees refuse what is there)."""

from __future__ import annotations

from flue_py.core.budget_copies import BudgetRow, ReservationRow
from flue_py.core.documents import DocumentRow
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
from flue_py.store.seam import Insert, Row
from flue_py.store.sql.dialects import LOCK_BLOB_THAT_IS_THERE

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
