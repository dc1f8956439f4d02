"""A conversation with an agent: the operations of a REPL on its history.

A `Conversation` has one current session. Every change is stored at once, so nothing need be saved before it
switches to another. Going back, clearing and retrying move the leaf: nothing is deleted, and `undo` takes them
back. It calls no model; `take_turn` and `compact` are given one.
"""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from flue_py.agents import guard
from flue_py.agents.harness import redo_last, undo_last
from flue_py.compaction.plan import WHY_NOT
from flue_py.core.context import Turn, begins_turn, kept_turns, numbered_turns
from flue_py.core.entries import Entry
from flue_py.core.files import RestoredFiles
from flue_py.core.json import Frozen, JsonObject
from flue_py.core.kinds import message_text
from flue_py.core.sessions import Moved, without_tasks
from flue_py.db.files import write_private
from flue_py.errors import AbortedToCompact, FlueError, InvalidArgument, InvalidEntry, LeafConflict, shown
from flue_py.lazy import lazy_module
from flue_py.render.lines import Line, counted, one_line, printable, text_of
from flue_py.render.transcript import Listed, listed_lines, said_lines, saved_transcript, turn_lines
from flue_py.render.views import entry_row, memory_lines, session_row, task_row
from flue_py.sessions import handle
from flue_py.sessions.compact import checked_hook
from flue_py.sessions.housekeeping import delete_all, find_completed, without_held
from flue_py.sessions.money import model_of
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.sessions.write import PATIENCE, checked_offload

if TYPE_CHECKING:
    from flue_py.compaction.material import BeforeCompaction
    from flue_py.compaction.modes import Mode
    from flue_py.compaction.plan import CompactionResult
    from flue_py.compaction.settings import CompactionSettings
    from flue_py.context import artifacts
    from flue_py.context import blocks as reading
    from flue_py.context.pipeline import ContextReport
    from flue_py.context.settings import ContextSettings
    from flue_py.context.sources import SourceReader
    from flue_py.core.model import Model as CompactionModel
else:
    artifacts = lazy_module("flue_py.context.artifacts")
    reading = lazy_module("flue_py.context.blocks")


# ---------------------------------------------------------------------------------------------------------------------
# A conversation with an agent: the operations of a REPL on its history.

REPLAYED_TURNS = 3
"""How many turns are shown again when a conversation is resumed."""

BY = "conversation"

Model: TypeAlias = Callable[[list[JsonObject]], Awaitable[Sequence[Mapping[str, object]]]]
"""Takes the context, and returns the messages to append: answers and tool results, the last answer at the end."""


class Rewound(Frozen):
    """The result of a rewind: how many turns there were, how many are left, and the move (None: nothing to rewind).

    ``files`` are those that went along, where that was asked for.
    """

    total: int
    kept: int
    moved: Moved | None
    files: RestoredFiles | None = None


class Retried(Frozen):
    """The result of a retry: the whole user message to send again, and its words."""

    message: JsonObject
    text: str
    moved: Moved


