"""The report command."""

from __future__ import annotations

import json
import stat
import webbrowser
from pathlib import Path

import pytest

from tests.edges.cli_runs import Flue
from tests.formats.pi_files import SESSION_ID


@pytest.fixture
def flue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flue:
    monkeypatch.chdir(tmp_path)
    made = Flue(tmp_path)
    made.import_every_type()
    return made


def test_a_report_is_written_for_its_owner_alone_under_the_sessions_id(flue: Flue) -> None:
    printed = flue.run("export", "html", SESSION_ID[:4]).stdout
    file = flue.folder / f"report-{SESSION_ID[:8]}.html"
    assert printed == f"{file.name}: {file.stat().st_size:,} bytes\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text().startswith("<!doctype html>")


def test_all_sessions_are_a_folder_of_pages(flue: Flue) -> None:
    flue.json("new", "--title", "Another", "--key", "../odd")
    told = flue.json("report", "--all", "--no-time")
    folder = flue.folder / "report"
    assert (told["sessions"], told["file"]) == (2, "report/index.html")
    files = sorted(folder.iterdir())
    assert told["bytes"] == sum(file.stat().st_size for file in files)
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 3
    assert (folder / f"session-{SESSION_ID}.html").read_text().startswith("<!doctype html>")
    before = {file: file.read_bytes() for file in files}
    assert "is there already" in flue.run("report", "--all", code=1).stderr
    flue.run("report", "--all", "--no-time", "--overwrite")
    assert {file: file.read_bytes() for file in files} == before, "the same sessions give the same bytes"
    chosen = flue.json("report", "--all", "--program", "pi", "--output", "pi", "--tz", "Asia/Tokyo")
    assert chosen["sessions"] == 1
    alone = flue.json("report", SESSION_ID, "--output", "one.html", "--no-time")
    flue.run("export", "html", SESSION_ID, "--no-sizes", "--no-time", "--output", "same.html")
    assert (flue.folder / alone["file"]).read_bytes() == (flue.folder / "same.html").read_bytes()
    assert "name a SESSION, or give --all" in flue.run("report", code=2).stderr


def test_a_report_goes_to_standard_output_byte_for_byte(flue: Flue) -> None:
    arguments = ("export", "html", SESSION_ID, "--no-time", "--warn-at", "7", "--no-sizes")
    printed = flue.run(*arguments, "--output", "-").stdout
    flue.run(*arguments, "--output", "mine.html")
    assert printed.encode() == (flue.folder / "mine.html").read_bytes()
    assert '"warnAt":7' in printed
    assert '"made":null' in printed


def test_a_file_that_is_there_is_only_replaced_on_request(flue: Flue) -> None:
    file = flue.write([b"mine"], "mine.html")
    error = flue.run("export", "html", SESSION_ID, "--output", "mine.html", code=1).stderr
    assert "mine.html is there already" in error
    assert file.read_bytes() == b"mine"
    flue.run("export", "html", SESSION_ID, "--output", "mine.html", "--overwrite")
    assert file.read_bytes() != b"mine"
    error = flue.run("export", "html", SESSION_ID, "--output", "no/such/folder.html", code=1).stderr
    assert "no/such/folder.html" in error
    assert len(error.splitlines()) == 1


def test_a_report_is_opened_in_the_browser_on_request(flue: Flue, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    flue.run("export", "html", SESSION_ID, "--open")
    assert opened == [(flue.folder / f"report-{SESSION_ID[:8]}.html").as_uri()]
    printed = flue.run("export", "html", SESSION_ID, "--open", "--output", "-", code=2)
    assert "--open and --json go with --output FILE" in printed.stderr
    assert "--open is for html, not for pi" in flue.run("export", "pi", SESSION_ID, "--open", code=2).stderr


def test_snapshots_are_json_lines(flue: Flue) -> None:
    flue.run("move", SESSION_ID, "h0000001")
    printed = flue.run("export", "snapshots", SESSION_ID, "--cutover-at", "9").stdout
    rows = [json.loads(line) for line in printed.splitlines()]
    assert [row["agent"] for row in rows] == ["INI parser session", "system"]
    assert {row["session"] for row in rows} == {SESSION_ID}
    assert {row["cutover_at"] for row in rows} == {9}
    flue.run("export", "snapshots", SESSION_ID, "--output", "chart.jsonl", "--cutover-at", "9")
    assert (flue.folder / "chart.jsonl").read_text() == printed
