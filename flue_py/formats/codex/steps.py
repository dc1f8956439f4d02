"""What the model says between two results of tools in a Codex rollout, and the tokens it took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from flue_py.core.calls import PaidCall, call_of
from flue_py.core.ids import call_id
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import COMPACTION, MESSAGE
from flue_py.core.usage_shapes import read_reported, read_usage
from flue_py.formats.codex.rows import USAGE_RECORD, CodexRow
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
    token_counts,
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
    """What a rollout says that calls took: totals of the whole session, most of them twice, and records of calls."""

    def __init__(self, notes: Notes, *, goes_on: bool = False, way: str = "") -> None:
        self._notes = notes
        self._goes_on = goes_on
        self._way = way
        self._counted: Counts = _NOTHING
        self._owed: Counts = _NOTHING
        self._by_records: Counts = _NOTHING
        self._by_totals: Counts = _NOTHING
        self.owed_since: CodexRow | None = None
        """The first count that no message was there for, while that is owed."""

        self.context_tokens = 0
        """How many tokens the last call had in all."""

    def forget_total(self) -> None:
        """Take the next total for the first one: the calls before it are missing."""
        self._counted = self._by_records = self._by_totals = _NOTHING

    def take_owed(self) -> Counts:
        """Return what was counted while no message was there to count it for, and owe it no longer."""
        owed, self._owed, self.owed_since = self._owed, _NOTHING, None
        self._by_totals = _NOTHING
        return owed

    def read(self, row: CodexRow, step: Step | None) -> None:
        """Count what a row reports and no row before it: for the message before, or else for the next one."""
        reported = self._of_record(row) if row.type == USAGE_RECORD else self._of_total(row)
        if reported is None:
            return
        if not any(reported):
            self._notes.left_out["repeats a count of tokens"] += 1
            if step is not None and step.counts and step.counts[-1].type == USAGE_RECORD != row.type:
                # The entry keeps the id that it had before records were read, from the first total behind it.
                step.counts.append(row)
            return
        self._notes.merged += 1
        if step is None:
            self._owed = _sum(self._owed, reported)
            self.owed_since = self.owed_since or row
        else:
            step.used = _sum(step.used, reported)
            step.counts.append(row)

    def _of_record(self, row: CodexRow) -> Counts | None:
        """Return what a call took by its own record; zeros where a total has counted it, None where it is not said."""
        usage = token_counts(row.payload.get("usage"))
        if usage is None:
            self._notes.left_out["reports no tokens"] += 1
            return None
        self.context_tokens = usage[4] or 0
        by_totals, self._by_totals = self._by_totals, _NOTHING
        if any(by_totals) and not any(_without(usage, by_totals)):
            return _NOTHING
        self._by_records = _sum(self._by_records, usage)
        return usage

    def _of_total(self, row: CodexRow) -> Counts | None:
        """Return what the total has grown by and no record has counted; None where it is not said."""
        total, last = total_usage(row.payload), total_usage(row.payload, "last_token_usage")
        if total is None:
            self._notes.left_out["reports no tokens"] += 1
            return None
        if _is_refusal(row, total, self._counted):
            # The program takes the window for used up, so that the next turn is compacted first.
            self._notes.left_out["counts a refused call as a full window"] += 1
            self._counted = total
            return None
        if last is not None:
            self.context_tokens = last[4] or 0
        begins_high = not any(self._counted) and last is not None and (last[4] or 0) < (total[4] or 0)
        grown = last if begins_high and last is not None else self._growth(row, total, last)
        # A kind that one count leaves out has not begun anew.
        self._counted = tuple(before if now is None else now for now, before in zip(total, self._counted, strict=True))
        if not any(grown):
            return grown
        rest = _without(grown, self._by_records)
        self._by_records, self._by_totals = _NOTHING, rest
        if any(rest) and begins_high and not self._goes_on:
            self._notes.repair(
                row.line,
                f"the first total is {total[4]} tokens, {grown[4]} of them of the last call; those before were not "
                "counted, since no row of the file tells of their calls",
            )
        return rest

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
        # The same call in the file of a fork is paid once: what it said and the total tell it, times do not. Where a
        # thread went two ways, both may be alike, and no row of the other is repeated.
        alone = repr(self._by_records) if any(self._by_records) else ""
        told = content.payload.encode() + repr(self._counted).encode() + (alone + self._way).encode()
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


def _without(counts: Counts, booked: Counts) -> Counts:
    """Return what is left of counts without what is booked of them."""
    return tuple(None if n is None else max(0, n - (less or 0)) for n, less in zip(counts, booked, strict=True))


def _is_refusal(row: CodexRow, total: Counts, before: Counts) -> bool:
    """Return whether a total stands for a call that was refused for its length: no parts, and the whole window."""
    info = row.payload.get("info")
    window = info.get("model_context_window") if isinstance(info, dict) else None
    parts, parts_before = (counts[:4] + counts[5:] for counts in (total, before))
    return bool(total[4]) and not any(parts) and (total[4] == window or any(parts_before))
