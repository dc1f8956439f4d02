"""Blocking functions, made of coroutine functions."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial, update_wrapper
from typing import Concatenate, Generic, ParamSpec, TypeVar

from flue_py.errors import InvalidArgument, shown
from flue_py.once import once
from flue_py.sync.ways import Way

P = ParamSpec("P")
Original = TypeVar("Original")
Original_co = TypeVar("Original_co", covariant=True)
Made = TypeVar("Made")
Returned = TypeVar("Returned")
Result = TypeVar("Result")


class Twin(Generic[Original_co]):
    """An asynchronous object, and the way to it."""

    def __init__(self, way: Way, original: Original_co) -> None:
        self._way = way
        self._original = original

    def __repr__(self) -> str:
        return repr(self._original)


def parts_of(twin: Twin[Original]) -> tuple[Way, Original]:
    """Return the way that a twin's calls go, and what it stands for."""
    return twin._way, twin._original  # noqa: SLF001 - a public attribute would be a name of every session


def same(_: Way, value: Returned) -> Returned:
    """Return a value as it is."""
    return value


def blocking(
    method: Callable[Concatenate[Original, P], Coroutine[object, object, Returned]],
) -> Callable[Concatenate[Twin[Original], P], Returned]:
    """Return a function that calls a coroutine function for a twin, and blocks until it returns."""
    return adapting(method, same)


def adapting(
    method: Callable[Concatenate[Original, P], Coroutine[object, object, Returned]],
    adapt: Callable[[Way, Returned], Result],
) -> Callable[Concatenate[Twin[Original], P], Result]:
    """Do the same, and pass what is returned through ``adapt``."""
    return _twin(method, lambda way, call: adapt(way, way.call(call)))


def entering(
    method: Callable[Concatenate[Original, P], AbstractAsyncContextManager[Returned]],
    adapt: Callable[[Way, Returned], Result],
) -> Callable[Concatenate[Twin[Original], P], AbstractContextManager[Result]]:
    """Do the same for a function whose result is used in ``async with``: here it is used in ``with``."""

    @once(f"{method.__name__}()")
    def entered(way: Way, manager: AbstractAsyncContextManager[Returned]) -> Iterator[Result]:
        with way.entering(manager) as value:
            yield adapt(way, value)

    def enter(way: Way, call: Callable[[], AbstractAsyncContextManager[Returned]]) -> AbstractContextManager[Result]:
        way.require_running()
        return entered(way, call())

    return _twin(method, enter)


def collecting(
    method: Callable[Concatenate[Original, P], Returned], adapt: Callable[[Way, Returned], Result]
) -> Callable[Concatenate[Twin[Original], P], Result]:
    """Do the same for a function that does not wait."""
    return _twin(method, lambda way, call: adapt(way, call()))


def _twin(
    method: Callable[Concatenate[Original, P], Made], finish: Callable[[Way, Callable[[], Made]], Result]
) -> Callable[Concatenate[Twin[Original], P], Result]:
    """Return a function with the name, signature and docstring of ``method``, for a twin and blocking arguments."""

    def call(twin: Twin[Original], /, *args: P.args, **kwargs: P.kwargs) -> Result:
        if not isinstance(twin, Twin):
            what = f"{method.__name__}: {shown(twin)} is not of flue_py.sync"
            raise InvalidArgument(f"{what}; use flue_py.sync.open, or await flue_py.{method.__name__}")
        way, original = parts_of(twin)
        bare: Callable[..., Made] = partial(method, original)
        return finish(way, partial(bare, *map(_bare, args), **{name: _bare(each) for name, each in kwargs.items()}))

    update_wrapper(call, method)
    return call


def _bare(value: object) -> object:
    """Return what is behind a twin, and anything else as it is."""
    return parts_of(value)[1] if isinstance(value, Twin) else value
