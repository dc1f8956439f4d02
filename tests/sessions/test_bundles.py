"""Bundles: whole trees in one file, the same from every store, and fully checked when they are imported."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py import (
    FormatTooNew,
    InvalidArgument,
    JsonObject,
    Session,
    SessionNotFound,
    Store,
    StoreUnavailable,
    UnreadableFile,
)
from flue_py.core.entries import NewEntry
from flue_py.core.ledger import Dimension
from flue_py.transfer.bundle import BundleCounts, looks_like_a_bundle, read_bundle, write_bundle
from tests.samples import placed
from tests.sessions.talk import assistant, hold_turns, say, user
from tests.whole_stores import make_everything

pytestmark = pytest.mark.anyio


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
        session = await store.get_session(info.id)
        assert session is not None
        for entry in await session.get_tree():
            items = await session.build_context_entries(leaf=entry.id)
            found[f"{info.id} {entry.id}"] = [(item.entry_id, item.data) for item in items]
    return found


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


async def test_a_bundle_says_when_sessions_were_active_and_which_usage_is_unknown(store: Store, tmp_path: Path) -> None:
    await filled(store)
    odd = await store.create_session(key="odd")
    await odd.append_message({"role": "assistant", "content": "hm", "usage": {"surely": 7}})
    parent = await store.create_session(key="parent")
    await (await parent.create_task(task_id="t")).end_task("done", summary="s")
    await write_bundle(store, tmp_path / "all.flue")
    async with flue_py.open(":memory:") as there:
        assert (await read_bundle(there, tmp_path / "all.flue")).changed
        assert (await there.verify()).problems == []
        assert await derived(there) == await derived(store)
        (link,) = await (await there.open_session("parent")).task_links()
        assert (link.status, link.summary) == ("done", "s")


async def test_a_bundle_of_before_the_first_release_is_refused(store: Store, tmp_path: Path) -> None:
    await filled(store)
    await write_bundle(store, tmp_path / "all.flue")

    def without_ends_of_tasks(lines: list[Any]) -> None:
        for line in lines:
            if isinstance(line, list) and line[0] == "links":
                del line[-2:]

    def without_attachments(lines: list[Any]) -> None:
        for line in lines:
            if "tree" in line:
                del line["tree"]["attachments"]

    first_version = "of version 1, which only versions before the first release wrote; write it anew from its store"
    for change, words in (
        (lambda lines: lines[0].__setitem__("version", 1), first_version),
        (without_ends_of_tasks, "should be a row of links with 7 columns"),
        (without_attachments, "should count sessions, lanes, entries, attachments"),
    ):
        older = rewritten(tmp_path / "all.flue", tmp_path / "older.flue", change)
        async with flue_py.open(":memory:") as there:
            with pytest.raises(UnreadableFile, match=words):
                await read_bundle(there, older)
            assert (await there.info()).sessions == 0


async def derived(store: Store) -> dict[str, tuple[int, int]]:
    """Return when each session was last active, and how many of its calls used nobody knows what."""
    return {info.id: (info.active_us, info.unknown_calls) for info in (await store.list_sessions(limit=1000)).sessions}


async def test_a_store_goes_through_a_bundle_and_is_the_same(store: Store, tmp_path: Path) -> None:
    await filled(store)
    path = tmp_path / "all.flue"
    written = await write_bundle(store, path)
    assert written.size_bytes == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(InvalidArgument, match="is there already"):
        await write_bundle(store, path)
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
        # The same trees give the same bytes, whatever numbers a store knows them by.
        await write_bundle(there, tmp_path / "again.flue")
        assert (tmp_path / "again.flue").read_bytes() == path.read_bytes()
        again = await read_bundle(there, path)
        assert not again.changed
        assert again.trees_unchanged == written.counts.trees
        assert (await there.verify()).problems == []
    # Into the store that it is from it changes nothing either.
    assert not (await read_bundle(store, path)).changed


async def test_a_bundle_names_no_folder_unless_it_is_told_to(store: Store, tmp_path: Path) -> None:
    await filled(store)
    await write_bundle(store, tmp_path / "without.flue")
    await write_bundle(store, tmp_path / "with.flue", keep_paths=True)
    assert b"/home/somebody" not in gzip.decompress((tmp_path / "without.flue").read_bytes())
    assert b"/home/somebody/project" in gzip.decompress((tmp_path / "with.flue").read_bytes())
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
    assert b"/home/somebody" not in gzip.decompress((tmp_path / "gone-without.flue").read_bytes())


async def test_a_session_takes_its_forks_and_its_tasks_along(session: Session, store: Store, tmp_path: Path) -> None:
    await hold_turns(session, 1)
    fork = await session.fork()
    task = await fork.create_task(task_id="t")
    await say(task, "T")
    await hold_turns(await store.create_session(key="else"), 2)
    report = await write_bundle(store, tmp_path / "one.flue", [session])
    assert report.counts == BundleCounts(trees=2, sessions=3, entries=3, calls=1)
    async with flue_py.open(":memory:") as there:
        await read_bundle(there, tmp_path / "one.flue")
        found = {info.id for info in (await there.list_sessions()).sessions}
        assert found == {session.id, fork.id, task.id}
    with pytest.raises(SessionNotFound):
        await write_bundle(store, tmp_path / "none.flue", [session, "missing"])
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
        copy = await there.get_session(session.id)
        assert copy is not None
        assert copy.leaf_id == session.leaf_id
        await say(copy, "here")
        await say(session, "there")
        await write_bundle(store, tmp_path / "3.flue")
        report = await read_bundle(there, tmp_path / "3.flue")
        assert not report.changed
        assert [refusal.session_id for refusal in report.refused] == [session.id]


def rewritten(path: Path, target: Path, change: Callable[[list[Any]], object], *, sign: bool = True) -> Path:
    """Write a bundle whose lines were changed, with a checksum that fits, or the old one."""
    from hashlib import sha256

    lines = lines_of(path)
    change(lines)
    texts = [json.dumps(line).encode() + b"\n" for line in lines]
    if sign:
        lines[-1]["sha256"] = sha256(b"".join(texts[:-1])).hexdigest()
        texts[-1] = json.dumps(lines[-1]).encode() + b"\n"
    target.write_bytes(gzip.compress(b"".join(texts)))
    return target


def row(lines: list[Any], table: str) -> list[Any]:
    found = next(line for line in lines if isinstance(line, list) and line[0] == table)
    assert isinstance(found, list)
    return found


FORGERIES: dict[str, Callable[[list[Any]], object]] = {
    "a payload": lambda lines: row(lines, "entries").__setitem__(-1, '{"role":"user","content":"forged"}'),
    "a total": lambda lines: row(lines, "entries").__setitem__(16, 999),
    "a leaf": lambda lines: row(lines, "sessions").__setitem__(10, "nowhere"),
    "a depth": lambda lines: row(lines, "entries").__setitem__(2, 7),
    "a type": lambda lines: row(lines, "entries").__setitem__(2, "7"),
    "a NUL": lambda lines: row(lines, "sessions").__setitem__(5, "a\0b"),
    "a surrogate": lambda lines: row(lines, "sessions").__setitem__(5, "\ud800"),
    "base64": lambda lines: row(lines, "entries").__setitem__(22, "%"),
    "a number too large": lambda lines: row(lines, "sessions").__setitem__(11, 2**70),
    "a column less": lambda lines: row(lines, "lanes").pop(),
    "a session that is not there": lambda lines: row(lines, "lanes").__setitem__(2, 99),
    "a kind": lambda lines: row(lines, "sessions").__setitem__(6, "stem"),
    "a row less": lambda lines: lines.remove(row(lines, "lanes")),
    "counts": lambda lines: lines[-1]["end"].__setitem__("entries", 0),
    "no head": lambda lines: lines.pop(0),
    "no trees": lambda lines: lines[1]["tree"].pop("lanes"),
    "a tree twice": lambda lines: lines.__setitem__(slice(1, -1), lines[1:-1] * 2),
    "a line of another kind": lambda lines: lines.insert(1, {"what": 1}),
    "a list": lambda lines: lines.insert(1, [1]),
}


async def small_bundle(path: Path) -> None:
    """Write the bundle of one session with two turns."""
    async with flue_py.open(":memory:") as store:
        await hold_turns(await store.create_session(), 2)
        await write_bundle(store, path)


@pytest.mark.parametrize("what", FORGERIES)
async def test_what_was_forged_is_refused_whole(tmp_path: Path, what: str) -> None:
    await small_bundle(tmp_path / "true.flue")
    forged = rewritten(tmp_path / "true.flue", tmp_path / "forged.flue", FORGERIES[what])
    async with flue_py.open(":memory:") as there:
        with pytest.raises(UnreadableFile, match="nothing was imported"):
            await read_bundle(there, forged)
        assert (await there.info()).sessions == 0


async def test_what_was_damaged_or_is_something_else_is_refused_whole(tmp_path: Path) -> None:
    path = tmp_path / "true.flue"
    await small_bundle(path)
    whole = path.read_bytes()
    assert looks_like_a_bundle(whole[:1000])
    damaged = tmp_path / "damaged.flue"
    async with flue_py.open(":memory:") as there:
        for cut in (0, 1, 10, 30, len(whole) // 2, len(whole) - 9, len(whole) - 1):
            damaged.write_bytes(whole[:cut])
            with pytest.raises(UnreadableFile, match="nothing was imported"):
                await read_bundle(there, damaged)
        others = (b"hello\n", gzip.compress(b"hello\n"), gzip.compress(b"[]\n"))
        for data in (*others, whole + b"more", whole[:-9] + b"x" * 9):
            damaged.write_bytes(data)
            assert looks_like_a_bundle(data[:1000]) == data.startswith(whole[:20])
            with pytest.raises(UnreadableFile, match="nothing was imported"):
                await read_bundle(there, damaged)
        changed = rewritten(path, damaged, lambda lines: row(lines, "sessions").__setitem__(5, "renamed"), sign=False)
        with pytest.raises(UnreadableFile, match="damaged or changed"):
            await read_bundle(there, changed)
        newer = rewritten(path, damaged, lambda lines: lines[0].__setitem__("version", 3))
        with pytest.raises(FormatTooNew, match="version 3"):
            await read_bundle(there, newer)
        with pytest.raises(StoreUnavailable):
            await read_bundle(there, tmp_path / "missing.flue")
        assert (await there.info()).sessions == 0
