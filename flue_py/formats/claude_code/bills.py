"""What a Claude Code transcript tells of calls that no row of it is the answer of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from flue_py.core.calls import PaidCall, call_of
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.usage import UsageTotals
from flue_py.core.usage_shapes import SUMMED, read_reported
from flue_py.errors import shown
from flue_py.formats.claude_code.answers import Answers
from flue_py.formats.claude_code.chains import Chain, Chains
from flue_py.formats.claude_code.content import usage_of
from flue_py.formats.claude_code.rows import ClaudeRow
from flue_py.formats.kit.rows import Notes, is_name
from flue_py.formats.kit.values import one_text, read_moment

_COUNTS = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens",
           "cacheCreationEphemeral1hInputTokens", "webSearchRequests")  # fmt: skip
_VARIANT = re.compile(r"\[[^\]]*\]$")
"""What ``cost-state`` puts behind the name of a model, ``[1m]`` say, and answers do not."""

_Tokens = tuple[int, ...]
_NONE: _Tokens = (0,) * len(_COUNTS)


class Bills:
    """Finds the calls that ``cost-state`` rows count beyond the answers, and those of agents in ``progress`` rows."""

    def __init__(self, notes: Notes, answers: Answers, chains: Chains) -> None:
        self._notes = notes
        self._answers = answers
        self._chains = chains
        self._before: Mapping[str, _Tokens] = {}
        self._dollars: Mapping[str, float] = {}
        self._compaction: str | None = None
        self._of_agents: dict[str, tuple[Chain, PaidCall]] = {}

    def note_compaction(self, row: ClaudeRow) -> None:
        """Remember that the program made a compaction: the calls for it have no rows."""
        self._compaction = row.uuid or str(row.line)

    def read_state(self, chain: Chain, row: ClaudeRow) -> None:
        """Book what the program has counted since the row before of this kind, and no answer in between reports."""
        reported = row.fields.get("modelUsage")
        if not isinstance(reported, dict):
            return
        state = {_VARIANT.sub("", model): _tokens(counts) for model, counts in reported.items()}
        before, self._before = self._before, state
        charged, self._dollars = self._dollars, _dollars(row, reported)
        compaction, self._compaction = self._compaction, None
        spent, is_whole = self._answers.take_spent()
        if is_whole is None:
            return  # a fork repeats the answers of another session, which pays for the rest as well
        place = compaction or str(row.line)
        name = f"{self._chains.session_id}:{place}"
        purpose = "background" if compaction is None else "compaction"
        if not is_whole or not spent.keys() <= state.keys():
            if compaction is not None:
                self._notes.repair(
                    row.line,
                    f"what the compaction {shown(place)} cost cannot be told from what agents did meanwhile; it is "
                    "booked as a call whose usage is unknown",
                )
                call = PaidCall(UsageTotals(), "anthropic", call_id=name[:200], purpose=purpose, is_unknown=True)
                chain.calls.append(replace(call, at_us=chain.last_time))
            return
        for model, tokens in state.items():
            rest = _beyond(tokens, before.get(model, _NONE), spent.get(model, _NONE))
            if any(rest):
                *kinds, for_an_hour, searches = rest
                usage: JsonObject = dict(zip(("input", "output", "cacheRead", "cacheWrite"), kinds, strict=True))
                usage["terms"] = dict((SUMMED,))
                dollars = self._dollars.get(model, -1) - charged.get(model, 0)
                if dollars >= 0 and model not in spent:
                    usage["cost"] = {"total": round(dollars, 12)}
                usage |= {"cacheWrite1h": min(for_an_hour, kinds[3])} if for_an_hour else {}
                usage |= {"server_tool_use": {"web_search_requests": searches}} if searches else {}
                call = call_of(
                    read_reported(usage),
                    provider="anthropic",
                    model=model[:160],
                    call_id=f"{name}:{model}"[:200],
                    purpose=purpose,
                )
                chain.calls.append(replace(call, at_us=chain.last_time))

    def read_progress(self, row: ClaudeRow) -> None:
        """Take down the call of an agent that a row of progress shows. The agent's own file may have it, too."""
        data = row.fields.get("data")
        shown_row = data.get("message") if isinstance(data, dict) else None
        message = shown_row.get("message") if isinstance(shown_row, dict) else None
        if not isinstance(data, dict) or not isinstance(shown_row, dict) or not isinstance(message, dict):
            return
        usage = usage_of(message.get("usage")) if shown_row.get("type") == "assistant" else None
        if usage is None or message.get("model") == "<synthetic>":
            return
        uuid, parent = shown_row.get("uuid"), shown_row.get("parentUuid")
        inner = ClaudeRow(
            row.line,
            row.raw,
            "assistant",
            {**row.fields, **shown_row},
            uuid if is_name(uuid) else None,
            parent if isinstance(parent, str) else None,
            message,
            has_message=True,
        )
        key = self._answers.key_of(inner)
        call = call_of(
            read_reported(usage),
            provider="anthropic",
            model=one_text(message.get("model"), 160) or "",
            call_id=key[:200],
            purpose="task",
        )
        at = read_moment(shown_row.get("timestamp")) or read_moment(row.fields.get("timestamp"))
        chain = self._chains.of_agent(row, data.get("agentId"))
        self._of_agents[key] = (chain, replace(call, at_us=at))

    def finish(self) -> None:
        """Book the calls of agents whose answers are not in this file."""
        for key, (chain, call) in self._of_agents.items():
            if not self._answers.has_counted(key) and any(call.usage):
                chain.calls.append(call)
        self._of_agents = {}


def _dollars(row: ClaudeRow, reported: JsonObject) -> dict[str, float]:
    """Return what the program has charged for each model, where it knows the prices of all."""
    if row.fields.get("hasUnknownModelCost") is not False:
        return {}
    costs = {name: counts.get("costUSD") for name, counts in reported.items() if isinstance(counts, dict)}
    return {_VARIANT.sub("", name): cost for name, cost in costs.items() if isinstance(cost, float)}


def _tokens(counts: JsonValue) -> _Tokens:
    fields = counts if isinstance(counts, dict) else {}
    return tuple(count if type(count := fields.get(name)) is int and count > 0 else 0 for name in _COUNTS)


def _beyond(now: _Tokens, before: _Tokens, spent: Iterable[int]) -> _Tokens:
    """Return what a count has gained beyond what was spent. One that went down was begun anew."""
    start = before if all(new >= old for new, old in zip(now, before, strict=True)) else _NONE
    return tuple(max(0, new - old - own) for new, old, own in zip(now, start, spent, strict=True))
