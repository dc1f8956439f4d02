"""Verification, and digests made anew."""

from __future__ import annotations

import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias, TypeVar

from msgspec import Struct, field

from flue_py.core.chain import NO_PARENT, Chain, Fields, UncheckedChain
from flue_py.core.json import Frozen, JsonObject, NamedTuple, decode_json, encoded, payload_digest, splice
from flue_py.core.kinds import MESSAGE, message_preview, message_text, message_title
from flue_py.core.sessions import Problem, VerifyReport, is_line, is_name, is_storable, is_usable, slot_of
from flue_py.core.trees import Lane
from flue_py.core.usage import NO_USAGE, NOTHING_PAID, PAID_COLUMNS, TOTAL_COLUMNS, Paid, UsageTotals, reported_usage
from flue_py.db import sql
from flue_py.db.ops.base import Cuts, blob_data, check_sum, lock_tree, unpack, unpack_blob
from flue_py.db.ops.documents import ALL_DOCUMENTS, described, gaps, is_sealed
from flue_py.db.ops.seals import (
    HEADS_OF_KEYS,
    paying,
    put_seams,
    renew_heads,
    seal_anew,
    seal_calls,
    stated_keys,
    with_heads,
    without_calls,
    without_seals,
)
from flue_py.db.ops.transfer import GONE_PAYERS
from flue_py.db.runner import KeyChanged, Nothing, Row, Transaction
from flue_py.db.schema import all_tokens
from flue_py.db.sql import columns, statement
from flue_py.errors import MISMATCH, CorruptStore, FlueError, shown

# ---------------------------------------------------------------------------------------------------------------------
# The statements of verification.


class StoredSession(Frozen):
    """A session as it is stored."""

    key: int
    id: str
    tree_id: int
    leaf: str | None
    fork_point: str | None
    revision: int
    entry_count: int
    message_count: int
    spent_tokens: int
    spent_cost: int
    unpriced: int
    unknown: int
    first_message: str | None
    active_at: int
    active_slot: int
    created_at: int
    scope: str
    name: str | None
    title: str | None


class StoredEntry(NamedTuple):
    """An entry as it is stored. ``storage`` is how SQLite stores its payload."""

    depth: int
    parent_id: str | None
    creator: int
    counted: int
    id: str
    kind: str
    role: str | None
    source: str | None
    revision: int
    ordinal: int
    created_at: int
    extra: str | None
    digest: bytes
    payload: bytes | None
    packed: bytes | None
    blob: bytes | None
    storage: str
    totals: UsageTotals
    paid: Paid

    @property
    def fields(self) -> Fields:
        """The fields that its digest covers."""
        return self[4:12]


def _stored_entry(row: Row) -> StoredEntry:
    totals, paid = len(TOTAL_COLUMNS), len(PAID_COLUMNS)
    columns, sums = row[: -totals - paid], row[-totals - paid :]
    return StoredEntry._make((*columns, UsageTotals._make(sums[:totals]), Paid._make(sums[totals:])))


def _booked(row: Row) -> tuple[int, int, str, Paid]:
    tree_id, session_key, entry_id, *paid = row
    return tree_id, session_key, entry_id, Paid._make(paid)


ALL_BLOBS = statement(tuple[int, bytes, int])("SELECT b.tree_id, b.sha256, b.size FROM blobs b")
INTEGRITY_CHECK = statement(tuple[str])("PRAGMA integrity_check")
FOREIGN_KEY_CHECK = statement(tuple[str, int | None, str, int])("PRAGMA foreign_key_check")
# Numbers that are compared or counted on are cast: SQLite may hold anything in them, which then is a wrong number.
ALL_SESSIONS = statement(StoredSession)(
    "SELECT s.session_key, s.id, s.tree_id, s.leaf, s.forked_from_entry, CAST(s.revision AS BIGINT),"
    " s.entry_count, s.message_count,"
    " s.spent_tokens, s.spent_cost, s.unpriced_calls, s.unknown_calls, s.first_message, s.active_at,"
    " s.active_slot, s.created_at, s.scope, s.key, s.title FROM sessions s ORDER BY s.session_key"
)
_LANES = "SELECT l.tree_id, l.lane_id, l.owner_key, l.parent_lane, CAST(l.fork_depth AS BIGINT) FROM lanes l"
ALL_LANES = statement(Lane)(f"{_LANES} ORDER BY l.tree_id, l.fork_depth, l.lane_id")
LANES_OF_TREE = statement(Lane)(f"{_LANES} WHERE l.tree_id = :tree_id ORDER BY l.fork_depth, l.lane_id")

TOTALS = columns("e", TOTAL_COLUMNS)


