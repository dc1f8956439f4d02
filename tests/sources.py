"""Times and ids for stores: the same in every run, or as real ones are."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import TypeAlias

from flue_py.db.backend import Backend
from flue_py.db.runner import Sources

OpenBackend: TypeAlias = Callable[[Sources], Awaitable[Backend]]
"""What a backend under test brings: a function that opens a new, empty store."""

START_US = 1_700_000_000_000_000


def counted_sources(step_us: int = 1_000) -> Sources:
    """Return ids that count up and a clock that advances by ``step_us`` at each look (backwards where negative)."""
    clock, entries, sessions = count(START_US, step_us), count(1), count(1)
    return Sources(
        now_us=lambda: next(clock),
        entry_id=lambda: f"{next(entries):016x}",
        session_id=lambda: f"session-{next(sessions):04d}",
        draws_entry_ids=True,
    )


def random_sources() -> Sources:
    """Return the time of day and random ids, for stores of several processes on one database."""
    return Sources(lambda: time.time_ns() // 1000, lambda: secrets.token_hex(8), lambda: secrets.token_hex(8))


def repeating_sources(entry_ids: Sequence[str] = (), session_ids: Sequence[str] = ()) -> Sources:
    """Return a clock that stands still, and ids that come in this order before they count up."""
    counted = counted_sources(0)
    entries, sessions = iter(entry_ids), iter(session_ids)
    return Sources(
        now_us=counted.now_us,
        entry_id=lambda: next(entries, None) or counted.entry_id(),
        session_id=lambda: next(sessions, None) or counted.session_id(),
    )


class StepSources:
    """Time and ids that depend on a step's number alone.

    Two stores that are given the same step draw the same ids, however often each asked in earlier steps.
    """

    def __init__(self) -> None:
        self._step = 0
        self._entries = count()
        self._sessions = count()

    def begin_step(self) -> None:
        """Start the next step."""
        self._step += 1
        self._entries = count()
        self._sessions = count()

    @property
    def sources(self) -> Sources:
        """The sources to open a store with."""
        return Sources(
            now_us=lambda: START_US + self._step * 1_000,
            entry_id=lambda: f"{self._step:08x}{next(self._entries):08x}",
            session_id=lambda: f"session-{self._step:04d}-{next(self._sessions)}",
            draws_entry_ids=True,
        )
