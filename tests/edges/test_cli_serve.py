"""The serve command where there is no extra, or no database. What it answers is in tests/server."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import flue_py
from flue_py import server
from flue_py.cli import main
from flue_py.errors import MissingExtra


def test_without_the_extra_or_a_database_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--db", str(tmp_path / "s.db"), "serve"])
    assert "there is no database" in done.output
    for missing in ("starlette", "uvicorn"):
        monkeypatch.setattr(server, "find_spec", lambda name, missing=missing: None if name == missing else object())
        with pytest.raises(MissingExtra, match=r"pip install 'flue-py\[server\]'"):
            server.serve(flue_py.open(tmp_path / "s.db"), "0")
    assert list(tmp_path.iterdir()) == []
