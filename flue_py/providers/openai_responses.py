"""Items of a Codex rollout, from and to our messages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from flue_py.core.json import JsonObject, JsonValue, without
from flue_py.core.usage import ReportedUsage, read_reported, usage_json
from flue_py.errors import InvalidEntry, shown
from flue_py.lazy import lazy_module
from flue_py.providers import base
from flue_py.providers.base import Leftovers, result_message
from flue_py.providers.openai_chat import (
    CUSTOM,
    arguments_from_text,
    arguments_text,
    image_from_url,
    image_url,
    parts_of,
)

if TYPE_CHECKING:
    import pydantic_core
else:
    # A count of tokens imports this module and calls none of it.
    pydantic_core = lazy_module("pydantic_core")


# Items of a Codex rollout, from and to our messages.

CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output", "mcp_tool_call_output"})
HOSTED = frozenset({"web_search_call", "tool_search_call", "image_generation_call"})
"""Calls that the provider answers itself: there is no output, or it is in the call."""
TOOL_SEARCH_CALL = "tool_search_call"
TOOL_SEARCH_OUTPUT = "tool_search_output"
KEPT_BY_COMPACTION = frozenset({"compaction", "compaction_summary", "context_compaction"})
"""The provider's own forms of the conversation before a compaction: encrypted, for it alone to read."""

ITEM = "item"
"""The field with the type of the item that a call was, or with those fields of an item that have no other place."""
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
    if (kind := item.get("type")) != TOOL_SEARCH_CALL:
        return isinstance(kind, str) and kind in CALLS
    return item.get("execution") != "server" and isinstance(item.get("call_id") or item.get("id"), str)


def is_output(item: JsonObject) -> bool:
    """Return whether an item is the answer of a tool that Codex ran."""
    if (kind := item.get("type")) != TOOL_SEARCH_OUTPUT:
        return isinstance(kind, str) and kind in OUTPUTS
    return item.get("execution") != "server" and isinstance(item.get("call_id"), str)


def is_spoken(item: JsonObject) -> bool:
    """Return whether an item is a part of the words of the model, or of its provider in its place."""
    kind = item.get("type")
    if not isinstance(kind, str):
        return False
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
    """Return the fields of a message's item beside its role and content, as the fields of our message."""
    fields: JsonObject = {"phase": item["phase"]} if isinstance(item.get("phase"), str) else {}
    rest = _rest(item, "type", "role", "content", *fields)
    return {**fields, ITEM: rest} if rest else fields


def _rest(item: JsonObject, *names: str) -> JsonObject:
    return {name: value for name, value in item.items() if name not in names and value is not None}


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
        rest = without(part, "type", "image_url", "data", "mimeType")
        return {"type": "image", "data": data, "mimeType": head.removeprefix("data:"), **rest}
    if isinstance(url, str) and "data" not in part and "url" not in part:
        return {"type": "image", "url": url, **_rest(part, "type", "image_url")}
    is_readable = all(isinstance(part.get(name), (str, type(None))) for name in ("data", "mimeType"))
    return {**part, "type": "image"} if is_readable else {"type": "json", "value": part}


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
    fields = _rest(item, "type", "id", "summary", "content", "encrypted_content")
    if len(texts) > 1 or item.get("content"):
        fields |= _rest({name: item.get(name) for name in ("summary", "content")})
    if fields:
        part[ITEM] = fields
    return part


def _texts(source: JsonValue) -> list[str]:
    return [text for _, part in base.objects_in(source) if isinstance(text := part.get("text"), str)]


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
    """Return the answer of a tool as a message of its own. ``output`` has been text, parts, and an object."""
    message: JsonObject = {"role": "toolResult"}
    call_id = item.get("call_id")
    if isinstance(call_id, str):
        message["toolCallId"] = call_id
    if tool is not None:
        message["toolName"] = tool
    output = item.get("output", item.get("result", item.get("tools")))
    fields = _rest(item, "type", "call_id", "output", "result", "tools")
    if fields or item.get("type") != "function_call_output":
        message[ITEM] = {"type": item.get("type"), **fields}
    if isinstance(output, dict) and isinstance(output.get("content"), (str, list)):
        message["content"] = content_parts(output["content"])
        if isinstance(output.get("success"), bool):
            message["isError"] = not output["success"]
        if rest := without(output, "content", "success"):
            message["details"] = rest
    else:
        message["content"] = content_parts(output)
    return message


