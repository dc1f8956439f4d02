"""The command usage: what was paid, by model, day, purpose and the other questions."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, tzinfo
from pathlib import Path

import pytest

import flue_py
from flue_py.cli import read
from flue_py.core.json import JsonObject
from tests.edges.cli_runs import Flue
from tests.tables import inputs


def answer(model: str, dollars: float | None = None) -> JsonObject:
    """Return an answer of a hundred tokens."""
    usage: JsonObject = {"input": 90, "output": 10}
    cost: JsonObject = {} if dollars is None else {"cost": {"total": dollars}}
    return {"role": "assistant", "content": "ok", "provider": "p", "model": model, "usage": {**usage, **cost}}


@pytest.fixture
def spent(flue: Flue) -> Flue:
    """A store with a session that has an abandoned branch, a call without a price, a failed call, and a task."""
    with flue_py.sync.open(flue.database, prices=False) as store:
        session = store.create_session(key="triage", id="s")
        asked = session.append_message({"role": "user", "content": "Why?"}).entry_id
        session.append_message(answer("large", 0.1))
        session.rewind(to=asked)
        session.append_messages([answer("large", 0.2), answer("local")])
        session.money.record_call(
            {"input": 5, "cost": {"total": 0.05}}, model="large", purpose="title", outcome="failed"
        )
        session.tasks.create(task_id="t").append_message(answer("large", 0.4))
    return flue


def test_without_options_it_is_the_path_as_before(spent: Flue) -> None:
    told = spent.json("usage", "triage")
    assert list(told) == [
        "input", "output", "cacheRead", "cacheWrite", "totalTokens", "cost", "calls", "unpricedCalls", "unknownCalls",
        "paidTokens", "sinceId", "leafId", "onPath",
    ]  # fmt: skip
    assert (told["input"], told["cost"]["total"]) == (180, "0.2")
    assert (told["cacheRead"], told["cacheWrite"], told["totalTokens"]) == (None, None, 200)
    assert [line.split()[-2] for line in spent.lines("usage", "triage")[3:6]] == ["-", "-", "200"]


def test_what_was_paid_by_model_shows_a_dash_for_what_nobody_knows(spent: Flue) -> None:
    lines = [line.split() for line in spent.lines("usage", "triage", "--by", "model")]
    assert lines[1] == ["large", "3", "185", "20", "-", "-", "205", "0.35"]
    assert lines[2] == ["local", "1", "90", "10", "-", "-", "100", "-"]
    assert lines[3] == ["total", "4", "275", "30", "-", "-", "305", "0.35"]
    assert lines[4][:5] == ["1", "call", "has", "no", "known"]
    by_model = {row["model"]: row["costUsd"] for row in spent.json("usage", "triage", "--by", "model")["rows"]}
    assert by_model == {"large": "0.35", "local": None}


def test_what_nobody_recognised_is_a_dash_in_every_view(flue: Flue, tmp_path: Path) -> None:
    odd: JsonObject = {"role": "assistant", "content": "ok", "model": "odd", "usage": {"surely": 7}}
    with flue_py.sync.open(flue.database, prices=False) as store:
        store.create_session(key="k").append_messages([{"role": "user", "content": "Why?"}, odd])
        store.create_session(key="both").append_messages([odd, answer("large", 0.1)])
    lines = [line.split() for line in flue.lines("usage", "k", "--by", "model")]
    assert lines[1] == ["odd", "1", "-", "-", "-", "-", "-", "-"]
    assert " ".join(lines[3]) == "1 call has unknown usage: neither tokens nor dollars are counted"
    (row,) = flue.json("usage", "k", "--by", "model")["rows"]
    assert (row["unknownCalls"], row["totalTokens"], row["costUsd"]) == (1, None, None)
    told = {each["key"]: (each["unknownCalls"], each["spentTokens"]) for each in flue.json("sessions")}
    assert told == {"k": (1, None), "both": (1, 100)}
    assert "spent        - tokens, -" in flue.lines("show", "k")
    assert "spent        100 + ? tokens, $0.10 + ?" in flue.lines("show", "both")
    assert flue.json("tree", "k")["unknownCalls"] == 1
    assert "in:– out:–" in flue.run("export", "markdown", "k").stdout


def test_a_free_call_beside_one_without_a_price_costs_the_same_in_every_view(flue: Flue, tmp_path: Path) -> None:
    with flue_py.sync.open(flue.database, prices=False) as store:
        store.create_session(key="k").append_messages([answer("free", 0.0), answer("local")])
        store.create_session(key="free").append_message(answer("free", 0.0))
    for key, known in (("k", None), ("free", "0")):
        window, paid = flue.json("usage", key), flue.json("usage", key, "--by", "session")
        costs = {
            window["cost"]["total"], flue.json("usage", key, "--path")["total"]["costUsd"], paid["total"]["costUsd"],
            paid["rows"][0]["costUsd"], flue.json("tree", key)["spent"], flue.json("show", key)["spent"],
            *(each["spent"] for each in flue.json("sessions") if each["key"] == key),
        }  # fmt: skip
        assert costs == {known}
        shown = "-" if known is None else "0.00"
        lines = [*flue.lines("usage", key)[5:6], *flue.lines("usage", key, "--path")[1:2]]
        assert [line.split()[-1] for line in lines] == [shown] * 2
        (spent,) = (line for line in flue.lines("show", key) if line.startswith("spent"))
        assert spent.endswith(f", {'-' if known is None else '$0.00'}")


@inputs(
    ("asked", "cost"),
    [
        ([], "0.75"), (["triage", "--tasks"], "0.75"), (["triage", "--tree"], "0.35"),
        (["triage", "--branch", "abandoned"], "0.1"), (["triage", "--purpose", "title"], "0.05"),
        (["--outcome", "failed"], "0.05"), (["triage", "--path"], "0.2"),
        (["triage", "--by", "day", "--by", "session"], "0.35"), (["--model", "local"], None),
        (["--provider", "nobody"], "0"), (["--scope", "nobody"], "0"), (["--last-day", "2020-01-01"], "0"),
        (["--first-day", "2020-01-01", "--by", "price_source"], "0.75"), (["--by", "week", "--by", "month"], "0.75"),
        (["--days", "2"], "0.75"), (["--all"], "0.75"), (["triage", "--all"], "0.35"),
    ],
)  # fmt: skip
def test_it_answers_what_it_is_asked(spent: Flue, asked: list[str], cost: str | None) -> None:
    assert spent.json("usage", *asked)["total"]["costUsd"] == cost
    assert spent.lines("usage", *asked)


def test_the_whole_store_is_shown_for_thirty_days_and_a_session_always(spent: Flue) -> None:
    with flue_py.sync.open(spent.database, prices=False) as store:
        store.create_session(id="old").money.record_call({"input": 5}, at=datetime(1970, 1, 1, tzinfo=UTC))
    shown, ever = spent.json("usage"), spent.json("usage", "--all")
    first, last = date.fromisoformat(shown["firstDay"]), date.fromisoformat(shown["lastDay"])
    assert (last - first).days == 29
    assert [row["day"] for row in shown["rows"]] == [row["day"] for row in ever["rows"]][1:]
    assert (ever["firstDay"], ever["rows"][0]["day"]) == (None, "1970-01-01")
    assert spent.lines("usage")[0].startswith(f"the last 30 days, {first} to ")
    assert spent.lines("usage", "--all")[0].split()[0] == "day"
    assert spent.json("usage", "old", "--by", "week")["rows"][0]["week"] == "1969-12-29"
    assert spent.lines("usage", "--days", "1")[0].startswith("today, ")


def test_a_stretch_of_path_and_a_session_that_is_gone_are_answered_for(spent: Flue) -> None:
    path = spent.json("show", "triage", "--path")
    since = spent.json("usage", "triage", "--since", path[1]["id"], "--by", "model")
    assert [row["model"] for row in since["rows"]] == ["local"]
    to = spent.json("usage", "triage", "--leaf", path[1]["id"], "--path")
    assert to["total"]["costUsd"] == "0.2"
    spent.run("rm", "triage", "--yes")
    assert spent.json("usage", "s", "--by", "branch")["total"]["costUsd"] == "0.35"
    assert "s" in spent.run("usage", "s", "--path", code=4).stderr


def test_it_is_summed_up_by_project_and_agent(flue: Flue, monkeypatch: pytest.MonkeyPatch) -> None:
    home = flue.folder / "home"
    monkeypatch.setenv("HOME", str(home))
    with flue_py.sync.open(flue.database, prices=False) as store:
        for folder, agent in ((home / "app", "Dev"), (home / "app" / "sub", "Dev"), (Path("/w/" + "long" * 20), None)):
            session = store.create_session(cwd=str(folder))
            session.append_message(answer("m", 0.5) | ({"agentName": agent} if agent else {}))
        store.create_session().append_message(answer("m"))
        store.create_session(cwd=str(home)).money.record_call({"input": 1}, agent="Titler")
    lines = [line.split() for line in flue.lines("usage", "--by", "project")]
    shown = ["-", "~", "~/app", "~/app/sub", "…" + ("long" * 20)[-35:]]
    assert sorted(line[:2] for line in lines[2:7]) == sorted([name, "1"] for name in shown)
    by_agent = {row["agent"]: row["costUsd"] for row in flue.json("usage", "--by", "agent")["rows"]}
    assert by_agent == {None: "0.5", "Dev": "1", "Titler": None}
    rows = flue.json("usage", "--by", "project", "--project", "~/app", "--agent", "Dev")["rows"]
    assert [row["project"] for row in rows] == [str(home / "app"), str(home / "app" / "sub")]
    assert flue.json("usage", "--project", str(home / "ap"))["total"]["calls"] == 0


class _Noon(datetime):
    """Clocks that say 2 March 2026, 12:10 UTC."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime(2026, 3, 2, 12, 10, tzinfo=UTC).astimezone(tz)


