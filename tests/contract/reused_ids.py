"""The contract: a handle to a deleted session never reaches a later session of the same id."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing

from flue_py.core.ledger import Amounts, LedgerQuery, NewBudget
from flue_py.core.operations import AppendEntries
from flue_py.core.sessions import NewSession, SessionInfo, SessionRef
from flue_py.core.usage import NO_USAGE, PaidCall, UsageTotals
from flue_py.db.backend import Backend
from flue_py.errors import SessionNotFound
from tests.samples import add, path_ids, placed, store_snapshot, user

Use = Callable[[Backend, str, str], Awaitable[object]]


async def first_of(backend: Backend, session_id: str, entry: str) -> object:
    """Watch a session until something is told of it (the entry is none of its business)."""
    async with aclosing(backend.notifications(session_id)) as told:
        await anext(told)
        return await backend.changes(session_id, 0, 10)


USES: dict[str, Use] = {
    "get": lambda backend, session, entry: backend.get_session(session),
    "title": lambda backend, session, entry: backend.update_session(session, title="x"),
    "metadata": lambda backend, session, entry: backend.update_session(session, metadata_text='{"a":1}'),
    "append": lambda backend, session, entry: backend.append(session, [user()]),
    "append nothing": lambda backend, session, entry: backend.append(session, []),
    "append beside": lambda backend, session, entry: backend.append(
        session, [user()], expected=None, on_conflict="branch"
    ),
    "append once": lambda backend, session, entry: backend.append(session, [user()], idempotency_key="k"),
    "recall": lambda backend, session, entry: backend.recall_append(session, "k"),
    "recall a batch": lambda backend, session, entry: backend.recall_atomic([AppendEntries(session, [user()])], "k"),
    "import": lambda backend, session, entry: backend.import_entries(session, [placed(user(), "i")], leaf="i"),
    "move": lambda backend, session, entry: backend.move(session, None),
    "retract": lambda backend, session, entry: backend.retract(session, entry),
    "undo": lambda backend, session, entry: backend.undo(session),
    "redo": lambda backend, session, entry: backend.redo(session),
    "go back": lambda backend, session, entry: backend.go_back(session, 0),
    "fork": lambda backend, session, entry: backend.fork(session, None, NewSession()),
    "task": lambda backend, session, entry: backend.create_task(session, "t", NewSession()),
    "link": lambda backend, session, entry: backend.link_task(session, "child", "t"),
    "end": lambda backend, session, entry: backend.end_task(session, "done"),
    "links": lambda backend, session, entry: backend.task_links(session),
    "parents": lambda backend, session, entry: backend.task_parents(session),
    "call": lambda backend, session, entry: backend.record_call(session, PaidCall(usage=NO_USAGE)),
    "costs": lambda backend, session, entry: backend.read_entry_costs(session),
    "path": lambda backend, session, entry: backend.read_path(session),
    "path since": lambda backend, session, entry: backend.read_path_since(session, None),
    "context": lambda backend, session, entry: backend.read_context(session),
    "messages": lambda backend, session, entry: backend.read_messages(session),
    "messages at a leaf": lambda backend, session, entry: backend.read_messages(session, leaf=entry),
    "usage": lambda backend, session, entry: backend.read_usage(session, None),
    "usage since": lambda backend, session, entry: backend.read_usage(session, entry),
    "settings": lambda backend, session, entry: backend.read_settings(session),
    "turns": lambda backend, session, entry: backend.read_turns(session),
    "tree": lambda backend, session, entry: backend.read_tree(session),
    "entry": lambda backend, session, entry: backend.get_entry(session, entry),
    "match": lambda backend, session, entry: backend.match_entry_ids(session, ""),
    "taken": lambda backend, session, entry: backend.taken_entry_ids(session, [entry]),
    "ancestor": lambda backend, session, entry: backend.is_ancestor(session, entry, entry),
    "common": lambda backend, session, entry: backend.common_ancestor(session, str(session)),
    "common with": lambda backend, session, entry: backend.common_ancestor(str(session), session),
    "changes": lambda backend, session, entry: backend.changes(session, 0, 10),
    "watch": first_of,
    "log": lambda backend, session, entry: backend.read_log(session, before=None, limit=10),
    "label": lambda backend, session, entry: backend.set_label(session, entry, "x"),
    "pin": lambda backend, session, entry: backend.set_pin(session, entry, True),
    "marks": lambda backend, session, entry: backend.read_marks(session),
    "budget": lambda backend, session, entry: backend.set_budget(NewBudget("session", "tokens", 5, session)),
    "budgets": lambda backend, session, entry: backend.covering_budgets(session),
    "reserve": lambda backend, session, entry: backend.reserve(session, Amounts(tokens=1), 1_000_000),
}


class ReusedIdContract:
    """Ids that are used again after a deletion."""

    async def _used_again(self, backend: Backend) -> tuple[SessionRef, SessionInfo]:
        old = await backend.create_session(NewSession(id="again"))
        await add(backend, old.id, user("old"))
        await backend.delete_tree(old.id)
        new = await backend.create_session(NewSession(id="again"))
        await add(backend, new.id, user("new"))
        return old.ref, new

    async def test_no_use_of_a_deleted_session_reaches_the_one_that_has_its_id(self, backend: Backend) -> None:
        old, new = await self._used_again(backend)
        (entry,) = await path_ids(backend, new.id)
        before = await store_snapshot(backend)
        reached = []
        for name, use in USES.items():
            try:
                await use(backend, old, entry)
                reached.append(name)
            except SessionNotFound as error:
                assert "'again' was deleted, and its id has been used again" in str(error), name  # noqa: PT017
        assert reached == []
        assert await store_snapshot(backend) == before

    async def test_the_one_that_has_the_id_now_is_reached(self, backend: Backend) -> None:
        _, new = await self._used_again(backend)
        (entry,) = await path_ids(backend, new.ref)
        for name in ("title", "append", "path", "context", "usage since", "label", "budget", "task", "watch"):
            await USES[name](backend, new.ref, entry)

    async def test_deleting_it_again_deletes_nothing(self, backend: Backend) -> None:
        old, new = await self._used_again(backend)
        before = await store_snapshot(backend)
        assert (await backend.delete_tree(old, dry_run=True)).session_ids == ()
        assert (await backend.delete_tree(old)).session_ids == ()
        assert await store_snapshot(backend) == before
        assert (await backend.delete_tree(new.ref)).session_ids == ("again",)

    async def test_the_ledger_tells_what_each_of_them_has_paid(self, backend: Backend) -> None:
        old = await backend.create_session(NewSession(id="again"))
        await backend.record_call(old.ref, PaidCall(UsageTotals(input=1), call_id="one"))
        await backend.delete_tree(old.ref)
        new = await backend.create_session(NewSession(id="again"))
        await backend.record_call(new.ref, PaidCall(UsageTotals(input=2), call_id="two"))
        task = await backend.create_task(new.ref, "t", NewSession())
        await backend.record_call(task.ref, PaidCall(UsageTotals(input=4), call_id="four"))

        async def tokens(query: LedgerQuery) -> int:
            return (await backend.read_ledger(query)).total.total_tokens

        each = (old.ref, new.ref, "again")
        assert [await tokens(LedgerQuery(name)) for name in each] == [1, 2, 3]
        assert [await tokens(LedgerQuery(name, tasks=True)) for name in each] == [1, 6, 7]
        assert [await tokens(LedgerQuery(name, tree=True)) for name in each] == [1, 2, 3]
        several = ((old.ref,), (new.ref, task.ref), (old.ref, new.ref))
        assert [await tokens(LedgerQuery(session_ids=names)) for names in several] == [1, 6, 3]

    async def test_every_way_to_a_session_names_the_same_one(self, backend: Backend) -> None:
        made = await backend.create_session(NewSession(id="one", key="k"))
        page = await backend.list_sessions(scope=None, kind=None, limit=10, cursor=None)
        found = [await backend.get_session("one"), await backend.get_session_by_key("k", ""), *page.sessions]
        assert {info.ref.session_key for info in found if info is not None} == {made.ref.session_key}
        fork = await backend.fork("one", None, NewSession())
        task = await backend.create_task("one", "t", NewSession())
        for info in (fork, task):
            again = await backend.get_session(info.id)
            assert again is not None
            assert (again.ref, again.ref.session_key) == (info.ref, info.ref.session_key)
