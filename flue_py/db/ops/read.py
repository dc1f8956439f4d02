"""Reading: paths, contexts, their ends, entries, pages, settings, and many sessions at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from functools import cached_property, lru_cache
from itertools import pairwise
from operator import attrgetter
from typing import TypeAlias, TypeVar, cast

from flue_py.core import context
from flue_py.core.chain import HALF, NO_PARENT
from flue_py.core.chain import fields_of as fields_in
from flue_py.core.entries import (
    MODEL_CHANGE,
    THINKING_LEVEL_CHANGE,
    Entry,
    Gap,
    Layout,
    NewEntry,
    Pairing,
    PathSettings,
    answered_id,
    called_ids,
    gaps_of,
    is_whole_end,
    layout_of,
    messages_of,
    settings_on,
    tail_start,
)
from flue_py.core.json import Frozen, JsonObject, JsonValue, NamedTuple, decode_json, decode_object, decode_objects
from flue_py.core.kinds import COMPACTION, CONTEXT_KINDS, EXCLUSION, MESSAGE
from flue_py.core.sessions import (
    STORED,
    EntryPlace,
    LeafChoice,
    MessagesRead,
    PathRead,
    ReadStamp,
    SessionInfo,
    Stored,
    is_meant,
    is_storable,
)
from flue_py.db import sql
from flue_py.db.ops import base
from flue_py.db.ops.base import decode_payload, place, unpacked
from flue_py.db.ops.seals import marks_by
from flue_py.db.runner import Position, Row, SessionState, Statement, Transaction, collector_held, state_of
from flue_py.db.sql import StoredBody, StoredEntry, session_of, statement
from flue_py.errors import AmbiguousId, EntryNotFound, shown

# ---------------------------------------------------------------------------------------------------------------------
# A path: all of it, what is behind an entry, and what is behind the leaf of an earlier read.


def read_path(
    tx: Transaction, session_id: str, *, leaf: LeafChoice = STORED, unless: ReadStamp | None = None
) -> PathRead:
    """Return the entries from root to leaf (see `Backend.read_path`)."""
    state, epoch = base.read_state_and_epoch(tx, session_id)
    at, position = base.place_to_read(tx, state, leaf)
    stamp = ReadStamp(at, epoch, -1 if position is None else position.depth)
    behind = _entries_behind(tx, state, position, unless, stamp)
    entries = base.path_entries(tx, state, position, -1) if behind is None else behind
    return PathRead(at, state.leaf, state.revision, stamp, entries, goes_on=behind is not None)


def read_path_since(tx: Transaction, session_id: str, since: str | None, *, leaf: LeafChoice = STORED) -> PathRead:
    """Return the entries after an anchor (see `Backend.read_path_since`)."""
    state, epoch = base.read_state_and_epoch(tx, session_id)
    at, position = base.place(tx, state, leaf)
    anchor = None if since is None else base.ancestor_of(tx, state, since, position)
    above = -1 if anchor is None else anchor.depth
    entries = base.path_entries(tx, state, position, above) if since is None or anchor is not None else ()
    return PathRead(at, state.leaf, state.revision, ReadStamp(at, epoch), entries)


def _entries_behind(
    tx: Transaction, state: SessionState, position: Position | None, read: ReadStamp | None, now: ReadStamp, **how: bool
) -> list[Entry] | None:
    """Return the entries behind the leaf that was read before; None if the path has to be read whole."""
    if read is None or (read.epoch, read.compaction_id) != (now.epoch, now.compaction_id):
        return None
    if read.leaf_id == now.leaf_id:
        return []
    if position is None or read.depth >= now.depth:
        return None
    entries = base.path_entries(tx, state, position, read.depth, **how)
    return entries if entries[0].parent_id == read.leaf_id else None


# ---------------------------------------------------------------------------------------------------------------------
# A context: the latest compaction on a path, and the part of the path that it keeps.

_RESTORES = context.RESTORES.encode()


class Kept(Frozen):
    """The part of its path that a compaction keeps: the depth of the first kept entry, its own where it keeps nothing.

    ``gaps`` are the ranges left out of it, ``named`` the entries that it names, root first. ``is_plain`` where the end
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


def read_context(
    tx: Transaction, session_id: str, *, leaf: LeafChoice = STORED, unless: ReadStamp | None = None
) -> PathRead:
    """Return the kept part of a path and its latest compaction (see `Backend.read_context`)."""
    if unless is None and isinstance(leaf, Stored):
        state, epoch, compaction = _read_state_and_compaction(tx, session_id)
        at, position = state.leaf, state.position
    else:
        state, epoch = base.read_state_and_epoch(tx, session_id)
        at, position = base.place_to_read(tx, state, leaf)
        if unless is not None and (unless.leaf_id, unless.epoch) == (at, epoch):
            return PathRead(at, state.leaf, state.revision, unless, (), goes_on=True)
        compaction = _latest_compaction(tx, state, position)
    compaction_id = None if compaction is None else compaction.id
    stamp = ReadStamp(at, epoch, -1 if position is None else position.depth, compaction_id)
    if (behind := _entries_behind(tx, state, position, unless, stamp, contents=False)) is not None:
        return PathRead(at, state.leaf, state.revision, stamp, behind, goes_on=True)
    compaction = in_effect(tx, state, compaction)
    view = EVERYTHING if compaction is None else kept_by(tx, state, compaction)
    entries = _kept_entries(tx, state, position, view)
    summary = None if compaction is None else next(each for each in entries if each.depth == compaction.depth)
    return PathRead(at, state.leaf, state.revision, stamp, entries, summary)


def _kept_entries(tx: Transaction, state: SessionState, position: Position | None, view: Kept) -> list[Entry]:
    """Return the kept entries of a path, those that the compaction names, and the exclusions, root first."""
    if position is None or view.is_plain:
        return base.path_entries(tx, state, position, view.first - 1, contents=False)
    entries = list(view.named)
    begin = view.first
    for gap in view.gaps:
        if begin < gap.first:
            entries += base.path_stretch(tx, state, position, begin - 1, gap.first - 1, contents=False)
        begin = gap.last + 1
    entries += base.path_entries(tx, state, position, begin - 1, contents=False)
    entries += base.exclusions_on_path(tx, state, position, begin - 1)
    return list({entry.depth: entry for entry in sorted(entries, key=attrgetter("depth"))}.values())


# The same for the messages alone: nothing is fetched that a message is not made of.
# (A message's fields are not: NULL for ten thousand of them is quicker than their values.)
_BODY = f"e.depth, {{}}, CASE WHEN e.kind = 'message' THEN NULL ELSE {sql.FIELDS} END, {sql.DIGEST}, {sql.PAYLOAD}"
_bodies: Callable[[str], Statement[StoredBody]] = statement(cast("type[StoredBody]", StoredBody))
LANE_BODIES = _bodies(sql.lane_range(_BODY.format(sql.first_below(":low"))))
SPANS_BODIES = _bodies(base.spans_range(_BODY.format(sql.first_below(":low_depth"))))


