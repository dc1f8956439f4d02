"""The messages of the model in a Claude Code transcript, each of several rows, and what they cost."""

from __future__ import annotations

from flue_py.core.jsontext import JsonObject
from flue_py.core.usage import UsageTotals
from flue_py.core.usage_shapes import read_reported
from flue_py.errors import InvalidEntry, shown
from flue_py.formats.claude_code.chains import REMEMBERED, Group, Node
from flue_py.formats.claude_code.content import assistant_message, tool_calls, usage_of
from flue_py.formats.claude_code.entries import Entries
from flue_py.formats.claude_code.rows import ClaudeRow
from flue_py.formats.kit.encoding import Content, message_content, with_call
from flue_py.formats.kit.rows import Notes
from flue_py.formats.kit.streaming import Recent
from flue_py.formats.kit.values import one_text

_COUNTS = ("input", "output", "cacheRead", "cacheWrite", "totalTokens")


class Answers:
    """Puts the rows of a message together, and remembers which tools were called and what was counted already."""

    def __init__(self, notes: Notes, entries: Entries) -> None:
        self._notes = notes
        self._entries = entries
        self._tools: Recent[tuple[str, Node]] = Recent(REMEMBERED)
        self._counted: Recent[UsageTotals] = Recent(REMEMBERED)

    def tool(self, call: object) -> tuple[str, Node] | None:
        """Return the name of the tool that was called, and the step that called it, where that is remembered."""
        return self._tools.get(call) if isinstance(call, str) else None

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
        return paid, extra

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
