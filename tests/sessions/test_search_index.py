"""The index of words beside a SQLite store: caught up, broken, forgotten, and never in anybody's way."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import stat
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

import flue_py
import flue_py.sync
from flue_py.core.sessions import SessionHead
from flue_py.db import ops
from flue_py.db.backend import Backend
from flue_py.db.runner import WordIndex
from flue_py.db.sqlite import words
from flue_py.db.sqlite.runner import RunnerOnFile
from flue_py.errors import StoreUnavailable
from flue_py.search import How
from flue_py.sessions import search as searching
from tests.sessions.test_search import found, result, user
from tests.tables import inputs
from tests.values import existing

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


@pytest.fixture
async def store(path: Path, anyio_backend: str) -> AsyncIterator[flue_py.Store]:
    async with flue_py.open(path, durability="normal") as opened:
        yield opened
        assert (await opened.verify()).problems == []


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few texts lie in several segments, and are added in several transactions."""
    monkeypatch.setattr(words, "SEGMENT", 8)
    monkeypatch.setattr(searching, "_INDEXING_PAGE", 5)
    monkeypatch.setattr(searching, "_CHUNK", 7)


async def nothing(*_: object) -> None:
    """Stand for what a killed process does not do any more."""


def index_of(path: Path) -> Path:
    return Path(f"{path}-words")


def bytes_beside(path: Path) -> bytes:
    """Return every byte of the index and what may lie beside it."""
    return b"".join(each.read_bytes() for each in path.parent.iterdir() if each.name.startswith(index_of(path).name))


async def test_it_is_made_by_the_first_search_for_its_owner_alone(store: flue_py.Store, path: Path) -> None:
    session = await store.create_session()
    await session.append_message(user("a needle"))
    assert not index_of(path).exists()
    old = os.umask(0)
    try:
        answer = await store.search("needle")
    finally:
        os.umask(old)
    assert answer.searched.by_index
    assert stat.S_IMODE(index_of(path).stat().st_mode) == 0o600
    assert sorted(each.name for each in path.parent.iterdir()) == ["s.db", "s.db-shm", "s.db-wal", "s.db-words"]


async def test_it_holds_no_text_and_nothing_in_the_order_of_a_text(store: flue_py.Store, path: Path) -> None:
    session = await store.create_session()
    await session.append_message(user("the needle lies in the haystack"))
    assert await found(store, "haystack")
    assert b"haystack" in bytes_beside(path)
    assert b"needle lies" not in bytes_beside(path)


async def test_what_comes_later_is_found_later(store: flue_py.Store, small_pieces: None) -> None:
    sessions = [await store.create_session() for _ in range(4)]
    for number in range(40):
        await sessions[number % 4].append_message(user(f"needle n{number}"))
        if number % 7 == 0:
            assert len(await found(store, "needle", limit=100)) == number + 1
    assert len(await found(store, "needle", limit=100)) == 40
    assert await found(store, "n33") == ["messages: needle n33"]


async def test_nothing_of_what_was_deleted_is_left(store: flue_py.Store, path: Path, small_pieces: None) -> None:
    doomed, kept = await store.create_session(title="Titlesecret"), await store.create_session()
    for number in range(20):
        await doomed.append_message(user(f"secretword{number} of the doomed"))
        await kept.append_message(user(f"keptword{number}"))
        if number == 11:
            await store.search("doomed")
    await store.search("doomed")
    assert b"secretword" in bytes_beside(path)
    await store.delete_session_tree(doomed)
    for term in (b"secretword", b"titlesecret", b"Titlesecret", b"doomed", doomed.id.encode()):
        assert term not in bytes_beside(path)
    assert await found(store, "doomed") == []
    for number in range(20):
        assert await found(store, f"keptword{number}") == [f"messages: keptword{number}"]


async def test_titles_beside_what_was_deleted_are_found_still(store: flue_py.Store) -> None:
    await store.create_session(title="The needle")
    doomed = await store.create_session(title="The doomed")
    assert await found(store, "needle") == ["titles: The needle"]
    await store.delete_session_tree(doomed)
    assert await found(store, "needle") == ["titles: The needle"]


