"""Hypothesis strategies for what a store is given: JSON, messages with unknown fields, usage, further kinds."""

from __future__ import annotations

from base64 import b64encode

from hypothesis import strategies as st
from msgspec.structs import replace

from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject, JsonValue
from flue_py.core.usage import PaidCall, read_call
from tests.samples import PICTURE

SOURCES = ("prompt", "skill", "shell", "task", "retry")

_PICODOLLARS_PER_MICRODOLLAR = 10**6

texts: st.SearchStrategy[str] = st.text(max_size=20) | st.sampled_from(
    ["a\0b", "é e\u0301", "日本 🚨", "\u2028", '"\\\n', "[Context Summary]\n\nx", "half \ud800"]
)
"""Text as people and models write it, with what breaks careless stores."""

labels: st.SearchStrategy[str] = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=10)
"""Text that can be a key, a title or a label."""


def json_of(texts: st.SearchStrategy[str], keys: st.SearchStrategy[str], most: int) -> st.SearchStrategy[JsonValue]:
    """Return JSON values with such texts and keys, of at most so many leaves."""
    numbers = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
    return st.recursive(
        st.none() | st.booleans() | numbers | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=most,
    )


json_values = json_of(texts, texts, 5)

hostile_texts: st.SearchStrategy[str] = st.text(st.characters(), max_size=8) | st.sampled_from(
    [
        "", "\ufeff", "\uffff", "\U0010ffff", "\ud83d\ude80", "\udc00\ud800", "\u202e", "\\ud800", "\r\n", "role",
        "x" * 300,
    ]
)  # fmt: skip
"""Any text at all, lone surrogates and noncharacters among it."""

hostile_json: st.SearchStrategy[JsonValue] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, -(2**63) - 1, 10**400, 10**4200])
    | st.floats()
    | hostile_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(hostile_texts, inner, max_size=3),
    max_leaves=6,
)
"""JSON values that may be refused (NaN, infinities, integers of 4,200 digits), or come back with U+FFFD in them."""

unknown_fields: st.SearchStrategy[JsonObject] = st.dictionaries(
    st.text(max_size=5).map(lambda name: f"x-{name}"), json_values, max_size=2
)
"""Fields that no version of this library knows."""

token_counts: st.SearchStrategy[int] = st.integers(0, 1000) | st.integers(0, 2**40)
dollars: st.SearchStrategy[float] = st.one_of(
    st.integers(0, 10**7).map(lambda micro: micro / _PICODOLLARS_PER_MICRODOLLAR),
    st.sampled_from([0.0, 0.1, 1e-12, 4e-13, 5e-13, 1 / 3]),
)

_whole_usages: st.SearchStrategy[JsonObject] = st.fixed_dictionaries(
    {},
    optional={
        "input": token_counts,
        "output": token_counts,
        "cacheRead": token_counts,
        "cacheWrite": token_counts,
        "totalTokens": token_counts,
        "cost": st.none()
        | st.fixed_dictionaries(
            {}, optional={"input": dollars, "output": dollars, "cacheRead": dollars, "total": dollars}
        ),
    },
)


def _with_parts(usage: JsonObject, hour: int | None, reasoning: int | None) -> JsonObject:
    """Return a usage with parts of its cache writes and of its output told apart."""
    parts: JsonObject = {}
    for name, whole, tokens in (("cacheWrite1h", "cacheWrite", hour), ("reasoning", "output", reasoning)):
        most = usage.get(whole)
        if tokens is not None and isinstance(most, int):
            parts[name] = min(tokens, most)
    return {**usage, **parts}


usages: st.SearchStrategy[JsonObject] = st.builds(
    _with_parts, _whole_usages, st.none() | token_counts, st.none() | token_counts
)
"""What providers report: any of the numbers may be missing."""


_message_fields = (
    "role", "content", "type", "text", "toolCallId", "usage", "cost", "input", "total", "arguments", "id", "name",
)  # fmt: skip

hostile_messages: st.SearchStrategy[JsonObject] = st.recursive(
    st.dictionaries(st.sampled_from(_message_fields) | hostile_texts, hostile_json, max_size=4),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "role": st.sampled_from(["user", "assistant", "toolResult", "system", "custom"]) | hostile_json,
            "content": texts | st.lists(inner | hostile_json, max_size=3) | inner, "usage": inner | usages,
            "type": st.sampled_from(["text", "thinking", "toolCall", "image", "file"]), "text": hostile_json,
            "timestamp": hostile_json, "cost": inner, "provider": hostile_json,
        },
    ),
    max_leaves=4,
)  # fmt: skip
"""Objects that are nearly messages, or parts, or usage: each known field may hold anything."""


def _parts(value: str) -> JsonValue:
    return [{"type": "text", "text": value}]


_call_ids = st.sampled_from(["call", "call-1"])


def _calls(value: str, ids: list[str]) -> JsonValue:
    calls: list[JsonValue] = [{"type": "toolCall", "id": call_id, "name": "read", "arguments": {}} for call_id in ids]
    return [{"type": "text", "text": value}, *calls]


