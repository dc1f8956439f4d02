"""Usage: tokens and money as integers, and sums of them over a path. Reads the reports of every provider and framework.

Money is held in picodollars (1e-12 USD). A reported cost is rounded half up once, on the way in; from then on
every sum and difference is exact.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from enum import Enum, auto
from functools import lru_cache, reduce
from hashlib import blake2b
from math import isfinite, isnan
from operator import add, sub
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypeGuard, cast

from msgspec import field
from msgspec.structs import astuple, replace

from flue_py.core.json import (
    MAX_JSON_DEPTH,
    Frozen,
    JsonObject,
    JsonValue,
    NamedTuple,
    Selective,
    is_json,
    replace_lone_surrogates,
)
from flue_py.core.kinds import adds_usage
from flue_py.errors import InvalidEntry, shown
from flue_py.lazy import expression, lazy_module

if TYPE_CHECKING:
    import difflib
else:
    difflib = lazy_module("difflib")


# ---------------------------------------------------------------------------------------------------------------------

PICODOLLARS_PER_DOLLAR = 10**12
MAX_AMOUNT = 2**62
"""The largest total that is stored (64-bit integers, with room for one more addition)."""
MAX_DOLLARS = MAX_AMOUNT // PICODOLLARS_PER_DOLLAR

_EXACT = Context(prec=64, traps=[])
_HALF_A_PICODOLLAR = Decimal("5E-13")

TOTAL_COLUMNS = (
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "total_tokens", "input_cost",
    "output_cost", "cache_read_cost", "cache_write_cost", "total_cost",
)  # fmt: skip
"""The names of the ten stored sums, in the order of `UsageTotals`."""

_TOKEN_FIELDS = ("input", "output", "cacheRead", "cacheWrite", "totalTokens")
COST_FIELDS = ("input", "output", "cacheRead", "cacheWrite", "total")
"""The costs of a usage object in our shape: of each kind of tokens, and the total."""


TOO_LARGE = f"with its numbers a sum would be more than {MAX_AMOUNT}; they are kept, and none is counted"
"""The oddity of usage that is kept, and not counted, because a sum with it could not be stored."""


class SumTooLarge(InvalidEntry):
    """A sum of usage that would be more than `MAX_AMOUNT`."""


def is_whole(value: object, lowest: int, highest: int) -> TypeGuard[int]:
    """Return whether a value is a whole number of a range, and not True or False."""
    return isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest


class UsageTotals(NamedTuple):
    """The ten sums as they are stored: five token counts, then five costs in picodollars."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total_tokens: int = 0
    cost_input: int = 0
    cost_output: int = 0
    cost_cache_read: int = 0
    cost_cache_write: int = 0
    cost_total: int = 0

    @property
    def tokens(self) -> int:
        """All tokens: the reported total, or the sum of the kinds if a provider reported none."""
        return self.total_tokens or self.input + self.output + self.cache_read + self.cache_write

    def known(self, told: Collection[str]) -> dict[str, int | None]:
        """Return the tokens by kind and all of them, as JSON spells them; None for a 0 that ``told`` does not name.

        Of all tokens a 0 is known if anything else is.
        """
        tokens = self[:5]
        told = {*told, "totalTokens"} if told or any(tokens) else told
        named = zip(_TOKEN_FIELDS, tokens, strict=True)
        return {name: count if count or name in told else None for name, count in named}

    def plus(self, usage: UsageTotals) -> UsageTotals:
        """Return the sum. Raises `InvalidEntry` if one of the ten would leave the stored range."""
        total = UsageTotals._make(map(add, self, usage))
        if max(total) > MAX_AMOUNT:
            raise SumTooLarge(f"usage: the running total would exceed {MAX_AMOUNT}; check the reported numbers")
        return total

    def minus(self, usage: UsageTotals) -> UsageTotals:
        """Return the difference, field by field."""
        return UsageTotals(*[mine - theirs for mine, theirs in zip(self, usage, strict=True)])


NO_USAGE = UsageTotals()


PAID_COLUMNS = ("paid_calls", "unpriced_calls", "unknown_calls", "paid_tokens", "paid_cost")
"""The names of the stored sums of `Paid`, in its order."""


class Paid(NamedTuple):
    """The sum of paid calls by the ledger: their number, and tokens and picodollars as far as they are known.

    ``unpriced_calls`` have no known cost; of ``unknown_calls`` among them the tokens are unknown, too.
    """

    calls: int = 0
    unpriced_calls: int = 0
    unknown_calls: int = 0
    tokens: int = 0
    picodollars: int = 0

    def plus(self, paid: Paid) -> Paid:
        """Return the sum."""
        return Paid._make(map(add, self, paid))

    def minus(self, paid: Paid) -> Paid:
        """Return the difference, field by field."""
        return Paid._make(map(sub, self, paid))


NOTHING_PAID = Paid()


class Cost(Selective):
    """Money, in integer picodollars; `usd` gives the total as an exact Decimal.

    ``is_known`` is False where all that is known of it is that something was called.
    """

    _not_compared: ClassVar[tuple[str, ...]] = ("is_known",)

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int = 0
    is_known: bool = True

    @property
    def usd(self) -> Decimal | None:
        """The total in US dollars, exact; None if it is unknown."""
        return picodollars_to_usd(self.total) if self.is_known else None


class Usage(Frozen):
    """The usage of model calls: tokens by kind, and cost. ``total_tokens`` is summed as reported, not recomputed."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total_tokens: int = 0
    cost: Cost = field(default_factory=Cost)

    @classmethod
    def from_totals(cls, totals: UsageTotals) -> Usage:
        """Return the ten stored sums as a `Usage`."""
        return cls(*totals[:5], Cost(*totals[5:]))

    @property
    def totals(self) -> UsageTotals:
        """The ten sums as they are stored."""
        return UsageTotals(*astuple(self)[:5], *astuple(self.cost)[:5])

    def known(self, told: Collection[str]) -> dict[str, int | None]:
        """Return the tokens as `UsageTotals.known` does."""
        return self.totals.known(told)

    def __add__(self, usage: Usage) -> Usage:
        return Usage.from_totals(self.totals.plus(usage.totals))

    def to_json(self) -> JsonObject:
        """Return the reference's JSON shape (camelCase, costs as dollar floats; use `cost` for exact money)."""
        tokens = dict(zip(_TOKEN_FIELDS, self.totals[:5], strict=True))
        cost = {
            name: amount / PICODOLLARS_PER_DOLLAR for name, amount in zip(COST_FIELDS, self.totals[5:], strict=True)
        }
        return {**tokens, "cost": {**cost}}


