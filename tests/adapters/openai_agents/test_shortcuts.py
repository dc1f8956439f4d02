"""The shortcuts of usual items give what the general way gives, and are taken for what agents say all the time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.adapters.needed import needs

needs("openai-agents", "agents")

from hypothesis import given
from hypothesis import strategies as st

from flue_py import providers as wire
from flue_py.adapters import items as shortcuts
from flue_py.errors import InvalidEntry
from flue_py.providers.base import close_difference
from tests.adapters.openai_agents.test_session import ITEMS
from tests.effort import examples

TEXT = st.sampled_from(["", "x", "{}", '{"a":1}', '{"a": 1}', '{"a":1e400}', "[1]", "e\u0301", "\ud83d"])
ODD = TEXT | st.sampled_from([None, True, 1, 1.0, [], {}, [None], {"set": {}}])
FIELDS = {
    "type": st.sampled_from(["message", "function_call", "function_call_output", "output_text", "text", None]),
    "role": st.sampled_from(["user", "assistant", "system", "developer", "tool", 1]), "id": ODD, "status": ODD,
    "call_id": ODD, "name": ODD, "arguments": ODD, "output": ODD, "phase": ODD, "usage": ODD, "model": ODD,
}  # fmt: skip
PARTS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["output_text", "output_text", "input_text", "refusal"]), "text": ODD},
        optional={"annotations": ODD, "logprobs": ODD, "b": ODD},
    )
    | st.fixed_dictionaries({"text": TEXT, "type": st.just("output_text")}),
    max_size=3,
)
ANY = st.fixed_dictionaries({}, optional={**FIELDS, "content": ODD | PARTS})
ANSWERS = st.fixed_dictionaries(
    {"type": st.just("message"), "role": st.just("assistant"), "content": PARTS},
    optional={"id": ODD, "status": ODD, "phase": ODD},
)
CALLS = st.fixed_dictionaries(
    {"type": st.just("function_call"), "call_id": TEXT, "name": TEXT, "arguments": TEXT},
    optional={"id": ODD, "status": ODD},
)
PLACES = st.dictionaries(st.sampled_from(["0", "1", "2"]), ODD | st.just({"set": {"a": 1}}), max_size=2)
BESIDE = st.fixed_dictionaries(
    {},
    optional={
        "set": ODD | st.fixed_dictionaries({}, optional=FIELDS),
        "unset": ODD | st.just(["type"]),
        "inside": ODD
        | st.fixed_dictionaries(
            {"content": ODD | st.fixed_dictionaries({"inside": ODD | PLACES}, optional={"set": ODD})},
            optional={"id": ODD},
        ),
    },
)


def in_general(item: dict[str, Any], names: dict[str, str]) -> tuple[Any, Any]:
    """Return the message that an item is, and what stands beside it, the long way round."""
    [(message, _)] = wire.convert(item, "openai-responses", names)
    printed = wire.to_provider(message, "openai-responses").messages
    return message, close_difference(printed[0] if len(printed) == 1 else {}, item)


@examples(600)
@given(ANY | ANSWERS | CALLS, BESIDE)
def test_what_is_printed_is_what_the_general_way_prints(item: dict[str, Any], beside: dict[str, Any]) -> None:
    try:
        message, own = in_general(item, {})
    except InvalidEntry:
        return
    for found in (own, beside):
        printed = shortcuts.shortcuts_printed(message, found)
        if printed is not None:
            general = wire.to_provider(message, "openai-responses", {"openaiResponses": found})
            assert [json.dumps(printed, sort_keys=True)] == [
                json.dumps(each, sort_keys=True) for each in general.messages
            ]


ANSWER: Any = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Hi.", "annotations": [], "logprobs": []}],
}


@pytest.mark.parametrize("item", [ITEMS[8], ITEMS[9], ITEMS[10], ANSWER], ids=lambda item: item["type"])
def test_they_are_taken_for_what_agents_say(item: Any) -> None:
    assert shortcuts.shortcuts_printed(*in_general(item, {})) == item
