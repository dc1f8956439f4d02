"""Reading: paths, contexts, windows and trees, as range scans over lanes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from operator import attrgetter, itemgetter
from typing import Literal, TypeVar

from flue_py.core.entries import Entry
from flue_py.core.jsontext import JsonObject, decode_json, decode_object, payload_digest
from flue_py.core.kinds import CONTEXT_KINDS, EXCLUSION
from flue_py.core.projection import context_of, pinned_ids, synthetic_message
from flue_py.core.sessions import (
    Change,
    LeafChoice,
    Mark,
    MessagesRead,
    PathRead,
    ReadStamp,
    Stored,
    TaskLink,
    is_storable,
    require_meant,
)
from flue_py.core.turns import begins_turn
from flue_py.core.usage import NO_USAGE, NOTHING_PAID, Usage, UsageWindow
from flue_py.errors import CorruptStore
from flue_py.store.collector import collector_held
from flue_py.store.ops.attachments import Payloads, apart, checked_payload
from flue_py.store.ops.marks import marks_of
from flue_py.store.ops.move import id_at, is_on_path
from flue_py.store.ops.sessions import get_session, require_session
from flue_py.store.ops.state import (
    checked_state,
    find_visible,
    held_by,
    place,
    read_state,
    see_entry,
    taken_ids,
)
from flue_py.store.schema.payloads import decode_payload
from flue_py.store.schema.session_state import Position, SessionState
from flue_py.store.seam import Statement, Transaction
from flue_py.store.sql import listing as listing_sql
from flue_py.store.sql import marks as marks_sql
from flue_py.store.sql import own as own_sql
from flue_py.store.sql import read as read_sql
from flue_py.store.sql import sessions as sessions_sql
from flue_py.store.sql import state as state_sql
from flue_py.store.sql import tasks as tasks_sql
from flue_py.store.sql.rows import Compaction, StoredBody, StoredEntry, Sums
from flue_py.store.sql.takes import SessionRevisionLast, TreeLaneDepth

_LAST_DEPTH = 2**62
_CREATOR = attrgetter("session_key")
_BY_DEPTH = itemgetter(0)  # what is read along a path has the depth first

OfPath = TypeVar("OfPath", StoredEntry, StoredBody)


def read_path(tx: Transaction, session_id: str, leaf: LeafChoice, unless: ReadStamp | None) -> PathRead:
    """Return the entries from root to leaf (see `Backend.read_path`)."""
    state, epoch = _read_state_and_epoch(tx, session_id)
    at, position = _place(tx, state, leaf)
    stamp = ReadStamp(at, epoch)
    if stamp == unless:
        return PathRead(at, state.leaf, state.revision, stamp, None)
    entries = _path_entries(tx, state, position, -1)
    return PathRead(at, state.leaf, state.revision, stamp, entries)


def read_path_since(tx: Transaction, session_id: str, since: str | None, leaf: LeafChoice) -> PathRead:
    """Return the entries after an anchor (see `Backend.read_path_since`)."""
    state, epoch = _read_state_and_epoch(tx, session_id)
    at, position = place(tx, state, leaf)
    entries: list[Entry] = []
    anchor = None if since is None else _ancestor(tx, state, since, position)
    if since is None or anchor is not None:
        entries = _path_entries(tx, state, position, -1 if anchor is None else anchor.depth)
    return PathRead(at, state.leaf, state.revision, ReadStamp(at, epoch), entries)


def read_context(tx: Transaction, session_id: str, leaf: LeafChoice, unless: ReadStamp | None) -> PathRead:
    """Return the kept part of a path and its latest compaction (see `Backend.read_context`)."""
    if unless is None and isinstance(leaf, Stored):
        state, epoch, compaction = _read_state_and_compaction(tx, session_id)
        at, position = state.leaf, state.position
    else:
        state, epoch = _read_state_and_epoch(tx, session_id)
        at, position = _place(tx, state, leaf)
        if ReadStamp(at, epoch) == unless:
            return PathRead(at, state.leaf, state.revision, unless, None)
        compaction = _latest_compaction(tx, state, position)
    stamp = ReadStamp(at, epoch)
    if compaction is None:
        return PathRead(at, state.leaf, state.revision, stamp, _path_entries(tx, state, position, -1))
    first, pinned = _kept_by(tx, state, compaction)
    entries = _path_entries(tx, state, position, first - 1)
    summary = next(entry for entry in entries if entry.depth == compaction.depth)
    if pinned and position is not None:
        named = named_on_path(tx, state, position, pinned, first - 1)
        entries = named + exclusions_on_path(tx, state, position, first - 1) + entries
        entries = list({entry.depth: entry for entry in sorted(entries, key=attrgetter("depth"))}.values())
    return PathRead(at, state.leaf, state.revision, stamp, entries, summary)


def named_on_path(
    tx: Transaction, state: SessionState, position: Position, ids: Iterable[str], last_depth: int
) -> list[Entry]:
    """Return those of some entries that lie on the path to a place, no deeper than ``last_depth``, root first."""
    named = json.dumps(sorted(each for each in ids if is_storable(each)))
    rows = tx.rows(read_sql.NAMED_ON_PATH, **_spans_of(state, position), ids=named, last_depth=last_depth)
    return _scattered(tx, state, rows)


def exclusions_on_path(tx: Transaction, state: SessionState, position: Position, last_depth: int) -> list[Entry]:
    """Return the exclusions on the path to a place, no deeper than ``last_depth``, root first."""
    rows = tx.rows(read_sql.EXCLUSIONS_ON_PATH, **_spans_of(state, position), last_depth=last_depth)
    return _scattered(tx, state, rows)


def path_stretch(tx: Transaction, state: SessionState, position: Position, above: int, last: int) -> list[Entry]:
    """Return the entries on the path to a place that lie deeper than ``above``, and no deeper than ``last``."""
    rows = tx.rows(read_sql.PATH_STRETCH, **_spans_of(state, position), low_depth=above, last_depth=last)
    return _scattered(tx, state, rows)


def _scattered(tx: Transaction, state: SessionState, rows: Sequence[StoredEntry]) -> list[Entry]:
    """Return entries of a path that need not follow each other, root first."""
    if rows:
        tx.require_snapshot()
    creators, payloads = _creators(tx, state, rows), Payloads(tx, state)
    return [_entry(payloads, row, creators) for row in sorted(rows, key=_BY_DEPTH)]


def read_messages(tx: Transaction, session_id: str, leaf: LeafChoice) -> MessagesRead:
    """Return the messages of a context (see `Backend.read_messages`): as `project`, from rows instead of entries."""
    if isinstance(leaf, Stored):
        state, _, compaction = _read_state_and_compaction(tx, session_id)
        at, position = state.leaf, state.position
    else:
        tx.require_snapshot()
        state = read_state(tx, session_id)
        at, position = place(tx, state, leaf)
        compaction = _latest_compaction(tx, state, position)
    messages: list[JsonObject] | None = []
    if position is not None:
        summary_depth = -1 if compaction is None else compaction.depth
        first, pinned = (0, frozenset[str]()) if compaction is None else _kept_by(tx, state, compaction)
        messages = None
        if not pinned:
            with collector_held(position.depth - first + 1):
                rows = _rows_of_path(tx, state, position, first - 1, read_sql.LANE_BODIES, read_sql.SPANS_BODIES)
                payloads = Payloads(tx, state, _stretch_of(state, position, first - 1))
                messages = _messages(tx, state.tree_id, rows, summary_depth, payloads)
    if messages is None:
        # What is pinned, excluded or damaged is found by ids, which are not among the bodies.
        tx.require_snapshot()
        read = read_context(tx, session_id, leaf, None)
        messages = [item.data for item in context_of(read.entries or (), read.compaction)]
    return MessagesRead(at, state.leaf, state.revision, messages)


def _read_state_and_epoch(tx: Transaction, session_id: str) -> tuple[SessionState, int]:
    found = tx.first(state_sql.SESSION_AND_EPOCH, id=session_id) if is_storable(session_id) else None
    state, epoch = found or (None, 0)
    return checked_state(session_id, state), epoch


def _read_state_and_compaction(tx: Transaction, session_id: str) -> tuple[SessionState, int, Compaction | None]:
    """Return a session, the epoch, and the latest compaction on the path to its leaf."""
    found = tx.first(read_sql.SESSION_AND_COMPACTION, id=session_id) if is_storable(session_id) else None
    state, epoch, compaction = found or (None, 0, None)
    return checked_state(session_id, state), epoch, compaction


def _latest_compaction(tx: Transaction, state: SessionState, position: Position | None) -> Compaction | None:
    tx.require_snapshot()
    return None if position is None else tx.first(read_sql.LATEST_COMPACTION, **_spans_of(state, position))


def latest_compaction_fields(tx: Transaction, state: SessionState, position: Position | None) -> JsonObject | None:
    """Return the fields of the latest compaction on the path to a place; None where there is none."""
    compaction = _latest_compaction(tx, state, position)
    return None if compaction is None else _fields_of(tx, state, compaction)


def _fields_of(tx: Transaction, state: SessionState, compaction: Compaction) -> JsonObject:
    _, _, entry_id, digest, payload, packed, blob = compaction
    return decode_object(checked_payload(tx, state, entry_id, digest, payload, packed, blob))


def _place(tx: Transaction, state: SessionState, leaf: LeafChoice) -> tuple[str | None, Position | None]:
    """Return a leaf to read at, and its place; on one snapshot where that has to be looked up."""
    if not isinstance(leaf, Stored):
        tx.require_snapshot()
    return place(tx, state, leaf)


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
        try:
            data = payload if payload is not None else apart(tx, tree_id, packed, blob)
        except CorruptStore:
            return None
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


def _kept_by(tx: Transaction, state: SessionState, compaction: Compaction) -> tuple[int, frozenset[str]]:
    """Return the depth of the first kept entry, or of the compaction itself where it keeps nothing.

    And the ids of the entries that the compaction has pinned.
    """
    fields = _fields_of(tx, state, compaction)
    first_kept = fields.get("firstKeptEntryId")
    pinned = pinned_ids(fields)
    if not isinstance(first_kept, str) or not is_storable(first_kept):
        return compaction.depth, pinned
    where = _place_of(state, compaction.lane_id, compaction.depth)
    (depth,) = tx.first(read_sql.DEPTH_ON_PATH, **where, entry_id=first_kept) or (compaction.depth,)
    return depth, pinned


def _stretch_of(state: SessionState, position: Position, above: int) -> read_sql.Stretch:
    return read_sql.Stretch(tree_id=state.tree_id, lane_id=position.lane_id, depth=position.depth, low_depth=above)


def _spans_of(state: SessionState, position: Position) -> TreeLaneDepth:
    return _place_of(state, position.lane_id, position.depth)


def _place_of(state: SessionState, lane_id: int, depth: int) -> TreeLaneDepth:
    return TreeLaneDepth(tree_id=state.tree_id, lane_id=lane_id, depth=depth)


def _path_entries(tx: Transaction, state: SessionState, position: Position | None, above: int) -> list[Entry]:
    """Return the entries of a path that lie deeper than ``above``, in order of depth."""
    if position is None:
        return []
    with collector_held(position.depth - above):
        return _entries_of_path(tx, state, position, above)


def _entries_of_path(tx: Transaction, state: SessionState, position: Position, above: int) -> list[Entry]:
    rows = _rows_of_path(tx, state, position, above, read_sql.LANE_RANGE, read_sql.SPANS_RANGE)
    creators, payloads = _creators(tx, state, rows), Payloads(tx, state, _stretch_of(state, position, above))
    return [_entry(payloads, row, creators) for row in rows]


def _rows_of_path(
    tx: Transaction,
    state: SessionState,
    position: Position,
    above: int,
    in_lane: Statement[..., OfPath],
    in_spans: Statement[..., OfPath],
) -> Sequence[OfPath]:
    """Return the rows of a path that lie deeper than ``above``: one range, or one for each lane it runs through."""
    rows: Sequence[OfPath]
    if position.parent_lane is None or position.fork_depth <= above:
        rows = tx.rows(in_lane, tree_id=state.tree_id, lane_id=position.lane_id, low=above, high=position.depth)
    else:
        rows = sorted(tx.rows(in_spans, **_spans_of(state, position), low_depth=above), key=_BY_DEPTH)
    if len(rows) != position.depth - above:
        # What is deleted while it is read is missing here: entries change in no other way.
        tx.require_snapshot()
    return rows


def _creators(tx: Transaction, state: SessionState, rows: Iterable[StoredEntry]) -> dict[int, str]:
    """Return the ids of the sessions that created these rows; a deleted creator is absent."""
    if set(map(_CREATOR, rows)) <= {state.key}:
        return {state.key: state.id}
    tx.require_snapshot()
    return dict(tx.rows(sessions_sql.SESSION_IDS, tree_id=state.tree_id))


def _entry(payloads: Payloads, row: StoredEntry, creators: dict[int, str]) -> Entry:
    depth, id_, _, parent, creator, kind, role, source, revision, ordinal, at, extra, digest, text, packed, blob = row
    payload = decode_payload(payloads.text(id_, digest, text, packed, blob, depth))
    return Entry(id_, parent, creators.get(creator), kind, role, source, depth, revision, ordinal, at, payload, extra)


def _ancestor(tx: Transaction, state: SessionState, entry_id: str, of: Position | None) -> Position | None:
    """Return the place of an entry that is ``of`` or an ancestor of it, or None."""
    found = find_visible(tx, state, entry_id)
    if of is None or found is None:
        return None
    return found if is_on_path(tx, state, found, of) else None


def read_usage(tx: Transaction, session_id: str, since: str | None, leaf: LeafChoice) -> UsageWindow:
    """Return a usage window (see `Backend.read_usage`)."""
    if isinstance(leaf, Stored) and since is not None and is_storable(session_id) and is_storable(since):
        ends = tx.first(read_sql.WINDOW, id=session_id, entry_id=since)
        if ends is not None:
            session_key, stored_leaf, before, until = ends
            require_meant(session_id, session_key)
            if before.lane_id == until.lane_id and before.depth <= until.depth:
                return _window(before, until, stored_leaf, since)
    tx.require_snapshot()
    state = read_state(tx, session_id)
    at, position = place(tx, state, leaf)
    if since is None:
        return _window(_NOTHING, position or _NOTHING, at, None)
    anchor = _ancestor(tx, state, since, position)
    if anchor is None:
        return UsageWindow(Usage(), at, since, on_path=False)
    return _window(anchor, position or _NOTHING, at, since)


def locate(tx: Transaction, session_id: str, leaf: LeafChoice, since: str | None) -> read_sql.Stretch | None:
    """Return where a stretch of path is, as statements over it take it; None where ``since`` is not on the path."""
    state = read_state(tx, session_id)
    _, position = place(tx, state, leaf)
    above = -1
    if since is not None:
        anchor = _ancestor(tx, state, since, position)
        if anchor is None:
            return None
        above = anchor.depth
    lane_id, depth = (-1, -1) if position is None else (position.lane_id, position.depth)
    return read_sql.Stretch(tree_id=state.tree_id, lane_id=lane_id, depth=depth, low_depth=above)


_NOTHING = Sums(-1, -1, NO_USAGE, NOTHING_PAID)


def _window(before: Position | Sums, until: Position | Sums, leaf: str | None, since: str | None) -> UsageWindow:
    """Return what lies between two places of a path."""
    used = until.totals.minus(before.totals)
    return UsageWindow(Usage.from_totals(used), leaf, since, paid=until.paid.minus(before.paid))


def read_turns(tx: Transaction, session_id: str, leaf: LeafChoice) -> list[Entry]:
    """Return the messages of the path that a turn begins with (see `Backend.read_turns`)."""
    state = read_state(tx, session_id)
    _, position = place(tx, state, leaf)
    if position is None:
        return []
    rows = sorted(tx.rows(read_sql.TURNS, **_spans_of(state, position)), key=_BY_DEPTH)
    creators, payloads = _creators(tx, state, rows), Payloads(tx, state)
    said = (_entry(payloads, row, creators) for row in rows)
    return [entry for entry in said if begins_turn(entry)]


def read_tree(tx: Transaction, session_id: str) -> list[Entry]:
    """Return every entry the session sees (see `Backend.read_tree`)."""
    state = read_state(tx, session_id)
    rows: list[StoredEntry] = []
    for lane_id, high in tx.rows(read_sql.HELD_SPANS, **held_by(state)):
        rows.extend(
            tx.rows(read_sql.LANE_RANGE, tree_id=state.tree_id, lane_id=lane_id, low=-1, high=min(high, _LAST_DEPTH))
        )
    retracted = {entry_id for (entry_id,) in tx.rows(marks_sql.RETRACTED_IDS, session_key=state.key)}
    creators, payloads = _creators(tx, state, rows), Payloads(tx, state)
    entries = [_entry(payloads, row, creators) for row in rows if row.id not in retracted]
    inherited = [entry for entry in entries if entry.session_id != state.id]
    own = [entry for entry in entries if entry.session_id == state.id]
    return sorted(inherited, key=attrgetter("depth")) + sorted(own, key=attrgetter("revision", "ordinal"))


def get_entry(tx: Transaction, session_id: str, entry_id: str) -> Entry | None:
    """Return an entry the session sees, or None."""
    state = read_state(tx, session_id)
    if find_visible(tx, state, entry_id) is None:
        return None
    row = tx.first(read_sql.ENTRY_BY_ID, tree_id=state.tree_id, entry_id=entry_id)
    if row is None:
        return None
    return _entry(Payloads(tx, state), row, _creators(tx, state, [row]))


def taken_entry_ids(tx: Transaction, session_id: str, ids: Sequence[str]) -> set[str]:
    """Return those of the ids that entries of the session's tree have (see `Backend.taken_entry_ids`)."""
    return taken_ids(tx, read_state(tx, session_id), ids)