class UsageWindow(Frozen):
    """The usage of the entries after ``since``, up to ``leaf``.

    ``usage`` is the sum of the reports of messages and compactions; but the total of its cost is the one figure of the
    window, that of the ledger. ``reported_cost`` is the sum of the reports, which is more if another session paid
    for a call first. ``paid`` is the ledger's sum of the same entries, priced calls and those of branch summaries
    included: `Store.usage` of the same path gives the same.
    ``on_path`` is False if ``since`` is not an ancestor of ``leaf`` (or the leaf itself): both are then
    zero, never those of the whole history. ``since=None`` is the window over the whole path.
    ``told`` names the numbers of tokens that are 0 because they were reported, or because nothing was called; it is
    empty unless it was asked for, as sums cannot show whether a 0 was reported.
    """

    usage: Usage
    leaf: str | None
    since: str | None = None
    on_path: bool = True
    paid: Paid = NOTHING_PAID
    told: frozenset[str] = frozenset()
    reported_cost: int = 0

    @property
    def known(self) -> dict[str, int | None]:
        """The tokens of ``usage`` by kind, as JSON spells it; None is a number that was not reported."""
        return self.usage.known(self.told)

    @property
    def calls(self) -> int:
        """How many calls were paid for."""
        return self.paid.calls

    @property
    def unpriced_calls(self) -> int:
        """The number of calls whose cost is unknown."""
        return self.paid.unpriced_calls

    @property
    def unknown_calls(self) -> int:
        """The number of those whose tokens are unknown, too."""
        return self.paid.unknown_calls

    @property
    def tokens(self) -> int:
        """The tokens of the calls, as far as they are known."""
        return self.paid.tokens

    @property
    def picodollars(self) -> int:
        """The sum of the known costs (1e-12 US dollars)."""
        return self.paid.picodollars

    @property
    def cost(self) -> Decimal | None:
        """The sum of the known costs in US dollars, exact; None if it is unknown: that of ``usage``."""
        return self.usage.cost.usd


def usage_of_window(reported: UsageTotals, paid: Paid) -> Usage:
    """Return the usage that entries report, with their cost by the ledger."""
    usage = Usage.from_totals(reported)
    is_known = known_cost(paid.picodollars, paid.unpriced_calls) is not None
    return replace(usage, cost=replace(usage.cost, total=paid.picodollars, is_known=is_known))


def known_cost(picodollars: int, unpriced_calls: int) -> Decimal | None:
    """Return the cost of calls in US dollars, exact; None if all known costs are 0 and the cost of some is unknown.

    The one rule for every view: a sum of 0 that leaves calls out says nothing of the price paid.
    """
    return None if unpriced_calls and not picodollars else picodollars_to_usd(picodollars)


def picodollars_to_usd(picodollars: int) -> Decimal:
    """Return picodollars as US dollars, exact. Nothing is ``0``, which prints as that."""
    return _EXACT.scaleb(Decimal(picodollars), -12) if picodollars else Decimal()


def usd_to_picodollars(amount: float | str | Decimal, where: str = "cost") -> int:
    """Return US dollars as picodollars, rounded half up once.

    A float stands for the shortest decimal that prints as it. Raises `InvalidEntry` if it is negative, not
    finite, or too large to store.
    """
    exact = _exact_amount(amount)
    if exact is None or not exact.is_finite() or exact < 0:
        raise InvalidEntry(f"{where}: {shown(amount)} is not an amount of money; use a finite number of dollars >= 0")
    if exact > MAX_DOLLARS:
        raise InvalidEntry(f"{where}: {shown(amount)} dollars is more than can be stored")
    if exact < _HALF_A_PICODOLLAR:
        return 0
    # In integers, so that neither the digits of the amount nor the caller's decimal context decide.
    dividend, divisor = exact.as_integer_ratio()
    return (2 * PICODOLLARS_PER_DOLLAR * dividend + divisor) // (2 * divisor)


def picodollars_as_printed(amount: float) -> int | None:
    """Do as `usd_to_picodollars`, for dollars that print with so few places that nothing is rounded.

    Return None for all others.
    """
    picodollars = round(amount * PICODOLLARS_PER_DOLLAR) if 0 <= amount < _EXACT_DOLLARS else 0
    return picodollars if picodollars / PICODOLLARS_PER_DOLLAR == amount else None


_EXACT_DOLLARS = 4_000
"""Up to here no two numbers of whole picodollars are the same float, so that the number prints as that float."""


def _exact_amount(amount: object) -> Decimal | None:
    """Return a number as the decimal it prints as, or None if it is not a number."""
    if isinstance(amount, bool) or not isinstance(amount, (float, int, str, Decimal)):
        return None
    try:
        return Decimal(repr(amount)) if isinstance(amount, float) else Decimal(amount)
    except InvalidOperation:
        return None


# ---------------------------------------------------------------------------------------------------------------------
# The meaning of the fields of a usage object: the spellings of providers and frameworks, in snake case.
#
# The names of fields are those of the types in anthropic 2.14.0 (`Usage`, `BetaUsage`), openai 3.57.0
# (`CompletionUsage`, `ResponseUsage`), google-genai 3.6.1 (`GenerateContentResponseUsageMetadata`, `UsageMetadata`, and
# `Usage` of the Interactions API), botocore 1.44.8 (`TokenUsage` of bedrock-runtime), langchain-core 1.8.3
# (`UsageMetadata`, with what langchain-openai 1.7.4, langchain-anthropic 1.7.10 and langchain-aws 1.9.1 put into its
# details) and pydantic-ai 2.68 (`RequestUsage`), as of November 2026. OpenRouter, xAI, Perplexity and Cohere have no
# such type: their names are those of their documentation.
#
# A field is one of these: a number of tokens (`Field`), something that changes the price (`Term` and `Count`), an
# object of such fields, or nothing that is paid for (`FREE`).


class Kind(Enum):
    """The kind of tokens that a reported number counts."""

    INPUT = auto()
    MORE_INPUT = auto()
    """Tokens of the input that are not in the number of the input, cached or not."""
    OUTPUT = auto()
    CACHE_READ = auto()
    CACHE_WRITE = auto()
    MORE_CACHE_WRITE = auto()
    """Written tokens that are not in the numbers by lifetime, if there are such."""
    CACHE_WRITE_5M = auto()
    CACHE_WRITE_1H = auto()
    REASONING = auto()
    THOUGHTS = auto()
    """Reasoning that is counted beside the output."""
    TOTAL = auto()
    PART = auto()
    """Tokens that are in another number, too."""

    # There is one object of each, and that of Enum is a function of Python's, which every answer would call 15 times.
    __hash__ = object.__hash__


class Field(Frozen):
    """A number of tokens; ``holds_cache`` if a provider with this spelling counts the cache as input.

    ``term`` is the term of the price that its presence stands for.
    """

    kind: Kind
    holds_cache: bool = False
    term: tuple[str, str] | None = None


class Term(Frozen):
    """A name that changes the price; at the ``usual`` values the list price holds, and at an empty one.

    ``values`` are those that stand for another term.
    """

    name: str
    usual: frozenset[str]
    values: Mapping[str, tuple[str, str]]


class Count(Frozen):
    """A number of things that are paid for beside the tokens, or at another price: a term if it is not 0.

    Without a name it goes by the field's.
    """

    name: str = ""


class Rows(Frozen):
    """A list of numbers: ``name`` is the field that names their kind, ``count`` the fields that may have the number."""

    name: str
    count: tuple[str, ...]


class Free(Frozen):
    """A field that no provider charges for."""


Node: TypeAlias = "Field | Term | Count | Rows | Free | Mapping[str, Node]"

