"""The conversation command."""

from __future__ import annotations

import click

from flue_py.cli.choosing import session_argument
from flue_py.cli.output import NO_TURNS, Answer, plain_lines
from flue_py.cli.running import command
from flue_py.core.jsontext import JsonObject
from flue_py.core.turns import Turn
from flue_py.render.conversation import turn_lines
from flue_py.render.rows import iso
from flue_py.runtime.conversation import Conversation
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store


@command(bar="reading", paged=True)
@session_argument
@click.option("--all", "show_all", is_flag=True, help="List compacted turns, too.")
async def conversation(store: Store, session: Session, show_all: bool) -> Answer:
    """List the turns of SESSION that the model sees, numbered as rewind --turns counts them.

    With --json: a list of objects, compacted turns among them: number, entryId, preview, compacted, createdAt.
    """
    turns = await Conversation(store, session).turns()
    return Answer(
        lambda: turn_lines(turns, whole=show_all) or plain_lines(NO_TURNS), lambda: [_row(turn) for turn in turns]
    )


def _row(turn: Turn) -> JsonObject:
    return {
        "number": turn.number,
        "entryId": turn.entry.id,
        "preview": turn.preview,
        "compacted": turn.is_compacted,
        "createdAt": iso(turn.entry.created_at),
    }
