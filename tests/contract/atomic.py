"""The contract: several operations are one transaction, on any sessions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from flue_py.core.entries import NewEntry
from flue_py.core.operations import (
    AppendEntries,
    CreateSession,
    CreateTask,
    DeleteTree,
    EndTask,
    ForkSession,
    Left,
    LinkTask,
    MoveLeaf,
    Navigate,
    Operation,
    Redo,
    SetLabel,
    SetPin,
    Undo,
    UpdateSession,
)
from flue_py.core.sessions import (
    STORED,
    Appended,
    Deletion,
    Expected,
    Mark,
    Moved,
    Navigated,
    NewSession,
    Note,
    Seen,
    SessionInfo,
)
from flue_py.db.backend import Backend
from flue_py.errors import (
    EntryNotFound,
    FlueError,
    IdempotencyConflict,
    InvalidArgument,
    InvalidEntry,
    LeafConflict,
    RevisionConflict,
    SessionExists,
    SessionNotFound,
)
from tests.checks import refused, unchanged
from tests.samples import UNKNOWN, new_session, path_ids, placed, session_info, talk, user
from tests.together import outcomes, together


def say(session_id: str, *ids: str, expected: Expected = STORED, key: str | None = None) -> AppendEntries:
    """Return an append of messages with these ids."""
    return AppendEntries(session_id, [placed(user("said"), entry_id) for entry_id in ids], expected, "raise", key)


WRONG: dict[str, tuple[type[FlueError], Operation]] = {
    "leaf": (LeafConflict, say("one", "x", expected=UNKNOWN)),
    "revision": (RevisionConflict, SetLabel("one", "a", "x", Seen(revision=99))),
    "entry": (EntryNotFound, MoveLeaf("two", UNKNOWN)),
    "taken id": (InvalidEntry, say("one", "a")),
    "session": (SessionNotFound, UpdateSession(UNKNOWN, title="x")),
    "taken session": (SessionExists, CreateSession(NewSession(id="two"))),
    "deleted in the batch": (SessionNotFound, say("gone", "y")),
    "not pinnable": (InvalidArgument, SetPin("one", "note", True)),
}


class AtomicContract:
    """`Backend.atomic`."""

    async def test_each_operation_finds_what_earlier_ones_did(self, backend: Backend) -> None:
        first = await backend.create_session(NewSession(id="first"))
        done = await backend.atomic(
            [
                say(first.id, "a", "b"),
                ForkSession(first.id, "a", NewSession(id="fork")),
                say("fork", "c", expected="a"),
                SetLabel("fork", "c", "from the batch"),
                CreateTask("fork", "t", NewSession(id="task")),
                say("task", "d"),
                MoveLeaf(first.id, "a", expected="b"),
                CreateSession(NewSession(id="new", key="k")),
                LinkTask("new", "fork", "l"),
                UpdateSession("new", title="made here"),
                SetPin(first.id, "a", True),
            ]
        )
        assert [type(outcome).__name__ for outcome in done.outcomes] == [
            "Appended", "SessionInfo", "Appended", "NoneType", "SessionInfo", "Appended", "Moved", "SessionInfo",
            "NoneType", "SessionInfo", "tuple",
        ]  # fmt: skip
        assert done.left == {
            "first": Left("a", 3), "fork": Left("c", 3), "task": Left("d", 2), "new": Left(None, 2),
        }  # fmt: skip
        assert not done.replayed
        for session_id, left in done.left.items():
            info = await session_info(backend, session_id)
            assert (info.leaf_id, info.revision) == (left.leaf_id, left.revision)
        assert await path_ids(backend, "fork") == ["a", "c"]
        assert ("c", "from the batch") in [(mark.entry_id, mark.value) for mark in await backend.read_marks("fork")]
        assert [link.child_id for link in await backend.task_links("new")] == ["fork"]
        assert [line.revision for line in await backend.read_log("first", before=None, limit=9)] == [3, 2, 1]

    @pytest.mark.parametrize("wrong", WRONG)
    @pytest.mark.parametrize("place", [0, 3, 5])
    async def test_what_one_operation_raises_undoes_all_and_names_it(
        self, backend: Backend, wrong: str, place: int
    ) -> None:
        for session_id in ("one", "two", "gone"):
            await backend.create_session(NewSession(id=session_id))
        await backend.append("one", [placed(user(), "a"), NewEntry.custom("note", 1, id="note")])
        error, operation = WRONG[wrong]
        operations: list[Operation] = [
            DeleteTree("gone"),
            say("one", "n1"),
            ForkSession("one", "n1", NewSession(id="forked")),
            UpdateSession("two", title="changed", metadata_text='{"n":1}'),
            say("forked", "n2"),
        ]
        operations.insert(0 if place == 0 and wrong != "deleted in the batch" else max(place, 1), operation)
        number = operations.index(operation)
        async with refused(backend, error) as caught:
            await backend.atomic(operations)
        assert caught.value.operation == number
        (told,) = caught.value.__notes__
        assert told.startswith(f"operation {number + 1} of 6: ")

    async def test_nothing_to_do_does_nothing(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        async with unchanged(backend):
            assert (await backend.atomic([])).outcomes == ()
            done = await backend.atomic([AppendEntries(session.id, [])])
        assert done.left == {session.id: Left(session.leaf_id, session.revision)}

    async def test_expected_revisions_are_those_before_the_batch(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        seen = Seen(revision=session.revision)
        operations: list[Operation] = [
            say(session.id, "a", expected=seen),
            SetLabel(session.id, "a", "x", seen),
            UpdateSession(session.id, title="x", expected=seen),
        ]
        await backend.atomic(operations)
        async with refused(backend, RevisionConflict) as caught:
            await backend.atomic([say(session.id, "b"), SetLabel(session.id, "a", "y", seen)])
        error = caught.value
        assert (error.operation, error.expected, error.actual) == (1, session.revision, session.revision + 3)

    async def test_a_branch_in_a_batch_moves_no_leaf(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        first, leaf = await path_ids(backend, session.id)
        done = await backend.atomic(
            [
                AppendEntries(session.id, [placed(user(), "beside")], first, "branch"),
                say(session.id, "on", expected=leaf),
            ]
        )
        assert await path_ids(backend, session.id) == [first, leaf, "on"]
        landed = done.outcomes[0]
        assert isinstance(landed, Appended)
        assert (landed.on_branch, landed.parent_id) == (True, first)

    async def test_a_deletion_in_a_batch_takes_along_what_the_batch_did_there(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        done = await backend.atomic(
            [
                say(session.id, "a"),
                ForkSession(session.id, "a", NewSession(id="kept")),
                DeleteTree(session.id),
            ]
        )
        deletion = done.outcomes[-1]
        assert isinstance(deletion, Deletion)
        assert (deletion.session_ids, deletion.entries_kept) == ((session.id,), 3)
        assert done.left == {"kept": Left("a", 0)}
        assert (await path_ids(backend, "kept"))[-1] == "a"

    # -- idempotency ------------------------------------------------------------------------------------------------

    async def test_a_batch_with_a_key_is_done_once(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        other = await new_session(backend, *talk(1))

        def operations(prefix: str) -> Sequence[Operation]:
            return [
                say(session.id, f"{prefix}a", expected=session.leaf_id),
                SetLabel(session.id, f"{prefix}a", "x", Seen(revision=session.revision)),
                ForkSession(session.id, f"{prefix}a", NewSession(), drawn_id=f"{prefix}fork"),
                say(f"{prefix}fork", f"{prefix}b"),
                MoveLeaf(other.id, None),
                UpdateSession(other.id, title="x"),
                SetPin(session.id, f"{prefix}a", True),
                DeleteTree(UNKNOWN),
            ]

        first = await backend.atomic(operations("1"), idempotency_key="k")
        async with unchanged(backend):
            # A retry draws other ids: it gets those of the first.
            again = await backend.atomic(operations("2"), idempotency_key="k")
        assert (first.replayed, again.replayed) == (False, True)
        landed, forked = again.outcomes[0], again.outcomes[2]
        assert isinstance(landed, Appended)
        assert isinstance(forked, SessionInfo)
        assert (landed.entry_ids, landed.replayed, forked.id) == (("1a",), True, "1fork")
        assert again.outcomes[6:] == first.outcomes[6:]
        assert again.left[session.id] == first.left[session.id]
        async with refused(backend, IdempotencyConflict):
            await backend.atomic(operations("3")[:2], idempotency_key="k")
        async with refused(backend, IdempotencyConflict):
            await backend.append(session.id, [user()], idempotency_key="k")

    async def test_what_appends_of_a_batch_came_to_is_recalled_by_its_key(self, backend: Backend) -> None:
        session = await new_session(backend)
        operations: list[Operation] = [say(session.id, "a"), MoveLeaf(session.id, None), say(session.id, "b")]
        assert await backend.recall_atomic(operations, "k") is None
        first = await backend.atomic(operations, idempotency_key="k")
        appended = [replace(each, replayed=True) if isinstance(each, Appended) else None for each in first.outcomes]
        assert await backend.recall_atomic(operations, "k") == appended
        assert await backend.recall_atomic(operations[:2], "k") is None
        assert await backend.recall_atomic([CreateSession(NewSession())], "k") is None
        assert await backend.recall_atomic([operations[0], say(session.id, "c"), operations[1]], "k") == [
            appended[0],
            None,
            None,
        ]
        await backend.append(session.id, [user()], idempotency_key="other")
        assert await backend.recall_atomic(operations, "other") is None
        with pytest.raises(SessionNotFound):
            await backend.recall_atomic([say(UNKNOWN, "a")], "k")

    async def test_a_key_belongs_to_a_session_that_was_there(self, backend: Backend) -> None:
        async with refused(backend, InvalidArgument):
            await backend.atomic([CreateSession(NewSession(id="new")), say("new", "a")], idempotency_key="k")
        session = await new_session(backend)
        await backend.atomic([CreateSession(NewSession(id="new")), say(session.id, "a")], idempotency_key="k")
        again = await backend.atomic([CreateSession(NewSession(id="new")), say(session.id, "b")], idempotency_key="k")
        assert again.replayed
        async with refused(backend, IdempotencyConflict):
            await backend.atomic([CreateSession(NewSession(id="x")), say(session.id, "b")], idempotency_key="k")

    async def test_a_key_goes_with_its_session(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        await backend.atomic([say(session.id, "a"), DeleteTree(session.id)], idempotency_key="k")
        async with refused(backend, SessionNotFound):
            await backend.atomic([say(session.id, "a"), DeleteTree(session.id)], idempotency_key="k")

    async def test_what_had_a_key_of_its_own_is_what_later_operations_mean(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))

        def operations(prefix: str) -> Sequence[Operation]:
            return [
                say(session.id, f"{prefix}a", f"{prefix}b", key="append"),
                ForkSession(session.id, f"{prefix}a", NewSession(), idempotency_key="f", drawn_id=f"{prefix}fork"),
                SetLabel(session.id, f"{prefix}b", prefix),
                MoveLeaf(session.id, f"{prefix}a", f"{prefix}b", idempotency_key="move"),
                LinkTask(session.id, f"{prefix}fork", "t", f"{prefix}a"),
            ]

        await backend.atomic(operations("1"))
        again = await backend.atomic(operations("2"))
        landed = again.outcomes[0]
        assert isinstance(landed, Appended)
        assert (landed.replayed, landed.entry_ids) == (True, ("1a", "1b"))
        labels = {mark.entry_id: mark.value for mark in await backend.read_marks(session.id)}
        assert labels == {"1b": "2"}
        assert await backend.get_session("2fork") is None
        (link,) = await backend.task_links(session.id)
        assert (link.child_id, link.entry_id) == ("1fork", "1a")

    # -- several at once --------------------------------------------------------------------------------------------

    async def test_batches_on_the_same_sessions_at_once_happen_one_after_the_other(self, backend: Backend) -> None:
        sessions = [(await new_session(backend)).id for _ in range(4)]

        async def write(number: int) -> None:
            order = sessions if number % 2 else sessions[::-1]
            await backend.atomic([say(session, f"{number}-{session}") for session in order])

        await together(*(write(number) for number in range(12)))
        told = [[entry_id.partition("-")[0] for entry_id in await path_ids(backend, session)] for session in sessions]
        assert len(told[0]) == 12
        assert told == [told[0]] * 4

    async def test_a_batch_that_is_refused_does_not_fail_those_beside_it(self, backend: Backend) -> None:
        sessions = [(await new_session(backend, user())) for _ in range(6)]
        writers = [
            backend.atomic(
                [
                    say(session.id, f"a{number}"),
                    say(session.id, f"b{number}", expected=f"a{number}" if number % 2 else UNKNOWN),
                ]
            )
            for number, session in enumerate(sessions)
        ]
        results = await outcomes(*writers)
        assert [isinstance(result, LeafConflict) for result in results] == [True, False] * 3
        assert [len(await path_ids(backend, session.id)) for session in sessions] == [1, 3] * 3

    async def test_a_reader_never_sees_half_of_a_batch(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))

        async def write() -> None:
            for number in range(15):
                await backend.atomic([say(session.id, f"a{number}"), say(session.id, f"b{number}")])
                await checkpoint()

        async def read() -> None:
            for _ in range(15):
                assert len(await path_ids(backend, session.id)) % 2 == 0
                await checkpoint()

        await together(write(), read())
        assert len(await path_ids(backend, session.id)) == 32

    async def test_going_elsewhere_is_found_out_when_it_is_done(self, backend: Backend) -> None:
        session = await new_session(backend, *[placed(new, f"e{n}") for n, new in enumerate(talk(4))])
        summary = replace(NewEntry.branch_summary("what was left", from_id=None), id="s")
        operations: list[Operation] = [
            say(session.id, "u"),
            Navigate(session.id, "e2", summary, "tried"),
            say(session.id, "v"),
            Navigate(session.id, "e1", note=Note("guide")),
            Undo(session.id),
            Undo(session.id),
            Redo(session.id),
            Navigate(session.id, "v"),
        ]
        committed = await backend.atomic(operations)
        _, first, _, second, *steps, last = committed.outcomes
        # Before what a person wrote, with a summary that names what it lies below and what was left.
        assert first == Navigated("u", "s", session.revision + 3, "s", "question 2")
        entry = await backend.get_entry(session.id, "s")
        assert entry is not None
        assert (entry.parent_id, entry.fields) == (
            "e1",
            {"summary": "what was left", "fromId": "e1", "abandonedLeafId": "u"},
        )
        assert Mark("s", "label", "tried") in await backend.read_marks(session.id)
        assert second == Navigated("v", "e1", session.revision + 5)
        assert [(step.from_id, step.to_id) for step in steps if isinstance(step, Moved)] == [
            ("e1", "v"),
            ("v", "s"),
            ("s", "v"),
        ]
        assert last == Navigated("v", "v", committed.left[session.id].revision)
        assert committed.left[session.id].leaf_id == "v"

    async def test_a_retry_of_going_elsewhere_has_other_ids_and_the_same_answer(self, backend: Backend) -> None:
        session = await new_session(backend, *[placed(new, f"e{n}") for n, new in enumerate(talk(2))])

        def asked(name: str) -> list[Operation]:
            left = replace(NewEntry.branch_summary("left", from_id=None), id=name)
            return [Navigate(session.id, "e0", left), Undo(session.id), Undo(session.id), Undo(session.id)]

        first = await backend.atomic(asked("one"), idempotency_key="k")
        async with unchanged(backend):
            again = await backend.atomic(asked("two"), idempotency_key="k")
        assert again.replayed
        assert again.outcomes[0] == first.outcomes[0]
        steps = [[each.to_id for each in done.outcomes if isinstance(each, Moved)] for done in (first, again)]
        assert steps[0] == steps[1]
        with pytest.raises(IdempotencyConflict):
            await backend.atomic([*asked("three")[:2], Redo(session.id)], idempotency_key="k")

    async def test_a_task_may_begin_and_end_in_one_batch(self, backend: Backend) -> None:
        parent = await new_session(backend)
        task = CreateTask(parent.id, "t", NewSession(), drawn_id="task")
        await backend.atomic([task, say("task", "a"), EndTask("task", "done", "said it")])
        (link,) = await backend.task_links(parent.id)
        assert (link.child_id, link.status, link.summary) == ("task", "done", "said it")
        for wrong in (EndTask(parent.id, "done"), Navigate(parent.id, UNKNOWN), Undo(UNKNOWN)):
            async with refused(backend, FlueError) as caught:
                await backend.atomic([say(parent.id, "never"), wrong])
            assert caught.value.operation == 1