FREE = Free()
ANY = "*"
"""The field of an object that stands for all which it does not name."""
ROWS = "[]"
"""The field of an object that says how a list of such fields is read."""


def _term(name: str, *usual: str, **values: tuple[str, str]) -> Term:
    return Term(name, frozenset(usual), values)


_BATCH = Term("batch", frozenset({"False", "false", "0"}), dict.fromkeys(("True", "true"), ("processing", "batch")))

CONTEXT: Mapping[str, Node] = {
    # Anthropic, Claude Code
    "speed": _term("speed", "standard", "default", "normal"),
    "inference_geo": _term("inference_geo", "global", "not_available"),
    # Anthropic, OpenAI, Groq, Gemini, Bedrock. The tier "auto" may have been any.
    "service_tier": _term(
        "service_tier", "standard", "default", "on_demand", "unspecified", batch=("processing", "batch")
    ),
    "processing": _term("processing", "standard", "default"),
    "batch": _BATCH,
    "is_batch": _BATCH,
    # Vertex
    "traffic_type": _term(
        "traffic_type",
        "on_demand",
        "traffic_type_unspecified",
        on_demand_priority=("service_tier", "priority"),
        on_demand_flex=("service_tier", "flex"),
    ),
    # Bedrock
    "performance_config": {"latency": _term("latency", "standard")},
    # Perplexity
    "search_context_size": _term("search_context_size"),
}
"""The terms that a response gives of its price, in its usage or beside it."""

TIER = "service_tier"
_TIERS = ("priority", "flex")
"""The tiers that LangChain writes before the names of its details."""

SEARCHES = "web_searches"
"""The term of web searches: it has their number, and a price book may have a price for each."""

REQUESTS = "requests"
"""The term of numbers that are the sum of several requests: which tier each of them reached is then unknown."""

QUERIES = "web_search_requests"
"""The term of a number of queries, if the number that is billed is absent: the provider says which that is."""
BILLED_BY_QUERY = frozenset({"anthropic", "openai", "openrouter"})

ALWAYS_SEARCHES = expression(r"(?:^|/)gpt-[^/]*-search(?:-|$)")
"""Models of OpenAI that search for each answer, for a fee that no usage of theirs reports."""

MODALITIES = {
    f"{way}_{medium}_tokens": f"{way}_{medium}_mtok"
    for way in ("input", "output")
    for medium in ("audio", "image", "video")
}
"""Terms of tokens that some models have another price for, and the price of genai-prices that says so."""
AS_TEXT = frozenset({"input_image_tokens", "input_video_tokens"})
"""Those that cost as any other if no price of their own is published; that of the rest is then unknown."""


def _modalities(way: str) -> Mapping[str, Node]:
    """Return the fields of tokens by their medium: Chat Completions, Realtime, LangChain, Gemini."""
    fields: dict[str, Node] = {ROWS: Rows("modality", ("token_count", "tokens")), "document": FREE}
    for medium in ("audio", "image", "video"):
        term = Count(f"{way}_{medium}_tokens")
        fields |= {medium: term, f"{medium}_tokens": term}
    return {**fields, "text": FREE, "text_tokens": FREE, "modality_unspecified": FREE}


def _by_tier(**kinds: Kind) -> Mapping[str, Node]:
    """Return the details that LangChain names for the tier: the tokens at its price, and those of each kind."""
    fields: dict[str, Node] = {}
    for tier in _TIERS:
        term = (TIER, tier)
        fields[tier] = Field(Kind.PART, term=term)
        for name, kind in kinds.items():
            fields[f"{tier}_{name}"] = Field(kind, holds_cache=kind is not Kind.REASONING, term=term)
    return fields


def _all(node: Node, *names: str) -> Mapping[str, Node]:
    """Return fields that are the same under several names."""
    return dict.fromkeys(" ".join(names).split(), node)


_CACHE_READ = Field(Kind.CACHE_READ, holds_cache=True)
_INPUT: Mapping[str, Node] = {
    **_all(Field(Kind.INPUT), "input input_tokens"),
    **_all(Field(Kind.INPUT, holds_cache=True), "prompt_tokens request_tokens prompt_token_count total_input_tokens"),
    **_all(Field(Kind.MORE_INPUT), "tool_use_prompt_token_count total_tool_use_tokens"),
}
_OUTPUT: Mapping[str, Node] = {
    **_all(
        Field(Kind.OUTPUT),
        "output output_tokens completion_tokens response_tokens candidates_token_count response_token_count",
        "total_output_tokens",
    ),
    **_all(Field(Kind.REASONING), "reasoning reasoning_tokens reasoning_output_tokens output_reasoning_tokens"),
    **_all(Field(Kind.THOUGHTS), "thoughts_token_count total_thought_tokens"),
}
_CACHE: Mapping[str, Node] = {
    **_all(Field(Kind.CACHE_READ), "cache_read cache_read_input_tokens"),
    **_all(
        _CACHE_READ,
        "cache_read_tokens cached_tokens cached_input_tokens cached_content_token_count prompt_cache_hit_tokens",
        "total_cached_tokens",
    ),
    "prompt_cache_miss_tokens": FREE,
    **_all(Field(Kind.CACHE_WRITE), "cache_write cache_write_input_tokens cache_creation_input_tokens"),
    "cache_write_tokens": Field(Kind.CACHE_WRITE, holds_cache=True),
    **_all(Field(Kind.CACHE_WRITE_1H), "cache_write_1h cache_write_1h_tokens"),
    "cache_details": {
        ROWS: Rows("ttl", ("input_tokens",)),
        "5m": Field(Kind.CACHE_WRITE_5M),
        "1h": Field(Kind.CACHE_WRITE_1H),
        ANY: Count("cache_write_of_another_lifetime"),
    },
}
_TOTAL: Mapping[str, Node] = {"total_tokens": Field(Kind.TOTAL), "total_token_count": Field(Kind.TOTAL)}

_BY_LIFETIME: Mapping[str, Node] = {
    "ephemeral_5m_input_tokens": Field(Kind.CACHE_WRITE_5M),
    "ephemeral_1h_input_tokens": Field(Kind.CACHE_WRITE_1H),
    ANY: Count("cache_write_of_another_lifetime"),
}
_OF_INPUT: Mapping[str, Node] = {
    **_modalities("input"),
    **_all(_CACHE_READ, "cached_tokens cache_read cache_read_tokens"),
    "cache_creation": Field(Kind.MORE_CACHE_WRITE, holds_cache=True),
    **_all(Field(Kind.CACHE_WRITE, holds_cache=True), "cache_creation_tokens cache_write_tokens"),
    "ephemeral_5m_input_tokens": Field(Kind.CACHE_WRITE_5M, holds_cache=True),
    "ephemeral_1h_input_tokens": Field(Kind.CACHE_WRITE_1H, holds_cache=True),
    # There is one published price of what OpenAI writes, which is kept for 30 minutes.
    "cache_write_tokens_details": {"ttl_30m_tokens": FREE, "ttl_12h_tokens": Count(), ANY: Count()},
    "cache_creation_token_details": _BY_LIFETIME,
    **_all(FREE, "cached_tokens_details no_cache_tokens"),
    **_by_tier(cache_read=Kind.CACHE_READ, cache_creation=Kind.CACHE_WRITE),
}
_OF_OUTPUT: Mapping[str, Node] = {
    **_modalities("output"),
    **_all(Field(Kind.REASONING), "reasoning_tokens reasoning thinking_tokens"),
    **_all(FREE, "accepted_prediction_tokens rejected_prediction_tokens"),
    **_by_tier(reasoning=Kind.REASONING),
}

