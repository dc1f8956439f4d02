"""`CompactionGuard`: the one object by which a runtime sees to it that a session stays inside its window.

It is asked before and after each call of the model, and wraps a call so that an overflow is recovered from. Its state
is stored with the session: another process goes on with it.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from inspect import isawaitable
from threading import Event as ThreadEvent
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict, TypeVar, Unpack, cast, get_args

from msgspec.structs import replace

from flue_py.compaction.modes import Mode, Window, checked_mode
from flue_py.compaction.plan import should_compact
from flue_py.compaction.settings import (
    TOKEN_BUDGET,
    WHOLE,
    CompactionSettings,
    TriggerSettings,
    checked_settings,
    input_tokens,
    sized_for,
    token_budget,
    window_above,
)
from flue_py.compaction.triggers import Decision, Facts, GuardState, Moment, decide
from flue_py.context.tokens import checked_request
from flue_py.core.context import ContextEntry, ContextSize, Turns, begins_turn, last_turns, part_of
from flue_py.core.entries import Entry
from flue_py.core.json import Frozen, JsonObject
from flue_py.core.kinds import is_answer
from flue_py.core.model import ModelReply
from flue_py.core.operations import why_of
from flue_py.core.sessions import GUARD_KEY, MAX_WHY_CHARACTERS, STORED, LeafChoice, SessionInfo, check_choice
from flue_py.core.usage import agent_of
from flue_py.db.waiting import POLL_SECONDS, Waiting
from flue_py.errors import (
    AbortedToCompact,
    BudgetExceeded,
    ContextOverflow,
    FlueError,
    InvalidArgument,
    ModelError,
    RevisionConflict,
    SummaryFailed,
    shown,
)
from flue_py.lazy import lazy_module
from flue_py.providers import request as bound
from flue_py.sessions import handle
from flue_py.sessions.compact import Claim, checked_hook, compacting_under
from flue_py.sessions.money import book, model_of, window_of
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from anyio import CancelScope, Event

    from flue_py.compaction.material import BeforeCompaction
    from flue_py.compaction.plan import CompactionResult
    from flue_py.context import blocks as reading
    from flue_py.context import overflows, pipeline, settings
    from flue_py.context import sources as gathering
    from flue_py.context.request import ContextRequest
    from flue_py.context.settings import ContextSettings
    from flue_py.context.sources import GatheredContext, SourceReader
    from flue_py.core.model import Model
else:
    reading = lazy_module("flue_py.context.blocks")
    overflows = lazy_module("flue_py.context.overflows")
    pipeline = lazy_module("flue_py.context.pipeline")
    settings = lazy_module("flue_py.context.settings")
    gathering = lazy_module("flue_py.context.sources")


# ---------------------------------------------------------------------------------------------------------------------
# Calls of a model that run now, and that a compaction on demand ends before it begins.

Result = TypeVar("Result")

_PURPOSE = "turn"
_OUTCOME = "aborted"


class _Call:
    """A call that runs in a task, which ``scope`` cancels; or on a thread without an event loop: nothing can end it."""

    def __init__(self, *, has_loop: bool) -> None:
        self.scope: CancelScope | None = None
        self.is_to_end = False
        self.was_ended = False
        """Whether it ended because somebody wanted it to."""
        self.has_ended: ThreadEvent | Event = ThreadEvent()
        if has_loop:
            # Imported by whoever calls models: it takes 30 ms to load.
            import anyio  # noqa: PLC0415

            self.scope, self.has_ended = anyio.CancelScope(), anyio.Event()

    def end(self) -> None:
        """Have it end, as soon as it can."""
        if self.scope is not None:
            self.is_to_end = True
            self.scope.cancel()

    async def wait(self) -> None:
        """Wait until it has ended."""
        waiting = self.has_ended.wait()
        if isawaitable(waiting):
            await waiting


_around: ContextVar[frozenset[_Call]] = ContextVar("_around", default=frozenset())
"""The calls that this task or thread is part of: it cannot wait for the end of these."""


class RunningCalls:
    """The calls that a guard or a conversation waits for now, each in a task or a thread of its own."""

    def __init__(self, waiting: Waiting, new_id: Callable[[], str]) -> None:
        self._waiting = waiting
        self._new_id = new_id
        self._calls: set[_Call] = set()

    async def run(self, session: Session, work: Callable[[], Awaitable[Result]]) -> Result:
        """Do ``work``, which calls a model for a session, and return its result.

        Raises its errors, and `AbortedToCompact` if `end` was called before it was done. Its cost is in the
        ledger then, if its own error names it.
        """
        call = _Call(has_loop=self._waiting.has_loop)
        token = _around.set(_around.get() | {call})
        self._calls.add(call)
        try:
            return await (work() if call.scope is None else self._run(call, call.scope, session, work))
        finally:
            self._calls.discard(call)
            _around.reset(token)
            call.has_ended.set()

    async def _run(
        self, call: _Call, scope: CancelScope, session: Session, work: Callable[[], Awaitable[Result]]
    ) -> Result:
        failure: ModelError | None = None
        with scope:
            try:
                return await work()
            except ModelError as error:
                if not call.is_to_end:
                    raise
                failure = error
        paid = None if failure is None else failure.call
        if paid is not None:
            # The task may be cancelled at the same time, and the price paid is known nowhere else.
            paid = (await self._waiting.finish(book(session.money, paid, self._new_id, _PURPOSE, _OUTCOME))).call
        call.was_ended = True
        raise AbortedToCompact(
            f"session {session.id!r}: the call of the model was ended, so that the session could be compacted; call "
            "again if the answer is still wanted",
            provider=None if failure is None else failure.provider,
            model=None if failure is None else failure.model,
            call=paid,
        ) from failure

    async def end(self) -> int:
        """End the calls that run now, and return how many that cut short, when all of them have ended.

        A plain function that blocks cannot be ended: it is waited for. A call that this task is itself part of goes on.
        """
        ending = self._calls.copy() - _around.get()
        for call in ending:
            call.end()
        for call in ending:
            await call.wait()
        return sum(call.was_ended for call in ending)


# ---------------------------------------------------------------------------------------------------------------------
# The answers of a guard.

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
"""The outcome of asking a guard:

