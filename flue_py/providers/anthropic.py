"""Messages of the Anthropic API, from and to ours, and the edits that the API applied to a request itself."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping

from flue_py.core.json import Frozen, JsonObject, JsonValue, without
from flue_py.core.kinds import COMPACTION_PART
from flue_py.core.sessions import made_id
from flue_py.core.usage import read_beside, usage_json
from flue_py.errors import InvalidEntry, shown
from flue_py.providers.base import Leftovers, difference, fields_of, need_text, parts_with_paths
from flue_py.providers.openai_chat import arguments_object, image_from_url, parts_of

# The edits that Anthropic applied to a request itself.

APPLIED_EDITS = "appliedEdits"
"""The field of an answer of ours with the edits that Anthropic reported, as it reported them."""

MANAGED, EDITS = "context_management", "applied_edits"
"""The field of a response that says so, and the one in it that has the list."""


class AppliedEdit(Frozen):
    """One way in which a provider shortened a request before it answered, by its own name (``type``).

    ``tool_uses`` and ``thinking_turns`` are how many of these it cleared, ``input_tokens`` is how many tokens that
    freed; None where it does not say.
    """

    type: str
    tool_uses: int | None = None
    thinking_turns: int | None = None
    input_tokens: int | None = None

    def __str__(self) -> str:
        amounts = ((self.tool_uses, "tool uses"), (self.thinking_turns, "turns of reasoning"))
        amounts_text = [f"{amount:,} {unit}" for amount, unit in amounts if amount is not None]
        tokens = "unknown" if self.input_tokens is None else f"{self.input_tokens:,}"
        return f"{self.type}: {', '.join([*amounts_text, f'{tokens} tokens'])}"


def applied_edits(answer: Mapping[str, JsonValue]) -> tuple[AppliedEdit, ...] | None:
    """Return the edits by which Anthropic cleared parts of the request behind an answer; None if it reports none.

    ``answer`` is a response of the API, the event of a stream that ends one (``message_delta``), or a message of ours
    that was made of one. A value that is no edit is passed over. O(edits).
    """
    edits = _said(answer)
    return None if edits is None else tuple(edit for edit in map(_edit, edits) if edit is not None)


def cleared_tokens(answer: Mapping[str, JsonValue]) -> int | None:
    """Return how many tokens `applied_edits` freed together; None where that of any of them is not said."""
    edits = _said(answer)
    tokens = [edit.input_tokens for edit in map(_edit, edits or ()) if edit and edit.input_tokens is not None]
    return None if edits is None or len(tokens) < len(edits) else sum(tokens)


def _said(answer: Mapping[str, JsonValue]) -> list[JsonValue] | None:
    managed = answer.get(MANAGED)
    edits = answer.get(APPLIED_EDITS, managed.get(EDITS) if isinstance(managed, Mapping) else None)
    return edits if isinstance(edits, list) else None


def _edit(value: JsonValue) -> AppliedEdit | None:
    if not isinstance(value, Mapping) or not isinstance(kind := value.get("type"), str):
        return None
    uses, turns, tokens = (
        _amount(value.get(name)) for name in ("cleared_tool_uses", "cleared_thinking_turns", "cleared_input_tokens")
    )
    return AppliedEdit(kind, uses, turns, tokens)


def _amount(value: JsonValue) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


# Messages of the Anthropic API, from and to ours. One of a user that has results of tools is several of ours.

PROVIDER = "anthropic"
_KNOWN = frozenset({"role", "content"})

EXTRA = "anthropic"
"""The field of ``extra`` that says how a message differed from the one that is printed."""

CACHE_MARK = "cache_control"
MAX_CACHE_MARKS = 4
"""How many marks for the cache the API takes in a request."""

MAX_ID = 64

PDF, PLAIN_TEXT = "application/pdf", "text/plain"
"""The MIME types of the documents that the API takes: the first in base64 or by its URL, the second as its text."""

REASONING = ("thinking", "redacted_thinking")
"""The types of the blocks that are reasoning, to read or not."""

_HOLDING_BLOCKS = ("system", "messages", "content")
_BAD_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_PASSED = frozenset({
    "document", "search_result", "server_tool_use", "web_search_tool_result", "web_fetch_tool_result",
    "code_execution_tool_result", "bash_code_execution_tool_result", "text_editor_code_execution_tool_result",
    "tool_search_tool_result", "mcp_tool_use", "mcp_tool_result", "container_upload", "tool_reference", "compaction",
    "advisor_tool_result", "mcp_tool_listing", "tool_addition", "tool_removal", "fallback",
})  # fmt: skip
"""The blocks that a message of the API may hold as they are: those of the SDK's types, anthropic 2.14."""

SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
"""The types of the blocks that call a tool which the API runs itself: its result is in an answer, too."""
SERVER_KINDS = frozenset({*SERVER_CALLS, *(kind for kind in _PASSED if kind.endswith("_tool_result"))})
"""These, and the types of their results."""


BLANK = "a text without characters other than white space, which the API refuses"


# Checking


def check_anthropic(value: JsonObject, where: str) -> None:
    """Check that a message can be read. Raises `InvalidEntry` with the path of the fault. O(blocks)."""
    role = value.get("role")
    if role not in ("user", "assistant"):
        raise InvalidEntry(f"{where}.role: should be user or assistant in this form, not {shown(role)}")
    for block, path in parts_with_paths(value.get("content"), where):
        kind = str(block.get("type"))
        if kind in _SIDES and role != _SIDES[kind]:
            raise InvalidEntry(f"{path}.type: a {kind} stands in a message of the {_SIDES[kind]}")
        for field in _NEEDED.get(kind, ()):
            need_text(block, field, path)
        if kind == "tool_use" and "input" not in block:
            raise InvalidEntry(f"{path}.input: is missing")
        if kind == "tool_result" and not isinstance(block.get("content"), (str, list, type(None))):
            raise InvalidEntry(f"{path}.content: should be a string or a list, not {shown(block.get('content'))}")
        if kind in ("image", "document") and "source" in block and not isinstance(block["source"], dict):
            raise InvalidEntry(f"{path}.source: should be an object, not {shown(block['source'])}")


_SIDES: Mapping[str, str] = {"tool_use": "assistant", "tool_result": "user", "redacted_thinking": "assistant"}
_NEEDED = {
    "tool_use": ("id", "name"),
    "tool_result": ("tool_use_id",),
    "thinking": ("thinking",),
    "redacted_thinking": ("data",),
}


# Reading


def messages_from_anthropic(
    value: JsonObject, names: Mapping[str, str], own: Container[str] = ()
) -> Iterator[tuple[JsonObject, JsonObject]]:
    """Yield the messages that one of the list is, each with the fields for its ``extra``.

    ``names`` are the names of the tool calls so far, by id. Of the fields beside the content, those in ``own`` are
    fields of our messages, and are taken as such.
    """
    role, content = value.get("role"), value.get("content")
    rest = {name: item for name, item in value.items() if name not in _KNOWN}
    if role == "assistant":
        yield _assistant(value, rest, own)
        return
    if not isinstance(content, list):
        yield {"role": role, "content": content, **rest}, {}
        return
    blocks: list[JsonValue] = []
    # If the message becomes results alone, its own fields stand beside the first one.
    alone = rest if all(map(_is_result, content)) else {}
    for block in content:
        if isinstance(block, dict) and _is_result(block):
            if blocks:
                yield _from_user(role, blocks, rest)
            blocks = []
            message, extra = _result(block, names)
            message.update((name, rest[name]) for name in ("timestamp",) if name in rest and name in own)
            yield message, {**extra, "message": alone} if alone else extra
            alone = {}
        else:
            blocks.append(block)
    if blocks or not content:
        yield _from_user(role, blocks, rest)


def _is_result(block: JsonValue) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _from_user(role: JsonValue, blocks: list[JsonValue], rest: JsonObject) -> tuple[JsonObject, JsonObject]:
    message: JsonObject = {"role": role, "content": [part_from_block(block) for block in blocks], **rest}
    return message, _differing(message, blocks)


def anthropic_difference(message: JsonObject, original: JsonObject) -> JsonObject:
    """Return the fields beside a message, so that an export gives back the content that it was made from."""
    content = original.get("content")
    return _differing(message, content) if isinstance(content, list) else {}


def _differing(message: JsonObject, blocks: list[JsonValue]) -> JsonObject:
    printed: JsonValue = printed_blocks({"provider": PROVIDER, **message}, Leftovers())
    change = difference({"content": printed}, {"content": blocks})
    return {EXTRA: change} if change else {}


def _result(block: JsonObject, names: Mapping[str, str]) -> tuple[JsonObject, JsonObject]:
    call_id, content = block.get("tool_use_id"), block.get("content")
    message: JsonObject = {"role": "toolResult", "toolCallId": call_id}
    if isinstance(call_id, str) and call_id in names:
        message["toolName"] = names[call_id]
    if "content" in block:
        message["content"] = [part_from_block(inner) for inner in content] if isinstance(content, list) else content
    if "is_error" in block:
        message["isError"] = block["is_error"]
    read_fields = ("type", "tool_use_id", "content", "is_error")
    message.update((name, item) for name, item in block.items() if name not in read_fields)
    change = difference(printed_result(message, Leftovers()), block)
    return message, {EXTRA: change} if change else {}


