"""A provider is asked to clear something itself: the messages go to it whole, and what it will clear is estimated."""

from __future__ import annotations

from typing import Any

import pytest

from flue_py.context.request import ContextRequest, context_request
from flue_py.context.settings import context_settings
from flue_py.context.tokens import counter_for
from flue_py.core.json import JsonObject, JsonValue
from flue_py.errors import InvalidArgument
from flue_py.providers import LIMITS
from tests.adapters.messages.contexts import TRANSCRIPTS, context_of
from tests.context.pipeline.piped import answer, call, context, result, user
from tests.tables import inputs
from tests.values import existing

COUNTER = counter_for("gpt-5")
CLEARING: dict[str, Any] = {"trigger_tokens": 100, "keep": 1}


def thinking(number: int) -> JsonObject:
    signed: JsonObject = {"type": "thinking", "thinking": "hm " * 60, "thinkingSignature": f"s{number}"}
    return {"role": "assistant", "provider": "anthropic", "content": [signed, {"type": "text", "text": "I see."}]}


SAID = context(
    user("Go."),
    answer("", call("c1", "Read", path="a " * 100)),
    result("c1", "old " * 200),
    answer("", call("c2", "Ask")),
    result("c2", "kept " * 200),
    answer("", call("c3", "Read")),
    result("c3", "new " * 200),
    thinking(1),
    user("More."),
    thinking(2),
    user("And now?"),
)


def request(asked: Any, target: str | None = "anthropic", items: Any = SAID, **given: Any) -> ContextRequest:
    settings = context_settings({"provider_editing": asked, **given})
    return context_request(items, target, settings, COUNTER, system="Be brief.")


def cleared(sent: ContextRequest) -> list[str | None]:
    return [change.entry_id for step in sent.report.steps if step.name == "provider" for change in step.changes]


def test_what_is_asked_for_stands_beside_the_messages() -> None:
    asked = {"clear_tool_uses": {**CLEARING, "exclude_tools": ["Ask"], "clear_at_least": 5}, "keep_thinking_turns": 1}
    sent = request({**asked, "compact_tokens": 900})
    edits: JsonValue = [
        {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}},
        {
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "input_tokens", "value": 100},
            "keep": {"type": "tool_uses", "value": 1},
            "clear_at_least": {"type": "input_tokens", "value": 5},
            "exclude_tools": ["Ask"],
        },
    ]
    assert sent.extra == {"context_management": {"edits": edits}}
    assert sent.betas == ("context-management-2025-06-27",)
    assert request({**asked, "compact_tokens": 900}, "openai-responses").extra == {
        "context_management": [{"type": "compaction", "compact_threshold": 900}]
    }


@inputs("target", [*LIMITS, None])
def test_a_provider_that_is_asked_for_nothing_gets_nothing(target: str | None) -> None:
    for asked in (None, {}, {"compact_tokens": 1} if target == "anthropic" else {"keep_thinking_turns": 1}):
        sent = request(asked, target)
        assert (sent.extra, sent.betas) == ({}, ())
        assert [step.name for step in sent.report.steps] == []


def test_what_it_will_clear_is_a_step_and_the_messages_are_whole() -> None:
    plain = request(None)
    sent = request({"clear_tool_uses": {**CLEARING, "exclude_tools": ["Ask"]}, "keep_thinking_turns": 1})
    assert cleared(sent) == ["e2", "e7"]
    assert sent.messages == plain.messages
    assert sent.report.is_estimate
    assert sent.report.tokens_before == plain.report.tokens_before
    assert sent.report.tokens_after == plain.report.tokens_after - sent.report.steps[-1].tokens_freed
    assert sent.tokens < plain.tokens - 250
    assert sent.break_since(plain) is None
    # An edit of its own is not what makes a later request begin otherwise.
    found = existing(request({"clear_tool_uses": CLEARING}, items=SAID[1:]).break_since(sent))
    assert found.by == "context"


@inputs(
    ("rule", "entries"),
    [
        (CLEARING, ["e2", "e4"]),
        ({**CLEARING, "clear_tool_inputs": True}, ["e1", "e2", "e4"]),
        ({**CLEARING, "keep": 2}, ["e2"]),
        ({**CLEARING, "keep": 3}, []),
        ({**CLEARING, "trigger_tokens": 100_000}, []),
        ({**CLEARING, "clear_at_least": 10_000}, []),
    ],
)
def test_results_are_cleared_above_the_trigger_but_for_the_newest(rule: Any, entries: list[str]) -> None:
    assert cleared(request({"clear_tool_uses": rule})) == entries


def test_that_openai_will_compact_is_an_event() -> None:
    sent = request({"compact_tokens": 50}, "openai-responses")
    assert [event.name for event in sent.report.events] == ["provider_compaction"]
    assert sent.tokens == request(None, "openai-responses").tokens
    assert request({"compact_tokens": 50_000}, "openai-responses").report.events == ()


@inputs("name", TRANSCRIPTS)
def test_never_more_is_cleared_than_is_there(name: str) -> None:
    items = context_of(name)
    sent = request({"clear_tool_uses": {"trigger_tokens": 1, "keep": 0}, "keep_thinking_turns": 1}, items=items)
    assert 0 <= sent.report.tokens_after <= sent.report.tokens_before
    assert all(change.tokens_freed > 0 for change in sent.report.changes)


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"^provider_editing\.clear_tool_uses\.trigger_tokens: "):
        context_settings({"provider_editing": {"clear_tool_uses": {"trigger_tokens": 0}}})