- ``nothing``: nothing is due; ``warned``: nothing yet; ``held``: it is due, and held back
- ``compacting``: a compaction begins; ``on_answer`` alone is called with it, and then with its outcome
- ``compacted``: a compaction was appended; ``too_little``: it freed, or would free, next to nothing, and there is no
  second attempt until the context has grown
- ``nothing_to_cut``: there is nothing that could be cut off
- ``cancelled``: the hook wanted none, the notes of ``result`` say why
- ``failed``: the compaction failed, ``error`` says how
- ``elsewhere``: somebody else compacts the session now
- ``overtaken``: somebody else compacted it, or moved its leaf, meanwhile
"""


class GuardAnswer(Frozen):
    """The outcome of asking, the decision with its reason, and the result of a compaction or its error."""

    outcome: Outcome
    decision: Decision
    result: CompactionResult | None = None
    error: FlueError | None = None


# ---------------------------------------------------------------------------------------------------------------------
# The state of a session that a guard decides by.


class SessionFacts(Frozen):
    """The context of a session, its size and its latest compaction."""

    items: Sequence[ContextEntry]
    latest: Entry | None
    size: ContextSize

    @property
    def cycle(self) -> str | None:
        """The id of the latest compaction."""
        return None if self.latest is None else self.latest.id


# ---------------------------------------------------------------------------------------------------------------------
# The memory of a guard between processes, and its events: the metadata of the session, and the log of their changes.
#
# Each event is one change of the metadata under the key ``compactionGuard``, by ``compaction guard``, with its reason,
# so that it is a line of the session's log. It moves no leaf and is no step of `undo`.

BY = "compaction guard"


class Remembered(Frozen):
    """The stored state, and the claim of the process that compacts the session now, None for nobody.

    The claim of a process that has ended is none, and counts as a failure if it came to no compaction: a session that
    kills each process that tries it would otherwise be tried, and paid for, without end. ``is_after_end`` says so.
    """

    state: GuardState
    claim: Claim | None
    is_after_end: bool = False


Change: TypeAlias = Callable[[Remembered], tuple[Remembered, str] | None]
"""Returns the memory to store, and the reason; None to leave it."""


class Memory:
    """The memory of the guard of one session."""

    def __init__(self, session: Session, clock: Callable[[], datetime]) -> None:
        self._session = session
        self._clock = clock

    def now(self) -> int:
        """Return the time in seconds since 1970."""
        return int(self._clock().timestamp())

    async def read(self, cycle: str | None) -> Remembered:
        """Return the stored memory, as of the latest compaction ``cycle``. One point read."""
        return self._read(await handle.stored_row(self._session), cycle)

    def _read(self, info: SessionInfo, cycle: str | None) -> Remembered:
        stored = info.metadata.get(GUARD_KEY)
        fields: JsonObject = stored if isinstance(stored, dict) else {}
        state, claim = GuardState.from_json(fields).in_cycle(cycle), Claim.from_json(fields.get("claim"))
        if claim is None or claim.holds(self._session.id, self.now()):
            return Remembered(state, claim)
        if claim.session_id != self._session.id or claim.cycle != state.cycle:
            return Remembered(state, None)
        return Remembered(state.with_failure(), None, is_after_end=True)

    async def change(self, cycle: str | None, change: Change) -> Remembered:
        """Change the stored memory, and return it: writes of others meanwhile are taken into account.

        One point read and one write, again for each change of the session that comes in between.
        """
        while True:
            info = await handle.stored_row(self._session)
            stored = self._read(info, cycle)
            changed = change(stored)
            if changed is None:
                return stored
            to_store, why = changed
            if stored.is_after_end:
                why = f"the process that compacted the session has ended, which counts as a failure; {why}"
            fields = to_store.state.to_json()
            if to_store.claim is not None:
                fields["claim"] = to_store.claim.to_json()
            try:
                await self._session.set_metadata(
                    {GUARD_KEY: fields},
                    merge=True,
                    by=BY,
                    why=why[:MAX_WHY_CHARACTERS],
                    expected_revision=info.revision,
                )
            except RevisionConflict:
                continue
            return to_store


# ---------------------------------------------------------------------------------------------------------------------
# The requests to an agent of a session: all of the context, or the part that its settings leave.


class Recovery(Frozen, eq=False):
    """What is done about the first overflow of a call.

    ``make_room`` returns whether the context is smaller now, ``give_up`` the error to raise if nothing has helped.
    """

    make_room: Callable[[ContextOverflow], Awaitable[bool]]
    give_up: Callable[[ContextOverflow], Awaitable[ContextOverflow]]


class Beside(TypedDict, total=False):
    """The leaf that a request is made at, and the system prompt and the tools beside its messages."""

    leaf: LeafChoice
    system: str | None
    tools: Sequence[Mapping[str, object]]


class Sending:
    """The requests to agents of a session: with settings the part they leave, with ``sources`` for their ``spec``.

    True stands for the settings of a conversation. ``report`` is that of the settings on the latest request of `ask`.
    The sources are asked once in a turn of an agent, so that its requests begin with the bytes of the ones before.
    Raises `InvalidArgument`.
    """

    def __init__(
        self, context: ContextSettings | Mapping[str, object] | bool | None, sources: Mapping[str, SourceReader] | None
    ) -> None:
        self._is_default = context is True
        self._own = None if context is None or isinstance(context, bool) else settings.context_settings(context)
        self.report: pipeline.ContextReport | None = None
        self._sources = None if sources is None else gathering.checked_sources(sources)
        self._gathered: dict[str | None, tuple[tuple[str, str | None], GatheredContext]] = {}

    @property
    def settings(self) -> ContextSettings | None:
        """The settings, None without any. Those of a conversation are loaded when they are first used."""
        return settings.TRIMMED if self._is_default else self._own

    async def ask(
        self,
        session: Session,
        agent: str | None,
        ask: Callable[[list[JsonObject]], Awaitable[Result]],
        recovery: Recovery | None = None,
        **beside: Unpack[Beside],
    ) -> tuple[list[JsonObject], Result]:
        """Return the messages that an agent was sent in the end, and the result of ``ask``: one of `requests`."""
        async with aclosing(self.requests(session, agent, recovery, **beside)) as requests:
            request = await anext(requests)
            while True:
                sent = await _whole(session, **beside) if request is None else request.messages
                try:
                    return sent, await ask([*sent])
                except Exception as error:  # noqa: BLE001 - a client's own errors have no type in common
                    request = await requests.athrow(error)

    async def requests(
        self, session: Session, agent: str | None, recovery: Recovery | None, **beside: Unpack[Beside]
    ) -> AsyncGenerator[ContextRequest | None, None]:
        """Yield a request of an agent, None for all of the context; if its error is thrown in, a smaller one.

        The first overflow, also one that the limits of `Fitting` find before anything is sent, is put to ``recovery``,
        which may have made the context smaller; the others are met with less of the results of tools
        (`Session.context.attempts`), as far as there is less. Raises the last of them. An error of a client that tells
        of one is an overflow, too; any other is raised.
        """
        is_met = recovery is None
        overflow: ContextOverflow | None = None
        while True:
            async with aclosing(self._attempts(session, agent, **beside)) as attempts:
                while True:
                    try:
                        yield await anext(attempts)
                        return
                    except StopAsyncIteration:
                        # The attempts raise if none of them fits.
                        overflow = overflow or ContextOverflow("no attempt was left")
                        raise overflow if recovery is None else await recovery.give_up(overflow) from overflow
                    except Exception as error:  # a client's own errors have no type in common
                        overflow = overflows.overflow_of(error)
                        if overflow is None:
                            raise
                    was_met, is_met = is_met, True
                    if not was_met and recovery is not None and await recovery.make_room(overflow):
                        break

    async def _attempts(
        self, session: Session, agent: str | None, **beside: Unpack[Beside]
    ) -> AsyncGenerator[ContextRequest | None, None]:
        """Yield the request of an agent, and then stage by stage fewer results of tools, where that is less."""
        settings, agent, gathered = self.settings, agent or None, None
        if settings is None:
            # Nothing has to be counted, and no vocabulary loaded, for a context that fits.
            self.report = None
            yield None
        else:
            gathered = await self._of_turn(session, settings, agent, beside.get("leaf", STORED))
        sent: list[JsonObject] | None = None
        async for attempt in await session.context.attempts(
            agent=agent, settings=settings, gathered=gathered, **beside
        ):
            attempt.overflowed()
            self.report = attempt.request.report
            is_same = attempt.request.messages == sent or (sent is None and settings is None)
            sent = attempt.request.messages
            if not is_same:
                yield attempt.request

    async def is_whole(self, session: Session, agent: str | None, **beside: Unpack[Beside]) -> bool:
        """Return whether an agent is sent the context as it is. The cost of a request, and nothing without settings."""
        request, beside["leaf"] = await self._unanswered(session, agent, None, **beside)
        return request is None or request.messages == await _whole(session, **beside)

    async def freed(self, session: Session, agent: str | None, model: str | None) -> float:
        """Return which share of the context, 0 to 1, the settings leave out of a request: as `is_whole`."""
        request, _ = await self._unanswered(session, agent, model)
        return 0 if request is None else request.report.tokens_freed / max(1, request.report.tokens_before)

    async def _unanswered(
        self, session: Session, agent: str | None, model: str | None, **beside: Unpack[Beside]
    ) -> tuple[ContextRequest | None, str | None]:
        """Return a request that nobody answers, None without settings, and the leaf it was made at."""
        settings, agent = self.settings, agent or None
        if settings is None:
            return None, None
        leaf = beside["leaf"] = (await handle.stored_row(session)).leaf_id
        gathered = await self._of_turn(session, settings, agent, leaf)
        return await session.request(agent=agent, settings=settings, gathered=gathered, model=model, **beside), leaf

    async def _of_turn(
        self, session: Session, settings: ContextSettings, agent: str | None, leaf: LeafChoice
    ) -> GatheredContext | None:
        if settings.of(agent).spec is None:
            return None
        context = await session.build_context_entries(leaf=leaf)
        start = pipeline.turn_in(context, agent)
        turn = (session.id, context[start - 1].entry_id if start else None)
        cached = self._gathered.get(agent)
        if cached is not None and cached[0] == turn:
            return cached[1]
        gathered = await session.context.gather(leaf=leaf, agent=agent, settings=settings, sources=self._sources)
        self._gathered[agent] = (turn, gathered)
        return gathered


async def _whole(session: Session, **beside: Unpack[Beside]) -> list[JsonObject]:
    context = await session.build_context(leaf=beside.get("leaf", STORED))
    return bound.ours_without_stale(context, beside.get("system"), _plain(beside.get("tools")))


async def answer_of(
    ask: Callable[[list[JsonObject]], Awaitable[Result]], name: str, context: list[JsonObject]
) -> Result:
    """Return the result of a function of the caller's. Raises `InvalidArgument` for one that cannot be awaited."""
    answer: object = ask(context)
    if not isawaitable(answer):
        raise InvalidArgument(
            f"{name}: it returned {shown(answer)}; use an async function here, and plain ones with flue_py.sync"
        )
    result: Result = await answer
    return result


