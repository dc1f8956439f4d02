"""Summaries of what is brought back, made by a model or by a mode that needs none."""

from __future__ import annotations

import pytest

import flue_py.sync
from flue_py import InvalidArgument, JsonObject, LeafConflict, Session, Store, SummaryFailed
from flue_py.compaction import CompactionSettings
from flue_py.core.context import merged_range_of
from flue_py.core.model import FunctionModel, ModelReply, ModelRequest
from tests.sessions.talk import hold_turns, user

pytestmark = pytest.mark.anyio

PREAMBLE = "This was done on another branch, or in a session of its own.\nSummary of that work:\n\n"


def answering(asked: list[ModelRequest]) -> FunctionModel:
    def answer(request: ModelRequest) -> ModelReply:
        asked.append(request)
        said: JsonObject = {"role": "assistant", "content": "it was tried", "usage": {"input": 70, "output": 3}}
        return ModelReply((said,))

    return FunctionModel(answer, "small", provider="house")


async def summary_of(session: Session, entry_id: str) -> str:
    entry = await session.get_entry(entry_id)
    assert entry is not None
    return str(entry.fields["summary"])


async def test_a_model_summarizes_what_a_fork_has_done(session: Session, store: Store) -> None:
    ids = await hold_turns(session, 2)
    fork = await session.fork(at=ids[1])
    tried = (await fork.append_messages([user("F1"), user("F2")])).entry_ids
    asked: list[ModelRequest] = []
    done = await session.branches.merge_back(
        source=fork, model=answering(asked), instructions="mind the files", details={"ticket": 7}
    )
    assert (done.parent_id, session.leaf_id, done.replayed) == (ids[3], done.entry_id, False)
    text = str(asked[0].messages[0]["content"])
    for said, is_shown in (("F1", True), ("F2", True), ("U1", False), ("U2", False), ("mind the files", True)):
        assert (said in text) is is_shown
    assert (asked[0].max_tokens, asked[0].purpose) == (1_024, "branch_summary")
    assert (await summary_of(session, done.entry_id)).startswith(PREAMBLE + "it was tried")
    entry = await session.get_entry(done.entry_id)
    assert entry is not None
    merged = merged_range_of(entry)
    assert merged is not None
    assert (merged.session_id, merged.after, merged.leaf_id, merged.entries) == (fork.id, ids[1], tried[-1], 2)
    assert entry.fields["fromId"] == tried[-1]
    details = entry.fields["details"]
    assert isinstance(details, dict)
    assert (details["ticket"], details["mode"]) == (7, "llm")
    total = (await store.usage(session, purpose="branch_summary")).total
    assert (total.calls, total.input) == (1, 70)
    assert done.entry_id in await session.money.entry_costs()


async def test_what_was_brought_back_before_is_not_paid_for_again(session: Session, store: Store) -> None:
    ids = await hold_turns(session, 1)
    fork = await session.fork(at=ids[0])
    await fork.append_message(user("F1"))
    asked: list[ModelRequest] = []
    first = await session.branches.merge_back(source=fork, model=answering(asked))
    again = await session.branches.merge_back(source=fork, model=answering(asked))
    assert (again.entry_id, again.replayed, len(asked)) == (first.entry_id, True, 1)
    assert (await session.branches.merge_back("in words", source=fork)).replayed
    await session.undo()
    assert not (await session.branches.merge_back(source=fork, model=answering(asked))).replayed
    await fork.append_message(user("F2"))
    await session.branches.merge_back(source=fork, model=answering(asked))
    assert len(asked) == 3
    assert (await store.usage(session, purpose="branch_summary")).total.calls == 3


async def test_a_mode_that_asks_nobody_summarizes_a_task_and_a_branch(session: Session) -> None:
    ids = await hold_turns(session, 2)
    task = await session.tasks.create(task_id="look")
    looked = (await task.append_messages([user("T1"), user("T2")])).entry_ids
    done = await session.branches.merge_back(source=task, mode="window")
    assert f"entries {looked[0]} to {looked[1]}]" in await summary_of(session, done.entry_id)
    await session.move_leaf(ids[1])
    back = await session.branches.merge_back(source_leaf=ids[3], mode="window")
    assert f"entries {ids[2]} to {ids[3]}]" in await summary_of(session, back.entry_id)


async def test_compactions_of_the_source_are_taken_over(session: Session) -> None:
    ids = await hold_turns(session, 1)
    fork = await session.fork(at=ids[1])
    asked = (await fork.append_messages([user(f"question {n} " + "q" * 300) for n in range(8)])).entry_ids
    compacted = await fork.compactions.compact_range(asked[1], asked[4], mode="window")
    assert compacted.summary is not None
    done = await session.branches.merge_back(source=fork, mode="window")
    assert compacted.summary in await summary_of(session, done.entry_id)
    assert f"entries {asked[0]} to {asked[7]}]" in await summary_of(session, done.entry_id)


