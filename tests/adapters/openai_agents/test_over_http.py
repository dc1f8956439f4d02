"""The sessions of the SDK on OpenAI's Conversations API, unchanged, on our server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.adapters.needed import needs

needs("openai-agents", "agents", "starlette", "uvicorn", "httpx")

import openai
from agents import OpenAIConversationsSession

from tests.server.serving import TOKENS, served

ITEMS: list[dict[str, Any]] = [
    {"id": "rs_1", "type": "reasoning", "summary": []},
    {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}", "status": "completed"},
    {"type": "function_call_output", "call_id": "c1", "output": "done", "status": "completed"},
    {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [
        {"type": "output_text", "text": "yes", "annotations": [], "logprobs": []}
    ]},
]  # fmt: skip


async def test_a_session_of_the_agents_sdk_is_kept(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        await keeps(openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=TOKENS["ann"], max_retries=0))


async def keeps(client: openai.AsyncOpenAI) -> None:
    async with client:
        session = OpenAIConversationsSession(openai_client=client)
        assert await session.get_items() == []
        turn: Any = [{"role": "user", "content": "hi"}, *ITEMS]
        await session.add_items(turn)
        same = OpenAIConversationsSession(conversation_id=session.session_id, openai_client=client)
        items: list[Any] = await same.get_items()
        assert [item["type"] for item in items] == [
            "message", "reasoning", "function_call", "function_call_output", "message"
        ]  # fmt: skip
        assert items[2] == ITEMS[1]
        assert await same.get_items(limit=2) == items[-2:]
        # A run that is tried again takes its items back, and stores them anew.
        popped = [await same.pop_item() for _ in range(3)]
        assert popped == items[:1:-1]
        await same.add_items(popped[::-1])  # type: ignore[arg-type]
        assert await session.get_items() == items
        await session.clear_session()
        with pytest.raises(openai.NotFoundError):
            await same.get_items()
