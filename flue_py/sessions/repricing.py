"""Pricing the calls of a ledger whose cost is unknown, at the prices of their day."""

from __future__ import annotations

from dataclasses import replace

from flue_py.core.calls import PaidCall, terms_in
from flue_py.core.entries import Entry, NewEntry, derived_from_payload
from flue_py.core.jsontext import decode_json
from flue_py.core.ledger import CallPrice, RepricedCalls, Repricing, Unpriced, call_row, differences
from flue_py.core.rows import CallRow
from flue_py.core.usage import Cost, UsageTotals
from flue_py.errors import InvalidEntry
from flue_py.prices.book import CallPricer
from flue_py.store.backend import Backend

_AT_ONCE = 500


async def reprice(backend: Backend, pricer: CallPricer, *, dry_run: bool) -> Repricing:
    """Return what the calls of unknown cost cost by the prices that are known now, and write it unless ``dry_run``."""
    found: dict[tuple[str, str, Unpriced | None], tuple[int, int]] = {}
    after = -1
    while calls := await backend.unpriced_calls(after, limit=_AT_ONCE):
        after = calls[-1].number
        entries = await backend.read_named([(each.session_id, each.call.entry_id or "") for each in calls])
        prices = []
        for each, entry in zip(calls, entries, strict=True):
            priced = _priced(each.call, entry, pricer)
            why = priced if isinstance(priced, str) else None
            if not isinstance(priced, str):
                prices.append(CallPrice(each.number, priced.known_cost or 0, priced.source or ""))
            group = (each.call.provider, each.call.model, why)
            count, total = found.get(group, (0, 0))
            found[group] = (count + 1, total + (0 if why else prices[-1].picodollars))
        if prices and not dry_run:
            await backend.price_calls(prices)
    rows = [
        RepricedCalls(provider, model, count, None if why else total, why)
        for (provider, model, why), (count, total) in found.items()
    ]
    return Repricing(tuple(sorted(rows, key=lambda row: (row.why or "", row.provider, row.model))), dry_run)


def _priced(row: CallRow, entry: Entry | None, pricer: CallPricer) -> PaidCall | Unpriced:
    """Return a call of the ledger with its cost, or why there is none."""
    if row.unknown:
        return "no usage"
    if not row.model:
        return "no model"
    call = _as_reported(row, entry) or _of_row(row)
    parts = call.usage.input + call.usage.output + call.usage.cache_read + call.usage.cache_write
    if call.usage.total_tokens and not parts:
        return "tokens of no kind"
    try:
        priced = pricer.price_call(call)
    except InvalidEntry:  # it would cost more than can be stored
        return "no price"
    return "no price" if priced.known_cost is None else priced


def _as_reported(row: CallRow, entry: Entry | None) -> PaidCall | None:
    """Return a call as its entry reports it, which knows more of its price than the ledger; None if it is another."""
    if entry is None:
        return None
    bare = NewEntry(entry.kind, entry.payload, entry.role)
    value = decode_json(entry.payload)
    for call in derived_from_payload(bare, value).calls if isinstance(value, dict) else ():
        again = call_row(
            call, scope=row.scope, call_id=row.call_id, session_key=row.session_key, entry_id=row.entry_id, at_us=row.at
        )
        if again.model == row.model and not differences(row, again):
            return replace(call, provider=row.provider, at_us=row.at)
    return None


def price_parts(pricer: CallPricer, entry: Entry, picodollars: int) -> Cost | None:
    """Return what the calls that an entry reports cost by kind of token; None where prices do not make it that sum."""
    bare = NewEntry(entry.kind, entry.payload, entry.role)
    parts = []
    for call in derived_from_payload(bare, entry.fields).calls:
        dated = replace(call, at_us=entry.created_us)
        rates = None if call.is_unknown else pricer.rates(dated)
        if rates is None:
            return None
        parts.append(rates.parts_of(dated))
    names = ("input", "output", "cache_read", "cache_write", "total")
    cost = Cost(*(sum(getattr(part, name) for part in parts) for name in names))
    return cost if cost.total == picodollars else None


def _of_row(row: CallRow) -> PaidCall:
    writes = row.cache_write_5m_tokens + row.cache_write_1h_tokens
    usage = UsageTotals(row.input_tokens, row.output_tokens, row.cache_read_tokens, writes, row.total_tokens)
    return PaidCall(
        usage,
        row.provider,
        row.model,
        cache_write_1h=row.cache_write_1h_tokens,
        reasoning=row.reasoning_tokens,
        at_us=row.at,
        terms=terms_in(row.price_source),
    )
