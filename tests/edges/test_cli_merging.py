"""The commands between two leaves: diff, cherry-pick, merge-back."""

from __future__ import annotations

import pytest

import flue_py
from flue_py import JsonObject
from tests.edges.cli_runs import Flue
from tests.sessions.talk import assistant, user


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
