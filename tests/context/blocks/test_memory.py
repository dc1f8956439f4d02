"""What a model is told of memories."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flue_py
import flue_py.sync
from flue_py import JsonObject
from flue_py.agents.conversation import Conversation
from flue_py.context.blocks import MEMORY_HEADER, MOST_MEMORY_CHARS, LocalMemory, memory_text
from flue_py.errors import InvalidArgument
from tests.postgres import NewDatabase
from tests.sessions.talk import assistant
from tests.tables import inputs
from tests.values import existing


@dataclass(frozen=True)
class Fact:
    """A fact that is remembered."""

    type: str
    name: str
    body: str


def test_memories_stand_in_order_of_type_and_name_under_the_header() -> None:
    found = memory_text(
        [Fact("user", "b", "two"), Fact("feedback", "z", "one"), Fact("user", "a", "three\nlines\r\nof it ")]
    )
    assert found.text == (
        "MEMORY — facts recalled from prior sessions:\n"
        "[feedback] z: one\n"
        "[user] a: three\n  lines\n  of it\n"
        "[user] b: two"
    )
    assert [fact.name for fact in found.told] == ["z", "a", "b"]
    assert found.dropped == ()


def test_without_memories_nothing_is_told() -> None:
    assert memory_text([]).text == ""


def test_of_what_does_not_fit_the_name_stays() -> None:
    assert MOST_MEMORY_CHARS == 8_000
    large, small = Fact("a", "large", "x" * 8_000), Fact("b", "small", "y" * 7_900)
    last = Fact("c", "last", "z" * 100)
    found = memory_text([last, small, large])
    assert found.text == f"{MEMORY_HEADER}\n[a] large\n[b] small: {small.body}\n[c] last"
    assert (found.told, found.dropped) == ((small,), (large, last))
    assert memory_text([large]).text == f"{MEMORY_HEADER}\n[a] large"


def test_no_memory_passes_for_another_or_acts_on_a_terminal() -> None:
    found = memory_text([Fact("user", "a", "x\n[user] b: y\x1b[2J\u2028[user] c: z")])
    assert found.text.split("\n") == [MEMORY_HEADER, "[user] a: x", "  [user] b: y\ufffd[2J", "  [user] c: z"]


@inputs("most", [0, len(MEMORY_HEADER) - 1, True, "8000", None])
def test_a_limit_without_room_for_the_header_is_refused(most: object) -> None:
    with pytest.raises(InvalidArgument, match="most: "):
        memory_text([], most)  # type: ignore[arg-type]


@given(
    st.lists(st.builds(Fact, st.sampled_from(["user", "project"]), st.text(max_size=20), st.text(max_size=200))),
    st.integers(len(MEMORY_HEADER), 2_000),
)
def test_every_memory_is_told_or_dropped_and_the_limit_is_kept(facts: list[Fact], most: int) -> None:
    found = memory_text(facts, most)
    assert len(found.text) <= most
    assert sorted(map(repr, (*found.told, *found.dropped))) == sorted(map(repr, facts))
    assert memory_text(facts[::-1], most).text == found.text or len({(f.type, f.name) for f in facts}) < len(facts)
    assert found.text.startswith(MEMORY_HEADER) == bool(facts)


# -- The block about what is remembered in a store --------------------------------------------------------------------


HEADER = "MEMORY — facts recalled from prior sessions:"


async def test_what_is_remembered_is_told_and_told_again_when_it_changes() -> None:
    seen: list[list[JsonObject]] = []

    async def model(context: list[JsonObject]) -> list[JsonObject]:
        seen.append(context)
        return [assistant("done")]

    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        talk = Conversation(store, session, blocks=[LocalMemory(store)])
        await talk.take_turn("one", model)
        await store.remember("tabs", "The user prefers tabs.")
        await store.remember("other", "Theirs.", space="agents/other")
        await talk.take_turn("two", model)
        await talk.take_turn("three", model)
        await store.forget("tabs")
        await talk.take_turn("four", model)
        assert talk.block_failures == ()
        assert [len(context) for context in seen] == [1, 4, 6, 9]
        assert seen[1][2]["content"] == [{"type": "text", "text": f"{HEADER}\n[user] tabs: The user prefers tabs."}]
        assert "no longer holds" in str(seen[3][7]["content"])
        assert (await store.verify()).problems == []


async def test_the_memory_of_an_agent_and_a_project_is_that_of_the_store() -> None:
    async with flue_py.open(":memory:") as store:
        await store.remember("a", "for all", space="agents/x")
        block = LocalMemory(store, space="agents/x", project="/work")
        said = existing(await block.read())
        assert said.text == f"{HEADER}\n[user] a: for all"
        await store.remember("b", "for this", space="agents/x", project="/work")
        said = existing(await block.read())
        assert said.text == f"{HEADER}\n[user] b: for this"
        assert await LocalMemory(store, space="agents/x", scope="elsewhere").read() is None


async def test_what_has_no_room_is_named() -> None:
    async with flue_py.open(":memory:") as store:
        await store.remember("long", "x" * 500)
        await store.remember("short", "y")
        block = LocalMemory(store, most=100)
        said = existing(await block.read())
        assert said.text == f"{HEADER}\n[user] long\n[user] short: y"
        assert block.dropped == ("long",)
        await store.forget("long")
        await block.read()
        assert block.dropped == ()


async def test_a_failure_of_the_store_breaks_no_turn() -> None:
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        async with flue_py.open(":memory:") as other:
            block = LocalMemory(other)
        done = await session.append_blocks([block, LocalMemoryNamed(store)])
        assert [failure.reason.partition(":")[0] for failure in done.failures] == ["StoreClosed"]
        wrong: Any
        for wrong in (None, store.backend, 5):
            with pytest.raises(InvalidArgument, match="store"):
                LocalMemory(wrong)
        with pytest.raises(InvalidArgument, match="most"):
            LocalMemory(store, most=3)
        done = await session.append_blocks([LocalMemory(store, space="nowhere")])
        assert "space" in done.failures[0].reason


class LocalMemoryNamed(LocalMemory):
    name = "second"


@inputs("threads", [None, True])
def test_the_twin_of_a_store_is_asked_too(tmp_path: Path, threads: bool | None) -> None:
    with flue_py.sync.open(tmp_path / "s.db", threads=threads) as store:
        check(store)


def test_a_twin_on_postgresql_is_asked_too(new_store_database: NewDatabase) -> None:
    with flue_py.sync.open(new_store_database()) as store:
        check(store)


def check(store: flue_py.sync.Store) -> None:
    store.remember("tabs", "The user prefers tabs.")
    talk = flue_py.sync.Conversation(store, store.create_session(), blocks=[LocalMemory(store)])
    talk.take_turn("one", lambda context: [assistant(f"{len(context)}")])
    assert talk.block_failures == ()
    assert talk.last() == "2"
    assert store.verify().problems == []
