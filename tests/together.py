"""Calls made at the same time, on whichever event loop a test runs."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from flue_py.db.runner import waiting_here

Result = TypeVar("Result")
Other = TypeVar("Other")


async def outcomes(*calls: Coroutine[Any, Any, Result]) -> list[Result | Exception]:
    """Return what each of these calls returned or raised, in their order."""
    return await waiting_here().outcomes(calls)


async def together(*calls: Coroutine[Any, Any, Result]) -> list[Result]:
    """Return what each of these calls returned, in their order; once all have ended, raise what one of them raised."""
    results: list[Result] = []
    for outcome in await outcomes(*calls):
        if isinstance(outcome, Exception):
            raise outcome
        results.append(outcome)
    return results
