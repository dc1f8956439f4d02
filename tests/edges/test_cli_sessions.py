"""The listing on the command line: orders, titles, and costs that are known in part."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import flue_py.sync
from flue_py.core.ledger import Dimension, UsageReport
from flue_py.core.sessions import HARNESS, SessionInfo
from flue_py.render.views import spent
from flue_py.sessions.store import Store
from tests.checks import give_heads
from tests.edges.cli_runs import Flue


def said(text: str, dollars: float | None = None) -> dict[str, object]:
    if dollars is None:
        return {"role": "user", "content": text}
    usage = {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2, "cost": {"total": dollars}}
    return {"role": "assistant", "content": text, "usage": usage}


@pytest.fixture
def flue(tmp_path: Path) -> Flue:
    """A store with three sessions: given, made, and without a title."""
    flue = Flue(tmp_path)
    with flue_py.sync.open(flue.database) as store:
        for key, title, made, cost, count in (
            ("a", "Red build", "Made", 1.25, 1),
            ("b", None, "A lock", 5.0, 3),
            ("c", None, None, 0.5, 2),
        ):
            session = store.create_session(key=key, title=title)
            session.append_messages([said(f"{key} says hello"), *[said("ok", cost / count)] * count])
            if made:
                session.set_title(made, auto=True)
    return flue


def keys(flue: Flue, *options: str) -> str:
    return "".join(row["key"] for row in flue.json("sessions", *options))


def test_sessions_are_sorted_in_every_order(flue: Flue) -> None:
    assert keys(flue) == keys(flue, "--sort", "updated") == "cba"
    assert keys(flue, "--reverse") == "abc"
    assert keys(flue, "--sort", "cost") == "bac"
    assert keys(flue, "--sort", "cost", "--reverse", "--limit", "2") == "ca"
    assert keys(flue, "--sort", "messages") == "bca"
    assert keys(flue, "--sort", "created") == "cba"
    assert keys(flue, "--sort", "title") == "bca"
    assert keys(flue, "--sort", "title", "--reverse") == "acb"
    assert "title" in flue.run("sessions", "--sort", "size", code=2).stderr


def test_sessions_are_found_by_the_beginning_of_their_scope_and_by_metadata(tmp_path: Path) -> None:
    flue = Flue(tmp_path)
    with flue_py.sync.open(flue.database) as store:
        for key, scope, user in (("a", "team/1", "ada"), ("b", "team/2", "7"), ("c", "guest", 7), ("d", "guest", None)):
            store.create_session(key=key, scope=scope, metadata={"user": user, "all": True})
        store.create_session(key="h", metadata={HARNESS: "run"})
    assert ["h" in keys(flue, *options) for options in ((), ("--all",), ("--kind", "root"))] == [False, True, True]
    assert keys(flue, "--newest", "2") == "dc"
    assert "harness are left out; --all" in flue.run("sessions").stderr
    assert "left out" not in flue.run("sessions", "--all").stderr
    assert keys(flue, "--scope-prefix", "team/") == "ba"
    assert keys(flue, "--metadata", "user=ada") == keys(flue, "--metadata", 'user="ada"') == "a"
    assert keys(flue, "--metadata", "user=7") == "c"
    assert keys(flue, "--metadata", 'user="7"', "--metadata", "all=true") == "b"
    assert keys(flue, "--metadata", "user=null") == "d"
    assert keys(flue, "--metadata", "user=[7]") == keys(flue, "--metadata", "no=1") == ""
    assert "KEY=VALUE" in flue.run("sessions", "--metadata", "user", code=2).stderr


def test_titles_are_sorted_as_they_are_listed_keys_and_first_messages_among_them(tmp_path: Path) -> None:
    flue = Flue(tmp_path)
    with flue_py.sync.open(flue.database) as store:
        for key, title in (("zeta", None), ("alpha", None), ("k1", "Middle"), ("k2", "apple")):
            store.create_session(key=key, title=title)
        said_first = store.create_session()
        said_first.append_message(said("Hello there"))
        said_first.fork()
    names = [row["name"] for row in flue.json("sessions", "--sort", "title")]
    assert names == ["alpha", "apple", "fork of Hello there", "Hello there", "Middle", "zeta"]
    assert [row["name"] for row in flue.json("sessions", "--sort", "title", "--reverse")] == names[::-1]
    limited = flue.json("sessions", "--sort", "title", "--kind", "root", "--limit", "2")
    assert [row["name"] for row in limited] == ["alpha", "apple"]


def test_only_the_ledger_of_the_sessions_listed_is_read(flue: Flue, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    read = Store.usage

    async def usage(store: Store, sessions: list[SessionInfo], *, group_by: tuple[Dimension, ...]) -> UsageReport:
        asked.append([info.key or "" for info in sessions])
        return await read(store, sessions, group_by=group_by)

    monkeypatch.setattr(Store, "usage", usage)
    assert keys(flue, "--limit", "2") == "cb"
    assert keys(flue, "--title", "made") == ""
    assert asked == [["c", "b"], []]


def test_sessions_are_found_by_the_title_that_is_shown(flue: Flue) -> None:
    assert keys(flue, "--title", "LOCK") == "b"
    assert keys(flue, "--title", "made") == ""
    assert keys(flue, "--title", "says") == ""
    assert keys(flue, "--title", "C", "--sort", "cost") == "bc"


def test_a_listing_shows_the_given_title_else_the_made_one(flue: Flue) -> None:
    shown = "\n".join(flue.lines("sessions"))
    assert all(title in shown for title in ("Red build", "A lock"))
    assert "Made" not in shown
    (row,) = flue.json("sessions", "--title", "lock")
    assert (row["title"], row["autoTitle"], row["unpricedCalls"]) == (None, "A lock", 0)
    assert "made title   Made" in flue.lines("show", "a")


def test_a_cost_that_is_not_all_known_is_marked(flue: Flue) -> None:
    with closing(sqlite3.connect(flue.database)) as connection:
        connection.execute("UPDATE sessions SET unpriced_calls = 1 WHERE key IN ('a', 'c')")
        connection.execute("UPDATE sessions SET spent_cost = 0 WHERE key = 'c'")
        connection.commit()
    give_heads(flue.database)
    rows = {line.split()[-1]: line for line in flue.lines("sessions")}
    assert "1.25 + ?" in rows["build"]
    assert "5.00" in rows["lock"]
    assert "?" not in rows["lock"]
    assert " - " in next(line for line in flue.lines("sessions") if line.endswith(" c"))
    assert "$1.25 + ?" in "\n".join(flue.lines("show", "a"))


def test_what_a_session_spent_is_never_zero_where_nothing_is_known() -> None:
    assert spent(SessionInfo("s"), "0.00") == "0.00"
    assert spent(SessionInfo("s", unpriced_calls=2), "0.00") == "-"
    assert spent(SessionInfo("s", unpriced_calls=2, spent_picodollars=1), "0.00") == "0.00 + ?"
    # Something was said, and the ledger has no call of it.
    assert spent(SessionInfo("s", message_count=2), "0.00") == "-"
    assert spent(SessionInfo("s", message_count=2, spent_tokens=9), "0.00") == "0.00"


def test_the_listing_the_facts_and_the_tree_agree_on_what_a_session_has_paid(flue: Flue) -> None:
    with flue_py.sync.open(flue.database, prices={"m": [1, 2]}) as store:
        session = store.create_session(key="paid")
        priced = {"role": "assistant", "content": "ok", "provider": "p", "model": "m", "usage": {"input": 1250}}
        session.append_messages([said("hello"), priced, {**priced, "model": "unknown"}])
        session.money.record_call({"input": 1, "cost": {"total": 0.5}}, purpose="title")
        fork = session.fork(key="fork")
        fork.append_message(priced)
        store.create_session(key="free").append_messages([said("hello"), {"role": "assistant", "content": "ok"}])
    lines = flue.lines("sessions")
    listed = {row["key"]: row for row in flue.json("sessions")}
    for key, column, fact, title in (
        ("paid", "0.5012 + ?", "$0.50125 + ?", "$0.5012 + ?"),
        ("fork", "0.0012", "$0.00125", "$0.0012"),
        ("free", " - ", " -", "no known cost"),
    ):
        line = next(line for line in lines if listed[key]["id"][:8] in line)
        assert column in line
        assert next(line for line in flue.lines("show", key) if line.startswith("spent")).endswith(fact)
        assert flue.lines("tree", key)[0].endswith(f", {title}")
        assert flue.json("tree", key)["spent"] == listed[key]["spent"]
    # The fork sees an answer that it has not paid: its line has a cost all the same.
    costs = [entry.get("cost") for entry in flue.json("tree", "fork")["entries"]]
    assert costs == [None, "0.00125", None, "0.00125"]
    assert [entry.get("costIsWhole") for entry in flue.json("tree", "fork")["entries"]] == [None, True, False, True]


def test_a_call_without_a_model_counts_for_none(flue: Flue) -> None:
    with flue_py.sync.open(flue.database) as store:
        store.find_session("c").append_messages([{**said("ok", 1.0), "provider": "p", "model": "m"}])
    assert {row["key"]: row["model"] for row in flue.json("sessions")} == {"a": None, "b": None, "c": "m"}


def test_a_damaged_session_is_named_and_the_others_are_listed_and_written(flue: Flue) -> None:
    rows = {row["key"]: row["id"] for row in flue.json("sessions")}
    fork = flue.json("fork", rows["c"])["id"]
    with closing(sqlite3.connect(flue.database)) as connection:
        connection.execute("UPDATE sessions SET auto_title = 'forged', first_message = 'forged' WHERE key = 'c'")
        connection.commit()
    for options in ((), ("--newest", "2"), ("--sort", "title")):
        listed = flue.json("sessions", *options)
        assert [row for row in listed if "name" not in row] == [{"id": rows["c"], "damaged": True}], options
        assert {rows["a"], rows["b"]} & {row["id"] for row in listed}, options
    printed = flue.run("sessions").stdout
    assert f"{rows['c']}  damaged, or changed by other means: flue-py verify says more" in printed
    assert "forged" not in printed
    for name in (rows["c"], "c"):
        assert f"session '{rows['c']}': its row does not match its head" in flue.run("show", name, code=1).stderr
    assert flue.json("show", "b")["id"] == rows["b"]
    for command in (("show",), ("rm", "--inactive-for", "0d", "--yes")):
        assert f"session '{rows['c']}'" in flue.run(*command, code=1).stderr, command
    folder = str(flue.folder / "report")
    written = flue.json("report", "--all", "--output", folder)
    # A fork shows the marks of its source.
    assert (written["sessions"], sorted(written["damaged"])) == (2, sorted([rows["c"], fork]))
    index = (flue.folder / "report" / "index.html").read_text()
    assert f'"damaged":{json.dumps(written["damaged"], separators=(",", ":"))}' in index
    assert "forged" not in index
