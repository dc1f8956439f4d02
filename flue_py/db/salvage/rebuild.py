"""The documents of a damaged database: each is checked against its digest, and its text is read again to be written."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pydantic_core

from flue_py.core.chain import HALF, NO_PARENT, Chain, Fields, UncheckedChain
from flue_py.core.json import (
    Frozen,
    JsonObject,
    JsonValue,
    decode_json,
    decode_object,
    encode_json,
    encoded,
    payload_digest,
    splice,
    to_json,
    utf8_length,
)
from flue_py.core.kinds import KINDS, MESSAGE, kind_of, message_title, without_lost
from flue_py.core.ledger import SEALS, BlobRow
from flue_py.core.sessions import (
    LARGEST_ENTRY,
    DocumentName,
    DocumentRow,
    is_line,
    is_name,
    is_storable,
    is_usable,
    slot_of,
)
from flue_py.core.trees import Loss, SalvageReport
from flue_py.core.usage import MAX_AMOUNT, NO_USAGE, PAID_COLUMNS, TOTAL_COLUMNS, UsageTotals, reported_usage
from flue_py.db import sql
from flue_py.db.backend import Keys
from flue_py.db.files import Part
from flue_py.db.ops import documents as documents_
from flue_py.db.ops.base import StoredPayload, check_sum, decode_payload, pack, unpack, unpack_blob
from flue_py.db.ops.seals import NO_KEY, Stated, all_anew, state_keys
from flue_py.db.ops.verify import chain_anew
from flue_py.db.salvage.pages import Cell, Image, PageFile, Scan, Shape, Value, shapes
from flue_py.db.schema import APPLICATION_ID, FIRST_CHAINED, FIRST_FORMAT, FORMAT_VERSION, PAID_SUMS, unreleased
from flue_py.db.sqlite.file import SqliteTransaction, check_magic, open_file, require_not_open, translated
from flue_py.db.sqlite.runner import verify_connection
from flue_py.errors import CorruptStore, FlueError, FormatTooNew, NotAStore, StoreUnavailable, shown

# ---------------------------------------------------------------------------------------------------------------------
# The documents of a damaged database: each is checked against its digest, and its text is read again to be written.

Place: TypeAlias = tuple[Image, int, int]

_TABLE = "documents"
_INDEX = "sqlite_autoindex_documents_1"
_PARTS = len(DocumentName._fields)


@dataclass(slots=True)
class FoundDocuments:
    """The documents that were found, by name: where the text of each is, so that no more than one is in memory."""

    file: PageFile
    rows: dict[tuple[Value, ...], tuple[bool, Place]] = field(default_factory=dict)
    damaged: dict[tuple[Value, ...], None] = field(default_factory=dict)
    named: dict[tuple[Value, ...], None] = field(default_factory=dict)
    """What the index names."""

    def note(self, values: tuple[Value, ...]) -> None:
        """Record a name that the index has."""
        self.named[values[:_PARTS]] = None

    def take(self, shape: Shape, kind: int, cell: Cell, live: bool) -> bool:
        """Take a row; return whether it makes sense."""
        row = _row(shape, cell)
        if row is None:
            return False
        name = row[:_PARTS]
        if payload_digest(row.body) != row.digest:
            if live:
                self.damaged[name] = None
        elif name not in self.rows or live > self.rows[name][0]:
            self.rows[name] = (live, (cell.image, cell.offset, kind))
        return True

    @property
    def misses_rows(self) -> bool:
        """Whether the index names documents that were not found."""
        return not self.named.keys() <= self.rows.keys()

    def whole(self, shape: Shape, complete: set[str]) -> Iterator[tuple[DocumentRow, bool]]:
        """Yield the documents, read again, each with whether it had a name that no store takes, and has another now.

        Left out are those of which only an old row was found, and which a whole index does not name.
        """
        taken = {name for name in self.rows if _is_usable(name)}
        for name, (live, place) in self.rows.items():
            if not live and _INDEX in complete and name not in self.named:
                continue
            cell = self.file.cell(*place)
            row = None if cell is None else _row(shape, cell)
            if row is None:
                self.damaged[name] = None
                continue
            usable = _usable(row, taken)
            yield usable._replace(chars=len(row.body)), usable[: _PARTS + 2] != row[: _PARTS + 2]

    def losses(self) -> Iterator[Loss]:
        """Yield what is lost, as far as its name is known."""
        for name in {**self.named, **self.damaged}:
            if name not in self.rows:
                why = "its text does not match its digest" if name in self.damaged else "its row is lost"
                yield lost_document(name, why)


def lost_document(name: tuple[Value, ...], why: str) -> Loss:
    """Return a document as lost."""
    _, kind, space, project, own = name
    where = "".join(f", {what} {shown(part)}" for what, part in (("of", space), ("for", project)) if part)
    return Loss("document", None, None, f"{kind!s} {shown(own)}{where}: {why}")


def _row(shape: Shape, cell: Cell) -> DocumentRow | None:
    values = shape.values(cell)
    return DocumentRow._make(values) if values is not None and shape.fits(cell) else None


def _is_usable(name: tuple[Value, ...]) -> bool:
    scope, _, *others = name
    return (scope == "" or is_name(scope)) and all(map(is_line, others)) and name[-1] != ""


def _usable(row: DocumentRow, taken: set[tuple[Value, ...]]) -> DocumentRow:
    """Return a row with others for what no store takes of its name, its type and its source."""
    row = row._replace(
        type=row.type if is_line(row.type) and row.type else "rescued",
        source=row.source if row.source is None or is_line(row.source) else None,
    )
    if _is_usable(row[:_PARTS]):
        return row
    row = row._replace(
        scope=row.scope if is_name(row.scope) else "",
        space=row.space if is_line(row.space) else "",
        project=row.project if is_line(row.project) else "",
        name=row.name if row.name and is_line(row.name) else "rescued-name",
    )
    while row[:_PARTS] in taken:
        row = row._replace(name=f"{row.name}-")
    taken.add(row[:_PARTS])
    return row


# ---------------------------------------------------------------------------------------------------------------------
# Replace ids in the metadata of sessions and in the extra fields of entries, after a rename.
#
# Fields that the engine itself writes are changed: a task's parent, and what imports write under ``imported``. Fields
# of
# users and other programs stay as they are, and the report says that they have an old id.

_ENTRIES_OF_IMPORTS = ("leaf", "leafId")
_FOREIGN_ENTRIES_OF_IMPORTS = ("below",)


class Names(Frozen):
    """New ids by old ones: of sessions, of the entries of this tree, and of the entries of every tree."""

    sessions: Mapping[str, str]
    entries: Mapping[str, str]
    all_entries: Mapping[str, str]


class Followed(Frozen):
    """A JSON text with the new ids, the fields that were changed, and the fields that still have old ids."""

    text: str
    changed: list[str]
    left: list[str]


def follow_metadata(text: str, names: Names) -> Followed:
    """Return metadata with new ids in the fields that the engine wrote. O(size)."""
    fields = _object(text)
    if fields is None:
        return Followed(text, [], [])
    changed: JsonObject = {}
    parent, imported = fields.get("parentSession"), fields.get("imported")
    if isinstance(parent, str) and parent in names.sessions and ("taskId" in fields or isinstance(imported, dict)):
        changed["parentSession"] = names.sessions[parent]
    if isinstance(imported, dict) and (now := _imported(imported, names)) != imported:
        changed["imported"] = now
    fields = {**fields, **changed}
    new = to_json(fields).decode() if changed else text
    return Followed(new, list(changed), _naming(fields, names))


def naming_in_extra(text: str, names: Names) -> list[str]:
    """Return the extra fields that have old ids. O(size)."""
    return _naming(_object(text) or {}, names)


def _imported(imported: JsonObject, names: Names) -> JsonObject:
    """Return what an import wrote: where the leaf was, below which entry a task began, and which names to set."""
    now = dict(imported)
    for fields, of in ((_ENTRIES_OF_IMPORTS, names.entries), (_FOREIGN_ENTRIES_OF_IMPORTS, names.all_entries)):
        now.update({name: of.get(str(now[name]), now[name]) for name in fields if isinstance(now.get(name), str)})
    tasks, coming = now.get("tasks"), now.get("names")
    if isinstance(tasks, dict):
        now["tasks"] = {name: names.entries.get(str(at), at) for name, at in tasks.items()}
    labels = coming.get("labels") if isinstance(coming, dict) else None
    if isinstance(coming, dict) and isinstance(labels, dict):
        now["names"] = {**coming, "labels": {names.entries.get(at, at): label for at, label in labels.items()}}
    return now


def _naming(fields: JsonObject, names: Names) -> list[str]:
    return [name for name, value in fields.items() if _names_any(value, names)]


def _names_any(value: JsonValue, names: Names) -> bool:
    if isinstance(value, dict):
        return any(_is_old(key, names) or _names_any(part, names) for key, part in value.items())
    if isinstance(value, list):
        return any(_names_any(part, names) for part in value)
    return isinstance(value, str) and _is_old(value, names)


def _is_old(name: str, names: Names) -> bool:
    return name in names.sessions or name in names.all_entries


def _object(text: str) -> JsonObject | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


# ---------------------------------------------------------------------------------------------------------------------
# The rows found in a damaged database, each checked by its types, its digest, and the indexes.
#
# Payloads are not kept, only where they are, so that memory stays a small part of the file's size.

Found: TypeAlias = dict[str, Value]
Key: TypeAlias = tuple[Value, ...]

_KEYS = {
    "flue_store": 1, "sessions": 1, "lanes": 2, "task_links": 2, "leaf_moves": 2, "requests": 2, "marks": 3,
    "ledger": 1, "ledger_sessions": 1, "session_edits": 3, "budgets": 1, "reservations": 2,
}  # fmt: skip
"""How many of a table's first columns are its key."""


