"""Deletions, the texts that they erase, and redactions of entries."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import TypeAlias

from flue_py.core.chain import HALF
from flue_py.core.context import merged_range_of
from flue_py.core.entries import Entry, entry_prefix, layout_of, referred_artifact
from flue_py.core.erasure import (
    LONG_RUN,
    Needles,
    Piece,
    Place,
    Redaction,
    Run,
    extra_left,
    is_tombstone,
    line_of,
    mark_of,
    texts_gone,
    tombstone,
)
from flue_py.core.json import Frozen, JsonObject, NamedTuple, decode_json, decode_object, to_json
from flue_py.core.kinds import ARTIFACT, COMPACTION, MESSAGE, SUMMARIES, message_preview, message_text, message_title
from flue_py.core.ledger import owners_of_tasks
from flue_py.core.sessions import (
    IMPORTED_FILES,
    NOTHING_SEEN,
    STORED,
    Deletion,
    Edit,
    Expected,
    Note,
    ScopeContents,
    SessionInfo,
    deletion_of,
    is_meant,
    is_storable,
)
from flue_py.core.trees import Hold, Lane, LaneFate, plan_lane_deletion
from flue_py.db import sql
from flue_py.db.ops import base, documents, ledger
from flue_py.db.ops.base import (
    blob_data,
    checked_payload,
    decode_payload,
    entries_of_rows,
    find_held,
    lock_tree,
    read_state,
    spans_of,
    unpacked,
)
from flue_py.db.ops.documents import check_holds
from flue_py.db.ops.ledger import delete_scope_budgets, delete_session_budgets
from flue_py.db.ops.read import ENTRY_BY_ID
from flue_py.db.ops.seals import change_calls, keep_call_seals, renew_heads, seal_anew, without_seals
from flue_py.db.ops.sessions import write_edits
from flue_py.db.runner import Nothing, Row, SessionState, Sources, Transaction
from flue_py.db.schema import schema_statements
from flue_py.db.sql import StoredEntry, announced, statement
from flue_py.errors import EntryNotFound, damaged_rows

# ---------------------------------------------------------------------------------------------------------------------
# The statements of a deletion.


_LANE = "l.tree_id, l.lane_id, l.owner_key, l.parent_lane, l.fork_depth"
DOOMED_LANES = statement(Lane)(f"SELECT {_LANE} FROM lanes l WHERE l.owner_key {sql.IN_KEYS}")
CHILD_LANES = statement(Lane)(
    f"SELECT {_LANE} FROM lanes p JOIN lanes l ON l.tree_id = p.tree_id AND l.parent_lane = p.lane_id"
    f" WHERE p.owner_key {sql.IN_KEYS}"
)


def _held_by(column: str) -> str:
    entry = f"FROM entries e WHERE e.tree_id = s.tree_id AND e.id = s.{column}"
    return (
        f"SELECT s.tree_id, (SELECT e.lane_id {entry}) AS lane_id, (SELECT e.depth {entry}) AS depth, s.session_key"
        f" FROM sessions s WHERE s.{column} IS NOT NULL AND NOT s.session_key {sql.IN_KEYS} AND s.tree_id IN"
        f" (SELECT d.tree_id FROM sessions d WHERE d.session_key {sql.IN_KEYS})"
    )


# Where other sessions hold on to the lanes: with their leaf, or the entry they were forked from. (An entry is looked
# up for each session; joined, PostgreSQL would read the whole tree.)
HOLDS = statement(Hold)(
    "SELECT h.tree_id, h.lane_id, h.depth, h.session_key"
    f" FROM ({_held_by('leaf')} UNION ALL {_held_by('forked_from_entry')}) h"
    " JOIN lanes l ON l.tree_id = h.tree_id AND l.lane_id = h.lane_id"
    f" WHERE l.owner_key {sql.IN_KEYS}"
)
# What the ends of lanes hold: how many entries per blob (None: those without one), for each tree.
TAILS_CONTENT = statement(tuple[int, bytes | None, int])(
    f"SELECT e.tree_id, e.blob, COUNT(*) FROM ({sql.TAILS}) t CROSS JOIN entries e ON {sql.IN_TAIL}"
    " GROUP BY e.tree_id, e.blob"
)
# The same of what it deletes, where SQLite counts each entry by itself.
DELETE_TAILS = statement(tuple[int, bytes | None, int])(sql.DELETE_TAILS)
DELETE_TAIL_ATTACHMENTS = statement(tuple[int, bytes])(sql.DELETE_TAIL_ATTACHMENTS)
HAND_OVER_LANE = statement(Nothing)(
    "UPDATE lanes SET owner_key = :owner_key WHERE tree_id = :tree_id AND lane_id = :lane_id"
)
DELETE_LANE = statement(Nothing)("DELETE FROM lanes WHERE tree_id = :tree_id AND lane_id = :lane_id")
LOCK_BLOB = statement(tuple[int])(
    "SELECT b.size FROM blobs b WHERE b.tree_id = :tree_id AND b.sha256 = :sha256 FOR UPDATE"
)
DELETE_UNUSED_BLOB = statement(Nothing)(
    "DELETE FROM blobs WHERE tree_id = :tree_id AND sha256 = :sha256 AND NOT EXISTS"
    " (SELECT 1 FROM entries e WHERE e.tree_id = :tree_id AND e.blob = :sha256 AND e.blob IS NOT NULL)"
    " AND NOT EXISTS (SELECT 1 FROM attachments a WHERE a.tree_id = :tree_id AND a.sha256 = :sha256)"
)
# By these an import knows that a session was deleted here (what others have paid is remembered anyway).
_IMPORTED = f"FROM sessions s WHERE s.session_key {sql.IN_KEYS} AND {sql.PLACE_IN}(s.metadata, '\"imported\"') > 0"
NOTE_IMPORTED = statement(Nothing)(
    "INSERT INTO ledger_sessions (session_key, session_id, tree_id, project)"
    f" SELECT s.session_key, s.id, s.tree_id, NULLIF(s.cwd, '') {_IMPORTED} ON CONFLICT DO NOTHING"
)
IMPORTED_AMONG = statement(tuple[str, str])(f"SELECT s.id, s.scope {_IMPORTED}")
# Files that imports remember are no files of the user's.
SCOPE_CONTENTS = statement(ScopeContents)(
    "SELECT (SELECT COUNT(*) FROM documents d WHERE d.scope = :scope AND d.kind = 'memory'),"
    " (SELECT COUNT(*) FROM documents d WHERE d.scope = :scope AND d.kind = 'file' AND d.space = ''),"
    " (SELECT COUNT(*) FROM budgets b WHERE b.scope = :scope), (SELECT COUNT(*) FROM ledger g WHERE g.scope = :scope)"
)
# A session that is gone and paid nothing has no scope any more, and nobody asks for its folder.
PAYERS_OF_SCOPE = statement(tuple[int])(
    "SELECT session_key FROM ledger WHERE scope = :scope UNION SELECT session_key FROM ledger_sessions n"
    " WHERE project IS NOT NULL AND NOT EXISTS (SELECT 1 FROM ledger g WHERE g.session_key = n.session_key)"
    " AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.session_key = n.session_key)"
)
DELETE_SESSIONS = announced(f"DELETE FROM sessions WHERE session_key {sql.IN_KEYS}")


# ---------------------------------------------------------------------------------------------------------------------
# Deleting a session tree: exactly what nobody else sees, in one transaction.


# What a session's tasks have paid stays with it when the links to them go.
LINKS_OF_SESSIONS = statement(tuple[str, str])(
    "SELECT s.id, t.child_id FROM task_links t JOIN sessions s ON s.session_key = t.parent_key"
    f" WHERE t.parent_key {sql.IN_KEYS} ORDER BY t.parent_key, t.position"
)


def plan_deletion(
    tx: Transaction,
    session_ids: Sequence[str],
    scope: str | None,
    expected: Expected = STORED,
    *,
    despite: Collection[str] = (),
    is_erasure: bool = False,
) -> Deletion:
    """Return the deletion of sessions at once, without one (see `Backend.plan_deletion`)."""
    doomed = _closure(tx, session_ids, scope)
    if not doomed.sessions:
        return Deletion(())
    _require(tx, session_ids, doomed, expected)
    keys = json.dumps(list(doomed.sessions))
    documents.check_holds(tx, doomed.scopes, doomed.sessions.values(), despite)
    fates = _plan(tx, keys)
    deleted = sum(count for _, _, count in tx.rows(TAILS_CONTENT, tails=_tails(fates)))
    shared = shared_entries(tx, fates) if is_erasure else ()
    return doomed.deletion(deleted, fates, tx.rows(LINKS_OF_SESSIONS, keys=keys), shared)


def delete_tree(
    tx: Transaction,
    sources: Sources,
    session_id: str,
    scope: str | None,
    expected: Expected = STORED,
    *,
    erased: Needles | None = None,
    despite: Collection[str] = (),
) -> Deletion:
    """Delete a session, its task closure, and entries that only they saw (see `Backend.delete_tree`)."""
    locked = set[int]()
    doomed = _closure(tx, [session_id], scope)
    while not (tx.is_alone or doomed.sessions.keys() <= locked):
        # A task may be started while we wait: look again, until all there is is locked.
        tx.lock_sessions(doomed.sessions)
        locked |= doomed.sessions.keys()
        doomed = _closure(tx, [session_id], scope)
    if not doomed.sessions:
        return Deletion(())
    # Only now is it certain that nobody adds anything any more.
    _require(tx, [session_id], doomed, expected)
    keys = json.dumps(list(doomed.sessions))
    holds = documents.check_holds(tx, doomed.scopes, doomed.sessions.values(), despite)
    links = tuple(tx.rows(LINKS_OF_SESSIONS, keys=keys))
    fates = _plan_locked(tx, keys)
    base.leave_marks(tx, keys)
    tails = _tails(fates)
    shared: tuple[tuple[str, str], ...] = ()
    if erased is not None:
        shared = shared_entries(tx, fates)
        begin_erasure(tx)
        take_sessions(tx, erased, fates, keys)
    content = tx.rows(DELETE_TAILS, tails=tails)
    deleted = sum(count for _, _, count in content)
    delete_session_budgets(tx, doomed.sessions.values())
    if imported := tx.rows(IMPORTED_AMONG, keys=keys):
        change_calls(tx, doomed.sessions, lambda: tx.run(NOTE_IMPORTED, keys=keys))
    for place in imported:
        documents.put_document(tx, sources, deletion_of(*place))
    _note_tasks(tx, session_id, [link for link in links if link[1] not in doomed.others])
    blobs = {(tree_id, bytes(blob)) for tree_id, blob, _ in content if blob is not None}
    blobs.update((tree_id, bytes(blob)) for tree_id, blob in tx.rows(DELETE_TAIL_ATTACHMENTS, tails=tails))
    keep_call_seals(tx, doomed.sessions)
    _carry_out(tx, fates, blobs, keys)
    bodies = documents.remove_holds(tx, holds)
    if erased is not None:
        change_calls(tx, doomed.sessions, lambda: forget_payers(tx, keys))
        erased.add(*bodies)
    return doomed.deletion(deleted, fates, links, shared)


def empty_scope(
    tx: Transaction, scope: str, *, dry_run: bool, erased: Needles | None = None, despite: Collection[str] = ()
) -> ScopeContents:
    """Delete the documents, budgets and names of a scope (see `Backend.empty_scope`)."""
    documents.check_holds(tx, [scope], None, despite)
    (contents,) = tx.rows(SCOPE_CONTENTS, scope=scope)
    if not dry_run:
        if erased is not None:
            begin_erasure(tx)
            take_scope(tx, erased, scope)
        delete_scope_budgets(tx, scope)
        documents.remove_documents(tx, scope)
        keys = {key for (key,) in tx.rows(PAYERS_OF_SCOPE, scope=scope)}
        tx.lock_sessions(keys)
        change_calls(tx, keys, lambda: forget_payers(tx, json.dumps(sorted(keys))))
    return contents


class _Doomed(Frozen):
    sessions: dict[int, str]
    missing: list[str]
    others: set[str]
    """Tasks that are in other scopes: they are among the missing, and stay whose they were."""
    scopes: set[str]

    def deletion(
        self,
        deleted: int,
        fates: Iterable[LaneFate],
        links: Sequence[tuple[str, str]],
        shared: Sequence[tuple[str, str]] = (),
    ) -> Deletion:
        kept = sum(fate.keep_depth - fate.lane.fork_depth for fate in fates)
        return Deletion(tuple(self.sessions.values()), tuple(self.missing), deleted, kept, tuple(links), tuple(shared))


def _require(tx: Transaction, session_ids: Iterable[str], doomed: _Doomed, expected: Expected) -> None:
    """Raise `LeafConflict` or `RevisionConflict` for a session that is there, and is not as it was seen."""
    there = set() if expected in (STORED, NOTHING_SEEN) else {*doomed.sessions.values()}
    for session_id in session_ids:
        if session_id in there:
            base.read_state(tx, session_id).require(expected)


def _closure(tx: Transaction, session_ids: Iterable[str], scope: str | None) -> _Doomed:
    """Return sessions and their task closures, by key, without those that are gone or of another scope."""
    doomed = _Doomed({}, [], set(), set())
    for session_id in filter(is_storable, session_ids):
        rows = tx.rows(sql.TASK_CLOSURE, id=session_id, scope=scope)
        (root,) = (row for row in rows if row[0] == session_id)
        if root[1] is None or scope not in (None, root[2]) or not is_meant(session_id, root[1]):
            continue
        for child_id, session_key, child_scope in rows:
            if session_key is None or scope not in (None, child_scope):
                doomed.missing.append(child_id)
                doomed.others.update([] if session_key is None else [child_id])
            else:
                doomed.sessions[session_key] = child_id
                doomed.scopes.add(child_scope or "")
    return doomed


# Of sessions that go or are gone, and of tasks that such a session took along without having paid for anything itself.
PAYERS_TO_NOTE = statement(tuple[int, str, str, str | None])(
    "SELECT n.session_key, n.session_id, n.session_id, n.task_of FROM ledger_sessions n"
    f" WHERE n.session_id {sql.IN_IDS}"
    " UNION ALL SELECT n.session_key, n.task_of, n.session_id, NULL FROM ledger_sessions n"
    f" WHERE n.task_of {sql.IN_IDS} AND NOT EXISTS"
    " (SELECT 1 FROM ledger_sessions p WHERE p.session_id = n.task_of)"
)


def _note_tasks(tx: Transaction, session_id: str, links: Sequence[tuple[str, str]]) -> None:
    """Write down whose tasks they were, for their calls, since the links to them go."""
    if not links:
        return
    ids = json.dumps(sorted({session_id, *(child for _, child in links)}))
    payers = tx.rows(PAYERS_TO_NOTE, ids=ids)
    owners = owners_of_tasks(session_id, links, {name for _, _, name, _ in payers})
    notes = [
        {"session_key": key, "task_of": owners[task]} for key, task, _, of in payers if of is None and task in owners
    ]
    change_calls(tx, {int(str(note["session_key"])) for note in notes}, lambda: tx.run_many(sql.NOTE_TASK, notes))


def _plan_locked(tx: Transaction, keys: str) -> list[LaneFate]:
    """Return the plan, with its heirs locked: one that was being deleted meanwhile would inherit for nobody."""
    locked: set[int] = set()
    while True:
        fates = _plan(tx, keys)
        heirs = {fate.heir for fate in fates if fate.heir is not None} - locked
        if tx.is_alone or not heirs:
            return fates
        tx.lock_sessions(heirs)
        locked |= heirs


def _plan(tx: Transaction, keys: str) -> list[LaneFate]:
    doomed = list(tx.rows(DOOMED_LANES, keys=keys))
    children = list(tx.rows(CHILD_LANES, keys=keys))
    holds = list(tx.rows(HOLDS, keys=keys))
    return plan_lane_deletion(doomed, children, holds)


def _tails(fates: Iterable[LaneFate]) -> str:
    return json.dumps([[fate.lane.tree_id, fate.lane.lane_id, fate.keep_depth] for fate in fates])


def _carry_out(tx: Transaction, fates: list[LaneFate], blobs: Iterable[tuple[int, bytes]], keys: str) -> None:
    """Delete the rest, when the ends of the lanes are gone; ``blobs`` (tree, SHA-256) are those they referred to."""
    # Lanes change hands here, of which other sessions' states tell.
    tx.states.clear()
    tx.run(ledger.NAME_CALLS_OF_SESSIONS, keys=keys)
    lanes = [(fate.heir, {"tree_id": fate.lane.tree_id, "lane_id": fate.lane.lane_id}) for fate in fates]
    handed_over = [{**lane, "owner_key": heir} for heir, lane in lanes if heir is not None]
    tx.run_many(HAND_OVER_LANE, handed_over)
    if handed_over:
        # Entries that stay have lost the session that made them.
        tx.run(NEXT_EPOCH)
    tx.run_many(DELETE_LANE, [lane for heir, lane in lanes if heir is None])
    unused = [{"tree_id": tree_id, "sha256": blob} for tree_id, blob in sorted(blobs)]
    if not tx.is_alone:
        # Whoever is just storing an entry with this blob holds it: waited for here, seen by the next statement.
        tx.run_many(LOCK_BLOB, unused)
    tx.run_many(DELETE_UNUSED_BLOB, unused)
    # Marks, moves, requests and links of the sessions go with their rows (ON DELETE CASCADE).
    tx.run(DELETE_SESSIONS, keys=keys)


# ---------------------------------------------------------------------------------------------------------------------
# Erased texts: those of the rows that are about to go, and the look for them in the rows that stay.

# The texts of people in the rows of sessions. Their ids stay in the ledger.
_TEXTS = {
    "sessions": 'session_key, "key", title, metadata, cwd, config_path, first_message, auto_title',
    "marks": "session_key, value",
    "leaf_moves": "session_key, moved_by, why",
    "requests": "session_key, idempotency_key",
    "session_edits": 'session_key, "before", "after", edited_by, why',
    "task_links": "parent_key, task_id, summary",
}
TEXTS_OF_SESSIONS = [
    statement(tuple[object, ...])(f"SELECT {columns} FROM {table} WHERE {columns.partition(',')[0]} {sql.IN_KEYS}")
    for table, columns in _TEXTS.items()
]
_IN_LANE = "tree_id = :tree_id AND {0}.lane_id = :lane_id AND {0}.depth > :low"
PAYLOADS_OF_LANE = statement(tuple[int, str | None, bytes | None, str | None])(
    "SELECT e.depth, e.payload, e.packed, e.extra FROM entries e"
    f" WHERE e.{_IN_LANE.format('e')} ORDER BY e.depth LIMIT 200"
)
BLOBS_OF_LANE = statement(tuple[bytes])(
    f"SELECT e.blob FROM entries e WHERE e.{_IN_LANE.format('e')} AND e.blob IS NOT NULL"
    f" UNION SELECT a.sha256 FROM attachments a WHERE a.{_IN_LANE.format('a')}"
)
NAMES_OF_PAYERS = statement(tuple[object, ...])(
    f"SELECT n.session_key, n.project, NULL FROM ledger_sessions n WHERE n.session_key {sql.IN_KEYS}"
    f" UNION SELECT g.session_key, NULL, g.agent FROM ledger g WHERE g.session_key {sql.IN_KEYS}"
)
# The entries of a lane that others see, with the sessions that added them, if these are there.
SHARED = statement(tuple[str, str])(
    "SELECT s.id, e.id FROM entries e JOIN sessions s ON s.session_key = e.session_key"
    f" WHERE e.{_IN_LANE.format('e')} AND e.depth <= :depth ORDER BY e.depth"
)
DOCUMENTS_OF_SCOPE = statement(tuple[object, ...])(
    "SELECT d.scope, d.space, d.project, d.name, d.source, d.body FROM documents d WHERE d.scope = :scope"
    f" AND (d.space <> '{IMPORTED_FILES}' OR d.project = '')"
)
NAMES_OF_SCOPE = statement(tuple[object, ...])(
    "SELECT DISTINCT g.scope, g.agent, n.project FROM ledger g"
    " LEFT JOIN ledger_sessions n ON n.session_key = g.session_key WHERE g.scope = :scope"
)
FORGET_AGENTS = statement(Nothing)(
    f"UPDATE ledger SET agent = NULL WHERE agent IS NOT NULL AND session_key {sql.IN_KEYS}"
)
FORGET_FOLDERS = statement(Nothing)(
    f"UPDATE ledger_sessions SET project = NULL WHERE project IS NOT NULL AND session_key {sql.IN_KEYS}"
)
OVERWRITE = statement(tuple[int])(sql.OVERWRITE)
ALL_TABLES = statement(tuple[str, int])(sql.ALL_TABLES)
# Until everything was looked through, another call knows by this that a process may have been killed before that.
UNFINISHED = statement(Nothing)(
    "INSERT INTO flue_store (name, value) VALUES ('erasing', 1) ON CONFLICT (name) DO NOTHING"
)
FINISHED = statement(Nothing)("DELETE FROM flue_store WHERE name = 'erasing'")


IS_ERASING = statement(tuple[int])("SELECT value FROM flue_store WHERE name = 'erasing'")


def is_erasing(tx: Transaction) -> bool:
    """Return whether an erasure has begun and was not finished (see `Backend.is_erasing`)."""
    return tx.first(IS_ERASING) is not None


def begin_erasure(tx: Transaction) -> None:
    """Have the database overwrite what this transaction deletes, as far as it can, and note that this has begun."""
    tx.rows(OVERWRITE)
    tx.run(UNFINISHED)


def take_sessions(tx: Transaction, needles: Needles, fates: Sequence[LaneFate], keys: str) -> None:
    """Take the texts of the sessions of these keys, and of the ends of their lanes that go. O(their size)."""
    for texts in (*TEXTS_OF_SESSIONS, NAMES_OF_PAYERS):
        for rows in tx.pages(texts, keys=keys):
            _add(needles, rows)
    for fate in fates:
        lane = {"tree_id": fate.lane.tree_id, "lane_id": fate.lane.lane_id}
        low = fate.keep_depth
        while payloads := tx.rows(PAYLOADS_OF_LANE, low=low, **lane):
            _add(needles, payloads)
            low = payloads[-1][0]
        for (sha256,) in tx.rows(BLOBS_OF_LANE, low=fate.keep_depth, **lane):
            needles.add(blob_data(tx, fate.lane.tree_id, bytes(sha256)))


def shared_entries(tx: Transaction, fates: Sequence[LaneFate]) -> tuple[tuple[str, str], ...]:
    """Return the entries of lanes that others see, as (session, entry), as far as these sessions are there."""
    pairs: list[tuple[str, str]] = []
    for fate in fates:
        lane = {"tree_id": fate.lane.tree_id, "lane_id": fate.lane.lane_id}
        pairs += tx.rows(SHARED, low=fate.lane.fork_depth, depth=fate.keep_depth, **lane)
    return tuple(pairs)


def forget_payers(tx: Transaction, keys: str) -> None:
    """Take agents and folders out of the calls that sessions have paid for."""
    tx.run(FORGET_AGENTS, keys=keys)
    tx.run(FORGET_FOLDERS, keys=keys)


def take_scope(tx: Transaction, needles: Needles, scope: str) -> None:
    """Take the texts of the documents of a scope, and of the names in its calls. O(their size)."""
    for texts in (DOCUMENTS_OF_SCOPE, NAMES_OF_SCOPE):
        for rows in tx.pages(texts, scope=scope):
            _add(needles, rows)


def _add(needles: Needles, rows: Sequence[Row]) -> None:
    """Take all texts of rows but in their first column, which is a key."""
    for _, *values in rows:
        needles.add(*(value for value in values if isinstance(value, (str, bytes))))


# -- the look ---------------------------------------------------------------------------------------------------------

_BLOCKS = 64
"""How many pages of a table of PostgreSQL are read at once."""


def own_tables() -> frozenset[str]:
    """Return the names of the tables that a store brings with it."""
    names = (name for text in schema_statements() for name in re.findall(r"CREATE TABLE (\w+)", text))
    return frozenset([*names, "flue_store", "sqlite_master"])


def look_for_erased(tx: Transaction, needles: Needles) -> tuple[list[Place], list[Place]]:
    """Look for erased texts in the rows of all tables: those of other tables, and those of the store's. O(store)."""
    own = own_tables()
    tables = [_look_in(tx, needles, name, blocks, is_own=name in own) for name, blocks in tx.rows(ALL_TABLES)]
    return [table for table in tables if table.name not in own], [table for table in tables if table.name in own]


