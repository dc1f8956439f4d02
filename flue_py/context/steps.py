"""A view of the last messages, and of corrections wherever they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, pairwise, takewhile
from typing import Literal, TypeAlias

from flue_py.context.blocks import TYPE_PREFIX
from flue_py.context.items import (
    Item,
    Over,
    ToolUse,
    View,
    added,
    address,
    as_parts,
    calls_kept,
    content_parts,
    cut_after,
    cut_to,
    is_signed,
    is_text,
    is_thinking,
    pairing_of,
    path_of,
    plain_agent,
    plain_name,
    plain_names,
    stubbed,
    text_length,
    text_parts,
    texts_only,
    tool_of_results,
    tool_uses,
    unsigned,
    with_address,
    with_arguments,
    with_text,
)
from flue_py.context.settings import OWN_HISTORY, ContextSpec
from flue_py.context.sources import GatheredContext
from flue_py.core.context import TurnPart, last_turns, part_in, part_of
from flue_py.core.json import JsonObject, JsonValue, encode_json, frozen
from flue_py.core.kinds import CUSTOM_MESSAGE
from flue_py.core.kinds import is_signed as kinds_is_signed
from flue_py.core.usage import outcome_of

# ---------------------------------------------------------------------------------------------------------------------
# A view of the last messages, and of corrections wherever they are.

BLOCKED = "[fuseraft:blocked"
CORRECTIONS = (
    "RETRY ",
    "NO TOOL CALLS",
    "CRITICAL:",
    "APPROVED rejected:",
    "WRONG KEYWORD:",
    "JSON block correct",
    "BUILD FAILURE:",
    "STAGNATION (",
    "STUCK ",
    "HALLUCINATION:",
    "PERSISTENT BUILD FAILURE",
    "VERIFICATION FINDING",
    "Files written this turn",
    "No handoff keyword",
    "EVIDENCE INCONSISTENCY",
    "EVIDENCE AUDIT REQUIRED",
    "MISSING ARTIFACT",
)
"""How messages of the user begin by which fuseraft corrects an agent."""


def is_correction(item: Item) -> bool:
    """Return whether a message corrects an agent: it stays, and does not count."""
    if not item.is_user:
        return False
    text = "".join(text_parts(item.message))
    return text.startswith(CORRECTIONS) or BLOCKED in text


@frozen
class Tail:
    """Keeps the last ``most`` messages, and corrections, which do not count."""

    most: int
    name: str = "max_tail_messages"
    reason: str = "before the last messages of the view"
    over: Over = "history"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the end of the items, and corrections from before it."""
        if len(items) <= self.most:
            return items
        corrections = {at for at, item in enumerate(items) if is_correction(item)}
        counted = [at for at in range(len(items)) if at not in corrections]
        first = counted[-self.most] if len(counted) > self.most else 0
        return [item for at, item in enumerate(items) if at >= first or at in corrections]