_ADVISED = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")

FIELDS: Mapping[str, Node] = {
    **CONTEXT,
    **_INPUT,
    **_OUTPUT,
    **_CACHE,
    **_TOTAL,
    **_all(_OF_INPUT, "prompt_tokens_details input_tokens_details input_token_details"),
    **_all(_OF_OUTPUT, "completion_tokens_details output_tokens_details output_token_details"),
    **_all(_modalities("input"), "input_tokens_by_modality tool_use_prompt_tokens_details tool_use_tokens_by_modality"),
    **_all(_modalities("output"), "candidates_tokens_details response_tokens_details output_tokens_by_modality"),
    # Frameworks: how often, and how long
    REQUESTS: _term(REQUESTS, "0", "1"),
    **_all(FREE, "tool_calls calls turns num_turns steps duration_ms"),
    **_all(FREE, "cache_tokens_details cached_tokens_by_modality initial_input_tokens"),
    # pydantic-ai
    "details": {
        **_OF_OUTPUT,
        QUERIES: Count(QUERIES),
        # The tokens of an advisor on Anthropic's side are in no number of the request.
        **{f"advisor_{name}": Count() for name in (*_ADVISED, "iterations")},
    },
    SEARCHES: Count(),
    **dict.fromkeys(MODALITIES, Count()),
    "cache_audio_read_tokens": FREE,
    "audio_seconds": Count(),
    # Mistral
    "prompt_audio_seconds": Count("audio_seconds"),
    "unmeasured_requests": Count(),
    "cache_creation": _BY_LIFETIME,
    # LiteLLM
    "cache_creation_token_details": _BY_LIFETIME,
    # Anthropic and OpenRouter: the uses of a tool of the provider. Fetching a page costs its tokens.
    "server_tool_use": {"web_search_requests": Count(SEARCHES), "web_fetch_requests": FREE, ANY: Count()},
    "fallback_credit": {"status": {"type": _term("fallback_credit", "not_applied")}},
    # Gemini, Interactions API
    "grounding_tool_count": {ROWS: Rows("type", ("count",)), ANY: Count("grounded_searches")},
    # xAI
    **_all({ANY: Count()}, "server_side_tool_usage server_side_tool_usage_details"),
    **_all(Count(), "num_server_side_tools_used num_sources_used"),
    # Perplexity
    **_all(Count(), "num_search_queries citation_tokens"),
    # Cohere: the number billed, beside "tokens", which has all of them
    "billed_units": {"input_tokens": Field(Kind.INPUT), "output_tokens": Field(Kind.OUTPUT), ANY: Count()},
    # Ours: terms as they were read from another shape
    "terms": {ANY: _term("")},
}
"""Every spelling that is known. Costs, and the steps of one request (``iterations``), are read apart."""

DOLLARS = frozenset({"cost", "cost_usd", "total_cost_usd"})
"""The fields of a cost that is one number of dollars."""

TICKS = "cost_in_usd_ticks"
"""xAI: the charge, searches and all, in ten billionths of a dollar."""
PICODOLLARS_PER_TICK = 100

OWN_KEY = "is_byok"
"""OpenRouter: the call was paid for with the user's own key, and the cost is only the charge for that."""
UPSTREAM = "cost_details"
"""OpenRouter: the field of the charge of the model's provider (`UPSTREAM_WHOLE`, or `UPSTREAM_PARTS` together)."""
UPSTREAM_WHOLE = "upstream_inference_cost"
UPSTREAM_PARTS = (
    ("upstream_inference_prompt_cost", "upstream_inference_completions_cost"),
    ("upstream_inference_input_cost", "upstream_inference_output_cost"),
)


# ---------------------------------------------------------------------------------------------------------------------
# Usage as providers and frameworks report it, read into one shape.
#
# Everybody spells the same few numbers in another way, and counts them by other rules. `FIELDS` is the one table of the
# spellings (`flue_py.core.usage`); this is how they are read:
#
# - Tokens of the cache are part of the input at OpenAI, Gemini, pydantic-ai, LangChain and the Vercel AI SDK, and are
#   counted beside it at Anthropic, Bedrock and in our own shape. We count them beside it.
# - Reasoning is part of the output nearly everywhere. Gemini counts thoughts beside the candidates, and others in the
#   dialect of OpenAI reasoning beside the output: the reported total says so. We count it as part of the output.
# - Anthropic's numbers leave out the tokens of a compaction or an advisor on their side; its ``iterations`` have all
#   of them, and name the model of a step.
# - A total that is absent is the sum of the kinds. One that was reported stays as it is.
# - A field that makes the list price not hold (a tier, a batch, searches, tokens that are in no number) is a *term*.
#
# Reading never fails: an answer that was paid for is kept whatever its usage says. A number that cannot be a count
# (negative, fractional, beyond 64 bits, not a number) is not counted, and the `oddities` say so. If nothing at all is
# recognised, the usage is unknown, which is not the same as zero.

KINDS = ("input", "output", "cacheRead", "cacheWrite")
"""The kinds of tokens, as our shape spells them."""

PARTS = (*KINDS, "cacheWrite1h", "reasoning", "totalTokens")
"""Every number of tokens that a report may have: the kinds, the parts of two of them, and the total."""

_REPORTED_BY = {
    "input": {Kind.INPUT, Kind.MORE_INPUT},
    "output": {Kind.OUTPUT, Kind.THOUGHTS},
    "cacheRead": {Kind.CACHE_READ},
    "cacheWrite": {Kind.CACHE_WRITE, Kind.CACHE_WRITE_5M, Kind.CACHE_WRITE_1H, Kind.MORE_CACHE_WRITE},
    "cacheWrite1h": {Kind.CACHE_WRITE_1H},
    "reasoning": {Kind.REASONING, Kind.THOUGHTS},
    "totalTokens": {Kind.TOTAL},
}
"""The kinds that report a number of tokens: a part reports its whole, too."""


@lru_cache(maxsize=256)
def _told_by(kinds: tuple[Kind, ...]) -> frozenset[str]:
    """Return the numbers of tokens (`PARTS`) that were reported by numbers of these kinds."""
    return frozenset(name for name, reporting in _REPORTED_BY.items() if not reporting.isdisjoint(kinds))


Terms: TypeAlias = "tuple[tuple[str, str], ...]"

SUMMED = (REQUESTS, "several")
INCOMPLETE = ("tokens", "incomplete")
"""The term of tokens that are not all counted by kind."""
_OWN_KEY = ("key", "own")
_LONGEST_TERM = 64


