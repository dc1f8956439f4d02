"""The connection that writes to a SQLite file: transactions alone or together, and what an error leaves of them.

Nothing here knows of threads or event loops: whoever calls waits, and only one thread calls at a time. Operations that
are given together are committed together, so that a hundred sessions share one fsync. Where one operation fails before
it wrote anything, its neighbours do not notice; where it fails later, the batch is rolled back and run again one by
one, each for itself.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from flue_py.errors import FlueError, InvalidArgument, OutcomeUnknown, StoreUnavailable
from flue_py.store.schema.session_state import SessionState
from flue_py.store.seam import IdTaken, Transaction
from flue_py.store.sqlite.file import (
    ID_ATTEMPTS,
    LogKeeper,
    begin_immediate,
    commit,
    is_busy,
    lost_while_committing,
    no_new_id,
    translate,
    unknown_outcome,
)
from flue_py.store.sqlite.journal import WAL, journal_mode, let_go, rescue_log
from flue_py.store.sqlite.owner import OpenFile
from flue_py.store.sqlite.transaction import SqliteTransaction

Result = TypeVar("Result")

MAX_KNOWN_STATES = 10_000


class Operation(Generic[Result]):
    """Work for a transaction, and what came of it: ``error``, or else ``result``."""

    __slots__ = ("error", "is_given_up", "result", "work")

    def __init__(self, work: Callable[[Transaction], Result]) -> None:
        self.work = work
        self.result: Result
        self.error: BaseException | None = None
        self.is_given_up = False

    def claim(self) -> bool:
        """Return whether it is still to be run; from then on, nobody can take it back."""
        return True

    def outcome(self) -> Result:
        """Return the result of an operation that was run, or raise its error."""
        if self.error is not None:
            raise self.error
        return self.result


class _KnownStates:
    """The states of sessions as the writer's own transactions left them: true until another process commits."""

    def __init__(self) -> None:
        self.current: dict[str, SessionState] = {}
        self._data_version: int | None = None

    def check(self, connection: sqlite3.Connection) -> None:
        """Forget everything if any other connection has committed. Called inside a write transaction."""
        version = int(connection.execute("PRAGMA data_version").fetchone()[0])
        if version != self._data_version or len(self.current) > MAX_KNOWN_STATES:
            self.current.clear()
            self._data_version = version