def test_days_and_blocks_are_those_of_a_zone(flue: Flue, monkeypatch: pytest.MonkeyPatch) -> None:
    with flue_py.sync.open(flue.database, prices=False) as store:
        session = store.create_session(id="s")
        for day, hour in ((1, 23), (2, 9), (2, 12)):
            usage: JsonObject = {"input": 400, "cost": {"total": 0.25}}
            session.money.record_call(usage, at=datetime(2026, 3, day, hour, tzinfo=UTC))
        session.money.record_call({"input": 400}, at=datetime(2026, 3, 2, 12, 5, tzinfo=UTC))
    by_day = flue.json("usage", "--all", "--by", "day", "--tz", "Asia/Tokyo")["rows"]
    assert [(row["day"], row["calls"]) for row in by_day] == [("2026-03-02", 4)]
    monkeypatch.setattr(read, "datetime", _Noon)
    assert flue.lines("usage", "--tz", "Europe/Berlin")[0].endswith("to 2026-03-02 (CET); --all shows what was before")
    assert flue.run("usage", "--line").stdout == (
        "today $0.5000+ 1.2k tokens | block $0.5000+ 1.2k tokens until 14:00 | month $0.7500+ 1.6k tokens\n"
    )
    told = flue.json("usage", "--line", "--tz", "America/New_York")
    assert (told["block"]["ends"], told["today"]["calls"]) == ("2026-03-02T14:00:00.000000Z", 3)
    flue.run("usage", "s", "--line", code=1)
    assert "not a time zone known here" in flue.run("usage", "--tz", "Mars/Olympus", code=1).stderr


