"""Shorter answers that call tools: what was thought and said on the way, and what was written."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.context.items import Item
from flue_py.context.steps.content import is_signed, is_text, is_thinking, unsigned, with_arguments
from flue_py.context.steps.notes import address
from flue_py.context.steps.protocol import Over, View
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue


@frozen
class Intermediate:
    """Cuts the text and the reasoning of answers that call tools, and puts a note in place of long arguments.

    Signed reasoning stays whole: a provider refuses one that was changed. 0 is no limit.
    """

    text_chars: int
    argument_chars: int
    addresses: bool = True
    name: str = "intermediate"
    reason: str = "said on the way to a call of a tool"
    over: Over = "all"
    at_epochs: bool = True

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items with shorter answers."""
        return [self._shorter(item) if item.calls and not item.is_pinned else item for item in items]

    def _shorter(self, item: Item) -> Item:
        message = item.message
        content = message.get("content")
        note = address(item, wanted=self.addresses)
        parts: list[JsonValue] = [self._part(part, note) for part in content] if isinstance(content, list) else []
        shorter: JsonObject = {**message, "content": parts}
        for place, part in enumerate(parts):
            if self.argument_chars and isinstance(part, dict) and part.get("type") == "toolCall":
                # A note that is longer than the argument frees nothing.
                least = max(self.argument_chars, len(_argument_note(self.argument_chars) + note))
                fewer = with_arguments(
                    shorter, place, lambda value: _argument_note(len(value)) + note, longer_than=least
                )
                shorter = shorter if fewer is None else fewer
        return item if shorter == message else item.cut(shorter)

    def _part(self, part: JsonValue, where: str) -> JsonValue:
        if not isinstance(part, dict) or not self.text_chars:
            return part
        if is_text(part):
            return _cut(part, "text", self.text_chars, "[text omitted]" + where)
        if is_thinking(part) and not is_signed(part):
            return _cut(part, "thinking", self.text_chars, "[reasoning omitted]" + where)
        return part


def _cut(part: JsonObject, field: str, limit: int, note: str) -> JsonObject:
    text = part.get(field)
    return (
        {**unsigned(part), field: text[:limit] + note}
        if isinstance(text, str) and len(text) > limit + len(note)
        else part
    )


def _argument_note(length: int) -> str:
    return f"[left out here: an argument of {length:,} characters; this note is not its value]"
