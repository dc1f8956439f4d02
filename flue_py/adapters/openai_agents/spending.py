"""What a run has paid for since it was asked last.

A run counts its calls in one `Usage`, which grows until it ends and is passed along with each write. Of a run that is
resumed in another process, that has been booked up to where it was interrupted.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, cast
from uuid import uuid4

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.ledger import UsageRow

if TYPE_CHECKING:
    from agents import RunContextWrapper
    from agents.usage import RequestUsage, Usage


_CALL_ID = "flue_py_call_id"
_PERSISTENCE = "agents.run_internal.session_persistence"


class Counted(NamedTuple):
    """How much of a run's usage: calls with what they used, calls in all, and the tokens of those without."""

    told: int = 0
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0

    def less(self, other: Counted) -> Counted:
        """Return what is in this and not in the other."""
        return Counted(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))

    def plus(self, other: Counted) -> Counted:
        """Return both together."""
        return Counted(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class Spending:
    """What is known of the runs that write to one session."""

    def __init__(self) -> None:
        self._booked: dict[int, tuple[weakref.ref[Usage], Counted]] = {}

    def begins(self, wrapper: RunContextWrapper[Any] | None) -> None:
        """Note a run that reads the history: what it has paid for up to now, an earlier process has booked."""
        if wrapper is not None and self._known(wrapper.usage) is None:
            self.booked(wrapper.usage, counted(wrapper.usage))

    def unbooked(self, usage: Usage) -> list[JsonObject]:
        """Return what each call used that is not booked yet, as a usage object; empty for what is unknown."""
        seen, now = self._known(usage) or Counted(), counted(usage)
        calls: list[JsonObject] = [
            {**usage_of(each), "callId": _call_id(each)} for each in usage.request_usage_entries[seen.told : now.told]
        ]
        rest = now.less(seen)
        silent: list[JsonObject] = [{} for _ in range(rest.requests - rest.told)]
        if rest[2:] != (0, 0, 0):
            # Of several calls whose tokens are only known as a sum, the first has it.
            tokens: JsonObject = dict(zip(Counted._fields[2:], rest[2:], strict=True))
            silent[:1] = [tokens]
        return calls + silent

    def booked(self, usage: Usage, up_to: Counted) -> None:
        """Note that the ledger has what a run paid for up to here."""
        key = id(usage)
        self._booked[key] = (weakref.ref(usage, lambda _: self._booked.pop(key, None)), up_to)

    def passed_over(self, usage: Usage, before: Counted) -> None:
        """Note that what a run was given since ``before`` is booked elsewhere. What came earlier stays to be booked."""
        self.booked(usage, (self._known(usage) or before).plus(counted(usage).less(before)))

    def _known(self, usage: Usage) -> Counted | None:
        found = self._booked.get(id(usage))
        return found[1] if found is not None and found[0]() is usage else None


def run_above() -> RunContextWrapper[Any] | None:
    """Return the run that calls a session above this one, which does not pass it on; None outside of a run.

    The SDK passes a run on to sessions that take it. Its own `OpenAIResponsesCompactionSession` does not, nor do
    sessions that were written before there was one, and nothing else says for which run they write.
    """
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == _PERSISTENCE:
            wrapper = frame.f_locals.get("wrapper")
            if hasattr(wrapper, "usage"):
                return cast("RunContextWrapper[Any]", wrapper)
        frame = frame.f_back
    return None


def counted(usage: Usage) -> Counted:
    """Return how much a usage counts."""
    told = usage.request_usage_entries
    return Counted(
        len(told),
        max(usage.requests or 0, len(told)),
        *(
            max(0, (getattr(usage, name) or 0) - sum(getattr(each, name) or 0 for each in told))
            for name in Counted._fields[2:]
        ),
    )


def usage_of(told: RequestUsage | Usage) -> JsonObject:
    """Return what one call used, or several, as the API reports it."""
    return {
        "input_tokens": told.input_tokens,
        "output_tokens": told.output_tokens,
        "total_tokens": told.total_tokens,
        "input_tokens_details": _details(told.input_tokens_details),
        "output_tokens_details": _details(told.output_tokens_details),
    }


class Tokens(TypedDict):
    """Tokens as the API counts them: those of a cache are among the input."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


def tokens_of(paid: UsageRow) -> Tokens:
    """Return the tokens of a row of the ledger as the API counts them."""
    return Tokens(
        input_tokens=paid.input + paid.cache_read + paid.cache_write,
        output_tokens=paid.output,
        total_tokens=paid.total_tokens,
    )


def _call_id(told: RequestUsage) -> str:
    """Return the id of a call, drawn when it is asked for first.

    It stays with the object and its copies: the run of an agent that is a tool passes them on to the run that called
    the tool, and where both write to sessions, the ledger has the call once.
    """
    found = getattr(told, _CALL_ID, None)
    if isinstance(found, str):
        return found
    drawn = f"agents:{uuid4().hex}"
    setattr(told, _CALL_ID, drawn)
    return drawn


def _details(details: object) -> JsonValue:
    dump = getattr(details, "model_dump", None)
    found = dump(mode="json") if callable(dump) else None
    return {name: value for name, value in found.items() if value is not None} if isinstance(found, Mapping) else {}
