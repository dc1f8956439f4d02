"""Blocks: appended where they have changed, told again where a context no longer shows them, and never in the way."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio

import flue_py
import flue_py.sync
from flue_py import JsonObject, Session, Store
from flue_py.agents.conversation import Conversation
from flue_py.compaction import CompactionSettings
from flue_py.compaction.blocks import registered_block
from flue_py.compaction.material import Material
from flue_py.compaction.modes import Asker, Hybrid, Lossless, Made, Mode
from flue_py.context.blocks import BlockFailure, BlocksAppended, BlockText, BlockTold, RuntimeEnvironment
from flue_py.context.tokens import counter_for
from flue_py.core.entries import REGISTERED_KINDS, RegisteredText
from flue_py.core.model import FunctionModel, ModelRequest
from flue_py.errors import ContextOverflow, IdempotencyConflict, InvalidArgument, LeafConflict
from tests.checks import raises
from tests.context.blocks.blocks import Clock, Fails, Keeps, Says
from tests.sessions.guarded import guard_of, summary
from tests.sessions.guarded import talk as talk_until_due
from tests.sessions.talk import assistant, say, user
from tests.tables import inputs
from tests.values import existing


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
        None, 5, "text", [5], [Says], [object()], [Says("No Name", "x")], [Says("", "x")], [Says("a\n", "x")],
    ):  # fmt: skip
        await raises(InvalidArgument, session.append_blocks(wrong), match="blocks")
    with pytest.raises(InvalidArgument, match="two of the name 'one'"):
        await session.append_blocks([Says("one", "1"), Says("one", "2")])
    for wrong in (-1, True, float("nan"), float("inf"), "1"):
        await raises(InvalidArgument, session.append_blocks([], patience=wrong), match="patience")
    await raises(InvalidArgument, session.append_blocks([], on_conflict="x"), match="on_conflict")  # type: ignore[arg-type]
    assert session.leaf_id is None


async def test_another_writer_is_noticed_and_can_be_gone_along_with(session: Session, store: Store) -> None:
    await session.append_message(user("a"))
    other = existing(await store.get_session(session.id))
    await other.append_blocks([Says("one", "1")])
    await raises(LeafConflict, session.append_blocks([Says("one", "1")]))
    # Below what is stored it has been told already.
    done = await session.append_blocks([Says("one", "1")], on_conflict="rebase")
    assert done.unchanged == ("one",)
    branch = await session.append_blocks([Says("one", "2")], on_conflict="branch")
    assert branch.appended is not None
    assert branch.appended.on_branch
    await session.refresh()
    await raises(LeafConflict, session.append_blocks([], expected_leaf=None))


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
    await raises(IdempotencyConflict, session.append_blocks([one], idempotency_key="m"))


async def test_only_the_context_is_read(session: Session, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        await session.append_message(user(f"{number}"))
    kept = (await session.append_message(user("kept"))).entry_id
    await session.append_compaction("s", first_kept_entry_id=kept, tokens_before=9)
    reads: list[int] = []
    read_context = store.backend.read_context

    async def counted(*args: Any, **kwargs: Any) -> Any:
        read = await read_context(*args, **kwargs)
        reads.append(len(read.entries))
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

    await raises(RuntimeError, talk.take_turn("one", model), match="down")
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


# -- Registered texts: word for word after each compaction, in another process, on the path they were registered
# on --------------------------------------------------------------------------------------------------------------


SETTINGS = CompactionSettings(keep_recent_tokens=200)
MODEL = FunctionModel(lambda _: "model says", "small", provider="house", context_window=200_000)
RULES = "Never push.\nAsk before you delete <anything>."


class Plain:
    """A mode of somebody else's, which knows nothing of blocks."""

    name = "plain"
    needs_model = False

    async def make(self, material: Material, asker: Asker | None) -> Made:
        return Made(f"{len(material.leaving)} left", self.name)


async def talk(session: Session, turns: int, start: int = 0) -> None:
    for number in range(start, start + turns):
        await session.append_message(user(f"question {number} " + "q" * 300))
        await session.append_message({"role": "assistant", "content": f"answer {number} " + "a" * 300})


async def first_text(session: Session) -> str:
    first = (await session.build_context())[0]
    assert first["role"] == "user"
    return str(first["content"][0]["text"])  # type: ignore[index, call-overload]


