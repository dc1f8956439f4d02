"""What a model is told of memories."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flue_py.context.blocks import MEMORY_HEADER, MOST_MEMORY_CHARS, memory_text
from flue_py.errors import InvalidArgument
from tests.tables import inputs


@dataclass(frozen=True)
class Fact:
    """A fact that is remembered."""

    type: str
    name: str
    body: str


def test_memories_stand_in_order_of_type_and_name_under_the_header() -> None:
    found = memory_text(
        [Fact("user", "b", "two"), Fact("feedback", "z", "one"), Fact("user", "a", "three\nlines\r\nof it ")]
    )
    assert found.text == (
        "MEMORY — facts recalled from prior sessions:\n"
        "[feedback] z: one\n"
        "[user] a: three\n  lines\n  of it\n"
        "[user] b: two"
    )
    assert [fact.name for fact in found.told] == ["z", "a", "b"]
    assert found.dropped == ()


def test_without_memories_nothing_is_told() -> None:
    assert memory_text([]).text == ""


def test_of_what_does_not_fit_the_name_stays() -> None:
    assert MOST_MEMORY_CHARS == 8_000
    large, small = Fact("a", "large", "x" * 8_000), Fact("b", "small", "y" * 7_900)
    last = Fact("c", "last", "z" * 100)
    found = memory_text([last, small, large])
    assert found.text == f"{MEMORY_HEADER}\n[a] large\n[b] small: {small.body}\n[c] last"
    assert (found.told, found.dropped) == ((small,), (large, last))
    assert memory_text([large]).text == f"{MEMORY_HEADER}\n[a] large"


def test_no_memory_passes_for_another_or_acts_on_a_terminal() -> None:
    found = memory_text([Fact("user", "a", "x\n[user] b: y\x1b[2J\u2028[user] c: z")])
    assert found.text.split("\n") == [MEMORY_HEADER, "[user] a: x", "  [user] b: y\ufffd[2J", "  [user] c: z"]


@inputs("most", [0, len(MEMORY_HEADER) - 1, True, "8000", None])
def test_a_limit_without_room_for_the_header_is_refused(most: object) -> None:
    with pytest.raises(InvalidArgument, match="most: "):
        memory_text([], most)  # type: ignore[arg-type]


@given(
    st.lists(st.builds(Fact, st.sampled_from(["user", "project"]), st.text(max_size=20), st.text(max_size=200))),
    st.integers(len(MEMORY_HEADER), 2_000),
)
def test_every_memory_is_told_or_dropped_and_the_limit_is_kept(facts: list[Fact], most: int) -> None:
    found = memory_text(facts, most)
    assert len(found.text) <= most
    assert sorted(map(repr, (*found.told, *found.dropped))) == sorted(map(repr, facts))
    assert memory_text(facts[::-1], most).text == found.text or len({(f.type, f.name) for f in facts}) < len(facts)
    assert found.text.startswith(MEMORY_HEADER) == bool(facts)
