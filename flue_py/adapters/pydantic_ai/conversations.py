"""The store of conversations that pydantic-ai is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from pydantic_ai.agent import AgentRunResult
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)

from flue_py.adapters.access import Access, Target
from flue_py.adapters.pydantic_ai import reading, writing
from flue_py.adapters.pydantic_ai.records import Current
from flue_py.errors import SessionNotFound, shown
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from pydantic_ai.conversation import Conversation

_HEADS = 1_000


class FlueConversationStore(ConversationStore):
    """A `ConversationStore` in a store of ours: a SQLite file, PostgreSQL, or memory.

    A conversation is a session whose id and key are its ``conversation_id``, a fork of one is a fork. What a run paid
    is in the ledger, also when its save was a conflict. `delete` removes the messages that no other conversation has.
    """

    def __init__(self, store: Target) -> None:
        """Use a store that is open, or the one at a path or URL. Nothing is opened yet. Raises `InvalidArgument`."""
        self._access = Access(store)
        # In which session a head was last seen: what is asked for next is the history of a record that was just read.
        self._heads: dict[str, str] = {}
        # Conversations as they were last read: a save that expects them so does not read them again.
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

        What it changes is what the conversation is from then on. Where a URL was given, the handle belongs to an event
        loop elsewhere: give a store that is open instead. Raises `SessionNotFound`, also for one in another scope.
        """

        async def find(store: Store) -> Session:
            current = await reading.current_of(store, conversation_id)
            session = None
            if current is not None and (scope is None or current.record.scope == scope):
                session = await store.get_session(current.info.id)
            if session is None:
                detail = f"no conversation {shown(conversation_id)} is stored"
                raise SessionNotFound(conversation_id, detail=detail if scope is None else f"{detail} in that scope")
            return session

        return await self._access.run(find)

    # -- what the framework calls ---------------------------------------------------------------------------------

    async def save(
        self, conversation: Conversation | AgentRunResult[Any], *, scope: str | None = None
    ) -> list[ConversationEntry]:
        """Save a conversation, as `ConversationStore.save` says. What was paid is recorded, also for a conflict.

        Raises `ConversationConflict`, and `InvalidEntry` for a message with a value that JSON has no form for.
        O(new messages).
        """
        try:
            stored: list[ConversationEntry] = await super().save(conversation, scope=scope)
        except ConversationConflict:
            lost = conversation.conversation if isinstance(conversation, AgentRunResult) else conversation
            start = lost.new_message_index
            unsaved = list(lost.messages if start is None else lost.messages[start:])
            wanted, name = scope, lost.conversation_id
            await self._access.run(lambda store: writing.record_lost(store, name, wanted, unsaved))
            raise
        return stored

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return a conversation's record, or None. Two point reads."""
        current = await self._access.run(lambda store: reading.current_of(store, conversation_id))
        if current is None:
            return None
        self._note_head(current.record, current.info.id)
        if len(self._seen) >= _HEADS:
            self._seen.clear()
        # Whoever asked may change the record, so what is kept has one of its own.
        self._seen[conversation_id] = current._replace(record=replace(current.record))
        return current.record

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Return the records, or those of a scope, newest first. O(sessions of the scope), a read for each returned."""
        found = await self._access.run(lambda store: reading.records(store, scope, limit))
        return [current.record for current in found]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the entries up to ``head_id``, or the last ``limit`` of them. O(entries returned).

        Raises `LookupError` for an entry that is not stored.
        """
        if head_id is None or limit == 0:
            return []
        session_id = self._heads.get(head_id)
        return await self._access.run(lambda store: reading.history(store, head_id, limit, session_id))

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
        session_id = await self._access.run(lambda store: writing.write(store, record, new, expected_revision, seen))
        self._note_head(record, session_id)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation and the entries that no other one's history reaches. Raises `ConversationConflict`.

        What it cost stays in the ledger. O(entries deleted).
        """
        await self._access.run(lambda store: writing.delete(store, conversation_id, expected_revision))

    def _note_head(self, record: ConversationRecord, session_id: str) -> None:
        if len(self._heads) >= _HEADS:
            self._heads.clear()
        for entry_id in (record.head_id, *record.branches):
            if entry_id is not None:
                self._heads[entry_id] = session_id