def _assistant(value: JsonObject, rest: JsonObject, own: Container[str]) -> tuple[JsonObject, JsonObject]:
    content = value.get("content")
    message: JsonObject = {"role": "assistant", "content": content, "provider": PROVIDER}
    if isinstance(content, list):
        message["content"] = [part_from_block(block) for block in content]
    # A whole response says more than a request may: its cost, above all.
    taken = ("usage", "model", "stop_reason")
    response = {name: item for name, item in rest.items() if name not in taken and name not in own}
    message.update((name, item) for name, item in rest.items() if name not in taken and name in own)
    if isinstance(rest.get("model"), str):
        message["model"] = rest["model"]
    if isinstance(rest.get("usage"), dict):
        usage = read_beside(rest)
        message["usage"] = rest["usage"] if usage.oddities or not usage.is_known else usage_json(usage)
    if isinstance(rest.get("stop_reason"), str):
        message["stopReason"] = rest["stop_reason"]
    managed = rest.get(MANAGED)
    if isinstance(managed, dict) and isinstance(edits := managed.get(EDITS), list):
        # Contexts have no more of an answer than its message.
        message.setdefault(APPLIED_EDITS, edits)
    extra: JsonObject = {"response": response} if response else {}
    if isinstance(content, list):
        extra.update(_differing(message, content))
    return message, extra


def part_from_block(block: JsonValue) -> JsonValue:
    """Return a block as one of our parts; a field without a place in it stays in it under its own name."""
    if not isinstance(block, dict):
        return block
    kind = block.get("type")
    if kind == "tool_use":
        call: JsonObject = {"id": block.get("id"), "name": block.get("name"), "arguments": block.get("input")}
        return {"type": "toolCall", **call, **without(block, "type", "id", "name", "input")}
    if kind == "thinking":
        thought: JsonObject = {"type": "thinking", "thinking": block.get("thinking")}
        if "signature" in block:
            thought["thinkingSignature"] = block["signature"]
        return {**thought, **without(block, "type", "thinking", "signature")}
    if kind == "redacted_thinking":
        thought = {"type": "thinking", "thinking": "", "thinkingSignature": block.get("data"), "redacted": True}
        return {**thought, **without(block, "type", "data")}
    return _from_media(block, str(kind)) if kind in ("image", "document") else block


def _from_media(block: JsonObject, kind: str) -> JsonValue:
    source = fields_of(block.get("source"))
    rest = without(block, "type", "source")
    if kind == "document":
        if not set(rest) <= {"title", CACHE_MARK}:
            return block
        names = {"title": "filename", CACHE_MARK: CACHE_MARK}
        rest = {ours: rest[name] for name, ours in names.items() if name in rest}
    part: JsonObject = {"type": "image" if kind == "image" else "file"}
    if source.get("type") == "base64" and set(source) == {"type", "data", "media_type"}:
        return {**part, "data": source["data"], "mimeType": source["media_type"], **rest}
    if source.get("type") == "url" and set(source) == {"type", "url"}:
        return {**part, "url": source["url"], **rest}
    return block


# Printing


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
    is_foreign = kind == COMPACTION_PART and provider not in (None, PROVIDER)
    if isinstance(kind, str) and kind in _PASSED and not is_foreign:
        return [dict(part)]
    left.note("a compaction of another provider" if is_foreign else f"a part {kind!r}", part)
    return []


def _text(part: Mapping[str, JsonValue], left: Leftovers) -> list[JsonValue]:
    if is_blank(part.get("text")):
        left.note(BLANK, part)
        return []
    block: JsonObject = {"type": "text", "text": part["text"]}
    if "citations" in part:
        block["citations"] = part["citations"]
    return [block]


def _thinking(part: Mapping[str, JsonValue], left: Leftovers, provider: JsonValue) -> list[JsonValue]:
    signature = part.get("thinkingSignature")
    if provider != PROVIDER or not isinstance(signature, str) or not signature:
        left.note("reasoning that Anthropic did not sign", part)
        return []
    if part.get("redacted") is True:
        return [{"type": "redacted_thinking", "data": signature}]
    return [{"type": "thinking", "thinking": part.get("thinking"), "signature": signature}]