class Conversation:
    """A store and the current session. ``replay`` is how many turns are shown on resuming; 0 shows none.

    ``before_compaction`` is asked before each compaction, and may cancel it or give its text
    (`flue_py.compaction.material`); ``summarizer`` is the model that is asked for one unless `compact` names another.
    ``context`` selects the part of the context for the model (`flue_py.context.ContextSettings`), ``agent`` for whom,
    ``sources`` the readers of a ``spec`` in it. By default that is the newest turns that fit 80,000 tokens, of 4
    characters each; None sends all. ``context_report`` tells of the part left out of the latest request, and warns from
    60,000 on. Results of tools above 40,000 characters in a model's answers are stored as artifacts
    (`Session.append_message`); ``offload`` has other limits, and False stores all in the history.

    ``blocks`` are told before the words of the user if they have changed (`Session.append_blocks`), and those that
    save are given the messages of a turn after it. Each has ``patience`` seconds. ``block_failures`` are those of the
    latest turn, which they do not break.

    ``files`` is the folder whose files go back with `rewind`: each turn begins with a checkpoint of those that tools
    have edited (`Session.files`).

    Other sessions are found in the scope of the current one.
    """

    def __init__(
        self,
        store: Store,
        session: Session,
        *,
        replay: int = REPLAYED_TURNS,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        before_compaction: BeforeCompaction | None = None,
        summarizer: CompactionModel | None = None,
        context: ContextSettings | Mapping[str, object] | bool | None = True,
        sources: Mapping[str, SourceReader] | None = None,
        agent: str | None = None,
        offload: artifacts.OffloadSettings | bool | None = True,
        blocks: Iterable[reading.Block] = (),
        patience: float = PATIENCE,
        files: str | PathLike[str] | None = None,
    ) -> None:
        self.store = store
        self.session = session
        self.replay = handle.checked_count(replay, "turns")
        self.clock = clock
        self.before_compaction = checked_hook(before_compaction)
        self.summarizer = None if summarizer is None else model_of(summarizer)
        self._sending = guard.Sending(context, sources)
        self.agent = handle.checked_text(agent, "agent")
        offload = artifacts.OffloadSettings() if offload is True else offload or None
        self.offload = None if offload is None else checked_offload(offload)
        self.blocks = tuple(reading.checked_blocks(blocks)) if blocks != () else ()
        self.patience = handle.checked_patience(patience)
        self.files = files
        self.block_failures: tuple[reading.BlockFailure, ...] = ()
        self._running = guard.RunningCalls(store.backend.waiting, store.backend.new_entry_id)

    @property
    def context_report(self) -> ContextReport | None:
        """The report of the latest request: the part left out of it, and its warnings; None without settings."""
        return self._sending.report

    # -- reading ----------------------------------------------------------------------------------------------

    async def turns(self) -> list[Turn]:
        """Return the turns of the active path, numbered from 1 as `rewind` counts them. O(path).

        ``is_compacted`` marks those of which the model sees only a summary.
        """
        messages = await self.session.turns()
        seen = {item.entry.id for item in (await handle.shown_context(self.session)).items}
        return numbered_turns(messages, seen)

    async def history(self, *, turns: int | None = None) -> list[Entry]:
        """Return the messages, compactions and summaries of the active path; with ``turns``, of the last n turns."""
        path = await self.session.get_active_path()
        if turns is not None:
            started = [place for place, entry in enumerate(path) if begins_turn(entry)]
            keep = handle.checked_count(turns, "turns")
            path = path[started[-keep] :] if 0 < keep <= len(started) else path if keep else []
        return path

    async def last(self) -> str | None:
        """Return the words of the last answer on the active path; None before the first."""
        answer = await self.session.context.latest_assistant()
        return None if answer is None else message_text(answer.fields)

    async def model(self) -> str:
        """Return the model that answered last; "" before the first answer."""
        return await _model_of(self.session)

    async def resume_text(self, turns: int | None = None) -> str:
        """Return the text to show when the conversation is resumed: its name, and its last turns.

        ``turns`` is how many, by default ``replay``; 0 gives "". Control characters for a terminal are replaced.
        """
        wanted = self.replay if turns is None else handle.checked_count(turns, "turns")
        if not wanted:
            return ""
        total = len(await self.session.turns())
        name = one_line(self.session.title or self.session.key or self.session.id)
        lines = said_lines(await self.history(turns=wanted)) if total else []
        return "\n".join([f"{name}: {counted(total, 'turn')}", *map(text_of, lines)])

    async def sessions(self, *, limit: int = 20) -> list[Listed]:
        """Return the conversations of the scope, without task sessions, most recently active first.

        O(limit x their paths).
        """
        listed: list[Listed] = []
        pages = partial(self.store.list_sessions, scope=self.session.info.scope, limit=max(1, min(limit * 2, 200)))
        async with aclosing(handle.listed_sessions(pages)) as sessions:
            async for info in sessions:
                if len(listed) >= limit:
                    break
                session = None if info.is_aside else await self.store.get_session(info.id)
                if session is not None:
                    turns = len(await session.turns())
                    listed.append(Listed(info, await _model_of(session), turns, info.id == self.session.id))
        return listed

    async def save(self) -> str:
        """Return the active path as Markdown: the words, without tool calls and results."""
        path, saved = await self.session.get_active_path(), self.clock().astimezone(UTC)
        return saved_transcript(
            path, model=await self.model(), saved=saved, unchecked=handle.is_unchecked(self.session)
        )

    async def snapshot(self) -> JsonObject:
        """Return the full state as JSON: the session's row, every entry of its tree, labels, task links."""
        info = await handle.stored_row(self.session)
        return {
            **({"unchecked": True} if handle.is_unchecked(self.session) else {}),
            "session": session_row(info, await self.session.reports.name()),
            "entries": [entry_row(entry) for entry in await self.session.get_tree()],
            "labels": {**await self.session.marks.labels()},
            "tasks": [task_row(link) for link in await self.session.tasks.links()],
        }

    # -- going back -------------------------------------------------------------------------------------------

    async def rewind(self, turns: str | int, *, files: bool = False) -> Rewound:
        """Keep turns 1 to n; -n drops the last n, 0 drops all, "-0" none. Numbers out of range are clamped.

        The leaf moves to the end of turn n, and `Session.undo` takes it back. Entries before the first turn, such
        as a system message, stay. Raises `InvalidArgument` if it is not a number, and nothing changes. With ``files``,
        files go back first, as `Session.files.restore` does: it raises `FilesChanged`, and nothing changes.
        """
        await self.session.refresh()
        started = await self.session.turns()
        total, turns_left = len(started), kept_turns(turns, len(started))
        if turns_left >= total:
            return Rewound(total, turns_left, None)
        restored = None
        if files:
            restored = await self.session.files.restore(started[turns_left].parent_id, root=self.files)
        return Rewound(total, turns_left, await self.session.rewind(turns=turns_left, by=BY), restored)

    async def clear(self) -> Rewound:
        """Drop all turns; entries before the first, such as a system message, stay."""
        return await self.rewind(0)

    async def retry(self) -> Retried | None:
        """Take back the last user message and all that follows, and return it; None if there is none."""
        await self.session.refresh()
        turns = await self.session.turns()
        if not turns:
            return None
        moved = await self.session.rewind(turns=-1, by=BY)
        if moved is None:
            return None
        message = turns[-1].fields
        return Retried(message, message_text(message), moved)

    async def take_turn(
        self, message: str | Mapping[str, object], model: Model, *, source: str = "prompt"
    ) -> list[JsonObject]:
        """Append a user message, call ``model`` with the context, append its answers, and return them.

        ``blocks`` that have changed are appended first, and stay whatever comes of the turn. A `ContextOverflow` of the
        model is met by calling it again with less of the results of tools (`Session.context.attempts`), as far as there
        is less; the session keeps all of it. The user message is stored before the model is called. If the call fails
        or is cancelled, the message is retracted, and the error raised; if `compact` ends it, the message stays,
        unanswered, and `AbortedToCompact` is raised: `retry` takes it back. Raises `LeafConflict` if another writer has
        changed the session: nothing is appended, and the next turn builds on the state by then. If that happens while
        the model answers, the answers become a branch, so that they are kept, being paid for. Raises `InvalidArgument`,
        with nothing stored, for a model that cannot be called, and for one that answers with anything but a list of
        messages; `InvalidEntry`, with nothing stored, for a message in it that is none.

        An answer with signed reasoning is stored with the digest it was produced under, and a later turn whose context
        begins otherwise is without that reasoning.
        """
        if not callable(model):
            raise InvalidArgument(f"model: {shown(model)} is not a function")
        asking = {"role": "user", "content": message} if isinstance(message, str) else message
        session = self.session
        self.block_failures = ()
        try:
            if self.blocks:
                self.block_failures = (await session.append_blocks(self.blocks, patience=self.patience)).failures
            if self.files is not None:
                await session.files.checkpoint(root=self.files)
            appended = await session.append_message(asking, source=source)
        except LeafConflict:
            await session.refresh()
            raise
        try:
            context, answered = await self._sending.ask(
                session,
                self.agent,
                lambda messages: self._running.run(session, lambda: guard.answer_of(model, "model", messages)),
                leaf=appended.entry_id,
            )
            answers = _messages_of(answered)
        except AbortedToCompact:
            raise
        except BaseException:
            # Whoever cancels the task would cancel this as well.
            await self.store.backend.waiting.finish(_take_back(session, appended.entry_ids))
            raise
        bound = guard.answers_to(context, answers)
        try:
            await session.append_messages(bound, source=source, offload=self.offload, on_conflict="branch")
        except InvalidEntry:
            await self.store.backend.waiting.finish(_take_back(session, appended.entry_ids))
            raise
        if self.blocks:
            turn = [cast("JsonObject", dict(asking)), *answers]
            failures = await self.store.backend.waiting.ask(
                lambda: reading.save_turn(self.blocks, turn, self.patience), None
            )
            self.block_failures += tuple(failures)
        return answers

    # -- making room ------------------------------------------------------------------------------------------

    async def compact(
        self,
        model: CompactionModel | None = None,
        *,
        mode: str | Mode | None = None,
        settings: CompactionSettings | None = None,
        instructions: str | None = None,
        window: int | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, object]] | None = None,
        abort: bool = True,
        dry_run: bool = False,
    ) -> CompactionResult:
        """Replace the beginning of the context by a text that stands for it, as `Session.compact` does.

        Of the session as it is stored now. A turn that `take_turn` waits for is ended first, but with ``abort=False``;
        a model that is a plain function cannot be ended, and is waited for. `Session.undo` takes it back. With
        ``dry_run`` nothing is ended, asked or changed: the result tells of the planned compaction. Raises as that.
        """
        handle.checked_flag(dry_run, "dry_run")
        if handle.checked_flag(abort, "abort") and not dry_run:
            await self._running.end()
        if not dry_run:
            await self.session.refresh()
        return await self.session.compact(
            model or self.summarizer,
            mode=mode,
            settings=settings,
            instructions=instructions,
            window=window,
            system=system,
            tools=tools,
            dry_run=dry_run,
            aligned=await self._sending.is_whole(self.session, self.agent, system=system, tools=tools or ()),
            before_compaction=self.before_compaction,
        )

    # -- other sessions ---------------------------------------------------------------------------------------

    async def fork(self, *, switch: bool = False, title: str | None = None) -> Session:
        """Return a new session that begins at the leaf, with the title and metadata of this one.

        It is stored at once. The conversation goes on where it is, or with ``switch`` in the fork.
        """
        info = await handle.stored_row(self.session)
        fork = await self.session.fork(title=title or info.title, metadata=without_tasks(info.metadata))
        if switch:
            self.session = fork
        return fork

    async def find(self, name: str) -> Session:
        """Return the session of the scope that ``name`` names, as `Store.find_session` finds it.

        Raises `SessionNotFound`, `AmbiguousId`.
        """
        if name.lower() == self.session.id.lower():
            return self.session
        return await self.store.find_session(name, scope=self.session.info.scope)

    async def switch(self, name: str) -> bool:
        """Go on in another session; False if it is the current one already.

        Raises `SessionNotFound` and `AmbiguousId`, and then nothing changes.
        """
        session = await self.find(name)
        if session.id == self.session.id:
            return False
        self.session = session
        return True


