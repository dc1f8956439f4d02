"""The tree of a session's entries as lines, with its branches, its leaf, its labels and its sizes.

Every branch has a main line that goes straight down: the active path where the branch is on it, else always the
child with most entries below it. What branches off is indented, right below the entry it left. An indented
branch holds at most half of what it left, so that even the deepest tree is indented only by the logarithm of
its size. Runs of entries in which nothing happens are folded into one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flue_py.core.entries import BRANCH_SUMMARY, COMPACTION, Entry
from flue_py.render.entries import Look, entry_line, fold_line
from flue_py.render.lines import Line, cells, shortest_ids

SHORTEST_FOLD = 3
_LANDMARKS = frozenset({COMPACTION, BRANCH_SUMMARY})


@dataclass(frozen=True, slots=True)
class _Branch:
    """A branch still to be drawn, from its first entry; ``first`` goes before that, ``rest`` before the others."""

    start: Entry
    first: str
    rest: str


@dataclass(frozen=True, slots=True)
class _Shape:
    """The links of a tree, and which child its lines follow."""

    roots: list[Entry]
    children: dict[str, list[Entry]]
    main: dict[str, Entry]
    active: frozenset[str]


def tree_lines(entries: Sequence[Entry], leaf: str | None, look: Look, *, fold: bool = True) -> list[Line]:
    """Return the tree of ``entries`` (every branch, parents before children) as lines of ``look.width`` cells.

    An entry whose parent is not among them is a root (row E21). Without ``fold`` every entry has a line of its
    own. No recursion, whatever the depth. Cost: O(entries).
    """
    shape = _shape_of(entries, leaf)
    ids = shortest_ids([entry.id for entry in entries])
    id_width = max((cells(short) for short in ids.values()), default=0)
    lines: list[Line] = []
    waiting: list[Line | _Branch] = [_Branch(root, "", "") for root in reversed(shape.roots)]
    while waiting:
        item = waiting.pop()
        if isinstance(item, _Branch):
            waiting.extend(reversed(list(_draw(item, shape, leaf, ids, id_width, look, fold=fold))))
        else:
            lines.append(item)
    return lines


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
    return _Shape(roots, children, main, frozenset(active))


def _draw(
    branch: _Branch,
    shape: _Shape,
    leaf: str | None,
    ids: dict[str, str],
    id_width: int,
    look: Look,
    *,
    fold: bool,
) -> Iterator[Line | _Branch]:
    """Yield the lines of one branch's main line, and the branches that leave it, in their places."""
    run: list[Entry] = []
    guide = branch.first
    previous: Entry | None = None
    entry: Entry | None = branch.start

    def plain(shown: Entry, guide: str) -> Line:
        sign = look.glyphs.on_path if shown.id in shape.active else look.glyphs.off_path
        return entry_line(shown, ids[shown.id], look, before=(f"{guide}{sign} ", "dim"), is_leaf=shown.id == leaf)

    def folded() -> Iterator[Line]:
        if len(run) < SHORTEST_FOLD:
            yield from (plain(shown, branch.rest) for shown in run)
        else:
            yield fold_line(run, id_width, look, before=(f"{branch.rest}{look.glyphs.fold} ", "dim"))
        run.clear()

    while entry is not None:
        follower = shape.main.get(entry.id)
        sides = [child for child in shape.children.get(entry.id, ()) if child is not follower]
        was_fork = previous is None or len(shape.children[previous.id]) > 1
        is_shown = (
            not fold
            or was_fork
            or follower is None
            or bool(sides)
            or entry.id == leaf
            or entry.id in (look.labels or {})
            or entry.kind in _LANDMARKS
        )
        if is_shown:
            yield from folded()
            yield plain(entry, guide)
        else:
            run.append(entry)
        for side in sides:
            yield _Branch(side, branch.rest + look.glyphs.side, branch.rest + look.glyphs.along)
        guide = branch.rest
        previous, entry = entry, follower
    yield from folded()
