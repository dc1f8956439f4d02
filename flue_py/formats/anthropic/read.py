"""Anthropic message lists: what the Messages API is sent, as a list or as the whole body of a request.

A user message with results of tools becomes one message for each result, and one for the rest. The list has no
session and no ids: docs/formats/anthropic.md says how they are made.
"""

from __future__ import annotations

import re
from functools import partial

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.formats.kit.documents import read_items
from flue_py.formats.kit.linear import UNREADABLE_MESSAGE, Chain, message_entry
from flue_py.formats.kit.lists import begins_with_messages, list_session, list_session_id, with_response
from flue_py.formats.kit.parsed import ParsedSession
from flue_py.formats.kit.rows import Notes
from flue_py.formats.kit.streaming import DocumentReader
from flue_py.wire.anthropic import (
    messages_from_anthropic,
    part_from_block,
)
from flue_py.wire.openai_chat import calls_in

FORMAT = "anthropic"

_LIST = re.compile(rb'\s*(\[\s*\{|\{(?s:.{0,4000}?)"messages"\s*:\s*\[)')
_SIGNS = re.compile(
    rb'"type"\s*:\s*"(tool_use|tool_result|thinking|redacted_thinking|document|server_tool_use)"|"cache_control"'
    rb'|"media_type"|"max_tokens"|"stop_reason"|"anthropic_version"'
)
_ROW = re.compile(rb'"(parentUuid|sessionId|uuid|tool_calls|tool_call_id)"\s*:')


def looks_like_anthropic(head: bytes, path_name: str = "") -> bool:
    """Return whether the beginning of a file may be an Anthropic list: one with blocks that only Anthropic has."""
    is_list = b'"role"' in head and begins_with_messages(head, _LIST, "role", "messages")
    return is_list and bool(_SIGNS.search(head)) and not _ROW.search(head)


def parse_anthropic(data: bytes, name: str = "the file") -> tuple[ParsedSession, ...]:
    """Return the session in an Anthropic message list, or in a request that holds one.

    ``name`` is what errors and metadata call the file, and, with the first messages, what the session's id is made
    from. Raises `UnreadableFile` if there is no list; every other fault is in the report. O(size).
    """
    notes = Notes("item")
    items = read_items(data, notes, name, ("messages",))
    chain = Chain(list_session_id(FORMAT, name, items), notes)
    if "system" in items.beside:
        system = items.beside["system"]
        message: JsonObject = {"role": "system", "content": _system_parts(system)}
        entry, _ = message_entry(message, {"system": system}, 0, notes)
        chain.add(entry, 0)
    names: dict[str, str] = {}
    for item in items.items:
        for message, beside in messages_from_anthropic(item.value, names):
            names.update(calls_in(message))
            entry, found = message_entry(message, item.value, item.index, notes)
            entry = with_response(entry, FORMAT, item.value.get("id"))
            chain.add(entry, item.index, beside=found if entry.kind == UNREADABLE_MESSAGE else {**beside, **found})
    beside = {key: value for key, value in items.beside.items() if key != "system"}
    return (list_session(FORMAT, name, type(items)(items.items, beside), chain),)


read_anthropic = partial(DocumentReader, parse_anthropic)


def _system_parts(system: JsonValue) -> JsonValue:
    return [part_from_block(block) for block in system] if isinstance(system, list) else system
