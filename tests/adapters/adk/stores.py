"""Services over stores of every kind, which verify at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import flue_py
from flue_py.adapters.adk import FlueSessionService

Scenario = Callable[[FlueSessionService], Coroutine[Any, Any, None]]


async def check(service: FlueSessionService) -> None:
    """Say that the store is sound."""

    async def problems(store: flue_py.Store) -> list[flue_py.Problem]:
        return (await store.verify()).problems

    assert await service._access.run(problems) == []


def with_service(target: str, scenario: Scenario) -> None:
    """Run a scenario in an event loop of its own."""

    async def main() -> None:
        async with service_at(target) as service:
            await scenario(service)

    asyncio.run(main())


@asynccontextmanager
async def service_at(target: str) -> AsyncIterator[FlueSessionService]:
    """A service whose sessions of ours can be used in this event loop, on a store that verifies at the end."""
    async with AsyncExitStack() as opened:
        is_server = target.startswith("postgres")
        store = await opened.enter_async_context(flue_py.open(target)) if is_server else None
        service = await opened.enter_async_context(FlueSessionService(store or target))
        yield service
        await check(service)
