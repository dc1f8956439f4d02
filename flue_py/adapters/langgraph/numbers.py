"""How far to look for the entries of a checkpoint, where they have not the first ids.

An id is taken in a whole tree of forks, so that of a session which sees only some of it, the ids have gaps. What is
beyond the usual ones is noted in the session's metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flue_py.adapters.langgraph.records import (
    CHECKPOINT,
    FRAMEWORK,
    PUTS,
    WINDOW,
    WRITES,
    number_of_put,
    number_of_writes,
)
from flue_py.sessions.session import Session

if TYPE_CHECKING:
    from flue_py.adapters.langgraph.places import Place
    from flue_py.core.jsontext import JsonObject, JsonValue

NUMBERS = "checkpointNumbers"
"""The field of a session's metadata with what is noted."""

_PAGE = 1000
_AHEAD = 32
"""So many more numbers are noted at once than are used, since each note is a transaction."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """``puts`` is the largest number that a checkpoint's entry has, ``writes`` that of the writes at an entry."""

    puts: int = PUTS
    writes: Mapping[str, int] = field(default_factory=dict)

    def with_put(self, number: int) -> Numbers:
        return Numbers(max(self.puts, number), self.writes)

    def with_writes(self, entry_id: str, number: int) -> Numbers:
        return Numbers(self.puts, {**self.writes, entry_id: number + _AHEAD})

    def window(self, entry_id: str) -> int:
        """Return how many writes of a checkpoint to ask for at first."""
        return max(WINDOW, self.writes.get(entry_id, 0) + 1)

    def to_metadata(self) -> JsonObject:
        """Return the fields of the metadata; none where nothing is out of the usual."""
        if self == Numbers():
            return {}
        return {NUMBERS: {"puts": self.puts, "writes": dict(self.writes)}}


def numbers_in(metadata: Mapping[str, JsonValue]) -> Numbers:
    """Return what a session's metadata note."""
    noted = metadata.get(NUMBERS)
    if not isinstance(noted, dict):
        return Numbers()
    puts, writes = noted.get("puts"), noted.get("writes")
    found = writes.items() if isinstance(writes, dict) else ()
    return Numbers(
        max(PUTS, puts) if isinstance(puts, int) else PUTS,
        {entry_id: number for entry_id, number in found if isinstance(number, int)},
    )


async def counted(session: Session) -> Numbers:
    """Return what the metadata of a session should note, that was forked by hand. O(its entries)."""
    puts = PUTS
    found: dict[str, list[int]] = {}
    for kind in (CHECKPOINT, WRITES):
        after = None
        while True:
            page = await session.entries(kind=kind, after=after, limit=_PAGE)
            for entry in page:
                puts = max(puts, number_of_put(entry.id)) if kind == CHECKPOINT else puts
                if (at := number_of_writes(entry.id)) is not None:
                    found.setdefault(at[0], []).append(at[1])
            if len(page) < _PAGE:
                break
            after = page[-1].id
    gaps = {at: max(numbers) for at, numbers in found.items() if max(numbers) >= max(WINDOW, len(numbers))}
    return Numbers(puts, gaps)


async def numbers_of(session: Session | Place) -> Numbers:
    """Return what is noted of a session; counted where nobody has noted anything. O(1), or O(checkpoints)."""
    metadata = session.metadata
    # Nobody has noted anything of a session that was forked by hand, until a checkpoint is put into it.
    if FRAMEWORK not in metadata and isinstance(session, Session):
        return await counted(session)
    return numbers_in(metadata)
