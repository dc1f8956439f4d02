from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flue_py.core.entries import Entry
from flue_py.render.entries import Look
from flue_py.render.lines import ASCII, cells, text_of
from flue_py.render.tree import tree_lines
from tests.render.entries import forest, made

FOLDED = re.compile(r"[┊:] ([\d,]+) entries")


def drawn(entries: Sequence[Entry], leaf: str | None, look: Look | None = None, *, fold: bool = True) -> list[str]:
    return [text_of(line).rstrip() for line in tree_lines(entries, leaf, look or Look(), fold=fold)]


def accounted_for(lines: list[str]) -> int:
    """Return how many entries the lines stand for."""
    folds = [match.group(1) for line in lines if (match := FOLDED.search(line)) and not line.startswith("e")]
    return sum(line.startswith("e") for line in lines) + sum(int(number.replace(",", "")) for number in folds)


def test_a_tree_shows_branches_leaf_labels_and_sizes() -> None:
    entries = forest([None, 0, 1, 2, 3, 4, 5, 2, 7])
    sizes = {entry.id: 1000 * n for n, entry in enumerate(entries)}
    look = Look(60, sizes, {"e00008": "try again"})
    assert drawn(entries, "e00008", look) == [
        "e00000 ● user      says e00000                             0",
        "e00001 ● assistant says e00001                          1.0k",
        "e00002 ● assistant says e00002                          2.0k",
        "e00003 ├─○ user      says e00003                        3.0k",
        "e00004 │ ○ assistant says e00004                        4.0k",
        "e00005 │ ○ assistant says e00005                        5.0k",
        "e00006 │ ○ user      says e00006                        6.0k",
        "e00007 ● assistant says e00007                          7.0k",
        "e00008 ● assistant says e00008 [try again] ← leaf       8.0k",
    ]


def test_runs_in_which_nothing_happens_are_one_line() -> None:
    entries = forest([None, *range(99)])
    lines = drawn(entries, entries[-1].id, Look(60, dict.fromkeys([entry.id for entry in entries], 10)))
    assert lines == [
        "e00000 ● user      says e00000                            10",
        "       ┊ 98 entries, 32 turns                            980",
        "e00099 ● user      says e00099 ← leaf                     10",
    ]
    assert len(drawn(entries, None, fold=False)) == 100


def test_landmarks_are_never_folded() -> None:
    entries = [
        *forest([None, *range(19)]),
        made("k", "e00019", kind="compaction", summary="so far", firstKeptEntryId="e00003"),
        *[made(f"x{n}", f"x{n - 1}" if n else "k") for n in range(10)],
    ]
    lines = drawn(entries, "x4", Look(labels={"e00010": "here"}))
    assert [line.split()[0] for line in lines] == ["e00000", "┊", "e00010", "┊", "k", "┊", "x4", "┊", "x9"]
    assert any("so far" in line for line in lines)


def test_several_roots_and_lost_parents_stand_side_by_side() -> None:
    entries = [made("r1"), made("r2"), made("a", "gone")]
    assert [line.split()[0] for line in drawn(entries, "r2")] == ["r1", "r2", "a"]
    assert ["●" in line for line in drawn(entries, "r2")] == [False, True, False]


def test_the_active_path_goes_straight_down_however_small_its_branch() -> None:
    entries = forest([None, 0, 1, 2, 3, 0])
    lines = drawn(entries, "e00005")
    assert [line[7:9] for line in lines if "●" in line] == ["● ", "● "]


def test_an_empty_history_has_no_lines() -> None:
    assert drawn([], None) == []


def test_text_of_every_width_and_script_keeps_the_columns() -> None:
    entries = [made("a", content="漢字" * 40), made("b", "a", content="x" * 300), made("c", "b", content="\x1b[2J")]
    lines = tree_lines(entries, "c", Look(50, {"a": 5, "b": 6, "c": 7}))
    assert [cells(text_of(line)) for line in lines] == [50, 50, 50]
    assert "\x1b" not in "".join(map(text_of, lines))


def test_terminals_without_unicode_get_plain_signs() -> None:
    lines = drawn(forest([None, 0, 0, 1]), "e00003", Look(glyphs=ASCII))
    assert "".join(lines).isascii()
    assert "|-o" in lines[1]
    assert "<- leaf" in lines[-1]


@pytest.mark.parametrize(
    "parents",
    [
        pytest.param([None, *range(9_999)], id="a chain"),
        pytest.param([None, *[max(0, n - 2 + n % 2) for n in range(1, 10_000)]], id="a fork at every other entry"),
        pytest.param([None, *[n // 2 for n in range(9_999)]], id="a binary tree"),
        pytest.param([None] * 10_000, id="roots only"),
        pytest.param([None, *[0] * 9_999], id="one fork of thousands"),
    ],
)
def test_ten_thousand_entries_of_any_shape_fit_eighty_columns(parents: list[int | None]) -> None:
    entries = forest(parents)
    lines = drawn(entries, entries[5_000].id)
    assert max(map(cells, lines)) <= 80
    assert accounted_for(lines) == 10_000
    assert sum("← leaf" in line for line in lines) == 1


@given(st.data(), st.integers(1, 60))
def test_every_entry_is_shown_once_or_counted_in_a_fold(data: st.DataObject, count: int) -> None:
    parents = [data.draw(st.one_of(st.none(), st.integers(0, n - 1))) if n else None for n in range(count)]
    entries = forest(parents)
    leaf = data.draw(st.sampled_from([None, *[entry.id for entry in entries]]))
    unfolded = drawn(entries, leaf, fold=False)
    assert sorted(line.split()[0] for line in unfolded) == [entry.id for entry in entries]
    path = set()
    at = leaf
    while at is not None:
        path.add(at)
        at = next(entry.parent_id for entry in entries if entry.id == at)
    assert {line.split()[0] for line in unfolded if "●" in line} == path
    assert accounted_for(drawn(entries, leaf)) == count
