"""What statements declare, compared with what the databases make of them; and what they cost."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import GenericAlias
from typing import Any, get_args

import apsw
import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError

import flue_py
from benchmarks.measuring import make_messages
from benchmarks.pages import open_sessions, pages_alone, pages_in_group
from flue_py.core.ledger import CallId, LedgerQuery
from flue_py.core.sessions import Ordering, PathRead, SessionOrder
from flue_py.core.usage import NO_USAGE, PaidCall
from flue_py.db import ops, sql
from flue_py.db.backend import Backend
from flue_py.db.engine import EngineTransaction, open_engine
from flue_py.db.ops import base
from flue_py.db.ops.ledger import ledger_sums
from flue_py.db.ops.sessions import session_page
from flue_py.db.runner import Insert, Nothing, Statement, Transaction, database_type
from flue_py.db.schema import schema_statements, stamp_statements
from flue_py.db.sqlite.file import SqliteTransaction
from flue_py.db.sqlite.runner import MemoryRunner, open_sqlite
from flue_py.errors import FlueError
from tests.postgres import NewDatabase, connected
from tests.samples import add, assistant, compaction, new_session, talk, user
from tests.sources import counted_sources
from tests.tables import inputs
from tests.whole_stores import make_everything, told, whole_trees

AnyStatement = Statement[Any]
ORDERS: tuple[SessionOrder, ...] = get_args(SessionOrder)
# What PostgreSQL calls the types of columns, and of sums and literals that a row may hold as numbers.
TYPES = {"int8": "bigint", "int4": "bigint", "text": "text", "bytea": "bytea"}


def statements() -> Iterator[tuple[str, AnyStatement]]:
    for module in (sql, *(import_module(f"{ops.__name__}.{each.name}") for each in iter_modules(ops.__path__))):
        for name, value in vars(module).items():
            several = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else [value]
            for number, each in enumerate(several):
                if isinstance(each, Statement):
                    yield f"{name}.{number}", each
    for order in ORDERS:
        filters = frozenset({"scope", "title", "completed"})
        yield f"page by {order}", session_page(Ordering(order), filters, is_first=False)
    yield "sums", ledger_sums(("session", "branch", "day"), matches=("model",), by_keys=True, by_project=True)
    yield "sums on a path", ledger_sums((), on_path=True)


STATEMENTS = dict(statements())
ON_SQLITE_ALONE = {"INTEGRITY_CHECK.0", "FOREIGN_KEY_CHECK.0"}
ON_POSTGRES_ALONE = ("FOR UPDATE", "pg_database_size", "current_setting", "pg_current_snapshot")


def declared_types(statement: AnyStatement) -> list[str] | None:
    """The types of the columns that a statement declares; None where a function reads its rows, or they are any."""
    gives = statement.gives
    if isinstance(gives, GenericAlias):
        if get_args(gives)[1:] == (...,):
            return None
        return [database_type(each) for each in get_args(gives)]
    if isinstance(gives, type) and gives is not Nothing:
        return [database_type(each) for name, each in gives.__annotations__.items()]
    return [] if gives is Nothing else None


def test_a_parameter_is_of_one_type_in_all_statements() -> None:
    inserts = {name: each for name, each in STATEMENTS.items() if isinstance(each, Insert)}
    assert len(STATEMENTS) > 250
    assert len(inserts) > 15
    for each in inserts.values():
        assert {name: each.types[name] for name in each.parameters} == Statement(Nothing, each.sql, "").types


def test_sqlite_returns_as_many_columns_as_statements_declare() -> None:
    wrong = {}
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for each in (*stamp_statements(), *schema_statements()):
            connection.execute(each)
        for name, statement in STATEMENTS.items():
            if any(word in statement.sql for word in ON_POSTGRES_ALONE):
                continue
            values = {each: _some(statement.types[each]) for each in statement.parameters}
            declared = declared_types(statement)
            cursor = connection.execute(statement.sql if declared else f"EXPLAIN {statement.sql}", values)
            if declared and len(cursor.description) != len(declared):
                wrong[name] = (declared, cursor.description)
            cursor.close()

    assert wrong == {}


def test_a_newer_sqlite_looks_rows_up_by_the_indexes_of_their_tables() -> None:
    making_one = set()
    with closing(apsw.Connection(":memory:")) as connection:
        for each in (*stamp_statements(), *schema_statements()):
            connection.execute(each)
        for name, statement in STATEMENTS.items():
            if not any(word in statement.sql for word in ON_POSTGRES_ALONE):
                values: Any = {each: _some(statement.types[each]) for each in statement.parameters}
                plan = connection.execute(f"EXPLAIN QUERY PLAN {statement.sql}", values)
                making_one |= {name for *_, step in plan if "AUTOMATIC" in step}

    # Of a few rows that a query made, as older ones do, and of all sessions.
    of_few = {"NAMED_ON_PATH.0", "ENTRY_COSTS.0", "GONE_TASKS.0", "REACHED.0", "sums", "sums on a path"}
    assert making_one == {*of_few, "STORED_BYTES.0"}


def _some(kind: str) -> object:
    return {"text": "[]", "bytea": b"", "bigint": 0}[kind]


async def test_sqlalchemy_makes_of_every_statement_what_the_driver_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    seen: dict[AnyStatement, list[dict[str, object]]] = {each: [] for each in STATEMENTS.values()}
    for name in ("rows", "first", "run"):
        monkeypatch.setattr(SqliteTransaction, name, noting(getattr(SqliteTransaction, name), seen))
    backend = await open_sqlite(path, sources=counted_sources(), durability="normal")
    await make_everything(backend)
    await told(backend)
    await whole_trees(backend)
    assert (await backend.verify()).problems == []
    await backend.close()
    monkeypatch.undo()

    engine = create_engine(f"sqlite:///{path}", isolation_level="AUTOCOMMIT")
    with closing(sqlite3.connect(path, isolation_level=None)) as driver, engine.connect() as connection:
        for statement, samples in seen.items():
            if any(word in statement.sql for word in ON_POSTGRES_ALONE):
                continue
            other = {each: _some(statement.types[each]) for each in statement.parameters}
            for values in (*samples[-10:], other):
                driver.execute("BEGIN")
                expected = outcomes(SqliteTransaction(driver), statement, values)
                driver.execute("ROLLBACK")
                connection.exec_driver_sql("BEGIN")
                assert outcomes(EngineTransaction(connection), statement, values) == expected, statement.sql
                connection.exec_driver_sql("ROLLBACK")
    engine.dispose()


def noting(call: Callable[..., object], seen: dict[AnyStatement, list[dict[str, object]]]) -> Callable[..., object]:
    """Return a method of a transaction that notes what a statement is run with: the parameters of its text."""

    def noted(tx: Transaction, statement: AnyStatement, /, **parameters: object) -> object:
        assert parameters.keys() == set(statement.parameters), statement.sql
        seen.setdefault(statement, []).append(parameters)
        return call(tx, statement, **parameters)

    return noted


def outcomes(tx: Transaction, statement: AnyStatement, values: dict[str, object]) -> list[object]:
    """Return what a transaction makes of a statement, by each of the functions that take it."""
    if isinstance(statement, Insert):
        row = tuple(values.values())
        return [outcome(tx.insert, statement, rows) for rows in ([row], [row, row], [])]
    if statement.gives is Nothing:
        twice = outcome(tx.run_many, statement, [values, values])
        return [outcome(tx.run, statement, **values), twice, outcome(tx.run_many, statement, [])]
    return [outcome(tx.rows, statement, **values), outcome(tx.first, statement, **values)]


def outcome(call: Callable[..., object], *arguments: object, **parameters: object) -> object:
    """Return what a call returns, or what the driver or the reader of a row said."""
    try:
        return call(*arguments, **parameters)
    except DBAPIError as error:
        return repr(error.orig)
    except (sqlite3.Error, FlueError, ValueError, TypeError) as error:
        return repr(error)


async def test_postgres_returns_the_columns_that_statements_declare(new_database: NewDatabase) -> None:
    url = new_database()
    backend = await open_engine(url, sources=counted_sources())
    await backend.close()

    wrong = {}
    async with connected(url) as connection:
        for name, statement in STATEMENTS.items():
            if name in ON_SQLITE_ALONE:
                continue
            prepared = await connection.prepare(statement.numbered)
            found = [TYPES[each.type.name] for each in prepared.get_attributes() if each.type.name != "void"]
            declared = declared_types(statement)
            if declared is not None and found != declared:
                wrong[name] = (declared, found)

    assert wrong == {}


# -- What statements cost, in steps of SQLite's machine: as deterministic as the plan, unlike a time --------------


Read = Callable[[Backend, str], Awaitable[object]]
FEW, MANY = 300, 1200

READS: dict[str, Read] = {
    "the bill of a path": lambda backend, session: backend.read_ledger(LedgerQuery(session, on_path=True)),
    "the bill by branch": lambda backend, session: backend.read_ledger(LedgerQuery(session, group_by=("branch",))),
    "the costs of entries": lambda backend, session: backend.read_entry_costs(session),
}


class CountingRunner(MemoryRunner):
    """Counts the steps of SQLite's machine, in hundreds."""

    def __init__(self) -> None:
        super().__init__()
        self.hundreds = 0
        self._connection.set_progress_handler(self._count, 100)

    def _count(self) -> int:
        self.hundreds += 1
        return 0

    @property
    def statistics(self) -> int:
        """How many tables ANALYZE has looked at: none, as in most stores."""
        try:
            return int(self._connection.execute("SELECT COUNT(*) FROM sqlite_stat1").fetchone()[0])
        except sqlite3.OperationalError:
            return 0


