"""Estimates, in tokens, of how large a context is, and whether it is time to compact it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flue_py.compaction.content import (
    ASSISTANT,
    SUMMARIZED_ROLES,
    TOOL_RESULT,
    USER,
    Message,
    content_parts,
    string_field,
)
from flue_py.compaction.javascript import js_json
from flue_py.compaction.policy import DEFAULT_POLICY, CompactionPolicy, CompactionSettings
from flue_py.core.jsontext import JsonValue, utf16_length
from flue_py.core.kinds import COMPACTION
from flue_py.core.projection import CONTEXT_PREFIX, ContextEntry
from flue_py.core.usage_shapes import read_reported

UNITS_PER_TOKEN = 4
IMAGE_UNITS = 4_800
"""What an image in a tool result counts, in UTF-16 code units. Images in user messages count nothing."""

_FAILED = ("aborted", "error")


@dataclass(frozen=True, slots=True)
class ContextEstimate:
    """The size of a context in tokens.

    ``usage_tokens`` is what the provider counted up to and including message ``last_usage_index``,
    ``trailing_tokens`` the estimate of what follows, ``tokens`` their sum. ``last_usage_index`` is None if
    no message reports usage; everything is then estimated.
    """

    tokens: int
    usage_tokens: int
    trailing_tokens: int
    last_usage_index: int | None


def estimate_tokens(message: Message, policy: CompactionPolicy = DEFAULT_POLICY) -> int:
    """Return about how many tokens a message takes: its UTF-16 code units divided by four, rounded up.

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
    """Return how large the context was in the call that reported ``usage``.

    That is ``totalTokens``, or, if it is zero or missing, the sum of ``input``, ``output``, ``cacheRead`` and
    ``cacheWrite``; usage in a provider's own shape is read as the ledger reads it. Anything but a finite number counts
    as zero.
    """
    total = _count(usage.get("totalTokens"))
    return (
        total
        or sum(_count(usage.get(name)) for name in ("input", "output", "cacheRead", "cacheWrite"))
        or read_reported(usage).totals.tokens
    )


def _count(value: JsonValue) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    # An integer is finite however large; asking would make a float of it.
    return int(value) if isinstance(value, int) or math.isfinite(value) else 0


def estimate_context_tokens(
    context: Sequence[Message] | Sequence[ContextEntry],
    policy: CompactionPolicy = DEFAULT_POLICY,
    *,
    usage_from: int | None = None,
) -> ContextEstimate:
    """Return the size of a context: the last reported usage plus an estimate of what follows it.

    Reports of aborted and failed assistant messages are ignored, and so are those of messages older than the latest
    compaction, which were kept by it: they are of the context before it. Pass the items of
    `Session.build_context_entries`, which say exactly which are older; plain messages are compared by ``timestamp``.
    ``usage_from`` is the index of the first message whose report counts, for a caller that knows it.
    Cost: O(messages after the last report).
    """
    if usage_from is None:
        usage_from = usage_start(context) if policy.ignore_older_usage else 0
    messages = [item.data if isinstance(item, ContextEntry) else item for item in context]
    for index in range(len(messages) - 1, usage_from - 1, -1):
        reported = _reported_tokens(messages[index])
        if reported is None or (reported == 0 and policy.ignore_zero_usage):
            continue
        trailing = sum(estimate_tokens(message, policy) for message in messages[index + 1 :])
        return ContextEstimate(reported + trailing, reported, trailing, index)
    estimated = sum(estimate_tokens(message, policy) for message in messages)
    return ContextEstimate(estimated, 0, estimated, None)


def usage_start(context: Sequence[Message] | Sequence[ContextEntry]) -> int:
    """Return the index of the first message that is newer than the latest compaction; 0 if there is none."""
    if not context:
        return 0
    first = context[0]
    if isinstance(first, ContextEntry):
        if first.kind != COMPACTION:
            return 0
        newer = (isinstance(item, ContextEntry) and item.entry.depth > first.entry.depth for item in context)
    elif _is_summary(first):
        made = first.get("timestamp")
        newer = (not isinstance(item, ContextEntry) and _is_after(item.get("timestamp"), made) for item in context)
    else:
        return 0
    return next((index for index, is_newer in enumerate(newer) if is_newer), len(context))


def _is_summary(message: Message) -> bool:
    content = message.get("content")
    if isinstance(content, (list, tuple)) and content and isinstance(content[0], Mapping):
        content = content[0].get("text")
    return message.get("role") == USER and isinstance(content, str) and content.startswith(f"{CONTEXT_PREFIX}\n")


def _is_after(moment: JsonValue, other: JsonValue) -> bool:
    if not isinstance(moment, (int, float)) or not isinstance(other, (int, float)):
        return False
    return moment > other


def _reported_tokens(message: Message) -> int | None:
    if message.get("role") != ASSISTANT or message.get("stopReason") in _FAILED:
        return None
    usage = message.get("usage")
    return calculate_context_tokens(usage) if isinstance(usage, Mapping) else None


def should_compact(context_tokens: int, context_window: int, settings: CompactionSettings) -> bool:
    """Return whether a context is large enough to compact: above the window minus the reserve.

    Never when compaction is off, nor when the window is zero or negative, which stands for unknown.
    """
    if not settings.enabled or context_window <= 0:
        return False
    return context_tokens > context_window - settings.reserve_tokens
