"""The calls behind one entry, and what they report together: for answers and summaries that several calls made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

from flue_py.core.calls import (
    RESPONSE_ID,
    PaidCall,
    agent_of,
    by_model,
    call_of,
    ledger_name,
    outcome_of,
    read_calls,
    read_steps,
    with_searches,
)
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.usage import NO_USAGE, TOO_LARGE, SumTooLarge, Usage, UsageTotals
from flue_py.core.usage_shapes import ReportedUsage, merged_terms, read_reported, terms_beside, with_words_for_numbers
from flue_py.errors import InvalidEntry


class PaidFor(NamedTuple):
    """What an entry took: its calls, the usage that its payload keeps, and what that adds to a path."""

    calls: tuple[PaidCall, ...]
    reported: JsonObject | None
    totals: UsageTotals
    oddities: tuple[str, ...]
    counted: bool = True


def paid_for(usage: Mapping[str, JsonValue] | None, calls: Sequence[Mapping[str, JsonValue]], purpose: str) -> PaidFor:
    """Return the calls that made an entry, and what they report together.

    ``usage`` is their sum; without it the sum is made, and without calls it is the only one. ``calls`` are usage
    objects, which may carry ``provider``, ``model`` and ``callId``. Raises `InvalidEntry`.
    """
    if usage is not None and not isinstance(usage, Mapping):
        raise InvalidEntry(f"usage: should be an object, not {type(usage).__name__}")
    paid = read_calls(calls, "calls", purpose)
    words = with_words_for_numbers(None if usage is None else dict(usage), "usage")
    kept = with_words_for_numbers([dict(call) for call in calls], "calls")
    odd = (*words[1], *kept[1])
    if usage is not None:
        usage = cast("Mapping[str, JsonValue]", words[0])
        # The sum of several calls is read like one call. It is not counted as a call if the calls are named.
        whole = read_reported(usage, "usage")
        return PaidFor(
            paid or read_steps(usage, "usage", purpose), dict(usage), whole.totals, all_oddities(odd, whole.oddities)
        )
    if not paid:
        return PaidFor((), None, NO_USAGE, ())
    told = cast("Sequence[Mapping[str, JsonValue]]", kept[0])
    oddities = [odd for number, call in enumerate(told) for odd in read_reported(call, f"calls[{number}]").oddities]
    kept_calls: JsonObject = {"calls": [dict(call) for call in told]}
    # If the usage of all of them is unknown, there is no sum: they are kept as they were reported.
    reported = kept_calls if all(call.is_unknown for call in paid) else _summed_json(paid)
    # What the payload says is what counts: dollars as JSON numbers can be a hair off the sum.
    whole = read_reported(reported)
    if reported is None or whole.oddities:
        # An answer that was paid for is kept, even if its numbers are too large.
        return PaidFor(paid, kept_calls, NO_USAGE, (*all_oddities(odd, oddities), f"calls: {TOO_LARGE}"), counted=False)
    return PaidFor(paid, reported, whole.totals, all_oddities(odd, oddities))


def calls_of_answer(reported: ReportedUsage, message: Mapping[str, JsonValue]) -> tuple[PaidCall, ...]:
    """Return the call that an assistant message is the answer of: its provider's id of it is the message's.

    Where other models took part in it, and their steps are reported, each of those is a call of its own.
    """
    call = call_of(
        reported,
        provider=message.get("provider"),
        model=message.get("model"),
        call_id=message.get(RESPONSE_ID),
        outcome=outcome_of(message.get("stopReason")),
        agent=agent_of(message),
    )
    return by_model(call, reported)


def answered_calls(calls: Sequence[PaidCall], message: Mapping[str, JsonValue]) -> tuple[PaidCall, ...]:
    """Return the calls behind an assistant message: what they do not say is taken from it.

    Its stop reason is that of the last one.
    """
    provider, model = ledger_name(message.get("provider")), ledger_name(message.get("model"))
    agent, outcome = agent_of(message), outcome_of(message.get("stopReason"))
    beside = terms_beside(message)
    return tuple(
        replace(
            call,
            provider=call.provider or provider,
            model=call.model or model,
            terms=merged_terms(beside, with_searches(call.terms, call.provider or provider, call.model or model)),
            agent=call.agent or agent,
            outcome=call.outcome or (outcome if number == len(calls) else None),
        )
        for number, call in enumerate(calls, 1)
    )


def all_oddities(kept: Sequence[str], read: Sequence[str]) -> tuple[str, ...]:
    """Return oddities of what is kept as text and of what was read, one for each place."""
    if not kept:
        return tuple(read)
    places = {odd.partition(": ")[0] for odd in kept}
    return (*kept, *(odd for odd in read if odd.partition(": ")[0] not in places))


def _summed_json(paid: Sequence[PaidCall]) -> JsonObject | None:
    """Return a sum of calls as the payload keeps it: the kinds of tokens, and the cost, that some of them reported.

    None if it leaves the stored range.
    """
    total = NO_USAGE
    try:
        for call in paid:
            total = total.plus(call.usage)
    except SumTooLarge:
        return None
    told = frozenset[str]().union(*(call.told for call in paid))
    known = Usage.from_totals(total).known(told)
    whole = Usage.from_totals(total).to_json()
    summed = {name: each for name, each in whole.items() if known.get(name, each) is not None}
    return summed if any(call.known_cost is not None for call in paid) else {**summed, "cost": None}
