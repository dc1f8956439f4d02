"""Context managers that are entered once, and say so when they are entered again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from flue_py.errors import InvalidArgument

P = ParamSpec("P")
Entered = TypeVar("Entered")


def async_once(
    what: str,
) -> Callable[[Callable[P, AsyncIterator[Entered]]], Callable[P, AbstractAsyncContextManager[Entered]]]:
    """Do as `contextlib.asynccontextmanager`; what is entered a second time raises `InvalidArgument`, naming ``what``.

    The standard library raises an `AttributeError` about its own fields.
    """

    def decorate(function: Callable[P, AsyncIterator[Entered]]) -> Callable[P, AbstractAsyncContextManager[Entered]]:
        managing = asynccontextmanager(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[Entered]:
            return _AsyncOnce(managing(*args, **kwargs), what)

        return call

    return decorate


def once(what: str) -> Callable[[Callable[P, Iterator[Entered]]], Callable[P, AbstractContextManager[Entered]]]:
    """Do the same for what blocks: as `contextlib.contextmanager`."""

    def decorate(function: Callable[P, Iterator[Entered]]) -> Callable[P, AbstractContextManager[Entered]]:
        managing = contextmanager(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[Entered]:
            return _Once(managing(*args, **kwargs), what)

        return call

    return decorate


class _EnteredOnce:
    """Whether something was entered."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._was_entered = False

    def enter(self) -> None:
        """Note that it is entered. Raises `InvalidArgument` the second time."""
        if self._was_entered:
            raise InvalidArgument(f"{self._what} was entered before, and is good for one block; call it once more")
        self._was_entered = True


class _AsyncOnce(AbstractAsyncContextManager[Entered]):
    def __init__(self, manager: AbstractAsyncContextManager[Entered], what: str) -> None:
        self._manager = manager
        self._once = _EnteredOnce(what)

    async def __aenter__(self) -> Entered:
        self._once.enter()
        return await self._manager.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._manager.__aexit__(kind, error, trace)


class _Once(AbstractContextManager[Entered]):
    def __init__(self, manager: AbstractContextManager[Entered], what: str) -> None:
        self._manager = manager
        self._once = _EnteredOnce(what)

    def __enter__(self) -> Entered:
        self._once.enter()
        return self._manager.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._manager.__exit__(kind, error, trace)
