"""When a session is compacted: triggers, what holds them back, and the decision of all of them.

Pure: what they decide by comes in as `Facts`. `flue_py.runtime.guard.CompactionGuard` collects these, does what
was decided, and keeps the `GuardState`.
"""

from __future__ import annotations

from flue_py.compaction.triggers.deciding import decide, triggers_of
from flue_py.compaction.triggers.protocol import Decision, Facts, Fired, Hold, Moment, Trigger, size_words
from flue_py.compaction.triggers.settings import TriggerSettings
from flue_py.compaction.triggers.state import Attempt, GuardState

__all__ = [
    "Attempt",
    "Decision",
    "Facts",
    "Fired",
    "GuardState",
    "Hold",
    "Moment",
    "Trigger",
    "TriggerSettings",
    "decide",
    "size_words",
    "triggers_of",
]