def read_messages(tx: Transaction, session_id: str, *, leaf: LeafChoice = STORED) -> MessagesRead:
    """Return the messages of a context (see `Backend.read_messages`): as `project`, from rows instead of entries."""
    state, at, position, compaction = place_and_compaction(tx, session_id, leaf)
    messages: list[JsonObject] | None = []
    if position is not None:
        summary_depth = -1 if compaction is None else compaction.depth
        view = EVERYTHING if compaction is None else kept_by(tx, state, compaction)
        first = view.first
        messages = None
        if view.is_plain:
            with collector_held(position.depth - first + 1):
                payloads = base.Payloads(tx, state, base.stretch_of(state, position, first - 1), contents=False)
                with closing(base.pages_of_path(tx, state, position, first - 1, LANE_BODIES, SPANS_BODIES)) as pages:
                    messages = _messages(tx, pages, summary_depth, payloads)
    if messages is None:
        # What is pinned, summarized in its place, excluded or damaged is found by ids, which are not among the bodies.
        tx.require_snapshot()
        read = read_context(tx, session_id, leaf=leaf)
        messages = [item.data for item in context.context_of(read.entries, read.compaction)]
    return MessagesRead(at, state.leaf, state.revision, messages)


def place_and_compaction(
    tx: Transaction, session_id: str, leaf: LeafChoice
) -> tuple[SessionState, str | None, Position | None, StoredEntry | None]:
    """Return a session, a leaf to read at, its place, and the compaction in effect there."""
    if isinstance(leaf, Stored):
        state, _, compaction = _read_state_and_compaction(tx, session_id)
        return state, state.leaf, state.position, in_effect(tx, state, compaction)
    tx.require_snapshot()
    state = base.read_state(tx, session_id)
    at, position = place(tx, state, leaf)
    return state, at, position, in_effect(tx, state, _latest_compaction(tx, state, position))


def _session_and_compaction(row: Row) -> tuple[SessionState, int, StoredEntry | None]:
    epoch, *columns = row
    compaction = None if columns[0] is None else StoredEntry._make(columns[:_COLUMNS])
    return state_of(columns[_COLUMNS:]), int(epoch or 0), compaction


_COLUMNS = len(StoredEntry._fields)
_LATEST_COMPACTION = (
    f"SELECT {sql.ENTRY} FROM spans s CROSS JOIN entries e ON {sql.IN_SPAN} WHERE e.kind = 'compaction'"
    " ORDER BY e.depth DESC LIMIT 1"
)
SESSION_AND_COMPACTION = statement(_session_and_compaction)(
    "WITH RECURSIVE spans(tree_id, lane_id, low, high, parent_lane) AS ("
    "  SELECT l.tree_id, l.lane_id, l.fork_depth, e.depth, l.parent_lane FROM sessions s"
    "   JOIN entries e ON e.tree_id = s.tree_id AND e.id = s.leaf"
    "   JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
    "   WHERE s.id = :id AND s.trashed_at IS NULL"
    "  UNION ALL SELECT s.tree_id, l.lane_id, l.fork_depth, s.low, l.parent_lane FROM spans s"
    "   JOIN lanes l ON l.tree_id = s.tree_id AND l.lane_id = s.parent_lane AND l.fork_depth < s.low"
    f") SELECT {sql.EPOCH}, {sql.columns('n', StoredEntry._fields)}, {sql.STATE}"
    f"{sql.STATE_FROM} LEFT JOIN ({_LATEST_COMPACTION.replace(':tree_id', 's.tree_id')}) n ON 1 = 1" + sql.LIVING
)


def _read_state_and_compaction(tx: Transaction, session_id: str) -> tuple[SessionState, int, StoredEntry | None]:
    """Return a session, the epoch, and the latest compaction on the path to its leaf."""
    row = tx.first(SESSION_AND_COMPACTION, id=session_id) if is_storable(session_id) else None
    state, epoch, compaction = row or (None, 0, None)
    return base.checked_state(tx, session_id, state), epoch, compaction


LATEST_COMPACTION = statement(StoredEntry)(sql.WITH_SPANS + _LATEST_COMPACTION)


def _latest_compaction(tx: Transaction, state: SessionState, position: Position | None) -> StoredEntry | None:
    tx.require_snapshot()
    return None if position is None else tx.first(LATEST_COMPACTION, **base.spans_of(state, position))


def latest_compaction(tx: Transaction, state: SessionState, position: Position | None) -> tuple[str, JsonObject] | None:
    """Return the id and the fields of the compaction in effect at a place; None where there is none."""
    compaction = in_effect(tx, state, _latest_compaction(tx, state, position))
    return None if compaction is None else (compaction.id, fields_of(tx, state, compaction))


COMPACTION_ON_PATH = statement(StoredEntry)(
    sql.WITH_SPANS + f"SELECT {sql.ENTRY} FROM entries e JOIN spans s ON {sql.IN_SPAN}"
    " WHERE e.tree_id = :tree_id AND e.id = :entry_id AND e.depth < :depth"
)


def in_effect(tx: Transaction, state: SessionState, latest: StoredEntry | None) -> StoredEntry | None:
    """Return the compaction whose summary counts: the latest on a path, or the one that this restores, if any."""
    if latest is None or (latest.payload is not None and _RESTORES not in latest.payload):
        return latest
    fields = fields_of(tx, state, latest)
    if context.RESTORES not in fields:
        return latest
    restored = fields[context.RESTORES]
    if not isinstance(restored, str) or not is_storable(restored):
        return None
    return tx.first(COMPACTION_ON_PATH, **base.place_at(state, latest.lane_id, latest.depth), entry_id=restored)


def fields_of(tx: Transaction, state: SessionState, compaction: StoredEntry) -> JsonObject:
    """Return the fields of a compaction. Raises `CorruptStore`."""
    return decode_object(base.checked_payload(tx, state, compaction))


