"""Budgets are asked for the calls of a compaction before they are made, and charged with what these used."""

from __future__ import annotations

from decimal import Decimal

from flue_py import BudgetExceeded, JsonObject, Session, Store, SummaryFailed
from flue_py.compaction import CompactionSettings
from flue_py.core.model import FunctionModel, ModelReply, ModelRequest
from flue_py.errors import ModelDenied, ModelError, ModelUnavailable
from tests.checks import raises
from tests.sessions.guarded import SETTINGS, guard_of, model, talk
from tests.tables import inputs

USAGE: JsonObject = {"input": 900, "output": 40, "totalTokens": 940, "cost": {"total": 0.25}}


def reply(usage: JsonObject | None = USAGE) -> ModelReply:
    said: JsonObject = {"role": "assistant", "content": "short", "provider": "house", "model": "small"}
    return ModelReply(({**said, "stopReason": "stop", **({} if usage is None else {"usage": usage})},))


async def spent(session: Session) -> list[tuple[int, int]]:
    return [(budget.spent, budget.reserved) for budget in await session.money.budgets()]


async def test_what_a_summary_used_is_booked_in_every_budget(session: Session, store: Store) -> None:
    await talk(session, 20)
    await store.set_budget(session, tokens=100_000)
    await store.set_budget(session, cost=10)
    held: list[int] = []

    async def answer(_: ModelRequest) -> ModelReply:
        held.extend(budget.reserved for budget in await session.money.budgets())
        return reply()

    done = await session.compact(FunctionModel(answer, "small", context_window=200_000), settings=SETTINGS)
    assert done.appended is not None
    assert 940 < held[0] < 100_000
    assert await spent(session) == [(940, 0), (250_000_000_000, 0)]
    assert (await store.verify()).problems == []


async def test_without_enough_no_model_is_asked(session: Session, store: Store) -> None:
    await talk(session, 20)
    await store.set_budget(session, tokens=500)

    def never(_: ModelRequest) -> ModelReply:
        raise AssertionError

    leaf = session.leaf_id
    failed = await raises(SummaryFailed, session.compact(model(never), settings=SETTINGS))
    assert isinstance(failed.value.__cause__, BudgetExceeded)
    assert session.leaf_id == leaf
    assert await spent(session) == [(0, 0)]
    fallback = CompactionSettings(keep_recent_tokens=285, user_words_share=0, on_failure="fallback")
    done = await session.compact(model(never), settings=fallback)
    assert done.mode == "intent"
    await session.compactions.uncompact()
    assert (await guard_of(store, session, model(never)).before_call()).outcome == "failed"


@inputs(
    ("error", "charged"),
    [
        (ModelDenied("no"), 0),
        (ModelUnavailable("broken off", call={**USAGE, "callId": "c"}), 940),
        (ModelUnavailable("no answer"), None),
    ],
)
async def test_a_call_that_fails_is_charged_with_what_it_may_have_used(
    session: Session, store: Store, error: ModelError, charged: int | None
) -> None:
    await talk(session, 20)
    await store.set_budget(session, tokens=100_000)

    def fails(_: ModelRequest) -> ModelReply:
        raise error

    await raises(SummaryFailed, session.compact(model(fails), settings=SETTINGS))
    ((used, reserved),) = await spent(session)
    assert reserved == 0
    assert used == charged if charged is not None else used > 940


async def test_usage_that_is_unknown_is_what_was_reserved(session: Session, store: Store) -> None:
    await talk(session, 20)
    await store.set_budget(session, tokens=100_000)
    await session.compact(model(lambda _: reply(None)), settings=SETTINGS)
    ((used, reserved),) = await spent(session)
    assert reserved == 0
    assert used > 940
    assert (await store.set_budget(session, cost=Decimal(1))).spent == 0
