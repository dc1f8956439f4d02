"""JSON text: what is written comes back value for value, as JavaScript has it, and long base64 is cut out."""

from __future__ import annotations

import json
import math
import tracemalloc
from base64 import b64encode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from hashlib import blake2b
from random import Random
from types import MappingProxyType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flue_py.core.json import (
    LARGEST_INTEGER,
    MAX_JSON_DEPTH,
    SHORTEST,
    Cut,
    JsonValue,
    cut,
    decode_json,
    decode_object,
    encode_json,
    encoded,
    encoded_size,
    js_json,
    js_number,
    js_string,
    payload_digest,
    replace_lone_surrogates,
    splice,
    utf16_length,
    utf16_prefix,
    utf16_sort_key,
)
from flue_py.errors import CorruptStore, InvalidEntry
from tests.compaction.strategies import json_values
from tests.tables import inputs

LARGEST = LARGEST_INTEGER
REPLACEMENT = "\ufffd"

TEXTS = st.text(
    st.one_of(st.characters(codec="utf-8"), st.sampled_from('\0\x1f\x7f"\\/\u2028\ufeff\ufffd😀')), max_size=10
)
NUMBERS = st.one_of(
    st.integers(),
    st.integers(-LARGEST, LARGEST),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([-0.0, 0.0, 1.0, 1e-7, 1e16, 1e22, 5e-324, 1.7976931348623157e308, 0.1 + 0.2, 2**53 + 1, -(2**64)]),
)
VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)
# Halves of surrogate pairs, whole pairs in one and in two code points, and plain text, in every order.
BROKEN_TEXTS = st.text(st.sampled_from("a\ud800\ud83d\udbff\udc00\ude00\udfff😀\ufffd"), max_size=12)


def exact(value: object) -> str:
    """A form in which 1, 1.0 and True differ, as do 0.0 and -0.0, and two orders of the same keys."""
    return repr(value)


def repaired(text: str) -> tuple[str, int]:
    """Code point by code point: a high half before a low half is one character, any other half is replaced."""
    out: list[str] = []
    replaced = position = 0
    while position < len(text):
        here = ord(text[position])
        after = ord(text[position + 1]) if position + 1 < len(text) else 0
        if 0xD800 <= here < 0xDC00 and 0xDC00 <= after < 0xE000:
            out.append(chr(0x10000 + ((here - 0xD800) << 10) + (after - 0xDC00)))
            position += 2
            continue
        is_half = 0xD800 <= here < 0xE000
        out.append(REPLACEMENT if is_half else text[position])
        replaced += is_half
        position += 1
    return "".join(out), replaced


def nested(depth: int, make: Callable[[object], object], innermost: object = 0) -> object:
    """A value inside ``depth`` containers."""
    value = innermost
    for _ in range(depth):
        value = make(value)
    return value


# -- what comes back ------------------------------------------------------------------------------------------------


@given(VALUES)
@example({"b": 1, "a": {"d": 1.0, "c": -0.0}})
@example([LARGEST, -LARGEST, 10**40, 2**63, 1e-7, 1.0, -0.0])
@example({"NaN": "Infinity", "": [[], {}, "-Infinity"]})
def test_any_json_value_comes_back_exactly_and_in_its_key_order(value: JsonValue) -> None:
    text, replaced = encode_json(value, "data")
    assert replaced == 0
    assert exact(decode_json(text)) == exact(value)


@given(VALUES)
def test_what_is_written_is_json_to_any_other_reader(value: JsonValue) -> None:
    text, _ = encode_json(value, "data")
    assert exact(json.loads(text, parse_constant=pytest.fail)) == exact(value)
    assert text.encode().decode() == text


@given(VALUES)
def test_writing_what_was_read_gives_the_same_bytes(value: JsonValue) -> None:
    text, _ = encode_json(value, "data")
    assert encode_json(decode_json(text), "data") == (text, 0)


def test_the_text_is_compact_and_keeps_characters_as_they_are() -> None:
    text, _ = encode_json({"z": [1, 2.5, None], "a": "é😀\0\n"}, "data")
    assert text == '{"z":[1,2.5,null],"a":"é😀\\u0000\\n"}'


def test_encoding_does_not_change_what_it_is_given() -> None:
    value: JsonValue = {"a": ["x\ud800", {"\udc00": 1}]}
    encode_json(value, "data")
    assert exact(value) == exact({"a": ["x\ud800", {"\udc00": 1}]})


def test_the_deepest_nesting_that_is_accepted_comes_back() -> None:
    for make in (lambda value: [value], lambda value: {"a": value}):
        value = nested(MAX_JSON_DEPTH, make)
        assert decode_json(encode_json(value, "data")[0]) == value


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


