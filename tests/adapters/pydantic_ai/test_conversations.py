"""The same scenarios over the framework's own store and ours: what is seen has to be the same."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.adapters.needed import needs

needs("pydantic-ai", "pydantic_ai.conversation_store")

from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationEntry, ConversationRecord
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelRequest, ToolCallPart, ToolReturnPart
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RunUsage

import flue_py
from flue_py.adapters.pydantic_ai import FlueConversationStore
from flue_py.errors import CorruptStore
from tests.adapters.pydantic_ai.stores import PLACES, Scenario, Seen, answered, asked, opened, the_same, turns
from tests.checks import raises
from tests.postgres import NewDatabase

STAMP = datetime(2026, 1, 2, tzinfo=UTC)
ODD = ("x" * 3_000, "a\0b", "lone \ud800", "", "sha256:" + "0" * 64, "tab\tand\nline", "bell\x07", "é" * 600)


async def saved(seen: Seen, conversation_id: str, count: int, scope: str | None = None) -> Conversation:
    conversation = Conversation(messages=turns(count), conversation_id=conversation_id, usage=RunUsage(requests=count))
    await seen.do(seen.store.save(conversation, scope=scope))
    return conversation


async def saving(seen: Seen) -> None:
    await seen.look("a")
    conversation = await saved(seen, "a", 2)
    await seen.look("a")
    conversation.messages += turns(1, first=2)
    conversation.usage = RunUsage(input_tokens=7, requests=3, details={"x": 1})
    await seen.do(seen.store.save(conversation))
    await seen.do(seen.store.save(conversation))
    await seen.look("a")


async def nothing_to_say(seen: Seen) -> None:
    empty = Conversation(conversation_id="a")
    await seen.do(seen.store.save(empty, scope=""))
    await seen.look("a")
    empty.messages += turns(1)
    await seen.do(seen.store.save(empty))
    await seen.do(seen.store.branch("a", at=0, expected_revision=empty.revision))
    await seen.look("a")


async def rewriting(seen: Seen) -> None:
    await saved(seen, "a", 3)
    loaded = await seen.do(seen.store.load("a"))
    loaded.messages[3:] = [answered("another answer", 9)]
    await seen.do(seen.store.save(loaded))
    await seen.look("a")
    loaded.messages[:] = [asked("all new", 20)]
    loaded.new_message_index = None
    await seen.do(seen.store.save(loaded))
    await seen.look("a")


async def trimming(seen: Seen) -> None:
    await saved(seen, "a", 4)
    window = await seen.do(seen.store.load("a", limit=3))
    window.messages += turns(1, first=7)
    await seen.do(seen.store.save(window))
    await seen.look("a")
    window = await seen.do(seen.store.load("a", limit=2))
    window.messages[0] = asked("changed", 30)
    await seen.do(seen.store.save(window))
    await seen.look("a")


async def limits(seen: Seen) -> None:
    await saved(seen, "a", 3)
    for limit in (0, 1, 2, 5, 6, 7, 100, -1):
        await seen.do(seen.store.load("a", limit=limit))
        await seen.do(seen.store.load_entries("a", limit=limit))


async def branching(seen: Seen) -> None:
    conversation = await saved(seen, "a", 3)
    revision = conversation.revision
    for at in (4, 2, 0, 6, 7, -1):
        record = await seen.do(seen.store.read_record("a"))
        await seen.do(seen.store.branch("a", at=at, expected_revision=record.revision))
        await seen.look("a")
    await seen.do(seen.store.branch("a", at=1, expected_revision=revision))
    await seen.do(seen.store.branch("a", expected_revision=revision))
    await seen.do(seen.store.branch("nowhere", at=1, expected_revision=None))


async def back_and_forth(seen: Seen) -> None:
    await saved(seen, "a", 3)
    tips = []
    for number, at in enumerate((4, 2, 3)):
        record = await seen.do(seen.store.read_record("a"))
        tips.append(record.head_id)
        branch = await seen.do(seen.store.branch("a", at=at, expected_revision=record.revision))
        branch.messages += turns(1, first=10 + number)
        await seen.do(seen.store.save(branch))
        await seen.look("a")
    for tip in (*tips, *reversed(tips)):
        record = await seen.do(seen.store.read_record("a"))
        await seen.do(seen.store.branch("a", from_entry=tip, expected_revision=record.revision))
        await seen.look("a")
    record = await seen.do(seen.store.read_record("a"))
    await seen.do(seen.store.branch("a", from_entry="nowhere", expected_revision=record.revision))
    await seen.do(seen.store.branch("a", at=1, from_entry=tips[0], expected_revision=record.revision))


async def kept_entries(seen: Seen) -> None:
    """Branch and fork at each entry of a history and of a branch that it left, at others' entries, and at none."""
    answers = ModelRequest(parts=[ToolReturnPart("tool", "x", f"call-{n}", timestamp=STAMP) for n in range(3)])
    for name in ("a", "b"):
        conversation = Conversation(messages=[*turns(2), answers, *turns(2)], conversation_id=name)
        await seen.do(seen.store.save(conversation))
    entries = await seen.do(seen.store.load_entries("a"))
    others = await seen.do(seen.store.load_entries("b"))
    record = await seen.do(seen.store.read_record("a"))
    branch = await seen.do(seen.store.branch("a", at=3, expected_revision=record.revision))
    branch.messages += turns(1, first=10)
    await seen.do(seen.store.save(branch))
    for number, entry in enumerate((*entries, *others, *reversed(entries))):
        record = await seen.do(seen.store.read_record("a"))
        await seen.do(seen.store.branch("a", from_entry=entry.id, expected_revision=record.revision))
        await seen.do(seen.store.fork("a", from_entry=entry.id, new_conversation_id=f"fork {number}"))
        await seen.do(seen.store.fork("a", at=number, new_conversation_id=f"at {number}"))
        await seen.look("a", f"fork {number}", f"at {number}")
    if isinstance(seen.store, FlueConversationStore):
        # The results of several tools are several entries; only the last of them is one of the conversation.
        session = await seen.store.session_for("b")
        inner = [entry.id for entry in await session.get_active_path() if entry.role == "toolResult"]
    else:
        inner = ["nowhere", "nowhere"]
    for each in inner[:2]:
        await raises(UserError, seen.store.fork("b", from_entry=each), match="is not in the history")


