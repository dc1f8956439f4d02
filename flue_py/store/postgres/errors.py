"""What PostgreSQL and its driver say, as errors of our own: by SQLSTATE, never by text, and never with a secret."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import asyncpg
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_dbapi
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from flue_py.errors import CorruptStore, FlueError, InvalidArgument, NotAStore, StoreBusy, StoreUnavailable

DRIVER_ERRORS = (
    SQLAlchemyError,
    # What the driver says while the pool connects, as SQLAlchemy hands it on.
    AsyncAdapt_asyncpg_dbapi.Error,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)

UNIQUE_VIOLATION = "23505"
DIVISION_BY_ZERO = "22012"

# Another transaction was in the way and this one was rolled back: it can simply be run again.
_ROLLED_BACK = frozenset({"40001", "40P01"})

_BUSY = {
    "55P03": "another session holds a lock for longer than lock_timeout",
    "57014": "the statement was cancelled, as after statement_timeout",
    "53300": "the server has no free connection slot",
    "40001": "other transactions were in the way again and again",
    "40P01": "other transactions were in the way again and again",
}
_UNAVAILABLE = {
    "25006": "the server is read-only (a standby, or default_transaction_read_only)",
    "53100": "the server's disk is full",
    "53200": "the server is out of memory",
    "3D000": "the database does not exist",
    "42501": "the role lacks a privilege it needs",
    "28000": "the server refuses this role",
    "28P01": "the server refuses this role's password",
    "57P01": "the server is shutting down",
    "57P02": "the server has crashed",
    "57P03": "the server is starting up or shutting down",
}


_GENERATED = {"uq_entries_id_tree_id": "ids", "uq_sessions_id": "session_ids", "uq_budgets_id": "ids"}
"""What is unique, and the argument of `open` that it is drawn from."""


def sqlstate_of(error: BaseException) -> str | None:
    """Return the SQLSTATE behind an error of the driver or of SQLAlchemy, or None where there is none."""
    for each in _chain(error):
        state = getattr(each, "sqlstate", None)
        if isinstance(state, str):
            return state
    return None


def is_lost_connection(error: BaseException) -> bool:
    """Return whether an error says that the connection is gone, or that none could be made."""
    state = sqlstate_of(error)
    if state is not None:
        return state.startswith("08") or state in ("57P01", "57P02", "57P03", "57P05", "25P03")
    if isinstance(error, PoolTimeout):
        return False
    # asyncpg reports a connection that closed under it as InterfaceError, without a SQLSTATE.
    return any(
        isinstance(each, (OSError, EOFError, asyncio.TimeoutError)) or _is_closed_interface(each)
        for each in _chain(error)
    )


def _is_closed_interface(error: BaseException) -> bool:
    name = type(error).__name__
    # A connection that the server ends while it is idle is out of step, for asyncpg, until it is seen to be closed.
    return name == "InternalClientError" or (name == "InterfaceError" and "clos" in str(error))


def was_rolled_back(error: BaseException) -> bool:
    """Return whether the server rolled the transaction back for others' sake: a deadlock, a serialization failure."""
    return sqlstate_of(error) in _ROLLED_BACK


def met_taken_id(error: BaseException) -> bool:
    """Return whether a write met an id that the store draws, and that is there already: the next one may be free."""
    return any(getattr(each, "constraint_name", None) in _GENERATED for each in _chain(error))


def no_new_id(error: BaseException, location: str, attempts: int) -> FlueError:
    """Return our error for a write that met something unique again and again: an id, or what verify() should see."""
    names = [name for each in _chain(error) if isinstance(name := getattr(each, "constraint_name", None), str)]
    for name in names:
        if name in _GENERATED:
            where = f"({location}: {name})"
            source = _GENERATED[name]
            return InvalidArgument(f"{source}: {attempts} ids in a row are taken {where}; make others, and none twice")
    what = ", ".join(names) or type(error).__name__
    return CorruptStore(f"{location}: a write contradicts what is stored ({what}); run verify()")


def translate(error: BaseException, location: str) -> FlueError:
    """Return our error for one of the driver's; the caller chains the cause. Holds no parameter and no secret."""
    if isinstance(error, PoolTimeout):
        return StoreBusy(f"{location}: no connection of the pool came free in time; try again, or raise pool_size")
    state = sqlstate_of(error)
    if state is not None:
        return _by_state(state, location)
    if is_lost_connection(error):
        return StoreUnavailable(f"{location} cannot be reached; is the server running, and is this the right address?")
    return StoreUnavailable(f"{location} cannot be used: {type(getattr(error, 'orig', None) or error).__name__}")


def _by_state(state: str, location: str) -> FlueError:
    if state in _BUSY:
        return StoreBusy(f"{location}: {_BUSY[state]} ({state}); try again")
    if state == "54000":
        # What an index of PostgreSQL holds is at most about 2,700 bytes long.
        return InvalidArgument(f"{location}: a key or an id is too long for the server's index; shorten it ({state})")
    if state in ("42P01", "42703"):
        return NotAStore(f"{location}: a table or column of the store is missing ({state}); run verify(), or migrate")
    if state.startswith("23"):
        return CorruptStore(f"{location}: a write contradicts what is stored ({state}); run verify()")
    if state.startswith("XX"):
        return CorruptStore(f"{location}: the server reports damaged data ({state}); restore a backup")
    why = _UNAVAILABLE.get(state, "the server refused a statement")
    return StoreUnavailable(f"{location} cannot be used: {why} ({state})")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what lies behind it: SQLAlchemy's ``orig``, and causes."""
    seen: set[int] = set()
    queue: list[BaseException | None] = [error]
    while queue:
        each = queue.pop(0)
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        queue += [getattr(each, "orig", None), each.__cause__]
