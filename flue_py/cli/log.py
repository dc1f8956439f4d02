"""Commands on a session's past: its log, and going back to a line of it."""

from __future__ import annotations

import click

from flue_py.cli.output import json_option, look, print_json, print_lines, print_result
from flue_py.cli.place import Place
from flue_py.cli.running import run
from flue_py.core.log import LogLine
from flue_py.render.lines import text_of
from flue_py.render.log import log_lines, log_row
from flue_py.runtime.finding import find_session
from flue_py.sessions.store import Store

_BY = "flue-py"
_LONG_PAGE = 1000

why_option = click.option("--why", metavar="TEXT", help="Why, for the log.")


@click.command()
@click.argument("session")
@click.option(
    "--limit", type=click.IntRange(1, _LONG_PAGE), default=50, show_default=True, help="Show this many lines."
)
@click.option("--before", type=click.IntRange(min=1), metavar="REVISION", help="Show what came before this line.")
@json_option
@click.pass_obj
def log(place: Place, session: str, limit: int, before: int | None, as_json: bool) -> None:
    """Show what was done to SESSION, newest first: each line is a revision that `back` goes back to."""

    async def work(store: Store) -> list[LogLine]:
        return await (await find_session(store, session)).log(limit=limit, before=before)

    lines = run(place, work)
    if as_json:
        print_json([log_row(line) for line in lines])
    else:
        print_lines(log_lines(lines, look()))


@click.command()
@click.argument("session")
@click.argument("revision", type=click.IntRange(min=0))
@click.option("--before", is_flag=True, help="Go back to how it was before that line: take back what it did.")
@why_option
@json_option
@click.pass_obj
def back(place: Place, session: str, revision: int, before: bool, why: str | None, as_json: bool) -> None:
    """Bring back what line REVISION of the log of SESSION says: the leaf, or the title, label or pin that it set."""

    async def work(store: Store) -> tuple[str, LogLine | None]:
        found = await find_session(store, session)
        return found.id, await found.go_back(to=revision, before=before, by=_BY, why=why)

    session_id, line = run(place, work)
    if as_json:
        row = None if line is None else log_row(line)
        print_json({"sessionId": session_id, "changed": line is not None, "line": row})
    elif line is None:
        print_result("nothing changed: it is like that already", None, as_json=False)
    else:
        print_lines([((text_of(shown).strip(), ""),) for shown in log_lines([line], look())])