async def forking(seen: Seen) -> None:
    await saved(seen, "a", 3, scope="one")
    record = await seen.do(seen.store.read_record("a"))
    entries = await seen.do(seen.store.load_entries("a"))
    await seen.do(seen.store.fork("a", new_conversation_id="whole"))
    await seen.do(seen.store.fork("a", new_conversation_id="start", at=0))
    await seen.do(seen.store.fork("a", new_conversation_id="part", at=3, scope="two"))
    await seen.do(seen.store.fork("a", new_conversation_id="entry", from_entry=entries[1].id, source_scope="one"))
    await seen.do(seen.store.fork("a", new_conversation_id="no", source_scope="two"))
    await seen.do(seen.store.fork("a", new_conversation_id="whole"))
    await seen.do(seen.store.fork("a", new_conversation_id="far", at=9))
    await seen.do(seen.store.fork("nowhere", new_conversation_id="far"))
    part = await seen.do(seen.store.load("part"))
    part.messages += turns(2, first=5)
    await seen.do(seen.store.save(part))
    await seen.do(seen.store.fork("part", new_conversation_id="fork of fork", at=5))
    await seen.do(seen.store.branch("part", at=1, expected_revision=part.revision))
    part = await seen.do(seen.store.load("part"))
    await seen.do(seen.store.branch("part", at=0, expected_revision=part.revision))
    again = await seen.do(seen.store.read_record("part"))
    for tip in again.branches:
        again = await seen.do(seen.store.read_record("part"))
        await seen.do(seen.store.branch("part", from_entry=tip, expected_revision=again.revision))
    await seen.look("a", "whole", "start", "part", "entry", "fork of fork")
    assert record.head_id == entries[-1].id


