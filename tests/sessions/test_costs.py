"""What was paid: priced calls, calls without an entry, queries of the ledger."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import flue_py
from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject
from flue_py.core.sessions import NewSession
from flue_py.transfer.imports import import_file
from tests.checks import raises
from tests.samples import placed
from tests.tables import inputs
from tests.values import existing

PRICES = {"m": [1, 2]}
HUGE = {"input": 2**61 + 1}


def answer(**usage: Any) -> JsonObject:
    """Return an answer of model m."""
    return {"role": "assistant", "content": "ok", "provider": "p", "model": "m", "usage": {"input": 1000, **usage}}


async def test_a_call_is_priced_where_nobody_said_what_it_cost() -> None:
    async with flue_py.open(":memory:", prices=PRICES) as store:
        session = await store.create_session()
        await session.append_messages([answer(), answer(cost={"total": 0.5}), {**answer(), "model": "unknown"}])
        await session.append_compaction(
            "s", first_kept_entry_id=session.leaf_id or "", tokens_before=1, calls=[{"output": 1000, "model": "m"}]
        )
        await session.append_branch_summary("s", from_id=None, usage={"output": 2000, "model": "m"})
        report = await store.usage(session, group_by=["purpose", "price_source"])
        costs = {(row.group["purpose"], row.group["price_source"]): row.cost for row in report.rows}
        assert costs == {
            ("turn", "prices"): Decimal("0.001"),
            ("turn", "reported"): Decimal("0.5"),
            ("turn", None): None,
            ("compaction", "prices"): Decimal("0.002"),
            ("branch_summary", "prices"): Decimal("0.004"),
        }
        info = await session.refresh()
        assert (info.spent, info.unpriced_calls) == (Decimal("0.507"), 1)
        # What the path says is what the entries report: a price is no part of history.
        window = await session.money.aggregate_usage_since(None)
        assert window.usage.cost.usd == window.cost == Decimal("0.507")


async def test_imported_calls_and_forks_and_tasks_are_priced_too() -> None:
    async with flue_py.open(":memory:", prices=PRICES) as store:
        root = await store.import_session(NewSession(), [placed(NewEntry.message(answer()), "e", None, 5)], leaf="e")
        await root.import_entries([placed(NewEntry.message(answer()), "f", "e", 6)], leaf="f")
        for session in (await root.fork(), await root.tasks.create(task_id="t")):
            await session.append_message(answer())
        assert (await store.usage()).total.cost == Decimal("0.004")


async def test_prices_can_be_turned_off() -> None:
    async with flue_py.open(":memory:", prices=False) as store:
        session = await store.create_session()
        await session.append_message(answer())
        assert (await store.usage(session)).total.cost is None


async def test_a_call_alone_is_recorded_priced_and_paid_once() -> None:
    async with flue_py.open(":memory:", prices=PRICES) as store:
        session = await store.create_session()
        at = datetime(2026, 3, 1, tzinfo=UTC)
        made = [
            await session.money.record_call(
                {"input": 500}, provider="p", model="m", call_id="c", purpose="title", outcome="failed", at=at
            )
            for _ in range(2)
        ]
        assert [(each.is_new, each.usd, each.price_source) for each in made] == [
            (True, Decimal("0.0005"), "prices"),
            (False, Decimal("0.0005"), "prices"),
        ]
        days = await store.usage(session, group_by=["day"], first_day=date(2026, 3, 1), last_day=date(2026, 3, 1))
        assert [(row.group, row.calls) for row in days.rows] == [({"day": date(2026, 3, 1)}, 1)]
        assert (await store.usage(session, last_day=date(2026, 2, 28))).total.calls == 0
        with pytest.raises(flue_py.CallConflict, match="reported before with other numbers"):
            await session.money.record_call({"input": 501}, provider="p", call_id="c")
        await session.append_message({"role": "user", "content": "goes on"})


@inputs(
    ("usage", "more", "error"),
    [
        ([], {}, flue_py.InvalidEntry),
        ({"input": -1}, {}, flue_py.InvalidEntry),
        ({"cacheWrite": 1, "cacheWrite1h": 2}, {}, flue_py.InvalidEntry),
        ({"output": 1, "reasoning": 2}, {}, flue_py.InvalidEntry),
        ({"reasoning": -1}, {}, flue_py.InvalidEntry),
        ({"cost": {"total": -0.1}}, {}, flue_py.InvalidEntry),
        ({"cost": {"total": 1e300}}, {}, flue_py.InvalidEntry),
        ({"input": 2**62}, {"model": "dear"}, flue_py.InvalidEntry),
        ({}, {"purpose": "a b"}, flue_py.InvalidEntry),
        ({}, {"outcome": ""}, flue_py.InvalidEntry),
        ({}, {"call_id": ""}, flue_py.InvalidArgument),
        ({}, {"call_id": "\0"}, flue_py.InvalidArgument),
        ({}, {"provider": None}, flue_py.InvalidArgument),
        ({}, {"model": 7}, flue_py.InvalidArgument),
        ({}, {"at": datetime(2026, 3, 1)}, flue_py.InvalidArgument),  # noqa: DTZ001
    ],
)
async def test_what_is_no_call_is_refused_and_changes_nothing(usage: Any, more: Any, error: type[Exception]) -> None:
    async with flue_py.open(":memory:", prices={"dear": [10**9, 1]}) as store:
        session = await store.create_session()
        await raises(error, session.money.record_call(usage, **more))
        assert ((await store.info()).ledger_rows, (await session.refresh()).revision) == (0, 0)


@inputs("usage", [{"output": 1, "reasoning": 2}, {"cacheWrite": 0, "cacheWrite1h": 1}, {"output": 3, "reasoning": 1.5}])
async def test_a_message_with_odd_parts_is_kept_and_the_field_named(usage: Any) -> None:
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        appended = await session.append_message(answer(**usage))
        assert [odd.partition(":")[0] for odd in appended.oddities] == [f"message.usage.{list(usage)[-1]}"]
        assert session.leaf_id == appended.entry_id


async def test_an_answer_is_kept_whatever_numbers_its_usage_has() -> None:
    odd: Any = {"input": float("nan"), "output": 3, "cost": {"total": float("inf")}, "x": [{"y": -float("inf")}]}
    async with flue_py.open(":memory:", prices=False) as store:
        session = await store.create_session()
        appended = await session.append_message({"role": "assistant", "content": "ok", "usage": odd})
        places = [odd.partition(":")[0] for odd in appended.oddities]
        assert places == [f"message.usage.{name}" for name in ("input", "cost.total", "x[0].y")]
        entry = existing(await session.get_entry(appended.entry_id or ""))
        assert entry.fields["usage"] == {
            "input": "NaN", "output": 3, "cost": {"total": "Infinity"}, "x": [{"y": "-Infinity"}],
        }  # fmt: skip
        first = appended.entry_id or ""
        made = await session.append_compaction("s", first_kept_entry_id=first, tokens_before=1, usage=odd, calls=[odd])
        assert {odd.partition(".")[0] for odd in made.oddities} == {"usage", "calls[0]"}
        total = (await store.usage(session)).total
        assert (total.calls, total.output, total.known["input"], total.cost) == (2, 6, None, None)
        with pytest.raises(flue_py.InvalidEntry, match=r"message\.content"):
            await session.append_message({"role": "assistant", "content": [{"x": float("nan")}], "usage": odd})
        assert (await store.verify()).problems == []


@inputs("odd", [{"input": 2**62}, {"output": 2**61, "totalTokens": 1}, {"cost": {"total": 4e6}}])
async def test_no_answer_is_refused_because_a_sum_would_be_too_large(odd: Any, tmp_path: Path) -> None:
    large, small = ({"role": "assistant", "content": "ok", "usage": usage} for usage in (odd, {"input": 3}))
    async with flue_py.open(tmp_path / "s.db", prices=False) as store:
        session = await store.create_session()
        for _ in range(3):
            appended = await session.append_messages([large, small])
        assert "with its numbers a sum would be more than" in appended.oddities[-1]
        assert len(appended.entry_ids) == 2
        window = await session.money.aggregate_usage_since(appended.entry_ids[0])
        assert (await session.append_message(small)).leaf_id == session.leaf_id
        entries = [
            placed(NewEntry.message(large), "a"),
            placed(NewEntry.message(large), "b", "a"),
            placed(NewEntry.message(large), "c", "b"),
        ]
        imported = await store.import_session(NewSession(id="imported"), entries, leaf="c")
        assert [len(await each.get_tree()) for each in (session, imported)] == [7, 3]
        assert all(entry.fields["usage"] == odd for entry in await imported.get_tree())
        assert window.on_path
        assert (await store.verify()).problems == []


@inputs(
    "told",
    [{"calls": [HUGE, HUGE]}, {"usage": HUGE, "calls": [HUGE, HUGE]}, {"calls": [{**HUGE, "totalTokens": 1}] * 2}],
)
async def test_no_summary_is_refused_because_its_calls_come_to_too_much(told: Any, tmp_path: Path) -> None:
    async with flue_py.open(tmp_path / "s.db", prices=False) as store:
        session = await store.create_session()
        first = (await session.append_message(answer(cost={"total": 0.5}))).entry_id
        task = await session.tasks.create(task_id="t")
        await task.append_message(answer())
        made = (
            await session.append_compaction("s", first_kept_entry_id=first, tokens_before=1, **told),
            await session.append_branch_summary("s", from_id=None, **told),
            await session.branches.merge_back("s", source=task, **told),
        )
        for appended in made:
            assert [odd for odd in appended.oddities if odd.endswith("they are kept, and none is counted")]
            entry = existing(await session.get_entry(appended.entry_id))
            assert entry.fields["usage"] == told.get("usage", {"calls": told["calls"]})
        window = await session.money.aggregate_usage_since(first)
        assert (window.calls, window.usage.total_tokens, (await session.refresh()).spent_tokens) == (0, 0, 1000)
        again = await session.branches.merge_back("s", source=task, **told)
        assert (again.replayed, again.entry_id, again.oddities) == (True, made[-1].entry_id, ())
        assert (await store.verify()).problems == []


async def test_a_merge_back_that_carries_a_sum_too_far_is_kept_and_told() -> None:
    async with flue_py.open(":memory:", prices=False) as store:
        session = await store.create_session()
        await session.append_message(answer(cost={"total": 4e6}))
        task = await session.tasks.create(task_id="t")
        await task.append_message(answer())
        merged = await session.branches.merge_back("s", source=task, usage={"input": 1, "cost": {"total": 4e6}})
        assert [odd.partition(":")[0] for odd in merged.oddities] == ["usage"]
        assert (session.leaf_id, (await session.refresh()).spent) == (merged.entry_id, Decimal(4_000_000))
        await task.append_message(answer())
        odd = await session.branches.merge_back("s", source=task, usage={"input": -1, "output": 2})
        assert [odd.partition(":")[0] for odd in odd.oddities] == ["usage.input"]


async def test_an_import_tells_what_it_kept_without_counting_it(tmp_path: Path) -> None:
    entries = [
        placed(NewEntry.message(answer(cost={"total": 4e6})), name, before)
        for name, before in (("a", None), ("b", "a"))
    ]
    async with flue_py.open(":memory:", prices=False) as store:
        told: list[str] = []
        await store.import_session(NewSession(id="s"), entries, leaf="b", on_oddity=told.append)
        assert [odd.partition(" usage")[0] for odd in told] == ["entry 'a':"]
        with pytest.raises(flue_py.InvalidArgument, match="on_oddity"):
            await store.import_session(NewSession(), entries, leaf="b", on_oddity=told)  # type: ignore[arg-type]
        rows = [{"type": "session", "version": 3, "id": "pi", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/w"}]
        for name, before in (("c", None), ("d", "c")):
            row = {"type": "message", "id": name, "parentId": before, "timestamp": "2026-01-01T00:00:00.000Z"}
            rows.append({**row, "message": answer(cost={"total": 4e6}, cacheRead=-1)})
        file = tmp_path / "s.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows[:2]))
        assert (await import_file(store, file, "pi", finish=True)).sessions[0].oddities == ()
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        report = await import_file(store, file, "pi", finish=True)
        (session,) = report.sessions
        assert [odd.partition(" usage")[0] for odd in session.oddities] == ["entry 'd':"]
        assert report.to_json()["sessions"] == [session.to_json()]
        assert session.to_json()["oddities"] == [*session.oddities]
        # What the reader has told of the row is not told again.
        assert len(report.repaired) == 2


async def test_an_imported_answer_is_kept_whatever_numbers_its_usage_has(tmp_path: Path) -> None:
    message = {
        "id": "m",
        "role": "assistant",
        "content": "ok",
        "usage": {"input_tokens": float("nan"), "output_tokens": 3},
    }
    row = {"type": "assistant", "uuid": "a", "parentUuid": None, "sessionId": "s", "message": message}
    (tmp_path / "s.jsonl").write_text(json.dumps(row) + "\n")
    async with flue_py.open(":memory:", prices=False) as store:
        report = await flue_py.import_file(store, tmp_path / "s.jsonl")
        assert any("NaN is not a JSON number; it is kept as text" in note.text for note in report.repaired)
        assert ((await store.usage()).total.output, report.skipped) == (3, ())
        assert (await store.verify()).problems == []


@inputs(
    "asked",
    [
        {"tree": True}, {"since": "x"}, {"leaf": None}, {"session": "s", "tree": True, "path": True},
        {"session": "s", "tree": 1}, {"session": 7}, {"session": ["s", 7]}, {"session": ["s"], "tree": True},
        {"group_by": "model"}, {"group_by": ["colour"]}, {"branch": "green"}, {"scope": 7}, {"model": "\0"},
        {"first_day": "2026-03-01"}, {"last_day": datetime(2026, 3, 1, tzinfo=UTC)},
    ],
)  # fmt: skip
async def test_what_is_no_question_is_refused(asked: Any) -> None:
    async with flue_py.open(":memory:") as store:
        await raises(flue_py.InvalidArgument, store.usage(**asked))


async def test_an_import_that_meets_a_call_again_goes_on_and_tells() -> None:
    async with flue_py.open(":memory:") as store:
        first = placed(NewEntry.message(answer()), "same")
        grown = placed(NewEntry.message(answer(output=9)), "same")
        await store.import_session(NewSession(id="one"), [first], leaf="same")
        conflicts: list[flue_py.CallDifference] = []
        entries = [grown, placed(NewEntry.message(answer()), "new", "same")]
        await store.import_session(NewSession(id="two"), entries, leaf="new", on_conflict=conflicts.append)
        assert [str(conflict) for conflict in conflicts] == ["call 'same': output_tokens 0 and 9"]
        await store.import_session(NewSession(id="three"), [first], leaf="same", on_conflict=conflicts.append)
        assert len(conflicts) == 1
        with pytest.raises(flue_py.InvalidArgument, match="on_conflict"):
            await store.import_session(NewSession(), [], leaf=None, on_conflict=5)  # type: ignore[arg-type]
        assert (await store.usage()).total.output == 0


def tokens(window: flue_py.UsageWindow) -> tuple[int | None, ...]:
    """Return input, output, cache reads, cache writes and all tokens of a window, as far as they are known."""
    return tuple(window.known.values())


async def test_a_window_tells_which_tokens_nobody_reported() -> None:
    async with flue_py.open(":memory:", prices=False) as store:
        session = await store.create_session()
        await session.append_message({"role": "user", "content": "q"})
        assert tokens(await session.money.aggregate_usage_since(None, told=True)) == (0, 0, 0, 0, 0)
        added = await session.append_messages([answer(cacheRead=0), answer(output=0), answer()])
        first, second, _ = added.entry_ids
        whole = await session.money.aggregate_usage_since(None, told=True)
        assert tokens(whole) == (3000, 0, 0, None, 3000)
        assert tokens(await session.money.aggregate_usage_since(first, told=True)) == (2000, 0, None, None, 2000)
        assert tokens(await session.money.aggregate_usage_since(second, told=True)) == (1000, None, None, None, 1000)
        assert tokens(await session.money.aggregate_usage_since(None, leaf=first, told=True)) == (
            1000, None, 0, None, 1000,
        )  # fmt: skip
        assert tokens(await session.money.aggregate_usage_since(session.leaf_id, told=True)) == (0, 0, 0, 0, 0)
        # What is off the path counts for nothing; a window that was not asked knows no 0.
        away = await session.money.aggregate_usage_since(second, leaf=first, told=True)
        assert (away.on_path, tokens(away)) == (False, (0, 0, 0, 0, 0))
        assert tokens(await session.money.aggregate_usage_since(None)) == (3000, None, None, None, 3000)
        diff = await session.branches.diff(leaf=first, other_leaf=second)
        assert diff.right.usage.known(diff.right.told)["cacheRead"] is None
        # A summary that sums up several calls says no more than they do.
        await session.append_compaction("s", first_kept_entry_id=first, tokens_before=1, calls=[{"input": 1}])
        assert tokens(await session.money.aggregate_usage_since(added.entry_id, told=True)) == (1, None, None, None, 1)
        report = (await store.usage(session, path=True)).total.known
        window = (await session.money.aggregate_usage_since(None, told=True)).known
        assert window == {name: report[name] for name in window}


async def test_a_window_over_what_another_session_paid_says_what_its_entries_do() -> None:
    async with flue_py.open(":memory:", prices=False) as store:
        calls = [replace(call, call_id="c") for call in NewEntry.message(answer(output=0)).calls]
        entry = replace(NewEntry.message(answer(output=0)), calls=tuple(calls))
        for name in ("one", "copy"):
            session = await store.import_session(
                NewSession(id=name), [placed(entry, f"{name}-e", None, 5)], leaf=f"{name}-e"
            )
            window = await session.money.aggregate_usage_since(None, told=True)
            assert (window.calls, tokens(window)) == (int(name == "one"), (1000, 0, None, None, 1000))
        silent = await store.create_session()
        await silent.append_message({"role": "assistant", "content": "nobody says what that took"})
        window = await silent.money.aggregate_usage_since(None, told=True)
        assert (window.calls, tokens(window)) == (0, (None,) * 5)
        # Numbers that were kept, and not counted, are not known to be 0.
        huge = [answer(output=2**62 - 5000), answer(output=2**62 - 5000)]
        uncounted, _ = (await silent.append_messages(huge)).entry_ids
        assert tokens(await silent.money.aggregate_usage_since(None, leaf=uncounted, told=True)) == (None,) * 5


async def test_the_ledger_tells_what_each_entry_cost_and_every_view_shows_it() -> None:
    async with flue_py.open(":memory:", prices=PRICES) as store:
        session = await store.create_session()
        added = await session.append_messages([{"role": "user", "content": "q"}, answer(), {**answer(), "model": "x"}])
        _, priced, unknown = added.entry_ids
        await session.money.record_call({"input": 2000}, model="m", purpose="title", outcome="failed")
        summary = await session.append_branch_summary("s", from_id=None, usage={"output": 2000, "model": "m"})
        costs = await session.money.entry_costs()
        assert {entry_id: cost.usd for entry_id, cost in costs.items()} == {
            priced: Decimal("0.001"),
            unknown: None,
            summary.entry_id: Decimal("0.004"),
        }
        text = await flue_py.transcript(session)
        assert [cost in text for cost in ("$0.001\n", "$–", "$0.004\n")] == [True, True, True]
        fork = await session.fork(at=priced)
        diff = await session.branches.diff(fork)
        assert (diff.left.cost, diff.left.cost.usd) == (flue_py.EntryCost(2, 1, 4 * 10**9), Decimal("0.004"))
        task = await session.tasks.create(task_id="t")
        await task.append_message(answer(cost={"total": 0.5}))
        page = await session.reports.html(sizes=False)
        # The failed call without an entry and the task are in the sum; the fork has paid for nothing.
        assert '"paid":[507000000000,' in page.replace(" ", "")
        assert '"paid":[507000000000,' not in (await fork.reports.html(sizes=False)).replace(" ", "")


async def test_a_merge_back_pays_for_its_summary_once() -> None:
    async with flue_py.open(":memory:", prices=PRICES) as store:
        session = await store.create_session()
        await session.append_message({"role": "user", "content": "q"})
        task = await session.tasks.create(task_id="t")
        await task.append_message(answer())
        merged = await session.branches.merge_back("done", source=task, usage={"output": 1000, "model": "m"})
        again = await session.branches.merge_back("done", source=task, usage={"output": 1000, "model": "m"})
        assert again.replayed
        await task.append_message(answer())
        calls = [{"input": 1000, "model": "m", "callId": "a"}, {"input": 1000, "callId": "b"}]
        more = await session.branches.merge_back("more", source=task, calls=calls)
        paid = (await store.usage(session, purpose="branch_summary")).total
        assert (paid.calls, paid.unpriced_calls, paid.cost) == (3, 1, Decimal("0.003"))
        assert (await session.money.entry_costs()).keys() == {merged.entry_id, more.entry_id}
        assert (await session.money.aggregate_usage_since(None)).usage.total_tokens == 0
        odd = await session.branches.merge_back("odd", source=task, usage={"input": -1})
        assert odd.entry_id == session.leaf_id
