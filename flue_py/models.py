"""Models for calls such as those of a compaction: any that pydantic-ai knows, or one of your own.

    model = open_model("openai:gpt-5")
    reply = await model.complete(ModelRequest(({"role": "user", "content": "Hello."},)))

`open_model` needs the extra ``models``; the protocol `Model`, and `FunctionModel`, which is made of a function, need
none.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec.structs import replace

from flue_py.core.json import Frozen, JsonObject, JsonValue
from flue_py.core.kinds import compaction_in, sent_to
from flue_py.core.model import FunctionModel, Model, ModelReply, ModelRequest, check_tokens
from flue_py.core.usage import context_of, read_beside, read_reported, usage_json
from flue_py.errors import (
    ContextOverflow,
    InvalidArgument,
    MissingExtra,
    ModelAborted,
    ModelDenied,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
    shown,
)
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    import anyio
    from pydantic_ai import direct
    from pydantic_ai import exceptions as theirs
    from pydantic_ai import messages as their_messages
    from pydantic_ai import models as their_models
    from pydantic_ai import providers as their_providers
    from pydantic_ai import tools as their_tools
    from pydantic_ai import usage as their_usage
    from pydantic_ai.settings import ModelSettings

    from flue_py.adapters import messages
    from flue_py.context import overflows
    from flue_py.providers import base, lists
else:
    anyio = lazy_module("anyio")
    direct = lazy_module("pydantic_ai.direct")
    theirs = lazy_module("pydantic_ai.exceptions")
    their_messages = lazy_module("pydantic_ai.messages")
    their_models = lazy_module("pydantic_ai.models")
    their_providers = lazy_module("pydantic_ai.providers")
    their_tools = lazy_module("pydantic_ai.tools")
    their_usage = lazy_module("pydantic_ai.usage")
    messages = lazy_module("flue_py.adapters.messages")
    overflows = lazy_module("flue_py.context.overflows")
    base = lazy_module("flue_py.providers.base")
    lists = lazy_module("flue_py.providers.lists")

__all__ = ["FunctionModel", "Model", "ModelReply", "ModelRequest", "open_model"]

Answer = TypeVar("Answer")


# ---------------------------------------------------------------------------------------------------------------------
# How long an answer of a known model may be. (How large its window is, pydantic-ai knows by genai-prices.)

_MAX_OUTPUT = {
    # The pages of the models at https://platform.openai.com/docs/models
    **dict.fromkeys(("gpt-5", "gpt-5-mini", "gpt-5-nano"), 128_000),
    **dict.fromkeys(("o1", "o3", "o3-mini", "o3-pro", "o4-mini"), 100_000),
    **dict.fromkeys(("gpt-4.1", "gpt-4.1-mini", "gpt-4.1-nano"), 32_768),
    **dict.fromkeys(("gpt-4o", "gpt-4o-mini"), 16_384),
    # The pages of the models at https://ai.google.dev/gemini-api/docs/models
    **dict.fromkeys(("gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite"), 65_536),
}
"""Of models whose provider says so: a name that is not here, or here with a date behind it, is unknown."""

_DATE = re.compile(r"-20\d\d-?\d\d-?\d\d$")


def max_output_of(model: their_models.Model) -> int | None:
    """Return how many tokens an answer may have, None if that is not known. O(1)."""
    try:
        limit = model.profile.get("anthropic_max_output_tokens")
    except NotImplementedError:  # several models behind one
        return None
    return limit if isinstance(limit, int) else _MAX_OUTPUT.get(_DATE.sub("", model.model_name))


# ---------------------------------------------------------------------------------------------------------------------
# Keys of providers, which no error and no ``repr`` may show.

_LOOKS_LIKE_A_KEY = re.compile(r"\b(?:sk|pk|gsk|xai|AIza)[-_]?[\w*-]{12,}|(?<=Bearer )\S{8,}")
_SHORTEST = 8
_HIDDEN = "[hidden]"


class Secrets:
    """The keys that a model was opened with. Its ``repr`` shows none of them."""

    def __init__(self, keys: Iterable[str]) -> None:
        # A short one is no key but a stand-in, and would be hidden in the midst of words.
        self._keys = sorted({key for key in keys if len(key) >= _SHORTEST}, key=len, reverse=True)

    def hidden(self, text: str) -> str:
        """Return a text without the keys, and without anything that looks like one."""
        for key in self._keys:
            text = text.replace(key, _HIDDEN)
        return _LOOKS_LIKE_A_KEY.sub(_HIDDEN, text)

    def are_told_by(self, error: BaseException) -> bool:
        """Return whether a traceback of an error would show a key, by its own text or that of its causes."""
        return any(self.hidden(text) != text for cause in _chain(error) for text in (str(cause), repr(cause)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._keys)} hidden)"


def keys_of(model: object) -> Iterator[str]:
    """Yield the keys of the clients behind a model of pydantic-ai, those of wrapped models included."""
    client = getattr(model, "client", None)
    for name in ("api_key", "auth_token"):
        key = getattr(client, name, None)
        if isinstance(key, str):
            yield key
    wrapped = getattr(model, "wrapped", None)
    for inner in (*(getattr(model, "models", None) or ()), *([] if wrapped is None else [wrapped])):
        yield from keys_of(inner)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        cause = pending.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        pending += [cause.__cause__, cause.__context__]
        if isinstance(cause, BaseExceptionGroup):
            pending += cause.exceptions


# ---------------------------------------------------------------------------------------------------------------------
# The error of ours for a failed call of pydantic-ai, which says how to go on.

_MOST_WORDS = 500

_TOO_LARGE = "the request is more than its window holds", "compact the session, or send less"
_MALFORMED = "the context is not whole as it takes it", "send it without tools, or through Session.request"

_UNREACHABLE = "it failed, or could not be reached"

_TOO_LARGE_FOR_A_MINUTE = "must be reduced in order to run"
"""OpenAI's 429 for one request that is more than the account may send in a minute: waiting does not help."""


