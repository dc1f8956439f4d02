"""An interrupted session is made whole, in order, and the kind of interruption is named."""

from __future__ import annotations

from typing import Any

from flue_py.context.request import context_request, explained_row, state_of
from flue_py.context.settings import context_settings
from flue_py.context.steps import MISSING
from flue_py.context.tokens import counter_for
from flue_py.core.json import JsonObject
from flue_py.render.report import sent_json
from tests.context.pipeline.piped import answer, call, context, done, ids, piped, result, texts, user
from tests.tables import inputs

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
    assert done(found) == [("resume", "e0", "replaced"), ("resume", "e1", "dropped"), ("resume", "e2", "merged")]
    assert [change.into for change in found.report.changes] == [None, None, "e0"]
    assert str(found.report.changes[-1]).startswith("e2: merged into e0 by resume")
    assert "recovery_filtered: 1 messages" in str(found.report.events[0])


def test_a_missing_result_stands_behind_the_last_real_one() -> None:
    said = [user("Go."), answer("", call("c1"), call("c2"), call("c3")), result("c2"), result("c1"), user("And?")]
    found = piped(context(*said), RESUME)
    assert [item.message.get("toolCallId") for item in found.items] == [None, None, "c2", "c1", "c3", None]
    assert texts(found)[4] == MISSING == "Error: Tool result missing due to interrupted session."
    assert found.items[4].message["isError"] is True
    assert done(found) == [("resume", None, "added")]


def test_reasoning_alone_and_white_space_go_and_the_same_role_becomes_one() -> None:
    said: list[JsonObject] = [
        user("one"), {"role": "assistant", "content": [THOUGHT]}, user(" \n"),
        {"role": "user", "content": [{"type": "image", "data": "QUJD"}]}, answer("a"), answer("\t"),
        answer("b", call("c1")), result("c1", " "), result("orphan"),
    ]  # fmt: skip
    found = piped(context(*said), RESUME)
    assert [item.message["role"] for item in found.items] == ["user", "assistant", "toolResult"]
    assert found.items[0].message["content"] == [{"type": "text", "text": "one"}, {"type": "image", "data": "QUJD"}]
    assert found.items[1].message["content"] == [*answer("a")["content"], *answer("b", call("c1"))["content"]]  # type: ignore[misc]
    assert ids(found) == ["e0", "e4", "e7"]


LONG = "long " * 100


def test_what_is_merged_is_no_longer_reported_as_sent_once_a_later_step_leaves_it_out() -> None:
    said = context(user("one"), user("two"), answer("a"), user("three"))
    found = piped(said, {**RESUME, "window": {"max_tail_messages": 2}})
    assert ids(found) == ["e2", "e3"]
    assert [change.how for change in found.report.by_entry()["e1"]] == ["merged", "dropped"]


def test_views_say_into_which_message_one_was_merged() -> None:
    said = context(user("one"), user("two"))
    sent = context_request(said, "anthropic", context_settings(RESUME).of(None), counter_for("gpt-5"))
    row = explained_row(said, sent)
    assert [entry["sent"] for entry in row["entries"]] == ["replaced", "merged"]  # type: ignore[index, union-attr, call-overload]
    second = sent_json(row, {"e0": 0, "e1": 1})["changed"][1]  # type: ignore[index, call-overload]
    assert (second["at"], second["how"]) == (1, "merged")
    assert [(change["step"], change["how"], change["into"]) for change in second["changes"]] == [
        ("resume", "merged", "e0")
    ]


def cut_in(*answers: str) -> tuple[str, list[str]]:
    """Return what is left of merged answers that are cut after 40 characters, and how each entry is sent."""
    found = piped(
        context(user("Go."), *map(answer, answers), user("And?")),
        {**RESUME, "addresses": True, "window": {"max_replay_chars": 40}},
    )
    told = found.report.by_entry()
    return texts(found)[1], [state_of(told.get(f"e{at}", ()), is_repaired=False) for at in range(1, len(answers) + 1)]


def test_the_note_of_a_cut_names_the_entries_whose_text_is_missing() -> None:
    text, states = cut_in("short", LONG)
    assert text.startswith("short" + LONG[:35])
    assert text.endswith("...]\n[whole content: entry e2]")
    assert states[1] == "cut in e1"
    text, states = cut_in("short", "also short", LONG)
    assert text.endswith("...]\n[whole content: entry e3]")
    assert states[1:] == ["merged into e1", "cut in e1"]
    text, states = cut_in("short", LONG, "lost")
    assert text.endswith("...]\n[whole content: entry e2]\n[whole content: entry e3]")
    text, states = cut_in("short", "also short")
    assert text == "shortalso short"
    assert states[1] == "merged into e1"


DONE = [user("Go."), answer("Done.")]
AT_TOOLS = [user("Go."), answer("", call("c1"), call("c2")), result("c1")]
SUMMARY_TEXT = user("[Conversation Summary]\nIt works.")


@inputs(
    ("said", "kind", "left_out"),
    [
        ([], None, False), ([user("Go.")], None, False), (DONE, None, False), ([*DONE, user("And this?")], None, False),
        ([SUMMARY_TEXT], None, False), ([SUMMARY_TEXT, user("And this?")], None, False),
        ([user("Go."), answer("", call("c1")), result("c1")], None, False), ([*DONE, result("orphan")], None, True),
        ([user("Go."), user("Are you there?")], "interrupted_prompt", False),
        ([user("Go."), answer("", call("c1"))], "interrupted_prompt", True),
        ([user("Go."), answer("", call("c1")), user("Stop.")], "interrupted_prompt", True),
        ([user("Go."), {"role": "assistant", "content": [THOUGHT]}], "interrupted_prompt", True),
        (AT_TOOLS, "interrupted_tool", False), ([*AT_TOOLS, user("Go on.")], "interrupted_tool", False),
        ([user("Go."), answer("", call("c1")), result("c1"), user("Go on.")], "interrupted_tool", False),
        ([*AT_TOOLS, user("Go on."), answer("", call("c3")), result("c3")], None, False),
    ],
)  # fmt: skip
def test_the_kind_of_interruption_is_told(said: list[Any], kind: str | None, left_out: bool) -> None:
    told = dict(event.split(": ", 1) for event in events(said))
    assert told.get("interrupted_turn_detected") == kind
    assert told["session_resumed"].endswith("messages")
    assert ("recovery_filtered" in told) == left_out


@inputs(
    ("said", "kind"),
    [
        ([*DONE, "told", user("And this?")], None),
        ([*DONE, user("And this?"), "told"], None),
        (["told", user("Go.")], None),
        ([user("Go."), "told", user("Are you there?")], "interrupted_prompt"),
        ([user("Go."), answer("", call("c1")), result("c1"), "told"], None),
        ([user("Go."), answer("", call("c1")), result("c1"), "told", user("Go on.")], "interrupted_tool"),
    ],
)
def test_what_is_told_of_the_surroundings_is_no_prompt(said: list[Any], kind: str | None) -> None:
    told: JsonObject = {"customType": "environment", "content": "It is Monday.", "display": False}
    kinds = {at: "custom_message" for at, each in enumerate(said) if each == "told"}
    found = piped(context(*(told if each == "told" else each for each in said), kinds=kinds), RESUME)
    events = {event.name: event.text for event in found.report.events}
    assert events.get("interrupted_turn_detected") == kind


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
