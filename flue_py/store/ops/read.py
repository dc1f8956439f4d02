"""Reading: paths, contexts, windows and trees, as range scans over lanes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Literal, NamedTuple, cast

from flue_py.core.entries import EXCLUSION, Entry
from flue_py.core.jsontext import JsonObject, decode_json, decode_object, payload_digest
from flue_py.core.kinds import CONTEXT_KINDS
from flue_py.core.listing import Listing, Place, read_cursor, sort_value, write_cursor
from flue_py.core.projection import context_of, pinned_ids, synthetic_message
from flue_py.core.sessions import (
    Change,
    LeafChoice,
    Mark,
    MessagesRead,
    MoveReason,
    PathRead,
    ReadStamp,
    SessionPage,
    Stored,
    TaskLink,
    is_storable,
    require_meant,
)
from flue_py.core.turns import begins_turn
from flue_py.core.usage import NO_USAGE, NOTHING_PAID, Paid, Usage, UsageTotals, UsageWindow
from flue_py.errors import CorruptStore, InvalidArgument
from flue_py.store.collector import collector_held
from flue_py.store.ops.move import parent_id
from flue_py.store.ops.sessions import get_session, require_session, session_info
from flue_py.store.ops.state import (
    find_visible,
    place,
    read_state,
    read_state_with,
    see_entry,
    taken_ids,
)
from flue_py.store.schema.payloads import MISMATCH, damaged_entry, decode_payload, unpack, unpack_blob
from flue_py.store.schema.session_state import Position, SessionState
from flue_py.store.seam import Row, Statement, Transaction
from flue_py.store.sql import listing as listing_sql
from flue_py.store.sql import marks as marks_sql
from flue_py.store.sql import move as move_sql
from flue_py.store.sql import read as read_sql
from flue_py.store.sql import sessions as sessions_sql
from flue_py.store.sql import state as state_sql
from flue_py.store.sql import tasks as tasks_sql

# Where these columns are in parts_sql.ENTRY_COLUMNS; the depth is first in whatever is read along a path.
_DEPTH, _ID, _LANE, _CREATOR, _REVISION = 0, 1, 2, 3, 7
# The same in the rows of read_sql.LATEST_COMPACTION. Every row that has a payload ends as `checked_payload` says.
_COMPACTION_LANE, _COMPACTION_ID = 1, 2
_LAST_DEPTH = 2**62


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
    summary = next(entry for entry in entries if entry.depth == compaction[_DEPTH])
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
    where = {**_spans_of(state, position), "ids": named, "last_depth": last_depth}
    return _scattered(tx, state, tx.rows(read_sql.NAMED_ON_PATH, where))


def exclusions_on_path(tx: Transaction, state: SessionState, position: Position, last_depth: int) -> list[Entry]:
    """Return the exclusions on the path to a place, no deeper than ``last_depth``, root first."""
    where = {**_spans_of(state, position), "last_depth": last_depth}
    return _scattered(tx, state, tx.rows(read_sql.EXCLUSIONS_ON_PATH, where))


def path_stretch(tx: Transaction, state: SessionState, position: Position, above: int, last: int) -> list[Entry]:
    """Return the entries on the path to a place that lie deeper than ``above``, and no deeper than ``last``."""
    where = {**_spans_of(state, position), "low_depth": above, "last_depth": last}
    return _scattered(tx, state, tx.rows(read_sql.PATH_STRETCH, where))


def _scattered(tx: Transaction, state: SessionState, rows: Sequence[Row]) -> list[Entry]:
    """Return entries of a path that need not follow each other, root first."""
    if rows:
        tx.require_snapshot()
    creators = _creators(tx, state, rows)
    return [
        _entry(tx, state, row, parent_id(tx, state.tree_id, row[_LANE], row[_DEPTH]), creators)
        for row in sorted(rows, key=itemgetter(_DEPTH))
    ]


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
        summary_depth = -1 if compaction is None else int(compaction[_DEPTH])
        first, pinned = (0, frozenset[str]()) if compaction is None else _kept_by(tx, state, compaction)
        messages = None
        if not pinned:
            with collector_held(position.depth - first + 1):
                rows = _rows_of_path(tx, state, position, first - 1, read_sql.LANE_BODIES, read_sql.SPANS_BODIES)
                messages = _messages(tx, state.tree_id, rows, summary_depth)
    if messages is None:
        # What is pinned, excluded or damaged is told by ids, which are not among the bodies.
        tx.require_snapshot()
        read = read_context(tx, session_id, leaf, None)
        messages = [item.data for item in context_of(read.entries or (), read.compaction)]
    return MessagesRead(at, state.leaf, state.revision, messages)


def _read_state_and_epoch(tx: Transaction, session_id: str) -> tuple[SessionState, int]:
    state, (epoch,) = read_state_with(tx, session_id, state_sql.SESSION_AND_EPOCH)
    return state, int(epoch or 0)


def _read_state_and_compaction(tx: Transaction, session_id: str) -> tuple[SessionState, int, Row | None]:
    """Return a session, the epoch, and the latest compaction on the path to its leaf."""
    state, found = read_state_with(tx, session_id, read_sql.SESSION_AND_COMPACTION)
    return state, int(found[0] or 0), None if found[1] is None else found[1:]


def _latest_compaction(tx: Transaction, state: SessionState, position: Position | None) -> Row | None:
    tx.require_snapshot()
    return None if position is None else tx.first(read_sql.LATEST_COMPACTION, _spans_of(state, position))


def latest_compaction_fields(tx: Transaction, state: SessionState, position: Position | None) -> JsonObject | None:
    """Return the fields of the latest compaction on the path to a place; None where there is none."""
    row = _latest_compaction(tx, state, position)
    return None if row is None else decode_object(checked_payload(tx, state, row[_COMPACTION_ID], row))


def _place(tx: Transaction, state: SessionState, leaf: LeafChoice) -> tuple[str | None, Position | None]:
    """Return a leaf to read at, and its place; on one snapshot where that has to be looked up."""
    if not isinstance(leaf, Stored):
        tx.require_snapshot()
    return place(tx, state, leaf)


def _messages(tx: Transaction, tree_id: int, rows: Sequence[Row], summary_depth: int) -> list[JsonObject] | None:
    """Return the messages that rows of bodies stand for, the summary at ``summary_depth`` before all others.

    None where an exclusion or a damaged payload is among them.
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
            data = payload if payload is not None else _apart(tx, tree_id, packed, blob)
        except CorruptStore:
            return None
        if payload_digest(data) != digest:
            return None
        if other_kind is None:
            messages.append(decode_object(data))
        else:
            into = summary if depth == summary_depth else messages
            into.append(synthetic_message(other_kind, decode_json(data), created_at))
    return summary + messages


