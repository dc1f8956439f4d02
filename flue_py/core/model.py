"""The model seam: the only way this library calls a model. A request, a reply, and the protocol of a model.

A `Model` takes a `ModelRequest` and returns a `ModelReply`, or raises a `flue_py.errors.ModelError` whose branch says
how to go on. `flue_py.models.open_model` makes one of a provider's model, `FunctionModel` one of a function.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from msgspec.structs import force_setattr

from flue_py.core.json import Frozen, JsonObject, JsonValue, encode_json
from flue_py.core.kinds import message_text
from flue_py.core.usage import NAMES_OF_A_CALL, checked_tag, paid_for, read_calls
from flue_py.errors import InvalidArgument, InvalidEntry, shown
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    from flue_py.core import messages as message_types
else:
    # Only a call of a model needs it, and it imports pydantic.
    message_types = lazy_module("flue_py.core.messages")


class ModelRequest(Frozen):
    """A request to a model.

    ``messages`` are messages of ours, at least one; ``system`` stands above them. ``tools`` are those that are
    declared, each with ``name``, ``description`` and ``parameters`` (a JSON schema): a reply may call them.
    ``max_tokens`` bounds the answer, ``timeout`` the seconds until it is whole; None leaves both to the model.
    ``purpose`` is noted in the ledger. With ``compacts`` the provider is asked to compact the messages itself: the
    reply's message has that as a part ``compaction``, unchanged. A message may have a provider's own parts in the field
    ``native`` (`flue_py.core.kinds`), which that provider is sent in place of the content. Raises `InvalidArgument`
    naming the field. Messages are not copied: treat them as frozen. O(size).
    """

    messages: tuple[JsonObject, ...]
    system: str | None = None
    tools: tuple[JsonObject, ...] = ()
    max_tokens: int | None = None
    timeout: float | None = None
    purpose: str = "turn"
    compacts: bool = False

    def __post_init__(self) -> None:
        force_setattr(self, "messages", _checked_messages(self.messages))
        force_setattr(self, "tools", _checked_tools(self.tools))
        if self.system is not None and not isinstance(self.system, str):
            raise InvalidArgument(f"system: should be a string or None, not {shown(self.system)}")
        check_tokens(self.max_tokens, "max_tokens")
        if self.timeout is not None and not _is_duration(self.timeout):
            raise InvalidArgument(f"timeout: should be a number of seconds above 0 or None, not {shown(self.timeout)}")
        if not isinstance(self.compacts, bool):
            raise InvalidArgument(f"compacts: should be True or False, not {shown(self.compacts)}")
        try:
            checked_tag(self.purpose, "purpose")
        except InvalidEntry as error:
            raise InvalidArgument(str(error)) from None


class ModelReply(Frozen):
    """The answer of a model.

    ``messages`` are assistant messages of ours, at least one, each with ``usage``, ``provider``, ``model`` and
    ``stopReason`` as far as they are known, and ``responseId``, the provider's id of the call. ``calls`` are the single
    calls that were paid for: usage objects with ``provider``, ``model`` and ``callId``. Without them each message is
    one call. Raises `InvalidArgument` naming the field. Nothing is copied: treat it as frozen. O(size).
    """

    messages: tuple[JsonObject, ...]
    calls: tuple[JsonObject, ...] = ()

    def __post_init__(self) -> None:
        messages = _checked_messages(self.messages)
        for number, message in enumerate(messages):
            if message["role"] != "assistant":
                raise InvalidArgument(f"messages[{number}].role: should be assistant, not {shown(message['role'])}")
        force_setattr(self, "messages", messages)
        force_setattr(self, "calls", _checked_objects(self.calls, "calls"))

    @property
    def text(self) -> str:
        """The text of the messages, joined by newlines; reasoning and calls of tools are left out."""
        return "\n".join(text for text in map(message_text, self.messages) if text)

    @property
    def stop_reason(self) -> str | None:
        """Why the last message ends (stop, length, toolUse, error, aborted), or None if it does not say."""
        reason = self.messages[-1].get("stopReason")
        return reason if isinstance(reason, str) else None

    @property
    def paid_calls(self) -> tuple[JsonObject, ...]:
        """The calls as the ledger takes them, in order: ``calls``, or one for each message.

        Each is a usage object with ``provider``, ``model`` and ``callId`` as far as they are known; without a number in
        it its usage is unknown.
        """
        return self.calls or tuple(map(_call_of, self.messages))

    @property
    def usage(self) -> JsonObject | None:
        """The usage of all calls, as a usage object; None if that of any of them is unknown."""
        calls = self.paid_calls
        if any(call.is_unknown for call in read_calls(calls, "calls", "turn")):
            return None
        if len(calls) == 1:
            return {name: value for name, value in calls[0].items() if name not in NAMES_OF_A_CALL}
        summed = paid_for(None, calls, "turn")
        return summed.reported if summed.counted else None


@runtime_checkable
class Model(Protocol):
    """A model that can be called. ``isinstance`` tells whether a value has these members."""

    @property
    def name(self) -> str:
        """Its name, as the provider and the price lists have it."""
        ...

    @property
    def provider(self) -> str | None:
        """Who serves it, None if that is not known."""
        ...

    @property
    def context_window(self) -> int | None:
        """How many tokens a request and its answer may have in all, None if that is not known."""
        ...

    @property
    def max_output_tokens(self) -> int | None:
        """How many tokens an answer may have, None if that is not known."""
        ...

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Return the answer to a request. Raises `ModelError`; cancellation passes through."""
        ...