LANE_ENTRIES = statement(_stored_entry)(
    "SELECT CAST(e.depth AS BIGINT), e.parent_id, e.session_key, e.counted, e.id, e.kind, e.role, e.source,"
    " CAST(e.revision AS BIGINT), CAST(e.ordinal AS BIGINT), CAST(e.created_at AS BIGINT), e.extra,"
    f" {sql.DIGEST}, {sql.PAYLOAD}, {sql.PAYLOAD_STORAGE}, {TOTALS}, {sql.PAID} FROM entries e"
    " WHERE e.tree_id = :tree_id AND e.lane_id = :lane_id ORDER BY e.depth"
)
COUNT_ENTRIES = statement(tuple[int])("SELECT COUNT(*) FROM entries")
LANELESS_ENTRIES = statement(tuple[str])(
    "SELECT e.id FROM entries e LEFT JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
    " WHERE l.lane_id IS NULL"
)
NAMELESS_CALLS = statement(tuple[str])(
    "SELECT COALESCE(g.call_id, g.entry_id) FROM ledger g LEFT JOIN ledger_sessions n ON n.session_key = g.session_key"
    " WHERE n.session_key IS NULL"
)
# A call without an id goes by its entry, which is there, and no other call goes by that id.
LOST_CALLS = statement(tuple[str])(
    "SELECT g.entry_id FROM ledger g WHERE g.call_id IS NULL AND NOT EXISTS"
    " (SELECT 1 FROM entries e WHERE e.tree_id = g.tree_id AND e.id = g.entry_id AND e.session_key = g.session_key)"
)
CALLS_TWICE = statement(tuple[str])(
    "SELECT g.entry_id FROM ledger g JOIN ledger o ON o.scope = g.scope AND o.provider = g.provider"
    " AND o.call_id = g.entry_id WHERE g.call_id IS NULL"
)
UNUSED_BLOBS = statement(tuple[bytes])(
    "SELECT b.sha256 FROM blobs b WHERE NOT EXISTS"
    " (SELECT 1 FROM entries e WHERE e.tree_id = b.tree_id AND e.blob = b.sha256 AND e.blob IS NOT NULL)"
    " AND NOT EXISTS (SELECT 1 FROM attachments a WHERE a.tree_id = b.tree_id AND a.sha256 = b.sha256)"
)
LANE_ATTACHMENTS = statement(tuple[int, int, bytes])(
    "SELECT CAST(a.depth AS BIGINT), CAST(a.place AS BIGINT), a.sha256 FROM attachments a"
    " WHERE a.tree_id = :tree_id AND a.lane_id = :lane_id AND a.depth > :low AND a.depth <= :high"
    " ORDER BY a.depth, a.place"
)
ENTRYLESS_ATTACHMENTS = statement(tuple[int, int, int, bytes])(
    "SELECT a.tree_id, a.lane_id, a.depth, a.sha256 FROM attachments a LEFT JOIN entries e ON e.tree_id = a.tree_id"
    " AND e.lane_id = a.lane_id AND e.depth = a.depth WHERE e.id IS NULL ORDER BY a.tree_id, a.lane_id, a.depth"
)
ALL_RETRACTED = statement(tuple[int, str])("SELECT m.session_key, m.entry_id FROM marks m WHERE m.kind = 'retracted'")
LAST_REVISIONS = statement(tuple[int, int])(
    "SELECT m.session_key, CAST(MAX(m.revision) AS BIGINT) FROM leaf_moves m GROUP BY m.session_key"
)
LAST_KEY = statement(tuple[int | None])("SELECT MAX(s.session_key) FROM sessions s")
DANGLING_MARKS = statement(tuple[str, str, str])(
    "SELECT s.id, m.entry_id, m.kind FROM marks m JOIN sessions s ON s.session_key = m.session_key"
    " LEFT JOIN entries e ON e.tree_id = s.tree_id AND e.id = m.entry_id WHERE e.id IS NULL"
)
ODD_LINKS = statement(tuple[str, str, str | None])(
    "SELECT s.id, t.child_id, t.status FROM task_links t JOIN sessions s ON s.session_key = t.parent_key"
    " WHERE t.status NOT IN ('running', 'done', 'failed')"
    " OR (t.summary IS NOT NULL AND COALESCE(t.status, 'running') = 'running') ORDER BY t.parent_key, t.position"
)
BOOKED_CALLS = statement(_booked)(
    "SELECT g.tree_id, g.session_key, g.entry_id, COUNT(*), COUNT(*) - COUNT(g.cost), CAST(SUM(g.unknown) AS BIGINT),"
    f" CAST(SUM({all_tokens()}) AS BIGINT), COALESCE(CAST(SUM(g.cost) AS BIGINT), 0)"
    " FROM ledger g WHERE g.entry_id IS NOT NULL GROUP BY g.tree_id, g.session_key, g.entry_id"
)
LEDGER_SUMS = statement(tuple[int, int, int, int, int])(
    f"SELECT g.session_key, CAST(SUM({all_tokens()}) AS BIGINT), COALESCE(CAST(SUM(g.cost) AS BIGINT), 0),"
    " COUNT(*) - COUNT(g.cost), CAST(SUM(g.unknown) AS BIGINT) FROM ledger g GROUP BY g.session_key"
)
STRAY_PAYERS = statement(tuple[str, int | None, int])(
    "SELECT n.session_id, n.tree_id, MIN(g.tree_id) FROM ledger_sessions n JOIN ledger g"
    " ON g.session_key = n.session_key AND (n.tree_id IS NULL OR g.tree_id <> n.tree_id)"
    " GROUP BY n.session_key, n.session_id, n.tree_id ORDER BY n.session_key"
)
STRAY_PROJECTS = statement(tuple[str, str | None, str | None])(
    "SELECT n.session_id, n.project, s.cwd FROM ledger_sessions n JOIN sessions s ON s.session_key = n.session_key"
    " WHERE n.project <> s.cwd ORDER BY n.session_key"
)
STRAY_BUDGETS = statement(tuple[str, str | None])(
    "SELECT b.id, b.session_id FROM budgets b LEFT JOIN sessions s ON s.id = b.session_id AND s.scope = b.scope"
    " WHERE b.session_id IS NOT NULL AND s.session_key IS NULL ORDER BY b.budget_key"
)
BUDGET_SUMS = statement(tuple[str, int, int, int, int])(
    "SELECT b.id, b.reserved, b.spent,"
    " COALESCE(CAST(SUM(CASE WHEN r.state = 'held' THEN r.amount END) AS BIGINT), 0),"
    # With a period, the ledger says what was spent.
    " b.seeded + COALESCE(CAST(SUM(CASE WHEN r.state = 'committed' AND b.period = '' THEN r.used END) AS BIGINT), 0)"
    " FROM budgets b LEFT JOIN reservations r ON r.budget_key = b.budget_key"
    " GROUP BY b.budget_key, b.id, b.reserved, b.spent, b.seeded ORDER BY b.budget_key"
)
DOCUMENT_TEXT = statement(tuple[bytes, str])(
    f"SELECT {sql.BODY_BYTES}, {sql.BODY_STORAGE} FROM documents d WHERE d.scope = :scope AND d.kind = :kind"
    " AND d.space = :space AND d.project = :project AND d.name = :name"
)
ROWS_OF_NO_SESSION = {
    table: statement(tuple[int, int, str | None, str | None])(
        f"SELECT t.{column}, COUNT(*), MIN({example}), (SELECT MIN(n.session_id) FROM ledger_sessions n"
        f" WHERE n.session_key = t.{column}) FROM {table} t LEFT JOIN sessions s ON s.session_key = t.{column}{join}"
        f" WHERE s.session_key IS NULL GROUP BY t.{column} ORDER BY t.{column}"
    )
    for table, column, example, join in (
        ("lanes", "owner_key", "e.id", " LEFT JOIN entries e ON e.tree_id = t.tree_id AND e.lane_id = t.lane_id"),
        ("task_links", "parent_key", "t.child_id", ""),
        ("leaf_moves", "session_key", "t.to_entry", ""),
        ("session_edits", "session_key", "t.what", ""),
        ("requests", "session_key", "t.idempotency_key", ""),
        ("marks", "session_key", "t.entry_id", ""),
    )
}
"""Of each table: the missing session's key, its rows (of lanes: their entries), one they name, and the session's id."""


