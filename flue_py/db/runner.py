"""The parts of a store that no database knows: its loop, its process, statements, runners and the index of words."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import sys
import time
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import cached_property, partial
from operator import itemgetter
from pathlib import Path
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, TypeVar, cast

from msgspec import Struct

from flue_py import errors
from flue_py.core.chain import NO_PARENT, UNKEYED, Chain
from flue_py.core.json import Frozen, NamedTuple
from flue_py.core.sessions import Expected, OnConflict, Seen, Stored
from flue_py.core.usage import PAID_COLUMNS, TOTAL_COLUMNS, Paid, UsageTotals
from flue_py.db.waiting import ON_LOOP, Loop, Promise, Waiting, ended, given
from flue_py.lazy import expression, lazy_module
from flue_py.system import Lock

if TYPE_CHECKING:
    import asyncio

    from flue_py.core import erasure
    from flue_py.core.sessions import Problem
    from flue_py.core.trees import BackupReport
    from flue_py.search import Need, Pairs
else:
    asyncio = lazy_module("asyncio")
    erasure = lazy_module("flue_py.core.erasure")


# ---------------------------------------------------------------------------------------------------------------------
# The event loop that a store runs on: asyncio or trio, whichever runs when it is opened.


class _Asyncio(Loop):
    """The functions of the running loop themselves, so that nothing is called that need not be."""

    name = "asyncio"
    waiting = ON_LOOP

    def __init__(self) -> None:
        self.cancelled = asyncio.CancelledError
        self._loop = loop = asyncio.get_running_loop()
        self.promise = loop.create_future
        self.post = loop.call_soon_threadsafe

    def is_here(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False


def is_trio() -> bool:
    """Return whether this is called in a task of trio. asyncio may run there as well, as its host."""
    # Where nobody has imported trio, none of its tasks run.
    trio = sys.modules.get("trio")
    if trio is None:
        return False
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True


def running_loop(location: str) -> Loop:
    """Return the loop that runs now. Raises `WrongEventLoop` where it is neither asyncio nor trio."""
    if is_trio():
        from flue_py.db.trio import TrioLoop  # noqa: PLC0415 - trio is imported where it runs only

        return TrioLoop()
    try:
        return _Asyncio()
    except RuntimeError as error:
        raise errors.WrongEventLoop(
            f"{location} cannot be opened: no event loop of asyncio or trio is running here; use flue_py.sync.open"
        ) from error


def require_asyncio(location: str) -> None:
    """Raise `WrongEventLoop` under trio, for a database that has no driver for it."""
    if is_trio():
        raise errors.WrongEventLoop(
            f"{location} cannot be opened under trio: its driver is for asyncio; open an SQLite file by its path, "
            "or use flue_py.sync in a thread"
        )


def waiting_here() -> Waiting:
    """Return how calls wait on the loop that runs now, where no store is open."""
    return running_loop("a file").waiting


class Bell:
    """Wakes the tasks that wait for the next change. For the thread of the loop only."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiting = set[Promise[None]]()

    def ring(self) -> None:
        """Wake all who wait now."""
        if self._waiting:
            waiting, self._waiting = self._waiting, set()
            for promise in waiting:
                if not promise.done():
                    promise.set_result(None)

    async def wait(self) -> None:
        """Wait until it rings."""
        promise: Promise[None] = self._loop.promise()
        self._waiting.add(promise)
        try:
            await promise
        finally:
            self._waiting.discard(promise)

    async def wait_at_most(self, seconds: float) -> bool:
        """Wait until it rings, or until so many seconds have passed; return whether it rang."""
        with given(seconds) as scope:
            await self.wait()
        return not scope.cancelled_caught


# ---------------------------------------------------------------------------------------------------------------------
# The process that opened a store: a store is used where it was opened only, and starts its threads there.


@contextlib.contextmanager
def starting_threads(location: object) -> Iterator[None]:
    """Surround a start of threads that a store needs. Raises `StoreUnavailable` where the system refuses one."""
    try:
        yield
    except RuntimeError as error:
        if _NO_THREAD not in str(error):
            raise
        raise errors.StoreUnavailable(
            f"{location} cannot be opened: {error}; close other stores, or allow more threads (ulimit -u)"
        ) from error


_NO_THREAD = "can't start new thread"


