"""The index of words beside a SQLite store: a file of its own, with SQLite's full-text tables.

They hold terms and row numbers, no text, and nothing about where in a text a term is, but for the bits of its pairs.
That takes a third to six tenths of the size of the text.
Terms that SQLite has deleted of such a table stay in its pages until they are merged, and version 3.40 cannot be told
otherwise. So the texts lie in segments, a table each; to forget a text, its segment goes as a whole, its pages are
overwritten with zeros, and the rest of it is added again by the next search.

There is no write-ahead log: a rollback journal is gone when a transaction ends.

Damage to such tables goes unnoticed by SQLite as often as not, and a text that is not found is not missed. So the time
at which the file was last modified is set, and written in it: a file with another time was changed by something else,
and is made anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, closing
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar, cast

from flue_py.db.runner import FoundText, IndexedText, KnownSession, Wanted, session_mark
from flue_py.db.sqlite.file import Identity, create_private, identity_of, translated, words_file
from flue_py.db.waiting import Waiting
from flue_py.errors import CorruptStore, FlueError, NotAStore, StoreUnavailable
from flue_py.search import Pairs, may_have

Result = TypeVar("Result")

SEGMENT = 1 << 15
"""How many texts lie in one piece: forgetting one takes reading so many again, and each one takes asking a table."""

_SPOKEN_IN = 4
"""How many segments are asked which terms there are."""
SCHEMA = 5
_APPLICATION = 0x464C5557
_HEADER = 100
"""SQLite's: which application a database belongs to is written in it."""
_BUSY_SECONDS = 60.0
_COARSEST_NS = 2_000_000_000
_COLUMNS = ("session_key", *KnownSession._fields[1:])
_KNOWN = f"SELECT {', '.join(_COLUMNS)} FROM sessions"
_FOUND = ", ".join(f"t.{name}" for name in FoundText._fields)
_LOSES = "UPDATE origin SET losses = losses + 1"
_TABLES = """
CREATE TABLE sessions (session_key INTEGER PRIMARY KEY, id TEXT NOT NULL, revision INTEGER NOT NULL,
    source_key INTEGER, title TEXT, updated_us INTEGER NOT NULL, last_revision INTEGER NOT NULL, last_entry TEXT,
    seen INTEGER NOT NULL DEFAULT 0);
CREATE TABLE texts (doc INTEGER PRIMARY KEY, session_key INTEGER NOT NULL, entry_id TEXT, number INTEGER NOT NULL,
    at_us INTEGER NOT NULL, weight INTEGER NOT NULL, length INTEGER NOT NULL, pairs BLOB NOT NULL);
CREATE TABLE spread (session_key INTEGER NOT NULL, segment INTEGER NOT NULL, PRIMARY KEY (session_key, segment))
    WITHOUT ROWID;
CREATE TABLE segments (number INTEGER PRIMARY KEY, first_doc INTEGER NOT NULL, next_doc INTEGER NOT NULL,
    end_doc INTEGER NOT NULL);
CREATE TABLE origin (inode TEXT NOT NULL, losses INTEGER NOT NULL, modified_ns INTEGER NOT NULL);
"""


def forget_sessions(store: Path, ids: Collection[str]) -> None:
    """Remove every trace of sessions from the index of a store, if there is one. An index that is broken goes whole.

    Raises `StoreUnavailable` where it can neither be written nor removed. O(pieces that they lie in).
    """
    path = words_file(store)
    if not path.exists():
        return
    try:
        _require_own(path)
    except StoreUnavailable:
        return
    try:
        with closing(open_words(store, None)) as index:
            wanted = set(ids)
            index.begin()
            index.forget([key for key, session in index.known().items() if session.id in wanted])
            index.commit()
    except FlueError:
        # Whatever it is that keeps it from being changed, what was deleted must not be found in it.
        remove_words(store)


def remove_words(store: Path) -> None:
    """Remove the index of a store. Raises `StoreUnavailable` if it cannot be."""
    path = words_file(store)
    try:
        for suffix in ("-journal", ""):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be removed: {error.strerror or error}; it may hold words of what was deleted"
        ) from error


def open_words(store: Path, version: int | None) -> SqliteWords:
    """Open the index of a store. One of another version, or that is none, is made anew; None takes it as it is.

    Raises `StoreUnavailable` where it cannot be written, and where something else lies there, `StoreBusy`.
    """
    path = words_file(store)
    _require_own(path)
    try:
        create_private(path)
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be made: {error.strerror or error}") from error
    try:
        return _opened(path, version, _inode(store))
    except (CorruptStore, NotAStore):
        remove_words(store)
        return open_words(store, version)


