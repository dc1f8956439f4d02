"""A session as an operation finds it: its row, with the place of its leaf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from flue_py.core.sessions import LeafChoice, Stored
from flue_py.core.usage import Paid, UsageTotals
from flue_py.errors import LeafConflict


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
    """A session inside a transaction, with the position of its leaf (None before the first entry)."""

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
    position: Position | None

    def require_leaf(self, expected: LeafChoice) -> None:
        """Raise `LeafConflict` where the stored leaf is not the expected one."""
        if not isinstance(expected, Stored) and expected != self.leaf:
            raise LeafConflict(self.id, expected, self.leaf)
