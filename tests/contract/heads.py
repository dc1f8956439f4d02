"""The contract: the row of a session that was changed behind the store's back is refused, by name."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable

from flue_py.core.ledger import SessionRow
from flue_py.core.sessions import NewSession, Ordering, SessionInfo, SessionPage
from flue_py.db.backend import Backend
from flue_py.db.ops.transfer import SESSIONS, UPDATE_SESSION
from flue_py.db.runner import Nothing
from flue_py.db.sql import statement
from flue_py.errors import CorruptStore
from tests.samples import add, path_ids, talk
from tests.values import existing

# By these a session is looked for: none is found then.
SOUGHT = ("session_key", "id", "trashed_at")
ALL = {"get", "many", "list", "path", "messages"}

MOVE_TREE = statement(Nothing)("UPDATE sessions SET tree_id = :tree_id WHERE session_key = :session_key")


async def row_of(backend: Backend, session: SessionInfo) -> SessionRow:
    return existing(await backend._runner.read(lambda tx: tx.first(SESSIONS, tree_id=session.session_key)))


async def write(backend: Backend, row: SessionRow, **changes: object) -> None:
    """Write a row, with other values in some of its columns."""
    values = {**row._asdict(), "tree_id": row.session_key, **changes}
    await backend._runner.write(lambda tx: tx.run(UPDATE_SESSION, **values))
    await backend._runner.write(lambda tx: tx.run(MOVE_TREE, **values))


def changed(column: str, value: object) -> object:
    """Return another value of the same type."""
    if column in ("kind", "head"):
        return "task" if column == "kind" else bytes(24)
    is_text = isinstance(value, str) or (value is None and not column.endswith("_at"))
    return f"{value or ''}x" if is_text else int(str(value or 0)) + 1


async def refusing(backend: Backend, session: SessionInfo) -> set[str]:
    """Return which reads refuse a session by its name; a list has no other."""
    reads: dict[str, Callable[[], Awaitable[object]]] = {
        "get": lambda: backend.get_session(session.id),
        "many": lambda: backend.get_sessions([session.id]),
        "list": lambda: backend.list_sessions(scope=None, kind=None, limit=9, cursor=None),
        "path": lambda: backend.read_path(session.id),
        "messages": lambda: backend.read_messages(session.id),
    }
    refused = set()
    for name, read in reads.items():
        try:
            answer = await read()
        except CorruptStore as error:
            if str(error).startswith(f"session {session.id!r}: its "):
                refused.add(name)
        else:
            if answer == SessionPage((), damaged=(session.id,)):
                refused.add(name)
    return refused


async def is_reported(backend: Backend, session: SessionInfo) -> bool:
    where = f"session {session.id}"
    return ("damaged session", where) in {(each.kind, each.where) for each in (await backend.verify()).problems}


class HeadContract:
    """What is said about the head of a session."""

    async def test_a_changed_column_of_a_session_is_refused_by_name(self, backend: Backend) -> None:
        session = await backend.create_session(NewSession(key="a key", title="a title", cwd="/here"))
        await add(backend, session.id, *talk(2))
        row = await row_of(backend, session)
        assert await refusing(backend, session) == set()
        found = {}
        for column in ("tree_id", *(name for name in row._fields if name not in SOUGHT)):
            await write(backend, row, **{column: changed(column, getattr(row, column, row.session_key))})
            found[column] = await refusing(backend, session)
            assert await is_reported(backend, session), column
        await write(backend, row)
        assert await refusing(backend, session) == set()
        for column, names in found.items():
            assert names == ALL, column

    async def test_a_leaf_that_is_moved_back_is_refused(self, backend: Backend) -> None:
        session = await backend.create_session(NewSession())
        await add(backend, session.id, *talk(2))
        ids, row = await path_ids(backend, session.id), await row_of(backend, session)
        await write(backend, row, leaf=ids[-2])
        assert await refusing(backend, session) == ALL
        await write(backend, row)

    async def test_a_list_names_a_damaged_session_and_has_the_others_whatever_its_pages(self, backend: Backend) -> None:
        sessions = [await backend.create_session(NewSession(title=f"title {number}")) for number in range(7)]
        doomed, sound = sessions[1:3] + sessions[5:], [sessions[0], *sessions[3:5]]
        rows = [await row_of(backend, session) for session in doomed]
        for session, row in zip(doomed, rows, strict=True):
            # One of them would stand at the very end, too, if its place were believed.
            await write(backend, row, active_at=2**62 if session is doomed[0] else row.active_at, title="changed")
        for limit, ordering in itertools.product((1, 2, 3, 7), (Ordering(), Ordering("title", descending=False))):
            names, damaged, cursor = list[str](), list[str](), None
            while True:
                page = await backend.list_sessions(scope=None, kind=None, limit=limit, cursor=cursor, ordering=ordering)
                names += [info.id for info in page.sessions]
                damaged += page.damaged
                cursor = page.next_cursor
                if cursor is None:
                    break
            assert sorted(names) == sorted(info.id for info in sound), (limit, ordering)
            assert {*damaged} == {*(info.id for info in doomed)}, (limit, ordering)
        for row in rows:
            await write(backend, row)