@pytest.mark.parametrize("what", ["store", "link", "folder"])
async def test_what_is_no_index_is_left_alone(path: Path, what: str) -> None:
    other = path.parent / "other.db" if what == "link" else index_of(path)
    if what == "folder":
        other.mkdir()
    else:
        async with flue_py.open(other) as precious:
            await (await precious.create_session(id="kept")).append_message(user("precious"))
    if what == "link":
        index_of(path).symlink_to(other)
    async with flue_py.open(path) as store:
        session = await store.create_session()
        await session.append_message(user("needle"))
        answer = await store.search("needle")
        assert len(answer.hits) == 1
        assert "no index of words" in (answer.searched.why_not or "")
        await store.delete_session_tree(session)
    assert index_of(path).is_symlink() == (what == "link")
    if what == "folder":
        assert other.is_dir()
        return
    async with flue_py.open(other) as precious:
        assert [info.id for info in (await precious.list_sessions()).sessions] == ["kept"]
        assert (await precious.verify()).problems == []


async def test_a_batch_that_deletes_forgets_too(store: flue_py.Store, path: Path) -> None:
    doomed = await store.create_session()
    await doomed.append_message(user("secretword"))
    await store.search("secretword")
    async with store.atomic() as batch:
        batch.delete_session_tree(doomed)
    assert b"secretword" not in bytes_beside(path)


