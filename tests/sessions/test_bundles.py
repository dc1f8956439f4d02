"""Bundles, transcripts, and what is called while they are written."""

from __future__ import annotations

import gzip
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest

import flue_py
from flue_py import (
    EntryNotFound,
    FormatTooNew,
    InvalidArgument,
    JsonObject,
    Session,
    SessionNotFound,
    Store,
    StoreUnavailable,
    UnreadableFile,
    sync,
)
from flue_py.core.entries import NewEntry
from flue_py.core.ledger import Dimension
from flue_py.db.schema import FORMAT_VERSION
from flue_py.db.sqlite.file import leave_wal
from flue_py.transfer.copy import BundleCounts, read_bundle, write_bundle
from flue_py.transfer.export import transcript, transcripts_of_tasks, write_transcript
from tests.checks import raises
from tests.samples import placed
from tests.sessions.talk import assistant, hold_turns, path_of, say, user
from tests.tables import inputs
from tests.values import existing
from tests.whole_stores import make_everything

DATA = Path(__file__).parent.parent / "data" / "bundles"
LATER = FORMAT_VERSION + 1


async def filled(store: Store) -> None:
    """Fill a store with something of everything, and with a session that has paths."""
    await make_everything(store.backend)
    header: JsonObject = {"cwd": "/home/somebody/project", "parentSession": "/home/somebody/p.jsonl", "id": "x"}
    metadata: JsonObject = {"imported": {"header": header}}
    session = await store.create_session(key="paths", cwd="/home/somebody/project", metadata=metadata)
    await session.append_messages([user("hello"), assistant("hi", 5)])
    metadata = {"imported": {"format": "pi", "header": header}}
    imported = await store.create_session(key="imported", cwd="/home/somebody/other", metadata=metadata)
    await imported.import_entries([placed(NewEntry.message(assistant("hi", 7)), "a")], leaf="a")
    await imported.append_message(assistant("later", 8))


ORIGINS: tuple[Dimension, ...] = ("session", "project", "agent")


async def origins(store: Store) -> list[object]:
    """Return what paid calls were made for and by, of the sessions of `filled` that have paths."""
    groups = [row.group for row in (await store.usage(group_by=ORIGINS)).rows]
    return sorted(
        (str(group["project"]), str(group["agent"])) for group in groups if group["project"] or group["agent"]
    )


async def contexts(store: Store) -> dict[str, list[object]]:
    """Return the context at every entry of every session, by session and entry."""
    found: dict[str, list[object]] = {}
    for info in (await store.list_sessions(limit=1000)).sessions:
        session = existing(await store.get_session(info.id))
        for entry in await session.get_tree():
            items = await session.build_context_entries(leaf=entry.id)
            found[f"{info.id} {entry.id}"] = [(item.entry_id, item.data) for item in items]
    return found


async def test_a_bundle_says_when_sessions_were_active_and_which_usage_is_unknown(store: Store, tmp_path: Path) -> None:
    await filled(store)
    odd = await store.create_session(key="odd")
    await odd.append_message({"role": "assistant", "content": "hm", "usage": {"surely": 7}})
    parent = await store.create_session(key="parent")
    await (await parent.tasks.create(task_id="t")).tasks.end("done", summary="s")
    await write_bundle(store, tmp_path / "all.flue")
    async with flue_py.open(":memory:") as there:
        assert (await read_bundle(there, tmp_path / "all.flue")).changed
        assert (await there.verify()).problems == []
        assert await derived(there) == await derived(store)
        (link,) = await (await there.open_session("parent")).tasks.links()
        assert (link.status, link.summary) == ("done", "s")


async def derived(store: Store) -> dict[str, tuple[int, int]]:
    """Return when each session was last active, and how many of its calls used nobody knows what."""
    return {info.id: (info.active_us, info.unknown_calls) for info in (await store.list_sessions(limit=1000)).sessions}


