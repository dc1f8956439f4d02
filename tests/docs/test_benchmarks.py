"""The benchmarks run, in their short form. Their figures are not checked."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import flue_py.sync
from benchmarks import context_pipeline
from benchmarks.compaction.transcripts import Transcript, transcripts
from benchmarks.measuring import BODY_BYTES, HEADINGS, Goal, Line, Options, body, make_messages, table
from benchmarks.pages import bytes_by_tree, counted_log
from benchmarks.run import NAMES
from flue_py.core.json import JsonObject

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"

PRINTED = {
    "append": (
        "append, fsync per commit", "append, no fsync", "append, fsync per commit, in turns: threads=False",
        "append, no fsync, in turns: flue_py.sync", "a line of a JSONL file", "through an engine, sqlite+aiosqlite",
        "append, fsync per commit: history of 500 against 100", "pages of log, an append",
        "pages of log, an append of 10 at once",
    ),
    "many_sessions": (
        "10 sessions appending at once, fsync", "10 sessions appending at once, no fsync",
        "10 sessions appending at once, fsync: CPU time of an append",
    ),
    "atomic": (
        "append to 10 sessions, as one batch", "append to 10 sessions, one by one",
        "five operations of several kinds as one batch (raw: one by one)",
    ),
    "load": (
        "load 200 messages, cold, as dicts", "load 200 messages, cold, typed, decoded when touched",
        "and every message touched", "load 200 messages, unchanged since last read",
    ),
    "fork": ("fork at the middle of 200 (raw: an append here)", "fork at the middle of 200, bytes"),
    "usage": ("usage since the middle of 100", "usage since the middle of 200"),
    "context": (
        "context of 1,000 entries, 200 kept", "path: the last 20 of 100 (raw: of 20)",
        "path: the last 20 of 100 (raw: 20 without a limit)", "context: the last 20 of 100 (raw: of 20)",
    ),
    "counting": (
        "count 100 messages, tiktoken:o200k_base: first", "count 100 messages, tiktoken:o200k_base: again",
        "count 100 messages, bytes/3: first", "count 100 messages, bytes/3: again",
    ),
    "prefixes": (
        "common prefix of two branches of 100: known", "common prefix of two branches of 100: beside a known one",
        "common prefix of two branches of 100: first",
    ),
    "context_pipeline": (
        "the steps of defaults over 100 messages", "defaults, cached of what is sent", "window, cached of what is sent",
        "resume, cached of what is sent", "rewriting, cached of what is sent", "trim, tokens sent",
    ),
    "compaction_speed": (
        "plan a compaction of 400 messages", "text of mode intent for 400 messages",
        "text of mode window for 400 messages", "context after it (raw: of the kept alone)",
        "loss_report, 400 messages", "recall of 'packages/coding-agent/src', 400 messages",
        "recall of 'the theme of tools', 400 messages",
    ),
    "size": (
        "size of 100 messages of 600 bytes", "size of 100 messages of 600 bytes: an entry in entries",
        "size of a real pi transcript",
    ),
    "open": ("open a store of 200 entries", "import flue_py", "flue-py --help", "flue-py sessions, CPU"),
    "large": (
        "open a database of 0.0 GB, cold", "memory for the context of 200 out of 500 entries",
        "flue-py context, whole process",
    ),
    "delete": ("delete a session of 100 entries, per entry",),
    "report": ("report of 200 entries, made, CPU", "report of 200 entries, size", "25 sessions of 2, CPU"),
    "importing": ("claude-code: small rows (raw: json.loads)", "codex: small rows, imported again", "pi: large rows"),
    "listing": ("a page of 300 sessions by updated", "a page of 300 sessions by cost", "append beside 300 sessions"),
    "search": (
        "index of 300 messages, of their text", "catch up with 100 new messages, CPU", "search 300 messages: two words",
        "search 300 messages: a word that is nowhere",
    ),
    "postgres": ("PostgreSQL",),
    "server": ("HTTP",),
    "choices": (
        "statements by sqlite3 (raw: SQLAlchemy's text())", "as one range (raw: by parent links)",
        "entries, a rowid and a key: in a group of 100", "calls, in order of arrival: in a group of 100",
        "a listing by slot, if it changes", "pack 20,000 bytes of prose, level 4 (raw: level 6)",
        "one picture in three messages", "a crossing by SimpleQueue (raw: anyio.to_thread)",
        "blocks of checked reasoning (raw: unchecked)",
    ),
}  # fmt: skip


def run(*arguments: str, folder: Path) -> str:
    """Return what a Python program of the repository prints."""
    command = [sys.executable, *arguments, "--short", "--dir", str(folder)]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


QUICK = ("context",)
"""The benchmark whose short form stands here for all: CI runs that of each on its own."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_the_short_form_of_each_benchmark_prints_its_rows_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    lines = [Line(**line) for line in json.loads(run("-m", f"benchmarks.{name}", "--json", folder=tmp_path))]

    printed = [line.what for line in lines]
    for row in PRINTED[name]:
        assert any(row in what for what in printed), f"{row!r} is not among {printed}"
    assert all(line.value > 0 for line in lines if line.unit)
    assert list(tmp_path.iterdir()) == []


