"""Holding the cycle collector off while thousands of rows or messages become objects, none of which is a cycle.

Left alone, it would run again and again over everything that is alive, and double the time of a big read.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

WORTH_HOLDING = 500

_lock = Lock()
_holders = 0
_was_enabled = False


@contextmanager
def collector_held(objects: int) -> Iterator[None]:
    """Hold the collector off where ``objects`` are many. Holds on several threads are counted; the last one ends it."""
    if objects < WORTH_HOLDING:
        yield
        return
    global _holders, _was_enabled  # noqa: PLW0603 - the collector is one per process, and so is its holder
    with _lock:
        if _holders == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _holders += 1
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if _holders == 0 and _was_enabled:
                gc.enable()