@frozen
class CapWarning:
    """Tells that the view has come near the number of messages that it may have; it changes nothing."""

    most: int
    fraction: float
    name: str = "context_cap_fraction"
    reason: str = "warns"
    over: Over = "history"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items as they are."""
        # Not the product: 0.55 of 100 is a little more than 55.
        if len(items) / self.most >= self.fraction:
            share = f"{self.fraction:.0%} of max_tail_messages ({self.most:,})"
            view.tell("context_cap_warning", f"{len(items):,} messages have reached {share}")
        return items


# ---------------------------------------------------------------------------------------------------------------------
# What an agent is told in place of the history: the task, its own answers, what sources say, and what waits for it.

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


def assembled(spec: ContextSpec, gathered: GatheredContext, *, addresses: bool) -> Assembled:
    """Return the step that does what a spec asks for, with what its sources have said."""
    own = next((each for each in spec.sources if each.kind == OWN_HISTORY), None)
    most = max(1, int(own.parameter or OWN_ANSWERS)) if own is not None else 0
    chars = OWN_CHARS if own is None else own.max_chars or OWN_CHARS
    return Assembled(gathered, most, chars, spec.task, spec.reminder, addresses)


@frozen
class Assembled:
    """Puts in the place of the history: the task; the agent's own last answers; a message with what sources said; what
    the user has said since the agent's last answer, without corrections of others; a reminder of the task. What failed,
    was aborted or ends in calls of tools is no answer to what the user had said before it.

    The task is the first message of the user, or the summary of a compaction, or ``task``. Messages of the system, and
    what a compaction keeps because it is pinned, stay. An agent without a name has all answers as its own.
    """

    gathered: GatheredContext
    own_answers: int
    own_chars: int
    task: str | None
    reminds: bool
    addresses: bool
    name: str = "spec"
    reason: str = "the agent is told what its sources say in place of the history"
    over: Over = "history"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return what the agent is told. O(size)."""
        for skipped in self.gathered.skipped:
            view.tell("source_skipped", str(skipped))
        first = next((at for at, item in enumerate(items) if item.is_answer), len(items))
        task = next((at for at, item in enumerate(items) if _may_be_task(item, is_first=at < first)), len(items))
        mine = [at for at, item in enumerate(items) if item.is_answer and _is_of(item, view.agent)]
        own = {item.place: item for item in self._own([items[at] for at in mine])}
        answered = next((at for at in reversed(mine) if _has_answered(items, at, view.agent)), -1)
        begin = max(answered, task)
        told = [*_waiting(items, begin, view.agent, is_answered=answered >= 0 or begin < first)]
        waiting = {items[at].place for at in told}
        # What an answer that broke off had begun with stands behind what the user had said before it.
        since = max(next((at for at in reversed(mine) if not told or at < told[0]), -1), task)
        before: list[Item] = [] if self.task is None else [added({"role": "user", "content": self.task})]
        after: list[Item] = []
        for at, item in enumerate(items):
            kept = own.get(item.place, item)
            is_told = item.place in own or item.place in waiting or (at == task and self.task is None)
            if is_told or _stays(item):
                (after if at > since else before).append(kept)
        said = [] if not (text := self.gathered.text(HEADING)) else [added({"role": "user", "content": text})]
        made = [*before, *said, *after]
        return [*made, *self._reminder("".join(_task_texts(self.task, items, task)), made)]

    def _own(self, mine: Sequence[Item]) -> list[Item]:
        """Return the agent's last answers, reduced to their texts: as many as fit, and one at least, cut to that."""
        if not self.own_answers:
            return []
        told = [item for item in map(_texts_of, mine) if item is not None][-self.own_answers :]
        chars = sum(text_length(item.message) for item in told)
        while len(told) > 1 and chars > self.own_chars:
            chars -= text_length(told.pop(0).message)
        if not told or chars <= self.own_chars:
            return told
        shorter = cut_to(told[0].message, self.own_chars, partial(with_address, self._note, told[0], self.addresses))
        return told if shorter is None else [told[0].cut(shorter)]

    def _note(self, missing: int) -> str:
        return f"\n[...truncated — own_history turn exceeded {self.own_chars:,} char limit]"

    def _reminder(self, task: str, made: Sequence[Item]) -> Iterator[Item]:
        length = sum(text_length(item.message) for item in made) - len(task)
        if self.reminds and len(task) > _LONG_TASK and length > _LONG_CONTEXT:
            more = "…" if len(task) > _REMINDED else ""
            yield added({"role": "user", "content": f"[Task Reminder]\n\n{task[:_REMINDED]}{more}"})


def _task_texts(given: str | None, items: Sequence[Item], at: int) -> list[str]:
    if given is not None:
        return [given]
    # The beginning of a summary says nothing by itself.
    return text_parts(items[at].message) if at < len(items) and not items[at].is_summary else []


def _stays(item: Item) -> bool:
    return item.is_system or item.is_pinned or _is_block(item)


