"""What a program may say just before a session is compacted: go on, not now, or here is the text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from flue_py.compaction.joining import WRITTEN
from flue_py.compaction.material import Material
from flue_py.compaction.plan import ContextItem, SessionCompactionPlan
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonValue
from flue_py.errors import InvalidArgument, shown


@frozen
class AboutToCompact:
    """A compaction that is planned, and of which nothing has been made yet.

    ``material`` is what its text is made of: a mode can be asked for one (`flue_py.compaction.modes.make_text`).
    ``mode`` is the mode that is to make it. ``tokens_before`` is the size of the context in tokens, ``tokens_staying``
    that of what stays beside the summary, both as ``counter`` counts them. ``trigger`` is what led to it, and
    ``reason`` says so in words: those of a guard's decision, or ``demand`` where the program itself compacts.
    """

    material: Material
    mode: str
    tokens_before: int
    tokens_staying: int
    counter: str
    trigger: str = "demand"
    reason: str = "asked for"

    @property
    def planned(self) -> SessionCompactionPlan:
        """The plan: what leaves, what stays, the first kept entry."""
        return self.material.planned

    @property
    def leaving(self) -> tuple[ContextItem, ...]:
        """The items that leave the context, in order."""
        return self.material.leaving

    @property
    def staying(self) -> tuple[ContextItem, ...]:
        """The items that stay after the summary, in order."""
        return self.material.staying

    @property
    def previous_summary(self) -> str | None:
        """The summary that this compaction takes over from; None for the first."""
        return self.material.previous_summary

    @property
    def instructions(self) -> str | None:
        """What the summary is to attend to; None where nobody said."""
        return self.material.instructions


@frozen
class HookSummary:
    """The text of a compaction, which a hook gives in place of a mode.

    ``details`` are stored beside it, for programs: no later compaction reads them. ``calls`` are the paid calls that it
    took, as the ledger takes them: usage objects with ``provider``, ``model`` and ``callId``. Raises `InvalidArgument`
    naming the field, and for details under a name that every compaction writes itself.
    """

    text: str
    details: Mapping[str, JsonValue] = field(default_factory=dict)
    calls: Sequence[Mapping[str, JsonValue]] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise InvalidArgument(f"text: should be a string, not {shown(self.text)}")
        if not isinstance(self.details, Mapping):
            raise InvalidArgument(f"details: should be an object, not {shown(self.details)}")
        if taken := sorted(WRITTEN & self.details.keys()):
            raise InvalidArgument(f"details: {taken[0]!r} is written by the compaction itself; choose another name")
        if isinstance(self.calls, (str, bytes, Mapping)) or not isinstance(self.calls, Sequence):
            raise InvalidArgument(f"calls: should be a list of usage objects, not {shown(self.calls)}")


@frozen
class Cancelled:
    """The answer of a hook that wants no compaction now, and why. Raises `InvalidArgument`."""

    reason: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str):
            raise InvalidArgument(f"reason: should be a string, not {shown(self.reason)}")


HookAnswer: TypeAlias = str | HookSummary | Cancelled | None
"""A text that is stored in place of a mode's, `Cancelled`, or None to go on."""

BeforeCompaction: TypeAlias = Callable[[AboutToCompact], HookAnswer | Awaitable[HookAnswer]]
"""Is asked before a session is compacted. It may be async, and may read and write the session meanwhile."""
