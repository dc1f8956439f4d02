"""Undo as a person means it, between edits that programs make in nobody's name."""

from __future__ import annotations

from typing import Any

import pytest

import flue_py
from flue_py.runtime.harness import redo_last, undo_last

pytestmark = pytest.mark.anyio

STEPS: dict[str, tuple[list[tuple[str, Any, bool]], list[Any]]] = {
    "metadata of a program stay": (
        [("merge", {"a": 1}, True), ("merge", {"p": 9}, False)],
        [{"p": 9}, {"a": 1, "p": 9}],
    ),
    "a key that was replaced since stays": (
        [("merge", {"a": 1, "b": 1}, True), ("merge", {"b": 2}, False)],
        [{"b": 2}, {"a": 1, "b": 2}],
    ),
    "a key that was taken away comes back": (
        [("metadata", {"a": 1, "b": {"c": [1.5]}}, False), ("metadata", {"a": 1}, True), ("merge", {"p": 9}, False)],
        [{"a": 1, "b": {"c": [1.5]}, "p": 9}, {"a": 1, "p": 9}],
    ),
    "what an import writes stays": (
        [("merge", {"a": 1}, True), ("merge", {"imported": {"rows": 7}}, False)],
        [{"imported": {"rows": 7}}, {"a": 1, "imported": {"rows": 7}}],
    ),
    "a title of a program stays, and what was before it is undone": (
        [("label", "L", True), ("title", "mine", True), ("title", "of a program", False)],
        [("of a program", None), ("of a program", "L")],
    ),
    "a label of a program stays, and what was before it is undone": (
        [("title", "mine", True), ("label", "L", True), ("label", "of a program", False)],
        [(None, "of a program"), ("mine", "of a program")],
    ),
    "an edit whose taking back changes nothing is passed over": (
        [("title", "one", True), ("title", "two", True), ("title", "one", False)],
        [(None, None), ("one", None)],
    ),
}
"""Steps (what, the value, whether somebody is named), and what is stored after an undo and a redo."""


async def run(session: flue_py.Session, entry: str, what: str, value: Any, by: str | None) -> None:
    if what == "title":
        await session.set_title(value, by=by)
    elif what == "label":
        await session.marks.set_label(entry, value, by=by)
    else:
        await session.set_metadata(value, merge=what == "merge", by=by)


async def test_undo_leaves_what_programs_have_changed_since() -> None:
    wrong = []
    async with flue_py.open(":memory:") as store:
        for name, (steps, expected) in STEPS.items():
            session = await store.create_session()
            (entry,) = (await session.append_message({"role": "user", "content": "x"})).entry_ids
            for what, value, is_named in steps:
                await run(session, entry, what, value, "me" if is_named else None)
            seen: list[Any] = []
            for act in (undo_last, redo_last):
                line = await act(session, by="me")
                labels = await session.marks.labels()
                row = session.metadata if steps[0][0] in ("merge", "metadata") else (session.title, labels.get(entry))
                seen.append((line is not None, row))
            if seen != [(True, row) for row in expected]:
                wrong.append((name, seen))
    assert not wrong


async def test_undo_goes_back_through_values_that_come_again() -> None:
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        for title in ("one", "two", "one"):
            await session.set_title(title, by="me")
        await session.set_metadata({"a": 1}, by="me")
        seen = []
        for act in (*[undo_last] * 4, *[redo_last] * 4, *[undo_last] * 5):
            await act(session, by="me")
            seen.append((session.title, *session.metadata.values()))
        back = [("one",), ("two",), ("one",), (None,)]
        assert seen == [*back, ("one",), ("two",), ("one",), ("one", 1), *back, (None,)]
