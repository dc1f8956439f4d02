"""The command line as a whole: how light it is, how it ends, and which database it takes."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from keyword import iskeyword
from pathlib import Path

import click

import flue_py
import flue_py.cli
from flue_py.cli import MODULES, SECTIONS, main
from tests.edges.cli_runs import Flue, in_own_process, runner
from tests.tables import inputs
from tests.values import existing

HEAVY = ("aiosqlite", "alembic", "asyncio", "pydantic", "pydantic_core", "rich", "sqlalchemy", "sqlite3", "tiktoken")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from flue_py.cli import main\n"
        "try:\n"
        "    main(['--help'], prog_name='flue-py')\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0, end.code\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.strip() == "[]"
    shown = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")]
    assert set(main.list_commands(click.Context(main))) <= set(shown)


NEEDED_BY_NONE = (
    "asyncio", "aiosqlite", "alembic", "anyio", "difflib", "greenlet", "pydantic", "pydantic_core", "rich",
    "sqlalchemy", "fractions", "flue_py.core.trees", "flue_py.formats.pi", "flue_py.db.ops.transfer",
    "flue_py.db.ops.verify", "flue_py.search",
)  # fmt: skip
"""What no command that reads has to import where its output is a pipe."""


def test_a_reading_command_imports_what_it_needs_and_no_more(tmp_path: Path) -> None:
    database = str(tmp_path / "store.db")

    async def make() -> None:
        async with flue_py.open(database) as store:
            session = await store.create_session(key="one")
            await session.append_message({"role": "user", "content": "Hello"})

    asyncio.run(make())
    # In one process, those that need least first: whatever one of them imports is named behind it.
    commands = [
        ("tiktoken tempfile", "sessions"), ("tiktoken tempfile", "sessions --json"), ("tiktoken tempfile", "show one"),
        ("tiktoken tempfile", "log one"), ("tiktoken tempfile", "usage one"),
        ("tiktoken tempfile", "tree one --no-sizes"), ("tiktoken tempfile", "tree one"),
        ("tiktoken tempfile", "show one --path"), ("tiktoken tempfile", "context one"),
        ("tiktoken", "show one --history"), ("", "tree one --count"),
    ]  # fmt: skip
    code = (
        "import sys\n"
        "from flue_py.cli import main\n"
        f"for left_out, command in {commands!r}:\n"
        "    try:\n"
        f"        main(['--db', {database!r}, *command.split()], prog_name='flue-py')\n"
        "    except SystemExit as end:\n"
        "        assert end.code == 0, (command, end.code)\n"
        f"    needless = [name for name in [*{NEEDED_BY_NONE!r}, *left_out.split()] if name in sys.modules]\n"
        "    assert not needless, (command, needless)\n"
        "    print(f'-- {command}', flush=True)\n"
    )
    env = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "TTY_COMPATIBLE")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, env=env
    )
    assert (done.returncode, done.stderr) == (0, "")
    printed = re.split(r"^-- (.+)\n", done.stdout, flags=re.MULTILINE)
    assert printed[1::2] == [command for _, command in commands]
    assert all(printed[:-1:2])


def test_overview_names_every_command_in_the_words_of_its_own_help() -> None:
    overview = runner().invoke(main, ["--help"]).stdout
    context = click.Context(main)
    for name in main.list_commands(context):
        command = existing(main.get_command(context, name))
        assert f"\n  {name} " in overview
        assert command.help
        shown = runner().invoke(main, [name, "--help"])
        assert shown.exit_code == 0
        assert shown.stdout.startswith(f"Usage: main {name}")
    assert main.get_command(context, "nonsense") is None


def test_every_command_is_a_function_of_the_module_of_its_section() -> None:
    assert SECTIONS.keys() == MODULES.keys()
    homes = {name: MODULES[title] for title, section in SECTIONS.items() for name in section if name != "demo"}
    modules = {module: importlib.import_module(f"flue_py.cli.{module}") for module in set(homes.values())}
    commands = {
        name: getattr(modules[home], name.replace("-", "_") + "_" * iskeyword(name)) for name, home in homes.items()
    }
    assert [name for name, command in commands.items() if command.name != name] == []


def test_summaries_fit_a_line() -> None:
    commands = {name: summary for section in SECTIONS.values() for name, summary in section.items()}
    longest = max(len(name) for name in commands)
    assert all(2 + longest + 2 + len(summary) <= 78 for summary in commands.values())


def test_version_is_the_packages() -> None:
    assert runner().invoke(main, ["--version"]).stdout == f"flue-py, version {version('flue-py')}\n"


def test_errors_are_one_line_on_stderr_with_their_exit_codes(tmp_path: Path) -> None:
    missing = in_own_process("--db", str(tmp_path / "none.db"), "sessions")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert len(missing.stderr.splitlines()) == 1
    assert missing.stderr.startswith("Error: there is no database at ")
    wrong = in_own_process("sessions", "--no-such-option")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "Traceback" not in wrong.stderr


def test_names_from_outside_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    flue = Flue(tmp_path)
    flue.import_every_type()
    result = flue.run("show", "\x1b[31m\nforged line", code=4)
    assert len(result.stderr.splitlines()) == 1
    assert "\x1b" not in result.stderr


def test_database_comes_from_the_option_else_from_the_environment_else_from_home(tmp_path: Path) -> None:
    flue = Flue(tmp_path)
    flue.import_every_type()

    def listed(arguments: list[str], **env: str) -> int:
        result = runner().invoke(main, [*arguments, "sessions", "--json"], env={"FLUE_PY_DB": None, **env})
        return len(json.loads(result.stdout)) if result.exit_code == 0 else -1

    assert listed(["--db", str(flue.database)]) == 1
    assert listed([], FLUE_PY_DB=str(flue.database)) == 1
    assert listed(["--db", str(tmp_path / "none.db")], FLUE_PY_DB=str(flue.database)) == -1
    assert listed([], HOME=str(tmp_path)) == -1
    (tmp_path / ".flue-py").mkdir()
    flue.database.rename(tmp_path / ".flue-py" / "sessions.db")
    assert listed([], HOME=str(tmp_path)) == 1


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    flue = Flue(tmp_path)
    (tmp_path / "file").write_text("")
    flue.database = tmp_path / "file" / "sessions.db"
    result = flue.run("import", "pi", str(flue.write([b'{"type":"session","version":3,"id":"s"}\n'])), code=1)
    assert "cannot be made" in result.stderr


@inputs("encoding", ["ascii", "utf-8"])
def test_output_is_readable_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    flue = Flue(tmp_path)
    session = flue.import_every_type()
    done = in_own_process("--db", str(flue.database), "tree", session, PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() == (encoding == "ascii")
