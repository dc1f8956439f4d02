"""Going elsewhere in a tree: the draft, the summary of what is left, and a callback that may say no."""

from __future__ import annotations

from typing import Any

import pytest

import flue_py
from flue_py import BranchSummary, EntryNotFound, InvalidArgument, LeafConflict, Leaving, Navigated, Session, Store
from tests.sessions.talk import hold_turns, path_of, texts, user

pytestmark = pytest.mark.anyio


async def test_an_answer_becomes_the_leaf_and_a_message_of_the_user_a_draft(session: Session) -> None:
    ids = await hold_turns(session, 3)
    assert await session.navigate(ids[1]) == Navigated(ids[5], ids[1], 2)
    assert await session.navigate(ids[4]) == Navigated(ids[1], ids[3], 3, draft="U3")
    assert await path_of(session) == ["U1", "A1", "U2", "A2"]
    assert await session.navigate(ids[0]) == Navigated(ids[3], None, 4, draft="U1")
    assert (await session.append_message(user("anew"))).entry_id is not None


async def test_the_leaf_itself_is_no_target_even_if_a_person_wrote_it(session: Session) -> None:
    ids = await hold_turns(session, 1)
    await session.move_leaf(ids[0])
    assert await session.navigate(ids[0], label="x", summary="s") == Navigated(ids[0], ids[0], 2)
    assert (await session.marks.labels(), session.leaf_id) == ({}, ids[0])


async def test_a_callback_gets_what_is_left_and_its_summary_names_both_ends(session: Session, store: Store) -> None:
    ids = await hold_turns(session, 3)
    seen: list[Leaving] = []

    async def summarize(leaving: Leaving) -> BranchSummary:
        seen.append(leaving)
        assert await session.marks.labels() == {}  # the session can be read meanwhile
        return BranchSummary("tried", details={"n": 1}, calls=[{"output": 2}, {"output": 3}])

    went = await session.navigate(ids[4], summary=summarize, label="back", by="me")
    (leaving,) = seen
    assert (leaving.from_id, leaving.to_id, leaving.common_id) == (ids[5], ids[3], ids[3])
    assert texts(leaving.entries) == ["U3", "A3"]
    entry = await session.get_entry(went.summary_id or "")
    assert entry is not None
    assert {name: entry.fields[name] for name in ("summary", "fromId", "abandonedLeafId", "details")} == {
        "summary": "tried",
        "fromId": ids[3],
        "abandonedLeafId": ids[5],
        "details": {"n": 1},
    }
    assert (entry.parent_id, session.leaf_id, went.draft) == (ids[3], entry.id, "U3")
    assert await session.marks.labels() == {entry.id: "back"}
    assert {row.group["purpose"]: row.calls for row in (await store.usage(session, group_by=["purpose"])).rows} == {
        "turn": 3,
        "branch_summary": 2,
    }
    await session.undo()
    assert session.leaf_id == ids[5]


async def test_a_callback_can_go_without_a_summary_or_keep_the_session_where_it_is(session: Session) -> None:
    ids = await hold_turns(session, 2)
    stayed = await session.navigate(ids[1], summary=lambda leaving: False, label="x")
    assert stayed == Navigated(ids[3], ids[3], 1, cancelled=True)
    assert (await session.marks.labels(), session.leaf_id, session.revision) == ({}, ids[3], 1)
    assert await session.navigate(ids[1], summary=lambda leaving: None) == Navigated(ids[3], ids[1], 2)


async def test_what_a_callback_raises_or_wrongly_returns_keeps_the_session_where_it_is(session: Session) -> None:
    ids = await hold_turns(session, 2)

    def fail(leaving: Leaving) -> str:
        raise RuntimeError("the model is away")

    with pytest.raises(RuntimeError, match="the model is away"):
        await session.navigate(ids[1], summary=fail)
    wrong: Any = lambda leaving: 5  # noqa: E731
    with pytest.raises(InvalidArgument, match="summary: should be a text"):
        await session.navigate(ids[1], summary=wrong)
    with pytest.raises(EntryNotFound):
        await session.navigate("missing", summary=fail)
    assert (session.leaf_id, (await session.refresh()).revision) == (ids[3], 1)


async def test_a_session_that_went_on_meanwhile_stays_where_it_is(session: Session, store: Store) -> None:
    ids = await hold_turns(session, 2)

    async def summarize(leaving: Leaving) -> str:
        other = await store.get_session(session.id)
        assert other is not None
        await other.append_message(user("meanwhile"))
        return "s"

    with pytest.raises(LeafConflict):
        await session.navigate(ids[1], summary=summarize)
    assert (await session.refresh()).entry_count == 5
    with pytest.raises(flue_py.RevisionConflict):
        await session.navigate(ids[1], expected_revision=1)


def test_the_blocking_twin_goes_there_too() -> None:
    with flue_py.sync.open(":memory:") as store:
        session = store.create_session()
        ids = session.append_messages([user("a"), user("b")]).entry_ids
        assert session.navigate(ids[0], summary=lambda leaving: f"{len(leaving.entries)} left").draft == "a"
        entry = session.get_entry(session.leaf_id or "")
        assert entry is not None
        assert entry.fields["summary"] == "2 left"
