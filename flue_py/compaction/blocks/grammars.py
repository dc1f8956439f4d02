"""What a source file of another language than Python defines and imports, by tree-sitter's grammars (an extra)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from flue_py.errors import MissingExtra

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

EXTRA = "symbols"


class Grammar(NamedTuple):
    """A language: where its grammar is, and what in a tree defines something, imports something, or holds either."""

    module: str
    function: str
    defines: Mapping[str, str]
    """The word for what a node of this type defines; its name is in a field of the node."""
    imports: Mapping[str, str]
    """The field of a node of this type that names what is imported; "" for the whole node but its first word."""
    holds: frozenset[str]


_JS_DEFINES = {
    "function_declaration": "function",
    "generator_function_declaration": "function",
    "class_declaration": "class",
    "variable_declarator": "const",
}
_JS_IMPORTS = {"import_statement": "source", "export_statement": "source"}
_JS_HOLDS = frozenset({"export_statement", "lexical_declaration", "variable_declaration"})
_TS_DEFINES = {
    **_JS_DEFINES,
    "abstract_class_declaration": "class",
    "interface_declaration": "interface",
    "type_alias_declaration": "type",
    "enum_declaration": "enum",
    "internal_module": "namespace",
}
_TS_HOLDS = _JS_HOLDS | {"expression_statement", "ambient_declaration"}
_JAVASCRIPT = Grammar("tree_sitter_javascript", "language", _JS_DEFINES, _JS_IMPORTS, _JS_HOLDS)
_TYPESCRIPT = Grammar("tree_sitter_typescript", "language_typescript", _TS_DEFINES, _JS_IMPORTS, _TS_HOLDS)
_TSX = _TYPESCRIPT._replace(function="language_tsx")
_GO = Grammar(
    "tree_sitter_go",
    "language",
    {"function_declaration": "func", "method_declaration": "func", "type_spec": "type"},
    {"import_spec": "path"},
    frozenset({"type_declaration", "import_declaration", "import_spec_list"}),
)
_RUST = Grammar(
    "tree_sitter_rust",
    "language",
    {
        "function_item": "fn",
        "struct_item": "struct",
        "enum_item": "enum",
        "trait_item": "trait",
        "impl_item": "impl",
        "mod_item": "mod",
        "type_item": "type",
        "macro_definition": "macro",
    },
    {"use_declaration": "argument"},
    frozenset(),
)
_JAVA = Grammar(
    "tree_sitter_java",
    "language",
    {
        "class_declaration": "class",
        "interface_declaration": "interface",
        "enum_declaration": "enum",
        "record_declaration": "record",
        "annotation_type_declaration": "@interface",
    },
    {"import_declaration": ""},
    frozenset(),
)
_C = Grammar(
    "tree_sitter_c",
    "language",
    {
        "function_definition": "function",
        "struct_specifier": "struct",
        "enum_specifier": "enum",
        "union_specifier": "union",
        "type_definition": "typedef",
    },
    {"preproc_include": "path"},
    frozenset({"preproc_ifdef", "preproc_if", "preproc_else", "declaration", "linkage_specification"}),
)

GRAMMARS: Mapping[str, Grammar] = {
    **dict.fromkeys((".js", ".jsx", ".mjs", ".cjs"), _JAVASCRIPT),
    **dict.fromkeys((".ts", ".mts", ".cts"), _TYPESCRIPT),
    ".tsx": _TSX,
    ".go": _GO,
    ".rs": _RUST,
    ".java": _JAVA,
    **dict.fromkeys((".c", ".h"), _C),
}
"""The languages by the ending of a file."""


def parsed_symbols(grammar: Grammar, content: str) -> tuple[list[str], list[str]]:
    """Return what a file defines, each with its word, and what it imports, in order.

    What does not parse is passed over. Raises `MissingExtra`. O(size).
    """
    defined: list[str] = []
    imported: list[str] = []
    source = content.encode("utf-8", "replace")
    for node in _outer(_parser(grammar.module, grammar.function).parse(source).root_node, grammar):
        if (field := grammar.imports.get(node.type)) is not None:
            imported.extend(_imported(node, field))
        if (word := grammar.defines.get(node.type)) is not None:
            found = _required(node)
            imported.extend(found)
            name = "" if found else _name(node)
            defined.extend([f"{word} {name}"] if name else [])
    return defined, imported


@cache
def _parser(module: str, function: str) -> Parser:
    try:
        sitter, grammar = import_module("tree_sitter"), import_module(module)
    except ImportError as error:
        raise MissingExtra(EXTRA, "what is defined in files of other languages than Python") from error
    parser: Parser = sitter.Parser(sitter.Language(getattr(grammar, function)()))
    return parser


def _outer(root: Node, grammar: Grammar) -> Iterator[Node]:
    """Yield the nodes outside of any definition, in order; inside of what only holds others, too."""
    waiting = list(reversed(root.children))
    while waiting:
        node = waiting.pop()
        yield node
        if node.type in grammar.holds:
            waiting.extend(reversed(node.children))


def _imported(node: Node, field: str) -> list[str]:
    named = node.child_by_field_name(field) if field else None
    if field and named is None:
        return []
    text = _text(named) if named is not None else _text(node).partition(" ")[2].removesuffix(";")
    return [text.strip("\"'<>` ")]


def _required(node: Node) -> list[str]:
    """Return what ``const a = require("b")`` imports."""
    value = node.child_by_field_name("value")
    if value is None or value.type != "call_expression":
        return []
    called, arguments = value.child_by_field_name("function"), value.child_by_field_name("arguments")
    if called is None or arguments is None or _text(called) != "require":
        return []
    return [_text(arguments).strip("()\"'` ")]


def _name(node: Node) -> str:
    """Return the name that a node gives; that of a C function is inside of its declarators."""
    for field in ("name", "trait", "type"):
        named = node.child_by_field_name(field)
        if named is not None and (field == "name" or node.type == "impl_item"):
            return _text(named) if field != "trait" else f"{_text(named)} for {_name_of_type(node)}"
    inner = node.child_by_field_name("declarator")
    while inner is not None and (deeper := inner.child_by_field_name("declarator")) is not None:
        inner = deeper
    return "" if inner is None else _text(inner)


def _name_of_type(node: Node) -> str:
    named = node.child_by_field_name("type")
    return "" if named is None else _text(named)


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
