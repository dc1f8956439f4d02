"""Run the pages of the documentation: every block of code runs, and every output on a page is what it printed.

    python tests/docs/pages.py            say which pages differ from what their programs print
    python tests/docs/pages.py --write    put what they print into the pages

The language of a fenced block says what it is:

- ``python`` is a whole program. It runs in the page's own folder, after the blocks before it. What it prints is the
  ``text`` block right below it. With ``file=NAME`` behind the language it is saved under that name first; a name that
  begins with ``test_``, and a block with ``saved`` behind its name, is only saved.
- ``console`` has commands after ``$``, each followed by what it prints: ``flue-py``, ``python`` and ``sh``.
- ``sh`` has such commands, too, one a line; they must succeed, and what they print is not shown.
- ``sql`` is one statement on ``sessions.db`` in the page's folder; the ``text`` block right below it is what
  ``sqlite3 -readonly -header -column`` prints. All of a page run in one connection.
- any language with ``file=NAME`` is saved under that name.
- everything else must be named in `NOT_RUN`, with the reason.

Commands of a ``sh`` block do less where `SHORTER` says how.
So that outputs are the same in every run, ids and times are drawn in order here (`Counting`) where a program leaves
them to the store.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import secrets
import shlex
import sqlite3
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[2]
DATABASE = "sessions.db"

RUNS_AFTER = {"docs/format.md": "docs/tutorial.md"}
"""Pages whose folder is the one that another page's programs have left."""

RUNS_WITH = {
    "docs/adapters/adk.md": "google.adk",
    "docs/adapters/langgraph.md": "langgraph.graph",
    "docs/adapters/openai-agents.md": "agents",
    "docs/adapters/pydantic-ai.md": "pydantic_ai",
    "docs/how-to/agents.md#give-it-a-model": "anthropic",
    "docs/how-to/agents.md#record-an-agent": "pydantic_ai",
    "docs/how-to/erase.md#keep-secrets-out": "detect_secrets",
    "docs/how-to/serve.md": "starlette",
    "docs/how-to/serve.md#let-agents-ask-what-was-said-before": "mcp",
    "docs/how-to/watch-what-happens.md#send-sessions-to-opentelemetry": "opentelemetry.sdk.trace",
}
"""Pages, or sections of them, whose programs need a module of an extra: they run where it is installed."""


