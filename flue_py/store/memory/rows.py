"""What the store in memory holds of a tree, as the rows of a copy, and the other way round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal, TypeVar, cast

import pydantic_core

from flue_py.core.entries import Entry
from flue_py.core.jsontext import payload_digest
from flue_py.core.log import decode_ids
from flue_py.core.sessions import Appended, Change, Moved, MoveReason, SessionInfo, SessionKind, TaskLink
from flue_py.core.trees import (
    EditRow,
    EntryRow,
    LinkRow,
    MarkRow,
    MoveRow,
    RequestRow,
    SessionRow,
    TreeCopy,
    TreeHead,
    head_of,
)
from flue_py.core.usage import NO_USAGE, PAID_COLUMNS, UsageTotals
from flue_py.store.memory.lanes import parents_of
from flue_py.store.memory.model import Content, MoveNote, Operation, Request, Row, Session
from flue_py.store.schema.payloads import checked_text

OwnedRow = TypeVar("OwnedRow", EditRow, EntryRow, LinkRow, MoveRow, MarkRow, RequestRow)

# -- from the model to rows -------------------------------------------------------------------------------------------


def session_row(session: Session) -> SessionRow:
    info = session.info
    return SessionRow(
        session_key=session.number,
        id=info.id,
        scope=info.scope,
        key=info.key,
        title=info.title,
        kind=info.kind,
        task_depth=session.task_depth,
        forked_from_session=info.forked_from_session,
        forked_from_entry=info.forked_from_entry,
        leaf=info.leaf_id,
        revision=info.revision,
        metadata=info.metadata_text,
        cwd=info.cwd,
        config_path=info.config_path,
        completed_at=info.completed_us,
        trashed_at=info.trashed_us,
        entry_count=info.entry_count,
        message_count=info.message_count,
        first_message=info.first_message,
        spent_tokens=info.spent_tokens,
        spent_cost=info.spent_picodollars,
        created_at=info.created_us,
        updated_at=info.updated_us,
        auto_title=info.auto_title,
        unpriced_calls=info.unpriced_calls,
        active_at=info.active_us,
        unknown_calls=info.unknown_calls,
    )


def entry_row(row: Row, lane_id: int, payload: str | None, packed: bytes | None, blob: bytes | None) -> EntryRow:
    entry = row.entry
    return EntryRow(
        lane_id,
        entry.depth,
        entry.id,
        entry.kind,
        entry.role,
        entry.source,
        row.creator,
        entry.revision,
        entry.ordinal,
        entry.created_us,
        int(row.counted),
        *row.totals,
        digest=payload_digest(entry.payload),
        blob=blob,
        packed=packed,
        extra=entry.extra,
        payload=payload,
        **dict(zip(PAID_COLUMNS, row.paid, strict=True)),
    )


def move_rows(session: Session) -> Iterator[MoveRow]:
    for change in session.changes:
        if change.reason not in (None, "append"):
            note = session.notes[change.revision]
            yield MoveRow(
                session.number,
                change.revision,
                change.from_id,
                change.to_id,
                str(change.reason),
                note.undoes,
                note.by,
                change.at_us or 0,
                note.why,
            )


def request_rows(session: Session) -> Iterator[RequestRow]:
    for key, request in sorted(session.requests.items()):
        yield RequestRow(session.number, key, *request.content, _result_text(request.result))


def _result_text(result: Appended | Moved | str) -> str:
    """Return the first answer to a request as rows keep it."""
    value: object = result
    if isinstance(result, Appended):
        value = [result.entry_ids, result.leaf_id, result.revision, result.on_branch, result.surrogates_replaced]
    elif isinstance(result, Moved):
        value = [result.from_id, result.to_id, result.revision, result.reason]
    return pydantic_core.to_json(value).decode()


def mark_rows(session: Session) -> Iterator[MarkRow]:
    marks: list[tuple[str, str, str | None]]
    marks = [(entry_id, "label", value) for entry_id, value in session.labels.items()]
    marks += [(entry_id, "pin", value) for entry_id, value in session.pins.items()]
    marks += [(entry_id, "retracted", None) for entry_id in session.retracted]
    for entry_id, kind, value in sorted(marks, key=lambda mark: mark[:2]):
        yield MarkRow(session.number, entry_id, kind, value, session.marked_us[entry_id, kind])


def tree_head(sessions: Sequence[Session]) -> TreeHead:
    return TreeHead(sessions[0].tree_id, tuple(head_of(session_row(session)) for session in sessions))


# -- from rows to the model -------------------------------------------------------------------------------------------


class Rebuilding:
    """A tree as the model keeps it, from the rows of a copy."""

    def __init__(self, copy: TreeCopy, keys: Mapping[int, int]) -> None:
        self._copy = copy
        self._keys = keys
        self._tree = self._rebuild_tree()
        self._created = _by_session(sorted(copy.entries, key=attrgetter("session_key", "revision", "ordinal")))
        self._moves = _by_session(copy.moves)
        self._edits = _by_session(copy.edits)
        self._marks = _by_session(copy.marks)
        self._requests = _by_session(copy.requests)
        self._links = _by_session(copy.links)

    def sessions(self) -> list[Session]:
        """Return the tree's sessions."""
        return [self._rebuild_session(row) for row in self._copy.sessions]

    def _rebuild_tree(self) -> dict[str, Row]:
        copy = self._copy
        rows = {row.id: row for row in copy.entries}
        names = {session.session_key: session.id for session in copy.sessions}
        blobs = {blob.sha256: blob.data for blob in copy.blobs}
        tree: dict[str, Row] = {}
        for entry_id, parent_id in parents_of(copy.lanes, copy.entries).items():
            row = rows[entry_id]
            entry = Entry(
                entry_id,
                parent_id,
                names.get(row.session_key),
                row.kind,
                row.role,
                row.source,
                row.depth,
                row.revision,
                row.ordinal,
                row.created_at,
                checked_text(row, blobs),
                row.extra,
            )
            totals = UsageTotals._make(row[11:21])
            before = NO_USAGE if parent_id is None else tree[parent_id].totals
            tree[entry_id] = Row(entry, totals.minus(before), totals, bool(row.counted), self._keys[row.session_key])
        return tree

    def _rebuild_session(self, row: SessionRow) -> Session:
        copy, key = self._copy, row.session_key
        changes = list(self._rebuild_changes(row))
        marks = self._marks.get(key, ())
        session = Session(
            _session_info(row, self._keys[key]),
            self._keys[key],
            self._keys[copy.tree_id],
            self._tree,
            task_depth=row.task_depth,
            created=[entry.id for entry in self._created.get(key, ())],
            changes=changes,
            retracted={mark.entry_id for mark in marks if mark.kind == "retracted"},
            labels={mark.entry_id: mark.value or "" for mark in marks if mark.kind == "label"},
            pins={mark.entry_id: mark.value or "on" for mark in marks if mark.kind == "pin"},
            links=[TaskLink(row.id, *link[1:]) for link in self._links.get(key, ())],
            requests={
                request.idempotency_key: Request(
                    Content(request.operation, bytes(request.digest)), _result(request.operation, request.result)
                )
                for request in self._requests.get(key, ())
            },
            notes={move.revision: MoveNote(move.undoes, move.moved_by, move.why) for move in self._moves.get(key, ())},
            marked_us={(mark.entry_id, mark.kind): mark.at for mark in marks},
            edits=[edit._replace(session_key=self._keys[key]) for edit in self._edits.get(key, ())],
            stamp=copy.head.fingerprint,
        )
        _replay(session, changes)
        return session

    def _rebuild_changes(self, session: SessionRow) -> Iterator[Change]:
        moves = {move.revision: move for move in self._moves.get(session.session_key, ())}
        added = groupby(self._created.get(session.session_key, ()), key=attrgetter("revision"))
        entries = {revision: tuple(self._tree[row.id].entry for row in rows) for revision, rows in added}
        for revision in range(1, session.revision + 1):
            moved, new = moves.get(revision), entries.get(revision, ())
            if moved is not None:
                reason = cast("MoveReason", moved.reason)
                yield Change(session.id, revision, reason, new, moved.from_entry, moved.to_entry, moved.at)
            elif new:
                appended: Literal["append"] = "append"
                parent, last = new[0].parent_id, new[-1]
                yield Change(session.id, revision, appended, new, parent, last.id, last.created_us)
            else:
                yield Change(session.id, revision, None)


