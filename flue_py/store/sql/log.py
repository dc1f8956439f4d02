"""The statements of the log."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from flue_py.core.log import EditKind, LoggedMove, Note
from flue_py.store.seam import Row
from flue_py.store.sql.dialects import NUMBERS, PAYLOAD_BYTES, statement
from flue_py.store.sql.takes import SessionRevisionLast

SessionKeysCount = TypedDict("SessionKeysCount", {"session_key": int, "keys": str, "count": int})


class LoggedEdit(NamedTuple):
    """A change beside the history, as the log has it."""

    revision: int
    what: EditKind
    entry_id: str | None
    before: str | None
    after: str | None
    edited_by: str | None
    why: str | None
    at: int


class LoggedEntry(NamedTuple):
    """One of the first entries of a revision. After ``kind``, the first alone has values; the others have None."""

    revision: int
    id: str
    kind: str
    last_ordinal: int
    last_id: str
    last_at: int
    parent_id: str | None
    digest: bytes
    payload: bytes | None
    packed: bytes | None
    blob: bytes | None


def _logged_move(row: Row) -> tuple[int, LoggedMove]:
    revision, reason, undoes, from_id, to_id, by, why, at = row
    return revision, LoggedMove(reason, undoes, from_id, to_id, Note.stored(by, why), at)


EDITS_AFTER = statement(SessionRevisionLast, LoggedEdit)(
    'SELECT x.revision, x.what, x.entry_id, x."before", x."after", x.edited_by, x.why, x.at FROM session_edits x'
    " WHERE x.session_key = :session_key AND x.revision > :revision AND x.revision <= :last_revision"
    " ORDER BY x.revision, x.what"
)
LOGGED_MOVES = statement(SessionRevisionLast, _logged_move)(
    "SELECT m.revision, m.reason, m.undoes, m.from_entry, m.to_entry, m.moved_by, m.why, m.at FROM leaf_moves m"
    " WHERE m.session_key = :session_key AND m.revision > :revision AND m.revision <= :last_revision"
)
_LAST_LOGGED = (
    "FROM entries l WHERE l.session_key = e.session_key AND l.revision = e.revision ORDER BY l.ordinal DESC LIMIT 1"
)
# The first entries of each of some revisions: the first itself, with its parent and what the last one is.
LOGGED_ENTRIES = statement(SessionKeysCount, LoggedEntry)(
    "SELECT e.revision, e.id, e.kind,"
    + ", ".join(
        f" CASE WHEN e.ordinal = 0 THEN ({value}) END"
        for value in (
            f"SELECT l.ordinal {_LAST_LOGGED}",
            f"SELECT l.id {_LAST_LOGGED}",
            f"SELECT l.created_at {_LAST_LOGGED}",
            "e.parent_id",
            "e.digest",
            PAYLOAD_BYTES,
            "e.packed",
            "e.blob",
        )
    )
    + f" FROM ({NUMBERS}) r JOIN entries e ON e.session_key = :session_key AND e.revision = r.number"
    " AND e.ordinal < :count ORDER BY e.revision, e.ordinal"
)