def answers_to(
    messages: Sequence[JsonObject],
    answered: Sequence[JsonObject],
    *,
    system: str | None = None,
    tools: Sequence[Mapping[str, object]] | None = None,
) -> list[JsonObject]:
    """Return the answers of a model, signed ones with the digest of the request that they were produced under.

    O(size) if there is signed reasoning.
    """
    return bound.answers_produced_under(messages, system, _plain(tools), answered)


def _plain(tools: Sequence[Mapping[str, object]] | None) -> list[JsonObject]:
    return [cast("JsonObject", dict(tool)) for tool in tools or ()]


# ---------------------------------------------------------------------------------------------------------------------
# `CompactionGuard`: the one object by which a runtime sees to it that a session stays inside its window.


class CompactionGuard:
    """Sees to it that a session is compacted when it is due, once at a time, and no more often than it helps.

    ``model`` is the session's own: its window counts, and it makes the summaries unless there is a ``summarizer``.
    ``window`` takes the place of the model's. ``system`` and ``tools`` go along with every call, so that they are
    counted, and most of a summary's request is read from the provider's cache: "" and () if nothing does, None if that
    is unknown. ``mode`` and ``settings`` are those of `Session.compact`, ``triggers`` says when. ``on_answer`` is
    called with every answer but ``nothing``, and with ``compacting`` when a compaction begins. ``before_compaction`` is
    asked before each, and may cancel it or give its text (`flue_py.compaction.material`). ``context`` are the settings
    of the requests of `call` (`flue_py.context.ContextSettings`), by default all of it, and ``sources`` the readers of
    a ``spec`` in it, once in a turn. ``patience`` is for how many seconds an overflow waits for somebody else who
    compacts the session. ``blocks`` are told before each `call` if the context does not show the text that they have
    now (`Session.append_blocks`), so that a compaction takes none away; ``block_failures`` are those of the latest
    call, which they do not break. With ``stop_over_budget``, no turn begins once the ledger has more than a budget
    allows (`Session.money.check_budgets`).

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
        tools: Sequence[Mapping[str, object]] | None = None,
        on_answer: Callable[[GuardAnswer], object] | None = None,
        before_compaction: BeforeCompaction | None = None,
        context: ContextSettings | Mapping[str, object] | None = None,
        sources: Mapping[str, SourceReader] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        patience: float = 120.0,
        blocks: Iterable[reading.Block] = (),
        stop_over_budget: bool = False,
    ) -> None:
        check_parts(store, session)
        self.store = store
        self._session = session
        self.model = None if model is None else model_of(model)
        self.summarizer = self.model if summarizer is None else model_of(summarizer)
        self.mode = mode
        self.settings = checked_settings(settings)
        self.triggers = _checked_triggers(triggers, self.settings)
        self._budget = 0
        handle.optional(handle.checked_count, window, "window")
        # 0 stands for a window that is not known, as everywhere.
        self.window = window_of(window, self.model) or None
        self.system = system
        self.tools = checked_request(None, None, system, tools)
        self.on_answer = handle.checked_function(on_answer, "on_answer")
        self.before_compaction = checked_hook(before_compaction)
        self._sending = Sending(context, sources)
        self.context = self._sending.settings
        self.patience = handle.checked_patience(patience)
        self.blocks = tuple(reading.checked_blocks(blocks)) if blocks != () else ()
        self.block_failures: tuple[reading.BlockFailure, ...] = ()
        self.stop_over_budget = handle.checked_flag(stop_over_budget, "stop_over_budget")
        self._waiting = store.backend.waiting
        self._running = RunningCalls(self._waiting, store.backend.new_entry_id)
        self._memory = Memory(session, handle.checked_function(clock, "clock"))
        mode_used = checked_mode(mode, self.settings, has_model=self.summarizer is not None)
        self._asked_for = WHOLE if settings is None and mode_used.needs_model else self.settings
        if isinstance(mode_used, Window):
            self._budget_decides()

    def _budget_decides(self) -> None:
        """Have a budget of tokens, that of mode ``window``, decide in place of turns and reasons that hold back."""
        threshold = self.triggers.threshold
        budget = token_budget(self.settings, threshold or TOKEN_BUDGET)
        self.settings = replace(self.settings, keep_recent_tokens=budget)
        if threshold != 0:
            self._budget = threshold or budget
            self.triggers = replace(self.triggers, threshold=None if self.window else 0)
        self.triggers = replace(self.triggers, trigger_turns=0, thrash_window=0)

    @property
    def context_report(self) -> pipeline.ContextReport | None:
        """The report of the settings on the latest request of `call`; None without any."""
        return self._sending.report

    @property
    def session(self) -> Session:
        """The session that it guards; another one has a guard of its own."""
        return self._session

    # -- asking -----------------------------------------------------------------------------------------------

    async def before_call(self, agent: str = "") -> GuardAnswer:
        """Compact if that is due before the model is called, and return the outcome.

        ``agent`` is whose budget counts, by the name that its answers have; "" stands for all. A compaction that fails
        is an answer, not an error. With ``stop_over_budget`` raises `BudgetExceeded` where a turn would begin; one that
        has answers goes on. The cost of the context, and of the budgets with ``stop_over_budget``.
        """
        _check_agent(agent)
        if self.stop_over_budget:
            try:
                await self.session.money.check_budgets()
            except BudgetExceeded:
                if not await self._goes_on(agent):
                    raise
        return await self._ask("before", agent)

    async def after_call(self, agent: str = "") -> GuardAnswer:
        """Compact if that is due after an answer was appended, and return the outcome; as `before_call`."""
        _check_agent(agent)
        return await self._ask("after", agent)

    async def resumed(self, agent: str = "") -> GuardAnswer:
        """Compact if that is due where a process takes a session up again; as `before_call`."""
        _check_agent(agent)
        return await self._ask("resume", agent)

    async def compact(self, instructions: str | None = None, *, abort: bool = True) -> GuardAnswer:
        """Compact now, whatever holds other compactions back, and return the outcome; as `before_call`.

        Calls that this guard waits for are ended first, and raise `AbortedToCompact` where they were made; a plain
        function cannot be ended, and is waited for. Entries appended until then stay as they are. With ``abort=False``
        they go on, and their entries come after the summary; so do those of other processes.
        ``instructions`` are the focus of the summary.
        """
        handle.checked_text(instructions, "instructions")
        if handle.checked_flag(abort, "abort") and await self._running.end():
            await self._note(await self._session_facts(), lambda state: state, "ended a running call of the model")
        return await self._ask("demand", "", instructions)

    async def decide(self, moment: Moment = "before", agent: str = "") -> Decision:
        """Return the decision of now, without acting on it."""
        check_choice(moment, "moment", get_args(Moment))
        _check_agent(agent)
        seen = await self._session_facts()
        return await self._decide(seen, (await self._memory.read(seen.cycle)).state, moment, agent, None)

    async def should_compact(self, agent: str = "") -> bool:
        """Return whether a compaction is due before the next call, and nothing holds it back."""
        return (await self.decide("before", agent)).action == "compact"

    async def request(self, instructions: str = "") -> None:
        """Leave a request to compact, which the next question meets: a tool for agents calls this."""
        if not isinstance(instructions, str):
            raise InvalidArgument(
                f"instructions: {shown(instructions)} is not a text; leave them out if there are none"
            )
        handle.checked_text(instructions, "instructions")
        why = "the agent asks for a compaction" + (f": {instructions}" if instructions else "")
        await self._note(await self._session_facts(), lambda state: replace(state, wanted=instructions), why)

    async def state(self) -> GuardState:
        """Return the guard's state of the session."""
        return (await self._memory.read((await self._session_facts()).cycle)).state

    async def reset(self) -> None:
        """Forget failures and attempts, so that nothing is held back for them."""
        await self._note(await self._session_facts(), lambda state: replace(state, failures=0, attempts=()), "reset")

    # -- a call -----------------------------------------------------------------------------------------------

    async def call(self, ask: Callable[[list[JsonObject]], Awaitable[Result]], *, agent: str = "") -> Result:
        """Call a model by ``ask``, which takes the context, and return its result.

        It is asked `before_call`. If the window overflows all the same, `recover` is called, and ``ask`` again with the
        smaller context. Where that does not help or nothing could be compacted, it is asked with less of the results of
        tools, as by `Session.context.attempts`. Raises the errors of ``ask``, `ContextOverflow` if nothing helped, and
        `AbortedToCompact` if `compact` was called meanwhile: ``ask`` is cancelled then. Its cost is booked if it raises
        a `ModelError` that names it. A `ModelReply` comes back with the digest that its signed reasoning was produced
        under, so that no later call sends that behind another beginning.
        """
        _check_agent(agent)
        if not callable(ask) or isinstance(ask, type):
            raise InvalidArgument(f"ask: {shown(ask)} is not a function; give one that takes the context and asks")
        return await self._running.run(self.session, lambda: self._call(partial(answer_of, ask, "ask"), agent))

    async def _call(self, ask: Callable[[list[JsonObject]], Awaitable[Result]], agent: str) -> Result:
        recovery = await self._begun(agent)
        context, answer = await self._sending.ask(
            self.session, agent, ask, recovery, system=self.system, tools=self.tools or ()
        )
        return self._bound(context, answer)

    async def requests(self, agent: str = "") -> AsyncGenerator[ContextRequest | None, None]:
        """Return the requests of a call as `call` makes them, for a program that sends them itself, one by one.

        None stands for all of the context. The error of a client is thrown into the generator
        (``athrow``), which yields a smaller request, or raises as `call`. Close it when there is an answer.
        """
        recovery = await self._begun(agent)
        return self._sending.requests(self.session, agent, recovery, system=self.system, tools=self.tools or ())

    async def _begun(self, agent: str) -> Recovery:
        """Make the session ready for a call, and return its recovery."""
        await self.before_call(agent)
        await self._append_blocks()
        latest = await self.session.compactions.latest()
        is_recovered, why = False, ""

        async def make_room(overflow: ContextOverflow) -> bool:
            nonlocal is_recovered, why
            if overflow.is_malformed:
                return False
            try:
                answer = await self._recover(overflow, agent, None if latest is None else latest.id)
            except ContextOverflow:
                is_recovered = True
                return False
            is_recovered = answer.outcome in ("compacted", "overtaken")
            why = f"the context was not compacted ({answer.outcome}): {answer.decision.reason}"
            if is_recovered:
                await self._append_blocks()
            return is_recovered

        async def give_up(overflow: ContextOverflow) -> ContextOverflow:
            if is_recovered:
                await self._step_back()
                return _again(overflow)
            if why:
                overflow.add_note(why)
            return overflow

        return Recovery(make_room, give_up)

    async def _append_blocks(self) -> None:
        if self.blocks:
            # The request is the context at the stored leaf, whoever has moved that.
            self.block_failures = (await self.session.append_blocks(self.blocks, on_conflict="rebase")).failures

    def _bound(self, context: Sequence[JsonObject], answer: Result) -> Result:
        if not isinstance(answer, ModelReply):
            return answer
        messages = answers_to(context, answer.messages, system=self.system, tools=self.tools)
        return replace(answer, messages=tuple(messages))

    async def recover(self, error: ContextOverflow, agent: str = "") -> GuardAnswer:
        """Make room after a call has overflowed the window, and return the outcome.

        The failed leaf steps back, and the session is compacted to fit the window that the error names. Once only:
        raises `ContextOverflow` if nothing was said and answered since the last time. With ``auto=False`` nothing is
        done.
        """
        if not isinstance(error, ContextOverflow):
            raise InvalidArgument(f"error: {shown(error)} is not a ContextOverflow; nothing else is recovered from")
        _check_agent(agent)
        latest = await self.session.compactions.latest()
        return await self._recover(error, agent, None if latest is None else latest.id)

    async def _recover(self, error: ContextOverflow, agent: str, cycle: str | None) -> GuardAnswer:
        """Do so for a call that was made in a cycle: whoever has compacted the session since then has made room."""
        if not self.triggers.auto or not self.settings.enabled:
            return await self._ask("overflow", agent)
        await self._step_back()
        seen = await self._session_facts()
        recovered = (await self._memory.read(seen.cycle)).state.recovered
        if recovered and not await self._has_gone_on(recovered):
            raise _again(error) from error
        await self._wait_for_another(seen.cycle)
        seen = await self._session_facts()
        if seen.cycle is not None and seen.cycle != cycle:
            decision = await self._decide(seen, GuardState(), "overflow", agent, None)
            return self._told(GuardAnswer("overtaken", decision))
        answer = await self._ask("overflow", agent, overflow=error)
        if answer.outcome in ("compacted", "too_little", "nothing_to_cut"):
            leaf = (await handle.stored_row(self.session)).leaf_id or ""
            why = f"recovery from an overflow: {answer.outcome}; there is no other before a new message or answer"
            await self._note(await self._session_facts(), lambda state: replace(state, recovered=leaf), why)
        return answer

    async def _step_back(self) -> None:
        """Retract an answer that failed and was stored, so that it is not part of the context again."""
        leaf = None if self.session.leaf_id is None else await self.session.get_entry(self.session.leaf_id)
        if leaf is not None and is_answer(leaf.kind, leaf.role) and _failed(leaf):
            await self.session.remove_leaf_message(leaf.id, by=BY, why="the call overflowed the window")

    async def _wait_for_another(self, cycle: str | None) -> None:
        """Wait for whoever compacts the session now."""
        waited = 0.0
        while (await self._memory.read(cycle)).claim is not None and waited < self.patience:
            await self._waiting.pause(POLL_SECONDS)
            waited += POLL_SECONDS

    # -- deciding ---------------------------------------------------------------------------------------------

    async def _session_facts(self) -> SessionFacts:
        """The cost of the context, and of counting messages that were not counted before."""
        context = await handle.shown_context(self.session)
        size = await self.session.context.measure(
            None if self.model is None else self.model.name, system=self.system, tools=self.tools, window=self.window
        )
        return SessionFacts(context.items, context.compaction, size)

    async def _input_since(self, cycle: str | None, agent: str) -> int:
        """Return the tokens that an agent, or "" for all, has sent since a compaction; 0 without a budget.

        A number of an answer above the window is not believed, and counts for nothing. O(forks on the path) for all
        agents, O(calls) for one; O(entries) if a budget is reached.
        """
        if not self.triggers.has_budget:
            return 0
        if agent:
            sent = input_tokens((await self.store.usage(self.session, path=True, since=cycle, agent=agent)).total)
        else:
            sent = input_tokens((await self.session.money.aggregate_usage_since(cycle)).usage)
        if self.window and self.triggers.budget_of(agent).is_reached_by(sent):
            for entry in await self.session.get_active_path(since=cycle):
                if is_answer(entry.kind, entry.role) and (not agent or agent_of(entry.fields) == agent):
                    reported = input_tokens(entry.usage)
                    sent -= reported if reported > self.window else 0
        return sent

    async def _goes_on(self, agent: str) -> bool:
        """Return whether an agent's next answer is of a turn that has answers. The cost of the context."""
        turns = Turns()
        for item in (await handle.shown_context(self.session)).items:
            turns.add_entry(item.entry)
        return turns.goes_on(agent)

    async def _has_gone_on(self, since: str) -> bool:
        """Return whether a user spoke, or the model answered, after an entry; True if it is off the path."""
        session = self.session
        leaf = (await handle.stored_row(session)).leaf_id
        if leaf is None or await session.get_entry(since) is None:
            return True
        if not await session.branches.is_ancestor(since, of=leaf):
            return True
        later = await session.get_active_path(since=since)
        return any(begins_turn(entry) or (is_answer(entry.kind, entry.role) and not _failed(entry)) for entry in later)

    async def _decide(
        self, seen: SessionFacts, state: GuardState, moment: Moment, agent: str, instructions: str | None
    ) -> Decision:
        size, latest = seen.size, seen.latest
        if not size.trusts_reported:
            # A provider reported the tokens that it was sent.
            name = None if self.model is None else self.model.name
            freed = await self._sending.freed(self.session, agent, name)
            size = replace(size, messages=round(size.messages * (1 - freed))) if freed else size
        turns, later_turns = Turns(), Turns()
        for item in seen.items if self.triggers.trigger_turns or self.triggers.has_budget else ():
            part = part_of(item.entry)
            turns.add(part)
            if latest is not None and item.entry.depth > latest.depth:
                later_turns.add(part)
        above_budget = 0
        if self._budget:
            counted = await self.session.context.measure(faithful=True, system="", tools=(), use_reported=False)
            above_budget = max(counted.tokens - self._budget, 0)
        facts = Facts(
            moment,
            size,
            state,
            turns.ended,
            None if latest is None else later_turns.ended,
            latest is None or any(item.entry.depth > latest.depth for item in seen.items),
            agent,
            await self._input_since(seen.cycle, agent),
            instructions,
            above_budget,
        )
        return decide(facts, self.triggers, self.settings)

    async def _ask(
        self, moment: Moment, agent: str, instructions: str | None = None, *, overflow: ContextOverflow | None = None
    ) -> GuardAnswer:
        seen = await self._session_facts()
        state = (await self._memory.read(seen.cycle)).state
        decision = await self._decide(seen, state, moment, agent, instructions)
        if decision.action == "none":
            # Of a session that was never near its window the log has no line.
            if state.told or state.warned:
                await self._note_once(seen, state, "nothing", f"nothing is due any more: {decision.reason}")
            return GuardAnswer("nothing", decision)
        if decision.action == "warn":
            await self._note(seen, lambda now: now.with_warning(agent), why_of("context_budget_warn", decision.reason))
            return self._told(GuardAnswer("warned", decision))
        if decision.action == "held":
            await self._note_once(seen, state, decision.held_by or "", decision.reason)
            return self._told(GuardAnswer("held", decision))
        answer = await self._compact(seen, decision, overflow)
        if answer.outcome == "elsewhere":
            await self._note_once(seen, state, "elsewhere", f"somebody else compacts the session; {decision.reason}")
        return self._told(answer)

    async def _note_once(self, seen: SessionFacts, state: GuardState, name: str, why: str) -> None:
        """Write down a decision, the first time in a cycle: it is asked before and after each call."""
        if name not in state.told:
            await self._note(seen, lambda now: now.with_told(name), why)

    async def _note(self, seen: SessionFacts, change: Callable[[GuardState], GuardState], why: str) -> None:
        """Write an event down, with the change of the state that it makes; a claim stays as it is."""
        await self._memory.change(seen.cycle, lambda now: (replace(now, state=change(now.state)), why))

    def _told(self, answer: GuardAnswer) -> GuardAnswer:
        if self.on_answer is not None:
            self.on_answer(answer)
        return answer

    # -- compacting -------------------------------------------------------------------------------------------

    async def _compact(self, seen: SessionFacts, decision: Decision, overflow: ContextOverflow | None) -> GuardAnswer:
        window = self._room(seen, overflow)
        settings = await self._sizes(seen, decision, overflow)
        planned = await self.session.compactions.plan(
            mode=self.mode, settings=settings, window=window, system=self.system, tools=self.tools
        )
        freed = 1 - planned.tokens_staying / max(1, planned.tokens_before)
        if planned.planned is None or (decision.trigger != "demand" and freed < self.triggers.least_freed):
            outcome: Outcome = "nothing_to_cut" if planned.planned is None else "too_little"
            why = f"{outcome.replace('_', ' ')}: at most {freed:.1%} would be freed; {decision.reason}"
            await self._note(seen, lambda now: now.with_attempt(seen.size.tokens, 0), why)
            return GuardAnswer(outcome, decision, planned)
        claim = await self._claim(seen, decision)
        if claim is None:
            return GuardAnswer("elsewhere", decision)
        try:
            self._told(GuardAnswer("compacting", decision))
            with compacting_under(claim):
                return await self._compact_now(seen, decision, settings, window)
        except BaseException:
            with suppress(FlueError):
                await self._waiting.finish(self._release(seen.cycle, claim, "given up"))
            raise
        finally:
            claim.drop()

    async def _compact_now(
        self, seen: SessionFacts, decision: Decision, settings: CompactionSettings, window: int | None
    ) -> GuardAnswer:
        beside: Beside = {"system": self.system, "tools": self.tools or ()}
        try:
            result = await self.session.compact(
                self.summarizer,
                mode=self.mode,
                settings=settings,
                instructions=decision.instructions,
                window=window,
                system=self.system,
                tools=self.tools,
                aligned=await self._sending.is_whole(self.session, decision.agent, **beside),
                before_compaction=self._hook_for(decision),
            )
        except (SummaryFailed, ModelError) as error:
            return await self._failed(seen, decision, error)
        if result.reason in ("leaf_moved", "compacted_meanwhile", "redacted_meanwhile"):
            await self._finish(seen.cycle, lambda state: state, f"nothing was appended: {result.reason}")
            return GuardAnswer("overtaken", decision, result)
        if result.reason == "cancelled":
            why = f"{result.notes[-1]}; {decision.reason}"
            # A request that was denied is met: it would be asked for again before every call.
            await self._finish(seen.cycle, lambda state: replace(state, wanted=None), why)
            return GuardAnswer("cancelled", decision, result)
        return await self._done(decision, result)

    def _hook_for(self, decision: Decision) -> BeforeCompaction | None:
        """Return the hook, as it is asked about a decision."""
        hook = self.before_compaction
        if hook is None:
            return None
        return lambda about: hook(replace(about, trigger=decision.trigger, reason=decision.reason))

    async def _failed(self, seen: SessionFacts, decision: Decision, error: FlueError) -> GuardAnswer:
        cause = f"{error}" if error.__cause__ is None else f"{error} ({error.__cause__})"
        left = await self._finish(seen.cycle, GuardState.with_failure, f"failed: {cause}; {decision.reason}")
        if left.state.failures == self.triggers.max_failures:
            why = f"{left.state.failures} compactions failed in a row: no more until one on demand succeeds"
            await self._note(seen, lambda now: now.with_told("breaker"), why)
        return GuardAnswer("failed", decision, error=error)

    async def _done(self, decision: Decision, result: CompactionResult) -> GuardAnswer:
        share = result.tokens_freed / max(1, result.tokens_before)
        is_little = result.appended is None or share < self.triggers.least_freed
        after = await self._session_facts()
        if result.appended is None:
            why = f"nothing was appended: {result.reason}; {decision.reason}"
        else:
            words = f"{result.tokens_before:,} -> {result.tokens_after:,} tokens ({result.counter})"
            how = "compacted by a hook" if result.from_hook else "compacted"
            why = f"{how}, {words}, {share:.1%} freed; {decision.reason}"
        done = GuardState.with_attempt if result.appended is None else GuardState.with_success
        await self._finish(after.cycle, lambda state: done(state, after.size.tokens, share), why)
        return GuardAnswer("too_little" if is_little else "compacted", decision, result)

    def _room(self, seen: SessionFacts, overflow: ContextOverflow | None) -> int | None:
        """Return how many tokens a request may take by our own count, the answer included; None if unknown."""
        size, windows = seen.size, [] if self.window is None else [self.window]
        # Beside the kept part of a large window, a compaction would be due again at once.
        windows += [window_above(self.settings, most) for most in self.triggers.sizes]
        if overflow is not None:
            # The provider counts otherwise than we do: its number for the window is put into our tokens.
            windows.append(size.tokens)
            if overflow.window:
                windows.append(overflow.window)
            if overflow.window and overflow.tokens:
                windows.append(overflow.window * size.tokens // overflow.tokens)
        return max(1, min(windows)) if windows else None

    async def _sizes(
        self, seen: SessionFacts, decision: Decision, overflow: ContextOverflow | None
    ) -> CompactionSettings:
        settings = self._asked_for if decision.trigger == "demand" else self.settings
        settings = settings if settings.enabled else replace(settings, enabled=True)
        if overflow is not None and (self._is_too_much(seen, overflow) or await self._is_broken(seen)):
            settings = replace(settings, prefer_deterministic=True)
        if decision.keep_turns is None:
            return settings
        pinned = await self.session.marks.pins()
        start = last_turns([part_of(item.entry) for item in seen.items], decision.keep_turns)
        messages = sum(item.entry_id not in pinned for item in seen.items[start:])
        return replace(settings, keep_recent_messages=max(messages, 1), keep_recent_tokens=sys.maxsize)

    def _is_too_much(self, seen: SessionFacts, overflow: ContextOverflow) -> bool:
        """Return whether a context that has overflowed is more than the summarizer takes, or nobody knows.

        A call that failed already should not wait for another that may fail for the same reason.
        """
        summarizer, model = self.summarizer, self.model
        if summarizer is None:
            return True
        if model is not None and (summarizer.name, summarizer.provider) == (model.name, model.provider):
            return True
        window = summarizer.context_window
        tokens = max(seen.size.tokens, overflow.tokens or 0)
        return window is None or should_compact(tokens, window, sized_for(self.settings, window))

    async def _is_broken(self, seen: SessionFacts) -> bool:
        """Return whether so many compactions have failed in a row that no model is asked for one."""
        failures = (await self._memory.read(seen.cycle)).state.failures
        return 0 < self.triggers.max_failures <= failures

    async def _claim(self, seen: SessionFacts, decision: Decision) -> Claim | None:
        """Claim the session, and return the claim; None if somebody else has it."""
        claim = Claim.make(self.session.id, seen.cycle or "", self._memory.now())

        def take(now: Remembered) -> tuple[Remembered, str] | None:
            return None if now.claim is not None else (replace(now, claim=claim), f"compacting: {decision.reason}")

        try:
            taken = (await self._memory.change(seen.cycle, take)).claim
        except BaseException:
            claim.drop()
            raise
        if taken == claim:
            return claim
        claim.drop()
        return None

    async def _finish(self, cycle: str | None, change: Callable[[GuardState], GuardState], why: str) -> Remembered:
        """Write down the outcome of a compaction, and let go of the session."""
        return await self._memory.change(cycle, lambda now: (Remembered(change(now.state), None), why))

    async def _release(self, cycle: str | None, claim: Claim, why: str) -> None:
        def without(now: Remembered) -> tuple[Remembered, str] | None:
            # The claim may have been renewed.
            is_stored = now.claim is not None and now.claim.token == claim.token
            return (replace(now, claim=None), why) if is_stored else None

        await self._memory.change(cycle, without)


def _failed(answer: Entry) -> bool:
    return answer.fields.get("stopReason") in ("error", "aborted")


def check_parts(store: object, session: object, *, is_optional: bool = False) -> None:
    """Raise `InvalidArgument` if these are not an open store and a session, or None where that ``is_optional``."""
    if not isinstance(store, Store):
        raise InvalidArgument(f"store: {shown(store)} is not an open store; flue_py.open gives one")
    if not isinstance(session, Session) and not (is_optional and session is None):
        raise InvalidArgument(f"session: {shown(session)} is not a session; a store opens one")


def _check_agent(agent: object) -> None:
    if not isinstance(agent, str):
        raise InvalidArgument(f'agent: {shown(agent)} is not the name of an agent; names are texts, "" stands for all')
    handle.checked_text(agent, "agent")


def _checked_triggers(triggers: TriggerSettings | None, settings: CompactionSettings) -> TriggerSettings:
    if triggers is None:
        return TriggerSettings()
    if not isinstance(triggers, TriggerSettings):
        raise InvalidArgument(f"triggers: should be TriggerSettings, not {shown(triggers)}")
    off = "triggers.auto" if not triggers.auto else "" if settings.enabled else "settings.enabled"
    budgets = (triggers.budget, *triggers.agent_budgets.values())
    if off and (most := max(budget.cutover_at for budget in budgets)):
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
