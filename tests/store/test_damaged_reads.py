"""No read returns a damaged entry: it raises an error that names the session and the entry."""

from __future__ import annotations

import os
import re
import sqlite3
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from random import Random

import pytest

import flue_py
from flue_py.core.entries import NewEntry
from flue_py.core.sessions import NewSession, SessionInfo
from flue_py.db.backend import Backend
from flue_py.db.engine import open_engine
from flue_py.db.sqlite.runner import open_sqlite
from flue_py.db.tables import metadata
from flue_py.errors import MISMATCH, CorruptStore
from tests.checks import raises
from tests.postgres import NewDatabase, connected
from tests.samples import add, compaction, new_session, path_ids, user
from tests.sources import counted_sources
from tests.tables import inputs

NOISE = "".join(Random(7).choices("abcdefghijklmnopqrstuvwxyz0123456789-", k=60_000))
OTHER = '{"role":"user","content":"approve: YES"}'
TIERS = {"text": "approve: NO", "packed": "approve: NO " * 100, "blob": NOISE}

Read = Callable[[Backend, str, str], Awaitable[object]]

READS: dict[str, Read] = {
    "path": lambda backend, session, entry: backend.read_path(session),
    "path at a leaf": lambda backend, session, entry: backend.read_path(session, leaf=entry),
    "path since": lambda backend, session, entry: backend.read_path_since(session, None),
    "context": lambda backend, session, entry: backend.read_context(session),
    "messages": lambda backend, session, entry: backend.read_messages(session),
    "messages at a leaf": lambda backend, session, entry: backend.read_messages(session, leaf=entry),
    "entry": lambda backend, session, entry: backend.get_entry(session, entry),
    "tree": lambda backend, session, entry: backend.read_tree(session),
    "turns": lambda backend, session, entry: backend.read_turns(session),
    "changes": lambda backend, session, entry: backend.changes(session, 0, 10),
    "log": lambda backend, session, entry: backend.read_log(session, before=None, limit=10),
}


async def make(backend: Backend, tier: str) -> tuple[SessionInfo, str]:
    """A session of three batches whose middle one begins with a message of a tier; and that message's id."""
    session = await new_session(backend, user("before"))
    (entry, *_) = await add(backend, session.id, user(TIERS[tier]), user("beside"))
    await add(backend, session.id, user("after"))
    return session, entry


@asynccontextmanager
async def opened(path: Path, runner: str) -> AsyncIterator[Backend]:
    open_it = (
        open_engine(f"sqlite+aiosqlite:///{path}", sources=counted_sources())
        if runner == "aiosqlite"
        else open_sqlite(path, sources=counted_sources(), durability="normal")
    )
    backend = await open_it
    try:
        yield backend
    finally:
        await backend.close()


