"""The nine edits of `agmi-check` behind a store's back: which are refused by what an agent reads, and by `verify`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from agmi import check

from tests.postgres import NewDatabase
from tests.store.integrity import Adapter, Database, PostgresDatabase, SqliteDatabase

EDITS = range(1, 10)
ALL = set(EDITS)
"""1 content changed, 2 tail cut off, 3 entry deleted, 4 two exchanged, 5 forged, 6 of another session, 7 an older one,
8 time and source changed, 9 the whole store put back as it was before."""

KEYED = {"key": b"a key that no writer knows, of 32"}
ACCEPTED: dict[str, tuple[dict[str, Any], set[int]]] = {
    "no key": ({}, {9}),
    "no key, digests made anew": ({"recomputes": True}, ALL),
    "no key, by verify": ({"detection_point": "audit"}, {9}),
    "a witness": ({"is_witnessed": True}, set()),
    "a key, digests made anew": ({"recomputes": True, "options": KEYED}, {9}),
    "a key and a witness": ({"recomputes": True, "options": KEYED, "is_witnessed": True}, set()),
}
"""How a store is opened and edited, and the edits that are accepted."""


def accepted(new_database: Callable[[], Database], settings: dict[str, Any]) -> set[int]:
    """Return the numbers of the edits that are accepted. Each was really made, in a store that was whole before it."""
    adapter = type("Tried", (Adapter,), {"new_database": lambda _: new_database(), **settings})
    rows = check.run(adapter())
    assert [row for row in rows if row["verdict"] not in ("ACCEPTED", "REJECTED", "REPORTED")] == []
    assert len(rows) == len(EDITS)
    return {number for number, row in zip(EDITS, rows, strict=True) if row["verdict"] == "ACCEPTED"}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_was_edited_in_a_file_is_refused_where_it_is_read(name: str) -> None:
    settings, edits = ACCEPTED[name]
    assert accepted(SqliteDatabase, settings) == edits


@pytest.mark.thorough
@pytest.mark.parametrize("name", ACCEPTED)
def test_postgresql_refuses_it_too(name: str, new_database: NewDatabase) -> None:
    settings, edits = ACCEPTED[name]
    assert accepted(lambda: PostgresDatabase(new_database()), settings) == edits
