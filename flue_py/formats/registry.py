"""The formats of files: how one is recognised, who reads and writes it, and where such files usually are.

Naming a format costs nothing: its module is imported when it is used. A new format is one more line here, or in another
package: an entry point of the group ``flue_py.formats``, of the format's name, that leads to a `Format`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import translate
from functools import cache, partial
from glob import iglob
from importlib import import_module
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec.structs import replace

from flue_py.core.json import Frozen
from flue_py.errors import FlueError, InvalidArgument, shown
from flue_py.lazy import lazy_module
from flue_py.system import in_full

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from flue_py.core.context import ContextEntry
    from flue_py.core.json import JsonValue
    from flue_py.formats import gathered
    from flue_py.formats.kit import Exported, Reader, SessionTree
else:
    gathered = lazy_module("flue_py.formats.gathered")


# Programs whose sessions no format reads: where they keep them, and how such files begin, so that each is named.
#
# A line of a program is dropped when it gets a format.


class Program(Frozen):
    """A program: its name, patterns of its files (``~`` is a home), and a sign that only such a file begins with.

    ``is_part`` says that the files are parts of sessions that a format reads: refused by name, and not counted.
    """

    name: str
    files: tuple[str, ...]
    sign: bytes | None = None
    is_part: bool = False


_EDITORS = ("~/.config/Code", "~/Library/Application Support/Code", "~/.vscode-server/data")
_DATA = ("~/.local/share", "~/Library/Application Support")


def _in(folders: tuple[str, ...], *patterns: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{pattern}" for folder in folders for pattern in patterns)


OTHERS = (
    Program("Antigravity", ("~/.gemini/antigravity*/conversations/*",)),
    Program("Cline (read with api_conversation_history.json)", ("~/*/ui_messages.json",), is_part=True),
    Program("Codebuff", ("~/.config/manicode/projects/*/chats/*/chat-messages.json",)),
    Program(
        "Continue",
        ("~/.continue/sessions/*-*.json",),
        rb'\s*\{\s*"sessionId"[^{}\[\]]{0,2000}"workspaceDirectory"',
    ),
    Program("Copilot CLI (older sessions)", ("~/.copilot/history-session-state/*.json",)),
    Program(
        "Cursor",
        (
            "~/.cursor/projects/*/agent-transcripts/**/*.jsonl",
            *_in(("~/.config", *_DATA), "Cursor/User/globalStorage/state.vscdb"),
        ),
    ),
    Program("Grok CLI", ("~/.grok/sessions/**/*.jsonl",)),
    Program("Hermes", ("~/.hermes/state.db", "~/.hermes/sessions/*.json*")),
    Program(
        "Kimi CLI (events)",
        ("~/.kimi/sessions/*/*/wire.jsonl",),
        rb'\s*\{"type": ?"metadata", ?"protocol_version": ?"[^"]*"\}',
        is_part=True,
    ),
    Program(
        "Mistral Vibe (parts of a store)",
        ("~/.vibe/logs/session/unified/*/chunks/*.json",),
        rb'\s*\[\s*\{("message": ?\{(?s:.)*"turn_index"|(?s:.)*"generationStatus":)',
        is_part=True,
    ),
    Program("Mistral Vibe 1", ("~/.vibe/logs/session/session_*.json",)),
    Program("OpenHands (before its SDK)", ("~/.openhands/sessions/*/events/*.json",)),
    Program("Qwen Code (older sessions)", ("~/.qwen/tmp/*/chats/*.json*",)),
    Program("Zed", _in(_DATA, "[zZ]ed/threads/threads.db")),
)  # fmt: skip
"""By name. The order does not matter: no file has two signs."""

PARTS = frozenset(program.name for program in OTHERS if program.is_part)
"""The names of those whose files are parts of sessions that are read."""


@cache
def _matchers() -> tuple[tuple[str, re.Pattern[str], re.Pattern[bytes] | None], ...]:
    return tuple(
        (
            program.name,
            re.compile("|".join(translate(f"*{file[1:]}") for file in program.files)),
            None if program.sign is None else re.compile(program.sign),
        )
        for program in OTHERS
    )


def program_by_content(first_bytes: bytes) -> str | None:
    """Return the program whose file begins like this, if that is certain even if a format recognizes it; or None."""
    first = first_bytes.removeprefix(b"\xef\xbb\xbf")
    return next((name for name, _, sign in _matchers() if sign is not None and sign.match(first)), None)


def program_of(first_bytes: bytes, path: str) -> str | None:
    """Return the program that wrote a file, by how it begins, or by where it is (``path`` is absolute); or None."""
    place = path.replace("\\", "/")
    return program_by_content(first_bytes) or next((name for name, files, _ in _matchers() if files.match(place)), None)


def unread_of(first_bytes: bytes, path: str) -> str | None:
    """Return the same as `program_of`, but None for parts of sessions that are read."""
    name = program_of(first_bytes, path)
    return None if name in PARTS else name


def programs_seen() -> Iterator[tuple[str, int, str]]:
    """Yield each program that has files in its usual places, how many, and the first. O(files)."""
    for program in OTHERS:
        files: list[str] = []
        for pattern in program.files:
            with suppress(InvalidArgument):  # there is no home
                files += iglob(in_full(pattern), recursive=True)
        if files and not program.is_part:
            yield program.name, len(set(files)), min(files)


# The formats of files: how one is recognised, who reads and writes it, and where such files usually are.
#
# Naming a format costs nothing: its module is imported when it is used. A new format is one more line here, or in
# another package: an entry point of the group ``flue_py.formats``, of the format's name, that leads to a `Format`.

GROUP = "flue_py.formats"
"""The group of the entry points by which other packages bring formats."""

OURS = "flue-py"

Recognizer: TypeAlias = Callable[[bytes, str], bool]
"""Given the first bytes of a file and its path: whether it looks like a file of the format. Never raises."""
Settler: TypeAlias = Callable[[Iterable[bytes]], "str | None"]
"""Given the pieces of a whole file: the name of another format that it turns out to be of. Never raises."""
Lines: TypeAlias = "Callable[[BinaryIO], Iterator[tuple[int, bytes]]]"
Before: TypeAlias = "Callable[[Path, Any, Lines], Iterator[None]]"
"""Given a path, its reader, and a reader of lines: gives it the rows before in other files, and yields after a row."""
Gatherer: TypeAlias = "Callable[..., Generator[bytes, None, None]]"
"""Given a path: rows for the reader, as lines, in place of those of the file. Raises `UnreadableFile`.

