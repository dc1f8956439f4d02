"""The steps of settings over groups of messages that are in no session."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flue_py.context import Item, View, added
from flue_py.context.request import Reshaped, Reshaping, SentRequests
from flue_py.core.json import JsonObject, to_json
from flue_py.core.kinds import seen_by_model, signatures_in
from flue_py.errors import InvalidArgument
from tests.context.pipeline.piped import answer, call, result, user

CLEARS = {"epoch_tokens": 0, "microcompact": {"keep": 0, "tools": ["read_file"]}}
GROUPS = [
    [user("Why?"), user("And how?")],
    [],
    [answer("I look.", call("c1"))],
    [result("c1", "line " * 90)],
    [user("Go on.")],
]


def test_a_group_goes_on_as_it_was_unless_a_step_has_changed_something_in_it() -> None:
    found = Reshaping(CLEARS).run(GROUPS)
    assert found[:3] == [Reshaped(0, None), Reshaped(1, None), Reshaped(2, None)]
    assert found[4] == Reshaped(4, None)
    assert found[3].group == 3
    assert found[3].messages == [result("c1", "[tool result cleared to save context]")], "there is no address"


def test_what_is_left_of_a_group_is_told_and_one_of_which_nothing_is_left_is_gone() -> None:
    found = Reshaping({"window": {"max_tail_messages": 2}}, "Coder").run([[user("a"), user("b")], [user("c")]])
    assert found == [Reshaped(0, [user("b")]), Reshaped(1, None)]
    assert Reshaping({"window": {"max_tail_messages": 1}}).run([[user("a"), user("b")], [user("c")]]) == [
        Reshaped(1, None)
    ]


class Adds:
    name = "adds"
    reason = "always"
    over = "all"
    at_epochs = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        said = [added(user(text)) for text in ("first", "between", "last")]
        return [said[0], items[0], said[1], *items[1:], said[2]]


def test_what_a_step_adds_is_a_message_of_its_own_where_the_step_has_put_it() -> None:
    reshaping = Reshaping({})
    reshaping.steps = [Adds()]
    assert reshaping.run([[user("a")], [user("b")]]) == [
        Reshaped(None, [user("first")]),
        Reshaped(0, None),
        Reshaped(None, [user("between")]),
        Reshaped(1, None),
        Reshaped(None, [user("last")]),
    ]


def test_a_spec_needs_a_session() -> None:
    with pytest.raises(InvalidArgument, match="spec: is read from a session"):
        Reshaping({"agents": {"Coder": {"spec": {}}}}, "coder")


def thought(text: str, signature: str, *calls: JsonObject) -> JsonObject:
    part: JsonObject = {"type": "thinking", "thinking": "Hm.", "thinkingSignature": signature}
    return {"role": "assistant", "content": [part, {"type": "text", "text": text}, *calls]}


def sent_by(reshaping: Reshaping, messages: Sequence[JsonObject]) -> list[JsonObject]:
    """Return what goes on of messages that are a group each."""
    found: list[JsonObject] = []
    for group, made in reshaping.run([[each] for each in messages]):
        found += made if made is not None else [] if group is None else [messages[group]]
    return found


def signatures(messages: Sequence[JsonObject]) -> list[str]:
    return [signature for message in messages for signature in signatures_in(message)]


ONE_IS_KEPT = {"epoch_tokens": 0, "microcompact": {"keep": 1, "tools": ["read_file"]}}
FIRST = [user("Why?"), thought("I look.", "s1", call("c1")), result("c1", "line " * 90)]
SECOND = [thought("Once more.", "s2", call("c2")), result("c2", "more " * 90)]


def test_reasoning_is_left_out_where_a_step_has_since_changed_what_it_was_produced_under() -> None:
    reshaping = Reshaping(ONE_IS_KEPT)
    assert sent_by(reshaping, FIRST[:1]) == FIRST[:1]
    assert sent_by(reshaping, FIRST) == FIRST
    third = sent_by(reshaping, [*FIRST, *SECOND])
    assert third[2] == result("c1", "[tool result cleared to save context]")
    assert signatures(third) == ["s1"], "the second answer was given to the whole result"
    assert [message["role"] for message in third] == ["user", "assistant", "toolResult", "assistant", "toolResult"]
    fourth = sent_by(reshaping, [*FIRST, *SECOND, thought("It hangs.", "s3"), user("Sure?")])
    assert signatures(fourth) == ["s1", "s3"], "the third was given to what is sent now"


def test_reasoning_of_a_request_that_is_not_known_is_sent() -> None:
    assert signatures(sent_by(Reshaping(ONE_IS_KEPT), [*FIRST, *SECOND])) == ["s1", "s2"]
    keeping = Reshaping({**ONE_IS_KEPT, "keep_stale_reasoning": True})
    for messages in (FIRST[:1], FIRST):
        sent_by(keeping, messages)
    assert signatures(sent_by(keeping, [*FIRST, *SECOND])) == ["s1", "s2"]


def test_reasoning_is_left_out_where_the_framework_has_since_left_out_a_message() -> None:
    reshaping = Reshaping({})
    for messages in ([user("a")], [user("a"), thought("A.", "s1"), user("b")]):
        sent_by(reshaping, messages)
    shorter = [thought("A.", "s1"), user("b"), thought("B.", "s2"), user("c")]
    assert signatures(sent_by(reshaping, [user("a"), *shorter])) == ["s1", "s2"]
    assert sent_by(reshaping, shorter) == [answer("A."), user("b"), answer("B."), user("c")]
    alone = {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "thinkingSignature": "s1"}]}
    assert sent_by(reshaping, [alone, user("b")]) == [user("b")], "an answer with nothing else is left out"


def test_the_oldest_is_forgotten_and_then_sent() -> None:
    requests = SentRequests(most=1)

    def sent(messages: Sequence[JsonObject]) -> list[JsonObject]:
        items = [Item(None, place, message) for place, message in enumerate(messages)]
        return [item.message for item in requests.without_stale(messages, items)]

    first = [user("a"), thought("A.", "s1"), user("b")]
    second = [*first, thought("B.", "s2"), user("c")]
    sent(first[:1])
    assert sent(first) == first
    assert sent(first[1:]) == [answer("A."), user("b")], "the last answer that was met"
    sent(first)
    assert sent(second) == second
    assert sent(second[1:]) == [thought("A.", "s1"), user("b"), answer("B."), user("c")]


class Provider:
    """Signs reasoning with what stands before it, and refuses it behind anything else."""

    def __init__(self) -> None:
        self.number = 0
        self._begun: dict[str, str] = {}

    def answers(self, messages: Sequence[JsonObject], *calls: JsonObject) -> JsonObject:
        names = [to_json([seen_by_model(each) for each in messages[:end]]).decode() for end in range(len(messages) + 1)]
        begins = 0
        for at, message in enumerate(messages):
            if message["role"] != "assistant":
                begins = at + 1
            for signature in signatures_in(message):
                assert self._begun[signature] in names[begins : at + 1], f"{signature} is stale"
        self.number += 1
        made = f"s{self.number}"
        self._begun[made] = names[-1]
        return thought(f"Answer {self.number}. " * 9, made, *calls)


SETTINGS: list[JsonObject] = [
    ONE_IS_KEPT,
    {"epoch_tokens": 300, "microcompact": {"keep": 0, "tools": ["read_file"]}},
    {"epoch_tokens": 0, "window": {"max_tail_messages": 5, "max_replay_chars": 20}},
    {"epoch_tokens": 200, "in_turn": {"max_tool_pairs": 1}},
    {"epoch_tokens": 0, "trim": {"max_tokens": 400}},
    {"epoch_tokens": 100, "superseded": {"text_chars": 5, "argument_chars": 5}},
]


@given(st.sampled_from(SETTINGS), st.lists(st.integers(0, 3), max_size=7), st.booleans())
def test_no_stale_reasoning_is_sent_while_a_conversation_goes_on(
    settings: JsonObject, turns: list[int], keeps_what_was_sent: bool
) -> None:
    reshaping, provider = Reshaping(settings), Provider()
    history: list[JsonObject] = []
    for number, calls in enumerate(turns):
        history.append(user(f"Question {number}. " * 3))
        for at in range(calls + 1):
            sent = sent_by(reshaping, history)
            if keeps_what_was_sent:
                history = [*sent]
            name = f"c{number}-{at}"
            history.append(provider.answers(sent, *([call(name)] if at < calls else [])))
            if at < calls:
                history.append(result(name, f"line {at} " * 60))
