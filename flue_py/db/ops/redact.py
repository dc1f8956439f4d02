"""Redactions: the payloads of entries give way to tombstones, with everything that is derived from them."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import TypeAlias

from flue_py.core.chain import HALF
from flue_py.core.context import merged_range_of
from flue_py.core.entries import Entry, entry_prefix, layout_of, referred_artifact
from flue_py.core.erasure import Needles, Redaction, extra_left, is_tombstone, line_of, mark_of, texts_gone, tombstone
from flue_py.core.json import JsonObject, NamedTuple, decode_json, decode_object, to_json
from flue_py.core.kinds import ARTIFACT, COMPACTION, MESSAGE, SUMMARIES, message_preview, message_text, message_title
from flue_py.core.sessions import Edit, Expected, Note, SessionInfo, is_storable
from flue_py.db import sql
from flue_py.db.ops.base import blob_data, checked_payload, entries_of_rows, find_held, read_state, spans_of
from flue_py.db.ops.delete import DELETE_UNUSED_BLOB, LOCK_BLOB, begin_erasure
from flue_py.db.ops.documents import check_holds
from flue_py.db.ops.edit import UPDATE_AUTO_TITLE
from flue_py.db.ops.read import FOUND_ENTRY
from flue_py.db.ops.seals import renew_heads, seal_anew, without_seals
from flue_py.db.ops.sessions import write_edits
from flue_py.db.ops.verify import lock_tree
from flue_py.db.payloads import damaged_rows, decode_payload
from flue_py.db.runner import Nothing, Row, SessionState, Sources, Transaction
from flue_py.db.sql import StoredEntry, statement
from flue_py.errors import EntryNotFound

TREE_OF = statement(tuple[int])("SELECT s.tree_id FROM sessions s WHERE s.id = :id")
ARTIFACT_ENTRIES = statement(StoredEntry)(
    f"SELECT {sql.ENTRY} FROM entries e WHERE e.tree_id = :tree_id AND e.id > :after AND e.id < :before"
    f" AND e.kind = '{ARTIFACT}'"
)
_KINDS = ", ".join(f"'{kind}'" for kind in sorted(SUMMARIES))
SUMMARY_ENTRIES = statement(StoredEntry)(
    f"SELECT {sql.ENTRY} FROM entries e WHERE e.tree_id = :tree_id AND e.kind IN ({_KINDS})"
)
PUT_TOMBSTONE = statement(Nothing)(
    "UPDATE entries SET payload = :payload, packed = NULL, blob = NULL, extra = :extra"
    " WHERE tree_id = :tree_id AND lane_id = :lane_id AND depth = :depth"
)
DROP_ATTACHMENTS = statement(tuple[bytes])(
    "DELETE FROM attachments WHERE tree_id = :tree_id AND lane_id = :lane_id AND depth = :depth RETURNING sha256"
)


_NAVIGATED = 5
"""How many fields of going elsewhere are written down, the draft as the last one."""


SESSIONS_OF_TREE = statement(Row)(
    f"SELECT {sql.SESSION} FROM sessions s WHERE s.tree_id = :tree_id ORDER BY s.created_at, s.session_key"
)
USER_MESSAGES = statement(StoredEntry)(
    f"SELECT {sql.ENTRY} FROM entries e WHERE e.tree_id = :tree_id AND e.session_key = :session_key"
    f" AND e.kind = '{MESSAGE}' AND e.role = 'user' ORDER BY e.revision, e.ordinal"
)
SET_FIRST_MESSAGE = statement(Nothing)("UPDATE sessions SET first_message = :text WHERE session_key = :session_key")
# What the title was before, and after, is in the log.
DROP_AUTO_TITLES = statement(Nothing)(
    'UPDATE session_edits SET "before" = NULL, "after" = NULL'
    " WHERE session_key = :session_key AND what = 'auto_title'"
)
# A batch that navigated keeps the text of the entry that it went before.
RESULTS_WITH = statement(tuple[int, str, str])(
    "SELECT r.session_key, r.idempotency_key, r.result FROM sessions s JOIN requests r ON r.session_key = s.session_key"
    f" WHERE s.tree_id = :tree_id AND r.operation = 'atomic' AND {sql.PLACE_IN}(r.result, :text) > 0"
)
SET_RESULT = statement(Nothing)(
    "UPDATE requests SET result = :result WHERE session_key = :session_key AND idempotency_key = :idempotency_key"
)
NEXT_EPOCH = statement(Nothing)("UPDATE flue_store SET value = value + 1 WHERE name = 'epoch'")
# A copy of a whole path has the same first halves; one of a single entry names it beside its payload.
COPIES = statement(tuple[str, str | None])(
    "SELECT e.id, COALESCE(c.id, (SELECT MIN(s.id) FROM sessions s WHERE s.tree_id = e.tree_id)) FROM entries e"
    " LEFT JOIN sessions c ON c.session_key = e.session_key WHERE NOT (e.tree_id = :tree_id AND e.id = :entry_id)"
    f" AND (e.id = :entry_id OR substr({sql.DIGEST}, 1, {HALF}) = :digest OR {sql.PLACE_IN}(e.extra, :text) > 0)"
    " ORDER BY 2, 1"
)


_Spans: TypeAlias = dict[int, int]
"""A path, of each lane the depth to which it goes there."""


class _Taken(NamedTuple):
    """An entry that is redacted: its row, its text, and what its payload says."""

    row: StoredEntry
    text: str
    fields: JsonObject


def redact(
    tx: Transaction,
    sources: Sources,
    session_id: str,
    entry_ids: Sequence[str],
    expected: Expected,
    note: Note,
    needles: Needles | None,
    despite: Collection[str],
) -> Redaction:
    """Put tombstones in the place of payloads (see `Backend.redact`).

    ``needles`` take all that goes; without them it is a dry run.
    """
    if needles is not None:
        _lock_tree(tx, session_id)
    state = read_state(tx, session_id)
    state.require(expected)
    taken, tombstones = _taken(tx, state, entry_ids)
    sessions = [sql.session_of(tx.chain, row) for row in tx.rows(SESSIONS_OF_TREE, tree_id=state.tree_id)]
    ids = tuple(item.row.id for item in taken)
    rows = [*(item.row for item in taken), *tombstones]
    seen_by = tuple(_seen_by(tx, state, sessions, rows))
    if taken:
        check_holds(tx, {session.scope for session in sessions if session.id in seen_by}, seen_by, despite)
    revision = state.revision
    if taken and needles is not None:
        begin_erasure(tx)
        mark = mark_of(note, sources.now_us())
        _put_tombstones(tx, state, taken, mark, needles)
        keys = {state.key, *(item.row.session_key for item in taken)}
        edit = Edit("redacted", None, None, to_json(ids).decode())
        for session in sessions:
            if session.session_key in keys:
                _drop_derived(tx, state, session, taken, needles)
                renew_heads(tx, [session.session_key])
                write_edits(tx, sources, read_state(tx, session.id), [edit], note)
        tx.run(NEXT_EPOCH)
        tx.states.clear()
        revision += 1
    return Redaction(
        state.id,
        ids,
        tuple(row.id for row in tombstones),
        tuple(_may_quote(tx, state, rows)),
        seen_by,
        tuple(_copies(tx, state, rows)),
        revision,
    )


def _lock_tree(tx: Transaction, session_id: str) -> None:
    for (tree_id,) in tx.rows(TREE_OF, id=session_id) if is_storable(session_id) else ():
        lock_tree(tx, tree_id)


def _taken(tx: Transaction, state: SessionState, entry_ids: Sequence[str]) -> tuple[list[_Taken], list[StoredEntry]]:
    """Return the entries to be redacted, with the artifacts that hold the rest of them; and the tombstones."""
    rows: dict[str, StoredEntry] = {}
    for entry_id in entry_ids:
        row = tx.first(FOUND_ENTRY, tree_id=state.tree_id, entry_id=entry_id) if is_storable(entry_id) else None
        if row is None or find_held(tx, state, entry_id)[0] is None:
            raise EntryNotFound(state.id, entry_id)
        rows[entry_id] = row
    taken, tombstones = list[_Taken](), list[StoredEntry]()
    waiting = [*rows.values()]
    while waiting:
        row = waiting.pop(0)
        text = decode_payload(checked_payload(tx, state, row))
        if is_tombstone(row.kind, text):
            tombstones.append(row)
            continue
        value = decode_json(text)
        fields = value if isinstance(value, dict) else {}
        taken.append(_Taken(row, text, fields))
        if (artifact_id := referred_artifact(fields)) is not None:
            begin = entry_prefix(artifact_id)
            parts = tx.rows(ARTIFACT_ENTRIES, tree_id=state.tree_id, after=begin, before=f"{begin[:-1]}.")
            waiting += [part for part in parts if part.id not in rows]
            rows |= {part.id: part for part in parts}
    return taken, tombstones


def _put_tombstones(
    tx: Transaction, state: SessionState, taken: Sequence[_Taken], mark: JsonObject, needles: Needles
) -> None:
    """Write the tombstones, and delete what only the payloads held."""
    blobs: set[bytes] = set()
    for row, text, fields in taken:
        where = {"tree_id": state.tree_id, "lane_id": row.lane_id, "depth": row.depth}
        blobs.update(bytes(sha256) for (sha256,) in tx.rows(DROP_ATTACHMENTS, **where))
        blobs.update([row.blob] if row.blob is not None else ())
        left = tombstone(row.kind, fields, mark)
        payload = tx.chain.erased_text(row.digest, to_json(left)).decode()
        needles.add(row.packed, *texts_gone(decode_json(text), left))
        extra = extra_left(row.extra)
        if extra is not None and extra != row.extra:
            needles.add(row.extra)
            extra = tx.chain.erased_fields(row.digest, row.digest_above, row.fields, extra)
        # As text, however long it is: any tool can read it.
        tx.run(PUT_TOMBSTONE, **where, payload=payload, extra=extra)
        if row.kind == MESSAGE and (draft := message_text(fields)):
            _drop_drafts(tx, state, draft, line_of(mark))
    unused = [{"tree_id": state.tree_id, "sha256": sha256} for sha256 in sorted(blobs)]
    if not tx.is_alone:
        tx.run_many(LOCK_BLOB, unused)
    gone = [(sha256, blob_data(tx, state.tree_id, sha256)) for sha256 in sorted(blobs)]
    tx.run_many(DELETE_UNUSED_BLOB, unused)
    needles.add(*(data for sha256, data in gone if blob_data(tx, state.tree_id, sha256) is None))


def _drop_drafts(tx: Transaction, state: SessionState, text: str, line: str) -> None:
    for key, idempotency_key, result in tx.rows(RESULTS_WITH, tree_id=state.tree_id, text=to_json(text).decode()):
        outcomes = [
            [*outcome[:-1], line] if isinstance(outcome, list) and outcome[-1:] == [text] and len(outcome) == _NAVIGATED
            else outcome
            for outcome in json.loads(result)
        ]  # fmt: skip
        tx.run(SET_RESULT, session_key=key, idempotency_key=idempotency_key, result=to_json(outcomes).decode())


def _drop_derived(
    tx: Transaction, state: SessionState, session: SessionInfo, taken: Sequence[_Taken], needles: Needles
) -> None:
    """Take from a session's row what was made of its entries: the preview, and a title that a program made of it."""
    first_messages = _first_messages(tx, state, session.session_key)
    is_first = session.first_message not in first_messages
    if is_first:
        needles.add(session.first_message)
        tx.run(SET_FIRST_MESSAGE, session_key=session.session_key, text=first_messages[0])
    for row, text, fields in taken:
        if row.session_key != session.session_key or row.kind != MESSAGE:
            continue
        own = message_text(fields)
        if session.auto_title and (
            is_first or session.auto_title in own or to_json(session.auto_title) in text.encode()
        ):
            needles.add(session.auto_title)
            tx.run(UPDATE_AUTO_TITLE, session_key=row.session_key, auto_title=None)
            if without_seals(tx, [row.session_key]):
                raise damaged_rows(session.id)
            tx.run(DROP_AUTO_TITLES, session_key=row.session_key)
            seal_anew(tx, [row.session_key])


