"""The include command."""

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
async def include(session: Session, entry: str, part: int | str | None, why: str | None) -> Answer:
    """Put ENTRY of SESSION, or a part of it, back into the context.

    With --json: as pin.
    """
    return marked(session, "included", entry, await session.include(entry, part, by=BY, why=why))
