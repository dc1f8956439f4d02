"""What a model of pydantic-ai answered, in our form: its message, the calls that were paid for, or why it is none."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic_ai.messages import ModelRequestAttempt, ModelResponse
from pydantic_ai.usage import RequestUsage

from flue_py.adapters.messages.pydantic_ai import from_pydantic_ai
from flue_py.core.jsontext import JsonObject
from flue_py.core.model_seam import ModelReply
from flue_py.errors import ModelAborted, ModelError, ModelRefused, ModelUnavailable
from flue_py.models.failures import Place


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
