"""Whole lists of messages for those who call a provider themselves, without a framework.

    request = to_anthropic(await session.build_context())
    client.messages.create(system=request.system, messages=request.messages, ...)

``to_X`` makes a list for X of a context, ``from_X`` makes our messages of a list of X. None of them reads or writes
anything. `to_pydantic_ai` and `to_langchain` make objects of these libraries, and need the extra of that name.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from msgspec import field

from flue_py.context.request import Reshaping
from flue_py.core.context import ContextEntry
from flue_py.core.json import Frozen, JsonObject, JsonValue, encode_json
from flue_py.core.kinds import COMPACTION_PART, SYSTEM, Shape, shape_of
from flue_py.core.messages import validate_message
from flue_py.core.usage import ReportedUsage, billed_by, read_reported, usage_json
from flue_py.errors import InvalidEntry, MissingExtra, shown
from flue_py.providers import lists
from flue_py.providers.anthropic import part_from_block
from flue_py.providers.base import ExportNote, Leftovers
from flue_py.providers.gemini import is_of_google
from flue_py.providers.openai_chat import image_from_url, parts_of
from flue_py.providers.openai_responses import reasoning_item
from flue_py.providers.request import Converted, convert
from flue_py.sessions.handle import checked_text

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from pydantic_ai import messages as theirs
    from pydantic_ai.usage import RequestUsage

    from flue_py.context.settings import ContextSettings
__all__ = [
    "Context", "FrameworkList", "OurMessages", "ProviderList", "from_anthropic", "from_gemini", "from_langchain",
    "from_openai", "from_pydantic_ai", "from_responses", "sent_to_langchain", "sent_to_pydantic_ai", "to_anthropic",
    "to_gemini", "to_langchain", "to_openai", "to_pydantic_ai", "to_responses",
]  # fmt: skip


# Times, bytes and usage, for objects of frameworks and our parts


def text_of(message: Mapping[str, JsonValue]) -> str:
    """Return the texts of a message as one."""
    return "\n".join(str(part.get("text", "")) for part in parts_of(message) if part.get("type") == "text")


def moment_of(message: Mapping[str, JsonValue]) -> datetime | None:
    """Return when a message was made, by its milliseconds since 1970; None if it does not say."""
    timestamp = message.get("timestamp")
    if isinstance(timestamp, bool) or not isinstance(timestamp, (int, float)):
        return None
    try:
        return datetime.fromtimestamp(timestamp / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def milliseconds(moment: datetime | None) -> JsonObject:
    """Return the field that says when a message was made, or none."""
    return {} if moment is None else {"timestamp": round(moment.timestamp() * 1000)}


def usage_of(message: Mapping[str, JsonValue]) -> ReportedUsage | None:
    """Return the usage of an answer, or None if it is not known."""
    usage = read_reported(message.get("usage"))
    return usage if usage.is_known else None


def held_in(part: Mapping[str, JsonValue]) -> tuple[JsonValue, str, JsonValue]:
    """Return the base64 of a picture or a file (or None), its kind, and its URL (or None)."""
    data, url, kind = part.get("data"), part.get("url"), part.get("mimeType")
    if isinstance(url, str) and "data" in (inline := image_from_url(url)):
        data, url, kind = inline["data"], None, inline["mimeType"]
    default = "image/png" if part.get("type") == "image" else "application/octet-stream"
    return data, kind if isinstance(kind, str) else default, url


def decoded(data: JsonValue) -> bytes | None:
    """Return the bytes of base64, or None for a value that is none."""
    try:
        return base64.b64decode(data, validate=True) if isinstance(data, str) else None
    except ValueError:
        return None


# Arguments and results

Item = TypeVar("Item")


class ProviderList(Frozen):
    """A list as a provider takes it.

    ``system`` is the system message that a request has beside the list, None if there is none or the provider has it in
    the list. ``notes`` name the parts that were left out or changed.
    """

    messages: list[JsonObject]
    system: JsonValue = None
    notes: tuple[ExportNote, ...] = ()


class FrameworkList(Frozen, Generic[Item]):
    """The messages of a context as objects of a framework; ``notes`` name the parts left out or changed."""

    messages: list[Item]
    notes: tuple[ExportNote, ...] = ()


class OurMessages(Frozen):
    """Messages of ours made from another form; ``notes`` name the parts that had no place in them.

    ``beside`` has the difference of each to its original, field for field: give the whole object to ``to_X`` to bring
    the originals back.
    """

    messages: list[JsonObject]
    beside: list[JsonObject] = field(default_factory=list)
    notes: tuple[ExportNote, ...] = ()


Context: TypeAlias = Iterable[Mapping[str, JsonValue] | ContextEntry] | OurMessages
"""Messages for the model: of `Session.build_context` or `Session.build_context_entries`; or those of ``from_X``.

