"""Which database a command works on."""

from __future__ import annotations

from pathlib import Path

from flue_py.core.frozen import frozen
from flue_py.errors import StoreUnavailable


def expanded(target: str) -> str:
    """Return a path with its ``~`` put in full, and a URL as it is. Raises `StoreUnavailable` for nobody's home."""
    if "://" in target:
        return target
    try:
        return str(Path(target).expanduser())
    except RuntimeError as error:
        raise StoreUnavailable(f"{target}: there is no such home directory; write the path in full") from error


@frozen
class Place:
    """The database of this run. ``is_named`` says that the user chose it, rather than taking the default."""

    target: str
    is_named: bool = False

    @property
    def is_file(self) -> bool:
        """Whether it is a file rather than the URL of a server."""
        return "://" not in self.target
