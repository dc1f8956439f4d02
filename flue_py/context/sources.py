"""Named sources of texts for an agent in place of the history, and for handoffs."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path, PurePath
from typing import Protocol, TypeAlias, TypeVar, cast

from msgspec.structs import replace

from flue_py.context.blocks import printed_error
from flue_py.context.pipeline import Item, ToolUse, plain_name, plain_names, tool_uses
from flue_py.context.settings import ContextSource
from flue_py.core.context import ContextEntry
from flue_py.core.entries import RegisteredText
from flue_py.core.json import Frozen, JsonObject, JsonValue
from flue_py.core.sessions import SessionInfo
from flue_py.errors import InvalidArgument, shown
from flue_py.providers.base import listed, objects_in
from flue_py.system import read_beginning

# ---------------------------------------------------------------------------------------------------------------------
# Sources, the session that they read, and their texts.


class Asked(Frozen):
    """The session and the agent for a source: ``parameter`` is the text behind the colon, None without one.

    ``context`` has the messages that a model sees of the session, in order, up to the turn in progress; ``registered``
    are its registered texts, ``session`` is its row. ``stored`` is the whole path up to that turn, also before a
    compaction; None if it is the context. ``agent`` is who will read it, None for one without a name.
    """

    parameter: str | None
    agent: str | None
    context: Sequence[ContextEntry]
    registered: Sequence[RegisteredText]
    session: SessionInfo
    stored: Sequence[ContextEntry] | None = None


SourceReader: TypeAlias = Callable[[Asked], str | None | Awaitable[str | None]]
"""Returns a text, None or "" where it has none; it may be a coroutine function. An error is reported, and leaves
its section out."""


class Section(Frozen):
    """The text of one source: the source as the settings name it, the heading, and the text, cut to its limit."""

    source: str
    label: str
    text: str


class SkippedSource(Frozen):
    """A source that has said nothing, and why."""

    source: str
    why: str

    def __str__(self) -> str:
        return f"{self.source}: {self.why}"


class GatheredContext(Frozen):
    """The texts of the sources of an agent at one moment, in their order, and the sources without one.

    Given to several requests, it has each of them say the same (`Session.request`).
    """

    agent: str | None
    sections: tuple[Section, ...] = ()
    skipped: tuple[SkippedSource, ...] = ()

    def text(self, heading: str) -> str:
        """Return the sections under a heading, "" where there are none."""
        if not self.sections:
            return ""
        return "\n\n".join([heading, *(f"## {section.label}\n{section.text}" for section in self.sections)])


NOTHING_GATHERED = GatheredContext(None)


# ---------------------------------------------------------------------------------------------------------------------
# The latest changes by agents: files written and deleted, commands, commits.

WRITE_TOOLS = plain_names([
    "write_file", "patch_file", "edit_file", "create_file", "append_file", "write", "edit", "multiedit", "notebookedit",
])  # fmt: skip
DELETE_TOOLS = plain_names(["delete_file", "remove_file"])
SHELL_TOOLS = plain_names(["shell_run", "bash", "shell", "run_command", "run_shell_command", "execute_command"])
COMMIT_TOOLS = plain_names(["git_commit"])
_PATHS = ("path", "file_path", "filepath", "file", "filename", "notebook_path")


class Change(Frozen):
    """The changes by one agent in one turn of its own. ``when`` is in UTC, None if nobody says."""

    turn: int | None
    agent: str
    when: datetime | None
    written: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()
    commits: tuple[str, ...] = ()


def changes_recent(question: Asked) -> str | None:
    """Return the last changes that the stored calls of tools tell: calls that failed have changed nothing."""
    stored = question.context if question.stored is None else question.stored
    return changes_text(recent(changes_of([Item(entry, at) for at, entry in enumerate(stored)]), question))


def recent(changes: Sequence[Change], question: Asked) -> Sequence[Change]:
    """Return the last of some changes, as many as the source is asked for, one at least; all if it says no number."""
    parameter = (question.parameter or "").strip()
    count = int(parameter) if parameter.lstrip("-").isdecimal() and parameter.isascii() else len(changes)
    return changes[-max(1, count) :]


def changes_of(items: Sequence[Item]) -> list[Change]:
    """Return the changes by the calls in some messages, by the turns of their agents, in order. O(size).

    Blocks and other notes begin no turn.
    """
    used: dict[int, list[ToolUse]] = {}
    for use in tool_uses(items):
        used.setdefault(use.call.at, []).append(use)
    changes: list[Change] = []
    turn, uses, last = 0, list[ToolUse](), None
    for at, item in enumerate(items):
        if item.is_user and (item.is_message or item.is_summary):
            changes += _change(turn, last, uses, items)
            turn, uses, last = turn + 1, [], None
        elif item.is_answer:
            if last is not None and item.agent != last.agent:
                changes += _change(turn, last, uses, items)
                uses = []
            last = item
            uses += used.get(at, [])
    return [*changes, *_change(turn, last, uses, items)]


def _change(turn: int, last: Item | None, uses: Sequence[ToolUse], items: Sequence[Item]) -> list[Change]:
    written, deleted, commits = dict[str, None](), dict[str, None](), list[str]()
    commands: list[tuple[str, str]] = []
    for use in uses:
        name = plain_name(use.name)
        failed = [items[at].message.get("isError") is True for at in use.results]
        state = "no result" if not failed else "FAILED" if all(failed) else "OK"
        if name in SHELL_TOOLS:
            commands.append((_argument(use.arguments, ("command", "cmd", "script")), state))
        elif state == "OK" and name in COMMIT_TOOLS:
            commits.append(_argument(use.arguments, ("message",)))
        elif state == "OK" and (path := _argument(use.arguments, _PATHS)):
            if name in WRITE_TOOLS:
                written[path] = None
            elif name in DELETE_TOOLS:
                deleted[path] = None
    if last is None or not (written or deleted or commands or commits):
        return []
    when = None if last.source is None else last.source.entry.created_at
    return [Change(turn, last.agent or "Unknown", when, (*written,), (*deleted,), (*commands,), (*commits,))]


def _argument(arguments: JsonObject, names: Iterable[str]) -> str:
    value = _field(arguments, *names)
    if isinstance(value, list):
        value = " ".join(map(str, value))
    return value if isinstance(value, str) else ""


def changes_text(changes: Sequence[Change]) -> str | None:
    """Return changes as lines of text, None without any."""
    return "\n".join(line for change in changes for line in _lines(change)) or None


def _lines(change: Change) -> Iterable[str]:
    when = "" if change.when is None else f" ({change.when.astimezone(UTC):%Y-%m-%d %H:%M} UTC)"
    yield f"{'' if change.turn is None else f'[Turn {change.turn}] '}{change.agent}{when}"
    parts = (
        ("Files written", change.written),
        ("Files deleted", change.deleted),
        ("Commands run", [f"{command} [{state}]" for command, state in change.commands]),
        ("Git commits", change.commits),
    )
    for heading, names in parts:
        if names:
            yield f"  {heading}:"
            yield from (f"    - {text}" for text in names)


def listed_changes(log: object, session_id: str) -> list[Change]:
    """Return the changes of a change log, in its order: those of the session, or all where it has none of them.

    The names of fields are read in any case. Values that are no objects are passed over.
    """
    entries = [entry for _, entry in objects_in(_field(log, "entries"))]
    own = [entry for entry in entries if _field(entry, "session_id", "sessionid") in (None, session_id)]
    return [_logged(entry) for entry in own or entries]


def _logged(entry: Mapping[str, JsonValue]) -> Change:
    turn = _field(entry, "turn_index", "turnindex")
    commands = [
        (_text(_field(command, "command")), "OK" if _field(command, "succeeded") is True else "FAILED")
        for command in listed(_field(entry, "commands_run", "commandsrun"))
    ]
    return Change(
        turn if isinstance(turn, int) else None,
        _text(_field(entry, "agent")) or "Unknown",
        _moment(_field(entry, "timestamp")),
        tuple(map(_text, listed(_field(entry, "files_written", "fileswritten")))),
        tuple(map(_text, listed(_field(entry, "files_deleted", "filesdeleted")))),
        tuple(commands),
        tuple(map(_text, listed(_field(entry, "git_commits", "gitcommits")))),
    )


def _field(value: object, *names: str) -> JsonValue:
    if not isinstance(value, Mapping):
        return None
    by_name = {str(name).casefold(): item for name, item in value.items()}
    return cast("JsonValue", next((by_name[name] for name in names if name in by_name), None))


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _moment(value: JsonValue) -> datetime | None:
    try:
        moment = datetime.fromisoformat(_text(value))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


# ---------------------------------------------------------------------------------------------------------------------
# A field of a brief, which describes the task by its parts.

BRIEF = "brief"
"""The metadata of a session in which a brief may be."""


def brief_field(question: Asked) -> str | None:
    """Return a field of the metadata of the session, or of the object ``brief`` in it."""
    metadata = question.session.metadata
    name = question.parameter or ""
    text = field_text(metadata.get(BRIEF), name)
    return field_text(metadata, name) if text is None else text


def field_text(brief: object, name: str) -> str | None:
    """Return a field of a JSON object as a text, looked for by its name and then without capitals; None without it."""
    if not isinstance(brief, dict):
        return None
    value = brief.get(name, brief.get(name.lower()))
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# ---------------------------------------------------------------------------------------------------------------------
# Files as sources: text within one folder, and the JSON files that programs keep beside their sessions.

MOST_BYTES = 8 * 2**20
"""A larger file is not read."""


def file_source(folder: str | os.PathLike[str] | None = None) -> SourceReader:
    """Return the source ``file:PATH``: the text of a file in a folder, by default that of the session.

    A path that leads out of the folder, also by a link, is refused, and so is anything but a regular file of text, or
    is larger than 8 MiB.
    """

    def read(question: Asked) -> str | None:
        inside = folder if folder is not None else question.session.cwd
        if inside is None:
            raise InvalidArgument("the session has no folder; name one with file_source()")
        return read_text(Path(inside), question.parameter or "")

    return read


def session_context_file(path: str | os.PathLike[str]) -> SourceReader:
    """Return the source ``session_context`` that has the text of a file."""
    return lambda question: _files_text(Path(path))


def changes_file(path: str | os.PathLike[str]) -> SourceReader:
    """Return the source ``changes_recent[:N]`` that reads a change log, a JSON file with a list ``entries``.

    Those of the session if it names its sessions and has some of this one, else all.
    """
    return lambda question: _of_json(
        path, lambda log: changes_text(recent(listed_changes(log, question.session.id), question))
    )


def change_log_text(path: str | os.PathLike[str], session_id: str) -> str | None:
    """Return a change log, a JSON file with a list ``entries``, as text: the entries of a session, as `changes_file`.

    Raises `InvalidArgument` for any other file, `OSError`.
    """
    return _of_json(path, lambda log: changes_text(listed_changes(log, session_id)))


def brief_file(path: str | os.PathLike[str]) -> SourceReader:
    """Return the source ``brief_field:NAME`` that reads a field of a JSON file."""
    return lambda question: _of_json(path, lambda brief: field_text(brief, question.parameter or ""))


def _of_json(path: str | os.PathLike[str], read: Callable[[object], str | None]) -> str | None:
    try:
        return read(json.loads(_files_text(Path(path))))
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"it is not JSON that can be read ({type(error).__name__})") from error


def read_text(folder: Path, name: str) -> str:
    """Return the text of a file in a folder. Raises `InvalidArgument` for any other file, `OSError`."""
    root = folder.resolve(strict=True)
    path = (root / name).resolve(strict=True)
    if not path.is_relative_to(root):
        raise InvalidArgument("it lies outside of the folder")
    return _files_text(path)


def _files_text(path: Path) -> str:
    data = read_beginning(path, MOST_BYTES + 1)
    if data is None:
        raise InvalidArgument("it is not a regular file")
    if len(data) > MOST_BYTES:
        raise InvalidArgument(f"it is larger than {MOST_BYTES:,} bytes")
    if b"\0" in data:
        raise InvalidArgument("it is not text")
    return data.decode("utf-8-sig", errors="replace")


# ---------------------------------------------------------------------------------------------------------------------
# Asking the sources that settings name, one after the other.

SOURCE_SECONDS = 30.0
"""How long a source that is a coroutine function is waited for."""
SOURCE_CHARS = 4_000
"""How much of a source is told if it has no limit of its own."""
_IN_FILES = ("session_context", "changes_recent", "brief_field", "file")
"""The sources that a tool of the agent's can read in full, as far as we know."""
_LABELS = {"session_context": "Session Context", "changes_recent": "Recent Changes"}

