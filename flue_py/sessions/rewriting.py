"""Whether rewriting a context pays: by the prices of the model, and by what its provider's cache keeps."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flue_py.core.calls import PaidCall
from flue_py.core.usage import UsageTotals
from flue_py.lazy import lazy_module
from flue_py.prices.book import CallPricer

if TYPE_CHECKING:
    from flue_py.context import epochs
    from flue_py.context.epochs import EpochRules, Rewritten
    from flue_py.context.settings import AgentContext
    from flue_py.prices import caches, weighing
    from flue_py.prices.caches import CacheRules
    from flue_py.prices.rates import ModelRates
else:
    epochs = lazy_module("flue_py.context.epochs")
    caches = lazy_module("flue_py.prices.caches")
    weighing = lazy_module("flue_py.prices.weighing")

_AN_HOUR = 3_600


def epoch_rules(settings: AgentContext, model: str | None, provider: str | None, pricer: CallPricer) -> EpochRules:
    """Return when an epoch begins for a model. Where its price is not known, rewriting does not have to pay."""
    asked = settings.rewriting
    if asked is None:
        return epochs.EpochRules(settings.epoch_tokens)
    rules = caches.cache_rules(model, provider)
    marks = settings.cache_breakpoints
    kept = _AN_HOUR if marks is not None and marks.ttl == "1h" else rules.lifetime_seconds
    pays = partial(_pays, asked.pays_within_turns, rules, partial(_rates, model, provider, pricer))
    return epochs.EpochRules(settings.epoch_tokens, asked.cold_after_seconds or kept, pays)


def _rates(model: str | None, provider: str | None, pricer: CallPricer, usage: UsageTotals) -> ModelRates | None:
    return pricer.rates(PaidCall(usage, provider=provider or "", model=model or ""))


def _pays(within: int, rules: CacheRules, rates: weighing.RatesFor, found: Rewritten) -> bool:
    after = weighing.next_request(found.tokens, found.common, rules, is_warm=True)
    unedited = weighing.next_request(found.unedited, found.cached, rules, is_warm=True)
    price = weighing.price_edit(None, after, unedited, rules, rates)
    turns, _ = weighing.turns_to_pay(price)
    return price is None or (turns is not None and turns <= within)
