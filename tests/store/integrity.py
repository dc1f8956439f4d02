"""Adapters of a store for `agmi-check` (PyPI `agent-memory-integrity`): nine edits on either database.

``agmi-check --adapter tests.store.integrity:SqliteFile`` runs one by hand. The writer of each is a plain program
with the database alone. One that `recomputes` also brings every digest up to date that needs no key.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any, ClassVar, Protocol

from agmi.adapters.base import MemoryAdapter, Record

import flue_py.sync
from flue_py.core.chain import NO_PARENT, Chain
from flue_py.db.sql import PLACE, SESSION_COLUMNS
from flue_py.errors import CorruptStore, HistoryPutBack
from flue_py.sessions.witnesses import FileWitness
from tests.postgres import connect

SESSION, OTHER = "a", "b"
CONTENT = ("kind", "role", "source", "created_at", "counted", "digest", "blob", "packed", "extra", "payload")
"""What moves when an entry is put in the place of another: all but its id, its place and the sums to it."""


class Database(Protocol):
    """The database of a store, as a program with nothing but access to it sees it."""

    target: str

    def run(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement whose parameters are ``?``."""

    def copy(self) -> object:
        """Return a copy of everything that is stored."""

    def put_back(self, copy: Any) -> None:
        """Put a copy in the place of what is stored."""

    def remove(self) -> None:
        """Remove it."""