def call_ids(items: Sequence[JsonObject]) -> list[tuple[str, str]]:
    """Return id and name of the tools that items call."""
    ids = []
    for item in items:
        if is_call(item):
            call = _call(item)
            if isinstance(call, dict) and call.get("type") == "toolCall":
                ids.append((str(call["id"]), str(call["name"])))
    return ids


# Printing


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
    return {**without(part, *_CALL_FIELDS), **item}


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
    fields = beside(message)
    if fields.get("type") != TOOL_SEARCH_OUTPUT:
        return None
    tools = [_unwrapped(part) for part in base.listed(message.get("content"))]
    return {**fields, "call_id": message.get("toolCallId"), "tools": tools}


def beside(holder: Mapping[str, JsonValue]) -> JsonObject:
    """Return the fields of an item that a message, or a part of one, has no place for."""
    return dict(base.fields_of(holder.get(ITEM)))


def _unwrapped(part: JsonValue) -> JsonValue:
    is_wrapped = isinstance(part, dict) and part.get("type") == "json" and set(part) == {"type", "value"}
    return part["value"] if is_wrapped and isinstance(part, dict) else part


def json_text(value: JsonValue) -> str:
    """Return a value as JSON text: the form of an output that is neither text nor parts."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# Tokens


Counts: TypeAlias = "tuple[int | None, ...]"
"""Numbers of tokens in the order of `TOKEN_KINDS`; None is one that was not reported."""


def total_usage(payload: JsonObject, name: str = "total_token_usage") -> Counts | None:
    """Return the counts that a token_count event reports; None if it has none."""
    return token_counts(base.fields_of(payload.get("info")).get(name))


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


@lru_cache(maxsize=64)
def _reported(counts: Counts) -> ReportedUsage:
    return read_reported(dict(zip(TOKEN_KINDS, counts, strict=True)))


@lru_cache(maxsize=64)
def counted_report(counts: Counts) -> ReportedUsage:
    """Return the report of a call by the usage that `counted_usage` makes of counted tokens."""
    return read_reported(counted_usage(counts))


def counted_usage(counts: Counts) -> JsonObject:
    """Return counted tokens in the engine's shape: the input does not include the cache there."""
    return usage_json(_reported(counts))


# One item of the OpenAI Responses API, from and to our messages.

EXTRA = "openaiResponses"
"""The field of ``extra`` that says how an item differed from the one that is printed."""

PROVIDER = "openai"
_OPENAI = frozenset({PROVIDER, "openai-codex"})
API = "openai-responses"

_FROM_USER = re.compile(r".*(_output|_response)|item_reference")
_TOOLS = {
    "local_shell_call": "action",
    "shell_call": "action",
    "computer_call": "action",
    "apply_patch_call": "operation",
    TOOL_SEARCH_CALL: "arguments",
}
"""Calls of tools that the API defines and the program runs, each with the field that has its arguments."""
_TOOL_OUTPUTS = frozenset({*(f"{kind}_output" for kind in _TOOLS), TOOL_SEARCH_OUTPUT} - {f"{TOOL_SEARCH_CALL}_output"})
_TEXTS = ("input_text", "output_text", "text")


_ITEMS = re.compile(r"message|reasoning|.*_(call|output|response|request|list_tools)|item_reference|compaction")


def check_item(value: JsonObject, where: str) -> None:
    """Check that an item can be read. Raises `InvalidEntry` with the path of the fault. O(parts)."""
    kind = value.get("type", "message")
    if not _ITEMS.fullmatch(str(kind)):
        raise InvalidEntry(f"{where}.type: {shown(kind)} is not a type of a Responses item")
    if kind == "message":
        base.need_text(value, "role", where)
        base.need_content(value, where)
    elif kind in ("function_call", "custom_tool_call"):
        base.need_text(value, "call_id", where)
        base.need_text(value, "name", where)
        base.need_text(value, "arguments" if kind == "function_call" else "input", where)
    elif kind in ("function_call_output", "custom_tool_call_output"):
        base.need_text(value, "call_id", where)
        base.need_content(value, where, "output")
    for part, path in (
        *base.parts_with_paths(value.get("content"), where),
        *base.parts_with_paths(value.get("output"), where, "output"),
    ):
        if part.get("type") in ("input_text", "output_text"):
            base.need_text(part, "text", path)


