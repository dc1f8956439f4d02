"""Anthropic message lists, as files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial

from flue_py.core.context import ContextEntry
from flue_py.core.json import JsonObject, JsonValue, without
from flue_py.core.usage import billed_by, read_reported, usage_json
from flue_py.formats import kit
from flue_py.providers.anthropic import messages_from_anthropic, part_from_block
from flue_py.providers.base import Leftovers, charged
from flue_py.providers.lists import anthropic_list, chat_list, responses_list, said_in
from flue_py.providers.openai_chat import calls_in, chat_difference, message_from_chat
from flue_py.providers.openai_responses import message_from_item, responses_difference

# Anthropic message lists: the messages for the Messages API, as a list or as the whole body of a request.
#
# A user message with results of tools becomes one message for each result, and one for the rest. The list has no
# session and no ids: docs/formats/lists.md says how they are made.

FORMAT = "anthropic"

_LIST = re.compile(rb'\s*(\[\s*\{|\{(?s:.{0,4000}?)"messages"\s*:\s*\[)')
_SIGNS = re.compile(
    rb'"type"\s*:\s*"(tool_use|tool_result|thinking|redacted_thinking|document|server_tool_use)"|"cache_control"'
    rb'|"media_type"|"max_tokens"|"stop_reason"|"anthropic_version"'
)
_ROW = re.compile(rb'"(parentUuid|sessionId|uuid|tool_calls|tool_call_id|source_message_count)"\s*:')


def looks_like_anthropic(head: bytes, path_name: str = "") -> bool:
    """Return whether the beginning of a file may be an Anthropic list: one with blocks that only Anthropic has."""
    is_list = b'"role"' in head and kit.begins_with_messages(head, _LIST, "role", "messages")
    return is_list and bool(_SIGNS.search(head)) and not _ROW.search(head)


def parse_anthropic(data: bytes, name: str = "the file") -> tuple[kit.SessionPart, ...]:
    """Return the session in an Anthropic message list, or in a request that holds one.

    ``name`` is that of the file in errors and metadata; the session's id is made from it and the first messages.
    Raises `UnreadableFile` if there is no list; every other fault is in the report. O(size).
    """
    notes = kit.Notes("item")
    items = kit.read_items(data, notes, name, ("messages",))
    chain = kit.Chain(kit.list_session_id(FORMAT, name, items), notes)
    if "system" in items.beside:
        system = items.beside["system"]
        content = [part_from_block(block) for block in system] if isinstance(system, list) else system
        message: JsonObject = {"role": "system", "content": content}
        entry, _ = kit.message_entry(message, {"system": system}, 0, notes)
        chain.add(entry, 0)
    names: dict[str, str] = {}
    for item in items.items:
        for message, fields in messages_from_anthropic(item.value, names):
            names.update(calls_in(message))
            entry, extra = kit.message_entry(message, item.value, item.index, notes)
            entry = kit.with_response(entry, FORMAT, item.value.get("id"))
            chain.add(entry, item.index, beside=extra if entry.kind == kit.UNREADABLE_MESSAGE else {**fields, **extra})
    return (kit.list_session(FORMAT, name, kit.Items(items.items, without(items.beside, "system")), chain),)


read_anthropic = partial(kit.DocumentReader, parse_anthropic)


# A context as a list of Anthropic messages.


def export_anthropic(context: Iterable[ContextEntry]) -> kit.Exported:
    """Return a context as Anthropic messages (see `anthropic_list`).

    If it has system messages, that is an object with ``system`` and ``messages``, as a request has them.
    Cost: O(messages).
    """
    left = Leftovers()
    system, messages = anthropic_list(said_in(context), left)
    value: JsonValue = [*messages]
    return kit.exported_json(FORMAT, value if system is None else {"system": system, "messages": value}, left)


# OpenAI chat messages, as they are sent to and kept by many programs: a list, or an object that has one.
#
# The list has no session and no ids: docs/formats/lists.md says how they are made.

READ_CHAT_FORMAT = "openai-chat"

_NOT_CHAT = re.compile(rb'"type"\s*:\s*"session"|"parentUuid"|"sessionId"|"source_message_count"')


def looks_like_openai_chat(head: bytes, path_name: str = "") -> bool:
    """Return whether the beginning of a file may be a list of chat messages."""
    is_list = b'"role"' in head and kit.begins_with_messages(head, _LIST, "role", "messages")
    return is_list and not any(sign.search(head) for sign in (_NOT_CHAT, kit.ONLY_RESPONSES, kit.ONLY_ANTHROPIC))


def parse_openai_chat(data: bytes, name: str = "the file") -> tuple[kit.SessionPart, ...]:
    """Return the session in a list of chat messages; of many objects with ``messages``, one a line, a session each.

    ``name`` is that of the file in errors and metadata; the session's id is made from it and the first messages.
    Raises `UnreadableFile` if there is no list; every other fault is in the report. O(size).
    """
    notes = kit.Notes("item")
    items = kit.read_items(data, notes, name, ("messages",))
    values = [item.value for item in items.items]
    if not values or not all("role" not in value and isinstance(value.get("messages"), list) for value in values):
        return (_session(name, items, notes),)
    return tuple(_conversation(name, item) for item in items.items)


read_openai_chat = partial(kit.DocumentReader, parse_openai_chat)


def _conversation(name: str, item: kit.Item) -> kit.SessionPart:
    """Return one of many conversations in a file, as files for training have them."""
    notes = kit.Notes("item")
    items = kit.Items(kit.items_of(item.value["messages"], notes), without(item.value, "messages"))
    return _session(f"{name}#{item.index}", items, notes)


def _session(name: str, items: kit.Items, notes: kit.Notes) -> kit.SessionPart:
    chain = kit.Chain(kit.list_session_id(READ_CHAT_FORMAT, name, items), notes)
    names: dict[str, str] = {}
    for item in items.items:
        message = message_from_chat(item.value, names)
        names.update(calls_in(message))
        entry, extra = kit.message_entry(message, item.value, item.index, notes)
        if not extra and entry.role is not None:
            extra = chat_difference(message, item.value)
        chain.add(entry, item.index, beside=extra)
    return kit.list_session(READ_CHAT_FORMAT, name, items, chain)


# OpenAI Responses items: those that the Responses API takes and gives back, as a list or in an object that has one.
#
# Every item is one entry, so that a list that grows adds entries only. docs/formats/lists.md says how ids
# are made.

READ_RESPONSES_FORMAT = "openai-responses"

_READ_RESPONSES_LIST = re.compile(rb'\s*(\[\s*\{|\{(?s:.{0,8000}?)"(input|output|items)"\s*:\s*\[)')
_READ_RESPONSES_ROW = re.compile(rb'"(parentUuid|sessionId|parentId|payload)"\s*:')


def looks_like_openai_responses(head: bytes, path_name: str = "") -> bool:
    """Return whether the beginning of a file may be a list of Responses items."""
    is_list = kit.begins_with_messages(head, _READ_RESPONSES_LIST, "role", "type")
    return is_list and bool(kit.ONLY_RESPONSES.search(head)) and not _READ_RESPONSES_ROW.search(head)


def parse_openai_responses(data: bytes, name: str = "the file") -> tuple[kit.SessionPart, ...]:
    """Return the session in a list of Responses items.

    ``name`` is that of the file in errors and metadata; the session's id is made from it and the first items.
    Raises `UnreadableFile` if there is no list; every other fault is in the report. O(size).
    """
    notes = kit.Notes("item")
    items = kit.read_items(data, notes, name, ("input", "output", "items"))
    chain = kit.Chain(kit.list_session_id(READ_RESPONSES_FORMAT, name, items), notes)
    names: dict[str, str] = {}
    messages = []
    for item in items.items:
        messages.append(message_from_item(item.value, names))
        names.update(calls_in(messages[-1]))
    _count(items.beside, [item.value for item in items.items], messages)
    for item, message in zip(items.items, messages, strict=True):
        entry, extra = kit.message_entry(message, item.value, item.index, notes)
        if not extra and entry.role is not None:
            extra = responses_difference(message, item.value)
        entry = kit.with_response(entry, READ_RESPONSES_FORMAT, items.beside.get("id"))
        chain.add(entry, item.index, beside=extra)
    return (kit.list_session(READ_RESPONSES_FORMAT, name, items, chain),)


read_openai_responses = partial(kit.DocumentReader, parse_openai_responses)


def _count(response: JsonObject, output: Sequence[JsonObject], messages: Sequence[JsonObject]) -> None:
    """Put the usage of a whole response on the last answer in it: it was one call."""
    usage = response.get("usage")
    answers = [message for message in messages if message.get("role") == "assistant"]
    if response.get("object") != "response" or not isinstance(usage, dict) or not answers:
        return
    usage = {**usage, **billed_by(response, {"server_tool_use": charged(output)})}
    read = read_reported(usage)
    answers[-1]["usage"] = usage if read.oddities or not read.is_known else usage_json(read)
    if isinstance(response.get("model"), str):
        answers[-1]["model"] = response["model"]


# A context as a list of OpenAI chat messages.


def export_openai_chat(context: Iterable[ContextEntry]) -> kit.Exported:
    """Return a context as chat messages (see `chat_list`). Cost: O(messages)."""
    left = Leftovers()
    return kit.exported_json(READ_CHAT_FORMAT, [*chat_list(said_in(context), left)], left)


# A context as a list of OpenAI Responses items.


def export_openai_responses(context: Iterable[ContextEntry]) -> kit.Exported:
    """Return a context as Responses items (see `responses_list`). Cost: O(messages)."""
    left = Leftovers()
    return kit.exported_json(READ_RESPONSES_FORMAT, [*responses_list(said_in(context), left)], left)
