"""The backends that the contract, the state machine and the deletion property run over."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from flue_py.store.backend import Backend, Sources
from flue_py.store.memory import MemoryBackend
from flue_py.testing.sources import OpenBackend


@dataclass(frozen=True)
class BackendKind:
    """A backend under test: its module, how to open an empty store in a folder, and its share of the examples."""

    module: str
    open_in: Callable[[Path], OpenBackend]
    share: float = 1.0

    @property
    def is_there(self) -> bool:
        return importlib.util.find_spec(self.module) is not None


def _memory(_: Path) -> OpenBackend:
    async def open_it(sources: Sources) -> Backend:
        return MemoryBackend(sources)

    return open_it


def _sqlite(folder: Path) -> OpenBackend:
    async def open_it(sources: Sources) -> Backend:
        module: Any = importlib.import_module("flue_py.store.sqlite")
        backend: Backend = await module.open_sqlite(folder / f"{uuid4().hex}.db", sources=sources, durability="normal")
        return backend

    return open_it


def _aiosqlite(folder: Path) -> OpenBackend:
    async def open_it(sources: Sources) -> Backend:
        module: Any = importlib.import_module("flue_py.store.async_engine")
        url = f"sqlite+aiosqlite:///{folder / uuid4().hex}.db"
        backend: Backend = await module.open_engine(url, sources=sources, durability="normal")
        return backend

    return open_it


KINDS = {
    "memory": BackendKind("flue_py.store.memory", _memory),
    "sqlite": BackendKind("flue_py.store.sqlite", _sqlite, share=0.5),
    "aiosqlite": BackendKind("flue_py.store.async_engine", _aiosqlite, share=0.08),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> BackendKind:
    """Each backend in turn."""
    found = KINDS[request.param]
    if not found.is_there:
        pytest.skip(f"{found.module} is not there yet")
    return found


@pytest.fixture
def open_backend(kind: BackendKind, tmp_path: Path) -> OpenBackend:
    """A function that opens a new, empty store of the backend in turn."""
    return kind.open_in(tmp_path)
