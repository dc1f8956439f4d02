"""The transcript command."""

from __future__ import annotations

from pathlib import Path

from tests.edges.cli_runs import Flue
from tests.tables import inputs


def test_a_transcript_is_printed_written_and_continued(flue: Flue, tmp_path: Path) -> None:
    session = flue.import_every_type()
    printed = flue.run("export", "markdown", session).stdout
    assert printed.startswith("# Transcript: ")
    path = tmp_path / "t.md"
    report = flue.json("export", "markdown", session, "--output", str(path))
    assert report["outcome"] == "new"
    assert path.read_text() == printed
    assert "is there already" in flue.run("export", "markdown", session, "--output", str(path), code=1).stderr
    assert "unchanged" in flue.run("export", "markdown", session, "--output", str(path), "--append").stdout
    assert "new" in flue.run("export", "markdown", session, "--output", str(path), "--overwrite").stdout
    at_first = flue.run("export", "markdown", session, "--leaf", "u0000001", "--tasks").stdout
    assert at_first.count("\n## ") == 1


@inputs(
    "options",
    [
        ["--append"],
        ["--overwrite"],
        ["--json"],
        ["--output", "x", "--tasks"],
        ["--output", "x", "--append", "--overwrite"],
    ],
)
def test_options_that_do_not_go_together_are_refused(flue: Flue, options: list[str]) -> None:
    session = flue.import_every_type()
    assert "see flue-py export --help" in flue.run("export", "markdown", session, *options, code=2).stderr
