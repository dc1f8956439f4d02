"""The commands that write: fork, move, rewind, undo, redo, label, rm."""

from __future__ import annotations

import asyncio

import flue_py
from tests.edges.cli_runs import Flue, on_a_terminal
from tests.formats.pi_files import every_type
from tests.tables import inputs
from tests.values import existing


def leaf_of(flue: Flue, session: str) -> str | None:
    leaf = flue.json("show", session)["leafId"]
    assert leaf is None or isinstance(leaf, str)
    return leaf


def with_tasks(flue: Flue, session: str) -> list[str]:
    """Start a task session and one below it; return their ids."""

    async def work() -> list[str]:
        async with flue_py.open(flue.database) as store:
            parent = existing(await store.get_session(session))
            child = await parent.tasks.create(task_id="t1", title="Check it")
            await child.append_message({"role": "user", "content": "check"})
            return [child.id, (await child.tasks.create(task_id="t2")).id]

    return asyncio.run(work())


def test_a_fork_begins_where_it_is_told_and_leaves_its_source_alone(flue: Flue) -> None:
    session = flue.import_every_type()
    fork = flue.json("fork", session, "--at", "a0000001", "--title", "What if")
    assert fork["leafId"] == "a0000001"
    assert fork["forkedFrom"] == {"sessionId": session, "entryId": "a0000001"}
    assert leaf_of(flue, session) == "f0000001"
    assert flue.lines("fork", session)[0].endswith("begins at f0000001")
    whole = flue.json("fork", session, "--branches", "--project", str(flue.folder))
    assert (whole["cwd"], whole["leafId"]) == (str(flue.folder), "f0000001")
    ids = [[entry["id"] for entry in flue.json("tree", name, "--all")["entries"]] for name in (session, whole["id"])]
    assert ids[0] == ids[1]
    assert "--at" in flue.run("fork", session, "--branches", "--at", "a0000001", code=2).stderr


def test_a_taken_key_is_refused(flue: Flue) -> None:
    session = flue.import_every_type()
    flue.run("fork", session, "--key", "other")
    assert "other" in flue.run("fork", session, "--key", "other", code=6).stderr
    assert len(flue.json("sessions")) == 2


def test_the_leaf_moves_to_any_branch_and_back(flue: Flue) -> None:
    session = flue.import_every_type()
    moved = flue.json("move", session, "h0000001")
    assert (moved["fromId"], moved["leafId"], moved["reason"]) == ("f0000001", "h0000001", "move")
    assert leaf_of(flue, session) == "h0000001"
    assert flue.lines("undo", session) == ["undo: the leaf went from h0000001 to f0000001"]
    assert flue.lines("redo", session) == ["redo: the leaf went from f0000001 to h0000001"]
    assert "nothing to do again; the leaf is h0000001" in flue.lines("redo", session)[0]
    assert flue.json("move", session, "--before-first")["leafId"] is None


def test_undo_says_when_there_is_nothing_left(flue: Flue) -> None:
    session = flue.import_rows(every_type()[:1])
    assert flue.lines("undo", session) == ["there is nothing to undo; the leaf is before the first entry"]
    assert flue.json("undo", session) == {
        "sessionId": session, "moved": False, "reason": None, "fromId": None, "leafId": None,
    }  # fmt: skip


def test_the_leaf_goes_back_by_turns_or_to_an_entry(flue: Flue) -> None:
    session = flue.import_every_type()
    assert flue.json("move", session, "--turns", "-1")["leafId"] == "i0000001"
    assert flue.json("move", session, "--turns", "5")["moved"] is False
    assert flue.json("move", session, "u0000001")["leafId"] == "u0000001"
    assert flue.json("move", session, "--turns", "0")["leafId"] == "t0000001"


def test_labels_are_set_shown_and_cleared(flue: Flue) -> None:
    session = flue.import_every_type()
    flue.run("label", session, "u0000001", "the question")
    assert flue.json("show", session, "u0000001")["label"] == "the question"
    (said,) = flue.lines("label", session, "u0000001", "--clear")
    assert said == "entry u0000001 has no label; context 37 tokens, unchanged"
    assert flue.json("show", session, "u0000001")["label"] is None


@inputs(
    "arguments",
    [
        ["move", "S"], ["move", "S", "u0000001", "--before-first"], ["move", "S", "u0000001", "--turns", "1"],
        ["move", "S", "--turns", "some"], ["label", "S", "u0000001"], ["label", "S", "u0000001", "text", "--clear"],
        ["sessions", "--kind", "odd"], ["sessions", "--limit", "0"], ["show", "S", "--path", "--last", "0"],
        ["no-such-command"], ["log"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_wrong_usage_ends_with_code_2_and_changes_nothing(flue: Flue, arguments: list[str]) -> None:
    session = flue.import_every_type()
    before = flue.json("show", session)
    result = flue.run(*[session if each == "S" else each for each in arguments], code=2)
    assert "Error: " in result.stderr
    assert flue.json("show", session) == before


def test_rm_deletes_the_session_with_its_tasks_and_keeps_forks(flue: Flue) -> None:
    session = flue.import_every_type()
    tasks = with_tasks(flue, session)
    fork = flue.json("fork", session, "--at", "a0000001")["id"]
    planned = flue.json("rm", session, "--dry-run")
    assert planned["dryRun"] is True
    assert set(planned["sessionIds"]) == {session, *tasks}
    assert len(flue.json("sessions")) == 4
    done = flue.json("rm", session, "--yes")
    assert {**planned, "dryRun": False, "atUs": done["atUs"], "sessionIds": set(planned["sessionIds"])} == {
        **done,
        "sessionIds": set(done["sessionIds"]),
    }
    assert [each["id"] for each in flue.json("sessions")] == [fork]
    assert len(flue.json("show", fork, "--path")) == 4
    assert flue.json("verify")["problems"] == []


def test_rm_says_what_went(flue: Flue) -> None:
    session = flue.import_every_type()
    tasks = with_tasks(flue, session)
    lines = flue.lines("rm", tasks[0], "--yes")
    assert lines[0] == "2 sessions, 1 entry deleted"
    assert any(tasks[0] in line and "Check it" in line for line in lines)
    assert [task["sessionId"] for task in flue.json("show", session)["tasks"]] == [tasks[0]]


def test_rm_asks_at_a_terminal_and_takes_no_for_an_answer(flue: Flue) -> None:
    session = flue.import_every_type()
    code, output = on_a_terminal("--db", str(flue.database), "rm", session, typed="n\n")
    assert code == 1
    assert "1 session, 19 entries would be deleted" in output
    assert len(flue.json("sessions")) == 1
    code, output = on_a_terminal("--db", str(flue.database), "rm", session, typed="y\n")
    assert code == 0
    assert "1 session, 19 entries deleted" in output
    assert flue.json("sessions") == []