@inputs(
    ("given_value", "stored"),
    [
        pytest.param((1, (2,)), [1, [2]], id="tuples become lists"),
        pytest.param({"a": ()}, {"a": []}, id="an empty tuple"),
        pytest.param(OrderedDict(b=1, a=2), {"b": 1, "a": 2}, id="another dict"),
        pytest.param(MappingProxyType({"b": 1, "a": (2,)}), {"b": 1, "a": [2]}, id="another mapping"),
        pytest.param({"c": Colour.RED, "l": Level.HIGH}, {"c": "red", "l": 3}, id="enums of str and int"),
    ],
)
def test_what_only_equals_json_is_stored_as_the_json_it_equals(given_value: object, stored: JsonValue) -> None:
    assert exact(decode_json(encode_json(given_value, "data")[0])) == exact(stored)


@given(VALUES)
def test_the_careful_way_of_encoding_stores_the_same_value(value: JsonValue) -> None:
    text, replaced = encode_json((value, "\ud800"), "data")
    assert replaced == 1
    assert exact(decode_json(text)) == exact([value, REPLACEMENT])


# -- surrogates -----------------------------------------------------------------------------------------------------


@given(BROKEN_TEXTS)
def test_pairs_are_joined_and_lone_halves_replaced_and_counted(text: str) -> None:
    assert replace_lone_surrogates(text) == repaired(text)


@given(st.text(st.characters(codec="utf-8")))
def test_text_without_halves_is_left_alone(text: str) -> None:
    assert replace_lone_surrogates(text) == (text, 0)


@given(st.one_of(BROKEN_TEXTS, st.text()))
def test_repairing_twice_is_repairing_once(text: str) -> None:
    cleaned, _ = replace_lone_surrogates(text)
    assert replace_lone_surrogates(cleaned) == (cleaned, 0)


@given(st.lists(BROKEN_TEXTS, max_size=4), BROKEN_TEXTS)
def test_halves_are_repaired_wherever_they_stand_keys_included(texts: list[str], key: str) -> None:
    text, replaced = encode_json({"list": texts, "object": {key: [key]}}, "data")
    clean_key, in_key = repaired(key)
    assert decode_json(text) == {"list": [repaired(each)[0] for each in texts], "object": {clean_key: [clean_key]}}
    assert replaced == sum(repaired(each)[1] for each in texts) + 2 * in_key
    text.encode()


def test_a_pair_in_two_code_points_is_one_character_and_not_counted() -> None:
    assert encode_json("\ud83d\ude00", "data") == ('"😀"', 0)
    assert encode_json("\ude00\ud83d", "data") == (f'"{REPLACEMENT * 2}"', 2)


def test_two_keys_that_the_repair_would_make_one_are_refused() -> None:
    for first in ("\ud801", "\ufffd"):
        with pytest.raises(InvalidEntry, match=r"^data\.a"):
            encode_json({"a": {first: 1, "\ud800": 2}}, "data")


# -- what is refused ------------------------------------------------------------------------------------------------


def cycle_of_lists() -> object:
    value: list[object] = []
    value.append(value)
    return value


def cycle_of_objects() -> object:
    value: dict[str, object] = {}
    value["self"] = [value]
    return value


@inputs(
    ("value", "path"),
    [
        pytest.param(math.nan, "data:", id="NaN"),
        pytest.param({"a": [1, math.inf]}, "data.a[1]:", id="infinity"),
        pytest.param([{"b": {"c": -math.inf}}], "data[0].b.c:", id="minus infinity"),
        pytest.param({"a": b"bytes"}, "data.a:", id="bytes"),
        pytest.param([bytearray(b"bytes")], "data[0]:", id="bytearray"),
        pytest.param({"a": {1, 2}}, "data.a:", id="set"),
        pytest.param({"a": frozenset()}, "data.a:", id="frozenset"),
        pytest.param([datetime(2026, 1, 1, tzinfo=UTC)], "data[0]:", id="datetime"),
        pytest.param({"cost": Decimal("0.1")}, "data.cost:", id="Decimal"),
        pytest.param({"a": object()}, "data.a:", id="object"),
        pytest.param({"a": (n for n in (1, 2))}, "data.a:", id="generator"),
        pytest.param({"a": 1 + 2j}, "data.a:", id="complex"),
        pytest.param({"a": int}, "data.a:", id="type"),
        pytest.param({"a": {1: "x"}}, "data.a:", id="integer key"),
        pytest.param({"a": {None: "x"}}, "data.a:", id="null key"),
        pytest.param({"a": [{True: "x"}]}, "data.a[0]:", id="boolean key"),
        pytest.param({"a": {("k",): "x"}}, "data.a:", id="tuple key"),
        pytest.param({"a": {b"k": "x"}}, "data.a:", id="bytes key"),
        pytest.param({"n": LARGEST + 1}, "data.n:", id="large integer"),
        pytest.param([-LARGEST - 1], "data[0]:", id="large negative integer"),
        pytest.param(10**5000, "data:", id="integer of 5000 digits"),
        pytest.param(cycle_of_lists(), "data[0][0][0]", id="cycle of lists"),
        pytest.param(cycle_of_objects(), "data.self[0].self[0]", id="cycle of objects"),
        pytest.param(nested(MAX_JSON_DEPTH + 1, lambda value: [value]), "data[0][0]", id="one list too deep"),
        pytest.param(nested(MAX_JSON_DEPTH + 1, lambda value: {"k": value}), "data.k.k", id="one object too deep"),
        pytest.param(nested(10_000, lambda value: [value]), "data[0][0]", id="10,000 lists deep"),
        pytest.param(nested(10_000, lambda value: {"k": value}), "data.k.k", id="10,000 objects deep"),
    ],
)
def test_what_json_cannot_hold_is_refused_and_its_path_named(value: object, path: str) -> None:
    with pytest.raises(InvalidEntry) as caught:
        encode_json(value, "data")
    assert str(caught.value).startswith(path)


