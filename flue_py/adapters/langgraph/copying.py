"""Checkpoints of one session prepared for another, as they are stored, so that one transaction writes them.

Nothing is deserialised: what only another program can read is copied like the rest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flue_py.adapters.langgraph.checkpoints import Checkpoints, Filled
from flue_py.adapters.langgraph.lines import changed_line, entries_of, path_behind
from flue_py.adapters.langgraph.places import Place
from flue_py.adapters.langgraph.records import LINE, VALUE, Line
from flue_py.adapters.langgraph.writes import writes_at
from flue_py.core.entries import Entry, NewEntry
from flue_py.errors import InvalidEntry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flue_py.adapters.langgraph.records import Record
    from flue_py.core.jsontext import JsonObject, JsonValue
    from flue_py.core.sessions import OnConflict
    from flue_py.sessions.atomic import Atomic
    from flue_py.sessions.session import Session
    from flue_py.sessions.store import Store


class Draft(Place):
    """A session that is still to be made: a fork of ``base``, or one with an empty history."""

    def __init__(self, store: Store, base: Session | None, metadata: JsonObject) -> None:
        self.recent: dict[str, Record] = {}
        self._store = store
        self._base = base
        self._metadata = dict(metadata)
        self._id = f"draft:{store.backend.new_entry_id()}"
        self._begin = self._leaf = None if base is None else base.leaf_id
        self._path: frozenset[str] | None = None
        self._entries: dict[str, NewEntry] = {}

    @property
    def id(self) -> str:
        return self._id

    @property
    def leaf_id(self) -> str | None:
        return self._leaf

    @property
    def metadata(self) -> dict[str, JsonValue]:
        return self._metadata

    def new_id(self) -> str:
        return self._store.backend.new_entry_id()

    async def get_entry(self, entry_id: str) -> Entry | None:
        return (await self.get_entries([entry_id]))[0]

    async def get_entries(self, ids: Sequence[str]) -> list[Entry | None]:
        found: list[Entry | None] = [None for _ in ids]
        if self._base is not None and self._begin is not None:
            if self._path is None:
                self._path = frozenset(entry.id for entry in await self._base.get_active_path(leaf=self._begin))
            # Of its source, a fork sees what is on the way to the leaf.
            found = [each if each and each.id in self._path else None for each in await self._base.get_entries(ids)]
        return [_entry(self._entries[id]) if id in self._entries else each for id, each in zip(ids, found, strict=True)]

    async def get_active_path(self, *, leaf: str) -> list[Entry]:
        path: list[Entry] = []
        at: str | None = leaf
        while at is not None:
            entry = await self.get_entry(at)
            if entry is None:
                break
            path.append(entry)
            at = entry.parent_id
        return path[::-1]

    async def add(self, entries: Sequence[NewEntry], leaf: str | None) -> None:
        if taken := await self.taken([str(entry.id) for entry in entries]):
            raise InvalidEntry(f"entry ids {sorted(taken)} are taken")
        self._entries.update((str(entry.id), entry) for entry in entries)
        self._leaf = leaf

    async def taken(self, ids: Sequence[str]) -> frozenset[str]:
        found = {id for id in ids if id in self._entries}
        if self._base is not None:
            found |= await self._store.backend.taken_entry_ids(self._base.id, ids)
        return frozenset(found)

    async def note(self, fields: Mapping[str, JsonValue]) -> None:
        self._metadata.update(fields)

    async def overtaken(self) -> bool:
        """Return whether somebody else has taken an id meanwhile, that was free when this was prepared."""
        return self._base is not None and bool(
            await self._store.backend.taken_entry_ids(self._base.id, list(self._entries))
        )

    def write(self, batch: Atomic, made: Session) -> None:
        """Let a batch append everything to the session that it makes, and set the leaf."""
        leaf = self._begin
        chain: list[NewEntry] = []
        for entry in [*self._entries.values(), None]:
            if chain and (entry is None or entry.parent_id != chain[-1].id):
                parent = chain[0].parent_id
                on_conflict: OnConflict = "raise" if parent == leaf else "branch"
                batch.append_entries(made, chain, on_conflict=on_conflict, expected_leaf=parent)
                leaf = chain[-1].id if parent == leaf else leaf
                chain = []
            if entry is not None:
                chain.append(entry)
        if leaf != self._leaf:
            batch.move_leaf(made, self._leaf, expected_leaf=leaf)


def _entry(new: NewEntry) -> Entry:
    return Entry(str(new.id), new.parent_id, None, new.kind, new.role, new.source, 0, 0, 0, 0, new.payload, new.extra)


async def add_copies(checkpoints: Checkpoints, source: Session, draft: Draft, records: Sequence[Record]) -> None:
    """Put checkpoints of a session into a draft, parents first, with the writes at them. O(what they hold)."""
    origins: dict[str, Record] = {}
    for record in records:
        await _add_copy(checkpoints, source, draft, record, origins)


async def _add_copy(
    checkpoints: Checkpoints, source: Session, draft: Draft, record: Record, origins: dict[str, Record]
) -> None:
    async def filled(new: Record, under: Record | None, below: str | None) -> Filled:
        origin = None if under is None else origins.get(under.entry_id, under)
        entries: list[NewEntry] = []
        values: dict[str, JsonValue] = {}
        for channel, stored in record.values.items():
            if stored == LINE:
                continue
            if origin is not None and under is not None and origin.values.get(channel) == stored:
                values[channel] = under.values[channel]
            elif isinstance(stored, dict) and "at" in stored:
                (entry,) = await source.get_entries([str(stored["at"])])
                data = None if entry is None else entry.data
                at, parent = draft.new_id(), entries[-1].id if entries else below
                entries.append(NewEntry.custom(VALUE, data, id=at, parent_id=parent))
                values[channel] = {"at": at}
            else:
                values[channel] = stored
        line = Line() if under is None else under.line
        if LINE in record.values.values():
            made = changed_line(
                [] if under is None else [(entry, entry.id) for entry in await entries_of(draft, under)],
                line,
                await entries_of(source, record),
                path=await path_behind(draft, line, below),
                below=entries[-1].id if entries else below,
                new_id=draft.new_id,
                is_same=_is_same,
                build=_built,
            )
            entries += made.entries
            line = made.line
        values = {channel: LINE if stored == LINE else values[channel] for channel, stored in record.values.items()}
        new = replace(new, checkpoint=record.checkpoint, metadata=record.metadata, versions=record.versions)
        return Filled(entries, replace(new, values=values, line=line))

    made, _ = await checkpoints.put_at(draft, record.id, record.parent, filled)
    origins[made.entry_id] = record
    for data in await writes_at(source, record):
        await checkpoints.put_writes_into(draft, record.id, data)


def _is_same(one: Entry, other: Entry) -> bool:
    return one.payload == other.payload and one.extra == other.extra


def _built(message: Entry, gone: Sequence[Entry], id: str, parent: str | None) -> tuple[Entry, NewEntry]:
    built = NewEntry.message(
        message.fields, message.source, id=id, parent_id=parent, extra=message.extra_fields or None
    )
    # It was paid for where it was said.
    return message, replace(built, calls=(), unpaid=True)
