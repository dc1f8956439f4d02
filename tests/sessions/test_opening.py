"""Where a store can be opened, and its clock and id sources."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

import flue_py
from flue_py import InvalidArgument
from tests.sessions.talk import path_of, say
from tests.tables import inputs

pytestmark = pytest.mark.anyio


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@inputs("form", ["path", "text", "url"])
async def test_a_file_is_made_private_and_found_again(tmp_path: Path, form: str, anyio_backend: str) -> None:
    path = tmp_path / "sessions.db"
    target = {"path": path, "text": str(path), "url": f"sqlite+aiosqlite:///{path}"}[form]
    async with flue_py.open(target) as store:
        await say(await store.open_session("k", mode="create"), "a")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    async with flue_py.open(target) as store:
        assert await path_of(await store.open_session("k")) == ["a"]


@inputs("target", [":memory:", "memory://"])
async def test_a_store_in_memory_dies_with_its_block(target: str, anyio_backend: str) -> None:
    async with flue_py.open(target) as store:
        await store.create_session(key="k")
        assert (await store.info()).backend == "memory"
    async with flue_py.open(target) as store:
        assert (await store.list_sessions()).sessions == ()


async def test_a_borrowed_engine_stays_its_owners(tmp_path: Path, anyio_backend: str) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/sessions.db")
    for _ in range(2):
        async with flue_py.open(engine=engine) as store:
            await say(await store.open_session("k", mode="get_or_create"), "a")
    async with engine.connect() as connection:
        assert (await connection.exec_driver_sql("SELECT count(*) FROM sessions")).scalar() == 1
    await engine.dispose()


@inputs(
    ("target", "hint"),
    [
        ("", "path"),
        (b"x", "path"),
        (None, "either"),
        ("sqlite:///x.db", r"sqlite\+aiosqlite"),
        ("postgres://h/x", r"postgresql\+asyncpg"),
        ("redis+py://x", "not one of"),
    ],
)
async def test_what_is_no_target_is_refused_with_a_hint(target: str, hint: str, anyio_backend: str) -> None:
    with pytest.raises(InvalidArgument, match=hint):
        async with flue_py.open(target):
            pass


async def test_impossible_choices_are_refused(tmp_path: Path, anyio_backend: str) -> None:
    path = tmp_path / "sessions.db"
    with pytest.raises(InvalidArgument, match="durability"):
        async with flue_py.open(path, durability="some"):  # type: ignore[arg-type]
            pass
    with pytest.raises(InvalidArgument, match="either"):
        async with flue_py.open(path, engine=object()):  # type: ignore[arg-type]
            pass
    with pytest.raises(InvalidArgument, match="create"):
        async with flue_py.open(f"sqlite+aiosqlite:///{path}", create=False):
            pass
    assert not path.exists()


async def test_without_create_a_missing_file_stays_missing(tmp_path: Path, anyio_backend: str) -> None:
    path = tmp_path / "sessions.db"
    with pytest.raises(flue_py.FixTheStore):
        async with flue_py.open(path, create=False):
            pass
    assert files_in(tmp_path) == []


async def test_time_and_ids_may_come_from_outside(target: str, anyio_backend: str) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = (start + timedelta(seconds=n) for n in range(100))
    names = (f"{letter}{n}" for letter in "abcdefgh" for n in range(3))
    async with flue_py.open(
        target, clock=lambda: next(times), ids=lambda: next(names), session_ids=lambda: "s-1"
    ) as store:
        session = await store.create_session()
        ids = await say(session, "x", "y")
        assert (session.id, ids) == ("s-1", ["a0", "a1"])
        entries = await session.get_tree()
        assert start < entries[0].created_at < entries[1].created_at


async def test_a_clock_without_a_time_zone_is_refused(target: str, anyio_backend: str) -> None:
    async with flue_py.open(target, clock=lambda: datetime(2026, 1, 1)) as store:  # noqa: DTZ001
        with pytest.raises(InvalidArgument, match="time zone"):
            await store.create_session()
        assert (await store.list_sessions()).sessions == ()


async def test_generated_ids_are_16_hex_characters_each_its_own(target: str, anyio_backend: str) -> None:
    async with flue_py.open(target) as store:
        session = await store.create_session()
        ids = await say(session, *"abcdef")
        for each in (session.id, *ids):
            assert len(each) == 16
            assert set(each) <= set("0123456789abcdef")
        assert len(set(ids)) == 6


async def test_the_store_is_closed_also_when_the_block_fails(tmp_path: Path, anyio_backend: str) -> None:
    with pytest.raises(KeyError):
        async with flue_py.open(tmp_path / "sessions.db") as store:
            raise KeyError
    with pytest.raises(flue_py.StoreClosed):
        await store.create_session()


async def test_what_was_entered_is_not_entered_again(tmp_path: Path, anyio_backend: str) -> None:
    opening = flue_py.open(tmp_path / "a.db")
    async with opening as store:
        session = await store.create_session()
        with pytest.raises(InvalidArgument, match=r"flue_py.open\(...\) was entered before"):
            await opening.__aenter__()
        batch, call = store.atomic(), session.money.budgeted(tokens=1)
        for manager, what in ((batch, r"atomic\(\)"), (call, r"budgeted\(\)")):
            async with manager:
                pass
            with pytest.raises(InvalidArgument, match=f"^{what} was entered before"):
                await manager.__aenter__()
        # The store goes on.
        await session.append_message({"role": "user", "content": "hello"})
    with pytest.raises(InvalidArgument, match="was entered before, and is good for one block; call it once more"):
        await opening.__aenter__()