def _messages(
    tx: Transaction, pages: Iterable[Sequence[StoredBody]], summary_depth: int, payloads: base.Payloads
) -> list[JsonObject] | None:
    """Return the messages that rows of bodies stand for, the summary at ``summary_depth`` before all others.

    None where an exclusion, a compaction with a system message or a damaged entry is among them, or one whose
    attachments are lost.
    """
    messages: list[JsonObject] = []
    summary: list[JsonObject] = []
    begun, last = tx.chain.begun(MESSAGE), NO_PARENT
    for page in pages:
        # What is not read along the way is not paid for: most rows are messages whose payload is text.
        texts: list[bytes] = []
        for depth, first_above, others, digest, payload, packed, blob in page:
            above, last = first_above or last, digest
            if payload is not None and others is None:
                hashed = begun.copy()
                hashed.update(above[:HALF] + payload)
                if hashed.digest() == digest[:HALF]:
                    texts.append(payload)
                    continue
            kind, created_at = MESSAGE, 0
            if others is not None:
                fields = fields_in(others)
                if fields is None or fields[1] == EXCLUSION or not tx.chain.has_fields(digest, above, fields):
                    return None
                kind, created_at = fields[1], fields[6]
                if kind not in CONTEXT_KINDS and depth != summary_depth:
                    continue
            data = payloads.whole(depth, kind, above, digest, payload, packed, blob)
            if data is None:
                return None
            if others is None:
                texts.append(data)
                continue
            body = decode_json(data)
            if depth == summary_depth and isinstance(body, dict) and context.PROMPT in body:
                return None
            messages += decode_objects(texts)
            texts.clear()
            into = summary if depth == summary_depth else messages
            into.append(context.synthetic_message(kind, body, created_at))
        messages += decode_objects(texts)
    return summary + messages


# The depth of an entry on a path, above a place of it.
DEPTH_ON_PATH = statement(tuple[int])(
    sql.WITH_SPANS + f"SELECT e.depth FROM entries e JOIN spans s ON {sql.IN_SPAN}"
    " WHERE e.tree_id = :tree_id AND e.id = :entry_id AND e.depth < :depth"
)


def kept_by(tx: Transaction, state: SessionState, compaction: StoredEntry) -> Kept:
    """Return the part that a compaction keeps of the path that it is on."""
    fields = fields_of(tx, state, compaction)
    layout, pinned = layout_of(compaction.id, fields), context.pinned_ids(fields)
    where = base.place_at(state, compaction.lane_id, compaction.depth)
    first_kept = layout.first_kept_id
    if layout.is_plain and not pinned:
        if first_kept is None or not is_storable(first_kept):
            return Kept(compaction.depth)
        row = tx.first(DEPTH_ON_PATH, **where, entry_id=first_kept)
        if row is None:
            base.require_path(tx, state, where, compaction.depth)
        return Kept(compaction.depth if row is None else row[0])
    names = {*layout.named, *pinned, first_kept or ""}
    named = {entry.id: entry for entry in base.named_above(tx, state, where, names, compaction.depth)}
    if not names - {""} <= named.keys():
        base.require_path(tx, state, where, compaction.depth)
    first = named.get(first_kept or "")
    kept_from = compaction.depth if first is None or first.depth >= compaction.depth else first.depth
    gaps = gaps_of(layout, named, kept_from, compaction.depth)
    return Kept(kept_from, tuple(gaps), tuple(named.values()), is_plain=False)


# ---------------------------------------------------------------------------------------------------------------------
# The end of a path and of a context: the last whole exchanges, read from the leaf up, without the rest.

Item = TypeVar("Item", Entry, context.ContextEntry)
Messages = Sequence[Mapping[str, JsonValue] | None]

_FEW = 8
"""How many entries before the end are read at first, when the end begins with results: their calls are near."""


def read_path_end(tx: Transaction, session_id: str, limit: int, *, leaf: LeafChoice = STORED) -> PathRead:
    """Return the last entries of a path (see `Backend.read_path_end`)."""
    state, epoch = base.read_state_and_epoch(tx, session_id)
    at, position = base.place_to_read(tx, state, leaf)
    entries = None if position is None else _end(tx, state, position, (0, True), limit, _as_they_are, messages_of)
    stamp = ReadStamp(at, epoch, -1 if position is None else position.depth)
    return PathRead(at, state.leaf, state.revision, stamp, entries or ())


def read_context_end(tx: Transaction, session_id: str, limit: int, *, leaf: LeafChoice = STORED) -> context.ContextRead:
    """Return the last items of a context (see `Backend.read_context_end`)."""
    state, at, position, compaction = place_and_compaction(tx, session_id, leaf)
    items: Sequence[context.ContextEntry] | None = ()
    if position is not None:
        first = 0 if compaction is None else kept_by(tx, state, compaction).end
        items = _end(
            tx, state, position, (first, compaction is None), limit, context.project_kept, _messages_in, contents=False
        )
    if items is None:
        # It may take the summary, too, or what that has pinned.
        tx.require_snapshot()
        read = read_context(tx, session_id, leaf=leaf)
        items = context.context_of(read.entries, read.compaction)
        items = items[tail_start(_messages_in(items), limit, is_all=True) :]
    return context.ContextRead(at, state.leaf, state.revision, items)


def _end(
    tx: Transaction,
    state: SessionState,
    position: Position,
    beginning: tuple[int, bool],
    limit: int,
    items_of: Callable[[Sequence[Entry]], Sequence[Item]],
    messages_in: Callable[[Sequence[Item]], Messages],
    *,
    contents: bool = True,
) -> Sequence[Item] | None:
    """Return the last whole exchanges of a path or its context; None if it takes more than the path to tell.

    ``beginning`` is the depth to begin at, and whether nothing comes before that. As many entries are read as there
    are to be items, then a few, then more each time, until there are enough of them and every result among them has
    its call: which mostly is just before the first of them.
    """
    first, is_everything = beginning
    above, entries, count, further = position.depth, list[Entry](), limit, _FEW
    while is_everything or above - count >= first - 1:
        last, above = above, max(above - count, first - 1)
        entries = base.path_stretch(tx, state, position, above, last, contents=contents) + entries
        items = items_of(entries)
        is_all = is_everything and above < first
        start = _whole_start(items, limit) if is_all or len(items) >= limit else None
        # At the first look, a result without its call says that more has to be read, and nothing else needs be known.
        if start is None and (is_all or len(entries) > limit):
            start = tail_start(messages_in(items), limit, is_all=is_all)
        if start is not None:
            return items[start:]
        count, further = max(further, 2 * (limit - len(items))), 4 * further
    return None


def _whole_start(items: Sequence[Entry] | Sequence[context.ContextEntry], limit: int) -> int | None:
    """Return where the last ``limit`` items begin, if that divides no call and result: as it mostly is, and soon seen.

    None where `tail_start` has to look.
    """
    start = max(len(items) - limit, 0)
    end: list[Entry] = []
    for item in items[start:]:
        if isinstance(item, Entry):
            end.append(item)
        elif item.excluded_parts:
            return None
        else:
            end.append(item.entry)
    return start if is_whole_end(end) else None


def _as_they_are(entries: Sequence[Entry]) -> Sequence[Entry]:
    return entries


def _messages_in(items: Sequence[context.ContextEntry]) -> Messages:
    """Return the messages among the items of a context; None for an item of another kind."""
    return [item.data if item.kind == MESSAGE else None for item in items]


