"""A LangGraph checkpointer that keeps its threads in a store of ours (`pip install 'flue-py[langgraph]'`)."""

from __future__ import annotations

from flue_py import errors

try:
    import langgraph.checkpoint.base  # noqa: F401 - only to say which extra is missing
except ImportError as error:
    raise errors.MissingExtra("langgraph", "flue_py.adapters.langgraph") from error

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar, cast

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    get_checkpoint_metadata,
)
from msgspec import Struct, field
from msgspec.structs import replace

from flue_py.adapters.common import Access, Cache, Target, Work, find_session
from flue_py.adapters.langgraph import layout
from flue_py.adapters.langgraph.layout import Address, Place, Record, ThreadOwned, Values, entry_id, release
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.erasure import REDACTED
from flue_py.core.json import Frozen, JsonObject, JsonValue, decode_object, encode_json
from flue_py.errors import (
    InvalidArgument,
    InvalidEntry,
    LeafConflict,
    RevisionConflict,
    SessionExists,
    SessionNotFound,
    shown,
)
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from flue_py.core.sessions import OnConflict
    from flue_py.sessions.batch import Atomic

__all__ = ["FlueSaver", "ThreadOwned"]


# The target of writes: a session as last read or written

_PLACES = 256
_RETRIES = 2000
"""Whoever has to try again was overtaken by one who is done, so of many at once each has its turn."""


class Live:
    """A session of a store. A write by others since it was read is a conflict."""

    def __init__(self, store: Store, session: Session) -> None:
        self.recent: dict[str, Record] = {}
        self._store = store
        self._session = session

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def leaf_id(self) -> str | None:
        return self._session.leaf_id

    @property
    def metadata(self) -> Mapping[str, JsonValue]:
        return self._session.metadata

    def new_id(self) -> str:
        return self._store.backend.new_entry_id()

    async def get_entry(self, entry_id: str) -> Entry | None:
        return await self._session.get_entry(entry_id)

    async def get_entries(self, ids: Sequence[str]) -> list[Entry | None]:
        return await self._session.get_entries(ids)

    async def get_active_path(self, *, leaf: str) -> Sequence[Entry]:
        return await self._session.get_active_path(leaf=leaf)

    async def add(self, entries: Sequence[NewEntry], leaf: str | None) -> None:
        # By the revision too: an owner may have claimed the thread since, which moves no leaf.
        seen = self._session.revision
        await self._session.import_entries(entries, leaf=leaf, expected_revision=seen)

    async def taken(self, ids: Sequence[str]) -> frozenset[str]:
        return frozenset(await self._store.backend.taken_entry_ids(self.id, ids))

    async def note(self, fields: Mapping[str, JsonValue]) -> None:
        await self._session.set_metadata(fields, merge=True, expected_revision=self._session.revision)


class _Desk:
    """The place where one writer at a time works on a session, as the last one left it."""

    def __init__(self, store: Store) -> None:
        self.turn = store.backend.waiting.turn()
        self.place: Live | None = None


class Desks:
    """The sessions that a process writes to. Its threads and tasks take turns, so that they meet no conflict."""

    def __init__(self, begin: Callable[[Store], Awaitable[None]]) -> None:
        self._desks: Cache[_Desk] = Cache(_PLACES)
        self._begin = begin
        """What is called before a session is read anew."""

    async def write(
        self, store: Store, address: Address, owner: str | None, work: Callable[[Place], Awaitable[None]]
    ) -> None:
        """Call ``work`` with the session of an address; again, with the session read anew, if others have written.

        Raises `ThreadOwned`, and the errors of ``work``: `SessionNotFound`, too, if the address names a checkpoint of a
        thread that was deleted since this process wrote to it. Making that anew would bring a part of it back.
        """
        desk = self._desks.get_or_put(address.key, lambda: _Desk(store))
        async with desk.turn:
            for attempt in range(_RETRIES):
                place, desk.place = desk.place, None
                is_fresh = place is None
                if place is None:
                    await self._begin(store)
                    place = Live(store, await layout.session_to_write(store, address, owner))
                try:
                    await work(place)
                except (LeafConflict, RevisionConflict) as error:
                    # It is no use again where it is about the leaf that was read just now. A place of an earlier write
                    # may be behind what its caller has read.
                    is_seen = is_fresh and isinstance(error, LeafConflict) and error.actual == place.leaf_id
                    if is_seen or attempt + 1 == _RETRIES:
                        raise
                except SessionNotFound:
                    is_late = address.checkpoint is not None and not await _has_checkpoint(store, address)
                    if is_late:
                        desk.place = place
                    if is_late or attempt + 1 == _RETRIES:
                        raise
                else:
                    desk.place = place
                    return


async def _has_checkpoint(store: Store, address: Address) -> bool:
    """Return whether there is a thread that has the checkpoint of an address, under whichever number. Two reads."""
    session = await find_session(store, address.key)
    if session is None or address.checkpoint is None:
        return False
    return bool(await layout.entries_put(session, address.checkpoint))


# Checkpoint tuples of the framework

Below: TypeAlias = dict[str, tuple[layout.Line, tuple[Any, ...]]]
"""The line of a checkpoint's child, by the checkpoint's id: it begins with that of the checkpoint."""


