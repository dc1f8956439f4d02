"""The configuration of a run of several agents: who they are, who is next, when it ends, and its limits.

One model, which a file of YAML or JSON is checked by. Its names are those of fuseraft's files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from os import PathLike, fspath
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_pascal
from pydantic_core import PydanticCustomError

from flue_py.context.settings import AtLeastOne, ContextSource, ContextWindow, Count, Flag, Name, SettingsModel, Share
from flue_py.errors import InvalidArgument, MissingExtra, shown
from flue_py.system import in_full, read_whole

_MOST_BYTES = 1_000_000
_NAMES = ConfigDict(alias_generator=to_pascal, populate_by_name=True)

Reference = Annotated[str, Field(pattern=r"^[\w.]+:\w+$", strict=True)]
"""A function of Python: ``package.module:name``."""


class _Config(SettingsModel):
    model_config = _NAMES


class WindowConfig(ContextWindow):
    """The part of the history that an agent sees, as `ContextWindow` has it."""

    model_config = _NAMES


class SourceConfig(ContextSource):
    """A source of a text, as `ContextSource` has it."""

    model_config = _NAMES


class ModelConfig(_Config):
    """A model by its name, such as ``openai:gpt-5``; a string alone is that."""

    model_id: Name

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, value: object) -> object:
        return {"model_id": value} if isinstance(value, str) else value


class AgentConfig(_Config):
    """An agent: its model, instructions and tools, and the part of the session that it is sent.

    ``context`` gives it the texts of sources in place of the history, and ``context_window`` is passed over then.
    """

    name: Name
    model: ModelConfig
    instructions: str = ""
    description: str = ""
    tools: tuple[Reference, ...] = ()
    context_window: WindowConfig | None = None
    context: tuple[SourceConfig, ...] = ()
    max_in_turn_tool_pairs: Count | None = None
    max_in_turn_context_tokens: Count = 0
    enable_memory: Flag = False


class Transition(_Config):
    """A way from a state to another: where the answer says ``signal``, and ``contract`` holds.

    ``handoff_context`` are the sources of a text that is appended before the next agent's turn.
    """

    to: Name
    signal: Name | None = None
    contract: Name | None = None
    handoff_context: tuple[SourceConfig, ...] = ()


class State(_Config):
    """A state and its agent. One without transitions is an end: the run is complete when it is reached, or after the
    turn of its agent, if it has one."""

    name: Name
    agent: Name | None = None
    transitions: tuple[Transition, ...] = ()


class Contract(_Config):
    """A condition: files that exist, and a function that returns True or None, or else False or the reason."""

    files: tuple[Name, ...] = ()
    function: Reference | None = None


class Selection(_Config):
    """Who is next: ``roundrobin`` in the order of the agents, ``statemachine``, or a ``function``.

    The function gets the names of the agents and the last one's name and answer, and returns a name, or None to end.
    """

    type: Literal["roundrobin", "statemachine", "function"] = "roundrobin"
    function: Reference | None = None
    initial: Name | None = None
    states: tuple[State, ...] = ()

    @model_validator(mode="after")
    def _is_whole(self) -> Selection:
        if (self.function is None) is (self.type == "function"):
            raise PydanticCustomError("selection", "Function goes with Type: function, and with no other")
        if bool(self.states) is not (self.type == "statemachine"):
            raise PydanticCustomError("selection", "States go with Type: statemachine, and with no other")
        names = [state.name for state in self.states]
        if len(set(names)) < len(names):
            raise PydanticCustomError("selection", "two states have the same name")
        for name in (*filter(None, [self.initial]), *(way.to for state in self.states for way in state.transitions)):
            if name not in names:
                raise PydanticCustomError("selection", "there is no state {name}", {"name": repr(name)})
        return self

    def state(self, name: str | None) -> State:
        """Return the state of a name; the initial one for None, and for a name that there is no longer."""
        by_name = {state.name: state for state in self.states}
        return by_name.get(name or "") or by_name[self.initial or self.states[0].name]


class Termination(_Config):
    """When a run is complete: by any of ``strategies``, or by the fields of this one.

    ``pattern`` is looked for in the answer of an agent (of ``agent_names``, if there are any), ``max_iterations`` is
    the number of agents' turns in the whole session.
    """

    type: Literal["regex", "maxiterations", "composite"] = "composite"
    pattern: Name | None = None
    agent_names: tuple[Name, ...] = ()
    max_iterations: Count = 0
    strategies: tuple[Termination, ...] = ()

    @field_validator("pattern")
    @classmethod
    def _is_pattern(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise PydanticCustomError("pattern", "is no regular expression: {why}", {"why": str(error)}) from error
        return pattern

    @model_validator(mode="after")
    def _is_whole(self) -> Termination:
        wanted = {"regex": self.pattern, "maxiterations": self.max_iterations, "composite": True}
        if not wanted[self.type]:
            raise PydanticCustomError("termination", "Type: {type} lacks its field", {"type": self.type})
        return self

    def all(self) -> Iterator[Termination]:
        """Yield this one, and all below it."""
        yield self
        for strategy in self.strategies:
            yield from strategy.all()

    def reason(self, agent: str, answer: str, turns: int) -> str | None:
        """Return why a run is complete after an answer; None if it is not. ``turns`` are those of the session."""
        for rule in self.all():
            if rule.max_iterations and turns >= rule.max_iterations:
                return f"MaxIterations: {turns} turns"
            if rule.pattern and (not rule.agent_names or agent in rule.agent_names) and re.search(rule.pattern, answer):
                return f"{agent} said {rule.pattern!r}"
        return None


class Compaction(_Config):
    """When and how the session is compacted. ``token_budget`` is that of mode ``window``."""

    trigger_turn_count: AtLeastOne = 50
    keep_recent_turns: AtLeastOne = 10
    mode: Literal["llm", "intent", "lossless", "hybrid", "window"] = "llm"
    token_budget: AtLeastOne = 80_000
    model: ModelConfig | None = None
    include_reasoning: Flag = True
    include_symbol_graph: Flag = True
    max_chars_per_history_message: Count = 8_000
    anti_thrash_min_savings_ratio: Share = 0.1
    anti_thrash_window: Count = 10

    @model_validator(mode="after")
    def _keeps_less(self) -> Compaction:
        if self.mode != "window" and self.trigger_turn_count <= self.keep_recent_turns:
            raise PydanticCustomError("turns", "TriggerTurnCount must be greater than KeepRecentTurns")
        return self


class Budget(_Config):
    """The input tokens of an agent since the last compaction at which to warn, and to compact; 0 is off."""

    warn_at: Count = 0
    cutover_at: Count = 0


class RunConfig(_Config):
    """The configuration of a run. Raises `InvalidArgument` naming each field that is wrong by its path.

    No turn begins once the session has used more than ``max_total_tokens``, or has cost more than ``max_cost_usd``.
    """

    name: str = ""
    agents: Annotated[tuple[AgentConfig, ...], Field(min_length=1)]
    selection: Selection = Selection()
    termination: Termination = Termination()
    contracts: Mapping[Name, Contract] = Field(default_factory=dict)
    compaction: Compaction | None = None
    context_budget: Budget = Budget()
    max_total_tokens: Count = 0
    max_cost_usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0

    @model_validator(mode="after")
    def _names_what_there_is(self) -> RunConfig:
        names = [agent.name for agent in self.agents]
        if len({name.casefold() for name in names}) < len(names):
            raise PydanticCustomError("agents", "two agents have the same name")
        states = self.selection.states
        rules = [name for rule in self.termination.all() for name in rule.agent_names]
        for name in [*rules, *(state.agent for state in states if state.agent)]:
            if name not in names:
                raise PydanticCustomError("agents", "there is no agent {name}", {"name": repr(name)})
        for state in states:
            if state.transitions and not state.agent:
                raise PydanticCustomError("states", "state {name} has no Agent", {"name": repr(state.name)})
            for way in state.transitions:
                if way.contract and way.contract not in self.contracts:
                    raise PydanticCustomError("contracts", "there is no contract {name}", {"name": repr(way.contract)})
        if self.context_budget.cutover_at and self.compaction is None:
            raise PydanticCustomError("compaction", "CutoverAt needs a section Compaction")
        if not any((self._ends(), self.max_total_tokens, self.max_cost_usd)):
            raise PydanticCustomError(
                "termination", "nothing ends this run: give Termination, a last state, MaxTotalTokens or MaxCostUsd"
            )
        return self

    def _ends(self) -> bool:
        rules = any(rule.pattern or rule.max_iterations for rule in self.termination.all())
        return rules or self.selection.type == "function" or any(not way.transitions for way in self.selection.states)

    def agent(self, name: str | None) -> AgentConfig | None:
        """Return the agent of a name in any case; None if there is none."""
        return next((agent for agent in self.agents if agent.name.casefold() == (name or "").casefold()), None)


def read_config(path: str | PathLike[str]) -> RunConfig:
    """Return the configuration in a file of YAML or JSON.

    Raises `UnreadableFile`, `InvalidArgument` naming the wrong fields, and `MissingExtra` for YAML without the extra
    ``agents``.
    """
    place = in_full(fspath(path))
    data = read_whole(Path(place), _MOST_BYTES)
    value = _parsed(data, place)
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise InvalidArgument(f"{place}: should be an object with Agents, not {shown(value)}")
    try:
        return RunConfig(**value)
    except InvalidArgument as error:
        raise InvalidArgument(f"{place}: {error}") from error


def _parsed(data: bytes, place: str) -> object:
    failures: tuple[type[Exception], ...] = (ValueError, RecursionError)
    read: Callable[[bytes], object] = json.loads
    if not place.endswith(".json"):
        try:
            import yaml  # noqa: PLC0415 - an extra's
        except ImportError as error:
            raise MissingExtra("agents", "a configuration in YAML") from error
        failures, read = (*failures, yaml.YAMLError), yaml.safe_load
    try:
        return read(data)
    except failures as error:
        raise InvalidArgument(f"{place}: {' '.join(str(error).split())}") from error


def functions(references: Iterable[str]) -> list[Callable[..., object]]:
    """Return the functions of some references. Raises `InvalidArgument` naming the one that cannot be imported."""
    return [_function(reference) for reference in references]


def _function(reference: str) -> Callable[..., object]:
    module, _, name = reference.partition(":")
    try:
        function: object = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(f"{reference}: {error}; it is looked for where Python looks for modules") from error
    except Exception as error:
        raise InvalidArgument(f"{reference}: its module raises {type(error).__name__}: {error}") from error
    if not callable(function):
        raise InvalidArgument(f"{reference}: it is no function")
    return function
