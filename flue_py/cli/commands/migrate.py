"""The migrate command."""

from __future__ import annotations

from pathlib import Path

import click

from flue_py.cli.output import Answer, said
from flue_py.cli.place import Place, finished
from flue_py.cli.running import command
from flue_py.core.jsontext import JsonObject
from flue_py.store.files.private import make_private_folder
from flue_py.store.migrate import dialect_of
from flue_py.store.migrate import migrate as bring_up_to_date
from flue_py.store.schema.ddl import Migrated, creation_sql, migrations_directory, upgrade_sql
from flue_py.store.waiting import ON_LOOP, OnCaller


@command()
@click.option("--sql", "only_sql", is_flag=True, help="Print the SQL that creates a database, and connect to nothing.")
@click.option("--from", "found", metavar="N", type=int, help="With --sql: print the SQL that upgrades from format N.")
@click.option("--ini", "only_ini", is_flag=True, help="Print the path of the ini file for alembic's own commands.")
def migrate(place: Place, only_sql: bool, found: int | None, only_ini: bool, as_json: bool) -> Answer:
    """Create the database, or upgrade it to the current format.

    Opening a database does the same. Use this command to choose the time, or to read the SQL first.

    An older file is backed up beside itself first. --sql is in the dialect of the database that --db names. With
    --json: an object: location, did (created, upgraded or nothing), fromFormat (null if it was empty),
    formatVersion, backup (null if none was needed).
    """
    if only_ini and (only_sql or as_json or found is not None):
        raise click.UsageError("--ini prints a path, and goes with no other option")
    if only_ini:
        return Answer(document=f"{migrations_directory() / 'alembic.ini'}\n")
    if only_sql and as_json:
        raise click.UsageError("--sql prints SQL; leave out --json")
    if found is not None and not only_sql:
        raise click.UsageError("--from goes with --sql; what format a database has is written in it")
    dialect = dialect_of(place.target)
    if only_sql:
        return Answer(document=creation_sql(dialect) if found is None else upgrade_sql(dialect, found))
    if place.is_file:
        make_private_folder(Path(place.target).parent)
    here = dialect == "sqlite"
    done = finished(bring_up_to_date(place.target, waiting=OnCaller() if here else ON_LOOP), needs_loop=not here)
    row: JsonObject = {
        "location": done.location,
        "did": _did(done),
        "fromFormat": done.found,
        "formatVersion": done.format,
        "backup": None if done.backup is None else str(done.backup),
    }
    return said(_sentence(done), row)


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
