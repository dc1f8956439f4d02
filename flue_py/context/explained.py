"""What became of each entry on its way into a request, as JSON: for a command line and for a report."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.context.differing import PrefixBreak
from flue_py.context.report import ContextChange
from flue_py.context.requests import ContextRequest
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.projection import ContextEntry


def how_sent(changes: Sequence[ContextChange], *, is_repaired: bool) -> str:
    """Return how an entry is sent: ``whole``, ``repaired``, ``cut``, ``replaced``, ``merged`` or ``out``."""
    if not changes:
        return "repaired" if is_repaired else "whole"
    return "out" if changes[-1].how == "dropped" else changes[-1].how


def state_of(changes: Sequence[ContextChange], *, is_repaired: bool) -> str:
    """Return `how_sent`, and with it the tokens before and after, or the entry whose message has the content now."""
    how = how_sent(changes, is_repaired=is_repaired)
    if not changes or how == "out":
        return how
    if (into := changes[-1].into) is not None:
        return f"{how} {'into' if how == 'merged' else 'in'} {into}"
    return f"{how}, {changes[0].tokens_before:,} -> {changes[-1].tokens_after:,}"


def explained_row(
    items: Sequence[ContextEntry], sent: ContextRequest, before: ContextRequest | None = None
) -> JsonObject:
    """Return what was done on the way from a context to a request: the steps, the events, and each entry. O(items).

    With ``before``, an earlier request, also where the one begins otherwise than the other.
    """
    report = sent.report
    told = report.by_entry()
    repaired = {repair.entry_id for repair in sent.repairs}
    return {
        "agent": report.agent,
        "target": sent.target,
        "counter": report.counter,
        "isEstimate": sent.is_estimate,
        "tokensBefore": report.tokens_before,
        "tokensAfter": report.tokens_after,
        "tokensSent": sent.tokens_sent,
        "epochEnd": report.epoch_end,
        "steps": [
            {"name": step.name, "reason": step.reason, "tokensFreed": step.tokens_freed, "changes": len(step.changes)}
            for step in report.steps
        ],
        "events": [{"name": event.name, "text": event.text} for event in report.events],
        "entries": [
            {
                "entryId": item.entry_id,
                "role": item.role,
                "sent": how_sent(told.get(item.entry_id, ()), is_repaired=item.entry_id in repaired),
                "changes": [_change_row(change) for change in told.get(item.entry_id, ())],
            }
            for item in items
        ],
        "repairs": [{"entryId": repair.entry_id, "what": repair.what} for repair in sent.repairs],
        "broken": [str(broken) for broken in sent.broken],
        "breakSinceLastAnswer": None if before is None else _break_row(sent.break_since(before)),
    }


def _break_row(found: PrefixBreak | None) -> JsonValue:
    return None if found is None else {"by": found.by, "entryId": found.entry_id, "why": found.why}


def _change_row(change: ContextChange) -> JsonObject:
    return {
        "step": change.step,
        "how": change.how,
        "tokensBefore": change.tokens_before,
        "tokensAfter": change.tokens_after,
        "into": change.into,
    }
