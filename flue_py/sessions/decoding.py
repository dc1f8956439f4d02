"""From the entries of a context to JSON messages, all at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from flue_py.core.jsontext import JsonObject
from flue_py.core.projection import ContextEntry

_WORTH_HOLDING = 500


@contextmanager
def _collector_held() -> Iterator[None]:
    """Hold the cycle collector off. Thousands of new dicts would start it again and again, and none is a cycle."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def decode_messages(items: Sequence[ContextEntry]) -> list[JsonObject]:
    """Return the messages the model sees, each decoded afresh. Raises `CorruptStore` for what is no JSON object."""
    if len(items) < _WORTH_HOLDING:
        return [item.data for item in items]
    with _collector_held():
        return [item.data for item in items]