# ---------------------------------------------------------------------------------------------------------------------
# Single entries that a session sees: by their ids, and below another one.

_SHOWN = 5


ENTRY_BY_ID = statement(StoredEntry)(
    f"SELECT {sql.ENTRY} FROM entries e WHERE e.tree_id = :tree_id AND e.id = :entry_id"
)


def get_entry(tx: Transaction, session_id: str, entry_id: str) -> Entry | None:
    """Return an entry the session sees, or None."""
    state = base.read_state(tx, session_id)
    if not is_storable(entry_id):
        return None
    rows = tx.rows(ENTRY_BY_ID, tree_id=state.tree_id, session_key=state.key, entry_id=entry_id)
    return next(iter(base.made_entries(tx, state, _seen(tx, state, rows))), None)


# Of each tree that has an entry of this id, a session: the one that added it, or any.
SESSIONS_OF_ENTRY = statement(tuple[str])(
    "SELECT COALESCE(c.id, (SELECT MIN(s.id) FROM sessions s WHERE s.tree_id = e.tree_id)) AS found FROM entries e"
    " LEFT JOIN sessions c ON c.session_key = e.session_key WHERE e.id = :entry_id ORDER BY found LIMIT :count"
)


def find_entry(tx: Transaction, entry_id: str) -> Entry | None:
    """Return an entry of any session (see `Backend.find_entry`)."""
    if not is_storable(entry_id):
        return None
    session_ids = [session_id for (session_id,) in tx.rows(SESSIONS_OF_ENTRY, entry_id=entry_id, count=_SHOWN + 1)]
    if len(session_ids) > 1:
        of = ", ".join(session_ids[:_SHOWN])
        message = f"entry {shown(entry_id)} is in several histories, of the sessions {of}; read it with one of these"
        raise AmbiguousId(entry_id, tuple(session_ids[:_SHOWN]), message)
    if not session_ids:
        return None
    state = base.read_state(tx, session_ids[0])
    row = tx.first(ENTRY_BY_ID, tree_id=state.tree_id, entry_id=entry_id)
    return None if row is None else base.made_entries(tx, state, [row])[0]


ENTRIES_OF_IDS = statement(StoredEntry)(f"SELECT {sql.ENTRY} FROM {sql.ENTRIES_BY_ID}")


def get_entries(tx: Transaction, session_id: str, ids: Sequence[str]) -> list[Entry | None]:
    """Return the entries with these ids, in this order (see `Backend.get_entries`)."""
    state = base.read_state(tx, session_id)
    entries: dict[str, Entry] = {}
    for some in base.in_parts(filter(is_storable, ids)):
        rows = tx.rows(ENTRIES_OF_IDS, tree_id=state.tree_id, session_key=state.key, ids=json.dumps(some))
        with collector_held(len(rows)):
            entries.update((entry.id, entry) for entry in base.made_entries(tx, state, _seen(tx, state, rows)))
    return [entries.get(entry_id) for entry_id in ids]


class NamedEntry(NamedTuple):
    """An entry that was read with the id of a session, and the id of who created it, None if that is deleted."""

    session_id: str
    session_key: int
    creator: str | None
    row: StoredEntry


def _named_entry(row: Row) -> NamedEntry:
    session_id, session_key, creator, *columns = row
    return NamedEntry(session_id, session_key, creator, StoredEntry._make(columns))


# Of sessions the entries at their leaves, behind the session, and who created the entry (NULL where that is deleted).
LEAVES = statement(_named_entry)(
    "SELECT s.id, s.session_key, (SELECT c.id FROM sessions c WHERE c.session_key = e.session_key) AS creator,"
    f" {sql.ENTRY} FROM sessions s JOIN entries e ON e.tree_id = s.tree_id AND e.id = s.leaf"
    f" WHERE s.id {sql.IN_IDS} AND s.trashed_at IS NULL"
)


def read_leaves(tx: Transaction, session_ids: Sequence[str]) -> list[Entry | None]:
    """Return the entries at the leaves of sessions, in this order (see `Backend.read_leaves`)."""
    leaves: dict[str, tuple[int, Entry | None]] = {}
    for some in base.in_parts(filter(is_storable, session_ids)):
        rows = tx.rows(LEAVES, ids=json.dumps(some))
        with collector_held(len(rows)):
            for session_id, key, creator, row in rows:
                leaves[session_id] = key, entry_of_row(tx, session_id, creator, row)
    return [_meant(session_id, leaves.get(session_id)) for session_id in session_ids]


def entry_of_row(tx: Transaction, session_id: str, creator: str | None, row: StoredEntry) -> Entry | None:
    """Return the entry of a row that was read beside those of other sessions, of which ``session_id`` sees it."""
    depth, _, parent, _, _, id_, kind, role, source, revision, ordinal, at, extra, _, *_ = row
    data = _whole_in_row(tx, row)
    if data is None:
        # What is apart from its row, or damaged, is read as any entry of the session.
        return get_entry(tx, session_id, id_)
    text = decode_payload(data)
    return Entry(id_, parent, creator, kind, role, source, depth, revision, ordinal, at, text, extra)


def _whole_in_row(tx: Transaction, row: StoredEntry) -> bytes | None:
    """Return the text of a payload that is all in its row, and intact; None for any other."""
    data = row.payload if row.packed is None else unpacked(row.packed)
    if data is None or not tx.chain.has_text(row.digest, row.digest_above, row.kind, data) or not tx.chain.checks:
        return None
    return data if tx.chain.has_fields(row.digest, row.digest_above, row.fields) else None


def _meant(session_id: str, leaf: tuple[int, Entry | None] | None) -> Entry | None:
    return leaf[1] if leaf is not None and is_meant(session_id, leaf[0]) else None


CHILD_ENTRIES = statement(StoredEntry)(f"SELECT {sql.ENTRY} FROM {sql.CHILDREN}")
ROOT_ENTRIES = statement(StoredEntry)(
    f"SELECT {sql.ENTRY} FROM lanes l JOIN entries e ON e.tree_id = l.tree_id AND e.lane_id = l.lane_id AND e.depth = 0"
    f" WHERE l.tree_id = :tree_id AND l.parent_lane IS NULL AND l.fork_depth = -1"
)


def children(tx: Transaction, session_id: str, entry_id: str | None) -> list[Entry]:
    """Return the entries below one (see `Backend.children`)."""
    state = base.read_state(tx, session_id)
    if entry_id is None:
        rows = tx.rows(ROOT_ENTRIES, tree_id=state.tree_id, session_key=state.key)
    else:
        at = base.see_entry(tx, state, entry_id)
        where = {"tree_id": state.tree_id, "session_key": state.key, "lane_id": at.lane_id, "depth": at.depth}
        rows = tx.rows(CHILD_ENTRIES, **where)
    seen = sorted(_seen(tx, state, rows), key=attrgetter("revision", "ordinal"))
    seen.sort(key=lambda row: row.session_key == state.key)
    return base.made_entries(tx, state, seen)


