"""The report of a pipeline, steps of an application's own, and what holds of any history and any settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flue_py.context.pipeline import Item, Over, View, added, turn_start
from flue_py.context.request import context_request
from flue_py.context.settings import ContextSettings, context_settings
from flue_py.context.steps import steps_of
from flue_py.context.tokens import counter_for
from flue_py.core.json import JsonObject
from flue_py.errors import InvalidArgument
from flue_py.providers import LIMITS
from flue_py.providers.openai_chat import parts_of
from tests.adapters.messages.contexts import TRANSCRIPTS, context_of
from tests.context.pipeline.piped import answer, call, context, done, ids, piped, result, texts, user
from tests.effort import examples
from tests.tables import inputs
from tests.wire.hostile import histories

EVERYTHING: list[dict[str, Any]] = [
    {"resume": True},
    {"window": {"text_only": True}},
    {"window": {"exclude_agents": ["Coder", "Unknown"]}},
    {"window": {"max_turn_age": 2, "max_tail_messages": 3, "context_cap_fraction": 0.5}},
    {"window": {"max_tail_messages": 2, "max_tool_result_chars": 20, "max_replay_chars": 20}},
    {"superseded": {"least_chars": 0, "text_chars": 5, "argument_chars": 5}, "epoch_tokens": 0},
    {"microcompact": {"keep": 0, "tools": ["read", "mcp.read"]}, "epoch_tokens": 10},
    {"tool_results": {"result_chars": 100, "round_chars": 150, "preview_chars": 20}},
    {"in_turn": {"max_tool_pairs": 1, "max_context_tokens": 50}, "epoch_tokens": 0},
    {"trim": {"max_tokens": 60}, "epoch_tokens": 20},
]


class Reminder:
    """A step of an application's own: it leaves out what is marked, and reminds of the task at the end."""

    name = "reminder"
    reason = "the application wants it"
    over: Over = "all"
    at_epochs = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        view.tell("reminded", f"{len(items)} messages")
        return [
            *(item for item in items if item.message.get("isSecret") is not True),
            added(user("Remember the task.")),
        ]


def test_a_step_of_ones_own_runs_last_and_what_it_did_is_found() -> None:
    said = context(user("Go."), {**user("The key."), "isSecret": True}, answer("ok"))
    found = piped(said, {"window": {"text_only": True}}, None, Reminder())
    assert texts(found) == ["Go.", "ok", "Remember the task."]
    assert done(found) == [("reminder", "e1", "dropped"), ("reminder", None, "added")]
    assert [str(event) for event in found.report.events] == ["reminded: 3 messages"]
    assert found.report.by_entry().keys() == {"e1"}
    assert [step.name for step in found.report.steps] == ["text_only", "tool_pairs", "reminder"]


@inputs("made", [None, "text", [user("no item")], 5])
def test_a_step_that_returns_something_else_is_named(made: Any) -> None:
    class Broken(Reminder):
        name = "broken"

        def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
            return made  # type: ignore[no-any-return]

    with pytest.raises(InvalidArgument, match="the step 'broken' should return a list of items"):
        piped(context(user("Go.")), {}, None, Broken())


class Doing(Reminder):
    """A step that does with the items what it was given to do."""

    def __init__(self, apply: Callable[[Sequence[Item]], Sequence[Item]]) -> None:
        self.does = apply

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        return self.does(items)


@inputs(
    "apply",
    [
        lambda items: items[::-1],
        lambda items: [*items, items[0]],
        lambda items: [*items, items[0].cut(user("a"))],
        lambda items: [*items, *[added(user("twice"))] * 2],
    ],
)
def test_a_step_that_turns_items_round_or_says_one_twice_is_named(apply: Any) -> None:
    with pytest.raises(InvalidArgument, match="'reminder' should return items that it was given, in order, each once"):
        piped(context(user("Go."), answer("ok")), {}, None, Doing(apply))


def test_a_step_is_given_what_it_cannot_change_in_place() -> None:
    def grow(items: Any) -> Any:
        items.append(added(user("silently")))
        return items

    with pytest.raises(AttributeError):
        piped(context(user("Go.")), {}, None, Doing(grow))


def test_what_one_step_added_and_a_later_one_dropped_or_changed_is_in_the_report() -> None:
    adds = Doing(lambda items: [added(user("a plan " * 50)), added(user("a memory")), *items])
    changes = Doing(lambda items: [items[0].cut(user("a plan")), *items[2:]])
    found = piped(context(user("Go.")), {}, None, adds, changes)
    assert texts(found) == ["a plan", "Go."]
    assert [change.how for change in found.report.changes] == ["added", "added", "dropped", "dropped", "added"]
    counter = counter_for("gpt-5")
    assert found.report.tokens_after == sum(counter.count(item.message) for item in found.items)