async def tuples_of(
    session: Session, address: Address, records: Sequence[Record], values: Values, lines: layout.Lines
) -> list[CheckpointTuple]:
    """Return checkpoints with their values and the writes at them: a few reads, however many they are."""
    writes = await layout.entries_of_writes(session, [record.entry_id for record in records])
    loaded = await _loaded(session, records)
    tuples = []
    below: Below = {}
    for record in records:
        line = await _line(session, record, below, values, lines)
        channel_values = {
            channel: [layout.fresh(message) for message, _ in line]
            if stored == layout.LINE
            else values.loaded(loaded[stored["at"]] if isinstance(stored, dict) and "at" in stored else stored)
            for channel, stored in record.values.items()
            if not (isinstance(stored, dict) and "at" in stored) or stored["at"] in loaded
        }
        rest = cast("dict[str, Any]", values.loaded(record.checkpoint))
        checkpoint = {**rest, "id": record.id, "channel_values": channel_values}
        pending: list[PendingWrite] = [
            (task, channel, values.loaded(stored))
            for _, task, _, channel, stored in layout.applied(writes[record.entry_id])
        ]
        tuples.append(
            CheckpointTuple(
                address.at(record.id),
                cast("Checkpoint", checkpoint),
                cast("CheckpointMetadata", values.loaded(record.metadata)),
                None if record.parent is None else address.at(record.parent),
                pending,
            )
        )
    return tuples


async def _line(session: Session, record: Record, below: Below, values: Values, lines: layout.Lines) -> tuple[Any, ...]:
    if layout.LINE not in record.values.values():
        return ()
    child = below.get(record.id)
    if child is not None and child[0].epoch == record.line.epoch:
        line = child[1][: record.line.count]
    else:
        line = await lines.of(session, record, values)
    if record.parent is not None:
        below[record.parent] = (record.line, line)
    return line


async def _loaded(session: Session, records: Sequence[Record]) -> Mapping[JsonValue, JsonValue]:
    """Return the values that stand in entries of their own, by these. A channel has none if that was redacted."""
    stored_values = (stored for record in records for stored in record.values.values())
    ids = [*{str(stored["at"]) for stored in stored_values if isinstance(stored, dict) and "at" in stored}]
    entries = await session.get_entries(ids) if ids else []
    return {
        id: None if entry is None else entry.data
        for id, entry in zip(ids, entries, strict=True)
        if entry is None or REDACTED not in entry.fields
    }


# Writing checkpoints and task writes

_SMALL = 120
"""A value of so many characters is written again where it is the same: naming where it is would take as much."""
_NUMBERS = 512


class Put(Frozen):
    """A checkpoint that is to be stored."""

    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    parent: str | None
    new_versions: ChannelVersions


class Filled(Frozen):
    """The entries that come before a checkpoint's own, the checkpoint with all of its fields, and its messages."""

    entries: list[NewEntry]
    record: Record
    line: tuple[layout.Kept, ...] | None = None


