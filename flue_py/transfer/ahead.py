"""Files that a process of its own reads, while this one stores the entries of those before.

It is worth its start for a first import of many files. It gets paths through a pipe, and returns entries through one.
Should it end, or fail at a file, that file is read here, behind the parts that were returned: nothing is lost. Should
this process end, the pipes end, and the other one with them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeAlias

import msgspec

import flue_py
from flue_py.core.json import Frozen
from flue_py.core.sessions import Limits
from flue_py.errors import UnreadableFile
from flue_py.formats import registry
from flue_py.formats.kit import ParseReport, SessionPart
from flue_py.transfer.marks import Bookmark
from flue_py.transfer.source import ImportSource, stated_at

_WORTH_BYTES = 16 * 2**20
_AHEAD = 2
"""How many files are asked for at a time: that which is stored, and the next one."""
_LENGTH = 8
_PIPE = 2**20

# What the two processes say to each other.


class _Order(Frozen):
    version: str
    path: bytes
    wanted: str
    take_all: bool
    is_followed: bool
    limits: Limits


class _Start(Frozen, tag=True):
    format: str
    size: int
    state: list[int]
    opened_ns: int
    beside: Any


class _Batch(Frozen, tag=True):
    parts: list[SessionPart]
    bytes_read: int


class _End(Frozen, tag=True):
    report: ParseReport
    bookmark: Bookmark | None
    before: dict[str, list[int]]
    bytes_read: int
    whole_bytes: int
    digest: str


class _Failure(Frozen, tag=True):
    """The file cannot be read there. The reason is found once more where it is read."""


_Answer: TypeAlias = _Start | _Batch | _End | _Failure


def _write(pipe: IO[bytes], value: _Order | _Answer) -> None:
    data = msgspec.msgpack.encode(value)
    pipe.write(len(data).to_bytes(_LENGTH, "big") + data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes:
    """Return the next message; part of one, which cannot be decoded, where the other process has ended."""
    return pipe.read(int.from_bytes(pipe.read(_LENGTH), "big"))


# The process that reads.


def serve() -> None:
    """Read the files that are ordered on standard input, until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who asked ends the pipe
    orders = msgspec.msgpack.Decoder(_Order)
    with suppress(OSError, msgspec.DecodeError):
        while True:
            _answer(orders.decode(_read(sys.stdin.buffer)), sys.stdout.buffer)


def _answer(order: _Order, pipe: IO[bytes]) -> None:
    path, take_all, is_followed = Path(os.fsdecode(order.path)), order.take_all, order.is_followed
    file = ImportSource(path, order.wanted, take_all=take_all, limits=order.limits, is_followed=is_followed)
    with file as source:
        try:
            source.start()
            if order.version != flue_py.__version__ or source.fingerprints or source.format.package != registry.OURS:
                raise UnreadableFile("to be read where it is stored")
            state = source.size, source.state, source.opened_ns, source.beside
            _write(pipe, _Start(source.format.name, *state))
            while (parts := source.batch()) is not None:
                _write(pipe, _Batch(parts, min(source.bytes_read, source.size)))
            counts = source.bytes_read, source.whole_bytes, source.digest
            _write(pipe, _End(source.report, source.bookmark, source.before, *counts))
        except OSError:
            raise
        except Exception:  # noqa: BLE001 - the one who asked meets it, too
            _write(pipe, _Failure())


# The process that stores.


class ReadAhead:
    """Files to import, each open to be started, where it is worth it read ahead; a context manager, which ends that.

    ``opened`` makes one of a path, of those that ``paths`` yields in the order in which they are asked for.
    """

    def __init__(
        self, paths: Iterable[Path], opened: Callable[[Path], ImportSource], *, is_trial: bool = False
    ) -> None:
        self._paths, self._opened = deque(paths), opened
        self._waiting: deque[ImportSource] = deque()
        sizes = (stated_at(str(path)) for path in self._paths if _has_rows(path))
        is_worth_it = not is_trial and sum(state[2] for state in sizes if state is not None) >= _WORTH_BYTES
        self._process = _Process() if is_worth_it and _cores() > 1 else None

    def __enter__(self) -> ReadAhead:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.end()

    def next_source(self) -> ImportSource:
        """Return the next file, and have the one behind it read."""
        while self._paths and len(self._waiting) < _AHEAD:
            source = self._opened(self._paths.popleft())
            if self._process is not None and source.bookmark is None and _has_rows(source.path):
                source = _SourceAhead(source, self._process)
            self._waiting.append(source)
        return self._waiting.popleft()


def _has_rows(path: Path) -> bool:
    """Return whether a file may be long, and is read in parts: those of databases and documents are read here."""
    return path.suffix == ".jsonl"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Process:
    """The process that reads; one that has ended, or could not be started, answers with failures."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: msgspec.msgpack.Decoder[_Answer] = msgspec.msgpack.Decoder(_Answer)
        # Nothing is to be imported from the folder that the caller is in.
        option = "-I" if sys.flags.isolated else "-P"
        command = [sys.executable, option, "-c", f"from {__name__} import serve; serve()"]
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        with suppress(OSError, ValueError):
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, pipesize=_PIPE)  # noqa: S603

    def order(self, order: _Order) -> None:
        """Have a file read behind those that were ordered before."""
        if self._process is not None and self._process.stdin is not None:
            try:
                _write(self._process.stdin, order)
            except OSError:
                self.end()

    def answer(self) -> _Answer:
        """Return the next answer."""
        if self._process is not None and self._process.stdout is not None:
            with suppress(OSError, msgspec.MsgspecError):
                return self._answers.decode(_read(self._process.stdout))
        self.end()
        return _Failure()

    def end(self) -> None:
        """End it. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError):
                process.communicate()


class _SourceAhead(ImportSource):
    """A file that a process reads; from where that fails on, it is read here."""

    def __init__(self, source: ImportSource, process: _Process) -> None:
        vars(self).update(vars(source))
        self._process = process
        self._batches = 0
        self._last: _Answer | None = None
        options = self._wanted, self._take_all, self._is_followed, self._limits
        process.order(_Order(flue_py.__version__, os.fsencode(self.path), *options))

    @property
    def digest(self) -> str:
        """The digest of the whole lines that were read."""
        return self._last.digest if isinstance(self._last, _End) else super().digest

    def start(self) -> None:
        """Wait for the beginning. Raises as that of a file does that is read here."""
        answer = self._last = self._process.answer()
        if not isinstance(answer, _Start):
            super().start()
            return
        self._format = registry.find_format(answer.format)
        self.size, self.state, self.opened_ns = answer.size, answer.state, answer.opened_ns
        self.beside = answer.beside

    def batch(self) -> list[SessionPart] | None:
        """Return the next parts; None if there are no more."""
        if isinstance(self._last, (_Start, _Batch)):
            answer = self._last = self._process.answer()
            if isinstance(answer, _Batch):
                self._batches, self.bytes_read = self._batches + 1, answer.bytes_read
                return answer.parts
            if isinstance(answer, _End):
                self._report, self.bookmark, self.before = answer.report, answer.bookmark, answer.before
                self.bytes_read, self.whole_bytes = answer.bytes_read, answer.whole_bytes
                return None
            super().start()
            for _ in range(self._batches):
                super().batch()
        return None if isinstance(self._last, _End) else super().batch()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self._process.end()  # no more files are asked for
        super().__exit__(kind, error, at)

    def close(self) -> None:
        """Close the file. Idempotent."""
        while not isinstance(self._last, (_End, _Failure)):
            self._last = self._process.answer()
        super().close()
