"""Any sequence of calls gives what `agents.SQLiteSession` gives, and a store that verifies."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.adapters.needed import needs

needs("openai-agents", "agents")

from agents import SQLiteSession
from hypothesis import given
from hypothesis import strategies as st

import flue_py
from flue_py.adapters.openai_agents import FlueSession
from tests.effort import examples

IDS = st.sampled_from(["c1", "c2", "c3"])
TEXT = st.text(max_size=4) | st.sampled_from(["half \ud83d", "NUL \x00", "e\u0301"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
ITEMS = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "system", "developer"]), "content": TEXT}),
    st.fixed_dictionaries(
        {
            "type": st.just("message"),
            "role": st.just("assistant"),
            "content": st.lists(
                st.fixed_dictionaries({"type": st.just("output_text"), "text": TEXT}, optional={"a": VALUES})
            ),
        },
        optional={"id": TEXT, "status": st.just("completed")},
    ),
    st.fixed_dictionaries({"type": st.just("function_call"), "call_id": IDS, "name": TEXT, "arguments": TEXT}),
    st.fixed_dictionaries({"type": st.just("function_call_output"), "call_id": IDS, "output": TEXT | st.just([])}),
    st.fixed_dictionaries({"type": st.just("reasoning"), "id": TEXT, "summary": VALUES}),
    st.dictionaries(
        TEXT | st.sampled_from(["role", "type", "content", "output", "usage", "extra"]), VALUES, max_size=4
    ),
)
CALLS = st.one_of(
    st.tuples(st.just("add_items"), st.lists(ITEMS, max_size=4)),
    st.tuples(st.just("get_items"), st.none() | st.integers(-1, 9)),
    st.tuples(st.just("pop_item")),
    st.tuples(st.just("clear_session")),
)


def text_of(value: Any) -> str:
    """Return a value as text that tells 1 from 1.0 and from True."""
    return json.dumps(value, sort_keys=True)


@examples(120)
@given(st.lists(CALLS, max_size=12))
def test_calls_give_what_the_sdks_own_session_gives(calls: list[tuple[Any, ...]]) -> None:
    with flue_py.sync.open(":memory:") as store:
        theirs, ours = SQLiteSession("one"), FlueSession.from_store("one", store)

        async def both() -> None:
            for name, *arguments in [*calls, ("get_items", None)]:
                expected = await getattr(theirs, name)(*arguments)
                assert text_of(await getattr(ours, name)(*arguments)) == text_of(expected)

        asyncio.run(both())
        theirs.close()
        assert store.verify().problems == []