@pytest.mark.parametrize(
    "mode", ["llm", "intent", "window", Lossless(state="building"), Hybrid(), Plain()], ids=lambda mode: str(mode)[:8]
)
async def test_they_come_back_word_for_word_after_each_compaction(session: Session, store: Store, mode: Mode) -> None:
    await session.marks.register("rules", RULES)
    await session.marks.register("way", "1. look\n2. leap", kind="plan")
    for number in range(4):
        if number == 2:
            await session.marks.register("way", "1. leap", kind="plan")
        called: JsonObject = {"type": "toolCall", "id": f"c{number}", "name": "bash", "arguments": {"command": "make"}}
        result: JsonObject = {"role": "toolResult", "toolCallId": f"c{number}", "toolName": "bash", "content": "made"}
        await session.append_messages([{"role": "assistant", "content": [called]}, result])
        await talk(session, 6, start=6 * number)
        done = await session.compact(MODEL, mode=mode, settings=SETTINGS)
        assert done.appended is not None
        assert done.notes == ()
        text = await first_text(session)
        assert text.count("[REGISTERED") == 1
        assert text.count(f'<registered kind="instructions" name="rules">\n{RULES}\n</registered>') == 1
        assert text.count("1. look") == (number < 2)
        assert text.count("1. leap") == (number >= 2)
    assert [(each.name, each.kind, each.text) for each in await session.marks.registered()] == [
        ("rules", "instructions", RULES),
        ("way", "plan", "1. leap"),
    ]
    await session.marks.unregister("way")
    await talk(session, 6, start=24)
    await session.compact(MODEL, mode=mode, settings=SETTINGS)
    assert "leap" not in await first_text(session)
    assert RULES in await first_text(session)
    assert (await store.verify()).problems == []


async def test_another_process_has_them(tmp_path: object) -> None:
    path = f"{tmp_path}/store.db"
    async with flue_py.open(path) as store:
        session = await store.create_session(key="k")
        await session.marks.register("rules", RULES)
        for number in range(10):
            await talk(session, 6, start=6 * number)
            await session.marks.register("todo", f"- step {number}", kind="todo")
            assert (await session.compact(MODEL, settings=SETTINGS)).appended is not None
    code = """if True:
        import sys, flue_py.sync
        with flue_py.sync.open(sys.argv[1]) as store:
            session = store.open_session("k", mode="get")
            print([each.text for each in session.marks.registered()])
            print(session.build_context()[0]["content"][0]["text"])
    """
    out = (await anyio.run_process([sys.executable, "-c", code, path])).stdout.decode()
    assert out.startswith(repr([RULES, "- step 9"]))
    assert RULES in out
    assert out.count("- step ") == 2


async def test_the_same_text_is_registered_once(session: Session) -> None:
    assert await session.marks.unregister("rules") is None
    assert await session.marks.register("rules", RULES) is not None
    assert await session.marks.register("rules", RULES) is None
    assert await session.marks.register("rules", RULES, kind="skill") is not None
    assert await session.marks.register("rules", RULES, kind="skill", idempotency_key="once") is not None
    assert existing(await session.marks.register("rules", RULES, kind="skill", idempotency_key="once")).replayed
    assert [(each.kind, each.text) for each in await session.marks.registered()] == [("skill", RULES)]
    assert await session.build_context() == []


async def test_they_are_those_of_the_path(session: Session, store: Store) -> None:
    before = (await say(session, "one"))[0]
    await session.marks.register("rules", "old")
    fork = await session.fork()
    await session.marks.register("rules", "new")
    assert [each.text for each in await fork.marks.registered()] == ["old"]
    assert [each.text for each in await session.marks.registered()] == ["new"]
    assert await session.marks.registered(leaf=before) == ()
    await session.move_leaf(before)
    assert await session.marks.registered() == ()


async def test_a_compaction_that_somebody_wrote_by_hand_loses_none(session: Session) -> None:
    await session.marks.register("rules", RULES)
    await session.marks.register("gone", "gone")
    await session.marks.unregister("gone")
    kept = (await say(session, "one", "two"))[1]
    await session.append_compaction("by hand", first_kept_entry_id=kept, tokens_before=9)
    assert [each.text for each in await session.marks.registered()] == [RULES]
    await talk(session, 6)
    await session.compact(MODEL, settings=SETTINGS)
    assert RULES in await first_text(session)
    await session.compactions.uncompact()
    assert [each.text for each in await session.marks.registered()] == [RULES]


