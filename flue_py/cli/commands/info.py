"""The info command."""

from __future__ import annotations

from flue_py.cli.output import Answer, look
from flue_py.cli.running import command
from flue_py.render.rows import store_row
from flue_py.render.views import facts_lines, store_facts
from flue_py.sessions.store import Store


@command()
async def info(store: Store) -> Answer:
    """Show where the database is, its format and its size.

    With --json: an object: location, backend, formatVersion, sessions, entries, ledgerRows, documents, sizeBytes.
    """
    found = await store.info()
    return Answer(lambda: facts_lines(store_facts(found), look()), lambda: store_row(found))
