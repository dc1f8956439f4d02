"""Reading and writing the checkpoints of a thread, whole threads, and listings of checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
)
from msgspec import Struct, field
from msgspec.structs import replace

from flue_py.adapters.langgraph.entries import (
    CALLS,
    CHECKPOINT,
    LINE,
    MESSAGES,
    PUTS,
    UNORDERED,
    VALUE,
    WINDOW,
    WRITES,
    Address,
    Finding,
    Kept,
    Known,
    Line,
    Lines,
    NewLine,
    Place,
    Record,
    Values,
    address_of,
    all_sessions,
    are_messages,
    begun_by_hand,
    call_scope,
    changed_line,
    entries_of,
    entry_id,
    fresh,
    new_line,
    number_of_put,
    numbers_of,
    path_behind,
    session_to_read,
    session_to_write,
    sessions_of_thread,
    writes_id,
)
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.json import Frozen, JsonObject, JsonValue, decode_object, encode_json
from flue_py.errors import (
    InvalidArgument,
    InvalidEntry,
    LeafConflict,
    RevisionConflict,
    SessionExists,
    SessionNotFound,
)
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import RunnableConfig

    from flue_py.core.sessions import OnConflict
    from flue_py.sessions.batch import Atomic


# The target of writes: a session as last read or written

_PLACES = 256
_RETRIES = 2000
"""Whoever has to try again was overtaken by one who is done, so of many at once each has its turn."""


class Live:
    """A session of a store. What was written by others since it was read is a conflict."""

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
    """Where one writer at a time works on a session, and what the last one left."""

    def __init__(self, store: Store) -> None:
        self.turn = store.backend.waiting.turn()
        self.place: Live | None = None


class Desks:
    """The sessions that a process writes to. Its threads and tasks take turns, so that they meet no conflict."""

    def __init__(self) -> None:
        self._desks: Known[_Desk] = Known(_PLACES)

    async def write(
        self, store: Store, address: Address, owner: str | None, work: Callable[[Place], Awaitable[None]]
    ) -> None:
        """Call ``work`` with the session of an address; again, with the session read anew, where others have written.

        Raises `ThreadOwned`, and what ``work`` raises: `SessionNotFound`, too, where the address names a checkpoint of
        a thread that was deleted since this process wrote to it. Making that anew would bring a part of it back.
        """
        desk = self._desks.get_or_put(address.key, lambda: _Desk(store))
        async with desk.turn:
            for attempt in range(_RETRIES):
                place, desk.place = desk.place, None
                if place is None:
                    place = Live(store, await session_to_write(store, address, owner))
                try:
                    await work(place)
                except (LeafConflict, RevisionConflict) as error:
                    # It is no use again where it is about the leaf that was read.
                    is_seen = isinstance(error, LeafConflict) and error.actual == place.leaf_id
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
    session = await session_to_read(store, address)
    if session is None or address.checkpoint is None:
        return False
    most = (await numbers_of(session)).puts
    ids = [entry_id(address.checkpoint, number) for number in range(1, most + 1)]
    return any(await session.get_entries(ids))


# Task writes at a checkpoint, under ids derived from its id

Writes: TypeAlias = "list[tuple[str, str, int, str, JsonValue]]"
"""Path of the task, its id, number, channel and the stored value, in the order in which a graph applies them."""


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


# Checkpoint tuples of the framework

Below: TypeAlias = dict[str, tuple[Line, tuple[Any, ...]]]
"""The line of a checkpoint's child, by the checkpoint's id: it begins with that of the checkpoint."""


async def tuples_of(
    session: Session, address: Address, records: Sequence[Record], values: Values, lines: Lines
) -> list[CheckpointTuple]:
    """Return checkpoints with their values and the writes at them: a few reads, however many they are."""
    writes = await entries_of_writes(session, [record.entry_id for record in records])
    loaded = await _loaded(session, records)
    made = []
    below: Below = {}
    for record in records:
        kept = await _line(session, record, below, values, lines)
        channel_values = {
            channel: [fresh(message) for message, _ in kept]
            if stored == LINE
            else values.loaded(loaded[stored["at"]] if isinstance(stored, dict) and "at" in stored else stored)
            for channel, stored in record.values.items()
        }
        rest = cast("dict[str, Any]", values.loaded(record.checkpoint))
        checkpoint = {**rest, "id": record.id, "channel_values": channel_values}
        pending: list[PendingWrite] = [
            (task, channel, values.loaded(stored)) for _, task, _, channel, stored in applied(writes[record.entry_id])
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


async def _line(session: Session, record: Record, below: Below, values: Values, lines: Lines) -> tuple[Any, ...]:
    if LINE not in record.values.values():
        return ()
    child = below.get(record.id)
    if child is not None and child[0].epoch == record.line.epoch:
        kept = child[1][: record.line.count]
    else:
        kept = await lines.of(session, record, values)
    if record.parent is not None:
        below[record.parent] = (record.line, kept)
    return kept


async def _loaded(session: Session, records: Sequence[Record]) -> Mapping[JsonValue, JsonValue]:
    ids = {
        stored["at"]: None
        for record in records
        for stored in record.values.values()
        if isinstance(stored, dict) and "at" in stored
    }
    wanted = [str(id) for id in ids]
    found = await session.get_entries(wanted) if wanted else []
    return {id: None if entry is None else entry.data for id, entry in zip(wanted, found, strict=True)}


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
    """The entries that come before a checkpoint's own, the checkpoint with all that it says, and its messages."""

    entries: list[NewEntry]
    record: Record
    line: tuple[Kept, ...] | None = None


