"""A request that does not fit is tried again with less of what tools gave back, each time made from the whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import flue_py
from flue_py import ContextOverflow, InvalidArgument, Session
from flue_py.context import Attempt, ask_fitting
from flue_py.core.json import JsonObject
from flue_py.core.model import FunctionModel, ModelRequest
from flue_py.providers import LIMITS
from tests.checks import raises
from tests.context.pipeline.piped import answer, call, result, user
from tests.tables import inputs

SAID: list[JsonObject] = [
    user("Go."), answer("I read.", call("c1", path="a.py")), result("c1", "a" * 9_000),
    answer("", call("c2", "write_file", path="A.py", content="new")), result("c2"),
    answer("I look.", call("c3", "grep", pattern="x")), result("c3", "b" * 9_000), user("And?"),
]  # fmt: skip


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    async with flue_py.open(":memory:", prices=False) as store:
        made = await store.create_session()
        await made.append_messages(SAID)
        yield made
        assert (await store.verify()).problems == []


async def lengths(session: Session, **given: Any) -> list[tuple[int, list[int]]]:
    """Return, of every attempt there is, its number and how long the results of its tools are."""
    found = []
    async for attempt in await session.context.attempts(**given):
        attempt.overflowed()
        results = [message for message in attempt.request.messages if message["role"] == "toolResult"]
        found.append((attempt.number, [len(message["content"][0]["text"].split("\n")[0]) for message in results]))  # type: ignore[index, union-attr, arg-type, call-overload]
    return found


async def test_each_stage_is_made_from_the_whole(session: Session) -> None:
    assert await lengths(session) == [
        (0, [9_000, 4, 9_000]), (1, [500, 4, 4_000]), (2, [500, 4, 500]), (3, []),
    ]  # fmt: skip
    assert await session.build_context() == SAID


async def test_the_note_says_how_much_is_missing_and_the_report_has_it(session: Session) -> None:
    attempts = [
        attempt async for attempt in await session.context.attempts(settings={"addresses": False}) if overflow(attempt)
    ]
    text = str(attempts[1].request.messages[6])
    assert "b\\n[...context-trimmed — 5,000 chars removed to fit model limit...]'" in text
    assert [step.name for step in attempts[1].request.report.steps] == ["adaptive_trim"]
    assert [change.how for change in attempts[1].request.report.changes] == ["cut", "cut"]
    last = attempts[3].request
    assert [message["role"] for message in last.messages] == ["user", "assistant", "assistant", "user"]
    assert last.messages[1] == answer("I read.")
    assert [change.how for change in last.report.changes].count("dropped") == 4


def overflow(attempt: Attempt) -> bool:
    attempt.overflowed()
    return True


async def test_an_overflow_leads_to_the_next_attempt_and_success_to_none(session: Session) -> None:
    tried = []
    async for attempt in await session.context.attempts("anthropic"):
        with attempt:
            tried.append(attempt.number)
            assert attempt.request.broken == ()
            if len(str(attempt.request.messages)) > 6_000:
                raise ContextOverflow("too long")
    assert tried == [0, 1]


async def fail_each(session: Session, error: Exception) -> list[int]:
    """Raise an error in every attempt, and return the numbers of those; the last one's passes."""
    tried: list[int] = []

    async def fail() -> None:
        async for attempt in await session.context.attempts("gemini"):
            with attempt:
                tried.append(attempt.number)
                raise error

    passed = await raises(type(error), fail())
    assert passed.value is error
    return tried


async def test_the_fourth_overflow_and_any_other_error_pass(session: Session) -> None:
    assert await fail_each(session, ContextOverflow("still too long")) == [0, 1, 2, 3]
    assert await fail_each(session, ZeroDivisionError()) == [0]


async def test_an_attempt_above_the_limits_is_passed_over_before_it_is_sent(session: Session) -> None:
    found = await lengths(session, settings={"fitting": {"max_context_tokens": 1_500}})
    assert [number for number, _ in found] == [1, 2, 3]
    assert [n for n, _ in await lengths(session, settings={"fitting": {"max_payload_bytes": 4_000}})] == [2, 3]
    tool: JsonObject = {"name": "read", "description": "d" * 8_000}
    given = {"settings": {"fitting": {"max_context_tokens": 2_500}}, "tools": [tool]}
    assert [number for number, _ in await lengths(session, **given)] == [2, 3]
    with pytest.raises(ContextOverflow, match=r"tokens are more than max_context_tokens \(1\)"):
        await lengths(session, settings={"fitting": {"max_context_tokens": 1}})


@inputs("target", [*LIMITS, None])
async def test_what_stands_beside_the_messages_counts_for_every_target(session: Session, target: str | None) -> None:
    """Of content: 40,000 characters of system are 10,000 tokens, and 8,000 of a tool 2,000 more."""
    tool: JsonObject = {"name": "read", "description": "d" * 8_000, "parameters": {"type": "object"}}
    beside: Any = {"target": target, "system": "s" * 40_000, "tools": [tool]}

    async def numbers(**limits: int) -> list[int]:
        attempts = await session.context.attempts(**beside, settings={"fitting": limits})
        return [attempt.number async for attempt in attempts if overflow(attempt)]

    assert await numbers(max_context_tokens=17_000) == [0, 1, 2, 3]
    assert await numbers(max_context_tokens=12_500) == [2, 3]
    assert await numbers(max_payload_bytes=61_500) == [2, 3]
    for limits in ({"max_context_tokens": 11_000}, {"max_payload_bytes": 56_000}):
        await raises(ContextOverflow, numbers(**limits), match="the request does not fit")


async def test_a_model_is_asked_until_it_fits(session: Session) -> None:
    asked = []

    async def ask(request: ModelRequest) -> str:
        asked.append(len(str(request.messages)))
        assert request.system == "Be brief."
        if asked[-1] > 3_000:
            raise ContextOverflow("too long")
        return "Done."

    model = FunctionModel(ask)
    request = ModelRequest((user("stands for the context"),), "Be brief.")
    assert (await ask_fitting(await session.context.attempts(), model, request)).text == "Done."
    assert len(asked) == 3
    attempts = await session.context.attempts()
    await raises(ContextOverflow, ask_fitting(attempts, FunctionModel(refuse), request))


async def refuse(request: ModelRequest) -> str:
    raise ContextOverflow("too long")


async def test_wrong_arguments_are_refused(session: Session) -> None:
    await raises(InvalidArgument, session.context.attempts(tools="none"), match="tools")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"fitting\.max_context_tokens"):
        await session.context.attempts(settings={"fitting": {"max_context_tokens": -1}})


def test_the_twin_has_them_for_a_plain_loop() -> None:
    with flue_py.sync.open(":memory:", prices=False) as store:
        session = store.create_session()
        session.append_messages(SAID)
        assert [attempt.number for attempt in session.context.attempts("openai-chat") if overflow(attempt)] == [
            0,
            1,
            2,
            3,
        ]
