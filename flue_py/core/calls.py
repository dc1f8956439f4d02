"""Paid model calls: what is said of one, read from the JSON that a provider or an agent reported."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from flue_py.core.jsontext import JsonValue, replace_lone_surrogates
from flue_py.core.usage import UsageTotals, read_cost, read_token_parts, read_usage
from flue_py.errors import InvalidEntry, shown

REPORTED = "reported"
"""The source of a cost that was reported with the call, rather than computed from a price."""

_LEDGER_NAME = 160
_TAG = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,63}")
_OUTCOMES = {"error": "failed", "aborted": "aborted"}


@dataclass(frozen=True, slots=True)
class PaidCall:
    """One paid model call for the ledger, told apart by ``(scope, provider, call_id)``.

    ``cache_write_1h`` is the part of the cache writes that was kept for an hour, ``reasoning`` the part of the output
    that was reasoning. ``cost`` is in picodollars, None where nobody knows it; ``price_source`` says who does.
    ``purpose`` and ``outcome`` are names of an open set (turn, compaction, title ...; failed, aborted ...). ``at_us``
    is when it was made, where that is not the time of its entry.
    """

    usage: UsageTotals
    provider: str = ""
    model: str = ""
    call_id: str | None = None
    purpose: str = "turn"
    cache_write_1h: int = 0
    reasoning: int = 0
    cost: int | None = None
    price_source: str | None = None
    outcome: str | None = None
    at_us: int | None = None

    @property
    def known_cost(self) -> int | None:
        """The cost in picodollars, None where it is not known: a total of dollars among the ten sums was reported."""
        return self.cost if self.cost is not None else self.usage.cost_total or None

    @property
    def source(self) -> str | None:
        """Where the cost is from; None where it is not known."""
        if self.price_source is None and self.known_cost is not None:
            return REPORTED
        return self.price_source


@dataclass(frozen=True, slots=True)
class CallDifference:
    """A paid call that an import met again with other numbers than the ledger has. The ledger keeps the first."""

    provider: str
    call_id: str
    differences: tuple[str, ...]

    def __str__(self) -> str:
        return f"call {self.call_id!r}: {', '.join(self.differences)}"


def read_call(reported: Mapping[str, JsonValue], where: str, purpose: str = "turn") -> PaidCall:
    """Return the paid call that a usage object reports; ``provider``, ``model`` and ``callId`` in it are its own.

    Raises `InvalidEntry` naming the field.
    """
    usage = read_usage(dict(reported), where)
    return call_of(
        usage,
        reported,
        where,
        provider=reported.get("provider"),
        model=reported.get("model"),
        call_id=reported.get("callId"),
        purpose=purpose,
    )


def call_of(
    usage: UsageTotals,
    reported: Mapping[str, JsonValue],
    where: str,
    *,
    provider: JsonValue = None,
    model: JsonValue = None,
    call_id: JsonValue = None,
    purpose: str = "turn",
    outcome: str | None = None,
) -> PaidCall:
    """Return the paid call of a usage object whose ten numbers were read before. Raises `InvalidEntry`."""
    cache_write_1h, reasoning = read_token_parts(reported, usage, where)
    return PaidCall(
        usage,
        ledger_name(provider),
        ledger_name(model),
        ledger_name(call_id) or None,
        purpose,
        cache_write_1h,
        reasoning,
        read_cost(reported, where),
        outcome=outcome,
    )


def read_calls(calls: Sequence[Mapping[str, JsonValue]], where: str, purpose: str) -> tuple[PaidCall, ...]:
    """Return the paid calls of a list of usage objects. Raises `InvalidEntry` naming the item and the field."""
    if isinstance(calls, (str, bytes)) or not isinstance(calls, Sequence):
        raise InvalidEntry(f"{where}: should be a list of usage objects, not {type(calls).__name__}")
    for number, reported in enumerate(calls):
        if not isinstance(reported, Mapping):
            raise InvalidEntry(f"{where}[{number}]: should be a usage object, not {type(reported).__name__}")
    return tuple(read_call(reported, f"{where}[{number}]", purpose) for number, reported in enumerate(calls))


def outcome_of(stop_reason: JsonValue) -> str | None:
    """Return what an assistant message's stop reason says became of its call: failed, aborted, or None."""
    return _OUTCOMES.get(stop_reason) if isinstance(stop_reason, str) else None


def ledger_name(value: JsonValue) -> str:
    """Return a name for a column of its own: NUL and lone surrogates, which databases refuse, are taken out.

    The ledger has an index on it, whose rows PostgreSQL bounds: of a long name the digest stands for the end.
    """
    if not isinstance(value, str):
        return ""
    text = replace_lone_surrogates(value.replace("\0", ""))[0]
    if len(text) <= _LEDGER_NAME:
        return text
    return f"{text[:_LEDGER_NAME]}~{blake2b(text.encode(), digest_size=16).hexdigest()}"


def checked_tag(text: str, what: str) -> str:
    """Return a purpose or an outcome unchanged. Raises `InvalidEntry` for what is no short printable name."""
    if not isinstance(text, str) or not _TAG.fullmatch(text):
        raise InvalidEntry(f"{what}: {shown(text)} is not a name of at most 64 letters, digits and _ . : -")
    return text