class Place(Frozen):
    """The model that was called, as errors name it; no text of it has a key in it."""

    model: str
    provider: str | None
    secrets: Secrets

    def __str__(self) -> str:
        return f"model {self.model!r}{f' of {self.provider}' if self.provider else ''}"

    def says(self, event: str, words: str, remedy: str) -> str:
        """Return an error message: the event, the provider's words for it, the remedy."""
        detail = self.secrets.hidden(" ".join(words.split()))
        return f"{self}: {event}: {detail[:_MOST_WORDS]}{'...' if len(detail) > _MOST_WORDS else ''}; {remedy}"

    def fields(self, call: JsonObject | None) -> dict[str, Any]:
        """Return the fields that every error of a model has beside its message."""
        return {"provider": self.provider, "model": self.model, "call": call}


def failure_of(error: Exception, place: Place, call: JsonObject | None) -> ModelError | None:
    """Return the error of ours for an error of a client; None if neither the model nor its provider failed.

    ``call`` is the usage of the failed call, if it is known. The client's error is the cause unless it would show a
    key.
    """
    last = error
    while isinstance(last, ExceptionGroup):  # several models failed one after the other
        last = last.exceptions[-1]
    failure = _failure(last, place, place.fields(call))
    if failure is not None and not place.secrets.are_told_by(error):
        failure.__cause__ = error
    return failure


def _failure(error: Exception, place: Place, fields: dict[str, Any]) -> ModelError | None:
    words = _words(error)
    overflow = _overflow(error, words)
    if overflow is not None:
        event, remedy = _MALFORMED if overflow["is_malformed"] else _TOO_LARGE
        return ContextOverflow(place.says(event, words, remedy), **overflow, **fields)
    if isinstance(error, theirs.ModelRateLimitError):
        wait = (
            "wait, then call again" if error.retry_after is None else f"call again after {error.retry_after:g} seconds"
        )
        return RateLimited(place.says("it takes no call now", words, wait), retry_after=error.retry_after, **fields)
    for names, failure, event, remedy in _FAILURES:
        if isinstance(error, _classes(names)):
            return failure(place.says(event, words, remedy), **fields)
    if isinstance(error, OSError):
        return ModelUnavailable(place.says(_UNREACHABLE, words, "call again"), **fields)
    return None