def _look_in(tx: Transaction, needles: Needles, table: str, blocks: int, *, is_own: bool) -> Place:
    count, pieces, where, long_bytes = 0, set[Piece](), "", 0
    for rows in _pages_of(tx, table, blocks):
        count += len(rows)
        for row in rows:
            for run, is_stored in _runs_in(row, needles):
                # A file has what is stored, and nothing of what is packed in that.
                pieces.update(run.pieces if is_stored else ())
                if run.size >= LONG_RUN or not is_own:
                    long_bytes += run.size
                    where = where or next((f"row {text[:80]}" for text in row if isinstance(text, str)), "")
    return Place(table, count, pieces, where, long_bytes)


def _runs_in(row: Sequence[object], needles: Needles) -> Iterator[tuple[Run, bool]]:
    """Yield the runs in the values of a row, and whether they are stored so; also those in what is packed."""
    for value in row:
        data = value.encode(errors="surrogatepass") if isinstance(value, str) else value
        if isinstance(data, bytes):
            yield from zip(needles.runs(data, of_rows=True), repeat(True))
        if isinstance(value, bytes) and value.startswith(b"x") and (text := unpacked(value)) is not None:
            yield from zip(needles.runs(text, of_rows=True), repeat(False))


def _pages_of(tx: Transaction, table: str, blocks: int) -> Iterator[Sequence[Row]]:
    text = f'SELECT * FROM "{table}"'
    if blocks < 0:
        yield from tx.pages(statement(tuple[object, ...])(text))
    for block in range(0, blocks, _BLOCKS):
        places = [f"CAST('({number},0)' AS tid)" for number in (block, block + _BLOCKS)]
        yield tx.rows(statement(tuple[object, ...])(f"{text} WHERE ctid >= {places[0]} AND ctid < {places[1]}"))


# ---------------------------------------------------------------------------------------------------------------------
# Redactions: the payloads of entries give way to tombstones, with everything that is derived from them.

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
    for (tree_id,) in tx.rows(sql.TREE_OF, id=session_id) if is_storable(session_id) else ():
        lock_tree(tx, tree_id)


def _taken(tx: Transaction, state: SessionState, entry_ids: Sequence[str]) -> tuple[list[_Taken], list[StoredEntry]]:
    """Return the entries to be redacted, with the artifacts that hold the rest of them; and the tombstones."""
    rows: dict[str, StoredEntry] = {}
    for entry_id in entry_ids:
        row = tx.first(ENTRY_BY_ID, tree_id=state.tree_id, entry_id=entry_id) if is_storable(entry_id) else None
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
            tx.run(sql.UPDATE_AUTO_TITLE, session_key=row.session_key, auto_title=None)
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
