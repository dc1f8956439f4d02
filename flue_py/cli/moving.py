"""Commands that change a session without touching its history: fork, move, rewind, undo, redo, label."""

from __future__ import annotations

import click

from flue_py.cli.log import why_option
from flue_py.cli.marking import context_change
from flue_py.cli.output import json_option, print_result
from flue_py.cli.place import Place
from flue_py.cli.running import leaf_of, run
from flue_py.core.sessions import Moved, SessionInfo
from flue_py.core.turns import kept_turns
from flue_py.errors import InvalidArgument
from flue_py.render.rows import moved_row, session_row
from flue_py.runtime.finding import find_session
from flue_py.sessions.store import Store

_BY = "flue-py"


@click.command()
@click.argument("session")
@click.option("--at", metavar="ENTRY", help="Begin at this entry; at the leaf otherwise.")
@click.option("--key", help="What an application opens the new session by.")
@click.option("--title", help="The title of the new session.")
@json_option
@click.pass_obj
def fork(place: Place, session: str, at: str | None, key: str | None, title: str | None, as_json: bool) -> None:
    """Make a new session that begins at an entry of SESSION. Nothing is copied, and SESSION stays as it is."""

    async def work(store: Store) -> tuple[SessionInfo, str]:
        found = await find_session(store, session)
        made = await found.fork(at=await leaf_of(found, at), key=key, title=title)
        return made.info, await made.name()

    info, name = run(place, work)
    print_result(f"session {info.id} begins at {_place(info.leaf_id)}", session_row(info, name), as_json=as_json)


@click.command()
@click.argument("session")
@click.argument("entry", required=False)
@click.option("--before-first", is_flag=True, help="Go to before the first entry: what is appended next is a new root.")
@why_option
@json_option
@click.pass_obj
def move(place: Place, session: str, entry: str | None, before_first: bool, why: str | None, as_json: bool) -> None:
    """Set the leaf of SESSION to ENTRY, on any branch."""
    if (entry is None) != before_first:
        raise click.UsageError("name an ENTRY, or give --before-first")

    async def work(store: Store) -> tuple[str, Moved | None, str | None]:
        found = await find_session(store, session)
        target = None if entry is None else await found.resolve_entry_id(entry)
        return found.id, await found.move_leaf(to=target, by=_BY, why=why), found.leaf_id

    _print_moved(*run(place, work), as_json=as_json)


@click.command()
@click.argument("session")
@click.option("--to", metavar="ENTRY", help="The entry on the active path that becomes the leaf.")
@click.option("--turns", metavar="N", help="Keep this many turns; with a minus, drop that many at the end.")
@why_option
@json_option
@click.pass_obj
def rewind(place: Place, session: str, to: str | None, turns: str | None, why: str | None, as_json: bool) -> None:
    """Go back on the active path of SESSION. Nothing is deleted, and undo takes it back."""
    if (to is None) == (turns is None):
        raise click.UsageError("give either --to ENTRY or --turns N")
    if turns is not None:
        _check_turns(turns)

    async def work(store: Store) -> tuple[str, Moved | None, str | None]:
        found = await find_session(store, session)
        if to is not None:
            return found.id, await found.rewind(to=await found.resolve_entry_id(to), by=_BY, why=why), found.leaf_id
        kept = kept_turns(turns or "", len(await found.turns()))
        return found.id, await found.rewind(turns=kept, by=_BY, why=why), found.leaf_id

    _print_moved(*run(place, work), as_json=as_json, nothing="there is nothing to go back over")


def _check_turns(turns: str) -> None:
    try:
        kept_turns(turns, 0)
    except InvalidArgument as error:
        raise click.BadParameter(str(error), param_hint="--turns") from error


@click.command()
@click.argument("session")
@click.option("--turn", is_flag=True, help="Take the whole last turn back: the last user message and what followed.")
@why_option
@json_option
@click.pass_obj
def undo(place: Place, session: str, turn: bool, why: str | None, as_json: bool) -> None:
    """Return the leaf of SESSION to where it was before its last operation, or before its last turn.

    Nothing is deleted: undo takes back what --turn did, too, and redo does again what undo took back.
    """

    async def work(store: Store) -> tuple[str, Moved | None, str | None]:
        found = await find_session(store, session)
        if not turn:
            moved = await found.undo(by=_BY, why=why)
        elif await found.turns():
            moved = await found.rewind(turns=-1, by=_BY, why=why)
        else:
            moved = None
        return found.id, moved, found.leaf_id

    _print_moved(*run(place, work), as_json=as_json, nothing="there is nothing to undo")


@click.command()
@click.argument("session")
@why_option
@json_option
@click.pass_obj
def redo(place: Place, session: str, why: str | None, as_json: bool) -> None:
    """Do again what was undone last in SESSION."""

    async def work(store: Store) -> tuple[str, Moved | None, str | None]:
        found = await find_session(store, session)
        return found.id, await found.redo(by=_BY, why=why), found.leaf_id

    _print_moved(*run(place, work), as_json=as_json, nothing="there is nothing to do again")


def _print_moved(
    session_id: str, moved: Moved | None, leaf: str | None, *, as_json: bool, nothing: str = "nothing moved"
) -> None:
    text = f"{nothing}; the leaf is {_place(leaf)}"
    if moved is not None:
        text = f"{moved.reason}: the leaf went from {_place(moved.from_id)} to {_place(moved.to_id)}"
    print_result(text, moved_row(session_id, moved, leaf), as_json=as_json)


def _place(entry_id: str | None) -> str:
    return "before the first entry" if entry_id is None else entry_id


@click.command()
@click.argument("session")
@click.argument("entry")
@click.argument("text", required=False)
@click.option("--clear", is_flag=True, help="Take the label away.")
@why_option
@json_option
@click.pass_obj
def label(
    place: Place, session: str, entry: str, text: str | None, clear: bool, why: str | None, as_json: bool
) -> None:
    """Call ENTRY of SESSION by TEXT, in this session's views."""
    if bool(text) == clear:
        raise click.UsageError("give the TEXT of the label, or --clear")

    async def work(store: Store) -> tuple[str, str, int]:
        found = await find_session(store, session)
        entry_id = await found.resolve_entry_id(entry)
        await found.set_label(entry_id, text, by=_BY, why=why)
        from flue_py.context.tokens import count_tokens

        return found.id, entry_id, 0 if as_json else count_tokens(await found.build_context()).tokens

    session_id, entry_id, tokens = run(place, work)
    said = f"entry {entry_id} is called {text}" if text else f"entry {entry_id} has no label"
    print_result(
        f"{said}; {context_change(tokens, tokens)}",
        {"sessionId": session_id, "entryId": entry_id, "label": text},
        as_json=as_json,
    )
