"""Whole threads: deleted, copied, and written anew without some of their checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flue_py.adapters.langgraph.checkpoints import Checkpoints, Put
from flue_py.adapters.langgraph.history import ancestors
from flue_py.adapters.langgraph.places import Live
from flue_py.adapters.langgraph.records import CHECKPOINT, WRITES, Record
from flue_py.adapters.langgraph.threads import (
    CALLS,
    Address,
    all_sessions,
    call_scope,
    session_to_read,
    sessions_of_thread,
)
from flue_py.adapters.langgraph.values import Values
from flue_py.core.jsontext import decode_object
from flue_py.errors import InvalidArgument, SessionNotFound
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class _Part:
    """A namespace of a thread that is written anew: its session, and the checkpoints that stay, oldest first."""

    address: Address
    session: Session
    records: list[Record]


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

    threads = {address.thread: None async for address, _ in all_sessions(store)}
    for thread in threads:
        parts = []
        is_changed = False
        for address, session in await sessions_of_thread(store, thread):
            records = await checkpoints.all(session)
            left = [record for record in records if stays(record)]
            is_changed = is_changed or len(left) < len(records)
            parts.append(_Part(address, session, left))
        if is_changed:
            await _write_anew(store, thread, parts, checkpoints, values)


async def prune(
    store: Store,
    *,
    threads: Sequence[str],
    keep_latest: bool,
    checkpoints: Checkpoints,
    values: Values,
) -> None:
    """Keep the newest checkpoint of each namespace of the threads, or nothing."""
    for thread in threads:
        if not keep_latest:
            await delete_thread(store, thread=thread)
            continue
        parts = []
        is_changed = False
        for address, session in await sessions_of_thread(store, thread):
            left = await _newest_and_needed(checkpoints, session, values)
            is_changed = is_changed or len(await checkpoints.all(session)) > len(left)
            parts.append(_Part(address, session, left))
        if is_changed:
            await _write_anew(store, thread, parts, checkpoints, values)


async def _newest_and_needed(checkpoints: Checkpoints, session: Session, values: Values) -> list[Record]:
    newest = await checkpoints.newest(session, values)
    if newest is None:
        return []
    metadata = values.loaded(newest.metadata)
    counters = metadata.get("counters_since_delta_snapshot") if isinstance(metadata, dict) else None
    # A delta channel without a value of its own is made of what was written since its last one.
    delta = [channel for channel in counters or () if channel not in newest.values]
    return [*reversed(await ancestors(checkpoints, session, newest, delta)), newest]


async def _write_anew(
    store: Store, thread: str, parts: Sequence[_Part], checkpoints: Checkpoints, values: Values
) -> None:
    """Put other sessions in the place of those of a thread, with the checkpoints that stay: all or nothing."""
    made: list[tuple[_Part, Session]] = []
    try:
        for part in parts:
            if part.records or part.address.namespace == "":
                # As stored: what links say of the old sessions is not so of the new ones.
                metadata = decode_object(part.session.info.metadata_text) | {CALLS: call_scope(part.session)}
                new = await store.create_session(title=part.session.title, metadata=metadata)
                made.append((part, new))
                await _add(store, part.session, new, part.address, part.records, checkpoints, values)
        if any(part.records for part in parts):
            await _take_places(store, thread, made)
        else:
            await delete_thread(store, thread=thread)
    finally:
        for _, new in made:
            await store.delete_session_tree(new.ref)


async def _take_places(store: Store, thread: str, made: Sequence[tuple[_Part, Session]]) -> None:
    main = None
    for _, new in made:
        await new.refresh()
    async with store.atomic() as batch:
        for part, _ in made:
            if part.address.namespace == "":
                batch.delete_session_tree(part.session, expected_revision=part.session.revision)
        for part, new in made:
            fork = batch.fork(
                new, key=part.address.key, title=part.session.title, metadata=decode_object(new.info.metadata_text)
            )
            if main is None:
                main = fork
            else:
                batch.link_task(main, fork, task_id=part.address.namespace)


async def _add(
    store: Store,
    source: Session,
    target: Session,
    address: Address,
    records: Sequence[Record],
    checkpoints: Checkpoints,
    values: Values,
) -> None:
    """Put checkpoints of one session into another, with the writes at them."""
    before: Record | None = None
    place = Live(store, target)
    for record in records:
        (found,) = await checkpoints.tuples(source, address, [record], values)
        versions = found.checkpoint["channel_versions"]
        # What was stored once for two checkpoints in a row is so again.
        new = {
            channel: version
            for channel, version in versions.items()
            if before is None or before.values.get(channel) != record.values.get(channel)
        }
        put = Put(found.checkpoint, found.metadata, record.parent, new, is_copy=True)
        await checkpoints.put_into(store, place, put, values)
        for data in await checkpoints.writes_at(source, record):
            await checkpoints.put_writes_into(place, record.id, data)
        before = record


async def copy_thread(store: Store, *, source: str, target: str, checkpoints: Checkpoints, values: Values) -> None:
    """Fork the sessions of a thread, and copy into the forks what is on other branches of it."""
    parts = await sessions_of_thread(store, source)
    if not parts:
        raise SessionNotFound(source)
    if await session_to_read(store, Address(target)) is not None:
        raise InvalidArgument(f"thread {target!r} is there already; delete it first, or copy to another")
    forks: list[tuple[Address, Session, Session]] = []
    async with store.atomic() as batch:
        for address, session in parts:
            place = Address(target, address.namespace)
            metadata = place.metadata()
            fork = batch.fork(session, key=place.key, title=session.title, metadata=metadata)
            if forks:
                batch.link_task(forks[0][2], fork, task_id=address.namespace)
            forks.append((address, session, fork))
    for address, session, fork in forks:
        await fork.refresh()
        await _add_branches(store, session, fork, address, checkpoints, values)


async def _add_branches(
    store: Store,
    source: Session,
    fork: Session,
    address: Address,
    checkpoints: Checkpoints,
    values: Values,
) -> None:
    seen = await _ids(fork, CHECKPOINT) | await _ids(fork, WRITES)
    records = await checkpoints.all(source)
    writes = await checkpoints.write_ids(source, [record.entry_id for record in records])
    missing = [
        record for record in records if record.entry_id not in seen or not seen.issuperset(writes[record.entry_id])
    ]
    await _add(store, source, fork, address, missing, checkpoints, values)


async def _ids(session: Session, kind: str) -> set[str]:
    found: set[str] = set()
    after = None
    while True:
        page = await session.entries(kind=kind, after=after, limit=1000)
        found.update(entry.id for entry in page)
        if len(page) < 1000:
            return found
        after = page[-1].id
