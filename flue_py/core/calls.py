"""Paid model calls, read from the JSON that a provider or an agent reported."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from flue_py.core.frozen import changed, frozen
from flue_py.core.jsontext import JsonValue, replace_lone_surrogates
from flue_py.core.usage import UsageTotals
from flue_py.core.usage_fields import ALWAYS_SEARCHES, BILLED_BY_QUERY, QUERIES, SEARCHES
from flue_py.core.usage_shapes import ReportedUsage, Terms, merged_terms, read_reported
from flue_py.errors import InvalidEntry, shown

NAMES_OF_A_CALL = ("provider", "model", "callId")
"""What a usage object may say of its call beside the numbers."""
RESPONSE_ID = "responseId"
"""The field of an answer that has its provider's id of the call, which is the id of the call in the ledger."""
REPORTED = "reported"
"""The source of a cost that was reported with the call, rather than computed from a price."""
UNPRICED = "not priced: "
"""What the source of a cost begins with that is unknown because of what stands behind it, as ``name=value``."""
SEVERAL_MODELS = ("models", "several")
"""The term of a call that several models answered, of which the ledger has one row."""

_LEDGER_NAME = 160
_TAG = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,63}")
_OUTCOMES = {"error": "failed", "aborted": "aborted"}


@frozen
class PaidCall:
    """One paid model call for the ledger, told apart by ``(scope, provider, call_id)``.

    ``told`` names the numbers of tokens that were reported (`PARTS`): a 0 of another is unknown.
    ``cache_write_1h`` is the part of the cache writes that was kept for an hour, ``reasoning`` the part of the output
    that was reasoning. ``cost`` is in picodollars, None if it is unknown; ``price_source`` says where it is from.
    ``purpose`` and ``outcome`` are names of an open set (turn, compaction, title ...; failed, aborted ...). ``at_us``
    is when it was made, if that is not the time of its entry. ``agent`` is the agent or the program that made it,
    None if it is unknown. ``is_unknown`` says that its usage is unknown: its numbers are zero for that reason alone.
    ``terms`` are names and values of what makes its price another one than that of its tokens on the list.
    ``replaces`` are ids of calls of the same provider that this report replaces, if the same session paid for them: an
    import has read them before the call was complete.
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
    is_unknown: bool = False
    replaces: tuple[str, ...] = ()
    agent: str | None = None
    told: frozenset[str] = frozenset()
    terms: Terms = ()

    @property
    def known_cost(self) -> int | None:
        """The cost in picodollars, None if it is not known: a total of dollars among the ten sums was reported."""
        return self.cost if self.cost is not None else self.usage.cost_total or None

    @property
    def searches(self) -> int:
        """How many web searches of the provider it took, as far as that was reported."""
        number = dict(self.terms).get(SEARCHES, "0")
        return int(number) if number.isdecimal() else 0

    @property
    def source(self) -> str | None:
        """Where the cost is from; where it is not known, the terms that keep it so, and None without any."""
        if self.price_source is not None:
            return self.price_source
        if self.known_cost is not None:
            return REPORTED
        return f"{UNPRICED}{', '.join(f'{name}={value}' for name, value in self.terms)}" if self.terms else None


def terms_in(source: str | None) -> Terms:
    """Return the terms that the source of an unknown cost names."""
    if source is None or not source.startswith(UNPRICED):
        return ()
    pairs = [term.partition("=") for term in source.removeprefix(UNPRICED).split(", ")]
    return tuple((name, value) for name, _, value in pairs)


@frozen
class CallDifference:
    """A paid call that an import met again with other numbers than the ledger has. The ledger keeps the first."""

    provider: str
    call_id: str
    differences: tuple[str, ...]

    def __str__(self) -> str:
        return f"call {self.call_id!r}: {', '.join(self.differences)}"


def read_call(reported: Mapping[str, JsonValue], where: str, purpose: str = "turn") -> PaidCall:
    """Return the paid call that a usage object reports; ``provider``, ``model`` and ``callId`` in it are its own.

    Never raises: numbers that cannot be are not counted (see `read_reported`).
    """
    return call_of(
        read_reported(reported, where),
        provider=reported.get("provider"),
        model=reported.get("model"),
        call_id=reported.get("callId"),
        purpose=purpose,
    )


def read_steps(reported: Mapping[str, JsonValue], where: str, purpose: str = "turn") -> tuple[PaidCall, ...]:
    """Return what `read_call` returns, as one call of each model that took a step of it (see `by_model`)."""
    call = read_call(reported, where, purpose)
    return by_model(call, read_reported(reported, where)) if SEVERAL_MODELS in call.terms else (call,)


def call_of(
    reported: ReportedUsage,
    *,
    provider: JsonValue = None,
    model: JsonValue = None,
    call_id: JsonValue = None,
    purpose: str = "turn",
    outcome: str | None = None,
    agent: str | None = None,
) -> PaidCall:
    """Return the paid call of a usage object that was read before."""
    provider_name, model_name = ledger_name(provider), ledger_name(model)
    return PaidCall(
        reported.totals,
        provider_name,
        model_name,
        ledger_name(call_id) or None,
        purpose,
        reported.cache_write_1h,
        reported.reasoning,
        reported.cost,
        outcome=outcome,
        is_unknown=not reported.is_known,
        agent=agent,
        told=reported.told,
        terms=_terms_of(reported, provider_name, model_name),
    )


def _terms_of(reported: ReportedUsage, provider: str, model: str) -> Terms:
    own = next((step.terms for name, step in reported.steps if ledger_name(name) == model), ())
    terms = with_searches(merged_terms(own, reported.terms) if own else reported.terms, provider, model)
    is_of_several = any(ledger_name(name) != model for name, _ in reported.steps)
    return (*terms, SEVERAL_MODELS) if is_of_several else terms


def with_searches(terms: Terms, provider: str, model: str) -> Terms:
    """Return terms with the number of searches that are billed where only that of queries is there.

    Google bills none that pydantic-ai does not name; of a provider that is not known here it stays open. A model that
    always searches is billed for that whether its answer says so or not.
    """
    queries = dict(terms).get(QUERIES)
    if queries is None and ALWAYS_SEARCHES.search(model):
        return merged_terms(((SEARCHES, "unreported"),), terms)
    if queries is None:
        return terms
    rest = tuple(term for term in terms if term[0] != QUERIES)
    if provider in BILLED_BY_QUERY:
        return merged_terms(rest, ((SEARCHES, queries),))
    is_google = provider.startswith("google") and "gemini" in model
    return rest if is_google else terms


def by_model(call: PaidCall, reported: ReportedUsage) -> tuple[PaidCall, ...]:
    """Return the calls that one request was, where its usage names the models of its steps: that of the answer first.

    Where a cost was reported it is that of all of them, and they stay one call.
    """
    others = [(name, step) for name, step in reported.steps if ledger_name(name) != call.model]
    if not others or call.known_cost is not None:
        return (call,)
    rest = reported.totals
    hour, reasoning = call.cache_write_1h, call.reasoning
    calls = []
    for name, step in others:
        rest, hour, reasoning = rest.minus(step.totals), hour - step.cache_write_1h, reasoning - step.reasoning
        own = None if call.call_id is None else ledger_name(f"{call.call_id}:{name}")
        calls.append(
            call_of(
                changed(step, steps=()),
                provider=call.provider,
                model=name,
                call_id=own,
                purpose=call.purpose,
                outcome=call.outcome,
                agent=call.agent,
            )
        )
    if min(*rest, hour, reasoning) < 0:
        return (call,)
    terms = tuple(term for term in call.terms if term != SEVERAL_MODELS)
    first = changed(call, usage=rest, cache_write_1h=hour, reasoning=reasoning, terms=terms)
    if rest.tokens:
        return (first, *calls)
    # The model of the answer is named in another way among the steps.
    own_terms = merged_terms(calls[0].terms, terms)
    return (changed(calls[0], call_id=call.call_id, terms=own_terms), *calls[1:])


def read_calls(calls: Sequence[Mapping[str, JsonValue]], where: str, purpose: str) -> tuple[PaidCall, ...]:
    """Return the paid calls of a list of usage objects. Raises `InvalidEntry` if it is not such a list."""
    if isinstance(calls, (str, bytes)) or not isinstance(calls, Sequence):
        raise InvalidEntry(f"{where}: should be a list of usage objects, not {type(calls).__name__}")
    for number, reported in enumerate(calls):
        if not isinstance(reported, Mapping):
            raise InvalidEntry(f"{where}[{number}]: should be a usage object, not {type(reported).__name__}")
    return tuple(
        call for number, reported in enumerate(calls) for call in read_steps(reported, f"{where}[{number}]", purpose)
    )


def outcome_of(stop_reason: JsonValue) -> str | None:
    """Return what an assistant message's stop reason says became of its call: failed, aborted, or None."""
    return _OUTCOMES.get(stop_reason) if isinstance(stop_reason, str) else None