async def _model_of(session: Session) -> str:
    answer = await session.context.latest_assistant()
    name = None if answer is None else answer.fields.get("model")
    return name if isinstance(name, str) else ""


async def _take_back(session: Session, entry_ids: Sequence[str]) -> None:
    for entry_id in reversed(entry_ids):
        await session.remove_leaf_message(entry_id)


def _messages_of(answered: Iterable[Mapping[str, object]]) -> list[JsonObject]:
    """Return the messages that a model answered. Raises `InvalidArgument` for anything but a list of messages."""
    is_list = isinstance(answered, Iterable) and not isinstance(answered, (str, bytes))
    messages = list(answered) if is_list else []
    if not is_list or not all(isinstance(message, Mapping) for message in messages):
        raise InvalidArgument(f"model: answered {shown(answered)}; return a list of messages, the answer last")
    return [cast("JsonObject", dict(message)) for message in messages]


# ---------------------------------------------------------------------------------------------------------------------
# The slash commands of a REPL: one line in, a `Reply` out.
#
# A command that fails says so in its reply, and changes nothing.


class Reply(Frozen):
    """The answer to a command: text to show, without anything that a terminal would act on.

    ``resend`` is a whole user message to send to the model again; ``is_over`` says that the user wants to leave.
    """

    text: str
    resend: JsonObject | None = None
    is_over: bool = False


