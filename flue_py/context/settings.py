"""Settings for the requests of agents: one model, with a JSON schema.

The default settings rewrite nothing, so that a provider's cache serves as much as of the bare history.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from flue_py.context.pipeline import plain_agent, plain_name
from flue_py.core.json import JsonObject
from flue_py.errors import InvalidArgument, shown

_MOST = 2**53 - 1
"""The largest number of JSON that every reader reads exactly, far above any number of tokens."""
_MOST_PROBLEMS = 20
"""An error names so many fields that are wrong, and says how many more there are."""
_PATH_CHARS = 200

Count = Annotated[int, Field(ge=0, le=_MOST, strict=True)]
AtLeastOne = Annotated[int, Field(ge=1, le=_MOST, strict=True)]
Share = Annotated[float, Field(ge=0, le=1, strict=True)]
Name = Annotated[str, Field(min_length=1, strict=True)]
Flag = Annotated[bool, Field(strict=True)]


class SettingsModel(BaseModel):
    """Settings: frozen, with no other fields. Raises `InvalidArgument` naming each field that is wrong by its path."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **given: object) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise _wrong(type(self).__name__, error) from None

    # Pydantic calls `__init__` for a nested model too if it is not its own; the path to it would be lost.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


_READ_TOOLS = ("read_file",)
_WRITE_TOOLS = ("write_file", "patch_file")


class ContextWindow(SettingsModel):
    """The part of the history that one agent sees. The turn that is in progress is not touched.

    0 switches a number off, other than in ``max_replay_chars``. The fields are applied in their order. ``text_only``
    leaves tools out, as does ``exclude_agents``, which leaves out the answers of these agents ("Unknown" is one that
    names none). ``max_turn_age`` keeps so many turns, each with its prompt. ``max_tail_messages`` keeps so many
    messages, and corrections beside them; ``context_cap_fraction`` is the share of it from which on
    ``context_cap_warning`` is told. Both numbers keep the newest text of each block. Then calls without a result and
    results without a call are left out.

    ``max_tool_result_chars`` cuts results, ``tool_result_char_overrides`` has other limits by the tool's name, 0 for
    none. A read by ``read_tools`` is cut after 500 characters where a later call of ``write_tools`` has the same
    ``path``. ``max_replay_chars`` cuts the text of answers, after 2,000 characters where it is 0; None cuts none.
    """

    text_only: Flag = False
    exclude_agents: tuple[Name, ...] = ()
    max_turn_age: Count = 0
    max_tail_messages: Count = 0
    context_cap_fraction: Share = 0.0
    max_tool_result_chars: Count = 0
    tool_result_char_overrides: Mapping[Name, Count] = Field(default_factory=dict)
    read_tools: tuple[Name, ...] = _READ_TOOLS
    write_tools: tuple[Name, ...] = _WRITE_TOOLS
    max_replay_chars: Count | None = None

    @field_validator("tool_result_char_overrides")
    @classmethod
    def _tools_once(cls, overrides: Mapping[str, int]) -> Mapping[str, int]:
        _once(overrides, plain_name)
        return overrides


class Superseding(SettingsModel):
    """Which calls a later one makes worthless, and how much that has to free before anything is rewritten.

    Names of tools are compared without case, ``_`` and ``-``. Where ``text_chars`` and ``argument_chars`` are not 0,
    texts and unsigned reasoning of answers that call tools, and long arguments, are shortened to so many characters.
    """

    least_chars: Count = 65_536
    observing_tools: tuple[Name, ...] = (
        "read_file", "grep_file", "list_files", "list_directory", "get_file_summary", "get_file_info",
        "session_context_read", "changes_read_latest", "git_status", "git_diff",
    )  # fmt: skip
    write_tools: tuple[Name, ...] = ("write_file",)
    patch_tools: tuple[Name, ...] = ("patch_file",)
    shell_tools: tuple[Name, ...] = ("shell_run",)
    text_chars: Count = 120
    argument_chars: Count = 500


class Microcompacting(SettingsModel):
    """Old results of ``tools`` are cleared, but for the ``keep`` newest."""

    keep: Count = 5
    tools: tuple[Name, ...] = (
        "ReadFile", "EditFile", "WriteFile", "Bash", "Grep", "Glob", "WebFetch", "WebSearch", "NotebookEdit", "Read",
        "Edit", "Write",
    )  # fmt: skip


class ToolResultBudget(SettingsModel):
    """A result above ``result_chars``, and the largest of a round above ``round_chars``, leave a preview."""

    result_chars: AtLeastOne = 50_000
    round_chars: AtLeastOne = 200_000
    preview_chars: Count = 1_000


class InTurn(SettingsModel):
    """The limits of the turn in progress at every call: the last so many results in full, so many tokens; 0 is off.

    The history before the turn does not count.
    """

    max_tool_pairs: Count = 0
    max_context_tokens: Count = 0


