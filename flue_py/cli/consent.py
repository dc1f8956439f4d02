"""What all commands that delete have in common: they show what would go, ask, and say what went."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable

import click

from flue_py.cli.about import name_of
from flue_py.cli.output import Answer, confirm, json_option, print_answer, print_lines
from flue_py.cli.progress import progress_bar
from flue_py.cli.running import as_command, narrowed, on_store, run
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject
from flue_py.core.sessions import Deletion, SessionInfo
from flue_py.render.lines import Line, counted
from flue_py.render.views import deletion_lines
from flue_py.runtime.housekeeping import delete_all
from flue_py.sessions.store import Store


@frozen
class Plan:
    """What a command would delete. Nothing has happened yet.

    ``what`` is it in a few words, "" if there is nothing to delete; ``shown`` lists what would go. ``go`` deletes it,
    given the store, and returns what went.
    """

    what: str
    shown: Answer
    go: Callable[[Store], Awaitable[Answer]]
    verb: str = "delete"


def destructive(
    name: str | None = None, *, bar: str | None = None
) -> Callable[[Callable[..., Awaitable[Plan]]], click.Command]:
    """Make a command of a function that returns what would be deleted, and deletes nothing itself.

    The function gets what a `command` gets. The command has --dry-run, --yes and --json. At a terminal it shows what
    would go, and asks. Without a terminal it deletes only with --yes; without that, it does what
    --dry-run does, and ends with exit code 2. The store is closed while it asks.
    """

    def made(find: Callable[..., Awaitable[Plan]]) -> click.Command:
        def callback(*, dry_run: bool, yes: bool, as_json: bool, **given: object) -> None:
            place = click.get_current_context().obj
            plan = run(place, on_store(find, given), bar=bar)
            if dry_run:
                print_answer(plan.shown, as_json=as_json)
                return
            if plan.what and not yes:
                _ask(plan, as_json=as_json)
            print_answer(run(place, lambda store: plan.go(narrowed(store, given.get("scope")))), as_json=as_json)

        return as_command(callback, find, name, _OPTIONS)

    return made


_OPTIONS = [
    click.Option(["--dry-run"], is_flag=True, help="Only show what would go."),
    click.Option(["--yes"], is_flag=True, help="Do not ask. Needed if there is no terminal to ask at."),
    json_option,
]


def _ask(plan: Plan, *, as_json: bool) -> None:
    """Return if the answer is yes. Raises `click.Abort`, and `click.UsageError` if there is no terminal."""
    if not sys.stdin.isatty():
        print_answer(plan.shown, as_json=as_json)
        raise click.UsageError(
            f"nothing was changed: this would {plan.verb} {plan.what}, and there is no terminal to ask at; "
            "give --yes to do it"
        )
    print_lines(plan.shown.lines(), err=True)
    confirm(f"{plan.verb.capitalize()} {plan.what}?")


async def plan_for(store: Store, find: Awaitable[list[SessionInfo]]) -> Plan:
    """Return the plan of deleting what is found, each with its task sessions."""
    with progress_bar("looking"):
        chosen = await find
        planned = [await store.delete_session_tree(info.id, dry_run=True) for info in chosen]
        names = {each: await name_of(store, each) for deletion in planned for each in deletion.session_ids}

    async def go(store: Store) -> Answer:
        with progress_bar("deleting", "sessions") as tell:
            deletion = await delete_all(store, chosen, progress=tell)
        return _gone(deletion_lines(deletion, names), deletion.session_ids, deletion.entries_deleted)

    would = deletion_lines(Deletion(tuple(names)), names, dry_run=True, knows_entries=False)
    return Plan(counted(len(names), "session") if names else "", _gone(would, tuple(names), None), go)


def _gone(lines: list[Line], session_ids: tuple[str, ...], entries_deleted: int | None) -> Answer:
    row: JsonObject = {
        "dryRun": entries_deleted is None,
        "sessionIds": [*session_ids],
        "entriesDeleted": entries_deleted,
    }
    return Answer(lambda: lines, lambda: row)
