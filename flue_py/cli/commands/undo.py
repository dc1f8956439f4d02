"""The undo command."""

from __future__ import annotations

import click

from flue_py.cli.changing import moved
from flue_py.cli.choosing import BY, session_argument, why_option
from flue_py.cli.output import Answer
from flue_py.cli.running import command
from flue_py.core.log import LogLine
from flue_py.core.sessions import Moved
from flue_py.runtime.undoing import undo_last
from flue_py.sessions.session import Session


@command()
@session_argument
@click.option("--turn", is_flag=True, help="Undo the whole last turn: the last user message and what followed.")
@why_option
async def undo(session: Session, turn: bool, why: str | None) -> Answer:
    """Take back what was done last to SESSION: a move of the leaf, or an edit of a title, label or pin.

    Nothing is deleted. undo also reverses undo --turn, and redo reverses undo.

    An append, a move, a retraction or an import is undone by setting the leaf back; an edit of a title, the
    metadata, a label or a pin if somebody is named for it. undo --turn is one operation of the log, the same as
    rewind --turns -1. With --json: as move; moved is false if there was nothing to undo, or if an edit was undone,
    whose new line of the log is line.
    """
    done: Moved | LogLine | None
    if not turn:
        done = await undo_last(session, by=BY, why=why)
    else:
        done = await session.rewind(turns=-1, by=BY, why=why) if await session.turns() else None
    return moved(session, done, nothing="there is nothing to undo")
