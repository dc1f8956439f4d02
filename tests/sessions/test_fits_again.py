"""Right after a compaction none is due, however many compactions came before it and whatever they have to carry on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import flue_py
from flue_py import Session
from flue_py.compaction import CompactionSettings, should_compact
from flue_py.compaction.settings import sized_for
from flue_py.context.tokens import counter_for
from flue_py.core.json import JsonObject
from flue_py.core.model import FunctionModel, ModelRequest
from flue_py.runtime.guard import CompactionGuard
from tests.sessions.talk import user
from tests.tables import inputs

pytestmark = pytest.mark.anyio

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
@pytest.mark.parametrize("mode", MODES)
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
        latest = await session.compactions.latest()
        assert latest is not None
        details = latest.fields["details"]
        assert isinstance(details, dict)
        paths = {f"src/package_{each}/module.py" for each in range(numbers[-1] + 1)}
        assert paths <= {*details["readFiles"], *details["modifiedFiles"]}  # type: ignore[misc]
        assert (await session.compactions.recall(None, oldest)).hits
        assert (await store.verify()).problems == []


def talk(cycle: int) -> list[JsonObject]:
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
                await session.append_messages(talk(10 * cycle + part))
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
        for cycle in range(30):
            ids = (await session.append_messages(talk(cycle))).entry_ids
            await session.compactions.compact_range(ids[10], ids[60], mode="intent", window=WINDOW)
            assert (await session.compact(mode="window", settings=SMALL, window=WINDOW)).appended is not None
            assert not await is_due(session, WINDOW)
        latest = await session.compactions.latest()
        assert latest is not None
        assert "characters of earlier summaries are left out; they are stored" in str(latest.fields["summary"])
        assert (await session.compactions.recall(None, "src/package_20/module.py")).hits
        assert (await store.verify()).problems == []


@pytest.mark.thorough(but=["intent"])
@inputs("share", [0.1, 0.4])
@inputs("window", [WINDOW, 32_000])
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
                await session.append_messages(talk(10 * cycle + part))
            assert should_compact(await total(), window, sized)
            planned = await session.compactions.plan(mode=mode, window=window, system=system, tools=tools)
            done = await session.compact(model, mode=mode, system=system, tools=tools)
            assert done.appended is not None
            assert (planned.planned, planned.tokens_staying) == (done.planned, done.tokens_staying)
            assert not should_compact(await total(), window, sized), cycle
        guard = CompactionGuard(store, session, model, mode=mode, system=system, tools=tools)
        await session.append_messages(talk(99))
        for part in range(window // WINDOW):
            await session.append_messages(talk(100 + part))
        assert (await guard.before_call()).outcome == "compacted"
        assert not await guard.should_compact()
        assert not should_compact(await total(), window, sized)
        assert (await store.verify()).problems == []