def change(path: Path, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(sql, values).rowcount == 1
        connection.commit()


async def refused(backend: Backend, session: SessionInfo, entry: str) -> None:
    for name, read in READS.items():
        told = await raises(CorruptStore, read(backend, session.id, entry))
        words = f"session {session.id!r}: entry {entry!r} "
        assert str(told.value).startswith(words), name
        assert re.search("verify.*backup.*salvage", str(told.value)), name


SQLITE = {
    "text": ("UPDATE entries SET payload = ? WHERE id = ?", OTHER),
    "packed": ("UPDATE entries SET packed = ? WHERE id = ?", zlib.compress(OTHER.encode())),
    "no stream": ("UPDATE entries SET packed = ? WHERE id = ?", b"no zlib stream"),
    "no UTF-8": ("UPDATE entries SET payload = CAST(? AS TEXT) WHERE id = ?", b'{"role":"user","content":"\xff\xfe"}'),
    "digest": ("UPDATE entries SET digest = ? WHERE id = ?", b"\0" * 16),
    "no digest": ("UPDATE entries SET digest = ? WHERE id = ?", "text"),
}


@inputs("runner", ["sqlite3", "aiosqlite"])
@inputs("damage", SQLITE)
async def test_every_read_refuses_a_payload_that_was_changed(tmp_path: Path, damage: str, runner: str) -> None:
    path = tmp_path / "s.db"
    async with opened(path, runner) as backend:
        session, entry = await make(backend, "packed" if damage in ("packed", "no stream") else "text")
    sql, value = SQLITE[damage]
    change(path, sql, value, entry)
    async with opened(path, runner) as backend:
        await refused(backend, session, entry)
        ids = await path_ids(backend, (await new_session(backend, user("fine"))).id)
        assert len(ids) == 1
        assert f"entry {entry}" in {problem.where for problem in (await backend.verify()).problems}


@inputs("runner", ["sqlite3", "aiosqlite"])
@inputs("data", [zlib.compress(b"{}"), b"no zlib stream", None])
async def test_every_read_refuses_a_blob_that_was_changed_or_is_lost(
    tmp_path: Path, data: bytes | None, runner: str
) -> None:
    path = tmp_path / "s.db"
    async with opened(path, runner) as backend:
        session, entry = await make(backend, "blob")
    if data is None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA foreign_keys = OFF")
            connection.execute("DELETE FROM blobs")
            connection.commit()
    else:
        change(path, "UPDATE blobs SET data = ?", data)
    async with opened(path, runner) as backend:
        await refused(backend, session, entry)


@inputs("tier", ["text", "packed", "blob"])
async def test_postgresql_refuses_it_too(new_database: NewDatabase, tier: str) -> None:
    url = new_database()
    backend = await open_engine(url, sources=counted_sources())
    try:
        session, entry = await make(backend, tier)
        async with connected(url) as connection:
            if tier == "text":
                await connection.execute("UPDATE entries SET payload = $1 WHERE id = $2", OTHER, entry)
            elif tier == "packed":
                packed = zlib.compress(OTHER.encode())
                await connection.execute("UPDATE entries SET packed = $1 WHERE id = $2", packed, entry)
            else:
                await connection.execute("UPDATE blobs SET data = $1", zlib.compress(OTHER.encode()))
        await refused(backend, session, entry)
    finally:
        await backend.close()


COLUMNS = [column.name for column in metadata.tables["entries"].columns]
NEXT = {"depth": "depth + 1", "id": "'forged'", "parent_id": "id"}
FORGED = ", ".join(NEXT.get(name, name) for name in COLUMNS)


def all_of(entry: str) -> str:
    """Return what puts the text and the digest of another entry in the place of one's own."""
    columns = ("kind", "role", "payload", "digest")
    return ", ".join(f"{name} = (SELECT o.{name} FROM entries o WHERE o.id = '{{{entry}}}')" for name in columns)


EXCHANGED = "(SELECT o.payload FROM entries o WHERE o.id = CASE entries.id WHEN '{b}' THEN '{c}' ELSE '{b}' END)"
EDITS: dict[str, tuple[str, ...]] = {
    "an entry left out": ("DELETE FROM entries WHERE id = '{c}'",),
    "two entries exchanged": (
        "UPDATE entries SET depth = 99 WHERE id = '{b}'",
        "UPDATE entries SET depth = depth - 1 WHERE id = '{c}'",
        "UPDATE entries SET depth = 2 WHERE id = '{b}'",
    ),
    "two texts exchanged": (f"UPDATE entries SET payload = {EXCHANGED} WHERE id IN ('{{b}}', '{{c}}')",),
    "a forged end": (
        f"INSERT INTO entries ({', '.join(COLUMNS)}) SELECT {FORGED} FROM entries WHERE id = '{{leaf}}'",
        "UPDATE sessions SET leaf = 'forged', revision = revision WHERE leaf = '{leaf}'",
    ),
    "an entry of another session": (f"UPDATE entries SET {all_of('other')} WHERE id = '{{c}}'",),
    "an older entry": (f"UPDATE entries SET {all_of('a')} WHERE id = '{{c}}'",),
    "a time": ("UPDATE entries SET created_at = created_at + 1 WHERE id = '{c}'",),
    "the time of a summary": ("UPDATE entries SET created_at = created_at + 1 WHERE id = '{summary}'",),
    "a source": ("UPDATE entries SET source = 'other' WHERE id = '{c}'",),
    "a role": ("UPDATE entries SET role = 'assistant' WHERE id = '{c}'",),
    "further fields": ("UPDATE entries SET extra = '{{}}' WHERE id = '{c}'",),
    "an id": ("UPDATE entries SET id = 'other' WHERE id = '{b}'",),
    "a parent": ("UPDATE entries SET parent_id = '{a}' WHERE id = '{c}'",),
    "a message that became a label": ("UPDATE entries SET kind = 'label' WHERE id = '{c}'",),
    "a note that became a message": ("UPDATE entries SET kind = 'message' WHERE id = '{note}'",),
    "a digest": ("UPDATE entries SET digest = (SELECT digest FROM entries WHERE id = '{a}') WHERE id = '{c}'",),
}
RETURNING = ("path", "context", "messages", "tree")


async def make_edited(backend: Backend) -> tuple[SessionInfo, dict[str, str]]:
    """Make a session with a summary and a note among its messages, and another; return the first, and ids by name."""
    other = await new_session(backend, user("other"))
    others = (NewEntry.branch_summary("far", from_id=None), NewEntry.custom("note", {"role": "user", "content": "n"}))
    session = await new_session(backend, *map(user, "abc"), *others, user("d"))
    names = ("a", "b", "c", "summary", "note", "leaf")
    ids = dict(zip(names, await path_ids(backend, session.id), strict=True))
    return session, ids | {"other": (await path_ids(backend, other.id))[0]}


async def returned_other(backend: Backend, session: SessionInfo, entry: str, before: dict[str, object]) -> list[str]:
    """Return the reads that return something else than before, instead of refusing it."""
    others = []
    for name in RETURNING:
        try:
            if await READS[name](backend, session.id, entry) != before[name]:
                others.append(name)
        except CorruptStore:
            continue
    return others


@inputs("edit", EDITS)
async def test_no_edit_of_a_row_is_returned(tmp_path: Path, edit: str) -> None:
    path = tmp_path / "s.db"
    async with opened(path, "sqlite3") as backend:
        session, ids = await make_edited(backend)
        before = {name: await READS[name](backend, session.id, ids["c"]) for name in RETURNING}
    with closing(sqlite3.connect(path)) as connection:
        for statement in EDITS[edit]:
            assert connection.execute(statement.format(**ids)).rowcount >= 1
        connection.commit()
    async with opened(path, "sqlite3") as backend:
        assert await returned_other(backend, session, ids["c"], before) == []
        await raises(CorruptStore, backend.read_path(session.id))
        assert (await backend.verify()).problems != []


@inputs("value", ["title = X'C3'", "revision = 1.5", "metadata = 7", "head = 'text'", "head = X''"])
async def test_a_row_of_a_session_with_a_value_of_another_type_is_refused_and_named(tmp_path: Path, value: str) -> None:
    path = tmp_path / f"{len(value)}.db"
    async with opened(path, "sqlite3") as backend:
        session = await new_session(backend, user("a"))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"UPDATE sessions SET {value}")
            connection.commit()
        await raises(CorruptStore, backend.get_session(session.id))
        try:
            assert (await backend.list_sessions(scope=None, kind=None, limit=9, cursor=None)).damaged == (session.id,)
        except CorruptStore:
            # No JSON is made of a row with bytes in a text.
            assert "X'C3'" in value
        assert f"session {session.id}" in [problem.where for problem in (await backend.verify()).problems]


