"""A key on the command line: from files, and never printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import flue_py.sync as flue_py_sync
from flue_py.cli import main
from flue_py.core.chain import read_head
from flue_py.formats.registry import export_names
from tests.edges.cli_runs import Flue, runner

if TYPE_CHECKING:
    from click.testing import Result

KEYS = {"a.key": "a" * 32 + "\n", "b.key": "b" * 32 + "\r\n"}


def test_commands_take_keys_from_files(tmp_path: Path) -> None:
    for name, text in KEYS.items():
        (tmp_path / name).write_bytes(text.encode())
    a, b, database = (str(tmp_path / name) for name in ("a.key", "b.key", "s.db"))
    told = []

    def flue_py(*args: str, code: int = 0, variable: str | None = None) -> Result:
        result = runner().invoke(main, ["--db", database, *args], env={"FLUE_PY_KEY_FILE": variable})
        assert result.exit_code == code, result.output + result.stderr
        told.append(result.output + result.stderr)
        return result

    session = flue_py("--key-file", a, "new").stdout.strip()
    flue_py("append", session, "hello", variable=a)
    assert "needs the key with the fingerprint" in flue_py("sessions", code=1).stderr
    assert "was opened with another" in flue_py("--key-file", b, "sessions", code=1).stderr
    assert "No such file" in flue_py("--key-file", f"{b}.gone", "sessions", code=1).stderr
    lines = flue_py("--unchecked", "show", session, "--path")
    assert lines.stderr.startswith("unchecked: ")
    info = json.loads(flue_py("--unchecked", "info", "--json").stdout)
    assert info["unchecked"] is True
    assert json.loads(flue_py("--unchecked", "sessions", "--json").stdout)["rows"][0]["id"] == session
    assert "for reading only" in flue_py("--unchecked", "append", session, "more", code=1).stderr
    for form, note in (("html", '"unchecked":true'), ("markdown", "**Unchecked:** read without the key")):
        written = str(tmp_path / form)
        flue_py("--unchecked", "export", form, session, "--output", written)
        assert note in Path(written).read_text(encoding="utf-8"), form
    for form in (*export_names(), "json", "snapshots"):
        printed = flue_py("--unchecked", "export", form, session, "--output", "-").stdout
        assert '"unchecked":true' in printed.splitlines()[0] + printed[:40].replace(" ", ""), form
        assert flue_py("export", form, session, "--output", "-", variable=a).stdout.count("unchecked") == 0, form
    for command in (("head",), ("events",)):
        printed = flue_py("--unchecked", *command).stdout
        assert json.loads(printed.splitlines()[0])["unchecked"] is True, command
    flue_py("--unchecked", "export", "markdown", session, "--words-only", "--output", str(tmp_path / "words"))
    assert "**Unchecked:** read without the key" in (tmp_path / "words").read_text(encoding="utf-8")
    flue_py("--unchecked", "bundle", str(tmp_path / "b.flue"))
    flue_py("--unchecked", "copy", database, str(tmp_path / "copied.db"))
    for name in ("b.flue", "copied.db"):
        with flue_py_sync.open(tmp_path / name) as store:
            assert store.get_session(session).metadata == {"unchecked": True}, name
    flue_py("--unchecked", "report", "--all", "--output", str(tmp_path / "report"))
    assert '"unchecked":true' in (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    rekeyed = json.loads(flue_py("--key-file", a, "rekey", "--new-key-file", b, "--json").stdout)
    assert (rekeyed["before"], rekeyed["trees"], rekeyed["entries"]) == (info["key"], 1, 1)
    flue_py("verify", variable=f"{a}:{b}")
    target = str(tmp_path / "copy.db")
    flue_py("--key-file", b, "copy", database, target, "--target-key-file", "")
    flue_py("--key-file", b, "rekey", "--remove")
    assert json.loads(flue_py("info", "--json").stdout)["key"] is None
    for args in ([], ["--remove", "--new-key-file", a], ["--new-key-file", ""]):
        flue_py("rekey", *args, code=2)
    flue_py("salvage", database, str(tmp_path / "rescued.db"))
    for text in told:
        assert not any(key.strip() in text for key in KEYS.values())


def test_commands_show_heads_to_a_witness_and_refuse_what_was_put_back(tmp_path: Path) -> None:
    flue, heads, key = Flue(tmp_path), tmp_path / "heads", tmp_path / "a.key"
    key.write_text(KEYS["a.key"])
    witness = ("--witness", str(heads))
    session = flue.run(*witness, "new").stdout.strip()
    old = flue.database.read_bytes()
    flue.run("append", session, "hello", env={"FLUE_PY_WITNESS": str(heads)})
    assert read_head(heads.read_text().splitlines()[-1]).revision == 1
    flue.run(*witness, "rekey", "--new-key-file", str(key))
    flue.run(*witness, "--key-file", str(key), "sessions")
    flue.database.write_bytes(old)
    for args in (["sessions"], ["show", session], ["append", session, "x"], ["copy", str(flue.database), f"{key}.db"]):
        refused = flue.run(*witness, *args, code=1)
        assert f"session '{session}': its witness saw revision 1, and" in refused.stdout + refused.stderr
    flue.run(*witness, "--accept", session, "show", session)
    flue.run(*witness, "sessions")
    assert "is not https://" in flue.run("--witness", "ftp://x/y", "sessions", code=1).stderr
