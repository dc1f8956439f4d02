"""What a mode of compaction is: it makes the text that stands for what leaves the context.

A mode does no I/O. What it needs comes with its `Material`; where it needs a model, it asks through an `Asker`, which
books what each call cost before the mode sees the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Protocol

from flue_py.compaction.material import Material
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject
from flue_py.core.model_seam import ModelReply, ModelRequest

__all__ = ["Asker", "Made", "Material", "Mode"]


@frozen
class Made:
    """What a mode made.

    ``text`` stands for what left the context, ``details`` is stored beside it, for the next compaction and for
    programs. ``mode`` is the mode that made it, which is another than was asked for after a fallback; ``notes`` say
    in whole sentences what went otherwise than asked.
    """

    text: str
    mode: str
    details: JsonObject = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Asker(Protocol):
    """Asks the model. What each call cost is in the ledger before its answer is returned."""

    async def ask(self, request: ModelRequest) -> ModelReply:
        """Return the answer. Raises `ModelError`."""

    async def ask_all(self, requests: Sequence[ModelRequest]) -> list[ModelReply | Exception]:
        """Return the answers, or the errors, in the order of the requests, which are made at the same time."""


class Mode(Protocol):
    """A way to make the text of a compaction."""

    @property
    def name(self) -> str:
        """What it is chosen by."""

    @property
    def needs_model(self) -> bool:
        """Whether it cannot do without a model."""

    async def make(self, material: Material, asker: Asker | None) -> Made:
        """Return the text for what leaves the context. ``asker`` is None where the caller has no model.

        Raises `SummaryFailed` where it cannot; nothing is appended then. It may do nothing but compute and ask.
        """
