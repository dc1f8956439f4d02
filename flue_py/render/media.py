"""Pictures and files in messages, in the form of any provider: their names, and the pictures that may be shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from flue_py.core.json import Frozen, JsonValue
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    from flue_py.providers import base
else:
    # Only a picture needs it.
    base = lazy_module("flue_py.providers.base")

MOST_CHARACTERS = 4_000_000
"""How long the base64 of a picture may be that is shown."""
MOST_PIXELS = 40_000_000
PICTURES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}
"""The types of pictures that browsers show, and how their files end."""
_LONGEST_WORD = 80
_KINDS = ("image", "file", "document", "audio", "input_audio")
# The objects of a part that data lie in, and the names of the fields with data, or with a URL that has them.
_HOLDERS = ("source", "image_url", "inlineData", "inline_data", "file", "input_audio")
_FIELDS = ("data", "url", "image_url", "file_data")
_DATA_URL = re.compile(r"data:([^;,]*)[^,]*;base64,")
_TYPES = ("mimeType", "media_type", "mime_type", "format")


class Media(Frozen):
    """A picture or a file: its name for people, its base64, its type by its bytes ("" if unknown), width and height."""

    name: str
    data: str
    mime_type: str
    size: tuple[int, int] | None

    @property
    def is_picture(self) -> bool:
        """Return whether its bytes are those of a picture that browsers show."""
        return self.mime_type in PICTURES

    @property
    def is_small(self) -> bool:
        """Return whether it is a picture that a page shows: its size is known, and below the bounds."""
        is_bounded = self.size is not None and self.size[0] * self.size[1] <= MOST_PIXELS
        return self.is_picture and is_bounded and len(self.data) <= MOST_CHARACTERS


def media_of(part: Mapping[str, JsonValue]) -> Media | None:
    """Return the picture or the file that a part of a message has the bytes of; None for any other part. O(size)."""
    for fields in (part, *(part.get(name) for name in _HOLDERS)):
        if not isinstance(fields, dict) or fields.get("type") == "text":
            continue
        declared = next((value for name in _TYPES if isinstance(value := fields.get(name), str)), None)
        for name in _FIELDS:
            text = fields.get(name)
            if not isinstance(text, str):
                continue
            if (url := _DATA_URL.match(text)) is not None:
                return _media({**fields, **part}, url[1], text[url.end() :])
            if name == "data" and (declared or part.get("type") in _KINDS):
                return _media({**fields, **part}, declared, text)
    return None


def _media(part: Mapping[str, JsonValue], declared: str | None, data: str) -> Media:
    real, size = base.type_of_bytes(data), base.pixels(data)
    count = len(data.rstrip("=")) * 3 // 4
    words = [
        *(word for name in ("name", "filename", "title") if isinstance(word := part.get(name), str)),
        str(part.get("type") or "file"),
        real or declared or "type unknown",
        f"{size[0]:,} x {size[1]:,} pixels" if size else "",
        f"{count:,} byte{'s' * (count != 1)}",
    ]
    name = ", ".join(word[:_LONGEST_WORD] for word in words if word)
    return Media(name, data.translate(base.OTHER_ALPHABET), real or "", size)
