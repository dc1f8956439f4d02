"""Compacting a session: plan, let a mode make the text, append it; in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, cast

from flue_py.core.entries import Entry
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import COMPACTION, MESSAGE
from flue_py.core.projection import ContextEntry
from flue_py.core.sessions import STORED, Appended, LeafChoice, Seen
from flue_py.core.settings import PathSettings
from flue_py.core.spoken import message_text
from flue_py.core.uncompacting import uncompaction
from flue_py.errors import LeafConflict, SummaryFailed
from flue_py.lazy import lazy_module
from flue_py.sessions.aligning import Aligning, tokens_around, why_not_the_same
from flue_py.sessions.arguments import (
    checked_count,
    checked_flag,
    checked_seen,
    checked_text,
    optional,
)
from flue_py.sessions.asking import BookingAsker, Patience, book, model_of
from flue_py.sessions.basis import Basis, Finding, beginning, said, within_budget
from flue_py.sessions.budgeting import Budgeting
from flue_py.sessions.claiming import Claiming
from flue_py.sessions.claims import Claim, claim_of_this_task, compacting_under
from flue_py.sessions.handle import KnownContext
from flue_py.sessions.hooking import ask_hook, checked_hook
from flue_py.sessions.marking import pins_in
from flue_py.sessions.measuring import checked_request
from flue_py.sessions.registering import Registering
from flue_py.sessions.usage import Usage

if TYPE_CHECKING:
    from flue_py.compaction import blocks, hooks, modes, plan, policy, ranges, result, returning, running
    from flue_py.compaction.blocks import Block
    from flue_py.compaction.hooks import BeforeCompaction, HookSummary
    from flue_py.compaction.modes import Made, Mode
    from flue_py.compaction.plan import SessionCompactionPlan
    from flue_py.compaction.policy import CompactionSettings
    from flue_py.compaction.result import CompactionResult, NotCompacted, Uncompacted
    from flue_py.context import counters, items
    from flue_py.context.counters import ModelCounter
    from flue_py.context.sources import changes
    from flue_py.core.model_seam import Model
    from flue_py.prices import windows
else:
    # Most sessions are never compacted, and a command should start without this.
    blocks = lazy_module("flue_py.compaction.blocks")
    changes = lazy_module("flue_py.context.sources.changes")
    counters = lazy_module("flue_py.context.counters")
    hooks = lazy_module("flue_py.compaction.hooks")
    items = lazy_module("flue_py.context.items")
    modes = lazy_module("flue_py.compaction.modes")
    plan = lazy_module("flue_py.compaction.plan")
    policy = lazy_module("flue_py.compaction.policy")
    ranges = lazy_module("flue_py.compaction.ranges")
    result = lazy_module("flue_py.compaction.result")
    returning = lazy_module("flue_py.compaction.returning")
    running = lazy_module("flue_py.compaction.running")
    windows = lazy_module("flue_py.prices.windows")


class Around(NamedTuple):
    """What goes with each request of a session, and whether a request is the context as it is, beside that."""

    system: str
    tools: Sequence[Mapping[str, JsonValue]]
    is_whole: bool


def _own_window(had: PathSettings, asked: Model | None) -> int | None:
    """Return the window that the context has to fit into: that of the session's own model, as far as it is known.

    A summarizer may have a larger or a smaller one, and a caller who says what it is knows best. O(1) once what is
    published has been loaded.
    """
    own = None if asked is None else asked.context_window
    if had.model is None or (asked is not None and own and why_not_the_same(asked, had) is None):
        return own
    return windows.published_window(had.model, had.provider) or own


class Compacting(Registering, Aligning, Usage, Budgeting, Claiming):
    """How a `Session` is compacted."""

    __slots__ = ()

    async def compact(
        self,
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
        aligned: bool = True,
        before_compaction: BeforeCompaction | None = None,
    ) -> CompactionResult:
        """Replace the beginning of the context by a text that stands for it, and return what was done, or why not.

        The end of the context stays word for word (``settings.keep_recent_tokens``; without ``settings``, where a model
        is asked, only what the last turn owes). The text of what comes before it is made by ``mode``, by default that
        of the settings (``llm``), which asks ``model``, with ``instructions`` in place of ours, which only the system
        prompt has then. ``window`` is the context window of the session's own model in tokens, by default that of the
        model of its latest answer, as far as it is known, and otherwise that of ``model``; what is kept and reserved is
        made to fit into it, beside ``system`` and ``tools``. One entry is appended when the text is there, and nothing
        before: a failure changes nothing but the ledger, which has what each call cost as soon as it is answered.
        Messages that were appended meanwhile stay in the context. If the leaf was moved elsewhere, or somebody else
        compacted, nothing is appended. With ``dry_run``, no model is asked.
        `undo` takes it back. While a guard compacts the session, in whatever process, nothing is made, for the reason
        ``elsewhere``. ``expected_leaf`` and ``expected_revision`` are compared before anything is planned.

        ``system`` and ``tools`` are what goes with the session's own requests ("" and () for none). If both are given,
        and ``model`` is the session's, a summary is asked for by the last request with one message more, so that most
        of it is read from the provider's cache; where that cannot be, ``notes`` say why, and a transcript is sent. Who
        sends something else than the context as it is, for example what settings leave of it, says ``aligned=False``.

        ``before_compaction`` is asked when there is a plan, before anything is made: it returns None to go on,
        `Cancelled`, or the text itself (`flue_py.compaction.hooks`), which is appended as one of a mode would be. What
        it raises is raised, and nothing is changed.

        Where budgets cover the session, they are asked for each call before it is made, and charged with what it used.

        Raises `SummaryFailed`, whose cause is `BudgetExceeded` or the model's error, `LeafConflict`,
        `RevisionConflict`, and `InvalidArgument` for a mode that needs a model where there is none. The cost of the
        context, and of the model.
        """
        checked_flag(dry_run, "dry_run")
        checked_flag(aligned, "aligned")
        checked_text(instructions, "instructions")
        checked_request(None, None, system, tools)
        checked_hook(before_compaction)
        asked = None if model is None else model_of(model)
        chosen = modes.checked_mode(mode, settings, has_model=asked is not None or dry_run)
        await self._compare(checked_seen(expected_leaf, expected_revision))
        basis = await self._basis_of(chosen, settings, window, asked=asked, system=system, tools=tools)
        around = None if system is None or tools is None else Around(system, tools, aligned)
        return await self._compact(basis, asked, instructions, dry_run=dry_run, around=around, hook=before_compaction)

    async def _compact(
        self,
        basis: Basis,
        asked: Model | None,
        instructions: str | None,
        *,
        dry_run: bool,
        around: Around | None = None,
        hook: BeforeCompaction | None = None,
    ) -> CompactionResult:
        """Make the text for what was planned, and append it. ``around`` is what goes with the session's requests."""
        if isinstance(basis.found, plan.NoCompaction):
            return basis.nothing(basis.found.reason)
        if dry_run:
            return basis.nothing("dry_run")
        claim = claim_of_this_task(self.id)
        if claim is None and await self._is_claimed_elsewhere():
            return basis.nothing("elsewhere")
        # It is the claim of this one compaction, and not of what a model or a hook may begin.
        with compacting_under(None):
            return await self._compact_now(basis, basis.found, asked, instructions, around, hook, claim)

    async def _compact_now(
        self,
        basis: Basis,
        planned: SessionCompactionPlan,
        asked: Model | None,
        instructions: str | None,
        around: Around | None,
        hook: BeforeCompaction | None,
        claim: Claim | None,
    ) -> CompactionResult:
        registered = await self._registered_block(basis, basis.leaf)
        material = basis.material(planned, instructions, asked, registered)
        answer = None if hook is None else await ask_hook(hook, basis.about(material), self._backend.waiting)
        if isinstance(answer, hooks.Cancelled):
            return basis.cancelled(answer)
        if answer is not None:
            return await self._append_supplied(basis, planned, material, answer)
        asker = None if asked is None else self._asker_of(asked, basis.settings, claim=claim)
        if asked is not None and around is not None:
            material = await self._aligned(material, basis, asked, around)
        if asker is not None and not isinstance(basis.mode, modes.Window):
            material = replace(material, changes=await self._changes(basis, planned))
        made = await modes.make_text(basis.mode, material, asker)
        if not made.text.strip() and not isinstance(basis.mode, modes.Window):
            raise SummaryFailed(basis.mode.name, "it made no text")
        return await self._append_made(basis, planned, made, () if asker is None else tuple(asker.calls))

    async def _changes(self, basis: Basis, planned: SessionCompactionPlan) -> str:
        """Return what the calls stored on the path have changed up to the last item that leaves. O(path)."""
        last = planned.leaving[-1].entry_id
        first = planned.first_entry_id if isinstance(planned, ranges.RangePlan) and planned.head is not None else None
        path = await self.get_active_path(leaf=basis.leaf)
        ids = [entry.id for entry in path]
        stretch = path[0 if first is None else ids.index(first) : ids.index(last) + 1]

        def read() -> str:
            messages = [ContextEntry(entry) for entry in stretch if entry.kind == MESSAGE]
            return changes.changes_text(changes.changes_of(list(map(items.Item, messages, count())))) or ""

        return await self._backend.waiting.call(read)

    async def _append_supplied(
        self, basis: Basis, planned: SessionCompactionPlan, material: modes.Material, answer: HookSummary
    ) -> CompactionResult:
        """Append the text that a hook gave. What it paid is in the ledger first, also where nothing is appended."""
        calls = [(await book(self, call, self._backend.new_entry_id, COMPACTION)).call for call in answer.calls]
        if not answer.text.strip():
            raise SummaryFailed(modes.HOOK, "it gave no text")
        made = modes.supplied(material, answer.text, answer.details)
        done = await self._append_made(basis, planned, made, tuple(calls), from_hook=True)
        return replace(done, from_hook=True)

    def _asker_of(
        self, model: Model, settings: CompactionSettings, purpose: str | None = None, claim: Claim | None = None
    ) -> BookingAsker:
        patience = Patience(settings.summary_timeout, settings.rate_limit_wait)
        before = None if claim is None else partial(self._renew_claim, claim)
        waiting, new_id = self._backend.waiting, self._backend.new_entry_id
        return BookingAsker(model, self, waiting, new_id, patience, purpose, before)

    async def plan_compaction(
        self,
        *,
        mode: str | Mode | None = None,
        settings: CompactionSettings | None = None,
        window: int | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, JsonValue]] | None = None,
    ) -> CompactionResult:
        """Return what `compact` would do, without doing it: ``planned`` is None where there is nothing to do.

        Without ``window``, that of the model of the session's latest answer counts, as far as it is known. Raises
        `InvalidArgument`. The cost of the context.
        """
        checked_request(None, None, system, tools)
        basis = await self._basis_of(mode, settings, window, system=system, tools=tools)
        return basis.nothing(basis.found.reason if isinstance(basis.found, plan.NoCompaction) else "dry_run")

    async def uncompact(
        self, *, expected_leaf: LeafChoice = STORED, expected_revision: int | None = None
    ) -> Uncompacted | None:
        """Take the compaction in effect back, so that the model sees again what it stood for; None where there is none.

        One layer is peeled off: an earlier compaction is in effect again, or else none. What was appended after the
        compaction stays, after what comes back. One entry is appended; nothing is removed, and `undo` takes it back.
        Raises `LeafConflict`, `RevisionConflict`. The cost of the context that comes back.
        """
        seen = checked_seen(expected_leaf, expected_revision)
        await self._compare(seen)
        read = await self._read_context(STORED)
        peeled = read.compaction
        if peeled is None:
            return None
        earlier = await self.latest_compaction(leaf=peeled.parent_id)
        first = (await self.get_active_path(leaf=peeled.parent_id))[0].id if earlier is None else ""
        counter = await self._counter_at(read.stamp.leaf_id)
        before = await self._size_of(read.items, counter)
        entry = uncompaction(peeled, earlier, first, before)
        base = self._leaf_id
        appended = await self._append([entry], "raise", None, Seen(read.stamp.leaf_id, seen.revision))
        self._keep_base(base, read.stamp.leaf_id)
        after = await self._size_of((await self._read_context(appended.entry_ids[-1])).items, counter)
        return result.Uncompacted(peeled.id, None if earlier is None else earlier.id, before, after, appended)

    async def _basis_of(
        self,
        mode: str | Mode | None,
        settings: CompactionSettings | None,
        window: int | None,
        find: Finding | None = None,
        *,
        asked: Model | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, JsonValue]] | None = None,
    ) -> Basis:
        """Return what a compaction is to be made of; ``find`` says what to summarize, by default the beginning.

        What goes with the messages, ``system`` and ``tools``, is taken off the window. Without one, it is that of the
        session's own model, as far as it is known, and else that of ``asked``.
        """
        chosen = modes.checked_mode(mode, settings)
        is_whole = settings is None and find is None and chosen.needs_model
        settings = policy.WHOLE if is_whole else policy.checked_settings(settings)
        optional(checked_count, window, "window")
        read = await self._read_context(STORED)
        async with self._turn:
            marks = await self._backend.read_marks(self._ref)
            links = await self._backend.task_links(self._ref)
        pins = pins_in(marks, read.compaction, read.tail)
        had = await self._settings_of(read)
        counter = counters.counter_for(had.model)
        path = await self._path_of_hidden(read, pins)
        is_window = find is None and isinstance(chosen, modes.Window)
        texts = await self.registered(leaf=read.stamp.leaf_id) if is_window else ()
        waiting = running.waited_for(chosen)

        def worked_out() -> Basis:
            fitting = _own_window(had, asked) if window is None else window
            counts = read.counts.get(counter.name)
            if counts is None:
                counts = read.counts[counter.name] = counter.count_entries(read.items)
            live = running.live_callers(read.items, links, waiting)
            hidden = returning.Hidden(path, read.compaction, pins, read.items) if path else None
            back = 0 if hidden is None else sum(counter.count_entries(hidden.items))
            around = tokens_around(system, tools, counter)
            sized, room = policy.sized_for(settings, fitting, around), policy.window_of_messages(fitting, around)
            most = policy.most_kept(sized, room)
            if is_window:
                beside = blocks.registered_block(texts, settings, room, lambda text: counter.count(said(text))).text
                most = within_budget(read.items, counts, settings, sized, room, counter, beside)
                sized = replace(
                    sized, keep_recent_tokens=most or 0, keep_recent_messages=sized.keep_recent_messages or None
                )
            fits = is_window and most is None
            most = None if most is None else most - back
            planning = find or partial(beginning, most=most, whole_turns=is_window)
            found = (
                plan.NoCompaction("no_cut_point")
                if fits
                else planning(read, policy.keeping_less(sized, back), pins, counts, live)
            )
            before = sum(counts)
            leaving, staying = 0, before
            if isinstance(found, plan.SessionCompactionPlan):
                leaving = sum(found.plan.content.those_of(counts))
                # The summaries of earlier compactions that are taken over neither leave nor stay.
                staying -= leaving + sum(map(counts.__getitem__, found.taken_over))
                if hidden is not None and (more := hidden.coming_back(ranges.entry_of(found, "", {}, ()))):
                    found = replace(found, staying=(*more, *found.staying))
                    staying += sum(counter.count_entries(more))
            sizes = before, leaving, staying
            tasks = running.running_tasks(links)
            return Basis(
                read.stamp.leaf_id, read.items, read.compaction, chosen, sized, room, tasks, counter, *sizes, found
            )

        # Counting ten thousand messages takes a second the first time: other tasks go on meanwhile.
        return await self._backend.waiting.call(worked_out)

    async def _path_of_hidden(self, read: KnownContext, pins: Sequence[str]) -> Sequence[Entry]:
        """Return the path where something on it is pinned that the context does not show, else nothing."""
        leaf = read.stamp.leaf_id
        if leaf is None or not pins or not (hidden := set(pins) - {item.entry_id for item in read.items}):
            return ()
        found = [each.id for each in await self.get_entries(hidden) if each is not None]
        is_on_path = any([await self.is_ancestor(each, of=leaf) for each in found])
        return await self.get_active_path(leaf=leaf) if is_on_path else ()

    async def _counter_at(self, leaf: str | None) -> ModelCounter:
        """Return the counter of the model that the path has at a leaf."""
        return counters.counter_for((await self.settings(leaf=leaf)).model)

    async def _size_of(self, items: Sequence[ContextEntry], counter: ModelCounter) -> int:
        """Return how many tokens the items of a context take; other tasks go on meanwhile."""
        return await self._backend.waiting.call(lambda: sum(counter.count_entries(items)))

    async def _append_made(
        self,
        basis: Basis,
        planned: SessionCompactionPlan,
        made: Made,
        calls: tuple[JsonObject, ...],
        *,
        from_hook: bool = False,
    ) -> CompactionResult:
        """Append what was made below the stored leaf, where that still is the end of the path that was planned on."""
        while True:
            leaf = (await self._stored_info()).leaf_id
            moved = None if leaf == basis.leaf else await self._overtaken(basis, leaf)
            # What is registered is that of the path which is appended to: it may have changed while the text was made.
            whole = made if moved is not None else await self._with_registered(basis, made, leaf)
            outcome = basis.made(whole, calls)
            if moved is not None or outcome.reason is not None:
                return replace(outcome, reason=moved or outcome.reason)
            base = self._leaf_id
            with suppress(LeafConflict):
                appended = await self._append_summary(planned, whole, calls, leaf, basis.leaf, from_hook=from_hook)
                self._keep_base(base, leaf)
                return replace(outcome, appended=appended)

    async def _with_registered(self, basis: Basis, made: Made, leaf: str | None) -> Made:
        block = await self._registered_block(basis, leaf)
        staying = basis.found.staying if isinstance(basis.found, plan.SessionCompactionPlan) else ()
        stays = any(block.text in message_text(item.data) for item in staying if item.kind == COMPACTION)
        return modes.with_block(made, replace(block, text="") if stays else block)

    async def _registered_block(self, basis: Basis, leaf: str | None) -> Block:
        texts = await self.registered(leaf=leaf)
        return blocks.registered_block(
            texts, basis.settings, basis.window, lambda text: basis.counter.count(said(text))
        )

    async def _aligned(
        self,
        material: modes.Material,
        basis: Basis,
        model: Model,
        around: Around,
    ) -> modes.Material:
        """Return the material with what goes with requests.

        It has the last request, too, where the model that is asked is the one that was sent it.
        """
        offered = tuple(cast("JsonObject", dict(tool)) for tool in around.tools)
        material = replace(material, system=around.system, tools=offered)
        if not around.is_whole:
            return replace(material, unaligned="what is sent is not the context as it is")
        settings = await self.settings(leaf=basis.leaf)
        if (why := why_not_the_same(model, settings)) is not None:
            return replace(material, unaligned=why)
        provider = model.provider or settings.provider
        answer = await self._last_answer_by(model.name, provider, basis.leaf)
        if answer is None:
            return replace(material, unaligned=f"{model.name} has answered nothing that is still in the context")
        if (too_old := self._seconds_too_old(answer, model.name, provider)) is not None:
            age, kept = (seconds // 60 for seconds in too_old)
            return replace(material, unaligned=f"what was sent last is kept for {kept} minutes, and {age} have passed")
        last = await self._last_request(basis.items, answer, basis.counter, around.system, offered)
        return replace(material, last_request=last)

    async def _overtaken(self, basis: Basis, leaf: str | None) -> NotCompacted | None:
        """Return why a leaf that is not the one planned on cannot be built on; None where only turns were added."""
        if leaf is None or basis.leaf is None or not await self.is_ancestor(basis.leaf, of=leaf):
            return "leaf_moved"
        latest = await self.latest_compaction(leaf=leaf)
        known = None if basis.latest is None else basis.latest.id
        return None if (None if latest is None else latest.id) == known else "compacted_meanwhile"

    async def _append_summary(
        self,
        planned: SessionCompactionPlan,
        made: Made,
        calls: tuple[JsonObject, ...],
        leaf: str | None,
        planned_on: str | None,
        *,
        from_hook: bool,
    ) -> Appended:
        first_kept, is_range = planned.first_kept_entry_id, isinstance(planned, ranges.RangePlan)
        if not first_kept and not is_range and leaf != planned_on:
            # What was appended meanwhile stays, though nothing else does.
            first_kept = (await self.get_active_path_since(planned_on, leaf=leaf))[0].id
        if is_range or not first_kept or not made.text:
            entry = ranges.entry_of(planned, made.text, made.details, calls, from_hook=from_hook)
            return await self._append([entry], "raise", None, Seen(leaf, None))
        return await self.append_compaction(
            made.text,
            first_kept_entry_id=first_kept,
            tokens_before=planned.plan.tokens_before,
            details=made.details,
            calls=calls,
            from_hook=from_hook,
            expected_leaf=leaf,
        )
