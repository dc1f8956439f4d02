"""Commands about sessions as wholes: sessions, show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os.path import normpath
from pathlib import PurePath

import click

from flue_py.cli.output import json_option, look, print_json, print_lines
from flue_py.cli.place import Place, absolute
from flue_py.cli.running import run, sources_of
from flue_py.core.entries import Entry
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.listing import ORDERS, SessionOrder
from flue_py.core.sessions import SessionInfo, SessionKind, TaskLink
from flue_py.formats.pi.context import PathSettings, settings_on
from flue_py.render.lines import one_line
from flue_py.render.listing import session_lines
from flue_py.render.rows import entry_row, session_row, task_row
from flue_py.render.views import entry_block, facts_lines, session_facts, session_name
from flue_py.runtime.finding import find_session
from flue_py.sessions.store import Store

_PAGE = 1000


@click.command()
@click.option("--scope", help="Only the sessions of this tenant or user.")
@click.option("--kind", type=click.Choice(["root", "fork", "task"]), help="Only the sessions of this kind.")
@click.option("--incomplete", is_flag=True, help="Only sessions whose work is not completed.")
@click.option("--project", metavar="FOLDER", help="Only sessions that work in this folder, or below it.")
@click.option("--limit", type=click.IntRange(min=1), help="At most this many; all are listed otherwise.")
@click.option("--sort", "order", type=click.Choice(ORDERS), default="activity", help="What is most comes first.")
@click.option("--reverse", is_flag=True, help="What is least comes first; of titles, the last.")
@click.option("--title", help="Only the sessions in whose title this occurs, in any case.")
@json_option
@click.pass_obj
def sessions(
    place: Place,
    scope: str | None,
    kind: SessionKind | None,
    incomplete: bool,
    project: str | None,
    limit: int | None,
    order: SessionOrder,
    reverse: bool,
    title: str | None,
    as_json: bool,
) -> None:
    """List the sessions, most recently active first.

    A session is known by the title it was given, else by the one that a program made, else by its key, else by how it
    begins; a fork also by what it was forked from. Its model is the one that most of its calls were made to. Its cost
    is marked with "+ ?" where nobody has priced some of its calls, and is "-" where it was none of them.
    """
    descending = reverse if order == "title" else not reverse

    folder = None if project is None else absolute(project)

    async def work(store: Store) -> tuple[list[SessionInfo], dict[str, str], dict[str, SessionInfo]]:
        def is_wanted(info: SessionInfo) -> bool:
            return folder is None or _is_below(info.cwd, folder)

        found: list[SessionInfo] = []
        cursor = None
        # Of names the store knows only the titles, so that all are read before some are listed.
        enough = None if order == "title" else limit
        while enough is None or len(found) < enough:
            page = await store.list_sessions(
                scope=scope,
                kind=kind,
                order_by=order,
                descending=descending,
                title=title,
                completed=False if incomplete else None,
                limit=_PAGE if enough is None or folder is not None else min(enough - len(found), _PAGE),
                cursor=cursor,
            )
            found += filter(is_wanted, page.sessions)
            cursor = page.next_cursor
            if cursor is None:
                break
        sources = await sources_of(store, found if order == "title" else found[:limit])
        if order == "title":
            found.sort(key=lambda info: _place_by_name(info, sources), reverse=reverse)
        listed = found[:limit]
        return listed, await _models(store, listed), sources

    found, models, sources = run(place, work, bar="reading")
    if as_json:
        names = [session_name(info, sources.get(info.forked_from_session or "")) for info in found]
        rows = zip(found, names, strict=True)
        print_json([{**session_row(info, name), "model": models.get(info.id)} for info, name in rows])
    else:
        print_lines(session_lines(found, look(), models=models, sources=sources), paged=True)


async def _models(store: Store, listed: Sequence[SessionInfo]) -> dict[str, str]:
    """Return, by session, the model that most of its calls were made to. O(their calls)."""
    report = await store.usage(listed, group_by=("session", "model"))
    calls = sorted((row.calls, str(row.group["session"]), str(row.group["model"])) for row in report.rows)
    return {session: model for _, session, model in calls if model}


def _place_by_name(info: SessionInfo, sources: Mapping[str, SessionInfo]) -> tuple[str, str]:
    """Return what puts sessions in the order of the names that are listed, whatever their case."""
    name = session_name(info, sources.get(info.forked_from_session or ""))
    return name.casefold(), name


def _is_below(folder: str | None, project: str) -> bool:
    """Return whether a working directory is the project's or below it, as paths are written: links are not followed."""
    if not folder:
        return False
    return PurePath(normpath(folder)).is_relative_to(project)


@click.command()
@click.argument("session")
@click.argument("entry", required=False)
@json_option
@click.pass_obj
def show(place: Place, session: str, entry: str | None, as_json: bool) -> None:
    """Show what is known of SESSION, or one ENTRY of it whole."""
    if entry is None:
        _show_session(place, session, as_json=as_json)
    else:
        _show_entry(place, session, entry, as_json=as_json)


def _show_session(place: Place, name: str, *, as_json: bool) -> None:
    async def work(store: Store) -> _Shown:
        session = await find_session(store, name)
        settings = settings_on(await session.get_active_path())
        info = await session.refresh()
        model = (await _models(store, [info])).get(info.id)
        return _Shown(
            info, await session.name(), model, settings, await session.task_links(), await session.task_parents()
        )

    found = run(place, work, bar="reading")
    settings = found.settings
    if as_json:
        task_rows: list[JsonValue] = [task_row(link) for link in found.tasks]
        row = {**session_row(found.info, found.name), "model": found.model}
        print_json({**row, "settings": _settings_row(settings), "tasks": task_rows})
        return
    facts = session_facts(found.info, found.name)
    facts.append(("model", one_line(found.model or "")))
    facts.append(("set to", "/".join(part for part in (settings.provider, settings.model) if part)))
    facts.append(("thinking", settings.thinking_level))
    facts += [("task of", f"{link.parent_id} as {link.task_id}") for link in found.parents]
    facts += [("task", f"{link.child_id} as {link.task_id}") for link in found.tasks]
    print_lines(facts_lines(facts, look()), paged=True)


@frozen
class _Shown:
    """What is known of a session. The model is the one that most of its calls were made to; the settings are of its
    path, and say which one comes next."""

    info: SessionInfo
    name: str
    model: str | None
    settings: PathSettings
    tasks: list[TaskLink]
    parents: list[TaskLink]


def _settings_row(settings: PathSettings) -> JsonObject:
    return {"thinkingLevel": settings.thinking_level, "provider": settings.provider, "model": settings.model}


def _show_entry(place: Place, name: str, prefix: str, *, as_json: bool) -> None:
    async def work(store: Store) -> tuple[Entry | None, str | None]:
        session = await find_session(store, name)
        entry_id = await session.resolve_entry_id(prefix)
        return await session.get_entry(entry_id), (await session.labels()).get(entry_id)

    entry, label = run(place, work, bar="reading")
    assert entry is not None
    if as_json:
        print_json({**entry_row(entry), "label": label})
    else:
        print_lines(entry_block(entry, label), paged=True)
