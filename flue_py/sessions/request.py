"""Requests to models, the size of the context, and reports on a session."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, TypedDict, Unpack

from msgspec.structs import replace

from flue_py import context, prices, render
from flue_py.core.context import (
    HANDOFF,
    CommonPrefix,
    ContextEntry,
    ContextSize,
    PendingTurn,
    PrefixChain,
    chain_of,
    context_of,
    pending_in,
    project_kept,
)
from flue_py.core.entries import Entry, NewEntry, from_microseconds
from flue_py.core.json import Frozen, JsonObject, unchecked_json
from flue_py.core.kinds import COMPACTION, CUSTOM_MESSAGE, EXCLUSION, MESSAGE, SHOWN_KINDS
from flue_py.core.ledger import LedgerQuery
from flue_py.core.sessions import STORED, Appended, LeafChoice, Stored
from flue_py.core.usage import MAX_AMOUNT, PaidCall, UsageTotals
from flue_py.db.backend import Backend
from flue_py.db.runner import collector_held
from flue_py.errors import EntryNotFound, IdempotencyConflict, InvalidArgument, SessionNotFound, shown
from flue_py.lazy import lazy_module
from flue_py.prices import CacheRules, CallPricer, ModelRates
from flue_py.providers import base
from flue_py.sessions import handle
from flue_py.sessions.handle import Group, KnownChain, KnownContext
from flue_py.sessions.marks import Marks
from flue_py.sessions.write import Writing

if TYPE_CHECKING:
    from flue_py.compaction import facts
    from flue_py.context import pipeline, request, steps, tokens
    from flue_py.context import settings as context_settings
    from flue_py.context import sources as gathering
    from flue_py.context.pipeline import EpochRules, Rewritten, Step
    from flue_py.context.request import Attempts, ContextRequest
    from flue_py.context.settings import AgentContext, ContextSettings, ContextSource
    from flue_py.context.sources import GatheredContext, SourceReader
    from flue_py.core.sessions import SessionInfo
    from flue_py.providers import lists
    from flue_py.providers import request as wire_requests
    from flue_py.providers.request import Validity
    from flue_py.render.report import ReportedSession, Thresholds
else:
    facts = lazy_module("flue_py.compaction.facts")
    pipeline = lazy_module("flue_py.context.pipeline")
    request = lazy_module("flue_py.context.request")
    context_settings = lazy_module("flue_py.context.settings")
    gathering = lazy_module("flue_py.context.sources")
    steps = lazy_module("flue_py.context.steps")
    tokens = lazy_module("flue_py.context.tokens")
    lists = lazy_module("flue_py.providers.lists")
    wire_requests = lazy_module("flue_py.providers.request")


MOST_CHAINS = 16


class Handoff(Frozen):
    """A handoff: the texts of the sources, and the append, None if they had none.

    For a retry by its key the append is the first one, and ``gathered`` None: no source was asked again.
    """

    gathered: GatheredContext | None
    appended: Appended | None


class RequestOptions(TypedDict, total=False):
    """The arguments of a request beside its target (see `Session.request`)."""

    leaf: LeafChoice
    agent: str | None
    settings: ContextSettings | Mapping[str, object] | None
    steps: Sequence[Step]
    model: str | None
    account: str | None
    system: str | None
    tools: Sequence[Mapping[str, object]]
    sources: Mapping[str, SourceReader] | None
    gathered: GatheredContext | None


class Context(Group[Writing]):
    """The size, the beginning, the sources and the requests of the context of a session."""

    async def measure(
        self,
        model: str | None = None,
        *,
        provider: str | None = None,
        leaf: LeafChoice = STORED,
        system: str | None = None,
        tools: Sequence[Mapping[str, object]] | None = None,
        window: int | None = None,
        faithful: bool = False,
        use_reported: bool = True,
    ) -> ContextSize:
        """Return how many tokens the context takes for ``model``; by default for the one that the path has at its leaf.

        The provider's report counts while it is fresh, and our own count for later items; `ContextSize` has both.
        ``provider`` leaves out the reports of other providers. ``system`` is the system prompt, ``tools`` are the
        tools' definitions, as JSON: "" and () if there are none, None if they are unknown. A report above ``window``,
        the model's, is not believed. ``faithful`` counts as the reference does, ``use_reported=False`` counts
        everything.

        The cost of the context, and O(size) of items that this process has not counted before, which other tasks do not
        wait for. Raises `EntryNotFound`, `InvalidArgument`.
        """
        offered = tokens.checked_request(model, provider, system, tools)
        if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
            raise InvalidArgument(f"window: {shown(window)} is not a number of tokens >= 1; leave it out if unknown")
        handle.checked_flag(faithful, "faithful")
        handle.checked_flag(use_reported, "use_reported")
        read = await self._session._read_context(handle.checked_leaf(leaf))
        if model is None:
            model = (await self._session._settings_of(read)).model
        counter = context.tokens.counter_for(model, faithful=faithful)
        measure = partial(
            context.tokens.measure_context,
            read.items,
            counter,
            model=model,
            provider=provider,
            system=system,
            tools=offered,
            window=window,
            use_reported=use_reported,
            changed_at=context.tokens.changed_depth(read.tail),
        )
        try:
            return measure(only_known=True)
        except context.tokens.NotCounted:
            return await handle.waiting_of(self._session).call(measure)

    async def latest_assistant(self, *, leaf: LeafChoice = STORED) -> Entry | None:
        """Return the last assistant message on the path, or None. Usually the cost of the context."""
        return await handle.latest_answer(self._session, leaf)

    async def pending(self, *, leaf: LeafChoice = STORED) -> PendingTurn:
        """Return the debt of the last turn of the context: the results of tool calls, an answer of the model, or
        nothing.

        For a program that goes on after another one died: it runs ``calls``, by their ids, names and arguments, or asks
        the model to answer ``unanswered``. A failed or aborted answer counts as none. Raises `EntryNotFound`. The cost
        of the context.
        """
        return pending_in((await self._session._read_context(leaf)).items)

    async def common_prefix(self, leaf_a: LeafChoice, leaf_b: LeafChoice = STORED) -> CommonPrefix:
        """Return the common beginning of the contexts at two leaves, byte for byte, as a provider's cache has it.

        Exact, whatever lies between the two: a compaction, an exclusion or a pin shortens it from where it changes the
        context, and equal messages on different branches count. Raises `EntryNotFound`.

        Contexts are remembered: two point reads and O(log items) for leaves that were asked for before, O(forks on
        the paths + entries since the common ancestor) for a leaf beside one of those, else O(kept entries + forks).
        """
        handle.checked_leaf(leaf_a, "leaf_a")
        handle.checked_leaf(leaf_b, "leaf_b")
        async with self._session._turn:
            mine = await self._chain_at(leaf_a)
            second = await self._chain_at(leaf_b)
        return mine.common(second)

    async def _chain_at(self, leaf: LeafChoice) -> PrefixChain:
        """Return the running digests of the context at a leaf. The caller has the turn."""
        if isinstance(leaf, Stored):
            leaf = (await self._session._stored_info()).leaf_id
        remembered = self._session._chains.get(leaf)
        if remembered is not None:
            read = await self._backend.read_context(self._ref, leaf=leaf, unless=remembered.stamp)
            if read.goes_on:
                return remembered.chain
        else:
            grown = await self._chain_beside(leaf)
            if grown is not None:
                return self._remembered(leaf, grown)
            read = await self._backend.read_context(self._ref, leaf=leaf)
        entries = read.entries
        return self._remembered(leaf, KnownChain(read.stamp, chain_of(context_of(entries, read.compaction), entries)))

    async def _chain_beside(self, leaf: str | None) -> KnownChain | None:
        """Return the digests at a leaf made of those that are known at another, where nothing since changes them."""
        base_leaf, base = next(reversed(self._session._chains.items()), (None, None))
        if base is None or base_leaf is None or leaf is None or not base.chain.can_grow:
            return None
        common = None
        # The leaf that is known may have been deleted since.
        with suppress(EntryNotFound):
            common = await self._backend.common_ancestor(self._ref, self._ref, leaf=base_leaf, other_leaf=leaf)
        ancestor = None if common is None else await self._backend.get_entry(self._ref, common)
        if ancestor is None or ancestor.depth < base.chain.changed_at:
            return None
        since = await self._backend.read_path_since(self._ref, ancestor.id, leaf=leaf)
        added = since.entries
        # Another epoch: remembered digests may have been erased since.
        if since.stamp.epoch != base.stamp.epoch or any(entry.kind in (COMPACTION, EXCLUSION) for entry in added):
            return None
        return KnownChain(since.stamp, base.chain.grown(ancestor.depth, project_kept(added)))

    def _remembered(self, leaf: str | None, chain: KnownChain) -> PrefixChain:
        self._session._chains.pop(leaf, None)
        if len(self._session._chains) >= MOST_CHAINS:
            del self._session._chains[next(iter(self._session._chains))]
        self._session._chains[leaf] = chain
        return chain.chain

    async def gather(
        self,
        *,
        leaf: LeafChoice = STORED,
        agent: str | None = None,
        settings: ContextSettings | Mapping[str, object] | None = None,
        sources: Mapping[str, SourceReader] | None = None,
    ) -> GatheredContext:
        """Return the texts of the sources in ``spec`` of an agent's settings now, and which had none.

        ``sources`` are functions of yours by their names, which take the place of those of the package: they take an
        `Asked` and return a text, or None. One that raises, or takes longer than 30 seconds and is a coroutine
        function, is reported among ``skipped``. Raises `EntryNotFound`, and `InvalidArgument`, for settings with the
        path of each field that is wrong. The cost of the context, and of the sources.
        """
        handle.checked_text(agent, "agent")
        agent_settings = context_settings.context_settings(settings).of(agent)
        checked_sources = self._checked_gathering(sources)
        context = await self._session._read_context(leaf)
        return await self._gathered(
            () if agent_settings.spec is None else agent_settings.spec.sources, context, agent, checked_sources
        )

    def _checked_gathering(
        self, sources: Mapping[str, SourceReader] | None, gathered: GatheredContext | None = None
    ) -> Mapping[str, SourceReader]:
        """Return the sources by their plain names. Raises `InvalidArgument`."""
        if gathered is not None and not isinstance(gathered, gathering.GatheredContext):
            raise InvalidArgument(f"gathered: should be what gather_context returns, not {shown(gathered)}")
        # Most requests name none, and need not load their checks.
        return {} if sources is None else gathering.checked_sources(sources)

    async def _gathered(
        self,
        wanted: Sequence[ContextSource],
        context: KnownContext,
        agent: str | None,
        sources: Mapping[str, SourceReader],
    ) -> GatheredContext:
        """Return the texts of sources; ``sources`` are those that were checked."""
        if not wanted:
            return gathering.GatheredContext(agent)
        registered = await Marks(self._session).registered(leaf=context.stamp.leaf_id)
        # The turn in progress is sent behind this, and must not change it.
        history = context.items[: pipeline.turn_in(context.items, agent)]
        whole: list[ContextEntry] | None = None
        if any(source.kind == "changes_recent" for source in wanted) and context.compaction is not None:
            path = await self._session.get_active_path(leaf=context.stamp.leaf_id)
            turn = context.items[len(history)].entry_id if len(history) < len(context.items) else None
            before = takewhile(lambda entry: entry.id != turn, path)
            whole = [ContextEntry(entry) for entry in before if entry.kind == MESSAGE]
        question = gathering.Asked(None, agent, history, registered, self._session.info, whole)
        return await gathering.gather(wanted, question, {**gathering.STORED_SOURCES, **sources}, self._backend.waiting)

    async def append_handoff(
        self,
        agent: str,
        *,
        settings: ContextSettings | Mapping[str, object],
        sources: Mapping[str, SourceReader] | None = None,
        **options: Unpack[handle.LandingOptions],
    ) -> Handoff:
        """Append the handoff of ``agent`` before its turn, and return it: the texts of the sources in its ``handoff``.

        One message of the user under the line "[HANDOFF CONTEXT — assembled for AGENT]", which all agents see. Nothing
        is appended where no source has a text; an agent's own history is none. ``settings`` and ``sources`` are as in
        `gather_context`; otherwise as `append_message`. The cost of the context, and of the sources.
        """
        if not isinstance(agent, str) or not agent.strip() or agent.splitlines() != [agent]:
            raise InvalidArgument(f"agent: should be the name of an agent, on one line, not {shown(agent)}")
        handle.checked_text(agent, "agent")
        landing = handle.checked_landing(**options)
        wanted = context_settings.context_settings(settings).of(agent).handoff
        checked_sources = self._checked_gathering(sources)
        key = landing.idempotency_key
        if key is not None and (first := await self._first_try(agent, key)) is not None:
            return Handoff(None, first)
        await self._session._compare(landing.seen)
        context = await self._session._read_context(await self._session._leaf_before(landing))
        gathered = await self._gathered(wanted, context, agent, checked_sources)
        text = gathered.text(steps.handoff_heading(agent))
        if not text:
            return Handoff(gathered, None)
        entry = NewEntry.custom(
            CUSTOM_MESSAGE,
            {
                "customType": HANDOFF,
                "content": text,
                "details": {"agent": agent, "sources": [section.source for section in gathered.sections]},
            },
        )
        return Handoff(gathered, await self._session._append([entry], landing))

    async def _first_try(self, agent: str, idempotency_key: str) -> Appended | None:
        """Return the handoff to an agent that was appended by this key, None if there was none.

        Raises `IdempotencyConflict` if something else was appended by it.
        """
        first = await self._backend.recall_append(self._ref, idempotency_key)
        if first is None:
            return None
        entry = await self._session.get_entry(first.entry_ids[0]) if first.entry_ids else None
        fields = None if entry is None or entry.kind != CUSTOM_MESSAGE else entry.data
        details = fields.get("details") if isinstance(fields, dict) and fields.get("customType") == HANDOFF else None
        if not isinstance(details, dict) or details.get("agent") != agent:
            raise IdempotencyConflict(self._session.id, idempotency_key)
        appended = replace(first, replayed=True)
        self._session._note_append(appended)
        return appended

    async def attempts(self, target: str | None = None, **options: Unpack[RequestOptions]) -> Attempts:
        """Return up to four attempts at a request: as `request` makes it, and then with less of the results of tools.

        They are for ``async for`` (in synchronous code for ``for``). Each is a context manager, which takes a
        `ContextOverflow` that is raised inside it; the next one is then made anew from the whole: with results of tools
        cut after 4,000 characters, then after 500, then without tools. The last one lets the error pass. Where the
        settings have limits (`Fitting`), an attempt that is larger is passed over before it is sent; ``tools`` are
        counted in. The report of each names the cuts.

        The other arguments, what is raised and what it costs are as in `request`; all attempts are of the context that
        was read when this was called.
        """
        agent_settings, offered, make = await self._requests(target, **options)
        return request.Attempts(make, agent_settings.fitting, offered, self._backend.waiting.call)

    async def validate(
        self,
        target: str,
        *,
        leaf: LeafChoice = STORED,
        model: str | None = None,
        account: str | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, object]] = (),
    ) -> Validity:
        """Return the faults a provider would refuse in the context as it is, and the repairs that `request` makes.

        `Validity.broken` has where the context breaks the rules of ``target``, with the entry; `Validity.repairs` the
        changes that `request` with the same arguments leaves out or changes, in the order in which that is done;
        `Validity.left` the faults after that. Nothing is written, and settings change nothing. Raises `EntryNotFound`,
        `InvalidArgument`. The cost of `request`.
        """
        name = base.checked_target(target)
        handle.checked_text(model, "model")
        handle.checked_text(account, "account")
        offered = offered_tools(system, tools)
        context = await self._session._read_context(leaf)

        def check() -> Validity:
            messages = [*lists.said_in(context.items)]
            if system:
                messages.insert(0, lists.Said({"role": "system", "content": system}))
            sent = wire_requests.wire_request(name, messages, model=model, account=account, tools=offered)
            as_it_is = wire_requests.broken_as_it_is(name, messages, account=account, model=model)
            return wire_requests.Validity(name, as_it_is, sent.repairs, sent.broken)

        return await self._backend.waiting.call(check)

    async def _requests(
        self,
        target: str | None,
        *,
        leaf: LeafChoice = STORED,
        agent: str | None = None,
        settings: ContextSettings | Mapping[str, object] | None = None,
        steps: Sequence[Step] = (),
        model: str | None = None,
        account: str | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, object]] = (),
        sources: Mapping[str, SourceReader] | None = None,
        gathered: GatheredContext | None = None,
    ) -> tuple[AgentContext, list[JsonObject], Callable[[Sequence[Step]], ContextRequest]]:
        """Check the arguments of a request and read the context; return the agent's settings, the tools that are
        offered, and the function that makes a request.

        The latter takes further steps, which come last.
        """
        offered = offered_tools(system, tools)
        name = None if target is None else base.checked_target(target)
        handle.checked_text(agent, "agent")
        handle.checked_text(model, "model")
        handle.checked_text(account, "account")
        agent_settings = context_settings.context_settings(settings).of(agent)
        if isinstance(steps, (str, bytes)) or not isinstance(steps, Sequence):
            raise InvalidArgument(f"steps: {shown(steps)} is not a list of steps")
        own = [*map(pipeline.checked_step, steps)]
        checked_sources = self._checked_gathering(sources, gathered)
        context = await self._session._read_context(leaf, is_base=True)
        counted_as, provider = model, None
        if (counted_as is None and not agent_settings.faithful) or agent_settings.rewriting is not None:
            had = await self._session._settings_of(context)
            counted_as, provider = model or had.model, None if model else had.provider
        counter = tokens.counter_for(counted_as, faithful=agent_settings.faithful)
        when = epoch_rules(agent_settings, counted_as, provider, self._session._pricer)
        texts = gathered
        if texts is None:
            wanted = () if agent_settings.spec is None else agent_settings.spec.sources
            texts = await self._gathered(wanted, context, agent, checked_sources)

        def make(further: Sequence[Step]) -> ContextRequest:
            with collector_held(len(context.items)):
                return request.context_request(
                    context.items,
                    name,
                    agent_settings,
                    counter,
                    agent=agent,
                    steps=[*own, *further],
                    model=model,
                    account=account,
                    system=system,
                    tools=offered,
                    rules=when,
                    gathered=texts,
                )

        return agent_settings, offered, make


_AN_HOUR = 3_600


def epoch_rules(settings: AgentContext, model: str | None, provider: str | None, pricer: CallPricer) -> EpochRules:
    """Return when an epoch begins for a model. Where its price is not known, rewriting does not have to pay."""
    rewriting = settings.rewriting
    if rewriting is None:
        return pipeline.EpochRules(settings.epoch_tokens)
    rules = prices.cache_rules(model, provider)
    marks = settings.cache_breakpoints
    lifetime = _AN_HOUR if marks is not None and marks.ttl == "1h" else rules.lifetime_seconds
    pays = partial(_pays, rewriting.pays_within_turns, rules, partial(_rates, model, provider, pricer))
    return pipeline.EpochRules(settings.epoch_tokens, rewriting.cold_after_seconds or lifetime, pays)


def _rates(model: str | None, provider: str | None, pricer: CallPricer, usage: UsageTotals) -> ModelRates | None:
    return pricer.rates(PaidCall(usage, provider=provider or "", model=model or ""))


def _pays(within: int, rules: CacheRules, rates: prices.RatesFor, rewritten: Rewritten) -> bool:
    after = prices.next_request(rewritten.tokens, rewritten.common, rules, is_warm=True)
    unedited = prices.next_request(rewritten.unedited, rewritten.cached, rules, is_warm=True)
    price = prices.price_edit(None, after, unedited, rules, rates)
    turns, _ = prices.turns_to_pay(price)
    return price is None or (turns is not None and turns <= within)


def offered_tools(system: str | None, tools: Sequence[Mapping[str, object]]) -> list[JsonObject]:
    return [dict(tool) for tool in tokens.checked_request(None, None, system, tools) or ()]


_MOST_COMPACTIONS = 20


_MOST_LOST = 20


class Reports(Group[Writing]):
    """Reports on a session and its task sessions."""

    async def name(self) -> str:
        """Return the name of the session in every list, tree, report and transcript, on one line.

        That is its title, given or else made, else its key, else how it begins; of a fork that has none of the first
        three, also the session it was forked from: ``(fork of …)``. "(empty)" where there is nothing to tell. O(1).
        """
        async with self._session._turn:
            info = await self._session._stored_info()
            return render.views.session_name(info, await handle.source_of(self._backend, info))

    async def html(
        self,
        *,
        warn_at: int = 0,
        cutover_at: int = 0,
        made_at: datetime | None = None,
        sizes: bool = True,
        settings: ContextSettings | Mapping[str, object] | None = None,
        agent: str | None = None,
        target: str | None = None,
    ) -> str:
        """Return the session and its task sessions as one HTML file, which asks no network for anything.

        It shows the tree with every branch, the context of the model at each entry beside the stored entries, how the
        context of each agent grew, the ranges and the losses of compactions (of each session, the newest 20), and the
        costs of the session and its tasks, by model. Tasks come last active first. ``warn_at`` and ``cutover_at`` draw
        lines at so many input tokens; 0 draws none. ``sizes=False`` saves the time to count tokens. With ``settings``,
        ``agent`` or ``target`` it shows beside the tree the request that is sent then: the changes of each step, and
        which entries are out, cut, replaced or repaired. The store and the arguments decide every byte: the time of
        making is on the page only as ``made_at`` (UTC). O(entries + calls of the trees), and O(path) for each
        compaction. Raises `InvalidArgument`.
        """
        thresholds = checked_thresholds(warn_at, cutover_at)
        handle.checked_flag(sizes, "sizes")
        moment = None if made_at is None else from_microseconds(handle.checked_moment(made_at))
        first, *tasks = await read_reported(self._backend, self._ref, sizes=sizes, lost=True)
        if settings is not None or agent is not None or target is not None:
            items = await self._session.build_context_entries(leaf=first.info.leaf_id)
            leaf, context = first.info.leaf_id, Context(self._session)
            *_, make = await context._requests(target, leaf=leaf, agent=agent, settings=settings)
            sent = await self._backend.waiting.call(partial(make, ()))
            first = replace(first, sent=request.explained_row(items, sent))
        sessions = [first, *sorted(tasks, key=lambda task: task.info.active_us, reverse=True)]
        query = LedgerQuery(self._ref, tasks=True, group_by=("provider", "model", "purpose"))
        # Also for tasks that are gone.
        bill = (await self._backend.read_ledger(query)).rows
        with collector_held(sum(len(session.entries) for session in sessions)):
            return render.report.html_report(
                sessions, thresholds, bill=bill, unchecked=self._backend.is_unchecked, made_at=moment
            )

    async def snapshots(self, *, warn_at: int = 0, cutover_at: int = 0) -> str:
        """Return the data of the chart of `html_report`, as JSON lines: one a turn, one a compaction.

        Session by session, tasks after the sessions that started them, each in the order of its active path.
        ``warn_at`` and ``cutover_at`` are repeated in each line, and left out where 0. O(entries). Raises
        `InvalidArgument`.
        """
        thresholds = checked_thresholds(warn_at, cutover_at)
        text = render.report.context_snapshots(await read_reported(self._backend, self._ref, sizes=False), thresholds)
        return unchecked_json(text) if self._backend.is_unchecked else text


async def read_reported(
    backend: Backend, session_id: str, *, sizes: bool = True, lost: bool = False
) -> list[ReportedSession]:
    """Return a session and the closure of its task links, breadth first. Five reads a session.

    With ``lost``, the losses of its newest compactions are worked out.

    A task that is missing is left out, and one that is reached twice is there once. Raises `SessionNotFound` if
    the session itself is missing.
    """
    reported: list[ReportedSession] = []
    reached = {session_id}
    waiting: deque[tuple[str, str | None, str | None]] = deque([(session_id, None, None)])
    while waiting:
        here, task_id, parent_id = waiting.popleft()
        try:
            # The row first: entries that are appended meanwhile are in the tree, and the leaf is one that the tree has.
            info = await backend.get_session(here)
            if info is None:
                raise SessionNotFound(here)
            session = await reported_of(backend, info, await backend.read_tree(here), sizes=sizes, lost=lost)
            reported.append(replace(session, task_id=task_id, parent_id=parent_id))
            links = await backend.task_links(here)
        except SessionNotFound:
            if not reported:
                raise
            continue
        for link in links:
            if link.child_id not in reached:
                reached.add(link.child_id)
                waiting.append((link.child_id, link.task_id, here))
    return reported


def _losses(entries: Sequence[Entry]) -> dict[str, JsonObject]:
    """Return the losses of the newest compactions of a tree, as the report takes them."""
    if all(entry.kind != COMPACTION for entry in entries):
        return {}
    reports = facts.losses_in(entries, most=_MOST_COMPACTIONS, limit=_MOST_LOST)
    return {entry_id: {**report.json, "entryIds": [*report.entry_ids]} for entry_id, report in reports.items()}


async def reported_of(
    backend: Backend, info: SessionInfo, entries: Sequence[Entry], *, sizes: bool, lost: bool, is_part: bool = False
) -> ReportedSession:
    """Return a session with its entries, or a part of them, as the report takes it: of a part without its costs.

    O(entries), and of a whole session O(calls of the tree). Raises `SessionNotFound`.
    """
    marks = await backend.read_marks(info.ref)
    return render.report.ReportedSession(
        info,
        entries,
        {mark.entry_id: mark.value or "" for mark in marks if mark.kind == "label"},
        sizes=entry_sizes(entries) if sizes else {},
        costs={} if is_part else await backend.read_entry_costs(info.ref),
        source=await handle.source_of(backend, info),
        losses=await backend.waiting.call(lambda: _losses(entries)) if lost else {},
        pins=frozenset(mark.entry_id for mark in marks if mark.kind == "pin" and mark.value == "on"),
        is_part=is_part,
    )


def checked_thresholds(warn_at: int, cutover_at: int) -> Thresholds:
    """Return the two as one value. Raises `InvalidArgument` if one is not a number of tokens."""
    for name, value in (("warn_at", warn_at), ("cutover_at", cutover_at)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_AMOUNT:
            raise InvalidArgument(f"{name}: {shown(value)} is not a number of tokens; use 0 for no line")
    return render.report.Thresholds(warn_at, cutover_at)


def entry_sizes(entries: Iterable[Entry]) -> dict[str, int]:
    """Return how many tokens each entry takes in a context, by id; entries that never are in one are left out."""
    return {
        entry.id: context.tokens.count_message_tokens(ContextEntry(entry).data).tokens
        for entry in entries
        if entry.kind in SHOWN_KINDS
    }
