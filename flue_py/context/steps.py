"""The steps of the context pipeline: functions of items, each with its name and reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, pairwise, takewhile
from typing import Literal, TypeAlias, TypeVarTuple

from flue_py.context import pipeline
from flue_py.context.blocks import ShownBlock, shown_block
from flue_py.context.pipeline import Item, Over, Step, ToolUse, View
from flue_py.context.settings import (
    OWN_HISTORY,
    AgentContext,
    ContextSpec,
    ContextWindow,
    Fitting,
    Superseding,
    ToolResultBudget,
    Trimming,
)
from flue_py.context.sources import NOTHING_GATHERED, GatheredContext
from flue_py.core.context import last_turns, part_in, part_of
from flue_py.core.json import Frozen, JsonObject, JsonValue, encode_json
from flue_py.core.kinds import CUSTOM_MESSAGE
from flue_py.core.kinds import is_signed as kinds_is_signed
from flue_py.core.usage import outcome_of
from flue_py.providers.base import is_part, listed, result_message
from flue_py.providers.openai_chat import parts_of

Settings = TypeVarTuple("Settings")


class FunctionStep(Frozen):
    """A `Step` that is a function of the items, the view and ``settings``. Steps that are equal do the same."""

    name: str
    reason: str
    over: Over
    at_epochs: bool
    function: Callable[..., Sequence[Item]]
    settings: tuple[object, ...]

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        return self.function(items, view, *self.settings)


def step(
    name: str, reason: str, *, over: Over = "history", at_epochs: bool = False
) -> Callable[[Callable[[Sequence[Item], View, *Settings], Sequence[Item]]], Callable[[*Settings], FunctionStep]]:
    """Make a function of items, a view and settings a function of the settings, which returns the step."""

    def decorate(
        function: Callable[[Sequence[Item], View, *Settings], Sequence[Item]],
    ) -> Callable[[*Settings], FunctionStep]:
        return lambda *settings: FunctionStep(name, reason, over, at_epochs, function, settings)

    return decorate


# ---------------------------------------------------------------------------------------------------------------------
# The last messages, and corrections wherever they are.

BLOCKED = "[fuseraft:blocked"
CORRECTIONS = (
    "RETRY ", "NO TOOL CALLS", "CRITICAL:", "APPROVED rejected:", "WRONG KEYWORD:", "JSON block correct",
    "BUILD FAILURE:", "STAGNATION (", "STUCK ", "HALLUCINATION:", "PERSISTENT BUILD FAILURE", "VERIFICATION FINDING",
    "Files written this turn", "No handoff keyword", "EVIDENCE INCONSISTENCY", "EVIDENCE AUDIT REQUIRED",
    "MISSING ARTIFACT",
)  # fmt: skip
"""The beginnings of the messages by which fuseraft corrects an agent."""


def is_correction(item: Item) -> bool:
    """Return whether a message corrects an agent."""
    text = "".join(pipeline.text_parts(item.message)) if item.is_user else ""
    return text.startswith(CORRECTIONS) or BLOCKED in text


@step("max_tail_messages", "before the last messages of the view")
def max_tail_messages(items: Sequence[Item], view: View, limit: int) -> Sequence[Item]:
    """Keep the last ``limit`` messages, and corrections and the newest text of each block, which do not count."""
    if len(items) <= limit:
        return items
    stay = _blocks_told(items) | {at for at, item in enumerate(items) if is_correction(item)}
    counted = [at for at in range(len(items)) if at not in stay]
    first = counted[-limit] if len(counted) > limit else 0
    return [item for at, item in enumerate(items) if at >= first or at in stay]


@step("context_cap_fraction", "warns")
def cap_warning(items: Sequence[Item], view: View, limit: int, fraction: float) -> Sequence[Item]:
    """Tell that the view has come near the number of messages that it may have."""
    count = len(items) - len(_blocks_told(items))
    # Not the product: 0.55 of 100 is a little more than 55.
    if count / limit >= fraction:
        view.tell(
            "context_cap_warning", f"{count:,} messages have reached {fraction:.0%} of max_tail_messages ({limit:,})"
        )
    return items


# ---------------------------------------------------------------------------------------------------------------------
# A view from sources in place of the history: the task, the agent's own answers, the brief, and pending messages.

HEADING = "[AGENT CONTEXT — assembled from artifacts]"
HANDOFF = "[HANDOFF CONTEXT — assembled for "
OWN_ANSWERS = 6
OWN_CHARS = 8_000
_LONG_TASK = 50
_LONG_CONTEXT = 2_000
_REMINDED = 200


def handoff_heading(agent: str) -> str:
    """Return the first line of a handoff to an agent."""
    return f"{HANDOFF}{agent}]"


@step("spec", "the agent is told what its sources say in place of the history")
def assembled(items: Sequence[Item], view: View, spec: ContextSpec, gathered: GatheredContext) -> Sequence[Item]:
    """Put in the place of the history: the task; the agent's own last answers; the brief, which is a message with the
    texts of the sources; the user's messages since the agent's last answer, without corrections of others; a
    reminder of the task. An answer that failed, was aborted or ends in calls of tools answers no message of the user.

    The task is the first message of the user, or the summary of a compaction, or ``spec.task``. Messages of the system,
    and those that a compaction keeps because they are pinned, stay. An agent without a name has all answers as its own.
    O(size).
    """
    for skipped in gathered.skipped:
        view.tell("source_skipped", str(skipped))
    first_answer = next((at for at, item in enumerate(items) if item.is_answer), len(items))
    task = next((at for at, item in enumerate(items) if _may_be_task(item, is_first=at < first_answer)), len(items))
    own_places = [at for at, item in enumerate(items) if item.is_answer and _is_of(item, view.agent)]
    own_texts = {item.place: item for item in _own_answers(spec, [items[at] for at in own_places], view)}
    last_answered = next((at for at in reversed(own_places) if _has_answered(items, at, view.agent)), -1)
    start = max(last_answered, task)
    pending = [*_pending(items, start, view.agent, is_answered=last_answered >= 0 or start < first_answer)]
    shown = {items[at].place for at in pending} | own_texts.keys()
    # The beginning of an answer that broke off stands behind the message that it answered.
    split_at = max(next((at for at in reversed(own_places) if not pending or at < pending[0]), -1), task)
    above_brief: list[Item] = [] if spec.task is None else [pipeline.added({"role": "user", "content": spec.task})]
    below_brief: list[Item] = []
    told = _blocks_told(items)
    for at, item in enumerate(items):
        stays = item.is_system or item.is_pinned or at in told
        if item.place in shown or (at == task and spec.task is None) or stays:
            (below_brief if at > split_at else above_brief).append(own_texts.get(item.place, item))
    text = gathered.text(HEADING)
    brief = [pipeline.added({"role": "user", "content": text})] if text else []
    messages = [*above_brief, *brief, *below_brief]
    reminder = _reminder("".join(_task_texts(spec.task, items, task)), messages) if spec.reminder else ()
    return [*messages, *reminder]


def _own_answers(spec: ContextSpec, answers: Sequence[Item], view: View) -> list[Item]:
    """Return an agent's last answers, reduced to their texts: as many as fit, and one at least, cut to that."""
    source = next((source for source in spec.sources if source.kind == OWN_HISTORY), None)
    if source is None:
        return []
    count, limit = max(1, int(source.parameter or OWN_ANSWERS)), source.max_chars or OWN_CHARS
    texts = [item for item in map(pipeline.reduced, answers) if item is not None][-count:]
    chars = sum(pipeline.text_length(item.message) for item in texts)
    while len(texts) > 1 and chars > limit:
        chars -= pipeline.text_length(texts.pop(0).message)
    if not texts or chars <= limit:
        return texts
    note = f"\n[...truncated — own_history turn exceeded {limit:,} char limit]"
    return [pipeline.cut_after(texts[0], limit, lambda _: note, view)]


