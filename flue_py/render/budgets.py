"""Budgets as people read them, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flue_py.core.budgets import Budget, HeldAmount, Unit, shown_amount
from flue_py.core.entries import from_microseconds
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.usage import picodollars_to_usd
from flue_py.render.lines import Line, Span, shortest_ids, table
from flue_py.render.rows import exact, iso
from flue_py.render.views import minute


def budget_row(budget: Budget) -> JsonObject:
    """Return a budget: tokens as numbers, money as decimal strings in US dollars."""
    return {
        "id": budget.id,
        "covers": budget.covers,
        "sessionId": budget.session_id,
        "scope": budget.scope,
        "unit": "tokens" if budget.unit == "tokens" else "usd",
        "allowed": _amount(budget.allowed, budget.unit),
        "spent": _amount(budget.spent, budget.unit),
        "reserved": _amount(budget.reserved, budget.unit),
        "left": _amount(budget.left, budget.unit),
        "beganWith": _amount(budget.seeded, budget.unit),
        "createdAt": iso(budget.created_at),
        "updatedAt": iso(from_microseconds(budget.updated_us)),
    }


def held_row(held: HeldAmount, unit: Unit) -> JsonObject:
    """Return how much of a budget one reservation has set aside."""
    return {
        "reservationId": held.reservation_id,
        "sessionId": held.session_id,
        "amount": _amount(held.amount, unit),
        "createdAt": iso(from_microseconds(held.created_us)),
        "expiresAt": iso(from_microseconds(held.expires_us)),
    }


def _amount(amount: int, unit: Unit) -> JsonValue:
    return amount if unit == "tokens" else exact(picodollars_to_usd(amount))


def budget_lines(budgets: Sequence[Budget], ids: Mapping[str, str] | None = None) -> list[Line]:
    """Return budgets, one line each: id, what is left, spent, reserved and allowed, what it covers."""
    short = ids or shortest_ids([budget.id for budget in budgets], least=8)
    names = ("budget", "left", "spent", "reserved", "allowed", "covers")
    rows: list[list[Span]] = [[(name, "dim") for name in names]]
    for budget in budgets:
        amounts = (budget.left, budget.spent, budget.reserved, budget.allowed)
        cells: list[Span] = [(shown_amount(amount, budget.unit), "") for amount in amounts]
        if budget.left <= 0:
            cells[0] = (cells[0][0], "red")
        rows.append([(short[budget.id], "bold"), *cells, (budget.target, "")])
    return table(rows, right=frozenset({1, 2, 3, 4}))


def budget_facts(budget: Budget, held: Sequence[HeldAmount]) -> list[tuple[str, str]]:
    """Return a budget as facts for people, with what is reserved in it."""
    unit = budget.unit
    facts = [
        ("budget", budget.id),
        ("covers", budget.target),
        ("allowed", shown_amount(budget.allowed, unit)),
        ("spent", shown_amount(budget.spent, unit)),
        ("began with", shown_amount(budget.seeded, unit) if budget.seeded else ""),
        ("reserved", shown_amount(budget.reserved, unit)),
        ("left", shown_amount(budget.left, unit)),
    ]
    facts += [("held", _held_text(each, unit)) for each in held]
    return facts


def _held_text(held: HeldAmount, unit: Unit) -> str:
    until = minute(from_microseconds(held.expires_us))
    amount = shown_amount(held.amount, unit)
    return f"{amount} by reservation {held.reservation_id} of session {held.session_id}, until {until}"
