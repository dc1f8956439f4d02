"""The options that choose sessions, the same for the list, the search and the bill; and commands without a session."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import flue_py.sync
from flue_py.errors import InvalidArgument
from flue_py.formats.registry import find_format
from flue_py.sessions.housekeeping import moment
from tests.edges.cli_runs import Flue
from tests.tables import inputs

NOW = datetime(2026, 5, 4, 9, tzinfo=UTC)
SESSIONS = {
    "ada": ("claude-code", {"gitBranch": "main"}, "/srv/shop", "opus", 0),
    "bob": ("claude-code", {"gitBranch": "fix"}, "/srv/shop/api", "haiku", 10),
    "cyd": ("codex", {"git": {"branch": "main"}}, "/srv/other", "gpt", 20),
    "dee": ("pi", {}, None, "opus", 30),
}


@pytest.fixture
def flue(tmp_path: Path) -> Flue:
    """A store with a session of each program; the last one is the newest, and has a task that is newer."""
    flue, days = Flue(tmp_path), 0
    with flue_py.sync.open(flue.database, clock=lambda: NOW + timedelta(days=days)) as store:
        for key, (program, header, folder, model, day) in SESSIONS.items():
            days = day
            imported = {"imported": {"format": program, "header": header}}
            session = store.create_session(key=key, title=key, cwd=folder, metadata=imported)
            usage = {"input": 1, "output": 1, "totalTokens": 2, "cost": {"total": 0.25}}
            answer = {"role": "assistant", "content": "fixed it", "model": model, "provider": "x", "usage": usage}
            session.append_messages([{"role": "user", "content": f"{key} says fix it"}, answer])
        days += 1
        session.tasks.create(task_id="t1").append_message({"role": "user", "content": "a task"})
    return flue


@inputs(
    ("options", "keys"),
    [
        ("--program claude_code", "ada bob"), ("--program codex", "cyd"), ("--program aider", ""),
        ("--project /srv/shop", "ada bob"), ("--model opus", "ada dee"), ("--model op", ""),
        ("--git-branch main", "ada cyd"), ("--since 2026-05-14", "bob cyd dee"),
        ("--since 2026-05-14T09:01", "cyd dee"), ("--until 2026-05-14", "ada bob"),
        ("--since 2026-05-14 --until 2026-05-24", "bob cyd"), ("--git-branch main --model opus", "ada"),
        ("--program claude-code --newest 1", "bob"), ("--since 2026-06-20 --newest 3", ""),
    ],
)  # fmt: skip
def test_list_search_and_bill_are_about_the_same_sessions(flue: Flue, options: str, keys: str) -> None:
    expected, words = sorted(keys.split()), options.split()
    listed = [row["key"] for row in flue.json("sessions", "--kind", "root", *words)]
    hits = {hit["sessionName"] for hit in flue.json("search", "says", *words)["hits"]}
    bill = flue.json("usage", "--by", "session", *words, *[] if "--since" in words or "--until" in words else ["--all"])
    payers = {row["id"]: row["key"] for row in flue.json("sessions")}
    paid = [payers[row["session"]] for row in bill["rows"]]
    if "T09:01" in options:
        paid.remove("bob")  # a bill is of whole days
    assert (sorted(listed), sorted(hits), sorted(paid)) == (expected, expected, expected)


def test_moments_are_dates_times_or_how_long_ago() -> None:
    assert moment(None, "--since") is None
    assert moment("2026-01-31", "--until", is_end=True) == datetime(2026, 2, 1, tzinfo=UTC)
    assert moment("2026-01-31T12:00+02:00", "--until", is_end=True) == datetime(2026, 1, 31, 10, tzinfo=UTC)
    spans = [moment(text, "--since") for text in ("2w", "7d", "12h", "0d")]
    assert spans == sorted(spans, key=lambda at: at or NOW)
    for wrong in ("", "7", "d", "-1d", "7 d", "yesterday", "2026-13-01", "7D", "9999999d", "999999w", "2026-01-31T"):
        with pytest.raises(InvalidArgument, match="--since"):
            moment(wrong, "--since")


def _with_session(command: str, session: str) -> list[str]:
    name, *rest = command.split()
    return [name, session, *rest] if name != "export" else [name, *rest, session]


@inputs("command", ["show --answer", "show --history", "tree", "export html"])
def test_without_a_session_the_newest_is_shown_and_named_and_no_task(flue: Flue, command: str) -> None:
    newest = next(row["id"] for row in flue.json("sessions") if row["key"] == "dee")
    words = ["--output", "-", "--no-time"] if command == "export html" else []
    seen = flue.run(*command.split(), *words)
    assert seen.stderr == f"session {newest}: dee\n"
    assert seen.stdout == flue.run(*_with_session(command, newest), *words).stdout


def test_without_any_session_it_is_said_what_to_do(tmp_path: Path) -> None:
    flue = Flue(tmp_path)
    with flue_py.sync.open(flue.database):
        pass
    assert "there are no sessions yet" in flue.run("tree", code=4).stderr


def test_a_bill_of_a_session_is_not_of_others(flue: Flue) -> None:
    for option in ("--program=pi", "--git-branch=main", "--until=2026-05-05", "--newest=1"):
        assert "leave out SESSION" in flue.run("usage", "ada", option, code=1).stderr
    assert "are the same" in flue.run("usage", "--since=7d", "--first-day=2026-05-04", code=1).stderr


def test_programs_are_the_names_of_formats() -> None:
    assert {find_format(program).name for program, *_ in SESSIONS.values()} == {"claude-code", "codex", "pi"}
