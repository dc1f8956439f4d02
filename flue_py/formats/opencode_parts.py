"""The parts of OpenCode's messages, and its usage, in our words."""

from __future__ import annotations

from msgspec import Struct, field

from flue_py.core.json import JsonObject, JsonValue
from flue_py.core.kinds import COMPACTION
from flue_py.formats.kit import read_moment
from flue_py.providers.base import fields_of, listed, only, without
from flue_py.providers.openai_chat import image_from_url

_ASKS = {COMPACTION: "What did we do so far?", "subtask": "The following tool was executed by the user"}
"""The words that the program sends for parts of a user's message."""
_INTERRUPTED = "[Tool execution was interrupted]"
CLEARED = "[Old tool result content cleared]"
"""The words that the program sends for the result of a call that it cleared, which it keeps."""
_STOPS = {"tool-calls": "toolUse", "content-filter": "error", "unknown": "stop", "other": "stop"}


def own_fields(fields: JsonObject) -> JsonObject:
    """Return the fields of a message or a part without its ids, and the summary that is added to a prompt later."""
    return without(fields, "id", "sessionID", "messageID", "summary" if isinstance(fields.get("summary"), dict) else "")


def error_of(fields: JsonObject) -> str:
    """Return the name of the error that an answer ended in; "" for none."""
    error = fields.get("error")
    return str(fields_of(error).get("name", "error")) if error else ""


class MessageRow(Struct):
    """A message: its row, its fields, and its parts by id."""

    id: str
    line: int
    fields: JsonObject
    parts: dict[str, JsonObject] = field(default_factory=dict)
    is_partial: bool = False
    """Whether it may not be complete."""

    @property
    def is_answer(self) -> bool:
        """Whether it is a message of the model."""
        return self.fields.get("role") == "assistant"

    @property
    def is_ended(self) -> bool:
        """Whether it is an answer that does not change any more. A fork copies the parts after the message."""
        is_completed = fields_of(self.fields.get("time")).get("completed") is not None
        is_whole = not self.fields.get("finish") or self.has("step-finish")
        return self.is_answer and (bool(error_of(self.fields)) or (is_completed and is_whole))

    @property
    def is_summary(self) -> bool:
        """Whether it is the summary that a compaction ended in."""
        about = self.fields
        return (
            self.is_answer and about.get("summary") is True and bool(about.get("finish")) and not error_of(self.fields)
        )

    def has(self, kind: str) -> bool:
        """Return whether it has a part of a type."""
        return any(part.get("type") == kind for part in self.parts.values())

    @property
    def is_left_out(self) -> bool:
        """Whether it is an answer that is not sent: it failed, or was aborted before it said anything."""
        kinds = {str(part.get("type")) for part in self.parts.values()}
        is_heard = error_of(self.fields) == "MessageAbortedError" and kinds - {"step-start", "reasoning"}
        return not kinds or bool(error_of(self.fields) and not is_heard)


def steps_of(message_parts: dict[str, JsonObject]) -> list[list[tuple[str, JsonObject]]]:
    """Return the parts of each step of an answer, with their ids; there is one at least.

    Older versions put several in a message.
    """
    steps: list[list[tuple[str, JsonObject]]] = [[]]
    for name, part in message_parts.items():
        if part.get("type") == "step-start" and any(said_part(other) for _, other in steps[-1]):
            steps.append([])
        steps[-1].append((name, part))
    return steps


def answer_of(fields: JsonObject, step: list[tuple[str, JsonObject]], number: int) -> JsonObject:
    """Return a step as an answer of ours."""
    ends = (part for _, part in step if part.get("type") == "step-finish" and "tokens" in part)
    finish = next(ends, {} if number else fields)
    reason = str(finish.get("reason", fields.get("finish", "stop")))
    said: JsonObject = {
        "role": "assistant",
        "content": [item for _, part in step if (item := said_part(part))],
        "provider": fields.get("providerID"),
        "model": fields.get("modelID"),
        "stopReason": {"": _STOPS.get(reason, reason), "MessageAbortedError": "aborted"}.get(error_of(fields), "error"),
        "usage": usage_of(fields_of(finish.get("tokens")), finish.get("cost")),
    }
    return {name: value for name, value in said.items() if value is not None}