Entries and `OurMessages` also bring originals back: spellings, fields that ours have no place for.
"""


def said_of(context: Context) -> Iterator[lists.Said]:
    """Yield the messages of a context, each with the extra fields beside it.

    Raises `InvalidEntry` with the path of an item that is not a message of ours. O(size).
    """
    if isinstance(context, OurMessages):
        extras = [*context.beside, *[{} for _ in range(len(context.messages) - len(context.beside))]]
        yield from (lists.Said(*pair) for pair in zip(context.messages, extras, strict=True))
        return
    for number, item in enumerate(context):
        if isinstance(item, ContextEntry):
            yield from lists.said_in([item])
        else:
            yield lists.Said(_checked(item, f"messages[{number}]"))


def _messages_module(package: str, extra: str, framework: str) -> Any:  # noqa: ANN401 - it need not be installed
    try:
        import_module(package)
        return import_module(f"{package}.messages")
    except ImportError as error:
        raise MissingExtra(extra, f"the conversion of messages of {framework}") from error


_langchain = partial(_messages_module, "langchain_core", "langgraph", "LangChain")
_pydantic_ai = partial(_messages_module, "pydantic_ai", "pydantic-ai", "pydantic-ai")


def _all_answered(context: Context, left: Leftovers) -> Iterable[lists.Said]:
    """Return the messages of users, agents, tools and the system, every call of a tool answered right behind it."""
    return lists.answered(
        lists.joined_answers(lists.speakers_only(said_of(context), left, also=frozenset({"developer"}))), left
    )


def _checked(message: object, where: str) -> JsonObject:
    if not isinstance(message, Mapping):
        raise InvalidEntry(f"{where}: should be a message or an entry of a context, not {shown(message)}")
    shape = shape_of(message, where)
    if shape is not None:
        raise InvalidEntry(f"{where}: is of the form {shape}; make it one of ours first")
    validate_message(message, where)
    return dict(message)


# LangChain
#
# For a context, not for keeping histories: the values that a graph stores come back exactly from
# `flue_py.adapters.langgraph`.

_MEDIA = ("image", "file", "audio", "video")


def to_langchain(context: Context) -> FrameworkList[BaseMessage]:
    """Return a context as messages of LangChain, every call of a tool answered right behind it.

    Content is text, or LangChain's standard blocks. Raises `MissingExtra`, and `InvalidEntry` with the path of an item
    that is not a message of ours. O(size).
    """
    kit, left = _langchain(), Leftovers()
    return FrameworkList([_made(item.message, kit, left) for item in _all_answered(context, left)], left.notes())


def from_langchain(messages: Iterable[BaseMessage]) -> OurMessages:
    """Return messages of LangChain as ours.

    Parts that have no place in a message of ours are in the notes. Raises `MissingExtra`, and `InvalidEntry` for an
    object that is not a message. O(size).
    """
    kit, left = _langchain(), Leftovers()
    messages_of_ours: list[JsonObject] = []
    for number, message in enumerate(messages):
        if not isinstance(message, kit.BaseMessage):
            raise InvalidEntry(f"messages[{number}]: should be a message of LangChain, not {shown(message)}")
        if isinstance(message, kit.AIMessage):
            messages_of_ours.append(_from_answer(message, left))
        elif isinstance(message, kit.ToolMessage):
            messages_of_ours.append(_from_result(message, left))
        elif isinstance(message, (kit.HumanMessage, kit.SystemMessage)):
            role = "user" if isinstance(message, kit.HumanMessage) else "system"
            named: JsonObject = {} if message.name is None else {"name": message.name}
            messages_of_ours.append({"role": role, "content": _content(message, left), **named})
        else:
            left.note(f"a message of type {message.type!r}")
    return OurMessages(messages_of_ours, notes=left.notes())


# From ours


def _made(message: JsonObject, kit: Any, left: Leftovers) -> Any:  # noqa: ANN401 - a message of any class
    role = message.get("role")
    if role == "assistant":
        return _answer(message, kit, left)
    if role in SYSTEM:
        return kit.SystemMessage(text_of(message))
    content = message.get("content")
    blocks = (
        content if isinstance(content, str) else [block for part in parts_of(message) for block in _block(part, left)]
    )
    if role == "user":
        named = {"name": message["name"]} if isinstance(message.get("name"), str) else {}
        return kit.HumanMessage(blocks, **named)
    return kit.ToolMessage(
        blocks or "",
        tool_call_id=str(message.get("toolCallId")),
        name=message["toolName"] if isinstance(message.get("toolName"), str) else None,
        status="error" if message.get("isError") is True else "success",
    )


def _answer(message: JsonObject, kit: Any, left: Leftovers) -> Any:  # noqa: ANN401 - an AIMessage
    content = message.get("content")
    names = {"model_name": message.get("model"), "model_provider": message.get("provider")}
    named = {name: text for name, text in names.items() if isinstance(text, str)}
    blocks = [block for part in parts_of(message) for block in _answered(part, left)]
    return kit.AIMessage(
        content if isinstance(content, str) else blocks,
        tool_calls=[block for block in blocks if block["type"] == "tool_call"],
        invalid_tool_calls=[block for block in blocks if block["type"] == "invalid_tool_call"],
        usage_metadata=_their_usage(message),
        # Without the version the blocks would be taken for those of the provider.
        response_metadata=named if isinstance(content, str) else {**named, "output_version": "v1"},
    )


def _answered(part: JsonObject, left: Leftovers) -> list[dict[str, Any]]:
    if part.get("type") != "toolCall":
        return _block(part, left)
    arguments, call = part.get("arguments"), {"id": part.get("id"), "name": part.get("name")}
    if arguments is None or isinstance(arguments, dict):
        return [{"type": "tool_call", **call, "args": arguments or {}}]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return [{"type": "invalid_tool_call", **call, "args": text, "error": None}]


def _block(part: JsonObject, left: Leftovers) -> list[dict[str, Any]]:
    kind = part.get("type")
    if kind == "text":
        return [{"type": "text", "text": part.get("text")}]
    if kind == "thinking":
        signed = {name: part[name] for name in ("thinkingSignature", "redacted") if name in part}
        names = {"thinkingSignature": "signature", "redacted": "redacted"}
        extras = {"extras": {names[name]: value for name, value in signed.items()}} if signed else {}
        return [{"type": "reasoning", "reasoning": part.get("thinking"), **extras}]
    if kind in ("image", "file"):
        data, media_type, url = held_in(part)
        named = {"extras": {"filename": part["filename"]}} if isinstance(part.get("filename"), str) else {}
        if isinstance(data, str):
            return [{"type": kind, "base64": data, "mime_type": media_type, **named}]
        if isinstance(url, str):
            typed = {"mime_type": media_type} if isinstance(part.get("mimeType"), str) else {}
            return [{"type": kind, "url": url, **typed, **named}]
    left.note(f"a part {kind!r}")
    return []


def _their_usage(message: JsonObject) -> dict[str, Any] | None:
    usage = usage_of(message)
    if usage is None:
        return None
    totals = usage.totals
    whole = totals.input + totals.cache_read + totals.cache_write
    usage_of_langchain: dict[str, Any] = {
        "input_tokens": whole,
        "output_tokens": totals.output,
        "total_tokens": whole + totals.output,
    }
    cached = {"cache_read": ("cacheRead", totals.cache_read), "cache_creation": ("cacheWrite", totals.cache_write)}
    details = {name: tokens for name, (ours, tokens) in cached.items() if ours in usage.told}
    if details:
        usage_of_langchain["input_token_details"] = details
    if "reasoning" in usage.told:
        usage_of_langchain["output_token_details"] = {"reasoning": usage.reasoning}
    return usage_of_langchain


# Back


def _from_answer(message: Any, left: Leftovers) -> JsonObject:  # noqa: ANN401 - an AIMessage
    content = _content(message, left)
    calls: list[JsonValue] = [
        {"type": "toolCall", "id": call["id"], "name": call["name"], "arguments": call["args"]}
        for call in (*message.tool_calls, *message.invalid_tool_calls)
    ]
    if calls:
        parts = parts_of({"content": content}) if content else []
        content = [*parts, *calls]
    answer: JsonObject = {"role": "assistant", "content": content}
    metadata = message.response_metadata
    names = {"provider": metadata.get("model_provider"), "model": metadata.get("model_name") or metadata.get("model")}
    answer.update((name, text) for name, text in names.items() if isinstance(text, str))
    if message.usage_metadata is not None:
        terms = billed_by(metadata, metadata.get("usage") or metadata.get("token_usage"))
        answer["usage"] = {**terms, **usage_json(read_reported({**message.usage_metadata, **terms}))}
    return answer


def _from_result(message: Any, left: Leftovers) -> JsonObject:  # noqa: ANN401 - a ToolMessage
    result: JsonObject = {"role": "toolResult", "toolCallId": message.tool_call_id}
    if message.name is not None:
        result["toolName"] = message.name
    if message.status == "error":
        result["isError"] = True
    return {**result, "content": _content(message, left)}


def _content(message: Any, left: Leftovers) -> JsonValue:  # noqa: ANN401 - a message of any class
    if isinstance(message.content, str):
        return message.content
    # Blocks in the form of a provider are made standard ones by the message itself.
    return [part for block in message.content_blocks for part in _part(block, left)]


def _part(block: Any, left: Leftovers) -> list[JsonValue]:  # noqa: ANN401 - a block of any type
    kind, extras = block.get("type"), block.get("extras") or {}
    if kind == "text":
        return [{"type": "text", "text": block.get("text", "")}]
    if kind == "reasoning":
        names = {"signature": "thinkingSignature", "redacted": "redacted"}
        signed = {ours: extras[name] for name, ours in names.items() if name in extras}
        return [{"type": "thinking", "thinking": block.get("reasoning", ""), **signed}]
    if kind in _MEDIA:
        return _media(block, extras, left)
    if kind not in ("tool_call", "invalid_tool_call"):  # these are fields of the message, too
        left.note(f"a block {kind!r}")
    return []


def _media(block: Any, extras: Any, left: Leftovers) -> list[JsonValue]:  # noqa: ANN401 - a block of any type
    part: JsonObject = {"type": "image" if block["type"] == "image" else "file"}
    if "base64" in block:
        part["data"] = block["base64"]
    elif "url" in block:
        part.update(image_from_url(block["url"]))
    else:
        left.note(f"a block {block['type']!r} without data")
        return []
    if "mime_type" in block:
        part["mimeType"] = block["mime_type"]
    if "filename" in extras:
        part["filename"] = extras["filename"]
    return [part]


# pydantic-ai
#
# For a context, not for keeping histories: the messages that an agent of pydantic-ai stores come back exactly from
# `flue_py.adapters.pydantic_ai`.

_REDACTED = "redacted_thinking"
_ENDS = {"stop": "stop", "length": "length", "toolUse": "tool_call", "error": "error"}
_OUR_ENDS = {theirs: ours for ours, theirs in _ENDS.items()}


def to_pydantic_ai(context: Context) -> FrameworkList[theirs.ModelMessage]:
    """Return a context as the ``message_history`` of an agent, every call of a tool answered.

    The messages between two answers are one request, with those of the system. Parts have the times of their messages;
    if those have none, pydantic-ai draws them. Raises `MissingExtra`, and `InvalidEntry` with the path of an item that
    is not a message of ours. O(size).
    """
    maker = _Maker()
    history: list[theirs.ModelMessage] = []
    request_parts: list[theirs.ModelRequestPart] = []
    for context_message in _all_answered(context, maker.left):
        if context_message.role != "assistant":
            request_parts += maker.asked(context_message.message)
            continue
        if request_parts:
            history.append(maker.kit.ModelRequest(parts=request_parts))
            request_parts = []
        history.append(maker.answer(context_message.message))
    if request_parts:
        history.append(maker.kit.ModelRequest(parts=request_parts))
    return FrameworkList(history, maker.left.notes())


def from_pydantic_ai(history: Iterable[theirs.ModelMessage]) -> OurMessages:
    """Return messages of pydantic-ai as ours: an answer is one message, a request one for each of its parts.

    Instructions are system messages, where they change. Parts that have no place in a message of ours are in the notes.
    Raises `MissingExtra`, and `InvalidEntry` for an object that is not a message. O(size).
    """
    kit = _pydantic_ai()
    left = Leftovers()
    messages_of_ours: list[JsonObject] = []
    instructions: str | None = None
    for number, message in enumerate(history):
        if isinstance(message, kit.ModelResponse):
            messages_of_ours.append(_pydantic_ai_from_answer(message, left))
        elif isinstance(message, kit.ModelRequest):
            if message.instructions and message.instructions != instructions:
                instructions = message.instructions
                messages_of_ours.append({"role": "system", "content": instructions})
            messages_of_ours += [ours for part in message.parts for ours in _from_asked(part, left)]
        else:
            raise InvalidEntry(f"messages[{number}]: should be a message of pydantic-ai, not {shown(message)}")
    return OurMessages(messages_of_ours, notes=left.notes())


# From ours


class _Maker:
    """Makes the parts of a history, and notes those that have no place in it."""

    def __init__(self) -> None:
        self.kit = _pydantic_ai()
        self.left = Leftovers()

    def asked(self, message: JsonObject) -> list[theirs.ModelRequestPart]:
        """Return the part of a request that a message of the user, of a tool or of the system is."""
        moment = moment_of(message)
        timed: dict[str, Any] = {} if moment is None else {"timestamp": moment}
        role = message.get("role")
        if role in SYSTEM:
            return [self.kit.SystemPromptPart(text_of(message), **timed)]
        content = self._content(message)
        if role == "user":
            return [self.kit.UserPromptPart(content, **timed)]
        return [
            self.kit.ToolReturnPart(
                tool_name=str(message.get("toolName") or ""),
                content=content,
                tool_call_id=str(message.get("toolCallId")),
                outcome="failed" if message.get("isError") is True else "success",
                **timed,
            )
        ]

    def _content(self, message: JsonObject) -> str | list[Any]:
        content = message.get("content")
        if isinstance(content, str):
            return content
        items = [item for part in parts_of(message) for item in self._said(part)]
        if not items:
            return ""
        return items[0] if len(items) == 1 and isinstance(items[0], str) else items

    def _said(self, part: JsonObject) -> list[Any]:
        kind = part.get("type")
        if kind == "text":
            return [str(part.get("text"))]
        if kind in ("image", "file"):
            return self._media(part)
        self.left.note(f"a part {kind!r}")
        return []

    def _media(self, part: JsonObject) -> list[Any]:
        data, media_type, url = held_in(part)
        data_bytes = decoded(data)
        if data_bytes is not None:
            return [self.kit.BinaryContent(data=data_bytes, media_type=media_type)]
        if not isinstance(url, str):
            self.left.note(f"a part {part.get('type')!r} without data")
            return []
        family = "image" if part.get("type") == "image" else media_type.partition("/")[0]
        kinds = {"image": self.kit.ImageUrl, "audio": self.kit.AudioUrl, "video": self.kit.VideoUrl}
        typed = {"media_type": media_type} if isinstance(part.get("mimeType"), str) else {}
        return [kinds.get(family, self.kit.DocumentUrl)(url=url, **typed)]

    def answer(self, message: JsonObject) -> theirs.ModelResponse:
        """Return an answer with its usage."""
        parts = [item for part in parts_of(message) for item in self._answered(part, message)]
        fields: dict[str, Any] = {
            "model_name": _text(message.get("model")),
            "provider_name": _text(message.get("provider")),
            "finish_reason": _ENDS.get(str(message.get("stopReason"))),
        }
        moment, usage = moment_of(message), _pydantic_ai_their_usage(message)
        fields.update({} if moment is None else {"timestamp": moment})
        fields.update({} if usage is None else {"usage": usage})
        return self.kit.ModelResponse(parts=parts, **fields)  # type: ignore[no-any-return]

    def _answered(self, part: JsonObject, message: JsonObject) -> list[Any]:
        kind = part.get("type")
        if kind == "text":
            return [self.kit.TextPart(str(part.get("text")), **_signed(part.get("textSignature"), message))]
        if kind == "thinking":
            return [self._thought(part, message)]
        if kind == "toolCall":
            arguments = part.get("arguments")
            called = {"tool_name": str(part.get("name")), "tool_call_id": str(part.get("id"))}
            args = arguments if arguments is None or isinstance(arguments, (str, dict)) else json.dumps(arguments)
            return [self.kit.ToolCallPart(args=args, **called, **_signed(part.get("thoughtSignature"), message))]
        if kind == COMPACTION_PART and _text(message.get("provider")):
            return [self._compaction(part, message)]
        if kind in ("image", "file") and (data := decoded(held_in(part)[0])) is not None:
            return [self.kit.FilePart(self.kit.BinaryContent(data=data, media_type=held_in(part)[1]))]
        self.left.note(f"a part {kind!r} of an answer")
        return []

    def _compaction(self, part: JsonObject, message: JsonObject) -> theirs.CompactionPart:
        details = {name: value for name, value in part.items() if name not in ("type", "content")}
        return self.kit.CompactionPart(  # type: ignore[no-any-return]
            content=_text(part.get("content")),
            id=_text(part.get("id")),
            provider_name=message["provider"],
            provider_details=details or None,
        )

    def _thought(self, part: JsonObject, message: JsonObject) -> theirs.ThinkingPart:
        content, signature = str(part.get("thinking")), part.get("thinkingSignature")
        provider = _text(message.get("provider"))
        if part.get("redacted") is True:
            return self.kit.ThinkingPart("", id=_REDACTED, signature=signature, provider_name=provider)  # type: ignore[no-any-return]
        if is_of_google(message):
            return self.kit.ThinkingPart(content, **_signed(signature, message))  # type: ignore[no-any-return]
        item = reasoning_item(signature)
        signed = {"signature": _text(signature)}
        if item is not None:
            signed = {"id": _text(item.get("id")), "signature": _text(item.get("encrypted_content"))}
        return self.kit.ThinkingPart(content, provider_name=provider, **signed)  # type: ignore[no-any-return]


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None


def _signed(signature: JsonValue, message: JsonObject) -> dict[str, Any]:
    """Return where pydantic-ai keeps a signature of Google's."""
    if not isinstance(signature, str) or not signature or not is_of_google(message):
        return {}
    return {"provider_name": message["provider"], "provider_details": {"thought_signature": signature}}


