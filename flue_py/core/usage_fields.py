"""What the fields of a usage object mean: the spellings of providers and frameworks, in snake case.

The names of fields are those of the types in anthropic 2.14.0 (`Usage`, `BetaUsage`), openai 3.57.0 (`CompletionUsage`,
`ResponseUsage`), google-genai 3.6.1 (`GenerateContentResponseUsageMetadata`, `UsageMetadata`, and `Usage` of the
Interactions API), botocore 1.44.8 (`TokenUsage` of bedrock-runtime), langchain-core 1.8.3 (`UsageMetadata`, with what
langchain-openai 1.7.4, langchain-anthropic 1.7.10 and langchain-aws 1.9.1 put into its details) and pydantic-ai 2.68
(`RequestUsage`), as of November 2026. OpenRouter, xAI, Perplexity and Cohere have no such type: their names are those
of their documentation.

A field is one of these: a number of tokens (`Field`), something that changes the price (`Term` and `Count`), an object
of such fields, or nothing that is paid for (`FREE`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, auto
from typing import TypeAlias

from flue_py.core.frozen import frozen


class Kind(Enum):
    """What a reported number counts."""

    INPUT = auto()
    MORE_INPUT = auto()
    """Tokens of the input that are not in the number of the input, cached or not."""
    OUTPUT = auto()
    CACHE_READ = auto()
    CACHE_WRITE = auto()
    MORE_CACHE_WRITE = auto()
    """Written tokens that are not in the numbers by lifetime, where there are such."""
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


@frozen
class Field:
    """A number of tokens; ``holds_cache`` if a provider with this spelling counts the cache as input.

    ``since`` is the version of the rules of reading that first knew the field. ``term`` is what its presence says of
    the price.
    """

    kind: Kind
    holds_cache: bool = False
    since: int = 1
    term: tuple[str, str] | None = None


@frozen
class Term:
    """A name of what changes the price; at the ``usual`` values the list price holds, and at an empty one.

    ``values`` are those that mean another term.
    """

    name: str
    usual: frozenset[str]
    values: Mapping[str, tuple[str, str]]


@frozen
class Count:
    """A number of what is paid for beside the tokens, or at another price: a term where it is not 0.

    Without a name it goes by the field's.
    """

    name: str = ""


@frozen
class Rows:
    """A list of numbers: ``name`` is the field that says of what, ``count`` the fields that may have the number."""

    name: str
    count: tuple[str, ...]


@frozen
class Free:
    """What no provider charges for."""


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
"""What a response says of its price, in its usage or beside it."""

TIER = "service_tier"
_TIERS = ("priority", "flex")
"""The tiers that LangChain writes before the names of its details."""

SEARCHES = "web_searches"
"""The term of web searches: it has their number, and a price book may have a price for each."""

REQUESTS = "requests"
"""The term of numbers that are the sum of several requests: which tier each of them reached is then unknown."""

QUERIES = "web_search_requests"
"""The term of what was searched for, where the number that is billed is absent: the provider says which that is."""
BILLED_BY_QUERY = frozenset({"anthropic", "openai", "openrouter"})

ALWAYS_SEARCHES = re.compile(r"(?:^|/)gpt-[^/]*-search(?:-|$)")
"""Models of OpenAI that search for each answer, for a fee that no usage of theirs reports."""

MODALITIES = {
    f"{way}_{medium}_tokens": f"{way}_{medium}_mtok"
    for way in ("input", "output")
    for medium in ("audio", "image", "video")
}
"""Terms of tokens that some models have another price for, and the price of genai-prices that says so."""
AS_TEXT = frozenset({"input_image_tokens", "input_video_tokens"})
"""Those that cost as any other where no price of their own is published; that of the rest is then unknown."""


def _modalities(way: str) -> Mapping[str, Node]:
    """Return the fields of tokens by what they are of: Chat Completions, Realtime, LangChain, Gemini."""
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
            fields[f"{tier}_{name}"] = Field(kind, holds_cache=kind is not Kind.REASONING, since=2, term=term)
    return fields


_INPUT: Mapping[str, Node] = {
    "input": Field(Kind.INPUT),
    "input_tokens": Field(Kind.INPUT),
    "prompt_tokens": Field(Kind.INPUT, holds_cache=True),
    "request_tokens": Field(Kind.INPUT, holds_cache=True),
    "prompt_token_count": Field(Kind.INPUT, holds_cache=True),
    "total_input_tokens": Field(Kind.INPUT, holds_cache=True, since=2),
    "tool_use_prompt_token_count": Field(Kind.MORE_INPUT),
    "total_tool_use_tokens": Field(Kind.MORE_INPUT, since=2),
}
_OUTPUT: Mapping[str, Node] = {
    "output": Field(Kind.OUTPUT),
    "output_tokens": Field(Kind.OUTPUT),
    "completion_tokens": Field(Kind.OUTPUT),
    "response_tokens": Field(Kind.OUTPUT),
    "candidates_token_count": Field(Kind.OUTPUT),
    "response_token_count": Field(Kind.OUTPUT),
    "total_output_tokens": Field(Kind.OUTPUT, since=2),
    "reasoning": Field(Kind.REASONING),
    "reasoning_tokens": Field(Kind.REASONING),
    "reasoning_output_tokens": Field(Kind.REASONING),
    "output_reasoning_tokens": Field(Kind.REASONING, since=2),
    "thoughts_token_count": Field(Kind.THOUGHTS),
    "total_thought_tokens": Field(Kind.THOUGHTS, since=2),
}
_CACHE: Mapping[str, Node] = {
    "cache_read": Field(Kind.CACHE_READ),
    "cache_read_input_tokens": Field(Kind.CACHE_READ),
    "cache_read_tokens": Field(Kind.CACHE_READ, holds_cache=True),
    "cached_tokens": Field(Kind.CACHE_READ, holds_cache=True),
    "cached_input_tokens": Field(Kind.CACHE_READ, holds_cache=True),
    "cached_content_token_count": Field(Kind.CACHE_READ, holds_cache=True),
    "prompt_cache_hit_tokens": Field(Kind.CACHE_READ, holds_cache=True),
    "prompt_cache_miss_tokens": FREE,
    "total_cached_tokens": Field(Kind.CACHE_READ, holds_cache=True, since=2),
    "cache_write": Field(Kind.CACHE_WRITE),
    "cache_write_input_tokens": Field(Kind.CACHE_WRITE),
    "cache_creation_input_tokens": Field(Kind.CACHE_WRITE),
    "cache_write_tokens": Field(Kind.CACHE_WRITE, holds_cache=True),
    "cache_write_1h": Field(Kind.CACHE_WRITE_1H),
    "cache_write_1h_tokens": Field(Kind.CACHE_WRITE_1H, since=2),
    "cache_details": {
        ROWS: Rows("ttl", ("input_tokens",)),
        "5m": Field(Kind.CACHE_WRITE_5M, since=2),
        "1h": Field(Kind.CACHE_WRITE_1H, since=2),
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
    "cached_tokens": Field(Kind.CACHE_READ, holds_cache=True),
    "cache_read": Field(Kind.CACHE_READ, holds_cache=True),
    "cache_read_tokens": Field(Kind.CACHE_READ, holds_cache=True),
    "cache_creation": Field(Kind.MORE_CACHE_WRITE, holds_cache=True),
    "cache_creation_tokens": Field(Kind.CACHE_WRITE, holds_cache=True),
    "cache_write_tokens": Field(Kind.CACHE_WRITE, holds_cache=True),
    "ephemeral_5m_input_tokens": Field(Kind.CACHE_WRITE_5M, holds_cache=True, since=2),
    "ephemeral_1h_input_tokens": Field(Kind.CACHE_WRITE_1H, holds_cache=True, since=2),
    # There is one published price of what OpenAI writes, which is kept for 30 minutes.
    "cache_write_tokens_details": {"ttl_30m_tokens": FREE, "ttl_12h_tokens": Count(), ANY: Count()},
    "cached_tokens_details": FREE,
    "cache_creation_token_details": _BY_LIFETIME,
    "no_cache_tokens": FREE,
    **_by_tier(cache_read=Kind.CACHE_READ, cache_creation=Kind.CACHE_WRITE),
}
_OF_OUTPUT: Mapping[str, Node] = {
    **_modalities("output"),
    "reasoning_tokens": Field(Kind.REASONING),
    "reasoning": Field(Kind.REASONING),
    "thinking_tokens": Field(Kind.REASONING, since=2),
    "accepted_prediction_tokens": FREE,
    "rejected_prediction_tokens": FREE,
    **_by_tier(reasoning=Kind.REASONING),
}

_ADVISED = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")

FIELDS: Mapping[str, Node] = {
    **CONTEXT,
    **_INPUT,
    **_OUTPUT,
    **_CACHE,
    **_TOTAL,
    "prompt_tokens_details": _OF_INPUT,
    "input_tokens_details": _OF_INPUT,
    "input_token_details": _OF_INPUT,
    "completion_tokens_details": _OF_OUTPUT,
    "output_tokens_details": _OF_OUTPUT,
    "output_token_details": _OF_OUTPUT,
    "candidates_tokens_details": _modalities("output"),
    "response_tokens_details": _modalities("output"),
    "input_tokens_by_modality": _modalities("input"),
    "output_tokens_by_modality": _modalities("output"),
    "tool_use_prompt_tokens_details": _modalities("input"),
    "tool_use_tokens_by_modality": _modalities("input"),
    # Frameworks: how often, and how long
    REQUESTS: _term(REQUESTS, "0", "1"),
    **dict.fromkeys(("tool_calls", "calls", "turns", "num_turns", "steps", "duration_ms"), FREE),
    "cache_tokens_details": FREE,
    "cached_tokens_by_modality": FREE,
    "initial_input_tokens": FREE,
    # pydantic-ai
    "details": {
        **_OF_OUTPUT,
        QUERIES: Count(QUERIES),
        # What an advisor on Anthropic's side took is in no number of the request.
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
    # Anthropic and OpenRouter: what a tool of the provider was used for. Fetching a page costs its tokens.
    "server_tool_use": {"web_search_requests": Count(SEARCHES), "web_fetch_requests": FREE, ANY: Count()},
    "fallback_credit": {"status": {"type": _term("fallback_credit", "not_applied")}},
    # Gemini, Interactions API
    "grounding_tool_count": {ROWS: Rows("type", ("count",)), ANY: Count("grounded_searches")},
    # xAI
    "server_side_tool_usage": {ANY: Count()},
    "server_side_tool_usage_details": {ANY: Count()},
    "num_server_side_tools_used": Count(),
    "num_sources_used": Count(),
    # Perplexity
    "num_search_queries": Count(),
    "citation_tokens": Count(),
    # Cohere: what was billed, beside "tokens", which has all of them
    "billed_units": {
        "input_tokens": Field(Kind.INPUT, since=2),
        "output_tokens": Field(Kind.OUTPUT, since=2),
        ANY: Count(),
    },
    # Ours: terms as they were read from another shape
    "terms": {ANY: _term("")},
}
"""Every spelling that is known. Costs, and the steps of one request (``iterations``), are read apart."""

DOLLARS = frozenset({"cost", "cost_usd", "total_cost_usd"})
"""Where a cost stands that is one number of dollars."""

TICKS = "cost_in_usd_ticks"
"""xAI: what was charged, searches and all, in ten billionths of a dollar."""
PICODOLLARS_PER_TICK = 100

OWN_KEY = "is_byok"
"""OpenRouter: the call was paid for with the user's own key, and the cost is only what was charged for that."""
UPSTREAM = "cost_details"
"""OpenRouter: where what the model's provider charged stands (`UPSTREAM_WHOLE`, or `UPSTREAM_PARTS` together)."""
UPSTREAM_WHOLE = "upstream_inference_cost"
UPSTREAM_PARTS = (
    ("upstream_inference_prompt_cost", "upstream_inference_completions_cost"),
    ("upstream_inference_input_cost", "upstream_inference_output_cost"),
)