def _reminder(task: str, messages: Sequence[Item]) -> Iterator[Item]:
    length = sum(pipeline.text_length(item.message) for item in messages) - len(task)
    if len(task) > _LONG_TASK and length > _LONG_CONTEXT:
        ellipsis = "…" if len(task) > _REMINDED else ""
        yield pipeline.added({"role": "user", "content": f"[Task Reminder]\n\n{task[:_REMINDED]}{ellipsis}"})


def _task_texts(task: str | None, items: Sequence[Item], at: int) -> list[str]:
    if task is not None:
        return [task]
    # The beginning of a summary says nothing by itself.
    return pipeline.text_parts(items[at].message) if at < len(items) and not items[at].is_summary else []


def _block_of(item: Item) -> ShownBlock | None:
    source = item.source
    return shown_block(source.entry.data) if source is not None and source.kind == CUSTOM_MESSAGE else None


def _blocks_told(items: Sequence[Item]) -> set[int]:
    """Return where the newest text of each block is. It is not told again as long as the context shows it.

    Of a block that was withdrawn, nothing: where the note that says so is left out, all texts before it are.
    """
    newest = {block.name: (at, block) for at, item in enumerate(items) if (block := _block_of(item)) is not None}
    return {at for at, block in newest.values() if block.same}


def _may_be_task(item: Item, *, is_first: bool) -> bool:
    # Where nobody has answered yet, nobody is corrected, however the user begins.
    return item.is_summary or (item.is_user and item.is_message and (is_first or not is_correction(item)))


def _is_of(item: Item, agent: str | None) -> bool:
    return not agent or (item.agent or "").casefold() == pipeline.plain_agent(agent)


def _has_answered(items: Sequence[Item], at: int, agent: str | None) -> bool:
    """Return whether an answer ends the turn of its agent: it is whole and calls nothing, or another agent went on."""
    item = items[at]
    if outcome_of(item.message.get("stopReason")) is not None:
        return False
    if item.calls:
        following = next((item for item in islice(items, at + 1, None) if not item.is_result), None)
        return following is not None and following.is_answer and not _is_of(following, agent)
    return pipeline.text_length(item.message) > 0


