"""Every method of a guard, called with what it does not take: an error of ours that says so, and nothing is changed."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

import flue_py
from flue_py import ContextOverflow, JsonObject, sync
from flue_py.agents.guard import CompactionGuard
from flue_py.compaction import CompactionSettings
from flue_py.core.model import FunctionModel
from flue_py.errors import FlueError, InvalidArgument
from tests.checks import raises
from tests.fuzz.hostile import ARGUMENTS, check_refusal
from tests.tables import inputs

MODEL = FunctionModel(lambda _: "s", "m", context_window=100_000)
TAKEN = {
    "agent": {"empty text", "a text", "a long text"}, "moment": set[str](),
    "instructions": {"empty text", "a text", "a long text"}, "abort": {"True"}, "error": set[str](), "ask": set[str](),
}  # fmt: skip
"""The names of those of the odd arguments that a parameter takes."""


async def ask_later(context: list[JsonObject]) -> int:
    return len(context)


def usual(ask: Callable[[list[JsonObject]], Any]) -> Mapping[str, Mapping[str, Any]]:
    return {
        "before_call": {}, "after_call": {}, "resumed": {}, "compact": {}, "decide": {}, "should_compact": {},
        "request": {}, "requests": {}, "state": {}, "reset": {}, "call": {"ask": ask},
        "recover": {"error": ContextOverflow("too long")},
    }  # fmt: skip


def methods_of(guard: object) -> set[str]:
    return {
        name
        for name in dir(type(guard))
        if not name.startswith("_") and inspect.isfunction(inspect.getattr_static(type(guard), name))
    }


async def rows_of(store: flue_py.Store) -> object:
    return replace(await store.info(), size_bytes=None), await store.list_sessions(limit=10)


def is_taken(method: str, parameter: str, name: str) -> bool:
    return name in TAKEN[parameter] or (method, parameter, name) == ("compact", "instructions", "None")


async def test_a_guard_refuses_what_it_does_not_take() -> None:
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        guard = CompactionGuard(store, session, MODEL)
        assert methods_of(guard) == set(usual(ask_later))
        refused = 0
        for method, given in usual(ask_later).items():
            call = getattr(guard, method)
            for parameter in inspect.signature(call).parameters:
                for name, odd in ARGUMENTS.items():
                    if is_taken(method, parameter, name):
                        continue
                    before = await rows_of(store)
                    caught = await raises(FlueError, call(**{**given, parameter: odd}))
                    assert isinstance(caught.value, InvalidArgument), (method, parameter, name)
                    assert str(caught.value).startswith(parameter), (method, parameter, name)
                    check_refusal(caught.value)
                    assert await rows_of(store) == before, (method, parameter, name)
                    refused += 1
        assert refused > 300
        assert (await store.verify()).problems == []


def test_the_blocking_guard_refuses_alike() -> None:
    with sync.open(":memory:") as store:
        session = store.create_session()
        guard = sync.CompactionGuard(store, session, MODEL)
        # It has no requests: those take errors by a generator, which is for frameworks.
        assert methods_of(guard) == usual(len).keys() - {"requests"}
        for method in methods_of(guard):
            given = usual(len)[method]
            call = getattr(guard, method)
            for parameter in inspect.signature(call).parameters:
                for name in ("an integer", "a list with None", "an object that cannot be shown", "a class", "bytes"):
                    with pytest.raises(InvalidArgument, match=f"^{parameter}") as caught:
                        call(**{**given, parameter: ARGUMENTS[name]})
                    check_refusal(caught.value)
        assert session.metadata == {}
        assert store.verify().problems == []


PARTS = ("store", "session", "model", "summarizer", "mode", "settings", "triggers", "window", "system", "tools",
         "on_answer", "before_compaction", "context", "sources", "blocks", "clock", "patience",
         "stop_over_budget")  # fmt: skip


@inputs("parameter", PARTS)
def test_a_guard_is_made_of_nothing_else(parameter: str) -> None:
    async def run() -> None:
        async with flue_py.open(":memory:") as store:
            given: dict[str, Any] = {"store": store, "session": await store.create_session(), "model": MODEL}
            for name, odd in ARGUMENTS.items():
                try:
                    guard = CompactionGuard(**{**given, parameter: odd})
                    if parameter != "clock":
                        await guard.before_call()
                except InvalidArgument as error:
                    check_refusal(error)
                else:
                    assert parameter not in ("store", "session"), name

    assert set(inspect.signature(CompactionGuard).parameters) == set(PARTS)
    assert set(inspect.signature(sync.CompactionGuard).parameters) == set(PARTS)
    asyncio.run(run())


async def test_a_plain_function_that_should_be_awaited_is_told_of() -> None:
    async with flue_py.open(":memory:") as store:
        guard = CompactionGuard(store, await store.create_session(), MODEL)
        await raises(InvalidArgument, guard.call(len), match=r"^ask: it returned 0; use an async function here")  # type: ignore[arg-type]
        assert await guard.call(partial(ask_later)) == 0


async def test_a_window_of_zero_is_unknown_and_one_beyond_all_counts_is_said_to_be_so() -> None:
    settings = CompactionSettings(mode="window")
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        guard = CompactionGuard(store, session, window=0, settings=settings)
        assert guard.window is None
        assert (await guard.before_call()).outcome == "nothing"
        for call in (session.compactions.plan, session.compact):
            with pytest.raises(
                InvalidArgument, match=r"^window: .* is too large; use a whole number from 0 to 461\d+$"
            ):
                await call(window=2**70, settings=settings)
