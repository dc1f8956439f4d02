"""A session's tree as a list of rows: the order of its entries, which of them a view shows, and what is folded.

No screen and no store. A row is the place of an entry in the outline, or a session that begins below an entry: a fork
or a task.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias, get_args

from flue_py.core.entries import Entry
from flue_py.core.frozen import frozen
from flue_py.core.kinds import MESSAGE, SHOWN_KINDS
from flue_py.core.sessions import SessionInfo, TaskLink
from flue_py.core.spoken import message_text
from flue_py.core.turns import begins_turn
from flue_py.render.branches import walk_tree

View: TypeAlias = Literal["default", "no tools", "prompts", "labelled", "all"]
VIEWS: tuple[View, ...] = get_args(View)

_TOOLS = frozenset({"toolResult", "bashExecution"})


class Begun(NamedTuple):
    """A session that begins below an entry. ``info`` is None if it is deleted; ``link`` is that of a task."""

    entry_id: str
    session_id: str
    info: SessionInfo | None
    link: TaskLink | None = None


Row: TypeAlias = int | Begun


@frozen
class Outline:
    """The entries of a tree in the order in which they are drawn, with the depth of the branch that each is on.

    Below an entry come the branches that leave there, and then the one that goes on, so that all that descends from an
    entry follows it. ``opens`` says which entries begin a branch; ``active`` are those on the path to the leaf, and
    ``place`` is where each is. The lists grow at their ends only (`grown`).
    """

    entries: list[Entry]
    depths: list[int]
    opens: list[bool]
    active: set[str]
    place: dict[str, int]
    leaf: str | None
    branches: int

    @classmethod
    def of(cls, entries: Sequence[Entry], leaf: str | None) -> Outline:
        """Return the outline of a tree (parents before children). O(entries)."""
        walk = walk_tree(entries, leaf)
        place = {entry.id: at for at, entry in enumerate(walk.entries)}
        return cls(walk.entries, walk.nesting, walk.opens, set(walk.active), place, leaf, walk.branches)

    def grown(self, new: Sequence[Entry], leaf: str | None) -> Outline | None:
        """Return the outline with new entries, where they only go on where it ends; None where it has to be made anew.

        It shares its lists with this one, which is not to be used any more. O(new).
        """
        last = self.entries[-1].id if self.entries else None
        if last is None or self.leaf != last or not new or leaf != new[-1].id:
            return None
        for entry in new:
            if entry.parent_id != last:
                return None
            last = entry.id
        for entry in new:
            self.place[entry.id] = len(self.entries)
            self.entries.append(entry)
            self.depths.append(self.depths[-1])
            self.opens.append(False)
            self.active.add(entry.id)
        return Outline(self.entries, self.depths, self.opens, self.active, self.place, leaf, self.branches)

    def end_of(self, at: int) -> int:
        """Return the place behind the last entry that descends from the one at ``at``. O(those entries)."""
        depth = self.depths[at]
        for place in range(at + 1, len(self.entries)):
            deep = self.depths[place]
            if deep < depth or (deep == depth and self.opens[place]):
                return place
        return len(self.entries)

    def parent_of(self, at: int) -> int | None:
        """Return the place of an entry's parent; None for a root."""
        return self.place.get(self.entries[at].parent_id or "")

    def has_below(self, at: int) -> bool:
        """Return whether anything descends from an entry."""
        return at + 1 < len(self.entries) and self.entries[at + 1].parent_id == self.entries[at].id


def shows(view: View, labels: Collection[str]) -> Callable[[Entry], bool]:
    """Return what tells whether a view shows an entry. ``labels`` are the ids of entries with a label or a pin.

    ``default`` has what a model could be shown, and what has a label; ``no tools`` what was said, and not what tools
    did; ``prompts`` what begins a turn; ``labelled`` what has a label or a pin.
    """

    def is_default(entry: Entry) -> bool:
        return entry.kind in SHOWN_KINDS or entry.id in labels

    def is_said(entry: Entry) -> bool:
        if entry.id in labels:
            return True
        if entry.kind != MESSAGE:
            return entry.kind in SHOWN_KINDS
        if entry.role == "assistant":
            return bool(message_text(entry.fields).strip())
        return entry.role not in _TOOLS

    tests: Mapping[View, Callable[[Entry], bool]] = {
        "default": is_default,
        "no tools": is_said,
        "prompts": begins_turn,
        "labelled": lambda entry: entry.id in labels,
        "all": lambda entry: True,
    }
    return tests[view]


def rows_of(
    outline: Outline,
    shown: Callable[[int], bool],
    folded: Collection[str] = (),
    begun: Mapping[str, Sequence[Begun]] | None = None,
) -> list[Row]:
    """Return the rows of a view: the entries that it shows, but for those below a folded one. O(entries).

    Sessions of ``begun``, by the id of the entry where they began, come below their entry, or the last one before it
    that is shown.
    """
    rows: list[Row] = []
    begins = begun or {}
    at, count = 0, len(outline.entries)
    while at < count:
        entry_id = outline.entries[at].id
        if shown(at):
            rows.append(at)
        if entry_id in folded:
            at = outline.end_of(at)
            continue
        if entry_id in begins:
            rows += begins[entry_id]
        at += 1
    return rows


def begun_at(
    forks: Iterable[SessionInfo], links: Iterable[TaskLink], tasks: Mapping[str, SessionInfo]
) -> dict[str, list[Begun]]:
    """Return the sessions that begin at an entry, by its id: tasks, in the order they were linked, and then forks."""
    found: dict[str, list[Begun]] = {}
    for link in links:
        if link.entry_id is not None:
            found.setdefault(link.entry_id, []).append(
                Begun(link.entry_id, link.child_id, tasks.get(link.child_id), link)
            )
    for info in forks:
        if info.forked_from_entry is not None:
            at = info.forked_from_entry
            found.setdefault(at, []).append(Begun(at, info.id, info))
    return found