def _seen(tx: Transaction, state: SessionState, rows: Sequence[StoredEntry]) -> Sequence[StoredEntry]:
    """Return those of some rows of the tree that the session sees: its own, and the ancestors of its places."""
    retracted = base.retracted_ids(tx, state)
    rows = [row for row in rows if row.id not in retracted]
    if all(row.session_key == state.key for row in rows):
        return rows
    depths = dict(tx.rows(sql.HELD_SPANS, **base.held_by(state)))
    return [row for row in rows if row.session_key == state.key or row.depth <= depths.get(row.lane_id, -1)]


# ---------------------------------------------------------------------------------------------------------------------
# The statements that page through the entries a session sees: what it inherited by depth, then its own as added.
#
# Its own are in its lanes, in order in each (see `own`). So a page begins in every lane where halving finds the first
# entry that is not before it; no more of a lane is looked at than fits the page. Of one kind, the rest of the lane is.

# What a page may take: where it begins, by revision and ordinal or by depth, and which kind it is of.


class Place(Frozen):
    """Where an entry is in its part: by depth if inherited, by revision and ordinal if added."""

    session_key: int
    depth: int
    revision: int
    ordinal: int


PLACE = statement(Place)(
    "SELECT e.session_key, e.depth, e.revision, e.ordinal FROM entries e"
    " WHERE e.tree_id = :tree_id AND e.id = :entry_id"
)
_INDEXED = (COMPACTION, EXCLUSION)
"""Kinds with an index of their own, which serves only a statement that names them."""
_ANY_OTHER = ""


def _begins(entry: str) -> str:
    return (
        f"{entry}.session_key = :session_key AND ({entry}.revision > :revision"
        f" OR ({entry}.revision = :revision AND {entry}.ordinal >= :ordinal))"
    )


# In each lane of the session, where low is high: the deepest place before the one that a page begins at.
_WITH_HALVED = (
    "WITH RECURSIVE halved(lane_id, low, high) AS ("
    "  SELECT l.lane_id,"
    f"   CASE WHEN {_begins('t')} THEN l.fork_depth ELSE t.depth END,"
    f"   CASE WHEN {_begins('t')} THEN t.depth - 1 ELSE t.depth END"
    "   FROM lanes l JOIN entries t ON t.tree_id = :tree_id AND t.lane_id = l.lane_id AND t.depth ="
    "    (SELECT MAX(d.depth) FROM entries d WHERE d.tree_id = :tree_id AND d.lane_id = l.lane_id)"
    "   WHERE l.owner_key = :session_key"
    "  UNION ALL SELECT h.lane_id,"
    f"   CASE WHEN {_begins('e')} THEN h.low ELSE e.depth END,"
    f"   CASE WHEN {_begins('e')} THEN e.depth - 1 ELSE h.high END"
    "   FROM halved h CROSS JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = h.lane_id"
    "    AND e.depth = (h.low + h.high + 1) / 2 WHERE h.low < h.high) "
)


def _named(kind: str | None) -> str | None:
    return kind if kind is None or kind in _INDEXED else _ANY_OTHER


@lru_cache(maxsize=8)
def _own_page(kind: str | None, newest_first: bool) -> Statement[StoredEntry]:
    """Return the statement for a page of a session's own entries: from a revision and ordinal on, or before them."""
    where = "e.depth <= h.low AND e.session_key = :session_key" if newest_first else "e.depth > h.low"
    if kind is None:
        where += " AND e.depth > h.low - :count" if newest_first else " AND e.depth <= h.low + :count"
    lanes = "halved h CROSS JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = h.lane_id"
    order = "e.revision DESC, e.ordinal DESC" if newest_first else "e.revision, e.ordinal"
    return statement(StoredEntry)(_WITH_HALVED + _page(f"{lanes} AND {where}{_of(kind)} WHERE h.low = h.high", order))


@lru_cache(maxsize=8)
def _inherited_page(kind: str | None, newest_first: bool) -> Statement[StoredEntry]:
    """Return the statement for a page of a path: the entries deeper than a depth, or above it."""
    where = "e.depth < :from_depth" if newest_first else "e.depth > :from_depth"
    if kind is None:
        where += " AND e.depth >= :from_depth - :count" if newest_first else " AND e.depth <= :from_depth + :count"
    order = "e.depth DESC" if newest_first else "e.depth"
    return statement(StoredEntry)(
        sql.WITH_SPANS + _page(f"spans s CROSS JOIN entries e ON {sql.IN_SPAN} AND {where}{_of(kind)}", order)
    )


def _page(source: str, order: str) -> str:
    # Which entries, and only then their payloads.
    return (
        f"SELECT {sql.ENTRY} FROM (SELECT e.lane_id, e.depth FROM {source} ORDER BY {order} LIMIT :count) p"
        f" CROSS JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = p.lane_id AND e.depth = p.depth"
        f" ORDER BY {order}"
    )


def _of(kind: str | None) -> str:
    if kind is None:
        return ""
    return " AND e.kind = :kind" if kind == _ANY_OTHER else f" AND e.kind = '{kind}'"


# ---------------------------------------------------------------------------------------------------------------------
# Pages of all entries that a session sees: what it inherited, root first, then its own as they were added.

_BEYOND = Place(session_key=0, depth=2**62, revision=2**62, ordinal=0)
_BEFORE = Place(session_key=0, depth=-1, revision=0, ordinal=-1)

# Up to so many rows of one part, from behind a place of it on.
_ReadPage = Callable[[Place, int], Sequence[StoredEntry]]


def read_entries(
    tx: Transaction,
    session_id: str,
    *,
    kind: str | None = None,
    after: str | None = None,
    newest_first: bool = False,
    limit: int = 100,
    contents: bool = True,
) -> list[Entry]:
    """Return a page of entries (see `Backend.read_entries`)."""
    state = base.read_state(tx, session_id)
    end = _BEYOND if newest_first else _BEFORE
    last = None if after is None else _place_of(tx, state, after)
    parts = [_inherited(tx, state, kind, newest_first), _own(tx, state, kind, newest_first)]
    if newest_first:
        parts.reverse()
    if last is not None and (last.session_key == state.key) != newest_first:
        del parts[0]
    retracted = base.retracted_ids(tx, state)
    rows: list[StoredEntry] = []
    for read_page in parts:
        rows += _entry_pages_page(read_page, last or end, limit - len(rows), retracted)
        last = None
    return base.made_entries(tx, state, rows, contents=contents)


