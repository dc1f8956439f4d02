"""Budgets and bills of all scopes that begin alike."""

from __future__ import annotations

import pytest

import flue_py

pytestmark = pytest.mark.anyio


async def test_a_budget_and_a_bill_of_a_prefix_are_of_all_scopes_that_begin_so(store: flue_py.Store) -> None:
    scopes = ("tenant-1", "tenant-1/ann", "tenant-1/\U0010ffffben/x", "tenant-10", "tenant", "")
    sessions = {scope: await store.create_session(scope=scope) for scope in scopes}
    for session in sessions.values():
        await session.append_message({"role": "assistant", "content": "x", "usage": {"input": 10, "output": 0}})
    begun = {
        prefix: await store.set_budget(scope_prefix=prefix, tokens=1000, spent_so_far="ledger")
        for prefix in ("tenant-1/", "tenant-1", "", "nobody")
    }
    exact = await store.set_budget(scope="tenant-1", tokens=100)
    assert [(budget.scope, budget.spent) for budget in begun.values()] == [
        ("tenant-1/*", 20), ("tenant-1*", 40), ("*", 60), ("nobody*", 0),
    ]  # fmt: skip
    covering = {scope: {each.scope for each in await session.money.budgets()} for scope, session in sessions.items()}
    assert covering == {
        "tenant-1": {"tenant-1", "tenant-1*", "*"},
        "tenant-1/ann": {"tenant-1/*", "tenant-1*", "*"},
        "tenant-1/\U0010ffffben/x": {"tenant-1/*", "tenant-1*", "*"},
        "tenant-10": {"tenant-1*", "*"},
        "tenant": {"*"},
        "": {"*"},
    }
    again = await store.set_budget(scope_prefix="tenant-1/", tokens=25)
    assert (again.id, again.allowed, again.spent) == (begun["tenant-1/"].id, 25, 20)
    with pytest.raises(flue_py.BudgetExceeded, match="'tenant-1/\\*'"):
        await sessions["tenant-1/ann"].money.reserve(tokens=6)
    calls = {
        prefix: (await store.usage(scope_prefix=prefix)).total.calls
        for prefix in ("tenant-1/", "tenant-1", "tenant-1/a", "", "nobody", "%")
    }
    assert calls == {"tenant-1/": 2, "tenant-1": 4, "tenant-1/a": 1, "": 6, "nobody": 0, "%": 0}
    by_scope = await store.usage(scope_prefix="tenant-1/", group_by=["scope"])
    assert [row.calls for row in by_scope.rows] == [1, 1]
    assert exact.spent == 0
    own = await store.set_budget(sessions["tenant-1/ann"], tokens=7)
    listed = {
        prefix: [budget.id for budget in await store.list_budgets(scope_prefix=prefix, limit=9)]
        for prefix in ("tenant-1/", "tenant-1", "", "no")
    }
    of_all = [budget.id for budget in await store.list_budgets()]
    assert listed == {
        "tenant-1/": [begun["tenant-1/"].id, own.id],
        "tenant-1": [begun["tenant-1/"].id, begun["tenant-1"].id, exact.id, own.id],
        "": of_all,
        "no": [begun["nobody"].id],
    }
    assert len(of_all) == 6
    assert [budget.id for budget in await store.list_budgets(scope_prefix="tenant-1", after=exact.id)] == [own.id]
    both = await store.list_budgets(scope="tenant-1", scope_prefix="tenant-1")
    assert ([budget.id for budget in both], await store.list_budgets(scope="a", scope_prefix="b")) == ([exact.id], [])
    for wrong in ({"scope": "tenant-*"}, {"scope": "a", "scope_prefix": "a"}, {"scope_prefix": "a", "tasks": True}):
        with pytest.raises(flue_py.InvalidArgument):
            await store.set_budget(tokens=1, **wrong)  # type: ignore[arg-type]
