"""Which Python file defines and imports what, by the files that were written whole."""

from __future__ import annotations

import ast

from flue_py.compaction.blocks.block import Block
from flue_py.compaction.content import string_field
from flue_py.compaction.material import Material
from flue_py.compaction.quoting import on_one_line
from flue_py.core.exchange import tool_calls

MOST_FILES = 20
MOST_CHARS = 200_000
"""Longer files are not read."""
_LINE = 300


def symbol_graph(material: Material) -> Block:
    """Return what the Python files define and import that were written last in what leaves, the newest first.

    Only contents that a call of ``write`` has are read; what does not parse is passed over. No block without any.
    O(text of the files).
    """
    lines: dict[str, str] = {}
    for message in reversed(material.messages):
        for call in reversed(tool_calls(message)):
            arguments = call.get("arguments")
            if len(lines) >= MOST_FILES or string_field(call, "name") != "write" or not isinstance(arguments, dict):
                continue
            path, content = string_field(arguments, "path"), string_field(arguments, "content")
            if path.endswith(".py") and path not in lines and content and len(content) <= MOST_CHARS:
                lines[path] = _symbols(content)
    shown = [f"{on_one_line(path, 120)}: {found}" for path, found in lines.items() if found]
    return Block("\n".join(["[SYMBOL DEPENDENCY GRAPH]", *shown])) if shown else Block()


def _symbols(content: str) -> str:
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    defined = [_defined(node) for node in tree.body]
    imported = [name for node in tree.body for name in _imported(node)]
    parts = [", ".join(filter(None, defined))]
    if imported:
        parts.append("imports " + ", ".join(dict.fromkeys(imported)))
    return on_one_line("; ".join(filter(None, parts)), _LINE)


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
