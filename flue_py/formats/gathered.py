"""Sessions that lie in several files, or in the database of a program: their rows, and their reader."""

from __future__ import annotations

import sqlite3
from base64 import b64encode
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from flue_py.errors import UnreadableFile
from flue_py.formats import kit
from flue_py.system import open_if_plain, read_beginning, uri_of

if TYPE_CHECKING:
    from pathlib import Path

    from flue_py.core.json import JsonObject, JsonValue

SESSION = "session"
"""The type of the row that begins a session."""

MOST_BYTES = 1 << 28
"""How much of a file beside another one is read."""

ParseRows: TypeAlias = "Callable[[list[kit.Row], kit.Notes, bool], kit.SessionPart | Sequence[kit.SessionPart] | None]"
"""Given the rows of a session and its notes: the session, or its parts; None for one that says nothing.

If the third is true, messages that may not be complete are taken; otherwise they are held back, and noted.
"""

_SQLITE = b"SQLite format 3\0"

Database: TypeAlias = sqlite3.Connection
TableRow: TypeAlias = sqlite3.Row

SessionRows: TypeAlias = "Callable[[Database], Iterator[tuple[JsonValue, Iterable[bytes]]]]"
"""Given a database: the id of each session, and its rows as lines, to be taken before the next session."""


def gathered_row(kind: str, fields: JsonObject, texts: Mapping[str, str] | None = None) -> bytes:
    """Return a row of a type as a line. ``texts`` are values that are JSON text already, whatever is in them."""
    inside = "".join(f"{kit.json_line(name)}:{text}," for name, text in (texts or {}).items())
    # Of two fields with one name the last counts: no text can give the row another type.
    return f"{{{inside}{kit.json_line({**fields, 'type': kind})[1:]}\n".encode(errors="replace")


def table_row(kind: str, row: sqlite3.Row, *json_columns: str) -> bytes:
    """Return a row of a table as a line, of a type; some of its columns have JSON as text."""
    fields = _plain(row)
    texts = {name: text for name in json_columns if isinstance(text := fields.pop(name, None), str)}
    return gathered_row(kind, fields, texts)