_DENIED = ("ModelQuotaExceededError", "ModelAuthenticationError", "ModelNotFoundError")
_REFUSED = ("ContentFilterError", "ModelRequestRejectedError", "UserError")

_FAILURES: tuple[tuple[tuple[str, ...], type[ModelError], str, str], ...] = (
    (_DENIED, ModelDenied, "it is not for this account", "see to the key, the account or the name of the model"),
    (_REFUSED, ModelRefused, "it refused the request", "change the request, or ask another"),
    (("RunCancelled",), ModelAborted, "the call was ended", "call again if the answer is still wanted"),
    (("ModelAPIError", "UnexpectedModelBehavior"), ModelUnavailable, _UNREACHABLE, "call again"),
)
"""Errors of pydantic-ai by their meaning, the narrower ones first."""


def _classes(names: tuple[str, ...]) -> tuple[type[Exception], ...]:
    return tuple(getattr(theirs, name) for name in names)


def _overflow(error: Exception, words: str) -> overflows.NamedOverflow | None:
    """Return the overflow that a provider reports, also of a malformed request; None for any other error."""
    if not isinstance(error, theirs.ModelAPIError):
        return None
    if isinstance(error, _classes(("ModelRateLimitError", *_DENIED))) and _TOO_LARGE_FOR_A_MINUTE not in words:
        return None
    if (named := overflows.named_overflow(words)) is not None:
        return named
    is_named = isinstance(error, theirs.ModelContextWindowExceededError) or _TOO_LARGE_FOR_A_MINUTE in words
    is_413 = isinstance(error, theirs.ModelHTTPError) and error.status_code == 413
    return {"tokens": None, "window": None, "is_malformed": False} if is_named or is_413 else None


def _words(error: Exception) -> str:
    """Return a provider's words for its error, or the client's if there are none."""
    body = getattr(error, "body", None)
    for inner in (body.get("error"), body) if isinstance(body, Mapping) else (body,):
        if isinstance(inner, Mapping) and isinstance(inner.get("message"), str):
            kind = next((inner[name] for name in ("code", "type") if isinstance(inner.get(name), str)), None)
            return f"{inner['message']} ({kind})" if kind else str(inner["message"])
        if isinstance(inner, str) and inner.strip():
            return inner
    return str(error) or type(error).__name__


# ---------------------------------------------------------------------------------------------------------------------
# The answer of a model of pydantic-ai in our form: its message, the calls that were paid for, or the reason for none.


def reply_of(answer: their_messages.ModelResponse, place: Place) -> ModelReply:
    """Return an answer as a reply: one message, with a call for each attempt that was paid for before it."""
    [message] = messages.from_pydantic_ai([answer]).messages
    of_call = {"provider": place.provider, "model": place.model, "responseId": answer.provider_response_id}
    message |= {name: value for name, value in of_call.items() if value and name not in message}
    reply = ModelReply((message,))
    attempts = [*_attempts(answer, place)]
    return ModelReply((message,), (*attempts, *reply.paid_calls)) if attempts else reply


def paid_call(answer: their_messages.ModelResponse | None, place: Place) -> JsonObject | None:
    """Return the cost of an answer that is not returned; None if its provider said nothing of it."""
    if answer is None or not answer.usage.has_values():
        return None
    return reply_of(answer, place).paid_calls[-1]


def failure_in(answer: their_messages.ModelResponse, place: Place, *, streamed: bool) -> ModelError | None:
    """Return the failure that an answer stands for; None for one that is an answer."""
    details = answer.provider_details or {}
    fields = place.fields(paid_call(answer, place))
    if answer.finish_reason == "content_filter":
        why = details.get("refusal") or details.get("finish_reason") or details.get("block_reason") or "content filter"
        return ModelRefused(
            place.says("it refused to answer", str(why), "change the request, or ask another"), **fields
        )
    if answer.finish_reason == "error":
        why = details.get("finish_reason") or "error"
        return ModelUnavailable(place.says("its answer failed", str(why), "call again"), **fields)
    if answer.state in ("interrupted", "suspended"):
        return ModelAborted(place.says("its answer was ended", answer.state, "call again"), **fields)
    if _broke_off(answer, streamed=streamed):
        return ModelUnavailable(place.says("its answer broke off", "it has no end", "call again"), **fields)
    return None


