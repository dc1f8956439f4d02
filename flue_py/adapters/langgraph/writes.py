"""The writes of tasks at a checkpoint: entries of their own, under ids that are made from the checkpoint's."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from flue_py.adapters.langgraph.numbers import numbers_of
from flue_py.adapters.langgraph.records import WINDOW, Record, writes_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flue_py.adapters.langgraph.places import Place
    from flue_py.core.entries import Entry
    from flue_py.core.jsontext import JsonObject, JsonValue
    from flue_py.sessions.session import Session

Writes: TypeAlias = "list[tuple[str, str, int, str, JsonValue]]"
"""Path of the task, its id, number, channel and the stored value, in the order in which a graph applies them."""


async def write_ids(session: Session, entry_ids: Sequence[str]) -> dict[str, list[str]]:
    """Return the ids of the entries with the writes at checkpoints, by the ids of their entries."""
    found = await entries_of_writes(session, entry_ids)
    return {entry_id: [entry.id for entry in entries] for entry_id, entries in found.items()}


async def writes_at(session: Session, record: Record) -> list[JsonObject]:
    """Return the writes at a checkpoint as they are stored, in the order in which they came."""
    return [entry.fields for entry in (await entries_of_writes(session, [record.entry_id]))[record.entry_id]]


async def entries_of_writes(session: Session, entry_ids: Sequence[str]) -> dict[str, list[Entry]]:
    """Return the entries with the writes at checkpoints, in order, by the ids of their entries. A few reads."""
    found: dict[str, list[Entry]] = {each: [] for each in entry_ids}
    noted = await numbers_of(session)
    windows = {each: range(noted.window(each)) for each in entry_ids}
    while windows:
        ids = [writes_id(each, number) for each, window in windows.items() for number in window]
        entries = iter(await session.get_entries(ids))
        further = {}
        for each, window in windows.items():
            there = [entry for entry in islice(entries, len(window)) if entry is not None]
            found[each] += there
            if len(there) == len(window):
                further[each] = range(window.stop, window.stop + 4 * len(window))
        windows = further
    return found


async def free_number(place: Place, at: str, number: int) -> int:
    """Return the first number that is free for writes at an entry, and note it where it is not looked for."""
    size = 4 * WINDOW
    sees_all = True
    while True:
        ids = [writes_id(at, each) for each in range(number, number + size)]
        taken = await place.taken(ids)
        free = next((place for place, each in enumerate(ids) if each not in taken), size)
        sees_all = sees_all and None not in await place.get_entries(ids[:free])
        number += free
        if free < size:
            break
    noted = await numbers_of(place)
    if not sees_all and number >= noted.window(at):
        await place.note(noted.with_writes(at, number).to_metadata())
    return number


def applied(entries: Sequence[Entry]) -> Writes:
    """Return the writes of entries in order. Of a number the first stays; errors and interrupts are replaced."""
    applied: dict[tuple[str, int], tuple[str, str, int, str, JsonValue]] = {}
    for entry in entries:
        fields = entry.fields
        task, path = str(fields.get("task")), str(fields.get("path") or "")
        writes = fields.get("writes")
        for each in writes if isinstance(writes, list) else []:
            match each:
                case [int(number), str(channel), stored]:
                    if number < 0 or (task, number) not in applied:
                        applied[task, number] = (path, task, number, channel, stored)
    return sorted(applied.values(), key=lambda write: write[:3])