@contextmanager
def database_of(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the SQLite file of another program, which may be writing to it, in one read transaction.

    Nothing is written but an empty log, which SQLite makes. No lock is waited for longer than a second. One thread at
    a time may use the connection.
    Raises `UnreadableFile`.
    """
    connection = None
    try:
        connection = _connected(path)
        connection.row_factory = sqlite3.Row
        # Bytes that are not UTF-8 cost one row, and not the file.
        connection.text_factory = partial(str, encoding="utf-8", errors="replace")
        connection.execute("BEGIN")
        yield connection
    except sqlite3.Error as error:
        raise UnreadableFile(
            f"{path} cannot be read as a SQLite database ({error}); nothing more was imported"
        ) from error
    finally:
        if connection is not None:
            connection.close()


def _connected(path: Path) -> sqlite3.Connection:
    place = uri_of(path)
    connection = sqlite3.connect(f"{place}?mode=ro", uri=True, timeout=1, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
    except sqlite3.Error as error:
        connection.close()
        # A folder that cannot be written has no room for the index of the log that SQLite shares among readers.
        if not isinstance(error, sqlite3.OperationalError) or path.with_name(f"{path.name}-wal").exists():
            raise
        connection = sqlite3.connect(f"{place}?immutable=1", uri=True, isolation_level=None, check_same_thread=False)
    return connection


def rows_of_sessions(path: Path, sessions: SessionRows, unchanged: Collection[str]) -> Generator[bytes, None, None]:
    """Yield the rows of the sessions of a database, but for those that are ``unchanged``. Raises `UnreadableFile`."""
    with database_of(path) as database:
        for name, rows in sessions(database):
            if name not in unchanged:
                yield from rows


def digests_of_sessions(path: Path, sessions: SessionRows) -> dict[str, str]:
    """Return a digest of the rows of each session of a database, as its fingerprint. O(database)."""
    digests: dict[str, blake2b] = {}
    # A database that cannot be read so is read whole, which says what is wrong with it.
    with suppress(UnreadableFile), database_of(path) as database:
        for name, rows in sessions(database):
            if isinstance(name, str):
                digest = digests.setdefault(name, blake2b(digest_size=16))
                for row in rows:
                    digest.update(row)
        return {name: digest.hexdigest() for name, digest in digests.items()}
    return {}


def is_database(path: Path) -> bool:
    """Return whether a file is a SQLite database, by its first bytes. Raises OSError."""
    return (read_beginning(path, len(_SQLITE)) or b"") == _SQLITE


def has_tables(path: str, first_bytes: bytes, *names: str) -> bool:
    """Return whether a file is a SQLite database with these tables, given its first bytes. Never raises.

    A name may be that of a column, as ``messages.id``.
    """
    from pathlib import Path  # noqa: PLC0415 - most files are no databases

    if not first_bytes.startswith(_SQLITE):
        return False
    with suppress(UnreadableFile, OSError), database_of(Path(path)) as database:
        found = {row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        for table in {name.partition(".")[0] for name in names if "." in name} & found:
            columns = database.execute("SELECT name FROM pragma_table_info(?)", (table,))
            found |= {f"{table}.{row[0]}" for row in columns}
        return found.issuperset(names)
    return False


def log_beside(path: Path) -> JsonValue:
    """Return the size and time of the write-ahead log of a database: its newest rows may be there alone.

    An empty one is none: SQLite leaves it behind when it has read.
    """
    log = path.with_name(f"{path.name}-wal")
    with suppress(OSError):
        return states_of([log]) if log.stat().st_size else {}
    return {}


def states_of(paths: Iterable[Path]) -> JsonValue:
    """Return the size and time of each file that is there, by its name, as facts `beside` another one. Never raises."""
    states: JsonObject = {}
    for path in paths:
        with suppress(OSError):
            status = path.stat()
            states[f"{path.parent.name}/{path.name}"] = [status.st_size, status.st_mtime_ns]
    return states


def read_beside(path: Path) -> bytes | None:
    """Return the bytes of a plain file beside another one; None if it is not there, or too large to be one."""
    with suppress(OSError):
        data = read_beginning(path, MOST_BYTES + 1)
        return data if data is not None and len(data) <= MOST_BYTES else None
    return None


def whole_file(path: Path) -> bytes:
    """Return the bytes of a file that is one document. Raises `UnreadableFile` for one that is too large."""
    data = read_beside(path)
    if data is None:
        raise UnreadableFile(f"{path} has more than {MOST_BYTES:,} bytes, too many for a document")
    return data


def object_beside(path: Path) -> JsonObject:
    """Return the JSON object of a file beside another one; an empty one if there is none."""
    return kit.decode_row(1, read_beside(path) or b"", kit.Notes()) or {}


def facts_of_agent(path: Path) -> Mapping[str, Path]:
    """Return the file beside that of a sub-agent that says more about it, for `facts_beside`."""
    return {"agent": path.with_suffix(".meta.json")} if path.name.startswith("agent-") else {}


def facts_beside(
    files: Callable[[Path], Mapping[str, Path]],
) -> tuple[Callable[[Path, kit.RowReader, object], Iterator[None]], Callable[[Path], JsonValue]]:
    """Return the `Before` and the `Beside` of a format, given the files beside one that say more about it, by kind."""

    def before(path: Path, reader: kit.RowReader, _lines: object) -> Iterator[None]:
        """Give a reader the files beside its own. Yields no rows."""
        reader.path = str(path.absolute())
        read = {kind: read_beside(file) for kind, file in files(path).items()}
        reader.beside = {kind: data for kind, data in read.items() if data is not None}
        return iter(())

    def beside(path: Path) -> JsonValue:
        """Return the states of the files beside another one; None if there are none. Never raises."""
        return states_of(there.values()) if (there := files(path)) else None

    return before, beside


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a plain file, if there is one, but for those that would begin a session."""
    file = None
    with suppress(FileNotFoundError):
        file = open_if_plain(path)
    with file or nullcontext(()) as lines:
        for line in lines:
            if b'"session"' not in line or kit.object_in(line).get("type") != SESSION:
                yield line


class GatheredReader(kit.RowReader):
    """Reads rows a session at a time (see `Reader`): a row of the type `SESSION` begins the next one.

    A session with messages that may not be complete waits for the end, where it is known whether those are taken.
    """

    def __init__(self, parse: ParseRows, name: str) -> None:
        super().__init__(name)
        self._parse = parse
        self._notes = kit.Notes("row")
        self._rows: list[kit.Row] = []
        self._waiting: list[list[kit.Row]] = []
        self._parts: list[kit.SessionPart] = []
        self._reports: list[kit.ParseReport] = []
        self.ready = 0

    def feed_row(self, number: int, raw: bytes, fields: JsonObject) -> None:
        """Read a row."""
        if fields["type"] == SESSION:
            self._read_session()
        self._rows.append(kit.Row(number, b"", fields))

    def _read_session(self) -> None:
        rows, self._rows = self._rows, []
        if rows and not self._add(rows, take_all=False):
            self._waiting.append(rows)

    def _add(self, rows: list[kit.Row], *, take_all: bool, is_last: bool = False) -> bool:
        notes = kit.Notes("row")
        parsed = self._parse(rows, notes, take_all)
        report = notes.report()
        if report.held_back and not is_last:
            return False
        self._reports.append(report)
        parts = [parsed] if isinstance(parsed, kit.SessionPart) else parsed or ()
        self._parts += [replace(part, holds_back=part.holds_back or report.held_back > 0) for part in parts]
        self.ready += sum(len(part.entries) for part in parts)
        return True

    def take(self) -> list[kit.SessionPart]:
        """Return the sessions that are ready, and forget them."""
        parts, self._parts, self.ready = self._parts, [], 0
        return parts

    def finish(self, *, take_all: bool) -> list[kit.SessionPart]:
        """Return the last sessions. Raises `UnreadableFile` if there was none."""
        self._read_session()
        for rows in self._waiting:
            self._add(rows, take_all=take_all, is_last=True)
        self._waiting = []
        if not self._reports:
            raise UnreadableFile(f"{self._name} holds no session; nothing was imported")
        return self.take()

    def report(self) -> kit.ParseReport:
        """Return the report on all rows."""
        return kit.joined([self._notes.report(), *self._reports])


class Tables:
    """The tables of a database of another program, whose rows are found by a column without an index of theirs.

    The places of the values of a column are remembered: a number for each row. Names of tables and columns are words of
    a format, not of a file. Every method raises `sqlite3.Error`, which `database_of` turns into `UnreadableFile`.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._names = {row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        self._places: dict[tuple[str, str], dict[JsonValue, list[int]]] = {}

    def values(self, table: str, column: str) -> dict[JsonValue, list[int]]:
        """Return the places of the rows of a table by the values of a column, in order; none if there is no table."""
        key = (table, column)
        if key not in self._places:
            places: dict[JsonValue, list[int]] = {}
            query = f"SELECT {column}, rowid FROM {table} ORDER BY rowid"  # noqa: S608 - both are words of a format
            for value, place in self._database.execute(query) if table in self._names else ():
                places.setdefault(value, []).append(place)
            self._places[key] = places
        return self._places[key]

    def rows(self, table: str, column: str, value: JsonValue) -> list[JsonObject]:
        """Return the rows of a table that have a value in a column: the columns that have one; bytes as base64."""
        return [*self._each(table, column, value)]

    def first(self, table: str, value: JsonValue, column: str = "id") -> JsonObject:
        """Return the first row of a table that has a value; an empty one if there is none."""
        return next(self._each(table, column, value), {})

    def data(self, table: str, value: JsonValue) -> bytes:
        """Return the column ``data`` of the row of a table that has an id, as bytes; none if there is no such row."""
        query = f"SELECT CAST(data AS BLOB) FROM {table} WHERE rowid = ?"  # noqa: S608 - a word of a format
        places = self.values(table, "id").get(value, []) if isinstance(value, str) else []
        return next((row[0] or b"" for place in places for row in self._database.execute(query, (place,))), b"")

    def _each(self, table: str, column: str, value: JsonValue) -> Iterator[JsonObject]:
        query = f"SELECT * FROM {table} WHERE rowid = ?"  # noqa: S608
        for place in self.values(table, column).get(value, ()) if isinstance(value, (str, int)) else ():
            yield from (_plain(row) for row in self._database.execute(query, (place,)))


def _plain(row: sqlite3.Row) -> JsonObject:
    values: list[tuple[str, JsonValue | bytes]] = [(key, row[key]) for key in row.keys() if row[key] is not None]  # noqa: SIM118
    return {key: b64encode(value).decode() if isinstance(value, bytes) else value for key, value in values}
