"""Compacting histories of any shape, and a process that is killed while it compacts."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Literal, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flue_py.sync
from flue_py.compaction import CompactionSettings, RangePlan, SessionCompactionPlan, should_compact
from flue_py.compaction.plan import CompactionResult
from flue_py.compaction.settings import sized_for
from flue_py.core.context import project, project_kept
from flue_py.core.entries import Pairing
from flue_py.core.json import JsonObject
from flue_py.core.model import FunctionModel
from flue_py.errors import InvalidArgument
from flue_py.providers import LIMITS
from flue_py.sync import Session
from tests.tables import inputs

What: TypeAlias = Literal[
    "ask", "say", "call", "pin", "unpin", "exclude", "part", "include", "compact", "range", "uncompact", "rewind",
    "undo", "redo", "fork",
]  # fmt: skip
Step: TypeAlias = tuple[What, int]
OFTEN: list[What] = ["ask", "say", "call", "call", "exclude", "part", "include", "compact", "compact", "range", "range"]
MODES = ("window", "intent", "llm", "hybrid", "lossless")
"""What makes the text, by the size of a step."""
WINDOWS = (None, 1_000, 2_000, 4_000, 8_000, 200_000)
LEAST_TEXT = 300
"""What a text of a compaction takes that says no more than it must, with the first and the newest words of the user."""
MODEL = FunctionModel(lambda _: "what was said", "m")

steps = st.lists(
    st.tuples(
        st.sampled_from([*OFTEN, "ask", "pin", "unpin", "uncompact", "rewind", "undo", "redo", "fork"]),
        st.integers(0, 400),
    ),
    min_size=5,
    max_size=40,
)


def exchange(size: int, numbers: count[int]) -> list[JsonObject]:
    """Return a message that calls up to three tools, and their results."""
    ids = [f"call-{next(numbers)}" for _ in range(1 + size % 3)]
    parts = [{"type": "toolCall", "id": each, "name": "read", "arguments": {"path": "x" * size}} for each in ids]
    said: JsonObject = {"role": "assistant", "content": [*parts]}
    return [said, *(result(each, size) for each in reversed(ids))]


def result(call_id: str, size: int) -> JsonObject:
    content = [{"type": "text", "text": "r" * size}]
    return {"role": "toolResult", "toolCallId": call_id, "toolName": "read", "content": [*content], "isError": False}


def assert_is_valid(messages: list[JsonObject]) -> None:
    """Every result answers a call before it, and every call is answered."""
    pairing = Pairing(messages)
    assert pairing.unpaired == set()
    assert all(results for results in pairing.results.values())


def assert_fits(session: Session, settings: CompactionSettings, window: int | None, done: CompactionResult) -> None:
    """No compaction is due where what has to stay leaves room for the shortest text."""
    if window is None:
        return
    sized = sized_for(settings, window)
    if done.tokens_staying + LEAST_TEXT <= window - sized.reserve_tokens:
        size = session.context.measure(window=window, use_reported=False).tokens
        assert not should_compact(size, window, sized)


def compact(session: Session, keep: int) -> None:
    before = session.build_context()
    mode, settings = (
        MODES[keep % len(MODES)],
        CompactionSettings(
            keep_recent_tokens=keep, keep_recent_messages=None if keep % 4 else 0, user_words_share=keep % 3 / 2
        ),
    )
    window = WINDOWS[keep % len(WINDOWS)]
    done = session.compact(MODEL, mode=mode, settings=settings, window=window)
    after = session.build_context()
    if done.appended is None:
        assert done.reason in ("no_cut_point", "not_smaller")
        assert after == before
        return
    is_whole = isinstance(done.planned, SessionCompactionPlan) and not done.planned.first_kept_entry_id
    assert is_whole or after[-1] == before[-1]
    assert len(after) <= len(before)
    assert done.tokens_after is not None
    assert done.tokens_after < done.tokens_before
    assert_is_valid(after)
    assert_fits(session, settings, window, done)
    again = session.compact(MODEL, mode=mode, settings=settings, window=window)
    assert again.reason in ("no_cut_point", "not_smaller")
    later: list[JsonObject] = [{"role": "user", "content": "and then?"}] * (keep % 2)
    for message in later:
        session.append_message(message)
    assert session.compactions.uncompact() is not None
    assert session.build_context() == before + later
    session.undo()
    assert session.build_context() == after + later
    session.redo()
    assert session.build_context() == before + later
    session.undo()


def compact_range(session: Session, size: int) -> None:
    """Compact a range: what lies before and after it stays, byte for byte, and it comes off again."""
    before = session.build_context_entries()
    ids = [item.entry_id for item in before]
    first, last = sorted((size % len(ids), size // 3 % len(ids)))
    pins = session.marks.pins()
    if any(item.kind == "compaction" and item.entry_id in pins for item in before):
        with suppress(InvalidArgument):
            session.compactions.compact_range(ids[first], ids[last], mode="window", dry_run=True)
        return
    done = session.compactions.compact_range(ids[first], ids[last] if size % 5 else None, MODEL, mode=MODES[size % 4])
    after = session.build_context_entries()
    if done.appended is None:
        assert done.reason in ("no_cut_point", "not_smaller")
        assert after == before
        return
    assert isinstance(done.planned, RangePlan)
    begin, end = ids.index(done.planned.first_entry_id), ids.index(done.planned.last_entry_id)
    # A summary that comes first and is taken over leaves with the range.
    begin = min([begin, *done.planned.taken_over])
    kept = len(ids) - end - 1
    assert before[:begin] == after[:begin]
    assert [item.data for item in before[end + 1 :]] == [item.data for item in after[len(after) - kept :]]
    assert done.entry_id in [item.entry_id for item in after]
    assert [item.data for item in project(session.get_active_path())] == [item.data for item in after]
    assert_is_valid(session.build_context())
    assert session.compactions.uncompact() is not None
    assert session.build_context_entries() == before
    session.undo()
    assert session.build_context_entries() == after


def mark(session: Session, step: Step, shown: list[str]) -> None:
    """Pin an entry, leave one or a part of it out, or take that back."""
    what, size = step
    named = shown[size % len(shown)]
    if what == "pin":
        session.marks.pin(named)
    elif what == "exclude":
        session.marks.exclude(named)
    elif what == "part":
        with suppress(InvalidArgument):
            session.marks.exclude(named, 0)
    elif what == "unpin" and (pins := session.marks.pins()):
        session.marks.unpin(pins[size % len(pins)])
    elif what == "include":
        out = [entry.fields["entryId"] for entry in session.get_active_path() if entry.kind == "exclusion"]
        if out:
            session.marks.include(str(out[size % len(out)]))


def take(session: Session, step: Step, numbers: count[int]) -> Session:
    """Take a step, and return the session with which it goes on."""
    what, size = step
    items = session.build_context_entries()
    shown = [item.entry_id for item in items if item.kind == "message"]
    if what == "ask":
        session.append_message({"role": "user", "content": "q" * (size + 1)})
    elif what == "say":
        session.append_message({"role": "assistant", "content": "a" * (size + 1)})
    elif what == "call":
        session.append_messages(exchange(size, numbers))
    elif what == "compact":
        compact(session, size)
    elif items and what == "range":
        compact_range(session, size)
    elif what == "uncompact":
        session.compactions.uncompact()
    elif what == "undo":
        session.undo()
    elif what == "redo":
        session.redo()
    elif what == "fork":
        return session.fork()
    elif what == "rewind" and size % 4 == 0:
        session.rewind(turns=-1) if session.turns() else None
    elif shown:
        mark(session, step, shown)
    return session


@given(steps)
def test_any_history_stays_valid_and_every_layer_comes_off(taken: list[Step]) -> None:
    with flue_py.sync.open(":memory:") as store:
        session, numbers = store.create_session(), count()
        for step in taken:
            session = take(session, step, numbers)
            assert_is_valid(session.build_context())
        for target in LIMITS:
            assert session.request(target).broken == () or not session.build_context()
        while session.compactions.latest() is not None:
            assert session.compactions.uncompact() is not None
        assert session.build_context() == [item.data for item in project_kept(session.get_active_path())]
        assert store.verify().problems == []


# -- A process that is killed while it compacts: nothing is half done, and what it paid for is in the ledger ------


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