class Checkpoints(layout.Finding):
    """The checkpoints of all threads of a store, as one saver and its clones see them."""

    def __init__(self) -> None:
        super().__init__()
        self._desks = Desks(self.begin)
        self._free: Cache[int] = Cache(_NUMBERS)
        """The number of the next writes of a checkpoint."""

    async def put(self, store: Store, address: Address, put: Put, values: Values, owner: str | None) -> None:
        """Store a checkpoint. One transaction. Raises `ThreadOwned`, and the serializer's errors. O(new values)."""

        async def work(place: Place) -> None:
            await self._begin(place, put.parent, values)
            fill = partial(self._filled, place, put, values)
            record, line = await self.put_at(place, put.checkpoint["id"], put.parent, fill)
            if line is not None:
                self.lines.note(place, record.entry_id, line)

        await self._desks.write(store, address, owner, work)

    async def put_at(
        self,
        place: Place,
        id: str,
        parent: str | None,
        fill: Callable[[Record, Record | None, str | None], Awaitable[Filled]],
    ) -> tuple[Record, tuple[layout.Kept, ...] | None]:
        """Store a checkpoint below its parent, and return it with its messages, if these are known.

        ``fill`` is given the checkpoint as far as it is known, the one above it and the entry that its own come below,
        and returns the entries that come before its own. Raises `LeafConflict`, and `RevisionConflict`.
        """
        at_leaf = await self._at_leaf(place)
        under, below = await self._below(place, at_leaf, parent)
        high = "" if at_leaf is None else at_leaf.high
        if at_leaf is not None and id <= high and not place.metadata.get(layout.UNORDERED):
            await place.note({layout.UNORDERED: True})
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
                number = await layout.free_put(place, record.id, await self.find(place, record.id))
            noted = await layout.numbers_of(place)
            if number > noted.puts:
                await place.note(noted.with_put(number).to_metadata())
            record = replace(record, entry_id=entry_id(record.id, number))
            entry = NewEntry.custom(layout.CHECKPOINT, record.to_json(), id=record.entry_id, parent_id=below)
            try:
                await place.add([*entries, entry], record.entry_id if newest else place.leaf_id)
            except InvalidEntry:
                if not await place.taken([record.entry_id]):
                    raise
                sure = False
                continue
            self._records.put((place.id, record.entry_id), record)
            place.recent[record.id] = record
            return record

    async def _begin(self, place: Place, parent: str | None, values: Values) -> None:
        """Store the checkpoint that stands for entries of others, if it is the one to write below.

        Raises `LeafConflict` if they have added them since that one was read.
        """
        if parent is None:
            return
        at_leaf = await self._at_leaf(place)
        if at_leaf is not None and at_leaf.id == parent:
            is_there = await self._is_right_below(place, at_leaf)
        else:
            is_there = await self._found(place, parent) is not None
        if is_there:
            return
        added = await layout.begun_by_hand(place, at_leaf, values)
        if added is not None and added.id != parent:
            raise LeafConflict(place.id, None if at_leaf is None else at_leaf.entry_id, place.leaf_id)
        if added is not None:
            await self._add(place, (), added, place.leaf_id)

    async def _below(
        self, place: Place, at_leaf: Record | None, parent: str | None
    ) -> tuple[Record | None, str | None]:
        """Return the checkpoint that a new one stands below, and the entry that its own come below."""
        under = at_leaf
        if parent is not None and (at_leaf is None or at_leaf.id != parent):
            under = await self._found(place, parent) or at_leaf
        if under is None:
            return None, None
        is_at_leaf = under is at_leaf and await self._is_right_below(place, under)
        return under, place.leaf_id if is_at_leaf else under.entry_id

    async def _found(self, place: Place, checkpoint_id: str) -> Record | None:
        return place.recent.get(checkpoint_id) or await self.find(place, checkpoint_id)

    async def _filled(
        self, place: Place, put: Put, values: Values, record: Record, under: Record | None, below: str | None
    ) -> Filled:
        """Return the entries that come before the checkpoint's own, and the checkpoint with all of its fields."""
        versions = put.checkpoint["channel_versions"]
        old_versions = {} if under is None else under.versions
        old_values = {} if under is None else under.values
        line = layout.Line() if under is None else under.line
        new: layout.NewLine[BaseMessage] | None = None
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
            if channel == layout.MESSAGES and values.may_show and layout.are_messages(value):
                old = () if under is None else await self.lines.of(place, under, values)
                new = layout.changed_line(
                    old,
                    line,
                    value,
                    path=await layout.path_behind(place, line, below),
                    below=entries[-1].id if entries else below,
                    new_id=place.new_id,
                    is_same=layout.same,
                    build=layout.copying(values, layout.call_scope(place)),
                )
                entries += new.entries
                stored[channel], kept_versions[channel] = layout.LINE, version
                continue
            text = values.stored(value)
            if len(encode_json(text, channel)[0]) > _SMALL:
                id = place.new_id()
                parent_id = entries[-1].id if entries else below
                entries.append(NewEntry.custom(layout.VALUE, text, id=id, parent_id=parent_id))
                text = {"at": id}
            stored[channel], kept_versions[channel] = text, version
        rest = {field: value for field, value in put.checkpoint.items() if field not in ("id", "channel_values")}
        record = replace(
            record,
            checkpoint=values.stored(rest),
            metadata=values.stored(put.metadata),
            versions={channel: version for channel, version in kept_versions.items() if version is not None},
            values=stored,
            line=line if new is None else new.line,
        )
        if new is not None:
            return Filled(entries, record, new.kept)
        return Filled(entries, record, None if under is None else self.lines.known(place, under))

    async def put_writes(
        self,
        store: Store,
        address: Address,
        writes: Sequence[tuple[str, object]],
        task: tuple[str, str],
        values: Values,
        owner: str | None,
    ) -> None:
        """Store the writes of a task, its id and its path, at a checkpoint. One transaction. O(size)."""
        checkpoint = address.checkpoint
        assert checkpoint is not None
        stored: list[JsonValue] = [
            [WRITES_IDX_MAP.get(channel, number), channel, values.stored(value)]
            for number, (channel, value) in enumerate(writes)
        ]
        data: JsonObject = {"checkpoint": checkpoint, "task": task[0], "path": task[1], "writes": stored}

        async def work(place: Place) -> None:
            # One of the framework may still be to come: what others have added is for its `put` to compare.
            if layout.stands_for_others(checkpoint) and await self._found(place, checkpoint) is None:
                await self._begin(place, checkpoint, values)
            await self.put_writes_into(place, checkpoint, data)

        await self._desks.write(store, address, owner, work)

    async def put_writes_into(self, place: Place, checkpoint_id: str, data: JsonObject) -> None:
        """Store the writes of a task, as their entry has them. Raises `LeafConflict`, too."""
        at_leaf = await self._at_leaf(place)
        under = at_leaf
        if at_leaf is None or at_leaf.id != checkpoint_id:
            under = await self._found(place, checkpoint_id)
        # The writes of a task may come before the checkpoint that they belong to.
        at = under.entry_id if under is not None else entry_id(checkpoint_id, 1)
        leaf = below = place.leaf_id
        above = under
        if under is not None:
            below = (await self._below(place, at_leaf, under.id))[1]
        elif at_leaf is not None and await self._is_right_below(place, at_leaf):
            above = at_leaf
        after = None if above is None else above.entry_id
        moves = (under is None or under is at_leaf) and below == leaf
        data = data | {"after": after}
        number = self._free.get((place.id, at)) or 0
        while True:
            noted = await layout.numbers_of(place)
            if at in noted.writes and number > noted.writes[at]:
                await place.note(noted.with_writes(at, number).to_metadata())
            id = layout.writes_id(at, number)
            entry = NewEntry.custom(layout.WRITES, data, id=id, parent_id=below)
            try:
                await place.add([entry], id if moves else leaf)
            except InvalidEntry:
                if not await place.taken([id]):
                    raise
                number = await layout.free_number(place, at, number)
                continue
            self._free.put((place.id, at), number + 1)
            if after is not None:
                self._above.put((place.id, id), after)
            return


# Copies of checkpoints for another session, in one transaction
#
# Nothing is deserialised: values that only another program can read are copied like the rest.


