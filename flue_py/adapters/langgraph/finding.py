"""How checkpoints are found in a session, and what is remembered of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.adapters.langgraph.by_hand import begun_by_hand
from flue_py.adapters.langgraph.known import Known
from flue_py.adapters.langgraph.numbers import numbers_of
from flue_py.adapters.langgraph.records import CHECKPOINT, WRITES, Record, entry_id
from flue_py.core.kinds import EXCLUSION, SHOWN_KINDS
from flue_py.sessions.session import Session

if TYPE_CHECKING:
    from flue_py.adapters.langgraph.places import Place
    from flue_py.adapters.langgraph.values import Values
    from flue_py.core.entries import Entry

_RECORDS = 512
_PAGE = 1000


class Finding:
    """The checkpoints of all threads of a store, as they are found."""

    def __init__(self) -> None:
        self._records: Known[Record] = Known(_RECORDS)
        self._above: Known[str] = Known(_RECORDS)
        """The entry of the checkpoint above an entry with writes."""

    async def find(self, session: Session | Place, checkpoint_id: str) -> Record | None:
        """Return a checkpoint by its id, as it was put last; None if there is none. One read."""
        most = (await numbers_of(session)).puts
        ids = [entry_id(checkpoint_id, number) for number in range(1, most + 1)]
        found = [entry for entry in await session.get_entries(ids) if entry is not None and entry.kind == CHECKPOINT]
        return self._record(session, found[-1]) if found else None

    async def newest(self, session: Session, values: Values) -> Record | None:
        """Return the checkpoint at the leaf, or the last one above it; None if there is none.

        A leaf between an input and the message that it brought is where a turn was taken back: the newest checkpoint
        is then the last one of the turn before.
        """
        record = await self._at_leaf(session)
        if record is None or session.leaf_id is None:
            return await begun_by_hand(session, None, values)
        if not await self._is_right_below(session, record):
            added = await begun_by_hand(session, record, values)
            if added is not None:
                return added
        metadata = values.loaded(record.metadata)
        if not isinstance(metadata, dict) or metadata.get("source") != "input":
            return record
        if not await session.children(session.leaf_id):
            return record
        return None if record.parent is None else await self.find(session, record.parent)

    async def _at_leaf(self, session: Session | Place) -> Record | None:
        return None if session.leaf_id is None else await self._above_or_at(session, session.leaf_id)

    async def _is_right_below(self, session: Session | Place, record: Record) -> bool:
        """Return whether nothing between a checkpoint and the leaf concerns the context.

        One read, if any; where others have added entries, O(path).
        """
        leaf = session.leaf_id
        if leaf is None or record.entry_id in (leaf, self._above.get((session.id, leaf))):
            return leaf is not None
        entry = await session.get_entry(leaf)
        if entry is not None and entry.kind == WRITES:
            return record.entry_id == entry.fields.get("after")
        path = await session.get_active_path(leaf=leaf)
        above = next((at for at, each in enumerate(path, 1) if each.id == record.entry_id), None)
        return above is not None and not any(each.kind in {*SHOWN_KINDS, EXCLUSION} for each in path[above:])

    async def page(self, session: Session, *, after: str | None, limit: int) -> list[Record]:
        """Return a page of the checkpoints of a session, the last one first, behind the entry ``after``."""
        entries = await session.entries(kind=CHECKPOINT, newest_first=True, after=after, limit=limit)
        return [self._record(session, entry) for entry in entries]

    async def all(self, session: Session) -> list[Record]:
        """Return every checkpoint of a session, each as it was put last, in the order of their ids. O(checkpoints)."""
        found: dict[str, Record] = {}
        after = None
        while True:
            page = await session.entries(kind=CHECKPOINT, after=after, limit=_PAGE)
            found.update((record.id, record) for record in (self._record(session, entry) for entry in page))
            if len(page) < _PAGE:
                return [found[id] for id in sorted(found)]
            after = page[-1].id

    def _record(self, session: Session | Place, entry: Entry) -> Record:
        found = self._records.get((session.id, entry.id))
        if found is None:
            found = Record.of(entry)
            self._records.put((session.id, entry.id), found)
        return found

    async def _above_or_at(self, session: Session | Place, entry_id: str) -> Record | None:
        at = self._above.get((session.id, entry_id)) or entry_id
        known = self._records.get((session.id, at))
        if known is not None:
            return known
        entry = await session.get_entry(at)
        if entry is not None and entry.kind == WRITES:
            above = entry.fields.get("after")
            entry = await session.get_entry(above) if isinstance(above, str) else None
        if entry is None or entry.kind != CHECKPOINT:
            # Entries that somebody else has added, or the middle of what was put at once.
            path = await session.get_active_path(leaf=entry_id)
            entry = next((each for each in reversed(path) if each.kind == CHECKPOINT), None)
        return None if entry is None else self._record(session, entry)
