"""What was begun is finished, also where the caller who waits for it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import TypeVar

Result = TypeVar("Result")


async def finish(work: Coroutine[object, object, Result]) -> Result:
    """Return what ``work`` returns. Where the caller is cancelled meanwhile, finish it first, then say so.

    ``work`` runs in a task of its own, so that whatever it notes down at its end is noted down in any case.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((task,))
        raise