def _pydantic_ai_their_usage(message: JsonObject) -> RequestUsage | None:
    usage = usage_of(message)
    if usage is None:
        return None
    from pydantic_ai.usage import RequestUsage  # noqa: PLC0415 - an extra

    totals = usage.totals
    return RequestUsage(
        input_tokens=totals.input + totals.cache_read + totals.cache_write,
        output_tokens=totals.output,
        cache_read_tokens=totals.cache_read,
        cache_write_tokens=totals.cache_write,
        details={"reasoning_tokens": usage.reasoning} if "reasoning" in usage.told else {},
    )


# Back


def _from_asked(part: Any, left: Leftovers) -> list[JsonObject]:  # noqa: ANN401 - a part of any request
    timed = milliseconds(getattr(part, "timestamp", None))
    kind = part.part_kind
    if kind == "system-prompt":
        return [{"role": "system", "content": part.content, **timed}]
    if kind == "user-prompt":
        content = part.content if isinstance(part.content, str) else _parts(part.content, left)
        return [{"role": "user", "content": content, **timed}]
    if kind == "tool-return":
        message: JsonObject = {"role": "toolResult", "toolCallId": part.tool_call_id, "toolName": part.tool_name}
        if part.outcome != "success":
            message["isError"] = True
        return [{**message, "content": _returned(part, left), **timed}]
    if kind == "retry-prompt" and part.tool_name is not None:
        message = {"role": "toolResult", "toolCallId": part.tool_call_id, "toolName": part.tool_name, "isError": True}
        return [{**message, "content": part.model_response(), **timed}]
    if kind in ("retry-prompt", "retry-feedback"):
        return [{"role": "user", "content": part.model_response(), **timed}]
    left.note(f"a part {kind!r} of a request")
    return []