async def steps(read: Read, calls: int) -> int:
    runner = CountingRunner()
    backend = Backend(runner, counted_sources())
    session = await new_session(backend)
    for number in range(calls):
        await add(backend, session.id, user(f"{number}"), assistant("ok", tokens=3, dollars=0.01))
    assert runner.statistics == 0
    runner.hundreds = 0
    await read(backend, session.id)
    await backend.close()
    return runner.hundreds


@inputs("name", READS)
async def test_what_is_summed_up_of_calls_costs_as_many_steps_as_there_are_calls(name: str) -> None:
    few, many = await steps(READS[name], FEW), await steps(READS[name], MANY)

    assert few > FEW / 100
    assert many < 1.5 * (MANY / FEW) * few


async def _children(backend: Backend, session: str) -> object:
    return await backend.children(session, _ids(await backend.read_path_end(session, 3))[0])


async def _entries(backend: Backend, session: str) -> object:
    return await backend.get_entries(session, _ids(await backend.read_path_end(session, 20)))


async def _named(backend: Backend, session: str) -> list[tuple[str, str]]:
    return [(session, entry_id) for entry_id in _ids(await backend.read_path_end(session, 20))]


async def _read_named(backend: Backend, session: str) -> object:
    return await backend.read_named(await _named(backend, session))


