"""The sessions that pi's agent library keeps in a SQLite database."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from flue_py.core.entries import MODEL_CHANGE, THINKING_LEVEL_CHANGE
from flue_py.core.json import JsonObject, JsonValue
from flue_py.core.kinds import COMPACTION
from flue_py.core.sessions import derived_id
from flue_py.errors import UnreadableFile, shown
from flue_py.formats import gathered, kit, pi
from flue_py.providers.base import fields_of, listed

# Each session of a database is read as the pi session file with the same rows is: a row is an envelope and a payload,
# which together are a row of such a file. The leaf, names, labels and the usage of calls are in tables of their own. An
# older schema has them among the rows, but for the leaf.

_SESSIONS = "SELECT id, created_at, cwd, parent_session_id, metadata, {} FROM sessions ORDER BY created_at, id"
_LANES = "(SELECT json_group_object(lane, leaf_id) FROM lanes WHERE session_id = sessions.id) AS lanes"
_OLDER_ROWS = """
SELECT session_id, entry_seq AS seq, 'entry' AS type, id, parent_id, type AS kind, timestamp, payload, NULL AS target
FROM session_entries WHERE session_id = ? ORDER BY entry_seq
"""
_ROWS = """
SELECT session_id, seq, 'entry' AS type, id, parent_id, type AS kind, timestamp, payload, NULL AS target
FROM entries WHERE session_id = ?1
UNION ALL SELECT session_id, seq, 'fact', NULL, NULL, kind, NULL, value, key FROM facts WHERE session_id = ?1
UNION ALL SELECT session_id, seq, 'usage', id, NULL, type, timestamp, payload, NULL
FROM records WHERE session_id = ?1 AND type = 'usage' ORDER BY seq
"""

_UNSEEN = frozenset({pi.CUSTOM, COMPACTION, MODEL_CHANGE, THINKING_LEVEL_CHANGE, pi.TOOLS_CHANGE})
"""The types of entries that are no messages of a context behind the latest compaction."""


def looks_like_pi_sqlite(head: bytes, path_name: str = "") -> bool:
    """Return whether a file is a database of pi's agent library, given its first bytes. Never raises."""
    return any(
        gathered.has_tables(path_name, head, "sessions", "session_sequences", *names)
        for names in (("entries", "lanes", "facts", "records"), ("session_entries",))
    )


def gather_pi_sqlite(path: Path) -> Generator[bytes, None, None]:
    """Yield the rows of each session in their order, behind that of the session. Raises `UnreadableFile`."""
    with gathered.database_of(path) as database:
        is_older = database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'lanes'").fetchone() is None
        for session in database.execute(_SESSIONS.format("active_leaf_id" if is_older else _LANES)):
            yield gathered.table_row(gathered.SESSION, session, "lanes")
            for row in database.execute(_OLDER_ROWS if is_older else _ROWS, (session["id"],)):
                yield gathered.table_row(row["type"], row, "payload")


