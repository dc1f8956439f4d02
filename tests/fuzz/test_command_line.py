"""The command line with what nobody should type, on a database with what nobody should store."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

import flue_py
from flue_py.cli import main
from flue_py.core.entries import NewEntry
from tests.earlier import names_unchecked
from tests.edges.cli_runs import Flue, runner
from tests.effort import first
from tests.formats.pi_files import HEADER, as_lines, every_type
from tests.fuzz.hostile import note_refusal
from tests.tables import inputs
from tests.values import existing

if TYPE_CHECKING:
    from click.testing import Result

ODD = [
    "", "\udcff", "\x1b[31m", "-1", "9" * 5_000, "\u202e", "%s", "../..", "'\"", "--", "x" * 100_000, "\n", "💥", "h",
    "0",
]  # fmt: skip
READING = (("show",), ("tree",), ("show", "--path"), ("context",), ("usage",))
DATA: list[Any] = [
    None, 5, "a\0\x1b[2J\ud800", [1, [2]], {"content": 5}, {"content": [5, {"type": "x"}, {"type": "text"}]},
    {"provider": [1], "modelId": {}, "thinkingLevel": 7, "label": [], "targetId": {}},
    {"content": [{"type": "text", "text": "x\u202e"}]}, 10**3000,
]  # fmt: skip
KINDS = (
    "custom_message", "model_change", "label", "thinking_level_change", "session_info", "exclusion",
    "empty_branch_summary",
)  # fmt: skip


def _messages() -> list[Any]:
    deep: list[Any] = []
    for _ in range(190):
        deep = [deep]
    call = {"type": "toolCall", "id": "a", "name": "b"}
    return [
        {"role": "user", "content": []},
        {"role": "assistant", "content": [{**call, "arguments": deep}]},
        {"role": "assistant", "content": [{**call, "arguments": {"\n": 10**3000}}], "usage": {"input": 2**61}},
        {"role": "bashExecution", "command": [1], "content": None, "exitCode": {}},
        {"role": "toolResult", "toolCallId": "", "content": [{"type": "image"}, {"type": "zz"}], "toolName": "\x1b"},
        {"role": "odd", "content": "\u202e"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": ""}], "errorMessage": "e"},
        {"role": "user", "content": "日本🚨e\u0301" * 50},
        {"role": "assistant", "content": "x", "model": "x\n", "provider": "y" * 2_000, "usage": {}},
    ]


async def _fill(database: Path) -> list[str]:
    """Make a session with every oddity; return its entries."""
    async with flue_py.open(str(database), durability="normal") as store:
        session = await store.create_session(key="hostile\x1b[31m", title="t\n\x07\u202e", id="h1", scope="x")
        for number, (kind, data) in enumerate((kind, data) for kind in KINDS for data in DATA):
            # As an import brings them in: an exclusion that is none can be stored in no other way.
            brought = replace(NewEntry.custom(kind, data), id=f"x{number}", parent_id=session.leaf_id)
            await session.import_entries([brought], leaf=brought.id)
        await session.append_messages(_messages())
        first = existing(session.leaf_id)
        await session.marks.set_label(first, "l\x1b[0m\n\u202e")
        await session.append_branch_summary("", from_id="\ud800", details=None)
        await session.append_compaction("\x1b", first_kept_entry_id=first, tokens_before=2**80)
        await session.append_message({"role": "user", "content": "x"})
        await session.set_completed(datetime.max.replace(tzinfo=UTC))
        await session.tasks.create(task_id="\x1b[1m\n", title="\n")
        await store.link_task(session, "missing\u202e", task_id="q")
        return [entry.id for entry in await session.get_tree()]


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the errors of ours that commands tell in their one line."""
    show = click.ClickException.show

    def note(self: click.ClickException, file: IO[Any] | None = None) -> None:
        if isinstance(self.__cause__, flue_py.FlueError):
            note_refusal(self.__cause__)
        show(self, file)

    monkeypatch.setattr(click.ClickException, "show", note)


class Hostile:
    """A command line on the odd database, and the entries of the odd session."""

    def __init__(self, folder: Path) -> None:
        self.flue = Flue(folder)
        self.real = self.flue.import_every_type()
        with names_unchecked():
            self.entries = asyncio.run(_fill(self.flue.database))

    def run(self, *arguments: str, database: str | None = None) -> Result:
        """Run a command, which works, or says in one line why it does not."""
        result = runner().invoke(main, ["--db", database or str(self.flue.database), *arguments])
        unexpected = result.exception if not isinstance(result.exception, SystemExit) else None
        assert unexpected is None, ([part[:80] for part in arguments], repr(unexpected))
        if result.exit_code:
            errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
            assert len(errors) == 1, (arguments, result.stderr)
        if "--json" not in arguments and result.exit_code == 0:
            assert not any(char in result.output for char in "\x1b\x07\u202e\0"), arguments
        return result


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    folder = tmp_path_factory.mktemp("hostile")
    before = Path.cwd()
    os.chdir(folder)
    yield Hostile(folder)
    os.chdir(before)


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_everything_that_can_be_stored_can_be_shown(hostile: Hostile, command: tuple[str, ...]) -> None:
    for session in ("h1", hostile.real):
        assert hostile.run(*command, session).exit_code == 0
        json.loads(hostile.run(*command, session, "--json").stdout)
    if command == ("context",):
        for last in ("1", "5", "9" * 40):
            assert hostile.run(*command, "h1", "--last", last).exit_code == 0
            assert hostile.run(*command, "h1", "--last", last, "--json").exit_code == 0


