"""What an edit of a context would cost, and after how many calls it has paid for itself. Pure arithmetic.

A call reads the beginning of its request from the provider's cache, as far as that is the same as in the last request,
and processes the rest anew, which is written into the cache for the call after it. An edit pays a call or two more, for
a summary or for what the cache no longer has, and saves in every later call what it took out of the context.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from flue_py.core.frozen import frozen
from flue_py.core.usage import UsageTotals
from flue_py.prices.caches import CacheRules
from flue_py.prices.rates import ModelRates

EditKind: TypeAlias = Literal["compact", "rewind", "exclude", "fork", "resume"]
NeverPays: TypeAlias = Literal["nothing_to_do", "no_edit", "price_unknown", "saves_nothing", "dearer_later"]
"""Why an edit never pays for itself:

- ``nothing_to_do``: there is nothing to compact, or nothing that changes the context
- ``no_edit``: a fork or a resumption takes nothing out of a session; what it costs is in the plan
- ``price_unknown``: the prices of the model are not known
- ``saves_nothing``: it costs something, and later calls are no cheaper
- ``dearer_later``: the next call is cheaper, and the later ones are dearer
"""


@frozen
class CallSize:
    """The tokens of one call: read from the cache, processed anew and written into it, processed only, and answered."""

    cache_read: int = 0
    cache_write: int = 0
    input: int = 0
    output: int = 0

    @property
    def request(self) -> int:
        """The tokens of the request."""
        return self.cache_read + self.cache_write + self.input

    @property
    def totals(self) -> UsageTotals:
        """The same as usage, by which prices are found."""
        return UsageTotals(self.input, self.output, self.cache_read, self.cache_write, self.request + self.output)


@frozen
class CallPrice:
    """What one call costs, by kind of token, in picodollars (1e-12 US dollars)."""

    cache_read: int
    cache_write: int
    input: int
    output: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.cache_read + self.cache_write + self.input + self.output


@frozen
class EditPrice:
    """What an edit costs and saves, in picodollars.

    ``edit`` is the call that makes a summary, None where there is none. ``next_call`` is the request of the call after
    the edit, ``next_unedited`` that of the same call without the edit; answers are left out, since they cost the same.
    ``later_call`` and ``later_unedited`` are what the same context costs in each call after that, read from the cache.
    """

    edit: CallPrice | None
    next_call: CallPrice
    next_unedited: CallPrice
    later_call: CallPrice
    later_unedited: CallPrice

    @property
    def extra(self) -> int:
        """What the edit and the next call cost more than that call alone would; below 0, if they cost less."""
        edit = 0 if self.edit is None else self.edit.total
        return edit + self.next_call.total - self.next_unedited.total

    @property
    def saved_per_call(self) -> int:
        """What each later call costs less."""
        return self.later_unedited.total - self.later_call.total


@frozen
class EditPlan:
    """What an edit would do to the next request, and what it costs. Nothing has been changed.

    ``tokens_before`` and ``tokens_after`` are the sizes of the next request without the edit and with it, as
    ``counter`` counts (``is_estimate``: it does not have the model's own vocabulary, or a summary is yet to be
    written); the system prompt and the tools are in them only if they were given. Of ``tokens_after``, ``kept`` are
    read from the provider's cache and ``rewritten`` are processed anew; ``kept_unedited`` is the same without the edit.
    ``common_items`` is how many items of the context stay as they were last sent. ``is_warm`` says whether the last
    request is taken to be in the cache still. ``summary_call`` is the call that makes a summary, None for none.

    ``price`` is None where a price is not known. ``turns_to_pay`` is the number of calls after which the edit has cost
    no more than doing without it: 1 if it is cheaper at once; None if that is never so, and ``never`` says why.
    """

    kind: EditKind
    leaf_id: str | None
    model: str | None
    provider: str | None
    counter: str
    is_estimate: bool
    is_warm: bool
    common_items: int
    tokens_before: int
    tokens_after: int
    kept: int
    kept_unedited: int
    summary_call: CallSize | None
    price: EditPrice | None
    turns_to_pay: int | None
    never: NeverPays | None

    @property
    def rewritten(self) -> int:
        """The tokens of the next request that are processed anew."""
        return self.tokens_after - self.kept

    @property
    def tokens_saved(self) -> int:
        """How many tokens the request gets shorter; below 0, if it gets longer."""
        return self.tokens_before - self.tokens_after


RatesFor: TypeAlias = Callable[[UsageTotals], ModelRates | None]
"""Returns the prices that hold for a call of such a size; None where they are not known."""


def next_request(tokens: int, prefix: int, rules: CacheRules, *, is_warm: bool) -> CallSize:
    """Return how a request is read that has its first ``prefix`` tokens in common with the last one."""
    kept = rules.kept(prefix) if is_warm else 0
    return CallSize(kept, tokens - kept)


def summary_call(request: CallSize, prompt: int, output: int) -> CallSize:
    """Return the call that asks for a summary by the next request and a prompt behind it."""
    return CallSize(request.cache_read, 0, request.cache_write + prompt, output)


def price_edit(
    edit: CallSize | None, after: CallSize, unedited: CallSize, rules: CacheRules, rates_for: RatesFor
) -> EditPrice | None:
    """Return what an edit costs and saves; None where a price is not known."""
    later, later_unedited = (
        next_request(each.request, each.request, rules, is_warm=True) for each in (after, unedited)
    )
    prices = [price_call(size, rates_for) for size in (after, unedited, later, later_unedited)]
    paid = None if edit is None else price_call(edit, rates_for)
    known = [price for price in prices if price is not None]
    if len(known) < len(prices) or (edit is not None and paid is None):
        return None
    return EditPrice(paid, *known)


def price_call(size: CallSize, rates_for: RatesFor) -> CallPrice | None:
    """Return what a call costs, each kind rounded half up; None where a price is not known."""
    rates = rates_for(size.totals)
    if rates is None:
        return None

    def cost(tokens: int, price: int) -> int:
        return (2 * tokens * price + rates.scale) // (2 * rates.scale)

    return CallPrice(
        cost(size.cache_read, rates.cache_read),
        cost(size.cache_write, rates.cache_write),
        cost(size.input, rates.input),
        cost(size.output, rates.output),
    )


def turns_to_pay(price: EditPrice | None) -> tuple[int | None, NeverPays | None]:
    """Return after how many calls an edit has paid for itself, or None and why it never does."""
    if price is None:
        return None, "price_unknown"
    extra, saved = price.extra, price.saved_per_call
    if extra <= 0:
        return (1, None) if saved >= 0 else (None, "dearer_later")
    if saved <= 0:
        return None, "saves_nothing"
    # The first call after the edit has paid the extra; each one after it saves.
    return 1 - (-extra // saved), None
