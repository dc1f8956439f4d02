"""What a provider says that it cleared itself is kept with its answer, measured, and told before the next request."""

from __future__ import annotations

import pytest

from flue_py import Session
from flue_py.providers import to_provider
from flue_py.transfer import export_session
from tests.wire.test_applied import EDITS, RESPONSE

pytestmark = pytest.mark.anyio


async def test_an_answer_keeps_what_was_cleared_and_the_next_request_tells_it(session: Session) -> None:
    await session.append_message({"role": "user", "content": "Go."})
    answered = (await session.append_message(RESPONSE)).entry_id
    message = (await session.build_context())[-1]
    assert message["appliedEdits"] == EDITS
    measured = await session.context.measure(model="claude-sonnet-4-5")
    assert measured.reported is not None
    assert (measured.reported.tokens, measured.reported.cleared) == (25_020, 65_000)
    settings = {"provider_editing": {"clear_tool_uses": {"trigger_tokens": 50_000}, "keep_thinking_turns": 1}}
    sent = await session.request("anthropic", settings=settings)
    assert [(event.name, event.text) for event in sent.report.events] == [
        ("provider_cleared", f"for the answer {answered} clear_thinking_20251015: 3 turns of reasoning, 15,000 tokens"),
        ("provider_cleared", f"for the answer {answered} clear_tool_uses_20250919: 8 tool uses, 50,000 tokens"),
    ]
    for target in ("anthropic", "openai-chat", "openai-responses", "gemini"):
        assert "clear_" not in str(to_provider(message, target))
        assert "clear_" not in str((await session.request(target)).messages)
    entry = await session.get_entry(answered)
    assert entry is not None
    assert '"context_management":{"applied_edits":[' in str(entry.extra)
    assert "appliedEdits" not in (await export_session(session, "anthropic")).text
    await session.append_message({"role": "assistant", "content": "And on."})
    assert (await session.request("anthropic", settings=settings)).report.events == ()
