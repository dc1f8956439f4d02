"""A pi file gives the same session however it is cut into parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flue_py.errors import UnreadableFile
from flue_py.formats import pi
from flue_py.formats.kit import SessionPart
from flue_py.formats.pi import PiReader
from tests.formats.pi_files import HEADER, as_lines, every_type, parse_pi, real_lines
from tests.tables import inputs


def read(lines: Sequence[bytes], *, every: int = 1000) -> tuple[list[SessionPart], PiReader]:
    reader = PiReader("session.jsonl")
    for number, line in enumerate(lines, 1):
        reader.scan(number, line)
    parts = []
    for number, line in enumerate(lines, 1):
        reader.feed(number, line)
        if number % every == 0:
            parts += reader.take()
    return [*parts, *reader.finish(take_all=False)], reader


def said(entry_id: str, parent: str | None) -> dict[str, Any]:
    row = {"type": "message", "id": entry_id, "parentId": parent, "timestamp": "2026-01-05T10:00:01.000Z"}
    return {**row, "message": {"role": "user", "content": "hello", "timestamp": 1}}


def named(kind: str, entry_id: str, parent: str | None, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "id": entry_id, "parentId": parent, "timestamp": "2026-01-05T10:00:01.000Z", **fields}


@inputs("lines", [as_lines(every_type()), real_lines()], ids=["every type", "the real file"])
@inputs("every", [1, 7])
def test_the_parts_of_a_file_are_its_session(lines: list[bytes], every: int) -> None:
    parts, reader = read(lines, every=every)
    ((whole,), _) = read(lines, every=10_000)
    assert [entry for part in parts for entry in part.entries] == list(whole.entries)
    assert [leaf for part in parts for leaf in part.leaves] == list(whole.leaves)
    assert [label for part in parts for label in part.labels] == list(whole.labels)
    assert [line for part in parts for line in part.lines] == list(whole.lines)
    assert [title for part in parts for title in part.titles] == list(whole.titles)
    assert whole.session.title == (whole.titles[-1].title if whole.titles else None)
    assert parts[0].session.metadata_text == whole.session.metadata_text
    assert reader.report().rows == len(lines)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 11)), max_size=10))
def test_any_parents_give_every_row_once_below_a_row_before_it(links: list[tuple[int, int]]) -> None:
    rows = [said(f"e{mine:07}", None if parent == 11 else f"e{parent:07}") for mine, parent in links]
    lines = as_lines([HEADER, *rows])
    whole = parse_pi(lines, "session.jsonl")
    parts, reader = read(lines, every=1)
    assert [entry for part in parts for entry in part.entries] == list(whole.entries)
    assert reader.report() == whole.report
    order: list[str | None] = [None]
    for entry in whole.entries:
        assert entry.parent_id in order
        order.append(entry.id)
    named_parents = {f"e{mine:07}": f"e{parent:07}" for mine, parent in reversed(links)}
    for entry in whole.entries:
        parent = named_parents[str(entry.id)]
        assert entry.parent_id == (parent if parent in order and parent != entry.id else None)
    assert len(whole.entries) + reader.report().skipped_rows + 1 == len(lines)  # type: ignore[operator]


@inputs("every", [1, 1000])
def test_a_label_may_come_before_its_entry_and_the_last_one_in_the_file_counts(every: int) -> None:
    rows = [
        said("a", None),
        named("label", "l1", "late", targetId="b", label="first"),
        named("label", "l2", "a", targetId="b", label="second"),
        named("label", "l3", "a", targetId="gone", label="lost"),
        named("session_info", "i1", "late", name="first"),
        named("session_info", "i2", "a", name="second"),
        said("b", "a"),
        said("late", "a"),
    ]
    parts, reader = read(as_lines([HEADER, *rows]), every=every)
    assert [(label.target_id, label.label) for part in parts for label in part.labels] == [("b", "second")]
    assert [title.title for part in parts for title in part.titles] == ["second"]
    assert [(note.line, note.text) for note in reader.report().repaired] == [
        (5, "labels 'gone', which is not in the file; no label was set")
    ]


def test_a_label_of_a_row_that_turns_out_to_be_none_is_noted() -> None:
    label = named("label", "l", None, targetId="b", label="X")
    torn = as_lines([said("b", "l")])[0][:60]
    cycle = as_lines([said("b", "c"), said("c", "b")])
    for rest in ([torn], cycle):
        parts, reader = read([*as_lines([HEADER, label]), *rest])
        assert [part.labels for part in parts] == [()]
        assert [note.line for note in reader.report().repaired] == [2]


def test_the_order_of_the_fields_of_a_row_does_not_matter() -> None:
    child, parent = said("c", "p"), said("p", None)
    parent["message"]["content"] = [{"type": "toolCall", "id": "call_1", "name": "read", "arguments": {}}]
    lines = as_lines([HEADER, child, dict(reversed(parent.items()))])
    (part,), _ = read(lines)
    assert [(entry.id, entry.parent_id) for entry in part.entries] == [("p", None), ("c", "p")]


def test_rows_whose_parents_come_much_too_late_become_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pi, "_MAX_WAITING", 3)
    rows = [said("x", "y"), said("y", "x"), said("b", "late"), said("c", "b"), said("d", "c"), said("late", None)]
    (part,), reader = read(as_lines([HEADER, *rows]))
    assert {entry.id: entry.parent_id for entry in part.entries} == {"b": None, "c": "b", "d": "c", "late": None}
    assert [(note.line, note.text) for note in reader.report().repaired] == [
        (4, "entry 'b' names the parent 'late', which comes too much later; it became a root")
    ]
    assert [note.line for note in reader.report().skipped] == [2, 3]


def test_a_file_without_a_header_is_refused() -> None:
    with pytest.raises(UnreadableFile, match="is not a pi session"):
        read(as_lines([said("a", None)]))
    with pytest.raises(UnreadableFile, match="is not a pi session"):
        read([b"\n", b"nothing\n"])