def _returned(part: Any, left: Leftovers) -> JsonValue:  # noqa: ANN401 - the return of a tool
    items = part.content_items(mode="str", wrap_if_error=False)
    if all(isinstance(item, str) for item in items):
        return "\n".join(items)
    return _parts(items, left)


def _parts(content: Iterable[Any], left: Leftovers) -> list[JsonValue]:
    parts: list[JsonValue] = []
    for item in content:
        if isinstance(item, str):
            parts.append({"type": "text", "text": item})
        elif isinstance(text := getattr(item, "content", None), str):
            parts.append({"type": "text", "text": text})
        else:
            parts += _pydantic_ai_media(item, left)
    return parts


def _pydantic_ai_media(media: Any, left: Leftovers) -> list[JsonValue]:  # noqa: ANN401 - whatever content has
    if media.kind == "binary":
        data = base64.b64encode(media.data).decode()
        return [{"type": "image" if media.is_image else "file", "data": data, "mimeType": media.media_type}]
    if media.kind in ("image-url", "audio-url", "video-url", "document-url"):
        try:
            typed: JsonObject = {"mimeType": media.media_type}
        except ValueError:  # it cannot be told from the address
            typed = {}
        return [{"type": "image" if media.kind == "image-url" else "file", "url": media.url, **typed}]
    left.note(f"content {media.kind!r}")
    return []


