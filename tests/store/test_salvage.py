"""Whatever is destroyed in a file: what is readable is rescued, what is lost is named, and the rest verifies clean."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from flue_py.core.salvaging import SalvageReport
from flue_py.store.salvaging import salvage
from flue_py.store.sqlite import open_sqlite
from flue_py.testing.sources import counted_sources
from tests.store.damaged_stores import Template, destroyed, make_store, readable_by_sql, rows_of, template_of


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


def rescued(data: bytes, folder: Path) -> tuple[SalvageReport, Path]:
    """Salvage a file; return the report and the new file, which verifies clean. The old one stays as it is."""
    damaged, new = folder / "damaged.db", folder / "new.db"
    damaged.write_bytes(data)
    report = salvage(damaged, new)
    assert damaged.read_bytes() == data
    assert sorted(path.name for path in folder.iterdir()) == ["damaged.db", "new.db"]
    assert new.stat().st_mode & 0o777 == 0o600
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
    data, touched = destroyed(Random(seed), template)
    report, new = rescued(data, folder)
    rows = rows_of(new)
    before, after = template.rows["entries"], rows["entries"]
    untouched = {place for place, pages in template.pages.items() if not pages & touched}
    by_sql = readable_by_sql(folder / "damaged.db", template)
    whole = {place for place in before if place in after and content(after[place]) == content(before[place])}
    assert untouched <= whole, sorted(untouched - whole)[:5]
    kept = {place for place in by_sql if place in after and payload(after[place]) == payload(before[place])}
    assert kept == by_sql, sorted(by_sql - kept)[:5]
    lost = {entry_id for _, entry_id in before.keys() - after.keys()}
    if not (template.id_pages | template.schema_pages) & touched:
        assert lost <= set(report.lost_entry_ids)
        assert len(report.lost_entry_ids) == len(lost)
    if lost:
        assert not report.is_complete
    if not touched & {page for pages in template.pages.values() for page in pages}:
        assert lost == set()


def content(row: tuple[object, ...]) -> tuple[object, ...]:
    """Return of an entry's row what no rescue may change: not its place, its totals, its creator's state."""
    return (*row[5:9], *row[10:13], *row[24:27], row[28])


def payload(row: tuple[object, ...]) -> tuple[object, ...]:
    """Return of an entry's row the digest, and the payload, which it proves to be as it was."""
    return (*row[24:27], row[28])


@pytest.mark.parametrize("seed", range(20))
def test_what_is_readable_is_rescued(seed: int, template: Template, tmp_path: Path) -> None:
    check_round(seed, template, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_what_is_readable_is_rescued_in_many_more_rounds(seed: int, template: Template, tmp_path: Path) -> None:
    check_round(seed, template, tmp_path)
