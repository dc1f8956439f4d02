"""What was spent, from the ledger of the model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, date, datetime
from typing import TypeAlias

from msgspec.structs import replace

from flue_py.core.context import NO_CALLS, EntryCost
from flue_py.core.ledger import CallRow, Dimension, LedgerQuery, UsageReport, local_day, period_of, summed, usage_report
from flue_py.core.sessions import Stored, all_meant, is_meant
from flue_py.errors import SessionNotFound
from tests.model.reads import ModelReads

_Booked: TypeAlias = tuple[int, int, str | None]
"""What a call was for: a tree, the session that paid and added the entry, and the entry."""


def _fits(query: LedgerQuery, call: CallRow, project: str | None) -> bool:
    """Return whether a call of a session that worked in a project has the values, and the time, that are asked for."""
    folder, first, last = query.folders or (project, "", "")
    return (
        all(getattr(call, name) == value for name, value in query.matches.items())
        and call.scope.startswith(query.scope_prefix or "")
        and (query.from_us is None or call.at >= query.from_us)
        and (query.before_us is None or call.at < query.before_us)
        and (project == folder or (project is not None and first <= project < last))
    )


def _block_starts(times: Iterable[int]) -> dict[int, int]:
    """Return the hour with which the block of each time begins, as the number of hours since 1970 UTC."""
    starts: dict[int, int] = {}
    start = -(10**9)
    for at in sorted(times):
        if at >= (start + 5) * 3_600_000_000:
            start = at // 3_600_000_000
        starts[at] = start
    return starts


class ModelLedger(ModelReads):
    """The questions about paid calls. Nothing here changes what is stored."""

    async def read_ledger(self, query: LedgerQuery) -> UsageReport:
        payers = None
        on_path: set[_Booked] | None = None
        if query.session_id is not None and query.on_path:
            on_path = self._stretch(query.session_id, query)
            if on_path is None:
                return usage_report([], query.group_by, on_path=False)
        elif query.session_id is not None:
            payers = self._payers_meant(query.session_id, query)
        elif query.session_ids is not None:
            payers = self._payers_named(query.session_ids)
        active = self._active()
        # The calls before the first day decide where blocks begin.
        whole = replace(query, from_us=None) if "block" in query.group_by else query
        meant = [
            call
            for call in self._ledger.values()
            if _fits(whole, call, self._payers[call.session_key].project)
            and (payers is None or call.session_key in payers)
            and (on_path is None or self._booked(call) in on_path)
            and (query.branch is None or self._branch(call, active) == query.branch)
        ]
        starts = _block_starts(call.at for call in meant)
        calls: list[tuple[CallRow, Mapping[str, str | date | None]]] = [
            (call, {name: self._group_value(name, call, active, query, starts) for name in query.group_by})
            for call in meant
            if query.from_us is None or call.at >= query.from_us
        ]
        return usage_report(summed(calls), query.group_by)

    async def read_entry_costs(self, session_id: str) -> dict[str, EntryCost]:
        session = self._session(session_id)
        seen = session.reach() - session.retracted
        found: dict[str, EntryCost] = {}
        for call in self._ledger.values():
            if call.entry_id not in seen or self._payers[call.session_key].tree_id != session.tree_id:
                continue
            if session.tree[call.entry_id].creator == call.session_key:
                cost = EntryCost(1, int(call.cost is None), call.cost or 0)
                found[call.entry_id] = found.get(call.entry_id, NO_CALLS).plus(cost)
        return found

    def _booked(self, call: CallRow) -> _Booked:
        return self._payers[call.session_key].tree_id, call.session_key, call.entry_id

    def _stretch(self, session_id: str, query: LedgerQuery) -> set[_Booked] | None:
        """Return the entries of a stretch of path, as calls are booked on them; None where it begins off the path."""
        session = self._session(session_id)
        leaf = session.info.leaf_id if isinstance(query.leaf, Stored) else query.leaf
        session.check_sees(leaf)
        path = [entry.id for entry in session.path(leaf)]
        if query.since is not None:
            if query.since not in path or not session.sees(query.since):
                return None
            path = path[path.index(query.since) + 1 :]
        return {(session.tree_id, session.tree[entry_id].creator, entry_id) for entry_id in path}

    def _payers_meant(self, session_id: str, query: LedgerQuery) -> set[int]:
        now = self._sessions.get(session_id)
        is_other = now is not None and not is_meant(session_id, now.number)
        # The tasks of a session whose id another one has now went with it: what links there are is that one's.
        ids = {session_id, *(self._task_ids(session_id) if query.tasks and not is_other else ())}
        payers = self._payers_named(ids)
        if (now is None or is_other) and not payers:
            raise SessionNotFound(session_id)
        if not query.tree:
            return payers
        trees = {self._payers[number].tree_id for number in payers}
        there = [] if is_other else [self._sessions[each] for each in ids if each in self._sessions]
        trees.update(session.tree_id for session in there)
        return {number for number, note in self._payers.items() if note.tree_id in trees}

    def _payers_named(self, ids: Collection[str]) -> set[int]:
        are_meant = all_meant(ids)
        return {
            number
            for number, note in self._payers.items()
            if note.session_id in ids and are_meant(note.session_id, number)
        }

    def _active(self) -> set[_Booked]:
        """Return every entry that is on the active path of a session, as calls are booked on it."""
        return {
            (session.tree_id, session.tree[entry.id].creator, entry.id)
            for session in self._sessions.values()
            for entry in session.path(session.info.leaf_id)
        }

    def _branch(self, call: CallRow, active: set[_Booked]) -> str:
        if call.entry_id is None:
            return "alone"
        tree_id, payer, entry_id = self._booked(call)
        if (tree_id, payer, entry_id) in active:
            return "active"
        trees = (session.tree for session in self._sessions.values() if session.tree_id == tree_id)
        row = next(trees, {}).get(call.entry_id)
        return "abandoned" if row is not None and row.creator == payer else "gone"

    def _group_value(
        self, name: Dimension, call: CallRow, active: set[_Booked], query: LedgerQuery, starts: Mapping[int, int]
    ) -> str | date | None:
        if name == "session":
            return self._payers[call.session_key].session_id
        if name == "project":
            return self._payers[call.session_key].project
        if name == "branch":
            return self._branch(call, active)
        if name == "block":
            start = datetime.fromtimestamp(starts[call.at] * 3600, query.zone or UTC)
            return start.isoformat(timespec="minutes")
        if name in ("day", "week", "month"):
            return period_of(local_day(call.at, query.zone), name)
        value: str | None = getattr(call, name)
        return value
