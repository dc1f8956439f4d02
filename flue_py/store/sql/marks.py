"""The statements on marks."""

from __future__ import annotations

from flue_py.store.seam import Statement
from flue_py.store.sql.parts import insert_into

PUT_MARK = insert_into(
    "marks",
    ("session_key", "entry_id", "kind", "value", "at"),
    " ON CONFLICT (session_key, entry_id, kind) DO UPDATE SET value = excluded.value, at = excluded.at",
)
DROP_MARK = Statement("DELETE FROM marks WHERE session_key = :session_key AND entry_id = :entry_id AND kind = :kind")
MARK = Statement(
    "SELECT m.value FROM marks m WHERE m.session_key = :session_key AND m.entry_id = :entry_id AND m.kind = :kind"
)
MARKS = Statement(
    "SELECT m.entry_id, m.kind, m.value FROM marks m WHERE m.session_key = :session_key ORDER BY m.entry_id, m.kind"
)
MARKS_OF_KIND = Statement(
    "SELECT m.entry_id, m.value FROM marks m WHERE m.session_key = :session_key AND m.kind = :kind"
)
RETRACTED_IDS = Statement("SELECT m.entry_id FROM marks m WHERE m.session_key = :session_key AND m.kind = 'retracted'")