async def _places(backend: Backend, session: str) -> object:
    return await backend.places_of(await _named(backend, session))


def _ids(read: PathRead) -> list[str]:
    return [entry.id for entry in read.entries]


PARTS: dict[str, Read] = {
    "the end of a path": lambda backend, session: backend.read_path_end(session, 20),
    "the end of a context": lambda backend, session: backend.read_context_end(session, 20),
    "the children of an entry": _children,
    "entries by their ids": _entries,
    "entries by the ids of their sessions and theirs": _read_named,
    "where entries lie": _places,
}


async def steps_of_part(read: Read, messages: int, *, compacted: bool) -> int:
    runner = CountingRunner()
    backend = Backend(runner, counted_sources())
    session = await new_session(backend, *talk(messages))
    if compacted:
        first = await backend.read_path_end(session.id, 20)
        await add(backend, session.id, compaction(first.entries[0].id), *talk(20))
    runner.hundreds = 0
    for _ in range(20):
        await read(backend, session.id)
    await backend.close()
    return runner.hundreds


@inputs("compacted", [False, True], ids=["whole", "compacted"])
@inputs("name", PARTS)
async def test_a_part_costs_the_same_however_much_comes_before_it(name: str, compacted: bool) -> None:
    few, many = [await steps_of_part(PARTS[name], count, compacted=compacted) for count in (40, 800)]

    assert few > 20
    assert abs(many - few) <= 2


