"""The sessions command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial

import click

from flue_py.cli.about import models_of
from flue_py.cli.choosing import scope_option
from flue_py.cli.filters import SessionChoice, choice_options, chooser, chosen_sessions, moment
from flue_py.cli.output import Answer, look
from flue_py.cli.running import command
from flue_py.core.listing import ORDERS, Scalar, SessionOrder
from flue_py.core.sessions import SessionInfo, SessionKind
from flue_py.render.listing import session_lines
from flue_py.render.rows import session_row
from flue_py.render.views import name_among
from flue_py.sessions.families import sources_of
from flue_py.sessions.store import Store

_PAGE = 1000


@command(bar="reading", paged=True)
@scope_option
@click.option("--kind", type=click.Choice(["root", "fork", "task"]), help="Only the sessions of this kind.")
@click.option("--all", "show_all", is_flag=True, help="Completed sessions, too.")
@choice_options
@click.option("--limit", type=click.IntRange(min=1), help="List at most this many (default: all).")
@click.option("--sort", "order", type=click.Choice(ORDERS), default="activity", help="Sort by this, the most first.")
@click.option("--reverse", is_flag=True, help="Reverse the order.")
@click.option("--title", help="Only the sessions whose title contains this, in any case.")
@click.option("--scope-prefix", help="Only the sessions whose scope begins with this.")
@click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="Only those with this in their metadata.")
async def sessions(
    store: Store,
    kind: SessionKind | None,
    show_all: bool,
    program: str | None,
    project: str | None,
    model: str | None,
    git_branch: str | None,
    since: str | None,
    until: str | None,
    newest: int | None,
    limit: int | None,
    order: SessionOrder,
    reverse: bool,
    title: str | None,
    scope_prefix: str | None,
    metadata: tuple[str, ...],
) -> Answer:
    """List the sessions that are not completed, most recently active first.

    Completed is a task that has ended, a run whose file says so, and what a program has marked as completed.
    The name is the title that was given, else the one that a program made, else the key, else the first words; a fork
    also shows what it was forked from. The model is the one of most calls. "+ ?" after a cost means that some calls
    have no known price; "-" means that none has one. A VALUE that is a JSON number, true, false or null is that; a text
    may be given in quotes. Where --metadata is repeated, all have to be there.

    A session was last active at the time of its newest entry, one without entries when it was made. Messages and
    costs are its own. The project is the last part of its folder. Titles are sorted as they are listed, whatever
    their case. If completed sessions are left out, a line on stderr says so.

    With --json: a list of objects: id, name (as it is listed), key, title, autoTitle, scope, kind, forkedFrom
    (sessionId, entryId, or null), leafId, revision, cwd, entryCount, messageCount, firstMessage, spentTokens and
    spent (null where nobody knows them), unpricedCalls, unknownCalls (those of which nobody knows the tokens
    either), metadata, completedAt, createdAt, activeAt, updatedAt, model.
    """
    wanted = dict(map(_pair, metadata)) or None
    begin, end = moment(since, "--since"), moment(until, "--until", is_end=True)
    completed = None if show_all else False
    choice = SessionChoice(program, project, model, git_branch, begin, end, newest)
    if newest is None:
        is_chosen = await chooser(store, choice)
    else:
        ids = {info.id for info in await chosen_sessions(store, choice, completed=completed)}
        is_chosen = lambda info: info.id in ids  # noqa: E731
    found: list[SessionInfo] = []
    cursor = None
    # The store knows only titles, not names: all sessions are read before they are put in the order of their names.
    enough = None if order == "title" else limit
    listing = partial(store.list_sessions, kind=kind, title=title, scope_prefix=scope_prefix, metadata=wanted)
    while enough is None or len(found) < enough:
        page = await listing(
            order_by=order,
            descending=reverse if order == "title" else not reverse,
            completed=completed,
            limit=_PAGE if enough is None or choice != SessionChoice() else min(enough - len(found), _PAGE),
            cursor=cursor,
        )
        found += filter(is_chosen, page.sessions)
        cursor = page.next_cursor
        if cursor is None:
            break
    sources = await sources_of(store.backend, found if order == "title" else found[:limit])
    if order == "title":
        found.sort(key=lambda info: _place_by_name(info, sources), reverse=reverse)
    listed = found[:limit]
    models = await models_of(store, listed)
    has_others = not show_all and (await listing(completed=True, limit=1)).sessions
    return Answer(
        lambda: session_lines(listed, look(), models=models, sources=sources),
        lambda: [{**session_row(info, name_among(info, sources)), "model": models.get(info.id)} for info in listed],
        notes=("completed sessions are left out; --all lists them, too",) if has_others else (),
    )


def _pair(text: str) -> tuple[str, Scalar]:
    key, separator, value = text.partition("=")
    if not separator:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--metadata")
    try:
        found = json.loads(value)
    except ValueError:
        return key, value
    return key, value if isinstance(found, (dict, list)) else found


def _place_by_name(info: SessionInfo, sources: Mapping[str, SessionInfo]) -> tuple[str, str]:
    """Return what puts sessions in the order of the names that are listed, whatever their case."""
    name = name_among(info, sources)
    return name.casefold(), name
