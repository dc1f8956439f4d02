"""A context: the latest compaction on a path, and the part of the path that it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from flue_py.collector import collector_held
from flue_py.core.entries import Entry
from flue_py.core.jsontext import JsonObject, decode_intact, decode_json, decode_object, payload_digest
from flue_py.core.kinds import CONTEXT_KINDS, EXCLUSION
from flue_py.core.layout import Gap, gaps_of, layout_of
from flue_py.core.projection import PROMPT, RESTORES, context_of, pinned_ids, synthetic_message
from flue_py.core.sessions import (
    LeafChoice,
    MessagesRead,
    PathRead,
    ReadStamp,
    Stored,
    is_storable,
)
from flue_py.errors import CorruptStore
from flue_py.store.ops.attachments import Payloads, apart, checked_payload
from flue_py.store.ops.paths import (
    exclusions_on_path,
    named_above,
    path_entries,
    path_stretch,
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


class Kept(NamedTuple):
    """What a compaction keeps of its path: the depth of the first kept entry, its own where it keeps nothing.

    ``gaps`` are the ranges in what is kept, ``named`` the entries that it names, root first. ``is_plain`` where the end
    of the path is all there is.
    """

    first: int
    gaps: tuple[Gap, ...] = ()
    named: tuple[Entry, ...] = ()
    is_plain: bool = True

    @property
    def end(self) -> int:
        """The depth from which on the path is kept without a gap."""
        return self.gaps[-1].last + 1 if self.gaps else self.first


EVERYTHING = Kept(0)


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
    compaction = in_effect(tx, state, compaction)
    if compaction is None or position is None:
        return PathRead(at, state.leaf, state.revision, stamp, path_entries(tx, state, position, -1, contents=False))
    entries = _kept_entries(tx, state, position, kept_by(tx, state, compaction))
    summary = next(entry for entry in entries if entry.depth == compaction.depth)
    return PathRead(at, state.leaf, state.revision, stamp, entries, summary)


def _kept_entries(tx: Transaction, state: SessionState, position: Position, kept: Kept) -> list[Entry]:
    """Return what a compaction keeps of a path, with what it names, and the exclusions, root first."""
    if kept.is_plain:
        return path_entries(tx, state, position, kept.first - 1, contents=False)
    entries = list(kept.named)
    begin = kept.first
    for gap in kept.gaps:
        if begin < gap.first:
            entries += path_stretch(tx, state, position, begin - 1, gap.first - 1, contents=False)
        begin = gap.last + 1
    entries += path_entries(tx, state, position, begin - 1, contents=False)
    entries += exclusions_on_path(tx, state, position, begin - 1)
    return list({entry.depth: entry for entry in sorted(entries, key=attrgetter("depth"))}.values())


def read_messages(tx: Transaction, session_id: str, leaf: LeafChoice) -> MessagesRead:
    """Return the messages of a context (see `Backend.read_messages`): as `project`, from rows instead of entries."""
    state, at, position, compaction = place_and_compaction(tx, session_id, leaf)
    messages: list[JsonObject] | None = []
    if position is not None:
        summary_depth = -1 if compaction is None else compaction.depth
        kept = EVERYTHING if compaction is None else kept_by(tx, state, compaction)
        first = kept.first
        messages = None
        if kept.is_plain:
            with collector_held(position.depth - first + 1):
                rows = rows_of_path(tx, state, position, first - 1, read_sql.LANE_BODIES, read_sql.SPANS_BODIES)
                payloads = Payloads(tx, state, stretch_of(state, position, first - 1), contents=False)
                messages = _messages(tx, state.tree_id, rows, summary_depth, payloads)
    if messages is None:
        # What is pinned, summarized in its place, excluded or damaged is found by ids, which are not among the bodies.
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
        return state, state.leaf, state.position, in_effect(tx, state, compaction)
    tx.require_snapshot()
    state = read_state(tx, session_id)
    at, position = place(tx, state, leaf)
    return state, at, position, in_effect(tx, state, _latest_compaction(tx, state, position))


def _read_state_and_compaction(tx: Transaction, session_id: str) -> tuple[SessionState, int, Compaction | None]:
    """Return a session, the epoch, and the latest compaction on the path to its leaf."""
    found = tx.first(read_sql.SESSION_AND_COMPACTION, id=session_id) if is_storable(session_id) else None
    state, epoch, compaction = found or (None, 0, None)
    return checked_state(session_id, state), epoch, compaction


def _latest_compaction(tx: Transaction, state: SessionState, position: Position | None) -> Compaction | None:
    tx.require_snapshot()
    return None if position is None else tx.first(read_sql.LATEST_COMPACTION, **spans_of(state, position))


def latest_compaction(tx: Transaction, state: SessionState, position: Position | None) -> tuple[str, JsonObject] | None:
    """Return the id and the fields of the compaction in effect at a place; None where there is none."""
    compaction = in_effect(tx, state, _latest_compaction(tx, state, position))
    return None if compaction is None else (compaction.id, fields_of(tx, state, compaction))


def in_effect(tx: Transaction, state: SessionState, latest: Compaction | None) -> Compaction | None:
    """Return the compaction whose summary counts: the latest on a path, or the one that this restores, if any."""
    if latest is None or (latest.payload is not None and _RESTORES not in latest.payload):
        return latest
    fields = fields_of(tx, state, latest)
    if RESTORES not in fields:
        return latest
    restored = fields[RESTORES]
    if not isinstance(restored, str) or not is_storable(restored):
        return None
    return tx.first(read_sql.COMPACTION_ON_PATH, **place_at(state, latest.lane_id, latest.depth), entry_id=restored)


def fields_of(tx: Transaction, state: SessionState, compaction: Compaction) -> JsonObject:
    """Return the fields of a compaction. Raises `CorruptStore`."""
    _, _, entry_id, digest, payload, packed, blob = compaction
    return decode_object(checked_payload(tx, state, entry_id, digest, payload, packed, blob))


def _messages(
    tx: Transaction, tree_id: int, rows: Sequence[StoredBody], summary_depth: int, payloads: Payloads
) -> list[JsonObject] | None:
    """Return the messages that rows of bodies stand for, the summary at ``summary_depth`` before all others.

    None where an exclusion, a compaction with a system message or a damaged payload is among them, or one whose
    attachments are lost.
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
            body = decode_json(data)
            if depth == summary_depth and isinstance(body, dict) and PROMPT in body:
                return None
            into = summary if depth == summary_depth else messages
            into.append(synthetic_message(other_kind, body, created_at or 0))
    return summary + messages


def kept_by(tx: Transaction, state: SessionState, compaction: Compaction) -> Kept:
    """Return what a compaction keeps of the path that it is on."""
    fields = fields_of(tx, state, compaction)
    layout, pinned = layout_of(compaction.id, fields), pinned_ids(fields)
    where = place_at(state, compaction.lane_id, compaction.depth)
    first_kept = layout.first_kept_id
    if layout.is_plain and not pinned:
        if first_kept is None or not is_storable(first_kept):
            return Kept(compaction.depth)
        (depth,) = tx.first(read_sql.DEPTH_ON_PATH, **where, entry_id=first_kept) or (compaction.depth,)
        return Kept(depth)
    names = {*layout.named, *pinned, first_kept or ""}
    named = {entry.id: entry for entry in named_above(tx, state, where, names, compaction.depth)}
    first = named.get(first_kept or "")
    kept_from = compaction.depth if first is None or first.depth >= compaction.depth else first.depth
    gaps = gaps_of(layout, named, kept_from, compaction.depth)
    return Kept(kept_from, tuple(gaps), tuple(named.values()), is_plain=False)
