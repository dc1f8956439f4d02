"""The statements of an append."""

from __future__ import annotations

from flue_py.core.usage import PAID_COLUMNS, TOTAL_COLUMNS
from flue_py.store.seam import Statement
from flue_py.store.sql.dialects import announcing, if_new_blob, per_dialect
from flue_py.store.sql.parts import insert_into, insert_text

# A session was last active at the time of its newest entry, by the entries' own times; one without, when it was made.
# ``newest`` is that of the entries of this revision; None where there are none. Only a session that counts no entry
# has to be asked whether it has some that were retracted.
ACTIVE_SINCE = (
    "active_at = CASE WHEN :newest IS NULL OR (:newest < active_at AND (entry_count > 0 OR EXISTS (SELECT 1 FROM"
    " entries e WHERE e.session_key = :session_key AND e.revision < :revision))) THEN active_at ELSE :newest END"
)
UPDATE_AFTER_APPEND = per_dialect(
    lambda dialect: (
        "UPDATE sessions SET leaf = :leaf, revision = :revision, updated_at = :at,"
        " entry_count = entry_count + :entry_count,"
        " message_count = message_count + :message_count, first_message = COALESCE(first_message, :first_message),"
        " spent_tokens = spent_tokens + :spent_tokens, spent_cost = spent_cost + :spent_cost,"
        " unpriced_calls = unpriced_calls + :unpriced_calls, unknown_calls = unknown_calls + :unknown_calls,"
        f" {ACTIVE_SINCE}"
        " WHERE session_key = :session_key" + announcing(dialect)
    )
)
INSERT_ENTRY = insert_into(
    "entries",
    (
        "tree_id", "lane_id", "depth", "id", "kind", "role", "source", "session_key", "revision", "ordinal",
        "created_at", "counted", *TOTAL_COLUMNS, "digest", "payload", "packed", "blob", "extra",
        *PAID_COLUMNS,
    ),
)  # fmt: skip
INSERT_BLOB = per_dialect(
    lambda dialect: insert_text("blobs", ("tree_id", "sha256", "size", "data"), if_new_blob(dialect))
)
INSERT_LANE = insert_into("lanes", ("tree_id", "lane_id", "owner_key", "parent_lane", "fork_depth"))
LAST_LANE = Statement("SELECT MAX(l.lane_id) FROM lanes l WHERE l.tree_id = :tree_id")