def _entry_pages_page(read_page: _ReadPage, last: Place, limit: int, without: set[str]) -> list[StoredEntry]:
    """Return up to ``limit`` rows of a part behind a place, without some: as many more are read as these were."""
    page: list[StoredEntry] = []
    while (count := limit - len(page)) > 0:
        rows = read_page(last, count)
        page += [row for row in rows if row.id not in without]
        if len(rows) < count:
            break
        last = Place(rows[-1].session_key, rows[-1].depth, rows[-1].revision, rows[-1].ordinal)
    return page


def _place_of(tx: Transaction, state: SessionState, entry_id: str) -> Place:
    """Return where an entry is that the session holds, retracted or not. Raises `EntryNotFound` for any other."""
    position, _ = base.find_held(tx, state, entry_id)
    place = None if position is None else tx.first(PLACE, tree_id=state.tree_id, entry_id=entry_id)
    if place is None:
        raise EntryNotFound(state.id, entry_id)
    return place


def _own(tx: Transaction, state: SessionState, kind: str | None, newest_first: bool) -> _ReadPage:
    statement = _own_page(_named(kind), newest_first)

    def read_page(last: Place, count: int) -> Sequence[StoredEntry]:
        # The first that is not in the page, or the first that is.
        ordinal = last.ordinal if newest_first else last.ordinal + 1
        parameters: dict[str, object] = {"tree_id": state.tree_id, "session_key": state.key, "kind": kind}
        parameters |= {"revision": last.revision, "ordinal": ordinal, "count": count}
        return tx.rows(statement, **{name: parameters[name] for name in statement.parameters})

    return read_page


def _inherited(tx: Transaction, state: SessionState, kind: str | None, newest_first: bool) -> _ReadPage:
    statement = _inherited_page(_named(kind), newest_first)
    fork_point = None if state.forked_from_entry is None else base.find_held(tx, state, state.forked_from_entry)[0]

    def read_page(last: Place, count: int) -> Sequence[StoredEntry]:
        if fork_point is None:
            return ()
        lane_id, depth = fork_point.lane_id, fork_point.depth
        parameters: dict[str, object] = {"tree_id": state.tree_id, "lane_id": lane_id, "depth": depth, "kind": kind}
        parameters |= {"from_depth": min(last.depth, depth + 1), "count": count}
        return tx.rows(statement, **{name: parameters[name] for name in statement.parameters})

    return read_page


# ---------------------------------------------------------------------------------------------------------------------
# The statements that read of many sessions at once: the sessions, entries that are named, and where those lie.


class Spot(Frozen):
    """Where an entry lies that was named with a session, and the key of who created it."""

    session_id: str
    session_key: int
    id: str
    lane_id: int
    depth: int
    kind: str
    creator_key: int


class Stretch(Frozen):
    """A lane of the path to a session's leaf, how deep that goes in it, and the latest compaction in that part."""

    session_id: str
    session_key: int
    lane_id: int
    high: int
    compaction: StoredEntry | None


def _stretch(row: Row) -> Stretch:
    session_id, session_key, lane_id, high, *columns = row
    compaction = None if columns[0] is None else StoredEntry._make(columns)
    return Stretch(session_id, session_key, lane_id, high, compaction)


# A JSON array names entries as [session, entry], whether or not the session sees them.
_NAMED = (
    f" FROM {sql.PAIRS_OF_IDS} sessions s ON s.id = {sql.FIRST_OF_PAIR} AND s.trashed_at IS NULL"
    f" JOIN entries e ON e.tree_id = s.tree_id AND e.id = {sql.SECOND_OF_PAIR}"
)
ENTRIES = statement(_named_entry)(
    "SELECT s.id, s.session_key, (SELECT c.id FROM sessions c WHERE c.session_key = e.session_key) AS creator,"
    f" {sql.ENTRY}{_NAMED}"
)
SPOTS = statement(Spot)(
    f"SELECT s.id, s.session_key, e.id AS entry_id, e.lane_id, e.depth, e.kind, e.session_key AS creator_key{_NAMED}"
)
SESSIONS = statement(Row)(f"SELECT {sql.SESSION} FROM sessions s WHERE s.id {sql.IN_IDS} AND s.trashed_at IS NULL")
PATHS = statement(_stretch)(
    "WITH RECURSIVE spans(session_key, session_id, tree_id, lane_id, low, high, parent_lane) AS ("
    "  SELECT s.session_key, s.id, l.tree_id, l.lane_id, l.fork_depth, a.depth, l.parent_lane FROM sessions s"
    "   JOIN entries a ON a.tree_id = s.tree_id AND a.id = s.leaf"
    "   JOIN lanes l ON l.tree_id = a.tree_id AND l.lane_id = a.lane_id"
    f"   WHERE s.id {sql.IN_IDS} AND s.trashed_at IS NULL"
    "  UNION ALL SELECT s.session_key, s.session_id, s.tree_id, l.lane_id, l.fork_depth, s.low, l.parent_lane"
    "   FROM spans s JOIN lanes l ON l.tree_id = s.tree_id AND l.lane_id = s.parent_lane"
    "   AND l.fork_depth < s.low"
    f") SELECT s.session_id, s.session_key, s.lane_id, s.high, {sql.ENTRY} FROM spans s"
    " LEFT JOIN entries e ON e.tree_id = s.tree_id AND e.lane_id = s.lane_id AND e.depth = (SELECT MAX(c.depth)"
    "  FROM entries c WHERE c.tree_id = s.tree_id AND c.lane_id = s.lane_id AND c.depth <= s.high"
    "  AND c.kind = 'compaction')"
)
# What each session holds: the ends of its lanes, of their ancestors, and of those of its leaf and its fork point.
HELD = statement(tuple[int, int, int])(
    "WITH RECURSIVE held(session_key, tree_id, lane_id, depth) AS ("
    "  SELECT s.session_key, s.tree_id, e.lane_id, e.depth FROM sessions s"
    "   JOIN entries e ON e.tree_id = s.tree_id AND e.id IN (s.leaf, s.forked_from_entry)"
    f"  WHERE s.session_key {sql.IN_KEYS}"
    "  UNION SELECT h.session_key, h.tree_id, l.parent_lane, l.fork_depth FROM held h"
    "   JOIN lanes l ON l.tree_id = h.tree_id AND l.lane_id = h.lane_id WHERE l.parent_lane IS NOT NULL"
    "), own(session_key, tree_id, lane_id, depth) AS ("
    "  SELECT l.owner_key, l.tree_id, l.lane_id, CAST(9223372036854775807 AS BIGINT) FROM lanes l"
    f"   WHERE l.owner_key {sql.IN_KEYS}"
    "  UNION SELECT o.session_key, o.tree_id, l.parent_lane, l.fork_depth FROM own o"
    "   JOIN lanes l ON l.tree_id = o.tree_id AND l.lane_id = o.lane_id WHERE l.parent_lane IS NOT NULL"
    ") SELECT f.session_key, f.lane_id, MAX(f.depth) FROM"
    " (SELECT session_key, lane_id, depth FROM held UNION ALL SELECT session_key, lane_id, depth FROM own) f"
    " GROUP BY f.session_key, f.lane_id"
)