class ReportedUsage(Frozen):
    """The report of a call by a usage object.

    ``cache_write_1h`` is the part of the cache writes that is kept for an hour, ``reasoning`` the part of the output
    that was reasoning. ``cost`` is in picodollars, None if none was reported. ``is_known`` is False if nothing
    was recognised: the ten numbers are then zero because they are unknown. ``told`` names the numbers of tokens
    that were reported (`PARTS`): a zero in another was not reported. ``oddities`` say which field was not counted as it
    was reported, and why. ``terms`` are names and values that make the price another one than that of these
    tokens on the list. ``steps`` are those of the numbers that another model took, by model.
    """

    totals: UsageTotals = NO_USAGE
    cache_write_1h: int = 0
    reasoning: int = 0
    cost: int | None = None
    is_known: bool = False
    told: frozenset[str] = frozenset()
    oddities: tuple[str, ...] = ()
    terms: Terms = ()
    steps: tuple[tuple[str, ReportedUsage], ...] = ()


def read_reported(value: JsonValue | Mapping[str, JsonValue], where: str = "usage") -> ReportedUsage:
    """Return the report of a usage object, in any known shape. Never raises. O(fields)."""
    if not isinstance(value, (dict, Mapping)):
        odd = () if value is None else (f"{where}: {shown(value)} is not a usage object; nothing of it is counted",)
        return ReportedUsage(oddities=odd)
    reading = _Reading(where)
    reading.read(value)
    whole = reading.result()
    steps = _steps(value, where)
    parts = None if steps is None or "input_tokens" not in value else _sum_of([step for _, step in steps])
    if parts is not None and parts.totals.tokens > whole.totals.tokens:
        terms = merged_terms(tuple(term for term in parts.terms if term != SUMMED), whole.terms)
        totals = UsageTotals(*parts.totals[:5], *whole.totals[5:])
        whole = replace(_with_larger_parts(parts, whole), totals=totals, terms=terms, cost=whole.cost)
    elif parts is not None and whole.is_known:
        whole = _with_larger_parts(whole, parts)
    if steps is None:
        return whole
    is_summed = len([model for model, _ in steps if not model]) > 1 and whole.cost is None
    terms = merged_terms((SUMMED,), whole.terms) if is_summed else whole.terms
    return replace(whole, terms=terms, steps=tuple(_named(steps, whole.terms)))


def _with_larger_parts(usage: ReportedUsage, report: ReportedUsage) -> ReportedUsage:
    """Return a usage with the parts of its numbers that only another report of the same call has."""
    return replace(
        usage,
        cache_write_1h=min(max(usage.cache_write_1h, report.cache_write_1h), usage.totals.cache_write),
        reasoning=min(max(usage.reasoning, report.reasoning), usage.totals.output),
        told=usage.told | report.told,
    )


def merged_terms(first: Terms, last: Terms) -> Terms:
    """Return the terms of both, in the order of their names; of two with one name the last counts."""
    return tuple(sorted({**dict(first), **dict(last)}.items()))


def read_beside(message: Mapping[str, JsonValue], where: str = "usage") -> ReportedUsage:
    """Return the report of a message's usage, with the terms of its price in the message itself. Never raises."""
    usage = message.get("usage")
    if not isinstance(usage, Mapping):
        return read_reported(usage, where)
    context = context_of(message)
    return read_reported({**context, **usage} if context else usage, where)


def terms_beside(message: Mapping[str, JsonValue]) -> Terms:
    """Return the terms of its price that a message has beside its usage."""
    reading = _Reading("")
    reading.read(context_of(message))
    return reading.terms


def context_of(response: Mapping[str, JsonValue]) -> JsonObject:
    """Return the fields of a message or a response with terms of its price that its usage may have, too."""
    return {name: value for name, value in response.items() if _snake_case(name) in CONTEXT}


def billed_by(response: Mapping[str, JsonValue], usage: JsonValue = None) -> JsonObject:
    """Return the terms of the price that a response has beside the numbers of a framework, as fields of their usage.

    ``usage`` is the provider's own, if the framework has it, too. Never raises. O(fields).
    """
    reading = _Reading("")
    reading.read(context_of(response))
    raw = usage if isinstance(usage, Mapping) else {}
    reading.read(raw)
    terms: JsonObject = dict(reading.terms)
    fields: JsonObject = {"terms": terms} if terms else {}
    return {**fields, "iterations": raw["iterations"]} if raw.get("iterations") else fields


def with_words_for_numbers(value: JsonValue, where: str, depth: int = 0) -> tuple[JsonValue, tuple[str, ...]]:
    """Return a usage object with text in place of NaN and infinities, and which those are.

    A store holds JSON only, and a paid answer is not refused for that. A value without them is returned as it is.
    """
    if is_json(value, depth):
        return value, ()
    if isinstance(value, float) and not isfinite(value):
        word = "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return word, (f"{where}: {word} is not a JSON number; it is kept as text, and not counted",)
    if depth == MAX_JSON_DEPTH or not isinstance(value, (Mapping, list, tuple)):
        return value, ()
    names = list(value) if isinstance(value, Mapping) else range(len(value))
    inside = value.values() if isinstance(value, Mapping) else value
    # A key that is not text is refused elsewhere, and may be a number too long to print.
    places = [f"{where}.{name}" if isinstance(name, str) else f"{where}[{shown(name)}]" for name in names]
    read = [with_words_for_numbers(item, place, depth + 1) for item, place in zip(inside, places, strict=True)]
    odd = tuple(oddity for _, oddities in read for oddity in oddities)
    if not odd:
        return value, ()
    items = [item for item, _ in read]
    return (dict(zip(value, items, strict=True)) if isinstance(value, Mapping) else items), odd


def read_usage(value: JsonValue, where: str = "usage") -> UsageTotals:
    """Return the ten numbers of a usage object (see `read_reported`): zero where nothing is recognised. O(fields)."""
    return read_reported(value, where).totals


def reported_usage(kind: str, role: str | None, payload: Mapping[str, JsonValue]) -> UsageTotals:
    """Return the usage that an entry adds to its path's totals: an assistant message's usage, or a compaction's.

    User and tool-result messages and branch summaries add nothing, whatever they carry.
    """
    return read_usage(payload.get("usage")) if adds_usage(kind, role) else NO_USAGE


def usage_json(usage: ReportedUsage) -> JsonObject:
    """Return tokens as our shape spells them, for readers that translate: the reported kinds, and their total.

    The steps that another model took stay in it, by model.
    """
    totals = usage.totals
    kinds = (totals.input, totals.output, totals.cache_read, totals.cache_write)
    fields: JsonObject = {name: count for name, count in zip(KINDS, kinds, strict=True) if name in usage.told}
    if usage.told:
        fields["totalTokens"] = totals.total_tokens
    parts = {"cacheWrite1h": usage.cache_write_1h, "reasoning": usage.reasoning}
    fields |= {name: tokens for name, tokens in parts.items() if name in usage.told}
    terms: JsonObject = dict(usage.terms)
    if terms:
        fields["terms"] = terms
    steps: list[JsonValue] = [{"model": name, **usage_json(step)} for name, step in usage.steps]
    return {**fields, "iterations": steps} if steps else fields


