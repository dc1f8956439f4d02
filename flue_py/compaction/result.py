"""What a compaction did, or why it did nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from flue_py.compaction.plan import SessionCompactionPlan
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject
from flue_py.core.sessions import Appended

NotCompacted: TypeAlias = Literal[
    "no_cut_point",
    "first_kept_not_message",
    "not_smaller",
    "dry_run",
    "cancelled",
    "elsewhere",
    "leaf_moved",
    "compacted_meanwhile",
]
"""Why nothing was appended:

- ``no_cut_point``: nothing can be cut off, or nothing new; ``first_kept_not_message``: see `NoCompaction`
- ``not_smaller``: what was made is not smaller than what it would stand for
- ``dry_run``: the caller asked what it would do
- ``cancelled``: a hook wanted none; the notes say why
- ``elsewhere``: somebody else compacts the session now: ask again later
- ``leaf_moved``: meanwhile the leaf was moved to where what was planned is not on the path
- ``compacted_meanwhile``: another compaction was appended meanwhile
"""

WHY_NOT: Mapping[str, str] = {
    "no_cut_point": "there is nothing to compact beside what is kept",
    "first_kept_not_message": "there is no message to keep from",
    "not_smaller": "the summary is not smaller than what it would stand for",
    "elsewhere": "another process compacts the session now",
    "leaf_moved": "the leaf was moved meanwhile",
    "compacted_meanwhile": "the session was compacted meanwhile",
}
"""The reasons in words; those of a hook are in the notes."""


@frozen
class CompactionResult:
    """What a compaction did: ``appended`` says where it landed, and is None where it did nothing.

    ``reason`` then says why. ``mode`` is the mode that made the text, or was to make it. ``tokens_before`` and
    ``tokens_after`` are the sizes of the context in tokens, both as ``counter`` counts them, which is the one for the
    model of the session. ``tokens_after`` is None where nothing was made; ``tokens_staying`` is what stays beside the
    summary. ``summary`` is the text. ``calls`` are the paid calls that it took, as the ledger has them, also where
    nothing was appended; ``notes`` say in whole sentences what went otherwise than asked. ``from_hook`` says that a
    hook gave the text in place of a mode.
    """

    reason: NotCompacted | None
    mode: str
    tokens_before: int
    tokens_staying: int
    tokens_after: int | None = None
    planned: SessionCompactionPlan | None = None
    counter: str = ""
    summary: str | None = None
    calls: tuple[JsonObject, ...] = ()
    notes: tuple[str, ...] = ()
    appended: Appended | None = None
    from_hook: bool = False

    @property
    def entry_id(self) -> str | None:
        """The id of the compaction's entry; None where nothing was appended."""
        return self.appended.entry_ids[0] if self.appended is not None and self.appended.entry_ids else None

    @property
    def tokens_freed(self) -> int:
        """How many tokens smaller the context has become; 0 where nothing was appended."""
        return self.tokens_before - self.tokens_after if self.appended and self.tokens_after is not None else 0


@frozen
class Fitted:
    """Whether a context fits into the window of a model: its ``tokens``, the ``room`` for them, what was compacted."""

    fits: bool
    tokens: int
    room: int
    compactions: tuple[CompactionResult, ...] = ()


@frozen
class Uncompacted:
    """A compaction that was taken back: its id, and that of the one that is in effect again, None for no other.

    ``appended`` says where the entry landed that takes it back. ``tokens_before`` and ``tokens_after`` are the sizes of
    the context.
    """

    compaction_id: str
    restored_id: str | None
    tokens_before: int
    tokens_after: int
    appended: Appended