def _is_block(item: Item) -> bool:
    """Return whether a message tells of the surroundings, whichever agent reads it."""
    fields = item.source.entry.data if item.source is not None and item.source.kind == CUSTOM_MESSAGE else None
    custom_type = fields.get("customType") if isinstance(fields, dict) else None
    return isinstance(custom_type, str) and custom_type.startswith(TYPE_PREFIX)


def _may_be_task(item: Item, *, is_first: bool) -> bool:
    # Where nobody has answered yet, nobody is corrected, however the user begins.
    return item.is_summary or (item.is_user and item.is_message and (is_first or not is_correction(item)))


def _is_of(item: Item, agent: str | None) -> bool:
    return not agent or (item.agent or "").casefold() == plain_agent(agent)


def _has_answered(items: Sequence[Item], at: int, agent: str | None) -> bool:
    """Return whether an answer ends the turn of its agent: it is whole and calls nothing, or another agent went on."""
    item = items[at]
    if outcome_of(item.message.get("stopReason")) is not None:
        return False
    if item.calls:
        went_on = next((each for each in islice(items, at + 1, None) if not each.is_result), None)
        return went_on is not None and went_on.is_answer and not _is_of(went_on, agent)
    return text_length(item.message) > 0


def _texts_of(item: Item) -> Item | None:
    """Return an answer with its texts alone, None if it has none."""
    texts = texts_only(item.message)
    if texts is None:
        return None
    return item if texts == item.message else item.cut(texts)


def _waiting(items: Sequence[Item], since: int, agent: str | None, *, is_answered: bool) -> Iterator[int]:
    """Yield where the user said something since an agent's last answer that is for it.

    A correction is for the agent that answered before it, for all where none has, a handoff for the one that it names.
    """
    is_its_own = is_answered
    for at in range(since + 1, len(items)):
        item = items[at]
        if item.is_answer:
            is_its_own = _is_of(item, agent)
        elif item.is_user:
            receiver = _receiver(item)
            is_for_another = bool(agent) and receiver not in (None, plain_agent(agent or ""))
            if not is_for_another and (is_its_own or not is_correction(item)):
                yield at


def _receiver(item: Item) -> str | None:
    """Return whom a handoff is for, as names are compared; None for any other message."""
    if item.source is None or item.source.kind != CUSTOM_MESSAGE:
        return None
    first = "".join(text_parts(item.message)).partition("\n")[0]
    is_handoff = first.startswith(HANDOFF) and first.endswith("]")
    return plain_agent(first[len(HANDOFF) : -1]) if is_handoff else None


# ---------------------------------------------------------------------------------------------------------------------
# A view without the answers of certain agents.

UNKNOWN = "Unknown"
"""How an answer is called that names no agent."""


@frozen
class ExcludeAgents:
    """Leaves out the answers of the named agents, in whatever case the names are written."""

    agents: tuple[str, ...]
    name: str = "exclude_agents"
    reason: str = "the view leaves their agent out"
    over: Over = "history"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return all but their answers."""
        excluded = {*map(plain_agent, self.agents)}
        return [item for item in items if not item.is_answer or (item.agent or UNKNOWN).casefold() not in excluded]


# ---------------------------------------------------------------------------------------------------------------------
# The last calls of a turn in full, and the earlier ones without what came of them.

OMITTED = "[result omitted — sliding window]"


@frozen
class InTurnPairs:
    """Keeps the last ``most`` results of the turn in progress, and puts a shorter stub in place of earlier ones."""

    most: int
    addresses: bool = True
    name: str = "max_in_turn_tool_pairs"
    reason: str = "before the last tool calls of the turn"
    over: Over = "turn"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items with stubs in place of the earlier results."""
        results = [at for at, item in enumerate(items) if item.is_result]
        omitted = set(results[: max(len(results) - self.most, 0)])
        return [
            stubbed(item, OMITTED, view, addresses=self.addresses) if at in omitted else item
            for at, item in enumerate(items)
        ]


