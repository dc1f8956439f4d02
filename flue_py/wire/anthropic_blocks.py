"""One content block of an Anthropic message, from and to one of our parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from flue_py.core.ids import made_id
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.wire.leftovers import Leftovers
from flue_py.wire.openai_chat import parts_of

EXTRA = "anthropic"
"""The field of ``extra`` that says how a message differed from what is printed."""

CACHE_MARK = "cache_control"
MAX_CACHE_MARKS = 4
"""How many marks for the cache the API takes in a request."""

MAX_ID = 64

_HOLDING_BLOCKS = ("system", "messages", "content")
_BAD_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_DATA_URL = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)
_PASSED = frozenset({
    "document", "search_result", "server_tool_use", "web_search_tool_result", "web_fetch_tool_result",
    "code_execution_tool_result", "bash_code_execution_tool_result", "text_editor_code_execution_tool_result",
    "tool_search_tool_result", "mcp_tool_use", "mcp_tool_result", "container_upload", "tool_reference", "compaction",
})  # fmt: skip


BLANK = "a text without characters other than white space, which the API refuses"


def is_blank(text: JsonValue) -> bool:
    """Return whether the API takes a text for none: it is empty, or white space only."""
    return not text or (isinstance(text, str) and not text.strip())


def without_blanks(content: JsonValue, left: Leftovers) -> JsonValue:
    """Return content without texts that the API refuses: no blocks at all where it was one such text."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if is_blank(content) else content
    if not isinstance(content, list):
        return content
    kept = [block for block in content if not _is_blank_text(block)]
    for _ in range(len(content) - len(kept)):
        left.note(BLANK)
    return kept


def _is_blank_text(block: JsonValue) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and is_blank(block.get("text"))


def latest_cache_marks(value: JsonValue, left: Leftovers) -> JsonValue:
    """Return messages or blocks with as many marks for the cache as the API takes: the last ones. O(size)."""
    return _without_first_marks(value, [max(0, _count_marks(value) - MAX_CACHE_MARKS)], left)


def _count_marks(value: JsonValue) -> int:
    if isinstance(value, list):
        return sum(map(_count_marks, value))
    if not isinstance(value, dict):
        return 0
    return (CACHE_MARK in value) + sum(_count_marks(value.get(name)) for name in _HOLDING_BLOCKS)


