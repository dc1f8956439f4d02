"""Two writers of one conversation, on two connections and in two processes: one of them wins, and the other is told."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.adapters.needed import needs

needs("pydantic-ai", "pydantic_ai.conversation_store")

from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.exceptions import UserError
from pydantic_ai.usage import RunUsage

import flue_py
from flue_py.adapters.pydantic_ai import FlueConversationStore
from flue_py.errors import MissingExtra, SessionNotFound, StoreClosed
from tests.adapters.pydantic_ai.stores import turns
from tests.checks import raises
from tests.postgres import NewDatabase
from tests.values import existing

Change = Callable[[FlueConversationStore, Conversation], Awaitable[object]]

AT_ONCE = 6


async def save(store: FlueConversationStore, loaded: Conversation) -> None:
    loaded.messages += turns(1, first=9)
    await store.save(loaded)


async def save_usage_only(store: FlueConversationStore, loaded: Conversation) -> None:
    loaded.usage = RunUsage(requests=7)
    await store.save(loaded)


async def branch(store: FlueConversationStore, loaded: Conversation) -> None:
    await store.branch("a", at=1, expected_revision=loaded.revision)


async def delete(store: FlueConversationStore, loaded: Conversation) -> None:
    assert loaded.revision is not None
    await store.delete_record("a", expected_revision=loaded.revision)


CHANGES = (save, save_usage_only, branch, delete)


def places(tmp_path: Path, new_database: NewDatabase, place: str) -> str:
    return str(tmp_path / "a.db") if place == "file" else new_database()


async def loaded_by(store: FlueConversationStore) -> Conversation:
    return existing(await store.load("a"))


@pytest.mark.parametrize("place", ["file", "postgres"])
def test_of_two_connections_the_second_change_is_a_conflict(
    place: str, tmp_path: Path, new_database: NewDatabase
) -> None:
    target = places(tmp_path, new_database, place)

    async def race(stores: Sequence[FlueConversationStore], first: Change, second: Change) -> bool:
        await stores[0].save(Conversation(messages=turns(2), conversation_id="a"))
        copies = await loaded_by(stores[0]), await loaded_by(stores[1])
        await first(stores[0], copies[0])
        left = await stores[1].load("a")
        # To branch what is gone is refused by the framework itself.
        with pytest.raises(UserError if (first, second) == (delete, branch) else ConversationConflict):
            await second(stores[1], copies[1])
        same = await stores[0].load("a") == left == await stores[1].load("a")
        await stores[0].delete("a")
        return same

    async def races() -> None:
        async with flue_py.open(target) as one, flue_py.open(target) as other:
            stores = FlueConversationStore(one), FlueConversationStore(other)
            pairs = [*product(CHANGES, repeat=2)]
            assert [pair for pair in pairs if not await race(stores, *pair)] == []
            assert (await one.verify()).problems == []

    asyncio.run(races())


@pytest.mark.parametrize("place", ["file", "postgres"])
def test_of_many_at_once_one_wins(place: str, tmp_path: Path, new_database: NewDatabase) -> None:
    target = places(tmp_path, new_database, place)

    async def race(store: FlueConversationStore, change: Change) -> None:
        new = [Conversation(messages=turns(2), conversation_id="a") for _ in range(AT_ONCE)]
        made = await asyncio.gather(*map(store.save, new), return_exceptions=True)
        assert sum(isinstance(each, ConversationConflict) for each in made) == AT_ONCE - 1
        copies = [await loaded_by(store) for _ in range(AT_ONCE)]
        results = await asyncio.gather(*(change(store, each) for each in copies), return_exceptions=True)
        lost = [each for each in results if each is not None]
        assert [type(each) for each in lost] == [ConversationConflict] * (AT_ONCE - 1)
        await store.delete("a")

    async def races() -> None:
        async with flue_py.open(target) as flue:
            for change in (save, branch, delete):
                await race(FlueConversationStore(flue), change)
            assert (await flue.verify()).problems == []

    asyncio.run(races())


PROGRAM = """
import asyncio, sys
from flue_py.adapters.pydantic_ai import FlueConversationStore
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart
from pydantic_ai.exceptions import UserError
from pydantic_ai.usage import RequestUsage