That of a format with `Fingerprints` gets the ids of sessions to leave out, too.
"""
Fingerprints: TypeAlias = "Callable[[Path], dict[str, str]]"
"""Given a path: for each session that may be left out, a text that is another one when the session has changed."""
SessionLister: TypeAlias = "Callable[[Path, gathered.Database], Iterator[tuple[JsonValue, Iterable[bytes]]]]"
"""Given the path of a database, and it: the id of each session and its rows, to be taken before the next session."""
Beside: TypeAlias = "Callable[[Path], JsonValue]"
"""Given a path: the facts about it in other files, apart from those that come before it. Never raises."""
ReaderMaker: TypeAlias = "Callable[[str], Reader]"
"""Given the name of a file: its reader."""
TreeWriter: TypeAlias = "Callable[[SessionTree], Exported]"
"""Given a session: the text of a file of it, and notes on what the format had no place for."""
ContextWriter: TypeAlias = "Callable[[Sequence[ContextEntry]], Exported]"
"""Given a context: the same."""


class Format(Frozen):
    """One format. Functions are named as entry points name them: ``package.module:function``.

    ``recognize`` is a `Recognizer`, ``read`` a `ReaderMaker`. ``write``, if the format can be written, is a
    `TreeWriter`; or a `ContextWriter` if a written file ``holds`` the context, and not the tree with every branch. With
    ``is_resumed`` it is a `TreeWriter` in either case: the program goes on with a session as `Exported.continuation`
    says.
    ``places`` are folders (``~`` is the home) in which such files usually are; ``suffixes`` how their names end.
    ``settle`` is a `Settler`, for files whose beginning could as well be that of another format. ``is_chained`` says
    that rows have no ids of their own, so that a file whose beginning changes is another one. ``package`` is set
    here: whose format it is. ``before`` is a `Before`, for files that go on from others, and ``beside`` its `Beside`.
    ``gather`` is a `Gatherer`, for databases and sessions of several files; ``beside`` then
    says how these are now, since files that are as they were are not read again. ``fingerprints`` are its
    `Fingerprints`, if sessions that are as they were can be left out. ``sessions`` is a `SessionLister`, for databases:
    the format has fingerprints then, and ``gather`` is for its files that are none.
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
    gather: str | None = None
    fingerprints: str | None = None
    is_resumed: bool = False
    sessions: str | None = None

    @property
    def has_rows_elsewhere(self) -> bool:
        """Whether rows that a file goes on from may be in another one. Files with facts about it have states."""
        return self.before is not None and (self.is_chained or self.beside is None)

    def recognizes(self, first_bytes: bytes, path: str) -> bool:
        """Return whether a file that begins like this looks like one of the format."""
        start = first_bytes.removeprefix(b"\xef\xbb\xbf") if self.package == OURS else first_bytes
        try:
            return bool(_named(self.recognize)(start, path))
        except Exception as error:
            if self.package == OURS:
                raise
            _warn(f"{self.failed(error)}; files are not recognised as {self.name}")
            return False

    def other_format(self, pieces: Iterable[bytes]) -> str | None:
        """Return the name of the format that a file is of after all, which this one recognized by its beginning."""
        name: str | None = None if self.settle is None else _named(self.settle)(pieces)
        return name

    def reader(self, name: str) -> Reader:
        """Return a reader for one file of this name."""
        reader: Reader = _named(self.read)(name)
        return reader

    def rows_before(self, path: Path, reader: Reader, lines: Lines) -> Iterator[None]:
        """Give a reader the rows before a file in other files, and yield after each row. Raises `UnreadableFile`."""
        rows: Iterator[None] = iter(()) if self.before is None else _named(self.before)(path, reader, lines)
        return rows

    def gathered(self, path: Path, unchanged: Collection[str] = ()) -> Generator[bytes, None, None] | None:
        """Return the rows that stand for a file, but for some sessions; None if they are its own lines."""
        if self._is_database(path):
            lister: SessionLister = _named(str(self.sessions))
            rows: Generator[bytes, None, None] = gathered.rows_of_sessions(path, partial(lister, path), unchanged)
            return rows
        gather: Gatherer | None = None if self.gather is None else _named(self.gather)
        if gather is None:
            return None
        return gather(path) if self.fingerprints is None or self.sessions is not None else gather(path, unchanged)

    def _is_database(self, path: Path) -> bool:
        """Return whether the sessions of a file are listed: of a format with other files, too, if it is a database."""
        return self.sessions is not None and (self.gather is None or gathered.is_database(path))

    def fingerprints_of(self, path: Path) -> dict[str, str]:
        """Return the fingerprints of the sessions of a file; none of a format that has none."""
        if self.fingerprints is not None and (self.sessions is None or self._is_database(path)):
            of: Fingerprints = _named(self.fingerprints)
            return of(path)
        if not self._is_database(path):
            return {}
        lister: SessionLister = _named(str(self.sessions))
        return gathered.digests_of_sessions(path, partial(lister, path))

    def said_beside(self, path: Path) -> JsonValue:
        """Return the facts about a file in other files."""
        facts: JsonValue = None if self.beside is None else _named(self.beside)(path)
        return facts

    def written(self, session: SessionTree) -> Exported:
        """Return a session in this format. Raises `InvalidArgument` if the format cannot be written, or its code fails.

        Cost: O(entries).
        """
        if self.write is None:
            raise InvalidArgument(f"format: {self.name} cannot be exported")
        try:
            write: Any = _named(self.write)
            needs_tree = self.holds == "tree" or self.is_resumed
            exported: Exported = write(session if needs_tree else session.context())
        except Exception as error:
            if self.package == OURS or isinstance(error, FlueError):
                raise
            raise InvalidArgument(f"format: {self.failed(error)}; nothing was exported") from error
        return exported

    def failed(self, error: Exception) -> str:
        """Return the message about another package's format whose code fails."""
        return _failed(self.name, self.package, error)


