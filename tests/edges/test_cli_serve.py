"""The commands serve, mcp and browse where they cannot begin. What they show is in tests/server and tests/tui."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import flue_py
from flue_py import server, tui
from flue_py.cli import main
from flue_py.errors import MissingExtra
from flue_py.server import mcp
from tests.tables import inputs


def test_without_the_extra_or_a_database_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--db", str(tmp_path / "s.db"), "serve"])
    assert "there is no database" in done.output
    for missing in ("starlette", "uvicorn"):
        monkeypatch.setattr(server, "find_spec", lambda name, missing=missing: None if name == missing else object())
        with pytest.raises(MissingExtra, match=r"pip install 'flue-py\[server\]'"):
            server.serve(flue_py.open(tmp_path / "s.db"), "0")
    assert list(tmp_path.iterdir()) == []


# -- calls of flue-py mcp that are refused before anything is served. What it serves is in tests/server ---------------


@inputs(
    ("token", "arguments", "message"),
    [
        (None, ["--http", "0.0.0.0:80"], "other machines reach 0.0.0.0; give a token (--token-file), or use 127.0.0.1"),
        (None, ["--http", "example.org:80"], "other machines reach example.org"),
        (None, ["--http", "[::]:80"], "other machines reach ::"),
        (None, ["--http", "65536"], "'65536' is no [HOST:]PORT; write 8765"),
        (None, ["--http", "localhost"], "'localhost' is no [HOST:]PORT"),
        (None, ["--token-file", "{token}"], "--token-file is for --http"),
        (None, ["--http", "0", "--token-file", "{token}"], "No such file"),
        ("short", ["--http", "0", "--token-file", "{token}"], "has fewer than 16 characters"),
        ("", ["--http", "0", "--token-file", "{token}"], "has fewer than 16 characters"),
    ],
)
def test_a_wrong_call_is_refused(tmp_path: Path, token: str | None, arguments: list[str], message: str) -> None:
    file = tmp_path / "token"
    if token is not None:
        file.write_text(token)
    call = [word.format(token=file) for word in arguments]
    done = CliRunner().invoke(main, ["--db", str(tmp_path / "s.db"), "mcp", *call])
    assert done.exit_code != 0
    assert message in done.output
    assert not (tmp_path / "s.db").exists()


def test_without_the_extra_it_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"pip install 'flue-py\[mcp\]'"):
        mcp.make_server(lambda: pytest.fail("it was opened"))


# -- the browse command where there is no terminal, no extra, no database. What it shows is in tests/tui --------------


def test_without_a_terminal_it_says_what_prints_the_same(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--db", str(tmp_path / "s.db"), "browse"])
    assert done.exit_code == 2
    assert "needs a terminal" in done.output
    assert "tree" in done.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", ["textual", "detect_secrets"])
def test_without_its_extra_browse_names_it(missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tui, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(MissingExtra, match=r"pip install 'flue-py\[tui\]'"):
        tui.browse(str(tmp_path / "s.db"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["ui", "tui", "open"])
def test_other_names_lead_to_it(name: str) -> None:
    assert "Did you mean 'browse'?" in CliRunner().invoke(main, [name]).output
