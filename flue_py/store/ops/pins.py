"""Pins: marks on entries, and what a compaction writes down of them.

A compaction keeps in its payload which entries are pinned, so that the context follows from the path alone. They are
looked up in the transaction that appends it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from flue_py.core.entries import NewEntry
from flue_py.core.exchange import Pairing, answered_id, called_ids, messages_of
from flue_py.core.jsontext import JsonObject, decode_object
from flue_py.core.kinds import COMPACTION, SHOWN_KINDS
from flue_py.core.pins import effective_pins, keeping_pinned
from flue_py.store.ops.contexts import latest_compaction_fields
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
        stretch = path_stretch(tx, state, end, low - 1, high)
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
    """Return entries to be appended below ``parent``, the compactions among them with the pinned entries they keep."""
    if parent is None or all(new.kind != COMPACTION for new in entries):
        return entries
    own = pins_of(tx, state)
    latest = latest_compaction_fields(tx, state, parent)
    pinned = effective_pins(own, latest)
    if not pinned:
        return entries
    return [_with_pins(tx, state, parent, new, pinned) if new.kind == COMPACTION else new for new in entries]


def _with_pins(
    tx: Transaction, state: SessionState, parent: Position, new: NewEntry, pinned: Collection[str]
) -> NewEntry:
    fields = decode_object(new.payload)
    first_kept = fields.get("firstKeptEntryId")
    if "pinnedEntryIds" in fields or not isinstance(first_kept, str):
        return new
    found = named_on_path(tx, state, parent, [*pinned, first_kept], parent.depth)
    depths = {entry.id: entry.depth for entry in found}
    last = depths.get(first_kept, parent.depth + 1) - 1
    ids = [entry.id for entry in found if entry.depth <= last and entry.kind in SHOWN_KINDS and entry.id in pinned]
    groups = {member for entry_id in ids for member in group_of(tx, state, entry_id, parent)}
    kept = [entry.id for entry in named_on_path(tx, state, parent, groups, last)] if groups else []
    return keeping_pinned(new, fields, kept)
