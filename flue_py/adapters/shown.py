"""What every adapter shows of a session: what the model is sent at its leaf, each as a message.

A summary, of a compaction or of a branch, is the message of the user that the model reads; what exclusions leave out is
left out. So a framework goes on with the context that flue_py itself would send, whoever has changed that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flue_py.core.entries import Entry
from flue_py.core.frozen import changed
from flue_py.core.jsontext import encode_json
from flue_py.core.kinds import COMPACTION, EXCLUSION, MESSAGE, SHOWN_KINDS
from flue_py.core.projection import ContextEntry, latest_compaction, project

PROMPT = ":system"
"""What the id of the system message that a compaction has ends with, behind that of the compaction."""


def as_message(item: ContextEntry) -> Entry:
    """Return an item of a context as an entry with its message: its own one, where that is shown as it is. O(size)."""
    entry = item.entry
    if entry.kind == MESSAGE and not item.excluded_parts:
        return entry
    id = entry.id + PROMPT if item.is_prompt else entry.id
    payload, _ = encode_json(item.data, "message")
    return changed(entry, id=id, kind=MESSAGE, role=item.role, payload=payload, extra=None)


def context(path: Sequence[Entry]) -> list[Entry]:
    """Return the context at the end of a path, from its root, each item as `as_message` has it. O(path)."""
    return [as_message(item) for item in project(path)]


def is_plain(entry: Entry) -> bool:
    """Return whether an entry is shown as it is, or not at all, and others are shown the same with it. O(1)."""
    return entry.kind == MESSAGE or (entry.kind != EXCLUSION and entry.kind not in SHOWN_KINDS)


def shown_groups(
    groups: Sequence[Sequence[Entry]], is_own: Callable[[Entry], bool] = lambda _: False
) -> list[Sequence[Entry]]:
    """Return those groups of the entries of a whole path that the model is sent, in its order. O(path).

    A group is what a framework has one value for. Of one that is shown in part, each message that is left is a group.
    What no context shows stays where it is in what is kept; so does what ``is_own`` says is the framework's.
    """
    path = [entry for group in groups for entry in group if not is_own(entry)]
    if all(map(is_plain, path)):
        return list(groups)
    items = project(path)
    at = {item.entry_id: item for item in items if not item.is_prompt}
    group_of: dict[str, Sequence[Entry]] = {}
    beside: list[Sequence[Entry]] = []
    for group in groups:
        said = [entry for entry in group if entry.kind in SHOWN_KINDS and not is_own(entry)]
        if said and all(entry.id in at and as_message(at[entry.id]) is entry for entry in said):
            group_of |= {entry.id: group for entry in said}
        elif not said and group[-1].kind != EXCLUSION:
            beside.append(group)
    in_place = [item.entry.depth for item in items if _is_in_place(item)]
    compaction = latest_compaction(path)
    if compaction is not None:
        cut = min([*in_place, compaction.depth])
        beside = [group for group in beside if group[-1].depth > cut]
    found: list[Sequence[Entry]] = []
    for item in items:
        while beside and _is_in_place(item) and beside[0][-1].depth < item.entry.depth:
            found.append(beside.pop(0))
        # What stands beside a part of a group is of the whole.
        group = group_of.get(item.entry_id) or [changed(as_message(item), extra=None)]
        if not found or found[-1] is not group:
            found.append(group)
    return found + beside


def _is_in_place(item: ContextEntry) -> bool:
    return item.entry.kind != COMPACTION and not item.is_pinned
