"""What makes one JSON value of another, so that lists and messages go out as they came in."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from flue_py import providers as wire
from flue_py.core.json import JsonObject, JsonValue
from flue_py.providers.base import close_difference, difference, restored
from tests.effort import examples
from tests.tables import inputs

JSON: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc0"), inner, max_size=3),
    max_leaves=12,
)


@examples(500)
@given(JSON, JSON)
def test_differences_make_one_json_value_of_another(printed: JsonValue, original: JsonValue) -> None:
    one: JsonObject = {"parts": [{"content": printed}, 1]}
    other: JsonObject = {"parts": [{"content": original}, 1]}
    before = repr(one)
    for found in (close_difference(one, other), difference(one, other)):
        assert repr(restored(one, json.loads(json.dumps(found)))) == repr(other)
        assert repr(one) == before
    assert (close_difference(one, other) == {}) == (repr(one) == repr(other))


def test_the_order_of_names_counts_in_what_a_tool_or_a_model_said_only() -> None:
    one: JsonObject = {"a": 1, "parts": [{"x": 1, "arguments": {"z": 1, "y": [{"q": 1, "p": 2}]}}]}
    same: JsonObject = {"parts": [{"arguments": {"z": 1, "y": [{"q": 1, "p": 2}]}, "x": 1}], "a": 1}
    other: JsonObject = {"a": 1, "parts": [{"x": 1, "arguments": {"z": 1, "y": [{"p": 2, "q": 1}]}}]}
    assert close_difference(one, same) == {}
    assert repr(restored(one, close_difference(one, other))) == repr(other)


def test_a_value_deeper_than_python_follows_is_kept_whole() -> None:
    def deep(end: JsonValue) -> JsonValue:
        for _ in range(100_000):
            end = [end]
        return end

    one, other = deep(1), deep(2)
    found = close_difference({"a": one, "b": 1}, {"a": other, "b": 1})
    assert list(found) == ["set"]
    assert found["set"]["a"] is other  # type: ignore[index, call-overload]


def test_a_close_difference_keeps_no_text_twice() -> None:
    said = {"type": "output_text", "text": "a long answer", "annotations": [], "logprobs": []}
    item = {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [said]}
    [(message, _)] = wire.convert(item, "openai-responses", {})
    printed = wire.to_provider(message, "openai-responses").messages[0]
    found = close_difference(printed, item)
    assert "a long answer" not in json.dumps(found)
    assert restored(printed, found) == item
    assert wire.to_provider(message, "openai-responses", {"openaiResponses": found}).messages == (item,)


@inputs(
    "found",
    [
        None,
        3,
        {"inside": 3},
        {"unset": [[], 1]},
        {"inside": {"content": [{}, {}]}},
        {"inside": {"x": [{}]}},
        {"inside": {"role": {"set": {"0": "x"}}}},
        {"inside": {"content": {"set": {"1": 7, "-1": 7, "x": 7, "٠": 7}, "inside": {"9" * 5_000: {}, "0": 3}}}},
    ],
)
def test_a_difference_that_does_not_fit_changes_nothing(found: JsonValue) -> None:
    printed: JsonObject = {"role": "user", "content": [{"type": "text"}]}
    assert restored(printed, found) == printed


def test_lists_of_other_lengths_are_kept_whole() -> None:
    one: JsonObject = {"content": [{"a": 1}], "other": [1]}
    two: JsonObject = {"content": [{"a": 1}, {"b": 2}], "other": [True]}
    assert close_difference(one, two) == {"set": {"content": two["content"]}, "inside": {"other": {"set": {"0": True}}}}
    assert restored(one, close_difference(one, two)) == two
