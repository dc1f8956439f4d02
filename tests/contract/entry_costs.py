"""The contract: what the ledger has of the entries that a session sees."""

from __future__ import annotations

from msgspec.structs import replace

from flue_py.core.context import EntryCost, copy_of
from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject
from flue_py.core.sessions import STORED, NewSession
from flue_py.db.backend import Backend
from flue_py.errors import SessionNotFound
from tests.checks import refused
from tests.contract.usage_ledger import CENT, answer, call
from tests.samples import UNKNOWN, add, assistant, new_session, path_of, placed, user


class EntryCostContract:
    """What each entry cost: the sum of its calls, None of it made up."""

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
        async with refused(backend, SessionNotFound):
            await backend.read_entry_costs(UNKNOWN)
