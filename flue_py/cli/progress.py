"""A progress bar on stderr, if that is a terminal, for work that takes longer than a second."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

DELAY = 1.0
"""After how many seconds a bar appears."""


BYTES = "bytes"
"""The unit of a bar that shows sizes, and how much time is left."""


class Tell(Protocol):
    """Moves a bar on: how many steps are done, how many there are in all, and what is being done, if not the same."""

    def __call__(self, done: int, total: int, what: str = "") -> None: ...


@contextmanager
def progress_bar(what: str, unit: str = "") -> Iterator[Tell]:
    """Show a bar while the block runs, from `DELAY` seconds on, and yield the function that moves it on.

    Until the first call of it, the bar shows that something is going on, and for how long. Nothing is
    shown without a terminal, or on one that cannot move back in a line. Any thread may move the bar on. Do not nest
    bars.
    """
    if not is_animated():
        yield ignore_progress
        return
    bar = _Bar(what, unit)
    timer = threading.Timer(DELAY, bar.start)
    timer.daemon = True
    if DELAY:
        timer.start()
    else:
        bar.start()
    try:
        yield bar.tell
    finally:
        timer.cancel()
        bar.stop()


def is_animated() -> bool:
    """Return whether stderr is a terminal that can show a moving bar."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def ignore_progress(done: int, total: int, what: str = "") -> None:
    """Show nothing."""


class _Bar:
    """A bar that may be started and stopped by different threads, in whatever order."""

    def __init__(self, what: str, unit: str) -> None:
        self._what = what
        self._unit = unit
        self._lock = threading.Lock()
        self._state: tuple[int, int] | None = None
        self._update: Callable[[], None] | None = None
        self._close: Callable[[], None] | None = None
        self._is_over = False

    def start(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            ProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        with self._lock:
            if self._is_over:
                return
            columns: list[ProgressColumn] = [TextColumn("{task.description}", markup=False), BarColumn()]
            if self._unit == BYTES:
                columns += [DownloadColumn(), TimeRemainingColumn()]
            elif self._unit:
                columns += [MofNCompleteColumn(), TextColumn(self._unit), TimeElapsedColumn()]
            else:
                columns.append(TimeElapsedColumn())
            console = Console(stderr=True, force_terminal=True)
            bar = Progress(*columns, console=console, transient=True)
            task = bar.add_task(self._what, total=None)

            def update() -> None:
                done, total = self._state or (0, 0)
                bar.update(task, description=self._what, completed=done, total=total or None)

            update()
            bar.start()
            self._update, self._close = update, bar.stop

    def tell(self, done: int, total: int, what: str = "") -> None:
        with self._lock:
            self._state = (done, total)
            self._what = what or self._what
            if self._update is not None:
                self._update()

    def stop(self) -> None:
        with self._lock:
            self._is_over = True
            if self._close is not None:
                self._close()
