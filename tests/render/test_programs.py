"""The sessions of every program are read well: a tree has no JSON and no long id, and calls are what they do."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import flue_py
from flue_py.core.entries import Entry
from flue_py.core.usage import program_of
from flue_py.render.lines import entry_text
from tests.formats.test_cline import LAST, write
from tests.formats.transcripts import CLAUDE, CODEX_REAL, lines_of
from tests.programs.made import DATA, unpack
from tests.values import existing

CODEX_FORKS = DATA.parent / "codex" / "forks-0.171.json.gz"
WRITTEN = sorted(file.name.removesuffix(".json.gz") for file in DATA.glob("*.json.gz"))

_LONG_ID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-|\b(?:call|toolu|ses|msg|prt|resp)_\w{6,}|\b[0-9a-f]{24,}\b"
)
_JSON = re.compile(r'\{\s*"[^"]*"\s*:|\[\s*\{|^(?:\[[^\[\]]*\] )?(?:\{\}|\[\]|\["|null$)')
"""An object with a field, a list of objects, and a text that begins with JSON, behind the marks of its line."""


_STRATEGY = "/Users/soph/Work/entire/devenv/cli/cmd/entire/cli/strategy"
LINES: dict[str, set[str]] = {
    "claude-code": {f"-> Edit {_STRATEGY}/strategy.go +4", "[Bash] [lint] $ golangci-lint run ./... 0 issues."},
    "codex": {"-> $ echo hi", "[exec_command, exit 0] hi"},
    "opencode": {"[bash] apples", "-> read(missing.txt)"},
    "gemini-cli": {"[session context]", "[read_file] AAA"},
    "goose": {"-> $ exit 3", "[shell, exit 3] (no output) Command exited with code 3"},
    "mistral-vibe": {"[bash, exit 0] hi", "[summary of what came before]"},
    "cline": {"[read_files] 1 | hello"},
    "copilot-cli": {"[current datetime] One.", "-> read_agent(since_turn: 0.0)"},
    "kimi": {"[system reminder]"},
}
"""Lines that were read in the files by eye, of some programs."""


def files_of(folder: Path) -> list[Path]:
    """Return the files below a folder that a store can import, databases made of their scripts."""
    for script in folder.rglob("*.sql"):
        (script.parent / script.stem).mkdir()
        with closing(sqlite3.connect(script.parent / script.stem / "sessions.db")) as database:
            database.executescript(script.read_text())
    beside = {"requests.json", "sent.json", "seen.json", "states.json", "before.jsonl", "state.json"}
    return [file for file in sorted(folder.rglob("*")) if file.is_file() and file.name not in beside]


async def trees_of(folder: Path) -> dict[str, list[Entry]]:
    """Return all entries that the files below a folder have, by program."""
    trees: dict[str, list[Entry]] = {}
    async with flue_py.open(":memory:") as store:
        for file in files_of(folder):
            try:
                await flue_py.import_file(store, file)
            except flue_py.FlueError:
                continue  # a file beside those of sessions
        for info in (await store.list_sessions(limit=1_000)).sessions:
            session = existing(await store.get_session(info.id))
            trees.setdefault(program_of(info.metadata) or "", []).extend(await session.get_tree())
    return trees


async def test_no_line_of_a_tree_of_any_program_has_json_or_a_long_id(tmp_path: Path) -> None:
    for name in WRITTEN:
        unpack(name, tmp_path / name)
    for name in (CLAUDE, CODEX_REAL):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "rollout.jsonl").write_bytes(b"".join(lines_of(name)))
    write(tmp_path / "cline", LAST)
    for name, text in json.loads(gzip.decompress(CODEX_FORKS.read_bytes())).items():
        (tmp_path / name).write_text(text)
    trees = await trees_of(tmp_path)
    failures = {
        f"{program} {entry.kind} {entry.role}": text
        for program, entries in trees.items()
        for entry in entries
        if entry.role not in ("user", "assistant") or '"toolCall"' in entry.payload
        if _LONG_ID.search(text := entry_text(entry)) or _JSON.search(text)
    }
    assert failures == {}
    assert len(trees) == 14, sorted(trees)
    lines = {program: {entry_text(entry) for entry in entries} for program, entries in trees.items()}
    assert [own - lines[program] for program, own in LINES.items() if own - lines[program]] == []