# ---------------------------------------------------------------------------------------------------------------------
# A budget of tokens for what a turn sends, which results of tools are shortened for.

IN_TURN_TOKENS_OMITTED = "[result omitted — over the token budget of the turn; call the tool again if it is needed]"
LEAST_CHARS = 200


def _cut_note(missing: int) -> str:
    return f"\n[TRUNCATED HERE — {missing:,} more characters do not fit the token budget; this is not the whole result]"


def _can_be_cut(item: Item) -> bool:
    return not item.is_pinned and text_length(item.message) > LEAST_CHARS


@frozen
class InTurnTokens:
    """Puts stubs in place of the oldest results of a turn until it fits ``most`` tokens; then cuts those left whole.

    The newest result is never stubbed, but cut: what was asked for last has to be seen. Each that is cut keeps the same
    share of it, and 200 characters at least. A budget below that, or below what is no result, is not met: the event
    ``over_budget`` tells.
    """

    most: int
    addresses: bool = True
    name: str = "max_in_turn_context_tokens"
    reason: str = "over the token budget of the turn"
    over: Over = "turn"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items with stubs in place of the oldest results, and with shorter ones."""
        made = [*items]
        total = sum(map(view.tokens, items))
        results = [at for at, item in enumerate(items) if item.is_result]
        for at in results[:-1]:
            if total <= self.most:
                return made
            made[at] = stubbed(items[at], IN_TURN_TOKENS_OMITTED, view, addresses=self.addresses)
            total -= view.tokens(items[at]) - view.tokens(made[at])
        whole = [at for at in results if made[at] is items[at] and _can_be_cut(items[at])]
        if total > self.most and whole:
            self._shorten(made, whole, total - self.most, view)
        view.tell_over(made, self.most, self.name)
        return made

    def _shorten(self, items: list[Item], places: Sequence[int], over: int, view: View) -> None:
        """Cut the results at some places, each by the same share of it, so that all frees so many tokens."""
        sizes = {at: view.tokens(items[at]) for at in places}
        share = max(1 - over / max(sum(sizes.values()), 1), 0)
        for at, size in sizes.items():
            item = items[at]
            # The note has to fit, too.
            note = with_address(_cut_note, item, self.addresses, text_length(item.message))
            spent = view.tokens(item.cut(with_text(item.message, note))) / max(size, 1)
            length = max(int(text_length(item.message) * (share - spent)), LEAST_CHARS)
            items[at] = view.smaller(cut_after(item, length, _cut_note, addresses=self.addresses), item)


# ---------------------------------------------------------------------------------------------------------------------
# Shorter answers that call tools: what was thought and said on the way, and what was written.


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


# ---------------------------------------------------------------------------------------------------------------------
# Old results of tools that can be had again are cleared.

CLEARED = "[tool result cleared to save context]"


@frozen
class Microcompact:
    """Clears the results of ``tools`` but for the ``keep`` newest; one that is cleared already does not count.

    One that is no longer than what would stand in its place stays.
    """

    keep: int
    tools: tuple[str, ...]
    addresses: bool = True
    name: str = "microcompact"
    reason: str = "an old result of a tool"
    over: Over = "all"
    at_epochs: bool = True

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items with the old results cleared."""
        eligible = plain_names(self.tools)
        found = [at for at, tool in sorted(tool_of_results(items).items()) if plain_name(tool) in eligible]
        found = [at for at in found if not "".join(text_parts(items[at].message)).startswith(CLEARED)]
        cleared = set(found[: max(len(found) - self.keep, 0)])
        return [
            stubbed(item, CLEARED, view, addresses=self.addresses) if at in cleared else item
            for at, item in enumerate(items)
        ]


# ---------------------------------------------------------------------------------------------------------------------
# No call without its result and no result without its call, after a view was cut.


