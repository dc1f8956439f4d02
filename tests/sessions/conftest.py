"""Stores to try sessions on: in an SQLite file, in memory, and with --thorough on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

import flue_py
from tests.files import new_store_file
from tests.postgres import KeptEngines, NewDatabase

Opening: TypeAlias = Callable[[], AbstractAsyncContextManager[flue_py.Store]]


# A store in memory runs the same statements as one in a file: tests of handles that depend on who runs them are also
# run there.
also_in_memory = pytest.mark.also_in_memory


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the databases. The contract of stores, which has what they do for a session, runs on both each time."""
    fixtures = metafunc._arg2fixturedefs.get("target", ())
    is_chosen = any("target" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if is_chosen or not fixtures or fixtures[-1].func.__module__ != __name__:
        return
    kinds = ["memory", "sqlite"] if metafunc.definition.get_closest_marker("also_in_memory") else ["sqlite"]
    metafunc.parametrize(
        "target", [*kinds, "postgres"] if metafunc.config.getoption("--thorough") else kinds, indirect=True
    )


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        new_database: NewDatabase = request.getfixturevalue("new_store_database")
        return new_database()
    return ":memory:" if request.param == "memory" else str(new_store_file(tmp_path / "sessions.db"))


@pytest.fixture
def opening(target: str, request: pytest.FixtureRequest) -> Opening:
    if not target.startswith("postgresql"):
        # Tests that do one thing after the other, as those of a module without an event loop of its own, are spared the
        # thread that would run their transactions, but with --thorough.
        needs_threads = (
            request.config.getoption("--thorough")
            or request.node.get_closest_marker("also_in_memory")
            or {"asyncio", "anyio"} & {*vars(request.module)}
        )
        return partial(flue_py.open, target, durability="normal", threads=None if needs_threads else False)
    kept: KeptEngines = request.getfixturevalue("kept_engines")
    return partial(flue_py.open, engine=kept.of(target), durability="normal")


@pytest.fixture
async def store(opening: Opening, anyio_backend: str) -> AsyncIterator[flue_py.Store]:
    async with opening() as opened:
        yield opened
        assert (await opened.verify()).problems == []


@pytest.fixture
async def session(store: flue_py.Store) -> flue_py.Session:
    return await store.create_session(key="triage", scope="user-7")
