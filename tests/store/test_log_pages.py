"""How many pages of log an append writes: counted, and the same in every run."""

from __future__ import annotations

from pathlib import Path

import pytest

import flue_py
from benchmarks.measuring import make_messages
from benchmarks.pages import open_sessions, pages_alone, pages_in_group

USER, ASSISTANT = make_messages(2)
ROUNDS = 8
"""Sessions of one size fill their pages at the same append, which then writes two more for each: now in one, now in
another. Over several it comes to the same.
"""


@pytest.mark.anyio
async def test_what_an_append_writes_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with flue_py.open(path) as store:
        sessions = await open_sessions(store, 20, 20)
        user = assistant = 0.0
        for _ in range(ROUNDS):
            user += await pages_alone(path, sessions, USER) / ROUNDS
            assistant += await pages_alone(path, sessions, ASSISTANT) / ROUNDS
        assert (await store.verify()).problems == []

    assert 1 < user <= 6
    assert assistant <= 8


@pytest.mark.anyio
async def test_sessions_that_append_at_once_share_pages(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with flue_py.open(path) as store:
        sessions = await open_sessions(store, 40, 20)
        alone = await pages_alone(path, sessions, ASSISTANT)
        together = await pages_in_group(path, sessions, ASSISTANT)

    assert together < alone / 5