async def test_a_store_goes_through_a_bundle_and_is_the_same(store: Store, tmp_path: Path) -> None:
    await filled(store)
    path = tmp_path / "all.flue"
    written = await write_bundle(store, path)
    assert written.size_bytes == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o600
    await raises(InvalidArgument, write_bundle(store, path), match="is there already")
    assert (await write_bundle(store, path, overwrite=True)) == written
    async with flue_py.open(tmp_path / "there.db") as there:
        report = await read_bundle(there, path)
        assert report.counts == written.counts
        assert (report.trees_added, report.refused) == (written.counts.trees, ())
        assert await contexts(there) == await contexts(store)
        links = [
            {info.id: info.task_names for info in (await each.list_sessions()).sessions} for each in (there, store)
        ]
        assert links[0] == links[1]
        assert (await there.info()).ledger_rows == (await store.info()).ledger_rows
        again = await write_bundle(there, tmp_path / "again.flue")
        assert again.counts == written.counts
        for same in (path, tmp_path / "again.flue"):
            unchanged = await read_bundle(there, same)
            assert (unchanged.changed, unchanged.trees_unchanged) == (False, written.counts.trees)
        assert (await there.verify()).problems == []
    # Into the store that it is from it changes nothing either.
    assert not (await read_bundle(store, path)).changed


async def test_a_bundle_names_no_folder_unless_it_is_told_to(store: Store, tmp_path: Path) -> None:
    await filled(store)
    await write_bundle(store, tmp_path / "without.flue")
    await write_bundle(store, tmp_path / "with.flue", keep_paths=True)
    assert b"/home/somebody" not in (tmp_path / "without.flue").read_bytes()
    assert b"/home/somebody/project" in (tmp_path / "with.flue").read_bytes()
    async with flue_py.open(":memory:") as there:
        await read_bundle(there, tmp_path / "with.flue")
        assert (await there.open_session("paths")).info.cwd == "/home/somebody/project"
        assert await origins(there) == await origins(store) == [
            ("/home/somebody/other", "None"), ("/home/somebody/other", "pi"), ("/home/somebody/project", "None"),
        ]  # fmt: skip
    await store.delete_session_tree(await store.open_session("imported"))
    await write_bundle(store, tmp_path / "gone.flue", keep_paths=True)
    async with flue_py.open(":memory:") as there:
        await read_bundle(there, tmp_path / "gone.flue")
        assert await origins(there) == await origins(store)
    await write_bundle(store, tmp_path / "gone-without.flue")
    assert b"/home/somebody" not in (tmp_path / "gone-without.flue").read_bytes()


async def test_a_session_takes_its_forks_and_its_tasks_along(session: Session, store: Store, tmp_path: Path) -> None:
    await hold_turns(session, 1)
    fork = await session.fork()
    task = await fork.tasks.create(task_id="t")
    await say(task, "T")
    await hold_turns(await store.create_session(key="else"), 2)
    report = await write_bundle(store, tmp_path / "one.flue", [session])
    assert report.counts == BundleCounts(trees=2, sessions=3, entries=3, calls=1)
    async with flue_py.open(":memory:") as there:
        await read_bundle(there, tmp_path / "one.flue")
        found = {info.id for info in (await there.list_sessions()).sessions}
        assert found == {session.id, fork.id, task.id}
    await raises(SessionNotFound, write_bundle(store, tmp_path / "none.flue", [session, "missing"]))
    assert not (tmp_path / "none.flue").exists()


async def test_a_tree_goes_through_a_bundle_whose_first_session_is_gone(store: Store, tmp_path: Path) -> None:
    first = await store.create_session()
    await first.append_messages([user("hello"), assistant("hi", 5)])
    fork = await first.fork()
    await fork.append_messages([user("more"), assistant("yes", 7)])
    await store.delete_session_tree(first)
    written = await write_bundle(store, tmp_path / "heirs.flue")
    assert (written.counts.sessions, written.counts.entries, written.counts.calls) == (1, 4, 2)
    async with flue_py.open(tmp_path / "other.db") as other:
        await read_bundle(other, tmp_path / "heirs.flue")
        assert await contexts(other) == await contexts(store)
        groups = ("session", "branch")
        assert await other.usage(group_by=groups) == await store.usage(group_by=groups)
        assert await other.usage(fork.id, tree=True) == await store.usage(fork.id, tree=True)
        assert (await other.verify()).problems == []


