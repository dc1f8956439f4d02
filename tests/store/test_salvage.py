"""Salvage of damaged files: readable data is rescued, losses are named, and the new store has no problems."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Container, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest

import flue_py
import flue_py.sync
from flue_py.core.json import inflate
from flue_py.core.sessions import NewSession
from flue_py.core.trees import SalvageReport
from flue_py.db.salvage.pages import PageFile, Scan, shapes
from flue_py.db.salvage.rebuild import salvage
from flue_py.db.sqlite.runner import open_sqlite
from flue_py.db.tables import metadata
from flue_py.errors import FormatTooNew, InvalidArgument, NotAStore, StoreUnavailable
from tests.checks import raises
from tests.migrations.later import later_version
from tests.samples import add, new_session, path_ids, talk, user
from tests.sources import StepSources, counted_sources
from tests.store.damaged_stores import (
    Template,
    change,
    destroyed,
    make_store,
    noise,
    readable_by_sql,
    root_of,
    rows_of,
    template_of,
)
from tests.tables import inputs
from tests.values import existing


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    path = tmp_path_factory.mktemp("salvage") / "template.db"
    asyncio.run(make_store(path))
    return template_of(path)


async def problems_of(path: Path) -> list[str]:
    backend = await open_sqlite(path, sources=counted_sources(), durability="normal", create=False)
    try:
        return [str(problem) for problem in (await backend.verify()).problems]
    finally:
        await backend.close()


def rescued(data: bytes, folder: Path, *, verified: bool = True) -> tuple[SalvageReport, Path]:
    """Salvage a file; return the report and the new file, which verifies clean. The old one stays as it is."""
    damaged, new = folder / "damaged.db", folder / "new.db"
    damaged.write_bytes(data)
    report = salvage(damaged, new)
    assert damaged.read_bytes() == data
    assert sorted(path.name for path in folder.iterdir()) == ["damaged.db", "new.db"]
    assert new.stat().st_mode & 0o777 == 0o600
    if verified:
        assert asyncio.run(problems_of(new)) == []
    return report, new


def test_an_undamaged_database_comes_out_as_it_went_in(template: Template, tmp_path: Path) -> None:
    report, new = rescued(template.data, tmp_path)
    assert report.is_complete
    assert report.damaged_pages == ()
    assert rows_of(new) == template.rows
    assert report.entries == len(template.rows["entries"])
    assert report.sessions == len(template.rows["sessions"])
    assert report.calls == len(template.rows["ledger"])


def check_round(seed: int, template: Template, folder: Path) -> None:
    data, touched = destroyed(Random(seed), template, most=20 if seed >= 1000 else 4)
    # It verifies what it wrote before it gives it its name; in the slow rounds, and below, it is verified once more.
    report, new = rescued(data, folder, verified=seed >= 1000)
    rows = rows_of(new)
    before, after = template.rows["entries"], rows["entries"]
    untouched = {place for place, pages in template.pages.items() if not pages & touched}
    by_sql = readable_by_sql(folder / "damaged.db", template)
    whole = {place for place in before if place in after and content(after[place]) == content(before[place])}
    assert {place for place in untouched if is_below(before[place], by_sql)} <= whole
    # Where a bit of an id has flipped nothing may tell which id is right, but the entry is there.
    kept = {payload(row) for row in after.values()}
    # What the entry above a payload left of its digest is no proof of anything where that cannot be read either.
    assert all(payload(before[place]) in kept for place in by_sql if is_below(before[place], by_sql))
    lost = {entry_id for _, entry_id in before.keys() - after.keys()}
    if not (template.id_pages | template.schema_pages) & touched:
        assert lost <= set(report.lost_entry_ids)
        assert len(report.lost_entry_ids) == len(lost)
    if lost:
        assert not report.is_complete
    if not touched & {page for pages in template.pages.values() for page in pages}:
        assert lost == set()


def is_below(row: tuple[object, ...], places: Container[tuple[object, ...]]) -> bool:
    """Return whether an entry is a root, or its parent is at one of these places."""
    return row[6] is None or (row[0], row[6]) in places


def content(row: tuple[object, ...]) -> tuple[object, ...]:
    """Return of an entry's row what no rescue may change: not its place, digest, totals, creator's state."""
    return (row[5], *row[7:10], *row[11:14], *row[31:33], row[34])


def payload(row: tuple[object, ...]) -> tuple[object, ...]:
    """Return of an entry's row the payload. The digest follows from it and from what the entry is below now."""
    return (*row[31:33], row[34])