def key_of(table: str, row: Found) -> Key:
    """Return what sets a row apart from the others of its table: of a call, its scope, provider and id."""
    if table == "ledger":
        return (row["scope"], row["provider"], row["entry_id"] if row["call_id"] is None else row["call_id"])
    return tuple(row.values())[: _KEYS[table]]


_REFERENCES = {
    "sessions": ("leaf", "forked_from_entry"), "ledger": ("entry_id",), "leaf_moves": ("from_entry", "to_entry"),
    "marks": ("entry_id",), "session_edits": ("entry_id",),
}  # fmt: skip

_FIELDS = ("id", "kind", "role", "source", "revision", "ordinal", "created_at", "extra")
_LEAF = "the digest of its leaf"
_PLAIN = re.compile(r"[0-9A-Za-z_.:-]+")
_SESSION_DEFAULTS: Found = {
    "scope": "", "kind": "root", "task_depth": 0, "revision": 0, "metadata": "{}", "created_at": 0, "updated_at": 0,
    "entry_count": 0, "message_count": 0, "spent_tokens": 0, "spent_cost": 0, "unpriced_calls": 0, "leaf": "",
    "forked_from_entry": "", "active_at": 0, "unknown_calls": 0, "active_slot": 0, "head": b"",
    **dict.fromkeys(SEALS, 0),
}  # fmt: skip
_MAX_KEY = 2**63 - 1


@dataclass(slots=True)
class EntryRow:
    """An entry that was found: its columns without the payload, and where its row is."""

    tree: int
    lane: int
    depth: int
    id: str
    parent_id: str | None
    kind: str
    role: str | None
    session: int
    revision: int
    ordinal: int
    created: int
    counted: bool
    blob: bytes | None
    digest: bytes
    rowid: int | None
    live: bool
    where: tuple[Image, int, int]
    usage: UsageTotals = NO_USAGE
    preview: str | None = None
    is_sound: bool = False
    halves: set[bytes] = field(default_factory=set)
    """What may stand for it in the digest of a child: the first half of its own, and that which its text has."""


@dataclass(slots=True)
class Witnesses:
    """The rows that the tables should have according to the indexes. ``complete`` names the indexes read whole."""

    entry_ids: dict[int, tuple[int, str]] = field(default_factory=dict)
    entry_places: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    id_pages: dict[int, int] = field(default_factory=dict)
    place_pages: dict[int, int] = field(default_factory=dict)
    session_ids: dict[int, str] = field(default_factory=dict)
    session_keys: dict[int, tuple[str, str]] = field(default_factory=dict)
    session_trees: dict[int, int] = field(default_factory=dict)
    lane_owners: dict[tuple[int, int], int] = field(default_factory=dict)
    lane_parents: dict[tuple[int, int], tuple[int | None, int]] = field(default_factory=dict)
    links: dict[tuple[int, int], str] = field(default_factory=dict)
    call_numbers: dict[int, int] = field(default_factory=dict)
    """Who paid the calls of the ledger, by their numbers."""
    call_names: dict[int, str] = field(default_factory=dict)
    budgets: dict[int, str] = field(default_factory=dict)
    held: set[tuple[str, int]] = field(default_factory=set)

    def note(self, shape: Shape, values: tuple[Value, ...], page: int) -> None:
        """Record the row of an index, and its page."""
        match (shape.table, tuple(column.name for column in shape.columns), values):
            case ("entries", ("id", "tree_id", _), (str(entry_id), int(tree), int(rowid))):
                self.entry_ids[rowid] = (tree, entry_id)
                self.id_pages[rowid] = page
            case "entries", ("tree_id", "lane_id", "depth", _), (int(tree), int(lane), int(depth), int(rowid)):
                self.entry_places[rowid] = (tree, lane, depth)
                self.place_pages[rowid] = page
            case "sessions", ("id", _), (str(session_id), int(key)):
                self.session_ids[key] = session_id
            case "sessions", ("scope", "key", _), (str(scope), str(name), int(key)):
                self.session_keys[key] = (scope, name)
            case "sessions", ("tree_id", _), (int(tree), int(key)):
                self.session_trees[key] = tree
            case "lanes", ("owner_key", *_), (int(owner), int(tree), int(lane)):
                self.lane_owners[tree, lane] = owner
            case "lanes", ("tree_id", "parent_lane", *_), (int(tree), int() | None as parent, int(depth), int(lane)):
                self.lane_parents[tree, lane] = (parent, depth)
            case "task_links", ("parent_key", *_), (int(parent), str(child), int(position)):
                self.links[parent, position] = child
            case _:
                self._note_money(shape, values)

    def _note_money(self, shape: Shape, values: tuple[Value, ...]) -> None:
        match (shape.table, shape.columns[0].name, values):
            case "ledger", "session_key", (int(session), int(number)):
                self.call_numbers[number] = session
            case "ledger", "scope", (str(), str(), str(call), int(number)):
                self.call_names[number] = call
            case "budgets", "id", (str(budget_id), int(key)):
                self.budgets[key] = budget_id
            case "reservations", _, (int(budget), int(), str(reservation)):
                self.held.add((reservation, budget))
            case _:
                pass


