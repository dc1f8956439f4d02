"""Which results are too long, what stands for them, and reading parts of what was put aside."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flue_py import Artifact, InvalidArgument, JsonObject, OffloadSettings
from flue_py.context import artifacts
from tests.tables import inputs
from tests.values import existing

DEFAULTS = OffloadSettings()
CALL: JsonObject = {"id": "c", "name": "read_file", "arguments": {"startLine": 3, "path": "src/X"}}
ARTIFACT = Artifact("6e2982e31a1e", "read_file", "path=src/X", 9, "c", "e", datetime(2026, 1, 1, tzinfo=UTC))


def result(text: Any, tool: str | None = "read_file") -> JsonObject:
    named: JsonObject = {} if tool is None else {"toolName": tool}
    return {"role": "toolResult", "toolCallId": "c", **named, "content": text}


def long(text: Any, tool: str | None = "read_file", **settings: Any) -> artifacts.LongResult | None:
    return artifacts.long_result(result(text, tool), OffloadSettings(**settings), CALL)


# -- what is too long -------------------------------------------------------------------------------------------------


def test_forty_thousand_characters_stay_and_one_more_does_not() -> None:
    assert OffloadSettings().above == artifacts.OFFLOAD_ABOVE == 40_000
    for unit in ("x", "é", "🚨", '"'):
        assert long(unit * 40_000) is None
        assert long([{"type": "text", "text": unit * 40_000}]) is None
        found = long(unit * 40_001)
        assert found == artifacts.LongResult(unit * 40_001, "read_file", "path=src/X", "c", None)
        assert found == long([{"type": "text", "text": unit * 40_001}])


def test_tools_have_lengths_of_their_own_in_any_case_or_none() -> None:
    tools = {"Read_File": 5, "bash": None, "GREP": 100_000}
    assert long("123456", "READ_FILE", tools=tools) is not None
    assert long("12345", "read_file", tools=tools) is None
    assert long("x" * 99_999, "Bash", tools=tools) is None
    assert long("x" * 99_999, "grep", tools=tools) is None
    assert long("x" * 40_001, "other", tools=tools) is not None
    assert long("123", "other", tools=tools, above=2) is not None
    # The name is that of the call where the result does not say it.
    assert long("123456", None, tools=tools) is not None
    assert OffloadSettings(tools=tools).least == 5


def test_what_the_tool_for_reading_returns_is_never_offloaded() -> None:
    assert long("x" * 50_000, "read_artifact") is None
    assert long("x" * 50_000, "Read_Artifact", above=0) is None


def test_no_other_message_and_no_stub_is_offloaded() -> None:
    settings = OffloadSettings(above=1)
    message = result("long enough")
    found = existing(artifacts.long_result(message, settings, CALL))
    assert artifacts.long_result(artifacts.with_stub(message, found, "6e2982e31a1e", settings), settings, CALL) is None
    assert artifacts.long_result(result([{"type": "image", "data": "x" * 100}]), settings, CALL) is None
    for content in (None, 5, [], [5], {"text": "long enough"}):
        assert artifacts.long_result(result(content), settings, CALL) is None


@inputs(
    ("settings", "named"),
    [
        ({"above": -1}, "above"), ({"above": True}, "above"), ({"above": 4.5}, "above"), ({"above": None}, "above"),
        ({"tools": {"bash": "never"}}, "bash"), ({"tools": {"bash": 1, "BASH": None}}, "BASH"),
        ({"tools": {5: 1}}, "tools: 5"), ({"tools": ["bash"]}, "tools"), ({"advice": 5}, "advice"),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused_by_name(settings: Any, named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        OffloadSettings(**settings)


def test_settings_do_not_change_with_what_they_were_made_of() -> None:
    tools: dict[str, int | None] = {"bash": 1}
    settings = OffloadSettings(tools=tools)
    tools["bash"] = None
    assert settings.above_of("bash") == 1
    assert copy.deepcopy(settings) == settings == OffloadSettings(tools={"BASH": 1})


# -- the stub ---------------------------------------------------------------------------------------------------------


def test_the_stub_is_the_text_of_the_reference() -> None:
    found = artifacts.LongResult("x" * 52_000, "read_file", "path=src/X", "c", None)
    assert artifacts.stub(found, "6e2982e31a1e", DEFAULTS) == (
        "[result offloaded — 52,000 chars stored to artifact store]\n"
        "Tool: read_file | path=src/X\n"
        "Artifact: 6e2982e31a1e\n"
        "Use targeted tools (e.g. read_file with startLine/maxLines, or grep_in_file) for specific sections."
    )


@inputs(
    ("tool", "arguments", "said"),
    [
        ("read_file", {"startLine": 3, "path": "src/X"}, "read_file | path=src/X"),
        ("bash", {"timeout": 3, "command": "ls\n -l"}, "bash | command=ls -l"),
        ("count", {"upTo": 3}, "count | upTo=3"), ("flags", {"deep": True, "path": "  ", "query": ""}, "flags"),
        ("none", {}, "none"), ("odd", "not an object", "odd"), (None, None, "unknown"), ("two\nlines", {}, "two lines"),
        ("t", {"path": "p" * 900}, "t | path=" + "p" * 194 + "…"),
    ],
)  # fmt: skip
def test_the_stub_says_of_what_call_it_is_on_one_line(tool: str | None, arguments: Any, said: str) -> None:
    found = artifacts.long_result(result("12", tool), OffloadSettings(above=1), {"id": "c", "arguments": arguments})
    assert found is not None
    assert artifacts.stub(found, "0", DEFAULTS).splitlines()[1] == f"Tool: {said}"


def test_a_stub_takes_the_place_of_the_texts_and_leaves_everything_else() -> None:
    picture: JsonObject = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    texts: list[JsonObject] = [{"type": "text", "text": "one", "mark": 1}, {"type": "text", "text": "two", "n": [2]}]
    message = {**result([picture, texts[0], picture, texts[1]]), "details": {"d": 1}, "isError": True}
    found = existing(artifacts.long_result(message, OffloadSettings(above=1), CALL))
    assert found.text == "one\ntwo"
    assert found.parts == [{"type": "text", "mark": 1, "chars": 3}, {"type": "text", "n": [2], "chars": 3}]
    before = copy.deepcopy(message)
    stubbed = artifacts.with_stub(message, found, "0a", DEFAULTS)
    assert message == before
    assert stubbed == {
        **message,
        "content": [picture, {"type": "text", "mark": 1, "text": artifacts.stub(found, "0a", DEFAULTS)}, picture],
        "offloaded": {"artifact": "0a"},
    }
    plain = result("one\ntwo")
    assert artifacts.with_stub(plain, found, "0a", DEFAULTS) == {
        **plain,
        "content": artifacts.stub(found, "0a", DEFAULTS),
        "offloaded": {"artifact": "0a"},
    }


# -- reading parts ----------------------------------------------------------------------------------------------------


@given(st.text(max_size=60), st.integers(0, 80), st.integers(1, 80))
def test_ranges_put_together_are_the_text(text: str, start: int, length: int) -> None:
    said, at = "", 0
    while at < len(text):
        part = artifacts.read_range(ARTIFACT, text, at, length)
        assert (part.start, part.end) == (at, at + len(part.text))
        assert part.first_line == text[:at].count("\n") + 1
        said, at = said + part.text, part.end
    assert said == text
    rest = artifacts.read_range(ARTIFACT, text, start, None)
    assert (rest.text, rest.end) == (text[start:], len(text))
    assert artifacts.read_range(ARTIFACT, text, start, length).text == text[start : start + length]


@given(st.text("aAß\n\r\u2028 é", max_size=60), st.sampled_from(["a", "A", "SS", "ß", "é ", " "]), st.integers(1, 30))
def test_lines_found_page_by_page_are_all_that_have_the_words(text: str, words: str, length: int) -> None:
    expected = [
        (number, line.removesuffix("\r"))
        for number, line in enumerate(text.split("\n"), 1)
        if words.casefold() in line.removesuffix("\r").casefold()
    ]
    found: list[tuple[int, str]] = []
    at = 0
    while True:
        page = artifacts.read_lines(ARTIFACT, text, at, length, words)
        assert page.text == "\n".join(line.text for line in page.found)
        assert len(page.found) <= 1 or len(page.text) < length
        found += [(line.number, line.text) for line in page.found]
        assert len(found) + page.left_out == len(expected)
        if not page.left_out:
            break
        at = page.end
    assert found == expected
    assert [(line.number, line.text) for line in artifacts.read_lines(ARTIFACT, text, 0, None, words).found] == expected


def test_words_are_taken_literally_and_only_a_line_feed_ends_a_line() -> None:
    text = "a.c\nabc\r\nA.C\u2028d\n"
    found = artifacts.read_lines(ARTIFACT, text, 0, None, "a.c").found
    assert [(line.number, line.text) for line in found] == [(1, "a.c"), (3, "A.C\u2028d")]


def test_of_a_long_line_what_stands_around_the_words_is_returned() -> None:
    for before in ("x", "ß", "İ"):
        (line,) = artifacts.read_lines(ARTIFACT, before * 5_000 + "NEEDLE" + "y" * 5_000, 0, None, "needle").found
        assert "NEEDLE" in line.text
        assert len(line.text) == artifacts.LINE_CHARS + 2
        assert (line.text[0], line.text[-1]) == ("…", "…")


def test_what_a_model_asks_for_is_checked_and_said() -> None:
    assert artifacts.asked_excerpt({"id": "0a"}) == artifacts.Asked("0a", 0, 20_000, None)
    assert artifacts.asked_excerpt({"id": "0a", "start": 5, "length": 7, "grep": "x"}) == artifacts.Asked(
        "0a", 5, 7, "x"
    )
    for odd, said in {
        "text": "an object with an id", "no id": "id should be", "start": "start should be",
        "length": "length should be", "too long": "length should be", "grep": "grep should be",
        "lines": "grep should be",
    }.items():  # fmt: skip
        arguments: Any = {
            "text": "0a", "no id": {"start": 1}, "start": {"id": "0a", "start": -1},
            "length": {"id": "0a", "length": True}, "too long": {"id": "0a", "length": artifacts.MOST_AT_ONCE + 1},
            "grep": {"id": "0a", "grep": ""}, "lines": {"id": "0a", "grep": "two\nlines"},
        }[odd]  # fmt: skip
        asked = artifacts.asked_excerpt(arguments)
        assert isinstance(asked, str)
        assert said in asked


def test_what_a_model_reads_says_what_part_it_is() -> None:
    text = "one\ntwo\nthree\ntwo more"
    artifact = Artifact("0a", "t", "", len(text), "c", "e", ARTIFACT.created_at)
    assert artifacts.excerpt_text(artifacts.read_range(artifact, text, 4, 3), None) == (
        "[artifact 0a, 22 chars: from 4 to 7, from line 2 on]\ntwo"
    )
    assert artifacts.excerpt_text(artifacts.read_lines(artifact, text, 0, None, "TWO"), "TWO") == (
        "[artifact 0a, 22 chars: the lines that have 'TWO']\n2: two\n4: two more"
    )
    assert artifacts.excerpt_text(artifacts.read_lines(artifact, text, 0, 1, "two"), "two") == (
        "[artifact 0a, 22 chars: the lines that have 'two']\n2: two\n[1 more line; go on with start 14]"
    )
    assert artifacts.excerpt_text(artifacts.read_lines(artifact, text, 5, None, "no"), "no") == (
        "[artifact 0a, 22 chars: no line from character 5 on has 'no']"
    )
    assert artifacts.READ_ARTIFACT_TOOL["name"] == "read_artifact"


# -- rounds and previews ----------------------------------------------------------------------------------------------


@inputs(
    ("text", "shown"),
    [
        ("x" * 1_500 + "\n" + "y" * 1_000, "x" * 1_500),
        ("x" * 1_001 + "\n" + "y" * 9_000, "x" * 1_001),
        ("x" * 1_000 + "\n" + "y" * 9_000, "x" * 1_000 + "\n" + "y" * 999),
        ("x" * 9_000, "x" * 2_000),
        ("a\nb", "a\nb"),
    ],
)
def test_a_preview_follows_the_stub_and_ends_with_a_line_past_its_half(text: str, shown: str) -> None:
    found = artifacts.LongResult(text, "read_file", "path=src/X", "c", None)
    assert (
        artifacts.stub(found, "0a", OffloadSettings(preview_chars=2_000))
        == f"{artifacts.stub(found, '0a', DEFAULTS)}\n\nPreview (first {len(shown):,} chars):\n{shown}"
    )
    message = result(text)
    assert artifacts.with_stub(message, found, "0a", OffloadSettings(preview_chars=2_000)) == {
        **artifacts.with_stub(message, found, "0a", DEFAULTS),
        "content": artifacts.stub(found, "0a", OffloadSettings(preview_chars=2_000)),
    }


@inputs(("field", "odd"), [("round_above", -1), ("round_above", "5"), ("preview_chars", None)])
def test_limits_of_rounds_and_previews_are_refused_by_name(field: str, odd: Any) -> None:
    with pytest.raises(InvalidArgument, match=field):
        OffloadSettings(**{field: odd})


def test_by_default_rounds_have_no_limit_and_stubs_no_preview() -> None:
    assert (OffloadSettings().round_above, OffloadSettings().preview_chars) == (None, 0)
