"""Plain dicts of a caller are taken where JSON is, as they are and with the types that a checker infers of them."""

from __future__ import annotations

import pytest

from flue_py import Store
from flue_py.adapters import messages
from flue_py.agents.guard import CompactionGuard
from flue_py.errors import InvalidEntry

# No annotations: mypy, which runs over this module, has to accept what it infers.
TOOL = {"name": "look", "description": "Looks", "input_schema": {"type": "object", "properties": {}}}
SAID = {"role": "assistant", "content": [{"type": "text", "text": "x"}], "usage": {"input": 1}}
ASKED = {"role": "user", "content": [{"type": "text", "text": "x"}]}
DATA = {"n": 1, "list": [1, 2]}


async def test_values_that_are_not_annotated_are_stored(store: Store) -> None:
    session = await store.create_session(metadata=DATA)
    first = (await session.append_messages([SAID])).leaf_id
    await session.append_custom("note", DATA)
    await session.append_compaction("so far", first_kept_entry_id=first or "", tokens_before=1, details=DATA)
    await session.append_branch_summary("beside", from_id=first, details=DATA)
    stored = [entry.fields for entry in await session.get_active_path()]
    assert [session.metadata, *(fields.get("details", fields) for fields in stored)] == [DATA, SAID, DATA, DATA, DATA]
    request = await session.request("anthropic", tools=[TOOL])
    assert request.body["tools"] == CompactionGuard(store, session, window=9, mode="window", tools=[TOOL]).tools
    answer = await session.append_message(SAID, calls=[{"model": "m", "usage": {"input": 3}}])
    assert [oddity.split(":")[0] for oddity in answer.oddities] == ["calls[0].usage"]
    assert (await session.compactions.answer_recall({**TOOL, "id": "c1"}))["toolCallId"] == "c1"


def test_lists_of_providers_are_converted() -> None:
    assert messages.from_openai([ASKED]) == messages.from_anthropic([ASKED])
    with pytest.raises(InvalidEntry, match="messages"):
        messages.from_openai([{"role": "user", "content": object()}])