_AUDIO = ("input_audio_tokens", "output_audio_tokens", "audio_seconds", "unmeasured_requests")


def _pydantic_ai_from_answer(message: theirs.ModelResponse, left: Leftovers) -> JsonObject:
    content = [part_of_ours for part in message.parts for part_of_ours in _from_answered(part, left)]
    answer: JsonObject = {"role": "assistant", "content": content}
    names = {"provider": message.provider_name, "model": message.model_name}
    answer.update((name, text) for name, text in names.items() if text)
    usage = message.usage
    if usage.has_values():
        counts_by_name = {
            "cache_read_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "cache_write_1h": usage.cache_write_1h_tokens,
            "reasoning_tokens": usage.output_reasoning_tokens,
        }
        counts: JsonObject = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        # Those that were not reported are 0 there.
        counts.update((name, tokens) for name, tokens in counts_by_name.items() if tokens)
        cost: JsonObject = {} if usage.cost is None else {"cost": {"total": float(usage.cost)}}
        # Their fields of audio are those of our table; so are those that a provider adds to its details.
        counts |= billed_by(message.provider_details or {}, {name: getattr(usage, name, None) for name in _AUDIO})
        answer["usage"] = {**usage_json(read_reported({**counts, "details": {**usage.details}})), **cost}
    if message.finish_reason in _OUR_ENDS:
        answer["stopReason"] = _OUR_ENDS[message.finish_reason]
    return {**answer, **milliseconds(message.timestamp)}