# ---------------------------------------------------------------------------------------------------------------------
# Verification: re-derive everything that is stored twice, and name what disagrees.


class _Audit(Struct):
    """The findings of the scan of the entries, for the checks that compare it with other tables.

    ``booked`` are the sums of the ledger for single entries, by tree, payer and entry.
    """

    booked: dict[tuple[int, int, str], Paid]
    problems: list[Problem] = field(default_factory=list)
    # The entries that lanes fork from, with the sums to them: needed when the child lane's turn comes.
    forked: dict[tuple[int, int, int], tuple[StoredEntry, UsageTotals, Paid]] = field(default_factory=dict)
    places: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)
    tips: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    entry_counts: Counter[int] = field(default_factory=Counter)
    message_counts: Counter[int] = field(default_factory=Counter)
    last_revisions: dict[int, int] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)

    # Sessions of whose messages one cannot be trusted, so that what they begin with is not known.
    unknown_previews: set[int] = field(default_factory=set)
    previews: dict[int, tuple[tuple[int, int], str]] = field(default_factory=dict)
    # What they begin with where what programs wrote counts, too, as it did in what was stored by earlier versions.
    first_lines: dict[int, tuple[tuple[int, int], str]] = field(default_factory=dict)

    def note_preview(self, creator: int, place: tuple[int, int], message: JsonObject) -> None:
        """Note how a user message begins, if it is the earliest of its session's so far that says anything."""
        first_line = message_preview(message_text(message))
        for texts, text in ((self.previews, message_title(message)), (self.first_lines, first_line)):
            if text is not None and (creator not in texts or place < texts[creator][0]):
                texts[creator] = (place, text)

    def report(self, kind: str, where: str, detail: str) -> None:
        self.problems.append(Problem(kind, where, detail))


def storage_problems(tx: Transaction, location: str) -> list[Problem]:
    """Return the problems that SQLite itself finds in a database: damaged pages and indexes, dangling references."""
    problems = [
        Problem("damaged database", location, str(text)) for (text,) in tx.rows(INTEGRITY_CHECK) if text != "ok"
    ]
    for table, rowid, parent, _ in tx.rows(FOREIGN_KEY_CHECK):
        problems.append(Problem("dangling reference", f"{table} row {rowid}", f"names no row of {parent}"))
    return problems