def _broke_off(answer: their_messages.ModelResponse, *, streamed: bool) -> bool:
    """Return whether a stream ended before its answer did, which no error tells of.

    Anthropic always says why an answer ends. Some that speak OpenAI's form never do, but then report its cost.
    """
    if answer.provider_name == "anthropic":
        return answer.finish_reason is None
    return streamed and "finish_reason" not in (answer.provider_details or {}) and not answer.usage.has_values()


def _attempts(answer: their_messages.ModelResponse, place: Place) -> Iterator[JsonObject]:
    """Yield the calls of other models that were paid for before one answered."""
    for number, attempt in enumerate(answer.failed_attempts or ()):
        if attempt.usage is not None:
            named = answer.provider_response_id and f"{answer.provider_response_id}:attempt-{number}"
            response = their_messages.ModelResponse(
                parts=[],
                usage=attempt.usage,
                model_name=attempt.model_name,
                provider_name=attempt.provider_name,
                provider_response_id=named or None,
            )
            call = paid_call(response, place)
            if call is not None:
                yield call


# ---------------------------------------------------------------------------------------------------------------------
# A provider's own compaction: the conversation is sent, and its compaction comes back as it is.
#
# Anthropic compacts on demand with the parameter ``compaction`` of its Messages; OpenAI has an address for it beside
# its Responses. The clients' own answers are read, not pydantic-ai's version of them, so that no field of a block is
# lost.

ANTHROPIC_BETA = "compact-2026-09-04"
_BETAS = "anthropic-beta"
_ANTHROPIC_TOKENS = 16_000
_SECONDS = 600.0
_CATEGORIES = {
    **dict.fromkeys((400, 413, 422), "ModelRequestRejectedError"),
    **dict.fromkeys((401, 403), "ModelAuthenticationError"),
    402: "ModelQuotaExceededError",
    404: "ModelNotFoundError",
    429: "ModelRateLimitError",
}
_PROVIDERS = {"AnthropicModel": "anthropic", "OpenAIResponsesModel": "openai"}


def provider_of_compactions(model: their_models.Model) -> str | None:
    """Return the provider whose compactions a model makes and takes back; None where its interface has none."""
    kinds = {kind.__name__ for kind in type(model).__mro__}
    return next((name for kind, name in _PROVIDERS.items() if kind in kinds and model.system == name), None)


async def compacted(
    model: their_models.Model, request: ModelRequest, settings: Mapping[str, object], place: Place, account: str | None
) -> JsonObject:
    """Return the body of the provider's answer. Raises `ModelRefused` if it cannot compact.

    An error of its client comes as the error of pydantic-ai that it stands for.
    """
    provider = provider_of_compactions(model)
    if provider is None:
        event = "its interface has no compaction of its own"
        raise ModelRefused(place.says(event, type(model).__name__, "choose another mode"), **place.fields(None))
    client = cast("Any", model).client.with_options(max_retries=0)
    try:
        if provider == "anthropic":
            create = client.beta.messages.with_raw_response.create
            answer = await create(model=model.model_name, **_for_anthropic(request, settings, account))
        else:
            compact = client.responses.with_raw_response.compact
            answer = await compact(model=model.model_name, **_for_openai(request, settings, account))
        body = json.loads(answer.http_response.text)
    except Exception as error:
        failure = _their_error(error, model.model_name)
        if failure is None:
            raise
        raise failure from error
    return body if isinstance(body, dict) else {}


def _sent_with(settings: Mapping[str, object], request: ModelRequest) -> dict[str, Any]:
    """Return the arguments that both clients take for any request."""
    extra = {name: settings[name] for name in ("extra_headers", "extra_body") if settings.get(name) is not None}
    return {**extra, "timeout": _SECONDS if request.timeout is None else float(request.timeout)}