def _kept_by(tx: Transaction, state: SessionState, compaction: Row) -> tuple[int, frozenset[str]]:
    """Return the depth of the first kept entry, or of the compaction itself where it keeps nothing.

    And the ids of the entries that the compaction has pinned.
    """
    fields = decode_object(checked_payload(tx, state, compaction[_COMPACTION_ID], compaction))
    first_kept = fields.get("firstKeptEntryId")
    pinned = pinned_ids(fields)
    at_compaction = int(compaction[_DEPTH])
    if not isinstance(first_kept, str) or not is_storable(first_kept):
        return at_compaction, pinned
    where = {**_place_of(state, compaction[_COMPACTION_LANE], at_compaction), "entry_id": first_kept}
    row = tx.first(read_sql.DEPTH_ON_PATH, where)
    return at_compaction if row is None else int(row[0]), pinned


def _spans_of(state: SessionState, position: Position) -> dict[str, object]:
    return _place_of(state, position.lane_id, position.depth)


def _place_of(state: SessionState, lane_id: int, depth: int) -> dict[str, object]:
    return {"tree_id": state.tree_id, "lane_id": lane_id, "depth": depth}


def _path_entries(tx: Transaction, state: SessionState, position: Position | None, above: int) -> list[Entry]:
    """Return the entries of a path that lie deeper than ``above``, in order of depth."""
    if position is None:
        return []
    with collector_held(position.depth - above):
        return _entries_of_path(tx, state, position, above)


def _entries_of_path(tx: Transaction, state: SessionState, position: Position, above: int) -> list[Entry]:
    rows = _rows_of_path(tx, state, position, above, read_sql.LANE_RANGE, read_sql.SPANS_RANGE)
    if not rows:
        return []
    parent = None
    if above >= 0:
        parent = parent_id(tx, state.tree_id, rows[0][_LANE], rows[0][_DEPTH])
        if parent is None:
            tx.require_snapshot()
    creators = _creators(tx, state, rows)
    entries = []
    for row in rows:
        entries.append(_entry(tx, state, row, parent, creators))
        parent = row[_ID]
    return entries


