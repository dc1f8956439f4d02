"""The history command."""

from __future__ import annotations

import click

from flue_py.cli.choosing import session_argument
from flue_py.cli.output import NO_TURNS, Answer, plain_lines
from flue_py.cli.running import command
from flue_py.render.conversation import said_lines
from flue_py.render.rows import entry_row
from flue_py.runtime.conversation import Conversation
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store


@command(bar="reading", paged=True)
@session_argument
@click.option("--turns", metavar="N", type=click.IntRange(min=1), help="Only the last N turns.")
async def history(store: Store, session: Session, turns: int | None) -> Answer:
    """Show what was said on the active path of SESSION, in full, without tool calls.

    With --json: all entries of the path, tool calls included.
    """
    entries = await Conversation(store, session).history(turns=turns)
    return Answer(lambda: said_lines(entries) or plain_lines(NO_TURNS), lambda: [entry_row(entry) for entry in entries])
