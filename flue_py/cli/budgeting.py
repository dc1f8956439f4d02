"""Commands about budgets: budget set, list, show, rm."""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

import click

from flue_py.cli.consent import Plan, Shown, destructive
from flue_py.cli.group import HelpfulGroup
from flue_py.cli.output import json_option, look, print_json, print_lines, print_result
from flue_py.cli.place import Place
from flue_py.cli.running import run
from flue_py.core.budgets import Budget, HeldAmount, Money, shown_amount
from flue_py.errors import AmbiguousId, BudgetNotFound
from flue_py.render.budgets import budget_facts, budget_lines, budget_row, held_row
from flue_py.render.views import facts_lines
from flue_py.runtime.finding import find_session
from flue_py.sessions.store import Store

_PAGE = 1000


class _Budgets(HelpfulGroup):
    synonyms = MappingProxyType(
        {"ls": "list", "delete": "rm", "remove": "rm", "add": "set", "new": "set", "create": "set"}
    )


@click.group(cls=_Budgets)
def budget() -> None:
    """Set, list, show and delete budgets of tokens or of money."""


@budget.command("set")
@click.argument("session", required=False)
@click.option("--scope", help="Cover all sessions of this tenant or user, instead of SESSION.")
@click.option("--tasks", is_flag=True, help="Cover the task sessions of SESSION, too, and theirs.")
@click.option("--tokens", type=click.IntRange(min=0), help="How many tokens may be used in all.")
@click.option("--cost", metavar="USD", help="How many US dollars may be spent in all.")
@click.option(
    "--spent-so-far",
    metavar="AMOUNT",
    help="What a new budget begins with: tokens or US dollars, or 'ledger' for what the ledger has.",
)
@json_option
@click.pass_obj
def set_(
    place: Place,
    session: str | None,
    scope: str | None,
    tasks: bool,
    tokens: int | None,
    cost: str | None,
    spent_so_far: str | None,
    as_json: bool,
) -> None:
    """Set what SESSION, or a scope, may use. A budget that is there goes on with what it has counted."""
    if (session is None) == (scope is None):
        raise click.UsageError("name a SESSION, or give --scope")
    if (tokens is None) == (cost is None):
        raise click.UsageError("give either --tokens or --cost; set a budget for each")
    if tasks and scope is not None:
        raise click.UsageError("--tasks is for a SESSION; a budget of a scope covers all of its sessions")
    begins = _spent(spent_so_far, is_money=cost is not None)

    async def work(store: Store) -> Budget:
        found = None if session is None else await find_session(store, session)
        return await store.set_budget(found, scope=scope, tasks=tasks, tokens=tokens, cost=cost, spent_so_far=begins)

    made = run(place, work)
    text = (
        f"budget {made.id} of {made.target}: {shown_amount(made.allowed, made.unit)} allowed, "
        f"{shown_amount(made.left, made.unit)} left"
    )
    print_result(text, budget_row(made), as_json=as_json)


def _spent(text: str | None, *, is_money: bool) -> Money | Literal["ledger"] | None:
    if text is None or is_money or text == "ledger":
        return text
    if not (text.isascii() and text.isdigit()):
        raise click.BadParameter(f"{text!r} is no number of tokens, nor 'ledger'", param_hint="--spent-so-far")
    return int(text[:30])


@budget.command("list")
@click.argument("session", required=False)
@click.option("--scope", help="Only the budgets of this tenant or user, and of its sessions.")
@json_option
@click.pass_obj
def list_(place: Place, session: str | None, scope: str | None, as_json: bool) -> None:
    """List the budgets, in the order they were made; with SESSION, those that cover it."""
    if session is not None and scope is not None:
        raise click.UsageError("name a SESSION or give --scope, not both")

    async def work(store: Store) -> list[Budget]:
        if session is None:
            return await _all_budgets(store, scope)
        return await (await find_session(store, session)).budgets()

    found = run(place, work)
    if as_json:
        print_json([budget_row(each) for each in found])
    else:
        print_lines(budget_lines(found))


async def _all_budgets(store: Store, scope: str | None = None) -> list[Budget]:
    found: list[Budget] = []
    while True:
        page = await store.list_budgets(scope=scope, after=found[-1].id if found else None, limit=_PAGE)
        found += page
        if len(page) < _PAGE:
            return found


async def _find_budget(store: Store, name: str) -> Budget:
    """Return the one budget whose id is, or begins with, ``name``. Raises `BudgetNotFound`, `AmbiguousId`."""
    exact = await store.get_budget(name)
    if exact is not None:
        return exact
    found = [each for each in await _all_budgets(store) if name and each.id.startswith(name)]
    if not found:
        raise BudgetNotFound(name)
    if len(found) > 1:
        raise AmbiguousId(name, tuple(each.id for each in found))
    return found[0]


@budget.command()
@click.argument("budget_id", metavar="BUDGET")
@json_option
@click.pass_obj
def show(place: Place, budget_id: str, as_json: bool) -> None:
    """Show BUDGET: what is allowed, spent, reserved and left, and which calls hold what."""

    async def work(store: Store) -> tuple[Budget, list[HeldAmount]]:
        found = await _find_budget(store, budget_id)
        return found, await store.held_amounts(found.id)

    found, held = run(place, work)
    if as_json:
        print_json({**budget_row(found), "held": [held_row(each, found.unit) for each in held]})
    else:
        print_lines(facts_lines(budget_facts(found, held), look()))


@budget.command()
@click.argument("budget_id", metavar="BUDGET")
@destructive
@click.pass_obj
def rm(place: Place, budget_id: str) -> Plan:
    """Delete BUDGET, and what is reserved in it. The ledger stays."""
    found = run(place, lambda store: _find_budget(store, budget_id))

    def shown(each: Budget, said: str, *, dry_run: bool) -> Shown:
        text = f"{said} budget {each.id} of {each.target}, {shown_amount(each.spent, each.unit)} spent"
        return Shown([((text, ""),)], {**budget_row(each), "dryRun": dry_run})

    def go() -> Shown:
        return shown(run(place, lambda store: store.delete_budget(found.id)), "deleted", dry_run=False)

    return Plan(f"budget {found.id} of {found.target}", shown(found, "would delete", dry_run=True), go)
