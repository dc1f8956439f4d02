"""What stands in a payload for a picture that is lost: ``[image no longer available: <name>]``.

The bytes of pictures and files are stored apart from the payloads they were cut out of. Where a damaged store has lost
some, the rest of the entry is still worth reading: the part that they were of becomes a part of text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from flue_py.core.cutting import splice
from flue_py.core.jsontext import JsonObject, JsonValue, decode_json, encode_json

_NAMES = ("filename", "fileName", "file_name", "name", "title", "mimeType", "mime_type", "media_type", "mediaType")
"""The fields by which parts of messages name what they hold, the best first."""

_OF_TEXT = frozenset({"text", "thinking", "toolCall", "tool_use", "toolResult", "tool_result", "input_text"})
"""Parts that may quote base64, and are not made of it."""

_IN_A_URL = r"data:([\w.+-]+/[\w.+-]+)?[^,\s]{0,200};base64,"


def without_lost(rest: bytes, pieces: Sequence[tuple[int, bytes | None]], what: str) -> str:
    """Return the text that ``rest`` was cut from, with words for the pieces that are lost (None).

    A part of a message becomes a part of text; a text that has base64 among its words gets words in that place. The
    rest is as it was. ``what`` names the value in errors. Raises `CorruptStore` if it is not JSON. O(size).
    """
    mark = "LostPicture"
    while mark.encode() in rest:
        mark += "X"
    whole = splice(rest, [(place, mark.encode() if piece is None else piece) for place, piece in pieces])
    return encode_json(_Replacing(mark).value(decode_json(whole), None), what)[0]


class _Replacing:
    """Puts words for what is marked as lost."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._marked = re.compile(f"(?:{_IN_A_URL})?{mark}")

    def value(self, value: JsonValue, part: JsonObject | None) -> JsonValue:
        """Return a value with the words in it. ``part`` is the object that it belongs to, and that may name it."""
        if isinstance(value, str):
            return self._said(value, part or {}) if self._mark in value else value
        if isinstance(value, list):
            return [self._item(item, part) for item in value]
        if isinstance(value, dict):
            return {str(self.value(key, None)): self.value(item, value) for key, item in value.items()}
        return value

    def _item(self, item: JsonValue, part: JsonObject | None) -> JsonValue:
        kind = item.get("type") if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(kind, str) or kind in _OF_TEXT:
            return self.value(item, part)
        lost = self._lost_in(item)
        if lost is None:
            return self.value(item, part)
        return {"type": "input_text" if kind.startswith("input_") else "text", "text": self._words(lost, item)}

    def _lost_in(self, part: JsonObject) -> str | None:
        """Return the text of a part that is lost, as far as it is there; not one of a part within a list of it."""
        for value in part.values():
            found = self._lost_in(value) if isinstance(value, dict) else value
            if isinstance(found, str) and self._mark in found:
                return found
        return None

    def _said(self, text: str, part: JsonObject) -> str:
        return self._marked.sub(lambda found: self._words(found[0], part), text)

    def _words(self, lost: str, part: JsonObject) -> str:
        found = self._marked.search(lost)
        kind = part.get("type")
        name = _name_in(part) or (found[1] if found is not None else None) or (kind if isinstance(kind, str) else None)
        return f"[image no longer available: {name or 'unknown'}]"


def _name_in(part: JsonObject) -> str | None:
    """Return how a part names what it holds: its own fields first, then those of what is in it."""
    for name in _NAMES:
        value = part.get(name)
        if isinstance(value, str) and value:
            return value
    inside = (_name_in(value) for value in part.values() if isinstance(value, dict))
    return next((name for name in inside if name is not None), None)
