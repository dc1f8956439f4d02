"""The contract: several operations at once, input that is refused, and large input."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from flue_py import errors
from flue_py.core.entries import NewEntry
from flue_py.core.ledger import Amounts, NewBudget
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
    MAX_NAME_BYTES,
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
from tests.checks import Refusals, raises, refusal, refused, unchanged
from tests.samples import (
    UNKNOWN,
    add,
    assistant,
    compaction,
    context_of,
    entries_of,
    new_session,
    path_ids,
    path_of,
    placed,
    session_info,
    talk,
    talked,
    tree_ids,
    user,
)
from tests.sources import OpenBackend, counted_sources
from tests.tables import inputs
from tests.together import outcomes, together
from tests.values import existing


def say(session_id: str, *ids: str, expected: Expected = STORED, key: str | None = None) -> AppendEntries:
    """Return an append of messages with these ids."""
    return AppendEntries(session_id, [placed(user("said"), entry_id) for entry_id in ids], expected, "raise", key)


WRONG: dict[str, tuple[type[errors.FlueError], Operation]] = {
    "leaf": (errors.LeafConflict, say("one", "x", expected=UNKNOWN)),
    "revision": (errors.RevisionConflict, SetLabel("one", "a", "x", Seen(revision=99))),
    "entry": (errors.EntryNotFound, MoveLeaf("two", UNKNOWN)),
    "taken id": (errors.InvalidEntry, say("one", "a")),
    "session": (errors.SessionNotFound, UpdateSession(UNKNOWN, title="x")),
    "taken session": (errors.SessionExists, CreateSession(NewSession(id="two"))),
    "deleted in the batch": (errors.SessionNotFound, say("gone", "y")),
    "not pinnable": (errors.InvalidArgument, SetPin("one", "note", True)),
}


UNSTORABLE = ["a\0b", "\0", "half \ud800"]
"""Text that no backend could store as an id, a key or a title."""


def every_call(backend: Backend, session_id: str, entry_id: str) -> Sequence[Callable[[], Awaitable[object]]]:
    """Return one call of each method that names a session, for a session with this entry as its leaf."""
    return [
        lambda: backend.update_session(session_id, title="x"),
        lambda: backend.adopt_session(session_id, "s"),
        lambda: backend.append(session_id, [user()]),
        lambda: backend.append(session_id, []),
        lambda: backend.import_entries(session_id, [placed(user(), "i")], leaf="i"),
        lambda: backend.move(session_id, None),
        lambda: backend.retract(session_id, entry_id),
        lambda: backend.undo(session_id),
        lambda: backend.redo(session_id),
        lambda: backend.fork(session_id, STORED, NewSession()),
        lambda: backend.create_task(session_id, "t", NewSession()),
        lambda: backend.link_task(session_id, UNKNOWN, "t"),
        lambda: backend.end_task(session_id, "done"),
        lambda: backend.task_links(session_id),
        lambda: backend.task_parents(session_id),
        lambda: backend.read_path(session_id),
        lambda: backend.read_path_since(session_id, None),
        lambda: backend.read_context(session_id),
        lambda: backend.read_messages(session_id),
        lambda: backend.read_usage(session_id, None),
        lambda: backend.read_entry_costs(session_id),
        lambda: backend.read_turns(session_id),
        lambda: backend.read_settings(session_id),
        lambda: backend.read_tree(session_id),
        lambda: backend.get_entry(session_id, entry_id),
        lambda: backend.match_entry_ids(session_id, ""),
        lambda: backend.is_ancestor(session_id, entry_id, entry_id),
        lambda: backend.changes(session_id, 0, 10),
        lambda: backend.set_label(session_id, entry_id, "x"),
        lambda: backend.read_marks(session_id),
        lambda: backend.set_budget(NewBudget("tasks", "tokens", 5, session_id)),
        lambda: backend.covering_budgets(session_id),
        lambda: backend.reserve(session_id, Amounts(1), 1_000_000),
    ]


async def errors_of(
    backend: Backend, error: type[Exception], calls: Sequence[Callable[[], Awaitable[object]]]
) -> list[Exception]:
    """Return what each call raises, which is of this type; together they change nothing."""
    raised: list[Exception] = []
    async with unchanged(backend):
        for call in calls:
            with pytest.raises(error) as caught:
                await call()
            raised.append(caught.value)
    return raised


class AtomicContract:
    """Several operations are one transaction, on any sessions."""

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

    async def test_what_one_operation_raises_undoes_all_and_names_it(self, backend: Backend) -> None:
        for session_id in ("one", "two", "gone"):
            await backend.create_session(NewSession(id=session_id))
        await backend.append("one", [placed(user(), "a"), NewEntry.custom("note", 1, id="note")])
        refusals, right = Refusals(backend), (
            DeleteTree("gone"),
            say("one", "n1"),
            ForkSession("one", "n1", NewSession(id="forked")),
            UpdateSession("two", title="changed", metadata_text='{"n":1}'),
            say("forked", "n2"),
        )  # fmt: skip
        for wrong, (error, operation) in WRONG.items():
            for place in (0 if wrong != "deleted in the batch" else 1, 5):
                operations: list[Operation] = [*right[:place], operation, *right[place:]]
                caught = await refusals.of(error, backend.atomic(operations))
                assert caught.value.operation == place, wrong
                (told,) = caught.value.__notes__
                assert told.startswith(f"operation {place + 1} of 6: "), wrong
        await backend.atomic(right)

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
        async with refused(backend, errors.RevisionConflict) as caught:
            await backend.atomic([say(session.id, "b"), SetLabel(session.id, "a", "y", seen)])
        error = caught.value
        assert (error.operation, error.expected, error.actual) == (1, session.revision, session.revision + 3)

    async def test_a_branch_in_a_batch_moves_no_leaf(self, backend: Backend) -> None:
        session, (first, leaf) = await talked(backend, 2)
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
            [say(session.id, "a"), ForkSession(session.id, "a", NewSession(id="kept")), DeleteTree(session.id)]
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
        await refusal(backend, errors.IdempotencyConflict, backend.atomic(operations("3")[:2], idempotency_key="k"))
        await refusal(backend, errors.IdempotencyConflict, backend.append(session.id, [user()], idempotency_key="k"))

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
        await raises(errors.SessionNotFound, backend.recall_atomic([say(UNKNOWN, "a")], "k"))

    async def test_a_key_belongs_to_a_session_that_was_there(self, backend: Backend) -> None:
        async with refused(backend, errors.InvalidArgument):
            await backend.atomic([CreateSession(NewSession(id="new")), say("new", "a")], idempotency_key="k")
        session = await new_session(backend)
        await backend.atomic([CreateSession(NewSession(id="new")), say(session.id, "a")], idempotency_key="k")
        again = await backend.atomic([CreateSession(NewSession(id="new")), say(session.id, "b")], idempotency_key="k")
        assert again.replayed
        async with refused(backend, errors.IdempotencyConflict):
            await backend.atomic([CreateSession(NewSession(id="x")), say(session.id, "b")], idempotency_key="k")

    async def test_a_key_goes_with_its_session(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        await backend.atomic([say(session.id, "a"), DeleteTree(session.id)], idempotency_key="k")
        async with refused(backend, errors.SessionNotFound):
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
        assert [isinstance(result, errors.LeafConflict) for result in results] == [True, False] * 3
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
        entry = existing(await backend.get_entry(session.id, "s"))
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
        with pytest.raises(errors.IdempotencyConflict):
            await backend.atomic([*asked("three")[:2], Redo(session.id)], idempotency_key="k")

    async def test_a_task_may_begin_and_end_in_one_batch(self, backend: Backend) -> None:
        parent = await new_session(backend)
        task = CreateTask(parent.id, "t", NewSession(), drawn_id="task")
        await backend.atomic([task, say("task", "a"), EndTask("task", "done", "said it")])
        (link,) = await backend.task_links(parent.id)
        assert (link.child_id, link.status, link.summary) == ("task", "done", "said it")
        for wrong in (EndTask(parent.id, "done"), Navigate(parent.id, UNKNOWN), Undo(UNKNOWN)):
            caught = await refusal(backend, errors.FlueError, backend.atomic([say(parent.id, "never"), wrong]))
            assert caught.value.operation == 1


class BadInputContract:
    """Bad input is refused by name, and changes nothing."""

    async def test_every_method_refuses_a_session_that_is_missing(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        assert session.leaf_id is not None
        for error in await errors_of(backend, errors.SessionNotFound, every_call(backend, UNKNOWN, session.leaf_id)):
            assert UNKNOWN in str(error)

    async def test_every_method_refuses_a_session_that_was_deleted(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        assert session.leaf_id is not None
        await backend.fork(session.id, STORED, NewSession())
        await backend.delete_tree(session.id)
        await errors_of(backend, errors.SessionNotFound, every_call(backend, session.id, session.leaf_id))

    async def test_every_method_refuses_to_work_once_the_store_is_closed(self, open_backend: OpenBackend) -> None:
        backend = await open_backend(counted_sources())
        session = await new_session(backend, *talk(2), key="k")
        assert session.leaf_id is not None
        await backend.close()
        await backend.close()
        calls: list[Callable[[], Awaitable[object]]] = [
            *every_call(backend, session.id, session.leaf_id),
            *every_call(backend, UNKNOWN, UNKNOWN),
            lambda: backend.create_session(NewSession()),
            lambda: backend.get_session(session.id),
            lambda: backend.get_session_by_key("k", ""),
            lambda: backend.list_sessions(scope=None, kind=None, limit=1, cursor=None),
            lambda: backend.match_session_ids(""),
            lambda: backend.delete_tree(session.id),
            backend.verify,
            backend.info,
        ]
        for call in calls:
            await raises(errors.StoreClosed, call())

    async def test_a_name_of_the_greatest_length_is_kept_and_a_longer_one_is_refused(self, backend: Backend) -> None:
        longest = "é" * (MAX_NAME_BYTES // 2)
        session = await new_session(backend, placed(user(), longest), key=longest, scope=longest)
        assert session.leaf_id == longest
        assert await backend.get_session_by_key(longest, longest) == session
        await backend.append(session.id, [user()], idempotency_key=longest)
        child = await backend.create_task(session.id, longest, NewSession(id=longest))
        assert [link.task_id for link in await backend.task_links(session.id)] == [longest]
        assert child.id == longest
        longer = longest + "x"
        await errors_of(
            backend,
            errors.InvalidArgument,
            [
                lambda: backend.append(session.id, [user()], idempotency_key=longer),
                lambda: backend.move(session.id, None, idempotency_key=longer),
                lambda: backend.create_task(session.id, longer, NewSession()),
                lambda: backend.link_task(session.id, "child", longer),
                lambda: backend.link_task(session.id, longer, "t"),
            ],
        )
        await errors_of(backend, errors.InvalidEntry, [lambda: backend.append(session.id, [placed(user(), longer)])])

    @inputs("text", UNSTORABLE)
    async def test_text_that_cannot_be_stored_is_refused_wherever_it_is_given(
        self, backend: Backend, text: str
    ) -> None:
        session = await new_session(backend, *talk(2))
        leaf = existing(session.leaf_id)
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: backend.create_session(NewSession(key=text)),
            lambda: backend.create_session(NewSession(title=text)),
            lambda: backend.create_session(NewSession(scope=text)),
            lambda: backend.create_session(NewSession(id=text)),
            lambda: backend.update_session(session.id, title=text),
            lambda: backend.fork(session.id, STORED, NewSession(title=text)),
            lambda: backend.create_task(session.id, text, NewSession()),
            lambda: backend.link_task(session.id, text, "t"),
            lambda: backend.link_task(session.id, "child", text),
            lambda: backend.set_label(session.id, leaf, text),
            lambda: backend.move(session.id, None, note=Note(text)),
            lambda: backend.undo(session.id, note=Note(text)),
            lambda: backend.redo(session.id, note=Note(text)),
            lambda: backend.append(session.id, [user()], idempotency_key=text),
            lambda: backend.move(session.id, None, idempotency_key=text),
            lambda: backend.fork(session.id, STORED, NewSession(), idempotency_key=text),
            lambda: backend.create_task(session.id, "t", NewSession(), idempotency_key=text),
        ]
        await errors_of(backend, errors.InvalidArgument, calls)
        refusals = Refusals(backend)
        for entries in ([placed(user(), text)], [placed(user(), "fine"), placed(user(), text)]):
            await refusals.of(errors.InvalidEntry, backend.append(session.id, entries))
            await refusals.of(errors.InvalidEntry, backend.import_entries(session.id, entries, leaf=None))

    @inputs("text", UNSTORABLE)
    async def test_what_cannot_be_stored_is_not_found_either(self, backend: Backend, text: str) -> None:
        session = await new_session(backend, *talk(2), key=ascii(text))
        leaf = existing(session.leaf_id)
        assert await backend.get_session(text) is None
        assert await backend.get_session(session.id, text) is None
        assert await backend.get_session_by_key(text, "") is None
        assert await backend.get_session_by_key(ascii(text), text) is None
        assert await backend.match_session_ids(text) == []
        assert await backend.get_entry(session.id, text) is None
        assert await backend.match_entry_ids(session.id, text) == []
        assert await backend.retract(session.id, text) is None
        assert (await backend.delete_tree(text)).session_ids == ()
        assert (await backend.list_sessions(scope=text, kind=None, limit=1, cursor=None)).sessions == ()
        assert entries_of(await backend.read_path_since(session.id, text)) == []
        assert not (await backend.read_usage(session.id, text)).on_path
        await errors_of(backend, errors.SessionNotFound, every_call(backend, text, leaf))
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: backend.move(session.id, text),
            lambda: backend.read_path(session.id, leaf=text),
            lambda: backend.fork(session.id, text, NewSession()),
            lambda: backend.is_ancestor(session.id, text, leaf),
            lambda: backend.is_ancestor(session.id, leaf, text),
            lambda: backend.set_label(session.id, text, "x"),
            lambda: backend.append(session.id, [user()], expected=text, on_conflict="branch"),
            lambda: backend.import_entries(session.id, [placed(user(), "i", text)], leaf=None),
            lambda: backend.import_entries(session.id, [], leaf=text),
        ]
        await errors_of(backend, errors.EntryNotFound, calls)

    async def test_an_empty_entry_id_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        refusals = Refusals(backend)
        await refusals.of(errors.InvalidEntry, backend.append(session.id, [placed(user(), "")]))
        await refusals.of(errors.InvalidEntry, backend.import_entries(session.id, [placed(user(), "")], leaf=None))

    async def test_an_empty_session_id_is_refused(self, backend: Backend) -> None:
        with pytest.raises(errors.InvalidArgument):
            await backend.create_session(NewSession(id=""))

    async def test_a_page_of_no_sessions_is_refused(self, backend: Backend) -> None:
        for limit in (0, -1):
            await raises(errors.InvalidArgument, backend.list_sessions(scope=None, kind=None, limit=limit, cursor=None))

    async def test_a_store_goes_on_after_refusals(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        for _ in range(3):
            await raises(errors.EntryNotFound, backend.move(session.id, UNKNOWN))
            await add(backend, session.id, user())
        assert len(await backend.read_tree(session.id)) == 5


class SizeContract:
    """Large messages, deep paths, many forks."""

    @pytest.mark.parametrize("unit", ["x", "é\0🚨", '"\\'])
    async def test_a_message_of_a_megabyte_comes_back_as_it_was(self, backend: Backend, unit: str) -> None:
        text = unit * (1_000_000 // len(unit.encode()))
        new = user(text)
        session = await new_session(backend, user("small"), new, user("small"))
        fork = await backend.fork(session.id, STORED, NewSession())
        for session_id in (session.id, fork.id):
            entry = (await path_of(backend, session_id))[1]
            assert entry.payload == new.payload
            assert entry.fields["content"] == text
        await backend.delete_tree(session.id)
        assert (await path_of(backend, fork.id))[1].payload == new.payload

    async def test_the_same_large_payload_may_be_stored_many_times_and_deleted_bit_by_bit(
        self, backend: Backend
    ) -> None:
        large = NewEntry.custom("artifact", "0123456789abcdef" * 8_000)
        session = await new_session(backend, large, large)
        fork = await backend.fork(session.id, (await path_ids(backend, session.id))[0], NewSession())
        await add(backend, fork.id, large)
        other = await new_session(backend, large)
        await backend.delete_tree(session.id)
        assert {entry.payload for entry in await path_of(backend, fork.id)} == {large.payload}
        await backend.delete_tree(other.id)
        assert [entry.payload for entry in await backend.read_tree(fork.id)] == [large.payload] * 2

    async def test_a_long_path_reads_like_a_short_one(self, backend: Backend) -> None:
        session = await new_session(backend)
        ids: list[str] = []
        for start in range(0, 1_500, 500):
            ids += await add(backend, session.id, *talk(500, start))
        path = await path_of(backend, session.id)
        assert [entry.id for entry in path] == ids
        assert path[-1].depth == 1_499
        assert await backend.is_ancestor(session.id, ids[0], ids[-1])
        window = await backend.read_usage(session.id, ids[99])
        assert window.usage.total_tokens == 10 * 700
        (cut,) = await add(backend, session.id, compaction(ids[-2]))
        assert [entry_id for entry_id, _ in await context_of(backend, session.id)] == [cut, *ids[-2:]]
        fork = await backend.fork(session.id, ids[700], NewSession())
        deletion = await backend.delete_tree(session.id)
        assert (deletion.entries_deleted, deletion.entries_kept) == (800, 701)
        assert await path_ids(backend, fork.id) == ids[:701]

    @pytest.mark.parametrize("forks", [100, pytest.param(10_000, marks=pytest.mark.slow)])
    async def test_many_forks_on_one_path_change_nothing_about_it(self, backend: Backend, forks: int) -> None:
        session, ids = await talked(backend, 50)
        made = [await backend.fork(session.id, ids[number % 50], NewSession()) for number in range(forks)]
        for fork in made[:: forks // 10]:
            await add(backend, fork.id, assistant(tokens=1))
        assert await path_ids(backend, session.id) == list(ids)
        assert await tree_ids(backend, session.id) == list(ids)
        assert (await backend.read_usage(session.id, None)).usage.total_tokens == 250
        assert (await backend.info()).sessions == forks + 1
        deletion = await backend.delete_tree(session.id)
        assert (deletion.entries_deleted, deletion.entries_kept) == (0, 50)
        assert await path_ids(backend, made[49].id) == list(ids)

    @pytest.mark.parametrize("forks", [80, pytest.param(2_000, marks=pytest.mark.slow)])
    async def test_a_path_with_a_fork_at_every_entry_is_still_one_path(self, backend: Backend, forks: int) -> None:
        session = await new_session(backend, assistant(tokens=1))
        current, path = session, await path_ids(backend, session.id)
        for _ in range(forks):
            current = await backend.fork(current.id, STORED, NewSession())
            path += await add(backend, current.id, assistant(tokens=1))
        assert await path_ids(backend, current.id) == path
        assert (await backend.read_usage(current.id, path[0])).usage.total_tokens == forks
        assert await backend.is_ancestor(current.id, path[0], path[-1])
        assert [entry.depth for entry in await backend.read_tree(current.id)] == list(range(forks + 1))
        deletion = await backend.delete_tree(session.id)
        assert (deletion.entries_deleted, deletion.entries_kept) == (0, 1)
        assert await path_ids(backend, current.id) == path

    async def test_a_session_with_many_siblings_at_one_entry_keeps_them_all(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        root = session.leaf_id
        children: list[str] = []
        for _ in range(100):
            await backend.move(session.id, root)
            children += await add(backend, session.id, user())
        assert await tree_ids(backend, session.id) == [root, *children]
        for child in children[::20]:
            assert await path_ids(backend, session.id, child) == [root, child]
        assert (await session_info(backend, session.id)).entry_count == 101
