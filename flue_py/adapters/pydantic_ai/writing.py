"""Writing conversations: a record with its new entries, a deletion, and what a run paid that was not saved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from pydantic_ai.conversation_store import ConversationConflict, ConversationEntry, ConversationRecord
from pydantic_ai.messages import ModelMessage, ModelResponse

from flue_py.adapters.keys import key_of, metadata_of
from flue_py.adapters.pydantic_ai.reading import current_of, history, session_of, session_that_sees
from flue_py.adapters.pydantic_ai.records import Current, kept_in, metadata_with, scope_of, state_of
from flue_py.adapters.pydantic_ai.spending import beside_responses, calls_of
from flue_py.adapters.pydantic_ai.stored import dumped_messages, entries_of
from flue_py.core.entries import NewEntry
from flue_py.core.jsontext import JsonObject
from flue_py.errors import (
    CallConflict,
    EntryNotFound,
    InvalidArgument,
    InvalidEntry,
    LeafConflict,
    RevisionConflict,
    SessionExists,
    SessionNotFound,
    shown,
)
from flue_py.sessions.atomic import Atomic
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

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

    ``seen`` is the conversation as it was read last. Where that is what is expected, it is not read again: the write
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
    beside = None if on_entry else state
    while True:
        is_fresh = seen is None or seen.session is None or seen.record.revision != expected
        current, seen = (await current_of(store, record.conversation_id), None) if is_fresh else (seen, None)
        if (None if current is None else current.record.revision) != expected:
            raise ConversationConflict(record.conversation_id)
        # What a fork has paid for since it was forked, nobody knows from what its first save says.
        is_fork = current is None and record.forked_from is not None
        paid = chains if is_fork else _with_rest(chains, record, current)
        try:
            if current is None:
                return await _create(store, record, paid, beside)
            return await _extend(store, current, record, paid, beside)
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
    for entry, made in zip(new, entries_of(new, state), strict=True):
        if chain is not None and entry.parent_id == before:
            chain.entries.extend(made)
        else:
            if chain is not None:
                yield chain
            chain = _Chain(None if entry.parent_id is None else key_of(entry.parent_id), list(made))
        before = entry.id
    if chain is not None:
        yield chain


def _with_rest(chains: Sequence[_Chain], record: ConversationRecord, current: Current | None) -> Sequence[_Chain]:
    """Return the chains, the last answer with what the run paid for beside its responses."""
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
    answer = replace(last.entries[at], calls=(*last.entries[at].calls, rest))
    return [*others, _Chain(last.below, [*last.entries[:at], answer, *last.entries[at + 1 :]])]


async def _create(
    store: Store, record: ConversationRecord, chains: Sequence[_Chain], beside: JsonObject | None
) -> Current:
    key = key_of(record.conversation_id)
    head = None if record.head_id is None else key_of(record.head_id)
    metadata = {**metadata_of(record.conversation_id), **metadata_with(record, beside)}
    begins = chains[0].below if chains else head
    # The id, too: ids are unique over all scopes, as a conversation's is.
    name = key or None
    scope = scope_of(store, record.scope)
    source = None if begins is None else await _source(store, record, begins)
    of = None if begins is None or record.forked_from is None else await current_of(store, record.forked_from)
    if of is not None and of.session is not None and begins is not None:
        end = await _behind(store, of, begins)
        if end != begins:
            # What has changed the context behind it, a compaction or an exclusion, holds in the fork, too.
            source, head = of.session, end if head == begins else head
            chains = [each._replace(below=end) if each.below == begins else each for each in chains]
            begins = end
    async with store.atomic() as batch:
        if begins is None or source is None:
            made = batch.create_session(id=name, key=key, scope=scope, metadata=metadata)
        else:
            made = batch.fork(source, at=begins, id=name, key=key, scope=scope, metadata=metadata)
        _add(batch, made, begins, chains, head)
    return Current(record, made.info, made)


async def _source(store: Store, record: ConversationRecord, begins: str) -> Session:
    """Return a session that sees the entry that a new conversation begins at. Raises `EntryNotFound`."""
    hint = None if record.forked_from is None else await session_of(store, record.forked_from)
    found = await session_that_sees(store, begins, None if hint is None else hint.id)
    if found is None:
        raise EntryNotFound("", begins)
    return found


async def _extend(
    store: Store, current: Current, record: ConversationRecord, chains: Sequence[_Chain], beside: JsonObject | None
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
        if beside is not None or _differs(current, record):
            metadata = metadata_with(record, beside)
            batch.set_metadata(
                session, metadata, merge=True, expected_leaf=current.info.leaf_id, expected_revision=seen
            )
        _add(batch, session, current.info.leaf_id, chains, head, seen)
    return Current(record, session.info, session)


async def _behind(store: Store, current: Current, below: str) -> str:
    """Return the leaf of a conversation where an entry is its last message, else that entry.

    What others have added behind the last message is no message, and stays: a summary, or a note.
    """
    leaf, head = current.info.leaf_id, current.record.head_id
    if leaf is None or head is None or below == leaf:
        return below
    last = await history(store, head, 1, current)
    return leaf if last and key_of(last[0].id) == below else below


def _differs(current: Current, record: ConversationRecord) -> bool:
    """Return whether the metadata have to say something else than they do."""
    stored = current.record
    same = (stored.forked_from, stored.forked_at) == (record.forked_from, record.forked_at)
    return kept_in(current.info) is None or not same


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
    """Record what was paid for messages that are not saved, each call once. O(unsaved)."""
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
        # What the ledger has already, it has from the save that was not a conflict.
        with suppress(CallConflict, InvalidEntry):
            await session.record_call(
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
        made = batch.create_session(id=id, scope=scope)
        batch.append_entries(made, [NewEntry.custom(LOST, None, calls=calls)])
        batch.delete_session_tree(made)
