"""A pi file that is read row by row gives what it gives when it is read as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flue_py.errors import UnreadableFile
from flue_py.formats.kit.streaming import SessionPart, whole_session
from flue_py.formats.pi.read import PiReader
from flue_py.formats.pi.whole import parse_pi
from tests.formats.pi_files import HEADER, as_lines, every_type, real_lines


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


@pytest.mark.parametrize("lines", [as_lines(every_type()), real_lines()], ids=["every type", "the real file"])
@pytest.mark.parametrize("every", [1, 7, 10_000])
def test_the_parts_of_a_file_are_its_session(lines: list[bytes], every: int) -> None:
    parts, reader = read(lines, every=every)
    whole = whole_session(parse_pi(lines, "session.jsonl"))
    assert [entry for part in parts for entry in part.entries] == list(whole.entries)
    assert [leaf for part in parts for leaf in part.leaves] == list(whole.leaves)
    assert [label for part in parts for label in part.labels] == list(whole.labels)
    assert [line for part in parts for line in part.lines] == list(whole.lines)
    titles = [title for part in parts for title in part.titles]
    assert (titles[-1].title if titles else None) == whole.session.title
    assert parts[0].session.metadata_text == whole.session.metadata_text
    assert reader.report().rows == len(lines)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 11)), max_size=10))
def test_any_parents_give_the_same_entries_but_for_circles(links: list[tuple[int, int]]) -> None:
    rows = [said(f"e{mine:07}", None if parent == 11 else f"e{parent:07}") for mine, parent in links]
    lines = as_lines([HEADER, *rows])
    parsed = parse_pi(lines, "session.jsonl")
    parts, reader = read(lines)
    made = {entry.id: entry.parent_id for part in parts for entry in part.entries}
    # What the whole reading leaves out, because it is its own ancestor, begins at a root here.
    assert {entry_id: made[str(entry_id)] for entry_id in made if entry_id in parsed.lines} == {
        entry.id: made[str(entry.id)] for entry in parsed.entries
    }
    for entry in parsed.entries:
        assert made[str(entry.id)] in (entry.parent_id, None) or made[str(entry.id)] not in parsed.lines
    order = [entry.id for part in parts for entry in part.entries]
    for place, entry_id in enumerate(order):
        parent = made[str(entry_id)]
        assert parent is None or parent in order[:place]
    assert reader.report().rows == len(lines)
    assert len(order) + reader.report().skipped_rows + 1 == len(lines)  # type: ignore[operator]


def test_a_file_without_a_header_is_refused() -> None:
    with pytest.raises(UnreadableFile, match="no pi session"):
        read(as_lines([said("a", None)]))
    with pytest.raises(UnreadableFile, match="no pi session"):
        read([b"\n", b"nothing\n"])
