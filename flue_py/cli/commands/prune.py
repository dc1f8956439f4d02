"""The prune command."""

from __future__ import annotations

import click

from flue_py.cli.choosing import scope_option
from flue_py.cli.consent import Plan, destructive, plan_for
from flue_py.runtime.housekeeping import find_prunable
from flue_py.sessions.store import Store


@destructive()
@scope_option
@click.option("--without-config", is_flag=True, help="Delete sessions that never had a configuration file, too.")
async def prune(store: Store, without_config: bool) -> Plan:
    """Delete sessions whose configuration file is gone, completed or not.

    Sessions that never had one are kept. Task sessions are deleted with their parents only. At a terminal it asks
    first.

    A relative path is one in the session's folder. Of a program that gives its sessions no configuration file,
    --without-config is all of them. With --json: an object: dryRun, sessionIds (task sessions that go along among
    them), entriesDeleted (null with --dry-run).
    """
    return await plan_for(store, find_prunable(store, without_config=without_config))