class Opener:
    """The process that opened a store."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is still that process, not a child of it."""
        return os.getpid() == self._pid

    def require_here(self, location: str | Path) -> None:
        """Raise `WrongProcess` in a forked child."""
        if os.getpid() != self._pid:
            raise errors.WrongProcess(
                f"{location} was opened in process {self._pid}, and this is a child that it forked; "
                "open the store after the fork, or start the process with the method 'spawn'"
            )


# ---------------------------------------------------------------------------------------------------------------------
# Holding the cycle collector off while thousands of rows or messages become objects, none of which is a cycle.
#
# Left alone, it would run again and again over everything that is alive, and double the time of a big read.

WORTH_HOLDING = 500

_lock = Lock()
_holders = 0
_was_enabled = False


@contextmanager
def collector_held(objects: int) -> Iterator[None]:
    """Hold the collector off where ``objects`` are many. Holds on several threads are counted; the last one ends it."""
    if objects < WORTH_HOLDING:
        yield
        return
    global _holders, _was_enabled  # noqa: PLW0603 - the collector is one per process, and so is its holder
    with _lock:
        if _holders == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _holders += 1
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if _holders == 0 and _was_enabled:
                gc.enable()


# ---------------------------------------------------------------------------------------------------------------------
# A session as an operation finds it: its row, with the place of its leaf.


class Position(NamedTuple):
    """The place of an entry: its id, digest, lane and depth, the sums to it, and what decides where a child goes."""

    id: str
    digest: bytes
    lane_id: int
    depth: int
    totals: UsageTotals
    paid: Paid
    owner_key: int
    parent_lane: int | None
    fork_depth: int
    has_child: bool


class SessionState(Struct):
    """A session inside a transaction, with the position of its leaf (None before the first entry).

    ``head`` is that of its row, ``about`` the columns that no entry changes.
    """

    key: int
    id: str
    tree_id: int
    scope: str
    leaf: str | None
    revision: int
    kind: str
    task_depth: int
    forked_from_entry: str | None
    spent_tokens: int
    spent_cost: int
    cwd: str | None
    active_slot: int
    entry_count: int
    message_count: int
    first_message: str | None
    unpriced_calls: int
    unknown_calls: int
    updated_at: int
    active_at: int
    log_seal: int
    mark_seal: int
    link_seal: int
    call_seal: int
    head: bytes
    about: Row
    position: Position | None

    def head_by(self, chain: Chain) -> bytes:
        """Return the head that its row has with these values."""
        return chain.head(*self._covered())

    def has_head(self, chain: Chain) -> bool:
        """Return whether its row has the head of these values."""
        return chain.has_head(self.head, *self._covered())

    def _covered(self) -> tuple[bytes, Row]:
        leaf = NO_PARENT if self.position is None else self.position.digest
        key, title, forked_from, metadata, config_path, completed_at, trashed_at, created_at, auto_title = self.about
        seals = (self.log_seal, self.mark_seal, self.link_seal, self.call_seal)
        return leaf, (self.tree_id, self.task_depth, self.active_slot, *seals, (
            self.id, self.scope, key, title, self.kind, forked_from, self.forked_from_entry, self.leaf, self.revision,
            metadata, self.cwd, config_path, completed_at, trashed_at, self.entry_count, self.message_count,
            self.first_message, self.spent_tokens, self.spent_cost, created_at, self.updated_at, auto_title,
            self.unpriced_calls, self.active_at, self.unknown_calls, self.key,
        ))  # fmt: skip

    def require(self, expected: Expected, on_conflict: OnConflict = "raise") -> bool:
        """Return whether the stored leaf is the expected one.

        Raises `RevisionConflict` if the stored revision is another one, and `LeafConflict` if the leaf is, unless
        ``on_conflict`` has an answer to that.
        """
        leaf, revision = (expected.leaf, expected.revision) if isinstance(expected, Seen) else (expected, None)
        if revision is not None and revision != self.revision:
            raise errors.RevisionConflict(self.id, revision, self.revision)
        if isinstance(leaf, Stored) or leaf == self.leaf:
            return True
        if on_conflict == "raise":
            raise errors.LeafConflict(self.id, leaf, self.leaf)
        return False


class Sums(NamedTuple):
    """A place, and the sums to it."""

    lane_id: int
    depth: int
    totals: UsageTotals
    paid: Paid


