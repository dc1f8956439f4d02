"""The query of the format's page, which reads a context with SQL alone, knows ranges as the library does."""

from __future__ import annotations

import re
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import flue_py.sync
from flue_py.compaction import CompactionSettings
from flue_py.sync import Session
from tests.values import existing

PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")


def query() -> str:
    found = existing(re.search(r"\*\*the context of a session\*\*.*?```sql\n(.*?)```", PAGE, re.DOTALL))
    return found[1].replace("'triage'", ":key")


def text_of(payload: str | None, packed: bytes | None) -> str:
    return zlib.decompress(packed or b"").decode() if payload is None else payload


def shown(database: sqlite3.Connection) -> list[str]:
    database.create_function("text_of", 2, text_of)
    database.execute(
        "CREATE TEMP VIEW IF NOT EXISTS texts AS SELECT tree_id, id, text_of(payload, packed) AS text FROM entries"
    )
    return [str(content) for *_, content in database.execute(query(), {"key": "triage"})]


def told(session: Session) -> list[str]:
    return [
        str(item.entry.fields["summary"]) if item.kind == "compaction" else str(item.data["content"])
        for item in session.build_context_entries()
    ]


def test_the_query_of_the_page_returns_the_context(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with flue_py.sync.open(path) as store, closing(sqlite3.connect(path)) as database:
        session = store.create_session(key="triage")
        asked = [{"role": "user", "content": f"question {number} " + "q" * 200} for number in range(24)]
        ids = session.append_messages(asked).entry_ids
        contexts = [told(session)]
        for first, last in ((ids[3], ids[6]), (ids[8], ids[9]), (ids[14], ids[16]), (None, ids[1]), (ids[18], None)):
            assert session.compactions.compact_range(first, last, mode="window").reason is None
            assert shown(database) == told(session)
            contexts.append(told(session))
        whole = session.compact(mode="window", settings=CompactionSettings(keep_recent_tokens=100))
        assert whole.reason is None
        assert shown(database) == told(session)
        for context in reversed(contexts):
            assert session.compactions.uncompact() is not None
            assert shown(database) == told(session) == context
