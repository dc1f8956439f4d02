"""How checkpoints and the writes at them are put into a session."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)

from flue_py.adapters.langgraph.by_hand import MESSAGES, begun_by_hand
from flue_py.adapters.langgraph.finding import Finding
from flue_py.adapters.langgraph.known import Known
from flue_py.adapters.langgraph.lines import Kept, Lines, NewLine, new_line, path_behind
from flue_py.adapters.langgraph.messages import are_messages
from flue_py.adapters.langgraph.numbers import numbers_of
from flue_py.adapters.langgraph.places import Desks, Place
from flue_py.adapters.langgraph.records import (
    CHECKPOINT,
    LINE,
    PUTS,
    VALUE,
    WRITES,
    Line,
    Record,
    entry_id,
    number_of_put,
    writes_id,
)
from flue_py.adapters.langgraph.threads import UNORDERED, Address, call_scope
from flue_py.adapters.langgraph.tuples import tuples_of
from flue_py.adapters.langgraph.values import Values
from flue_py.adapters.langgraph.writes import free_number
from flue_py.core.entries import NewEntry
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.errors import InvalidEntry, LeafConflict
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from langchain_core.messages import BaseMessage

_SMALL = 120
"""A value of so many characters is written again where it is the same: naming where it is would take as much."""
_NUMBERS = 512


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


class Checkpoints(Finding):
    """The checkpoints of all threads of a store, as one saver and its clones see them."""

    def __init__(self) -> None:
        super().__init__()
        self._desks = Desks()
        self._lines = Lines()
        self._free: Known[int] = Known(_NUMBERS)
        """The number of the next writes of a checkpoint."""

    async def tuples(
        self, session: Session, address: Address, records: Sequence[Record], values: Values
    ) -> list[CheckpointTuple]:
        """Return checkpoints with their values and the writes at them: a few reads, however many they are."""
        return await tuples_of(session, address, records, values, self._lines)

    async def put(self, store: Store, address: Address, put: Put, values: Values, owner: str | None) -> None:
        """Store a checkpoint. One transaction. Raises `ThreadOwned`, and what the serializer raises. O(what is new)."""
        await self._desks.write(store, address, owner, lambda place: self._put_into(place, put, values))

    async def _put_into(self, place: Place, put: Put, values: Values) -> None:
        await self._begin(place, put.parent, values)

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
                old = () if under is None else await self._lines.of(place, under, values)
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
