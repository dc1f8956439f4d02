"""From the entries of a context to JSON messages, all at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from flue_py.core.jsontext import JsonObject
from flue_py.core.projection import ContextEntry
from flue_py.store.collector import WORTH_HOLDING, collector_held


async def decode_messages(items: Sequence[ContextEntry]) -> list[JsonObject]:
    """Return the messages the model sees, each decoded afresh. Raises `CorruptStore` for what is no JSON object.

    Many are decoded on a thread, so that the event loop goes on.
    """
    if len(items) < WORTH_HOLDING:
        return _decoded(items)
    return await asyncio.to_thread(_decoded, items)


def _decoded(items: Sequence[ContextEntry]) -> list[JsonObject]:
    with collector_held(len(items)):
        return [item.data for item in items]