def _rows_of_path(
    tx: Transaction, state: SessionState, position: Position, above: int, in_lane: Statement, in_spans: Statement
) -> Sequence[Row]:
    """Return the rows of a path that lie deeper than ``above``: one range, or one for each lane it runs through."""
    where = {"tree_id": state.tree_id, "lane_id": position.lane_id}
    if position.parent_lane is None or position.fork_depth <= above:
        rows = tx.rows(in_lane, {**where, "low": above, "high": position.depth})
    else:
        rows = tx.rows(in_spans, {**where, "depth": position.depth, "low_depth": above})
        rows = sorted(rows, key=itemgetter(_DEPTH))
    if len(rows) != position.depth - above:
        # What is deleted while it is read is missing here: entries change in no other way.
        tx.require_snapshot()
    return rows


def _creators(tx: Transaction, state: SessionState, rows: Iterable[Row]) -> dict[int, str]:
    """Return the ids of the sessions that created these rows; a deleted creator is absent."""
    if all(row[_CREATOR] == state.key for row in rows):
        return {state.key: state.id}
    tx.require_snapshot()
    return dict(cast("Sequence[tuple[int, str]]", tx.rows(sessions_sql.SESSION_IDS, {"tree_id": state.tree_id})))


def _entry(tx: Transaction, state: SessionState, row: Row, parent: str | None, creators: dict[int, str]) -> Entry:
    depth, id_, _, creator, kind, role, source, revision, ordinal, created_at, extra = row[:-4]
    payload = decode_payload(checked_payload(tx, state, id_, row))
    return Entry(
        id_, parent, creators.get(creator), kind, role, source, depth, revision, ordinal, created_at, payload, extra
    )


def checked_payload(tx: Transaction, state: SessionState, entry_id: str, row: Sequence[Any]) -> bytes:
    """Return the text of an entry's payload, from a row that ends with its digest and the payload's three columns.

    Raises `CorruptStore`, naming the entry, where the payload cannot be read or is not what its digest was made of.
    """
    digest, payload, packed, blob = row[-4:]
    try:
        data = payload if payload is not None else _apart(tx, state.tree_id, packed, blob)
    except CorruptStore as error:
        raise damaged_entry(entry_id, f"cannot be read ({error})", state.id) from error
    if payload_digest(data) != digest:
        raise damaged_entry(entry_id, MISMATCH, state.id)
    return bytes(data)


def _apart(tx: Transaction, tree_id: int, packed: bytes | None, blob: bytes | None) -> bytes:
    """Return the text of a payload that is packed in its row, or a blob."""
    if packed is not None:
        return unpack(packed)
    row = tx.first(read_sql.BLOB_DATA, {"tree_id": tree_id, "sha256": blob})
    if row is None:
        tx.require_snapshot()
    return unpack_blob(b"" if blob is None else blob, None if row is None else row[0])


def _ancestor(tx: Transaction, state: SessionState, entry_id: str, of: Position | None) -> Position | None:
    """Return the place of an entry that is ``of`` or an ancestor of it, or None."""
    found = find_visible(tx, state, entry_id)
    if of is None or found is None:
        return None
    if found.lane_id == of.lane_id:
        return found if found.depth <= of.depth else None
    where = {**_spans_of(state, of), "other_lane": found.lane_id, "other_depth": found.depth}
    return found if tx.first(move_sql.IS_ON_PATH, where) is not None else None


def read_usage(tx: Transaction, session_id: str, since: str | None, leaf: LeafChoice) -> UsageWindow:
    """Return a usage window (see `Backend.read_usage`)."""
    if isinstance(leaf, Stored) and since is not None and is_storable(session_id) and is_storable(since):
        row = tx.first(read_sql.WINDOW, {"id": session_id, "entry_id": since})
        if row is not None:
            require_meant(session_id, row[0])
        window = _window_in_lane(row, since)
        if window is not None:
            return window
    tx.require_snapshot()
    state = read_state(tx, session_id)
    at, position = place(tx, state, leaf)
    if since is None:
        return _window(_NOTHING, position or _NOTHING, at, None)
    anchor = _ancestor(tx, state, since, position)
    if anchor is None:
        return UsageWindow(Usage(), at, since, on_path=False)
    return _window(anchor, position or _NOTHING, at, since)


def locate(tx: Transaction, session_id: str, leaf: LeafChoice, since: str | None) -> dict[str, object] | None:
    """Return where a stretch of path is, as statements over it take it; None where ``since`` is not on the path."""
    state = read_state(tx, session_id)
    _, position = place(tx, state, leaf)
    above = -1
    if since is not None:
        anchor = _ancestor(tx, state, since, position)
        if anchor is None:
            return None
        above = anchor.depth
    if position is None:
        return {**_place_of(state, -1, -1), "low_depth": above}
    return {**_spans_of(state, position), "low_depth": above}


