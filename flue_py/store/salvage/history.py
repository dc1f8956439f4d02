"""Rebuild history from the entries that are left: lanes, leaves, counts and totals that agree.

Undamaged history stays exactly as it was, internal keys included. Lanes say what an entry was added to; where they do
not, the entry's own row does. If an entry is lost, the entries below it become a branch with a root of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from flue_py.core.kinds import MESSAGE
from flue_py.core.listing import slot_of
from flue_py.core.salvaging import Loss
from flue_py.core.usage import MAX_AMOUNT, NO_USAGE, UsageTotals
from flue_py.errors import FlueError
from flue_py.store.salvage.rows import EntryRow, Found, Gathered, checked_object

_Place = tuple[int, int, int]


class Placed(NamedTuple):
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
        self._take_sessions()
        self._note_lost_entries()
        self.by_id = {(entry.tree, entry.id): entry for entry in self.entries}
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
            metadata = checked_object(row["metadata"])
            if metadata != row["metadata"]:
                row["metadata"] = metadata
                self.found.changes.append(Loss("session", session_id, None, "lost its metadata"))
            self.sessions[key] = row

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
