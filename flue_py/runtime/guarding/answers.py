"""What a guard answers when it is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from flue_py.compaction.triggers import Decision
from flue_py.core.frozen import frozen
from flue_py.errors import FlueError

if TYPE_CHECKING:
    from flue_py.compaction.result import CompactionResult

Outcome: TypeAlias = Literal[
    "nothing",
    "warned",
    "held",
    "compacting",
    "compacted",
    "too_little",
    "nothing_to_cut",
    "cancelled",
    "failed",
    "elsewhere",
    "overtaken",
]
"""What came of it:

- ``nothing``: nothing is due; ``warned``: nothing yet; ``held``: it is due, and held back
- ``compacting``: a compaction begins; ``on_answer`` alone is called with it, and then with what came of it
- ``compacted``: a compaction was appended; ``too_little``: it freed, or would free, next to nothing, and there is no
  second attempt until the context has grown
- ``nothing_to_cut``: there is nothing that could be cut off
- ``cancelled``: the hook wanted none, the notes of ``result`` say why
- ``failed``: the compaction failed, ``error`` says how
- ``elsewhere``: somebody else compacts the session now
- ``overtaken``: somebody else compacted it, or moved its leaf, meanwhile
"""


@frozen
class GuardAnswer:
    """What came of asking, the decision with its reason, and what a compaction did or why it failed."""

    outcome: Outcome
    decision: Decision
    result: CompactionResult | None = None
    error: FlueError | None = None
