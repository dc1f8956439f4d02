"""Hostile documents: no parser crashes, nothing is lost silently, everything can be stored and exported."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flue_py.core.json import MAX_DIGITS
from flue_py.core.trees import check_imported_session, checked_imported_entries
from flue_py.errors import UnreadableFile
from flue_py.formats import fuseraft, lists
from flue_py.formats.flue import export_flue
from flue_py.formats.kit import Notes, SessionPart, SessionTree, read_document
from flue_py.formats.noumen import looks_like_noumen, parse_noumen
from flue_py.formats.pi import export_pi
from tests.effort import examples
from tests.formats.pi_files import HEADER, as_lines, parse_pi
from tests.formats.trees import info_of, items_of, tree_of
from tests.tables import inputs

Parser = Callable[[bytes, str], tuple[SessionPart, ...]]
LISTS: tuple[Parser, ...] = (lists.parse_openai_chat, lists.parse_openai_responses, lists.parse_anthropic)
RECOGNIZERS = (
    lists.looks_like_anthropic, fuseraft.looks_like_fuseraft_repl, fuseraft.looks_like_fuseraft_run, looks_like_noumen,
    lists.looks_like_openai_chat, lists.looks_like_openai_responses,
)  # fmt: skip


def wrapped(parse: Parser, messages: str) -> bytes:
    """Return a document of a format with these items in it, given as JSON text."""
    if parse is fuseraft.parse_fuseraft_repl:
        return f'{{"SessionId":"ab","History":{messages}}}'.encode()
    if parse is fuseraft.parse_fuseraft_run:
        return f'{{"SessionId":"a3f92c1d","Messages":{messages}}}'.encode()
    if parse is parse_noumen:
        rows = [{"type": "message", "sessionId": "s", "message": each} for each in json.loads(messages)]
        return "\n".join(json.dumps(row) for row in [*rows, {"type": "ai-title", "sessionId": "s"}]).encode()
    return messages.encode()


EVERY: tuple[Parser, ...] = (*LISTS, fuseraft.parse_fuseraft_repl, fuseraft.parse_fuseraft_run, parse_noumen)


def is_whole(parsed: SessionPart) -> None:
    """Check what a store asks of a session, and that every exporter takes it."""
    check_imported_session(parsed.session)
    checked_imported_entries(parsed.entries)
    seen: set[str | None] = {None}
    for entry in parsed.entries:
        assert entry.parent_id in seen
        assert entry.id not in seen
        seen.add(entry.id)
    assert parsed.leaf in seen
    tree, context = tree_of(parsed), items_of(parsed)
    for text in (
        lists.export_openai_chat(context).text,
        lists.export_openai_responses(context).text,
        lists.export_anthropic(context).text,
        export_flue(SessionTree(info_of(parsed), tree, parsed.leaf)).text,
        *export_pi(SessionTree(info_of(parsed), tree, parsed.leaf)).text.splitlines(),
    ):
        assert text.encode()
        json.loads(text)


HOSTILE = [
    '[{"role":"user","content":"half \\ud800 a pair"}]',
    '[{"role":"user","content":"nul \\u0000 here","\\u0000":"\\u0000"}]',
    '[{"role":"user","content":' + "9" * 5000 + "}]",
    '[{"role":"user","content":"x","n":1e999,"m":-0.0,"k":123456789012345678901234567890}]',
    '[{"role":"user","content":[' + '{"type":"x","y":' * 150 + "1" + "}" * 150 + "]}]",
    '[{"role":"user\\u0000","content":"x"},{"role":7,"content":{}},{"role":"assistant","content":[1,null,"x"]}]',
    '[{"role":"assistant","content":null,"tool_calls":[5,{"id":7,"function":{"name":[],"arguments":{"a":1}}}]}]',
    '[{"role":"assistant","content":[{"type":"tool_use","id":"","name":"f","input":[1]},{"type":"thinking"}]}]',
    '[{"role":"user","content":[{"type":"tool_result","tool_use_id":{},"content":{"a":1}},{"type":"image"}]}]',
    '[{"type":"function_call","call_id":null},{"type":"reasoning","summary":7},{"type":"message"},{"type":{}}]',
    '[{"role":"assistant","content":[{"type":["x"]},{"type":{}}]},{"role":"user","content":[{"type":[1],"text":"x"}]}]',
    '[{"Role":"assistant","Contents":[{"Type":"function_call","ArgumentsJson":"{"},{"Type":"function_result"}]}]',
    '[{"Role":"assistant","Content":"x","Usage":{"InputTokens":-1,"CostUsd":1e999},"Timestamp":"9999-99-99"}]',
    '[{"Role":"user","Content":"x","IsCompactionSummary":true,"Timestamp":"0001-01-01T00:00:00+23:00"}]',
    "[]",
]


@inputs("items", HOSTILE, ids=range(len(HOSTILE)))
@inputs("parse", EVERY, ids=lambda parse: parse.__name__)
def test_nothing_in_an_item_is_fatal(parse: Parser, items: str) -> None:
    if parse is parse_noumen and "9999999" in items:
        items = items.replace("9" * 5000, "9")
    for parsed in parse(wrapped(parse, items), "list.json"):
        is_whole(parsed)
        assert parsed.report.rows >= len(json.loads(items.replace("9" * 5000, "9")))


@inputs("parse", LISTS)
def test_a_torn_or_damaged_list_costs_the_damaged_items_only(parse: Parser) -> None:
    good = [json.dumps({"role": "user", "content": f"m{number} ]}}"}) for number in range(4)]
    deep = '{"role":"user","x":' + "[" * 100_000 + "]" * 100_000 + "}"
    for middle in ('{"role": bad, "x": [1, "}"]}', "{]", deep):
        (parsed,) = parse(f"[{good[0]},{middle},{good[1]},7,{good[2]},{good[3][:20]}".encode(), "list.json")
        told = [json.loads(entry.payload)["content"] for entry in parsed.entries]
        assert told[0] == "m0 ]}"
        assert parsed.report.skipped[0].line == 1
        assert [str(note).split(":")[0] for note in parsed.report.skipped][:1] == ["item 1"]
        is_whole(parsed)
    assert told == ["m0 ]}", "m1 ]}", "m2 ]}"]
    assert [note.line for note in parsed.report.skipped] == [1, 3, 5]
    (lines,) = parse("\n".join([*good[:2], "torn {", good[2]]).encode(), "list.jsonl")
    assert [note.line for note in lines.report.skipped] == [2]
    assert len(lines.entries) == 3


@inputs("parse", EVERY, ids=lambda parse: parse.__name__)
@inputs("data", [b"", b"\xff\xfe", b"null", b"7", b"{}", b'"[{}]"', b"SQLite format 3\0", b"{" * 9999])
def test_what_is_no_document_of_the_format_is_refused_in_one_line(parse: Parser, data: bytes) -> None:
    with pytest.raises(UnreadableFile) as caught:
        parse(data, "list.json")
    assert "list.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@inputs("parse", [*LISTS, fuseraft.parse_fuseraft_repl, fuseraft.parse_fuseraft_run])
def test_bytes_that_are_no_utf8_and_numbers_json_has_not_are_said(parse: Parser) -> None:
    items = '[{"role":"user","content":"caf\ufffd","Role":"user","Content":"x","n":NaN}]'
    data = b"\xef\xbb\xbf" + wrapped(parse, items).replace("\ufffd".encode(), b"\xe9")
    (parsed,) = parse(data, "list.json")
    texts = " ".join(note.text for note in parsed.report.repaired)
    assert "not UTF-8" in texts
    assert "NaN is not a JSON number" in texts
    is_whole(parsed)


KEYS = [
    "role", "content", "type", "text", "id", "name", "input", "arguments", "tool_calls", "tool_call_id",
    "tool_use_id", "function", "call_id", "output", "summary", "signature", "thinking", "source", "data", "url",
    "Role", "Contents", "Type", "Text", "Content", "Usage", "Timestamp", "uuid", "snipMetadata", "image_url",
]  # fmt: skip
WORDS = [
    "user", "assistant", "tool", "system", "toolResult", "text", "tool_use", "tool_result", "thinking", "message",
    "function_call", "reasoning", "image", "file", "function_call_output", "function_result", "document", "image_url",
    "redacted_thinking", "custom_tool_call", "toolCall",
]  # fmt: skip


def test_what_stands_beside_a_message_in_any_file_breaks_no_export() -> None:
    signature = json.dumps({"type": "reasoning", "summary": [], "x": "\ud800"})
    thought = {"type": "thinking", "thinking": "", "thinkingSignature": signature}
    message = {"role": "assistant", "content": [thought], "provider": "openai", "timestamp": 1}
    odd = [{"unset": ["content", "role"]}, {"set": {"content": 7}}, {"set": 1, "unset": {}}, 5, None]
    rows = [
        {"type": "message", "id": f"e{number}", "message": message, "anthropic": each, "openaiChat": each}
        for number, each in enumerate(odd)
    ]
    rows += [{**row, "id": f"u{row['id']}", "message": {"role": "user", "content": [], "timestamp": 1}} for row in rows]
    chained = [{**row, "parentId": rows[at - 1]["id"] if at else None} for at, row in enumerate(rows)]
    is_whole(parse_pi(as_lines([HEADER, *chained])))


keys, words = st.sampled_from(KEYS), st.sampled_from(WORDS)
anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | words | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


@examples(25)
@given(st.lists(st.dictionaries(keys, words | anything, min_size=1, max_size=5), max_size=5))
def test_random_items_never_crash_a_parser_or_an_exporter(items: list[Any]) -> None:
    for parse in EVERY:
        for parsed in parse(wrapped(parse, json.dumps(items)), "list.json"):
            is_whole(parsed)


@examples(25)
@given(
    st.binary(max_size=60)
    | st.lists(st.dictionaries(keys, anything), max_size=2).map(lambda v: json.dumps(v).encode()[:-1])
)
def test_random_bytes_are_parsed_or_refused(data: bytes) -> None:
    for looks in RECOGNIZERS:
        assert looks(data, "list.json") in (True, False)
    for parse in EVERY:
        try:
            found = parse(data, "list.json")
        except UnreadableFile:
            continue
        for parsed in found:
            is_whole(parsed)


@inputs("sign", ["", "-"])
def test_integers_are_numbers_as_far_as_json_can_hold_them_and_text_beyond(sign: str) -> None:
    longest, longer = f"{sign}{'9' * MAX_DIGITS}", f"{sign}{'9' * (MAX_DIGITS + 1)}"
    notes = Notes("document")
    assert read_document(f"[{longest}, {longer}]".encode(), notes, "x.json") == [int(longest), longer]
    assert len(notes.repaired) == 1
