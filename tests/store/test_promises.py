"""What `Backend` promises is written down, for each method."""

from __future__ import annotations

import ast
import inspect
import re
from itertools import pairwise

from flue_py import errors
from flue_py.db.backend import Backend


def _promises() -> dict[str, str]:
    """Return the texts of the public methods: their docstrings, or those below the assignments that make them."""
    (members,) = (node.body for node in ast.parse(inspect.getsource(Backend)).body if isinstance(node, ast.ClassDef))
    texts = {node.name: ast.get_docstring(node) or "" for node in members if isinstance(node, ast.AsyncFunctionDef)}
    for node, text in pairwise(members):
        if isinstance(node, ast.Assign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            texts[ast.unparse(node.targets[0])] = str(text.value.value)
    public = [name for name, member in vars(Backend).items() if not name.startswith("_") and callable(member)]
    return {
        name: " ".join((texts.get(name) or inspect.getdoc(getattr(Backend, name)) or "").split()) for name in public
    }


TEXTS = _promises()


def test_every_method_says_what_it_raises_and_what_it_costs() -> None:
    assert len(TEXTS) > 90
    raises = re.compile(r"\bRaises? (`|nothing of its own|what those raise|as `)")
    assert [name for name, text in TEXTS.items() if not raises.search(text) or "O(" not in text] == []


def test_what_methods_raise_are_errors_of_the_library() -> None:
    kinds = ("NotFound", "Exists", "Conflict", "Exceeded", "Settled")
    raised = {
        (name, word)
        for name, text in TEXTS.items()
        for word in re.findall(r"`([A-Z]\w+)`", text)
        if word.endswith(kinds)
    }
    assert len(raised) > 40
    assert [pair for pair in raised if not issubclass(getattr(errors, pair[1], object), errors.FlueError)] == []


def test_what_holds_for_all_methods_is_said_once() -> None:
    said = inspect.getdoc(Backend) or ""
    assert re.findall(r"^([A-Z]\w+):", said, re.MULTILINE) == [
        "Atomicity", "Leaf", "Order", "Repeating", "Errors", "Cost"
    ]  # fmt: skip