@frozen
class WholePairs:
    """Leaves out calls without a result, answers of which then nothing is left, and results without a call."""

    name: str = "tool_pairs"
    reason: str = "its call or its result is not in the view"
    over: Over = "history"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return whole exchanges, and what else was said. Every answered call keeps all of its results."""
        pairing = pairing_of(items)
        answers = {at for results in pairing.results.values() for at in results}
        kept: list[Item] = []
        for at, item in enumerate(items):
            if item.is_result:
                if at in answers:
                    kept.append(item)
            elif not item.is_answer:
                kept.append(item)
            else:
                # A call without an id has no result either.
                answered = {call.part for call, found in pairing.results_of(at).items() if found}
                whole = calls_kept(item, answered)
                kept.extend(() if whole is None else (whole,))
        return kept


# ---------------------------------------------------------------------------------------------------------------------
# Shorter results of tools: those above a limit, and reads of a file that was written since.

CONSUMED_CHARS = 500
"""What stays of a read whose file was written since."""


def cut_note(missing: int) -> str:
    """Return what stands behind a text that was cut."""
    return f"\n[...truncated — {missing:,} chars omitted to reduce context size...]"


def consumed_note(missing: int) -> str:
    """Return what stands behind a read whose file was written since."""
    return (
        f"\n[...{missing:,} chars elided — file was written or patched later this session; "
        "call read_file again if current content is needed]"
    )


@frozen
class ResultChars:
    """Cuts results of tools after ``most`` characters, or after what ``overrides`` has for the tool, 0 for no limit.

    A read whose file a later message writes is cut after 500, whatever the overrides say.
    """

    most: int
    overrides: Mapping[str, int]
    read_tools: tuple[str, ...]
    write_tools: tuple[str, ...]
    addresses: bool = True
    name: str = "max_tool_result_chars"
    reason: str = "a long result, or a read of a file that was written since"
    over: Over = "history"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items with shorter results."""
        consumed = consumed_results(items, self.read_tools, self.write_tools)
        named = tool_of_results(items)
        limits = {plain_name(tool): limit for tool, limit in self.overrides.items()}
        made = [*items]
        for at, item in enumerate(items):
            if at in consumed:
                made[at] = cut_after(item, CONSUMED_CHARS, consumed_note, addresses=self.addresses)
            elif item.is_result and (limit := limits.get(plain_name(named[at]), self.most)):
                made[at] = cut_after(item, limit, cut_note, addresses=self.addresses)
        return made


def consumed_results(items: Sequence[Item], read_tools: Iterable[str], write_tools: Iterable[str]) -> set[int]:
    """Return where the results of reads are whose path a later message writes. O(size)."""
    reading, writing = plain_names(read_tools), plain_names(write_tools)
    named = [(use, plain_name(use.name), (path_of(use.arguments) or "").casefold()) for use in tool_uses(items)]
    written = {path: use.call.at for use, tool, path in named if path and tool in writing}
    return {
        at for use, tool, path in named if tool in reading and written.get(path, -1) > use.call.at for at in use.results
    }


# ---------------------------------------------------------------------------------------------------------------------
# Shorter answers.

REPLAY_CHARS = 2_000
"""After how many characters answers are cut where settings ask for that without a limit of their own."""

SUMMARY = "[CONVERSATION SUMMARY"
"""How an answer begins that is a summary already."""