class SqliteDatabase:
    """A file."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="flue-py-integrity-"))
        self.target = str(self._folder / "s.db")

    def run(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.target)) as connection, connection:
            return connection.execute(sql, values).fetchall()

    def copy(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self._folder.iterdir() if path.is_file()}

    def put_back(self, copy: dict[str, bytes]) -> None:
        for path in self._folder.iterdir():
            path.unlink()
        for name, data in copy.items():
            (self._folder / name).write_bytes(data)

    def remove(self) -> None:
        shutil.rmtree(self._folder)


class PostgresDatabase:
    """A database on a server, which is there and empty."""

    def __init__(self, url: str) -> None:
        self.target = url
        self._loop = asyncio.new_event_loop()
        self._connection = self._loop.run_until_complete(connect(url, session_replication_role="replica"))

    def run(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        for number in range(1, len(values) + 1):
            sql = sql.replace("?", f"${number}", 1)
        return [tuple(row) for row in self._loop.run_until_complete(self._connection.fetch(sql, *values))]

    def _tables(self) -> list[str]:
        return [name for (name,) in self.run("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]

    def copy(self) -> dict[str, list[tuple[Any, ...]]]:
        return {table: self.run(f"SELECT t FROM {table} t") for table in self._tables()}

    def put_back(self, copy: dict[str, list[tuple[Any, ...]]]) -> None:
        for table, rows in copy.items():
            self.run(f"DELETE FROM {table}")
            for (row,) in rows:
                marks = ", ".join("?" * len(row))
                self.run(f"INSERT INTO {table} VALUES ({marks})", *row)

    def remove(self) -> None:
        self._loop.run_until_complete(self._connection.close())
        self._loop.close()


class Adapter(MemoryAdapter):
    """A store with two sessions, each of one entry for a record; `verify` opens it and reads the first."""

    name = "flue_py"
    supports_replay = supports_metadata = supports_snapshot = True
    recomputes = is_witnessed = False
    options: ClassVar[dict[str, Any]] = {}
    _database: Database

    def new_database(self) -> Database:
        """Return an empty database."""
        return SqliteDatabase()

    # -- what the tool does

    def open(self) -> AbstractContextManager[flue_py.sync.Store]:
        """Return the store, as an agent opens it."""
        witness = self._witness if self.is_witnessed else None
        return flue_py.sync.open(
            self._database.target, prices=False, durability="normal", witness=witness, **self.options
        )

    def setup(self) -> None:
        self._database = self.new_database()
        self._elsewhere = tempfile.TemporaryDirectory()
        self._witness = FileWitness(f"{self._elsewhere.name}/heads")
        self._was_edited = False

    def teardown(self) -> None:
        self._database.remove()
        self._elsewhere.cleanup()

    def seed(self, n: int) -> None:
        self._write(SESSION, [f"record {number}" for number in range(n)])

    def seed_other(self, n: int) -> None:
        self._write(OTHER, [f"another record {number}" for number in range(n)])

    def append_genuine(self) -> None:
        self._write(SESSION, ["a late record"])

    def _write(self, key: str, texts: Sequence[str]) -> None:
        with self.open() as store:
            session = store.open_session(key, mode="get_or_create")
            for text in texts:
                session.append_message({"role": "user", "content": text}, source="prompt")

    def reload(self) -> None:
        """Let the writer finish; the next call opens the store anew."""
        if self.recomputes and self._was_edited:
            self._bring_up_to_date()
        self._was_edited = False

    def verify(self) -> bool:
        """Return whether the store serves the session as whole: by what an agent reads, or by `verify`."""
        try:
            with self.open() as store:
                if self.detection_point == "audit":
                    problems = store.verify().problems
                    self.verify_detail = "; ".join(str(problem) for problem in problems)
                    return not problems
                session = store.open_session(SESSION)
                session.build_context()
                session.get_active_path()
        except (CorruptStore, HistoryPutBack) as error:
            self.verify_detail = str(error)
            return False
        return True

    detection_point = "read"

    # -- what a program does behind its back

    def _key_of(self, session: str) -> tuple[int, int]:
        ((session_key, tree_id),) = self._database.run(
            "SELECT session_key, tree_id FROM sessions WHERE key = ?", session
        )
        return session_key, tree_id

    def _read(self, session: str) -> list[Record]:
        run = self._database.run
        if not run("SELECT 1 FROM sessions WHERE key = ?", session):
            return []
        names = self._columns()
        rows = run(f"SELECT {', '.join(names)} FROM entries WHERE tree_id = ? ORDER BY depth", self._key_of(session)[1])
        return [Record(number, dict(zip(names, row, strict=True))) for number, row in enumerate(rows)]

    def _columns(self) -> list[str]:
        if isinstance(self._database, SqliteDatabase):
            return [row[1] for row in self._database.run("PRAGMA table_info(entries)")]
        sql = "SELECT column_name FROM information_schema.columns WHERE table_name = 'entries'"
        return [name for (name,) in self._database.run(f"{sql} AND table_schema = 'public' ORDER BY ordinal_position")]

    def read_all_raw(self) -> list[Record]:
        return self._read(SESSION)

    def read_other_raw(self) -> list[Record]:
        return self._read(OTHER)

    def write_raw(self, record: Record) -> None:
        records = self.read_all_raw()
        if record.seq < len(records):
            self._put(records[record.seq], record)
            return
        names, marks = ", ".join(record.fields), ", ".join("?" * len(record.fields))
        self._edit(f"INSERT INTO entries ({names}) VALUES ({marks})", *record.fields.values())
        self._set_leaf()

    def _edit(self, sql: str, *values: object) -> None:
        self._was_edited = True
        self._database.run(sql, *values)

    def _put(self, place: Record, content: Record) -> None:
        columns = ", ".join(f"{name} = ?" for name in CONTENT)
        values = [content.fields[name] for name in CONTENT]
        self._edit(f"UPDATE entries SET {columns} WHERE id = ?", *values, place.fields["id"])

    def _set_leaf(self) -> None:
        """Make the last entry that is there the leaf: what a writer does who wants his version to be read."""
        records = self.read_all_raw()
        sql = "UPDATE sessions SET leaf = ?, entry_count = ?, message_count = ? WHERE key = ?"
        self._edit(sql, records[-1].fields["id"], len(records), len(records), SESSION)

    def delete_raw(self, seq: int) -> None:
        records = self.read_all_raw()
        self._edit("DELETE FROM entries WHERE id = ?", records[seq].fields["id"])
        if seq == len(records) - 1:
            self._set_leaf()

    def replay_onto(self, victim_seq: int, donor: Record) -> None:
        self._put(self.read_all_raw()[victim_seq], donor)

    def read_meta(self, seq: int) -> dict[str, Any]:
        fields = self.read_all_raw()[seq].fields
        return {name: fields[name] for name in ("source", "created_at")}

    def write_meta(self, seq: int, meta: dict[str, Any]) -> None:
        sql = "UPDATE entries SET source = ?, created_at = ? WHERE id = ?"
        entry_id = self.read_all_raw()[seq].fields["id"]
        self._edit(sql, "skill", meta["created_at"] + 1_000_000, entry_id)

    def mutate_payload(self, record: Record) -> Record:
        record.fields["payload"] = record.fields["payload"].replace("record", "decoy")
        return record

    def forge_record(self, template: Record) -> Record:
        fields = {**template.fields, "id": "f" * 16, "parent_id": template.fields["id"]}
        fields["depth"] += 1
        fields["revision"] += 1
        return self.mutate_payload(Record(template.seq + 1, fields))

    def snapshot_store(self) -> object:
        return self._database.copy()

    def restore_store(self, token: object) -> None:
        self._database.put_back(token)

    def _bring_up_to_date(self) -> None:
        """Join the entries that are there, and give them and the session the digests that need no key."""
        chain, above, parent = Chain(), NO_PARENT, None
        names = ("id", "kind", "role", "source", "revision", "ordinal", "created_at", "extra")
        for depth, record in enumerate(self.read_all_raw()):
            row = record.fields
            above = chain.digest(above, tuple(row[name] for name in names), row["payload"].encode())
            sql = "UPDATE entries SET depth = ?, parent_id = ?, digest = ? WHERE id = ?"
            self._edit(sql, depth, parent, above, row["id"])
            parent = row["id"]
        self._set_leaf()
        names = ", ".join(f'"{name}"' for name in (*PLACE, *SESSION_COLUMNS))
        ((*row,),) = self._database.run(f"SELECT {names} FROM sessions WHERE key = ?", SESSION)
        head = chain.head(above, (*row[: len(PLACE)], row[len(PLACE) :]))
        self._edit("UPDATE sessions SET head = ? WHERE key = ?", head, SESSION)

    # -- what the suite compares

    def identity_of(self, record: Record) -> str:
        return str(record.fields["id"])

    def payload_of(self, record: Record) -> str:
        return str(record.fields["payload"])

    def owner_of(self, record: Record) -> str:
        return str(record.fields["tree_id"])


class SqliteFile(Adapter):
    """A file, and a writer who changes no digest."""