def agent_of(message: Mapping[str, JsonValue]) -> str | None:
    """Return the name of the agent that a message carries, or None."""
    for name in ("agentName", "agent"):
        value = message.get(name)
        if isinstance(value, str) and value.strip():
            return ledger_name(value.strip()) or None
    return None


def program_of(metadata: Mapping[str, JsonValue]) -> str | None:
    """Return the program that an imported session is from, by the format of its file; None for any other session."""
    imported = metadata.get("imported")
    return ledger_name(imported.get("format")) or None if isinstance(imported, Mapping) else None


def ledger_name(value: JsonValue) -> str:
    """Return a name for a column of its own: NUL and lone surrogates, which databases refuse, are taken out.

    The ledger has an index on it, whose rows PostgreSQL bounds: of a long name the digest stands for the end.
    """
    if not isinstance(value, str):
        return ""
    text = value
    if not value.isascii() or "\0" in value:
        text = replace_lone_surrogates(value.replace("\0", ""))[0]
    if len(text) <= _LEDGER_NAME:
        return text
    return f"{text[:_LEDGER_NAME]}~{blake2b(text.encode(), digest_size=16).hexdigest()}"


def checked_tag(text: str, what: str) -> str:
    """Return a purpose or an outcome unchanged. Raises `InvalidEntry` if it is not a short name."""
    if not isinstance(text, str) or not _TAG.fullmatch(text):
        raise InvalidEntry(f"{what}: {shown(text)} is not a name of at most 64 letters, digits and _ . : -")
    return text
