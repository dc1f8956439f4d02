"""Opening a store: from a path, a URL or an engine to a `Store`."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from os import PathLike, fspath
from typing import TYPE_CHECKING, Literal, TypeAlias

from flue_py.errors import InvalidArgument
from flue_py.sessions.arguments import checked_choice, checked_moment
from flue_py.sessions.store import Store
from flue_py.store.backend import Backend, Sources

if TYPE_CHECKING:
    from flue_py.store.async_engine import AsyncEngine

Durability: TypeAlias = Literal["full", "normal"]
Kind: TypeAlias = Literal["memory", "file", "engine"]

_MEMORY = (":memory:", "memory://")
_SCHEMES = ("sqlite+aiosqlite", "postgresql+asyncpg")


@asynccontextmanager
async def open(
    target: str | PathLike[str] | None = None,
    *,
    engine: AsyncEngine | None = None,
    durability: Durability = "full",
    create: bool = True,
    busy_timeout: float = 30.0,
    clock: Callable[[], datetime] | None = None,
    ids: Callable[[], str] | None = None,
    session_ids: Callable[[], str] | None = None,
) -> AsyncIterator[Store]:
    """Open a store, for the length of an ``async with``.

    ``target`` is the path of an SQLite file, ``":memory:"`` for a store that dies with the process, or a SQLAlchemy
    URL with an async driver, ``sqlite+aiosqlite:///FILE``. ``engine`` is an ``AsyncEngine`` instead, which stays
    the caller's to dispose of. A file that is missing is made, readable by its owner only, unless
    ``create=False``. ``durability="full"`` survives a power cut, ``"normal"`` the end of the process only;
    ``busy_timeout`` is how many seconds to wait while other processes write. A store in memory has no use for
    these three.

    ``clock`` gives the time (aware), ``ids`` and ``session_ids`` the ids of new entries and sessions; one that
    is taken is asked for again. Raises `InvalidArgument`, `FormatTooNew`, `NotAStore`, `StoreUnavailable`,
    `StoreBusy`, `MissingExtra`. O(1), whatever the store holds.
    """
    checked_choice(durability, "durability", ("full", "normal"))
    sources = Sources(
        now_us=_now_us if clock is None else lambda: checked_moment(clock()),
        entry_id=ids or _random_id,
        session_id=session_ids or _random_id,
    )
    kind, place = _where(target, engine)
    store = Store(await _open_backend(kind, place, sources, durability, create, busy_timeout))
    try:
        yield store
    finally:
        await store.close()


def _where(target: str | PathLike[str] | None, engine: AsyncEngine | None) -> tuple[Kind, str | AsyncEngine]:
    """Return which backend is meant, and where it stores."""
    if engine is not None and target is None:
        return "engine", engine
    if target is None or engine is not None:
        raise InvalidArgument("open takes either a target (a path, a URL or ':memory:') or engine=")
    location = fspath(target)
    if not isinstance(location, str) or not location:
        raise InvalidArgument(f"target: {target!r} is not a path, a URL or ':memory:'")
    if location in _MEMORY:
        return "memory", location
    scheme, separator, _ = location.partition("://")
    if separator and scheme not in _SCHEMES:
        raise InvalidArgument(f"target: {scheme}:// is not one of {', '.join(_SCHEMES)}; write it in full, or a path")
    return "engine" if separator else "file", location


async def _open_backend(
    kind: Kind,
    place: str | AsyncEngine,
    sources: Sources,
    durability: Durability,
    create: bool,
    busy_timeout: float,
) -> Backend:
    # Each backend brings only its own imports: SQLAlchemy's async side is not light.
    if kind == "memory":
        from flue_py.store.memory import MemoryBackend  # noqa: PLC0415

        return MemoryBackend(sources)
    if isinstance(place, str) and kind == "file":
        from flue_py.store.sqlite import open_sqlite  # noqa: PLC0415

        return await open_sqlite(
            place, sources=sources, durability=durability, busy_timeout=busy_timeout, create=create
        )
    if not create:
        raise InvalidArgument("create=False is for SQLite files opened by their path")
    from flue_py.store.async_engine import open_engine  # noqa: PLC0415

    return await open_engine(place, sources=sources, durability=durability, busy_timeout=busy_timeout)


def _now_us() -> int:
    return time.time_ns() // 1000


def _random_id() -> str:
    return secrets.token_hex(8)