def _without_first_marks(value: JsonValue, spare: list[int], left: Leftovers) -> JsonValue:
    """Return a copy of what may hold marks, without the first ``spare[0]`` of them, which are counted down."""
    if spare[0] == 0:
        return value
    if isinstance(value, list):
        return [_without_first_marks(item, spare, left) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {
        name: _without_first_marks(item, spare, left) if name in _HOLDING_BLOCKS else item
        for name, item in value.items()
    }
    if CACHE_MARK in kept and spare[0] > 0:
        spare[0] -= 1
        del kept[CACHE_MARK]
        left.note(f"a mark for the prompt cache, of which the API takes {MAX_CACHE_MARKS}: the last ones")
    return kept


def part_from_block(block: JsonValue) -> JsonValue:
    """Return a block as one of our parts; what has no place in it stays in it under its own name."""
    if not isinstance(block, dict):
        return block
    reader = _READERS.get(str(block.get("type")))
    return block if reader is None else reader(block)


def _rest(block: JsonObject, *known: str) -> JsonObject:
    return {name: value for name, value in block.items() if name not in known}


def _from_call(block: JsonObject) -> JsonValue:
    rest = _rest(block, "type", "id", "name", "input")
    known: JsonObject = {"id": block.get("id"), "name": block.get("name"), "arguments": block.get("input")}
    return {"type": "toolCall", **known, **rest}


def _from_thinking(block: JsonObject) -> JsonValue:
    rest = _rest(block, "type", "thinking", "signature")
    signed: JsonObject = {"thinkingSignature": block["signature"]} if "signature" in block else {}
    return {"type": "thinking", "thinking": block.get("thinking"), **signed, **rest}


def _from_redacted(block: JsonObject) -> JsonValue:
    rest = _rest(block, "type", "data")
    return {"type": "thinking", "thinking": "", "thinkingSignature": block.get("data"), "redacted": True, **rest}


def _from_image(block: JsonObject) -> JsonValue:
    source = block.get("source")
    held = source if isinstance(source, dict) else {}
    if held.get("type") == "base64" and set(held) == {"type", "data", "media_type"}:
        return {"type": "image", "data": held["data"], "mimeType": held["media_type"], **_rest(block, "type", "source")}
    if held.get("type") == "url" and set(held) == {"type", "url"}:
        return {"type": "image", "url": held["url"], **_rest(block, "type", "source")}
    return block


def _from_document(block: JsonObject) -> JsonValue:
    source = block.get("source")
    held = source if isinstance(source, dict) else {}
    if not set(block) <= {"type", "source", "title", CACHE_MARK}:
        return block
    named: JsonObject = {"filename": block["title"]} if "title" in block else {}
    named.update({CACHE_MARK: block[CACHE_MARK]} if CACHE_MARK in block else {})
    if held.get("type") == "base64" and set(held) == {"type", "data", "media_type"}:
        return {"type": "file", "data": held["data"], "mimeType": held["media_type"], **named}
    if held.get("type") == "url" and set(held) == {"type", "url"}:
        return {"type": "file", "url": held["url"], **named}
    return block


_READERS: dict[str, Callable[[JsonObject], JsonValue]] = {
    "image": _from_image,
    "document": _from_document,
    "tool_use": _from_call,
    "thinking": _from_thinking,
    "redacted_thinking": _from_redacted,
}


# --- Printing -----------------------------------------------------------------------------------------------


def block_from_part(part: Mapping[str, JsonValue], left: Leftovers, *, provider: JsonValue) -> list[JsonValue]:
    """Return a part as a block: a list of one, or of none where the format has no place for it.

    Reasoning is kept where ``provider`` is Anthropic itself and signed it: no other is accepted back.
    """
    blocks = _printed(part, left, provider)
    if CACHE_MARK in part:
        return [{**block, CACHE_MARK: part[CACHE_MARK]} if isinstance(block, dict) else block for block in blocks]
    return blocks


def _printed(part: Mapping[str, JsonValue], left: Leftovers, provider: JsonValue) -> list[JsonValue]:
    kind = part.get("type")
    if kind == "text":
        return _text(part, left)
    if kind == "thinking":
        return _thinking(part, left, provider)
    if kind == "toolCall":
        return [_call(part, left)]
    if kind in ("image", "file"):
        return _media(part, left)
    if isinstance(kind, str) and kind in _PASSED:
        return [dict(part)]
    left.note(f"a part {kind!r}")
    return []


def _text(part: Mapping[str, JsonValue], left: Leftovers) -> list[JsonValue]:
    if is_blank(part.get("text")):
        left.note(BLANK)
        return []
    quoted: JsonObject = {"citations": part["citations"]} if "citations" in part else {}
    return [{"type": "text", "text": part["text"], **quoted}]


def _thinking(part: Mapping[str, JsonValue], left: Leftovers, provider: JsonValue) -> list[JsonValue]:
    signature = part.get("thinkingSignature")
    if provider != "anthropic" or not isinstance(signature, str) or not signature:
        left.note("reasoning that Anthropic did not sign")
        return []
    if part.get("redacted") is True:
        return [{"type": "redacted_thinking", "data": signature}]
    return [{"type": "thinking", "thinking": part.get("thinking"), "signature": signature}]


def safe_id(call_id: JsonValue) -> str:
    """Return the id of a tool call with what the API refuses in it (other signs, length) replaced."""
    text = _BAD_IN_ID.sub("_", str(call_id))
    # Of a long id the digest stands for the end, so that two stay apart.
    return text if 0 < len(text) <= MAX_ID else f"{text[: MAX_ID - 17]}_{made_id(str(call_id))}"


def _call(part: Mapping[str, JsonValue], left: Leftovers) -> JsonObject:
    call_id, arguments = part.get("id"), part.get("arguments")
    if safe_id(call_id) != call_id:
        left.change("ids of tool calls were changed to what the API accepts")
    if arguments is None:
        arguments = {}
    elif not isinstance(arguments, dict):
        left.change("arguments of a tool call that are no object stand under 'arguments'")
        arguments = {"arguments": arguments}
    rest: JsonObject = {"caller": part["caller"]} if "caller" in part else {}
    return {"type": "tool_use", "id": safe_id(call_id), "name": part.get("name"), "input": arguments, **rest}


def _media(part: Mapping[str, JsonValue], left: Leftovers) -> list[JsonValue]:
    kind = "image" if part.get("type") == "image" else "document"
    data, url = part.get("data"), part.get("url")
    source: JsonValue = part.get("source")
    if isinstance(data, str):
        source = {"type": "base64", "media_type": part.get("mimeType") or "image/png", "data": data}
    elif isinstance(url, str):
        inline = _DATA_URL.fullmatch(url)
        source = {"type": "url", "url": url}
        if inline is not None:
            source = {"type": "base64", "media_type": inline[1], "data": inline[2]}
    if not isinstance(source, dict):
        left.note(f"a part {part.get('type')!r} without data")
        return []
    named: JsonObject = {"title": part["filename"]} if kind == "document" and "filename" in part else {}
    return [{"type": kind, "source": source, **named}]


def printed_result(message: Mapping[str, JsonValue], left: Leftovers) -> JsonObject:
    """Return a tool result message as a block."""
    call_id, content = message.get("toolCallId"), message.get("content")
    block: JsonObject = {"type": "tool_result", "tool_use_id": safe_id(call_id)}
    if isinstance(content, str):
        block["content"] = content
    elif content is not None:
        block["content"] = [inner for part in parts_of(message) for inner in block_from_part(part, left, provider=None)]
    if isinstance(message.get("isError"), bool):
        block["is_error"] = message["isError"]
    if CACHE_MARK in message:
        block[CACHE_MARK] = message[CACHE_MARK]
    return block
