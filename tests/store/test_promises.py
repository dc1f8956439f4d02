"""What `Backend` promises is written down, for each method."""

from __future__ import annotations

import inspect
import re

from flue_py import errors
from flue_py.db.backend import Backend

METHODS = {name: method for name, method in vars(Backend).items() if not name.startswith("_")}


def test_every_method_says_what_it_raises_and_what_it_costs() -> None:
    texts = {name: " ".join((inspect.getdoc(method) or "").split()) for name, method in METHODS.items()}
    assert len(texts) > 90
    raises = re.compile(r"\bRaises? (`|nothing of its own|what those raise|as `)")
    assert [name for name, text in texts.items() if not raises.search(text) or "O(" not in text] == []


def test_what_methods_raise_are_errors_of_the_library() -> None:
    kinds = ("NotFound", "Exists", "Conflict", "Exceeded", "Settled")
    raised = {
        (name, word)
        for name, method in METHODS.items()
        for word in re.findall(r"`([A-Z]\w+)`", inspect.getdoc(method) or "")
        if word.endswith(kinds)
    }
    assert len(raised) > 40
    assert [pair for pair in raised if not issubclass(getattr(errors, pair[1], object), errors.FlueError)] == []


def test_what_holds_for_all_methods_is_said_once() -> None:
    said = inspect.getdoc(Backend) or ""
    assert re.findall(r"^([A-Z]\w+):", said, re.MULTILINE) == [
        "Atomicity", "Leaf", "Order", "Repeating", "Errors", "Cost"
    ]  # fmt: skip
