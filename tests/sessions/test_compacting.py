"""Compacting a session again and again, with what its handle returns."""

from __future__ import annotations

from typing import Any

import pytest

from flue_py import Appended, Session, compaction

WINDOW = 240_000
SETTINGS = compaction.CompactionSettings(reserve_tokens=10_000, keep_recent_tokens=2)


async def complete(request: compaction.SummaryRequest) -> compaction.SummaryReply:
    """Summarize without a model."""
    return compaction.SummaryReply(f"summary of {request.kind}", {"prompt_tokens": 100, "completion_tokens": 9})


async def test_every_compaction_plans_on_the_latest_one_and_is_not_due_again_at_once(session: Session) -> None:
    kinds = []
    for round_ in range(3):
        await session.append_message({"role": "user", "content": f"{round_} " + "w " * 400})
        usage = {"input_tokens": 239_000, "output_tokens": 1_000}
        await session.append_message({"role": "assistant", "content": "a " * 400, "usage": usage})
        await session.append_message({"role": "user", "content": "and now?"})
        items = await session.build_context_entries()
        size = compaction.estimate_context_tokens(items)
        assert size.usage_tokens == 240_000
        assert compaction.should_compact(size.tokens, WINDOW, SETTINGS)
        found = compaction.plan_session_compaction(items, await session.compactions.latest(), SETTINGS)
        assert isinstance(found, compaction.SessionCompactionPlan)
        assert found.plan.tokens_before == size.tokens
        summary = await compaction.summarize(found.plan, complete)
        kinds.append(summary.calls[0].kind)
        await session.append_compaction(
            summary.text,
            first_kept_entry_id=found.first_kept_entry_id,
            tokens_before=size.tokens,
            details=summary.details,
            calls=summary.usages,
        )
        after = compaction.estimate_context_tokens(await session.build_context_entries())
        assert (after.usage_tokens, after.last_usage_index) == (0, None)
        assert after.tokens < 1_000
        assert not compaction.should_compact(after.tokens, WINDOW, SETTINGS)
        plain = compaction.estimate_context_tokens(await session.build_context())
        assert plain.tokens == after.tokens
    assert kinds == ["initial", "update", "update"]


async def test_what_the_latest_compaction_had_pinned_is_read_from_its_entry(session: Session) -> None:
    pinned = await session.append_message({"role": "user", "content": "keep me"})
    await session.marks.pin(pinned.entry_id)
    for round_ in range(2):
        for number in range(3):
            await session.append_message({"role": "user", "content": f"{round_}.{number} " + "w " * 400})
            await session.append_message({"role": "assistant", "content": "a " * 400})
        items = await session.build_context_entries()
        latest = await session.compactions.latest()
        found = compaction.plan_session_compaction(items, latest, SETTINGS, pinned=await session.marks.pins())
        assert isinstance(found, compaction.SessionCompactionPlan)
        summarized = [message.get("content") for message in found.plan.messages_to_summarize]
        assert "keep me" not in summarized
        await session.append_compaction("s", first_kept_entry_id=found.first_kept_entry_id, tokens_before=1)


CALLS: dict[str, Any] = {
    "role": "assistant",
    "content": [{"type": "toolCall", "id": name, "name": "read", "arguments": {}} for name in ("a", "b")],
}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "toolResult", "toolCallId": call_id, "toolName": "read", "content": "done"}


@pytest.mark.parametrize("kept", ["first", "second", "repeated"])
async def test_a_compaction_keeps_the_call_of_a_result_that_it_keeps(session: Session, kept: str) -> None:
    said = [{"role": "user", "content": "Look."}, CALLS, *map(result, ("a", "b", "b")), {"role": "user", "content": ""}]
    _, called, *results = (await session.append_messages(said)).entry_ids
    first_kept = dict(zip(("first", "second", "repeated"), results, strict=False))[kept]

    async def compact(**options: Any) -> Appended:
        return await session.append_compaction("so far", first_kept_entry_id=first_kept, tokens_before=9, **options)

    made = await compact(idempotency_key="k")
    (told,) = made.oddities
    assert f"{called!r}" in told
    assert f"{first_kept!r}" in told
    assert [message["role"] for message in await session.build_context()][1:3] == ["assistant", "toolResult"]
    await session.append_message({"role": "user", "content": "and now?"})
    again = await compact(idempotency_key="k")
    assert (again.replayed, again.entry_ids) == (True, made.entry_ids)
    assert (await compact(keep_exchanges_whole=False)).oddities == ()
    assert (await session.build_context())[1]["role"] == "toolResult"


async def test_a_compaction_keeps_a_call_whose_result_is_to_come(session: Session) -> None:
    called, after = (await session.append_message(CALLS), await session.append_custom("note", {"of": "the program"}))
    made = await session.append_compaction("so far", first_kept_entry_id=after.entry_id, tokens_before=9)
    assert called.entry_id in made.oddities[0]
    await session.append_messages([result("a"), result("b")])
    roles = [message["role"] for message in await session.build_context()]
    assert roles == ["user", "assistant", "toolResult", "toolResult"]


async def test_a_compaction_leaves_a_pinned_call_where_it_is_kept_anyway(session: Session) -> None:
    await session.append_message({"role": "user", "content": "Look."})
    called = await session.append_message(CALLS)
    first, second = (await session.append_messages([result("a"), result("b")])).entry_ids
    await session.marks.pin(called.entry_id)
    made = await session.append_compaction("so far", first_kept_entry_id=second, tokens_before=9)
    assert made.oddities == ()
    roles = [message["role"] for message in await session.build_context()]
    assert roles == ["user", "assistant", "toolResult", "toolResult"]
    assert first != second