class Fitting(SettingsModel):
    """Checks before a request is sent, which is shrunk if they, or the provider, find it too large.

    ``max_context_tokens`` bounds a quarter of the characters of system, messages and tools, ``max_payload_bytes`` an
    estimate of the bytes; 0 checks neither. ``read_tools`` and ``write_tools`` are as in `ContextWindow`.
    """

    max_context_tokens: Count = 0
    max_payload_bytes: Count = 0
    read_tools: tuple[Name, ...] = _READ_TOOLS
    write_tools: tuple[Name, ...] = _WRITE_TOOLS


class Trimming(SettingsModel):
    """The oldest turns are left out above ``max_tokens``; from ``warn_fraction`` of it on, that is told once.

    The turn of the last message of the user stays, and so does the newest text of each block.
    """

    max_tokens: AtLeastOne = 80_000
    warn_fraction: Share = 0.75


class Rewriting(SettingsModel):
    """Steps that wait for an epoch rewrite only where that has paid for itself within ``pays_within_turns`` calls.

    They do so for nothing when the last call is more than ``cold_after_seconds`` ago, and the provider's cache has
    nothing left of it; 0 stands for how long the provider of the model keeps it at least.
    """

    pays_within_turns: AtLeastOne = 10
    cold_after_seconds: Count = 0


OWN_HISTORY = "own_history"
_NEEDS = {"file": "a path", "brief_field": "the name of a field"}
_COUNTED = (OWN_HISTORY, "changes_recent")


class ContextSource(SettingsModel):
    """A source of a text for an agent; a string alone is its ``source``.

    ``source`` is ``own_history[:N]`` (the last so many answers of the agent itself), ``session_context``,
    ``changes_recent[:N]``, ``brief_field:NAME``, ``file:PATH``, or a name that the application brings, perhaps with a
    parameter behind a colon. ``label`` is the heading of its section. It is cut after ``max_chars`` characters, or with
    0 after 4,000, and the agent's own answers after 8,000.
    """

    source: Name
    label: Name | None = None
    max_chars: Count = 0

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, value: object) -> object:
        return {"source": value} if isinstance(value, str) else value

    @field_validator("source")
    @classmethod
    def _is_complete(cls, source: str) -> str:
        kind, _, parameter = (part.strip() for part in source.partition(":"))
        if not kind:
            raise PydanticCustomError("source", "a source has a name")
        if kind.casefold() in _NEEDS and not parameter:
            raise PydanticCustomError(
                "source", "{kind} needs {what} behind a colon", {"kind": kind, "what": _NEEDS[kind.casefold()]}
            )
        if kind.casefold() in _COUNTED and parameter and not re.fullmatch(r"-?[0-9]{1,9}", parameter):
            raise PydanticCustomError("source", "{kind} needs a number behind its colon, or none", {"kind": kind})
        return source

    @property
    def kind(self) -> str:
        """Which source it is, without its parameter and in small letters."""
        return self.source.partition(":")[0].strip().casefold()

    @property
    def parameter(self) -> str | None:
        """The text behind the colon, None without one."""
        _, colon, parameter = self.source.partition(":")
        return parameter.strip() if colon else None


class ContextSpec(SettingsModel):
    """The texts for an agent in place of the history: the task, then those of ``sources``.

    The task is the first message of the user, or ``task``. ``reminder`` repeats its beginning at the end of a long
    context.
    """

    sources: tuple[ContextSource, ...] = ()
    task: Name | None = None
    reminder: Flag = True

    @field_validator("sources")
    @classmethod
    def _own_history_once(cls, sources: tuple[ContextSource, ...]) -> tuple[ContextSource, ...]:
        if sum(source.kind == OWN_HISTORY for source in sources) > 1:
            raise PydanticCustomError("source", "own_history is named twice")
        return sources


class CacheBreakpoints(SettingsModel):
    """Marks for Anthropic's cache: at most ``count``, each kept for ``ttl``. Other providers need none."""

    count: Annotated[int, Field(ge=1, le=4, strict=True)] = 4
    ttl: Literal["5m", "1h"] = "5m"


class ClearToolUses(SettingsModel):
    """Anthropic clears results of tools above ``trigger_tokens``, the oldest first, but for the ``keep`` newest.

    It clears nothing unless that frees ``clear_at_least`` tokens, and never results of ``exclude_tools``; with
    ``clear_tool_inputs`` it clears the arguments of the calls, too.
    """

    trigger_tokens: AtLeastOne = 100_000
    keep: Count = 3
    clear_at_least: Count = 0
    exclude_tools: tuple[Name, ...] = ()
    clear_tool_inputs: Flag = False


class ProviderEditing(SettingsModel):
    """The edits that a provider is asked for: ``ContextRequest.extra`` has them, and ``betas``. 0 is off.

    Anthropic clears results of tools (``clear_tool_uses``), and the reasoning of all but the last
    ``keep_thinking_turns`` answers. OpenAI's Responses compacts above ``compact_tokens``. Others are asked for nothing.
    """

    clear_tool_uses: ClearToolUses | None = None
    keep_thinking_turns: Count = 0
    compact_tokens: Count = 0


