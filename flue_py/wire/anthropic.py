"""Messages of the Anthropic API, from and to ours. One of a user that has results of tools is several of ours."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.usage_shapes import read_reported, usage_json
from flue_py.wire.anthropic_blocks import EXTRA, block_from_part, part_from_block, printed_result
from flue_py.wire.differences import difference
from flue_py.wire.leftovers import Leftovers
from flue_py.wire.openai_chat import parts_of

PROVIDER = "anthropic"

_KNOWN = frozenset({"role", "content"})


def messages_from_anthropic(
    value: JsonObject, names: Mapping[str, str], own: Container[str] = ()
) -> Iterator[tuple[JsonObject, JsonObject]]:
    """Yield the messages that one of the list is, each with what stands beside it in ``extra``.

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
    said: list[JsonValue] = []
    # Where the message becomes results alone, what it says of itself stands beside the first one.
    alone = rest if all(map(_is_result, content)) else {}
    for block in content:
        if isinstance(block, dict) and _is_result(block):
            if said:
                yield _from_user(role, said, rest)
            said = []
            message, beside = _result(block, names)
            message.update((name, rest[name]) for name in ("timestamp",) if name in rest and name in own)
            yield message, {**beside, "message": alone} if alone else beside
            alone = {}
        else:
            said.append(block)
    if said or not content:
        yield _from_user(role, said, rest)


def _is_result(block: JsonValue) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _from_user(role: JsonValue, blocks: list[JsonValue], rest: JsonObject) -> tuple[JsonObject, JsonObject]:
    message: JsonObject = {"role": role, "content": [part_from_block(block) for block in blocks], **rest}
    return message, _differing(message, blocks)


def anthropic_difference(message: JsonObject, original: JsonObject) -> JsonObject:
    """Return what stands beside a message, so that an export gives back the content that it was made from."""
    content = original.get("content")
    return _differing(message, content) if isinstance(content, list) else {}


def _differing(message: JsonObject, blocks: list[JsonValue]) -> JsonObject:
    left = Leftovers()
    provider = message.get("provider", PROVIDER)
    printed = [block for part in parts_of(message) for block in block_from_part(part, left, provider=provider)]
    found = difference({"content": printed}, {"content": blocks})
    return {EXTRA: found} if found else {}


def _result(block: JsonObject, names: Mapping[str, str]) -> tuple[JsonObject, JsonObject]:
    call_id, content = block.get("tool_use_id"), block.get("content")
    message: JsonObject = {"role": "toolResult", "toolCallId": call_id}
    if isinstance(call_id, str) and call_id in names:
        message["toolName"] = names[call_id]
    if "content" in block:
        message["content"] = [part_from_block(each) for each in content] if isinstance(content, list) else content
    if "is_error" in block:
        message["isError"] = block["is_error"]
    known = ("type", "tool_use_id", "content", "is_error")
    message.update((name, item) for name, item in block.items() if name not in known)
    found = difference(printed_result(message, Leftovers()), block)
    return message, {EXTRA: found} if found else {}


def _assistant(value: JsonObject, rest: JsonObject, own: Container[str]) -> tuple[JsonObject, JsonObject]:
    content = value.get("content")
    message: JsonObject = {"role": "assistant", "content": content, "provider": PROVIDER}
    if isinstance(content, list):
        message["content"] = [part_from_block(block) for block in content]
    # A whole response says more than a request may: what it cost, above all.
    taken = ("usage", "model", "stop_reason")
    response = {name: item for name, item in rest.items() if name not in taken and name not in own}
    message.update((name, item) for name, item in rest.items() if name not in taken and name in own)
    if isinstance(rest.get("model"), str):
        message["model"] = rest["model"]
    if isinstance(rest.get("usage"), dict):
        usage = read_reported(rest["usage"])
        message["usage"] = rest["usage"] if usage.oddities or not usage.is_known else usage_json(usage)
    if isinstance(rest.get("stop_reason"), str):
        message["stopReason"] = rest["stop_reason"]
    beside: JsonObject = {"response": response} if response else {}
    if isinstance(content, list):
        beside.update(_differing(message, content))
    return message, beside
