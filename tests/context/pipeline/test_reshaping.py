"""The steps of settings over groups of messages that are in no session."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from flue_py.context import Item, View, added
from flue_py.context.reshaping import Reshaped, Reshaping
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
