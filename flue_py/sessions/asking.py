"""Asking a model for a session: budgets are asked first, and what a call cost is in the ledger before anybody sees its
answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from flue_py.core.budgets import DEFAULT_TTL, Budget, Money
from flue_py.core.calls import NAMES_OF_A_CALL, read_call
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject
from flue_py.core.ledger import Recorded
from flue_py.core.usage import picodollars_to_usd
from flue_py.errors import (
    CallConflict,
    ContextOverflow,
    InvalidArgument,
    ModelDenied,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
    shown,
)
from flue_py.lazy import lazy_module
from flue_py.sessions.budgeting import BudgetedCall
from flue_py.store.waiting import Waiting

if TYPE_CHECKING:
    from flue_py.context import counters, measuring
    from flue_py.core import model_seam
    from flue_py.core.model_seam import Model, ModelReply, ModelRequest
else:
    # It brings the models of messages, which opening a session does not need.
    model_seam = lazy_module("flue_py.core.model_seam")
    counters = lazy_module("flue_py.context.counters")
    measuring = lazy_module("flue_py.context.measuring")

_MARGIN_SECONDS = 5.0
_LEAST_WAIT_SECONDS = 1.0
_UNPAID = (ContextOverflow, ModelDenied, ModelRefused, RateLimited)
"""What a provider answers instead of working: it costs nothing, unless the error says what it has used."""


class Books(Protocol):
    """What writes a paid call into the ledger, and asks budgets for it: a session."""

    async def record_call(
        self, usage: JsonObject, *, provider: str, model: str, call_id: str, purpose: str, outcome: str | None
    ) -> Recorded: ...

    async def budgets(self) -> list[Budget]: ...

    def budgeted(
        self, *, tokens: int | None = None, cost: Money | None = None, ttl: float | None = None
    ) -> AbstractAsyncContextManager[BudgetedCall]: ...


class Booked(NamedTuple):
    """A paid call as the ledger has it, its tokens, and its picodollars; None for what is not known."""

    call: JsonObject
    tokens: int | None
    picodollars: int | None


def model_of(model: object, what: str = "model") -> Model:
    """Return a model as it is. Raises `InvalidArgument` for anything else."""
    if not isinstance(model, model_seam.Model):
        raise InvalidArgument(
            f"{what}: {shown(model)} is not a model; use flue_py.models.open_model, or FunctionModel for a function"
        )
    return model


def window_of(window: int | None, model: Model | None) -> int | None:
    """Return a context window, by default that of the model; None where neither says."""
    return window if window is not None or model is None else model.context_window


@frozen
class Patience:
    """How long a model is waited for: ``timeout`` is for a request that has none, None for no end.

    ``rate_limit_wait`` is how many seconds are waited in all where a provider says when to call again.
    """

    timeout: float | None = None
    rate_limit_wait: float = 0.0


NO_PATIENCE = Patience()


async def book(
    books: Books, call: Mapping[str, object], new_id: Callable[[], str], purpose: str, outcome: str | None = None
) -> Booked:
    """Write a paid call into the ledger, and return it with its id there.

    ``call`` is a usage object with ``provider``, ``model`` and ``callId`` as far as they are known.
    """
    provider, model = _name(call.get("provider")), _name(call.get("model"))
    call_id = _name(call.get("callId")) or new_id()
    usage = cast("JsonObject", {name: value for name, value in call.items() if name not in NAMES_OF_A_CALL})
    record = partial(books.record_call, usage, provider=provider, model=model, purpose=purpose, outcome=outcome)
    try:
        recorded = await record(call_id=call_id)
    except CallConflict:
        # Some providers, and many stand-ins, give every answer the same id: what was paid counts all the same.
        call_id = new_id()
        recorded = await record(call_id=call_id)
    named: JsonObject = {**usage, "provider": provider, "model": model, "callId": call_id}
    read = read_call(usage, "usage", purpose)
    return Booked(named, None if read.is_unknown else read.usage.tokens, recorded.picodollars)


class BookingAsker:
    """Asks a model, and writes each call that was paid for into the ledger as soon as it is answered.

    A request without a timeout gets that of ``patience``, and one that allows a longer answer than the model has, its
    limit. Where the provider takes no call for a while and says for how long, that is waited for and the request made
    again, as long as ``patience`` lasts. With ``purpose``, every request is for that. Where budgets cover the session,
    what a request may take at most is reserved in them before, and what it used is booked in them after.

    ``calls`` are these calls, each with the id by which the ledger knows it: an entry that names them is not counted
    again. Calls that failed are booked, and are not among them: no entry is made of them.
    """

    def __init__(
        self,
        model: Model,
        books: Books,
        waiting: Waiting,
        new_id: Callable[[], str],
        patience: Patience = NO_PATIENCE,
        purpose: str | None = None,
        before: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self.calls: list[JsonObject] = []
        self._model = model
        self._books = books
        self._waiting = waiting
        self._new_id = new_id
        self._timeout = patience.timeout
        self._wait_left = patience.rate_limit_wait
        self._purpose = purpose
        self._before = before

    async def ask(self, request: ModelRequest) -> ModelReply:
        """Return the answer to a request. Raises what the model raises, `ModelError` among it."""
        if request.timeout is None and self._timeout is not None:
            request = replace(request, timeout=self._timeout)
        if self._purpose is not None:
            request = replace(request, purpose=self._purpose)
        most = self._model.max_output_tokens
        if most is not None and request.max_tokens is not None and request.max_tokens > most:
            # A mode need not know that, and a provider refuses what is above it.
            request = replace(request, max_tokens=most)
        while True:
            if self._before is not None:
                await self._before(request.timeout or 0.0)
            try:
                return await self._ask_once(request)
            except RateLimited as error:
                # A provider that asks for no time at all would be asked for ever.
                seconds = max(error.retry_after or 0.0, _LEAST_WAIT_SECONDS)
                if error.retry_after is None or seconds > self._wait_left:
                    raise
            self._wait_left -= seconds
            await self._waiting.pause(seconds)

    async def _ask_once(self, request: ModelRequest) -> ModelReply:
        if not await self._books.budgets():
            return await self._answer(request, [])
        most = await self._waiting.call(lambda: self._most_tokens(request))
        booked: list[Booked] = []
        async with self._books.budgeted(tokens=most, ttl=max(DEFAULT_TTL, request.timeout or 0.0)) as call:
            try:
                reply = await self._answer(request, booked)
            except BaseException as error:
                # A call that was ended, or whose answer did not come, may have been paid for.
                if booked or not isinstance(error, _UNPAID):
                    _charge(call, booked)
                raise
            _charge(call, booked)
        return reply

    def _most_tokens(self, request: ModelRequest) -> int:
        """Return how many tokens a request and its answer take at most, as far as that can be told."""
        counter = counters.counter_for(self._model.name)
        around = [*([request.system] if request.system else ()), *measuring.texts_of(request.tools)]
        told = sum(map(counter.count, request.messages)) + counters.ENTRY_COUNTS.tally_texts(around, counter).tokens
        return told + (request.max_tokens or self._model.max_output_tokens or 0)

    async def _answer(self, request: ModelRequest, booked: list[Booked]) -> ModelReply:
        """Return the answer; what was paid for is booked in the ledger, and added to ``booked``."""
        try:
            reply = await self._waiting.ask(lambda: self._model.complete(request), _patience(request.timeout))
        except TimeoutError as error:
            raise ModelUnavailable(
                f"no answer within {request.timeout} seconds; ask again, or give it a longer timeout",
                provider=self._model.provider,
                model=self._model.name,
            ) from error
        except ModelError as error:
            if error.call is not None:
                booked.append(await self._book(error.call, request.purpose, "failed"))
            raise
        if not isinstance(reply, model_seam.ModelReply):
            raise InvalidArgument(f"model: complete() should return a ModelReply, not {shown(reply)}")
        for call in reply.paid_calls:
            booked.append(await self._book(call, request.purpose, None))
            self.calls.append(booked[-1].call)
        return reply

    async def ask_all(self, requests: Sequence[ModelRequest]) -> list[ModelReply | Exception]:
        """Return the answers or the errors, in the order of the requests; they are asked at the same time."""
        return await self._waiting.outcomes([self.ask(request) for request in requests])

    async def _book(self, call: Mapping[str, object], purpose: str, outcome: str | None) -> Booked:
        provider = _name(call.get("provider")) or self._model.provider
        model = _name(call.get("model")) or self._model.name
        named = {**call, "provider": provider, "model": model}
        return await book(self._books, named, self._new_id, purpose, outcome)


def _charge(call: BudgetedCall, booked: Sequence[Booked]) -> None:
    """Say what a call has used: what is not known counts as what was reserved."""
    call.made()
    tokens = [each.tokens for each in booked if each.tokens is not None]
    picodollars = [each.picodollars for each in booked if each.picodollars is not None]
    if booked and len(tokens) == len(booked):
        call.used(tokens=sum(tokens))
    if booked and len(picodollars) == len(booked):
        call.used(cost=picodollars_to_usd(sum(picodollars)))


def _patience(timeout: float | None) -> float | None:
    """Return when to give up a model that does not keep to the timeout itself. One that does knows what it has cost."""
    return None if timeout is None else timeout + _MARGIN_SECONDS


def _name(value: object) -> str:
    return value if isinstance(value, str) else ""
