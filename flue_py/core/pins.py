"""Pins: entries that every later compaction keeps word for word, named in its payload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from flue_py.core.entries import Entry, NewEntry
from flue_py.core.jsontext import JsonObject, decode_object, encode_json
from flue_py.core.kinds import COMPACTION, SHOWN_KINDS
from flue_py.core.layout import BASE, RANGES, Gap, gaps_of, layout_of
from flue_py.core.projection import RESTORES, pinned_ids


def effective_pins(own: Mapping[str, str], latest: JsonObject | None) -> set[str]:
    """Return what the next compaction keeps, wherever it lies.

    ``own`` are a session's marks, ``on`` or ``off`` by entry; ``latest`` are the fields of the latest compaction on
    the path: what it has pinned stays pinned until it is let go of, also in a fork, which has no marks of its own yet.
    """
    carried = frozenset[str]() if latest is None else pinned_ids(latest)
    return {entry_id for entry_id in {*carried, *own} if own.get(entry_id, "on") == "on"}


class Looking(Protocol):
    """What says where entries are on the path that a compaction is appended to."""

    def named(self, ids: Iterable[str], /) -> Mapping[str, Entry]:
        """Return those of some entries that are on the path, by id, root first."""

    def group_of(self, entry_id: str, /) -> Iterable[str]:
        """Return what is pinned together with an entry."""


def keeping(
    new: NewEntry, own: Mapping[str, str], latest: tuple[str, JsonObject] | None, looking: Looking, end: int
) -> NewEntry:
    """Return a compaction with what it keeps besides: pinned entries, and the ranges of the one in effect before.

    ``own`` are the marks of the session, ``latest`` the id and the fields of that compaction, ``end`` the depth that
    the new one will have. One that says itself what is pinned stays as it is; one of a range also gets what is pinned
    in that. The same one where there is nothing to add.
    """
    fields = decode_object(new.payload)
    first_kept, is_of_range = fields.get("firstKeptEntryId"), BASE in fields and RANGES in fields
    if RESTORES in fields or not isinstance(first_kept, str) or ("pinnedEntryIds" in fields and not is_of_range):
        return new
    pinned = effective_pins(own, None if latest is None else latest[1])
    before = None if latest is None else layout_of(*latest)
    if not pinned and (before is None or not before.ranges or is_of_range):
        return new
    if is_of_range:
        begin, last = _own_stretch(fields, looking)
        # What an exclusion hides of an exchange is not among what was planned, and can be shown again.
        held = [each for named in looking.named(pinned_ids(fields)) for each in looking.group_of(named)]
    else:
        named = looking.named({first_kept, *(() if before is None else before.named)})
        begin, last = 0, named[first_kept].depth - 1 if first_kept in named else end - 1
        gaps = [] if before is None else gaps_of(before, named, last + 1, end)
        held = _inside(gaps, () if latest is None else pinned_ids(latest[1]), looking)
        if gaps:
            fields[RANGES] = [gap.of.as_json for gap in gaps]
    found = [each for each in looking.named(pinned).values() if begin <= each.depth <= last]
    members = {member for each in found if each.kind in SHOWN_KINDS for member in looking.group_of(each.id)}
    kept = [each.id for each in looking.named(members).values() if begin <= each.depth <= last]
    if kept or held:
        fields["pinnedEntryIds"] = list(looking.named({*kept, *held}))
    return replace(new, payload=encode_json(fields, COMPACTION)[0])


def _own_stretch(fields: JsonObject, looking: Looking) -> tuple[int, int]:
    """Return the depths of the first and the last entry that a compaction of a range stands for itself."""
    own = next((each for each in layout_of("", fields).ranges if each.compaction_id == ""), None)
    named = {} if own is None else looking.named([own.first_id, own.last_id])
    if own is None or own.first_id not in named or own.last_id not in named:
        return 0, -1
    return named[own.first_id].depth, named[own.last_id].depth


def _inside(gaps: Sequence[Gap], ids: Iterable[str], looking: Looking) -> list[str]:
    """Return those of some entries that lie in ranges."""
    found = looking.named(ids).values() if gaps else ()
    return [each.id for each in found if any(gap.first <= each.depth <= gap.last for gap in gaps)]
