"""The statements on marks."""

from __future__ import annotations

from typing import TypedDict

from flue_py.core.sessions import Mark
from flue_py.store.seam import Nothing
from flue_py.store.sql.dialects import statement
from flue_py.store.sql.takes import Session

SessionEntryKind = TypedDict("SessionEntryKind", {"session_key": int, "entry_id": str, "kind": str})
SessionKind = TypedDict("SessionKind", {"session_key": int, "kind": str})

DROP_MARK = statement(SessionEntryKind, Nothing)(
    "DELETE FROM marks WHERE session_key = :session_key AND entry_id = :entry_id AND kind = :kind"
)
MARK = statement(SessionEntryKind, tuple[str | None])(
    "SELECT m.value FROM marks m WHERE m.session_key = :session_key AND m.entry_id = :entry_id AND m.kind = :kind"
)
MARKS = statement(Session, Mark)(
    "SELECT m.entry_id, m.kind, m.value FROM marks m WHERE m.session_key = :session_key ORDER BY m.entry_id, m.kind"
)
MARKS_OF_KIND = statement(SessionKind, tuple[str, str | None])(
    "SELECT m.entry_id, m.value FROM marks m WHERE m.session_key = :session_key AND m.kind = :kind"
)
RETRACTED_IDS = statement(Session, tuple[str])(
    "SELECT m.entry_id FROM marks m WHERE m.session_key = :session_key AND m.kind = 'retracted'"
)
