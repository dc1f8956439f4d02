"""The entry point of alembic: migrate the given connection, or print SQL in offline mode (``--sql``)."""

from __future__ import annotations

from alembic import context
from sqlalchemy import make_url

from flue_py.store.schema.ddl import LOCK_STATEMENT, Dialect, stamp_statements
from flue_py.store.schema.stamp import FORMAT_VERSION

config = context.config


def run_offline() -> None:
    """Print the statements for review instead of running them: one transaction, the stamp first."""
    url = make_url(config.get_main_option("sqlalchemy.url") or "")
    dialect: Dialect = "postgresql" if url.get_backend_name() == "postgresql" else "sqlite"
    context.configure(
        dialect_name=dialect,
        literal_binds=True,
        render_as_batch=True,
        transactional_ddl=True,
        # Otherwise a percent sign would be doubled, as for a driver.
        dialect_opts={"paramstyle": "named"},
    )
    with context.begin_transaction():
        if dialect == "postgresql":
            context.execute(LOCK_STATEMENT)
        if context.get_starting_revision_argument() is None:
            for statement in stamp_statements(dialect):
                context.execute(statement)
        else:
            context.execute(f"UPDATE flue_store SET value = {FORMAT_VERSION} WHERE name = 'format'")
        context.run_migrations()


def run_online() -> None:
    """Run on the caller's connection, inside the caller's transaction."""
    context.configure(
        connection=config.attributes["connection"],
        render_as_batch=True,
        # Without it, alembic would use the table of another program further on in the search path.
        version_table_schema=config.attributes["schema"],
    )
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    run_offline()
else:
    run_online()
