"""Databases of older formats, each made by the code of its format, and everything it answered then.

`make` and `answers` ran with that code once (``python -m tests.migrations.older_formats FORMAT FOLDER``); what they
gave is in tests/data. They ask for nothing that the format did not have, so that they can be asked of every later one.
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

from flue_py.core.calls import PaidCall
from flue_py.core.entries import NewEntry
from flue_py.core.listing import Ordering
from flue_py.core.log import Note
from flue_py.core.sessions import STORED, NewSession, SessionInfo
from flue_py.core.usage import UsageTotals
from flue_py.sessions.store import Store
from flue_py.store.sqlite.runner import open_sqlite
from flue_py.testing.samples import (
    PICTURE,
    add,
    assistant,
    compaction,
    new_session,
    path_ids,
    pictured,
    snapshot,
    talk,
    user,
)
from flue_py.testing.sources import counted_sources
from flue_py.testing.whole_stores import NOISE, make_everything
from flue_py.transfer.importing.run import import_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flue_py.core.entries import Entry
    from flue_py.core.jsontext import JsonObject, JsonValue
    from flue_py.store.backend import Backend

DATA = Path(__file__).parents[1] / "data"
OLDER_FORMATS = (1, 2, 3)

AT = "2026-01-14T00:00:0{}.000Z"
CLAUDE_SESSION = "11111111-1111-4111-8111-111111111111"
TASKS = (f"{CLAUDE_SESSION}:abc", "thread-1", "thread-2", "lonely")
"""Sessions of sub-agents, which format 2 imported as root sessions."""


def claude_row(kind: str, uuid: str, parent: str | None, content: JsonValue, **fields: JsonValue) -> JsonObject:
    message: JsonObject = {"role": kind, "content": content}
    if kind == "assistant":
        message |= {"id": f"m-{uuid}", "model": "claude-opus-4-5", "usage": {"input_tokens": 9, "output_tokens": 2}}
    place: JsonObject = {"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": CLAUDE_SESSION, "cwd": "/w"}
    return {**place, "timestamp": AT.format(uuid[-1]), "isSidechain": False, "message": message, **fields}


def _thread(name: str, parent: str | None) -> list[JsonObject]:
    source: JsonValue = "cli"
    if parent is not None:
        source = {"subagent": {"thread_spawn": {"parent_thread_id": parent, "depth": 1}}}
    said: JsonObject = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"to {name}"}]}
    answer: JsonObject = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}
    meta: JsonObject = {"id": name, "cwd": "/w", "source": source, "timestamp": AT.format(1)}
    rows: list[tuple[str, JsonObject]] = [("session_meta", meta), ("response_item", said), ("response_item", answer)]
    return [
        {"timestamp": AT.format(number + 2), "type": kind, "payload": payload}
        for number, (kind, payload) in enumerate(rows)
    ]


SUB_AGENTS: dict[str, list[JsonObject]] = {
    f"{CLAUDE_SESSION}.jsonl": [
        claude_row("user", "u1", None, "look around"),
        claude_row("assistant", "a2", "u1", [{"type": "tool_use", "id": "t1", "name": "Task", "input": {}}]),
        claude_row("user", "s3", None, "look", isSidechain=True, agentId="abc"),
        claude_row("assistant", "s4", "s3", [{"type": "text", "text": "seen"}], isSidechain=True, agentId="abc"),
        claude_row("user", "r5", "a2", [{"type": "tool_result", "tool_use_id": "t1", "content": "seen"}]),
    ],
    "thread-1.jsonl": _thread("thread-1", "thread-0"),
    "thread-0.jsonl": _thread("thread-0", None),
    "thread-2.jsonl": _thread("thread-2", "thread-1"),
    "lonely.jsonl": _thread("lonely", "never came"),
}
"""Files of programs with sub-agents: parents before and after their tasks, a task of a task, and one without parent."""

INFO_FIELDS = (
    "id", "scope", "key", "title", "kind", "forked_from_session", "forked_from_entry", "leaf_id", "revision",
    "metadata_text", "cwd", "config_path", "completed_us", "trashed_us", "entry_count", "message_count",
    "first_message", "spent_tokens", "spent_picodollars", "created_us", "updated_us",
)  # fmt: skip
ENTRY_FIELDS = (
    "id", "parent_id", "session_id", "kind", "role", "source", "depth", "revision", "ordinal", "created_us", "extra",
)  # fmt: skip
BUDGET_FIELDS = ("id", "scope", "covers", "session_id", "unit", "allowed", "spent", "reserved", "seeded")


async def make(path: Path, number: int) -> None:
    """Make a store with something of everything that a format had."""
    backend = await open_sqlite(path, sources=counted_sources())
    try:
        main = await make_everything(backend)
        ids = await path_ids(backend, main.id)
        fork = await backend.fork(main.id, ids[1], NewSession(title="Another try"))
        await backend.append(fork.id, talk(6, start=10), idempotency_key="six")
        await backend.append(fork.id, [compaction(ids[1], "shorter", tokens=100, dollars=0.25), *talk(2)])
        await backend.move(fork.id, ids[0], reason="rewind")
        await backend.undo(fork.id, note=Note("somebody"))
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
        if number > 1:
            await _make_format_2(backend, main.id, fork.id, path.parent)
        if number > 2:
            await _make_format_3(backend, main.id, fork.id, grandchild.id)
    finally:
        await backend.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("VACUUM")


async def _make_format_2(backend: Backend, main: str, fork: str, folder: Path) -> None:
    """Make what format 2 added: budgets, edits with reasons, a call without a price; and imports with sub-agents."""
    await backend.update_session(fork, auto_title="Made by a program", note=Note("a program", "it had none"))
    await backend.undo(fork, note=Note("somebody", "not so"))
    await backend.record_call(
        fork, PaidCall(UsageTotals(input=9, total_tokens=9), "a", "m", "no price", outcome="error")
    )
    store = Store(backend)
    await store.set_budget(main, tokens=100_000)
    await store.set_budget(scope="s", cost="2.50")
    session = await store.get_session(main)
    assert session is not None
    used = await session.reserve(tokens=500)
    await session.commit(used, tokens=300)
    await session.reserve(tokens=700, cost="0.25")
    for name, rows in SUB_AGENTS.items():
        file = folder / name
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        await import_file(store, file, finish=True)


async def _make_format_3(backend: Backend, main: str, fork: str, task: str) -> None:
    """Make what format 3 added: how tasks ended, usage of which nothing is known, settings, what was cut out twice."""
    await backend.end_task(task, "failed", summary="it broke", note=Note("somebody"))
    unknown = UsageTotals()
    await backend.record_call(fork, PaidCall(unknown, "a", "m", "unknown", is_unknown=True))
    answer = assistant("seen", tokens=90, dollars=0.5, provider="a", model="m")
    await add(
        backend, main, NewEntry.custom("model_change", {"provider": "a", "modelId": "m"}), pictured(PICTURE), answer
    )


def _described(entry: Entry) -> list[JsonValue]:
    payload = sha256(entry.payload.encode()).hexdigest()[:16]
    return [*(getattr(entry, name) for name in ENTRY_FIELDS), payload]


async def answers(backend: Backend, number: int) -> JsonObject:
    """Return what every read of a store answers that a format had, as JSON: by id, payloads by their digest."""
    page = await backend.list_sessions(scope=None, kind=None, limit=1_000, cursor=None, ordering=Ordering("updated"))
    info = await backend.info()
    payers = await backend.list_gone_payers(-1, 1_000)
    found: JsonObject = {
        "store": [info.sessions, info.entries, info.ledger_rows, (await backend.verify()).problems == []],
        "listed": [session.id for session in page.sessions],
        "sessions": {session.id: await _told(backend, session) for session in page.sessions},
        "gone": sorted([gone.payer.session_id, sorted(call.call_id for call in gone.calls)] for gone in payers),
        "paid": await _paid(backend),
    }
    if number > 1:
        found |= await _answers_of_format_2(backend, page.sessions)
    if number > 2:
        found["format 3"] = {session.id: await _told_in_format_3(backend, session) for session in page.sessions}
    return found


async def _answers_of_format_2(backend: Backend, sessions: Sequence[SessionInfo]) -> JsonObject:
    edits: list[JsonValue] = []
    for head in await backend.list_trees(-1, 1_000):
        tree = await backend.read_whole_tree(head.tree_id)
        assert tree is not None
        names = {session.session_key: session.id for session in tree.sessions}
        edits += [[names[edit.session_key], *edit[1:]] for edit in tree.edits]
        edits += [[names[move.session_key], move.revision, move.why] for move in tree.moves]
    main = next(each for each in sessions if each.key == "main")
    log = await backend.read_log(main.id, before=None, limit=100)
    budgets = await backend.list_budgets(scope=None, after=None, limit=100)
    return {
        "titles": {each.id: [each.auto_title, each.unpriced_calls] for each in sessions},
        "edits": sorted(edits, key=json.dumps),
        "log": [[each.revision, each.what, each.by, each.why, each.words, len(each.edits)] for each in log],
        "budgets": [[getattr(each, name) for name in BUDGET_FIELDS] for each in budgets],
    }


async def _told(backend: Backend, session: SessionInfo) -> JsonObject:
    told = await snapshot(backend, session.id)
    context = json.dumps([[entry_id, message] for entry_id, message in told.context])
    usage = told.usage.usage
    by_key = None if session.key is None else await backend.get_session_by_key(session.key, session.scope)
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


async def _told_in_format_3(backend: Backend, session: SessionInfo) -> JsonObject:
    costs = await backend.read_entry_costs(session.id)
    settings = await backend.read_settings(session.id)
    links = await backend.task_links(session.id)
    return {
        "active": [session.active_us, session.unknown_calls],
        "costs": {entry: [cost.calls, cost.unpriced_calls, cost.picodollars] for entry, cost in sorted(costs.items())},
        "settings": [settings.model, settings.provider, settings.thinking_level],
        "links": [[link.child_id, link.entry_id, link.status, link.summary] for link in links],
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


def unpack(number: int, target: Path) -> Path:
    """Write the database of a format to a file; return the file."""
    target.write_bytes(gzip.decompress((DATA / f"format-{number}.db.gz").read_bytes()))
    return target


def recorded(number: int) -> JsonObject:
    """Return what the code of a format answered."""
    found: JsonObject = json.loads(gzip.decompress((DATA / f"format-{number}.json.gz").read_bytes()))
    return found


async def _record(number: int, folder: Path) -> None:
    path = folder / f"format-{number}.db"
    await make(path, number)
    (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    backend = await open_sqlite(path, sources=counted_sources())
    try:
        text = json.dumps(await answers(backend, number), separators=(",", ":"))
    finally:
        await backend.close()
    (folder / f"format-{number}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    asyncio.run(_record(int(sys.argv[1]), Path(sys.argv[2])))