@inputs(
    "asked",
    [
        ["--since", "x"], ["--path"], ["--tree"], ["nope", "--by", "model"], ["triage", "--path", "--tree"],
        ["--all", "--days", "3"], ["--days", "3", "--last-day", "2026-01-01"],
    ],
)  # fmt: skip
def test_what_is_no_question_is_one_line(spent: Flue, asked: list[str]) -> None:
    result = spent.run("usage", *asked, code=4 if "nope" in asked else 1)
    assert (result.stdout, len(result.stderr.splitlines())) == ("", 1)


PRINTED = (
    "sessions", "show free", "tree free", "tree fork", "show free --path", "usage free", "usage nothing", "usage --all",
    "usage free --path", "usage --by session", "diff free fork", "log free", "budget list", "context free",
    "verify",
)  # fmt: skip


def test_no_amount_is_printed_with_an_exponent(flue: Flue) -> None:
    free: JsonObject = {"input": 90, "output": 10, "cost": {"input": 0, "output": 0, "total": 0}}
    least: JsonObject = {"input": 1, "cost": {"total": 1e-12}}
    with flue_py.sync.open(flue.database, prices=False) as store:
        session = store.create_session(key="free", id="s")
        asked = session.append_message({"role": "user", "content": "Why?"}).entry_id
        session.append_messages([{"role": "assistant", "content": "ok", "usage": usage} for usage in (free, least)])
        session.append_compaction("so far", first_kept_entry_id=asked, tokens_before=9, usage=free)
        store.set_budget(session, cost=0, spent_so_far="ledger")
        fork = session.fork(key="fork", at=asked)
        fork.append_message({"role": "assistant", "content": "yes", "usage": free})
        store.create_session(key="nothing")
        amounts = (store.usage(fork).total.cost, fork.info.spent, fork.money.aggregate_usage_since(None).usage.cost.usd)
        assert [str(amount) for amount in amounts] == ["0"] * 3
    texts = [flue.run(*command.split(), *options).stdout for command in PRINTED for options in ([], ["--json"])]
    texts += [
        flue.run(*command.split()).stdout
        for command in ("export markdown free", "export html free --output -", "show free --history")
    ]
    assert not [found for text in texts for found in re.findall(r"\dE[-+]\d.*", text)]
    assert any("0.000000000001" in text for text in texts)
