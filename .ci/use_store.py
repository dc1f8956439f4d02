"""Use an installed flue_py on a new database, as its user would: use_store.py DATABASE.

Run from a folder outside the checkout with the interpreter of the environment that was installed into.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import flue_py

QUESTION = {"role": "user", "content": "Why is the build red?"}


async def create(database: str) -> str:
    """Create the database and one session; return the session's id."""
    async with flue_py.open(database) as store:
        session = await store.create_session(key="triage", title="Red build")
        await session.append_message(QUESTION)
        return str(session.id)


async def read(database: str, session_id: str) -> None:
    """Open the database again, as a later process would, and read back what was stored."""
    async with flue_py.open(database) as store:
        session = await store.open_session("triage", mode="get")
        assert session.id == session_id, (session.id, session_id)
        entry = await session.get_entry(session.leaf_id)
        assert entry is not None
        messages = await session.build_context()
        assert len(messages) == 1, messages
        report = await store.verify()
        assert list(report.problems) == [], report.problems


def make_older(database: Path) -> None:
    """Make a database as an older version would leave it: stamped with format 0, without today's tables."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE flue_store (name TEXT PRIMARY KEY, value BIGINT NOT NULL) WITHOUT ROWID")
        connection.execute("INSERT INTO flue_store VALUES ('format', 0)")
        connection.execute("CREATE TABLE kept (what TEXT)")
        connection.execute("INSERT INTO kept VALUES ('a year of work')")
        connection.commit()


async def upgrade(database: Path) -> None:
    """Open an older database, which runs the shipped migrations after a backup, and use it."""
    make_older(database)
    session_id = await create(str(database))
    await read(str(database), session_id)
    for copy in (database, database.with_name(f"{database.name}.format-0.bak")):
        with closing(sqlite3.connect(copy)) as connection:
            assert connection.execute("SELECT what FROM kept").fetchall() == [("a year of work",)], copy


def main(arguments: list[str]) -> int:
    package = Path(flue_py.__file__).resolve().parent
    assert package.is_relative_to(Path(sys.prefix).resolve()), f"{package} is not the installed package"
    assert list((package / "_migrations" / "versions").glob("*.py")), "no migrations were installed"
    assert flue_py.__version__ == importlib.metadata.version("flue-py")
    session_id = asyncio.run(create(arguments[0]))
    asyncio.run(read(arguments[0], session_id))
    asyncio.run(upgrade(Path(arguments[0]).with_name("older.db")))
    print(f"flue-py {flue_py.__version__} from {package.name}: created, reopened, verified, and upgraded an older one")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
