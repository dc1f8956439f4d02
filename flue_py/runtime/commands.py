"""The slash commands of a REPL: one line in, a `Reply` out.

A command that fails says so in its reply, and changes nothing.
"""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from flue_py.compaction.result import WHY_NOT
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject
from flue_py.errors import FlueError
from flue_py.render.conversation import listed_lines, said_lines, turn_lines
from flue_py.render.documents import memory_lines
from flue_py.render.lines import Line, counted, printable, text_of
from flue_py.runtime.conversation import BY, Conversation
from flue_py.runtime.housekeeping import delete_all, find_completed
from flue_py.runtime.undoing import redo_last, undo_last
from flue_py.store.files.private import write_private


@frozen
class Reply:
    """The answer to a command: text to show, without anything that a terminal would act on.

    ``resend`` is a whole user message to send to the model again; ``is_over`` says that the user wants to leave.
    """

    text: str
    resend: JsonObject | None = None
    is_over: bool = False


@frozen
class _Command:
    run: Callable[[Conversation, str], Awaitable[Reply | str]]
    usage: str
    summary: str


async def run_command(conversation: Conversation, line: str) -> Reply:
    """Run a line such as ``/rewind -1``, and return the answer to show. Never raises a `FlueError`.

    Upper and lower case are the same; ``/help`` lists the commands.
    """
    name, _, argument = line.strip().removeprefix("/").partition(" ")
    command = COMMANDS.get(name.lower())
    if command is None:
        return Reply(printable(f"There is no command /{name}; /help lists them."))
    try:
        reply = await command.run(conversation, argument.strip())
    except (FlueError, OSError) as error:
        reply = f"{error}"
    return Reply(printable(reply)) if isinstance(reply, str) else reply


def _shown(lines: list[Line]) -> str:
    return "\n".join(text_of(line).rstrip() for line in lines)


def _usage(name: str) -> str:
    return f"Usage: {COMMANDS[name].usage}"


async def _help(conversation: Conversation, argument: str) -> str:
    width = max(len(command.usage) for command in COMMANDS.values())
    return "\n".join(f"{command.usage:<{width}}  {command.summary}" for command in COMMANDS.values())


async def _sessions(conversation: Conversation, argument: str) -> str:
    return _shown(listed_lines(await conversation.sessions(), conversation.clock()))


async def _conversation(conversation: Conversation, argument: str) -> str:
    turns = await conversation.turns()
    return _shown(turn_lines(turns, whole=argument == "all")) if turns else "There are no turns yet."


async def _replay(conversation: Conversation, argument: str) -> str:
    if argument == "all":
        return _shown(said_lines(await conversation.history()))
    if argument and not (argument.isascii() and argument.isdigit() and len(argument) < 10):
        return _usage("replay")
    return await conversation.resume_text(int(argument) if argument else None)


async def _history(conversation: Conversation, argument: str) -> str:
    return _shown(said_lines(await conversation.history())) or "Nothing has been said yet."


async def _last(conversation: Conversation, argument: str) -> str:
    return await conversation.last() or "There is no answer yet."


async def _rewind(conversation: Conversation, argument: str) -> str:
    if not argument:
        return _usage("rewind")
    done = await conversation.rewind(argument)
    if not done.total:
        return "There are no turns to rewind."
    if done.moved is None:
        return f"Nothing to rewind: there are {counted(done.total, 'turn')}."
    return f"Rewound to turn {done.kept} of {done.total}; /undo takes it back."


async def _clear(conversation: Conversation, argument: str) -> str:
    done = await conversation.clear()
    return "There is nothing to clear." if done.moved is None else "Cleared; /undo takes it back."


async def _retry(conversation: Conversation, argument: str) -> Reply | str:
    retried = await conversation.retry()
    if retried is None:
        return "There is nothing to retry."
    return Reply(printable(f"> {retried.text}"), resend=retried.message)


async def _undo(conversation: Conversation, argument: str) -> str:
    await conversation.session.refresh()
    moved = await undo_last(conversation.session, by=BY)
    return "There is nothing to undo." if moved is None else await _where(conversation, "Undone")


async def _redo(conversation: Conversation, argument: str) -> str:
    await conversation.session.refresh()
    moved = await redo_last(conversation.session, by=BY)
    return "There is nothing to do again." if moved is None else await _where(conversation, "Done again")


async def _where(conversation: Conversation, done: str) -> str:
    return f"{done}: there are {counted(len(await conversation.session.turns()), 'turn')}."


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
    found = await store.memories(project=session.info.cwd or "", scope=session.scope)
    if not argument:
        return _shown(memory_lines(found)) or "Nothing is remembered."
    places = [memory.info.project for memory in found if memory.name == name.strip()]
    if not places:
        return f"There is no memory {name.strip()!r}."
    await store.forget(name.strip(), project=places[0], scope=session.scope)
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
    store = conversation.store.in_scope(conversation.session.scope)
    if argument.lower() == "all":
        deleted = await delete_all(store, await find_completed(store), spare=conversation.session.id)
        return f"{counted(len(deleted.session_ids), 'session')} deleted, of those that were completed."
    found = await conversation.find(argument)
    planned = await store.delete_session_tree(found.id, dry_run=True)
    if conversation.session.id in planned.session_ids:
        return "This session would go, too; /switch to another first."
    deletion = await store.delete_session_tree(found.id)
    return f"{counted(len(deletion.session_ids), 'session')} deleted."


async def _quit(conversation: Conversation, argument: str) -> Reply:
    return Reply(f"flue-py resume {conversation.session.id}", is_over=True)


COMMANDS = {
    "help": _Command(_help, "/help", "List the commands."),
    "sessions": _Command(_sessions, "/sessions", "List the conversations, most recently active first."),
    "switch": _Command(_switch, "/switch ID", "Go on in another conversation."),
    "fork": _Command(_fork, "/fork [switch]", "Make a conversation that begins here; with switch, go on in it."),
    "conversation": _Command(_conversation, "/conversation [all]", "List the turns; with all, compacted ones, too."),
    "replay": _Command(_replay, "/replay [N|all]", "Show the last turns again."),
    "history": _Command(_history, "/history", "Show everything that was said."),
    "last": _Command(_last, "/last", "Show the last answer."),
    "rewind": _Command(_rewind, "/rewind N", "Keep turns 1 to N; -N drops the last N, 0 drops all."),
    "clear": _Command(_clear, "/clear", "Drop all turns; a system message stays."),
    "retry": _Command(_retry, "/retry", "Take the last message back, and send it again."),
    "compact": _Command(_compact, "/compact [FOCUS]", "Replace the beginning by a summary, which attends to FOCUS."),
    "memory": _Command(_memory, "/memory [rm NAME]", "List what is remembered here; with rm, forget one of it."),
    "undo": _Command(_undo, "/undo", "Undo the last change."),
    "redo": _Command(_redo, "/redo", "Do again what was undone last."),
    "save": _Command(_save, "/save [FILE]", "Write what was said as Markdown."),
    "snapshot": _Command(_snapshot, "/snapshot", "Write the full state as JSON into the folder for temporary files."),
    "delete": _Command(_delete, "/delete ID|all", "Delete a conversation, or all that are completed."),
    "quit": _Command(_quit, "/quit", "Leave. Everything is saved."),
}
"""The commands by name, in the order in which they are listed."""