class Command(Frozen):
    """A slash command: its function, which takes the argument, its usage, and a line of help."""

    run: Callable[[Conversation, str], Awaitable[Reply | str]]
    usage: str
    summary: str


async def run_command(conversation: Conversation, line: str, commands: Mapping[str, Command] | None = None) -> Reply:
    """Run a line such as ``/rewind -1``, and return the answer to show. Never raises a `FlueError`.

    Upper and lower case are the same; ``/help`` lists the ``commands``, by default `COMMANDS`.
    """
    name, _, argument = line.strip().removeprefix("/").partition(" ")
    commands = COMMANDS if commands is None else commands
    if name.lower() == "help":
        return Reply(_help(commands))
    command = commands.get(name.lower())
    if command is None:
        return Reply(printable(f"There is no command /{name}; /help lists them."))
    try:
        reply = await command.run(conversation, argument.strip())
    except (FlueError, OSError) as error:
        reply = f"{error}"
    return Reply(printable(reply)) if isinstance(reply, str) else reply


def shown_lines(lines: list[Line]) -> str:
    """Return lines as one text."""
    return "\n".join(text_of(line).rstrip() for line in lines)


def _usage(name: str) -> str:
    return f"Usage: {COMMANDS[name].usage}"


def _help(commands: Mapping[str, Command]) -> str:
    rows = {"/help": "List the commands.", **{command.usage: command.summary for command in commands.values()}}
    width = max(map(len, rows))
    return "\n".join(f"{usage:<{width}}  {summary}" for usage, summary in rows.items())