async def main(target, number):
    store = FlueConversationStore.open(target)
    conflicts = 0
    for turn in range(5):
        while True:
            conversation = await store.load("a")
            used = RequestUsage(input_tokens=1)
            answer = ModelResponse(parts=[TextPart(f"{number} {turn}")], usage=used, run_id=f"{number} {turn}")
            conversation.messages += [ModelRequest.user_text_prompt(f"{number} {turn}"), answer]
            try:
                await store.save(conversation)
                break
            except ConversationConflict:
                conflicts += 1
    await store.close()
    print(conflicts)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("place", ["file", "postgres"])
def test_two_processes_lose_no_turn(place: str, tmp_path: Path, new_database: NewDatabase) -> None:
    target = places(tmp_path, new_database, place)
    store = FlueConversationStore.open(target)
    asyncio.run(store.save(Conversation(messages=turns(1), conversation_id="a")))
    command = [sys.executable, "-W", "error", "-c", PROGRAM, target]
    others = [subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True) for number in (1, 2)]
    conflicts = [int(other.communicate()[0]) for other in others]
    assert [other.returncode for other in others] == [0, 0]

    async def look() -> None:
        loaded = await loaded_by(store)
        said = [message.parts[0].content for message in loaded.messages[2::2]]
        assert sorted(said) == [f"{number} {turn}" for number in (1, 2) for turn in range(5)]
        assert [each for each in said if each.startswith("1")] == [f"1 {turn}" for turn in range(5)]
        await store.close()

    asyncio.run(look())
    with flue_py.sync.open(target) as flue:
        # Each lost run has another time, so it is a call of its own: it was paid for.
        assert flue.usage("a").total.calls == 11 + sum(conflicts)
        assert flue.verify().problems == []