def _named(reference: str) -> Any:  # noqa: ANN401 - each use has its type
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def _failed(name: str, package: str, error: Exception) -> str:
    return f"the format {name!r} of the package {package} fails ({type(error).__name__}: {error})"


def _warn(text: str) -> None:
    warnings.warn(f"{text}; repair or remove the package", RuntimeWarning, stacklevel=3)


_MODULES = {"fuseraft-repl": "fuseraft", "fuseraft-run": "fuseraft", "kimi-cli": "kimi"} | dict.fromkeys(
    ("anthropic", "openai-chat", "openai-responses"), "lists"
)
"""The modules of formats that are not called like theirs."""


def _ours(
    name: str,
    functions: str = "",
    holds: Literal["tree", "context"] | None = None,
    suffixes: tuple[str, ...] = (".jsonl",),
    places: tuple[str, ...] = (),
) -> Format:
    """Return a format of ours: its module has the functions ``looks_like_X``, ``read_X`` and ``export_X``.

    ``functions`` are others of the module, by the fields of the `Format` that name them: ``gather`` is ``gather_X``.
    ``holds`` says what a written file holds; None for a format that is only read.
    """
    suffix = name.replace("-", "_")
    home = f"{__package__}.{_MODULES.get(name, suffix)}"
    form = Format(
        name,
        f"{home}:looks_like_{suffix}",
        f"{home}:read_{suffix}",
        None if holds is None else f"{home}:export_{suffix}",
        holds or "tree",
        places,
        suffixes,
    )
    return replace(form, **{field: f"{home}:{field}_{suffix}" for field in functions.split()})


