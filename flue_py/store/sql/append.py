"""The statements of an append."""

from __future__ import annotations

from typing import TypedDict

from flue_py.core.listing import SLOT_BITS
from flue_py.core.usage import Paid
from flue_py.store.seam import Nothing
from flue_py.store.sql.dialects import announced, statement
from flue_py.store.sql.takes import Session, Tree


class Spending(TypedDict):
    """What calls add to what a session has spent."""

    spent_tokens: int
    spent_cost: int
    unpriced_calls: int
    unknown_calls: int


def spending(paid: Paid) -> Spending:
    """Return what calls that came to ``paid`` add."""
    return {
        "spent_tokens": paid.tokens,
        "spent_cost": paid.picodollars,
        "unpriced_calls": paid.unpriced_calls,
        "unknown_calls": paid.unknown_calls,
    }


class AddSpending(Spending):
    """What a session has spent beside its entries."""

    session_key: int


class UpdateAfterAppend(Spending):
    """What an append makes of its session."""

    session_key: int
    leaf: str | None
    revision: int
    at: int
    entry_count: int
    message_count: int
    first_message: str | None
    newest: int | None


# A session was last active at the time of its newest entry, by the entries' own times; one without, when it was made.
# ``newest`` is that of the entries of this revision; None where there are none. Only a session that counts no entry
# has to be asked whether it has some that were retracted.
ACTIVE_SINCE = (
    "CASE WHEN :newest IS NULL OR (:newest < active_at AND (entry_count > 0 OR EXISTS (SELECT 1 FROM"
    " marks m JOIN entries e ON e.tree_id = sessions.tree_id AND e.id = m.entry_id WHERE m.session_key = :session_key"
    " AND m.kind = 'retracted' AND e.session_key = :session_key))) THEN active_at ELSE :newest END"
)
UPDATE_AFTER_APPEND = announced(UpdateAfterAppend)(
    "UPDATE sessions SET leaf = :leaf, revision = :revision, updated_at = :at,"
    " entry_count = entry_count + :entry_count,"
    " message_count = message_count + :message_count, first_message = COALESCE(first_message, :first_message), "
    + ", ".join(f"{name} = {name} + :{name}" for name in Spending.__annotations__)
    + f", active_at = {ACTIVE_SINCE}"
    " WHERE session_key = :session_key"
)
ADD_SPENDING = statement(AddSpending, Nothing)(
    f"UPDATE sessions SET {', '.join(f'{name} = {name} + :{name}' for name in Spending.__annotations__)}"
    " WHERE session_key = :session_key"
)
# Beside the other update, since SQLite writes the indexes of every column that an UPDATE names, changed or not.
UPDATE_SLOT = statement(Session, Nothing)(
    f"UPDATE sessions SET active_slot = active_at >> {SLOT_BITS}"
    f" WHERE session_key = :session_key AND active_slot <> active_at >> {SLOT_BITS}"
)
LAST_LANE = statement(Tree, tuple[int | None])("SELECT MAX(l.lane_id) FROM lanes l WHERE l.tree_id = :tree_id")
