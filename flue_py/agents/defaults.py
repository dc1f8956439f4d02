"""The values that fuseraft documents for its runs, and the settings of a configuration over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import TypedDict

from msgspec.structs import replace

from flue_py.agents.config import AgentConfig, Compaction, RunConfig
from flue_py.agents.guard import CompactionGuard, GuardAnswer
from flue_py.compaction.modes import Contract, Hybrid, Lossless, Mode
from flue_py.compaction.settings import CompactionSettings, ContextBudget, TriggerSettings
from flue_py.context.artifacts import OffloadSettings
from flue_py.context.blocks import Block, Gitignore, LocalMemory, RuntimeEnvironment
from flue_py.context.settings import AgentContext, ContextSettings, ContextSpec, ContextWindow, InTurn, Trimming
from flue_py.core.model import Model
from flue_py.core.operations import NoteType, why_of
from flue_py.errors import FlueError
from flue_py.render.lines import one_line
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store


class RunDefaults(TypedDict):
    """Parameters of `CompactionGuard`."""

    settings: CompactionSettings
    triggers: TriggerSettings
    context: ContextSettings
    stop_over_budget: bool


RUN_DEFAULTS: RunDefaults = {
    "settings": CompactionSettings(
        summary_form="turns", on_failure="mark", include_reasoning=True, include_symbols=True, include_files=True
    ),
    "triggers": TriggerSettings(trigger_turns=50, keep_recent_turns=10, least_share=0.0),
    "context": ContextSettings(
        window=ContextWindow(max_replay_chars=0), in_turn=InTurn(max_tool_pairs=12), faithful=True
    ),
    "stop_over_budget": True,
}
"""For ``CompactionGuard(store, session, model, **RUN_DEFAULTS)``: a compaction after 50 turns, of which 10 stay;
summaries by turns, and a marker in place of one that failed; excerpts of reasoning and symbols before it, and files
that were read behind it; mode ``window`` leaves 80,000 tokens; answers cut after 2,000 characters where they are sent
again, and in the turn in progress the last 12 results of tools in full; no turn once the ledger has more than a budget
allows. Only ``thrash_window`` holds fruitless compactions back."""

RUN_OFFLOAD = OffloadSettings(above=40_000)
"""For ``offload=``: the results of tools that are stored beside the conversation."""

REPL_CONTEXT = ContextSettings(trim=Trimming(), faithful=True, epoch_tokens=0)
"""For ``Conversation(store, session, context=REPL_CONTEXT)``: the turns that fit 80,000 tokens are sent anew
in every request; without it that waits for epochs, and the messages sent stay in the provider's cache."""


def run_blocks(
    store: Store, *, folder: str | PathLike[str] | None = None, space: str = "repl", project: str = ""
) -> tuple[Block, ...]:
    """Return the blocks that nobody has to configure: the environment, the ``.gitignore``, and what is remembered.

    ``folder`` is where the agent works, by default the process; ``space`` and ``project`` are those of its memories.
    """
    cwd = None if folder is None else fspath(folder)
    return (RuntimeEnvironment(cwd=cwd), Gitignore(folder), LocalMemory(store, space=space, project=project))


# ---------------------------------------------------------------------------------------------------------------------
# The settings of a configuration over `RUN_DEFAULTS`: the guard of an agent in a run.

_MODEL_MODES = ("llm", "hybrid")


def needs_summarizer(config: RunConfig) -> str | None:
    """Return the name of the model that writes summaries, by default the first agent's; None if none is asked."""
    compaction = config.compaction
    if compaction is None or compaction.mode not in _MODEL_MODES:
        return None
    return (compaction.model or config.agents[0].model).model_id


def guard_of(
    store: Store,
    session: Session,
    config: RunConfig,
    agent: AgentConfig,
    *,
    folder: Path,
    summarizer: Model | None,
    state: Callable[[], str | None],
    contracts: Mapping[str, Contract],
    on_answer: Callable[[GuardAnswer], object],
) -> CompactionGuard:
    """Return the guard of an agent's calls. Without a section Compaction nothing is compacted.

    ``state`` and ``contracts`` are those of the state machine, for the modes ``lossless`` and ``hybrid``.
    """
    compaction = config.compaction
    budget = ContextBudget(warn_at=config.context_budget.warn_at, cutover_at=config.context_budget.cutover_at)
    settings, triggers = RUN_DEFAULTS["settings"], TriggerSettings(auto=False, budget=budget)
    mode: str | Mode = "intent"
    if compaction is not None:
        settings, triggers = _settings(compaction), _triggers(compaction, budget)
        lossless = Lossless(state=state, contracts=contracts)
        named: dict[str, Mode] = {"lossless": lossless, "hybrid": Hybrid(lossless)}
        mode = named.get(compaction.mode, compaction.mode)
    blocks = run_blocks(store, folder=folder, space=f"agents/{agent.name}")
    return CompactionGuard(
        store,
        session,
        summarizer=summarizer,
        mode=mode,
        settings=settings,
        triggers=triggers,
        context=_context(agent),
        on_answer=on_answer,
        blocks=blocks if agent.enable_memory else blocks[:-1],
    )


def _settings(compaction: Compaction) -> CompactionSettings:
    settings = replace(
        RUN_DEFAULTS["settings"],
        include_reasoning=compaction.include_reasoning,
        include_symbols=compaction.include_symbol_graph,
        max_message_chars=compaction.max_chars_per_history_message,
    )
    return replace(settings, keep_recent_tokens=compaction.token_budget) if compaction.mode == "window" else settings


def _triggers(compaction: Compaction, budget: ContextBudget) -> TriggerSettings:
    is_window = compaction.mode == "window"
    return replace(
        RUN_DEFAULTS["triggers"],
        trigger_turns=0 if is_window else compaction.trigger_turn_count,
        keep_recent_turns=compaction.keep_recent_turns,
        budget=budget,
        thrash_window=compaction.anti_thrash_window,
        thrash_share=compaction.anti_thrash_min_savings_ratio,
    )


def _context(agent: AgentConfig) -> ContextSettings:
    usual = RUN_DEFAULTS["context"]
    pairs = agent.max_in_turn_tool_pairs
    if pairs is None:
        pairs = 0 if usual.in_turn is None else usual.in_turn.max_tool_pairs
    window = agent.context_window or usual.window
    if window is not None and window.max_replay_chars is None:
        window = window.model_copy(update={"max_replay_chars": 0})
    own = AgentContext(
        spec=ContextSpec(sources=agent.context) if agent.context else None,
        window=window,
        in_turn=InTurn(max_tool_pairs=pairs, max_context_tokens=agent.max_in_turn_context_tokens),
        faithful=usual.faithful,
    )
    return ContextSettings(agents={agent.name: own})


def tell_answer(tell: Callable[[str, str], object], answer: GuardAnswer) -> None:
    """Tell a person of the answer of a guard, as a line and its style; most are not worth a word."""
    if answer.outcome in ("warned", "failed"):
        tell(f"{answer.outcome}: {answer.decision.reason}", "yellow")
    elif answer.outcome == "compacted":
        tell(f"compacted: {answer.decision.reason}", "dim")


async def note_event(session: Session, event: NoteType, text: str, tell: Callable[[str, str], object]) -> None:
    """Note a command or the like as an event of a session. One transaction.

    It is no reason for anything to end: the person is told if it cannot be stored.
    """
    why = why_of(event, one_line(text))
    try:
        await session.set_metadata({}, merge=True, why=why)
    except FlueError as error:
        tell(f"not in the log: {why}: {error}", "yellow")
