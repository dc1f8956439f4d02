"""Rollouts that Codex packed with zstd: the same sessions as from the plain files, whichever is imported first."""

from __future__ import annotations

import tracemalloc
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py import system
from flue_py.errors import MissingExtra, UnreadableFile
from flue_py.formats.registry import recognize
from flue_py.transfer.source import find_files
from tests.formats.test_codex_forks import FILES, FORK, SOURCE, names_of, write
from tests.formats.transcripts import all_seen

try:
    ZSTD: Any = import_module("compression.zstd")
except ImportError:
    ZSTD = pytest.importorskip("backports.zstd")


def pack(path: Path) -> Path:
    """Do as Codex: pack a file in the place of the plain one."""
    packed = path.with_name(f"{path.name}.zst")
    with ZSTD.ZstdFile(packed, "w", level=3) as file:
        file.write(path.read_bytes())
    path.unlink()
    return packed


async def import_all(store: flue_py.Store, folder: Path) -> int:
    """Import the files of a folder, and return how many entries were new."""
    return sum([(await flue_py.import_file(store, path)).added for path in find_files([folder])])


async def test_packed_files_give_the_sessions_of_the_plain_ones_in_any_order(tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    write(plain)
    for path in write(packed):
        pack(path)
    async with flue_py.open(":memory:") as store, flue_py.open(":memory:") as other:
        await import_all(store, plain)
        seen = await all_seen(store)
        await import_all(other, packed)
        assert await all_seen(other) == seen
        assert (await import_all(store, packed), await import_all(other, plain)) == (0, 0)
        assert (await all_seen(store), await all_seen(other)) == (seen, seen)


async def test_a_fork_of_a_packed_file_has_its_beginning(tmp_path: Path) -> None:
    paths = write(tmp_path, *names_of(FORK), *names_of(SOURCE))
    for path in paths[1:]:
        pack(path)
    async with flue_py.open(":memory:") as store:
        report = await flue_py.import_file(store, paths[0])
        assert (report.session_id, report.repaired) == (FORK, ())


async def test_a_packed_file_is_caught_up_with_when_it_is_unpacked_and_grows(tmp_path: Path) -> None:
    name = names_of(SOURCE)[0]
    lines = FILES[name].splitlines(keepends=True)
    async with flue_py.open(":memory:") as store, flue_py.open(":memory:") as other:
        (path,) = write(tmp_path, name)
        await flue_py.import_file(other, path)
        path.write_text("".join(lines[: len(lines) // 2]))
        old = pack(path)
        await flue_py.import_file(store, old)
        (path,) = write(tmp_path, name)
        assert (await flue_py.import_file(store, path)).added > 0
        assert await all_seen(store) == await all_seen(other)
        assert (await flue_py.import_file(store, old)).added == 0


async def test_a_damaged_packed_file_changes_nothing(tmp_path: Path) -> None:
    (path,) = write(tmp_path, names_of(SOURCE)[0])
    whole = pack(path).read_bytes()
    file = tmp_path / "rollout-x.jsonl.zst"
    async with flue_py.open(":memory:") as store:
        for data in (whole[:-9], whole[:40], whole[:4], whole + b"more"):
            file.write_bytes(data)
            with pytest.raises(UnreadableFile, match="its packed bytes are damaged"):
                await flue_py.import_file(store, file)
        assert (await store.list_sessions()).sessions == ()


async def test_without_the_extra_the_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = write(tmp_path, names_of(SOURCE)[0])
    packed = pack(path)

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(system, "import_module", missing)
    assert list(find_files([tmp_path])) == [packed]
    async with flue_py.open(":memory:") as store:
        with pytest.raises(MissingExtra, match=r"flue-py\[zstd\]"):
            await flue_py.import_file(store, packed)


def test_a_packed_file_is_read_in_little_memory(tmp_path: Path) -> None:
    file = tmp_path / "rollout-x.jsonl.zst"
    with ZSTD.ZstdFile(file, "w") as packed:
        for _ in range(64):
            packed.write(b" " * 2**20)
    tracemalloc.start()
    with system.unpacked(file.open("rb")) as opened:
        assert opened.seek(0, 2) == 64 * 2**20
        opened.seek(-3, 1)
        assert opened.read() == b"   "
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 2**20


def test_only_packed_rollouts_are_recognised(tmp_path: Path) -> None:
    head = ZSTD.compress(b"{}")
    form = recognize(head, str(tmp_path / "rollout-x.jsonl.zst"))
    assert form is not None
    assert form.name == "codex"
    assert recognize(head, str(tmp_path / "x.csv.zst")) is None