_TOTALS = len(TOTAL_COLUMNS)
_OWN = len(SessionState.__struct_fields__) - 2
_OF_PLACE = len(Position._fields) - 2 + _TOTALS + len(PAID_COLUMNS)


def sums_of(columns: Sequence[Any]) -> Sums:
    """Return the columns of `sql.POSITION` as sums."""
    lane_id, depth, *sums = columns
    return Sums(lane_id, depth, UsageTotals._make(sums[:_TOTALS]), Paid._make(sums[_TOTALS:]))


def position_of(columns: Sequence[Any]) -> Position:
    """Return the columns of `sql.place_of` as a position."""
    entry_id, digest, *sums, owner_key, parent_lane, fork_depth, child = columns
    return Position(entry_id, digest, *sums_of(sums), owner_key, parent_lane, fork_depth, child is not None)


def state_of(columns: Sequence[Any]) -> SessionState:
    """Return the columns of `sql.STATE` as a session's state."""
    own, about, place = columns[:_OWN], columns[_OWN:-_OF_PLACE], columns[-_OF_PLACE:]
    return SessionState(*(*own, about, None if place[0] is None else position_of(place)))


# ---------------------------------------------------------------------------------------------------------------------
# What a database has to bring: a `Runner` of transactions; and what an operation needs of it: statements in, rows out.
#
# A `Statement` is SQL text with ``:name`` parameters, and the type of its rows. The stdlib driver takes the text as it
# is, SQLAlchemy takes it as `text()`, asyncpg with numbered and typed parameters.

Result = TypeVar("Result")
Written_co = TypeVar("Written_co", covariant=True)
R = TypeVar("R")

Row: TypeAlias = tuple[Any, ...]
Written = TypeVar("Written", bound=Row)
Parameters: TypeAlias = Mapping[str, object]
Reader: TypeAlias = Callable[[Row], R]

Durability: TypeAlias = Literal["full", "normal"]
"""Whether a commit waits until the disk has it, or a crash of the machine may take the last ones."""

_PARAMETER = expression(r"(?<!:):([a-z_0-9]+)")


# Parameters that are numbers, in any statement; some are bytes, and all others texts.
_NUMBERS = """
    active_at active_slot after_key allowed amount asks_links at before_us below budget_key cache_read_cost call_seal
    cache_read_tokens cache_write_1h_tokens cache_write_5m_tokens cache_write_cost cache_write_tokens calls
    changed_at chars completed completed_at cost count counted created_at depth doc due earlier_key entry_count
    expires_at fork_depth freed from_depth from_us gap high input_cost input_tokens lane_id last_depth last_key
    last_number last_revision last_tree link_seal log_seal low low_depth mark_seal message_count newest now number
    ordinal other_depth other_lane output_cost output_tokens owner_key paid_calls paid_cost paid_tokens parent_key
    parent_lane place position reasoning_tokens reported reserved revision seal seeded session_key settled_at since
    size source_key spent spent_cost spent_tokens task_depth total_cost total_tokens trashed_at tree_id undoes
    unknown unknown_calls unpriced_calls updated_at updated_us used version
"""
_BYTES = ("blob", "data", "digest", "head", "packed", "sha256")
_TYPES = dict.fromkeys(_NUMBERS.split(), "bigint") | dict.fromkeys(_BYTES, "bytea")


class Nothing:
    """The row of a statement that only writes."""


