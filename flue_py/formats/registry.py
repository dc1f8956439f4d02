"""The formats that can be imported: how a file is recognised, who reads it, and where such files usually are.

A format's module is imported when it is needed, so that naming the formats costs nothing. A new format is one more
line of `FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from flue_py.errors import InvalidArgument, shown

if TYPE_CHECKING:
    from flue_py.formats.kit.parsed import ParsedSession
    from flue_py.formats.kit.streaming import RowReader

Settler: TypeAlias = Callable[[Iterable[bytes]], "str | None"]
"""Given the pieces of a whole file: the name of another format that it turns out to be of. Never raises."""
Recognizer: TypeAlias = Callable[[bytes, str], bool]
"""Given the first bytes of a file and its path: whether it looks like a file of the format. Never raises."""
LinesParser: TypeAlias = Callable[[Iterable[bytes], str], "Sequence[ParsedSession]"]
"""Given the lines of a file (with or without their ends) and its name: its sessions. Raises `UnreadableFile`."""
BytesParser: TypeAlias = Callable[[bytes, str], "Sequence[ParsedSession]"]
"""Given a whole file and its name: its sessions. Raises `UnreadableFile`."""
ReaderMaker: TypeAlias = "Callable[[str], RowReader]"
"""Given the name of a file: what reads it row by row, however long it is."""


@dataclass(frozen=True, slots=True)
class Format:
    """One format, its functions named by module and name.

    ``content`` says what the parser is given: ``lines`` (an iterable of them) or ``bytes`` (the whole file).
    ``reader`` reads row by row, in little memory; where there is one, it is used instead of ``parse``.
    ``places`` are folders (``~`` is the home) in which such files usually are; ``suffixes`` their names' ends.
    ``settled_by`` looks through a whole file whose beginning could as well be that of another format.
    ``is_chained`` says that rows have no ids of their own, so that a file whose beginning changes is another one.
    """

    name: str
    module: str
    looks_like: str
    settled_by: str | None = None
    parse: str | None = None
    content: Literal["lines", "bytes"] = "lines"
    reader: str | None = None
    places: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = (".jsonl",)
    is_chained: bool = False

    def recognizes(self, first_bytes: bytes, path: str) -> bool:
        """Return whether a file that begins like this looks like one of the format."""
        return cast("Recognizer", self._named(self.looks_like))(first_bytes, path)

    def other_format(self, pieces: Iterable[bytes]) -> str | None:
        """Return the name of the format that a file is of after all, which this one recognized by its beginning."""
        return None if self.settled_by is None else cast("Settler", self._named(self.settled_by))(pieces)

    def lines_parser(self) -> LinesParser:
        """Return the parser of a format that takes lines."""
        return cast("LinesParser", self._named(cast("str", self.parse)))

    def bytes_parser(self) -> BytesParser:
        """Return the parser of a format that takes a whole file."""
        return cast("BytesParser", self._named(cast("str", self.parse)))

    def make_reader(self, name: str) -> RowReader:
        """Return a reader for one file of this name."""
        return cast("ReaderMaker", self._named(cast("str", self.reader)))(name)

    def _named(self, name: str) -> object:
        return getattr(import_module(self.module), name)


FORMATS: tuple[Format, ...] = (
    Format(
        "pi",
        "flue_py.formats.pi.read",
        "looks_like_pi",
        reader="PiReader",
        places=("~/.pi/agent/sessions",),
    ),
    Format("noumen", "flue_py.formats.noumen.read", "looks_like_noumen", parse="parse_noumen"),
    Format(
        "claude-code",
        "flue_py.formats.claude_code.read",
        "looks_like_claude_code",
        reader="ClaudeCodeReader",
        places=("~/.claude/projects",),
    ),
    Format(
        "codex",
        "flue_py.formats.codex.read",
        "looks_like_codex",
        reader="CodexReader",
        places=("~/.codex/sessions", "~/.codex/archived_sessions"),
        is_chained=True,
    ),
    Format(
        "flue",
        "flue_py.formats.flue.read",
        "looks_like_flue",
        parse="parse_flue",
        content="bytes",
        suffixes=(".json",),
    ),
    Format(
        "fuseraft-repl",
        "flue_py.formats.fuseraft.read_repl",
        "looks_like_fuseraft_repl",
        parse="parse_fuseraft_repl",
        content="bytes",
        places=("~/.fuseraft/repl-sessions",),
        suffixes=(".json",),
    ),
    Format(
        "fuseraft-run",
        "flue_py.formats.fuseraft.read_run",
        "looks_like_fuseraft_run",
        parse="parse_fuseraft_run",
        content="bytes",
        places=("~/.fuseraft/sessions",),
        suffixes=(".json",),
    ),
    Format(
        "anthropic",
        "flue_py.formats.anthropic.read",
        "looks_like_anthropic",
        parse="parse_anthropic",
        content="bytes",
        suffixes=(".json", ".jsonl"),
    ),
    Format(
        "openai-responses",
        "flue_py.formats.openai.read_responses",
        "looks_like_openai_responses",
        parse="parse_openai_responses",
        content="bytes",
        suffixes=(".json", ".jsonl"),
    ),
    Format(
        "openai-chat",
        "flue_py.formats.openai.read_chat",
        "looks_like_openai_chat",
        settled_by="other_list",
        parse="parse_openai_chat",
        content="bytes",
        suffixes=(".json", ".jsonl"),
    ),
)
"""Every format, in the order in which `recognize` asks: the first one that recognizes a file is it."""


def format_names() -> tuple[str, ...]:
    """Return the names of the formats, as the command line takes them."""
    return tuple(each.name for each in FORMATS)


_OTHER_NAMES = {"claude": "claude-code", "claudecode": "claude-code"}


def canonical_name(name: str) -> str:
    """Return the name of a format as it is written here: ``claude_code`` and ``claude`` are ``claude-code``."""
    plain = name.lower().replace("_", "-")
    return _OTHER_NAMES.get(plain, plain)


def find_format(name: str) -> Format:
    """Return the format of this name. Raises `InvalidArgument`."""
    canonical = canonical_name(name)
    for each in FORMATS:
        if each.name == canonical:
            return each
    raise InvalidArgument(f"format: {shown(name)} is none of {', '.join(format_names())}")


def recognize(first_bytes: bytes, path: str) -> Format | None:
    """Return the format of a file that begins like this, or None."""
    for each in FORMATS:
        if each.recognizes(first_bytes, path):
            return each
    return None