async def test_beside_a_summary_that_stays_they_are_shown_once(session: Session) -> None:
    await session.marks.register("rules", RULES)
    await talk(session, 10)
    await session.compact(mode="intent", settings=CompactionSettings(keep_recent_tokens=1_000, user_words_share=0))
    kept = [item.entry_id for item in await session.build_context_entries()]
    settings = CompactionSettings(user_words_share=0)
    done = await session.compactions.compact_range(kept[2], kept[-2], mode="window", settings=settings)
    assert done.appended is not None
    assert str(await session.build_context()).count("Never push.") == 1
    assert [each.text for each in await session.marks.registered()] == [RULES]
    await talk(session, 10, start=10)
    await session.marks.register("rules", "New rules.")
    kept = [item.entry_id for item in await session.build_context_entries()]
    done = await session.compactions.compact_range(kept[-8], kept[-2], mode="window", settings=settings)
    assert done.appended is not None
    assert "New rules." in str(done.summary)
    assert (await session.compact(mode="intent", settings=SETTINGS)).appended is not None
    assert str(await session.build_context()).count("Never push.") == 0
    assert str(await session.build_context()).count("New rules.") == 1


async def test_what_is_registered_while_the_model_answers_is_in_the_summary(session: Session, store: Store) -> None:
    await session.marks.register("way", "the old way", kind="plan")
    await talk(session, 10)
    other = existing(await store.get_session(session.id))

    async def answer(request: ModelRequest) -> str:
        await other.marks.register("way", "the new way", kind="plan")
        return "summary"

    done = await session.compact(FunctionModel(answer, "small", context_window=200_000), settings=SETTINGS)
    assert done.appended is not None
    assert "the new way" in await first_text(session)
    assert "the old way" not in await first_text(session)
    assert [each.text for each in await session.marks.registered()] == ["the new way"]


@pytest.mark.parametrize(("count", "words"), [(300, 5), (300, 3_000), (40, 20_000)])
def test_the_cap_of_all_holds_however_many_there_are(count: int, words: int) -> None:
    texts = [RegisteredText(f"text {at}", REGISTERED_KINDS[at % 4], "rule " * words, f"e{at}") for at in range(count)]
    counter = counter_for("gpt-5")
    for window, most in ((None, 25_000), (20_000, 2_500), (8_000, 1_000)):
        block = registered_block(texts, CompactionSettings(), window, lambda text: counter.count(user(text)))
        assert counter.count(user(block.text)) <= most
        shown = [text for text in texts if f'name="{text.name}"' in block.text]
        assert shown[0] is texts[0]
        left = [note for note in block.notes if "registered texts are left out" in note]
        assert bool(left) == (len(shown) < count)
        if left:
            assert left[0].startswith(f"{count - len(shown)} ")
            assert f"[… {count - len(shown)} more registered texts do not fit, and are stored: " in block.text


async def test_caps_cut_and_say_what_is_missing(session: Session) -> None:
    await session.marks.register("skill", "S" + "s" * 4_000, kind="skill")
    await session.marks.register("rules", "r" * 4_000)
    await session.marks.register("plan", "short", kind="plan")
    await talk(session, 20)
    settings = CompactionSettings(keep_recent_tokens=200, registered_item_tokens=300, registered_tokens=460)
    done = await session.compact(mode="window", settings=settings)
    text = await first_text(session)
    assert [note.split(" is longer")[0].split(" (")[0] for note in done.notes] == [
        "the registered instructions 'rules'",
        "the registered skill 'skill'",
    ]
    assert "of 4000 characters are left out" in done.notes[0]
    assert "more characters, stored in entry" in text
    assert 0 < text.count("r" * 10) < 400
    assert '<registered kind="plan" name="plan">\nshort\n</registered>' in text
    assert [len(each.text) for each in await session.marks.registered()] == [4_001, 4_000, 5]
    await talk(session, 20, start=20)
    small = await session.compact(mode="window", settings=SETTINGS, window=1_600)
    assert small.appended is not None
    assert "characters are left out" in " ".join(small.notes)


@inputs(
    ("arguments", "message"),
    [
        ({"name": ""}, "name: should be one line"),
        ({"name": "a\nb"}, "name: should be one line"),
        ({"name": "a\n"}, "name: should be one line"),
        ({"name": "a\u2028"}, "name: should be one line"),
        ({"name": "\t"}, "name: should be one line"),
        ({"text": " "}, "text: is not a text with words"),
        ({"text": 7}, "text: is not a text with words"),
        ({"kind": "rule"}, "kind: 'rule' is not one of instructions, plan, todo, skill"),
    ],
)
async def test_wrong_arguments_say_what_to_do(session: Session, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{message}"):
        await session.marks.register(**{"name": "n", "text": "t", **arguments})  # type: ignore[arg-type]
    assert await session.marks.registered() == ()


async def test_a_handle_that_has_not_seen_the_leaf_registers_nothing(session: Session, store: Store) -> None:
    other = existing(await store.get_session(session.id))
    await say(session, "one")
    await raises(LeafConflict, other.marks.register("rules", RULES))
    assert await session.marks.registered() == ()
