"""Text is measured, printed and sorted as JavaScript does it."""

from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from flue_py.core.json import JsonValue, js_json, js_number, js_string, utf16_length, utf16_prefix, utf16_sort_key
from tests.compaction.strategies import json_values
from tests.tables import inputs


@inputs(
    ("value", "printed"),
    [
        (0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-17, "-17"),
        (0.1, "0.1"),
        (123.456, "123.456"),
        (1e-5, "0.00001"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (-1.25e-7, "-1.25e-7"),
        (5e-324, "5e-324"),
        (1e16, "10000000000000000"),
        (1e20, "100000000000000000000"),
        (123456789012345680000.0, "123456789012345680000"),
        (1e21, "1e+21"),
        (10**21, "1e+21"),
        (1.5e300, "1.5e+300"),
        (2**53, "9007199254740992"),
        (2**53 + 1, "9007199254740992"),
        (12345678901234567890, "12345678901234567000"),
        (10**400, "null"),
        (math.inf, "null"),
        (math.nan, "null"),
    ],
)
def test_numbers_print_as_javascript_prints_the_nearest_double(value: float, printed: str) -> None:
    assert js_number(value) == printed


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_printed_number_reads_back_as_the_same_double(value: float) -> None:
    assert float(js_number(value)) == value


@given(st.integers(-(10**30), 10**30))
def test_an_integer_prints_as_the_double_it_is_in_javascript(value: int) -> None:
    assert js_number(value) == js_number(float(value))


def test_objects_are_compact_and_nothing_is_escaped_without_need() -> None:
    value: JsonValue = {"path": "é 数 🚀 \u2028", "o": [1, 2.50, True, None, {"q": '"\\/'}]}
    assert js_json(value) == '{"path":"é 数 🚀 \u2028","o":[1,2.5,true,null,{"q":"\\"\\\\/"}]}'


def test_control_characters_have_their_short_escapes_or_lower_case_hexadecimals() -> None:
    assert js_string("\b\t\n\f\r\x00\x1f\x7f") == '"\\b\\t\\n\\f\\r\\u0000\\u001f\x7f"'


def test_a_lone_surrogate_is_escaped_and_a_pair_is_not() -> None:
    assert js_string("a\udc00b\ud83d\ude80") == '"a\\udc00b🚀"'
    assert js_string("\ude80\ud83d") == '"\\ude80\\ud83d"'


def test_array_index_keys_come_first_in_ascending_order() -> None:
    value: JsonValue = {"b": 1, "10": 2, "9": 3, "01": 4, "0": 5, "-1": 6, "4294967295": 7, "4294967294": 8}
    keys = ["0", "9", "10", "4294967294", "b", "01", "-1", "4294967295"]
    assert list(json.loads(js_json(value))) == keys


@given(json_values)
def test_printed_json_reads_back_as_the_same_value(value: JsonValue) -> None:
    assert json.loads(js_json(value), parse_int=float) == _as_doubles(value)


def _as_doubles(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {json.loads(js_string(key)): _as_doubles(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_doubles(item) for item in value]
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


@given(st.text(alphabet="aé数🚀", max_size=40), st.integers(0, 70))
def test_a_prefix_of_whole_characters_is_at_most_a_unit_shorter(text: str, units: int) -> None:
    prefix = utf16_prefix(text, units)
    assert text.startswith(prefix)
    assert min(units, utf16_length(text)) - utf16_length(prefix) in (0, 1)


def test_sorting_is_by_utf16_code_units_and_not_by_code_points() -> None:
    assert sorted(["\U0001f680", "\uffee", "a"], key=utf16_sort_key) == ["a", "\U0001f680", "\uffee"]
