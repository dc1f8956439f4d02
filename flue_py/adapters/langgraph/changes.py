"""Whole threads: deleted, copied, and written anew without some of their checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flue_py.adapters.langgraph.checkpoints import Checkpoints
from flue_py.adapters.langgraph.copying import Draft, add_copies
from flue_py.adapters.langgraph.history import ancestors
from flue_py.adapters.langgraph.numbers import numbers_of
from flue_py.adapters.langgraph.records import Record
from flue_py.adapters.langgraph.threads import (
    CALLS,
    UNORDERED,
    Address,
    all_sessions,
    call_scope,
    session_to_read,
    sessions_of_thread,
)
from flue_py.adapters.langgraph.values import Values
from flue_py.adapters.langgraph.writes import write_ids
from flue_py.core.jsontext import decode_object
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

_RETRIES = 2000
_OVERTAKEN = (LeafConflict, RevisionConflict, SessionExists, SessionNotFound)
"""What is raised where somebody else has changed a thread since it was read."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A namespace of a thread that is written anew: its session, and the checkpoints that stay, oldest first."""

    address: Address
    session: Session
    revision: int
    records: list[Record]


@dataclass(frozen=True, slots=True)
class _Fork:
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
    store: Store,
    *,
    threads: Sequence[str],
    keep_latest: bool,
    checkpoints: Checkpoints,
    values: Values,
) -> None:
    """Keep the newest checkpoint of each namespace of the threads, or nothing."""

    async def left(session: Session) -> list[Record]:
        return await _newest_and_needed(checkpoints, session, values)

    for thread in threads:
        if keep_latest:
            await _keep(store, thread, left, checkpoints)
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


async def _newest_and_needed(checkpoints: Checkpoints, session: Session, values: Values) -> list[Record]:
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
            draft = await _forked(store, place, session)
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


async def _forked(store: Store, place: Address, session: Session) -> Draft:
    numbers = await numbers_of(session)
    metadata = place.metadata() | numbers.to_metadata()
    if session.metadata.get(UNORDERED):
        metadata[UNORDERED] = True
    return Draft(store, session, metadata)


async def _on_branches(session: Session, draft: Draft, checkpoints: Checkpoints) -> list[Record]:
    """Return the checkpoints of a session that its fork does not see, or of which it does not see all writes."""
    records = await checkpoints.all(session)
    writes = await write_ids(session, [record.entry_id for record in records])
    asked = [id for record in records for id in (record.entry_id, *writes[record.entry_id])]
    seen = {entry.id for entry in await draft.get_entries(asked) if entry is not None}
    return [record for record in records if not seen.issuperset((record.entry_id, *writes[record.entry_id]))]
