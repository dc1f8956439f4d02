"""The tool that measures the shape of the code and holds it to its budgets."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

import flue_py
from benchmarks import shape
from benchmarks.shape import Budget, problems, read_table, room_of, source_figures
from flue_py.formats.registry import FORMATS

SOURCE = '''"""A module."""

import os  # for nothing


class One:
    """A class, and what it has."""

    size = 1
    """How large it is."""

    def two(self, found):
        # a comment
        import re

        for each in found:
            total, self.rest = each
        return """one
        two"""
'''
TABLE = """
[figures]
"files of flue_py" = [1, 3]
"names in flue_py.__all__" = [1, 1]

[rooms]
"__init__" = [1, 1, 2, 2]
"db store" = [1, 2, 10, 20]
"""


def test_code_lines_are_those_without_blanks_comments_and_docstrings() -> None:
    lines = ["import os", "class", "size", "def", "import re", "for", "total, self.rest", 'return """one', 'two"""']
    assert shape.code_lines(SOURCE) == len(lines)


def test_names_are_bound_by_assignments_loops_and_parameters() -> None:
    assert sorted(shape.bound_names(ast.parse(SOURCE))) == ["each", "found", "self", "size", "total"]


def test_docstrings_are_those_of_modules_classes_and_functions() -> None:
    assert shape.docstrings(ast.parse(SOURCE)).split("\n") == ["A module.", "A class, and what it has.", ""]


def test_modules_that_import_one_another_are_a_circle() -> None:
    trees = {
        "flue_py/__init__.py": "if TYPE_CHECKING:\n    from flue_py.a import x",
        "flue_py/a.py": "import flue_py\nfrom flue_py import b",
        "flue_py/b.py": "def f():\n    from flue_py.c import y",
        "flue_py/c/__init__.py": "if TYPE_CHECKING:\n    from flue_py.d import z\nelse:\n    from flue_py.c.e import z",
        "flue_py/c/e.py": "if TYPE_CHECKING:\n    import flue_py.a",
        "flue_py/d.py": "import flue_py.c\nimport os\nfrom sys import path",
    }
    circle = ("flue_py/a.py", "flue_py/b.py", "flue_py/c/__init__.py", "flue_py/c/e.py")

    assert shape.import_circles({path: ast.parse(text) for path, text in trees.items()}) == [circle]
    assert shape.import_circles({"flue_py/a.py": ast.parse("import flue_py.a")}) == []


def test_a_room_has_the_folders_and_modules_of_its_row() -> None:
    rooms = ["__init__ errors", "db store", "salvage store/salvage"]
    paths = {
        "flue_py/__init__.py": "__init__ errors", "flue_py/errors.py": "__init__ errors",
        "flue_py/db/__init__.py": "db store", "flue_py/store/salvage.py": "salvage store/salvage",
        "flue_py/store/salvage/pages.py": "salvage store/salvage", "flue_py/store/salvaged.py": "db store",
        "flue_py/system.py": "system", "flue_py/server/errors.py": "server",
    }  # fmt: skip
    assert {path: room_of(path, rooms) for path in paths} == paths


def test_the_figures_of_sources() -> None:
    sources = {
        "docs/page.md": "# A page\n\nof words",
        "docs/page.py": "1\n",
        "flue_py/__init__.py": '"""What it is, and whatever."""\n\n__all__ = [\n    "a",\n    "b",\n]\n',
        "flue_py/store/reading.py": "found, row = 1, 2\n",
        "tests/model/x.py": "row = 1\nrows = 2\nnumber = 3\n",
        "tests/data.md": "No page",
        "tests/test_x.py": "x = 1\n",
    }
    assert source_figures(sources, ["__init__", "db store"]) == {
        "code lines of flue_py": 5, "code lines of the largest file": 4, "code lines of the median file": 2.5,
        "code lines of tests": 4, "files of flue_py": 2, "import circles": 0, "modules named by a gerund": 1,
        "names in flue_py.__all__": 2, "vague names, %": 33.33, "what, per 1,000 words of docstrings": 200,
        "words of docs": 5, "__init__, files": 1, "__init__, code lines": 4, "db store, files": 1,
        "db store, code lines": 1,
    }  # fmt: skip


async def test_the_page_on_architecture_draws_the_files_of_five_calls(tmp_path: Path) -> None:
    steps = await shape.walks(tmp_path)

    figures = shape.walk_figures(steps)
    calls = ("an append", "a context", "a request", "a search", "a compaction by a model")
    assert list(figures) == [f"{unit} of {call}" for unit in ("files", "functions") for call in calls]
    assert [call for call in calls if not 1 < figures[f"files of {call}"] < figures[f"functions of {call}"]] == []
    page = shape.PAGE.read_text(encoding="utf-8").partition(shape.BEGIN)[2].partition(shape.END)[0]
    rows = re.findall(r"^\| (.*) \| (`.*) \|$", page, re.MULTILINE)
    drawn = {name: set(re.findall(r"`(\S+)`", files)) for name, files in rows}
    assert drawn == {name: set(walk.files) for name, walk in steps.items()}, "run python -m benchmarks.shape --walks"


def test_public_names_are_those_of_the_package() -> None:
    source = Path(flue_py.__file__).read_text("utf-8")
    assert shape.public_names(source) == len(flue_py.__all__)
    assert shape.class_figures()["classes in Session.__mro__"] == len(flue_py.Session.__mro__)


def test_cases_are_those_that_pytest_collects(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 0, "tests/x.py: 7\n\n1234 tests collected in 3.20s\n", "")

    monkeypatch.setattr(shape.subprocess, "run", run)
    assert shape.case_figures() == {"test cases": 1234}


def test_figures_above_their_bounds_and_without_a_row_are_problems() -> None:
    budgets, rooms = read_table(TABLE)

    assert rooms == ["__init__", "db store"]
    assert budgets["db store, files"] == Budget(1, 2)
    assert budgets["db store, code lines"] == Budget(10, 20)
    figures: dict[str, float] = {"files of flue_py": 4, "db store, files": 2, "db store, code lines": 21.5}
    assert problems({**figures, "system, files": 1}, budgets) == [
        "files of flue_py: 4 is above the bound of 3",
        "db store, code lines: 21.5 is above the bound of 20",
        "system, files: add a row to benchmarks/shape.toml",
    ]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of a few files, and the table of its budgets."""
    for folder in ("flue_py", "tests", "docs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "flue_py" / "__init__.py").write_text('"""It."""\n\n__all__ = ["a"]\n')
    table = tmp_path / "shape.toml"
    table.write_text(TABLE)
    monkeypatch.setattr(shape, "ROOT", tmp_path)
    monkeypatch.setattr(shape, "TABLE", table)
    monkeypatch.setattr(shape, "class_figures", dict)
    monkeypatch.setattr(shape, "case_figures", lambda: {"test cases": 9})

    async def no_walks(_: Path) -> dict[str, shape.Steps]:
        return {}

    monkeypatch.setattr(shape, "walks", no_walks)
    return tmp_path


def test_each_figure_is_printed_with_its_bound_and_its_goal(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shape.main([]) == 0

    assert capsys.readouterr().out.splitlines()[:5] == [
        "| figure | now | bound | goal |",
        "| --- | --- | --- | --- |",
        "| files of flue_py | 1 | 3 | 1 |",
        "| names in flue_py.__all__ | 1 | 1 | 1 |",
        "| __init__, files | 1 | 1 | 1 |",
    ]
    assert shape.main(["--cases"]) == 0
    assert "| test cases | 9 | - | - |" in capsys.readouterr().out


def test_a_check_names_what_is_above_its_bound(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = source_figures(shape.sources_of(), ["__init__"])
    rows = "\n".join(f'"{name}" = [0, {figure}]' for name, figure in figures.items() if not name.startswith("__init__"))
    table = f'[figures]\n{rows}\n[rooms]\n"__init__" = [0, 1, 0, 1]\n'
    shape.TABLE.write_text(table)
    assert shape.main(["--check"]) == 0
    assert capsys.readouterr().out == f"{len(figures)} figures are within their bounds\n"

    (small / "flue_py" / "system.py").write_text("x = 1\n")
    assert shape.main(["--check"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "code lines of flue_py: 2 is above the bound of 1",
        "files of flue_py: 2 is above the bound of 1",
        "system, code lines: add a row to benchmarks/shape.toml",
        "system, files: add a row to benchmarks/shape.toml",
    ]


def test_the_table_is_sorted_and_no_bound_is_below_its_goal() -> None:
    budgets, rooms = read_table(shape.TABLE.read_text("utf-8"))

    figures = [name for name in budgets if not any(name.startswith(f"{room}, ") for room in rooms)]
    assert figures == sorted(figures)
    assert rooms == sorted(rooms)
    assert [name for name, budget in budgets.items() if budget.bound < budget.goal] == []


# -- the page on architecture names every room, every name on it exists, and imports are as it says -------------------


PACKAGE = Path(flue_py.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
TEXT = PAGE.read_text(encoding="utf-8")
ROOMS = re.findall(r"^\| `flue_py/(\S+?)/?` \|", TEXT, re.MULTILINE)


def rooms_of(folder: Path) -> set[str]:
    """Return the packages and modules of a folder, as the page names them."""
    packages = {path.parent for path in folder.glob("*/__init__.py")}
    modules = {path for path in folder.glob("*.py") if path.name != "__init__.py"}
    return {path.relative_to(PACKAGE).as_posix() for path in packages | modules}


def test_every_room_and_every_module_of_the_database_is_on_the_page() -> None:
    assert (rooms_of(PACKAGE) | rooms_of(PACKAGE / "db")) - set(ROOMS) == set()


def test_every_file_of_the_page_is_there() -> None:
    assert [room for room in ROOMS if not (PACKAGE / room).exists()] == []
    files = re.findall(r"`((?:\w+/)*\w+\.py)`", TEXT)
    bases = ("", "db", "formats", "..")
    assert [name for name in files if not any((PACKAGE / base / name).exists() for base in bases)] == []
    assert len(files) > 20


def test_every_format_is_on_the_page() -> None:
    names = rooms_of(PACKAGE / "formats") - {"formats/kit.py", "formats/registry.py"}
    missing = [name for name in names if f"`{name.removeprefix('formats/')}`" not in TEXT]
    assert missing == [], f"name {missing} in the row flue_py/formats/ of docs/architecture.md"
    docs = PAGE.parent
    pages = {page.name: page.read_text(encoding="utf-8") for page in (docs / "formats").glob("*.md")}
    unsaid = [one.name for one in FORMATS if not any(f"flue-py import {one.name} " in text for text in pages.values())]
    assert unsaid == [], f"write docs/formats/NAME.md with a line `flue-py import NAME FILE` for {unsaid}"
    text = (docs / "index.md").read_text(encoding="utf-8")
    unlinked = [name for name in pages if f"formats/{name}" not in text]
    assert unlinked == [], f"link docs/formats/{unlinked} from docs/index.md"
