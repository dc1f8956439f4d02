"""Threads of Amp."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from urllib.parse import unquote, urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from flue_py.core.json import JsonObject, JsonValue, without
from flue_py.core.kinds import COMPACTION
from flue_py.core.sessions import made_id
from flue_py.errors import UnreadableFile
from flue_py.formats import kit
from flue_py.providers.base import fields_of, objects_in, only

# A thread is one document, written anew each time: messages of Anthropic's form, apart from the results of tools. An
# entry's id is made of the messages before it and its own words, so that tokens may come later, and a list that was cut
# or changed is a branch. docs/formats/amp.md lists the fields, and the published readers that they are known from.

FORMAT = "amp"

_SIGN = re.compile(rb'\s*\{\s*"v"\s*:\s*\d+\s*,\s*"id"\s*:\s*"T-')
_TOKENS = {
    "inputTokens": "input", "outputTokens": "output",
    "cacheReadInputTokens": "cacheRead", "cacheCreationInputTokens": "cacheWrite",
}  # fmt: skip
_PARTS = {
    "text": ("text",), "thinking": ("thinking", "signature"), "redacted_thinking": ("data",), "image": ("source",),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("toolUseID", "run", "tool_use_id", "content", "is_error"),
}  # fmt: skip
"""The fields of blocks that are sent, by type. Others are kept beside the message."""


def looks_like_amp(head: bytes, path_name: str = "") -> bool:
    """Return whether the beginning of a file may be a thread."""
    return bool(_SIGN.match(head))


def parse_amp(data: bytes, name: str = "the file") -> tuple[kit.SessionPart, ...]:
    """Return the session in a thread. Raises `UnreadableFile` if the document is none. O(size)."""
    notes = kit.Notes("item")
    document = kit.read_object(data, notes, name)
    thread, messages = document.get("id"), document.get("messages")
    if not kit.is_name(thread) or not thread.startswith("T-") or not isinstance(messages, list):
        raise UnreadableFile(f"{name} is not a thread of Amp: it has no id or no messages; nothing was imported")
    events = [event for _, event in objects_in(fields_of(document.get("usageLedger")).get("events"))]
    calls = {str(event["toMessageId"]): event for event in events if event.get("toMessageId") is not None}
    reading = _Reading(kit.Chain(thread, notes), calls)
    for item in kit.items_of(messages, notes):
        if item.index == len(messages) - 1 and _is_open(item.value):
            notes.hold_back(item.index)
        else:
            reading.read(item)
    reading.aside([event for event in events if event.get("toMessageId") is None])
    about = kit.short_fields(without(document, "id", "messages", "usageLedger", "v"), notes)
    trees = objects_in(fields_of(fields_of(document.get("env")).get("initial")).get("trees"))
    title, cwd = kit.one_text(document.get("title")), next((_folder(tree.get("uri")) for _, tree in trees), None)
    created_us = kit.read_moment(document.get("created"))
    parsed = reading.chain.parsed(FORMAT, name, about, auto_title=title or None, cwd=cwd, created_us=created_us)
    return (replace(parsed, restates=True),)


read_amp = partial(kit.DocumentReader, parse_amp)


def _folder(uri: JsonValue) -> str | None:
    with suppress(ValueError):
        place = urlsplit(uri if isinstance(uri, str) else "")
        return kit.one_text(unquote(place.path)) if place.scheme == "file" else None
    return None


def _is_open(message: JsonObject) -> bool:
    """Return whether a message may still be written to: an answer that comes in, or a result that is not there yet."""
    runs = [fields_of(block.get("run")) for _, block in objects_in(message.get("content")) if "toolUseID" in block]
    is_waiting = any(run.get("status") not in ("done", "error", "cancelled") and "result" not in run for run in runs)
    return is_waiting or fields_of(message.get("state")).get("type") == "streaming"


class _Reading(Struct):
    """The messages so far, the calls of the ledger by the messages that they made, and tools by their calls."""

    chain: kit.Chain
    calls: dict[str, JsonObject]
    tools: dict[str, str] = field(default_factory=dict)
    at_us: int | None = None

    def read(self, item: kit.Item) -> None:
        """Add a message."""
        value, chain, role = item.value, self.chain, item.value.get("role")
        usage = fields_of(value.get("usage"))
        times = (usage.get("timestamp"), value.get("createdAt"), fields_of(value.get("meta")).get("sentAt"))
        # Results have no time of their own: they are told with that of the message before.
        at_us = self.at_us = next((found for time in times if (found := kit.read_moment(time)) is not None), self.at_us)
        blocks = [block for _, block in objects_in(value.get("content"))]
        summaries = [block for block in blocks if block.get("type") == "summary"]
        if role not in ("user", "assistant"):
            entry = kit.plain_entry(kit.entry_kind("amp.", kit.one_text(role, 60) or "message"), without(value, "role"))
            if summaries:
                fields: JsonObject = {"summary": kit.one_text(summaries[-1].get("summary")) or "", "tokensBefore": 0}
                entry = kit.plain_entry(COMPACTION, {**fields, "firstKeptEntryId": ""})
            elif role != "info":
                chain.notes.unknown_kinds[kit.one_text(role, 60) or "message"] += 1
            chain.add(entry, item.index, created_us=at_us)
            return
        usage = usage or _of_event(self.calls.get(str(value.get("messageId")), {}))
        rest: list[JsonValue] = []
        for block in blocks:
            read = _PARTS.get(str(block.get("type")), ())
            rest.append({**without(block, "type", *read), **only(fields_of(block.get("run")), "status")})
        beside = {
            **without(value, "role", "content", "usage"),
            "blocks": rest if any(rest) else None,
            "usage": only(usage, "credits"),
        }
        counted = _counted(usage) if role == "assistant" else None
        model = only(usage, "model") if role == "assistant" and isinstance(usage.get("model"), str) else {}
        for words, extra in kit.messages_of(role, value.get("content"), self.tools, _block):
            message, call = {**without(words, "provider"), **model}, (FORMAT, None)
            fields = {**{key: kept for key, kept in beside.items() if kept}, **extra}
            chain.say(message, item, words=words, usage=counted, call=call, beside=fields, created_us=at_us)
            beside = {}

    def aside(self, events: Sequence[JsonObject]) -> None:
        """Add calls of the ledger that made no message, as those for titles."""
        for event in events:
            if (usage := _counted(_of_event(event))) is not None:
                name = made_id(FORMAT, self.chain.session_id, str(event.get("id")), str(event.get("timestamp")))
                entry, model = kit.plain_entry("amp.usage", event), kit.one_text(event.get("model"), 160) or ""
                entry = kit.with_call(entry, usage, self.chain.notes, 0, provider="", model=model, call_id=name)
                self.chain.add(entry, 0, created_us=kit.read_moment(event.get("timestamp")), is_link=False)


def _of_event(event: JsonObject) -> JsonObject:
    """Return a call of the ledger as messages have it: the ledger does not tell the tokens of the cache."""
    tokens = fields_of(event.get("tokens"))
    names = {"inputTokens": "input", "outputTokens": "output"}
    counts = {ours: tokens[theirs] for ours, theirs in names.items() if tokens.get(theirs) is not None}
    return {**only(event, "model", "credits", "timestamp"), **counts}


def _counted(numbers: JsonObject) -> JsonObject | None:
    """Return numbers of tokens as our usage; None if nothing is known."""
    usage = {ours: numbers[name] for name, ours in _TOKENS.items() if numbers.get(name) is not None}
    fresh, written = usage.get("input", 0), usage.get("cacheWrite", 0)
    if str(numbers.get("model")).startswith("gpt-") and type(fresh) is int and type(written) is int:
        # For these models the tokens that no cache had are told as written to it, which costs nothing more.
        usage |= {"input": fresh + written, "cacheWrite": 0}
    return usage if any(usage.values()) else None


def _block(block: JsonObject) -> JsonObject:
    """Return a block as Anthropic has it."""
    kind, run, source = str(block.get("type")), fields_of(block.get("run")), block.get("source")
    if kind == "tool_result" and "toolUseID" in block:
        result = run.get("result", fields_of(run.get("error")).get("message"))
        with suppress(ValueError, RecursionError):
            result = result if isinstance(result, str) else json.dumps(run if result is None else result)
        sent: JsonObject = {"type": kind, "tool_use_id": block["toolUseID"], "content": result}
        return {**sent, "is_error": True} if run.get("status") == "error" else sent
    if kind == "image" and isinstance(source, str):
        return {"type": kind, "source": {"type": "url", "url": source}}
    return only(block, "type", *_PARTS[kind]) if kind in _PARTS and kind != "tool_result" else block