def _pending(items: Sequence[Item], since: int, agent: str | None, *, is_answered: bool) -> Iterator[int]:
    """Yield the places of the user's messages for an agent since its last answer.

    A correction is for the agent that answered before it, for all if none has; a handoff is for the one that it names.
    """
    is_its_own = is_answered
    for at in range(since + 1, len(items)):
        item = items[at]
        if item.is_answer:
            is_its_own = _is_of(item, agent)
        elif item.is_user:
            receiver = _receiver(item)
            is_for_another = bool(agent) and receiver not in (None, pipeline.plain_agent(agent or ""))
            if not is_for_another and (is_its_own or not is_correction(item)):
                yield at


def _receiver(item: Item) -> str | None:
    """Return the agent that a handoff is for, as names are compared; None for any other message."""
    if item.source is None or item.source.kind != CUSTOM_MESSAGE:
        return None
    first = "".join(pipeline.text_parts(item.message)).partition("\n")[0]
    is_handoff = first.startswith(HANDOFF) and first.endswith("]")
    return pipeline.plain_agent(first[len(HANDOFF) : -1]) if is_handoff else None


# ---------------------------------------------------------------------------------------------------------------------
# A view without the answers of certain agents.

UNKNOWN = "Unknown"
"""The name for answers that name no agent."""


@step("exclude_agents", "the view leaves their agent out")
def exclude_agents(items: Sequence[Item], view: View, agents: tuple[str, ...]) -> Sequence[Item]:
    """Leave out the answers of these agents, in any case of their names."""
    excluded = {*map(pipeline.plain_agent, agents)}
    return [item for item in items if not item.is_answer or (item.agent or UNKNOWN).casefold() not in excluded]


# ---------------------------------------------------------------------------------------------------------------------
# Stubs in place of old results.

OMITTED = "[result omitted — sliding window]"
CLEARED = "[tool result cleared to save context]"


def _stubs(items: Sequence[Item], places: Sequence[int], note: str, view: View) -> list[Item]:
    """Return the items with stubs at these places."""
    stubs = {at: pipeline.stubbed(items[at], note, view) for at in places}
    return [stubs.get(at, item) for at, item in enumerate(items)]


@step("max_in_turn_tool_pairs", "before the last tool calls of the turn", over="turn")
def max_in_turn_tool_pairs(items: Sequence[Item], view: View, limit: int) -> Sequence[Item]:
    """Keep the last ``limit`` results of the turn in progress, and put a shorter stub in place of earlier ones."""
    results = [at for at, item in enumerate(items) if item.is_result]
    return _stubs(items, results[: max(len(results) - limit, 0)], OMITTED, view)


@step("microcompact", "an old result of a tool", over="all", at_epochs=True)
def microcompact(items: Sequence[Item], view: View, keep: int, tools: tuple[str, ...]) -> Sequence[Item]:
    """Clear the results of ``tools`` but for the ``keep`` newest; one that is cleared already does not count.

    One that is no longer than the stub stays.
    """
    eligible = pipeline.plain_names(tools)
    results = [
        at for at, tool in sorted(pipeline.tool_of_results(items).items()) if pipeline.plain_name(tool) in eligible
    ]
    results = [at for at in results if not "".join(pipeline.text_parts(items[at].message)).startswith(CLEARED)]
    return _stubs(items, results[: max(len(results) - keep, 0)], CLEARED, view)


# ---------------------------------------------------------------------------------------------------------------------
# A budget of tokens for a turn, for which results of tools are shortened.

IN_TURN_TOKENS_OMITTED = "[result omitted — over the token budget of the turn; call the tool again if it is needed]"
LEAST_CHARS = 200


_CUT_NOTE = "\n[TRUNCATED HERE — {:,} more characters do not fit the token budget; this is not the whole result]".format


@step("max_in_turn_context_tokens", "over the token budget of the turn", over="turn")
def max_in_turn_context_tokens(items: Sequence[Item], view: View, limit: int) -> Sequence[Item]:
    """Put stubs in place of the oldest results of a turn until it fits ``limit`` tokens; then cut those left whole.

    The newest result is never stubbed, but cut: the model has asked for it last. Each that is cut keeps the same share
    of it, and 200 characters at least. A budget below that, or below the size of the rest, is not met: the event
    ``over_budget`` tells.
    """
    messages = [*items]
    total = sum(map(view.tokens, items))
    results = [at for at, item in enumerate(items) if item.is_result]
    for at in results[:-1]:
        if total <= limit:
            return messages
        messages[at] = pipeline.stubbed(items[at], IN_TURN_TOKENS_OMITTED, view)
        total -= view.tokens(items[at]) - view.tokens(messages[at])
    whole = [at for at in results if messages[at] is items[at] and not items[at].is_pinned]
    whole = [at for at in whole if pipeline.text_length(items[at].message) > LEAST_CHARS]
    if total > limit and whole:
        _shorten(messages, whole, total - limit, view)
    view.tell_over(messages, limit, "max_in_turn_context_tokens")
    return messages


