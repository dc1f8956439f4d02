"""Asking a model for a session: what is booked, and when it is given up."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TypeVar

import pytest
from msgspec.structs import replace

from flue_py import InvalidArgument, ModelUnavailable, RateLimited, Session, Store
from flue_py.core.model import FunctionModel, ModelReply, ModelRequest
from flue_py.db.waiting import ON_LOOP, OnLoop
from flue_py.sessions.money import BookingAsker, Patience, model_of
from tests.checks import raises
from tests.tables import inputs

Result = TypeVar("Result")
REQUEST = ModelRequest(({"role": "user", "content": "sum it up"},), timeout=30.0, purpose="compaction")


class Impatient(OnLoop):
    """Gives every call up at once, and notes how long it was to wait."""

    def __init__(self) -> None:
        self.waited: list[float | None] = []

    async def ask(self, function: Callable[[], Coroutine[object, object, Result]], seconds: float | None) -> Result:
        self.waited.append(seconds)
        raise TimeoutError


async def test_a_model_that_keeps_no_timeout_is_given_up_after_one_that_does(session: Session) -> None:
    waiting = Impatient()
    model = FunctionModel(lambda _: "late", "small", provider="house")
    asker = BookingAsker(model, session.money, waiting, lambda: "id")
    failed = await raises(ModelUnavailable, asker.ask(REQUEST), match=r"no answer within 30\.0 seconds")
    assert (failed.value.provider, failed.value.model) == ("house", "small")
    assert waiting.waited == [35.0]
    assert asker.calls == []


async def test_no_longer_answer_is_asked_for_than_the_model_has(session: Session) -> None:
    asked: list[int | None] = []

    def answer(request: ModelRequest) -> str:
        asked.append(request.max_tokens)
        return "told"

    model = FunctionModel(answer, "small", provider="house", max_output_tokens=4_096)
    asker = BookingAsker(model, session.money, ON_LOOP, lambda: f"id-{len(asked)}")
    for most in (16_000, 100, None):
        await asker.ask(replace(REQUEST, max_tokens=most))
    assert asked == [4_096, 100, None]


class Pausing(OnLoop):
    """Notes how long it was to wait, and waits for nothing."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


def limited(*delays: float | None) -> FunctionModel:
    """Return a model that takes no call as many times as there are delays, and then answers."""
    left = list(delays)

    def answer(request: ModelRequest) -> str:
        if left:
            raise RateLimited("not now", retry_after=left.pop(0))
        return "answer"

    return FunctionModel(answer, "small")


@inputs(("delays", "pauses"), [((), []), ((7.0,), [7.0]), ((7.0, 0.0, 52.0), [7.0, 1.0, 52.0]), ((60.0,), [60.0])])
async def test_a_rate_limit_is_waited_for_within_a_bound(
    session: Session, delays: tuple[float, ...], pauses: list[float]
) -> None:
    waiting = Pausing()
    asker = BookingAsker(limited(*delays), session.money, waiting, lambda: "id", Patience(None, 60.0))
    assert (await asker.ask(REQUEST)).text == "answer"
    assert waiting.pauses == pauses


@inputs("delays", [(61.0,), (30.0, 31.0), (None,), (0.0,) * 61])
async def test_a_rate_limit_beyond_the_bound_is_reported(session: Session, delays: tuple[float | None, ...]) -> None:
    waiting = Pausing()
    asker = BookingAsker(limited(*delays), session.money, waiting, lambda: "id", Patience(None, 60.0))
    failed = await raises(RateLimited, asker.ask(REQUEST))
    assert failed.value.retry_after == delays[-1]
    assert sum(waiting.pauses) <= 60.0


async def test_a_request_without_a_timeout_gets_one(session: Session) -> None:
    asked: list[float | None] = []
    model = FunctionModel(lambda request: asked.append(request.timeout) or "answer", "small")
    asker = BookingAsker(model, session.money, ON_LOOP, lambda: "id", Patience(300.0))
    await asker.ask(REQUEST)
    await asker.ask(replace(REQUEST, timeout=None))
    assert asked == [30.0, 300.0]


async def test_what_is_not_a_reply_is_refused(session: Session, store: Store) -> None:
    class Wrong:
        name = "wrong"
        provider = context_window = max_output_tokens = None

        async def complete(self, request: ModelRequest) -> ModelReply:
            return "text"  # type: ignore[return-value]

    asker = BookingAsker(Wrong(), session.money, ON_LOOP, lambda: "id")
    await raises(InvalidArgument, asker.ask(REQUEST), match="should return a ModelReply, not 'text'")
    assert (await store.usage(session)).total.calls == 0


def test_only_a_model_is_a_model() -> None:
    model = FunctionModel(lambda _: "x")
    assert model_of(model) is model
    with pytest.raises(InvalidArgument, match="is not a model"):
        model_of("gpt-5")