@dataclass(slots=True)
class Gathered:
    """All rows that were found, by table and key; of several versions of a row, the most trustworthy one."""

    file: PageFile
    most: int
    """The most bytes of a payload: of a longer one no more is unpacked, and its entry is lost."""
    damaged: Path
    keys: Keys
    tables: dict[str, dict[Key, Found]] = field(default_factory=lambda: {name: {} for name in _KEYS})
    entries: dict[tuple[int, str], list[EntryRow]] = field(default_factory=dict)
    blobs: dict[bytes, list[tuple[Image, int, int]]] = field(default_factory=dict)
    cuts: dict[tuple[int, int, int], dict[int, tuple[bool, bytes]]] = field(default_factory=dict)
    """What was cut out of the payload of the entry at a position: by its place, whether it is current, its SHA-256."""
    witnesses: Witnesses = field(default_factory=Witnesses)
    unreadable: Counter[str] = field(default_factory=Counter)
    losses: list[Loss] = field(default_factory=list)
    changes: list[Loss] = field(default_factory=list)
    renamed: dict[tuple[int, str], str] = field(default_factory=dict)
    """The new ids of entries with unusable ids, by tree and old id."""
    renamed_sessions: dict[str, str] = field(default_factory=dict)
    """The new ids of sessions with unusable ids, by old id."""
    unlike: dict[Value, list[str]] = field(default_factory=dict)
    """The parts of the rows of sessions that do not match their heads, by key."""

    documents: FoundDocuments = field(init=False)

    def __post_init__(self) -> None:
        self.documents = FoundDocuments(self.file)

    @property
    def stated(self) -> Stated:
        """The keys that the file says its digests have, as far as that is found yet."""
        rows = self.tables["flue_store"]
        numbers = {name: rows.get((name,), {}).get("value") for name in Stated._fields}
        return Stated(**{name: number for name, number in numbers.items() if isinstance(number, int)})

    @property
    def chain(self) -> Chain:
        """The digests of the file; those of a key that nobody gave are not compared. Raises `WrongKey`."""
        stated = self.stated
        if stated not in self._chains:
            is_keyed = stated != Stated() and self.keys.first == NO_KEY
            self._chains[stated] = UncheckedChain() if is_keyed else self.keys.chain(stated, str(self.damaged))
        return self._chains[stated].over(self._seams)

    def _seams(self, _: bytes) -> list[tuple[str, int]]:
        return [(str(row["name"]), _number(row["value"])) for row in self.tables["flue_store"].values()]

    _crooked: list[tuple[Found, int | None, tuple[Image, int, int], bool]] = field(default_factory=list)
    suspect: set[int] = field(default_factory=set)
    """The numbers of pages with invalid content."""

    _chains: dict[Stated, Chain] = field(default_factory=dict)
    _everything_is_found: bool = False
    _bytes_to_try: int = 1 << 28
    """How much is hashed, at most, to find the parents of entries whose own rows say nothing right of them."""
    _by_place: dict[tuple[Value, ...], list[EntryRow]] = field(default_factory=lambda: defaultdict(list))
    _referred: set[Value] = field(default_factory=set)
    _ranks: dict[tuple[str, Key], tuple[bool, int]] = field(default_factory=dict)

    def names_in(self, tree: int | None) -> Names:
        """Return the new ids that a row of this tree may have to take over."""
        own = {old: new for (of, old), new in self.renamed.items() if of == tree}
        return Names(self.renamed_sessions, own, {old: new for (_, old), new in self.renamed.items()})

    @property
    def stamp(self) -> int | None:
        """The format that the file says it has."""
        stamp = self.tables["flue_store"].get(("format",), {}).get("value")
        return stamp if isinstance(stamp, int) else None

    def take(self, shape: Shape, kind: int, cell: Cell, live: bool) -> None:
        """Take a row of a table or index that `Scan` has found."""
        values = shape.values(cell)
        if values is None:
            return
        if shape.table == "attachments":
            # The index has all columns of the table: either is enough.
            self._take_cut(dict(zip([column.name for column in shape.columns], values, strict=True)), live=live)
            return
        if shape.table == "documents":
            self._take_document(shape, kind, cell, values, live=live)
            return
        if not shape.holds_rows:
            if shape.fits(cell):
                self.witnesses.note(shape, values, cell.image.number)
            return
        row = dict(zip([column.name for column in shape.columns], values, strict=True))
        where = (cell.image, cell.offset, kind)
        if shape.table == "entries":
            self._take_entry(row, cell.rowid, where, live=live)
        elif shape.table == "blobs":
            if isinstance(row["sha256"], bytes):
                self.blobs.setdefault(row["sha256"], []).append(where)
        elif shape.table in _KEYS:
            self._take_row(shape, row, cell, live=live)

    def _take_document(self, shape: Shape, kind: int, cell: Cell, values: tuple[Value, ...], *, live: bool) -> None:
        if not shape.holds_rows:
            if shape.fits(cell):
                self.documents.note(values)
        elif not self.documents.take(shape, kind, cell, live):
            self.unreadable[shape.table] += live

    def _take_row(self, shape: Shape, row: Found, cell: Cell, *, live: bool) -> None:
        if shape.table == "sessions":
            row = self._mended_session(shape, row, cell)
        elif not shape.fits(cell):
            self.unreadable[shape.table] += live
            if shape.table == "ledger" and live:
                self._note_name(row, cell)
            return
        key = key_of(shape.table, row)
        if not live and not self._is_vouched_for(shape.table, row):
            return
        revision = row.get("revision")
        rank = (live, revision if isinstance(revision, int) else 0)
        if (shape.table, key) not in self._ranks or rank > self._ranks[shape.table, key]:
            self._ranks[shape.table, key] = rank
            self.tables[shape.table][key] = row

    def _take_cut(self, row: Found, *, live: bool) -> None:
        match row:
            case {
                "tree_id": int(tree), "lane_id": int(lane), "depth": int(depth), "place": int(at), "sha256": bytes(sha),
            }:  # fmt: skip
                cuts = self.cuts.setdefault((tree, lane, depth), {})
                if live or at not in cuts:
                    cuts[at] = (live, sha)
            case _:
                pass

    def _note_name(self, row: Found, cell: Cell) -> None:
        """Record the name of a call whose row is not whole, for the report."""
        name = row["entry_id"] if row["call_id"] is None else row["call_id"]
        if isinstance(name, str) and cell.rowid is not None:
            self.witnesses.call_names.setdefault(cell.rowid, name)

    def _mended_session(self, shape: Shape, row: Found, cell: Cell) -> Found:
        """Return a session's row with values of a wrong type replaced; its id may be None."""
        mended: Found = {}
        changed: list[str] = []
        for column in shape.columns:
            value = row[column.name]
            good = type(value) is column.type and (column.words is None or value in column.words)
            if good and isinstance(value, int) and not column.name.endswith("_seal"):
                good = 0 <= value < _MAX_KEY
            if value is None and not column.required:
                good = True
            if not good and not column.is_derived:
                changed.append(column.name)
            mended[column.name] = value if good else _SESSION_DEFAULTS.get(column.name)
        if not isinstance(mended["session_key"], int):
            mended["session_key"] = cell.rowid
        mended["mended"] = ", ".join(changed)
        return mended

    def _take_entry(self, row: Found, rowid: int | None, where: tuple[Image, int, int], *, live: bool) -> None:
        match row:
            case {
                "tree_id": int(tree), "lane_id": int(lane), "depth": int(depth), "id": str(entry_id), "kind": str(kind),
                "session_key": int(session), "revision": int(revision), "ordinal": int(ordinal),
                "created_at": int(created),
            } if min(tree, lane, depth, session, revision, ordinal) >= 0 and entry_id and kind and is_storable(
                kind
            ):  # fmt: skip
                parent, role, blob, digest = row["parent_id"], row["role"], row["blob"], row["digest"]
                found = EntryRow(
                    tree, lane, depth, entry_id, parent if isinstance(parent, str) else None, kind,
                    role if isinstance(role, str) else None, session, revision, ordinal, created, row["counted"] != 0,
                    blob if isinstance(blob, bytes) else None, digest if isinstance(digest, bytes) else b"",
                    rowid, live, where,
                )  # fmt: skip
                found.halves.add(found.digest[:HALF])
                self._by_place[tree, lane, depth].append(found)
                versions = self.entries.setdefault((tree, entry_id), [])
                versions.append(found)
                if found.blob is None and self._halves_above(found):
                    # Now, while its payload is read. The reason of a fault is asked of the best version only.
                    with contextlib.suppress(FlueError):
                        self._check(found, row)
                versions.sort(key=lambda version: not version.live)
            case _:
                self._crooked.append((row, rowid, where, live))

    def straighten(self) -> None:
        """Trust the indexes about entries whose rows contradict them or are invalid. Call it after all trees."""
        known = self.witnesses
        crooked, self._crooked = self._crooked, []
        for row, rowid, where, live in crooked:
            names, values = self._witnessed(rowid)
            if not names and live and rowid is not None and not isinstance(row["id"], str):
                # Its id is found nowhere. If nothing else is wrong, it gets another one.
                before = len(self._crooked)
                self._take_entry({**row, "id": f"rescued-{rowid}"}, rowid, where, live=live)
                if len(self._crooked) == before:
                    owner = self.session_id(row["session_key"]) if isinstance(row["session_key"], int) else None
                    self.losses.append(Loss("entry", owner, f"rescued-{rowid}", "its id cannot be read"))
                    continue
                self._crooked.pop()
            if not names or not isinstance(row["kind"], str):
                self.unreadable["entries"] += live
                continue
            at = row["created_at"]
            row.update(zip(names, values, strict=True), created_at=at if isinstance(at, int) else 0)
            self._take_entry(row, rowid, where, live=live)
        # Rows that were mended and are still invalid are in the list again.
        if self._crooked:
            self.unreadable["entries"] += sum(item[3] for item in self._crooked)
        self._crooked = []
        self._rename()
        places = {(row.tree, row.lane, row.depth) for versions in self.entries.values() for row in versions}
        named = set(known.entry_places.values())
        for versions in self.entries.values():
            for entry in versions:
                place = known.entry_places.get(entry.rowid or 0)
                if place is None or place[0] != entry.tree or place in places:
                    continue
                if known.place_pages[entry.rowid or 0] in self.suspect:
                    continue
                beside = {(entry.tree, entry.lane, entry.depth + step) for step in (-1, 1)}
                if (entry.tree, entry.lane, entry.depth) not in named and not beside & places:
                    _, entry.lane, entry.depth = place

    def _rename(self) -> None:
        """Give entries the ids that the index has for their rows, if the ids in the rows are likely damaged."""
        known = self.witnesses.entry_ids
        named = set(known.values())
        for tree, entry_id in [place for place in self.entries if place not in named]:
            versions = self.entries[tree, entry_id]
            right = {known.get(version.rowid or 0) for version in versions}
            name = right.pop()
            if right or name is None or name[0] != tree or name in self.entries:
                continue
            if not self._is_likelier(name[1], entry_id, versions[0]):
                continue
            self.entries[name] = self.entries.pop((tree, entry_id))
            for version in versions:
                version.id = name[1]

    def _is_likelier(self, in_index: str, in_row: str, row: EntryRow) -> bool:
        """Return whether the id in the index is likelier than the one in the row, if a bit has flipped in one."""
        if self.witnesses.id_pages[row.rowid or 0] in self.suspect:
            return False
        if row.where[0].number in self.suspect:
            return True
        if self._is_referred_to(in_row) or self._is_referred_to(in_index):
            return not self._is_referred_to(in_row)
        return _PLAIN.fullmatch(in_row) is None and _PLAIN.fullmatch(in_index) is not None

    def _is_referred_to(self, entry_id: str) -> bool:
        """Return whether a session, a call, a move or a mark names an entry."""
        if not self._referred:
            for table, columns in _REFERENCES.items():
                self._referred |= {row[name] for row in self.tables[table].values() for name in columns}
        return entry_id in self._referred

    def _witnessed(self, rowid: int | None) -> tuple[tuple[str, ...], tuple[Value, ...]]:
        """Return the columns of an entry that the indexes have, if those of ids and of places both do; else nothing."""
        known = self.witnesses
        name, place = known.entry_ids.get(rowid or 0), known.entry_places.get(rowid or 0)
        if name is None or place is None:
            return (), ()
        return ("tree_id", "id", "lane_id", "depth"), (name[0], name[1], place[1], place[2])

    def _is_vouched_for(self, table: str, row: Found) -> bool:
        """Return whether a whole index names a row that was found outside its tree."""
        known = self.witnesses
        if table == "sessions" and "sqlite_autoindex_sessions_1" in self.complete:
            return row["session_key"] in known.session_ids
        if table == "lanes" and "ix_lanes_owner_key" in self.complete:
            return (row["tree_id"], row["lane_id"]) in known.lane_owners
        if table == "ledger" and "ix_ledger_session_key" in self.complete:
            return row["number"] in known.call_numbers
        return True

    complete: set[str] = field(default_factory=set)
    """The indexes that were read whole: a row that they do not name does not exist."""

    # -- rows in indexes but not in tables ------------------------------------------------------------------------

    @property
    def misses_rows(self) -> bool:
        """Whether the indexes name rows that were not found."""
        if self.documents.misses_rows:
            return True
        rowids = {version.rowid for versions in self.entries.values() for version in versions}
        known = self.witnesses
        named = known.entry_ids.keys() | known.entry_places.keys()
        if not named <= rowids:
            return True
        if any((key,) not in self.tables["sessions"] for key in known.session_ids):
            return True
        if not known.lane_owners.keys() <= self.tables["lanes"].keys():
            return True
        return not known.call_numbers.keys() <= {row["number"] for row in self.tables["ledger"].values()}

    def session_id(self, key: int) -> str | None:
        """Return the id of a session, from its row or from any row that names it."""
        for row in (self.tables["sessions"].get((key,)), self.tables["ledger_sessions"].get((key,))):
            name = None if row is None else row.get("id", row.get("session_id"))
            if isinstance(name, str):
                return name
        return self.witnesses.session_ids.get(key)

    # -- payloads ---------------------------------------------------------------------------------------------------

    def columns(self, entry: EntryRow, names: Mapping[str, int]) -> Found:
        """Return the whole row of an entry, read again."""
        cell = self.file.cell(*entry.where)
        values = None if cell is None else shapes(self.file.page_size).by_name["entries"].values(cell)
        if values is None:
            raise CorruptStore(f"entry {entry.id} cannot be read again")
        return {name: values[index] for name, index in names.items()}

    def text(self, row: Found, entry: EntryRow) -> tuple[str, tuple[str, ...]]:
        """Return an entry's payload, and the blobs that are lost of it, for which words stand.

        Raises `CorruptStore` if it cannot be read or, where nothing is lost of it, does not match its digest. Where
        the entry that it was added to is lost, it cannot be compared.
        """
        text = self._rest(row)
        lost: tuple[str, ...] = ()
        try:
            is_whole = self._has_digest(entry, text.encode())
            cuts = self.cuts_of(entry)
            if not is_whole or (cuts and not (self.chain.checks and self._halves_above(entry))):
                text, lost = self._with_cuts(text.encode(), cuts)
                is_whole = self._has_digest(entry, text.encode())
        except UnicodeEncodeError as error:
            raise CorruptStore("its payload is not text") from error
        if utf8_length(text) > self.most:
            raise CorruptStore(f"its payload is longer than {self.most} bytes (entry_bytes)")
        if not is_whole and not lost:
            raise CorruptStore("its payload does not match its digest")
        return text, lost

    @property
    def has_chain(self) -> bool:
        """Whether the file has a chain of digests, and heads; taken for granted where its format is lost."""
        return self.stamp is None or self.stamp >= FIRST_CHAINED

    def compare_heads(self) -> None:
        """Note which rows of sessions do not match their heads. Call it before names are replaced."""
        if self.has_chain:
            self.unlike = {key: self._unlike(row) for (key,), row in self.tables["sessions"].items()}

    def _unlike(self, row: Found) -> list[str]:
        place, columns = (tuple(row[name] for name in names) for names in (sql.PLACE, sql.SESSION_COLUMNS))
        head = row["head"] if isinstance(row["head"], bytes) else b""
        leaves = self.entries.get((_number(row["tree_id"]), str(row["leaf"])), ())
        above = NO_PARENT if row["leaf"] is None else leaves[0].digest if leaves else b""
        is_like = {"a column": self.chain.has_head(head, head[:-HALF], (*place, columns)), _LEAF: head[:-HALF] == above}
        return [part for part, is_right in is_like.items() if not is_right]

    def note_break(self, entry: EntryRow, row: Found, parent: EntryRow | None) -> None:
        """Report an entry if the chain breaks there: its fields, or its place below ``parent``, are not its digest's.

        ``row`` is as it is in the file.
        """
        if not self.has_chain or (parent is None and (entry.parent_id is not None or entry.depth > 0)):
            return  # what it is below is lost, and reported
        fields: Fields = tuple(row[name] for name in _FIELDS)  # type: ignore[assignment]
        above = NO_PARENT if parent is None else parent.digest
        named = self.entries.get((entry.tree, entry.parent_id or ""), ())
        if self.chain.has_fields(entry.digest, above, fields):
            return
        is_moved = any(self.chain.has_fields(entry.digest, each.digest, fields) for each in named)
        wrong = "its place is not" if is_moved else "its id, kind, role, source, revision, time, extra or place are not"
        detail = f"the chain breaks here: {wrong} of its digest; taken as it is"
        self.changes.append(Loss("entry", self.session_id(entry.session), entry.id, detail))

    def _halves_above(self, entry: EntryRow) -> set[bytes]:
        """Return what may stand in an entry's digest for the one above it; nothing where that is lost.

        Either its parent's id or its place may be damaged, so what both of them name is taken.
        """
        name = self.renamed.get((entry.tree, entry.parent_id or ""), entry.parent_id or "")
        lane = self.tables["lanes"].get((entry.tree, entry.lane), {})
        is_first = lane.get("fork_depth") == entry.depth - 1
        above = (entry.tree, lane["parent_lane"] if is_first else entry.lane, entry.depth - 1)
        versions = [*self.entries.get((entry.tree, name), ()), *self._by_place.get(above, ())]
        halves = {half for version in versions for half in version.halves}
        return halves | {NO_PARENT[:HALF]} if entry.parent_id is None or entry.depth == 0 else halves

    def _has_digest(self, entry: EntryRow, text: bytes) -> bool:
        """Return whether a payload has the digest of an entry, or none can be compared."""
        chain, above, digest = self.chain, self._halves_above(entry), entry.digest[:HALF]
        computed = {chain.text(half, entry.kind, text) for half in above}
        entry.halves |= computed
        # Formats before the chain had the digest of the payload alone.
        if not above or digest in computed or (self.stated == Stated() and payload_digest(text) == entry.digest):
            return True
        # As it is while a key is changed, or where none was given.
        if any(chain.has_text(entry.digest, half, entry.kind, text) for half in above):
            return True
        # The kind may be damaged as well.
        if any(chain.text(half, kind.name, text) == digest for half in above for kind in KINDS):
            return True
        if self._everything_is_found:
            # Both may be damaged: then it is below any other entry.
            for half in {half for versions in self.entries.values() for each in versions for half in each.halves}:
                self._bytes_to_try -= len(text)
                if self._bytes_to_try < 0:
                    break
                if chain.text(half, entry.kind, text) == digest:
                    return True
        is_orphan = entry.parent_id is not None and (entry.tree, entry.parent_id) not in self.entries
        return self._everything_is_found and is_orphan

    def cuts_of(self, entry: EntryRow) -> list[tuple[int, bytes]]:
        """Return what was cut out of an entry's payload: its places, and the SHA-256s."""
        found = self.cuts.get((entry.tree, entry.lane, entry.depth), {})
        is_current = any(live for live, _ in found.values())
        return [(at, sha256) for at, (live, sha256) in sorted(found.items()) if live or not is_current]

    def _with_cuts(self, rest: bytes, cuts: list[tuple[int, bytes]]) -> tuple[str, tuple[str, ...]]:
        pieces: list[tuple[int, bytes | None]] = []
        lost: list[str] = []
        for at, sha256 in cuts:
            try:
                pieces.append((at, encoded(self.blob(sha256)[0])))
            except CorruptStore:
                pieces.append((at, None))
                lost.append(sha256.hex())
        check_sum(rest, (len(piece or b"") for _, piece in pieces), self.most)
        if lost:
            return without_lost(rest, pieces, "payload"), tuple(lost)
        return decode_payload(splice(rest, [(at, piece) for at, piece in pieces if piece is not None])), ()

    def _rest(self, row: Found) -> str:
        """Return the stored text of an entry's payload, without what was cut out of it. Raises `CorruptStore`."""
        match row["payload"], row["packed"], row["blob"]:
            case str(text), None, None:
                return text
            case None, bytes(packed), None:
                return decode_payload(unpack(packed, self.most))
            case None, None, bytes(sha256):
                return decode_payload(self.blob(sha256)[0])
            case _:
                raise CorruptStore("its payload cannot be read")

    def blob(self, sha256: bytes) -> tuple[bytes, bytes]:
        """Return the bytes of a blob and their stored form, from any tree that has it. Raises `CorruptStore`."""
        why = ""
        for where in self.blobs.get(sha256, ()):
            cell = self.file.cell(*where)
            data = None if cell is None or cell.values is None else cell.values[3]
            if isinstance(data, bytes):
                try:
                    return unpack_blob(sha256, data, self.most), data
                except FlueError as error:
                    why = f": {error}"
        raise CorruptStore(f"its blob {sha256.hex()} is lost{why}")

    def checked_entries(self, names: Mapping[str, int]) -> Iterator[EntryRow]:
        """Yield the entries with a whole payload and set the fields read from it; report the others as lost."""
        self._everything_is_found = True
        whole = "sqlite_autoindex_entries_2" in self.complete
        named = set(self.witnesses.entry_ids.values()) if whole else set()
        for place, versions in self.entries.items():
            reason = ""
            for entry in versions:
                if not entry.live and whole and place not in named:
                    continue  # it was deleted before
                try:
                    if not entry.is_sound:
                        self._check(entry, self.columns(entry, names))
                except FlueError as error:
                    reason = str(error)
                else:
                    yield entry
                    break
            else:
                if reason:
                    self.losses.append(Loss("entry", self.session_id(versions[0].session), place[1], reason))

    def _check(self, entry: EntryRow, row: Found) -> None:
        """Read an entry's payload, and set the fields read from it. Raises `CorruptStore` if it is not whole."""
        value = decode_json(self.text(row, entry)[0])
        fields: JsonObject = value if isinstance(value, dict) else {}
        if entry.role is not None and fields.get("role") == entry.role:
            entry.kind = MESSAGE  # nothing else has a role; a bit of the kind has flipped
        if entry.kind == MESSAGE:
            role = fields.get("role")
            entry.role = role if isinstance(role, str) else None
            entry.preview = message_title(fields) if role == "user" else None
        if entry.counted:
            entry.usage = reported_usage(entry.kind, entry.role, fields)
        entry.is_sound = True


