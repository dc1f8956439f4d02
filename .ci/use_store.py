"""Use an installed flue_py on a new database, as its user would: use_store.py DATABASE.

Run from a folder outside the checkout with the interpreter of the environment that was installed into.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import sys
from pathlib import Path

from alembic import command
from alembic.config import Config

import flue_py
from flue_py.db.schema import migrations_directory

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


def make_by_migrations(database: Path) -> None:
    """Make a database by the shipped migrations, as an operator with alembic would."""
    config = Config(str(migrations_directory() / "alembic.ini"))
    config.set_main_option("sqlalchemy.url", str(database))
    command.upgrade(config, "head")


def main(arguments: list[str]) -> int:
    package = Path(flue_py.__file__).resolve().parent
    assert package.is_relative_to(Path(sys.prefix).resolve()), f"{package} is not the installed package"
    assert list((package / "_migrations" / "versions").glob("*.py")), "no migrations were installed"
    assert flue_py.__version__ == importlib.metadata.version("flue-py")
    session_id = asyncio.run(create(arguments[0]))
    asyncio.run(read(arguments[0], session_id))
    migrated = str(Path(arguments[0]).with_name("migrated.db"))
    make_by_migrations(Path(migrated))
    asyncio.run(read(migrated, asyncio.run(create(migrated))))
    print(f"flue-py {flue_py.__version__} from {package.name}: created, reopened, verified, and made by its migrations")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