def _by_session(rows: Iterable[OwnedRow]) -> dict[int, list[OwnedRow]]:
    """Return rows by the session that they belong to, by its key."""
    found: dict[int, list[OwnedRow]] = defaultdict(list)
    for row in rows:
        found[row.parent_key if isinstance(row, LinkRow) else row.session_key].append(row)
    return found


def _session_info(row: SessionRow, session_key: int) -> SessionInfo:
    return SessionInfo(
        session_key=session_key,
        id=row.id,
        scope=row.scope,
        key=row.key,
        title=row.title,
        kind=cast("SessionKind", row.kind),
        forked_from_session=row.forked_from_session,
        forked_from_entry=row.forked_from_entry,
        leaf_id=row.leaf,
        revision=row.revision,
        metadata_text=row.metadata,
        cwd=row.cwd,
        config_path=row.config_path,
        completed_us=row.completed_at,
        trashed_us=row.trashed_at,
        entry_count=row.entry_count,
        message_count=row.message_count,
        first_message=row.first_message,
        spent_tokens=row.spent_tokens,
        spent_picodollars=row.spent_cost,
        created_us=row.created_at,
        updated_us=row.updated_at,
        auto_title=row.auto_title,
        unpriced_calls=row.unpriced_calls,
        active_us=row.active_at,
        unknown_calls=row.unknown_calls,
    )


def _result(operation: str, text: str) -> Appended | Moved | str:
    """Return the first answer to a request, from the JSON that rows keep."""
    value: Any = pydantic_core.from_json(text)
    if operation == "append":
        ids, leaf, revision, on_branch, replaced = value
        return Appended(tuple(ids), leaf, revision, on_branch, surrogates_replaced=replaced)
    if operation == "move":
        return Moved(*value)
    return str(value)


def _replay(session: Session, changes: Iterable[Change]) -> None:
    """Rebuild the stacks of undo and redo from what was done."""
    for change in changes:
        if change.reason == "undo" and session.done:
            session.undone.append(session.done.pop())
        elif change.reason == "redo" and session.undone:
            session.done.append(session.undone.pop())
        elif change.reason not in (None, "branch", "undo", "redo"):
            retracted = change.from_id if change.reason == "retract" else None
            back = session.edits_at(change.revision) if change.reason == "back" else []
            brought_back = [
                entry_id for edit in back if edit.what == "retracted" for entry_id in decode_ids(edit.before)
            ]
            operation = Operation(change.revision, change.from_id, change.to_id, retracted, tuple(brought_back))
            session.done.append(operation)
            session.undone.clear()
