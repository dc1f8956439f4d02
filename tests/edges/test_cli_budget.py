"""flue-py budget: set, list, show, rm."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

import flue_py
from flue_py.errors import InvalidArgument
from flue_py.sessions import money
from tests.edges.cli_runs import Flue
from tests.tables import inputs


@pytest.fixture
def flue(tmp_path: Path) -> Flue:
    flue = Flue(tmp_path)

    with flue_py.sync.open(flue.database) as store:
        session = store.create_session(id="alpha", key="triage", scope="team")
        usage: flue_py.JsonObject = {"totalTokens": 40, "cost": {"total": 0.25}}
        session.append_message({"role": "assistant", "content": "x", "usage": usage})
        session.tasks.create(task_id="t", key="child")
    return flue


def test_a_budget_is_set_listed_shown_and_deleted(flue: Flue) -> None:
    made = flue.json("budget", "set", "triage", "--tokens", "1000")
    assert {name: made[name] for name in ("covers", "sessionId", "scope", "unit", "allowed", "spent", "left")} == {
        "covers": "session", "sessionId": "alpha", "scope": "team", "unit": "tokens", "allowed": 1000, "spent": 0,
        "left": 1000,
    }  # fmt: skip
    assert flue.lines("budget", "set", "triage", "--tokens", "1500") == [
        f"budget {made['id']} of session 'alpha': 1,500 tokens allowed, 1,500 tokens left"
    ]
    (listed,) = flue.json("budget", "list")
    assert listed["allowed"] == 1500
    head, line = flue.lines("budget", "list")
    assert head.split() == ["budget", "left", "spent", "reserved", "allowed", "covers"]
    assert made["id"].startswith(line.split()[0])
    assert line.endswith("1,500 tokens  session 'alpha'")
    assert flue.json("budget", "show", made["id"][:6]) == {**listed, "held": []}
    assert "left      1,500 tokens" in flue.lines("budget", "show", made["id"])
    assert flue.json("budget", "rm", made["id"][:6], "--yes")["id"] == made["id"]
    assert flue.json("budget", "list") == []


def test_a_budget_may_cover_tasks_or_a_scope_and_begin_with_what_the_ledger_has(flue: Flue) -> None:
    tasks = flue.json("budget", "set", "triage", "--tasks", "--cost", "1.5", "--spent-so-far", "ledger")
    assert (tasks["covers"], tasks["unit"], tasks["allowed"], tasks["beganWith"]) == ("tasks", "usd", "1.5", "0.25")
    scope = flue.json("budget", "set", "--scope", "team", "--tokens", "100", "--spent-so-far", "60")
    assert (scope["covers"], scope["sessionId"], scope["left"]) == ("scope", None, 40)
    other = flue.json("budget", "set", "--scope", "other", "--cost", "3", "--spent-so-far", "0.5")
    assert other["left"] == "2.5"
    assert [each["id"] for each in flue.json("budget", "list", "child")] == [tasks["id"], scope["id"]]
    assert [each["id"] for each in flue.json("budget", "list", "--scope", "other")] == [other["id"]]
    assert flue.lines("budget", "rm", tasks["id"], "--yes") == [
        f"deleted budget {tasks['id']} of session 'alpha' and its tasks, 0.25 USD spent"
    ]


def test_a_budget_may_be_for_everything_and_be_fresh_in_each_period(flue: Flue) -> None:
    made = flue.json("budget", "set", "--all", "--tokens", "100", "--period", "day", "--tz", "Europe/Berlin")
    assert [made[name] for name in ("covers", "scope", "period", "tz", "spent", "left")] == [
        "scope", "*", "day", "Europe/Berlin", 40, 60,
    ]  # fmt: skip
    assert made["periodBegan"] < made["createdAt"] < made["periodEnds"]
    (said,) = flue.lines("budget", "set", "--all", "--cost", "1", "--period", "month", "--tz", "UTC")
    assert "of all sessions per month: 1 USD allowed, 0.75 USD left until " in said
    assert said.endswith("-01 00:00 (UTC)")
    always = flue.json("budget", "set", "--all", "--tokens", "100")
    assert (always["spent"], always["period"], always["periodEnds"]) == (0, None, None)
    assert [line.split("  ")[-1] for line in flue.lines("budget", "list", "child")[1:]] == [
        "all sessions per day", "all sessions per month", "all sessions",
    ]  # fmt: skip
    ends = [line for line in flue.lines("budget", "show", made["id"]) if line.startswith("period ends")]
    assert ends[0].endswith(" 00:00 (Europe/Berlin)")
    assert flue.lines("budget", "rm", made["id"], "--yes") == [
        f"deleted budget {made['id']} of all sessions per day, 40 tokens spent"
    ]


@inputs(
    ("options", "words"),
    [
        (["--all", "--scope", "s", "--tokens", "1"], "--all"),
        (["--all", "--tokens", "1", "--tz", "UTC"], "--tz is the time zone of a --period"),
        (["--all", "--tokens", "1", "--period", "year"], "--period"),
    ],
)
def test_a_period_that_makes_no_sense_is_a_mistake_in_the_call(flue: Flue, options: list[str], words: str) -> None:
    assert words in flue.run("budget", "set", *options, code=2).stderr


def test_the_zone_of_the_machine_is_taken_if_it_has_a_name(flue: Flue, monkeypatch: pytest.MonkeyPatch) -> None:
    daily = ("budget", "set", "--all", "--tokens", "1", "--period", "day")
    with monkeypatch.context() as patch:
        for zone, name in ((":Asia/Tokyo", "Asia/Tokyo"), ("UTC0", "UTC")):
            patch.setenv("TZ", zone)
            time.tzset()
            assert flue.json(*daily)["tz"] == name
        patch.setenv("TZ", "<+05>-5")
        time.tzset()
        assert "has no known name; name one by --tz, such as Europe/Berlin" in flue.run(*daily, code=1).stderr
        assert money.local_zone().utcoffset(None) == timedelta(hours=5)
    time.tzset()
    assert "'Mars/Olympus' is not a time zone known here" in flue.run(*daily, "--tz", "Mars/Olympus", code=1).stderr


def test_a_budget_whose_zone_is_not_known_here_is_shown_with_the_fault_and_can_be_deleted(flue: Flue) -> None:
    made = flue.json("budget", "set", "--all", "--tokens", "100", "--period", "day", "--tz", "Europe/Berlin")
    with closing(sqlite3.connect(flue.database)) as database, database:
        database.execute("UPDATE budgets SET tz = 'Mars/Olympus'")
    fault = (
        f"budget {made['id']} of all sessions per day, set it again with another tz: 'Mars/Olympus' is not a time zone "
        "known here, such as Europe/Berlin"
    )
    _, line, last = flue.lines("budget", "list")
    assert (line.split()[1:3], last) == (["-", "-"], fault)
    shown = flue.json("budget", "show", made["id"])
    assert [shown[name] for name in ("spent", "left", "allowed", "fault")] == [None, None, 100, fault]
    assert "period ends  unknown: 'Mars/Olympus' is no zone known here" in flue.lines("budget", "show", made["id"])
    with flue_py.sync.open(flue.database) as store, pytest.raises(InvalidArgument, match="Mars"):
        store.find_session("alpha").money.reserve(tokens=1)
    assert flue.lines("budget", "rm", made["id"], "--yes") == [f"deleted budget {made['id']} of all sessions per day"]


def test_what_calls_hold_is_shown(flue: Flue) -> None:
    made = flue.json("budget", "set", "triage", "--tokens", "100")

    with flue_py.sync.open(flue.database) as store:
        held = store.find_session("alpha").money.reserve(tokens=100, ttl=10**6)
    shown = flue.json("budget", "show", made["id"])
    assert (shown["reserved"], shown["left"]) == (100, 0)
    (each,) = shown["held"]
    assert (each["reservationId"], each["sessionId"], each["amount"]) == (held.id, "alpha", 100)
    assert f"100 tokens by reservation {held.id} of session alpha" in "\n".join(
        flue.lines("budget", "show", made["id"])
    )


@inputs(
    ("arguments", "code", "said"),
    [
        (["set"], 2, "name a SESSION, or give --scope"),
        (["set", "triage", "--scope", "x", "--tokens", "5"], 2, "name a SESSION, or give --scope"),
        (["set", "triage"], 2, "either --tokens or --cost"),
        (["set", "triage", "--tokens", "5", "--cost", "1"], 2, "either --tokens or --cost"),
        (["set", "--scope", "x", "--tasks", "--tokens", "5"], 2, "--tasks is for a SESSION"),
        (["set", "triage", "--tokens", "-5"], 2, "--tokens"),
        (["set", "triage", "--tokens", "5", "--spent-so-far", "much"], 2, "'much' is neither a number of tokens"),
        (["set", "triage", "--tokens", "5", "--spent-so-far", "9" * 5_000], 1, "spent_so_far"),
        (["set", "triage", "--cost", "much"], 1, "'much' is not an amount of money"),
        (["set", "nobody", "--tokens", "5"], 4, "nobody"),
        (["list", "triage", "--scope", "x"], 2, "not both"),
        (["show", "nothing"], 4, "budget 'nothing' does not exist"),
        (["rm", ""], 4, "budget '' does not exist"),
        (["nonsense"], 2, "No such command"),
    ],
)
def test_what_makes_no_sense_is_one_line(flue: Flue, arguments: list[str], code: int, said: str) -> None:
    result = flue.run("budget", *arguments, code=code)
    assert said in result.stderr
    assert flue.json("budget", "list") == []


def test_the_beginning_of_an_id_must_fit_one_budget(flue: Flue) -> None:
    ids = iter(["abc1", "abc2"])
    with flue_py.sync.open(flue.database, ids=lambda: next(ids)) as store:
        store.set_budget(scope="a", tokens=5)
        store.set_budget(scope="b", tokens=5)
    assert "abc1" in flue.run("budget", "show", "abc", code=4).stderr
    assert flue.json("budget", "show", "abc2")["scope"] == "b"
