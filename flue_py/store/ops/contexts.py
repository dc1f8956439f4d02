"""A context: the latest compaction on a path, and the part of the path that it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from flue_py.core.jsontext import JsonObject, decode_intact, decode_json, decode_object, payload_digest
from flue_py.core.kinds import CONTEXT_KINDS, EXCLUSION
from flue_py.core.projection import RESTORES, context_of, pinned_ids, synthetic_message
from flue_py.core.sessions import (
    LeafChoice,
    MessagesRead,
    PathRead,
    ReadStamp,
    Stored,
    is_storable,
)
from flue_py.errors import CorruptStore
from flue_py.store.collector import collector_held
from flue_py.store.ops.attachments import Payloads, apart, checked_payload
from flue_py.store.ops.paths import (
    exclusions_on_path,
    named_on_path,
    path_entries,
    place_at,
    place_to_read,
    read_state_and_epoch,
    rows_of_path,
    spans_of,
    stretch_of,
)
from flue_py.store.ops.state import (
    checked_state,
    place,
    read_state,
)
from flue_py.store.schema.session_state import Position, SessionState
from flue_py.store.seam import Transaction
from flue_py.store.sql import read as read_sql
from flue_py.store.sql.rows import Compaction, StoredBody

_RESTORES = RESTORES.encode()


def read_context(tx: Transaction, session_id: str, leaf: LeafChoice, unless: ReadStamp | None) -> PathRead:
    """Return the kept part of a path and its latest compaction (see `Backend.read_context`)."""
    if unless is None and isinstance(leaf, Stored):
        state, epoch, compaction = _read_state_and_compaction(tx, session_id)
        at, position = state.leaf, state.position
    else:
        state, epoch = read_state_and_epoch(tx, session_id)
        at, position = place_to_read(tx, state, leaf)
        if ReadStamp(at, epoch) == unless:
            return PathRead(at, state.leaf, state.revision, unless, None)
        compaction = _latest_compaction(tx, state, position)
    stamp = ReadStamp(at, epoch)
    compaction = _in_effect(tx, state, compaction)
    if compaction is None:
        return PathRead(at, state.leaf, state.revision, stamp, path_entries(tx, state, position, -1))
    first, pinned = kept_by(tx, state, compaction)
    entries = path_entries(tx, state, position, first - 1)
    summary = next(entry for entry in entries if entry.depth == compaction.depth)
    if pinned and position is not None:
        named = named_on_path(tx, state, position, pinned, first - 1)
        entries = named + exclusions_on_path(tx, state, position, first - 1) + entries
        entries = list({entry.depth: entry for entry in sorted(entries, key=attrgetter("depth"))}.values())
    return PathRead(at, state.leaf, state.revision, stamp, entries, summary)


def read_messages(tx: Transaction, session_id: str, leaf: LeafChoice) -> MessagesRead:
    """Return the messages of a context (see `Backend.read_messages`): as `project`, from rows instead of entries."""
    state, at, position, compaction = place_and_compaction(tx, session_id, leaf)
    messages: list[JsonObject] | None = []
    if position is not None:
        summary_depth = -1 if compaction is None else compaction.depth
        first, pinned = (0, frozenset[str]()) if compaction is None else kept_by(tx, state, compaction)
        messages = None
        if not pinned:
            with collector_held(position.depth - first + 1):
                rows = rows_of_path(tx, state, position, first - 1, read_sql.LANE_BODIES, read_sql.SPANS_BODIES)
                payloads = Payloads(tx, state, stretch_of(state, position, first - 1))
                messages = _messages(tx, state.tree_id, rows, summary_depth, payloads)
    if messages is None:
        # What is pinned, excluded or damaged is found by ids, which are not among the bodies.
        tx.require_snapshot()
        read = read_context(tx, session_id, leaf, None)
        messages = [item.data for item in context_of(read.entries or (), read.compaction)]
    return MessagesRead(at, state.leaf, state.revision, messages)


def place_and_compaction(
    tx: Transaction, session_id: str, leaf: LeafChoice
) -> tuple[SessionState, str | None, Position | None, Compaction | None]:
    """Return a session, a leaf to read at, its place, and the compaction in effect there."""
    if isinstance(leaf, Stored):
        state, _, compaction = _read_state_and_compaction(tx, session_id)
        return state, state.leaf, state.position, _in_effect(tx, state, compaction)
    tx.require_snapshot()
    state = read_state(tx, session_id)
    at, position = place(tx, state, leaf)
    return state, at, position, _in_effect(tx, state, _latest_compaction(tx, state, position))


def _read_state_and_compaction(tx: Transaction, session_id: str) -> tuple[SessionState, int, Compaction | None]:
    """Return a session, the epoch, and the latest compaction on the path to its leaf."""
    found = tx.first(read_sql.SESSION_AND_COMPACTION, id=session_id) if is_storable(session_id) else None
    state, epoch, compaction = found or (None, 0, None)
    return checked_state(session_id, state), epoch, compaction


def _latest_compaction(tx: Transaction, state: SessionState, position: Position | None) -> Compaction | None:
    tx.require_snapshot()
    return None if position is None else tx.first(read_sql.LATEST_COMPACTION, **spans_of(state, position))


def latest_compaction_fields(tx: Transaction, state: SessionState, position: Position | None) -> JsonObject | None:
    """Return the fields of the compaction in effect at a place; None where there is none."""
    compaction = _in_effect(tx, state, _latest_compaction(tx, state, position))
    return None if compaction is None else _fields_of(tx, state, compaction)


def _in_effect(tx: Transaction, state: SessionState, latest: Compaction | None) -> Compaction | None:
    """Return the compaction whose summary counts: the latest on a path, or the one that this restores, if any."""
    if latest is None or (latest.payload is not None and _RESTORES not in latest.payload):
        return latest
    fields = _fields_of(tx, state, latest)
    if RESTORES not in fields:
        return latest
    restored = fields[RESTORES]
    if not isinstance(restored, str) or not is_storable(restored):
        return None
    return tx.first(read_sql.COMPACTION_ON_PATH, **place_at(state, latest.lane_id, latest.depth), entry_id=restored)


def _fields_of(tx: Transaction, state: SessionState, compaction: Compaction) -> JsonObject:
    _, _, entry_id, digest, payload, packed, blob = compaction
    return decode_object(checked_payload(tx, state, entry_id, digest, payload, packed, blob))


def _messages(
    tx: Transaction, tree_id: int, rows: Sequence[StoredBody], summary_depth: int, payloads: Payloads
) -> list[JsonObject] | None:
    """Return the messages that rows of bodies stand for, the summary at ``summary_depth`` before all others.

    None where an exclusion or a damaged payload is among them, or one whose attachments are lost.
    """
    messages = []
    summary: list[JsonObject] = []
    for depth, other_kind, created_at, digest, payload, packed, blob in rows:
        # What is not read along the way is not paid for: most rows are messages whose payload is text.
        if other_kind is not None and other_kind not in CONTEXT_KINDS and depth != summary_depth:
            if other_kind == EXCLUSION:
                return None
            continue
        data = payload
        if data is None:
            try:
                data = apart(tx, tree_id, packed, blob)
            except CorruptStore:
                return None
        if other_kind is None and (message := decode_intact(data, digest)) is not None:
            messages.append(message)
            continue
        if payload_digest(data) != digest:
            whole = payloads.whole(depth, digest, data)
            if whole is None:
                return None
            data = whole
        if other_kind is None:
            messages.append(decode_object(data))
        else:
            into = summary if depth == summary_depth else messages
            into.append(synthetic_message(other_kind, decode_json(data), created_at or 0))
    return summary + messages


def kept_by(tx: Transaction, state: SessionState, compaction: Compaction) -> tuple[int, frozenset[str]]:
    """Return the depth of the first kept entry, or of the compaction itself where it keeps nothing.

    And the ids of the entries that the compaction has pinned.
    """
    fields = _fields_of(tx, state, compaction)
    first_kept = fields.get("firstKeptEntryId")
    pinned = pinned_ids(fields)
    if not isinstance(first_kept, str) or not is_storable(first_kept):
        return compaction.depth, pinned
    where = place_at(state, compaction.lane_id, compaction.depth)
    (depth,) = tx.first(read_sql.DEPTH_ON_PATH, **where, entry_id=first_kept) or (compaction.depth,)
    return depth, pinned
