"""What the model says between two results of tools in a Codex rollout, and the tokens it took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from flue_py.core.calls import PaidCall, call_of
from flue_py.core.ids import call_id
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import COMPACTION, MESSAGE
from flue_py.core.usage_shapes import read_reported, read_usage
from flue_py.formats.codex.rows import CodexRow
from flue_py.formats.kit.encoding import Content, with_call
from flue_py.formats.kit.rows import Notes
from flue_py.formats.kit.values import read_moment
from flue_py.wire.codex_items import (
    TOKEN_KINDS,
    Counts,
    counted_usage,
    is_call,
    message_fields,
    spoken_parts,
    total_usage,
)

_NOTHING: Counts = (None,) * len(TOKEN_KINDS)


@dataclass(slots=True)
class Step:
    """What the model says between two results of tools, while more may come, and the rows behind it."""

    items: list[CodexRow] = field(default_factory=list)
    counts: list[CodexRow] = field(default_factory=list)
    pending: list[CodexRow] = field(default_factory=list)
    used: Counts = _NOTHING
    has_message: bool = False
    owed_since: CodexRow | None = None
    """The count before it that it pays for, too; the first, if there are several."""

    @property
    def begins(self) -> CodexRow:
        """The row that stands first in the file, of the counts that it pays for and what was said."""
        return self.owed_since or self.items[0]

    @property
    def rows(self) -> list[CodexRow]:
        """The rows that make the entry."""
        return sorted([*self.items, *self.counts], key=lambda row: row.line)

    @property
    def is_answer(self) -> bool:
        """Whether it reads like a whole answer: a message, and no call."""
        return self.items[-1].kind == "message" and not any(is_call(row.payload) for row in self.items)

    def message(self, provider: str, model: str | None) -> JsonObject:
        """Return it as a message."""
        items = [row.payload for row in self.items]
        content: list[JsonValue] = [part for item in items for part in spoken_parts(item)]
        message: JsonObject = {"role": "assistant", "content": content, "api": "openai-responses"}
        message["provider"] = provider
        if model is not None:
            message["model"] = model
        message["stopReason"] = "toolUse" if any(is_call(row.payload) for row in self.items) else "stop"
        for item in items:
            if item.get("type") == "message":
                message |= message_fields(item)
        if any(self.used):
            message["usage"] = counted_usage(self.used)
        return message


class TokenCounts:
    """The counts of tokens of a rollout: each tells those of the whole session, and most come twice."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._counted: Counts = _NOTHING
        self._owed: Counts = _NOTHING
        self.owed_since: CodexRow | None = None
        """The first count that no message was there for, while that is owed."""

        self.context_tokens = 0
        """How many tokens the last call had in all."""

    def take_owed(self) -> Counts:
        """Return what was counted while no message was there to count it for, and owe it no longer."""
        owed, self._owed, self.owed_since = self._owed, _NOTHING, None
        return owed

    def read(self, row: CodexRow, step: Step | None) -> None:
        """Count what the total has grown by: for the message before, or else for the next one."""
        total = total_usage(row.payload)
        last = total_usage(row.payload, "last_token_usage")
        if last is not None:
            self.context_tokens = last[4] or 0
        if total is None:
            self._notes.left_out["reports no tokens"] += 1
            return
        grown = self._growth(row, total, last)
        # A kind that one count leaves out has not begun anew.
        self._counted = tuple(before if now is None else now for now, before in zip(total, self._counted, strict=True))
        if not any(grown):
            self._notes.left_out["repeats a count of tokens"] += 1
            return
        self._notes.merged += 1
        if step is None:
            self._owed = _sum(self._owed, grown)
            self.owed_since = self.owed_since or row
        else:
            step.used = _sum(step.used, grown)
            step.counts.append(row)

    def _growth(self, row: CodexRow, total: Counts, last: Counts | None) -> Counts:
        grown = tuple(
            None if now is None else now - (before or 0) for now, before in zip(total, self._counted, strict=True)
        )
        if all(count is None or count >= 0 for count in grown):
            return grown
        if (grown[4] or 0) >= 0:
            return tuple(None if count is None else max(0, count) for count in grown)
        self._notes.repair(row.line, "the count of tokens began anew; what it reports of itself was counted")
        return last or total

    def unsettled(self, used: Counts, row: CodexRow, call_id: str, provider: str, model: str | None) -> PaidCall:
        """Return the call for tokens whose entry is not complete yet."""
        reported = read_reported(counted_usage(used))
        call = call_of(reported, provider=provider, model=model, call_id=call_id)
        return replace(call, at_us=read_moment(row.timestamp))

    def paid(self, step: Step, content: Content, provider: str, model: str | None) -> Content:
        """Return the message of a step with the call that was paid for it, where it was counted."""
        if content.kind != MESSAGE or not any(content.usage):
            return content
        return self._with_call(content, counted_usage(step.used), step.rows[-1].line, provider, model, "turn")

    def compaction(
        self,
        row: CodexRow,
        custom: Callable[[JsonObject], Content],
        fields: JsonObject,
        provider: str,
        model: str | None,
    ) -> Content:
        """Return a compaction with the call that made its summary: what was counted since the last message."""
        owed = self.take_owed()
        if not any(owed):
            return custom(fields)
        usage = counted_usage(owed)
        content = custom({**fields, "usage": usage})
        if content.kind != COMPACTION:
            return content
        content = content._replace(usage=read_usage(usage))
        return self._with_call(content, usage, row.line, provider, model, COMPACTION)

    def _with_call(
        self, content: Content, reported: JsonObject, line: int, provider: str, model: str | None, purpose: str
    ) -> Content:
        # The same call in the file of a fork is paid once: what it said and the total tell it, times do not.
        told = content.payload.encode() + repr(self._counted).encode()
        return with_call(
            content,
            reported,
            self._notes,
            line,
            provider=provider,
            model=model or "",
            call_id=call_id("codex", told),
            purpose=purpose,
        )


def _sum(one: Counts, other: Counts) -> Counts:
    return tuple(
        theirs if mine is None else mine if theirs is None else mine + theirs
        for mine, theirs in zip(one, other, strict=True)
    )
