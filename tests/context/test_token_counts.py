"""The table of how far each counter is from what providers counted: the page has what the program prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.token_counts import stretches, table
from flue_py.core.json import JsonObject
from tests.context.pipeline.piped import context, user

PAGE = Path(__file__).resolve().parents[2] / "docs" / "concepts" / "context.md"


@pytest.mark.thorough
def test_the_page_has_rows_that_are_measured_for_every_model() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| claude-")]
    measured = table()
    assert [row for row in rows if row not in measured] == []
    assert {row.split(" (")[0] for row in rows} == {row.split(" (")[0] for row in measured[2:]}


def call(model: str, prompt: int) -> JsonObject:
    return {"role": "assistant", "content": [], "model": model, "usage": {"input": prompt - 7, "cacheRead": 7}}


def test_a_stretch_is_from_one_call_of_a_model_to_the_next_or_from_the_first_to_each() -> None:
    items = context(
        user("q"), call("a", 100), call("b", 500), user("q"), call("a", 130),
        {**call("a", 140), "stopReason": "error"}, call("a", 150), call("a", 120),
    )  # fmt: skip
    steps = [(each.model, [one.entry_id for one in each.items], each.tokens) for each in stretches(items, whole=False)]
    assert steps == [("a", ["e1", "e2", "e3"], 30), ("a", ["e4", "e5"], 20)]
    assert [each.tokens for each in stretches(items, whole=True)] == [30, 50, 20]