class _Session:
    """A session of the database, of which the rows are being read."""

    def __init__(self, name: str, row: kit.Row, notes: kit.Notes) -> None:
        lanes = fields_of(row.fields.get("lanes"))
        self.leaf = lanes.get("main") if lanes else row.fields.get("active_leaf_id")
        self.id = str(row.fields.get("id"))
        self.name: str | None = None
        self.reader = pi.PiReader(name, {"leafId": self.leaf, "lanes": {**lanes}}, notes)
        self._rows: dict[str, JsonObject] = {}
        self._aside: set[str] = set()
        self._calls: list[kit.Row] = []
        self._last: tuple[str | None, str | None] = (None, kit.one_text(row.fields.get("created_at")))
        metadata = kit.one_text(row.fields.get("metadata")) or ""
        header: JsonObject = {
            "type": row.type,
            "version": pi.NEWEST_VERSION,
            "id": row.fields.get("id"),
            "timestamp": row.fields.get("created_at"),
            "cwd": row.fields.get("cwd"),
            "parentSessionId": row.fields.get("parent_session_id"),
            "metadata": kit.decode_row(row.line, metadata.encode(), kit.Notes()) or metadata or None,
        }
        kept: JsonObject = {name: value for name, value in header.items() if value is not None}
        self.reader.read(kit.Row(row.line, "", kept))

    def read(self, row: kit.Row) -> None:
        """Read a row: an entry, the name of the session or the label of an entry, or the usage of a call."""
        if row.type == "entry":
            self._read_entry(row)
        elif row.type == "usage":
            self._calls.append(row)
        elif row.fields.get("kind") == "name":
            self.name = kit.one_text(row.fields.get("payload")) or self.name
        else:
            target = row.fields.get("target")
            label: JsonObject = {"targetId": target, "label": row.fields.get("payload")}
            self._read_aside(row, pi.LABEL, derived_id(self.id, str(row.fields.get("seq"))), target, label)

    def _read_entry(self, row: kit.Row) -> None:
        fields, payload = row.fields, row.fields.get("payload")
        entry: JsonObject = {
            **(payload if isinstance(payload, dict) else {"payload": payload}),
            "type": str(fields.get("kind")),
            "id": fields.get("id"),
            "parentId": fields.get("parent_id"),
            "timestamp": fields.get("timestamp"),
        }
        if entry["type"] == COMPACTION and "retainedTail" in entry:
            entry.setdefault("firstKeptEntryId", self._first_kept(entry))
        if isinstance(entry["id"], str):
            self._rows[entry["id"]] = entry
            self._last = (entry["id"], kit.one_text(entry["timestamp"]))
        self.reader.read(kit.Row(row.line, row.text, entry))

    def _read_aside(self, row: kit.Row, kind: str, entry_id: JsonValue, parent: JsonValue, body: JsonObject) -> None:
        """Read a row that is no entry there as one below another, which is on no path."""
        time = row.fields.get("timestamp") or self._last[1]
        envelope: JsonObject = {"type": kind, "id": kit.one_text(entry_id), "parentId": parent, "timestamp": time}
        self._aside.add(str(entry_id))
        self.reader.read(kit.Row(row.line, row.text, {**body, **envelope}))

    def _path(self, entry_id: object) -> Iterator[JsonObject]:
        """Yield the entries from one up to its root."""
        for _ in range(len(self._rows)):
            row = self._rows.get(str(entry_id))
            if row is None:
                return
            yield row
            entry_id = row.get("parentId")

    def _first_kept(self, compaction: JsonObject) -> str:
        """Return the entry from which on a compaction keeps the messages; "" if its path has others than those."""
        tail, first = [*listed(compaction.get("retainedTail"))], ""
        for row in self._path(compaction.get("parentId")):
            if not tail:
                break
            if row["type"] in _UNSEEN:
                continue
            if row.get("message") != tail.pop():
                return ""
            first = str(row["id"])
        return "" if tail else first

    def part(self) -> kit.SessionPart:
        """Return the session. Calls that no entry has the usage of are entries of their own."""
        paid = {name for name, row in self._rows.items() if (fields_of(row.get("message")) or row).get("usage")}
        for row in self._calls:
            record = fields_of(row.fields.get("payload"))
            if record.get("entryId") not in paid:
                body: JsonObject = {**record, "kind": record.get("cause")}
                self._read_aside(row, pi.USAGE, row.fields.get("id"), self._last[0], body)
        (part,) = self.reader.finish(take_all=True)
        leaves = [leaf for leaf in part.leaves if leaf not in self._aside and leaf != self.leaf]
        is_there = isinstance(self.leaf, str) and self.leaf in part.leaves
        path = (*leaves, self.leaf) if is_there else ()
        return replace(part, leaves=path, name=self.name, restates=True)


def parse_pi_sqlite(name: str, rows: list[kit.Row], notes: kit.Notes, _take_all: bool) -> kit.SessionPart | None:
    """Return the session in rows of a database, or None if they begin with none. ``name`` is that of the file."""
    try:
        session = _Session(name, rows[0], notes)
    except UnreadableFile as error:
        notes.skip(rows[0].line, str(error))
        return None
    for row in rows[1:]:
        if row.fields.get("session_id") == session.id:
            session.read(row)
        else:
            notes.skip(row.line, f"belongs to the session {shown(row.fields.get('session_id'))}, which was left out")
    return session.part()


def read_pi_sqlite(name: str) -> gathered.GatheredReader:
    """Return a reader of the rows of a database, a session at a time."""
    return gathered.GatheredReader(partial(parse_pi_sqlite, name), name)
