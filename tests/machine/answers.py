"""What a store and the model tell, made comparable: the answer of a call, and all that can be read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from operator import itemgetter

from msgspec.structs import asdict, replace

from flue_py.core.entries import Entry
from flue_py.core.json import decode_object
from flue_py.core.ledger import DIMENSIONS, LedgerQuery
from flue_py.core.operations import Committed
from flue_py.core.sessions import Deletion, LogLine, SessionInfo
from flue_py.db.backend import Backend
from flue_py.errors import FlueError, LeafConflict, RevisionConflict
from tests.machine.listing import check_conditions
from tests.samples import entries_of, ids_of, path_of, projected, snapshot

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
    if isinstance(result, Committed):
        return ("committed", result.left, result.replayed, [_comparable_answer(each) for each in result.outcomes])
    return _comparable_answer(result)


def _comparable_answer(result: object) -> object:
    """Return a result without what stores may differ in."""
    if isinstance(result, SessionInfo):
        return comparable(result)
    if isinstance(result, LogLine):
        return replace(result, at_us=None)
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
    """Return all that a store tells about a session, and about some entries from its point of view."""
    if await backend.get_session(session_id) is None:
        return {"path": await answer_of(lambda backend: backend.read_path(session_id), backend)}
    shown = await snapshot(backend, session_id)
    told = asdict(shown)
    told["info"] = comparable(shown.info)
    told["log"] = [replace(line, at_us=None) for line in shown.log]
    told["changes"] = [replace(change, at_us=None) for change in shown.changes]
    for entry_id in probes:
        for what, call in _questions(session_id, shown.info.leaf_id, entry_id).items():
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


def _questions(session_id: str, leaf: str | None, entry_id: str) -> dict[str, Callable[[Backend], Awaitable[object]]]:
    return {
        "entry": lambda backend: backend.get_entry(session_id, entry_id),
        "anywhere": lambda backend: backend.find_entry(entry_id),
        "entries": lambda backend: backend.get_entries(session_id, [entry_id, GHOSTS[0], leaf or entry_id, entry_id]),
        "children": lambda backend: backend.children(session_id, entry_id),
        "entries after": lambda backend: backend.read_entries(session_id, after=entry_id, limit=3),
        "messages before": lambda backend: _messages_before(backend, session_id, entry_id),
        "ids like": lambda backend: backend.match_entry_ids(session_id, entry_id[:4], 3),
        "path since": lambda backend: _ids_since(backend, session_id, entry_id),
        "usage since": lambda backend: backend.read_usage(session_id, entry_id),
        "path to": lambda backend: path_of(backend, session_id, entry_id),
        "usage to": lambda backend: backend.read_usage(session_id, None, leaf=entry_id),
        "context at": lambda backend: _context_ids(backend, session_id, entry_id),
        "settings at": lambda backend: backend.read_settings(session_id, leaf=entry_id),
        "end of path": lambda backend: _end_ids(backend, session_id, entry_id, 2),
        "end of context": lambda backend: _context_end(backend, session_id, entry_id, 2),
        "turns to": lambda backend: backend.read_turns(session_id, leaf=entry_id),
        "common": lambda backend: backend.common_ancestor(session_id, session_id, other_leaf=entry_id),
        "ancestor": lambda backend: backend.is_ancestor(session_id, entry_id, leaf or entry_id),
    }


async def _ids_since(backend: Backend, session_id: str, since: str) -> list[str]:
    return ids_of(entries_of(await backend.read_path_since(session_id, since)))


async def _context_ids(backend: Backend, session_id: str, leaf: str) -> list[str]:
    return [item.entry_id for item in projected(await backend.read_context(session_id, leaf=leaf))]


async def _messages_before(backend: Backend, session_id: str, after: str) -> list[Entry]:
    return await backend.read_entries(session_id, kind="message", after=after, newest_first=True, limit=3)


async def _end_ids(backend: Backend, session_id: str, leaf: str, limit: int) -> list[str]:
    return ids_of(entries_of(await backend.read_path_end(session_id, limit, leaf=leaf)))


async def _context_end(backend: Backend, session_id: str, leaf: str, limit: int) -> list[object]:
    return [(item.entry_id, item.data) for item in (await backend.read_context_end(session_id, limit, leaf=leaf)).items]


async def told_of_store(backend: Backend, *, ties: bool) -> object:
    info = await backend.info()
    listed: list[SessionInfo] = []
    cursor = None
    while True:
        page = await backend.list_sessions(scope=None, kind=None, limit=5, cursor=cursor)
        listed += page.sessions
        cursor = page.next_cursor
        if cursor is None:
            await check_conditions(backend, listed)
            if not ties:
                listed.sort(key=lambda session: (-session.updated_us, session.id))
            return info.sessions, info.entries, info.ledger_rows, [session.id for session in listed]
