"""Estimates, in tokens, of how large a context is, and whether it is time to compact it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flue_py.compaction.policy import DEFAULT_POLICY, CompactionPolicy, CompactionSettings
from flue_py.core.counting import calculate_context_tokens, reported_tokens, usage_start
from flue_py.core.faithful import Message, faithful_tokens
from flue_py.core.projection import ContextEntry

__all__ = [
    "ContextEstimate",
    "calculate_context_tokens",
    "estimate_context_tokens",
    "estimate_tokens",
    "should_compact",
    "usage_start",
]


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
    result 4,800; other parts and other roles count nothing. Cost: O(size of the message).
    """
    return faithful_tokens(message, read_plain_text=policy.read_plain_text)


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
    return estimate_messages(messages, policy, usage_from)


def estimate_messages(messages: Sequence[Message], policy: CompactionPolicy, usage_from: int) -> ContextEstimate:
    """Return what `estimate_context_tokens` says of messages; looks only at those from the last report on."""
    for index in range(len(messages) - 1, usage_from - 1, -1):
        reported = reported_tokens(messages[index])
        if reported is None or (reported == 0 and policy.ignore_zero_usage):
            continue
        trailing = sum(estimate_tokens(messages[at], policy) for at in range(index + 1, len(messages)))
        return ContextEstimate(reported + trailing, reported, trailing, index)
    estimated = sum(estimate_tokens(message, policy) for message in messages)
    return ContextEstimate(estimated, 0, estimated, None)


def should_compact(context_tokens: int, context_window: int, settings: CompactionSettings) -> bool:
    """Return whether a context is large enough to compact: above the window minus the reserve.

    Never when compaction is off, nor when the window is zero or negative, which stands for unknown.
    """
    if not settings.enabled or context_window <= 0:
        return False
    return context_tokens > context_window - settings.reserve_tokens