def usage_of(tokens: JsonObject, cost: JsonValue) -> JsonObject | None:
    """Return tokens and cost as our usage; None if nothing was reported, for which the program has zeros."""
    cache, reasoning, output = fields_of(tokens.get("cache")), tokens.get("reasoning"), tokens.get("output")
    if isinstance(output, int) and isinstance(reasoning, int):
        output += reasoning
    usage: JsonObject = {"input": tokens.get("input"), "output": output, "reasoning": reasoning}
    usage |= {"cacheRead": cache.get("read"), "cacheWrite": cache.get("write"), "totalTokens": tokens.get("total")}
    # A cost of 0 is that of a model whose price the program does not know, or that is free.
    usage["cost"] = {"total": cost} if cost else None
    return {name: count for name, count in usage.items() if count is not None} if any(usage.values()) else None


def sent_part(part: JsonObject) -> JsonObject | None:
    """Return a part of a user's message as it is sent; None for one that is not."""
    kind, text = part.get("type"), part.get("text")
    if kind == "text" and isinstance(text, str) and text and not part.get("ignored"):
        return {"type": "text", "text": text}
    # The text of these files stands in the message, too.
    if kind == "file" and part.get("mime") not in ("text/plain", "application/x-directory"):
        return _file(part)
    return {"type": "text", "text": _ASKS[kind]} if isinstance(kind, str) and kind in _ASKS else None


def _file(part: JsonObject) -> JsonObject | None:
    url, kind = part.get("url"), "image" if str(part.get("mime")).startswith("image/") else "file"
    return {"type": kind, **image_from_url(url), **only(part, "filename")} if isinstance(url, str) else None


def said_part(part: JsonObject) -> JsonObject | None:
    """Return a part of an answer as ours; None for one that says nothing."""
    kind, text = part.get("type"), part.get("text")
    if kind == "tool":
        arguments = fields_of(part.get("state")).get("input")
        return {"type": "toolCall", "id": part.get("callID"), "name": part.get("tool"), "arguments": arguments}
    if kind == "reasoning" and isinstance(text, str):
        signature = fields_of(fields_of(part.get("metadata")).get("anthropic")).get("signature")
        signed: JsonObject = {"thinkingSignature": signature} if isinstance(signature, str) else {}
        return {"type": "thinking", "thinking": text, **signed}
    return {"type": "text", "text": text} if kind == "text" and isinstance(text, str) and text else None


def result_of(part: JsonObject) -> tuple[JsonObject, JsonObject]:
    """Return the result of a call as it is sent, and the other fields of the part."""
    state = fields_of(part.get("state"))
    metadata = fields_of(state.get("metadata"))
    is_cut = metadata.get("interrupted") is True and isinstance(metadata.get("output"), str)
    is_done = state.get("status") == "completed" or is_cut
    text = metadata["output"] if is_cut else state.get("output" if is_done else "error")
    files = [file for item in listed(state.get("attachments")) if (file := _file(fields_of(item)))]
    said: JsonObject = {
        "role": "toolResult",
        "toolCallId": part.get("callID"),
        "toolName": part.get("tool"),
        "content": [{"type": "text", "text": text if isinstance(text, str) else _INTERRUPTED}, *files],
        "isError": not is_done,
    }
    rest = without(state, "input", "output", "error", "attachments")
    return said, {**without(part, "type", "callID", "tool", "state"), "state": rest}


def cleared_at(part: JsonObject) -> int | None:
    """Return when the result of a call was cleared from the context; None if it was not."""
    return read_moment(fields_of(fields_of(part.get("state")).get("time")).get("compacted"))