def match_entry_ids(tx: Transaction, session_id: str, prefix: str, limit: int) -> list[str]:
    """Return ids of visible entries that start with a prefix, in order of id."""
    state = read_state(tx, session_id)
    matches: list[str] = []
    if not is_storable(prefix):
        return matches
    after = prefix
    while len(matches) < limit:
        end = end_of_prefix(prefix)
        rows = tx.rows(listing_sql.ENTRY_IDS_FROM, tree_id=state.tree_id, prefix=after, end_prefix=end, count=64)
        for (entry_id,) in rows:
            if len(matches) < limit and find_visible(tx, state, entry_id) is not None:
                matches.append(entry_id)
        if len(rows) < 64:
            break
        after = rows[-1][0] + "\x01"
    return matches


def end_of_prefix(prefix: str) -> str:
    """Return a text above every text that starts with ``prefix`` (by code point)."""
    return prefix + "\U0010ffff"


def is_ancestor(tx: Transaction, session_id: str, entry_id: str, of: str) -> bool:
    """Return whether one entry is another or an ancestor of it."""
    state = read_state(tx, session_id)
    see_entry(tx, state, entry_id)
    return _ancestor(tx, state, entry_id, see_entry(tx, state, of)) is not None


def common_ancestor(
    tx: Transaction, session_id: str, other_id: str, leaf: LeafChoice, other_leaf: LeafChoice
) -> str | None:
    """Return the deepest entry on two paths (see `Backend.common_ancestor`): where their spans end together."""
    state = read_state(tx, session_id)
    other = read_state(tx, other_id)
    _, position = place(tx, state, leaf)
    _, other_position = place(tx, other, other_leaf)
    if state.tree_id != other.tree_id or position is None or other_position is None:
        return None
    spans = dict(tx.rows(read_sql.SPANS, **_spans_of(state, position)))
    others = tx.rows(read_sql.SPANS, **_spans_of(other, other_position))
    shared = [(min(spans[lane_id], high), lane_id) for lane_id, high in others if lane_id in spans]
    if not shared:
        return None
    depth, lane_id = max(shared)
    return id_at(tx, state.tree_id, lane_id, depth)


