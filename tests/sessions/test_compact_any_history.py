"""Compacting histories of any shape: the context stays valid and ends as it did, and every layer comes off again."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import Literal, TypeAlias

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

What: TypeAlias = Literal[
    "ask",
    "say",
    "call",
    "pin",
    "unpin",
    "exclude",
    "part",
    "include",
    "compact",
    "range",
    "uncompact",
    "rewind",
    "undo",
    "redo",
    "fork",
]
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
