"""Collecting what a report shows: a session, and all its task sessions, with a few reads each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from flue_py.core.entries import Entry
from flue_py.core.kinds import SHOWN_KINDS
from flue_py.core.ledger import LedgerQuery, UsageRow
from flue_py.core.projection import ContextEntry
from flue_py.core.usage import MAX_AMOUNT
from flue_py.errors import InvalidArgument, SessionNotFound, shown
from flue_py.render.report_data import ReportedSession, Thresholds
from flue_py.sessions.listing import source_of
from flue_py.store.backend import Backend


async def read_reported(backend: Backend, session_id: str, *, sizes: bool = True) -> list[ReportedSession]:
    """Return a session and the closure of its task links, breadth first. Five reads a session.

    A task that is missing is left out, and one that is reached twice is there once. Raises `SessionNotFound` where
    the session itself is missing.
    """
    found: list[ReportedSession] = []
    reached = {session_id}
    waiting: deque[tuple[str, str | None, str | None]] = deque([(session_id, None, None)])
    while waiting:
        here, task_id, parent_id = waiting.popleft()
        try:
            found.append(await _read_one(backend, here, task_id, parent_id, sizes=sizes))
            links = await backend.task_links(here)
        except SessionNotFound:
            if not found:
                raise
            continue
        for link in links:
            if link.child_id not in reached:
                reached.add(link.child_id)
                waiting.append((link.child_id, link.task_id, here))
    return found


async def _read_one(
    backend: Backend, session_id: str, task_id: str | None, parent_id: str | None, *, sizes: bool
) -> ReportedSession:
    # The row first: what is appended meanwhile is in the tree, while the leaf is one that the tree has.
    info = await backend.get_session(session_id)
    if info is None:
        raise SessionNotFound(session_id)
    entries = await backend.read_tree(session_id)
    marks = await backend.read_marks(session_id)
    costs = await backend.read_entry_costs(session_id)
    return ReportedSession(
        info,
        entries,
        {mark.entry_id: mark.value or "" for mark in marks if mark.kind == "label"},
        task_id,
        parent_id,
        entry_sizes(entries) if sizes else {},
        costs,
        await source_of(backend, info),
    )


async def read_bill(backend: Backend, session_id: str) -> tuple[UsageRow, ...]:
    """Return what a session and its tasks have paid, by provider, model and purpose; also for tasks that are gone."""
    query = LedgerQuery(session_id, tasks=True, group_by=("provider", "model", "purpose"))
    return (await backend.read_ledger(query)).rows


def checked_thresholds(warn_at: int, cutover_at: int) -> Thresholds:
    """Return the two as one value. Raises `InvalidArgument` for what is no count of tokens."""
    for name, value in (("warn_at", warn_at), ("cutover_at", cutover_at)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_AMOUNT:
            raise InvalidArgument(f"{name}: {shown(value)} is not a number of tokens; use 0 for no line")
    return Thresholds(warn_at, cutover_at)


def entry_sizes(entries: Iterable[Entry]) -> dict[str, int]:
    """Return how many tokens each entry takes in a context, by id; entries that never are in one are left out."""
    from flue_py.context.tokens import count_message_tokens  # noqa: PLC0415 - brings the tokenizer

    return {
        entry.id: count_message_tokens(ContextEntry(entry).data).tokens
        for entry in entries
        if entry.kind in SHOWN_KINDS
    }
