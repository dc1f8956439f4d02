"""The events command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import aclosing

import click

from flue_py.cli.choosing import SESSION_NAME, scope_option
from flue_py.cli.lines import ids_in, print_line
from flue_py.cli.output import Answer
from flue_py.cli.running import command
from flue_py.errors import SessionNotFound
from flue_py.render.events import event_row
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store


@command(json=False)
@click.option(
    "--session", "session", type=SESSION_NAME, multiple=True, help="Only of this session; may be given again."
)
@scope_option
@click.option("--after", metavar="EVENT", multiple=True, help="Go on behind the event with this id, in its session.")
@click.option("--after-file", metavar="FILE", multiple=True, help="Go on behind the events that this file has.")
@click.option("--follow", is_flag=True, help="Go on with what comes, until interrupted.")
async def events(
    store: Store,
    session: Sequence[str],
    after: Sequence[str],
    after_file: Sequence[str],
    follow: bool,
) -> Answer:
    """Print what happened to all sessions as JSON lines, one for each event.

    The events of a session are in order. --session also takes the id of a deleted session that an earlier event
    names. --session, --after and --after-file may be given several times. A last line of a file without an end is
    passed over; if the output goes to that file, it is an error. --follow goes on with the commits of any process
    until it is interrupted (exit code 130) or its reader goes away (141).

    A line is an object: id, session (null of a budget of a scope), time (null if it is not known), type, and of
    these what the event has: entryId, what, words, role, model, provider, stopReason, tool, callId, isError,
    fromId, toId, keptId, tokensBefore, otherSessionId, status, by, why, budgetId, scope, unit, allowed, spent.
    """

    def seen() -> Iterator[str]:
        yield from after
        for file in after_file:
            yield from ids_in("--after-file", file)

    named = [await _found(store, name) for name in session]
    told = store.events(sessions=named or None, after=seen(), follow=follow)
    async with aclosing(told) as found:
        async for event in found:
            print_line(event_row(event))
    return Answer()


async def _found(store: Store, name: str) -> Session | str:
    """Return the session that is meant; a name that none has may be the id of one whose deletion is to be told."""
    try:
        return await store.find_session(name)
    except SessionNotFound:
        return name
