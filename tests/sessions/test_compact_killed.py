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

ROOT = Path(__file__).parents[2]

COMPACTING = textwrap.dedent(
    """
    import asyncio, sys, time
    import flue_py
    from flue_py.compaction import CompactionSettings
    from flue_py.core.model_seam import FunctionModel, ModelReply

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
                type(session).append_compaction = hold
            settings = CompactionSettings(keep_recent_tokens=290)
            await session.compact(FunctionModel(answer, "small", provider="house"), settings=settings)
            stop("appended")

    asyncio.run(main())
    """
)


@contextmanager
def killed(path: Path, at: str) -> Iterator[None]:
    """Have another process compact the session, and kill it when it says that it has come to a place."""
    arguments = [sys.executable, "-c", COMPACTING, str(path), at]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == at
        finally:
            process.kill()
    yield


@pytest.mark.parametrize(("at", "calls", "compactions"), [("asked", 0, 0), ("answered", 1, 0), ("appended", 1, 1)])
def test_a_killed_compaction_leaves_the_session_whole(tmp_path: Path, at: str, calls: int, compactions: int) -> None:
    path = tmp_path / "sessions.db"
    with flue_py.sync.open(path) as store:
        session = store.create_session(key="triage")
        for number in range(12):
            session.append_message({"role": "user", "content": f"question {number} " + "q" * 200})
        before = session.build_context()
    with killed(path, at), flue_py.sync.open(path) as store:
        session = store.open_session("triage")
        assert sum(entry.kind == "compaction" for entry in session.get_tree()) == compactions
        assert (session.build_context() == before) is not bool(compactions)
        total = store.usage(session).total
        assert (total.calls, total.input) == (calls, 900 * calls)
        done = session.compact(mode="window", settings=CompactionSettings(keep_recent_tokens=290))
        assert done.reason == ("no_cut_point" if compactions else None)
        assert store.verify().problems == []
