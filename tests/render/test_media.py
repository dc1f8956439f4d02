"""Pictures and files in the parts of messages: which are pictures that pages show, and the names of all."""

from __future__ import annotations

from base64 import b64encode
from struct import pack

from flue_py.core.json import JsonObject
from flue_py.render.tools import MOST_CHARACTERS, MOST_PIXELS, media_of
from tests.render.pictures import GIF, JPEG, PNG, SVG, WEBP
from tests.tables import inputs
from tests.values import existing

LARGE = b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + pack(">II", 4, MOST_PIXELS // 4 + 1)).decode()


@inputs(
    ("part", "name"),
    [
        ({"type": "image", "mimeType": "image/png", "data": PNG}, "image, image/png, 3 x 2 pixels, 93 bytes"),
        ({"type": "image", "data": PNG}, "image, image/png, 3 x 2 pixels, 93 bytes"),
        ({"type": "image", "mimeType": "image/png", "data": JPEG}, "image, image/jpeg, 3 x 2 pixels, 286 bytes"),
        ({"type": "image", "url": f"data:image/webp;base64,{WEBP}"}, "image, image/webp, 3 x 2 pixels, 56 bytes"),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": GIF}},
            "image, image/gif, 3 x 2 pixels, 35 bytes",
        ),
        (
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"}},
            "image_url, image/png, 3 x 2 pixels, 93 bytes",
        ),
        ({"type": "input_image", "image_url": f"data:;base64,{PNG}"}, "input_image, image/png, 3 x 2 pixels, 93 bytes"),
        ({"inlineData": {"mimeType": "image/gif", "data": GIF}}, "file, image/gif, 3 x 2 pixels, 35 bytes"),
        ({"inline_data": {"mime_type": "image/gif", "data": GIF}}, "file, image/gif, 3 x 2 pixels, 35 bytes"),
        ({"type": "file", "file": {"file_data": f"data:x/y;base64,{PNG}"}}, "file, image/png, 3 x 2 pixels, 93 bytes"),
        ({"type": "image", "mimeType": "image/png", "data": SVG}, "image, image/svg+xml, 77 bytes"),
        ({"type": "image", "mimeType": "image/png", "data": "AAAA"}, "image, image/png, 3 bytes"),
        ({"type": "image", "data": "\u00e9\u202e"}, "image, type unknown, 1 byte"),
        ({"type": "image", "mimeType": "a\n\x1bb", "data": "AAAA"}, "image, a\n\x1bb, 3 bytes"),
        ({"type": "file", "filename": "a.png", "data": PNG}, "a.png, file, image/png, 3 x 2 pixels, 93 bytes"),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, "input_audio, wav, 3 bytes"),
    ],
)
def test_a_picture_is_known_by_its_first_bytes(part: JsonObject, name: str) -> None:
    media = existing(media_of(part))
    assert media.name == name
    assert media.is_picture is media.is_small is ("3 x 2 pixels" in name)


@inputs(
    "part",
    [
        {},
        {"type": "text", "text": f"data:image/png;base64,{PNG}"},
        {"type": "image", "url": "https://example.com/x.png"},
        {"type": "image", "url": "data:image/svg+xml,<svg/>"},
        {"type": "redacted_thinking", "data": "AAAA"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
        {"type": "image", "data": 5, "source": [], "image_url": None},
    ],
)
def test_a_part_without_bytes_is_no_picture(part: JsonObject) -> None:
    assert media_of(part) is None


@inputs("data", [PNG[:24], LARGE, PNG + "A" * MOST_CHARACTERS])
def test_a_picture_that_is_too_large_or_of_unknown_size_is_not_small(data: str) -> None:
    media = existing(media_of({"type": "image", "data": data}))
    assert (media.is_picture, media.is_small) == (True, False)