RIVAL = """
import asyncio, sys
from flue_py.adapters.pydantic_ai import FlueConversationStore
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.exceptions import UserError

async def change(store, name, what):
    seen = (await store.load(name)).revision
    print("loaded", flush=True)
    sys.stdin.readline()
    try:
        if what == "branch":
            await store.branch(name, at=1, expected_revision=seen)
        else:
            await store.delete_record(name, expected_revision=seen)
        return "won"
    except ConversationConflict:
        return "conflict"
    except UserError as error:
        return "gone" if "is not in the store" in str(error) else error

async def main(target, *changes):
    async with FlueConversationStore.open(target) as store:
        for name, what in zip("abc", changes):
            print(await change(store, name, what), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("place", ["file", "postgres"])
def test_of_two_processes_that_have_seen_the_same_one_wins(
    place: str, tmp_path: Path, new_database: NewDatabase
) -> None:
    target = places(tmp_path, new_database, place)
    changes = {"a": ("branch", "branch"), "b": ("delete", "delete"), "c": ("branch", "delete")}

    async def stored() -> None:
        async with FlueConversationStore.open(target) as store:
            for name in changes:
                await store.save(Conversation(messages=turns(2), conversation_id=name))

    asyncio.run(stored())
    command = [sys.executable, "-W", "error", "-c", RIVAL, target]
    rivals = [
        subprocess.Popen([*command, *own], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        for own in zip(*changes.values(), strict=True)
    ]
    told = []
    for _ in changes:
        assert [rival.stdout and rival.stdout.readline() for rival in rivals] == ["loaded\n", "loaded\n"]
        for rival in rivals:
            assert rival.stdin is not None
            rival.stdin.write("go\n")
        told.append([existing(rival.stdout).readline().strip() for rival in rivals])
    assert [rival.communicate()[0] or rival.returncode for rival in rivals] == [0, 0]

    async def look() -> None:
        async with FlueConversationStore.open(target) as store:
            for (name, own), outcome in zip(changes.items(), told, strict=True):
                # To branch what is gone is refused by the framework itself, if it looks after the other has deleted it.
                assert sorted(outcome) in (["conflict", "won"], ["gone", "won"])
                winner = own[outcome.index("won")]
                assert "gone" not in outcome or winner == "delete"
                left = await store.load(name)
                assert (None if left is None else len(left.messages)) == (None if winner == "delete" else 1)

    asyncio.run(look())
    with flue_py.sync.open(target) as flue:
        assert flue.verify().problems == []


def test_nothing_imports_a_framework_that_was_not_asked_for(tmp_path: Path) -> None:
    program = "import sys, flue_py, flue_py.cli, flue_py.adapters.common; print('pydantic_ai' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_a_missing_framework_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("flue_py.adapters.pydantic_ai")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pydantic_ai.conversation_store", None)
    pair = [SimpleNamespace(name=f"pydantic-ai-{name}", version="1.2") for name in ("harness", "slim")]
    for installed, words in ((pair, r"ai-slim 1\.2 with pydantic-ai-harness 1\.2: "), ([], "an optional dependency")):
        monkeypatch.setattr("flue_py.adapters.common.distributions", partial(iter, installed))
        with pytest.raises(MissingExtra, match=rf"{words}.*'flue-py\[pydantic-ai\]'"):
            __import__("flue_py.adapters.pydantic_ai")


@pytest.mark.parametrize("place", ["file", "postgres"])
def test_the_session_of_a_conversation_is_used_where_its_store_is(
    place: str, tmp_path: Path, new_database: NewDatabase
) -> None:
    target = places(tmp_path, new_database, place)

    async def go() -> None:
        async with FlueConversationStore.open(target) as store:
            await store.save(Conversation(messages=turns(2), conversation_id="a"), scope="one")
            for name, scope in (("b", None), ("a", "two")):
                await raises(SessionNotFound, store.session_for(name, scope=scope), match="no conversation")
            session = await store.session_for("a", scope="one")
            assert (session.id, session.key, session.info.scope) == ("a", "a", "one")
            await session.rewind(turns=1)
            assert (await loaded_by(store)).messages == turns(1)
            await session.undo()
        await raises(StoreClosed, session.turns())
        await raises(StoreClosed, store.load("a"))
        async with flue_py.open(target) as flue:
            again = FlueConversationStore(flue)
            await (await again.session_for("a")).rewind(turns=1)
            assert (await loaded_by(again)).messages == turns(1)

    asyncio.run(go())


def test_labels_pins_and_titles_are_no_conflict_and_going_back_is(tmp_path: Path) -> None:
    async def go() -> None:
        async with flue_py.open(tmp_path / "a.db") as flue:
            store = FlueConversationStore(flue)
            await store.save(Conversation(messages=turns(1), conversation_id="a", usage=RunUsage(requests=1)))
            first = await store.read_record("a")
            copies = [await loaded_by(store) for _ in range(2)]
            session = await store.session_for("a")
            assert session.leaf_id is not None
            await session.set_title("A talk")
            await session.marks.set_label(session.leaf_id, "here")
            await session.marks.pin(session.leaf_id)
            copies[0].messages += turns(1, first=1)
            copies[0].usage = RunUsage(requests=2)
            await store.save(copies[0])
            await session.refresh()
            await session.undo()
            # The record is that of the leaf which is there again: with its usage, and its revision.
            assert await store.read_record("a") == first
            await raises(ConversationConflict, store.save(copies[0]))
            copies[1].messages += turns(1, first=2)
            await store.save(copies[1])
            assert (await loaded_by(store)).messages == [*turns(1), *turns(1, first=2)]
            assert (await flue.verify()).problems == []

    asyncio.run(go())


def test_a_fork_made_by_hand_is_a_conversation_of_its_own(tmp_path: Path) -> None:
    async def go() -> None:
        async with flue_py.open(tmp_path / "a.db") as flue:
            store = FlueConversationStore(flue)
            await store.save(Conversation(messages=turns(2), conversation_id="a"))
            session = await store.session_for("a")
            fork = await session.fork(key="by hand")
            loaded = existing(await store.load("by hand"))
            loaded.messages += turns(1, first=5)
            await store.save(loaded)
            assert (await store.load(fork.id, limit=2)) == await store.load("by hand", limit=2)
            assert (await loaded_by(store)).messages == turns(2)
            await store.delete("a")
            again = existing(await store.load("by hand"))
            assert again.messages == loaded.messages

    asyncio.run(go())
