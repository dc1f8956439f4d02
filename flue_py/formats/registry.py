"""The formats of files: how one is recognised, who reads and writes it, and where such files usually are.

Naming a format costs nothing: its module is imported when it is used. A new format is one more line here, or in another
package: an entry point of the group ``flue_py.formats``, of the format's name, that leads to a `Format`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from flue_py.errors import FlueError, InvalidArgument, shown
from flue_py.formats.others import program_by_content

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from flue_py.core.jsontext import JsonValue
    from flue_py.core.projection import ContextEntry
    from flue_py.formats.kit.exported import Exported, SessionTree
    from flue_py.formats.kit.streaming import Reader

GROUP = "flue_py.formats"
"""The group of the entry points by which other packages bring formats."""

OURS = "flue-py"

Recognizer: TypeAlias = Callable[[bytes, str], bool]
"""Given the first bytes of a file and its path: whether it looks like a file of the format. Never raises."""
Settler: TypeAlias = Callable[[Iterable[bytes]], "str | None"]
"""Given the pieces of a whole file: the name of another format that it turns out to be of. Never raises."""
Lines: TypeAlias = "Callable[[BinaryIO], Iterator[tuple[int, bytes]]]"
Before: TypeAlias = "Callable[[Path, Any, Lines], Iterator[None]]"
"""Given a path, its reader, and what reads lines: gives it what comes before in other files, and yields after a row."""
Beside: TypeAlias = "Callable[[Path], JsonValue]"
"""Given a path: what other files say of it, apart from those that come before it. Never raises."""
ReaderMaker: TypeAlias = "Callable[[str], Reader]"
"""Given the name of a file: what reads it."""
TreeWriter: TypeAlias = "Callable[[SessionTree], Exported]"
"""Given a session: the text of a file of it, and notes on what the format had no place for."""
ContextWriter: TypeAlias = "Callable[[Sequence[ContextEntry]], Exported]"
"""Given what the model sees: the same."""


@dataclass(frozen=True, slots=True)
class Format:
    """One format. Functions are named as entry points name them: ``package.module:function``.

    ``recognize`` is a `Recognizer`, ``read`` a `ReaderMaker`. ``write``, if the format can be written, is a
    `TreeWriter`; or a `ContextWriter` if a written file ``holds`` the context, and not the tree with every branch.
    ``places`` are folders (``~`` is the home) in which such files usually are; ``suffixes`` how their names end.
    ``settle`` is a `Settler`, for files whose beginning could as well be that of another format. ``is_chained`` says
    that rows have no ids of their own, so that a file whose beginning changes is another one. ``package`` is set
    here: whose format it is. ``before`` is a `Before`, for files that go on from others, and ``beside`` its `Beside`.
    """

    name: str
    recognize: str
    read: str
    write: str | None = None
    holds: Literal["tree", "context"] = "tree"
    places: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = (".jsonl",)
    settle: str | None = None
    is_chained: bool = False
    package: str = OURS
    before: str | None = None
    beside: str | None = None

    def recognizes(self, first_bytes: bytes, path: str) -> bool:
        """Return whether a file that begins like this looks like one of the format."""
        try:
            recognizer: Recognizer = _named(self.recognize)
            return recognizer(first_bytes, path)
        except Exception as error:
            if self.package == OURS:
                raise
            _warn(f"{self.failed(error)}; files are not recognised as {self.name}")
            return False

    def other_format(self, pieces: Iterable[bytes]) -> str | None:
        """Return the name of the format that a file is of after all, which this one recognized by its beginning."""
        settler: Settler | None = None if self.settle is None else _named(self.settle)
        return None if settler is None else settler(pieces)

    def reader(self, name: str) -> Reader:
        """Return a reader for one file of this name."""
        maker: ReaderMaker = _named(self.read)
        return maker(name)

    def rows_before(self, path: Path, reader: Reader, lines: Lines) -> Iterator[None]:
        """Give a reader what comes before a file in other files, and yield after each row. Raises `UnreadableFile`."""
        before: Before | None = None if self.before is None else _named(self.before)
        return iter(()) if before is None else before(path, reader, lines)

    def said_beside(self, path: Path) -> JsonValue:
        """Return what other files say of a file."""
        beside: Beside | None = None if self.beside is None else _named(self.beside)
        return None if beside is None else beside(path)

    def written(self, session: SessionTree) -> Exported:
        """Return a session in this format. Raises `InvalidArgument` if the format cannot be written, or its code fails.

        Cost: O(entries).
        """
        if self.write is None:
            raise InvalidArgument(f"format: {self.name} cannot be exported")
        try:
            write: Any = _named(self.write)
            exported: Exported = write(session if self.holds == "tree" else session.context())
        except Exception as error:
            if self.package == OURS or isinstance(error, FlueError):
                raise
            raise InvalidArgument(f"format: {self.failed(error)}; nothing was exported") from error
        return exported

    def failed(self, error: Exception) -> str:
        """Return what to say of another package's format whose code fails."""
        return _failed(self.name, self.package, error)


def _named(reference: str) -> Any:  # noqa: ANN401 - each use says what it is
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def _failed(name: str, package: str, error: Exception) -> str:
    return f"the format {name!r} of the package {package} fails ({type(error).__name__}: {error})"


def _warn(text: str) -> None:
    warnings.warn(f"{text}; repair or remove the package", RuntimeWarning, stacklevel=3)


