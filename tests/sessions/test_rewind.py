"""rewind counts turns as the reference's command does, and goes back on the active path only."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flue_py
from flue_py import EntryNotFound, InvalidArgument, Session, Store
from tests.sessions.talk import assistant, hold_turns, path_of, say, user
from tests.tables import inputs

pytestmark = pytest.mark.anyio

THREE_TURNS = ["U1", "A1", "U2", "A2", "U3", "A3"]


async def check_rewind(store: Store, kinds: Sequence[str], turns: int) -> None:
    """Rewind a new session, and check that it keeps whole turns, or is told that there is nothing to do."""
    session = await store.create_session()
    messages = [user(str(n)) if kind == "u" else assistant(str(n)) for n, kind in enumerate(kinds)]
    ids = list((await session.append_messages(messages)).entry_ids)
    revision, total = session.revision, kinds.count("u")
    wanted = min(total, max(0, turns if turns >= 0 else total + turns))
    moved = await session.rewind(turns=turns)
    path = [entry.id for entry in await session.get_active_path()]
    assert path == ids[: len(path)]
    assert kinds[: len(path)].count("u") == wanted
    assert len(path) == len(ids) or kinds[len(path)] == "u"
    if wanted == total:
        assert (moved, session.revision) == (None, revision)
    else:
        assert moved is not None
        assert (moved.reason, moved.from_id, moved.to_id) == ("rewind", ids[-1], path[-1] if path else None)
        assert session.leaf_id == moved.to_id


@inputs("turns", [1, 2, 0, -1, -2, -3, -99, 3, 4, 10**9])
@inputs("kinds", ["uauaua", "", "a"])
async def test_rewind_keeps_the_turns_it_is_told_to(store: Store, kinds: str, turns: int) -> None:
    await check_rewind(store, kinds, turns)


@given(kinds=st.lists(st.sampled_from("ua"), max_size=12), turns=st.integers(-15, 15))
async def test_for_any_history_rewind_keeps_a_prefix_with_the_right_number_of_turns(
    kinds: list[str], turns: int, anyio_backend: str
) -> None:
    async with flue_py.open(":memory:") as store:
        await check_rewind(store, kinds, turns)


async def test_rewinding_to_no_turns_keeps_what_came_before_the_first(session: Session) -> None:
    await session.append_custom("settings", {"model": "m"})
    await hold_turns(session, 2)
    assert await session.rewind(turns=0) is not None
    assert await path_of(session) == ["[settings]"]


async def test_a_turn_ends_where_the_next_user_message_begins(session: Session) -> None:
    ids = await hold_turns(session, 1)
    await session.append_compaction("s", first_kept_entry_id=ids[0], tokens_before=1)
    await say(session, "U2")
    await session.append_branch_summary("b", from_id=ids[0])
    assert await session.rewind(turns=-1) is not None
    assert await path_of(session) == ["U1", "A1", "[compaction]"]


async def test_turns_are_counted_on_the_active_path_alone(session: Session) -> None:
    ids = await hold_turns(session, 3)
    await session.move_leaf(ids[1])
    await say(session, "other")
    assert await session.rewind(turns=2) is None
    assert await session.rewind(turns=-1) is not None
    assert await path_of(session) == ["U1", "A1"]


@pytest.mark.parametrize("turns", [True, 1.0, "1", [1]])
async def test_what_is_no_whole_number_of_turns_changes_nothing(session: Session, turns: object) -> None:
    await hold_turns(session, 2)
    with pytest.raises(InvalidArgument, match="turns"):
        await session.rewind(turns=turns)  # type: ignore[arg-type]
    assert len(await path_of(session)) == 4


async def test_rewind_takes_exactly_one_of_its_arguments(session: Session) -> None:
    (a,) = await say(session, "a")
    with pytest.raises(InvalidArgument, match="either"):
        await session.rewind()
    with pytest.raises(InvalidArgument, match="either"):
        await session.rewind(to=a, turns=1)


async def test_rewind_to_an_ancestor_and_before_the_first_entry(session: Session) -> None:
    a, b, _ = await say(session, "a", "b", "c")
    assert await session.rewind(to=b) is not None
    assert await session.rewind(to=b) is None
    assert await session.rewind(to=a) is not None
    assert await session.rewind(to=None) is not None
    assert await session.rewind(to=None) is None
    assert session.leaf_id is None


async def test_rewind_does_not_leave_the_path(session: Session) -> None:
    a, b = await say(session, "a", "b")
    await session.move_leaf(a)
    with pytest.raises(InvalidArgument, match="move_leaf"):
        await session.rewind(to=b)
    await session.move_leaf(None)
    with pytest.raises(InvalidArgument, match="move_leaf"):
        await session.rewind(to=a)
    assert session.leaf_id is None


async def test_rewind_to_an_entry_the_session_does_not_see(store: Store, session: Session) -> None:
    other = await store.create_session()
    (foreign,) = await say(other, "foreign")
    for entry_id in (foreign, "missing"):
        with pytest.raises(EntryNotFound):
            await session.rewind(to=entry_id)
    await say(session, "a")
    with pytest.raises(EntryNotFound):
        await session.rewind(to="missing")
    assert await path_of(session) == ["a"]


async def test_a_rewind_is_undone_like_any_move(session: Session) -> None:
    await hold_turns(session, 3)
    await session.rewind(turns=1)
    await session.rewind(turns=0)
    assert await session.undo() is not None
    assert await path_of(session) == ["U1", "A1"]
    assert await session.undo() is not None
    assert await path_of(session) == THREE_TURNS
    assert await session.redo() is not None
    assert await path_of(session) == ["U1", "A1"]