class Statement(Generic[R]):
    """One SQL statement: its text, and the type of its rows.

    ``gives`` is the type of a row: a plain tuple
    type, for which the driver's own tuples are returned as they are; a named tuple or another class, made of the
    columns in their order; or a function that reads a row. ``postgres`` is the text for PostgreSQL, which
    `sql.for_postgres` makes of that for SQLite.
    """

    def __init__(self, gives: type[R] | Reader[R], sql: str, postgres: str) -> None:
        self.gives = gives
        self.sql = sql
        self.postgres = postgres
        self.writes = sql.startswith(("INSERT", "UPDATE", "DELETE"))
        self.make: Reader[R] | None = _maker(gives)

    @cached_property
    def positional(self) -> str:
        """The statement with ``?`` for its parameters: sqlite3 takes half as long for those as for names."""
        return _PARAMETER.sub("?", self.sql)

    @cached_property
    def in_order(self) -> Callable[[Parameters], Sequence[object]]:
        """A function that puts parameters in the order in which `positional` has them."""
        names = _PARAMETER.findall(self.sql)
        return itemgetter(*names) if len(names) > 1 else lambda parameters: [parameters[name] for name in names]

    @cached_property
    def numbered(self) -> str:
        """The statement for PostgreSQL, with ``$1::bigint`` for its parameters, in the order of `parameters`.

        Typed, because PostgreSQL would guess `integer` for a parameter that meets a small literal.
        """
        numbers = {name: number for number, name in enumerate(self.parameters, start=1)}
        return _PARAMETER.sub(lambda match: f"${numbers[match[1]]}::{self.types[match[1]]}", self.postgres)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters, in order of first use."""
        return tuple(dict.fromkeys(_PARAMETER.findall(self.sql)))

    @cached_property
    def types(self) -> dict[str, str]:
        """The type of each parameter, as databases name it: ``text``, ``bytea`` or ``bigint``."""
        return {name: _TYPES.get(name, "text") for name in self.parameters}


class Insert(Statement[Nothing], Generic[Written]):
    """An INSERT of a named tuple, whose fields are named and ordered as the columns.

    ``first`` is a column before them, a key that the named tuple does without; it is an `Insert` of plain tuples then.
    """

    def __init__(
        self, table: str, row: type[Written], tail: str = "", postgres_tail: str | None = None, *, first: str = ""
    ) -> None:
        columns = (*([first] if first else ()), *row.__annotations__)
        names, marks = ", ".join(f'"{name}"' for name in columns), ", ".join(f":{name}" for name in columns)
        into = f"INSERT INTO {table} ({names}) VALUES ({marks})"
        super().__init__(Nothing, into + tail, into + (tail if postgres_tail is None else postgres_tail))
        self.parameters = columns
        self.types = {first: "bigint"} | {name: database_type(kind) for name, kind in row.__annotations__.items()}


def _maker(gives: type[R] | Reader[R]) -> Reader[R] | None:
    """Return a function that makes a row of the driver's tuple; None if the tuple is taken as it is."""
    if gives is Nothing or isinstance(gives, GenericAlias):
        return None
    if isinstance(gives, type):
        # Not `_make`, which is a function of Python's: this is called for each of many thousand rows.
        return cast("Reader[R]", partial(tuple.__new__, gives) if issubclass(gives, tuple) else lambda row: gives(*row))
    return gives


def database_type(declared: object) -> str:
    """Return ``text``, ``bytea`` or ``bigint``, for the type that a parameter is declared with."""
    words = re.findall(r"\w+", str(getattr(declared, "__forward_arg__", declared)))
    return "bytea" if "bytes" in words else "bigint" if "int" in words else "text"


Pages: TypeAlias = "Generator[Sequence[R], None, None]"
"""Rows, some at a time. Whoever does not read them to the end closes it."""


class Transaction(Protocol):
    """A transaction under way. Rows are as the statement declares them."""

    @property
    def is_alone(self) -> bool:
        """Whether no other transaction writes meanwhile.

        If not, sessions have to be locked before they are read for writing, and keys are drawn, not counted.
        """

    def require_snapshot(self) -> None:
        """Go on where all statements see one moment, or raise `NeedsSnapshot`: the read is then run again on one."""

    def lock_sessions(self, keys: Collection[int]) -> None:
        """Wait until no other transaction writes to these sessions, and keep others out until the end."""

    def lock_session(self, session_id: str) -> None:
        """Do the same for one session by its id; one that is not there is no error."""

    def lock_named(self, session_ids: Collection[str]) -> None:
        """Do the same for sessions by their ids, of all at once, in one order for everybody."""

    def new_key(self) -> int:
        """Return a key for a new session (and its tree) that no session has or ever had."""

    def lock_writers_out(self) -> None:
        """Wait until no other transaction has written to a session, and keep others from it until the end."""
        return None  # noqa: RET501 - without it, mypy takes the method for abstract

    chain: Chain = UNKEYED
    """The digests of the store."""

    stated: tuple[int, int] | None = None
    """The fingerprints of keys (see `ops.seals.Stated`) with which it may commit alone, where that is compared then."""

    def saw(self, session_id: str, state: SessionState | None) -> None:
        """Note the state of a session that was read; None if it is not there."""
        del session_id, state

    states: dict[str, SessionState]
    """Sessions as earlier transactions of this writer left them, by id: a cache, which may be empty at any time.

    An operation takes a state out when it starts, and puts one back at its end.
    """

    def rows(self, statement: Statement[R], /, **parameters: object) -> Sequence[R]:
        """Return all rows."""

    def pages(self, statement: Statement[R], /, **parameters: object) -> Pages[R]:
        """Yield all rows, some at a time where the database can do that: who is done with them lets them go."""
        yield self.rows(statement, **parameters)

    def first(self, statement: Statement[R], /, **parameters: object) -> R | None:
        """Return the first row, or None."""

    def run(self, statement: Statement[Nothing], /, **parameters: object) -> int:
        """Run a statement that writes; return how many rows it touched."""

    def run_many(self, statement: Statement[R], parameters: Sequence[Parameters]) -> None:
        """Run a statement that writes once per set of parameters."""

    def insert(self, statement: Insert[Written], rows: Sequence[Written]) -> None:
        """Run an INSERT once per row."""


