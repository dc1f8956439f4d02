"""The size of a context: the counters, what they remember, and when a provider's own number is believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flue_py.compaction import estimate_tokens
from flue_py.context.tokens import (
    ENTRY_COUNTS,
    MESSAGE_OVERHEAD_TOKENS,
    MOST_COUNTERS,
    EntryCounts,
    NotCounted,
    changed_depth,
    count_message_tokens,
    count_tokens,
    counter_for,
    estimate_message_tokens,
    measure_context,
    reported_size,
)
from flue_py.core.context import ContextEntry, Counter, EntryCounter, is_same_model, project
from flue_py.core.entries import Entry
from flue_py.core.json import JsonObject, JsonValue, encode_json
from tests.context.pipeline.piped import context, user
from tests.strategies import messages
from tests.tables import inputs
from tests.values import existing

MODELS = inputs("model", ["gpt-5", "gpt-4", "unknown-model"])


def entry(number: int, data: JsonObject, kind: str = "message", *, extra: JsonObject | None = None) -> Entry:
    said = data.get("role")
    role, parent_id = said if isinstance(said, str) else None, f"e{number - 1}" if number else None
    payload, more = encode_json(data, "data")[0], None if extra is None else encode_json(extra, "extra")[0]
    return Entry(f"e{number}", parent_id, "s", kind, role, None, number, number, 0, number, payload, more)


def answer(text: str, tokens: int | None = None, **more: JsonValue) -> JsonObject:
    said: JsonObject = {"role": "assistant", "content": [{"type": "text", "text": text}], **more}
    return said if tokens is None else {**said, "usage": {"input": tokens, "totalTokens": tokens}}


LONG = "word " * 200


class Letters:
    """A counter of one's own: a token for each letter of the JSON. It counts how often it was asked."""

    def __init__(self, name: str = "letters", *, is_estimate: bool = False) -> None:
        self.name = name
        self.is_estimate = is_estimate
        self.asked = 0

    def count(self, message: Mapping[str, JsonValue], /) -> int:
        self.asked += 1
        return len(encode_json(dict(message), "message")[0])


@pytest.fixture(autouse=True)
def nothing_counted() -> None:
    ENTRY_COUNTS.clear()


# --- which counter counts -------------------------------------------------------------------------------------


@inputs(
    ("model", "name"),
    [
        ("gpt-5", "tiktoken:o200k_base"), ("openai:o3", "tiktoken:o200k_base"),
        ("openai/gpt-4o-mini", "tiktoken:o200k_base"), ("openrouter/openai/gpt-4o", "tiktoken:o200k_base"),
        ("gpt-4", "tiktoken:cl100k_base"), ("claude-sonnet-4-5", "bytes/3"), ("anthropic:claude-sonnet-4-5", "bytes/3"),
        ("mistral:instruct", "bytes/3"), ("", "bytes/3"), (None, "bytes/3"),
    ],
)  # fmt: skip
def test_a_known_model_is_counted_with_its_vocabulary_and_any_other_is_estimated(model: str | None, name: str) -> None:
    counter = counter_for(model)
    assert (counter.name, counter.is_estimate) == (name, name == "bytes/3")
    assert counter_for(model, faithful=True).name == "faithful"
    assert counter_for(model, faithful=True).is_estimate


@MODELS
@given(message=messages)
def test_a_counter_says_what_the_functions_of_tokens_say(model: str, message: JsonObject) -> None:
    assert counter_for(model).count(message) == count_message_tokens(message, model).tokens


@given(message=messages)
def test_the_estimates_are_those_for_models_that_are_not_known_and_of_the_reference(message: JsonObject) -> None:
    assert counter_for(None).count(message) == estimate_message_tokens(message).tokens
    faithful = counter_for(None, faithful=True).count(message)
    assert faithful == estimate_tokens(message)


def test_counters_are_what_compaction_takes() -> None:
    counter: EntryCounter = counter_for("gpt-5")
    other: Counter = Letters()
    assert counter.count(user("x")) > 0
    assert other.count(user("x")) > 0


