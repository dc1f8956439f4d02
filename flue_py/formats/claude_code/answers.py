"""The messages of the model in a Claude Code transcript, each of several rows, and what they cost."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from flue_py.core.calls import PaidCall
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.usage import UsageTotals
from flue_py.core.usage_shapes import read_reported
from flue_py.errors import InvalidEntry, shown
from flue_py.formats.claude_code.chains import REMEMBERED, Chains, Group, Node
from flue_py.formats.claude_code.content import assistant_message, tool_calls, usage_of
from flue_py.formats.claude_code.entries import Entries
from flue_py.formats.claude_code.rows import ClaudeRow, message_name
from flue_py.formats.kit.encoding import Content, message_content, with_call
from flue_py.formats.kit.rows import Notes
from flue_py.formats.kit.streaming import Recent
from flue_py.formats.kit.values import one_text, read_moment

_COUNTS = ("input", "output", "cacheRead", "cacheWrite", "totalTokens")
_PROMPT_COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_OF_THE_PROVIDER = re.compile(r"msg_(bdrk_|vrtx_)?0[0-9A-Za-z]{20,}")
"""Ids of messages that no two answers have. Gateways make ids of their own, some the same one for all answers."""


@dataclass(slots=True)
class _Origin:
    """The latest answer of a name: what its rows have in common, and the rows of another answer have not."""

    key: str
    request: str | None
    time: JsonValue
    prompt: dict[str, int]

    def differs(self, request: str | None, time: JsonValue, prompt: dict[str, int]) -> bool:
        """Return whether a row is of another answer: of another request, or later and of another prompt."""
        if request is not None and self.request is not None:
            return request != self.request
        return time != self.time and any(self.prompt.get(name, count) != count for name, count in prompt.items())


_AGENT_TOOLS = frozenset({"Agent", "Task", "SendMessage"})
_ENDED = re.compile(r"<tool-use-id>([^<]*)</tool-use-id>")


class Answers:
    """Puts the rows of a message together, and remembers which tools were called and what was counted already."""

    def __init__(self, notes: Notes, entries: Entries, chains: Chains) -> None:
        self._notes = notes
        self._entries = entries
        self._chains = chains
        self._origins: Recent[_Origin] = Recent(REMEMBERED)
        self._prompts: Recent[bool] = Recent(REMEMBERED)
        self._spent: dict[str, tuple[int, ...]] = {}
        self._repeats = False
        self._agents: set[str] = set()
        self._had_agents = False
        self._tools: Recent[tuple[str, Node]] = Recent(REMEMBERED)
        self._counted: Recent[UsageTotals] = Recent(REMEMBERED)

    def tool(self, call: object) -> tuple[str, Node] | None:
        """Return the name of the tool that was called, and the step that called it, where that is remembered."""
        return self._tools.get(call) if isinstance(call, str) else None

    def note_prompt(self, uuid: str | None) -> None:
        """Remember a row that a person wrote: what names it as its parent begins an answer."""
        if uuid is not None:
            self._prompts.put(uuid, True)

    def key_of(self, row: ClaudeRow) -> str:
        """Return what tells the answer that a row is part of from all others, in this file and elsewhere."""
        name, fields, usage = message_name(row), row.fields, row.message.get("usage")
        request = next((text for key in ("requestId", "requestRef") if (text := one_text(fields.get(key)))), None)
        counts = usage if isinstance(usage, dict) else {}
        prompt = {part: count for part in _PROMPT_COUNTS if type(count := counts.get(part)) is int and count > 0}
        time, origin = fields.get("timestamp"), self._origins.get(name)
        is_new = origin is None or origin.differs(request, time, prompt)
        if origin is not None and not is_new and not (row.parent and self._prompts.get(row.parent)):
            origin.prompt.update(prompt)
            return origin.key
        is_unique = origin is None and (name == request or _OF_THE_PROVIDER.fullmatch(name) is not None)
        key = name if is_unique else f"{name}:{request or f'{time}:{sum(prompt.values())}'}"
        self._origins.put(name, _Origin(key, request, time, prompt))
        return key

    def extend(self, group: Group, row: ClaudeRow) -> None:
        """Take one more row of a message. The usage is that of the last row that reports any."""
        group.rows.append(row)
        if row.uuid is not None:
            self._entries.belongs(row.uuid, group.node)
        usage = usage_of(row.message.get("usage"))
        if usage is not None:
            dollars = row.fields.get("costUSD")
            if isinstance(dollars, (int, float)) and not isinstance(dollars, bool):
                usage["cost"] = {"total": dollars}
            group.usage = usage
        for call, name in tool_calls(row.message):
            self._tools.put(call, (name, group.node))
            if name in _AGENT_TOOLS:
                self._had_agents = True
                if len(self._agents) < REMEMBERED:
                    self._agents.add(call)

    def has_counted(self, key: str) -> bool:
        """Return whether an answer was counted."""
        return self._counted.get(key) is not None

    def take_spent(self) -> tuple[dict[str, tuple[int, ...]], bool | None]:
        """Return what answers used since this was asked last, by model, and whether nothing else was called meanwhile.

        Agents call models in files of their own. None if answers of another session were among them.
        """
        spent, self._spent = self._spent, {}
        repeats, self._repeats = self._repeats, False
        had_agents, self._had_agents = self._had_agents, bool(self._agents)
        return spent, None if repeats else not had_agents

    def end_agents(self, row: ClaudeRow) -> None:
        """Take note of agents that have ended, as their result says, or a notification of those in the background."""
        details, message = row.fields.get("toolUseResult"), row.message.get("content")
        if isinstance(message, list) and isinstance(details, dict) and details.get("status") == "completed":
            self._agents -= {str(part.get("tool_use_id")) for part in message if isinstance(part, dict)}
        text = row.fields.get("content") if row.type == "queue-operation" else None
        origin = row.fields.get("origin")
        if isinstance(origin, dict) and origin.get("kind") == "task-notification":
            text = message
        if isinstance(text, str) and text.startswith("<task-notification>") and (ended := _ENDED.search(text)):
            self._agents.discard(ended[1])

    def content(self, group: Group) -> tuple[Content, JsonObject]:
        """Return the message that the rows make together, with its paid call, and what stands beside it."""
        last = group.rows[-1]
        messages = [row.message for row in group.rows]
        before = self._counted.get(group.key)
        usage = self._own_usage(group)
        message = assistant_message(messages, usage)
        extra = self._entries.beside(group.node.chain, last)
        try:
            content = message_content(message)
        except InvalidEntry as error:
            return self._entries.unreadable(last, error, {"messages": list(messages)}), {}
        self._counted.put(group.key, content.usage if before is None else content.usage.plus(before))
        is_paid = message.get("model") != "<synthetic>"
        if usage is None:
            return content, extra
        is_nothing = read_reported(usage).is_known and not any(content.usage)
        if is_nothing or not is_paid:
            return content._replace(unpaid=True), extra
        model, call_id = one_text(message.get("model"), 160) or "", group.key[:200]
        if before is not None:
            call_id = f"{call_id}:{group.rows[0].uuid or last.line}"
        paid = with_call(content, usage, self._notes, last.line, provider="anthropic", model=model, call_id=call_id)
        asker = self._chains.asker_of(last)
        if asker is None:
            for call in paid.calls:
                used = (*call.usage[:4], call.cache_write_1h, call.searches)
                spent = self._spent.get(call.model, (0,) * len(used))
                self._spent[call.model] = tuple(sum(each) for each in zip(spent, used, strict=True))
            return paid, extra
        self._repeats = True
        asker.calls += dated(paid.calls, last)
        return content._replace(unpaid=True), extra

    def _own_usage(self, group: Group) -> JsonObject | None:
        """Return what the message used, less what was counted already for rows of it that came long before."""
        before, usage = self._counted.get(group.key), group.usage
        if before is None:
            return usage
        self._notes.repair(
            group.rows[0].line,
            f"goes on with the message {shown(group.key)} after other rows; it is an entry of its own, and what was "
            "counted before is not counted again",
        )
        if usage is None:
            return None
        read = read_reported(usage)
        own = read.totals.minus(before)
        told = {*read.told, *(("totalTokens",) if read.told else ())}
        rest: JsonObject = {name: max(0, count) for name, count in zip(_COUNTS, own[:5], strict=True) if name in told}
        for_an_hour = usage.get("cacheWrite1h")
        if isinstance(for_an_hour, int):
            rest["cacheWrite1h"] = min(for_an_hour, max(0, own.cache_write))
        return {**usage, **rest}


def dated(calls: Iterable[PaidCall], row: ClaudeRow) -> Iterable[PaidCall]:
    """Return calls that are booked without an entry, with the time of the row that reports them."""
    at = read_moment(row.fields.get("timestamp"))
    return [replace(call, at_us=at) for call in calls]