def message_from_item(item: JsonObject, names: Mapping[str, str]) -> JsonObject:
    """Return an item as one of our messages; ``names`` are the names of the calls so far, by id."""
    item_type = item.get("type", "message" if "role" in item else None)
    kind = item_type if isinstance(item_type, str) else ""
    if kind == "message":
        return _from_message(item)
    if kind in ("function_call_output", "custom_tool_call_output"):
        return _result(item, names, is_custom=kind == "custom_tool_call_output")
    if kind in _TOOL_OUTPUTS and isinstance(_answered(item), str) and item.get("execution") != "server":
        return _tool_result(item, names)
    if _FROM_USER.fullmatch(kind):
        return {"role": "user", "content": [item]}
    return {"role": "assistant", "content": [_part_of_answer(item, kind)], "api": API, "provider": PROVIDER}


def _part_of_answer(item: JsonObject, kind: str) -> JsonValue:
    if kind == "reasoning":
        return part_of_reasoning(item)
    if kind in ("function_call", "custom_tool_call"):
        return _openai_responses_call(item, is_custom=kind == "custom_tool_call")
    if kind in _TOOLS and isinstance(item.get("call_id"), str) and item.get("execution") != "server":
        return _tool_call(item, kind)
    return item


def _from_message(item: JsonObject) -> JsonObject:
    content = item.get("content")
    message: JsonObject = {"role": item.get("role"), "content": content}
    if isinstance(content, list):
        message["content"] = [_openai_responses_part(part) for part in content]
    if message["role"] == "assistant":
        message.update(api=API, provider=PROVIDER)
    return message


def _openai_responses_part(part: JsonValue) -> JsonValue:
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    if kind in _TEXTS:
        return {"type": "text", "text": part.get("text"), **without(part, "type", "text")}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        return {"type": "image", **image_from_url(str(part["image_url"])), **without(part, "type", "image_url")}
    if kind == "input_file":
        return _file(part)
    return part


def _file(part: JsonObject) -> JsonValue:
    url, data, named = part.get("file_url"), part.get("file_data"), base.only(part, "filename")
    inline = image_from_url(data) if isinstance(data, str) else {}
    if "data" in inline and set(part) <= {"type", "file_data", "filename"}:
        return {"type": "file", **inline, **named}
    if isinstance(url, str) and set(part) <= {"type", "file_url", "filename"}:
        return {"type": "file", "url": url, **named}
    return part


def part_of_reasoning(item: JsonObject) -> JsonObject:
    """Return reasoning: its summary to read, and, as the signature, the item that its provider takes back."""
    texts = _texts(item.get("summary"))
    try:
        signature = json_text(item)
    except (ValueError, RecursionError):
        signature = ""
    return {"type": "thinking", "thinking": "\n\n".join(texts), "thinkingSignature": signature}


def _openai_responses_call(item: JsonObject, *, is_custom: bool) -> JsonObject:
    part: JsonObject = {"type": "toolCall", "id": item.get("call_id"), "name": item.get("name")}
    if is_custom:
        return {**part, "arguments": item.get("input"), CUSTOM: True}
    return {**part, "arguments": arguments_from_text(item.get("arguments"))}


def _tool_call(item: JsonObject, kind: str) -> JsonObject:
    arguments = item.get(_TOOLS[kind])
    return {"type": "toolCall", "id": item["call_id"], "name": kind.removesuffix("_call"), "arguments": arguments}


def _answered(item: JsonObject) -> JsonValue:
    """Return the id of the call that an output answers; that of a local shell has it as its own."""
    return item.get("id" if item.get("type") == "local_shell_call_output" and "call_id" not in item else "call_id")


