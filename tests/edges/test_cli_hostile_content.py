"""Every command at a terminal, on a database in which every text is hostile: no text acts on the terminal."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import click
import pytest

import flue_py.cli
from flue_py.render.lines import json_printable, printable
from tests.edges.cli_runs import runner
from tests.edges.every_command import CALLS, HOSTILE, every_command, has_option, make_hostile

STYLE = re.compile(r"\x1b\[[0-9;]*m")
ROOT = Path(__file__).parent.parent.parent


def acting(text: str) -> set[str]:
    """Return the characters that a terminal would act on, but for line ends and tabs."""
    return {char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - {"\n", "\t"}


@pytest.mark.thorough
def test_no_command_lets_what_is_stored_write_to_a_terminal(tmp_path: Path) -> None:
    store = make_hostile(tmp_path / "store")
    calls = []
    for name, command in every_command():
        for arguments in CALLS[name]:
            calls.append(store.call(name, arguments))
            if has_option(command, "--json") and "--sql" not in arguments:
                calls.append([*calls[-1], "--json"])
        needed = [param for param in command.params if isinstance(param, click.Argument) and param.required]
        if needed:
            calls.append([*name.split(), *[HOSTILE] * len(needed)])
    jobs = tmp_path / "jobs.json"
    told = {"database": str(store.database), "folder": str(store.folder), "calls": calls}
    jobs.write_text(json.dumps(told), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "tests.edges.terminal_runs", str(jobs)],
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
        cwd=tmp_path,
        env={
            **{name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")},
            "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "TERM": "xterm", "PAGER": "cat", "COLUMNS": "80",
            "LINES": "24",
        },
    )  # fmt: skip
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(shown) == len(calls)
    wrong = [
        (arguments, text)
        for arguments, text in zip(calls, shown, strict=True)
        if not text or "Traceback" in text or "\x1b[5;41m" in text or acting(STYLE.sub("", text))
    ]
    assert not wrong, (len(wrong), wrong[:5])
    assert any("\x1b[1m" in text for text in shown)  # it was a terminal


@pytest.mark.parametrize(
    "arguments",
    [
        ["export", "pi", "h1"],
        ["export", "json", "h1"],
        ["show", "h1", "--json"],
        ["export", "markdown", "h1"],
        ["export", "markdown", "h1", "--words-only"],
    ],
)
def test_a_pipe_gets_the_exact_text(tmp_path: Path, arguments: list[str]) -> None:
    store = make_hostile(tmp_path)
    done = runner().invoke(flue_py.cli.main, ["--db", str(store.database), *arguments])
    assert done.exit_code == 0
    assert "\u202e" in done.stdout
    assert "\x9b" in done.stdout


def test_json_at_a_terminal_is_the_same_value() -> None:
    value = {HOSTILE: [HOSTILE, "\U000e0001", "日本"]}
    text = json.dumps(value, ensure_ascii=False, indent=2)
    assert acting(json_printable(text)) == set()
    assert json.loads(json_printable(text)) == value
    assert "\\u009b" in json_printable(text)
    assert "日本" in json_printable(text)
    assert acting(printable(HOSTILE)) == set()


def test_only_one_module_prints() -> None:
    folder = Path(inspect.getfile(flue_py.cli)).parent
    found = []
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if name in ("print", "click.echo", "click.secho", "click.confirm", "click.prompt", "click.echo_via_pager"):
                found.append((path.name, name))
            if name.endswith((".write", "Console")) and ("std" in name or "Console" in name):
                found.append((path.name, name))
    assert {name for name, _ in found} <= {"command.py"}, found
