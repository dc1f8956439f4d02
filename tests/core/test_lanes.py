"""The rule of deletion, against plain reachability over entries, in random histories of a tree of sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

import pytest

from flue_py.core.trees import Hold, Lane, LaneFate, plan_lane_deletion
from tests.tables import inputs

TREE = 7
Plan = Callable[[list[Lane], list[Lane], list[Hold]], list[LaneFate]]


@dataclass
class Node:
    """An entry: who made it, its parent, and its place."""

    parent: int | None
    creator: int
    lane: int
    depth: int


@dataclass
class Session:
    leaf: int | None = None
    fork_point: int | None = None


@dataclass
class History:
    """One tree of sessions in two forms: entries with parents (the model), and lanes (what is under test).

    Entries are added in both by one rule: a lane continues only below its tip and only for its owner.
    """

    random: Random
    plan: Plan
    entries: dict[int, Node] = field(default_factory=dict)
    places: dict[tuple[int, int], int] = field(default_factory=dict)
    lanes: dict[int, Lane] = field(default_factory=dict)
    sessions: dict[int, Session] = field(default_factory=dict)
    last_name: int = 0
    made: int = 0
    handed_over: int = 0

    # -- the model: what a session sees ------------------------------------------------------------------------

    def ancestors(self, entry: int | None) -> set[int]:
        found = set()
        while entry is not None:
            found.add(entry)
            entry = self.entries[entry].parent
        return found

    def sees(self, name: int) -> set[int]:
        """The entries it created, and the ancestors of those, of its leaf and of its fork point."""
        session = self.sessions[name]
        seen = self.ancestors(session.leaf) | self.ancestors(session.fork_point)
        for number, node in self.entries.items():
            if node.creator == name and number not in seen:
                seen |= self.ancestors(number)
        return seen

    def reachable(self) -> set[int]:
        seen: set[int] = set()
        for name in self.sessions:
            seen |= self.sees(name)
        return seen

    # -- operations --------------------------------------------------------------------------------------------

    def append(self, name: int, parent: int | None) -> int:
        """Add one entry below ``parent`` by the lane rule."""
        self.made += 1
        number = self.made
        lane, depth = self.place_for(name, parent)
        self.entries[number] = Node(parent, name, lane, depth)
        self.places[lane, depth] = number
        return number

    def place_for(self, name: int, parent: int | None) -> tuple[int, int]:
        if parent is not None:
            node = self.entries[parent]
            is_tip = (node.lane, node.depth + 1) not in self.places
            if is_tip and self.lanes[node.lane].owner == name:
                return node.lane, node.depth + 1
        lane = max(self.lanes, default=0) + 1
        if parent is None:
            self.lanes[lane] = Lane(TREE, lane, name, None, -1)
            return lane, 0
        node = self.entries[parent]
        self.lanes[lane] = Lane(TREE, lane, name, node.lane, node.depth)
        return lane, node.depth + 1

    def add_session(self, at: int | None) -> int:
        """Create the root session (``at=None``), or a fork."""
        # Like a store's keys, a name never recurs.
        self.last_name += 1
        self.sessions[self.last_name] = Session(at, at)
        return self.last_name

    def step(self) -> None:
        """One random operation on a random session."""
        name = self.random.choice(sorted(self.sessions))
        session = self.sessions[name]
        seen = sorted(self.sees(name))
        what = self.random.choices(["append", "branch", "move", "fork"], [6, 2, 3, 3])[0]
        if what == "append":
            for _ in range(self.random.randint(1, 3)):
                session.leaf = self.append(name, session.leaf)
        elif what == "branch":
            parent = self.random.choice([None, *seen])
            for _ in range(self.random.randint(1, 2)):
                parent = self.append(name, parent)
        elif what == "move":
            session.leaf = self.random.choice([None, *seen])
        else:
            self.add_session(self.random.choice([session.leaf, None, *seen]))

    def delete(self, doomed: set[int]) -> None:
        """Delete sessions as a store does: plan from lanes and holds alone, then cut the lanes."""
        for name in doomed:
            del self.sessions[name]
        doomed_lanes = [lane for lane in self.lanes.values() if lane.owner in doomed]
        parents = {lane.lane_id for lane in doomed_lanes}
        children = [lane for lane in self.lanes.values() if lane.parent_lane in parents]
        holds = [
            Hold(TREE, self.entries[entry].lane, self.entries[entry].depth, name)
            for name, session in self.sessions.items()
            for entry in (session.leaf, session.fork_point)
            if entry is not None
        ]
        for some in (doomed_lanes, children, holds):
            self.random.shuffle(some)
        fates = self.plan(doomed_lanes, children, holds)
        assert sorted(fate.lane for fate in fates) == sorted(doomed_lanes)
        for fate in fates:
            self.cut(fate)

    def cut(self, fate: LaneFate) -> None:
        lane = fate.lane
        for number, node in list(self.entries.items()):
            if node.lane == lane.lane_id and node.depth > fate.keep_depth:
                del self.entries[number]
                del self.places[node.lane, node.depth]
        if fate.heir is None:
            assert fate.keep_depth == lane.fork_depth
            del self.lanes[lane.lane_id]
        else:
            assert fate.heir in self.sessions
            self.lanes[lane.lane_id] = lane._replace(owner=fate.heir)
            self.handed_over += 1


def kept_and_reachable(seed: int, plan: Plan) -> tuple[History, list[tuple[set[int], set[int]]]]:
    """Play a random history to its end; at each deletion note what the lanes kept and what was reachable."""
    random = Random(seed)
    history = History(random, plan)
    history.add_session(None)
    outcomes = []
    for _ in range(random.randint(5, 80)):
        if len(history.sessions) > 1 and random.random() < 0.25:
            count = random.choice([1, 1, 1, 2, 3])
            doomed = set(random.sample(sorted(history.sessions), min(count, len(history.sessions) - 1)))
            before = set(history.entries)
            survivors = History(
                random, plan, dict(history.entries), sessions={
                    name: session for name, session in history.sessions.items() if name not in doomed
                },
            )  # fmt: skip
            expected = survivors.reachable()
            history.delete(doomed)
            assert set(history.entries) <= before
            outcomes.append((set(history.entries), expected))
            if outcomes[-1][0] != expected:
                break
        else:
            history.step()
    return history, outcomes


def first_wrong(seeds: Iterable[int], plan: Plan) -> int | None:
    """The first history in which the lanes keep something other than what is reachable."""
    for seed in seeds:
        _, outcomes = kept_and_reachable(seed, plan)
        if any(kept != reachable for kept, reachable in outcomes):
            return seed
    return None


@pytest.fixture
def histories(request: pytest.FixtureRequest) -> int:
    """How many random histories to play."""
    return 3_000 if request.config.getoption("--run-slow") else 300


def test_what_is_kept_is_what_a_surviving_session_sees(histories: int) -> None:
    deletions = handed_over = partial = 0
    for seed in range(histories):
        history, outcomes = kept_and_reachable(seed, plan_lane_deletion)
        for kept, reachable in outcomes:
            assert kept == reachable, f"history {seed}"
            partial += bool(kept)
        deletions += len(outcomes)
        handed_over += history.handed_over
    assert deletions > histories
    assert partial > histories / 2
    assert handed_over > histories / 2


def plan_with_heir(choose: Callable[[list[tuple[int, int]]], int]) -> Plan:
    """The same rule but for the heir: ``choose`` picks from (depth, holder) of each hold on the lane."""

    def plan(doomed: list[Lane], children: list[Lane], holds: list[Hold]) -> list[LaneFate]:
        fates = plan_lane_deletion(doomed, children, holds)
        owned = {lane.lane_id for lane in doomed}
        held: dict[int, list[tuple[int, int]]] = {}
        for hold in holds:
            held.setdefault(hold.lane_id, []).append((hold.depth, hold.holder))
        for child in children:
            if child.lane_id not in owned and child.parent_lane is not None:
                held.setdefault(child.parent_lane, []).append((child.fork_depth, child.owner))
        changed = []
        for fate in fates:
            heir = fate.heir
            if heir is not None:
                heir = choose(held[fate.lane.lane_id])
                if fate.lane.parent_lane is not None:
                    held.setdefault(fate.lane.parent_lane, []).append((fate.lane.fork_depth, heir))
            changed.append(LaneFate(fate.lane, fate.keep_depth, heir))
        return changed

    return plan


def deepest(held: list[tuple[int, int]]) -> int:
    return max(held)[1]


OTHERS = {
    "shallowest": lambda held: min(held)[1],
    "oldest": lambda held: min(holder for _, holder in held),
    "youngest": lambda held: max(holder for _, holder in held),
}


@inputs("choose", [*OTHERS])
def test_any_other_heir_keeps_too_much_or_too_little_somewhere(choose: str) -> None:
    assert first_wrong(range(3_000), plan_with_heir(OTHERS[choose])) is not None


def test_the_deepest_heir_chosen_the_other_way_is_right_too(histories: int) -> None:
    assert first_wrong(range(histories), plan_with_heir(deepest)) is None


def test_a_plan_that_forgets_what_forks_from_a_lane_is_found_out() -> None:
    def forgetful(doomed: list[Lane], children: list[Lane], holds: list[Hold]) -> list[LaneFate]:
        return plan_lane_deletion(doomed, [], holds)

    assert first_wrong(range(300), forgetful) is not None


def test_growing_a_lane_that_another_session_owns_is_found_out() -> None:
    class Careless(History):
        def place_for(self, name: int, parent: int | None) -> tuple[int, int]:
            if parent is not None:
                node = self.entries[parent]
                if (node.lane, node.depth + 1) not in self.places:
                    return node.lane, node.depth + 1
            return super().place_for(name, parent)

    history = Careless(Random(0), plan_lane_deletion)
    root = history.add_session(None)
    leaf = history.append(root, None)
    fork = history.add_session(leaf)
    own = history.append(fork, leaf)
    history.delete({root})
    assert fork in history.sessions
    assert own not in history.entries


# -- single cases ---------------------------------------------------------------------------------------------------


def fate_of(lane: Lane, fates: list[LaneFate]) -> tuple[int, int | None]:
    return next((fate.keep_depth, fate.heir) for fate in fates if fate.lane == lane)


def test_nothing_doomed_is_nothing_planned() -> None:
    assert plan_lane_deletion([], [Lane(TREE, 2, 2, 1, 3)], [Hold(TREE, 1, 3, 2)]) == []


def test_a_lane_nobody_holds_is_dropped() -> None:
    lane = Lane(TREE, 1, 1, None, -1)
    assert plan_lane_deletion([lane], [], []) == [LaneFate(lane, -1, None)]


def test_the_deepest_of_a_leaf_and_a_fork_inherits() -> None:
    lane = Lane(TREE, 1, 1, None, -1)
    child = Lane(TREE, 2, 20, 1, 5)
    assert plan_lane_deletion([lane], [child], [Hold(TREE, 1, 4, 30)]) == [LaneFate(lane, 5, 20)]
    assert plan_lane_deletion([lane], [child], [Hold(TREE, 1, 6, 30)]) == [LaneFate(lane, 6, 30)]


def test_what_is_kept_of_a_lane_holds_the_lanes_above_it() -> None:
    top = Lane(TREE, 1, 1, None, -1)
    middle = Lane(TREE, 2, 2, 1, 9)
    bottom = Lane(TREE, 3, 1, 2, 19)
    fates = plan_lane_deletion([top, middle, bottom], [middle, bottom], [Hold(TREE, 3, 25, 4)])
    assert {fate_of(lane, fates) for lane in (top, middle, bottom)} == {(9, 4), (19, 4), (25, 4)}


def test_a_doomed_child_that_goes_does_not_hold_its_parent() -> None:
    top, child = Lane(TREE, 1, 1, None, -1), Lane(TREE, 2, 2, 1, 9)
    fates = plan_lane_deletion([top, child], [child], [Hold(TREE, 1, 3, 4)])
    assert (fate_of(top, fates), fate_of(child, fates)) == ((3, 4), (9, None))


def test_trees_do_not_hold_each_others_lanes() -> None:
    lane = Lane(TREE, 1, 1, None, -1)
    assert plan_lane_deletion([lane], [Lane(8, 2, 2, 1, 5)], [Hold(8, 1, 4, 3)]) == [LaneFate(lane, -1, None)]
