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
from flue_py.adapters.langgraph.lines import Kept, Lines, NewLine, new_line
from flue_py.adapters.langgraph.messages import are_messages, fresh
from flue_py.adapters.langgraph.numbers import Numbers, counted, numbers_in
from flue_py.adapters.langgraph.places import Desks, Place
from flue_py.adapters.langgraph.records import (
    CHECKPOINT,
    PUTS,
    VALUE,
    WINDOW,
    WRITES,
    Line,
    Record,
    entry_id,
    number_of_put,
    writes_id,
)
from flue_py.adapters.langgraph.threads import FRAMEWORK, UNORDERED, Address, call_scope
from flue_py.adapters.langgraph.values import Values
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.errors import InvalidEntry
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from langchain_core.messages import BaseMessage

Writes: TypeAlias = "list[tuple[str, str, int, str, JsonValue]]"
"""Path of the task, its id, number, channel and the stored value, in the order in which a graph applies them."""

_MESSAGES = "messages"
LINE: JsonObject = {"line": True}
"""What a checkpoint says of the channel whose value is its line of messages."""
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


@dataclass(frozen=True, slots=True)
class Filled:
    """The entries that come before a checkpoint's own, the checkpoint with all that it says, and its messages."""

    entries: list[NewEntry]
    record: Record
    line: tuple[Kept, ...] | None = None


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
        most = (await _numbers(session)).puts
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
        await self._desks.write(store, address, owner, lambda place: self._put_into(place, put, values))

    async def _put_into(self, place: Place, put: Put, values: Values) -> None:
        async def filled(record: Record, under: Record | None, below: str | None) -> Filled:
            return await self._filled(place, put, record, under, below, values)

        record, line = await self.put_at(place, put.checkpoint["id"], put.parent, filled)
        if line is not None:
            self._lines.note(place, record.entry_id, line)

    async def put_at(
        self,
        place: Place,
        id: str,
        parent: str | None,
        fill: Callable[[Record, Record | None, str | None], Awaitable[Filled]],
    ) -> tuple[Record, tuple[Kept, ...] | None]:
        """Store a checkpoint below its parent, and return it with its messages, if these are known.

        ``fill`` is given the checkpoint as far as it is known, the one above it and the entry that its own come below,
        and returns the entries that come before its own. Raises `LeafConflict`, and `RevisionConflict`.
        """
        at_leaf = await self._at_leaf(place)
        if at_leaf is None and parent is not None:
            at_leaf = await self._begun(place, parent)
        under, below = await self._below(place, at_leaf, parent)
        high = "" if at_leaf is None else at_leaf.high
        if at_leaf is not None and id <= high and not place.metadata.get(UNORDERED):
            await place.note({UNORDERED: True})
        filled = await fill(Record("", id, parent, None, None, {}, {}, high=max(id, high)), under, below)
        is_newest = at_leaf is None or id >= high
        sure = at_leaf is None or id > high
        below = filled.entries[-1].id if filled.entries else below
        return await self._add(place, filled.entries, filled.record, below, newest=is_newest, sure=sure), filled.line

    async def _add(
        self,
        place: Place,
        entries: Sequence[NewEntry],
        record: Record,
        below: str | None,
        *,
        newest: bool = True,
        sure: bool = True,
    ) -> Record:
        """Store a checkpoint's entry behind those that come before it, under the first id that is free.

        ``sure`` says that no checkpoint of its id was put here before.
        """
        number = 1
        while True:
            if not sure:
                number = await self._free_put(place, record.id)
            noted = await _numbers(place)
            if number > noted.puts:
                await place.note(noted.with_put(number).to_metadata())
            record = replace(record, entry_id=entry_id(record.id, number))
            made = NewEntry.custom(CHECKPOINT, record.to_json(), id=record.entry_id, parent_id=below)
            try:
                await place.add([*entries, made], record.entry_id if newest else place.leaf_id)
            except InvalidEntry:
                if not await place.taken([record.entry_id]):
                    raise
                sure = False
                continue
            self._records.put((place.id, record.entry_id), record)
            place.recent[record.id] = record
            return record

    async def _free_put(self, place: Place, id: str) -> int:
        """Return the first number that is free for a checkpoint, behind those of its that are seen here."""
        last = await self.find(place, id)
        number, size = 1 if last is None else number_of_put(last.entry_id) + 1, PUTS
        while True:
            ids = [entry_id(id, each) for each in range(number, number + size)]
            taken = await place.taken(ids)
            if len(taken) < size:
                return number + next(at for at, each in enumerate(ids) if each not in taken)
            number, size = number + size, 4 * size

    async def _begun(self, place: Place, checkpoint_id: str) -> Record | None:
        """Store the checkpoint that stands for messages of before, if it is the one that is meant."""
        record = await place.begun()
        if record is None or record.id != checkpoint_id:
            return None
        return await self._add(place, (), record, place.leaf_id)

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
    ) -> Filled:
        """Return the entries that come before the checkpoint's own, and the checkpoint with all that it says."""
        versions = put.checkpoint["channel_versions"]
        old_versions = {} if under is None else under.versions
        old_values = {} if under is None else under.values
        line = Line() if under is None else under.line
        made: NewLine[BaseMessage] | None = None
        entries: list[NewEntry] = []
        stored: dict[str, JsonValue] = {}
        kept_versions: dict[str, JsonValue] = {}
        for channel, value in put.checkpoint["channel_values"].items():
            version = cast("JsonValue", versions.get(channel))
            is_below = under is not None and under.id == put.parent
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
                    new_id=place.new_id,
                    values=values,
                    call_scope=call_scope(place),
                )
                entries += made.entries
                stored[channel], kept_versions[channel] = LINE, version
                continue
            text = values.stored(value)
            if len(encode_json(text, channel)[0]) > _SMALL:
                id = place.new_id()
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
        if made is not None:
            return Filled(entries, record, made.kept)
        return Filled(entries, record, None if under is None else self._lines.known(place, under))

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
        at = under.entry_id if under is not None else entry_id(checkpoint_id, 1)
        leaf = place.leaf_id
        is_at_leaf = under is None or under is at_leaf
        below = leaf
        if under is not None:
            below = (await self._below(place, at_leaf, under.id))[1]
        above = at_leaf if is_at_leaf else under
        after = None if above is None else above.entry_id
        moves = is_at_leaf and below == leaf
        data = data | {"after": after}
        number = self._free.get((place.id, at)) or 0
        while True:
            noted = await _numbers(place)
            if at in noted.writes and number > noted.writes[at]:
                await place.note(noted.with_writes(at, number).to_metadata())
            id = writes_id(at, number)
            made = NewEntry.custom(WRITES, data, id=id, parent_id=below)
            try:
                await place.add([made], id if moves else leaf)
            except InvalidEntry:
                if not await place.taken([id]):
                    raise
                number = await _free_writes(place, at, number)
                continue
            self._free.put((place.id, at), number + 1)
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
                if stored == LINE
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
        if LINE not in record.values.values():
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
        found: dict[str, list[Entry]] = {each: [] for each in entry_ids}
        noted = await _numbers(session)
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


async def _free_writes(place: Place, at: str, number: int) -> int:
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
    noted = await _numbers(place)
    if not sees_all and number >= noted.window(at):
        await place.note(noted.with_writes(at, number).to_metadata())
    return number


async def _numbers(session: Session | Place) -> Numbers:
    metadata = session.metadata
    # Nobody has noted anything of a session that was forked by hand, until a checkpoint is put into it.
    if FRAMEWORK not in metadata and isinstance(session, Session):
        return await counted(session)
    return numbers_in(metadata)


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