class Draft:
    """A session that is still to be made: a fork of ``base``, or one with an empty history."""

    def __init__(self, store: Store, base: Session | None, metadata: JsonObject) -> None:
        self.recent: dict[str, Record] = {}
        self._store = store
        self._base = base
        self.metadata: dict[str, JsonValue] = dict(metadata)
        self.id = f"draft:{store.backend.new_entry_id()}"
        self.leaf_id = self._begin = None if base is None else base.leaf_id
        self._path: frozenset[str] | None = None
        self._entries: dict[str, NewEntry] = {}

    def new_id(self) -> str:
        return self._store.backend.new_entry_id()

    async def get_entry(self, entry_id: str) -> Entry | None:
        return (await self.get_entries([entry_id]))[0]

    async def get_entries(self, ids: Sequence[str]) -> list[Entry | None]:
        entries: list[Entry | None] = [None for _ in ids]
        if self._base is not None and self._begin is not None:
            if self._path is None:
                self._path = frozenset(entry.id for entry in await self._base.get_active_path(leaf=self._begin))
            # Of its source, a fork sees the entries on the way to the leaf.
            entries = [
                entry if entry and entry.id in self._path else None for entry in await self._base.get_entries(ids)
            ]
        return [
            _entry(self._entries[id]) if id in self._entries else entry for id, entry in zip(ids, entries, strict=True)
        ]

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
        self.leaf_id = leaf

    async def taken(self, ids: Sequence[str]) -> frozenset[str]:
        taken = {id for id in ids if id in self._entries}
        if self._base is not None:
            taken |= await self._store.backend.taken_entry_ids(self._base.id, ids)
        return frozenset(taken)

    async def note(self, fields: Mapping[str, JsonValue]) -> None:
        self.metadata.update(fields)

    async def overtaken(self) -> bool:
        """Return whether somebody else has taken an id meanwhile, that was free when this was prepared."""
        return self._base is not None and bool(
            await self._store.backend.taken_entry_ids(self._base.id, list(self._entries))
        )

    def write(self, batch: Atomic, session: Session, thread: Session | None, namespace: str) -> Session:
        """Let a batch append everything to the session that it makes, set the leaf, and return the thread's session.

        Without a ``thread`` it is that one, else it becomes a task of it.
        """
        leaf = self._begin
        chain: list[NewEntry] = []
        for entry in [*self._entries.values(), None]:
            if chain and (entry is None or entry.parent_id != chain[-1].id):
                parent = chain[0].parent_id
                on_conflict: OnConflict = "raise" if parent == leaf else "branch"
                batch.append_entries(session, chain, on_conflict=on_conflict, expected_leaf=parent)
                leaf = chain[-1].id if parent == leaf else leaf
                chain = []
            if entry is not None:
                chain.append(entry)
        if leaf != self.leaf_id:
            batch.move_leaf(session, self.leaf_id, expected_leaf=leaf)
        if thread is not None:
            batch.link_task(thread, session, task_id=namespace)
        return thread or session


def _entry(new: NewEntry) -> Entry:
    return Entry(str(new.id), new.parent_id, None, new.kind, new.role, new.source, 0, 0, 0, 0, new.payload, new.extra)


async def add_copies(checkpoints: Checkpoints, source: Session, draft: Draft, records: Sequence[Record]) -> None:
    """Put checkpoints of a session into a draft, parents first, with the writes at them. O(their values)."""
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
            if stored == layout.LINE:
                continue
            if origin is not None and under is not None and origin.values.get(channel) == stored:
                values[channel] = under.values[channel]
            elif isinstance(stored, dict) and "at" in stored:
                (entry,) = await source.get_entries([str(stored["at"])])
                data = None if entry is None else entry.data
                at, parent = draft.new_id(), entries[-1].id if entries else below
                entries.append(NewEntry.custom(layout.VALUE, data, id=at, parent_id=parent))
                values[channel] = {"at": at}
            else:
                values[channel] = stored
        line = layout.Line() if under is None else under.line
        if layout.LINE in record.values.values():
            new_messages = layout.changed_line(
                [] if under is None else [(entry, entry.id) for entry in await layout.entries_of(draft, under)],
                line,
                await layout.entries_of(source, record),
                path=await layout.path_behind(draft, line, below),
                below=entries[-1].id if entries else below,
                new_id=draft.new_id,
                is_same=lambda entry, copy: (entry.payload, entry.extra) == (copy.payload, copy.extra),
                build=_built,
            )
            entries += new_messages.entries
            line = new_messages.line
        values = {
            channel: layout.LINE if stored == layout.LINE else values[channel]
            for channel, stored in record.values.items()
        }
        new = replace(new, checkpoint=record.checkpoint, metadata=record.metadata, versions=record.versions)
        return Filled(entries, replace(new, values=values, line=line))

    new_messages, _ = await checkpoints.put_at(draft, record.id, record.parent, filled)
    origins[new_messages.entry_id] = record
    for entry in (await layout.entries_of_writes(source, [record.entry_id]))[record.entry_id]:
        await checkpoints.put_writes_into(draft, record.id, entry.fields)


def _built(message: Entry, removed: Sequence[Entry], id: str, parent: str | None) -> tuple[Entry, NewEntry]:
    built = NewEntry.message(
        message.fields, message.source, id=id, parent_id=parent, extra=message.extra_fields or None
    )
    # It was paid for where it was said.
    return message, replace(built, calls=(), unpaid=True)


# The history of delta channels: the writes since the last stored value


async def delta_history(
    store: Store, *, checkpoints: Checkpoints, values: Values, address: Address, channels: Sequence[str]
) -> Mapping[str, DeltaChannelHistory]:
    """Return the writes to each channel above a checkpoint, oldest first, back to where its value is stored."""
    await checkpoints.begin(store)
    history: dict[str, DeltaChannelHistory] = {channel: {"writes": []} for channel in channels}
    session = await find_session(store, address.key)
    if session is None or not channels:
        return history
    id = address.checkpoint
    target = await (checkpoints.newest(session, values) if id is None else checkpoints.find(session, id))
    if target is None:
        return history
    chain = await ancestors(checkpoints, session, target, channels)
    writes: dict[str, list[PendingWrite]] = {channel: [] for channel in channels}
    remaining = set(channels)
    for checkpoint in await tuples_of(session, address, chain, values, checkpoints.lines):
        _take(checkpoint, remaining, writes, history)
    for channel in channels:
        history[channel]["writes"] = writes[channel][::-1]
    return history