def safe_id(call_id: JsonValue) -> str:
    """Return the id of a tool call with other signs than the API takes replaced, and no longer than it takes."""
    text = _BAD_IN_ID.sub("_", str(call_id))
    # Of a long id the digest stands for the end, so that two stay apart.
    return text if 0 < len(text) <= MAX_ID else f"{text[: MAX_ID - 17]}_{made_id(str(call_id))}"


def _call(part: Mapping[str, JsonValue], left: Leftovers) -> JsonObject:
    call_id = part.get("id")
    safe = safe_id(call_id)
    if safe != call_id:
        left.change("ids of tool calls were changed to what the API accepts")
    arguments = arguments_object(part, left)
    rest: JsonObject = {"caller": part["caller"]} if "caller" in part else {}
    return {"type": "tool_use", "id": safe, "name": part.get("name"), "input": arguments, **rest}


def _media(part: Mapping[str, JsonValue], left: Leftovers) -> list[JsonValue]:
    kind = "image" if part.get("type") == "image" else "document"
    data, url = part.get("data"), part.get("url")
    source: JsonValue = part.get("source")
    if isinstance(data, str):
        default = "image/png" if kind == "image" else PDF
        source = {"type": "base64", "media_type": part.get("mimeType") or default, "data": data}
    elif isinstance(url, str):
        inline = image_from_url(url)
        source = {"type": "url", "url": url}
        if "data" in inline:
            source = {"type": "base64", "media_type": inline["mimeType"], "data": inline["data"]}
    if not isinstance(source, dict):
        left.note(f"a part {part.get('type')!r} without data", part)
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


def printed_anthropic(message: Mapping[str, JsonValue], left: Leftovers) -> JsonObject:
    """Return one of our messages as one of the API: the result of a tool as a message of the user with that block.

    A part without a place in the API is noted in ``left``.
    """
    if message.get("role") == "toolResult":
        return {"role": "user", "content": [printed_result(message, left)]}
    content = message.get("content")
    if not isinstance(content, str):
        content = printed_blocks(message, left)
    return {"role": message.get("role"), "content": content}


def printed_blocks(message: Mapping[str, JsonValue], left: Leftovers) -> list[JsonValue]:
    """Return the parts of one of our messages as blocks."""
    provider = message.get("provider")
    return [block for part in parts_of(message) for block in block_from_part(part, left, provider=provider)]


# Values that the API refuses


def is_blank(text: JsonValue) -> bool:
    """Return whether the API takes a text for none: it is empty, or white space only."""
    return not text or (isinstance(text, str) and text.isspace())


def is_reasoning(block: JsonValue) -> bool:
    """Return whether a block is reasoning, to read or not."""
    return isinstance(block, dict) and block.get("type") in REASONING


def without_blanks(content: JsonValue, left: Leftovers) -> JsonValue:
    """Return content without texts that the API refuses: no blocks at all where it was one such text."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if is_blank(content) else content
    if not isinstance(content, list):
        return content
    blocks = [block for block in content if not _is_blank_text(block)]
    for _ in range(len(content) - len(blocks)):
        left.note(BLANK)
    return blocks


def _is_blank_text(block: JsonValue) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and is_blank(block.get("text"))


def latest_cache_marks(value: JsonValue, left: Leftovers) -> JsonValue:
    """Return messages or blocks with as many marks for the cache as the API takes: the last ones. O(size)."""
    return _without_first_marks(value, [max(0, _count_marks(value) - MAX_CACHE_MARKS)], left)


def _count_marks(value: JsonValue) -> int:
    count, to_see = 0, [value]
    for item in to_see:  # which grows meanwhile
        if isinstance(item, dict):
            count += CACHE_MARK in item
            if "content" in item:
                to_see.append(item["content"])
            if "messages" in item or "system" in item:
                to_see += [item[name] for name in ("system", "messages") if name in item]
        elif isinstance(item, list):
            to_see += item
    return count


def _without_first_marks(value: JsonValue, spare: list[int], left: Leftovers) -> JsonValue:
    """Return a copy of a value that may hold marks, without the first ``spare[0]`` of them, which are counted down."""
    if spare[0] == 0:
        return value
    if isinstance(value, list):
        return [_without_first_marks(item, spare, left) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {
        name: _without_first_marks(item, spare, left) if name in _HOLDING_BLOCKS else item
        for name, item in value.items()
    }
    if CACHE_MARK in fields and spare[0] > 0:
        spare[0] -= 1
        del fields[CACHE_MARK]
        left.note(f"a mark for the prompt cache, of which the API takes {MAX_CACHE_MARKS}: the last ones")
    return fields
