"""Commands about what is stored: rm, verify, info."""

from __future__ import annotations

import click

from flue_py.cli.consent import Plan, Shown, destructive
from flue_py.cli.housekeeping import plan_for
from flue_py.cli.output import json_option, look, print_json, print_lines
from flue_py.cli.place import Place
from flue_py.cli.progress import progress_bar
from flue_py.cli.running import name_of, run
from flue_py.core.sessions import Deletion
from flue_py.render.lines import counted
from flue_py.render.rows import deletion_row, store_row, verify_row
from flue_py.render.views import deletion_lines, facts_lines, store_facts
from flue_py.runtime.finding import all_sessions, find_session
from flue_py.runtime.housekeeping import find_completed
from flue_py.sessions.store import Store


@click.command()
@click.argument("session")
@destructive
@click.pass_obj
def rm(place: Place, session: str) -> Plan:
    """Delete SESSION, the task sessions it started, theirs, and every entry no other session sees.

    Forks stay, with all they see, and so does what was spent. At a terminal it shows what would go, and asks. Where
    SESSION is "all", and no session has that id or key, every session goes that is completed.
    """
    if session.lower() == "all" and run(place, lambda store: _is_free(store, session)):
        return plan_for(place, find_completed)

    async def foresee(store: Store) -> tuple[str, Deletion, dict[str, str]]:
        found = await find_session(store, session)
        planned = await store.delete_session_tree(found.id, dry_run=True)
        return found.id, planned, {each: await name_of(store, each) for each in planned.session_ids}

    session_id, planned, names = run(place, foresee)

    def shown(deletion: Deletion, *, dry_run: bool) -> Shown:
        return Shown(deletion_lines(deletion, names, dry_run=dry_run), deletion_row(deletion, dry_run=dry_run))

    def go() -> Shown:
        with progress_bar("deleting"):
            return shown(run(place, lambda store: store.delete_session_tree(session_id)), dry_run=False)

    return Plan(counted(len(planned.session_ids), "session"), shown(planned, dry_run=True), go)


async def _is_free(store: Store, name: str) -> bool:
    return name not in {each for info in await all_sessions(store) for each in (info.id, info.key)}


@click.command()
@json_option
@click.pass_context
def verify(ctx: click.Context, as_json: bool) -> None:
    """Derive anew everything that is stored twice, and name what disagrees. Exit code 1 where something does."""
    with progress_bar("verifying"):
        report = run(ctx.obj, lambda store: store.verify())
    if as_json:
        print_json(verify_row(report))
    else:
        print_lines([((str(problem), "red"),) for problem in report.problems])
        problems = counted(len(report.problems), "problem")
        entries = counted(report.entries, "entry", "entries")
        print_lines([((f"{counted(report.sessions, 'session')}, {entries}: {problems}", "bold"),)])
    if report.problems:
        ctx.exit(1)


@click.command()
@json_option
@click.pass_obj
def info(place: Place, as_json: bool) -> None:
    """Show where the database is, its format, and how much it holds."""
    found = run(place, lambda store: store.info())
    if as_json:
        print_json(store_row(found))
    else:
        print_lines(facts_lines(store_facts(found), look()))
