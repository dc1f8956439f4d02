"""Turns of a history: which a rewind keeps, and what a page shows of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flue_py.core.context import Turns, kept_turns, last_turns, part_in, preview, turn_numbers
from flue_py.core.json import JsonObject
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


# -- What a turn is: one table, which compactions, windows, transcripts and charts go by ------------------------------


SAID: dict[str, JsonObject] = {
    "u": {"role": "user", "content": "go on"},
    "p": {"role": "user", "content": "<system-reminder>be brief</system-reminder>"},
    "r": {"role": "toolResult", "toolCallId": "c", "content": []},
    "a": {"role": "assistant", "content": "done"},
    "A": {"role": "assistant", "content": [{"type": "toolCall", "id": "c", "name": "read", "arguments": {}}]},
}
SAID |= {"d": {**SAID["a"], "agent": "Dev"}, "D": {**SAID["A"], "agentName": "DEV"}, "v": {**SAID["a"], "agent": "Rev"}}

TABLE = {
    # what is said: the turn of each message, how many have ended, where the last turn begins
    "": ([], 0, 0),
    "u": ([1], 0, 0),
    "uArAra": ([1, 1, 1, 1, 1, 1], 1, 0),
    "uArAr": ([1, 1, 1, 1, 1], 0, 0),
    "uaua": ([1, 1, 2, 2], 2, 2),
    "uauu": ([1, 1, 2, 2], 1, 0),
    "aa": ([1, 2], 2, 1),
    "uAruAra": ([1, 1, 1, 2, 2, 2, 2], 2, 3),
    "uArpAra": ([1, 1, 1, 1, 1, 1, 1], 1, 0),
    "uapa": ([1, 1, 2, 2], 2, 2),
    "uDrdvu": ([1, 1, 1, 1, 2, 3], 2, 4),
    "uDrvu": ([1, 1, 1, 2, 3], 2, 3),
    "uDrara": ([1, 1, 1, 1, 1, 2], 2, 5),
    "uArd": ([1, 1, 1, 1], 1, 0),
}


def test_a_turn_is_of_one_agent_until_it_calls_nothing_or_somebody_else_speaks() -> None:
    wrong = []
    for said, expected in TABLE.items():
        parts = [part_in(SAID[each]) for each in said]
        counter = Turns()
        for part in parts:
            counter.add(part)
        found = (turn_numbers(parts), counter.ended, last_turns(parts, 1))
        if found != expected:
            wrong.append((said, found, expected))
    assert wrong == []
