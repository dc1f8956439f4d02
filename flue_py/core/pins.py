"""Pins: entries that every later compaction keeps word for word, named in its payload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flue_py.core.entries import NewEntry
from flue_py.core.jsontext import JsonObject, encode_json
from flue_py.core.kinds import COMPACTION
from flue_py.core.projection import pinned_ids


def effective_pins(own: Mapping[str, str], latest: JsonObject | None) -> set[str]:
    """Return what the next compaction keeps, wherever it lies.

    ``own`` are a session's marks, ``on`` or ``off`` by entry; ``latest`` are the fields of the latest compaction on
    the path: what it has pinned stays pinned until it is let go of, also in a fork, which has no marks of its own yet.
    """
    carried = frozenset[str]() if latest is None else pinned_ids(latest)
    return {entry_id for entry_id in {*carried, *own} if own.get(entry_id, "on") == "on"}


def keeping_pinned(new: NewEntry, fields: JsonObject, ids: Sequence[str]) -> NewEntry:
    """Return a compaction (``fields`` is its payload) that keeps these entries; the same one if there are none."""
    if not ids:
        return new
    text, _ = encode_json({**fields, "pinnedEntryIds": [*ids]}, COMPACTION)
    return replace(new, payload=text)
