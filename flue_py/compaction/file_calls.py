"""Which calls of tools read, write or edit a file, and which: every agent has its own names for that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from flue_py.compaction.policy import CompactionPolicy
from flue_py.core.jsontext import JsonValue

FileUse: TypeAlias = Literal["read", "write", "edit"]

PATH_ARGUMENTS = ("path", "file_path", "filePath", "file", "filename", "notebook_path")
"""What the argument with the path of a file is called. The first that has one counts."""

_FAITHFUL: Mapping[str, FileUse] = {"read": "read", "write": "write", "edit": "edit"}


def _spelled(*words: str) -> Iterator[str]:
    """Yield a name of several words as it is written: ``read_file``, ``readfile``, ``readFile``, ``ReadFile``."""
    first, *others = words
    capitals = "".join(word.capitalize() for word in others)
    yield from ("_".join(words), "".join(words), first + capitals, first.capitalize() + capitals)


def _known() -> Iterator[tuple[str, FileUse]]:
    uses: Mapping[FileUse, tuple[str, ...]] = {
        "read": ("read", "read file", "read text file", "notebook read", "view file"),
        "write": ("write", "write file", "create file"),
        "edit": ("edit", "edit file", "multi edit", "notebook edit", "patch file", "append file"),
    }
    for use, names in uses.items():
        for name in names:
            for spelled in _spelled(*name.split()):
                yield spelled, use


_KNOWN: Mapping[str, FileUse] = dict(_known())


class FileCall(NamedTuple):
    """What a call does with a file, and the path of it."""

    use: FileUse
    path: str


def file_call(part: Mapping[str, JsonValue], policy: CompactionPolicy) -> FileCall | None:
    """Return what a call of a tool does with which file; None for one of another tool, or without a path."""
    name = part.get("name")
    use = (_KNOWN if policy.know_file_tools else _FAITHFUL).get(name) if isinstance(name, str) else None
    path = "" if use is None else path_argument(part.get("arguments"), policy)
    return FileCall(use, path) if use and path else None


def path_argument(arguments: JsonValue, policy: CompactionPolicy) -> str:
    """Return the path among the arguments of a call, "" for none."""
    # A dict is told much faster than any other mapping, and there may be ten thousand.
    if isinstance(arguments, (dict, Mapping)):
        for name in PATH_ARGUMENTS if policy.know_file_tools else PATH_ARGUMENTS[:1]:
            path = arguments.get(name)
            if path and isinstance(path, str):
                return path
    return ""
