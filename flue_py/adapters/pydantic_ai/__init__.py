"""pydantic-ai: a `ConversationStore` that keeps its conversations as sessions of ours.

Each message of a conversation is one or more entries: a request with several tool results is a result each. Fields that
our messages have no place for stand beside them, so that the framework's messages come back value for value, and
everything else of this library reads the conversation as any other session.
"""

from __future__ import annotations

from flue_py.adapters.common import without_pydantic_ai

try:
    import pydantic_ai.conversation_store  # noqa: F401 - older versions of the framework do not have it
except ImportError as error:
    raise without_pydantic_ai("pydantic-ai", "flue_py.adapters.pydantic_ai") from error

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from msgspec import structs
from pydantic_ai.agent import AgentRunResult
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse

from flue_py.adapters.common import Access, Target, is_plain, key_of, metadata_of
from flue_py.adapters.pydantic_ai_messages import (
    FIELD,
    Current,
    Group,
    ReadMessages,
    beside_responses,
    calls_of,
    conversation_of,
    copied,
    dumped_messages,
    entries_of,
    extra_of,
    groups_of,
    kept_in,
    metadata_with,
    record_of,
    scope_of,
    session_of,
    state_of,
)
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.json import Frozen, JsonObject, NamedTuple
from flue_py.core.sessions import SessionInfo
from flue_py.db.runner import WORTH_HOLDING, collector_held
from flue_py.errors import (
    CallConflict,
    EntryNotFound,
    InvalidArgument,
    InvalidEntry,
    LeafConflict,
    RevisionConflict,
    SessionExists,
    SessionNotFound,
    damaged_session,
    shown,
)
from flue_py.sessions.batch import Atomic
from flue_py.sessions.handle import listed_sessions
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from pydantic_ai.conversation import Conversation

__all__ = ["FlueConversationStore"]


# Reading conversations

Known: TypeAlias = Callable[[SessionInfo], "Current | None"]
"""Returns a conversation as it was seen last."""

_PAGE = 200
_SPARE = 4
_NOTHING = ModelRequest(parts=[])
_STATE = attrgetter("session_key", "id", "revision", "leaf_id")


async def current_of(store: Store, conversation_id: str, seen: Current | None = None) -> Current | None:
    """Return a conversation as it is stored, or None. Two point reads; one where it is as ``seen``."""
    session = await session_of(store, conversation_id)
    return None if session is None else await _with_record(store, session.info, session, seen)


async def _with_record(
    store: Store, info: SessionInfo, session: Session | None = None, seen: Current | None = None
) -> Current | None:
    if seen is not None and _is_known(seen, info):
        # Whoever keeps it copies it before it is handed out.
        return Current(seen.record, info, session or seen.session)
    fields = kept_in(info)
    if info.leaf_id is None or _says_all(info, fields):
        return Current(record_of(info, None, fields), info, session)
    try:
        leaf = await store.backend.get_entry(info.ref, info.leaf_id)
    except SessionNotFound:
        return None
    # It is gone, or no longer its leaf, where somebody has deleted it and made another in the meantime.
    return None if leaf is None else Current(record_of(info, leaf, fields), info, session)


async def _with_records(store: Store, infos: Sequence[SessionInfo], last_seen: Known) -> list[Current]:
    """Return those of some conversations that are still there. One read for the leaves of all that have changed."""
    seen = {info.id: current for info in infos if (current := last_seen(info)) is not None}
    unread = [info for info in infos if info.leaf_id is not None and not _is_known(seen.get(info.id), info)]
    leaves = await store.backend.read_leaves([info.ref for info in unread]) if unread else []
    leaf_of = {info.id: leaf for info, leaf in zip(unread, leaves, strict=True)}
    currents: list[Current] = []
    for info in infos:
        leaf = leaf_of.get(info.id)
        if leaf is not None and leaf.id == info.leaf_id:
            currents.append(Current(record_of(info, leaf, kept_in(info)), info))
        elif (current := await _with_record(store, info, None, seen.get(info.id))) is not None:
            currents.append(current)
    return currents


