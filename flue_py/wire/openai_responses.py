"""One item of the OpenAI Responses API, from and to our messages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.wire.codex_items import (
    TOOL_SEARCH_CALL,
    TOOL_SEARCH_OUTPUT,
    beside,
    item_of_call,
    item_of_reasoning,
    item_of_search,
    json_text,
)
from flue_py.wire.differences import difference
from flue_py.wire.leftovers import Leftovers
from flue_py.wire.openai_chat import CUSTOM, arguments_from_text, arguments_text, image_from_url, image_url, parts_of

EXTRA = "openaiResponses"
"""The field of ``extra`` that says how an item differed from what is printed."""

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


def message_from_item(item: JsonObject, names: Mapping[str, str]) -> JsonObject:
    """Return an item as one of our messages; ``names`` are the names of the calls so far, by id."""
    found = item.get("type", "message" if "role" in item else None)
    kind = found if isinstance(found, str) else ""
    if kind == "message":
        return _from_message(item)
    if kind in ("function_call_output", "custom_tool_call_output"):
        return _result(item, names, is_custom=kind == "custom_tool_call_output")
    if kind in _TOOL_OUTPUTS and isinstance(_answered(item), str) and item.get("execution") != "server":
        return _tool_result(item, names)
    if _FROM_USER.fullmatch(kind):
        return {"role": "user", "content": [item]}
    return _from_model([_part_of_answer(item, kind)])


def _part_of_answer(item: JsonObject, kind: str) -> JsonValue:
    if kind == "reasoning":
        return part_of_reasoning(item)
    if kind in ("function_call", "custom_tool_call"):
        return _call(item, is_custom=kind == "custom_tool_call")
    if kind in _TOOLS and isinstance(item.get("call_id"), str) and item.get("execution") != "server":
        return _tool_call(item, kind)
    return item


def _from_model(parts: Sequence[JsonValue]) -> JsonObject:
    return {"role": "assistant", "content": list(parts), "api": API, "provider": PROVIDER}


def _from_message(item: JsonObject) -> JsonObject:
    content = item.get("content")
    message: JsonObject = {"role": item.get("role"), "content": content}
    if isinstance(content, list):
        message["content"] = [_part(part) for part in content]
    if message["role"] == "assistant":
        message.update(api=API, provider=PROVIDER)
    return message


def _part(part: JsonValue) -> JsonValue:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict):
        return part
    if kind in _TEXTS:
        rest = {name: value for name, value in part.items() if name not in ("type", "text")}
        return {"type": "text", "text": part.get("text"), **rest}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        rest = {name: value for name, value in part.items() if name not in ("type", "image_url")}
        return {"type": "image", **image_from_url(str(part["image_url"])), **rest}
    if kind == "input_file":
        return _file(part)
    return part


def _file(part: JsonObject) -> JsonValue:
    url, data, named = part.get("file_url"), part.get("file_data"), _only(part, "filename")
    held = image_from_url(data) if isinstance(data, str) else {}
    if "data" in held and set(part) <= {"type", "file_data", "filename"}:
        return {"type": "file", **held, **named}
    if isinstance(url, str) and set(part) <= {"type", "file_url", "filename"}:
        return {"type": "file", "url": url, **named}
    return part


def part_of_reasoning(item: JsonObject) -> JsonObject:
    """Return reasoning: its summary to read, and, as the signature, the item that its provider takes back."""
    summary = item.get("summary")
    parts = [part for part in summary if isinstance(part, dict)] if isinstance(summary, list) else []
    texts = [text for part in parts if isinstance(text := part.get("text"), str)]
    try:
        signature = json_text(item)
    except (ValueError, RecursionError):
        signature = ""
    return {"type": "thinking", "thinking": "\n\n".join(texts), "thinkingSignature": signature}


def _call(item: JsonObject, *, is_custom: bool) -> JsonObject:
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
    named: JsonObject = {"toolName": names[call_id]} if call_id in names else {}
    return {
        "role": "toolResult",
        "toolCallId": call_id,
        **named,
        "content": output if isinstance(output, str) else content,
    }


def _result(item: JsonObject, names: Mapping[str, str], *, is_custom: bool) -> JsonObject:
    call_id, output = item.get("call_id"), item.get("output")
    message: JsonObject = {"role": "toolResult", "toolCallId": call_id}
    if isinstance(call_id, str) and call_id in names:
        message["toolName"] = names[call_id]
    if isinstance(output, list):
        message["content"] = [_part(part) for part in output]
    elif isinstance(output, str):
        message["content"] = output
    else:
        message["content"] = json.dumps(output, ensure_ascii=False)
    return {**message, CUSTOM: True} if is_custom else message


# --- Printing -----------------------------------------------------------------------------------------------


def printed_items(message: Mapping[str, JsonValue], left: Leftovers) -> list[JsonObject]:
    """Return the items that one of our messages is, in order. What the format has no place for is noted."""
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
    said: list[JsonValue] = []
    for part in parts_of(message):
        kind = part.get("type")
        if kind != "text" and _FROM_USER.fullmatch(str(kind)):
            items.append(part)
        else:
            said += _printed_part(part, left, "input_text")
    begun["content"] = said
    return [begun, *items] if said or not items else items


def _printed_answer(message: Mapping[str, JsonValue], left: Leftovers) -> list[JsonObject]:
    content = message.get("content")
    begun: JsonObject = {**beside(message), "type": "message", "role": "assistant", "content": content}
    if isinstance(message.get("phase"), str):
        begun["phase"] = message["phase"]
    if isinstance(content, str):
        return [begun]
    items: list[JsonObject] = []
    said: list[JsonValue] = []
    for part in parts_of(message):
        kind = part.get("type")
        if kind in ("text", "refusal"):
            if not said:
                said = []
                items.append({**begun, "content": said})
            said += _printed_part(part, left, "output_text")
            continue
        said = []
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
    item = _signed(part.get("thinkingSignature"))
    if item is None and message.get("api") == API:
        item = item_of_reasoning(part)
    if item is None:
        left.note("reasoning without its encrypted content, without which OpenAI does not take it back", part)
        return []
    return [item]


def _signed(signature: JsonValue) -> JsonObject | None:
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
    search, told = item_of_search(message), beside(message)
    if search is not None:
        return search
    kind = told.pop("type", "custom_tool_call_output" if message.get(CUSTOM) is True else "function_call_output")
    if kind not in ("function_call_output", "custom_tool_call_output"):
        left.change(f"an item {kind!r}, which the API is not sent, goes out as the output of a function")
        kind = "function_call_output"
    if message.get("isError"):
        left.note("the mark of a failed tool call")
    return {**told, "type": kind, "call_id": message.get("toolCallId"), "output": _printed_output(message, left)}


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
        return [{"type": "input_image", "image_url": url, **_only(part, "detail")}]
    if kind == "file" and (url := image_url(part)) is not None:
        where = "file_data" if url.startswith("data:") else "file_url"
        return [{"type": "input_file", where: url, **_only(part, "filename")}]
    if kind in ("input_file", "input_image", "input_audio", "encrypted_content"):
        return [dict(part)]
    if kind == "refusal" and text_type == "output_text":
        return [dict(part)]
    left.note(f"a part {kind!r}", part)
    return []


def _only(part: Mapping[str, JsonValue], name: str) -> JsonObject:
    return {name: part[name]} if name in part else {}


def responses_difference(message: JsonObject, original: JsonObject) -> JsonObject:
    """Return what stands beside a message, so that an export gives back the item that it was made from."""
    printed = printed_items(message, Leftovers())
    found = difference(printed[0] if len(printed) == 1 else {}, original)
    # Without a mark it would go out with what is filled in below, and not as it came.
    return {EXTRA: found} if found or (len(printed) == 1 and completed(printed[0], "") is not printed[0]) else {}


def without_its_reasoning(item: JsonObject, message_id: str) -> JsonObject:
    """Return an item of an answer as it is sent without the reasoning that led to it.

    The API looks for that by the id that it gave the item: a call goes out without one, a message, whose type asks for
    one, with ``message_id``. The same item where it has no id. O(fields).
    """
    if "id" not in item:
        return item
    if "call_id" in item:
        return {name: value for name, value in item.items() if name != "id"}
    return {**item, "id": message_id} if item.get("role") == "assistant" else item


def completed(item: JsonObject, item_id: str) -> JsonObject:
    """Return an item with what OpenAI's types ask for and our messages do not say; the same one if nothing is missing.

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
    told: JsonObject = {"id": item_id, "status": "completed"} if is_answer else {}
    return {**told, **item, field: whole}


def _filled_in(part: JsonObject) -> JsonObject:
    kind = part.get("type")
    if kind == "output_text":
        return {"annotations": [], **part}
    return {"detail": "auto", **part} if kind == "input_image" else part