@inputs("seed", range(6))
def test_what_is_readable_is_rescued(seed: int, template: Template, tmp_path: Path) -> None:
    check_round(seed, template, tmp_path)


@pytest.mark.thorough
@inputs("seed", range(6, 20))
def test_what_is_readable_is_rescued_in_more_rounds(seed: int, template: Template, tmp_path: Path) -> None:
    check_round(seed, template, tmp_path)


@pytest.mark.slow
@inputs("seed", range(1000, 1200))
def test_what_is_readable_is_rescued_in_many_more_rounds(seed: int, template: Template, tmp_path: Path) -> None:
    check_round(seed, template, tmp_path)


def rows_beside(template: Template, rows: dict[str, dict[tuple[object, ...], tuple[object, ...]]]) -> int:
    """Return how many rows of the tables beside the history are as they were."""
    tables = ("budgets", "reservations", "session_edits")
    return sum(rows[table].get(key) == row for table in tables for key, row in template.rows[table].items())


# -- a database that was upgraded -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the files of the later version."""
    folder = tmp_path_factory.mktemp("later") / "migrations"
    with later_version(folder):
        pass
    return folder


@pytest.fixture
def as_later(later: Path) -> Iterator[None]:
    """Let a test run as the later version does."""
    with later_version(later):
        yield


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory, later: Path) -> Template:
    """A database of the current format that was upgraded to the later one, and has been written to since."""
    path = tmp_path_factory.mktemp("salvage") / "upgraded.db"
    asyncio.run(make_store(path))
    with later_version(later):
        asyncio.run(go_on(path))
        assert asyncio.run(problems_of(path)) == []
        return template_of(path)


async def go_on(path: Path) -> None:
    steps = StepSources()
    steps.begin_step()
    backend = await open_sqlite(path, sources=steps.sources, durability="normal")
    for session in (await backend.list_sessions(scope=None, kind=None, limit=3, cursor=None)).sessions:
        await add(backend, session.id, *talk(4))
        await backend.move(session.id, None)
    await backend.close()


def shorter_rows(data: bytes, folder: Path) -> dict[str, set[int]]:
    """Return how many columns the records of each table of a file have."""
    found: dict[str, set[int]] = {}
    (folder / "looked-at.db").write_bytes(data)
    with PageFile(folder / "looked-at.db") as file:
        Scan(
            file, lambda shape, _, cell, __: found.setdefault(shape.name, set()).add(len(cell.values or ()))
        ).along_trees()
    (folder / "looked-at.db").unlink()
    return found


def test_an_upgraded_database_has_rows_of_both_formats_and_comes_out_as_it_went_in(
    as_later: None, upgraded: Template, tmp_path: Path
) -> None:
    today = len(metadata.tables["sessions"].columns)
    assert shorter_rows(upgraded.data, tmp_path)["sessions"] == {today, today + 1}
    report, new = rescued(upgraded.data, tmp_path)
    assert (report.is_complete, report.damaged_pages) == (True, ())
    assert rows_of(new) == upgraded.rows


@inputs("name", ["first page", "schema"])
def test_without_a_schema_rows_of_both_formats_are_found(
    as_later: None, upgraded: Template, tmp_path: Path, name: str
) -> None:
    data = bytearray(upgraded.data)
    for page in [1] if name == "first page" else sorted(upgraded.schema_pages):
        data[(page - 1) * 4096 : page * 4096] = bytes(4096)
    report, new = rescued(bytes(data), tmp_path)
    rows = rows_of(new)
    assert (report.lost_entry_ids, report.lost_session_ids) == ((), ())
    tables = ("sessions", "entries", "leaf_moves", "session_edits", "ledger", "budgets", "reservations", "marks")
    for table in (*tables, "documents"):
        assert rows[table] == upgraded.rows[table], table


@inputs("seed", range(4))
def test_what_is_readable_of_an_upgraded_database_is_rescued(
    seed: int, as_later: None, upgraded: Template, tmp_path: Path
) -> None:
    check_round(seed, upgraded, tmp_path)


@pytest.mark.thorough
@inputs("seed", [*range(4, 12), *range(1000, 1020)])
def test_what_is_readable_of_an_upgraded_database_is_rescued_in_many_more_rounds(
    seed: int, as_later: None, upgraded: Template, tmp_path: Path
) -> None:
    check_round(seed, upgraded, tmp_path)