# --- what is counted, and remembered ------------------------------------------------------------------------------


@MODELS
@given(said=st.lists(messages, max_size=5))
def test_a_context_takes_what_its_messages_take_and_a_second_count_says_the_same(
    model: str, said: list[JsonObject]
) -> None:
    ENTRY_COUNTS.clear()
    items, counter = context(*said), counter_for(model)
    size = measure_context(items, counter, use_reported=False)
    assert size.tokens == size.messages == size.trailing == sum(counter.count(message) for message in said)
    expected = count_tokens(said, model)
    assert (size.tokens, size.is_estimate) == (expected.tokens, expected.is_estimate and bool(said))
    assert measure_context(items, counter, use_reported=False) == size
    assert [counter.count_entry(item) for item in items] == counter.count_entries(items)
    assert sum(counter.count_entries(items)) == size.tokens


def test_an_entry_is_counted_once_for_each_counter() -> None:
    items, counts, letters = context(user("a"), user("b")), EntryCounts(), Letters()
    with pytest.raises(NotCounted):
        counts.tally(items, letters, only_known=True)
    with pytest.raises(NotCounted):
        counts.tally_texts(["c"], letters, only_known=True)
    assert letters.asked == 0
    first = counts.tally(items, letters)
    assert letters.asked == 2
    assert counts.tally(items, letters, only_known=True) == first
    assert counts.tally([ContextEntry(item.entry) for item in items], letters) == first
    assert letters.asked == 2
    assert counts.tally(items, Letters("others", is_estimate=True)).is_estimate
    counts.clear()
    with pytest.raises(NotCounted):
        counts.tally(items, letters, only_known=True)


def test_the_same_id_with_another_payload_kind_or_exclusion_is_counted_anew() -> None:
    counts, letters = EntryCounts(), Letters()
    parts: list[JsonValue] = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    whole = entry(1, {"role": "user", "content": parts})
    without = [ContextEntry(whole, excluded_parts=frozenset({place})) for place in (0, 1)]
    others = [
        ContextEntry(entry(1, user("x"))),
        ContextEntry(entry(1, {"summary": "s"}, "branch_summary")),
        ContextEntry(entry(1, {"summary": "s"}, "compaction")),
    ]
    for item in [ContextEntry(whole), *without, *others, ContextEntry(whole)]:
        assert counts.count(item, letters) == Letters().count(item.data)


def test_the_oldest_counts_are_dropped_and_counted_again() -> None:
    counts, letters = EntryCounts(most=4), Letters()
    items = context(*(user(str(number)) for number in range(10)))
    expected = sum(Letters().count(item.data) for item in items)
    assert [counts.tally(items, letters).tokens for _ in range(3)] == [expected] * 3
    asked = letters.asked
    assert asked > 10
    counts.tally(items[-1:], letters)
    assert letters.asked == asked
    for number in range(MOST_COUNTERS):
        counts.tally(items[-1:], Letters(f"letters {number}"))
    counts.tally(items[-1:], letters)
    assert letters.asked == asked + 1


def test_threads_that_count_at_once_count_alike() -> None:
    counts = EntryCounts(most=8)
    items = context(*(user("x" * number) for number in range(12)))
    expected = sum(Letters().count(item.data) for item in items)
    start = Barrier(4)

    def tallied() -> list[int]:
        start.wait()
        return [counts.tally(items, Letters(f"letters {number % 10}")).tokens for number in range(30)]

    with ThreadPoolExecutor(4) as threads:
        found = [each.result() for each in [threads.submit(tallied) for _ in range(4)]]
    assert found == [[expected] * 30] * 4


