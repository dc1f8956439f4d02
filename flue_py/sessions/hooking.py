"""Asking a hook before a session is compacted."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING

from flue_py.errors import InvalidArgument, shown
from flue_py.lazy import lazy_module
from flue_py.sessions.arguments import checked_function
from flue_py.store.waiting import Waiting

if TYPE_CHECKING:
    from flue_py.compaction import hooks
    from flue_py.compaction.hooks import AboutToCompact, BeforeCompaction, Cancelled, HookAnswer, HookSummary
else:
    hooks = lazy_module("flue_py.compaction.hooks")


def checked_hook(hook: BeforeCompaction | None) -> BeforeCompaction | None:
    """Return a hook, or None, unchanged. Raises `InvalidArgument` for what is no function, a class among it.

    A class would be called like one, and fail with an error of its own after the compaction was planned.
    """
    checked_function(hook, "before_compaction")
    if isinstance(hook, type):
        raise InvalidArgument(f"before_compaction: {shown(hook)} is a class, not a function")
    return hook


async def ask_hook(hook: BeforeCompaction, about: AboutToCompact, waiting: Waiting) -> HookSummary | Cancelled | None:
    """Return what a hook answers, a text as a summary. Raises what it raises, `InvalidArgument` for anything else."""
    answer = hook(about)
    if isawaitable(answer):
        answer = await waiting.ask(partial(_of, answer), None)
    if isinstance(answer, str):
        return hooks.HookSummary(answer)
    if answer is None or isinstance(answer, hooks.HookSummary | hooks.Cancelled):
        return answer
    raise InvalidArgument(
        f"before_compaction: answered {shown(answer)}; return None to go on, Cancelled(reason), a text or a HookSummary"
    )


async def _of(answer: Awaitable[HookAnswer]) -> HookAnswer:
    return await answer
