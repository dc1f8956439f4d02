"""The sessions that pi's agent library keeps in a SQLite database, or in files of version 4."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from flue_py.core.entries import MODEL_CHANGE, THINKING_LEVEL_CHANGE
from flue_py.core.json import JsonObject, JsonValue, without
from flue_py.core.kinds import COMPACTION, MESSAGE
from flue_py.core.sessions import derived_id
from flue_py.errors import UnreadableFile, shown
from flue_py.formats import gathered, kit, pi
from flue_py.providers.base import fields_of, listed, only

# Each session of a database is read as the pi session file with the same rows is: a row is an envelope and a payload,
# which together are a row of such a file. The leaf, names, labels and the usage of calls are in tables of their own. An
# older schema has them among the rows, but for the leaf.
#
# A file of version 4 is the log of such a session. Up to 0.84 its lines are entries, records, facts and moves of lanes;
# since 0.85 they are entries, usage, and values of which some are facts or tips of lanes, one or several to a line.

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

_REQUESTS = "usageOfRequests"
"""The field of a summary with the sum of calls that are paid by themselves."""
_UNSEEN = frozenset({pi.CUSTOM, COMPACTION, MODEL_CHANGE, THINKING_LEVEL_CHANGE, pi.TOOLS_CHANGE})
"""The types of entries that are no messages of a context behind the latest compaction."""


def looks_like_pi_sqlite(head: bytes, path_name: str = "") -> bool:
    """Return whether a file is a database of pi's agent library, or a file of version 4, by its first bytes."""
    fields = next(kit.first_rows(head), {})
    return (fields.get("kind") == "header" and 4 in (fields.get("version"), fields.get("v"))) or any(
        gathered.has_tables(path_name, head, "sessions", "session_sequences", *names)
        for names in (("entries", "lanes", "facts", "records"), ("session_entries",))
    )


def gather_pi_sqlite(path: Path) -> Generator[bytes, None, None]:
    """Yield the rows of the session of a file of version 4. Raises `UnreadableFile`."""
    log = _Log()
    for number, line in enumerate(gathered.lines_of(path)):
        log.read(number, line)
    yield log.session()
    yield from log.rows


def sessions_pi_sqlite(_path: Path, database: gathered.Database) -> Iterator[tuple[JsonValue, Iterator[bytes]]]:
    """Yield the id of each session, and its rows."""
    is_older = database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'lanes'").fetchone() is None

    def rows(session: gathered.TableRow) -> Iterator[bytes]:
        yield gathered.table_row(gathered.SESSION, session, "lanes")
        for row in database.execute(_OLDER_ROWS if is_older else _ROWS, (session["id"],)):
            yield gathered.table_row(row["type"], row, "payload")

    for session in database.execute(_SESSIONS.format("active_leaf_id" if is_older else _LANES)):
        yield session["id"], rows(session)


class _Log(Struct):
    """The lines of a file of version 4 as rows of a database."""

    header: JsonObject = field(default_factory=dict)
    rows: list[bytes] = field(default_factory=list)
    lanes: JsonObject = field(default_factory=dict)
    moved: JsonValue = None
    """Where the lane is that moved last."""
    summaries: list[tuple[int, JsonObject]] = field(default_factory=list)
    """The places of the rows of summaries, each with its change."""

    def session(self) -> bytes:
        """Return the row of the session."""
        parent = self.header.get("parentSessionId", self.header.get("legacyParentSessionPath"))
        fields: JsonObject = {**only(self.header, "id", "cwd"), "created_at": _time(self.header.get("createdAt"))}
        if "metadata" in self.header:
            fields["metadata"] = kit.json_line(self.header["metadata"])
        fields |= {"parent_session_id": parent, "lanes": self.lanes, "active_leaf_id": self.moved, "is_log": True}
        return gathered.gathered_row(gathered.SESSION, fields)

    def read(self, number: int, line: bytes) -> None:
        """Read a line: the header, a change, or a list of changes. One that is no JSON stays as it is."""
        try:
            value = kit.read_document(line, kit.Notes(), "a line") if line.strip() else []
        except UnreadableFile:
            self.rows.append(line)
            return
        changes = listed(value) or [value]
        if number == 0:
            self.header = fields_of(value)
            self.lanes = {"main": None} if "version" in self.header else {}
        for change in changes if number else ():
            if isinstance(change, dict):
                self._read(change)
            else:
                self.rows.append(line)

    def _read(self, change: JsonObject) -> None:
        kind, key, value = change.get("kind"), change.get("key"), change.get("value")
        is_usage = kind == "usage" or (kind == "record" and change.get("type") == pi.USAGE)
        if kind == "entry":
            if "v" in self.header and change.get("type") != MESSAGE and "usage" in change:
                # The calls of a summary are listed, without its name, and before it.
                self.summaries.append((len(self.rows), change))
                change = {_REQUESTS if name == "usage" else name: value for name, value in change.items()}
            self.rows.append(self._entry(change))
            self._move(change.get("lane"), change.get("id"))
        elif is_usage and fields_of(change.get("details")).get("source") == "v3-import":
            # It was a file of version 3 until here: this is the sum of the usage of its entries.
            for place, summary in self.summaries:
                self.rows[place] = self._entry(summary)
        elif is_usage:
            self.rows.append(self._row("usage", change, {}, ("kind", "seq", "lane")))
        elif kind == "lane":
            self._move(change.get("lane"), change.get("leafId"))
        elif kind == "fact":
            self._name(change.get("fact"), change.get("targetId"), change.get("name", change.get("label")))
        elif change.get("namespace") == "pi.branch.tip":
            self._move(key, value)
        elif change.get("namespace") in ("pi.session.name", "pi.entry.label"):
            self._name("label" if change["namespace"] == "pi.entry.label" else "name", key, value)
        else:
            names = {"session_id": self.header.get("id"), "seq": len(self.rows)}
            self.rows.append(gathered.gathered_row("other", {**names, "payload": change}))

    def _entry(self, change: JsonObject) -> bytes:
        return self._row("entry", change, {"kind": change.get("type")}, ("kind", "lane", "seq", "type"))

    def _row(self, kind: str, change: JsonObject, fields: JsonObject, names: tuple[str, ...]) -> bytes:
        """Return a row with an envelope, and with all but some fields as its payload."""
        envelope = {**fields, "id": change.get("id"), "seq": change.get("seq"), "session_id": self.header.get("id")}
        envelope |= {"timestamp": _time(change.get("timestamp")), "parent_id": change.get("parentId")}
        payload = without(change, *names, "id", "timestamp", "parentId")
        return gathered.gathered_row(kind, {**envelope, "payload": payload})

    def _name(self, kind: JsonValue, target: JsonValue, text: JsonValue) -> None:
        names = {"session_id": self.header.get("id"), "seq": len(self.rows), "target": target, "payload": text}
        self.rows.append(gathered.gathered_row("fact", {**names, "kind": kind}))

    def _move(self, lane: JsonValue, leaf: JsonValue) -> None:
        if isinstance(lane, str):
            self.lanes[lane] = self.moved = leaf


