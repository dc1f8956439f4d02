"""What two contexts begin with: the running digests say the same as comparing the projections whole."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flue_py.sync
from flue_py import EntryNotFound, InvalidArgument, Session, Store
from flue_py.core.context import chain_of, item_bytes
from flue_py.core.json import encode_json
from flue_py.sync import Session as BlockingSession
from tests.sessions.test_compact_any_history import Step, take

pytestmark = pytest.mark.anyio

steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["ask", "ask", "say", "call", "pin", "exclude", "compact", "range", "uncompact", "rewind", "jump", "jump"]
        ),
        st.integers(0, 400),
    ),
    min_size=5,
    max_size=40,
)


def projected(session: BlockingSession, leaf: str | None) -> list[bytes]:
    return [encode_json(message, "message")[0].encode() for message in session.build_context(leaf=leaf)]


def compared(one: list[bytes], other: list[bytes]) -> int:
    pairs = zip(one, other, strict=False)
    return next((place for place, (mine, theirs) in enumerate(pairs) if mine != theirs), min(len(one), len(other)))


def same_session(store: flue_py.sync.Store, session: BlockingSession) -> BlockingSession:
    """Return another handle, which has read nothing."""
    found = store.get_session(session.id)
    assert found is not None
    return found


def summarize_range(session: BlockingSession, size: int) -> None:
    """Compact a few messages of the context, wherever they are, if they can be."""
    shown = [item.entry_id for item in session.build_context_entries() if item.kind == "message"]
    if shown:
        first = size % len(shown)
        with suppress(InvalidArgument):
            session.compactions.compact_range(shown[first], shown[min(first + 3, len(shown) - 1)], mode="window")


def grow(session: BlockingSession, taken: list[tuple[str, int]], leaves: list[str | None]) -> None:
    numbers = count()
    for step in taken:
        what, size = step
        if what == "jump":
            session.move_leaf(leaves[size % len(leaves)])
        elif what == "range":
            summarize_range(session, size)
        else:
            take(session, cast("Step", step), numbers)
        if session.leaf_id not in leaves:
            leaves.append(session.leaf_id)


@given(steps, st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=15))
def test_the_digests_agree_with_the_projections_over_any_tree(
    taken: list[tuple[str, int]], pairs: list[tuple[int, int]]
) -> None:
    with flue_py.sync.open(":memory:") as store:
        session, leaves = store.create_session(), [None]
        grow(session, taken, leaves)
        asked = same_session(store, session)
        shown = {leaf: projected(session, leaf) for leaf in leaves}
        for one, other in ((leaves[mine % len(leaves)], leaves[theirs % len(leaves)]) for mine, theirs in pairs):
            found = asked.context.common_prefix(one, other)
            items = compared(shown[one], shown[other])
            assert (found.items, found.items_a, found.items_b) == (items, len(shown[one]), len(shown[other]))
            ids = [item.entry_id for item in session.build_context_entries(leaf=one)]
            assert found.entry_id == (ids[items - 1] if items else None)
        assert store.verify().problems == []


@given(steps)
def test_the_projection_of_a_leaf_is_the_same_bytes_forever(taken: list[tuple[str, int]]) -> None:
    with flue_py.sync.open(":memory:") as store:
        session, leaves = store.create_session(), [None]
        grow(session, taken[: len(taken) // 2], leaves)
        shown = {leaf: projected(session, leaf) for leaf in leaves}
        chains = {leaf: chain_of(session.build_context_entries(leaf=leaf)).ends for leaf in leaves}
        grow(session, taken[len(taken) // 2 :], list(leaves))
        other = same_session(store, session)
        for leaf, before in shown.items():
            assert projected(other, leaf) == before
            items = other.build_context_entries(leaf=leaf)
            assert [item_bytes(item) for item in items] == before
            assert chain_of(items).ends == chains[leaf]


async def test_what_changes_the_context_changes_the_digest_from_there(session: Session) -> None:
    ids = [
        (await session.append_message({"role": "user", "content": f"{number} " * 50})).entry_id for number in range(8)
    ]
    before = session.leaf_id
    alike = await session.context.common_prefix(before)
    assert (alike.items, alike.entry_id, alike.is_whole) == (8, ids[-1], True)

    await session.marks.exclude(ids[5])
    shorter = await session.context.common_prefix(before)
    assert (shorter.items, shorter.entry_id, shorter.items_a, shorter.items_b) == (5, ids[4], 8, 7)
    assert not shorter.is_whole

    await session.undo()
    await session.append_compaction("so far", first_kept_entry_id=ids[3], tokens_before=9)
    assert await session.context.common_prefix(before) == type(alike)(0, None, "0" * 32, 8, 6)


async def test_equal_messages_on_two_branches_are_the_same_bytes(session: Session) -> None:
    message = {"role": "user", "content": "again", "timestamp": 5}
    first = (await session.append_message({"role": "user", "content": "begin"})).entry_id
    one = (await session.append_message(message)).entry_id
    await session.move_leaf(first)
    other = (await session.append_message(message)).entry_id
    assert one != other
    found = await session.context.common_prefix(one, other)
    assert (found.items, found.entry_id) == (2, one)


async def test_a_known_leaf_costs_no_reading_of_entries(
    session: Session, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [(await session.append_message({"role": "user", "content": f"{number}"})).entry_id for number in range(30)]
    await session.move_leaf(ids[20])
    await session.append_message({"role": "user", "content": "elsewhere"})
    asked = await store.open_session(session.key or "", scope=session.info.scope)
    read: list[int] = []
    for name in ("read_context", "read_path_since"):
        plain = getattr(type(asked._backend), name)

        async def counting(self: object, *args: object, plain: object = plain, **given: object) -> object:
            found = await plain(self, *args, **given)  # type: ignore[operator]
            read.append(len(found.entries or ()))
            return found

        monkeypatch.setattr(type(asked._backend), name, counting)
    assert (await asked.context.common_prefix(ids[-1])).items == 21
    # The first is read whole, the other from where the two part.
    assert read == [30, 1]
    del read[:]
    assert (await asked.context.common_prefix(ids[-1])).items == 21
    assert read == [0, 0]


async def test_a_leaf_that_is_not_there_is_an_error(session: Session) -> None:
    await session.append_message({"role": "user", "content": "x"})
    with pytest.raises(EntryNotFound):
        await session.context.common_prefix("missing")
    with pytest.raises(InvalidArgument):
        await session.context.common_prefix(5)  # type: ignore[arg-type]