@inputs("table", ["session_edits", "reservations", "leaf_moves"])
def test_tables_of_as_many_columns_are_told_apart(
    as_later: None, upgraded: Template, tmp_path: Path, table: str
) -> None:
    """Each gets the pages of the next one, where a damaged schema has named the wrong roots."""
    (tmp_path / "mixed.db").write_bytes(upgraded.data)
    with closing(sqlite3.connect(tmp_path / "mixed.db")) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage > 0").fetchall())
        names = ["session_edits", "reservations", "leaf_moves"]
        other = names[names.index(table) - 1]
        connection.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = ?", (roots[other], table))
        connection.commit()
    data = (tmp_path / "mixed.db").read_bytes()
    (tmp_path / "mixed.db").unlink()
    report, new = rescued(data, tmp_path)
    rows = rows_of(new)
    assert {name: rows[name] for name in names} == {name: upgraded.rows[name] for name in names}
    assert report.lost_entry_ids == ()


def test_a_budget_whose_session_is_lost_is_lost_with_it(as_later: None, upgraded: Template, tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    whole.write_bytes(upgraded.data)
    with closing(sqlite3.connect(whole)) as connection:
        kept = connection.execute("SELECT id, scope FROM sessions ORDER BY id").fetchone()
        for number, (session_id, scope) in enumerate([kept, ("a lost one", "")]):
            connection.execute(
                "UPDATE budgets SET covers = 'session', session_id = ?, scope = ? WHERE id = ?",
                (session_id, scope, f"budget-{number}"),
            )
        connection.commit()
    data = whole.read_bytes()
    whole.unlink()
    report, new = rescued(data, tmp_path)
    assert {loss.what for loss in report.losses} == {"budget", "reservation"}
    assert "budget-1: its session a lost one is lost" in {loss.detail for loss in report.losses}
    names = {column for row in rows_of(new)["budgets"].values() for column in row}
    assert ("budget-0" in names, "budget-1" in names) == (True, False)


def test_budgets_and_edits_that_are_lost_are_named(as_later: None, upgraded: Template, tmp_path: Path) -> None:
    data = bytearray(upgraded.data)
    (tmp_path / "whole.db").write_bytes(data)
    for name in ("budgets", "session_edits"):
        for page in pages_of(tmp_path / "whole.db", name):
            data[(page - 1) * 4096 : page * 4096] = bytes(4096)
    (tmp_path / "whole.db").unlink()
    report, new = rescued(bytes(data), tmp_path)
    assert rows_beside(upgraded, rows_of(new)) == 0
    whats = Counter(loss.what for loss in report.losses)
    assert (whats["budget"], whats["reservation"]) == (60, 240)
    assert any(
        loss.what == "page" and loss.detail.endswith("of session_edits, was not readable whole")
        for loss in report.losses
    )
    assert "budget: budget-7: its row is lost" in map(str, report.losses)


def test_documents_that_are_lost_are_named_and_none_is_written_that_is_not_whole(
    as_later: None, upgraded: Template, tmp_path: Path
) -> None:
    (tmp_path / "whole.db").write_bytes(upgraded.data)
    with closing(sqlite3.connect(tmp_path / "whole.db")) as connection:
        connection.execute("UPDATE documents SET body = 'Another text' WHERE name = 'document 2'")
        connection.execute("UPDATE documents SET chars = 5 WHERE name = 'document 3'")
        connection.execute("UPDATE documents SET name = 'a' || CHAR(7) WHERE name = 'document 5'")
        connection.execute("DELETE FROM documents WHERE name = 'document 39'")
        connection.commit()
    data = (tmp_path / "whole.db").read_bytes()
    (tmp_path / "whole.db").unlink()
    report, new = rescued(data, tmp_path)
    # Which one is the next is sealed anew.
    expected = {
        key: row[:-1] for key, row in upgraded.rows["documents"].items() if key[4] not in ("document 2", "document 39")
    }
    five = next(key for key in expected if key[4] == "document 5")
    row = expected.pop(five)
    renamed = (*five[:4], "rescued-name")
    written = {key: row[:-1] for key, row in rows_of(new)["documents"].items()}
    # Its seal is another one.
    assert written.pop(renamed)[:-1] == (*renamed, *renamed, *row[10:-1])
    assert written == expected
    assert report.documents == 38
    assert [str(loss) for loss in report.losses] == [
        "document: memory 'document 2', of 'repl', for '/srv/srv': its text does not match its digest"
    ]
    assert [change.what for change in report.changes] == ["document"]


def test_documents_of_which_only_the_index_is_left_are_named(
    as_later: None, upgraded: Template, tmp_path: Path
) -> None:
    data = bytearray(upgraded.data)
    (tmp_path / "whole.db").write_bytes(data)
    for page in pages_of(tmp_path / "whole.db", "documents"):
        data[(page - 1) * 4096 : page * 4096] = bytes(4096)
    (tmp_path / "whole.db").unlink()
    report, new = rescued(bytes(data), tmp_path)
    assert rows_of(new)["documents"] == {}
    lost = [loss.detail for loss in report.losses if loss.what == "document"]
    assert len(lost) == 40
    assert "file 'document 0', of 'repl': its row is lost" in lost


def pages_of(path: Path, name: str) -> set[int]:
    found: set[int] = set()
    with PageFile(path) as file:
        Scan(
            file, lambda shape, _, cell, __: found.add(cell.image.number) if shape.name == name else None
        ).along_trees()
    return found


# -- what is lost, and what becomes of the rest -----------------------------------------------------------------------


@dataclass(frozen=True)
class Small:
    """A small store, and the ids in it: a talk of ten, a fork at its fifth entry, and a session that was deleted."""

    path: Path
    root: str
    ids: list[str]
    fork: str
    fork_ids: list[str]
    deleted: list[str]


@pytest.fixture(scope="module")
def small_template(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return asyncio.run(make_small(tmp_path_factory.mktemp("salvage") / "small.db"))


async def make_small(path: Path) -> Small:
    backend = await open_sqlite(path, sources=counted_sources(), durability="normal")
    root = await new_session(backend, *talk(10), key="root")
    ids = await path_ids(backend, root.id)
    await backend.set_label(root.id, ids[2], "here")
    fork = await backend.fork(root.id, ids[4], NewSession(key="fork", title="a fork"))
    fork_ids = await add(backend, fork.id, *talk(4, 20), user(noise(1, 60_000)))
    gone = await new_session(backend, *talk(4, 40), *[user(noise(n, 3_000)) for n in range(30)], key="gone")
    deleted = await path_ids(backend, gone.id)
    await backend.delete_tree(gone.id)
    await backend.close()
    return Small(path, root.id, ids, fork.id, list(fork_ids), deleted)


@pytest.fixture
def small(small_template: Small, tmp_path: Path) -> Small:
    copy = tmp_path / "damaged.db"
    copy.write_bytes(small_template.path.read_bytes())
    return replace(small_template, path=copy)


def salvaged(small: Small) -> tuple[SalvageReport, Path]:
    new = small.path.with_name("new.db")
    report = salvage(small.path, new)
    assert asyncio.run(problems_of(new)) == []
    return report, new


def overwrite(path: Path, page: int, data: bytes = bytes(4096)) -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(data)


def corrupt_payload(path: Path, *entry_ids: str) -> None:
    """Flip bits in the stored payloads of entries, as a disk would."""
    data = bytearray(path.read_bytes())
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        heads = {head for (head,) in connection.execute("SELECT head FROM sessions")}
        for entry_id in entry_ids:
            (digest,) = connection.execute("SELECT digest FROM entries WHERE id = ?", (entry_id,)).fetchone()
            places = [found.start() for found in re.finditer(re.escape(digest), data)]
            # A head begins with the digest of the leaf.
            (place,) = (place for place in places if bytes(data[place : place + 24]) not in heads)
            data[place] ^= 1
    path.write_bytes(data)


async def paths_of(path: Path) -> dict[str, tuple[str | None, list[str]]]:
    """Return the leaf and the path of every session."""
    backend = await open_sqlite(path, sources=counted_sources(), create=False)
    try:
        page = await backend.list_sessions(scope=None, kind=None, limit=100, cursor=None)
        return {each.id: (each.leaf_id, await path_ids(backend, each.id)) for each in page.sessions}
    finally:
        await backend.close()


def test_without_its_first_page_nothing_is_lost_and_nothing_deleted_comes_back(small: Small) -> None:
    before = rows_of(small.path)
    overwrite(small.path, 1)
    report, new = salvaged(small)
    assert report.losses == report.changes == ()
    assert rows_of(new) == before


def test_what_was_deleted_does_not_come_back_with_its_free_pages_unknown_and_a_tree_torn(small: Small) -> None:
    overwrite(small.path, 1)
    overwrite(small.path, shapes(4096).roots["entries"])
    report, new = salvaged(small)
    after = {entry_id for _, entry_id in rows_of(new)["entries"]}
    assert not after & set(small.deleted)
    assert set(report.lost_entry_ids) == {*small.ids, *small.fork_ids} - after


def test_what_hangs_below_a_lost_entry_is_a_branch_of_its_own(small: Small) -> None:
    corrupt_payload(small.path, small.ids[2])
    report, new = salvaged(small)
    (loss, mark) = report.losses
    assert (loss.what, loss.session_id, loss.entry_id) == ("entry", small.root, small.ids[2])
    assert (mark.what, mark.session_id, mark.entry_id) == ("mark", small.root, small.ids[2])
    assert [(change.what, change.session_id, change.entry_id) for change in report.changes] == [
        ("entry", small.root, small.ids[3]),
        ("edit", small.root, small.ids[2]),
    ]
    paths = asyncio.run(paths_of(new))
    assert paths[small.root] == (small.ids[9], small.ids[3:])
    assert paths[small.fork] == (small.fork_ids[-1], small.ids[3:5] + small.fork_ids)
    after = {entry_id for _, entry_id in rows_of(new)["entries"]}
    assert after == {*small.ids, *small.fork_ids} - {small.ids[2]}


def test_a_lost_leaf_goes_back_to_the_nearest_entry_that_is_left(small: Small) -> None:
    corrupt_payload(small.path, small.ids[9], small.ids[8], small.fork_ids[4])
    report, new = salvaged(small)
    paths = asyncio.run(paths_of(new))
    assert paths[small.root] == (small.ids[7], small.ids[:8])
    assert paths[small.fork] == (small.fork_ids[3], small.ids[:5] + small.fork_ids[:4])
    assert [(change.what, change.session_id, change.entry_id) for change in report.changes] == [
        ("leaf", small.root, small.ids[9]),
        ("leaf", small.fork, small.fork_ids[4]),
    ]


def test_a_lost_fork_point_goes_back_too(small: Small) -> None:
    corrupt_payload(small.path, small.ids[4], *small.fork_ids)
    report, new = salvaged(small)
    assert asyncio.run(paths_of(new))[small.fork] == (small.ids[3], small.ids[:4])
    assert {change.what for change in report.changes} == {"entry", "leaf", "fork point"}


def test_a_blob_that_is_lost_is_an_entry_that_is_lost(small: Small) -> None:
    with closing(sqlite3.connect(f"file:{small.path}?mode=ro&immutable=1", uri=True)) as connection:
        (data,) = connection.execute("SELECT data FROM blobs").fetchone()
    file = small.path.read_bytes()
    start = file.index(data[-400:-200])
    small.path.write_bytes(file[:start] + b"?" * 100 + file[start + 100 :])
    report, _ = salvaged(small)
    assert report.lost_entry_ids == (small.fork_ids[4],)
    assert "blob" in report.losses[0].detail


def test_sessions_whose_rows_are_lost_are_made_from_what_is_left(small: Small) -> None:
    overwrite(small.path, root_of(small.path, "sessions"))
    report, new = salvaged(small)
    rows = {row[2]: row for row in rows_of(new)["sessions"].values()}
    assert rows.keys() == {small.root, small.fork}
    assert [rows[each][5] for each in (small.root, small.fork)] == ["root", "fork"]
    assert asyncio.run(paths_of(new)) == {
        small.root: (small.ids[9], small.ids),
        small.fork: (small.fork_ids[-1], small.ids[:5] + small.fork_ids),
    }
    assert {change.session_id for change in report.changes if change.what == "session"} == {small.root, small.fork}


@pytest.mark.parametrize("name", ["lanes", "sqlite_autoindex_entries_2", "ledger_sessions"])
def test_what_is_stored_elsewhere_too_is_not_lost(small: Small, name: str) -> None:
    before = rows_of(small.path)
    overwrite(small.path, root_of(small.path, name))
    report, new = salvaged(small)
    assert rows_of(new)["entries"] == before["entries"]
    assert rows_of(new)["lanes"] == before["lanes"]
    assert report.lost_entry_ids == report.lost_session_ids == ()


PATHS_BY_PARENTS = """
WITH RECURSIVE path(session, tree_id, id, parent_id, steps) AS (
  SELECT s.id, e.tree_id, e.id, e.parent_id, 0 FROM sessions s JOIN entries e ON e.tree_id = s.tree_id AND e.id = s.leaf
  UNION ALL SELECT p.session, e.tree_id, e.id, e.parent_id, p.steps + 1 FROM path p
    JOIN entries e ON e.tree_id = p.tree_id AND e.id = p.parent_id
) SELECT session, id FROM path ORDER BY session, steps DESC"""


def paths_by_parents(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    with closing(sqlite3.connect(path)) as connection:
        for session, entry_id in connection.execute(PATHS_BY_PARENTS):
            found.setdefault(session, []).append(entry_id)
    return found


@pytest.mark.parametrize("value", ["NULL", "'nowhere'", "id", "x'00ff'", "(SELECT MAX(e.id) FROM entries e)"])
def test_parents_are_rebuilt_from_the_lanes(small: Small, value: str) -> None:
    before = rows_of(small.path)
    change(small.path, f"UPDATE entries SET parent_id = {value}")
    report, new = salvaged(small)
    assert rows_of(new) == before
    assert report.is_complete


@pytest.mark.parametrize(
    "nonsense", ["100 + rowid, depth = 7", "1, depth = 100 - rowid", "lane_id, depth = 30 + depth"]
)
def test_lanes_are_rebuilt_from_the_parents_alone(small: Small, nonsense: str) -> None:
    before, paths = rows_of(small.path), paths_by_parents(small.path)
    change(small.path, "DELETE FROM lanes", f"UPDATE entries SET lane_id = {nonsense}")
    report, new = salvaged(small)
    rows = rows_of(new)
    assert paths_by_parents(new) == paths
    assert rows["entries"].keys() == before["entries"].keys()
    assert {key: row[4:] for key, row in rows["entries"].items()} == {
        key: row[4:] for key, row in before["entries"].items()
    }
    assert len(rows["lanes"]) == len(before["lanes"])
    assert report.lost_entry_ids == report.lost_session_ids == ()


def test_rows_that_name_each_other_as_parents_become_branches(small: Small) -> None:
    change(
        small.path,
        "DELETE FROM lanes",
        "UPDATE entries SET lane_id = 100 + rowid, depth = 7",
        f"UPDATE entries SET parent_id = '{small.ids[3]}' WHERE id = '{small.ids[1]}'",
    )
    report, new = salvaged(small)
    assert report.lost_entry_ids == ()
    names = [change.entry_id for change in report.changes if change.what == "entry"]
    assert names == [small.ids[0], small.ids[2], small.ids[1]]
    assert "the chain breaks here" in str(report.changes[-1])
    assert paths_by_parents(new) == {small.root: small.ids[2:], small.fork: [*small.ids[2:5], *small.fork_ids]}


def test_calls_that_are_lost_are_named(small: Small) -> None:
    before = rows_of(small.path)["ledger"]
    overwrite(small.path, root_of(small.path, "ledger"))
    report, new = salvaged(small)
    calls = {loss.detail for loss in report.losses if loss.what == "call"}
    names = [row[3] or f"number {number}" for (number,), row in before.items()]
    assert calls == {f"call {name}: its row is lost" for name in names}
    assert rows_of(new)["ledger"] == {}


def test_a_call_whose_amounts_are_no_numbers_is_lost_and_what_was_spent_is_derived_anew(small: Small) -> None:
    with closing(sqlite3.connect(small.path)) as connection:
        connection.execute("UPDATE ledger SET input_tokens = 'many' WHERE entry_id = ?", (small.ids[1],))
        connection.execute("UPDATE sessions SET spent_cost = 'much' WHERE id = ?", (small.fork,))
        connection.commit()
    before = rows_of(small.path)["ledger"]
    report, new = salvaged(small)
    assert len(rows_of(new)["ledger"]) == len(before) - 1
    assert {loss.what for loss in report.losses} == {"page", "call"}
    assert small.ids[1] in str(report.losses[-1])


CHANGED_ROWS = [
    ("title = 'changed'", "a column"),
    ("revision = revision + 1", "a column"),
    ("active_slot = active_slot + 1", "a column"),
    ("head = X'00'", "a column, the digest of its leaf"),
    ("head = 'text'", "a column, the digest of its leaf"),
]


@inputs("change_of_row, parts", CHANGED_ROWS)
def test_a_changed_row_of_a_session_is_taken_as_it_is_and_named(small: Small, change_of_row: str, parts: str) -> None:
    small = replace(small, path=Path(shutil.copy(small.path, small.path.parent / f"{len(change_of_row)}.db")))
    change(small.path, f"UPDATE sessions SET {change_of_row} WHERE id = '{small.fork}'")
    report = salvage(small.path, small.path.with_suffix(".new"))
    assert report.losses == ()
    assert f"session: session {small.fork}: does not match its head in {parts}: it was" in str(report.changes[0])
    with flue_py.sync.open(small.path.with_suffix(".new")) as store:
        assert store.get_session(small.fork).title == ("changed" if "title" in change_of_row else "a fork")


CHANGED_FIELDS = "its id, kind, role, source, revision, time, extra or place are not of its digest"


@inputs(
    "change_of_entry, breaks",
    [
        ("source = 'other'", [CHANGED_FIELDS]),
        ("created_at = created_at + 1", [CHANGED_FIELDS]),
        ("extra = '{\"a\": 1}'", [CHANGED_FIELDS]),
        ("digest = CAST(substr(digest, 1, 8) || X'0000000000000000' AS BLOB)", [CHANGED_FIELDS, CHANGED_FIELDS]),
    ],
)
def test_where_the_chain_breaks_is_named(small: Small, change_of_entry: str, breaks: list[str]) -> None:
    small = replace(small, path=Path(shutil.copy(small.path, small.path.parent / f"{len(change_of_entry)}.db")))
    change(small.path, f"UPDATE entries SET {change_of_entry} WHERE id = '{small.ids[6]}'")
    report = salvage(small.path, small.path.with_suffix(".new"))
    assert report.losses == ()
    named = [(change.what, change.session_id, change.entry_id, change.detail) for change in report.changes]
    assert named == [
        ("entry", small.root, entry_id, f"the chain breaks here: {why}; taken as it is")
        for entry_id, why in zip(small.ids[6:], breaks, strict=False)
    ]


def test_entries_that_were_exchanged_are_named(small: Small) -> None:
    first, second = small.ids[6:8]
    place = "(SELECT depth FROM entries WHERE id = '{}')"
    change(
        small.path,
        f"UPDATE entries SET depth = -1 WHERE id = '{first}'",
        f"UPDATE entries SET depth = {place.format(second)} - 1 WHERE id = '{second}'",
        f"UPDATE entries SET depth = {place.format(second)} + 1 WHERE id = '{first}'",
    )
    report, new = salvaged(small)
    assert report.lost_entry_ids == ()
    assert {change.entry_id for change in report.changes if "its place is not of its digest" in change.detail} >= {
        second
    }
    assert asyncio.run(paths_of(new))[small.root][1][6:8] == [second, first]


# -- with a write-ahead log -------------------------------------------------------------------------------------------


async def with_log(folder: Path) -> tuple[Path, list[str]]:
    """Return a copy of a store and its log, taken while its writer lives, and the ids in it."""
    path = folder / "live.db"
    backend = await open_sqlite(path, sources=counted_sources())
    session = await new_session(backend, *talk(4))
    for n in range(4, 40):
        await add(backend, session.id, *talk(1, n))
    ids = await path_ids(backend, session.id)
    copy = folder / "copy"
    copy.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", copy)
    await backend.close()
    return copy / "live.db", ids


def test_what_is_only_in_the_log_is_rescued_and_the_log_is_left_alone(tmp_path: Path) -> None:
    path, ids = asyncio.run(with_log(tmp_path))
    before = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    report = salvage(path, tmp_path / "new.db")
    assert report.is_complete
    assert {each.name: each.read_bytes() for each in path.parent.iterdir()} == before
    assert {entry_id for _, entry_id in rows_of(tmp_path / "new.db")["entries"]} == set(ids)


@inputs("seed", range(4))
def test_a_damaged_log_costs_no_more_than_its_damaged_pages(tmp_path: Path, seed: int) -> None:
    path, ids = asyncio.run(with_log(tmp_path))
    log = Path(f"{path}-wal")
    data = bytearray(log.read_bytes())
    random = Random(seed)
    frames = (len(data) - 32) // (4096 + 24)
    assert frames > 30
    for _ in range(2):
        start = 32 + random.randrange(frames) * (4096 + 24) + 24
        data[start : start + 4096] = random.randbytes(4096)
    if seed % 3 == 0:
        data[:32] = bytes(32)
    log.write_bytes(data)
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        try:
            by_sql = {row[0] for row in connection.execute("SELECT id FROM entries NOT INDEXED")}
        except sqlite3.Error:
            by_sql = set()
    report = salvage(path, tmp_path / "new.db")
    after = {entry_id for _, entry_id in rows_of(tmp_path / "new.db")["entries"]}
    assert by_sql <= after
    assert len(after) >= len(ids) - 12
    assert asyncio.run(problems_of(tmp_path / "new.db")) == []
    assert report.entries == len(after)


# -- what is refused --------------------------------------------------------------------------------------------------


def test_a_file_that_is_there_is_not_overwritten(small: Small, tmp_path: Path) -> None:
    taken = tmp_path / "taken.db"
    taken.write_text("mine")
    with pytest.raises(InvalidArgument, match="is there already"):
        salvage(small.path, taken)
    assert taken.read_text() == "mine"


def test_what_is_no_store_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    text, empty, other = tmp_path / "text", tmp_path / "empty", tmp_path / "other.db"
    text.write_text("no database " * 2000)
    empty.touch()
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE t (a, b)")
        connection.execute("INSERT INTO t VALUES (1, 'x')")
        connection.commit()
    names = sorted(path.name for path in tmp_path.iterdir())
    for path in (text, empty, other):
        with pytest.raises(NotAStore, match=path.name):
            salvage(path, tmp_path / "new.db")
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        salvage(tmp_path / "missing.db", tmp_path / "new.db")
    with pytest.raises(StoreUnavailable, match="cannot be made"):
        salvage(other, tmp_path / "no folder" / "new.db")
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_a_newer_format_is_refused(small: Small) -> None:
    with closing(sqlite3.connect(small.path)) as connection:
        connection.execute("UPDATE flue_store SET value = 99 WHERE name = 'format'")
        connection.commit()
    with pytest.raises(FormatTooNew, match="format 99"):
        salvage(small.path, small.path.with_name("new.db"))


def test_an_empty_store_is_rescued_empty(tmp_path: Path) -> None:
    asyncio.run(problems_of_new(tmp_path / "empty.db"))
    report = salvage(tmp_path / "empty.db", tmp_path / "new.db")
    assert report == SalvageReport(0, 0, 0)


async def problems_of_new(path: Path) -> None:
    backend = await open_sqlite(path, sources=counted_sources())
    await backend.close()


async def test_the_library_rescues_too_in_both_ways(small: Small, tmp_path: Path) -> None:
    corrupt_payload(small.path, small.ids[9])
    report = await flue_py.salvage(small.path, tmp_path / "one.db")
    assert report == await asyncio.to_thread(flue_py.sync.salvage, str(small.path), str(tmp_path / "two.db"))
    assert report.lost_entry_ids == (small.ids[9],)
    assert not report.is_complete
    assert str(report.losses[0]).startswith(f"entry: session {small.root}, entry {small.ids[9]}: ")


async def with_payloads(path: Path) -> list[str]:
    """Make a store with a payload that is text, one that is packed, and one that is apart; return their entries."""
    async with flue_py.open(path, prices=False) as store:
        session = await store.create_session()
        texts = ("short", "packed " * 2_000, noise(0, 40_000))
        return [(await session.append_message({"role": "user", "content": text})).entry_id for text in texts]


async def test_a_payload_larger_than_the_limits_is_a_loss_and_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    short, packed, apart = await with_payloads(path)
    most_unpacked = []

    def noted(data: bytes, most: int) -> bytes | None:
        found = inflate(data, most)
        most_unpacked.append(len(found or b""))
        return found

    monkeypatch.setattr("flue_py.db.ops.base.inflate", noted)
    whole = await flue_py.salvage(path, tmp_path / "whole.db")
    assert whole.is_complete
    assert max(most_unpacked) > 40_000
    most_unpacked.clear()
    report = await flue_py.salvage(path, tmp_path / "some.db", limits=flue_py.Limits(entry_bytes=20_000))
    assert report.lost_entry_ids == (apart,)
    assert "longer than 20000 bytes" in str(report.losses[0])
    assert max(most_unpacked) < 20_000
    report = await flue_py.salvage(path, tmp_path / "few.db", limits=flue_py.Limits(entry_bytes=10))
    assert set(report.lost_entry_ids) == {short, packed, apart}
    await raises(InvalidArgument, flue_py.salvage(path, tmp_path / "none.db", limits=10), match="limits")  # type: ignore[arg-type]


async def test_what_was_stored_under_larger_limits_is_read_under_smaller_ones(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    entries = await with_payloads(path)
    async with flue_py.open(path, prices=False, limits=flue_py.Limits(entry_bytes=1_000)) as store:
        (info,) = (await store.list_sessions()).sessions
        session = existing(await store.get_session(info.id))
        assert [entry.id for entry in await session.get_active_path()] == entries
        assert len(await session.build_context()) == 3
        assert (await store.verify()).problems == []