async def conflicts(seen: Seen) -> None:
    conversation = await saved(seen, "a", 1)
    one, other = await seen.do(seen.store.load("a")), await seen.do(seen.store.load("a"))
    for number, each in enumerate((one, other)):
        each.messages += turns(1, first=5 + number)
        await seen.do(seen.store.save(each))
    await seen.do(seen.store.save(conversation))
    await seen.do(seen.store.save(Conversation(messages=turns(1), conversation_id="a")))
    await seen.do(seen.store.save(Conversation(conversation_id="b", revision="made up")))
    await seen.do(seen.store.branch("a", at=1, expected_revision=other.revision))
    await seen.do(seen.store.delete_record("a", expected_revision="another"))
    await seen.do(seen.store.delete_record("nowhere", expected_revision="another"))
    await seen.look("a", "b")
    await seen.do(seen.store.delete("a"))
    await seen.do(seen.store.save(one))
    await saved(seen, "a", 2)
    await seen.do(seen.store.save(one))
    await seen.look("a")


async def scopes(seen: Seen) -> None:
    for number, scope in enumerate((None, "one", "two", "one", "", *ODD)):
        await saved(seen, f"c{number}", 1, scope)
    for scope in (None, "one", "two", "none", "", *ODD):
        await seen.do(seen.store.list_conversations(scope=scope))
        await seen.do(seen.store.list_conversations(scope=scope, limit=1))
        await seen.do(seen.store.load("c1", scope=scope))
    for limit in (0, 3, 100, -1):
        await seen.do(seen.store.list_conversations(limit=limit))
    loaded = await seen.do(seen.store.load("c1"))
    loaded.messages += turns(1, first=3)
    await seen.do(seen.store.save(loaded, scope="two"))
    await seen.do(seen.store.save(loaded, scope="one"))
    await seen.do(seen.store.branch("c1", at=1, expected_revision=loaded.revision, scope="two"))
    await seen.do(seen.store.delete("c1", scope="two"))
    await seen.do(seen.store.delete("c2", scope="two"))
    await seen.look("c1", "c2")
    await saved(seen, "c2", 1, "elsewhere")
    await seen.look("c2")


async def paused(seen: Seen) -> None:
    waiting = DeferredToolRequests(
        calls=[ToolCallPart("search", {"q": 1}, "call-1", id="x", provider_details={"a": [1]})],
        approvals=[ToolCallPart("delete", '{"all":  true}', "call-2")],
        metadata={"call-1": {"why": ("a", 1), "raw": b"\xff", "lone": "\ud800"}},
    )
    conversation = Conversation(messages=turns(1), conversation_id="a", deferred_tool_requests=waiting)
    await seen.do(seen.store.save(conversation))
    await seen.look("a")
    await seen.do(seen.store.fork("a", new_conversation_id="whole"))
    await seen.do(seen.store.fork("a", new_conversation_id="part", at=1))
    await seen.look("whole", "part")
    conversation.deferred_tool_requests = None
    await seen.do(seen.store.save(conversation))
    await seen.look("a")
    conversation.deferred_tool_requests = waiting
    await seen.do(seen.store.save(conversation))
    await seen.do(seen.store.branch("a", at=2, expected_revision=conversation.revision))
    record = await seen.do(seen.store.read_record("a"))
    await seen.do(seen.store.branch("a", at=1, expected_revision=record.revision))
    await seen.look("a")


async def deleting(seen: Seen) -> None:
    await saved(seen, "a", 3)
    await seen.do(seen.store.fork("a", new_conversation_id="b", at=4))
    fork = await seen.do(seen.store.fork("a", new_conversation_id="c"))
    await seen.do(seen.store.branch("c", at=1, expected_revision=fork.revision))
    entries = await seen.do(seen.store.load_entries("a"))
    loaded = await seen.do(seen.store.load("a"))
    loaded.messages += turns(1, first=8)
    own = await seen.do(seen.store.save(loaded))
    await seen.do(seen.store.delete("a"))
    await seen.do(seen.store.delete("a"))
    for entry in (*entries, *own):
        await seen.do(seen.store.read_entry(entry.id))
        await seen.do(seen.store.read_history(entry.id))
        await seen.do(seen.store.read_history(entry.id, limit=2))
    await seen.look("a", "b", "c")
    await seen.do(seen.store.fork("b", new_conversation_id="d", at=2))
    await seen.do(seen.store.delete("c"))
    await seen.do(seen.store.delete("b"))
    for entry in entries:
        await seen.do(seen.store.read_entry(entry.id))
    await seen.look("b", "c", "d")
    await seen.do(seen.store.delete("d"))
    await seen.look("d")


