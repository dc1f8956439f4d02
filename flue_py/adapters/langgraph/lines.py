"""The messages of a graph as entries of a path: each is stored once, however many checkpoints have it.

A checkpoint names the messages that came last, and a listing with those before them; a new listing is written from time
to time, so that neither grows with each turn. Where a message was changed or removed, exclusions take it out of the
context, and a listing names those that are left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from flue_py.adapters.langgraph.known import Known
from flue_py.adapters.langgraph.messages import entry_of, fresh, message_of, same
from flue_py.adapters.langgraph.records import LISTING, Line, Record
from flue_py.adapters.langgraph.values import Values
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.jsontext import JsonValue
from flue_py.errors import CorruptStore
from flue_py.sessions.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_core.messages import BaseMessage

    from flue_py.adapters.langgraph.places import Place

Kept: TypeAlias = "tuple[BaseMessage, str]"
"""A message that is stored, which nobody else has, and the id of its entry."""

_LINES = 64
_TAIL = 16
"""So many messages a checkpoint names by itself, and one more for each so many that there are."""


@dataclass(frozen=True, slots=True)
class NewLine:
    """The entries to write for a new value of the channel, one below the other, and where it then is."""

    entries: list[NewEntry]
    line: Line
    kept: tuple[Kept, ...]


class Lines:
    """The lines of messages that this process knows."""

    def __init__(self) -> None:
        self._known: Known[tuple[Kept, ...]] = Known(_LINES)

    def note(self, session: Session | Place, entry_id: str, kept: tuple[Kept, ...]) -> None:
        """Remember the line of a checkpoint."""
        self._known.put((session.id, entry_id), kept)

    def known(self, session: Session | Place, record: Record) -> tuple[Kept, ...] | None:
        """Return the line of a checkpoint if it is remembered."""
        return self._known.get((session.id, record.entry_id))

    async def of(self, session: Session | Place, record: Record, values: Values) -> tuple[Kept, ...]:
        """Return the line of a checkpoint. O(messages), and O(1) where it is known. Raises `CorruptStore`."""
        if not record.line.count:
            return ()
        found = self.known(session, record)
        if found is None:
            entries = await _entries(session, record)
            found = tuple((message_of(entry, values), entry.id) for entry in entries)
            self.note(session, record.entry_id, found)
        return found


async def _entries(session: Session | Place, record: Record) -> list[Entry]:
    line = record.line
    ids = [*([] if line.listing is None else await _listed(session, line.listing)), *line.tail]
    entries = [entry for entry in await session.get_entries(ids) if entry is not None]
    if len(entries) != line.count:
        raise CorruptStore(
            f"checkpoint {record.id!r} has {line.count} messages, and {len(entries)} are there; run verify()"
        )
    return entries


async def _listed(session: Session | Place, listing: str) -> list[str]:
    (entry,) = await session.get_entries([listing])
    ids = None if entry is None else entry.fields.get("ids")
    if not isinstance(ids, list):
        raise CorruptStore(f"the listing {listing!r} of a checkpoint's messages is missing; run verify()")
    return [str(id) for id in ids]


def new_line(
    old: tuple[Kept, ...],
    line: Line,
    messages: Sequence[BaseMessage],
    *,
    below: str | None,
    new_id: Callable[[], str],
    values: Values,
    call_scope: str,
    is_paid: bool = False,
) -> NewLine:
    """Return what to write below an entry whose line is ``old``, so that it becomes ``messages``. O(messages).

    ``is_paid`` says that the ledger has what the messages cost, as it has that of messages which only change place.
    """
    stays = _first_other(old, messages)
    kept: list[Kept] = list(old[:stays])
    gone: list[Kept] = []
    for each in old[stays:]:
        if len(kept) < len(messages) and same(each[0], messages[len(kept)]):
            kept.append(each)
        else:
            gone.append(each)
    entries: list[NewEntry] = []

    def add(build: Callable[[str, str | None], NewEntry]) -> str:
        id = new_id()
        entries.append(build(id, entries[-1].id if entries else below))
        return id

    for _, each_id in gone:
        add(lambda id, parent: NewEntry.exclusion(each_id, by="langgraph", id=id, parent_id=parent))  # noqa: B023
    known_ids = {message.id for message, _ in gone}
    for message in messages[len(kept) :]:
        # A copy, since the graph may change the message that it holds.
        held = fresh(message)
        built = add(
            lambda id, parent: entry_of(held, values, id=id, parent_id=parent, call_scope=call_scope)  # noqa: B023
        )
        if is_paid or (message.id is not None and message.id in known_ids):
            entries[-1] = replace(entries[-1], calls=(), unpaid=True)
        kept.append((held, built))
    stayed = len(kept) - (len(entries) - len(gone))
    tail = (*line.tail, *(id for _, id in kept[stayed:]))
    line = replace(line, count=len(kept), tail=tail)
    if gone or len(tail) > _TAIL + len(kept) // _TAIL:
        ids: list[JsonValue] = [id for _, id in kept]
        listing = add(lambda id, parent: NewEntry.custom(LISTING, {"ids": ids}, id=id, parent_id=parent))
        line = Line(len(kept), listing, (), listing if gone else line.epoch)
    return NewLine(entries, line, tuple(kept))


def _first_other(old: Sequence[Kept], messages: Sequence[BaseMessage]) -> int:
    """Return how many messages are the same from the first one on: as a rule all old ones, which takes most time."""
    number = 0
    for (one, _), other in zip(old, messages, strict=False):
        if not same(one, other):
            break
        number += 1
    return number
