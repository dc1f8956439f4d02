"""Which texts of entries are searched, and what is shown of them."""

from __future__ import annotations

import base64
import json
import random

from hypothesis import given
from hypothesis import strategies as st

from flue_py.core.entries import Entry
from flue_py.core.json import JsonValue
from flue_py.search import CHARACTERS, MOST_OF_TOOLS, SearchedText, snippet, texts_of, without_encoded
from tests.tables import inputs


def _texts(value: JsonValue, kind: str = "message") -> list[tuple[str, str | None, str]]:
    entry = Entry("e1", None, "s1", kind, None, None, 0, 1, 0, 0, json.dumps(value))
    return [(text.part, text.tool, text.text) for text in texts_of(entry)]


@inputs(
    ("kind", "value", "texts"),
    [
        ("message", {"role": "user", "content": "hello"}, [("messages", None, "hello")]),
        (
            "message",
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "thinkingSignature": "c2ln"},
                    {"type": "thinking", "thinking": "ciphered", "redacted": True},
                    {"type": "text", "text": "I read"},
                    {
                        "type": "toolCall", "id": "call_1", "name": "read",
                        "arguments": {"path": "a.py", "at": {"line": 3}},
                    },
                    {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"},
                ],
            },
            [("thinking", None, "hm"), ("messages", None, "I read"), ("tools", "read", "read\na.py\nline\n3")],
        ),
        (
            "message",
            {
                "role": "toolResult", "toolCallId": "c", "toolName": "read",
                "content": [{"type": "text", "text": "x = 1"}],
            },
            [("tools", "read", "x = 1")],
        ),
        (
            "message",
            {"role": "bashExecution", "command": "ls -l", "output": "total 0"},
            [("tools", None, "ls -l\ntotal 0")],
        ),
        (
            "message",
            {"role": "assistant", "content": [], "errorMessage": "overloaded"},
            [("messages", None, "overloaded")],
        ),
        ("compaction", {"summary": "so far", "firstKeptEntryId": "e0"}, [("summaries", None, "so far")]),
        ("branch_summary", {"summary": "a branch", "fromId": "e0"}, [("summaries", None, "a branch")]),
        ("custom_message", {"content": "noted"}, [("messages", None, "noted")]),
        ("custom:thing", {"text": "data of a program"}, []),
        ("message", {"role": "user", "content": [1, None, {"type": "text", "text": 3}, {"type": []}]}, []),
        ("message", [1], []),
    ],
)  # fmt: skip
def test_texts_of_an_entry(kind: str, value: JsonValue, texts: list[tuple[str, str | None, str]]) -> None:
    assert _texts(value, kind) == texts


def test_base64_is_no_text_in_one_piece_or_in_lines() -> None:
    data = base64.b64encode(random.Random(7).randbytes(3000)).decode()
    lines = "\n".join(data[at : at + 76] for at in range(0, len(data), 76))
    for encoded in (data, lines, f"data:image/png;base64,{data}"):
        kept = without_encoded(f"before {encoded} behind")
        assert data[100:130] not in kept
        assert kept.startswith("before ")
        assert kept.endswith(" behind")


@inputs("text", ["/".join(["folder", "another", "third"] * 20), "-" * 500, "a" * 500, "word " * 100, "0" * 300])
def test_what_only_looks_encoded_stays(text: str) -> None:
    assert without_encoded(text) == text


def test_of_a_long_result_the_beginning_is_searched_and_it_says_so() -> None:
    text = "word " * MOST_OF_TOOLS
    value = {"role": "toolResult", "toolName": "read", "content": text}
    entry = Entry("e1", None, "s1", "message", None, None, 0, 1, 0, 0, json.dumps(value))
    assert texts_of(entry) == (SearchedText("tools", "read", text[:MOST_OF_TOOLS], is_cut=True),)


def test_lines_of_long_paths_are_kept() -> None:
    folder = "/Users/Alice/Library/Projects2/a-very-long-name-of-a-folder/below-it/needle"
    assert without_encoded(f"{folder}1\n{folder}2\n{folder}3") == f"{folder}1\n{folder}2\n{folder}3"


@given(st.text(max_size=1000), st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 30))))
def test_a_snippet_shows_matches_where_it_says(text: str, places: list[tuple[int, int]]) -> None:
    spans = sorted({(low, min(low + length, len(text))) for low, length in places if low < len(text)})
    shown = snippet(text, spans)
    assert len(shown.text) <= CHARACTERS + 2
    assert "\n" not in shown.text
    wanted = {"".join(" " if char.isspace() else char for char in text[low:high]) for low, high in spans}
    for low, high in shown.matches:
        assert 0 <= low < high <= len(shown.text)
        assert any(shown.text[low:high] in each for each in wanted)
    if spans:
        assert shown.matches
