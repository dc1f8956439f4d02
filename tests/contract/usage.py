"""The contract: usage is exact, and the ledger counts each paid call once."""

from __future__ import annotations

from decimal import Decimal

import pytest
from msgspec.structs import replace

from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject
from flue_py.core.sessions import STORED, NewSession
from flue_py.core.usage import MAX_AMOUNT, Cost, Usage
from flue_py.db.backend import Backend
from flue_py.errors import InvalidEntry
from tests.checks import refused
from tests.samples import UNKNOWN, add, assistant, compaction, new_session, path_ids, placed, session_info, user

CENT = 10**10
"""One cent in picodollars."""


def called(call_id: str | None, provider: str = "p", tokens: int = 5) -> JsonObject:
    """Return the usage of one paid call, as the calls of a compaction are reported."""
    call: JsonObject = {"input": tokens, "totalTokens": tokens, "cost": {"total": 0.01}, "provider": provider}
    return call if call_id is None else {**call, "callId": call_id}


def compacted(first_kept: str, *calls: JsonObject) -> NewEntry:
    """Return a compaction made by these paid calls."""
    return NewEntry.compaction("so far", first_kept_entry_id=first_kept, tokens_before=9, calls=calls)


class UsageContract:
    """Usage windows and the ledger."""

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
        async with refused(backend, InvalidEntry):
            await backend.append(session.id, [user(), assistant(tokens=1)])
        await backend.move(session.id, None)
        async with refused(backend, InvalidEntry):
            await backend.append(session.id, [assistant(tokens=MAX_AMOUNT)])

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

    @pytest.mark.parametrize("batches", [1, 50])
    async def test_totals_do_not_depend_on_how_entries_were_batched(self, backend: Backend, batches: int) -> None:
        entries = [assistant(tokens=n, dollars=n / 1000) for n in range(50)]
        session = await new_session(backend)
        for number in range(batches):
            await add(backend, session.id, *entries[number::batches])
        window = await backend.read_usage(session.id, None)
        assert (window.usage.total_tokens, window.usage.cost.usd) == (1225, Decimal("1.225"))
