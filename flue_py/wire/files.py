"""Files as providers take them: in base64. As Anthropic does: a PDF, a plain text as its text; of others, a text."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import TypeAlias

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.wire.anthropic import CACHE_MARK, PDF, PLAIN_TEXT
from flue_py.wire.leftovers import Leftovers
from flue_py.wire.lists.said import Said
from flue_py.wire.media import bare_type, type_of_bytes
from flue_py.wire.openai_chat import image_from_url

FILES = frozenset({"file", "document"})
"""The types of the parts that are files."""
_NO_PDF = "a file that is said to be a PDF, and whose data are those of none"
_NO_PICTURE = "a file that is said to be a picture, and whose data are those of none"


def with_fitting_files(said: Sequence[Said], left: Leftovers) -> list[Said]:
    """Return messages whose files Anthropic takes, with a text in the place of each other one. O(size of files)."""
    return [_fitting(each, left, _part) for each in said]


def with_readable_files(said: Sequence[Said], left: Leftovers) -> list[Said]:
    """Return messages with a text in the place of each file whose data are no base64. O(size of files)."""
    return [_fitting(each, left, _readable) for each in said]


_Fit: TypeAlias = Callable[[JsonValue, str | None, Leftovers], JsonValue]


def _fitting(said: Said, left: Leftovers, fit: _Fit) -> Said:
    content = said.message.get("content")
    if not isinstance(content, list):
        return said
    left.at = said.entry_id
    parts = [fit(part, said.entry_id, left) for part in content]
    return said if parts == content else said.with_message({**said.message, "content": parts})


def _part(part: JsonValue, entry_id: str | None, left: Leftovers) -> JsonValue:
    if not isinstance(part, dict) or part.get("type") not in FILES:
        return part
    data, mime_type = _held(part)
    kind, real = bare_type(mime_type), None if data is None else type_of_bytes(data)
    if kind in (None, PDF) and (data is None or real == PDF):
        return part
    if data is not None and real is not None:
        return _retyped(part, data, real, left)
    if kind == PDF:
        return _left_out(part, _NO_PDF, entry_id, left)
    text = _text(data) if kind == PLAIN_TEXT and data is not None else ""
    if text.strip():
        left.change("a file of plain text goes out as its text")
        return _document(part, text)
    return _left_out(part, _why(kind, is_text=kind == PLAIN_TEXT), entry_id, left)


def _readable(part: JsonValue, entry_id: str | None, left: Leftovers) -> JsonValue:
    if not isinstance(part, dict) or part.get("type") != "file":
        return part
    data, mime_type = _held(part)
    if data is None:
        return part
    if _is_base64(data):
        kind, real = bare_type(mime_type), type_of_bytes(data)
        if real is None and kind is not None and (kind == PDF or kind.startswith("image/")):
            return _left_out(part, _NO_PDF if kind == PDF else _NO_PICTURE, entry_id, left)
        is_other = real is not None and (real != kind or real.startswith("image/"))
        return _retyped(part, data, real, left) if real is not None and is_other else part
    return _left_out(part, "a file whose data are no base64", entry_id, left)


def _retyped(part: JsonObject, data: str, real: str, left: Leftovers) -> JsonObject:
    """Return a file with the type that its data are: as a picture, where they are those of one."""
    left.change(f"a file that is said to be of another type, or of none, goes out as {real}, as its data are")
    if real.startswith("image/"):
        return {"type": "image", "data": data, "mimeType": real}
    if part.get("type") == "document":
        source = part.get("source")
        return {**part, "source": {**(source if isinstance(source, dict) else {}), "media_type": real}}
    return {**{name: value for name, value in part.items() if name != "url"}, "data": data, "mimeType": real}


def _is_base64(text: str) -> bool:
    """Return whether a text is base64, of either alphabet. O(size)."""
    try:
        b64decode(text.translate(_OTHER_ALPHABET), validate=True)
    except ValueError:
        return False
    return True


_OTHER_ALPHABET = str.maketrans("-_", "+/", "\r\n")


def _left_out(part: JsonObject, why: str, entry_id: str | None, left: Leftovers) -> JsonObject:
    left.note(why)
    name = part.get("filename", part.get("title"))
    named = f" {name!r}" if isinstance(name, str) else ""
    stored = "" if entry_id is None else f"; it is stored in entry {entry_id}"
    return {"type": "text", "text": f"[file{named} left out: {why}{stored}]"}


def _why(kind: str | None, *, is_text: bool) -> str:
    if is_text:
        return "a file of plain text that has none, or cannot be read"
    told = "a file that does not say its type" if kind is None else f"a file of type {kind!r}"
    return f"{told}; it takes {PDF} and {PLAIN_TEXT}"


def _held(part: JsonObject) -> tuple[str | None, str | None]:
    """Return the base64 text of a file and its MIME type, from its own fields, its URL or its source; None for none."""
    source, url = part.get("source"), part.get("url")
    if isinstance(source, dict) and part.get("type") == "document":
        found = (source.get("data"), source.get("media_type")) if source.get("type") == "base64" else (None, None)
    else:
        inline = image_from_url(url) if isinstance(url, str) else {}
        found = part.get("data", inline.get("data")), part.get("mimeType", inline.get("mimeType"))
    data, mime_type = found
    return data if isinstance(data, str) else None, mime_type if isinstance(mime_type, str) else None


def _text(data: str) -> str:
    try:
        return b64decode(data).decode()
    except ValueError:  # neither base64 nor UTF-8
        return ""


def _document(part: JsonObject, text: str) -> JsonObject:
    source: JsonObject = {"type": "text", "media_type": PLAIN_TEXT, "data": text}
    if part.get("type") == "document":
        return {**part, "source": source}
    named: JsonObject = {"title": part["filename"]} if isinstance(part.get("filename"), str) else {}
    marked: JsonObject = {CACHE_MARK: part[CACHE_MARK]} if CACHE_MARK in part else {}
    return {"type": "document", "source": source, **named, **marked}
