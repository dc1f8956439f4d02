"""Reading conversations: their records, the histories of their entries, and single entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from pydantic_ai.conversation_store import ConversationEntry, ConversationRecord
from pydantic_ai.messages import ModelRequest

from flue_py.adapters.keys import key_of
from flue_py.adapters.pydantic_ai.records import Current, kept_in, record_of, scope_of
from flue_py.adapters.pydantic_ai.stored import FIELD, Group, beside, groups_of, messages_of
from flue_py.adapters.shown import is_plain
from flue_py.collector import WORTH_HOLDING, collector_held
from flue_py.core.entries import Entry
from flue_py.core.jsontext import JsonObject
from flue_py.core.sessions import SessionInfo
from flue_py.errors import EntryNotFound, SessionNotFound
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

Known: TypeAlias = Callable[[SessionInfo], "Current | None"]
"""Returns a conversation as it was seen last."""

_PAGE = 200
_SPARE = 4
_NOTHING = ModelRequest(parts=[])


async def session_of(store: Store, conversation_id: str) -> Session | None:
    """Return the session of a conversation: the one with that id, else the one with that key in no scope."""
    key = key_of(conversation_id)
    found = await store.get_session(key) if key else None
    if found is not None:
        return found
    info = await store.backend.get_session_by_key(key, store.scope or "")
    return None if info is None else await store.get_session(info.id)


async def current_of(store: Store, conversation_id: str, known: Current | None = None) -> Current | None:
    """Return a conversation as it is stored, or None. Two point reads; one where it is as ``known``."""
    session = await session_of(store, conversation_id)
    return None if session is None else await _with_record(store, session.info, session, known)


async def _with_record(
    store: Store, info: SessionInfo, session: Session | None = None, known: Current | None = None
) -> Current | None:
    if known is not None and _is_known(known, info):
        # Whoever keeps it copies it before it is handed out.
        return Current(known.record, info, session or known.session)
    kept = kept_in(info)
    if info.leaf_id is None or _says_all(info, kept):
        return Current(record_of(info, None, kept), info, session)
    try:
        leaf = await store.backend.get_entry(info.ref, info.leaf_id)
    except SessionNotFound:
        return None
    # It is gone, or no longer its leaf, where somebody has deleted it and made another in the meantime.
    return None if leaf is None else Current(record_of(info, leaf, kept), info, session)


async def _with_records(store: Store, infos: Sequence[SessionInfo], known: Known) -> list[Current]:
    """Return those of some conversations that are still there. One read for the leaves of all that have changed."""
    seen = {info.id: current for info in infos if (current := known(info)) is not None}
    asked = [info for info in infos if info.leaf_id is not None and not _is_known(seen.get(info.id), info)]
    leaves = await store.backend.read_leaves([info.ref for info in asked]) if asked else []
    leaf_of = {info.id: leaf for info, leaf in zip(asked, leaves, strict=True)}
    found: list[Current] = []
    for info in infos:
        leaf = leaf_of.get(info.id)
        if leaf is not None and leaf.id == info.leaf_id:
            found.append(Current(record_of(info, leaf, kept_in(info)), info))
        elif (current := await _with_record(store, info, None, seen.get(info.id))) is not None:
            found.append(current)
    return found


def _is_known(known: Current | None, info: SessionInfo) -> bool:
    """Return whether nothing of a session has changed since it was seen, its leaf included."""
    return known is not None and (info.session_key, info.id, info.revision, info.leaf_id) == (
        known.info.session_key,
        known.info.id,
        known.info.revision,
        known.info.leaf_id,
    )


def _says_all(info: SessionInfo, kept: JsonObject | None) -> bool:
    """Return whether the metadata have the state at the leaf, whose id is that of its message's entry."""
    return kept is not None and "state" in kept and kept.get("leaf") == info.leaf_id and not _is_made(info.leaf_id)


def _is_made(leaf_id: str | None) -> bool:
    return leaf_id is not None and leaf_id.startswith("sha256:")


async def records(store: Store, scope: str | None, limit: int | None, known: Known) -> list[Current]:
    """Return the conversations that this adapter has written, newest first, at most ``limit`` of them.

    Nothing but the session is read of one that has not changed since it was ``known``.
    """
    found: list[Current] = []
    cursor = None
    where = None if scope is None else scope_of(store, scope)
    size = _PAGE if limit is None else min(_PAGE, limit + _SPARE)
    while limit is None or len(found) < limit:
        page = await store.list_sessions(scope=where, order_by="updated", limit=size, cursor=cursor)
        ours = [info for info in page.sessions if FIELD in info.metadata_text and kept_in(info) is not None]
        while ours and (limit is None or len(found) < limit):
            count = len(ours) if limit is None else limit - len(found)
            some, ours = ours[:count], ours[count:]
            read = await _with_records(store, some, known)
            found += [each for each in read if scope is None or each.record.scope == scope]
        cursor = page.next_cursor
        if cursor is None:
            break
    return sorted(found, key=lambda each: each.record.updated_at, reverse=True)


class Kept(NamedTuple):
    """What a branch or a fork keeps: so many messages, or those up to an entry."""

    first: int | None
    last: str | None


