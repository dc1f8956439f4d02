"""The configuration file, and the import before a command that reads."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flue_py.cli import main, transfer
from flue_py.transfer.source import ImportSource
from tests.edges.cli_runs import runner
from tests.formats.pi_files import HEADER, as_lines
from tests.postgres import NewDatabase
from tests.tables import inputs

if TYPE_CHECKING:
    from click.testing import Result


def said(name: str, parent: str | None) -> dict[str, Any]:
    message = {"role": "user", "content": f"word {name}", "timestamp": 1}
    row = {"type": "message", "id": name, "parentId": parent, "timestamp": "2026-01-05T10:00:00.000Z"}
    return {**row, "message": message}


class Home:
    """A home with one session of pi, and the configuration file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.session = folder / ".pi/agent/sessions/one.jsonl"
        self.config = folder / ".flue-py/config.toml"
        for file in (self.session, self.config):
            file.parent.mkdir(parents=True)
        self.session.write_bytes(b"".join(as_lines([HEADER, said("a", None)])))

    def grow(self, name: str, parent: str) -> None:
        with self.session.open("ab") as file:
            file.write(b"".join(as_lines([said(name, parent)])))

    def run(self, *arguments: str, code: int = 0, **env: str) -> Result:
        variables = {"HOME": str(self.folder), "FLUE_PY_DB": None, "FLUE_PY_CONFIG": None, "COLUMNS": "80", **env}
        result = runner().invoke(main, [*arguments], prog_name="flue-py", env=variables)
        assert result.exit_code == code, (result.exception, result.stderr)
        return result


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.run("import", "--discover")
    home.config.write_text("[import]\nbefore_reading = true\n")
    return home


def test_a_command_that_reads_first_imports_what_changed_if_that_is_wished(home: Home) -> None:
    home.grow("b", "a")
    copy = str(home.folder / "copy.db")
    home.run("backup", copy)
    assert "word b" not in home.run("--no-import", "show", "--path").stdout
    assert "word b" in home.run("show", "--path").stdout
    assert "word b" not in home.run("--db", copy, "show", "--path").stdout, "it may be of somebody else"
    assert "word b" not in home.run("show", "--path", "--db", copy).stdout
    home.grow("c", "b")
    home.config.write_text("[import]\nbefore_reading = false\n")
    assert "word c" not in home.run("show", "--path").stdout
    home.config.unlink()
    assert "word c" not in home.run("show", "--path").stdout
    named = home.folder / "other.toml"
    named.write_text("import.before_reading = true")
    shown = home.run("show", "--path", FLUE_PY_CONFIG=str(named))
    assert ("word c" in shown.stdout, "Import before reading" in shown.stderr) == (True, False)


def test_a_store_on_postgresql_imports_before_reading_what_changed_alone(
    home: Home, new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, went_on = new_database(), []
    start = ImportSource.start

    def noted(source: ImportSource) -> None:
        start(source)
        went_on.append(source.goes_on)

    monkeypatch.setattr(ImportSource, "start", noted)
    home.run("import", "--discover", FLUE_PY_DB=database)
    went_on.clear()
    home.grow("b", "a")
    assert "word b" in home.run("show", "--path", FLUE_PY_DB=database).stdout
    home.grow("c", "b")
    assert "word c" not in home.run("--no-import", "show", "--path", FLUE_PY_DB=database).stdout
    assert "word c" in home.run("show", "--path", FLUE_PY_DB=database).stdout
    assert went_on == [True, True]


def test_an_import_before_reading_ends_in_time_and_says_what_is_left(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.grow("b", "a")
    for looks, left in ((1, "not all folders looked at after 2 s"), (4, "1 changed file left after 2 s")):
        moments = count(-looks)
        monkeypatch.setattr(transfer, "monotonic", lambda: 0 if next(moments) < 0 else 3)  # noqa: B023
        shown = home.run("show", "--path")
        assert (left in shown.stderr, "word b" in shown.stdout) == (True, False), shown.stderr
    monkeypatch.undo()
    other = home.session.with_name("other.jsonl")
    other.write_bytes(b"".join(as_lines([{**HEADER, "id": "other"}, said("o", None)])))
    home.run("import", "--scope", "elsewhere", str(other))
    assert "1 file not imported" in home.run("show", "--path").stderr


@inputs(
    ("text", "fault"),
    [
        ("[import]\nbefore = true", "unknown field `before` - at `$.import`"), ("[imports]", "unknown field `imports`"),
        ("import = 1", "Expected `object`, got `int`"), ("[import]\nbefore_reading = 1", "Expected `bool`, got `int`"),
        ("[import]\nseconds = 0", ">= 0.1"), ("[import]\nseconds = inf", "<= 3600"),
        ("[import]\nseconds = nan", "seconds"), ("[import", "is not TOML"), ("a = " + "[" * 100_000, "is not TOML"),
        ("\x00", "is not TOML"), (b"\xff", "is not UTF-8"),
    ],
)  # fmt: skip
def test_a_wrong_configuration_is_an_error_that_names_it(text: str | bytes, fault: str, home: Home) -> None:
    home.config.write_bytes(text if isinstance(text, bytes) else text.encode())
    failed = home.run("sessions", code=1)
    assert fault in failed.stderr
    assert "config.toml" in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_a_configuration_that_is_named_has_to_be_there(home: Home) -> None:
    failed = home.run("sessions", code=1, FLUE_PY_CONFIG="none.toml")
    assert "FLUE_PY_CONFIG: none.toml: No such file" in failed.stderr