def _shorten(items: list[Item], places: Sequence[int], over: int, view: View) -> None:
    """Cut the results at some places, each by the same share of it, to free so many tokens together."""
    sizes = {at: view.tokens(items[at]) for at in places}
    share = max(1 - over / max(sum(sizes.values()), 1), 0)
    for at, size in sizes.items():
        item = items[at]
        # The note has to fit, too.
        note = pipeline.with_address(_CUT_NOTE, item, view, pipeline.text_length(item.message))
        spent = view.tokens(item.cut(pipeline.with_text(item.message, note))) / max(size, 1)
        length = max(int(pipeline.text_length(item.message) * (share - spent)), LEAST_CHARS)
        items[at] = view.smaller(pipeline.cut_after(item, length, _CUT_NOTE, view), item)


# ---------------------------------------------------------------------------------------------------------------------
# Shorter answers that call tools: their reasoning, texts and arguments.


@step("intermediate", "said on the way to a call of a tool", over="all", at_epochs=True)
def intermediate(items: Sequence[Item], view: View, text_chars: int, argument_chars: int) -> Sequence[Item]:
    """Cut the text and the reasoning of answers that call tools, and put a note in place of long arguments.

    Signed reasoning stays whole: a provider refuses one that was changed. 0 is no limit.
    """

    def shorter(item: Item) -> Item:
        message, note = item.message, pipeline.address(item, view)
        parts = listed(message.get("content"))
        answer: JsonObject = {**message, "content": [_cut_part(part, text_chars, note) for part in parts]}
        if argument_chars:
            # A note that is longer than the argument frees nothing.
            least = max(argument_chars, len(_argument_note(argument_chars) + note))
            for place, part in enumerate(parts):
                if is_part(part, "toolCall"):
                    fewer = pipeline.with_arguments(
                        answer, place, lambda value: _argument_note(len(value)) + note, longer_than=least
                    )
                    answer = fewer or answer
        return item if answer == message else item.cut(answer)

    return [shorter(item) if item.calls and not item.is_pinned else item for item in items]


def _cut_part(part: JsonValue, limit: int, note: str) -> JsonValue:
    """Return a part with its text, or its unsigned reasoning, cut after so many characters; 0 is no limit."""
    for field, omitted in (("text", "[text omitted]"), ("thinking", "[reasoning omitted]")):
        if limit and is_part(part, field) and not (field == "thinking" and pipeline.is_signed(part)):
            text = part.get(field)
            if isinstance(text, str) and len(text) > limit + len(omitted + note):
                return {**pipeline.unsigned(part), field: text[:limit] + omitted + note}
    return part


def _argument_note(length: int) -> str:
    return f"[left out here: an argument of {length:,} characters; this note is not its value]"


# ---------------------------------------------------------------------------------------------------------------------
# No call without its result and no result without its call, after a view was cut.


@step("tool_pairs", "its call or its result is not in the view")
def whole_pairs(items: Sequence[Item], view: View) -> Sequence[Item]:
    """Leave out calls without a result, the answers that then are empty, and results without a call."""
    pairing = pipeline.pairing_of(items)
    answers = {at for results in pairing.results.values() for at in results}
    messages: list[Item] = []
    for at, item in enumerate(items):
        if item.is_answer:
            # A call without an id has no result either.
            whole = pipeline.calls_kept(
                item, {call.part for call, results in pairing.results_of(at).items() if results}
            )
            messages.extend(() if whole is None else (whole,))
        elif not item.is_result or at in answers:
            messages.append(item)
    return messages


# ---------------------------------------------------------------------------------------------------------------------
# Shorter results of tools: those above a limit, and reads of a file that was written since.

CONSUMED_CHARS = 500
"""The characters that stay of a read if its file was written since."""


_SHORTENED_NOTE = "\n[...truncated — {:,} chars omitted to reduce context size...]".format
_CONSUMED_NOTE = (
    "\n[...{:,} chars elided — file was written or patched later this session; "
    "call read_file again if current content is needed]"
).format


@step("max_tool_result_chars", "a long result, or a read of a file that was written since")
def max_tool_result_chars(items: Sequence[Item], view: View, window: ContextWindow) -> Sequence[Item]:
    """Cut results of tools after a number of characters, which may be the tool's own; 0 for no limit.

    A read is cut after 500 if a later message writes its file, with any limits.
    """
    consumed = consumed_results(items, window.read_tools, window.write_tools)
    tools = pipeline.tool_of_results(items)
    limits = {pipeline.plain_name(tool): limit for tool, limit in window.tool_result_char_overrides.items()}
    messages = [*items]
    for at, item in enumerate(items):
        if at in consumed:
            messages[at] = pipeline.cut_after(item, CONSUMED_CHARS, _CONSUMED_NOTE, view)
        elif item.is_result and (limit := limits.get(pipeline.plain_name(tools[at]), window.max_tool_result_chars)):
            messages[at] = pipeline.cut_after(item, limit, _SHORTENED_NOTE, view)
    return messages


