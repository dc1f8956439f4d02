"""The files of a folder that somebody else writes, too: never one outside it, and none of git's own."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path, PurePath
from typing import BinaryIO

from flue_py.core.files import FileContent
from flue_py.core.sessions import is_storable
from flue_py.errors import InvalidArgument, StoreUnavailable, UnreadableFile, shown
from flue_py.system import in_full

_PRIVATE = ".git"
_PERMISSIONS = 0o777
_NOT_PLAIN = "is no plain file, or lies behind a symbolic link"


class Folder:
    """The plain files of a folder, by their names in it, with ``/``. No symbolic link is followed on the way.

    Raises `InvalidArgument` unless it is a folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            self.path = Path(os.path.abspath(in_full(os.fspath(path))))
            is_folder = self.path.is_dir()
        except (TypeError, ValueError):
            is_folder = False
        if not is_folder:
            raise InvalidArgument(f"root: {shown(path)} is not a folder; name the one that the files are in")

    def name(self, path: str | os.PathLike[str]) -> str:
        """Return the name of a file in the folder. Raises `InvalidArgument` for a path that leads out of it, or to git.

        A relative path is one from the folder on, and none is resolved: what a link leads to is never asked.
        """
        text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
        if not isinstance(text, str) or not text or not is_storable(text):
            raise InvalidArgument(f"path: {shown(path)} is not a path that can be stored")
        whole = PurePath(os.path.normpath(self.path / text))
        roots = (self.path, self.path.resolve())
        parts = next((whole.relative_to(root).parts for root in roots if whole.is_relative_to(root)), ())
        if not parts:
            raise InvalidArgument(f"path: {shown(path)} is no file in {str(self.path)!r}")
        if any(part.casefold() == _PRIVATE for part in parts):
            raise InvalidArgument(f"path: {shown(path)} is a file of git, which has a history of its own")
        return "/".join(parts)

    def read(self, name: str, most: int) -> FileContent | None:
        """Return a file, or None if there is none. Never waits for another process. O(bytes).

        Raises `UnreadableFile` for what is no plain file, may not be read, or has more than so many bytes.
        """
        try:
            with self._folder_of(name) as (number, last), _opened(number, last) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise UnreadableFile(f"{shown(name)} {_NOT_PLAIN}")
                if status.st_size > most:
                    raise UnreadableFile(f"{shown(name)} has {status.st_size:,} bytes, and a backup takes {most:,}")
                return FileContent(file.read(most), stat.S_IMODE(status.st_mode) & _PERMISSIONS)
        except FileNotFoundError:
            return None
        except OSError as error:
            is_odd = error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR)
            why = _NOT_PLAIN if is_odd else f"cannot be read: {error.strerror or error}"
            raise UnreadableFile(f"{shown(name)} {why}") from error

    def write(self, name: str, content: FileContent | None) -> None:
        """Replace a file, or remove it (None), atomically and durably; folders on the way are made. O(bytes).

        Raises `StoreUnavailable`.
        """
        name = self.name(name)
        try:
            with self._folder_of(name, make=content is not None) as (number, last):
                if content is None:
                    os.unlink(last, dir_fd=number)
                else:
                    _replace(number, last, content)
                os.fsync(number)
        except OSError as error:
            if content is None and isinstance(error, FileNotFoundError):
                return
            raise StoreUnavailable(f"{shown(name)} cannot be written: {error.strerror or error}") from error

    @contextlib.contextmanager
    def _folder_of(self, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Open the folder that a file is in; with that comes the last part of its name."""
        *folders, last = name.split("/")
        options = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        number = os.open(self.path, options)
        try:
            for folder in folders:
                with contextlib.suppress(FileExistsError):
                    if make:
                        os.mkdir(folder, dir_fd=number)
                below = os.open(folder, options | os.O_NOFOLLOW, dir_fd=number)
                os.close(number)
                number = below
            yield number, last
        finally:
            os.close(number)


def _opened(folder: int, last: str) -> BinaryIO:
    options = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return open(last, "rb", opener=lambda name, _: os.open(name, options, dir_fd=folder))


def _replace(folder: int, last: str, content: FileContent) -> None:
    """Replace a file in an open folder. What a killed process has left of it goes first."""
    part = f".flue-{sha256(last.encode()).hexdigest()[:16]}.part"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part, dir_fd=folder)
    number = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content.data)
            file.flush()
            os.fchmod(number, content.mode & _PERMISSIONS)
            os.fsync(number)
        os.rename(part, last, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=folder)
        raise