def _database(name: str, places: tuple[str, ...], *more: str, functions: str = "sessions") -> Format:
    """Return a format of ours of databases of sessions, and of files with ``more`` suffixes."""
    form = _ours(name, functions, None, (".db", *more), places)
    return form if form.beside is not None else replace(form, beside=f"{__package__}.gathered:log_beside")


def _resumed(form: Format) -> Format:
    """Return a format whose program goes on with what `flue_py.formats.continuations` writes."""
    write = f"{__package__}.continuations:export_{form.name.replace('-', '_')}"
    return replace(form, write=write, holds="context", is_resumed=True)


_JSON, _LIST = (".json",), (".json", ".jsonl")
_CODEX_PLACES = ("~/.codex/sessions", "~/.codex/archived_sessions")

_TASKS = tuple(
    f"User/globalStorage/{name}/tasks"
    for name in ("saoudrizwan.claude-dev", "rooveterinaryinc.roo-cline", "kilocode.kilo-code")
)
"""The folders of Cline, Roo Code and Kilo in an editor's."""

_CLINE_PLACES = ("~/.cline/data/sessions", *_in(_EDITORS, *_TASKS))
_CURSOR_PLACES = ("~/.cursor/chats", "~/.cursor/acp-sessions", "~/.config/cursor/chats")
_OPENCODE = "gather sessions fingerprints beside"

