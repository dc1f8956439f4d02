"""Builders of entries: each keeps its arguments unchanged, and names the argument that it refuses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flue_py.core.entries import Entry, NewEntry, checked_kind, checked_source, from_microseconds, to_microseconds
from flue_py.core.json import JsonObject, JsonValue, decode_json, decode_object
from flue_py.core.kinds import BRANCH_SUMMARY, COMPACTION, CUSTOM_MESSAGE, MESSAGE, PREVIEW_LENGTH, message_preview
from flue_py.core.messages import UserMessage, parse_message
from flue_py.core.usage import NO_USAGE, PaidCall, Usage, UsageTotals, read_usage, reported_usage
from flue_py.errors import CorruptStore, InvalidArgument, InvalidEntry
from flue_py.formats.kit import UNREADABLE_MESSAGE, Notes, message_content, message_entry
from tests.tables import inputs

USAGE: JsonObject = {
    "input": 7, "output": 2, "cacheRead": 3, "cacheWrite": 1, "totalTokens": 13,
    "cost": {"input": 0.1, "output": 0.2, "cacheRead": 0, "cacheWrite": 0, "total": 0.3},
}  # fmt: skip
TOLD = frozenset({"input", "output", "cacheRead", "cacheWrite", "totalTokens"})
TOTALS = UsageTotals(7, 2, 3, 1, 13, 10**11, 2 * 10**11, 0, 0, 3 * 10**11)


def assistant(**fields: JsonValue) -> JsonObject:
    return {"role": "assistant", "content": [{"type": "text", "text": "ok"}], **fields}


def compaction(**fields: Any) -> NewEntry:
    return NewEntry.compaction(**{"summary": "s", "first_kept_entry_id": "e1", "tokens_before": 10, **fields})


def stored(new: NewEntry, **fields: Any) -> Entry:
    """The entry as a store would hand it out."""
    values = {
        "id": "e1", "parent_id": None, "session_id": "s1", "kind": new.kind, "role": new.role, "source": new.source,
        "depth": 0, "revision": 1, "ordinal": 0, "created_us": 1_700_000_000_123_456, "payload": new.payload,
        "extra": new.extra,
    }  # fmt: skip
    return Entry(**{**values, **fields})


# -- messages -------------------------------------------------------------------------------------------------------


def test_a_user_message_is_kept_key_by_key_and_reports_nothing() -> None:
    message: JsonObject = {"timestamp": 1.0, "role": "user", "content": "hé😀", "x": {"b": 1, "a": [None]}}
    new = NewEntry.message(message, "prompt")
    assert new == NewEntry(
        MESSAGE, '{"timestamp":1.0,"role":"user","content":"hé😀","x":{"b":1,"a":[null]}}', role="user", source="prompt"
    )
    assert new.preview == "hé😀"


def test_an_assistant_message_reports_its_usage_and_one_paid_call() -> None:
    new = NewEntry.message(assistant(usage=USAGE, provider="p", model="m"))
    assert (new.role, new.usage, new.calls) == (
        "assistant",
        TOTALS,
        (PaidCall(TOTALS, "p", "m", cost=TOTALS.cost_total, told=TOLD),),
    )
    assert new.calls[0].purpose == "turn"
    assert new.calls[0].call_id is None
    assert new.preview is None


@inputs("fields", [{}, {"usage": None}])
def test_an_assistant_message_without_usage_is_no_paid_call(fields: JsonObject) -> None:
    new = NewEntry.message(assistant(**fields))
    assert (new.usage, new.calls) == (NO_USAGE, ())


@inputs("usage", [{}, {"tokens": {"in": 5}}, 5, "five", []])
def test_an_assistant_message_with_unknown_usage_is_a_paid_call_all_the_same(usage: JsonValue) -> None:
    new = NewEntry.message(assistant(usage=usage))
    assert new.calls == (PaidCall(NO_USAGE, is_unknown=True),)
    assert decode_object(new.payload)["usage"] == usage


def test_an_answer_is_never_refused_for_its_bookkeeping() -> None:
    usage: JsonObject = {"input": -1, "output": 2, "reasoning": 7, "cost": {"total": "1"}}
    new = NewEntry.message(assistant(usage=usage))
    assert new.usage == UsageTotals(output=2, total_tokens=2)
    assert [odd.partition(":")[0] for odd in new.oddities] == [
        "message.usage.input", "message.usage.cost.total", "message.usage.reasoning",
    ]  # fmt: skip
    assert decode_object(new.payload)["usage"] == usage


@inputs(
    "message",
    [
        {"role": "user", "content": "x", "usage": USAGE},
        {"role": "toolResult", "toolCallId": "c", "toolName": "t", "content": [], "isError": False, "usage": USAGE},
        {"role": "system", "content": "x", "usage": USAGE},
    ],
    ids=lambda message: str(message["role"]),
)
def test_only_assistant_messages_report_usage(message: JsonObject) -> None:
    new = NewEntry.message(message)
    assert (new.role, new.usage, new.calls) == (message["role"], NO_USAGE, ())
    assert decode_object(new.payload)["usage"] == USAGE


def test_a_typed_message_is_stored_as_its_json() -> None:
    assert NewEntry.message(UserMessage(content="x")).payload == '{"role":"user","content":"x"}'


def test_lone_surrogates_of_a_message_are_replaced_and_counted() -> None:
    new = NewEntry.message({"role": "user", "content": "a\ud800", "x\udc00": ["\ud83d\ude00"]})
    assert new.surrogates_replaced == 2
    assert decode_json(new.payload) == {"role": "user", "content": "a\ufffd", "x\ufffd": ["😀"]}
    assert new.preview == "a\ufffd"


@inputs(
    ("message", "field"),
    [
        pytest.param({"role": "user", "content": float("nan")}, "message.content", id="NaN"),
        pytest.param({"role": "user", "content": "x", "m": {"a": [b""]}}, "message.m.a[0]", id="bytes"),
        pytest.param({"content": "x"}, "message.role", id="no role"),
        pytest.param({"role": 5, "content": "x"}, "message.role", id="role of another type"),
        pytest.param({"role": "user", "content": 5}, "message.content", id="content of another type"),
        pytest.param(None, "message", id="None"),
        pytest.param(5, "message", id="a number"),
        pytest.param([{"role": "user"}], "message", id="a list"),
        pytest.param("hello", "message", id="a text"),
    ],
)
def test_a_message_that_cannot_be_stored_is_refused_and_the_field_named(message: Any, field: str) -> None:
    with pytest.raises(InvalidEntry) as caught:
        NewEntry.message(message)
    assert str(caught.value).startswith(f"{field}:")


# -- sources and kinds ----------------------------------------------------------------------------------------------


@inputs("source", [None, "prompt", "skill", "shell", "task", "retry", "my-app.v2:x_1", "A", "a" * 64])
def test_a_source_is_kept_as_it_is(source: str | None) -> None:
    assert checked_source(source) == source
    assert NewEntry.message({"role": "user", "content": "x"}, source).source == source


BAD_TAGS = ["", " ", "a b", "1a", "-a", ".a", "é", "a\n", "a\0", "a\ud800", "a" * 65, 5, b"prompt", ["prompt"], True]


@inputs("source", BAD_TAGS, ids=repr)
def test_a_source_that_is_no_tag_is_refused(source: Any) -> None:
    with pytest.raises(InvalidEntry, match=r"^source:"):
        checked_source(source)
    with pytest.raises(InvalidEntry, match=r"^source:"):
        NewEntry.message({"role": "user", "content": "x"}, source)


@inputs("kind", ["custom", CUSTOM_MESSAGE, "exclusion", "model_change", "x.y:z-1_2", "a" * 64])
def test_a_further_kind_carries_any_json(kind: str) -> None:
    values: list[JsonValue] = [{"b": 1, "a": 2}, [1], "text", 5, None, True]
    for data in values:
        new = NewEntry.custom(kind, data)
        assert checked_kind(kind) == new.kind == kind
        assert decode_json(new.payload) == data
        assert (new.role, new.usage, new.calls, new.references) == (None, NO_USAGE, (), ())


@inputs("kind", [*BAD_TAGS, None], ids=repr)
def test_a_kind_that_is_no_name_is_refused(kind: Any) -> None:
    with pytest.raises(InvalidEntry, match=r"^kind:"):
        NewEntry.custom(kind, {})


@inputs("kind", [MESSAGE, COMPACTION, BRANCH_SUMMARY])
def test_the_required_kinds_have_methods_of_their_own(kind: str) -> None:
    with pytest.raises(InvalidEntry, match=r"^kind:"):
        NewEntry.custom(kind, {})


def test_the_data_of_a_further_kind_is_checked_and_cleaned() -> None:
    with pytest.raises(InvalidEntry, match=r"^data\.a\[0\]:"):
        NewEntry.custom("custom", {"a": [float("inf")]})
    assert NewEntry.custom("custom", {"a": "\ud800\udfff\udfff"}).surrogates_replaced == 1


# -- compactions ----------------------------------------------------------------------------------------------------


def test_a_compaction_without_usage_has_three_fields_and_no_call() -> None:
    new = compaction()
    assert new == NewEntry(COMPACTION, '{"summary":"s","firstKeptEntryId":"e1","tokensBefore":10}', references=("e1",))


def test_a_compaction_with_usage_is_one_paid_call_and_keeps_the_usage_as_given() -> None:
    usage = {"totalTokens": 13, **USAGE, "extra": 1}
    new = compaction(usage=usage, details={"readFiles": ["b", "a"]})
    assert (new.usage, new.calls) == (
        TOTALS,
        (PaidCall(TOTALS, purpose="compaction", cost=TOTALS.cost_total, told=TOLD),),
    )
    fields = decode_object(new.payload)
    assert list(fields) == ["summary", "firstKeptEntryId", "tokensBefore", "details", "usage"]
    assert fields["usage"] == usage
    assert fields["details"] == {"readFiles": ["b", "a"]}


def test_with_calls_alone_the_usage_is_their_sum() -> None:
    calls: list[JsonObject] = [
        {**USAGE, "provider": "p", "model": "m1", "callId": "c1"},
        {"input": 1, "cost": {"total": 1e-12}, "model": "m2"},
        {},
    ]
    new = compaction(calls=calls)
    small = UsageTotals(input=1, total_tokens=1, cost_total=1)
    assert new.calls == (
        PaidCall(TOTALS, "p", "m1", "c1", "compaction", cost=TOTALS.cost_total, told=TOLD),
        PaidCall(small, "", "m2", None, "compaction", cost=1, told=frozenset({"input"})),
        PaidCall(NO_USAGE, purpose="compaction", is_unknown=True),
    )
    assert new.usage == TOTALS.plus(small)
    assert decode_object(new.payload)["usage"] == Usage.from_totals(new.usage).to_json()
    assert read_usage(decode_object(new.payload)["usage"]) == new.usage


@given(st.lists(st.fixed_dictionaries({"cost": st.fixed_dictionaries({"total": st.floats(0, 10**6)})}), max_size=4))
def test_the_sum_of_calls_reads_back_from_the_payload_as_it_is_counted(calls: list[JsonObject]) -> None:
    new = compaction(calls=calls)
    assert read_usage(decode_object(new.payload).get("usage")) == new.usage


def test_calls_whose_sum_is_too_large_are_kept_and_not_counted() -> None:
    calls: list[JsonObject] = [{"input": 2**62}, {"input": 1}]
    new = compaction(calls=calls)
    assert (new.counted, new.usage) == (False, NO_USAGE)
    assert decode_object(new.payload)["usage"] == {"calls": calls}
    assert [odd.partition(":")[0] for odd in new.oddities] == ["calls"]


def test_with_usage_and_calls_the_path_counts_the_usage_and_the_ledger_the_calls() -> None:
    new = compaction(usage=USAGE, calls=[{"input": 5}, {"input": 2}])
    assert new.usage == TOTALS
    assert [call.usage.input for call in new.calls] == [5, 2]
    assert decode_object(new.payload)["usage"] == USAGE


def test_a_usage_of_zero_is_not_replaced_by_the_sum_of_the_calls() -> None:
    new = compaction(usage={}, calls=[{"input": 5}])
    assert new.usage == NO_USAGE
    assert decode_object(new.payload)["usage"] == {}


def test_a_compaction_keeps_what_it_was_given_when_the_caller_changes_it_later() -> None:
    usage: JsonObject = {"input": 1}
    details: JsonObject = {"a": [1]}
    new = compaction(usage=usage, details=details)
    usage["input"] = 2
    details["a"] = None
    assert decode_object(new.payload)["usage"] == {"input": 1}
    assert decode_object(new.payload)["details"] == {"a": [1]}


def test_a_summary_is_never_refused_for_its_bookkeeping() -> None:
    new = compaction(usage={"input": 1.5, "cost": {"total": -1}})
    assert [odd.partition(":")[0] for odd in new.oddities] == ["usage.input", "usage.cost.total"]
    new = compaction(calls=[{"tokens": 5}, {"input": "1"}])
    assert [odd.partition(":")[0] for odd in new.oddities] == ["calls[0].tokens", "calls[1].input"]
    assert [call.is_unknown for call in new.calls] == [True, True]
    assert decode_object(new.payload)["usage"] == {"calls": [{"tokens": 5}, {"input": "1"}]}


def test_lone_surrogates_of_a_compaction_are_counted() -> None:
    assert compaction(summary="\ud800", details=["\udc00"]).surrogates_replaced == 2


@inputs(
    ("fields", "named"),
    [
        pytest.param({"summary": None}, "summary", id="summary None"),
        pytest.param({"summary": 5}, "summary", id="summary a number"),
        pytest.param({"summary": b"s"}, "summary", id="summary bytes"),
        pytest.param({"first_kept_entry_id": None}, "first_kept_entry_id", id="first kept None"),
        pytest.param({"first_kept_entry_id": 5}, "first_kept_entry_id", id="first kept a number"),
        pytest.param({"tokens_before": None}, "tokens_before", id="tokens None"),
        pytest.param({"tokens_before": -1}, "tokens_before", id="tokens negative"),
        pytest.param({"tokens_before": 1.5}, "tokens_before", id="tokens a float"),
        pytest.param({"tokens_before": True}, "tokens_before", id="tokens a bool"),
        pytest.param({"tokens_before": "10"}, "tokens_before", id="tokens a text"),
        pytest.param({"tokens_before": -(10**5000)}, "tokens_before", id="tokens of 5000 digits, negative"),
        pytest.param({"tokens_before": 10**5000}, "compaction.tokensBefore", id="tokens of 5000 digits"),
        pytest.param({"details": {"a": {1}}}, "compaction.details.a", id="details a set"),
        pytest.param({"usage": []}, "usage", id="usage an empty list"),
        pytest.param({"usage": [1]}, "usage", id="usage a list"),
        pytest.param({"usage": "x"}, "usage", id="usage a text"),
        pytest.param({"usage": 5}, "usage", id="usage a number"),
        pytest.param({"usage": {"x": b""}}, "compaction.usage.x", id="bytes beside the usage"),
        pytest.param({"calls": 5}, "calls", id="calls a number"),
        pytest.param({"calls": [5]}, "calls[0]", id="a call a number"),
        pytest.param({"calls": [{}, None]}, "calls[1]", id="a call None"),
    ],
)
def test_an_argument_of_a_compaction_that_cannot_be_stored_is_named(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidEntry) as caught:
        compaction(**fields)
    assert str(caught.value).startswith(f"{named}:")


# -- branch summaries -----------------------------------------------------------------------------------------------


@inputs("from_id", [None, "e1", "root", ""])
def test_a_branch_summary_keeps_from_id_as_given_and_refers_to_nothing(from_id: str | None) -> None:
    new = NewEntry.branch_summary("s", from_id=from_id)
    assert (new.kind, new.references, new.usage, new.calls) == (BRANCH_SUMMARY, (), NO_USAGE, ())
    assert decode_object(new.payload) == {"summary": "s", "fromId": from_id}


def test_a_branch_summary_keeps_details_and_counts_surrogates() -> None:
    new = NewEntry.branch_summary("s\ud800", from_id=None, details={"a": [1]})
    assert decode_object(new.payload)["details"] == {"a": [1]}
    assert new.surrogates_replaced == 1


@inputs(
    ("call", "named"),
    [
        (lambda: NewEntry.branch_summary(None, from_id="e1"), "summary"),  # type: ignore[arg-type]
        (lambda: NewEntry.branch_summary("s", from_id=5), "from_id"),  # type: ignore[arg-type]
        (lambda: NewEntry.branch_summary("s", from_id=None, details=b""), "branch_summary.details"),  # type: ignore[arg-type]
    ],
    ids=["summary", "from_id", "details"],
)
def test_an_argument_of_a_branch_summary_that_cannot_be_stored_is_named(
    call: Callable[[], NewEntry], named: str
) -> None:
    with pytest.raises(InvalidEntry) as caught:
        call()
    assert str(caught.value).startswith(f"{named}:")


# -- previews -------------------------------------------------------------------------------------------------------


@inputs(
    ("text", "preview"),
    [
        ("", None), (" \n\t\r\n ", None), ("\n\n  first \nsecond", "first"), ("x" * 500, "x" * PREVIEW_LENGTH),
        ("a\0b", "ab"), ("\0", None), ("\0\nsecond", "second"), ("a\ud800b", "a\ufffdb"), ("\ud83d\ude00", "😀"),
        ("one\u2028two", "one"),
    ],
    ids=repr,
)  # fmt: skip
def test_a_preview_is_the_first_line_with_text_in_it(text: str, preview: str | None) -> None:
    assert message_preview(text) == preview


@given(st.text(st.one_of(st.characters(), st.sampled_from("\ud800\udc00\0\n ")), max_size=300))
def test_a_preview_is_short_and_storable(text: str) -> None:
    preview = message_preview(text)
    assert preview is None or (preview.encode() and "\0" not in preview and len(preview) <= PREVIEW_LENGTH)


# -- what a store hands out -----------------------------------------------------------------------------------------


def test_an_entry_decodes_its_payload_afresh_each_time() -> None:
    entry = stored(NewEntry.message({"role": "user", "content": "x", "list": [1]}))
    entry.fields["list"] = None
    assert entry.fields["list"] == [1]
    assert entry.data == entry.fields
    assert entry.message == parse_message({"role": "user", "content": "x", "list": [1]})


def test_only_a_message_entry_has_a_message() -> None:
    with pytest.raises(InvalidArgument, match="'e1' is of kind compaction, not a message"):
        _ = stored(compaction()).message


def test_an_entry_tells_what_it_reported() -> None:
    assert stored(NewEntry.message(assistant(usage=USAGE))).usage == TOTALS
    assert stored(compaction(usage=USAGE)).usage == TOTALS
    assert stored(NewEntry.message({"role": "user", "content": "x", "usage": USAGE})).usage == NO_USAGE
    assert stored(NewEntry.branch_summary("s", from_id=None, details={"usage": USAGE})).usage == NO_USAGE
    assert stored(NewEntry.custom("custom", {"usage": USAGE})).usage == NO_USAGE


def test_extra_fields_are_decoded_and_default_to_none_at_all() -> None:
    assert stored(compaction()).extra_fields == {}
    assert stored(compaction(), extra='{"a":1}').extra_fields == {"a": 1}
    with pytest.raises(CorruptStore):
        _ = stored(compaction(), extra="[]").extra_fields


def test_entries_are_values_that_cannot_be_changed() -> None:
    new = compaction()
    entry = stored(new)
    assert entry == stored(new)
    assert hash(entry) == hash(stored(new))
    for value, name in ((new, "payload"), (entry, "payload")):
        with pytest.raises(AttributeError):
            setattr(value, name, "")


# -- time -----------------------------------------------------------------------------------------------------------


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-9, minutes=-30))])))
def test_a_moment_survives_the_way_through_microseconds(moment: datetime) -> None:
    assert from_microseconds(to_microseconds(moment)) == moment


def test_an_entry_tells_its_time_in_utc() -> None:
    moment = stored(compaction()).created_at
    assert moment == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    assert moment.utcoffset() == timedelta(0)


def test_a_naive_moment_is_refused() -> None:
    with pytest.raises(ValueError, match="without a time zone"):
        to_microseconds(datetime(2026, 1, 1))  # noqa: DTZ001 - the point of the test


def test_parts_of_tokens_and_an_unknown_cost_are_kept_with_the_call() -> None:
    usage: JsonObject = {"output": 9, "cacheWrite": 5, "cacheWrite1h": 2, "reasoning": 4}
    (call,) = NewEntry.message(assistant(usage=usage, stopReason="aborted")).calls
    assert (call.cache_write_1h, call.reasoning, call.outcome) == (2, 4, "aborted")
    assert (call.known_cost, call.source) == (None, None)


def test_a_branch_summary_has_paid_calls_and_adds_nothing_to_its_path() -> None:
    new = NewEntry.branch_summary("left", from_id="x", calls=[{"input": 1, "callId": "a"}, {"input": 2}])
    assert new.usage == NO_USAGE
    assert [(call.call_id, call.purpose, call.known_cost) for call in new.calls] == [
        ("a", "branch_summary", None),
        (None, "branch_summary", None),
    ]
    assert cast("JsonObject", decode_object(new.payload)["usage"])["cost"] is None
    assert reported_usage("branch_summary", None, decode_object(new.payload)) == NO_USAGE


@inputs(
    ("message", "field"),
    [
        ({"role": "user"}, "content"),
        ({"role": "system", "content": None}, "content"),
        ({"role": "toolResult", "content": "x"}, "toolCallId"),
    ],
)
def test_a_message_that_says_nothing_is_refused_and_an_importer_keeps_it_outside_the_context(
    message: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidEntry, match=rf"^message\.{field}: is missing"):
        NewEntry.message(message)
    with pytest.raises(InvalidEntry, match=rf"^message\.{field}: is missing"):
        message_content(message)
    notes = Notes()
    entry, _ = message_entry(message, message, 3, notes)
    assert (entry.kind, [note.line for note in notes.repaired]) == (UNREADABLE_MESSAGE, [3])


def test_a_misspelt_argument_of_a_builder_is_named_with_those_there_are() -> None:
    with pytest.raises(TypeError, match=r"'parent' is no argument .* takes id, parent_id, created_at, extra"):
        NewEntry.custom("mine", {}, parent="a")  # type: ignore[call-arg]
