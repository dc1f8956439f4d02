"""What each append of a batch comes below, as far as that is known before the commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flue_py.core.entries import NewEntry
from flue_py.core.operations import (
    AppendEntries,
    CreateSession,
    CreateTask,
    ForkSession,
    MoveLeaf,
    Navigate,
    Operation,
    Redo,
    Undo,
)
from flue_py.core.sessions import STORED, Appended, LeafChoice, Stored, leaf_of
from flue_py.sessions.offloading import Ground, first_landed
from flue_py.store.backend import Backend


class _Place(NamedTuple):
    """A leaf, and a session that is stored and sees it; None for none, which is also what cannot be known."""

    session_id: str | None
    leaf: LeafChoice


class Grounds:
    """What the appends of a batch come below. Operations are told in their order, as `Collector` has them.

    ``first`` is what the appends came to when this batch was committed before (`Backend.recall_atomic`): a retry is on
    the same ground as the first try.
    """

    def __init__(self, backend: Backend, first: Sequence[Appended | None] | None) -> None:
        self._backend = backend
        self._first = first
        # The entries of the batch, each with what it is below, and where operations have left sessions.
        self._below: dict[str, tuple[NewEntry, _Place]] = {}
        self._places: dict[str, _Place] = {}

    async def below(self, number: int, operation: AppendEntries) -> Ground:
        """Return the ground of an append, the operation with this number. O(entries of the batch in it)."""
        place = self._place_of(operation)
        entries: list[NewEntry] = []
        while isinstance(place.leaf, str) and place.leaf in self._below:
            entry, place = self._below[place.leaf]
            entries.append(entry)
        if not entries and place.session_id is not None and place.leaf is not None:
            place = _Place(place.session_id, await self._stored_leaf(number, operation, place))
        return Ground(place.session_id, place.leaf, entries[::-1])

    async def _stored_leaf(self, number: int, operation: AppendEntries, place: _Place) -> LeafChoice:
        first = None if self._first is None else self._first[number]
        if first is not None:
            return first.parent_id
        if place.session_id == operation.session_id:
            landed = await first_landed(self._backend, operation.session_id, operation.idempotency_key)
            if landed is not None:
                return landed.parent_id
        return STORED if operation.on_conflict == "rebase" else place.leaf

    def note_append(self, operation: AppendEntries, ground: Ground) -> None:
        """Note that an append comes next, with what its entries are."""
        place = _Place(ground.session_id, ground.leaf)
        if ground.entries and ground.entries[-1].id is not None:
            place = _Place(ground.session_id, ground.entries[-1].id)
        for entry in operation.entries:
            if entry.id is not None:
                self._below[entry.id] = (entry, place)
                place = _Place(ground.session_id, entry.id)
        self._places[operation.session_id] = place

    def note(self, operation: Operation) -> None:
        """Note that another operation comes next."""
        match operation:
            case CreateSession() | CreateTask():
                self._places[operation.session_made or ""] = _Place(None, None)
            case ForkSession(at=at):
                place = self._place_of(operation)
                leaf = place.leaf if isinstance(at, Stored) else at
                self._places[operation.session_made or ""] = _Place(place.session_id, leaf)
            case MoveLeaf(to=to):
                self._places[operation.session_id] = _Place(self._place_of(operation).session_id, to)
            case Navigate() | Undo() | Redo():
                # Only the store can tell where these lead.
                self._places[operation.session_id] = _Place(self._place_of(operation).session_id, None)

    def _place_of(self, operation: AppendEntries | ForkSession | MoveLeaf | Navigate | Undo | Redo) -> _Place:
        """Return where an operation begins: the leaf that it expects, else the one that its session has by then."""
        place = self._places.get(operation.session_id, _Place(operation.session_id, STORED))
        expected = leaf_of(operation.expected)
        return place if isinstance(expected, Stored) else _Place(place.session_id, expected)