def test_the_same_list_twice_is_no_cycle() -> None:
    shared: list[object] = [1]
    assert decode_json(encode_json({"a": shared, "b": [shared]}, "data")[0]) == {"a": [1], "b": [[1]]}


# -- reading what is stored -----------------------------------------------------------------------------------------


@inputs(
    "text",
    ["", " ", "{", "[1,]", '{"a":1,}', "{'a':1}", "nope", '"open', '{"a" 1}', "1 2", "[" * 100_000, "\x00"],
    ids=lambda text: repr(text[:12]),
)
def test_what_is_no_json_is_a_corrupt_store(text: str) -> None:
    with pytest.raises(CorruptStore, match="verify"):
        decode_json(text)


@inputs("text", ["NaN", "[Infinity]", '{"a":-Infinity}'])
def test_constants_that_json_does_not_know_are_a_corrupt_store(text: str) -> None:
    with pytest.raises(CorruptStore):
        decode_json(text)


@inputs("text", ["null", "1", '"a"', "[]", "true"])
def test_a_payload_that_should_be_an_object_and_is_not_is_a_corrupt_store(text: str) -> None:
    with pytest.raises(CorruptStore, match="not an object"):
        decode_object(text)


def test_the_cause_of_a_decode_error_is_chained() -> None:
    with pytest.raises(CorruptStore) as caught:
        decode_json("{")
    assert isinstance(caught.value.__cause__, ValueError)


def test_json_that_others_wrote_is_read_with_spaces_and_escapes() -> None:
    assert decode_json(' {"a" : "\\u00e9\\ud83d\\ude00\\u0000" , "b" : [ 1e2 , -0 ] } ') == {
        "a": "é😀\0",
        "b": [100.0, 0],
    }


def test_each_decoding_is_the_callers_own() -> None:
    first, second = decode_object('{"a":[1]}'), decode_object('{"a":[1]}')
    first["a"] = None
    assert second == {"a": [1]}


# -- digests and lengths --------------------------------------------------------------------------------------------


@given(st.text(st.characters(codec="utf-8")))
def test_the_digest_is_blake2b_of_the_utf8_bytes(text: str) -> None:
    assert payload_digest(text) == blake2b(text.encode(), digest_size=16).digest()


@given(st.one_of(st.text(), BROKEN_TEXTS))
def test_the_utf16_length_counts_code_units(text: str) -> None:
    assert utf16_length(text) == len(text.encode("utf-16-le", "surrogatepass")) // 2


# -- Text is measured, printed and sorted as JavaScript does it ---------------------------------------------------


@inputs(
    ("value", "printed"),
    [
        (0, "0"), (-0.0, "0"), (1.0, "1"), (-17, "-17"), (0.1, "0.1"), (123.456, "123.456"), (1e-5, "0.00001"),
        (1e-6, "0.000001"), (1e-7, "1e-7"), (-1.25e-7, "-1.25e-7"), (5e-324, "5e-324"), (1e16, "10000000000000000"),
        (1e20, "100000000000000000000"), (123456789012345680000.0, "123456789012345680000"), (1e21, "1e+21"),
        (10**21, "1e+21"), (1.5e300, "1.5e+300"), (2**53, "9007199254740992"), (2**53 + 1, "9007199254740992"),
        (12345678901234567890, "12345678901234567000"), (10**400, "null"), (math.inf, "null"), (math.nan, "null"),
    ],
)  # fmt: skip
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


# -- Long base64 is cut out of a payload's text, and what is put back makes the same text, byte for byte ----------


