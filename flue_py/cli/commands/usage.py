"""The usage command."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import click

from flue_py.cli.choosing import ENTRY_NAME, SESSION_NAME, scope_option
from flue_py.cli.filters import SessionChoice, choice_options, chosen_sessions, moment
from flue_py.cli.output import Answer
from flue_py.cli.running import command
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject
from flue_py.core.ledger import BRANCH_STATES, DIMENSIONS, BranchState, Dimension
from flue_py.core.sessions import STORED, LeafChoice, SessionInfo
from flue_py.errors import InvalidArgument, SessionNotFound
from flue_py.render.bill import bill_lines
from flue_py.render.lines import Line
from flue_py.render.rows import usage_row
from flue_py.render.views import usage_lines
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

_day = click.DateTime(["%Y-%m-%d"])

RECENT_DAYS = 30
"""The default number of days that the view of the whole store goes back."""


@frozen
class _Days:
    """The days, first and last included, that a bill is of; None is without end. The heading says so to people."""

    first: date | None = None
    last: date | None = None
    heading: str | None = None

    def to_json(self) -> JsonObject:
        return {
            "firstDay": None if self.first is None else self.first.isoformat(),
            "lastDay": None if self.last is None else self.last.isoformat(),
        }


def _days_shown(
    session: str | None, first: datetime | None, last: datetime | None, days: int | None, *, always: bool
) -> _Days:
    """Return the days that were asked for. Raises `InvalidArgument` for two answers to one question."""
    if sum((first is not None or last is not None, days is not None, always)) > 1:
        raise InvalidArgument("--days, --all and --first-day with --last-day exclude each other; give one of them")
    if first is not None or last is not None:
        return _Days(None if first is None else first.date(), None if last is None else last.date())
    if always or (session is not None and days is None):
        return _Days()
    count = RECENT_DAYS if days is None else days
    today = datetime.now(UTC).date()
    start = today - timedelta(days=min(count - 1, today.toordinal() - 1))
    more = "; --all shows what was before" if days is None else ""
    span = "today" if count == 1 else f"the last {count:,} days"
    return _Days(start, today, f"{span}, {start} to {today} (UTC){more}")


def _check(
    session: str | None,
    program: str | None,
    git_branch: str | None,
    since: str | None,
    until: str | None,
    newest: int | None,
    leaf: str | None,
    path: bool,
    first_day: datetime | None,
    last_day: datetime | None,
    days: int | None,
    always: bool,
    **_: object,
) -> None:
    if session is None and (path or leaf is not None):
        raise InvalidArgument("--path and --leaf are of a session; name it")
    if session is not None and (until or newest or program or git_branch):
        raise InvalidArgument("--program, --git-branch, --until and --newest choose sessions; leave out SESSION")
    if session is None:
        first_day, last_day = _days_between(since, until, first_day, last_day)
    _days_shown(session, first_day, last_day, days, always=always)


def _days_between(
    since: str | None, until: str | None, first_day: datetime | None, last_day: datetime | None
) -> tuple[datetime | None, datetime | None]:
    """Return the first and the last day of --since and --until, which name days as --first-day and --last-day do."""
    if (since and first_day) or (until and last_day):
        raise InvalidArgument("--since and --first-day, or --until and --last-day, are the same; give one of them")
    return moment(since, "--since") or first_day, moment(until, "--until") or last_day


@command(check=_check, bar="reading")
@click.argument("session", type=SESSION_NAME, required=False)
@click.option("--leaf", metavar="ENTRY", type=ENTRY_NAME, help="Read at this entry instead of the stored leaf.")
@click.option(
    "--by",
    "group_by",
    type=click.Choice(DIMENSIONS),
    multiple=True,
    help="Group the calls by this; may be given several times.",
)
@click.option("--path", is_flag=True, help="Calls for the entries on the path, whichever session paid.")
@click.option("--tree", is_flag=True, help="Calls of all sessions of the same tree.")
@click.option("--tasks", is_flag=True, help="Include the task sessions, and theirs.")
@scope_option
@click.option("--scope-prefix", help="Only calls of scopes that begin with this.")
@click.option("--provider", help="Only calls of this provider.")
@choice_options
@click.option("--agent", help="Only calls of this agent, or of the program that a session was imported from.")
@click.option("--purpose", help="Only calls for this purpose: turn, compaction, branch_summary ...")
@click.option("--outcome", help="Only calls with this outcome: failed, aborted ...")
@click.option("--branch", type=click.Choice(BRANCH_STATES), help="Only calls whose entry is there.")
@click.option("--first-day", type=_day, metavar="DAY", help="Only calls of this day (YYYY-MM-DD, in UTC) and later.")
@click.option("--last-day", type=_day, metavar="DAY", help="Only calls of this day and earlier.")
@click.option("--days", type=click.IntRange(min=1, max=100_000), help="Only calls of the last N days, today included.")
@click.option("--all", "always", is_flag=True, help="All calls, of any day.")
async def usage(
    store: Store,
    session: str | None,
    leaf: str | None,
    group_by: tuple[Dimension, ...],
    path: bool,
    tree: bool,
    tasks: bool,
    scope_prefix: str | None,
    provider: str | None,
    program: str | None,
    project: str | None,
    model: str | None,
    git_branch: str | None,
    since: str | None,
    until: str | None,
    newest: int | None,
    agent: str | None,
    purpose: str | None,
    outcome: str | None,
    branch: BranchState | None,
    first_day: datetime | None,
    last_day: datetime | None,
    days: int | None,
    always: bool,
) -> Answer:
    """Show the tokens and the exact cost of the path of SESSION, or of all calls.

    With SESSION, --since is an entry of it; --since and --leaf show a part of the path. With any other option, or
    without SESSION, the numbers come from the ledger, which keeps every paid call. Without SESSION they are of the last
    30 days, by day, unless other days or --by are given. Days are in UTC; a week is named by its Monday. A project is
    the folder that a session worked in at its first paid call; an agent is the one that a message names, else the
    program that a session was imported from. "-" means unknown.

    With --since or --leaf, the ledger's numbers are for the entries of that part of the path. The calls of a
    deleted session are found by its whole id. --branch: active and abandoned are calls whose entry is on the active
    path of a session, or on that of none; gone are those of deleted entries; alone are those that never had one.

    With --json, of the path: an object: input, output, cacheRead, cacheWrite, totalTokens (integers, null if no
    call reported any), cost (total: what the ledger knows of the calls, or what the entries report if that is more,
    because another session paid; input, output, cacheRead, cacheWrite as reported; decimal strings, null if nobody
    knows), calls, unpricedCalls, unknownCalls, paidTokens (the ledger's, branch summaries included), sinceId,
    leafId, onPath. Of the ledger: total, rows and onPath; a row has its groups, calls, unpricedCalls, unknownCalls,
    input, output, cacheRead, cacheWrite5m, cacheWrite1h, reasoning, totalTokens (each null if none of its calls
    reported any), costPicodollars and costUsd (a decimal string; both null if no cost is known).
    """
    filters = (
        store.scope,
        scope_prefix,
        provider,
        project,
        agent,
        model,
        purpose,
        outcome,
        branch,
        first_day,
        last_day,
        days,
        program,
        git_branch,
        until,
        newest,
    )
    asks_ledger = group_by or path or tree or tasks or always or any(value is not None for value in filters)
    found: Session | None = None
    after: str | None = None
    end: LeafChoice = STORED
    if session is not None:
        try:
            found = await store.find_session(session)
        except SessionNotFound:
            # What a deleted session paid is asked for by its whole id.
            if not asks_ledger or path or since is not None or leaf is not None:
                raise
    if found is not None:
        after = None if since is None else await found.resolve_entry_id(since)
        end = STORED if leaf is None else await found.resolve_entry_id(leaf)
        if not asks_ledger:
            window = await found.aggregate_usage_since(after, leaf=end, told=True)
            return Answer(lambda: usage_lines(window), lambda: usage_row(window))
    if session is None:
        first_day, last_day = _days_between(since, until, first_day, last_day)
    shown = _days_shown(session, first_day, last_day, days, always=always)
    payers: list[SessionInfo] | None = None
    choice = SessionChoice(program, project, model, git_branch, newest=newest)
    if choice.reads_sessions:
        payers = await chosen_sessions(store, choice)
    groups: tuple[Dimension, ...] = group_by or (("day",) if session is None else ())
    report = await store.usage(
        payers if payers is not None else session if found is None else found.id,
        tree=tree,
        tasks=tasks,
        scope_prefix=scope_prefix,
        provider=provider,
        model=model,
        agent=agent,
        project=project,
        purpose=purpose,
        outcome=outcome,
        branch=branch,
        first_day=shown.first,
        last_day=shown.last,
        group_by=groups,
        path=path,
        since=after,
        leaf=end,
    )
    heading: list[Line] = [] if shown.heading is None else [((shown.heading, "dim"),)]
    return Answer(lambda: [*heading, *bill_lines(report, groups)], lambda: {**report.to_json(), **shown.to_json()})