def _tool_result(item: JsonObject, names: Mapping[str, str]) -> JsonObject:
    output = item.get("tools" if item.get("type") == TOOL_SEARCH_OUTPUT else "output")
    url = output.get("image_url") if isinstance(output, dict) else None
    content: JsonValue = [{"type": "image", **image_from_url(url)}] if isinstance(url, str) else json_text(output)
    call_id = str(_answered(item))
    return result_message(call_id, output if isinstance(output, str) else content, names.get(call_id))


def _result(item: JsonObject, names: Mapping[str, str], *, is_custom: bool) -> JsonObject:
    call_id, output = item.get("call_id"), item.get("output")
    message: JsonObject = {"role": "toolResult", "toolCallId": call_id}
    if isinstance(call_id, str) and call_id in names:
        message["toolName"] = names[call_id]
    if isinstance(output, list):
        message["content"] = [_openai_responses_part(part) for part in output]
    elif isinstance(output, str):
        message["content"] = output
    else:
        message["content"] = json.dumps(output, ensure_ascii=False)
    return {**message, CUSTOM: True} if is_custom else message


# Printing


def printed_items(message: Mapping[str, JsonValue], left: Leftovers) -> list[JsonObject]:
    """Return the items that one of our messages is, in order. A part without a place in the format is noted."""
    role = message.get("role")
    if role == "assistant":
        return _printed_answer(message, left)
    if role == "toolResult":
        return [_printed_result(message, left)]
    content = message.get("content")
    begun: JsonObject = {**beside(message), "type": "message", "role": role, "content": content}
    if isinstance(content, str):
        return [begun]
    items: list[JsonObject] = []
    parts: list[JsonValue] = []
    for part in parts_of(message):
        kind = part.get("type")
        if kind != "text" and _FROM_USER.fullmatch(str(kind)):
            items.append(part)
        else:
            parts += _printed_part(part, left, "input_text")
    begun["content"] = parts
    return [begun, *items] if parts or not items else items


def _printed_answer(message: Mapping[str, JsonValue], left: Leftovers) -> list[JsonObject]:
    content = message.get("content")
    begun: JsonObject = {**beside(message), "type": "message", "role": "assistant", "content": content}
    if isinstance(message.get("phase"), str):
        begun["phase"] = message["phase"]
    if isinstance(content, str):
        return [begun]
    items: list[JsonObject] = []
    parts: list[JsonValue] = []
    for part in parts_of(message):
        kind = part.get("type")
        if kind in ("text", "refusal"):
            if not parts:
                parts = []
                items.append({**begun, "content": parts})
            parts += _printed_part(part, left, "output_text")
            continue
        parts = []
        if kind == "toolCall":
            items.append(item_of_call(part) or _printed_call(part))
        elif kind == "thinking":
            items += _printed_reasoning(part, message, left)
        elif kind not in ("image", "json") and isinstance(kind, str) and _is_of_openai(message):
            items.append(part)
        elif isinstance(kind, str) and kind.endswith("_call"):
            left.note(f"an item {kind!r} of a provider other than OpenAI", part)
        else:
            left.note(f"a part {kind!r} of an answer", part)
    if not items and content == []:
        items = [begun]
    return items


def _printed_reasoning(
    part: Mapping[str, JsonValue], message: Mapping[str, JsonValue], left: Leftovers
) -> list[JsonObject]:
    """Return reasoning as its item: pi and lists of items have it whole as the signature, Codex the encrypted text."""
    if not _is_of_openai(message):
        left.note("reasoning that OpenAI did not sign", part)
        return []
    item = reasoning_item(part.get("thinkingSignature"))
    if item is None and message.get("api") == API:
        item = item_of_reasoning(part)
    if item is None:
        left.note("reasoning without its encrypted content, without which OpenAI does not take it back", part)
        return []
    return [item]


def reasoning_item(signature: JsonValue) -> JsonObject | None:
    """Return the item of reasoning that a signature is; None for a signature of another kind."""
    try:
        item = json.loads(signature) if isinstance(signature, str) else None
    except (ValueError, RecursionError):
        return None
    return item if isinstance(item, dict) and item.get("type") == "reasoning" else None


def _is_of_openai(message: Mapping[str, JsonValue]) -> bool:
    return message.get("provider") in _OPENAI


