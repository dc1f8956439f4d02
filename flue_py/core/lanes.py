"""Lanes: how a tree of entries is laid out so that a path is a handful of ranges, and what deletion leaves of it.

A lane is a run of entries in which each is the child of the one before; it forks from a place in its parent lane.
It is owned by the session that may grow it. Depth rises by one from parent to child, so a lane's own fork depth
is always above its parent's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from flue_py.core.frozen import frozen

LaneId = tuple[int, int]


class Lane(NamedTuple):
    """A lane of a tree: who owns it, and after which place of which lane it begins (None, -1: at a root)."""

    tree_id: int
    lane_id: int
    owner: int
    parent_lane: int | None
    fork_depth: int


class Hold(NamedTuple):
    """A surviving session holds a lane up to a depth: by its leaf, or by its fork point."""

    tree_id: int
    lane_id: int
    depth: int
    holder: int


@frozen
class LaneFate:
    """What becomes of a lane whose owner is deleted: kept up to ``keep_depth`` for ``heir``, or dropped (None).

    ``keep_depth`` is the lane's fork depth where nothing is kept.
    """

    lane: Lane
    keep_depth: int
    heir: int | None


def plan_lane_deletion(doomed: Iterable[Lane], children: Iterable[Lane], holds: Iterable[Hold]) -> list[LaneFate]:
    """Return the fate of each lane whose owner is deleted.

    ``children`` are the lanes that fork from a doomed one (doomed or not), ``holds`` those of surviving sessions.
    A lane keeps its prefix up to the deepest point that something surviving holds, for that deepest holder: with
    any other heir, a later deletion would keep too much or too little. Lanes are judged children first, because
    what is kept of a child holds its parent. O(lanes), plus the sort.
    """
    lanes = {(lane.tree_id, lane.lane_id): lane for lane in doomed}
    held: dict[LaneId, tuple[int, int]] = {}

    def hold(place: LaneId, depth: int, holder: int) -> None:
        if place in lanes and (place not in held or depth > held[place][0]):
            held[place] = (depth, holder)

    for item in holds:
        hold((item.tree_id, item.lane_id), item.depth, item.holder)
    for child in children:
        if (child.tree_id, child.lane_id) not in lanes and child.parent_lane is not None:
            hold((child.tree_id, child.parent_lane), child.fork_depth, child.owner)
    fates = []
    for place, lane in sorted(lanes.items(), key=lambda item: item[1].fork_depth, reverse=True):
        if place not in held:
            fates.append(LaneFate(lane, lane.fork_depth, None))
            continue
        depth, heir = held[place]
        fates.append(LaneFate(lane, depth, heir))
        if lane.parent_lane is not None:
            hold((lane.tree_id, lane.parent_lane), lane.fork_depth, heir)
    return fates
