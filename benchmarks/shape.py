"""The shape of the code beside its budgets: sizes, the files and functions of five calls, names and words.

``python -m benchmarks.shape`` prints each figure with its bound and its goal, which stand in ``shape.toml``. With
``--check`` it prints only the figures that are above their bounds, and exits with 1 if there are any. ``--cases``
counts the test cases as well, which takes half a minute, and ``--walks`` draws the files of five calls in
``docs/architecture.md``. With a revision of git it prints the figures of the sources there.

A code line is not blank, a comment or a docstring. Names are counted each time an assignment, a loop or a parameter
binds them. Words of docstrings are those of modules, classes and functions. An import counts for a circle wherever it
stands, except under ``TYPE_CHECKING`` in an ``__init__.py``: there it names the contents of other modules. The
functions of a call are those of flue_py that run until it returns, on a SQLite file, once its modules are loaded.
"""

from __future__ import annotations

import ast
import asyncio
import io
import re
import subprocess
import sys
import tarfile
import threading
import tokenize
import tomllib
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import NamedTuple

import flue_py
from benchmarks.measuring import make_messages
from flue_py.core.model import FunctionModel

ROOT = Path(__file__).parent.parent
TABLE = Path(__file__).with_suffix(".toml")
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- walks: begin, written by python -m benchmarks.shape --walks -->", "<!-- walks: end -->"
VAGUE = frozenset({
    "found", "told", "given", "said", "asked", "known", "made", "chosen", "each", "one", "other", "more", "held",
    "kept", "gone", "around", "beside", "what",
})  # fmt: skip
ONE_STEP: flue_py.JsonObject = {"window": {"text_only": True}}
TOOL_CALL: tuple[flue_py.JsonObject, ...] = (
    {"role": "assistant", "content": [{"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a.py"}}]},
    {"role": "toolResult", "toolCallId": "c1", "toolName": "read", "content": "def parse(text): ..."},
)
_PACKAGE = str(Path(flue_py.__file__).parent) + "/"


# -- sources -----------------------------------------------------------------------------------------------------------