def _time(at: JsonValue) -> JsonValue:
    moment = kit.read_moment(at)
    return at if moment is None else kit.iso_time(moment)


class _Session:
    """A session of the database, of which the rows are being read."""

    def __init__(self, name: str, row: kit.Row, notes: kit.Notes) -> None:
        lanes = fields_of(row.fields.get("lanes"))
        self.leaf = lanes.get("main", row.fields.get("active_leaf_id"))
        self.id = str(row.fields.get("id"))
        self.name: str | None = None
        self.notes = notes
        self.reader = pi.PiReader(name, {"leafId": self.leaf, "lanes": {**lanes}}, notes)
        self._rows: dict[str, JsonObject] = {}
        self._aside: set[str] = set()
        self._calls: list[tuple[kit.Row, str | None]] = []
        """Rows of calls, with the last entry before each."""

        self._end = row
        self._is_log = row.fields.get("is_log") is True
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
        self.reader.read(kit.Row(row.line, b"", kept))

    def read(self, row: kit.Row) -> None:
        """Read a row: an entry, the name of the session or the label of an entry, or the usage of a call."""
        self._end = row
        if row.type == "entry":
            self._read_entry(row)
        elif row.type == "usage":
            self._calls.append((row, self._last[0]))
        elif row.type == "other":
            change = fields_of(row.fields.get("payload"))
            words = (change.get(name) for name in ("kind", "type", "fact", "namespace"))
            kind = kit.entry_kind("pi.", ".".join(word for word in words if isinstance(word, str)) or "row")
            name = derived_id(self.id, kind, str(row.fields.get("seq")))
            self._read_aside(row, kind, name, self._last[0], {"change": change})
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
        self.reader.read(kit.Row(row.line, row.raw, entry))

    def _read_aside(self, row: kit.Row, kind: str, entry_id: JsonValue, parent: JsonValue, body: JsonObject) -> None:
        """Read a row that is no entry there as one below another, which is on no path."""
        time = row.fields.get("timestamp") or self._last[1]
        envelope: JsonObject = {"type": kind, "id": kit.one_text(entry_id), "parentId": parent, "timestamp": time}
        self._aside.add(str(entry_id))
        self.reader.read(kit.Row(row.line, row.raw, {**body, **envelope}))

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

    def part(self, *, take_all: bool) -> kit.SessionPart:
        """Return the session. Calls that no entry has the usage of are entries of their own.

        The entry of a call at the end of a log may be still to come.
        """
        paid = {name for name, row in self._rows.items() if (fields_of(row.get("message")) or row).get("usage")}
        is_held = False
        for row, before in self._calls:
            record = fields_of(row.fields.get("payload"))
            name = record.get("entryId")
            is_last = self._is_log and row is self._end and isinstance(name, str) and name not in self._rows
            if is_held := is_last and not take_all:
                self.notes.hold_back(row.line)
            elif name not in paid:
                body: JsonObject = {**record, "kind": record.get("cause")}
                self._read_aside(row, pi.USAGE, row.fields.get("id"), before, body)
        (part,) = self.reader.finish(take_all=True)
        leaves = [leaf for leaf in part.leaves if leaf not in self._aside and leaf != self.leaf]
        is_there = isinstance(self.leaf, str) and self.leaf in part.leaves
        path = (*leaves, self.leaf) if is_there else ()
        return replace(part, leaves=path, name=self.name, restates=True, holds_back=is_held)


def parse_pi_sqlite(name: str, rows: list[kit.Row], notes: kit.Notes, take_all: bool) -> kit.SessionPart | None:
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
    return session.part(take_all=take_all)


def read_pi_sqlite(name: str) -> gathered.GatheredReader:
    """Return a reader of the rows of a database, a session at a time."""
    return gathered.GatheredReader(partial(parse_pi_sqlite, name), name)
