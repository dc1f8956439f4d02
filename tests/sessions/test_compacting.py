"""Compacting a session again and again, with what its handle returns."""

from __future__ import annotations

import pytest

from flue_py import Session
from flue_py.compaction import (
    CompactionSettings,
    SessionCompactionPlan,
    SummaryReply,
    SummaryRequest,
    estimate_context_tokens,
    plan_session_compaction,
    should_compact,
    summarize,
)

pytestmark = pytest.mark.anyio

WINDOW = 240_000
SETTINGS = CompactionSettings(reserve_tokens=10_000, keep_recent_tokens=2)


async def complete(request: SummaryRequest) -> SummaryReply:
    """Summarize without a model."""
    return SummaryReply(f"summary of {request.kind}", {"prompt_tokens": 100, "completion_tokens": 9})


async def test_every_compaction_plans_on_the_latest_one_and_is_not_due_again_at_once(session: Session) -> None:
    kinds = []
    for round_ in range(3):
        await session.append_message({"role": "user", "content": f"{round_} " + "w " * 400})
        usage = {"input_tokens": 239_000, "output_tokens": 1_000}
        await session.append_message({"role": "assistant", "content": "a " * 400, "usage": usage})
        await session.append_message({"role": "user", "content": "and now?"})
        items = await session.build_context_entries()
        size = estimate_context_tokens(items)
        assert size.usage_tokens == 240_000
        assert should_compact(size.tokens, WINDOW, SETTINGS)
        found = plan_session_compaction(items, await session.latest_compaction(), SETTINGS)
        assert isinstance(found, SessionCompactionPlan)
        assert found.plan.tokens_before == size.tokens
        summary = await summarize(found.plan, complete)
        kinds.append(summary.calls[0].kind)
        await session.append_compaction(
            summary.text,
            first_kept_entry_id=found.first_kept_entry_id,
            tokens_before=size.tokens,
            details=summary.details,
            calls=summary.usages,
        )
        after = estimate_context_tokens(await session.build_context_entries())
        assert (after.usage_tokens, after.last_usage_index) == (0, None)
        assert after.tokens < 1_000
        assert not should_compact(after.tokens, WINDOW, SETTINGS)
        plain = estimate_context_tokens(await session.build_context())
        assert plain.tokens == after.tokens
    assert kinds == ["initial", "update", "update"]


async def test_what_the_latest_compaction_had_pinned_is_read_from_its_entry(session: Session) -> None:
    pinned = await session.append_message({"role": "user", "content": "keep me"})
    await session.pin(pinned.entry_id)
    for round_ in range(2):
        for number in range(3):
            await session.append_message({"role": "user", "content": f"{round_}.{number} " + "w " * 400})
            await session.append_message({"role": "assistant", "content": "a " * 400})
        items = await session.build_context_entries()
        latest = await session.latest_compaction()
        found = plan_session_compaction(items, latest, SETTINGS, pinned=await session.pins())
        assert isinstance(found, SessionCompactionPlan)
        summarized = [message.get("content") for message in found.plan.messages_to_summarize]
        assert "keep me" not in summarized
        await session.append_compaction("s", first_kept_entry_id=found.first_kept_entry_id, tokens_before=1)
