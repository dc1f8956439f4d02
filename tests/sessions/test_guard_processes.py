"""Guards in several processes: one at a time compacts, and one that is killed is found out."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import flue_py
from tests.postgres import NewDatabase
from tests.sessions.guarded import events, guard_of, talk

ROOT = Path(__file__).parents[2]

GUARDING = textwrap.dedent(
    """
    import asyncio, sys
    import flue_py
    from flue_py.core.model import FunctionModel
    from tests.sessions.guarded import guard_of

    def said_by_parent(_):
        print("asked", flush=True)
        return sys.stdin.readline().strip() or "nothing"

    async def main():
        async with flue_py.open(sys.argv[1]) as store:
            session = await store.open_session("triage")
            guard = guard_of(store, session, FunctionModel(said_by_parent, "small", context_window=200_000))
            print((await guard.before_call()).outcome, flush=True)

    asyncio.run(main())
    """
)


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        new_database: NewDatabase = request.getfixturevalue("new_database")
        return new_database()
    return str(tmp_path / "sessions.db")


@contextmanager
def another(target: str) -> Iterator[subprocess.Popen[str]]:
    """Have another process guard the session; return when its summary is asked for."""
    arguments = [sys.executable, "-c", GUARDING, target]
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "asked"
            yield process
        finally:
            process.kill()


@pytest.mark.thorough(but=["sqlite"])
async def test_of_two_processes_one_compacts(target: str) -> None:
    async with flue_py.open(target) as store:
        session = await store.create_session(key="triage")
        await talk(session, 20)
        with another(target) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert (await guard_of(store, session).before_call()).outcome == "elsewhere"
            process.stdin.write("what was said\n")
            process.stdin.flush()
            assert process.stdout.readline().strip() == "compacted"
        assert (await guard_of(store, session).before_call()).outcome == "nothing"
        kinds = [entry.kind for entry in await session.get_active_path()]
        assert kinds.count("compaction") == 1
        assert (await store.verify()).problems == []


@pytest.mark.thorough(but=["sqlite"])
async def test_a_process_that_is_killed_leaves_the_session_to_others(target: str) -> None:
    async with flue_py.open(target) as store:
        session = await store.create_session(key="triage")
        await talk(session, 20)
        before = await session.build_context()
        with another(target):
            pass
        assert await session.build_context() == before
        guard = guard_of(store, session)
        assert (await guard.state()).failures == 1
        assert (await guard.before_call()).outcome == "compacted"
        assert "has ended, which counts as a failure" in (await events(session))[1]
        assert (await guard.state()).failures == 0
        assert (await store.verify()).problems == []


@pytest.mark.thorough(but=["sqlite"])
async def test_an_overflow_waits_for_the_other_process_and_asks_no_model(target: str) -> None:
    async with flue_py.open(target) as store:
        session = await store.create_session(key="triage")
        await talk(session, 20)
        with another(target) as process:
            asked = []

            async def ask(context: list[flue_py.JsonObject]) -> str:
                asked.append(len(context))
                if len(asked) > 1:
                    return "fine"
                assert process.stdin is not None
                process.stdin.write("what was said\n")
                process.stdin.flush()
                raise flue_py.ContextOverflow("too long")

            guard = guard_of(store, session, window=100_000, mode="window")
            assert await guard.call(ask) == "fine"
            process.wait()
        assert asked[0] == 40
        assert asked[1] < 10
        assert (await store.verify()).problems == []
