"""A session as an operation finds it: its row, with the place of its leaf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from flue_py.core.sessions import Expected, OnConflict, Seen, Stored, leaf_of
from flue_py.core.usage import Paid, UsageTotals
from flue_py.errors import LeafConflict, RevisionConflict


class Position(NamedTuple):
    """The place of an entry: its id, lane and depth, the sums to it, and what decides where a child goes."""

    id: str
    lane_id: int
    depth: int
    totals: UsageTotals
    paid: Paid
    owner_key: int
    parent_lane: int | None
    fork_depth: int
    has_child: bool


@dataclass(slots=True)
class SessionState:
    """A session inside a transaction, with the position of its leaf (None before the first entry).

    ``active_slot`` is the stored slot of its last activity; None where that is not known.
    """

    key: int
    id: str
    tree_id: int
    scope: str
    leaf: str | None
    revision: int
    kind: str
    task_depth: int
    forked_from_entry: str | None
    spent_tokens: int
    spent_cost: int
    cwd: str | None
    active_slot: int | None
    position: Position | None

    def require(self, expected: Expected, on_conflict: OnConflict = "raise") -> bool:
        """Return whether the stored leaf is the expected one.

        Raises `RevisionConflict` if the stored revision is another one, and `LeafConflict` if the leaf is, unless
        ``on_conflict`` has an answer to that.
        """
        leaf = leaf_of(expected)
        revision = expected.revision if isinstance(expected, Seen) else None
        if revision is not None and revision != self.revision:
            raise RevisionConflict(self.id, revision, self.revision)
        if isinstance(leaf, Stored) or leaf == self.leaf:
            return True
        if on_conflict == "raise":
            raise LeafConflict(self.id, leaf, self.leaf)
        return False