def _is_known(seen: Current | None, info: SessionInfo) -> bool:
    """Return whether nothing of a session has changed since it was seen, its leaf included."""
    return seen is not None and bool(_STATE(info) == _STATE(seen.info))


def _says_all(info: SessionInfo, fields: JsonObject | None) -> bool:
    """Return whether the metadata have the state at the leaf, whose id is that of its message's entry."""
    has_state = fields is not None and "state" in fields and fields.get("leaf") == info.leaf_id
    return has_state and not (info.leaf_id or "").startswith("sha256:")


async def records(store: Store, scope: str | None, limit: int | None, last_seen: Known) -> list[Current]:
    """Return the conversations that this adapter has written, newest first, at most ``limit`` of them.

    Nothing but the session is read of one that has not changed since it was ``last_seen``. Raises `CorruptStore`.
    """
    currents: list[Current] = []
    cursor = None
    where = None if scope is None else scope_of(store, scope)
    size = _PAGE if limit is None else min(_PAGE, limit + _SPARE)
    while limit is None or len(currents) < limit:
        page = await store.list_sessions(scope=where, order_by="updated", limit=size, cursor=cursor)
        for session_id in page.damaged:
            raise damaged_session(session_id)
        ours = [info for info in page.sessions if FIELD in info.metadata_text and kept_in(info) is not None]
        while ours and (limit is None or len(currents) < limit):
            count = len(ours) if limit is None else limit - len(currents)
            some, ours = ours[:count], ours[count:]
            read = await _with_records(store, some, last_seen)
            currents += [current for current in read if scope is None or current.record.scope == scope]
        cursor = page.next_cursor
        if cursor is None:
            break
    return sorted(currents, key=lambda current: current.record.updated_at, reverse=True)


class Kept(Frozen):
    """The bounds of a history that a branch or a fork keeps: so many messages, or those up to an entry."""

    first: int | None
    last: str | None


def kept(at: int | None, from_entry: str | None) -> Kept | None:
    """Return the part of a history that is kept; None if that is all of it, or cannot be said."""
    return None if (at is None) == (from_entry is None) else Kept(at, from_entry)


async def history(
    store: Store, head_id: str, limit: int | None, seen: Current | None, bounds: Kept | None = None
) -> list[ConversationEntry]:
    """Return the entries up to one, or the last ``limit``. ``seen`` is a conversation that may have it.

    With ``bounds``, as a branch or a fork needs them: messages that it does not keep are empty, and if it names an
    entry, those between that and the last may be left out. Raises `EntryNotFound`.
    """
    key = key_of(head_id)
    if seen is not None and seen.session is not None:
        with suppress(EntryNotFound, SessionNotFound):
            shorter = await _path_by(seen.session, seen.record, key, bounds)
            return await _path_to(seen.session, key, limit, bounds) if shorter is None else shorter
    session = await session_that_sees(store, key, None)
    if session is None:
        raise EntryNotFound("", head_id, detail=f"no entry {head_id!r} is stored; its conversation may be deleted")
    return await _path_to(session, key, limit, bounds)


async def _path_to(session: Session, key: str, limit: int | None, bounds: Kept | None) -> list[ConversationEntry]:
    if limit is None:
        with collector_held(WORTH_HOLDING):
            groups = groups_of(await session.get_active_path(leaf=key))
            count = None if bounds is None else bounds.first
            whole = groups if count is None or count < 0 else groups[:count]
            return [*conversation_entries(whole), *_empty_entries(groups[len(whole) :], whole)]
    count_read = limit + _SPARE
    while True:
        path = await session.get_active_path(leaf=key, limit=count_read)
        if not all(map(is_plain, path)):
            return (await _path_to(session, key, None, bounds))[-limit:]
        groups = groups_of(path)
        if len(groups) > limit or not path or path[0].parent_id is None:
            return conversation_entries(groups, limit)
        count_read *= 2