# ---------------------------------------------------------------------------------------------------------------------
# Reading of many sessions at once: as many statements for a thousand of them as for one.

ManyNamedEntry: TypeAlias = tuple[str, str]
"""An entry by the id of a session that sees it, and its own."""


def get_sessions(tx: Transaction, session_ids: Sequence[str]) -> list[SessionInfo | None]:
    """Return sessions, in this order (see `Backend.get_sessions`)."""
    sessions: dict[str, SessionInfo] = {}
    for some in base.in_parts(filter(is_storable, session_ids)):
        infos = (session_of(tx.chain, row) for row in tx.rows(SESSIONS, ids=json.dumps(some)))
        sessions.update((info.id, info) for info in infos)
    named = [(name, sessions.get(name)) for name in session_ids]
    return [info if info is not None and is_meant(name, info.session_key) else None for name, info in named]


def read_named(tx: Transaction, named: Sequence[ManyNamedEntry]) -> list[Entry | None]:
    """Return entries of several sessions, in this order (see `Backend.read_named`)."""
    entries: dict[ManyNamedEntry, tuple[int, Entry | None]] = {}
    for some in base.in_parts(pair for pair in named if all(map(is_storable, pair))):
        rows = tx.rows(ENTRIES, ids=json.dumps(some))
        retracted = _retracted_by(tx, {entry.session_key for entry in rows})
        rows = [entry for entry in rows if (entry.session_key, entry.row.id) not in retracted]
        depths = _held(tx, {entry.session_key for entry in rows if entry.session_key != entry.row.session_key})
        with collector_held(len(rows)):
            for session_id, key, creator, row in rows:
                if row.session_key == key or row.depth <= depths.get((key, row.lane_id), -1):
                    entries[session_id, row.id] = key, entry_of_row(tx, session_id, creator, row)
    pairs = [(pair[0], *entries.get(pair, (0, None))) for pair in named]
    return [entry if is_meant(session_id, key) else None for session_id, key, entry in pairs]


def _retracted_by(tx: Transaction, keys: Collection[int]) -> set[tuple[int, str]]:
    """Return what sessions have retracted: their keys, and the ids of entries."""
    return {(mark.session_key, mark.entry_id) for mark in marks_by(tx, keys) if mark.kind == "retracted"}


def places_of(tx: Transaction, named: Sequence[ManyNamedEntry]) -> list[EntryPlace | None]:
    """Return where entries of several sessions lie, in this order (see `Backend.places_of`)."""
    places: dict[ManyNamedEntry, tuple[int, EntryPlace]] = {}
    for some in base.in_parts(pair for pair in named if all(map(is_storable, pair))):
        places |= _places(tx, some)
    pairs = [(pair[0], *places.get(pair, (0, None))) for pair in named]
    return [place if is_meant(session_id, key) else None for session_id, key, place in pairs]


def _held(tx: Transaction, keys: Collection[int]) -> Mapping[tuple[int, int], int]:
    """Return how deep each lane is that sessions hold, by their key and the lane; nothing is read for none of them."""
    if not keys:
        return {}
    rows = tx.rows(HELD, keys=json.dumps(sorted(keys)))
    return {(key, lane_id): depth for key, lane_id, depth in rows}


class _View(Frozen):
    """The view of a path by the compaction in effect: which one that is, its layout and its pins."""

    compaction: StoredEntry
    layout: Layout
    pinned: frozenset[str]

    @property
    def names(self) -> set[str]:
        """The entries that delimit the kept part."""
        return {entry_id for entry_id in (*self.layout.named, *self.pinned, self.layout.first_kept_id) if entry_id}


class _Path:
    """The path to the leaf of a session, and the part of it in the context."""

    def __init__(self, stretches: Iterable[Stretch], view: _View | None, spots: Iterable[Spot]) -> None:
        self._ends = {stretch.lane_id: stretch.high for stretch in stretches}
        self._view = view
        self._spots = {spot.id: spot for spot in spots if self.has(spot)}

    def has(self, spot: Spot) -> bool:
        """Return whether an entry is on it."""
        return spot.depth <= self._ends.get(spot.lane_id, -1)

    def keeps(self, spot: Spot) -> bool:
        """Return whether an entry that is on it is in the context."""
        view = self._view
        if view is None:
            return True
        first, gaps = self._kept
        if spot.depth >= first and not any(gap.first <= spot.depth <= gap.last for gap in gaps):
            return True
        is_plain = view.layout.is_plain and not view.pinned
        return not is_plain and (
            spot.kind == EXCLUSION or (spot.id in view.names and spot.depth <= view.compaction.depth)
        )

    @cached_property
    def _kept(self) -> tuple[int, Sequence[Gap]]:
        """The depth from which on the path is kept, and the gaps in that."""
        if self._view is None:
            return 0, ()
        depth, layout = self._view.compaction.depth, self._view.layout
        first = self._spots.get(layout.first_kept_id or "")
        kept_from = depth if first is None else min(first.depth, depth)
        named = {name: spot for name, spot in self._spots.items() if spot.depth <= depth}
        return kept_from, gaps_of(layout, named, kept_from, depth)


def _places(tx: Transaction, named: Sequence[ManyNamedEntry]) -> dict[ManyNamedEntry, tuple[int, EntryPlace]]:
    stretches: dict[str, list[Stretch]] = {}
    for stretch in tx.rows(PATHS, ids=json.dumps(list(dict.fromkeys(session_id for session_id, _ in named)))):
        stretches.setdefault(stretch.session_id, []).append(stretch)
    views = {session_id: _view(tx, session_id, of_path) for session_id, of_path in stretches.items()}
    telling = [(session_id, name) for session_id, view in views.items() if view is not None for name in view.names]
    pairs = dict.fromkeys([*named, *(pair for pair in telling if is_storable(pair[1]))])
    spots: dict[str, list[Spot]] = {}
    rows = tx.rows(SPOTS, ids=json.dumps(list(pairs)))
    retracted = _retracted_by(tx, {spot.session_key for spot in rows})
    for spot in rows:
        if (spot.session_key, spot.id) not in retracted:
            spots.setdefault(spot.session_id, []).append(spot)
    paths = {name: _Path(stretches.get(name, ()), views.get(name), group) for name, group in spots.items()}
    off_path = [spot for group in spots.values() for spot in group if not paths[spot.session_id].has(spot)]
    depths = _held(tx, {spot.session_key for spot in off_path if spot.session_key != spot.creator_key})
    places: dict[ManyNamedEntry, tuple[int, EntryPlace]] = {}
    for spot in (spot for group in spots.values() for spot in group):
        path = paths[spot.session_id]
        if path.has(spot):
            places[spot.session_id, spot.id] = spot.session_key, "active" if path.keeps(spot) else "compacted"
        elif spot.session_key == spot.creator_key or spot.depth <= depths.get((spot.session_key, spot.lane_id), -1):
            places[spot.session_id, spot.id] = spot.session_key, "abandoned"
    return places


