"""Which database a command works on."""

from __future__ import annotations

from os.path import abspath, expanduser

from flue_py.core.frozen import frozen
from flue_py.sessions.homes import in_full


def expanded(target: str) -> str:
    """Return a path with its ``~`` put in full, and a URL as it is. Raises `StoreUnavailable` for nobody's home."""
    return target if "://" in target else in_full(target)


def absolute(folder: str) -> str:
    """Return a folder's path from the root, its ``~`` put in full where that is somebody's home."""
    return abspath(expanduser(folder))


@frozen
class Place:
    """The database of this run. ``is_named`` says that the user chose it, rather than taking the default."""

    target: str
    is_named: bool = False

    @property
    def is_file(self) -> bool:
        """Whether it is a file rather than the URL of a server."""
        return "://" not in self.target