class Checkpoints(Finding):
    """The checkpoints of all threads of a store, as one saver and its clones see them."""

    def __init__(self) -> None:
        super().__init__()
        self._desks = Desks()
        self.lines = Lines()
        self._free: Known[int] = Known(_NUMBERS)
        """The number of the next writes of a checkpoint."""

    async def put(self, store: Store, address: Address, put: Put, values: Values, owner: str | None) -> None:
        """Store a checkpoint. One transaction. Raises `ThreadOwned`, and what the serializer raises. O(what is new)."""
        await self._desks.write(store, address, owner, lambda place: self._put_into(place, put, values))

    async def _put_into(self, place: Place, put: Put, values: Values) -> None:
        await self._begin(place, put.parent, values)

        async def filled(record: Record, under: Record | None, below: str | None) -> Filled:
            return await self._filled(place, put, record, under, below, values)

        record, line = await self.put_at(place, put.checkpoint["id"], put.parent, filled)
        if line is not None:
            self.lines.note(place, record.entry_id, line)

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
            noted = await numbers_of(place)
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

    async def _begin(self, place: Place, parent: str | None, values: Values) -> None:
        """Store the checkpoint that stands for what others have added, where it is the one to write below.

        Raises `LeafConflict` where they have added it since that one was read.
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
        added = await begun_by_hand(place, at_leaf, values)
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
            if channel == MESSAGES and values.may_show and are_messages(value):
                old = () if under is None else await self.lines.of(place, under, values)
                made = new_line(
                    old,
                    line,
                    value,
                    path=await path_behind(place, line, below),
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
        """Store what a task, its id and its path, has written at a checkpoint. One transaction. O(size)."""
        checkpoint = address.checkpoint
        assert checkpoint is not None
        stored: list[JsonValue] = [
            [WRITES_IDX_MAP.get(channel, number), channel, values.stored(value)]
            for number, (channel, value) in enumerate(writes)
        ]
        data: JsonObject = {"checkpoint": checkpoint, "task": task[0], "path": task[1], "writes": stored}

        async def work(place: Place) -> None:
            if await self._found(place, checkpoint) is None:
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
            noted = await numbers_of(place)
            if at in noted.writes and number > noted.writes[at]:
                await place.note(noted.with_writes(at, number).to_metadata())
            id = writes_id(at, number)
            made = NewEntry.custom(WRITES, data, id=id, parent_id=below)
            try:
                await place.add([made], id if moves else leaf)
            except InvalidEntry:
                if not await place.taken([id]):
                    raise
                number = await free_number(place, at, number)
                continue
            self._free.put((place.id, at), number + 1)
            if after is not None:
                self._above.put((place.id, id), after)
            return


# Copies of checkpoints for another session, in one transaction
#
# Nothing is deserialised: what only another program can read is copied like the rest.


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
        self.leaf_id = leaf

    async def taken(self, ids: Sequence[str]) -> frozenset[str]:
        found = {id for id in ids if id in self._entries}
        if self._base is not None:
            found |= await self._store.backend.taken_entry_ids(self._base.id, ids)
        return frozenset(found)

    async def note(self, fields: Mapping[str, JsonValue]) -> None:
        self.metadata.update(fields)

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
        if leaf != self.leaf_id:
            batch.move_leaf(made, self.leaf_id, expected_leaf=leaf)


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
                is_same=lambda entry, copy: (entry.payload, entry.extra) == (copy.payload, copy.extra),
                build=_built,
            )
            entries += made.entries
            line = made.line
        values = {channel: LINE if stored == LINE else values[channel] for channel, stored in record.values.items()}
        new = replace(new, checkpoint=record.checkpoint, metadata=record.metadata, versions=record.versions)
        return Filled(entries, replace(new, values=values, line=line))

    made, _ = await checkpoints.put_at(draft, record.id, record.parent, filled)
    origins[made.entry_id] = record
    for entry in (await entries_of_writes(source, [record.entry_id]))[record.entry_id]:
        await checkpoints.put_writes_into(draft, record.id, entry.fields)


def _built(message: Entry, gone: Sequence[Entry], id: str, parent: str | None) -> tuple[Entry, NewEntry]:
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
    found: dict[str, DeltaChannelHistory] = {channel: {"writes": []} for channel in channels}
    session = await session_to_read(store, address)
    if session is None or not channels:
        return found
    target = await (
        checkpoints.newest(session, values)
        if address.checkpoint is None
        else checkpoints.find(session, address.checkpoint)
    )
    if target is None:
        return found
    chain = await ancestors(checkpoints, session, target, channels)
    writes: dict[str, list[PendingWrite]] = {channel: [] for channel in channels}
    remaining = set(channels)
    for each in await tuples_of(session, address, chain, values, checkpoints.lines):
        _take(each, remaining, writes, found)
    for channel in channels:
        found[channel]["writes"] = writes[channel][::-1]
    return found


def _take(
    each: CheckpointTuple,
    remaining: set[str],
    writes: Mapping[str, list[PendingWrite]],
    found: Mapping[str, DeltaChannelHistory],
) -> None:
    # A value is what was there before the writes at its own checkpoint, so these follow it.
    for write in reversed(each.pending_writes or []):
        if write[1] in remaining:
            writes[write[1]].append(write)
    for channel in sorted(remaining):
        if channel in each.checkpoint["channel_values"]:
            found[channel]["seed"] = each.checkpoint["channel_values"][channel]
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
"""What is raised where somebody else has changed a thread since it was read."""


class _Part(Frozen):
    """A namespace of a thread that is written anew: its session, and the checkpoints that stay, oldest first."""

    address: Address
    session: Session
    revision: int
    records: list[Record]


class _Fork(Frozen):
    """A session that is copied, as it was at a revision, and the copy that is to be made."""

    place: Address
    session: Session
    revision: int
    draft: Draft


async def delete_thread(store: Store, *, thread: str) -> None:
    """Delete a thread with its namespaces. O(entries)."""
    session = await session_to_read(store, Address(thread))
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
        # What others have added behind the last checkpoint is of no run.
        added = [] if newest is None or newest.id in {record.id for record in records} else [newest]
        return [*filter(stays, records), *added]

    threads = {address.thread: None async for address, _ in all_sessions(store)}
    for thread in threads:
        records = [each for _, at in await sessions_of_thread(store, thread) for each in await checkpoints.all(at)]
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
    store: Store, thread: str, chosen: Callable[[Session], Awaitable[list[Record]]], checkpoints: Checkpoints
) -> None:
    """Write a thread anew with the chosen checkpoints of each of its sessions, unless these are all."""
    for attempt in range(_RETRIES):
        parts = []
        is_changed = False
        for address, session in await sessions_of_thread(store, thread):
            revision = session.revision
            left = await chosen(session)
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
    # A delta channel without a value of its own is made of what was written since its last one.
    delta = [channel for channel in counters or () if channel not in newest.values]
    return [*reversed(await ancestors(checkpoints, session, newest, delta)), newest]


async def _write_anew(store: Store, parts: Sequence[_Part], checkpoints: Checkpoints) -> None:
    """Put other sessions in the place of those of a thread, with the checkpoints that stay, in one transaction."""
    drafts: list[tuple[_Part, Draft]] = []
    is_left = any(part.records for part in parts)
    for part in parts:
        if is_left and (part.records or part.address.namespace == ""):
            # As stored: what links say of the old sessions is not so of the new ones.
            metadata = decode_object(part.session.info.metadata_text) | {CALLS: call_scope(part.session)}
            draft = Draft(store, None, metadata)
            await add_copies(checkpoints, part.session, draft, part.records)
            drafts.append((part, draft))
    async with store.atomic() as batch:
        # The thread's own session is the first of them; its deletion takes along what is linked to it.
        for part in reversed(parts):
            batch.delete_session_tree(part.session, expected_revision=part.revision)
        main = None
        for part, draft in drafts:
            info = part.session.info
            made = batch.create_session(key=part.address.key, title=info.title, metadata=draft.metadata, cwd=info.cwd)
            draft.write(batch, made)
            if main is None:
                main = made
            else:
                batch.link_task(main, made, task_id=part.address.namespace)


async def copy_thread(store: Store, *, source: str, target: str, checkpoints: Checkpoints) -> None:
    """Fork the sessions of a thread, and copy into the forks what is on other branches of it. One transaction."""
    for attempt in range(_RETRIES):
        parts = await sessions_of_thread(store, source)
        if not parts:
            raise SessionNotFound(source)
        if await session_to_read(store, Address(target)) is not None:
            raise InvalidArgument(f"thread {target!r} is there already; delete it first, or copy to another")
        forks = []
        for address, session in parts:
            place, revision = Address(target, address.namespace), session.revision
            metadata = place.metadata() | (await numbers_of(session)).to_metadata()
            if session.metadata.get(UNORDERED):
                metadata[UNORDERED] = True
            draft = Draft(store, session, metadata)
            await add_copies(checkpoints, session, draft, await _on_branches(session, draft, checkpoints))
            forks.append(_Fork(place, session, revision, draft))
        try:
            await _write_forks(store, forks)
        except _OVERTAKEN:
            if attempt + 1 == _RETRIES:
                raise
        except InvalidEntry:
            # Another copy of the same thread may have taken an id that was free.
            if not any([await fork.draft.overtaken() for fork in forks]):
                raise
        else:
            return


async def _write_forks(store: Store, forks: Sequence[_Fork]) -> None:
    async with store.atomic() as batch:
        main = None
        for fork in forks:
            made = batch.fork(
                fork.session,
                key=fork.place.key,
                title=fork.session.title,
                metadata=fork.draft.metadata,
                expected_revision=fork.revision,
            )
            fork.draft.write(batch, made)
            if main is None:
                main = made
            else:
                batch.link_task(main, made, task_id=fork.place.namespace)


async def _on_branches(session: Session, draft: Draft, checkpoints: Checkpoints) -> list[Record]:
    """Return the checkpoints of a session that its fork does not see, or of which it does not see all writes."""
    records = await checkpoints.all(session)
    writes = await entries_of_writes(session, [record.entry_id for record in records])
    ids = {record.id: [record.entry_id, *(entry.id for entry in writes[record.entry_id])] for record in records}
    entries = await draft.get_entries([entry_id for record_ids in ids.values() for entry_id in record_ids])
    seen = {entry.id for entry in entries if entry is not None}
    return [record for record in records if not seen.issuperset(ids[record.id])]


# Import from another checkpointer


def place_of(found: CheckpointTuple, parent: CheckpointTuple | None) -> tuple[RunnableConfig, ChannelVersions]:
    """Return the configuration to put a checkpoint with, and the versions that its parent does not have."""
    address = address_of(found.config)
    named: dict[str, Any] = {"thread_id": address.thread, "checkpoint_ns": address.namespace}
    if found.parent_config is not None:
        named["checkpoint_id"] = address_of(found.parent_config).checkpoint
    old = {} if parent is None else parent.checkpoint["channel_versions"]
    versions = found.checkpoint["channel_versions"].items()
    return {"configurable": named}, {channel: version for channel, version in versions if old.get(channel) != version}


def tasks_of(found: CheckpointTuple) -> Iterator[tuple[str, str, list[tuple[str, Any]]]]:
    """Yield the writes at a checkpoint, task by task, with a path that keeps the tasks in their order."""
    tasks: dict[str, list[tuple[str, Any]]] = {}
    for task_id, channel, value in found.pending_writes or []:
        tasks.setdefault(task_id, []).append((channel, value))
    for number, (task_id, writes) in enumerate(tasks.items()):
        yield task_id, f"{number:06}", writes


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


class Listing:
    """One call of ``list``: which checkpoints it is for, and how far it is."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        values: Values,
        address: Address | None,
        *,
        has_namespace: bool,
        filter: Mapping[str, object],  # noqa: A002 - the framework's name
        before: str | None,
        limit: int | None,
    ) -> None:
        self._checkpoints = checkpoints
        self._values = values
        self._address = address
        self._has_namespace = has_namespace
        self._filter = filter
        self._before = before
        self._left = limit
        self._streams: list[_Stream] | None = None

    async def next_page(self, store: Store) -> list[CheckpointTuple]:
        """Return the next checkpoints; none at the end."""
        if self._streams is None:
            self._streams = await self._opened(store)
        size = _LISTING_PAGE if self._left is None else max(0, min(_LISTING_PAGE, self._left))
        chosen: list[tuple[_Stream, Record]] = []
        while len(chosen) < size:
            for stream in self._streams:
                if not stream.found and not stream.is_read:
                    await self._read(store, stream, size - len(chosen))
            full = [stream for stream in self._streams if stream.found]
            if not full:
                break
            newest = max(full, key=lambda stream: stream.found[0].id)
            chosen.append((newest, newest.found.pop(0)))
        if self._left is not None:
            self._left -= len(chosen)
        return await self._tuples(store, chosen)

    async def _opened(self, store: Store) -> list[_Stream]:
        if self._address is None:
            return [_Stream(address, session.id) async for address, session in all_sessions(store)]
        if self._has_namespace:
            session = await session_to_read(store, self._address)
            return [] if session is None else [_Stream(self._address, session.id)]
        found = await sessions_of_thread(store, self._address.thread)
        return [_Stream(address, session.id) for address, session in found]

    async def _read(self, store: Store, stream: _Stream, wanted: int) -> None:
        session = await store.get_session(stream.session_id)
        if session is None:
            stream.is_read = True
            return
        if self._address is not None and self._address.checkpoint is not None:
            record = await self._checkpoints.find(session, self._address.checkpoint)
            stream.is_read = True
            stream.found = [record] if record is not None and self._is_asked(record) else []
            return
        if session.metadata.get(UNORDERED):
            stream.is_read = True
            records = filter(self._is_asked, await self._checkpoints.all(session))
            stream.found = sorted(records, key=lambda record: record.id, reverse=True)
            return
        if not stream.is_begun and self._before is not None:
            record = await self._checkpoints.find(session, self._before)
            stream.after = None if record is None else record.entry_id
        stream.is_begun = True
        while not stream.found and not stream.is_read:
            limit = min(_MOST, max(wanted, 10 if self._filter else 1))
            page = await self._checkpoints.page(session, after=stream.after, limit=limit)
            stream.is_read = len(page) < limit
            if page:
                stream.after = page[-1].entry_id
            stream.found = [record for record in page if self._is_asked(record)]

    def _is_asked(self, record: Record) -> bool:
        if self._before is not None and record.id >= self._before:
            return False
        if not self._filter:
            return True
        metadata = self._values.loaded(record.metadata)
        return isinstance(metadata, Mapping) and all(
            metadata.get(field) == value for field, value in self._filter.items()
        )

    async def _tuples(self, store: Store, chosen: list[tuple[_Stream, Record]]) -> list[CheckpointTuple]:
        by_session: dict[str, list[int]] = {}
        for place, (stream, _) in enumerate(chosen):
            by_session.setdefault(stream.session_id, []).append(place)
        made: dict[int, Any] = {}
        for session_id, places in by_session.items():
            session = await store.get_session(session_id)
            if session is None:
                continue
            records = [chosen[place][1] for place in places]
            address = chosen[places[0]][0].address
            tuples = await tuples_of(session, address, records, self._values, self._checkpoints.lines)
            made.update(zip(places, tuples, strict=True))
        return [made[place] for place in sorted(made)]
