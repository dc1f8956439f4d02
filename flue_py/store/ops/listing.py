"""Pages of sessions."""

from __future__ import annotations

import json
from collections.abc import Sequence

from flue_py.core.listing import Listing, Place, read_cursor, sort_value, write_cursor
from flue_py.core.sessions import SessionInfo, SessionPage, above_prefix, is_storable
from flue_py.errors import InvalidArgument
from flue_py.store.seam import Transaction
from flue_py.store.sql import listing as listing_sql

# How many sessions are read at a time where each is looked at.
_CANDIDATES = 256


def list_sessions(tx: Transaction, listing: Listing, limit: int, cursor: str | None) -> SessionPage:
    """Return a page of sessions (see `Backend.list_sessions`)."""
    if limit < 1:
        raise InvalidArgument(f"limit: {limit!r} is not a number of sessions; ask for at least 1")
    ordering, where = listing.ordering, listing.where
    last = None if cursor is None else read_cursor(cursor, ordering)
    if not where.can_match or (listing.scope is not None and not is_storable(listing.scope)):
        return SessionPage(())
    found: list[SessionInfo] = []
    # No database compares JSON exactly as it was given: of metadata, what may be meant is looked at here.
    count = max(limit + 1, _CANDIDATES) if where.metadata else limit + 1
    while True:
        rows = _sessions_after(tx, listing, last, count)
        found += [info for info in rows if where.has_metadata(info)]
        if len(rows) < count or len(found) > limit:
            break
        tx.require_snapshot()
        last = Place(sort_value(rows[-1], ordering.order), rows[-1].session_key)
    page = tuple(found[:limit])
    if len(found) <= limit:
        return SessionPage(page)
    end = Place(sort_value(page[-1], ordering.order), page[-1].session_key)
    return SessionPage(page, write_cursor(ordering, end))


def _sessions_after(tx: Transaction, listing: Listing, last: Place | None, count: int) -> Sequence[SessionInfo]:
    """Return the first sessions behind a place that are what is asked for, except for their metadata."""
    where = listing.where
    asked = where.asked
    asked |= {name: value for name, value in (("scope", listing.scope), ("kind", listing.kind)) if value is not None}
    prefix = where.scope_prefix or ""
    parameters: dict[str, object] = {
        **asked,
        "count": count,
        "title_part": asked.get("title"),
        "completed": int(where.completed is True),
        "ids": json.dumps([scope for scope in where.scopes or () if is_storable(scope)]),
        "prefix": prefix,
        "end_prefix": above_prefix(prefix),
        "needle": where.needle,
        "asks_links": int(where.asks_links),
    }
    if last is not None:
        parameters |= {"last_text": last.value, "last_number": last.value, "last_key": last.number}
    statement = listing_sql.session_page(listing.ordering, frozenset(asked), is_first=last is None)
    return tx.rows(statement, **{name: parameters[name] for name in statement.parameters})
