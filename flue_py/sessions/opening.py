"""Opening a store: from a path, a URL or an engine to a `Store`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from os import PathLike, fspath, urandom
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from flue_py import store as backends
from flue_py.core.limits import DEFAULT_LIMITS, Limits
from flue_py.core.sessions import check_new_name
from flue_py.errors import FlueError, InvalidArgument, shown
from flue_py.homes import in_full
from flue_py.once import async_once
from flue_py.prices.book import CallPricer, PricesChoice, choose_prices
from flue_py.sessions.arguments import checked_choice, checked_flag, checked_limits, checked_moment
from flue_py.sessions.store import Store
from flue_py.store.backend import Backend
from flue_py.store.seam import Sources

if TYPE_CHECKING:
    from flue_py.store.engine import AsyncEngine

Durability: TypeAlias = Literal["full", "normal"]
Kind: TypeAlias = Literal["memory", "file", "engine"]

Given = TypeVar("Given")

_MEMORY = (":memory:", "memory://")
_POSTGRES = "postgresql+asyncpg"
_LONGEST_WAIT = 1_000_000
_LARGEST_POOL = 10_000
_SQLITE = "sqlite+aiosqlite"
_SCHEMES = (_SQLITE, _POSTGRES)


@async_once("flue_py.open(...)")
async def open(
    target: str | PathLike[str] | None = None,
    *,
    engine: AsyncEngine | None = None,
    durability: Durability = "full",
    create: bool = True,
    read_only: bool = False,
    busy_timeout: float = 30.0,
    threads: bool | None = None,
    pool_size: int | None = None,
    pool_timeout: float | None = None,
    limits: Limits = DEFAULT_LIMITS,
    prices: PricesChoice = None,
    clock: Callable[[], datetime] | None = None,
    ids: Callable[[], str] | None = None,
    session_ids: Callable[[], str] | None = None,
) -> AsyncIterator[Store]:
    """Open a store, for the length of an ``async with``.

    ``target`` is the path of an SQLite file (``~`` is the home directory), ``":memory:"`` for a store that dies with
    the process, or a SQLAlchemy URL with an async driver: ``postgresql+asyncpg://USER:PASSWORD@HOST/DATABASE`` (the
    extra ``postgres``) or
    ``sqlite+aiosqlite:///FILE``. ``engine`` is an ``AsyncEngine`` instead, which stays the caller's to dispose of,
    and whose settings stay as they are. A file that is missing is made, readable by its owner only, unless
    ``create=False``. ``durability="full"`` survives a power cut, ``"normal"`` the end of the process only;
    ``busy_timeout`` is how many seconds to wait while other processes write, or for a server that is restarting.
    A store in memory has no use for these three. ``read_only=True`` is for an SQLite file that is there, by its path
    or its URL, where nothing can or shall be written: on a disk that is full or mounted for reading, in a folder of
    somebody else. It makes no file, but for the index of a log that is in use; every write is `StoreUnavailable`, and
    so is opening a file of an older format.

    ``threads`` is for a SQLite file or a store in memory. With them, an event loop goes on while the store waits
    for the disk, and appends of many tasks at once share a commit. Without, what is asked for runs at once on the
    thread that asks, which it blocks; a lone append is faster that way, and any thread or loop may use the store.
    ``flue_py.open`` has them unless told otherwise, and ``flue_py.sync.open`` does without.

    ``pool_size`` (default 10) and ``pool_timeout`` (30 seconds) are the most connections to PostgreSQL, and how
    long an operation waits for one; they are for its URLs only. ``limits`` are the most that one call may bring,
    such as the size of an entry.

    ``prices`` says what calls cost whose provider did not: by default the pricing file (``~/.flue-py/pricing.json``, or
    the one that ``FLUE_PY_PRICING`` names), then published prices. A mapping, a `PriceBook` or the path of a pricing
    file are used instead; ``False`` prices nothing.

    ``clock`` gives the time (aware), ``ids`` and ``session_ids`` the ids of new entries and sessions; one that is taken
    is asked for again. What they raise ends the operation that asked as `InvalidArgument`, with theirs as its cause;
    nothing was changed. Raises `InvalidArgument`, `InvalidPrices`, `FormatTooNew`, `NotAStore`, `StoreUnavailable`,
    `StoreBusy`, `MissingExtra`, `WrongEventLoop`. O(1), whatever the store holds.
    """
    checked_limits(limits)
    checked_choice(durability, "durability", ("full", "normal"))
    checked_flag(create, "create")
    checked_flag(read_only, "read_only")
    if threads is not None:
        checked_flag(threads, "threads")
    on_caller = threads is False
    _check_seconds(busy_timeout, "busy_timeout")
    if clock is not None and not callable(clock):
        raise InvalidArgument(f"clock: {shown(clock)} is not a function that returns the time")
    sources = Sources(
        now_us=_now_us if clock is None else lambda: checked_moment(_asked(clock, "clock")),
        entry_id=_checked_ids(ids, "ids"),
        session_id=_checked_ids(session_ids, "session_ids"),
        draws_entry_ids=ids is None,
    )
    kind, place = _where(target, engine)
    pool = _checked_pool(place, pool_size, pool_timeout)
    pricer = CallPricer(choose_prices(prices), sources.now_us)
    if read_only:
        backend = await _open_read_only(kind, place, sources, busy_timeout, on_caller)
    elif on_caller:
        backend = _open_on_caller(kind, place, sources, durability, create, busy_timeout)
    else:
        backend = await _open_backend(kind, place, sources, durability, create, busy_timeout, pool)
    store = Store(backend, limits, pricer)
    try:
        yield store
    finally:
        await store.close()


def needs_event_loop(target: object = None, engine: object = None, threads: object = None) -> bool:
    """Return whether a store that is opened so needs an event loop; whatever else is wrong is told on opening."""
    is_url = isinstance(target, (str, PathLike)) and str(target).partition("://")[0] in _SCHEMES
    return threads is True or (threads is None and (is_url or engine is not None))


def _where(target: str | PathLike[str] | None, engine: AsyncEngine | None) -> tuple[Kind, str | AsyncEngine]:
    """Return which backend is meant, and where it stores."""
    if engine is not None and target is None:
        return "engine", engine
    if target is None or engine is not None:
        raise InvalidArgument("open takes either a target (a path, a URL or ':memory:') or engine=")
    location = fspath(target) if isinstance(target, (str, PathLike)) else None
    if not isinstance(location, str) or not location or "\0" in location:
        raise InvalidArgument(f"target: {shown(target)} is not a path, a URL or ':memory:'")
    if location in _MEMORY:
        return "memory", location
    scheme, separator, _ = location.partition("://")
    if separator and scheme not in _SCHEMES:
        raise InvalidArgument(f"target: {scheme}:// is not one of {', '.join(_SCHEMES)}; write it in full, or a path")
    return ("engine", location) if separator else ("file", in_full(location))


def _checked_pool(place: str | AsyncEngine, pool_size: int | None, pool_timeout: float | None) -> tuple[int, float]:
    """Return the size of the pool, and how many seconds to wait for a connection of it."""
    has_pool = isinstance(place, str) and place.startswith(_POSTGRES)
    if not has_pool and (pool_size is not None or pool_timeout is not None):
        raise InvalidArgument(f"pool_size and pool_timeout are for {_POSTGRES} URLs; an engine brings its own pool")
    size, timeout = 10 if pool_size is None else pool_size, 30.0 if pool_timeout is None else pool_timeout
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= _LARGEST_POOL:
        raise InvalidArgument(f"pool_size: {shown(size)} is not a number of connections; give 1 to {_LARGEST_POOL:,}")
    _check_seconds(timeout, "pool_timeout")
    if not timeout > 0:
        raise InvalidArgument("pool_timeout: must be more than 0 seconds")
    return size, timeout


def _check_seconds(seconds: float, what: str) -> None:
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not (is_number and 0 <= seconds <= _LONGEST_WAIT):
        raise InvalidArgument(f"{what}: {shown(seconds)} is not a number of seconds from 0 to {_LONGEST_WAIT:,}")


def _asked(function: Callable[[], Given], what: str) -> Given:
    """Return what a function of the caller gives. What it raises is `InvalidArgument`, the same on every database."""
    try:
        return function()
    except FlueError:
        raise
    except StopIteration as error:
        raise InvalidArgument(f"{what}: it has run out (StopIteration); return another each time") from error
    except Exception as error:
        raise InvalidArgument(f"{what}: it raised {type(error).__name__} ({error}); nothing was changed") from error


def _checked_ids(draw: Callable[[], str] | None, what: str) -> Callable[[], str]:
    """Return where ids come from; those of the caller are checked as they come."""
    if draw is None:
        return _random_id
    if not callable(draw):
        raise InvalidArgument(f"{what}: {shown(draw)} is not a function that returns an id")

    def checked() -> str:
        made = _asked(draw, what)
        check_new_name(made, what)
        if not made:
            raise InvalidArgument(f"{what}: {shown(made)} is not an id; return a string that is not empty")
        return made

    return checked


async def _open_read_only(
    kind: Kind, place: str | AsyncEngine, sources: Sources, busy_timeout: float, on_caller: bool
) -> Backend:
    scheme, _, path = place.partition(":///") if isinstance(place, str) else ("", "", "")
    if scheme == _SQLITE and path and "?" not in path:
        kind, place = "file", path
    if not isinstance(place, str) or kind != "file":
        raise InvalidArgument(f"read_only=True is for SQLite files: give a path, or {_SQLITE}:///PATH without a query")
    if on_caller:
        return backends.sqlite.read_only.read_only_on_caller(place, sources=sources, busy_timeout=busy_timeout)
    return await backends.sqlite.read_only.open_read_only(place, sources=sources, busy_timeout=busy_timeout)


def _open_on_caller(
    kind: Kind, place: str | AsyncEngine, sources: Sources, durability: Durability, create: bool, busy_timeout: float
) -> Backend:
    if kind == "memory":
        return backends.sqlite.memory.open_memory_on_caller(sources)
    if isinstance(place, str) and kind == "file":
        return backends.sqlite.caller.open_on_caller(
            place, sources=sources, durability=durability, busy_timeout=busy_timeout, create=create
        )
    raise InvalidArgument("threads=False is for a SQLite file, opened by its path, and for ':memory:'")


async def _open_backend(
    kind: Kind,
    place: str | AsyncEngine,
    sources: Sources,
    durability: Durability,
    create: bool,
    busy_timeout: float,
    pool: tuple[int, float],
) -> Backend:
    # Only the modules of the database that is opened are imported: SQLAlchemy is slow to load.
    if kind == "memory":
        return backends.sqlite.memory.open_memory(sources)
    if isinstance(place, str) and kind == "file":
        return await backends.sqlite.runner.open_sqlite(
            place, sources=sources, durability=durability, busy_timeout=busy_timeout, create=create
        )
    if not create:
        raise InvalidArgument("create=False is for SQLite files opened by their path")
    return await backends.engine.open_engine(
        place,
        sources=sources,
        durability=durability,
        busy_timeout=busy_timeout,
        pool_size=pool[0],
        pool_timeout=pool[1],
    )


def _now_us() -> int:
    return time.time_ns() // 1000


def _random_id() -> str:
    return urandom(8).hex()