def _take(
    checkpoint: CheckpointTuple,
    remaining: set[str],
    writes: Mapping[str, list[PendingWrite]],
    history: Mapping[str, DeltaChannelHistory],
) -> None:
    # A value is from before the writes at its own checkpoint, so these follow it.
    for write in reversed(checkpoint.pending_writes or []):
        if write[1] in remaining:
            writes[write[1]].append(write)
    for channel in sorted(remaining):
        if channel in checkpoint.checkpoint["channel_values"]:
            history[channel]["seed"] = checkpoint.checkpoint["channel_values"][channel]
            remaining.discard(channel)


async def ancestors(
    checkpoints: Checkpoints, session: Session, record: Record, channels: Sequence[str]
) -> list[Record]:
    """Return the checkpoints above one, nearest first, as far as a channel has no value. One read for each."""
    chain: list[Record] = []
    met = {record.id}
    remaining = set(channels)
    at: Record | None = record
    while remaining and at is not None and at.parent is not None and at.parent not in met:
        met.add(at.parent)
        at = await checkpoints.find(session, at.parent)
        if at is not None:
            chain.append(at)
            remaining -= set(at.values)
    return chain


# Whole threads: delete, copy, prune

_OVERTAKEN = (LeafConflict, RevisionConflict, SessionExists, SessionNotFound)
"""The errors that are raised if somebody else has changed a thread since it was read."""


class _Part(Frozen):
    """A namespace of a thread, as it was at a revision, and the checkpoints that are copied, oldest first."""

    address: Address
    session: Session
    revision: int
    records: list[Record]


async def delete_thread(store: Store, *, thread: str) -> None:
    """Delete a thread with its namespaces. O(entries)."""
    session = await find_session(store, Address(thread).key)
    if session is not None:
        await store.delete_session_tree(session.ref)


async def delete_runs(store: Store, *, runs: frozenset[str], checkpoints: Checkpoints, values: Values) -> None:
    """Delete the checkpoints whose metadata name one of the runs."""
    if not runs:
        return

    def stays(record: Record) -> bool:
        metadata = values.loaded(record.metadata)
        return not isinstance(metadata, dict) or metadata.get("run_id") not in runs

    async def left(session: Session) -> list[Record]:
        records = await checkpoints.all(session)
        newest = await checkpoints.newest(session, values)
        # Entries of others behind the last checkpoint are of no run.
        added = [] if newest is None or newest.id in {record.id for record in records} else [newest]
        return [*filter(stays, records), *added]

    threads = {address.thread: None async for address, _ in layout.all_sessions(store)}
    for thread in threads:
        records = [
            record for _, at in await layout.sessions_of_thread(store, thread) for record in await checkpoints.all(at)
        ]
        if not all(map(stays, records)):
            await _keep(store, thread, left, checkpoints)


async def prune(
    store: Store, *, threads: Sequence[str], keep_latest: bool, checkpoints: Checkpoints, values: Values
) -> None:
    """Keep the newest checkpoint of each namespace of the threads, or nothing."""
    newest = partial(_newest_and_needed, checkpoints, values)
    for thread in threads:
        if keep_latest:
            await _keep(store, thread, newest, checkpoints)
        else:
            await delete_thread(store, thread=thread)


async def _keep(
    store: Store, thread: str, choose: Callable[[Session], Awaitable[list[Record]]], checkpoints: Checkpoints
) -> None:
    """Write a thread anew with the chosen checkpoints of each of its sessions, unless these are all."""
    await checkpoints.begin(store)
    for attempt in range(_RETRIES):
        parts = []
        is_changed = False
        for address, session in await layout.sessions_of_thread(store, thread):
            revision = session.revision
            left = await choose(session)
            stay = {record.id for record in left}
            is_changed = is_changed or any(record.id not in stay for record in await checkpoints.all(session))
            parts.append(_Part(address, session, revision, left))
        try:
            if is_changed:
                await _write_anew(store, parts, checkpoints)
        except _OVERTAKEN:
            if attempt + 1 == _RETRIES:
                raise
        else:
            return


async def _newest_and_needed(checkpoints: Checkpoints, values: Values, session: Session) -> list[Record]:
    newest = await checkpoints.newest(session, values)
    if newest is None:
        return []
    metadata = values.loaded(newest.metadata)
    counters = metadata.get("counters_since_delta_snapshot") if isinstance(metadata, dict) else None
    # A delta channel without a value of its own is made of the writes since its last one.
    delta = [channel for channel in counters or () if channel not in newest.values]
    return [*reversed(await ancestors(checkpoints, session, newest, delta)), newest]


async def _write_anew(store: Store, parts: Sequence[_Part], checkpoints: Checkpoints) -> None:
    """Put other sessions in the place of those of a thread, with the checkpoints that stay, in one transaction."""
    drafts: list[tuple[_Part, Draft]] = []
    is_left = any(part.records for part in parts)
    for part in parts:
        if is_left and (part.records or part.address.namespace == ""):
            # As stored: links of the old sessions do not hold for the new ones.
            metadata = decode_object(part.session.info.metadata_text) | {layout.CALLS: layout.call_scope(part.session)}
            draft = Draft(store, None, metadata)
            await add_copies(checkpoints, part.session, draft, part.records)
            drafts.append((part, draft))
    async with store.atomic() as batch:
        # The thread's own session is the first of them; its deletion takes along the sessions linked to it.
        for part in reversed(parts):
            batch.delete_session_tree(part.session, expected_revision=part.revision)
        main = None
        for part, draft in drafts:
            info = part.session.info
            session = batch.create_session(
                key=part.address.key, title=info.title, metadata=draft.metadata, cwd=info.cwd
            )
            main = draft.write(batch, session, main, part.address.namespace)