def checked_object(text: Value) -> str:
    """Return a stored JSON object, or an empty one if it is not an object."""
    try:
        decode_object(text if isinstance(text, str) else "")
    except FlueError:
        return "{}"
    return str(text)


# ---------------------------------------------------------------------------------------------------------------------
# Rebuild history from the entries that are left: lanes, leaves, counts and totals that agree.
#
# Undamaged history stays exactly as it was, internal keys included. Lanes say what an entry was added to; where they do
# not, the entry's own row does. If an entry is lost, the entries below it become a branch with a root of its own.

_Place = tuple[int, int, int]


class Placed(Frozen):
    """The position of an entry in the new store, its parent there, and its totals."""

    lane: int
    depth: int
    parent_id: str | None
    totals: UsageTotals


@dataclass(slots=True)
class NewLane:
    """A lane of the new store. ``tip`` is its last entry."""

    tree: int
    id: int
    owner: int
    parent: int | None
    fork_depth: int
    tip: EntryRow
    tip_depth: int = 0


@dataclass(slots=True)
class History:
    """The content of the new store, made from what was `Gathered`."""

    found: Gathered
    entries: list[EntryRow]
    sessions: dict[int, Found] = field(default_factory=dict)
    lanes: dict[tuple[int, int], NewLane] = field(default_factory=dict)
    placed: dict[int, Placed] = field(default_factory=dict)
    by_id: dict[tuple[int, str], EntryRow] = field(default_factory=dict)
    retracted: set[tuple[int, str]] = field(default_factory=set)
    _places: dict[_Place, EntryRow] = field(default_factory=dict)
    _lost_places: dict[tuple[int, str], _Place] = field(default_factory=dict)
    _last_lane: dict[int, int] = field(default_factory=dict)
    _forks: dict[tuple[int, int], tuple[int | None, int]] = field(default_factory=dict)

    def rebuild(self) -> None:
        """Rebuild everything. O(entries)."""
        self._read_lanes()
        self.by_id = {(entry.tree, entry.id): entry for entry in self.entries}
        self._take_sessions()
        self._note_lost_entries()
        extra = self._note_places()
        cut = self._link_entries(extra)
        while self._make_owners():
            # Lanes end where a session goes on that is there: there are more of them now.
            cut = self._link_entries(extra)
        self._report_links(cut)
        self.retracted = {
            (key, entry_id)
            for key, entry_id, kind in self.found.tables["marks"]
            if kind == "retracted" and isinstance(key, int) and isinstance(entry_id, str)
        }
        self._set_leaves()
        self._hold_ends()
        self._count()

    # -- what there is --------------------------------------------------------------------------------------------

    def _read_lanes(self) -> None:
        """Record where each lane begins, from its row or from the index."""
        for (tree, lane), (parent, depth) in self.found.witnesses.lane_parents.items():
            self._forks[tree, lane] = (parent, depth)
        for row in self.found.tables["lanes"].values():
            match row:
                case {"tree_id": int(tree), "lane_id": int(lane), "parent_lane": above, "fork_depth": int(fork)}:
                    self._forks[tree, lane] = (above if isinstance(above, int) else None, fork)

    def _take_sessions(self) -> None:
        """Take the sessions whose rows were found, each id and each key once."""
        ids: set[str] = set()
        names: set[tuple[str, str]] = set()
        known = self.found.witnesses
        for row in sorted(self.found.tables["sessions"].values(), key=lambda row: -_number(row["revision"])):
            key = row["session_key"]
            if not isinstance(key, int):
                continue
            session_id = row["id"] if isinstance(row["id"], str) and row["id"] else known.session_ids.get(key)
            session_id = session_id or f"rescued-{key}"
            if session_id in ids:
                self.found.losses.append(Loss("session", session_id, None, "has a second row, which is left out"))
                continue
            ids.add(session_id)
            row["id"] = session_id
            tree = row["tree_id"]
            row["tree_id"] = tree if isinstance(tree, int) else known.session_trees.get(key, key)
            name = row["key"]
            if isinstance(name, str) and row["trashed_at"] is None:
                if (str(row["scope"]), name) in names:
                    row["key"] = None
                    self.found.changes.append(Loss("session", session_id, None, f"had the key {name!r} of another one"))
                names.add((str(row["scope"]), name))
            mended = row.pop("mended", None)
            if mended:
                self.found.changes.append(Loss("session", session_id, None, f"lost what it had as its {mended!s}"))
            self._report_head(row, session_id)
            metadata = checked_object(row["metadata"])
            if metadata != row["metadata"]:
                row["metadata"] = metadata
                self.found.changes.append(Loss("session", session_id, None, "lost its metadata"))
            self.sessions[key] = row

    def _report_head(self, row: Found, session_id: str) -> None:
        unlike = self.found.unlike.get(row["session_key"], [])
        if isinstance(row["leaf"], str) and (_number(row["tree_id"]), row["leaf"]) not in self.by_id:
            # It is lost, which is reported, and not compared.
            unlike = [part for part in unlike if part != _LEAF]
        if unlike:
            detail = f"does not match its head in {', '.join(unlike)}: it was damaged, or changed; taken as it is"
            self.found.changes.append(Loss("session", session_id, None, detail))

    def _note_lost_entries(self) -> None:
        """Report the entries that an index names and that were not found, and record where they were."""
        known = self.found.witnesses
        here = {(entry.tree, entry.id) for entry in self.entries}
        reported = {loss.entry_id for loss in self.found.losses if loss.what == "entry"}
        rowids = {entry.rowid for entry in self.entries}
        for rowid in sorted(known.entry_ids.keys() | known.entry_places.keys()):
            tree_and_id, place = known.entry_ids.get(rowid), known.entry_places.get(rowid)
            if tree_and_id in here or (tree_and_id is None and rowid in rowids):
                continue
            if tree_and_id is not None and place is not None:
                self._lost_places[tree_and_id] = place
            entry_id = None if tree_and_id is None else tree_and_id[1]
            if entry_id is None or entry_id not in reported:
                where = "its row cannot be read" if place is None else f"its row, at depth {place[2]}, cannot be read"
                self.found.losses.append(Loss("entry", None, entry_id, where))
        for place_id, versions in self.found.entries.items():
            if place_id not in here:
                self._lost_places.setdefault(place_id, (versions[0].tree, versions[0].lane, versions[0].depth))

    def is_lost(self, tree: int, entry_id: str) -> bool:
        """Return whether an entry is known to have existed and is lost now."""
        return (tree, entry_id) in self._lost_places

    # -- lanes ------------------------------------------------------------------------------------------------------

    def _note_places(self) -> set[int]:
        """Note what the rows say of places; return the entries whose places others have, too."""
        extra: set[int] = set()
        for entry in self.entries:
            if self._places.setdefault((entry.tree, entry.lane, entry.depth), entry) is not entry:
                extra.add(id(entry))
        return extra

    def _link_entries(self, extra: set[int]) -> list[EntryRow]:
        """Make the lanes anew; return the entries that begin one because what they were added to is lost."""
        self.lanes, self.placed, self._last_lane = {}, {}, {}
        for tree, number in [*self._forks, *((entry.tree, entry.lane) for entry in self.entries)]:
            self._last_lane[tree] = max(number, self._last_lane.get(tree, 0))
        cut = []
        for entry in sorted(self.entries, key=lambda entry: (entry.tree, entry.depth, entry.lane)):
            for child, parent, is_cut in self._from_above(entry, extra):
                self._put(child, parent, is_extra=id(child) in extra)
                if is_cut:
                    cut.append(child)
        for lane in self.lanes.values():
            if lane.tip.session in self.sessions:
                lane.owner = lane.tip.session
        return cut

    def _report_links(self, cut: list[EntryRow]) -> None:
        for entry in cut:
            detail = "is the first of a branch now: the entry it was added to is lost"
            self.found.changes.append(Loss("entry", self.found.session_id(entry.session), entry.id, detail))
        trees: dict[int, set[int]] = {}
        for lane in self.lanes.values():
            trees.setdefault(lane.owner, set()).add(lane.tree)
        for lane in self.lanes.values():
            row = self.sessions[lane.owner]
            if row["tree_id"] not in trees[lane.owner]:
                row["tree_id"] = lane.tree
        for key, session_id in self.found.witnesses.session_ids.items():
            if key not in self.sessions:
                self.found.losses.append(Loss("session", session_id, None, "its row is lost, and it left no entries"))

    def _from_above(self, entry: EntryRow, extra: set[int]) -> list[tuple[EntryRow, EntryRow | None, bool]]:
        """Return an entry and those above it that have no place yet, each with its parent, from the highest on."""
        chain: list[tuple[EntryRow, EntryRow | None, bool]] = []
        met: set[int] = set()
        at: EntryRow | None = entry
        while at is not None and id(at) not in self.placed:
            met.add(id(at))
            parent, is_cut = self._parent(at, is_extra=id(at) in extra)
            if parent is not None and id(parent) in met:
                parent, is_cut = None, True  # rows that name each other
            chain.append((at, parent, is_cut))
            at = parent
        return chain[::-1]

    def _put(self, entry: EntryRow, parent: EntryRow | None, *, is_extra: bool) -> None:
        """Give an entry its place below its parent, which has one."""
        above = None if parent is None else self.placed[id(parent)]
        totals = self._totals(entry, NO_USAGE if above is None else above.totals)
        if parent is not None and above is not None and not is_extra:
            lane = self.lanes[entry.tree, above.lane]
            if lane.tip is parent and self._goes_on(entry, parent, lane):
                lane.tip, lane.tip_depth = entry, above.depth + 1
                self.placed[id(entry)] = Placed(lane.id, above.depth + 1, parent.id, totals)
                return
        lane = self._new_lane(entry, above, is_copy=is_extra)
        self.placed[id(entry)] = Placed(lane.id, lane.tip_depth, None if parent is None else parent.id, totals)

    def _goes_on(self, entry: EntryRow, parent: EntryRow, lane: NewLane) -> bool:
        """Return whether an entry goes on in its parent's lane: because it did, or because its own lane is lost.

        Revisions grow along a lane, and what a session adds that is there is the end of a lane.
        """
        if parent.session != entry.session:
            is_behind = parent.session not in self.sessions
        else:
            is_behind = (entry.revision, entry.ordinal) > (parent.revision, parent.ordinal)
        if parent.lane == entry.lane or not is_behind:
            return is_behind
        is_lost = (entry.tree, entry.lane) not in self._forks
        is_free = (entry.tree, parent.lane, parent.depth + 1) not in self._places
        return is_lost and is_free and lane.owner == entry.session

    def _totals(self, entry: EntryRow, before: UsageTotals) -> UsageTotals:
        if entry.counted:
            try:
                return before.plus(entry.usage)
            except FlueError:
                entry.counted = False
        return before

    def _parent(self, entry: EntryRow, *, is_extra: bool) -> tuple[EntryRow | None, bool]:
        """Return an entry's parent, and whether it should have one but has none."""
        fork = self._forks.get((entry.tree, entry.lane))
        name = entry.parent_id or ""
        named = self.by_id.get((entry.tree, self.found.renamed.get((entry.tree, name), name)))
        if named is not None and (fork is None or is_extra):
            return named, False
        if entry.depth == 0:
            return None, False
        if fork is not None and fork[0] is not None and entry.depth == fork[1] + 1:
            parent = self._places.get((entry.tree, fork[0], fork[1]))
        elif fork is not None and entry.depth <= fork[1]:
            parent = None
        else:
            parent = self._places.get((entry.tree, entry.lane, entry.depth - 1))
        parent = named if parent is None else parent
        return parent, parent is None

    def _new_lane(self, entry: EntryRow, above: Placed | None, *, is_copy: bool) -> NewLane:
        number = entry.lane
        if is_copy or (entry.tree, number) in self.lanes:
            number = self._last_lane[entry.tree] = self._last_lane[entry.tree] + 1
        row = self.found.tables["lanes"].get((entry.tree, entry.lane))
        owner = None if row is None else row["owner_key"]
        if not isinstance(owner, int) or owner < 0:
            owner = self.found.witnesses.lane_owners.get((entry.tree, entry.lane), entry.session)
        parent, fork_depth = (None, -1) if above is None else (above.lane, above.depth)
        lane = NewLane(entry.tree, number, owner, parent, fork_depth, entry, fork_depth + 1)
        self.lanes[entry.tree, number] = lane
        return lane

    # -- sessions ---------------------------------------------------------------------------------------------------

    def _make_owners(self) -> bool:
        """Make new rows for sessions whose rows are lost, if lanes of theirs are left; return whether there are any."""
        before = len(self.sessions)
        for lane in self.lanes.values():
            if lane.owner not in self.sessions:
                made = self._make_session(lane.owner, lane.tree)
                detail = "its row is lost: made anew from its entries, without title, metadata and the like"
                self.found.changes.append(Loss("session", str(made["id"]), None, detail))
        return len(self.sessions) > before

    def _make_session(self, key: int, tree: int, name: str | None = None) -> Found:
        known = self.found.witnesses
        ids = {row["id"] for row in self.sessions.values()}
        session_id = name or self.found.session_id(key) or f"rescued-{key}"
        while session_id in ids:
            session_id += "-"
        scope, session_key = known.session_keys.get(key, ("", None))
        taken = {(row["scope"], row["key"]) for row in self.sessions.values()}
        mine = [entry.created for entry in self.entries if entry.session == key] or [0]
        row: Found = {
            "session_key": key, "id": session_id, "tree_id": tree, "scope": scope,
            "key": None if (scope, session_key) in taken else session_key, "title": None,
            "kind": "root" if tree == key else "fork", "task_depth": 0, "forked_from_session": None,
            "forked_from_entry": None, "leaf": None, "revision": 0, "metadata": "{}", "cwd": None, "config_path": None,
            "completed_at": None, "trashed_at": None, "entry_count": 0, "message_count": 0, "first_message": None,
            "spent_tokens": 0, "spent_cost": 0, "created_at": min(mine), "updated_at": max(mine),
            "auto_title": None, "unpriced_calls": 0, "active_at": 0, "unknown_calls": 0, "active_slot": 0, "made": 1,
        }  # fmt: skip
        self.sessions[key] = row
        return row

    # -- leaves -----------------------------------------------------------------------------------------------------

    def _set_leaves(self) -> None:
        deepest: dict[int, EntryRow] = {}
        for entry in self.entries:
            if (entry.session, entry.id) in self.retracted:
                continue
            best = deepest.get(entry.session)
            if best is None or self._rank(entry) > self._rank(best):
                deepest[entry.session] = entry
        for lane in self.lanes.values():
            deepest.setdefault(lane.owner, lane.tip)
        for key, row in self.sessions.items():
            tree, session_id = _number(row["tree_id"]), str(row["id"])
            point, leaf = row["forked_from_entry"], row["leaf"]
            if isinstance(point, str) and (tree, point) not in self.by_id:
                row["forked_from_entry"] = self._survivor(tree, point, key)
                detail = f"began at entry {point}, which is lost; it begins at {row['forked_from_entry']!s} now"
                self.found.changes.append(Loss("fork point", session_id, point, detail))
            made = row.pop("made", None)
            if not made and (not isinstance(leaf, str) or (tree, leaf) in self.by_id):
                continue
            left = None if not isinstance(leaf, str) else self._survivor(tree, leaf, key)
            if left is None and key in deepest and deepest[key].tree == tree:
                left = deepest[key].id
            row["leaf"] = left or row["forked_from_entry"]
            if not made:
                detail = f"was at entry {leaf!s}, which is lost; it is at {row['leaf']!s} now"
                self.found.changes.append(Loss("leaf", session_id, str(leaf), detail))

    def _rank(self, entry: EntryRow) -> tuple[int, int, int]:
        return self.placed[id(entry)].depth, entry.revision, entry.ordinal

    def _survivor(self, tree: int, entry_id: str, session: int) -> str | None:
        """Return the nearest surviving ancestor of a lost entry, if its ancestors are known."""
        place = self._lost_places.get((tree, entry_id))
        if place is None:
            return None
        _, lane, depth = place
        while depth > 0:
            depth -= 1
            fork = self._forks.get((tree, lane))
            if fork is not None and depth <= fork[1]:
                if fork[0] is None:
                    return None
                lane, depth = fork[0], fork[1]
            entry = self._places.get((tree, lane, depth))
            if entry is not None and (session, entry.id) not in self.retracted:
                return entry.id
        return None

    def _hold_ends(self) -> None:
        """Give every lane that a deleted session left a session that sees all of it."""
        deepest: dict[tuple[int, int], int] = {}

        def hold(place: tuple[int, int], depth: int) -> None:
            deepest[place] = max(depth, deepest.get(place, -1))

        for lane in self.lanes.values():
            if lane.parent is not None:
                hold((lane.tree, lane.parent), lane.fork_depth)
        for row in self.sessions.values():
            for held in (row["leaf"], row["forked_from_entry"]):
                entry = self.by_id.get((_number(row["tree_id"]), str(held)))
                if entry is not None:
                    hold((entry.tree, self.placed[id(entry)].lane), self.placed[id(entry)].depth)
        for lane in list(self.lanes.values()):
            tip = lane.tip
            if tip.session == lane.owner or deepest.get((lane.tree, lane.id), -1) >= lane.tip_depth:
                continue
            if tip.session in self.sessions:
                lane.owner = tip.session
                continue
            key = self.next_key([row["session_key"] for row in self.sessions.values()])
            made = self._make_session(key, lane.tree, f"rescued-{tip.id}")
            made.update(kind="fork", leaf=tip.id, forked_from_entry=tip.id)
            made.pop("made")
            detail = "was made to keep what other sessions no longer lead to"
            self.found.changes.append(Loss("session", str(made["id"]), tip.id, detail))

    def next_key(self, taken: Iterable[object]) -> int:
        """Return a key that no session has, that is not in ``taken``, and that no stored row names."""
        stored = self.found.tables["flue_store"].get(("next_key",), {}).get("value")
        named = [_number(row["session_key"]) for row in self.found.tables["ledger"].values()]
        named += [entry.session for entry in self.entries]
        return max([_number(stored), *(_number(key) + 1 for key in [*taken, *named, *self.sessions, 0])])

    # -- derived values ---------------------------------------------------------------------------------------------

    def _count(self) -> None:
        entries: Counter[int] = Counter()
        messages: Counter[int] = Counter()
        revisions: dict[int, int] = {}
        newest: dict[int, int] = {}
        previews: dict[int, tuple[tuple[int, int], str]] = {}
        for entry in self.entries:
            key = entry.session
            revisions[key] = max(entry.revision, revisions.get(key, 0))
            newest[key] = max(entry.created, newest.get(key, entry.created))
            if (key, entry.id) not in self.retracted:
                entries[key] += 1
                messages[key] += entry.kind == MESSAGE
            place = (entry.revision, entry.ordinal)
            if entry.preview is not None and (key not in previews or place < previews[key][0]):
                previews[key] = (place, entry.preview)
        for table in ("leaf_moves", "session_edits"):
            for row in self.found.tables[table].values():
                changed = _number(row["session_key"])
                revisions[changed] = max(_number(row["revision"]), revisions.get(changed, 0))
        tokens, costs, unpriced = self._spending()
        unknown = Counter(_number(row["session_key"]) for row in self.found.tables["ledger"].values() if row["unknown"])
        for key, row in self.sessions.items():
            row["entry_count"], row["message_count"] = entries[key], messages[key]
            row["first_message"] = previews[key][1] if key in previews else None
            row["revision"] = max(_number(row["revision"]), revisions.get(key, 0))
            row["spent_tokens"], row["spent_cost"] = tokens[key], costs[key]
            row["unpriced_calls"], row["unknown_calls"] = unpriced[key], unknown[key]
            row["active_at"] = newest.get(key, row["created_at"])
            row["active_slot"] = slot_of(_number(row["active_at"]))

    def _spending(self) -> tuple[Counter[int], Counter[int], Counter[int]]:
        """Return the tokens, cost and calls without a price of each session; impossible calls are given up."""
        tokens: Counter[int] = Counter()
        costs: Counter[int] = Counter()
        unpriced: Counter[int] = Counter()
        calls = self.found.tables["ledger"]
        for place, row in list(calls.items()):
            key = _number(row["session_key"])
            kinds = [_number(row[f"{name}_tokens"]) for name in (
                "input", "output", "cache_read", "cache_write_5m", "cache_write_1h"
            )]  # fmt: skip
            total = _number(row["total_tokens"])
            amount = total if total > 0 else sum(kinds)
            cost = _number(row["cost"])
            if min(*kinds, total, cost) < 0 or tokens[key] + amount > MAX_AMOUNT or costs[key] + cost > MAX_AMOUNT:
                session_id = self.found.session_id(key)
                self.found.losses.append(Loss("call", session_id, None, f"call {place[2]!s} has impossible amounts"))
                del calls[place]
                continue
            tokens[key] += amount
            costs[key] += cost
            unpriced[key] += row["cost"] is None
        return tokens, costs, unpriced


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