def test_the_runner_started_by_its_path_prints_machine_versions_and_one_table(tmp_path: Path) -> None:
    printed = run(str(ROOT / "benchmarks" / "run.py"), "--only", "usage", "--only", "delete", folder=tmp_path)

    assert "Python 3." in printed
    assert "SQLite 3." in printed
    assert "pydantic" in printed
    rows = [line for line in printed.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(PRINTED["usage"]) + len(PRINTED["delete"])
    assert "not judged" in rows[2]


def test_every_benchmark_file_is_run_and_described() -> None:
    shared = {
        "__init__", "measuring", "raw", "pages", "run", "tokens", "token_counts", "digests", "shape", "compare",
        "parts", "ranks", "searching",
    }  # fmt: skip
    files = {file.stem for file in (ROOT / "benchmarks").glob("*.py")} - shared

    assert files == set(NAMES) == set(PRINTED)
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in NAMES if f"\n| `{name}` | " not in page] == []


@pytest.mark.slow
def test_two_revisions_are_compared_by_the_same_operations() -> None:
    """A revision against itself, in the short form: it needs git, and takes a while."""
    command = [sys.executable, "-m", "benchmarks.compare", "HEAD", "--short", "--rounds", "1"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    rows = [line.split(" | ") for line in printed.splitlines()[2:]]
    assert {"| append a message", "| fork", "| flue-py sessions"} <= {row[0] for row in rows}
    assert all(cell.endswith((" us", " KiB")) for row in rows for cell in row[1:3])
    assert all(" x (" in row[3] for row in rows)


def test_a_message_has_exactly_the_size_that_is_stated() -> None:
    messages = make_messages(50)

    assert {len(body(message).encode()) for message in messages} == {BODY_BYTES}
    assert [message["role"] for message in messages[:4]] == ["user", "assistant", "user", "assistant"]
    assert all("usage" in message for message in messages[1::2])


def test_pages_of_log_are_counted_from_the_beginning_over_a_log_that_would_have_started_anew(tmp_path: Path) -> None:
    path = tmp_path / "counted.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as store:
        store.execute("PRAGMA journal_mode = WAL")
        store.execute("PRAGMA wal_autocheckpoint = 2")
        for name in ("one", "two"):
            store.execute(f"CREATE TABLE {name} (number INTEGER)")
            store.execute(f"INSERT INTO {name} VALUES (0)")

        with counted_log(path) as pages:
            assert pages() == 0
            for _ in range(5):
                store.execute("UPDATE one SET number = number + 1")
            assert pages() == 5
            store.execute("BEGIN")
            store.execute("UPDATE one SET number = number + 1")
            store.execute("UPDATE two SET number = number + 1")
            store.execute("COMMIT")
            assert pages() == 7


def test_the_bytes_of_a_database_are_those_of_its_tables_and_indexes(tmp_path: Path) -> None:
    path = tmp_path / "counted.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as store:
        store.execute("CREATE TABLE texts (text TEXT)")
        store.execute("CREATE INDEX ix_texts ON texts (length(text))")
        store.executemany("INSERT INTO texts VALUES (?)", [("x" * 3000,)] * 10)

    trees = bytes_by_tree(path)

    if trees is None:
        pytest.skip("this SQLite has no dbstat")
    assert list(trees) == ["texts", "ix_texts", "sqlite_schema"]
    assert sum(trees.values()) == path.stat().st_size


def test_a_ratio_is_taken_inside_a_round_and_then_the_median() -> None:
    line = Line.of_figures("x", "us", [10.0, 40.0, 90.0], [10.0, 20.0, 30.0], Goal(2))

    assert (line.value, line.raw, line.ratio, line.low, line.high) == (40.0, 20.0, 2.0, 1.0, 3.0)
    assert line.goal == "at most 2 x raw"
    assert line.reached is True


@pytest.mark.parametrize(
    ("goal", "value", "raw", "reached"),
    [
        (Goal(2), 21.0, 10.0, False),
        (Goal(4, at_least=True), 41.0, 10.0, True),
        (Goal(4, at_least=True), 39.0, 10.0, False),
        (Goal(0.3, of="value"), 0.3, 100.0, True),
        (Goal(0.3, of="value"), 0.31, 0.1, False),
    ],
)
def test_a_goal_is_a_limit_of_the_ratio_or_of_the_figure(goal: Goal, value: float, raw: float, reached: bool) -> None:
    assert Line.of_figures("x", "ms", [value], [raw], goal).reached is reached


def test_a_missed_goal_and_a_skipped_row_stand_out_in_the_table() -> None:
    missed = Line.of_figures("slow", "us", [30.0], [10.0], Goal(2))

    printed = table([missed, Line.skipped("other", "no file")], judged=True).splitlines()

    assert printed[0].count("|") == len(HEADINGS) + 1
    assert printed[2].split("|")[-2].strip() == "NO"
    assert "other: skipped, no file" in printed[3]


REWRITING = {"microcompact": {"keep": 1, "tools": ["read"]}, "epoch_tokens": 0}
WAITING = {"microcompact": {"keep": 1, "tools": ["read"]}, "epoch_tokens": 1_000_000}


@pytest.mark.parametrize(("defaults", "reached"), [({}, True), (WAITING, True), (REWRITING, False)])
def test_defaults_that_rewrote_would_be_below_the_bare_history(
    monkeypatch: pytest.MonkeyPatch, defaults: dict[str, Any], reached: bool
) -> None:
    said: list[JsonObject] = [{"role": "user", "content": "Go."}]
    for number in range(5):
        call: JsonObject = {"type": "toolCall", "id": f"c{number}", "name": "read", "arguments": {}}
        said.append({"role": "assistant", "content": [call]})
        said.append({"role": "toolResult", "toolCallId": f"c{number}", "toolName": "read", "content": "line " * 200})
    monkeypatch.setattr(context_pipeline, "PARTS", {"defaults": defaults})
    with flue_py.sync.open(":memory:", prices=False) as store:
        session = store.create_session()
        session.append_messages(said)
        items, messages = session.build_context_entries(), session.build_context()

    transcript = Transcript("x", tuple(said), "gpt-5", (1,) * len(said))
    share, sent = context_pipeline.share_lines(transcript, items, messages, range(1, len(said), 2))

    assert (share.goal, share.reached) == ("at least 1 x raw", reached)
    assert sent.value > 0


def test_the_share_is_of_all_requests_and_ends_at_the_first_message_that_differs() -> None:
    sent = [["aa"], ["aa", "b", "ccc"], ["aa", "x", "ccc", "d"], ["aa", "x"]]

    assert context_pipeline.cached_share(sent, len) == (100 * (2 + 2 + 3) / (2 + 6 + 7 + 3), 18)


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_page_has_the_shares_that_are_measured(number: int) -> None:
    """Counts are not times: they come out the same everywhere. Of the sessions, the shorter ones are on the page."""
    text = PAGE.read_text(encoding="utf-8").partition("\n## What an agent is sent\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    transcript = sorted(transcripts(), key=lambda each: each.tokens)[number]

    lines = asyncio.run(context_pipeline.shares(transcript, Options()))

    shown = [line.cells(judged=True)[1].removesuffix(" thousands") for line in lines]
    measured = [f"{share} of {sent}" for share, sent in zip(shown[::2], shown[1::2], strict=True)]
    assert [row[0] for row in rows[2:]] == list(context_pipeline.PARTS)
    assert [row[1 + number] for row in rows[2:]] == measured
    assert [line.reached for line in lines if line.goal] == [True]