class _Reading:
    """The numbers of one usage object, by the kind they count, and its oddities."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._counts: dict[Kind, int] = {}
        self._holds_cache = False
        self._subtracts_cache = False
        self._is_ours = False
        self._is_known = False
        self._dollars: dict[str, int] = {}
        self._terms: dict[str, str] = {}
        self._oddities: list[str] = []

    @property
    def terms(self) -> Terms:
        """The terms that were read, by name."""
        return tuple(sorted(self._terms.items())) if self._terms else ()

    def read(self, value: Mapping[str, JsonValue]) -> None:
        """Take in every field that is known."""
        of_key: dict[str, JsonValue] = {}
        for name, reported in value.items():
            # A name that is not a string is refused where the usage is written down.
            if reported is None or not isinstance(name, str):
                continue
            spelling = _snake_case(name)
            node = FIELDS.get(spelling)
            if type(node) is Field:
                self._take_number(node, reported, name)
            elif node is not None:
                self._take(node, reported, name, spelling)
            elif spelling in DOLLARS:
                self._take_cost(reported, name)
            elif spelling == TICKS:
                self._take_ticks(reported, name)
            elif spelling in (OWN_KEY, UPSTREAM):
                of_key[spelling] = reported
            elif spelling == "usage" and isinstance(reported, Mapping) and reported:
                self._odd(name, "is a usage in a usage; nothing in it is counted, give its fields in its place")
            elif type(reported) is int and reported:
                meant = _name_meant(spelling)
                hint = f"; did you mean {shown(meant)}?" if meant else ""
                self._odd(name, f"is a field of no usage that is read here; its {shown(reported)} is not counted{hint}")
        if of_key.get(OWN_KEY) is True:
            self._add_upstream(of_key.get(UPSTREAM))
        if SEARCHES in self._terms or value.get(SEARCHES) == 0:
            self._terms.pop(QUERIES, None)

    def result(self) -> ReportedUsage:
        """Return the report, by our rules for which number includes which."""
        counts, count = self._counts, self._counts.get
        read, for_an_hour = count(Kind.CACHE_READ, 0), count(Kind.CACHE_WRITE_1H, 0)
        written = self._written(count(Kind.CACHE_WRITE_5M, 0) + for_an_hour)
        prompt = count(Kind.INPUT, 0)
        if self._subtracts_cache:
            prompt = self._less("input", prompt, read + written, "the cache")
        prompt += count(Kind.MORE_INPUT, 0)
        thoughts = count(Kind.THOUGHTS, 0)
        reasoning = count(Kind.REASONING, thoughts)
        request = prompt + read + written
        output = self._output(count(Kind.OUTPUT, 0) + thoughts, request, reasoning)
        kinds = request + output
        total = count(Kind.TOTAL, kinds)
        if total > MAX_AMOUNT or kinds > MAX_AMOUNT:
            self._oddities.append(f"{self._where}: its numbers come to more than {MAX_AMOUNT}; none is counted")
            return ReportedUsage(oddities=tuple(self._oddities))
        if for_an_hour > written:
            for_an_hour = self._at_most("cacheWrite1h", for_an_hour, "cacheWrite", written)
        if reasoning > output:
            reasoning = self._at_most("reasoning", reasoning, "output", output)
        # In our own shape a kind that is not there is none.
        is_split = self._is_ours or (Kind.INPUT in counts and Kind.OUTPUT in counts)
        if total > kinds or not (is_split or (Kind.TOTAL in counts and total == kinds)):
            self._terms.setdefault(*INCOMPLETE)
        cost = self._cost()
        costs = [self._dollars.get(part, 0) for part in COST_FIELDS[:-1]] if self._dollars else [0, 0, 0, 0]
        return ReportedUsage(
            UsageTotals(prompt, output, read, written, total, *[*costs, cost or 0]),
            for_an_hour,
            reasoning,
            cost,
            self._is_known,
            _told_by(tuple(counts)),
            tuple(self._oddities),
            self.terms if self._is_known and cost is None else (),
        )

    def _written(self, split: int) -> int:
        """Return the tokens written to a cache: the number of all, or those by lifetime and the rest."""
        rest = self._counts.get(Kind.MORE_CACHE_WRITE, 0)
        parts = split if rest == split else split + rest
        written = self._counts.get(Kind.CACHE_WRITE, parts)
        return written if self._is_ours else max(written, parts)

    def _output(self, output: int, request: int, reasoning: int) -> int:
        """Return the tokens of the answer, with those beside it that only the total has.

        Those are its reasoning if there are as many. If a provider counts the cache within the input, nothing
        else can be missing in the total.
        """
        counts = self._counts
        rest = counts.get(Kind.TOTAL, 0) - request - output
        if rest <= 0 or Kind.INPUT not in counts or Kind.OUTPUT not in counts:
            return output
        return output + rest if self._holds_cache or rest == reasoning else output

    def _take(self, node: Node, reported: JsonValue, name: str, spelling: str) -> None:
        if isinstance(node, Field):
            self._take_number(node, reported, name)
        elif isinstance(node, (Term, Count)):
            self._take_term(node, reported, spelling)
        elif isinstance(node, dict):
            rows = node.get(ROWS)
            if isinstance(reported, (list, tuple)) and isinstance(rows, Rows):
                reported = _summed_rows(rows, reported)
            if isinstance(reported, (dict, Mapping)):
                for part, value in reported.items():
                    if value is not None and isinstance(part, str):
                        part_spelling = _snake_case(part)
                        self._take(
                            node.get(part_spelling) or node.get(ANY, FREE), value, f"{name}.{part}", part_spelling
                        )

    def _take_number(self, field: Field, reported: JsonValue, name: str) -> None:
        count = _whole_number(reported)
        if count is None:
            self._odd(name, f"{shown(reported)} is not a number of tokens from 0 to {MAX_AMOUNT}; it is not counted")
            self._terms.setdefault(*INCOMPLETE)
            return
        if field.term is not None:
            self._note(*field.term)
        if field.kind is Kind.PART:
            return
        # The same number may stand there twice, in its provider's spelling and in that of a gateway.
        self._counts[field.kind] = max(count, self._counts.get(field.kind, 0))
        if field.holds_cache:
            self._holds_cache = True
            # A gateway adds a 0 to numbers that its provider counts beside the input.
            if count or field.kind is Kind.INPUT:
                self._subtracts_cache = True
        self._is_ours = self._is_ours or name in KINDS
        self._is_known = True

    def _take_term(self, node: Term | Count, reported: JsonValue, spelling: str) -> None:
        if isinstance(node, Count):
            if reported:
                self._note(node.name or spelling, str(reported))
            return
        # Bedrock has an object of one name there. Most are texts, and an abstract class takes long to ask.
        value = reported.get("type") if not isinstance(reported, str) and isinstance(reported, Mapping) else reported
        word = value.strip().lower() if isinstance(value, str) else shown(value)
        if word and word not in node.usual:
            self._note(*node.values.get(word, (node.name or spelling, word)))

    def _note(self, name: str, value: str) -> None:
        """Note a term. One that is named twice, with two values, has no price."""
        word = value[:_LONGEST_TERM]
        before = self._terms.setdefault(name, word)
        if before != word:
            self._terms[name] = f"{before} or {word}"[: 2 * _LONGEST_TERM]

    def _take_cost(self, reported: JsonValue, name: str) -> None:
        if not isinstance(reported, (dict, Mapping)):
            self._take_dollars("total", reported, name)
            return
        if reported.get("total_cost") is not None:
            self._take_dollars("total", reported["total_cost"], name, "total_cost")
        for part in COST_FIELDS:
            if (amount := reported.get(part)) is not None:
                self._take_dollars(part, amount, name, part)

    def _take_dollars(self, part: str, amount: JsonValue, *place: str) -> None:
        dollars = _picodollars(amount)
        if dollars is None:
            where = ".".join(place)
            self._odd(where, f"{shown(amount)} is not a number of dollars from 0 to {MAX_DOLLARS}; it is not counted")
            return
        self._dollars[part] = dollars
        self._is_known = True

    def _take_ticks(self, reported: JsonValue, name: str) -> None:
        ticks = _whole_number(reported)
        if ticks is None or ticks > MAX_AMOUNT // PICODOLLARS_PER_TICK:
            self._odd(name, f"{shown(reported)} is not an amount of money that can be stored; it is not counted")
            return
        self._dollars["total"] = ticks * PICODOLLARS_PER_TICK
        self._is_known = True

    def _add_upstream(self, details: JsonValue) -> None:
        """Add the charge of the model's provider for a call that was paid for with the user's own key."""
        charges = details if isinstance(details, Mapping) else {}
        fee = self._dollars.get("total")
        self._dollars.clear()
        for names in ((UPSTREAM_WHOLE,), *UPSTREAM_PARTS):
            parts = [_picodollars(charges.get(name)) for name in names]
            dollars = [part for part in parts if part is not None]
            if fee is not None and len(dollars) == len(parts):
                self._dollars["total"] = fee + sum(dollars)
                return
        self._note(*_OWN_KEY)

    def _cost(self) -> int | None:
        """Return the cost: the total, or the sum of its parts; None if none was reported."""
        if not self._dollars:
            return None
        cost = self._dollars["total"] if "total" in self._dollars else sum(self._dollars.values())
        if cost > MAX_AMOUNT:
            self._odd("cost", "its parts come to more than can be stored; it is not counted")
            self._dollars.clear()
            return None
        return cost

    def _less(self, name: str, whole: int, part: int, owner: str) -> int:
        if part > whole:
            self._terms.setdefault(*INCOMPLETE)
            self._odd(name, f"{whole} is less than the {part} of {owner}, which is part of it; it is counted as none")
        return max(0, whole - part)

    def _at_most(self, name: str, part: int, whole_name: str, whole: int) -> int:
        self._terms.setdefault(*INCOMPLETE)
        self._odd(name, f"{part} is more than the {whole} of {whole_name}, which it is a part of; counted as that")
        return whole

    def _odd(self, name: str, oddity: str) -> None:
        self._oddities.append(f"{self._where}.{name}: {oddity}")


def _summed_rows(rows: Rows, reported: list[JsonValue] | tuple[JsonValue, ...]) -> JsonObject:
    """Return a list of numbers as an object: rows of one name are added up."""
    summed: dict[str, JsonValue] = {}
    for row in reported:
        if not isinstance(row, Mapping):
            continue
        fields = {_snake_case(name): value for name, value in row.items()}
        name = str(fields.get(rows.name) or "unnamed")
        count = next((fields[field_name] for field_name in rows.count if fields.get(field_name) is not None), None)
        before, number = summed.get(name, 0), _whole_number(count)
        summed[name] = (
            before + number if isinstance(before, int) and number is not None else before if count is None else count
        )
    return summed


_Step: TypeAlias = "tuple[str, ReportedUsage]"


def _steps(value: Mapping[str, JsonValue], where: str) -> list[_Step] | None:
    """Return the steps that one request took, and their models, if they were reported and all are recognised."""
    steps = value.get("iterations")
    if not isinstance(steps, (list, tuple)) or not steps:
        return None
    read: list[_Step] = []
    for number, step in enumerate(steps):
        if not isinstance(step, Mapping):
            return None
        reading = _Reading(f"{where}.iterations[{number}]")
        reading.read(step)
        model = step.get("model")
        read.append((model if isinstance(model, str) else "", reading.result()))
    return read if all(step.is_known for _, step in read) else None


def _sum_of(steps: Sequence[ReportedUsage]) -> ReportedUsage | None:
    """Return the sum of steps, without a cost; None where it cannot be stored."""
    numbers = [sum(column) for column in zip(*(step.totals for step in steps), strict=True)]
    if max(numbers) > MAX_AMOUNT:
        return None
    return ReportedUsage(
        UsageTotals(*numbers),
        sum(step.cache_write_1h for step in steps),
        sum(step.reasoning for step in steps),
        None,
        is_known=True,
        told=frozenset().union(*(step.told for step in steps)),
        oddities=tuple(odd for step in steps for odd in step.oddities),
        terms=tuple(sorted({*(term for step in steps for term in step.terms), *((SUMMED,) if steps[1:] else ())})),
    )


def _named(steps: Sequence[_Step], terms: Terms) -> Iterator[_Step]:
    """Yield the sum of the steps of each model that is named. The terms of their request hold for all of them."""
    of_request = tuple(term for term in terms if term[0] in CONTEXT)
    for model in dict.fromkeys(model for model, _ in steps if model):
        whole = _sum_of([step for name, step in steps if name == model])
        if whole is not None:
            yield model, replace(whole, terms=merged_terms(of_request, whole.terms))


def _whole_number(value: JsonValue) -> int | None:
    """Return a number of tokens that can be stored, or None."""
    if type(value) is int:
        return value if 0 <= value <= MAX_AMOUNT else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if is_whole(value, 0, MAX_AMOUNT) else None


def _picodollars(value: JsonValue) -> int | None:
    """Return a number of dollars in picodollars, or None if it cannot be one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= MAX_DOLLARS:
        return None
    # Below a dollar a float is off by less than a thousandth of a picodollar: mostly that does not decide.
    if value < 1 and abs((dollars := value * PICODOLLARS_PER_DOLLAR) - round(dollars)) < 0.49:
        return round(dollars)
    printed = picodollars_as_printed(value) if type(value) is float else None
    return usd_to_picodollars(value) if printed is None else printed


