"""The process that opened a store: a store is used where it was opened only, and starts its threads there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from flue_py.errors import StoreUnavailable, WrongProcess


@contextlib.contextmanager
def starting_threads(location: object) -> Iterator[None]:
    """Surround what starts threads that a store needs. Raises `StoreUnavailable` where the system refuses one."""
    try:
        yield
    except RuntimeError as error:
        if _NO_THREAD not in str(error):
            raise
        raise StoreUnavailable(
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
            raise WrongProcess(
                f"{location} was opened in process {self._pid}, and this is a child that it forked; "
                "open the store after the fork, or start the process with the method 'spawn'"
            )
