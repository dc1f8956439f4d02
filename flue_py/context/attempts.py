"""A request that did not fit the model is shrunk, stage by stage, and tried again; the session keeps all of it.

    async for attempt in await session.attempts("anthropic"):
        with attempt:
            reply = await client.messages.create(messages=attempt.request.messages, ...)

An attempt takes a `ContextOverflow` that is raised inside it, and the next one follows: results of tools cut after
4,000 characters, then after 500, then no tools at all, each made from the whole. The last one lets the error pass.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from types import TracebackType

from flue_py.context.overflows import overflow_of
from flue_py.context.requests import ContextRequest
from flue_py.context.settings import Fitting
from flue_py.context.steps.protocol import Step
from flue_py.context.steps.shrink import STAGE_CHARS, Shrink
from flue_py.core.bound import with_produced_under
from flue_py.core.frozen import changed
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.core.model_seam import Model, ModelReply, ModelRequest
from flue_py.errors import ContextOverflow

_CHARS_PER_TOKEN = 4
_MESSAGE_BYTES, _TOOL_BYTES, _ENVELOPE_BYTES = 1.2, 1.1, 2_048


class Attempt:
    """One try at a request: a context manager, which takes an overflow if another attempt can follow.

    That is a `ContextOverflow`, or an error of a client that tells of one in a provider's words.

    ``number`` is 0 for the request as the settings make it, and then that of the stage.
    """

    __slots__ = ("has_overflowed", "is_last", "number", "request")

    def __init__(self, number: int, request: ContextRequest, *, is_last: bool) -> None:
        self.number = number
        self.request = request
        self.is_last = is_last
        self.has_overflowed = False
        """Whether the provider said that it does not fit."""

    def __repr__(self) -> str:
        return f"<attempt {self.number}: {self.request.tokens} tokens>"

    def __enter__(self) -> Attempt:
        return self

    def overflowed(self) -> None:
        """Say that the provider refused it as too large, if its error is no `ContextOverflow`: the next one follows."""
        self.has_overflowed = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception) or overflow_of(error) is None:
            return False
        self.has_overflowed = True
        return not self.is_last


class Attempts:
    """The attempts of one request, for `async for` and for `for`: the next one follows if the last has overflowed.

    One that the checks of `Fitting` say is too large is passed over. Raises `ContextOverflow` if they say so of the
    last one.
    """

    def __init__(
        self,
        make: Callable[[Sequence[Step]], ContextRequest],
        fitting: Fitting,
        tools: Sequence[JsonObject],
        elsewhere: Callable[[Callable[[], Attempt | None]], Awaitable[Attempt | None]],
        *,
        addresses: bool,
    ) -> None:
        self._make = make
        self._fitting = fitting
        self._tools = tools
        self._elsewhere = elsewhere
        self._addresses = addresses
        self._number = 0
        self._latest: Attempt | None = None

    def __iter__(self) -> Iterator[Attempt]:
        return self

    def __next__(self) -> Attempt:
        found = self._next()
        if found is None:
            raise StopIteration
        return found

    def __aiter__(self) -> AsyncIterator[Attempt]:
        return self

    async def __anext__(self) -> Attempt:
        found = await self._elsewhere(self._next)
        if found is None:
            raise StopAsyncIteration
        return found

    def _next(self) -> Attempt | None:
        if self._latest is not None and not self._latest.has_overflowed:
            return None
        while self._number <= len(STAGE_CHARS):
            number = self._number
            self._number += 1
            request = self._make(self._steps(number))
            problem = what_is_too_large(request, self._tools, self._fitting)
            is_last = number == len(STAGE_CHARS)
            if not problem:
                self._latest = Attempt(number, request, is_last=is_last)
                return self._latest
            if is_last:
                raise ContextOverflow(
                    f"the request does not fit, without any tools either: {problem}",
                    window=self._fitting.max_context_tokens or None,
                )
        return None

    def _steps(self, number: int) -> list[Step]:
        if not number:
            return []
        fitting = self._fitting
        return [Shrink(STAGE_CHARS[number - 1], fitting.read_tools, fitting.write_tools, self._addresses)]


async def ask_fitting(attempts: Attempts, model: Model, request: ModelRequest) -> ModelReply:
    """Return the answer of a model to the first attempt that fits, with ``request`` but for its messages.

    The attempts are those of messages of ours (`Session.attempts` without a target). Signed answers come back with what
    they were produced under. Raises what the model raises, and
    `ContextOverflow` if no attempt fits.
    """
    async for attempt in attempts:
        with attempt:
            reply = await model.complete(changed(request, messages=tuple(attempt.request.messages)))
            digest = attempt.request.prefix_digest
            return changed(reply, messages=tuple(with_produced_under(each, digest) for each in reply.messages))
    raise ContextOverflow("no attempt was left")  # the last one lets its error pass


def what_is_too_large(request: ContextRequest, tools: Sequence[JsonObject], fitting: Fitting) -> str:
    """Return what of a request is above the limits, in words; "" for nothing. O(size).

    The system counts as content, wherever the target has it.
    """
    if not fitting.max_context_tokens and not fitting.max_payload_bytes:
        return ""
    said = _length(request.system) + sum(
        _length(message.get("content", message.get("parts"))) + _calls(message) for message in request.messages
    )
    offered = sum(len(encode_json(tool, "tools")[0]) for tool in tools)
    tokens = (said + offered) // _CHARS_PER_TOKEN
    size = int(said * _MESSAGE_BYTES + offered * _TOOL_BYTES) + _ENVELOPE_BYTES
    if fitting.max_context_tokens and tokens > fitting.max_context_tokens:
        return f"about {tokens:,} tokens are more than max_context_tokens ({fitting.max_context_tokens:,})"
    if fitting.max_payload_bytes and size > fitting.max_payload_bytes:
        return f"about {size:,} bytes are more than max_payload_bytes ({fitting.max_payload_bytes:,})"
    return ""


def _calls(message: JsonObject) -> int:
    return _length(message.get("tool_calls")) + _length(message.get("arguments")) + _length(message.get("output"))


def _length(content: JsonValue) -> int:
    """Return how many characters a content has: its texts, and the JSON of its other parts."""
    if content is None:
        return 0
    if isinstance(content, str):
        return len(content)
    if isinstance(content, list):
        return sum(map(_length, content))
    if isinstance(content, dict) and isinstance(text := content.get("text"), str):
        return len(text)
    if isinstance(content, dict) and isinstance(parts := content.get("parts"), list):
        return _length(parts)
    return len(encode_json(content, "content")[0])
