"""What comes back with a compaction: what is pinned, and was summarized before it was."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property

from flue_py.core.entries import Entry, NewEntry
from flue_py.core.exchange import Pairing, exchange_of
from flue_py.core.jsontext import decode_object
from flue_py.core.kinds import COMPACTION, SHOWN_KINDS
from flue_py.core.layout import is_silent
from flue_py.core.pins import keeping
from flue_py.core.projection import ContextEntry, pinned_ids, project_kept


class Hidden:
    """The pinned entries of a path that its context does not show, each with what it is pinned with.

    ``path`` goes from the root to the leaf, ``latest`` is the compaction in effect there, ``context`` has its items.
    """

    def __init__(
        self, path: Sequence[Entry], latest: Entry | None, pins: Collection[str], context: Iterable[ContextEntry]
    ) -> None:
        self._path = path
        self._latest = latest
        self._pins = pins
        self._shown = {item.entry_id for item in context}

    @cached_property
    def items(self) -> tuple[ContextEntry, ...]:
        """These as items of a context, in the order of the path. O(path)."""
        named = [entry for entry in self._on_path.named(self._pins).values() if entry.kind in SHOWN_KINDS]
        return self._items({member for entry in named for member in self._on_path.group_of(entry.id)})

    def coming_back(self, new: NewEntry) -> tuple[ContextEntry, ...]:
        """Return those that a compaction appended to the path brings back beside its summary. O(path)."""
        latest = None if self._latest is None else (self._latest.id, self._latest.fields)
        let_go = pinned_ids(latest[1]).difference(self._pins) if latest is not None else ()
        marks = {**dict.fromkeys(self._pins, "on"), **dict.fromkeys(let_go, "off")}
        kept = keeping(new, marks, latest, self._on_path, len(self._path))
        return self._items(pinned_ids(decode_object(kept.payload)))

    def _items(self, ids: Collection[str]) -> tuple[ContextEntry, ...]:
        hidden = [self._left.get(entry.id) for entry in self._path if entry.id in ids and entry.id not in self._shown]
        return tuple(item for item in hidden if item is not None)

    @cached_property
    def _on_path(self) -> _OnPath:
        return _OnPath(self._path)

    @cached_property
    def _left(self) -> dict[str, ContextEntry]:
        """What exclusions leave of the path, by entry; no exclusion names a summary."""
        summaries = (ContextEntry(entry) for entry in self._path if entry.kind == COMPACTION and not is_silent(entry))
        return {item.entry_id: item for item in (*project_kept(self._path), *summaries)}


class _OnPath:
    """Where entries are on a path."""

    def __init__(self, path: Sequence[Entry]) -> None:
        self._path = path
        self._places = {entry.id: at for at, entry in enumerate(path)}

    @cached_property
    def _pairing(self) -> Pairing:
        return Pairing(map(exchange_of, self._path))

    def named(self, ids: Iterable[str], /) -> dict[str, Entry]:
        """Return those of some entries that are on the path, by id, root first."""
        places = sorted(self._places[each] for each in set(ids) if each in self._places)
        return {self._path[at].id: self._path[at] for at in places}

    def group_of(self, entry_id: str, /) -> list[str]:
        """Return what is pinned together with an entry."""
        at = self._places[entry_id]
        group = self._pairing.group_of(at)
        return [self._path[each].id for each in ((at,) if group is None else group.members)]
