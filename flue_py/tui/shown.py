"""The rows of a session's tree that are on the screen: a view of its outline, without what is folded. No screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flue_py.core.entries import Entry
from flue_py.tui.outline import VIEWS, Begun, Outline, Row, View, rows_of, shows


class _Flagged(NamedTuple):
    """Which entries of a list a view shows, with these labelled."""

    entries: list[Entry]
    view: View
    labels: frozenset[str]
    flags: bytearray


class ShownTree:
    """What is drawn. It stays as it was shown last, whatever is read meanwhile: a key means the row that is seen."""

    def __init__(self) -> None:
        self.view: View = "default"
        self.outline = Outline.of((), None)
        self.rows: Sequence[Row] = ()
        self.leaf_row: Row | None = None
        self._folded: set[str] = set()
        self._flagged: _Flagged | None = None

    def flag(self, outline: Outline, labels: frozenset[str]) -> bytearray:
        """Return which entries the view shows. O(entries); O(new) where the tree has only grown."""
        entries, flagged = outline.entries, self._flagged
        if flagged is None or flagged.entries is not entries or (flagged.view, flagged.labels) != (self.view, labels):
            flagged = self._flagged = _Flagged(entries, self.view, labels, bytearray())
        is_shown = shows(self.view, labels)
        flagged.flags.extend(is_shown(entry) for entry in entries[len(flagged.flags) :])
        return flagged.flags

    def show(self, outline: Outline, labels: frozenset[str], begun: Mapping[str, Sequence[Begun]]) -> None:
        """Take over an outline, and work out its rows. O(entries)."""
        flags = self.flag(outline, labels)
        self.outline = outline
        self.rows = rows_of(outline, lambda at: bool(flags[at]), self._folded, begun)
        self.leaf_row = self._row_for_leaf()

    def turn_to(self, view: View | None) -> None:
        """Choose a view: the next one for None."""
        self.view = VIEWS[(VIEWS.index(self.view) + 1) % len(VIEWS)] if view is None else view

    def row(self, number: int) -> Row | None:
        """Return a row; None behind the last one."""
        return self.rows[number] if number < len(self.rows) else None

    def number_of(self, entry_id: str | None) -> int:
        """Return which row an entry has, or the nearest before it that is shown; the last one for None. O(rows)."""
        place = self.outline.place.get(entry_id or "")
        if place is None:
            return max(len(self.rows) - 1, 0)
        best = 0
        for number, row in enumerate(self.rows):
            if isinstance(row, int):
                if row > place:
                    break
                best = number
        return best

    def has_entry(self, entry_id: str) -> bool:
        """Return whether the view shows an entry, folded or not."""
        place = self.outline.place.get(entry_id)
        return place is not None and self._flagged is not None and bool(self._flagged.flags[place])

    def is_folded(self, entry_id: str) -> bool:
        """Return whether what is below an entry is folded."""
        return entry_id in self._folded

    def fold(self, place: int) -> bool:
        """Fold what is below the entry at a place; return whether there was anything to fold."""
        entry_id = self.outline.entries[place].id
        if entry_id in self._folded or not self.outline.has_below(place):
            return False
        self._folded.add(entry_id)
        return True

    def unfold(self, entry_id: str) -> bool:
        """Unfold what is below an entry; return whether it was folded."""
        was_folded = entry_id in self._folded
        self._folded.discard(entry_id)
        return was_folded

    def unfold_above(self, entry_id: str | None) -> bool:
        """Unfold what hides an entry; return whether anything did. O(depth)."""
        has_hidden = False
        place = self.outline.place.get(entry_id or "")
        while place is not None and self._folded:
            place = self.outline.parent_of(place)
            if place is not None:
                has_hidden |= self.unfold(self.outline.entries[place].id)
        return has_hidden

    def _row_for_leaf(self) -> Row | None:
        """Return the row of the leaf; where it is not shown, that of the last entry before it on its path that is."""
        shown = {row for row in self.rows if isinstance(row, int)}
        place = self.outline.place.get(self.outline.leaf or "")
        while place is not None and place not in shown:
            place = self.outline.parent_of(place)
        return place
