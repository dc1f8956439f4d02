"""The rewind command."""

from __future__ import annotations

import click

from flue_py.cli.changing import moved
from flue_py.cli.choosing import BY, ENTRY, session_argument, why_option
from flue_py.cli.output import Answer
from flue_py.cli.running import command
from flue_py.core.turns import kept_turns
from flue_py.errors import InvalidArgument
from flue_py.sessions.session import Session


def _check(to: str | None, turns: str | None, **_: object) -> None:
    if (to is None) == (turns is None):
        raise click.UsageError("give either --to ENTRY or --turns N")
    if turns is not None:
        try:
            kept_turns(turns, 0)
        except InvalidArgument as error:
            raise click.BadParameter(str(error), param_hint="--turns") from error


@command(check=_check)
@session_argument
@click.option("--to", metavar="ENTRY", type=ENTRY, help="Make this entry of the active path the leaf.")
@click.option("--turns", metavar="N", help="Keep the first N turns; -N drops the last N.")
@why_option
async def rewind(session: Session, to: str | None, turns: str | None, why: str | None) -> Answer:
    """Go back on the active path of SESSION. Nothing is deleted, and undo reverses it.

    Either --to or --turns is needed. --turns 0 drops all, -0 none; a number out of range is clamped. With --json:
    as move.
    """
    if to is not None:
        done = await session.rewind(to=to, by=BY, why=why)
    else:
        done = await session.rewind(turns=kept_turns(turns or "", len(await session.turns())), by=BY, why=why)
    return moved(session, done, nothing="there is nothing to go back over")
