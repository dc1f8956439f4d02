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

_MEMORY = (":memory:", "memory://")
_ASYNC_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}


@asynccontextmanager
async def open(
    target: str | PathLike[str] | None = None,
    *,
    engine: AsyncEngine | None = None,
    durability: Durability = "full",
    clock: Callable[[], datetime] | None = None,
    ids: Callable[[], str] | None = None,
    session_ids: Callable[[], str] | None = None,
) -> AsyncIterator[Store]:
    """Open a store, for the length of an ``async with``.

    ``target`` is the path of an SQLite file (created, with owner-only permissions, where there is none),
    ``":memory:"`` for a store that dies with the process, or a SQLAlchemy URL with an async driver:
    ``postgresql+asyncpg://...``, ``sqlite+aiosqlite:///...``. ``engine`` is an ``AsyncEngine`` instead, which
    stays the caller's to dispose of. ``durability="full"`` survives a power cut, ``"normal"`` the end of the
    process only; it is about SQLite files.

    ``clock`` gives the time (aware), ``ids`` and ``session_ids`` the ids of new entries and sessions; one that
    is taken is asked for again. Raises `InvalidArgument`, `FormatTooNew`, `NotAStore`, `StoreUnavailable`,
    `MissingExtra`.
    """
    checked_choice(durability, "durability", ("full", "normal"))
    sources = Sources(
        now_us=_now_us if clock is None else lambda: checked_moment(clock()),
        entry_id=ids or _random_id,
        session_id=session_ids or _random_id,
    )
    store = Store(await _open_backend(target, engine, durability, sources))
    try:
        yield store
    finally:
        await store.close()


async def _open_backend(
    target: str | PathLike[str] | None, engine: AsyncEngine | None, durability: Durability, sources: Sources
) -> Backend:
    if (target is None) == (engine is None):
        raise InvalidArgument("open takes either a target (a path, a URL or ':memory:') or engine=")
    if engine is not None:
        return await _open_engine(engine, sources)
    location = fspath(target) if target is not None else ""
    if not isinstance(location, str) or not location:
        raise InvalidArgument(f"target: {target!r} is not a path, a URL or ':memory:'")
    if location in _MEMORY:
        from flue_py.store.memory import MemoryBackend  # noqa: PLC0415 - each backend brings only its own imports

        return MemoryBackend(sources)
    scheme, separator, rest = location.partition("://")
    if not separator:
        from flue_py.store.sqlite import open_sqlite  # noqa: PLC0415

        return await open_sqlite(location, sources=sources, durability=durability)
    if scheme in _ASYNC_DRIVERS:
        raise InvalidArgument(
            f"target: {scheme}:// names no async driver; write {_ASYNC_DRIVERS[scheme]}://..."
            + (", or give the path of the file" if scheme == "sqlite" else "")
        )
    if "+" not in scheme or not rest:
        raise InvalidArgument(f"target: {scheme}:// is no SQLAlchemy URL with an async driver")
    return await _open_engine(location, sources)


async def _open_engine(engine: str | AsyncEngine, sources: Sources) -> Backend:
    from flue_py.store.async_engine import open_engine  # noqa: PLC0415 - SQLAlchemy's async side is not light

    return await open_engine(engine, sources=sources)


def _now_us() -> int:
    return time.time_ns() // 1000


def _random_id() -> str:
    return secrets.token_hex(8)
