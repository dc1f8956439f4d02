"""The move command."""

from __future__ import annotations

import click

from flue_py.cli.changing import moved
from flue_py.cli.choosing import BY, ENTRY, session_argument, why_option
from flue_py.cli.output import Answer
from flue_py.cli.running import command
from flue_py.sessions.session import Session


def _check(entry: str | None, before_first: bool, **_: object) -> None:
    if (entry is None) != before_first:
        raise click.UsageError("name an ENTRY, or give --before-first")


@command(check=_check)
@session_argument
@click.argument("entry", type=ENTRY, required=False)
@click.option("--before-first", is_flag=True, help="Move before the first entry: the next entry is a new root.")
@why_option
async def move(session: Session, entry: str | None, before_first: bool, why: str | None) -> Answer:
    """Set the leaf of SESSION to ENTRY, on any branch."""
    return moved(session, await session.move_leaf(to=entry, by=BY, why=why))
