"""The task command."""

from __future__ import annotations

from typing import Literal

import click

from flue_py.cli.choosing import session_argument
from flue_py.cli.expecting import expected_option
from flue_py.cli.output import Answer, said
from flue_py.cli.running import command
from flue_py.core.sessions import LeafChoice
from flue_py.errors import SessionNotFound, shown
from flue_py.render.rows import session_row
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store


def _check(title: str | None, key: str | None, end: str | None, summary: str | None, **_: object) -> None:
    if end is None and summary is not None:
        raise click.UsageError("--summary is for --end")
    if end is not None and (title is not None or key is not None):
        raise click.UsageError("--title and --key are for a new task; leave them out with --end")


@command(check=_check)
@session_argument
@click.argument("task_id", metavar="TASK")
@click.option("--key", help="What the task session is opened by: unique in its scope.")
@click.option("--title", help="Its title.")
@click.option("--end", type=click.Choice(["done", "failed"]), help="Say how it ended, instead of creating it.")
@click.option("--summary", metavar="TEXT", help="With --end: what came of it.")
@expected_option
async def task(
    store: Store,
    session: Session,
    task_id: str,
    key: str | None,
    title: str | None,
    end: Literal["done", "failed"] | None,
    summary: str | None,
    expected: LeafChoice,
) -> Answer:
    """Create the task session that SESSION calls TASK, and print its id; the same TASK, the same session.

    With --expected, the leaf of SESSION is compared; with --end, that of the task session.

    With --json: the task session, as in sessions.
    """
    if end is None:
        made = await session.create_task(task_id=task_id, key=key, title=title, expected_leaf=expected)
    else:
        made = await _task_of(store, session, task_id)
        await made.end_task(end, summary=summary, by="flue-py", expected_leaf=expected)
    return said(made.id, session_row(made.info, await made.name()))


async def _task_of(store: Store, session: Session, task_id: str) -> Session:
    for link in await session.task_links():
        if link.task_id == task_id:
            found = await store.get_session(link.child_id)
            if found is not None:
                return found
    raise SessionNotFound(
        task_id, detail=f"session {session.id!r} has no task {shown(task_id)}; flue-py show lists those it has"
    )
