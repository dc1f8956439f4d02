"""The layout of a context: which summaries it has, and which stretches of the path they stand for.

A compaction has its own summary first, and keeps the path from its first kept entry on. One of a *range* has another
compaction's summary first, its base, or none, and its own in the place of a stretch in the middle. Either may have
further ranges in what it keeps, those of earlier compactions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from flue_py.core.entries import Entry, NewEntry
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue, decode_object, encode_json
from flue_py.core.kinds import COMPACTION

RANGES = "ranges"
"""The field that lists the ranges, in the order of the path."""
BASE = "baseCompactionId"
"""The field of the compaction of a range: whose summary comes first, null for none."""


class Range(NamedTuple):
    """A stretch of the path, and the compaction whose summary stands for it; None for the one that says so."""

    first_id: str
    last_id: str
    compaction_id: str | None

    @property
    def as_json(self) -> JsonObject:
        """The range as a payload has it."""
        return {"firstEntryId": self.first_id, "lastEntryId": self.last_id, "compactionId": self.compaction_id}


class OnPath(Protocol):
    """What is asked of an entry of a path."""

    @property
    def kind(self) -> str: ...

    @property
    def depth(self) -> int: ...


class Gap(NamedTuple):
    """Where a range lies on a path, by the depths of its first and last entry."""

    first: int
    last: int
    of: Range


NO_GAP = Gap(sys.maxsize, sys.maxsize, Range("", "", None))
"""The one that no entry comes to."""


@frozen
class Layout:
    """What a compaction says of its context. ``head_id`` is the compaction whose summary comes first, if any."""

    head_id: str | None
    first_kept_id: str | None
    ranges: tuple[Range, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether there are no ranges, and nobody else's summary comes first."""
        return not self.ranges and self.head_id is not None

    @property
    def named(self) -> Iterator[str]:
        """The ids of the entries that tell where the parts are, the first kept one left out."""
        if self.head_id is not None:
            yield self.head_id
        for each in self.ranges:
            yield each.first_id
            yield each.last_id
            yield each.compaction_id or ""


def layout_of(compaction_id: str, fields: Mapping[str, JsonValue]) -> Layout:
    """Return what a compaction says of its context. What cannot be understood is left out: it stays in the context."""
    base = fields.get(BASE, compaction_id)
    first_kept = fields.get("firstKeptEntryId")
    listed = fields.get(RANGES)
    ranges = [_range(each, compaction_id) for each in listed] if isinstance(listed, list) else []
    return Layout(
        base if isinstance(base, str) else None,
        first_kept if isinstance(first_kept, str) else None,
        tuple(each for each in ranges if each is not None),
    )


def _range(value: JsonValue, compaction_id: str) -> Range | None:
    if not isinstance(value, dict):
        return None
    first, last, by = value.get("firstEntryId"), value.get("lastEntryId"), value.get("compactionId")
    if not isinstance(first, str) or not isinstance(last, str) or not (by is None or isinstance(by, str)):
        return None
    return Range(first, last, compaction_id if by is None else by)


def gaps_of(layout: Layout, entries: Mapping[str, OnPath], kept_from: int, depth: int) -> list[Gap]:
    """Return where the ranges of a layout lie, in the order of the path.

    ``entries`` are those that the layout names, as far as they are on the path at ``depth`` or before, by id. A range
    that lies before what is kept or before the range listed before it, whose ends are not there or the wrong way round,
    or that has no compaction to stand for it, is none: its entries stay in the context.
    """
    gaps: list[Gap] = []
    for each in layout.ranges:
        first, last = entries.get(each.first_id), entries.get(each.last_id)
        by = entries.get(each.compaction_id or "")
        if first is None or last is None or by is None or by.kind != COMPACTION:
            continue
        begin = gaps[-1].last + 1 if gaps else kept_from
        if begin <= first.depth <= last.depth < depth:
            gaps.append(Gap(first.depth, last.depth, each))
    return gaps


def is_silent(compaction: Entry) -> bool:
    """Return whether an entry is a compaction without a summary: what it stands for is left out, as by mode window."""
    if compaction.kind != COMPACTION:
        return False
    layout = layout_of(compaction.id, compaction.fields)
    return layout.head_id is None and all(each.compaction_id != compaction.id for each in layout.ranges)


def own_gap(compaction: Entry, entries: Mapping[str, OnPath]) -> Gap | None:
    """Return where the range lies that a compaction stands for; None for one that stands for the beginning."""
    layout = layout_of(compaction.id, compaction.fields)
    own = tuple(each for each in layout.ranges if each.compaction_id == compaction.id)
    found = gaps_of(Layout(None, None, own), entries, 0, compaction.depth)
    return found[0] if found and layout.head_id != compaction.id else None


def without_summary(compaction: NewEntry) -> NewEntry:
    """Return a compaction that shows nothing in the place of what it stands for."""
    text, _ = encode_json({**decode_object(compaction.payload), BASE: None}, COMPACTION)
    return replace(compaction, payload=text)


def laid_out(
    compaction: NewEntry, ranges: Sequence[Range], *, pinned: Sequence[str] = (), head: Layout | None = None
) -> NewEntry:
    """Return a compaction with ranges in what it keeps, and with entries that stay in them or before.

    With ``head``, it is one of a range: that layout's summary comes first, or none.
    """
    fields = decode_object(compaction.payload)
    if head is not None:
        fields[BASE] = head.head_id
    fields[RANGES] = [each.as_json for each in ranges]
    if pinned:
        fields["pinnedEntryIds"] = [*pinned]
    text, _ = encode_json(fields, COMPACTION)
    return replace(compaction, payload=text)
