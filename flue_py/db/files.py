"""Files that appear whole or not at all, temporary folders, and the files of a folder that tools edit."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path, PurePath
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO

from flue_py.core.files import FileContent
from flue_py.core.sessions import is_storable
from flue_py.errors import InvalidArgument, StoreUnavailable, UnreadableFile, shown
from flue_py.lazy import lazy_module
from flue_py.system import in_full

if TYPE_CHECKING:
    import shutil
    import tempfile
else:
    # Only a command that makes a folder needs these.
    shutil = lazy_module("shutil")
    tempfile = lazy_module("tempfile")


# ---------------------------------------------------------------------------------------------------------------------
# Files and folders for their owner alone; a file has its name only when it is whole.

_LONGEST_NAME = 180
_DRAWS = 100


def make_private_folder(folder: Path) -> None:
    """Make a folder, and those above it, for its owner alone. Raises `StoreUnavailable`."""
    try:
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        for each in reversed(missing):
            with contextlib.suppress(FileExistsError):
                each.mkdir(mode=0o700)
                # The umask may have taken even the owner's rights.
                each.chmod(0o700)
    except OSError as error:
        raise StoreUnavailable(f"the folder {folder} cannot be made: {error.strerror or error}") from error
    if not folder.is_dir():
        raise StoreUnavailable(f"the folder {folder} cannot be made: a file is there; name another database")


def write_whole(target: Path, data: bytes, *, overwrite: bool = False) -> None:
    """Write a file for its owner alone, complete or not at all. O(bytes).

    Raises `InvalidArgument` if the target exists and ``overwrite`` is False, `StoreUnavailable` (also if the disk is
    full).
    """
    with Part(target, overwrite=overwrite) as part:
        part.write(data)
        part.publish()


class Part:
    """A file that is written beside its final name. Unless it is published, it is removed.

    First, the parts that killed processes have left of the same target are removed: nobody holds a lock on them. Raises
    `InvalidArgument` if the target exists and is not to be replaced, `StoreUnavailable`.
    """

    def __init__(self, target: Path, *, overwrite: bool = False) -> None:
        self.target = target
        self._overwrite = overwrite
        self._refuse_taken()
        try:
            _remove_left_behind(target)
            self.path, self._lock = _new_part(target)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else None
            raise StoreUnavailable(f"{str(target)!r} cannot be made: {why or error}") from error

    def write(self, data: bytes) -> None:
        """Make these bytes the content of the file. Raises `StoreUnavailable`."""
        try:
            with self.path.open("wb") as file:
                file.write(data)
        except OSError as error:
            raise StoreUnavailable(f"{str(self.target)!r} cannot be written: {error.strerror or error}") from error

    def _refuse_taken(self) -> None:
        # A log without a database is refused, too: SQLite would use it for the new database.
        taken = [Path(f"{self.target}{suffix}") for suffix in ("", "-wal", "-journal")]
        for path in taken if not self._overwrite else []:
            if os.path.lexists(path):
                raise InvalidArgument(f"{path} is there already; name another file, or remove it")
        if self._overwrite and os.path.lexists(self.target) and not self.target.is_file():
            raise InvalidArgument(f"{self.target} is a directory or a device; name a file")

    def __enter__(self) -> Part:
        return self

    def publish(self) -> None:
        """Give the file its name, atomically and durably. Raises as the class says."""
        try:
            _sync(self.path)
            if self._overwrite:
                for suffix in ("-wal", "-shm", "-journal"):
                    Path(f"{self.target}{suffix}").unlink(missing_ok=True)
                self.path.replace(self.target)
            else:
                self._refuse_taken()
                self._rename_to_new()
            _sync(self.target.parent)
        except FileExistsError as error:
            raise InvalidArgument(f"{self.target} is there already; name another file, or remove it") from error
        except OSError as error:
            raise StoreUnavailable(f"{str(self.target)!r} cannot be made: {error.strerror or error}") from error

    def _rename_to_new(self) -> None:
        """Rename without replacing a file that another process has put there, if the file system can do that."""
        try:
            os.link(self.path, self.target)
        except FileExistsError:
            raise
        except OSError:
            self._refuse_taken()
            self.path.rename(self.target)
        else:
            self.path.unlink()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _remove(self.path)
        os.close(self._lock)


def _part_names(target: Path) -> tuple[str, str]:
    """Return the prefix and the suffix of the names of a target's parts."""
    return f".{target.name[:_LONGEST_NAME]}.", ".part"


def _new_part(target: Path) -> tuple[Path, int]:
    """Make an empty file beside the target, and lock it; return its path and the descriptor that holds the lock."""
    begin, end = _part_names(target)
    for _ in range(_DRAWS):
        path = target.with_name(f"{begin}{os.urandom(4).hex()}{end}")
        try:
            number = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        # Before it was locked, another process may have taken it for one that was left behind, and removed it.
        if _is_locked_by(number) and path.exists():
            return path, number
        os.close(number)
    raise FileExistsError(f"no name beside {target} is free")


def _is_locked_by(number: int) -> bool:
    """Return whether this descriptor holds the lock now; True where files cannot be locked."""
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _remove_left_behind(target: Path) -> None:
    """Remove the parts that killed processes have left of this file."""
    begin, end = _part_names(target)
    pattern = re.compile(f"{re.escape(begin)}[0-9a-f]{{8}}{re.escape(end)}")
    with contextlib.suppress(OSError):
        for path in [path for path in target.parent.iterdir() if pattern.fullmatch(path.name)]:
            with contextlib.suppress(OSError):
                number = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(path)
                finally:
                    os.close(number)


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        with contextlib.suppress(OSError):
            Path(f"{path}{suffix}").unlink()


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def write_private(path: str, text: str) -> str:
    """Write a new file for its owner alone, complete or not at all, and return its path.

    Raises `InvalidArgument` if the file exists, `StoreUnavailable`.
    """
    path = in_full(path)
    write_whole(Path(path), text.encode(errors="backslashreplace"))
    return path


# ---------------------------------------------------------------------------------------------------------------------
# Temporary folders. Making one removes those that killed processes have left behind.

_PREFIX = "flue-py-bundle-"
_LOCK = ".in-use"


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder for its owner alone, and remove it at the end. A lock on a file in it says that it is in use.

    Raises OSError if it cannot be made.
    """
    _temporary_remove_left_behind(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        folder = Path(name)
        number = os.open(folder / f"{_LOCK}.new", os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            with contextlib.suppress(OSError):  # if files cannot be locked, nobody can tell that it was left behind
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # It gets the name that others look for only now, so that nobody sees it without its lock.
                (folder / f"{_LOCK}.new").rename(folder / _LOCK)
            yield folder
        finally:
            os.close(number)


def _temporary_remove_left_behind(parent: Path) -> None:
    """Remove the folders of this user whose lock nobody holds any more."""
    with contextlib.suppress(OSError):
        for folder in [path for path in parent.iterdir() if path.name.startswith(_PREFIX)]:
            with contextlib.suppress(OSError):
                if folder.lstat().st_uid != os.getuid():
                    continue
                number = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
                finally:
                    os.close(number)


# ---------------------------------------------------------------------------------------------------------------------
# The files of a folder that somebody else writes, too: never one outside it, and none of git's own.

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