def is_installed(module: str) -> bool:
    """Return whether a module of an extra is there."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def missing_for(page: str) -> list[str]:
    """Return the modules without which programs of a page are not run here."""
    needed = {module for place, module in RUNS_WITH.items() if place.partition("#")[0] == page}
    return sorted(module for module in needed if not is_installed(module))


NOT_RUN: dict[tuple[str, str], str] = {
    ("docs/how-to/serve.md", "flue-py serve --http 8765"): "serves until a signal ends it; tests/server does so",
    ("docs/how-to/serve.md", "claude mcp add --scope user past-sessions -- flue-py mcp"): (
        "runs the agents' own programs"
    ),
    ("docs/how-to/serve.md", "flue-py mcp --http 0.0.0.0:8765 --token-file TOKEN"): (
        "serves until a signal ends it; tests/server asks such servers"
    ),
    ("docs/adapters/langgraph.md", "-from langgraph.checkpoint.sqlite import SqliteSaver"): (
        "a diff; the programs below it use the new lines"
    ),
    ("docs/adapters/openai-agents.md", "-from agents import SQLiteSession"): (
        "a difference; the page's programs are after it"
    ),
    ("README.md", "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/flue-py demo"): (
        "installs the package; CI runs it in a fresh clone"
    ),
    (
        "README.md",
        "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/python -m pytest -n auto",
    ): ("runs all tests, this one among them; CI runs it in a fresh clone"),
    ("docs/format.md", "$ sqlite3 -readonly -header -column sessions.db"): (
        "opens a shell; what is typed into it are the sql blocks of the page"
    ),
    ("docs/how-to/scale.md", "flue-py --db postgresql+asyncpg:///app migrate --sql > store.sql"): (
        "needs a server; tests/edges applies the printed SQL by psql"
    ),
    ("docs/how-to/scale.md", "GRANT USAGE ON SCHEMA flue TO app;"): "PostgreSQL's own; tests/migrations runs it",
    ("docs/how-to/watch-what-happens.md", "flue-py --db agents.db import --discover --finish"): (
        "reads the folders of agents; tests/edges imports from such folders"
    ),
    ("docs/how-to/scale.md", 'export ALEMBIC_CONFIG="$(flue-py migrate --ini)"'): (
        "sets a variable of a shell; tests/migrations runs alembic with it"
    ),
    ("docs/how-to/scale.md", "CREATE SCHEMA flue AUTHORIZATION app;"): (
        "PostgreSQL's own; tests/migrations runs the like"
    ),
    ("docs/how-to/agents.md", "flue-py repl --model anthropic:claude-sonnet-4-5"): (
        "needs a provider; tests/agents runs the command with a server of its own"
    ),
    ("docs/conformance.md", "$ python tests/conformance/run.py --backend sqlite tests/data/conformance/*.json.gz"): (
        "takes too long to run once more; tests/conformance runs the same cases, and the sums are compared with its own"
    ),
    (
        "docs/how-to/scale.md",
        "-- Partitions a store that holds nothing yet by tree. Run it as the role that owns the tables.",
    ): "PostgreSQL's own; tests/store/test_postgres_partitions.py runs this very block, and the contract on its result",
    ("docs/how-to/scale.md", "-- Bytes of a row, and of its entries in indexes, by table."): (
        "PostgreSQL's own; tests/store/test_postgres_partitions.py runs this very block"
    ),
    ("docs/adapters/pydantic-ai.md", "-from pydantic_ai.conversation_store import InMemoryConversationStore"): (
        "two versions of the same lines; the program below them runs"
    ),
    ("docs/format.md", "depth   0     1     2     3     4     5     6     7"): "a drawing of the lanes shown below it",
    ("docs/adapters/adk.md", "-from google.adk.sessions.sqlite_session_service import SqliteSessionService"): (
        "a diff; the programs below it use the new lines"
    ),
}
"""Blocks that neither run nor are the output of one that does: page, text of the block (or its first line), reason."""

SHORTER: dict[str, dict[str, str]] = {
    # `tests/store/test_contract.py` has all of it on a store in memory.
    "docs/how-to/event-loops.md": {"test_mine.py": "test_mine.py -k append"}
}
"""How commands whose output is not shown are shortened: text of the page, and another."""

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)$")


class PageError(Exception):
    """A page that breaks the rules above; the message says where."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: where its text stands in the page's lines, in which section (its anchor), and what kind it is."""

    page: str
    section: str
    first: int
    last: int
    language: str
    options: tuple[str, ...]
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def file(self) -> str | None:
        """The name to save it under."""
        return next((option.removeprefix("file=") for option in self.options if option.startswith("file=")), None)

    @property
    def places(self) -> tuple[str, str]:
        """Its page and its section, as `RUNS_WITH` names them."""
        return self.page, f"{self.page}#{self.section}"

    @property
    def where(self) -> str:
        return f"{self.page}:{self.first + 1}"


def all_pages() -> list[str]:
    """Return the paths of all pages, from the root of the repository, but for those that are built."""
    built = ROOT / "docs" / "built"
    pages = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.parent != built)]
    return [page.relative_to(ROOT).as_posix() for page in pages]


