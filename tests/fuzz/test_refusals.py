"""What is noted of refused inputs: which errors they became, and that they are ours."""

from __future__ import annotations

from pathlib import Path

import pytest

import flue_py
from flue_py import errors
from tests.fuzz.hostile import REFUSED, check_refusal, note_refusal
from tests.fuzz.refusals import BECAME, MAY_BECOME
from tests.tables import inputs


@inputs("error", [OSError, RuntimeError, MemoryError, AttributeError, ValueError, TypeError, KeyError])
def test_an_error_that_is_not_ours_is_no_refusal(error: type[Exception]) -> None:
    for note in (note_refusal, check_refusal):
        with pytest.raises(AssertionError, match=error.__name__):
            note(error("something went wrong"))
    with pytest.raises(AssertionError, match="Mine"):
        note_refusal(type("Mine", (flue_py.FlueError,), {})())
    assert not REFUSED


def test_what_refused_inputs_become_is_told_of_tests_and_errors_that_there_are() -> None:
    source = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    named = {*BECAME, *MAY_BECOME}
    # Behind the name stands the case, where a test has several.
    assert [name for name in sorted(named) if f"def {name.partition('[')[0]}(" not in source] == []
    became = set().union(*BECAME.values(), *MAY_BECOME.values())
    assert {name for name in became if not hasattr(errors, name)} == set()
