from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from flue_py.core.context import EntryCost
from flue_py.core.entries import Entry
from flue_py.core.sessions import SessionInfo, TaskLink
from flue_py.render.lines import (
    ASCII,
    MOST_BRANCHES,
    MOST_LANDMARKS,
    MOST_TURNS,
    Cost,
    Look,
    cells,
    cost_text,
    plan_tree,
    text_of,
)
from flue_py.render.views import plan_costs, plan_lines, task_lines, tree_lines
from tests.render.entries import forest, made
from tests.tables import inputs


def drawn(entries: Sequence[Entry], leaf: str | None, look: Look | None = None, *, fold: bool = True) -> list[str]:
    return [text_of(line).rstrip() for line in tree_lines(entries, leaf, look or Look(), fold=fold)]


def session(session_id: str, **fields: Any) -> SessionInfo:
    return SessionInfo(session_id, **fields)


def test_a_tree_shows_branches_leaf_labels_and_sizes() -> None:
    entries = forest([None, 0, 1, 2, 3, 4, 5, 2, 7], turn_every=3)
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


def test_a_run_without_branches_is_one_line_with_the_id_of_its_end_and_its_first_words() -> None:
    entries = forest([None, *range(1_199)])
    lines = drawn(entries, entries[-1].id, Look(60, dict.fromkeys([entry.id for entry in entries], 10)))
    assert lines == [
        "e01198 ● 1.2k msgs says e00000                           12k",
        "e01199 ● assistant says e01199 ← leaf                     10",
    ]
    assert len(drawn(entries, None, fold=False)) == 1_200


def test_a_run_begins_with_what_the_user_said_in_it() -> None:
    later = forest([None, *range(2 * MOST_TURNS)], turn_every=2)[1:]
    entries = [made("a", role="assistant"), made("b", "a", content="Why red?"), made(later[0].parent_id or "", "b")]
    lines = drawn([*entries, *later], None)
    assert "4 msgs    Why red?" in lines[0]
    assert [line.split("says ")[1] for line in lines[1:]] == [f"e{n:05d}" for n in range(2, 2 * MOST_TURNS + 1, 2)]


def test_a_run_of_other_entries_says_how_many_they_are() -> None:
    entries = [made(f"x{n}", f"x{n - 1}" if n else None, kind="note", n=n) for n in range(30)]
    assert drawn(entries, None) == ["x29 ○ 30 more   n: 0"]


def test_landmarks_have_lines_of_their_own() -> None:
    entries = [
        *forest([None, *range(19)]),
        made("k", "e00019", kind="compaction", summary="so far", firstKeptEntryId="e00003"),
        *[made(f"x{n}", f"x{n - 1}" if n else "k", role="assistant") for n in range(10)],
    ]
    lines = drawn(entries, "x4", Look(labels={"e00010": "here"}))
    assert [line.split()[0] for line in lines] == ["e00009", "e00010", "e00019", "k", "x3", "x4", "x9"]
    assert any("so far" in line for line in lines)


def test_forks_stand_below_the_entry_they_begin_at() -> None:
    entries = forest([None, *range(39)])
    forks = [session(f"fork{n}", title=f"try {n}", entry_count=n, kind="fork") for n in range(5)]
    forks[1] = session("fork1", first_message="漢字" * 60, spent_tokens=9, spent_picodollars=2_500_000_000_000)
    forks[2] = session("fork2", key="k", spent_tokens=9, unpriced_calls=1)
    plan = plan_tree(entries, "e00039", ends=["e00010"])
    lines = [text_of(line) for line in plan_lines(plan, "e00039", Look(60, costs={}), forks={"e00010": forks})]
    assert [line.split()[0] for line in lines] == ["size", "e00010", "↳", "↳", "↳", "↳", "e00038", "e00039"]
    assert lines[2].rstrip() == "       ↳ fork fork0 try 0 (0 entries)"
    assert lines[3].endswith("2.50")
    assert "…" in lines[3]
    assert lines[4].endswith(" -")
    assert lines[5].rstrip() == "       ↳ 2 more forks"
    assert {cells(line) for line in lines if "more forks" not in line} == {60}