# ---------------------------------------------------------------------------------------------------------------------
# Rename sessions and entries whose names no store accepts, and change what refers to them.
#
# A flipped bit, or bytes of another file, make an id with a NUL, an escape or a kilobyte of noise in it. The session or
# entry may be whole, but nobody could open it under such a name.

_OF_ENTRIES = {
    "sessions": ("leaf", "forked_from_entry"), "ledger": ("entry_id",), "leaf_moves": ("from_entry", "to_entry"),
    "marks": ("entry_id",), "session_edits": ("entry_id",), "task_links": ("entry_id",),
}  # fmt: skip
"""The columns that name an entry, of the tree of the session that the row belongs to."""

_OF_SESSIONS = {
    "sessions": ("forked_from_session",), "task_links": ("child_id",), "ledger_sessions": ("session_id", "task_of"),
    "budgets": ("session_id",), "reservations": ("session_id",),
}  # fmt: skip

_OTHERS = {
    "task_links": ("task_id",), "requests": ("idempotency_key",),
    "ledger": ("scope", "provider", "call_id", "model", "agent"),
    "budgets": ("id", "scope"), "reservations": ("reservation_id",),
}  # fmt: skip
"""Names that nothing else refers to by name."""

_WHATS = {"task_links": "link", "requests": "request", "ledger": "call", "budgets": "budget"}