async def copy_thread(store: Store, *, source: str, target: str, checkpoints: Checkpoints) -> None:
    """Fork the sessions of a thread, and copy the checkpoints on other branches into the forks. One transaction."""
    await checkpoints.begin(store)
    for attempt in range(_RETRIES):
        parts = await layout.sessions_of_thread(store, source)
        if not parts:
            raise SessionNotFound(source)
        if await find_session(store, Address(target).key) is not None:
            raise InvalidArgument(f"thread {target!r} is there already; delete it first, or copy to another")
        forks: list[tuple[_Part, Draft]] = []
        for address, session in parts:
            place, revision = Address(target, address.namespace), session.revision
            metadata = place.metadata() | (await layout.numbers_of(session)).to_metadata()
            if session.metadata.get(layout.UNORDERED):
                metadata[layout.UNORDERED] = True
            draft = Draft(store, session, metadata)
            records = await _on_branches(session, draft, checkpoints)
            await add_copies(checkpoints, session, draft, records)
            forks.append((_Part(place, session, revision, records), draft))
        try:
            await _write_forks(store, forks)
        except _OVERTAKEN:
            if attempt + 1 == _RETRIES:
                raise
        except InvalidEntry:
            # Another copy of the same thread may have taken an id that was free.
            if not any([await draft.overtaken() for _, draft in forks]):
                raise
        else:
            return


async def _write_forks(store: Store, forks: Sequence[tuple[_Part, Draft]]) -> None:
    async with store.atomic() as batch:
        main = None
        for part, draft in forks:
            key, title = part.address.key, part.session.title
            seen = part.revision
            fork = batch.fork(part.session, key=key, title=title, metadata=draft.metadata, expected_revision=seen)
            main = draft.write(batch, fork, main, part.address.namespace)


async def _on_branches(session: Session, draft: Draft, checkpoints: Checkpoints) -> list[Record]:
    """Return the checkpoints of a session that its fork does not see, or of which it does not see all writes."""
    records = await checkpoints.all(session)
    writes = await layout.entries_of_writes(session, [record.entry_id for record in records])
    ids = {record.id: [record.entry_id, *(entry.id for entry in writes[record.entry_id])] for record in records}
    entries = await draft.get_entries([entry_id for record_ids in ids.values() for entry_id in record_ids])
    seen = {entry.id for entry in entries if entry is not None}
    return [record for record in records if not seen.issuperset(ids[record.id])]


# Listing of checkpoints, the largest id first, in pages

_LISTING_PAGE = 50
_MOST = 1000


class _Stream(Struct):
    """The checkpoints of one session: those that were read and are still to be returned, and where to go on."""

    address: Address
    session_id: str
    found: list[Record] = field(default_factory=list)
    after: str | None = None
    is_begun: bool = False
    is_read: bool = False
    seen: set[str] = field(default_factory=set)


class Listing(Struct):
    """One call of ``list``: which checkpoints it is for, how many are left of its limit, and how far it is."""

    checkpoints: Checkpoints
    values: Values
    address: Address | None
    has_namespace: bool
    filter: Mapping[str, object]
    before: str | None
    left: int | None
    streams: list[_Stream] | None = None

    async def next_page(self, store: Store) -> list[CheckpointTuple]:
        """Return the next checkpoints; none at the end."""
        await self.checkpoints.begin(store)
        if self.streams is None:
            self.streams = await self._opened(store)
        size = _LISTING_PAGE if self.left is None else max(0, min(_LISTING_PAGE, self.left))
        picks: list[tuple[_Stream, Record]] = []
        while len(picks) < size:
            for stream in self.streams:
                if not stream.found and not stream.is_read:
                    await self._read(store, stream, size - len(picks))
            full = [stream for stream in self.streams if stream.found]
            if not full:
                break
            newest = max(full, key=lambda stream: stream.found[0].id)
            picks.append((newest, newest.found.pop(0)))
        if self.left is not None:
            self.left -= len(picks)
        return await self._tuples(store, picks)

    async def _opened(self, store: Store) -> list[_Stream]:
        if self.address is None:
            return [_Stream(address, session.id) async for address, session in layout.all_sessions(store)]
        if self.has_namespace:
            session = await find_session(store, self.address.key)
            return [] if session is None else [_Stream(self.address, session.id)]
        sessions = await layout.sessions_of_thread(store, self.address.thread)
        return [_Stream(address, session.id) for address, session in sessions]

    async def _read(self, store: Store, stream: _Stream, wanted: int) -> None:
        session = await store.get_session(stream.session_id)
        if session is None:
            stream.is_read = True
            return
        if self.address is not None and self.address.checkpoint is not None:
            record = await self.checkpoints.find(session, self.address.checkpoint)
            stream.is_read = True
            stream.found = [record] if record is not None and self._is_asked(record) else []
            return
        if session.metadata.get(layout.UNORDERED):
            stream.is_read = True
            records = filter(self._is_asked, await self.checkpoints.all(session))
            stream.found = sorted(records, key=lambda record: record.id, reverse=True)
            return
        if not stream.is_begun and self.before is not None:
            record = await self.checkpoints.find(session, self.before)
            stream.after = None if record is None else record.entry_id
        stream.is_begun = True
        while not stream.found and not stream.is_read:
            limit = min(_MOST, max(wanted, 10 if self.filter else 1))
            page, stream.after = await self.checkpoints.page(session, after=stream.after, limit=limit)
            stream.is_read = stream.after is None
            stream.found = [record for record in page if self._is_asked(record)]

    def _is_asked(self, record: Record) -> bool:
        if self.before is not None and record.id >= self.before:
            return False
        if not self.filter:
            return True
        metadata = self.values.loaded(record.metadata)
        return isinstance(metadata, Mapping) and all(
            metadata.get(field) == value for field, value in self.filter.items()
        )

    async def _tuples(self, store: Store, picks: list[tuple[_Stream, Record]]) -> list[CheckpointTuple]:
        by_session: dict[str, list[int]] = {}
        for place, (stream, _) in enumerate(picks):
            by_session.setdefault(stream.session_id, []).append(place)
        tuples_at: dict[int, Any] = {}
        for session_id, places in by_session.items():
            session = await store.get_session(session_id)
            if session is None:
                continue
            records = [picks[place][1] for place in places]
            address = picks[places[0]][0].address
            tuples = await tuples_of(session, address, records, self.values, self.checkpoints.lines)
            tuples_at.update(zip(places, tuples, strict=True))
        return [tuples_at[place] for place in sorted(tuples_at)]


