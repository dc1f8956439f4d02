"""From a plan to a summary; the model call comes in as an argument."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from flue_py.compaction.plan import CompactionPlan
from flue_py.compaction.policy import CompactionSettings
from flue_py.compaction.prompts import SYSTEM_PROMPT, instruction
from flue_py.compaction.serialize import appended_file_lists, serialize_conversation
from flue_py.core.jsontext import JsonObject
from flue_py.errors import InvalidArgument, SummaryFailed

SummaryKind: TypeAlias = Literal["initial", "update", "turn_prefix"]

TURN_PREFIX_HEADING = "\n\n---\n\n**Turn Context (split turn):**\n\n"
MAX_SUMMARY_TOKENS = 16_000
_RESERVE_SHARE = {"initial": 0.8, "update": 0.8, "turn_prefix": 0.5}


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """One call to a summarizer.

    ``kind`` is ``initial``, ``update`` (there is a previous summary to bring up to date) or ``turn_prefix``
    (the beginning of a split turn). ``input`` holds what to summarize, ``instruction`` what to do with it;
    ``prompt`` is the two as one user message. ``max_tokens`` bounds the answer.
    """

    kind: SummaryKind
    input: str
    instruction: str
    max_tokens: int
    system_prompt: str = SYSTEM_PROMPT

    @property
    def prompt(self) -> str:
        """The text of the user message to send."""
        return self.input + self.instruction


@dataclass(frozen=True, slots=True)
class SummaryReply:
    """A summarizer's answer: its text, and the usage it reported (camelCase), or None."""

    text: str
    usage: JsonObject | None = None


Complete: TypeAlias = Callable[[SummaryRequest], Awaitable[SummaryReply]]


@dataclass(frozen=True, slots=True)
class SummaryCall:
    """A summarizer call that was answered, and what it reported."""

    kind: SummaryKind
    usage: JsonObject | None


@dataclass(frozen=True, slots=True)
class CompactionSummary:
    """What to append as a compaction.

    ``text`` ends with the file lists, ``details`` are the same lists to store. ``calls`` are the summarizer
    calls in order, history before turn prefix.
    """

    text: str
    details: JsonObject
    calls: tuple[SummaryCall, ...]

    @property
    def usages(self) -> tuple[JsonObject, ...]:
        """The usages that were reported, in the order of the calls."""
        return tuple(call.usage for call in self.calls if call.usage is not None)


def summary_requests(plan: CompactionPlan, *, focus: str | None = None) -> tuple[SummaryRequest, ...]:
    """Return the calls a plan needs: one, or for a split turn with history before it two, history first.

    ``focus`` is what the caller asks the summaries to attend to, in plain words. Cost: O(text summarized).
    """
    return tuple(_request(kind, plan, focus) for kind in _request_kinds(plan))


def _request(kind: SummaryKind, plan: CompactionPlan, focus: str | None) -> SummaryRequest:
    messages = plan.turn_prefix if kind == "turn_prefix" else plan.messages_to_summarize
    text = f"<conversation>\n{serialize_conversation(messages, plan.policy)}\n</conversation>\n\n"
    if kind == "update":
        text += f"<previous-summary>\n{plan.previous_summary}\n</previous-summary>\n\n"
    wanted = instruction(kind) + (f"\n\nAdditional focus: {focus}" if focus else "")
    return SummaryRequest(kind, text, wanted, allowed_tokens(kind, plan.settings))


def allowed_tokens(kind: SummaryKind, settings: CompactionSettings) -> int:
    """Return how many tokens the answer to a request of a kind may have."""
    return min(math.floor(_RESERVE_SHARE[kind] * settings.reserve_tokens), MAX_SUMMARY_TOKENS)


async def summarize(plan: CompactionPlan, complete: Complete, *, focus: str | None = None) -> CompactionSummary:
    """Return the summary for a plan, made by one or two calls to ``complete``.

    The calls are made one after the other, the history's first. Raises `SummaryFailed` from the error of a
    failed call; cancellation, and other exceptions that are not an `Exception`, pass through. A caller that wants two
    calls to run at the same time makes those of `summary_requests` and hands the replies to `finish_summary`.
    """
    answers: list[tuple[SummaryKind, SummaryReply]] = []
    failure: tuple[SummaryKind, Exception] | None = None
    for request in summary_requests(plan, focus=focus):
        try:
            answers.append((request.kind, _checked_reply(await complete(request))))
        except Exception as error:  # noqa: BLE001 - whatever a model client raises becomes SummaryFailed
            failure = failure or (request.kind, error)
            if plan.policy.stop_at_failed_call:
                break
        _refuse_blank(plan, answers)
    if failure is not None:
        kind, cause = failure
        raise SummaryFailed(kind, str(cause) or type(cause).__name__, _calls(answers)) from cause
    return finish_summary(plan, [reply for _, reply in answers])


def _checked_reply(reply: SummaryReply) -> SummaryReply:
    if not isinstance(reply, SummaryReply):
        raise InvalidArgument(f"complete() should return a SummaryReply, not {type(reply).__name__}")
    return reply


def finish_summary(plan: CompactionPlan, replies: Sequence[SummaryReply]) -> CompactionSummary:
    """Return the summary made of the replies to `summary_requests`, in the order of the requests.

    Raises `SummaryFailed` for a blank reply (with the policy's ``refuse_blank_summary``) and `InvalidArgument`
    if there is not one reply for each request.
    """
    kinds = _request_kinds(plan)
    if len(replies) != len(kinds):
        raise InvalidArgument(f"replies: {len(replies)} given for {len(kinds)} requests; give one for each")
    answers = [(kind, _checked_reply(reply)) for kind, reply in zip(kinds, replies, strict=True)]
    _refuse_blank(plan, answers)
    texts = [reply.text for reply in replies]
    if plan.carried_history is not None:
        texts.insert(0, plan.carried_history)
    text = TURN_PREFIX_HEADING.join(texts) + appended_file_lists(plan.files)
    return CompactionSummary(text, plan.files.details, _calls(answers))


def _request_kinds(plan: CompactionPlan) -> list[SummaryKind]:
    kinds: list[SummaryKind] = []
    if plan.messages_to_summarize:
        kinds.append("update" if plan.previous_summary else "initial")
    if plan.turn_prefix:
        kinds.append("turn_prefix")
    return kinds


def _refuse_blank(plan: CompactionPlan, answers: Sequence[tuple[SummaryKind, SummaryReply]]) -> None:
    for kind, reply in answers:
        if not isinstance(reply.text, str) or (plan.policy.refuse_blank_summary and not reply.text.strip()):
            raise SummaryFailed(kind, "the answer has no text", _calls(answers))


def _calls(answers: Sequence[tuple[SummaryKind, SummaryReply]]) -> tuple[SummaryCall, ...]:
    return tuple(SummaryCall(kind, reply.usage) for kind, reply in answers)
