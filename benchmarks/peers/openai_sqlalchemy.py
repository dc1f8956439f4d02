"""`SQLAlchemySession` of the OpenAI Agents SDK, on sqlite+aiosqlite."""

from __future__ import annotations

from pathlib import Path

from agents.extensions.memory import SQLAlchemySession
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from benchmarks.peers.openai_sqlite import OpenAISession


async def open_peer(folder: Path) -> SQLAlchemyPeer:
    """Open the store in ``folder``."""
    url = f"sqlite+aiosqlite:///{folder / 'store.db'}"
    engine = create_async_engine(url, connect_args={"timeout": 60})
    # Makes the tables, so that no session has to look for them.
    await SQLAlchemySession("", engine=engine, create_tables=True).get_items()
    return SQLAlchemyPeer(engine)


class SQLAlchemyPeer:
    """One engine, which all sessions share."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def session(self, name: str) -> OpenAISession:
        sessions = [SQLAlchemySession(each, engine=self._engine) for each in (name, f"fork of {name}")]
        return OpenAISession(*sessions)

    async def close(self) -> None:
        await self._engine.dispose()