async def _path_by(
    session: Session, record: ConversationRecord, head: str, bounds: Kept | None
) -> list[ConversationEntry] | None:
    """Return the entries up to the one that is kept, then the head; None where it takes the whole history to tell."""
    if bounds is None or bounds.last is None:
        return None
    key = key_of(bounds.last)
    last, tip = await session.get_entries([key, head])
    if last is None or tip is None or extra_of(last) is None:
        return None
    for branch_head in (head, *map(key_of, record.branches)):
        if await session.branches.is_ancestor(key, of=branch_head):
            groups = groups_of(await session.get_active_path(leaf=key))
            end = [] if key == head else _empty_entries([Group([tip], extra_of(tip))], groups)
            return [*conversation_entries(groups), *end]
    return None


def _empty_entries(groups: Sequence[Group], before: Sequence[Group]) -> list[ConversationEntry]:
    """Return entries of which only the ids count, for messages that are not kept."""
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
    entry = await store.get_entry(key)
    if entry is None:
        return None
    if entry.session_id is not None:
        return await store.get_session(entry.session_id)
    # Who added it is deleted, and forks have kept it: one of them is found by looking.
    async for info in listed_sessions(partial(store.list_sessions, kind="fork", order_by="created", limit=_PAGE)):
        session = await store.get_session(info.id)
        if session is not None and await session.get_entry(key) is not None:
            return session
    return None


def conversation_entries(groups: Sequence[Group], limit: int | None = None) -> list[ConversationEntry]:
    """Return groups of entries as the framework's entries, each linked to the one before; or the last ``limit``."""
    ids = [None, *(group.id for group in groups)]
    start = 0 if limit is None else max(0, len(groups) - limit)
    messages = ReadMessages().messages_of(groups[start:])
    return [
        ConversationEntry(id=group.id, parent_id=parent, message=message)
        for group, parent, message in zip(groups[start:], ids[start:], messages, strict=False)
    ]


async def entry(store: Store, entry_id: str) -> ConversationEntry:
    """Return one entry. Raises `EntryNotFound`."""
    last = await store.get_entry(key_of(entry_id))
    if last is None:
        raise EntryNotFound("", entry_id, detail=f"no entry {entry_id!r} is stored; its conversation may be deleted")
    near = extra_of(last)
    count = 1 if near is None else max(1, int(str(near.get("count", 1))))
    entries = [last]
    while len(entries) < count:
        entries.insert(0, await _parent_of(store, entries[0]))
    before = None if entries[0].parent_id is None else await _parent_of(store, entries[0])
    group = Group(entries, near)
    parent = None if before is None else Group([before], extra_of(before)).id
    return ConversationEntry(id=group.id, parent_id=parent, message=ReadMessages().messages_of([group])[0])


async def _parent_of(store: Store, child: Entry) -> Entry:
    parent = None if child.parent_id is None else await store.get_entry(child.parent_id)
    if parent is None:
        raise SessionNotFound(child.id, detail=f"the entry before {child.id!r} has been deleted meanwhile")
    return parent


# Writing conversations

LOST = "pydantic_ai.unsaved"
"""The kind of the entry that stands for calls whose conversation is not there, while they are recorded."""


class _Chain(NamedTuple):
    """New entries that lie behind each other, and the entry that they begin below."""

    below: str | None
    entries: list[NewEntry]


async def write(
    store: Store,
    record: ConversationRecord,
    new: Sequence[ConversationEntry],
    expected: str | None,
    seen: Current | None = None,
) -> Current:
    """Store a record and its new entries; return the conversation as it is then. Raises `ConversationConflict`.

    ``seen`` is the conversation as it was read last. If it has the expected revision, it is not read again: the write
    compares the session's revision.
    """
    on_entry = bool(new) and new[-1].id == record.head_id
    try:
        state = state_of(record)
        chains = list(_chains(new, state if on_entry else None))
    except InvalidEntry:
        # Who is too late is told so, whatever else is wrong.
        current = await current_of(store, record.conversation_id)
        if (None if current is None else current.record.revision) != expected:
            raise ConversationConflict(record.conversation_id) from None
        raise
    state_apart = None if on_entry else state
    while True:
        is_fresh = seen is None or seen.session is None or seen.record.revision != expected
        current, seen = (await current_of(store, record.conversation_id), None) if is_fresh else (seen, None)
        if (None if current is None else current.record.revision) != expected:
            raise ConversationConflict(record.conversation_id)
        # The first save of a fork does not say which calls it has paid for since it was forked.
        is_fork = current is None and record.forked_from is not None
        paid = chains if is_fork else _with_rest(chains, record, current)
        try:
            if current is None:
                return await _create(store, record, paid, state_apart)
            return await _extend(store, current, record, paid, state_apart)
        except (LeafConflict, RevisionConflict):
            # Something of the session has changed since it was read; only a change of the conversation is a conflict.
            continue
        except (SessionExists, SessionNotFound, EntryNotFound) as error:
            if not is_fresh:
                continue
            raise ConversationConflict(record.conversation_id) from error


