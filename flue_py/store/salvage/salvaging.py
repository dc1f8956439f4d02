"""Rescue the readable data of a damaged SQLite database into a new one, which verifies without problems.

The damaged file and its write-ahead log are only read. The new database is made beside its final name and takes that
name when it is whole.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

import pydantic_core

from flue_py.core.limits import LARGEST_ENTRY
from flue_py.core.rows import BlobRow
from flue_py.core.salvaging import Loss, SalvageReport
from flue_py.core.usage import PAID_COLUMNS, TOTAL_COLUMNS
from flue_py.errors import CorruptStore, FormatTooNew, NotAStore, StoreUnavailable
from flue_py.store.files.private import Part
from flue_py.store.salvage.documents import lost_document
from flue_py.store.salvage.history import History, Placed
from flue_py.store.salvage.names import rename_unusable
from flue_py.store.salvage.notes import naming_in_extra
from flue_py.store.salvage.pages import PageFile, Value
from flue_py.store.salvage.references import follow_renamed, stored_anew
from flue_py.store.salvage.rows import EntryRow, Found, Gathered, Key, checked_object
from flue_py.store.salvage.shapes import shapes
from flue_py.store.salvage.tables import Scan
from flue_py.store.schema.ddl import PAID_SUMS, unreleased
from flue_py.store.schema.payloads import StoredPayload
from flue_py.store.schema.stamp import APPLICATION_ID, FIRST_FORMAT, FORMAT_VERSION
from flue_py.store.sql import store as store_sql
from flue_py.store.sqlite.backup import verify_connection
from flue_py.store.sqlite.file import check_magic, translated
from flue_py.store.sqlite.migrate import open_file
from flue_py.store.sqlite.owner import require_not_open

_REFERRING = {
    "leaf_moves": "move", "session_edits": "edit", "marks": "mark", "requests": "request", "task_links": "link",
}  # fmt: skip
"""Tables of rows that belong to a session, and the word for one row."""

_NOTES = {"leaf_moves": "; it cannot be undone", "session_edits": ""}
"""Tables that record what was done, also to deleted entries, and what the loss of such a row means."""


def salvage(damaged: Path, new: Path, most: int = LARGEST_ENTRY) -> SalvageReport:
    """Write the readable data of ``damaged`` into ``new``, which must not exist; return what was lost.

    A payload of more than ``most`` bytes is not unpacked, and its entry is lost.

    ``damaged`` and the log beside it are never changed; nothing may write to them meanwhile. Raises `InvalidArgument`
    if ``new`` exists or this process has ``damaged`` open, `NotAStore` if no row of a store is found,
    `FormatTooNew`, `StoreUnavailable`. O(file); memory: a small part of it.
    """
    require_not_open(damaged)
    with Part(new) as part, PageFile(damaged) as file:
        scan, found = _read(file, damaged, most)
        columns = [column.name for column in shapes(file.page_size).by_name["entries"].columns]
        # The sums of what was paid are derived anew.
        names = {name: place for place, name in enumerate(columns) if name not in PAID_COLUMNS}
        history = History(found, list(found.checked_entries(names)))
        history.rebuild()
        _report_pages(scan, found)
        calls, documents = _write(part.path, history, names)
        part.publish()
    return SalvageReport(
        len(history.sessions),
        len(history.entries),
        calls,
        tuple(sorted(scan.bad)),
        tuple(found.losses),
        tuple(found.changes),
        documents,
    )


def _read(file: PageFile, damaged: Path, most: int) -> tuple[Scan, Gathered]:
    """Return everything that can be found in the file. Raises as `salvage` says."""
    found = Gathered(file, most)
    scan = Scan(file, found.take)
    scan.along_trees()
    found.complete, found.suspect = scan.whole_trees, scan.suspect
    if found.stamp is not None and FORMAT_VERSION < found.stamp < 2**16:
        detail = f"{damaged} has format {found.stamp}, this flue_py reads up to {FORMAT_VERSION}"
        raise FormatTooNew(f"{detail}; upgrade flue_py")
    if found.stamp is not None and 0 < found.stamp < FIRST_FORMAT:
        raise StoreUnavailable(unreleased(str(damaged), found.stamp))
    found.straighten()
    scan.damaged_pages()
    if scan.free_is_known or scan.torn or found.misses_rows:
        scan.loose_pages()
    if file.log.damaged:
        scan.older_pages()
    found.straighten()
    rename_unusable(found)
    is_ours = file.has_header and int.from_bytes(file.header[68:72]) == APPLICATION_ID
    if not (is_ours or found.entries or found.tables["sessions"] or found.tables["flue_store"]):
        check_magic(damaged)
        raise NotAStore(f"nothing of a store of flue_py is found in {damaged}; name another file")
    return scan, found


def _report_pages(scan: Scan, found: Gathered) -> None:
    """Report the tables with damaged pages: rows may be lost that nothing else names."""
    for number, table in sorted(scan.bad.items()):
        if table is not None and table not in (
            "entries",
            "flue_store",
            "alembic_version",
            "lanes",
            "blobs",
            "attachments",
        ):
            found.losses.append(Loss("page", None, None, f"page {number}, of {table}, was not readable whole"))
    for table, count in sorted(found.unreadable.items()):
        if table not in ("lanes", "flue_store"):
            found.losses.append(Loss("page", None, None, f"{count} rows of {table} make no sense"))


# -- writing ----------------------------------------------------------------------------------------------------------


# Where the two differ, a bit of one has flipped.
_ONE_FOLDER = """\
UPDATE ledger_sessions SET project =
    (SELECT s.cwd FROM sessions s WHERE s.session_key = ledger_sessions.session_key)
 WHERE project <> (SELECT s.cwd FROM sessions s WHERE s.session_key = ledger_sessions.session_key)"""


def _write(path: Path, history: History, names: dict[str, int]) -> tuple[int, int]:
    """Write the new database and verify it; return how many calls and how many documents it has."""
    connection = open_file(path, "full", 0.0)
    with closing(connection), translated(path):
        # A crash before it is published loses nothing, so nothing need be synced.
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        _write_sessions(connection, history)
        _write_entries(connection, history, names)
        _write_rows_of_sessions(connection, history)
        calls = _write_ledger(connection, history)
        for statement in PAID_SUMS:
            connection.execute(statement)
        _write_budgets(connection, history.found, {row["id"] for row in history.sessions.values()})
        documents = _write_documents(connection, history.found)
        _write_state(connection, history)
        connection.execute(_ONE_FOLDER)
        connection.execute("COMMIT")
        problems = verify_connection(connection, str(path)).problems
        if problems:
            raise CorruptStore(f"what was rescued contradicts itself ({problems[0]}); nothing was written")
        connection.execute("PRAGMA journal_mode = WAL")
    return calls, documents


def _insert(connection: sqlite3.Connection, table: str, row: Found) -> None:
    columns = ", ".join(f'"{name}"' for name in row)
    connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(row))})", list(row.values()))


def _write_sessions(connection: sqlite3.Connection, history: History) -> None:
    for row in history.sessions.values():
        row.pop("mended", None)
        _insert(connection, "sessions", row)
    for lane in history.lanes.values():
        row = {
            "tree_id": lane.tree, "lane_id": lane.id, "owner_key": lane.owner, "parent_lane": lane.parent,
            "fork_depth": lane.fork_depth,
        }  # fmt: skip
        _insert(connection, "lanes", row)


def _write_entries(connection: sqlite3.Connection, history: History, names: dict[str, int]) -> None:
    """Write the entries as they were, at their new positions, in the order of the file."""
    blobs: set[tuple[int, bytes]] = set()
    for entry in sorted(history.entries, key=lambda entry: (entry.rowid or 0, entry.where)):
        found = history.found
        row = found.columns(entry, names)
        _place(row, entry, history.placed[id(entry)])
        if row["extra"] is not None and checked_object(row["extra"]) != row["extra"]:
            row["extra"] = None
            found.changes.append(Loss("entry", found.session_id(entry.session), entry.id, "lost its extra fields"))
        elif isinstance(row["extra"], str) and (found.renamed or found.renamed_sessions):
            left = naming_in_extra(row["extra"], found.names_in(entry.tree))
            if left:
                detail = f"extra fields name others in {', '.join(left)}: what they name has new ids; they stay"
                found.changes.append(Loss("entry", found.session_id(entry.session), entry.id, detail))
        for name in ("role", "source"):
            if not isinstance(row[name], str):
                row[name] = None
        changed, stored = follow_renamed(found, entry, row)
        if stored is not None:
            detail = f"names other entries in {', '.join(changed)}: those it named have new ids"
            found.changes.append(Loss("entry", found.session_id(entry.session), entry.id, detail))
        if found.cuts_of(entry):
            text, lost = found.text(found.columns(entry, names), entry)
            if lost:
                detail = f"lost what was attached to it (blob {', '.join(lost)}); words stand for it"
                found.changes.append(Loss("entry", found.session_id(entry.session), entry.id, detail))
            stored = stored or stored_anew(row, text)
        _insert(connection, "entries", row)
        for blob in _blobs_of(found, row["blob"], stored):
            if (entry.tree, blob.sha256) not in blobs:
                blobs.add((entry.tree, blob.sha256))
                _insert(connection, "blobs", {"tree_id": entry.tree, **blob._asdict()})
        for at, sha256 in () if stored is None else stored.cuts:
            cut: Found = {"tree_id": entry.tree, "lane_id": row["lane_id"], "depth": row["depth"]}
            _insert(connection, "attachments", {**cut, "place": at, "sha256": sha256})


def _blobs_of(found: Gathered, stored_as: Value, stored: StoredPayload | None) -> Sequence[BlobRow]:
    """Return the blobs of a payload that is ``stored`` anew, or, where it stays as it is, ``stored_as`` a blob."""
    if stored is not None:
        return stored.blobs
    if not isinstance(stored_as, bytes):
        return ()
    text, data = found.blob(stored_as)
    return (BlobRow(stored_as, len(text), data),)


def _place(row: Found, entry: EntryRow, placed: Placed) -> None:
    row.update(
        tree_id=entry.tree, lane_id=placed.lane, depth=placed.depth, id=entry.id, parent_id=placed.parent_id,
        session_key=entry.session,
        revision=entry.revision, ordinal=entry.ordinal, created_at=entry.created,
        kind=entry.kind, role=entry.role,
        counted=int(entry.counted),
    )  # fmt: skip
    row.update(zip(TOTAL_COLUMNS, placed.totals, strict=True))
    row.update(dict.fromkeys(PAID_COLUMNS, 0))


def _write_rows_of_sessions(connection: sqlite3.Connection, history: History) -> None:
    """Write moves, marks, requests and links, and report those whose session or entry is lost."""
    found = history.found
    links: set[tuple[Value, Value]] = set()
    for table, what in _REFERRING.items():
        for row in found.tables[table].values():
            key = row["parent_key" if table == "task_links" else "session_key"]
            session = history.sessions.get(key) if isinstance(key, int) else None
            if session is None:
                owner = found.session_id(key) if isinstance(key, int) else None
                found.losses.append(Loss(what, owner, None, f"{_shown(table, row)}: its session is lost"))
                continue
            missing = _missing_entries(history, session, table, row)
            if table in _NOTES and missing:
                detail = f"{_shown(table, row)} names an entry that is lost{_NOTES[table]}"
                found.changes.append(Loss(what, str(session["id"]), missing[0], detail))
            elif missing:
                detail = f"{_shown(table, row)}: its entry is lost"
                found.losses.append(Loss(what, str(session["id"]), missing[0], detail))
                continue
            if table == "task_links":
                if (key, row["child_id"]) in links:
                    continue
                links.add((key, row["child_id"]))
            _insert(connection, table, row)
    for (parent, position), child in found.witnesses.links.items():
        if (parent, child) not in links and parent in history.sessions:
            detail = f"to session {child}, at position {position}: its row is lost"
            found.losses.append(Loss("link", str(history.sessions[parent]["id"]), None, detail))


def _missing_entries(history: History, session: Found, table: str, row: Found) -> list[str]:
    """Return the missing entries that a row names."""
    names: list[Value] = []
    if table == "leaf_moves":
        names = [row["from_entry"], row["to_entry"]]
    elif table in ("marks", "session_edits"):
        names = [row["entry_id"]]
    elif table == "requests" and row["operation"] == "append":
        try:
            result = pydantic_core.from_json(str(row["result"]))
        except ValueError:
            return ["?"]
        names = list(result[0]) if isinstance(result, list) and result and isinstance(result[0], list) else ["?"]
    here = history.by_id
    tree = session["tree_id"]
    lost = [name for name in names if isinstance(name, str) and (tree, name) not in here]
    if table in _NOTES:
        # A row may name entries that were deleted long ago; only those lost now are reported.
        lost = [name for name in lost if isinstance(tree, int) and history.is_lost(tree, name)]
    return lost


def _shown(table: str, row: Found) -> str:
    match table:
        case "leaf_moves":
            return f"revision {row['revision']!r} ({row['reason']!s})"
        case "session_edits":
            return f"revision {row['revision']!r} ({row['what']!s})"
        case "marks":
            return f"{row['kind']!s} {'' if row['value'] is None else repr(row['value'])}".strip()
        case "requests":
            return f"{row['operation']!s} {row['idempotency_key']!r}"
        case _:
            return f"{row['task_id']!r} to session {row['child_id']!s}"


def _write_ledger(connection: sqlite3.Connection, history: History) -> int:
    found = history.found
    calls, payers = found.tables["ledger"], found.tables["ledger_sessions"]
    kept = {(entry.session, entry.id) for entry in history.entries}
    for row in _numbered(calls.values()):
        key = row["session_key"]
        if row["call_id"] is None and (key, row["entry_id"]) not in kept:
            row["call_id"] = row["entry_id"]
        if (key,) not in payers and isinstance(key, int):
            name = found.session_id(key) if key not in history.sessions else str(history.sessions[key]["id"])
            if name is None:
                name = f"rescued-{key}"
                found.changes.append(Loss("call", name, None, "the id of the session that paid is lost"))
            payers[key,] = {
                "session_key": key, "session_id": name, "tree_id": row["tree_id"], "task_of": None, "project": None,
            }  # fmt: skip
        row["tree_id"] = _tree_of(history, payers, row)
        _insert(connection, "ledger", row)
    for row in payers.values():
        session = history.sessions.get(_amount(row["session_key"]), {})
        row["project"] = row["project"] or session.get("cwd") or None
        _insert(connection, "ledger_sessions", row)
    _note_lost_calls(found)
    return len(calls)


def _numbered(calls: Iterable[Found]) -> list[Found]:
    """Return the rows of calls in the order of their numbers."""
    return sorted(calls, key=lambda row: _amount(row["number"]))


def _note_lost_calls(found: Gathered) -> None:
    calls, known = found.tables["ledger"], found.witnesses
    numbers = {row["number"] for row in calls.values()}
    lost: dict[str, int] = {}
    for number, key in known.call_numbers.items():
        if number not in numbers:
            lost[known.call_names.get(number, f"number {number}")] = key
    for name, key in lost.items():
        if not any(loss.what == "call" and f"call {name} " in loss.detail for loss in found.losses):
            found.losses.append(Loss("call", found.session_id(key), None, f"call {name}: its row is lost"))


def _tree_of(history: History, payers: dict[Key, Found], call: Found) -> Value:
    """Return the tree that a call was paid for, the same for all calls of a payer, and record it with the payer."""
    key = call["session_key"]
    payer = payers[key,]
    session = history.sessions.get(key) if isinstance(key, int) else None
    if session is not None:
        payer["tree_id"] = session["tree_id"]
    elif payer["tree_id"] is None:
        payer["tree_id"] = call["tree_id"]
    return payer["tree_id"]


def _write_budgets(connection: sqlite3.Connection, found: Gathered, sessions: set[Value]) -> None:
    """Write budgets with their reserved amounts, derived anew, and report the lost ones."""
    budgets, reservations, known = found.tables["budgets"], found.tables["reservations"], found.witnesses
    named: set[Value] = set()
    for place, row in list(budgets.items()):
        if row["id"] in named or (row["session_id"] is None) != (row["covers"] == "scope"):
            found.losses.append(Loss("budget", None, None, f"{row['id']!s} contradicts another row, or itself"))
            del budgets[place]
            continue
        named.add(row["id"])
        if row["session_id"] is not None and row["session_id"] not in sessions:
            found.losses.append(Loss("budget", None, None, f"{row['id']!s}: its session {row['session_id']!s} is lost"))
            del budgets[place]
            continue
        mine = [each for each in reservations.values() if each["budget_key"] == row["budget_key"]]
        row["reserved"] = sum(_amount(each["amount"]) for each in mine if each["state"] == "held")
        row["spent"] = _spent(row, mine, found)
        _insert(connection, "budgets", row)
    for row in reservations.values():
        budget = row["budget_key"]
        if (budget,) in budgets:
            _insert(connection, "reservations", row)
        else:
            name = known.budgets.get(budget, "?") if isinstance(budget, int) else "?"
            detail = f"{row['reservation_id']!s}: its budget {name} is lost"
            found.losses.append(Loss("reservation", None, None, detail))
    for key, budget_id in known.budgets.items():
        if (key,) not in budgets and budget_id not in named:
            found.losses.append(Loss("budget", None, None, f"{budget_id}: its row is lost"))
    for reservation, key in known.held:
        if (reservation, key) not in reservations:
            found.losses.append(Loss("reservation", None, None, f"{reservation}: its row is lost"))


def _write_documents(connection: sqlite3.Connection, found: Gathered) -> int:
    """Write the documents, and report the lost ones; return how many there are."""
    count = 0
    shape = shapes(found.file.page_size).by_name["documents"]
    for row, is_renamed in found.documents.whole(shape, found.complete):
        count += 1
        _insert(connection, "documents", row._asdict())
        if is_renamed:
            found.changes.append(lost_document(row[:5], "what it was called before cannot be used"))
    found.losses += found.documents.losses()
    return count


def _spent(budget: Found, reservations: Iterable[Found], found: Gathered) -> int:
    """Return what a budget has spent. Amounts of lost rows are part of what it began with."""
    used = sum(_amount(each["used"]) for each in reservations if each["state"] == "committed")
    spent = max(_amount(budget["spent"]), used)
    if budget["seeded"] != spent - used:
        budget["seeded"] = spent - used
        found.changes.append(Loss("budget", None, None, f"{budget['id']!s}: some of what was committed in it is lost"))
    return spent


def _amount(value: Value) -> int:
    return value if isinstance(value, int) else 0


def _write_state(connection: sqlite3.Connection, history: History) -> None:
    """Write the counters, so that new keys are unused and caches of the old history are dropped."""
    found = history.found
    stored = found.tables["flue_store"].get(("epoch",), {}).get("value")
    epoch = stored if isinstance(stored, int) and 0 <= stored < 2**62 else 0
    if found.losses or found.changes:
        epoch += 1
    for name, value in (("epoch", epoch), ("next_key", history.next_key([]))):
        connection.execute(store_sql.WRITE_STATE.sql, {"name": name, "number": value})