def consumed_results(items: Sequence[Item], read_tools: Iterable[str], write_tools: Iterable[str]) -> set[int]:
    """Return the places of results of reads of which a later message writes the path. O(size)."""
    reading, writing = pipeline.plain_names(read_tools), pipeline.plain_names(write_tools)
    named = [
        (use, pipeline.plain_name(use.name), (pipeline.path_of(use.arguments) or "").casefold())
        for use in pipeline.tool_uses(items)
    ]
    written = {path: use.call.at for use, tool, path in named if path and tool in writing}
    return {
        at for use, tool, path in named if tool in reading and written.get(path, -1) > use.call.at for at in use.results
    }


# ---------------------------------------------------------------------------------------------------------------------
# Shorter answers.

REPLAY_CHARS = 2_000
"""The limit for answers if settings ask for one without a number."""

SUMMARY = "[CONVERSATION SUMMARY"
"""The beginning of an answer that is a summary already."""


@step("max_replay_chars", "a long answer")
def max_replay_chars(items: Sequence[Item], view: View, limit: int) -> Sequence[Item]:
    """Cut the text of answers after ``limit`` characters; summaries stay, and so do parts that are no text."""
    return [
        pipeline.cut_after(item, limit, _SHORTENED_NOTE, view)
        if item.is_answer and not "".join(pipeline.text_parts(item.message)).startswith(SUMMARY)
        else item
        for item in items
    ]


# ---------------------------------------------------------------------------------------------------------------------
# A limit for each result of a tool, and for all results that answer one message.


@step("tool_result_budget", "above the limit of a result or of a round", over="all")
def tool_result_budget(items: Sequence[Item], view: View, budget: ToolResultBudget) -> Sequence[Item]:
    """Leave a preview of a result above ``result_chars``, and of the largest of a round above ``round_chars``.

    A round are the results of one answer. Its previews depend on that round alone, so that a result goes out in the
    same way in every request.
    """
    pairing = pipeline.pairing_of(items)
    messages = [*items]

    def preview(at: int) -> None:
        if not items[at].is_pinned:
            note = f"\n... [truncated, {pipeline.text_length(items[at].message)} total chars]"
            messages[at] = pipeline.cut_after(items[at], budget.preview_chars, lambda _: note, view)

    rounds: dict[int, list[int]] = {}
    for call, results in pairing.results.items():
        rounds.setdefault(call.at, []).extend(results)
    for results in [*rounds.values(), *([at] for at in pairing.unpaired)]:
        for at in results:
            if pipeline.text_length(messages[at].message) > budget.result_chars:
                preview(at)
        total = sum(pipeline.text_length(messages[at].message) for at in results)
        for at in sorted(results, key=lambda at: (-pipeline.text_length(items[at].message), at)):
            if total <= budget.round_chars:
                break
            before = pipeline.text_length(messages[at].message)
            if messages[at] is items[at]:
                preview(at)
            total -= before - pipeline.text_length(messages[at].message)
    return messages


# ---------------------------------------------------------------------------------------------------------------------
# An interrupted session is made whole before it goes on.

Interruption: TypeAlias = Literal["interrupted_tool", "interrupted_prompt", "none"]
"""A tool had answered and the model had not, the user had asked and nobody had answered, or neither."""

MISSING = "Error: Tool result missing due to interrupted session."
_SUMMARY = "[Conversation Summary]"


@step("resume", "the session was interrupted", over="all")
def resume(items: Sequence[Item], view: View) -> Sequence[Item]:
    """Leave out the halves that an interruption left, in this order.

    Answers go if none of their calls has a result; calls without one beside others that have get an error as their
    result, behind the last of these. Answers of reasoning alone go, then messages of white space, and messages of the
    same role that then follow each other become one.

    An event tells how the session was interrupted before this request: a prompt that comes last is the new one, and
    results that come last are those of a round of tools, so that neither is an interruption by itself.
    """
    whole = [item for item in _answered(items) if not _says_nothing(item)]
    if missing := len(items) - sum(item.place is not None for item in whole):
        view.tell("recovery_filtered", f"{missing:,} messages that the interruption left without sense")
    whole = _merged(whole)
    kind = interruption_of(_before_this_request(items, whole))
    if kind != "none":
        view.tell("interrupted_turn_detected", kind)
    view.tell("session_resumed", f"{len(whole):,} messages")
    return whole


def interruption_of(items: Sequence[Item]) -> Interruption:
    """Return how a session was interrupted, by the last of its messages."""
    if not items:
        return "none"
    last = items[-1]
    if last.is_result:
        return "interrupted_tool"
    if not last.is_user or last.is_summary or "".join(pipeline.text_parts(last.message)).startswith(_SUMMARY):
        return "none"
    return "interrupted_prompt"


def _before_this_request(items: Sequence[Item], whole: Sequence[Item]) -> Sequence[Item]:
    """Return the messages before the new prompt; none if a round of tools goes on."""
    spoken, left = _without_notes(items), _without_notes(whole)
    if not spoken or not left:
        return left
    newest, last = spoken[-1], left[-1]
    if newest.is_result and newest.place == last.place:
        return ()
    if newest.is_user and last.made_of and last.made_of[-1].place == newest.place:
        return last.made_of[:-1]
    return _without_notes(left[:-1]) if newest.is_user and newest.place == last.place else left


