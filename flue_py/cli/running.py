"""Running one command against the database: open it, find what the user named, do the work, close it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from os.path import exists
from pathlib import Path
from typing import TypeVar

import flue_py
from flue_py.cli.place import Place
from flue_py.cli.progress import progress_bar
from flue_py.core.sessions import STORED, LeafChoice, SessionInfo
from flue_py.errors import StoreUnavailable
from flue_py.render.views import needs_source
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

Result = TypeVar("Result")


def run(
    place: Place, work: Callable[[Store], Awaitable[Result]], *, create: bool = False, bar: str | None = None
) -> Result:
    """Return what ``work`` returns, given the open store. ``bar`` is what a bar says where that takes long.

    Only with ``create`` is a database made where there is none; else that raises `StoreUnavailable`. The folder of
    a new database is for its owner alone.
    """
    if place.is_file:
        path = Path(place.target)
        if create:
            make_private_folder(path.parent)
        elif not exists(path):  # unlike Path.exists, it has no opinion on names that no file can have
            raise StoreUnavailable(f"there is no database at {path}; import a session first, or name another with --db")
    with nullcontext() if bar is None else progress_bar(bar):
        return asyncio.run(_with_store(place.target, work))


async def _with_store(target: str, work: Callable[[Store], Awaitable[Result]]) -> Result:
    async with flue_py.open(target, read_only=is_only_readable(target)) as store:
        return await work(store)


def is_only_readable(target: str) -> bool:
    """Return whether a target is a file that is there and cannot be written to: its disk is full, or it may not be."""
    from flue_py.store.sqlite.unwritable import why_not_writable

    return "://" not in target and exists(target) and why_not_writable(Path(target)) is not None


def make_private_folder(folder: Path) -> None:
    """Make a folder, and those above it, for its owner alone. Raises `StoreUnavailable`."""
    try:
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        for each in reversed(missing):
            with contextlib.suppress(FileExistsError):
                each.mkdir(mode=0o700)
                # The umask may have taken even the owner's rights.
                each.chmod(0o700)
    except OSError as error:
        raise StoreUnavailable(f"the folder {folder} cannot be made: {error.strerror or error}") from error
    if not folder.is_dir():
        raise StoreUnavailable(f"the folder {folder} cannot be made: a file is there; name another database with --db")


async def leaf_of(session: Session, entry: str | None) -> LeafChoice:
    """Return the entry that an option names, by a beginning of its id; the stored leaf where it is left out."""
    return STORED if entry is None else await session.resolve_entry_id(entry)


async def sources_of(store: Store, listed: Iterable[SessionInfo]) -> dict[str, SessionInfo]:
    """Return the sessions that forks without a name of their own were made of, by id, and maybe others."""
    there = {info.id: info for info in listed}
    for info in [*there.values()]:
        source = info.forked_from_session
        if source is not None and source not in there and needs_source(info):
            session = await store.get_session(source)
            if session is not None:
                there[source] = session.info
    return there


async def name_of(store: Store, session_id: str) -> str:
    """Return what people know a session by; "" where it is not there."""
    session = await store.get_session(session_id)
    return "" if session is None else await session.name()