def _chains(new: Sequence[ConversationEntry], state: JsonObject | None) -> Iterator[_Chain]:
    chain: _Chain | None = None
    before: str | None = None
    for entry, messages_entries in zip(
        new, entries_of([(entry.id, entry.message) for entry in new], state), strict=True
    ):
        if chain is not None and entry.parent_id == before:
            chain.entries.extend(messages_entries)
        else:
            if chain is not None:
                yield chain
            chain = _Chain(None if entry.parent_id is None else key_of(entry.parent_id), list(messages_entries))
        before = entry.id
    if chain is not None:
        yield chain


def _with_rest(chains: Sequence[_Chain], record: ConversationRecord, current: Current | None) -> Sequence[_Chain]:
    """Return the chains, the last answer with the calls that the run paid for beside its responses."""
    calls = [call for chain in chains for entry in chain.entries for call in entry.calls]
    before = None if current is None else current.record.usage
    name = f"{record.conversation_id} {record.head_id}"
    rest = beside_responses(record.usage, before, calls, name) if calls else None
    if rest is None:
        return chains
    *others, last = chains
    at = max((number for number, entry in enumerate(last.entries) if entry.calls), default=None)
    if at is None:
        return chains
    answer = structs.replace(last.entries[at], calls=(*last.entries[at].calls, rest))
    return [*others, _Chain(last.below, [*last.entries[:at], answer, *last.entries[at + 1 :]])]


async def _create(
    store: Store, record: ConversationRecord, chains: Sequence[_Chain], state_apart: JsonObject | None
) -> Current:
    key = key_of(record.conversation_id)
    head = None if record.head_id is None else key_of(record.head_id)
    metadata = {**metadata_of(record.conversation_id), **metadata_with(record, state_apart)}
    begins = chains[0].below if chains else head
    # The id, too: ids are unique over all scopes, as a conversation's is.
    name = key or None
    scope = scope_of(store, record.scope)
    source = None if begins is None else await _source(store, record, begins)
    of = None if begins is None or record.forked_from is None else await current_of(store, record.forked_from)
    if of is not None and of.session is not None and begins is not None:
        end = await _behind(store, of, begins)
        if end != begins:
            # A change of the context behind it, a compaction or an exclusion, holds in the fork, too.
            source, head = of.session, end if head == begins else head
            chains = [chain._replace(below=end) if chain.below == begins else chain for chain in chains]
            begins = end
    async with store.atomic() as batch:
        if begins is None or source is None:
            session = batch.create_session(id=name, key=key, scope=scope, metadata=metadata)
        else:
            session = batch.fork(source, at=begins, id=name, key=key, scope=scope, metadata=metadata)
        _add(batch, session, begins, chains, head)
    return Current(record, session.info, session)


async def _source(store: Store, record: ConversationRecord, begins: str) -> Session:
    """Return a session that sees the entry that a new conversation begins at. Raises `EntryNotFound`."""
    hint = None if record.forked_from is None else await session_of(store, record.forked_from)
    session = await session_that_sees(store, begins, None if hint is None else hint.id)
    if session is None:
        raise EntryNotFound("", begins)
    return session