async def test_no_edit_of_a_row_is_returned_on_postgresql(new_database: NewDatabase) -> None:
    url = new_database()
    backend = await open_engine(url, sources=counted_sources())
    try:
        session, ids = await make_edited(backend)
        before = {name: await READS[name](backend, session.id, ids["c"]) for name in RETURNING}
        async with connected(url) as connection:
            for edit, statements in EDITS.items():
                await connection.execute("CREATE TABLE kept AS SELECT * FROM entries")
                for statement in statements:
                    await connection.execute(statement.format(**ids))
                assert await returned_other(backend, session, ids["c"], before) == [], edit
                await raises(CorruptStore, backend.read_path(session.id))
                await connection.execute("DELETE FROM entries")
                await connection.execute("INSERT INTO entries SELECT * FROM kept; DROP TABLE kept")
                await connection.execute("UPDATE sessions SET leaf = $1 WHERE leaf = 'forged'", ids["leaf"])
        assert (await backend.verify()).problems == []
    finally:
        await backend.close()


async def test_a_compaction_that_was_changed_is_refused_wherever_it_decides(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with opened(path, "sqlite3") as backend:
        session = await new_session(backend, user("one"), user("two"))
        ids = await path_ids(backend, session.id)
        (entry,) = await add(backend, session.id, compaction(ids[1]))
    change(path, "UPDATE entries SET payload = replace(payload, 'so far', 'so long') WHERE id = ?", entry)
    async with opened(path, "sqlite3") as backend:
        for name in ("path", "context", "messages", "messages at a leaf", "tree"):
            with pytest.raises(CorruptStore, match=f"session '{session.id}': entry '{entry}' does not"):
                await READS[name](backend, session.id, entry)


async def test_a_read_that_does_not_need_the_payload_works(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with opened(path, "sqlite3") as backend:
        session, entry = await make(backend, "text")
    change(path, "UPDATE entries SET payload = ? WHERE id = ?", OTHER, entry)
    async with opened(path, "sqlite3") as backend:
        after = await backend.read_path_since(session.id, entry)
        assert [each.data for each in after.entries] == [
            {"role": "user", "content": "beside"},
            {"role": "user", "content": "after"},
        ]
        await add(backend, session.id, user("and on"))


async def test_a_bundle_does_not_take_what_was_changed_and_a_copy_says_so(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with opened(path, "sqlite3") as backend:
        _, entry = await make(backend, "text")
    change(path, "UPDATE entries SET payload = ? WHERE id = ?", OTHER, entry)
    async with flue_py.open(path, prices=False) as store:
        with pytest.raises(CorruptStore, match=f"entry '{entry}' does not match its digest"):
            await flue_py.write_bundle(store, tmp_path / "all.bundle")
        async with flue_py.open(":memory:", prices=False) as target:
            report = await flue_py.copy_store(store, target)
    told = [("damaged entry", f"entry {entry}", MISMATCH)]
    for problems in (report.source_problems, report.target_problems):
        assert [(problem.kind, problem.where, problem.detail) for problem in problems] == told
    assert [name for name in os.listdir(tmp_path) if "bundle" in name] == []


async def test_lanes_that_fork_from_each_other_in_a_circle_are_refused_and_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with opened(path, "sqlite3") as backend:
        session, entry = await make(backend, "text")
        fork = await backend.fork(session.id, entry, NewSession())
        await add(backend, fork.id, user("in a lane of its own"))
    change(path, "UPDATE lanes SET parent_lane = lane_id WHERE parent_lane IS NOT NULL")
    async with opened(path, "sqlite3") as backend:
        for name in ("path", "context", "messages", "turns"):
            await raises(CorruptStore, READS[name](backend, fork.id, entry), match=fork.id)
