"""Words stand for a picture that is lost, in every shape that parts of messages have; all else stays as it was."""

from __future__ import annotations

import json

from flue_py.core.json import JsonObject, JsonValue
from flue_py.core.kinds import without_lost
from tests.tables import inputs

LOST = "<lost>"
"""Where in the values of these tests a picture was cut out."""


def read(value: JsonValue, *kept: bytes) -> JsonValue:
    """Return what a value becomes whose pictures are lost, but for those that are ``kept``."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    pieces: list[tuple[int, bytes | None]] = []
    rest = b""
    for number, part in enumerate(text.split(LOST.encode())):
        if number:
            pieces.append((len(rest), kept[number - 1] if number <= len(kept) else None))
        rest += part
    found: JsonValue = json.loads(without_lost(rest, pieces, "payload"))
    return found


def words(name: str, kind: str = "text") -> JsonObject:
    return {"type": kind, "text": f"[image no longer available: {name}]"}


PARTS: dict[str, tuple[JsonObject, JsonObject]] = {
    "ours": ({"type": "image", "data": LOST, "mimeType": "image/png"}, words("image/png")),
    "ours, a file": ({"type": "file", "data": LOST, "mimeType": "a/b", "filename": "a.pdf"}, words("a.pdf")),
    "anthropic": (
        {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": LOST}},
        words("image/gif"),
    ),
    "anthropic, a document": (
        {"type": "document", "title": "The plan", "source": {"media_type": "application/pdf", "data": LOST}},
        words("The plan"),
    ),
    "openai chat": ({"type": "image_url", "image_url": {"url": f"data:image/webp;base64,{LOST}"}}, words("image/webp")),
    "openai chat, a file": (
        {"type": "file", "file": {"filename": "b.pdf", "file_data": f"data:application/pdf;base64,{LOST}"}},
        words("b.pdf"),
    ),
    "openai chat, a sound": (
        {"type": "input_audio", "input_audio": {"data": LOST, "format": "wav"}},
        words("input_audio", "input_text"),
    ),
    "openai responses": (
        {"type": "input_image", "image_url": f"data:image/png;base64,{LOST}"},
        words("image/png", "input_text"),
    ),
    "without a name": ({"type": "image", "data": LOST}, words("image")),
}


@inputs("shape", PARTS)
def test_a_part_becomes_text_that_names_it_and_the_others_stay(shape: str) -> None:
    part, expected = PARTS[shape]
    before: JsonObject = {"type": "text", "text": "é"}
    after: JsonObject = {"type": "x"}
    assert read({"role": "user", "content": [before, part, after], "n": 1.5}) == {
        "role": "user",
        "content": [before, expected, after],
        "n": 1.5,
    }


def test_a_part_within_a_part_becomes_text_alone() -> None:
    inner: list[JsonValue] = [{"type": "text", "text": "seen"}, PARTS["anthropic"][0]]
    result: JsonObject = {"type": "tool_result", "tool_use_id": "t", "content": inner}
    expected: list[JsonValue] = [inner[0], words("image/gif")]
    assert read([result]) == [{**result, "content": expected}]


def test_what_is_not_lost_is_put_back() -> None:
    part = PARTS["ours"][0]
    assert read([part, part], b"QUJD") == [{**part, "data": "QUJD"}, words("image/png")]


@inputs(
    ("value", "expected"),
    [
        (f"see ![](data:image/png;base64,{LOST}) there", "see ![]([image no longer available: image/png]) there"),
        (LOST, "[image no longer available: unknown]"),
        ({"data": LOST, "name": "a.bin"}, {"data": "[image no longer available: a.bin]", "name": "a.bin"}),
        ({LOST: 1}, {"[image no longer available: unknown]": 1}),
        (
            [{"type": "text", "text": f"LostPicture {LOST}"}],
            [{"type": "text", "text": "LostPicture [image no longer available: text]"}],
        ),
        (
            [{"type": "toolCall", "id": "c", "name": "draw", "arguments": {"png": LOST}}],
            [
                {
                    "type": "toolCall",
                    "id": "c",
                    "name": "draw",
                    "arguments": {"png": "[image no longer available: unknown]"},
                }
            ],
        ),
    ],
)
def test_elsewhere_words_stand_in_the_text(value: JsonValue, expected: JsonValue) -> None:
    assert read(value) == expected
