"""A copy of a SQLite database as it is at one moment, taken while others write, and verified."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

from flue_py.core.sessions import VerifyReport
from flue_py.core.trees import BackupReport
from flue_py.db import sql
from flue_py.db.files import Part
from flue_py.db.ops.verify import storage_problems, verify
from flue_py.db.sqlite.file import (
    BUSY_POLL_MS,
    Progress,
    SqliteTransaction,
    check_magic,
    connect,
    connect_for_reading,
    copy_into,
    translated,
    why_not_writable,
)
from flue_py.db.waiting import Waiting
from flue_py.errors import CorruptStore, InvalidArgument, StoreUnavailable


class Told:
    """A function that is called with progress, on a thread. What it raises is kept in ``error`` and ends the backup.

    On its way it is one of our errors: a driver's would be taken for the database's, and no future carries a
    StopIteration.
    """

    def __init__(self, tell: Progress | None) -> None:
        self._tell = tell
        self.error: BaseException | None = None

    def __call__(self, done: int, total: int) -> None:
        if self._tell is None:
            return
        try:
            self._tell(done, total)
        except BaseException as error:
            self.error = error
            raise StoreUnavailable("progress: it raised an error, and nothing was written") from error


async def back_up_while_waiting(
    waiting: Waiting, path: Path, target: Path, *, overwrite: bool, verified: bool, progress: Progress | None
) -> BackupReport:
    """Copy a database file as its store waits for that (see `Backend.backup`). Raises what ``progress`` raises, too."""
    told = Told(progress)
    try:
        return await waiting.call(partial(back_up, path, target, overwrite=overwrite, verified=verified, progress=told))
    except StoreUnavailable:
        if told.error is not None:
            raise told.error from None
        raise


def back_up(
    path: Path, target: Path, *, overwrite: bool = False, verified: bool = True, progress: Progress | None = None
) -> BackupReport:
    """Copy a database file of the current format (see `Backend.backup`). Blocks; O(file)."""
    check_magic(path)
    if overwrite and target.exists() and target.samefile(path):
        raise InvalidArgument(f"{target} is the database itself; name another file")
    with Part(target, overwrite=overwrite) as part:
        with translated(path), closing(_connect_to(path)) as source:
            copy_into(source, part.path, progress)
        with closing(connect(part.path, "full", read_only=True)) as copy, translated(part.path):
            report = verify_connection(copy, str(path)) if verified else _counts(copy)
        if report.problems:
            count = len(report.problems)
            raise CorruptStore(
                f"{path} is not whole, so no backup was kept: {count} problems, first {report.problems[0]}; "
                "run verify(), and salvage what is readable"
            )
        size = part.path.stat().st_size
        part.publish()
    return BackupReport(str(target), size, report.sessions, report.entries, verified)


def _connect_to(path: Path) -> sqlite3.Connection:
    if why_not_writable(path) is None:
        return connect(path, "full", read_only=True)
    return connect_for_reading(path, BUSY_POLL_MS / 1000)


def verify_connection(connection: sqlite3.Connection, location: str) -> VerifyReport:
    """Return what `Backend.verify` does, of a connection that nobody else uses."""
    tx = SqliteTransaction(connection)
    problems = storage_problems(tx, location)
    report = verify(tx)
    return VerifyReport(report.sessions, report.entries, problems + report.problems)


def _counts(connection: sqlite3.Connection) -> VerifyReport:
    sessions, entries, *_ = SqliteTransaction(connection).first(sql.COUNTS) or (0, 0, 0, 0)
    return VerifyReport(sessions, entries)
