"""The commands that show the log, go back, pin and exclude, with what that does to the context."""

from __future__ import annotations

import pytest

from flue_py.core.model import FunctionModel
from tests.edges.cli_runs import Flue


def test_the_log_tells_what_was_done_by_whom_and_why_and_can_be_gone_back_to(flue: Flue) -> None:
    session = flue.import_every_type()
    leaf = flue.json("show", session)["leafId"]
    flue.run("label", session, "u0000001", "the question", "--why", "to find it")
    flue.run("move", session, "--turns", "1", "--why", "a detour")
    flue.run("undo", session, "--why", "it was none")
    shown = flue.lines("log", session, "--limit", "3")
    undone, moved, labelled = (int(line.split()[0]) for line in shown)
    assert (undone - 1, moved - 1) == (moved, labelled)
    (label,) = flue.json("log", session, "--before", str(moved), "--limit", "1")
    assert (label["what"], label["by"], label["why"]) == ("label", "flue-py", "to find it")
    assert label["edits"] == [{"what": "label", "entryId": "u0000001", "before": None, "after": "the question"}]
    assert flue.json("undo", session, "--to", str(moved))["line"]["refersTo"] == moved
    assert flue.json("show", session)["leafId"] != leaf
    assert flue.json("undo", session, "--to", str(moved), "--before")["line"]["toId"] == leaf
    assert flue.json("undo", session, "--to", str(labelled), "--before")["changed"] is True
    assert flue.lines("undo", session, "--to", str(labelled), "--before") == [
        "nothing changed: it is like that already"
    ]
    (newest,) = flue.json("log", session, "--limit", "1")
    assert newest["edits"] == [{"what": "label", "entryId": "u0000001", "before": "the question", "after": None}]


def test_a_line_that_is_not_there_is_one_line_of_error(flue: Flue) -> None:
    session = flue.import_every_type()
    result = flue.run("undo", session, "--to", "99", code=1)
    (error,) = result.stderr.splitlines()
    assert "revision 99 is not in the log" in error


def test_pins_and_exclusions_say_what_they_do_to_the_context(flue: Flue) -> None:
    session = flue.import_every_type()
    pinned = flue.json("pin", session, "u0000001", "--why", "the task")
    assert pinned["tokensBefore"] == pinned["tokensAfter"]
    assert pinned["entryIds"] == ["u0000001"]
    leaf = flue.json("show", session)["leafId"]
    shown = [entry for entry in flue.json("show", session, "--path") if entry["kind"] == "message"][-1]["id"]
    (said,) = flue.lines("exclude", session, shown, "--why", "too long")
    assert said.startswith("excluded entry")
    assert "(-" in said
    assert any("excluded" in line for line in flue.lines("tree", session, "--all"))
    assert any("pinned" in line for line in flue.lines("tree", session, "--all"))
    assert flue.json("exclude", session, shown, "--clear")["tokensAfter"] > 0
    assert flue.json("pin", session, "u0000001", "--clear")["entryIds"] == ["u0000001"]
    before = flue.json("context", session)
    assert flue.json("exclude", session, shown)["exclusionIds"] != []
    assert flue.json("context", session) != before
    flue.run("undo", session)
    assert flue.json("context", session) == before
    flue.run("undo", session, "--to", "1")
    assert flue.json("show", session)["leafId"] == leaf
    told = [line["what"] for line in flue.json("log", session, "--limit", "7")]
    assert told == ["back", "undo", "exclusion", "pin", "inclusion", "exclusion", "pin"]


def test_undo_takes_back_the_last_thing_that_was_done_be_it_an_edit_or_a_move(flue: Flue) -> None:
    session = flue.import_every_type()

    def state() -> tuple[object, ...]:
        shown = flue.json("show", session)
        marks = [line for line in flue.lines("tree", session, "--all") if "pinned" in line or "[nice" in line]
        return shown["leafId"], len(marks), any("[nicer]" in mark for mark in marks)

    states = [state()]
    for command in (
        ["label", session, "u0000001", "nice"],
        ["label", session, "u0000001", "nicer"],
        ["move", session, "--turns", "1"],
        ["pin", session, "u0000001"],
    ):
        flue.run(*command)
        states.append(state())
    assert len(set(states)) == 5
    back = [flue.json("undo", session) for _ in range(4)]
    assert [each["moved"] for each in back] == [False, True, False, False]
    assert back[-1]["line"]["edits"] == [{"what": "label", "entryId": "u0000001", "before": "nice", "after": None}]
    assert state() == states[0]
    for expected in states[1:]:
        flue.run("redo", session)
        assert state() == expected
    assert flue.json("redo", session)["moved"] is False
    for expected in reversed(states[:-1]):
        flue.run("undo", session)
        assert state() == expected
    flue.run("redo", session)
    flue.run("label", session, "a0000001", "new")
    assert "nothing to do again" in flue.lines("redo", session)[0]
    flue.run("undo", session)
    flue.run("undo", session)
    assert state() == states[0]
    # Then it was imported.
    assert flue.json("undo", session)["leafId"] is None


def test_a_title_is_given_taken_away_and_written_by_a_model(flue: Flue, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [flue.json("new")["id"] for _ in range(3)]
    for session in ids[:2]:
        flue.run("append", session, "Why is the build red?")
    flue.run("title", ids[0], "Mine")
    answers = ["Red build", "Red", "Green build at last"]
    model = FunctionModel(lambda _: answers.pop(0), "small", provider="house", context_window=200_000)
    monkeypatch.setattr("flue_py.models.open_model", lambda name: model)
    refused = flue.run("title", "--all", "--model", "house:small", code=1)
    assert f"no title of 3 to 7 words came back for session '{ids[1]}'" in refused.stderr
    told = flue.json("title", "--all", "--model", "house:small")
    assert told == [{"sessionId": ids[1], "title": None, "autoTitle": "Green build at last"}]
    assert flue.run("title", "--all", "--model", "house:small").stdout == "every session has a title\n"
    assert flue.json("title", ids[0], "--clear") == [{"sessionId": ids[0], "title": None, "autoTitle": None}]
    assert flue.run("title", ids[1], "Ours").stdout == f"{ids[1]}: Ours\n"
    for wrong in ((), (ids[0],), (ids[0], "x", "--clear"), ("--all",), (ids[0], "--all", "--model", "m")):
        flue.run("title", *wrong, code=2)