def verify(tx: Transaction) -> VerifyReport:
    """Check the whole store (see `Backend.verify`). O(store); memory: one row per entry for its place."""
    if tx.stated is not None and stated_keys(tx) != tx.stated:
        raise KeyChanged
    lanes = list(tx.rows(ALL_LANES))
    sessions = tx.rows(ALL_SESSIONS)
    retracted = set(tx.rows(ALL_RETRACTED))
    audit = _Audit({(tree, payer, entry): paid for tree, payer, entry, paid in tx.rows(BOOKED_CALLS)})
    forks = {(lane.tree_id, lane.parent_lane, lane.fork_depth) for lane in lanes}
    living = {session.key for session in sessions}
    for lane in lanes:
        _check_lane(tx, lane, forks, audit, retracted, living)
    for key, revision in tx.rows(LAST_REVISIONS):
        audit.last_revisions[key] = max(revision, audit.last_revisions.get(key, 0))
    headed, unsealed, paid = {*with_heads(tx, living)}, without_seals(tx, living), dict[int, str]()
    for keys in paying(tx):
        paid.update(without_calls(tx, keys))
    problem = f"a row of its log, marks, task links or calls {MISMATCH.replace('digest', 'seal')}"
    for payer in (name for key, name in paid.items() if key not in living):
        audit.report("damaged log", f"payer {payer}", problem)
    for session in sessions:
        if session.key not in headed:
            audit.report("damaged session", f"session {session.id}", f"its row {MISMATCH.replace('digest', 'head')}")
        if session.key in unsealed or session.key in paid:
            audit.report("damaged log", f"session {session.id}", problem)
        _check_names(session, audit)
        _check_session(session, audit)
    _check_holds(lanes, sessions, audit)
    _check_ledger(tx, sessions, audit)
    _check_documents(tx, audit)
    _check_leftovers(tx, audit)
    _check_next_key(tx, audit)
    (entries,) = tx.first(COUNT_ENTRIES) or (0,)
    return VerifyReport(len(sessions), entries, audit.problems, not tx.chain.checks)


def _check_names(session: StoredSession, audit: _Audit) -> None:
    """Report an id, a scope, a key and a title that no store would take, and that so cannot be asked for."""
    session_id, scope, key, title = session.id, session.scope, session.name, session.title
    where, refused = f"session {session_id!r}", "no store would take it; rescue the session by salvage"
    if not isinstance(session_id, str) or not is_usable(session_id):
        audit.report("unusable id", where, refused)
    if scope != "" and not is_name(scope):
        audit.report("unusable scope", where, f"{shown(scope)}: {refused}")
    if key not in (None, "") and not is_name(key):
        audit.report("unusable key", where, f"{shown(key)}: {refused}")
    if isinstance(title, str) and not is_storable(title):
        audit.report("unusable title", where, f"{shown(title)}: {refused}")


def _check_lane(
    tx: Transaction,
    lane: Lane,
    forks: set[tuple[int, int | None, int]],
    audit: _Audit,
    retracted: set[tuple[int, str]],
    living: set[int],
) -> None:
    where = f"lane {lane.lane_id} of tree {lane.tree_id}"
    parent: StoredEntry | None = None
    is_parent_known = True
    above: StoredEntry | None = None
    totals, paid = NO_USAGE, NOTHING_PAID
    if lane.parent_lane is not None:
        place = (lane.tree_id, lane.parent_lane, lane.fork_depth)
        if place not in audit.forked:
            audit.report("dangling parent", where, f"forks from depth {lane.fork_depth} of a lane that lacks it")
            is_parent_known = False
        parent, totals, paid = audit.forked.get(place, (None, NO_USAGE, NOTHING_PAID))
    expected_depth = lane.fork_depth + 1
    cuts: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    of_lane = {"tree_id": lane.tree_id, "lane_id": lane.lane_id}
    for depth, place_in_text, sha256 in tx.rows(LANE_ATTACHMENTS, **of_lane, low=-(2**62), high=2**62):
        cuts[depth].append((place_in_text, sha256))
    for entry in tx.rows(LANE_ENTRIES, **of_lane):
        depth, creator = entry.depth, entry.creator
        if not isinstance(entry.id, str) or not is_usable(entry.id):
            audit.report("unusable id", f"entry {entry.id!r}", "cannot be an id, or not be typed; rescue it by salvage")
        if depth != expected_depth:
            audit.report("wrong depth", f"entry {entry.id}", f"is at depth {depth}, not {expected_depth}")
        elif is_parent_known and entry.parent_id != (parent_id := None if parent is None else parent.id):
            detail = f"says that it was added to {entry.parent_id!r}, its lane has it below {parent_id!r}"
            audit.report("wrong parent", f"entry {entry.id}", detail)
        digest = (NO_PARENT if parent is None else parent.digest) if is_parent_known else None
        parent, is_parent_known = entry, True
        _check_order(lane, entry, above, living, audit)
        above = entry
        totals = _check_entry(tx, lane, entry, digest, cuts.get(depth, ()), totals, audit)
        paid = _check_paid(lane, entry, paid, audit)
        expected_depth = depth + 1
        if (lane.tree_id, lane.lane_id, depth) in forks:
            audit.forked[lane.tree_id, lane.lane_id, depth] = (entry, totals, paid)
        audit.places[lane.tree_id, entry.id] = (lane.lane_id, depth)
        audit.tips[lane.tree_id, lane.lane_id] = (depth, creator)
        audit.newest[creator] = max(entry.created_at, audit.newest.get(creator, entry.created_at))
        audit.last_revisions[creator] = max(entry.revision, audit.last_revisions.get(creator, 0))
        if (creator, entry.id) not in retracted:
            audit.entry_counts[creator] += 1
            audit.message_counts[creator] += entry.kind == MESSAGE
    if expected_depth == lane.fork_depth + 1:
        audit.report("empty lane", where, "has no entries")


