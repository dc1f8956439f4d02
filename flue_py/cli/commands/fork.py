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
@click.option("--at", metavar="ENTRY", type=LEAF, help="Begin at this entry (default: the leaf).")
@click.option("--key", help="The key of the new session, by which a program opens it.")
@click.option("--title", help="The title of the new session.")
async def fork(session: Session, at: LeafChoice, key: str | None, title: str | None) -> Answer:
    """Create a session that begins at an entry of SESSION. Nothing is copied, and SESSION does not change."""
    made = await session.fork(at=at, key=key, title=title)
    info = made.info
    return said(f"session {info.id} begins at {shown_leaf(info.leaf_id)}", session_row(info, await made.name()))
