"""Summaries of branches that are left, made by a model or by a mode that needs none."""

from __future__ import annotations

import pytest

from flue_py import BranchSummary, InvalidArgument, LeafConflict, Session, Store
from flue_py.compaction import CompactionSettings
from flue_py.core.json import JsonObject
from flue_py.core.model import FunctionModel, ModelReply, ModelRequest
from flue_py.errors import SummaryFailed
from tests.sessions.talk import hold_turns, user

pytestmark = pytest.mark.anyio

PREAMBLE = "The user explored a different conversation branch before returning here.\nSummary of that exploration:\n\n"


def answering(asked: list[ModelRequest]) -> FunctionModel:
    def answer(request: ModelRequest) -> ModelReply:
        asked.append(request)
        said: JsonObject = {"role": "assistant", "content": "it was tried", "usage": {"input": 70, "output": 3}}
        return ModelReply((said,))

    return FunctionModel(answer, "small", provider="house")


async def test_a_model_summarizes_what_is_left_within_a_budget(session: Session, store: Store) -> None:
    ids = await hold_turns(session, 3)
    asked: list[ModelRequest] = []
    went = await session.navigate(ids[1], model=answering(asked), instructions="mind the files")
    text = str(asked[0].messages[0]["content"])
    assert "U2" in text
    assert "A3" in text
    assert "U1" not in text
    assert "mind the files" in text
    assert asked[0].max_tokens == 1_024
    assert asked[0].purpose == "branch_summary"
    entry = await session.get_entry(went.summary_id or "")
    assert entry is not None
    assert str(entry.fields["summary"]).startswith(PREAMBLE + "it was tried")
    assert (entry.fields["fromId"], entry.fields["abandonedLeafId"]) == (ids[1], ids[5])
    assert (session.leaf_id, entry.parent_id) == (went.summary_id, ids[1])
    total = (await store.usage(session, purpose="branch_summary")).total
    assert (total.calls, total.input) == (1, 70)
    await session.undo()
    assert session.leaf_id == ids[5]


async def test_a_mode_that_asks_nobody_summarizes_what_is_left(session: Session) -> None:
    ids = await hold_turns(session, 3)
    went = await session.navigate(ids[3], mode="window")
    entry = await session.get_entry(went.summary_id or "")
    assert entry is not None
    assert f"[2 earlier messages are not shown here: entries {ids[4]} to {ids[5]}]" in str(entry.fields["summary"])


async def test_a_failed_summary_leaves_the_leaf_where_it_was(session: Session) -> None:
    ids = await hold_turns(session, 2)

    def fail(request: ModelRequest) -> ModelReply:
        raise RuntimeError("no")

    with pytest.raises(SummaryFailed):
        await session.navigate(ids[1], model=FunctionModel(fail, "small", provider="house"))
    assert (await session.refresh()).leaf_id == ids[3]
    settings = CompactionSettings(on_failure="fallback")
    went = await session.navigate(ids[1], model=FunctionModel(fail, "small", provider="house"), settings=settings)
    entry = await session.get_entry(went.summary_id or "")
    assert entry is not None
    assert "COMPACTION WARNING" in str(entry.fields["summary"])
    details = entry.fields["details"]
    assert isinstance(details, dict)
    assert details["notes"]


async def test_a_leaf_that_moves_meanwhile_is_a_conflict_and_the_call_stays_booked(
    session: Session, store: Store
) -> None:
    ids = await hold_turns(session, 2)
    other = await store.get_session(session.id)
    assert other is not None

    async def answer(request: ModelRequest) -> ModelReply:
        await other.append_message(user("late"))
        return ModelReply(({"role": "assistant", "content": "x", "usage": {"input": 5, "output": 1}},))

    with pytest.raises(LeafConflict):
        await session.navigate(ids[1], model=FunctionModel(answer, "small", provider="house"))
    assert (await session.refresh()).leaf_id == other.leaf_id
    assert (await store.usage(session, purpose="branch_summary")).total.calls == 1


async def test_summaries_on_the_branch_are_taken_over(session: Session) -> None:
    ids = await hold_turns(session, 1)
    left = [user(f"question {number} " + "q" * 300) for number in range(8)]
    asked = (await session.append_messages(left)).entry_ids
    done = await session.compactions.compact_range(asked[1], asked[4], mode="window")
    assert done.summary is not None
    went = await session.navigate(ids[1], mode="window")
    entry = await session.get_entry(went.summary_id or "")
    assert entry is not None
    assert done.summary in str(entry.fields["summary"])
    assert f"entries {asked[0]} to {asked[7]}]" in str(entry.fields["summary"])


async def test_nothing_is_summarized_where_nothing_is_left(session: Session) -> None:
    ids = await hold_turns(session, 2)
    await session.move_leaf(ids[1])
    went = await session.navigate(ids[3], mode="window")
    assert (went.summary_id, session.leaf_id) == (None, ids[3])


async def test_what_cannot_be_is_refused_and_changes_nothing(session: Session) -> None:
    ids = await hold_turns(session, 2)
    with pytest.raises(InvalidArgument, match="either a summary"):
        await session.navigate(ids[1], summary=BranchSummary("x"), mode="window")
    with pytest.raises(InvalidArgument, match="give a model"):
        await session.navigate(ids[1], instructions="x")
    with pytest.raises(InvalidArgument, match="asks a model"):
        await session.navigate(ids[1], mode="llm")
    with pytest.raises(InvalidArgument, match="mode"):
        await session.navigate(ids[1], mode="nobody")
    assert session.leaf_id == ids[3]
