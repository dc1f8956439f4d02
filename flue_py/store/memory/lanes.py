"""Trees with parent links, and trees in lanes: each from the other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from flue_py.core.trees import EntryRow, LaneRow
from flue_py.store.memory.model import Row, Session


class Place(NamedTuple):
    """Where an entry is: its lane, and its depth."""

    lane_id: int
    depth: int


def parents_of(lanes: Iterable[LaneRow], entries: Sequence[EntryRow]) -> dict[str, str | None]:
    """Return the parent of each entry, by id; None for a root. Parents come first. O(entries), and a sort."""
    ids = {(entry.lane_id, entry.depth): entry.id for entry in entries}
    forks = {lane.lane_id: lane for lane in lanes}
    parents: dict[str, str | None] = {}
    for entry in sorted(entries, key=lambda entry: (entry.depth, entry.lane_id)):
        lane = forks[entry.lane_id]
        if entry.depth > lane.fork_depth + 1:
            parents[entry.id] = ids[entry.lane_id, entry.depth - 1]
        else:
            parents[entry.id] = None if lane.parent_lane is None else ids[lane.parent_lane, lane.fork_depth]
    return parents


def lay_out(tree: Mapping[str, Row], sessions: Collection[Session]) -> tuple[list[LaneRow], dict[str, Place]]:
    """Return lanes for a tree, and the place of each entry, by the rules that appending and deleting keep.

    A session's entry continues the lane of its parent where that is the session's own and ends there. Entries whose
    creator is gone are in lanes of sessions that hold the very end of them. O(entries), and a sort.
    """
    runs = _runs_of_gone(tree, sessions)
    lanes: list[LaneRow] = []
    places: dict[str, Place] = {}
    tips: dict[int, str] = {}

    def open_lane(owner: int, below: str | None, tip: str) -> int:
        lane_id = len(lanes) + 1
        lanes.append(LaneRow(lane_id, owner, *((None, -1) if below is None else places[below])))
        tips[lane_id] = tip
        return lane_id

    lanes_of_runs: dict[str, int] = {}
    for entry_id, row in tree.items():
        parent_id = row.entry.parent_id
        if entry_id in runs:
            owner, end = runs[entry_id]
            if end not in lanes_of_runs:
                lanes_of_runs[end] = open_lane(owner, parent_id, end)
            lane_id = lanes_of_runs[end]
        else:
            beside = None if parent_id is None else places[parent_id].lane_id
            if beside is not None and tips[beside] == parent_id and lanes[beside - 1].owner_key == row.creator:
                lane_id = beside
                tips[lane_id] = entry_id
            else:
                lane_id = open_lane(row.creator, parent_id, entry_id)
        places[entry_id] = Place(lane_id, row.entry.depth)
    return lanes, places


def _runs_of_gone(tree: Mapping[str, Row], sessions: Collection[Session]) -> dict[str, tuple[int, str]]:
    """Return, for each entry whose creator is gone, who holds its run (a session's number), and the run's end."""
    alive = {session.number for session in sessions}
    gone = {entry_id for entry_id, row in tree.items() if row.creator not in alive}
    holders = {row.entry.parent_id: row.creator for row in tree.values() if row.creator in alive}
    for session in sessions:
        holders.setdefault(session.info.leaf_id, session.number)
        holders.setdefault(session.info.forked_from_entry, session.number)
    runs: dict[str, tuple[int, str]] = {}
    for end in sorted(gone, key=lambda entry_id: tree[entry_id].entry.depth, reverse=True):
        entry_id: str | None = end
        while entry_id in gone and entry_id not in runs:
            runs[entry_id] = (holders[end], end)
            entry_id = tree[entry_id].entry.parent_id
    return runs
