"""The contract: what calls have used and cost: on paths, in the ledger, by entry."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from flue_py.core.context import EntryCost, copy_of
from flue_py.core.entries import NewEntry, to_microseconds
from flue_py.core.json import JsonObject, JsonValue
from flue_py.core.ledger import DIMENSIONS, BranchState, CallId, Dimension, LedgerQuery, UsageReport, UsageRow
from flue_py.core.sessions import STORED, NewSession
from flue_py.core.usage import MAX_AMOUNT, Cost, Paid, PaidCall, Usage, read_call
from flue_py.db.backend import Backend
from flue_py.errors import CallConflict, EntryNotFound, InvalidEntry, SessionNotFound
from tests.checks import check_window, raises, refusal, refused, unchanged
from tests.samples import (
    UNKNOWN,
    add,
    assistant,
    compaction,
    new_session,
    path_ids,
    path_of,
    placed,
    session_info,
    user,
)
from tests.tables import inputs
from tests.values import existing

CENT = 10**10
"""One cent in picodollars."""


def called(call_id: str | None, provider: str = "p", tokens: int = 5) -> JsonObject:
    """Return the usage of one paid call, as the calls of a compaction are reported."""
    call: JsonObject = {"input": tokens, "totalTokens": tokens, "cost": {"total": 0.01}, "provider": provider}
    return call if call_id is None else {**call, "callId": call_id}


def compacted(first_kept: str, *calls: JsonObject) -> NewEntry:
    """Return a compaction made by these paid calls."""
    return NewEntry.compaction("so far", first_kept_entry_id=first_kept, tokens_before=9, calls=calls)


def answer(**usage: JsonValue) -> NewEntry:
    """Return an assistant message with this usage, and no cost unless it is given."""
    return NewEntry.message({"role": "assistant", "content": [], "provider": "p", "model": "m", "usage": {**usage}})


def call(call_id: str | None = "c", purpose: str = "title", /, **usage: JsonValue) -> PaidCall:
    """Return a paid call without an entry; five tokens and a cent, unless it says otherwise."""
    reported: JsonObject = {"input": 5, "cost": {"total": 0.01}, "callId": call_id, **usage}
    return read_call(reported, "usage", purpose)


async def ask(backend: Backend, session_id: str | None = None, *group_by: Dimension, **asked: object) -> UsageReport:
    """Return what the ledger answers."""
    return await backend.read_ledger(LedgerQuery(session_id, group_by=group_by, **asked))  # type: ignore[arg-type]


async def spent(backend: Backend, session_id: str | None = None, **asked: object) -> tuple[int, int]:
    """Return how many calls there were, and what they cost in cents."""
    total = (await ask(backend, session_id, **asked)).total
    return total.calls, total.picodollars // CENT


def by(report: UsageReport, name: Dimension) -> dict[object, int]:
    """Return how many calls each value of a group has."""
    return {row.group[name]: row.calls for row in report.rows}


async def told(backend: Backend) -> tuple[UsageReport, UsageReport]:
    """Return all that the ledger tells of every call, but for where its entry is now."""
    whole: tuple[Dimension, ...] = tuple(name for name in DIMENSIONS if name != "branch")
    return await ask(backend), await ask(backend, None, *whole)


async def _branches(backend: Backend, session_id: str) -> dict[object, int]:
    branches = by(await ask(backend, session_id, "branch"), "branch")
    states: tuple[BranchState, ...] = ("active", "abandoned", "gone", "alone")
    for state in states:
        assert await spent(backend, session_id, branch=state) >= (branches.get(state, 0), 0)
    return branches


def _summed(first_kept: str, *calls: PaidCall) -> NewEntry:
    """Return a compaction that was made by these calls."""
    new = NewEntry.compaction("so far", first_kept_entry_id=first_kept, tokens_before=9)
    return replace(new, calls=tuple(replace(each, purpose="compaction") for each in calls))


class UsageContract:
    """Usage is exact, and the ledger counts each paid call once."""

    async def test_all_ten_numbers_are_summed_over_the_path(self, backend: Backend) -> None:
        usage: JsonObject = {
            "input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4, "totalTokens": 50,
            "cost": {"input": 0.1, "output": 0.2, "cacheRead": 0.3, "cacheWrite": 0.4, "total": 5.5},
        }  # fmt: skip
        message = NewEntry.message({"role": "assistant", "content": [], "usage": usage})
        session = await new_session(backend, user(), message, user(), message)
        window = await backend.read_usage(session.id, None)
        cost = Cost(2 * 10**11, 4 * 10**11, 6 * 10**11, 8 * 10**11, 11 * 10**12)
        assert window.usage == Usage(2, 4, 6, 8, 100, cost)
        assert (window.leaf, window.since, window.on_path) == (session.leaf_id, None, True)

    async def test_a_window_is_what_follows_its_anchor(self, backend: Backend) -> None:
        session = await new_session(backend)
        ids = await add(backend, session.id, *(assistant(tokens=10**n) for n in range(4)))
        for leaf_number, leaf in enumerate(ids):
            for number, anchor in enumerate(ids):
                window = await backend.read_usage(session.id, anchor, leaf=leaf)
                expected = sum(10**n for n in range(number + 1, leaf_number + 1))
                assert (window.usage.total_tokens, window.on_path) == (expected, number <= leaf_number)
                assert (window.leaf, window.since) == (leaf, anchor)

    async def test_a_window_from_off_the_path_is_zero_and_says_so(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, second = await add(backend, session.id, assistant(tokens=1), assistant(tokens=2))
        await backend.move(session.id, first)
        (sibling,) = await add(backend, session.id, assistant(tokens=4))
        for anchor, leaf in ((second, sibling), (sibling, second), (UNKNOWN, second), (second, first), (first, None)):
            window = await backend.read_usage(session.id, anchor, leaf=leaf)
            assert (window.usage, window.on_path) == (Usage(), False)
        nothing = await backend.read_usage(session.id, None, leaf=None)
        assert (nothing.usage, nothing.on_path, nothing.leaf) == (Usage(), True, None)

    async def test_each_branch_counts_its_own_path(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, second = await add(backend, session.id, assistant(tokens=1), assistant(tokens=2))
        await backend.move(session.id, first)
        (sibling,) = await add(backend, session.id, assistant(tokens=4))
        for leaf, expected in ((first, 1), (second, 3), (sibling, 5)):
            assert (await backend.read_usage(session.id, None, leaf=leaf)).usage.total_tokens == expected

    async def test_only_assistant_messages_and_compactions_count(self, backend: Backend) -> None:
        usage: JsonObject = {"input": 99, "totalTokens": 99}
        session = await new_session(backend, user(usage=usage), assistant(tokens=3))
        (first, _) = await path_ids(backend, session.id)
        result = NewEntry.message(
            {"role": "toolResult", "toolCallId": "t", "toolName": "x", "content": [], "isError": False, "usage": usage}
        )
        await add(backend, session.id, result, compaction(first, tokens=7, dollars=0.25))
        window = await backend.read_usage(session.id, None)
        assert (window.usage.total_tokens, window.usage.cost.usd) == (10, Decimal("0.25"))
        info = await session_info(backend, session.id)
        assert (info.spent_tokens, info.spent) == (10, Decimal("0.25"))

    async def test_money_is_exact(self, backend: Backend) -> None:
        session = await new_session(backend, *(assistant(dollars=0.1) for _ in range(10)), assistant(dollars=0.2))
        window = await backend.read_usage(session.id, None)
        assert window.usage.cost.total == 120 * CENT
        tiny = await new_session(backend, assistant(dollars=5e-13), assistant(dollars=4e-13), assistant(dollars=1e-12))
        assert (await backend.read_usage(tiny.id, None)).usage.cost.total == 2
        assert (await session_info(backend, tiny.id)).spent_picodollars == 2

    async def test_large_amounts_are_exact(self, backend: Backend) -> None:
        session = await new_session(backend, assistant(tokens=2**53 + 1), assistant(tokens=2**60 + 1))
        assert (await backend.read_usage(session.id, None)).usage.total_tokens == 2**53 + 2**60 + 2
        assert (await session_info(backend, session.id)).spent_tokens == 2**53 + 2**60 + 2

    async def test_a_total_beyond_the_stored_range_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, user(), assistant(tokens=MAX_AMOUNT))
        await refusal(backend, InvalidEntry, backend.append(session.id, [user(), assistant(tokens=1)]))
        await backend.move(session.id, None)
        await refusal(backend, InvalidEntry, backend.append(session.id, [assistant(tokens=MAX_AMOUNT)]))

    async def test_an_entry_that_is_not_counted_adds_nothing(self, backend: Backend) -> None:
        copied = replace(assistant(tokens=9, dollars=0.5), counted=False)
        session = await new_session(backend, assistant(tokens=1), copied, assistant(tokens=2))
        assert (await backend.read_usage(session.id, None)).usage.total_tokens == 3
        info = await session_info(backend, session.id)
        assert (info.spent_tokens, info.spent_picodollars, info.entry_count) == (3, 0, 3)
        assert (await backend.info()).ledger_rows == 2

    # -- forks ----------------------------------------------------------------------------------------------------

    async def test_forks_count_nothing_twice(self, backend: Backend) -> None:
        session = await new_session(backend, assistant(tokens=1, dollars=0.01), assistant(tokens=2, dollars=0.02))
        fork = await backend.fork(session.id, STORED, NewSession())
        (own,) = await add(backend, fork.id, assistant(tokens=4, dollars=0.04))
        assert (await backend.read_usage(fork.id, None)).usage.total_tokens == 7
        assert (await backend.read_usage(fork.id, session.leaf_id)).usage.total_tokens == 4
        assert (await backend.read_usage(fork.id, session.leaf_id, leaf=own)).usage.cost.total == 4 * CENT
        mine, theirs = await session_info(backend, session.id), await session_info(backend, fork.id)
        assert (mine.spent_tokens, mine.spent_picodollars) == (3, 3 * CENT)
        assert (theirs.spent_tokens, theirs.spent_picodollars) == (4, 4 * CENT)
        assert (await backend.info()).ledger_rows == 3

    async def test_undo_and_moves_change_the_window_and_not_the_bill(self, backend: Backend) -> None:
        session = await new_session(backend, assistant(tokens=1))
        await add(backend, session.id, assistant(tokens=2))
        await backend.undo(session.id)
        assert (await backend.read_usage(session.id, None)).usage.total_tokens == 1
        assert (await session_info(backend, session.id)).spent_tokens == 3
        await backend.append(session.id, [assistant(tokens=4)], expected=None, on_conflict="branch")
        assert (await backend.read_usage(session.id, None)).usage.total_tokens == 1
        assert (await session_info(backend, session.id)).spent_tokens == 7

    # -- the ledger -----------------------------------------------------------------------------------------------

    async def test_a_message_without_usage_makes_no_ledger_row(self, backend: Backend) -> None:
        await new_session(backend, user(), NewEntry.message({"role": "assistant", "content": []}))
        assert (await backend.info()).ledger_rows == 0

    async def test_the_first_report_of_a_call_owns_it(self, backend: Backend) -> None:
        one = await new_session(backend, user())
        two = await new_session(backend, user())
        for session in (one, two, one):
            assert session.leaf_id is not None
            await add(backend, session.id, compacted(session.leaf_id, called("call-1"), called(f"by-{session.id}")))
        assert (await session_info(backend, one.id)).spent_tokens == 10
        assert (await session_info(backend, two.id)).spent_tokens == 5
        assert (await backend.info()).ledger_rows == 3
        assert (await backend.read_usage(one.id, None)).usage.total_tokens == 20

    async def test_a_call_reported_twice_in_one_batch_counts_once(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        assert session.leaf_id is not None
        twice = compacted(session.leaf_id, called("a"), called("a"))
        await add(backend, session.id, twice, compacted(session.leaf_id, called("a")))
        assert (await session_info(backend, session.id)).spent_tokens == 5
        assert (await backend.info()).ledger_rows == 1

    async def test_calls_are_told_apart_by_scope_and_provider(self, backend: Backend) -> None:
        for scope in ("a", "b"):
            session = await new_session(backend, user(), scope=scope)
            assert session.leaf_id is not None
            await add(backend, session.id, compacted(session.leaf_id, called("1", "p"), called("1", "q")))
            assert (await session_info(backend, session.id)).spent_tokens == 10
        assert (await backend.info()).ledger_rows == 4

    async def test_several_calls_of_one_entry_without_ids_are_several_rows(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        assert session.leaf_id is not None
        calls = [called(None), called(None), called("named"), called(None)]
        await add(backend, session.id, compacted(session.leaf_id, *calls))
        assert (await session_info(backend, session.id)).spent_tokens == 20
        assert (await backend.info()).ledger_rows == 4

    async def test_a_call_without_an_id_is_known_by_its_entry(self, backend: Backend) -> None:
        for spent in (5, 0):
            session = await new_session(backend, placed(assistant(tokens=5), "same"))
            assert session.spent_tokens == spent
        assert (await backend.info()).ledger_rows == 1
        elsewhere = await new_session(backend, placed(assistant(tokens=5), "same"), scope="other")
        assert elsewhere.spent_tokens == 5

    async def test_where_no_total_was_reported_the_kinds_of_tokens_are_added(self, backend: Backend) -> None:
        usage: JsonObject = {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4}
        session = await new_session(backend, NewEntry.message({"role": "assistant", "content": [], "usage": usage}))
        assert session.spent_tokens == 10
        assert (await backend.read_usage(session.id, None)).usage.total_tokens == 10

    async def test_an_append_that_is_refused_reaches_neither_totals_nor_ledger(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        async with refused(backend, InvalidEntry):
            await backend.append(session.id, [assistant(tokens=5), placed(user(), "x"), placed(user(), "x")])

    @inputs("batches", [1, 50])
    async def test_totals_do_not_depend_on_how_entries_were_batched(self, backend: Backend, batches: int) -> None:
        entries = [assistant(tokens=n, dollars=n / 1000) for n in range(50)]
        session = await new_session(backend)
        for number in range(batches):
            await add(backend, session.id, *entries[number::batches])
        window = await backend.read_usage(session.id, None)
        assert (window.usage.total_tokens, window.usage.cost.usd) == (1225, Decimal("1.225"))


class LedgerContract:
    """What was paid. The ledger counts each call once, knows what it does not know, and never forgets."""

    # -- rows -----------------------------------------------------------------------------------------------------

    async def test_kinds_of_tokens_are_kept_apart(self, backend: Backend) -> None:
        usage: JsonObject = {
            "input": 1,
            "output": 20,
            "cacheRead": 3,
            "cacheWrite": 40,
            "cacheWrite1h": 30,
            "reasoning": 15,
        }
        session = await new_session(backend, answer(**{**usage, "totalTokens": 64}))
        (row,) = (await ask(backend, session.id, "model")).rows
        assert row == UsageRow({"model": "m"}, 1, 1, 1, 20, 3, 10, 30, 15, 64, 0, 0, 127)
        assert (row.cache_write, row.cost) == (40, None)

    async def test_what_nobody_reported_is_unknown_and_a_reported_zero_is_none(self, backend: Backend) -> None:
        session = await new_session(backend, answer(input=3, output=0), answer(prompt_tokens=9, completion_tokens=2))
        known = (await ask(backend, session.id)).total.known
        assert (known["input"], known["output"], known["totalTokens"]) == (12, 2, 14)
        assert {name for name, count in known.items() if count is None} == {
            "cacheRead", "cacheWrite", "cacheWrite5m", "cacheWrite1h", "reasoning",
        }  # fmt: skip
        nothing = await new_session(backend, answer(input=0, cacheWrite=0, reasoning=0), answer(odd=1))
        row = (await ask(backend, nothing.id)).total
        assert {name for name, count in row.known.items() if count == 0} == {
            "input", "cacheWrite", "cacheWrite5m", "reasoning", "totalTokens",
        }  # fmt: skip
        assert row.known == {**row.known, "output": None, "cacheRead": None, "cacheWrite1h": None}
        assert row.to_json()["cacheRead"] is None

    async def test_an_unreported_cost_is_unknown_and_a_reported_zero_is_none(self, backend: Backend) -> None:
        free, unknown = answer(input=1, cost={"total": 0}), answer(input=2)
        session = await new_session(backend, free, unknown, answer(input=4, cost=None), answer(input=8, cost={}))
        assert (session.unpriced_calls, session.spent_picodollars, session.spent_tokens) == (3, 0, 15)
        total = (await ask(backend, session.id)).total
        # Known are 0 dollars of one call of four, which is no sum to tell.
        assert (total.calls, total.unpriced_calls, total.cost) == (4, 3, None)
        assert (session.known_spent, session.spent) == (None, Decimal(0))
        by_source = await ask(backend, session.id, "price_source")
        assert by(by_source, "price_source") == {None: 3, "reported": 1}
        assert [row.cost for row in by_source.rows] == [None, Decimal(0)]

    async def test_usage_in_which_nothing_is_recognised_is_unknown_and_not_nothing(self, backend: Backend) -> None:
        odd, zeros = answer(surely=7), answer(input=0, output=0)
        session = await new_session(backend, odd, zeros, answer(input=5), answer())
        assert (session.unknown_calls, session.unpriced_calls, session.spent_tokens) == (2, 4, 5)
        await backend.record_call(session.id, read_call({"surely": 7, "callId": "c"}, "usage", "title"))
        assert (await session_info(backend, session.id)).unknown_calls == 3
        report = await ask(backend, session.id, "purpose")
        assert [(row.calls, row.unknown_calls, row.is_unknown) for row in report.rows] == [(1, 1, True), (4, 2, False)]
        title, turns = (row.to_json() for row in report.rows)
        assert (title["unknownCalls"], title["totalTokens"], title["input"], title["costUsd"]) == (1, None, None, None)
        assert (turns["unknownCalls"], turns["totalTokens"], report.total.unknown_calls) == (2, 5, 3)

    async def test_a_window_says_what_the_ledger_has_of_the_same_calls(self, backend: Backend) -> None:
        priced = replace(call("priced", "turn"), cost=3 * CENT, price_source="book")
        calls: list[JsonObject] = [
            {"input": 1, "callId": "one"},
            {"input": 2, "cost": {"total": 0.02}, "callId": "two"},
        ]
        session = await new_session(backend, user(), replace(answer(input=5), calls=(priced,)), answer(surely=7))
        asked = (await path_ids(backend, session.id))[0]
        compaction = NewEntry.compaction("so far", first_kept_entry_id=asked, tokens_before=9, calls=calls)
        summary = NewEntry.branch_summary("left", from_id=None, calls=[{"input": 4, "callId": "four"}])
        middle = (await add(backend, session.id, compaction, summary))[0]
        window = await backend.read_usage(session.id, asked)
        assert window.paid == Paid(5, 3, 1, 12, 5 * CENT)
        assert (window.cost, window.usage.total_tokens, window.usage.cost.total) == (Decimal("0.05"), 8, 5 * CENT)
        # What another entry has reported adds nothing, and neither does a second report in one batch.
        again, new = replace(answer(input=5), calls=(priced,)), replace(answer(input=9), calls=(call("new", "turn"),))
        fork = await backend.fork(session.id, STORED, NewSession())
        ids = [*await add(backend, fork.id, again, new), *await add(backend, fork.id, new, user())]
        assert (await backend.read_usage(fork.id, None)).paid == Paid(6, 3, 1, 17, 6 * CENT)
        # A later report takes the place of a call below entries that are there, of the fork's too.
        await backend.record_call(session.id, replace(call("more", "turn", input=8), replaces=("priced",)))
        assert (await backend.read_usage(fork.id, None)).paid == Paid(6, 3, 1, 20, 4 * CENT)
        await add(backend, fork.id, answer(input=1))
        await backend.delete_tree(session.id)
        for since in (None, asked, middle, *ids):
            await check_window(backend, fork.id, since)
        assert (await backend.verify()).problems == []

    async def test_an_id_that_is_used_again_brings_no_calls_of_its_deleted_entry(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        other = await backend.fork(session.id, STORED, NewSession())
        await backend.import_entries(session.id, [placed(answer(input=5), "x", session.leaf_id)], leaf="x")
        await backend.delete_tree(session.id)
        later = replace(answer(input=7), calls=(call("later"),))
        await backend.import_entries(other.id, [placed(later, "x", session.leaf_id)], leaf="x")
        assert (await backend.read_usage(other.id, None)).paid == Paid(1, 0, 0, 5, CENT)
        await check_window(backend, other.id, None)
        assert by(await ask(backend, None, "branch"), "branch") == {"gone": 1, "active": 1}
        assert (await backend.verify()).problems == []

    async def test_a_cost_in_parts_is_their_sum(self, backend: Backend) -> None:
        session = await new_session(backend, answer(cost={"input": 0.01, "cacheRead": 0.02}))
        assert (session.spent_picodollars, session.unpriced_calls) == (3 * CENT, 0)

    async def test_a_branch_summary_pays_for_its_calls_and_adds_nothing_to_the_path(self, backend: Backend) -> None:
        calls = [{"input": 5, "cost": {"total": 0.01}}, {"input": 7, "cost": {"total": 0.02}}]
        summary = NewEntry.branch_summary("left", from_id=None, calls=calls)
        session = await new_session(backend, assistant(tokens=1), summary)
        assert (await backend.read_usage(session.id, None)).usage.total_tokens == 1
        assert await spent(backend, session.id, purpose="branch_summary") == (2, 3)
        assert session.spent_tokens == 13

    async def test_a_failed_answer_says_so(self, backend: Backend) -> None:
        answers = [replace(assistant(stopReason=reason)) for reason in ("stop", "error", "aborted")]
        session = await new_session(backend, *answers)
        assert by(await ask(backend, session.id, "outcome"), "outcome") == {None: 1, "aborted": 1, "failed": 1}

    # -- calls without an entry -------------------------------------------------------------------------------------

    async def test_a_call_alone_is_paid_and_counts_a_revision(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        recorded = await backend.record_call(session.id, replace(call(), outcome="failed"))
        after = await session_info(backend, session.id)
        assert (recorded.is_new, recorded.picodollars, recorded.price_source) == (True, CENT, "reported")
        assert (recorded.revision, after.revision, after.leaf_id) == (2, 2, session.leaf_id)
        assert (after.spent_tokens, after.spent_picodollars, after.entry_count) == (5, CENT, 1)
        assert await spent(backend, session.id, purpose="title", outcome="failed", branch="alone") == (1, 1)
        assert await backend.undo(session.id) is not None

    async def test_a_call_recorded_twice_is_paid_once(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        await backend.record_call(session.id, call())
        async with unchanged(backend):
            again = await backend.record_call(session.id, replace(call(), cost=None, price_source="other"))
        assert (again.is_new, again.picodollars, again.call_id) == (False, CENT, "c")

    async def test_calls_without_an_id_are_so_many_calls(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        made = {(await backend.record_call(session.id, call(None))).call_id for _ in range(3)}
        assert (len(made), await spent(backend, session.id)) == (3, (3, 3))

    async def test_a_call_of_a_session_that_is_not_there_is_refused(self, backend: Backend) -> None:
        await refusal(backend, SessionNotFound, backend.record_call(UNKNOWN, call()))

    # -- a call id used twice ---------------------------------------------------------------------------------------

    @inputs("usage", [{"input": 6}, {"reasoning": 0, "output": 1}, {"cost": {"total": 0.02}}])
    async def test_other_numbers_under_the_same_id_are_refused(self, backend: Backend, usage: JsonObject) -> None:
        session = await new_session(backend, user())
        other = await new_session(backend, user())
        await backend.record_call(session.id, call())
        assert other.leaf_id is not None
        twice = [_summed(other.leaf_id, call()), _summed(other.leaf_id, call(**usage))]
        for attempt in (
            lambda: backend.record_call(other.id, call(**usage)),
            lambda: backend.append(other.id, [user(), twice[1]]),
            lambda: backend.append(other.id, twice, idempotency_key="k"),
        ):
            caught = await refusal(backend, CallConflict, attempt())
            assert (caught.value.call_id, len(caught.value.differences) > 0) == ("c", True)
        assert await spent(backend) == (1, 1)

    async def test_other_numbers_within_one_batch_are_refused(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        assert session.leaf_id is not None
        async with refused(backend, CallConflict):
            await backend.append(session.id, [_summed(session.leaf_id, call(), call(input=6))])

    async def test_a_computed_cost_may_differ_the_second_time(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        priced = replace(call(cost=None), cost=7, price_source="prices of May")
        await backend.record_call(session.id, priced)
        again = await backend.record_call(session.id, replace(priced, cost=8, price_source="prices of June"))
        assert (again.is_new, again.picodollars, again.price_source) == (False, 7, "prices of May")

    async def test_an_import_keeps_the_first_report_and_tells_of_the_other(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        await backend.record_call(session.id, call())
        grown = replace(answer(input=9), calls=(call(input=9),))
        result = await backend.import_entries(session.id, [placed(grown, "g"), placed(user(), "h", "g")], leaf="h")
        (conflict,) = result.call_conflicts
        assert (conflict.call_id, len(conflict.differences)) == ("c", 1)
        assert await spent(backend) == (1, 1)
        found = await backend.find_calls("", [CallId("", "c"), CallId("", "d"), CallId("p", "c")])
        assert [(known.call_id, known.input_tokens) for known in found] == [("c", 5)]
        await backend.import_session(NewSession(), [placed(grown, "g")], leaf="g")
        assert await spent(backend) == (1, 1)

    async def test_an_import_takes_the_place_of_what_its_session_reported_of_a_call(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        other = await new_session(backend, user())
        await backend.record_call(session.id, call("part"))
        await backend.record_call(other.id, call("theirs"))
        whole = replace(call("whole", input=9), replaces=("part", "theirs", "nobody's"))
        await backend.import_entries(
            session.id, [placed(replace(answer(input=9), calls=(whole,)), "g", session.leaf_id)], leaf="g"
        )
        (paid,) = await backend.calls_of_entry(session.id, "g")
        assert (paid.call_id, paid.input_tokens, paid.entry_id) == ("whole", 9, "g")
        assert await backend.calls_of_entry(other.id, "g") == await backend.calls_of_entry(session.id, "x") == []
        assert {row.call_id for row in await backend.find_calls("", [CallId("", "part"), CallId("", "theirs")])} == {
            "theirs"
        }
        assert await spent(backend) == (2, 2)
        after = await session_info(backend, session.id)
        assert (after.spent_tokens, after.spent_picodollars) == (call(input=9).usage.total_tokens or 10, CENT)

    async def test_a_later_report_of_a_call_keeps_the_entry_of_the_one_it_replaces(self, backend: Backend) -> None:
        session = await new_session(backend, user(), replace(answer(input=5), calls=(call(),)))
        more = replace(call(input=9), replaces=("c",))
        first = await backend.record_call(session.id, more)
        again = await backend.record_call(session.id, more)
        assert (first.is_new, again.is_new, again.revision) == (True, False, first.revision)
        assert session.leaf_id is not None
        (paid,) = await backend.calls_of_entry(session.id, session.leaf_id)
        assert paid.input_tokens == 9
        other = await new_session(backend, user())
        await refusal(backend, CallConflict, backend.record_call(other.id, replace(call(input=10), replaces=("c",))))
        assert await spent(backend) == (1, 1)

    async def test_calls_are_found_by_scope_provider_and_id(self, backend: Backend) -> None:
        here, there = await new_session(backend, scope="here"), await new_session(backend, scope="there")
        for session in (here, there):
            for provider, call_id in (("p", "c"), ("q", "c"), ("p", "d")):
                await backend.record_call(session.id, replace(call(call_id), provider=provider))
        asked = [CallId("p", "c"), CallId("q", "d"), CallId("p", UNKNOWN)]
        (found,) = await backend.find_calls("here", asked)
        assert (found.scope, found.provider, found.call_id) == ("here", "p", "c")
        assert await backend.find_calls("elsewhere", asked) == []
        assert await backend.find_calls("here", []) == []

    async def test_many_calls_at_once_are_each_counted_once(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        await backend.record_call(session.id, call("c3"))
        await backend.record_call(session.id, call("c4", input=6))
        # The third is known, the fourth has other numbers, and the fifth comes twice.
        names = [f"c{number}" for number in (*range(12), 5)]
        calls = [replace(answer(input=5), calls=(call(name),)) for name in names]
        entries = [placed(new, f"e{n}", f"e{n - 1}" if n else None) for n, new in enumerate(calls)]
        result = await backend.import_entries(session.id, entries, leaf="e12")
        assert [conflict.call_id for conflict in result.call_conflicts] == ["c4"]
        after = await session_info(backend, session.id)
        assert (after.spent_tokens, after.spent_picodollars) == (12 * 5 + 1, 12 * CENT)
        assert await spent(backend, session.id, purpose="title") == (12, 12)
        assert await spent(backend) == (12, 12)

    # -- a call that goes by its entry ------------------------------------------------------------------------------

    @pytest.mark.parametrize("is_deleted", [False, True], ids=["there", "deleted"])
    @pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
    async def test_what_was_paid_with_an_entry_is_known_by_its_id(
        self, backend: Backend, *, is_deleted: bool, many: bool
    ) -> None:
        answers = [answer(input=5, cost={"total": 0.01}) for _ in range(12 if many else 1)]
        first = await new_session(backend, user(), *answers)
        ids = (await path_ids(backend, first.id))[1:]
        other = await new_session(backend, user())
        if is_deleted:
            await backend.delete_tree(first.id)
        found = await backend.find_calls("", [CallId("p", name) for name in (*ids, UNKNOWN)])
        assert {(row.call_id, row.entry_id, row.input_tokens) for row in found} == {(name, name, 5) for name in ids}
        assert await backend.find_calls("", [CallId("q", name) for name in ids]) == []
        assert await backend.find_calls("elsewhere", [CallId("p", name) for name in ids]) == []
        again = [placed(new, name) for new, name in zip(answers, ids, strict=True)]
        await backend.import_entries(other.id, again, leaf=ids[-1])
        after = await session_info(backend, other.id)
        assert (after.spent_tokens, after.spent_picodollars) == (0, 0)
        assert await spent(backend) == (len(ids), len(ids))
        assert await spent(backend, other.id) == (0, 0)

    async def test_a_later_report_under_an_entrys_id_is_the_same_call(self, backend: Backend) -> None:
        session = await new_session(backend, user(), answer(input=5, cost={"total": 0.01}))
        other = await new_session(backend, user())
        entry_id = existing(session.leaf_id)
        same = replace(call(entry_id), provider="p", model="m")
        assert not (await backend.record_call(other.id, same)).is_new
        async with refused(backend, CallConflict):
            await backend.record_call(other.id, replace(call(entry_id, input=6), provider="p"))
        assert (await backend.record_call(other.id, replace(same, provider="q"))).is_new
        assert not (await backend.record_call(session.id, same)).is_new
        assert await spent(backend) == (2, 2)

    async def test_what_takes_the_place_of_a_call_may_name_it_by_its_entry(self, backend: Backend) -> None:
        session = await new_session(backend, user(), answer(input=5, cost={"total": 0.01}))
        entry_id = existing(session.leaf_id)
        more = replace(call("whole", input=9), provider="p", replaces=(entry_id,))
        assert (await backend.record_call(session.id, more)).is_new
        (paid,) = await backend.calls_of_entry(session.id, entry_id)
        assert (paid.call_id, paid.input_tokens) == ("whole", 9)
        assert await backend.find_calls("", [CallId("p", entry_id)]) == []
        assert await spent(backend) == (1, 1)

    async def test_an_append_with_an_id_of_another_entry_pays_nothing(self, backend: Backend) -> None:
        session = await new_session(backend, user(), answer(input=5, cost={"total": 0.01}))
        other = await new_session(backend, user())
        assert session.leaf_id is not None
        known = replace(call(session.leaf_id), provider="p")
        await backend.append(other.id, [replace(answer(input=5, cost={"total": 0.01}), calls=(known,))])
        assert await spent(backend) == (1, 1)
        assert (await session_info(backend, other.id)).spent_tokens == 0

    # -- refusals ---------------------------------------------------------------------------------------------------

    async def test_spending_beyond_the_stored_range_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        await backend.record_call(session.id, replace(call("a"), cost=MAX_AMOUNT))
        await refusal(backend, InvalidEntry, backend.record_call(session.id, replace(call("b"), cost=1)))
        other = await new_session(backend, user())
        for number in range(3):
            more = await new_session(backend, user())
            await backend.record_call(more.id, replace(call(f"n{number}"), cost=MAX_AMOUNT))
        assert (await ask(backend)).total.picodollars == 4 * MAX_AMOUNT
        assert (await ask(backend, other.id)).total == UsageRow()

    # -- questions --------------------------------------------------------------------------------------------------

    async def test_it_answers_by_session_tree_and_tasks(self, backend: Backend) -> None:
        root = await new_session(backend, assistant(dollars=0.01))
        fork = await backend.fork(root.id, STORED, NewSession())
        await add(backend, fork.id, assistant(dollars=0.02))
        task = await backend.create_task(root.id, "t", NewSession())
        await add(backend, task.id, assistant(dollars=0.04))
        deeper = await backend.create_task(task.id, "t", NewSession())
        await add(backend, deeper.id, assistant(dollars=0.08))
        alone = await new_session(backend, assistant(dollars=0.16))
        assert [await spent(backend, each.id) for each in (root, fork, task)] == [(1, 1), (1, 2), (1, 4)]
        assert await spent(backend, root.id, tree=True) == await spent(backend, fork.id, tree=True) == (2, 3)
        assert await spent(backend, root.id, tasks=True) == (3, 13)
        assert await spent(backend, root.id, tree=True, tasks=True) == (4, 15)
        assert await spent(backend) == (5, 31)
        sessions = [each.id for each in (alone, deeper, fork, root, task)]
        assert by(await ask(backend, None, "session"), "session") == dict.fromkeys(sessions, 1)
        asked = (fork.id, alone.id, UNKNOWN, "\0", fork.id)
        assert await spent(backend, session_ids=asked) == (2, 18)
        assert by(await ask(backend, None, "session", session_ids=asked), "session") == {alone.id: 1, fork.id: 1}
        assert await spent(backend, session_ids=()) == (0, 0)

    async def test_it_answers_by_project_and_agent(self, backend: Backend) -> None:
        named = replace(
            assistant(dollars=0.01), calls=tuple(replace(c, agent="Dev") for c in assistant(dollars=0.01).calls)
        )
        folders = ("/w/app", "/w/app/sub", "/w/apple", "/w/app-2", "", None)
        made = [await new_session(backend, named, cwd=folder) for folder in folders]
        await add(backend, made[0].id, assistant(dollars=0.02))
        fork = await backend.fork(made[0].id, STORED, NewSession(cwd="/w/fork"))
        await backend.record_call(fork.id, call())
        assert by(await ask(backend, None, "project"), "project") == {
            "/w/app": 2, "/w/app/sub": 1, "/w/apple": 1, "/w/app-2": 1, "/w/fork": 1, None: 2,
        }  # fmt: skip
        assert by(await ask(backend, None, "agent"), "agent") == {"Dev": 6, None: 2}
        for project, calls in (("/w/app", 3), ("/w/app/sub", 1), ("/w", 6), ("/", 6), ("/w/ap", 0), ("\0", 0)):
            assert (await ask(backend, project=project)).total.calls == calls, project
        assert await spent(backend, made[0].id, project="/w/app", agent="Dev") == (1, 1)
        assert await spent(backend, fork.id, on_path=True, project="/w/app") == (2, 3)
        assert await spent(backend, project="/w", branch="alone") == (1, 1)
        before = await ask(backend, None, "project", "agent")
        for session in (fork, *made):
            await backend.delete_tree(session.id)
        assert await ask(backend, None, "project", "agent") == before

    async def test_it_answers_for_a_path_and_a_window_of_it(self, backend: Backend) -> None:
        session = await new_session(backend)
        ids = await add(backend, session.id, *(assistant(dollars=0.01 * 2**n) for n in range(3)))
        await backend.move(session.id, ids[0])
        (left,) = await add(backend, session.id, assistant(dollars=0.08))
        fork = await backend.fork(session.id, ids[1], NewSession())
        (own,) = await add(backend, fork.id, assistant(dollars=0.16))
        await backend.record_call(session.id, call())
        assert await spent(backend, session.id, on_path=True) == (2, 9)
        assert await spent(backend, session.id, on_path=True, leaf=ids[2]) == (3, 7)
        assert await spent(backend, session.id, on_path=True, leaf=ids[2], since=ids[0]) == (2, 6)
        assert await spent(backend, session.id, on_path=True, leaf=None) == (0, 0)
        assert await spent(backend, fork.id, on_path=True) == (3, 19)
        assert await spent(backend, fork.id, on_path=True, since=ids[1]) == (1, 16)
        off = await ask(backend, session.id, "model", on_path=True, since=ids[1])
        assert (off.rows, off.total, off.on_path) == ((), UsageRow(), False)
        await raises(EntryNotFound, spent(backend, session.id, on_path=True, leaf=own))
        assert left is not None

    async def test_it_answers_by_model_purpose_scope_provider_day_week_and_month(self, backend: Backend) -> None:
        for number, scope in enumerate(("", "x", "x")):
            session = await new_session(backend, user(), scope=scope)
            moment = datetime(2026, 3, 1 + number, 23, 59, 59, 999_999, tzinfo=UTC)
            made = replace(call(f"c{number}"), model=f"m{number}", provider="p", at_us=to_microseconds(moment))
            await backend.record_call(session.id, made)
            assert session.leaf_id is not None
            summed = replace(_summed(session.leaf_id, call(f"s{number}")), created_us=0)
            await backend.import_entries(session.id, [placed(summed, f"e{number}", session.leaf_id, -1)], leaf=None)
        days = {date(1969, 12, 31): 3, date(2026, 3, 1): 1, date(2026, 3, 2): 1, date(2026, 3, 3): 1}
        assert by(await ask(backend, None, "day"), "day") == days
        assert list(by(await ask(backend, None, "day"), "day")) == list(days)
        assert by(await ask(backend, None, "week"), "week") == {
            date(1969, 12, 29): 3, date(2026, 2, 23): 1, date(2026, 3, 2): 2,
        }  # fmt: skip
        assert by(await ask(backend, None, "month"), "month") == {"1969-12": 3, "2026-03": 3}
        monthly = await ask(backend, None, "month", "day")
        assert [row.group["month"] for row in monthly.rows] == ["1969-12", *["2026-03"] * 3]
        assert by(await ask(backend, None, "scope"), "scope") == {"": 2, "x": 4}
        berlin = ZoneInfo("Europe/Berlin")
        assert by(await ask(backend, None, "day", zone=berlin), "day") == {
            date(1970, 1, 1): 3, date(2026, 3, 2): 1, date(2026, 3, 3): 1, date(2026, 3, 4): 1,
        }  # fmt: skip
        assert by(await ask(backend, None, "month", zone=ZoneInfo("Asia/Kathmandu")), "month") == {
            "1970-01": 3, "2026-03": 3,
        }  # fmt: skip
        assert by(await ask(backend, None, "purpose"), "purpose") == {"compaction": 3, "title": 3}
        assert by(await ask(backend, None, "provider"), "provider") == {"": 3, "p": 3}
        assert by(await ask(backend, None, "model"), "model") == {"": 3, "m0": 1, "m1": 1, "m2": 1}
        assert await spent(backend, scope="x", purpose="title") == (2, 2)
        assert await spent(backend, model="m1", provider="p") == (1, 1)
        assert await spent(backend, model="m1", provider="\0") == (0, 0)
        second = to_microseconds(datetime(2026, 3, 2, tzinfo=UTC))
        assert await spent(backend, from_us=second) == (2, 2)
        last_of_first = second - 1
        assert await spent(backend, from_us=last_of_first, before_us=second) == (1, 1)
        assert await spent(backend, from_us=0, before_us=last_of_first) == (0, 0)
        assert await spent(backend, from_us=0, before_us=second) == (1, 1)

    async def test_a_block_is_five_hours_from_the_hour_of_its_first_call(self, backend: Backend) -> None:
        session = await new_session(backend)
        # The clocks go back at 03:00 in Berlin on this day.
        begin = datetime(2026, 10, 24, 20, 40, tzinfo=UTC)
        minutes = (0, 259, 260, 500, 560, 561, 3_000)
        for number, minute in enumerate(minutes):
            at = to_microseconds(begin + timedelta(minutes=minute))
            await backend.record_call(session.id, replace(call(f"c{number}"), at_us=at))
        blocks = {
            "2026-10-24T20:00+00:00": 2, "2026-10-25T01:00+00:00": 2,
            "2026-10-25T06:00+00:00": 2, "2026-10-26T22:00+00:00": 1,
        }  # fmt: skip
        assert by(await ask(backend, None, "block"), "block") == blocks
        local = await ask(backend, None, "block", "day", zone=ZoneInfo("Europe/Berlin"))
        assert [(row.group["block"], row.group["day"], row.calls) for row in local.rows] == [
            ("2026-10-24T22:00+02:00", date(2026, 10, 24), 1),
            ("2026-10-24T22:00+02:00", date(2026, 10, 25), 1),
            ("2026-10-25T02:00+01:00", date(2026, 10, 25), 2),
            ("2026-10-25T07:00+01:00", date(2026, 10, 25), 2),
            ("2026-10-26T23:00+01:00", date(2026, 10, 26), 1),
        ]
        # What came before the first day decides where its blocks begin.
        second = to_microseconds(datetime(2026, 10, 25, tzinfo=UTC))
        later = await ask(backend, None, "block", from_us=second)
        assert by(later, "block") == {**blocks, "2026-10-24T20:00+00:00": 1}
        assert later.total.calls == 6

    async def test_an_abandoned_branch_is_on_nobodys_active_path(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, left = await add(backend, session.id, assistant(dollars=0.01), assistant(dollars=0.02))
        assert await _branches(backend, session.id) == {"active": 2}
        await backend.move(session.id, first)
        await add(backend, session.id, assistant(dollars=0.04))
        assert await _branches(backend, session.id) == {"active": 2, "abandoned": 1}
        assert await spent(backend, session.id, branch="abandoned") == (1, 2)
        # A fork that goes on there takes it up again; one that goes elsewhere does not.
        fork = await backend.fork(session.id, left, NewSession())
        assert await _branches(backend, session.id) == {"active": 3}
        await backend.move(fork.id, first)
        assert await _branches(backend, session.id) == {"active": 2, "abandoned": 1}
        await backend.undo(fork.id)
        await backend.delete_tree(fork.id)
        assert await _branches(backend, session.id) == {"active": 2, "abandoned": 1}
        retracted = existing((await session_info(backend, session.id)).leaf_id)
        await backend.retract(session.id, retracted)
        assert await _branches(backend, session.id) == {"active": 1, "abandoned": 2}

    async def test_what_a_fork_still_sees_outlives_who_paid_for_it(self, backend: Backend) -> None:
        session = await new_session(backend, assistant(dollars=0.01))
        fork = await backend.fork(session.id, STORED, NewSession())
        await add(backend, session.id, assistant(dollars=0.02))
        await backend.delete_tree(session.id)
        assert await _branches(backend, session.id) == {"active": 1, "gone": 1}
        assert await spent(backend, fork.id, on_path=True) == (1, 1)
        assert await spent(backend, fork.id) == (0, 0)

    async def test_a_session_that_never_was_is_refused_and_one_that_is_gone_is_not(self, backend: Backend) -> None:
        session = await new_session(backend, assistant(dollars=0.01))
        await backend.delete_tree(session.id)
        assert await spent(backend, session.id) == await spent(backend, session.id, tree=True, tasks=True) == (1, 1)
        for asked in ({}, {"tree": True}, {"tasks": True}, {"on_path": True}):
            await raises(SessionNotFound, spent(backend, UNKNOWN, **asked))
        await raises(SessionNotFound, spent(backend, session.id, on_path=True))
        await raises(SessionNotFound, spent(backend, "\0"))

    # -- what never changes a past total ----------------------------------------------------------------------------

    async def test_forks_change_no_past_total(self, backend: Backend) -> None:
        session = await new_session(backend, assistant(dollars=0.01), answer(input=3))
        before = await told(backend)
        for at in (session.leaf_id, None):
            await backend.fork(session.id, at, NewSession())
        assert await told(backend) == before

    async def test_moves_and_undo_change_no_past_total(self, backend: Backend) -> None:
        session = await new_session(backend, assistant(dollars=0.01), answer(input=3))
        before = await told(backend)
        await backend.retract(session.id, session.leaf_id or "")
        await backend.undo(session.id)
        await backend.redo(session.id)
        await backend.move(session.id, None)
        assert await told(backend) == before

    async def test_importing_again_changes_no_past_total(self, backend: Backend) -> None:
        entries = [placed(replace(answer(input=3), calls=(call("a"),)), "one"), placed(answer(input=4), "two", "one")]
        await backend.import_session(NewSession(), entries, leaf="two")
        before = await told(backend)
        for _ in range(2):
            again = await backend.import_session(NewSession(), entries, leaf="two")
            assert (again.spent_tokens, again.unpriced_calls) == (0, 0)
        assert await told(backend) == before

    async def test_an_import_beside_others_changes_no_past_total(self, backend: Backend) -> None:
        session = await new_session(backend, assistant(dollars=0.01))
        before = (await ask(backend, session.id, *DIMENSIONS)).rows
        await backend.import_session(NewSession(), [placed(answer(input=3), "one")], leaf="one")
        assert (await ask(backend, session.id, *DIMENSIONS)).rows == before
        assert (await ask(backend)).total.calls == 2

    async def test_the_deletion_of_tasks_changes_no_total_of_those_above(self, backend: Backend) -> None:
        top = await new_session(backend, assistant("top", tokens=1))
        between = await backend.create_task(top.id, "a", NewSession())
        low = await backend.create_task(between.id, "b", NewSession())
        lowest = await backend.create_task(low.id, "c", NewSession())
        await add(backend, low.id, assistant("low", tokens=10))
        await add(backend, lowest.id, assistant("lowest", tokens=100))
        query = LedgerQuery(session_id=top.id, tasks=True)
        for doomed in (lowest.id, between.id, top.id):
            await backend.delete_tree(doomed)
            assert (await backend.read_ledger(query)).total.total_tokens == 111
        assert (await backend.read_ledger(LedgerQuery(session_id=low.id, tasks=True))).total.total_tokens == 110

    async def test_deletions_change_no_past_total(self, backend: Backend) -> None:
        session = await new_session(backend, assistant(dollars=0.01), answer(input=3), scope="x")
        await backend.record_call(session.id, call())
        fork = await backend.fork(session.id, STORED, NewSession())
        await add(backend, fork.id, assistant(dollars=0.02))
        before = await told(backend)
        tree = await ask(backend, session.id, "session", "model", tree=True)
        await backend.delete_tree(session.id)
        assert await told(backend) == before
        await backend.delete_tree(fork.id)
        assert await told(backend) == before
        assert await ask(backend, session.id, "session", "model", tree=True) == tree


class EntryCostContract:
    """What the ledger has of the entries that a session sees."""

    async def test_each_entry_has_the_sum_of_its_calls_and_how_many_have_no_cost(self, backend: Backend) -> None:
        priced = answer(input=5)
        priced = replace(priced, calls=(replace(priced.calls[0], cost=7, price_source="prices"),))
        session = await new_session(backend, user(), priced, answer(input=1), answer(input=1, cost={"total": 0}))
        kept = session.leaf_id or ""
        calls: list[JsonObject] = [
            {"input": 5, "cost": {"total": 0.01}},
            {"input": 5},
            {"input": 5, "cost": {"total": 0.02}},
        ]
        summary = NewEntry.compaction("s", first_kept_entry_id=kept, tokens_before=9, calls=calls)
        left = NewEntry.branch_summary("s", from_id=None, usage={"input": 5, "cost": {"total": 0.04}})
        plain = NewEntry.branch_summary("s", from_id=None)
        await add(backend, session.id, summary, left, plain)
        await backend.record_call(session.id, call())
        _, one, two, three, four, five, _ = await path_of(backend, session.id)
        assert await backend.read_entry_costs(session.id) == {
            one.id: EntryCost(1, 0, 7),
            two.id: EntryCost(1, 1, 0),
            three.id: EntryCost(1, 0, 0),
            four.id: EntryCost(3, 1, 3 * CENT),
            five.id: EntryCost(1, 0, 4 * CENT),
        }

    async def test_it_tells_of_every_entry_the_session_sees_and_of_no_other(self, backend: Backend) -> None:
        session = await new_session(backend, assistant(dollars=0.01), assistant(dollars=0.02))
        first, second = [entry.id for entry in await path_of(backend, session.id)]
        fork = await backend.fork(session.id, first, NewSession())
        (own,) = await add(backend, fork.id, assistant(dollars=0.04))
        await backend.move(session.id, None)
        (beside,) = await add(backend, session.id, assistant(dollars=0.08))
        task = await backend.create_task(session.id, "t", NewSession())
        (far,) = await add(backend, task.id, assistant(dollars=0.16))
        cents = [
            {entry_id: cost.picodollars // CENT for entry_id, cost in found.items()}
            for found in [await backend.read_entry_costs(each.id) for each in (session, fork, task)]
        ]
        assert cents == [{first: 1, second: 2, beside: 8}, {first: 1, own: 4}, {far: 16}]

    async def test_what_is_retracted_is_left_out_for_the_session_that_retracted_it(self, backend: Backend) -> None:
        session = await new_session(backend, user(), assistant(dollars=0.01))
        leaf = session.leaf_id or ""
        fork = await backend.fork(session.id, STORED, NewSession())
        await backend.retract(session.id, leaf)
        assert await backend.read_entry_costs(session.id) == {}
        assert await backend.read_entry_costs(fork.id) == {leaf: EntryCost(1, 0, CENT)}
        await backend.undo(session.id)
        assert await backend.read_entry_costs(session.id) == {leaf: EntryCost(1, 0, CENT)}

    async def test_who_paid_may_be_gone(self, backend: Backend) -> None:
        session = await new_session(backend, assistant(dollars=0.01), assistant(dollars=0.02))
        first, _ = [entry.id for entry in await path_of(backend, session.id)]
        fork = await backend.fork(session.id, first, NewSession())
        await backend.delete_tree(session.id)
        assert await backend.read_entry_costs(fork.id) == {first: EntryCost(1, 0, CENT)}

    async def test_copies_and_calls_that_others_reported_first_have_none(self, backend: Backend) -> None:
        entries = [placed(replace(answer(input=3), calls=(call("a"),)), "one")]
        first = await backend.import_session(NewSession(), entries, leaf="one")
        again = await backend.import_session(NewSession(), entries, leaf="one")
        (entry,) = await path_of(backend, first.id)
        (copied,) = await add(backend, first.id, copy_of(entry, first.id))
        assert await backend.read_entry_costs(first.id) == {"one": EntryCost(1, 0, CENT)}
        assert copied != "one"
        assert await backend.read_entry_costs(again.id) == {}

    async def test_a_missing_session_has_no_costs(self, backend: Backend) -> None:
        await refusal(backend, SessionNotFound, backend.read_entry_costs(UNKNOWN))