class AgentContext(SettingsModel):
    """The settings for one agent. None switches a part off, which is the default of all.

    ``resume`` leaves out the halves that an interruption left, and tells how it was interrupted before the new
    prompt. Where none was appended, results that are all there are those of a round of tools.

    ``spec`` gives the agent the texts of sources in place of the history; ``window`` is passed over then.
    ``handoff`` are the sources of its text when a session goes on with it (`Session.context.append_handoff`).

    ``epoch_tokens``: steps that rewrite messages which were sent before (``superseded``, ``microcompact``, ``trim``)
    do so at epochs alone, after a compaction and whenever the context has grown by so many tokens, and a request
    begins with the bytes of the one before it in between. 0 lets them rewrite in every request.

    With ``rewriting`` an epoch that is due waits until the rewriting pays, and one begins when the cache is cold.

    ``fitting`` is for `Session.context.attempts`, which shrinks a request that does not fit.

    ``addresses`` puts the entry, or the artifact, that has the whole content behind every note about content that is
    missing.

    ``cache_breakpoints`` marks a request for Anthropic, so that its cache serves the next one the same bytes.

    ``provider_editing`` asks the provider to leave something out itself; the report estimates how much.

    ``faithful`` counts characters / 4, as the reference does, with any model, so that budgets mean the same.

    ``keep_stale_reasoning`` sends signed reasoning also behind another beginning than it was produced under: for
    a provider that does not bind the two.
    """

    resume: Flag = False
    spec: ContextSpec | None = None
    handoff: tuple[ContextSource, ...] = ()
    window: ContextWindow | None = None
    superseded: Superseding | None = None
    microcompact: Microcompacting | None = None
    tool_results: ToolResultBudget | None = None
    in_turn: InTurn | None = None
    trim: Trimming | None = None
    fitting: Fitting = Fitting()
    epoch_tokens: Count = 20_000
    rewriting: Rewriting | None = None
    addresses: Flag = True
    faithful: Flag = False
    keep_stale_reasoning: Flag = False
    cache_breakpoints: CacheBreakpoints | None = None
    provider_editing: ProviderEditing | None = None


class ContextSettings(AgentContext):
    """The settings for all agents; ``agents`` has those of one that differ, by its name in any case.

    Fields that an agent's own settings do not name are as for all.
    """

    agents: Mapping[Name, AgentContext] = Field(default_factory=dict)

    @field_validator("agents")
    @classmethod
    def _agents_once(cls, agents: Mapping[str, AgentContext]) -> Mapping[str, AgentContext]:
        _once(agents, plain_agent)
        return agents

    def of(self, agent: str | None) -> AgentContext:
        """Return the settings for an agent; None is one without a name."""
        wanted = plain_agent(agent) if agent else None
        own = next((settings for name, settings in self.agents.items() if plain_agent(name) == wanted), None)
        if own is None:
            return self
        return self.model_copy(update={name: getattr(own, name) for name in own.model_fields_set})


DEFAULT_CONTEXT = ContextSettings()
TRIMMED = ContextSettings(trim=Trimming(), faithful=True)
"""The default of a conversation: the newest turns that fit 80,000 tokens of 4 characters each, and 60,000 where
an epoch begins."""


def context_settings(settings: ContextSettings | Mapping[str, object] | None) -> ContextSettings:
    """Return settings as they are, those of a JSON object, or the default ones for None.

    Raises `InvalidArgument` naming each field that is wrong by its path.
    """
    if settings is None:
        return DEFAULT_CONTEXT
    if isinstance(settings, ContextSettings):
        return settings
    if not isinstance(settings, Mapping):
        raise InvalidArgument(f"settings: should be ContextSettings, not {shown(settings)}")
    try:
        return ContextSettings.model_validate(dict(settings))
    except ValidationError as error:
        raise _wrong("settings", error) from None


def context_schema() -> JsonObject:
    """Return the JSON schema of `ContextSettings`."""
    return ContextSettings.model_json_schema()


def _wrong(model: str, error: ValidationError) -> InvalidArgument:
    errors = error.errors(include_url=False, include_context=False)
    problems = [
        f"{_path(problem['loc']) or model}: {problem['msg']}, not {shown(problem['input'])}" for problem in errors
    ]
    ending = f"; and {len(errors) - _MOST_PROBLEMS:,} more" if len(errors) > _MOST_PROBLEMS else ""
    return InvalidArgument("; ".join(problems[:_MOST_PROBLEMS]) + ending)


def _path(location: Sequence[int | str]) -> str:
    path = ".".join(map(str, location))
    return path if len(path) <= _PATH_CHARS else f"{path[:_PATH_CHARS]}..."


def _once(names: Iterable[str], plain: Callable[[str], str]) -> None:
    """Refuse a name that is written in two ways: which of them holds would be a matter of their order."""
    met: dict[str, str] = {}
    for name in names:
        first_spelling = met.setdefault(plain(name), name)
        if first_spelling != name:
            raise PydanticCustomError(
                "same_name", "{one} and {other} are the same name", {"one": repr(first_spelling), "other": repr(name)}
            )
