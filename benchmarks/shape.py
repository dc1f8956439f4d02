"""The shape of the code: how much of it there is, and through how many files one call goes.

Run with ``python -m benchmarks.shape``. It prints modules, code lines (without blank lines, comments and docstrings),
imports inside functions and public names; how many modules name an example of what a maintainer may add; and five
walks: what really runs for one append, one context, one fork, one deletion and one import, on a SQLite file. A walk
begins when the call is made and ends when it returns. It counts the files and functions of flue_py that ran, how often
a function of one file called one of another, transactions, and calls of SQL in them.

With a revision of git, or the folder of a checkout, it prints the same of what is there, without the walks:
``python -m benchmarks.shape 2c5b4ff``.
"""

from __future__ import annotations

import ast
import asyncio
import io
import json
import re
import subprocess
import sys
import tarfile
import threading
import tokenize
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import flue_py

PACKAGE = Path(flue_py.__file__).parent
_ROOT = f"{PACKAGE}/"
_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
_SQL = frozenset({"rows", "first", "run", "run_many", "insert"})
_TRANSACTION = "SqliteTransaction"


# -- what is there -----------------------------------------------------------------------------------------------------


def code_lines(source: str) -> int:
    """Return how many lines of a module hold code: no blank lines, comments or docstrings."""
    tree = ast.parse(source)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for statement in body:
            # A text that stands alone documents what it follows, or the module, class or function it begins.
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                lines.difference_update(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    return len(lines)


def inner_imports(source: str) -> int:
    """Return how many imports stand inside functions."""
    return sum(
        isinstance(inner, (ast.Import, ast.ImportFrom))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for inner in ast.walk(node)
    )


def public_names(source: str) -> int:
    """Return how many names the ``__all__`` of a module has."""
    return sum(
        len(statement.value.elts)
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.List)
        if ast.unparse(statement.targets[0]) == "__all__"
    )


