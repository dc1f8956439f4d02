"""Commands that delete sessions by the lot: prune and cleanup."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import click

from flue_py.cli.consent import Plan, Shown, destructive
from flue_py.cli.place import Place
from flue_py.cli.progress import progress_bar
from flue_py.cli.running import name_of, run
from flue_py.core.jsontext import JsonObject
from flue_py.core.sessions import Deletion, SessionInfo
from flue_py.errors import InvalidArgument
from flue_py.render.lines import counted
from flue_py.render.views import deletion_lines
from flue_py.runtime.housekeeping import DEFAULT_AGE, delete_all, find_older, find_prunable, parse_age
from flue_py.sessions.store import Store

scope_option = click.option("--scope", help="Only the sessions of this tenant or user.")


@click.command()
@scope_option
@click.option("--without-config", is_flag=True, help="Take those that never had a configuration file, too.")
@destructive
@click.pass_obj
def prune(place: Place, scope: str | None, without_config: bool) -> Plan:
    """Delete the sessions whose configuration file is no longer there, completed or not.

    Those that never had one stay. Task sessions go with their parents only. At a terminal it asks first.
    """
    return plan_for(place, lambda store: find_prunable(store, scope=scope, without_config=without_config))


@click.command()
@click.argument("age", default=DEFAULT_AGE)
@scope_option
@destructive
@click.pass_obj
def cleanup(place: Place, age: str, scope: str | None) -> Plan:
    """Delete the sessions that were last active AGE ago: days, weeks or hours, as 30d (the default), 4w or 12h.

    Task sessions go with their parents only. At a terminal it asks first.
    """
    try:
        span = parse_age(age)
    except InvalidArgument as error:
        raise click.BadParameter(str(error), param_hint="AGE") from error
    now = datetime.now(UTC)
    return plan_for(place, lambda store: find_older(store, span, now, scope=scope))


def plan_for(place: Place, find: Callable[[Store], Awaitable[list[SessionInfo]]]) -> Plan:
    """Return the plan of deleting what is found, each with its task sessions."""

    async def foresee(store: Store) -> tuple[list[SessionInfo], dict[str, str]]:
        chosen = await find(store)
        planned = [await store.delete_session_tree(info.id, dry_run=True) for info in chosen]
        return chosen, {each: await name_of(store, each) for deletion in planned for each in deletion.session_ids}

    with progress_bar("looking"):
        chosen, names = run(place, foresee)

    def go() -> Shown:
        with progress_bar("deleting", "sessions") as tell:
            deletion = run(place, lambda store: delete_all(store, chosen, progress=tell))
        return Shown(deletion_lines(deletion, names), _row(deletion.session_ids, deletion.entries_deleted))

    would = deletion_lines(Deletion(tuple(names)), names, dry_run=True, knows_entries=False)
    return Plan(counted(len(names), "session") if names else "", Shown(would, _row(tuple(names), None)), go)


def _row(session_ids: tuple[str, ...], entries_deleted: int | None) -> JsonObject:
    return {"dryRun": entries_deleted is None, "sessionIds": [*session_ids], "entriesDeleted": entries_deleted}
