"""Pins: marks on entries, and what a compaction writes down of them.

A compaction keeps in its payload which entries are pinned, and which ranges stay summarized, so that the context
follows from the path alone. They are looked up in the transaction that appends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from flue_py.core.entries import Entry, NewEntry
from flue_py.core.exchange import Pairing, answered_id, called_ids, messages_of
from flue_py.core.jsontext import JsonObject
from flue_py.core.kinds import COMPACTION
from flue_py.core.pins import keeping
from flue_py.store.ops.contexts import latest_compaction
from flue_py.store.ops.marks import pins_of
from flue_py.store.ops.paths import named_on_path, path_stretch
from flue_py.store.ops.state import find_visible
from flue_py.store.schema.session_state import Position, SessionState
from flue_py.store.seam import Transaction

_STRETCH = 16


def group_of(tx: Transaction, state: SessionState, entry_id: str, leaf: Position | None) -> list[str]:
    """Return what is pinned together with an entry: a tool call and its results, or the entry alone; in path order.

    Told on the path to ``leaf`` where that holds the entry, else on the entry's own. O(the messages from the call to
    the last of its results), or to the leaf where a call has none.
    """
    found = find_visible(tx, state, entry_id)
    on_path = [] if leaf is None else named_on_path(tx, state, leaf, [entry_id], leaf.depth)
    end = leaf if on_path and leaf is not None else found
    if end is None or (found is None and not on_path):
        return [entry_id]
    depth = on_path[0].depth if on_path else end.depth
    reach = _STRETCH
    while True:
        low, high = max(depth - reach, 0), min(depth + reach, end.depth)
        stretch = path_stretch(tx, state, end, low - 1, high, contents=False)
        index = depth - low
        messages = messages_of(stretch)
        if messages[index] is None or not _has_group(messages[index] or {}):
            return [entry_id]
        group = Pairing(messages).group_of(index)
        found_caller = group is not None and group.caller is not None
        is_answered = group is not None and group.is_answered
        if (found_caller or low == 0) and (is_answered or high == end.depth):
            return [entry_id] if group is None else [stretch[member].id for member in group.members]
        reach *= 4


def _has_group(message: JsonObject) -> bool:
    return answered_id(message) is not None or bool(called_ids(message))


def with_pins(
    tx: Transaction, state: SessionState, parent: Position | None, entries: Sequence[NewEntry]
) -> Sequence[NewEntry]:
    """Return entries to be appended below ``parent``, the compactions among them with what they keep besides."""
    if parent is None or all(new.kind != COMPACTION for new in entries):
        return entries
    own, latest = pins_of(tx, state), latest_compaction(tx, state, parent)
    looking = _Looking(tx, state, parent)
    return [keeping(new, own, latest, looking, parent.depth + 1) if new.kind == COMPACTION else new for new in entries]


class _Looking(NamedTuple):
    """The path that a compaction is appended to."""

    tx: Transaction
    state: SessionState
    parent: Position

    def named(self, ids: Iterable[str], /) -> dict[str, Entry]:
        """Return those of some entries that are on the path, by id, root first."""
        wanted = set(ids)
        found = named_on_path(self.tx, self.state, self.parent, wanted, self.parent.depth) if wanted else []
        return {entry.id: entry for entry in found}

    def group_of(self, entry_id: str, /) -> list[str]:
        """Return what is pinned together with an entry."""
        return group_of(self.tx, self.state, entry_id, self.parent)
