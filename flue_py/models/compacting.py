"""A provider's own compaction: the conversation is sent, and what it made of that comes back as it is.

Anthropic compacts on demand with the parameter ``compaction`` of its Messages; OpenAI has an address for it beside its
Responses. The clients' own answers are read, not what pydantic-ai makes of them, so that no field of a block is lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from pydantic_ai import exceptions as theirs

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.model_seam import ModelReply, ModelRequest
from flue_py.core.native import compaction_in
from flue_py.core.usage_shapes import context_of, read_beside, read_reported, usage_json
from flue_py.errors import ContextOverflow, ModelError, ModelRefused, ModelUnavailable
from flue_py.models.failures import Place
from flue_py.wire.leftovers import Leftovers
from flue_py.wire.lists.anthropic import anthropic_list
from flue_py.wire.lists.openai_responses import responses_list
from flue_py.wire.lists.said import Said

if TYPE_CHECKING:
    from pydantic_ai.models import Model as TheirModel

ANTHROPIC_BETA = "compact-2026-09-04"
_BETAS = "anthropic-beta"
_ANTHROPIC_TOKENS = 16_000
_SECONDS = 600.0
_CATEGORIES: Mapping[int, type[theirs.ModelAPIError]] = {
    400: theirs.ModelRequestRejectedError,
    401: theirs.ModelAuthenticationError,
    402: theirs.ModelQuotaExceededError,
    403: theirs.ModelAuthenticationError,
    404: theirs.ModelNotFoundError,
    413: theirs.ModelRequestRejectedError,
    422: theirs.ModelRequestRejectedError,
    429: theirs.ModelRateLimitError,
}


def provider_of_compactions(model: TheirModel) -> str | None:
    """Return the provider whose compactions a model makes and takes back; None where its interface has none."""
    kinds = {kind.__name__ for kind in type(model).__mro__}
    return next((name for kind, name in _PROVIDERS.items() if kind in kinds and model.system == name), None)


_PROVIDERS = {"AnthropicModel": "anthropic", "OpenAIResponsesModel": "openai"}


async def compacted(
    model: TheirModel, request: ModelRequest, settings: Mapping[str, object], place: Place, account: str | None
) -> JsonObject:
    """Return what the provider answered, as its body says. Raises `ModelRefused` where it cannot compact.

    What its client raises comes as the error of pydantic-ai that it stands for.
    """
    provider = provider_of_compactions(model)
    if provider is None:
        what = "its interface has no compaction of its own"
        raise ModelRefused(place.says(what, type(model).__name__, "choose another mode"), **place.told(None))
    send = _ask_anthropic if provider == "anthropic" else _ask_openai
    try:
        return await send(cast("Any", model).client, model.model_name, request, settings, account)
    except Exception as error:
        known = _theirs(error, model.model_name)
        if known is None:
            raise
        raise known from error


def _sent_with(settings: Mapping[str, object], request: ModelRequest) -> dict[str, Any]:
    """Return the arguments that both clients take for any request."""
    told = {name: settings[name] for name in ("extra_headers", "extra_body") if settings.get(name) is not None}
    return {**told, "timeout": _SECONDS if request.timeout is None else float(request.timeout)}


def _for_anthropic(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the betas that a request has, and what its settings add to it but what goes with no compaction.

    A header of the caller's would take the place of the one that says what the request needs.
    """
    headers = dict(settings.get("extra_headers") or {})
    told = [headers.pop(name) for name in [*headers] if name.lower() == _BETAS]
    betas = [beta.strip() for value in told for beta in str(value).split(",")]
    betas += settings.get("anthropic_betas") or ()
    body = {name: value for name, value in (settings.get("extra_body") or {}).items() if name not in _REFUSED}
    if isinstance(body.get("output_config"), Mapping):
        refused = ("format", "task_budget")
        body["output_config"] = {name: value for name, value in body["output_config"].items() if name not in refused}
    return {
        "betas": list(dict.fromkeys([*filter(None, betas), ANTHROPIC_BETA])),
        "extra_headers": headers or None,
        "extra_body": body or None,
    }


_REFUSED = frozenset({"stop_sequences", "context_management", "tool_choice"})
"""What a body may have for a turn, and a request for a compaction is refused with."""


async def _ask_anthropic(
    client: Any,  # noqa: ANN401 - a client of an extra
    name: str,
    request: ModelRequest,
    settings: Mapping[str, object],
    account: str | None,
) -> JsonObject:
    system, messages = anthropic_list(map(Said, request.messages), Leftovers(), is_sent=True, account=account)
    system = request.system if request.system is not None else system
    told = {**_sent_with(settings, request), **_for_anthropic(settings)}
    if request.tools:
        told["tools"] = [
            {
                "name": tool["name"],
                "input_schema": tool["parameters"],
                **({"description": tool["description"]} if tool.get("description") else {}),
            }
            for tool in request.tools
        ]
    answer = await client.with_options(max_retries=0).beta.messages.with_raw_response.create(
        model=name,
        max_tokens=request.max_tokens or _ANTHROPIC_TOKENS,
        messages=messages,
        compaction={"type": "summarize"},
        **({} if system is None else {"system": system}),
        **told,
    )
    return _body(answer)