def _without_notes(items: Sequence[Item]) -> Sequence[Item]:
    """Return the items up to the last one that is no block or note beside the conversation."""
    are_notes = (not (item.is_message or item.is_summary) for item in reversed(items))
    return items[: len(items) - sum(takewhile(bool, are_notes))]


def _answered(items: Sequence[Item]) -> list[Item]:
    pairing = pipeline.pairing_of(items)
    messages: list[Item] = []
    errors: dict[int, list[Item]] = {}
    for at, item in enumerate(items):
        results = pairing.results_of(at)
        if (results and not any(results.values())) or (item.is_result and at in pairing.unpaired):
            continue
        messages.append(item)
        last = max((place for places in results.values() for place in places), default=at)
        for call, places in results.items():
            if not places:
                errors.setdefault(last, []).append(pipeline.added(_missing(call.id, pairing.parts[call])))
        messages += errors.pop(at, ())
    return messages


def _missing(call_id: str, part: JsonObject) -> JsonObject:
    return result_message(call_id, [{"type": "text", "text": MISSING}], part.get("name"), is_error=True)


def _says_nothing(item: Item) -> bool:
    """Return whether a message is an answer of reasoning alone, or of white space."""
    parts = listed(item.message.get("content"))
    if item.is_answer and parts and all(is_part(part, "thinking") for part in parts):
        return True
    if not (item.is_user or item.is_answer) or item.calls:
        return False
    content, texts = item.message.get("content"), pipeline.text_parts(item.message)
    is_text = isinstance(content, str) or (isinstance(content, list) and len(texts) == len(content))
    return is_text and not "".join(texts).strip()


def _merged(items: Sequence[Item]) -> list[Item]:
    messages: list[Item] = []
    for item in items:
        before = messages[-1] if messages else None
        if before is None or not _can_merge(before, item):
            messages.append(item)
            continue
        parts = [*parts_of(before.message), *parts_of(item.message)]
        messages[-1] = before.merged(item, {**before.message, "content": [*parts]})
    return messages


def _can_merge(first: Item, second: Item) -> bool:
    """Return whether two messages can become one.

    A summary stays apart, since a provider may have made it itself, and so does an answer with reasoning: its model
    and the digest of its prefix would become those of the other.
    """
    if not (first.is_message and second.is_message) or first.role != second.role:
        return False
    return first.role == "user" or (first.is_answer and not _is_reasoned(first) and not _is_reasoned(second))


def _is_reasoned(item: Item) -> bool:
    parts = listed(item.message.get("content"))
    return kinds_is_signed(item.message) or any(is_part(part, "thinking") for part in parts)


# ---------------------------------------------------------------------------------------------------------------------
# Shorter results for a request that did not fit: stage by stage, each from the whole.

STAGE_CHARS = (4_000, 500, 0)
"""The characters of a result in each stage; in the last one tools are left out altogether."""
_TRIMMED_NOTE = "\n[...context-trimmed — {:,} chars removed to fit model limit...]".format


@step("adaptive_trim", "the request did not fit the model", over="all")
def adaptive_trim(items: Sequence[Item], view: View, chars: int, fitting: Fitting) -> Sequence[Item]:
    """Cut the results of tools after ``chars``, and reads of files that were written since after 500.

    With 0 characters, results and calls are left out, and answers without text.
    """
    if not chars:
        return [rest for item in items if (rest := _without_tools(item)) is not None]
    consumed = consumed_results(items, fitting.read_tools, fitting.write_tools)
    messages = [*items]
    for at, item in enumerate(items):
        if item.is_result:
            limit = min(CONSUMED_CHARS, chars) if at in consumed else chars
            messages[at] = pipeline.cut_after(item, limit, _TRIMMED_NOTE, view)
    return messages


def _without_tools(item: Item) -> Item | None:
    if item.is_result:
        return None
    return pipeline.reduced(item) if item.calls else item


# ---------------------------------------------------------------------------------------------------------------------
# Calls of tools that a later call has made worthless: repeated reads, overwritten files, commands run again.

REPEATED = "[superseded by a later call with the same arguments]"
OVERWRITTEN = "[superseded by a later write of the same file]"
_EXIT = re.compile(r"\[EXIT (?:([^\]\n]{1,40})\])?")
"""The beginning of the result of a command that failed. A text too long for a code is none."""