def _ours(
    name: str,
    read: str,
    write: str | None = None,
    *,
    holds: Literal["tree", "context"] = "tree",
    places: tuple[str, ...] = (),
    suffixes: tuple[str, ...] = (".jsonl",),
    settle: str | None = None,
    is_chained: bool = False,
    before: str | None = None,
    beside: str | None = None,
) -> Format:
    """Return a format of ours by its modules: their functions are ``looks_like_X``, ``read_X`` and ``export_X``."""
    called, home = name.replace("-", "_"), __package__
    return Format(
        name,
        f"{home}.{read}:looks_like_{called}",
        f"{home}.{read}:read_{called}",
        None if write is None else f"{home}.{write}:export_{called}",
        holds,
        places,
        suffixes,
        None if settle is None else f"{home}.{settle}",
        is_chained,
        before=None if before is None else f"{home}.{before}",
        beside=None if beside is None else f"{home}.{beside}",
    )


_JSON, _LIST = (".json",), (".json", ".jsonl")

_PROGRAMS = (
    _ours("pi", "pi.read", "pi.write", places=("~/.pi/agent/sessions",)),
    _ours("noumen", "noumen.read"),
    _ours("claude-code", "claude_code.read", places=("~/.claude/projects",)),
    _ours(
        "codex",
        "codex.read",
        places=("~/.codex/sessions", "~/.codex/archived_sessions"),
        is_chained=True,
        before="codex.history:read_before",
        beside="codex.history:name_beside",
    ),
    _ours("flue", "flue.read", "flue.write", suffixes=_JSON),
    _ours("fuseraft-repl", "fuseraft.read_repl", places=("~/.fuseraft/repl-sessions",), suffixes=_JSON),
    _ours("fuseraft-run", "fuseraft.read_run", places=("~/.fuseraft/sessions",), suffixes=_JSON),
)
_LISTS = (
    _ours("anthropic", "anthropic.read", "anthropic.write", holds="context", suffixes=_LIST),
    _ours("openai-responses", "openai.read_responses", "openai.write_responses", holds="context", suffixes=_LIST),
    _ours(
        "openai-chat",
        "openai.read_chat",
        "openai.write_chat",
        holds="context",
        suffixes=_LIST,
        settle="kit.lists:other_list",
    ),
)
"""Plain lists of messages: recognized last, since many files look like one."""

FORMATS: tuple[Format, ...] = (*_PROGRAMS, *_LISTS)
"""Our own formats."""


def all_formats() -> Iterator[Format]:
    """Yield every format, in the order in which `recognize` asks: the first one that recognizes a file is it.

    Those of other packages come before our plain lists.
    """
    yield from _PROGRAMS
    yield from added_formats()
    yield from _LISTS


@cache
def added_formats() -> tuple[Format, ...]:
    """Return the formats that other packages bring, by name. What cannot be used of them is warned about, once."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow, and most files are of our own formats

    added: dict[str, Format] = {}
    points = [
        (point.name, point.value if point.dist is None else point.dist.name, point.load)
        for point in entry_points(group=GROUP)
    ]
    for name, package, load in sorted(points, key=itemgetter(0, 1)):
        try:
            found = _checked(load(), name)
        except Exception as error:  # noqa: BLE001 - whatever its module raises
            _warn(f"{_failed(name, package, error)} and is left out")
            continue
        taken = next((each for each in (*FORMATS, *added.values()) if each.name == found.name), None)
        if taken is None:
            added[found.name] = replace(found, package=package)
        else:
            _warn(f"the format {found.name!r} of the package {package} is left out: {taken.package} has this name")
    return tuple(added.values())


def _checked(found: object, name: str) -> Format:
    if not isinstance(found, Format):
        raise TypeError(f"its entry point leads to a {type(found).__name__}, not to a Format")
    if found.name != name or canonical_name(name) != name:
        raise ValueError(f"it calls itself {found.name!r}; the name should be the entry point's, in lower case with -")
    return found


def format_names() -> tuple[str, ...]:
    """Return the names of all formats, as the command line takes them."""
    return tuple(each.name for each in all_formats())


def export_names() -> tuple[str, ...]:
    """Return the names of the formats that a session can be exported to."""
    return tuple(each.name for each in all_formats() if each.write is not None)


_OTHER_NAMES = {"claude": "claude-code", "claudecode": "claude-code"}


def canonical_name(name: str) -> str:
    """Return the name of a format as it is written here: ``claude_code`` and ``claude`` are ``claude-code``."""
    plain = name.lower().replace("_", "-")
    return _OTHER_NAMES.get(plain, plain)


def known_format(name: str) -> Format | None:
    """Return the format of this name, or None."""
    canonical = canonical_name(name)
    ours = next((each for each in FORMATS if each.name == canonical), None)
    return ours or next((each for each in added_formats() if each.name == canonical), None)


def find_format(name: str) -> Format:
    """Return the format of this name. Raises `InvalidArgument`."""
    found = known_format(name)
    if found is None:
        raise InvalidArgument(f"format: {shown(name)} is not one of {', '.join(format_names())}")
    return found


def recognize(first_bytes: bytes, path: str) -> Format | None:
    """Return the format of a file that begins like this, or None."""
    formats = added_formats() if program_by_content(first_bytes) is not None else all_formats()
    return next((each for each in formats if each.recognizes(first_bytes, path)), None)
