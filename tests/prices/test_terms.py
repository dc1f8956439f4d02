"""What changes the price of a call: the price of that, or an unknown cost, and never the list price."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from flue_py.core.entries import entry_of_message, to_microseconds
from flue_py.core.usage import picodollars_to_usd
from flue_py.prices import PriceBook

NOW = to_microseconds(datetime(2026, 11, 20, 12, tzinfo=UTC))
BASE: dict[str, Any] = {"input_tokens": 10**6, "output_tokens": 10**5}
CHAT: dict[str, Any] = {"prompt_tokens": 10**5, "completion_tokens": 10**4, "total_tokens": 11 * 10**4}
GEMINI: dict[str, Any] = {"promptTokenCount": 10**5, "candidatesTokenCount": 10**4, "totalTokenCount": 11 * 10**4}
STEP = {"cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
ADVISOR = {"type": "advisor_message", "model": "claude-opus-5", **BASE, **STEP}


def spent(book: PriceBook, provider: str, model: str, usage: Any) -> Decimal | None:
    """Return the cost of an answer; None if that of a call behind it is unknown."""
    answer = {"role": "assistant", "content": "x", "provider": provider, "model": model, "usage": usage}
    costs = [book.priced(call, lambda: NOW).known_cost for call in entry_of_message(answer).calls]
    return None if None in costs else picodollars_to_usd(sum(cost for cost in costs if cost is not None))


SONNET = ("anthropic", "claude-sonnet-4-5")
CLAUDE, GPT, FLASH, PRO = (
    ("anthropic", "claude-opus-5"),
    ("openai", "gpt-5.6"),
    ("google", "gemini-2.5-flash"),
    ("google", "gemini-2.5-pro"),
)
LISTED = "listed"
PUBLISHED: tuple[tuple[tuple[str, str], dict[str, Any], str | None], ...] = (
    (CLAUDE, BASE, "7.5"),
    # At these the list price holds.
    (CLAUDE, BASE | {"speed": "standard", "service_tier": "standard", "inference_geo": "not_available"}, LISTED),
    (CLAUDE, BASE | {"server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 9}}, LISTED),
    (CLAUDE, BASE | {"fallback_credit": {"status": {"type": "not_applied", "reason": "expired"}}}, LISTED),
    (CLAUDE, BASE | {"service_tier": None, "inference_geo": ""}, LISTED),
    (GPT, CHAT | {"service_tier": "default"}, LISTED),
    (GPT, CHAT | {"completion_tokens_details": {"audio_tokens": 0, "rejected_prediction_tokens": 5}}, LISTED),
    (PRO, GEMINI | {"trafficType": "ON_DEMAND"}, LISTED),
    (PRO, GEMINI | {"promptTokensDetails": [{"modality": m, "tokenCount": 5} for m in ("IMAGE", "VIDEO")]}, LISTED),
    # These have a price of their own.
    (CLAUDE, BASE | {"speed": "fast"}, "15"),
    (CLAUDE, BASE | {"service_tier": "batch"}, "3.75"),
    (CLAUDE, BASE | {"server_tool_use": {"web_search_requests": 1000}}, "17.5"),
    (CLAUDE, BASE | {"speed": "fast", "serverToolUse": {"webSearchRequests": 1000}}, "25"),
    (GPT, CHAT | {"service_tier": "flex"}, "0.3"),
    (GPT, CHAT | {"serviceTier": "priority"}, "1.2"),
    (GPT, {"input_tokens": 10**5, "output_tokens": 10**4, "total_tokens": 11 * 10**4,
           "input_token_details": {"priority": 80_000, "priority_cache_read": 20_000},
           "output_token_details": {"priority": 10_000, "priority_reasoning": 0}}, "1.056"),
    # What is billed is the number of searches, and not that of queries.
    (("google", "gemini-2.5-flash"), BASE | {"web_searches": 1, "details": {"web_search_requests": 3}}, "0.585"),
    (("google-vertex", "gemini-3-pro-preview"), BASE | {"web_searches": 1000}, "19.8"),
    (FLASH, BASE | {"details": {"web_search_requests": 3}}, LISTED),
    (FLASH, BASE | {"web_searches": 0, "details": {"web_search_requests": 3}}, LISTED),
    (CLAUDE, BASE | {"details": {"web_search_requests": 1000}}, "17.5"),
    (("openai", "gpt-5"), BASE | {"web_searches": 1000, "details": {"web_search_requests": 1000}}, "12.25"),
    (("openrouter", "anthropic/claude-opus-5"), BASE | {"details": {"web_search_requests": 3}}, None),
    (("", "gemini-2.5-flash"), BASE | {"details": {"web_search_requests": 3}}, None),
    (("google-vertex", "claude-opus-5"), BASE | {"details": {"web_search_requests": 3}}, None),
    # These have a price that nobody published.
    (CLAUDE, BASE | {"service_tier": "priority"}, None),
    (CLAUDE, BASE | {"speed": "fast", "service_tier": "batch", "inference_geo": "us"}, None),
    (CLAUDE, BASE | {"inference_geo": "us"}, None),
    (CLAUDE, BASE | {"speed": "ludicrous"}, None),
    (CLAUDE, BASE | {"server_tool_use": {"code_execution_requests": 3}}, None),
    (CLAUDE, BASE | {"server_tool_use": {"web_search_requests": "many"}}, None),
    (CLAUDE, BASE | {"cache_creation": {"ephemeral_24h_input_tokens": 7}}, None),
    (CLAUDE, BASE | {"fallback_credit": {"status": {"type": "redeemed"}}}, None),
    (("anthropic", "claude-haiku-5-5"), BASE | {"speed": "fast"}, None),
    (("aws", "anthropic.claude-opus-5"), {"inputTokens": 5, "outputTokens": 5, "serviceTier": {"type": "flex"}}, None),
    (("aws", "anthropic.claude-opus-5"),
     {"inputTokens": 5, "outputTokens": 5, "performanceConfig": {"latency": "optimized"}}, None),
    (GPT, CHAT | {"service_tier": "auto"}, None),
    (GPT, CHAT | {"batch": True}, "0.3"),
    (GPT, CHAT | {"service_tier": "scale"}, None),
    (GPT, {"input_tokens": 5, "output_tokens": 5, "input_tokens_details": {
        "cache_write_tokens": 4, "cache_write_tokens_details": {"ttl_12h_tokens": 4}}}, None),
    (PRO, GEMINI | {"trafficType": "PROVISIONED_THROUGHPUT"}, None),
    (PRO, GEMINI | {"trafficType": "ON_DEMAND_FLEX"}, None),
    (FLASH, GEMINI | {"promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 5}]}, None),
    # Audio, and what is made of pictures and videos, has a price of its own, which not every list has.
    *[(PRO, GEMINI | {field: [{"modality": medium, "tokenCount": 5}]}, None) for field, medium in (
        ("promptTokensDetails", "AUDIO"), ("candidatesTokensDetails", "AUDIO"), ("candidatesTokensDetails", "IMAGE"),
        ("candidatesTokensDetails", "VIDEO"))],
    (("openai", "gpt-4o-audio-preview"), CHAT | {"prompt_tokens_details": {"audio_tokens": 5}}, None),
    (("openai", "gpt-4o-audio-preview"), CHAT | {"completion_tokens_details": {"audio_tokens": 5}}, None),
    (("google", "gemini-2.5-flash-image"), BASE | {"output_image_tokens": 10**4}, None),
    (("openai", "gpt-image-1"), BASE | {"input_image_tokens": 5}, None),
    (PRO, BASE | {"input_image_tokens": 5, "input_video_tokens": 5, "output_image_tokens": 0}, LISTED),
    (CLAUDE, BASE | {"details": {"advisor_output_tokens": 5}}, None),
    (CLAUDE, BASE | {"details": {"advisor_cache_read_input_tokens": 5}}, None),
    (("mistral", "mistral-small-latest"), CHAT | {"prompt_audio_seconds": 7}, None),
    (("x-ai", "grok-4"), CHAT | {"num_sources_used": 4}, None),
    # What was charged, in all.
    (("x-ai", "grok-4"), CHAT | {"num_sources_used": 4, "cost_in_usd_ticks": 37_756_001}, "0.0037756001"),
    (("x-ai", "grok-4"), CHAT | {"num_sources_used": 4, "cost_in_usd_ticks": -1}, None),
    # Tiers hold for each request, and of a sum it is unknown which it reached.
    (SONNET, {"input_tokens": 150_000, "output_tokens": 0, "iterations": [
        {"type": "compaction", "input_tokens": 100_000, "output_tokens": 0},
        {"type": "message", "input_tokens": 50_000, "output_tokens": 0}]}, "0.45"),
    (SONNET, {"input_tokens": 23_000, "output_tokens": 0, "iterations": [
        {"type": "compaction", "input_tokens": 180_000, "output_tokens": 0},
        {"type": "message", "input_tokens": 23_000, "output_tokens": 0}]}, None),
    (SONNET, {"input_tokens": 203_000, "output_tokens": 0, "iterations": [
        {"type": "message", "input_tokens": 203_000, "output_tokens": 0}]}, "1.218"),
    (SONNET, {"input_tokens": 210_000, "output_tokens": 0, "iterations": [
        {"type": "message", "model": "claude-sonnet-4-5", "input_tokens": 105_000, "output_tokens": 0}] * 2}, None),
    (CLAUDE, {"input_tokens": 10, "output_tokens": 0, "iterations": [
        {"type": "message", "input_tokens": 10, "output_tokens": 0},
        *[{"type": "advisor_message", "model": "claude-sonnet-4-5", "input_tokens": 150_000, "output_tokens": 0}] * 2,
        ]}, None),
    (SONNET, {"input_tokens": 203_000, "output_tokens": 0, "requests": 2}, None),
    (SONNET, {"input_tokens": 203_000, "output_tokens": 0, "requests": 1}, "1.218"),
    (CLAUDE, BASE | {"requests": 9}, LISTED),
    # A model that always searches, for a fee that nobody reports.
    *[((provider, model), CHAT, None) for provider, model in (
        ("openai", "gpt-4o-search-preview"), ("openai", "gpt-4o-mini-search-preview"), ("openai", "gpt-5-search-api"),
        ("azure", "gpt-4o-search-preview-2025-03-11"), ("openrouter", "openai/gpt-4o-search-preview"))],
    (("openai", "gpt-4o-mini-search-preview"), CHAT | {"server_tool_use": {"web_search_requests": 1}}, "0.031"),
    (CLAUDE, BASE | {"batch": True}, "3.75"),
    (CLAUDE, BASE | {"batch": False, "is_batch": 0}, LISTED),
    # These do not say how many tokens of which kind it were.
    (GPT, {"total_tokens": 10**6}, None),
    (GPT, {"prompt_tokens": 10**6}, None),
    (GPT, {"prompt_tokens": 10**6, "completion_tokens": "many"}, None),
    (GPT, {"prompt_tokens": 5, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}}, None),
    (CLAUDE, {"output_tokens": 5}, None),
    (CLAUDE, BASE | {"total_tokens": 2 * 10**6}, None),
    # The models of the steps.
    (("anthropic", "claude-haiku-5-5"), {"input_tokens": 400, "output_tokens": 50, **STEP, "iterations": [
        {"type": "message", "input_tokens": 400, "output_tokens": 50, **STEP}, ADVISOR]}, "7.500065"),
    (("anthropic", "claude-haiku-5-5"), {"input_tokens": 400, "output_tokens": 50, **STEP, "speed": "fast",
        "iterations": [{"type": "message", "input_tokens": 400, "output_tokens": 50, **STEP}, ADVISOR]}, None),
    (("anthropic", "opus"), {**BASE, **STEP, "iterations": [{**ADVISOR, "type": "message"}]}, "7.5"),
)  # fmt: skip


def test_a_published_price_is_that_of_what_the_usage_says_or_unknown() -> None:
    book = PriceBook()
    wrong = []
    for (provider, model), usage, want in PUBLISHED:
        tokens = {name: value for name, value in usage.items() if name in BASE | CHAT | GEMINI}
        cost = spent(book, provider, model, tokens) if want == LISTED else None if want is None else Decimal(want)
        got = spent(book, provider, model, usage)
        if got != cost or (want == LISTED and got is None):
            wrong.append((provider, model, usage, got, cost))
    assert wrong == []


def test_what_stands_beside_the_usage_of_a_message_changes_its_price_as_within_it() -> None:
    book = PriceBook()
    wrong = []
    for beside in (
        {"service_tier": "batch"}, {"serviceTier": "priority"}, {"speed": "fast"}, {"batch": True}, {"isBatch": False},
        {"inference_geo": "us"}, {"service_tier": "standard"}, {"performanceConfig": {"latency": "optimized"}},
        {"trafficType": "PROVISIONED_THROUGHPUT"}, {"speed": None},
    ):  # fmt: skip
        message: dict[str, Any] = {"role": "assistant", "content": "x", "provider": CLAUDE[0], "model": CLAUDE[1]}
        made = [
            entry_of_message({**message, "usage": BASE | beside}),
            entry_of_message({**message, **beside, "usage": BASE}),
            entry_of_message({**message, **beside}, calls=[BASE]),
        ]
        costs = {book.priced(call, lambda: NOW).known_cost for entry in made for call in entry.calls}
        if len(costs) > 1 or {entry.calls[0].terms for entry in made} != {made[0].calls[0].terms}:
            wrong.append((beside, costs))
    assert wrong == []


def test_own_prices_hold_for_the_terms_that_they_name_and_for_no_others() -> None:
    book = PriceBook({
        "m": {"input": 5, "output": 0, "webSearch": 10_000},
        "m speed=fast": {"input": 10, "output": 0},
        "n": {"input": 5, "output": 0},
        "gpt-9-search-api": {"input": 5, "output": 0, "webSearch": 10_000},
    })  # fmt: skip
    searches = {"server_tool_use": {"web_search_requests": 100}}
    wrong = [
        (model, usage, got)
        for model, usage, want in (
            ("m", {}, "5"), ("m", {"speed": "fast"}, "10"), ("m", {"service_tier": "batch"}, None),
            ("m", searches, "6"), ("m", {**searches, "web_searches": 3}, None), ("gpt-9-search-api", {}, None),
            ("gpt-9-search-api", searches, "6"), ("m", {**searches, "speed": "fast"}, None), ("n", searches, None),
            ("n", {"promptTokensDetails": [{"modality": "IMAGE", "tokenCount": 5}]}, "5"),
        )
        if (got := spent(book, "p", model, BASE | usage)) != (None if want is None else Decimal(want))
    ]  # fmt: skip
    assert wrong == []


def test_the_ledger_has_the_calls_of_each_model_and_why_a_cost_is_unknown() -> None:
    steps = [{"type": "message", "input_tokens": 4, "output_tokens": 5}, {**ADVISOR, "cache_read_input_tokens": 7}]
    usage = {"input_tokens": 4, "output_tokens": 5, "iterations": steps, "speed": "fast"}
    answer: Any = {"role": "assistant", "content": "x", "provider": "anthropic", "model": "small", "usage": usage}
    first, second = entry_of_message({**answer, "responseId": "msg_1"}).calls
    assert (first.model, first.call_id, first.usage[:5]) == ("small", "msg_1", (4, 5, 0, 0, 9))
    assert (second.model, second.call_id) == ("claude-opus-5", "msg_1:claude-opus-5")
    assert second.usage[:5] == (10**6, 10**5, 7, 0, 11 * 10**5 + 7)
    assert [call.source for call in (first, second)] == ["not priced: speed=fast"] * 2
    # One cost of all of them cannot be divided.
    (whole,) = entry_of_message({**answer, "usage": {**usage, "cost": {"total": 2}}}).calls
    assert (whole.known_cost, whole.source, whole.usage.input) == (2 * 10**12, "reported", 10**6 + 4)
