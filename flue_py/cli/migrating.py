"""The migrate command."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from flue_py.cli.output import json_option, print_document, print_result
from flue_py.cli.place import Place
from flue_py.cli.running import make_private_folder
from flue_py.core.jsontext import JsonObject
from flue_py.store.migrate import dialect_of
from flue_py.store.migrate import migrate as bring_up_to_date
from flue_py.store.schema.ddl import Migrated, creation_sql, upgrade_sql


@click.command()
@click.option(
    "--sql", "only_sql", is_flag=True, help="Print the SQL that makes a database instead; connect to nothing."
)
@click.option("--from", "found", metavar="N", type=int, help="With --sql: the SQL that upgrades one from format N.")
@json_option
@click.pass_obj
def migrate(place: Place, only_sql: bool, found: int | None, as_json: bool) -> None:
    """Bring the database to the current format: make it, upgrade it, or leave it as it is.

    Opening does the same. This is for doing it at a time of one's own choosing, or by hand after a look at the SQL.
    """
    if only_sql:
        if as_json:
            raise click.UsageError("--sql prints SQL; leave out --json")
        dialect = dialect_of(place.target)
        print_document(creation_sql(dialect) if found is None else upgrade_sql(dialect, found))
        return
    if found is not None:
        raise click.UsageError("--from goes with --sql; what format a database has is written in it")
    dialect_of(place.target)
    if place.is_file:
        make_private_folder(Path(place.target).parent)
    done = asyncio.run(bring_up_to_date(place.target))
    print_result(_sentence(done), _row(done), as_json=as_json)


def _did(done: Migrated) -> str:
    if done.found is None:
        return "created"
    return "nothing" if done.found == done.format else "upgraded"


def _sentence(done: Migrated) -> str:
    did = _did(done)
    if did == "created":
        return f"{done.location}: created, format {done.format}"
    if did == "nothing":
        return f"{done.location}: format {done.format} is the current one; nothing was changed"
    backup = "" if done.backup is None else f"; a backup is at {done.backup}"
    return f"{done.location}: upgraded from format {done.found} to {done.format}{backup}"


def _row(done: Migrated) -> JsonObject:
    return {
        "location": done.location,
        "did": _did(done),
        "fromFormat": done.found,
        "formatVersion": done.format,
        "backup": None if done.backup is None else str(done.backup),
    }
