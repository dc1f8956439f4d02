"""The entry point of alembic, for its own command line and for this package.

The database is, in this order: the connection that this package passes; ``-x url=...``; ``sqlalchemy.url`` of an ini
file; ``FLUE_PY_DB``; and the default of ``flue-py``. With ``--sql`` nothing is opened, and only its dialect counts.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from alembic import context, util

from flue_py.cli import DEFAULT_DATABASE
from flue_py.db.migrate import migrate_with, named_dialect, transaction_on
from flue_py.db.ops import documents
from flue_py.db.ops.seals import all_anew
from flue_py.db.ops.verify import chain_anew
from flue_py.db.schema import LOCK_STATEMENT, format_at, rename_unreleased, stamp_statements
from flue_py.db.tables import metadata
from flue_py.errors import FlueError
from flue_py.system import in_full

if TYPE_CHECKING:
    from alembic.runtime.migration import MigrationContext, MigrationInfo
    from sqlalchemy import Connection

config = context.config

CHAINED = "0003"
"""The revision from which on digests cover their parents' and their fields, and sessions have heads and seals."""


def place() -> str:
    """Return the path or URL of the database."""
    given = context.get_x_argument(as_dictionary=True)
    if unknown := sorted(given.keys() - {"url"}):
        raise util.CommandError(f"-x {unknown[0]}=... is not known; name the database by -x url=PATH_OR_URL")
    # A checkout has no ini file, so the section may be missing.
    of_file = config.get_section(config.config_ini_section, {}).get("sqlalchemy.url")
    target = given.get("url") or of_file or os.environ.get("FLUE_PY_DB") or DEFAULT_DATABASE
    return target if "://" in target else in_full(target)


def named_revision() -> str:
    """Return the revision to go to, in digits. Raises for ``+1``: what that is, only a database can tell."""
    named = context.get_revision_argument()
    revision = named if isinstance(named, str) else "".join(named or ())
    if not revision.isdigit():
        raise util.CommandError(f"{revision}: with --sql, give alembic upgrade the name of a revision, or FROM:TO")
    return revision


def run_offline() -> None:
    """Print the statements for review instead of running them: one transaction, the stamp first."""
    dialect, made = named_dialect(place()), format_at(named_revision())
    context.configure(
        dialect_name=dialect,
        literal_binds=True,
        render_as_batch=True,
        transactional_ddl=True,
        # Otherwise a percent sign would be doubled, as for a driver.
        dialect_opts={"paramstyle": "named"},
        on_version_apply=refuse_stamp,
    )
    with context.begin_transaction():
        if dialect == "postgresql":
            context.execute(LOCK_STATEMENT)
        if context.get_starting_revision_argument() is None:
            for statement in stamp_statements(dialect, made):
                context.execute(statement)
        else:
            context.execute(f"UPDATE flue_store SET value = {made} WHERE name = 'format'")
        context.run_migrations()


def is_reading() -> bool:
    """Return whether the command only looks, as ``alembic current`` does: then there is no revision to go to."""
    try:
        context.get_revision_argument()
    except KeyError:
        return True
    return False


def run_on(connection: Connection, schema: str | None) -> None:
    """Run on a connection, inside the transaction that is open on it."""
    if not is_reading():
        rename_unreleased(connection, schema)
    context.configure(
        connection=connection,
        render_as_batch=True,
        transactional_ddl=True,
        # For alembic check alone: its naming convention would change the names that migrations give.
        target_metadata=metadata if is_reading() else None,
        # Without it, alembic would use the table of another program further on in the search path.
        version_table_schema=schema,
        on_version_apply=note_format,
    )
    migration = context.get_context()
    before = migration.get_current_revision() or ""
    with context.begin_transaction():
        context.run_migrations()
        if before < CHAINED <= (migration.get_current_revision() or ""):
            compute_digests(connection)


def compute_digests(connection: Connection) -> None:
    """Check each entry by the digest of its payload, and compute the digests, heads and seals of today's format."""
    with transaction_on(connection) as tx:
        chain_anew(tx, of_payloads=True)
        all_anew(tx)
        documents.seal_anew(tx)


def refuse_stamp(*, step: MigrationInfo, **_: object) -> None:
    """Raise for a stamp without the migration, which would be a lie."""
    if step.is_stamp:
        raise util.CommandError("a store is stamped by its migrations; run alembic upgrade head")


def note_format(*, ctx: MigrationContext, step: MigrationInfo, **_: object) -> None:
    """Stamp the format that a migration has made."""
    refuse_stamp(step=step)
    ctx.connection.exec_driver_sql(
        f"UPDATE flue_store SET value = {format_at(str(step.up_revision_id))} WHERE name = 'format'"
    )


def run_online() -> None:
    """Run on the caller's connection, or open the database as ``flue-py migrate`` does."""
    if config.attributes.get("connection") is not None:
        run_on(config.attributes["connection"], config.attributes["schema"])
        return
    if config.cmd_opts is not None:
        logging.basicConfig(format="%(levelname)-5.5s [%(name)s] %(message)s")
        logging.getLogger("alembic").setLevel(logging.INFO)
    migrate_with(run_on, place(), reads_only=is_reading())


try:
    if context.is_offline_mode():
        run_offline()
    else:
        run_online()
except FlueError as error:
    if config.attributes.get("connection") is not None:
        raise
    raise util.CommandError(str(error)) from error
