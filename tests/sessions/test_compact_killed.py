"""A process that is killed while it compacts: nothing is half done, and what it paid for is in the ledger."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import flue_py.sync
from flue_py.compaction import CompactionSettings
from tests.tables import inputs

ROOT = Path(__file__).parents[2]

COMPACTING = textwrap.dedent(
    """
    import asyncio, sys, time
    import flue_py
    from flue_py.compaction import CompactionSettings
    from flue_py.core.model import FunctionModel, ModelReply

    def stop(where):
        print(where, flush=True)
        time.sleep(600)

    def answer(request):
        if sys.argv[2] == "asked":
            stop("asked")
        usage = {"input": 900, "output": 40}
        said = {"role": "assistant", "content": "what was said", "usage": usage, "responseId": "call-1"}
        return ModelReply((said,))

    async def hold(self, *arguments, **named):
        stop("answered")

    async def main():
        async with flue_py.open(sys.argv[1]) as store:
            session = await store.open_session("triage")
            if sys.argv[2] == "answered":
                type(session).append_compaction = type(session)._append = hold
            settings = CompactionSettings(keep_recent_tokens=290)
            model = FunctionModel(answer, "small", provider="house")
            if sys.argv[3] == "range":
                ids = [entry.id for entry in await session.get_active_path()]
                await session.compactions.compact_range(ids[2], ids[8], model)
            else:
                await session.compact(model, settings=settings)
            stop("appended")

    asyncio.run(main())
    """
)


@contextmanager
def killed(path: Path, at: str, what: str) -> Iterator[None]:
    """Have another process compact the session, and kill it when it says that it has come to a place."""
    arguments = [sys.executable, "-c", COMPACTING, str(path), at, what]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == at
        finally:
            process.kill()
    yield


@pytest.mark.thorough(but=["whole"])
@inputs(("at", "calls", "compactions"), [("asked", 0, 0), ("answered", 1, 0), ("appended", 1, 1)])
@pytest.mark.parametrize("what", ["whole", "range"])
def test_a_killed_compaction_leaves_the_session_whole(
    tmp_path: Path, at: str, calls: int, compactions: int, what: str
) -> None:
    path = tmp_path / "sessions.db"
    with flue_py.sync.open(path) as store:
        session = store.create_session(key="triage")
        for number in range(12):
            session.append_message({"role": "user", "content": f"question {number} " + "q" * 200})
        before = session.build_context()
    with killed(path, at, what), flue_py.sync.open(path) as store:
        session = store.open_session("triage")
        assert sum(entry.kind == "compaction" for entry in session.get_tree()) == compactions
        assert (session.build_context() == before) is not bool(compactions)
        total = store.usage(session).total
        assert (total.calls, total.input) == (calls, 900 * calls)
        done = session.compact(mode="window", settings=CompactionSettings(keep_recent_tokens=420))
        assert done.reason == ("no_cut_point" if compactions and what == "whole" else None)
        assert store.verify().problems == []


WAITING = (
    COMPACTING.replace("time.sleep(600)", "sys.stdin.readline()")
    .replace("await session.compactions.compact_range(", "done = await session.compactions.compact_range(")
    .replace('stop("appended")', "print(done.reason, flush=True)")
)


def test_of_two_processes_that_compact_ranges_the_second_leaves_the_session_alone(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with flue_py.sync.open(path) as store:
        session = store.create_session(key="triage")
        for number in range(12):
            session.append_message({"role": "user", "content": f"question {number} " + "q" * 200})
        ids = [entry.id for entry in session.get_active_path()]
        arguments = [sys.executable, "-c", WAITING, str(path), "asked", "range"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(arguments, text=True, cwd=ROOT, **pipes) as process:
            try:
                assert process.stdout is not None
                assert process.stdin is not None
                assert process.stdout.readline().strip() == "asked"
                assert session.compactions.compact_range(ids[4], ids[6], mode="window").reason is None
                compacted = session.build_context()
                process.stdin.write("go on\n")
                process.stdin.flush()
                assert process.stdout.readline().strip() == "compacted_meanwhile"
            finally:
                process.kill()
        session.refresh()
        assert session.build_context() == compacted
        assert store.usage(session).total.calls == 1
        assert store.verify().problems == []
