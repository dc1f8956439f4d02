"""Tool calls that edit files, as the lines of a diff."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flue_py.render.report import edits_of
from tests.tables import inputs

PATCH = (
    "*** Begin Patch\n*** Update File: a.py\n@@ def f():\n one\n-two\n+three\n\n*** Delete File: b.py\n*** End Patch"
)
PATCHED = [("a.py", "@@ def f():\n one\n-two\n+three\n "), ("b.py (deleted)", "")]


def files(tool: str, arguments: Any) -> list[tuple[str, str]] | None:
    edits = edits_of(tool, arguments)
    return None if edits is None else [(edit.path, edit.lines) for edit in edits.files]


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
    ],
)
def test_what_is_changed(tool: str, arguments: Any, expected: list[tuple[str, str]]) -> None:
    assert files(tool, arguments) == expected


@inputs(
    ("tool", "arguments"),
    [
        ("Edit", None),
        ("Edit", {"file_path": "a"}),
        ("Edit", {"file_path": 1, "old_string": "x", "new_string": "y"}),
        ("Edit", {"file_path": "a", "edits": "x"}),
        ("Edit", {"file_path": "a", "edits": [{"old_string": "x", "new_string": "y", "note": "kept"}]}),
        ("Write", {"file_path": "a", "content": ["x"]}),
        ("apply_patch", {"input": "no patch"}),
        ("apply_patch", "*** Begin Patch\nno file\n*** End Patch"),
        ("shell", {"command": ["bash", "-lc", f"rm x; apply_patch <<'EOF'\n{PATCH}\nEOF"]}),
        ("shell", {"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}\nEOF\nrm x"]}),
        ("shell", {"command": ["git", "commit", "-m", PATCH, "x"]}),
        ("bash", {"command": "ls"}),
    ],
)
def test_what_is_no_edit_or_more_than_one_is_left_as_it_is(tool: str, arguments: Any) -> None:
    assert files(tool, arguments) is None


def test_other_arguments_are_kept() -> None:
    edits = edits_of("Edit", {"file_path": "a", "old_string": "x", "new_string": "y", "replace_all": True})
    assert edits is not None
    assert edits.rest == {"replace_all": True}
    edits = edits_of("shell", {"command": ["apply_patch", PATCH], "workdir": "/w"})
    assert edits is not None
    assert edits.rest == {"workdir": "/w"}


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
