"""What an agent is told in place of the history: the task, its own answers, what sources say, and what waits for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from flue_py.context.blocks.telling import TYPE_PREFIX
from flue_py.context.items import Item, added, plain_agent
from flue_py.context.settings import OWN_HISTORY, ContextSpec
from flue_py.context.sources.protocol import GatheredContext
from flue_py.context.steps.content import cut_to, text_length, text_parts, texts_only
from flue_py.context.steps.notes import with_address
from flue_py.context.steps.protocol import Over, View
from flue_py.context.steps.tail import is_correction
from flue_py.core.calls import outcome_of
from flue_py.core.frozen import frozen
from flue_py.core.kinds import CUSTOM_MESSAGE

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
