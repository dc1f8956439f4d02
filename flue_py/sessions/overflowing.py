"""Writing entries whose usage would carry a sum beyond what can be stored: they are kept, and what they used is not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from flue_py.core.entries import NewEntry
from flue_py.core.usage import MAX_AMOUNT, SumTooLarge

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


def _most(entry: NewEntry) -> int:
    numbers = [*entry.usage, *(number for call in entry.calls for number in (*call.usage, call.known_cost or 0))]
    return max(numbers)


def _uncounted(entry: NewEntry) -> NewEntry:
    odd = f"usage: with its numbers a sum would be more than {MAX_AMOUNT}; they are kept, and none is counted"
    return replace(entry, counted=False, oddities=(*entry.oddities, odd))
