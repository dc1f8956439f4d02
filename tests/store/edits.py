"""Single edits of the rows of a store behind its back, and everything that the store says."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from flue_py.core.ledger import Amounts, LedgerQuery, NewBudget
from flue_py.core.sessions import DocumentFilter, NewDocument, NewSession, PathRead, SessionPage
from flue_py.db.backend import Backend
from flue_py.errors import CorruptStore, FlueError
from flue_py.search import SearchAnswer
from flue_py.sessions.store import Store
from tests.samples import add, assistant, compaction, new_session, path_ids, pictured, talk, user

Result = TypeVar("Result")
NOISE = "".join(Random(7).choices("abcdefghijklmnopqrstuvwxyz0123456789-", k=12_000))
DAY_US = 86_400_000_000


def ran(work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of a call of a store that is on the thread that calls."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    raise AssertionError("it waits")


async def make(backend: Backend) -> list[str]:
    """Make sessions with forks, a task, compactions, blobs, attachments, marks, moves, calls, budgets and documents."""
    root = await new_session(backend, *talk(4), user("x" * 2_000), key="root", cwd="/srv")
    ids = await path_ids(backend, root.id)
    await add(backend, root.id, user(NOISE), pictured(NOISE.encode()))
    await backend.append(root.id, [compaction(ids[2], tokens=7, dollars=0.5)], idempotency_key="once")
    await add(backend, root.id, user("after"), assistant("end", tokens=3, dollars=0.25))
    await backend.set_label(root.id, ids[0], "start")
    await backend.set_pin(root.id, ids[1], pinned=True)
    (failed,) = await add(backend, root.id, assistant("failed", tokens=1))
    await backend.retract(root.id, failed)
    fork = await backend.fork(root.id, ids[3], NewSession(key="fork", title="a fork"))
    await add(backend, fork.id, *talk(3))
    await backend.move(fork.id, ids[3], reason="rewind")
    await add(backend, fork.id, *talk(2, 7))
    task = await backend.create_task(root.id, "task", NewSession())
    await add(backend, task.id, *talk(2))
    await backend.update_session(task.id, title="task of root", metadata_text='{"a": 1}')
    apart = await new_session(backend, *talk(2), key="apart", scope="elsewhere")
    await backend.set_budget(NewBudget("tasks", "tokens", 5_000, root.id))
    await backend.set_budget(NewBudget("scope", "picodollars", 5_000))
    held = await backend.reserve(root.id, Amounts(40, 60), DAY_US)
    await backend.commit_reservation(held.id, Amounts(30, 50))
    await backend.reserve(task.id, Amounts(20, 20), DAY_US)
    for number in range(3):
        await backend.put_document(NewDocument("memory", f"fact {number}", f"body {number}", "user", space="repl"))
    return [root.id, fork.id, task.id, apart.id]


async def unstamped(read: Coroutine[Any, Any, PathRead]) -> PathRead:
    """Return what was read of a path, without the stamp that says when it was."""
    return replace(await read, stamp=None)


Read = Callable[[], Coroutine[Any, Any, object]]


def reads(backend: Backend, session_ids: list[str]) -> dict[tuple[str, str], Read]:
    """Return every read of a store and of these sessions, by its name and the session."""
    in_groups = ("model", "purpose")
    by_session: dict[str, Callable[[str], Coroutine[Any, Any, object]]] = {
        "info": backend.get_session,
        "path": lambda session_id: unstamped(backend.read_path(session_id)),
        "context": lambda session_id: unstamped(backend.read_context(session_id)),
        "messages": backend.read_messages,
        "tree": backend.read_tree,
        "usage": partial(backend.read_usage, since=None),
        "turns": backend.read_turns,
        "settings": backend.read_settings,
        "marks": backend.read_marks,
        "changes": lambda session_id: backend.changes(session_id, 0, 100),
        "log": partial(backend.read_log, before=None, limit=100),
        "tasks": backend.task_links,
        "parents": backend.task_parents,
        "ledger": lambda session_id: backend.read_ledger(LedgerQuery(session_id, tree=True, group_by=in_groups)),
        "entry costs": backend.read_entry_costs,
        "budgets": backend.covering_budgets,
    }
    whole: dict[str, Read] = {
        "list": lambda: backend.list_sessions(scope=None, kind=None, limit=100, cursor=None),
        "by key": lambda: backend.get_session_by_key("root", ""),
        "ledger": lambda: backend.read_ledger(LedgerQuery(group_by=("session", "model"))),
        "documents": lambda: backend.read_documents(DocumentFilter("memory"), None, 100),
        "search": lambda: Store(backend).search("answer", scope=None),
    }
    named = {(name, key): partial(read, key) for key in session_ids for name, read in by_session.items()}
    return {**named, **{(name, ""): read for name, read in whole.items()}}


class Edit(NamedTuple):
    """An edit of a column of a row, or of whole rows (no ``column``); ``row`` and ``other`` are places in a table."""

    table: str
    kind: str
    column: str | None
    row: int
    other: int


class Rows:
    """The rows of a store by table, and edits of them."""

    def __init__(self) -> None:
        self.columns: dict[str, list[str]] = {}
        self.keys: dict[str, list[str]] = {}
        self.rows: dict[str, list[tuple[Any, ...]]] = {}

    def edits(self) -> list[Edit]:
        """Return every edit that there is, in order."""
        edits = []
        for table, rows in self.rows.items():
            for row in range(len(rows)):
                other = (row + 1) % len(rows)
                edits += [Edit(table, kind, None, row, other) for kind in ("delete", "copy", "replace", "exchange")]
                for column in self.columns[table]:
                    edits += [Edit(table, kind, column, row, other) for kind in ("change", "take", "null")]
        return edits

    def edited(self, edit: Edit) -> list[tuple[Any, ...]] | None:
        """Return the rows of the table with an edit; None where it changes nothing."""
        names, rows = self.columns[edit.table], list(self.rows[edit.table])
        row, other = rows[edit.row], rows[edit.other]
        if edit.column is not None:
            place = names.index(edit.column)
            value = {"change": changed(row[place]), "take": other[place], "null": None}[edit.kind]
            rows[edit.row] = (*row[:place], value, *row[place + 1 :])
        elif edit.kind == "delete":
            del rows[edit.row]
        elif edit.kind == "copy":
            key = set(self.keys[edit.table]) | {"id"}
            rows.append(tuple(changed(value) if name in key else value for name, value in zip(names, row, strict=True)))
        else:
            rows[edit.row] = self._with_key(edit.table, row, other)
            if edit.kind == "exchange":
                rows[edit.other] = self._with_key(edit.table, other, row)
        return None if rows == self.rows[edit.table] else rows

    def _with_key(self, table: str, key: tuple[Any, ...], content: tuple[Any, ...]) -> tuple[Any, ...]:
        keys = {*self.keys[table], "id"}
        columns = zip(self.columns[table], key, content, strict=True)
        return tuple(own if name in keys else new for name, own, new in columns)


class FileRows(Rows):
    """The rows of a store, as a program sees them that has nothing but the file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.connection = sqlite3.connect(path, isolation_level=None)
        for pragma in ("foreign_keys = OFF", "ignore_check_constraints = ON", "synchronous = OFF"):
            self.connection.execute(f"PRAGMA {pragma}")
        tables = self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        for (name,) in tables.fetchall():
            about = self.connection.execute(f"PRAGMA table_info({name})").fetchall()
            self.columns[name] = [column[1] for column in about]
            self.keys[name] = [column[1] for column in about if column[5]]
            in_order = f"SELECT * FROM {name} ORDER BY {', '.join(self.keys[name])}"
            self.rows[name] = self.connection.execute(in_order).fetchall()

    def make(self, edit: Edit) -> bool:
        """Make an edit; return False where it changes nothing, or the database does not take it."""
        rows = self.edited(edit)
        return rows is not None and self._write(edit.table, rows)

    def undo(self, edit: Edit) -> None:
        """Put back the rows as they were."""
        assert self._write(edit.table, self.rows[edit.table])

    def _write(self, table: str, rows: list[tuple[Any, ...]]) -> bool:
        marks = ", ".join("?" * len(self.columns[table]))
        try:
            self.connection.execute("BEGIN")
            self.connection.execute(f"DELETE FROM {table}")
            self.connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
            self.connection.execute("COMMIT")
        except sqlite3.IntegrityError:
            self.connection.execute("ROLLBACK")
            return False
        return True


def changed(value: Any) -> Any:
    """Return another value of the same type."""
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return f"{value[:-1]}{'7' if value[-1:] != '7' else '8'}"
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1, *value[1:]]) if value else b"7"
    return "7"


def answer_of(read: Read) -> object:
    """Return the answer of a read; an error by its type and text."""
    return ran(awaited_answer_of(read))


async def awaited_answer_of(read: Read) -> object:
    """Return the answer of a read; an error by its type and text."""
    try:
        return await read()
    except FlueError as error:
        return error


def is_refused(answer: object) -> bool:
    """Return whether an answer refuses something by name: an error, or a page of sessions or a search that names it."""
    return isinstance(answer, CorruptStore) or (
        isinstance(answer, (SearchAnswer, SessionPage)) and answer.damaged != ()
    )