async def _ask_openai(
    client: Any,  # noqa: ANN401 - a client of an extra
    name: str,
    request: ModelRequest,
    settings: Mapping[str, object],
    account: str | None,
) -> JsonObject:
    items = responses_list(map(Said, request.messages), Leftovers(), is_complete=True, account=account)
    system = {} if request.system is None else {"instructions": request.system}
    compact = client.with_options(max_retries=0).responses.with_raw_response.compact
    return _body(await compact(model=name, input=items, **system, **_sent_with(settings, request)))


def _body(answer: Any) -> JsonObject:  # noqa: ANN401 - a response of either client
    body = json.loads(answer.http_response.text)
    return body if isinstance(body, dict) else {}


def _theirs(error: Exception, name: str) -> Exception | None:
    """Return the error of pydantic-ai that one of a client stands for; None for one of neither."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "APIStatusError" in kinds:
        failed = cast("Any", error)
        known: Exception = theirs.ModelHTTPError.for_category(
            cast("Any", _CATEGORIES.get(failed.status_code)),
            status_code=failed.status_code,
            model_name=name,
            body=failed.body,
            headers=dict(failed.response.headers),
        )
        return known
    return theirs.ModelAPIError(name, str(error)) if "APIError" in kinds or isinstance(error, ValueError) else None


# --- What came back ---------------------------------------------------------------------------------------------------


def compaction_reply(body: JsonObject, place: Place, account: str | None) -> ModelReply:
    """Return the answer as a reply: its parts unchanged, and each iteration that it took as a call.

    Raises, with what it cost, what an answer without a compaction stands for: `ModelRefused`, `ContextOverflow` or
    `ModelUnavailable`.
    """
    content = body.get("content" if place.provider == "anthropic" else "output")
    listed = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    parts = compaction_in(place.provider, listed)
    if not parts:
        raise _without_compaction(body, place)
    calls = tuple(_calls(body, place))
    message: JsonObject = {"role": "assistant", "content": [*parts], "stopReason": "stop", **_named(body, place, "")}
    message["responseId"] = message.pop("callId", None)
    if message["responseId"] is None:
        del message["responseId"]
    if isinstance(body.get("usage"), dict):
        message["usage"] = usage_json(read_beside(body))
    if account is not None:
        message["account"] = account
    return ModelReply((message,), calls)


_ENDED: Mapping[str, tuple[type[ModelError], str]] = {
    "refusal": (ModelRefused, "ask another, or choose another mode"),
    "model_context_window_exceeded": (ContextOverflow, "send less, or choose another mode"),
}
"""What a reason to stop means that the provider names, and what to do."""


def _without_compaction(body: JsonObject, place: Place) -> ModelError:
    why = str(body.get("stop_reason") or body.get("status") or "nothing in it")
    spent = usage_json(read_beside(body)) if body.get("usage") else None
    failed = None if spent is None else {**spent, **_named(body, place, "")}
    kind, remedy = _ENDED.get(why, (ModelUnavailable, "give it a larger limit, or choose another mode"))
    return kind(place.says("its answer has no compaction", why, remedy), **place.told(failed))


def _calls(body: JsonObject, place: Place) -> list[JsonObject]:
    usage = body.get("usage")
    if not isinstance(usage, dict):
        return []
    steps = usage.get("iterations")
    listed = [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    if len(listed) < 2:
        return [{**usage_json(read_beside(body)), **_named(body, place, "")}]
    # What changes the price of the request does so for each of its steps.
    beside = {**context_of(body), **context_of(usage)}
    return [
        {**usage_json(read_reported({**beside, **step})), **_named({**body, **_model_of(step)}, place, f":{number}")}
        for number, step in enumerate(listed)
    ]


def _model_of(step: JsonObject) -> JsonObject:
    return {"model": step["model"]} if step.get("model") else {}


def _named(body: JsonObject, place: Place, suffix: str) -> JsonObject:
    model, call_id = body.get("model"), body.get("id")
    named: dict[str, JsonValue] = {
        "provider": place.provider,
        "model": model if isinstance(model, str) else place.model,
    }
    if isinstance(call_id, str) and call_id:
        named["callId"] = f"{call_id}{suffix}"
    return {name: value for name, value in named.items() if value is not None}
