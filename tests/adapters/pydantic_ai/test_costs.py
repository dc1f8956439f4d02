"""What a save and a load read does not grow with the conversation, but for what they return."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.needed import needs

needs("pydantic-ai", "pydantic_ai.conversation_store")

from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, ConversationEntry, ConversationRecord
from pydantic_ai.messages import ModelRequest, ToolCallPart
from pydantic_ai.tools import DeferredToolRequests

import flue_py
from flue_py.adapters import pydantic_ai as reading
from flue_py.adapters.pydantic_ai import FlueConversationStore
from flue_py.db.sqlite.file import SqliteTransaction
from tests.adapters.pydantic_ai.stores import turns
from tests.checks import raises
from tests.values import existing

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


async def begin(store: FlueConversationStore, count: int) -> None:
    """Save a conversation whose first message is the entry ``early``."""
    first, *others = turns(count)
    record = ConversationRecord(conversation_id="a", head_id="early")
    entry = ConversationEntry(id="early", parent_id=None, message=first)
    await store.write_record(record, new_entries=[entry], expected_revision=None)
    loaded = existing(await store.load("a"))
    loaded.messages += others
    await store.save(loaded)


async def load_the_last(store: FlueConversationStore) -> None:
    loaded = existing(await store.load("a", limit=10))
    assert len(loaded.messages) == 10


async def go_on(store: FlueConversationStore) -> None:
    loaded = existing(await store.load("a", limit=4))
    loaded.messages += turns(1, first=5)
    await store.save(loaded)


async def read_a_record(store: FlueConversationStore) -> None:
    assert await store.read_record("a") is not None


async def lose_and_list(store: FlueConversationStore) -> None:
    assert len(await store.list_conversations(limit=1)) == 1


async def branch_and_fork_at_an_entry(store: FlueConversationStore) -> None:
    early = existing(await store.load("a", limit=1))
    for _ in range(2):
        early = await store.branch("a", from_entry="early", expected_revision=early.revision)
        assert len(early.messages) == 1
    fork = await store.fork("a", from_entry="early", new_conversation_id="b")
    assert fork.messages == early.messages


WORKS = (load_the_last, go_on, read_a_record, lose_and_list, branch_and_fork_at_an_entry)


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.__name__)
def test_it_reads_as_much_of_a_long_conversation_as_of_a_short_one(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    for count in (20, 400):
        with flue_py.sync.open(":memory:") as flue:
            store = FlueConversationStore(flue)
            asyncio.run(begin(store, count))
            # Another one, that has seen nothing yet.
            store = FlueConversationStore(flue)
            with rows_read(monkeypatch) as found:
                asyncio.run(work(store))
            read.append(sum(found))
    assert read[0] > 0
    assert read[1] == read[0]


def test_a_save_after_a_save_reads_no_record_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        async with flue_py.open(tmp_path / "a.db") as flue:
            store = FlueConversationStore(flue)
            conversation = Conversation(messages=turns(1), conversation_id="a")
            await store.save(conversation)
            with monkeypatch.context() as patch:
                patch.setattr(reading, "current_of", None)
                conversation.messages += turns(1, first=1)
                await store.save(conversation)
            # What somebody else does meanwhile is found out by the write.
            other = FlueConversationStore(flue)
            await (await other.session_for("a")).set_title("A talk")
            conversation.messages += turns(1, first=2)
            await store.save(conversation)
            assert await other.load("a") == await store.load("a")
            loaded = existing(await other.load("a"))
            loaded.messages += turns(1, first=3)
            await other.save(loaded)
            conversation.messages += [ModelRequest(parts=[], metadata={"an object": object()})]
            for _ in range(2):
                await raises(ConversationConflict, store.save(conversation))
            await other.delete("a")
            await raises(ConversationConflict, other.save(loaded))
            assert (await flue.verify()).problems == []

    asyncio.run(go())


def test_what_is_known_of_a_conversation_is_used_for_as_long_as_it_holds(tmp_path: Path) -> None:
    async def go() -> None:
        async with flue_py.open(tmp_path / "a.db") as flue:
            one, other = FlueConversationStore(flue), FlueConversationStore(flue)

            async def agree() -> None:
                listed = await one.list_conversations()
                assert listed == await FlueConversationStore(flue).list_conversations()
                assert [await one.read_record(each.conversation_id) for each in listed] == listed
                for each in listed:
                    # What was handed out is the caller's.
                    each.branches.append("x")
                    each.usage.input_tokens = 99
                    each.scope = "x"
                assert await one.list_conversations() == await FlueConversationStore(flue).list_conversations()

            for name in ("a", "b"):
                waiting = DeferredToolRequests(calls=[ToolCallPart("search", {"q": 1}, "call-1")])
                new = Conversation(messages=turns(2), conversation_id=name, deferred_tool_requests=waiting)
                await one.save(new, scope="one")
            await agree()
            loaded = existing(await other.load("a"))
            loaded.messages += turns(1, first=3)
            await other.save(loaded)
            await agree()
            await other.branch("a", at=1, expected_revision=loaded.revision)
            await agree()
            await (await other.session_for("b")).rewind(turns=1)
            await agree()
            await other.delete("b")
            await other.save(Conversation(messages=turns(1), conversation_id="b"))
            await agree()
            assert (await flue.verify()).problems == []

    asyncio.run(go())
