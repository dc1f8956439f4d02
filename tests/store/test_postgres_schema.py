"""The database, read with `psql` and docs/format.md alone, without flue_py."""

from __future__ import annotations

import zlib
from hashlib import blake2b, sha256

from asyncpg import IntegrityConstraintViolationError

from flue_py.core.sessions import NewSession
from tests.checks import raises
from tests.migrations.postgres_catalog import query, run_script
from tests.postgres import NewDatabase
from tests.samples import add, assistant, new_session, path_of, talk, user
from tests.store.sqlite_batches import opened_on_engine
from tests.store.test_schema import HISTORY, NOISE, TREES, branches, history_of


async def test_the_view_tells_each_entrys_parent_as_the_store_does(new_database: NewDatabase) -> None:
    url = new_database()
    async with opened_on_engine(url) as backend:
        await branches(backend)
        rows = await query(url, HISTORY)
        assert {*rows} == await history_of(backend, await query(url, TREES))
        assert len(rows) == 12


async def test_every_payload_is_text_a_zlib_stream_or_a_blob_with_its_digest(new_database: NewDatabase) -> None:
    url = new_database()
    async with opened_on_engine(url) as backend:
        session = await new_session(backend, *talk(2), user("y" * 3_000), user(NOISE))
        texts = {each.id: each.payload for each in await backend.read_tree(session.id)}
    rows = await query(
        url,
        "SELECT e.id, e.digest, e.blob, b.size, e.payload, e.packed, b.data, e.kind,"
        " (SELECT p.digest FROM entries p WHERE p.tree_id = e.tree_id AND p.id = e.parent_id) FROM entries e"
        " LEFT JOIN blobs b ON b.tree_id = e.tree_id AND b.sha256 = e.blob",
    )
    assert {row[0] for row in rows} == set(texts)
    assert [sum(row[n] is not None for row in rows) for n in (4, 5, 6)] == [2, 1, 1]
    for id_, digest, blob, size, payload, packed, data, kind, above in rows:
        text = payload.encode() if payload is not None else zlib.decompress(packed if packed is not None else data)
        assert text.decode() == texts[id_]
        covered = f"{kind}\0".encode() + (above or bytes(8))[:8] + text
        assert blake2b(covered, digest_size=8).digest() == digest[:8]
        if blob is not None:
            assert (sha256(text).digest(), len(text)) == (blob, size)


BREAKING = [
    "UPDATE sessions SET kind = 'other'",
    "UPDATE sessions SET id = 'one'",
    "UPDATE sessions SET key = 'same', scope = ''",
    "UPDATE entries SET packed = '\\x00'",
    "UPDATE entries SET payload = NULL, packed = NULL, blob = NULL",
    "UPDATE entries SET id = 'one'",
    "UPDATE entries SET depth = 0",
    "UPDATE entries SET digest = NULL",
    "UPDATE lanes SET fork_depth = 5",
    "UPDATE lanes SET lane_id = 1",
    "INSERT INTO marks (session_key, entry_id, kind, at) SELECT session_key, 'x', 'other', 0 FROM sessions",
    "INSERT INTO marks (session_key, entry_id, kind, at) VALUES (999, 'x', 'label', 0)",
    "INSERT INTO requests (session_key, idempotency_key, operation, digest, result) VALUES (999, '', '', '', '')",
    "INSERT INTO leaf_moves (session_key, revision, reason, at) VALUES (999, 1, 'move', 0)",
    "INSERT INTO task_links (parent_key, position, task_id, child_id) VALUES (999, 0, 't', 'c')",
    "INSERT INTO ledger SELECT * FROM ledger",
]


async def test_a_row_that_would_break_the_format_is_refused(new_database: NewDatabase) -> None:
    url = new_database()
    async with opened_on_engine(url) as backend:
        root = await new_session(backend, *talk(3), assistant("c", tokens=5, dollars=0.25), key="main")
        ids = [each.id for each in await path_of(backend, root.id)]
        fork = await backend.fork(root.id, ids[1], NewSession(key="side"))
        await add(backend, fork.id, *talk(1))
    for sql in BREAKING:
        await raises(IntegrityConstraintViolationError, run_script(url, sql))
