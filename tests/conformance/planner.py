"""The planner of the reference, with its faults. docs/concepts/compaction.md says where flue_py departs from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flue_py import compaction
from flue_py.compaction import estimate_tokens as estimate_readable
from flue_py.compaction import serialize_conversation as serialize_readable

Message = Mapping[str, Any]


def readable(message: Message) -> Message:
    """Return a message as the reference reads it: a plain string has no text, unless a user wrote it."""
    is_skipped = message.get("role") != "user" and isinstance(message.get("content"), str)
    return {**message, "content": []} if is_skipped else message


def estimate_tokens(message: Message) -> int:
    return estimate_readable(readable(message))


def serialize_conversation(messages: Iterable[Message]) -> str:
    return serialize_readable([*map(readable, messages)])


def estimate_context_tokens(messages: Sequence[Message]) -> compaction.ContextEstimate:
    """Return the last report, even one of 0 tokens or from before the latest compaction, and what follows it."""
    reports = [at for at, message in enumerate(messages) if _reports(message)]
    usage = compaction.calculate_context_tokens(messages[reports[-1]]["usage"]) if reports else 0
    trailing = sum(map(estimate_tokens, messages[reports[-1] + 1 if reports else 0 :]))
    return compaction.ContextEstimate(usage + trailing, usage, trailing, reports[-1] if reports else None)


def _reports(message: Message) -> bool:
    is_whole = message.get("role") == "assistant" and message.get("stopReason") not in ("aborted", "error")
    return is_whole and isinstance(message.get("usage"), Mapping)


@dataclass(frozen=True)
class ReferencePlan:
    """The plan of the reference, with the fields that requests and summaries are made of."""

    first_kept_index: int
    is_split_turn: bool
    messages_to_summarize: Sequence[Message]
    turn_prefix: Sequence[Message]
    tokens_before: int
    previous_summary: str | None
    files: compaction.FileLists
    settings: compaction.CompactionSettings

    @property
    def carried_history(self) -> str | None:
        """The text before the summary of a split turn; the previous summary is lost."""
        return None if self.messages_to_summarize else "No prior history."


def prepare_compaction(
    messages: Sequence[Message],
    settings: compaction.CompactionSettings,
    previous: compaction.PreviousCompaction | None = None,
) -> ReferencePlan | None:
    start = previous.first_kept_index if previous else 0
    roles = [message.get("role") for message in messages]
    cuts = [at for at in range(start, len(messages)) if roles[at] in ("user", "assistant")]
    cut = _cut(messages, start, cuts, settings.keep_recent_tokens)
    if cut is None or cut <= start:
        return None
    turn_start = None
    if roles[cut] != "user":
        turn_start = next((at for at in range(cut, start - 1, -1) if roles[at] == "user"), None)
    middle = cut if turn_start is None else turn_start
    return ReferencePlan(
        cut,
        turn_start is not None,
        [*map(readable, messages[start:middle])],
        [*map(readable, messages[middle:cut])],
        estimate_context_tokens(messages).tokens,
        previous.summary if previous else None,
        _files(messages[start:cut], compaction.listed_files(previous.details if previous else None)),
        settings,
    )


def _cut(messages: Sequence[Message], start: int, cuts: Sequence[int], budget: int) -> int | None:
    """Return the first cut after the budget is used up; if there is none, the first of all, which plans nothing."""
    kept = 0
    for at in range(len(messages) - 1, start - 1, -1):
        kept += estimate_tokens(messages[at])
        if kept >= budget:
            return next((cut for cut in cuts if cut >= at), next(iter(cuts), None))
    return next(iter(cuts), None)


def _files(messages: Iterable[Message], earlier: compaction.FileLists) -> compaction.FileLists:
    paths: dict[str, list[str]] = {"read": [*earlier.read_files], "write": [], "edit": [*earlier.modified_files]}
    parts = (part for message in messages if message.get("role") == "assistant" for part in message["content"])
    for part in parts:
        if isinstance(part, Mapping) and part.get("type") == "toolCall" and part.get("name") in paths:
            arguments = part.get("arguments")
            path = arguments.get("path") if isinstance(arguments, Mapping) else None
            if path and isinstance(path, str):
                paths[part["name"]].append(path)
    return compaction.file_lists(*paths.values())


def plan_session(
    items: Sequence[Any], latest: Mapping[str, Any] | None, settings: compaction.CompactionSettings
) -> Any:
    """Return the plan and the id of the first kept entry, or the reason why there is none."""
    previous = None
    if latest is not None:
        previous = compaction.PreviousCompaction(latest["summary"], 1, latest.get("details"))
    plan = prepare_compaction([item.data for item in items], settings, previous)
    if plan is None:
        return "no_cut_point"
    first = items[plan.first_kept_index]
    return (plan, first.entry_id) if first.kind == "message" else "first_kept_not_message"


async def summarize(
    plan: Any, complete: Callable[[compaction.SummaryRequest], Awaitable[compaction.SummaryReply]]
) -> compaction.CompactionSummary:
    """Make all calls, and raise `SummaryFailed` for the first that failed afterwards."""
    replies: list[compaction.SummaryReply] = []
    failures: list[compaction.SummaryFailed] = []
    for request in compaction.summary_requests(plan):
        try:
            replies.append(await complete(request))
        except RuntimeError as error:
            failures.append(compaction.SummaryFailed(request.kind, str(error)))
    if failures:
        raise failures[0]
    return compaction.finish_summary(plan, replies)
