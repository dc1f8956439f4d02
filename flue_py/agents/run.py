"""A run of several agents in one session: who is next, turn by turn, until it is complete, stopped or paused.

    report = await Run(store, config, session, folder=Path.cwd()).go()

Every step is stored before it has effects, and each turn ends with an entry that says who is next: a run that is
killed at any moment goes on there, in any process, also with another configuration.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

# The first import names the extra if the framework is missing.
from flue_py.agents.recorded import Recorded

# isort: split
from msgspec import ValidationError, convert, to_builtins
from msgspec.structs import replace
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models import Model, infer_model

from flue_py.adapters.pydantic_ai_messages import extra_of
from flue_py.agents.config import AgentConfig, Contract, RunConfig, State, functions
from flue_py.agents.defaults import RUN_OFFLOAD, guard_of, note_event, tell_answer
from flue_py.compaction.modes import Contract as ContractCheck
from flue_py.compaction.modes import Verdict, why_broken
from flue_py.compaction.settings import input_tokens
from flue_py.context.settings import AgentContext, ContextSettings
from flue_py.core.entries import Entry
from flue_py.core.json import Frozen
from flue_py.core.kinds import MESSAGE, is_answer, message_text, parts_of
from flue_py.core.ledger import UsageReport
from flue_py.core.model import Model as Summarizer
from flue_py.core.usage import picodollars_to_usd
from flue_py.errors import BudgetExceeded, ContextOverflow, FlueError, InvalidArgument, InvalidEntry, SessionExists
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

TURN = "agents.turn"
"""The kind of the entry that ends the turn of an agent, and says who is next."""

HUMAN = "Human"

RUN_METADATA: Mapping[str, bool] = {"run": True}
"""The metadata by which sessions of runs are listed."""

HITL_PROMPT = "[HITL] Press Enter to continue, type a message to inject it, or 'q' to quit: "
FOLLOW_UP_PROMPT = "[HITL] The run is complete. Press Enter to exit, or type a message to go on: "
STUCK_PROMPT = "[HITL] Press Enter to pause, or type a message to redirect: "

Outcome: TypeAlias = Literal[
    "complete", "tokens", "cost", "budget", "paused", "context_exceeded", "rate_limited", "refused", "failed"
]
"""How a run ended: ``complete``; stopped before a turn by ``tokens``, ``cost`` or a ``budget``; ``paused`` by a person;
or in a turn, which the next run goes on with: ``context_exceeded``, ``rate_limited``, ``refused`` by the provider, or
``failed``."""

_LONGEST_WAIT, _WAIT_BESIDE = 300.0, 2.0
_MOST_ERROR = 800
_BLOCKED_TURNS = 3


class Position(Frozen, rename="camel", omit_defaults=True):
    """Where a run stands after a turn: how many there were, whose it was, and who is next in which state.

    ``is_complete`` says why it is over, ``blocked`` why a contract has it stay in its state, and for how many turns.
    """

    turn: int = 0
    agent: str = ""
    next: str = ""
    state: str = ""
    is_complete: str = ""
    blocked: str = ""
    blocked_turns: int = 0


class RunReport(Frozen):
    """The end of a run: its session, the outcome with its reason, the turns of the session, the usage of its agents.

    ``failed_contracts`` are those that do not hold now, with the reason; ``error`` is what ended a turn.
    """

    session_id: str
    outcome: Outcome
    reason: str
    turns: int
    usage: UsageReport
    failed_contracts: tuple[tuple[str, str], ...] = ()
    error: Exception | None = None


class _Stop(Exception):
    """The end of a run before it is complete."""

    def __init__(self, outcome: Outcome, reason: str, error: Exception | None = None) -> None:
        self.outcome: Outcome = outcome
        self.reason = reason
        self.error = error
        super().__init__(reason)


def check(config: RunConfig, model_of: Callable[[str], Model] = infer_model) -> None:
    """Import the functions of a configuration and open its models, as a run does, and send nothing.

    Raises `InvalidArgument` for functions that cannot be imported, and the errors of ``model_of``.
    """
    contracts = [contract.function for contract in config.contracts.values()]
    tools = [reference for agent in config.agents for reference in agent.tools]
    functions(filter(None, [config.selection.function, *contracts, *tools]))
    for agent in config.agents:
        model_of(agent.model.model_id)


class Run:
    """A run in a session, which has the task as its first message.

    ``model_of`` returns the model of a name, by default pydantic-ai's; ``summarizer`` writes summaries. ``tell`` is
    given lines for a person, with a style. With ``ask`` a person is asked after every turn: it takes a question, and
    returns the answer, None for none. Raises `InvalidArgument` for functions that cannot be imported.
    """

    def __init__(
        self,
        store: Store,
        config: RunConfig,
        session: Session,
        *,
        folder: Path,
        model_of: Callable[[str], Model] = infer_model,
        summarizer: Summarizer | None = None,
        tell: Callable[[str, str], object] = lambda text, style: None,
        ask: Callable[[str], Awaitable[str | None]] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.session = session
        self._store = store
        self._config = config
        self._folder = folder
        self._tell = tell
        self._ask = ask
        self._sleep = sleep
        self._position = Position()
        self._select = functions([config.selection.function] if config.selection.function else [])
        self._contracts: dict[str, ContractCheck] = {
            name: partial(_verdict, contract, folder, functions([contract.function] if contract.function else []))
            for name, contract in config.contracts.items()
        }
        self._agents = {agent.name: self._agent(agent, model_of, summarizer) for agent in config.agents}

    def _agent(
        self, agent: AgentConfig, model_of: Callable[[str], Model], summarizer: Summarizer | None
    ) -> Agent[None, str]:
        guard = guard_of(
            self._store,
            self.session,
            self._config,
            agent,
            folder=self._folder,
            summarizer=summarizer,
            state=lambda: self._position.state or None,
            contracts=self._contracts,
            on_answer=partial(tell_answer, self._tell),
        )
        recorded = Recorded(
            self._store,
            self.session,
            agent=agent.name,
            guard=lambda _: guard,
            retry_seconds=(),
            sleep=self._sleep,
            offload=RUN_OFFLOAD,
            on_unsaved=lambda error: self._tell(f"not stored yet, and kept in memory: {error}", "yellow"),
        )
        return Agent(
            model_of(agent.model.model_id),
            name=agent.name,
            instructions=agent.instructions or None,
            tools=functions(agent.tools),
            capabilities=[recorded],
        )

    async def go(self) -> RunReport:
        """Take turns until the run is complete, stopped or paused, and return how it ended.

        The session is marked as completed if it is. Raises the errors of the store, and `SessionInUse`; any other error
        of a turn is the ``error`` of the report.
        """
        outcome: Outcome = "complete"
        error: Exception | None = None
        try:
            reason = await self._turns()
            await self.session.set_completed(datetime.now(UTC), by="run", why=reason[:_MOST_ERROR])
        except _Stop as stop:
            outcome, reason, error = stop.outcome, stop.reason, stop.error
            await note_event(self.session, "run_stopped", f"{outcome}: {reason}", self._tell)
        usage = await self._store.usage(self.session, group_by=("agent",))
        failed = [(name, await why_broken(check)) for name, check in self._contracts.items()]
        broken = tuple((name, why) for name, why in failed if why is not None)
        return RunReport(self.session.id, outcome, reason, self._position.turn, usage, broken, error)

    async def _turns(self) -> str:
        """Take turns, and return why the run is complete. Raises `_Stop`."""
        while True:
            self._position, behind = _position_in(await self.session.get_active_path())
            is_new = not any(entry.kind == MESSAGE for entry in behind)
            is_over = bool(self._position.is_complete)
            if is_new and self._position.turn and self._ask is not None:
                question = FOLLOW_UP_PROMPT if is_over else HITL_PROMPT
                pauses = () if is_over else ("q", "quit")
                is_new = not await self._hear(question, pauses=pauses, goes_on=("", "y", "yes", "q", "quit"))
            if is_new and is_over:
                return self._position.is_complete
            await self._check_limits()
            state, agent = self._next(self._position)
            if agent is None:
                return f"the run has reached {state.name if state else 'its end'}"
            if is_new:
                text = f"It is your turn, {agent.name}."
                if self._position.blocked:
                    text = f"{self._position.blocked}\n\n{text}"
                await self.session.append_message({"role": "user", "content": text}, source="task")
            answer = await self._take_turn(agent)
            self._tell(f"{agent.name}: {answer}", "")
            position = await self._after(agent, state, answer)
            await self.session.append_custom(TURN, to_builtins(position))
            if position.blocked_turns >= _BLOCKED_TURNS and self._ask is not None:
                await self._redirect(position.blocked)

    # -- who is next ------------------------------------------------------------------------------------------------

    def _next(self, position: Position) -> tuple[State | None, AgentConfig | None]:
        """Return the state and the agent that are next; no agent at the end."""
        config = self._config
        if config.selection.type == "statemachine":
            state = config.selection.state(position.state)
            if position.is_complete and state.agent is None:
                # Somebody has said more behind the end.
                state = config.selection.state(None)
            return state, config.agent(state.agent)
        following = config.agent(position.next)
        if following is None and position.agent:
            following = _after(config.agents, config.agent(position.agent))
        return None, following or config.agents[0]

    async def _after(self, agent: AgentConfig, state: State | None, answer: str) -> Position:
        """Return the position after the turn of an agent, with the handoff appended that a transition has."""
        turn = self._position.turn + 1
        position = Position(turn, agent.name, state="" if state is None else state.name)
        if state is not None:
            position = await self._moved(position, state, answer)
        elif self._select:
            chosen = await self._chosen(agent, answer)
            following = self._config.agent(chosen if isinstance(chosen, str) else None)
            if chosen is not None and following is None:
                raise InvalidArgument(f"{self._config.selection.function}: there is no agent {chosen!r}")
            ended = f"{self._config.selection.function} names nobody" if following is None else ""
            position = replace(position, next=agent.name if following is None else following.name, is_complete=ended)
        else:
            position = replace(position, next=_after(self._config.agents, agent).name)
        reason = self._config.termination.reason(agent.name, answer, turn)
        return position if reason is None else replace(position, is_complete=reason)

    async def _chosen(self, agent: AgentConfig, answer: str) -> object:
        """Return what the function says that selects. Raises `_Stop` if it fails: the next run calls it again."""
        try:
            chosen = self._select[0]([each.name for each in self._config.agents], agent.name, answer)
            return await chosen if isinstance(chosen, Awaitable) else chosen
        except Exception as error:
            words = f"{self._config.selection.function}: {type(error).__name__}: {error}"[:_MOST_ERROR]
            raise _Stop("failed", words, error) from error

    async def _moved(self, position: Position, state: State, answer: str) -> Position:
        if not state.transitions:
            return replace(position, is_complete=f"state {state.name} is the last")
        blocked = ""
        for transition in state.transitions:
            if transition.signal is not None and transition.signal not in answer:
                continue
            why = None if transition.contract is None else await why_broken(self._contracts[transition.contract])
            if why is not None:
                blocked = f"Contract {transition.contract} does not hold, so that {transition.to} is not reached: {why}"
                continue
            following = self._config.selection.state(transition.to)
            if transition.handoff_context and following.agent:
                handoff = ContextSettings(agents={following.agent: AgentContext(handoff=transition.handoff_context)})
                # A run that is killed before its turn is stored comes here again.
                key = f"{self.session.id}:{position.turn}:handoff"
                append = self.session.context.append_handoff
                await append(following.agent, settings=handoff, idempotency_key=key)
            is_last = not following.transitions and not following.agent
            ended = f"state {following.name} is reached" if is_last else ""
            return replace(position, state=following.name, next=following.agent or "", is_complete=ended)
        turns = self._position.blocked_turns + 1 if blocked else 0
        return replace(position, next=state.agent or "", blocked=blocked, blocked_turns=turns)

    # -- a turn -----------------------------------------------------------------------------------------------------

    async def _take_turn(self, agent: AgentConfig) -> str:
        """Return the answer of an agent; one that is stored already is not asked for again. Raises `_Stop`."""
        while True:
            position, behind = _position_in(await self.session.get_active_path())
            messages = [entry for entry in behind if entry.kind == MESSAGE]
            if messages and _is_last_answer(messages[-1]):
                return message_text(messages[-1].fields)
            said = sum(entry.role == "user" and extra_of(entry) is None for entry in messages)
            run_id = f"{self.session.id}-{position.turn + 1}-{said}"
            try:
                result = await self._agents[agent.name].run(run_id=run_id, conversation_id=self.session.id)
            except Exception as error:  # noqa: BLE001 - models and tools raise anything
                await self._failed(error)
            else:
                return str(result.output)

    async def _failed(self, error: Exception) -> None:
        """Wait, or have a person say how to go on; otherwise raise `_Stop`, or the error of the store."""
        words = f"{type(error).__name__}: {error}"[:_MOST_ERROR]
        if isinstance(error, (ContextOverflow, BudgetExceeded)):
            outcome: Outcome = "budget" if isinstance(error, BudgetExceeded) else "context_exceeded"
            raise _Stop(outcome, words, error) from error
        if isinstance(error, FlueError):
            raise error
        status = error.status_code if isinstance(error, ModelHTTPError) else None
        if isinstance(error, ModelHTTPError) and status == 429:
            seconds = error.retry_after
            if seconds is None or seconds > _LONGEST_WAIT:
                raise _Stop("rate_limited", words, error) from error
            self._tell(f"the provider limits the rate; waiting for {seconds + _WAIT_BESIDE:g} seconds", "yellow")
            await self._sleep(seconds + _WAIT_BESIDE)
        elif status == 400 and self._ask is not None:
            await self._redirect(words)
        else:
            raise _Stop("failed" if status is None else "refused", words, error) from error

    async def _check_limits(self) -> None:
        tokens, dollars = self._config.max_total_tokens, self._config.max_cost_usd
        if not tokens and not dollars:
            return
        total = (await self._store.usage(self.session)).total
        used = input_tokens(total) + total.output
        if tokens and used > tokens:
            raise _Stop("tokens", f"MaxTotalTokens: {used:,} tokens are more than {tokens:,}")
        if dollars and picodollars_to_usd(total.picodollars) > dollars:
            cost = picodollars_to_usd(total.picodollars)
            raise _Stop("cost", f"MaxCostUsd: {cost} dollars are more than {dollars}")
        if dollars and total.unpriced_calls:
            self._tell(f"{total.unpriced_calls} calls have no known price, and do not count for MaxCostUsd", "yellow")

    # -- a person ---------------------------------------------------------------------------------------------------

    async def _redirect(self, words: str) -> None:
        self._tell(words, "yellow")
        await self._hear(STUCK_PROMPT, pauses=("", "q", "quit"), goes_on=())

    async def _hear(self, question: str, *, pauses: Sequence[str], goes_on: Sequence[str]) -> bool:
        """Ask a person, and return whether something was said, which is stored. Raises `_Stop` for a pause."""
        assert self._ask is not None
        await note_event(self.session, "question", question, self._tell)
        answer = await self._ask(question)
        text = "q" if answer is None else answer.strip()
        if text.casefold() in pauses:
            raise _Stop("paused", "a person has paused the run" if answer is not None else "nobody has answered")
        if text.casefold() in goes_on:
            return False
        await say(self.session, text)
        return True


async def begin(store: Store, task: str, *, folder: Path, config_path: str | None = None) -> Session:
    """Return a new session for a run, with its task as the first message. Raises `InvalidEntry` for an empty task."""
    if not task.strip():
        raise InvalidEntry("task: it is empty, and nothing was begun")
    while True:
        with suppress(SessionExists):
            session_id = secrets.token_hex(4)
            async with store.atomic() as batch:
                new = batch.create_session(
                    id=session_id, metadata={**RUN_METADATA}, cwd=str(folder), config_path=config_path
                )
                batch.append_message(new, {"role": "user", "content": task}, source="prompt")
            return await store.find_session(session_id)


async def say(session: Session, text: str) -> None:
    """Append the words of a person to a run, which goes on with them, in any process, also if it was complete.

    Raises `InvalidEntry` for words that are empty.
    """
    if not text.strip():
        raise InvalidEntry("task: it is empty, and nothing was said")
    await session.append_message({"role": "user", "content": text, "agentName": HUMAN}, source="prompt")
    await session.set_completed(None)


def _position_in(path: Sequence[Entry]) -> tuple[Position, Sequence[Entry]]:
    """Return where a run stands at the end of a path, and the entries since then."""
    at = max((number for number, entry in enumerate(path) if entry.kind == TURN), default=-1)
    try:
        position = Position() if at < 0 else convert(path[at].fields, Position)
    except ValidationError as error:
        raise InvalidArgument(f"entry {path[at].id!r} is no turn of a run: {error}") from error
    return position, path[at + 1 :]


def _is_last_answer(entry: Entry) -> bool:
    fields = entry.fields
    is_whole = fields.get("stopReason") not in ("error", "aborted")
    return is_answer(entry.kind, entry.role) and is_whole and all(p.get("type") != "toolCall" for p in parts_of(fields))


def _after(agents: Sequence[AgentConfig], agent: AgentConfig | None) -> AgentConfig:
    return agents[0] if agent is None else agents[(agents.index(agent) + 1) % len(agents)]


async def _verdict(contract: Contract, folder: Path, checks: Sequence[Callable[..., object]]) -> Verdict:
    missing = [name for name in contract.files if not (folder / name).exists()]
    if missing:
        return f"there is no {', '.join(missing)}"
    for check in checks:
        verdict = check()
        if isinstance(verdict, Awaitable):
            verdict = await verdict
        if verdict is not None and verdict is not True:
            return verdict if isinstance(verdict, str) else False
    return True
