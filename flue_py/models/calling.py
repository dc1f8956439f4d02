"""A call of a model of pydantic-ai: what is sent, how long it may take, what became of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import anyio
from msgspec.structs import replace
from pydantic_ai import direct
from pydantic_ai import exceptions as theirs
from pydantic_ai.messages import ModelRequestAttempt, ModelResponse
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from flue_py.adapters.messages import from_pydantic_ai, to_pydantic_ai
from flue_py.context.overflows import NamedOverflow, named_overflow
from flue_py.core.json import Frozen, JsonObject, JsonValue
from flue_py.core.kinds import compaction_in, sent_to
from flue_py.core.model import ModelReply, ModelRequest
from flue_py.core.usage import context_of, read_beside, read_reported, usage_json
from flue_py.errors import (
    ContextOverflow,
    InvalidArgument,
    ModelAborted,
    ModelDenied,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
    shown,
)
from flue_py.models.opening import Secrets
from flue_py.providers.base import Leftovers
from flue_py.providers.lists import Said, anthropic_list, responses_list

if TYPE_CHECKING:
    from pydantic_ai.models import Model as TheirModel
    from pydantic_ai.models import StreamedResponse
    from pydantic_ai.settings import ModelSettings


# ---------------------------------------------------------------------------------------------------------------------
# What a failed call of pydantic-ai means, as an error of ours that says what to do.

_MOST_WORDS = 500

_TOO_LARGE = "the request is more than its window holds", "compact the session, or send less"
_MALFORMED = "the context is not whole as it takes it", "send it without tools, or through Session.request"

_TOO_LARGE_FOR_A_MINUTE = "must be reduced in order to run"
"""OpenAI's 429 for one request that is more than the account may send in a minute: waiting does not help."""


class Place(Frozen):
    """The model that was called, as errors name it; no text of it has a key in it."""

    model: str
    provider: str | None
    secrets: Secrets

    def __str__(self) -> str:
        return f"model {self.model!r}{f' of {self.provider}' if self.provider else ''}"

    def says(self, what: str, words: str, remedy: str) -> str:
        """Return a message: what happened, in whose words, what to do."""
        shown = self.secrets.hidden(" ".join(words.split()))
        return f"{self}: {what}: {shown[:_MOST_WORDS]}{'...' if len(shown) > _MOST_WORDS else ''}; {remedy}"

    def told(self, call: JsonObject | None) -> dict[str, Any]:
        """Return what every error of a model has beside its message."""
        return {"provider": self.provider, "model": self.model, "call": call}


def failure_of(error: Exception, place: Place, call: JsonObject | None) -> ModelError | None:
    """Return the error of ours that an error of a client stands for; None if it is no failure of model or provider.

    ``call`` is what the failed call used, where that is known. The client's error is the cause, but for one that would
    show a key.
    """
    failure = _failure(_last_of(error), place, place.told(call))
    if failure is not None and not place.secrets.are_told_by(error):
        failure.__cause__ = error
    return failure


