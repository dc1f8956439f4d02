"""The rows and documents found in a damaged database, each checked by its types, its digest, and the indexes."""

from __future__ import annotations

import contextlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from flue_py.core.chain import HALF, NO_PARENT, Chain, Fields, UncheckedChain
from flue_py.core.json import JsonObject, decode_json, decode_object, encoded, payload_digest, splice, utf8_length
from flue_py.core.kinds import KINDS, MESSAGE, message_title, without_lost
from flue_py.core.ledger import SEALS
from flue_py.core.sessions import DocumentName, DocumentRow, is_line, is_name, is_storable
from flue_py.core.trees import Loss
from flue_py.core.usage import NO_USAGE, UsageTotals, reported_usage
from flue_py.db import sql
from flue_py.db.backend import Keys
from flue_py.db.ops.base import check_sum, decode_payload, unpack, unpack_blob
from flue_py.db.ops.seals import NO_KEY, Stated
from flue_py.db.salvage.pages import Cell, Image, PageFile, Shape, Value, shapes
from flue_py.db.schema import FIRST_CHAINED
from flue_py.errors import CorruptStore, FlueError, shown

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
LEAF_DIGEST = "the digest of its leaf"
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
        return [(str(row["name"]), number_of(row["value"])) for row in self.tables["flue_store"].values()]

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
        leaves = self.entries.get((number_of(row["tree_id"]), str(row["leaf"])), ())
        above = NO_PARENT if row["leaf"] is None else leaves[0].digest if leaves else b""
        is_like = {
            "a column": self.chain.has_head(head, head[:-HALF], (*place, columns)),
            LEAF_DIGEST: head[:-HALF] == above,
        }
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


def number_of(value: object) -> int:
    return value if isinstance(value, int) else 0


def checked_object(text: Value) -> str:
    """Return a stored JSON object, or an empty one if it is not an object."""
    try:
        decode_object(text if isinstance(text, str) else "")
    except FlueError:
        return "{}"
    return str(text)


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
