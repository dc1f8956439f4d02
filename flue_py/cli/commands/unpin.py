"""The unpin command."""

from __future__ import annotations

from flue_py.cli.changing import marked
from flue_py.cli.choosing import BY, entry_argument, session_argument, why_option
from flue_py.cli.output import Answer
from flue_py.cli.running import command
from flue_py.sessions.session import Session


@command()
@session_argument
@entry_argument
@why_option
async def unpin(session: Session, entry: str, why: str | None) -> Answer:
    """Let compactions of SESSION summarize ENTRY again.

    With --json: as pin.
    """
    return marked(session, "unpinned", entry, await session.unpin(entry, by=BY, why=why))
