"""Entries that a caller builds for an import, and answers that several paid calls made."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from flue_py import InvalidEntry, JsonObject, NewEntry, Session, Store
from flue_py.core.sessions import NewSession
from tests.tables import inputs

pytestmark = pytest.mark.anyio

AT = datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)
CALLS: list[JsonObject] = [
    {"input": 10, "output": 1, "totalTokens": 11, "cost": {"total": 0.25}, "model": "small", "callId": "c1"},
    {"input": 20, "output": 2, "totalTokens": 22, "cost": {"total": 0.5}},
]


async def test_a_built_history_keeps_ids_parents_times_and_what_stands_beside(store: Store) -> None:
    entries = [
        NewEntry.message({"role": "user", "content": "hi"}, "prompt", id="u", created_at=AT, extra={"row": 7}),
        NewEntry.message({"role": "assistant", "content": "a"}, id="a", parent_id="u", calls=CALLS),
        NewEntry.custom("note", {"n": 1}, id="n", parent_id="a", calls=[{"input": 3}]),
        NewEntry.branch_summary("left", from_id="a", id="b", parent_id="n", usage={"output": 4}),
        NewEntry.compaction("all", first_kept_entry_id="u", tokens_before=9, id="c", parent_id="b"),
        NewEntry.exclusion("u", id="x", parent_id="c"),
    ]
    session = await store.import_session(NewSession(), entries, leaf="x")
    path = await session.get_active_path()
    assert [(entry.id, entry.parent_id, entry.kind) for entry in path] == [
        ("u", None, "message"),
        ("a", "u", "message"),
        ("n", "a", "note"),
        ("b", "n", "branch_summary"),
        ("c", "b", "compaction"),
        ("x", "c", "exclusion"),
    ]
    assert (path[0].created_at, path[0].source, path[0].extra_fields) == (AT, "prompt", {"row": 7})
    report = await store.usage(session, group_by=["purpose"])
    assert {row.group["purpose"]: (row.calls, row.total_tokens) for row in report.rows} == {
        "turn": (3, 36),
        "branch_summary": (1, 4),
    }
    assert (await store.verify()).problems == []


@inputs(
    "make",
    [
        lambda: NewEntry("message", '{"role":"user","content":"a"}', "user", id="a"),
        lambda: {"role": "user", "content": "a"},
    ],
)
async def test_an_import_takes_nothing_that_no_builder_made(store: Store, make: Callable[[], NewEntry]) -> None:
    session = await store.create_session()
    with pytest.raises(InvalidEntry, match=r"entry 0: .*NewEntry\.message\(\)"):
        await session.import_entries([make()], leaf="a")
    with pytest.raises(InvalidEntry, match=r"entry 0: .*NewEntry\.message\(\)"):
        await store.import_session(NewSession(id="s"), [make()], leaf="a")
    assert await session.get_active_path() == []
    assert await store.get_session("s") is None


@inputs(
    ("make", "field"),
    [
        (lambda: NewEntry.custom("x", id=1), "id"),  # type: ignore[arg-type]
        (lambda: NewEntry.custom("x", parent_id=b"p"), "parent_id"),  # type: ignore[arg-type]
        (lambda: NewEntry.custom("x", created_at=datetime(2024, 1, 1)), "created_at"),  # noqa: DTZ001
        (lambda: NewEntry.custom("x", created_at=5), "created_at"),  # type: ignore[arg-type]
        (lambda: NewEntry.custom("x", extra=[1]), "extra"),  # type: ignore[arg-type]
        (lambda: NewEntry.custom("x", calls={"input": 1}), "calls"),  # type: ignore[arg-type]
        (lambda: NewEntry.custom("x", calls=[1]), "calls"),  # type: ignore[list-item]
        (lambda: NewEntry.message({"role": "user", "content": "a"}, calls=CALLS), "calls"),
        (lambda: NewEntry.message({"role": "user", "parts": [{"text": "a"}]}), "message"),
    ],
)
def test_builders_name_what_they_refuse(make: Callable[[], NewEntry], field: str) -> None:
    with pytest.raises(InvalidEntry, match=rf"^{field}"):
        make()


async def test_an_answer_of_several_calls_has_a_row_for_each(store: Store) -> None:
    session = await store.create_session()
    answer: JsonObject = {"role": "assistant", "content": "a", "model": "big", "provider": "p", "stopReason": "error"}
    appended = await session.append_message(answer, calls=CALLS)
    entry = await session.get_entry(appended.leaf_id or "")
    assert entry is not None
    assert entry.usage.total_tokens == 33
    assert (await session.money.aggregate_usage_since(None)).usage.cost.usd == Decimal("0.75")
    report = await store.usage(session, group_by=["provider", "model", "outcome"])
    assert {tuple(row.group.values()): (row.calls, row.input, row.cost) for row in report.rows} == {
        ("p", "small", None): (1, 10, Decimal("0.25")),
        ("p", "big", "failed"): (1, 20, Decimal("0.5")),
    }
    assert (await store.verify()).problems == []


async def test_a_sum_that_a_message_brings_is_its_own(session: Session, store: Store) -> None:
    usage: JsonObject = {"input": 100, "totalTokens": 100}
    await session.append_message({"role": "assistant", "content": "a", "usage": usage}, calls=CALLS)
    assert (await session.money.aggregate_usage_since(None)).usage.total_tokens == 100
    assert (await store.usage(session)).total.calls == 2
    assert (await store.verify()).problems == []


async def test_calls_of_unknown_usage_are_calls_all_the_same(session: Session, store: Store) -> None:
    calls: list[JsonObject] = [{"model": "m"}, {"model": "n"}]
    appended = await session.append_message({"role": "assistant", "content": "a"}, calls=calls)
    total = (await store.usage(session)).total
    assert (total.calls, total.known["input"]) == (2, None)
    odd = await session.append_message({"role": "assistant", "content": "b"}, calls=[{"input": -1}, {"output": 2}])
    assert [each.partition(".")[0] for each in odd.oddities] == ["calls[0]"]
    assert appended.oddities == ()
    assert (await store.verify()).problems == []


async def test_calls_go_to_the_answer_that_a_provider_form_becomes(session: Session, store: Store) -> None:
    message: JsonObject = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    appended = await session.append_message(message, calls=CALLS)
    assert appended.converted
    assert (await store.usage(session)).total.calls == 2
    with pytest.raises(InvalidEntry, match="calls: only an answer"):
        await session.append_message({"role": "tool", "tool_call_id": "t", "content": "r"}, calls=CALLS)
    with pytest.raises(InvalidEntry, match="calls: should be a list"):
        await session.append_message({"role": "assistant", "content": "a"}, calls="c1")  # type: ignore[arg-type]