def _last_of(error: Exception) -> Exception:
    """Return the error of the last model that was asked, where several failed one after the other."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[-1]
    return error


def _failure(error: Exception, place: Place, told: dict[str, Any]) -> ModelError | None:
    words = _words(error)
    overflow = _overflow(error, words)
    if overflow is not None:
        what, remedy = _MALFORMED if overflow["is_malformed"] else _TOO_LARGE
        says = place.says(what, words, remedy)
        return ContextOverflow(says, **overflow, **told)
    if isinstance(error, theirs.ModelRateLimitError):
        wait = (
            "wait, then call again" if error.retry_after is None else f"call again after {error.retry_after:g} seconds"
        )
        return RateLimited(place.says("it takes no call now", words, wait), retry_after=error.retry_after, **told)
    for kinds, made, what, remedy in _KINDS:
        if isinstance(error, kinds):
            return made(place.says(what, words, remedy), **told)
    return None


_DENIED = (theirs.ModelQuotaExceededError, theirs.ModelAuthenticationError, theirs.ModelNotFoundError)
_REFUSED = (theirs.ContentFilterError, theirs.ModelRequestRejectedError, theirs.UserError)
_UNAVAILABLE = (theirs.ModelAPIError, theirs.UnexpectedModelBehavior, OSError)

_KINDS: tuple[tuple[tuple[type[Exception], ...], type[ModelError], str, str], ...] = (
    (_DENIED, ModelDenied, "it is not for this account", "see to the key, the account or the name of the model"),
    (_REFUSED, ModelRefused, "it refused the request", "change the request, or ask another"),
    ((theirs.RunCancelled,), ModelAborted, "the call was ended", "call again if the answer is still wanted"),
    (_UNAVAILABLE, ModelUnavailable, "it failed, or could not be reached", "call again"),
)
"""Errors of pydantic-ai by what they mean, the narrower ones first."""


def _overflow(error: Exception, words: str) -> NamedOverflow | None:
    """Return what a provider says of a request that is too large or malformed; None for any other error."""
    if not isinstance(error, theirs.ModelAPIError):
        return None
    if isinstance(error, (theirs.ModelRateLimitError, *_DENIED)) and _TOO_LARGE_FOR_A_MINUTE not in words:
        return None
    if (named := named_overflow(words)) is not None:
        return named
    is_named = isinstance(error, theirs.ModelContextWindowExceededError) or _TOO_LARGE_FOR_A_MINUTE in words
    is_413 = isinstance(error, theirs.ModelHTTPError) and error.status_code == 413
    return {"tokens": None, "window": None, "is_malformed": False} if is_named or is_413 else None


def _words(error: Exception) -> str:
    """Return what a provider says of its error, or the client where there is no provider to say something."""
    body = getattr(error, "body", None)
    for inner in (body.get("error"), body) if isinstance(body, Mapping) else (body,):
        if isinstance(inner, Mapping) and isinstance(inner.get("message"), str):
            kind = next((inner[name] for name in ("code", "type") if isinstance(inner.get(name), str)), None)
            return f"{inner['message']} ({kind})" if kind else str(inner["message"])
        if isinstance(inner, str) and inner.strip():
            return inner
    return str(error) or type(error).__name__


# ---------------------------------------------------------------------------------------------------------------------
# What a model of pydantic-ai answered, in our form: its message, the calls that were paid for, or why it is none.


def reply_of(answer: ModelResponse, place: Place) -> ModelReply:
    """Return an answer as a reply: one message, with a call for each attempt that was paid for before it."""
    [message] = from_pydantic_ai([answer]).messages
    for name, known in (
        ("provider", place.provider),
        ("model", place.model),
        ("responseId", answer.provider_response_id),
    ):
        if known and name not in message:
            message[name] = known
    reply = ModelReply((message,))
    attempts = [*_attempts(answer, place)]
    return ModelReply((message,), (*attempts, *reply.paid_calls)) if attempts else reply


def paid_call(answer: ModelResponse | None, place: Place) -> JsonObject | None:
    """Return what an answer cost that is not returned; None where its provider said nothing of that."""
    if answer is None or not answer.usage.has_values():
        return None
    return reply_of(answer, place).paid_calls[-1]


def failure_in(answer: ModelResponse, place: Place, *, streamed: bool) -> ModelError | None:
    """Return the failure that an answer stands for; None for one that is an answer."""
    details = answer.provider_details or {}
    told = place.told(paid_call(answer, place))
    if answer.finish_reason == "content_filter":
        why = details.get("refusal") or details.get("finish_reason") or details.get("block_reason") or "content filter"
        return ModelRefused(place.says("it refused to answer", str(why), "change the request, or ask another"), **told)
    if answer.finish_reason == "error":
        why = details.get("finish_reason") or "error"
        return ModelUnavailable(place.says("its answer failed", str(why), "call again"), **told)
    if answer.state in ("interrupted", "suspended"):
        return ModelAborted(place.says("its answer was ended", answer.state, "call again"), **told)
    if _broke_off(answer, streamed=streamed):
        return ModelUnavailable(place.says("its answer broke off", "it has no end", "call again"), **told)
    return None


def _broke_off(answer: ModelResponse, *, streamed: bool) -> bool:
    """Return whether a stream ended before its answer did, which no error tells of.

    Anthropic always says why an answer ends. Some that speak OpenAI's form never do, but then say what it cost.
    """
    if answer.provider_name == "anthropic":
        return answer.finish_reason is None
    return streamed and "finish_reason" not in (answer.provider_details or {}) and not answer.usage.has_values()


def _attempts(answer: ModelResponse, place: Place) -> Iterator[JsonObject]:
    """Yield the calls of other models that were paid for before one answered."""
    for number, attempt in enumerate(answer.failed_attempts or ()):
        if attempt.usage is not None:
            named = answer.provider_response_id and f"{answer.provider_response_id}:attempt-{number}"
            call = paid_call(_answer_of(attempt, named or None), place)
            if call is not None:
                yield call


def _answer_of(attempt: ModelRequestAttempt, call_id: str | None) -> ModelResponse:
    return ModelResponse(
        parts=[],
        usage=attempt.usage or RequestUsage(),
        model_name=attempt.model_name,
        provider_name=attempt.provider_name,
        provider_response_id=call_id,
    )


# ---------------------------------------------------------------------------------------------------------------------
# A provider's own compaction: the conversation is sent, and what it made of that comes back as it is.
#
# Anthropic compacts on demand with the parameter ``compaction`` of its Messages; OpenAI has an address for it beside
# its
# Responses. The clients' own answers are read, not what pydantic-ai makes of them, so that no field of a block is lost.

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
    body = {
        name: value for name, value in (settings.get("extra_body") or {}).items() if name not in _COMPACTING_REFUSED
    }
    if isinstance(body.get("output_config"), Mapping):
        refused = ("format", "task_budget")
        body["output_config"] = {name: value for name, value in body["output_config"].items() if name not in refused}
    return {
        "betas": list(dict.fromkeys([*filter(None, betas), ANTHROPIC_BETA])),
        "extra_headers": headers or None,
        "extra_body": body or None,
    }


_COMPACTING_REFUSED = frozenset({"stop_sequences", "context_management", "tool_choice"})
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
        {
            **usage_json(read_reported({**beside, **step})),
            **_named({**body, **({"model": step["model"]} if step.get("model") else {})}, place, f":{number}"),
        }
        for number, step in enumerate(listed)
    ]


def _named(body: JsonObject, place: Place, suffix: str) -> JsonObject:
    model, call_id = body.get("model"), body.get("id")
    named: dict[str, JsonValue] = {
        "provider": place.provider,
        "model": model if isinstance(model, str) else place.model,
    }
    if isinstance(call_id, str) and call_id:
        named["callId"] = f"{call_id}{suffix}"
    return {name: value for name, value in named.items() if value is not None}


# ---------------------------------------------------------------------------------------------------------------------
# A call of a model of pydantic-ai: what is sent, how long it may take, what became of it.

_SECONDS_TO_CLOSE = 5.0


class CalledModel:
    """A model of pydantic-ai behind the seam. Made by `open_model`."""

    def __init__(
        self,
        model: TheirModel,
        *,
        settings: Mapping[str, object],
        context_window: int | None,
        max_output_tokens: int | None,
        stream: bool,
        secrets: Secrets,
        account: str | None = None,
    ) -> None:
        self._model = model
        self._account = account
        self._settings = dict(settings)
        self._context_window = context_window
        self._max_output_tokens = max_output_tokens
        self._stream = stream
        self._place = Place(model.model_name, model.system or None, secrets)

    @property
    def name(self) -> str:
        """Its name, as the provider has it."""
        return self._place.model

    @property
    def provider(self) -> str | None:
        """Who serves it, None if that is not known."""
        return self._place.provider

    @property
    def context_window(self) -> int | None:
        """How many tokens a request and its answer may have in all, None if that is not known."""
        return self._context_window

    @property
    def max_output_tokens(self) -> int | None:
        """How many tokens an answer may have, None if that is not known."""
        return self._max_output_tokens

    @property
    def account(self) -> str | None:
        """Whose account it is, as the caller named it; None if nobody did."""
        return self._account

    def __repr__(self) -> str:
        return f"<{self._place}>"

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Return the answer to a request, made by one call.

        An answer may be empty; one that calls tools is returned as it is. With ``request.compacts`` it is what the
        provider made of the messages; `ModelRefused` where it cannot. Raises `ModelError`; cancellation passes
        through, and what is no failure of the model or its provider, such as an error of a ``FunctionModel``.
        """
        if not isinstance(request, ModelRequest):
            raise InvalidArgument(f"request: should be a ModelRequest, not {shown(request)}")
        if request.compacts:
            return await self._compact(request)
        sent = _Sent(self._model, request, self._settings, self._account)
        failure: ModelError | None = None
        async with _opened(self._model):
            with anyio.move_on_after(request.timeout) as scope:
                try:
                    await sent.wait(stream=self._stream)
                except Exception as error:  # whatever a client raises
                    failure = failure_of(error, self._place, paid_call(sent.so_far(), self._place))
                    if failure is None:
                        raise
        if scope.cancelled_caught:
            failure = self._hung(request, paid_call(sent.so_far(), self._place))
        if failure is None:
            failure = failure_in(sent.answer, self._place, streamed=self._stream)
        if failure is not None:
            # Raised here, so that what it hides of the client's error is not in its context either.
            raise failure
        return reply_of(sent.answer, self._place)

    async def _compact(self, request: ModelRequest) -> ModelReply:
        failure: ModelError | None = None
        body: JsonObject = {}
        most = self._max_output_tokens
        if most is not None and request.max_tokens is not None and request.max_tokens > most:
            # A mode does not know the model's limit, and a provider refuses what is above it.
            request = replace(request, max_tokens=most)
        async with _opened(self._model):
            with anyio.move_on_after(request.timeout) as scope:
                try:
                    body = await compacted(self._model, request, self._settings, self._place, self._account)
                except ModelError:
                    raise
                except Exception as error:  # whatever a client raises
                    failure = failure_of(error, self._place, None)
                    if failure is None:
                        raise
        if scope.cancelled_caught:
            failure = self._hung(request, None)
        if failure is not None:
            raise failure
        return compaction_reply(body, self._place, self._account)

    def _hung(self, request: ModelRequest, so_far: JsonObject | None) -> ModelUnavailable:
        late = f"there was no whole answer within {request.timeout:g} seconds"
        failure = ModelUnavailable(
            f"{self._place}: {late}; call again, or give it a longer timeout",
            provider=self.provider,
            model=self.name,
            call=so_far,
        )
        failure.__cause__ = TimeoutError(late)
        return failure