@frozen
class ReplayChars:
    """Cuts the text of answers after ``most`` characters; summaries stay, and so does what is no text."""

    most: int
    addresses: bool = True
    name: str = "max_replay_chars"
    reason: str = "a long answer"
    over: Over = "history"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items with shorter answers."""
        return [
            cut_after(item, self.most, cut_note, addresses=self.addresses) if _may_be_long(item) else item
            for item in items
        ]


def _may_be_long(item: Item) -> bool:
    return item.is_answer and not "".join(text_parts(item.message)).startswith(SUMMARY)


# ---------------------------------------------------------------------------------------------------------------------
# A limit for each result of a tool, and for all results that answer one message.


@frozen
class ResultBudget:
    """Leaves a preview of a result above ``result_chars``, and of the largest of a round above ``round_chars``.

    A round are the results of one answer. What it comes to depends on that round alone, so that a result goes out in
    the same way in every request.
    """

    result_chars: int
    round_chars: int
    preview_chars: int
    addresses: bool = True
    name: str = "tool_result_budget"
    reason: str = "above the limit of a result or of a round"
    over: Over = "all"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items with previews."""
        pairing = pairing_of(items)
        made = [*items]
        rounds: dict[int, list[int]] = {}
        for call, results in pairing.results.items():
            rounds.setdefault(call.at, []).extend(results)
        for results in [*rounds.values(), *([at] for at in pairing.unpaired)]:
            for at in results:
                if text_length(made[at].message) > self.result_chars:
                    made[at] = self._preview(made[at])
            total = sum(text_length(made[at].message) for at in results)
            for at in sorted(results, key=lambda at: (-text_length(items[at].message), at)):
                if total <= self.round_chars:
                    break
                before = text_length(made[at].message)
                made[at] = self._preview(made[at]) if made[at] is items[at] else made[at]
                total -= before - text_length(made[at].message)
        return made

    def _preview(self, item: Item) -> Item:
        if item.is_pinned:
            return item
        total = text_length(item.message)
        note = f"\n... [truncated, {total} total chars]"
        return cut_after(item, self.preview_chars, lambda _: note, addresses=self.addresses)


# ---------------------------------------------------------------------------------------------------------------------
# A session that was interrupted is made whole before it goes on, and how it was interrupted is told.

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
    return kinds_is_signed(item.message) or any(map(is_thinking, content_parts(item.message)))


# ---------------------------------------------------------------------------------------------------------------------
# Less of everything that tools gave back, for a request that did not fit: stage by stage, each from the whole.

STAGE_CHARS = (4_000, 500, 0)
"""How many characters a result of a tool keeps in each stage; in the last one tools are left out altogether."""


def _note(missing: int) -> str:
    return f"\n[...context-trimmed — {missing:,} chars removed to fit model limit...]"