_Found: TypeAlias = str | None | Awaitable[str | None]
Result = TypeVar("Result")
_Asking: TypeAlias = Callable[[], Coroutine[object, object, str | None]]


class Calling(Protocol):
    """How functions of the caller are called: those that may block, and coroutine functions."""

    async def call(self, function: Callable[[], Result]) -> Result:
        """Call a function where it holds up nobody else, and return its result."""

    async def ask(self, function: _Asking, seconds: float | None) -> str | None:
        """Return the result of a coroutine function. Raises `TimeoutError` after so many seconds."""


async def gather(
    wanted: Sequence[ContextSource], question: Asked, sources: Mapping[str, SourceReader], calling: Calling
) -> GatheredContext:
    """Return the texts of the sources, in their order. An error of one is reported, and leaves it out.

    A source's own history is no text (the step `assembled` has it), and is passed over. The cost of the sources.
    """
    sections: list[Section] = []
    skipped: list[SkippedSource] = []
    for source in wanted:
        if source.kind == "own_history":
            continue
        answer = await _read(source, replace(question, parameter=source.parameter), sources, calling)
        if isinstance(answer, SkippedSource):
            skipped.append(answer)
        else:
            sections.append(Section(source.source, source.label or label_of(source), answer))
    return GatheredContext(question.agent, tuple(sections), tuple(skipped))