def anchor_of(heading: str) -> str:
    """Return the anchor that a heading gets on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lstrip("#").strip().lower()).replace(" ", "-")


def blocks_of(page: str, text: str) -> list[Block]:
    """Return the fenced blocks of a page, in order. Raises `PageError` for one that is never closed."""
    blocks = []
    lines = text.split("\n")
    number = 0
    section = ""
    while number < len(lines):
        if lines[number].startswith("## "):
            section = anchor_of(lines[number])
        opening = _FENCE.match(lines[number])
        number += 1
        if opening is None:
            continue
        first = number
        closing = re.compile(rf"^ *{opening['fence'][0]}{{{len(opening['fence'])},}}[ \t]*$")
        while number < len(lines) and not closing.match(lines[number]):
            number += 1
        if number == len(lines):
            raise PageError(f"{page}:{first}: the block that begins here is not closed")
        language, *options = opening["info"].split() or [""]
        blocks.append(Block(page, section, first, number, language, tuple(options), tuple(lines[first:number])))
        number += 1
    return blocks


def output_of(block: Block, blocks: list[Block], lines: list[str]) -> Block | None:
    """Return the ``text`` block right below a block, with nothing but blank lines between, or None."""
    after = next((other for other in blocks if other.first > block.first), None)
    if after is None or after.language != "text" or after.file is not None:
        return None
    return after if not any(line.strip() for line in lines[block.last + 1 : after.first - 1]) else None


def reason_not_to_run(block: Block) -> str | None:
    """Return why a block is not run: `NOT_RUN` says so, or a module is missing that `RUNS_WITH` names."""
    for module in (RUNS_WITH.get(place) for place in block.places):
        if module is not None and not is_installed(module):
            return f"needs {module}"
    for key in ((block.page, block.text), (block.page, block.lines[0] if block.lines else "")):
        if key in NOT_RUN:
            return NOT_RUN[key]
    return None


# -- running ----------------------------------------------------------------------------------------------------------


class Counting:
    """Ids, times and keys as they are drawn, but the same in every run.

    The first digit of an id counts up, so that a reader can follow it; a moment is a second after the one before.
    """

    def __init__(self) -> None:
        self._ids = 0
        self._seconds = 0

    def id(self) -> str:
        self._ids += 1
        return f"{self._ids % 16:x}{blake2b(b'%d' % self._ids, digest_size=8).hexdigest()[:15]}"

    def token(self, size: int) -> str:
        self._ids += 1
        return blake2b(b"%d" % self._ids, digest_size=size).hexdigest()

    def now_us(self) -> int:
        self._seconds += 1
        return 1_780_000_000_000_000 + self._seconds * 1_000_000


@contextlib.contextmanager
def surroundings(folder: Path, counting: Counting) -> Iterator[None]:
    """Run what is inside in ``folder``, with ids and times in order, and nothing of the user's own settings."""
    from flue_py.sessions import store as opening

    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FLUE_PY", "PYTEST_"))}
    settings = {"COLUMNS": "100", "NO_COLOR": "1", "HOME": str(folder), "PYTHONHASHSEED": "0"}
    with (
        patch.object(opening, "random_id", counting.id),
        patch.object(opening, "now_us", counting.now_us),
        patch.object(secrets, "token_hex", counting.token),
        patch.dict(os.environ, {**kept, **settings}, clear=True),
        patch.object(sys, "path", [str(folder), *sys.path]),
        contextlib.chdir(folder),
    ):
        try:
            yield
        finally:
            # Another page's file of the same name must not be taken for one that is imported already.
            for name, module in list(sys.modules.items()):
                if Path(getattr(module, "__file__", None) or "/").parent == folder:
                    del sys.modules[name]


def run_page(page: str, folder: Path, counting: Counting | None = None) -> str:
    """Run a page's blocks in ``folder``; return the page with each output as it was printed.

    Raises `PageError` for a block that breaks the rules, or a program that fails.
    """
    counting = counting or Counting()
    if page in RUNS_AFTER:
        run_page(RUNS_AFTER[page], folder, counting)
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = text.split("\n")
    blocks = blocks_of(page, text)
    replaced: list[tuple[Block, list[str]]] = []
    shown: set[int] = set()
    with surroundings(folder, counting), contextlib.ExitStack() as stack:
        database: sqlite3.Connection | None = None
        for block in blocks:
            if block.first in shown or reason_not_to_run(block) is not None:
                continue
            if block.file is not None:
                (folder / block.file).write_text(block.text + "\n", encoding="utf-8")
            output = output_of(block, blocks, lines)
            if block.language == "console":
                replaced.append((block, _run_console(block, folder)))
            elif block.language == "sh" and block.file is None:
                for line in block.lines:
                    command = _shortened(line, SHORTER.get(page, {}))
                    _run_command(shlex.split(command), block, folder, must_succeed=True)
            elif block.language in ("python", "sql") and not _is_only_saved(block):
                if block.language == "sql" and database is None:
                    database = stack.enter_context(_open_database(block))
                printed = _run_python(block) if block.language == "python" else _run_sql(block, database)
                if output is not None:
                    shown.add(output.first)
                    replaced.append((output, printed))
                elif printed:
                    raise PageError(f"{block.where}: prints, but the page does not show what: {printed[:3]}")
            elif block.file is None:
                raise PageError(f"{block.where}: a block of {block.language or 'no language'} that does not run")
    for block, printed in reversed(replaced):
        lines[block.first : block.last] = printed
    return "\n".join(lines)


def _is_only_saved(block: Block) -> bool:
    return (block.file or "").startswith("test_") or "saved" in block.options


def _tidy(printed: str) -> list[str]:
    lines = [line.rstrip() for line in printed.rstrip().split("\n")]
    return [] if lines == [""] else lines


def _shortened(text: str, shorter: Mapping[str, str]) -> str:
    for long, short in shorter.items():
        text = text.replace(long, short)
    return text