@frozen
class Shrink:
    """Cuts the results of tools after ``chars``, and reads of files that were written since after 500.

    With 0 characters, results and calls are left out, and answers that have no text with them.
    """

    chars: int
    read_tools: tuple[str, ...]
    write_tools: tuple[str, ...]
    addresses: bool = True
    name: str = "adaptive_trim"
    reason: str = "the request did not fit the model"
    over: Over = "all"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items with less of what tools gave back."""
        if not self.chars:
            return [kept for item in items if (kept := _without_tools(item)) is not None]
        consumed = consumed_results(items, self.read_tools, self.write_tools)
        made = [*items]
        for at, item in enumerate(items):
            if item.is_result:
                limit = min(CONSUMED_CHARS, self.chars) if at in consumed else self.chars
                made[at] = cut_after(item, limit, _note, addresses=self.addresses)
        return made


def _without_tools(item: Item) -> Item | None:
    if item.is_result:
        return None
    if not item.calls:
        return item
    text = texts_only(item.message)
    return None if text is None else item.cut(text)


# ---------------------------------------------------------------------------------------------------------------------
# Calls of tools that a later call has made worthless: repeated reads, overwritten files, commands run again.

REPEATED = "[superseded by a later call with the same arguments]"
OVERWRITTEN = "[superseded by a later write of the same file]"
_EXIT = re.compile(r"\[EXIT (?:([^\]\n]{1,40})\])?")
"""How the result of a command begins that failed. What is too long to be a code is none."""


@frozen
class Superseded:
    """Puts a stub in place of the result of a call, and of its long arguments, that a later one repeats or overwrites.

    Calls of ``observing_tools`` with the same arguments, and writes of a file that a later call of ``write_tools``
    writes whole (``patch_tools`` overwrite nothing), are stubbed once that frees ``least_chars``; results of
    ``shell_tools`` for the same command always, by how they ended. A call supersedes if it has an answer that is no
    error.
    """

    least_chars: int
    observing_tools: tuple[str, ...]
    write_tools: tuple[str, ...]
    patch_tools: tuple[str, ...]
    shell_tools: tuple[str, ...]
    addresses: bool = True
    name: str = "superseded"
    reason: str = "a later call repeats or overwrites it"
    over: Over = "all"
    at_epochs: bool = True

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items with stubs."""
        uses = tool_uses(items)
        working = {use.call for use in uses if any(items[at].message.get("isError") is not True for at in use.results)}
        whole, observing = plain_names(self.write_tools), plain_names(self.observing_tools)
        writing, shells = whole | plain_names(self.patch_tools), plain_names(self.shell_tools)

        def wins(use: ToolUse) -> bool:
            return use.call in working

        overwritten = _superseded(
            uses, lambda use: _path(use, writing), lambda use: wins(use) and plain_name(use.name) in whole
        )
        repeated = _superseded(uses, lambda use: _question(use, observing), wins)
        made = [*items]
        for group, note in ((overwritten, OVERWRITTEN), (repeated, REPEATED)):
            stubs = self._stubs(items, group, note, view)
            # A picture has no characters, and its stub has some.
            freed = sum(max(_length(items[at]) - _length(item), 0) for at, item in stubs.items())
            if freed >= self.least_chars:
                for at, item in stubs.items():
                    made[at] = item
        for use in _superseded(uses, lambda use: _command(use, shells), wins):
            for at in use.results:
                if made[at] is items[at]:
                    made[at] = stubbed(items[at], _outcome(items[at]), view, addresses=self.addresses)
        return made

    def _stubs(self, items: Sequence[Item], group: Sequence[ToolUse], note: str, view: View) -> dict[int, Item]:
        found: dict[int, Item] = {}
        for use in group:
            caller = found.get(use.call.at, items[use.call.at])
            text = note + address(caller, wanted=self.addresses)
            fewer = with_arguments(caller.message, use.call.part, partial(_instead, text), longer_than=len(text))
            if fewer is not None and not caller.is_pinned:
                found[use.call.at] = caller.replaced(fewer)
            found |= {at: stubbed(items[at], note, view, addresses=self.addresses) for at in use.results}
        return found


def _superseded(
    uses: Sequence[ToolUse], key_of: Callable[[ToolUse], Hashable], supersedes: Callable[[ToolUse], bool]
) -> list[ToolUse]:
    """Return the uses after which another one with the same key supersedes them; those without a key never are."""
    keys = [key_of(use) for use in uses]
    latest = {key: number for number, key in enumerate(keys) if key is not None and supersedes(uses[number])}
    return [use for number, (use, key) in enumerate(zip(uses, keys, strict=True)) if number < latest.get(key, -1)]


def _instead(text: str, _: str) -> str:
    return text


def _path(use: ToolUse, tools: frozenset[str]) -> Hashable:
    path = path_of(use.arguments)
    return path.casefold() if path and plain_name(use.name) in tools else None


def _question(use: ToolUse, tools: frozenset[str]) -> Hashable:
    if plain_name(use.name) not in tools:
        return None
    arguments = {name: use.arguments[name] for name in sorted(use.arguments)}
    return plain_name(use.name), encode_json(arguments, "arguments")[0]


def _command(use: ToolUse, tools: frozenset[str]) -> Hashable:
    command = use.arguments.get("command")
    if plain_name(use.name) not in tools or not isinstance(command, str):
        return None
    return command.strip(), str(use.arguments.get("workingDirectory") or "")


