"""Each rule of a provider is found where it is broken, with the path of what breaks it."""

from __future__ import annotations

import re
import struct
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import fields

from flue_py.providers.base import LIMITS, limits_of, pixels
from flue_py.providers.rules import RULES, broken_rules
from tests.tables import inputs
from tests.wire.hostile import PNG

USER: dict[str, Any] = {"role": "user", "content": "q"}
USE: dict[str, Any] = {"type": "tool_use", "id": "t1", "name": "read", "input": {}}
RESULT: dict[str, Any] = {"type": "tool_result", "tool_use_id": "t1", "content": "a"}
USED: dict[str, Any] = {"role": "assistant", "content": [USE]}
ANSWERED: dict[str, Any] = {"role": "user", "content": [RESULT]}


def image(data: str = PNG, kind: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def document(**source: str) -> dict[str, Any]:
    held = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0x", **source}
    return {"type": "document", "source": held}


def png_of(width: int, height: int) -> str:
    return b64encode(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", width, height) + bytes(40)).decode()


def with_blocks(*blocks: dict[str, Any], role: str = "user") -> list[dict[str, Any]]:
    before = [] if role == "user" else [USER]
    return [*before, {"role": role, "content": [*blocks]}]


MARKED = {"type": "text", "text": "m", "cache_control": {"type": "ephemeral"}}
THINKING = {"type": "thinking", "thinking": "t", "signature": "s"}
REDACTED = {"type": "redacted_thinking", "data": "s"}
COMPACTED = {"type": "compaction", "content": "s"}
SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
ANTHROPIC: list[tuple[str, str, list[dict[str, Any]]]] = [
    ("turns", "messages", []),
    ("turns", "messages[0].role", [{"role": "assistant", "content": "a"}]),
    ("turns", "messages[1].role", [USER, USER]),
    ("turns", "messages[0].role", [{"role": "system", "content": "s"}]),
    ("content", "messages[0].content", [{"role": "user", "content": []}]),
    ("content", "messages[0].content", [{"role": "user", "content": " \n"}]),
    ("content", "messages[0].content[0].text", with_blocks({"type": "text", "text": " "})),
    ("content", "messages[2].content[0].content[0].text", [
        USER, USED, {"role": "user", "content": [{**RESULT, "content": [{"type": "text", "text": ""}]}]},
    ]),
    ("turns", "messages[2].role", [USER, {"role": "assistant", "content": "a"}, {"role": "system", "content": "s"}]),
    ("turns", "messages[1].role", [USER, {"role": "system", "content": "s"}, USER]),
    ("end", "messages[1].content", [USER, {"role": "assistant", "content": "a "}]),
    ("server calls", "messages[1].content[0]", [USER, {"role": "assistant", "content": [SEARCH]}, USER]),
    ("server calls", "messages[1].content[0]", [USER, {"role": "assistant", "content": [FOUND]}, USER]),
    ("server calls", "messages[1].content[0]", [USER, {"role": "assistant", "content": [SEARCH, USE]}, ANSWERED]),
    ("exchanges", "messages", [USER, USED]),
    ("exchanges", "messages[2].content", [USER, USED, USER]),
    ("exchanges", "messages[0].content", [ANSWERED]),
    ("exchanges", "messages[2].content", [
        USER, USED, {"role": "user", "content": [{"type": "text", "text": "first"}, RESULT]},
    ]),
    ("exchanges", "messages[2].content", [USER, USED, {"role": "user", "content": [RESULT, RESULT]}]),
    ("calls", "messages[1].content[0].id", [USER, {"role": "assistant", "content": [{**USE, "id": "a b"}]},
        {"role": "user", "content": [{**RESULT, "tool_use_id": "a b"}]}]),
    ("calls", "messages[1].content[0].id", [USER, {"role": "assistant", "content": [{**USE, "id": "a" * 65}]},
        {"role": "user", "content": [{**RESULT, "tool_use_id": "a" * 65}]}]),
    ("calls", "messages[3].content[0].id", [USER, USED, ANSWERED, USED, ANSWERED]),
    ("calls", "messages[1].content[0].name", [
        USER, {"role": "assistant", "content": [{**USE, "name": "a.b"}]}, ANSWERED,
    ]),
    ("calls", "messages[1].content[0].input", [
        USER, {"role": "assistant", "content": [{**USE, "input": "x"}]}, ANSWERED,
    ]),
    ("reasoning", "messages[0].content[0]", with_blocks({"type": "thinking", "thinking": "t", "signature": "s"})),
    ("reasoning", "messages[1].content[0]", with_blocks({"type": "thinking", "thinking": "t"}, role="assistant")),
    ("reasoning", "messages[1].content[1]", with_blocks({"type": "text", "text": "a"}, THINKING, role="assistant")),
    ("reasoning", "messages[1].content[0]", with_blocks(THINKING, role="assistant")),
    ("reasoning", "messages[1].content[0]", with_blocks(REDACTED, role="assistant")),
    ("compaction", "messages[1].content[0]", with_blocks(COMPACTED, role="assistant")),
    ("compaction", "messages[0].content[0]", [{"role": "assistant", "content": [{**COMPACTED, "content": None}]}]),
    ("marks", "messages[0].content[0]", with_blocks(*[MARKED] * 5)),
    ("images", "messages[0].content[0]", with_blocks(image(kind="image/tiff"))),
    ("images", "messages[0].content[0]", with_blocks(image("A" * 5_300_000))),
    ("images", "messages[0].content[0]", with_blocks(image(png_of(8_001, 10)))),
    ("images", "messages[0].content[20]", with_blocks(*[image()] * 20, image(png_of(2_001, 10)))),
    ("images", "messages[0].content[100]", with_blocks(*[image()] * 101)),
    ("files", "messages[0].content[0].source.media_type", with_blocks(document(media_type="text/plain"))),
    ("files", "messages[2].content[0].content[0].source.media_type", [
        USER, USED, {"role": "user", "content": [{**RESULT, "content": [document(media_type="application/msword")]}]},
    ]),
    ("files", "messages[0].content[0].source.media_type", with_blocks(document(type="text"))),
    ("size", "messages", [{"role": "user", "content": "x" * 32_000_001}]),
]  # fmt: skip

CALL: dict[str, Any] = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
CALLED: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [CALL]}
TOLD: dict[str, Any] = {"role": "tool", "tool_call_id": "c1", "content": "a"}
PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
CHAT: list[tuple[str, str, list[dict[str, Any]]]] = [
    ("roles", "messages", []),
    ("roles", "messages[0].role", [{"role": "model", "content": "a"}]),
    ("content", "messages[1].content", [USER, {"role": "assistant", "content": None}]),
    ("content", "messages[0].content", [{"role": "user", "content": []}]),
    ("content", "messages[0].content", [{"role": "user", "content": 5}]),
    ("content", "messages[0].content[0].type", [{"role": "system", "content": [PICTURE]}]),
    ("content", "messages[0].content[0].text", [{"role": "user", "content": [{"type": "text", "text": None}]}]),
    ("exchanges", "messages", [USER, CALLED]),
    ("exchanges", "messages[2]", [USER, CALLED, USER, TOLD]),
    ("exchanges", "messages[0].tool_call_id", [TOLD]),
    ("calls", "messages[1].tool_calls", [USER, {"role": "assistant", "content": "a", "tool_calls": []}]),
    ("calls", "messages[1].tool_calls[0].id", [
        USER, {**CALLED, "tool_calls": [{**CALL, "id": "x" * 41}]}, {**TOLD, "tool_call_id": "x" * 41},
    ]),
    ("calls", "messages[1].tool_calls[0].function.name", [
        USER, {**CALLED, "tool_calls": [{**CALL, "function": {"name": "a.b", "arguments": "{}"}}]}, TOLD,
    ]),
    ("calls", "messages[1].tool_calls[0].function.arguments", [
        USER, {**CALLED, "tool_calls": [{**CALL, "function": {"name": "read", "arguments": {}}}]}, TOLD,
    ]),
    ("calls", "messages[1].tool_calls[0]", [USER, {**CALLED, "tool_calls": [{**CALL, "type": "other"}]}, TOLD]),
    ("images", "messages[0].content[500]", [{"role": "user", "content": [PICTURE] * 501}]),
]  # fmt: skip

ITEM: dict[str, Any] = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
OUTPUT: dict[str, Any] = {"type": "function_call_output", "call_id": "c1", "output": "a"}
THOUGHT: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}
RESPONSES: list[tuple[str, str, list[dict[str, Any]]]] = [
    ("items", "input", []),
    ("items", "input[0].type", [{"id": "x"}]),
    ("items", "input[0].role", [{"role": "tool", "content": "a"}]),
    ("items", "input[0].content", [{"role": "user", "content": []}]),
    ("exchanges", "input", [USER, ITEM]),
    ("exchanges", "input[1].call_id", [USER, OUTPUT]),
    ("exchanges", "input[0].call_id", [OUTPUT, ITEM]),
    ("exchanges", "input[3].call_id", [USER, ITEM, OUTPUT, OUTPUT]),
    ("calls", "input[1].call_id", [USER, {**ITEM, "call_id": "x" * 65}, {**OUTPUT, "call_id": "x" * 65}]),
    ("calls", "input[1].name", [USER, {**ITEM, "name": "a b"}, OUTPUT]),
    ("calls", "input[1].arguments", [USER, {**ITEM, "arguments": {}}, OUTPUT]),
    ("reasoning", "input[1]", [USER, THOUGHT]),
    ("reasoning", "input[1]", [USER, THOUGHT, USER]),
    ("images", "input[0].content[0]", [
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/tiff;base64,AAAA"}]},
    ]),
]  # fmt: skip

