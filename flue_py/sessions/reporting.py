"""What a session is called, and reports on it and its task sessions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from flue_py import context, render
from flue_py.core.entries import Entry, from_microseconds
from flue_py.core.jsontext import JsonObject
from flue_py.core.kinds import COMPACTION, SHOWN_KINDS
from flue_py.core.ledger import LedgerQuery, UsageRow
from flue_py.core.projection import ContextEntry
from flue_py.core.sessions import SessionInfo
from flue_py.core.usage import MAX_AMOUNT
from flue_py.errors import InvalidArgument, SessionNotFound, shown
from flue_py.lazy import lazy_module
from flue_py.sessions.arguments import checked_flag, checked_moment
from flue_py.sessions.requesting import Requesting
from flue_py.store.backend import Backend

if TYPE_CHECKING:
    from flue_py.compaction import loss
    from flue_py.context import explained
    from flue_py.context.settings import ContextSettings
    from flue_py.render.report_data import ReportedSession, Thresholds
else:
    explained = lazy_module("flue_py.context.explained")
    loss = lazy_module("flue_py.compaction.loss")

_MOST_COMPACTIONS = 20
"""Of so many of the newest compactions a report says what they lost: of each, that takes as long as its path."""
_MOST_LOST = 20


class Reporting(Requesting):
    """The name and the reports of a `Session`."""

    __slots__ = ()

    async def name(self) -> str:
        """Return what the session is known by in every list, tree, report and transcript, on one line.

        That is its title, given or else made, else its key, else how it begins; of a fork that has none of the first
        three, also what it was forked from: ``(fork of …)``. "(empty)" where there is nothing to tell. O(1).
        """
        async with self._turn:
            info = await self._stored_info()
            return render.views.session_name(info, await source_of(self._backend, info))

    async def html_report(
        self,
        *,
        warn_at: int = 0,
        cutover_at: int = 0,
        made_at: datetime | None = None,
        sizes: bool = True,
        settings: ContextSettings | Mapping[str, object] | None = None,
        agent: str | None = None,
        target: str | None = None,
    ) -> str:
        """Return the session and its task sessions as one HTML file, which asks no network for anything.

        It shows the tree with every branch, what the model sees at each entry against what is stored, how the context
        of each agent grew, what compactions stand for and lost (of each session, the newest 20), and what the session
        and its tasks have paid, by model. Tasks come last active first.
        ``warn_at`` and ``cutover_at`` draw lines at so many input tokens; 0 draws none. ``sizes=False`` saves the time
        to count tokens. With ``settings``, ``agent`` or ``target`` it shows beside the tree what `request` sends then:
        what each step did, and which entries are out, cut, replaced or repaired. What is stored and the arguments
        decide every byte: the time of making is on the page only as ``made_at`` (UTC). O(entries + calls of the trees),
        and O(path) for each compaction. Raises `InvalidArgument`.
        """
        thresholds = checked_thresholds(warn_at, cutover_at)
        checked_flag(sizes, "sizes")
        made = None if made_at is None else from_microseconds(checked_moment(made_at))
        first, *tasks = await read_reported(self._backend, self._ref, sizes=sizes, lost=True)
        if settings is not None or agent is not None or target is not None:
            items = await self.build_context_entries(leaf=first.info.leaf_id)
            sent = await self.request(target, leaf=first.info.leaf_id, agent=agent, settings=settings)
            first = replace(first, sent=explained.explained_row(items, sent))
        found = [first, *sorted(tasks, key=lambda task: task.info.active_us, reverse=True)]
        bill = await read_bill(self._backend, self._ref)
        return render.report.html_report(found, thresholds, bill=bill, made_at=made)

    async def context_snapshots(self, *, warn_at: int = 0, cutover_at: int = 0) -> str:
        """Return what the chart of `html_report` shows, as JSON lines: one a turn, one a compaction.

        Session by session, tasks after what started them, each in the order of its active path. ``warn_at`` and
        ``cutover_at`` are repeated in each line, and left out where 0. O(entries). Raises `InvalidArgument`.
        """
        thresholds = checked_thresholds(warn_at, cutover_at)
        return render.report.context_snapshots(await read_reported(self._backend, self._ref, sizes=False), thresholds)


async def read_reported(
    backend: Backend, session_id: str, *, sizes: bool = True, lost: bool = False
) -> list[ReportedSession]:
    """Return a session and the closure of its task links, breadth first. Five reads a session.

    With ``lost``, what its newest compactions lost is worked out.

    A task that is missing is left out, and one that is reached twice is there once. Raises `SessionNotFound` if
    the session itself is missing.
    """
    found: list[ReportedSession] = []
    reached = {session_id}
    waiting: deque[tuple[str, str | None, str | None]] = deque([(session_id, None, None)])
    while waiting:
        here, task_id, parent_id = waiting.popleft()
        try:
            found.append(await _read_one(backend, here, task_id, parent_id, sizes=sizes, lost=lost))
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


def _losses(entries: Sequence[Entry]) -> dict[str, JsonObject]:
    """Return what the newest compactions of a tree lost, as the report takes it."""
    if all(entry.kind != COMPACTION for entry in entries):
        return {}
    reports = loss.losses_in(entries, most=_MOST_COMPACTIONS, limit=_MOST_LOST)
    return {entry_id: {**report.json, "entryIds": [*report.entry_ids]} for entry_id, report in reports.items()}


async def _read_one(
    backend: Backend, session_id: str, task_id: str | None, parent_id: str | None, *, sizes: bool, lost: bool
) -> ReportedSession:
    # The row first: entries that are appended meanwhile are in the tree, and the leaf is one that the tree has.
    info = await backend.get_session(session_id)
    if info is None:
        raise SessionNotFound(session_id)
    entries = await backend.read_tree(session_id)
    marks = await backend.read_marks(session_id)
    costs = await backend.read_entry_costs(session_id)
    return render.report_data.ReportedSession(
        info,
        entries,
        {mark.entry_id: mark.value or "" for mark in marks if mark.kind == "label"},
        task_id,
        parent_id,
        entry_sizes(entries) if sizes else {},
        costs,
        await source_of(backend, info),
        await backend.waiting.call(lambda: _losses(entries)) if lost else {},
    )


async def read_bill(backend: Backend, session_id: str) -> tuple[UsageRow, ...]:
    """Return what a session and its tasks have paid, by provider, model and purpose; also for tasks that are gone."""
    query = LedgerQuery(session_id, tasks=True, group_by=("provider", "model", "purpose"))
    return (await backend.read_ledger(query)).rows


async def source_of(backend: Backend, info: SessionInfo) -> SessionInfo | None:
    """Return the session that a fork without a name of its own is known by; None for others, and where it is gone."""
    source = info.forked_from_session if render.views.needs_source(info) else None
    return None if source is None else await backend.get_session(source)


def checked_thresholds(warn_at: int, cutover_at: int) -> Thresholds:
    """Return the two as one value. Raises `InvalidArgument` if one is not a number of tokens."""
    for name, value in (("warn_at", warn_at), ("cutover_at", cutover_at)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_AMOUNT:
            raise InvalidArgument(f"{name}: {shown(value)} is not a number of tokens; use 0 for no line")
    return render.report_data.Thresholds(warn_at, cutover_at)


def entry_sizes(entries: Iterable[Entry]) -> dict[str, int]:
    """Return how many tokens each entry takes in a context, by id; entries that never are in one are left out."""
    return {
        entry.id: context.tokens.count_message_tokens(ContextEntry(entry).data).tokens
        for entry in entries
        if entry.kind in SHOWN_KINDS
    }
