"""Which result answers which call, and what therefore belongs together."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from flue_py.core.entries import Call, Pairing, tail_start
from flue_py.core.json import JsonObject, JsonValue
from tests.tables import inputs
from tests.values import existing

USER: JsonObject = {"role": "user", "content": "u"}
ANSWER: JsonObject = {"role": "assistant", "content": "a"}


def call(*ids: str) -> JsonObject:
    return {"role": "assistant", "content": [{"type": "toolCall", "id": each, "name": "read"} for each in ids]}


def result(call_id: str) -> JsonObject:
    return {"role": "toolResult", "toolCallId": call_id, "content": []}


@inputs(
    ("messages", "index", "members", "is_open"),
    [
        ([USER, call("a"), result("a"), ANSWER], 1, [1, 2], False),
        ([USER, call("a"), result("a"), ANSWER], 2, [1, 2], False),
        ([call("a", "b"), result("b"), None, USER, result("a")], 4, [0, 1, 4], False),
        ([call("a", "b"), result("b")], 0, [0, 1], True),
        ([call("a", "b"), result("b"), USER], 0, [0, 1], False),
        ([call("a"), ANSWER, result("a")], 0, [0, 2], False),
        ([call("a"), ANSWER, USER, ANSWER, result("a")], 4, [0, 4], False),
        ([call("a"), call("b"), result("b"), result("a")], 0, [0, 3], False),
        ([result("a")], 0, [0], False),
        ([result("a"), call("a")], 0, [0], False),
        ([result("a"), call("a")], 1, [1], True),
        ([call("a"), result("a"), result("a")], 1, [0, 1], False),
        ([call("a"), result("a"), result("a")], 2, [0, 1, 2], False),
        ([call("a"), result("a"), call("a"), result("a")], 0, [0, 1], False),
        ([call("a"), result("a"), call("a"), result("a")], 3, [2, 3], False),
        ([call("a"), call("a"), result("a")], 0, [0], False),
        ([call("a", "a"), result("a"), result("a")], 0, [0, 1, 2], False),
    ],
)
def test_a_group_is_a_caller_and_its_answers_wherever_they_are(
    messages: list[Mapping[str, JsonValue] | None], index: int, members: list[int], is_open: bool
) -> None:
    group = existing(Pairing(messages).group_of(index))
    assert (list(group.members), group.is_open) == (members, is_open)


@inputs(("messages", "index"), [([USER], 0), ([None], 0), ([call("a"), ANSWER], 1)])
def test_what_neither_calls_nor_answers_has_no_group(
    messages: list[Mapping[str, JsonValue] | None], index: int
) -> None:
    assert Pairing(messages).group_of(index) is None


def test_two_calls_of_one_id_in_one_message_are_answered_in_order() -> None:
    pairing = Pairing([call("a", "b", "a"), result("a"), result("b"), result("a"), result("a")])
    assert pairing.results == {Call(0, 0, "a"): [1], Call(0, 1, "b"): [2], Call(0, 2, "a"): [3, 4]}


def test_a_cut_is_whole_where_no_call_is_parted_from_a_result() -> None:
    messages = [USER, call("a", "b"), result("a"), ANSWER, USER, result("b"), ANSWER, call("c"), USER, result("c")]
    pairing = Pairing(messages)
    assert pairing.whole_cuts(range(len(messages) + 1)) == [0, 1, 6, 7, 10]
    assert pairing.whole_cuts(range(len(messages) + 1), pinned={7}) == [0, 1, 6, 7, 8, 9, 10]


MESSAGES = st.lists(
    st.one_of(
        st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(lambda ids: call(*ids)),
        st.sampled_from("abc").map(result),
        st.sampled_from([USER, ANSWER, None]),
    ),
    max_size=12,
)


@given(MESSAGES)
def test_groups_share_no_message_and_a_whole_cut_parts_none(messages: list[JsonObject | None]) -> None:
    pairing = Pairing(messages)
    groups = {at: pairing.group_of(at) for at in range(len(messages))}
    callers = {at: group for at, group in groups.items() if group is not None and group.caller == at}
    members = [member for group in callers.values() for member in group.members]
    assert len(members) == len(set(members))
    whole = pairing.whole_cuts(range(len(messages)))
    for cut in range(len(messages)):
        split = any(call.at < cut <= place for call, results in pairing.results.items() for place in results)
        assert (cut in whole) is not split


MESSAGES = st.lists(
    st.sampled_from([USER, ANSWER, None, call("a"), call("b"), call("a", "b"), result("a"), result("b"), result("c")]),
    max_size=12,
)


@given(MESSAGES, st.integers(1, 14))
def test_the_end_begins_at_the_first_whole_cut_within_the_limit_or_at_the_last_before_it(
    messages: list[JsonObject | None], limit: int
) -> None:
    cuts = Pairing(messages).whole_cuts(range(len(messages)))
    within = [cut for cut in cuts if cut >= len(messages) - limit]
    assert tail_start(messages, limit, is_all=True) == (within[0] if within else cuts[-1] if cuts else 0)


@given(MESSAGES, st.integers(1, 14), st.integers(0, 12))
def test_the_end_of_messages_tells_where_it_begins_or_that_it_cannot(
    messages: list[JsonObject | None], limit: int, read: int
) -> None:
    start = max(len(messages) - read, 0)
    told = tail_start(messages[start:], limit, is_all=False)
    if told is not None:
        assert start + told == tail_start(messages, limit, is_all=True)
    elif len(messages) - start >= limit:
        assert Pairing(messages[start:]).unpaired or len(messages[start:]) == 0


@inputs(
    ("messages", "limit", "start"),
    [
        ([USER, ANSWER, USER, ANSWER], 2, 2), ([USER, ANSWER, USER, ANSWER], 9, 0),
        ([USER, call("a"), result("a"), ANSWER], 2, 3), ([USER, call("a"), result("a"), ANSWER], 3, 1),
        ([USER, call("a", "b"), result("a"), result("b")], 2, 1), ([call("a"), USER, ANSWER, result("a")], 1, 0),
        ([call("a"), USER, ANSWER, result("a"), USER], 4, 4), ([USER, result("lost"), ANSWER], 2, 1), ([], 3, 0),
    ],
)  # fmt: skip
def test_an_end_is_whole_exchanges(messages: list[JsonObject | None], limit: int, start: int) -> None:
    assert tail_start(messages, limit, is_all=True) == start


@inputs(
    ("messages", "limit", "start"),
    [
        ([USER, ANSWER], 2, 0), ([USER, ANSWER], 3, None), ([result("a"), ANSWER], 2, None),
        ([result("a"), ANSWER, USER], 2, 1), ([call("a"), result("a")], 1, 0), ([], 1, None),
    ],
)  # fmt: skip
def test_where_an_end_begins_may_need_more_messages(
    messages: list[JsonObject | None], limit: int, start: int | None
) -> None:
    assert tail_start(messages, limit, is_all=False) == start


_MESSAGES = st.lists(
    st.sampled_from([USER, ANSWER, None, call("a"), call("a", "b"), call("b", "b"), result("a"), result("b")]),
    max_size=12,
)


@given(_MESSAGES)
def test_what_neither_calls_nor_answers_can_be_left_out(messages: list[JsonObject | None]) -> None:
    speaks = [message in (USER, ANSWER) for message in messages]
    said = max((at for at, each in enumerate(speaks) if each), default=-1)
    places = [at for at, each in enumerate(speaks) if not each]
    found, expected = Pairing([messages[at] for at in places], places, said), Pairing(messages)
    assert (found.results, found.parts, found.unpaired) == (expected.results, expected.parts, expected.unpaired)
    assert [found.group_of(at) for at in places] == [expected.group_of(at) for at in places]
