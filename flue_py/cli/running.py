"""Running a command: open the store, find the sessions and entries that are named, do the work, print the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import nullcontext
from functools import update_wrapper
from inspect import CO_COROUTINE
from os.path import exists
from pathlib import Path
from typing import TypeVar, cast

import click

import flue_py
from flue_py.cli.choosing import ENTRY, LEAF, SESSION, SESSION_OR_NEWEST, newest_session
from flue_py.cli.output import Answer, json_option, print_answer, tell
from flue_py.cli.place import Place, finished, is_only_readable
from flue_py.cli.progress import Tell, ignore_progress, progress_bar
from flue_py.core.sessions import STORED
from flue_py.errors import StoreUnavailable
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.store.files.private import make_private_folder
from flue_py.store.waiting import OnCaller

Result = TypeVar("Result")
Check = Callable[..., None]


def command(
    name: str | None = None,
    *,
    check: Check | None = None,
    create: bool = False,
    bar: str | None = None,
    paged: bool = False,
    json: bool = True,
) -> Callable[[Callable[..., Answer | Awaitable[Answer]]], click.Command]:
    """Make a command of a function that returns what is to be printed.

    An async function works on the open store; a parameter ``store`` of it is that store, narrowed to ``--scope``. An
    argument or option of type `SESSION` is given as a `Session`, one of type `ENTRY` as an entry's id, one of type
    `LEAF` as a leaf. A function that is not async opens what it needs itself; a parameter ``place`` is the database
    that the user named. A parameter ``as_json`` is whether JSON is wanted, one ``tell`` moves the bar on.

    ``check`` gets what the user typed, and raises before the store is opened. ``create`` makes a missing
    database, ``bar`` is the text of a progress bar, ``paged`` shows long answers in the pager, and
    ``json=False`` is for a command that has only one form of output.
    """

    def made(work: Callable[..., Answer | Awaitable[Answer]]) -> click.Command:
        def callback(*, as_json: bool = False, **given: object) -> None:
            if check is not None:
                check(as_json=as_json, **given)
            ctx = click.get_current_context()
            if work.__code__.co_flags & CO_COROUTINE:
                there = cast("Callable[..., Awaitable[Answer]]", work)
                with nullcontext(ignore_progress) if bar is None else progress_bar(bar) as tell:
                    answer = run(ctx.obj, on_store(there, given, as_json=as_json, tell=tell), create=create)
            else:
                answer = cast("Answer", work(**given, **_asked_for(work, place=ctx.obj, as_json=as_json)))
            print_answer(answer, as_json=as_json, paged=paged)
            ctx.exit(answer.code)

        return as_command(callback, work, name, [json_option] if json else [])

    return made


def as_command(
    callback: Callable[..., None], work: Callable[..., object], name: str | None, options: Iterable[click.Option]
) -> click.Command:
    """Return a command with the help and the parameters of ``work``, and then ``options``."""
    made = click.command(name)(update_wrapper(callback, work))
    made.params += options
    return made


def on_store(
    work: Callable[..., Awaitable[Result]],
    given: Mapping[str, object],
    *,
    as_json: bool = False,
    tell: Tell = ignore_progress,
) -> Callable[[Store], Awaitable[Result]]:
    """Return what does the work on an open store, once the sessions and entries that were named are found."""
    params = click.get_current_context().command.params

    async def on(whole: Store) -> Result:
        found = dict(given)
        store = narrowed(whole, found.pop("scope", None))
        for param in params:
            named = found.get(param.name or "")
            if param.type in (SESSION, SESSION_OR_NEWEST) and isinstance(named, str):
                found[str(param.name)] = await store.find_session(named)
            elif param.type is SESSION_OR_NEWEST and named is None:
                found[str(param.name)] = await _newest(store)
            elif param.type is SESSION and isinstance(named, tuple):
                found[str(param.name)] = [await store.find_session(each) for each in named]
        for param in params:
            named = found.get(param.name or "")
            if param.type in (ENTRY, LEAF) and named is not None:
                found[str(param.name)] = await cast("Session", found["session"]).resolve_entry_id(str(named))
            elif param.type is LEAF:
                found[str(param.name)] = STORED
        return await work(**found, **_asked_for(work, store=store, as_json=as_json, tell=tell))

    return on


def narrowed(store: Store, scope: object) -> Store:
    """Return the store as ``--scope`` narrows it."""
    return store.in_scope(scope) if isinstance(scope, str) else store


async def _newest(store: Store) -> Session:
    """Return the session that was active last, and say on stderr which one it is."""
    session = await newest_session(store)
    tell(f"session {session.id}: {await session.name()}")
    return session


def _asked_for(work: Callable[..., object], **offered: object) -> dict[str, object]:
    """Return those of the arguments that a function has a parameter for."""
    code = work.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return {name: value for name, value in offered.items() if name in names}


def run(
    place: Place, work: Callable[[Store], Awaitable[Result]], *, create: bool = False, bar: str | None = None
) -> Result:
    """Return what ``work`` returns, given the open store. ``bar`` is the text of a progress bar.

    ``create`` makes a missing database, in a folder that only its owner can use; otherwise a missing database raises
    `StoreUnavailable`.
    """
    if create and place.is_file:
        make_private_folder(Path(place.target).parent)
    elif not create:
        require_database(place)
    with nullcontext() if bar is None else progress_bar(bar):
        return finished(_with_store(place, work), needs_loop=not place.is_file)


def require_database(place: Place) -> None:
    """Raise `StoreUnavailable` if the database is a file that is missing."""
    # Unlike Path.exists, `exists` has no opinion on names that no file can have.
    if place.is_file and not exists(place.target):
        raise StoreUnavailable(
            f"there is no database at {Path(place.target)}; import a session or create one (flue-py new) first, or "
            "name another with --db"
        )


async def _with_store(place: Place, work: Callable[[Store], Awaitable[Result]]) -> Result:
    read_only = is_only_readable(place.target)
    async with flue_py.open(place.target, read_only=read_only, threads=place.threads) as store:
        waiting = store.backend.waiting
        if isinstance(waiting, OnCaller):  # as `finished` runs it
            waiting.without_loop()
        return await work(store)
