"""An interrupted session is made whole, in order, and the kind of interruption is named."""

from __future__ import annotations

from typing import Any

import pytest

from flue_py.context.steps.resume import MISSING
from flue_py.core.jsontext import JsonObject
from tests.context.pipeline.piped import answer, call, context, done, ids, piped, result, texts, user

THOUGHT: JsonObject = {"type": "thinking", "thinking": "hm"}
RESUME = {"resume": True}


def events(said: list[JsonObject], **kinds: str) -> list[str]:
    return [str(event) for event in piped(context(*said), RESUME).report.events]


def test_an_answer_none_of_whose_calls_has_a_result_goes() -> None:
    said = [user("Go."), answer("I try.", call("c1"), call("c2")), user("Stop.")]
    found = piped(context(*said), RESUME)
    assert [item.message for item in found.items] == [
        {"role": "user", "content": [{"type": "text", "text": "Go."}, {"type": "text", "text": "Stop."}]}
    ]
    assert done(found) == [("resume", "e0", "replaced"), ("resume", "e1", "dropped"), ("resume", "e2", "dropped")]


def test_a_missing_result_stands_behind_the_last_real_one() -> None:
    said = [user("Go."), answer("", call("c1"), call("c2"), call("c3")), result("c2"), result("c1"), user("And?")]
    found = piped(context(*said), RESUME)
    assert [item.message.get("toolCallId") for item in found.items] == [None, None, "c2", "c1", "c3", None]
    assert texts(found)[4] == MISSING == "Error: Tool result missing due to interrupted session."
    assert found.items[4].message["isError"] is True
    assert done(found) == [("resume", None, "added")]


def test_reasoning_alone_and_white_space_go_and_the_same_role_becomes_one() -> None:
    said: list[JsonObject] = [
        user("one"),
        {"role": "assistant", "content": [THOUGHT]},
        user(" \n"),
        {"role": "user", "content": [{"type": "image", "data": "QUJD"}]},
        answer("a"),
        answer("\t"),
        answer("b", call("c1")),
        result("c1", " "),
        result("orphan"),
    ]
    found = piped(context(*said), RESUME)
    assert [item.message["role"] for item in found.items] == ["user", "assistant", "toolResult"]
    assert found.items[0].message["content"] == [{"type": "text", "text": "one"}, {"type": "image", "data": "QUJD"}]
    assert found.items[1].message["content"] == [*answer("a")["content"], *answer("b", call("c1"))["content"]]  # type: ignore[misc]
    assert ids(found) == ["e0", "e4", "e7"]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ([user("Go."), answer("", call("c1")), result("c1")], "interrupted_tool"),
        ([user("Go."), answer("", call("c1"))], "interrupted_prompt"),
        ([user("Go.")], "interrupted_prompt"),
        ([user("Go."), answer("Done.")], None),
        ([user("[Conversation Summary]\nIt works.")], None),
        ([], None),
    ],
)
def test_the_kind_of_interruption_is_told(said: list[Any], kind: str | None) -> None:
    told = dict(event.split(": ", 1) for event in events(said))
    assert told.get("interrupted_turn_detected") == kind
    assert told["session_resumed"].endswith("messages")
    assert ("recovery_filtered" in told) == (kind == "interrupted_prompt" and len(said) > 1)


def test_the_summary_of_a_compaction_is_no_interruption_and_stays_apart() -> None:
    summary: JsonObject = {"summary": "What was done."}
    alone = piped(context(summary, kinds={0: "compaction"}), RESUME)
    assert [event.name for event in alone.report.events] == ["session_resumed"]
    both = piped(context(summary, user("Go on."), kinds={0: "compaction"}), RESUME)
    assert ids(both) == ["e0", "e1"]
    assert both.report.changes == ()


def test_what_is_whole_is_left_as_it_is() -> None:
    said = context(user("Go."), answer("", THOUGHT, call("c1")), result("c1"), answer("Done."))
    assert piped(said, RESUME).report.changes == ()
