"""The last items of a session: reading them, and taking the last one back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias

from flue_py.adapters.openai_agents.items import entries_of, items_of
from flue_py.core.kinds import COMPACTION, EXCLUSION
from flue_py.core.projection import ContextEntry
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from agents import TResponseInputItem

Shown: TypeAlias = "tuple[ContextEntry, list[TResponseInputItem]]"

_MORE = 2
"""How many entries more are read at first: where calls and their results stand together, that is enough."""
_ALL = 1_000_000


async def ending(session: Session, wanted: int | None) -> list[Shown]:
    """Return the last entries of the context that have ``wanted`` items or more, with these; all where there are fewer.

    O(items wanted), and what lies between results and their calls.
    """
    if wanted is None or wanted >= _ALL:
        return [(each, items_of(each)) for each in await session.build_context_entries()]
    # A read of the end never begins between a call and its result, so it may return fewer than were asked for.
    size = wanted + _MORE
    while True:
        entries = await session.build_context_entries(limit=size)
        found: list[Shown] = []
        missing = wanted
        while missing > 0 and len(found) < len(entries):
            last = entries[-1 - len(found)]
            found.append((last, items_of(last)))
            missing -= len(found[-1][1])
        is_all = not entries or entries[0].kind == COMPACTION or entries[0].entry.depth + len(entries) <= size
        if missing <= 0 or is_all:
            found.reverse()
            return found
        size *= 2


async def popped(store: Store, session: Session) -> TResponseInputItem | None:
    """Retract the last item of a session, and return it; None if there is none. Raises `LeafConflict`."""
    last, items = next(((each, items) for each, items in reversed(await ending(session, 1)) if items), (None, []))
    leaf = session.leaf_id
    if last is None:
        return None
    entry = last.entry
    if len(items) == 1 and entry.kind == COMPACTION:
        await session.move_leaf(None, why="pop_item", expected_leaf=leaf)
    elif len(items) > 1 or await _is_divided(session, last, leaf):
        await replaced(store, session, 1, leaf, [])
    elif entry.id != leaf or not await session.remove_leaf_message(entry.id, why="pop_item", expected_leaf=leaf):
        await session.move_leaf(entry.parent_id, why="pop_item", expected_leaf=leaf)
    return items[-1]


async def replaced(
    store: Store,
    session: Session,
    wanted: int,
    leaf: str | None,
    items: list[TResponseInputItem],
    is_expired: Callable[[TResponseInputItem], bool] | None = None,
) -> None:
    """Begin a branch at ``leaf`` that has ``items`` in place of the last ``wanted``. What was there stays where it was.

    Of what is kept, the branch is without what is expired at its beginning. Raises `LeafConflict` if the leaf is not
    the stored one, `InvalidEntry`. O(context).
    """
    shown = await session.build_context_entries(leaf=leaf)
    held = [items_of(each) for each in shown]
    kept = sum(map(len, held)) - wanted
    at = 0
    while kept and len(held[at]) <= kept:
        kept -= len(held[at])
        at += 1
    # Where no leaf has just what is kept, as within an entry of several items, that is written again.
    to = shown[at - 1].entry_id if at else None
    before = [item for each in held for item in each][:-wanted]
    expired = 0 if is_expired is None else sum(1 for _ in takewhile(is_expired, before))
    if expired or kept or (at and await _is_divided(session, shown[at - 1], leaf)):
        to, before = None, before[expired:]
    else:
        before = []
    async with store.atomic() as batch:
        batch.move_leaf(session, to, why="items replaced", expected_leaf=leaf)
        if before or items:
            batch.append_entries(session, entries_of([*before, *items], {}))


async def _is_divided(session: Session, last: ContextEntry, leaf: str | None) -> bool:
    """Return whether a leaf at an item of the context would have another context than what comes up to that item."""
    behind = await session.get_active_path_since(last.entry_id, leaf=leaf)
    return last.kind == COMPACTION or any(each.kind in (COMPACTION, EXCLUSION) for each in behind)
