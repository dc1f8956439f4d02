"""What one agent is sent: the context, through the steps of its settings, as a provider takes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flue_py.context.choosing import steps_of
from flue_py.context.counters import ModelCounter
from flue_py.context.items import Item
from flue_py.context.pipeline import run_steps
from flue_py.context.report import ContextReport
from flue_py.context.settings import AgentContext
from flue_py.context.sources.protocol import NOTHING_GATHERED, GatheredContext
from flue_py.context.steps.protocol import Step, View
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.projection import ContextEntry
from flue_py.core.shapes import Shape
from flue_py.wire.leftovers import Repair
from flue_py.wire.lists.said import Said, said_of
from flue_py.wire.requests import wire_request
from flue_py.wire.rules import Broken


@frozen
class ContextRequest:
    """What one agent is sent of a session.

    ``messages`` are as the target takes them, or ours where that is None; ``system`` is what a request has beside them,
    None where that is nothing or stands among the messages. ``report`` is what the steps of the settings did;
    ``repairs`` say what was left out or changed after that, so that the provider takes it, with the entry of each.
    ``broken`` are the rules that the request breaks all the same, () if it breaks none that is known.
    """

    target: Shape | None
    messages: list[JsonObject]
    system: JsonValue
    report: ContextReport
    repairs: tuple[Repair, ...]
    broken: tuple[Broken, ...]

    @property
    def tokens(self) -> int:
        """How many tokens the steps have left, by the counter that the report names. Repairs come after that."""
        return self.report.tokens_after


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
    gathered: GatheredContext = NOTHING_GATHERED,
) -> ContextRequest:
    """Return the request of a target for a context, through the steps of the settings, and ``steps`` after them.

    Without a target the messages are ours, and nothing of them is repaired. ``gathered`` is what the sources of the
    settings have to say.
    ``model`` and ``account`` are as in `wire_request`. Raises `InvalidArgument`. O(size).
    """
    piped = run_steps(
        context, [*steps_of(settings, gathered), *steps], View(agent, counter), epoch_tokens=settings.epoch_tokens
    )
    if target is None:
        return ContextRequest(None, [item.message for item in piped.items], None, piped.report, (), ())
    sent = wire_request(target, _said(piped.items), model=model, account=account)
    return ContextRequest(sent.target, sent.messages, sent.system, piped.report, sent.repairs, sent.broken)


def _said(items: Sequence[Item]) -> Iterator[Said]:
    for item in items:
        if item.how is None and item.source is not None:
            yield said_of(item.source, item.message)
        else:
            yield Said(item.message, entry_id=item.entry_id)
