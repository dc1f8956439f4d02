"""What is sent to a provider breaks none of its rules, whatever the history is like."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import flue_py
from flue_py import providers as wire
from flue_py.core.json import JsonObject, JsonValue
from flue_py.errors import InvalidArgument
from flue_py.providers.base import LIMITS, RequestLimits
from flue_py.providers.lists import Said, said_in
from flue_py.providers.request import CacheMarks, WireRequest, wire_request
from flue_py.providers.rules import broken_rules
from tests.adapters.messages.contexts import EVERYTHING, TRANSCRIPTS, context_of
from tests.effort import examples
from tests.formats.test_gemini_lists import gemini_lists
from tests.formats.test_list_round_trips import anthropic_lists, chat_lists, responses_lists
from tests.tables import inputs
from tests.wire.hostile import PNG, histories

targets = inputs("target", LIMITS)


def request(target: str, messages: list[JsonObject], **given: Any) -> WireRequest:
    return wire_request(target, [Said(each, entry_id=f"e{number}") for number, each in enumerate(messages)], **given)


def assert_taken(found: WireRequest) -> None:
    """Assert that a request breaks no rule, but for that of having a message where nothing was said."""
    assert [str(each) for each in found.broken] == ([] if found.messages else [str(found.broken[0])])


def told(found: WireRequest) -> list[tuple[str | None, str]]:
    return [(each.entry_id, each.what) for each in found.repairs]


@examples(40)
@given(histories, st.sampled_from([None, "claude-sonnet-4-5", "gpt-5"]))
def test_any_history_breaks_no_rule_of_any_provider(messages: list[JsonObject], model: str | None) -> None:
    before = json.dumps(messages)
    for target in LIMITS:
        assert_taken(request(target, messages, model=model))
    assert json.dumps(messages) == before


@examples(15)
@given(chat_lists(), responses_lists(), anthropic_lists(), gemini_lists(), st.integers(0, 5))
def test_a_history_made_with_one_provider_is_taken_by_each_other_even_torn(
    chat: list[Any], items: list[Any], anthropic: list[Any], contents: list[Any], cut: int
) -> None:
    forms: dict[wire.Shape, list[Any]] = {
        "openai-chat": chat, "openai-responses": items, "anthropic": anthropic, "gemini": contents,
    }  # fmt: skip
    for shape, given_list in forms.items():
        names: dict[str, str] = {}
        torn = given_list[cut % len(given_list) :]
        said = [Said(*each) for message in torn for each in wire.convert(message, shape, names)]
        for target in LIMITS:
            assert_taken(wire_request(target, said))


@pytest.mark.parametrize(
    ("name", "beginnings"),
    [
        *((name, 6) for name in TRANSCRIPTS),
        *(pytest.param(name, 10_000, marks=pytest.mark.slow) for name in TRANSCRIPTS),
    ],
)
def test_a_real_session_is_taken_by_every_provider_wherever_it_ends(name: str, beginnings: int) -> None:
    said = [*said_in(context_of(name))]
    for end in range(len(said), 0, -max(1, len(said) // beginnings)):
        for target in LIMITS:
            assert_taken(wire_request(target, said[:end]))


@targets
def test_what_a_provider_takes_is_not_repaired(target: str) -> None:
    messages: list[JsonObject] = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [{"type": "toolCall", "id": "c1", "name": "read", "arguments": {}}]},
        {"role": "toolResult", "toolCallId": "c1", "toolName": "read", "content": "a"},
    ]
    found = request(target, messages)
    marked = "calls that a model other than Google's made go out with a mark in place of its signature"
    assert told(found) == ([("e1", marked)] if target == "gemini" else [])
    assert found.broken == ()


def test_a_repair_names_its_entry() -> None:
    found = request("anthropic", EVERYTHING[:3], model="large-1")
    assert told(found) == [
        ("e2", "a tool call without a result got an error as its result"),
        ("e2", "a tool call without a result got an error as its result"),
    ]
    assert [(each.entry_id, each.what) for each in request("openai-chat", EVERYTHING).repairs] == [
        ("e2", "left out: reasoning"),
        ("e3", "left out: the mark of a failed tool call"),
        ("e4", "images of tool results stand in a message of the user"),
    ]


@targets
def test_ids_and_names_that_a_provider_does_not_take_are_changed_in_calls_and_results(target: str) -> None:
    long_id, name = "call.with.points|" + "x" * 90, "server.tool name"
    messages: list[JsonObject] = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [{"type": "toolCall", "id": long_id, "name": name, "arguments": {}}]},
        {"role": "toolResult", "toolCallId": long_id, "toolName": name, "content": "a"},
    ]
    found = request(target, messages)
    assert found.broken == ()
    sent = json.dumps(found.messages)
    assert name not in sent
    assert ("e1", "ids or names of tool calls were changed to what the API accepts") in told(found)
    again = request(target, [*messages, {"role": "assistant", "content": "done"}, {"role": "user", "content": "more"}])
    assert again.messages[: len(found.messages)] == found.messages


def test_what_a_model_does_not_take_is_changed_alike_in_calls_and_results_or_left_out() -> None:
    def call(call_id: str, name: str = "read") -> list[JsonObject]:
        return [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [{"type": "toolCall", "id": call_id, "name": name, "arguments": {}}]},
            {"role": "toolResult", "toolCallId": call_id, "toolName": name, "content": "a"},
        ]

    def saying(role: str, *texts: str) -> JsonObject:
        return {"role": role, "content": [{"type": "text", "text": text} for text in texts]}

    n65, n129 = "n" * 65, "n" * 129
    cases: list[tuple[str, str | None, list[JsonObject], str | None, str, int]] = [
        ("openai-chat", None, call("i" * 41), '"i{41}"', r'"i{23}_[0-9a-f]{16}"', 2),
        ("openai-chat", None, call("i" * 40), None, r'"i{40}"', 2),
        ("openai-chat", "mistral-large-latest", call("call_1"), "call_1", r'"[0-9a-f]{9}"', 2),
        ("openai-chat", "mistralai/devstral-medium", call("abcdeFGH9"), None, '"abcdeFGH9"', 2),
        ("openai-chat", None, [{"role": "user", "name": "Ann Lee", "content": "q"}], "Ann Lee", '"Ann_Lee"', 1),
        ("openai-chat", None, call("c", n65), n65, '"n{64}"', 1),
        ("openai-responses", None, call("c", n65), None, f'"{n65}"', 1),
        ("openai-responses", None, call("c", n129), n129, '"n{128}"', 1),
        ("openai-responses", None, call("i" * 65), '"i{65}"', r'"i{47}_[0-9a-f]{16}"', 2),
        ("anthropic", None, call("a.b:c"), "a.b:c", r'"a_b_c_[0-9a-f]{16}"', 2),
        ("anthropic", None, call("c", n129), n129, '"n{128}"', 1),
        ("anthropic", None, [saying("user", "", "q")], '""', '"q"', 1),
        ("gemini", None, call("c", "9 lives"), "9 lives", "tool_9_lives", 1),
        ("gemini", None, [saying("user", "", "q", "")], '""', '"q"', 1),
        ("gemini", None, [saying("system", "", "s"), saying("user", "q")], '""', '"q"', 1),
        ("gemini", None, [saying("user", "q"), saying("assistant", ""), saying("user", "")], '""', '"q"', 1),
        ("gemini", None, [saying("user", "q"), saying("assistant", "a", ""), saying("user", "r")], '""', '"a"', 1),
    ]  # fmt: skip
    wrong = []
    for target, model, messages, refused, sent, places in cases:
        found = request(target, messages, model=model)
        printed = json.dumps([found.system, found.messages])
        matches = re.findall(sent, printed)
        is_sent = len(matches) >= places and len({*matches}) == 1  # of a call and of its result it is the same
        is_changed = refused is None or (bool(found.repairs) and not re.search(refused, printed))
        if found.broken or not is_sent or not is_changed:
            wrong.append((target, model, sent, printed, found.broken))
    assert wrong == []


def test_an_id_of_an_item_that_is_not_taken_is_left_out() -> None:
    ids = {"rs_1": "r" * 416, "fc_1": "f" * 85, "msg_later": "msg of another", "msg_of_openai": "m" * 64}
    found = wire_request("openai-responses", as_items(None, ids))
    assert [item["id"] for item in found.messages if "id" in item] == ["m" * 64]
    assert found.broken == ()
    assert "ids of items that the API does not take are left out" in {each.what for each in found.repairs}


def test_a_system_message_in_the_middle_leaves_what_was_sent_before_it_as_it_was() -> None:
    """The provider's cache reads a request from its beginning: what is appended must not change what stands before it.

    OpenAI takes such a message wherever it stands; Claude from 4.8 on behind one of the user, so that it is sent there.
    """
    call: JsonObject = {"type": "toolCall", "id": "c", "name": "f", "arguments": {}}
    spoken: list[JsonObject] = [
        {"role": "user", "content": "q1"}, {"role": "assistant", "content": "a1"}, {"role": "user", "content": "q2"},
        {"role": "assistant", "content": [call]}, {"role": "toolResult", "toolCallId": "c", "content": "r"},
        {"role": "assistant", "content": "a2"}, {"role": "user", "content": "q3"},
        {"role": "assistant", "content": "a3"},
    ]  # fmt: skip
    wrong = []
    for target, model in (("openai-chat", "gpt-5"), ("openai-responses", "gpt-5"), ("anthropic", "claude-opus-4-8")):
        for places in (*combinations(range(1, 8), 1), *combinations(range(1, 8), 2), tuple(range(8))):
            history: list[JsonObject] = []
            before: list[JsonObject] = []
            for place, message in enumerate(spoken):
                history += [{"role": "system", "content": f"rule {place}"}] if place in places else []
                if message["role"] == "assistant":
                    found = request(target, history, model=model)
                    rules = json.dumps([found.system, found.messages]).count("rule ")
                    is_whole = rules == sum(each <= place for each in places)
                    if found.broken or found.messages[: len(before)] != before or not is_whole:
                        wrong.append((target, places, before, found.messages, found.broken))
                    before = found.messages
                history.append(message)
    assert wrong == []


def test_two_ids_that_become_the_same_stay_apart() -> None:
    messages: list[JsonObject] = [{"role": "user", "content": "q"}]
    for call_id in ("a.b", "a_b", "a/b"):
        call: JsonObject = {"type": "toolCall", "id": call_id, "name": "f", "arguments": {}}
        messages.append({"role": "assistant", "content": [call]})
        messages.append({"role": "toolResult", "toolCallId": call_id, "content": call_id})
    found = request("anthropic", messages)
    assert found.broken == ()
    uses = [each["content"][0]["id"] for each in found.messages if each["role"] == "assistant"]  # type: ignore[index,call-overload]
    assert len(set(map(str, uses))) == 3


def test_reasoning_of_another_model_is_left_out() -> None:
    def answer(model: str) -> JsonObject:
        part: JsonObject = {"type": "thinking", "thinking": "hm", "thinkingSignature": "c2ln"}
        text: JsonObject = {"type": "text", "text": "a"}
        return {"role": "assistant", "provider": "anthropic", "model": model, "content": [part, text]}

    user: JsonObject = {"role": "user", "content": "q"}
    messages = [user, answer("claude-opus-4-5"), user, answer("claude-sonnet-4-5-20250929"), user]
    found = request("anthropic", messages, model="claude-sonnet-4-5")
    kinds = [[block["type"] for block in each["content"]] for each in found.messages[1::2]]  # type: ignore[index,union-attr,call-overload]
    assert kinds == [["text"], ["thinking", "text"]]
    assert told(found) == [("e1", "left out: reasoning of another model")]


CLAUDE: JsonObject = {"role": "assistant", "provider": "anthropic", "model": "claude-opus-5"}
THOUGHT: JsonObject = {"type": "thinking", "thinking": "hm", "thinkingSignature": "c2ln"}
TEXT: JsonObject = {"type": "text", "text": "a"}
CALL: JsonObject = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {}}
Q: JsonObject = {"role": "user", "content": "q"}
MORE: JsonObject = {"role": "user", "content": "more"}
R1: JsonObject = {"role": "toolResult", "toolCallId": "c1", "toolName": "read", "content": "one"}
ENDS_IN_THOUGHT = "left out: reasoning that nothing of its answer follows, which the API refuses"


def kinds_of(found: WireRequest) -> list[JsonValue]:
    """Return the kinds of blocks of each message for Anthropic, "text" for one that is a text."""
    return [
        [block["type"] for block in content] if isinstance(content := each["content"], list) else "text"  # type: ignore[index,call-overload]
        for each in found.messages
    ]


@inputs("last", [[], [MORE]], ids=["last", "followed"])
def test_reasoning_at_the_end_of_an_answer_is_left_out_and_the_answer_with_it_where_it_is_all(
    last: list[JsonObject],
) -> None:
    ended = request("anthropic", [Q, {**CLAUDE, "content": [THOUGHT, TEXT, THOUGHT, THOUGHT]}, *last])
    assert ended.broken == ()
    assert kinds_of(ended)[:2] == ["text", ["thinking", "text"]]
    assert [each for each in told(ended) if each[1] == ENDS_IN_THOUGHT] == [("e1", ENDS_IN_THOUGHT)] * 2
    alone = request("anthropic", [Q, {**CLAUDE, "content": [{**THOUGHT, "redacted": True}, THOUGHT]}, *last])
    assert alone.broken == ()
    assert [each["role"] for each in alone.messages] == ["user"]
    assert [each for each in told(alone) if each[1] == ENDS_IN_THOUGHT] == [("e1", ENDS_IN_THOUGHT)] * 2
    assert ("more" in json.dumps(alone.messages)) is bool(last)


def test_an_answer_of_reasoning_alone_that_stands_first_needs_no_message_before_it() -> None:
    found = request("anthropic", [{**CLAUDE, "content": [THOUGHT]}, Q])
    assert found.messages == [Q]
    assert told(found) == [("e0", ENDS_IN_THOUGHT)]


@inputs("results", [[], [R1]], ids=["unanswered", "answered"])
def test_reasoning_stays_before_a_call_and_before_what_the_same_answer_goes_on_with(results: list[JsonObject]) -> None:
    found = request("anthropic", [Q, {**CLAUDE, "content": [THOUGHT, CALL]}, *results])
    assert found.broken == ()
    assert kinds_of(found) == ["text", ["thinking", "tool_use"], ["tool_result"]]
    after_call = request("anthropic", [Q, {**CLAUDE, "content": [THOUGHT, CALL, THOUGHT]}, *results])
    assert kinds_of(after_call) == ["text", ["thinking", "tool_use"], ["tool_result"]]
    assert ("e1", ENDS_IN_THOUGHT) in told(after_call)
    # Each part of an answer may be an entry of its own.
    apart = [{**CLAUDE, "content": [part]} for part in (THOUGHT, TEXT, CALL)]
    assert kinds_of(request("anthropic", [Q, *apart, *results])) == kinds_of(
        request("anthropic", [Q, {**CLAUDE, "content": [THOUGHT, TEXT, CALL]}, *results])
    )


def test_an_epoch_that_ends_in_reasoning_alone_is_marked_where_the_message_before_it_ends() -> None:
    said = [
        Said(message, entry_id=f"e{number}")
        for number, message in enumerate([Q, {**CLAUDE, "content": [THOUGHT]}, MORE, {**CLAUDE, "content": "b"}, MORE])
    ]
    found = wire_request("anthropic", said, cache_marks=CacheMarks(count=4, epoch_end="e1"))
    assert "cache_control" in json.dumps(found.messages[0])
    assert found.broken == ()


def test_a_signature_that_stands_on_an_empty_text_goes_back_to_gemini_and_one_of_another_provider_does_not() -> None:
    def sent(signature: str) -> JsonValue:
        parts: list[JsonValue] = [{"type": "text", "text": "a"}]
        parts.append({"type": "text", "text": "", "textSignature": signature})
        answer: JsonObject = {"role": "assistant", "provider": "google", "model": "gemini-3-pro", "content": parts}
        found = request("gemini", [{"role": "user", "content": "q"}, answer, {"role": "user", "content": "r"}])
        assert found.broken == ()
        return found.messages[1]["parts"]

    assert sent("c2ln") == [{"text": "a"}, {"text": "", "thoughtSignature": "c2ln"}]
    assert sent('{"id":"msg_1"}') == [{"text": "a"}]


def test_an_answer_of_thoughts_alone_does_not_go_to_gemini() -> None:
    google: JsonObject = {"role": "assistant", "provider": "google", "model": "gemini-3-pro"}
    alone = request("gemini", [Q, {**google, "content": [THOUGHT]}, MORE])
    assert alone.broken == ()
    assert [each["role"] for each in alone.messages] == ["user", "user"]
    assert "left out: an answer of thoughts alone" in [what for _, what in told(alone)]
    whole = request("gemini", [Q, {**google, "content": [THOUGHT]}, {**google, "content": [TEXT]}, MORE])
    assert [each["role"] for each in whole.messages] == ["user", "model", "user"]
    assert "hm" in json.dumps(whole.messages)


def as_items(model: str | None, ids: Mapping[str, str] = {}) -> list[Said]:
    """Return an answer as OpenAI gives it, each item an entry of its own, all of them from one model or from none."""
    items: list[JsonObject] = [
        {"type": "message", "role": "user", "content": "q"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "E"},
        {"type": "message", "id": "msg_of_openai", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "a", "annotations": []}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "o"},
        {"type": "message", "id": "msg_later", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "b", "annotations": []}]},
    ]  # fmt: skip
    names: dict[str, str] = {}
    items = [{**item, "id": ids.get(str(item["id"]), item["id"])} if "id" in item else item for item in items]
    made = [each for item in items for each in wire.convert(item, "openai-responses", names)]
    named: JsonObject = {} if model is None else {"model": model}
    return [
        Said({**each.message, **(named if each.message["role"] == "assistant" else {})}, each.beside, f"e{number}")
        for number, each in enumerate(made)
    ]


def test_without_the_reasoning_of_another_model_no_id_binds_an_item_of_responses_to_it() -> None:
    found = wire_request("openai-responses", as_items("gpt-5"), model="gpt-5-mini")
    sent = json.dumps(found.messages)
    assert found.broken == ()
    assert not any(each in sent for each in ("rs_1", "msg_of_openai", "fc_1"))
    # It was said behind the output, in a turn of which no reasoning is sent.
    assert "msg_later" not in sent
    assert [each["type"] for each in found.messages] == [
        "message", "message", "function_call", "function_call_output", "message",
    ]  # fmt: skip
    cut = "ids by which the API would look for reasoning that is left out are left out, too"
    assert told(found) == [
        ("e1", "left out: reasoning of another model"), ("e1", "left out: a message that says nothing"),
        ("e2", cut), ("e3", cut),
        ("e5", "ids by which the API would look for reasoning that is not sent are left out"),
    ]  # fmt: skip
    for model in ("gpt-5", None):
        same = wire_request("openai-responses", as_items("gpt-5"), model=model)
        assert all(each in json.dumps(same.messages) for each in ("rs_1", "msg_of_openai", "fc_1"))
        assert same.repairs == ()


def test_an_answer_in_one_message_goes_out_without_ids_where_its_reasoning_does_not() -> None:
    thought: JsonObject = {
        **THOUGHT, "thinkingSignature": '{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"E"}',
    }  # fmt: skip
    answer: JsonObject = {"role": "assistant", "provider": "openai", "model": "gpt-5", "api": "openai-responses"}
    messages = [Q, {**answer, "content": [thought, {**CALL, "id": "c1|fc_1"}]}, {**R1, "toolCallId": "c1|fc_1"}]
    other = request("openai-responses", messages, model="gpt-5-mini")
    assert other.broken == ()
    assert "fc_1" not in json.dumps(other.messages)
    assert "fc_1" in json.dumps(request("openai-responses", messages, model="gpt-5").messages)


@targets
def test_every_result_of_a_call_is_sent_in_the_one_that_the_provider_takes(target: str) -> None:
    other: JsonObject = {**CALL, "id": "c2"}
    two: JsonObject = {**R1, "content": [{"type": "text", "text": "two"}], "isError": True}
    three: JsonObject = {**R1, "content": "three"}
    messages: list[JsonObject] = [
        Q, {**CLAUDE, "content": [CALL, other]}, R1, {**R1, "toolCallId": "c2", "content": "of another"}, two, dict(R1),
        three, MORE,
    ]  # fmt: skip
    found = request(target, messages)
    assert found.broken == ()
    sent = json.dumps(found.messages)
    places = [sent.index(f'"{word}"') if target != "gemini" else sent.index(word) for word in ("one", "two", "three")]
    assert places == sorted(places)
    assert sent.count("one") == sent.count("two") == sent.count("three") == sent.count("of another") == 1
    assert ("is_error" in sent) is (target == "anthropic")
    assert '"is_error": true' not in sent
    joined = "a further result of a tool call stands in the first one, since the API takes one"
    same = "a further result of a tool call, which says the same as an earlier one, is left out"
    assert [each for each in told(found) if each[1] in (joined, same)] == [("e4", joined), ("e5", same), ("e6", joined)]


@targets
def test_a_result_that_says_the_same_again_is_sent_once_as_it_was(target: str) -> None:
    messages = [Q, {**CLAUDE, "content": [CALL]}, R1, dict(R1), MORE]
    found = request(target, messages)
    assert found.messages == request(target, [*messages[:3], MORE]).messages
    failed = request(target, [*messages[:2], {**R1, "isError": True}, {**R1, "content": "two", "isError": True}])
    assert failed.broken == ()
    assert ('"is_error": true' in json.dumps(failed.messages)) is (target == "anthropic")
    assert ('"error":' in json.dumps(failed.messages)) is (target == "gemini")


@targets
async def test_every_result_that_a_session_has_of_a_call_is_sent(target: str) -> None:
    async with flue_py.open(":memory:", prices=False) as store:
        session = await store.create_session()
        await session.append_messages([Q, {**CLAUDE, "content": [CALL]}, R1, {**R1, "content": "two"}, MORE])
        found = await session.request(target)
        assert found.broken == ()
        assert all(word in json.dumps(found.messages) for word in ("one", "two"))
        assert (await store.verify()).problems == []


def calls_of(*ids: str) -> list[JsonValue]:
    return [{**CALL, "id": call_id} for call_id in ids]


def outputs(found: WireRequest) -> list[JsonValue]:
    """Return the ids of calls and outputs of a Responses request, in order, and the roles of its messages."""
    return [
        f"{'=' if str(item['type']).endswith('_output') else ''}{item['call_id']}"
        if "call_id" in item
        else item["role"]
        for item in found.messages
    ]


@inputs("is_apart", [False, True], ids=["one message", "a message for each call"])
def test_the_error_of_a_call_stands_behind_the_last_real_result_of_the_answer(is_apart: bool) -> None:
    called = [{**CLAUDE, "content": [call]} for call in calls_of("a", "b", "c")]
    answer = called if is_apart else [{**CLAUDE, "content": calls_of("a", "b", "c")}]
    b: JsonObject = {**R1, "toolCallId": "b"}
    a: JsonObject = {**R1, "toolCallId": "a"}
    found = request("openai-responses", [Q, *answer, b, MORE, {**CLAUDE, "content": [TEXT]}])
    assert found.broken == ()
    assert outputs(found) == ["user", "a", "b", "c", "=b", "=a", "=c", "user", "assistant"]
    late = request("openai-responses", [Q, *answer, b, MORE, a])
    assert late.broken == ()
    assert outputs(late) == ["user", "a", "b", "c", "=b", "=c", "user", "=a"]
    orphan = request("openai-responses", [Q, *answer, b, {**R1, "toolCallId": "nobody"}, dict(b), MORE])
    assert outputs(orphan) == ["user", "a", "b", "c", "=b", "=a", "=c", "user"]


def test_the_error_of_a_call_that_no_result_follows_stands_right_behind_it() -> None:
    answer: JsonObject = {**CLAUDE, "content": calls_of("a", "b")}
    before = request("openai-responses", [Q, answer])
    assert outputs(before) == ["user", "a", "b", "=a", "=b"]
    found = request("openai-responses", [Q, answer, {**CLAUDE, "content": [TEXT, *calls_of("c")]}, R1, MORE])
    assert outputs(found) == ["user", "a", "b", "=a", "=b", "assistant", "c", "=c", "user"]
    assert found.messages[: len(before.messages)] == before.messages


WORDS = b64encode("Wörter".encode()).decode()
AS_TEXT: JsonObject = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Wörter"}}


@inputs(
    ("part", "sent"),
    [
        ({"type": "file", "data": WORDS, "mimeType": "text/plain"}, AS_TEXT),
        ({"type": "file", "data": WORDS, "mimeType": "text/plain; charset=utf-8", "filename": "a.txt"},
         {**AS_TEXT, "title": "a.txt"}),
        ({"type": "file", "url": f"data:text/plain;base64,{WORDS}", "cache_control": {"type": "ephemeral"}},
         {**AS_TEXT, "cache_control": {"type": "ephemeral"}}),
        ({"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": WORDS}, "context": "c"},
         {**AS_TEXT, "context": "c"}),
    ],
)  # fmt: skip
@inputs("is_result", [False, True], ids=["message", "result"])
def test_a_file_of_plain_text_goes_to_anthropic_as_its_text(
    part: JsonObject, sent: JsonObject, is_result: bool
) -> None:
    last: list[JsonObject] = [{"role": "user", "content": [part]}]
    if is_result:
        last = [{**CLAUDE, "content": [CALL]}, {**R1, "content": [part]}]
    found = request("anthropic", [Q, *last])
    assert found.broken == ()
    assert json.dumps(sent) in json.dumps(found.messages)
    assert (f"e{len(last)}", "a file of plain text goes out as its text") in told(found)


@inputs(
    ("part", "why"),
    [
        ({"data": WORDS, "mimeType": "application/msword", "filename": "a.doc"},
         "a file of type 'application/msword'; it takes application/pdf and text/plain"),
        ({"url": "https://example.org/a.csv", "mimeType": "text/csv"},
         "a file of type 'text/csv'; it takes application/pdf and text/plain"),
        ({"data": WORDS}, "a file that does not say its type; it takes application/pdf and text/plain"),
        ({"data": "/w==", "mimeType": "text/plain"}, "a file of plain text that has none, or cannot be read"),
        ({"data": "IA==", "mimeType": "text/plain"}, "a file of plain text that has none, or cannot be read"),
    ],
)  # fmt: skip
def test_a_file_that_anthropic_does_not_take_is_named_in_a_text(part: JsonObject, why: str) -> None:
    found = request("anthropic", [{"role": "user", "content": [{"type": "file", **part}]}])
    assert found.broken == ()
    assert told(found) == [("e0", f"left out: {why}")]
    named = " 'a.doc'" if "filename" in part else ""
    assert f"[file{named} left out: {why}; it is stored in entry e0]" in str(found.messages)


@inputs(
    "part",
    [
        {"data": "JVBERi0x", "mimeType": "application/pdf"},
        {"data": "JVBERi0x"},
        {"url": "https://example.org/a.pdf", "mimeType": "application/pdf"},
        {"url": "https://example.org/a"},
    ],
)
def test_a_pdf_goes_to_anthropic_as_it_is(part: JsonObject) -> None:
    found = request("anthropic", [{"role": "user", "content": [{"type": "file", **part}]}])
    assert (found.broken, found.repairs) == ((), ())
    assert '"type": "document"' in json.dumps(found.messages)
    assert "image/png" not in json.dumps(found.messages)


def pictures(count: int) -> list[JsonObject]:
    image: JsonObject = {"type": "image", "data": PNG, "mimeType": "image/png"}
    return [
        message
        for number in range(count)
        for message in (
            {"role": "user", "content": [{"type": "text", "text": str(number)}, dict(image)]},
            {"role": "assistant", "content": "seen"},
        )
    ]


def test_of_more_images_than_are_taken_the_oldest_leave_in_portions() -> None:
    cut = {}
    for count in (100, 101, 120, 121):
        found = request("anthropic", [*pictures(count), {"role": "user", "content": "q"}])
        assert found.broken == ()
        cut[count] = sum("image of more than" in each.what for each in found.repairs)
    assert cut == {100: 0, 101: 20, 120: 20, 121: 40}
    block: Any = found.messages[0]["content"]
    assert block[1]["text"].endswith("it is stored in entry e0]")


@inputs(
    ("part", "why"),
    [
        ({"type": "image", "data": "QUJD", "mimeType": "image/tiff"}, "type 'image/tiff'"),
        ({"type": "image", "data": PNG[:-4] + "A" * 5_300_000, "mimeType": "image/png"}, "in base64, and 5,242,880"),
        ({"type": "image", "url": "data:image/bmp;base64,Qk06AAAAAAAAADYAAAAoAAAA"}, "type 'image/bmp'"),
    ],
)
def test_an_image_that_is_not_taken_is_named_in_a_text(part: JsonObject, why: str) -> None:
    found = request("anthropic", [{"role": "user", "content": [{"type": "text", "text": "look"}, part]}])
    assert found.broken == ()
    (message,) = found.messages
    content: Any = message["content"]
    assert why in content[1]["text"]
    assert why in found.repairs[0].what


def test_an_image_in_an_answer_goes_to_gemini_alone() -> None:
    image: JsonObject = {"type": "image", "data": PNG, "mimeType": "image/png"}
    messages: list[JsonObject] = [
        {"role": "user", "content": "draw"},
        {"role": "assistant", "content": [{"type": "text", "text": "here"}, image]},
        {"role": "user", "content": "thanks"},
    ]
    assert PNG in json.dumps(request("gemini", messages).messages)
    for target in ("anthropic", "openai-chat", "openai-responses"):
        found = request(target, messages)
        assert PNG not in json.dumps(found.messages)
        assert ("e1", "left out: an image in an answer") in told(found)


@targets
def test_messages_that_say_nothing_are_left_out(target: str) -> None:
    messages: list[JsonObject] = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": []},
        {"role": "user", "content": " \n"},
        {"role": "user", "content": [{"type": "text", "text": ""}]},
        {"role": "user", "content": "again"},
    ]
    found = request(target, messages)
    assert found.broken == ()
    assert [each for each in told(found) if each[1] == "left out: a message that says nothing"] == [
        (f"e{number}", "left out: a message that says nothing") for number in (1, 2, 3)
    ]


def test_what_stands_last_is_what_the_provider_asks_for() -> None:
    messages: list[JsonObject] = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a \n"}]
    assert request("anthropic", messages).messages[-1]["content"] == "a"
    assert request("gemini", messages).messages[-1] == {"role": "user", "parts": [{"text": "(continue)"}]}
    assert request("openai-chat", messages).messages[-1]["content"] == "a \n"


def test_reasoning_without_what_it_led_to_is_left_out_of_responses() -> None:
    item = '{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"}'
    thought: JsonObject = {"type": "thinking", "thinking": "", "thinkingSignature": item}
    answer: JsonObject = {"role": "assistant", "provider": "openai", "content": [thought]}
    text: JsonObject = {"type": "text", "text": "a"}
    messages: list[JsonObject] = [{"role": "user", "content": "q"}, answer, {"role": "user", "content": "more"}]
    found = request("openai-responses", messages)
    assert [item["type"] for item in found.messages] == ["message", "message"]
    whole = [messages[0], {**answer, "content": [thought, text]}, messages[2]]
    assert [item["type"] for item in request("openai-responses", whole).messages] == [
        "message", "reasoning", "message", "message",
    ]  # fmt: skip


def test_what_stands_beside_a_message_is_left_out_where_the_provider_refuses_it() -> None:
    names: dict[str, str] = {}
    given_list: list[JsonObject] = [{"role": "user", "content": []}, {"role": "user", "content": "q"}]
    said = [Said(*each) for message in given_list for each in wire.convert(message, "openai-chat", names)]
    said[0] = Said(said[0].message, {"openaiChat": {"set": {"content": []}}})
    found = wire_request("openai-chat", said)
    assert found.broken == ()
    assert found.messages == [{"role": "user", "content": "q"}]


def test_a_context_without_messages_and_a_request_that_is_too_large_are_told() -> None:
    (nothing,) = request("anthropic", []).broken
    assert str(nothing) == "messages: there is no message (turns)"
    (large,) = request("anthropic", [{"role": "user", "content": "x" * 33_000_000}]).broken
    assert large.rule == "size"


def test_limits_may_be_others() -> None:
    few: RequestLimits = replace(LIMITS["anthropic"], images=2)
    found = request("anthropic", [*pictures(3), {"role": "user", "content": "q"}], limits=few)
    assert found.broken == ()
    assert sum("image of more than" in each.what for each in found.repairs) == 1


def test_a_target_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="target: should be one of anthropic, openai-chat, "):
        request("claude", [])
    with pytest.raises(InvalidArgument, match="target"):
        broken_rules("claude", [])


OPENAI: JsonObject = {"role": "assistant", "provider": "openai", "model": "gpt-5", "api": "openai-responses"}


@inputs(
    ("target", "message", "what"),
    [
        (
            "openai-responses",
            {**OPENAI, "content": [{"type": "text", "text": "a"}, {"type": "unheard_of", "x": 1}]},
            "left out: an item 'unheard_of', which is none of this form",
        ),
        (
            "openai-responses",
            {**OPENAI, "content": [{"type": "text", "text": "a"}, {"type": "compaction", "encrypted_content": None}]},
            "left out: a compaction that holds nothing",
        ),
        (
            "openai-responses",
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "no"}]},
            "left out: a part 'refusal'",
        ),
        *(
            (
                target,
                {"role": "user", "content": [{"type": "file", "data": "no base64", "mimeType": "application/pdf"}]},
                "left out: a file whose data are no base64",
            )
            for target in ("openai-chat", "openai-responses", "gemini")
        ),
        (
            "gemini",
            {
                "role": "assistant",
                "provider": "google",
                "content": [
                    {"type": "thinking", "thinking": "hm", "thinkingSignature": '{"type":"reasoning","id":"rs_1"}'},
                    {"type": "text", "text": "a"},
                ],
            },
            "a signature that is an item of another provider's is left out, since the API reads base64 alone",
        ),
    ],
)
def test_what_no_client_can_send_is_left_out_and_told(target: str, message: JsonObject, what: str) -> None:
    found = request(target, [{"role": "user", "content": "Go."}, message, {"role": "user", "content": "And?"}])
    assert_taken(found)
    assert what in [each for _, each in told(found)]
    assert "unheard_of" not in str(found.messages)


def test_an_item_of_an_unknown_type_breaks_a_rule() -> None:
    found = broken_rules("openai-responses", [{"role": "user", "content": "Go."}, {"type": "unheard_of"}])
    assert [(each.rule, each.where) for each in found] == [("items", "input[1].type")]
