"""Mode ``intent``: what the agent did, told by the stored calls of tools. No model is asked, unless there are none."""

from __future__ import annotations

from flue_py.compaction.blocks.around import Around
from flue_py.compaction.material import Material
from flue_py.compaction.modes.listing import (
    INTENT,
    LIST_TOKENS,
    NO_CALLS,
    NOT_ASKED,
    below_warning,
    listed,
    listed_none,
    warned,
)
from flue_py.compaction.modes.lossless import Lossless
from flue_py.compaction.modes.protocol import Asker, Made, Mode
from flue_py.compaction.operations import has_operations
from flue_py.compaction.quoting import quoted
from flue_py.core.frozen import frozen
from flue_py.errors import BudgetExceeded, ModelAborted, ModelError, SummaryFailed

_REASON_CHARS = 200


@frozen
class Intent:
    """Lists what was called, on what, and what became of it, and carries the list on from compaction to compaction.

    The list takes ``max_tokens`` at most, and no more than an eighth of the window; older operations are counted.
    Where nothing has called a tool at all, ``instead`` makes the text if it can, below a line that says so: mode
    ``lossless`` where it has a state or contracts, else what that has in its place, a model's summary. If none can, or
    it failed, or is None, a line and a note say that the list is empty, and why.
    """

    around: Around = Around()
    instead: Mode | None = Lossless()
    max_tokens: int = LIST_TOKENS

    @property
    def name(self) -> str:
        """What it is chosen by."""
        return INTENT

    @property
    def needs_model(self) -> bool:
        """No: it asks one only where nothing has called a tool."""
        return False

    async def make(self, material: Material, asker: Asker | None) -> Made:
        """Return the list, behind what earlier compactions of other modes said. O(messages that leave)."""
        if has_operations(material):
            return listed(material, self.around, self.max_tokens)
        instead, why = self.instead, NO_CALLS
        if isinstance(instead, Lossless) and not (instead.state or instead.contracts):
            instead = instead.instead
        if instead is not None and (asker is not None or not instead.needs_model):
            try:
                return warned(await instead.make(below_warning(material, self.name, why), asker), self.name, why)
            except (SummaryFailed, ModelError, BudgetExceeded) as error:
                if isinstance(error, ModelAborted) or isinstance(error.__cause__, ModelAborted):
                    raise
                why += f", and {instead.name!r} failed: {quoted(str(error), _REASON_CHARS)}"
        else:
            why += NOT_ASKED
        return listed_none(material, self.around, why)
