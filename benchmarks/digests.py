"""The cost of checking the digest of every entry that is read, on a cold load of 10,000 messages.

Run with ``python -m benchmarks.digests [MESSAGES]``. Loads with and without the check take turns in one run, and are
compared by the processor time of the process, so that the ratio means something on a busy machine too.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any
from unittest.mock import patch

import flue_py
from benchmarks.measuring import fill, make_messages, settle
from flue_py.core.chain import Chain, Fields
from flue_py.db.sqlite.file import SqliteTransaction

ROUNDS = 15

Read = Callable[[flue_py.Session], Awaitable[object]]
READS: dict[str, Read] = {
    "build_context(), as dicts": lambda session: session.build_context(),
    "get_active_path(), as entries": lambda session: session.get_active_path(),
}


class _Unchecked(bytes):
    """A digest that agrees with every other."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


class _Unhashed:
    """Stands for a hash that is not computed."""

    def copy(self) -> _Unhashed:
        return self

    def update(self, data: bytes) -> None:
        pass

    def digest(self) -> bytes:
        return _Unchecked()


class _UncheckedChain(Chain):
    """Digests that are not computed."""

    def begun(self, kind: str) -> Any:
        return _Unhashed()

    def digest(self, above: bytes, fields: Fields, text: bytes) -> bytes:
        return _Unchecked()

    def text(self, above: bytes, kind: str, text: bytes) -> bytes:
        return _Unchecked()

    def has_fields(self, digest: bytes, above: bytes, fields: Fields) -> bool:
        return True


@contextmanager
def without_checks() -> Iterator[None]:
    """Have reads take every entry for what was written."""
    unchecked = _UncheckedChain()
    # Each transaction is handed the store's.
    with patch.object(SqliteTransaction, "chain", property(lambda tx: unchecked, lambda tx, chain: None), create=True):
        yield


async def cold(path: Path, read: Read, *, check: bool) -> float:
    """Return the processor seconds of a read by a handle that has read nothing, on a store just opened."""
    async with flue_py.open(path) as store:
        session = await store.open_session("long")
        settle()
        with nullcontext() if check else without_checks():
            start = process_time()
            await read(session)
            return process_time() - start


async def measure(path: Path, messages: int) -> None:
    """Print the table."""
    async with flue_py.open(path, durability="normal") as store:
        await fill(await store.create_session(key="long"), make_messages(1000), messages)
    print(f"{messages:,} messages of about 600 bytes, medians of {ROUNDS}, processor time")
    for name, read in READS.items():
        pairs = [(await cold(path, read, check=False), await cold(path, read, check=True)) for _ in range(ROUNDS)]
        without, checked = (1000 * median(times) for times in zip(*pairs, strict=True))
        ratio = median(after / before for before, after in pairs)
        print(f"{name:30} {without:6.1f} ms without, {checked:6.1f} ms with the check: {ratio:.2f} x")


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder) / "store.db", int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
