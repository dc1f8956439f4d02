"""Names that no store accepts: `verify` reports them, and salvage renames their sessions and entries."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from flue_py.core.entries import NewEntry
from flue_py.core.kinds import EXCLUSION
from flue_py.core.sessions import NewSession, SessionInfo
from flue_py.db.backend import Backend
from flue_py.db.salvage.rebuild import salvage
from flue_py.db.sqlite.runner import open_sqlite
from tests.earlier import names_unchecked
from tests.samples import add, path_ids, path_of, placed, user
from tests.sources import counted_sources
from tests.store.test_verify import Made, damage, make, open_store
from tests.tables import inputs
from tests.values import existing

BAD: dict[str, object] = {
    "NUL": "a\0b",
    "only NUL": "\0" * 16,
    "an escape": "\x1b[2Jevil\x07",
    "C1": "a\x9bb",
    "too long": "x" * 1_001,
    "no UTF-8": b"\xff\xfe" * 8,
}
TEXT = "CAST(? AS TEXT)"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return asyncio.run(make(tmp_path_factory.mktemp("names") / "template.db"))


@pytest.fixture
def anew(template: Made, tmp_path: Path) -> Callable[[], Made]:
    """A function that makes another copy each time, for the rows of a table."""
    numbers = count()

    def copied() -> Made:
        copy = shutil.copy(template.path, tmp_path / f"damaged{next(numbers)}.db")
        return dataclasses.replace(template, path=Path(copy))

    return copied


@pytest.fixture
def made(anew: Callable[[], Made]) -> Made:
    return anew()


async def open_rescued(path: Path) -> Backend:
    """Open a store that hands out no ids that the damaged one has."""
    counted, numbers = counted_sources(), count(1)
    sources = replace(counted, entry_id=lambda: f"new-{next(numbers)}")
    return await open_sqlite(path, sources=sources, durability="normal")


async def sessions_of(backend: Backend) -> list[SessionInfo]:
    page = await backend.list_sessions(scope=None, kind=None, limit=100, cursor=None)
    return list(page.sessions)


async def usable(backend: Backend) -> None:
    """Every session can be opened, read, appended to, forked and deleted."""
    for info in await sessions_of(backend):
        assert await backend.get_session(info.id) is not None
        await path_of(backend, info.id)
        if info.key is not None:
            assert existing(await backend.get_session_by_key(info.key, info.scope)).id == info.id
        await add(backend, info.id, user("more"))
    assert (await backend.verify()).problems == []
    for info in await sessions_of(backend):
        assert info.id in (await backend.plan_deletion([info.id], None)).session_ids
        await backend.delete_tree(info.id)
    assert await sessions_of(backend) == []


def everywhere(path: Path, old: str, new: object, *places: str) -> None:
    """Change a name in the columns that have it, as damage to the file would."""
    for place in places:
        table, column = place.split(".")
        damage(path, (f'UPDATE {table} SET "{column}" = {TEXT} WHERE "{column}" = ?', (new, old)))


def flagged(path: Path, kind: str, where: str) -> bool:
    """Whether `verify` says so."""

    async def look() -> bool:
        backend = await open_store(path)
        try:
            return (kind, where) in {(problem.kind, problem.where) for problem in (await backend.verify()).problems}
        finally:
            await backend.close()

    return asyncio.run(look())


SESSION_ID = ("sessions.id", "sessions.forked_from_session", "ledger_sessions.session_id", "task_links.child_id")


@inputs("what", BAD)
async def test_a_session_under_an_unusable_id_is_rescued_under_another(
    anew: Callable[[], Made], tmp_path: Path, what: str
) -> None:
    made, bad = anew(), BAD[what]
    everywhere(made.path, made.root, bad, *SESSION_ID)
    report = salvage(made.path, tmp_path / "new.db")
    assert [loss.session_id for loss in report.losses if loss.what == "session"] == ["rescued-1"]
    assert report.sessions == 4
    backend = await open_rescued(tmp_path / "new.db")
    try:
        assert await path_ids(backend, "rescued-1") == made.entries
        fork = existing(await backend.get_session(made.fork))
        assert fork.forked_from_session == (None if what == "no UTF-8" else "rescued-1")
        assert [link.parent_id for link in await backend.task_parents(made.task)] == ["rescued-1"]
        assert (await backend.verify()).problems == []
        await usable(backend)
    finally:
        await backend.close()


@inputs("what", ["NUL", "no UTF-8"])
async def test_a_task_under_an_unusable_id_is_still_the_task_of_its_parent(
    made: Made, tmp_path: Path, what: str
) -> None:
    everywhere(made.path, made.task, BAD[what], *SESSION_ID)
    report = salvage(made.path, tmp_path / "new.db")
    assert any(loss.what == "session" for loss in report.losses)
    backend = await open_rescued(tmp_path / "new.db")
    try:
        if what != "no UTF-8":
            (link,) = await backend.task_links(made.root)
            assert link.child_id.startswith("rescued-")
            assert await path_ids(backend, link.child_id) == ["i1", "i2"]
        await usable(backend)
    finally:
        await backend.close()


ENTRY_ID = (
    "entries.id", "sessions.leaf", "sessions.forked_from_entry", "ledger.entry_id", "leaf_moves.from_entry",
    "leaf_moves.to_entry", "marks.entry_id", "session_edits.entry_id",
)  # fmt: skip


@inputs("what, which", [*((what, 0) for what in BAD), ("NUL", -1), ("too long", 3), ("no UTF-8", 3)])
async def test_an_entry_under_an_unusable_id_is_rescued_under_another(
    anew: Callable[[], Made], tmp_path: Path, what: str, which: int
) -> None:
    made = anew()
    old = made.entries[which]
    everywhere(made.path, old, BAD[what], *ENTRY_ID)
    with closing(sqlite3.connect(made.path)) as connection:
        before = connection.execute("SELECT COUNT(*) FROM entries").fetchone()[0]
    report = salvage(made.path, tmp_path / "new.db")
    (loss,) = [loss for loss in report.losses if loss.what == "entry"]
    assert loss.entry_id is not None
    assert loss.entry_id.startswith("rescued-")
    assert loss.session_id == made.root
    assert report.entries == before
    backend = await open_rescued(tmp_path / "new.db")
    try:
        ids = [loss.entry_id if entry == old else entry for entry in made.entries]
        assert await path_ids(backend, made.root) == ids
        assert await backend.get_entry(made.root, loss.entry_id) is not None
        fork = existing(await backend.get_session(made.fork))
        if what != "no UTF-8":
            assert fork.forked_from_entry == ids[3]
            marks = await backend.read_marks(made.root)
            assert [mark.entry_id for mark in marks if mark.kind == "label"] == [ids[0]]
        await usable(backend)
    finally:
        await backend.close()


NAMES = {
    "key": ("UPDATE sessions SET key = {} WHERE key = 'fork'", "session"),
    "title": ("UPDATE sessions SET title = {} WHERE key = 'fork'", "session"),
    "scope": ("UPDATE sessions SET scope = {} WHERE key = 'fork'", "session"),
    "task id": ("UPDATE task_links SET task_id = {}", "link"),
    "idempotency key": ("UPDATE requests SET idempotency_key = {}", "request"),
}


@inputs("what, name", [*(("NUL", name) for name in NAMES), *(("too long", name) for name in ("key", "title"))])
async def test_other_names_that_cannot_be_used_are_given_up_and_reported(
    anew: Callable[[], Made], tmp_path: Path, name: str, what: str
) -> None:
    made = anew()
    statement, kind = NAMES[name]
    damage(made.path, (statement.format(TEXT), (BAD[what],)))
    report = salvage(made.path, tmp_path / "new.db")
    is_title = name == "title" and what != "NUL"
    assert [loss.what for loss in report.losses] == ([] if is_title else [kind])
    backend = await open_rescued(tmp_path / "new.db")
    try:
        assert report.sessions == len(await sessions_of(backend)) == 4
        await usable(backend)
    finally:
        await backend.close()


@inputs("what", ["an escape", "C1", "no UTF-8"])
def test_verify_flags_ids_that_nobody_can_type(anew: Callable[[], Made], what: str) -> None:
    made = anew()
    everywhere(made.path, made.root, BAD[what], *SESSION_ID)
    everywhere(made.path, made.entries[0], BAD[what], *ENTRY_ID)
    if what == "no UTF-8":
        assert flagged(made.path, "unreadable rows", "the store")
        return
    assert flagged(made.path, "unusable id", f"session {BAD[what]!r}")
    assert flagged(made.path, "unusable id", f"entry {BAD[what]!r}")


async def test_what_payloads_say_of_an_entry_follows_its_new_id(tmp_path: Path) -> None:
    path, bad = tmp_path / "damaged.db", str(BAD["an escape"])
    backend = await open_rescued(path)
    try:
        said = [placed(user("one"), "a"), placed(user("two"), bad, "a"), placed(user("three"), "c", bad)]
        kept = placed(NewEntry.compaction("so far", first_kept_entry_id=bad, tokens_before=9), "k", "c")
        left = placed(NewEntry.branch_summary("left", from_id=bad), "b", "k")
        out = placed(NewEntry(EXCLUSION, json.dumps({"entryId": "c"})), "x", "b")
        with names_unchecked():
            session = await backend.import_session(NewSession(), [*said, kept, left, out], leaf="x")
    finally:
        await backend.close()
    report = salvage(path, tmp_path / "new.db")
    (lost,) = [loss.entry_id for loss in report.losses if loss.what == "entry"]
    assert [change.entry_id for change in report.changes if change.what == "entry"] == ["k", "b"]
    backend = await open_rescued(tmp_path / "new.db")
    try:
        path_ = await backend.read_path(session.id)
        fields = {entry.id: entry.fields for entry in path_.entries}
        assert (fields["k"]["firstKeptEntryId"], fields["b"]["fromId"], fields["x"]["entryId"]) == (lost, lost, "c")
        context = await backend.read_context(session.id)
        assert lost in [entry.id for entry in context.entries]
        assert (await backend.verify()).problems == []
    finally:
        await backend.close()


@inputs("what", ["NUL", "only NUL", "too long"])
def test_verify_flags_names_that_no_store_takes(anew: Callable[[], Made], what: str) -> None:
    made, bad = anew(), BAD[what]
    everywhere(made.path, made.root, bad, *SESSION_ID)
    everywhere(made.path, made.entries[0], bad, *ENTRY_ID)
    damage(made.path, (NAMES["key"][0].format(TEXT), (bad,)), ("UPDATE sessions SET scope = " + TEXT, (bad,)))
    assert flagged(made.path, "unusable id", f"session {bad!r}")
    assert flagged(made.path, "unusable id", f"entry {bad!r}")
    assert flagged(made.path, "unusable scope", f"session {made.fork!r}")


def test_verify_flags_a_title_with_nul(made: Made) -> None:
    damage(made.path, (NAMES["title"][0].format(TEXT), ("a\0b",)))
    assert flagged(made.path, "unusable title", f"session {made.fork!r}")


async def test_ids_that_the_engine_noted_in_metadata_follow_and_those_of_users_stay(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    backend = await open_sqlite(path, sources=counted_sources(), durability="normal")
    try:
        metadata = {
            "imported": {"format": "codex", "leaf": "e", "leafId": "e", "tasks": {"t": "e"}, "below": "kept"},
            "mine": {"see": ["s", "e"]},
            "parentSession": "s",
        }
        new = NewSession(id="s", metadata_text=json.dumps(metadata))
        entries = [placed(user("a"), "kept"), replace(placed(user("b"), "e", "kept"), extra='{"of": "e", "x": 1}')]
        await backend.import_session(new, entries, leaf="e")
        task = await backend.create_task("s", "t", NewSession(metadata_text='{"imported": {"below": "e"}}'))
        plain = await backend.create_session(NewSession(metadata_text='{"parentSession": "s"}'))
    finally:
        await backend.close()
    bad_session, bad_entry = "x" * 1_001, "y" * 1_001
    everywhere(path, "s", bad_session, *SESSION_ID)
    everywhere(path, "e", bad_entry, "entries.id", "sessions.leaf", "leaf_moves.to_entry")
    for old, new_name in (("s", bad_session), ("e", bad_entry)):
        replaced = f"replace(metadata, '\"{old}\"', '\"{new_name}\"')"
        damage(path, (f"UPDATE sessions SET metadata = {replaced}", ()))
    damage(path, ("UPDATE entries SET extra = replace(extra, '\"e\"', ?) WHERE extra IS NOT NULL", (f'"{bad_entry}"',)))
    report = salvage(path, tmp_path / "new.db")
    assert report.entries == 2
    backend = await open_rescued(tmp_path / "new.db")
    try:
        found = {info.id: info.metadata for info in await sessions_of(backend)}
        (session_id,) = found.keys() - {task.id, plain.id}
        leaf = (await path_ids(backend, session_id))[-1]
        assert (session_id.startswith("rescued-"), leaf.startswith("rescued-")) == (True, True)
        noted = {"format": "codex", "leaf": leaf, "leafId": leaf, "tasks": {"t": leaf}, "below": "kept"}
        assert found[session_id] == {
            "imported": noted, "mine": {"see": [bad_session, bad_entry]}, "parentSession": session_id,
            "taskSessions": [{"session": task.id, "taskId": "t", "storageKey": task.id}],
        }  # fmt: skip
        assert (found[task.id]["parentSession"], found[task.id]["imported"]) == (session_id, {"below": leaf})
        assert found[plain.id] == {"parentSession": bad_session}
        details = {(loss.session_id, loss.entry_id, loss.detail) for loss in report.changes}
        stay = "what they name has new ids; they stay"
        assert (session_id, None, f"metadata name others in mine: {stay} as they were") in details
        assert (plain.id, None, f"metadata name others in parentSession: {stay} as they were") in details
        assert (session_id, leaf, f"extra fields name others in of: {stay}") in details
        assert (task.id, None, "metadata name others in imported: what they named has new ids") in details
        assert (await backend.verify()).problems == []
    finally:
        await backend.close()
