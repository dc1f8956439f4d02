"""The commands that show the log, go back, pin and exclude, with what that does to the context."""

from __future__ import annotations

import pytest

import flue_py
from flue_py import JsonObject
from flue_py.core.model import FunctionModel
from tests.edges.cli_runs import Flue
from tests.sessions.talk import assistant, user


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


# -- the commands between two leaves ----------------------------------------------------------------------------------


@pytest.fixture
def ids(flue: Flue) -> dict[str, str]:
    """A session with two turns, the second on a branch of its own, and a fork of its first turn."""

    with flue_py.sync.open(flue.database) as store:
        session = store.create_session(key="triage", title="Red build")
        first = session.append_messages([user("why?"), assistant("look", 10)])
        call: JsonObject = {"type": "toolCall", "id": "c", "name": "grep", "arguments": {"q": "x"}}
        calling: JsonObject = {"role": "assistant", "content": [call], "stopReason": "toolUse"}
        usage: JsonObject = {"input": 5, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 6}
        answer: JsonObject = {
            "role": "toolResult", "toolCallId": "c", "toolName": "grep", "content": [], "isError": True,
        }  # fmt: skip
        branch = session.append_messages([user("go on"), {**calling, "usage": usage}, answer])
        session.move_leaf(first.entry_id)
        session.append_message(user("another way"))
        fork = session.fork(at=first.entry_id, key="fork")
        fork.append_message(assistant("\x1b[31mforked", 20))
        names = ["first", "branch", "call", "result"]
        return dict(zip(names, [first.entry_id, *branch.entry_ids], strict=True))


def test_a_diff_shows_what_is_shared_and_what_is_not(flue: Flue, ids: dict[str, str]) -> None:
    shown = flue.run("diff", "triage", "fork").stdout
    assert "in common up to depth 1" in shown
    assert "- Red build" in shown
    assert "another way" in shown
    assert "1 entry (1 assistant)" in shown
    assert "20 tokens, $0.02" in shown
    assert "\x1b" not in shown
    assert all(len(line) <= 80 for line in shown.splitlines() if "session " not in line)
    same_session = flue.run("diff", "triage", f"@{ids['result'][:10]}").stdout
    assert "tools: grep 1 (1 failed)" in same_session
    assert "6 tokens, cost unknown" in same_session
    row = flue.json("diff", f"triage@{ids['first']}", "fork")
    assert row["ancestorId"] == ids["first"]
    assert row["left"]["entries"] == []
    assert row["right"]["messages"] == {"assistant": 1}
    assert row["right"]["usage"]["cost"]["total"] == "0.02"
    assert "nothing of its own" in flue.run("diff", "triage", "triage").stdout
    assert flue.json("diff", "triage", "triage")["same"] is True


def test_entries_are_picked_once(flue: Flue, ids: dict[str, str]) -> None:
    picked = flue.json("cherry-pick", "triage", ids["call"][:12], ids["result"])
    assert len(picked["entryIds"]) == 2
    assert not picked["replayed"]
    assert flue.json("cherry-pick", "triage", ids["call"], ids["result"])["replayed"]
    assert "were there already" in flue.run("cherry-pick", "triage", ids["call"], ids["result"]).stdout
    assert [message["role"] for message in flue.json("context", "triage")][-2:] == ["assistant", "toolResult"]
    fork_leaf = flue.json("show", "fork")["leafId"]
    assert "1 entry copied" in flue.run("cherry-pick", "triage", fork_leaf, "--from", "fork").stdout
    assert flue.json("usage", "triage")["totalTokens"] == 10


def test_a_summary_is_brought_back_once(flue: Flue, ids: dict[str, str]) -> None:
    assert "appended" in flue.run("merge-back", "triage", "fork", "--summary", "it forked").stdout
    assert "was there already" in flue.run("merge-back", "triage", "fork", "--summary", "again").stdout
    merged = flue.json("merge-back", "triage", f"@{ids['result']}", "--summary", "the other branch")
    assert not merged["replayed"]
    context = flue.json("context", "triage")
    assert [message["content"][0]["text"] for message in context[-2:]] == [
        "[Branch Summary]\n\nit forked",
        "[Branch Summary]\n\nthe other branch",
    ]


def test_a_summary_is_made(flue: Flue, ids: dict[str, str]) -> None:
    done = flue.json("merge-back", "triage", "fork", "--summarize", "--mode", "window")
    assert not done["replayed"]
    assert "1 earlier message is not shown here" in str(flue.json("context", "triage")[-1])
    flue.run("merge-back", "triage", f"@{ids['result']}", "--summarize", "--instructions", "mind the calls")
    assert "INTENT-DERIVED RECONSTRUCTION" in str(flue.json("context", "triage")[-1])
    assert "was there already" in flue.run("merge-back", "triage", "fork", "--summarize").stdout
    for given in ((), ("--summary", "x", "--summarize"), ("--summary", "x", "--mode", "window")):
        assert "--summarize" in flue.run("merge-back", "triage", "fork", *given, code=2).stderr


def test_what_is_wrong_is_one_line_and_changes_nothing(flue: Flue, ids: dict[str, str]) -> None:
    before = flue.json("show", "triage")["revision"]
    assert "choose both" in flue.run("cherry-pick", "triage", ids["call"], code=1).stderr
    assert "no session" in flue.run("diff", "triage", "nobody", code=4).stderr
    assert "no session" in flue.run("diff", "@abc", "triage", code=4).stderr
    assert "missing" in flue.run("diff", "triage", "triage@missing", code=4).stderr
    assert "nothing to bring back" in flue.run("merge-back", "triage", "triage", "--summary", "x", code=1).stderr
    assert "summary is empty" in flue.run("merge-back", "triage", "fork", "--summary", " ", code=2).stderr
    assert flue.json("show", "triage")["revision"] == before
