"""How a command takes sessions and entries: as a person names them. A shell completes them from the database."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from os.path import exists
from typing import TYPE_CHECKING, TypeVar

import click

from flue_py.cli.place import Place, absolute, expanded, finished, is_only_readable
from flue_py.core.sessions import STORED, LeafChoice, SessionInfo
from flue_py.errors import AmbiguousId, FlueError, SessionNotFound
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


Command = TypeVar("Command", bound=Callable[..., object])
Found = TypeVar("Found")

BY = "flue-py"
"""Who did what a command does, in the log."""

_SESSIONS = 1000
_ENTRIES = 100
_TOO_MANY_TO_READ = 20_000


class SessionName(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A session's id or key, or a beginning of it."""

    name = "session"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the ids and keys that begin with ``incomplete``, of the sessions that changed last."""
        from click.shell_completion import CompletionItem

        from flue_py.render.lines import one_line

        found = _asked(ctx, _sessions)
        items = [(name, info) for info in found for name in (info.key, info.id) if name]
        return [
            CompletionItem(name, help=one_line(info.title or info.first_message or "", 60))
            for name, info in items
            if name.startswith(incomplete) and (incomplete or name == (info.key or info.id))
        ]


class EntryName(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """An entry's id, or a beginning of it, in the session that was named before."""

    name = "entry"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the ids that begin with ``incomplete``, newest first."""
        from click.shell_completion import CompletionItem

        # After an option that still lacks its value, the arguments before it have not been given to their parameters.
        session = ctx.params.get("session") or next(iter(ctx.args), None)
        if not isinstance(session, str):
            return []
        found = _asked(ctx, lambda store: _entries(store, session, incomplete))
        return [CompletionItem(entry_id, help=text) for entry_id, text in found]


SESSION = SessionName()
"""The command gets the session."""

SESSION_OR_NEWEST = SessionName()
"""The command gets the session; if none is named, the one that was active last, and no task of another."""

SESSION_NAME = SessionName()
"""The command gets the name as it was typed."""

ENTRY = EntryName()
"""The command gets the id of the entry in its ``session``."""

LEAF = EntryName()
"""The command gets a leaf: the id of the entry in its ``session``, or `STORED` if the option is left out."""

ENTRY_NAME = EntryName()
"""The command gets the name as it was typed."""

session_argument = click.argument("session", type=SESSION)
newest_argument = click.argument("session", type=SESSION_OR_NEWEST, required=False)
entry_argument = click.argument("entry", type=ENTRY)
last_option = click.option("--last", metavar="N", type=click.IntRange(min=1), help="Show only the last N entries.")
scope_option = click.option("--scope", help="Of this tenant or user alone.")
why_option = click.option("--why", metavar="TEXT", help="The reason, for the log.")


def leaf_option(text: str) -> Callable[[Command], Command]:
    """Return the option --leaf with this help."""
    return click.option("--leaf", metavar="ENTRY", type=LEAF, help=text)


def project_option(text: str) -> Callable[[Command], Command]:
    """Return the option --project with this help. The command gets the folder's path from the root."""
    return click.option("--project", metavar="FOLDER", callback=_folder, help=text)


def _folder(ctx: click.Context, param: click.Parameter, folder: str | None) -> str | None:
    return None if folder is None else absolute(folder)


def _asked(ctx: click.Context, ask: Callable[[Store], Awaitable[list[Found]]]) -> list[Found]:
    """Return what the database answers; nothing if there is none, or if it cannot be read."""
    with contextlib.suppress(FlueError, OSError):
        target = expanded(str(ctx.find_root().params.get("database")))
        if "://" in target or exists(target):
            return finished(_answer(Place(target), ask), needs_loop="://" in target)
    return []


async def _answer(place: Place, ask: Callable[[Store], Awaitable[list[Found]]]) -> list[Found]:
    import flue_py

    read_only = is_only_readable(place.target)
    async with flue_py.open(place.target, busy_timeout=1, read_only=read_only, threads=place.threads) as store:
        return await ask(store)


async def _sessions(store: Store) -> list[SessionInfo]:
    return list((await store.list_sessions(limit=_SESSIONS)).sessions)


async def _entries(store: Store, name: str, prefix: str) -> list[tuple[str, str]]:
    from flue_py.render.entries import entry_text

    session = await store.find_session(name)
    if session.info.entry_count > _TOO_MANY_TO_READ:
        try:
            return [(await session.resolve_entry_id(prefix), "")]
        except AmbiguousId as error:
            return [(entry_id, "") for entry_id in error.matches]
    tree = await session.get_tree()
    found = [entry for entry in reversed(tree) if entry.id.startswith(prefix)][:_ENTRIES]
    return [(entry.id, entry_text(entry)[:60]) for entry in found]


async def newest_session(store: Store) -> Session:
    """Return the session that was active last, and is no task. Raises `SessionNotFound` if there is none."""
    cursor = None
    while True:
        page = await store.list_sessions(limit=100, cursor=cursor)
        for info in page.sessions:
            if info.kind != "task":
                return await store.find_session(info.id)
        cursor = page.next_cursor
        if cursor is None:
            raise SessionNotFound("", detail="there are no sessions yet; import some, or create one (flue-py new)")


async def end_of(store: Store, name: str, before: Session | None = None) -> tuple[Session, LeafChoice]:
    """Return the session and the leaf that ``SESSION``, ``SESSION@ENTRY`` or, after another, ``@ENTRY`` names."""
    try:
        return await store.find_session(name), STORED
    except SessionNotFound:
        owner, sign, entry = name.rpartition("@")
        if not sign or not (owner or before):
            raise
    session = await store.find_session(owner) if owner or before is None else before
    return session, await session.resolve_entry_id(entry)
