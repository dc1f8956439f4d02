"""Writing entries whose usage would carry a sum beyond what can be stored: they are kept, and what they used is not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from flue_py.core.entries import NewEntry
from flue_py.core.sessions import Appended
from flue_py.core.usage import TOO_LARGE, SumTooLarge

Result = TypeVar("Result")

_SINGLY = 8
"""After how many entries that are left out one by one the others are left out together."""


async def write_what_fits(
    write: Callable[[Sequence[NewEntry]], Awaitable[Result]], entries: Sequence[NewEntry]
) -> tuple[Result, Sequence[NewEntry]]:
    """Write entries; return the result, and the entries as they were written.

    An answer is not refused for a number that is too large to be added up: the entry that reports the most is written
    without being counted, which its ``oddities`` say, and so on until the rest fits. Raises what ``write`` raises.
    """
    tries = 0
    while True:
        try:
            return await write(entries), entries
        except SumTooLarge:
            counted = [place for place, entry in enumerate(entries) if entry.counted and _most(entry)]
            if not counted:
                raise
            largest = max(counted, key=lambda place: _most(entries[place]))
            left_out = {largest} if tries < _SINGLY else set(counted)
            entries = [_uncounted(entry) if place in left_out else entry for place, entry in enumerate(entries)]
            tries += 1


def with_oddities(appended: Appended, entries: Sequence[NewEntry]) -> Appended:
    """Return the result of writing entries with what was odd about them."""
    oddities = oddities_of(entries)
    return replace(appended, oddities=oddities) if oddities else appended


def oddities_of(entries: Sequence[NewEntry]) -> tuple[str, ...]:
    """Return what is odd about entries."""
    return tuple(oddity for entry in entries for oddity in entry.oddities)


def _most(entry: NewEntry) -> int:
    numbers = [*entry.usage, *(number for call in entry.calls for number in (*call.usage, call.known_cost or 0))]
    return max(numbers)


def _uncounted(entry: NewEntry) -> NewEntry:
    where = "usage" if entry.id is None else f"entry {entry.id!r}: usage"
    return replace(entry, counted=False, oddities=(*entry.oddities, f"{where}: {TOO_LARGE}"))
