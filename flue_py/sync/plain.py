"""What callers of the blocking twins pass: plain functions for what awaits them, and stores that block."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from flue_py.errors import InvalidArgument, shown
from flue_py.store.waiting import Waiting, shielded
from flue_py.sync import Session, Store

if TYPE_CHECKING:
    from flue_py.compaction.hooks import AboutToCompact, BeforeCompaction, HookAnswer

Given = TypeVar("Given")
Result = TypeVar("Result")
PlainHook: TypeAlias = "Callable[[AboutToCompact], HookAnswer]"
"""A hook before a compaction that is a plain function."""


def awaited(waiting: Waiting, function: Callable[[Given], Result]) -> Callable[[Given], Awaitable[Result]]:
    """Return an async function that calls a plain one where it may block, and call the store."""

    async def called(given: Given) -> Result:
        if not waiting.has_loop:
            return function(given)
        # Nothing can end the thread that it runs on: who wants it to end has to wait, and its result is not lost.
        with shielded():
            result = await waiting.call(partial(function, given))
        return result  # noqa: RET504 - to mypy, the scope could end before there is one

    return called


def checked_parts(store: Store, session: Session) -> None:
    """Raise `InvalidArgument` for a store or a session that does not block."""
    for what, given, kind in (("store", store, Store), ("session", session, Session)):
        if not isinstance(given, kind):
            raise InvalidArgument(f"{what}: {shown(given)} is not a {kind.__name__} of flue_py.sync")


def hook_of(waiting: Waiting, hook: PlainHook | None) -> BeforeCompaction | None:
    """Return a hook for what awaits it. Raises as `checked_plain`."""
    if hook is None:
        return None
    plain = checked_plain(hook, "before_compaction")
    return awaited(waiting, plain) if waiting.has_loop else plain


def checked_plain(function: Callable[[Given], Result], what: str) -> Callable[[Given], Result]:
    """Return a plain function unchanged. Raises `InvalidArgument` for async ones, classes and no functions."""
    if not callable(function) or isinstance(function, type) or iscoroutinefunction(function):
        raise InvalidArgument(f"{what}: {shown(function)} is not a plain function; flue_py.runtime takes async ones")
    return function