async def test_a_later_bundle_brings_trees_up_to_date_and_refuses_what_went_on(
    session: Session, store: Store, tmp_path: Path
) -> None:
    await hold_turns(session, 1)
    await write_bundle(store, tmp_path / "1.flue")
    async with flue_py.open(":memory:") as there:
        await read_bundle(there, tmp_path / "1.flue")
        await say(session, "U2")
        await write_bundle(store, tmp_path / "2.flue")
        assert (await read_bundle(there, tmp_path / "2.flue")).trees_refreshed == 1
        copy = existing(await there.get_session(session.id))
        assert copy.leaf_id == session.leaf_id
        await say(copy, "here")
        await say(session, "there")
        await write_bundle(store, tmp_path / "3.flue")
        report = await read_bundle(there, tmp_path / "3.flue")
        assert not report.changed
        assert [refusal.session_id for refusal in report.refused] == [session.id]


async def test_budgets_and_documents_stay_behind(store: Store, tmp_path: Path) -> None:
    await filled(store)
    await write_bundle(store, tmp_path / "all.flue")
    async with flue_py.open(tmp_path / "all.flue") as bundle:
        await bundle.set_budget(tokens=5, scope="acme")
        await bundle.remember("note", "x")
    leave_wal(tmp_path / "all.flue")
    async with flue_py.open(":memory:") as there:
        assert (await read_bundle(there, tmp_path / "all.flue")).changed
        assert (await there.list_budgets(), await there.memories()) == ([], ())


FORGERIES = {
    "a payload": 'UPDATE entries SET payload = \'{"role":"user","content":"forged"}\', packed = NULL',
    "a total": "UPDATE entries SET paid_tokens = 999", "a leaf": "UPDATE sessions SET leaf = 'nowhere'",
    "a parent": "UPDATE entries SET parent_id = 'nowhere' WHERE depth = 1",
    "a time of activity": "UPDATE sessions SET active_slot = active_slot + 1",
    "a count": "UPDATE sessions SET entry_count = 99", "a depth": "UPDATE entries SET depth = depth + 7",
    "a type": "UPDATE entries SET ordinal = 'x'",
    "a payload of bytes": "UPDATE entries SET payload = CAST(payload AS BLOB)",
    "a NUL": "UPDATE sessions SET title = 'a' || char(0) || 'b'",
    "a broken text": "UPDATE sessions SET title = CAST(x'ff' AS TEXT)",
    "a session that is not there": "UPDATE lanes SET owner_key = 99", "a row less": "DELETE FROM lanes",
    "a format that is no number": "UPDATE flue_store SET value = 'x' WHERE name = 'format'",
    "a format of before the first release": "UPDATE flue_store SET value = 3 WHERE name = 'format'",
    "no format": "DELETE FROM flue_store", "a table less": "DROP TABLE marks",
    "a table more": "CREATE TABLE notes (text TEXT)",
    "a trigger": "CREATE TRIGGER forged AFTER INSERT ON sessions BEGIN DELETE FROM entries; END",
    "a view for a table": "DROP TABLE marks; CREATE VIEW marks AS SELECT zeroblob(1000000000) AS value",
    "a column that is computed": "ALTER TABLE marks ADD COLUMN more GENERATED ALWAYS AS (zeroblob(1000000000)) VIRTUAL",
    "statistics": "ANALYZE", "a log": "PRAGMA journal_mode = WAL",
}  # fmt: skip


