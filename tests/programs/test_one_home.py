"""All programs in one home: each file is taken for its own, nothing is passed over, importing again adds nothing."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from flue_py.formats.registry import FORMATS
from tests.edges.cli_runs import Flue
from tests.formats.transcripts import CLAUDE, CODEX_REAL, lines_of
from tests.programs.made import DATA, unpack

WRITTEN = sorted(file.name.removesuffix(".json.gz") for file in DATA.glob("*.json.gz"))
_NOT_READ = {"Gemini CLI (saved chats)"}


def home_of_all(folder: Path) -> Path:
    """Return a home with the files that each program wrote, in their places."""
    home = folder / "home"
    for name in WRITTEN:
        files = unpack(name, folder / name)
        shutil.copytree(files / "home" if (files / "home").is_dir() else files, home, dirs_exist_ok=True)
    for place, lines in ((".claude/projects/-w/s.jsonl", CLAUDE), (".codex/sessions/rollout-r.jsonl", CODEX_REAL)):
        (home / place).parent.mkdir(parents=True, exist_ok=True)
        (home / place).write_bytes(b"".join(lines_of(lines)))
    return home


def test_a_home_of_all_programs_is_imported_whole(tmp_path: Path) -> None:
    flue, home = Flue(tmp_path), home_of_all(tmp_path)
    places = {form.name: [place.removeprefix("~/") for place in form.places] for form in FORMATS}
    first = flue.run("import", "auto", "--discover", "--json", env={"HOME": str(home)})
    assert set(re.findall(r"^(.+): \d+ files? ", first.stderr, re.MULTILINE)) <= _NOT_READ
    # Every other session is of the days on which it was made.
    assert [session["title"] for session in flue.json("sessions", "--since", "2h")] == ["saved"]
    reports = json.loads(first.stdout)
    formats = {report["format"] for report in reports}
    assert formats == {name for name, own in places.items() if any((home / place).exists() for place in own)}
    for report in reports:
        within = Path(report["file"]).relative_to(home).as_posix()
        assert any(within.startswith(place) for place in places[report["format"]]), report["file"]
        assert report["skippedRows"] == 0, report["file"]
    again = flue.run("import", "auto", "--discover", env={"HOME": str(home)}).stdout
    summary = dict(re.findall(r"^((?!total)[a-z-]+): \d+ of \d+ files? imported, (.*)$", again, re.MULTILINE))
    assert summary == dict.fromkeys(formats, "0 new sessions, 0 new entries")
    assert flue.json("verify")["problems"] == []
