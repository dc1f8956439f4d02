"""The texts of an entry that are searched: what was said, what tools were called with and answered, reasoning,
summaries. Pictures, base64, signatures and encrypted reasoning are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from flue_py.core.entries import Entry
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonValue
from flue_py.core.kinds import CUSTOM_MESSAGE, MESSAGE, SUMMARIES
from flue_py.search.values import Part

VERSION = 2
"""Which texts an entry has. An index that was made by another version is made anew."""

MOST_CHARACTERS = 10_000_000
"""What is searched of one text of an entry: its beginning."""
MOST_OF_TOOLS = 200_000
"""The same of what a tool was called with or answered: programs write more than people read."""

# Written in one piece, or in lines of 60 to 76 characters as mail and certificates have it. The digit and both cases
# keep long words and paths out; nobody looks for the middle of what this removes.
_ENCODED = re.compile(r"(?:[A-Za-z0-9+/_-]{60,}[\r\n]{0,2}){2,}[A-Za-z0-9+/_-]*={0,2}|[A-Za-z0-9+/_-]{200,}={0,2}")
_DIGIT, _LOWER, _UPPER = re.compile(r"\d"), re.compile(r"[a-z]"), re.compile(r"[A-Z]")
_SHORTEST_RUN = 60
_BETWEEN = re.compile(r"[/_-]")
_MOST_BETWEEN = 12
"""Paths have one of these signs in so many characters; what is encoded has one in 32 at most."""
_DEEPEST = 40


@frozen
class SearchedText:
    """A text of an entry, its beginning where it is long (``is_cut``), and which part of it that is."""

    part: Part
    tool: str | None
    text: str
    is_cut: bool = False


def texts_of(entry: Entry) -> tuple[SearchedText, ...]:
    """Return the texts of an entry, at most one for each part (for tools, one for each tool). O(payload).

    Never raises for what is stored: what is not shaped as messages are has no text.
    """
    try:
        value = entry.data
    except Exception:  # noqa: BLE001 - a payload that cannot be decoded is what `verify` is for; here it has no text
        return ()
    if not isinstance(value, dict):
        return ()
    found: dict[tuple[Part, str | None], list[str]] = {}
    for part, tool, text in _pieces(entry.kind, value):
        if text.strip():
            found.setdefault((part, tool), []).append(text)
    return tuple(_searched(part, tool, "\n".join(texts)) for (part, tool), texts in found.items())


def title_text(title: str) -> SearchedText:
    """Return the title of a session as it is searched."""
    return _searched("titles", None, title)


def _searched(part: Part, tool: str | None, text: str) -> SearchedText:
    most = MOST_OF_TOOLS if part == "tools" else MOST_CHARACTERS
    plain = without_encoded(text[: most * 4])
    return SearchedText(part, tool, plain[:most], is_cut=len(plain) > most)


def without_encoded(text: str) -> str:
    """Return a text with a mark in place of what is base64 in it. O(characters)."""
    if max(map(len, text.split()), default=0) < _SHORTEST_RUN:
        return text
    return _ENCODED.sub(_mark, text)


def _mark(found: re.Match[str]) -> str:
    text = found[0]
    is_path = len(_BETWEEN.findall(text)) * _MOST_BETWEEN > len(text)
    is_encoded = not is_path and _DIGIT.search(text) and _LOWER.search(text) and _UPPER.search(text)
    return "…" if is_encoded else text


def _pieces(kind: str, value: Mapping[str, JsonValue]) -> Iterator[tuple[Part, str | None, str]]:
    if kind in SUMMARIES:
        summary = value.get("summary")
        if isinstance(summary, str):
            yield "summaries", None, summary
    elif kind in (MESSAGE, CUSTOM_MESSAGE):
        yield from _of_message(value)


def _of_message(value: Mapping[str, JsonValue]) -> Iterator[tuple[Part, str | None, str]]:
    role = value.get("role")
    is_result = role in ("toolResult", "tool", "bashExecution")
    tool = value.get("toolName") if is_result else None
    name = tool if isinstance(tool, str) else None
    said: Part = "tools" if is_result else "messages"
    for field in ("command", "output") if role == "bashExecution" else ():
        each = value.get(field)
        if isinstance(each, str):
            yield "tools", None, each
    error = value.get("errorMessage")
    if isinstance(error, str):
        yield said, name, error
    content = value.get("content")
    if isinstance(content, str):
        yield said, name, content
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict):
            yield from _of_part(part, said, name)


def _of_part(part: Mapping[str, JsonValue], said: Part, tool: str | None) -> Iterator[tuple[Part, str | None, str]]:
    text, thinking, name = part.get("text"), part.get("thinking"), part.get("name")
    match part.get("type"):
        case "text" if isinstance(text, str):
            yield said, tool, text
        case "thinking" if isinstance(thinking, str) and part.get("redacted") is not True:
            yield "thinking", None, thinking
        case "toolCall" if isinstance(name, str):
            yield "tools", name, "\n".join([name, *_strings(part.get("arguments"), 0)])
        case "file" if isinstance(filename := part.get("filename"), str):
            yield said, tool, filename


def _strings(value: JsonValue, depth: int) -> Iterator[str]:
    """Yield what is written in a call's arguments, in order: texts, names of fields, numbers."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, bool) or value is None or depth > _DEEPEST:
        return
    elif isinstance(value, (int, float)):
        yield str(value)
    elif isinstance(value, dict):
        for key, each in value.items():
            if depth:
                yield key
            yield from _strings(each, depth + 1)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each, depth + 1)
