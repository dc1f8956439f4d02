"""Asking a model for a session: what is booked, and when it is given up."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TypeVar

import pytest
from msgspec.structs import replace

import flue_py
from flue_py import InvalidArgument, ModelUnavailable, RateLimited, Session, Store
from flue_py.agents.harness import SEED_CHARACTERS, write_title
from flue_py.core.model import FunctionModel, ModelReply, ModelRequest
from flue_py.db.waiting import ON_LOOP, OnLoop
from flue_py.errors import ModelRefused
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


# -- Titles that a model writes: three to seven words, booked, and below the one that a person gave -------------------


def model(*answers: str, asked: list[ModelRequest] | None = None) -> FunctionModel:
    """Return a model that gives these answers, each for three cents."""
    left = list(answers)

    def answer(request: ModelRequest) -> ModelReply:
        if asked is not None:
            asked.append(request)
        usage = {"input": 30, "output": 5, "cost": {"total": 0.03}}
        return ModelReply(({"role": "assistant", "content": left.pop(0), "usage": usage},))

    return FunctionModel(answer, "small", provider="house", context_window=200_000)


async def test_it_is_made_of_the_first_words_and_paid_for() -> None:
    asked: list[ModelRequest] = []
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        await session.append_message({"role": "system", "content": "You are a bot."})
        await session.append_message({"role": "user", "content": "Why is the build red? " + "x" * 5000})
        await session.append_message({"role": "assistant", "content": "A test times out."})
        assert await write_title(session, model("**Title: Red build after a time-out.**\n", asked=asked)) == (
            "Red build after a time-out"
        )
        assert (session.info.title, session.info.auto_title) == (None, "Red build after a time-out")
        seed = str(asked[0].messages[0]["content"])
        assert len(seed) == SEED_CHARACTERS + len("<conversation>\n\n</conversation>")
        assert "Why is the build red?" in seed
        assert "You are a bot" not in seed
        (row,) = (await store.usage(session, group_by=["purpose"])).rows
        assert (row.group["purpose"], row.calls, row.picodollars) == ("title", 1, 30_000_000_000)
        await session.set_title("Mine")
        await write_title(session, model("Another title for it"))
        assert session.info.shown_title == "Mine"


@inputs(
    ("answers", "title"),
    [
        (("Build", "Red build again today"), "Red build again today"),
        (("", '"Eine rote Pipeline"'), "Eine rote Pipeline"),
        (
            ("one two three four five six seven eight", "One two three four five six seven"),
            "One two three four five six seven",
        ),
        (("构建失败的原因",), "构建失败的原因"),
        (("\n\n# Why the build fails\nBecause.",), "Why the build fails"),
    ],
)
async def test_what_is_no_title_is_asked_for_once_more(answers: tuple[str, ...], title: str) -> None:
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        await session.append_message({"role": "user", "content": "hi"})
        assert await write_title(session, model(*answers)) == title
        assert (await store.usage(session)).total.calls == len(answers)


async def test_without_a_title_in_the_answers_nothing_is_changed_but_the_bill() -> None:
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        with pytest.raises(InvalidArgument, match="has no words to make a title of"):
            await write_title(session, model("Never asked for it"))
        await session.append_message({"role": "user", "content": "hi"})
        with pytest.raises(ModelRefused, match="no title of 3 to 7 words came back"):
            await write_title(session, model("No", "x" * 200))
        assert session.info.auto_title is None
        assert (await store.usage(session)).total.calls == 2
