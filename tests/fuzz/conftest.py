"""The stores that hostile things are brought to, those of the tests of sessions; and what refused inputs became."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.fuzz.hostile import REFUSED
from tests.fuzz.refusals import BECAME, MAY_BECOME
from tests.sessions.conftest import pytest_generate_tests, target

__all__ = ["pytest_generate_tests", "target"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Function) -> Generator[None, object, object]:
    """Check that the inputs a test refuses become the errors that are expected of it, and report how many did."""
    REFUSED.clear()
    result = yield
    name, seen = item.originalname, set(REFUSED)
    item.user_properties += [(f"refused: {error}", count) for error, count in sorted(REFUSED.items())]
    expected = BECAME.get(item.name, BECAME.get(name, set()))
    assert seen <= expected | MAY_BECOME.get(name, set()), f"{sorted(seen)}: refusals.py expects other errors"
    assert seen >= expected, f"{sorted(seen)}: no input became {', '.join(sorted(expected - seen))} any more"
    return result
