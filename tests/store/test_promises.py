"""What `Backend` promises is written down, for each method."""

from __future__ import annotations

import inspect
import re

import pytest

from flue_py import errors
from flue_py.store.backend import Backend

METHODS = {name: method for name, method in vars(Backend).items() if not name.startswith("_")}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_says_what_it_raises_and_what_it_costs(name: str) -> None:
    text = " ".join((inspect.getdoc(METHODS[name]) or "").split())
    assert re.search(r"\bRaises? (`|nothing of its own|what those raise|as `)", text)
    assert "O(" in text


@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_raises_is_an_error_of_the_library(name: str) -> None:
    named = re.findall(r"`([A-Z]\w+)`", inspect.getdoc(METHODS[name]) or "")
    raised = {word for word in named if word.endswith(("NotFound", "Exists", "Conflict", "Exceeded", "Settled"))}
    assert all(issubclass(getattr(errors, word), errors.FlueError) for word in raised)


def test_what_holds_for_all_methods_is_said_once() -> None:
    said = inspect.getdoc(Backend) or ""
    assert re.findall(r"^([A-Z]\w+):", said, re.MULTILINE) == [
        "Atomicity", "Leaf", "Order", "Repeating", "Errors", "Cost"
    ]  # fmt: skip