# The checkpointer

_P = ParamSpec("_P")
_Result = TypeVar("_Result")


def _blocking(
    work: Callable[Concatenate[FlueSaver, _P], Work[_Result]],
) -> Callable[Concatenate[FlueSaver, _P], _Result]:
    """Return the method that does the work which another one returns, and blocks meanwhile."""

    @wraps(work)
    def call(self: FlueSaver, /, *args: _P.args, **named: _P.kwargs) -> _Result:
        return self._access.run_blocking(work(self, *args, **named))

    return call


def _awaited(
    work: Callable[Concatenate[FlueSaver, _P], Work[_Result]],
) -> Callable[Concatenate[FlueSaver, _P], Coroutine[Any, Any, _Result]]:
    """Return the method that does the work which another one returns, to be awaited."""

    @wraps(work)
    async def call(self: FlueSaver, /, *args: _P.args, **named: _P.kwargs) -> _Result:
        return await self._access.run(work(self, *args, **named))

    return call


def _checkpoint_id(checkpoint: CheckpointTuple) -> str:
    return str(checkpoint.checkpoint["id"])


class FlueSaver(BaseCheckpointSaver[str]):
    """A LangGraph checkpointer on a store of ours: for `invoke` and `ainvoke`, in any event loop and thread.

    A thread is the session whose key is its id; a namespace of a subgraph is a task session of that. The newest
    checkpoint of a thread is the one at the session's leaf. Values are stored once for each version, and the messages
    of the channel ``messages`` once, as messages of ours.

    ``target`` is a path, a URL or an open store. ``serde`` is the framework's serializer, by default its own, with
    which nothing is read that would call anything but a class of values (`CorruptStore`). With
    ``owner``, a thread belongs to the first writer that puts a checkpoint into it: every other one gets `ThreadOwned`.
    """

    def __init__(self, target: Target, *, serde: SerializerProtocol | None = None, owner: str | None = None) -> None:
        """Note which store is meant; it is opened when it is first used. Raises `InvalidArgument`. O(1)."""
        super().__init__(serde=serde)
        if owner is not None and (not isinstance(owner, str) or not owner):
            raise InvalidArgument(f"owner: should be the name of a writer, not {shown(owner)}")
        self._access = Access(target)
        self._checkpoints = Checkpoints()
        self._owner = owner

    @classmethod
    def from_conn_string(
        cls, conn_string: Target, *, serde: SerializerProtocol | None = None, owner: str | None = None
    ) -> FlueSaver:
        """Return a saver, for ``with``, for ``async with`` or for neither. Raises `InvalidArgument`. O(1)."""
        return cls(conn_string, serde=serde, owner=owner)

    def __enter__(self) -> FlueSaver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> FlueSaver:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def close(self) -> None:
        """Let go of the store, which is closed with its last user. A store that was given open stays open."""
        self._access.close()

    async def aclose(self) -> None:
        """Close it as `close` does."""
        await self._access.aclose()

    def setup(self) -> None:
        """Do nothing: the store is made when it is first used. For programs that call it."""

    async def asetup(self) -> None:
        """Do nothing, as `setup`."""

    # reading

    def _get_tuple(self, config: RunnableConfig) -> Work[CheckpointTuple | None]:
        """Return a checkpoint with the writes at it; the newest of its namespace if none is named; None without one.

        Raises `InvalidArgument` for a configuration without a thread. O(its values), three reads.
        """
        address = layout.address_of(config)

        async def get(store: Store) -> CheckpointTuple | None:
            await self._checkpoints.begin(store)
            session = await find_session(store, address.key)
            if session is None:
                return None
            id = address.checkpoint
            record = None if id is None else await self._checkpoints.find(session, id)
            if record is None:
                record = await self._checkpoints.newest(session, self._values)
            if record is None or id not in (None, record.id):
                return None
            (checkpoint,) = await tuples_of(session, address, [record], self._values, self._checkpoints.lines)
            return checkpoint._replace(config=config) if id is not None else checkpoint

        return get

    get_tuple = _blocking(_get_tuple)
    aget_tuple = _awaited(_get_tuple)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the framework's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first: of a thread or a namespace of it, of all threads where none is named.

        ``filter`` names fields of their metadata and their values, ``before`` a checkpoint that they are older than.
        Read in pages: O(checkpoints that are yielded), and O(checkpoints) with a filter.
        """
        listing = self._listing(config, filter, before, limit)
        while page := self._access.run_blocking(listing.next_page):
            yield from page

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the framework's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield the checkpoints that `list` does."""
        listing = self._listing(config, filter, before, limit)
        while page := await self._access.run(listing.next_page):
            for checkpoint in page:
                yield checkpoint

    def _delta_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Work[Mapping[str, DeltaChannelHistory]]:
        """Return, for each channel, the writes on the way to a checkpoint, and the last value stored before them.

        O(checkpoints back to that value).
        """
        return partial(
            delta_history,
            checkpoints=self._checkpoints,
            values=self._values,
            address=layout.address_of(config),
            channels=tuple(channels),
        )

    get_delta_channel_history = _blocking(_delta_history)
    aget_delta_channel_history = _awaited(_delta_history)

    # writing

    def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Work[RunnableConfig]:
        """Store a checkpoint below the one that the configuration names, and return where it is.

        One transaction. Raises `ThreadOwned`, and the serializer's errors. O(new values in it).
        """
        address = layout.address_of(config)
        put = Put(checkpoint, get_checkpoint_metadata(config, metadata), address.checkpoint, new_versions)

        async def work(store: Store) -> RunnableConfig:
            await self._checkpoints.put(store, address, put, self._values, self._owner)
            return address.at(checkpoint["id"])

        return work

    put = _blocking(_put)
    aput = _awaited(_put)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task at the checkpoint that the configuration names.

        Its earlier writes there stay, errors and interrupts apart. One transaction. Raises as `put`. O(size).
        """
        if writes:
            self._access.run_blocking(self._put_writes(config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store writes as `put_writes` does."""
        if writes:
            await self._access.run(self._put_writes(config, writes, task_id, task_path))

    def get_next_version(self, current: str | int | float | None, channel: None = None) -> str:  # type: ignore[override]
        """Return the version of a channel that follows another, in the form that the framework's savers have. O(1)."""
        number = 0 if current is None else current if isinstance(current, int) else int(str(current).partition(".")[0])
        return f"{number + 1:032}"

    def _delete_thread(self, thread_id: str) -> Work[None]:
        """Delete a thread with all namespaces; its cost stays in the ledger, and copies of it stay whole."""
        return partial(delete_thread, thread=str(thread_id))

    delete_thread = _blocking(_delete_thread)
    adelete_thread = _awaited(_delete_thread)

    def _delete_for_runs(self, run_ids: Sequence[str]) -> Work[None]:
        """Delete the checkpoints of runs, with the writes at them, in whichever thread. O(checkpoints of the store)."""
        return partial(delete_runs, runs=frozenset(run_ids), checkpoints=self._checkpoints, values=self._values)

    delete_for_runs = _blocking(_delete_for_runs)
    adelete_for_runs = _awaited(_delete_for_runs)

    def _copy_thread(self, source_thread_id: str, target_thread_id: str) -> Work[None]:
        """Copy a thread by forking it: nothing on the way to its newest checkpoint is stored again.

        Raises `SessionNotFound` without a source, `InvalidArgument` if the target is there. O(branches).
        """
        source, target = str(source_thread_id), str(target_thread_id)
        return partial(copy_thread, source=source, target=target, checkpoints=self._checkpoints)

    copy_thread = _blocking(_copy_thread)
    acopy_thread = _awaited(_copy_thread)

    def _prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> Work[None]:
        """Delete all but the newest checkpoint of each namespace, or with ``strategy="delete"`` the threads.

        Checkpoints that the newest needs for the value of a delta channel stay. Raises `InvalidArgument`. O(those that
        stay).
        """
        if strategy not in ("keep_latest", "delete"):
            raise InvalidArgument(f"strategy: should be 'keep_latest' or 'delete', not {shown(strategy)}")
        return partial(
            prune,
            threads=[str(thread_id) for thread_id in thread_ids],
            keep_latest=strategy == "keep_latest",
            checkpoints=self._checkpoints,
            values=self._values,
        )

    prune = _blocking(_prune)
    aprune = _awaited(_prune)

    def import_from(self, source: BaseCheckpointSaver[Any]) -> int:
        """Put every checkpoint of another checkpointer here, oldest first, and return how many were new.

        Their writes come along, in their order. Checkpoints that are here already stay as they are. O(checkpoints).
        """
        ordered = sorted(source.list(None), key=_checkpoint_id)
        return sum(self._access.run_blocking(partial(self._import, imported)) for imported in ordered)

    async def aimport_from(self, source: BaseCheckpointSaver[Any]) -> int:
        """Import as `import_from` does, with the asynchronous calls of both."""
        ordered = sorted([imported async for imported in source.alist(None)], key=_checkpoint_id)
        return sum([await self._access.run(partial(self._import, imported)) for imported in ordered])

    async def _import(self, imported: CheckpointTuple, store: Store) -> bool:
        """Put a checkpoint of another checkpointer here, with its writes, and return whether it is new."""
        if await self._get_tuple(imported.config)(store) is not None:
            return False
        parent = None if imported.parent_config is None else await self._get_tuple(imported.parent_config)(store)
        below, new_versions = layout.place_of(imported, parent)
        await self._put(below, imported.checkpoint, imported.metadata, new_versions)(store)
        for task_id, task_path, writes in layout.tasks_of(imported):
            await self._put_writes(imported.config, writes, task_id, task_path)(store)
        return True

    def _release(self, thread_id: str) -> Work[None]:
        """Let the next writer have a thread, whoever owns it (see ``owner``). A thread that is not there is none."""
        return partial(release, thread=str(thread_id))

    release = _blocking(_release)
    arelease = _awaited(_release)

    # for both kinds of calls

    @property
    def _values(self) -> Values:
        return Values(self.serde, is_default=self.serde is BaseCheckpointSaver.serde)

    def _listing(
        self,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,  # noqa: A002 - the framework's name
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Listing:
        namespace = None if config is None else layout.configurable_of(config).get("checkpoint_ns")
        return Listing(
            self._checkpoints,
            self._values,
            None if config is None else layout.address_of(config),
            has_namespace=namespace is not None,
            filter=filter or {},
            before=None if before is None else str(layout.configurable_of(before).get("checkpoint_id") or "") or None,
            left=limit,
        )

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Work[None]:
        address = layout.address_of(config)
        if address.checkpoint is None:
            raise InvalidArgument("config: names no checkpoint; writes belong to one ('checkpoint_id')")
        return partial(
            self._checkpoints.put_writes,
            address=address,
            writes=list(writes),
            task=(task_id, task_path),
            values=self._values,
            owner=self._owner,
        )
