"""Plain lists of messages: what tells the three formats of them apart, and the session that a list is.

They are told apart by types of items and parts that only one of them has. Text inside a message does not mislead: the
quotation marks of JSON within JSON are escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace

from flue_py.core.entries import NewEntry
from flue_py.core.ids import made_id
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.formats.kit.documents import Item, Items
from flue_py.formats.kit.linear import Chain, imported_session
from flue_py.formats.kit.parsed import ParsedSession

ONLY_RESPONSES = re.compile(
    rb'"type"\s*:\s*"(message|reasoning|item_reference|input_text|input_image|input_file|output_text|summary_text'
    rb"|(function|custom_tool|local_shell|shell|apply_patch|computer|tool_search)_call(_output)?|tool_search_output"
    rb'|(web_search|file_search|image_generation|code_interpreter|mcp)_call|mcp_list_tools|mcp_approval_re(quest|sponse))"'
)
ONLY_ANTHROPIC = re.compile(rb'"type"\s*:\s*"(tool_use|tool_result|thinking|redacted_thinking|server_tool_use)"')
_LONGEST_SIGN = 200
_FIRST_ITEMS = 20


def begins_with_messages(head: bytes, beginning: re.Pattern[bytes], *fields: str) -> bool:
    """Return whether a file begins with a list whose first items may be messages: one has one of ``fields``.

    ``beginning`` matches up to the bracket of the list, or up to the brace of its first item.
    What is torn, or not JSON, may be anything. Lists of other programs hold messages deeper, or others.
    """
    start = head.removeprefix(b"\xef\xbb\xbf")
    found = beginning.match(start)
    if found is None:
        return False
    text, decoder, there = start[found.end() - 1 :].decode(errors="replace"), json.JSONDecoder(), 0
    place = text.find("{")
    for _ in range(_FIRST_ITEMS):
        try:
            item, end = decoder.raw_decode(text, max(0, place))
        except (ValueError, RecursionError):
            break
        if not isinstance(item, dict) or any(field in item for field in fields):
            return True
        there += 1
        place = text.find("{", end) if text[end:].lstrip().startswith(",") else -1
        if place < 0:
            break
    return there == 0


def other_list(chunks: Iterable[bytes]) -> str | None:
    """Return whose list a file is that begins as chat messages do, from what comes later in it; None: it is chat.

    Roles and texts alone are chat messages, Anthropic messages and Responses items alike. O(size), a chunk at a time.
    """
    is_list, before = None, b""
    for chunk in chunks:
        text = before + chunk
        if is_list is None:
            is_list = text.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
        if is_list and ONLY_RESPONSES.search(text):
            return "openai-responses"
        if ONLY_ANTHROPIC.search(text):
            return "anthropic"
        before = text[-_LONGEST_SIGN:]
    return None


def list_session_id(format_name: str, name: str, items: Items) -> str:
    """Return the id of the session of a list: made from the file's name and its items up to the first of the user."""
    beginning = []
    for item in items.items:
        beginning.append(_text(item))
        if item.value.get("role") == "user":
            break
    return made_id(format_name, name, *beginning)


def _text(item: Item) -> str:
    try:
        return json.dumps(item.value)
    except RecursionError:
        return ""


def list_session(format_name: str, name: str, items: Items, chain: Chain) -> ParsedSession:
    """Return the session of a list; what stood beside the list is kept in its metadata."""
    beside: JsonObject = {"document": items.beside} if items.beside else {}
    return chain.parsed(format_name, "1", imported_session(chain.session_id, format_name, name, beside, chain.notes))


def with_response(entry: NewEntry, format_name: str, response: JsonValue) -> NewEntry:
    """Return an entry whose calls have an id made from that of the response, which may stand in several lists."""
    if not isinstance(response, str):
        return entry
    return replace(entry, calls=tuple(replace(call, call_id=made_id(format_name, response)) for call in entry.calls))