def _printed_call(part: Mapping[str, JsonValue]) -> JsonObject:
    named: JsonObject = {"call_id": part.get("id"), "name": part.get("name")}
    if part.get(CUSTOM) is True:
        return {"type": "custom_tool_call", **named, "input": arguments_text(part.get("arguments"))}
    return {"type": "function_call", **named, "arguments": arguments_text(part.get("arguments"))}


def _printed_result(message: Mapping[str, JsonValue], left: Leftovers) -> JsonObject:
    search, fields = item_of_search(message), beside(message)
    if search is not None:
        return search
    kind = fields.pop("type", "custom_tool_call_output" if message.get(CUSTOM) is True else "function_call_output")
    if kind not in ("function_call_output", "custom_tool_call_output"):
        left.change(f"an item {kind!r}, which the API is not sent, goes out as the output of a function")
        kind = "function_call_output"
    if message.get("isError"):
        left.note("the mark of a failed tool call")
    return {**fields, "type": kind, "call_id": message.get("toolCallId"), "output": _printed_output(message, left)}


def _printed_output(message: Mapping[str, JsonValue], left: Leftovers) -> JsonValue:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = parts_of(message)
    if len(parts) == 1 and parts[0].get("type") == "text" and set(parts[0]) == {"type", "text"}:
        return parts[0]["text"]
    if len(parts) == 1 and parts[0].get("type") == "json":
        left.change("an output that is neither text nor parts goes out as its JSON text")
        return json_text(parts[0].get("value"))
    return [printed for part in parts for printed in _printed_part(part, left, "input_text")] or ""


def _printed_part(part: Mapping[str, JsonValue], left: Leftovers, text_type: str) -> list[JsonValue]:
    kind = part.get("type")
    if kind == "text":
        return [{"type": text_type, "text": part.get("text")}]
    if kind == "image" and (url := image_url(part)) is not None:
        return [{"type": "input_image", "image_url": url, **base.only(part, "detail")}]
    if kind == "file" and (url := image_url(part)) is not None:
        where = "file_data" if url.startswith("data:") else "file_url"
        return [{"type": "input_file", where: url, **base.only(part, "filename")}]
    if kind in ("input_file", "input_image", "input_audio", "encrypted_content"):
        return [dict(part)]
    if kind == "refusal" and text_type == "output_text":
        return [dict(part)]
    left.note(f"a part {kind!r}", part)
    return []


def responses_difference(message: JsonObject, original: JsonObject) -> JsonObject:
    """Return the fields beside a message, so that an export gives back the item that it was made from."""
    printed = printed_items(message, Leftovers())
    change = base.difference(printed[0] if len(printed) == 1 else {}, original)
    # Without a mark it would go out with the fields that are filled in below, and not as it came.
    return {EXTRA: change} if change or (len(printed) == 1 and completed(printed[0], "") is not printed[0]) else {}


def without_its_reasoning(item: JsonObject, message_id: str) -> JsonObject:
    """Return an item of an answer as it is sent without the reasoning that led to it.

    The API looks for that by the id that it gave the item: a call goes out without one, a message, whose type asks for
    one, with ``message_id``. The same item where it has no id. O(fields).
    """
    if "id" not in item:
        return item
    if "call_id" in item:
        return without(item, "id")
    return {**item, "id": message_id} if item.get("role") == "assistant" else item


def completed(item: JsonObject, item_id: str) -> JsonObject:
    """Return an item with the fields that OpenAI's types ask for and our messages lack; the same one if none is
    missing.

    An answer has an id, a status and annotations; a picture has its detail.
    """
    field = "output" if "output" in item else "content"
    content = item.get(field)
    if not isinstance(content, list):
        return item
    whole: list[JsonValue] = [_filled_in(part) for part in content if isinstance(part, dict)]
    is_answer = item.get("role") == "assistant" and not ("id" in item and "status" in item)
    if not is_answer and whole == content:
        return item
    fields: JsonObject = {"id": item_id, "status": "completed"} if is_answer else {}
    return {**fields, **item, field: whole}


def _filled_in(part: JsonObject) -> JsonObject:
    kind = part.get("type")
    if kind == "output_text":
        return {"annotations": [], **part}
    return {"detail": "auto", **part} if kind == "input_image" else part