def kept(at: int | None, from_entry: str | None) -> Kept | None:
    """Return what is kept of a history; None where that is all of it, or cannot be said."""
    return None if (at is None) == (from_entry is None) else Kept(at, from_entry)


async def history(
    store: Store, head_id: str, limit: int | None, known: Current | None, kept: Kept | None = None
) -> list[ConversationEntry]:
    """Return the entries up to one, or the last ``limit``. ``known`` is a conversation that may have it.

    With ``kept``, what a branch or a fork needs of them: messages that it does not keep are empty, and where it names
    an entry, those between that and the last may be left out. Raises `EntryNotFound`.
    """
    key = key_of(head_id)
    session = None if known is None else known.session
    if known is not None and session is not None:
        with suppress(EntryNotFound, SessionNotFound):
            shorter = await _path_by(session, known.record, key, kept)
            return await _path_to(session, key, limit, kept) if shorter is None else shorter
    session = await session_that_sees(store, key, None)
    if session is None:
        raise EntryNotFound("", head_id, detail=f"no entry {head_id!r} is stored; its conversation may be deleted")
    return await _path_to(session, key, limit, kept)


async def _path_to(session: Session, key: str, limit: int | None, kept: Kept | None) -> list[ConversationEntry]:
    if limit is None:
        with collector_held(WORTH_HOLDING):
            groups = groups_of(await session.get_active_path(leaf=key))
            count = None if kept is None else kept.first
            whole = groups if count is None or count < 0 else groups[:count]
            return [*conversation_entries(whole), *_empty_entries(groups[len(whole) :], whole)]
    asked = limit + _SPARE
    while True:
        path = await session.get_active_path(leaf=key, limit=asked)
        if not all(map(is_plain, path)):
            return (await _path_to(session, key, None, kept))[-limit:]
        groups = groups_of(path)
        if len(groups) > limit or not path or path[0].parent_id is None:
            return conversation_entries(groups, limit)
        asked *= 2


async def _path_by(
    session: Session, record: ConversationRecord, head: str, kept: Kept | None
) -> list[ConversationEntry] | None:
    """Return the entries up to the one that is kept, then the head; None where it takes the whole history to tell."""
    if kept is None or kept.last is None:
        return None
    key = key_of(kept.last)
    last, tip = await session.get_entries([key, head])
    if last is None or tip is None or beside(last) is None:
        return None
    for each in (head, *map(key_of, record.branches)):
        if await session.is_ancestor(key, of=each):
            found = groups_of(await session.get_active_path(leaf=key))
            end = [] if key == head else _empty_entries([Group([tip], beside(tip))], found)
            return [*conversation_entries(found), *end]
    return None


def _empty_entries(groups: Sequence[Group], before: Sequence[Group]) -> list[ConversationEntry]:
    """Return entries of which only the ids count, for what is asked for and not kept."""
    ids = [before[-1].id if before else None, *(group.id for group in groups)]
    return [
        ConversationEntry(id=group.id, parent_id=parent, message=_NOTHING)
        for group, parent in zip(groups, ids, strict=False)
    ]


async def session_that_sees(store: Store, key: str, hint: str | None) -> Session | None:
    if hint is not None:
        session = await store.get_session(hint)
        if session is not None and await session.get_entry(key) is not None:
            return session
    found = await store.get_entry(key)
    if found is None:
        return None
    if found.session_id is not None:
        return await store.get_session(found.session_id)
    # Who added it is deleted, and forks have kept it: one of them is found by looking.
    cursor = None
    while True:
        page = await store.list_sessions(kind="fork", order_by="created", limit=_PAGE, cursor=cursor)
        for info in page.sessions:
            session = await store.get_session(info.id)
            if session is not None and await session.get_entry(key) is not None:
                return session
        cursor = page.next_cursor
        if cursor is None:
            return None


def conversation_entries(groups: Sequence[Group], limit: int | None = None) -> list[ConversationEntry]:
    """Return groups of entries as the framework's entries, each linked to the one before; or the last ``limit``."""
    ids = [None, *(group.id for group in groups)]
    start = 0 if limit is None else max(0, len(groups) - limit)
    return [
        ConversationEntry(id=group.id, parent_id=parent, message=message)
        for group, parent, message in zip(groups[start:], ids[start:], messages_of(groups[start:]), strict=False)
    ]


async def entry(store: Store, entry_id: str) -> ConversationEntry:
    """Return one entry. Raises `EntryNotFound`."""
    last = await store.get_entry(key_of(entry_id))
    if last is None:
        raise EntryNotFound("", entry_id, detail=f"no entry {entry_id!r} is stored; its conversation may be deleted")
    near = beside(last)
    count = 1 if near is None else max(1, int(str(near.get("count", 1))))
    entries = [last]
    while len(entries) < count:
        entries.insert(0, await _parent_of(store, entries[0]))
    before = None if entries[0].parent_id is None else await _parent_of(store, entries[0])
    group = Group(entries, near)
    parent = None if before is None else Group([before], beside(before)).id
    return ConversationEntry(id=group.id, parent_id=parent, message=messages_of([group])[0])


async def _parent_of(store: Store, child: Entry) -> Entry:
    found = None if child.parent_id is None else await store.get_entry(child.parent_id)
    if found is None:
        raise SessionNotFound(child.id, detail=f"the entry before {child.id!r} has been deleted meanwhile")
    return found
