"""What a response of pydantic-ai cost: its usage in our form, and the calls that were paid for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import cast

from flue_py.core.ids import call_id
from flue_py.core.jsontext import JsonObject, JsonValue, to_json

_TOKENS = (
    "input_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "cache_read_tokens",
    "output_tokens",
    "output_reasoning_tokens",
    "input_audio_tokens",
    "cache_audio_read_tokens",
    "output_audio_tokens",
)


def our_usage(usage: Mapping[str, JsonValue]) -> JsonObject:
    """Return what a request used in our form. A number that is 0 there was not reported, so it is left out.

    Theirs counts the cache as part of the input, ours beside it. Empty where nothing is known.
    """
    count = {name: found for name in _TOKENS if isinstance(found := usage.get(name), int)}
    cost = usage.get("cost")
    if usage.get("unmeasured_requests"):
        count = {}
    read, written = count.get("cache_read_tokens", 0), count.get("cache_write_tokens", 0)
    whole, answered = count.get("input_tokens", 0), count.get("output_tokens", 0)
    ours: JsonObject = {
        "input": max(0, whole - read - written),
        "output": answered,
        "cacheRead": read,
        "cacheWrite": written,
        "cacheWrite1h": count.get("cache_write_1h_tokens", 0),
        "reasoning": count.get("output_reasoning_tokens", 0),
        "totalTokens": whole + answered,
    }
    told: JsonObject = {name: tokens for name, tokens in ours.items() if tokens}
    return told if cost is None else {**told, "cost": {"total": float(Decimal(str(cost)))}}


def their_usage(usage: JsonValue) -> JsonObject:
    """Return a usage of ours as a request's, as far as ours says it."""
    told = usage if isinstance(usage, dict) else {}
    count = {name: found if isinstance(found := told.get(name), int) else 0 for name in (*_OURS,)}
    cost = told.get("cost")
    total = cost.get("total") if isinstance(cost, dict) else cost
    tokens = dict.fromkeys(_TOKENS, 0)
    tokens.update(
        input_tokens=count["input"] + count["cacheRead"] + count["cacheWrite"],
        cache_write_tokens=count["cacheWrite"],
        cache_write_1h_tokens=count["cacheWrite1h"],
        cache_read_tokens=count["cacheRead"],
        output_tokens=count["output"],
        output_reasoning_tokens=count["reasoning"],
    )
    shown = None if total is None else format(Decimal(str(total)), "f")
    return {**tokens, "audio_seconds": 0.0, "details": {}, "cost": shown}


_OURS = ("input", "output", "cacheRead", "cacheWrite", "cacheWrite1h", "reasoning")


def calls_of(response: JsonObject) -> list[JsonObject]:
    """Return the calls that were paid for a response, each with its id: the failed attempts before it, then its own."""
    identity = _identity(response)
    return [*_attempts(response, identity), {**_call(response), "callId": identity}]


def _attempts(response: JsonObject, identity: str) -> Iterator[JsonObject]:
    attempts = cast("list[JsonObject]", response.get("failed_attempts") or [])
    for number, attempt in enumerate(attempts):
        # An attempt whose usage is unknown may never have reached its model: it is no call.
        if attempt.get("usage") is not None:
            yield {**_call(attempt), "callId": f"{identity}:attempt-{number}"}


def _call(told: Mapping[str, JsonValue]) -> JsonObject:
    call = our_usage(cast("JsonObject", told["usage"]))
    for ours, theirs in (("provider", "provider_name"), ("model", "model_name")):
        if told.get(theirs):
            call[ours] = told[theirs]
    return call


def _identity(response: JsonObject) -> str:
    """Return the id of the call behind a response: its provider's, or one that saving it again finds again.

    A response of a run is told by the run and its time, so that editing what it says makes no second call of it. One
    that was made by hand is told by all that it says.
    """
    named = response.get("provider_response_id")
    if isinstance(named, str) and named:
        return named
    run = response.get("run_id")
    names = ("run_id", "timestamp", "provider_name", "model_name", "usage")
    told = [response.get(name) for name in names] if run is not None else [response]
    return call_id("pydantic-ai", to_json(told))
