"""A transaction on asyncpg, for code that runs in SQLAlchemy's greenlet: each call waits for its answer."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from flue_py.core.sessions import is_storable
from flue_py.store.schema.session_state import SessionState
from flue_py.store.seam import Insert, NeedsSnapshot, Nothing, P, Parameters, R, Row, Statement, Transaction, Written
from flue_py.store.sql import sessions as sessions_sql

if TYPE_CHECKING:
    import asyncpg
    from sqlalchemy import PoolProxiedConnection

Result = TypeVar("Result")


class Connection:
    """A borrowed connection, as the pool hands it out, and the driver's own under it."""

    def __init__(self, borrowed: PoolProxiedConnection) -> None:
        self._borrowed = borrowed

    @property
    def is_closed(self) -> bool:
        """Whether the driver knows that the connection is gone."""
        return bool(self._borrowed.driver_connection is None or self._borrowed.driver_connection.is_closed())

    def wait_for(self, call: Callable[[asyncpg.Connection[Any]], Awaitable[Result]]) -> Result:
        """Make a call of the driver's and wait for what it returns."""
        result: Result = self._borrowed.run_async(call)
        return result

    def execute(self, sql: str) -> None:
        """Run a command without parameters."""
        self.wait_for(lambda driver: driver.execute(sql))

    def fetch(self, sql: str, arguments: Sequence[object], make: Callable[[Row], Any] = tuple) -> list[Any]:
        """Run a statement with numbered parameters; return what ``make`` makes of each row."""
        return [make(row) for row in self.wait_for(lambda driver: driver.fetch(sql, *arguments))]


_RANDOM_BITS = 11
_last_key = 0


def _new_key() -> int:
    """Return a key of microseconds and random bits (63 in all, until the year 2112), rising within this process.

    Rows that are made together then lie together in every index; the unique key decides where two are the same.
    """
    global _last_key  # noqa: PLW0603 - what rises within the process has to be remembered by it
    drawn = (time.time_ns() // 1000 << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
    _last_key = max(drawn, _last_key + 1)
    return _last_key


class PostgresTransaction(Transaction):
    """A transaction under way, or a run of statements that each stand for themselves.

    ``loose`` says so of a read that may notice that it needs a snapshot. ``locks`` says that sessions are locked before
    they are read for writing; a write without it has to compare the revision it read (see `postgres_plans`).
    """

    def __init__(self, connection: Connection, *, locks: bool = False, loose: bool = False) -> None:
        self.connection = connection
        self.states: dict[str, SessionState] = {}
        # The sessions that were locked, and so perhaps changed.
        self.locked: set[str] = set()
        self._locks = locks
        self._loose = loose

    @property
    def is_alone(self) -> bool:
        return False

    def require_snapshot(self) -> None:
        if self._loose:
            raise NeedsSnapshot

    def lock_sessions(self, keys: Collection[int]) -> None:
        self.rows(sessions_sql.LOCK_SESSIONS, keys=json.dumps(sorted(keys)))

    def lock_session(self, session_id: str) -> None:
        if self._locks and session_id not in self.locked:
            self.first(sessions_sql.LOCK_SESSION, id=session_id)
            self.locked.add(session_id)

    def lock_named(self, session_ids: Collection[str]) -> None:
        if self._locks:
            asked = sorted(session_id for session_id in session_ids if is_storable(session_id))
            self.rows(sessions_sql.LOCK_NAMED, ids=json.dumps(asked))
            self.locked.update(asked)

    def new_key(self) -> int:
        return _new_key()

    def rows(self, statement: Statement[P, R], /, *_: P.args, **parameters: P.kwargs) -> Sequence[R]:
        return self.connection.fetch(statement.numbered, _arguments(statement, parameters), statement.make or tuple)

    def first(self, statement: Statement[P, R], /, *_: P.args, **parameters: P.kwargs) -> R | None:
        sql, arguments = statement.numbered, _arguments(statement, parameters)
        row = self.connection.wait_for(lambda driver: driver.fetchrow(sql, *arguments))
        return None if row is None else cast("R", (statement.make or tuple)(row))

    def run(self, statement: Statement[P, Nothing], /, *_: P.args, **parameters: P.kwargs) -> int:
        sql, arguments = statement.numbered, _arguments(statement, parameters)
        tag = self.connection.wait_for(lambda driver: driver.execute(sql, *arguments))
        return int(tag.rpartition(" ")[2])

    def run_many(self, statement: Statement[P, R], parameters: Sequence[Parameters]) -> None:
        self._run_each(statement.numbered, [_arguments(statement, each) for each in parameters])

    def insert(self, statement: Insert[Written], rows: Sequence[Written]) -> None:
        self._run_each(statement.numbered, rows)

    def _run_each(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        if len(rows) == 1:
            self.connection.wait_for(lambda driver: driver.execute(sql, *rows[0]))
        elif rows:
            self.connection.wait_for(lambda driver: driver.executemany(sql, rows))


def _arguments(statement: Statement[P, R], parameters: Parameters) -> list[object]:
    return [parameters[name] for name in statement.parameters]
