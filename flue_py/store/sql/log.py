"""The statements of the log."""

from __future__ import annotations

from typing import NamedTuple

from flue_py.core.log import EditKind, LoggedMove, Note
from flue_py.store.seam import Row
from flue_py.store.sql.dialects import statement
from flue_py.store.sql.takes import SessionRevisionLast


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