@step("superseded", "a later call repeats or overwrites it", over="all", at_epochs=True)
def superseded(items: Sequence[Item], view: View, settings: Superseding) -> Sequence[Item]:
    """Put a stub in place of the result of a call, and of its long arguments, that a later one repeats or overwrites.

    Calls of ``observing_tools`` with the same arguments, and writes of a file that a later call of ``write_tools``
    writes whole (``patch_tools`` overwrite nothing), are stubbed once that frees ``least_chars``; results of
    ``shell_tools`` for the same command always, by how they ended. A call supersedes if it has an answer that is no
    error.
    """
    uses = pipeline.tool_uses(items)
    working = {use.call for use in uses if any(items[at].message.get("isError") is not True for at in use.results)}
    whole, observing = pipeline.plain_names(settings.write_tools), pipeline.plain_names(settings.observing_tools)
    writing, shells = whole | pipeline.plain_names(settings.patch_tools), pipeline.plain_names(settings.shell_tools)

    def wins(use: ToolUse) -> bool:
        return use.call in working

    overwritten = _superseded(
        uses, lambda use: _path(use, writing), lambda use: wins(use) and pipeline.plain_name(use.name) in whole
    )
    repeated = _superseded(uses, lambda use: _question(use, observing), wins)
    messages = [*items]
    for group, note in ((overwritten, OVERWRITTEN), (repeated, REPEATED)):
        stubs = _superseded_stubs(items, group, note, view)
        # A picture has no characters, and its stub has some.
        freed = sum(max(_length(items[at]) - _length(item), 0) for at, item in stubs.items())
        if freed >= settings.least_chars:
            for at, item in stubs.items():
                messages[at] = item
    for use in _superseded(uses, lambda use: _command(use, shells), wins):
        for at in use.results:
            if messages[at] is items[at]:
                messages[at] = pipeline.stubbed(items[at], _outcome(items[at]), view)
    return messages


def _superseded_stubs(items: Sequence[Item], group: Sequence[ToolUse], note: str, view: View) -> dict[int, Item]:
    stubs: dict[int, Item] = {}
    for use in group:
        caller = stubs.get(use.call.at, items[use.call.at])
        text = note + pipeline.address(caller, view)
        fewer = pipeline.with_arguments(caller.message, use.call.part, partial(_instead, text), longer_than=len(text))
        if fewer is not None and not caller.is_pinned:
            stubs[use.call.at] = caller.replaced(fewer)
        stubs |= {at: pipeline.stubbed(items[at], note, view) for at in use.results}
    return stubs


def _instead(text: str, _: str) -> str:
    return text


def _superseded(
    uses: Sequence[ToolUse], key_of: Callable[[ToolUse], Hashable], supersedes: Callable[[ToolUse], bool]
) -> list[ToolUse]:
    """Return the uses that a later one with the same key supersedes; one without a key never is."""
    keys = [key_of(use) for use in uses]
    latest = {key: number for number, key in enumerate(keys) if key is not None and supersedes(uses[number])}
    return [use for number, (use, key) in enumerate(zip(uses, keys, strict=True)) if number < latest.get(key, -1)]


def _path(use: ToolUse, tools: frozenset[str]) -> Hashable:
    path = pipeline.path_of(use.arguments)
    return path.casefold() if path and pipeline.plain_name(use.name) in tools else None


def _question(use: ToolUse, tools: frozenset[str]) -> Hashable:
    if pipeline.plain_name(use.name) not in tools:
        return None
    arguments = {name: use.arguments[name] for name in sorted(use.arguments)}
    return pipeline.plain_name(use.name), encode_json(arguments, "arguments")[0]


def _command(use: ToolUse, tools: frozenset[str]) -> Hashable:
    command = use.arguments.get("command")
    if pipeline.plain_name(use.name) not in tools or not isinstance(command, str):
        return None
    return command.strip(), str(use.arguments.get("workingDirectory") or "")


def _outcome(item: Item) -> str:
    """Return how a command ended; the result of one that failed begins with that."""
    text = "".join(pipeline.text_parts(item.message))
    code = _EXIT.match(text)
    if code is None or code[1] == "0":
        return "failed" if item.message.get("isError") is True else "succeeded"
    return f"failed {code[0]}" if code[1] else "failed"


def _length(item: Item) -> int:
    arguments = [call.get("arguments") for call in item.calls]
    return pipeline.text_length(item.message) + sum(len(encode_json(value, "arguments")[0]) for value in arguments)


# ---------------------------------------------------------------------------------------------------------------------
# A view of the texts, without tools.


@step("text_only", "the view has text alone")
def text_only(items: Sequence[Item], view: View) -> Sequence[Item]:
    """Keep messages of the user, and answers with text, without their calls."""
    messages: list[Item] = []
    for item in items:
        if item.is_user:
            messages.append(item)
        elif item.is_answer and (text := pipeline.texts_only(item.message)) is not None:
            messages.append(item.cut(text) if item.calls else item)
    return messages


# ---------------------------------------------------------------------------------------------------------------------
# The oldest turns go if not all of them fit.

_TRIM_REASON = "the oldest turn of more than fit"


@step("trim_history", _TRIM_REASON, over="all")
def trim_history(items: Sequence[Item], view: View, limit: int) -> Sequence[Item]:
    """Leave out the oldest turns, as `trimmed`. If the rest is more, the event ``over_budget`` tells."""
    messages = trimmed(items, view, limit)
    if messages is not items:
        view.budgeted().tell_over(messages, limit, "trim_history")
    return messages


