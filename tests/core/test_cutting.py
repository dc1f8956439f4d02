"""Long base64 is cut out of a payload's text, and what is put back makes the same text, byte for byte."""

from __future__ import annotations

import json
import tracemalloc
from base64 import b64encode, urlsafe_b64encode
from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from flue_py.core.json import SHORTEST, Cut, cut, encoded, encoded_size, splice
from tests.tables import inputs

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
    "",
    "",
    " ",
    '"',
    "\\",
    "\\\\",
    "\n",
    "\u00e9",
    "\u0000",
    "日本",
    "🚨",
    "=",
    ",",
    "u",
    "uAAAA",
    "/",
    "+",
    "1e9",
]
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
