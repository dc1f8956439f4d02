"""What agents have changed lately: files written and deleted, commands, commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

from flue_py.context.items import Item
from flue_py.context.sources.protocol import Asked
from flue_py.context.steps.tools import ToolUse, plain_name, plain_names, tool_uses
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue

WRITE_TOOLS = plain_names(
    [
        "write_file",
        "patch_file",
        "edit_file",
        "create_file",
        "append_file",
        "write",
        "edit",
        "multiedit",
        "notebookedit",
    ]
) | plain_names(["notebook_edit"])
DELETE_TOOLS = plain_names(["delete_file", "remove_file"])
SHELL_TOOLS = plain_names(["shell_run", "bash", "shell", "run_command", "run_shell_command", "execute_command"])
COMMIT_TOOLS = plain_names(["git_commit"])
_PATHS = ("path", "file_path", "filepath", "file", "filename", "notebook_path")


@frozen
class Change:
    """What one agent changed in one turn of its own. ``when`` is in UTC, None if nobody says."""

    turn: int | None
    agent: str
    when: datetime | None
    written: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()
    commits: tuple[str, ...] = ()


def changes_recent(asked: Asked) -> str | None:
    """Return the last changes that the stored calls of tools tell: calls that failed have changed nothing."""
    stored = asked.context if asked.stored is None else asked.stored
    return changes_text(recent(changes_of([Item(entry, at) for at, entry in enumerate(stored)]), asked))


def recent(changes: Sequence[Change], asked: Asked) -> Sequence[Change]:
    """Return the last of some changes, as many as the source is asked for, one at least; all if it says no number."""
    given = (asked.parameter or "").strip()
    count = int(given) if given.lstrip("-").isdecimal() and given.isascii() else len(changes)
    return changes[-max(1, count) :]


def changes_of(items: Sequence[Item]) -> list[Change]:
    """Return what the calls in some messages changed, by the turns of their agents, in order. O(size)."""
    used: dict[int, list[ToolUse]] = {}
    for use in tool_uses(items):
        used.setdefault(use.call.at, []).append(use)
    found: list[Change] = []
    turn, made, last = 0, list[ToolUse](), None
    for at, item in enumerate(items):
        if item.is_user:
            found += _change(turn, last, made, items)
            turn, made, last = turn + 1, [], None
        elif item.is_answer:
            if last is not None and item.agent != last.agent:
                found += _change(turn, last, made, items)
                made = []
            last = item
            made += used.get(at, [])
    return [*found, *_change(turn, last, made, items)]


def _change(turn: int, last: Item | None, made: Sequence[ToolUse], items: Sequence[Item]) -> list[Change]:
    written, deleted, commits = dict[str, None](), dict[str, None](), list[str]()
    commands: list[tuple[str, str]] = []
    for use in made:
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
    given = {name.casefold(): value for name, value in arguments.items()}
    value = next((given[name] for name in names if name in given), None)
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
    for heading, listed in parts:
        if listed:
            yield f"  {heading}:"
            yield from (f"    - {each}" for each in listed)


def listed_changes(log: object, session_id: str) -> list[Change]:
    """Return the changes of a change log, in its order: those of the session, or all where it has none of them.

    The names of fields are read in whatever case. What is not an object is passed over.
    """
    listed = _field(log, "entries")
    entries = [each for each in (listed if isinstance(listed, list) else []) if isinstance(each, dict)]
    own = [each for each in entries if _field(each, "session_id", "sessionid") in (None, session_id)]
    return [_logged(each) for each in own or entries]


def _logged(entry: Mapping[str, JsonValue]) -> Change:
    turn = _field(entry, "turn_index", "turnindex")
    commands = [
        (_text(_field(each, "command")), "OK" if _field(each, "succeeded") is True else "FAILED")
        for each in _list(_field(entry, "commands_run", "commandsrun"))
    ]
    return Change(
        turn if isinstance(turn, int) else None,
        _text(_field(entry, "agent")) or "Unknown",
        _moment(_field(entry, "timestamp")),
        tuple(map(_text, _list(_field(entry, "files_written", "fileswritten")))),
        tuple(map(_text, _list(_field(entry, "files_deleted", "filesdeleted")))),
        tuple(commands),
        tuple(map(_text, _list(_field(entry, "git_commits", "gitcommits")))),
    )


def _field(value: object, *names: str) -> JsonValue:
    if not isinstance(value, Mapping):
        return None
    given = {str(name).casefold(): each for name, each in value.items()}
    return cast("JsonValue", next((given[name] for name in names if name in given), None))


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _moment(value: JsonValue) -> datetime | None:
    try:
        moment = datetime.fromisoformat(_text(value))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
