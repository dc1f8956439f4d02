"""The append command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import cast

import click

from flue_py.cli.choosing import BY, SESSION_NAME
from flue_py.cli.expecting import expected_option, idempotency_option
from flue_py.cli.given import json_from_stdin, text_from_stdin
from flue_py.cli.output import Answer
from flue_py.cli.place import Place
from flue_py.cli.running import command, run
from flue_py.core.entries import checked_source
from flue_py.core.jsontext import JsonObject
from flue_py.core.limits import DEFAULT_LIMITS
from flue_py.core.sessions import Appended, LeafChoice, OnConflict, check_name
from flue_py.errors import FlueError, InvalidEntry, LeafConflict, shown
from flue_py.render.lines import counted
from flue_py.sessions.incoming import incoming_messages
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

_ROLES = ("user", "assistant", "system", "developer")


def _check(text: str | None, role: str | None, create: bool, expected: LeafChoice, **_: object) -> None:
    if text is None and role is not None:
        raise click.UsageError("--role is for TEXT; JSON on standard input says its own")
    if text is None and sys.stdin.isatty():
        raise click.UsageError("give TEXT, or a message as JSON on standard input")
    if create and isinstance(expected, str):
        raise click.UsageError("--create is for a session that may be new, which has no leaf to be --expected")


@command(check=_check)
@click.argument("session", type=SESSION_NAME)
@click.argument("text", required=False)
@click.option("--role", type=click.Choice(_ROLES), help="Who says TEXT (default: user).")
@expected_option
@click.option(
    "--on-conflict",
    type=click.Choice(["raise", "branch", "rebase"]),
    default="raise",
    show_default=True,
    help="Where the leaf is not the one expected: nothing, a branch below it, or below the leaf that is there.",
)
@click.option("--note-conflict", is_flag=True, help="Note in the log of SESSION that the append was refused.")
@idempotency_option
@click.option("--source", metavar="TEXT", help="How it came in: prompt, skill, shell, task, retry.")
@click.option("--create", is_flag=True, help="Create the session with this key, and the database, if missing.")
def append(
    place: Place,
    session: str,
    text: str | None,
    role: str | None,
    expected: LeafChoice,
    on_conflict: OnConflict,
    note_conflict: bool,
    idempotency_key: str | None,
    source: str | None,
    create: bool,
) -> Answer:
    """Append a message below the leaf of SESSION, and print the id of its entry.

    TEXT is what is said; "-" reads it from standard input. Without TEXT, standard input has a message as JSON, or a
    list of them, in our form or in that of a provider. All of them are appended, or none.

    The entry is the leaf from then on; of several, the id of the last is printed. "-" takes its text as it is, with
    the end of its last line. Input ends at 64,000,000 bytes. A key of --idempotency-key with other content is exit
    code 6. A conflict that --note-conflict notes is in the log with both leaves, and one of the events; nothing
    else is changed.

    With --json: an object: sessionId, entryId, entryIds, parentId, leafId, revision, onBranch, replayed,
    surrogatesReplaced, oddities.
    """
    messages = _messages_in() if text is None else [_message(text, role)]
    _refuse_what_cannot_be_stored(messages, source, idempotency_key)

    async def work(store: Store) -> Answer:
        found = await _found(store, session, create=create)
        try:
            done = await store.append_messages(
                found,
                messages,
                source=source,
                idempotency_key=idempotency_key,
                on_conflict=on_conflict,
                expected_leaf=expected,
            )
        except LeafConflict as conflict:
            if note_conflict:
                await _note(found, conflict)
            raise
        return _answer(found, done)

    return run(place, work, create=create)


def _refuse_what_cannot_be_stored(messages: Sequence[JsonObject], source: str | None, key: str | None) -> None:
    """Raise what the append would, before a database or a session is made for it."""
    check_name(key, "idempotency_key")
    DEFAULT_LIMITS.check_entries(incoming_messages(messages, source).entries)
    checked_source(source)


async def _note(session: Session, conflict: LeafConflict) -> None:
    """Note a refusal in the session's log: metadata that are merged with nothing stay as they are."""
    why = f"append refused: it builds on leaf {shown(conflict.expected)}, and the leaf is {shown(conflict.actual)}"
    try:
        await session.set_metadata({}, merge=True, by=BY, why=why)
    except FlueError as error:
        conflict.add_note(f"this could not be noted in the log: {error}")


async def _found(store: Store, name: str, *, create: bool) -> Session:
    return await store.open_session(name, mode="get_or_create") if create else await store.find_session(name)


def _message(text: str, role: str | None) -> JsonObject:
    content = text_from_stdin("TEXT") if text == "-" else text
    if not content.strip():
        raise InvalidEntry("TEXT: it is empty, and nothing was appended")
    return {"role": role or "user", "content": content}


def _messages_in() -> Sequence[JsonObject]:
    given = json_from_stdin("message")
    messages = given if isinstance(given, list) else [given]
    for message in messages:
        if not isinstance(message, dict):
            raise InvalidEntry(f"message: {shown(message)} is no JSON object with a role")
    if not messages:
        raise InvalidEntry("message: the list on standard input is empty, and nothing was appended")
    return cast("Sequence[JsonObject]", messages)


def _answer(session: Session, done: Appended) -> Answer:
    notes = [*done.oddities]
    if done.surrogates_replaced:
        notes.append(f"{counted(done.surrogates_replaced, 'lone surrogate')} replaced")
    row: JsonObject = {
        "sessionId": session.id,
        "entryId": done.entry_id,
        "entryIds": [*done.entry_ids],
        "parentId": done.parent_id,
        "leafId": done.leaf_id,
        "revision": done.revision,
        "onBranch": done.on_branch,
        "replayed": done.replayed,
        "surrogatesReplaced": done.surrogates_replaced,
        "oddities": [*done.oddities],
    }
    return Answer(lambda: [((done.entry_id, ""),)], lambda: row, notes=notes)