class Writer:
    """Runs operations in write transactions. ``path`` is the file as errors name it.

    The connection and the open file are the writer's from here on, until `close`.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, file: OpenFile, busy_timeout: float) -> None:
        self._connection = connection
        self._path = path
        self._file = file
        self._busy_timeout = busy_timeout
        self._log = LogKeeper(path.absolute())
        self._log_size = 0
        self._states = _KnownStates()
        self.journal = WAL
        self._note_journal()

    def run(self, waiting: Sequence[Operation[Any]]) -> None:
        """Run the operations that are still wanted once the write lock is held: until then they can be given up."""
        # An interrupt of the thread that calls may have come between a beginning and its end.
        roll_back(self._connection)
        try:
            self._begin(waiting)
        except BaseException as error:  # noqa: BLE001 - handed to the callers who wait for it
            # All of them have waited the whole budget; alone, each would wait it again.
            self._fail(waiting, error)
            return
        batch = [operation for operation in waiting if operation.claim()]
        if len(batch) == 1:
            self._run_alone(batch[0], begun=True)
        elif not self._run_together(batch):
            for operation in batch:
                self._run_alone(operation)

    def look_after_log(self) -> None:
        """Keep the log bounded: to be called after each commit, once nobody waits for it any more."""
        self._log.after_commit(self._connection.execute, self._log_size)

    def rescue_log(self) -> None:
        """Move what the log holds into the database where nobody would find it; any thread may ask."""
        rescue_log(self._connection, self._file)

    def close(self) -> None:
        """Close the connection. It must be the last one: only then it can move the log into the database."""
        let_go(self._connection, self._file)

    def _note_journal(self) -> None:
        """Look after the log and its index, where there is a log."""
        self.journal = journal_mode(self._connection)
        if self.journal == WAL:
            self._file.watch_log(self._connection)

    def _begin(self, operations: Sequence[Operation[Any]]) -> None:
        """Take the write lock, of files that are whole. Raises the driver's errors, `StoreUnavailable`."""
        while True:
            begin_immediate(self._connection, self._busy_timeout, _wanted(operations))
            if self.journal != WAL:
                # Another process may have made it a log since.
                self._note_journal()
            if not self._file.log_has_shrunk():
                return
            roll_back(self._connection)
            self._file.require_in_place()
            self._file.require_whole_log(self._connection)

    def _fail(self, operations: Sequence[Operation[Any]], error: BaseException) -> None:
        self._undo()
        for operation in operations:
            operation.error = self._translated(error)

    def _run_together(self, batch: Sequence[Operation[Any]]) -> bool:
        """Run a batch in the transaction that has begun; return False, with nothing done, where each must run alone."""
        try:
            self._states.check(self._connection)
            for operation in batch:
                tx = SqliteTransaction(self._connection, self._states.current)
                try:
                    operation.result = operation.work(tx)
                except FlueError as error:
                    if tx.wrote:
                        raise
                    operation.error = error
            self._commit(batch)
        except BaseException as error:  # noqa: BLE001 - each operation meets its own error when it runs alone
            self._undo()
            for operation in batch:
                operation.error = None
            if self._ends_batch(error):
                self._fail(batch, error)
                return True
            return False
        return True

    def _ends_batch(self, error: BaseException) -> bool:
        """Return whether the operations of a batch that failed so must not, or need not, be run again alone."""
        if isinstance(error, OutcomeUnknown):
            # A log still begins where the commit that failed began: to commit again is to write over it.
            return self.journal != WAL or isinstance(error.__cause__, StoreUnavailable)
        # With a rollback journal a commit waits for readers, as the beginning waits for writers.
        return isinstance(error, sqlite3.Error) and is_busy(error)

    def _run_alone(self, operation: Operation[Any], *, begun: bool = False) -> None:
        for _ in range(ID_ATTEMPTS):
            try:
                if not begun:
                    self._begin([operation])
                begun = False
                self._states.check(self._connection)
                operation.result = operation.work(SqliteTransaction(self._connection, self._states.current))
                self._commit([operation])
            except (IdTaken, sqlite3.IntegrityError) as error:
                # A generated id met one that is there: roll back, and run again with another.
                self._undo()
                operation.error = no_new_id(error, self._path)
                operation.error.__cause__ = error
            except BaseException as error:  # noqa: BLE001 - handed to the caller who waits for it
                self._fail([operation], error)
                return
            else:
                operation.error = None
                return

    def _commit(self, operations: Sequence[Operation[Any]]) -> None:
        """Commit to files that others can find: what is acknowledged must be there tomorrow.

        Raises the driver's errors and `StoreUnavailable` where nothing was committed, `OutcomeUnknown`.
        """
        if self._file.log_has_shrunk(self._file.require_in_place()):
            self._file.lose_log()
        try:
            commit(self._connection, self._busy_timeout, _wanted(operations))
        except (sqlite3.Error, MemoryError) as error:
            unknown = unknown_outcome(error, self._path)
            if unknown is None:
                raise
            raise unknown from error
        try:
            self._log_size = self._file.require_in_place()
            self._file.require_whole_log(self._connection, self._log_size)
        except StoreUnavailable as error:
            raise lost_while_committing(error) from error

    def _translated(self, error: BaseException) -> BaseException:
        """Return the error that a caller gets, with the driver's as its cause."""
        if not isinstance(error, (sqlite3.Error, MemoryError)):
            return raisable(error)
        ours = translate(error, self._path)
        ours.__cause__ = error
        return ours

    def _undo(self) -> None:
        """Roll back, and forget what the transaction would have left."""
        roll_back(self._connection)
        self._states.current.clear()
        self.rescue_log()


def raisable(error: BaseException) -> BaseException:
    """Return the error a future can carry: a StopIteration (of a source of ids that ran out) it would refuse."""
    if not isinstance(error, StopIteration):
        return error
    wrapped = InvalidArgument(
        "ids, session_ids or clock raised StopIteration; has it run out? return another each time"
    )
    wrapped.__cause__ = error
    return wrapped


def roll_back(connection: sqlite3.Connection) -> None:
    """End a transaction without a trace, where there is one."""
    if connection.in_transaction:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


def _wanted(operations: Sequence[Operation[Any]]) -> Callable[[], bool]:
    """Return what tells whether anybody still waits for one of these."""
    return lambda: not all(operation.is_given_up for operation in operations)
