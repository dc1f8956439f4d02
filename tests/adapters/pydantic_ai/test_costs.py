"""What a save and a load read does not grow with the conversation, but for what they return."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.adapters.needed import needs

needs("pydantic-ai", "pydantic_ai.conversation_store")

from pydantic_ai.conversation import Conversation

import flue_py
from flue_py.adapters.pydantic_ai import FlueConversationStore
from flue_py.store.sqlite.transaction import SqliteTransaction
from tests.adapters.pydantic_ai.stores import turns

Work = Callable[[FlueConversationStore], Awaitable[object]]


@contextmanager
def rows_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count the rows that transactions read."""
    found: list[int] = []
    original = SqliteTransaction.rows

    def counting(self: SqliteTransaction, *args: Any, **values: Any) -> Any:
        rows = original(self, *args, **values)
        found.append(len(rows))
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(SqliteTransaction, "rows", counting)
        yield found


async def load_the_last(store: FlueConversationStore) -> None:
    loaded = await store.load("a", limit=10)
    assert loaded is not None
    assert len(loaded.messages) == 10


async def go_on(store: FlueConversationStore) -> None:
    loaded = await store.load("a", limit=4)
    assert loaded is not None
    loaded.messages += turns(1, first=5)
    await store.save(loaded)


async def read_a_record(store: FlueConversationStore) -> None:
    assert await store.read_record("a") is not None


async def lose_and_list(store: FlueConversationStore) -> None:
    assert len(await store.list_conversations(limit=1)) == 1


@pytest.mark.parametrize("work", [load_the_last, go_on, read_a_record, lose_and_list], ids=lambda work: work.__name__)
def test_it_reads_as_much_of_a_long_conversation_as_of_a_short_one(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    for count in (20, 400):
        with flue_py.sync.open(":memory:") as flue:
            store = FlueConversationStore(flue)
            asyncio.run(store.save(Conversation(messages=turns(count), conversation_id="a")))
            with rows_read(monkeypatch) as found:
                asyncio.run(work(store))
            read.append(sum(found))
    assert read[0] > 0
    assert read[1] == read[0]
