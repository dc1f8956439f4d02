"""What one agent is sent: the context, through the steps of its settings, as a provider takes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import compress

from flue_py.context.choosing import steps_of
from flue_py.context.counters import ENTRY_COUNTS, ModelCounter
from flue_py.context.differing import PrefixBreak, prefix_break
from flue_py.context.epochs import EpochRules
from flue_py.context.items import Item
from flue_py.context.measuring import texts_of
from flue_py.context.pipeline import Piped, run_steps
from flue_py.context.provider import editing_of, expected_editing
from flue_py.context.report import ContextReport
from flue_py.context.settings import AgentContext
from flue_py.context.sources.protocol import NOTHING_GATHERED, GatheredContext
from flue_py.context.steps.protocol import Step, View
from flue_py.core.bound import PRODUCED_UNDER
from flue_py.core.frozen import changed, frozen
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.projection import ContextEntry
from flue_py.core.shapes import Shape
from flue_py.errors import InvalidArgument, shown
from flue_py.wire.bound import bound_signatures, prefix_digest, without_stale_reasoning
from flue_py.wire.leftovers import Leftovers, Repair
from flue_py.wire.lists.said import Said, said_of
from flue_py.wire.marks import CacheMarks
from flue_py.wire.requests import wire_request
from flue_py.wire.rules import Broken


@frozen
class ContextRequest:
    """What one agent is sent of a session.

    ``messages`` are as the target takes them, or ours where that is None; ``system`` is what a request has beside them,
    None where that is nothing or stands among the messages. ``report`` is what the steps of the settings did;
    ``repairs`` say what was left out or changed after that, so that the provider takes it, with the entry of each.
    ``broken`` are the rules that the request breaks all the same, () if it breaks none that is known. ``tools`` are
    those that were given, marked where the settings ask for it, and ``tokens_beside`` is how many tokens they take
    together with the ``system`` that was given, and ``tokens_repaired`` how many the repairs leave out of the request,
    without those that they put into it. ``items`` are the messages of ours that all of it was made of;
    without a target, those of ``messages``, one for each.
    ``extra`` are further fields of the request by which the provider is asked to leave something out itself, and
    ``betas`` are those that it has to name for that.
    """

    target: Shape | None
    messages: list[JsonObject]
    system: JsonValue
    report: ContextReport
    repairs: tuple[Repair, ...]
    broken: tuple[Broken, ...]
    tools: tuple[JsonObject, ...] = ()
    tokens_beside: int = 0
    items: tuple[Item, ...] = field(default=(), compare=False, repr=False)
    extra: JsonObject = field(default_factory=dict)
    betas: tuple[str, ...] = ()
    tokens_repaired: int = 0

    def break_since(self, before: ContextRequest) -> PrefixBreak | None:
        """Return the first thing that is not as it was in an earlier request of the session, and what made it differ.

        None if this one begins with all bytes of that one, so that a provider can read them from its cache. Raises
        `InvalidArgument` for what is not a request. O(size).
        """
        if not isinstance(before, ContextRequest):
            raise InvalidArgument(f"before: {shown(before)} is not what session.request returns")
        return prefix_break(before, self)

    @property
    def tokens(self) -> int:
        """How many tokens the request takes, by the counter that the report names: its messages, and what is beside.

        That is what the steps and the repairs have left of the messages of ours. How a provider wraps and joins them
        is not known, so that it is an estimate where there are repairs (`is_estimate`).
        """
        return self.tokens_sent + self.tokens_beside

    @property
    def tokens_sent(self) -> int:
        """How many of the `tokens` the messages take."""
        return self.report.tokens_after - self.tokens_repaired

    @property
    def is_estimate(self) -> bool:
        """Whether `tokens` is an estimate: that of the report is, or something was repaired."""
        return self.report.is_estimate or bool(self.repairs)

    @property
    def prefix_digest(self) -> str:
        """What the answer is produced under: a digest of target, system, tools and messages, as they are now.

        It goes with the answer, as ``produced_under`` of `Session.append_message`. O(size).
        """
        return prefix_digest(self.target, self.messages, self.system, self.tools)


def context_request(
    context: Sequence[ContextEntry],
    target: str | None,
    settings: AgentContext,
    counter: ModelCounter,
    *,
    agent: str | None = None,
    steps: Sequence[Step] = (),
    model: str | None = None,
    account: str | None = None,
    system: str | None = None,
    tools: Sequence[JsonObject] = (),
    gathered: GatheredContext = NOTHING_GATHERED,
    rules: EpochRules | None = None,
) -> ContextRequest:
    """Return the request of a target for a context, through the steps of the settings, and ``steps`` after them.

    Without a target the messages are ours, and nothing of them is repaired, but stale reasoning is left out.
    ``system`` and ``tools`` are what is sent beside the messages, ``gathered`` is what the sources of the settings have
    to say. ``rules`` say when an epoch begins, by default the settings alone. ``model`` and ``account`` are as in
    `wire_request`.
    Raises `InvalidArgument`, and `InvalidEntry` for tools that are not JSON. O(size).
    """
    view = View(agent, counter)
    chosen = [*steps_of(settings, gathered), *steps]
    piped = run_steps(context, chosen, view, rules=rules or EpochRules(settings.epoch_tokens))
    beside = ENTRY_COUNTS.tally_texts([*([system] if system else ()), *texts_of(tools)], counter).tokens
    if target is None:
        made = _ours(piped, system, tools, keeps_stale=settings.keep_stale_reasoning)
        freed = _tokens_repaired(made.repairs, counter)
        return changed(made, tokens_beside=beside, tokens_repaired=freed)
    told = [Said({"role": "system", "content": system})] if system else []
    sent = wire_request(
        target,
        [*told, *_said(piped.items)],
        model=model,
        account=account,
        tools=tools,
        keeps_stale_reasoning=settings.keep_stale_reasoning,
        cache_marks=_marks(settings, piped.report),
    )
    asked = settings.provider_editing
    editing = editing_of(sent.target, asked)
    cleared = expected_editing(sent.target, asked, piped.items, view, beside)
    return ContextRequest(
        sent.target,
        sent.messages,
        sent.system,
        piped.report if cleared is None else piped.report.with_step(cleared, view.events),
        sent.repairs,
        sent.broken,
        sent.tools,
        beside,
        tuple(piped.items),
        editing.extra,
        editing.betas,
        _tokens_repaired(sent.repairs, counter),
    )


def _tokens_repaired(repairs: Sequence[Repair], counter: ModelCounter) -> int:
    """Return how many tokens repairs leave out, without those that they put in. O(size of that)."""
    return sum(
        sum(_tokens_of(lost, counter) for lost in repair.lost) - sum(_tokens_of(put, counter) for put in repair.put)
        for repair in repairs
    )


def _tokens_of(held: JsonObject, counter: ModelCounter) -> int:
    """Return how many tokens a message takes, or a part of one."""
    if "role" in held:
        return counter.count(held)
    if held.get("type") not in ("text", "thinking"):
        return counter.count({"content": [held]}) - counter.count({"content": []})
    return ENTRY_COUNTS.count_message({"content": [held]}, counter) - counter.count({"content": []})


def _marks(settings: AgentContext, report: ContextReport) -> CacheMarks | None:
    asked = settings.cache_breakpoints
    return None if asked is None else CacheMarks(asked.count, asked.ttl, report.epoch_end)


def _ours(piped: Piped, system: str | None, tools: Sequence[JsonObject], *, keeps_stale: bool) -> ContextRequest:
    items = piped.items
    messages = [item.message for item in items]
    left = Leftovers()
    if not keeps_stale:
        answers = (item for item in items if item.is_answer)
        bound = bound_signatures(Said(_still_bound(item), entry_id=item.entry_id) for item in answers)
        if bound:
            kept = without_stale_reasoning(None, messages, system, tools, bound, left)
            messages, items = kept.messages, [*compress(items, kept.are_sent)]
    repairs, beside = tuple(left.repairs), tuple(tools)
    return ContextRequest(None, messages, system or None, piped.report, repairs, (), beside, items=tuple(items))


def _said(items: Sequence[Item]) -> Iterator[Said]:
    for item in items:
        if item.how is None and item.source is not None:
            yield said_of(item.source, item.message)
        else:
            yield Said(_still_bound(item), entry_id=item.entry_id)


def _still_bound(item: Item) -> JsonObject:
    """Return the message that a step made, with what the answer behind it was produced under."""
    is_whole = item.how is None or PRODUCED_UNDER in item.message
    if is_whole or item.source is None or not item.is_answer:
        return item.message
    told = item.source.data.get(PRODUCED_UNDER)
    return item.message if told is None else {**item.message, PRODUCED_UNDER: told}
