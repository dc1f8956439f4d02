"""Running many commands at a terminal, each in a fork of one process: ``python -m tests.edges.terminal_runs JOBS``.

JOBS is a JSON file of command lines. The output of each is printed as one JSON string per line.
"""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import sys
import termios
import traceback
from pathlib import Path

import click
from click.testing import CliRunner

import flue_py.cli
import flue_py.cli.command

PATIENCE = 120
CONTEXT = click.Context(flue_py.cli.main)


def main(jobs: Path) -> None:
    told = json.loads(jobs.read_text(encoding="utf-8"))
    database, folder = Path(told["database"]), Path(told["folder"])
    for name in flue_py.cli.main.list_commands(CONTEXT):
        flue_py.cli.main.get_command(CONTEXT, name)
    flue_py.cli.command.DELAY = 10**6
    pristine = database.read_bytes()
    load_what_is_late(database)
    for arguments in told["calls"]:
        for path in [*folder.glob("new-*"), *folder.glob(f"{database.name}-*")]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        database.write_bytes(pristine)
        print(json.dumps(shown_by(["--db", str(database), *arguments])), flush=True)


def load_what_is_late(database: Path) -> None:
    """Run commands that import what most of the others do, so that not each fork has to."""
    for arguments in (
        ["sessions"], ["verify"], ["context", "h1"], ["export", "pi", "h1"], ["export", "html", "h1", "--output", "-"],
    ):  # fmt: skip
        CliRunner().invoke(flue_py.cli.main, ["--db", str(database), *arguments])


def shown_by(arguments: list[str]) -> str:
    child, terminal = pty.fork()
    if child == 0:
        run(arguments)
    quieten(terminal)
    os.write(terminal, b"y\n" * 3)
    shown = b""
    try:
        while select.select([terminal], [], [], PATIENCE)[0] and (part := os.read(terminal, 100_000)):
            shown += part
    except OSError:  # Linux says so when nobody is left to write
        pass
    os.close(terminal)
    os.waitpid(child, 0)
    return shown.decode(errors="surrogateescape")


def quieten(terminal: int) -> None:
    """Have a terminal show what is written to it as it is, and not what is typed."""
    settings = termios.tcgetattr(terminal)
    settings[1] &= ~termios.OPOST
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, settings)


def run(arguments: list[str]) -> None:
    """Run a command in this process, whose standard streams are a terminal that changes nothing, and end it."""
    code = 99
    try:
        quieten(0)
        flue_py.cli.main(arguments, prog_name="flue-py")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - it is shown, and the process ends
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
