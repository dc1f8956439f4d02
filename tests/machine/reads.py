"""What a store reads, checked against what its entries themselves say: a witness beside the model."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.core.context import begins_turn, project
from flue_py.core.entries import Entry
from flue_py.core.sessions import EntryPlace, PathRead
from flue_py.db.backend import Backend
from tests.checks import check_window
from tests.samples import entries_of, path_of, projected


async def check_reads(backend: Backend, session_id: str) -> None:
    """Check what a store reads against what the entries themselves say."""
    tree = await backend.read_tree(session_id)
    by_id = {entry.id: entry for entry in tree}
    assert len(by_id) == len(tree)
    path = await path_of(backend, session_id)
    _check_is_path(path, by_id)
    read = await backend.read_context(session_id)
    context = projected(read)
    assert [item.data for item in context] == [item.data for item in project(path)]
    assert (await backend.read_messages(session_id)).messages == [item.data for item in context]
    assert await backend.get_entries(session_id, list(by_id)) == tree
    named = [(session_id, entry_id) for entry_id in by_id]
    assert await backend.read_named(named) == tree
    assert await backend.places_of(named) == [_place(entry_id, path, read) for entry_id in by_id]
    assert await backend.read_leaves([session_id]) == [path[-1] if path else None]
    assert await backend.children(session_id, None) == [entry for entry in tree if entry.parent_id is None]
    half = len(tree) // 2 + 1
    first = await backend.read_entries(session_id, limit=half)
    last = await backend.read_entries(session_id, newest_first=True, limit=half)
    assert (first, last) == (tree[:half], tree[::-1][:half])
    for limit in (1, 3, len(path) + 1):
        end = entries_of(await backend.read_path_end(session_id, limit))
        assert end == path[len(path) - len(end) :]
        items = (await backend.read_context_end(session_id, limit)).items
        assert list(items) == context[len(context) - len(items) :]
    assert await backend.match_entry_ids(session_id, "", len(tree) + 1) == sorted(by_id)
    await check_window(backend, session_id, None)
    if path:
        middle = path[len(path) // 2].id
        above, below = path[: len(path) // 2 + 1], path[len(path) // 2 + 1 :]
        assert entries_of(await backend.read_path_since(session_id, middle)) == below
        at_middle = projected(await backend.read_context(session_id, leaf=middle))
        assert [item.data for item in at_middle] == [item.data for item in project(above)]
        assert await backend.read_turns(session_id) == [entry for entry in path if begins_turn(entry)]
        assert await backend.children(session_id, middle) == [entry for entry in tree if entry.parent_id == middle]
        assert await backend.common_ancestor(session_id, session_id, other_leaf=middle) == middle
        await check_window(backend, session_id, middle)
        await check_window(backend, session_id, None, middle)
        whole = await backend.read_usage(session_id, None)
        before = await backend.read_usage(session_id, None, leaf=middle)
        after = await backend.read_usage(session_id, middle)
        assert before.usage + after.usage == whole.usage
        assert await backend.is_ancestor(session_id, middle, path[-1].id)


def _place(entry_id: str, path: Sequence[Entry], context: PathRead) -> EntryPlace:
    """Return where an entry of the tree lies, by the path and what a read of the context has of it."""
    if any(entry.id == entry_id for entry in context.entries):
        return "active"
    return "compacted" if any(entry.id == entry_id for entry in path) else "abandoned"


def _check_is_path(path: Sequence[Entry], seen: dict[str, Entry]) -> None:
    parent_id = None
    for depth, entry in enumerate(path):
        assert (entry.parent_id, entry.depth) == (parent_id, depth)
        assert seen[entry.id] == entry
        parent_id = entry.id
