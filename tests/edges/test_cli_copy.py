"""The copy command: what it copies, says and refuses, and how it ends."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import make_url

import flue_py
from tests.edges.cli_runs import Flue, with_a_bar_at_once
from tests.postgres import NewDatabase
from tests.tables import inputs
from tests.values import existing


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new" / "house.db"


def in_target(target: Path | str) -> Flue:
    flue = Flue(Path())
    flue.database = target  # type: ignore[assignment]
    return flue


def append_to(database: Path, session_id: str, text: str = "more") -> None:
    with flue_py.sync.open(database) as store:
        session = existing(store.open_session(session_id) if session_id == "key" else store.get_session(session_id))
        session.append_message({"role": "user", "content": text})


def make_another(database: Path) -> str:
    with flue_py.sync.open(database) as store:
        return store.create_session(title="Another").id


def test_everything_is_copied_and_verified_at_both_ends(flue: Flue, target: Path) -> None:
    session = flue.import_every_type()
    flue.run("fork", session, "--title", "What if")
    said = flue.lines("copy", str(flue.database), str(target))
    assert said[0] == "trees: 1 copied"
    assert said[1].startswith("written: 2 sessions, ")
    assert said[2].partition(": ")[2] == said[3].partition(": ")[2]
    assert said[4:] == ["verified at both ends: 0 problems"]
    there = in_target(target)
    assert there.json("sessions") == flue.json("sessions")
    for command in ("tree", "context", "usage"):
        assert there.json(command, session) == flue.json(command, session)


def test_the_target_is_made_for_its_owner_alone(flue: Flue, target: Path) -> None:
    flue.import_every_type()
    flue.run("copy", str(flue.database), str(target))
    assert {path.stat().st_mode & 0o777 for path in target.parent.iterdir()} == {0o600}
    assert target.parent.stat().st_mode & 0o777 == 0o700


def test_a_later_run_brings_what_is_new(flue: Flue, target: Path) -> None:
    session = flue.import_every_type()
    make_another(flue.database)
    arguments = ("copy", str(flue.database), str(target))
    assert flue.json(*arguments)["treesCopied"] == 2
    append_to(flue.database, session)
    report = flue.json(*arguments)
    assert (report["treesCopied"], report["treesRefreshed"], report["treesUnchanged"]) == (0, 1, 1)
    assert in_target(target).json("show", session, "--path") == flue.json("show", session, "--path")
    assert flue.lines(*arguments)[0] == "trees: 2 unchanged"


def test_budgets_are_copied_and_counted(flue: Flue, target: Path) -> None:
    session = flue.import_every_type()
    flue.run("budget", "set", session, "--tokens", "1000")
    said = flue.lines("copy", str(flue.database), str(target))
    assert "1 budget, " in said[1]
    assert in_target(target).json("budget", "list") == flue.json("budget", "list")
    report = flue.json("copy", str(flue.database), str(target))
    assert (report["budgets"], report["budgetsKept"], report["budgetsLeft"]) == (0, 1, [])


def test_a_budget_that_the_target_has_otherwise_is_refused_with_the_one_to_delete(flue: Flue, target: Path) -> None:
    make_another(flue.database)
    flue.run("copy", str(flue.database), str(target))
    ours, theirs = (each.json("budget", "set", "--all", "--tokens", "5")["id"] for each in (flue, in_target(target)))
    report = flue.json("copy", str(flue.database), str(target), code=1)
    why = f"the target has '{theirs}' of all sessions, in tokens; delete '{theirs}' there, then copy again"
    assert report["budgetsLeft"] == [{"budgetId": ours, "refused": True, "reason": f"budget '{ours}': {why}"}]
    in_target(target).run("budget", "rm", theirs, "--yes")
    assert flue.json("copy", str(flue.database), str(target))["budgets"] == 1


def test_json_tells_it_to_programs(flue: Flue, target: Path) -> None:
    session = flue.import_every_type()
    report = flue.json("copy", str(flue.database), str(target))
    info = flue.json("info")
    size = {"sizeBytes"}
    assert {key: report["source"][key] for key in report["source"].keys() - size} == {
        key: info[key] for key in info.keys() - size
    }
    assert report["target"]["location"] == str(target)
    assert report | {"source": None, "target": None, "payloadBytes": 0} == {
        "complete": True, "treesCopied": 1, "treesRefreshed": 0, "treesUnchanged": 0, "sessions": 1,
        "entries": len(flue.json("tree", session)["entries"]), "paidCalls": info["ledgerRows"], "budgets": 0,
        "budgetsKept": 0, "budgetsLeft": [], "documents": 0, "documentsKept": 0, "documentsLeft": [], "payloadBytes": 0,
        "removedIds": [], "refused": [], "onlyInTarget": 0, "onlyInTargetIds": [], "source": None, "target": None,
        "sourceWentOn": False, "verified": True, "sourceProblems": [], "targetProblems": [],
    }  # fmt: skip


def test_what_was_changed_in_the_target_is_refused_by_name_and_the_rest_is_copied(flue: Flue, target: Path) -> None:
    session = flue.import_every_type()
    arguments = ("copy", str(flue.database), str(target))
    flue.run(*arguments)
    append_to(target, session, "there")
    append_to(flue.database, session, "here")
    other = make_another(flue.database)
    there = in_target(target)
    before = there.json("tree", session)
    result = flue.run(*arguments, code=1)
    assert f"refused: session '{session}' was copied before, and its copy has been changed" in result.stdout
    report = flue.json(*arguments, code=1)
    assert [refusal["sessionId"] for refusal in report["refused"]] == [session]
    assert not report["complete"]
    assert there.json("tree", session) == before
    assert there.json("show", other, "--path") == flue.json("show", other, "--path")


def test_what_only_the_target_has_is_named_and_stays(flue: Flue, target: Path) -> None:
    session = flue.import_every_type()
    arguments = ("copy", str(flue.database), str(target))
    flue.run(*arguments)
    flue.run("rm", session, "--yes")
    assert f"only in the target: 1 session ({session})" in flue.lines(*arguments)
    assert in_target(target).json("show", session)["id"] == session


def test_a_session_deleted_from_a_tree_that_stays_is_named(flue: Flue, target: Path) -> None:
    session = flue.import_every_type()
    fork = flue.json("fork", session)["id"]
    arguments = ("copy", str(flue.database), str(target))
    flue.run(*arguments)
    flue.run("rm", fork, "--yes")
    assert f"deleted in the source, and now in the target: 1 session ({fork})" in flue.lines(*arguments)
    assert [row["id"] for row in in_target(target).json("sessions")] == [session]


def test_damage_is_named_and_the_exit_code_says_so(flue: Flue, target: Path) -> None:
    flue.import_every_type()
    with closing(sqlite3.connect(flue.database)) as connection:
        connection.execute("UPDATE entries SET input_tokens = input_tokens + 1 WHERE depth = 1")
        connection.commit()
    lines = flue.run("copy", str(flue.database), str(target), code=1).stdout.splitlines()
    assert {line.partition(":")[0] for line in lines[4:-1]} == {"source", "target"}
    assert lines[-1].startswith("verified at both ends: ")
    unverified = flue.json("copy", str(flue.database), str(target), "--no-verify")
    assert (unverified["complete"], unverified["verified"], unverified["treesUnchanged"]) == (True, False, 1)


def test_what_is_missing_in_the_target_is_counted(flue: Flue, target: Path) -> None:
    flue.import_every_type()
    arguments = ("copy", str(flue.database), str(target), "--no-verify")
    flue.run(*arguments)
    with closing(sqlite3.connect(target)) as connection:
        connection.execute("DELETE FROM ledger")
        connection.commit()
    calls = flue.json("info")["ledgerRows"]
    assert calls > 0
    assert flue.json(*arguments, code=1)["targetProblems"] == [
        {"kind": "wrong count", "where": "paid calls", "detail": f"the source holds {calls}, the target 0"}
    ]


# -- what cannot be a source or a target ------------------------------------------------------------------------------


def test_a_store_is_not_copied_onto_itself(flue: Flue) -> None:
    flue.import_every_type()
    for other in (str(flue.database), f"sqlite+aiosqlite:///{flue.database}"):
        assert "same store" in flue.run("copy", str(flue.database), other, code=1).stderr


def test_a_source_that_is_not_there_is_not_made_and_neither_is_the_target(flue: Flue, target: Path) -> None:
    for source in (str(flue.database), f"sqlite+aiosqlite:///{flue.database}"):
        assert "there is no database at" in flue.run("copy", source, str(target), code=1).stderr
    assert list(flue.folder.iterdir()) == []


@pytest.mark.parametrize("end", ["source", "target"])
@pytest.mark.parametrize("what", ["newer", "foreign", "no database"])
def test_a_database_that_is_newer_or_somebody_elses_is_refused_at_either_end(
    flue: Flue, target: Path, end: str, what: str
) -> None:
    flue.import_every_type()
    bad = flue.folder / "bad.db"
    if what == "newer":
        in_target(bad).run("migrate")
    if what == "no database":
        bad.write_bytes(b"This is no database. " * 100)
    else:
        with closing(sqlite3.connect(bad)) as connection:
            statement = "UPDATE flue_store SET value = 99 WHERE name = 'format'"
            connection.execute("CREATE TABLE sessions (theirs)" if what == "foreign" else statement)
            connection.commit()
    before = bad.read_bytes()
    ends = (bad, target) if end == "source" else (flue.database, bad)
    errors = flue.run("copy", *map(str, ends), code=1).stderr
    assert len(errors.splitlines()) == 1
    assert str(bad) in errors
    assert bad.read_bytes() == before
    assert not target.exists()


# -- PostgreSQL, and secrets ------------------------------------------------------------------------------------------


def test_a_house_moves_to_postgresql_and_back(flue: Flue, target: Path, new_database: NewDatabase) -> None:
    session = flue.import_every_type()
    url = new_database()
    flue.run("copy", str(flue.database), url)
    report = flue.json("copy", url, str(target))
    assert (report["complete"], report["treesCopied"]) == (True, 1)
    assert in_target(target).json("tree", session) == flue.json("tree", session)


@inputs(
    "url",
    [
        "postgresql+asyncpg://app:hunter2@/app?host=/nonexistent/folder",
        "postgresql+asyncpg://app:hunter2@[broken/app",
        "postgresql+asyncpg://app:hunter2@host:port/app",
        "postgresql://app:hunter2@host/app",
        "mysql://app:hunter2@host/app",
    ],
)
def test_a_password_is_never_printed(flue: Flue, target: Path, url: str) -> None:
    flue.import_every_type()
    for ends in ((str(flue.database), url), (url, str(target))):
        result = flue.run("copy", *ends, code=1)
        assert len(result.stderr.splitlines()) == 1
        assert "hunter2" not in result.stdout + result.stderr


def test_the_location_of_a_store_is_told_without_its_password(flue: Flue, new_database: NewDatabase) -> None:
    flue.import_every_type()
    named = make_url(new_database())
    password = str(named.password or "hunter2")
    url = named.set(password=password).render_as_string(hide_password=False)
    assert password in url
    for options in ((), ("--json",)):
        result = flue.run("copy", str(flue.database), url, *options)
        assert password not in result.stdout + result.stderr


# -- on a terminal ----------------------------------------------------------------------------------------------------


def test_a_bar_is_shown_on_stderr_where_that_is_a_terminal(flue: Flue, target: Path) -> None:
    flue.import_every_type()
    done, shown = with_a_bar_at_once("copy", str(flue.database), str(target), "--json")
    assert json.loads(done)["complete"]
    assert "verifying" in shown
    assert "1/1 sessions" in shown


def test_nothing_is_shown_on_stderr_elsewhere(flue: Flue, target: Path) -> None:
    flue.import_every_type()
    assert flue.run("copy", str(flue.database), str(target)).stderr == ""
