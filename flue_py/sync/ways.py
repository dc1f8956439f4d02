"""How a blocking call runs the coroutines of a store: on the thread that calls, or on an event loop in another one."""

from __future__ import annotations

from asyncio import SelectorEventLoop
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress
from functools import partial
from sys import exc_info, get_asyncgen_hooks, set_asyncgen_hooks
from threading import Thread, current_thread
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

from flue_py.errors import StoreClosed, WrongEventLoop
from flue_py.store.opener import Opener, starting_threads
from flue_py.store.waiting import run_here

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

P = ParamSpec("P")
Result = TypeVar("Result")


class Way(Protocol):
    """The way to the coroutines of one store."""

    def call(self, function: Callable[[], Coroutine[object, object, Result]]) -> Result:
        """Return what a coroutine function returns. Raises `WrongProcess`, `StoreClosed`, `WrongEventLoop`."""

    def entering(self, manager: AbstractAsyncContextManager[Result]) -> AbstractContextManager[Result]:
        """Return the manager to be entered and left from here."""

    def close(self, generator: AsyncGenerator[object, None]) -> None:
        """Close a generator, also when the store has been closed."""

    def require_running(self) -> None:
        """Raise `WrongProcess`, `StoreClosed` or `WrongEventLoop` where a call could not be answered."""


class OnThisThread(Way):
    """Runs coroutines that never wait, on the thread that calls."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._opener = Opener()
        self._is_stopped = False

    def call(self, function: Callable[[], Coroutine[object, object, Result]]) -> Result:
        self.require_running()
        if get_asyncgen_hooks().firstiter is None:
            return run_here(function())
        with _own_generators():
            return run_here(function())

    @contextmanager
    def entering(self, manager: AbstractAsyncContextManager[Result]) -> Iterator[Result]:
        with _own_generators():
            entered = run_here(_of(manager.__aenter__))
        try:
            yield entered
        except BaseException:
            if not run_here(_of(manager.__aexit__, *exc_info())):
                raise
        else:
            run_here(_of(manager.__aexit__, None, None, None))

    def close(self, generator: AsyncGenerator[object, None]) -> None:
        run_here(_of(generator.aclose))

    def require_running(self) -> None:
        self._opener.require_here(self._location)
        if self._is_stopped:
            raise StoreClosed(f"{self._location} has been closed; open it again")

    def stop(self) -> None:
        """Refuse all later calls."""
        self._is_stopped = True


@contextmanager
def _own_generators() -> Iterator[None]:
    """Hide the generators that begin here from an event loop that happens to run on this thread. It would close them
    at its own end, and with one of them a store that is still in use, or changes that somebody still waits for.
    """
    hooks = get_asyncgen_hooks()
    set_asyncgen_hooks(None, None)
    try:
        yield
    finally:
        set_asyncgen_hooks(*hooks)


async def _of(function: Callable[P, Awaitable[Result]], *args: P.args, **kwargs: P.kwargs) -> Result:
    return await function(*args, **kwargs)


class _Loop(SelectorEventLoop):
    """A loop that ends without starting a thread: asyncio's starts one, which fails when the interpreter exits."""

    def __init__(self) -> None:
        super().__init__()
        self._workers = ThreadPoolExecutor(thread_name_prefix="flue-worker")
        self.set_default_executor(self._workers)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as asyncio has it
        """Wait for the workers. Nothing else runs on this loop any more, so it may be blocked."""
        self._workers.shutdown()


class LoopThread(Way):
    """Runs coroutines on an event loop in a thread of its own, for the process that started it."""

    def __init__(self, location: str) -> None:
        # Only here: it takes 30 ms to load.
        from anyio import run  # noqa: PLC0415
        from anyio.from_thread import BlockingPortal  # noqa: PLC0415

        self._location = location
        self._opener = Opener()
        self._is_stopped = False
        started: Future[BlockingPortal] = Future()

        async def serve() -> None:
            async with BlockingPortal() as portal:
                started.set_result(portal)
                await portal.sleep_until_stopped()

        def run_loop() -> None:
            try:
                run(serve, backend_options={"loop_factory": _Loop})
            except BaseException as error:
                if started.done():
                    raise
                started.set_exception(error)

        self._thread = Thread(target=run_loop, name="flue-loop", daemon=True)
        with starting_threads(location):
            self._thread.start()
        self._portal = started.result()

    @property
    def is_here(self) -> bool:
        """Whether the thread is one of this process, not left behind in the process that forked it."""
        return self._opener.is_here

    def call(self, function: Callable[[], Coroutine[object, object, Result]]) -> Result:
        self.require_running()
        return self._portal.call(function)

    def entering(self, manager: AbstractAsyncContextManager[Result]) -> AbstractContextManager[Result]:
        return self._portal.wrap_async_context_manager(manager)

    def close(self, generator: AsyncGenerator[object, None]) -> None:
        # Where the store has been closed, there is no event loop left to tell, nor any need to.
        with suppress(RuntimeError):
            self.call(partial(_of, generator.aclose))

    def require_running(self) -> None:
        self._opener.require_here(self._location)
        if self._is_stopped:
            raise StoreClosed(f"{self._location} has been closed; open it again")
        if current_thread() is self._thread:
            raise WrongEventLoop(
                f"{self._location}: a blocking call in the thread of the store's event loop, such as from progress=, "
                "would wait for itself; make it in another thread, or when the call has returned"
            )

    def stop(self, error: type[BaseException] | None, *_: object) -> None:
        """End the loop and its thread; after an error, what still runs there is cancelled."""
        self._is_stopped = True
        self._portal.call(self._portal.stop, error is not None)
        self._thread.join()
