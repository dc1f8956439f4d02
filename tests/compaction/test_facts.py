"""The rules by which facts are found in messages, each by example, and what holds for any message."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flue_py.compaction import facts
from flue_py.core.json import JsonObject
from tests.compaction.strategies import Item, assistant, call, json_values, tool_result, user
from tests.tables import inputs


def texts(kind: facts.FactKind, *messages: JsonObject) -> list[str]:
    return [fact.text for fact in facts.facts_of(messages).of(kind)]


FILES = {
    "see src/cli/main.py, please": ["src/cli/main.py"], "it fails in lib/a.rs:12:5.": ["lib/a.rs"],
    "(docs/index.md) and 'README.md'!": ["docs/index.md", "README.md"],
    "./run.sh or ../up/one.ts": ["run.sh", "../up/one.ts"],
    "~/notes/today.txt and /etc/hosts": ["~/notes/today.txt", "/etc/hosts"], r"C:\work\a.txt": [r"C:\work\a.txt"],
    "ours: src/.env and conf/app.env": ["src/.env", "conf/app.env"],
    "and/or, 1/2, e.g. this, i.e. that, 3.11, x.y.z, /compact": [], "https://example.org/a/b.py and //cdn.org/x.js": [],
    "mail me@example.com": [], "a.py a.py": ["a.py"],
}  # fmt: skip


@inputs("text", FILES)
def test_files_in_a_text(text: str) -> None:
    assert texts("file", user(text)) == FILES[text]
    assert texts("file", assistant(text)) == FILES[text]


def test_files_of_calls_and_errors() -> None:
    assert texts("file", call("read", {"path": "./Makefile"}), call("ls", {"file_path": "my docs"})) == [
        "Makefile",
        "my docs",
    ]
    assert texts("file", call("bash", {"command": "pytest tests/test_a.py"})) == ["tests/test_a.py"]
    # The content of a file names a great deal that the conversation is not about.
    assert texts("file", call("write", {"path": "a.py", "content": "open('data/b.csv')\n" * 30})) == ["a.py"]
    assert texts("file", tool_result("x/listed.py\nOSError: no file x/missing.py\nx/more.py")) == ["x/missing.py"]


IDENTIFIERS = {
    "call parse_args and MAX_SIZE of UserService, then getName": ["parse_args", "MAX_SIZE", "UserService", "getName"],
    "resolve() and `uv` but not `two words`": ["resolve", "uv"],
    "commit 3fa9b2c, id 0b8f1f5e-3c1d-4a53-9a0e-2f1f0c5a7f11": ["3fa9b2c", "0b8f1f5e-3c1d-4a53-9a0e-2f1f0c5a7f11"],
    "Plain words, README, 2024, 1234567, decade, _private, __init__": [],
    "my_module/my_file.py": [],
    "`--` x_1 `-v`": ["x_1", "-v"],
}


@inputs("text", IDENTIFIERS)
def test_identifiers_in_a_text(text: str) -> None:
    assert texts("identifier", user(text)) == IDENTIFIERS[text]


def test_instructions_are_the_users_own() -> None:
    said = (
        "Write a parser for logs. It can be slow.\n- You MUST not use regex\n2. don’t touch the tests!\nThanks a lot."
    )
    assert texts("instruction", user(said)) == [
        "Write a parser for logs.",
        "You MUST not use regex",
        "don’t touch the tests!",
    ]
    assert texts("instruction", user("<system-reminder>\nYou must obey.\n</system-reminder>")) == []
    assert texts("instruction", {**user("You must obey this."), "isMeta": True}) == []
    assert texts("instruction", assistant("You must never do that."), tool_result("You must write X.")) == []
    assert texts("instruction", user("go on")) == []
    assert texts("instruction", user("Keep the line\nthat goes on here.")) == ["Keep the line that goes on here."]
    assert texts("instruction", user("Look:\n```\nyou must not see this\n```\nonly this one")) == ["only this one"]


def test_questions() -> None:
    assert texts("question", user("Fix it now. Why does it fail?\nAnd **when?**")) == [
        "Why does it fail?",
        "And **when?**",
    ]
    assert texts("question", assistant("Shall I go on?")) == ["Shall I go on?"]
    asked_itself = call("read", {"path": "a"})
    assert isinstance(asked_itself["content"], list)
    asked_itself["content"] = [{"type": "text", "text": "Why is that so?"}, *asked_itself["content"]]
    assert texts("question", asked_itself) == []


def test_decisions_are_the_models() -> None:
    said = "Let me look. I decided to keep it. The root cause is a lock."
    assert texts("decision", assistant(said)) == ["I decided to keep it.", "The root cause is a lock."]
    assert texts("decision", user(said), tool_result(said)) == []


ERRORS = {
    "Traceback\n  File x\nValueError: bad\nok": ["ValueError: bad"],
    "src/a.c:3:1: error: expected ';'": ["src/a.c:3:1: error: expected ';'"],
    "error[E0308]: mismatched types": ["error[E0308]: mismatched types"],
    "fatal: not a git repository": ["fatal: not a git repository"],
    "FAILED tests/test_a.py::test_b": ["FAILED tests/test_a.py::test_b"],
    "0 errors, it FAILED\nexcept ValueError: pass\nError:\nisError: true\nerror: schema,": [],
}


@inputs("text", ERRORS)
def test_errors_in_a_result(text: str) -> None:
    assert texts("error", tool_result(text)) == ERRORS[text]


def test_a_failed_result_is_an_error_and_no_result() -> None:
    failed = {**tool_result("no such file\nsorry"), "isError": True}
    assert texts("error", failed) == ["no such file"]
    assert texts("result", failed) == ["sorry"]


def test_results_are_their_ends() -> None:
    assert texts("result", tool_result("---\nfirst line\nmiddle\nlast line\n}\n")) == ["first line", "last line"]
    assert texts("result", tool_result("only one"), tool_result("")) == ["only one"]


def test_what_is_long_is_cut_and_many_are_bounded() -> None:
    (instruction,) = texts("instruction", user("never " * 200))
    assert len(instruction) == facts.SENTENCE_CHARS
    assert instruction.endswith("…")
    (error,) = texts("error", tool_result("x" * 5000 + " Error: here " + "y" * 5000))
    assert len(error) <= facts.LINE_CHARS
    assert "Error: here" in error
    many = tool_result("\n".join(f"Error: number {n}" for n in range(100)))
    assert len(texts("error", many)) == facts.ERRORS_A_MESSAGE


def test_items_name_their_entries() -> None:
    items: Iterable[Item] = [
        Item("e1", user("Never edit a.py!")),
        Item("e2", user("I said:  never edit A.PY! a.py, b_c")),
        Item("e3", user("You must do this: never edit a.py!"), "branch_summary"),
    ]
    found = facts.facts_of(items)
    assert found.files == (facts.Fact("file", "a.py", ("e1", "e2", "e3"), 3), facts.Fact("file", "A.PY", ("e2",), 1))
    assert [(fact.text, fact.entry_ids) for fact in found.instructions] == [
        ("Never edit a.py!", ("e1",)),
        ("I said: never edit A.PY!", ("e2",)),
    ]
    assert [fact.kind for fact in found] == ["instruction", "instruction", "file", "file", "identifier"]
    assert len(found) == 5


@inputs(
    ("kind", "text", "within", "expected"),
    [
        ("file", "src/a.py", "in /repo/src/a.py.", True),
        ("file", "src/a.py", "in src/a.pyi and src/a.py/b and other_src/a.py", False),
        ("file", "src/a.py", "src/a.py.bak", False),
        ("file", "src/a.py", "src/a.py.bak src/a.py:3", True),
        ("identifier", "get_name", "get_names() my_get_name", False),
        ("identifier", "get_name", "`get_name`", True),
        ("identifier", "getName", "getname", False),
        ("instruction", "Never  use ‘x’ here.", "so: *never* use\n'x' here.", True),
        ("instruction", "Never use x.", "do not use x.", False),
        ("error", "a <b> is cut…", "An A &lt;B> is cutting", True),
    ],
)
def test_covered(kind: facts.FactKind, text: str, within: str, expected: bool) -> None:
    assert facts.covered(facts.Fact(kind, text), within) is expected


_PIECES = st.sampled_from(
    [*"?. \n`~é\\\ud83d…[", "must", "never", "- ", "```", "a.py", "src/", "x_y", "Error: ", "because", "**", "数。"]
) | st.sampled_from(["()", "’", "&lt;", "FAILED ", "e.g. ", "> ", "<context>"])
_TEXTS = st.lists(_PIECES, max_size=14).map("".join)
_MESSAGES = st.one_of(
    _TEXTS.map(user), _TEXTS.map(assistant), _TEXTS.map(tool_result), _TEXTS.map(lambda text: call("x", {"path": text}))
)


@given(st.lists(_MESSAGES, max_size=6))
def test_every_fact_is_covered_by_what_it_was_found_in(messages: list[JsonObject]) -> None:
    said = facts.text_of(messages)
    found = facts.facts_of(messages)
    assert [fact for fact in found if not facts.covered(fact, said)] == []
    assert len({(fact.kind, fact.text) for fact in found}) == len(found)
    assert all("\n" not in fact.text and fact.text.strip() for fact in found)
    assert found == facts.facts_of(messages)


@given(st.dictionaries(st.sampled_from(["role", "content", "isError", "isMeta", "x"]), json_values, max_size=5))
def test_anything_may_be_a_message(message: JsonObject) -> None:
    for role in ("user", "assistant", "toolResult"):
        facts.facts_of([{**message, "role": role}, message])


@pytest.mark.thorough
def test_long_runs_take_no_longer_than_their_length() -> None:
    for run in ("a" * 10**6, "a-" * 500_000, "a_" * 500_000, "a." * 500_000, "error[" * 200_000, "/a" * 500_000):
        for message in (user(run), assistant(run), tool_result(run)):
            assert all(len(fact.text) <= facts.SENTENCE_CHARS for fact in facts.facts_of([message]))
    assert set(facts.FACT_KINDS) == {"instruction", "question", "decision", "error", "file", "identifier", "result"}


_LONG = "- " * 300


@inputs(
    ("kind", "message", "expected"),
    [
        ("result", tool_result("-\n" * 300 + "first line\nthen\nlast line" + "\n-" * 300), ["first line", "last line"]),
        (
            "result",
            tool_result(f"{_LONG}first\nlast {_LONG}"),
            [_LONG[:199] + "…", f"last {_LONG}"[:199].rstrip() + "…"],
        ),
        ("error", tool_result("x\rValueError: a\nok\nERROR[1]: b"), ["x ValueError: a", "ERROR[1]: b"]),
        ("decision", assistant("I keep “x” becau\N{LATIN SMALL LETTER LONG S}e of y."), ["I keep “x” becauſe of y."]),
        ("decision", assistant("数数数数数数数数。 Weil because of it。"), ["Weil because of it。"]),
        ("file", user("See a.py,b/c.py;(x_y) `a b` and `c`/d/e.py"), ["a.py", "b/c.py", "/d/e.py"]),
        ("identifier", user("See a.py,b_c;(x_y) `a b` and `c`/d/e_f.py `d`"), ["b_c", "x_y"]),
    ],
)
def test_where_a_fact_begins_and_ends(kind: facts.FactKind, message: JsonObject, expected: list[str]) -> None:
    assert texts(kind, message) == expected
