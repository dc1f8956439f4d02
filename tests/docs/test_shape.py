"""The tool that counts the code, and the files that one call goes through."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import shape
from benchmarks.shape import code_lines, inner_imports, walks

SOURCE = '''"""A module."""

import os  # to be found


class One:
    """A class."""

    size = 1
    """How large it is."""

    def two(self):
        # a comment
        import re

        return """one
        two"""
'''


def test_code_lines_are_those_without_blanks_comments_and_docstrings() -> None:
    assert code_lines(SOURCE) == len(["import os", "class", "size", "def", "import re", "return", "two"])


def test_only_imports_inside_functions_are_inner_imports() -> None:
    assert inner_imports(SOURCE) == 1


@pytest.mark.anyio
async def test_a_walk_counts_what_one_call_runs(tmp_path: Path) -> None:
    rows = {name: [int(count) for count in row.split("|")] for name, row in (await walks(tmp_path)).items()}

    assert list(rows) == [
        "append a user message", "build_context", "fork", "delete a tree", "import a pi file of 2 messages",
    ]  # fmt: skip
    for files, functions, jumps, transactions, sql in rows.values():
        assert 1 < files < functions
        assert jumps >= files - 1
        assert 1 <= transactions <= sql
    assert rows["append a user message"][3:] == [1, 3]


def test_sizes_are_printed_by_room(capsys: pytest.CaptureFixture[str]) -> None:
    sources = shape.sources_of(str(shape.PACKAGE.parent))
    # One module of each room: to take all of them apart takes long.
    first = {path.partition("/")[0]: path for path in sorted(sources, reverse=True) if "/" in path}
    shape.print_sizes({path: sources[path] for path in ("__init__.py", *first.values())})

    printed = capsys.readouterr().out
    rooms = {path.name for path in shape.PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert {line.split("|")[1].strip() for line in printed.splitlines()[2:] if line.startswith("|")} == {
        ".", "without testing", *rooms,
    }  # fmt: skip


def test_a_module_names_a_word_in_its_code_and_not_in_what_is_said_of_it() -> None:
    assert not shape.names('"""Like postgres."""\nx = 1  # as postgres does\n', "postgres")
    assert shape.names("from a.postgres import b\n", "postgres")
    assert shape.names("_POSTGRES = 1\n", "postgres")
    assert shape.names('x = "postgresql+asyncpg"\n', "postgres")


def test_what_can_be_added_is_counted_by_an_example_that_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    counts = shape.additions(shape.sources_of(str(shape.PACKAGE.parent)))

    assert list(counts) == list(shape.ADDITIONS)
    assert all(named > 0 for named, _ in counts.values())
    others = {addition: named - own for addition, (named, own) in counts.items()}
    assert others["a transcript format"] == 1
    assert others["a command"] <= 2
    assert others["a step of the context pipeline"] <= 3
    shape.print_additions(shape.sources_of(str(shape.PACKAGE.parent)))
    printed = capsys.readouterr().out
    assert all(f"| {addition} " in printed for addition in (*shape.ADDITIONS, *shape.LATER))
