"""The contract: bad input is refused by name, and changes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from flue_py.core.ledger import Amounts, NewBudget
from flue_py.core.sessions import MAX_NAME_BYTES, STORED, NewSession, Note
from flue_py.db.backend import Backend
from flue_py.errors import EntryNotFound, InvalidArgument, InvalidEntry, SessionNotFound, StoreClosed
from tests.checks import Refusals, unchanged
from tests.samples import UNKNOWN, add, entries_of, new_session, placed, talk, user
from tests.sources import OpenBackend, counted_sources

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


class BadInputContract:
    """Refusals."""

    async def test_every_method_refuses_a_session_that_is_missing(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        assert session.leaf_id is not None
        for error in await errors_of(backend, SessionNotFound, every_call(backend, UNKNOWN, session.leaf_id)):
            assert UNKNOWN in str(error)

    async def test_every_method_refuses_a_session_that_was_deleted(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        assert session.leaf_id is not None
        await backend.fork(session.id, STORED, NewSession())
        await backend.delete_tree(session.id)
        await errors_of(backend, SessionNotFound, every_call(backend, session.id, session.leaf_id))

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
            with pytest.raises(StoreClosed):
                await call()

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
            InvalidArgument,
            [
                lambda: backend.append(session.id, [user()], idempotency_key=longer),
                lambda: backend.move(session.id, None, idempotency_key=longer),
                lambda: backend.create_task(session.id, longer, NewSession()),
                lambda: backend.link_task(session.id, "child", longer),
                lambda: backend.link_task(session.id, longer, "t"),
            ],
        )
        await errors_of(backend, InvalidEntry, [lambda: backend.append(session.id, [placed(user(), longer)])])

    @pytest.mark.parametrize("text", UNSTORABLE)
    async def test_text_that_cannot_be_stored_is_refused_wherever_it_is_given(
        self, backend: Backend, text: str
    ) -> None:
        session = await new_session(backend, *talk(2))
        leaf = session.leaf_id
        assert leaf is not None
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
        await errors_of(backend, InvalidArgument, calls)
        refusals = Refusals(backend)
        for entries in ([placed(user(), text)], [placed(user(), "fine"), placed(user(), text)]):
            async with refusals.refused(InvalidEntry):
                await backend.append(session.id, entries)
            async with refusals.refused(InvalidEntry):
                await backend.import_entries(session.id, entries, leaf=None)

    @pytest.mark.parametrize("text", UNSTORABLE)
    async def test_what_cannot_be_stored_is_not_found_either(self, backend: Backend, text: str) -> None:
        session = await new_session(backend, *talk(2), key="a")
        leaf = session.leaf_id
        assert leaf is not None
        assert await backend.get_session(text) is None
        assert await backend.get_session(session.id, text) is None
        assert await backend.get_session_by_key(text, "") is None
        assert await backend.get_session_by_key("a", text) is None
        assert await backend.match_session_ids(text) == []
        assert await backend.get_entry(session.id, text) is None
        assert await backend.match_entry_ids(session.id, text) == []
        assert await backend.retract(session.id, text) is None
        assert (await backend.delete_tree(text)).session_ids == ()
        assert (await backend.list_sessions(scope=text, kind=None, limit=1, cursor=None)).sessions == ()
        assert entries_of(await backend.read_path_since(session.id, text)) == []
        assert not (await backend.read_usage(session.id, text)).on_path
        await errors_of(backend, SessionNotFound, every_call(backend, text, leaf))
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
        await errors_of(backend, EntryNotFound, calls)

    async def test_an_empty_entry_id_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        refusals = Refusals(backend)
        async with refusals.refused(InvalidEntry):
            await backend.append(session.id, [placed(user(), "")])
        async with refusals.refused(InvalidEntry):
            await backend.import_entries(session.id, [placed(user(), "")], leaf=None)

    async def test_an_empty_session_id_is_refused(self, backend: Backend) -> None:
        with pytest.raises(InvalidArgument):
            await backend.create_session(NewSession(id=""))

    async def test_a_page_of_no_sessions_is_refused(self, backend: Backend) -> None:
        for limit in (0, -1):
            with pytest.raises(InvalidArgument):
                await backend.list_sessions(scope=None, kind=None, limit=limit, cursor=None)

    async def test_a_store_goes_on_after_refusals(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        for _ in range(3):
            with pytest.raises(EntryNotFound):
                await backend.move(session.id, UNKNOWN)
            await add(backend, session.id, user())
        assert len(await backend.read_tree(session.id)) == 5
