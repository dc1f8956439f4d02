"""The contract: a write compares what its caller has seen, in the transaction that writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import pytest

from flue_py.core.sessions import STORED, Appended, Deletion, Expected, NewSession, Seen
from flue_py.db.backend import Backend
from flue_py.errors import IdempotencyConflict, LeafConflict, RevisionConflict
from tests.checks import Refusals, refused, unchanged
from tests.samples import UNKNOWN, add, new_session, path_ids, placed, session_info, talk, user
from tests.together import outcomes, together

_Written = tuple[str, str, int]
_Write = Callable[[Backend, str, str, Expected], Awaitable[object]]

WRITES: dict[str, _Write] = {
    "append": lambda backend, session, entry, seen: backend.append(session, [user()], expected=seen),
    "branch": lambda backend, session, entry, seen: backend.append(
        session, [user()], expected=seen, on_conflict="branch"
    ),
    "rebase": lambda backend, session, entry, seen: backend.append(
        session, [user()], expected=seen, on_conflict="rebase"
    ),
    "import": lambda backend, session, entry, seen: backend.import_entries(
        session, [placed(user(), "new")], leaf="new", expected=seen
    ),
    "move": lambda backend, session, entry, seen: backend.move(session, entry, expected=seen),
    "retract": lambda backend, session, entry, seen: backend.retract(session, "leaf", expected=seen),
    "undo": lambda backend, session, entry, seen: backend.undo(session, expected=seen),
    "redo": lambda backend, session, entry, seen: backend.redo(session, expected=seen),
    "go back": lambda backend, session, entry, seen: backend.go_back(session, 1, expected=seen),
    "go back to an edit": lambda backend, session, entry, seen: backend.go_back(session, 3, before=True, expected=seen),
    "fork": lambda backend, session, entry, seen: backend.fork(session, STORED, NewSession(), expected=seen),
    "task": lambda backend, session, entry, seen: backend.create_task(session, "t", NewSession(), expected=seen),
    "link": lambda backend, session, entry, seen: backend.link_task(session, "child", "t", expected=seen),
    "end": lambda backend, session, entry, seen: backend.end_task(session, "done", expected=seen),
    "label": lambda backend, session, entry, seen: backend.set_label(session, entry, "label", expected=seen),
    "pin": lambda backend, session, entry, seen: backend.set_pin(session, entry, True, expected=seen),
    "title": lambda backend, session, entry, seen: backend.update_session(session, title="new", expected=seen),
    "delete": lambda backend, session, entry, seen: backend.delete_tree(session, expected=seen),
}
ANSWERS_ANOTHER_LEAF = ("branch", "rebase")


async def _written(backend: Backend) -> _Written:
    """Return a session with something to undo and to go back to, one of its entries, and its revision."""
    session = await new_session(backend, *talk(2))
    leaf = placed(user("leaf"), "leaf")
    await backend.append(session.id, [leaf])
    await backend.link_task((await new_session(backend)).id, session.id, "t")
    await backend.update_session(session.id, title="old")
    info = await session_info(backend, session.id)
    return session.id, session.leaf_id or "", info.revision


async def _failures(
    backend: Backend, names: Iterable[str], check: Callable[[Backend, str, _Written], Awaitable[None]]
) -> dict[str, str]:
    """Check each write, on a new session after a failure, and return the failures by the name of the write."""
    failures = {}
    written = await _written(backend)
    for name in names:
        try:
            await check(backend, name, written)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001
            failures[name] = repr(error)
            written = await _written(backend)
    return failures


async def _is_refused_at_another_revision(backend: Backend, write: str, written: _Written) -> None:
    session, entry, revision = written
    refusals = Refusals(backend)
    for named in (0, revision - 1, revision + 1):
        async with refusals.refused(RevisionConflict) as caught:
            await WRITES[write](backend, session, entry, Seen("leaf", named))
        error = caught.value
        assert (error.session_id, error.expected, error.actual) == (session, named, revision)


async def _is_refused_at_another_leaf(backend: Backend, write: str, written: _Written) -> None:
    session, entry, revision = written
    refusals = Refusals(backend)
    for named in (entry, UNKNOWN, None):
        async with refusals.refused(LeafConflict) as caught:
            await WRITES[write](backend, session, entry, Seen(named, revision))
        error = caught.value
        assert (error.session_id, error.expected, error.actual) == (session, named, "leaf")


async def _happens(backend: Backend, write: str, _: _Written) -> None:
    session, entry, revision = await _written(backend)
    before = await backend.info()
    await WRITES[write](backend, session, entry, Seen("leaf", revision))
    found = await backend.get_session(session)
    after = await backend.info()
    is_changed = found is None or found.revision > revision or after.sessions > before.sessions
    assert is_changed is (write != "redo")


class ExpectationContract:
    """Comparing the leaf and the revision."""

    async def test_every_write_is_refused_where_the_revision_is_another_one(self, backend: Backend) -> None:
        assert await _failures(backend, WRITES, _is_refused_at_another_revision) == {}

    async def test_every_write_is_refused_where_the_leaf_is_another_one(self, backend: Backend) -> None:
        names = [write for write in WRITES if write not in ANSWERS_ANOTHER_LEAF]
        assert await _failures(backend, names, _is_refused_at_another_leaf) == {}

    async def test_every_write_happens_where_both_are_as_they_were_seen(self, backend: Backend) -> None:
        assert await _failures(backend, WRITES, _happens) == {}

    async def test_a_revision_of_another_session_is_not_compared(self, backend: Backend) -> None:
        session, entry, revision = await _written(backend)
        other = await new_session(backend, user())
        await add(backend, other.id, *talk(3))
        await backend.set_label(session, entry, "kept", expected=Seen(revision=revision))
        assert (await session_info(backend, session)).revision == revision + 1

    # -- what was done before ---------------------------------------------------------------------------------------

    async def test_an_idempotency_key_is_looked_up_before_anything_is_compared(self, backend: Backend) -> None:
        session, entry, revision = await _written(backend)
        seen = Seen("leaf", revision)
        keyed: list[Callable[[Expected], Awaitable[object]]] = [
            lambda seen: backend.append(session, [user()], expected=seen, idempotency_key="append"),
            lambda seen: backend.move(session, entry, expected=seen, idempotency_key="move"),
            lambda seen: backend.fork(session, STORED, NewSession(), expected=seen, idempotency_key="fork"),
            lambda seen: backend.create_task(session, "t", NewSession(), expected=seen, idempotency_key="task"),
        ]
        for write in keyed:
            await write(seen)
            async with unchanged(backend):
                await write(seen)
            info = await session_info(backend, session)
            seen = Seen(info.leaf_id, info.revision)
        async with refused(backend, IdempotencyConflict):
            await backend.append(session, talk(2), expected=Seen(UNKNOWN, 0), idempotency_key="append")

    async def test_the_same_task_is_returned_without_comparing(self, backend: Backend) -> None:
        session, _, revision = await _written(backend)
        first = await backend.create_task(session, "t", NewSession(), expected=Seen(revision=revision))
        again = await backend.create_task(session, "t", NewSession(), expected=Seen(revision=revision))
        assert again == first

    # -- on_conflict="rebase" ---------------------------------------------------------------------------------------

    async def test_a_rebased_append_lands_below_whatever_is_stored_and_says_so(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        (theirs,) = await add(backend, session.id, user("theirs"))
        landed = await backend.append(session.id, talk(2), expected=session.leaf_id, on_conflict="rebase")
        assert (landed.on_branch, landed.parent_id, landed.leaf_id) == (False, theirs, landed.entry_ids[-1])
        assert await path_ids(backend, session.id) == [
            *(await path_ids(backend, session.id, theirs)),
            *landed.entry_ids,
        ]
        again = await backend.append(session.id, [user()], expected=UNKNOWN, on_conflict="rebase")
        assert again.parent_id == landed.leaf_id

    async def test_every_append_says_below_what_it_landed(self, backend: Backend) -> None:
        session = await backend.create_session(NewSession())
        first = await backend.append(session.id, talk(2))
        second = await backend.append(session.id, [user()], idempotency_key="again")
        beside = await backend.append(session.id, [user()], expected=first.entry_ids[0], on_conflict="branch")
        nothing = await backend.append(session.id, [])
        again = await backend.append(session.id, [user()], idempotency_key="again")
        landed = [each.parent_id for each in (first, second, beside, nothing, again)]
        assert landed == [None, first.leaf_id, first.entry_ids[0], second.leaf_id, first.leaf_id]
        assert again.replayed

    async def test_of_several_appends_at_once_that_rebase_all_land_on_one_path(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        landed = await together(
            *(backend.append(session.id, talk(2), expected=session.leaf_id, on_conflict="rebase") for _ in range(8))
        )
        in_order = sorted(landed, key=lambda result: result.revision)
        ids = [entry_id for result in in_order for entry_id in result.entry_ids]
        assert await path_ids(backend, session.id) == [session.leaf_id, *ids]
        below = [session.leaf_id, *(result.leaf_id for result in in_order[:-1])]
        assert [result.parent_id for result in in_order] == below

    # -- deletion ---------------------------------------------------------------------------------------------------

    async def test_a_deletion_foretold_compares_too(self, backend: Backend) -> None:
        session, _, revision = await _written(backend)
        async with refused(backend, RevisionConflict):
            await backend.delete_tree(session, dry_run=True, expected=Seen(revision=revision + 1))
        foretold = await backend.delete_tree(session, dry_run=True, expected=Seen(revision=revision))
        assert await backend.delete_tree(session, expected=Seen(revision=revision)) == foretold

    async def test_a_session_that_is_gone_or_of_another_scope_compares_nothing(self, backend: Backend) -> None:
        session, _, revision = await _written(backend)
        assert await backend.delete_tree(UNKNOWN, expected=Seen(UNKNOWN, 3)) == Deletion(())
        assert await backend.delete_tree(session, scope="x", expected=Seen(UNKNOWN, 3)) == Deletion(())
        await backend.delete_tree(session, expected=Seen("leaf", revision))
        assert await backend.delete_tree(session, expected=Seen("leaf", revision)) == Deletion(())

    async def test_a_deletion_at_the_same_time_as_a_save_never_takes_what_its_caller_had_not_seen(
        self, backend: Backend
    ) -> None:
        for _ in range(20):
            session = await new_session(backend, *talk(2))
            delete = partial(backend.delete_tree, session.id, expected=Seen(revision=session.revision))
            saved, deleted = await outcomes(backend.append(session.id, [user()]), delete())
            if isinstance(saved, Exception):
                assert isinstance(deleted, Deletion)
                assert await backend.get_session(session.id) is None
            else:
                assert isinstance(saved, Appended)
                assert isinstance(deleted, RevisionConflict)
                assert (await session_info(backend, session.id)).leaf_id == saved.leaf_id
