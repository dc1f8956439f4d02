"""Running the command line in the tests: in this process, in one of its own, and on a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner, Result

import flue_py
from flue_py.cli import main
from flue_py.sessions.session import Session
from tests.formats.pi_files import SESSION_ID, as_lines, every_type, real_lines
from tests.values import existing

COMMAND = [sys.executable, "-c", "from flue_py.cli import main; main(prog_name='flue-py')"]
TERMINAL = {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
UNSET = ("NO_COLOR", "FORCE_COLOR", "PAGER")
REAL_ID = "d703a1a9-1b7b-4fb1-b512-c9738b1fe617"


def runner() -> CliRunner:
    """Return a runner that keeps stderr apart; click did so only on request before 8.2."""
    try:
        return CliRunner(mix_stderr=False)  # type: ignore[call-arg, unused-ignore]
    except TypeError:
        return CliRunner()


class Flue:
    """The command line on one database."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "sessions.db"

    def run(self, *arguments: str, code: int = 0, env: dict[str, str] | None = None) -> Result:
        """Return the result of a command, which must end with exit code ``code`` and without a traceback."""
        settings: dict[str, str | None] = {"COLUMNS": "80", "FORCE_COLOR": None, "NO_COLOR": None, "FLUE_PY_DB": None}
        result = runner().invoke(
            main, ["--db", str(self.database), *arguments], prog_name="flue-py", env={**settings, **(env or {})}
        )
        unexpected = result.exception if not isinstance(result.exception, SystemExit) else None
        assert unexpected is None, unexpected
        assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
        assert "Traceback" not in result.stdout + result.stderr
        return result

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Return what a command prints with --json."""
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def lines(self, *arguments: str) -> list[str]:
        """Return the lines a command prints for people."""
        return self.run(*arguments).stdout.splitlines()

    def import_every_type(self, *options: str) -> str:
        """Import the hand-made file with every entry type; return the session's id."""
        return self.import_rows(every_type(), options=options)

    def import_rows(
        self, rows: list[Any], name: str = "session.jsonl", code: int = 0, options: Sequence[str] = ()
    ) -> str:
        """Import rows as a file; return the session's id."""
        file = self.write(as_lines(rows), name)
        reports = self.json("import", "pi", str(file), *options, code=code)
        return str(reports[0]["sessionId"])

    def import_real(self) -> str:
        """Have the real file imported into the new database; return the session's id."""
        write_private(self.database, _real_database())
        return REAL_ID

    def write(self, lines: list[bytes], name: str = "session.jsonl") -> Path:
        """Write lines to a file beside the database."""
        file = self.folder / name
        file.write_bytes(b"".join(lines))
        return file


@cache
def _real_database() -> bytes:
    """Return a database with the real file alone, which takes longer to import than most tests run."""
    with TemporaryDirectory() as folder:
        flue = Flue(Path(folder))
        flue.run("import", "pi", str(flue.write(real_lines(), "large-session.jsonl")))
        return flue.database.read_bytes()


def write_private(file: Path, data: bytes) -> None:
    """Write a new file that is its owner's alone, as a store is."""
    file.touch(0o600, exist_ok=False)
    file.write_bytes(data)


def in_own_process(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Return the result of a command in a process of its own."""
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **env}
    )


def on_a_terminal(*arguments: str, typed: str) -> tuple[int, str]:
    """Return exit code and output of a command that runs at a terminal, at which ``typed`` is typed."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, typed.encode())
        process = subprocess.run(
            [*COMMAND, *arguments],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    return process.returncode, process.stdout


def seen_at_a_terminal(*arguments: str, before: str = "", cwd: Path | None = None, **env: str) -> tuple[int, str]:
    """Return exit code and output of a command run from a terminal of 24 lines of 80 columns.

    ``before`` is Python that its process runs first.
    """
    ours, theirs = pty.openpty()
    surroundings = {key: value for key, value in os.environ.items() if key not in UNSET}
    try:
        with subprocess.Popen(
            [*COMMAND[:2], f"{before}\n{COMMAND[2]}", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**surroundings, **TERMINAL, **env},
            cwd=cwd,
        ) as process:
            os.close(theirs)
            shown = _shown(ours)
            code = process.wait(60)
    finally:
        os.close(ours)
    return code, shown


def _shown(terminal: int) -> str:
    """Return what is written to a terminal until nobody is left to write."""
    shown = b""
    with suppress(OSError):  # as Linux ends it
        while part := os.read(terminal, 100_000):
            shown += part
    return shown.decode()


def seen_here(*arguments: str, cwd: Path, **env: str) -> tuple[int, str]:
    """Return what `seen_at_a_terminal` does, of a command, in this process."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours) as screen, pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as reader:
        # Read meanwhile: a terminal holds some 4,000 bytes.
        shown = reader.submit(_shown, screen.fileno())
        with os.fdopen(theirs, "w", encoding="utf-8") as output, os.fdopen(os.dup(theirs)) as typed:
            for name, stream in (("stdin", typed), ("stdout", output), ("stderr", output)):
                patch.setattr(sys, name, stream)
            for name in UNSET:
                patch.delenv(name, raising=False)
            for name, value in {**TERMINAL, **env}.items():
                patch.setenv(name, value)
            patch.chdir(cwd)
            with pytest.raises(SystemExit) as ended:
                main(arguments, prog_name="flue-py")
        return int(ended.value.code or 0), shown.result()


def with_a_bar_at_once(*arguments: str, **env: str) -> tuple[str, str]:
    """Return what a command prints, and what it shows at the terminal that its stderr is, where no second passes."""
    code = "import flue_py.cli.command as p; p.DELAY = 0; from flue_py.cli import main; main(prog_name='flue-py')"
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
            timeout=60,
            check=True,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100", **env},
        )
        os.write(theirs, b"\n")  # so that there is something to read
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", os.read(ours, 100_000).decode())
    finally:
        os.close(ours)
        os.close(theirs)
    return done.stdout, shown


def in_session(flue: Flue, work: Callable[[Session], Awaitable[object]], session_id: str = SESSION_ID) -> None:
    """Do something with a session of the store that the commands use."""

    async def go() -> None:
        async with flue_py.open(flue.database) as store:
            session = existing(await store.get_session(session_id))
            await work(session)

    asyncio.run(go())