def _check_order(lane: Lane, entry: StoredEntry, above: StoredEntry | None, living: set[int], audit: _Audit) -> None:
    """Check the order that finding entries by revision needs: whose lane it is, and that revisions grow along it."""
    where = f"entry {entry.id}"
    is_below_owner = above is not None and above.creator == lane.owner and lane.owner in living
    if entry.creator != lane.owner and (entry.creator in living or is_below_owner):
        detail = f"was added by session key {entry.creator}, its lane is that of {lane.owner}"
        audit.report("wrong lane", where, detail)
    if above is not None and above.creator == entry.creator:
        before, here = (above.revision, above.ordinal), (entry.revision, entry.ordinal)
        if here <= before:
            detail = f"is of revision and ordinal {here}, the entry before it in its lane of {before}"
            audit.report("wrong order", where, detail)


def _check_entry(
    tx: Transaction,
    lane: Lane,
    entry: StoredEntry,
    digest: bytes | None,
    cuts: Cuts,
    before: UsageTotals,
    audit: _Audit,
) -> UsageTotals:
    """Check one entry's digest and totals; return its stored totals, so that one error is reported once.

    ``digest`` is the one above; without it the parent is not there, which has been reported.
    """
    creator, kind, role, stored = entry.creator, entry.kind, entry.role, entry.totals
    where = f"entry {entry.id}"
    if not all(isinstance(amount, int) for amount in stored):
        audit.report("wrong totals", where, f"stores {tuple(stored)}, which are not all numbers")
        return before
    try:
        if entry.storage == "blob":
            raise CorruptStore("it is stored as bytes, not as text")
        # As bytes: a text of it would be there a second time, and may be four times as large.
        data = payload_text(tx, lane.tree_id, entry.payload, entry.packed, entry.blob)
        lost, data = put_back(tx, lane.tree_id, data, cuts)
        value = decode_json(data)
    except FlueError as error:
        audit.report("unreadable payload", where, str(error))
        audit.unknown_previews.add(creator)
        return stored
    for name, reason in lost:
        audit.report("missing attachment", where, f"lacks {name} ({reason}); words stand for it where it is read")
        audit.unknown_previews.add(creator)
    if digest is not None and not _has_digest(tx.chain, entry, digest, None if lost else data):
        audit.report("damaged entry", where, MISMATCH)
        audit.unknown_previews.add(creator)
        return stored
    fields = value if isinstance(value, dict) else {}
    if kind == MESSAGE and fields.get("role") != role:
        audit.report("wrong role", where, f"stores {role!r}, its message says {fields.get('role')!r}")
    if kind == MESSAGE and role == "user":
        audit.note_preview(creator, (entry.revision, entry.ordinal), fields)
    try:
        derived = before.plus(reported_usage(kind, role, fields)) if entry.counted else before
    except FlueError as error:
        audit.report("wrong totals", where, str(error))
        return stored
    if stored != derived:
        audit.report("wrong totals", where, f"stores {tuple(stored)}, derives {tuple(derived)}")
    return stored


def _has_digest(chain: Chain, entry: StoredEntry, above: bytes, data: bytes | None) -> bool:
    """Return whether an entry is as it was appended below this digest; its fields alone where the payload is lost."""
    if data is not None and not chain.has_text(entry.digest, above, entry.kind, data):
        return False
    return chain.has_fields(entry.digest, above, entry.fields)


def _check_paid(lane: Lane, entry: StoredEntry, before: Paid, audit: _Audit) -> Paid:
    """Check the costs of the path to an entry; return the stored sums, so that one error is reported once."""
    stored = entry.paid
    derived = before.plus(audit.booked.get((lane.tree_id, entry.creator, entry.id), NOTHING_PAID))
    if stored != derived:
        detail = f"stores {tuple(stored)}, the ledger has {tuple(derived)} of its path"
        audit.report("wrong sums of calls", f"entry {entry.id}", detail)
    return stored if all(isinstance(amount, int) for amount in stored) else derived


def payload_text(
    tx: Transaction, tree_id: int, payload: bytes | None, packed: bytes | None, blob: bytes | None
) -> bytes:
    """Return a payload without its attachments, from its three columns. Raises `CorruptStore`."""
    if payload is not None:
        return payload
    if packed is not None:
        return unpack(packed)
    if blob is None:
        raise CorruptStore("it has no payload")
    return unpack_blob(blob, blob_data(tx, tree_id, blob))


def put_back(tx: Transaction, tree_id: int, rest: bytes, cuts: Cuts) -> tuple[list[tuple[str, FlueError]], bytes]:
    """Return which attachments of a payload cannot be read, and why; and its text, or the rest of it without them.

    Raises `CorruptStore` for one that is longer than any payload.
    """
    lost: list[tuple[str, FlueError]] = []
    pieces: list[tuple[int, bytes]] = []
    for place, sha256 in cuts:
        try:
            pieces.append((place, encoded(unpack_blob(sha256, blob_data(tx, tree_id, sha256)))))
        except CorruptStore as error:
            lost.append((_blob_name(sha256), error))
    check_sum(rest, (len(piece) for _, piece in pieces))
    return lost, rest if lost else splice(rest, pieces)


