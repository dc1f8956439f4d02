"""Which source file defines and imports what, by the files that were written whole."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from flue_py.compaction.blocks.block import Block
from flue_py.compaction.blocks.grammars import GRAMMARS, parsed_symbols
from flue_py.compaction.content import string_field
from flue_py.compaction.file_calls import file_call
from flue_py.compaction.material import Material
from flue_py.compaction.quoting import on_one_line, quoted
from flue_py.core.exchange import tool_calls
from flue_py.errors import MissingExtra

MOST_FILES = 20
MOST_CHARS = 200_000
"""Longer files are not read."""
MOST_TOKENS = 3_000
"""What the graph takes in a large window; in a small one no more than a sixteenth of it."""
_WINDOW_PART = 16
_LINE = 300


def symbol_graph(material: Material) -> Block:
    """Return what the source files define and import that were written last in what leaves, the newest first.

    Python files, and with the extra ``symbols`` those of the languages of `GRAMMARS`; without it a note says which
    files are missing. Only contents that calls have which write a file are read; what does not parse is passed over. No
    block without any. O(text of the files).
    """
    lines: dict[str, str] = {}
    missing: dict[str, str] = {}
    for path, content in _written(material):
        if len(lines) >= MOST_FILES:
            break
        if path not in lines and path not in missing:
            try:
                lines[path] = file_symbols(path, content)
            except MissingExtra as error:
                missing[path] = str(error)
    shown = [f"{quoted(path, 120)}: {quoted(found, _LINE)}" for path, found in lines.items() if found]
    text = _graph(shown)
    while text and (tokens := material.tokens_of(text)) > (most := material.at_most(MOST_TOKENS, _WINDOW_PART)):
        text = _graph(shown := shown[: len(shown) * most // tokens])
    named = ", ".join(on_one_line(path, 120) for path in missing)
    notes = [f"the symbols of {named} are left out: {why}" for why in list(missing.values())[:1]]
    return Block(text, notes=tuple(notes))


def _graph(shown: Sequence[str]) -> str:
    return "\n".join(["[SYMBOL DEPENDENCY GRAPH]", *shown]) if shown else ""


def file_symbols(path: str, content: str) -> str:
    """Return what a source file defines and imports as one line; "" where that is unknown, or it does not parse.

    The ending of the path says the language. Raises `MissingExtra` for others than Python. O(size).
    """
    if path.endswith(".py"):
        return _line(*_of_python(content))
    grammar = GRAMMARS.get(_ending(path))
    return "" if grammar is None else _line(*parsed_symbols(grammar, content))


def _written(material: Material) -> Iterator[tuple[str, str]]:
    """Yield path and content of the source files that were written whole, the newest first."""
    for message in reversed(material.messages):
        for call in reversed(tool_calls(message)):
            arguments = call.get("arguments")
            written = file_call(call, material.planned.plan.policy)
            if written is None or written.use != "write" or not isinstance(arguments, dict):
                continue
            content = string_field(arguments, "content")
            if content and len(content) <= MOST_CHARS and _ending(written.path) in (".py", *GRAMMARS):
                yield written.path, content


def _ending(path: str) -> str:
    return f".{path.rpartition('.')[2]}"


def _line(defined: Sequence[str], imported: Sequence[str]) -> str:
    parts = [", ".join(defined)]
    if imported:
        parts.append("imports " + ", ".join(dict.fromkeys(imported)))
    return on_one_line("; ".join(filter(None, parts)), _LINE)


def _of_python(content: str) -> tuple[list[str], list[str]]:
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [], []
    defined = filter(None, map(_defined, tree.body))
    return [*defined], [name for node in tree.body for name in _imported(node)]


def _defined(node: ast.stmt) -> str:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return f"def {node.name}"
    if not isinstance(node, ast.ClassDef):
        return ""
    bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
    return f"class {node.name}({', '.join(bases)})" if bases else f"class {node.name}"


def _imported(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    return ["." * node.level + (node.module or "")] if isinstance(node, ast.ImportFrom) else []