def _run_python(block: Block) -> list[str]:
    code = compile("\n" * block.first + block.text, block.page, "exec", dont_inherit=True)
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(code, {"__name__": "__main__"})
    except Exception as error:
        raise PageError(f"{block.where}: {type(error).__name__}: {error}") from error
    return _tidy(out.getvalue())


@contextlib.contextmanager
def _open_database(block: Block) -> Iterator[sqlite3.Connection]:
    """Open the folder's database for reading, with the one function of the shell that pages use."""
    try:
        database = sqlite3.connect(f"file:{DATABASE}?mode=ro", uri=True)
    except sqlite3.Error as error:
        raise PageError(f"{block.where}: {DATABASE}: {error}") from error
    with contextlib.closing(database):
        database.create_function("sqlar_uncompress", 2, _uncompressed)
        yield database


def _uncompressed(data: bytes | None, size: int) -> bytes | None:
    """Do what the shell's function does: data of the size itself are not compressed."""
    return data if data is None or len(data) == size else zlib.decompress(data)


def _run_sql(block: Block, database: sqlite3.Connection | None) -> list[str]:
    assert database is not None
    try:
        cursor = database.execute(block.text)
    except sqlite3.Error as error:
        raise PageError(f"{block.where}: {error}") from error
    return _table([column[0] for column in cursor.description or ()], cursor.fetchall())


def _table(names: list[str], rows: list[tuple[object, ...]]) -> list[str]:
    """Return rows as ``sqlite3 -header -column`` prints them, without the blanks at the ends of lines."""
    if not rows:
        return []
    cells = [["" if value is None else str(value) for value in row] for row in rows]
    widths = [max(len(row[n]) for row in [names, *cells]) for n in range(len(names))]
    rules = ["-" * width for width in widths]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [names, rules, *cells]
    ]


def _run_console(block: Block, folder: Path) -> list[str]:
    if not block.lines or not block.lines[0].startswith("$ "):
        raise PageError(f"{block.where}: a console block begins with a command after '$ '")
    lines: list[str] = []
    waiting = iter(block.lines)
    for line in waiting:
        if not line.startswith("$ "):
            continue  # what was printed when the page was written
        lines.append(line)
        command = line[2:]
        while command.endswith("\\"):
            follow_up = next(waiting)
            lines.append(follow_up)
            command = command[:-1] + follow_up
        lines += _run_command(shlex.split(command), block, folder)
    return lines


def _run_command(words: list[str], block: Block, folder: Path, *, must_succeed: bool = False) -> list[str]:
    if words[0] == "flue-py":
        printed, code = _run_flue_py(words[1:])
    elif words[0] in ("python", "sh"):
        programs = str(Path(sys.executable).parent)
        program = sys.executable if words[0] == "python" else words[0]
        done = subprocess.run(
            [program, *words[1:], *(["-p", "no:cacheprovider"] if "pytest" in words else [])],
            cwd=folder,
            env={**os.environ, "PATH": os.pathsep.join([programs, os.environ.get("PATH", os.defpath)])},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        printed, code = done.stdout, done.returncode
    else:
        raise PageError(f"{block.where}: {words[0]!r} is not a command that can be run here")
    if must_succeed and code != 0:
        raise PageError(f"{block.where}: {shlex.join(words)} ended with {code}: {printed[-2000:]}")
    return _tidy(printed)


def _run_flue_py(arguments: list[str]) -> tuple[str, int]:
    from click.testing import CliRunner

    from flue_py.cli import main

    result = CliRunner().invoke(main, arguments, prog_name="flue-py")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise PageError(f"flue-py {shlex.join(arguments)}: {type(result.exception).__name__}: {result.exception}")
    return result.output, result.exit_code


# -- the command ------------------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """Compare, or with ``--write`` rewrite, the pages named; all of them where none is.

    A page that is named fails if it lacks a module that its programs need.
    """
    write = "--write" in arguments
    named = [argument for argument in arguments if not argument.startswith("--")]
    failures = 0
    for page in named or all_pages():
        if page in named and (missing := missing_for(page)):
            print(f"{page}: programs did not run: they need {', '.join(missing)}")
            failures += 1
        try:
            with tempfile.TemporaryDirectory() as folder:
                fresh = run_page(page, Path(folder).resolve())
        except PageError as error:
            print(error)
            failures += 1
            continue
        if fresh == (ROOT / page).read_text(encoding="utf-8"):
            continue
        print(f"{page} {'was rewritten' if write else 'differs from what its programs print'}")
        if write:
            (ROOT / page).write_text(fresh, encoding="utf-8")
        else:
            failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
