"""The text of messages as the steps read and shorten it."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from flue_py.context.items import Item
from flue_py.core.jsontext import JsonObject, JsonValue

PATH = "path"
"""The argument that names the file that a tool reads or writes, in whatever case."""


def text_parts(message: Mapping[str, JsonValue]) -> list[str]:
    """Return the texts of a message, in order: its content, or that of each part that is text."""
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else ()
    return [text for part in parts if isinstance(text := part_text(part), str)]


def is_text(part: JsonValue) -> bool:
    """Return whether a part of a content is text."""
    return isinstance(part, dict) and part.get("type") == "text"


def part_text(part: JsonValue) -> JsonValue:
    """Return what a part says, None if it is no text."""
    return part.get("text") if isinstance(part, dict) and is_text(part) else None


def text_length(message: Mapping[str, JsonValue]) -> int:
    """Return how many characters the texts of a message have together."""
    return sum(map(len, text_parts(message)))


def with_text(message: Mapping[str, JsonValue], text: str) -> JsonObject:
    """Return a message whose content is one text, in the form in which its content was."""
    is_plain = isinstance(message.get("content"), str)
    return {**message, "content": text if is_plain else [{"type": "text", "text": text}]}


def texts_only(message: Mapping[str, JsonValue]) -> JsonObject | None:
    """Return a message with nothing but its texts, None if it has none with words in it."""
    content = message.get("content")
    if isinstance(content, str):
        return dict(message) if content.strip() else None
    kept: list[JsonValue] = [
        part for part in content_parts(message) if isinstance(text := part_text(part), str) and text.strip()
    ]
    return {**message, "content": kept} if kept else None


def cut_to(message: Mapping[str, JsonValue], limit: int, tail: Callable[[int], str]) -> JsonObject | None:
    """Return a message whose texts are cut after so many characters, all together; None if they are not longer.

    ``tail`` makes the note behind the last of them from how many characters are missing. Parts that are no text stay.
    """
    missing = text_length(message) - limit
    if missing <= 0:
        return None
    if isinstance(content := message.get("content"), str):
        return {**message, "content": content[:limit] + tail(missing)}
    return {**message, "content": _cut_parts(message, limit, tail(missing))}


def _cut_parts(message: Mapping[str, JsonValue], limit: int, note: str) -> list[JsonValue]:
    kept: list[JsonValue] = []
    left = limit
    is_cut = False
    for part in content_parts(message):
        text = part_text(part)
        if not isinstance(part, dict) or not isinstance(text, str):
            kept.append(part)
            continue
        if is_cut:
            continue
        if len(text) <= left:
            kept.append(part)
            left -= len(text)
            continue
        kept.append({**unsigned(part), "text": text[:left] + note})
        is_cut = True
    return kept


def is_thinking(part: JsonValue) -> bool:
    """Return whether a part of a content is reasoning."""
    return isinstance(part, dict) and part.get("type") == "thinking"


def is_signed(part: Mapping[str, JsonValue]) -> bool:
    """Return whether a provider has signed a part of a content: it takes it back as it was alone."""
    return any(name.lower().endswith("signature") and value for name, value in part.items())


def unsigned(part: Mapping[str, JsonValue]) -> JsonObject:
    """Return a part without its signature, for one that says something else than what was signed."""
    return {name: value for name, value in part.items() if not name.lower().endswith("signature")}


def with_arguments(
    message: Mapping[str, JsonValue], place: int, instead: Callable[[str], str], *, longer_than: int
) -> JsonObject | None:
    """Return an answer with other texts in place of the long ones among the arguments of a call; None if none is long.

    ``place`` is that of the call in the content. A path stays: it says which file it was.
    """
    parts = [*content_parts(message)]
    call = parts[place]
    arguments = call.get("arguments") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(arguments, dict):
        return None
    made = {
        name: instead(value)
        if isinstance(value, str) and len(value) > longer_than and name.casefold() != PATH
        else value
        for name, value in arguments.items()
    }
    if made == arguments:
        return None
    parts[place] = {**unsigned(call), "arguments": made}
    return {**message, "content": parts}


def content_parts(message: Mapping[str, JsonValue]) -> list[JsonValue]:
    """Return the parts of a content that is a list, [] of any other."""
    content = message.get("content")
    return content if isinstance(content, list) else []


def as_parts(message: Mapping[str, JsonValue]) -> list[JsonObject]:
    """Return the content of a message as parts, a text as the only one. What is no object is left out."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [part for part in content_parts(message) if isinstance(part, dict)]


def calls_kept(item: Item, answered: Container[int]) -> Item | None:
    """Return an answer without the calls whose place in the content is not ``answered``; None if nothing is left.

    Without any call left, it is reduced to its text: reasoning before a call leads nowhere without it.
    """
    message = item.message
    content = content_parts(message)
    kept = [part for place, part in enumerate(content) if not _is_call(part) or place in answered]
    if len(kept) == len(content):
        return item
    if any(map(_is_call, kept)):
        return item.cut({**message, "content": kept})
    rest = texts_only(message)
    return None if rest is None else item.cut(rest)


def _is_call(part: JsonValue) -> bool:
    return isinstance(part, dict) and part.get("type") == "toolCall"