async def _sessions(conversation: Conversation, argument: str) -> str:
    return shown_lines(listed_lines(await conversation.sessions(), conversation.clock()))


async def _conversation(conversation: Conversation, argument: str) -> str:
    turns = await conversation.turns()
    return shown_lines(turn_lines(turns, whole=argument == "all")) if turns else "There are no turns yet."


async def _replay(conversation: Conversation, argument: str) -> str:
    if argument == "all":
        return await _history(conversation, "")
    if argument and not (argument.isascii() and argument.isdigit() and len(argument) < 10):
        return _usage("replay")
    return await conversation.resume_text(int(argument) if argument else None)


async def _history(conversation: Conversation, argument: str) -> str:
    return shown_lines(said_lines(await conversation.history())) or "Nothing has been said yet."


async def _last(conversation: Conversation, argument: str) -> str:
    return await conversation.last() or "There is no answer yet."


async def _rewind(conversation: Conversation, argument: str) -> str:
    count, _, option = argument.partition(" ")
    if not count or option.strip() not in ("", "--files"):
        return _usage("rewind")
    done = await conversation.rewind(count, files=bool(option))
    if not done.total:
        return "There are no turns to rewind."
    if done.moved is None:
        return f"Nothing to rewind: there are {counted(done.total, 'turn')}."
    text = f"Rewound to turn {done.kept} of {done.total}; /undo takes it back."
    return "\n".join([text, *(f"{change.what} {change.name}" for change in (done.files.changes if done.files else ()))])


async def _clear(conversation: Conversation, argument: str) -> str:
    done = await conversation.clear()
    return "There is nothing to clear." if done.moved is None else "Cleared; /undo takes it back."


async def _retry(conversation: Conversation, argument: str) -> Reply | str:
    retried = await conversation.retry()
    if retried is None:
        return "There is nothing to retry."
    return Reply(printable(f"> {retried.text}"), resend=retried.message)


async def _step(conversation: Conversation, argument: str, *, undoes: bool) -> str:
    await conversation.session.refresh()
    if await (undo_last if undoes else redo_last)(conversation.session, by=BY) is None:
        return f"There is nothing to {'undo' if undoes else 'do again'}."
    turns = counted(len(await conversation.session.turns()), "turn")
    return f"{'Undone' if undoes else 'Done again'}: there are {turns}."


async def _compact(conversation: Conversation, argument: str) -> str:
    mode = None if conversation.summarizer else "intent"
    done = await conversation.compact(mode=mode, instructions=argument or None)
    if done.appended is None:
        return f"Nothing was compacted: {WHY_NOT.get(done.reason or '', ' '.join(done.notes))}."
    before, after = f"{done.tokens_before:,}", counted(done.tokens_after or 0, "token")
    return "\n".join([f"Compacted from {before} to {after}; /undo takes it back.", *done.notes])


async def _memory(conversation: Conversation, argument: str) -> str:
    action, _, name = argument.partition(" ")
    if argument and (action.lower() != "rm" or not name):
        return _usage("memory")
    store, session = conversation.store, conversation.session
    memories = await store.memories(project=session.info.cwd or "", scope=session.info.scope)
    if not argument:
        return shown_lines(memory_lines(memories)) or "Nothing is remembered."
    places = [memory.info.project for memory in memories if memory.name == name.strip()]
    if not places:
        return f"There is no memory {name.strip()!r}."
    await store.forget(name.strip(), project=places[0], scope=session.info.scope)
    return f"Forgot {name.strip()!r}."


