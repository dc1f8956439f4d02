"""The statements that insert a row, one for each table (a second one where copies of trees refuse what is there)."""

from __future__ import annotations

from flue_py.core.budget_copies import BudgetRow, ReservationRow
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
