"""The floor: the standard library's `sqlite3` doing a minimal version of the same work, synchronously.

Two tables, no totals, no ids, no validation, no encoding. An append is BEGIN IMMEDIATE, read the leaf, insert the
entry, update the leaf, COMMIT.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

SCHEMA = """
CREATE TABLE sessions (session INTEGER PRIMARY KEY, leaf INTEGER, seq INTEGER NOT NULL);
CREATE TABLE entries (id INTEGER PRIMARY KEY, session INTEGER NOT NULL, seq INTEGER NOT NULL, parent INTEGER,
                      tokens INTEGER NOT NULL, body TEXT NOT NULL);
CREATE UNIQUE INDEX entries_seq ON entries (session, seq);
"""


class Raw:
    """A connection to a minimal store of sessions and entries."""

    def __init__(self, path: Path, durability: Literal["full", "normal"] = "full", sessions: int = 1) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute(f"PRAGMA synchronous = {durability}")
        if not self.connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            self.connection.executescript(SCHEMA)
            self.connection.execute("BEGIN")
            self.connection.executemany(
                "INSERT INTO sessions VALUES (?, NULL, 0)", [(number,) for number in range(sessions)]
            )
            self.connection.execute("COMMIT")

    def append(self, text: str, session: int = 0) -> None:
        """Append one entry, in one transaction."""
        run = self.connection.execute
        run("BEGIN IMMEDIATE")
        leaf, seq = run("SELECT leaf, seq FROM sessions WHERE session = ?", (session,)).fetchone()
        entry = run(
            "INSERT INTO entries (session, seq, parent, tokens, body) VALUES (?, ?, ?, 100, ?)",
            (session, seq, leaf, text),
        ).lastrowid
        run("UPDATE sessions SET leaf = ?, seq = ? WHERE session = ?", (entry, seq + 1, session))
        run("COMMIT")

    def append_to_each(self, texts: Sequence[str]) -> None:
        """Append one entry to each of the first sessions, in one transaction."""
        run = self.connection.execute
        run("BEGIN IMMEDIATE")
        for session, text in enumerate(texts):
            leaf, seq = run("SELECT leaf, seq FROM sessions WHERE session = ?", (session,)).fetchone()
            entry = run(
                "INSERT INTO entries (session, seq, parent, tokens, body) VALUES (?, ?, ?, 100, ?)",
                (session, seq, leaf, text),
            ).lastrowid
            run("UPDATE sessions SET leaf = ?, seq = ? WHERE session = ?", (entry, seq + 1, session))
        run("COMMIT")

    def fill(self, bodies: Sequence[str], count: int) -> None:
        """Append many entries to session 0, in one transaction."""
        run = self.connection.execute
        run("BEGIN IMMEDIATE")
        self.connection.executemany(
            "INSERT INTO entries (session, seq, parent, tokens, body) VALUES (0, ?, ?, 100, ?)",
            ((seq, seq or None, bodies[seq % len(bodies)]) for seq in range(count)),
        )
        run("UPDATE sessions SET leaf = ?, seq = ? WHERE session = 0", (count, count))
        run("COMMIT")

    def scan(self, after: int = -1) -> list[Any]:
        """Return the bodies after a place, decoded: a range scan and `json.loads`."""
        rows = self.connection.execute("SELECT body FROM entries WHERE session = 0 AND seq > ? ORDER BY seq", (after,))
        return [json.loads(text) for (text,) in rows]

    def tokens_since(self, after: int) -> int:
        """Return a sum over the range after a place."""
        query = "SELECT SUM(tokens) FROM entries WHERE session = 0 AND seq > ?"
        return int(self.connection.execute(query, (after,)).fetchone()[0])

    def delete(self) -> int:
        """Delete session 0 and its entries, in one transaction; return how many entries went."""
        run = self.connection.execute
        run("BEGIN IMMEDIATE")
        gone = run("DELETE FROM entries WHERE session = 0").rowcount
        run("DELETE FROM sessions WHERE session = 0")
        run("COMMIT")
        return gone

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
