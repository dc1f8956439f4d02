"""Whatever is done in whatever order, by however many holders of copies, a store does what the framework's own does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.needed import needs

needs("pydantic-ai", "pydantic_ai.conversation_store")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RunUsage

import flue_py
from flue_py.adapters.pydantic_ai import FlueConversationStore
from tests.adapters.pydantic_ai.stores import Seen, answered, the_same, turns
from tests.effort import examples
from tests.postgres import NewDatabase

Step = tuple[str, str, int, int]
NAMES = ("a", "b", "c\ud800")
SCOPES = (None, "one", "")

STEPS = st.tuples(
    st.sampled_from(
        (
            "load", "load a window", "begin", "go on", "go on", "pause", "rewrite", "rewrite all", "branch", "branch",
            "branch to entry", "fork", "fork at entry", "delete", "delete in scope", "list",
        )
    ),
    # Mostly one holder of one conversation: what is done has to build on what was done to lead anywhere.
    st.sampled_from(("a", "a", "a", *NAMES)),
    st.integers(0, 5),
    st.sampled_from((0, 0, 0, 1, 2)),
)  # fmt: skip


class Walk:
    """The steps, and the copies that their holders have: one for each name and number."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.store = seen.store
        self.copies: dict[tuple[str, int], Conversation] = {}
        self.done = 0

    async def step(self, what: str, name: str, number: int, holder: int) -> None:
        self.done += 1
        await getattr(self, "_" + what.replace(" ", "_"))(name, number, holder)
        await self.seen.do(self.store.load(name))
        await self.seen.do(self.store.read_record(name))

    async def _keep(self, name: str, holder: int, call: Awaitable[Any]) -> None:
        found = await self.seen.do(call)
        if isinstance(found, Conversation):
            self.copies[name, holder] = found

    async def _save(self, name: str, holder: int, change: Callable[[Conversation], None], scope: str | None) -> None:
        copy = self.copies.get((name, holder)) or await self.store.load(name)
        if copy is not None:
            self.copies[name, holder] = copy
            change(copy)
            copy.usage = RunUsage(requests=self.done)
            await self.seen.do(self.store.save(copy, scope=scope))

    async def _load(self, name: str, number: int, holder: int) -> None:
        await self._keep(name, holder, self.store.load(name))

    async def _load_a_window(self, name: str, number: int, holder: int) -> None:
        await self._keep(name, holder, self.store.load(name, limit=number, scope=SCOPES[holder]))

    async def _begin(self, name: str, number: int, holder: int) -> None:
        self.copies[name, holder] = Conversation(conversation_id=name)
        await self._save(name, holder, lambda copy: copy.messages.extend(turns(number)), SCOPES[number % 3])

    async def _go_on(self, name: str, number: int, holder: int) -> None:
        more = turns(1, first=10 * self.done)[: 1 + number % 2]
        await self._save(name, holder, lambda copy: copy.messages.extend(more), None)

    async def _pause(self, name: str, number: int, holder: int) -> None:
        waiting = DeferredToolRequests(calls=[ToolCallPart("tool", {"n": number}, "call")]) if number else None
        await self._save(name, holder, lambda copy: setattr(copy, "deferred_tool_requests", waiting), SCOPES[holder])

    async def _rewrite(self, name: str, number: int, holder: int) -> None:
        def change(copy: Conversation) -> None:
            copy.messages[number:] = [answered("rewritten", self.done)]

        await self._save(name, holder, change, None)

    async def _rewrite_all(self, name: str, number: int, holder: int) -> None:
        def change(copy: Conversation) -> None:
            copy.messages[:number] = turns(1, first=50 + number)
            copy.new_message_index = None

        await self._save(name, holder, change, None)

    async def _branch(self, name: str, number: int, holder: int) -> None:
        copy = self.copies.get((name, holder)) or await self.store.load(name)
        revision = None if copy is None else copy.revision
        await self._keep(name, holder, self.store.branch(name, at=number, expected_revision=revision))

    async def _entry(self, name: str, number: int) -> str:
        """Return an entry of a conversation: of a branch it has left, or of its history."""
        record = await self.store.read_record(name)
        if record is not None and record.branches and number % 2:
            return record.branches[number % len(record.branches)]
        entries = await self.store.load_entries(name) or []
        return entries[number % len(entries)].id if entries else "nowhere"

    async def _branch_to_entry(self, name: str, number: int, holder: int) -> None:
        record = await self.store.read_record(name)
        revision = None if record is None else record.revision
        entry = await self._entry(name, number)
        await self._keep(name, holder, self.store.branch(name, from_entry=entry, expected_revision=revision))

    async def _fork(self, name: str, number: int, holder: int) -> None:
        new, at = NAMES[number % 3], None if number == 5 else number
        await self._keep(new, holder, self.store.fork(name, at=at, new_conversation_id=new))

    async def _fork_at_entry(self, name: str, number: int, holder: int) -> None:
        new, entry = NAMES[number % 3], await self._entry(name, number)
        call = self.store.fork(name, from_entry=entry, new_conversation_id=new, scope=SCOPES[holder])
        await self._keep(new, holder, call)

    async def _delete(self, name: str, number: int, holder: int) -> None:
        await self.seen.do(self.store.delete(name))

    async def _delete_in_scope(self, name: str, number: int, holder: int) -> None:
        await self.seen.do(self.store.delete(name, scope=SCOPES[holder]))

    async def _list(self, name: str, number: int, holder: int) -> None:
        await self.seen.do(self.store.list_conversations(scope=SCOPES[holder], limit=number))


def scenario_of(steps: list[Step]) -> Callable[[Seen], Awaitable[None]]:
    async def scenario(seen: Seen) -> None:
        walk = Walk(seen)
        await walk.step("begin", "a", 3, 0)
        for step in steps:
            await walk.step(*step)
        await seen.look(*NAMES)

    return scenario


@examples(150)
@given(st.lists(STEPS, max_size=25))
def test_steps_in_any_order_go_as_with_the_store_of_the_framework(steps: list[Step]) -> None:
    with flue_py.sync.open(":memory:") as flue:
        asyncio.run(the_same(FlueConversationStore(flue), scenario_of(steps)))
        assert flue.verify().problems == []


@pytest.mark.parametrize("place", ["file", "postgres"])
def test_many_steps_on_one_database(place: str, tmp_path: Path, new_database: NewDatabase) -> None:
    found: list[list[Step]] = []

    @settings(
        max_examples=6,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(st.lists(STEPS, min_size=10, max_size=15))
    def collect(steps: list[Step]) -> None:
        found.append(steps)

    collect()
    target = str(tmp_path / "a.db") if place == "file" else new_database()
    with flue_py.sync.open(target) as flue:
        for steps in found:
            asyncio.run(the_same(FlueConversationStore(flue), scenario_of(steps)))
            for session in flue.list_sessions(limit=100).sessions:
                flue.delete_session_tree(session.id)
        assert flue.verify().problems == []
