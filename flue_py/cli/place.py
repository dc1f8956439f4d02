"""Which database a command works on."""

from __future__ import annotations

from collections.abc import Coroutine
from os.path import abspath, exists
from pathlib import Path
from typing import TypeVar

from flue_py.core.frozen import frozen
from flue_py.homes import in_full

Result = TypeVar("Result")


def expanded(target: str) -> str:
    """Return a path with ``~`` expanded, and a URL as it is. Raises `InvalidArgument` for the home of no user."""
    return target if "://" in target else in_full(target)


def absolute(folder: str) -> str:
    """Return the absolute path of a folder, ``~`` expanded. Raises `InvalidArgument` for the home of no user."""
    return abspath(in_full(folder))


@frozen
class Place:
    """The database of this run. ``is_named`` says that the user chose it, rather than taking the default."""

    target: str
    is_named: bool = False

    @property
    def is_file(self) -> bool:
        """Whether it is a file rather than the URL of a server."""
        return "://" not in self.target

    @property
    def threads(self) -> bool | None:
        """How to open it: a file without threads, since a command does one thing after the other."""
        return False if self.is_file else None


def is_only_readable(target: str) -> bool:
    """Return whether a target is an existing file that cannot be written: read-only, or on a full disk."""
    from flue_py.store.sqlite.unwritable import why_not_writable

    return "://" not in target and exists(target) and why_not_writable(Path(target)) is not None


def finished(work: Coroutine[object, object, Result], *, needs_loop: bool) -> Result:
    """Return what a coroutine returns. On files nothing has to wait for anything else, so it needs no event loop."""
    if needs_loop:
        import asyncio

        return asyncio.run(work)
    from flue_py.store.waiting import run_here

    return run_here(work)
