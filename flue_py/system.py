"""Paths, context managers for one block, and plain files."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from functools import wraps
from importlib import import_module
from io import SEEK_SET, BufferedReader, RawIOBase
from os.path import expanduser, normpath
from pathlib import Path, PurePath
from types import TracebackType
from typing import Any, BinaryIO, Generic, Never, ParamSpec, TypeVar
from urllib.parse import quote_from_bytes

from flue_py.errors import InvalidArgument, MissingExtra, UnreadableFile, shown

# ---------------------------------------------------------------------------------------------------------------------
# Paths as people write them.


def in_full(path: str) -> str:
    """Return a path with ``~`` and ``~user`` expanded. Raises `InvalidArgument` if there is no such home."""
    full = expanduser(path)
    if full.startswith("~"):
        raise InvalidArgument(
            f"{shown(path)}: there is no such home directory; write the path in full, or ./ before it"
        )
    return full


def is_below(folder: str | None, project: str) -> bool:
    """Return whether a working directory is the project's or below it, as paths are written: links are not followed."""
    return bool(folder) and PurePath(normpath(folder or "")).is_relative_to(project)


def uri_of(path: Path) -> str:
    """Return the URI of a file, as its own ``as_uri``, which loads a client for HTTP from Python 3.14 on (19 ms)."""
    return f"file://{quote_from_bytes(os.fsencode(path.absolute()))}"


# ---------------------------------------------------------------------------------------------------------------------
# Locks.

if sys.version_info[:2] == (3, 14):
    import _thread

    class RLock(_thread.RLock):
        """A lock that an interrupt leaves free: on 3.14, it may come between taking it and the block of ``with``.

        Who holds it is known, so that what was not taken is not released (github.com/python/cpython/issues/148874).
        """

        def __enter__(self) -> bool:
            try:
                return self.acquire()
            except BaseException:
                with contextlib.suppress(RuntimeError):
                    self.release()
                raise

    Lock = RLock
else:
    Lock, RLock = threading.Lock, threading.RLock


# ---------------------------------------------------------------------------------------------------------------------
# Context managers that are entered once, and say so when they are entered again.

P = ParamSpec("P")
Entered = TypeVar("Entered")
Manager = TypeVar("Manager")


def async_once(
    name: str,
) -> Callable[[Callable[P, AsyncIterator[Entered]]], Callable[P, AbstractAsyncContextManager[Entered]]]:
    """Do as `contextlib.asynccontextmanager`; a second entry raises `InvalidArgument`, naming ``name``.

    The standard library raises an `AttributeError` about its own fields.
    """

    def decorate(function: Callable[P, AsyncIterator[Entered]]) -> Callable[P, AbstractAsyncContextManager[Entered]]:
        managing = asynccontextmanager(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[Entered]:
            return _AsyncOnce(managing(*args, **kwargs), name)

        return call

    return decorate


def once(name: str) -> Callable[[Callable[P, Iterator[Entered]]], Callable[P, AbstractContextManager[Entered]]]:
    """Do the same for a function that blocks: as `contextlib.contextmanager`."""

    def decorate(function: Callable[P, Iterator[Entered]]) -> Callable[P, AbstractContextManager[Entered]]:
        managing = contextmanager(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[Entered]:
            return _Once(managing(*args, **kwargs), name)

        return call

    return decorate


class _EnteredOnce(Generic[Manager]):
    """A context manager that is given out for one block."""

    def __init__(self, manager: Manager, name: str) -> None:
        self._manager = manager
        self._name = name
        self._was_entered = False

    def __getattr__(self, name: str) -> Never:
        raise AttributeError(f"{name}: enter {self._name} by with, async with or an ExitStack, and use the result")

    def entered(self) -> Manager:
        """Return the manager, to be entered. Raises `InvalidArgument` the second time."""
        if self._was_entered:
            raise InvalidArgument(f"{self._name} was entered before, and is good for one block; call it once more")
        self._was_entered = True
        return self._manager


class _AsyncOnce(_EnteredOnce[AbstractAsyncContextManager[Entered]], AbstractAsyncContextManager[Entered]):
    async def __aenter__(self) -> Entered:
        return await self.entered().__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._manager.__aexit__(kind, error, trace)


class _Once(_EnteredOnce[AbstractContextManager[Entered]], AbstractContextManager[Entered]):
    def __enter__(self) -> Entered:
        return self.entered().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._manager.__exit__(kind, error, trace)


# ---------------------------------------------------------------------------------------------------------------------
# Reading a file that somebody else has made, without waiting for a pipe, or for the end of a device.


_BUFFER = 1 << 16
"""How much of a file is read at once: for lines of some KB, a tenth of the time of reading 8 KB at once."""


def open_if_plain(path: Path) -> BinaryIO | None:
    """Return a file opened for reading bytes; None for a pipe, a socket or a device, which may have no end.

    Never waits for another process. Raises OSError, for a folder as well.
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(number).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(number, "rb", _BUFFER)
    os.close(number)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return None


def read_beginning(path: Path, most: int) -> bytes | None:
    """Return the first bytes of a file, at most so many; None and raises as `open_if_plain`."""
    opened = open_if_plain(path)
    if opened is None:
        return None
    with opened:
        return opened.read(most)


def read_whole(path: Path, most: int) -> bytes:
    """Return the bytes of a file. Raises `UnreadableFile` for one that is larger than ``most``, or cannot be read."""
    try:
        data = read_beginning(path, most + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UnreadableFile(f"{shown(str(path))} cannot be read: {reason}") from error
    if data is None:
        raise UnreadableFile(f"{shown(str(path))} is not a file")
    if len(data) > most:
        raise UnreadableFile(f"{shown(str(path))} has more than {most:,} bytes")
    return data


ZSTD = b"\x28\xb5\x2f\xfd"
"""How a file begins that is packed with zstd."""


def unpacked(file: BinaryIO) -> BinaryIO:
    """Return a file, at its beginning; one that is packed with zstd is read unpacked, in little memory.

    Raises `MissingExtra`, and OSError, as reading does where the packed bytes are damaged.
    """
    is_packed = file.read(len(ZSTD)) == ZSTD
    file.seek(0)
    if not is_packed:
        return file
    try:
        zstd = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    except ImportError as error:
        file.close()
        raise MissingExtra("zstd", f"{file.name}: reading packed files") from error
    return BufferedReader(_Unpacked(file, zstd))


class _Unpacked(RawIOBase):
    """The bytes of a packed file; going back begins anew."""

    def __init__(self, packed: BinaryIO, zstd: Any) -> None:  # noqa: ANN401 - one of two modules
        self.name = packed.name
        self._zstd = zstd
        self._packed = packed
        self._file: Any = zstd.ZstdFile(packed)

    @contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, self._zstd.ZstdError) as error:
            raise OSError(f"its packed bytes are damaged ({error})") from error

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._packed.fileno()

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any kind of buffer
        with self._checked():
            return int(self._file.readinto(buffer))

    def seek(self, offset: int, whence: int = SEEK_SET, /) -> int:
        with self._checked():
            return int(self._file.seek(offset, whence))

    def close(self) -> None:
        if not self.closed:
            self._file.close()
            self._packed.close()
        super().close()
