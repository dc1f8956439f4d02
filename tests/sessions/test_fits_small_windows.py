"""In a window however small, none is due right after a compaction that had everything to carry, full to the brim."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import flue_py
from flue_py.compaction import CompactionSettings, should_compact
from flue_py.compaction.blocks import Around
from flue_py.compaction.modes import Hybrid, Intent, Llm, Lossless, Mode, Window
from flue_py.compaction.settings import sized_for
from flue_py.core.json import JsonObject
from flue_py.core.model import FunctionModel, ModelRequest
from flue_py.errors import ModelUnavailable
from tests.effort import examples, first
from tests.sessions.talk import user

AROUND = Around(
    tasks=[f"task-{number}: index the documents of part {number} " + "and more " * 20 for number in range(60)],
    approvals=[f"approval-{number}: may it delete part {number}? " + "and more " * 20 for number in range(60)],
    read_file=lambda path: f"# {path}\n" + "語言 words = 1\n" * 4_000,
)
EVERYTHING: dict[str, Mode] = {
    "llm": Llm(around=AROUND, change_log=lambda: "changed a.py " * 400),
    "intent": Intent(around=AROUND),
    "lossless": Lossless(state="reviewing", contracts={"tests pass": lambda: "2 of 40 fail " * 20}, around=AROUND),
    "hybrid": Hybrid(lossless=Lossless(state="reviewing", around=AROUND), llm=Llm(around=AROUND), around=AROUND),
    "window": Window(AROUND),
}
SETTINGS = CompactionSettings(include_reasoning=True, include_symbols=True, on_failure="fallback")


def said(number: int, words: int, window: int) -> list[JsonObject]:
    """Return an exchange that gives every block something: a wish, thinking, calls of every kind, errors, a decision.

    It is long for a window, and no longer than half of what it leaves to messages: an exchange stays whole.
    """
    long = window // 800
    path = f"src/package_{number}/module_{number}.py"
    calls: list[JsonObject] = [
        called(f"w{number}", "write", path=path, content=f"import os\n\nclass Name{number}:\n    pass\n"),
        called(f"e{number}", "edit", path=f"src/other_{number}.py"),
        called(f"h{number}", "handoff_to", agent=f"agent {number}", note="take care of it " * long),
        called(f"d{number}", "dead", path="never answered"),
    ]
    thinking: JsonObject = {"type": "thinking", "thinking": f"I think of {number}. " + "Let me see. " * long}
    return [
        user(f"Wish {number}: never touch Name{number}. " + "please " * (words * long // 20)),
        {"role": "assistant", "content": [thinking, *calls]},
        *(
            result(f"{kind}{number}", f"Error: name_{number} is wrong " * (1 + long // 4), is_error=kind == "e")
            for kind in "weh"
        ),
        {"role": "assistant", "content": f"I decided to keep name_{number} instead of other_{number}. " * 2},
    ]


def called(call_id: str, name: str, **arguments: str) -> JsonObject:
    return {"type": "toolCall", "id": call_id, "name": name, "arguments": {**arguments}}


def result(call_id: str, text: str, *, is_error: bool) -> JsonObject:
    return {"role": "toolResult", "toolCallId": call_id, "toolName": "x", "content": text, "isError": is_error}


def as_long_as_it_may(request: ModelRequest) -> str:
    assert request.max_tokens is not None
    return "sum" * request.max_tokens


def fails(_: ModelRequest) -> str:
    raise ModelUnavailable("down " * 200)


async def check(mode: Mode, chosen: CompactionSettings, window: int, words: int, answers: bool, ends_open: int) -> None:
    """Compact four times in a window, each time when it is due, and find that none is due right after it."""
    model = FunctionModel(as_long_as_it_may if answers else fails, "small", context_window=max(window, 8_000))
    sized = sized_for(chosen, window)
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        await session.marks.register("rules", "Never push to main. " * 500)
        number = 0

        async def is_due() -> bool:
            return should_compact((await session.context.measure(window=window)).tokens, window, sized)

        for cycle in range(4):
            while not await is_due():
                await session.append_messages(said(number, words, window))
                number += 1
            await session.append_messages(said(number, words, window)[:ends_open])
            number += 1
            done = await session.compact(model, mode=mode, settings=chosen, window=window)
            assert done.appended is not None, done.reason
            assert not await is_due(), (cycle, done.tokens_staying, done.tokens_after, window)
        assert (await store.verify()).problems == []


@examples(30)
@given(
    st.sampled_from(sorted(EVERYTHING)),
    st.integers(2_000, 16_000),
    st.integers(0, 60),
    st.booleans(),
    st.integers(1, 6),
    st.booleans(),
)
def test_none_is_due_right_after_a_compaction_in_any_small_window(
    mode: str, window: int, words: int, answers: bool, ends_open: int, deterministic: bool
) -> None:
    chosen = replace(SETTINGS, prefer_deterministic=deterministic)
    asyncio.run(check(EVERYTHING[mode], chosen, window, words, answers, ends_open))


@pytest.mark.parametrize("window", first(1, [4_000, 2_000, 8_000, 16_000]))
@pytest.mark.parametrize("mode", sorted(EVERYTHING))
def test_none_is_due_right_after_a_compaction_with_every_block(mode: str, window: int) -> None:
    asyncio.run(check(EVERYTHING[mode], SETTINGS, window, 20, answers=True, ends_open=6))
