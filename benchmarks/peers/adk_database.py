"""`DatabaseSessionService` of Google's Agent Development Kit, on sqlite+aiosqlite.

Of itself it keeps SQLite's rollback journal; here it gets a write-ahead log as the others have, which is faster.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.adk.events.event import Event
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.database_session_service import DatabaseSessionService
from google.adk.sessions.schemas.v1 import StorageEvent
from google.genai import types
from sqlalchemy import event, insert

from benchmarks.peers.protocol import Message, Place

if TYPE_CHECKING:
    from google.adk.sessions.session import Session

APP, USER = "benchmark", "user"
FIRST_TIME = 1767607200.0


async def open_peer(folder: Path) -> AdkPeer:
    """Open the store in ``folder``."""
    service = DatabaseSessionService(f"sqlite+aiosqlite:///{folder / 'store.db'}", connect_args={"timeout": 60})

    @event.listens_for(service.db_engine.sync_engine, "connect")
    def like_the_others(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.close()

    await service.prepare_tables()
    return AdkPeer(service)


class AdkPeer:
    """A session service, with its engine."""

    def __init__(self, service: DatabaseSessionService) -> None:
        self._service = service

    async def session(self, name: str) -> AdkSession:
        # Only the row of the session: what it holds is read when it is loaded.
        own = await self._service.get_session(
            app_name=APP, user_id=USER, session_id=name, config=GetSessionConfig(num_recent_events=0)
        )
        if own is None:
            own = await self._service.create_session(app_name=APP, user_id=USER, session_id=name)
        return AdkSession(self._service, own)

    async def close(self) -> None:
        await self._service.close()


class AdkSession:
    """A session of the service: a list of events, ordered by their times."""

    def __init__(self, service: DatabaseSessionService, session: Session) -> None:
        self._service = service
        self._own = session
        self._length = 0

    async def append(self, message: Message) -> None:
        await self._service.append_event(self._own, make_event(message))

    async def append_many(self, messages: Sequence[Message]) -> None:
        # There is no operation for many events: its own model makes the rows, which are inserted at once.
        for start in range(0, len(messages), 1000):
            rows = [
                StorageEvent.from_event(self._own, make_event(message, FIRST_TIME + start + number))
                for number, message in enumerate(messages[start : start + 1000])
            ]
            columns = [column.name for column in StorageEvent.__table__.columns]
            values = [{name: getattr(row, name) for name in columns} for row in rows]
            async with self._service.db_engine.begin() as connection:
                await connection.execute(insert(StorageEvent), values)

    async def load(self) -> int:
        return len((await self._read()).events)

    async def place(self, before: int) -> Place:
        self._length = len((await self._read()).events)
        return before

    async def fork(self, at: Place) -> None:
        source = await self._read()
        target = await self._service.create_session(app_name=APP, user_id=USER)
        for one in source.events[: int(at)]:
            await self._service.append_event(target, one)

    async def usage_since(self, since: Place) -> int:
        session = await self._read(GetSessionConfig(num_recent_events=self._length - int(since)))
        return sum(
            one.usage_metadata.candidates_token_count or 0 for one in session.events if one.usage_metadata is not None
        )

    async def compact(self, summary: str, kept: Sequence[Message]) -> None:
        for message in kept:
            await self.append(message)

    async def context(self) -> int:
        return len((await self._read(GetSessionConfig(num_recent_events=200))).events)

    async def last(self, count: int) -> int:
        return len((await self._read(GetSessionConfig(num_recent_events=count))).events)

    async def _read(self, config: GetSessionConfig | None = None) -> Session:
        found = await self._service.get_session(app_name=APP, user_id=USER, session_id=self._own.id, config=config)
        assert found is not None
        return found


def make_event(message: Message, at: float | None = None) -> Event:
    """Return a message as an event: its text as text, whatever else its content has as JSON."""
    content, usage = message.get("content", ""), message.get("usage")
    texts = [content] if isinstance(content, str) else [text_of(part) for part in content]
    fields: dict[str, Any] = {} if at is None else {"timestamp": at}
    if usage is not None:
        fields |= {"usage_metadata": usage_of(usage), "model_version": message.get("model")}
    is_user = message["role"] == "user"
    said = types.Content(role="user" if is_user else "model", parts=[types.Part(text=text) for text in texts])
    return Event(author="user" if is_user else "agent", invocation_id="", content=said, **fields)


def text_of(part: Message) -> str:
    """Return the text of a part, or what it is as JSON."""
    return str(part["text"]) if part.get("type") == "text" else json.dumps(part, ensure_ascii=False)


def usage_of(usage: dict[str, Any]) -> types.GenerateContentResponseUsageMetadata:
    """Return a usage as the service stores it."""
    return types.GenerateContentResponseUsageMetadata(
        prompt_token_count=usage["input"] + usage["cacheRead"],
        candidates_token_count=usage["output"],
        cached_content_token_count=usage["cacheRead"],
        total_token_count=usage.get("totalTokens"),
    )
