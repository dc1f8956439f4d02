"""Contexts as messages of LangChain, and back.

For a context, not for keeping histories: what a graph stores comes back value for value from
`flue_py.adapters.langgraph`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from flue_py.adapters.messages.parts import held_in, text_of, usage_of
from flue_py.adapters.messages.values import Context, FrameworkList, OurMessages, said_of
from flue_py.core.faithful import SYSTEM
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.usage_shapes import billed_by, read_reported, usage_json
from flue_py.errors import InvalidEntry, MissingExtra, shown
from flue_py.wire.leftovers import Leftovers
from flue_py.wire.lists.said import answered, joined_answers, speakers_only
from flue_py.wire.openai_chat import image_from_url, parts_of

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

_MEDIA = ("image", "file", "audio", "video")


def to_langchain(context: Context) -> FrameworkList[BaseMessage]:
    """Return a context as messages of LangChain, every call of a tool answered right behind it.

    Content is text, or LangChain's standard blocks. Raises `MissingExtra`, and `InvalidEntry` with the path of what is
    not a message of ours. O(size).
    """
    kit, left = _kit(), Leftovers()
    said = answered(joined_answers(speakers_only(said_of(context), left, also=frozenset({"developer"}))), left)
    return FrameworkList([_made(each.message, kit, left) for each in said], left.notes())


def from_langchain(messages: Iterable[BaseMessage]) -> OurMessages:
    """Return messages of LangChain as ours.

    What has no place in a message of ours is in the notes. Raises `MissingExtra`, and `InvalidEntry` for what is not a
    message. O(size).
    """
    kit, left = _kit(), Leftovers()
    found: list[JsonObject] = []
    for number, message in enumerate(messages):
        if not isinstance(message, kit.BaseMessage):
            raise InvalidEntry(f"messages[{number}]: should be a message of LangChain, not {shown(message)}")
        if isinstance(message, kit.AIMessage):
            found.append(_from_answer(message, left))
        elif isinstance(message, kit.ToolMessage):
            found.append(_from_result(message, left))
        elif isinstance(message, (kit.HumanMessage, kit.SystemMessage)):
            role = "user" if isinstance(message, kit.HumanMessage) else "system"
            named: JsonObject = {} if message.name is None else {"name": message.name}
            found.append({"role": role, "content": _content(message, left), **named})
        else:
            left.note(f"a message of type {message.type!r}")
    return OurMessages(found, notes=left.notes())


def _kit() -> Any:  # noqa: ANN401 - the module, which need not be installed
    try:
        from langchain_core import messages  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtra("langgraph", "the conversion of messages of LangChain") from error
    return messages


# --- From ours ---------------------------------------------------------------------------------------------------


def _made(message: JsonObject, kit: Any, left: Leftovers) -> Any:  # noqa: ANN401 - a message of any class
    role = message.get("role")
    if role == "assistant":
        return _answer(message, kit, left)
    if role in SYSTEM:
        return kit.SystemMessage(text_of(message))
    content = message.get("content")
    said = (
        content if isinstance(content, str) else [block for part in parts_of(message) for block in _block(part, left)]
    )
    if role == "user":
        named = {"name": message["name"]} if isinstance(message.get("name"), str) else {}
        return kit.HumanMessage(said, **named)
    return kit.ToolMessage(
        said or "",
        tool_call_id=str(message.get("toolCallId")),
        name=message["toolName"] if isinstance(message.get("toolName"), str) else None,
        status="error" if message.get("isError") is True else "success",
    )


def _answer(message: JsonObject, kit: Any, left: Leftovers) -> Any:  # noqa: ANN401 - an AIMessage
    content = message.get("content")
    names = {"model_name": message.get("model"), "model_provider": message.get("provider")}
    told = {name: text for name, text in names.items() if isinstance(text, str)}
    blocks = [block for part in parts_of(message) for block in _answered(part, left)]
    return kit.AIMessage(
        content if isinstance(content, str) else blocks,
        tool_calls=[block for block in blocks if block["type"] == "tool_call"],
        invalid_tool_calls=[block for block in blocks if block["type"] == "invalid_tool_call"],
        usage_metadata=_their_usage(message),
        # Without the version the blocks would be taken for those of the provider.
        response_metadata=told if isinstance(content, str) else {**told, "output_version": "v1"},
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
        extras = {"extras": {names[name]: held for name, held in signed.items()}} if signed else {}
        return [{"type": "reasoning", "reasoning": part.get("thinking"), **extras}]
    if kind in ("image", "file"):
        data, media_type, url = held_in(part)
        named = {"extras": {"filename": part["filename"]}} if isinstance(part.get("filename"), str) else {}
        if isinstance(data, str):
            return [{"type": kind, "base64": data, "mime_type": media_type, **named}]
        if isinstance(url, str):
            told = {"mime_type": media_type} if isinstance(part.get("mimeType"), str) else {}
            return [{"type": kind, "url": url, **told, **named}]
    left.note(f"a part {kind!r}")
    return []


def _their_usage(message: JsonObject) -> dict[str, Any] | None:
    usage = usage_of(message)
    if usage is None:
        return None
    totals = usage.totals
    whole = totals.input + totals.cache_read + totals.cache_write
    known: dict[str, Any] = {
        "input_tokens": whole,
        "output_tokens": totals.output,
        "total_tokens": whole + totals.output,
    }
    kept = {"cache_read": ("cacheRead", totals.cache_read), "cache_creation": ("cacheWrite", totals.cache_write)}
    details = {name: tokens for name, (ours, tokens) in kept.items() if ours in usage.told}
    if details:
        known["input_token_details"] = details
    if "reasoning" in usage.told:
        known["output_token_details"] = {"reasoning": usage.reasoning}
    return known


# --- Back --------------------------------------------------------------------------------------------------------


def _from_answer(message: Any, left: Leftovers) -> JsonObject:  # noqa: ANN401 - an AIMessage
    content = _content(message, left)
    calls: list[JsonValue] = [
        {"type": "toolCall", "id": call["id"], "name": call["name"], "arguments": call["args"]}
        for call in (*message.tool_calls, *message.invalid_tool_calls)
    ]
    if calls:
        parts = parts_of({"content": content}) if content else []
        content = [*parts, *calls]
    made: JsonObject = {"role": "assistant", "content": content}
    told = message.response_metadata
    names = {"provider": told.get("model_provider"), "model": told.get("model_name") or told.get("model")}
    made.update((name, text) for name, text in names.items() if isinstance(text, str))
    if message.usage_metadata is not None:
        beside = billed_by(told, told.get("usage") or told.get("token_usage"))
        made["usage"] = {**beside, **usage_json(read_reported({**message.usage_metadata, **beside}))}
    return made


def _from_result(message: Any, left: Leftovers) -> JsonObject:  # noqa: ANN401 - a ToolMessage
    made: JsonObject = {"role": "toolResult", "toolCallId": message.tool_call_id}
    if message.name is not None:
        made["toolName"] = message.name
    if message.status == "error":
        made["isError"] = True
    return {**made, "content": _content(message, left)}


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
