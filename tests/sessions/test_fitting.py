"""Going on with a model whose window is smaller."""

from __future__ import annotations

import pytest

from flue_py import InvalidArgument, Session
from flue_py.compaction import CompactionSettings
from flue_py.core.model import FunctionModel, ModelRequest
from tests.sessions.talk import user

pytestmark = pytest.mark.anyio


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
