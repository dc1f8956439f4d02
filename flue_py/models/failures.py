"""What a failed call of pydantic-ai means, as an error of ours that says what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_ai import exceptions as theirs

from flue_py.context.overflows import NamedOverflow, named_overflow
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject
from flue_py.errors import (
    ContextOverflow,
    ModelAborted,
    ModelDenied,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
)
from flue_py.models.secrets import Secrets

_MOST_WORDS = 500

_TOO_LARGE = "the request is more than its window holds", "compact the session, or send less"
_MALFORMED = "the context is not whole as it takes it", "send it without tools, or through Session.request"

_TOO_LARGE_FOR_A_MINUTE = "must be reduced in order to run"
"""OpenAI's 429 for one request that is more than the account may send in a minute: waiting does not help."""


@frozen
class Place:
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