async def _read(
    wanted: ContextSource, question: Asked, sources: Mapping[str, SourceReader], calling: Calling
) -> str | SkippedSource:
    source = sources.get(wanted.kind)
    if source is None:
        return SkippedSource(wanted.source, "no source has this name")
    try:
        answer = await _said(source, question, calling)
    except Exception as error:  # noqa: BLE001 - a source of the caller's, and no reason to ask no model
        answer = error
    if isinstance(answer, Exception):
        return SkippedSource(wanted.source, f"it failed: {shown(printed_error(answer) or type(answer).__name__)}")
    if answer is not None and not isinstance(answer, str):
        return SkippedSource(wanted.source, f"it returned {shown(answer)}, not a text")
    text = cut_source(answer or "", wanted).strip()
    return text or SkippedSource(wanted.source, "it has nothing to say")


async def _said(source: SourceReader, question: Asked, calling: Calling) -> object:
    """Return the result of a source, or its error."""
    if iscoroutinefunction(source) or iscoroutinefunction(getattr(source, "__call__", None)):  # noqa: B004
        return await calling.ask(cast("_Asking", partial(source, question)), SOURCE_SECONDS)
    (outcome,) = await calling.call(partial(_outcome, source, question))
    if not isinstance(outcome, Awaitable):
        return outcome

    async def answer() -> str | None:
        return await outcome

    return await calling.ask(answer, SOURCE_SECONDS)


