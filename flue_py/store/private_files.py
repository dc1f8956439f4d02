"""A file in the making: readable by its owner only from its first byte, and under its name only when it is whole."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from types import TracebackType

from flue_py.errors import InvalidArgument, StoreUnavailable


class Part:
    """A file that is being made beside its final name; unless it is published, nothing is left of it.

    Raises `InvalidArgument` where the target is there and is not to be replaced, `StoreUnavailable`.
    """

    def __init__(self, target: Path, *, overwrite: bool = False) -> None:
        self.target = target
        self._overwrite = overwrite
        self._refuse_taken()
        self.path = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except (OSError, ValueError) as error:
            raise StoreUnavailable(f"{str(target)!r} cannot be made: {error}") from error

    def _refuse_taken(self) -> None:
        # Also a log that is there without a database: SQLite would take it for the new one's.
        taken = [Path(f"{self.target}{suffix}") for suffix in ("", "-wal", "-journal")]
        for path in taken if not self._overwrite else []:
            if os.path.lexists(path):
                raise InvalidArgument(f"{path} is there already; name another file, or remove it")
        if self._overwrite and os.path.lexists(self.target) and not self.target.is_file():
            raise InvalidArgument(f"{self.target} is a directory or a device; name a file")

    def __enter__(self) -> Part:
        return self

    def publish(self) -> None:
        """Give the file its name, at once and durably. Raises as the class says."""
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
            raise StoreUnavailable(f"{self.target} cannot be made: {error}") from error

    def _rename_to_new(self) -> None:
        """Rename without replacing what another process has put there meanwhile, where the file system can."""
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
        for suffix in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(OSError):
                Path(f"{self.path}{suffix}").unlink()


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
