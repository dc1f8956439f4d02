"""Going on in a smaller window; and none is due right after a compaction, however small the window."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import flue_py
from flue_py import InvalidArgument, Session
from flue_py.agents.guard import CompactionGuard
from flue_py.compaction import CompactionSettings, should_compact
from flue_py.compaction.blocks import Around
from flue_py.compaction.modes import Hybrid, Intent, Llm, Lossless, Mode, Window
from flue_py.compaction.settings import sized_for
from flue_py.context.tokens import counter_for
from flue_py.core.json import JsonObject
from flue_py.core.model import FunctionModel, ModelRequest
from flue_py.errors import ModelUnavailable
from tests.effort import examples, first
from tests.sessions.talk import user
from tests.tables import inputs
from tests.values import existing


class Named:
    """Models that note who was asked, and with how much."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def model(self, name: str, window: int | None) -> FunctionModel:
        def answer(request: ModelRequest) -> str:
            self.asked.append((name, sum(len(str(message["content"])) for message in request.messages)))
            return f"{name} says"

        return FunctionModel(answer, name, context_window=window)


async def talk(session: Session, turns: int, words: int = 100) -> None:
    for number in range(turns):
        await session.append_message(user(f"question {number} " + "why " * words))
        await session.append_message({"role": "assistant", "content": f"answer {number} " + "so " * words})


async def test_what_fits_is_left_alone(session: Session) -> None:
    await talk(session, 3)
    named = Named()
    fitted = await session.compactions.fit_to(named.model("small", 8_000))
    assert fitted.fits
    assert fitted.compactions == ()
    assert 0 < fitted.tokens < fitted.room == 6_000
    assert named.asked == []


async def test_the_larger_model_compacts_for_the_smaller_one(session: Session) -> None:
    await talk(session, 60)
    named = Named()
    fitted = await session.compactions.fit_to(named.model("small", 8_000), compactor=named.model("large", 1_000_000))
    assert fitted.fits
    assert [name for name, _ in named.asked] == ["large"]
    (done,) = fitted.compactions
    assert done.appended is not None
    assert fitted.tokens == (await session.context.measure("small", use_reported=False)).tokens <= fitted.room
    assert "answer 59" in str((await session.build_context())[-1])
    # The end that stays is sized by the window that it has to fit into, not by that of the compactor.
    assert 1_500 < done.tokens_staying <= 3_000


async def test_without_one_the_smaller_model_compacts_in_parts(session: Session) -> None:
    await talk(session, 60)
    named = Named()
    fitted = await session.compactions.fit_to(named.model("small", 8_000))
    assert fitted.fits
    assert len(named.asked) > 1
    assert all(characters < 4 * 8_000 for _, characters in named.asked)


async def test_less_is_kept_where_system_prompt_and_tools_take_room(session: Session) -> None:
    await talk(session, 60)
    named = Named()
    system = "Be brief. " * 1_000
    planned = await session.compactions.plan(settings=CompactionSettings(user_words_share=0), window=8_000)
    fitted = await session.compactions.fit_to(
        named.model("small", 8_000),
        compactor=named.model("large", 1_000_000),
        system=system,
        settings=CompactionSettings(user_words_share=0),
    )
    assert fitted.fits
    assert len(fitted.compactions) == 1
    assert fitted.compactions[0].tokens_staying < planned.tokens_staying


async def test_one_message_that_is_larger_than_the_window_does_not_fit(session: Session) -> None:
    await talk(session, 3)
    await session.append_message(user("word " * 20_000))
    fitted = await session.compactions.fit_to(Named().model("small", 8_000))
    assert not fitted.fits
    assert fitted.tokens > 8_000
    assert fitted.compactions[0].appended is not None


async def test_an_unknown_window_and_what_is_no_model_are_refused(session: Session) -> None:
    with pytest.raises(InvalidArgument, match=r"^window: the context window of model 'small' is not known"):
        await session.compactions.fit_to(Named().model("small", None))
    with pytest.raises(InvalidArgument, match=r"^compactor: 'large' is not a model"):
        await session.compactions.fit_to(Named().model("small", 8_000), compactor="large")  # type: ignore[arg-type]
    assert (await session.compactions.fit_to(Named().model("small", None), window=4_000)).fits


# -- Right after a compaction none is due, however many compactions came before it and whatever they have to
# carry on --------------------------------------------------------------------------------------------------------


MODES = ["llm", "intent", "lossless", "hybrid", "window"]
WINDOW = 8_000
SMALL = CompactionSettings(keep_recent_tokens=1_000)
"""What is said here is English or made of three bytes a token, as it is counted without a model."""


def call(number: int, name: str, path: str) -> list[JsonObject]:
    part: JsonObject = {"type": "toolCall", "id": f"c{number}", "name": name, "arguments": {"path": path}}
    return [
        {"role": "assistant", "content": [part]},
        {"role": "toolResult", "toolCallId": f"c{number}", "toolName": name, "content": "done " * 30, "isError": False},
    ]


async def grow(session: Session, messages: Sequence[JsonObject]) -> None:
    await session.append_messages([*messages, user("go on " * 900), {"role": "assistant", "content": "done " * 1500}])


