"""What edits of the bytes of a closed file can do: a read refuses what was edited, or says what it said before.

SQLite follows an index without comparing it with its table: where a page that is none of a table's rows was edited, an
answer may differ, and `verify` names the damage.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from flue_py.db.salvage.pages import Cell, PageFile, Scan, Shape
from flue_py.db.sqlite.runner import open_on_caller, read_only_on_caller
from flue_py.errors import FlueError, SessionNotFound
from tests.effort import first
from tests.sources import START_US, counted_sources
from tests.store.edits import answer_of, is_refused, make, ran, reads
from tests.store.test_edits import CREATOR, UNSEEN

PAGE = 4096
SINGLE_BYTES = ("flip", "zero", "exchange")
PAGES = ("zero page", "noise", "exchange pages", "cut")
EDITS, PARTS = 1_000, 40


class Stored(NamedTuple):
    """A closed file: its bytes, the table or index of each page that has rows, its sessions, and what it says."""

    path: Path
    data: bytes
    owners: dict[int, Shape]
    session_ids: list[str]
    answers: dict[tuple[str, str], object]


def answers_of(path: Path, session_ids: list[str]) -> tuple[dict[tuple[str, str], object], bool]:
    """Return what a store says, and whether its damage is named. Raises an error of ours where it is not opened."""
    backend = read_only_on_caller(path, sources=replace(counted_sources(), now_us=lambda: START_US + 1_000_000))
    try:
        answers = {place: answer_of(read) for place, read in reads(backend, session_ids).items()}
        return answers, bool(ran(backend.verify()).problems)
    finally:
        ran(backend.close())


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    path: Path = tmp_path_factory.mktemp("file-edits") / "s.db"
    writer = open_on_caller(path, sources=counted_sources(), durability="normal")
    session_ids = ran(make(writer))
    ran(writer.close())
    owners: dict[int, Shape] = {}

    def note(shape: Shape, _: int, cell: Cell, __: bool) -> None:
        owners[cell.image.number] = shape

    with PageFile(path) as file:
        Scan(file, note).along_trees()
    answers, is_damaged = answers_of(path, session_ids)
    assert not is_damaged
    return Stored(path, path.read_bytes(), owners, session_ids, answers)


def edited(data: bytes, kind: str, draw: Random) -> tuple[bytes, set[int]]:
    """Return a file with one edit, and the numbers of the pages that it touched; of a cut, those that are gone."""
    made = bytearray(data)
    places = [draw.randrange(len(data)) for _ in range(2)]
    at, other = places
    page, other_page = (slice(place // PAGE * PAGE, place // PAGE * PAGE + PAGE) for place in places)
    if kind == "cut":
        return data[:at], set(range(at // PAGE + 1, len(data) // PAGE + 1))
    if kind == "flip":
        made[at] ^= 1 << draw.randrange(8)
    elif kind == "zero":
        made[at] = 0
    elif kind == "exchange":
        made[at], made[other] = data[other], data[at]
    elif kind == "exchange pages":
        made[page], made[other_page] = data[other_page], data[page]
    else:
        made[page] = bytes(PAGE) if kind == "zero page" else draw.randbytes(PAGE)
    return bytes(made), {place // PAGE + 1 for place in (places if "exchange" in kind else places[:1])}


def is_unseen(shape: Shape, name: str, answer: object) -> bool:
    """Return whether an edit of a table may change what a read says."""
    is_gone = answer is None or isinstance(answer, SessionNotFound) or name == "list"
    of_table = {"entries": CREATOR}.get(shape.table, set()) | UNSEEN.get(shape.table, set())
    return name in of_table or (shape.table == "sessions" and (is_gone or name in CREATOR))


@pytest.mark.parametrize("part", first(1, [slice(0, EDITS, PARTS), slice(EDITS)]), ids=["few", "all"])
def test_an_edit_of_a_file_is_refused_where_it_is_read_or_changes_nothing(stored: Stored, part: slice) -> None:
    holes: list[object] = []
    refused = 0
    for seed in range(EDITS)[part]:
        draw = Random(seed)
        kind = draw.choice(SINGLE_BYTES if seed % 2 else PAGES)
        data, pages = edited(stored.data, kind, draw)
        if data == stored.data:
            continue
        stored.path.write_bytes(data)
        try:
            answers, is_named = answers_of(stored.path, stored.session_ids)
        except FlueError as error:
            refused += 1
            if str(stored.path) not in str(error):
                holes.append((seed, kind, pages, "opening", error))
            continue
        shapes = [stored.owners.get(page) for page in pages]
        in_tables = [shape for shape in shapes if shape is not None and shape.holds_rows]
        for place, answer in answers.items():
            refused += is_refused(answer)
            if answer == stored.answers[place] or is_refused(answer):
                continue
            is_followed = len(in_tables) < len(shapes) and is_named
            if not (is_followed or any(is_unseen(shape, place[0], answer) for shape in in_tables)):
                holes.append((seed, kind, pages, place, answer))
    assert holes == []
    assert refused > 5
