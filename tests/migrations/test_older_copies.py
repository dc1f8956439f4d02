"""Copies of sub-agents' sessions that were made in format 2: after the upgrade they grow, and catch up."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import flue_py
from flue_py.core.trees import SessionHead, TreeHead
from flue_py.store.migrate import migrate as migrate_database
from flue_py.store.sql.transfer import COPY_KEY, COPY_OPERATION
from flue_py.store.sqlite import migrate
from flue_py.testing.whole_stores import told
from tests.edges.cli_runs import Flue
from tests.formats.transcripts import as_lines, import_lines
from tests.migrations.older_formats import AT, CLAUDE_SESSION, SUB_AGENTS, TASKS, claude_row, unpack
from tests.migrations.postgres_catalog import query
from tests.migrations.test_older_formats import fill
from tests.postgres import NewDatabase

if TYPE_CHECKING:
    from flue_py.core.jsontext import JsonObject

pytestmark = pytest.mark.anyio

COLUMNS = ("id", "scope", "key", "kind", "leaf", "revision", "entry_count", "created_at", "updated_at")


def copied_in_format_2(path: Path) -> Path:
    """Make a store of format 2 that holds a copy of another: its sessions bear how their trees were when copied."""
    unpack(2, path)
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(f"SELECT tree_id, session_key, {names} FROM sessions ORDER BY 1, 2").fetchall()
        for tree_id, group in groupby(rows, key=itemgetter(0)):
            members = list(group)
            stamp = TreeHead(tree_id, tuple(SessionHead._make(row[2:]) for row in members)).fingerprint
            connection.executemany(
                "INSERT INTO requests (session_key, idempotency_key, operation, digest, result) VALUES (?, ?, ?, ?, ?)",
                [(row[1], COPY_KEY, COPY_OPERATION, stamp, "0") for row in members],
            )
        connection.commit()
    return path


def grown() -> dict[str, list[JsonObject]]:
    """The files of older_formats, each with more in it: of the parents, and of their sub-agents."""
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]}
    files = {
        name: [*rows, {"timestamp": AT.format(9), "type": "response_item", "payload": said}]
        for name, rows in SUB_AGENTS.items()
    }
    name = f"{CLAUDE_SESSION}.jsonl"
    files[name] = [
        *SUB_AGENTS[name],
        claude_row("user", "s6", "s4", "and more", isSidechain=True, agentId="abc"),
        claude_row("user", "u7", "r5", "go on"),
    ]
    return files


async def test_copies_of_sub_agents_from_format_2_grow_and_are_copied_again(tmp_path: Path) -> None:
    await check(unpack(2, tmp_path / "source.db"), copied_in_format_2(tmp_path / "target.db"), tmp_path)


async def test_copies_of_sub_agents_from_format_2_on_postgresql_grow_and_are_copied_again(
    new_database: NewDatabase, tmp_path: Path
) -> None:
    source, target = new_database(), new_database()
    await fill(source, unpack(2, tmp_path / "source.db"), 2)
    await fill(target, copied_in_format_2(tmp_path / "target.db"), 2)
    await check(source, target, tmp_path)


async def check(source: Path | str, target: Path | str, folder: Path) -> None:
    """Copy, let every file grow, and copy again; then let what was copied grow itself."""
    async with flue_py.open(source) as ours, flue_py.open(target) as theirs:
        first = await flue_py.copy_store(ours, theirs)
        assert (first.refused, first.trees_copied, first.trees_refreshed, first.is_complete) == ((), 0, 0, True)
        for name, rows in grown().items():
            report = await import_lines(ours, folder, as_lines(rows), name, finish=True)
            assert all(session.added for session in report.sessions), name
            assert not (await import_lines(ours, folder, as_lines(rows), name, finish=True)).changed
        for task in TASKS:
            session = await ours.get_session(task)
            assert session is not None
            assert session.info.kind == "task"
            assert await shape(ours, task) == await at_once(task, folder)
        second = await flue_py.copy_store(ours, theirs)
        assert (second.refused, second.trees_copied, second.trees_refreshed, second.is_complete) == ((), 0, 6, True)
        assert await told(theirs.backend) == await told(ours.backend)
        third = await flue_py.copy_store(ours, theirs)
        assert (third.refused, third.trees_refreshed, third.is_complete) == ((), 0, True)
        for name, rows in grown().items():
            assert not (await import_lines(theirs, folder, as_lines(rows), name, finish=True)).changed


async def shape(store: flue_py.Store, session_id: str) -> list[tuple[str, str | None, str | None]]:
    """Return the path of a session: ids, parents and roles (what a message cost is told in other words since)."""
    session = await store.get_session(session_id)
    assert session is not None
    return [(entry.id, entry.parent_id, entry.role) for entry in await session.get_active_path()]


async def at_once(task: str, folder: Path) -> list[tuple[str, str | None, str | None]]:
    """Return the path of a sub-agent's session whose file was imported as a whole."""
    async with flue_py.open(":memory:") as store:
        await import_grown(store, folder)
        return await shape(store, task)


async def import_grown(store: flue_py.Store, folder: Path) -> None:
    for name, rows in grown().items():
        await import_lines(store, folder, as_lines(rows), name, finish=True)


def test_the_command_copies_again_what_it_copied_in_format_2(tmp_path: Path) -> None:
    source, target = unpack(2, tmp_path / "source.db"), copied_in_format_2(tmp_path / "target.db")

    async def grow() -> None:
        async with flue_py.open(source) as store:
            await import_grown(store, tmp_path)

    asyncio.run(grow())
    assert Flue(tmp_path).json("copy", str(source), str(target))["treesRefreshed"] == 6


async def test_a_copy_from_format_2_that_was_changed_is_refused_as_before(tmp_path: Path) -> None:
    source, target = unpack(2, tmp_path / "source.db"), copied_in_format_2(tmp_path / "target.db")
    async with flue_py.open(source) as ours, flue_py.open(target) as theirs:
        session = await theirs.get_session(TASKS[1])
        assert session is not None
        await session.append_message({"role": "user", "content": "here"})
        report = await flue_py.copy_store(ours, theirs)
        assert [refusal.session_id for refusal in report.refused] == [TASKS[1]]


async def test_tasks_are_as_deep_on_postgresql_as_in_a_file(new_database: NewDatabase, tmp_path: Path) -> None:
    url, old = new_database(), unpack(2, tmp_path / "old.db")
    await fill(url, old, 2)
    await migrate_database(url)
    migrate.open_file(old, "full", 5).close()
    asked = "SELECT id, kind, task_depth FROM sessions ORDER BY id"
    with closing(sqlite3.connect(old)) as connection:
        rows = connection.execute(asked).fetchall()
    assert [tuple(row) for row in await query(url, asked)] == rows
    assert [depth for name, _, depth in rows if name in TASKS] == [1, 1, 1, 2]
