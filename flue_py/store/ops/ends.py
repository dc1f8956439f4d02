"""The end of a path and of a context: the last whole exchanges, read from the leaf up, without the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from flue_py.core.entries import Entry
from flue_py.core.exchange import is_whole_end, messages_of, tail_start
from flue_py.core.jsontext import JsonValue
from flue_py.core.kinds import MESSAGE
from flue_py.core.projection import ContextEntry, ContextRead, context_of, project_kept
from flue_py.core.sessions import LeafChoice, PathRead, ReadStamp
from flue_py.store.ops.contexts import kept_by, place_and_compaction, read_context
from flue_py.store.ops.paths import path_stretch, place_to_read, read_state_and_epoch
from flue_py.store.schema.session_state import Position, SessionState
from flue_py.store.seam import Transaction

Item = TypeVar("Item", Entry, ContextEntry)
Messages = Sequence[Mapping[str, JsonValue] | None]

_FEW = 8
"""How many entries before the end are read at first, when the end begins with results: their calls are near."""


def read_path_end(tx: Transaction, session_id: str, limit: int, leaf: LeafChoice) -> PathRead:
    """Return the last entries of a path (see `Backend.read_path_end`)."""
    state, epoch = read_state_and_epoch(tx, session_id)
    at, position = place_to_read(tx, state, leaf)
    entries = None if position is None else _end(tx, state, position, (0, True), limit, _as_they_are, messages_of)
    return PathRead(at, state.leaf, state.revision, ReadStamp(at, epoch), entries or ())


def read_context_end(tx: Transaction, session_id: str, limit: int, leaf: LeafChoice) -> ContextRead:
    """Return the last items of a context (see `Backend.read_context_end`)."""
    state, at, position, compaction = place_and_compaction(tx, session_id, leaf)
    items: Sequence[ContextEntry] | None = ()
    if position is not None:
        first = 0 if compaction is None else kept_by(tx, state, compaction).end
        items = _end(
            tx, state, position, (first, compaction is None), limit, project_kept, _messages_in, contents=False
        )
    if items is None:
        # It may take the summary, too, or what that has pinned.
        tx.require_snapshot()
        read = read_context(tx, session_id, leaf, None)
        items = context_of(read.entries or (), read.compaction)
        items = items[tail_start(_messages_in(items), limit, is_all=True) :]
    return ContextRead(at, state.leaf, state.revision, items)


def _end(
    tx: Transaction,
    state: SessionState,
    position: Position,
    beginning: tuple[int, bool],
    limit: int,
    items_of: Callable[[Sequence[Entry]], Sequence[Item]],
    messages_in: Callable[[Sequence[Item]], Messages],
    *,
    contents: bool = True,
) -> Sequence[Item] | None:
    """Return the last whole exchanges of what a path comes to; None where it takes more than the path to tell.

    ``beginning`` is the depth to begin at, and whether nothing comes before that. As many entries are read as there
    are to be items, then a few, then more each time, until there are enough of them and every result among them has
    its call: which mostly is just before the first of them.
    """
    first, is_everything = beginning
    above, entries, more, further = position.depth, list[Entry](), limit, _FEW
    while is_everything or above - more >= first - 1:
        last, above = above, max(above - more, first - 1)
        entries = path_stretch(tx, state, position, above, last, contents=contents) + entries
        items = items_of(entries)
        is_all = is_everything and above < first
        start = _whole_start(items, limit) if is_all or len(items) >= limit else None
        # At the first look, a result without its call says that more has to be read, and nothing else needs be known.
        if start is None and (is_all or len(entries) > limit):
            start = tail_start(messages_in(items), limit, is_all=is_all)
        if start is not None:
            return items[start:]
        more, further = max(further, 2 * (limit - len(items))), 4 * further
    return None


def _whole_start(items: Sequence[Entry] | Sequence[ContextEntry], limit: int) -> int | None:
    """Return where the last ``limit`` items begin, if that divides no call and result: as it mostly is, and soon seen.

    None where `tail_start` has to look.
    """
    start = max(len(items) - limit, 0)
    end: list[Entry] = []
    for item in items[start:]:
        if isinstance(item, Entry):
            end.append(item)
        elif item.excluded_parts:
            return None
        else:
            end.append(item.entry)
    return start if is_whole_end(end) else None


def _as_they_are(entries: Sequence[Entry]) -> Sequence[Entry]:
    return entries


def _messages_in(items: Sequence[ContextEntry]) -> Messages:
    """Return the messages among the items of a context; None for what stands for another entry."""
    return [item.data if item.kind == MESSAGE else None for item in items]
