"""The index of words on PostgreSQL: tables beside those of the store."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flue_py
from flue_py.db.postgres import words
from flue_py.db.postgres.runner import PostgresRunner, PostgresTransaction
from flue_py.db.sql import statement
from flue_py.sessions import search as searching
from tests.postgres import NewDatabase, connected
from tests.sessions.test_search import found, user
from tests.sessions.test_search_index import SEARCHING, nothing

ROOT = Path(__file__).parents[2]


@pytest.fixture
def target(new_database: NewDatabase) -> str:
    return new_database()


@pytest.fixture
async def store(target: str, anyio_backend: str) -> AsyncIterator[flue_py.Store]:
    async with flue_py.open(target, durability="normal") as opened:
        yield opened
        assert (await opened.verify()).problems == []


async def rows(target: str, sql: str) -> list[tuple[object, ...]]:
    async with connected(target) as connection:
        return [tuple(row) for row in await connection.fetch(sql)]


async def test_tables_are_made_by_the_first_search(store: flue_py.Store, target: str) -> None:
    session = await store.create_session()
    await session.append_message(user("a needle"))
    assert await store.backend.words_location() is None
    answer = await store.search("needle")
    assert answer.searched.by_index
    assert len(answer.hits) == 1
    assert await store.backend.words_location() == words.LOCATION
    assert await rows(target, "SELECT count(*) FROM flue_words_texts") == [(1,)]


async def test_what_was_deleted_is_forgotten(store: flue_py.Store, target: str) -> None:
    doomed, kept = await store.create_session(title="The needle"), await store.create_session()
    await doomed.append_message(user("a needle"))
    await kept.append_message(user("another needle"))
    await kept.append_message(user(" ".join(f"needle{number}" for number in range(10_000))))
    assert len(await found(store, "needle")) == 3
    await store.delete_session_tree(doomed)
    assert await rows(target, "SELECT id FROM flue_words_sessions") == [(kept.id,)]
    assert await found(store, "needle") == ["messages: another needle"]
    assert len(await found(store, "needle9999 needle0")) == 1
    async with store.atomic() as batch:
        batch.delete_session_tree(kept)
    assert await rows(target, "SELECT 1 FROM flue_words_texts UNION ALL SELECT 1 FROM flue_words_more") == []


async def test_who_is_killed_before_the_index_forgets_is_repaired_by_the_next_search(
    store: flue_py.Store, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    doomed = await store.create_session()
    await doomed.append_message(user("a needle"))
    await store.search("needle")
    with monkeypatch.context() as patched:
        patched.setattr(PostgresRunner, "forget_words", nothing)
        await store.delete_session_tree(doomed)
    assert await rows(target, "SELECT count(*) FROM flue_words_texts") == [(1,)]
    assert await found(store, "anything") == []
    assert await rows(target, "SELECT count(*) FROM flue_words_texts") == [(0,)]


@pytest.mark.parametrize(
    "damage", ["TRUNCATE flue_words, flue_words_sessions, flue_words_texts, flue_words_more", "DROP TABLE flue_words"]
)
async def test_what_a_crash_or_somebody_has_emptied_is_made_anew(
    store: flue_py.Store, target: str, damage: str
) -> None:
    session = await store.create_session()
    await session.append_message(user("a needle"))
    await store.search("needle")
    async with connected(target) as connection:
        await connection.execute(damage)
    answer = await store.search("needle")
    assert (len(answer.hits), answer.searched.by_index) == (1, True)


async def test_another_version_of_what_texts_have_makes_it_anew(
    store: flue_py.Store, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await store.create_session()
    await session.append_message(user("a needle"))
    await store.search("needle")
    async with connected(target) as connection:
        await connection.execute("UPDATE flue_words_texts SET weight = 99")
    monkeypatch.setattr(searching, "VERSION", searching.VERSION + 1)
    assert len(await found(store, "needle")) == 1
    assert await rows(target, "SELECT weight FROM flue_words_texts") == [(20,)]
    monkeypatch.undo()
    assert len(await found(store, "needle")) == 1


async def test_verify_tells_of_an_index_that_does_not_find_what_the_store_has(target: str) -> None:
    async with flue_py.open(target) as store:
        session = await store.create_session()
        await session.append_message(user("a needle"))
        await store.search("needle")
        async with connected(target) as connection:
            await connection.execute("DELETE FROM flue_words_texts")
        assert {problem.kind for problem in (await store.verify()).problems} == {"index of words"}
        await store.backend.remove_words()
        assert (await store.verify()).problems == []


async def test_where_no_tables_can_be_made_every_text_is_read(
    store: flue_py.Store, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await store.create_session()
    await session.append_message(user("a needle"))
    refused = statement(tuple[str])("CREATE TABLE pg_catalog.flue_words (version BIGINT)")
    monkeypatch.setattr(words, "_MAKE", [refused])
    answer = await store.search("needle")
    assert len(answer.hits) == 1
    assert not answer.searched.by_index
    assert "cannot be used" in (answer.searched.why_not or "")


async def test_it_is_asked_by_a_plan_for_these_words_which_may_be_rare(
    store: flue_py.Store, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await store.create_session()
    await session.append_message(user("a needle"))
    setting = statement(tuple[str])("SELECT current_setting('plan_cache_mode')")
    seen: list[object] = []
    counts: list[int] = []
    rows = PostgresTransaction.rows

    def seeing(tx: PostgresTransaction, asked: object, **values: object) -> object:
        if "query" in values:
            seen.append(tx.first(setting))
            counts.append(cast("int", values["count"]))
        return rows(tx, asked, **values)  # type: ignore[arg-type]

    monkeypatch.setattr(PostgresTransaction, "rows", seeing)
    assert len(await found(store, "needle")) == 1
    assert seen == [("force_custom_plan",)]
    # Where a word may be nowhere, one text is not asked for alone, which would be looked for among all of them.
    assert await found(store, "neddle") == []
    assert min(counts) >= 1_000
    async with connected(target) as connection:
        assert await connection.fetchval("SELECT current_setting('plan_cache_mode')") == "auto"


@pytest.mark.thorough
async def test_several_processes_make_it_at_once(store: flue_py.Store, target: str) -> None:
    for _ in range(4):
        session = await store.create_session()
        for number in range(60):
            await session.append_message(user(f"needle n{number}"))
    arguments = [sys.executable, "-c", SEARCHING, target]

    def searched() -> str:
        return subprocess.run(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True).stdout.strip()

    assert await asyncio.gather(*(asyncio.to_thread(searched) for _ in range(3))) == ["240"] * 3
    assert await rows(target, "SELECT count(*) FROM flue_words_texts") == [(240,)]


_WORDS = ["run", "fast", "Pool", "pool.py", "userName", "数据", "a-b", "it's", "src/db"]
_TEXTS = st.lists(st.lists(st.sampled_from(_WORDS), max_size=6).map(" ".join), min_size=1, max_size=8)
_ASKED = st.sampled_from(["run OR pool", "run NOT fast", "po*", '"pool py"', "user* -fast", "数 run", "b (db OR it)"])


# Each example has a scope of its own in the one store.
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(_TEXTS, st.lists(_ASKED, min_size=1, max_size=3))
def test_it_finds_what_reading_everything_finds(target: str, texts: list[str], searches: list[str]) -> None:
    async def compare() -> None:
        async with flue_py.open(":memory:") as scanned, flue_py.open(target, durability="normal") as indexed:
            scope = f"scope-{len(await indexed.backend.session_heads())}"
            for store in (scanned, indexed):
                session = await store.create_session(scope=scope)
                await session.append_messages([user(text or "-") for text in texts])
            for asked in searches:
                first, second = [await store.search(asked, how="query", scope=scope) for store in (scanned, indexed)]
                assert (first.searched.by_index, second.searched.by_index) == (False, True)
                assert sorted(hit.snippet.text for hit in first.hits) == sorted(hit.snippet.text for hit in second.hits)

    asyncio.run(compare())
