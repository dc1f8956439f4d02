"""The command ``demo``: the story on a terminal."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

import flue_py
from flue_py.demo.story import tell
from flue_py.homes import in_full
from flue_py.render.entries import Look
from flue_py.render.lines import ASCII, UNICODE, printable
from flue_py.store.files.private import make_private_folder
from flue_py.store.waiting import run_here

_NEXT = "Your own are next: flue-py import auto --discover, then flue-py sessions"


@click.command()
@click.option("--db", "database", metavar="PATH", help="Use this database, and keep it.")
@click.pass_context
def demo(ctx: click.Context, database: str | None) -> None:
    """Show a real session: its tree, path, context and usage, and what deleting a task takes along.

    It works on a temporary database, which is removed at the end, or on the one named with --db.
    """
    if database is None and ctx.obj is not None and ctx.obj.is_named:
        database = ctx.obj.target
    console = Console(highlight=False, markup=False, emoji=False)
    if database is not None:
        if "://" not in database:
            database = in_full(database)
            make_private_folder(Path(database).parent)
        console.print(f"database: {printable(database)} (kept)", soft_wrap=True)
        _show(database, console)
        return
    with tempfile.TemporaryDirectory(prefix="flue-py-demo-") as folder:
        path = Path(folder) / "sessions.db"
        console.print(f"database: {path} (temporary, removed at the end)", soft_wrap=True)
        _show(str(path), console)


def _show(database: str, console: Console) -> None:
    if "://" in database:
        asyncio.run(_tell(database, console))
    else:
        run_here(_tell(database, console))


async def _tell(database: str, console: Console) -> None:
    glyphs = UNICODE if console.encoding.startswith("utf") else ASCII
    async with flue_py.open(database, threads=None if "://" in database else False) as store:
        async for section in tell(store, Look(console.width, glyphs=glyphs)):
            console.print()
            console.print(Rule(section.title, align="left", characters="─" if glyphs is UNICODE else "-"))
            for line in section.lines:
                text = Text.assemble(*((printable(said), style) for said, style in line))
                text.rstrip()
                console.print(text, no_wrap=True, overflow="ignore", crop=False)
    console.print()
    console.print(_NEXT, soft_wrap=True)
