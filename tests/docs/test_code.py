"""Rules of the whole package's code that no checker has: private names, messages, and scopes that are left out.

One walk serves all: parsing the package takes longer than every question to it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click

import flue_py
from flue_py.cli import main
from flue_py.cli.main import in_commands

PACKAGE = Path(flue_py.__file__).parent


def statements(body: list[ast.AST]) -> Iterator[ast.AST]:
    """Yield statements, and those in them; expressions, most of a tree, are not walked."""
    for node in body:
        yield node
        for name in ("body", "orelse", "handlers", "finalbody", "cases"):
            yield from statements(getattr(node, name, []))
            setattr(node, name, [])


@cache
def nodes() -> list[tuple[str, ast.AST]]:
    """Return the statements that the rules are about, each with its file and without its body."""
    return [
        (path.relative_to(PACKAGE).as_posix(), node)
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in statements([ast.parse(path.read_bytes())])
        if isinstance(node, ast.ImportFrom | ast.Raise | ast.FunctionDef | ast.AsyncFunctionDef)
        or calls_init_of_base(node)
    ]


def test_no_module_imports_a_private_name_of_another() -> None:
    # ruff's SLF001 sees `module._name`, but not `from module import _name`.
    found = [
        f"{file}:{node.lineno}: {alias.name}"
        for file, node in nodes()
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "flue_py"
        for alias in node.names
        if re.match("_(?!_)", alias.name)
    ]
    assert found == []


def calls_init_of_base(node: ast.AST) -> bool:
    """Return whether a node is ``super().__init__(...)``."""
    match node:
        case ast.Expr(ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="__init__"))):
            return True
    return False


def raised_texts() -> Iterator[str]:
    """Yield the literal text of every message that the package raises."""
    for _, node in nodes():
        if isinstance(node, ast.Raise) or calls_init_of_base(node):
            found = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
            yield " ".join(each for each in found if isinstance(each, str))


def test_no_message_of_the_library_keeps_a_call_of_python() -> None:
    texts = [in_commands(text) for text in raised_texts()]
    assert len(texts) > 300
    assert [text for text in texts if re.search(r"\w\(\)|mode='|on_conflict=", text)] == []


def defaults_of_scope() -> Iterator[tuple[str, str, ast.expr]]:
    """Yield file, name, and default of each parameter ``scope`` that may be left out."""
    for file, node in nodes():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not file.startswith(("db/", "core/")):
            for arg, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
                if arg.arg == "scope" and default is not None:
                    yield file, node.name, default


def options_of_scope(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Parameter]]:
    """Yield each command that takes a scope, with that option."""
    for name in group.list_commands(click.Context(group)):
        found = group.get_command(click.Context(group), name)
        if isinstance(found, click.Group):
            yield from options_of_scope(found, f"{path} {name}")
        elif found is not None:
            yield from ((f"{path} {name}", param) for param in found.params if param.name == "scope")


def test_every_call_and_command_leaves_the_scope_to_the_store() -> None:
    functions = list(defaults_of_scope())
    assert len(functions) > 25
    assert [each for each in functions if not (isinstance(each[2], ast.Constant) and each[2].value is None)] == []
    commands = list(options_of_scope(main))
    assert len(commands) > 12
    left_out = [(path, param.get_default(click.Context(main), call=False)) for path, param in commands]
    assert [each for each in left_out if isinstance(each[1], str)] == []
