"""The tables of tests: no row that fails is hidden by another one, and each of them is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.checks import raises
from tests.conftest import check_variants_kept
from tests.tables import inputs


def failure_of(test: Any, **fixtures: Any) -> str:
    with pytest.raises(ExceptionGroup) as failed:
        test(**fixtures)
    return str(failed.value.message)


def test_every_row_runs_and_all_that_fail_are_named() -> None:
    ran = []

    @inputs("number", range(6))
    def test(number: int) -> None:
        ran.append(number)
        with pytest.raises(ValueError, match="4"):
            int("4" if number == 0 else f"x{number}4" if number % 2 else f"x{number}")
        if number == 5:
            pytest.skip("no row is skipped")

    assert failure_of(test) == "3 of 6 rows fail: number=0; number=2; number=5"
    assert ran == list(range(6))


async def test_rows_of_coroutines_are_awaited() -> None:
    @inputs(("left", "right"), [(1, 1), (1, 2)], ids=["same", "others"])
    async def test(left: int, right: int) -> None:
        assert left == right

    await raises(ExceptionGroup, test(), match="1 of 2 rows fail: others")


def test_two_tables_are_combined_and_ids_name_their_rows() -> None:
    @inputs("number", [1, pytest.param(2, id="two")], ids=lambda number: f"of {number}")
    @inputs("text", "ab")
    def test(number: int, text: str) -> None:
        assert (number, text) == (1, "a")

    assert failure_of(test) == (
        "3 of 4 rows fail: of 1, number=1, text='b'; two, number=2, text='a'; two, number=2, text='b'"
    )


def test_nothing_that_a_row_writes_or_replaces_is_there_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = []

    @inputs("text", ["a", "b"])
    def test(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folders.append(tmp_path)
        assert list(tmp_path.iterdir()) == []
        (tmp_path / "file").write_text(text)
        monkeypatch.setattr(test, "replaced", text, raising=False)

    test(tmp_path=tmp_path, monkeypatch=monkeypatch)
    assert len(set(folders)) == 2
    assert not hasattr(test, "replaced")


def test_a_table_that_cannot_be_one_case_is_refused() -> None:
    for rows in ([], [pytest.param(1, marks=pytest.mark.slow)]):
        with pytest.raises(AssertionError):
            inputs("number", rows)
    with pytest.raises(ValueError, match="argument"):
        inputs("left, right", [(1, 2, 3)])
    with pytest.raises(AssertionError, match="does not take"):
        inputs("number", [1])(lambda text: text)


@pytest.mark.thorough(but=["1"])
@inputs("number", [1, 2])
def table_left_to_thorough(number: int) -> None: ...


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.thorough(but=["1"])
def variants_left_to_thorough(number: int) -> None: ...


def test_a_table_of_which_rows_are_to_run_each_time_is_refused(request: pytest.FixtureRequest) -> None:
    module = request.node.getparent(pytest.Module)
    items = {
        test: list(module._genfunctions(test.__name__, test))
        for test in (table_left_to_thorough, variants_left_to_thorough)
    }
    check_variants_kept(items[variants_left_to_thorough])
    with pytest.raises(pytest.UsageError, match=r"names no variant of .*::table_left_to_thorough; rows of a table"):
        check_variants_kept(items[table_left_to_thorough])
