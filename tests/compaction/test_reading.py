"""A plan reads no message that it need not: what it says is the same as if it had read all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flue_py.compaction import CompactionSettings, NoCompaction, SessionCompactionPlan, plan_session_compaction
from flue_py.compaction.blocks import user_words
from flue_py.compaction.material import Material, gathered
from flue_py.core.context import ContextEntry
from flue_py.core.entries import Entry, Pairing, exchange_of
from flue_py.core.json import JsonObject
from tests.compaction.strategies import Item, assistant, budgets, call, messages, tool_result, usage, user
from tests.context.pipeline.piped import block
from tests.context.pipeline.piped import context as stored
from tests.values import existing

UNREAD = "this is not JSON, and nobody may read it"


def entry(number: int, payload: str, role: str) -> ContextEntry:
    return ContextEntry(Entry(f"e{number}", None, None, "message", role, None, number, number, 0, 0, payload))


def read(context: list[JsonObject]) -> list[Item]:
    return [Item(item.entry_id, item.data, item.kind) for item in stored(*context)]


def test_what_lies_long_before_the_cut_is_not_decoded() -> None:
    end = [call("read", {"path": "x"}), tool_result("out"), assistant("done", usage=usage(100))]
    spoken = '{"role":"user","content":"words'
    items = [entry(n, *((spoken, "user"), (UNREAD, "assistant"))[n % 2]) for n in range(20)]
    items += [entry(20 + n, item.entry.payload, str(item.role)) for n, item in enumerate(stored(*end))]
    found = plan_session_compaction(items, None, CompactionSettings(keep_recent_tokens=25), counts=[10] * 23)

    assert isinstance(found, SessionCompactionPlan)
    assert found.first_kept_entry_id == "e20"
    assert found.plan.content.indices == range(20)
    assert found.plan.tokens_before == 100
    assert found.plan.content.turns == [n // 2 + 1 for n in range(20)]
    assert found.plan.content.turns_ended == 10


def test_an_answer_without_calls_is_not_decoded_for_the_operations() -> None:
    context = [user("a"), call("read", {"path": "x"}), tool_result("b"), assistant("c"), user("d"), assistant("e")]
    items = stored(*context)
    items[3] = entry(3, UNREAD, "assistant")
    items[2] = entry(2, '{"role":"toolResult","toolCallId":"t1","isError":true', "toolResult")
    found = plan_session_compaction(items, None, CompactionSettings(keep_recent_tokens=20), counts=[10] * 6)

    assert isinstance(found, SessionCompactionPlan)
    assert found.plan.files.read_files == ("x",)
    assert [call.id for call in found.plan.content.pairing.results] == [context[1]["content"][0]["id"]]  # type: ignore[index,call-overload]


@given(context=messages, keep=budgets, pinned=st.sets(st.integers(0, 13)))
def test_entries_are_planned_as_messages_are(context: list[JsonObject], keep: int, pinned: set[int]) -> None:
    settings, ids = CompactionSettings(keep_recent_tokens=keep), {f"e{n}" for n in pinned}
    from_entries = plan_session_compaction(stored(*context), None, settings, pinned=ids)
    from_messages = plan_session_compaction(read(context), None, settings, pinned=ids)

    if isinstance(from_messages, NoCompaction) or isinstance(from_entries, NoCompaction):
        assert from_entries == from_messages
        return
    assert from_entries.plan == from_messages.plan
    assert [item.entry_id for item in from_entries.leaving] == [item.entry_id for item in from_messages.leaving]
    assert [item.entry_id for item in from_entries.staying] == [item.entry_id for item in from_messages.staying]
    found, expected = (gathered(Material(each, lambda message: 1), 3) for each in (from_entries, from_messages))
    assert found == expected


@given(context=messages)
def test_what_is_told_without_decoding_pairs_alike(context: list[JsonObject]) -> None:
    found = Pairing(exchange_of(item.entry) for item in stored(*context))
    expected = Pairing(context)

    assert (found.results, found.unpaired) == (expected.results, expected.unpaired)
    assert [found.group_of(at) for at in range(len(context))] == [expected.group_of(at) for at in range(len(context))]


def test_a_field_of_the_name_that_belongs_to_something_else_is_not_taken_for_the_call() -> None:
    message: JsonObject = {
        "role": "toolResult",
        "details": {"toolCallId": "other"},
        "toolCallId": 'a "toolCallId":"text" b',
        "content": '"toolCallId":"quoted"',
    }
    [item] = stored(message)

    found = existing(exchange_of(item.entry))
    assert found["toolCallId"] == message["toolCallId"]


def test_of_what_the_user_said_only_what_may_fit_is_decoded() -> None:
    items = stored(*(message for n in range(9) for message in (user(f"Do {n}, please."), assistant("Shall I? No."))))
    unread = '{"role":"user","content":"Words that do not fit'
    items[2:10] = [entry(n, UNREAD if n % 2 else unread, "assistant" if n % 2 else "user") for n in range(2, 10)]
    found = plan_session_compaction(items, None, CompactionSettings(keep_recent_tokens=1), counts=[10] * len(items))

    assert isinstance(found, SessionCompactionPlan)
    block = user_words(Material(found, lambda _: 10, window=200, tokens_leaving=500))
    said = [line for line in block.text.splitlines() if "please" in line]
    assert said == [f"- Do {n}, please." for n in (0, 5, 6, 7, 8)]
    assert "[4 more of the user's messages did not fit; they are stored]" in block.text


def test_a_split_turn_begins_at_its_question_and_not_at_a_block_that_was_told_in_it() -> None:
    asked = [user("old"), assistant("ok"), user("?"), call("read", {}), tool_result("b")]
    context = [*asked, block("day", "Monday"), call("read", {}, "c2"), tool_result("c", "c2")]
    items, keep = stored(*context, kinds={5: "custom_message"}), CompactionSettings(keep_recent_tokens=20)
    found = plan_session_compaction(items, None, keep, counts=[10] * 8)
    assert isinstance(found, SessionCompactionPlan)
    assert (found.plan.first_kept_index, found.plan.turn_prefix[:3]) == (6, tuple(asked[2:]))