class NeedsSnapshot(Exception):
    """A read whose statements each saw their own moment cannot tell whether their rows belong together."""


class KeyChanged(Exception):
    """The store states another key than the one that the digests of a write were made with."""


class IdTaken(Exception):
    """A unique key was violated by an id that was just generated."""


class CommittedBeforeCancellation(Exception):
    """The caller was cancelled when the commit had begun: it was finished first, and this is its result.

    It is the cause of the cancellation, which is raised as it came: only then do the scopes of anyio and trio and the
    timeouts of asyncio recognise it as theirs.
    """

    def __init__(self, result: object) -> None:
        self.result = result
        super().__init__("what the caller no longer waited for was committed")


def committed_before(error: BaseException) -> CommittedBeforeCancellation | None:
    """Return the commit that was finished before this cancellation was raised, if there was one."""
    cause = error.__cause__
    return cause if isinstance(cause, CommittedBeforeCancellation) else None


async def finished(
    tasks: set[asyncio.Task[Any]],
    work: Coroutine[object, object, Result],
    give_up: Callable[[asyncio.Task[Result]], object],
) -> Result:
    """Return the result of a coroutine, run as one of the tasks of a runner on asyncio.

    Where the caller is cancelled meanwhile, ``give_up`` is called, and returns whether the end need not be waited for.
    Raises what the coroutine raises, and the cancellation, caused by `CommittedBeforeCancellation` if it has a result.
    """
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(partial(_forget, tasks))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError as cancelled:
        if give_up(task):
            raise
        await ended(task)
        if task.cancelled() or task.exception() is not None:
            raise
        raise cancelled from CommittedBeforeCancellation(task.result())


def _forget(tasks: set[asyncio.Task[Any]], task: asyncio.Task[Any]) -> None:
    tasks.discard(task)
    if not task.cancelled():
        # Of one that was given up nobody else asks how it ended.
        task.exception()


class Sources(Frozen):
    """Where time and ids come from. Tests inject them; generated ids that collide are asked for again.

    ``draws_entry_ids`` says that an entry's id is one that nobody has or had, in any store: 64 random bits.
    """

    now_us: Callable[[], int]
    entry_id: Callable[[], str]
    session_id: Callable[[], str]
    draws_entry_ids: bool = False


def now_us() -> int:
    """Return the time of the clock, in microseconds since 1970."""
    return time.time_ns() // 1000


def random_id() -> str:
    """Return 64 random bits as text."""
    return os.urandom(8).hex()


class Plan(Frozen, Generic[Written_co]):
    """A write that was checked and placed, and is not written yet."""

    def write(self, tx: Transaction) -> Written_co:
        """Write it; return the result."""
        raise NotImplementedError


def written(tx: Transaction, planned: Plan[Result] | Result) -> Result:
    """Write a plan, unless there was nothing to write; return the result."""
    return planned.write(tx) if isinstance(planned, Plan) else planned


class Backup(Frozen):
    """A copy of a database that is wanted (see `Backend.backup`); ``chain`` verifies it."""

    target: Path
    overwrite: bool = False
    verified: bool = True
    progress: Callable[[int, int], None] | None = None
    chain: Chain = UNKEYED