def _window_in_lane(row: Row | None, since: str) -> UsageWindow | None:
    """Return the window of a row of `read_sql.WINDOW`, or None where its ends are not one above the other in a lane."""
    if row is None:
        return None
    before, until = _Sums.of(row[2:19]), _Sums.of(row[19:36])
    if before.lane_id != until.lane_id or before.depth > until.depth:
        return None
    return _window(before, until, row[1], since)


class _Sums(NamedTuple):
    """An end of a usage window: a place, and the sums to it."""

    lane_id: int
    depth: int
    totals: UsageTotals
    paid: Paid

    @classmethod
    def of(cls, row: Row) -> _Sums:
        return cls(row[0], row[1], UsageTotals._make(row[2:12]), Paid._make(row[12:17]))


_NOTHING = _Sums(-1, -1, NO_USAGE, NOTHING_PAID)


def _window(before: Position | _Sums, until: Position | _Sums, leaf: str | None, since: str | None) -> UsageWindow:
    """Return what lies between two places of a path."""
    used = until.totals.minus(before.totals)
    return UsageWindow(Usage.from_totals(used), leaf, since, paid=until.paid.minus(before.paid))


def read_turns(tx: Transaction, session_id: str, leaf: LeafChoice) -> list[Entry]:
    """Return the messages of the path that a turn begins with (see `Backend.read_turns`)."""
    state = read_state(tx, session_id)
    _, position = place(tx, state, leaf)
    if position is None:
        return []
    rows = sorted(tx.rows(read_sql.TURNS, _spans_of(state, position)), key=lambda row: cast("int", row[_DEPTH]))
    creators = _creators(tx, state, rows)
    said = (_entry(tx, state, row, parent_id(tx, state.tree_id, row[_LANE], row[_DEPTH]), creators) for row in rows)
    return [entry for entry in said if begins_turn(entry)]


def read_tree(tx: Transaction, session_id: str) -> list[Entry]:
    """Return every entry the session sees (see `Backend.read_tree`)."""
    state = read_state(tx, session_id)
    held = {
        "tree_id": state.tree_id,
        "leaf": state.leaf,
        "forked_from_entry": state.forked_from_entry,
        "session_key": state.key,
    }
    rows: list[Row] = []
    forks: dict[int, tuple[int | None, int]] = {}
    for lane_id, high, parent_lane, fork_depth in tx.rows(read_sql.HELD_SPANS, held):
        where = {"tree_id": state.tree_id, "lane_id": lane_id, "low": -1, "high": min(high, _LAST_DEPTH)}
        rows.extend(tx.rows(read_sql.LANE_RANGE, where))
        forks[lane_id] = (parent_lane, fork_depth)
    retracted = {row[0] for row in tx.rows(marks_sql.RETRACTED_IDS, {"session_key": state.key})}
    ids = {(row[_LANE], row[_DEPTH]): row[_ID] for row in rows}
    creators = _creators(tx, state, rows)
    entries = []
    for row in rows:
        if row[_ID] in retracted:
            continue
        lane_id, depth = row[_LANE], row[_DEPTH]
        parent = ids.get((lane_id, depth - 1))
        if parent is None and forks[lane_id][0] is not None:
            parent = ids.get(cast("tuple[int, int]", forks[lane_id]))
        entries.append(_entry(tx, state, row, parent, creators))
    inherited = [entry for entry in entries if entry.session_id != state.id]
    own = [entry for entry in entries if entry.session_id == state.id]
    return sorted(inherited, key=attrgetter("depth")) + sorted(own, key=attrgetter("revision", "ordinal"))


def get_entry(tx: Transaction, session_id: str, entry_id: str) -> Entry | None:
    """Return an entry the session sees, or None."""
    state = read_state(tx, session_id)
    if find_visible(tx, state, entry_id) is None:
        return None
    row = tx.first(read_sql.ENTRY_BY_ID, {"tree_id": state.tree_id, "entry_id": entry_id})
    if row is None:
        return None
    parent = parent_id(tx, state.tree_id, row[_LANE], row[_DEPTH])
    return _entry(tx, state, row, parent, _creators(tx, state, [row]))


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
        where = {"tree_id": state.tree_id, "prefix": after, "end_prefix": end_of_prefix(prefix), "count": 64}
        rows = tx.rows(listing_sql.ENTRY_IDS_FROM, where)
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
    spans = dict(cast("Sequence[tuple[int, int]]", tx.rows(read_sql.SPANS, _spans_of(state, position))))
    others = tx.rows(read_sql.SPANS, _spans_of(other, other_position))
    shared = [(min(spans[lane_id], high), lane_id) for lane_id, high in others if lane_id in spans]
    if not shared:
        return None
    depth, lane_id = max(shared)
    row = tx.first(move_sql.ID_AT, _place_of(state, lane_id, depth))
    return None if row is None else str(row[0])