async def test_who_is_killed_before_the_index_forgets_is_repaired_by_the_next_search(
    store: flue_py.Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doomed = await store.create_session()
    await doomed.append_message(user("secretword"))
    await store.search("secretword")
    with monkeypatch.context() as patched:
        patched.setattr(RunnerOnFile, "forget_words", nothing)
        await store.delete_session_tree(doomed)
    assert b"secretword" in bytes_beside(path)
    assert await found(store, "anything") == []
    assert b"secretword" not in bytes_beside(path)


async def test_an_index_that_cannot_be_changed_is_removed_by_a_deletion(store: flue_py.Store, path: Path) -> None:
    doomed = await store.create_session()
    await doomed.append_message(user("secretword"))
    await store.search("secretword")
    data = index_of(path).read_bytes()
    index_of(path).write_bytes(data[:100] + b"\xff" * 3000 + data[3100:])
    await store.delete_session_tree(doomed)
    assert b"secretword" not in bytes_beside(path)


@pytest.mark.parametrize("damage", ["cut", "noise", "empty", "text", "other"])
async def test_a_broken_index_is_made_anew(store: flue_py.Store, path: Path, damage: str) -> None:
    session = await store.create_session()
    for number in range(200):
        await session.append_message(user(f"needle n{number}"))
    assert len(await found(store, "needle", limit=300)) == 200
    index = index_of(path)
    data = index.read_bytes()
    draws = random.Random(3)
    if damage == "other":
        index.unlink()
        with closing(sqlite3.connect(index)) as other:
            other.execute("CREATE TABLE sessions (id)")
    else:
        broken = {
            "cut": data[: len(data) // 2],
            "noise": data[:4096] + draws.randbytes(len(data) - 4096),
            "empty": b"",
            "text": b"no database\n" * 1000,
        }
        index.write_bytes(broken[damage])
    answer = await store.search("needle", limit=300)
    assert len(answer.hits) == 200
    assert (await store.search("n7")).searched.by_index


async def test_what_is_damaged_is_named_by_each_search_and_the_rest_is_found(path: Path, small_pieces: None) -> None:
    async with flue_py.open(path) as store:
        rows = {}
        for name in ("early", "late"):  # the texts of the first are in the index
            session = await store.create_session(id=name)
            await session.append_messages([user(f"needle {name} {number}") for number in range(12)])
            await session.append_message(user(f"needle {name} 12"))
            await (await session.fork()).append_message(user("needle fork"))
            rows[name] = await session.get_active_path()
            if name == "early":
                assert len((await store.search("needle", limit=50)).hits) == 14
    with closing(sqlite3.connect(path)) as connection:
        connection.executemany(
            "UPDATE entries SET payload = ?, packed = NULL WHERE id = ?",
            [(b'{"role": "user", "content": "needle forged"}', rows[name][3].id) for name in rows]
            + [(b"\xff", rows["late"][12].id)],
        )
        connection.commit()
    for _ in range(2):
        async with flue_py.open(path) as store:
            for how in ("words", "substring"):
                answer = await store.search("needle", how=how, limit=100)
                assert len(answer.hits) == 25
                assert "forged" not in str(answer.hits)
                named = [rows["early"][3].id, rows["late"][3].id, rows["late"][12].id]
                assert [[entry_id in fault for fault in answer.damaged].count(True) for entry_id in named] == [1, 1, 1]


async def test_whatever_is_damaged_everything_is_found(path: Path, small_pieces: None) -> None:
    draws = random.Random(4)
    async with flue_py.open(path) as store:
        for number in range(3):
            session = await store.create_session(title=f"title {number}")
            texts = [" ".join(f"w{draws.randrange(60)}" for _ in range(20)) for _ in range(20)]
            await session.append_messages([user(text) for text in texts])
        words_asked = ["w0", "w21", "w49"]
        expected = [await found(store, word, limit=100) for word in words_asked]
    whole, wrong = index_of(path).read_bytes(), []
    for seed in range(16):
        draws.seed(seed)
        data, at = bytearray(whole), draws.randrange(len(whole))
        if seed % 4 == 0:
            del data[at:]
        elif seed % 4 == 1:
            data[at - at % 4096 : at - at % 4096 + 4096] = bytes(4096)
        else:
            for _ in range(draws.choice([1, 20])):
                data[draws.randrange(len(data))] ^= 1 << draws.randrange(8)
        index_of(path).write_bytes(data)
        async with flue_py.open(path) as again:
            answers = [await found(again, word, limit=100) for word in words_asked]
            wrong += [f"seed {seed}"] if answers != expected else []
            wrong += [f"seed {seed}: {problem}" for problem in (await again.verify()).problems]
    assert wrong == []


async def test_another_version_of_what_texts_have_makes_it_anew(
    store: flue_py.Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await store.create_session()
    await session.append_message(user("needle"))
    await store.search("needle")
    with closing(sqlite3.connect(index_of(path))) as index:
        (before,) = index.execute("PRAGMA user_version").fetchone()
        index.execute("UPDATE texts SET weight = 99")
        index.commit()
    monkeypatch.setattr(searching, "VERSION", searching.VERSION + 1)
    assert await found(store, "needle") == ["messages: needle"]
    with closing(sqlite3.connect(index_of(path))) as index:
        assert index.execute("PRAGMA user_version").fetchone() == (before + 100,)
        assert index.execute("SELECT weight FROM texts").fetchall() == [(20,)]
    monkeypatch.undo()
    assert await found(store, "needle") == ["messages: needle"]


async def test_verify_tells_of_an_index_that_does_not_find_what_the_store_has(path: Path) -> None:
    async with flue_py.open(path) as store:
        session = await store.create_session()
        await session.append_message(user("needle"))
        await store.search("needle")
        before = index_of(path).stat()
        with closing(sqlite3.connect(index_of(path))) as index:
            index.execute("DELETE FROM texts")
            index.commit()
        # As a medium forgets: nobody has written to it.
        os.utime(index_of(path), ns=(before.st_mtime_ns, before.st_mtime_ns))
        problems = (await store.verify()).problems
        assert {problem.kind for problem in problems} == {"index of words"}
        assert all(problem.where == str(index_of(path)) for problem in problems)
        index_of(path).unlink()
        assert (await store.verify()).problems == []


@pytest.mark.parametrize("seconds", [1, 2])
async def test_it_stays_where_files_have_coarse_times(
    store: flue_py.Store, path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    set_time, made_anew = os.utime, []

    def set_coarse_time(file: Path, *, ns: tuple[int, int]) -> None:
        coarse = ns[1] // (seconds * 10**9) * seconds * 10**9
        set_time(file, ns=(coarse, coarse))

    monkeypatch.setattr(os, "utime", set_coarse_time)
    monkeypatch.setattr(words, "remove_words", lambda of, remove=words.remove_words: made_anew.append(remove(of)))
    session = await store.create_session()
    for number in range(3):
        await session.append_message(user(f"needle {number}"))
        assert len(await found(store, "needle")) == number + 1
        async with flue_py.open(path) as other:
            assert len(await found(other, "needle")) == number + 1
    assert made_anew == []


async def test_what_others_do_to_it_between_two_searches_is_noticed(store: flue_py.Store, path: Path) -> None:
    session = await store.create_session()
    await session.append_message(user("needle"))
    assert await found(store, "needle") == ["messages: needle"]
    async with flue_py.open(path) as other:
        await other.backend.remove_words()
        await (await other.create_session()).append_message(user("needle of the other"))
        both = ["messages: needle", "messages: needle of the other"]
        assert await found(other, "needle") == await found(store, "needle") == both
        await other.delete_session_tree(session.id)
    assert await found(store, "needle") == ["messages: needle of the other"]
    index_of(path).unlink()
    assert await found(store, "needle") == ["messages: needle of the other"]
    assert b"needle" in bytes_beside(path)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
async def test_an_index_that_a_search_leaves_open_is_closed_with_its_store(path: Path) -> None:
    async with flue_py.open(path) as store:
        await (await store.create_session()).append_message(user("needle"))
        await asyncio.gather(*(found(store, "needle") for _ in range(5)))
        left = open_files(index_of(path))
    assert (left, open_files(index_of(path))) == (1, 0)


def open_files(path: Path) -> int:
    """Return how many times this process has a file open."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found += each.readlink() == path
    return found


async def test_it_is_in_no_backup_and_no_copy_of_the_file(store: flue_py.Store, path: Path, tmp_path: Path) -> None:
    session = await store.create_session()
    await session.append_message(user("needle"))
    await store.search("needle")
    (tmp_path / "there").mkdir()
    await store.backup(tmp_path / "there" / "copy.db")
    assert [each.name for each in (tmp_path / "there").iterdir()] == ["copy.db"]
    async with flue_py.open(tmp_path / "there" / "copy.db") as copy:
        assert await found(copy, "needle") == ["messages: needle"]


async def test_a_store_that_is_only_read_is_read_through(path: Path) -> None:
    async with flue_py.open(path) as store:
        await (await store.create_session()).append_message(user("needle"))
    async with flue_py.open(path, read_only=True) as store:
        answer = await store.search("needle")
        assert len(answer.hits) == 1
        assert not answer.searched.by_index
    assert not index_of(path).exists()


@inputs("searched_between", [True, False], ids=["older", "at the same revision"])
async def test_another_store_in_its_place_is_noticed(tmp_path: Path, searched_between: bool) -> None:
    path = tmp_path / "s.db"
    async with flue_py.open(path) as store:
        session = await store.create_session(id="s1")
        await session.append_message(user("needle one"))
        await store.backup(tmp_path / "old.db")
        await session.append_message(user("needle two"))
        assert len(await found(store, "needle")) == 2
    (tmp_path / "old.db").replace(path)
    async with flue_py.open(path) as store:
        if searched_between:
            assert await found(store, "needle") == ["messages: needle one"]
        session = await store.find_session("s1")
        await session.append_message(user("needle three"))
        assert await found(store, "needle") == ["messages: needle one", "messages: needle three"]
        assert b"two" not in bytes_beside(path)


def copy_into(path: Path, backup: Path) -> None:
    """Put a backup in the place of a store as ``cp`` does it: the file itself stays the same."""
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    path.write_bytes(backup.read_bytes())


@pytest.mark.parametrize("again", [3, 5, 9])
async def test_an_older_state_that_was_copied_into_the_file_is_noticed_however_far_it_has_come_since(
    path: Path, tmp_path: Path, again: int
) -> None:
    async with flue_py.open(path) as store:
        source = await store.create_session(id="source")
        await source.append_message(user("needle of the source"))
        silent = await store.create_session(id="silent")
        session = await store.create_session(id="s1")
        await session.append_message(user("needle"))
        fork = await source.fork(id="fork")
        await store.backup(tmp_path / "old.db")
        for number in range(5):
            await session.append_message(user(f"needle lost {number}"))
            await silent.set_title(f"title {number}")
        await fork.append_message(user("needle lost"))
        await store.delete_session_tree("source")
        assert len(await found(store, "needle")) == 8
    copy_into(path, tmp_path / "old.db")
    async with flue_py.open(path) as store:
        for number in range(again):
            for name in ("s1", "silent", "fork"):
                await (await store.find_session(name)).append_message(user(f"needle {name} {number}"))
        answer = await store.search("needle", limit=100)
        scanned = await store.search("needle", how="substring", limit=100)
        texts = [sorted(hit.snippet.text for hit in each.hits) for each in (answer, scanned)]
        assert answer.searched.by_index
        assert texts[0] == texts[1]
        assert len(texts[0]) == 2 + 3 * again
        assert (await store.verify()).problems == []


@pytest.mark.parametrize("how", ["words", "substring"])
async def test_a_search_of_everything_goes_on_without_a_session_that_is_deleted_meanwhile(
    store: flue_py.Store, monkeypatch: pytest.MonkeyPatch, how: How
) -> None:
    for name in ("first", "doomed", "last"):
        await (await store.create_session(id=name)).append_message(user(f"needle {name}"))
    name = "changes" if how == "words" else "readable_entries"
    read = getattr(Backend, name)

    async def of_one_that_is_deleted(self: Backend, session_id: str, after: int, limit: int) -> Any:
        if session_id == "doomed":
            # By another process, which is killed before the index forgets it.
            await self._runner.write(lambda tx: ops.delete.delete_tree(tx, self._sources, "doomed", None))
        return await read(self, session_id, after, limit)

    monkeypatch.setattr(Backend, name, of_one_that_is_deleted)
    answer = await store.search("needle", how=how)
    assert sorted(hit.snippet.text for hit in answer.hits) == ["needle first", "needle last"]


async def test_a_search_waits_for_nobody_who_writes_to_the_store(store: flue_py.Store, path: Path) -> None:
    session = await store.create_session()
    await session.append_message(user("needle"))
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert await found(store, "needle") == ["messages: needle"]
        writer.execute("ROLLBACK")


async def test_appends_wait_for_nobody_who_writes_to_the_index(store: flue_py.Store, path: Path) -> None:
    session = await store.create_session()
    await session.append_message(user("needle"))
    await store.search("needle")
    with closing(sqlite3.connect(index_of(path), isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        await session.append_message(user("needle again"))
        writer.execute("ROLLBACK")
    assert len(await found(store, "needle")) == 2


async def test_a_cancelled_search_leaves_the_index_whole(store: flue_py.Store, small_pieces: None) -> None:
    session = await store.create_session()
    await session.append_messages([user(f"needle n{number}") for number in range(100)])
    for steps in range(40):
        task = asyncio.ensure_future(store.search("needle"))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert len(await found(store, "needle", limit=200)) == 100


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@inputs("count", [1, 6])
async def test_more_stores_searches_and_deletions_at_once_than_there_are_threads(
    tmp_path: Path, count: int, small_pieces: None
) -> None:
    path = tmp_path / f"{count}.db"
    (tmp_path / f"link {count}").symlink_to(tmp_path)
    async with AsyncExitStack() as stack:
        paths = ([path, tmp_path / f"link {count}" / path.name] * 3)[:count]
        stores = [await stack.enter_async_context(flue_py.open(each, durability="normal")) for each in paths]
        session = await stores[0].create_session()
        await session.append_messages([user(f"needle n{number}") for number in range(200)])
        threads = stack.enter_context(ThreadPoolExecutor(2))
        asyncio.get_running_loop().set_default_executor(threads)
        doomed = [await each.create_session() for each in stores * (6 // count)]
        searches = asyncio.gather(*(store.search("n7") for store in stores * (12 // count)))
        await asyncio.gather(*(stores[-1].delete_session_tree(each.id) for each in doomed[1:]), searches)
        for answer in await searches:
            assert (len(answer.hits), answer.searched.by_index) == (1, True)


async def test_who_comes_late_does_not_set_it_back(
    store: flue_py.Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await store.create_session()
    await session.append_message(user("needle one"))
    heads = await store.backend.session_heads()
    await session.append_message(user("needle two"))
    assert len(await found(store, "needle")) == 2
    late = existing(await store.backend.open_words(searching.VERSION))
    with monkeypatch.context() as patched:
        patched.setattr(words.WaitedWords, "known", nothing_known)
        await searching.Indexer(store.backend, late).catch_up(heads)
    await late.close()
    assert len(await found(store, "needle")) == 2
    with closing(sqlite3.connect(index_of(path))) as index:
        assert index.execute("SELECT count(*) FROM texts").fetchone() == (2,)


async def nothing_known(_: object) -> dict[int, object]:
    """Stand for what a process saw that looked before others had added anything."""
    return {}


APPENDING = textwrap.dedent(
    """
    import asyncio, sys
    import flue_py
    from flue_py.sessions import search as searching
    searching._INDEXING_PAGE, searching._CHUNK = 5, 7
    async def main(path, name):
        async with flue_py.open(path) as store, flue_py.open(path) as other:
            session = await store.create_session(id=name)
            for number in range(40):
                await session.append_message({"role": "user", "content": f"needle n{number}"})
                answers = await asyncio.gather(
                    store.search("needle", sessions=[name], limit=100), other.search("needle", limit=1000)
                )
                assert len(answers[0].hits) == number + 1, len(answers[0].hits)
                assert len(answers[1].hits) > number, len(answers[1].hits)
                assert all(answer.searched.by_index for answer in answers), answers
    asyncio.run(main(*sys.argv[1:]))
    """
)


@pytest.mark.thorough
def test_stores_of_several_processes_search_while_all_of_them_append(path: Path) -> None:
    many_needles(path, 0, 0)
    processes = [subprocess.Popen([sys.executable, "-c", APPENDING, str(path), name], cwd=ROOT) for name in "abc"]
    assert [process.wait() for process in processes] == [0] * 3
    with flue_py.sync.open(path) as store:
        assert len(store.search("needle", limit=1000).hits) == 120
        assert store.verify().problems == []
    with closing(sqlite3.connect(index_of(path))) as index:
        assert index.execute("SELECT count(*), count(DISTINCT entry_id) FROM texts").fetchone() == (120, 120)


async def test_what_a_deletion_takes_out_during_a_search_is_added_before_it_answers(
    store: flue_py.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, doomed = await store.create_session(), await store.create_session()
    await session.append_message(user("needle"))
    await doomed.append_message(user("hay"))
    catch_up = searching.Indexer.catch_up

    async def then_delete(indexer: searching.Indexer, heads: Sequence[SessionHead]) -> None:
        await catch_up(indexer, heads)
        await store.delete_session_tree(doomed)

    monkeypatch.setattr(searching.Indexer, "catch_up", then_delete)
    answer = await store.search("needle")
    assert (len(answer.hits), answer.searched.by_index) == (1, True)


async def test_what_was_taken_out_and_added_again_during_a_search_is_found(
    store: flue_py.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, doomed = await store.create_session(), await store.create_session()
    await session.append_message(user("needle"))
    await doomed.append_message(user("hay"))
    by_index = searching.Finder.by_index
    has_run: list[bool] = []

    async def between(finder: searching.Finder, index: WordIndex, limit: int) -> searching.Found:
        if has_run:
            return await by_index(finder, index, limit)
        has_run.append(True)
        await store.delete_session_tree(doomed)
        found = await by_index(finder, index, limit)
        assert len((await store.search("needle")).hits) == 1
        return found

    monkeypatch.setattr(searching.Finder, "by_index", between)
    answer = await store.search("needle")
    assert (len(answer.hits), answer.searched.by_index) == (1, True)


async def test_what_came_after_a_search_began_is_not_taken_out_by_it(store: flue_py.Store, path: Path) -> None:
    session = await store.create_session()
    await session.append_message(user("needle"))
    heads = await store.backend.session_heads()
    later = await store.create_session()
    await later.append_message(user("needle"))
    await later.fork()
    await session.append_message(user("needle"))
    assert len((await store.search("needle")).hits) == 3
    index = existing(await store.backend.open_words(searching.VERSION))
    try:
        before = await index.moment()
        await searching.Indexer(store.backend, index).catch_up(heads)
        assert await index.moment() == before
    finally:
        await index.close()
    with closing(sqlite3.connect(index_of(path))) as connection:
        assert connection.execute("SELECT count(*) FROM texts").fetchone() == (3,)


SEARCHING = textwrap.dedent(
    """
    import sys
    import flue_py.sync
    from flue_py.sessions import search as searching
    searching._INDEXING_PAGE, searching._CHUNK = 20, 40
    with flue_py.sync.open(sys.argv[1]) as store:
        print(len(store.search("needle", limit=1000).hits), flush=True)
    """
)


def many_needles(path: Path, sessions: int, each: int) -> None:
    with flue_py.sync.open(path, durability="normal") as store:
        for _ in range(sessions):
            session = store.create_session()
            for number in range(each):
                session.append_message(user(f"needle n{number}"))


def test_several_processes_make_it_at_once(path: Path) -> None:
    many_needles(path, 10, 60)
    arguments = [sys.executable, "-c", SEARCHING, str(path)]
    processes = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(3)]
    assert [process.communicate()[0].strip() for process in processes] == ["600"] * 3
    with closing(sqlite3.connect(index_of(path))) as index:
        assert index.execute("SELECT count(*) FROM texts").fetchone() == (600,)


KILLED = textwrap.dedent(
    """
    import os, signal
    from flue_py.db.sqlite.words import SqliteWords
    commit, left = SqliteWords.commit, [int(sys.argv[2])]
    def dying(self):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        commit(self)
    SqliteWords.commit = dying
    """
)


@pytest.mark.parametrize("commits", [1, 5])
def test_who_makes_it_may_be_killed_at_any_time(path: Path, commits: int) -> None:
    many_needles(path, 1, 300)
    script = SEARCHING.replace("with flue_py", f"{KILLED}\nwith flue_py")
    done = subprocess.run([sys.executable, "-c", script, str(path), str(commits)], cwd=ROOT, check=False)
    assert done.returncode == -9
    with flue_py.sync.open(path) as store:
        assert len(store.search("needle", limit=1000).hits) == 300
        assert store.verify().problems == []


async def test_it_takes_less_than_the_text(store: flue_py.Store, path: Path) -> None:
    draws = random.Random(5)
    vocabulary = ["".join(draws.choices("abcdefghijklmnopqrstuvwxyz", k=draws.randint(2, 10))) for _ in range(2000)]
    session = await store.create_session()
    texts = [" ".join(draws.choices(vocabulary, weights=range(2000, 0, -1), k=60)) for _ in range(800)]
    await session.append_messages([result("read", text) for text in texts])
    await store.search("needle")
    assert index_of(path).stat().st_size < 0.6 * sum(map(len, texts))


@pytest.mark.parametrize("threads", [True, False])
async def test_it_stays_beside_the_store_when_the_working_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: bool
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    async with flue_py.open("s.db", threads=threads) as store:
        doomed = await store.create_session()
        await doomed.append_message(user("secretword"))
        assert len(await found(store, "secretword")) == 1
        monkeypatch.chdir(tmp_path / "elsewhere")
        await store.delete_session_tree(doomed)
        assert b"secretword" not in (tmp_path / "s.db-words").read_bytes()
        assert await found(store, "secretword") == []
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_what_an_index_found_before_it_failed_is_found_by_reading_everything(
    store: flue_py.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await store.create_session()
    await session.append_message(user("a needle"))
    looks: list[int] = []

    async def fails_afterwards(_: words.WaitedWords) -> int:
        looks.append(1)
        if len(looks) > 1:
            raise StoreUnavailable("the disk has gone")
        return 0

    monkeypatch.setattr(words.WaitedWords, "moment", fails_afterwards)
    answer = await store.search("needle")
    monkeypatch.undo()
    assert len(looks) == 2
    assert not answer.searched.by_index
    assert [hit.snippet.text for hit in answer.hits] == ["a needle"]
