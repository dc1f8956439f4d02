"""Titles that a model writes: three to seven words, booked, and below the one that a person gave."""

from __future__ import annotations

import pytest

import flue_py
from flue_py.agents.harness import SEED_CHARACTERS, write_title
from flue_py.core.model import FunctionModel, ModelReply, ModelRequest
from flue_py.errors import InvalidArgument, ModelRefused
from tests.tables import inputs


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
