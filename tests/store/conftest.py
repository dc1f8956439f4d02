"""The backends that the contract, the state machine and the deletion property run over."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from flue_py.db.backend import Backend
from flue_py.db.engine import open_engine
from flue_py.db.runner import Sources
from flue_py.db.sqlite import runner as sqlite
from flue_py.db.sqlite.runner import open_memory, open_on_caller, open_sqlite
from tests.files import new_store_file
from tests.sources import OpenBackend
from tests.store.sqlite_workers import Nursery, nursery


@dataclass(frozen=True)
class BackendKind:
    """A backend under test: how to open an empty store, with what fixtures, its shares of examples and steps."""

    opening: Callable[[pytest.FixtureRequest], OpenBackend]
    share: float = 1.0
    step_share: float = 1.0


@pytest.fixture
def on_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """No write is short enough to be made on the event loop."""
    monkeypatch.setattr(sqlite, "SHORT_SECONDS", 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a store that is not there yet."""
    return tmp_path / "s.db"


@pytest.fixture(params=["file", "postgresql"])
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Return a function that says where a new store is made, in either database."""
    if request.param == "postgresql":
        new_database: Callable[[], str] = request.getfixturevalue("new_store_database")
        return new_database
    return lambda: str(tmp_path / f"{uuid4().hex}.db")


def _memory(_: pytest.FixtureRequest) -> OpenBackend:
    async def open_it(sources: Sources) -> Backend:
        return open_memory(sources)

    return open_it


def _sqlite(request: pytest.FixtureRequest) -> OpenBackend:
    folder: Path = request.getfixturevalue("tmp_path")

    async def open_it(sources: Sources) -> Backend:
        return await open_sqlite(new_store_file(folder / f"{uuid4().hex}.db"), sources=sources, durability="normal")

    return open_it


def _caller(request: pytest.FixtureRequest) -> OpenBackend:
    folder: Path = request.getfixturevalue("tmp_path")

    async def open_it(sources: Sources) -> Backend:
        return open_on_caller(new_store_file(folder / f"{uuid4().hex}.db"), sources=sources, durability="normal")

    return open_it


def _aiosqlite(request: pytest.FixtureRequest) -> OpenBackend:
    folder: Path = request.getfixturevalue("tmp_path")

    async def open_it(sources: Sources) -> Backend:
        url = f"sqlite+aiosqlite:///{new_store_file(folder / f'{uuid4().hex}.db')}"
        return await open_engine(url, sources=sources, durability="normal")

    return open_it


def _postgres(request: pytest.FixtureRequest) -> OpenBackend:
    open_it: OpenBackend = request.getfixturevalue("open_postgres")
    return open_it


KINDS = {
    "memory": BackendKind(_memory, share=0.2),
    "sqlite": BackendKind(_sqlite, share=0.12),
    "caller": BackendKind(_caller, share=0.05, step_share=0.3),
    "aiosqlite": BackendKind(_aiosqlite, share=0.06, step_share=0.3),
    "postgres": BackendKind(_postgres, share=0.06, step_share=0.3),
}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out, without --run-slow, a module of which every test is slow."""
    is_slow = collection_path.name == "test_whole_contract.py"
    return True if is_slow and not config.getoption("--run-slow") else None


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> BackendKind:
    """Each backend in turn."""
    return KINDS[request.param]


@pytest.fixture
def open_backend(kind: BackendKind, request: pytest.FixtureRequest) -> OpenBackend:
    """A function that opens a new, empty store of the backend in turn."""
    return kind.opening(request)


@pytest.fixture(scope="session")
def workers() -> Iterator[Nursery]:
    """The process that all worker processes on SQLite files are forked from."""
    with nursery() as started:
        yield started


class SmallDisk:
    """A folder on a file system of its own, which can be filled, and mounted for reading only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "s.db"
        self._filler = folder / "filler"

    def forbid_writing(self) -> None:
        subprocess.run(["mount", "-o", "remount,ro", str(self.folder)], check=True)

    def fill(self) -> None:
        with suppress(OSError), self._filler.open("ab", buffering=0) as file:
            while True:
                file.write(b"\0" * 4096)

    def make_room(self) -> None:
        self._filler.unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk of three megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