async def test_a_summary_that_fails_appends_nothing(session: Session) -> None:
    ids = await hold_turns(session, 1)
    fork = await session.fork(at=ids[0])
    await fork.append_message(user("F1"))

    def fail(_: ModelRequest) -> str:
        raise RuntimeError("no")

    with pytest.raises(SummaryFailed):
        await session.branches.merge_back(source=fork, model=FunctionModel(fail))
    assert (await session.refresh()).leaf_id == ids[1]
    settings = CompactionSettings(on_failure="fallback")
    done = await session.branches.merge_back(source=fork, model=FunctionModel(fail), settings=settings)
    entry = await session.get_entry(done.entry_id)
    assert entry is not None
    assert isinstance(entry.fields["details"], dict)
    assert entry.fields["details"]["notes"]


async def test_what_happens_while_the_model_writes(session: Session, store: Store) -> None:
    ids = await hold_turns(session, 2)
    fork = await session.fork(at=ids[1])
    tried = (await fork.append_message(user("F1"))).entry_id

    async def goes_on(_: ModelRequest) -> str:
        await fork.append_message(user("F2"))
        await session.append_message(user("meanwhile"))
        return "it was tried"

    done = await session.branches.merge_back(source=fork, model=FunctionModel(goes_on))
    entry = await session.get_entry(done.entry_id)
    assert entry is not None
    assert entry.fields["fromId"] == tried
    assert [item.kind for item in (await session.build_context_entries())[-2:]] == ["message", "branch_summary"]

    async def goes_back(_: ModelRequest) -> str:
        await session.move_leaf(ids[0])
        return "it was tried"

    with pytest.raises(LeafConflict):
        await session.branches.merge_back(source=fork, model=FunctionModel(goes_back))
    assert session.leaf_id == ids[0]
    other = await store.get_session(session.id)
    assert other is not None

    async def somebody_writes(_: ModelRequest) -> ModelReply:
        await other.append_message(user("late"))
        return ModelReply(({"role": "assistant", "content": "x", "usage": {"input": 5, "output": 1}},))

    with pytest.raises(LeafConflict):
        await session.branches.merge_back(source=fork, model=FunctionModel(somebody_writes))
    assert (await session.refresh()).leaf_id == other.leaf_id
    assert (await store.usage(session, purpose="branch_summary")).total.input == 5


async def test_what_the_caller_has_seen_is_compared_before_a_model_is_asked(session: Session) -> None:
    ids = await hold_turns(session, 2)
    fork = await session.fork(at=ids[1])
    await fork.append_message(user("F1"))

    def never(_: ModelRequest) -> str:
        raise AssertionError

    with pytest.raises(LeafConflict):
        await session.branches.merge_back(source=fork, model=FunctionModel(never), expected_leaf=ids[0])


async def test_what_cannot_be_is_refused_and_changes_nothing(session: Session) -> None:
    ids = await hold_turns(session, 1)
    fork = await session.fork()
    with pytest.raises(InvalidArgument, match="nothing to bring back"):
        await session.branches.merge_back(source=fork, mode="window")
    await fork.append_custom("note", {"text": "seen by no model"})
    with pytest.raises(InvalidArgument, match="its context has nothing"):
        await session.branches.merge_back(source=fork, mode="window")
    with pytest.raises(InvalidArgument, match="summary: give one"):
        await session.branches.merge_back(source=fork)
    with pytest.raises(InvalidArgument, match="leave them out"):
        await session.branches.merge_back("x", source=fork, mode="window")
    with pytest.raises(InvalidArgument, match="leave them out"):
        await session.branches.merge_back(source=fork, mode="window", usage={"input": 1})
    with pytest.raises(InvalidArgument, match="asks a model"):
        await session.branches.merge_back(source=fork, mode="llm")
    with pytest.raises(InvalidArgument, match="give a model"):
        await session.branches.merge_back("x", source=fork, instructions="x")
    with pytest.raises(InvalidArgument, match="mergedFrom"):
        await session.branches.merge_back(source=fork, mode="window", details={"mergedFrom": 1})
    assert session.leaf_id == ids[1]


def test_the_blocking_twin_has_summaries_made_too() -> None:
    with flue_py.sync.open(":memory:") as store:
        session = store.create_session()
        first = session.append_message(user("U1")).entry_id
        fork = session.fork(at=first)
        fork.append_message(user("F1"))
        done = session.branches.merge_back(source=fork, model=FunctionModel(lambda _: "it was tried"))
        entry = session.get_entry(done.entry_id)
        assert entry is not None
        assert "it was tried" in str(entry.fields["summary"])
        assert store.verify().problems == []
