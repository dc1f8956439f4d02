"""The redo command."""

from __future__ import annotations

from flue_py.cli.changing import moved
from flue_py.cli.choosing import BY, session_argument, why_option
from flue_py.cli.output import Answer
from flue_py.cli.running import command
from flue_py.runtime.undoing import redo_last
from flue_py.sessions.session import Session


@command()
@session_argument
@why_option
async def redo(session: Session, why: str | None) -> Answer:
    """Redo what was undone last in SESSION.

    With --json: as move; moved is false if there was nothing to redo.
    """
    return moved(session, await redo_last(session, by=BY, why=why), nothing="there is nothing to do again")