@inputs(
    ("said", "agent", "start"),
    [
        ([], None, 0),
        ([user("a")], None, 1),
        ([user("a"), answer("b")], None, 2),
        ([user("a"), answer("", call("c"))], None, 1),
        ([user("a"), answer("", call("c")), result("c")], None, 1),
        ([user("a"), answer("x", agent="A"), answer("", call("c"), agent="B"), result("c")], None, 1),
        ([user("a"), answer("x", agent="A"), answer("", call("c"), agent="B"), result("c")], "b", 2),
        ([user("a"), answer("", call("c"), agent="A"), result("c")], "B", 3),
        ([user("a"), answer("", call("c")), result("c")], "B", 1),
        # What the user said between a call and its result is in the turn; what repeats an older answer is not.
        ([answer("", call("c"), call("d")), result("c"), user("a"), result("d")], None, 0),
        (
            [user("a"), answer("", call("c"), call("d")), result("c"), user("b"), answer("", call("e")), result("d")],
            None,
            1,
        ),
        (
            [answer("", call("b")), user("a"), answer("", call("c"), call("d")), result("b"), user("b"), result("d")],
            None,
            0,
        ),
        (
            [user("a"), answer("", call("c")), result("c"), user("b"), answer("", call("d")), result("d"), result("c")],
            None,
            4,
        ),
        ([answer("", call("c"), agent="A"), user("a"), answer("", call("d"), agent="B"), result("c")], "B", 2),
        ([user("a"), answer("ok"), result("c")], None, 1),
    ],
)
def test_the_turn_in_progress_is_what_follows_the_user(said: list[JsonObject], agent: str | None, start: int) -> None:
    items = [Item(entry, at) for at, entry in enumerate(context(*said))]
    assert turn_start(items, agent) == start


@examples(40)
@given(histories, st.sampled_from(EVERYTHING), st.sampled_from(EVERYTHING), st.sampled_from([None, "Coder"]))
def test_any_history_under_any_settings_is_taken_and_nothing_goes_silently(
    messages: list[JsonObject], one: dict[str, Any], other: dict[str, Any], agent: str | None
) -> None:
    items = context(*messages)
    before = [entry.payload for entry in (item.entry for item in items)]
    chosen = context_settings({**one, **other})
    for target in LIMITS:
        found = context_request(items, target, chosen, counter_for("gpt-5"), agent=agent)
        assert [str(each) for each in found.broken] == ([] if found.messages else [str(found.broken[0])])
        assert found == context_request(items, target, chosen, counter_for("gpt-5"), agent=agent)
    assert [item.entry.payload for item in items] == before
    check_report(items, chosen, agent)


def check_report(items: Sequence[Any], chosen: ContextSettings, agent: str | None) -> None:
    """Assert that what is not sent as it is, and nothing else, stands in the report; and that its numbers add up."""
    found = piped(items, chosen, agent)
    sent = {item.entry_id: item.message for item in found.items}
    told = found.report.by_entry()
    for item in items:
        assert (sent.get(item.entry_id) == item.data) or item.entry_id in told
        if item.entry_id in told:
            last = told[item.entry_id][-1]
            assert (last.how == "dropped" or last.into is not None) == (item.entry_id not in sent)
            if last.into is not None:
                parts = parts_of(sent[last.into])
                assert (last.how == "merged") == all(part in parts for part in parts_of(item.data))
    counter = counter_for("gpt-5")
    assert found.report.tokens_after == sum(counter.count(item.message) for item in found.items)
    assert found.report.tokens_before == sum(counter.count(item.data) for item in items)
    order = [item.place for item in found.items if item.place is not None]
    assert order == sorted(order)


@pytest.mark.thorough(but=["codex"])
@inputs("part", range(len(EVERYTHING)))
@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_real_sessions_go_through_every_part_wherever_they_end(name: str, part: int) -> None:
    items = context_of(name)
    chosen = context_settings(EVERYTHING[part])
    for end in range(len(items), 0, -max(len(items) // 3, 1)):
        check_report(items[:end], chosen, None)
        found = context_request(items[:end], "anthropic", chosen, counter_for("gpt-5"))
        assert found.broken == () or not found.messages
        json.dumps(found.messages)


def test_the_default_settings_ask_for_no_step() -> None:
    assert steps_of(ContextSettings()) == []
    assert ids(piped(context(user("a")), ContextSettings())) == ["e0"]


def test_the_parts_run_in_their_order_whatever_that_of_the_settings() -> None:
    asked = {
        "trim": {"warn_fraction": 0}, "in_turn": {"max_tool_pairs": 8, "max_context_tokens": 1_000}, "tool_results": {},
        "microcompact": {}, "superseded": {"text_chars": 0, "argument_chars": 0}, "window": {"max_tail_messages": 9},
        "resume": True,
    }  # fmt: skip
    assert [step.name for step in piped(context(user("Hi.")), asked).report.steps] == [
        "resume", "max_tail_messages", "tool_pairs", "superseded", "microcompact", "tool_result_budget",
        "max_in_turn_tool_pairs", "max_in_turn_context_tokens", "trim_history",
    ]  # fmt: skip
