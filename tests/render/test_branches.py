from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flue_py.render.lines import MOST_BRANCHES, MOST_TURNS, Plan, plan_tree
from tests.effort import examples
from tests.render.entries import forest


def ids(plan: Plan) -> list[list[str]]:
    return [[entry.id for entry in run.entries] for run in plan.runs]


def name(number: int) -> str:
    return f"e{number:05d}"


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[int | None], int | None]:
    """Draw parents, and the number of the leaf."""
    count = draw(st.integers(1, 60))
    parents = [draw(st.one_of(st.none(), st.integers(0, n - 1))) if n else None for n in range(count)]
    return parents, draw(st.one_of(st.none(), st.integers(0, count - 1)))


@examples(60)
@given(trees(), st.booleans(), st.one_of(st.none(), st.integers(0, 3)), st.sets(st.integers(0, 59), max_size=5))
def test_every_entry_is_on_one_line_or_counted_as_folded_away(
    tree: tuple[list[int | None], int | None], fold: bool, depth: int | None, marked: set[int]
) -> None:
    parents, leaf = tree
    leaf_id = None if leaf is None else name(leaf)
    landmarks = {name(n) for n in marked}
    plan = plan_tree(forest(parents), leaf_id, fold=fold, depth=depth, landmarks=landmarks)
    drawn = [entry_id for run in ids(plan) for entry_id in run]
    assert len(drawn) == len(set(drawn))
    assert len(drawn) + plan.folded_entries == len(parents)
    assert len(plan.branches) == len({run.branch.tip_id for run in plan.runs}) + plan.folded_branches
    path = set()
    while leaf is not None:
        path.add(name(leaf))
        leaf = parents[leaf]
    assert plan.active == path
    assert path <= set(drawn)
    for run in plan.runs:
        for above, below in zip(run.entries, run.entries[1:], strict=False):
            assert below.parent_id == above.id
        if depth is not None:
            assert run.branch.nesting <= depth
    if leaf_id is not None:
        assert [run[-1] for run in ids(plan) if leaf_id in run] == [leaf_id]


@examples(40)
@given(trees())
def test_unfolded_every_entry_is_a_line_and_a_parent_comes_first(tree: tuple[list[int | None], int | None]) -> None:
    parents, _ = tree
    plan = plan_tree(forest(parents), None, fold=False)
    order = [run.id for run in plan.runs]
    assert sorted(order) == [name(n) for n in range(len(parents))]
    for number, parent in enumerate(parents):
        assert parent is None or order.index(name(parent)) < order.index(name(number))


def test_a_short_history_is_shown_entry_by_entry() -> None:
    assert len(plan_tree(forest([None, *range(23)]), None).runs) == 24
    assert len(plan_tree(forest([None, *range(24)]), None).runs) == 1


def test_a_long_history_has_a_line_for_each_of_its_last_turns() -> None:
    plan = plan_tree(forest([None, *range(29)], turn_every=6), name(29))
    assert [[run.entries[0].id, run.id] for run in plan.runs] == [
        [name(0), name(5)], [name(6), name(11)], [name(12), name(17)], [name(18), name(23)], [name(24), name(28)],
        [name(29), name(29)],
    ]  # fmt: skip
    last = 3 * (MOST_TURNS + 10)
    plan = plan_tree(forest([None, *range(last)], turn_every=3), name(last))
    assert [run.entries[0].id for run in plan.runs][:2] == [name(0), name(33)]
    assert len(plan.runs) == MOST_TURNS + 1


def test_a_branch_below_the_depth_is_counted_where_it_leaves() -> None:
    chain: list[int | None] = [None, *range(29)]
    plan = plan_tree(forest([*chain, 9, 30, 31, 30, 19]), name(29), depth=0)
    assert [(run.id, run.folded) for run in plan.runs] == [(name(28), 3), (name(29), 0)]
    assert (plan.folded_branches, plan.folded_entries) == (3, 5)
    plan = plan_tree(forest([*chain, 9, 30, 31, 30, 19]), name(29), depth=1)
    assert plan.folded_branches == 1
    assert [run.folded for run in plan.runs if run.branch.nesting == 1] == [1, 0]


def test_of_many_branches_the_active_the_marked_and_the_largest_are_shown() -> None:
    chain: list[int | None] = [None, *range(99)]
    sides: list[int | None] = []
    for n in range(90):
        sides += [n, len(chain) + len(sides)] if n % 3 == 0 else [n]
    entries = forest([*chain, *sides])
    marked, leaf = entries[101 + 1].id, entries[-1].id
    plan = plan_tree(entries, leaf, landmarks=[marked])
    assert len({run.branch.tip_id for run in plan.runs}) == MOST_BRANCHES
    drawn = {entry_id for run in ids(plan) for entry_id in run}
    assert {marked, leaf, name(99)} <= drawn
    large = [branch for branch in plan.branches if branch.entries == 2]
    assert {branch.tip_id for branch in large} <= drawn


def test_branches_know_where_they_left_how_long_they_are_and_which_is_active() -> None:
    plan = plan_tree(forest([None, 0, 1, 0, 3, 4, None]), name(5))
    assert [(b.parent_id, b.tip_id, b.entries, b.nesting, b.is_active) for b in plan.branches] == [
        (None, name(5), 4, 0, True),
        (name(0), name(2), 2, 1, False),
        (None, name(6), 1, 0, False),
    ]
