"""Bring history back from branches, forks and task sessions, once; and compare two leaves."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flue_py
from flue_py import (
    EntryNotFound,
    InvalidArgument,
    InvalidEntry,
    JsonObject,
    LeafConflict,
    Session,
    SessionNotFound,
    Store,
)
from flue_py.core.context import MergedRange, Provenance, ToolUse, merged_range_of, provenance_of
from tests.checks import raises
from tests.sessions.talk import assistant, hold_turns, path_of, say, user
from tests.values import existing


def call(call_id: str, tool: str = "read", tokens: int = 0) -> JsonObject:
    part: JsonObject = {"type": "toolCall", "id": call_id, "name": tool, "arguments": {"path": "a"}}
    return {**assistant("", tokens), "content": [part], "stopReason": "toolUse"}


def result(call_id: str, tool: str = "read", *, is_error: bool = False) -> JsonObject:
    content: JsonObject = {"type": "text", "text": "found"}
    return {"role": "toolResult", "toolCallId": call_id, "toolName": tool, "content": [content], "isError": is_error}


async def test_chosen_entries_of_a_branch_are_brought_to_the_leaf(session: Session) -> None:
    ids = await hold_turns(session, 2)
    before = await session.money.aggregate_usage_since(None)
    await session.rewind(turns=1)
    await say(session, "instead")
    picked = await session.branches.cherry_pick([ids[3], ids[2]])
    assert await path_of(session) == ["U1", "A1", "instead", "U2", "A2"]
    assert picked.leaf_id == session.leaf_id == picked.entry_ids[-1]
    assert not picked.replayed
    copies = [await session.get_entry(entry_id) for entry_id in picked.entry_ids]
    originals = [await session.get_entry(entry_id) for entry_id in ids[2:4]]
    for copy, original in zip(copies, originals, strict=True):
        assert copy is not None
        assert original is not None
        assert (copy.payload, copy.kind, copy.role) == (original.payload, original.kind, original.role)
        assert copy.id != original.id
        assert provenance_of(copy) == Provenance(session.id, original.id)
        assert provenance_of(original) is None
    # The second turn was paid on its own branch; the copy adds nothing to what this path has used.
    after = await session.money.aggregate_usage_since(None)
    assert after.usage.total_tokens == 1
    assert before.usage.total_tokens == 3
    assert (await session.refresh()).spent_tokens == 3


async def test_a_pick_is_done_once_and_again_where_it_was_undone(session: Session) -> None:
    ids = await hold_turns(session, 2)
    await session.rewind(turns=1)
    await say(session, "instead")
    first = await session.branches.cherry_pick(ids[2:4])
    await say(session, "on")
    again = await session.branches.cherry_pick(ids[2:4])
    assert again.replayed
    assert again.entry_ids == first.entry_ids
    assert await path_of(session) == ["U1", "A1", "instead", "U2", "A2", "on"]
    await session.undo()
    await session.undo()
    assert await path_of(session) == ["U1", "A1", "instead"]
    anew = await session.branches.cherry_pick(ids[2:4])
    assert not anew.replayed
    assert anew.entry_ids != first.entry_ids
    assert await path_of(session) == ["U1", "A1", "instead", "U2", "A2"]
    assert (await session.branches.cherry_pick(ids[2:4])).entry_ids == anew.entry_ids


async def test_entries_come_from_a_fork_and_from_a_task_session(session: Session, store: Store) -> None:
    await hold_turns(session, 1)
    fork = await session.fork()
    forked = await say(fork, "F1", "F2")
    task = await session.tasks.create(task_id="t")
    (done,) = (await task.append_message(assistant("done", 5))).entry_ids
    await session.branches.cherry_pick([forked[1]], source=fork)
    picked = await session.branches.cherry_pick([done], source=task.id)
    assert await path_of(session) == ["U1", "A1", "F2", "done"]
    copy = existing(await session.get_entry(picked.entry_id))
    assert provenance_of(copy) == Provenance(task.id, done)
    assert (await session.money.aggregate_usage_since(None)).usage.total_tokens == 1
    # A copy of the copy names whose history it is.
    other = await store.create_session()
    twice = existing(await other.get_entry((await other.branches.cherry_pick([copy.id], source=session)).entry_id))
    assert provenance_of(twice) == Provenance(task.id, done)


async def test_an_exchange_comes_whole_or_not_at_all(session: Session) -> None:
    ids = (await session.append_messages([user("U"), call("c1"), result("c1"), assistant("A")])).entry_ids
    await session.move_leaf(ids[0])
    for half in ([ids[1]], [ids[2]], [ids[1], ids[3]]):
        await raises(InvalidArgument, session.branches.cherry_pick(half), match="choose both, or neither")
    assert session.leaf_id == ids[0]
    await session.branches.cherry_pick(ids[1:3])
    assert [message["role"] for message in await session.build_context()] == ["user", "assistant", "toolResult"]
    await session.branches.cherry_pick([ids[1]], whole=False)
    assert len(await session.build_context()) == 4


async def test_an_exchange_is_told_by_the_path_and_not_by_the_choice(session: Session) -> None:
    messages = [user("U"), call("c"), assistant("meanwhile"), result("c"), call("c"), result("c")]
    ids = (await session.append_messages(messages)).entry_ids
    await session.move_leaf(ids[0])
    for half in ([ids[1], ids[5]], [ids[1], ids[2]], [ids[1], ids[3], ids[5]]):
        await raises(InvalidArgument, session.branches.cherry_pick(half), match="choose both, or neither")
    assert len((await session.branches.cherry_pick([ids[1], ids[3]])).entry_ids) == 2


async def test_what_cannot_be_picked_is_refused_and_changes_nothing(session: Session, store: Store) -> None:
    ids = await hold_turns(session, 2)
    compaction = await session.append_compaction("so far", first_kept_entry_id=ids[2], tokens_before=9)
    await session.move_leaf(ids[1])
    (branch,) = await say(session, "branch")
    fork = await session.fork(at=ids[0])
    (theirs,) = await say(fork, "theirs")
    (exclusion,) = (await fork.marks.exclude(theirs)).exclusion_ids
    with pytest.raises(InvalidArgument, match="is an exclusion"):
        await session.branches.cherry_pick([theirs, exclusion], source=fork)
    revision = (await session.refresh()).revision
    for wanted, error in (
        ([], InvalidArgument), ("abc", InvalidArgument), ([7], InvalidArgument), (["missing"], EntryNotFound),
        ([theirs], EntryNotFound), ([branch], InvalidArgument), ([ids[0]], InvalidArgument),
        ([ids[2], branch], InvalidArgument), ([compaction.entry_id], InvalidArgument),
    ):  # fmt: skip
        await raises(error, session.branches.cherry_pick(wanted))  # type: ignore[arg-type]
    await raises(SessionNotFound, session.branches.cherry_pick([branch], source="missing"))
    assert (await session.refresh()).revision == revision
    stale = existing(await store.get_session(session.id))
    await say(session, "moved on")
    await raises(LeafConflict, stale.branches.cherry_pick([theirs], source=fork))


async def test_a_summary_of_a_fork_comes_back_once_with_the_stretch_it_stands_for(session: Session) -> None:
    ids = await hold_turns(session, 1)
    fork = await session.fork()
    forked = list((await fork.append_messages([user("F1"), assistant("F2", 7)])).entry_ids)
    await say(session, "meanwhile")
    merged = await session.branches.merge_back("tried and found", source=fork, details={"by": "hand"})
    entry = existing(await session.get_entry(merged.entry_id))
    assert entry.kind == "branch_summary"
    assert entry.fields["fromId"] == forked[-1]
    assert entry.fields["summary"] == "tried and found"
    assert merged_range_of(entry) == MergedRange(fork.id, ids[-1], forked[-1], 2)
    assert (await session.build_context())[-1]["content"] == [
        {"type": "text", "text": "[Branch Summary]\n\ntried and found"}
    ]
    assert (await session.money.aggregate_usage_since(None)).usage.total_tokens == 1
    again = await session.branches.merge_back("in other words", source=fork.id)
    assert again.replayed
    assert again.entry_ids == merged.entry_ids
    assert len(await session.get_active_path()) == 4
    # The fork goes on: that is another stretch.
    await say(fork, "F3")
    assert not (await session.branches.merge_back("and then", source=fork)).replayed


async def test_a_summary_comes_back_from_a_branch_and_from_a_task_session(session: Session) -> None:
    ids = await hold_turns(session, 2)
    await session.rewind(turns=1)
    merged = await session.branches.merge_back("went another way", source_leaf=ids[-1])
    entry = existing(await session.get_entry(merged.entry_id))
    assert merged_range_of(entry) == MergedRange(session.id, ids[1], ids[-1], 2)
    task = await session.tasks.create(task_id="t")
    told = await say(task, "T1", "T2", "T3")
    entry = await session.get_entry((await session.branches.merge_back("the task is done", source=task)).entry_id)
    assert entry is not None
    assert merged_range_of(entry) == MergedRange(task.id, None, told[-1], 3)


async def test_what_cannot_be_merged_back_is_refused_and_changes_nothing(session: Session) -> None:
    ids = await hold_turns(session, 1)
    fork = await session.fork()
    empty = await session.tasks.create(task_id="t")
    revision = (await session.refresh()).revision
    for source, leaf in ((fork, ids[-1]), (fork, ids[0]), (empty, None)):
        with pytest.raises(InvalidArgument, match="nothing to bring back"):
            await session.branches.merge_back("so far", source=source, source_leaf=leaf)
    with pytest.raises(InvalidArgument, match="mergedFrom"):
        await session.branches.merge_back("so far", source=fork, details={"mergedFrom": {}})
    await raises(InvalidEntry, session.branches.merge_back(7, source=fork))  # type: ignore[arg-type]
    await raises(EntryNotFound, session.branches.merge_back("so far", source=fork, source_leaf="missing"))
    await raises(SessionNotFound, session.branches.merge_back("so far", source="missing"))
    assert (await session.refresh()).revision == revision


async def test_two_handles_that_merge_the_same_stretch_add_it_once(session: Session, store: Store) -> None:
    await hold_turns(session, 1)
    fork = await session.fork()
    await say(fork, "F")
    other = existing(await store.get_session(session.id))
    first = await session.branches.merge_back("one", source=fork)
    # The other handle has not seen it, and builds on the leaf it knows.
    await raises(LeafConflict, other.branches.merge_back("two", source=fork))
    await other.refresh()
    second = await other.branches.merge_back("two", source=fork)
    assert second.entry_ids == first.entry_ids
    assert len(await session.get_active_path()) == 3


async def test_a_diff_says_what_each_leaf_has_by_itself(session: Session) -> None:
    ids = await hold_turns(session, 1)
    fork = await session.fork()
    await session.append_messages([user("U2"), call("c", "grep", 3), result("c", "grep", is_error=True)])
    await fork.append_messages([assistant("F", 5)])
    diff = await session.branches.diff(fork)
    assert diff.ancestor_id == ids[-1]
    assert not diff.is_same
    assert (diff.left.session_id, diff.right.session_id) == (session.id, fork.id)
    assert diff.left.messages == {"assistant": 1, "toolResult": 1, "user": 1}
    assert diff.left.tools == {"grep": ToolUse(1, 1)}
    assert diff.left.usage.total_tokens == 3
    assert diff.right.messages == {"assistant": 1}
    assert diff.right.tools == {}
    assert diff.right.usage.cost.usd == Decimal("0.005")
    assert [entry.id for entry in diff.right.entries] == [fork.leaf_id]
    same = await session.branches.diff()
    assert same.is_same
    assert same.ancestor_id == session.leaf_id
    earlier = await session.branches.diff(leaf=ids[0])
    assert [len(earlier.left.entries), len(earlier.right.entries)] == [0, 4]
    nothing = await session.branches.diff(leaf=None)
    assert (nothing.ancestor_id, len(nothing.right.entries)) == (None, 5)
    task = await session.tasks.create(task_id="t")
    await say(task, "T")
    apart = await session.branches.diff(task)
    assert apart.ancestor_id is None
    assert [len(apart.left.entries), len(apart.right.entries)] == [5, 1]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=14), st.integers(0, 20), st.integers(0, 20))
async def test_a_diff_is_what_two_paths_do_not_share(steps: list[tuple[bool, int]], left: int, right: int) -> None:
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        made: list[str | None] = [None]
        for moves, number in steps:
            if moves:
                await session.move_leaf(made[number % len(made)])
            made += (await session.append_message(user("x"))).entry_ids
        a, b = made[left % len(made)], made[right % len(made)]
        diff = await session.branches.diff(leaf=a, other_leaf=b)
        first = [entry.id for entry in await session.get_active_path(leaf=a)]
        second = [entry.id for entry in await session.get_active_path(leaf=b)]
        shared = [one for one, other in zip(first, second, strict=False) if one == other]
        assert diff.ancestor_id == (shared[-1] if shared else None)
        assert [entry.id for entry in diff.left.entries] == first[len(shared) :]
        assert [entry.id for entry in diff.right.entries] == second[len(shared) :]