async def odd_ids(seen: Seen) -> None:
    for each in ODD:
        await saved(seen, each, 1, each)
    for number, each in enumerate(ODD):
        loaded = await seen.do(seen.store.load(each, scope=each))
        loaded.messages += turns(1, first=2)
        await seen.do(seen.store.save(loaded))
        await seen.do(seen.store.fork(each, at=1, new_conversation_id=f"{number}{each}"))
        await seen.do(seen.store.branch(each, at=1, expected_revision=loaded.revision))
    await seen.look(*ODD, *(f"{number}{each}" for number, each in enumerate(ODD)))
    for each in ODD:
        await seen.do(seen.store.delete(each))
    await seen.look(*ODD, *(f"{number}{each}" for number, each in enumerate(ODD)))


async def primitives(seen: Seen) -> None:
    store = seen.store
    entries = [ConversationEntry(id=each or "none", parent_id=None, message=asked("hi")) for each in ODD]
    chain = [entries[0]]
    for entry in entries[1:]:
        chain.append(ConversationEntry(id=entry.id, parent_id=chain[-1].id, message=entry.message))
    record = ConversationRecord(conversation_id="a", head_id=chain[-1].id, branches=[chain[2].id, chain[3].id])
    await seen.do(store.write_record(record, new_entries=chain, expected_revision="none"))
    await seen.do(store.write_record(record, new_entries=chain, expected_revision=None))
    assert await store.read_record("a") == record
    for entry in chain:
        assert await store.read_entry(entry.id) == entry
        await seen.do(store.read_history(entry.id))
        await seen.do(store.read_history(entry.id, limit=2))
    await seen.look("a")
    nowhere = ConversationRecord(conversation_id="b", head_id="nowhere")
    await seen.do(store.write_record(nowhere, expected_revision=None))
    await seen.do(store.read_history("nowhere"))
    await seen.do(store.read_history(None))
    await seen.do(store.read_entry("nowhere"))
    side = ConversationEntry(parent_id=chain[1].id, message=answered("aside"))
    moved = ConversationRecord(conversation_id="a", head_id=chain[0].id, usage=RunUsage(requests=1))
    await seen.do(store.write_record(moved, new_entries=[side], expected_revision=record.revision))
    assert await store.read_record("a") == moved
    await seen.do(store.read_history(side.id))
    await seen.look("a", "b")


SCENARIOS: tuple[Scenario, ...] = (
    saving, nothing_to_say, rewriting, trimming, limits, branching, back_and_forth, kept_entries, forking, conflicts,
    scopes, paused, deleting, odd_ids, primitives,
)  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_scenarios_go_as_with_the_store_of_the_framework(place: str, tmp_path: Path, new_database: NewDatabase) -> None:
    with opened(place, tmp_path, new_database) as store:
        for scenario in SCENARIOS:
            asyncio.run(the_same(store, scenario))
            for record in asyncio.run(store.list_conversations()):
                asyncio.run(store.delete(record.conversation_id))


def test_a_conversation_without_a_scope_is_in_that_of_the_store() -> None:
    async def run() -> None:
        async with flue_py.open(":memory:") as store:
            for scope in ("t1", "t2"):
                mine = FlueConversationStore(store.in_scope(scope))
                await mine.save(Conversation(messages=turns(1), conversation_id=f"of {scope}"))
                again = FlueConversationStore(store.in_scope(scope))
                loaded = await again.load(f"of {scope}")
                loaded.messages += turns(1, first=1)
                await again.save(loaded)
                assert len((await again.load(f"of {scope}")).messages) == 4
                assert [record.conversation_id for record in await again.list_conversations()] == [f"of {scope}"]
            assert await again.read_record("of t1") is None
            assert {info.scope for info in (await store.list_sessions()).sessions} == {"t1", "t2"}

    asyncio.run(run())


def test_a_conversation_that_was_changed_by_other_means_is_named(tmp_path: Path) -> None:
    async def run() -> None:
        async with flue_py.open(tmp_path / "s.db") as store:
            await FlueConversationStore(store).save(Conversation(messages=turns(1), conversation_id="a"))
            with closing(sqlite3.connect(tmp_path / "s.db")) as database:
                database.execute("UPDATE sessions SET title = 'forged'")
                database.commit()
            await raises(CorruptStore, FlueConversationStore(store).list_conversations())

    asyncio.run(run())
