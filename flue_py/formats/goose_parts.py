"""The parts of Goose's messages, and its usage, in our words."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.core.json import JsonObject, JsonValue
from flue_py.providers.base import fields_of, listed, only, without

_COUNTS = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "total_tokens": "totalTokens",
    "cache_read_tokens": "cacheReadTokens",
    "cache_write_tokens": "cacheWriteTokens",
}
"""The counts of a call, as a row has them and as a message has them."""
_TAKEN = ("text", "thinking", "signature", "data", "mimeType")
"""The fields of a part that are in the message."""
_FAILED = "The tool call returned the following error:\n"
"""The words that the program sends before the error of a call."""
_UNREADABLE = "unparseable_tool_call"
"""The name that the program gives to a call that it cannot read."""


def counts_of(fields: JsonObject) -> list[int | None]:
    """Return the counts of a call, of a row or a message, in the order of `_COUNTS`."""
    counts = [fields.get(row, fields.get(message)) for row, message in _COUNTS.items()]
    return [count if type(count) is int else None for count in counts]


def rest_of_sums(sums: Sequence[int | None], calls: Sequence[Sequence[int | None]]) -> JsonObject:
    """Return the counts of sums that calls leave, named as in a row; an empty object if they leave none."""
    left = [
        None if whole is None else max(0, whole - sum(call[place] or 0 for call in calls))
        for place, whole in enumerate(sums)
    ]
    return dict(zip(_COUNTS, left, strict=True)) if any(left) else {}


def usage_of(fields: JsonObject) -> JsonObject:
    """Return the tokens and the cost of a call as our usage; the program has the cache in the input."""
    shown, output, total, read, write = counts_of(fields)
    cached, cost = (read or 0) + (write or 0), fields.get("cost")
    usage: JsonObject = {"input": shown - cached if shown is not None and shown >= cached else shown}
    usage |= {"output": output, "cacheRead": read, "cacheWrite": write, "totalTokens": total}
    usage["cost"] = {"total": cost} if isinstance(cost, (int, float)) and cost else None
    return {name: count for name, count in usage.items() if count is not None}


def text_of(parts: Sequence[JsonObject]) -> str:
    """Return the texts of a message."""
    return "\n".join(text for part in parts if part.get("type") == "text" and isinstance(text := part.get("text"), str))


def sent_part(part: JsonObject) -> JsonObject | None:
    """Return a part as it is sent; None for one that is not, and for the result of a call."""
    audience = fields_of(part.get("annotations")).get("audience")
    kind, text, thought = part.get("type"), part.get("text"), part.get("thinking")
    sent: JsonObject | None = None
    if isinstance(audience, list) and "assistant" not in audience:
        return None
    if kind == "resource":
        kind, text = "text", fields_of(part.get("resource")).get("text")
    if kind == "reasoning":
        kind, thought = "thinking", text
    if kind == "text" and isinstance(text, str):
        sent = {"type": "text", "text": text}
    elif kind == "image" and isinstance(part.get("data"), str):
        sent = {"type": "image", **only(part, "data", "mimeType")}
    elif kind == "thinking" and isinstance(thought, str):
        signature = part.get("signature")
        sent = {"type": "thinking", "thinking": thought, **({"thinkingSignature": signature} if signature else {})}
    elif kind == "redactedThinking":
        sent = {"type": "thinking", "thinking": "", "thinkingSignature": part.get("data"), "redacted": True}
    elif kind in ("toolRequest", "frontendToolRequest"):
        call = fields_of(fields_of(part.get("toolCall")).get("value"))
        sent = {"type": "toolCall", "id": part.get("id"), "name": call.get("name", _UNREADABLE)}
        sent["arguments"] = fields_of(call.get("arguments"))
    return sent


def rest_of(part: JsonObject) -> JsonObject:
    """Return the fields of a part that are not in the message: all of one that is not sent."""
    is_whole = sent_part(part) is not None and fields_of(part.get("toolCall")).get("error") is None
    return without(part, *_TAKEN, "toolCall") if is_whole else part


def result_of(part: JsonObject) -> tuple[JsonObject, JsonObject]:
    """Return the result of a call as it is sent, and the other fields of the part."""
    result = fields_of(part.get("toolResult"))
    value, error = result.get("value"), result.get("error")
    about = fields_of(value)
    words = [sent_part(fields_of(item)) for item in listed(about.get("content", value))]
    content: list[JsonValue] = [word for word in words if word is not None]
    if error is not None:
        content = [{"type": "text", "text": f"{_FAILED}{error}"}]
    message: JsonObject = {"role": "toolResult", "toolCallId": part.get("id"), "content": content}
    message["isError"] = error is not None or about.get("isError") is True
    rest = without(about, "content", "isError")
    return message, part if None in words else {**without(part, "toolResult"), **({"result": rest} if rest else {})}
