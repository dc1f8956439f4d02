"""Checkpoints in a session: how they are put and found, and how tuples of the framework are made of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    PendingWrite,
)

from flue_py.adapters.langgraph.by_hand import begun_by_hand
from flue_py.adapters.langgraph.known import Known
from flue_py.adapters.langgraph.lines import Lines, NewLine, new_line
from flue_py.adapters.langgraph.messages import are_messages, fresh
from flue_py.adapters.langgraph.places import Desks, Place
from flue_py.adapters.langgraph.records import (
    CHECKPOINT,
    PUTS,
    VALUE,
    WINDOW,
    WRITES,
    Line,
    Record,
    entry_ids,
    writes_id,
)
from flue_py.adapters.langgraph.threads import UNORDERED, Address, call_scope
from flue_py.adapters.langgraph.values import Values
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.errors import InvalidEntry
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Writes: TypeAlias = "list[tuple[str, str, int, str, JsonValue]]"
"""Path of the task, its id, number, channel and the stored value, in the order in which a graph applies them."""

_MESSAGES = "messages"
_LINE: JsonObject = {"line": True}
_SMALL = 120
"""A value of so many characters is written again where it is the same: naming where it is would take as much."""
_RECORDS = 512
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Put:
    """A checkpoint that is to be stored."""

    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    parent: str | None
    new_versions: ChannelVersions
    is_copy: bool = False
    """Whether it was stored before: what is not new is as in the last one, and what it cost is in the ledger."""


class Checkpoints:
    """The checkpoints of all threads of a store, as one saver and its clones see them."""

    def __init__(self) -> None:
        self._desks = Desks()
        self._lines = Lines()
        self._records: Known[Record] = Known(_RECORDS)
        self._above: Known[str] = Known(_RECORDS)
        """The entry of the checkpoint above an entry with writes."""
        self._free: Known[int] = Known(_RECORDS)
        """The number of the next writes of a checkpoint."""

    # -- finding --------------------------------------------------------------------------------------------

    async def find(self, session: Session | Place, checkpoint_id: str) -> Record | None:
        """Return a checkpoint by its id, as it was put last; None if there is none. One read."""
        ids = list(islice(entry_ids(checkpoint_id), PUTS))
        found = [entry for entry in await session.get_entries(ids) if entry is not None and entry.kind == CHECKPOINT]
        return self._record(session, found[-1]) if found else None

    async def newest(self, session: Session, values: Values) -> Record | None:
        """Return the checkpoint at the leaf, or the last one above it; None if there is none.

        A leaf between an input and the message that it brought is where a turn was taken back: the newest checkpoint
        is then the last one of the turn before.
        """
        record = await self._at_leaf(session)
        if record is None or session.leaf_id is None:
            return await begun_by_hand(session)
        metadata = values.loaded(record.metadata)
        if not isinstance(metadata, dict) or metadata.get("source") != "input":
            return record
        if not await session.children(session.leaf_id):
            return record
        return None if record.parent is None else await self.find(session, record.parent)

    async def _at_leaf(self, session: Session | Place) -> Record | None:
        return None if session.leaf_id is None else await self._above_or_at(session, session.leaf_id)

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

    # -- putting --------------------------------------------------------------------------------------------

    async def put(self, store: Store, address: Address, put: Put, values: Values, owner: str | None) -> None:
        """Store a checkpoint. One transaction. Raises `ThreadOwned`, and what the serializer raises. O(what is new)."""
        await self._desks.write(store, address, owner, lambda place: self.put_into(store, place, put, values))

    async def put_into(self, store: Store, place: Place, put: Put, values: Values) -> None:
        """Store a checkpoint at the leaf that the place is known to have. Raises `LeafConflict`, too."""
        at_leaf = await self._at_leaf(place)
        if at_leaf is None and put.parent is not None:
            at_leaf = await _begun(place, put.parent)
        leaf = place.leaf_id
        under, below = await self._below(place, at_leaf, put.parent)
        id = put.checkpoint["id"]
        record = Record("", id, put.parent, None, None, {}, {}, high=max(id, "" if at_leaf is None else at_leaf.high))
        is_newest = at_leaf is None or id >= at_leaf.high
        is_in_order = at_leaf is None or id > at_leaf.high
        if not is_in_order and not place.metadata.get(UNORDERED):
            await place.note({UNORDERED: True})
        new_id = store.backend.new_entry_id
        entries, record, line = await self._filled(place, put, record, under, below, values, new_id)
        for entry_id in await _free_ids(place, id, sure=is_in_order):
            parent_id = entries[-1].id if entries else below
            made = NewEntry.custom(CHECKPOINT, record.to_json(), id=entry_id, parent_id=parent_id)
            try:
                await place.add([*entries, made], entry_id if is_newest else leaf)
            except InvalidEntry:
                if not await place.taken([entry_id]):
                    raise
                continue
            record = replace(record, entry_id=entry_id)
            self._records.put((place.id, entry_id), record)
            place.recent[id] = record
            kept = line.kept if line is not None else None if under is None else self._lines.known(place, under)
            if kept is not None:
                self._lines.note(place, entry_id, kept)
            return

    async def _below(
        self, place: Place, at_leaf: Record | None, parent: str | None
    ) -> tuple[Record | None, str | None]:
        """Return the checkpoint that a new one stands below, and the entry that its own come below."""
        under = at_leaf
        if parent is not None and (at_leaf is None or at_leaf.id != parent):
            under = await self._found(place, parent) or at_leaf
        if under is None:
            return None, None
        leaf = place.leaf_id
        if under is at_leaf and leaf is not None:
            above = self._above.get((place.id, leaf))
            if above is None and leaf != under.entry_id:
                entry = await place.get_entry(leaf)
                named = entry.fields.get("after") if entry is not None and entry.kind == WRITES else None
                above = named if isinstance(named, str) else None
            if under.entry_id in (leaf, above):
                return under, leaf
        return under, under.entry_id

    async def _found(self, place: Place, checkpoint_id: str) -> Record | None:
        return place.recent.get(checkpoint_id) or await self.find(place, checkpoint_id)

    async def _filled(
        self,
        place: Place,
        put: Put,
        record: Record,
        under: Record | None,
        below: str | None,
        values: Values,
        new_id: Callable[[], str],
    ) -> tuple[list[NewEntry], Record, NewLine | None]:
        """Return the entries that come before the checkpoint's own, and the checkpoint with all that it says."""
        versions = put.checkpoint["channel_versions"]
        old_versions = {} if under is None else under.versions
        old_values = {} if under is None else under.values
        line = Line() if under is None else under.line
        made: NewLine | None = None
        entries: list[NewEntry] = []
        stored: dict[str, JsonValue] = {}
        kept_versions: dict[str, JsonValue] = {}
        for channel, value in put.checkpoint["channel_values"].items():
            version = cast("JsonValue", versions.get(channel))
            is_below = put.is_copy or (under is not None and under.id == put.parent)
            is_old = is_below and channel not in put.new_versions and channel in old_values and version is not None
            if is_old and old_versions.get(channel) == version:
                stored[channel], kept_versions[channel] = old_values[channel], version
                continue
            if channel == _MESSAGES and values.may_show and are_messages(value):
                old = () if under is None else await self._lines.of(place, under, values)
                made = new_line(
                    old,
                    line,
                    value,
                    below=entries[-1].id if entries else below,
                    new_id=new_id,
                    values=values,
                    call_scope=call_scope(place),
                    is_paid=put.is_copy,
                )
                entries += made.entries
                stored[channel], kept_versions[channel] = _LINE, version
                continue
            text = values.stored(value)
            if len(encode_json(text, channel)[0]) > _SMALL:
                id = new_id()
                parent_id = entries[-1].id if entries else below
                entries.append(NewEntry.custom(VALUE, text, id=id, parent_id=parent_id))
                text = {"at": id}
            stored[channel], kept_versions[channel] = text, version
        rest = {field: value for field, value in put.checkpoint.items() if field not in ("id", "channel_values")}
        record = replace(
            record,
            checkpoint=values.stored(rest),
            metadata=Values.stored(values, put.metadata),
            versions={channel: version for channel, version in kept_versions.items() if version is not None},
            values=stored,
            line=line if made is None else made.line,
        )
        return entries, record, made

    async def put_writes(
        self,
        store: Store,
        address: Address,
        writes: Sequence[tuple[str, object]],
        task: tuple[str, str],
        values: Values,
        owner: str | None,
    ) -> None:
        """Store what a task, its id and its path, has written at a checkpoint. One transaction. O(size)."""
        checkpoint = address.checkpoint
        assert checkpoint is not None
        stored: list[JsonValue] = [
            [WRITES_IDX_MAP.get(channel, number), channel, values.stored(value)]
            for number, (channel, value) in enumerate(writes)
        ]
        data: JsonObject = {"checkpoint": checkpoint, "task": task[0], "path": task[1], "writes": stored}
        await self._desks.write(store, address, owner, lambda place: self.put_writes_into(place, checkpoint, data))

    async def put_writes_into(self, place: Place, checkpoint_id: str, data: JsonObject) -> None:
        """Store the writes of a task, as their entry has them. Raises `LeafConflict`, too."""
        at_leaf = await self._at_leaf(place)
        under = at_leaf
        if at_leaf is None or at_leaf.id != checkpoint_id:
            under = await self._found(place, checkpoint_id)
        # The writes of a task may come before the checkpoint that they belong to.
        entry_id = under.entry_id if under is not None else next(entry_ids(checkpoint_id))
        leaf = place.leaf_id
        is_at_leaf = under is None or under is at_leaf
        below = leaf
        if under is not None:
            below = (await self._below(place, at_leaf, under.id))[1]
        above = at_leaf if is_at_leaf else under
        after = None if above is None else above.entry_id
        moves = is_at_leaf and below == leaf
        data = data | {"after": after}
        number = self._free.get((place.id, entry_id)) or 0
        while True:
            id = writes_id(entry_id, number)
            made = NewEntry.custom(WRITES, data, id=id, parent_id=below)
            try:
                await place.add([made], id if moves else leaf)
            except InvalidEntry:
                ids = [writes_id(entry_id, each) for each in range(number, number + 4 * WINDOW)]
                taken = await place.taken(ids)
                if id not in taken:
                    raise
                number += next((at for at, each in enumerate(ids) if each not in taken), len(ids))
                continue
            self._free.put((place.id, entry_id), number + 1)
            if after is not None:
                self._above.put((place.id, id), after)
            return

    # -- tuples ---------------------------------------------------------------------------------------------

    async def tuples(
        self, session: Session, address: Address, records: Sequence[Record], values: Values
    ) -> list[CheckpointTuple]:
        """Return checkpoints with their values and the writes at them: a few reads, however many they are."""
        writes = await self._writes(session, [record.entry_id for record in records])
        loaded = await self._loaded(session, records)
        made = []
        lines: dict[str, tuple[Line, tuple[Any, ...]]] = {}
        for record in records:
            kept = await self._line(session, record, lines, values)
            channel_values = {
                channel: [fresh(message) for message, _ in kept]
                if stored == _LINE
                else values.loaded(loaded[stored["at"]] if isinstance(stored, dict) and "at" in stored else stored)
                for channel, stored in record.values.items()
            }
            rest = cast("dict[str, Any]", values.loaded(record.checkpoint))
            checkpoint = {**rest, "id": record.id, "channel_values": channel_values}
            pending: list[PendingWrite] = [
                (task, channel, values.loaded(stored)) for _, task, _, channel, stored in writes[record.entry_id]
            ]
            made.append(
                CheckpointTuple(
                    address.at(record.id),
                    cast("Checkpoint", checkpoint),
                    cast("CheckpointMetadata", values.loaded(record.metadata)),
                    None if record.parent is None else address.at(record.parent),
                    pending,
                )
            )
        return made

    async def _line(
        self,
        session: Session,
        record: Record,
        lines: dict[str, tuple[Line, tuple[Any, ...]]],
        values: Values,
    ) -> tuple[Any, ...]:
        if _LINE not in record.values.values():
            return ()
        child = lines.get(record.id)
        if child is not None and child[0].epoch == record.line.epoch:
            kept = child[1][: record.line.count]
        else:
            kept = await self._lines.of(session, record, values)
        if record.parent is not None:
            lines[record.parent] = (record.line, kept)
        return kept

    async def _loaded(self, session: Session, records: Sequence[Record]) -> Mapping[JsonValue, JsonValue]:
        ids = {
            stored["at"]: None
            for record in records
            for stored in record.values.values()
            if isinstance(stored, dict) and "at" in stored
        }
        wanted = [str(id) for id in ids]
        found = await session.get_entries(wanted) if wanted else []
        return {id: None if entry is None else entry.data for id, entry in zip(wanted, found, strict=True)}

    async def _writes(self, session: Session, entry_ids: Sequence[str]) -> dict[str, Writes]:
        found = await self._write_entries(session, entry_ids)
        return {entry_id: _applied(entries) for entry_id, entries in found.items()}

    async def write_ids(self, session: Session, entry_ids: Sequence[str]) -> dict[str, list[str]]:
        """Return the ids of the entries with the writes at checkpoints, by the ids of their entries."""
        found = await self._write_entries(session, entry_ids)
        return {entry_id: [entry.id for entry in entries] for entry_id, entries in found.items()}

    async def writes_at(self, session: Session, record: Record) -> list[JsonObject]:
        """Return the writes at a checkpoint as they are stored, in the order in which they came."""
        return [entry.fields for entry in (await self._write_entries(session, [record.entry_id]))[record.entry_id]]

    async def _write_entries(self, session: Session, entry_ids: Sequence[str]) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {entry_id: [] for entry_id in entry_ids}
        begin, size, left = 0, WINDOW, list(entry_ids)
        while left:
            ids = [writes_id(entry_id, number) for entry_id in left for number in range(begin, begin + size)]
            entries = await session.get_entries(ids)
            full = []
            for place, entry_id in enumerate(left):
                there = [entry for entry in entries[place * size : (place + 1) * size] if entry is not None]
                found[entry_id] += there
                if len(there) == size:
                    full.append(entry_id)
            begin, size, left = begin + size, 4 * size, full
        return found


async def _begun(place: Place, checkpoint_id: str) -> Record | None:
    """Store the checkpoint that stands for messages of before, if it is the one that is meant."""
    record = await place.begun()
    if record is None or record.id != checkpoint_id:
        return None
    made = NewEntry.custom(CHECKPOINT, record.to_json(), id=record.entry_id, parent_id=place.leaf_id)
    await place.add([made], record.entry_id)
    return record


async def _free_ids(place: Place, id: str, *, sure: bool) -> Iterable[str]:
    """Return ids for the entry of a checkpoint, the first of which that is free is to be taken."""
    if sure:
        return entry_ids(id)
    ids = list(islice(entry_ids(id), 10 * PUTS))
    taken = await place.taken(ids)
    return [each for each in ids if each not in taken]


def _applied(entries: Sequence[Entry]) -> Writes:
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
