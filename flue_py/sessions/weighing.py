"""What an edit of the context would cost, before it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from flue_py.core.calls import PaidCall
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonValue
from flue_py.core.prefixes import chain_of
from flue_py.core.projection import ContextEntry
from flue_py.core.sessions import STORED, LeafChoice
from flue_py.lazy import lazy_module
from flue_py.sessions.aligning import tokens_around
from flue_py.sessions.arguments import checked_flag, optional
from flue_py.sessions.edits import Compact, Edit, EditChoice, Exclude, Fork, Resume, Rewind, checked_edit
from flue_py.sessions.excluding import Excluding
from flue_py.sessions.measuring import Measuring, checked_request
from flue_py.sessions.moving import Moving
from flue_py.sessions.ranging import Ranging

if TYPE_CHECKING:
    from flue_py.compaction import modes, plan, ranges
    from flue_py.compaction.modes import Mode, aligned
    from flue_py.compaction.plan import SessionCompactionPlan
    from flue_py.compaction.policy import CompactionSettings
    from flue_py.context import counters
    from flue_py.context.counters import ModelCounter
    from flue_py.core.usage import UsageTotals
    from flue_py.prices import caches, weighing
    from flue_py.prices.caches import CacheRules
    from flue_py.prices.rates import ModelRates
    from flue_py.prices.weighing import CallSize, EditKind, EditPlan
else:
    modes = lazy_module("flue_py.compaction.modes")
    aligned = lazy_module("flue_py.compaction.modes.aligned")
    plan = lazy_module("flue_py.compaction.plan")
    ranges = lazy_module("flue_py.compaction.ranges")
    counters = lazy_module("flue_py.context.counters")
    caches = lazy_module("flue_py.prices.caches")
    weighing = lazy_module("flue_py.prices.weighing")

USUAL_SUMMARY_TOKENS = 2_000
"""How long a model's summary is taken to be where there is nothing to tell by."""
PROMPT_TOKENS = 600
"""What the instruction of a summary takes, about."""


@frozen
class _Basis:
    """What an edit is weighed against: the context now, and the request that was sent last, if it may be in a cache.

    ``around`` are the tokens of the system prompt and the tools.
    """

    leaf: str | None
    now: list[ContextEntry]
    sent: list[ContextEntry]
    is_warm: bool
    counter: ModelCounter
    rules: CacheRules
    model: str | None
    provider: str | None
    around: int
    system: str | None
    tools: Sequence[Mapping[str, JsonValue]] | None

    @property
    def is_aligned(self) -> bool:
        """Whether what goes with each request is known: a summary is asked for by the last one and a message more."""
        return self.system is not None and self.tools is not None

    def request(self, items: Sequence[ContextEntry], more: int = 0, *, prefix: int) -> CallSize:
        """Return how the request of a context is read of which the first items are as they were last sent.

        ``more`` are tokens that it has beside its items, after these.
        """
        counts = self.counter.count_entries(items)
        same = self.around + sum(counts[:prefix])
        return weighing.next_request(self.around + sum(counts) + more, same, self.rules, is_warm=self.is_warm)

    def common_items(self, items: Sequence[ContextEntry]) -> int:
        """Return how many items are as they were last sent."""
        return chain_of(items).common_items(chain_of(self.sent))

    def is_same(self, items: Sequence[ContextEntry]) -> bool:
        """Return whether these are the items of the context now, byte for byte."""
        return chain_of(items).ends == chain_of(self.now).ends


@frozen
class _Edited:
    """The context after an edit: its items, and the tokens of a summary after the first ``before`` of them.

    ``summarized`` is how many tokens a model is shown that writes the summary, None where none does. It is shown a
    transcript, unless ``may_align`` and the last request does.
    """

    items: Sequence[ContextEntry]
    summary_tokens: int = 0
    before: int = 0
    summarized: int | None = None
    may_align: bool = False

    def call(self, basis: _Basis, request: CallSize) -> CallSize | None:
        """Return the call that makes the summary; ``request`` is that of the context as it is now."""
        if self.summarized is None:
            return None
        is_known = self.may_align and basis.is_aligned
        if is_known and request.cache_read >= aligned.LEAST_CACHED * (request.request + PROMPT_TOKENS):
            return weighing.summary_call(request, PROMPT_TOKENS, self.summary_tokens)
        return weighing.CallSize(input=self.summarized + PROMPT_TOKENS, output=self.summary_tokens)