_PROGRAMS = (
    replace(_ours("pi", "", "tree", places=("~/.pi/agent/sessions",)), is_resumed=True),
    _ours("noumen"),
    _resumed(_ours("claude-code", "before beside", places=("~/.claude/projects",))),
    replace(_resumed(_ours("codex", "before beside", None, (".jsonl", ".jsonl.zst"), _CODEX_PLACES)), is_chained=True),
    _ours("amp", "", None, _JSON, _in(_DATA, "amp/threads")),
    _ours("cline", "before beside", None, _JSON, _CLINE_PLACES),
    _resumed(_ours("kimi", "gather beside", places=("~/.kimi-code/sessions",))),
    _ours("kimi-cli", "gather beside", places=("~/.kimi/sessions",)),
    _resumed(_ours("gemini-cli", "before", None, _LIST, ("~/.gemini/tmp",))),
    _ours("openhands", "gather beside", None, ("base_state.json",), ("~/.openhands/conversations",)),
    _resumed(_ours("copilot-cli", "before beside", places=("~/.copilot/session-state",))),
    _resumed(_database("opencode", _in(_DATA, "opencode", "kilo"), ".json", functions=_OPENCODE)),
    _resumed(_ours("mistral-vibe", "gather beside", None, ("CURRENT", "messages.jsonl"), ("~/.vibe/logs/session",))),
    _database("crush", ("~/.crush", "~/.local/share/crush", "~/.opencode")),
    _ours("cursor-cli", "gather beside", None, ("store.db",), _CURSOR_PLACES),
    _ours("droid", "before beside", places=("~/.factory/sessions",)),
    _ours("flue", "", "tree", _JSON),
    _ours("aider", "gather", None, (".aider.chat.history.md",), ("~/.aider.chat.history.md",)),
    _database("llm", _in(("~/.config", *_DATA), "io.datasette.llm")),
    _database("pi-sqlite", (), ".sqlite", ".jsonl", functions="gather sessions"),
    _database("goose", _in((*_DATA, "~/.config"), "goose/sessions"), *_LIST[::-1], functions="gather sessions"),
    _ours("fuseraft-repl", "", None, _JSON, ("~/.fuseraft/repl-sessions",)),
    _ours("fuseraft-run", "", None, _JSON, ("~/.fuseraft/sessions",)),
    _resumed(_ours("qwen-code", "before beside", places=("~/.qwen/projects",))),
)
_LISTS = (
    _ours("anthropic", "", "context", _LIST),
    _ours("openai-responses", "", "context", _LIST),
    replace(_ours("openai-chat", "", "context", _LIST), settle=f"{__package__}.kit:other_list"),
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
    """Return the formats that other packages bring, by name. One that cannot be used is warned about, once."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow, and most files are of our own formats

    added: dict[str, Format] = {}
    points = [
        (point.name, point.value if point.dist is None else point.dist.name, point.load)
        for point in entry_points(group=GROUP)
    ]
    for name, package, load in sorted(points, key=itemgetter(0, 1)):
        try:
            new = _checked(load(), name)
        except Exception as error:  # noqa: BLE001 - whatever its module raises
            _warn(f"{_failed(name, package, error)} and is left out")
            continue
        first = next((candidate for candidate in (*FORMATS, *added.values()) if candidate.name == new.name), None)
        if first is None:
            added[new.name] = replace(new, package=package)
        else:
            _warn(f"the format {new.name!r} of the package {package} is left out: {first.package} has this name")
    return tuple(added.values())


def _checked(value: object, name: str) -> Format:
    if not isinstance(value, Format):
        raise TypeError(f"its entry point leads to a {type(value).__name__}, not to a Format")
    if value.name != name or canonical_name(name) != name:
        raise ValueError(f"it calls itself {value.name!r}; the name should be the entry point's, in lower case with -")
    return value


def format_names() -> tuple[str, ...]:
    """Return the names of all formats, as the command line takes them."""
    return tuple(candidate.name for candidate in all_formats())


def export_names(*, resumed: bool = False) -> tuple[str, ...]:
    """Return the names of the formats that a session can be exported to; or of those that a program resumes."""
    written = (candidate for candidate in all_formats() if candidate.write is not None)
    return tuple(candidate.name for candidate in written if candidate.is_resumed or not resumed)


_OTHER_NAMES = {"claude": "claude-code", "claudecode": "claude-code"}


def canonical_name(name: str) -> str:
    """Return the name of a format as it is written here: ``claude_code`` and ``claude`` are ``claude-code``."""
    plain = name.lower().replace("_", "-")
    return _OTHER_NAMES.get(plain, plain)


def known_format(name: str) -> Format | None:
    """Return the format of this name, or None."""
    canonical = canonical_name(name)
    ours = next((candidate for candidate in FORMATS if candidate.name == canonical), None)
    return ours or next((candidate for candidate in added_formats() if candidate.name == canonical), None)


def find_format(name: str) -> Format:
    """Return the format of this name. Raises `InvalidArgument`."""
    match = known_format(name)
    if match is None:
        raise InvalidArgument(f"format: {shown(name)} is not one of {', '.join(format_names())}")
    return match


def recognize(first_bytes: bytes, path: str) -> Format | None:
    """Return the format of a file that begins like this, or None."""
    formats = added_formats() if program_by_content(first_bytes) is not None else all_formats()
    return next((candidate for candidate in formats if candidate.recognizes(first_bytes, path)), None)
