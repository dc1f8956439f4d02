"""The merge-back command."""

from __future__ import annotations

import sys

import click

from flue_py.cli.changing import appended
from flue_py.cli.choosing import SESSION_NAME, end_of, session_argument
from flue_py.cli.output import Answer
from flue_py.cli.running import command
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store


def _read(ctx: click.Context, param: click.Parameter, summary: str) -> str:
    text = sys.stdin.read().strip() if summary == "-" else summary
    if not text.strip():
        raise click.UsageError("the summary is empty")
    return text


@command()
@session_argument
@click.argument("source", type=SESSION_NAME)
@click.option(
    "--summary",
    metavar="TEXT",
    required=True,
    callback=_read,
    help="The summary; - reads it from standard input.",
)
async def merge_back(store: Store, session: Session, source: str, summary: str) -> Answer:
    """Append a summary of what SOURCE did since it left SESSION, below the leaf of SESSION.

    SOURCE is a fork or a task session, SESSION@ENTRY, or @ENTRY on another branch of SESSION. Repeating the command
    changes nothing.
    """
    there, leaf = await end_of(store, source, session)
    done = await session.merge_back(summary, source=there, source_leaf=leaf)
    what = "was there already; nothing was changed" if done.replayed else "appended"
    return appended(session, f"summary {done.entry_id} {what}", done)
