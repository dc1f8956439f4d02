"""Sessions of a store whose event loop runs in another thread, as handles for the loop that asked for them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from inspect import iscoroutinefunction
from typing import Protocol, TypeVar, cast

from flue_py.errors import StoreClosed
from flue_py.sessions.handle import Handle, reach_by
from flue_py.store.backend import Backend
from flue_py.store.loops import waiting_here
from flue_py.store.waiting import POLL_SECONDS

Result = TypeVar("Result")


class Bridge(Protocol):
    """Runs a coroutine function where a store is, and returns what that returns, or raises what it raises."""

    async def __call__(self, function: Callable[[], Coroutine[object, object, Result]], /) -> Result: ...


def use_from_here(session: Handle, backend: Backend, bridge: Bridge) -> None:
    """Let a handle, and those that it makes, be used in the event loop that runs now; ``backend`` is elsewhere."""
    # It has the methods of a backend, made of those of that one.
    reach_by(session, cast("Backend", _BackendElsewhere(backend, bridge)))


class _BackendElsewhere:
    """A `Backend` whose calls run where another one is."""

    def __init__(self, backend: Backend, bridge: Bridge) -> None:
        self._backend = backend
        self._bridge = bridge
        self.waiting = waiting_here()

    def __getattr__(self, name: str) -> object:
        found: object = getattr(self._backend, name)
        if not iscoroutinefunction(found):
            return found
        there: Callable[..., Coroutine[object, object, object]] = found

        async def call(*args: object, **named: object) -> object:
            return await self._bridge(lambda: there(*args, **named))

        return call

    async def notifications(self, session_id: str) -> AsyncGenerator[None, None]:
        """Yield as `Backend.notifications` does; what others change is noticed when it is looked for."""
        from anyio import sleep  # noqa: PLC0415 - it takes 30 ms to load, and most programs watch nothing

        last: int | None = -1
        while True:
            try:
                info = await self._bridge(lambda: self._backend.get_session(session_id))
            except StoreClosed:
                if last == -1:
                    raise
                return
            revision = None if info is None else info.revision
            if revision != last:
                last = revision
                yield
            await sleep(POLL_SECONDS)