def _from_compaction(part: Any) -> JsonObject:  # noqa: ANN401 - a part of the class
    """Return a provider's compaction in the provider's own fields. Notes of pydantic-ai for itself are left out."""
    details = part.provider_details or {}
    theirs = {name: value for name, value in details.items() if value is not None}
    fields = {name: value for name, value in theirs.items() if not name.startswith("pydantic_ai_")}
    content: JsonObject = {} if part.content is None else {"content": part.content}
    return {**({} if part.id is None else {"id": part.id}), **content, **fields, "type": COMPACTION_PART}


def _from_answered(part: Any, left: Leftovers) -> list[JsonValue]:  # noqa: ANN401 - a part of any answer
    details: Mapping[str, JsonValue] = getattr(part, "provider_details", None) or {}
    signature = details.get("thought_signature")
    if part.part_kind == "text":
        signed: JsonObject = {} if signature is None else {"textSignature": signature}
        return [{"type": "text", "text": part.content, **signed}]
    if part.part_kind == "thinking":
        return [_from_thought(part, signature)]
    if part.part_kind == "compaction" and part.provider_name:
        return [_from_compaction(part)]
    if part.part_kind == "tool-call":
        signed = {} if signature is None else {"thoughtSignature": signature}
        arguments = part.args
        if isinstance(arguments, str):
            arguments = _object_or_text(arguments)
        return [{"type": "toolCall", "id": part.tool_call_id, "name": part.tool_name, "arguments": arguments, **signed}]
    if part.part_kind == "file":
        return _pydantic_ai_media(part.content, left)
    left.note(f"a part {part.part_kind!r} of an answer")
    return []


def _from_thought(part: theirs.ThinkingPart, signature: JsonValue) -> JsonObject:
    if part.id == _REDACTED:
        return {"type": "thinking", "thinking": "", "thinkingSignature": part.signature, "redacted": True}
    signed: JsonValue = part.signature if signature is None else signature
    if part.provider_name == "openai" and part.id is not None:
        summary: list[JsonValue] = [{"type": "summary_text", "text": part.content}] if part.content else []
        item: JsonObject = {"type": "reasoning", "id": part.id, "summary": summary}
        signed = json.dumps({**item, **({"encrypted_content": part.signature} if part.signature else {})})
    return {"type": "thinking", "thinking": part.content, **({"thinkingSignature": signed} if signed else {})}


def _object_or_text(text: str) -> JsonValue:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


# Callbacks that apply context settings before each request
#
#     shorten = sent_to_pydantic_ai(ContextSettings(microcompact=Microcompacting()))
#     agent = Agent("openai:gpt-5", capabilities=[ProcessHistory(shorten)])
#
# A message that no step has changed is the very object that came in.

if TYPE_CHECKING:
    _Piece = tuple[theirs.ModelMessage, bool]


