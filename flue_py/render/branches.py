"""Which lines a tree is drawn as: its branches, the runs of entries between them, and which of them are folded.

Every branch has a main line that goes straight down: the active path if the branch is on it, else always the
child with most entries below it. A side branch is nested one deeper, and has at most half the entries, so
that nesting grows with the logarithm of the tree's size. No recursion, whatever the depth.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import field, replace

from flue_py.core.entries import Entry
from flue_py.core.frozen import frozen
from flue_py.core.kinds import KINDS
from flue_py.core.turns import begins_turn

SHOWN_WHOLE = 24
"""A history of at most this many entries is shown entry by entry."""

MOST_BRANCHES = 50
MOST_LANDMARKS = 100
MOST_TURNS = 40
_LANDMARKS = frozenset(kind.name for kind in KINDS if kind.says == "summary")


@frozen
class Branch:
    """A main line from where it left another (or from a root) to its end.

    ``parent_id`` is the entry that it left, and ``nesting`` how many lines that is away from a root's.
    """

    parent_id: str | None
    tip_id: str
    entries: int
    nesting: int
    is_active: bool


@frozen
class Run:
    """Entries of one branch, each the child of the one before, that are shown as one line.

    ``opens`` and ``ends`` say that it is the first or the last of its branch. ``folded`` counts the branches that
    leave it and are not shown.
    """

    entries: tuple[Entry, ...]
    branch: Branch
    opens: bool
    ends: bool
    folded: int = 0

    @property
    def id(self) -> str:
        """The id of its last entry: where to move, fork or rewind to."""
        return self.entries[-1].id


@frozen
class Plan:
    """The lines of a tree in order, all of its branches (also those not shown), and what is not shown."""

    runs: tuple[Run, ...]
    branches: tuple[Branch, ...]
    active: frozenset[str]
    folded_branches: int = 0
    folded_entries: int = 0


@frozen
class Walk:
    """Every entry of a tree in the order of its lines, with the nesting of its branch, and whether it begins one.

    Below an entry come the branches that leave its line there, and then what goes on, so that all that descends from an
    entry follows it. ``active`` are the ids of the path to the leaf.
    """

    entries: list[Entry]
    nesting: list[int]
    opens: list[bool]
    active: frozenset[str]
    branches: int


@frozen
class _Shape:
    """The links of a tree, which child its lines follow, and its branches by their first entry."""

    roots: list[Entry]
    children: dict[str, list[Entry]]
    main: dict[str, Entry]
    active: frozenset[str]
    lines: dict[str, list[Entry]]
    nesting: dict[str, int]
    below: dict[str, int]
    branches_below: dict[str, int] = field(default_factory=dict)

    def sides(self, entry: Entry) -> list[Entry]:
        """Return the first entries of the branches that leave the line of an entry there."""
        follower = self.main.get(entry.id)
        return [child for child in self.children.get(entry.id, ()) if child is not follower]


def plan_tree(
    entries: Sequence[Entry],
    leaf: str | None,
    *,
    fold: bool = True,
    depth: int | None = None,
    landmarks: Collection[str] = (),
    ends: Collection[str] = (),
) -> Plan:
    """Return how to draw the tree of ``entries`` (every branch, parents before children).

    An entry whose parent is not among them is a root. With ``fold`` a run of entries is one line: a turn, of the
    `MOST_TURNS` that began last, or all that comes before those. The leaf, ``landmarks``, compactions and branch
    summaries have lines of their own, entries of ``ends`` are the last of their lines, and only the `MOST_BRANCHES`
    largest branches are shown. ``depth`` leaves out branches nested deeper than
    that. O(entries).
    """
    shape = _shape_of(entries, leaf)
    fold = fold and len(entries) > SHOWN_WHOLE
    alone = {entry.id for entry in entries if entry.kind in _LANDMARKS or entry.id in landmarks}
    closing = {entry.id for entry in entries if entry.id in ends}
    if fold and len(alone) + len(closing) > MOST_LANDMARKS:
        newest = {entry.id for entry in [e for e in entries if e.id in alone or e.id in closing][-MOST_LANDMARKS:]}
        alone, closing = alone & newest, closing & newest
    marked = alone | closing if leaf is None else alone | closing | {leaf}
    # A line ends before the request that begins a turn.
    turns = [entry.parent_id for entry in entries if entry.parent_id is not None and begins_turn(entry)]
    closing.update(turns[-MOST_TURNS:])
    if leaf is not None:
        alone.add(leaf)
    shown = _shown(shape, marked, fold=fold, depth=depth)
    runs = tuple(_runs(shape, shown, alone, closing, fold=fold))
    branches = tuple(
        Branch(line[0].parent_id, line[-1].id, len(line), shape.nesting[start], start in shape.active)
        for start, line in shape.lines.items()
    )
    drawn = sum(len(run.entries) for run in runs)
    return Plan(runs, branches, shape.active, len(branches) - len(shown), len(entries) - drawn)


def without_program_rows(entries: Sequence[Entry], prefixes: tuple[str, ...], ends: Collection[str]) -> list[Entry]:
    """Return ``entries`` without rows that a program wrote for itself, by how their kinds begin, except ``ends``.

    What lies below such a row is drawn below the entry before it. O(entries).
    """
    above: dict[str, str | None] = {}
    spoken: list[Entry] = []
    for entry in entries:
        parent = entry.parent_id if entry.parent_id is None else above.get(entry.parent_id, entry.parent_id)
        if entry.kind.startswith(prefixes) and entry.id not in ends:
            above[entry.id] = parent
        else:
            spoken.append(entry if parent == entry.parent_id else replace(entry, parent_id=parent))
    return spoken


def walk_tree(entries: Sequence[Entry], leaf: str | None) -> Walk:
    """Return the entries of a tree (every branch, parents before children) in the order of `plan_tree`. O(entries)."""
    shape = _shape_of(entries, leaf)
    walk = Walk([], [], [], shape.active, len(shape.lines))
    # A branch that is being walked, and how far.
    waiting = [(root.id, 0) for root in reversed(shape.roots) if root.id in shape.lines]
    while waiting:
        start, at = waiting.pop()
        line, nesting = shape.lines[start], shape.nesting[start]
        for place in range(at, len(line)):
            entry = line[place]
            walk.entries.append(entry)
            walk.nesting.append(nesting)
            walk.opens.append(place == 0)
            if len(shape.children.get(entry.id, ())) > 1:
                waiting.append((start, place + 1))
                waiting += [(side.id, 0) for side in reversed(shape.sides(entry))]
                break
    return walk


def _shape_of(entries: Sequence[Entry], leaf: str | None) -> _Shape:
    by_id = {entry.id: entry for entry in entries}
    children: dict[str, list[Entry]] = {}
    roots = []
    for entry in entries:
        if entry.parent_id is None or entry.parent_id not in by_id:
            roots.append(entry)
        else:
            children.setdefault(entry.parent_id, []).append(entry)
    below = dict.fromkeys(by_id, 1)
    for entry in reversed(entries):
        if entry.parent_id in below:
            below[entry.parent_id] += below[entry.id]
    active = set()
    at = leaf
    while at in by_id and at not in active:
        active.add(at)
        at = by_id[at].parent_id
    main = {
        parent: next((child for child in found if child.id in active), max(found, key=lambda child: below[child.id]))
        for parent, found in children.items()
    }
    shape = _Shape(roots, children, main, frozenset(active), {}, {}, below)
    start_of: dict[str, str] = {}
    for entry in entries:
        parent = entry.parent_id
        if parent is None or parent not in by_id:
            start, shape.nesting[entry.id] = entry.id, 0
        elif main[parent] is entry:
            start = start_of[parent]
        else:
            start, shape.nesting[entry.id] = entry.id, shape.nesting[start_of[parent]] + 1
        start_of[entry.id] = start
        shape.lines.setdefault(start, []).append(entry)
    shape.branches_below.update(dict.fromkeys(shape.lines, 1))
    for start in reversed(shape.lines):
        parent = by_id[start].parent_id
        if parent in start_of:
            shape.branches_below[start_of[parent]] += shape.branches_below[start]
    return shape


def _shown(shape: _Shape, marked: Collection[str], *, fold: bool, depth: int | None) -> set[str]:
    """Return the first entries of the branches to show. If a branch is shown, so is the one that it left."""
    found = [start for start in shape.lines if depth is None or shape.nesting[start] <= depth]
    if not fold or len(found) <= MOST_BRANCHES:
        return set(found)
    holds_mark = set()
    for start in reversed(shape.lines):
        line = shape.lines[start]
        if any(entry.id in marked or any(side.id in holds_mark for side in shape.sides(entry)) for entry in line):
            holds_mark.add(start)
    # A branch is larger than any that leaves it, so none is chosen without the one that it left.
    found.sort(key=lambda start: (start in shape.active, start in holds_mark, shape.below[start]), reverse=True)
    return set(found[:MOST_BRANCHES])


def _runs(shape: _Shape, shown: set[str], alone: set[str], closing: set[str], *, fold: bool) -> Iterator[Run]:
    """Yield the runs in the order of their lines: a branch comes right below the entry that it left."""
    waiting = [_line_runs(root.id, shape, shown, alone, closing, fold=fold) for root in reversed(shape.roots)]
    while waiting:
        item = next(waiting[-1], None)
        if item is None:
            waiting.pop()
        elif isinstance(item, Run):
            yield item
        else:
            waiting.append(_line_runs(item, shape, shown, alone, closing, fold=fold))


def _line_runs(
    start: str, shape: _Shape, shown: set[str], alone: set[str], closing: set[str], *, fold: bool
) -> Iterator[Run | str]:
    """Yield the runs of one branch, and the first entries of the branches that leave it, in their places."""
    if start not in shown:
        return
    line = shape.lines[start]
    branch = Branch(line[0].parent_id, line[-1].id, len(line), shape.nesting[start], start in shape.active)
    run: list[Entry] = []
    opens, folded = True, 0
    for place, entry in enumerate(line):
        run.append(entry)
        sides = shape.sides(entry)
        kept = [side.id for side in sides if side.id in shown]
        folded += sum(shape.branches_below[side.id] for side in sides if side.id not in shown)
        follower = line[place + 1] if place + 1 < len(line) else None
        goes_on = fold and not kept and entry.id not in closing and entry.id not in alone
        if goes_on and follower is not None and follower.id not in alone:
            continue
        yield Run(tuple(run), branch, opens, follower is None, folded)
        yield from kept
        run, opens, folded = [], False, 0
