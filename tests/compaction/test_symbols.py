"""What source files define and import, as a summary tells it."""

from __future__ import annotations

import sys

import pytest

from flue_py.compaction.blocks import GRAMMARS, file_symbols, parsed_symbols, symbol_graph
from flue_py.errors import MissingExtra
from tests.compaction.strategies import assistant, call, tool_result, user
from tests.compaction.test_modes import material
from tests.tables import inputs
from tests.values import existing

CASES = [
    (
        "a.mjs",
        "import x from './y'; const z = require('q'); class A {}\nexport const g = () => 1; export {a} from './b'",
        "class A, const g; imports ./y, q, ./b",
    ),
    (
        "a.tsx",
        "export interface I {} type T = string; enum E {A} abstract class C {} namespace N {} function f() { <a/> }",
        "interface I, type T, enum E, class C, namespace N, function f",
    ),
    (
        "m.go",
        'package m\nimport ("fmt"; x "os")\nimport "io"\ntype T struct {}\nfunc F() {}\nfunc (t *T) M() {}',
        "type T, func F, func M; imports fmt, os, io",
    ),
    (
        "m.rs",
        "use std::io; mod m; pub struct S{} enum E{} trait T{} impl T for S { fn a(){} } impl S {} fn f(){}",
        "mod m, struct S, enum E, trait T, impl T for S, impl S, fn f; imports std::io",
    ),
    (
        "A.java",
        "package p; import java.util.List; import static a.B.*; class A extends B { void m(){} } record R(int a) {}",
        "class A, record R; imports java.util.List, static a.B.*",
    ),
    (
        "m.h",
        '#ifndef M\n#include <stdio.h>\n#include "a.h"\nstruct S {}; typedef struct {} T; char *g() {}\n#endif\n',
        "struct S, typedef T, function g; imports stdio.h, a.h",
    ),
]


@inputs(("path", "content", "line"), CASES, ids=[path for path, _, _ in CASES])
def test_a_file_is_a_line_of_what_it_defines_and_imports(path: str, content: str, line: str) -> None:
    pytest.importorskip("tree_sitter", reason="needs the extra symbols")
    assert file_symbols(path, content) == line


@inputs("ending", GRAMMARS)
def test_every_language_has_its_grammar_and_no_text_is_an_error(ending: str) -> None:
    pytest.importorskip("tree_sitter", reason="needs the extra symbols")
    for content in ("", "}{ ((", "\ud800 \0", "const a = require(", "(" * 5_000):
        defined, imported = parsed_symbols(GRAMMARS[ending], content)
        assert (defined, imported) is not None


def test_other_files_say_nothing() -> None:
    assert file_symbols("notes.txt", "class A") == ""
    assert file_symbols("go", "class A") == ""


def test_without_the_extra_python_is_shown_and_a_note_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tree_sitter_go", None)
    with pytest.raises(MissingExtra, match=r"pip install 'flue-py\[symbols\]'"):
        parsed_symbols(GRAMMARS[".go"]._replace(function="none"), "package m")
    work = [
        user("go"), call("write", {"path": "m.py", "content": "import os\n"}), tool_result("ok"),
        call("write", {"path": "m.go", "content": "package m"}, "c2"), tool_result("ok", "c2"), assistant("done"),
        user("more"),
    ]  # fmt: skip
    monkeypatch.setitem(GRAMMARS, ".go", GRAMMARS[".go"]._replace(function="none"))  # type: ignore[arg-type]
    found = existing(material(work))
    block = symbol_graph(found)
    assert block.text == "[SYMBOL DEPENDENCY GRAPH]\nm.py: imports os"
    (note,) = block.notes
    assert note.startswith("the symbols of m.go are left out: ")
    assert "flue-py[symbols]" in note