@dataclass(slots=True)
class _Renaming:
    found: Gathered
    sessions: dict[str, str] = field(default_factory=dict)
    entries: dict[tuple[int, str], str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Replace every unusable name, report it as lost, and change what refers to it. O(rows)."""
        found = self.found
        rows = found.tables["sessions"].values()
        self.taken = {row["id"] for row in rows if isinstance(row["id"], str)}
        self.taken |= {entry_id for _, entry_id in found.entries}
        for row in rows:
            self._session(row)
        for key, name in list(found.witnesses.session_ids.items()):
            if not is_usable(name):
                found.witnesses.session_ids[key] = self._new_session_id(name, key)
        for tree, name in [place for place in found.entries if not is_usable(place[1])]:
            self._entry(tree, name)
        for table, rows_of in found.tables.items():
            for row in rows_of.values():
                self._follow(table, row)
        self._rekey()
        found.renamed, found.renamed_sessions = self.entries, self.sessions
        if self.sessions or self.entries:
            for row in rows:
                self._follow_metadata(row)

    def _free(self, name: str) -> str:
        while name in self.taken:
            name += "-"
        self.taken.add(name)
        return name

    def _lose(self, what: str, session: str | None, entry: str | None, kind: str, name: str) -> None:
        detail = f"had the {kind} {name[:60]!r}, which cannot be used"
        self.found.losses.append(Loss(what, session, entry, detail))

    def _new_session_id(self, name: str, key: int) -> str:
        if name not in self.sessions:
            self.sessions[name] = self._free(f"rescued-{key}")
        return self.sessions[name]

    def _session(self, row: Found) -> None:
        key, name = row["session_key"], row["id"]
        if not isinstance(key, int):
            return
        if isinstance(name, str) and not is_usable(name):
            row["id"] = self._new_session_id(name, key)
            self._lose("session", str(row["id"]), None, "id", name)
        elif name is None and key not in self.found.witnesses.session_ids:
            row["id"] = self._free(f"rescued-{key}")
            self.found.losses.append(Loss("session", str(row["id"]), None, "its id cannot be read"))
        for column, instead in (("key", None), ("title", None), ("scope", "")):
            text = row[column]
            usable = not isinstance(text, str) or text == "" or is_usable(text)
            if not usable and not (column == "title" and "\0" not in str(text)):
                row[column] = instead
                self._lose("session", None if row["id"] is None else str(row["id"]), None, column, str(text))

    def _entry(self, tree: int, name: str) -> None:
        found = self.found
        versions = found.entries.pop((tree, name))
        rowid = versions[0].rowid
        new = self._free(f"rescued-{len(self.entries) + 1 if rowid is None else rowid}")
        self.entries[tree, name] = new
        found.entries[tree, new] = versions
        for version in versions:
            version.id = new
        for number, witnessed in list(found.witnesses.entry_ids.items()):
            if witnessed == (tree, name):
                found.witnesses.entry_ids[number] = (tree, new)
        self._lose("entry", self._owner(versions[0].session), new, "id", name)

    def _owner(self, key: int) -> str | None:
        name = self.found.session_id(key)
        return None if name is None else self.sessions.get(name, name)

    # -- references -----------------------------------------------------------------------------------------------

    def _follow(self, table: str, row: Found) -> None:
        for column in _OF_SESSIONS.get(table, ()):
            name = row.get(column)
            if isinstance(name, str):
                row[column] = self.sessions.get(name, name)
        tree = self._tree(row)
        for column in _OF_ENTRIES.get(table, ()):
            name = row.get(column)
            if isinstance(name, str) and tree is not None:
                row[column] = self.entries.get((tree, name), name)
        for column in _OTHERS.get(table, ()):
            name = row.get(column)
            if isinstance(name, str) and name and not is_usable(name):
                row[column] = self._free("rescued-name")
                self._lose(_WHATS.get(table, "reservation"), None, None, column, name)
        if table == "requests":
            row["result"] = self._result(row["result"], tree)

    def _follow_metadata(self, row: Found) -> None:
        """Put new ids into the metadata that the engine wrote, and report the fields that still have old ones."""
        if not isinstance(row["metadata"], str):
            return
        followed = follow_metadata(row["metadata"], self.found.names_in(self._tree(row)))
        row["metadata"] = followed.text
        for fields, detail in (
            (followed.changed, "what they named has new ids"),
            (followed.left, "what they name has new ids; they stay as they were"),
        ):
            if fields:
                text = f"metadata name others in {', '.join(fields)}: {detail}"
                self.found.changes.append(Loss("session", str(row["id"]), None, text))

    def _tree(self, row: Found) -> int | None:
        tree = row.get("tree_id")
        if not isinstance(tree, int):
            session = self.found.tables["sessions"].get((row.get("parent_key", row.get("session_key")),))
            tree = None if session is None else session["tree_id"]
        return tree if isinstance(tree, int) else None

    def _result(self, text: Value, tree: int | None) -> Value:
        """Return the stored answer to a request, with the present names of sessions and entries."""
        if not isinstance(text, str) or not (self.sessions or self.entries):
            return text
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return text

        def renamed(part: object) -> object:
            if isinstance(part, list):
                return [renamed(each) for each in part]
            if isinstance(part, str):
                return self.sessions.get(part, part if tree is None else self.entries.get((tree, part), part))
            return part

        return pydantic_core.to_json(renamed(value)).decode()

    def _rekey(self) -> None:
        """File the rows whose key has changed under the new one."""
        found = self.found
        for (parent, position), child in list(found.witnesses.links.items()):
            found.witnesses.links[parent, position] = self.sessions.get(child, child)
        for table in ("marks", "requests", "ledger", "reservations"):
            found.tables[table] = {key_of(table, row): row for row in found.tables[table].values()}


# ---------------------------------------------------------------------------------------------------------------------
# Replace ids in payloads after a rename, such as the first entry that a compaction keeps.


def follow_renamed(found: Gathered, entry: EntryRow, row: Found) -> tuple[tuple[str, ...], StoredPayload | None]:
    """Replace old names of entries in a payload.

    Return the fields that were changed, and how the payload is stored now; nothing if it stays as it is.
    """
    references = kind_of(entry.kind).references
    if not found.renamed or not references:
        return (), None
    value = decode_json(found.text(row, entry)[0])
    if not isinstance(value, dict):
        return (), None
    names = {old: new for (tree, old), new in found.renamed.items() if tree == entry.tree}
    changed: JsonObject = {
        name: now for name in references if name in value and (now := _renamed(value[name], names)) != value[name]
    }
    if not changed:
        return (), None
    text, _ = encode_json({**value, **changed}, entry.kind)
    return tuple(changed), stored_anew(row, text)


def stored_anew(row: Found, text: str) -> StoredPayload:
    """Give an entry's row a payload; return how that is stored."""
    stored = pack(text)
    row.update(payload=stored.payload, packed=stored.packed, blob=stored.blob)
    return stored


def _renamed(value: JsonValue, names: Mapping[str, str]) -> JsonValue:
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if isinstance(value, dict):
        return {name: _renamed(item, names) for name, item in value.items()}
    return names.get(value, value) if isinstance(value, str) else value


# ---------------------------------------------------------------------------------------------------------------------
# Rescue the readable data of a damaged SQLite database into a new one, which verifies without problems.
#
# The damaged file and its write-ahead log are only read. The new database is made beside its final name and takes that
# name when it is whole.

_REFERRING = {
    "leaf_moves": "move", "session_edits": "edit", "marks": "mark", "requests": "request", "task_links": "link",
}  # fmt: skip
"""Tables of rows that belong to a session, and the word for one row."""

_NOTES = {"leaf_moves": "; it cannot be undone", "session_edits": ""}
"""Tables that record what was done, also to deleted entries, and what the loss of such a row means."""


def salvage(damaged: Path, new: Path, most: int = LARGEST_ENTRY, keys: Keys | None = None) -> SalvageReport:
    """Write the readable data of ``damaged`` into ``new``, which must not exist; return what was lost.

    A payload of more than ``most`` bytes is not unpacked, and its entry is lost.

    ``damaged`` and the log beside it are never changed; nothing may write to them meanwhile. Raises `InvalidArgument`
    if ``new`` exists or this process has ``damaged`` open, `NotAStore` if no row of a store is found,
    `FormatTooNew`, `StoreUnavailable`. O(file); memory: a small part of it.
    """
    require_not_open(damaged)
    keys = Keys(None) if keys is None else keys
    with Part(new) as part, PageFile(damaged) as file:
        scan, found = _read(file, damaged, most, keys)
        columns = [column.name for column in shapes(file.page_size).by_name["entries"].columns]
        # The sums of what was paid are derived anew.
        names = {name: place for place, name in enumerate(columns) if name not in PAID_COLUMNS}
        history = History(found, list(found.checked_entries(names)))
        history.rebuild()
        _report_pages(scan, found)
        calls, documents = _write(part.path, history, names, keys)
        part.publish()
    return SalvageReport(
        len(history.sessions),
        len(history.entries),
        calls,
        tuple(sorted(scan.bad)),
        tuple(found.losses),
        tuple(found.changes),
        documents,
        not found.chain.checks,
    )


def _read(file: PageFile, damaged: Path, most: int, keys: Keys) -> tuple[Scan, Gathered]:
    """Return everything that can be found in the file. Raises as `salvage` says."""
    found = Gathered(file, most, damaged, keys)
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
    found.compare_heads()
    _Renaming(found).run()
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


def _write(path: Path, history: History, names: dict[str, int], keys: Keys) -> tuple[int, int]:
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
        connection.execute(_ONE_FOLDER)
        for statement in PAID_SUMS:
            connection.execute(statement)
        _write_budgets(connection, history.found, {row["id"] for row in history.sessions.values()})
        documents = _write_documents(connection, history.found)
        tx = SqliteTransaction(connection)
        stated = Stated(keys.first)
        state_keys(tx, stated)
        tx.chain = keys.chain(stated, str(path))
        chain_anew(tx)
        all_anew(tx)
        documents_.seal_anew(tx)
        _write_state(connection, history)
        connection.execute("COMMIT")
        problems = verify_connection(connection, str(path), tx.chain).problems
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
        placed = history.placed[id(entry)]
        found.note_break(entry, row, history.by_id.get((entry.tree, placed.parent_id or "")))
        _place(row, entry, placed)
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
    for row in sorted(calls.values(), key=lambda row: _number(row["number"])):
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
        session = history.sessions.get(_number(row["session_key"]), {})
        row["project"] = row["project"] or session.get("cwd") or None
        _insert(connection, "ledger_sessions", row)
    _note_lost_calls(found)
    return len(calls)


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
        is_odd = (row["session_id"] is None) != (row["covers"] == "scope") or (row["period"] == "") != (row["tz"] == "")
        why = " contradicts another row, or itself" if row["id"] in named or is_odd else ""
        if not why:
            named.add(row["id"])
            is_lost = row["session_id"] is not None and row["session_id"] not in sessions
            why = f": its session {row['session_id']!s} is lost" if is_lost else ""
        if why:
            found.losses.append(Loss("budget", None, None, f"{row['id']!s}{why}"))
            del budgets[place]
            continue
        mine = [each for each in reservations.values() if each["budget_key"] == row["budget_key"]]
        row["reserved"] = sum(_number(each["amount"]) for each in mine if each["state"] == "held")
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
    # With a period, the ledger says what was spent.
    committed = () if budget["period"] else [each for each in reservations if each["state"] == "committed"]
    used = sum(_number(each["used"]) for each in committed)
    spent = max(_number(budget["spent"]), used)
    if budget["seeded"] != spent - used:
        budget["seeded"] = spent - used
        found.changes.append(Loss("budget", None, None, f"{budget['id']!s}: some of what was committed in it is lost"))
    return spent


def _write_state(connection: sqlite3.Connection, history: History) -> None:
    """Write the counters, so that new keys are unused and caches of the old history are dropped."""
    found = history.found
    stored = found.tables["flue_store"].get(("epoch",), {}).get("value")
    epoch = stored if isinstance(stored, int) and 0 <= stored < 2**62 else 0
    if found.losses or found.changes:
        epoch += 1
    for name, value in (("epoch", epoch), ("next_key", history.next_key([]))):
        connection.execute(sql.WRITE_STATE.sql, {"name": name, "number": value})
