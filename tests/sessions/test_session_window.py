"""Whose window a compaction is sized by: that of the session's own model, as far as it is known."""

from __future__ import annotations

import flue_py
from flue_py import Session, Store
from flue_py.compaction import CompactionSettings
from flue_py.core.json import JsonObject
from flue_py.core.model import FunctionModel
from flue_py.prices import published_window

SETTINGS = CompactionSettings(user_words_share=0)


async def talk(store: Store, **said: str) -> Session:
    session = await store.create_session()
    messages: list[JsonObject] = []
    for n in range(60):
        messages.append({"role": "user", "content": f"question {n} " + "word " * 200})
        messages.append({"role": "assistant", "content": "a " * 300, **said})
    await session.append_messages(messages)
    return session


def summarizer(window: int, name: str = "summarizer") -> FunctionModel:
    return FunctionModel(lambda _: "what was said", name, context_window=window)


async def test_what_stays_is_sized_by_the_model_of_the_latest_answer() -> None:
    async with flue_py.open(":memory:") as store:
        small = await talk(store, provider="openai", model="gpt-4")
        planned = await small.compactions.plan(settings=SETTINGS)
        done = await small.compact(summarizer(400_000), settings=SETTINGS)
        assert done.appended is not None
        assert done.tokens_staying == planned.tokens_staying < 8_192 // 2
        large = await talk(store, provider="anthropic", model="claude-sonnet-4-5")
        done = await large.compact(summarizer(8_000), settings=SETTINGS)
        assert done.tokens_staying >= SETTINGS.keep_recent_tokens
        assert (await store.verify()).problems == []


async def test_a_window_that_is_given_counts_and_then_what_the_model_itself_says() -> None:
    async with flue_py.open(":memory:") as store:
        session = await talk(store, provider="openai", model="gpt-4")
        wide = await session.compactions.plan(settings=SETTINGS, window=100_000)
        assert wide.tokens_staying >= SETTINGS.keep_recent_tokens
        done = await session.compact(summarizer(100_000, "gpt-4"), settings=SETTINGS)
        assert done.tokens_staying >= SETTINGS.keep_recent_tokens


async def test_a_model_that_is_not_known_leaves_it_to_the_summarizer() -> None:
    async with flue_py.open(":memory:") as store:
        for said in ({}, {"provider": "mine", "model": "not-published"}):
            session = await talk(store, **said)
            assert (await session.compactions.plan(settings=SETTINGS)).tokens_staying >= SETTINGS.keep_recent_tokens
            done = await session.compact(summarizer(8_000), settings=SETTINGS)
            assert done.tokens_staying < 4_000


def test_windows_are_known_by_the_names_that_models_have() -> None:
    assert published_window("gpt-4", "openai") == published_window("openai:gpt-4") == published_window("gpt-4") == 8_192
    assert published_window("claude-sonnet-4-5", "my-gateway") == 200_000
    assert published_window("not-published") is None
