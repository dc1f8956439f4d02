"""Completion for shells: the command that prints the script, and what the script is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from os.path import exists
from typing import TypeVar

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from flue_py.cli.output import print_document
from flue_py.cli.place import expanded
from flue_py.core.sessions import SessionInfo
from flue_py.errors import AmbiguousId, FlueError
from flue_py.render.lines import one_line
from flue_py.sessions.store import Store

Answer = TypeVar("Answer")

_SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
_VARIABLE = "_FLUE_PY_COMPLETE"
_SESSIONS = 1000
_ENTRIES = 100
_TOO_MANY_TO_READ = 20_000


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, sessions and entries in SHELL: bash, zsh or fish."""
    root = ctx.find_root()
    source = _SHELLS[shell](root.command, {}, "flue-py", _VARIABLE)
    # Not source(): it starts a bash to ask for its version, which need not be the one that will read this.
    print_document(source.source_template % source.source_vars())


class SessionName(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A session's id or key, completed from the database."""

    name = "session"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the ids and keys that begin with ``incomplete``, of the sessions that changed last."""
        found = _asked(ctx, _sessions)
        items = [(name, info) for info in found for name in (info.key, info.id) if name]
        return [
            CompletionItem(name, help=one_line(info.title or info.first_message or "", 60))
            for name, info in items
            if name.startswith(incomplete) and (incomplete or name == (info.key or info.id))
        ]


class EntryName(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """An entry's id, completed from the session that was named before."""

    name = "entry"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the ids that begin with ``incomplete``, newest first."""
        # After an option that still lacks its value, the arguments before it have not been given to their parameters.
        session = ctx.params.get("session") or next(iter(ctx.args), None)
        if not isinstance(session, str):
            return []
        found = _asked(ctx, lambda store: _entries(store, session, incomplete))
        return [CompletionItem(entry_id, help=text) for entry_id, text in found]


class FormatOrPath(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A format that can be imported, or the first of the files."""

    name = "format"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the formats that begin with ``incomplete``; where there are none, have the shell complete a path."""
        from flue_py.formats.registry import format_names

        names = [name for name in ("auto", *format_names()) if name.startswith(incomplete)]
        return [CompletionItem(name) for name in names] or [CompletionItem(incomplete, type="file")]


def offer_names(command: click.Command) -> click.Command:
    """Return the command, its arguments and options that take a session or an entry completed from the database."""
    for param in command.params:
        named = param.metavar or (param.name or "" if isinstance(param, click.Argument) else "")
        if param.type is click.STRING and named.upper() in ("SESSION", "OTHER", "A", "B"):
            param.type = SessionName()
        elif param.type is click.STRING and named.upper() == "FORMAT|AUTO":
            param.type = FormatOrPath()
        elif param.type is click.STRING and named.upper() == "ENTRY":
            param.type = EntryName()
    return command


def _asked(ctx: click.Context, ask: Callable[[Store], Awaitable[list[Answer]]]) -> list[Answer]:
    """Return what the database of the command line answers; nothing where there is none, or it cannot."""
    with contextlib.suppress(FlueError, OSError):
        target = expanded(str(ctx.find_root().params.get("database")))
        if "://" in target or exists(target):
            return asyncio.run(_answer(target, ask))
    return []


async def _answer(target: str, ask: Callable[[Store], Awaitable[list[Answer]]]) -> list[Answer]:
    import flue_py
    from flue_py.cli.running import is_only_readable

    async with flue_py.open(target, busy_timeout=1, read_only=is_only_readable(target)) as store:
        return await ask(store)


async def _sessions(store: Store) -> list[SessionInfo]:
    return list((await store.list_sessions(limit=_SESSIONS)).sessions)


async def _entries(store: Store, name: str, prefix: str) -> list[tuple[str, str]]:
    from flue_py.render.entries import entry_text
    from flue_py.runtime.finding import find_session

    session = await find_session(store, name)
    if session.info.entry_count > _TOO_MANY_TO_READ:
        try:
            return [(await session.resolve_entry_id(prefix), "")]
        except AmbiguousId as error:
            return [(entry_id, "") for entry_id in error.matches]
    tree = await session.get_tree()
    found = [entry for entry in reversed(tree) if entry.id.startswith(prefix)][:_ENTRIES]
    return [(entry.id, entry_text(entry)[:60]) for entry in found]
