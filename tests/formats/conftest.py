"""In every import here, entries that are stored as their reader made them are what a check would make of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

import flue_py
from flue_py.core.entries import NewEntry
from flue_py.core.trees import CheckedEntries, checked_imported_entries
from flue_py.transfer import imports


@pytest.fixture(autouse=True)
def _as_a_check_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(entries: Sequence[NewEntry]) -> CheckedEntries:
        made = CheckedEntries(entries)
        assert checked_imported_entries(list(entries)) == made
        return made

    monkeypatch.setattr(imports, "CheckedEntries", checked)


@pytest.fixture
async def store(anyio_backend: str) -> AsyncIterator[flue_py.Store]:
    async with flue_py.open(":memory:") as opened:
        yield opened
