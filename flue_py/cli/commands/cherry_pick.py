"""The cherry-pick command."""

from __future__ import annotations

import click

from flue_py.cli.changing import appended
from flue_py.cli.choosing import ENTRY_NAME, SESSION, session_argument
from flue_py.cli.output import Answer
from flue_py.cli.running import command
from flue_py.render.lines import counted
from flue_py.sessions.session import Session


@command()
@session_argument
@click.argument("entries", metavar="ENTRY...", type=ENTRY_NAME, nargs=-1, required=True)
@click.option(
    "--from",
    "source",
    metavar="SESSION",
    type=SESSION,
    help="The session to copy from (default: SESSION itself).",
)
async def cherry_pick(session: Session, entries: tuple[str, ...], source: Session | None) -> Answer:
    """Append copies of entries of another branch or session below the leaf of SESSION.

    A tool call and its result come together. Costs are not counted again. Repeating the command changes nothing.

    The copies are in order of depth. With --json: an object: sessionId, entryIds, leafId, replayed (whether they
    were there already).
    """
    there = source or session
    done = await session.cherry_pick([await there.resolve_entry_id(entry) for entry in entries], source=there)
    copies = counted(len(done.entry_ids), "entry", "entries")
    what = "were there already; nothing was changed" if done.replayed else "copied"
    return appended(session, f"{copies} {what}; the leaf is {done.leaf_id}", done)