def _beside_a_compaction(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the betas of a request, and the additions of its settings that go with a compaction.

    A header of the caller's would take the place of the one that names the betas which the request needs.
    """
    headers = dict(settings.get("extra_headers") or {})
    values = [headers.pop(name) for name in [*headers] if name.lower() == _BETAS]
    betas = [beta.strip() for value in values for beta in str(value).split(",")]
    betas += settings.get("anthropic_betas") or ()
    body = {name: value for name, value in (settings.get("extra_body") or {}).items() if name not in _NOT_TO_COMPACT}
    if isinstance(body.get("output_config"), Mapping):
        refused = ("format", "task_budget")
        body["output_config"] = {name: value for name, value in body["output_config"].items() if name not in refused}
    return {
        "betas": list(dict.fromkeys([*filter(None, betas), ANTHROPIC_BETA])),
        "extra_headers": headers or None,
        "extra_body": body or None,
    }


_NOT_TO_COMPACT = frozenset({"stop_sequences", "context_management", "tool_choice"})
"""Fields that a body may have for a turn, and with which a request for a compaction is refused."""


def _for_anthropic(request: ModelRequest, settings: Mapping[str, object], account: str | None) -> dict[str, Any]:
    context = map(lists.Said, request.messages)
    system, turns = lists.anthropic_list(context, base.Leftovers(), is_sent=True, account=account)
    system = request.system if request.system is not None else system
    arguments = {**_sent_with(settings, request), **_beside_a_compaction(settings)}
    if request.tools:
        arguments["tools"] = [
            {
                "name": tool["name"],
                "input_schema": tool["parameters"],
                **({"description": tool["description"]} if tool.get("description") else {}),
            }
            for tool in request.tools
        ]
    return {
        "max_tokens": request.max_tokens or _ANTHROPIC_TOKENS,
        "messages": turns,
        "compaction": {"type": "summarize"},
        **({} if system is None else {"system": system}),
        **arguments,
    }


def _for_openai(request: ModelRequest, settings: Mapping[str, object], account: str | None) -> dict[str, Any]:
    context = map(lists.Said, request.messages)
    items = lists.responses_list(context, base.Leftovers(), is_complete=True, account=account)
    system = {} if request.system is None else {"instructions": request.system}
    return {"input": items, **system, **_sent_with(settings, request)}


def _their_error(error: Exception, name: str) -> Exception | None:
    """Return the error of pydantic-ai that one of a client stands for; None for one of neither."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "APIStatusError" in kinds:
        failed = cast("Any", error)
        category = _CATEGORIES.get(failed.status_code)
        failure: Exception = theirs.ModelHTTPError.for_category(
            cast("Any", None if category is None else getattr(theirs, category)),
            status_code=failed.status_code,
            model_name=name,
            body=failed.body,
            headers=dict(failed.response.headers),
        )
        return failure
    return theirs.ModelAPIError(name, str(error)) if "APIError" in kinds or isinstance(error, ValueError) else None


def compaction_reply(body: JsonObject, place: Place, account: str | None) -> ModelReply:
    """Return the answer as a reply: its parts unchanged, and each iteration that it took as a call.

    Raises the error that an answer without a compaction stands for, with its cost: `ModelRefused`, `ContextOverflow`
    or `ModelUnavailable`.
    """
    content = body.get("content" if place.provider == "anthropic" else "output")
    listed = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    parts = compaction_in(place.provider, listed)
    if not parts:
        raise _without_compaction(body, place)
    calls = tuple(_calls(body, place))
    message: JsonObject = {
        "role": "assistant",
        "content": [*parts],
        "stopReason": "stop",
        **_call_names(body, place, ""),
    }
    if "callId" in message:
        message["responseId"] = message.pop("callId")
    if isinstance(body.get("usage"), dict):
        message["usage"] = usage_json(read_beside(body))
    if account is not None:
        message["account"] = account
    return ModelReply((message,), calls)


_ENDED: Mapping[str, tuple[type[ModelError], str]] = {
    "refusal": (ModelRefused, "ask another, or choose another mode"),
    "model_context_window_exceeded": (ContextOverflow, "send less, or choose another mode"),
}
"""The error and the remedy for a reason to stop, as the provider names it."""


def _without_compaction(body: JsonObject, place: Place) -> ModelError:
    why = str(body.get("stop_reason") or body.get("status") or "nothing in it")
    spent = usage_json(read_beside(body)) if body.get("usage") else None
    failed = None if spent is None else {**spent, **_call_names(body, place, "")}
    kind, remedy = _ENDED.get(why, (ModelUnavailable, "give it a larger limit, or choose another mode"))
    return kind(place.says("its answer has no compaction", why, remedy), **place.fields(failed))


def _calls(body: JsonObject, place: Place) -> list[JsonObject]:
    usage = body.get("usage")
    if not isinstance(usage, dict):
        return []
    steps = usage.get("iterations")
    listed = [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    if len(listed) < 2:
        return [{**usage_json(read_beside(body)), **_call_names(body, place, "")}]
    # A term that changes the price of the request does so for each of its steps.
    terms = {**context_of(body), **context_of(usage)}
    return [
        {
            **usage_json(read_reported({**terms, **step})),
            **_call_names({**body, **({"model": step["model"]} if step.get("model") else {})}, place, f":{number}"),
        }
        for number, step in enumerate(listed)
    ]


def _call_names(body: JsonObject, place: Place, suffix: str) -> JsonObject:
    model, call_id = body.get("model"), body.get("id")
    named: dict[str, JsonValue] = {
        "provider": place.provider,
        "model": model if isinstance(model, str) else place.model,
    }
    if isinstance(call_id, str) and call_id:
        named["callId"] = f"{call_id}{suffix}"
    return {name: value for name, value in named.items() if value is not None}


# ---------------------------------------------------------------------------------------------------------------------
# A call of a model of pydantic-ai: the request, its timeout, its outcome.

_SECONDS_TO_CLOSE = 5.0


class CalledModel(Frozen, eq=False):
    """A model of pydantic-ai behind the seam. Made by `open_model`."""

    client: their_models.Model
    settings: Mapping[str, object]
    place: Place
    stream: bool
    context_window: int | None
    """How many tokens a request and its answer may have in all, None if that is not known."""
    max_output_tokens: int | None
    """How many tokens an answer may have, None if that is not known."""
    account: str | None
    """Whose account it is, as the caller named it; None if nobody did."""

    @property
    def name(self) -> str:
        """Its name, as the provider has it."""
        return self.place.model

    @property
    def provider(self) -> str | None:
        """Who serves it, None if that is not known."""
        return self.place.provider

    def __repr__(self) -> str:
        return f"<{self.place}>"

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Return the answer to a request, made by one call.

        An answer may be empty; one that calls tools is returned as it is. With ``request.compacts`` it is the
        provider's compaction of the messages; `ModelRefused` if it has none. Raises `ModelError`; cancellation passes
        through, and so does any error that is not of the model or its provider, such as that of a ``FunctionModel``.
        """
        if not isinstance(request, ModelRequest):
            raise InvalidArgument(f"request: should be a ModelRequest, not {shown(request)}")
        if request.compacts:
            return await self._compact(request)
        sent = _Sent(self.client, request, self.settings, self.account)
        answer = await self._called(
            request, partial(sent.wait, stream=self.stream), lambda: paid_call(sent.so_far(), self.place)
        )
        failure = failure_in(answer, self.place, streamed=self.stream)
        if failure is not None:
            raise failure
        return reply_of(answer, self.place)

    async def _compact(self, request: ModelRequest) -> ModelReply:
        limit = self.max_output_tokens
        if limit is not None and request.max_tokens is not None and request.max_tokens > limit:
            # A mode does not know the model's limit, and a provider refuses a number above it.
            request = replace(request, max_tokens=limit)
        call = partial(compacted, self.client, request, self.settings, self.place, self.account)
        return compaction_reply(await self._called(request, call, lambda: None), self.place, self.account)

    async def _called(
        self, request: ModelRequest, call: Callable[[], Awaitable[Answer]], so_far: Callable[[], JsonObject | None]
    ) -> Answer:
        """Return the answer to a call, within the timeout of its request. ``so_far`` is the usage of one that fails."""
        answer: Answer | None = None
        failure: ModelError | None = None
        async with _opened(self.client):
            with anyio.move_on_after(request.timeout) as scope:
                try:
                    answer = await call()
                except Exception as error:  # whatever a client raises
                    failure = failure_of(error, self.place, so_far())
                    if failure is None:
                        raise
        if scope.cancelled_caught:
            late = f"there was no whole answer within {request.timeout:g} seconds"
            words = f"{self.place}: {late}; call again, or give it a longer timeout"
            failure = ModelUnavailable(words, **self.place.fields(so_far()))
            failure.__cause__ = TimeoutError(late)
        if failure is not None:
            # Raised here, so that the hidden part of the client's error is not in its context either.
            raise failure
        assert answer is not None
        return answer


@asynccontextmanager
async def _opened(model: their_models.Model) -> AsyncIterator[None]:
    """Have the clients of a model for one call. No connection is left behind, also if the call is cancelled."""
    await model.__aenter__()
    try:
        yield
    finally:
        with anyio.move_on_after(_SECONDS_TO_CLOSE, shield=True):
            await model.__aexit__(None, None, None)


class _Sent:
    """One request on its way, and the part of its answer that has come."""

    def __init__(
        self, model: their_models.Model, request: ModelRequest, settings: Mapping[str, object], account: str | None
    ) -> None:
        self._model = model
        first, *later = request.messages
        sent: list[JsonObject] = [] if request.system is None else [{"role": "system", "content": request.system}]
        sent += sent_to(first, provider_of_compactions(model), account)
        sent += [part for message in later for part in sent_to(message, None)]
        limits: dict[str, object] = {} if request.max_tokens is None else {"max_tokens": request.max_tokens}
        if request.timeout is not None and "timeout" not in model.unsupported_settings:
            # Clients have a limit of their own, which may be the shorter one.
            limits["timeout"] = float(request.timeout)
        self._request: dict[str, Any] = {
            "messages": messages.to_pydantic_ai(sent).messages,
            "model_settings": cast("ModelSettings", {**settings, **limits}),
            "model_request_parameters": their_models.ModelRequestParameters(
                function_tools=[_tool(tool) for tool in request.tools]
            ),
        }
        self._coming: their_models.StreamedResponse | None = None

    async def wait(self, *, stream: bool) -> their_messages.ModelResponse:
        """Send it, and return the whole answer."""
        if not stream:
            return await direct.model_request(self._model, **self._request)
        async with direct.model_request_stream(self._model, **self._request) as coming:
            self._coming = coming
            async for _ in coming:
                pass
            return coming.get()

    def so_far(self) -> their_messages.ModelResponse | None:
        """Return the beginning of an answer that broke off; None if nothing is known of it."""
        try:
            return None if self._coming is None else self._coming.get()
        except Exception:  # noqa: BLE001 - it is asked for in the midst of a failure, and has nothing to tell
            return None


def _tool(tool: JsonObject) -> their_tools.ToolDefinition:
    schema, description = cast("dict[str, Any]", tool["parameters"]), tool.get("description")
    described = description if isinstance(description, str) else None
    return their_tools.ToolDefinition(name=str(tool["name"]), parameters_json_schema=schema, description=described)


# ---------------------------------------------------------------------------------------------------------------------
# From the name of a model, or one of pydantic-ai, to a `Model`.


def open_model(
    model: str | their_models.Model,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    settings: Mapping[str, object] | None = None,
    context_window: int | None = None,
    max_output_tokens: int | None = None,
    stream: bool | None = None,
    account: str | None = None,
) -> Model:
    """Return a model of pydantic-ai as a `Model`: by its name, such as ``"anthropic:claude-sonnet-4-5"``, or as it is.

    A name takes ``api_key`` and ``base_url``; without them the provider's own environment variables count, such as
    ``OPENAI_API_KEY``. ``settings`` are pydantic-ai's ``ModelSettings`` for each call, over those of the model; where
    they do not say ``max_retries``, nothing is sent twice: to wait is up to the caller. ``context_window`` and
    ``max_output_tokens`` are those of the model by default, as far as they are known. With ``stream`` an answer is read
    as it comes: by default only that of Anthropic, which then tells the cost of an answer that breaks off. ``account``
    is a name of yours for the owner of the key: a compaction of the provider goes back to the same account alone.

    It holds no connection between calls, needs no closing, and may be used by several tasks, and by one event loop
    after the other. Raises `MissingExtra`, `ModelDenied` where there is no key, and `InvalidArgument` naming the
    argument. Nothing is sent.
    """
    check_tokens(context_window, "context_window")
    check_tokens(max_output_tokens, "max_output_tokens")
    if account is not None and (not isinstance(account, str) or not account):
        raise InvalidArgument(f"account: should be a string with characters or None, not {shown(account)}")
    for name, text in (("api_key", api_key), ("base_url", base_url)):
        if not isinstance(text, (str, type(None))):
            # The value in place of a key may show one.
            raise InvalidArgument(f"{name}: should be a string or None, not one of type {type(text).__name__}")
    client = client_of(model, {"api_key": api_key, "base_url": base_url})
    secrets = Secrets([*([] if api_key is None else [api_key]), *keys_of(client)])
    return CalledModel(
        client,
        _checked_settings(settings, client),
        Place(client.model_name, client.system or None, secrets),
        client.system == "anthropic" if stream is None else stream,
        context_window=context_window or client.context_window,
        max_output_tokens=max_output_tokens or max_output_of(client),
        account=account,
    )


def client_of(model: object, access: Mapping[str, str | None]) -> their_models.Model:
    """Return a model of pydantic-ai: itself, or the one of a name, with the key and the address that are not None.

    Raises as `open_model`.
    """
    try:
        from pydantic_ai.models import Model as TheirModel  # noqa: PLC0415 - an extra
        from pydantic_ai.models import infer_model  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtra("models", "a model of a provider") from error
    options = {name: value for name, value in access.items() if value is not None}
    if isinstance(model, TheirModel):
        if options:
            raise InvalidArgument(
                f"{next(iter(options))}: is for a model that is named; give it to the model's provider"
            )
        return model
    if not isinstance(model, str):
        raise InvalidArgument(
            f"model: should be a name such as 'openai:gpt-5' or a model of pydantic-ai, not {shown(model)}"
        )
    secrets = Secrets([options["api_key"]] if "api_key" in options else [])
    try:
        return infer_model(model, lambda provider: _provider(provider, options, model))
    except ImportError as error:
        detail = f"the model {shown(model)} needs a package that is not installed: {error}"
        raise MissingExtra("models", f"the model {shown(model)}", detail=detail) from error
    except (theirs.UserError, ValueError) as error:
        wrong = f"model: {shown(model)} is not a model that can be opened: {secrets.hidden(str(error))}"
        cause = None if secrets.are_told_by(error) else error
    raise InvalidArgument(wrong) from cause


def _provider(provider: str, options: Mapping[str, str], model: str) -> their_providers.Provider[Any]:
    try:
        if not options:
            return their_providers.infer_provider(provider)
        # A provider that takes no key or address is told by its constructor alone.
        constructor: Any = their_providers.infer_provider_class(provider)
        try:
            return cast("their_providers.Provider[Any]", constructor(**options))
        except TypeError as error:
            message = f"{' and '.join(options)}: the provider {shown(provider)} does not take that"
            raise InvalidArgument(message) from error
    except theirs.UserError as error:
        raise ModelDenied(f"model {shown(model)} cannot be called: {error}", provider=provider, model=model) from error


def _checked_settings(settings: object, model: their_models.Model) -> dict[str, object]:
    if settings is not None and not isinstance(settings, Mapping):
        raise InvalidArgument(f"settings: should be ModelSettings of pydantic-ai or None, not {shown(settings)}")
    # A client that waits and sends again would hide its cost, and the delay that the provider asks for.
    quiet: dict[str, object] = {} if "max_retries" in model.unsupported_settings else {"max_retries": 0}
    return {**quiet, **(model.settings or {}), **(settings or {})}
