"""The commands about conversations, and those that delete many sessions."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import flue_py
from flue_py.core.sessions import NewSession
from tests.edges.cli_runs import Flue, on_a_terminal
from tests.formats.pi_files import every_type
from tests.samples import placed, user


def make(flue: Flue, *sessions: dict[str, Any], now: datetime | None = None) -> list[str]:
    """Create sessions; return their ids."""

    async def work() -> list[str]:
        clock = None if now is None else lambda: now
        made = []
        async with flue_py.open(flue.database, clock=clock) as store:
            for fields in sessions:
                session = await store.create_session(**{k: v for k, v in fields.items() if k != "completed"})
                if fields.get("completed"):
                    await session.set_completed(datetime.now(UTC))
                made.append(session.id)
        return made

    return asyncio.run(work())


def talk(flue: Flue, turns: int = 3) -> str:
    """Create a conversation with a system message and turns."""

    with flue_py.sync.open(flue.database) as store:
        session = store.create_session(key="talk", title="A talk")
        session.append_message({"role": "system", "content": "Be brief."})
        for n in range(1, turns + 1):
            answer = {"role": "assistant", "content": [{"type": "text", "text": f"answer {n}\x1b[2J"}]}
            session.append_messages([{"role": "user", "content": f"question {n}"}, answer])
        return session.id


def listed(flue: Flue, *options: str) -> set[str]:
    return {session["id"] for session in flue.json("sessions", *options)}


# -- conversations ----------------------------------------------------------------------------------------------------


def test_a_conversation_is_resumed_listed_and_shown(flue: Flue) -> None:
    talk(flue)
    assert flue.lines("show", "talk", "--history", "--last", "1") == [
        "A talk: 3 turns",
        "> question 3",
        "answer 3\ufffd[2J",
    ]
    assert len(flue.lines("show", "talk", "--history", "--last", "3")) == 7
    assert flue.lines("show", "talk", "--turns")[0] == "   1  question 1"
    assert [turn["number"] for turn in flue.json("show", "talk", "--turns")] == [1, 2, 3]
    assert flue.lines("show", "talk", "--history")[-2:] == ["> question 3", "answer 3\ufffd[2J"]
    assert [entry["role"] for entry in flue.json("show", "talk", "--history")][:2] == ["system", "user"]
    assert flue.lines("show", "talk", "--answer") == ["answer 3\ufffd[2J"]
    assert flue.json("show", "talk", "--answer")["role"] == "assistant"


def test_clearing_and_retrying_are_moves_that_undo_takes_back(flue: Flue) -> None:
    session = talk(flue)
    assert flue.lines("undo", "talk", "--turn", "--message") == ["question 3"]
    retried = flue.json("undo", "talk", "--turn", "--message")
    assert (retried["message"]["content"], retried["sessionId"], retried["reason"]) == ("question 2", session, "rewind")
    assert flue.json("move", "talk", "--turns", "0")["moved"] is True
    assert [entry["role"] for entry in flue.json("show", "talk", "--path")] == ["system"]
    assert flue.lines("move", "talk", "--turns", "0")[0].startswith("there is nothing to go back over")
    assert flue.json("undo", "talk", "--turn", "--message")["message"] is None
    nothing = flue.run("undo", "talk", "--turn", "--message")
    assert (nothing.stdout, nothing.stderr) == ("", "there is no user message to take back\n")
    for _ in range(3):
        flue.run("undo", "talk")
    assert len(flue.json("show", "talk", "--turns")) == 3


def test_rewinding_by_turns_takes_the_minus_at_its_word(flue: Flue) -> None:
    talk(flue)
    assert flue.json("move", "talk", "--turns", "-0")["moved"] is False
    assert "not a number of turns" in flue.run("move", "talk", "--turns", "--3", code=2).stderr
    assert flue.json("move", "talk", "--turns", "-1")["moved"] is True
    assert len(flue.json("show", "talk", "--turns")) == 2


def test_a_session_without_words_says_so(flue: Flue) -> None:
    make(flue, {"key": "empty"})
    assert flue.lines("show", "empty", "--turns") == ["there are no turns yet"]
    assert flue.lines("show", "empty", "--history") == ["there are no turns yet"]
    assert flue.lines("show", "empty", "--answer") == ["there is no answer yet"]
    assert flue.json("show", "empty", "--answer") is None
    assert flue.lines("show", "empty", "--history", "--last", "3") == ["empty: 0 turns"]


def test_saving_writes_a_private_file_or_prints(flue: Flue, tmp_path: Path) -> None:
    talk(flue)
    assert flue.run("export", "markdown", "talk", "--words-only").stdout.startswith("# REPL Transcript\n\n**Model:** -")
    file = tmp_path / "talk.md"
    flue.run("export", "markdown", "talk", "--words-only", "--output", str(file))
    assert "answer 3\x1b[2J" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert (
        "is there already"
        in flue.run("export", "markdown", "talk", "--words-only", "--output", str(file), code=1).stderr
    )
    assert (
        "No such file"
        in flue.run(
            "export", "markdown", "talk", "--words-only", "--output", str(tmp_path / "none" / "x"), code=1
        ).stderr
    )
    state = json.loads(flue.run("export", "json", "talk").stdout)
    assert [len(state["entries"]), state["session"]["key"]] == [7, "talk"]
    flue.run("export", "json", "talk", "--output", str(tmp_path / "talk.json"))
    assert json.loads((tmp_path / "talk.json").read_text()) == state


def test_a_session_that_is_not_there_is_said_by_every_command(flue: Flue) -> None:
    make(flue, {"key": "there"})
    calls = ["show", "show --turns", "show --history", "show --answer", "undo --turn", "export json", "rm"]
    for call in calls:
        assert "'nobody'" in flue.run(*call.split(), "nobody", code=4).stderr


# -- listing ----------------------------------------------------------------------------------------------------------


def test_sessions_are_listed_by_project_and_whether_they_are_completed(flue: Flue) -> None:
    ids = make(flue, {"cwd": "/srv/a"}, {"cwd": "/srv/a/below/", "completed": True}, {"cwd": "/srv/ab"}, {})
    assert listed(flue, "--all") == set(ids)
    assert listed(flue) == {ids[0], ids[2], ids[3]}
    assert listed(flue, "--project", "/srv/a", "--all") == {ids[0], ids[1]}
    assert listed(flue, "--project", "/srv/a/../a/", "--limit", "5") == {ids[0]}
    assert listed(flue, "--project", "/srv/a", "--kind", "fork") == set()
    assert listed(flue, "--newest", "3") == listed(flue)
    note = "completed sessions are left out; --all lists them, too\n"
    told = [flue.run("sessions", *options).stderr for options in ((), ("--json",), ("--all",), ("--kind", "fork"))]
    assert told == [note, note, "", ""]


# -- deleting by the lot ----------------------------------------------------------------------------------------------


def test_rm_all_deletes_what_is_completed_unless_a_session_is_called_so(flue: Flue) -> None:
    done, going = make(flue, {"completed": True}, {})
    assert flue.lines("rm", "ALL", "--dry-run") == ["1 session, 0 entries would be deleted", f"  {done}  (empty)"]
    assert flue.lines("rm", "all", "--yes") == ["1 session, 0 entries deleted", f"  {done}  (empty)"]
    assert listed(flue) == {going}
    assert done not in listed(flue)
    (named,) = make(flue, {"key": "all"})
    assert flue.json("rm", "all", "--yes")["sessionIds"] == [named]


def test_prune_deletes_sessions_whose_configuration_is_gone(flue: Flue, tmp_path: Path) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text("")
    kept, gone, never = make(
        flue, {"config_path": str(config)}, {"config_path": str(tmp_path / "none"), "completed": True}, {}
    )
    planned = flue.json("rm", "--config-gone", "--dry-run")
    assert (planned["dryRun"], planned["sessionIds"], planned["counts"]["entries"]) == (True, [gone], 0)
    assert set(flue.json("rm", "--config-gone", "--without-config", "--dry-run")["sessionIds"]) == {gone, never}
    assert len(listed(flue, "--all")) == 3
    assert flue.lines("rm", "--config-gone", "--scope", "nobody") == ["0 sessions, 0 entries deleted"]
    assert flue.lines("rm", "--config-gone", "--yes") == ["1 session, 0 entries deleted", f"  {gone}  (empty)"]
    assert listed(flue) == {kept, never}
    config.unlink()
    assert flue.lines("rm", "--config-gone", "--yes")[0] == "1 session, 0 entries deleted"
    assert listed(flue) == {never}


def test_cleanup_goes_by_the_time_of_the_newest_entry_and_takes_no_task_alone(flue: Flue) -> None:
    with flue_py.sync.open(flue.database) as store:
        entry = placed(user(), "a", at_us=5)
        store.import_session(NewSession(id="imported"), [entry], leaf="a")
        store.import_session(NewSession(id="waiting", kind="task"), [entry], leaf="a")
    assert flue.json("rm", "--inactive-for", "30d", "--yes")["sessionIds"] == ["imported"]
    assert listed(flue) == {"waiting"}


def test_cleanup_deletes_what_was_not_active_for_long(flue: Flue) -> None:
    now = datetime.now(UTC)
    (old,) = make(flue, {}, now=now - timedelta(days=31))
    (older,) = make(flue, {}, now=now - timedelta(days=80))
    (new,) = make(flue, {})
    assert set(flue.json("rm", "--inactive-for", "30d", "--dry-run")["sessionIds"]) == {old, older}
    assert flue.json("rm", "--inactive-for", "10w", "--yes")["sessionIds"] == [older]
    assert listed(flue) == {old, new}
    assert "is not an age" in flue.run("rm", "--inactive-for", "soon", code=2).stderr
    assert flue.lines("rm", "--inactive-for", "30d", "--yes") == ["1 session, 0 entries deleted", f"  {old}  (empty)"]


def test_deleting_by_the_lot_asks_at_a_terminal(flue: Flue) -> None:
    make(flue, {"title": "Do not forget me"})
    code, output = on_a_terminal("--db", str(flue.database), "rm", "--config-gone", "--without-config", typed="n\n")
    assert code == 1
    assert "Do not forget me" in output
    assert len(listed(flue)) == 1


def test_an_imported_session_is_a_conversation_too(flue: Flue) -> None:
    session = flue.import_rows(every_type())
    assert [turn["preview"] for turn in flue.json("show", session, "--turns")]
    assert flue.run("export", "markdown", session, "--words-only").stdout.count("**User**") == len(
        flue.json("show", session, "--turns")
    )