def changes(tx: Transaction, session_id: str, after: int, limit: int) -> list[Change]:
    """Return the next revisions of a session (see `Backend.changes`)."""
    state = read_state(tx, session_id)
    last = min(after + limit, state.revision)
    where = {"session_key": state.key, "revision": after, "last_revision": last}
    moves = {row[0]: row for row in tx.rows(read_sql.MOVES_AFTER, where)}
    added: dict[int, list[Entry]] = {}
    own = {state.key: state.id}
    for row in tx.rows(read_sql.ENTRIES_OF_REVISIONS, where):
        parent = parent_id(tx, state.tree_id, row[_LANE], row[_DEPTH])
        added.setdefault(row[_REVISION], []).append(_entry(tx, state, row, parent, own))
    return [
        _change(state.id, revision, tuple(added.get(revision, ())), moves.get(revision))
        for revision in range(max(after, 0) + 1, last + 1)
    ]


def _change(session_id: str, revision: int, entries: tuple[Entry, ...], moved: Row | None) -> Change:
    if moved is not None:
        _, reason, _, from_id, to_id, at = moved
        return Change(session_id, revision, cast("MoveReason", reason), entries, from_id, to_id, at)
    if not entries:
        return Change(session_id, revision, None)
    reason_append: Literal["append"] = "append"
    first, last = entries[0], entries[-1]
    return Change(session_id, revision, reason_append, entries, first.parent_id, last.id, last.created_us)


def list_sessions(tx: Transaction, listing: Listing, limit: int, cursor: str | None) -> SessionPage:
    """Return a page of sessions (see `Backend.list_sessions`)."""
    if limit < 1:
        raise InvalidArgument(f"limit: {limit!r} is not a number of sessions; ask for at least 1")
    ordering, where = listing.ordering, listing.where
    last = None if cursor is None else read_cursor(cursor, ordering)
    if not where.can_match or (listing.scope is not None and not is_storable(listing.scope)):
        return SessionPage(())
    asked = where.asked
    asked |= {name: value for name, value in (("scope", listing.scope), ("kind", listing.kind)) if value is not None}
    parameters: dict[str, object] = {**asked, "count": limit + 1, "title_part": asked.get("title")}
    if last is not None:
        parameters |= {"last_text": last.value, "last_number": last.value, "last_key": last.number}
    if "completed" in asked:
        parameters["completed"] = int(where.completed is True)
    statement = listing_sql.session_page(ordering, frozenset(asked), is_first=last is None)
    rows = tx.rows(statement, {name: parameters[name] for name in statement.parameters})
    page = tuple(session_info(row) for row in rows[:limit])
    if len(rows) <= limit:
        return SessionPage(page)
    end = Place(sort_value(page[-1], ordering.order), rows[limit - 1][-1])
    return SessionPage(page, write_cursor(ordering, end))


def match_session_ids(tx: Transaction, prefix: str, limit: int) -> list[str]:
    """Return session ids that start with a prefix, in order of id."""
    if not is_storable(prefix):
        return []
    where = {"prefix": prefix, "end_prefix": end_of_prefix(prefix), "count": limit}
    return [row[0] for row in tx.rows(listing_sql.SESSION_IDS_FROM, where)]


def task_links(tx: Transaction, session_id: str) -> list[TaskLink]:
    """Return a session's task links, in the order they were made."""
    require_session(tx, session_id)
    return [TaskLink(*row) for row in tx.rows(tasks_sql.LINKS_OF, {"id": session_id})]


def task_parents(tx: Transaction, session_id: str) -> list[TaskLink]:
    """Return the links that point to a session, by parent id."""
    require_session(tx, session_id)
    return [TaskLink(*row) for row in tx.rows(tasks_sql.LINKS_TO, {"id": session_id})]


def read_marks(tx: Transaction, session_id: str) -> list[Mark]:
    """Return a session's marks, by entry id and kind."""
    state = read_state(tx, session_id)
    return [Mark(*row) for row in tx.rows(marks_sql.MARKS, {"session_key": state.key})]


def read_revision(tx: Transaction, session_id: str) -> int | None:
    """Return the session's revision, or None where it is gone. Raises `SessionNotFound` as `get_session` does."""
    info = get_session(tx, session_id, None)
    return None if info is None else info.revision
