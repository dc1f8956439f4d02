"""The exclude command."""

from __future__ import annotations

from flue_py.cli.changing import marked, part_option
from flue_py.cli.choosing import BY, entry_argument, session_argument, why_option
from flue_py.cli.output import Answer
from flue_py.cli.running import command
from flue_py.sessions.session import Session


@command()
@session_argument
@entry_argument
@part_option
@why_option
async def exclude(session: Session, entry: str, part: int | str | None, why: str | None) -> Answer:
    """Leave ENTRY of SESSION, or a part of it, out of the context. What follows stays, and undo reverses it.

    A tool call goes with its results. It says how many tokens that saves. With --json: as pin.
    """
    return marked(session, "excluded", entry, await session.exclude(entry, part, by=BY, why=why))
