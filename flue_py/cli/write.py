"""Commands that write, make branches, bring them together, and move the leaf."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Literal, cast

import click
from msgspec.structs import replace

from flue_py.cli import command as cli
from flue_py.cli.command import Answer
from flue_py.cli.main import Place
from flue_py.core.context import kept_turns
from flue_py.core.entries import checked_source
from flue_py.core.json import JsonObject
from flue_py.core.kinds import message_text
from flue_py.core.sessions import DEFAULT_LIMITS, Appended, LeafChoice, LogLine, OnConflict, check_name
from flue_py.errors import FlueError, InvalidArgument, InvalidEntry, LeafConflict, SessionNotFound, shown
from flue_py.lazy import lazy_module
from flue_py.render.lines import Line, Span, counted, one_line, table, text_of
from flue_py.render.views import log_lines, log_row, minute, moved_row, row_of, session_row
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.sessions.write import incoming_messages

if TYPE_CHECKING:
    from flue_py import models
    from flue_py.agents import harness
    from flue_py.compaction import settings
    from flue_py.compaction.settings import CompactionSettings
    from flue_py.core import messages
    from flue_py.core.files import FileCheckpoint, RestoredFiles
else:
    harness = lazy_module("flue_py.agents.harness")
    messages = lazy_module("flue_py.core.messages")
    models = lazy_module("flue_py.models")
    settings = lazy_module("flue_py.compaction.settings")

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


# ---------------------------------------------------------------------------------------------------------------------
# The cherry-pick command.


@cli.command()
@cli.session_argument
@click.argument("entries", metavar="ENTRY...", type=cli.ENTRY_NAME, nargs=-1, required=True)
@click.option(
    "--from", "source", metavar="SESSION", type=cli.SESSION, help="The session to copy from (default: SESSION itself)."
)
async def cherry_pick(session: Session, entries: tuple[str, ...], source: Session | None) -> Answer:
    """Append copies of entries of another branch or session below the leaf of SESSION.

    A tool call and its result come together. Costs are not counted again. Repeating the command changes nothing.

    The copies are in order of depth. With --json: an object: sessionId, entryIds, leafId, replayed (whether they
    were there already).
    """
    there = source or session
    done = await session.branches.cherry_pick([await there.resolve_entry_id(entry) for entry in entries], source=there)
    copies = counted(len(done.entry_ids), "entry", "entries")
    outcome = "were there already; nothing was changed" if done.replayed else "copied"
    return cli.appended(session, f"{copies} {outcome}; the leaf is {done.leaf_id}", done)


# ---------------------------------------------------------------------------------------------------------------------
# The files command.


def _files_check(options: SimpleNamespace) -> None:
    cli.refuse((options.yes or options.force) and not options.restore, "--yes and --force are for --restore")
    cli.refuse(options.at is not None and not (options.diff or options.restore), "--at is for --diff and --restore")


@cli.command(check=_files_check)
@cli.session_argument
@click.option("--at", metavar="ENTRY", type=cli.LEAF, help="As they were at this entry (default: the leaf).")
@click.option("--diff", is_flag=True, help="Show how files differ from that.")
@click.option("--restore", is_flag=True, help="Bring files back; without --yes, only say which.")
@click.option("--yes", is_flag=True, help="Change files.")
@click.option("--force", is_flag=True, help="Also files that were changed by other means; what has to stay stays.")
@cli.project_option("The folder that the files are in (default: that of SESSION).")
async def files(
    session: Session, at: LeafChoice, diff: bool, restore: bool, yes: bool, force: bool, project: str | None
) -> Answer:
    """List the checkpoints of the files that tools of SESSION edited, or bring files back to how they were.

    How they are now is stored first, and undo takes it back. The leaf is not moved.

    With --json: a list of checkpoints (entryId, sequence, reason, maxSnapshots, createdAt, files); with --diff or
    --restore an object: sessionId, checkpoint, changes (a list of name, what, insertions, deletions, outside, problem,
    diff), untracked, done.
    """
    if not diff and not restore:
        checkpoints = await session.files.checkpoints()
        return Answer(lambda: _checkpoint_lines(checkpoints), lambda: [checkpoint.json for checkpoint in checkpoints])
    result = await session.files.restore(at, root=project, dry_run=not yes, force=force)
    row: JsonObject = {"sessionId": session.id, "checkpoint": result.checkpoint.json, "done": result.done}
    row |= {"changes": [change.json for change in result.changes], "untracked": [*result.untracked]}
    notes = ["nothing was changed; give --yes to restore"] if restore and result.changes and not yes else []
    return Answer(lambda: _change_lines(result, is_whole=diff), lambda: row, notes=notes)


def _checkpoint_lines(checkpoints: Sequence[FileCheckpoint]) -> list[Line]:
    if not checkpoints:
        return cli.plain_lines("there are no checkpoints of files")
    rows: list[list[Span]] = [[(name, "dim") for name in ("entry", "number", "made", "reason", "files")]]
    for point in checkpoints:
        about = (f"{point.sequence}", minute(point.created_at), point.reason, f"{len(point.files)}")
        rows.append([(point.entry_id, "bold"), *((text, "") for text in about)])
    return table(rows, right=frozenset({1, 4}))


def _change_lines(result: RestoredFiles, *, is_whole: bool) -> list[Line]:
    lines: list[Line] = []
    for change in result.changes:
        counts = "" if change.lines is None else " +{} -{}".format(*change.lines)
        why = change.problem or ("changed by other means" if change.is_outside else "")
        lines.append(((change.what, "bold"), (f" {one_line(change.name)}{counts}{why and f' ({why})'}", "")))
        lines += cli.plain_lines(change.diff) if is_whole and change.problem is None else []
    return lines or cli.plain_lines("files are as they were then")


# ---------------------------------------------------------------------------------------------------------------------
# The fork command.


def _fork_check(options: SimpleNamespace) -> None:
    if options.branches and options.at is not None:
        raise click.UsageError("--branches copies all of SESSION, with its leaf; leave --at out")


@cli.command(check=_fork_check)
@cli.session_argument
@click.option("--at", metavar="ENTRY", type=cli.LEAF, help="Begin at this entry (default: the leaf).")
@click.option("--branches", is_flag=True, help="Copy all of SESSION, the branches beside the path, too.")
@click.option("--key", help="The key of the new session, by which a program opens it.")
@click.option("--title", help="The title of the new session.")
@cli.project_option("The folder that the new session works in (default: that of SESSION).")
async def fork(
    session: Session, at: LeafChoice, branches: bool, key: str | None, title: str | None, project: str | None
) -> Answer:
    """Create a session that begins at an entry of SESSION, which does not change.

    Nothing is copied. With --branches the new session has all of SESSION as entries, labels and pins of its own.

    With --branches the copies have the ids of their originals. With --json: the new session, as in sessions.
    """
    if branches:
        target = await session.copy(key=key, title=title, cwd=project)
    else:
        target = await session.fork(at=at, key=key, title=title, cwd=project)
    info = target.info
    return cli.said(
        f"session {info.id} begins at {cli.shown_leaf(info.leaf_id)}", session_row(info, await target.reports.name())
    )


# ---------------------------------------------------------------------------------------------------------------------
# The merge-back command.


def _summary_in(ctx: click.Context, param: click.Parameter, summary: str | None) -> str | None:
    if summary is None:
        return None
    text = cli.text_from_stdin("--summary").strip() if summary == "-" else summary
    cli.refuse(not text.strip(), "the summary is empty")
    return text


def _merge_back_check(options: SimpleNamespace) -> None:
    cli.refuse((options.summary is None) != options.summarize, "give --summary, or --summarize to have one made")
    _check_summary(options)


def _summary_settings(model: str | None) -> CompactionSettings:
    return settings.CompactionSettings(mode="llm" if model else "intent")


def _check_summary(options: SimpleNamespace) -> None:
    if not options.summarize and (options.mode or options.model or options.instructions):
        raise click.UsageError("--mode, --model and --instructions are for --summarize")


@cli.command(check=_merge_back_check)
@cli.session_argument
@click.argument("source", type=cli.SESSION_NAME)
@click.option("--summary", metavar="TEXT", callback=_summary_in, help="The summary; - reads it from standard input.")
@click.option("--summarize", is_flag=True, help="Have the summary made.")
@cli.summary_options
async def merge_back(
    store: Store,
    session: Session,
    source: str,
    summary: str | None,
    summarize: bool,
    mode: str | None,
    model: str | None,
    instructions: str | None,
) -> Answer:
    """Append a summary of what SOURCE did since it left SESSION, below the leaf of SESSION.

    SOURCE is a fork or a task session, SESSION@ENTRY, or @ENTRY on another branch of SESSION. Repeating the command
    changes nothing.

    If the summary that --summarize asks for fails, nothing changes. With --json: as cherry-pick.
    """
    there, leaf = await cli.end_of(store, source, session)
    done = await session.branches.merge_back(
        summary,
        source=there,
        source_leaf=leaf,
        model=models.open_model(model) if model else None,
        mode=mode,
        settings=_summary_settings(model) if summarize else None,
        instructions=instructions,
    )
    outcome = "was there already; nothing was changed" if done.replayed else "appended"
    return cli.appended(session, f"summary {done.entry_id} {outcome}", done)


# ---------------------------------------------------------------------------------------------------------------------
# The move command.


def _move_check(options: SimpleNamespace) -> None:
    if (options.entry is not None) + options.before_first + (options.turns is not None) != 1:
        raise click.UsageError("name an ENTRY, or give --before-first or --turns N")
    cli.refuse(options.summarize and options.entry is None, "--summarize goes to an ENTRY")
    if options.turns is not None:
        try:
            kept_turns(options.turns, 0)
        except InvalidArgument as error:
            raise click.BadParameter(str(error), param_hint="--turns") from error
    _check_summary(options)


@cli.command(check=_move_check)
@cli.session_argument
@click.argument("entry", type=cli.ENTRY, required=False)
@click.option("--before-first", is_flag=True, help="Move before the first entry: the next entry is a new root.")
@click.option("--turns", metavar="N", help="Keep the first N turns of the active path; -N drops the last N.")
@click.option("--summarize", is_flag=True, help="Append a summary of what is left below ENTRY.")
@cli.summary_options
@cli.why_option
async def move(
    session: Session,
    entry: str | None,
    before_first: bool,
    turns: str | None,
    summarize: bool,
    mode: str | None,
    model: str | None,
    instructions: str | None,
    why: str | None,
) -> Answer:
    """Set the leaf of SESSION to ENTRY, on any branch, or go back over turns. Nothing is deleted, and undo reverses it.

    --turns 0 drops all turns, -0 none; a number out of range is clamped. Entries before the first turn stay.

    With --summarize, what the path has below the common ancestor is summarized in one entry at the new leaf; if ENTRY
    is a message of the user, that is its parent. If the summary fails, nothing changes.

    With --json: an object: sessionId, moved, reason, fromId, leafId; with --summarize sessionId, fromId, leafId,
    summaryId.
    """
    if turns is not None:
        count = kept_turns(turns, len(await session.turns()))
        done = await session.rewind(turns=count, by=cli.BY, why=why)
        return cli.moved(session, done, nothing="there is nothing to go back over")
    if not summarize or entry is None:
        return cli.moved(session, await session.move_leaf(to=entry, by=cli.BY, why=why))
    went = await session.navigate(
        entry,
        by=cli.BY,
        why=why,
        model=models.open_model(model) if model else None,
        mode=mode,
        settings=_summary_settings(model),
        instructions=instructions,
    )
    text = f"the leaf went from {cli.shown_leaf(went.from_id)} to {cli.shown_leaf(went.to_id)}"
    if went.summary_id is not None:
        text += f", the summary of what was left: entry {went.summary_id}"
    return cli.said(
        text, {"sessionId": session.id, "fromId": went.from_id, "leafId": went.to_id, "summaryId": went.summary_id}
    )


# ---------------------------------------------------------------------------------------------------------------------
# The redo command.


@cli.command()
@cli.session_argument
@cli.why_option
async def redo(session: Session, why: str | None) -> Answer:
    """Redo what was undone last in SESSION.

    With --json: as move; moved is false if there was nothing to redo.
    """
    return cli.moved(
        session, await harness.redo_last(session, by=cli.BY, why=why), nothing="there is nothing to do again"
    )


# ---------------------------------------------------------------------------------------------------------------------
# The undo command.


def _undo_check(options: SimpleNamespace) -> None:
    cli.refuse(options.turn and options.to is not None, "give either --turn or --to REVISION")
    cli.refuse(options.message and not options.turn, "--message is for --turn")
    cli.refuse(options.before and options.to is None, "--before is for --to REVISION")


@cli.command(check=_undo_check)
@cli.session_argument
@click.option("--turn", is_flag=True, help="Undo the whole last turn: the last user message and what followed.")
@click.option("--message", is_flag=True, help="With --turn: print the user message, to be sent again.")
@click.option(
    "--to",
    metavar="REVISION",
    type=click.IntRange(min=0),
    help="Restore the leaf, title, label or pin that this line of the log set.",
)
@click.option("--before", is_flag=True, help="With --to: restore the state before that line instead.")
@cli.why_option
async def undo(session: Session, turn: bool, message: bool, to: int | None, before: bool, why: str | None) -> Answer:
    """Take back what was done last to SESSION: a move of the leaf, or an edit of a title, label or pin.

    Nothing is deleted. undo also reverses undo --turn and undo --to, and redo reverses undo.

    An append, a move, a retraction or an import is undone by setting the leaf back; an edit of a title, the
    metadata, a label or a pin if somebody is named for it. undo --turn is one operation of the log, the same as
    move --turns -1. REVISION 0 is the session as it was created. With --json: as move; moved is false if there was
    nothing to undo, or if an edit was undone, whose new line of the log is line. With --turn also message, the user
    message whole (null if there was none). With --to an object: sessionId, changed, line (the new line, or null).
    """
    if to is not None:
        return _restored(session, await session.go_back(to=to, before=before, by=cli.BY, why=why))
    if not turn:
        return cli.moved(
            session, await harness.undo_last(session, by=cli.BY, why=why), nothing="there is nothing to undo"
        )
    turns = await session.turns()
    done = await session.rewind(turns=-1, by=cli.BY, why=why) if turns else None
    answer = cli.moved(session, done, nothing="there is nothing to undo")
    fields = None if done is None else turns[-1].fields
    row = {**moved_row(session.id, done, session.leaf_id), "message": fields}
    if not message:
        return replace(answer, row=lambda: row)
    if fields is None:
        return Answer(row=lambda: row, notes=["there is no user message to take back"])
    return Answer(lambda: cli.plain_lines(message_text(fields)), lambda: row)


def _restored(session: Session, line: LogLine | None) -> Answer:
    row: JsonObject = {
        "sessionId": session.id,
        "changed": line is not None,
        "line": None if line is None else log_row(line),
    }
    if line is None:
        return cli.said("nothing changed: it is like that already", row)
    return Answer(lambda: [((text_of(shown).strip(), ""),) for shown in log_lines([line], cli.look())], lambda: row)
