"""The clear command."""

from __future__ import annotations

import json
from pathlib import Path

import click

from flue_py.cli.output import NO_TURNS, Answer, file_argument, plain_lines, saved
from flue_py.cli.running import Plan, command, destructive, newest_argument, session_argument
from flue_py.core.context import Turn
from flue_py.core.json import JsonObject
from flue_py.core.kinds import message_text
from flue_py.core.sessions import Moved
from flue_py.render.lines import counted
from flue_py.render.transcript import said_lines, turn_lines
from flue_py.render.views import entry_row, iso, moved_row
from flue_py.runtime.conversation import REPLAYED_TURNS, Conversation
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

# ---------------------------------------------------------------------------------------------------------------------
# The clear command.


@destructive(bar="reading")
@session_argument
async def clear(store: Store, session: Session) -> Plan:
    """Drop all turns of SESSION. What comes before the first turn stays. undo brings the turns back.

    With --json: as move, with dryRun.
    """
    turns = await Conversation(store, session).turns()
    nothing = "there is nothing to clear"

    def shown(text: str, moved: Moved | None, leaf: str | None, *, dry_run: bool) -> Answer:
        row = {**moved_row(session.id, moved, leaf), "dryRun": dry_run}
        return Answer(lambda: [((text, "bold"),), *turn_lines(turns)], lambda: row)

    async def go(store: Store) -> Answer:
        talk = Conversation(store, await store.find_session(session.id))
        done = await talk.clear()
        text = f"cleared: {counted(done.total, 'turn')} dropped" if done.moved else nothing
        return shown(text, done.moved, talk.session.leaf_id, dry_run=False)

    what = counted(len(turns), "turn") if turns else ""
    would = shown(f"{what} would be dropped" if what else nothing, None, session.leaf_id, dry_run=True)
    return Plan(what, would, go, verb="drop")


# ---------------------------------------------------------------------------------------------------------------------
# The conversation command.


@command(bar="reading", paged=True)
@session_argument
@click.option("--all", "show_all", is_flag=True, help="List compacted turns, too.")
async def conversation(store: Store, session: Session, show_all: bool) -> Answer:
    """List the turns of SESSION that the model sees, numbered as rewind --turns counts them.

    With --json: a list of objects, compacted turns among them: number, entryId, preview, compacted, createdAt.
    """
    turns = await Conversation(store, session).turns()
    return Answer(
        lambda: turn_lines(turns, whole=show_all) or plain_lines(NO_TURNS), lambda: [_row(turn) for turn in turns]
    )


def _row(turn: Turn) -> JsonObject:
    return {
        "number": turn.number,
        "entryId": turn.entry.id,
        "preview": turn.preview,
        "compacted": turn.is_compacted,
        "createdAt": iso(turn.entry.created_at),
    }


# ---------------------------------------------------------------------------------------------------------------------
# The history command.


@command(bar="reading", paged=True)
@session_argument
@click.option("--turns", metavar="N", type=click.IntRange(min=1), help="Only the last N turns.")
async def history(store: Store, session: Session, turns: int | None) -> Answer:
    """Show what was said on the active path of SESSION, in full, without tool calls.

    With --json: all entries of the path, tool calls included.
    """
    entries = await Conversation(store, session).history(turns=turns)
    return Answer(lambda: said_lines(entries) or plain_lines(NO_TURNS), lambda: [entry_row(entry) for entry in entries])


# ---------------------------------------------------------------------------------------------------------------------
# The last command.


@command(bar="reading", paged=True)
@newest_argument
async def last(session: Session) -> Answer:
    """Show the last answer in SESSION, by default the newest.

    With --json: its entry, as in path; null if there is none.
    """
    answer = await session.latest_assistant()
    if answer is None:
        return Answer(lambda: plain_lines("there is no answer yet"), lambda: None)
    return Answer(lambda: plain_lines(message_text(answer.fields)), lambda: entry_row(answer))


# ---------------------------------------------------------------------------------------------------------------------
# The resume command.


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


# ---------------------------------------------------------------------------------------------------------------------
# The retry command.


@command(bar="reading")
@session_argument
async def retry(store: Store, session: Session) -> Answer:
    """Take back the last user message of SESSION and all that follows, and print it, to be sent again.

    With --json: as move, with message, the user message whole (null if there is none).
    """
    done = await Conversation(store, session).retry()
    row = moved_row(session.id, None if done is None else done.moved, session.leaf_id)
    row["message"] = None if done is None else done.message
    if done is None:
        return Answer(row=lambda: row, notes=["there is nothing to retry"])
    return Answer(lambda: plain_lines(done.text), lambda: row)


# ---------------------------------------------------------------------------------------------------------------------
# The save command.


@command(bar="reading", json=False)
@session_argument
@file_argument
async def save(store: Store, session: Session, file: Path | None) -> Answer:
    """Write what was said in SESSION as Markdown to a new FILE, readable by its owner only, or print it."""
    return saved(await Conversation(store, session).save(), file)


# ---------------------------------------------------------------------------------------------------------------------
# The snapshot command.


@command(bar="reading", json=False)
@session_argument
@file_argument
async def snapshot(store: Store, session: Session, file: Path | None) -> Answer:
    """Write the full state of SESSION as JSON to a new FILE, readable by its owner only, or print it.

    It is an object: session (as in sessions), entries (all of the tree, as in path), labels (by entry id), tasks.
    """
    state = await Conversation(store, session).snapshot()
    return saved(json.dumps(state, ensure_ascii=False, indent=2) + "\n", file, is_json=True)