Answer = ModelReply | str
"""The answer of a function in place of a model: a reply, or the text of one."""


class FunctionModel(Frozen):
    """A model made of a function, for tests and for models of your own.

    ``function`` takes a `ModelRequest` and returns a `ModelReply`, or a string: an answer of unknown usage. It may be
    async. An error that it raises passes through; it has to see to the request's timeout itself. Raises
    `InvalidArgument` naming the field, also where the function returns anything else.
    """

    function: Callable[[ModelRequest], Answer | Awaitable[Answer]]
    name: str = "function"
    provider: str | None = None
    context_window: int | None = None
    max_output_tokens: int | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidArgument(f"function: should be a function, not {shown(self.function)}")
        if not isinstance(self.name, str) or not self.name:
            raise InvalidArgument(f"name: should be a string with characters, not {shown(self.name)}")
        if self.provider is not None and not isinstance(self.provider, str):
            raise InvalidArgument(f"provider: should be a string or None, not {shown(self.provider)}")
        check_tokens(self.context_window, "context_window")
        check_tokens(self.max_output_tokens, "max_output_tokens")

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Return the answer of the function."""
        answer = self.function(request)
        if isawaitable(answer):
            answer = await answer
        if isinstance(answer, str):
            message: JsonObject = {"role": "assistant", "content": answer, "model": self.name, "stopReason": "stop"}
            return ModelReply(({**message, "provider": self.provider} if self.provider else message,))
        if not isinstance(answer, ModelReply):
            raise InvalidArgument(f"function: should return a ModelReply or a string, not {shown(answer)}")
        return answer


def check_tokens(value: object, where: str) -> None:
    """Check a number of tokens, above 0, or None. Raises `InvalidArgument`."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise InvalidArgument(f"{where}: should be a whole number of tokens above 0 or None, not {shown(value)}")


def _is_duration(value: object) -> bool:
    # A whole number may be too large for a float, which everybody who waits makes of it.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= sys.float_info.max


def _checked_objects(value: object, where: str) -> tuple[JsonObject, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise InvalidArgument(f"{where}: should be a tuple of objects, not {shown(value)}")
    for number, item in enumerate(value):
        if not isinstance(item, Mapping):
            raise InvalidArgument(f"{where}[{number}]: should be an object, not {shown(item)}")
    return tuple(value)


def _checked_messages(value: object) -> tuple[JsonObject, ...]:
    messages = _checked_objects(value, "messages")
    if not messages:
        raise InvalidArgument("messages: is empty; give at least one message")
    try:
        for number, message in enumerate(messages):
            message_types.validate_message(message, f"messages[{number}]")
    except InvalidEntry as error:
        raise InvalidArgument(str(error)) from None
    return messages


def _checked_tools(value: object) -> tuple[JsonObject, ...]:
    tools = _checked_objects(value, "tools")
    names: set[JsonValue] = set()
    for number, tool in enumerate(tools):
        where, name = f"tools[{number}]", tool.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"{where}.name: should be a string with characters, not {shown(name)}")
        if name in names:
            raise InvalidArgument(f"{where}.name: {shown(name)} is the name of a tool before it; declare it once")
        names.add(name)
        if not isinstance(tool.get("description"), (str, type(None))):
            raise InvalidArgument(f"{where}.description: should be a string, not {shown(tool['description'])}")
        if not isinstance(tool.get("parameters"), Mapping):
            raise InvalidArgument(f"{where}.parameters: should be a JSON schema, not {shown(tool.get('parameters'))}")
        _check_json(tool, where)
    return tools


def _check_json(value: JsonObject, where: str) -> None:
    try:
        encode_json(value, where)
    except InvalidEntry as error:
        raise InvalidArgument(str(error)) from None


def _call_of(message: JsonObject) -> JsonObject:
    usage = message.get("usage")
    usage_fields: JsonObject = dict(usage) if isinstance(usage, dict) else {}
    named = {"provider": message.get("provider"), "model": message.get("model"), "callId": message.get("responseId")}
    return usage_fields | {name: value for name, value in named.items() if isinstance(value, str) and value}
