"""The same operations on PostgreSQL, through the connection pool of an `AsyncEngine` and asyncpg itself.

A connection is borrowed for one transaction. A write locks its session's row first and reads it again; an append
or a fork is one statement that only lands on the revision it was planned for (`postgres_plans`).
What a lost connection leaves open is tried again where that is safe, and reported where it is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar, cast

import asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.util.concurrency import greenlet_spawn

from flue_py.core.sessions import Problem
from flue_py.errors import (
    FlueError,
    InvalidArgument,
    OutcomeUnknown,
    StoreClosed,
    StoreUnavailable,
    WrongEventLoop,
)
from flue_py.lazy import lazy_module
from flue_py.store.backend import Backend
from flue_py.store.opener import Opener
from flue_py.store.ops.append import PlannedAppend
from flue_py.store.ops.sessions import PlannedFork, get_session
from flue_py.store.postgres.errors import (
    DRIVER_ERRORS,
    UNIQUE_VIOLATION,
    is_lost_connection,
    met_taken_id,
    no_new_id,
    sqlstate_of,
    translate,
    was_rolled_back,
)
from flue_py.store.postgres.format import connect_seconds, prepare_postgres
from flue_py.store.postgres.listener import POLL_SECONDS, Listener
from flue_py.store.postgres.plans import land_in_one_statement
from flue_py.store.postgres.transaction import Connection, PostgresTransaction
from flue_py.store.schema.session_state import SessionState
from flue_py.store.seam import (
    CommittedBeforeCancellation,
    Durability,
    IdTaken,
    NeedsSnapshot,
    Plan,
    Runner,
    Sources,
    Transaction,
)
from flue_py.store.sql import move as move_sql
from flue_py.store.sql import store as store_sql
from flue_py.store.waiting import ended

if TYPE_CHECKING:
    from sqlalchemy import URL

    from flue_py.store.postgres import words
    from flue_py.store.words import WordIndex
else:
    # Most programs search nothing.
    words = lazy_module("flue_py.store.postgres.words")

Result = TypeVar("Result")

MAX_KNOWN_STATES = 10_000
_ATTEMPTS = 10
_PLANNED_ATTEMPTS = 2
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0
_FAILURES = (*DRIVER_ERRORS, IdTaken)


def make_engine(
    url: URL, *, durability: Durability, busy_timeout: float, pool_size: int, pool_timeout: float
) -> AsyncEngine:
    """Return an engine of our own: ``pool_size`` connections at most, each waiting for a lock no longer than that."""
    settings = {
        "application_name": "flue_py",
        "lock_timeout": str(int(busy_timeout * 1000)),
        "synchronous_commit": "on" if durability == "full" else "off",
        # Planning for machine code takes longer than any of our statements.
        "jit": "off",
    }
    return create_async_engine(
        url,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=pool_timeout,
        # The connection that was returned last has the statements prepared, and planned for good.
        pool_use_lifo=True,
        # A host that swallows packets is given up on like one that is busy.
        connect_args={"server_settings": settings, "timeout": connect_seconds(busy_timeout)},
    )


async def open_postgres(
    engine: AsyncEngine, *, owned: bool, sources: Sources, durability: Durability, busy_timeout: float
) -> Backend:
    """Open a store on an engine of ``postgresql+asyncpg``, creating and migrating it as needed.

    Raises `StoreUnavailable`, `StoreBusy`, `FormatTooNew`, `NotAStore`, `CorruptStore`, and `InvalidArgument` for a
    borrowed engine whose commits are not what ``durability`` promises.
    """
    runner = PostgresRunner(engine, owned=owned, busy_timeout=busy_timeout)
    try:
        await runner.start()
        if durability == "full":
            await runner.require_durable_commits()
    except BaseException:
        await runner.close()
        raise
    return Backend(runner, sources)


class _Progress:
    """How far an operation has come: whether a commit is on its way, and which plans may have landed unheard."""

    def __init__(self) -> None:
        self.is_committing = False
        self.sending: PlannedAppend | PlannedFork | None = None
        self.unheard: list[PlannedAppend | PlannedFork] = []

    def begin(self) -> None:
        """Begin another attempt, or the first."""
        self.is_committing = False
        self.sending = None

    def lose_connection(self) -> None:
        """Note that what was being sent may have landed."""
        if self.is_committing and self.sending is not None:
            self.unheard.append(self.sending)


class PostgresRunner(Runner):
    """Runs transactions on the connections of a pool."""

    def __init__(self, engine: AsyncEngine, *, owned: bool, busy_timeout: float) -> None:
        self._engine = engine
        # The query may hold secrets too.
        shown = {name: value for name, value in engine.url.query.items() if name in ("host", "port")}
        self._location = engine.url.set(query=shown).render_as_string(hide_password=True)
        self._owned = owned
        self._busy_timeout = busy_timeout
        self._loop = asyncio.get_running_loop()
        self._opener = Opener()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loose_reads = 0
        self._no_loose_reads = asyncio.Event()
        self._no_loose_reads.set()
        self._states: dict[str, SessionState] = {}
        self._listener = Listener(self._own_connection)
        self._followers: set[asyncio.Event] = set()
        self._closed = False

    @property
    def backend_name(self) -> str:
        return f"{self._engine.dialect.name}+{self._engine.dialect.driver}"

    @property
    def location(self) -> str:
        """The URL without its secrets."""
        return self._location

    async def size_bytes(self) -> int | None:
        row = await self.read(lambda tx: tx.first(store_sql.DATABASE_SIZE), loose=True)
        (size,) = row or (None,)
        return size

    async def start(self) -> None:
        """Prepare the database. Raises as `open_postgres` says; does not wait for a server that is not there."""
        try:
            async with self._engine.connect() as connection:
                await connection.run_sync(lambda sync: prepare_postgres(sync, self.location))
        except FlueError:
            # Some of ours are OSErrors too.
            raise
        except _FAILURES as error:
            raise translate(error, self.location) from error
        except (TypeError, ValueError, OverflowError) as error:
            # The driver takes the parts of a URL as arguments of its own.
            raise InvalidArgument(
                f"{self.location}: the driver does not understand a part of this ({type(error).__name__})"
            ) from error

    async def require_durable_commits(self) -> None:
        """Raise `InvalidArgument` where commits do not wait for the disk: an acknowledged append could be lost."""
        row = await self.read(lambda tx: tx.first(store_sql.SYNCHRONOUS_COMMIT), loose=True)
        if row == ("off",):
            raise InvalidArgument(
                f"{self.location}: these connections have synchronous_commit = off, which may lose what was "
                "acknowledged; set it to on, or open with durability='normal'"
            )

    # -- the index of words ---------------------------------------------------------------------------------------

    async def words_location(self) -> str | None:
        return words.LOCATION if await words.words_are_there(self) else None

    async def open_words(self, version: int, turn: contextlib.AbstractAsyncContextManager[object]) -> WordIndex | None:
        del turn
        return await words.open_postgres_words(self, version)

    async def remove_words(self) -> None:
        await words.remove_postgres_words(self)

    async def forget_words(self, session_ids: Collection[str]) -> None:
        await words.forget_postgres_words(self, session_ids)

    # -- running ------------------------------------------------------------------------------------------------

    async def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        def once(connection: Connection, progress: _Progress) -> Result:
            return self._write_once(connection, progress, work)

        result = await self._run(once, repeatable=repeatable)
        self._wake_followers()
        return result

    async def read(self, work: Callable[[Transaction], Result], *, loose: bool = False) -> Result:
        if loose:
            with contextlib.suppress(NeedsSnapshot):
                return await self._read_loosely(work)

        def once(connection: Connection, _: _Progress) -> Result:
            try:
                # Whoever is cancelled meanwhile does not know whether it has begun.
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                return work(PostgresTransaction(connection))
            finally:
                _roll_back(connection)

        return await self._run(once, repeatable=True)

    async def _read_loosely(self, work: Callable[[Transaction], Result]) -> Result:
        """Run a read without a transaction, in the caller's own task: there is nothing to finish or to roll back."""

        def once(connection: Connection, _: _Progress) -> Result:
            return work(PostgresTransaction(connection, loose=True))

        self._require_open()
        self._loose_reads += 1
        self._no_loose_reads.clear()
        try:
            return await self._persist(once, _Progress(), repeatable=True)
        finally:
            self._loose_reads -= 1
            if not self._loose_reads:
                self._no_loose_reads.set()

    async def land(
        self,
        session_id: str,
        plan: Callable[[Transaction], Plan[Result] | Result],
    ) -> Result | None:
        """Return what a plan did in one statement, or None, with nothing done, where it takes a transaction.

        The statement may be sent again where the connection was lost: whether it has landed is looked up first.
        """

        def once(connection: Connection, progress: _Progress) -> Result | None:
            for _ in range(_PLANNED_ATTEMPTS):
                known = self._states.pop(session_id, None)
                tx = PostgresTransaction(connection)
                for sent in progress.unheard:
                    if _has_landed(tx, sent):
                        return cast("Result", sent.result)
                if known is not None:
                    tx.states[session_id] = known
                try:
                    planned = plan(tx)
                except FlueError:
                    if known is None:
                        raise
                    # It was judged by what may be old: look again.
                    continue
                if not isinstance(planned, (PlannedAppend, PlannedFork)):
                    return cast("Result", planned)
                progress.sending = planned
                progress.is_committing = True
                try:
                    result = cast("Result | None", land_in_one_statement(tx, planned))
                except asyncio.CancelledError:
                    # The server has given the statement up, while it waited for a lock, or it was faster.
                    if not _has_landed(PostgresTransaction(connection), planned):
                        raise
                    return cast("Result", planned.result)
                progress.is_committing = False
                if result is not None:
                    self._keep_states(tx)
                    return result
            return None

        landed = await self._run(once, repeatable=True)
        self._wake_followers()
        return landed

    def _write_once(self, connection: Connection, progress: _Progress, work: Callable[[Transaction], Result]) -> Result:
        tx = PostgresTransaction(connection, locks=True)
        try:
            # Whoever is cancelled meanwhile does not know whether it has begun.
            connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            result = work(tx)
            progress.is_committing = True
            connection.execute("COMMIT")
        except BaseException:
            _roll_back(connection)
            raise
        self._keep_states(tx)
        return result

    def _keep_states(self, tx: PostgresTransaction) -> None:
        """Remember sessions as a commit left them. A write that builds on an old one notices it."""
        for session_id in tx.locked - tx.states.keys():
            self._states.pop(session_id, None)
        if len(self._states) > MAX_KNOWN_STATES:
            self._states.clear()
        self._states.update(tx.states)

    async def _run(self, once: Callable[[Connection, _Progress], Result], *, repeatable: bool) -> Result:
        """Run one operation on a borrowed connection, again where that is safe; finish a commit that is on its way."""
        self._require_open()
        progress = _Progress()
        task = asyncio.create_task(self._persist(once, progress, repeatable))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError as cancelled:
            # A single statement may be waiting for a lock; whether it was faster is looked up.
            if not progress.is_committing or progress.sending is not None:
                task.cancel()
            await ended(task)
            if task.cancelled() or task.exception() is not None:
                raise
            raise cancelled from CommittedBeforeCancellation(task.result())

    def _require_open(self) -> None:
        self._opener.require_here(self.location)
        if self._closed:
            raise StoreClosed(f"{self.location} has been closed; open it again")
        if asyncio.get_running_loop() is not self._loop:
            raise WrongEventLoop(f"{self.location} was opened in another event loop; open it in this one")

    async def _persist(
        self, once: Callable[[Connection, _Progress], Result], progress: _Progress, repeatable: bool
    ) -> Result:
        """Run an operation until it has come to an end, within the busy budget."""
        patience_ends = self._loop.time() + self._busy_timeout
        pause = _FIRST_PAUSE
        attempts = 0
        while True:
            attempts += 1
            progress.begin()
            try:
                return await greenlet_spawn(self._borrow, once, progress)
            except FlueError:
                raise
            except _FAILURES as error:
                if is_lost_connection(error):
                    progress.lose_connection()
                    self._require_repeatable(error, progress, repeatable)
                    if self._loop.time() + pause > patience_ends:
                        raise self._given_up(error, progress) from error
                elif not (_should_run_again(error) and attempts < _ATTEMPTS):
                    raise self._translated(error) from error
                elif met_taken_id(error):
                    # Whoever has the id has committed: nobody is waited for, and another id is drawn at once.
                    continue
            # Those who were in each other's way do not come back at the same moment.
            await asyncio.sleep(pause * random.random())  # noqa: S311 - not a secret
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _require_repeatable(self, error: BaseException, progress: _Progress, repeatable: bool) -> None:
        if progress.is_committing and not repeatable:
            raise OutcomeUnknown(
                f"{self.location}: the connection was lost while committing, so whether the operation happened is not "
                "known; refresh() and look before you repeat it, or use an idempotency_key"
            ) from error

    def _given_up(self, error: BaseException, progress: _Progress) -> FlueError:
        if progress.unheard:
            return OutcomeUnknown(
                f"{self.location}: the connection was lost while writing, and the server did not come back within "
                f"{self._busy_timeout:g} s; look whether what you wrote is there before you repeat it"
            )
        return self._translated(error)

    def _translated(self, error: BaseException) -> FlueError:
        if isinstance(error, IdTaken) or sqlstate_of(error) == UNIQUE_VIOLATION:
            return no_new_id(error, self.location, _ATTEMPTS)
        return translate(error, self.location)

    def _borrow(self, once: Callable[[Connection, _Progress], Result], progress: _Progress) -> Result:
        """Run an operation on a connection of the pool. Runs in a greenlet of SQLAlchemy's."""
        borrowed = self._engine.sync_engine.raw_connection()
        try:
            connection = Connection(borrowed)
            if connection.is_closed:
                # The server went away while it lay in the pool; nothing was sent yet.
                raise asyncpg.InterfaceError("connection is closed")
            return once(connection, progress)
        except BaseException as error:
            # The driver may not have seen yet that it is closed: the next borrower must not get it.
            if Connection(borrowed).is_closed or is_lost_connection(error):
                borrowed.invalidate()
            raise
        finally:
            borrowed.close()

    # -- watching -----------------------------------------------------------------------------------------------

    async def wakeups(self, session_id: str | None) -> AsyncGenerator[None, None]:
        self._require_open()
        if session_id is None:
            async with contextlib.aclosing(self._wakeups_of_all()) as wakeups:
                async for _ in wakeups:
                    yield
            return
        try:
            event = await self._listener.add(session_id)
        except FlueError:
            # Some of ours are OSErrors too.
            raise
        except _FAILURES as error:
            raise translate(error, self.location) from error
        try:
            while not self._closed:
                event.clear()
                yield
                await event.wait()
        finally:
            await self._listener.remove(session_id, event)

    async def _wakeups_of_all(self) -> AsyncGenerator[None, None]:
        """Wake after a commit here, or when a look shows that anybody has committed, in whatever database.

        Nobody is told to notify: all commits that notify wait for each other, and here each of them would.
        """
        event = asyncio.Event()
        self._followers.add(event)
        try:
            seen = await self._snapshot()
            # Beyond here the store was open: one that closes now, between any two steps, ends the watching.
            with contextlib.suppress(StoreClosed):
                while True:
                    yield
                    while (snapshot := await self._snapshot()) == seen:
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(POLL_SECONDS):
                                await event.wait()
                        event.clear()
                    seen = snapshot
        finally:
            self._followers.discard(event)

    async def _snapshot(self) -> str:
        row = await self.read(lambda tx: tx.first(store_sql.SNAPSHOT), loose=True)
        (snapshot,) = row or ("",)
        return snapshot

    def _wake_followers(self) -> None:
        for event in self._followers:
            event.set()

    async def _own_connection(self) -> asyncpg.Connection[Any]:
        """Return a new connection like those of the pool, which is no part of it any more."""

        def detached() -> asyncpg.Connection[Any]:
            borrowed = self._engine.sync_engine.raw_connection()
            driver: asyncpg.Connection[Any] | None = borrowed.driver_connection
            borrowed.detach()
            if driver is None or driver.is_closed():
                raise StoreUnavailable(f"{self.location}: the connection was lost")
            return driver

        return await greenlet_spawn(detached)

    # -- the rest -----------------------------------------------------------------------------------------------

    async def storage_problems(self) -> list[Problem]:
        return []

    async def close(self) -> None:
        if self._closed or not self._opener.is_here:
            # In a forked child the sockets are the parent's: to say goodbye on them would end its connections.
            return
        self._closed = True
        self._wake_followers()
        await self._listener.close()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._no_loose_reads.wait()
        if self._owned:
            await self._engine.dispose()


def _should_run_again(error: BaseException) -> bool:
    """Return whether the transaction was rolled back for a reason that another run may not meet."""
    return isinstance(error, IdTaken) or was_rolled_back(error) or sqlstate_of(error) == UNIQUE_VIOLATION


def _has_landed(tx: PostgresTransaction, sent: PlannedAppend | PlannedFork) -> bool:
    """Return whether a plan whose connection was lost has been committed: the ids it made tell."""
    if isinstance(sent, PlannedFork):
        made = get_session(tx, sent.result.id, None)
        return made is not None and made.created_us == sent.result.created_us
    last = sent.result.entry_ids[-1]
    return tx.first(move_sql.ENTRY_POSITION, tree_id=sent.state.tree_id, entry_id=last) is not None


def _roll_back(connection: Connection) -> None:
    if not connection.is_closed:
        with contextlib.suppress(*_FAILURES):
            connection.execute("ROLLBACK")