def _require_own(path: Path) -> None:
    """Raise `StoreUnavailable` for a file not ours to write to or to remove: a link, a folder, another database."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise StoreUnavailable(f"{path} is a link or a folder, and no index of words; give it another name")
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER)
    except OSError:
        return
    if head.startswith(b"SQLite format 3\0") and int.from_bytes(head[68:72]) not in (0, _APPLICATION):
        raise _not_an_index(path)


def _not_an_index(path: Path) -> StoreUnavailable:
    return StoreUnavailable(f"{path} is another database, and no index of words; give it another name")


def _inode(store: Path) -> str:
    """Return which file the store is: another one in its place may have other entries at the same revisions."""
    try:
        return str(store.stat().st_ino)
    except OSError as error:
        raise StoreUnavailable(f"{store} cannot be read: {error.strerror or error}") from error


def _opened(path: Path, version: int | None, inode: str) -> SqliteWords:
    identity = identity_of(str(path))
    with translated(path):
        connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        with translated(path):
            for setting in ("synchronous = NORMAL", "secure_delete = ON", "temp_store = MEMORY", "cache_size = -16000"):
                connection.execute(f"PRAGMA {setting}")
            connection.create_function("may_have", 2, _may_have, deterministic=True)
        index = SqliteWords(connection, path, identity)
        index.prepare(version, inode)
    except BaseException:
        connection.close()
        raise
    return index


class WaitedWords:
    """The index of words of a SQLite file, whose functions are waited for as everything else of the store is.

    A call has its end before a cancelled caller goes on: the connection is for one at a time. Its functions take
    turns with those of the store's other indexes: who waits for another one in SQLite blocks a thread, and with all
    threads blocked, the one that holds the file could not go on.
    """

    def __init__(
        self,
        index: SqliteWords,
        waiting: Waiting,
        turn: AbstractAsyncContextManager[object],
        leave: Callable[[SqliteWords], None],
    ) -> None:
        self._index = index
        self._waiting = waiting
        self._turn = turn
        self._leave = leave
        self._has_turn = False
        self._has_failed = False

    async def _call(self, function: Callable[[], Result]) -> Result:
        if self._has_turn:
            return await self._now(function)
        async with self._turn:
            return await self._now(function)

    async def _now(self, function: Callable[[], Result]) -> Result:
        try:
            return await self._waiting.finish(self._waiting.call(function))
        except FlueError:
            self._has_failed = True
            raise

    async def begin(self) -> None:
        await self._turn.__aenter__()
        self._has_turn = True
        await self._now(self._index.begin)

    async def commit(self) -> None:
        await self._now(self._index.commit)
        await self._end_turn()

    async def close(self) -> None:
        try:
            await self._now(self._let_go)
        finally:
            await self._end_turn()

    def _let_go(self) -> None:
        if self._has_failed:
            self._index.close()
        else:
            self._index.roll_back()
            self._leave(self._index)

    async def _end_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            await self._turn.__aexit__(None, None, None)

    async def moment(self) -> int:
        return await self._call(self._index.moment)

    async def known(self) -> Mapping[int, KnownSession]:
        return await self._call(self._index.known)

    async def known_one(self, key: int) -> KnownSession | None:
        return await self._call(partial(self._index.known_one, key))

    async def add(self, before: KnownSession, after: KnownSession, texts: Sequence[IndexedText]) -> bool:
        return await self._call(partial(self._index.add, before, after, texts))

    async def forget(self, keys: Collection[int]) -> None:
        await self._call(partial(self._index.forget, keys))

    async def reread(self, keys: Collection[int]) -> None:
        await self._call(partial(self._index.reread, keys))

    async def find(self, wanted: Wanted, before: int | None, limit: int) -> Sequence[FoundText]:
        return await self._call(partial(self._index.find, wanted, before, limit))

    async def terms_from(self, begin: str, end: str, limit: int) -> Sequence[str]:
        return await self._call(partial(self._index.terms_from, begin, end, limit))

    async def problems(self) -> Sequence[str]:
        return await self._call(self._index.problems)


class SqliteWords:
    """The index of words in a SQLite file. Its functions raise `StoreBusy`, `StoreUnavailable` and `CorruptStore`."""

    def __init__(self, connection: sqlite3.Connection, path: Path, identity: Identity) -> None:
        self._connection = connection
        self.path = path
        self._identity = identity
        self._modified_ns: int | None = None
        """When it was modified last, while it is written to."""
        self._has_lock = False

    def _run(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with translated(self.path):
            return self._connection.execute(statement, parameters).fetchall()

    def _first(self, statement: str, parameters: Sequence[object] = ()) -> tuple[Any, ...] | None:
        return next(iter(self._run(statement, parameters)), None)

    def _run_many(self, statement: str, parameters: Sequence[Sequence[object]]) -> None:
        with translated(self.path):
            self._connection.executemany(statement, parameters)

    def prepare(self, version: int | None, inode: str) -> None:
        """Make the tables where they are missing, or were made for another version of terms, or another file.

        With no version, they are taken as they are.
        """
        if self._is_prepared(version, inode):
            return
        self._lock()
        if not self._is_prepared(version, inode):
            self._make(version or 0, inode)
        self.commit()

    def is_current(self, store: Path, version: int) -> bool:
        """Return whether `open_words` would open it: it was left open, and others may have removed it since."""
        try:
            with self._reading():
                return identity_of(str(self.path)) == self._identity and self._is_prepared(version, _inode(store))
        except (OSError, FlueError):
            return False

    def _is_prepared(self, version: int | None, inode: str) -> bool:
        application, stamp = (self._run(f"PRAGMA {name}")[0][0] for name in ("application_id", "user_version"))
        if application not in (0, _APPLICATION):
            raise _not_an_index(self.path)
        if application == 0 or (version is not None and stamp != _stamp(version)):
            return False
        ((of, modified_ns),) = self._run("SELECT inode, modified_ns FROM origin")
        if self._modified() != modified_ns:
            raise CorruptStore(f"{self.path} was changed by another program, or by one that was killed")
        return version is None or of == inode

    def _modified(self) -> int:
        try:
            return self.path.stat().st_mtime_ns
        except OSError as error:
            raise StoreUnavailable(f"{self.path} cannot be read: {error.strerror or error}") from error

    def _make(self, version: int, inode: str) -> None:
        for (name,) in self._run("SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'words__%'"):
            if name.partition("_")[2].isdigit():
                self._run(f"DROP TABLE {name}")
        for name in ("sessions", "texts", "spread", "segments", "origin"):
            self._run(f"DROP TABLE IF EXISTS {name}")
        for statement in _TABLES.split(";"):
            self._run(statement)
        # From anywhere, so that one that was made anew under a search is not taken for the one before.
        self._run("INSERT INTO origin VALUES (?, abs(random()) >> 2, 0)", (inode,))
        self._run(f"PRAGMA application_id = {_APPLICATION}")
        self._run(f"PRAGMA user_version = {_stamp(version)}")

    def begin(self) -> None:
        """Keep other writers out (see `WordIndex.begin`)."""
        self._lock()
        if self._is_prepared(None, ""):
            self._modified_ns = self._modified()

    def _lock(self) -> None:
        self._run("BEGIN IMMEDIATE")
        # The lock is kept behind the end of the transaction, until the time is set. (Who waits for it must have none.)
        self._run("PRAGMA locking_mode = EXCLUSIVE")
        self._has_lock = True

    def commit(self) -> None:
        """Keep the changes (see `WordIndex.commit`)."""
        # As exactly as every file system keeps it: some keep whole seconds, and some every other one.
        self._modified_ns = time.time_ns() // _COARSEST_NS * _COARSEST_NS
        self._run("UPDATE origin SET modified_ns = ?", (self._modified_ns,))
        self._run("COMMIT")
        self._unlock()

    def _unlock(self) -> None:
        """Set the time of the last change, kept or taken back, and let others in."""
        modified_ns, self._modified_ns, self._has_lock = self._modified_ns, None, False
        try:
            if modified_ns is not None and identity_of(str(self.path)) == self._identity:
                os.utime(self.path, ns=(modified_ns, modified_ns))
        except OSError as error:
            raise StoreUnavailable(f"the time of {self.path} cannot be set: {error.strerror or error}") from error
        finally:
            self._run("PRAGMA locking_mode = NORMAL")
            self._run("SELECT 1 FROM sqlite_schema LIMIT 1")

    def known(self) -> Mapping[int, KnownSession]:
        """Return the sessions that it knows, by key."""
        return {row[0]: KnownSession._make(row) for row in self._run(_KNOWN)}

    def add(self, before: KnownSession, session: KnownSession, texts: Sequence[IndexedText]) -> bool:
        """Add texts of a session (see `WordIndex.add`): nobody else was faster, since `begin` keeps them out."""
        del before
        own = session_mark(session.key)
        there = self._there(session.key, own) if texts else set()
        new = [text for text in texts if (text.entry_id, text.number) not in there]
        for low in range(0, len(new), SEGMENT):
            self._add(session.key, own, new[low : low + SEGMENT])
        self._run(
            f"INSERT INTO sessions ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
            f" ON CONFLICT DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _COLUMNS[2:])}",
            session,
        )
        return True

    def _there(self, key: int, own: str) -> set[tuple[str | None, int]]:
        """Return the texts of a session that are in the index already, where some may be.

        Those are met again only when a session is read from its beginning, after a part of it was forgotten.
        """
        row = self._first("SELECT revision, seen FROM sessions WHERE session_key = ?", (key,))
        if row is None or row[0] >= row[1]:
            return set()
        there: set[tuple[str | None, int]] = set()
        for (segment,) in self._run("SELECT segment FROM spread WHERE session_key = ?", (key,)):
            there.update(
                self._run(
                    f"SELECT t.entry_id, t.number FROM words_{segment} w JOIN texts t ON t.doc = w.rowid"
                    f" WHERE words_{segment} MATCH ?",
                    (f'"{own}"',),
                )
            )
        return there

    def _add(self, key: int, own: str, texts: Sequence[IndexedText]) -> None:
        while texts:
            segment, doc, end = self._place()
            taken, texts = texts[: end - doc], texts[end - doc :]
            self._run_many(
                "INSERT INTO texts VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (number, key, text.entry_id, text.number, text.at_us, text.weight, len(text.terms), text.pairs)
                    for number, text in enumerate(taken, start=doc)
                ],
            )
            self._run_many(
                f"INSERT INTO words_{segment} (rowid, terms) VALUES (?, ?)",
                [(number, " ".join([own, *text.marks, *text.terms])) for number, text in enumerate(taken, start=doc)],
            )
            self._run("INSERT OR IGNORE INTO spread VALUES (?, ?)", (key, segment))
            self._run("UPDATE segments SET next_doc = next_doc + ? WHERE number = ?", (len(taken), segment))

    def _place(self) -> tuple[int, int, int]:
        """Return the segment that is filled, the number of the next text in it, and the one that is too many."""
        last = self._first("SELECT number, next_doc, end_doc FROM segments ORDER BY number DESC LIMIT 1")
        if last is not None and last[1] < last[2]:
            return int(last[0]), int(last[1]), int(last[2])
        segment, first = (0, 0) if last is None else (last[0] + 1, last[2])
        # Every character that is not ASCII belongs to a term: the terms are ours, and must not be taken apart again.
        self._run(
            f"CREATE VIRTUAL TABLE words_{segment} USING fts5"
            "(terms, content='', columnsize=0, detail='none', tokenize='ascii')"
        )
        self._run("INSERT INTO segments VALUES (?, ?, ?, ?)", (segment, first, first, first + SEGMENT))
        return segment, first, first + SEGMENT

    def forget(self, keys: Collection[int]) -> None:
        """Remove every trace of sessions (see `WordIndex.forget`)."""
        if not keys:
            return
        self._run(_LOSES)
        doomed = json.dumps(list(keys))
        segments = self._run(
            "SELECT number, first_doc, end_doc FROM segments WHERE number IN"
            " (SELECT segment FROM spread WHERE session_key IN (SELECT value FROM json_each(?)))",
            (doomed,),
        )
        for segment, first, end in segments:
            # Read again from their beginning: what still is in another segment is passed over then.
            self._run(
                "UPDATE sessions SET revision = -1, seen = max(seen, revision), title = NULL WHERE session_key IN"
                " (SELECT session_key FROM spread WHERE segment = ?)",
                (segment,),
            )
            self._run("DELETE FROM spread WHERE segment = ?", (segment,))
            self._run("DELETE FROM texts WHERE doc >= ? AND doc < ?", (first, end))
            self._run(f"DROP TABLE words_{segment}")
            self._run("DELETE FROM segments WHERE number = ?", (segment,))
        self._run("DELETE FROM sessions WHERE session_key IN (SELECT value FROM json_each(?))", (doomed,))

    def known_one(self, key: int) -> KnownSession | None:
        """Return a session if the index knows it."""
        row = self._first(f"{_KNOWN} WHERE session_key = ?", (key,))
        return None if row is None else KnownSession._make(row)

    def reread(self, keys: Collection[int]) -> None:
        """Have sessions be read from their beginning again (see `WordIndex.reread`)."""
        if keys:
            self._run(_LOSES)
        self._run(
            "UPDATE sessions SET revision = -1, seen = max(seen, revision), source_key = NULL"
            " WHERE session_key IN (SELECT value FROM json_each(?))",
            (json.dumps(list(keys)),),
        )

    def moment(self) -> int:
        """Return a number that is another one after something was taken out (see `WordIndex.moment`)."""
        return int(self._run("SELECT losses FROM origin")[0][0])

    def find(self, wanted: Wanted, before: int | None, limit: int) -> Sequence[FoundText]:
        """Return texts that match (see `WordIndex.find`)."""
        match, since = _match(wanted), -(2**62) if wanted.since_us is None else wanted.since_us
        pairs, below = json.dumps(wanted.pairs), 2**62 if before is None else before
        texts: list[FoundText] = []
        with self._reading():
            segments = self._run("SELECT number FROM segments WHERE first_doc < ? ORDER BY number DESC", (below,))
            for (segment,) in segments:
                # The plus keeps SQLite from going through the texts instead of the terms.
                rows = self._run(
                    f"SELECT {_FOUND} FROM words_{segment} w JOIN texts t ON t.doc = w.rowid"
                    f" WHERE words_{segment} MATCH ? AND w.rowid < ? AND +t.at_us >= ?"
                    " AND (? = '[]' OR may_have(t.pairs, ?)) ORDER BY w.rowid DESC LIMIT ?",
                    (match, below, since, pairs, pairs, limit - len(texts)),
                )
                texts += map(FoundText._make, rows)
                if len(texts) >= limit:
                    break
        return texts

    def terms_from(self, begin: str, end: str, limit: int) -> Sequence[str]:
        """Return terms of a range (see `WordIndex.terms_from`)."""
        terms: list[str] = []
        with self._reading():
            for (segment,) in self._run(f"SELECT number FROM segments ORDER BY number DESC LIMIT {_SPOKEN_IN}"):
                self._run(
                    f"CREATE VIRTUAL TABLE IF NOT EXISTS temp.vocabulary_{segment}"
                    f" USING fts5vocab(main, words_{segment}, row)"
                )
                rows = self._run(
                    f"SELECT term FROM temp.vocabulary_{segment} WHERE term >= ? AND term < ? LIMIT ?",
                    (begin, end, limit),
                )
                terms += [term for (term,) in rows]
        return terms

    def problems(self) -> Sequence[str]:
        """Check it (see `WordIndex.problems`)."""
        self.begin()
        try:
            problems = [row[0] for row in self._run("PRAGMA integrity_check(10)") if row[0] != "ok"]
            segments = self._run("SELECT number, first_doc, next_doc, end_doc FROM segments")
            for segment, first, after, end in segments:
                self._run(f"INSERT INTO words_{segment} (words_{segment}) VALUES ('integrity-check')")
                ((count,),) = self._run("SELECT count(*) FROM texts WHERE doc >= ? AND doc < ?", (first, end))
                if count != after - first:
                    problems.append(f"segment {segment}: {count} texts of {after - first}")
        finally:
            self.roll_back()
        return problems

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Read one moment: another process may remove a segment between two statements."""
        self._run("BEGIN")
        try:
            yield
        finally:
            self.roll_back()

    def roll_back(self) -> None:
        """Take back changes that were not committed."""
        if self._connection.in_transaction:
            self._connection.rollback()
        if self._has_lock:
            self._unlock()

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()


def _may_have(bits: bytes, wanted: str) -> bool:
    return may_have(bits, _groups(wanted))


@lru_cache(maxsize=16)
def _groups(wanted: str) -> Pairs:
    return cast("Pairs", json.loads(wanted))


def _stamp(version: int) -> int:
    return version * 100 + SCHEMA


def _match(wanted: Wanted) -> str:
    """Return a need as a query of a full-text table."""
    groups = [" OR ".join(f'"{mark}"' for mark in group) for group in wanted.marks]
    need = wanted.need.written('"{}"', '"{}"*', " AND ", " OR ")
    return " AND ".join([*(f"({group})" for group in groups if group), need])
