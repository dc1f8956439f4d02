"""Tool calls and their results as people read them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flue_py.core.json import MAX_JSON_DEPTH
from flue_py.render.tools import (
    Command,
    Edits,
    Todo,
    Todos,
    call_line,
    fact_line,
    fact_lines,
    read_call,
    result_of,
    shown_call,
)
from tests.tables import inputs

PATCH = (
    "*** Begin Patch\n*** Update File: a.py\n@@ def f():\n one\n-two\n+three\n\n*** Delete File: b.py\n*** End Patch"
)
PATCHED = [("a.py", "@@ def f():\n one\n-two\n+three\n "), ("b.py (deleted)", "")]


def files(tool: str, arguments: Any) -> list[tuple[str, str]] | None:
    does = read_call(tool, arguments).does
    return [(edit.path, edit.lines) for edit in does.files] if isinstance(does, Edits) else None


@inputs(
    ("tool", "arguments", "expected"),
    [
        ("Edit", {"file_path": "a", "old_string": "x\ny", "new_string": "x\nz"}, [("a", " x\n-y\n+z")]),
        ("edit", {"path": "a", "oldText": "x", "newText": ""}, [("a", "-x")]),
        ("edit", {"path": "a", "edits": [{"oldText": "x", "newText": "y"}] * 2}, [("a", "@@\n-x\n+y\n@@\n-x\n+y")]),
        (
            "MultiEdit",
            {"file_path": "a", "edits": [{"old_string": "x", "new_string": "y", "replace_all": True}]},
            [("a", "@@ replace_all\n-x\n+y")],
        ),
        ("Write", {"file_path": "a", "content": "x\ny"}, [("a", "+x\n+y")]),
        ("write", {"path": "a", "content": ""}, [("a", "")]),
        ("apply_patch", PATCH, PATCHED),
        ("apply_patch", {"input": PATCH + "\n"}, PATCHED),
        ("shell", {"command": ["apply_patch", PATCH]}, PATCHED),
        ("shell", {"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}\nEOF"]}, PATCHED),
        ("exec_command", {"cmd": f"apply_patch <<EOF\n{PATCH}\nEOF\n"}, PATCHED),
        ("patch", {"patchText": PATCH}, PATCHED),
        ("edit", {"filePath": "a", "oldString": "x", "newString": "y"}, [("a", "-x\n+y")]),
        ("replace", {"file_path": "a", "instruction": "do", "old_string": "x", "new_string": "y"}, [("a", "-x\n+y")]),
        ("StrReplaceFile", {"path": "a", "edit": {"old": "x", "new": "y"}}, [("a", "@@\n-x\n+y")]),
        ("text_editor", {"command": "str_replace", "path": "a", "old_str": "x", "new_str": "y"}, [("a", "-x\n+y")]),
        ("text_editor", {"command": "write", "path": "a", "file_text": "x"}, [("a", "+x")]),
        ("create", {"path": "a", "file_text": "x"}, [("a", "+x")]),
        ("write_to_file", {"path": "a", "content": "x"}, [("a", "+x")]),
        (
            "replace_in_file",
            {
                "path": "a",
                "diff": "------- SEARCH\nx\n=======\ny\n+++++++ REPLACE\n------- SEARCH\nz\n=======\n+++++++ REPLACE",
            },
            [("a", "@@\n-x\n+y\n@@\n-z")],
        ),
        (
            "search_replace",
            {"file_path": "a", "content": "<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE"},
            [("a", "@@\n-x\n+y")],
        ),
    ],
)
def test_what_is_changed(tool: str, arguments: Any, expected: list[tuple[str, str]]) -> None:
    assert files(tool, arguments) == expected


@inputs(
    ("tool", "arguments"),
    [
        ("Edit", None), ("Edit", {"file_path": "a"}), ("Edit", {"file_path": 1, "old_string": "x", "new_string": "y"}),
        ("Edit", {"file_path": "a", "edits": "x"}),
        ("Edit", {"file_path": "a", "edits": [{"old_string": "x", "new_string": "y", "note": "kept"}]}),
        ("Write", {"file_path": "a", "content": ["x"]}), ("apply_patch", {"input": "no patch"}),
        ("apply_patch", "*** Begin Patch\nno file\n*** End Patch"),
        ("shell", {"command": ["bash", "-lc", f"rm x; apply_patch <<'EOF'\n{PATCH}\nEOF"]}),
        ("shell", {"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}\nEOF\nrm x"]}),
        ("shell", {"command": ["git", "commit", "-m", PATCH, "x"]}), ("bash", {"command": "ls"}),
        ("read", {"path": "a", "content": "x"}),
    ],
)  # fmt: skip
def test_what_is_no_edit_or_more_than_one_is_left_as_it_is(tool: str, arguments: Any) -> None:
    assert files(tool, arguments) is None


def test_other_arguments_are_kept() -> None:
    call = read_call("Edit", {"file_path": "a", "old_string": "x", "new_string": "y", "replace_all": True})
    assert call.rest == {"replace_all": True}
    assert read_call("shell", {"command": ["apply_patch", PATCH], "workdir": "/w"}).rest == {"workdir": "/w"}


@given(st.lists(st.sampled_from("abc\n"), max_size=30), st.lists(st.sampled_from("abc\n"), max_size=30))
def test_both_sides_can_be_read_from_a_diff(before: list[str], after: list[str]) -> None:
    old, new = "".join(before), "".join(after)
    ((_, lines),) = files("Edit", {"file_path": "a", "old_string": old, "new_string": new}) or []
    split = lines.split("\n") if lines else []
    assert "\n".join(line[1:] for line in split if line[0] in " -") == old
    assert "\n".join(line[1:] for line in split if line[0] in " +") == new


def test_what_is_too_long_to_compare_is_replaced_as_a_whole() -> None:
    old = "\n".join(str(number) for number in range(1000))
    ((_, lines),) = files("Edit", {"file_path": "a", "old_string": old, "new_string": old + "\nend"}) or []
    assert lines.count("\n") == 2000


@inputs(
    ("tool", "arguments", "expected"),
    [
        ("Bash", {"command": "ls", "description": "List", "timeout": 5}, Command("ls")),
        ("exec_command", {"cmd": "ls -a", "workdir": "/w"}, Command("ls -a", "/w")),
        ("shell", {"command": ["bash", "-lc", "ls | wc"], "workdir": "/w"}, Command("ls | wc", "/w")),
        ("shell", {"command": ["ls", "a b"]}, Command("ls 'a b'")),
        ("run_shell_command", {"command": "ls", "directory": "src"}, Command("ls", "src")),
        ("run_commands", {"commands": ["ls", "pwd"]}, Command("ls\npwd")),
        ("developer__shell", {"command": "ls"}, Command("ls")),
        ("execute_command", {"command": "ls", "requires_approval": False}, Command("ls")),
        ("terminal", {"command": "ls"}, Command("ls")),
        ("SlashCommand", {"command": "/review"}, None),
        ("shell", {"command": ["ls", 1]}, None),
        ("file_editor", {"command": "view", "path": "/a"}, None),
        ("write_stdin", {"session_id": 5, "chars": ""}, None),
    ],
)
def test_commands_of_a_shell(tool: str, arguments: Any, expected: Command | None) -> None:
    assert read_call(tool, arguments).does == expected


THREE = Todos([Todo("a", "done"), Todo("b", "doing"), Todo("c", "open")])


@inputs(
    ("tool", "arguments"),
    [
        (
            "TodoWrite",
            {
                "todos": [
                    {"content": text, "status": state, "activeForm": "-"}
                    for text, state in zip("abc", ("completed", "in_progress", "pending"), strict=True)
                ]
            },
        ),
        (
            "update_plan",
            {
                "explanation": "x",
                "plan": [
                    {"step": text, "status": state}
                    for text, state in zip("abc", ("completed", "in_progress", "pending"), strict=True)
                ],
            },
        ),
        (
            "write_todos",
            {
                "todos": [
                    {"description": text, "status": state}
                    for text, state in zip("abc", ("completed", "in_progress", "pending"), strict=True)
                ]
            },
        ),
        (
            "SetTodoList",
            {
                "todos": [
                    {"title": text, "status": state}
                    for text, state in zip("abc", ("done", "in_progress", "pending"), strict=True)
                ]
            },
        ),
        ("update_todo", {"todos": "- [x] a\n- [-] b\n- [ ] c\n"}),
        ("TodoWrite", {"todos": "1. [completed] a\n2. [in_progress] b\n3. [pending] c"}),
    ],
)
def test_lists_of_things_to_do(tool: str, arguments: Any) -> None:
    call = read_call(tool, arguments)
    assert call.does == THREE
    assert call_line(call) == f"{tool} 1 of 3 done: b"
    assert shown_call(call)[0].text == "[x] a\n[>] b\n[ ] c"


def test_a_state_that_is_not_known_is_the_word_of_the_program() -> None:
    call = read_call(
        "todo", {"todos": [{"content": "a", "status": "blocked"}, {"content": "b", "status": "cancelled"}]}
    )
    assert shown_call(call)[0].text == "[blocked] a\n[-] b"
    assert read_call("todo", {"todos": [{"content": "a"}]}).does is None


CODEX = "Chunk ID: 1f3c\nWall time: 0.05 seconds\nProcess exited with code 1\nOriginal token count: 1\nOutput:\nhi\n"


@inputs(
    ("tool", "text", "failed", "expected"),
    [
        ("exec_command", CODEX, False, (1, "hi\n")),
        (
            "exec_command", CODEX.replace("exited with code 1", "running with session ID 5"), False,
            (None, "Process running with session ID 5\nhi\n"),
        ),
        ("shell", "Exit code: 0\nWall time: 0 seconds\nOutput:\nhi", False, (0, "hi")),
        ("shell", '{"output":"hi","metadata":{"exit_code":3,"duration_seconds":0.1}}', False, (3, "hi")),
        ("bash", '{"command":"ls","returncode":0,"stderr":"e","stdout":"o"}', None, (0, "o\ne")),
        ("Bash", '{"output":"","exitCode":0}', None, (0, "")),
        ("Bash", "Exit code 127\nno", True, (127, "Exit code 127\nno")),
        ("Bash", "Exit code 127\nno", False, (None, "Exit code 127\nno")),
        ("bash", "no\n\nCommand exited with code 1", True, (1, "no\n\nCommand exited with code 1")),
        ("bash", "no\n\nCommand exited with code 1", False, (None, "no\n\nCommand exited with code 1")),
        ("read", "Command exited with code 1", True, (None, "Command exited with code 1")),
        ("terminal", "a\n[Command finished with exit code 2]", False, (2, "a\n[Command finished with exit code 2]")),
        ("bash", "a\n<exited with exit code 0>", False, (0, "a\n<exited with exit code 0>")),
        (
            "run_shell_command", "Output: a\nExit Code: 4\nSignal: none", False,
            (4, "Output: a\nExit Code: 4\nSignal: none"),
        ),
        ("bash", "hi", False, (None, "hi")),
        ("bash", '{"a":1}', False, (None, '{"a":1}')),
        ("read", '{"a":1}', False, (None, "a: 1")),
        ("read", '{\n"a":1}', False, (None, '{\n"a":1}')),
        ("run_commands", '[{"query":"ls","result":"a","success":true}]', False, (None, "a")),
        (
            "run_commands", '[{"query":"ls","result":"a","success":true},{"query":"x","result":"","success":false}]',
            False, (None, "ls\na\nx\n"),
        ),
    ],
)  # fmt: skip
def test_an_exit_code_is_where_a_program_states_it(tool: str, text: str, failed: bool, expected: Any) -> None:
    result = result_of({"role": "toolResult", "toolName": tool, "content": text, "isError": failed})
    assert (result.exit_code, result.text) == expected


def test_calls_are_shown_whole_and_without_json() -> None:
    call = read_call("look", {"where": "a\nb", "deep": {"x": [1, {"y": True}], "none": None}, "empty": {}})
    assert (
        shown_call(call)[0].text
        == "where:\n  a\n  b\ndeep:\n  x:\n    - 1\n    -\n      y: true\n  none: none\nempty: none"
    )
    assert [part.text for part in shown_call(read_call("Bash", {"command": "ls", "timeout": 5, "bg": False}))] == [
        "$ ls",
        "timeout: 5",
    ]
    assert shown_call(read_call("stop", {}))[0].heading == "stop"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab{", max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.text(max_size=8), json_values)
def test_any_call_and_any_result_can_be_shown(name: str, value: Any) -> None:
    call = read_call(name, value)
    assert shown_call(call)
    assert call_line(call)
    for text in _texts(value):
        assert all(line in "\n".join(part.text for part in shown_call(call)) for line in text.split("\n"))
    result_of({"toolName": name, "content": json.dumps(value)})
    fact_line(value)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [
        text
        for item in (value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
        for text in _texts(item)
    ]


def test_values_as_deep_as_they_may_be_are_shown() -> None:
    deep: Any = "end"
    for _ in range(MAX_JSON_DEPTH):
        deep = {"a": deep}
    assert "end" in "\n".join(fact_lines(deep))
    assert fact_line(deep) == "a: …"
    assert result_of({"toolName": "look", "content": '{"a":' * 900 + "1" + "}" * 900}).text


@inputs(
    ("tool", "text", "failed", "expected"),
    [
        ("bash", f"Exit code {'9' * 5000}", True, (None, ["failed"])),
        ("shell", f"Exit code: {'9' * 5000}\nWall time: 1\nOutput:\n", False, (None, [])),
        ("read_file", '{"output":"x","exit_code":0,"secret":"s"}', False, (None, [])),
        ("read_file", "Exit code: 0\nWall time: 1\nOutput:\nhi", True, (None, ["failed"])),
        ("bash", "timeout\n\nExit Code: 0\n", True, (None, ["failed"])),
        ("bash", '{"output":"x","metadata":{"exit_code":0},"timed_out":true}', True, (None, ["failed"])),
        ("bash", '{"returncode":0,"exit_code":7,"output":"x"}', False, (None, [])),
    ],
)
def test_a_code_that_is_not_clear_is_not_known(
    tool: str, text: str, failed: bool, expected: tuple[int | None, list[str]]
) -> None:
    result = result_of({"role": "toolResult", "toolName": tool, "isError": failed, "content": text})
    assert (result.exit_code, result.marks) == expected


@inputs(
    ("tool", "text"),
    [
        ("read_file", '{"output":"x","exit_code":0,"error":"LOST"}'),
        ("bash", '{"output":"x","exit_code":1,"error":"LOST"}'),
        ("bash", '{"exit_code":0,"output":{"a":"LOST"},"stdout":""}'),
        ("bash", '{"exit_code":0,"output":"","metadata":{"note":"LOST"}}'),
        ("read_files", '[{"success":true,"result":"a"},{"success":false,"result":"","error":"LOST"}]'),
        ("exec_command", "Wall time: 1\nProcess running with session ID 77 LOST\nOutput:\n"),
    ],
)
def test_no_field_of_a_result_is_left_out(tool: str, text: str) -> None:
    shown = result_of({"role": "toolResult", "toolName": tool, "content": text}).text
    assert "LOST" in shown
    assert "None" not in shown


@inputs(
    ("tool", "arguments", "words"),
    [
        ("write_file", {"path": "a", "content": "I\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\nmore"}, "+more"),
        ("write_note", {"text": "汉字" * 600}, "汉字" * 600),
        ("create_order", {"items": [{"title": "Book", "status": "sold", "price": 3}]}, "price: 3"),
        ("execute", {"command": ["psql", "-c", "drop table t"]}, "$ psql -c 'drop table t'"),
        ("bash", {"command": "ls", "timeout": 0}, "timeout: 0"),
        ("edit", {"path": "a", "edits": [{"old": "a", "new": "b", "line": 1}]}, "line: 1"),
        ("edit", {"path": "a", "edits": [{"old": "a", "new": "b"}], "edit": {"old": "c"}}, "old: c"),
    ],
)
def test_no_argument_of_a_call_is_left_out(tool: str, arguments: Any, words: str) -> None:
    assert words in "\n".join(part.text for part in shown_call(read_call(tool, arguments)))


def test_a_long_argument_is_read_in_one_pass() -> None:
    # Each of these took a second or more for every thousand lines, and grew with the square of them.
    blocks = "<<<<<<< SEARCH\n" * 20_000 + "=======\n" * 20_000
    assert files("write_file", {"path": "a", "content": blocks}) is not None
    assert files("apply_patch", {"input": "*** Begin Patch\n*** End Patch" + " " * 200_000 + "!"}) is None
    assert files("apply_patch", {"input": " " * 200_000 + "*** Begin Patch!"}) is None
