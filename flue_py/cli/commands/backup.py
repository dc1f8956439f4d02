"""The backup command."""

from __future__ import annotations

from pathlib import Path

import click

from flue_py.cli.output import Answer, said
from flue_py.cli.progress import progress_bar
from flue_py.cli.running import command
from flue_py.core.jsontext import JsonObject
from flue_py.render.lines import counted
from flue_py.sessions.store import Store


@command()
@click.argument("target", metavar="TARGET", type=click.Path(path_type=Path))
@click.option("--overwrite", is_flag=True, help="Replace an existing file, once the copy is complete.")
@click.option("--no-verify", is_flag=True, help="Do not verify the copy.")
async def backup(store: Store, target: Path, overwrite: bool, no_verify: bool) -> Answer:
    """Copy the database, as it is now, to the file TARGET. Others may go on writing.

    The copy is verified, readable by its owner only, and gets its name once it is complete. Only for SQLite files.

    A store on PostgreSQL is backed up by pg_dump. With --json: an object: path, sizeBytes, sessions, entries,
    verified.
    """
    with progress_bar("backing up", "pages") as tell:
        made = await store.backup(target, overwrite=overwrite, verify=not no_verify, progress=tell)
    row: JsonObject = {
        "path": made.path,
        "sizeBytes": made.size_bytes,
        "sessions": made.sessions,
        "entries": made.entries,
        "verified": made.is_verified,
    }
    holds = f"{counted(made.sessions, 'session')}, {counted(made.entries, 'entry', 'entries')}"
    checked = "verified" if made.is_verified else "not verified"
    return said(f"{made.path}: {holds}, {made.size_bytes:,} bytes, {checked}", row)