def _first_messages(tx: Transaction, state: SessionState, session_key: int) -> tuple[str | None, ...]:
    """Return what a session may list as its first message (see `verify`): without cuts, and as a line."""
    for row in chain.from_iterable(tx.pages(USER_MESSAGES, tree_id=state.tree_id, session_key=session_key)):
        message = decode_object(decode_payload(checked_payload(tx, state, row)))
        if (title := message_title(message)) is not None:
            return title, message_preview(message_text(message))
    return (None,)


def _spans(tx: Transaction, state: SessionState, entry_id: str | None) -> _Spans:
    """Return the path to an entry; nothing if it is not in the tree."""
    row = None if entry_id is None else tx.first(sql.ENTRY_POSITION, tree_id=state.tree_id, entry_id=entry_id)
    return {} if row is None else dict(tx.rows(sql.SPANS, **spans_of(state, row.position)))


def _may_quote(tx: Transaction, state: SessionState, rows: Sequence[StoredEntry]) -> Iterator[str]:
    """Yield the summaries that were made over one of these entries, and are not among them."""
    ids = {row.id for row in rows}
    summaries = entries_of_rows(tx, state, tx.rows(SUMMARY_ENTRIES, tree_id=state.tree_id)) if rows else []
    for summary in summaries:
        if summary.id in ids or is_tombstone(summary.kind, summary.payload):
            continue
        paths, low, own = _stretch(tx, state, summary)
        if any(_is_on(row, paths) and row.depth < low and not _is_on(row, own) for row in rows):
            yield summary.id