async def _fork(conversation: Conversation, argument: str) -> str:
    if argument.lower() not in ("", "switch"):
        return _usage("fork")
    fork = await conversation.fork(switch=bool(argument))
    return f"Now in {fork.id}, a fork of this session." if argument else f"Forked to {fork.id}; /switch {fork.id}"


async def _switch(conversation: Conversation, argument: str) -> str:
    if not argument:
        return _usage("switch")
    if not await conversation.switch(argument):
        return "Already in this session."
    return await conversation.resume_text() or f"Now in {conversation.session.id}."


async def _save(conversation: Conversation, argument: str) -> str:
    text = await conversation.save()
    path = write_private(argument or f"conversation-{_in_a_name(conversation.session.id)}.md", text)
    return f"Saved to {path}."


async def _snapshot(conversation: Conversation, argument: str) -> str:
    text = json.dumps(await conversation.snapshot(), ensure_ascii=False, indent=2)
    name = f"flue-{_in_a_name(conversation.session.id)[:40]}-{secrets.token_hex(8)}.json"
    path = write_private(str(Path(tempfile.gettempdir()) / name), text)
    return f"Snapshot written to {path}."


def _in_a_name(session_id: str) -> str:
    return "".join(char if char.isascii() and (char.isalnum() or char in "-_") else "-" for char in session_id)


async def _delete(conversation: Conversation, argument: str) -> str:
    if not argument:
        return _usage("delete")
    store = conversation.store.in_scope(conversation.session.info.scope)
    if argument.lower() == "all":
        plan = partial(store.delete_session_tree, dry_run=True)
        free = [info.id for info in await without_held(await find_completed(store), plan)]
        ids = [name for name in free if conversation.session.id not in (await plan(name)).session_ids]
        deleted = await delete_all(store, ids)
        return f"{counted(len(deleted.session_ids), 'session')} deleted, of those that were completed."
    session = await conversation.find(argument)
    planned = await store.delete_session_tree(session.id, dry_run=True)
    if conversation.session.id in planned.session_ids:
        return "This session would go, too; /switch to another first."
    deletion = await store.delete_session_tree(session.id)
    return f"{counted(len(deletion.session_ids), 'session')} deleted."


async def _quit(conversation: Conversation, argument: str) -> Reply:
    return Reply(f"flue-py show {conversation.session.id} --history", is_over=True)


COMMANDS = {
    "sessions": Command(_sessions, "/sessions", "List the conversations, most recently active first."),
    "switch": Command(_switch, "/switch ID", "Go on in another conversation."),
    "fork": Command(_fork, "/fork [switch]", "Make a conversation that begins here; with switch, go on in it."),
    "conversation": Command(_conversation, "/conversation [all]", "List the turns; with all, compacted ones, too."),
    "replay": Command(_replay, "/replay [N|all]", "Show the last turns again."),
    "history": Command(_history, "/history", "Show everything that was said."),
    "last": Command(_last, "/last", "Show the last answer."),
    "rewind": Command(_rewind, "/rewind N [--files]", "Keep turns 1 to N; -N drops the last N, 0 all; files too."),
    "clear": Command(_clear, "/clear", "Drop all turns; a system message stays."),
    "retry": Command(_retry, "/retry", "Take the last message back, and send it again."),
    "compact": Command(_compact, "/compact [FOCUS]", "Replace the beginning by a summary, which attends to FOCUS."),
    "memory": Command(_memory, "/memory [rm NAME]", "List what is remembered here; with rm, forget one of it."),
    "undo": Command(partial(_step, undoes=True), "/undo", "Undo the last change."),
    "redo": Command(partial(_step, undoes=False), "/redo", "Do again what was undone last."),
    "save": Command(_save, "/save [FILE]", "Write what was said as Markdown."),
    "snapshot": Command(_snapshot, "/snapshot", "Write the full state as JSON into the folder for temporary files."),
    "delete": Command(_delete, "/delete ID|all", "Delete a conversation, or all that are completed."),
    "quit": Command(_quit, "/quit", "Leave. Everything is saved."),
}
"""The commands by name, in the order in which they are listed."""