def _check_session(session: StoredSession, audit: _Audit) -> None:
    key = session.key
    where = f"session {session.id}"
    for place, entry_id in (("leaf", session.leaf), ("fork point", session.fork_point)):
        if entry_id is not None and (session.tree_id, entry_id) not in audit.places:
            audit.report(f"missing {place}", where, f"names entry {entry_id}, which is not there")
    if audit.last_revisions.get(key, 0) > session.revision:
        audit.report("wrong revision", where, f"is at {session.revision}, its entries at {audit.last_revisions[key]}")
    newest = audit.newest.get(key, session.created_at)
    active = session.active_at
    if active != newest:
        audit.report("wrong activity", where, f"was last active at {active!r}, its newest entry is of {newest!r}")
    elif session.active_slot != slot_of(active):
        audit.report(
            "wrong activity", where, f"is listed in slot {session.active_slot!r}, and not in {slot_of(active)}"
        )
    derived_texts = [texts[key][1] if key in texts else None for texts in (audit.previews, audit.first_lines)]
    first_message = session.first_message
    if first_message not in derived_texts and key not in audit.unknown_previews:
        audit.report("wrong first message", where, f"lists {first_message!r}, derives {derived_texts[0]!r}")
    derived = (audit.entry_counts[key], audit.message_counts[key])
    counted = (session.entry_count, session.message_count)
    if counted != derived:
        audit.report("wrong count", where, f"counts {counted}, has {derived}")


def _check_holds(lanes: list[Lane], sessions: Sequence[StoredSession], audit: _Audit) -> None:
    """A lane of a deleted session must be held to its very end; the rest should have gone."""
    deepest: dict[tuple[int, int], int] = {}

    def hold(tree_id: int, lane_id: int, depth: int) -> None:
        deepest[tree_id, lane_id] = max(depth, deepest.get((tree_id, lane_id), -1))

    for lane in lanes:
        if lane.parent_lane is not None:
            hold(lane.tree_id, lane.parent_lane, lane.fork_depth)
    for session in sessions:
        for entry_id in (session.leaf, session.fork_point):
            place = None if entry_id is None else audit.places.get((session.tree_id, entry_id))
            if place is not None:
                hold(session.tree_id, *place)
    for lane in lanes:
        tip = audit.tips.get((lane.tree_id, lane.lane_id))
        if tip is not None and tip[1] != lane.owner and deepest.get((lane.tree_id, lane.lane_id), -1) < tip[0]:
            audit.report(
                "orphaned entries", f"lane {lane.lane_id} of tree {lane.tree_id}", "end where no session sees them"
            )


def _check_ledger(tx: Transaction, sessions: Sequence[StoredSession], audit: _Audit) -> None:
    sums = {key: sums for key, *sums in tx.rows(LEDGER_SUMS)}
    for session in sessions:
        where = f"session {session.id}"
        tokens, cost, unpriced, unknown = sums.get(session.key, (0, 0, 0, 0))
        spending = (session.spent_tokens, session.spent_cost)
        if spending != (tokens, cost):
            audit.report("wrong spending", where, f"stores {spending}, its ledger rows sum to {(tokens, cost)}")
        if session.unpriced != unpriced:
            detail = f"counts {session.unpriced}, its ledger has {unpriced}"
            audit.report("wrong number of unpriced calls", where, detail)
        if session.unknown != unknown:
            detail = f"counts {session.unknown}, its ledger has {unknown}"
            audit.report("wrong number of unknown calls", where, detail)
    for session_id, stored, derived in tx.rows(STRAY_PAYERS):
        detail = f"says {stored} is its tree, its calls were for tree {derived}"
        audit.report("wrong tree", f"payer {session_id}", detail)
    for session_id, project, folder in tx.rows(STRAY_PROJECTS):
        audit.report("wrong project", f"payer {session_id}", f"says {project!r}, the session works in {folder!r}")
    for budget_id, covered in tx.rows(STRAY_BUDGETS):
        audit.report("stray budget", f"budget {budget_id}", f"covers session {covered!r}, which is not there")
    for budget_id, reserved, spent, pending, used in tx.rows(BUDGET_SUMS):
        if reserved != pending:
            audit.report("wrong reservation", f"budget {budget_id}", f"has {reserved} set aside, holds {pending}")
        if spent != used:
            detail = f"stores {spent}, began with and used {used}"
            audit.report("wrong spending", f"budget {budget_id}", detail)


def _check_documents(tx: Transaction, audit: _Audit) -> None:
    """Check the names of documents, and their texts against the stored digests."""
    # Without the texts, since those of all documents at once may be larger than memory.
    for sealed in sorted(tx.rows(ALL_DOCUMENTS), key=lambda row: [str(part) for part in row[:5]]):
        scope, kind, space, project, own, kind_of_text, source, _, _, chars, digest, _ = sealed
        where = f"{kind} {own!r}"
        if not (scope == "" or is_name(scope)) or not all(
            is_line(text) for text in (space, project, own, kind_of_text, source or "")
        ):
            audit.report("unusable name", where, "no store would take it; rescue it by salvage")
        row = tx.first(DOCUMENT_TEXT, scope=scope, kind=kind, space=space, project=project, name=own)
        body, storage = row or (b"", "text")
        if storage == "blob":
            audit.report("damaged document", where, "it is stored as bytes, not as text")
        elif payload_digest(body) != digest:
            audit.report("damaged document", where, "does not match its digest")
        elif chars != (length := len(body.decode(errors="replace"))):
            audit.report("wrong length", where, f"stores {chars!r} characters, has {length}")
        elif not is_sealed(tx.chain, sealed):
            audit.report("damaged document", where, "does not match its seal")
    for gap in gaps(tx):
        if not gap.is_sealed(tx.chain):
            audit.report("missing document", "table documents", described(gap))


