"""Commands about a session as a conversation: resume, conversation, history, last, clear, retry, save, snapshot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click

from flue_py.cli.consent import Plan, Shown, destructive
from flue_py.cli.output import json_option, print_document, print_json, print_lines, tell
from flue_py.cli.place import Place
from flue_py.cli.running import run
from flue_py.core.entries import Entry, message_text
from flue_py.core.jsontext import JsonObject
from flue_py.core.turns import Turn
from flue_py.render.conversation import said_lines, turn_lines
from flue_py.render.lines import Line, counted
from flue_py.render.rows import entry_row, iso, moved_row
from flue_py.runtime.commands import write_private
from flue_py.runtime.conversation import REPLAYED_TURNS, Conversation, Retried, Rewound
from flue_py.runtime.finding import find_session
from flue_py.sessions.store import Store

Result = TypeVar("Result")

_NOTHING = "there are no turns yet"


def _talk(place: Place, name: str, work: Callable[[Conversation], Awaitable[Result]]) -> Result:
    async def with_conversation(store: Store) -> Result:
        return await work(Conversation(store, await find_session(store, name)))

    return run(place, with_conversation, bar="reading")


@click.command()
@click.argument("session")
@click.option(
    "--turns", metavar="N", type=click.IntRange(min=0), default=REPLAYED_TURNS, show_default=True, help="How many."
)
@click.pass_obj
def resume(place: Place, session: str, turns: int) -> None:
    """Show the last turns of SESSION, as a program does that takes the conversation up again."""
    text = _talk(place, session, lambda talk: talk.resume_text(turns))
    print_lines([((line, ""),) for line in text.splitlines()], paged=True)


@click.command()
@click.argument("session")
@click.option("--all", "show_all", is_flag=True, help="List compacted turns, too.")
@json_option
@click.pass_obj
def conversation(place: Place, session: str, show_all: bool, as_json: bool) -> None:
    """List the turns of SESSION that the model sees, numbered as rewind --turns counts them."""
    turns = _talk(place, session, lambda talk: talk.turns())
    if as_json:
        print_json([_turn_row(turn) for turn in turns])
    else:
        print_lines(turn_lines(turns, whole=show_all) or [((_NOTHING, ""),)], paged=True)


def _turn_row(turn: Turn) -> JsonObject:
    return {
        "number": turn.number,
        "entryId": turn.entry.id,
        "preview": turn.preview,
        "compacted": turn.is_compacted,
        "createdAt": iso(turn.entry.created_at),
    }


@click.command()
@click.argument("session")
@click.option("--turns", metavar="N", type=click.IntRange(min=1), help="Only the last N turns.")
@json_option
@click.pass_obj
def history(place: Place, session: str, turns: int | None, as_json: bool) -> None:
    """Show what was said on the active path of SESSION, whole; tools are left out.

    With --json: the entries of the path, tools among them.
    """
    entries: list[Entry] = _talk(place, session, lambda talk: talk.history(turns=turns))
    if as_json:
        print_json([entry_row(entry) for entry in entries])
    else:
        print_lines(said_lines(entries) or [((_NOTHING, ""),)], paged=True)


@click.command()
@click.argument("session")
@json_option
@click.pass_obj
def last(place: Place, session: str, as_json: bool) -> None:
    """Show the last answer in SESSION."""
    answer = _talk(place, session, lambda talk: talk.session.latest_assistant())
    if as_json:
        print_json(None if answer is None else entry_row(answer))
    else:
        text = "there is no answer yet" if answer is None else message_text(answer.fields)
        print_lines([((line, ""),) for line in text.splitlines()], paged=True)


@click.command()
@click.argument("session")
@destructive
@click.pass_obj
def clear(place: Place, session: str) -> Plan:
    """Drop all turns of SESSION; what comes before the first stays, and undo takes it back."""

    async def foresee(talk: Conversation) -> tuple[str, list[Turn], str | None]:
        return talk.session.id, await talk.turns(), talk.session.leaf_id

    session_id, turns, leaf = _talk(place, session, foresee)
    what = counted(len(turns), "turn")
    would: Line = ((f"{what} would be dropped" if turns else "there is nothing to clear", "bold"),)

    def go() -> Shown:
        async def work(talk: Conversation) -> tuple[Rewound, str | None]:
            return await talk.clear(), talk.session.leaf_id

        done, left = _talk(place, session_id, work)
        cleared = f"cleared: {counted(done.total, 'turn')} dropped"
        said: Line = ((cleared if done.moved else "there is nothing to clear", "bold"),)
        return Shown([said, *turn_lines(turns)], {**moved_row(session_id, done.moved, left), "dryRun": False})

    return Plan(
        what if turns else "",
        Shown([would, *turn_lines(turns)], {**moved_row(session_id, None, leaf), "dryRun": True}),
        go,
        verb="drop",
    )


@click.command()
@click.argument("session")
@json_option
@click.pass_obj
def retry(place: Place, session: str, as_json: bool) -> None:
    """Take the last user message of SESSION back with all that follows, and print it to be sent again."""

    async def work(talk: Conversation) -> tuple[str, Retried | None, str | None]:
        return talk.session.id, await talk.retry(), talk.session.leaf_id

    session_id, done, leaf = _talk(place, session, work)
    row = moved_row(session_id, done.moved if done else None, leaf)
    row["message"] = done.message if done else None
    if done is None:
        tell("there is nothing to retry")
    if as_json:
        print_json(row)
    elif done is not None:
        print_lines([((line, ""),) for line in done.text.splitlines()])


@click.command()
@click.argument("session")
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.pass_obj
def save(place: Place, session: str, file: Path | None) -> None:
    """Write what was said in SESSION as Markdown into a new FILE, for its owner alone, or print it."""
    _put(_talk(place, session, lambda talk: talk.save()), file)


@click.command()
@click.argument("session")
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.pass_obj
def snapshot(place: Place, session: str, file: Path | None) -> None:
    """Write the full state of SESSION as JSON into a new FILE, for its owner alone, or print it."""
    state = _talk(place, session, lambda talk: talk.snapshot())
    if file is None:
        print_json(state)
    else:
        import json

        _put(json.dumps(state, ensure_ascii=False, indent=2) + "\n", file)


def _put(text: str, file: Path | None) -> None:
    if file is None:
        print_document(text)
        return
    write_private(str(file), text)
    print_lines([((f"written to {file}", ""),)])
