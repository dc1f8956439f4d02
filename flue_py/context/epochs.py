"""When an epoch begins: from then on, steps that wait for one may rewrite what was there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flue_py.core.faithful import ASSISTANT
from flue_py.core.frozen import frozen
from flue_py.core.kinds import COMPACTION
from flue_py.core.projection import ContextEntry

_MICROSECONDS = 1_000_000


@frozen
class Rewritten:
    """One request, rewritten and as it would be otherwise, in tokens.

    ``tokens`` it has if it is rewritten, the first ``common`` of them as in the request before it. ``unedited`` it has
    otherwise, the first ``cached`` of them as in that.
    """

    tokens: int
    common: int
    unedited: int
    cached: int


@frozen
class EpochRules:
    """What begins an epoch beside a compaction: so many ``tokens`` more, where rewriting then ``pays``.

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
    """Return where the context ended when the epoch began: what was there then may be rewritten.

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
