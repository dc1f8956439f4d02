"""Reading conversations: their records, the histories of their entries, and single entries."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from pydantic_ai.conversation_store import ConversationEntry

from flue_py.adapters.keys import key_of
from flue_py.adapters.pydantic_ai.records import Current, kept_in, record_of, scope_of
from flue_py.adapters.pydantic_ai.stored import FIELD, Group, beside, groups_of, messages_of
from flue_py.core.entries import Entry
from flue_py.core.sessions import SessionInfo
from flue_py.errors import EntryNotFound, SessionNotFound
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.store.collector import WORTH_HOLDING, collector_held

_PAGE = 200
_SPARE = 8


async def session_of(store: Store, conversation_id: str) -> Session | None:
    """Return the session of a conversation: the one with that id, else the one with that key in no scope."""
    key = key_of(conversation_id)
    found = await store.get_session(key) if key else None
    if found is not None:
        return found
    info = await store.backend.get_session_by_key(key, "")
    return None if info is None else await store.get_session(info.id)


async def current_of(store: Store, conversation_id: str) -> Current | None:
    """Return a conversation as it is stored, or None. Two point reads."""
    session = await session_of(store, conversation_id)
    return None if session is None else await _with_record(store, session.info)


async def _with_record(store: Store, info: SessionInfo) -> Current | None:
    if info.leaf_id is None or _says_all(info):
        return Current(record_of(info, None), info)
    try:
        leaf = await store.backend.get_entry(info.ref, info.leaf_id)
    except SessionNotFound:
        return None
    # It is gone, or no longer its leaf, where somebody has deleted it and made another in the meantime.
    return None if leaf is None else Current(record_of(info, leaf), info)


def _says_all(info: SessionInfo) -> bool:
    """Return whether the metadata have the state at the leaf, whose id is that of its message's entry."""
    kept = kept_in(info)
    return kept is not None and "state" in kept and kept.get("leaf") == info.leaf_id and not _is_made(info.leaf_id)


def _is_made(leaf_id: str | None) -> bool:
    return leaf_id is not None and leaf_id.startswith("sha256:")


async def records(store: Store, scope: str | None, limit: int | None) -> list[Current]:
    """Return the conversations that this adapter has written, newest first, at most ``limit`` of them."""
    found: list[Current] = []
    cursor = None
    where = None if scope is None else scope_of(scope)
    size = _PAGE if limit is None else min(_PAGE, limit + _SPARE)
    while limit is None or len(found) < limit:
        page = await store.list_sessions(scope=where, order_by="updated", limit=size, cursor=cursor)
        for info in page.sessions:
            if FIELD not in info.metadata_text or kept_in(info) is None:
                continue
            current = await _with_record(store, info)
            if current is not None and (scope is None or current.record.scope == scope):
                found.append(current)
            if limit is not None and len(found) == limit:
                break
        cursor = page.next_cursor
        if cursor is None:
            break
    return sorted(found, key=lambda each: each.record.updated_at, reverse=True)


async def history(store: Store, head_id: str, limit: int | None, hint: str | None) -> list[ConversationEntry]:
    """Return the entries up to one, or the last ``limit``. ``hint`` is a session that may see it.

    Raises `EntryNotFound`.
    """
    key = key_of(head_id)
    if hint is not None:
        session = await store.get_session(hint)
        if session is not None:
            with suppress(EntryNotFound, SessionNotFound):
                return await _path_to(session, key, limit)
    session = await session_that_sees(store, key, None)
    if session is None:
        raise EntryNotFound("", head_id, detail=f"no entry {head_id!r} is stored; its conversation may be deleted")
    return await _path_to(session, key, limit)


async def _path_to(session: Session, key: str, limit: int | None) -> list[ConversationEntry]:
    if limit is None:
        with collector_held(WORTH_HOLDING):
            return conversation_entries(groups_of(await session.get_active_path(leaf=key)))
    asked = limit + _SPARE
    while True:
        path = await session.get_active_path(leaf=key, limit=asked)
        groups = groups_of(path)
        if len(groups) > limit or not path or path[0].parent_id is None:
            return conversation_entries(groups, limit)
        asked *= 2


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