async def _extend(
    store: Store, current: Current, record: ConversationRecord, chains: Sequence[_Chain], state_apart: JsonObject | None
) -> Current:
    if record.scope != current.record.scope:
        raise InvalidArgument(
            f"scope: conversation {shown(record.conversation_id)} is in {shown(current.record.scope)} and stays there; "
            f"fork it into {shown(record.scope)}"
        )
    session = current.session
    assert session is not None
    head = None if record.head_id is None else key_of(record.head_id)
    if head is not None and not chains:
        head = await _behind(store, current, head)
    seen = current.info.revision
    if chains and chains[0].below is not None:
        chains = [chains[0]._replace(below=await _behind(store, current, chains[0].below)), *chains[1:]]
    async with store.atomic() as batch:
        stored = current.record
        is_same = (stored.forked_from, stored.forked_at) == (record.forked_from, record.forked_at)
        if state_apart is not None or kept_in(current.info) is None or not is_same:
            metadata = metadata_with(record, state_apart)
            batch.set_metadata(
                session, metadata, merge=True, expected_leaf=current.info.leaf_id, expected_revision=seen
            )
        _add(batch, session, current.info.leaf_id, chains, head, seen)
    return Current(record, session.info, session)


async def _behind(store: Store, current: Current, below: str) -> str:
    """Return the leaf of a conversation where an entry is its last message, else that entry.

    Entries that others have added behind the last message are no messages, and stay: a summary, or a note.
    """
    leaf, head = current.info.leaf_id, current.record.head_id
    if leaf is None or head is None or below == leaf:
        return below
    last = await history(store, head, 1, current)
    return leaf if last and key_of(last[0].id) == below else below


def _add(
    batch: Atomic,
    session: Session | str,
    leaf: str | None,
    chains: Sequence[_Chain],
    head: str | None,
    seen: int | None = None,
) -> None:
    """Append the chains, each below the entry it begins at, and leave the leaf at the head."""
    expected = leaf
    for below, entries in chains:
        if below != leaf:
            batch.move_leaf(session, below, why="branch", expected_leaf=expected, expected_revision=seen)
            expected = below
        batch.append_entries(session, entries, expected_leaf=expected, expected_revision=seen)
        leaf = expected = entries[-1].id
    if head != leaf:
        batch.move_leaf(session, head, why="branch", expected_leaf=expected, expected_revision=seen)


async def delete(store: Store, conversation_id: str, expected: str) -> None:
    """Delete a conversation. Raises `ConversationConflict`."""
    while True:
        current = await current_of(store, conversation_id)
        if current is None or current.record.revision != expected:
            raise ConversationConflict(conversation_id)
        with suppress(LeafConflict, RevisionConflict):
            done = await store.delete_session_tree(current.info.ref, expected_revision=current.info.revision)
            if not done.session_ids:
                # Somebody else has deleted it since it was read.
                raise ConversationConflict(conversation_id)
            return


async def record_lost(store: Store, conversation_id: str, scope: str | None, unsaved: Sequence[ModelMessage]) -> None:
    """Record the calls of messages that are not saved, each call once. O(unsaved)."""
    calls = [call for message in unsaved if isinstance(message, ModelResponse) for call in _calls_behind(message)]
    if not calls:
        return
    current = await current_of(store, conversation_id)
    if current is not None and (scope is None or current.record.scope == scope):
        session = await store.get_session(current.info.id)
        if session is not None:
            with suppress(SessionNotFound):
                await _record(session, calls)
                return
            current = None
    # In a session that is gone when it is done: the ledger outlives it, and no conversation has come of it.
    name = key_of(conversation_id) if current is None else None
    where = scope_of(store, scope)
    if current is None and scope is None:
        where = await _former_scope(store, name or "")
    with suppress(SessionExists):
        await _record_without_session(store, name or None, where, calls)
        return
    await _record_without_session(store, None, where, calls)


def _calls_behind(response: ModelResponse) -> list[JsonObject]:
    try:
        return calls_of(*dumped_messages([response]))
    except InvalidEntry:
        # It could not be kept whole, but it was paid for.
        bare = replace(response, parts=[], metadata=None, provider_details=None)
        return calls_of(*dumped_messages([bare]))