_WORD_START = expression(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[a-z])(?=\d+[mh](?:[A-Z]|$))")


@lru_cache(maxsize=256)
def _name_meant(spelling: str) -> str | None:
    """Return the number of tokens that a field is a misspelling of, if it looks like one."""
    names = [name for name, node in FIELDS.items() if isinstance(node, Field)]
    return next(iter(difflib.get_close_matches(spelling, names, 1, 0.75)), None)


@lru_cache(maxsize=1024)
def _snake_case(name: str) -> str:
    """Return a name in snake case, as the table has it: ``promptTokens``, ``PromptTokens`` and ``prompt_tokens``."""
    # A name that is not a string means nothing here, and is refused where the usage is written down.
    return _WORD_START.sub("_", name).lower() if isinstance(name, str) else ""


# ---------------------------------------------------------------------------------------------------------------------
# Paid model calls, read from the JSON that a provider or an agent reported.

NAMES_OF_A_CALL = ("provider", "model", "callId")
"""The fields of a usage object that name its call."""
RESPONSE_ID = "responseId"
"""The field of an answer that has its provider's id of the call, which is the id of the call in the ledger."""
REPORTED = "reported"
"""The source of a cost that was reported with the call, rather than computed from a price."""
UNPRICED = "not priced: "
"""The beginning of the source of a cost that is unknown because of the term behind it, as ``name=value``."""
SEVERAL_MODELS = ("models", "several")
"""The term of a call that several models answered, of which the ledger has one row."""

