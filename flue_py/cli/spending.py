"""The command that says what was used and paid: usage."""

from __future__ import annotations

from datetime import datetime

import click

from flue_py.cli.history import leaf_option
from flue_py.cli.output import json_option, print_json, print_lines
from flue_py.cli.place import Place
from flue_py.cli.running import find_session, leaf_of, run
from flue_py.core.ledger import BRANCH_STATES, DIMENSIONS, BranchState, Dimension, UsageReport
from flue_py.core.sessions import STORED
from flue_py.core.usage import UsageWindow
from flue_py.errors import InvalidArgument, SessionNotFound
from flue_py.render.bill import bill_lines
from flue_py.render.rows import usage_row
from flue_py.render.views import usage_lines
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

_day = click.DateTime(["%Y-%m-%d"])


@click.command()
@click.argument("session", required=False)
@click.option("--since", metavar="ENTRY", help="Count only what comes after this entry.")
@leaf_option
@click.option(
    "--by",
    "group_by",
    type=click.Choice(DIMENSIONS),
    multiple=True,
    help="What was paid, by this; may be given several times.",
)
@click.option("--path", is_flag=True, help="What was paid for the entries on the path, whoever paid.")
@click.option("--tree", is_flag=True, help="What every session of the same tree has paid.")
@click.option("--tasks", is_flag=True, help="With the task sessions it links to, and theirs.")
@click.option("--scope", help="Only calls of this tenant or user.")
@click.option("--provider", help="Only calls of this provider.")
@click.option("--model", help="Only calls of this model.")
@click.option("--purpose", help="Only calls for this: turn, compaction, branch_summary ...")
@click.option("--outcome", help="Only calls that ended so: failed, aborted ...")
@click.option("--branch", type=click.Choice(BRANCH_STATES), help="Only calls whose entry is there.")
@click.option("--first-day", type=_day, metavar="DAY", help="Only calls of this day (YYYY-MM-DD, in UTC) and later.")
@click.option("--last-day", type=_day, metavar="DAY", help="Only calls of this day and earlier.")
@json_option
@click.pass_obj
def usage(
    place: Place,
    session: str | None,
    since: str | None,
    leaf: str | None,
    group_by: tuple[Dimension, ...],
    path: bool,
    tree: bool,
    tasks: bool,
    scope: str | None,
    provider: str | None,
    model: str | None,
    purpose: str | None,
    outcome: str | None,
    branch: BranchState | None,
    first_day: datetime | None,
    last_day: datetime | None,
    as_json: bool,
) -> None:
    """Show the tokens and the exact cost of the path of SESSION, or of what comes after an entry.

    With any other option, or without SESSION: what was paid, from the ledger, in which nothing is ever lost.
    """
    filters = (scope, provider, model, purpose, outcome, branch, first_day, last_day)
    is_stretch = path or since is not None or leaf is not None
    if session is None and is_stretch:
        raise InvalidArgument("--path, --since and --leaf are of a session; name it")
    if session is not None and not (group_by or path or tree or tasks or any(value is not None for value in filters)):
        _show_path(place, session, since, leaf, as_json=as_json)
        return

    async def work(store: Store) -> UsageReport:
        found, session_id = await _find(store, session)
        if found is None and session_id is not None and is_stretch:
            raise SessionNotFound(session_id)
        return await store.usage(
            session_id,
            tree=tree,
            tasks=tasks,
            scope=scope,
            provider=provider,
            model=model,
            purpose=purpose,
            outcome=outcome,
            branch=branch,
            first_day=None if first_day is None else first_day.date(),
            last_day=None if last_day is None else last_day.date(),
            group_by=group_by,
            path=path,
            since=None if found is None or since is None else await found.resolve_entry_id(since),
            leaf=STORED if found is None else await leaf_of(found, leaf),
        )

    report = run(place, work)
    if as_json:
        print_json(report.to_json())
    else:
        print_lines(bill_lines(report, group_by))


async def _find(store: Store, name: str | None) -> tuple[Session | None, str | None]:
    """Return a session by what the user calls it, and its id. One that is deleted has its whole id only."""
    if name is None:
        return None, None
    try:
        found = await find_session(store, name)
    except SessionNotFound:
        return None, name
    return found, found.id


def _show_path(place: Place, session: str, since: str | None, leaf: str | None, *, as_json: bool) -> None:
    async def work(store: Store) -> tuple[UsageWindow, UsageReport | None]:
        found = await find_session(store, session)
        before = None if since is None else await found.resolve_entry_id(since)
        at = await leaf_of(found, leaf)
        window = await found.aggregate_usage_since(before, leaf=at)
        return window, None if as_json else await store.usage(found, path=True, since=before, leaf=at)

    window, paid = run(place, work, bar="reading")
    if paid is None:
        print_json(usage_row(window))
    else:
        print_lines(usage_lines(window, paid.total))
