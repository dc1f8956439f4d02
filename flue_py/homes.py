"""Paths as people write them."""

from __future__ import annotations

from os.path import expanduser, normpath
from pathlib import PurePath

from flue_py.errors import InvalidArgument, shown


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