@asynccontextmanager
async def _opened(model: TheirModel) -> AsyncIterator[None]:
    """Have the clients of a model for one call. No connection is left behind, also if the call is cancelled."""
    await model.__aenter__()
    try:
        yield
    finally:
        with anyio.move_on_after(_SECONDS_TO_CLOSE, shield=True):
            await model.__aexit__(None, None, None)


class _Sent:
    """One request on its way, and what has come of it so far."""

    def __init__(
        self, model: TheirModel, request: ModelRequest, settings: Mapping[str, object], account: str | None
    ) -> None:
        self._model = model
        provider = provider_of_compactions(model)
        first, *others = request.messages
        messages = [*sent_to(first, provider, account)]
        messages += [sent for message in others for sent in sent_to(message, None)]
        said: list[JsonObject] = [] if request.system is None else [{"role": "system", "content": request.system}]
        told: dict[str, object] = {} if request.max_tokens is None else {"max_tokens": request.max_tokens}
        if request.timeout is not None and "timeout" not in model.unsupported_settings:
            # Clients have a limit of their own, which may be the shorter one.
            told["timeout"] = float(request.timeout)
        self._request: dict[str, Any] = {
            "messages": to_pydantic_ai([*said, *messages]).messages,
            "model_settings": cast("ModelSettings", {**settings, **told}),
            "model_request_parameters": ModelRequestParameters(function_tools=[_tool(tool) for tool in request.tools]),
        }
        self._answer: ModelResponse | None = None
        self._coming: StreamedResponse | None = None

    @property
    def answer(self) -> ModelResponse:
        """The whole answer."""
        assert self._answer is not None
        return self._answer

    async def wait(self, *, stream: bool) -> None:
        """Send it, and wait for the whole answer."""
        if not stream:
            self._answer = await direct.model_request(self._model, **self._request)
            return
        async with direct.model_request_stream(self._model, **self._request) as coming:
            self._coming = coming
            async for _ in coming:
                pass
            self._answer = coming.get()

    def so_far(self) -> ModelResponse | None:
        """Return what has come of an answer that broke off; None where nothing is known of it."""
        try:
            return None if self._coming is None else self._coming.get()
        except Exception:  # noqa: BLE001 - it is asked for in the midst of a failure, and has nothing to tell
            return None


def _tool(tool: JsonObject) -> ToolDefinition:
    schema, description = cast("dict[str, Any]", tool["parameters"]), tool.get("description")
    described = description if isinstance(description, str) else None
    return ToolDefinition(name=str(tool["name"]), parameters_json_schema=schema, description=described)
