"""Deletion against plain reachability: afterwards there is exactly what the survivors saw before."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from flue_py.core.entries import Entry
from flue_py.core.sessions import STORED, NewSession, retracted_in
from flue_py.db.backend import Backend
from tests.samples import UNKNOWN, assistant, ids_of, path_ids, session_info, user
from tests.sources import OpenBackend, counted_sources

OperationName: TypeAlias = Literal[
    "append", "branch", "move", "fork", "fork at leaf", "task", "link", "retract", "undo"
]

_NAMES: tuple[OperationName, ...] = (
    "append", "append", "append", "branch", "move", "fork", "fork", "fork at leaf", "task", "link", "retract", "undo",
)  # fmt: skip
_picks = st.integers(0, 119)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a history; the numbers pick among the sessions and entries that are there by then."""

    name: OperationName
    session: int
    other: int

    def pick_session(self, sessions: Sequence[str]) -> str:
        """Return the session it is about."""
        return sessions[self.session % len(sessions)]


operations: st.SearchStrategy[Operation] = st.builds(Operation, st.sampled_from(_NAMES), _picks, _picks)
histories: st.SearchStrategy[list[Operation]] = st.lists(operations, min_size=5, max_size=40)


def check_deletion(open_backend: OpenBackend, share: float = 1.0) -> None:
    """Run random histories and delete their sessions one after the other, in random order."""
    examples = max(10, round(settings().max_examples * share))

    @settings(max_examples=examples)
    @given(histories, st.randoms(use_true_random=False).map(lambda random: random.sample(range(64), 64)))
    def run(history: list[Operation], order: list[int]) -> None:
        asyncio.run(_grow_and_delete(open_backend, history, order))

    run()


async def _grow_and_delete(open_backend: OpenBackend, history: list[Operation], order: list[int]) -> None:
    backend = await open_backend(counted_sources())
    try:
        sessions = [(await backend.create_session(NewSession())).id]
        for operation in history:
            sessions += await _operate(backend, operation, sessions)
        for pick in order:
            if not sessions:
                break
            sessions = await _delete_and_check(backend, sessions, sessions[pick % len(sessions)])
        assert (await backend.info()).entries == 0
    finally:
        await backend.close()


async def _operate(backend: Backend, operation: Operation, sessions: Sequence[str]) -> list[str]:
    """Do one operation and return the sessions it made."""
    session_id = operation.pick_session(sessions)
    seen = ids_of(await backend.read_tree(session_id))
    entry_id = seen[operation.other % len(seen)] if seen else None
    leaf = (await session_info(backend, session_id)).leaf_id
    match operation.name:
        case "append":
            await backend.append(session_id, [user(), assistant(tokens=1)][: operation.other % 2 + 1])
        case "branch":
            await backend.append(session_id, [user()], expected=entry_id, on_conflict="branch")
        case "move":
            await backend.move(session_id, None if operation.other % 7 == 0 else entry_id)
        case "fork":
            return [(await backend.fork(session_id, entry_id, NewSession())).id]
        case "fork at leaf":
            return [(await backend.fork(session_id, STORED, NewSession())).id]
        case "task":
            if int(str((await session_info(backend, session_id)).metadata.get("depth", 0))) < 4:
                task = await backend.create_task(session_id, f"task {len(sessions)}", NewSession())
                return [task.id]
        case "link":
            others = [*sessions, UNKNOWN]
            await backend.link_task(session_id, others[operation.other % len(others)], "linked")
        case "retract":
            if leaf is not None:
                await backend.retract(session_id, leaf)
        case "undo":
            await backend.undo(session_id)
    return []


async def _delete_and_check(backend: Backend, sessions: Sequence[str], session_id: str) -> list[str]:
    """Delete a session, compare with what reachability says, and return the sessions that are left."""
    closure = await _closure(backend, session_id)
    survivors = [other for other in sessions if other not in closure]
    shown = {other: await _shown(backend, other) for other in survivors}
    held = {entry_id for other in survivors for entry_id in await _held(backend, other)}
    entries = (await backend.info()).entries
    deletion = await backend.delete_tree(session_id)
    assert {*deletion.session_ids} == closure & {*sessions}
    assert {*deletion.missing_ids} == closure - {*sessions}
    assert deletion.entries_deleted == entries - len(held)
    info = await backend.info()
    assert (info.entries, info.sessions) == (len(held), len(survivors))
    assert {other: await _shown(backend, other) for other in survivors} == shown
    assert (await backend.verify()).problems == []
    return survivors


async def _closure(backend: Backend, session_id: str) -> set[str]:
    """Return the session and all that its links lead to, whether it is there or not."""
    closure: set[str] = set()
    queue = [session_id]
    while queue:
        current = queue.pop()
        if current not in closure:
            closure.add(current)
            if await backend.get_session(current) is not None:
                queue += [link.child_id for link in await backend.task_links(current)]
    return closure


async def _held(backend: Backend, session_id: str) -> set[str]:
    """Return what a session holds: what it sees, and what it retracted and could bring back."""
    retracted = retracted_in(await backend.read_marks(session_id))
    return {*ids_of(await backend.read_tree(session_id)), *retracted}


async def _shown(backend: Backend, session_id: str) -> tuple[list[Entry], list[str], list[str]]:
    """Return what a session lists, finds and has on its path, with creators left out: they may go."""
    tree = [replace(entry, session_id=None) for entry in await backend.read_tree(session_id)]
    return tree, await backend.match_entry_ids(session_id, "", 10_000), await path_ids(backend, session_id)