def _check_next_key(tx: Transaction, audit: _Audit) -> None:
    """Where keys are counted, the next one must be new: else a session would get the rows of another one."""
    row, last = tx.first(sql.READ_STATE, name="next_key"), tx.first(LAST_KEY)
    (highest,) = last or (0,)
    (next_key,) = row or (None,)
    if row is None:
        if tx.is_alone:
            audit.report("wrong next key", "table flue_store", "lacks next_key")
    elif not isinstance(next_key, int) or next_key <= (highest or 0):
        audit.report("wrong next key", "table flue_store", f"says {next_key!r}, and key {highest or 0} is taken")


def _check_leftovers(tx: Transaction, audit: _Audit) -> None:
    for (entry_id,) in tx.rows(LANELESS_ENTRIES):
        audit.report("dangling parent", f"entry {entry_id}", "is in a lane that does not exist")
    for (call_id,) in tx.rows(NAMELESS_CALLS):
        audit.report("nameless call", f"call {call_id}", "was paid by a session that ledger_sessions does not name")
    for (call_id,) in tx.rows(LOST_CALLS):
        audit.report("lost call", f"call {call_id}", "has no id of its own, and its session has no entry of that id")
    for (call_id,) in tx.rows(CALLS_TWICE):
        audit.report("call twice", f"call {call_id}", "is in the ledger twice, once by its entry alone")
    for tree_id, lane_id, depth, sha256 in tx.rows(ENTRYLESS_ATTACHMENTS):
        detail = f"was cut out of an entry at depth {depth} of lane {lane_id} of tree {tree_id}, which is not there"
        audit.report("orphaned attachment", _blob_name(sha256), detail)
    for tree_id, sha256, size in tx.rows(ALL_BLOBS):
        with contextlib.suppress(FlueError):
            # One that cannot be read is reported with the entry that needs it.
            if size != len(unpack_blob(sha256, blob_data(tx, tree_id, sha256))):
                audit.report("wrong blob size", _blob_name(sha256), f"stores {size}")
    for (sha256,) in tx.rows(UNUSED_BLOBS):
        audit.report("orphaned blob", _blob_name(sha256), "belongs to no entry")
    for table, orphans in ROWS_OF_NO_SESSION.items():
        for key, count, example, session_id in tx.rows(orphans):
            name = "" if session_id is None else f" (session {session_id})"
            detail = f"has rows of session key {key}{name}, which is not there: {count}, one of them for {example}"
            audit.report("rows of no session", f"table {table}", detail)
    for session_id, child_id, status in tx.rows(ODD_LINKS):
        ending = f"{shown(status)}, with a summary" if status in (None, "running") else shown(status)
        audit.report("wrong task status", f"session {session_id}", f"says of its task {child_id}: {ending}")
    for session_id, entry_id, kind in tx.rows(DANGLING_MARKS):
        audit.report("dangling mark", f"session {session_id}", f"has a {kind} on entry {entry_id}, which is not there")


def _blob_name(sha256: object) -> str:
    return f"blob {sha256.hex() if isinstance(sha256, bytes) else repr(sha256)}"


# ---------------------------------------------------------------------------------------------------------------------
# Digests made anew: of a store of an earlier format, of one that was rescued, and of trees that get another key.

_PAGE = 200
_WEIGHT = 8192
"""A text of so many bytes takes as long as an entry does."""

Next = TypeVar("Next")
Result = TypeVar("Result")
SET_DIGEST = statement(Nothing)(
    "UPDATE entries SET digest = :digest WHERE tree_id = :tree_id AND lane_id = :lane_id AND depth = :depth"
)


class _OfPayloads(Chain):
    """The digests of formats before the chain: each is that of its payload."""

    def has_text(self, digest: bytes, above: bytes, kind: str, text: bytes) -> bool:
        return payload_digest(text) == digest

    def has_fields(self, digest: bytes, above: bytes, fields: Fields) -> bool:
        return True


def chain_anew(tx: Transaction, *, of_payloads: bool = False) -> None:
    """Give each entry the digest that it has in its place; ``of_payloads``: until now each had that of its payload.

    An entry that was damaged stays so, with a digest that it does not have. O(entries), a page of them in memory.
    """
    source = _OfPayloads() if of_payloads else UncheckedChain()
    for lane in tx.rows(ALL_LANES):
        low = lane.fork_depth
        while page := _read_page(tx, lane, low, source, tx.chain, _PAGE):
            _set_digests(tx, lane, page)
            low += _PAGE


LEAVES = statement(tuple[int])(
    f"SELECT s.session_key FROM sessions s WHERE s.tree_id = :tree_id AND s.leaf {sql.IN_IDS}"
)
Part: TypeAlias = tuple[Next | None, int]
"""Where the next part of some work begins, None behind the last one, and how many entries have another digest."""


