"""Budgets and the ledger count the same where each call reserves and reports, of forks and of what is gone, too."""

from __future__ import annotations

import pytest

import flue_py

pytestmark = pytest.mark.anyio


async def call(session: flue_py.Session, tokens: int) -> None:
    async with session.money.budgeted(tokens=tokens) as made:
        made.used(tokens=tokens)
    await session.append_message({"role": "assistant", "content": "x", "usage": {"input": tokens, "output": 0}})


async def test_budget_and_ledger_count_the_same_calls_of_forks_tasks_and_what_was_deleted(store: flue_py.Store) -> None:
    mine = store.in_scope("team/ann")
    main = await mine.create_session(key="main")
    await main.append_message({"role": "user", "content": "x"})
    budgets = {
        "session": await mine.set_budget(main, tokens=1_000),
        "tasks": await mine.set_budget(main, tasks=True, tokens=1_000),
        "scope": await mine.set_budget(tokens=1_000),
        "prefix": await store.set_budget(scope_prefix="team/", tokens=1_000),
    }
    await call(main, 1)
    task = await main.tasks.create(task_id="t")
    await call(task, 2)
    gone_task = await main.tasks.create(task_id="gone")
    await call(gone_task, 4)
    fork = await main.fork()
    await call(fork, 8)
    linked = await main.fork()
    await mine.link_task(main, linked, task_id="attempt")
    await call(linked, 16)
    gone = await main.fork()
    await call(gone, 32)
    await call(await main.fork(scope="team/bob"), 64)
    for session in (gone_task, gone):
        await store.delete_session_tree(session)

    right = {"session": 1, "tasks": 1 + 2 + 4 + 16, "scope": 63, "prefix": 127}
    spent = {name: (await store.get_budget(budget.id)) for name, budget in budgets.items()}
    assert {name: None if budget is None else budget.spent for name, budget in spent.items()} == right
    by_ledger = {budget.id: budget.spent for budget in await linked.money.budgets(by_ledger=True)}
    by_ledger |= {budget.id: budget.spent for budget in await main.money.budgets(by_ledger=True)}
    assert {name: by_ledger[budget.id] for name, budget in budgets.items()} == right
    reports = {
        "session": await store.usage(main),
        "tasks": await store.usage(main, tasks=True),
        "scope": await mine.usage(),
        "prefix": await store.usage(scope_prefix="team/"),
    }
    assert {name: report.total.total_tokens for name, report in reports.items()} == right
    begun = {
        "session": await store.set_budget(await main.fork(), tokens=1, spent_so_far="ledger"),
        "prefix": await store.set_budget(scope_prefix="tea", tokens=1, spent_so_far="ledger"),
    }
    assert {name: budget.spent for name, budget in begun.items()} == {"session": 0, "prefix": 127}
    covering = {budget.id for budget in await fork.money.budgets()}
    assert covering == {budgets["scope"].id, budgets["prefix"].id, begun["prefix"].id}

    await store.set_budget(scope_prefix="team/", tokens=100)
    with pytest.raises(flue_py.BudgetExceeded):
        await fork.money.check_budgets()
    await store.delete_session_tree(main)
    assert [await store.get_budget(budgets[name].id) for name in ("session", "tasks")] == [None, None]
    assert await fork.refresh() is not None
