"""A transaction on SQLite, and on the driver of the standard library."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence

from flue_py.errors import CorruptStore
from flue_py.store.schema.session_state import SessionState
from flue_py.store.seam import Insert, Nothing, P, Parameters, R, Statement, Transaction, Written
from flue_py.store.sql import store as store_sql


class SoleWriter(Transaction):
    """What holds of every transaction on SQLite, whatever the driver: it is the only one that writes."""

    @property
    def is_alone(self) -> bool:
        return True

    def require_snapshot(self) -> None:
        """Nothing to do: a transaction of SQLite reads one snapshot."""

    def lock_sessions(self, keys: Collection[int]) -> None:
        """Nothing to do: SQLite has one writer at a time."""

    def lock_session(self, session_id: str) -> None:
        """Nothing to do: SQLite has one writer at a time."""

    def lock_named(self, session_ids: Collection[str]) -> None:
        """Nothing to do: SQLite has one writer at a time."""

    def new_key(self) -> int:
        row = self.first(store_sql.READ_STATE, name="next_key")
        if row is None:
            raise CorruptStore("the store has lost its key counter; run verify()")
        key = int(row[0])
        self.run(store_sql.WRITE_STATE, name="next_key", number=key + 1)
        return key


class SqliteTransaction(SoleWriter):
    """A transaction on the stdlib driver. ``wrote`` tells whether a rollback would undo anything."""

    def __init__(self, connection: sqlite3.Connection, states: dict[str, SessionState] | None = None) -> None:
        self._connection = connection
        self.states = {} if states is None else states
        self.wrote = False

    def rows(self, statement: Statement[P, R], /, *_: P.args, **parameters: P.kwargs) -> Sequence[R]:
        cursor = self._connection.execute(statement.positional, statement.in_order(parameters))
        self.wrote = self.wrote or statement.writes
        make = statement.make
        return cursor.fetchall() if make is None else list(map(make, cursor))

    def first(self, statement: Statement[P, R], /, *_: P.args, **parameters: P.kwargs) -> R | None:
        row = self._connection.execute(statement.positional, statement.in_order(parameters)).fetchone()
        make = statement.make
        made: R | None = row if row is None or make is None else make(row)
        return made

    def run(self, statement: Statement[P, Nothing], /, *_: P.args, **parameters: P.kwargs) -> int:
        self.wrote = True
        return self._connection.execute(statement.positional, statement.in_order(parameters)).rowcount

    def run_many(self, statement: Statement[P, R], parameters: Sequence[Parameters]) -> None:
        self.wrote = True
        if len(parameters) == 1:
            self._connection.execute(statement.sql, parameters[0])
        else:
            self._connection.executemany(statement.sql, parameters)

    def insert(self, statement: Insert[Written], rows: Sequence[Written]) -> None:
        self.wrote = True
        if len(rows) == 1:
            self._connection.execute(statement.positional, rows[0])
        else:
            self._connection.executemany(statement.positional, rows)
