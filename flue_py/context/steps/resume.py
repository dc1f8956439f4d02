"""A session that was interrupted is made whole before it goes on, and how it was interrupted is told."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Literal, TypeAlias

from flue_py.context.items import Item, added
from flue_py.context.steps.content import as_parts, content_parts, is_thinking, text_parts
from flue_py.context.steps.protocol import Over, View
from flue_py.context.steps.tools import pairing_of
from flue_py.core.bound import is_signed
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject

Interruption: TypeAlias = Literal["interrupted_tool", "interrupted_prompt", "none"]
"""A tool had answered and the model had not, the user had asked and nobody had answered, or neither."""

MISSING = "Error: Tool result missing due to interrupted session."
_SUMMARY = "[Conversation Summary]"


@frozen
class Resume:
    """Leaves out what an interrupted session has half of, in this order.

    Answers none of whose calls has a result go; calls without one beside others that have get an error as their result,
    behind the last of these. Answers of reasoning alone go, then messages of white space, and messages of the same role
    that then follow each other become one.

    What was interrupted is told of what lies before this request: a prompt that comes last is the new one, and results
    that come last are those of a round of tools, so that neither is an interruption by itself.
    """

    name: str = "resume"
    reason: str = "the session was interrupted"
    over: Over = "all"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items made whole."""
        whole = _answered(items)
        whole = [item for item in whole if not _is_thought_alone(item)]
        whole = [item for item in whole if not _is_blank(item)]
        if missing := len(items) - sum(item.place is not None for item in whole):
            view.tell("recovery_filtered", f"{missing:,} messages that the interruption left without sense")
        whole = _merged(whole)
        kind = interruption_of(_before_this_request(items, whole))
        if kind != "none":
            view.tell("interrupted_turn_detected", kind)
        view.tell("session_resumed", f"{len(whole):,} messages")
        return whole


def interruption_of(items: Sequence[Item]) -> Interruption:
    """Return how a session was interrupted that ends in these messages, by the last of them."""
    if not items:
        return "none"
    last = items[-1]
    if last.is_result:
        return "interrupted_tool"
    if not last.is_user or last.is_summary or "".join(text_parts(last.message)).startswith(_SUMMARY):
        return "none"
    return "interrupted_prompt"


def _before_this_request(items: Sequence[Item], whole: Sequence[Item]) -> Sequence[Item]:
    """Return what was there before the new prompt; nothing where a round of tools goes on."""
    given, left = _without_told(items), _without_told(whole)
    if not given or not left:
        return left
    newest, last = given[-1], left[-1]
    if newest.is_result and newest.place == last.place:
        return ()
    if newest.is_user and last.made_of and last.made_of[-1].place == newest.place:
        return last.made_of[:-1]
    return _without_told(left[:-1]) if newest.is_user and newest.place == last.place else left


def _without_told(items: Sequence[Item]) -> Sequence[Item]:
    """Return the items up to the last one that is no block or note beside the conversation."""
    is_told = (item.is_user and not item.is_message and not item.is_summary for item in reversed(items))
    return items[: len(items) - sum(takewhile(bool, is_told))]


def _answered(items: Sequence[Item]) -> list[Item]:
    pairing = pairing_of(items)
    made: list[Item] = []
    behind: dict[int, list[Item]] = {}
    for at, item in enumerate(items):
        results = pairing.results_of(at)
        if results and not any(results.values()):
            continue
        if item.is_result and at in pairing.unpaired:
            continue
        made.append(item)
        last = max((place for found in results.values() for place in found), default=at)
        for call, found in results.items():
            if not found:
                part = pairing.parts[call]
                behind.setdefault(last, []).append(added(_missing(call.id, part)))
        made += behind.pop(at, ())
    return made


def _missing(call_id: str, part: JsonObject) -> JsonObject:
    return {
        "role": "toolResult",
        "toolCallId": call_id,
        "toolName": part.get("name"),
        "content": [{"type": "text", "text": MISSING}],
        "isError": True,
    }


def _is_thought_alone(item: Item) -> bool:
    parts = content_parts(item.message)
    return item.is_answer and bool(parts) and all(map(is_thinking, parts))


def _is_blank(item: Item) -> bool:
    if item.is_result or not (item.is_user or item.is_answer) or item.calls:
        return False
    content = item.message.get("content")
    if isinstance(content, str):
        return not content.strip()
    if not isinstance(content, list):
        return False
    texts = text_parts(item.message)
    return len(texts) == len(content) and not "".join(texts).strip()


def _merged(items: Sequence[Item]) -> list[Item]:
    made: list[Item] = []
    for item in items:
        before = made[-1] if made else None
        if before is None or not _are_of_one(before, item):
            made.append(item)
            continue
        parts = [*as_parts(before.message), *as_parts(item.message)]
        made[-1] = before.merged(item, {**before.message, "content": [*parts]})
    return made


def _are_of_one(one: Item, other: Item) -> bool:
    """Return whether two messages can become one.

    A summary stays apart, since a provider may have made it itself, and so does an answer with reasoning: its model
    and what it was produced under would become those of the other.
    """
    both_stored = one.is_message and other.is_message
    if not both_stored or one.role != other.role:
        return False
    return one.role == "user" or (one.is_answer and not _is_reasoned(one) and not _is_reasoned(other))


def _is_reasoned(item: Item) -> bool:
    return is_signed(item.message) or any(map(is_thinking, content_parts(item.message)))
