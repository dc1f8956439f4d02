"""With `context=`, an agent of the SDK is sent nothing that the Responses API refuses, and each change is told."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from tests.adapters.needed import needs

needs("openai-agents", "agents")

import flue_py.sync
from flue_py.adapters.openai_agents import FlueSession
from flue_py.core.json import JsonObject
from flue_py.errors import InvalidEntry
from flue_py.providers import broken_rules
from tests.wire.hostile import histories

HELLO: Any = {"role": "user", "content": "Hello"}


def thought(number: int) -> dict[str, Any]:
    return {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": f"signed {number}"}


def called(number: int) -> dict[str, Any]:
    fields = {"name": "read", "arguments": "{}", "status": "completed"}
    return {"type": "function_call", "id": f"fc_{number}", "call_id": f"c{number}", **fields}


def output(number: int) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"c{number}", "output": f"line {number}"}


def said(number: int) -> dict[str, Any]:
    text = {"type": "output_text", "text": "Done.", "annotations": [], "logprobs": []}
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [text]}


def test_with_settings_an_agent_is_sent_nothing_that_the_api_refuses_and_each_change_is_told(tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    whole = [HELLO, thought(1), called(1), output(1), thought(2), said(2), {"role": "user", "content": "Go on."}]
    envelope = {"__enc__": 1, "payload": "gAAAA"}

    async def run() -> None:
        session = FlueSession("s", file, context={}, model="gpt-5")
        assert (await session.get_items(), session.last_request) == ([], None)
        await session.add_items([*whole, envelope])  # type: ignore[list-item]
        assert await session.get_items() == [*whole, envelope]
        assert session.last_request is not None
        assert (session.last_request.repairs, session.last_request.broken) == ((), ())
        # A call that was never answered, and reasoning that nothing came of.
        await session.add_items([called(3), thought(4)])  # type: ignore[list-item]
        items: list[Any] = await session.get_items()
        assert items[:-2] == [*whole, envelope]
        assert [item["type"] for item in items[-2:]] == ["function_call", "function_call_output"]
        assert broken_rules("openai-responses", items[:7] + items[8:]) == ()
        assert [each.what for each in session.last_request.repairs] == [
            "a tool call without a result got an error as its result",
            "ids by which the API would look for reasoning that is not sent are left out",
            "left out: reasoning without the item that it led to, which the API refuses",
        ]
        session.close()
        other = FlueSession("s", file, context={}, model="gpt-6")
        items = await other.get_items()
        assert [item for item in items if item.get("type") == "reasoning"] == []
        # By their ids the API would look for the reasoning that they came with.
        assert [item["id"] for item in items if str(item.get("id")).startswith(("fc_", "msg_2"))] == []
        assert other.last_request is not None
        assert "left out: reasoning of another model" in [each.what for each in other.last_request.repairs]
        other.close()
        plain = FlueSession("s", file)
        assert await plain.get_items() == [*whole, envelope, called(3), thought(4)]
        plain.close()

    asyncio.run(run())


def test_the_last_items_begin_with_no_half_of_an_answer_or_a_call(tmp_path: Path) -> None:
    given: list[Any] = [
        {"role": "user", "content": "Go."}, thought(1), called(1), called(2), output(1), output(2), thought(3), said(3),
        called(4), {"role": "user", "content": "Wait."}, output(4), {"role": "user", "content": "Go on."},
    ]  # fmt: skip

    async def run() -> None:
        session = FlueSession("s", tmp_path / "sessions.db", context={})
        await session.add_items(given)
        assert await session.get_items() == given
        for limit in range(len(given) + 2):
            items: list[Any] = await session.get_items(limit)
            assert len(items) <= limit
            assert not items or broken_rules("openai-responses", items) == ()
            assert all(item in given[-limit:] for item in items)
        session.close()

    asyncio.run(run())


@settings(max_examples=60, deadline=None)
@drawn(histories, st.sampled_from([None, "gpt-5"]))
def test_whatever_a_session_holds_no_rule_of_the_api_is_broken(messages: list[JsonObject], model: str | None) -> None:
    with flue_py.sync.open(":memory:") as store:
        held = store.create_session(key="s")
        for message in messages:
            with suppress(InvalidEntry):
                held.append_message(message)

        async def run() -> list[Any]:
            session = FlueSession("s", store, context={}, model=model)
            return await session.get_items()

        items = asyncio.run(run())
        assert not items or broken_rules("openai-responses", items) == ()
