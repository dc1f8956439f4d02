"""From the context to the request of one agent: steps, one after the other, and a report of their changes.

    pipeline = run_steps(items, steps_of(settings), View(agent, counter), epoch_tokens=settings.epoch_tokens)

Steps take and return items; changes are found by comparing the two. Some are given only the messages before the turn
that is in progress, some only that turn. Steps that rewrite messages which were sent before are given the context as it
was at the beginning of the epoch, so that they give the same until the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import TypeAlias

from flue_py.context.items import ContextChange, ContextReport, Item, Step, StepReport, View, as_parts, plain_agent
from flue_py.context.tokens import ENTRY_COUNTS, Remembered
from flue_py.core.context import ContextEntry
from flue_py.core.entries import answered_id, called_ids
from flue_py.core.json import Frozen
from flue_py.core.kinds import ASSISTANT, COMPACTION
from flue_py.errors import InvalidArgument, shown

# ---------------------------------------------------------------------------------------------------------------------
# When an epoch begins: from then on, steps that wait for one may rewrite what was there.

_MICROSECONDS = 1_000_000


class Rewritten(Frozen):
    """One request, rewritten and as it would be otherwise, in tokens.

    ``tokens`` it has if it is rewritten, the first ``common`` of them as in the request before it. ``unedited`` it has
    otherwise, the first ``cached`` of them as in that.
    """

    tokens: int
    common: int
    unedited: int
    cached: int


class EpochRules(Frozen):
    """The conditions for an epoch beside a compaction: so many ``tokens`` more, if rewriting then ``pays``.

    None stands for always. A request whose last call is more than ``cold_seconds`` ago begins one, too, since a cache
    has nothing of it any longer; by the stored times alone, so that later requests find the same. None is for never.
    """

    tokens: int
    cold_seconds: int | None = None
    pays: Callable[[Rewritten], bool] | None = None


def epoch_end(
    context: Sequence[ContextEntry],
    sizes: Sequence[int],
    rules: EpochRules,
    rewritten: Callable[[int, int, int], Rewritten],
) -> int:
    """Return where the context ended when the epoch began: messages before that may be rewritten.

    An epoch begins at a compaction, and with the first request for which the context has grown by so many tokens
    since, or whose last call is long ago. Requests were made before each answer, and are made at the end.
    ``rewritten`` returns a request that ends at a place, for an epoch that goes on from another and one that begins.
    O(items), and its cost where rewriting has to pay.
    """
    compaction = max((item.entry.depth for item in context if item.entry.kind == COMPACTION), default=-1)
    end = next((at for at, item in enumerate(context) if item.entry.depth > compaction), len(context))
    grown, due, called_us = 0, rules.tokens, None
    are_answers = [item.role == ASSISTANT for item in context]
    for at in range(end, len(context) + 1):
        is_request = at == len(context) or are_answers[at]
        if is_request and at > end and _is_cold(context[at - 1], called_us, rules):
            end, due = at, (grown // rules.tokens + 1) * rules.tokens
        elif is_request and grown >= due:
            if rules.pays is None or rules.pays(rewritten(at, end, at)):
                end = at
            due = (grown // rules.tokens + 1) * rules.tokens
        if at < len(context):
            grown += sizes[at]
            if are_answers[at]:
                called_us = context[at].entry.created_us
    return end


def _is_cold(last: ContextEntry, called_us: int | None, rules: EpochRules) -> bool:
    """Return whether a request that ends with an item came so long after the last call."""
    if rules.cold_seconds is None or called_us is None:
        return False
    return last.entry.created_us - called_us > rules.cold_seconds * _MICROSECONDS


# ---------------------------------------------------------------------------------------------------------------------
# The sizes of requests if an epoch began with them, and if none did, by the steps that wait for one.
#
# Whether rewriting pays is asked for every place of a context where an epoch might have begun, again in each request.
# What was found is remembered in the process: the request after it asks for what has come since. A memory that has
# nothing yet finds the same, from the context alone.

MOST_REMEMBERED = 50_000
"""How many requests are remembered. All of them take some 20 MB."""

Waiting: TypeAlias = Callable[[Sequence[Item]], Sequence[Item]]
"""Returns what the steps that wait make of messages that are all there when an epoch begins."""


FORESEEN: Remembered[Hashable, Rewritten] = Remembered(MOST_REMEMBERED)
"""What all sessions of the process share."""


class Foresight:
    """The sizes of requests that end at a place of one context, for `epoch_end`."""

    def __init__(
        self,
        context: Sequence[ContextEntry],
        whole: Sequence[Item],
        steps: Sequence[Step],
        view: View,
        waiting: Waiting,
    ) -> None:
        self._context = context
        self._given = whole
        self._view = view
        self._waiting = waiting
        self._asked: Hashable = (
            (view.counter.name, view.agent, view.addresses, tuple(steps)) if _are_values(steps) else None
        )
        self._marks: list[int] = []
        self._made: dict[int, Sequence[Item]] = {}

    def __call__(self, at: int, end: int, begins: int) -> Rewritten:
        """Return a request that ends ``at`` a place, for the epoch that ends at ``end`` and one that ``begins``.

        O(1) if it was made before, else O(at) and the cost of the steps.
        """
        if self._asked is None:
            return self._made_anew(at, end, begins)
        self._marks = self._marks or [*accumulate(map(hash, self._context), lambda *both: hash(both), initial=0)]
        key = (self._asked, at, end, begins, self._marks[at])
        request = FORESEEN.get(key)
        if request is None:
            request = FORESEEN.keep(key, self._made_anew(at, end, begins))
        return request

    def _made_anew(self, at: int, end: int, begins: int) -> Rewritten:
        # Only these two are asked for again: one of them is where the next request begins.
        self._made = {epoch: self._begun(epoch) for epoch in (begins, end)}
        after, unedited = ([*self._made[epoch], *self._given[epoch:at]] for epoch in (begins, end))
        same = next(_differing(after, unedited), min(len(after), len(unedited)))
        sent = next((place for place in range(len(unedited) - 1, -1, -1) if unedited[place].is_answer), 0)
        sizes, others = [*map(self._view.tokens, after)], [*map(self._view.tokens, unedited)]
        return Rewritten(sum(sizes), sum(others[: min(same, sent)]), sum(others), sum(others[:sent]))

    def _begun(self, epoch: int) -> Sequence[Item]:
        remembered = self._made.get(epoch)
        return self._waiting(self._given[:epoch]) if remembered is None else remembered


def _are_values(steps: Sequence[Step]) -> bool:
    """Return whether steps that are equal do the same: they are frozen values, not objects that may change."""
    try:
        hash(tuple(steps))
    except TypeError:
        return False
    return all(type(step).__hash__ is not object.__hash__ for step in steps)


def _differing(after: Sequence[Item], unedited: Sequence[Item]) -> Iterator[int]:
    for place, (new, old) in enumerate(zip(after, unedited, strict=False)):
        if new is not old and (new.place != old.place or new.message != old.message):
            yield place


# ---------------------------------------------------------------------------------------------------------------------
# Running the steps.


class Piped(Frozen):
    """The items for the request, in order, and the report."""

    items: Sequence[Item]
    report: ContextReport


def run_steps(
    context: Sequence[ContextEntry],
    steps: Iterable[Step],
    view: View,
    *,
    epoch_tokens: int = 0,
    rules: EpochRules | None = None,
) -> Piped:
    """Return the items that the steps leave of a context, and a report. Without ``rules`` an epoch is of
    ``epoch_tokens``.

    Raises `InvalidArgument` for a step that returns something else than items. O(items) without steps, and the cost
    of each step.
    """
    steps = [*steps]
    rules = rules or EpochRules(epoch_tokens)
    whole_items = [Item(entry, place) for place, entry in enumerate(context)]
    sizes, whole = ENTRY_COUNTS.each_and_all(context, view.counter)
    view.note_sizes(whole_items, sizes)
    waiting = [step for step in steps if step.at_epochs]
    end = len(whole_items)
    if waiting and rules.tokens:
        # What they tell belongs to a request that may never be made.
        aside = view.aside()
        foresight = Foresight(context, whole_items, waiting, aside, partial(_waited, waiting, aside))
        end = epoch_end(context, sizes, rules, foresight)
    turns = turn_start(whole_items[:end], view.agent), turn_start(whole_items, view.agent)
    current: Sequence[Item] = whole_items
    reports: list[StepReport] = []
    for step in steps:
        current, inside, returned = _applied(step, current, (end, len(whole_items)), turns, view)
        reports.append(StepReport(step.name, step.reason, tuple(_changes(step.name, inside, returned, view))))
    report = ContextReport(
        tuple(reports),
        tuple(view.events),
        whole.tokens,
        whole.tokens - sum(step.tokens_freed for step in reports),
        view.counter.name,
        whole.is_estimate,
        view.agent,
        whole_items[end - 1].entry_id if end and waiting else None,
    )
    return Piped(current, report)


def _applied(
    step: Step, items: Sequence[Item], ends: tuple[int, int], turns: tuple[int, int], view: View
) -> tuple[Sequence[Item], Sequence[Item], Sequence[Item]]:
    """Return the items after a step, those that it was given, and those that it returned.

    ``ends`` is where the epoch ends and the context does, ``turns`` where the turn begins by either.
    """
    end, turn = (ends[0], turns[0]) if step.at_epochs else (ends[1], turns[1])
    low, high = turn if step.over == "turn" else 0, min(end, turn) if step.over == "history" else end
    first, last = _index(items, low) if low else 0, len(items) if high == ends[1] else _index(items, high)
    # A list could be changed in place, and then nothing would differ from what the step was given.
    inside = tuple(items[first:last])
    returned = _items(step, inside, step.apply(inside, view))
    return [*items[:first], *returned, *items[last:]], inside, returned


def _waited(steps: Sequence[Step], view: View, items: Sequence[Item]) -> Sequence[Item]:
    """Return messages after the steps that wait, if all of them are there when an epoch begins."""
    at = len(items)
    turn = turn_start(items, view.agent)
    current = items
    for step in steps:
        current = _applied(step, current, (at, at), (turn, turn), view)[0]
    return current


def turn_in(context: Sequence[ContextEntry], agent: str | None) -> int:
    """Return where in a context the turn begins that is in progress, as `turn_start`. O(items)."""
    return turn_start([Item(entry, place) for place, entry in enumerate(context)], agent)


def turn_start(items: Sequence[Item], agent: str | None) -> int:
    """Return where the turn begins that is in progress: the answers and results after the last message of the user.

    With ``agent``, answers of another one do not belong to it. It is in progress if the model still has to say
    something about a tool: else there is none, and the end is returned. A result of it has its call in it, also where
    the user said something between the two. O(turn), and O(size) where that is so.
    """
    if not items or not (items[-1].is_result or items[-1].calls):
        return len(items)
    start = first = len(items)
    for at in range(len(items) - 1, -1, -1):
        item = items[at]
        if item.is_answer and _is_of(item, agent):
            start = at
        elif not item.is_result:
            break
        first = at
    caller = _caller(items, first, agent)
    return start if caller is None else caller


def _is_of(item: Item, agent: str | None) -> bool:
    return not agent or not item.agent or item.agent.casefold() == plain_agent(agent)


def _caller(items: Sequence[Item], first: int, agent: str | None) -> int | None:
    """Return where the first call is that a result from ``first`` on answers; None if none lies before that."""
    caller: int | None = None
    wanted: set[str] = set()
    passed: set[str] = set()
    for at in range(len(items) - 1, -1, -1):
        item = items[at]
        if at < first and not wanted:
            break
        if item.is_result and (call_id := answered_id(item.message)) is not None:
            # What repeats an answer from before belongs to no turn.
            if at >= first:
                wanted.add(call_id)
            else:
                wanted.discard(call_id)
                passed.add(call_id)
        elif item.is_answer:
            called = set(called_ids(item.message))
            if at < first and called & wanted and _is_of(item, agent):
                caller = at
                wanted, passed = wanted | passed, set()
            wanted -= called
            passed -= called
    return caller


def _index(items: Sequence[Item], place: int) -> int:
    """Return where the first item at a place of the context or behind it is; items that steps added go before it."""
    return next((at for at, item in enumerate(items) if item.place is not None and item.place >= place), len(items))


def checked_step(step: Step) -> Step:
    """Return a step. Raises `InvalidArgument` for a value that lacks a part of one."""
    has_texts = all(isinstance(getattr(step, name, None), str) for name in ("name", "reason"))
    over = getattr(step, "over", None)
    is_step = has_texts and over in ("all", "history", "turn") and isinstance(getattr(step, "at_epochs", None), bool)
    if not is_step or not callable(getattr(step, "apply", None)):
        needs = "name, reason, over ('all', 'history' or 'turn'), at_epochs and apply"
        raise InvalidArgument(f"steps: {shown(step)} is not a step, which has {needs}")
    return step


def _items(step: Step, inside: Sequence[Item], returned: Sequence[Item]) -> Sequence[Item]:
    if returned is inside:
        return returned
    if (
        isinstance(returned, (str, bytes))
        or not isinstance(returned, Sequence)
        or not all(isinstance(candidate, Item) for candidate in returned)
    ):
        raise InvalidArgument(f"the step {step.name!r} should return a list of items, not {shown(returned)}")
    places = [item.place for item in returned if item.place is not None]
    places_inside = {item.place for item in inside}
    is_ordered = all(before < after for before, after in pairwise(places)) and places_inside.issuperset(places)
    if not is_ordered or len({id(item) for item in returned}) < len(returned):
        raise InvalidArgument(f"the step {step.name!r} should return items that it was given, in order, each once")
    return [*returned]


def _changes(name: str, before: Sequence[Item], after: Sequence[Item], view: View) -> Iterator[ContextChange]:
    """Yield the changes between the items that a step was given and those it returned."""
    if before is after:
        return
    left: dict[int | None, Item] = {item.place: item for item in after if item.place is not None}
    inside: dict[int | None, Item] = {
        part.place: item for item in after for part in item.made_of if part.place is not None
    }
    same = {id(item) for item in after}
    for item in before:
        left_item = left.get(item.place)
        if id(item) in same:
            continue
        if left_item is not None:
            yield ContextChange(
                name, item.entry_id, left_item.how or "replaced", view.tokens(item), view.tokens(left_item)
            )
        elif item.place in inside:
            yield ContextChange(name, item.entry_id, "merged", view.tokens(item), 0, inside[item.place].entry_id)
        else:
            yield ContextChange(name, item.entry_id, "dropped", view.tokens(item), 0)
        if item.made_of:
            yield from _changes_within(name, item, left_item or inside.get(item.place))
    ids_before = {id(item) for item in before}
    for item in after:
        if item.place is None and id(item) not in ids_before:
            yield ContextChange(name, None, "added", 0, view.tokens(item))


def _changes_within(name: str, item: Item, whole: Item | None) -> Iterator[ContextChange]:
    """Yield the changes of messages that were merged into one before, with which their tokens count."""
    parts = [] if whole is None else as_parts(whole.message)
    for merged in item.made_of[1:]:
        if whole is None:
            yield ContextChange(name, merged.entry_id, "dropped", 0, 0)
        elif not all(part in parts for part in as_parts(merged.message)):
            yield ContextChange(name, merged.entry_id, whole.how or "replaced", 0, 0, whole.entry_id)