def rekey_entries(tx: Transaction, place: tuple[int, ...] | None, *, tree_id: int, most: int) -> Part[tuple[int, ...]]:
    """Give some entries of a tree the digests of the new key of the store, from a place on, and their leaves' heads.

    Those that have the digest of neither key get one that they do not have. Above an entry is always one that has its
    new digest. A place is of a lane, by where it forks and its id, and of a depth. O(lanes), a page in memory.
    """
    lock_tree(tx, tree_id)
    lanes, size, count = tx.rows(LANES_OF_TREE, tree_id=tree_id), min(most, _PAGE), 0
    forks = {(lane.parent_lane, lane.fork_depth) for lane in lanes}
    *done, last = place or (0,)
    for lane in lanes:
        here = [lane.fork_depth, lane.lane_id]
        if here < done:
            continue
        low = last if here == done else lane.fork_depth
        while page := _read_page(tx, lane, low, tx.chain, tx.chain.alone, size):
            low += size
            count += _write_page(tx, lane, page, forks)
            most -= sum(1 + length // _WEIGHT for _, _, length in page)
            if most <= 0:
                return (*here, low), count
    return None, count


def _write_page(tx: Transaction, lane: Lane, page: _Page, forks: Collection[tuple[int | None, int]]) -> int:
    """Write new digests, and what those were that sessions and other pages are built on; return how many are others."""
    ends = [(now, row.digest) for row, now, _ in page if (lane.lane_id, row.depth) in forks]
    put_seams(tx, [*ends, (page[-1][1], page[-1][0].digest)])
    leaves = tx.rows(LEAVES, tree_id=lane.tree_id, ids=json.dumps([str(row.id) for row, *_ in page]))
    keys = with_heads(tx, [key for (key,) in leaves])
    return _with_new_heads(tx, keys, lambda: _set_digests(tx, lane, page))


def rekey_sessions(tx: Transaction, place: int | None, *, tree_id: int, most: int) -> Part[int]:
    """Give the rows beside the entries of some sessions of a tree the seals of the new key, behind a session's key.

    Those that have no seals or no head of either key stay so. O(sessions), and the rows of ``most``.
    """
    page = sorted(key for key in lock_tree(tx, tree_id) if place is None or key > place)[:most]
    keys = with_heads(tx, page)
    intact = set(keys) - set(without_seals(tx, keys)) - without_calls(tx, keys).keys()
    _with_new_heads(tx, intact, lambda: seal_anew(tx, intact))
    return page[-1] if len(page) == most else None, 0


def rekey_payers(tx: Transaction, place: int | None, *, most: int) -> Part[int]:
    """Give calls of sessions that are gone the seals of the new key, behind a session's key. O(their calls)."""
    page = [payer.session_key for payer in tx.rows(GONE_PAYERS, after_key=-1 if place is None else place, count=most)]
    seal_calls(tx, set(page) - without_calls(tx, page).keys())
    return page[-1] if len(page) == most else None, 0


def _with_new_heads(tx: Transaction, keys: Collection[int], change: Callable[[], Result]) -> Result:
    """Change rows or leaves of sessions, and give them their heads; return what the change does."""
    were = {head.session_id: head.value for head in tx.rows(HEADS_OF_KEYS, keys=json.dumps([*keys]))}
    result = change()
    renew_heads(tx, keys)
    now = tx.rows(HEADS_OF_KEYS, keys=json.dumps([*keys]))
    put_seams(tx, ((head.value, were[head.session_id]) for head in now))
    return result


_Page: TypeAlias = list[tuple[sql.StoredEntry, bytes, int]]
"""Entries of a lane, with the digest that each gets, and the size of its payload."""


def _read_page(tx: Transaction, lane: Lane, low: int, source: Chain, target: Chain, size: int) -> _Page:
    """Return some entries of a lane below a depth, with their digests in another chain."""
    where = {"tree_id": lane.tree_id, "lane_id": lane.lane_id, "low": low, "high": low + size}
    cuts: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for depth, place, sha256 in tx.rows(LANE_ATTACHMENTS, **where):
        cuts[depth].append((place, sha256))
    page, above, new_above = _Page(), b"", b""
    for row in map(sql.StoredEntry._make, tx.rows(sql.LANE_RANGE, **where)):
        if not page:
            above = new_above = row.digest_above
        text = _text(tx, lane.tree_id, row, cuts.get(row.depth, ()))
        new_above = target.moved(source, row.digest, above, new_above, row.fields, text)
        above = row.digest
        page.append((row, new_above, len(text or b"")))
    return page


def _set_digests(tx: Transaction, lane: Lane, page: _Page) -> int:
    """Write the digests that are others; return how many."""
    where = {"tree_id": lane.tree_id, "lane_id": lane.lane_id}
    changed = [{**where, "depth": row.depth, "digest": digest} for row, digest, _ in page if digest != row.digest]
    tx.run_many(SET_DIGEST, changed)
    return len(changed)


def _text(tx: Transaction, tree_id: int, row: sql.StoredEntry, cuts: Cuts) -> bytes | None:
    """Return the text of a payload; None if it cannot be read, or not all of it."""
    try:
        lost, data = put_back(tx, tree_id, payload_text(tx, tree_id, row.payload, row.packed, row.blob), cuts)
    except CorruptStore:
        return None
    return None if lost else data
