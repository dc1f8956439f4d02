"""The new command."""

from __future__ import annotations

import click

from flue_py.cli.choosing import project_option, scope_option
from flue_py.cli.output import Answer, said
from flue_py.cli.running import command
from flue_py.render.rows import session_row
from flue_py.sessions.store import Store


def _check(key: str | None, if_missing: bool, **_: object) -> None:
    if if_missing and key is None:
        raise click.UsageError("--if-missing is for a --key")


@command(check=_check, create=True)
@click.option("--key", help="What it is opened by: unique in its scope.")
@click.option("--title", help="Its title.")
@scope_option
@project_option("The folder that it works in.")
@click.option("--if-missing", is_flag=True, help="Where the key is there already, print that session's id.")
async def new(store: Store, key: str | None, title: str | None, project: str | None, if_missing: bool) -> Answer:
    """Create a session, and print its id. A database that is missing is made.

    A key that is taken is exit code 6. With --if-missing, all who run it at once print the same id. With --json:
    the session, as in sessions.
    """
    if key is not None and if_missing:
        made = await store.open_session(key, mode="get_or_create", title=title, cwd=project)
    else:
        made = await store.create_session(key=key, title=title, cwd=project)
    return said(made.id, session_row(made.info, await made.name()))
