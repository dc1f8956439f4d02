"""What callers ask of a listing, checked and turned into what stores compare."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TypeAlias

from flue_py.core.listing import ORDERS, Ordering, SessionOrder
from flue_py.core.sessions import SessionInfo, check_label
from flue_py.core.usage import MAX_AMOUNT, usd_to_picodollars
from flue_py.errors import InvalidArgument, InvalidEntry, shown
from flue_py.sessions.arguments import checked_choice, checked_flag, checked_moment
from flue_py.store.backend import Backend

Dollars: TypeAlias = int | float | str | Decimal


async def source_of(backend: Backend, info: SessionInfo) -> SessionInfo | None:
    """Return the session that a fork without a name of its own is known by; None for others, and where it is gone."""
    from flue_py.render.views import needs_source  # noqa: PLC0415 - only what shows sessions needs it

    source = info.forked_from_session if needs_source(info) else None
    return None if source is None else await backend.get_session(source)


def checked_ordering(order_by: SessionOrder, descending: bool) -> Ordering:
    """Return an order. Raises `InvalidArgument` where there is no such one."""
    checked_choice(order_by, "order_by", ORDERS)
    return Ordering(order_by, checked_flag(descending, "descending"))


def asked_text(text: str | None, what: str) -> str | None:
    """Return a text, or None, unchanged. Raises `InvalidArgument` for what no session can have."""
    check_label(text, what)
    return text


def asked_flag(flag: bool | None, what: str) -> bool | None:
    """Return True, False or None unchanged. Raises `InvalidArgument` for anything else."""
    return None if flag is None else checked_flag(flag, what)


def asked_count(count: int | None, what: str) -> int | None:
    """Return a count, or None, unchanged. Raises `InvalidArgument` for anything else."""
    is_count = isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= MAX_AMOUNT
    if count is not None and not is_count:
        raise InvalidArgument(f"{what}: {shown(count)} is not a count; use a whole number >= 0")
    return count


def asked_cost(amount: Dollars | None, what: str) -> int | None:
    """Return US dollars as picodollars; None for None. Raises `InvalidArgument` for what is no amount of money."""
    if amount is None:
        return None
    try:
        if isinstance(amount, bool):
            raise InvalidEntry(f"{what}: {amount} is not an amount of money; use a finite number of dollars >= 0")
        return usd_to_picodollars(amount, what)
    except InvalidEntry as error:
        raise InvalidArgument(str(error)) from error


def asked_time(moment: datetime | None) -> int | None:
    """Return a moment as microseconds since 1970 UTC; None for None. Raises `InvalidArgument` for a naive one."""
    return None if moment is None else checked_moment(moment)