def _message(role: str, content: JsonValue, fields: JsonObject, further: JsonObject) -> JsonObject:
    return {"role": role, "content": content, **fields, **further}


user_messages: st.SearchStrategy[JsonObject] = st.builds(
    _message, st.just("user"), texts | texts.map(_parts), st.just({}), unknown_fields
)
picture_messages: st.SearchStrategy[JsonObject] = st.builds(
    lambda text, pictures: {
        "role": "user",
        "content": [{"type": "text", "text": text}, *[{"type": "image", "data": each} for each in pictures]],
    },
    texts,
    st.lists(st.sampled_from([b64encode(PICTURE[:512]).decode(), b64encode(PICTURE[512:1024]).decode()]), max_size=2),
)
"""Messages with the same pictures again and again, of 684 characters each."""
assistant_messages: st.SearchStrategy[JsonObject] = st.builds(
    _message,
    st.just("assistant"),
    texts.map(_parts) | st.builds(_calls, texts, st.lists(_call_ids, unique=True, max_size=2)),
    st.fixed_dictionaries(
        {}, optional={"usage": usages, "provider": st.sampled_from(["p", "q"]), "model": labels, "stopReason": texts}
    ),
    unknown_fields,
)
tool_results: st.SearchStrategy[JsonObject] = st.builds(
    _message,
    st.just("toolResult"),
    texts.map(_parts),
    st.fixed_dictionaries({"toolCallId": _call_ids | texts, "toolName": texts, "isError": st.booleans()}),
    unknown_fields,
)
other_messages: st.SearchStrategy[JsonObject] = st.builds(
    _message, st.sampled_from(["custom", "bashExecution"]), texts, st.just({}), unknown_fields
)
messages: st.SearchStrategy[JsonObject] = st.one_of(
    user_messages, assistant_messages, tool_results, other_messages, picture_messages
)

message_entries: st.SearchStrategy[NewEntry] = st.builds(
    NewEntry.message, messages, st.none() | st.sampled_from(SOURCES)
)
_settings = st.sampled_from(["high", "low", "anthropic", "", 1])
settings_entries: st.SearchStrategy[NewEntry] = st.builds(
    NewEntry.custom,
    st.sampled_from(["model_change", "thinking_level_change"]),
    st.fixed_dictionaries({}, optional=dict.fromkeys(("thinkingLevel", "provider", "modelId"), _settings)),
)
custom_entries: st.SearchStrategy[NewEntry] = (
    st.builds(NewEntry.custom, st.sampled_from(["label", "model_change", "custom", "a.b:c-1"]), json_values)
    | settings_entries
    | st.builds(NewEntry.custom, st.just("custom_message"), texts.map(lambda text: {"content": text}))
)
summary_entries: st.SearchStrategy[NewEntry] = st.builds(
    NewEntry.branch_summary, texts, from_id=st.none() | st.just("root"), details=json_values
)


def _varied(new: NewEntry, extra: str | None, counted: bool) -> NewEntry:
    return replace(new, extra=extra, counted=counted)


entries: st.SearchStrategy[NewEntry] = st.builds(
    _varied,
    st.one_of(message_entries, message_entries, custom_entries, summary_entries),
    st.sampled_from([None, None, None, '{"timestamp":"2025-01-01"}']),
    st.sampled_from([True, True, True, False]),
)
"""Entries that refer to no other: messages, summaries, further kinds; some carry extra fields or are not counted."""

_numbers_of: dict[str, JsonObject] = {
    "c1": {"input": 5, "cost": {"total": 0.1}},
    "c2": {"output": 7, "reasoning": 3},
    "c3": {"cacheWrite": 9, "cacheWrite1h": 4, "totalTokens": 10},
}
_known_calls: st.SearchStrategy[JsonObject] = st.sampled_from(sorted(_numbers_of)).map(
    lambda call_id: {"callId": call_id, "provider": "p", **_numbers_of[call_id]}
)
_paid_calls: st.SearchStrategy[JsonObject] = st.one_of(
    st.builds(lambda usage: {**usage, "provider": "p"}, usages),
    st.just({"provider": "p", "surely": 7}),
    _known_calls,
    _known_calls,
    _known_calls.map(lambda call: {**call, "output": 8}),
)
"""Calls without an id, one in which nothing is recognised, and calls that are reported again and again, now and then
with other numbers."""

calls: st.SearchStrategy[PaidCall] = st.builds(
    lambda reported, purpose, outcome: replace(read_call(reported, "usage", purpose), outcome=outcome),
    _paid_calls,
    st.sampled_from(["turn", "title"]),
    st.none() | st.just("failed"),
)
"""Paid calls that made no entry."""


def compactions(first_kept: str) -> st.SearchStrategy[NewEntry]:
    """Return compactions that keep from ``first_kept``, with a sum of usage, single paid calls, or neither."""
    return st.builds(
        NewEntry.compaction,
        texts,
        first_kept_entry_id=st.just(first_kept),
        tokens_before=token_counts,
        details=json_values,
        usage=st.none() | usages,
        calls=st.lists(_paid_calls, max_size=2),
    )