@pytest.mark.thorough(but=["intent"])
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "window"])
async def test_the_lists_of_files_take_no_more_and_no_more_room(mode: str) -> None:
    model = FunctionModel(lambda _: "model says", "small", context_window=WINDOW)
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        for cycle in range(12):
            numbers = range(cycle * 40, cycle * 40 + 40)
            calls = [call(each, "edit" if each % 4 else "read", f"src/package_{each}/module.py") for each in numbers]
            await grow(session, [message for each in calls for message in each])
            done = await session.compact(model, mode=mode)
            assert done.appended is not None
        assert done.summary is not None
        newest, oldest = f"src/package_{numbers[-1]}/module.py", "src/package_41/module.py"
        lists = done.summary[done.summary.index("<read-files>") :]
        assert newest in lists
        assert oldest not in lists
        assert counter_for(None).count(user(lists)) <= WINDOW // 16
        for tag in ("read-files", "modified-files"):
            assert "py\n[… " in lists.partition(f"<{tag}>")[2]
            assert f"more, which are stored with this summary]\n</{tag}>" in lists
        # All are handed on: nothing that was said is lost.
        latest = existing(await session.compactions.latest())
        details = latest.fields["details"]
        assert isinstance(details, dict)
        paths = {f"src/package_{each}/module.py" for each in range(numbers[-1] + 1)}
        assert paths <= {*details["readFiles"], *details["modifiedFiles"]}  # type: ignore[misc]
        assert (await session.compactions.recall(None, oldest)).hits
        assert (await store.verify()).problems == []


def most_of_a_window(cycle: int) -> list[JsonObject]:
    """Return some three quarters of the window: much of it is the user's, and most of the rest calls."""
    messages: list[JsonObject] = []
    for number in range(cycle * 30, cycle * 30 + 30):
        messages.append(user(f"wish {number}: " + "please look at it again " * 10))
        messages += call(number, "edit", f"src/package_{number}/module.py")
        messages.append({"role": "assistant", "content": f"I decided to keep name_{number} because it fails. " * 3})
    return messages


def as_long_as_it_may(request: ModelRequest) -> str:
    assert request.max_tokens is not None
    return "sum" * request.max_tokens


async def is_due(session: Session, window: int) -> bool:
    size = await session.context.measure(window=window)
    return should_compact(size.tokens, window, sized_for(CompactionSettings(), window))


@pytest.mark.thorough(but=["intent"])
@inputs("window", [WINDOW, 32_000])
@pytest.mark.parametrize("mode", MODES)
async def test_none_is_due_right_after_a_compaction_whatever_it_has_to_carry_on(mode: str, window: int) -> None:
    model = FunctionModel(as_long_as_it_may, "small", context_window=window)
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        await session.marks.register("rules", "Never push to main. " * 500)
        for cycle in range(6):
            for part in range(window // WINDOW):
                await session.append_messages(most_of_a_window(10 * cycle + part))
            assert await is_due(session, window) or cycle == 0
            done = await session.compact(model, mode=mode)
            assert done.appended is not None
            assert not await is_due(session, window)
            # Nor is it at once when somebody says something.
            await session.append_message(user("Go on, please."))
            assert not await is_due(session, window)
        assert (await store.verify()).problems == []


async def test_what_ranges_said_is_carried_on_without_end(anyio_backend: str) -> None:
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        for cycle in range(12):
            ids = (await session.append_messages(most_of_a_window(cycle))).entry_ids
            await session.compactions.compact_range(ids[10], ids[60], mode="intent", window=WINDOW)
            assert (await session.compact(mode="window", settings=SMALL, window=WINDOW)).appended is not None
            assert not await is_due(session, WINDOW)
        latest = existing(await session.compactions.latest())
        assert "characters of earlier summaries are left out; they are stored" in str(latest.fields["summary"])
        assert (await session.compactions.recall(None, "src/package_20/module.py")).hits
        assert (await store.verify()).problems == []


@pytest.mark.thorough(but=["intent"])
@inputs(("window", "share"), [(WINDOW, 0.4), (32_000, 0.1)])
@pytest.mark.parametrize("mode", MODES)
async def test_none_is_due_with_the_system_prompt_and_the_tools_counted_in(
    mode: str, window: int, share: float
) -> None:
    model = FunctionModel(as_long_as_it_may, "small", context_window=window)
    half = " mind" * int(window * share / 2 * 3 / 5)
    system, tools = f"Always{half}.", [{"name": "look", "description": f"Looks{half}.", "parameters": {}}]
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()

        async def total() -> int:
            return (await session.context.measure(window=window, system=system, tools=tools)).tokens

        sized = sized_for(CompactionSettings(), window)
        assert await total() > window * share
        for cycle in range(3):
            for part in range(window // WINDOW):
                await session.append_messages(most_of_a_window(10 * cycle + part))
            assert should_compact(await total(), window, sized)
            planned = await session.compactions.plan(mode=mode, window=window, system=system, tools=tools)
            done = await session.compact(model, mode=mode, system=system, tools=tools)
            assert done.appended is not None
            assert (planned.planned, planned.tokens_staying) == (done.planned, done.tokens_staying)
            assert not should_compact(await total(), window, sized), cycle
        guard = CompactionGuard(store, session, model, mode=mode, system=system, tools=tools)
        await session.append_messages(most_of_a_window(99))
        for part in range(window // WINDOW):
            await session.append_messages(most_of_a_window(100 + part))
        assert (await guard.before_call()).outcome == "compacted"
        assert not await guard.should_compact()
        assert not should_compact(await total(), window, sized)
        assert (await store.verify()).problems == []


# -- In a window however small, none is due right after a compaction that had everything to carry, full to the
# brim ------------------------------------------------------------------------------------------------------------


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
@inputs("mode", sorted(EVERYTHING))
def test_none_is_due_right_after_a_compaction_with_every_block(mode: str, window: int) -> None:
    asyncio.run(check(EVERYTHING[mode], SETTINGS, window, 20, answers=True, ends_open=6))
