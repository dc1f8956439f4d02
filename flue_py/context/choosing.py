"""Which steps settings ask for, in the order in which they run."""

from __future__ import annotations

from collections.abc import Iterator

from flue_py.context.settings import AgentContext, ContextWindow, Superseding
from flue_py.context.sources.protocol import NOTHING_GATHERED, GatheredContext
from flue_py.context.steps.assembled import assembled
from flue_py.context.steps.exclude_agents import ExcludeAgents
from flue_py.context.steps.in_turn_pairs import InTurnPairs
from flue_py.context.steps.in_turn_tokens import InTurnTokens
from flue_py.context.steps.intermediate import Intermediate
from flue_py.context.steps.microcompact import Microcompact
from flue_py.context.steps.pairs import WholePairs
from flue_py.context.steps.protocol import Step
from flue_py.context.steps.replay_chars import REPLAY_CHARS, ReplayChars
from flue_py.context.steps.result_budget import ResultBudget
from flue_py.context.steps.result_chars import ResultChars
from flue_py.context.steps.resume import Resume
from flue_py.context.steps.superseded import Superseded
from flue_py.context.steps.tail import CapWarning, Tail
from flue_py.context.steps.text_only import TextOnly
from flue_py.context.steps.trim_history import TrimHistory, TrimWarning
from flue_py.context.steps.turn_age import TurnAge


def steps_of(settings: AgentContext, gathered: GatheredContext = NOTHING_GATHERED) -> list[Step]:
    """Return the steps, in their order. ``gathered`` is what the sources of ``spec`` have to say.

    What makes an interrupted session whole comes first, then the view of the history, what frees tokens, and last what
    has to fit a budget.
    """
    return [*_steps(settings, gathered)]


def _steps(settings: AgentContext, gathered: GatheredContext) -> Iterator[Step]:
    addresses = settings.addresses
    if settings.resume:
        yield Resume()
    if settings.spec is not None:
        yield assembled(settings.spec, gathered, addresses=addresses)
    elif settings.window is not None:
        yield from _window(settings.window, addresses=addresses)
    if settings.superseded is not None:
        yield from _superseding(settings.superseded, addresses=addresses)
    if (micro := settings.microcompact) is not None:
        yield Microcompact(micro.keep, micro.tools, addresses)
    if (budget := settings.tool_results) is not None:
        yield ResultBudget(budget.result_chars, budget.round_chars, budget.preview_chars, addresses)
    if (turn := settings.in_turn) is not None:
        if turn.max_tool_pairs:
            yield InTurnPairs(turn.max_tool_pairs, addresses)
        if turn.max_context_tokens:
            yield InTurnTokens(turn.max_context_tokens, addresses)
    if (trim := settings.trim) is not None:
        if trim.warn_fraction:
            yield TrimWarning(trim.max_tokens, trim.warn_fraction)
        for most, at_epochs in _budgets(trim.max_tokens, settings.epoch_tokens):
            yield TrimHistory(most, at_epochs)


def _window(window: ContextWindow, *, addresses: bool) -> Iterator[Step]:
    if window.text_only or window.exclude_agents:
        yield TextOnly()
    if window.exclude_agents:
        yield ExcludeAgents(window.exclude_agents)
    if window.max_turn_age:
        yield TurnAge(window.max_turn_age)
    if window.max_tail_messages:
        yield Tail(window.max_tail_messages)
        if window.context_cap_fraction:
            yield CapWarning(window.max_tail_messages, window.context_cap_fraction)
    yield WholePairs()
    if window.max_tool_result_chars:
        yield ResultChars(
            window.max_tool_result_chars,
            window.tool_result_char_overrides,
            window.read_tools,
            window.write_tools,
            addresses,
        )
    if window.max_replay_chars is not None:
        yield ReplayChars(window.max_replay_chars or REPLAY_CHARS, addresses)


def _superseding(superseded: Superseding, *, addresses: bool) -> Iterator[Step]:
    yield Superseded(
        superseded.least_chars,
        superseded.observing_tools,
        superseded.write_tools,
        superseded.patch_tools,
        superseded.shell_tools,
        addresses,
    )
    if superseded.text_chars or superseded.argument_chars:
        yield Intermediate(superseded.text_chars, superseded.argument_chars, addresses)


def _budgets(most: int, epoch_tokens: int) -> Iterator[tuple[int, bool]]:
    """Yield a budget for the beginning of an epoch, with room for what one adds, and then that of every request."""
    if most and epoch_tokens:
        yield max(most - epoch_tokens, most // 2), True
    if most:
        yield most, False
