"""Calls of flue-py mcp that are refused before anything is served. What it serves is in tests/server."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from flue_py.cli import main
from flue_py.errors import MissingExtra
from flue_py.server import mcp
from tests.tables import inputs


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