def sources_of(revision: str | None = None) -> dict[str, str]:
    """Return the Python files of flue_py and its tests, and the pages, by path: of this checkout, or of a revision."""
    folders = ("flue_py", "tests", "docs")
    if revision is None:
        paths = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md")]
        return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths}
    command = ["git", "-C", str(ROOT), "archive", revision, *folders]
    archive = subprocess.run(command, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {
            member.name: file.read().decode()
            for member in tar
            if member.name.endswith((".py", ".md")) and (file := tar.extractfile(member)) is not None
        }


def code_lines(source: str) -> int:
    """Return the number of code lines of a module."""
    texts = source.split("\n")
    documented: set[int] = set()
    for node in statements(ast.parse(source)):
        # A text that stands alone documents the name above it, or the module, class or function it begins.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            documented.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = {line for line, text in enumerate(texts, 1) if text.strip() and text.lstrip()[0] != "#"} - documented
    if any(text.endswith("\\") or '"""' in text or "'''" in text for text in (texts[line - 1] for line in lines)):
        # A text of several lines may hold lines that look blank or like comments. Finding them takes ten times longer.
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.STRING:
                lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a module at every depth, and the clauses that hold them."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        pending += _inside(node)


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    # Four fifths of all nodes are expressions.
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        nodes = getattr(node, field, None)
        yield from nodes if isinstance(nodes, list) else ()


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names that assignments, loops and parameters bind, each time they do."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def docstrings(tree: ast.AST) -> str:
    """Return the docstrings of a module, its classes and functions."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return "\n".join(ast.get_docstring(node) or "" for node in statements(tree) if isinstance(node, documented))


def import_circles(trees: Mapping[str, ast.AST]) -> list[tuple[str, ...]]:
    """Return the groups of modules that import one another, by path."""
    paths = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in trees}
    imports = {path: {paths[name] for name in _imports(path, trees[path], paths)} for path in trees}
    reachable = {path: _reachable(path, imports) for path in trees}
    circles = (tuple(sorted(end for end in reachable[path] if path in reachable[end])) for path in trees)
    return sorted({circle for circle in circles if len(circle) > 1})


def _imports(path: str, tree: ast.AST, modules: Mapping[str, str]) -> Iterator[str]:
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from {name if name in modules else str(node.module) for name in names} & modules.keys()
        elif path.endswith("/__init__.py") and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            nodes += node.orelse
        else:
            nodes += _inside(node)


def _reachable(path: str, imports: Mapping[str, set[str]]) -> set[str]:
    reachable: set[str] = set()
    pending = [path]
    while pending:
        targets = imports[pending.pop()] - reachable
        reachable |= targets
        pending += targets
    return reachable


def room_of(path: str, rooms: Iterable[str]) -> str:
    """Return the one of ``rooms`` that names the folder or module of a path, or the folder or module if none does."""
    parts = path.removeprefix("flue_py/").removesuffix(".py").split("/")
    for length in range(len(parts), 0, -1):
        for room in rooms:
            if "/".join(parts[:length]) in room.split():
                return room
    return parts[0]


def source_figures(sources: Mapping[str, str], rooms: Iterable[str]) -> dict[str, float]:
    """Return the figures of sources by name, those of rooms included."""
    trees = {
        path: ast.parse(text) for path, text in sources.items() if path.startswith("flue_py/") and path.endswith(".py")
    }
    lines = {path: code_lines(text) for path, text in sources.items() if path.endswith(".py")}
    room_files, room_lines = Counter[str](), Counter[str]()
    for path in trees:
        room = room_of(path, rooms)
        room_files[room] += 1
        room_lines[room] += lines[path]
    sizes = [lines[path] for path in trees]
    names = [name for tree in trees.values() for name in bound_names(tree)]
    words = " ".join(map(docstrings, trees.values()))
    return {
        "code lines of flue_py": sum(sizes),
        "code lines of the largest file": max(sizes),
        "code lines of the median file": median(sizes),
        # Those that are shipped are tests, too.
        "code lines of tests": sum(lines[path] for path in lines if path.startswith("tests/")),
        "files of flue_py": len(trees),
        "import circles": len(import_circles(trees)),
        "modules named by a gerund": sum(bool(re.search(r"ings?\.py$", path)) for path in trees),
        "names in flue_py.__all__": public_names(sources["flue_py/__init__.py"]),
        "vague names, %": _share(sum(name in VAGUE for name in names), len(names), 100),
        "what, per 1,000 words of docstrings": _share(
            len(re.findall(r"\bwhat\b", words, re.IGNORECASE)), len(words.split()), 1000
        ),
        "words of docs": sum(
            len(text.split()) for path, text in sources.items() if path.startswith("docs/") and path.endswith(".md")
        ),
        **{f"{room}, files": count for room, count in room_files.items()},
        **{f"{room}, code lines": count for room, count in room_lines.items()},
    }


def public_names(source: str) -> int:
    """Return the number of names in the ``__all__`` of a module."""
    return sum(
        len(statement.value.elts)
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.List)
        if ast.unparse(statement.targets[0]) == "__all__"
    )


def _share(part: int, whole: int, of: int) -> float:
    return round(of * part / max(whole, 1), 2)


# -- a checkout --------------------------------------------------------------------------------------------------------


class Walk:
    """The functions of flue_py that run while it watches, in every thread."""

    def __init__(self) -> None:
        self.is_watching = False
        self.functions: dict[CodeType, None] = {}

    def see(self, frame: FrameType, event: str, argument: object) -> None:
        """Note a call. The interpreter calls this for every one."""
        del argument
        if self.is_watching and event == "call" and frame.f_code.co_filename.startswith(_PACKAGE):
            self.functions[frame.f_code] = None

    async def of(self, call: Callable[[], Awaitable[object]]) -> Steps:
        """Return the files and the number of functions that one call runs."""
        self.functions = {}
        self.is_watching = True
        await call()
        self.is_watching = False
        files = dict.fromkeys(code.co_filename.removeprefix(_PACKAGE) for code in self.functions)
        return Steps(tuple(files), len(self.functions))


class Steps(NamedTuple):
    """The files of a call, in the order in which it enters them, and the number of its functions."""

    files: tuple[str, ...]
    functions: int


async def walks(folder: Path) -> dict[str, Steps]:
    """Return the files and functions of five calls, the least of six rounds.

    A round before these loads the modules. Threads that wait sometimes run a function more.
    """
    walk = Walk()
    model = FunctionModel(lambda _: "The build is red, and was repaired.", "scripted", context_window=200_000)
    rounds: list[dict[str, Steps]] = []
    # The threads of the store are watched from their beginning.
    threading.setprofile(walk.see)
    sys.setprofile(walk.see)
    try:
        async with flue_py.open(folder / "walks.db") as store:
            for _ in range(7):
                session = await store.create_session()
                await session.append_messages([*make_messages(118), *TOOL_CALL])
                # Another handle reads, so that the one that compacts does not know the context yet.
                reader = await store.get_session(session.id)
                calls: dict[str, Callable[[], Awaitable[object]]] = {
                    "an append": partial(session.append_message, {"role": "user", "content": "why?"}),
                    "a context": reader.build_context,
                    "a request": partial(reader.request, "anthropic", settings=ONE_STEP),
                    "a search": partial(store.search, "traceback"),
                    "a compaction by a model": partial(session.compact, model, mode="llm", window=10_000),
                }
                rounds.append({name: await walk.of(call) for name, call in calls.items()})
                if len(await session.build_context()) > 100:
                    raise RuntimeError("nothing was compacted")
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {
        name: Steps(
            min((steps[name].files for steps in rounds[1:]), key=len),
            min(steps[name].functions for steps in rounds[1:]),
        )
        for name in rounds[0]
    }


def walk_figures(steps: Mapping[str, Steps]) -> dict[str, float]:
    """Return the numbers of files and functions of each call."""
    files: dict[str, float] = {f"files of {name}": len(walk.files) for name, walk in steps.items()}
    return files | {f"functions of {name}": walk.functions for name, walk in steps.items()}


def drawn(text: str, steps: Mapping[str, Steps]) -> str:
    """Return the page with the files of each call between its marks."""
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    rows = [f"| {name} | {', '.join(f'`{file}`' for file in walk.files)} |" for name, walk in steps.items()]
    return "\n".join([before + BEGIN, "", "| call | its files, in order |", "| --- | --- |", *rows, "", END + after])


def class_figures() -> dict[str, float]:
    """Return the public names and the classes of `Session`."""
    return {
        "classes in Session.__mro__": len(flue_py.Session.__mro__),
        "public names of Session": sum(not name.startswith("_") for name in dir(flue_py.Session)),
    }


def case_figures() -> dict[str, float]:
    """Return the number of test cases that pytest collects."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {"test cases": int(re.findall(r"^(\d+) tests collected", printed, re.MULTILINE)[-1])}


# -- budgets -----------------------------------------------------------------------------------------------------------


class Budget(NamedTuple):
    """How large a figure is to become, and how large it may be now."""

    goal: float
    bound: float


def read_table(text: str) -> tuple[dict[str, Budget], list[str]]:
    """Return the budgets of all figures by name, and the names of the rooms."""
    table = tomllib.loads(text)
    budgets = {name: Budget(*pair) for name, pair in table["figures"].items()}
    for room, (files, files_bound, lines, lines_bound) in table["rooms"].items():
        budgets[f"{room}, files"] = Budget(files, files_bound)
        budgets[f"{room}, code lines"] = Budget(lines, lines_bound)
    return budgets, list(table["rooms"])


def problems(figures: Mapping[str, float], budgets: Mapping[str, Budget]) -> list[str]:
    """Return a line for each figure that is above its bound or has none."""
    above = [
        f"{name}: {figure:,} is above the bound of {budgets[name].bound:,}"
        for name, figure in figures.items()
        if name in budgets and figure > budgets[name].bound
    ]
    return above + [f"{name}: add a row to benchmarks/{TABLE.name}" for name in figures if name not in budgets]


def print_figures(figures: Mapping[str, float], budgets: Mapping[str, Budget]) -> None:
    """Print a table of figures, bounds and goals."""
    print("| figure | now | bound | goal |\n| --- | --- | --- | --- |")
    for name, figure in figures.items():
        bounds = f"{budgets[name].bound:,} | {budgets[name].goal:,}" if name in budgets else "- | -"
        print(f"| {name} | {figure:,} | {bounds} |")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures, or check them; return 1 if one is above its bound."""
    parser = ArgumentParser(prog="python -m benchmarks.shape", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("revision", nargs="?", help="a revision of git, for the figures of its sources")
    parser.add_argument("--cases", action="store_true", help="count the test cases, too")
    parser.add_argument(
        "--check", action="store_true", help="print only figures above their bounds; exit with 1 if any"
    )
    parser.add_argument("--walks", action="store_true", help=f"draw the files of five calls in {PAGE.name}")
    options = parser.parse_args(arguments)
    budgets, rooms = read_table(TABLE.read_text("utf-8"))
    figures = source_figures(sources_of(options.revision), rooms)
    if options.revision is None:
        with TemporaryDirectory() as folder:
            steps = asyncio.run(walks(Path(folder)))
        if options.walks:
            PAGE.write_text(drawn(PAGE.read_text("utf-8"), steps), "utf-8")
        figures |= walk_figures(steps) | class_figures()
        figures |= case_figures() if options.cases else {}
    places = {name: place for place, name in enumerate(budgets)}
    figures = {name: figures[name] for name in sorted(figures, key=lambda name: (places.get(name, len(places)), name))}
    if not options.check:
        print_figures(figures, budgets)
        return 0
    lines = problems(figures, budgets)
    print("\n".join(lines) or f"{len(figures)} figures are within their bounds")
    if lines:
        print(f"docs/CONTRIBUTING.md says when a bound of {TABLE.name} may be raised", file=sys.stderr)
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
