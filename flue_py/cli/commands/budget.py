"""The budget command."""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

import click

from flue_py.cli.choosing import SESSION, scope_option
from flue_py.cli.consent import Plan, destructive
from flue_py.cli.group import HelpfulGroup
from flue_py.cli.output import Answer, look, said
from flue_py.cli.running import command
from flue_py.core.budgets import Budget, Money, shown_amount
from flue_py.errors import AmbiguousId, BudgetNotFound
from flue_py.render.budgets import budget_facts, budget_lines, budget_row, held_row
from flue_py.render.views import facts_lines
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

_PAGE = 1000


class _Budgets(HelpfulGroup):
    synonyms = MappingProxyType(
        {"ls": "list", "delete": "rm", "remove": "rm", "add": "set", "new": "set", "create": "set"}
    )


@click.group(cls=_Budgets)
def budget() -> None:
    """Set, list, show and delete budgets of tokens or of money.

    BUDGET is a budget's id or the beginning of it. With --json: an object, of list an array of them: id, covers
    (session, tasks or scope), sessionId, scope, unit (tokens or usd), allowed, spent, reserved, left, beganWith,
    createdAt, updatedAt; of rm also dryRun; of show also held: reservationId, sessionId, amount, createdAt,
    expiresAt. Money is a string in US dollars.
    """


budget_argument = click.argument("budget_id", metavar="BUDGET")


def _begins(text: str | None, cost: str | None) -> Money | Literal["ledger"] | None:
    if text is None or cost is not None or text == "ledger":
        return text
    if not (text.isascii() and text.isdigit()):
        raise click.BadParameter(f"{text!r} is neither a number of tokens nor 'ledger'", param_hint="--spent-so-far")
    return int(text[:30])


def _check_set(
    session: str | None,
    scope: str | None,
    scope_prefix: str | None,
    tasks: bool,
    tokens: int | None,
    cost: str | None,
    spent_so_far: str | None,
    **_: object,
) -> None:
    if [session, scope, scope_prefix].count(None) != 2:
        raise click.UsageError("name a SESSION, or give --scope or --scope-prefix")
    if (tokens is None) == (cost is None):
        raise click.UsageError("give either --tokens or --cost; set a budget for each")
    if tasks and session is None:
        raise click.UsageError("--tasks is for a SESSION; a budget of a scope covers all of its sessions")
    _begins(spent_so_far, cost)


@command("set", check=_check_set)
@click.argument("session", type=SESSION, required=False)
@click.option("--scope", help="Cover all sessions of this tenant or user, instead of SESSION.")
@click.option("--scope-prefix", help="Cover all sessions whose scope begins with this, instead of SESSION.")
@click.option("--tasks", is_flag=True, help="Cover the task sessions of SESSION, too, and theirs.")
@click.option("--tokens", type=click.IntRange(min=0), help="The tokens that may be used in all.")
@click.option("--cost", metavar="USD", help="The US dollars that may be spent in all.")
@click.option(
    "--spent-so-far",
    metavar="AMOUNT",
    help="The amount that a new budget starts with, or 'ledger' for what the ledger has.",
)
async def set_(
    store: Store,
    session: Session | None,
    scope_prefix: str | None,
    tasks: bool,
    tokens: int | None,
    cost: str | None,
    spent_so_far: str | None,
) -> Answer:
    """Set what SESSION, or a scope, may use. An existing budget keeps what it has counted."""
    begins = _begins(spent_so_far, cost)
    made = await store.set_budget(
        session, scope_prefix=scope_prefix, tasks=tasks, tokens=tokens, cost=cost, spent_so_far=begins
    )
    text = (
        f"budget {made.id} of {made.target}: {shown_amount(made.allowed, made.unit)} allowed, "
        f"{shown_amount(made.left, made.unit)} left"
    )
    return said(text, budget_row(made))


def _check_list(session: str | None, scope: str | None, scope_prefix: str | None, **_: object) -> None:
    if session is not None and (scope, scope_prefix) != (None, None):
        raise click.UsageError("name a SESSION or give --scope or --scope-prefix, not both")


@command("list", check=_check_list)
@click.argument("session", type=SESSION, required=False)
@scope_option
@click.option("--scope-prefix", help="Only the budgets of scopes that begin with this.")
async def list_(store: Store, session: Session | None, scope_prefix: str | None) -> Answer:
    """List all budgets, oldest first, or those that cover SESSION."""
    found = await _all_budgets(store, scope_prefix) if session is None else await session.budgets()
    return Answer(lambda: budget_lines(found), lambda: [budget_row(each) for each in found])


async def _all_budgets(store: Store, scope_prefix: str | None = None) -> list[Budget]:
    found: list[Budget] = []
    while True:
        after = found[-1].id if found else None
        page = await store.list_budgets(scope_prefix=scope_prefix, after=after, limit=_PAGE)
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


@command()
@budget_argument
async def show(store: Store, budget_id: str) -> Answer:
    """Show BUDGET: what is allowed, spent, reserved and left, and the open reservations."""
    found = await _find_budget(store, budget_id)
    held = await store.held_amounts(found.id)
    return Answer(
        lambda: facts_lines(budget_facts(found, held), look()),
        lambda: {**budget_row(found), "held": [held_row(each, found.unit) for each in held]},
    )


@destructive()
@budget_argument
async def rm(store: Store, budget_id: str) -> Plan:
    """Delete BUDGET and its reservations. The ledger is kept."""
    found = await _find_budget(store, budget_id)

    def shown(each: Budget, done: str, *, dry_run: bool) -> Answer:
        text = f"{done} budget {each.id} of {each.target}, {shown_amount(each.spent, each.unit)} spent"
        return said(text, {**budget_row(each), "dryRun": dry_run})

    async def go(store: Store) -> Answer:
        return shown(await store.delete_budget(found.id), "deleted", dry_run=False)

    return Plan(f"budget {found.id} of {found.target}", shown(found, "would delete", dry_run=True), go)


for each in (set_, list_, show, rm):
    budget.add_command(each)
