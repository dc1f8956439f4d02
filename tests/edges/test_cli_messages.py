"""Suggestions for mistyped commands, and the wording of the library's errors on the command line."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import flue_py
import flue_py.errors
from flue_py.cli import main
from flue_py.cli.main import in_commands
from tests.edges.cli_runs import Flue, runner
from tests.tables import inputs

PACKAGE = Path(flue_py.errors.__file__).parent


@inputs(
    ("typed", "meant"),
    [
        ("ls", "sessions"), ("list", "sessions"), ("delete", "rm"), ("logs", "log"), ("session", "show"),
        ("sesions", "sessions"), ("EXPORT", "export"),
    ],
)  # fmt: skip
def test_a_command_that_is_not_there_brings_the_one_that_may_be_meant(flue: Flue, typed: str, meant: str) -> None:
    said = flue.run(typed, "x", code=2).stderr
    if typed == "EXPORT":
        assert said == "Error: No such command 'EXPORT'; see flue-py --help\n"
    else:
        assert said == f"Error: No such command {typed!r}. Did you mean {meant!r}?; see flue-py --help\n"


def test_every_suggestion_is_a_command() -> None:
    assert {call.split()[0] for call in main.synonyms.values()} <= set(main.list_commands(None))  # type: ignore[arg-type]
    assert not set(main.synonyms) & set(main.list_commands(None))  # type: ignore[arg-type]


def test_budget_alone_is_its_help_and_knows_what_is_meant(flue: Flue) -> None:
    alone = runner().invoke(main, ["budget"], prog_name="flue-py")
    bare = runner().invoke(main, [], prog_name="flue-py")
    assert alone.exit_code == bare.exit_code
    assert (alone.stdout + alone.stderr).startswith("Usage: flue-py budget [OPTIONS] COMMAND")
    assert "Did you mean 'rm'?" in flue.run("budget", "delete", code=2).stderr


def test_the_database_may_be_named_after_the_command(flue: Flue, tmp_path: Path) -> None:
    session = flue.import_every_type()
    named = ["--db", str(flue.database)]

    def shown(*arguments: str) -> str:
        result = runner().invoke(main, ["--db", str(tmp_path / "none.db"), *arguments], prog_name="flue-py")
        assert result.exit_code == 0, result.stderr
        return str(result.stdout)

    assert session in shown("sessions", "--json", *named)
    assert shown("tree", *named, session) == flue.run("tree", session).stdout
    assert shown("budget", "list", "--json", *named) == "[]\n"
    assert shown("budget", *named, "list", "--json") == "[]\n"
    assert "--db" not in runner().invoke(main, ["tree", "--help"]).stdout


def test_what_cannot_be_imported_is_said(flue: Flue, tmp_path: Path) -> None:
    said = flue.run("import", "nofile", code=2).stderr
    assert said.startswith("Error: 'nofile' is neither a file or folder that is there, nor a format: auto, pi, ")
    (tmp_path / "empty").mkdir()
    for arguments in (["auto"], ["pi"], []):
        result = flue.run("import", *arguments, str(tmp_path / "empty"))
        assert result.stdout == f"no session files were found in {tmp_path / 'empty'}\n"


def test_export_says_where_the_format_belongs(flue: Flue) -> None:
    session = flue.import_every_type()
    assert flue.run("export", "pi", session).stdout
    assert "FORMAT comes before SESSION" in flue.run("export", session, "pi", code=2).stderr


def test_undo_takes_a_whole_turn_back(flue: Flue) -> None:
    with flue_py.sync.open(flue.database) as store:
        session = store.create_session(key="talk")
        session.append_message({"role": "system", "content": "be short"})
        leaves = [session.leaf_id]
        for turn in range(2):
            session.append_message({"role": "user", "content": f"question {turn}"})
            session.append_message({"role": "assistant", "content": "part"})
            session.append_message({"role": "assistant", "content": "answer"})
            leaves.append(session.leaf_id)
        start, first, second = leaves
    assert flue.json("undo", "talk", "--turn")["leafId"] == first
    assert flue.json("undo", "talk", "--turn")["leafId"] == start
    assert flue.json("undo", "talk", "--turn")["moved"] is False
    assert flue.json("undo", "talk")["leafId"] == first
    assert flue.json("undo", "talk")["leafId"] == second


def test_a_home_is_put_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    async def opened(target: str | Path) -> str:
        async with flue_py.open(target) as store:
            return (await store.info()).location

    assert asyncio.run(opened("~/here.db")) == str(tmp_path / "here.db")
    assert asyncio.run(opened(Path("~/here.db"))) == str(tmp_path / "here.db")
    with pytest.raises(flue_py.InvalidArgument, match="no such home directory"):
        asyncio.run(opened("~nobody-of-that-name/x.db"))


def test_nobodys_home_is_the_same_error_wherever_a_path_is_given(flue: Flue) -> None:
    flue.import_every_type()
    place = "~nobody-of-that-name/x"
    with pytest.raises(flue_py.InvalidArgument, match="no such home directory"):
        flue_py.PriceBook(file=place)
    for command in (["sessions", "--project", place], ["usage", "--project", place], ["--db", place, "sessions"]):
        assert "no such home directory" in flue.run(*command, code=1).stderr


def test_a_name_that_begins_like_a_home_is_reached_by_its_path_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = runner().invoke(main, ["--db", "./~nobody-of-that-name.db", "migrate"], prog_name="flue-py")
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "~nobody-of-that-name.db").is_file()


# -- errors of the library --------------------------------------------------------------------------------------------


def test_errors_name_commands(flue: Flue) -> None:
    session = flue.import_every_type()
    shown = flue.run("budget", "show", "nothing", code=4).stderr
    assert "flue-py budget list" in shown
    assert "()" not in shown
    again = flue.run("fork", session, "--key", "k") and flue.run("fork", session, "--key", "k", code=6)
    assert "mode=" not in again.stderr
    assert in_commands("run verify() to find it") == "run flue-py verify to find it"
