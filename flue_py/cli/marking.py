"""Commands that pin entries, and that leave them out of the context, with what that does to it in tokens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

import click

from flue_py.cli.log import why_option
from flue_py.cli.output import json_option, print_result
from flue_py.cli.place import Place
from flue_py.cli.running import run
from flue_py.core.jsontext import JsonObject
from flue_py.render.lines import counted
from flue_py.runtime.finding import find_session
from flue_py.sessions.marking import MarkEffect
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

_BY = "flue-py"
_Action = Literal["pinned", "unpinned", "excluded", "included"]

part_option = click.option("--part", metavar="PART", help="Only this part of its content: a position from 0, or an id.")


async def marks_of(found: Session) -> dict[str, str]:
    """Return the marks of a session's entries as a tree shows them: the label, and whether pinned or excluded."""
    said = {entry_id: [text] for entry_id, text in (await found.labels()).items()}
    for entry_id in await found.pins():
        said.setdefault(entry_id, []).append("pinned")
    for exclusion in await found.exclusions():
        if exclusion.in_effect:
            out = "excluded" if exclusion.part is None else f"part {exclusion.part} excluded"
            said.setdefault(exclusion.entry_id, []).append(out)
    return {entry_id: ", ".join(words) for entry_id, words in said.items()}


def context_change(before: int, after: int) -> str:
    """Return what became of a context's size in words: ``context 12,345 -> 11,002 tokens (-1,343)``."""
    if before == after:
        return f"context {counted(after, 'token')}, unchanged"
    return f"context {before:,} -> {counted(after, 'token')} ({after - before:+,})"


def _mark(
    place: Place,
    session: str,
    entry: str,
    action: _Action,
    do: Callable[[Session, str], Awaitable[MarkEffect]],
    *,
    as_json: bool,
) -> None:
    async def work(store: Store) -> tuple[str, str, MarkEffect]:
        found = await find_session(store, session)
        entry_id = await found.resolve_entry_id(entry)
        return found.id, entry_id, await do(found, entry_id)

    session_id, entry_id, effect = run(place, work)
    before, after = effect.tokens_before, effect.tokens_after
    others = len(effect.entry_ids) - 1
    text = f"{action} entry {entry_id}" + (f" and {others} that belong to it" if others else "")
    if action == "pinned":
        text += f" ({counted(effect.own_tokens, 'token')} that every later compaction keeps)"
    row: JsonObject = {
        "sessionId": session_id,
        "entryId": entry_id,
        "entryIds": [*effect.entry_ids],
        "exclusionIds": [*effect.exclusion_ids],
        "tokensBefore": before,
        "tokensAfter": after,
        "ownTokens": effect.own_tokens,
    }
    print_result(f"{text}; {context_change(before, after)}", row, as_json=as_json)


@click.command()
@click.argument("session")
@click.argument("entry")
@why_option
@json_option
@click.pass_obj
def pin(place: Place, session: str, entry: str, why: str | None, as_json: bool) -> None:
    """Have every later compaction of SESSION keep ENTRY word for word, a tool call with its results."""

    async def do(found: Session, entry_id: str) -> MarkEffect:
        return await found.pin(entry_id, by=_BY, why=why)

    _mark(place, session, entry, "pinned", do, as_json=as_json)


@click.command()
@click.argument("session")
@click.argument("entry")
@why_option
@json_option
@click.pass_obj
def unpin(place: Place, session: str, entry: str, why: str | None, as_json: bool) -> None:
    """Let the next compaction of SESSION summarize ENTRY again."""

    async def do(found: Session, entry_id: str) -> MarkEffect:
        return await found.unpin(entry_id, by=_BY, why=why)

    _mark(place, session, entry, "unpinned", do, as_json=as_json)


@click.command()
@click.argument("session")
@click.argument("entry")
@part_option
@why_option
@json_option
@click.pass_obj
def exclude(place: Place, session: str, entry: str, part: str | None, why: str | None, as_json: bool) -> None:
    """Leave ENTRY of SESSION, or a part of it, out of the context. What follows stays, and undo takes it back."""

    async def do(found: Session, entry_id: str) -> MarkEffect:
        return await found.exclude(entry_id, _part(part), by=_BY, why=why)

    _mark(place, session, entry, "excluded", do, as_json=as_json)


@click.command()
@click.argument("session")
@click.argument("entry")
@part_option
@why_option
@json_option
@click.pass_obj
def include(place: Place, session: str, entry: str, part: str | None, why: str | None, as_json: bool) -> None:
    """Take ENTRY, or a part of it, back into the context of SESSION."""

    async def do(found: Session, entry_id: str) -> MarkEffect:
        return await found.include(entry_id, _part(part), by=_BY, why=why)

    _mark(place, session, entry, "included", do, as_json=as_json)


def _part(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else text