def _outcome(source: SourceReader, question: Asked) -> tuple[_Found | Exception]:
    # A StopIteration cannot leave a thread: asyncio would wait for it for ever. And trio takes no coroutine from one.
    try:
        return (source(question),)
    except Exception as error:  # noqa: BLE001 - returned, and reported
        return (error,)


def cut_source(text: str, wanted: ContextSource) -> str:
    """Return the text of a source, or its beginning with a note of how much is missing, and where the whole is."""
    most = wanted.max_chars or SOURCE_CHARS
    if len(text) <= most:
        return text
    whole = "use file tool to read in full" if wanted.kind in _IN_FILES else f"source {wanted.source} has it in full"
    return f"{text[:most]}\n[...{len(text) - most:,} chars truncated — {whole}]"


def label_of(wanted: ContextSource) -> str:
    """Return the heading of a source that has none of its own."""
    if wanted.kind == "brief_field":
        return f"Task: {wanted.parameter}"
    if wanted.kind == "file":
        return PurePath(wanted.parameter or "").name or "File"
    return _LABELS.get(wanted.kind, wanted.source)


def checked_sources(readers: Mapping[str, SourceReader] | None) -> Mapping[str, SourceReader]:
    """Return sources by their plain names. Raises `InvalidArgument` for anything that is not a mapping to functions."""
    if readers is None:
        return {}
    if not isinstance(readers, Mapping):
        raise InvalidArgument(f"sources: should be functions by their names, not {shown(readers)}")
    for name, source in readers.items():
        if not isinstance(name, str) or not name.strip() or ":" in name:
            raise InvalidArgument(f"sources: {shown(name)} is not a name; it has no colon, which a parameter follows")
        if not callable(source):
            raise InvalidArgument(f"sources[{shown(name)}]: {shown(source)} is not a function")
    return {name.strip().casefold(): source for name, source in readers.items()}


# ---------------------------------------------------------------------------------------------------------------------
# The sources that come with the package, and read the stored session.


def session_context(question: Asked) -> str | None:
    """Return the texts that are registered in the session, each under its name."""
    return "\n\n".join(f"### {registered.name}\n{registered.text}" for registered in question.registered) or None


STORED_SOURCES: Mapping[str, SourceReader] = {
    "session_context": session_context,
    "changes_recent": changes_recent,
    "brief_field": brief_field,
    "file": file_source(),
}
