"""The contract: a retried operation happens once."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from flue_py.core.sessions import STORED, NewSession
from flue_py.db.backend import Backend
from flue_py.errors import EntryNotFound, IdempotencyConflict, SessionNotFound
from tests.checks import Refusals, refused, unchanged
from tests.samples import UNKNOWN, add, compaction, new_session, path_ids, placed, session_info, talk, user
from tests.together import together


class IdempotencyContract:
    """Idempotency keys."""

    async def test_the_retry_of_an_append_returns_the_first_result(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        first = await backend.append(session.id, talk(2), expected=session.leaf_id, idempotency_key="k")
        async with unchanged(backend):
            again = await backend.append(session.id, talk(2), expected=session.leaf_id, idempotency_key="k")
        assert (first.replayed, again) == (False, replace(first, replayed=True))

    async def test_the_retry_of_an_append_is_known_however_far_the_session_has_come_since(
        self, backend: Backend
    ) -> None:
        session = await new_session(backend, user())
        first = await backend.append(session.id, talk(2), expected=session.leaf_id, idempotency_key="k")
        await add(backend, session.id, *talk(3))
        await backend.move(session.id, None)
        async with unchanged(backend):
            again = await backend.append(session.id, talk(2), expected=session.leaf_id, idempotency_key="k")
        assert (again.entry_ids, again.leaf_id, again.revision) == (first.entry_ids, first.leaf_id, first.revision)

    async def test_ids_and_times_and_the_named_leaf_are_no_content(self, backend: Backend) -> None:
        session = await new_session(backend)
        first = await backend.append(session.id, [placed(user(), "a", at_us=1)], idempotency_key="k")
        async with unchanged(backend):
            again = await backend.append(
                session.id,
                [placed(user(), "b", at_us=2)],
                expected=UNKNOWN,
                on_conflict="branch",
                idempotency_key="k",
            )
        assert again == replace(first, replayed=True)

    async def test_the_retry_of_a_branch_says_again_that_it_was_one(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        first = await backend.append(session.id, talk(2), expected=None, on_conflict="branch", idempotency_key="k")
        async with unchanged(backend):
            again = await backend.append(session.id, talk(2), expected=None, on_conflict="branch", idempotency_key="k")
        assert again == replace(first, replayed=True)
        assert again.on_branch

    async def test_the_retry_of_an_empty_append_returns_the_first_result(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        first = await backend.append(session.id, [], expected=session.leaf_id, idempotency_key="k")
        await add(backend, session.id, user())
        async with unchanged(backend):
            again = await backend.append(session.id, [], expected=session.leaf_id, idempotency_key="k")
        assert again == replace(first, replayed=True)

    async def test_other_content_under_the_same_key_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend)
        leaf = (await backend.append(session.id, [user("a"), user("b")], idempotency_key="k")).leaf_id
        assert leaf is not None
        others = [
            [user("a")],
            [user("a"), user("c")],
            [user("b"), user("a")],
            [user("a"), user("b"), user("c")],
            [user("a"), replace(user("b"), source="retry")],
            [user("a"), compaction(leaf)],
            [],
        ]
        refusals = Refusals(backend)
        for entries in others:
            async with refusals.refused(IdempotencyConflict) as caught:
                await backend.append(session.id, entries, idempotency_key="k")
            assert (caught.value.session_id, caught.value.key) == (session.id, "k")

    async def test_another_operation_under_the_same_key_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        await backend.append(session.id, [user()], idempotency_key="append")
        await backend.move(session.id, None, idempotency_key="move")
        await backend.fork(session.id, None, NewSession(), idempotency_key="fork")
        await backend.create_task(session.id, "t", NewSession(), idempotency_key="task")
        async with unchanged(backend):
            for key in ("append", "move", "fork", "task"):
                if key != "append":
                    with pytest.raises(IdempotencyConflict):
                        await backend.append(session.id, [user()], idempotency_key=key)
                if key != "move":
                    with pytest.raises(IdempotencyConflict):
                        await backend.move(session.id, None, idempotency_key=key)
                if key != "fork":
                    with pytest.raises(IdempotencyConflict):
                        await backend.fork(session.id, None, NewSession(), idempotency_key=key)
                if key != "task":
                    with pytest.raises(IdempotencyConflict):
                        await backend.create_task(session.id, "t", NewSession(), idempotency_key=key)

    async def test_a_task_is_told_from_a_fork_that_is_described_alike(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        await backend.fork(session.id, STORED, NewSession(), idempotency_key="k")
        async with refused(backend, IdempotencyConflict):
            await backend.create_task(session.id, "stored leaf", NewSession(), idempotency_key="k")

    async def test_a_key_belongs_to_its_session(self, backend: Backend) -> None:
        one, two = await new_session(backend), await new_session(backend)
        fork = await backend.fork(one.id, STORED, NewSession())
        for session in (one, two, fork):
            appended = await backend.append(session.id, [user(session.id)], idempotency_key="k")
            assert not appended.replayed
            assert len(await path_ids(backend, session.id)) == 1

    async def test_a_key_may_be_any_text(self, backend: Backend) -> None:
        session = await new_session(backend)
        for key in ("", " ", "Ключ 🔑", "k" * 1000):
            first = await backend.append(session.id, [user(key)], idempotency_key=key)
            again = await backend.append(session.id, [user(key)], idempotency_key=key)
            assert (first.replayed, again.replayed) == (False, True)

    async def test_an_operation_that_failed_does_not_use_up_its_key(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        with pytest.raises(EntryNotFound):
            await backend.append(session.id, [compaction(UNKNOWN)], idempotency_key="k")
        appended = await backend.append(session.id, [user("other")], idempotency_key="k")
        assert not appended.replayed

    async def test_of_several_retries_at_once_one_is_the_first(self, backend: Backend) -> None:
        session = await new_session(backend)
        results = await together(*(backend.append(session.id, talk(2), idempotency_key="k") for _ in range(6)))
        assert sorted(result.replayed for result in results) == [False] + [True] * 5
        assert {result.entry_ids for result in results} == {tuple(await path_ids(backend, session.id))}

    # -- moves --------------------------------------------------------------------------------------------------

    async def test_the_retry_of_a_move_does_not_move_again(self, backend: Backend) -> None:
        session = await new_session(backend)
        older, leaf = await add(backend, session.id, *talk(2))
        first = await backend.move(session.id, older, expected=leaf, idempotency_key="k")
        await backend.move(session.id, leaf)
        async with unchanged(backend):
            again = await backend.move(session.id, older, expected=leaf, idempotency_key="k")
        assert again == replace(first, replayed=True)

    async def test_the_retry_of_a_move_that_was_there_already_does_not_move_either(self, backend: Backend) -> None:
        session = await new_session(backend)
        older, leaf = await add(backend, session.id, *talk(2))
        first = await backend.move(session.id, leaf, idempotency_key="k")
        await backend.move(session.id, older)
        async with unchanged(backend):
            again = await backend.move(session.id, leaf, idempotency_key="k")
        assert again == replace(first, replayed=True)

    async def test_a_move_elsewhere_under_the_same_key_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend)
        older, leaf = await add(backend, session.id, *talk(2))
        await backend.move(session.id, older, idempotency_key="k")
        refusals = Refusals(backend)
        for to in (leaf, None):
            async with refusals.refused(IdempotencyConflict):
                await backend.move(session.id, to, idempotency_key="k")

    # -- forks and tasks ------------------------------------------------------------------------------------------

    async def test_the_retry_of_a_fork_returns_the_same_fork_as_it_is_now(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        new = NewSession(key="forked", title="x", metadata_text='{"a":1}')
        first = await backend.fork(session.id, STORED, new, idempotency_key="k")
        await add(backend, session.id, *talk(1))
        await add(backend, first.id, *talk(2))
        async with unchanged(backend):
            again = await backend.fork(session.id, STORED, new, idempotency_key="k")
        assert again == await session_info(backend, first.id)
        assert again.revision == 1

    async def test_another_fork_under_the_same_key_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        await backend.fork(session.id, session.leaf_id, NewSession(title="x"), idempotency_key="k")
        others = [
            (None, NewSession(title="x")),
            (session.leaf_id, NewSession()),
            (session.leaf_id, NewSession(key="y")),
        ]
        refusals = Refusals(backend)
        for at, new in others:
            async with refusals.refused(IdempotencyConflict):
                await backend.fork(session.id, at, new, idempotency_key="k")

    async def test_the_retry_of_a_task_returns_the_same_child(self, backend: Backend) -> None:
        session = await new_session(backend)
        first = await backend.create_task(session.id, "t", NewSession(title="x"), idempotency_key="k")
        async with unchanged(backend):
            again = await backend.create_task(session.id, "t", NewSession(title="x"), idempotency_key="k")
        assert again.id == first.id
        refusals = Refusals(backend)
        for task_id, title in (("u", "x"), ("t", "y")):
            async with refusals.refused(IdempotencyConflict):
                await backend.create_task(session.id, task_id, NewSession(title=title), idempotency_key="k")

    @pytest.mark.parametrize("operation", ["fork", "task"])
    async def test_the_retry_for_a_session_that_was_deleted_since_says_so(
        self, backend: Backend, operation: str
    ) -> None:
        session = await new_session(backend, *talk(2))

        async def make() -> str:
            if operation == "fork":
                return (await backend.fork(session.id, STORED, NewSession(), idempotency_key="k")).id
            return (await backend.create_task(session.id, "t", NewSession(), idempotency_key="k")).id

        made = await make()
        await backend.delete_tree(made)
        async with refused(backend, SessionNotFound) as caught:
            await make()
        assert made in str(caught.value)
        assert "deleted" in str(caught.value)

    async def test_keys_go_with_their_session(self, backend: Backend) -> None:
        await backend.create_session(NewSession(id="again"))
        await backend.append("again", [user("one")], idempotency_key="k")
        await backend.delete_tree("again")
        await backend.create_session(NewSession(id="again"))
        appended = await backend.append("again", [user("two")], idempotency_key="k")
        assert not appended.replayed
