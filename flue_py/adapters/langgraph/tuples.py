"""Tuples of the framework, made of checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple, PendingWrite

from flue_py.adapters.langgraph.messages import fresh
from flue_py.adapters.langgraph.records import LINE, Line, Record
from flue_py.adapters.langgraph.writes import applied, entries_of_writes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flue_py.adapters.langgraph.lines import Lines
    from flue_py.adapters.langgraph.threads import Address
    from flue_py.adapters.langgraph.values import Values
    from flue_py.core.jsontext import JsonValue
    from flue_py.sessions.session import Session

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
