"""What a response of pydantic-ai cost: its usage in our form, and the calls that were paid for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, cast

from flue_py.core.calls import PaidCall, ledger_name, read_call
from flue_py.core.entries import NewEntry
from flue_py.core.ids import call_id
from flue_py.core.jsontext import JsonObject, JsonValue, to_json
from flue_py.core.usage_shapes import billed_by

if TYPE_CHECKING:
    from pydantic_ai.usage import RunUsage


def our_usage(response: Mapping[str, JsonValue]) -> JsonObject:
    """Return what a response used in our form. A number that is 0 there was not reported, so it is left out.

    Theirs counts the cache as part of the input, ours beside it. Empty where nothing is known.
    """
    usage = cast("JsonObject", response["usage"])
    known = {} if usage.get("unmeasured_requests") else dict(usage)
    read, written = _count(known, "cache_read_tokens"), _count(known, "cache_write_tokens")
    whole, answered = _count(known, "input_tokens"), _count(known, "output_tokens")
    cost = usage.get("cost")
    ours: JsonObject = {
        "input": max(0, whole - read - written),
        "output": answered,
        "cacheRead": read,
        "cacheWrite": written,
        "cacheWrite1h": _count(known, "cache_write_1h_tokens"),
        "reasoning": _count(known, "output_reasoning_tokens"),
        "totalTokens": whole + answered,
    }
    told: JsonObject = {name: tokens for name, tokens in ours.items() if tokens}
    if told:
        told |= billed_by(cast("JsonObject", response.get("provider_details") or {}), usage)
    return told if cost is None else {**told, "cost": {"total": float(Decimal(str(cost)))}}


def their_usage(usage: JsonValue, is_whole: bool = False) -> JsonObject:
    """Return a usage of ours as a request's, as far as ours says it; with the rest too, if it is to be ``is_whole``."""
    told = usage if isinstance(usage, dict) else {}
    read, written = _count(told, "cacheRead"), _count(told, "cacheWrite")
    made: JsonObject = {
        "input_tokens": _count(told, "input") + read + written,
        "output_tokens": _count(told, "output"),
        "details": {},
    }
    cost = told.get("cost")
    total = cost.get("total") if isinstance(cost, dict) else cost
    if is_whole or total is not None:
        made["cost"] = None if total is None else format(Decimal(str(total)), "f")
    others = (
        ("cache_read_tokens", read),
        ("cache_write_tokens", written),
        ("cache_write_1h_tokens", _count(told, "cacheWrite1h")),
        ("output_reasoning_tokens", _count(told, "reasoning")),
    )
    for name, tokens in others:
        if tokens or is_whole:
            made[name] = tokens
    return {**made, **_OF_USAGE} if is_whole else made


_OF_USAGE: JsonObject = {
    "input_audio_tokens": 0,
    "cache_audio_read_tokens": 0,
    "output_audio_tokens": 0,
    "audio_seconds": 0.0,
}


def _count(told: JsonObject, name: str) -> int:
    found = told.get(name, 0)
    return found if type(found) is int else 0


def calls_of(response: JsonObject) -> list[JsonObject]:
    """Return the calls that were paid for a response, each with its id: the failed attempts before it, then its own."""
    identity = identity_of(response)
    return [*_attempts(response, identity), {**_call(response), "callId": identity}]


def _attempts(response: JsonObject, identity: str) -> Iterator[JsonObject]:
    attempts = cast("list[JsonObject]", response.get("failed_attempts") or [])
    for number, attempt in enumerate(attempts):
        # An attempt whose usage is unknown may never have reached its model: it is no call.
        if attempt.get("usage") is not None:
            yield {**_call(attempt), "callId": f"{identity}:attempt-{number}"}


def _call(told: Mapping[str, JsonValue]) -> JsonObject:
    call = our_usage(told)
    for ours, theirs in (("provider", "provider_name"), ("model", "model_name")):
        if told.get(theirs):
            call[ours] = told[theirs]
    return call


def beside_responses(now: RunUsage, before: RunUsage | None, calls: Sequence[PaidCall], name: str) -> PaidCall | None:
    """Return what a conversation has paid for since ``before`` beside the calls of its new responses; None for nothing.

    Those are the calls of an agent that is a tool, or of a capability that writes a summary: the usage of the run
    counts them, without their models, and no response has them. They are one call here.
    """
    seen = {
        "input_tokens": sum(call.usage.input + call.usage.cache_read + call.usage.cache_write for call in calls),
        "output_tokens": sum(call.usage.output for call in calls),
        "cache_read_tokens": sum(call.usage.cache_read for call in calls),
        "cache_write_tokens": sum(call.usage.cache_write for call in calls),
        "cache_write_1h_tokens": sum(call.cache_write_1h for call in calls),
        "output_reasoning_tokens": sum(call.reasoning for call in calls),
    }
    rest: JsonObject = {
        field: max(0, getattr(now, field) - (0 if before is None else getattr(before, field)) - tokens)
        for field, tokens in seen.items()
    }
    if not rest["input_tokens"] and not rest["output_tokens"]:
        return None
    return read_call({**our_usage({"usage": rest}), "callId": call_id("pydantic-ai", to_json(name))}, "usage")


def named_call(answer: NewEntry, identity: str) -> NewEntry:
    """Return an answer whose one call has this id: as with the only one of `calls_of`, in less time."""
    (call,) = answer.calls
    return replace(answer, calls=(replace(call, call_id=ledger_name(identity)),))


def identity_of(response: JsonObject) -> str:
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
