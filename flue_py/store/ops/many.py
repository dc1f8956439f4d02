"""Reading of many sessions at once: as many statements for a thousand of them as for one."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias, TypeVar

from flue_py.collector import collector_held
from flue_py.core.entries import Entry
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, decode_object, intact_text
from flue_py.core.kinds import EXCLUSION
from flue_py.core.layout import Gap, Layout, gaps_of, layout_of
from flue_py.core.projection import RESTORES, pinned_ids
from flue_py.core.sessions import EntryPlace, SessionInfo, is_meant, is_storable
from flue_py.errors import CorruptStore
from flue_py.store.ops.contexts import fields_of, in_effect
from flue_py.store.ops.entries import entry_of_row
from flue_py.store.ops.state import read_state
from flue_py.store.schema.payloads import unpack
from flue_py.store.seam import Transaction
from flue_py.store.sql import many as many_sql
from flue_py.store.sql.many import Spot, Stretch
from flue_py.store.sql.rows import Compaction

_AT_ONCE = 5_000

_Asked = TypeVar("_Asked", str, tuple[str, str])

NamedEntry: TypeAlias = tuple[str, str]
"""An entry by the id of a session that sees it, and its own."""


def get_sessions(tx: Transaction, session_ids: Sequence[str]) -> list[SessionInfo | None]:
    """Return sessions, in this order (see `Backend.get_sessions`)."""
    found: dict[str, SessionInfo] = {}
    for some in _in_parts(each for each in session_ids if is_storable(each)):
        found.update((info.id, info) for info in tx.rows(many_sql.SESSIONS, ids=json.dumps(some)))
    infos = [(name, found.get(name)) for name in session_ids]
    return [info if info is not None and is_meant(name, info.session_key) else None for name, info in infos]


def read_named(tx: Transaction, named: Sequence[NamedEntry]) -> list[Entry | None]:
    """Return entries of several sessions, in this order (see `Backend.read_named`)."""
    found: dict[NamedEntry, tuple[int, Entry | None]] = {}
    for some in _in_parts(each for each in named if all(map(is_storable, each))):
        rows = tx.rows(many_sql.ENTRIES, ids=json.dumps(some))
        held = _held(tx, {each.session_key for each in rows if each.session_key != each.row.session_key})
        with collector_held(len(rows)):
            for session_id, key, creator, row in rows:
                if row.session_key == key or row.depth <= held.get((key, row.lane_id), -1):
                    found[session_id, row.id] = key, entry_of_row(tx, session_id, creator, row)
    return [entry if is_meant(each[0], key) else None for each in named for key, entry in [found.get(each, (0, None))]]


def places_of(tx: Transaction, named: Sequence[NamedEntry]) -> list[EntryPlace | None]:
    """Return where entries of several sessions lie, in this order (see `Backend.places_of`)."""
    found: dict[NamedEntry, tuple[int, EntryPlace]] = {}
    for some in _in_parts(each for each in named if all(map(is_storable, each))):
        found |= _places(tx, some)
    return [place if is_meant(each[0], key) else None for each in named for key, place in [found.get(each, (0, None))]]


def _in_parts(asked: Iterable[_Asked]) -> Iterator[list[_Asked]]:
    """Yield what is asked for, each once, in parts that a statement takes."""
    every = list(dict.fromkeys(asked))
    for low in range(0, len(every), _AT_ONCE):
        yield every[low : low + _AT_ONCE]


def _held(tx: Transaction, keys: Collection[int]) -> Mapping[tuple[int, int], int]:
    """Return how deep each lane is that sessions hold, by their key and the lane; nothing is read for none of them."""
    if not keys:
        return {}
    rows = tx.rows(many_sql.HELD, keys=json.dumps(sorted(keys)))
    return {(key, lane_id): depth for key, lane_id, depth in rows}


@frozen
class _View:
    """What the compaction in effect leaves of a path: which one that is, and what it says of its context."""

    compaction: Compaction
    layout: Layout
    pinned: frozenset[str]

    @property
    def names(self) -> set[str]:
        """The entries that tell what it keeps."""
        return {each for each in (*self.layout.named, *self.pinned, self.layout.first_kept_id) if each}


class _Path:
    """The path to the leaf of a session, and what is in the context of it."""

    def __init__(self, stretches: Iterable[Stretch], view: _View | None, spots: Iterable[Spot]) -> None:
        self._ends = {each.lane_id: each.high for each in stretches}
        self._view = view
        self._spots = {each.id: each for each in spots if self.has(each)}

    def has(self, spot: Spot) -> bool:
        """Return whether an entry is on it."""
        return spot.depth <= self._ends.get(spot.lane_id, -1)

    def keeps(self, spot: Spot) -> bool:
        """Return whether an entry that is on it is in the context."""
        view = self._view
        if view is None:
            return True
        first, gaps = self._kept
        if spot.depth >= first and not any(gap.first <= spot.depth <= gap.last for gap in gaps):
            return True
        is_plain = view.layout.is_plain and not view.pinned
        return not is_plain and (
            spot.kind == EXCLUSION or (spot.id in view.names and spot.depth <= view.compaction.depth)
        )

    @cached_property
    def _kept(self) -> tuple[int, Sequence[Gap]]:
        """The depth from which on the path is kept, and what is not kept of that."""
        if self._view is None:
            return 0, ()
        depth, layout = self._view.compaction.depth, self._view.layout
        first = self._spots.get(layout.first_kept_id or "")
        kept_from = depth if first is None else min(first.depth, depth)
        named = {name: spot for name, spot in self._spots.items() if spot.depth <= depth}
        return kept_from, gaps_of(layout, named, kept_from, depth)


def _places(tx: Transaction, named: Sequence[NamedEntry]) -> dict[NamedEntry, tuple[int, EntryPlace]]:
    stretches: dict[str, list[Stretch]] = {}
    for stretch in tx.rows(many_sql.PATHS, ids=json.dumps(list(dict.fromkeys(session_id for session_id, _ in named)))):
        stretches.setdefault(stretch.session_id, []).append(stretch)
    views = {session_id: _view(tx, session_id, of_path) for session_id, of_path in stretches.items()}
    telling = [(each, name) for each, view in views.items() if view is not None for name in view.names]
    asked = dict.fromkeys([*named, *(pair for pair in telling if is_storable(pair[1]))])
    spots: dict[str, list[Spot]] = {}
    for spot in tx.rows(many_sql.SPOTS, ids=json.dumps(list(asked))):
        spots.setdefault(spot.session_id, []).append(spot)
    paths = {each: _Path(stretches.get(each, ()), views.get(each), found) for each, found in spots.items()}
    beside = [spot for found in spots.values() for spot in found if not paths[spot.session_id].has(spot)]
    held = _held(tx, {spot.session_key for spot in beside if spot.session_key != spot.creator_key})
    places: dict[NamedEntry, tuple[int, EntryPlace]] = {}
    for spot in (spot for found in spots.values() for spot in found):
        path = paths[spot.session_id]
        if path.has(spot):
            places[spot.session_id, spot.id] = spot.session_key, "active" if path.keeps(spot) else "compacted"
        elif spot.session_key == spot.creator_key or spot.depth <= held.get((spot.session_key, spot.lane_id), -1):
            places[spot.session_id, spot.id] = spot.session_key, "abandoned"
    return places


def _view(tx: Transaction, session_id: str, stretches: Iterable[Stretch]) -> _View | None:
    """Return what the compaction in effect on a path leaves of it; None where there is none."""
    found = [each.compaction for each in stretches if each.compaction is not None]
    if not found:
        return None
    latest: Compaction | None = max(found, key=lambda each: each.depth)
    fields = None if latest is None else _plain_fields(latest)
    if fields is None or RESTORES in fields:
        # What is large, damaged, or points to another compaction is read with its session.
        state = read_state(tx, session_id)
        latest = in_effect(tx, state, latest)
        fields = None if latest is None else fields_of(tx, state, latest)
    if latest is None or fields is None:
        return None
    return _View(latest, layout_of(latest.id, fields), pinned_ids(fields))


def _plain_fields(compaction: Compaction) -> JsonObject | None:
    """Return the fields of a compaction whose payload is all in its row, and intact; None for any other."""
    payload, packed = compaction.payload, compaction.packed
    try:
        text = intact_text(payload if packed is None else unpack(packed), compaction.digest)
    except CorruptStore:
        return None
    return None if text is None else decode_object(text)
