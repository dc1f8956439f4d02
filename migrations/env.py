"""alembic's entry: migrate the connection that is handed in, or print SQL in offline mode (``--sql``)."""

from __future__ import annotations

from alembic import context

config = context.config


def run_offline() -> None:
    """Print the statements for review instead of running them."""
    context.configure(url=config.get_main_option("sqlalchemy.url"), literal_binds=True, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()


def run_online() -> None:
    """Run on the caller's connection, inside the caller's transaction."""
    context.configure(connection=config.attributes["connection"], render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    run_offline()
else:
    run_online()
