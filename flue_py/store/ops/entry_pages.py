"""Pages of all entries that a session sees: what it inherited, root first, then its own as they were added."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flue_py.core.entries import Entry
from flue_py.errors import EntryNotFound
from flue_py.store.ops.paths import made_entries
from flue_py.store.ops.state import find_held, read_state
from flue_py.store.schema.session_state import SessionState
from flue_py.store.seam import Transaction
from flue_py.store.sql import entry_pages as pages_sql
from flue_py.store.sql import marks as marks_sql
from flue_py.store.sql.entry_pages import Place
from flue_py.store.sql.rows import StoredEntry

_BEYOND = Place(session_key=0, depth=2**62, revision=2**62, ordinal=0)
_BEFORE = Place(session_key=0, depth=-1, revision=0, ordinal=-1)

# Up to so many rows of one part, from behind a place of it on.
_ReadPage = Callable[[Place, int], Sequence[StoredEntry]]


def read_entries(
    tx: Transaction,
    session_id: str,
    kind: str | None,
    after: str | None,
    newest_first: bool,
    limit: int,
    contents: bool,
) -> list[Entry]:
    """Return a page of entries (see `Backend.read_entries`)."""
    state = read_state(tx, session_id)
    end = _BEYOND if newest_first else _BEFORE
    last = None if after is None else _place_of(tx, state, after)
    parts = [_inherited(tx, state, kind, newest_first), _own(tx, state, kind, newest_first)]
    if newest_first:
        parts.reverse()
    if last is not None and (last.session_key == state.key) != newest_first:
        del parts[0]
    retracted = {entry_id for (entry_id,) in tx.rows(marks_sql.RETRACTED_IDS, session_key=state.key)}
    rows: list[StoredEntry] = []
    for read_page in parts:
        rows += _page(read_page, last or end, limit - len(rows), retracted)
        last = None
    return made_entries(tx, state, rows, contents=contents)


def _page(read_page: _ReadPage, last: Place, limit: int, without: set[str]) -> list[StoredEntry]:
    """Return up to ``limit`` rows of a part behind a place, without some: as many more are read as these were."""
    found: list[StoredEntry] = []
    while (count := limit - len(found)) > 0:
        rows = read_page(last, count)
        found += [row for row in rows if row.id not in without]
        if len(rows) < count:
            break
        last = Place(rows[-1].session_key, rows[-1].depth, rows[-1].revision, rows[-1].ordinal)
    return found


def _place_of(tx: Transaction, state: SessionState, entry_id: str) -> Place:
    """Return where an entry is that the session holds, retracted or not. Raises `EntryNotFound` for any other."""
    held, _ = find_held(tx, state, entry_id)
    found = None if held is None else tx.first(pages_sql.PLACE, tree_id=state.tree_id, entry_id=entry_id)
    if found is None:
        raise EntryNotFound(state.id, entry_id)
    return found


def _own(tx: Transaction, state: SessionState, kind: str | None, newest_first: bool) -> _ReadPage:
    statement = pages_sql.own_page(kind, newest_first=newest_first)

    def read_page(last: Place, count: int) -> Sequence[StoredEntry]:
        # The first that is not in the page, or the first that is.
        ordinal = last.ordinal if newest_first else last.ordinal + 1
        asked: dict[str, object] = {"tree_id": state.tree_id, "session_key": state.key, "count": count, "kind": kind}
        asked |= {"revision": last.revision, "ordinal": ordinal}
        return tx.rows(statement, **{name: asked[name] for name in statement.parameters})

    return read_page


def _inherited(tx: Transaction, state: SessionState, kind: str | None, newest_first: bool) -> _ReadPage:
    statement = pages_sql.inherited_page(kind, newest_first=newest_first)
    fork_point = None if state.forked_from_entry is None else find_held(tx, state, state.forked_from_entry)[0]

    def read_page(last: Place, count: int) -> Sequence[StoredEntry]:
        if fork_point is None:
            return ()
        lane_id, depth = fork_point.lane_id, fork_point.depth
        asked: dict[str, object] = {"tree_id": state.tree_id, "lane_id": lane_id, "depth": depth, "kind": kind}
        asked |= {"from_depth": min(last.depth, depth + 1), "count": count}
        return tx.rows(statement, **{name: asked[name] for name in statement.parameters})

    return read_page
