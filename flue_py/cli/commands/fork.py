"""The fork command."""

from __future__ import annotations

import click

from flue_py.cli.changing import shown_leaf
from flue_py.cli.choosing import LEAF, session_argument
from flue_py.cli.output import Answer, said
from flue_py.cli.running import command
from flue_py.core.sessions import LeafChoice
from flue_py.render.rows import session_row
from flue_py.sessions.session import Session


@command()
@session_argument
@click.option("--at", metavar="ENTRY", type=LEAF, help="Begin at this entry; at the leaf otherwise.")
@click.option("--key", help="What an application opens the new session by.")
@click.option("--title", help="The title of the new session.")
async def fork(session: Session, at: LeafChoice, key: str | None, title: str | None) -> Answer:
    """Make a new session that begins at an entry of SESSION. Nothing is copied, and SESSION stays as it is."""
    made = await session.fork(at=at, key=key, title=title)
    info = made.info
    return said(f"session {info.id} begins at {shown_leaf(info.leaf_id)}", session_row(info, await made.name()))
