"""The fork command."""

from __future__ import annotations

import click

from flue_py.cli.changing import shown_leaf
from flue_py.cli.choosing import LEAF, project_option, session_argument
from flue_py.cli.output import Answer, said
from flue_py.cli.running import command
from flue_py.core.sessions import LeafChoice
from flue_py.render.rows import session_row
from flue_py.sessions.session import Session


def _check(at: str | None, branches: bool, **_: object) -> None:
    if branches and at is not None:
        raise click.UsageError("--branches copies all of SESSION, with its leaf; leave --at out")


@command(check=_check)
@session_argument
@click.option("--at", metavar="ENTRY", type=LEAF, help="Begin at this entry (default: the leaf).")
@click.option("--branches", is_flag=True, help="Copy all of SESSION, the branches beside the path, too.")
@click.option("--key", help="The key of the new session, by which a program opens it.")
@click.option("--title", help="The title of the new session.")
@project_option("The folder that the new session works in (default: that of SESSION).")
async def fork(
    session: Session, at: LeafChoice, branches: bool, key: str | None, title: str | None, project: str | None
) -> Answer:
    """Create a session that begins at an entry of SESSION, which does not change.

    Nothing is copied. With --branches the new session has all of SESSION as entries, labels and pins of its own.

    With --branches the copies have the ids of their originals. With --json: the new session, as in sessions.
    """
    if branches:
        made = await session.copy(key=key, title=title, cwd=project)
    else:
        made = await session.fork(at=at, key=key, title=title, cwd=project)
    info = made.info
    return said(f"session {info.id} begins at {shown_leaf(info.leaf_id)}", session_row(info, await made.name()))
