"""The statements on the store itself."""

from __future__ import annotations

from flue_py.store.seam import Statement

READ_STATE = Statement("SELECT value FROM flue_store WHERE name = :name")
WRITE_STATE = Statement("UPDATE flue_store SET value = :number WHERE name = :name")
COUNTS = Statement(
    "SELECT (SELECT COUNT(*) FROM sessions), (SELECT COUNT(*) FROM entries), (SELECT COUNT(*) FROM ledger)"
)
# PostgreSQL alone.
DATABASE_SIZE = Statement("SELECT pg_database_size(current_database())")
SYNCHRONOUS_COMMIT = Statement("SELECT current_setting('synchronous_commit')")