def trimmed(items: Sequence[Item], view: View, limit: int) -> Sequence[Item]:
    """Return the items without the oldest turns, each whole, as many as fit ``limit`` tokens; the last turn stays.

    They are counted as characters / 4, with any model. A turn is a message of the user or a handoff, and everything up
    to the next one. Messages of the system, the summary of a compaction, pinned messages, the last message of the user
    and the newest text of each block stay.
    """
    view = view.budgeted()
    total = sum(map(view.tokens, items))
    if total <= limit:
        return items
    # A message of the user between a call and its result begins no turn: the result would be left without its call.
    last = max((at for at, item in enumerate(items) if item.is_user and item.is_message), default=-1)
    stay = _blocks_told(items) | {last}
    may_go = [not (item.is_system or item.is_summary or item.is_pinned or at in stay) for at, item in enumerate(items)]
    users = (at for at, item in enumerate(items) if item.is_user and (item.is_message or _receiver(item) is not None))
    starts = pipeline.pairing_of(items).whole_cuts(at for at in users if may_go[at] or at == last)
    dropped: set[int] = set()
    # Messages before the first message of the user are the rest of a turn that was compacted: they go first.
    for start, end in pairwise([*([0] if starts[:1] != [0] else []), *starts]):
        if total <= limit:
            break
        turn = [at for at in range(start, end) if may_go[at]]
        dropped.update(turn)
        total -= sum(view.tokens(items[at]) for at in turn)
    return [item for at, item in enumerate(items) if at not in dropped]


trim_ahead = step("trim_history", _TRIM_REASON, over="all", at_epochs=True)(trimmed)
"""As `trim_history`, at the beginning of an epoch."""


@step("context_warning", "warns", over="all")
def context_warning(items: Sequence[Item], view: View, limit: int, fraction: float) -> Sequence[Item]:
    """Tell, once, that the context has come near the tokens it may take."""
    sizes = [*map(view.budgeted().tokens, items)]
    # The request before this one ended before the newest answer; its warning is not repeated.
    last = next((at for at in range(len(items) - 1, -1, -1) if items[at].is_answer), 0)
    total = sum(sizes)
    if total / limit >= fraction > sum(sizes[:last]) / limit:
        view.tell("context_warning", f"{total:,} tokens have reached {fraction:.0%} of {limit:,}")
    return items


# ---------------------------------------------------------------------------------------------------------------------
# The last turns, each with the prompt that it answers.


@step("max_turn_age", "older than the turns of the view")
def max_turn_age(items: Sequence[Item], view: View, count: int) -> Sequence[Item]:
    """Keep the last ``count`` turns that have an answer, all messages after them, and the newest text of each block."""
    # A message that a step has cut belongs to the same turn as the whole.
    parts = [part_in(item.message) if item.source is None else part_of(item.source.entry) for item in items]
    first, told = last_turns(parts, count), _blocks_told(items)
    return [item for at, item in enumerate(items) if at >= first or at in told]


# ---------------------------------------------------------------------------------------------------------------------
# The steps of settings, in the order in which they run.


def steps_of(settings: AgentContext, gathered: GatheredContext = NOTHING_GATHERED) -> list[Step]:
    """Return the steps, in their order. ``gathered`` has the texts of the sources of ``spec``.

    An interrupted session is made whole first; then come the view of the history, steps that free tokens, and last
    those that have to fit a budget.
    """
    return [*_steps(settings, gathered)]


def _steps(settings: AgentContext, gathered: GatheredContext) -> Iterator[Step]:
    if settings.resume:
        yield resume()
    if settings.spec is not None:
        yield assembled(settings.spec, gathered)
    elif settings.window is not None:
        yield from _window(settings.window)
    if (calls := settings.superseded) is not None:
        yield superseded(calls)
        if calls.text_chars or calls.argument_chars:
            yield intermediate(calls.text_chars, calls.argument_chars)
    if (micro := settings.microcompact) is not None:
        yield microcompact(micro.keep, micro.tools)
    if settings.tool_results is not None:
        yield tool_result_budget(settings.tool_results)
    if (turn := settings.in_turn) is not None:
        if turn.max_tool_pairs:
            yield max_in_turn_tool_pairs(turn.max_tool_pairs)
        if turn.max_context_tokens:
            yield max_in_turn_context_tokens(turn.max_context_tokens)
    if settings.trim is not None:
        yield from _trimming(settings.trim, settings.epoch_tokens)


def _trimming(trim: Trimming, epoch_tokens: int) -> Iterator[Step]:
    if trim.warn_fraction:
        yield context_warning(trim.max_tokens, trim.warn_fraction)
    if epoch_tokens:
        # At the beginning of an epoch, with room for the messages that it adds.
        yield trim_ahead(max(trim.max_tokens - epoch_tokens, trim.max_tokens // 2))
    yield trim_history(trim.max_tokens)


def _window(window: ContextWindow) -> Iterator[Step]:
    if window.text_only or window.exclude_agents:
        yield text_only()
    if window.exclude_agents:
        yield exclude_agents(window.exclude_agents)
    if window.max_turn_age:
        yield max_turn_age(window.max_turn_age)
    if window.max_tail_messages:
        yield max_tail_messages(window.max_tail_messages)
        if window.context_cap_fraction:
            yield cap_warning(window.max_tail_messages, window.context_cap_fraction)
    yield whole_pairs()
    if window.max_tool_result_chars:
        yield max_tool_result_chars(window)
    if window.max_replay_chars is not None:
        yield max_replay_chars(window.max_replay_chars or REPLAY_CHARS)
