"""The retry command."""

from __future__ import annotations

from flue_py.cli.choosing import session_argument
from flue_py.cli.output import Answer, plain_lines
from flue_py.cli.running import command
from flue_py.render.rows import moved_row
from flue_py.runtime.conversation import Conversation
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store


@command(bar="reading")
@session_argument
async def retry(store: Store, session: Session) -> Answer:
    """Take back the last user message of SESSION and all that follows, and print it, to be sent again.

    With --json: as move, with message, the user message whole (null if there is none).
    """
    done = await Conversation(store, session).retry()
    row = moved_row(session.id, None if done is None else done.moved, session.leaf_id)
    row["message"] = None if done is None else done.message
    if done is None:
        return Answer(row=lambda: row, notes=["there is nothing to retry"])
    return Answer(lambda: plain_lines(done.text), lambda: row)