async def _record(session: Session, calls: Sequence[JsonObject]) -> None:
    for call in calls:
        usage = {name: value for name, value in call.items() if name not in ("provider", "model", "callId")}
        provider, model = str(call.get("provider", "")), str(call.get("model", ""))
        # Calls that the ledger has already come from the save that was not a conflict.
        with suppress(CallConflict, InvalidEntry):
            await session.money.record_call(
                usage, provider=provider, model=model, call_id=str(call["callId"]), outcome="conflict"
            )


async def _former_scope(store: Store, session_id: str) -> str:
    """Return the scope in which a session that is gone paid for its calls: the same calls count there, once."""
    try:
        paid = await store.usage(session_id, group_by=("scope",))
    except SessionNotFound:
        return store.scope or ""
    return str(paid.rows[-1].group["scope"]) if paid.rows else store.scope or ""


async def _record_without_session(store: Store, id: str | None, scope: str, calls: Sequence[JsonObject]) -> None:
    async with store.atomic() as batch:
        session = batch.create_session(id=id, scope=scope)
        batch.append_entries(session, [NewEntry.custom(LOST, None, calls=calls)])
        batch.delete_session_tree(session)


# The conversation store

_KNOWN = 1_000

Noted = TypeVar("Noted")

_saving: ContextVar[list[str]] = ContextVar("_saving")
"""The revision that the save under way expects, until it asks for the record."""

_keeping: ContextVar[list[Kept]] = ContextVar("_keeping")
"""The part of the history that the branch or fork under way keeps, until it asks for that."""


