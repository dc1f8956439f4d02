"""Messages for the tests of compaction: small builders, and strategies for whole contexts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hypothesis import strategies as st

from flue_py.compaction import estimate_tokens
from flue_py.core.json import JsonObject, JsonValue
from tests.strategies import json_of


class Item(NamedTuple):
    """A message of a context, and its entry."""

    entry_id: str
    data: JsonObject
    kind: str = "message"


def user(text: str) -> JsonObject:
    return {"role": "user", "content": text}


def assistant(text: str, **fields: JsonValue) -> JsonObject:
    return {"role": "assistant", "content": [{"type": "text", "text": text}], "stopReason": "stop", **fields}


def call(name: str, arguments: JsonValue, call_id: str = "c1") -> JsonObject:
    part: JsonObject = {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments}
    return {"role": "assistant", "content": [part], "stopReason": "toolUse"}


def of_another_exchange(message: JsonObject) -> JsonObject:
    """Return a message with the call in it, or the one that it answers, under another id."""
    content = message["content"]
    if message["role"] == "toolResult":
        return {**message, "toolCallId": "c0"}
    if not isinstance(content, list):
        return message
    parts = [{**part, "id": "c0"} if isinstance(part, dict) and "id" in part else part for part in content]
    return {**message, "content": parts}


def tool_result(text: str, call_id: str = "c1") -> JsonObject:
    content: list[JsonValue] = [{"type": "text", "text": text}]
    return {"role": "toolResult", "toolCallId": call_id, "toolName": "read", "content": content, "isError": False}


def usage(total: int = 0, **fields: int) -> JsonObject:
    return {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": total, **fields}


texts = st.text(alphabet=st.sampled_from('ab \n"\\é数🚀\ud83d\ude80'), max_size=60)
paths = st.sampled_from(["a", "b/c", "Z", "ü", "\U0001f680", "\uffee", ""])
json_values = json_of(texts, st.sampled_from("ab012") | texts, 8)
reports = st.integers(0, 5000).map(usage) | st.just(usage())

_calls = st.builds(call, st.sampled_from(["read", "write", "edit", "grep"]), paths.map(lambda path: {"path": path}))
_plain = st.builds(assistant, texts)
_reporting = st.builds(
    lambda text, report, reason: assistant(text, usage=report, stopReason=reason),
    texts,
    reports,
    st.sampled_from(["stop", "toolUse", "length", "error", "aborted"]),
)
_custom = st.just({"role": "custom", "content": "not a role we know"})

_any_message = st.one_of(st.builds(user, texts), _plain, _reporting, _calls, st.builds(tool_result, texts), _custom)
messages: st.SearchStrategy[list[JsonObject]] = st.lists(_any_message, max_size=14)


@dataclass(frozen=True, slots=True)
class Plannable:
    """A context with something to summarize after ``start``, and a budget that is used up by what can be kept."""

    context: list[JsonObject]
    keep: int
    start: int


@st.composite
def plannable(draw: st.DrawFn, most_before: int = 4) -> Plannable:
    """Draw a context that has a plan, with up to ``most_before`` messages that an earlier compaction covers.

    The last message that can be the first one kept has some text, and the budget is more than what follows it: the
    reference gives up where the budget ends inside trailing tool results. No result that can be kept answers a call
    that is to be summarized: the cut would move to before the call.
    """
    before = draw(st.lists(_any_message, max_size=most_before))
    old = draw(st.lists(_any_message, min_size=1, max_size=6))
    body = draw(st.lists(_any_message, max_size=5))
    last = draw(st.builds(draw(st.sampled_from([user, assistant])), texts.map("some text".__add__)))
    trailing = draw(st.lists(st.builds(tool_result, texts) | _custom, max_size=2))
    least = sum(map(estimate_tokens, trailing))
    most = least + sum(map(estimate_tokens, [*body, last]))
    keep = draw(st.integers(least + 1, most))
    earlier = [of_another_exchange(message) for message in (*before, *old)]
    return Plannable([*earlier, *body, last, *trailing], keep, len(before))


_odd_parts = json_values | st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "thinking", "toolCall", "image", "audio"])},
    optional=dict.fromkeys(("text", "thinking", "name", "arguments", "data"), json_values),
)
odd_messages: st.SearchStrategy[list[JsonObject]] = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "role": st.sampled_from(["user", "assistant", "toolResult", "system"]) | json_values,
            "content": st.lists(_odd_parts, max_size=4) | json_values,
            "usage": json_values | st.dictionaries(st.sampled_from(["totalTokens", "input"]), json_values),
            "stopReason": json_values,
        },
    ),
    max_size=6,
)
"""Messages that break every rule a message has, to be passed over without an error."""

budgets = st.integers(0, 60)
