"""The cleanup command."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from flue_py.cli.choosing import scope_option
from flue_py.cli.consent import Plan, destructive, plan_for
from flue_py.errors import InvalidArgument
from flue_py.runtime.housekeeping import DEFAULT_AGE, find_older, parse_age
from flue_py.sessions.store import Store


def _parse(ctx: click.Context, param: click.Parameter, age: str) -> timedelta:
    try:
        return parse_age(age)
    except InvalidArgument as error:
        raise click.BadParameter(str(error), param_hint="AGE") from error


@destructive()
@click.argument("age", default=DEFAULT_AGE, callback=_parse)
@scope_option
async def cleanup(store: Store, age: timedelta) -> Plan:
    """Delete sessions that were last active AGE ago or earlier: 30d (the default), 4w or 12h.

    Task sessions are deleted with their parents only. At a terminal it asks first.

    A session with a task session that was active since stays. Nothing is ever deleted by itself: run this by a
    timer, with --yes. With --json: as prune.
    """
    return await plan_for(store, find_older(store, age, datetime.now(UTC)))