class Runner(Protocol):
    """Runs transactions on a database."""

    waiting: Waiting = ON_LOOP
    """How its calls wait."""

    most_landed: int = 0
    """How many entries a plan may have that it can `land`."""

    @property
    def backend_name(self) -> str:
        """The kind of store, for `info`."""

    @property
    def location(self) -> str:
        """Where the database is, without secrets."""

    async def size_bytes(self) -> int | None:
        """Return how large the database is on disk, where that can be told."""

    async def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        """Run ``work`` in a transaction that may write; it is durable when this returns.

        ``work`` may be run again, from the start, after a rollback; where it is ``repeatable``, which means that a
        second run does nothing more, also where the connection was lost while committing.
        """

    async def read(self, work: Callable[[Transaction], Result], *, loose: bool = False) -> Result:
        """Run ``work`` on one snapshot.

        ``loose`` says that it can do without: that it is one statement, or checks that the rows of several fit
        together (see `Transaction.require_snapshot`). Then a database may save the round trips of a transaction.
        """

    async def missed(self, session_id: str) -> None:
        """Note that a session is not there, or in another scope. Raises `HistoryPutBack` where it must be there."""
        del session_id

    async def storage_problems(self) -> list[Problem]:
        """Return the problems that the database's own checks find."""

    def wakeups(self, session_id: str | None) -> AsyncGenerator[None, None]:
        """Yield at once, then whenever the session may have changed, here or elsewhere; end when the store is closed.

        None is anything in the store. A commit after a wake-up brings another one.
        """

    async def land(self, session_id: str, plan: Callable[[Transaction], Plan[Result] | Result]) -> Result | None:
        """Return the result of a plan in one round trip, or None, with nothing done, where `write` has to do it."""
        del session_id, plan
        return None

    def forget_states(self) -> None:
        """Forget how sessions were left: entries of theirs have other digests now."""
        return None  # noqa: RET501 - without it, mypy takes the method for abstract

    async def backup(self, wanted: Backup) -> BackupReport:
        """Copy the database into a file, where it is one (see `Backend.backup`)."""
        del wanted
        raise errors.InvalidArgument(
            f"{self.location} is not a file, so there is nothing to back up; copy it into one with flue-py copy, "
            "or use what its server brings (pg_dump)"
        )

    async def forget_deleted(self, needles: erasure.Needles, *, rebuild: bool) -> erasure.Forgotten:
        """Leave nothing in files of what was deleted, and look for it there; ``rebuild`` writes them anew. O(files)."""
        del needles, rebuild
        return erasure.Forgotten()

    @property
    def words_name(self) -> str:
        """The name of the index of words, to all stores of a process that have this database."""
        return self.location

    async def words_location(self) -> str | None:
        """Return where the index of words beside the database lies; None if there is none yet."""
        return None

    async def open_words(self, version: int, turn: AbstractAsyncContextManager[object]) -> WordIndex | None:
        """Open the index of words beside the database, made anew if it is of another version.

        None where there is none, and can be none. One that blocks threads takes turns with others by this lock.
        """
        del version, turn
        return None

    async def remove_words(self) -> None:
        """Remove that index, which is made anew when it is opened."""
        return None  # noqa: RET501 - without it, mypy takes the method for abstract

    async def forget_words(self, session_ids: Collection[str]) -> None:
        """Remove every trace of deleted sessions from that index."""
        del session_ids

    async def close(self) -> None:
        """Finish the calls under way, and let go."""