def _outcome(item: Item) -> str:
    """Return how a command ended, which its result begins with where it failed."""
    text = "".join(text_parts(item.message))
    code = _EXIT.match(text)
    if code is None or code[1] == "0":
        return "failed" if item.message.get("isError") is True else "succeeded"
    return f"failed {code[0]}" if code[1] else "failed"


def _length(item: Item) -> int:
    arguments = [call.get("arguments") for call in item.calls]
    return text_length(item.message) + sum(len(encode_json(each, "arguments")[0]) for each in arguments)


# ---------------------------------------------------------------------------------------------------------------------
# A view of what was said, without tools.


@frozen
class TextOnly:
    """Keeps messages of the user, and answers with text in them, which lose their calls; all else is left out."""

    name: str = "text_only"
    reason: str = "the view has text alone"
    over: Over = "history"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return what the user said, and the text of the answers."""
        kept: list[Item] = []
        for item in items:
            if item.is_user:
                kept.append(item)
            elif item.is_answer and (text := texts_only(item.message)) is not None:
                kept.append(item.cut(text) if item.calls else item)
        return kept


# ---------------------------------------------------------------------------------------------------------------------
# The oldest turns go where all of them do not fit.


@frozen
class TrimHistory:
    """Leaves out the oldest turns, each whole, until all fits ``most`` tokens; the last turn always stays.

    They are counted as characters / 4, whatever the model. A turn is a message of the user, and everything up to the
    next one. Messages of the system, the summary of a compaction and what it keeps because it is pinned stay. If that
    is more, ``over_budget`` tells.
    """

    most: int
    at_epochs: bool
    name: str = "trim_history"
    reason: str = "the oldest turn of more than fit"
    over: Over = "all"

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items without the oldest turns."""
        view = view.budgeted()
        total = sum(map(view.tokens, items))
        if total <= self.most:
            return items
        # What the user says between a call and its result begins no turn: the result would be left without its call.
        starts = pairing_of(items).whole_cuts(
            at for at, item in enumerate(items) if item.is_user and not _trim_history_stays(item)
        )
        dropped: set[int] = set()
        # What comes before the first message of the user is what a compaction has left of a turn: it goes first.
        for start, end in pairwise([*([0] if starts[:1] != [0] else []), *starts]):
            if total <= self.most:
                break
            turn = [at for at in range(start, end) if not _trim_history_stays(items[at])]
            dropped.update(turn)
            total -= sum(view.tokens(items[at]) for at in turn)
        made = [item for at, item in enumerate(items) if at not in dropped]
        if not self.at_epochs:
            view.tell_over(made, self.most, self.name)
        return made


def _trim_history_stays(item: Item) -> bool:
    return item.is_system or item.is_summary or item.is_pinned


@frozen
class TrimWarning:
    """Tells, once, that the context has come near the tokens it may take; it changes nothing."""

    most: int
    fraction: float
    name: str = "context_warning"
    reason: str = "warns"
    over: Over = "all"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items as they are."""
        sizes = [*map(view.budgeted().tokens, items)]
        # The request before this one ended before the newest answer: what it was told is not told again.
        last = next((at for at in range(len(items) - 1, -1, -1) if items[at].is_answer), 0)
        total = sum(sizes)
        if total / self.most >= self.fraction > sum(sizes[:last]) / self.most:
            view.tell("context_warning", f"{total:,} tokens have reached {self.fraction:.0%} of {self.most:,}")
        return items


# ---------------------------------------------------------------------------------------------------------------------
# A view of the last turns, each with the prompt that it answers.


@frozen
class TurnAge:
    """Keeps the last ``most`` turns that have an answer, and what was said after them."""

    most: int
    name: str = "max_turn_age"
    reason: str = "older than the turns of the view"
    over: Over = "history"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the end of the items; all of them if there are fewer turns."""
        return items[last_turns([_part(item) for item in items], self.most) :]


def _part(item: Item) -> TurnPart:
    # What a step before has left of a message belongs to the turn that the whole did.
    return part_in(item.message) if item.source is None else part_of(item.source.entry)
