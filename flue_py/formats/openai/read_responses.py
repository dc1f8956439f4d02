"""OpenAI Responses items: what the Responses API is sent and gives back, as a list or in an object that has one.

Every item is one entry, so that a list that grows adds entries only. docs/formats/openai-responses.md says how ids
are made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from flue_py.core.jsontext import JsonObject
from flue_py.core.usage_shapes import billed_by, read_reported, usage_json
from flue_py.formats.kit.documents import read_items
from flue_py.formats.kit.linear import Chain, message_entry
from flue_py.formats.kit.lists import ONLY_RESPONSES, begins_with_messages, list_session, list_session_id, with_response
from flue_py.formats.kit.parsed import ParsedSession
from flue_py.formats.kit.rows import Notes
from flue_py.formats.kit.streaming import DocumentReader
from flue_py.wire.openai_chat import calls_in
from flue_py.wire.openai_responses import message_from_item, responses_difference
from flue_py.wire.responses import charged

FORMAT = "openai-responses"

_LIST = re.compile(rb'\s*(\[\s*\{|\{(?s:.{0,8000}?)"(input|output|items)"\s*:\s*\[)')
_ROW = re.compile(rb'"(parentUuid|sessionId|parentId|payload)"\s*:')


def looks_like_openai_responses(head: bytes, path_name: str = "") -> bool:
    """Return whether the beginning of a file may be a list of Responses items."""
    is_list = begins_with_messages(head, _LIST, "role", "type")
    return is_list and bool(ONLY_RESPONSES.search(head)) and not _ROW.search(head)


def parse_openai_responses(data: bytes, name: str = "the file") -> tuple[ParsedSession, ...]:
    """Return the session in a list of Responses items.

    ``name`` is what errors and metadata call the file, and, with the first items, what the session's id is made
    from. Raises `UnreadableFile` if there is no list; every other fault is in the report. O(size).
    """
    notes = Notes("item")
    items = read_items(data, notes, name, ("input", "output", "items"))
    chain = Chain(list_session_id(FORMAT, name, items), notes)
    names: dict[str, str] = {}
    messages = []
    for item in items.items:
        messages.append(message_from_item(item.value, names))
        names.update(calls_in(messages[-1]))
    _count(items.beside, [item.value for item in items.items], messages)
    for item, message in zip(items.items, messages, strict=True):
        entry, beside = message_entry(message, item.value, item.index, notes)
        if not beside and entry.role is not None:
            beside = responses_difference(message, item.value)
        entry = with_response(entry, FORMAT, items.beside.get("id"))
        chain.add(entry, item.index, beside=beside)
    return (list_session(FORMAT, name, items, chain),)


read_openai_responses = partial(DocumentReader, parse_openai_responses)


def _count(response: JsonObject, output: Sequence[JsonObject], messages: Sequence[JsonObject]) -> None:
    """Put what a whole response reports to have used on the last answer in it: it was one call."""
    usage = response.get("usage")
    answers = [message for message in messages if message.get("role") == "assistant"]
    if response.get("object") != "response" or not isinstance(usage, dict) or not answers:
        return
    usage = {**usage, **billed_by(response, {"server_tool_use": charged(output)})}
    read = read_reported(usage)
    answers[-1]["usage"] = usage if read.oddities or not read.is_known else usage_json(read)
    if isinstance(response.get("model"), str):
        answers[-1]["model"] = response["model"]