@pytest.fixture(scope="module")
def small_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of one session with two turns."""
    path = tmp_path_factory.mktemp("bundles") / "true.flue"
    with sync.open(":memory:") as store:
        store.create_session().append_messages([user("U1"), assistant("A1", 5), user("U2"), assistant("A2", 5)])
        sync.write_bundle(store, path)
    return path


def changed(path: Path, target: Path, script: str) -> Path:
    """Write a bundle that was changed by SQL."""
    target.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(target)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.executescript(script)
    return target


async def refusal(path: Path, error: type[flue_py.FlueError] = UnreadableFile) -> str:
    """Return why a bundle is refused, whole."""
    async with flue_py.open(":memory:") as there:
        with pytest.raises(error, match=r"nothing was imported|Nothing was read or written") as raised:
            await read_bundle(there, path)
        assert (await there.info()).sessions == 0
    return str(raised.value)


@inputs("script", FORGERIES.values(), ids=FORGERIES.keys())
async def test_a_bundle_that_was_forged_is_refused_whole(tmp_path: Path, small_bundle: Path, script: str) -> None:
    await refusal(changed(small_bundle, tmp_path / "forged.flue", script))


async def test_a_file_that_was_damaged_or_is_no_bundle_is_refused_whole(tmp_path: Path, small_bundle: Path) -> None:
    whole = (small_bundle.parent / small_bundle.name).read_bytes()
    damaged = tmp_path / "damaged.flue"
    half = len(whole) // 2
    cuts = [whole[:cut] for cut in (0, 1, 10, 18, 30, half, len(whole) - 4096)]
    for data in (*cuts, b"hello\n", whole[:4096] + b"x" * (len(whole) - 4096), whole[:104] + b"x" * 8 + whole[112:]):
        damaged.write_bytes(data)
        await refusal(damaged)
    damaged.write_bytes(gzip.compress(b'{"bundle":"flue_py bundle","version":2}\n'))
    assert "before the first release" in await refusal(damaged)
    with closing(sqlite3.connect(tmp_path / "other.flue")) as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")
    assert "'alembic_version' is not that of a bundle" in await refusal(tmp_path / "other.flue")
    newer = changed(small_bundle, damaged, f"UPDATE flue_store SET value = {LATER} WHERE name = 'format'; ANALYZE")
    assert f"has format {LATER}" in await refusal(newer, FormatTooNew)
    async with flue_py.open(":memory:") as there:
        with pytest.raises(StoreUnavailable, match=r"missing\.flue cannot be read"):
            await read_bundle(there, tmp_path / "missing.flue")


async def test_a_bundle_of_the_first_format_is_read_as_it_was_written(tmp_path: Path) -> None:
    first = tmp_path / "first.flue"
    first.write_bytes(gzip.decompress((DATA / "format-4.flue.gz").read_bytes()))
    before = first.read_bytes()
    async with flue_py.open(":memory:") as there:
        assert (await read_bundle(there, first)).trees_added == 1
        session = existing(await there.get_session("kept"))
        assert await path_of(session) == ["Why is the build red?", "A flaky test."]
        assert session.info.spent_tokens == 13
        assert (await there.verify()).problems == []
    assert first.read_bytes() == before
    await refusal(changed(first, tmp_path / "forged.flue", "CREATE INDEX ix_ledger_at ON ledger (at)"))


# -- Transcripts as files: written, continued as the session grows, and refused if the file is something else -----


def said_in(text: str) -> list[str]:
    """Return what was said, and the notes of going back, in order."""
    lines = [line for line in text.splitlines() if line and not line.startswith(("---", "<!--", "#", "**", "*What"))]
    notes = {line: line.removeprefix("## ") for line in text.splitlines() if line.startswith("## Rewound")}
    return [notes.get(line, line) for line in text.splitlines() if line in lines or line in notes]


async def test_a_transcript_is_continued_as_the_session_grows(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    await hold_turns(session, 1)
    first = await write_transcript(session, path)
    assert (first.outcome, first.entries, first.leaf_id) == ("new", 2, session.leaf_id)
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_text()
    assert before == await transcript(session)
    assert (await write_transcript(session, path, append=True)).outcome == "unchanged"
    await say(session, "U2", "U3")
    more = await write_transcript(session, path, append=True)
    assert (more.outcome, more.entries) == ("continued", 2)
    assert path.read_text().startswith(before)
    assert said_in(path.read_text()) == ["U1", "A1", "U2", "U3"]
    assert path.read_text().count("[Human] — Turn 2") == 2, "two prompts of one turn"


async def test_a_transcript_says_where_the_session_went_back(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    await hold_turns(session, 3)
    await write_transcript(session, path, append=True)
    await session.rewind(turns=1)
    assert (await write_transcript(session, path, append=True)).outcome == "unchanged"
    await say(session, "instead")
    assert (await write_transcript(session, path, append=True)).outcome == "rewound"
    assert said_in(path.read_text())[-2:] == ["Rewound to turn 1", "instead"]
    assert path.read_text().count("[Human] — Turn 2") == 2
    await session.move_leaf(None)
    await say(session, "anew")
    assert (await write_transcript(session, path, append=True)).outcome == "rewound"
    assert said_in(path.read_text())[-2:] == ["Rewound to the beginning", "anew"]


async def test_an_empty_session_has_a_transcript_that_can_be_continued(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    assert (await write_transcript(session, path)).leaf_id is None
    await say(session, "hello")
    assert (await write_transcript(session, path, append=True)).outcome == "continued"
    assert said_in(path.read_text()) == ["hello"]


async def test_what_is_no_transcript_of_the_session_is_left_alone(
    session: Session, store: Store, tmp_path: Path
) -> None:
    path, other_path = tmp_path / "t.md", tmp_path / "other.md"
    ids = await hold_turns(session, 1)
    await write_transcript(session, path)
    other = await store.create_session()
    await say(other, "other")
    await write_transcript(other, other_path)
    await raises(InvalidArgument, write_transcript(session, path), match="is there already")
    await raises(InvalidArgument, write_transcript(session, other_path, append=True), match="transcript of session")
    notes = tmp_path / "notes.md"
    notes.write_text("my notes")
    await raises(InvalidArgument, write_transcript(session, notes, append=True), match="is not a transcript")
    await raises(InvalidArgument, write_transcript(session, path, append=True, overwrite=True), match="either")
    await raises(StoreUnavailable, write_transcript(session, tmp_path / "missing" / "t.md"))
    await raises(StoreUnavailable, write_transcript(session, tmp_path, append=True))
    await raises(EntryNotFound, write_transcript(session, tmp_path / "new.md", leaf="missing"))
    forged = path.read_text().replace(ids[-1], "0" * 16)
    path.write_text(forged)
    await raises(InvalidArgument, write_transcript(session, path, append=True), match="does not see any more")
    assert (notes.read_text(), path.read_text()) == ("my notes", forged)
    assert sorted(name for name in os.listdir(tmp_path) if name.endswith(".md")) == ["notes.md", "other.md", "t.md"]
    assert (await write_transcript(session, path, overwrite=True)).outcome == "new"


class Killed(BaseException):
    """The end of a process, as the file system sees it."""


async def test_a_transcript_is_continued_whole_or_not_at_all(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, link = tmp_path / "t.md", tmp_path / "link.md"
    await hold_turns(session, 1)
    await write_transcript(session, path)
    path.chmod(0o640)
    link.symlink_to(path.name)
    before = path.read_bytes()
    await hold_turns(session, 1)

    def end(_: int) -> NoReturn:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", end)
        await raises(Killed, write_transcript(session, link, append=True))
    assert path.read_bytes() == before
    assert (await write_transcript(session, link, append=True)).outcome == "continued"
    assert path.read_bytes().startswith(before)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert (await write_transcript(session, path, append=True)).outcome == "unchanged"


async def test_task_sessions_follow_each_once(session: Session, store: Store) -> None:
    first = await session.tasks.create(task_id="t1", title="first")
    await say(first, "T1")
    nested = await first.tasks.create(task_id="t2", title="nested")
    await say(nested, "T2")
    await store.link_task(nested, session, task_id="loop")
    await store.link_task(session, "missing", task_id="gone")
    await store.link_task(session, nested, task_id="again")
    parts = [part async for part in transcripts_of_tasks(store, session)]
    assert [part.splitlines()[0] for part in parts] == ["# Task session: first", "# Task session: nested"]
    assert f"**Task of:** `{first.id}`" in parts[1]


# -- What is to be called while something goes on is checked before it begins -------------------------------------


def test_progress_that_is_not_a_function_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with sync.open(tmp_path / "s.db") as store, sync.open(":memory:") as other:
        session = store.create_session(id="s")
        session.append_message(user("a"))
        file = tmp_path / "s.jsonl"
        file.write_text(sync.export_session(session, "pi").text, encoding="utf-8")
        bundle = sync.write_bundle(store, tmp_path / "s.bundle").path
        calls = (
            lambda: sync.import_file(other, file, progress=5),  # type: ignore[arg-type]
            lambda: sync.read_bundle(other, bundle, progress=5),  # type: ignore[arg-type]
            lambda: sync.copy_store(store, other, progress=5),  # type: ignore[arg-type]
            lambda: store.backup(tmp_path / "b.db", progress=5),  # type: ignore[arg-type]
        )
        for call in calls:
            with pytest.raises(InvalidArgument, match=r"^progress: 5 is not a function$"):
                call()
        assert other.info().sessions == 0
        assert not (tmp_path / "b.db").exists()


def test_what_hears_of_oddities_is_a_function() -> None:
    with sync.open(":memory:") as store:
        with pytest.raises(InvalidArgument, match=r"^on_oddity: 5 is not a function$"):
            store.import_session(flue_py.NewSession(), [], leaf=None, on_oddity=5)  # type: ignore[arg-type]
        assert store.info().sessions == 0
