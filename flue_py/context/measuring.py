"""How large a context is: what the provider reported of it, where that is fresh, and our own count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock

from flue_py.context.counters import ENTRY_COUNTS, NotCounted, Tally
from flue_py.core.counting import (
    ContextSize,
    Counter,
    ReportedSize,
    is_same_model,
    reported_tokens,
    usage_start,
)
from flue_py.core.entries import Entry
from flue_py.core.faithful import ASSISTANT
from flue_py.core.frozen import changed
from flue_py.core.jsontext import JsonValue, encode_json
from flue_py.core.kinds import COMPACTION, EXCLUSION, MESSAGE
from flue_py.core.layout import is_silent
from flue_py.core.merging import provenance_of
from flue_py.core.projection import RESTORES, ContextEntry
from flue_py.wire.applied import cleared_tokens

__all__ = ["ContextSize", "ReportedSize", "changed_depth", "measure_context", "reported_size"]

_NO_TALLY = Tally(0, is_estimate=False)


def measure_context(
    items: Sequence[ContextEntry],
    counter: Counter,
    *,
    model: str | None = None,
    provider: str | None = None,
    system: str | None = None,
    tools: Sequence[Mapping[str, JsonValue]] | None = None,
    window: int | None = None,
    use_reported: bool = True,
    changed_at: int = -1,
    only_known: bool = False,
) -> ContextSize:
    """Return how large a context is: the items of `Session.build_context_entries`, all of them.

    The whole is counted, and remembered in `ENTRY_COUNTS`. With ``use_reported``, the size is taken from the newest
    answer that reports one, as `reported_size` finds it, and our count of what follows it; the system prompt and the
    tools are then in it. ``system`` and ``tools`` (their JSON) are what goes with the call, "" and () if nothing does,
    None if that is unknown. ``window`` is the model's: a report above it is not believed. Raises `InvalidEntry` for
    what is not JSON, and with ``only_known`` `NotCounted` for what was not counted before.
    O(items), and O(size) of what was not counted before.
    """
    reported = _newest_report(items, model, provider, changed_at, only_known=only_known) if use_reported else None
    after = 0 if reported is None else reported.place + 1
    before = ENTRY_COUNTS.tally(items[:after], counter, only_known=only_known) if after else _NO_TALLY
    trailing = ENTRY_COUNTS.tally(items[after:] if after else items, counter, only_known=only_known)
    prompt = ENTRY_COUNTS.tally_texts([system] if system else (), counter, only_known=only_known)
    # A provider prints them in a way of its own, which is never quite their JSON.
    offered = ENTRY_COUNTS.tally_texts(texts_of(tools or ()), counter, only_known=only_known)
    is_estimate = before.is_estimate or trailing.is_estimate or prompt.is_estimate or offered.tokens > 0
    return ContextSize(
        counter.name,
        before.tokens + trailing.tokens,
        trailing.tokens,
        None if system is None else prompt.tokens,
        None if tools is None else offered.tokens,
        reported,
        window,
        is_estimate,
        trailing.is_estimate,
    )


def reported_size(
    items: Sequence[ContextEntry], *, model: str | None = None, provider: str | None = None, changed_at: int = -1
) -> ReportedSize | None:
    """Return what the newest answer among the items reports of the context up to itself; None if none can be used.

    Never that of an answer that lies before the latest compaction or at most at the depth ``changed_at``, whose context
    was another; that was aborted or failed, or reports nothing or zero; that another model or provider than the one
    asked for gave; that was copied from elsewhere, with the numbers of there. An answer that names no model is taken
    for one of the model asked for. O(items after the answer); what an entry reports is remembered.
    """
    return _newest_report(items, model, provider, changed_at)


def _newest_report(
    items: Sequence[ContextEntry], model: str | None, provider: str | None, changed_at: int, *, only_known: bool = False
) -> ReportedSize | None:
    for place in range(len(items) - 1, usage_start(items) - 1, -1):
        entry = items[place].entry
        if entry.kind != MESSAGE or entry.role != ASSISTANT:
            continue
        if entry.depth <= changed_at:
            return None
        found = _reports.of(entry, only_known=only_known)
        if found is not None and _is_of(found, model, provider):
            return changed(found, place=place)
    return None


def texts_of(tools: Sequence[Mapping[str, JsonValue]]) -> list[str]:
    """Return the JSON text of each tool. Raises `InvalidEntry` for what is not JSON. O(size)."""
    return [encode_json(dict(tool), "tools")[0] for tool in tools]


def changed_depth(path: Iterable[Entry]) -> int:
    """Return the depth of the last entry on a path that changed what earlier answers were given; -1 if none.

    That is an exclusion, or a compaction that takes another back, or that no item of the context tells of.
    """
    return max((entry.depth for entry in path if entry.kind == EXCLUSION or _takes_back(entry)), default=-1)


def _takes_back(entry: Entry) -> bool:
    return entry.kind == COMPACTION and (RESTORES in entry.fields or is_silent(entry))


def _is_of(reported: ReportedSize, model: str | None, provider: str | None) -> bool:
    if model is not None and reported.model is not None and not is_same_model(reported.model, model):
        return False
    return provider is None or reported.provider is None or reported.provider.lower() == provider.lower()


class _Reports:
    """What answers report, by entry: reading it takes decoding the answer."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._found: dict[str, tuple[tuple[int, int], ReportedSize | None]] = {}
        self._changing = Lock()

    def of(self, entry: Entry, *, only_known: bool = False) -> ReportedSize | None:
        known = self._found.get(entry.id)
        same = hash(entry.payload), hash(entry.extra)
        if known is not None and known[0] == same:
            return known[1]
        if only_known:
            raise NotCounted
        found = _read_report(entry)
        with self._changing:
            if len(self._found) >= self._most:
                self._found.clear()
            self._found[entry.id] = (same, found)
        return found


_reports = _Reports()


def _read_report(entry: Entry) -> ReportedSize | None:
    message = entry.fields
    tokens = reported_tokens(message)
    if not tokens or tokens < 0 or provenance_of(entry) is not None:
        return None
    provider, model = message.get("provider"), message.get("model")
    return ReportedSize(
        tokens,
        entry.id,
        0,
        provider if isinstance(provider, str) and provider else None,
        model if isinstance(model, str) and model else None,
        cleared_tokens(message),
    )
