"""OpenAI chat messages, as they are sent to and kept by many programs: a list, or an object that has one.

The list has no session and no ids: docs/formats/openai-chat.md says how they are made.
"""

from __future__ import annotations

import re
from functools import partial

from flue_py.formats.kit.documents import Item, Items, items_of, read_items
from flue_py.formats.kit.linear import Chain, message_entry
from flue_py.formats.kit.lists import (
    ONLY_ANTHROPIC,
    ONLY_RESPONSES,
    begins_with_messages,
    list_session,
    list_session_id,
)
from flue_py.formats.kit.parsed import ParsedSession
from flue_py.formats.kit.rows import Notes
from flue_py.formats.kit.streaming import DocumentReader
from flue_py.wire.openai_chat import calls_in, chat_difference, message_from_chat

FORMAT = "openai-chat"

_LIST = re.compile(rb'\s*(\[\s*\{|\{(?s:.{0,4000}?)"messages"\s*:\s*\[)')
_NOT_CHAT = re.compile(rb'"type"\s*:\s*"session"|"parentUuid"|"sessionId"')


def looks_like_openai_chat(head: bytes, path_name: str = "") -> bool:
    """Return whether the beginning of a file may be a list of chat messages."""
    is_list = b'"role"' in head and begins_with_messages(head, _LIST, "role", "messages")
    return is_list and not any(sign.search(head) for sign in (_NOT_CHAT, ONLY_RESPONSES, ONLY_ANTHROPIC))


def parse_openai_chat(data: bytes, name: str = "the file") -> tuple[ParsedSession, ...]:
    """Return the session in a list of chat messages; of many objects with ``messages``, one a line, a session each.

    ``name`` is what errors and metadata call the file, and, with the first messages, what the session's id is made
    from. Raises `UnreadableFile` if there is no list; every other fault is in the report. O(size).
    """
    notes = Notes("item")
    items = read_items(data, notes, name, ("messages",))
    held = [item.value.get("messages") for item in items.items if "role" not in item.value]
    if not held or len(held) < len(items.items) or not all(isinstance(each, list) for each in held):
        return (_session(name, items, notes),)
    return tuple(_conversation(name, item) for item in items.items)


read_openai_chat = partial(DocumentReader, parse_openai_chat)


def _conversation(name: str, item: Item) -> ParsedSession:
    """Return one of many conversations in a file, as files for training have them."""
    notes = Notes("item")
    beside = {key: value for key, value in item.value.items() if key != "messages"}
    return _session(f"{name}#{item.index}", Items(items_of(item.value["messages"], notes), beside), notes)


def _session(name: str, items: Items, notes: Notes) -> ParsedSession:
    chain = Chain(list_session_id(FORMAT, name, items), notes)
    names: dict[str, str] = {}
    for item in items.items:
        message = message_from_chat(item.value, names)
        names.update(calls_in(message))
        entry, beside = message_entry(message, item.value, item.index, notes)
        if not beside and entry.role is not None:
            beside = chat_difference(message, item.value)
        chain.add(entry, item.index, beside=beside)
    return list_session(FORMAT, name, items, chain)
