"""The contract: labels and pins that a fork sees of its source, and what stays of them."""

from __future__ import annotations

import pytest

from flue_py.core.sessions import STORED, Mark, NewSession
from flue_py.db.backend import Backend
from flue_py.errors import SessionExists
from tests.samples import add, compaction, new_session, path_ids, session_info, talk, user


async def labels(backend: Backend, session_id: str) -> dict[str, str | None]:
    """Return the labels that a session sees, by entry."""
    return {mark.entry_id: mark.value for mark in await backend.read_marks(session_id) if mark.kind == "label"}


class ForkMarkContract:
    """Labels and pins on the path that a fork shares with its source."""

    async def test_a_fork_sees_the_labels_of_the_path_it_shares_and_no_others(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4))
        ids = await path_ids(backend, session.id)
        for entry_id, label in zip(ids, "abcd", strict=True):
            await backend.set_label(session.id, entry_id, label)
        fork = await backend.fork(session.id, ids[1], NewSession())
        assert await labels(backend, fork.id) == {ids[0]: "a", ids[1]: "b"}
        await backend.set_label(session.id, ids[0], "later")
        await backend.set_label(session.id, ids[1], None)
        assert await labels(backend, fork.id) == {ids[0]: "later"}
        assert (await session_info(backend, fork.id)).revision == 0
        empty = await backend.fork(session.id, None, NewSession())
        assert await labels(backend, empty.id) == {}

    async def test_what_a_fork_labels_itself_wins_and_leaves_its_source_alone(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3))
        ids = await path_ids(backend, session.id)
        await backend.set_label(session.id, ids[0], "mine")
        await backend.set_label(session.id, ids[1], "ours")
        fork = await backend.fork(session.id, STORED, NewSession())
        await backend.set_label(fork.id, ids[0], "theirs")
        await backend.set_label(fork.id, ids[1], None)
        assert await labels(backend, fork.id) == {ids[0]: "theirs"}
        assert await labels(backend, session.id) == {ids[0]: "mine", ids[1]: "ours"}
        await backend.set_label(session.id, ids[1], "again")
        assert await labels(backend, fork.id) == {ids[0]: "theirs"}
        revision = (await session_info(backend, fork.id)).revision
        await backend.set_label(fork.id, ids[1], None)
        assert (await session_info(backend, fork.id)).revision == revision
        await backend.go_back(fork.id, 2, before=True)
        assert await labels(backend, fork.id) == {ids[0]: "theirs", ids[1]: "ours"}

    async def test_a_fork_of_a_fork_sees_through_both(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3))
        ids = await path_ids(backend, session.id)
        first = await backend.fork(session.id, ids[2], NewSession())
        (own,) = await add(backend, first.id, user())
        second = await backend.fork(first.id, own, NewSession())
        higher = await backend.fork(first.id, ids[0], NewSession())
        for entry_id in ids:
            await backend.set_label(session.id, entry_id, "root")
        await backend.set_label(first.id, own, "first")
        await backend.set_label(first.id, ids[1], None)
        assert await labels(backend, second.id) == {ids[0]: "root", ids[2]: "root", own: "first"}
        assert await labels(backend, higher.id) == {ids[0]: "root"}

    async def test_a_fork_on_another_branch_of_a_fork_sees_what_all_three_share(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3))
        ids = await path_ids(backend, session.id)
        first = await backend.fork(session.id, ids[2], NewSession())
        await backend.move(first.id, ids[0])
        (beside,) = await add(backend, first.id, user())
        second = await backend.fork(first.id, beside, NewSession())
        await backend.move(first.id, None)
        (root,) = await add(backend, first.id, user())
        third = await backend.fork(first.id, root, NewSession())
        for entry_id in ids:
            await backend.set_label(session.id, entry_id, "root")
        assert await labels(backend, second.id) == {ids[0]: "root"}
        assert await labels(backend, third.id) == {}

    async def test_what_a_fork_sees_stays_when_its_source_is_deleted(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4))
        ids = await path_ids(backend, session.id)
        first = await backend.fork(session.id, ids[2], NewSession())
        second = await backend.fork(first.id, ids[1], NewSession())
        for entry_id, label in zip(ids, "abcd", strict=True):
            await backend.set_label(session.id, entry_id, label)
        await backend.set_pin(session.id, ids[1], True)
        await backend.set_label(first.id, ids[1], "mine")
        await backend.set_label(second.id, ids[0], None)
        seen = [await backend.read_marks(fork.id) for fork in (first, second)]
        assert Mark(ids[1], "pin", "on") in seen[1]
        await backend.delete_tree(session.id)
        assert [await backend.read_marks(fork.id) for fork in (first, second)] == seen
        await backend.delete_tree(first.id)
        assert await backend.read_marks(second.id) == seen[1]
        assert await labels(backend, second.id) == {ids[1]: "mine"}

    async def test_a_dry_run_of_a_deletion_leaves_nothing(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        ids = await path_ids(backend, session.id)
        await backend.set_label(session.id, ids[0], "a")
        fork = await backend.fork(session.id, STORED, NewSession())
        await backend.delete_tree(session.id, dry_run=True)
        await backend.set_label(session.id, ids[0], "b")
        assert await labels(backend, fork.id) == {ids[0]: "b"}

    async def test_a_pin_of_the_source_keeps_in_the_fork_and_can_be_let_go_of_there(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4))
        ids = await path_ids(backend, session.id)
        await backend.set_pin(session.id, ids[0], True)
        forks = [await backend.fork(session.id, STORED, NewSession()) for _ in range(2)]
        assert await backend.set_pin(forks[1].id, ids[0], False) == (ids[0],)
        for fork, kept in zip(forks, ([ids[0]], None), strict=True):
            (cut,) = await add(backend, fork.id, compaction(ids[3]))
            entry = await backend.get_entry(fork.id, cut)
            assert entry is not None
            assert entry.fields.get("pinnedEntryIds") == kept
        assert Mark(ids[0], "pin", "on") in await backend.read_marks(session.id)

    async def test_what_a_source_retracts_is_still_labelled_in_its_fork(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        ids = await path_ids(backend, session.id)
        await backend.set_label(session.id, ids[1], "b")
        fork = await backend.fork(session.id, STORED, NewSession())
        await backend.retract(session.id, ids[1])
        assert await backend.read_marks(fork.id) == [Mark(ids[1], "label", "b")]

    async def test_a_session_with_the_id_of_a_deleted_source_is_not_the_source(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        ids = await path_ids(backend, session.id)
        await backend.set_label(session.id, ids[0], "old")
        fork = await backend.fork(session.id, STORED, NewSession())
        await backend.delete_tree(session.id)
        again = await backend.fork(fork.id, STORED, NewSession(id=session.id))
        assert (await session_info(backend, fork.id)).forked_from_session is None
        for entry_id in ids:
            await backend.set_label(again.id, entry_id, "new")
        assert await labels(backend, fork.id) == {ids[0]: "old"}

    async def test_a_fork_takes_an_id_and_a_scope_of_its_own(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2), scope="a")
        new = NewSession(key="k", id="mine", cwd="/work")
        fork = await backend.fork(session.id, STORED, new, scope="b", idempotency_key="once")
        assert (fork.id, fork.scope, fork.cwd, fork.leaf_id) == ("mine", "b", "/work", session.leaf_id)
        assert await backend.get_session_by_key("k", "b") == fork
        assert await backend.get_session_by_key("k", "a") is None
        assert await backend.fork(session.id, STORED, new, scope="b", idempotency_key="once") == fork
        with pytest.raises(SessionExists):
            await backend.fork(session.id, STORED, NewSession(id="mine"))
