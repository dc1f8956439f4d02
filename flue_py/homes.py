"""Paths as people write them."""

from __future__ import annotations

from os.path import expanduser

from flue_py.errors import InvalidArgument, shown


def in_full(path: str) -> str:
    """Return a path with ``~`` and ``~user`` expanded. Raises `InvalidArgument` if there is no such home."""
    full = expanduser(path)
    if full.startswith("~"):
        raise InvalidArgument(
            f"{shown(path)}: there is no such home directory; write the path in full, or ./ before it"
        )
    return full