def test_images_make_the_size_an_estimate() -> None:
    counter = counter_for("gpt-5")
    image: JsonObject = {"role": "user", "content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}]}
    for _ in range(2):
        assert not measure_context(context(user("x")), counter).is_estimate
        assert measure_context(context(user("x"), image), counter).is_estimate
    assert measure_context(context(user("x")), counter_for(None)).is_estimate
    assert not measure_context([], counter_for(None)).is_estimate


def test_the_system_prompt_and_the_tools_are_counted_in() -> None:
    counter, letters = counter_for("gpt-5"), Letters()
    tool: JsonObject = {"name": "read", "parameters": {"type": "object"}}
    size = measure_context(context(user("x")), counter, system="Be brief.", tools=[tool, tool])
    assert size.tokens == size.counted == size.messages + (size.system or 0) + (size.tools or 0)
    assert size.system == count_message_tokens(user("Be brief."), "gpt-5").tokens
    text = encode_json(tool, "tool")[0]
    assert size.tools == 2 * (count_message_tokens(user(text), "gpt-5").tokens) > 2 * MESSAGE_OVERHEAD_TOKENS
    assert size.is_estimate
    assert not measure_context(context(user("x")), counter, system="Be brief.").is_estimate
    assert measure_context([], letters, system="").system == 0
    for _ in range(2):
        measure_context([], letters, system="Be brief.", tools=[tool, tool])
    assert letters.asked == 2


# --- what the provider reported ------------------------------------------------------------------------------------


def size_of(items: Sequence[ContextEntry], **more: object) -> tuple[int, str | None]:
    """Return the tokens, and the id of the entry whose report they build on."""
    size = measure_context(items, counter_for(None), **more)  # type: ignore[arg-type]
    return size.tokens, size.reported.entry_id if size.reported is not None and size.trusts_reported else None


def counted(*said: JsonObject) -> int:
    return sum(estimate_message_tokens(message).tokens for message in said)


def test_the_newest_report_counts_and_what_follows_it_is_counted() -> None:
    said = [user(LONG), answer("a", 300), user("b"), answer("c", 320), user("d"), user("e")]
    items = context(*said)
    size = measure_context(items, counter_for(None), system=LONG)
    assert size.reported is not None
    assert size.system is not None
    assert (size.reported.tokens, size.reported.entry_id, size.reported.place) == (320, "e3", 3)
    assert size.trailing == counted(*said[4:])
    assert size.tokens == 320 + size.trailing
    assert size.counted == counted(*said) + size.system
    assert (size.trusts_reported, size.distrust) == (True, None)
    assert size_of(items, use_reported=False) == (counted(*said), None)
    assert not measure_context(items[:4], counter_for(None)).is_estimate
    assert size.is_estimate


@inputs("reason", ["aborted", "error"])
def test_a_failed_answer_is_not_believed(reason: str) -> None:
    items = context(user(LONG), answer("a", 300), user("b"), answer("c", 310, stopReason=reason))
    assert size_of(items)[1] == "e1"


@inputs("usage", [None, {}, {"input": 0, "output": 0, "totalTokens": 0}, {"totalTokens": -5}, "odd"])
def test_a_report_of_nothing_or_zero_is_not_believed(usage: JsonValue) -> None:
    items = context(user(LONG), answer("a", 300), user("b"), {**answer("c"), "usage": usage})
    assert size_of(items)[1] == "e1"


def test_only_the_model_and_provider_that_were_asked_for_are_believed() -> None:
    items = context(
        user(LONG),
        answer("a", 300, model="gpt-5", provider="openai"),
        answer("b", 310, model="claude-sonnet-4-5-20250929", provider="anthropic"),
    )
    assert size_of(items)[1] == "e2"
    assert size_of(items, model="gpt-5")[1] == "e1"
    assert size_of(items, model="openai:gpt-5", provider="OpenAI")[1] == "e1"
    assert size_of(items, model="claude-sonnet-4-5")[1] == "e2"
    assert size_of(items, model="claude-opus-4-5")[1] is None
    assert size_of(items, model="gpt-5", provider="azure")[1] is None
    assert size_of(context(user(LONG), answer("a", 300)), model="gpt-5", provider="openai")[1] == "e1"


@inputs(
    ("one", "other", "same"),
    [
        ("gpt-5", "gpt-5", True),
        ("gpt-4o", "gpt-4o-2024-08-06", True),
        ("openai/gpt-4o", "openai:gpt-4o", True),
        ("claude-sonnet-4-5", "anthropic:claude-sonnet-4-5-20250929", True),
        ("claude-3-5-sonnet-20240620", "claude-3-5-sonnet-20241022", False),
        ("gpt-5", "gpt-5-mini", False),
        ("llama3:8b", "llama3:70b", False),
    ],
)
def test_names_of_one_model(one: str, other: str, same: bool) -> None:
    assert is_same_model(one, other) is is_same_model(other, one) is same


def test_a_report_above_the_window_or_far_above_our_estimate_is_not_believed() -> None:
    said = [user(LONG), answer("a", 500), user("b")]
    own = counted(*said[:2])
    most = own + own // 2
    for tokens, window, why in [
        (most, None, None),
        (most + 1, None, "above_estimate"),
        (most, most, None),
        (most, most - 1, "above_window"),
    ]:
        items = context(said[0], answer("a", tokens), said[2])
        size = measure_context(items, counter_for(None), system="", tools=(), window=window)
        assert size.reported is not None
        assert (size.reported.tokens, size.distrust, size.trusts_reported) == (tokens, why, why is None)
        assert size.tokens == (tokens + size.trailing if why is None else size.counted)
    larger = context(said[0], answer("a", most + 1))
    assert measure_context(larger, counter_for(None), system=LONG, tools=()).trusts_reported


@inputs(("window", "unseen"), [(None, 40_000), (200_000, 40_000), (32_000, 6_400)])
def test_a_system_prompt_and_tools_that_were_not_given_are_allowed_for(window: int | None, unseen: int) -> None:
    own = counted(user(LONG), answer("a", 500))
    most = own + own // 2 + unseen
    for tokens, trusted in ((most, True), (most + 1, False)):
        for unknown in ({}, {"system": ""}, {"tools": ()}):
            size = measure_context(
                context(user(LONG), answer("a", tokens)), counter_for(None), window=window, **unknown
            )  # type: ignore[arg-type]
            assert size.trusts_reported is trusted
        size = measure_context(context(user(LONG), answer("a", tokens)), counter_for(None), system="", tools=())
        assert size.distrust == "above_estimate"


def test_what_was_reported_before_the_latest_compaction_is_not_believed() -> None:
    kept = [entry(0, user(LONG)), entry(1, answer("a", 300))]
    made = entry(2, {"summary": LONG, "firstKeptEntryId": "e0", "tokensBefore": 9}, "compaction")
    newer = [entry(3, user("b")), entry(4, answer("c", 400))]
    assert reported_size(project([*kept, made])) is None
    assert reported_size(project([*kept, made, newer[0]])) is None
    after = project([*kept, made, *newer])
    found = existing(reported_size(after))
    assert found.entry_id == after[found.place].entry_id == "e4"


def test_what_was_reported_before_an_exclusion_is_not_believed() -> None:
    said = [entry(0, user(LONG)), entry(1, user("x")), entry(2, answer("a", 300))]
    path = [*said, entry(3, {"entryId": "e1"}, "exclusion")]
    assert (changed_depth(said), changed_depth(path)) == (-1, 3)
    items = project(path)
    assert [item.entry_id for item in items] == ["e0", "e2"]
    assert reported_size(items, changed_at=changed_depth(path)) is None
    path.append(entry(4, answer("b", 250)))
    assert reported_size(project(path), changed_at=changed_depth(path)) is not None


def test_what_a_copied_answer_reported_elsewhere_is_not_believed() -> None:
    copied = entry(1, answer("a", 300), extra={"copiedFrom": {"session": "s0", "entry": "e9"}})
    assert copied.extra is not None
    items = [ContextEntry(entry(0, user(LONG))), ContextEntry(copied)]
    assert reported_size(items) is None


def test_the_same_id_with_another_report_is_read_anew() -> None:
    for tokens in (300, 301):
        found = existing(reported_size(context(user(LONG), answer("a", tokens))))
        assert found.tokens == tokens