ASKED: dict[str, Any] = {"role": "user", "parts": [{"text": "q"}]}
FUNCTION: dict[str, Any] = {"functionCall": {"name": "read", "args": {}}, "thoughtSignature": "s"}
RESPONSE: dict[str, Any] = {"functionResponse": {"name": "read", "response": {}}}
GEMINI: list[tuple[str, str, list[dict[str, Any]]]] = [
    ("turns", "contents", []),
    ("turns", "contents[0].role", [{"role": "model", "parts": [{"text": "a"}]}, ASKED]),
    ("turns", "contents[1].role", [ASKED, {"role": "model", "parts": [{"text": "a"}]}]),
    ("turns", "contents[0].role", [{"role": "system", "parts": [{"text": "a"}]}, ASKED]),
    ("content", "contents[0].parts", [{"role": "user", "parts": []}]),
    ("content", "contents[0].parts[0]", [{"role": "user", "parts": [{}]}]),
    ("content", "contents[1].parts", [ASKED, {"role": "model", "parts": [{"text": "t", "thought": True}]}, ASKED]),
    ("content", "contents[0].parts[0].text", [{"role": "user", "parts": [{"text": None}]}]),
    ("exchanges", "contents[2]", [ASKED, {"role": "model", "parts": [FUNCTION]}, ASKED]),
    ("exchanges", "contents[2]", [
        ASKED, {"role": "model", "parts": [FUNCTION, FUNCTION]}, {"role": "user", "parts": [RESPONSE]},
    ]),
    ("exchanges", "contents[0]", [{"role": "user", "parts": [RESPONSE]}]),
    ("exchanges", "contents[2]", [
        ASKED, {"role": "model", "parts": [{"text": "a"}]}, {"role": "model", "parts": [FUNCTION]},
        {"role": "user", "parts": [RESPONSE]},
    ]),
    ("calls", "contents[1].parts[0].functionCall.name", [
        ASKED, {"role": "model", "parts": [{**FUNCTION, "functionCall": {"name": "9", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "9", "response": {}}}]},
    ]),
    ("calls", "contents[1].parts[0].functionCall.args", [
        ASKED, {"role": "model", "parts": [{**FUNCTION, "functionCall": {"name": "read", "args": "x"}}]},
        {"role": "user", "parts": [RESPONSE]},
    ]),
    ("calls", "contents[0].parts[0].functionCall", [
        {"role": "user", "parts": [FUNCTION]}, {"role": "user", "parts": [RESPONSE]},
    ]),
    ("signatures", "contents[1].parts[0]", [
        ASKED, {"role": "model", "parts": [{"functionCall": {"name": "read"}}]}, {"role": "user", "parts": [RESPONSE]},
    ]),
    ("images", "contents[0].parts[0]", [
        {"role": "user", "parts": [{"inlineData": {"mimeType": "image/gif", "data": "AAAA"}}]},
    ]),
]  # fmt: skip
BROKEN = [
    pytest.param(target, *case, id=f"{target}-{number}-{case[0]}")
    for target, cases in (
        ("anthropic", ANTHROPIC), ("openai-chat", CHAT), ("openai-responses", RESPONSES), ("gemini", GEMINI),
    )
    for number, case in enumerate(cases)
]  # fmt: skip


