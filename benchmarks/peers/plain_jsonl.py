"""A plain JSONL file per session, with an fsync per line: what the bare minimum costs. It is no store."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from benchmarks.measuring import body
from benchmarks.peers.protocol import Message, Place, output_tokens


async def open_peer(folder: Path) -> FilesPeer:
    """Use ``folder``."""
    return FilesPeer(folder)


class FilesPeer:
    """A folder of files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened: list[IO[str]] = []

    async def session(self, name: str) -> FileSession:
        path = self._folder / f"{name}.jsonl"
        file = path.open("a", encoding="utf-8")
        self._opened.append(file)
        return FileSession(path, file)

    async def close(self) -> None:
        for file in self._opened:
            file.close()


class FileSession:
    """A file of one message per line. Whoever appends waits for the disk, and so does the event loop."""

    def __init__(self, path: Path, file: IO[str]) -> None:
        self._path = path
        self._file = file

    async def append(self, message: Message) -> None:
        self._write(self._file, [message])

    async def append_many(self, messages: Sequence[Message]) -> None:
        self._write(self._file, messages)

    async def load(self) -> int:
        return len(self._read())

    async def place(self, before: int) -> Place:
        return before

    async def fork(self, at: Place) -> None:
        number = len(list(self._path.parent.glob("*.fork")))
        messages = self._read()
        with self._path.with_suffix(f".{number}.fork").open("w", encoding="utf-8") as file:
            self._write(file, messages[: int(at)])

    async def usage_since(self, since: Place) -> int:
        return output_tokens(self._read()[int(since) :])

    async def compact(self, summary: str, kept: Sequence[Message]) -> None:
        self._write(self._file, [{"role": "user", "content": summary, "kept": len(kept)}, *kept])

    async def context(self) -> int:
        return len(self._read()[-201:])

    async def last(self, count: int) -> int:
        return len(self._read()[-count:])

    def _read(self) -> list[Message]:
        with self._path.open(encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    @staticmethod
    def _write(file: IO[str], messages: Sequence[Message]) -> None:
        file.write("".join([body(message) + "\n" for message in messages]))
        file.flush()
        os.fsync(file.fileno())
