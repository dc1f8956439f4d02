"""Items of a Codex rollout, from and to our messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import pydantic_core

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.usage_shapes import read_reported, usage_json
from flue_py.wire.openai_chat import arguments_text

CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output", "mcp_tool_call_output"})
HOSTED = frozenset({"web_search_call", "tool_search_call", "image_generation_call"})
"""Calls that the provider answers itself: there is no output, or it is in the call."""
TOOL_SEARCH_CALL = "tool_search_call"
TOOL_SEARCH_OUTPUT = "tool_search_output"
KEPT_BY_COMPACTION = frozenset({"compaction", "compaction_summary", "context_compaction"})
"""What the provider itself made of the conversation before a compaction: encrypted, for it alone to read."""

ITEM = "item"
"""The field that says what item a call was (its type), or has those fields of an item that have no other place."""
ITEM_ID = "itemId"
"""The id of a call's item, where that is another than the id of the call."""

TOKEN_KINDS = (
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
    "total_tokens",
    "cache_write_input_tokens",
)


def is_call(item: JsonObject) -> bool:
    """Return whether an item calls a tool that Codex has to run: of searches for tools those that it runs itself."""
    if item.get("type") != TOOL_SEARCH_CALL:
        return item.get("type") in CALLS
    return item.get("execution") != "server" and isinstance(item.get("call_id") or item.get("id"), str)


def is_output(item: JsonObject) -> bool:
    """Return whether an item is what a tool that Codex ran has answered."""
    if item.get("type") != TOOL_SEARCH_OUTPUT:
        return item.get("type") in OUTPUTS
    return item.get("execution") != "server" and isinstance(item.get("call_id"), str)


def is_spoken(item: JsonObject) -> bool:
    """Return whether an item is a part of what the model, or its provider in its place, says."""
    kind = item.get("type")
    if kind == "message":
        return item.get("role") == "assistant"
    return (
        kind in CALLS or kind in HOSTED or kind == "reasoning" or (kind == TOOL_SEARCH_OUTPUT and not is_output(item))
    )


def said_message(item: JsonObject) -> JsonObject:
    """Return the message that an item of the user, the developer or the system is."""
    message: JsonObject = {"role": item.get("role"), "content": content_parts(item.get("content"))}
    return {**message, **message_fields(item)}


def message_fields(item: JsonObject) -> JsonObject:
    """Return what a message's item says beside who says what, as the fields of our message."""
    found: JsonObject = {"phase": item["phase"]} if isinstance(item.get("phase"), str) else {}
    rest = _rest(item, "type", "role", "content", *found)
    return {**found, ITEM: rest} if rest else found


def _rest(item: JsonObject, *known: str) -> JsonObject:
    return {name: value for name, value in item.items() if name not in known and value is not None}