def sent_to_langchain(
    settings: ContextSettings | Mapping[str, object], *, agent: str | None = None, model: str | None = None
) -> Callable[[Sequence[BaseMessage]], list[BaseMessage]]:
    """Return a function that takes messages of LangChain, and returns those that the settings leave for an agent.

    For a hook that LangGraph calls before a model: ``lambda state: {"llm_input_messages": send(state["messages"])}``.
    Messages that a step has shortened have the ids and other fields that they had. Signed reasoning is left out if the
    answer was given to a request of this function with other messages before it. Tokens are counted as ``model`` does.
    Raises `InvalidArgument`, for settings with the path of each field that is wrong, and for a ``spec``, which reads a
    session. The function raises `MissingExtra`, `InvalidEntry`. O(size).
    """
    reshaping = _reshaping(settings, agent, model)

    def send(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        sent: list[BaseMessage] = []
        groups = [from_langchain([message]).messages for message in messages]
        for group, shortened in reshaping.run(groups):
            if shortened is None:
                assert group is not None  # an addition of a step has a message
                sent.append(messages[group])
                continue
            for message in shortened:
                if group is None:
                    sent.append(to_langchain([message]).messages[0])
                elif lost := _lost_reasoning(groups[group], message):
                    sent.append(_without(lost, messages[group]))
                else:
                    sent.append(_as_it_was(message, messages[group]))
        return sent

    return send


def _lost_reasoning(group: Sequence[JsonObject], shortened: JsonObject) -> list[JsonValue]:
    """Return the reasoning that an answer has lost, if it can go without anything else; else nothing."""
    [was] = group
    parts, left = was.get("content"), shortened.get("content")
    if not isinstance(parts, list) or not isinstance(left, list):
        return []
    lost = [part for part in parts if part not in left]
    is_whole = [part for part in parts if part not in lost] == left
    return lost if is_whole and all(map(_goes_alone, lost)) else []


def _goes_alone(part: JsonValue) -> bool:
    if not isinstance(part, dict) or part.get("type") != "thinking":
        return False
    # OpenAI looks for the item with the reasoning of other items that have the id it gave them.
    return not str(part.get("thinkingSignature")).startswith("{")


def _without(lost: Sequence[JsonValue], was: BaseMessage) -> BaseMessage:
    """Return an answer of LangChain without some reasoning. Fields that ours have no place for stay in it."""

    def is_lost(block: str | dict[str, Any]) -> bool:
        alone = was.model_copy(update={"content": [block], "tool_calls": []})
        parts = [part for message in from_langchain([alone]).messages for part in parts_of(message)]
        return bool(parts) and all(part in lost for part in parts)

    return was.model_copy(update={"content": [block for block in was.content if not is_lost(block)]})


def _as_it_was(message: JsonObject, was: BaseMessage) -> BaseMessage:
    """Return a message of LangChain with the content that a step has left."""
    if was.type == "tool":
        return was.model_copy(update={"content": text_of(message)})
    shortened = to_langchain([message]).messages[0]
    content = text_of(message) if isinstance(was.content, str) else shortened.content
    left: dict[str, Any] = {"content": content}
    if hasattr(was, "tool_calls"):
        left["tool_calls"] = getattr(shortened, "tool_calls", [])
        if not isinstance(content, str):
            # Without the version the blocks would be taken for those of the provider.
            left["response_metadata"] = {**was.response_metadata, "output_version": "v1"}
    return was.model_copy(update=left)


def sent_to_pydantic_ai(
    settings: ContextSettings | Mapping[str, object], *, agent: str | None = None, model: str | None = None
) -> Callable[[list[theirs.ModelMessage]], list[theirs.ModelMessage]]:
    """Return a history processor of pydantic-ai: it returns the messages that the settings leave for an agent.

    Parts and messages that a step has shortened have the ids and the other fields that they had. Otherwise as
    `sent_to_langchain`.
    """
    reshaping = _reshaping(settings, agent, model)

    def send(messages: list[theirs.ModelMessage]) -> list[theirs.ModelMessage]:
        pieces = [(number, piece) for number, message in enumerate(messages) for piece in _pieces(message)]
        left: dict[int, list[_Piece]] = {}
        sent: list[theirs.ModelMessage | int] = []
        groups = [from_pydantic_ai([piece]).messages for _, piece in pieces]
        for group, shortened in reshaping.run(groups):
            if group is None:
                sent += to_pydantic_ai(shortened or []).messages
                continue
            owner, piece = pieces[group]
            if owner not in left:
                sent.append(owner)
            shorter = None if shortened is None else _shortened(piece, groups[group], shortened)
            left.setdefault(owner, []).append((piece, False) if shorter is None else (shorter, True))
        return [_joined(messages[item], left[item]) if isinstance(item, int) else item for item in sent]

    # pydantic-ai looks there for its own context, and would have to find a module that is imported for types alone.
    send.__annotations__.clear()
    return send


def _pieces(message: theirs.ModelMessage) -> Iterator[theirs.ModelMessage]:
    """Yield a message in pieces that steps keep or leave out each: an answer whole, a request part by part."""
    if message.kind == "response" or not message.parts:
        yield message
        return
    for part in message.parts:
        yield replace(message, parts=[part], instructions=None)


def _shortened(
    piece: theirs.ModelMessage, group: Sequence[JsonObject], shortened: Sequence[JsonObject]
) -> theirs.ModelMessage:
    """Return a piece with the content that a step has left."""
    [message] = shortened
    if piece.kind == "response" and (lost := _lost_reasoning(group, message)):
        # Parts that ours have no place for stay in it.
        return replace(
            piece, parts=[part for part in piece.parts if _ours(piece, part) not in [[part_lost] for part_lost in lost]]
        )
    part: Any = piece.parts[0] if piece.kind == "request" else None
    parts: Any
    if part is not None and part.part_kind != "user-prompt":
        parts = [replace(part, content=text_of(message))]
    else:
        parts = to_pydantic_ai([message]).messages[0].parts
        if part is not None:
            parts = [replace(part_lost, timestamp=part.timestamp) for part_lost in parts]
    return replace(piece, parts=parts)


def _ours(answer: theirs.ModelResponse, part: theirs.ModelResponsePart) -> JsonValue:
    [message] = from_pydantic_ai([replace(answer, parts=[part])]).messages
    return message.get("content")


def _joined(message: theirs.ModelMessage, pieces: Sequence[_Piece]) -> theirs.ModelMessage:
    """Return a message of the pieces that are left: itself, if those are all."""
    if message.kind == "response" or not message.parts:
        return pieces[0][0]
    if len(pieces) == len(message.parts) and not any(is_changed for _, is_changed in pieces):
        return message
    parts: Any = [part for piece, _ in pieces for part in piece.parts]
    return replace(message, parts=parts)


def _reshaping(settings: ContextSettings | Mapping[str, object], agent: str | None, model: str | None) -> Reshaping:
    return Reshaping(settings, checked_text(agent, "agent"), checked_text(model, "model"))


# Plain objects of OpenAI, Anthropic and Gemini

# From ours


def to_openai(context: Context) -> ProviderList:
    """Return a context as messages of OpenAI's Chat Completions, every call of a tool answered right behind it.

    System messages are in the list. Reasoning is left out, unless it came from such a list; pictures of a tool follow
    in a message of the user. Raises `InvalidEntry` with the path of an item that is not a message of ours. O(size).
    """
    left = Leftovers()
    return ProviderList(lists.chat_list(said_of(context), left), None, left.notes())


def to_responses(context: Context, *, account: str | None = None) -> ProviderList:
    """Return a context as items of OpenAI's Responses, every call with an output.

    System messages are in the list. Reasoning goes out if OpenAI gave it. Fields that OpenAI's types ask for and our
    messages do not have are filled in: an answer's ``id`` (``msg_3``, by its place), ``status`` and ``annotations``, a
    picture's ``detail``; items that came from such a list stay as they came. Raises `InvalidEntry` with the path of an
    item that is not a message of ours. O(size).

    OpenAI's own compactions go out as they came, unless they were made for another ``account``.
    """
    left = Leftovers()
    items = lists.responses_list(said_of(context), left, is_complete=True, account=account)
    return ProviderList(items, None, left.notes())


def to_anthropic(context: Context, *, account: str | None = None) -> ProviderList:
    """Return a context as messages of Anthropic, users and answers taking turns; ``system`` is a string or blocks.

    The results of an answer's tools stand in one message, right behind it. Reasoning goes out if Anthropic signed it,
    and so do Anthropic's own compactions, unless they were made for another ``account``. Raises `InvalidEntry` with the
    path of an item that is not a message of ours. O(size).
    """
    left = Leftovers()
    system, messages = lists.anthropic_list(said_of(context), left, account=account)
    return ProviderList(messages, system, left.notes())


def to_gemini(context: Context) -> ProviderList:
    """Return a context as contents of Gemini, fields as in its JSON; ``system`` is a content without a role.

    The responses to a model's calls are one content, right behind them. Thoughts and signatures go out if Google gave
    them; another model's calls have the mark that the API takes in place of a signature. Raises `InvalidEntry` with the
    path of an item that is not a message of ours. O(size).
    """
    left = Leftovers()
    system, contents = lists.gemini_list(said_of(context), left)
    return ProviderList(contents, system, left.notes())


# Back


def from_openai(messages: Iterable[Mapping[str, object]]) -> OurMessages:
    """Return messages of OpenAI's Chat Completions as ours.

    Raises `InvalidEntry` with the path of a value that cannot be converted (``messages[1].tool_calls[0].id``). O(size).
    """
    return _lists_ours(_converted(messages, "openai-chat"))


def from_responses(items: Iterable[Mapping[str, object]]) -> OurMessages:
    """Return items of OpenAI's Responses as ours, a message for each.

    Raises `InvalidEntry` with the path of a value that cannot be converted. O(size).
    """
    return _lists_ours(_converted(items, "openai-responses"))


def from_anthropic(
    messages: Iterable[Mapping[str, object]], system: str | Iterable[Mapping[str, object]] | None = None
) -> OurMessages:
    """Return messages of Anthropic as ours; ``system``, a string or blocks, is a system message before them.

    A message with results of tools is one of ours for each of them, and one for the rest. Raises `InvalidEntry` with
    the path of a value that cannot be converted. O(size).
    """
    first: list[Converted] = []
    if system is not None:
        blocks = cast("str | Iterable[JsonObject]", system)
        content = blocks if isinstance(blocks, str) else [part_from_block(dict(block)) for block in blocks]
        first = _valid([Converted({"role": "system", "content": content}, {})], "system")
    return _lists_ours([*first, *_converted(messages, "anthropic")])


def from_gemini(
    contents: Iterable[Mapping[str, object]], system: str | Mapping[str, object] | None = None
) -> OurMessages:
    """Return contents of Gemini as ours; ``system``, a string or a content, is a system message before them.

    A content with responses of functions is one message for each of them, and one for the rest. Fields are read in the
    spelling of the JSON and in that of Python. Raises `InvalidEntry` with the path of a value that cannot be converted.
    O(size).
    """
    first: list[Converted] = []
    if system is not None:
        content = {"parts": [{"text": system}]} if isinstance(system, str) else system
        first = _valid(convert(cast("JsonObject", {**content, "role": "system"}), "gemini", {}, "system"), "system")
    return _lists_ours([*first, *_converted(contents, "gemini")])


def _converted(messages: Iterable[Mapping[str, object]], shape: Shape) -> list[Converted]:
    names: dict[str, str] = {}
    converted: list[Converted] = []
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        if not isinstance(message, Mapping):
            raise InvalidEntry(f"{where}: should be an object, not {shown(message)}")
        encode_json(message, where)
        value = cast("JsonObject", dict(message))
        message_shape = shape_of(value, where)
        if message_shape not in (None, shape):
            raise InvalidEntry(f"{where}: is of the form {message_shape}, not {shape}")
        converted += _valid(convert(value, shape, names, where), where)
    return converted


def _valid(converted: list[Converted], where: str) -> list[Converted]:
    for item in converted:
        validate_message(item.message, where)
    return converted


def _lists_ours(converted: list[Converted]) -> OurMessages:
    return OurMessages([item.message for item in converted], [item.beside for item in converted])