PAGES: dict[str, Read] = {
    "the first entries": lambda backend, session: backend.read_entries(session, limit=20),
    "the last entries": lambda backend, session: backend.read_entries(session, limit=20, newest_first=True),
    "the last compactions": lambda backend, session: backend.read_entries(
        session, kind="compaction", limit=20, newest_first=True
    ),
    "the changes of the last revision": lambda backend, session: backend.changes(session, 1, 20),
}


@inputs("name", PAGES)
async def test_a_page_of_entries_costs_a_few_halvings_more_of_a_long_session(name: str) -> None:
    few, many = [await steps_of_part(PAGES[name], count, compacted=True) for count in (40, 800)]

    assert few > 10
    assert many < 1.5 * few


CALLS: dict[str, Read] = {
    "a report of a call": lambda backend, session: backend.record_call(session, PaidCall(NO_USAGE, call_id="new")),
    "looking a call up": lambda backend, session: backend.find_calls("", [CallId("", "new")]),
}


@inputs("name", CALLS)
async def test_a_call_that_brings_its_id_costs_the_same_however_many_entries_there_are(name: str) -> None:
    few, many = [await steps_of_part(CALLS[name], count, compacted=False) for count in (40, 800)]

    assert few > 1
    assert abs(many - few) <= 4


# -- How many pages of log an append writes: counted, and the same in every run -----------------------------------


USER, ASSISTANT = make_messages(2)
ROUNDS = 8
"""Sessions of one size fill their pages at the same append, which then writes two more for each: now in one, now in
another. Over several it comes to the same.
"""


async def test_a_write_after_a_move_reads_nothing_of_the_session_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        messages = [{"role": "user", "content": text} for text in ("one", "two", "three")]
        ids = (await session.append_messages(messages[:2])).entry_ids
        await session.move_leaf(ids[0])
        seen: dict[AnyStatement, list[dict[str, object]]] = {each: [] for each in STATEMENTS.values()}
        for name in ("rows", "first"):
            monkeypatch.setattr(SqliteTransaction, name, noting(getattr(SqliteTransaction, name), seen))
        await session.move_leaf(ids[1])
        assert (await session.undo()) is not None
        await session.append_message(messages[2])
    assert (seen[base.SESSION_STATE], len(seen[base.LAST_MOVE]), len(seen[sql.ENTRY_POSITION])) == ([], 1, 0)


async def test_what_an_append_writes_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with flue_py.open(path) as store:
        sessions = await open_sessions(store, 20, 20)
        user = assistant = 0.0
        for _ in range(ROUNDS):
            user += await pages_alone(path, sessions, USER) / ROUNDS
            assistant += await pages_alone(path, sessions, ASSISTANT) / ROUNDS
        assert (await store.verify()).problems == []

    assert 1 < user <= 6
    assert assistant <= 8


async def test_sessions_that_append_at_once_share_pages(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with flue_py.open(path) as store:
        sessions = await open_sessions(store, 40, 20)
        alone = await pages_alone(path, sessions, ASSISTANT)
        together = await pages_in_group(path, sessions, ASSISTANT)

    assert together < alone / 5
