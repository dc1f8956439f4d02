"""What a store and the model tell, made comparable: the answer of a call, and all that can be read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from operator import itemgetter

from msgspec.structs import replace

from flue_py.core.json import decode_object
from flue_py.core.ledger import DIMENSIONS, LedgerQuery
from flue_py.core.sessions import Deletion, SessionInfo
from flue_py.db.backend import Backend
from flue_py.errors import FlueError, LeafConflict, RevisionConflict
from tests.samples import path_of, session_info

GHOSTS = ("ghost-1", "ghost-2")
"""Ids of sessions and entries that never are."""


async def answer_of(call: Callable[[Backend], Awaitable[object]], backend: Backend) -> object:
    """Return the result of a call, or what its error says."""
    try:
        result = await call(backend)
    except (LeafConflict, RevisionConflict) as error:
        return (type(error), error.session_id, error.expected, error.actual, error.operation)
    except FlueError as error:
        return type(error) if error.operation is None else (type(error), error.operation)
    return _comparable_answer(result)


def _comparable_answer(result: object) -> object:
    """Return a result without what stores may differ in."""
    if isinstance(result, SessionInfo):
        return comparable(result)
    if isinstance(result, Deletion):
        # Which session an entry counts with once its creator is gone is the store's own affair.
        return replace(
            result,
            session_ids=tuple(sorted(result.session_ids)),
            missing_ids=tuple(sorted(result.missing_ids)),
            entries_kept=0,
            # Those of each session stay in their order.
            links=tuple(sorted(result.links, key=itemgetter(0))),
        )
    return result


def comparable(info: SessionInfo) -> SessionInfo:
    """Return a session without what stores may differ in: the spelling of metadata, those stored and those shown."""
    return replace(info, metadata_text=repr((decode_object(info.metadata_text), info.metadata)))


async def told_of_session(backend: Backend, session_id: str, probes: Iterable[str]) -> dict[str, object]:
    """Return what a store tells about a session, and about some entries from its point of view."""
    if await backend.get_session(session_id) is None:
        return {"path": await answer_of(lambda backend: backend.read_path(session_id), backend)}
    told: dict[str, object] = {
        "info": comparable(await session_info(backend, session_id)),
        "path": await path_of(backend, session_id),
        "tree": await backend.read_tree(session_id),
        "usage": await backend.read_usage(session_id, None),
        "changes": [replace(change, at_us=None) for change in await backend.changes(session_id, 0, 1_000_000)],
        "links": await backend.task_links(session_id),
        "parents": await backend.task_parents(session_id),
    }
    for entry_id in probes:
        for what, call in _questions(session_id, entry_id).items():
            told[f"{what} {entry_id}"] = await answer_of(call, backend)
    return told


def bills_of(session_id: str, entry_id: str) -> tuple[LedgerQuery, ...]:
    """Return what is asked of the ledger, one after the other."""
    return (
        LedgerQuery(session_id, group_by=DIMENSIONS),
        LedgerQuery(session_id, tree=True, tasks=True, group_by=("session", "purpose")),
        LedgerQuery(session_id, on_path=True, group_by=("purpose",)),
        LedgerQuery(session_id, on_path=True, since=entry_id),
        LedgerQuery(branch="abandoned", group_by=("session",)),
    )


async def ledger_of(query: LedgerQuery, backend: Backend) -> object:
    return await backend.read_ledger(query)


async def costs_of(session_id: str, backend: Backend) -> object:
    return await backend.read_entry_costs(session_id)


def _questions(session_id: str, entry_id: str) -> dict[str, Callable[[Backend], Awaitable[object]]]:
    return {
        "entry": lambda backend: backend.get_entry(session_id, entry_id),
        "path to": lambda backend: path_of(backend, session_id, entry_id),
        "usage since": lambda backend: backend.read_usage(session_id, entry_id),
        "usage to": lambda backend: backend.read_usage(session_id, None, leaf=entry_id),
    }


async def told_of_store(backend: Backend) -> object:
    info = await backend.info()
    return info.sessions, info.entries, info.ledger_rows
