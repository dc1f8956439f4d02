"""Several operations of the model at once: all of them, or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import cast

from msgspec.structs import asdict, replace

from flue_py.core.context import is_editable
from flue_py.core.entries import NewEntry
from flue_py.core.json import decode_object, encode_json
from flue_py.core.kinds import message_text
from flue_py.core.operations import (
    AppendEntries,
    Committed,
    CreateSession,
    CreateTask,
    DeleteTree,
    EndTask,
    ForkSession,
    Left,
    LinkTask,
    MoveLeaf,
    Navigate,
    Operation,
    Outcome,
    Redo,
    Undo,
    content_of,
    sessions_named,
)
from flue_py.core.sessions import STORED, Appended, Expected, Moved, Navigated, Seen, SessionInfo
from flue_py.errors import FlueError, InvalidArgument, RevisionConflict
from tests.model.rows import Content, Request
from tests.model.store_model import ModelStore

_METHODS: dict[type, str] = {
    AppendEntries: "append",
    CreateSession: "create_session",
    ForkSession: "fork",
    CreateTask: "create_task",
    LinkTask: "link_task",
    EndTask: "end_task",
    MoveLeaf: "move",
    Navigate: "go_to",
    Undo: "undo",
    Redo: "redo",
    DeleteTree: "delete_tree",
}


_NOT_MODELLED = ("label", "note", "reason")
"""What the log tells of an operation, and the contract judges."""


class StoreModel(ModelStore):
    """Those methods of a `Backend` that the state machines call, with the same results and errors."""

    async def atomic(self, operations: Sequence[Operation], *, idempotency_key: str | None = None) -> Committed:
        anchor = None
        if idempotency_key is not None:
            named = sessions_named(operations)
            if not named:
                raise InvalidArgument("these operations name no session that the key could belong to")
            anchor = self._session(named[0])
            first = self._replay(anchor, idempotency_key, Content("atomic", (content_of(operations),)))
            if isinstance(first, tuple):
                return self._committed(operations, [self._again(each) for each in first], replayed=True)
        # Sessions share their trees, and go on sharing them in a copy of everything.
        before = deepcopy({name: value for name, value in vars(self).items() if name != "_sources"})
        began = {session_id: session.info.revision for session_id, session in self._sessions.items()}
        outcomes: list[Outcome] = []
        for number, operation in enumerate(operations):
            try:
                outcomes.append(await self._operate(operation, began))
            except FlueError as error:
                vars(self).update(before)
                error.operation = number
                raise
        if anchor is not None and idempotency_key is not None and anchor.info.id in self._sessions:
            content = Content("atomic", (content_of(operations),))
            anchor.requests[idempotency_key] = Request(content, tuple(outcomes))
        return self._committed(operations, outcomes)

    async def go_to(
        self, session_id: str, entry_id: str, *, summary: NewEntry | None = None, expected: Expected = STORED
    ) -> Navigated:
        """Go to an entry, before one that a person wrote."""
        session = self._session(session_id)
        session.check_seen(expected)
        session.check_sees(entry_id)
        entry, leaf = session.tree[entry_id].entry, session.info.leaf_id
        if entry_id == leaf:
            return Navigated(leaf, leaf, session.info.revision)
        to = entry.parent_id if is_editable(entry) else entry_id
        if summary is not None:
            said = {**decode_object(summary.payload), "fromId": to or "root"}
            said |= {} if leaf is None else {"abandonedLeafId": leaf}
            summary = replace(summary, payload=encode_json(said, "summary")[0])
        went = await self.navigate(session_id, to, summary=summary)
        return replace(went, draft=message_text(entry.fields) if is_editable(entry) else None)

    async def _operate(self, operation: Operation, began: Mapping[str, int]) -> Outcome:
        """Do one operation; an expected revision is that before the batch."""
        asked = {name: value for name, value in asdict(operation).items() if name not in _NOT_MODELLED}
        method = getattr(self, _METHODS[type(operation)])
        if isinstance(operation, (CreateSession, ForkSession, CreateTask)):
            asked["new"] = replace(operation.new, id=operation.session_made)
            del asked["drawn_id"]
        if isinstance(operation, CreateSession):
            return cast("Outcome", await method(**asked))
        seen, session_id = asked["expected"], asked.pop("session_id")
        session = self._sessions.get(session_id)
        if session is None or not isinstance(seen, Seen) or seen.revision is None:
            return cast("Outcome", await method(session_id, **asked))
        first = began.get(session.info.id, session.info.revision)
        asked["expected"] = replace(seen, revision=seen.revision + session.info.revision - first)
        try:
            return cast("Outcome", await method(session_id, **asked))
        except RevisionConflict as error:
            raise RevisionConflict(error.session_id, seen.revision, first) from None

    def _again(self, outcome: Outcome) -> Outcome:
        """Return what an operation came to, for a retry."""
        if isinstance(outcome, (Appended, Moved)):
            return replace(outcome, replayed=True)
        return self._told(self._made(outcome.id, "session")) if isinstance(outcome, SessionInfo) else outcome

    def _committed(
        self, operations: Sequence[Operation], outcomes: Sequence[Outcome], *, replayed: bool = False
    ) -> Committed:
        touched = {str(each.session_id) for each in operations if not isinstance(each, CreateSession)}
        touched |= {each.id for each in outcomes if isinstance(each, SessionInfo)}
        found = [session.info for session_id in touched if (session := self._sessions.get(session_id)) is not None]
        left = {info.id: Left(info.leaf_id, info.revision) for info in found}
        return Committed(tuple(outcomes), left, replayed)
