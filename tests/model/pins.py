"""Pins in the model: what is in effect, and what a compaction writes down of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from flue_py.core.context import effective_pins, keeping, latest_compaction
from flue_py.core.entries import Entry, NewEntry, group_ids, messages_of
from flue_py.core.kinds import COMPACTION
from flue_py.core.sessions import LeafChoice, Stored
from tests.model.rows import Session


def group_of(session: Session, entry_id: str, leaf: str | None) -> list[str]:
    """Return what is pinned together with an entry, in path order."""
    path = session.path(leaf)
    if all(entry.id != entry_id for entry in path):
        path = session.path(entry_id)
    return group_ids(path, messages_of(path), session.tree[entry_id].entry.depth)


def pins_in_effect(session: Session, leaf: str | None) -> set[str]:
    """Return the pins that a compaction below ``leaf`` would keep, wherever they lie."""
    compaction = latest_compaction(session.path(leaf))
    return effective_pins(session.seen("pin"), None if compaction is None else compaction.fields)


def with_pins(session: Session, entries: Sequence[NewEntry], below: LeafChoice) -> Sequence[NewEntry]:
    """Return entries to be appended below an entry, the compactions among them with what they keep besides."""
    if isinstance(below, Stored) or all(new.kind != COMPACTION for new in entries):
        return entries
    path = session.path(below)
    compaction = latest_compaction(path)
    latest = None if compaction is None else (compaction.id, compaction.fields)
    looking = _Looking(session, below)
    marks = session.seen("pin")
    return [keeping(new, marks, latest, looking, len(path)) if new.kind == COMPACTION else new for new in entries]


class _Looking(NamedTuple):
    """The path that a compaction is appended to."""

    session: Session
    leaf: str | None

    def named(self, ids: Iterable[str], /) -> dict[str, Entry]:
        """Return those of some entries that are on the path, by id, root first."""
        wanted = set(ids)
        return {entry.id: entry for entry in self.session.path(self.leaf) if entry.id in wanted}

    def group_of(self, entry_id: str, /) -> list[str]:
        """Return what is pinned together with an entry."""
        return group_of(self.session, entry_id, self.leaf)
