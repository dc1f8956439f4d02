"""Rescuing what is readable from a damaged SQLite file."""

from __future__ import annotations

from functools import partial
from os import PathLike

from flue_py.core.limits import LARGEST_ENTRY, Limits
from flue_py.core.salvaging import SalvageReport
from flue_py.sessions.arguments import checked_limits, checked_path
from flue_py.store.loops import waiting_here


async def salvage(
    damaged: str | PathLike[str], new: str | PathLike[str], *, limits: Limits | None = None
) -> SalvageReport:
    """Write what is readable in a damaged SQLite file into a new store, which verifies clean; return what was lost.

    ``damaged``, with the write-ahead log beside it, is never changed; nobody may write to it meanwhile. ``new`` must
    not be there, is readable by its owner only, and appears when it is whole. Entries whose ancestors are lost become
    branches with a root of their own; nothing that is readable is left out. An entry larger than ``limits`` allow
    (None: whatever any store may hold, 512 MiB) is not unpacked, and is a loss. Raises `InvalidArgument` if ``new``
    is there, `NotAStore` where nothing of a store is found, `FormatTooNew`, `StoreUnavailable`. O(file).
    """
    waiting = waiting_here()
    return await waiting.finish(waiting.call(partial(salvage_file, damaged, new, limits=limits)))


def salvage_file(
    damaged: str | PathLike[str], new: str | PathLike[str], *, limits: Limits | None = None
) -> SalvageReport:
    """Do the same, blocking."""
    from flue_py.store.salvage import salvaging  # noqa: PLC0415 - needed seldom, and it imports all that makes a store

    most = LARGEST_ENTRY if limits is None else checked_limits(limits).entry_bytes
    return salvaging.salvage(checked_path(damaged, "damaged"), checked_path(new, "new"), most)