def test_every_odd_entry_can_be_shown(hostile: Hostile) -> None:
    for number, entry in enumerate(hostile.entries):
        assert hostile.run("show", "h1", entry).exit_code == 0
        if number % 10 == 0:
            json.loads(hostile.run("show", "h1", entry, "--json").stdout)
            assert hostile.run("context", "h1", "--leaf", entry).exit_code == 0


def test_lists_and_reports_of_an_odd_database_leave_the_terminal_alone(hostile: Hostile) -> None:
    for arguments in (["sessions"], ["info"], ["verify"], ["rm", "h1", "--dry-run"], ["tree", "h1", "--all"]):
        assert hostile.run(*arguments).exit_code == 0
        hostile.run(*arguments, "--json")


def test_a_report_of_anything_goes_to_any_file_or_is_one_error(hostile: Hostile) -> None:
    for session in ("h1", hostile.real):
        page = runner().invoke(main, ["--db", str(hostile.flue.database), "export", "html", session, "--output", "-"])
        assert page.exit_code == 0
        assert page.stdout.startswith("<!doctype html>")
    for odd in ODD:
        hostile.run("export", "html", "h1", "--no-sizes", "--output", odd)
        hostile.run("export", "snapshots", odd)
        hostile.run("report", "h1", "--warn-at", odd)


def is_folder(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):
        return False


@pytest.mark.parametrize("number", first(5, range(len(ODD))))
def test_an_odd_argument_anywhere_is_one_error_or_none(hostile: Hostile, number: int) -> None:
    odd, entry = ODD[number], hostile.entries[0]
    for command in ("tree", "path", "usage", "undo", "redo", "fork"):
        hostile.run(command, odd)
    for arguments in (
        ["show", "h1", odd], ["move", "h1", odd], ["move", odd], ["path", "h1", "--leaf", odd],
        ["rm", "--", odd + "zz"],
        ["usage", "h1", "--since", odd], ["rewind", "h1", "--to", odd], ["rewind", "h1", "--turns", odd],
        ["fork", "h1", "--at", odd], ["fork", "h1", "--key", odd, "--json"], ["fork", "h1", "--title", odd],
        ["label", "h1", entry, odd], ["label", "h1", odd, "x"], ["sessions", "--scope", odd],
        ["sessions", "--kind", odd],
        ["sessions", "--limit", odd], ["path", "h1", "--last", odd],
        ["copy", odd, "target.db"], ["migrate", "--sql", "--from", odd], [odd],
    ):  # fmt: skip
        hostile.run(*arguments)
    if not is_folder(odd):  # of a folder everything in it is imported, with an error for each file that is none
        hostile.run("import", "pi", odd)
        hostile.run("import", odd, odd)
    hostile.run("sessions", database=odd or " ")
    assert hostile.run("verify").exit_code == 0


DATABASES = (
    "~nobody-of-that-name/x.db", "/dev/null", "/", "postgresql+asyncpg://", "postgresql://x", "sqlite+aiosqlite://",
    "sqlite+aiosqlite:///nope/x.db", "nothing://", "postgresql+asyncpg://h:zz/d", "postgresql+asyncpg://u@127.0.0.1:99999/d",
)  # fmt: skip


@inputs("database", DATABASES)
def test_a_database_that_cannot_be_is_one_error(hostile: Hostile, database: str) -> None:
    for arguments in (["sessions"], ["migrate"], ["demo", "--db", database], ["copy", database, "q.db"]):
        assert hostile.run(*arguments, database=database).exit_code != 0
    assert hostile.run("copy", str(hostile.flue.database), database).exit_code != 0


@inputs("name", [b"\xff\xfe.jsonl", b"a\x1b[31m.jsonl", "é\u202e.jsonl".encode()])
def test_a_file_with_an_odd_name_is_imported_and_reported(hostile: Hostile, tmp_path: Path, name: bytes) -> None:
    file = os.fsencode(tmp_path) + b"/" + name
    with open(file, "wb") as written:
        written.writelines(
            line.replace(HEADER["id"].encode(), b"odd-" + name.hex().encode()) for line in as_lines(every_type())
        )
    (report,) = json.loads(hostile.run("import", "pi", os.fsdecode(file), "--json").stdout)
    assert report["file"] == os.fsdecode(file)
    assert hostile.run("import", "pi", os.fsdecode(file)).exit_code == 0
    assert hostile.run("show", report["sessionId"]).exit_code == 0


@inputs(
    "data",
    [b"", b"\0" * 100, b"\xff\xfe{\0}\0", b"[" * 100_000, b'{"type":"session","id":"' + b"x" * 2_000 + b'"}', b"\n\n"],
)
def test_a_file_that_is_no_session_is_one_error(hostile: Hostile, tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "odd.jsonl"
    file.write_bytes(data)
    result = hostile.run("import", "pi", str(file))
    assert result.exit_code == 1
    assert "nothing was imported" in result.stderr


words = st.sampled_from(
    ["show", "tree", "context", "usage", "--path", "sessions", "fork", "move",
     "rewind", "undo", "redo", "label", "rm", "verify", "info", "import", "pi",
     "h1", "--json", "--leaf", "--last", "--turns", "--since", "--all", "--dry-run", "--at", "--help", "1", "-1", ""]
)  # fmt: skip


@given(st.lists(words | st.text(st.characters(exclude_characters="\0"), max_size=4), max_size=6))
@example(["sessions"])
def test_any_words_are_a_command_or_one_error(arguments: list[str]) -> None:
    result = runner().invoke(main, ["--db", "/nowhere/at/all.db", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code in (0, 1, 2)
