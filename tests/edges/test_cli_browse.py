"""The browse command where there is no terminal, no extra, no database. What it shows is in tests/tui."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from flue_py import tui
from flue_py.cli import main
from flue_py.errors import MissingExtra


def test_without_a_terminal_it_says_what_prints_the_same(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--db", str(tmp_path / "s.db"), "browse"])
    assert done.exit_code == 2
    assert "needs a terminal" in done.output
    assert "tree" in done.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", ["textual", "detect_secrets"])
def test_without_the_extra_it_names_it(missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tui, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(MissingExtra, match=r"pip install 'flue-py\[tui\]'"):
        tui.browse(str(tmp_path / "s.db"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["ui", "tui", "open"])
def test_other_names_lead_to_it(name: str) -> None:
    assert "Did you mean 'browse'?" in CliRunner().invoke(main, [name]).output
