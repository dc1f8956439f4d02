"""The history of a damaged database, rebuilt from the rows that were gathered, and written to a new one."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pydantic_core

from flue_py.core.json import Frozen, JsonObject, JsonValue, decode_json, encode_json, to_json
from flue_py.core.kinds import MESSAGE, kind_of
from flue_py.core.ledger import BlobRow
from flue_py.core.sessions import LARGEST_ENTRY, is_usable, slot_of
from flue_py.core.trees import Loss, SalvageReport
from flue_py.core.usage import MAX_AMOUNT, NO_USAGE, PAID_COLUMNS, TOTAL_COLUMNS, UsageTotals
from flue_py.db import sql
from flue_py.db.backend import Keys
from flue_py.db.files import Part
from flue_py.db.ops import documents as documents_
from flue_py.db.ops.base import StoredPayload, pack
from flue_py.db.ops.seals import Stated, all_anew, state_keys
from flue_py.db.ops.verify import chain_anew
from flue_py.db.salvage import gathered
from flue_py.db.salvage.gathered import EntryRow, Found, Gathered, number_of
from flue_py.db.salvage.pages import PageFile, Scan, Value, shapes
from flue_py.db.schema import APPLICATION_ID, FIRST_FORMAT, FORMAT_VERSION, PAID_SUMS, unreleased
from flue_py.db.sqlite.file import SqliteTransaction, check_magic, open_file, require_not_open, translated
from flue_py.db.sqlite.runner import verify_connection
from flue_py.errors import CorruptStore, FlueError, FormatTooNew, NotAStore, StoreUnavailable

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


def _names_in(found: Gathered, tree: int | None) -> Names:
    """Return the new ids that a row of this tree may have to take over."""
    own = {old: new for (of, old), new in found.renamed.items() if of == tree}
    return Names(found.renamed_sessions, own, {old: new for (_, old), new in found.renamed.items()})


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
        for row in sorted(self.found.tables["sessions"].values(), key=lambda row: -number_of(row["revision"])):
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
            metadata = gathered.checked_object(row["metadata"])
            if metadata != row["metadata"]:
                row["metadata"] = metadata
                self.found.changes.append(Loss("session", session_id, None, "lost its metadata"))
            self.sessions[key] = row

    def _report_head(self, row: Found, session_id: str) -> None:
        unlike = self.found.unlike.get(row["session_key"], [])
        if isinstance(row["leaf"], str) and (number_of(row["tree_id"]), row["leaf"]) not in self.by_id:
            # It is lost, which is reported, and not compared.
            unlike = [part for part in unlike if part != gathered.LEAF_DIGEST]
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
            tree, session_id = number_of(row["tree_id"]), str(row["id"])
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
                entry = self.by_id.get((number_of(row["tree_id"]), str(held)))
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
        named = [number_of(row["session_key"]) for row in self.found.tables["ledger"].values()]
        named += [entry.session for entry in self.entries]
        return max([number_of(stored), *(number_of(key) + 1 for key in [*taken, *named, *self.sessions, 0])])

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
                changed = number_of(row["session_key"])
                revisions[changed] = max(number_of(row["revision"]), revisions.get(changed, 0))
        tokens, costs, unpriced = self._spending()
        unknown = Counter(
            number_of(row["session_key"]) for row in self.found.tables["ledger"].values() if row["unknown"]
        )
        for key, row in self.sessions.items():
            row["entry_count"], row["message_count"] = entries[key], messages[key]
            row["first_message"] = previews[key][1] if key in previews else None
            row["revision"] = max(number_of(row["revision"]), revisions.get(key, 0))
            row["spent_tokens"], row["spent_cost"] = tokens[key], costs[key]
            row["unpriced_calls"], row["unknown_calls"] = unpriced[key], unknown[key]
            row["active_at"] = newest.get(key, row["created_at"])
            row["active_slot"] = slot_of(number_of(row["active_at"]))

    def _spending(self) -> tuple[Counter[int], Counter[int], Counter[int]]:
        """Return the tokens, cost and calls without a price of each session; impossible calls are given up."""
        tokens: Counter[int] = Counter()
        costs: Counter[int] = Counter()
        unpriced: Counter[int] = Counter()
        calls = self.found.tables["ledger"]
        for place, row in list(calls.items()):
            key = number_of(row["session_key"])
            kinds = [number_of(row[f"{name}_tokens"]) for name in (
                "input", "output", "cache_read", "cache_write_5m", "cache_write_1h"
            )]  # fmt: skip
            total = number_of(row["total_tokens"])
            amount = total if total > 0 else sum(kinds)
            cost = number_of(row["cost"])
            if min(*kinds, total, cost) < 0 or tokens[key] + amount > MAX_AMOUNT or costs[key] + cost > MAX_AMOUNT:
                session_id = self.found.session_id(key)
                self.found.losses.append(Loss("call", session_id, None, f"call {place[2]!s} has impossible amounts"))
                del calls[place]
                continue
            tokens[key] += amount
            costs[key] += cost
            unpriced[key] += row["cost"] is None
        return tokens, costs, unpriced


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
        followed = follow_metadata(row["metadata"], _names_in(self.found, self._tree(row)))
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
            found.tables[table] = {gathered.key_of(table, row): row for row in found.tables[table].values()}


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
        if row["extra"] is not None and gathered.checked_object(row["extra"]) != row["extra"]:
            row["extra"] = None
            found.changes.append(Loss("entry", found.session_id(entry.session), entry.id, "lost its extra fields"))
        elif isinstance(row["extra"], str) and (found.renamed or found.renamed_sessions):
            left = _naming(_object(row["extra"]) or {}, _names_in(found, entry.tree))
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
    for row in sorted(calls.values(), key=lambda row: number_of(row["number"])):
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
        session = history.sessions.get(number_of(row["session_key"]), {})
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


def _tree_of(history: History, payers: dict[gathered.Key, Found], call: Found) -> Value:
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
        row["reserved"] = sum(number_of(each["amount"]) for each in mine if each["state"] == "held")
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
            found.changes.append(gathered.lost_document(row[:5], "what it was called before cannot be used"))
    found.losses += found.documents.losses()
    return count


def _spent(budget: Found, reservations: Iterable[Found], found: Gathered) -> int:
    """Return what a budget has spent. Amounts of lost rows are part of what it began with."""
    # With a period, the ledger says what was spent.
    committed = () if budget["period"] else [each for each in reservations if each["state"] == "committed"]
    used = sum(number_of(each["used"]) for each in committed)
    spent = max(number_of(budget["spent"]), used)
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