@inputs(("target", "rule", "where", "messages"), BROKEN)
def test_a_broken_rule_is_found_with_its_path(
    target: str, rule: str, where: str, messages: list[dict[str, Any]]
) -> None:
    assert (rule, where) in [(found.rule, found.where) for found in broken_rules(target, messages)]


NAMED: dict[str, Any] = {"name": "get weather", "description": "d"}
LONG = "x" * 10_485_761
TOO_MUCH: list[tuple[str, str, str, list[dict[str, Any]], list[dict[str, Any]]]] = [
    ("anthropic", "size", "messages", [USER, {"role": "assistant", "content": "a"}] * 50_001, []),
    ("anthropic", "tools", "tools[1].name", [USER], [{"name": "read"}, NAMED]),
    ("openai-chat", "roles", "messages[0].name", [{**USER, "name": "Ann Lee"}], []),
    ("openai-chat", "texts", "messages[0].content", [{"role": "user", "content": LONG}], []),
    ("openai-chat", "texts", "messages[0].content[1].text", [{"role": "user", "content": [
        PICTURE, {"type": "text", "text": LONG},
    ]}], []),
    ("openai-chat", "tools", "tools[128]", [USER], [{"type": "function", "function": {"name": "f"}}] * 129),
    ("openai-chat", "tools", "tools[0].name", [USER], [{"type": "function", "function": {"name": "f" * 65}}]),
    ("openai-responses", "items", "input[1].id", [USER, {**THOUGHT, "id": "r" * 416}, ITEM, OUTPUT], []),
    ("openai-responses", "texts", "input[2].output", [USER, ITEM, {**OUTPUT, "output": LONG}], []),
    ("openai-responses", "texts", "input[2].output[0].text", [USER, ITEM, {**OUTPUT, "output": [
        {"type": "input_text", "text": LONG},
    ]}], []),
    ("openai-responses", "texts", "input[0].content[0].file_data", [{"role": "user", "content": [
        {"type": "input_file", "filename": "a.pdf", "file_data": "A" * 73_400_321},
    ]}], []),
    ("openai-responses", "images", "input[0].content[0]", [{"role": "user", "content": [
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}{'A' * 20_971_520}"},
    ]}], []),
    ("openai-responses", "calls", "input[1].name", [USER, {**ITEM, "name": "n" * 129}, OUTPUT], []),
    ("openai-responses", "tools", "tools[0].name", [USER], [{"type": "function", "name": "n" * 129}]),
    ("gemini", "content", "contents[0].parts[1].text", [{"role": "user", "parts": [{"text": "a"}, {"text": ""}]}], []),
    ("gemini", "tools", "tools[0].name", [ASKED], [{"functionDeclarations": [{"name": "read"}, {"name": "9"}]}]),
]  # fmt: skip
SIGNED: dict[str, Any] = {"role": "user", "parts": [{"text": "", "thoughtSignature": "s"}, {"text": " "}]}
TAKEN: list[tuple[str, list[dict[str, Any]], list[dict[str, Any]]]] = [
    ("openai-chat", [{**USER, "name": "Ann_Lee"}, {"role": "user", "content": LONG[1:]}], [CALL] * 128),
    ("openai-responses", [USER, {**ITEM, "name": "n" * 128}, OUTPUT], [{"type": "web_search"}] * 200),
    ("gemini", [SIGNED], [{"googleSearch": {}}]),
]