_LEDGER_NAME = 160
_TAG = expression(r"[A-Za-z][A-Za-z0-9_.:-]{0,63}")
_OUTCOMES = {"error": "failed", "aborted": "aborted"}


class PaidCall(Frozen):
    """One paid model call for the ledger, told apart by ``(scope, provider, call_id)``.

    ``told`` names the numbers of tokens that were reported (`PARTS`): a 0 of another is unknown.
    ``cache_write_1h`` is the part of the cache writes that was kept for an hour, ``reasoning`` the part of the output
    that was reasoning. ``cost`` is in picodollars, None if it is unknown; ``price_source`` says where it is from.
    ``purpose`` and ``outcome`` are names of an open set (turn, compaction, title ...; failed, aborted ...). ``at_us``
    is when it was made, if that is not the time of its entry. ``agent`` is the agent or the program that made it,
    None if it is unknown. ``is_unknown`` says that its usage is unknown: its numbers are zero for that reason alone.
    ``terms`` are names and values that make its price another one than that of its tokens on the list.
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


class CallDifference(Frozen):
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
    """Do as `read_call`, with one call of each model that took a step of it (see `by_model`)."""
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
    return rest if provider.startswith("google") and "gemini" in model else terms


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
                replace(step, steps=()),
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
    first = replace(call, usage=rest, cache_write_1h=hour, reasoning=reasoning, terms=terms)
    if rest.tokens:
        return (first, *calls)
    # The model of the answer is named in another way among the steps.
    own_terms = merged_terms(calls[0].terms, terms)
    return (replace(calls[0], call_id=call.call_id, terms=own_terms), *calls[1:])


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
    """Return the outcome of a call by the stop reason of its message: failed, aborted, or None."""
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


def checked_tag(text: str, name: str) -> str:
    """Return a purpose or an outcome unchanged. Raises `InvalidEntry` if it is not a short name."""
    if not isinstance(text, str) or not _TAG.fullmatch(text):
        raise InvalidEntry(f"{name}: {shown(text)} is not a name of at most 64 letters, digits and _ . : -")
    return text


# ---------------------------------------------------------------------------------------------------------------------
# The calls behind one entry, and their sum: for answers and summaries that several calls made.


class PaidFor(Frozen):
    """The calls of an entry, the usage that its payload keeps, and the totals that it adds to a path."""

    calls: tuple[PaidCall, ...]
    reported: JsonObject | None
    totals: UsageTotals
    oddities: tuple[str, ...]
    counted: bool = True


def paid_for(usage: Mapping[str, object] | None, calls: Sequence[Mapping[str, object]], purpose: str) -> PaidFor:
    """Return the calls that made an entry, and their sum.

    ``usage`` is their sum; without it the sum is made, and without calls it is the only one. ``calls`` are usage
    objects, which may carry ``provider``, ``model`` and ``callId``. Raises `InvalidEntry`.
    """
    if usage is not None and not isinstance(usage, Mapping):
        raise InvalidEntry(f"usage: should be an object, not {type(usage).__name__}")
    paid = read_calls(cast("Sequence[JsonObject]", calls), "calls", purpose)
    words = with_words_for_numbers(None if usage is None else cast("JsonObject", dict(usage)), "usage")
    with_words = with_words_for_numbers([cast("JsonObject", dict(call)) for call in calls], "calls")
    odd = (*words[1], *with_words[1])
    if usage is not None:
        usage = cast("Mapping[str, JsonValue]", words[0])
        # The sum of several calls is read like one call. It is not counted as a call if the calls are named.
        whole = read_reported(usage, "usage")
        return PaidFor(
            paid or read_steps(usage, "usage", purpose), dict(usage), whole.totals, all_oddities(odd, whole.oddities)
        )
    if not paid:
        return PaidFor((), None, NO_USAGE, ())
    usages = cast("Sequence[Mapping[str, JsonValue]]", with_words[0])
    oddities = [odd for number, call in enumerate(usages) for odd in read_reported(call, f"calls[{number}]").oddities]
    as_reported: JsonObject = {"calls": [dict(call) for call in usages]}
    # If the usage of all of them is unknown, there is no sum: they are kept as they were reported.
    reported = as_reported if all(call.is_unknown for call in paid) else _summed_json(paid)
    # The payload counts: dollars as JSON numbers can be a hair off the sum.
    whole = read_reported(reported)
    if reported is None or whole.oddities:
        # An answer that was paid for is kept, even if its numbers are too large.
        return PaidFor(
            paid, as_reported, NO_USAGE, (*all_oddities(odd, oddities), f"calls: {TOO_LARGE}"), counted=False
        )
    return PaidFor(paid, reported, whole.totals, all_oddities(odd, oddities))


def calls_of_answer(reported: ReportedUsage, message: Mapping[str, JsonValue]) -> tuple[PaidCall, ...]:
    """Return the call that an assistant message is the answer of: its provider's id of it is the message's.

    If other models took part in it, and their steps are reported, each of those is a call of its own.
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
    """Return the calls behind an assistant message: a field that they lack is taken from it.

    Its stop reason is that of the last one.
    """
    provider, model = ledger_name(message.get("provider")), ledger_name(message.get("model"))
    agent, outcome = agent_of(message), outcome_of(message.get("stopReason"))
    terms = terms_beside(message)
    return tuple(
        replace(
            call,
            provider=call.provider or provider,
            model=call.model or model,
            terms=merged_terms(terms, with_searches(call.terms, call.provider or provider, call.model or model)),
            agent=call.agent or agent,
            outcome=call.outcome or (outcome if number == len(calls) else None),
        )
        for number, call in enumerate(calls, 1)
    )


def all_oddities(of_texts: Sequence[str], read: Sequence[str]) -> tuple[str, ...]:
    """Return the oddities of usage that is kept as text and those of reading it, one for each place."""
    if not of_texts:
        return tuple(read)
    places = {odd.partition(": ")[0] for odd in of_texts}
    return (*of_texts, *(odd for odd in read if odd.partition(": ")[0] not in places))


def _summed_json(paid: Sequence[PaidCall]) -> JsonObject | None:
    """Return a sum of calls as the payload keeps it: the kinds of tokens, and the cost, that some of them reported.

    None if it leaves the stored range.
    """
    try:
        total = reduce(UsageTotals.plus, [call.usage for call in paid], NO_USAGE)
    except SumTooLarge:
        return None
    reported = frozenset[str]().union(*(call.told for call in paid))
    kinds = total.known(reported)
    whole = Usage.from_totals(total).to_json()
    summed = {name: value for name, value in whole.items() if kinds.get(name, value) is not None}
    return summed if any(call.known_cost is not None for call in paid) else {**summed, "cost": None}
