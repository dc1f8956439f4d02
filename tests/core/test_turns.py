from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flue_py.core.context import kept_turns, preview
from flue_py.errors import InvalidArgument
from tests.tables import inputs


@inputs(
    ("wanted", "kept"),
    [
        ("0", 0), ("1", 1), ("3", 3), ("5", 5), ("6", 5), ("-1", 4), ("-5", 0), ("-6", 0), ("-0", 5), ("-00", 5),
        (" 2 ", 2), ("007", 5), ("9" * 5_000, 5), ("-" + "9" * 5_000, 0), (2, 2), (-2, 3), (0, 0), (99, 5), (-99, 0),
    ],
)  # fmt: skip
def test_a_rewind_keeps_n_turns_or_drops_the_last_n(wanted: str | int, kept: int) -> None:
    assert kept_turns(wanted, 5) == kept


@inputs("wanted", ["", "--3", "+3", "three", "1.5", "3 4", "- 3", "٣", "1e3", "0x1", True, None, 1.0])
def test_what_is_no_number_of_turns_is_refused(wanted: object) -> None:
    with pytest.raises(InvalidArgument, match="not a number of turns"):
        kept_turns(wanted, 5)  # type: ignore[arg-type]


@given(st.text(), st.integers(0, 9))
def test_no_text_is_anything_but_a_number_of_turns_there_are_or_refused(text: str, total: int) -> None:
    try:
        kept = kept_turns(text, total)
    except InvalidArgument:
        return
    assert 0 <= kept <= total


def test_a_preview_is_eighty_characters_of_one_line() -> None:
    assert preview("a\n  b\tc") == "a b c"
    assert preview("x" * 80) == "x" * 80
    assert preview("x" * 81) == "x" * 80 + "…"
    assert preview("") == ""
