"""Calls whose cost was unknown get that of their day; what was known is never changed."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

import flue_py
from flue_py.core.sessions import Problem
from flue_py.prices import CallPricer, PriceBook
from tests.postgres import NewDatabase

PRICES = {"m": [1, 2], "huge": [10**9, 1]}


def answer(usage: dict[str, Any], model: str = "m", **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "x", "provider": "p", "model": model, "usage": usage, **fields}


async def written(store: flue_py.Store) -> tuple[flue_py.Session, flue_py.Session]:
    """Write calls of every sort, none of them priced, and return a session and a fork of it."""
    session = await store.create_session(key="s")
    for message in (
        answer({"input": 1000, "output": 100}),
        answer({"input": 5, "output": 5, "cost": {"total": 0.25}}),
        answer({"input": 5, "output": 5, "cost": {"total": 0}}),
        answer({"totalTokens": 70}),
        answer({"input": 7, "output": 1}, "unheard-of"),
        answer({"words": 7}),
        answer({"input": 2**61, "output": 0}, "huge"),
    ):
        await session.append_message(message)
    await session.money.record_call(
        {"input": 2000, "output": 0}, provider="p", model="m", call_id="c", outcome="failed"
    )
    await session.money.record_call({"input": 3, "output": 0})
    fork = await session.fork()
    two = [{"input": 1000, "output": 0}, {"input": 0, "output": 1000, "model": "unheard-of"}]
    await fork.append_message({"role": "assistant", "content": "x", "provider": "p", "model": "m"}, calls=two)
    gone = await store.create_session()
    await gone.append_message(answer({"input": 4000, "output": 0}))
    await store.delete_session_tree(gone)
    return session, fork


@pytest.fixture(params=["memory", "file", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "postgres":
        new_database: NewDatabase = request.getfixturevalue("new_store_database")
        return new_database()
    return ":memory:" if request.param == "memory" else str(tmp_path / "s.db")


async def test_what_is_unknown_is_priced_and_nothing_else(target: str) -> None:
    async with flue_py.open(target, prices=False) as unpriced:
        session, fork = await written(unpriced)
        store = flue_py.Store(unpriced.backend, pricer=CallPricer(PriceBook(PRICES, published=False), _now))
        before = await store.usage(group_by=["price_source"])
        planned = await store.reprice(dry_run=True)
        assert await store.usage(group_by=["price_source"]) == before
        told = [(row.model, row.calls, row.usd, row.why) for row in planned.rows]
        assert told == [
            ("m", 4, Decimal("0.0082"), None), ("", 1, None, "no model"), ("huge", 1, None, "no price"),
            ("unheard-of", 2, None, "no price"), ("m", 1, None, "no usage"), ("m", 1, None, "tokens of no kind"),
        ]  # fmt: skip
        done = await store.reprice(dry_run=False)
        assert (done.rows, done.calls, done.unknown_calls, done.usd) == (planned.rows, 4, 6, Decimal("0.0082"))
        rows = (await store.usage(group_by=["price_source"])).rows
        assert [(row.group["price_source"], row.calls, row.cost) for row in rows] == [
            (None, 5, None), ("not priced: tokens=incomplete", 1, None),
            ("prices", 4, Decimal("0.0082")), ("reported", 2, Decimal("0.25")),
        ]  # fmt: skip
        # The sums of sessions and paths are those of the ledger, also in handles that were there before.
        assert (await session.refresh()).spent == Decimal("0.2532")
        assert (await session.money.aggregate_usage_since(None)).cost == Decimal("0.2512")
        assert (await fork.money.aggregate_usage_since(None)).cost == Decimal("0.2522")
        await fork.append_message(answer({"input": 1, "output": 0, "cost": {"total": 1}}))
        assert (await fork.money.aggregate_usage_since(None)).cost == Decimal("1.2522")
        assert (await store.verify()).problems == list[Problem]()
        again = await store.reprice(dry_run=False)
        assert (again.calls, again.unknown_calls) == (0, 6)


async def test_a_call_is_priced_at_its_own_time() -> None:
    """The published price of o3 fell in June 2025: a call of May costs what it cost then."""
    async with flue_py.open(":memory:", prices=False) as unpriced:
        session = await unpriced.create_session()
        for month in (5, 7):
            at = datetime(2025, month, 1, tzinfo=UTC)
            await session.money.record_call({"input": 10**6, "output": 0}, provider="openai", model="o3", at=at)
        store = flue_py.Store(unpriced.backend, pricer=CallPricer(PriceBook(), _now))
        assert (await store.reprice(dry_run=False)).usd == Decimal(12)
        rows = (await store.usage(group_by=["month", "price_source"])).rows
        assert [row.cost for row in rows] == [Decimal(10), Decimal(2)]
        assert all(str(row.group["price_source"]).startswith("genai-prices ") for row in rows)


def _now() -> int:
    raise AssertionError("a call of the ledger has its own time")


async def test_what_was_not_billed_at_the_list_price_is_not_priced_by_it_later() -> None:
    usage: dict[str, Any] = {"input_tokens": 1000, "output_tokens": 100, "service_tier": "batch"}
    book = PriceBook({"m": [1, 2], "n": [1, 2], "n processing=batch": [0.5, 1]}, published=False)
    async with flue_py.open(":memory:", prices=False) as unpriced:
        session = await unpriced.create_session()
        for model in "mn":
            await session.append_message(answer(usage, model))
            await session.money.record_call(usage, provider="p", model=model, call_id=f"call-{model}")
        store = flue_py.Store(unpriced.backend, pricer=CallPricer(book, _now))
        await store.reprice(dry_run=False)
        rows = (await store.usage(session, group_by=["model", "price_source"])).rows
        assert [(row.group["model"], row.group["price_source"], row.calls, row.cost) for row in rows] == [
            ("m", "not priced: processing=batch", 2, None),
            ("n", "prices", 2, Decimal("0.0012")),
        ]
