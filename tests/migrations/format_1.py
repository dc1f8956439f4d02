"""A database of format 1, made by the code of that format, and everything it answered then.

`make` and `answers` ran with that code once (``python -m tests.migrations.format_1 FOLDER``); what they gave is in
tests/data. `answers` asks for nothing that format 1 did not have, so that it can be asked of every later one.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sqlite3
import sys
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from flue_py.core.sessions import STORED, NewSession, SessionInfo
from flue_py.store.sqlite import open_sqlite
from flue_py.testing.samples import add, assistant, compaction, new_session, path_ids, snapshot, talk, user
from flue_py.testing.sources import counted_sources
from flue_py.testing.whole_stores import NOISE, make_everything

if TYPE_CHECKING:
    from flue_py.core.entries import Entry
    from flue_py.core.jsontext import JsonObject, JsonValue
    from flue_py.store.backend import Backend

DATA = Path(__file__).parents[1] / "data"
DATABASE = DATA / "format-1.db.gz"
ANSWERS = DATA / "format-1.json.gz"

INFO_FIELDS = (
    "id", "scope", "key", "title", "kind", "forked_from_session", "forked_from_entry", "leaf_id", "revision",
    "metadata_text", "cwd", "config_path", "completed_us", "trashed_us", "entry_count", "message_count",
    "first_message", "spent_tokens", "spent_picodollars", "created_us", "updated_us",
)  # fmt: skip
ENTRY_FIELDS = (
    "id", "parent_id", "session_id", "kind", "role", "source", "depth", "revision", "ordinal", "created_us", "extra",
)  # fmt: skip


async def make(path: Path) -> None:
    """Make a store with something of everything."""
    backend = await open_sqlite(path, sources=counted_sources())
    try:
        main = await make_everything(backend)
        ids = await path_ids(backend, main.id)
        fork = await backend.fork(main.id, ids[1], NewSession(title="Another try"))
        await backend.append(fork.id, talk(6, start=10), idempotency_key="six")
        await backend.append(fork.id, [compaction(ids[1], "shorter", tokens=100, dollars=0.25), *talk(2)])
        await backend.move(fork.id, ids[0], reason="rewind")
        await backend.undo(fork.id, by="somebody")
        await backend.undo(fork.id)
        await backend.redo(fork.id)
        child = await backend.create_task(main.id, "review", NewSession(metadata_text='{"role": "reviewer"}'))
        grandchild = await backend.create_task(child.id, "lint", NewSession())
        await add(backend, grandchild.id, user(NOISE), assistant("read it", tokens=900, dollars=1.5))
        await backend.link_task(fork.id, child.id, "shared")
        parent = await new_session(backend, *talk(3), scope="s")
        heir = await backend.fork(parent.id, STORED, NewSession(key="heir"))
        await add(backend, heir.id, *talk(2, start=3))
        await backend.delete_tree(parent.id)
        await backend.create_session(NewSession(title='quoted "title"', cwd="/work", metadata_text='{"b": [1, null]}'))
    finally:
        await backend.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("VACUUM")


def _described(entry: Entry) -> list[JsonValue]:
    payload = sha256(entry.payload.encode()).hexdigest()[:16]
    return [*(getattr(entry, name) for name in ENTRY_FIELDS), payload]


async def answers(backend: Backend) -> JsonObject:
    """Return what every read of a store answers, as JSON: sessions and entries by id, payloads by their digest."""
    page = await backend.list_sessions(scope=None, kind=None, limit=1_000, cursor=None)
    info = await backend.info()
    payers = await backend.list_gone_payers(-1, 1_000)
    return {
        "store": [info.sessions, info.entries, info.ledger_rows, (await backend.verify()).problems == []],
        "listed": [session.id for session in page.sessions],
        "sessions": {session.id: await _told(backend, session) for session in page.sessions},
        "gone": sorted([gone.payer.session_id, sorted(call.call_id for call in gone.calls)] for gone in payers),
        "paid": await _paid(backend),
    }


async def _told(backend: Backend, session: SessionInfo) -> JsonObject:
    told = await snapshot(backend, session.id)
    context = json.dumps([[entry_id, message] for entry_id, message in told.context])
    usage = told.usage.usage
    by_key = None if session.key is None else await backend.find_session(session.key, session.scope)
    return {
        "info": [getattr(told.info, name) for name in INFO_FIELDS],
        "by key": None if by_key is None else by_key.id,
        "path": [entry.id for entry in told.path],
        "context": [[entry_id for entry_id, _ in told.context], sha256(context.encode()).hexdigest()[:16]],
        "tree": [_described(entry) for entry in told.tree],
        "usage": [usage.input, usage.total_tokens, usage.cost.total, told.usage.leaf],
        "turns": [entry.id for entry in told.turns],
        "marks": [[mark.entry_id, mark.kind, mark.value] for mark in told.marks],
        "changes": [
            [each.revision, each.reason, [entry.id for entry in each.entries], each.from_id, each.to_id, each.at_us]
            for each in told.changes
        ],
        "links": [[link.parent_id, link.position, link.task_id, link.child_id] for link in told.links],
        "parents": [[link.parent_id, link.position, link.task_id] for link in told.parents],
    }


async def _paid(backend: Backend) -> list[JsonValue]:
    """Return the ledger's rows of the sessions that are there, and the requests that a retry is recognised by."""
    rows: list[JsonValue] = []
    for head in await backend.list_trees(-1, 1_000):
        tree = await backend.read_whole_tree(head.tree_id)
        assert tree is not None
        names = {payer.session_key: payer.session_id for payer in tree.payers}
        names |= {session.session_key: session.id for session in tree.sessions}
        rows += [
            [names[call.session_key], call.call_id, call.entry_id, call.purpose, call.tokens, call.cost]
            for call in tree.calls
        ]
        rows += [[names[each.session_key], each.idempotency_key, each.operation, each.result] for each in tree.requests]
        rows += [[names[move.session_key], move.revision, move.undoes, move.moved_by] for move in tree.moves]
    return sorted(rows, key=json.dumps)


def unpack(target: Path) -> Path:
    """Write the database of format 1 to a file; return the file."""
    target.write_bytes(gzip.decompress(DATABASE.read_bytes()))
    return target


def recorded() -> JsonObject:
    """Return what the code of format 1 answered."""
    found: JsonObject = json.loads(gzip.decompress(ANSWERS.read_bytes()))
    return found


async def _record(folder: Path) -> None:
    path = folder / "format-1.db"
    await make(path)
    (folder / DATABASE.name).write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    backend = await open_sqlite(path, sources=counted_sources())
    try:
        text = json.dumps(await answers(backend), separators=(",", ":"))
    finally:
        await backend.close()
    (folder / ANSWERS.name).write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    asyncio.run(_record(Path(sys.argv[1])))