def _view(tx: Transaction, session_id: str, stretches: Iterable[Stretch]) -> _View | None:
    """Return the view of a path by the compaction in effect; None if there is none."""
    compactions = [compaction.compaction for compaction in stretches if compaction.compaction is not None]
    if not compactions:
        return None
    latest: StoredEntry | None = max(compactions, key=lambda compaction: compaction.depth)
    data = None if latest is None else _whole_in_row(tx, latest)
    fields = None if data is None else decode_object(data)
    if fields is None or context.RESTORES in fields:
        # What is large, damaged, or points to another compaction is read with its session.
        state = base.read_state(tx, session_id)
        latest = in_effect(tx, state, latest)
        fields = None if latest is None else fields_of(tx, state, latest)
    if latest is None or fields is None:
        return None
    return _View(latest, layout_of(latest.id, fields), context.pinned_ids(fields))


# ---------------------------------------------------------------------------------------------------------------------
# Pins: marks on entries, and what a compaction writes down of them.
#
# A compaction keeps in its payload which entries are pinned, and which ranges stay summarized, so that the context
# follows from the path alone. They are looked up in the transaction that appends it.

_STRETCH = 16


def group_of(tx: Transaction, state: SessionState, entry_id: str, leaf: Position | None) -> list[str]:
    """Return the ids that are pinned together: a tool call and its results, or the entry alone; in path order.

    Told on the path to ``leaf`` where that holds the entry, else on the entry's own. O(the messages from the call to
    the last of its results), or to the leaf where a call has none.
    """
    position = base.find_visible(tx, state, entry_id)
    on_path = [] if leaf is None else base.named_on_path(tx, state, leaf, [entry_id], leaf.depth)
    end = leaf if on_path and leaf is not None else position
    if end is None or (position is None and not on_path):
        return [entry_id]
    depth = on_path[0].depth if on_path else end.depth
    reach = _STRETCH
    while True:
        low, high = max(depth - reach, 0), min(depth + reach, end.depth)
        stretch = base.path_stretch(tx, state, end, low - 1, high, contents=False)
        index = depth - low
        messages = messages_of(stretch)
        if messages[index] is None or not _has_group(messages[index] or {}):
            return [entry_id]
        group = Pairing(messages).group_of(index)
        found_caller = group is not None and group.caller is not None
        is_answered = group is not None and group.is_answered
        if (found_caller or low == 0) and (is_answered or high == end.depth):
            return [entry_id] if group is None else [stretch[member].id for member in group.members]
        reach *= 4


def _has_group(message: JsonObject) -> bool:
    return answered_id(message) is not None or bool(called_ids(message))


def with_pins(
    tx: Transaction, state: SessionState, parent: Position | None, entries: Sequence[NewEntry]
) -> Sequence[NewEntry]:
    """Return entries to be appended below ``parent``, the compactions among them with the pins they keep."""
    if parent is None:
        return entries
    own, latest = base.pins_of(tx, state), latest_compaction(tx, state, parent)
    looking = _Looking(tx, state, parent)
    return [
        context.keeping(new, own, latest, looking, parent.depth + 1) if new.kind == COMPACTION else new
        for new in entries
    ]


class _Looking(Frozen):
    """The path that a compaction is appended to."""

    tx: Transaction
    state: SessionState
    parent: Position

    def named(self, ids: Iterable[str], /) -> dict[str, Entry]:
        """Return those of some entries that are on the path, by id, root first."""
        wanted = set(ids)
        entries = base.named_on_path(self.tx, self.state, self.parent, wanted, self.parent.depth) if wanted else []
        return {entry.id: entry for entry in entries}

    def group_of(self, entry_id: str, /) -> list[str]:
        """Return the ids that are pinned together with an entry."""
        return group_of(self.tx, self.state, entry_id, self.parent)


# ---------------------------------------------------------------------------------------------------------------------
# The settings in force at a leaf, found from the end of its path.


SETTING_KINDS = "('model_change', 'thinking_level_change')"
LAST_SETTING = statement(StoredEntry)(
    sql.WITH_SPANS + f"SELECT {sql.ENTRY} FROM spans s CROSS JOIN entries e ON {sql.IN_SPAN}"
    f" WHERE e.kind IN {SETTING_KINDS} AND e.kind = :kind ORDER BY e.depth DESC LIMIT 1"
)


def read_settings(tx: Transaction, session_id: str, *, leaf: LeafChoice = STORED) -> PathSettings:
    """Return the settings in force at a leaf (see `Backend.read_settings`)."""
    state = base.read_state(tx, session_id)
    _, position = place(tx, state, leaf)
    if position is None:
        return PathSettings()
    spans = base.spans_of(state, position)
    level = tx.first(LAST_SETTING, **spans, kind=THINKING_LEVEL_CHANGE)
    change = tx.first(LAST_SETTING, **spans, kind=MODEL_CHANGE)
    answer = _last_answer(tx, state, position, -1 if change is None else change.depth)
    return settings_on(base.entries_of_rows(tx, state, [row for row in (level, change, answer) if row is not None]))


# From the end of a stretch of a lane, as far as is needed.
LAST_ANSWER = statement(StoredEntry)(
    f"SELECT {sql.ENTRY} FROM entries e WHERE e.tree_id = :tree_id AND e.lane_id = :lane_id"
    " AND e.depth > :low AND e.depth <= :high AND e.kind = 'message' AND e.role = 'assistant'"
    " AND (e.source IS NULL OR e.source <> 'shell') ORDER BY e.depth DESC LIMIT 1"
)


def _last_answer(tx: Transaction, state: SessionState, position: Position, above: int) -> StoredEntry | None:
    """Return the last answer of a path that lies deeper than ``above``, looked for from the leaf."""
    stretches = [*tx.rows(sql.SPANS, **base.spans_of(state, position)), (0, -1)]
    for (lane_id, high), (_, low) in pairwise(stretches):
        within = {"tree_id": state.tree_id, "lane_id": lane_id, "low": max(low, above), "high": high}
        if (answer := tx.first(LAST_ANSWER, **within)) is not None or low <= above:
            return answer
    return None