def sources_of(where: str) -> dict[str, str]:
    """Return the modules of flue_py in the folder of a checkout, or in a revision, by path."""
    if Path(where).is_dir():
        package = Path(where) / "flue_py"
        return {path.relative_to(package).as_posix(): path.read_text("utf-8") for path in package.rglob("*.py")}
    command = ["git", "-C", str(PACKAGE.parent), "archive", where, "flue_py"]
    archive = subprocess.run(command, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {
            member.name.removeprefix("flue_py/"): file.read().decode()
            for member in tar
            if member.name.endswith(".py") and (file := tar.extractfile(member)) is not None
        }


def print_sizes(sources: dict[str, str]) -> None:
    """Print how much code there is, by room."""
    sizes = {path: code_lines(source) for path, source in sources.items()}
    rooms: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    for path, size in sizes.items():
        room = _room(path)
        rooms[room] += size
        modules[room] += 1
    print("| room | modules | code lines |\n| --- | --- | --- |")
    for room in sorted(rooms):
        print(f"| {room} | {modules[room]} | {rooms[room]:,} |")
    print(f"| without testing | {modules.total() - modules['testing']} | {rooms.total() - rooms['testing']:,} |")
    largest = sorted(sizes, key=lambda path: -sizes[path])[:3]
    print("\nlargest modules: " + ", ".join(f"{path} ({sizes[path]})" for path in largest))
    inner = sum(inner_imports(text) for path, text in sources.items() if _room(path) not in ("cli", "demo", "testing"))
    print(f"imports inside functions, without cli, demo and testing: {inner}")
    print(f"public names of flue_py: {public_names(sources['__init__.py'])}\n")


def _room(path: str) -> str:
    return path.partition("/")[0] if "/" in path else "."


# -- what a maintainer touches ----------------------------------------------------------------------------------------

ADDITIONS = {
    "a SQL database": ("postgres", ""),
    "a transcript format": ("noumen", ""),
    "an entry kind that the context shows": ("custom_message", ""),
    "a command": ("unpin", "cli/"),
    "a step of the context pipeline": ("microcompact", ""),
}
"""What can be added: the word that names one that is there, and the folder in which the word means that."""

LATER = ("a framework adapter",)


def names(source: str, word: str) -> bool:
    """Return whether the code of a module, as opposed to its comments and docstrings, has a word in any case."""
    if word not in source.lower():
        return False
    tree = ast.parse(source)
    said = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        texts = [value for _, value in ast.iter_fields(node) if isinstance(value, str)]
        if id(node) not in said and any(re.search(rf"(?<![a-z]){word}", text.lower()) for text in texts):
            return True
    return False


def additions(sources: dict[str, str]) -> dict[str, tuple[int, int]]:
    """Return how many modules name each example, and how many of these are its own, named for it."""
    counts = {}
    for addition, (word, folder) in ADDITIONS.items():
        product = [path for path in sources if path.startswith(folder) and _room(path) != "testing"]
        found = [path for path in product if names(sources[path], word)]
        counts[addition] = (len(found), sum(word in path for path in found))
    return counts


def print_additions(sources: dict[str, str]) -> None:
    """Print what a maintainer touches, measured by the modules that name an example."""
    print("| a maintainer adds | modules that name the one there | its own | others |\n| --- | --- | --- | --- |")
    for addition, (named, own) in additions(sources).items():
        print(f"| {addition} (as {ADDITIONS[addition][0]}) | {named} | {own} | {named - own} |")
    for addition in LATER:
        print(f"| {addition} | there is none yet | | |")
    print()


# -- what runs ---------------------------------------------------------------------------------------------------------


class Walk:
    """What runs of flue_py while it is watched, in every thread."""

    def __init__(self) -> None:
        self.is_watching = False
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.files: set[str] = set()
        self.functions: set[object] = set()
        self.jumps = self.transactions = self.sql = 0

    def see(self, frame: FrameType, event: str, argument: object) -> None:
        """Note a call. The interpreter calls this for every one."""
        del argument
        code = frame.f_code
        if not self.is_watching or event != "call" or not code.co_filename.startswith(_ROOT):
            return
        self.files.add(code.co_filename)
        self.functions.add(code)
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(_ROOT):
            caller = caller.f_back
        self.jumps += caller is not None and caller.f_code.co_filename != code.co_filename
        owner, _, name = code.co_qualname.rpartition(".")
        if owner == _TRANSACTION:
            self.transactions += name == "__init__"
            self.sql += name in _SQL

    async def of(self, call: Callable[[], Awaitable[object]]) -> str:
        """Return the row of a table for what one call runs."""
        self.clear()
        self.is_watching = True
        await call()
        self.is_watching = False
        counts = (len(self.files), len(self.functions), self.jumps, self.transactions, self.sql)
        return " | ".join(map(str, counts))


async def walks(folder: Path) -> dict[str, str]:
    """Return a row for each walk: what the second call of each kind runs. The first also loads modules."""
    walk = Walk()
    question: flue_py.JsonObject = {"role": "user", "content": "why?"}
    # The threads of the store are watched from their beginning.
    threading.setprofile(walk.see)
    sys.setprofile(walk.see)
    try:
        async with flue_py.open(folder / "walks.db") as store:
            rows: dict[str, str] = {}
            for number in (1, 2):
                file = folder / f"{number}.jsonl"
                rows_of_file = ({**PI_FILE[0], "id": f"walk {number}"}, *PI_FILE[1:])
                file.write_text("\n".join(map(json.dumps, rows_of_file)) + "\n", encoding="utf-8")
                session = await store.create_session()
                await session.append_messages([question] * 10)
                task = await session.create_task(task_id="task")
                await task.append_message(question)
                reader = await store.get_session(session.id)
                rows = {
                    "append a user message": await walk.of(partial(session.append_message, question)),
                    "build_context": await walk.of(reader.build_context),
                    "fork": await walk.of(session.fork),
                    "delete a tree": await walk.of(partial(store.delete_session_tree, session.id)),
                    "import a pi file of 2 messages": await walk.of(partial(flue_py.import_file, store, file)),
                }
            return rows
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


PI_FILE: tuple[flue_py.JsonObject, ...] = (
    {"type": "session", "version": 3, "id": "walk", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/"},
    {
        "type": "message", "id": "a0000001", "parentId": None, "timestamp": "2026-01-01T00:00:01Z",
        "message": {"role": "user", "content": "hello", "timestamp": 1},
    },
    {
        "type": "message", "id": "a0000002", "parentId": "a0000001", "timestamp": "2026-01-01T00:00:02Z",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "hi"}], "timestamp": 2},
    },
)  # fmt: skip


def main() -> None:
    """Print the sizes, what a maintainer touches, and the walks; of another checkout or revision, all but the walks."""
    sources = sources_of(sys.argv[1] if len(sys.argv) > 1 else str(PACKAGE.parent))
    print_sizes(sources)
    print_additions(sources)
    if len(sys.argv) > 1:
        return
    print("| walk | files | functions | jumps between files | transactions | SQL calls |\n| --- " + "| --- " * 5 + "|")
    with TemporaryDirectory() as folder:
        for name, row in asyncio.run(walks(Path(folder))).items():
            print(f"| {name} | {row} |")


if __name__ == "__main__":
    main()
