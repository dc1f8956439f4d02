"""A plugin of pytest for the framework's own tests: its session services are ours, before they import them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import google.adk.sessions
from google.adk.sessions import database_session_service, in_memory_session_service, sqlite_session_service

from flue_py.adapters.adk import FlueSessionService

if TYPE_CHECKING:
    from google.adk.sessions.session import Session


def _blocking(call: Coroutine[Any, Any, Any]) -> Any:
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(asyncio.run(call)))
    thread.start()
    thread.join()
    return done[0]


class InMemorySessionService(FlueSessionService):
    """Ours in memory, with the calls that block."""

    def __init__(self) -> None:
        super().__init__(":memory:")

    def create_session_sync(self, **fields: Any) -> Session:
        return _blocking(self.create_session(**fields))

    def get_session_sync(self, **fields: Any) -> Session | None:
        return _blocking(self.get_session(**fields))


class SqliteSessionService(FlueSessionService):
    """Ours in a file."""

    def __init__(self, db_path: str) -> None:
        super().__init__(db_path)


class DatabaseSessionService(FlueSessionService):
    """Ours at a URL of SQLAlchemy's."""

    def __init__(self, db_url: str, **_: Any) -> None:
        super().__init__(":memory:" if db_url.endswith(":memory:") else db_url)


google.adk.sessions.InMemorySessionService = InMemorySessionService  # type: ignore[misc,assignment]
google.adk.sessions.DatabaseSessionService = DatabaseSessionService  # type: ignore[misc,assignment]
in_memory_session_service.InMemorySessionService = InMemorySessionService  # type: ignore[misc,assignment]
sqlite_session_service.SqliteSessionService = SqliteSessionService  # type: ignore[misc,assignment]
database_session_service.DatabaseSessionService = DatabaseSessionService  # type: ignore[misc,assignment]
