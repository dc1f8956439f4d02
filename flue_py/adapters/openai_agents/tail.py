"""The last items of a session: reading them, and taking the last one back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.adapters.openai_agents.items import entries_of, items_of
from flue_py.core.entries import Entry
from flue_py.core.kinds import COMPACTION, EXCLUSION
from flue_py.core.projection import ContextEntry
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from agents import TResponseInputItem

_MORE = 4
"""How many entries more are read at first: where calls and their results stand together, that is enough."""
_ALL = 1_000_000


async def ending(session: Session, wanted: int | None) -> list[ContextEntry]:
    """Return the last entries of the context that have ``wanted`` items or more, all of them where there are fewer.

    O(items wanted), and what lies between results and their calls.
    """
    if wanted is None or wanted >= _ALL:
        return await session.build_context_entries()
    # A read of the end never begins between a call and its result, so it may return fewer than were asked for.
    size = wanted + _MORE
    while True:
        shown = await session.build_context_entries(limit=size)
        if not shown or shown[0].kind == COMPACTION or shown[0].entry.depth + len(shown) <= size:
            return shown
        if sum(len(items_of(each)) for each in shown) >= wanted:
            return shown
        size *= 2


async def popped(store: Store, session: Session) -> TResponseInputItem | None:
    """Retract the last item of a session, and return it; None if there is none. Raises `LeafConflict`."""
    last, items = None, []
    for each in reversed(await ending(session, 1)):
        if items := items_of(each):
            last = each
            break
    leaf = session.leaf_id
    if last is None:
        return None
    entry = last.entry
    if len(items) == 1 and entry.kind == COMPACTION:
        await session.move_leaf(None, why="pop_item", expected_leaf=leaf)
    elif len(items) > 1 or _is_changed(await session.get_active_path_since(entry.id)):
        await replaced(store, session, 1, leaf, [])
    elif entry.id != leaf or not await session.remove_leaf_message(entry.id, why="pop_item", expected_leaf=leaf):
        await session.move_leaf(entry.parent_id, why="pop_item", expected_leaf=leaf)
    return items[-1]


async def replaced(
    store: Store, session: Session, wanted: int, leaf: str | None, items: list[TResponseInputItem]
) -> None:
    """Begin a branch at ``leaf`` that has ``items`` in place of the last ``wanted``. What was there stays where it was.

    Raises `LeafConflict` if the leaf is not the stored one, `InvalidEntry`. O(context).
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
    before: list[TResponseInputItem] = []
    if at and (
        kept or shown[at - 1].kind == COMPACTION or _is_changed(await session.get_active_path_since(to, leaf=leaf))
    ):
        to, before = None, [item for each in held for item in each][:-wanted]
    async with store.atomic() as batch:
        batch.move_leaf(session, to, why="items replaced", expected_leaf=leaf)
        if before or items:
            batch.append_entries(session, entries_of([*before, *items], {}))


def _is_changed(path: list[Entry]) -> bool:
    """Return whether the context of a path is not that of its beginning and what follows, one after the other."""
    return any(each.kind in (COMPACTION, EXCLUSION) for each in path)