SHORT = 16
"""So few characters are cut out in most of these tests."""

runs = st.builds(
    lambda data, drop, pad: b64encode(data).decode()[: len(b64encode(data)) - drop] + "=" * pad,
    st.binary(max_size=60),
    st.sampled_from([0, 0, 0, 0, 1, 2, 3]),
    st.sampled_from([0, 0, 0, 0, 1, 2]),
)
"""Base64, sometimes without some of its padding or with too much, and sometimes cut short."""

pieces = [
    "", "", " ", '"', "\\", "\\\\", "\n", "\u00e9", "\u0000", "日本", "🚨", "=", ",", "u", "uAAAA", "/", "+", "1e9",
]  # fmt: skip
glue = st.sampled_from([*pieces, "data:a/b;base64,"]) | st.text(st.characters(codec="utf-8"), max_size=3)
strings = st.lists(st.tuples(glue, runs), max_size=5).map(lambda parts: "".join(a + b for a, b in parts))
values = st.recursive(
    strings | st.integers(-(10**40), 10**40) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3),
    max_leaves=5,
)
texts = st.builds(
    lambda value, ascii_only, spaced: json.dumps(
        value, ensure_ascii=ascii_only, separators=(", ", ": ") if spaced else (",", ":")
    ).encode(),
    values,
    st.booleans(),
    st.booleans(),
)


def put_back(rest: bytes, cuts: tuple[Cut, ...]) -> bytes:
    return splice(rest, [(each.place, encoded(each.data)) for each in cuts])


@given(texts, st.sampled_from([8, SHORT, 40]))
@example(b'"' + b"A" * 16 + b"==" + b"B" * 16 + b'"', SHORT)
@example(rb'"\nAAAAAAAAAAAAAAAAAAAA"', SHORT)
@example(rb'"\\nAAAAAAAAAAAAAAAAAAAA"', SHORT)
@example(rb'"\u00e9AAAAAAAAAAAAAAAA"', SHORT)
@example(b"1" * 64, SHORT)
@example(b"", SHORT)
def test_what_was_cut_out_makes_the_same_text_again_and_the_rest_is_json(text: bytes, shortest: int) -> None:
    rest, cuts = cut(text, shortest)
    assert put_back(rest, cuts) == text
    assert all(len(encoded(each.data)) == encoded_size(len(each.data)) >= shortest for each in cuts)
    places = [each.place for each in cuts]
    assert places == sorted(set(places))
    if text:
        json.loads(rest)


@given(st.binary(min_size=12, max_size=100), strings, strings)
def test_base64_between_other_words_is_cut_out_decoded(data: bytes, before: str, after: str) -> None:
    text = json.dumps([f"{before} ", f"{b64encode(data).decode()}", after]).encode()
    _, cuts = cut(text, SHORT)
    assert data in [each.data for each in cuts]


@inputs(
    "text",
    [
        urlsafe_b64encode(Random(1).randbytes(60)),
        b64encode(b"\xff" * 31).rstrip(b"="),
        b64encode(b"\xff" * 31).replace(b"w==", b"x=="),
        b64encode(b"\xff" * 31)[:-3],
        b"\\n".join([b64encode(b"\xff" * 9)] * 9),
    ],
    ids=["for URLs", "without padding", "with bits to spare", "cut short", "over lines"],
)
def test_what_encoding_would_not_make_again_stays(text: bytes) -> None:
    quoted = b'"' + text + b'"'
    assert cut(quoted, SHORT) == (quoted, ())


def test_a_number_stays() -> None:
    text = b'{"n":' + b"9" * 64 + b',"e":1e' + b"0" * 64 + b"}"
    assert cut(text, SHORT) == (text, ())


def test_only_what_is_long_enough_is_cut_out() -> None:
    data = Random(2).randbytes(SHORTEST // 4 * 3)
    long, short = b64encode(data), b64encode(data[3:])
    assert cut(b'["' + long + b'","' + short + b'"]') == (b'["","' + short + b'"]', (Cut(2, data),))
    assert len(long) == SHORTEST


@given(st.integers(0, 70), st.integers(1, 3), st.integers(0, 3))
def test_where_in_the_text_it_stands_does_not_matter(before: int, count: int, extra: int) -> None:
    data = Random(3).randbytes(SHORT // 4 * 3 + 3 * extra)
    text = b'"' + b"-" * before + b'" "'.join([b64encode(data)] * count) + b'"'
    _, cuts = cut(text, SHORT)
    assert [each.data for each in cuts] == [data] * count


def test_text_of_words_takes_no_memory() -> None:
    text = json.dumps("the quick brown fox " * 100_000).encode()
    tracemalloc.start()
    try:
        assert cut(text) == (text, ())
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()
