"""A block: a text around a summary, with what the next compaction has to know of it."""

from __future__ import annotations

from dataclasses import field

from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject


@frozen
class Block:
    """A text to put around a summary, "" for none; ``details`` are stored beside it, ``notes`` are for the caller."""

    text: str = ""
    details: JsonObject = field(default_factory=dict)
    notes: tuple[str, ...] = ()
