"""The resume command."""

from __future__ import annotations

import click

from flue_py.cli.choosing import newest_argument
from flue_py.cli.output import Answer, plain_lines
from flue_py.cli.running import command
from flue_py.runtime.conversation import REPLAYED_TURNS, Conversation
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store


@command(bar="reading", paged=True, json=False)
@newest_argument
@click.option(
    "--turns",
    metavar="N",
    type=click.IntRange(min=0),
    default=REPLAYED_TURNS,
    show_default=True,
    help="How many turns.",
)
async def resume(store: Store, session: Session, turns: int) -> Answer:
    """Show the last turns of SESSION, by default the newest, to continue the conversation."""
    text = await Conversation(store, session).resume_text(turns)
    return Answer(lambda: plain_lines(text))