class Weighing(Ranging, Moving, Excluding, Measuring):
    """What edits of a `Session` would cost."""

    __slots__ = ()

    async def plan(
        self,
        edit: EditChoice,
        *,
        model: str | None = None,
        provider: str | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, JsonValue]] | None = None,
        cached: bool | None = None,
        to: LeafChoice = STORED,
        turns: int | None = None,
        entry_ids: Sequence[str] | None = None,
        at: LeafChoice = STORED,
        mode: str | Mode | None = None,
        settings: CompactionSettings | None = None,
        window: int | None = None,
        summary_tokens: int | None = None,
        first: str | None = None,
        last: str | None = None,
    ) -> EditPlan:
        """Return what an edit of the context would cost, and when it has paid for itself. Nothing is changed.

        ``edit`` is `Compact`, `Rewind`, `Exclude`, `Fork` or `Resume`; or its name, such as ``"rewind"``, with its own
        arguments, those after ``cached``. ``model`` and its ``provider`` are those of the next call, by default those
        that the path has at its leaf. ``system`` and ``tools`` are what goes with each request, as for
        `measure_context`.
        ``cached`` says whether the last request is in the provider's cache still; by default, it is if the
        last answer on the path is by this model of this provider and younger than the provider keeps anything.

        Prices are those of the store (`flue_py.open(prices=...)`); one that is unknown leaves ``price`` None. Raises
        what the edit itself raises, but for conflicts. The cost of two contexts, and O(size) of what this process has
        not counted before.
        """
        compacting = {"mode": mode, "settings": settings, "window": window, "summary_tokens": summary_tokens}
        compacting |= {"first": first, "last": last}
        wanted = checked_edit(edit, {"to": to, "turns": turns, "entry_ids": entry_ids, "at": at, **compacting})
        checked_request(model, provider, system, tools)
        optional(checked_flag, cached, "cached")
        basis = await self._weighed_against(model, provider, system, tools, cached)
        edited = await self._edited(wanted, basis)
        return await self._backend.waiting.call(partial(self._weighed, wanted, basis, edited))

    async def _weighed_against(
        self,
        model: str | None,
        provider: str | None,
        system: str | None,
        tools: Sequence[Mapping[str, JsonValue]] | None,
        cached: bool | None,
    ) -> _Basis:
        read = await self._read_context(STORED)
        leaf = read.stamp.leaf_id
        if model is None:
            settings = await self._settings_of(read)
            model, provider = settings.model, provider or settings.provider
        rules = caches.cache_rules(model, provider)
        if cached is None:
            answer = await self._last_answer_by(model, provider, leaf)
            is_warm = answer is not None and self._seconds_too_old(answer, model, provider) is None
        else:
            answer = await self.latest_assistant(leaf=leaf)
            is_warm = cached and answer is not None
        sent = await self._sent_for(answer if is_warm else None)
        counter = counters.counter_for(model)
        around = tokens_around(system, tools, counter)
        return _Basis(leaf, read.items, sent, is_warm, counter, rules, model, provider, around, system, tools)

    async def _edited(self, edit: Edit, basis: _Basis) -> _Edited:
        """Return the context as it would be after an edit."""
        if isinstance(edit, Compact):
            return await self._compacted(edit, basis)
        if isinstance(edit, Exclude):
            async with self._turn:
                return _Edited(await self._context_without(edit.entry_ids, basis.leaf))
        leaf: LeafChoice = basis.leaf
        if isinstance(edit, Rewind):
            async with self._turn:
                leaf = await self._rewind_target(edit.to, edit.turns, basis.leaf)
        elif isinstance(edit, Fork) and edit.at is not STORED:
            leaf = edit.at
        return _Edited(basis.now if leaf == basis.leaf else (await self._read_context(leaf)).items)

    async def _compacted(self, edit: Compact, basis: _Basis) -> _Edited:
        is_range = edit.first is not None or edit.last is not None
        sizes = edit.mode, edit.settings, edit.window
        if is_range:
            found = await self._range_basis(edit.first, edit.last, *sizes)
        else:
            found = await self._basis_of(*sizes, system=basis.system, tools=basis.tools)
        planned = found.found
        if isinstance(planned, plan.NoCompaction):
            return _Edited(basis.now)
        before = _items_before(found.items, planned)
        ahead = {item.entry_id for item in found.items[:before]}
        after = [item for item in planned.staying if item.entry_id not in ahead]
        staying = cast("Sequence[ContextEntry]", [*found.items[:before], *after])
        if not found.mode.needs_model or found.settings.prefer_deterministic:
            registered = await self._registered_block(found, basis.leaf)
            made = await modes.make_text(found.mode, found.material(planned, None, None, registered), None)
            whole = await self._with_registered(found, made, basis.leaf)
            if found.made(whole, ()).reason is not None:
                # `compact` refuses it, and the context stays as it is.
                return _Edited(basis.now)
            return _Edited(staying, found.size_of(whole.text), before)
        tokens = edit.summary_tokens
        if tokens is None:
            tokens = min(USUAL_SUMMARY_TOKENS, found.tokens_leaving)
        return _Edited(staying, tokens, before, found.tokens_leaving, may_align=not is_range)

    def _weighed(self, edit: Edit, basis: _Basis, edited: _Edited) -> EditPlan:
        unchanged = basis.common_items(basis.now)
        unedited = basis.request(basis.now, prefix=unchanged)
        # After a summary, nothing of the context is where it was.
        common = min(edited.before, unchanged) if edited.summary_tokens else basis.common_items(edited.items)
        after = basis.request(edited.items, edited.summary_tokens, prefix=common)
        call = edited.call(basis, unedited)
        price = weighing.price_edit(call, after, unedited, basis.rules, partial(self._rates, basis))
        kind = _KINDS[type(edit)]
        turns, never = weighing.turns_to_pay(price)
        if isinstance(edit, Fork | Resume):
            turns, never = None, "no_edit"
        elif not edited.summary_tokens and basis.is_same(edited.items):
            turns, never = None, "nothing_to_do"
        return weighing.EditPlan(
            kind,
            basis.leaf,
            basis.model,
            basis.provider,
            basis.counter.name,
            basis.counter.is_estimate or call is not None,
            basis.is_warm,
            common,
            unedited.request,
            after.request,
            after.cache_read,
            unedited.cache_read,
            call,
            price,
            turns,
            never,
        )

    def _rates(self, basis: _Basis, usage: UsageTotals) -> ModelRates | None:
        return self._pricer.rates(PaidCall(usage, provider=basis.provider or "", model=basis.model or ""))


def _items_before(items: Sequence[ContextEntry], planned: SessionCompactionPlan) -> int:
    """Return how many items of a context stay before the new summary: those before a range."""
    if not isinstance(planned, ranges.RangePlan):
        return 0
    return next(at for at, item in enumerate(items) if item.entry_id == planned.first_entry_id)


_KINDS: dict[type[Edit], EditKind] = {
    Compact: "compact",
    Rewind: "rewind",
    Exclude: "exclude",
    Fork: "fork",
    Resume: "resume",
}