def content_parts(content: JsonValue) -> list[JsonValue]:
    """Return the content of an item as parts."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return [] if content is None else [{"type": "json", "value": content}]
    return [_part(part) for part in content]


def _part(part: JsonValue) -> JsonValue:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict):
        return {"type": "json", "value": part}
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text", "summary_text", "reasoning_text"):
        if isinstance(part.get("text"), str):
            return {**part, "type": "text"}
    elif kind in ("input_image", "image"):
        return _image(part)
    elif isinstance(kind, str) and kind not in ("thinking", "toolCall", "file"):
        return part
    return {"type": "json", "value": part}


def _image(part: JsonObject) -> JsonValue:
    url = part.get("image_url")
    if isinstance(url, str) and url.startswith("data:") and ";base64," in url:
        head, _, data = url.partition(";base64,")
        rest = {name: value for name, value in part.items() if name not in ("type", "image_url", "data", "mimeType")}
        return {"type": "image", "data": data, "mimeType": head.removeprefix("data:"), **rest}
    if isinstance(url, str) and "data" not in part and "url" not in part:
        return {"type": "image", "url": url, **_rest(part, "type", "image_url")}
    known = all(isinstance(part.get(name), (str, type(None))) for name in ("data", "mimeType"))
    return {**part, "type": "image"} if known else {"type": "json", "value": part}


def spoken_parts(item: JsonObject) -> list[JsonValue]:
    """Return the parts that an item of the model adds to its message."""
    kind = item.get("type")
    if kind == "message":
        return content_parts(item.get("content"))
    if kind == "reasoning":
        return [_thinking(item)]
    if is_call(item):
        return [_call(item)]
    return [item if isinstance(kind, str) else {"type": "json", "value": item}]


_NAMES = {"local_shell_call": "local_shell", TOOL_SEARCH_CALL: "tool_search"}


def _thinking(item: JsonObject) -> JsonValue:
    texts = [text for source in (item.get("summary"), item.get("content")) for text in _texts(source)]
    part: JsonObject = {"type": "thinking", "thinking": "\n\n".join(texts)}
    if isinstance(item.get("encrypted_content"), str):
        part["thinkingSignature"] = item["encrypted_content"]
    if isinstance(item.get("id"), str):
        part["id"] = item["id"]
    beside = _rest(item, "type", "id", "summary", "content", "encrypted_content")
    if len(texts) > 1 or item.get("content"):
        beside |= _rest({name: item.get(name) for name in ("summary", "content")})
    if beside:
        part[ITEM] = beside
    return part


def _texts(source: JsonValue) -> list[str]:
    found = []
    for part in source if isinstance(source, list) else ():
        text = part.get("text") if isinstance(part, dict) else None
        if isinstance(text, str):
            found.append(text)
    return found


def _call(item: JsonObject) -> JsonValue:
    call_id, name = item.get("call_id") or item.get("id"), item.get("name")
    if not isinstance(name, str):
        name = _NAMES.get(str(item.get("type")))
    if not isinstance(call_id, str) or not isinstance(name, str):
        return {"type": "json", "value": item}
    arguments = item.get("arguments", item.get("input", item.get("action")))
    if item.get("type") == "function_call" and isinstance(arguments, str):
        arguments = _decoded(arguments)
    rest = _rest(item, "type", "call_id", "id", "name", "arguments", "input", "action")
    if isinstance(item.get("call_id"), str) and isinstance(item.get("id"), str):
        rest[ITEM_ID] = item["id"]
    return {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments, **rest, ITEM: item["type"]}


def _decoded(text: str) -> JsonValue:
    """Return arguments as an object, or as the given text if they are not a JSON object."""
    try:
        value: JsonValue = pydantic_core.from_json(text, allow_inf_nan=False)
    except (ValueError, TypeError):
        return text
    return value if isinstance(value, dict) else text


def output_message(item: JsonObject, tool: str | None) -> JsonObject:
    """Return what a tool answered as a message of its own. ``output`` has been text, parts, and an object."""
    made: JsonObject = {"role": "toolResult"}
    call_id = item.get("call_id")
    if isinstance(call_id, str):
        made["toolCallId"] = call_id
    if tool is not None:
        made["toolName"] = tool
    output = item.get("output", item.get("result", item.get("tools")))
    beside = _rest(item, "type", "call_id", "output", "result", "tools")
    if beside or item.get("type") != "function_call_output":
        made[ITEM] = {"type": item.get("type"), **beside}
    if isinstance(output, dict) and isinstance(output.get("content"), (str, list)):
        made["content"] = content_parts(output["content"])
        if isinstance(output.get("success"), bool):
            made["isError"] = not output["success"]
        rest = {name: value for name, value in output.items() if name not in ("content", "success")}
        if rest:
            made["details"] = rest
    else:
        made["content"] = content_parts(output)
    return made


def call_ids(items: Sequence[JsonObject]) -> list[tuple[str, str]]:
    """Return id and name of the tools that items call."""
    found = []
    for item in items:
        if is_call(item):
            call = _call(item)
            if isinstance(call, dict) and call.get("type") == "toolCall":
                found.append((str(call["id"]), str(call["name"])))
    return found


# --- Printing --------------------------------------------------------------------------------------------------


_CALL_FIELDS = frozenset({"type", "id", "name", "arguments", ITEM, ITEM_ID})
_CALL_KINDS = CALLS | {TOOL_SEARCH_CALL}


def item_of_call(part: Mapping[str, JsonValue]) -> JsonObject | None:
    """Return the item that a call was in a rollout, fields and all; None for a call that came from none."""
    kind = part.get(ITEM)
    if not isinstance(kind, str) or kind not in _CALL_KINDS:
        return None
    item: JsonObject = {"type": kind}
    if ITEM_ID in part:
        item["id"] = part[ITEM_ID]
    item["call_id"] = part.get("id")
    arguments = part.get("arguments")
    if kind == "function_call":
        item.update(name=part.get("name"), arguments=arguments_text(arguments))
    elif kind == "custom_tool_call":
        item.update(name=part.get("name"), input=arguments_text(arguments))
    else:
        item["action" if kind == "local_shell_call" else "arguments"] = arguments
    return {**{name: value for name, value in part.items() if name not in _CALL_FIELDS}, **item}


def item_of_reasoning(part: Mapping[str, JsonValue]) -> JsonObject | None:
    """Return the item that reasoning was in a rollout; None if it has no encrypted content to be taken back by."""
    encrypted = part.get("thinkingSignature")
    if not isinstance(encrypted, str) or not encrypted:
        return None
    text = part.get("thinking")
    summary: list[JsonValue] = [{"type": "summary_text", "text": text}] if isinstance(text, str) and text else []
    item: JsonObject = {"summary": summary, **beside(part), "type": "reasoning", "encrypted_content": encrypted}
    return {**item, "id": part["id"]} if isinstance(part.get("id"), str) else item


def item_of_search(message: Mapping[str, JsonValue]) -> JsonObject | None:
    """Return the tools that a search for tools found, as the item that they came in; None for any other result."""
    told = beside(message)
    if told.get("type") != TOOL_SEARCH_OUTPUT:
        return None
    content = message.get("content")
    tools = [_unwrapped(part) for part in content] if isinstance(content, list) else []
    return {**told, "call_id": message.get("toolCallId"), "tools": tools}


def beside(holder: Mapping[str, JsonValue]) -> JsonObject:
    """Return the fields of an item that a message, or a part of one, has no place for."""
    told = holder.get(ITEM)
    return dict(told) if isinstance(told, dict) else {}


def _unwrapped(part: JsonValue) -> JsonValue:
    is_wrapped = isinstance(part, dict) and part.get("type") == "json" and set(part) == {"type", "value"}
    return part["value"] if is_wrapped and isinstance(part, dict) else part


def json_text(value: JsonValue) -> str:
    """Return a value as JSON text: what stands for an output that is neither text nor parts."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# --- Tokens ----------------------------------------------------------------------------------------------------


Counts: TypeAlias = "tuple[int | None, ...]"
"""Numbers of tokens in the order of `TOKEN_KINDS`; None is one that was not reported."""


def total_usage(payload: JsonObject, name: str = "total_token_usage") -> Counts | None:
    """Return the counts that a token_count event reports; None if it has none."""
    info = payload.get("info")
    return token_counts(info.get(name) if isinstance(info, dict) else None)


def token_counts(usage: JsonValue) -> Counts | None:
    """Return numbers of tokens by the names that Codex has for them; None where they are none."""
    if not isinstance(usage, dict):
        return None
    counts: list[int | None] = []
    for kind in TOKEN_KINDS:
        count = usage.get(kind)
        if count is not None and not (type(count) is int and 0 <= count < 2**60):
            return None
        counts.append(count)
    return tuple(counts)


def counted_tokens(counts: Counts) -> int:
    """Return all tokens that were counted."""
    return read_reported(counted_usage(counts)).totals.total_tokens


def counted_usage(counts: Counts) -> JsonObject:
    """Return counted tokens in the engine's shape: the input does not include the cache there."""
    return usage_json(read_reported(dict(zip(TOKEN_KINDS, counts, strict=True))))