def test_what_is_above_a_limit_is_named_and_what_is_at_it_is_taken() -> None:
    wrong: list[object] = []
    for target, rule, where, messages, tools in TOO_MUCH:
        found = [(each.rule, each.where) for each in broken_rules(target, messages, tools=tools)]
        wrong += [] if (rule, where) in found else [(target, where, found)]
    for target, messages, tools in TAKEN:
        wrong += [(target, each) for each in broken_rules(target, messages, tools=tools)]
    assert wrong == []


def test_an_empty_text_of_what_the_system_says_is_named_for_gemini() -> None:
    (found,) = broken_rules("gemini", [ASKED], {"parts": [{"text": "s"}, {"text": ""}]})
    assert found.where == "systemInstruction.parts[1].text"


def test_each_row_of_the_limits_has_its_source_and_year() -> None:
    models = [("openai-chat", "mistral-large-latest"), ("anthropic", "us.anthropic.claude-opus-4-8-v1:0")]
    for limits in (*LIMITS.values(), *[limits_of(*each) for each in models]):
        rows = {each.name for each in fields(limits) if getattr(limits, each.name) not in (None, each.default)}
        assert rows - {"sources", "answer_last"} == {name for name in limits.sources if name in rows}
        assert [source for source in limits.sources.values() if not re.search(r"\b202[456]\b", source)] == []


def test_each_rule_of_each_provider_is_among_the_broken_ones() -> None:
    shown = {(param.values[0], param.values[1]) for param in BROKEN} | {case[:2] for case in TOO_MUCH}
    assert shown == {(target, rule.name) for target, rules in RULES.items() for rule in rules}
    assert all(rule.says.endswith(".") for rules in RULES.values() for rule in rules)
    assert all("2026" in limits.source for limits in LIMITS.values())