def changes(tx: Transaction, session_id: str, after: int, limit: int) -> list[Change]:
    """Return the next revisions of a session (see `Backend.changes`)."""
    state = read_state(tx, session_id)
    last = min(after + limit, state.revision)
    if last <= after:
        return []
    where = SessionRevisionLast(session_key=state.key, revision=after, last_revision=last)
    moves = {move.revision: move for move in tx.rows(read_sql.MOVES_AFTER, **where)}
    added: dict[int, list[Entry]] = {}
    own, payloads = {state.key: state.id}, Payloads(tx, state)
    for row in tx.rows(own_sql.ENTRIES_OF_REVISIONS, **where, tree_id=state.tree_id, leaf=state.leaf):
        added.setdefault(row.revision, []).append(_entry(payloads, row, own))
    return [
        _change(state.id, revision, tuple(added.get(revision, ())), moves.get(revision))
        for revision in range(max(after, 0) + 1, last + 1)
    ]


def _change(session_id: str, revision: int, entries: tuple[Entry, ...], moved: read_sql.LeafMove | None) -> Change:
    if moved is not None:
        _, reason, from_id, to_id, at = moved
        return Change(session_id, revision, reason, entries, from_id, to_id, at)
    if not entries:
        return Change(session_id, revision, None)
    reason_append: Literal["append"] = "append"
    first, last = entries[0], entries[-1]
    return Change(session_id, revision, reason_append, entries, first.parent_id, last.id, last.created_us)


