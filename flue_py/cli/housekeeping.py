"""Commands that delete sessions by the lot: prune and cleanup."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import click

from flue_py.cli.output import json_option, look, print_json, print_lines
from flue_py.cli.place import Place
from flue_py.cli.progress import progress_bar
from flue_py.cli.running import run
from flue_py.core.sessions import Deletion, SessionInfo
from flue_py.errors import InvalidArgument
from flue_py.render.lines import Line, counted
from flue_py.render.views import session_lines
from flue_py.runtime.housekeeping import DEFAULT_AGE, delete_all, find_older, find_prunable, parse_age
from flue_py.sessions.store import Store

_SHOWN = 20

scope_option = click.option("--scope", help="Only the sessions of this tenant or user.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


@click.command()
@scope_option
@dry_run_option
@yes_option
@json_option
@click.pass_obj
def prune(place: Place, scope: str | None, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete the sessions that have no configuration file, or whose file is no longer there.

    Also those that are not completed. Task sessions go with their parents only. At a terminal it asks first.
    """
    delete_chosen(place, lambda store: find_prunable(store, scope=scope), dry_run=dry_run, yes=yes, as_json=as_json)


@click.command()
@click.argument("age", default=DEFAULT_AGE)
@scope_option
@dry_run_option
@yes_option
@json_option
@click.pass_obj
def cleanup(place: Place, age: str, scope: str | None, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete the sessions that have not changed for AGE: days, weeks or hours, as 30d (the default), 4w or 12h.

    Task sessions go with their parents only. At a terminal it asks first.
    """
    try:
        span = parse_age(age)
    except InvalidArgument as error:
        raise click.BadParameter(str(error), param_hint="AGE") from error
    now = datetime.now(UTC)
    delete_chosen(
        place, lambda store: find_older(store, span, now, scope=scope), dry_run=dry_run, yes=yes, as_json=as_json
    )


def delete_chosen(
    place: Place,
    find: Callable[[Store], Awaitable[list[SessionInfo]]],
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete what is found, or only show it; ask first where there is somebody to answer."""
    with progress_bar("looking"):
        chosen = run(place, find)
    if chosen and (dry_run or (not yes and sys.stdin.isatty())) and not as_json:
        print_lines(_list(chosen))
    if not dry_run and chosen and not yes and sys.stdin.isatty():
        click.confirm(f"Delete {counted(len(chosen), 'session')}, with their task sessions?", abort=True, err=True)
    deletion = Deletion(())
    if not dry_run:
        with progress_bar("deleting", "sessions") as tell:
            deletion = run(place, lambda store: delete_all(store, chosen, progress=tell))
    if as_json:
        ids = [info.id for info in chosen] if dry_run else list(deletion.session_ids)
        entries = None if dry_run else deletion.entries_deleted
        print_json({"dryRun": dry_run, "sessionIds": [*ids], "entriesDeleted": entries})
    elif dry_run:
        print_lines([((f"{counted(len(chosen), 'session')} would be deleted", "bold"),)])
    else:
        said = f"{counted(len(deletion.session_ids), 'session')} deleted"
        with_them = f", {counted(deletion.entries_deleted, 'entry', 'entries')} with them"
        print_lines([((said, "bold"), (with_them if deletion.session_ids else "", ""))])


def _list(chosen: list[SessionInfo]) -> list[Line]:
    lines = session_lines(chosen[:_SHOWN], look())
    if len(chosen) > _SHOWN:
        lines.append(((f"{len(chosen) - _SHOWN:,} more; --json names all", "dim"),))
    return lines