@inputs(
    ("target", "messages"),
    [
        ("anthropic", [USER, USED, ANSWERED, {"role": "assistant", "content": "a"}]),
        ("anthropic", [USER, {"role": "assistant", "content": [THINKING, USE]}, ANSWERED]),
        ("anthropic", [{"role": "assistant", "content": [COMPACTED]}, USER]),
        ("anthropic", [USER, {"role": "system", "content": "s"}, {"role": "assistant", "content": [SEARCH]}]),
        (
            "anthropic",
            [
                USER,
                {"role": "assistant", "content": [SEARCH, {**USE, "caller": {"tool_id": "s1"}}]},
                ANSWERED,
                {"role": "assistant", "content": [FOUND]},
                USER,
            ],
        ),
        ("anthropic", with_blocks(document(), document(type="text", media_type="text/plain", data="words"))),
        ("anthropic", with_blocks({"type": "document", "source": {"type": "url", "url": "https://example.org/a"}})),
        ("anthropic", with_blocks(*[image(png_of(2_001, 10))] * 20)),
        (
            "openai-chat",
            [{"role": "system", "content": "s"}, USER, CALLED, TOLD, {"role": "assistant", "content": "a"}],
        ),
        ("openai-responses", [USER, THOUGHT, ITEM, OUTPUT, {"type": "web_search_call", "id": "ws_1"}]),
        (
            "gemini",
            [ASKED, {"role": "model", "parts": [FUNCTION, FUNCTION]}, {"role": "user", "parts": [RESPONSE] * 2}],
        ),
    ],
)
def test_what_a_provider_takes_breaks_no_rule(target: str, messages: list[dict[str, Any]]) -> None:
    assert broken_rules(target, messages) == ()


def jpeg_of(width: int, height: int) -> bytes:
    app = b"\xff\xe1" + struct.pack(">H", 10) + bytes(8)
    return b"\xff\xd8" + app + b"\xff\xff\xc2" + struct.pack(">HBHH", 17, 8, height, width) + bytes(20)


@inputs(
    ("head", "size"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", 640, 480), (640, 480)),
        (b"GIF89a" + struct.pack("<HH", 640, 480), (640, 480)), (jpeg_of(640, 480), (640, 480)),
        (b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + (639).to_bytes(3, "little") + (479).to_bytes(3, "little"), (640, 480)),
        (b"RIFF\0\0\0\0WEBPVP8L" + bytes(5) + (639 | 479 << 14).to_bytes(4, "little"), (640, 480)),
        (b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + struct.pack("<HH", 640, 480), (640, 480)), (b"\xff\xd8\xff\xe1", None),
        (b"\x89PNG\r\n\x1a\n", None), (b"plain text", None), (b"", None),
    ],
)  # fmt: skip
def test_the_size_of_a_picture_is_read_from_its_head(head: bytes, size: tuple[int, int] | None) -> None:
    assert pixels(b64encode(head).decode()) == size


def test_the_size_of_what_is_no_base64_is_not_known() -> None:
    assert pixels("é" * 8) is None
    assert pixels("A") is None


WHOLE: dict[str, list[dict[str, Any]]] = {
    "anthropic": [USER, {"role": "assistant", "content": [THINKING, USE]}, ANSWERED, *with_blocks(image(), document())],
    "openai-chat": [
        {"role": "user", "content": [{"type": "text", "text": "q"}], "name": "n"},
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "a"},
    ],
    "openai-responses": [
        {"role": "user", "content": [{"type": "input_text", "text": "q"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "a"},
    ],
    "gemini": [
        {"role": "user", "parts": [{"text": "q"}, {"inlineData": {"mimeType": "image/png", "data": PNG}}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "id": "c", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "id": "c", "response": {}}}]},
    ],
}


def with_each_replaced(value: Any, odd: Any) -> Iterator[Any]:
    """Yield a value once for each value in it, with that one replaced."""
    yield odd
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        for changed in with_each_replaced(inner, odd):
            copied = value.copy()
            copied[key] = changed
            yield copied


@inputs("odd", [["x"], {"a": 1}, None, 5, True, ""])
@inputs("target", sorted(WHOLE))
def test_a_value_of_any_kind_in_any_place_is_judged(target: str, odd: Any) -> None:
    for messages in with_each_replaced(WHOLE[target], odd):
        if isinstance(messages, list) and all(isinstance(message, dict) for message in messages):
            assert isinstance(broken_rules(target, messages), tuple)
