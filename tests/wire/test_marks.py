"""Marks for Anthropic's cache: at most four, where the API takes them, and nothing else in the request changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flue_py.context.request import ContextRequest, context_request
from flue_py.context.settings import context_settings
from flue_py.context.tokens import counter_for
from flue_py.core.json import JsonObject, JsonValue
from flue_py.errors import InvalidArgument
from flue_py.providers import LIMITS
from flue_py.providers.anthropic import CACHE_MARK
from flue_py.providers.lists import Said
from flue_py.providers.request import CacheMarks, wire_request
from tests.adapters.messages.contexts import TRANSCRIPTS, context_of
from tests.context.pipeline.piped import answer, call, context, result, user
from tests.effort import examples
from tests.tables import inputs
from tests.wire.hostile import histories

COUNTER = counter_for("gpt-5")
TOOLS: list[JsonObject] = [
    {"name": "a", "input_schema": {"type": "object"}},
    {"name": "b", "input_schema": {"type": "object"}, CACHE_MARK: {"type": "ephemeral"}},
]
SAID = context(user("Go."), answer("", call("c1", "Bash")), result("c1", "old"), answer("Done."), user("And now?"))


def request(items: Any = SAID, target: str = "anthropic", **given: Any) -> ContextRequest:
    chosen = context_settings({"cache_breakpoints": {}, "epoch_tokens": 0, **given})
    return context_request(items, target, chosen, COUNTER, system="Be brief.", tools=TOOLS)


def marked(sent: Any) -> Iterator[str]:
    """Yield where a request has marks."""
    blocks = [("system", sent.system), ("tools", [*sent.tools])]
    blocks += [(str(at), each["content"]) for at, each in enumerate(sent.messages)]
    for where, content in blocks:
        for block in content if isinstance(content, list) else []:
            if CACHE_MARK in block:
                assert block.get("type") not in ("thinking", "redacted_thinking", "compaction")
                assert block.get("type") != "text" or block["text"].strip()
                yield where


def bare(value: JsonValue) -> JsonValue:
    """Return what stands in a request without marks, and with text as a block."""
    if isinstance(value, list):
        return [bare(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {name: bare(held) for name, held in value.items() if name != CACHE_MARK}
    if "role" in kept and isinstance(kept.get("content"), str):
        kept["content"] = [{"type": "text", "text": kept["content"]}]
    return kept


@inputs(
    ("count", "where"),
    [(1, ["4"]), (2, ["system", "4"]), (3, ["system", "2", "4"]), (4, ["system", "tools", "2", "4"])],
)
def test_marks_stand_where_the_next_request_reads_what_this_one_wrote(count: int, where: list[str]) -> None:
    sent = request(cache_breakpoints={"count": count, "ttl": "1h"})
    assert [*marked(sent)] == where
    assert sent.messages[-1] == {
        "role": "user",
        "content": [{"type": "text", "text": "And now?", CACHE_MARK: {"type": "ephemeral", "ttl": "1h"}}],
    }
    # The request that the last answer came from ended where this one has a mark.
    assert [*marked(request(SAID[:3], cache_breakpoints={"count": 1}))] == ["2"]


def test_the_end_of_an_epoch_is_marked() -> None:
    pairs = [(answer("", call(f"c{at}", "Bash")), result(f"c{at}", "word " * 200)) for at in range(8)]
    items = context(user("Go."), *(message for pair in pairs for message in pair), answer("Done."), user("More?"))
    sent = request(items, microcompact={"keep": 1}, epoch_tokens=1_000)
    assert sent.report.epoch_end is not None
    place = [each.entry_id for each in items].index(sent.report.epoch_end)
    assert [*marked(sent)] == ["system", str(place), str(len(sent.messages) - 3), str(len(sent.messages) - 1)]


@inputs("target", LIMITS)
def test_nothing_else_changes(target: str) -> None:
    sent, plain = request(target=target), request(target=target, cache_breakpoints=None)
    assert bare([*sent.messages]) == bare([*plain.messages])
    assert sent.prefix_digest == plain.prefix_digest
    assert sent.break_since(plain) is None
    if target != "anthropic":
        assert sent.messages == plain.messages


@inputs("name", TRANSCRIPTS)
def test_a_marked_request_of_a_real_session_begins_with_the_one_before_it(name: str) -> None:
    items = context_of(name)
    ends = [at for at in range(1, len(items)) if items[at].role == "assistant"][-3:]
    before: ContextRequest | None = None
    for end in ends:
        sent = request(items[:end])
        assert sent.broken == ()
        assert len([*marked(sent)]) <= 4
        assert before is None or sent.break_since(before) is None
        before = sent


@examples(40)
@given(histories, st.integers(1, 4))
def test_any_history_has_at_most_so_many_marks_and_breaks_no_rule(messages: list[JsonObject], count: int) -> None:
    said = [Said(each, entry_id=f"e{number}") for number, each in enumerate(messages)]
    marks = CacheMarks(count, epoch_end="e2")
    sent = wire_request("anthropic", said, tools=TOOLS, cache_marks=marks)
    plain = wire_request("anthropic", said, tools=TOOLS)
    assert [each.rule for each in sent.broken] == [each.rule for each in plain.broken]
    assert len([*marked(sent)]) <= count
    assert bare([*sent.messages]) == bare([*plain.messages])


@inputs("wrong", [{"count": 0}, {"count": 5}, {"ttl": "2h"}, {"count": True}])
def test_a_wrong_setting_is_named(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^cache_breakpoints\."):
        context_settings({"cache_breakpoints": wrong})
