"""The history of delta channels, whose value is what was written since the last one that was stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.adapters.langgraph.checkpoints import Checkpoints
from flue_py.adapters.langgraph.records import Record
from flue_py.adapters.langgraph.threads import Address, session_to_read
from flue_py.adapters.langgraph.values import Values
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langgraph.checkpoint.base import CheckpointTuple, DeltaChannelHistory, PendingWrite


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
    for each in await checkpoints.tuples(session, address, chain, values):
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