class FlueConversationStore(ConversationStore):
    """A `ConversationStore` in a store of ours: a SQLite file, PostgreSQL, or memory.

    A conversation is a session whose id and key are its ``conversation_id``, a fork of one is a fork. The calls of a
    run are in the ledger, also when its save was a conflict. `delete` removes the messages that no other conversation
    has.
    """

    def __init__(self, store: Target) -> None:
        """Use a store that is open, or the one at a path or URL. Nothing is opened yet. Raises `InvalidArgument`."""
        self._access = Access(store)
        # By their heads, too: the next read is that of the history of a record that was just read.
        self._heads: dict[str, Current] = {}
        # Conversations as they were last read or written: a save that expects them so does not read them again.
        self._seen: dict[str, Current] = {}

    @classmethod
    def open(cls, target: Target) -> Self:
        """Return the store at a path, ``":memory:"``, or a URL; it is opened when it is first used. O(1)."""
        return cls(target)

    async def close(self) -> None:
        """Let go of the store; one that was given open stays open. Closing twice is nothing."""
        await self._access.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def session_for(self, conversation_id: str, *, scope: str | None = None) -> Session:
        """Return a handle on the session of a conversation: for undo, usage, forks, labels, exports and the report.

        Its changes are changes of the conversation. It is to be used in the event loop that asks for it, whatever the
        store was opened by. Raises `SessionNotFound`, also for one in another scope.
        """

        async def find(store: Store) -> Session | None:
            current = await current_of(store, conversation_id)
            if current is None or scope not in (None, current.record.scope):
                return None
            return await store.get_session(current.info.ref)

        session = await self._access.session(find)
        if session is None:
            detail = f"no conversation {shown(conversation_id)} is stored"
            raise SessionNotFound(conversation_id, detail=detail if scope is None else f"{detail} in that scope")
        return session

    # the calls of the framework

    async def save(
        self, conversation: Conversation | AgentRunResult[Any], *, scope: str | None = None
    ) -> list[ConversationEntry]:
        """Save a conversation, as `ConversationStore.save` says. Its calls are recorded, also for a conflict.

        Raises `ConversationConflict`, and `InvalidEntry` for a message with a value that JSON has no form for.
        O(new messages).
        """
        saved = conversation.conversation if isinstance(conversation, AgentRunResult) else conversation
        start, unsaved = saved.new_message_index, list(saved.messages)
        try:
            with _noted(_saving, saved.revision):
                stored: list[ConversationEntry] = await super().save(conversation, scope=scope)
        except ConversationConflict:
            wanted, name = scope, saved.conversation_id
            await self._access.run(lambda store: record_lost(store, name, wanted, unsaved[start or 0 :]))
            raise
        return stored

    async def branch(
        self,
        conversation_id: str,
        *,
        at: int | None = None,
        from_entry: str | None = None,
        expected_revision: str | None,
        scope: str | None = None,
    ) -> Conversation:
        """Continue a conversation from an earlier entry, as `ConversationStore.branch` says.

        O(messages kept); with ``at``, also the rows of the others.
        """
        with _noted(_keeping, kept(at, from_entry)):
            return await super().branch(
                conversation_id, at=at, from_entry=from_entry, expected_revision=expected_revision, scope=scope
            )

    async def fork(
        self,
        conversation_id: str,
        *,
        at: int | None = None,
        from_entry: str | None = None,
        new_conversation_id: str | None = None,
        scope: str | None = None,
        source_scope: str | None = None,
    ) -> Conversation:
        """Begin a conversation with the history of another, as `ConversationStore.fork` says. Costs as `branch`."""
        with _noted(_keeping, kept(at, from_entry)):
            return await super().fork(
                conversation_id,
                at=at,
                from_entry=from_entry,
                new_conversation_id=new_conversation_id,
                scope=scope,
                source_scope=source_scope,
            )

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return a conversation's record, or None. Two point reads."""
        seen = self._seen.get(conversation_id)
        expected = _taken(_saving)
        if seen is not None and seen.session is not None and expected == seen.record.revision:
            # The write compares the revision of the session, so that it need not be read again.
            return copied(seen.record)
        current = await self._access.run(lambda store: current_of(store, conversation_id, seen))
        if current is None:
            return None
        self._note(current)
        return current.record

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Return the records, or those of a scope, newest first.

        O(sessions of the scope), or O(limit), and a read for each that has changed since this object saw it last.
        """
        currents = await self._access.run(lambda store: records(store, scope, limit, self._known))
        for current in currents:
            self._note(current)
        return [current.record for current in currents]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the entries up to ``head_id``, or the last ``limit`` of them. O(entries returned).

        Raises `LookupError` for an entry that is not stored.
        """
        bounds = _taken(_keeping)
        if head_id is None or limit == 0:
            return []
        seen = self._heads.get(head_id)
        return await self._access.run(lambda store: history(store, head_id, limit, seen, bounds))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return one entry. Raises `LookupError` if it is not stored. A point read for each entry of ours it is."""
        return await self._access.run(lambda store: entry(store, entry_id))

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and new entries in one transaction. Raises `ConversationConflict`. O(new entries)."""
        new = list(new_entries)
        seen = self._seen.pop(record.conversation_id, None)
        written = await self._access.run(lambda store: write(store, record, new, expected_revision, seen))
        self._note(written)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation and the entries that no other one's history reaches. Raises `ConversationConflict`.

        Its cost stays in the ledger. O(entries deleted).
        """
        self._seen.pop(conversation_id, None)
        await self._access.run(lambda store: delete(store, conversation_id, expected_revision))

    def _known(self, info: SessionInfo) -> Current | None:
        return self._seen.get(conversation_of(info))

    def _note(self, current: Current) -> None:
        """Note a conversation as it was read or written, and where its heads are."""
        for cache in (self._heads, self._seen):
            if len(cache) >= _KNOWN:
                cache.clear()
        # The caller may change the record, so that the one in the cache is its own.
        noted = current._replace(record=copied(current.record))
        self._seen[noted.record.conversation_id] = noted
        for entry_id in (noted.record.head_id, *noted.record.branches) if noted.session is not None else ():
            if entry_id is not None:
                self._heads[entry_id] = noted


@contextmanager
def _noted(place: ContextVar[list[Noted]], intent: Noted | None) -> Iterator[None]:
    """Note the purpose of a method of the framework, until the first of ours that it calls has taken it."""
    token = place.set([] if intent is None else [intent])
    try:
        yield
    finally:
        place.reset(token)


def _taken(place: ContextVar[list[Noted]]) -> Noted | None:
    noted = place.get(None)
    return noted.pop() if noted else None
