"""What the model keeps of a session, a tree, a budget and a reservation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from flue_py.core.entries import Entry
from flue_py.core.json import Frozen
from flue_py.core.ledger import CallRow, Covers, ReservationState, Unit
from flue_py.core.sessions import Change, Expected, Seen, SessionInfo, Stored, TaskLink, leaf_of
from flue_py.core.usage import NO_USAGE, NOTHING_PAID, Paid, UsageTotals
from flue_py.errors import EntryNotFound, LeafConflict, RevisionConflict


class Row(Frozen):
    """A stored entry with what it adds to its path's totals, and the totals and what was paid from the root to it.

    ``creator`` is the number of the session that added it, which may be gone.
    """

    entry: Entry
    added: UsageTotals
    totals: UsageTotals
    counted: bool
    creator: int
    paid: Paid = NOTHING_PAID


class Operation(Frozen):
    """One step of undo and redo: the leaf before and after, and the entry it retracted."""

    before: str | None
    after: str | None
    retracted: str | None = None


class PayerNote(NamedTuple):
    """Who paid, under a session's number: its id, its tree's number, whose task it was, its folder.

    It outlives the session.
    """

    session_id: str
    tree_id: int
    task_of: str | None = None
    project: str | None = None


@dataclass(slots=True)
class BudgetNote:
    """A budget. What is reserved in it, and what was spent beyond what it began with, its reservations tell."""

    id: str
    scope: str
    covers: Covers
    session_id: str | None
    unit: Unit
    allowed: int
    spent: int
    seeded: int
    created_us: int
    updated_us: int


@dataclass(slots=True)
class ReservationNote:
    """A reservation; ``amounts`` and ``used`` (of a committed one) are by budget."""

    id: str
    session_id: str
    state: ReservationState
    amounts: dict[str, int]
    used: dict[str, int]
    created_us: int
    expires_us: int
    settled_us: int | None = None

    def holds(self, budget_id: str, now_us: int) -> int:
        """Return what it holds of a budget."""
        is_held = self.state == "held" and now_us < self.expires_us
        return self.amounts.get(budget_id, 0) if is_held else 0


@dataclass(slots=True)
class Session:
    """One session: its row, its tree's entries (shared with the tree's other sessions), and its own changes.

    ``number`` counts the sessions ever made, ``tree_id`` is that of the one its tree began with; ``created`` holds
    the ids of the entries it added, in order; ``done`` and ``undone`` are the stacks of undo and redo.
    """

    info: SessionInfo
    number: int
    tree_id: int
    tree: dict[str, Row]
    task_depth: int = 0
    created: list[str] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    done: list[Operation] = field(default_factory=list)
    undone: list[Operation] = field(default_factory=list)
    retracted: set[str] = field(default_factory=set)
    links: list[TaskLink] = field(default_factory=list)

    def reach(self, found: set[str] | None = None) -> set[str]:
        """Return what this session holds: what it created, its leaf, its fork point, and their ancestors."""
        found = set() if found is None else found
        for start in (*self.created, self.info.leaf_id, self.info.forked_from_entry):
            entry_id = start
            while entry_id is not None and entry_id not in found:
                found.add(entry_id)
                entry_id = self.tree[entry_id].entry.parent_id
        return found

    def do(self, before: str | None, after: str | None, retracted: str | None = None) -> None:
        """Remember the operation just done for undo; what was undone before it cannot be redone any more."""
        self.done.append(Operation(before, after, retracted))
        self.undone.clear()

    def sees(self, entry_id: str) -> bool:
        """Return whether the session holds the entry and has not retracted it."""
        return entry_id in self.tree and entry_id not in self.retracted and entry_id in self.reach()

    def check_sees(self, entry_id: str | None) -> None:
        """Raise `EntryNotFound` for an entry the session does not see; None is the place before the first."""
        if entry_id is not None and not self.sees(entry_id):
            raise EntryNotFound(self.info.id, entry_id)

    def check_revision(self, expected: Expected) -> None:
        """Raise `RevisionConflict` if the stored revision is not the expected one."""
        revision = expected.revision if isinstance(expected, Seen) else None
        if revision is not None and revision != self.info.revision:
            raise RevisionConflict(self.info.id, revision, self.info.revision)

    def check_seen(self, expected: Expected) -> None:
        """Raise `RevisionConflict` or `LeafConflict` if what is stored is not what is expected."""
        self.check_revision(expected)
        leaf = leaf_of(expected)
        if not isinstance(leaf, Stored) and leaf != self.info.leaf_id:
            raise LeafConflict(self.info.id, leaf, self.info.leaf_id)

    def path(self, leaf: str | None) -> list[Entry]:
        """Return the entries from the root to ``leaf``."""
        entries: list[Entry] = []
        while leaf is not None:
            entry = self.tree[leaf].entry
            entries.append(entry)
            leaf = entry.parent_id
        return entries[::-1]

    def totals(self, leaf: str | None) -> UsageTotals:
        """Return what the path to ``leaf`` has used."""
        return NO_USAGE if leaf is None else self.tree[leaf].totals

    def paid(self, leaf: str | None) -> Paid:
        """Return what the ledger has of the path to ``leaf``."""
        return NOTHING_PAID if leaf is None else self.tree[leaf].paid

    def has_visible_child(self, entry_id: str) -> bool:
        """Return whether the session sees an entry below this one."""
        return any(self.tree[other].entry.parent_id == entry_id for other in self.reach() - self.retracted)


def with_paid_sums(rows: Iterable[Row], tree: Mapping[str, Row], calls: Iterable[CallRow]) -> list[Row]:
    """Return rows, parents before children, with what was paid on their paths: for the parent's, and for their own
    ``calls``, which the ledger has. Parents are among them or in the ``tree``."""
    own: dict[tuple[int, str], Paid] = {}
    for call in calls:
        if call.entry_id is not None:
            place = (call.session_key, call.entry_id)
            own[place] = own.get(place, NOTHING_PAID).plus(call.paid)
    made: dict[str, Row] = {}
    for row in rows:
        parent_id = row.entry.parent_id
        above = NOTHING_PAID if parent_id is None else (made.get(parent_id) or tree[parent_id]).paid
        paid = above.plus(own.get((row.creator, row.entry.id), NOTHING_PAID))
        made[row.entry.id] = replace(row, paid=paid)
    return list(made.values())


def renew_paid_sums(tree: dict[str, Row], calls: Iterable[CallRow]) -> None:
    """Derive anew what was paid on the paths of a tree, from what the ledger has now. O(tree and ledger)."""
    tree.update((row.entry.id, row) for row in with_paid_sums(tree.values(), {}, calls))
