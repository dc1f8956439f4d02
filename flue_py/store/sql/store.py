"""The statements on the store itself."""

from __future__ import annotations

from typing import TypedDict

from flue_py.core.documents import IMPORTED_FILES
from flue_py.store.seam import Nothing
from flue_py.store.sql.dialects import statement

Name = TypedDict("Name", {"name": str})
NumberName = TypedDict("NumberName", {"number": int, "name": str})

READ_STATE = statement(Name, tuple[int])("SELECT value FROM flue_store WHERE name = :name")
WRITE_STATE = statement(NumberName, Nothing)("UPDATE flue_store SET value = :number WHERE name = :name")
COUNTS = statement(Nothing, tuple[int, int, int, int])(
    "SELECT (SELECT COUNT(*) FROM sessions), (SELECT COUNT(*) FROM entries), (SELECT COUNT(*) FROM ledger),"
    f" (SELECT COUNT(*) FROM documents WHERE space <> '{IMPORTED_FILES}')"
)
# PostgreSQL alone.
DATABASE_SIZE = statement(Nothing, tuple[int])("SELECT pg_database_size(current_database())")
# Which transactions have come to their end: it is another text after each commit.
SNAPSHOT = statement(Nothing, tuple[str])("SELECT CAST(pg_current_snapshot() AS TEXT)")
SYNCHRONOUS_COMMIT = statement(Nothing, tuple[str])("SELECT current_setting('synchronous_commit')")
