"""What was paid: the calls of a session, and what the ledger of a store has of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from os.path import normpath
from typing import cast

from flue_py.core.calls import CallDifference, PaidCall, checked_tag, ledger_name, program_of, read_steps
from flue_py.core.costs import EntryCost
from flue_py.core.entries import NewEntry
from flue_py.core.frozen import changed
from flue_py.core.imported import check_imported_call, checked_imported_entries
from flue_py.core.jsontext import JsonValue, encode_json
from flue_py.core.ledger import (
    BRANCH_STATES,
    DAY_US,
    DIMENSIONS,
    BranchState,
    CallId,
    Dimension,
    LedgerQuery,
    Recorded,
    Repricing,
    UsageReport,
    calls_of,
    differences,
    number_of,
)
from flue_py.core.rows import CallRow
from flue_py.core.sessions import STORED, LeafChoice, Stored, check_label
from flue_py.core.told import told_by
from flue_py.core.usage import UsageWindow
from flue_py.core.usage_shapes import read_reported
from flue_py.errors import InvalidArgument, InvalidEntry, shown
from flue_py.prices.book import CallPricer
from flue_py.sessions.arguments import (
    HasId,
    checked_choice,
    checked_flag,
    checked_leaf,
    checked_moment,
    checked_place,
    checked_session,
    checked_text,
)
from flue_py.sessions.handle import Handle
from flue_py.sessions.repricing import reprice
from flue_py.sessions.scoping import Scoped

_CALLS_AT_ONCE = 500


class Usage(Handle):
    """The paid calls of a `Session`."""

    __slots__ = ()

    async def record_call(
        self,
        usage: Mapping[str, JsonValue],
        *,
        provider: str = "",
        model: str = "",
        call_id: str | None = None,
        purpose: str = "turn",
        outcome: str | None = None,
        agent: str | None = None,
        at: datetime | None = None,
    ) -> Recorded:
        """Write a paid call that made no entry into the ledger: one that failed or was aborted, a title, a probe.

        ``usage`` is what it used, as messages report it. ``purpose`` (turn, compaction, branch_summary, title, task
        ...) and ``outcome`` (failed, aborted ...) are names of your own, and so is ``agent``, who made it; ``at`` is
        when it was made, by default now.
        With a ``call_id`` a second report of the same call changes nothing; without one each report is another call.
        Where steps of it name other models (``iterations``), each of these is a call of its own, all are written or
        none, and the cost that is returned is that of all. Raises `InvalidEntry` naming the field, and `CallConflict`
        for a call that was reported with other numbers. O(1).
        """
        call, *steps = map(
            self._pricer.price_call, checked_calls(usage, provider, model, call_id, purpose, outcome, agent, at)
        )
        async with self._turn:
            return await self._backend.record_call(self._ref, call, steps)

    async def import_call(self, call: PaidCall) -> Recorded:
        """Write a paid call that a file counts without an entry for it, as `record_call` does for one of your own.

        What the call ``replaces`` of this session's is taken out. Raises `InvalidEntry`, and `CallConflict` for a call
        that was reported with other numbers. O(1).
        """
        check_imported_call(call)
        priced = self._pricer.price_call(replace(call, agent=call.agent or program_of(self.metadata)))
        async with self._turn:
            return await self._backend.record_call(self._ref, priced)

    async def aggregate_usage_since(
        self, before: str | None, *, leaf: LeafChoice = STORED, told: bool = False
    ) -> UsageWindow:
        """Return what the entries after ``before`` up to the leaf used; None is the whole path.

        Where ``before`` is not on the path, ``on_path`` is False and the usage zero, never that of the whole
        history. Assistant messages and compactions count. O(forks on the path), whatever the window. With ``told``
        the window also knows which kinds of tokens were reported (`UsageWindow.known`): O(calls of the tree), and
        O(window) where another session paid for what the window has.
        """
        checked_place(before, "before")
        checked_leaf(leaf)
        checked_flag(told, "told")
        async with self._turn:
            window = await self._backend.read_usage(self._ref, before, leaf=leaf)
            return replace(window, told=await self._told(window)) if told else window

    async def _told(self, window: UsageWindow) -> frozenset[str]:
        """Return which numbers of tokens of a window are 0 because somebody reported it, or nothing was called."""
        found: frozenset[str] = frozenset()
        if not window.on_path:
            return told_by(())
        is_whole = False
        if window.calls:
            asked = LedgerQuery(self._ref, on_path=True, leaf=window.leaf, since=window.since)
            paid = (await self._backend.read_ledger(asked)).total.known
            found = frozenset(name for name, count in paid.items() if count is not None)
            is_whole = all((paid[name] or 0) >= (count or 0) for name, count in window.known.items())
        if is_whole or None not in window.usage.known(found).values():
            return found
        # What another session paid for, its ledger has elsewhere: the entries say it themselves.
        read = await self._backend.read_path_since(self._ref, window.since, leaf=window.leaf)
        return found | told_by(read.entries or ())

    async def entry_costs(self) -> dict[str, EntryCost]:
        """Return what the calls of each entry the session sees cost, by entry id, as the ledger knows it.

        That is what was reported, or what was priced at the time of the call: every branch, retries and compactions,
        whichever session paid. Left out are entries that paid for nothing, copies, and entries whose call another
        session reported first. O(calls of the tree).
        """
        async with self._turn:
            return await self._backend.read_entry_costs(self._ref)


class StoreUsage(Scoped):
    """What a `Store` tells of its ledger."""

    __slots__ = ()
    _pricer: CallPricer

    async def usage(
        self,
        session: HasId | str | Sequence[HasId | str] | None = None,
        *,
        tree: bool = False,
        tasks: bool = False,
        path: bool = False,
        leaf: LeafChoice = STORED,
        since: str | None = None,
        scope: str | None = None,
        scope_prefix: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        purpose: str | None = None,
        outcome: str | None = None,
        agent: str | None = None,
        project: str | None = None,
        branch: BranchState | None = None,
        first_day: date | None = None,
        last_day: date | None = None,
        group_by: Sequence[Dimension] = (),
    ) -> UsageReport:
        """Return what was paid, from the ledger: the total, and a row for each group, in the order of the groups.

        Without a session: of the whole store. With several: the calls they paid for; an unknown id adds
        nothing. With one: the calls it paid for, also after it was deleted; ``tasks`` adds the task sessions it links
        to, and theirs, ``tree`` every session of the same tree. A handle means its own session, an id as text every
        one that ever had it. ``path``, or ``leaf``, or ``since`` take the calls of the entries on its path instead,
        also if another session paid: after ``since``, up to ``leaf``; if ``since`` is not on the path, the report
        is empty, and says so (``on_path``).

        ``scope``, ``provider``, ``model``, ``purpose``, ``outcome`` and ``agent`` take the calls of that value,
        ``scope_prefix`` those of all scopes that begin so, ``project`` those of sessions that worked in this folder or
        below it, ``first_day`` and ``last_day`` those of the days from one to the other (in UTC, both included).
        ``branch`` takes those whose entry is on the active path of a session (``active``), on that of none
        (``abandoned``), deleted (``gone``), or that never had one (``alone``). ``group_by`` names any of session,
        scope, project, agent, provider, model, purpose, outcome, price_source, branch, day, week, month. A project is
        the folder of a session at its first paid call; an agent is what a message names, else the program that a
        session was imported from. None is unknown.

        Raises `SessionNotFound`, `EntryNotFound`, `InvalidArgument`. O(calls of the sessions meant), or O(ledger).
        """
        matches = {
            "scope": self._meant(scope),
            "provider": provider,
            "model": model,
            "purpose": purpose,
            "outcome": outcome,
        }
        query = checked_query(
            session,
            tree=tree,
            tasks=tasks,
            path=path,
            leaf=leaf,
            since=since,
            matches={**matches, "agent": agent},
            scope_prefix=scope_prefix,
            project=project,
            branch=branch,
            first_day=first_day,
            last_day=last_day,
            group_by=group_by,
        )
        return await self._backend.read_ledger(query)

    async def reprice(self, *, dry_run: bool) -> Repricing:
        """Give the calls of the ledger whose cost is unknown the cost of their day, by the prices of this store.

        A cost that was reported, or is known otherwise, is never changed; budgets are not, either. With ``dry_run``
        nothing is. Returns how many calls of which model get a cost, and which stay unknown, and why. Calls that were
        written meanwhile may be missing. Raises `InvalidArgument`. O(ledger + trees of the calls).
        """
        return await reprice(self._backend, self._pricer, dry_run=checked_flag(dry_run, "dry_run"))

    async def call_conflicts(
        self, entries: Sequence[NewEntry], *, scope: str | None = None
    ) -> tuple[CallDifference, ...]:
        """Return the paid calls of imported entries that the ledger has with other numbers, in their order.

        To be asked after an import: the ledger keeps the first report of a call. O(calls).
        """
        entries = checked_imported_entries(entries)
        place = self._place(scope)
        reported = calls_of(entries, place)
        found: dict[CallId, CallRow] = {}
        for start in range(0, len(reported), _CALLS_AT_ONCE):
            identities = [CallId(*call.identity[1:]) for call in reported[start : start + _CALLS_AT_ONCE]]
            known = await self._backend.find_calls(place, identities)
            found.update((CallId(*call.identity[1:]), call) for call in known)
        return tuple(
            CallDifference(call.provider, call.call_id, others)
            for call in reported
            if (first := found.get(CallId(*call.identity[1:]))) is not None and (others := differences(first, call))
        )


def checked_calls(
    usage: Mapping[str, JsonValue],
    provider: str,
    model: str,
    call_id: str | None,
    purpose: str,
    outcome: str | None,
    agent: str | None,
    at: datetime | None,
) -> tuple[PaidCall, ...]:
    """Return paid calls from what a caller says of one. Raises `InvalidArgument`, `InvalidEntry` naming the field."""
    if not isinstance(usage, Mapping):
        raise InvalidEntry(f"usage: should be an object, not {type(usage).__name__}")
    encode_json(dict(usage), "usage")
    for what, text in (("provider", provider), ("model", model), ("call_id", call_id)):
        if what != "call_id" and text is None:
            raise InvalidArgument(f"{what}: should be a string, not None; leave it out if it is unknown")
        check_label(text, what)
    check_label(agent, "agent")
    if call_id == "":
        raise InvalidArgument("call_id: must not be empty; leave it out if there is none")
    given: dict[str, JsonValue] = {"provider": provider, "model": model, "callId": call_id}
    if oddities := read_reported(usage).oddities:
        # No answer gets lost by refusing, and no entry would keep the numbers as they were reported.
        raise InvalidEntry(oddities[0])
    calls = read_steps({**usage, **{name: value for name, value in given.items() if value}}, "usage")
    about = {
        "purpose": checked_tag(purpose, "purpose"),
        "outcome": None if outcome is None else checked_tag(outcome, "outcome"),
        "at_us": None if at is None else checked_moment(at),
        "agent": ledger_name(agent) or None,
    }
    return tuple(changed(call, **about) for call in calls)


def checked_query(
    session: HasId | str | Sequence[HasId | str] | None,
    *,
    tree: bool,
    tasks: bool,
    path: bool,
    leaf: LeafChoice,
    since: str | None,
    matches: Mapping[str, str | None],
    scope_prefix: str | None,
    project: str | None,
    branch: BranchState | None,
    first_day: date | None,
    last_day: date | None,
    group_by: Sequence[Dimension],
) -> LedgerQuery:
    """Return a question to the ledger. Raises `InvalidArgument` for what makes none."""
    for what, flag in (("tree", tree), ("tasks", tasks), ("path", path)):
        checked_flag(flag, what)
    on_path = path or since is not None or not isinstance(checked_leaf(leaf), Stored)
    several = None if isinstance(session, str) or not isinstance(session, Sequence) else session
    single = None if several is not None else cast("HasId | str | None", session)
    if single is None and (tree or tasks or on_path):
        raise InvalidArgument("tree, tasks, path, leaf and since are of a session; name one")
    if on_path and (tree or tasks):
        raise InvalidArgument("a path is one session's own: leave out tree and tasks, or path, leaf and since")
    for what, text in {**matches, "project": project}.items():
        check_label(text, what)
    if branch is not None:
        checked_choice(branch, "branch", BRANCH_STATES)
    if isinstance(group_by, str) or not isinstance(group_by, Sequence):
        raise InvalidArgument(f"group_by: should be a sequence of names, not {shown(group_by)}")
    for name in group_by:
        checked_choice(name, "group_by", DIMENSIONS)
    first, last = _checked_day(first_day, "first_day"), _checked_day(last_day, "last_day")
    return LedgerQuery(
        None if single is None else checked_session(single),
        None if several is None else tuple(checked_session(each) for each in several),
        tree=tree,
        tasks=tasks,
        on_path=on_path,
        leaf=leaf,
        since=checked_place(since, "since"),
        **matches,
        scope_prefix=checked_text(scope_prefix, "scope_prefix"),
        project=None if project is None else normpath(project),
        branch=branch,
        from_us=None if first is None else first * DAY_US,
        before_us=None if last is None else (last + 1) * DAY_US,
        group_by=tuple(dict.fromkeys(group_by)),
    )


def _checked_day(day: date | None, what: str) -> int | None:
    """Return a day as its number, counted from 1 January 1970."""
    if day is None:
        return None
    if not isinstance(day, date) or isinstance(day, datetime):
        raise InvalidArgument(f"{what}: {shown(day)} is not a day; use a datetime.date (days are in UTC)")
    return number_of(day)
