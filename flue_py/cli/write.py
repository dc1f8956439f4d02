"""The append command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Literal, cast

import click

from flue_py.cli import command as cli
from flue_py.cli.command import Answer
from flue_py.cli.main import Place
from flue_py.core.entries import checked_source
from flue_py.core.json import JsonObject
from flue_py.core.sessions import DEFAULT_LIMITS, Appended, LeafChoice, OnConflict, check_name
from flue_py.errors import FlueError, InvalidEntry, LeafConflict, SessionNotFound, shown
from flue_py.lazy import lazy_module
from flue_py.render.lines import counted
from flue_py.render.views import row_of, session_row
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.sessions.write import incoming_messages

if TYPE_CHECKING:
    from flue_py.core import messages
else:
    messages = lazy_module("flue_py.core.messages")

# ---------------------------------------------------------------------------------------------------------------------
# The append command.


_ROLES = ("user", "assistant", "system", "developer")


def _check(options: SimpleNamespace) -> None:
    if options.text is None and options.role is not None:
        raise click.UsageError("--role is for TEXT; JSON on standard input says its own")
    cli.refuse(options.text is None and sys.stdin.isatty(), "give TEXT, or a message as JSON on standard input")
    if options.create and isinstance(options.expected, str):
        raise click.UsageError("--create is for a session that may be new, which has no leaf to be --expected")


@cli.command(check=_check)
@click.argument("session", type=cli.SESSION_NAME)
@click.argument("text", required=False)
@click.option("--role", type=click.Choice(_ROLES), help="Who says TEXT (default: user).")
@cli.expected_option
@click.option(
    "--on-conflict",
    type=click.Choice(["raise", "branch", "rebase"]),
    default="raise",
    show_default=True,
    help="Where the leaf is not the one expected: nothing, a branch below it, or below the leaf that is there.",
)
@click.option("--note-conflict", is_flag=True, help="Note in the log of SESSION that the append was refused.")
@cli.idempotency_option
@cli.schema_option("Print the JSON Schema of a message, without a database.", lambda: messages.message_schema())  # noqa: PLW0108 - not imported before
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
    # The errors of the append, before a database or a session is made for it.
    check_name(idempotency_key, "idempotency_key")
    DEFAULT_LIMITS.check_entries(incoming_messages(messages, source).entries)
    checked_source(source)

    async def work(store: Store) -> Answer:
        target = await (store.open_session(session, mode="get_or_create") if create else store.find_session(session))
        try:
            done = await store.append_messages(
                target,
                messages,
                source=source,
                idempotency_key=idempotency_key,
                on_conflict=on_conflict,
                expected_leaf=expected,
            )
        except LeafConflict as conflict:
            if note_conflict:
                await _note(target, conflict)
            raise
        return _answer(target, done)

    return cli.run(place, work, create=create)


async def _note(session: Session, conflict: LeafConflict) -> None:
    """Note a refusal in the session's log: metadata that are merged with nothing stay as they are."""
    why = f"append refused: it builds on leaf {shown(conflict.expected)}, and the leaf is {shown(conflict.actual)}"
    try:
        await session.set_metadata({}, merge=True, by=cli.BY, why=why)
    except FlueError as error:
        conflict.add_note(f"this could not be noted in the log: {error}")


def _message(text: str, role: str | None) -> JsonObject:
    content = cli.text_from_stdin("TEXT") if text == "-" else text
    if not content.strip():
        raise InvalidEntry("TEXT: it is empty, and nothing was appended")
    return {"role": role or "user", "content": content}


def _messages_in() -> Sequence[JsonObject]:
    value = cli.json_from_stdin("message")
    messages = value if isinstance(value, list) else [value]
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
    names = "entry_id entry_ids parent_id leaf_id revision on_branch replayed surrogates_replaced oddities"
    row: JsonObject = {"sessionId": session.id, **row_of(done, names)}
    return Answer(lambda: [((done.entry_id, ""),)], lambda: row, notes=notes)


# ---------------------------------------------------------------------------------------------------------------------
# The new command.


def _new_check(options: SimpleNamespace) -> None:
    cli.refuse(options.if_missing and options.key is None, "--if-missing is for a --key")


@cli.command(check=_new_check, create=True)
@click.option("--key", help="What it is opened by: unique in its scope.")
@click.option("--title", help="Its title.")
@cli.scope_option
@cli.project_option("The folder that it works in.")
@click.option("--if-missing", is_flag=True, help="Where the key is there already, print that session's id.")
async def new(store: Store, key: str | None, title: str | None, project: str | None, if_missing: bool) -> Answer:
    """Create a session, and print its id. A database that is missing is made.

    A key that is taken is exit code 6. With --if-missing, all who run it at once print the same id. With --json:
    the session, as in sessions.
    """
    if key is not None and if_missing:
        session = await store.open_session(key, mode="get_or_create", title=title, cwd=project)
    else:
        session = await store.create_session(key=key, title=title, cwd=project)
    return cli.said(session.id, session_row(session.info, await session.reports.name()))


# ---------------------------------------------------------------------------------------------------------------------
# The task command.


def _task_check(options: SimpleNamespace) -> None:
    cli.refuse(options.end is None and options.summary is not None, "--summary is for --end")
    if options.end is not None and (options.title is not None or options.key is not None):
        raise click.UsageError("--title and --key are for a new task; leave them out with --end")


@cli.command(check=_task_check)
@cli.session_argument
@click.argument("task_id", metavar="TASK")
@click.option("--key", help="What the task session is opened by: unique in its scope.")
@click.option("--title", help="Its title.")
@click.option("--end", type=click.Choice(["done", "failed"]), help="Say how it ended, instead of creating it.")
@click.option("--summary", metavar="TEXT", help="With --end: what came of it.")
@cli.expected_option
async def task(
    store: Store,
    session: Session,
    task_id: str,
    key: str | None,
    title: str | None,
    end: Literal["done", "failed"] | None,
    summary: str | None,
    expected: LeafChoice,
) -> Answer:
    """Create the task session that SESSION calls TASK, and print its id; the same TASK, the same session.

    With --expected, the leaf of SESSION is compared; with --end, that of the task session.

    With --json: the task session, as in sessions.
    """
    if end is None:
        child = await session.tasks.create(task_id=task_id, key=key, title=title, expected_leaf=expected)
    else:
        child = await _task_of(store, session, task_id)
        await child.tasks.end(end, summary=summary, by="flue-py", expected_leaf=expected)
    return cli.said(child.id, session_row(child.info, await child.reports.name()))


async def _task_of(store: Store, session: Session, task_id: str) -> Session:
    for link in await session.tasks.links():
        if link.task_id == task_id:
            child = await store.get_session(link.child_id)
            if child is not None:
                return child
    raise SessionNotFound(
        task_id, detail=f"session {session.id!r} has no task {shown(task_id)}; flue-py show lists those it has"
    )