class RunnerAround(Runner):
    """A runner around another one, to which it leaves all but its transactions.

    It lands no plan: that would be written past whoever looks at transactions.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.waiting = runner.waiting

    @property
    def backend_name(self) -> str:
        return self._runner.backend_name

    @property
    def location(self) -> str:
        return self._runner.location

    async def size_bytes(self) -> int | None:
        return await self._runner.size_bytes()

    async def storage_problems(self) -> list[Problem]:
        return await self._runner.storage_problems()

    def wakeups(self, session_id: str | None) -> AsyncGenerator[None, None]:
        return self._runner.wakeups(session_id)

    async def backup(self, wanted: Backup) -> BackupReport:
        return await self._runner.backup(wanted)

    async def forget_deleted(self, needles: erasure.Needles, *, rebuild: bool) -> erasure.Forgotten:
        return await self._runner.forget_deleted(needles, rebuild=rebuild)

    @property
    def words_name(self) -> str:
        return self._runner.words_name

    async def words_location(self) -> str | None:
        return await self._runner.words_location()

    async def open_words(self, version: int, turn: AbstractAsyncContextManager[object]) -> WordIndex | None:
        return await self._runner.open_words(version, turn)

    async def remove_words(self) -> None:
        await self._runner.remove_words()

    async def forget_words(self, session_ids: Collection[str]) -> None:
        await self._runner.forget_words(session_ids)

    async def close(self) -> None:
        await self._runner.close()


# ---------------------------------------------------------------------------------------------------------------------
# An index of words beside a store: its rows, its questions and its functions.
#
# It is made of the store and can be made again at any time; the store never needs it. It holds terms, and their places;
# a text that it finds is read from the store.

MARK = "\ue000"
"""How terms begin that are in no text: searches narrow by them."""


def session_mark(key: int) -> str:
    """Return the mark of the texts of a session. An index adds it by itself."""
    return f"{MARK}k{key}"


class IndexedText(Frozen):
    """A text on its way into the index: whose it is, its weight in a ranking, and its terms.

    ``number`` is its place among the texts of its entry; a title has no entry. Searches narrow by ``marks``;
    ``pairs`` are the bits that say which terms are not one behind the other (`search.pairs`).
    """

    entry_id: str | None
    number: int
    at_us: int
    weight: int
    terms: Collection[str]
    marks: Collection[str]
    pairs: bytes = b""


class FoundText(NamedTuple):
    """A text that an index holds; ``doc`` counts them in the order in which they came into it."""

    doc: int
    session_key: int
    entry_id: str | None
    number: int
    at_us: int
    weight: int
    length: int


class KnownSession(NamedTuple):
    """A session as the index knows it: up to which revision, with which title, and its source if it is a fork.

    The revision is -1 where it has to be read from its beginning: even at 0 a fork may have inherited texts.
    ``source_key`` is None as well where the source was deleted before it was read. ``updated_us`` is the time of that
    revision (0 until the session was read to its end), ``last_entry`` names the last entry that it added up to there,
    at ``last_revision``: in a store that was put back to an older state, the same revision may be another one.
    """

    key: int
    id: str
    revision: int
    source_key: int | None
    title: str | None = None
    updated_us: int = 0
    last_revision: int = 0
    last_entry: str | None = None


class Wanted(Frozen):
    """A question to an index: terms, marks that a text has (one of each group), how old it may be, and which terms
    it must have one behind the other (one pair of each group).
    """

    need: Need
    marks: Sequence[Sequence[str]] = ()
    since_us: int | None = None
    pairs: Pairs = ()


class WordIndex(Protocol):
    """An index of words, open. Its functions raise `StoreBusy`, `StoreUnavailable` and `CorruptStore`."""

    async def begin(self) -> None:
        """Keep other writers out until `commit`, where that is how the database does it; `close` takes it back."""

    async def commit(self) -> None:
        """Keep the changes."""

    async def known(self) -> Mapping[int, KnownSession]:
        """Return the sessions that it knows, by key. O(sessions)."""

    async def known_one(self, key: int) -> KnownSession | None:
        """Return a session if the index knows it. O(1)."""

    async def add(self, before: KnownSession, after: KnownSession, texts: Sequence[IndexedText]) -> bool:
        """Add texts of a session that the index knows as ``before``, know it as ``after`` then, and return True.

        Texts that are there are passed over. Where another process was faster, or has deleted it, nothing is done.
        """

    async def forget(self, keys: Collection[int]) -> None:
        """Remove every trace of sessions, and the rest of the pieces that they lie in, which has to be added again."""

    async def reread(self, keys: Collection[int]) -> None:
        """Have sessions be read from their beginning again: texts that are there already are passed over then."""

    async def moment(self) -> int:
        """Return a number that is another one once texts were taken out of it, by whichever process. O(1)."""

    async def find(self, wanted: Wanted, before: int | None, limit: int) -> Sequence[FoundText]:
        """Return up to ``limit`` texts that match, those that came last first, before one of them.

        Texts may be among them that do not have it: the text decides.
        """

    async def terms_from(self, begin: str, end: str, limit: int) -> Sequence[str]:
        """Return terms of the range, in no order, each maybe more than once: of newer texts, where they are many."""

    async def problems(self) -> Sequence[str]:
        """Check it; return its problems. O(index)."""

    async def close(self) -> None:
        """Let go of it."""
