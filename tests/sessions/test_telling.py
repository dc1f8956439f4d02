"""Blocks: appended where they have changed, told again where a context no longer shows them, and never in the way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio

import flue_py
import flue_py.sync
from flue_py import JsonObject, Session, Store
from flue_py.context.blocks import BlockFailure, BlocksAppended, BlockText, BlockTold, RuntimeEnvironment
from flue_py.errors import ContextOverflow, IdempotencyConflict, InvalidArgument, LeafConflict
from flue_py.runtime.conversation import Conversation
from tests.context.blocks.blocks import Clock, Fails, Keeps, Says
from tests.sessions.guarded import guard_of, summary
from tests.sessions.guarded import talk as talk_until_due
from tests.sessions.talk import assistant, say, user
from tests.tables import inputs

pytestmark = pytest.mark.anyio


def names(done: BlocksAppended) -> list[str]:
    return [told.name for told in done.told]


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


async def shown(session: Session) -> list[str]:
    """Return the texts of the context."""
    return [text_of(message["content"]) for message in await session.build_context()]


async def test_blocks_are_one_append_of_custom_messages_and_stay_below_what_is_said_later(session: Session) -> None:
    await session.append_message(user("hello"))
    done = await session.append_blocks([Says("one", "1"), Says("two", "2", "same")])
    assert done.appended is not None
    assert done.appended.entry_ids == tuple(told.entry_id for told in done.told)
    assert names(done) == ["one", "two"]
    assert session.leaf_id == done.told[1].entry_id
    one, two = [await session.get_entry(told.entry_id) for told in done.told]
    assert one is not None
    assert two is not None
    assert (one.kind, one.revision) == ("custom_message", two.revision)
    assert {**one.fields, "details": None} == {"customType": "block:one", "content": "1", "details": None}
    assert len(two.fields["details"]["same"]) == 32  # type: ignore[index, call-overload, arg-type]
    await session.append_message(user("go on"))
    assert await shown(session) == ["hello", "1", "2", "go on"]
    assert [entry.fields["content"] for entry in await session.turns()] == ["hello", "go on"]


async def test_nothing_is_written_while_nothing_changes(session: Session) -> None:
    one, two = Says("one", "1"), Says("two", "12:00", "today")
    await session.append_blocks([one, two])
    revision = session.revision
    two.text = "12:01"
    done = await session.append_blocks([one, two])
    assert done == BlocksAppended((), ("one", "two"), ())
    assert (await session.refresh()).revision == revision
    assert await session.append_blocks([]) == BlocksAppended()
    two.same = "tomorrow"
    done = await session.append_blocks([one, two])
    assert (names(done), done.unchanged) == (["two"], ("one",))
    assert await shown(session) == ["1", "12:00", "12:01"]
    # What it said first is now what it said before last.
    two.same = "today"
    assert names(await session.append_blocks([one, two])) == ["two"]


async def test_a_block_that_falls_silent_is_withdrawn_once(session: Session) -> None:
    one = Says("one", None)
    assert await session.append_blocks([one]) == BlocksAppended((), ("one",))
    one.text = "1"
    await session.append_blocks([one])
    for silence in (None, "", "  \n"):
        one.text = silence
        done = await session.append_blocks([one])
        if silence is None:
            assert [told.is_withdrawn for told in done.told] == [True]
        else:
            assert done == BlocksAppended((), ("one",))
    assert await shown(session) == ["1", "[The block 'one' above no longer holds: there is nothing of it now.]"]
    one.text = "1"
    assert names(await session.append_blocks([one])) == ["one"]


async def test_what_a_compaction_or_an_exclusion_took_away_is_told_again(session: Session) -> None:
    blocks = [Says("one", "1"), Says("two", "2")]
    first = await session.append_blocks(blocks)
    said = await session.append_message(user("go"))
    await session.append_compaction("before", first_kept_entry_id=said.entry_id, tokens_before=9)
    second = await session.append_blocks(blocks)
    assert names(second) == ["one", "two"]
    assert await shown(session) == ["[Context Summary]\n\nbefore", "go", "1", "2"]
    await session.marks.exclude(second.told[0].entry_id)
    assert names(await session.append_blocks(blocks)) == ["one"]
    await session.marks.exclude(second.told[1].entry_id)
    assert names(await session.append_blocks(blocks)) == ["two"]
    assert names(await session.append_blocks(blocks)) == []
    # Back on the path to the first ones they are shown.
    await session.move_leaf(first.told[1].entry_id)
    assert names(await session.append_blocks(blocks)) == []


async def test_a_pinned_block_outlives_a_compaction(session: Session) -> None:
    blocks = [Says("one", "1")]
    first = await session.append_blocks(blocks)
    await session.marks.pin(first.told[0].entry_id)
    said = await session.append_message(user("go"))
    await session.append_compaction("before", first_kept_entry_id=said.entry_id, tokens_before=9)
    assert names(await session.append_blocks(blocks)) == []
    await session.append_blocks([Says("one", "new")])
    assert names(await session.append_blocks(blocks)) == ["one"]


async def test_a_fork_has_been_told_what_it_inherits(session: Session) -> None:
    blocks = [Says("one", "1")]
    await session.append_blocks(blocks)
    fork = await session.fork()
    assert names(await fork.append_blocks(blocks)) == []
    assert names(await fork.append_blocks([Says("one", "2")])) == ["one"]
    assert names(await session.append_blocks(blocks)) == []


async def test_a_block_that_fails_breaks_nothing_and_says_why(session: Session) -> None:
    one = Says("one", "1")
    await session.append_blocks([one])
    broken: list[Any] = [
        Fails("raises", OSError("no\nsuch \x1b[2Jdisk")),
        Fails("late"),
        Fails("timeout", TimeoutError()),
        Says("long", "x" * 100_001),
        Says("odd", 5),  # type: ignore[arg-type]
    ]
    one.text = "2"
    done = await session.append_blocks([broken[0], one, *broken[1:]], patience=0.01)
    assert names(done) == ["one"]
    assert {failure.name: failure.reason for failure in done.failures} == {
        "raises": "OSError: no\ufffdsuch \ufffd[2Jdisk",
        "late": "gave no answer within 0.01 seconds",
        "timeout": "TimeoutError",
        "long": "its text has 100,001 characters; at most 100,000 are told",
        "odd": "read() returned BlockText(text=5, same=None), and not a BlockText",
    }
    assert str(done.failures[0]).startswith("block 'raises', read: OSError")
    # What it said before stands: it may hold still.
    done = await session.append_blocks([Fails("one", ValueError())])
    assert done == BlocksAppended((), (), (BlockFailure("one", "ValueError"),))
    assert await shown(session) == ["1", "2"]


async def test_plain_functions_may_read_too(session: Session) -> None:
    class Plain:
        name = "plain"

        def read(self) -> BlockText:
            return BlockText("here")

    assert names(await session.append_blocks([Plain()])) == ["plain"]


async def test_what_cannot_be_encoded_is_told_all_the_same(session: Session) -> None:
    blocks = [Says("one", "\ud800 and \0", "\udfff")]
    assert names(await session.append_blocks(blocks)) == ["one"]
    assert names(await session.append_blocks(blocks)) == []


async def test_what_is_not_a_block_is_refused(session: Session) -> None:
    wrong: Any
    for wrong in (
        None,
        5,
        "text",
        [5],
        [Says],
        [object()],
        [Says("No Name", "x")],
        [Says("", "x")],
        [Says("a\n", "x")],
    ):
        with pytest.raises(InvalidArgument, match="blocks"):
            await session.append_blocks(wrong)
    with pytest.raises(InvalidArgument, match="two of the name 'one'"):
        await session.append_blocks([Says("one", "1"), Says("one", "2")])
    for wrong in (-1, True, float("nan"), float("inf"), "1"):
        with pytest.raises(InvalidArgument, match="patience"):
            await session.append_blocks([], patience=wrong)
    with pytest.raises(InvalidArgument, match="on_conflict"):
        await session.append_blocks([], on_conflict="x")  # type: ignore[arg-type]
    assert session.leaf_id is None


async def test_another_writer_is_noticed_and_can_be_gone_along_with(session: Session, store: Store) -> None:
    await session.append_message(user("a"))
    other = await store.get_session(session.id)
    assert other is not None
    await other.append_blocks([Says("one", "1")])
    with pytest.raises(LeafConflict):
        await session.append_blocks([Says("one", "1")])
    # Below what is stored it has been told already.
    done = await session.append_blocks([Says("one", "1")], on_conflict="rebase")
    assert done.unchanged == ("one",)
    branch = await session.append_blocks([Says("one", "2")], on_conflict="branch")
    assert branch.appended is not None
    assert branch.appended.on_branch
    await session.refresh()
    with pytest.raises(LeafConflict):
        await session.append_blocks([], expected_leaf=None)


async def test_a_retry_returns_what_was_told_first(session: Session) -> None:
    one = Says("one", "1")
    first = await session.append_blocks([one], idempotency_key="k")
    one.text = "2"
    again = await session.append_blocks([one], idempotency_key="k")
    assert again.told == first.told
    assert again.appended is not None
    assert again.appended.replayed
    assert await shown(session) == ["1"]
    one.text = None
    withdrawn = await session.append_blocks([one], idempotency_key="w")
    assert (await session.append_blocks([one], idempotency_key="w")).told == withdrawn.told
    assert withdrawn.told == (BlockTold("one", withdrawn.told[0].entry_id, is_withdrawn=True),)
    await session.append_message(user("x"), idempotency_key="m")
    with pytest.raises(IdempotencyConflict):
        await session.append_blocks([one], idempotency_key="m")


async def test_only_the_context_is_read(session: Session, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        await session.append_message(user(f"{number}"))
    kept = (await session.append_message(user("kept"))).entry_id
    await session.append_compaction("s", first_kept_entry_id=kept, tokens_before=9)
    reads: list[int] = []
    read_context = store.backend.read_context

    async def counted(*args: Any, **kwargs: Any) -> Any:
        read = await read_context(*args, **kwargs)
        reads.append(len(read.entries or ()))
        return read

    monkeypatch.setattr(store.backend, "read_context", counted)
    monkeypatch.setattr(store.backend, "read_path", None)
    await session.append_blocks([Says("one", "1")])
    assert max(reads) <= 2


async def test_who_is_cancelled_while_blocks_are_read_has_told_nothing(session: Session) -> None:
    with anyio.move_on_after(0.01) as scope:
        await session.append_blocks([Says("one", "1"), Fails("late")])
    assert scope.cancelled_caught
    assert session.leaf_id is None
    assert await session.build_context() == []


async def test_a_block_may_ask_the_session_that_it_is_for(session: Session) -> None:
    class Counts:
        name = "counts"

        async def read(self) -> BlockText:
            return BlockText(f"{len(await session.get_tree())} entries")

    await session.append_message(user("a"))
    await session.append_blocks([Counts()])
    assert await shown(session) == ["a", "1 entries"]


@inputs("threads", [None, True])
def test_the_twin_blocks(tmp_path: Path, threads: bool | None) -> None:
    with flue_py.sync.open(tmp_path / "s.db", threads=threads) as store:
        session = store.create_session()
        clock = Clock()
        blocks = [RuntimeEnvironment(cwd="/w", clock=clock), Fails("late"), Says("one", "1")]
        done = session.append_blocks(blocks, patience=0.01)
        assert names(done) == ["environment", "one"]
        assert [failure.name for failure in done.failures] == ["late"]
        clock.pass_by(hours=1)
        assert names(session.append_blocks(blocks, patience=0.01)) == []
        assert store.verify().problems == []


def test_they_are_read_under_trio(tmp_path: Path) -> None:
    async def main() -> None:
        async with flue_py.open(tmp_path / "s.db") as store:
            session = await store.create_session()
            await say(session, "a")
            done = await session.append_blocks([Says("one", "1"), Fails("late")], patience=0.01)
            assert (names(done), len(done.failures)) == (["one"], 1)

    trio.run(main)


async def test_a_conversation_tells_its_blocks_before_the_words_of_the_user(session: Session, store: Store) -> None:
    memory, clock = Keeps("memory", "likes tabs"), Clock()
    seen: list[list[str]] = []

    async def model(context: list[JsonObject]) -> list[JsonObject]:
        seen.append([text_of(message["content"]) for message in context])
        return [assistant(f"answer {len(seen)}")]

    blocks = [RuntimeEnvironment(cwd="/w", clock=clock), memory, Fails("broken", ValueError("no"))]
    talk = Conversation(store, session, blocks=blocks)
    await talk.take_turn("one", model)
    assert [failure.name for failure in talk.block_failures] == ["broken"]
    clock.pass_by(hours=1)
    await talk.take_turn("two", model)
    memory.text = "likes spaces"
    await talk.take_turn("three", model)
    day = seen[0][0]
    assert day.startswith("## Runtime Environment")
    assert seen[0] == [day, "likes tabs", "one"]
    assert seen[2] == [day, "likes tabs", "one", "answer 1", "two", "answer 2", "likes spaces", "three"]
    assert [[text_of(message["content"]) for message in turn] for turn in memory.saved] == [
        ["one", "answer 1"],
        ["two", "answer 2"],
        ["three", "answer 3"],
    ]
    assert len(await talk.turns()) == 3
    # What is told again after going back is what the model no longer sees.
    await talk.rewind(1)
    memory.text = "likes tabs"
    await talk.take_turn("again", model)
    assert seen[3] == [day, "likes tabs", "one", "answer 1", "again"]


async def test_a_turn_that_fails_leaves_what_was_told_and_saves_nothing(session: Session, store: Store) -> None:
    memory = Keeps("memory", "likes tabs")
    talk = Conversation(store, session, blocks=[memory])

    async def model(context: list[JsonObject]) -> list[JsonObject]:
        raise RuntimeError("down")

    with pytest.raises(RuntimeError, match="down"):
        await talk.take_turn("one", model)
    assert await shown(session) == ["likes tabs"]
    assert memory.saved == []


async def test_what_cannot_be_saved_is_told_and_the_answer_stays(session: Session, store: Store) -> None:
    class Forgets(Says):
        async def save(self, messages: Sequence[JsonObject]) -> None:
            messages[0]["content"] = "mine"
            raise OSError("disk full")

    async def model(context: list[JsonObject]) -> list[JsonObject]:
        return [assistant("two")]

    talk = Conversation(store, session, blocks=[Forgets("memory", None), Fails("slow")], patience=0.01)
    answers = await talk.take_turn({"role": "user", "content": "one"}, model)
    assert answers[0]["content"] == [{"type": "text", "text": "two"}]
    assert sorted(map(str, talk.block_failures)) == [
        "block 'memory', save: OSError: disk full",
        "block 'slow', read: gave no answer within 0.01 seconds",
    ]
    assert await shown(session) == ["one", "two"]
    for wrong in ({"blocks": [5]}, {"patience": -1}):
        with pytest.raises(InvalidArgument):
            Conversation(store, session, **wrong)  # type: ignore[arg-type]


@inputs("threads", [None, True])
def test_the_twin_of_a_conversation_tells_them(tmp_path: Path, threads: bool | None) -> None:
    with flue_py.sync.open(tmp_path / "s.db", threads=threads) as store:
        session = store.create_session()
        memory = Keeps("memory", "likes tabs")
        talk = flue_py.sync.Conversation(store, session, blocks=[memory, Fails("no", OSError("x"))])
        seen: list[int] = []

        def model(context: list[JsonObject]) -> list[JsonObject]:
            seen.append(len(context))
            return [assistant("two")]

        talk.take_turn("one", model)
        talk.take_turn("two", model)
        assert seen == [2, 4]
        assert [len(turn) for turn in memory.saved] == [2, 2]
        assert [str(failure) for failure in talk.block_failures] == ["block 'no', read: OSError: x"]


async def test_a_guard_tells_again_what_its_own_compaction_took_away(session: Session, store: Store) -> None:
    memory = Says("memory", "likes tabs")
    guard = guard_of(store, session, blocks=[memory, Fails("broken", ValueError("no"))])
    seen: list[list[str]] = []

    async def ask(context: list[JsonObject]) -> str:
        seen.append([text_of(message["content"]) for message in context])
        return "done"

    await session.append_blocks([memory])
    await session.append_message(user("hello"))
    await guard.call(ask)
    assert seen == [["likes tabs", "hello"]]
    assert [str(failure) for failure in guard.block_failures] == ["block 'broken', read: ValueError: no"]
    await talk_until_due(session, 20)
    await session.append_message(user("go on"))
    await guard.call(ask)
    assert seen[1][0].startswith("[Context Summary]")
    assert seen[1][-2:] == ["go on", "likes tabs"]
    await guard.call(ask)
    assert seen[2] == seen[1]
    with pytest.raises(InvalidArgument, match="blocks"):
        guard_of(store, session, blocks=[5])


async def test_a_guard_tells_them_after_an_overflow_too(session: Session, store: Store) -> None:
    guard = guard_of(store, session, blocks=[Says("memory", "likes tabs")], window=100_000)
    await talk_until_due(session, 20)
    await session.append_message(user("go on"))
    seen: list[list[str]] = []

    async def ask(context: list[JsonObject]) -> str:
        seen.append([text_of(message["content"]) for message in context])
        if len(seen) == 1:
            raise ContextOverflow("too long", tokens=4_000, window=2_000)
        return "done"

    assert await guard.call(ask) == "done"
    assert [texts.count("likes tabs") for texts in seen] == [1, 1]
    assert len(seen[1]) < len(seen[0])


def test_the_twin_of_a_guard_tells_them(tmp_path: Path) -> None:
    with flue_py.sync.open(tmp_path / "s.db") as store:
        session = store.create_session()
        session.append_message(user("hello"))
        blocks = [Says("memory", "likes tabs"), Fails("no", OSError("x"))]
        guard = flue_py.sync.CompactionGuard(store, session, summary(), window=2_000, blocks=blocks)
        assert guard.call(len) == 2
        assert [failure.name for failure in guard.block_failures] == ["no"]
