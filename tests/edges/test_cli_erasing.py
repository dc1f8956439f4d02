"""The commands erase and cleanup: receipts, holds, and an erasure that was killed."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import flue_py
from flue_py.cli import manage
from tests.edges.cli_runs import Flue

KILLED = """
import os, sys
from flue_py.cli import main
from flue_py.db.backend import Backend
async def killed(*_, **__):
    os._exit(9)
Backend.forget_deleted = killed
main(prog_name="flue-py")
"""
SECRET = "Jane has an illness that nobody shall know of"


@pytest.fixture
def flue(tmp_path: Path) -> Flue:
    flue = Flue(tmp_path)
    now = [datetime.now(UTC) - timedelta(days=40)]
    with flue_py.sync.open(flue.database, clock=lambda: now[0]) as store:
        for name in ("old", "doomed", "held"):
            session = store.create_session(key=name, title=f"Jane's {name}", scope="t1" if name == "held" else None)
            session.append_message({"role": "user", "content": f"{name}: {SECRET}"})
            session.append_message({"role": "user", "content": f"{name}: {SECRET} " * 90})
            now[0] += timedelta(days=19)
    return flue


def bytes_beside(flue: Flue) -> bytes:
    return b"".join(file.read_bytes() for file in flue.folder.glob("sessions.db*"))


def keys(flue: Flue) -> list[str | None]:
    with flue_py.sync.open(flue.database) as store:
        return sorted(str(info.key) for info in store.list_sessions().sessions)


def write(flue: Flue, *lines: str) -> str:
    return str(flue.write([f"{line}\n".encode() for line in lines], "policy.toml"))


def test_an_erasure_leaves_no_byte_and_a_receipt(flue: Flue) -> None:
    file = flue.folder / "receipt.json"
    done = flue.lines("erase", "doomed", "old", "--yes", "--why", "she asked", "--receipt", str(file))
    assert [line for line in done if "too short" in line] == ["4 texts not looked for: too short, or too plain"]
    assert (done[0], done[-1]) == ("2 sessions, 4 entries erased", "complete: nothing of it is left")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    receipt = json.loads(file.read_text())
    assert (receipt["complete"], receipt["by"], receipt["why"]) == (True, "flue-py", "she asked")
    assert [len(receipt["look"][name]) for name in ("traces", "hindrances", "outOfReach")] == [0, 0, 2]
    assert "Jane" not in file.read_text()
    assert b"doomed: Jane" not in bytes_beside(flue)
    assert b"held: Jane" in bytes_beside(flue)
    flue.run("erase", "held", "--yes", "--receipt", str(file), code=1)
    assert keys(flue) == ["held"], "a receipt is not written over"


def test_a_fork_goes_on_without_the_texts_of_what_was_erased(flue: Flue) -> None:
    with flue_py.sync.open(flue.database) as store:
        fork = store.find_session("doomed").fork(id="the-fork")
        fork.append_message({"role": "user", "content": "of the fork alone"})
    shown = flue.lines("erase", "doomed", "--dry-run")
    assert shown[2:] == ["2 entries would lose their texts: redacted", "seen by the-fork"]
    receipt = flue.json("erase", "doomed", "--yes", "--why", "she asked")
    assert (receipt["complete"], receipt["redacted"], receipt["seenBy"]) == (True, 2, ["the-fork"])
    assert b"doomed: Jane" not in bytes_beside(flue)
    with flue_py.sync.open(flue.database) as store:
        context = [message["content"] for message in store.find_session("the-fork").build_context()]
        assert context == [*["[redacted by flue-py: she asked]"] * 2, "of the fork alone"]
        assert store.verify().problems == []


def test_a_session_and_its_fork_go_together_and_leave_nothing(flue: Flue) -> None:
    with flue_py.sync.open(flue.database) as store:
        store.find_session("doomed").fork(id="the-fork")
    planned = flue.json("erase", "doomed", "the-fork", "--dry-run")
    assert (planned["redacted"], planned["entriesKept"], planned["counts"]["entries"]) == (0, 0, 2)
    receipt = flue.json("erase", "doomed", "the-fork", "--yes")
    assert (receipt["complete"], receipt["redacted"], receipt["counts"]["entries"]) == (True, 0, 2)


def test_what_a_search_finds_loses_its_text(flue: Flue) -> None:
    with flue_py.sync.open(flue.database) as store:
        store.find_session("old").append_message({"role": "user", "content": "the weather is fine"})
    assert flue.lines("erase", "--search", "illness", "--dry-run")[1] == "6 entries would lose their texts: redacted"
    receipt = flue.json("erase", "--search", "illness", "--yes")
    assert (receipt["complete"], receipt["redacted"], receipt["sessionIds"]) == (True, 6, [])
    assert b": Jane has" not in bytes_beside(flue)
    with flue_py.sync.open(flue.database) as store:
        assert [len(store.search(word).hits) for word in ("illness", "weather")] == [0, 1]
    assert flue.run("erase", "--search", "illness", "--yes").stdout.startswith("0 sessions, 0 entries erased")
    assert "exclude each other" in flue.run("erase", "old", "--search", "x", code=2).stderr


def test_thoughts_are_erased_too_and_what_is_left_is_named(flue: Flue, monkeypatch: pytest.MonkeyPatch) -> None:
    thought = {"role": "assistant", "content": [{"type": "thinking", "thinking": "a zebra, I think"}]}
    with flue_py.sync.open(flue.database) as store:
        store.create_session(id="zoo", title="Zebra").append_messages([thought, thought])
    monkeypatch.setattr(manage, "_MOST_FOUND", 1)
    assert "for the rest" in flue.run("erase", "--search", "zebra", "--yes", code=1).stderr
    receipt = flue.json("erase", "--search", "zebra", "--yes", code=1)
    assert (receipt["complete"], [text[-22:] for text in receipt["left"]]) == (False, ["and stays: session zoo"])
    assert b"a zebra, I think" not in bytes_beside(flue)


def test_a_scope_goes_whole_and_the_ledger_keeps_its_sums(flue: Flue) -> None:
    with flue_py.sync.open(flue.database) as store:
        mine = store.in_scope("t1")
        session = mine.create_session(cwd="/home/jane-doe/secret-project")
        usage = {"input": 3, "output": 4}
        session.append_message({"role": "assistant", "content": "x", "usage": usage, "agent": "Jane's own agent"})
        mine.remember("fact", f"kept in mind: {SECRET}")
        mine.add_file("jane.txt", f"in a file: {SECRET}")
        mine.set_budget(tokens=50)
        mine.erase_scope("t1", dry_run=True)
    assert "this would erase everything of scope 't1'" in flue.run("erase", "--scope", "t1", code=2).stderr
    receipt = flue.json("erase", "--scope", "t1", "--yes")
    assert receipt["counts"] == {"sessions": 2, "entries": 3, "memories": 1, "files": 1, "budgets": 1, "calls": 1}
    assert receipt["complete"]
    for text in ("kept in mind", "in a file", "Jane's own agent", "jane-doe", "held: Jane"):
        assert text.encode() not in bytes_beside(flue), text
    with flue_py.sync.open(flue.database) as store:
        (row,) = store.usage(group_by=["scope", "project", "agent"]).rows
        assert (row.group, row.total_tokens) == ({"scope": "t1", "project": None, "agent": None}, 7)


def test_who_was_killed_before_the_look_completes_it_by_the_same_call(flue: Flue) -> None:
    arguments = ["--db", str(flue.database), "erase", "doomed", "--yes"]
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False, timeout=60, env={**os.environ})
    assert killed.returncode == 9
    assert b"doomed: Jane" in bytes_beside(flue), "it is in the log"
    assert "no session" not in flue.run("erase", "doomed", code=2).stderr
    receipt = flue.json("erase", "doomed", "--yes")
    assert (receipt["complete"], receipt["look"]["rebuilt"]) == (True, True)
    assert b"doomed: Jane" not in bytes_beside(flue)
    flue.run("erase", "doomed", "--yes", code=4)


def test_what_is_held_goes_only_if_the_hold_is_named_or_lifted(flue: Flue) -> None:
    assert flue.lines("hold") == ["there are no holds"]
    flue.run("hold", "--lift", code=2)
    first = flue.json("hold", "doomed", "--why", "case 7")[0]
    assert (first["by"], first["why"], first["scope"], first["atUs"] > 0) == ("flue-py", "case 7", "", True)
    flue.run("hold", "--scope", "t1")
    assert ["on hold since" in line for line in flue.lines("hold")] == [True, True]
    entry = flue.json("tree", "held")["entries"][0]["id"]
    for arguments in (["erase", "doomed"], ["rm", "doomed"], ["erase", "old", "doomed"], ["erase", "--scope", "t1"],
                      ["rm", "--scope", "t1"], ["rm", "held"], ["redact", "held", entry, "--why", "x"],
                      ["erase", "--search", "illness"]):  # fmt: skip
        refused = flue.run(*arguments, "--yes", code=1).stderr
        name = "scope:t1" if {"t1", "held"} & set(arguments) else first["sessionId"]
        assert "nothing was deleted: lift it" in refused, arguments
        assert f"--despite-hold {name}" in refused or "--search" in arguments, arguments
        assert name != first["sessionId"] or "(by flue-py: case 7)" in refused or "--search" in arguments
    assert keys(flue) == ["doomed", "held", "old"]
    done = flue.run("rm", "--inactive-for", "0h", "--yes")
    assert "2 sessions passed over: a hold is on it" in done.stderr
    policy = write(flue, "[[rule]]", "max_sessions = 0")
    done = flue.run("cleanup", "--policy", policy, "--yes")
    assert (done.stdout[:28], "2 sessions passed over" in done.stderr) == ("0 sessions, 0 entries erased", True)
    assert keys(flue) == ["doomed", "held"]
    flue.run("redact", "held", entry, "--why", "x", "--despite-hold", "scope:t1", "--yes")
    flue.run("erase", "doomed", "--despite-hold", first["sessionId"], "--yes")
    assert "lifted" in flue.lines("hold", "--scope", "t1", "--lift")[0]
    assert "no hold on it" in flue.run("hold", "--scope", "t1", "--lift", code=1).stderr
    assert flue.lines("hold") == ["there are no holds"], "it went with its session"
    flue.run("rm", "held", "--yes")
    assert keys(flue) == []


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        (['max_age = "30d"'], ["doomed", "held"]),
        (["max_sessions = 1"], ["held"]),
        (["max_entries = 4"], ["doomed", "held"]),
        (["max_bytes = 100"], []),
        (["max_bytes = 500"], ["doomed", "held"]),
        (["max_bytes = 100_000"], ["doomed", "held", "old"]),
        (['scope = "t1"', "max_sessions = 0"], ["doomed", "old"]),
        (['kind = "fork"', "max_sessions = 0"], ["doomed", "held", "old"]),
    ],
)
def test_rules_take_by_age_size_and_kind(flue: Flue, rule: list[str], left: list[str]) -> None:
    flue.run("cleanup", "--policy", write(flue, "[[rule]]", *rule), "--yes")
    assert keys(flue) == left


def test_a_policy_with_a_setting_that_there_is_not_is_refused_by_name(flue: Flue) -> None:
    refused = flue.run("cleanup", "--policy", write(flue, "[[rule]]", "max_ages = 3"), "--yes", code=1).stderr
    assert "unknown field `max_ages`" in refused
    assert "max_age, max_sessions" in refused
    assert "30x" in flue.run("cleanup", "--policy", write(flue, "[[rule]]", 'max_age = "30x"'), code=1).stderr
    assert "cannot be read" in flue.run("cleanup", "--policy", "nowhere.toml", code=1).stderr
    assert "flue-py hold" in flue.run("cleanup", "--policy", write(flue, 'hold = ["old"]'), code=1).stderr
    assert len(keys(flue)) == 3