def test_task_sessions_are_listed_below_also_those_that_are_gone() -> None:
    links = [TaskLink("s", n, f"task\x1b{n}", f"child{n}") for n in range(22)]
    lines = [text_of(line) for line in task_lines(links, {"child0": session("child0", title="Check")}, Look(70))]
    assert lines[0] == "22 tasks"
    assert lines[1].rstrip() == "↳ task child0 task\ufffd0: Check (0 entries)"
    assert lines[2] == "↳ task child1 task\ufffd1 (deleted)"
    assert [len(lines), lines[-1]] == [22, "2 more; --json tells all"]
    assert task_lines([], {}, Look()) == []
    (_, line) = task_lines([TaskLink("s", 0, "call_01HZABCDEFGH", "child")], {}, Look(70))
    assert text_of(line) == "↳ task child call_01H… (deleted)"


def test_costs_are_a_column_and_a_branch_of_several_lines_says_its_sum() -> None:
    entries = forest([None, *range(29), 9, *range(30, 39)])
    costs = {"e00009": Cost(3_000_000_000_000, is_partial=True), "e00028": Cost(0, is_partial=True)}
    sums = {"e00029": Cost(3_000_000_000_000, is_partial=True), "e00039": Cost(1)}
    look = Look(70, dict.fromkeys([entry.id for entry in entries], 1), costs=costs, branch_costs=sums)
    assert drawn(entries, "e00029", look) == [
        "                                                         size        $",
        "e00009 ● 10 msgs   says e00000                             10    3.00+",
        "e00039 ├─○ 10 msgs   says e00030                           10",
        "e00028 ● 19 msgs   says e00010                             19        -",
        "e00029 ● assistant says e00029 ← leaf Σ 3.00+               1",
    ]


@inputs(
    ("cost", "text"),
    [
        (Cost(0), "0.00"), (Cost(0, is_partial=True), "-"), (Cost(1), "<0.0001"), (Cost(99_999_999), "<0.0001"),
        (Cost(100_000_000), "0.0001"), (Cost(51_200_000_000), "0.0512"), (Cost(30_330_197_700_000), "30.33"),
        (Cost(30_330_197_700_000, is_partial=True), "30.33+"), (Cost(123_456_000_000_000_000), "123,456"),
    ],
)  # fmt: skip
def test_a_cost_is_short_and_a_dash_where_none_is_known(cost: Cost, text: str) -> None:
    assert cost_text(cost) == text


def test_lines_and_branches_cost_what_their_entries_do() -> None:
    entries = forest([None, *range(29), 9, *range(30, 39)])
    plan = plan_tree(entries, "e00029")
    costs = {
        "e00001": EntryCost(2, 1, 5),
        "e00002": EntryCost(1, 0, 7),
        "e00028": EntryCost(1, 1),
        "e00029": EntryCost(1),
    }
    lines, branches = plan_costs(plan, entries, costs)
    assert lines == {"e00009": Cost(12, is_partial=True), "e00028": Cost(0, is_partial=True), "e00029": Cost(0)}
    assert branches == {"e00029": Cost(12, is_partial=True)}
    side = {"e00035": EntryCost(1, 0, 3)}
    assert plan_costs(plan, entries, side) == ({"e00039": Cost(3)}, {})
    assert plan_costs(plan, entries, side, whole=True)[1] == {"e00039": Cost(3)}


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


def shapes(count: int) -> list[Any]:
    """Return trees of so many entries."""
    return [
        pytest.param([None, *range(count - 1)], id="a chain"),
        pytest.param([None, *[max(0, n - 2 + n % 2) for n in range(1, count)]], id="a fork at every other entry"),
        pytest.param([None, *[n // 2 for n in range(count - 1)]], id="a binary tree"),
        pytest.param([None] * count, id="roots only"),
        pytest.param([None, *[0] * (count - 1)], id="one fork of thousands"),
    ]


@inputs("parents", shapes(3_000))
def test_thousands_of_entries_of_any_shape_fit_eighty_columns_and_few_pages(parents: list[int | None]) -> None:
    entries = forest(parents)
    labels = {entry.id: "漢字" * 30 for entry in entries[::7]}
    lines = drawn(entries, entries[1_500].id, Look(labels=labels, costs={}))
    assert max(map(cells, lines)) <= 80
    assert len(lines) <= 4 * MOST_BRANCHES + 2 * MOST_LANDMARKS
    assert sum("← leaf" in line for line in lines) == 1


@pytest.mark.slow
@pytest.mark.parametrize("parents", shapes(10_000))
def test_with_all_every_one_of_ten_thousand_entries_has_a_line(parents: list[int | None]) -> None:
    entries = forest(parents)
    lines = drawn(entries, None, fold=False)
    assert sorted(line.split()[0] for line in lines) == [entry.id for entry in entries]
    assert max(map(cells, lines)) <= 80
