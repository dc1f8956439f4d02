"""The statements that list sessions, and find ids by how they begin."""

from __future__ import annotations

from functools import lru_cache
from typing import TypedDict

from flue_py.core.listing import SLOT_BITS, Ordering, SessionOrder
from flue_py.core.sessions import SessionInfo
from flue_py.store.seam import Statement
from flue_py.store.sql.dialects import IN_IDS, PLACE_IN, SCOPE_OF_ROW, TREE_OF_ROW, statement
from flue_py.store.sql.sessions import SESSION, session_of

SessionIdsFrom = TypedDict("SessionIdsFrom", {"count": int, "prefix": str, "end_prefix": str})
# What a page may take: what is filtered by, and where it begins.
Page = TypedDict(
    "Page",
    {
        "scope": str, "kind": str, "key": str, "cwd": str, "completed": int, "title_part": str, "count": int,
        "ids": str, "prefix": str, "end_prefix": str, "needle": str, "asks_links": int,
        "last_text": str, "last_number": int, "last_key": int,
    },
)  # fmt: skip
EntryIdsFrom = TypedDict("EntryIdsFrom", {"tree_id": int, "count": int, "prefix": str, "end_prefix": str})

# What a listing is sorted by. Every append changes the counters, so that no index has them (decision 0003): a page by
# one of them reads all sessions.
_SORTED_BY: dict[SessionOrder, str] = {
    "activity": "s.active_at",
    "updated": "s.updated_at",
    "created": "s.created_at",
    "title": "substr(COALESCE(NULLIF(s.title, ''), NULLIF(s.auto_title, ''), ''), 1, 200)",
    "messages": "s.message_count",
    "entries": "s.entry_count",
    "tokens": "s.spent_tokens",
    "cost": "s.spent_cost",
}
# These have an index of their own, whatever the scope.
_INDEXED: frozenset[SessionOrder] = frozenset({"created", "title"})
_SHOWN_TITLE = "lower(COALESCE(NULLIF(s.title, ''), NULLIF(s.auto_title, ''), NULLIF(s.key, ''), s.first_message, ''))"
_WHERE = {
    "title": f"{PLACE_IN}({_SHOWN_TITLE}, :title_part) > 0",
    "scope": "s.scope = :scope",
    "scopes": f"s.scope {IN_IDS}",
    "scope_prefix": "s.scope >= :prefix AND s.scope < :end_prefix",
    # What is read into more than this says is compared by `SessionFilter.has_metadata`. What links say is in no text.
    "metadata": f"({PLACE_IN}(s.metadata, :needle) > 0 OR (:asks_links = 1 AND EXISTS"
    " (SELECT 1 FROM task_links t WHERE t.child_id = s.id)))",
    "kind": "s.kind = :kind",
    "key": "s.key = :key",
    "cwd": "s.cwd = :cwd",
    "completed": "(s.completed_at IS NOT NULL) = (:completed = 1)",
}


@lru_cache(maxsize=256)
def session_page(ordering: Ordering, filters: frozenset[str], *, is_first: bool) -> Statement[..., SessionInfo]:
    """Return the statement for a page of sessions in an order, filtered by what is named.

    Unless it ``is_first``, it begins behind the session with ``last_number`` (``last_text``, for titles) and
    ``last_key``.
    """
    value, way = _SORTED_BY[ordering.order], "DESC" if ordering.descending else "ASC"
    conditions = ["s.trashed_at IS NULL", *(_WHERE[name] for name in sorted(filters))]
    if ordering.order in _INDEXED:
        conditions = [condition.replace("s.scope", SCOPE_OF_ROW) for condition in conditions]
    by = [f"{value} {way}", f"s.session_key {way}"]
    if ordering.order == "activity":
        # By the slot, which an index has, and by the exact time within a slot (decision 0003).
        by.insert(0, f"s.active_slot {way}")
    if not is_first:
        last = "last_text" if ordering.order == "title" else "last_number"
        below = "<" if ordering.descending else ">"
        # The first of the two says where in an index to begin: SQLite does not see it in a pair with an expression.
        start = f"s.active_slot {below}= (:{last} >> {SLOT_BITS})" if len(by) > 2 else f"{value} {below}= :{last}"
        conditions.append(f"{start} AND ({value}, s.session_key) {below} (:{last}, :last_key)")
    order = ", ".join(by)
    tail = f"WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT :count"
    return statement(Page, session_of)(f"SELECT {SESSION} FROM sessions s {tail}")


SESSION_IDS_FROM = statement(SessionIdsFrom, tuple[str])(
    "SELECT s.id FROM sessions s WHERE s.id >= :prefix AND s.id < :end_prefix AND s.trashed_at IS NULL"
    " ORDER BY s.id LIMIT :count"
)
ENTRY_IDS_FROM = statement(EntryIdsFrom, tuple[str])(
    f"SELECT e.id FROM entries e WHERE {TREE_OF_ROW} = :tree_id AND e.id >= :prefix AND e.id < :end_prefix"
    " ORDER BY e.id LIMIT :count"
)