def _stretch(tx: Transaction, state: SessionState, summary: Entry) -> tuple[list[_Spans], int, list[_Spans]]:
    """Return the paths that a summary was made of, above which depth, and the paths that it was not made of."""
    own, fields = _spans(tx, state, summary.id), summary.fields
    if summary.kind == COMPACTION:
        layout = layout_of(summary.id, fields)
        first_kept = _spans(tx, state, layout.first_kept_id) if layout.is_plain else {}
        return [own], max(first_kept.values(), default=summary.depth), []
    merged = merged_range_of(summary)
    names = (fields.get("fromId"), fields.get("abandonedLeafId"), None if merged is None else merged.leaf_id)
    return [_spans(tx, state, name) for name in names if isinstance(name, str)], sys.maxsize, [own]


def _is_on(row: StoredEntry, paths: Sequence[_Spans]) -> bool:
    return any(row.depth <= path.get(row.lane_id, -1) for path in paths)


def _seen_by(
    tx: Transaction, state: SessionState, sessions: Sequence[SessionInfo], rows: Sequence[StoredEntry]
) -> Iterator[str]:
    yield state.id
    for session in sessions:
        where = {"session_key": session.session_key, "leaf": session.leaf_id}
        where |= {"tree_id": state.tree_id, "forked_from_entry": session.forked_from_entry}
        if session.id != state.id and any(_is_on(row, [dict(tx.rows(sql.HELD_SPANS, **where))]) for row in rows):
            yield session.id


def _copies(tx: Transaction, state: SessionState, rows: Sequence[StoredEntry]) -> Iterator[tuple[str, str]]:
    for row in rows:
        named = {"tree_id": state.tree_id, "entry_id": row.id, "text": f'"entry":{json.dumps(row.id)}'}
        for entry_id, session_id in tx.rows(COPIES, **named, digest=row.digest[:HALF]):
            yield session_id or "", entry_id
