"""Compacting a part of the context that the caller chooses, with both ends kept word for word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flue_py.core.jsontext import JsonValue
from flue_py.core.sessions import STORED, LeafChoice
from flue_py.errors import EntryNotFound, InvalidArgument
from flue_py.lazy import lazy_module
from flue_py.sessions.arguments import checked_flag, checked_id, checked_seen, checked_text, optional
from flue_py.sessions.asking import model_of
from flue_py.sessions.basis import Basis, Planned
from flue_py.sessions.compacting import Compacting
from flue_py.sessions.handle import KnownContext
from flue_py.sessions.hooking import checked_hook
from flue_py.sessions.measuring import checked_request

if TYPE_CHECKING:
    from flue_py.compaction import modes, ranges
    from flue_py.compaction.hooks import BeforeCompaction
    from flue_py.compaction.modes import Mode
    from flue_py.compaction.policy import CompactionSettings
    from flue_py.compaction.result import CompactionResult
    from flue_py.core.model_seam import Model
else:
    modes = lazy_module("flue_py.compaction.modes")
    ranges = lazy_module("flue_py.compaction.ranges")


class Ranging(Compacting):
    """How a range of the context of a `Session` is compacted."""

    __slots__ = ()

    async def compact_range(
        self,
        first: str | None,
        last: str | None,
        model: Model | None = None,
        *,
        mode: str | Mode | None = None,
        settings: CompactionSettings | None = None,
        instructions: str | None = None,
        window: int | None = None,
        dry_run: bool = False,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, JsonValue]] | None = None,
        before_compaction: BeforeCompaction | None = None,
    ) -> CompactionResult:
        """Replace a range of the context by a text that stands for it, and return what was done, or why not.

        ``first`` and ``last`` are the entries of its first and last item; None for ``last`` summarizes from ``first``
        to the end, None for ``first`` everything up to ``last``. What comes before and after stays word for word. A
        range that would separate a tool call from its results is made wider, which the ``notes`` say; one without
        ``last`` ends before a call whose result is still to come. What is pinned in the range stays, after the summary;
        summaries of earlier compactions in it are taken over. Ranges can stand beside each other, and inside of what
        is compacted later. One entry is appended, and nothing removed: `undo` and `uncompact` take it back. The text
        is made to fit beside ``system`` and ``tools``, what goes with the session's own requests; a model is shown a
        transcript of the range. Everything else, also what failures do, is as `compact` says;
        ``settings.keep_recent_tokens`` does not count here.

        Raises `EntryNotFound`, and `InvalidArgument` for an entry that is not in the context, for ends that are the
        wrong way round or both None, for an explicit end within an exchange that is not over, and for a pinned summary
        in the range; otherwise as `compact`. The cost of the context, and of the model.
        """
        for entry_id, name in ((first, "first"), (last, "last")):
            optional(checked_id, entry_id, name)
        if first is None and last is None:
            raise InvalidArgument("first and last are both None; use compact() for the beginning of the context")
        checked_flag(dry_run, "dry_run")
        checked_text(instructions, "instructions")
        checked_request(None, None, system, tools)
        checked_hook(before_compaction)
        asked = None if model is None else model_of(model)
        chosen = modes.checked_mode(mode, settings, has_model=asked is not None or dry_run)
        await self._compare(checked_seen(expected_leaf, expected_revision))
        basis = await self._range_basis(first, last, chosen, settings, window, asked=asked, system=system, tools=tools)
        return await self._compact(basis, asked, instructions, dry_run=dry_run, hook=before_compaction)

    async def _range_basis(
        self,
        first: str | None,
        last: str | None,
        mode: str | Mode | None,
        settings: CompactionSettings | None,
        window: int | None,
        *,
        asked: Model | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, JsonValue]] | None = None,
    ) -> Basis:
        """Return what the compaction of a range is to be made of. Raises as `compact_range` for its ends."""
        for entry_id in (first, last):
            if entry_id is not None and await self.get_entry(entry_id) is None:
                raise EntryNotFound(self.id, entry_id)

        def find(
            read: KnownContext,
            sized: CompactionSettings,
            pins: Sequence[str],
            counts: Sequence[int],
            live: frozenset[str],
        ) -> Planned:
            return ranges.plan_range(read.items, read.compaction, read.tail, sized, first, last, pinned=pins, live=live)

        return await self._basis_of(mode, settings, window, find, asked=asked, system=system, tools=tools)
