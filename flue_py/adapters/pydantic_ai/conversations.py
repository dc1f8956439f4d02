"""The store of conversations that pydantic-ai is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pydantic_ai.agent import AgentRunResult
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)

from flue_py.adapters.access import Access, Target
from flue_py.adapters.pydantic_ai import reading, writing
from flue_py.adapters.pydantic_ai.records import Current, conversation_of, copied
from flue_py.core.sessions import SessionInfo
from flue_py.errors import SessionNotFound, shown
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from pydantic_ai.conversation import Conversation

_KNOWN = 1_000

Noted = TypeVar("Noted")

_saving: ContextVar[list[str]] = ContextVar("_saving")
"""The revision that the save under way expects, until it asks for the record."""

_keeping: ContextVar[list[reading.Kept]] = ContextVar("_keeping")
"""What the branch or fork under way keeps of the history, until it asks for that."""


class FlueConversationStore(ConversationStore):
    """A `ConversationStore` in a store of ours: a SQLite file, PostgreSQL, or memory.

    A conversation is a session whose id and key are its ``conversation_id``, a fork of one is a fork. What a run paid
    is in the ledger, also when its save was a conflict. `delete` removes the messages that no other conversation has.
    """

    def __init__(self, store: Target) -> None:
        """Use a store that is open, or the one at a path or URL. Nothing is opened yet. Raises `InvalidArgument`."""
        self._access = Access(store)
        # By their heads, too: what is asked for next is the history of a record that was just read.
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

        What it changes is what the conversation is from then on. It is to be used in the event loop that asks for it,
        whatever the store was opened by. Raises `SessionNotFound`, also for one in another scope.
        """

        async def find(store: Store) -> Session | None:
            current = await reading.current_of(store, conversation_id)
            if current is None or scope not in (None, current.record.scope):
                return None
            return await store.get_session(current.info.ref)

        session = await self._access.session(find)
        if session is None:
            detail = f"no conversation {shown(conversation_id)} is stored"
            raise SessionNotFound(conversation_id, detail=detail if scope is None else f"{detail} in that scope")
        return session

    # -- what the framework calls ---------------------------------------------------------------------------------

    async def save(
        self, conversation: Conversation | AgentRunResult[Any], *, scope: str | None = None
    ) -> list[ConversationEntry]:
        """Save a conversation, as `ConversationStore.save` says. What was paid is recorded, also for a conflict.

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
            await self._access.run(lambda store: writing.record_lost(store, name, wanted, unsaved[start or 0 :]))
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
        with _noted(_keeping, reading.kept(at, from_entry)):
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
        with _noted(_keeping, reading.kept(at, from_entry)):
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
            # The write compares the revision of the session, so what is known need not be read again.
            return copied(seen.record)
        current = await self._access.run(lambda store: reading.current_of(store, conversation_id, seen))
        if current is None:
            return None
        self._note(current)
        return current.record

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Return the records, or those of a scope, newest first.

        O(sessions of the scope), or O(limit), and a read for each that has changed since this object saw it last.
        """
        found = await self._access.run(lambda store: reading.records(store, scope, limit, self._known))
        for current in found:
            self._note(current)
        return [current.record for current in found]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the entries up to ``head_id``, or the last ``limit`` of them. O(entries returned).

        Raises `LookupError` for an entry that is not stored.
        """
        kept = _taken(_keeping)
        if head_id is None or limit == 0:
            return []
        known = self._heads.get(head_id)
        return await self._access.run(lambda store: reading.history(store, head_id, limit, known, kept))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return one entry. Raises `LookupError` if it is not stored. A point read for each entry of ours it is."""
        return await self._access.run(lambda store: reading.entry(store, entry_id))

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
        written = await self._access.run(lambda store: writing.write(store, record, new, expected_revision, seen))
        self._note(written)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation and the entries that no other one's history reaches. Raises `ConversationConflict`.

        What it cost stays in the ledger. O(entries deleted).
        """
        self._seen.pop(conversation_id, None)
        await self._access.run(lambda store: writing.delete(store, conversation_id, expected_revision))

    def _known(self, info: SessionInfo) -> Current | None:
        return self._seen.get(conversation_of(info))

    def _note(self, current: Current) -> None:
        """Note a conversation as it was read or written, and where its heads are."""
        for known in (self._heads, self._seen):
            if len(known) >= _KNOWN:
                known.clear()
        # Whoever asked may change the record, so what is kept has one of its own.
        kept = current._replace(record=copied(current.record))
        self._seen[kept.record.conversation_id] = kept
        for entry_id in (kept.record.head_id, *kept.record.branches) if kept.session is not None else ():
            if entry_id is not None:
                self._heads[entry_id] = kept


@contextmanager
def _noted(place: ContextVar[list[Noted]], what: Noted | None) -> Iterator[None]:
    """Note what a method of the framework is for, until the first of ours that it calls has taken it."""
    token = place.set([] if what is None else [what])
    try:
        yield
    finally:
        place.reset(token)


def _taken(place: ContextVar[list[Noted]]) -> Noted | None:
    noted = place.get(None)
    return noted.pop() if noted else None
