"""Pins in the model: what is in effect, and what a compaction writes down of it."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.core.entries import NewEntry
from flue_py.core.exchange import group_ids, messages_of
from flue_py.core.jsontext import decode_object
from flue_py.core.kinds import COMPACTION, SHOWN_KINDS
from flue_py.core.pins import effective_pins, keeping_pinned
from flue_py.core.projection import latest_compaction
from flue_py.core.sessions import LeafChoice, Stored
from flue_py.testing.model.rows import Session


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
    """Return entries to be appended below an entry, the compactions among them with the pinned entries they keep."""
    if isinstance(below, Stored) or all(new.kind != COMPACTION for new in entries):
        return entries
    path, pinned = session.path(below), pins_in_effect(session, below)
    made = []
    for new in entries:
        fields = decode_object(new.payload) if new.kind == COMPACTION and pinned else {}
        if isinstance(first_kept := fields.get("firstKeptEntryId"), str) and "pinnedEntryIds" not in fields:
            end = next((entry.depth for entry in path if entry.id == first_kept), len(path))
            members = {
                member
                for entry in path[:end]
                if entry.id in pinned and entry.kind in SHOWN_KINDS
                for member in group_of(session, entry.id, below)
            }
            made.append(keeping_pinned(new, fields, [entry.id for entry in path[:end] if entry.id in members]))
        else:
            made.append(new)
    return made
