"""`DatabaseSessionService` of Google's Agent Development Kit, on sqlite+aiosqlite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from google.adk.agents import BaseAgent
from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.events._rewind_events import _apply_rewinds
from google.adk.events.event import Event
from google.adk.runners import Runner
from google.adk.sessions.database_session_service import DatabaseSessionService
from google.adk.sessions.migration.migration_runner import upgrade
from google.genai import types

from benchmarks.peers.claims.measures import FILE, columns, count, names_like, rows, size

APP: Any = {"app_name": "claims", "user_id": "user"}


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[DatabaseSessionService]:
    service = DatabaseSessionService(f"sqlite+aiosqlite:///{folder / FILE}")
    yield service
    await service.close()


def said(text: str, moment: float, tokens: int | None = None) -> Event:
    """Return an event of a run of its own."""
    usage = None if tokens is None else types.GenerateContentResponseUsageMetadata(total_token_count=tokens)
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(author="user", invocation_id=text, content=content, timestamp=moment, usage_metadata=usage)


async def read(service: DatabaseSessionService, name: str = "a") -> Any:
    return await service.get_session(**APP, session_id=name)


def texts(events: Any) -> list[str]:
    return [event.content.parts[0].text for event in events if event.content]


async def fork(folder: Path) -> None:
    """No. There is no fork: another session gets every event again, as rows of its own."""
    async with opened(folder) as service:
        own = await service.create_session(**APP, session_id="a")
        await service.append_event(own, said("one", 1.0))
        assert names_like(service, "fork", "branch", "copy") == []
        copy = await service.create_session(**APP, session_id="copy")
        await service.append_event(copy, said("one", 1.0))
        assert count(folder, "events") == 2


async def with_rewind(service: DatabaseSessionService) -> Runner:
    """Make a session of two runs, and take the second one back."""
    own = await service.create_session(**APP, session_id="a")
    for number, text in enumerate(("one", "two")):
        await service.append_event(own, said(text, 1.0 + number))
    runner = Runner(app_name="claims", agent=BaseAgent(name="agent"), session_service=service)
    await runner.rewind_async(user_id="user", session_id="a", rewind_before_invocation_id="two")
    return runner


async def rewind(folder: Path) -> None:
    """In part. `Runner.rewind_async` goes back to before a run, by another event; what came after stays."""
    async with opened(folder) as service:
        await with_rewind(service)
        events = (await read(service)).events
        assert texts(events) == ["one", "two"]
        assert texts(_apply_rewinds(events)) == ["one"]
        assert names_like(service, "rewind") == []


async def undo(folder: Path) -> None:
    """In part. A rewind can be rewound, by the id of its run; nothing names it, and each is kept as an event."""
    async with opened(folder) as service:
        runner = await with_rewind(service)
        rewound = (await read(service)).events[-1].invocation_id
        await runner.rewind_async(user_id="user", session_id="a", rewind_before_invocation_id=rewound)
        events = (await read(service)).events
        assert texts(_apply_rewinds(events)) == ["one", "two"]
        assert len(events) == 4


async def bills(folder: Path) -> None:
    """No. Usage is on the events, without a sum or a price, and is deleted with the session."""
    async with opened(folder) as service:
        own = await service.create_session(**APP, session_id="a")
        await service.append_event(own, said("one", 1.0, tokens=7))
        assert (await read(service)).events[0].usage_metadata.total_token_count == 7
        assert names_like(service, "usage", "cost") == []
        await service.delete_session(**APP, session_id="a")
        assert count(folder, "events") == 0


async def conflicts(folder: Path) -> None:
    """In part. `StaleSessionError`, by the time of the last event: two of the same time are both taken."""
    async with opened(folder) as service:
        own = await service.create_session(**APP, session_id="a")
        await service.append_event(own, said("asked", 1.0))
        one, other, third = await read(service), await read(service), await read(service)
        await service.append_event(one, said("by one", 1.0))
        await service.append_event(other, said("at the same time", 1.0))
        await service.append_event(one, said("later", 2.0))
        try:
            await service.append_event(third, said("by a third", 3.0))
        except StaleSessionError:
            assert count(folder, "events") == 4
            return
        raise AssertionError("a stale session was written to")


async def deletion(folder: Path) -> None:
    """Yes. `delete_session` deletes a session with its events, and no other; no part of one."""
    async with opened(folder) as service:
        for name in ("a", "b"):
            own = await service.create_session(**APP, session_id=name)
            await service.append_event(own, said("one", 1.0))
        await service.delete_session(**APP, session_id="a")
        assert rows(folder, "SELECT session_id FROM events") == [("b",)]


async def migration(folder: Path) -> None:
    """In part. The version of the tables is stored; older files are copied into a new one, by a command."""
    async with opened(folder) as service:
        await service.prepare_tables()
    assert "adk_internal_metadata" in columns(folder)
    assert rows(folder, "SELECT value FROM adk_internal_metadata WHERE key = 'schema_version'") == [("1",)]
    url = f"sqlite:///{folder / FILE}"
    try:
        upgrade(url, url)
    except RuntimeError:  # in place is not supported
        return
    raise AssertionError("a file was upgraded in place")


async def growth(folder: Path) -> None:
    """Yes. A row for each event: the second 150 take what the first did."""
    async with opened(folder) as service:
        own = await service.create_session(**APP, session_id="a")
        sizes = [size(folder)]
        for half in range(2):
            for number in range(150):
                await service.append_event(own, said("x" * 200, 1.0 + 150 * half + number))
            sizes.append(size(folder))
        assert sizes[2] - sizes[1] < 1.3 * (sizes[1] - sizes[0])