def match_session_ids(tx: Transaction, prefix: str, limit: int) -> list[str]:
    """Return session ids that start with a prefix, in order of id."""
    if not is_storable(prefix):
        return []
    end = end_of_prefix(prefix)
    found = tx.rows(listing_sql.SESSION_IDS_FROM, prefix=prefix, end_prefix=end, count=limit)
    return [session_id for (session_id,) in found]


def task_links(tx: Transaction, session_id: str) -> list[TaskLink]:
    """Return a session's task links, in the order they were made."""
    require_session(tx, session_id)
    return list(tx.rows(tasks_sql.LINKS_OF, id=session_id))


def task_parents(tx: Transaction, session_id: str) -> list[TaskLink]:
    """Return the links that point to a session, by parent id."""
    require_session(tx, session_id)
    return list(tx.rows(tasks_sql.LINKS_TO, id=session_id))


def read_marks(tx: Transaction, session_id: str) -> list[Mark]:
    """Return the marks that a session sees, by entry id and kind."""
    return marks_of(tx, read_state(tx, session_id))


def read_revision(tx: Transaction, session_id: str) -> int | None:
    """Return the session's revision, or None where it is gone. Raises `SessionNotFound` as `get_session` does."""
    info = get_session(tx, session_id, None)
    return None if info is None else info.revision
