"""How large is the context, and is it time: estimates in tokens (rows C27, C28)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flue_py.compaction.content import (
    ASSISTANT,
    SUMMARIZED_ROLES,
    TOOL_RESULT,
    Message,
    content_parts,
    string_field,
)
from flue_py.compaction.javascript import js_json
from flue_py.compaction.policy import DEFAULT_POLICY, CompactionPolicy, CompactionSettings
from flue_py.core.jsontext import JsonValue, utf16_length

UNITS_PER_TOKEN = 4
IMAGE_UNITS = 4_800
"""What an image in a tool result counts, in UTF-16 code units. Images in user messages count nothing."""

_FAILED = ("aborted", "error")


@dataclass(frozen=True, slots=True)
class ContextEstimate:
    """The size of a context in tokens.

    ``usage_tokens`` is what the provider counted up to and including message ``last_usage_index``,
    ``trailing_tokens`` the estimate of what follows, ``tokens`` their sum. ``last_usage_index`` is None where
    no message reports usage; everything is then estimated.
    """

    tokens: int
    usage_tokens: int
    trailing_tokens: int
    last_usage_index: int | None


def estimate_tokens(message: Message, policy: CompactionPolicy = DEFAULT_POLICY) -> int:
    """Return about how many tokens a message takes: its UTF-16 code units by four, rounded up (row C28).

    Text, thinking, and tool calls (name and arguments as compact JSON) count their length, an image in a tool
    result `IMAGE_UNITS`; other parts and other roles count nothing. Cost: O(size of the message).
    """
    role = message.get("role")
    if role not in SUMMARIZED_ROLES:
        return 0
    units = 0
    for part in content_parts(message, policy):
        kind = part.get("type")
        if kind == "text":
            units += utf16_length(string_field(part, "text"))
        elif role == ASSISTANT and kind == "thinking":
            units += utf16_length(string_field(part, "thinking"))
        elif role == ASSISTANT and kind == "toolCall":
            units += utf16_length(string_field(part, "name"))
            if "arguments" in part:
                units += utf16_length(js_json(part["arguments"]))
        elif role == TOOL_RESULT and kind == "image":
            units += IMAGE_UNITS
    return -(-units // UNITS_PER_TOKEN)


def calculate_context_tokens(usage: Mapping[str, JsonValue]) -> int:
    """Return how large the context was in the call that reported ``usage`` (row C27).

    That is ``totalTokens``, or where it is zero or missing the sum of ``input``, ``output``, ``cacheRead`` and
    ``cacheWrite``. What is not a finite number counts zero.
    """
    total = _count(usage.get("totalTokens"))
    return total or sum(_count(usage.get(name)) for name in ("input", "output", "cacheRead", "cacheWrite"))


def _count(value: JsonValue) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    # An integer is finite however large; asking would make a float of it.
    return int(value) if isinstance(value, int) or math.isfinite(value) else 0


def estimate_context_tokens(
    messages: Sequence[Message], policy: CompactionPolicy = DEFAULT_POLICY, *, usage_from: int = 0
) -> ContextEstimate:
    """Return the size of a context: the last reported usage plus an estimate of what follows it (row C27).

    Aborted and failed assistant messages report nothing. ``usage_from`` is the index of the first message
    whose report is believed: a message kept by a compaction reports the context from before it, so a caller
    that knows where the kept part ends can pass that (row C35). Cost: O(messages after the last report).
    """
    for index in range(len(messages) - 1, usage_from - 1, -1):
        reported = _reported_tokens(messages[index])
        if reported is None or (reported == 0 and policy.ignore_zero_usage):
            continue
        trailing = sum(estimate_tokens(message, policy) for message in messages[index + 1 :])
        return ContextEstimate(reported + trailing, reported, trailing, index)
    estimated = sum(estimate_tokens(message, policy) for message in messages)
    return ContextEstimate(estimated, 0, estimated, None)


def _reported_tokens(message: Message) -> int | None:
    if message.get("role") != ASSISTANT or message.get("stopReason") in _FAILED:
        return None
    usage = message.get("usage")
    return calculate_context_tokens(usage) if isinstance(usage, Mapping) else None


def should_compact(context_tokens: int, context_window: int, settings: CompactionSettings) -> bool:
    """Return whether a context is large enough to compact: above the window minus the reserve (row C27).

    Never when compaction is off, nor when the window is zero or negative, which stands for unknown.
    """
    if not settings.enabled or context_window <= 0:
        return False
    return context_tokens > context_window - settings.reserve_tokens
