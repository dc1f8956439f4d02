"""`CompactionGuard`: the one object by which a runtime sees to it that a session stays inside its window.

It is asked before and after each call of the model, and wraps a call so that an overflow is recovered from. What it
decides by, and remembers, is stored with the session: another process goes on with it.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar, get_args

from flue_py.compaction.estimate import should_compact
from flue_py.compaction.modes import Mode, Window, checked_mode
from flue_py.compaction.policy import (
    TOKEN_BUDGET,
    WHOLE,
    CompactionSettings,
    checked_settings,
    sized_for,
    token_budget,
    window_above,
)
from flue_py.compaction.triggers import Decision, GuardState, Moment, TriggerSettings, decide
from flue_py.core.events import BUDGET_WARNING
from flue_py.core.frozen import changed
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.model_seam import ModelReply
from flue_py.errors import ContextOverflow, FlueError, InvalidArgument, ModelError, SummaryFailed, shown
from flue_py.lazy import lazy_module
from flue_py.runtime.ending import RunningCalls
from flue_py.runtime.guarding.answers import GuardAnswer, Outcome
from flue_py.runtime.guarding.finding import Found, failed_leaf, find_out, goes_on, has_gone_on, input_since
from flue_py.runtime.guarding.memory import BY, Memory, Remembered
from flue_py.runtime.sending import Sending, answers_to, asked_of
from flue_py.sessions.arguments import (
    checked_choice,
    checked_count,
    checked_flag,
    checked_function,
    checked_patience,
    checked_text,
    optional,
)
from flue_py.sessions.asking import model_of, window_of
from flue_py.sessions.claims import Claim, compacting_under
from flue_py.sessions.handle import stored_row
from flue_py.sessions.hooking import checked_hook
from flue_py.sessions.measuring import checked_request
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.store.waiting import POLL_SECONDS

if TYPE_CHECKING:
    from flue_py.compaction.hooks import BeforeCompaction
    from flue_py.compaction.result import CompactionResult
    from flue_py.context.blocks import reading
    from flue_py.context.blocks.protocol import Block, BlockFailure
    from flue_py.context.report import ContextReport
    from flue_py.context.settings import ContextSettings
    from flue_py.context.sources.protocol import SourceReader
    from flue_py.core.model_seam import Model
else:
    reading = lazy_module("flue_py.context.blocks.reading")

__all__ = ["CompactionGuard", "GuardAnswer", "Outcome"]

Result = TypeVar("Result")


class CompactionGuard:
    """Sees to it that a session is compacted when it is due, once at a time, and no more often than it helps.

    ``model`` is the session's own: its window counts, and it makes the summaries unless there is a ``summarizer``.
    ``window`` takes the place of the model's. ``system`` and ``tools`` are what goes along with every call, so that
    they are counted, and most of what a summary is made of is read from the provider's cache: "" and () if nothing
    does, None if that is unknown. ``mode`` and ``settings`` are those of `Session.compact`, ``triggers`` says when.
    ``on_answer`` is called with every answer but ``nothing``, and with ``compacting`` when a compaction begins.
    ``before_compaction`` is asked before each, and may cancel it or give its text (`flue_py.compaction.hooks`).
    ``context`` is what `call` sends an agent (`flue_py.context.ContextSettings`), by default all of it, and ``sources``
    what a ``spec`` in it reads, once in a turn. ``patience`` is for how many seconds an overflow waits for somebody
    else who compacts the session. ``blocks`` are told before each `call` where the context does not show what they say
    now (`Session.append_blocks`), so that a compaction takes none away; ``block_failures`` are those of the latest
    call, which they do not break. With ``stop_over_budget``, no turn begins once the ledger has more than a budget
    allows (`Session.check_budgets`).

    Raises `InvalidArgument`, also for a mode that needs a model where there is none, and for a budget with a
    ``cutover_at`` where compaction by itself is off.
    """

    def __init__(
        self,
        store: Store,
        session: Session,
        model: Model | None = None,
        *,
        summarizer: Model | None = None,
        mode: str | Mode | None = None,
        settings: CompactionSettings | None = None,
        triggers: TriggerSettings | None = None,
        window: int | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, JsonValue]] | None = None,
        on_answer: Callable[[GuardAnswer], object] | None = None,
        before_compaction: BeforeCompaction | None = None,
        context: ContextSettings | Mapping[str, object] | None = None,
        sources: Mapping[str, SourceReader] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        patience: float = 120.0,
        blocks: Iterable[Block] = (),
        stop_over_budget: bool = False,
    ) -> None:
        _check_parts(store, session)
        self.store = store
        self._session = session
        self.model = None if model is None else model_of(model)
        self.summarizer = self.model if summarizer is None else model_of(summarizer)
        self.mode = mode
        self.settings = checked_settings(settings)
        self.triggers = _checked_triggers(triggers, self.settings)
        self._budget = 0
        optional(checked_count, window, "window")
        # 0 stands for a window that is not known, as everywhere.
        self.window = window_of(window, self.model) or None
        checked_request(None, None, system, tools)
        self.system = system
        self.tools = tools
        self.on_answer = checked_function(on_answer, "on_answer")
        self.before_compaction = checked_hook(before_compaction)
        self._sending = Sending(context, sources)
        self.context = self._sending.settings
        self.patience = checked_patience(patience)
        self.blocks = tuple(reading.checked_blocks(blocks)) if blocks != () else ()
        self.block_failures: tuple[BlockFailure, ...] = ()
        self.stop_over_budget = checked_flag(stop_over_budget, "stop_over_budget")
        self._waiting = store.backend.waiting
        self._running = RunningCalls(self._waiting, store.backend.new_entry_id)
        self._memory = Memory(session, checked_function(clock, "clock"))
        chosen = checked_mode(mode, self.settings, has_model=self.summarizer is not None)
        self._asked_for = WHOLE if settings is None and chosen.needs_model else self.settings
        if isinstance(chosen, Window):
            self._budget_decides()

    def _budget_decides(self) -> None:
        """Have a budget of tokens, that of mode ``window``, take the place of turns, and of what holds back."""
        threshold = self.triggers.threshold
        budget = token_budget(self.settings, threshold or TOKEN_BUDGET)
        self.settings = replace(self.settings, keep_recent_tokens=budget)
        if threshold != 0:
            self._budget = threshold or budget
            self.triggers = replace(self.triggers, threshold=None if self.window else 0)
        self.triggers = replace(self.triggers, trigger_turns=0, thrash_window=0)

    @property
    def context_report(self) -> ContextReport | None:
        """What the settings did to the latest request of `call`, with what they tell; None without any."""
        return self._sending.report

    @property
    def session(self) -> Session:
        """The session that it guards; another one has a guard of its own."""
        return self._session

    # -- asking -----------------------------------------------------------------------------------------------

    async def before_call(self, agent: str = "") -> GuardAnswer:
        """Compact if that is due before the model is called, and return what came of it.

        ``agent`` is whose budget counts, by the name that its answers have; "" stands for all. A compaction that fails
        is an answer, not an error. With ``stop_over_budget`` raises `BudgetExceeded` where a turn would begin; one that
        has answers goes on. The cost of the context.
        """
        _check_agent(agent)
        if self.stop_over_budget and not await goes_on(self.session, agent):
            await self.session.check_budgets()
        return await self._ask("before", agent)

    async def after_call(self, agent: str = "") -> GuardAnswer:
        """Compact if that is due after an answer was appended, and return what came of it; as `before_call`."""
        _check_agent(agent)
        return await self._ask("after", agent)

    async def resumed(self, agent: str = "") -> GuardAnswer:
        """Compact if that is due where a process takes a session up again; as `before_call`."""
        _check_agent(agent)
        return await self._ask("resume", agent)

    async def compact(self, instructions: str | None = None, *, abort: bool = True) -> GuardAnswer:
        """Compact now, whatever holds other compactions back, and return what came of it; as `before_call`.

        Calls that this guard waits for are ended first, and raise `AbortedToCompact` where they were made; a plain
        function cannot be ended, and is waited for. What was appended until then stays, as it is. With ``abort=False``
        they go on, and what they append comes after the summary; so does what other processes append.
        ``instructions`` are what the summary is to attend to.
        """
        checked_text(instructions, "instructions")
        if checked_flag(abort, "abort") and await self._running.end():
            await self._note(await self._find_out(), lambda state: state, "ended a running call of the model")
        return await self._ask("demand", "", instructions)

    async def decide(self, moment: Moment = "before", agent: str = "") -> Decision:
        """Return what would be decided now, without doing it."""
        checked_choice(moment, "moment", get_args(Moment))
        _check_agent(agent)
        found = await self._find_out()
        return await self._decide(found, (await self._memory.read(found.cycle)).state, moment, agent, None)

    async def should_compact(self, agent: str = "") -> bool:
        """Return whether a compaction is due before the next call, and nothing holds it back."""
        return (await self.decide("before", agent)).action == "compact"

    async def request(self, instructions: str = "") -> None:
        """Leave a request to compact, which the next question meets: what a tool for agents calls."""
        if not isinstance(instructions, str):
            raise InvalidArgument(
                f"instructions: {shown(instructions)} is not a text; leave them out if there are none"
            )
        checked_text(instructions, "instructions")
        why = "the agent asks for a compaction" + (f": {instructions}" if instructions else "")
        await self._note(await self._find_out(), lambda state: replace(state, wanted=instructions), why)

    async def state(self) -> GuardState:
        """Return what the guard remembers of the session."""
        return (await self._memory.read((await self._find_out()).cycle)).state

    async def reset(self) -> None:
        """Forget failures and attempts, so that nothing is held back for them."""
        await self._note(await self._find_out(), lambda state: replace(state, failures=0, attempts=()), "reset")

    # -- a call -----------------------------------------------------------------------------------------------

    async def call(self, ask: Callable[[list[JsonObject]], Awaitable[Result]], *, agent: str = "") -> Result:
        """Call a model by ``ask``, which takes the context, and return what that returns.

        It is asked `before_call`. If the window overflows all the same, `recover` is called, and ``ask`` again with the
        smaller context. Where that does not help or nothing could be compacted, it is asked with less of what tools
        gave back, as by `Session.attempts`. Raises what ``ask`` raises, `ContextOverflow` if nothing helped, and
        `AbortedToCompact` if `compact` was called meanwhile: ``ask`` is cancelled then. What it has cost is booked if
        it raises a `ModelError` that says so. A `ModelReply` comes back with what its signed reasoning was produced
        under, so that no later call sends that behind another beginning.
        """
        _check_agent(agent)
        if not callable(ask) or isinstance(ask, type):
            raise InvalidArgument(f"ask: {shown(ask)} is not a function; give one that takes the context and asks")
        return await self._running.run(self.session, lambda: self._call(partial(asked_of, ask, "ask"), agent))

    async def _call(self, ask: Callable[[list[JsonObject]], Awaitable[Result]], agent: str) -> Result:
        await self.before_call(agent)
        await self._append_blocks()
        latest = await self.session.latest_compaction()
        is_recovered, why = False, ""

        async def recover(error: ContextOverflow) -> bool:
            nonlocal is_recovered, why
            if error.is_malformed:
                return False
            try:
                answer = await self._recover(error, agent, None if latest is None else latest.id)
            except ContextOverflow:
                is_recovered = True
                return False
            is_recovered = answer.outcome in ("compacted", "overtaken")
            why = f"the context was not compacted ({answer.outcome}): {answer.decision.reason}"
            if is_recovered:
                await self._append_blocks()
            return is_recovered

        try:
            context, answer = await self._sending.ask(
                self.session, agent, ask, system=self.system, tools=self.tools, recover=recover
            )
        except ContextOverflow as error:
            if is_recovered:
                await self._step_back()
                raise _again(error) from error
            if why:
                error.add_note(why)
            raise
        return self._bound(context, answer)

    async def _append_blocks(self) -> None:
        if self.blocks:
            # What is sent is the context at the stored leaf, whoever has moved that.
            self.block_failures = (await self.session.append_blocks(self.blocks, on_conflict="rebase")).failures

    def _bound(self, context: Sequence[JsonObject], answer: Result) -> Result:
        if not isinstance(answer, ModelReply):
            return answer
        messages = answers_to(context, answer.messages, system=self.system, tools=self.tools)
        return replace(answer, messages=tuple(messages))

    async def recover(self, error: ContextOverflow, agent: str = "") -> GuardAnswer:
        """Make room after a call has overflowed the window, and return what came of it.

        The failed leaf steps back, and the session is compacted to fit what the error says of the window. Once only:
        raises `ContextOverflow` if nothing was said and answered since the last time. With ``auto=False`` nothing is
        done.
        """
        if not isinstance(error, ContextOverflow):
            raise InvalidArgument(f"error: {shown(error)} is not a ContextOverflow; nothing else is recovered from")
        _check_agent(agent)
        latest = await self.session.latest_compaction()
        return await self._recover(error, agent, None if latest is None else latest.id)

    async def _recover(self, error: ContextOverflow, agent: str, cycle: str | None) -> GuardAnswer:
        """Do so for a call that was made in a cycle: whoever has compacted the session since then has made room."""
        if not self.triggers.auto or not self.settings.enabled:
            return await self._ask("overflow", agent)
        await self._step_back()
        found = await self._find_out()
        recovered = (await self._memory.read(found.cycle)).state.recovered
        if recovered and not await has_gone_on(self.session, recovered):
            raise _again(error) from error
        await self._wait_for_another(found.cycle)
        found = await self._find_out()
        if found.cycle is not None and found.cycle != cycle:
            decision = await self._decide(found, GuardState(), "overflow", agent, None)
            return self._told(GuardAnswer("overtaken", decision))
        answer = await self._ask("overflow", agent, overflow=error)
        if answer.outcome in ("compacted", "too_little", "nothing_to_cut"):
            await self._spend_recovery(answer)
        return answer

    async def _spend_recovery(self, answer: GuardAnswer) -> None:
        """Note that an overflow was recovered from here: there is one recovery for a message or an answer."""
        leaf = (await stored_row(self.session)).leaf_id or ""
        await self._note(
            await self._find_out(),
            lambda state: replace(state, recovered=leaf),
            f"recovery from an overflow: {answer.outcome}; there is no other before a new message or answer",
        )

    async def _step_back(self) -> None:
        """Retract an answer that failed and was stored, so that it is not part of the context again."""
        leaf = await failed_leaf(self.session)
        if leaf is not None:
            await self.session.remove_leaf_message(leaf, by=BY, why="the call overflowed the window")

    async def _wait_for_another(self, cycle: str | None) -> None:
        """Wait for whoever compacts the session now."""
        waited = 0.0
        while (await self._memory.read(cycle)).claim is not None and waited < self.patience:
            await self._waiting.pause(POLL_SECONDS)
            waited += POLL_SECONDS

    # -- deciding ---------------------------------------------------------------------------------------------

    async def _find_out(self) -> Found:
        model = None if self.model is None else self.model.name
        return await find_out(self.session, model, self.system, self.tools, self.window)

    async def _decide(
        self, found: Found, state: GuardState, moment: Moment, agent: str, instructions: str | None
    ) -> Decision:
        sent = await input_since(self.store, self.session, found.cycle, agent, self.triggers, self.window)
        if not found.size.trusts_reported:
            # What a provider reported is what it was sent.
            name = None if self.model is None else self.model.name
            found = found.without(await self._sending.freed(self.session, agent, name))
        turns = bool(self.triggers.trigger_turns or self.triggers.has_budget)
        facts = found.facts(moment, state, agent, sent, instructions, turns=turns)
        if self._budget:
            counted = await self.session.measure_context(faithful=True, system="", tools=(), use_reported=False)
            facts = changed(facts, above_budget=max(counted.tokens - self._budget, 0))
        return decide(facts, self.triggers, self.settings)

    async def _ask(
        self, moment: Moment, agent: str, instructions: str | None = None, *, overflow: ContextOverflow | None = None
    ) -> GuardAnswer:
        found = await self._find_out()
        state = (await self._memory.read(found.cycle)).state
        decision = await self._decide(found, state, moment, agent, instructions)
        if decision.action == "none":
            # Of a session that was never near its window the log has no line.
            if state.told or state.warned:
                await self._note_once(found, state, "nothing", f"nothing is due any more: {decision.reason}")
            return GuardAnswer("nothing", decision)
        if decision.action == "warn":
            await self._note(found, lambda now: now.with_warning(agent), f"{BUDGET_WARNING}{decision.reason}")
            return self._told(GuardAnswer("warned", decision))
        if decision.action == "held":
            await self._note_once(found, state, decision.held_by or "", decision.reason)
            return self._told(GuardAnswer("held", decision))
        answer = await self._compact(found, decision, overflow)
        if answer.outcome == "elsewhere":
            await self._note_once(found, state, "elsewhere", f"somebody else compacts the session; {decision.reason}")
        return self._told(answer)

    async def _note_once(self, found: Found, state: GuardState, name: str, why: str) -> None:
        """Write down what was decided, the first time in a cycle: it is asked before and after each call."""
        if name not in state.told:
            await self._note(found, lambda now: now.with_told(name), why)

    async def _note(self, found: Found, change: Callable[[GuardState], GuardState], why: str) -> None:
        """Write an event down, with the change of the state that it makes; a claim stays as it is."""
        await self._memory.change(found.cycle, lambda now: (replace(now, state=change(now.state)), why))

    def _told(self, answer: GuardAnswer) -> GuardAnswer:
        if self.on_answer is not None:
            self.on_answer(answer)
        return answer

    # -- compacting -------------------------------------------------------------------------------------------

    async def _compact(self, found: Found, decision: Decision, overflow: ContextOverflow | None) -> GuardAnswer:
        window = self._room(found, overflow)
        settings = await self._sizes(found, decision, overflow)
        planned = await self.session.plan_compaction(
            mode=self.mode, settings=settings, window=window, system=self.system, tools=self.tools
        )
        freed = 1 - planned.tokens_staying / max(1, planned.tokens_before)
        if planned.planned is None or (decision.trigger != "demand" and freed < self.triggers.least_freed):
            outcome: Outcome = "nothing_to_cut" if planned.planned is None else "too_little"
            why = f"{outcome.replace('_', ' ')}: at most {freed:.1%} would be freed; {decision.reason}"
            await self._note(found, lambda now: now.with_attempt(found.size.tokens, 0), why)
            return GuardAnswer(outcome, decision, planned)
        claim = await self._claim(found, decision)
        if claim is None:
            return GuardAnswer("elsewhere", decision)
        try:
            self._told(GuardAnswer("compacting", decision))
            with compacting_under(claim):
                return await self._compact_now(found, decision, settings, window)
        except BaseException:
            with suppress(FlueError):
                await self._waiting.finish(self._release(found.cycle, claim, "given up"))
            raise
        finally:
            claim.drop()

    async def _compact_now(
        self, found: Found, decision: Decision, settings: CompactionSettings, window: int | None
    ) -> GuardAnswer:
        try:
            result = await self.session.compact(
                self.summarizer,
                mode=self.mode,
                settings=settings,
                instructions=decision.instructions,
                window=window,
                system=self.system,
                tools=self.tools,
                aligned=await self._sending.is_whole(
                    self.session, decision.agent, system=self.system, tools=self.tools
                ),
                before_compaction=self._hook_for(decision),
            )
        except (SummaryFailed, ModelError) as error:
            return await self._failed(found, decision, error)
        if result.reason in ("leaf_moved", "compacted_meanwhile"):
            await self._finish(found.cycle, lambda state: state, f"nothing was appended: {result.reason}")
            return GuardAnswer("overtaken", decision, result)
        if result.reason == "cancelled":
            why = f"{result.notes[-1]}; {decision.reason}"
            # A request that was denied is met: it would be asked for again before every call.
            await self._finish(found.cycle, lambda state: replace(state, wanted=None), why)
            return GuardAnswer("cancelled", decision, result)
        return await self._done(decision, result)

    def _hook_for(self, decision: Decision) -> BeforeCompaction | None:
        """Return the hook, as it is asked about what was decided."""
        hook = self.before_compaction
        if hook is None:
            return None
        return lambda about: hook(replace(about, trigger=decision.trigger, reason=decision.reason))

    async def _failed(self, found: Found, decision: Decision, error: FlueError) -> GuardAnswer:
        cause = f"{error}" if error.__cause__ is None else f"{error} ({error.__cause__})"
        left = await self._finish(found.cycle, GuardState.with_failure, f"failed: {cause}; {decision.reason}")
        if left.state.failures == self.triggers.max_failures:
            await self._note(
                found,
                lambda now: now.with_told("breaker"),
                f"{left.state.failures} compactions failed in a row: no more until one on demand succeeds",
            )
        return GuardAnswer("failed", decision, error=error)

    async def _done(self, decision: Decision, result: CompactionResult) -> GuardAnswer:
        share = result.tokens_freed / max(1, result.tokens_before)
        is_little = result.appended is None or share < self.triggers.least_freed
        after = await self._find_out()
        if result.appended is None:
            why = f"nothing was appended: {result.reason}; {decision.reason}"
        else:
            words = f"{result.tokens_before:,} -> {result.tokens_after:,} tokens ({result.counter})"
            how = "compacted by a hook" if result.from_hook else "compacted"
            why = f"{how}, {words}, {share:.1%} freed; {decision.reason}"
        done = GuardState.with_attempt if result.appended is None else GuardState.with_success
        await self._finish(after.cycle, lambda state: done(state, after.size.tokens, share), why)
        return GuardAnswer("too_little" if is_little else "compacted", decision, result)

    def _room(self, found: Found, overflow: ContextOverflow | None) -> int | None:
        """Return how many tokens a request may take by our own count, the answer included; None if unknown."""
        size, windows = found.size, [] if self.window is None else [self.window]
        # Beside what would be kept of a large window, a compaction would be due again at once.
        windows += [window_above(self.settings, most) for most in self.triggers.sizes]
        if overflow is not None:
            # The provider counts otherwise than we do: what it says of the window is put into our tokens.
            windows.append(size.tokens)
            if overflow.window:
                windows.append(overflow.window)
            if overflow.window and overflow.tokens:
                windows.append(overflow.window * size.tokens // overflow.tokens)
        return max(1, min(windows)) if windows else None

    async def _sizes(self, found: Found, decision: Decision, overflow: ContextOverflow | None) -> CompactionSettings:
        settings = self._asked_for if decision.trigger == "demand" else self.settings
        settings = settings if settings.enabled else replace(settings, enabled=True)
        if overflow is not None and (self._is_too_much(found, overflow) or await self._is_broken(found)):
            settings = replace(settings, prefer_deterministic=True)
        if decision.keep_turns is None:
            return settings
        kept = found.kept_turns(decision.keep_turns, await self.session.pins())
        return replace(settings, keep_recent_messages=max(kept, 1), keep_recent_tokens=sys.maxsize)

    def _is_too_much(self, found: Found, overflow: ContextOverflow) -> bool:
        """Return whether a context that has overflowed is more than the summarizer takes, or nobody knows.

        A call that failed already should not wait for another that may fail for the same reason.
        """
        asked, refused = self.summarizer, self.model
        if asked is None:
            return True
        if refused is not None and (asked.name, asked.provider) == (refused.name, refused.provider):
            return True
        window = asked.context_window
        tokens = max(found.size.tokens, overflow.tokens or 0)
        return window is None or should_compact(tokens, window, sized_for(self.settings, window))

    async def _is_broken(self, found: Found) -> bool:
        """Return whether so many compactions have failed in a row that no model is asked for one."""
        failures = (await self._memory.read(found.cycle)).state.failures
        return 0 < self.triggers.max_failures <= failures

    async def _claim(self, found: Found, decision: Decision) -> Claim | None:
        """Claim the session, and return the claim; None if somebody else has it."""
        claim = Claim.make(self.session.id, found.cycle or "", self._memory.now())

        def take(now: Remembered) -> tuple[Remembered, str] | None:
            return None if now.claim is not None else (replace(now, claim=claim), f"compacting: {decision.reason}")

        try:
            taken = (await self._memory.change(found.cycle, take)).claim
        except BaseException:
            claim.drop()
            raise
        if taken == claim:
            return claim
        claim.drop()
        return None

    async def _finish(self, cycle: str | None, change: Callable[[GuardState], GuardState], why: str) -> Remembered:
        """Write down what came of a compaction, and let go of the session."""
        return await self._memory.change(cycle, lambda now: (Remembered(change(now.state), None), why))

    async def _release(self, cycle: str | None, claim: Claim, why: str) -> None:
        await self._memory.change(
            cycle, lambda now: (replace(now, claim=None), why) if _is_same(now.claim, claim) else None
        )


def _is_same(stored: Claim | None, claim: Claim) -> bool:
    """Return whether a claim is stored, perhaps renewed."""
    return stored is not None and stored.token == claim.token


def _check_parts(store: object, session: object) -> None:
    if not isinstance(store, Store):
        raise InvalidArgument(f"store: {shown(store)} is not a store; flue_py.open gives one")
    if not isinstance(session, Session):
        raise InvalidArgument(f"session: {shown(session)} is not a session; a store opens one")


def _check_agent(agent: object) -> None:
    if not isinstance(agent, str):
        raise InvalidArgument(f'agent: {shown(agent)} is not the name of an agent; names are texts, "" stands for all')
    checked_text(agent, "agent")


def _checked_triggers(triggers: TriggerSettings | None, settings: CompactionSettings) -> TriggerSettings:
    if triggers is None:
        return TriggerSettings()
    if not isinstance(triggers, TriggerSettings):
        raise InvalidArgument(f"triggers: should be TriggerSettings, not {shown(triggers)}")
    off = "triggers.auto" if not triggers.auto else "" if settings.enabled else "settings.enabled"
    budgets = (triggers.budget, *triggers.agent_budgets.values())
    if off and (most := max(each.cutover_at for each in budgets)):
        raise InvalidArgument(
            f"triggers: cutover_at of {most:,} asks for a compaction, but {off} is False; set that to True, or "
            "cutover_at to 0"
        )
    return triggers


def _again(error: ContextOverflow) -> ContextOverflow:
    return ContextOverflow(
        f"the context overflowed again after one compaction and one retry: {error}; take a model with a larger window, "
        "or rewind",
        provider=error.provider,
        model=error.model,
        call=error.call,
        tokens=error.tokens,
        window=error.window,
    )
