"""The log command."""

from __future__ import annotations

import click

from flue_py.cli.choosing import session_argument
from flue_py.cli.output import Answer, look
from flue_py.cli.running import command
from flue_py.render.log import log_lines, log_row
from flue_py.sessions.session import Session


@command()
@session_argument
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Show this many lines.")
@click.option("--before", type=click.IntRange(min=1), metavar="REVISION", help="Show the lines before this one.")
async def log(session: Session, limit: int, before: int | None) -> Answer:
    """Show what was done to SESSION, newest first. Each line is a revision that `back` can go back to.

    With --json: a list of objects: sessionId, revision, what, at, fromId, toId, entryCount, entryIds (the first
    20), kinds, edits (what, entryId, before, after), refersTo, by, why, words.
    """
    lines = await session.log(limit=limit, before=before)
    return Answer(lambda: log_lines(lines, look()), lambda: [log_row(line) for line in lines])
