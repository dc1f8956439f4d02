"""What a store says where an attachment or an artifact is lost or damaged, and what they cost."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from base64 import b64encode
from contextlib import closing
from pathlib import Path
from typing import Any

import flue_py
from flue_py.core.json import JsonObject
from flue_py.core.sessions import STORED, Limits, NewSession
from flue_py.db.backend import Backend
from flue_py.db.engine import open_engine
from flue_py.db.salvage.rebuild import salvage
from flue_py.db.sqlite.runner import MemoryRunner, open_sqlite
from flue_py.errors import CorruptStore, UnreadableFile
from flue_py.sessions.store import Store
from flue_py.transfer import read_bundle, write_bundle
from tests.checks import raises
from tests.contract.documents import TEXT, artifact
from tests.postgres import NewDatabase, connected
from tests.samples import PICTURE, add, compaction, new_session, path_ids, path_of, pictured, talk, talked, user
from tests.sources import counted_sources
from tests.store.damaged_stores import change, root_of
from tests.tables import inputs
from tests.values import existing

OTHER_PICTURE = PICTURE[::-1]
LOST: JsonObject = {"type": "text", "text": "[image no longer available: image/png]"}


async def open_in(path: Path) -> Backend:
    return await open_sqlite(path, sources=counted_sources(), durability="normal")


def content_of(entry_or_message: Any) -> list[Any]:
    """Return the parts of a message, or of an entry that is one."""
    message = getattr(entry_or_message, "data", entry_or_message)
    parts: list[Any] = message["content"]
    return parts


# -- what it takes ----------------------------------------------------------------------------------------------------


async def test_a_large_picture_that_comes_ten_times_takes_the_room_of_one(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    large = PICTURE * 20
    backend = await open_in(path)
    session = await new_session(backend, *[pictured(large, text=f"{n}") for n in range(5)])
    fork = await backend.fork(session.id, STORED, NewSession())
    await add(backend, fork.id, *[pictured(large, text=f"again {n}") for n in range(5)])
    bundle = tmp_path / "all.flue"
    await write_bundle(Store(backend), bundle)
    await backend.close()
    assert path.stat().st_size < len(large) + 200_000
    assert bundle.stat().st_size < len(large) + 230_000


class _TracedRunner(MemoryRunner):
    """Notes what SQLite is asked, and counts what it does for that."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.steps = 0
        self._connection.set_trace_callback(self.asked.append)
        self._connection.set_progress_handler(self._count, 1)

    def _count(self) -> int:
        self.steps += 1
        return 0

    def since_last_time(self) -> tuple[int, int]:
        """Return how many statements since the last time had to do with attachments or blobs, and all steps."""
        found = sum(" attachments " in sql or " blobs " in sql for sql in self.asked)
        steps, self.steps = self.steps, 0
        self.asked.clear()
        return found, steps


async def test_a_path_with_pictures_takes_one_statement_more_than_one_without() -> None:
    runner = _TracedRunner()
    backend = Backend(runner, counted_sources())
    session = await new_session(backend, *talk(6))
    runner.since_last_time()
    await backend.read_path(session.id)
    assert runner.since_last_time()[0] == 0
    await add(backend, session.id, *[pictured(PICTURE, OTHER_PICTURE, text=f"{n}") for n in range(4)], *talk(3))
    fork = await backend.fork(session.id, (await path_ids(backend, session.id))[7], NewSession())
    await add(backend, fork.id, pictured(PICTURE))
    runner.since_last_time()
    for each in (session.id, fork.id):
        await backend.read_path(each)
        assert runner.since_last_time()[0] == 1
        await backend.read_messages(each)
        assert runner.since_last_time()[0] == 1
    await backend.close()


# -- what is lost -----------------------------------------------------------------------------------------------------


async def make(backend: Backend) -> tuple[str, list[str]]:
    """A session with two pictures in two messages, the first of them in both; and the ids of its path."""
    session = await new_session(backend, user("before"), pictured(PICTURE, OTHER_PICTURE, text="é"))
    await add(backend, session.id, pictured(PICTURE, text="again"), user("after"))
    return session.id, await path_ids(backend, session.id)


async def check_words_stand(backend: Backend, session_id: str, ids: list[str]) -> None:
    """Check what every read gives where the first picture is lost."""
    path = await path_of(backend, session_id)
    kept = {"type": "image", "data": b64encode(OTHER_PICTURE).decode(), "mimeType": "image/png"}
    assert [entry.id for entry in path] == ids
    assert content_of(path[1]) == [{"type": "text", "text": "é"}, LOST, kept]
    assert content_of(path[2]) == [{"type": "text", "text": "again"}, LOST]
    assert [path[0].payload, path[3].payload] == [user("before").payload, user("after").payload]
    messages = [entry.data for entry in path]
    assert (await backend.read_messages(session_id)).messages == messages
    assert (await backend.read_messages(session_id, leaf=ids[2])).messages == messages[:3]
    assert await backend.get_entry(session_id, ids[1]) == path[1]
    assert await backend.read_tree(session_id) == path
    assert await backend.read_turns(session_id) == path
    assert [entry for change in await backend.changes(session_id, 0, 9) for entry in change.entries] == path
    assert [line.words for line in await backend.read_log(session_id, before=None, limit=9)] == ["again", "before"]
    problems = (await backend.verify()).problems
    assert [(problem.kind, problem.where) for problem in problems] == [
        ("missing attachment", f"entry {ids[1]}"),
        ("missing attachment", f"entry {ids[2]}"),
    ]


_OF_PICTURE = f"WHERE hex(data) LIKE '{PICTURE[:8].hex().upper()}%'"
LOSSES = {
    "deleted": f"DELETE FROM blobs {_OF_PICTURE}",
    "damaged": f"UPDATE blobs SET data = CAST(X'00' || data AS BLOB) {_OF_PICTURE}",
    "text": f"UPDATE blobs SET data = 'text' {_OF_PICTURE}",
}


@inputs("runner", ["sqlite3", "aiosqlite"])
@inputs("loss", LOSSES)
async def test_words_stand_for_a_picture_that_is_lost_and_all_else_is_read(
    tmp_path: Path, loss: str, runner: str
) -> None:
    path = tmp_path / "s.db"
    backend = await open_in(path)
    session_id, ids = await make(backend)
    await backend.close()
    change(path, LOSSES[loss])
    url = f"sqlite+aiosqlite:///{path}"
    backend = await (open_engine(url, sources=counted_sources()) if runner == "aiosqlite" else open_in(path))
    await check_words_stand(backend, session_id, ids)
    await add(backend, session_id, pictured(PICTURE, text="here it is"))
    problems = (await backend.verify()).problems
    assert problems == [] or loss != "deleted"
    await backend.close()


async def test_postgresql_has_words_for_it_too(new_database: NewDatabase) -> None:
    url = new_database()
    backend = await open_engine(url, sources=counted_sources())
    try:
        session_id, ids = await make(backend)
        async with connected(url) as connection:
            deleted = await connection.execute("DELETE FROM blobs WHERE position($1 IN data) = 1", PICTURE[:8])
            assert deleted == "DELETE 1"
        await check_words_stand(backend, session_id, ids)
    finally:
        await backend.close()


async def test_an_export_of_a_session_that_lost_a_picture_says_so(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    backend = await open_in(path)
    session_id, _ = await make(backend)
    await backend.close()
    change(path, LOSSES["deleted"])
    async with flue_py.open(path) as store:
        session = existing(await store.get_session(session_id))
        written = json.dumps(await session.build_context())
        assert written.count("[image no longer available: image/png]") == 2
        await raises(CorruptStore, write_bundle(store, tmp_path / "all.flue"))


async def test_a_compaction_that_lost_a_picture_is_one_still(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    backend = await open_in(path)
    session, ids = await talked(backend, 4)
    await add(backend, session.id, compaction(ids[2], summary=f"seen {b64encode(PICTURE).decode()}"))
    await backend.close()
    change(path, "DELETE FROM blobs")
    backend = await open_in(path)
    messages = (await backend.read_messages(session.id)).messages
    assert len(messages) == 3
    assert "seen [image no longer available: unknown]" in str(messages[0])
    await backend.close()


async def test_an_attachment_that_leads_nowhere_or_to_the_wrong_place_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    backend = await open_in(path)
    session_id, ids = await make(backend)
    await backend.close()
    other = "(SELECT sha256 FROM attachments WHERE depth = 1 ORDER BY place DESC LIMIT 1)"
    change(path, f"UPDATE attachments SET sha256 = {other} WHERE depth = 2")
    backend = await open_in(path)
    await raises(CorruptStore, backend.read_path(session_id), match=f"entry '{ids[2]}' does not match its digest")
    assert [(each.kind, each.where) for each in (await backend.verify()).problems] == [
        ("damaged entry", f"entry {ids[2]}")
    ]
    await backend.close()
    change(path, "UPDATE attachments SET depth = 77 WHERE depth = 2")
    backend = await open_in(path)
    problems = {each.kind: each for each in (await backend.verify()).problems}
    assert problems.keys() == {"damaged entry", "orphaned attachment"}
    assert "depth 77" in problems["orphaned attachment"].detail
    await backend.close()


# -- rescue -----------------------------------------------------------------------------------------------------------


async def made_for_rescue(path: Path) -> tuple[str, list[str]]:
    backend = await open_in(path)
    session_id, ids = await make(backend)
    fork = await backend.fork(session_id, ids[2], NewSession())
    await add(backend, fork.id, pictured(PICTURE, text="in the fork"))
    await backend.close()
    return session_id, ids


@inputs("lost", [(), ("attachments",), ("ix_attachments_sha256",)])
async def test_salvage_keeps_pictures_by_the_table_or_by_its_index(tmp_path: Path, lost: tuple[str, ...]) -> None:
    path, new = tmp_path / "damaged.db", tmp_path / "new.db"
    session_id, ids = await made_for_rescue(path)
    backend = await open_in(path)
    before = await path_of(backend, session_id)
    await backend.close()
    for name in lost:
        with path.open("r+b") as file:
            file.seek((root_of(path, name) - 1) * 4096)
            file.write(bytes(4096))
    report = await asyncio.to_thread(salvage, path, new)
    assert (report.losses, report.changes) == ((), ())
    backend = await open_in(new)
    assert await path_of(backend, session_id) == before
    (head,) = await backend.list_trees(-1, 9)
    tree = existing(await backend.read_whole_tree(head.tree_id))
    assert (len(tree.blobs), len(tree.attachments), len(ids)) == (2, 4, 4)
    await backend.close()


async def test_salvage_writes_words_for_a_picture_that_is_lost(tmp_path: Path) -> None:
    path, new = tmp_path / "damaged.db", tmp_path / "new.db"
    session_id, ids = await made_for_rescue(path)
    data = path.read_bytes()
    at = data.index(PICTURE[:1000])
    path.write_bytes(data[:at] + bytes(100) + data[at + 100 :])
    report = await asyncio.to_thread(salvage, path, new)
    assert report.losses == ()
    assert {loss.entry_id for loss in report.changes} >= {ids[1], ids[2]}
    assert all("lost what was attached" in loss.detail for loss in report.changes)
    backend = await open_in(new)
    path_now = await path_of(backend, session_id)
    assert content_of(path_now[1])[1] == content_of(path_now[2])[1] == LOST
    assert content_of(path_now[1])[2]["data"] == b64encode(OTHER_PICTURE).decode()
    assert (await backend.verify()).problems == []
    await backend.close()


# -- bundles ----------------------------------------------------------------------------------------------------------


async def bundled(folder: Path, picture: bytes) -> Path:
    async with flue_py.open(":memory:") as store:
        session = await store.create_session(key="a")
        part: JsonObject = {"type": "image", "data": b64encode(picture).decode(), "mimeType": "image/png"}
        await session.append_message({"role": "user", "content": [part, part]})
        await write_bundle(store, folder / "a.flue")
    return folder / "a.flue"


async def test_a_bundle_has_a_picture_once_and_brings_it_back(tmp_path: Path) -> None:
    path = await bundled(tmp_path, PICTURE)
    assert path.read_bytes().count(PICTURE[:500]) == 1
    async with flue_py.open(":memory:") as store:
        await read_bundle(store, path)
        session = await store.open_session("a")
        (message,) = await session.build_context()
        assert [part["data"] for part in content_of(message)] == [b64encode(PICTURE).decode()] * 2
        await write_bundle(store, tmp_path / "again.flue")
    assert (tmp_path / "again.flue").read_bytes().count(PICTURE[:500]) == 1


async def test_a_bundle_whose_attachments_make_an_entry_too_large_is_refused(tmp_path: Path) -> None:
    path = await bundled(tmp_path, PICTURE)
    needed = 2 * len(b64encode(PICTURE))
    async with flue_py.open(":memory:") as store:
        await raises(UnreadableFile, read_bundle(store, path, limits=Limits(entry_bytes=needed)), match="entry_bytes")
        await read_bundle(store, path, limits=Limits(entry_bytes=needed + 1_000))


# -- What artifacts cost a context, and what a store says where the text of one is lost ---------------------------


async def test_a_context_asks_for_nothing_of_an_artifact() -> None:
    runner = _TracedRunner()
    backend = Backend(runner, counted_sources())
    session = await new_session(backend)
    other = await new_session(backend)
    for number in range(20):
        await add(backend, session.id, *talk(2, number), artifact(f"{number}" + TEXT, f"{number}"), user("stub"))
        await add(backend, other.id, *talk(2, number), artifact(f"{number}", f"o{number}"), user("stub"))
    for read in (
        backend.read_messages,
        backend.read_context,
        lambda session_id: backend.read_context_end(session_id, 7),
        lambda session_id: backend.read_entries(session_id, kind="tool_artifact", contents=False),
    ):
        runner.since_last_time()
        await read(session.id)
        asked, steps = runner.since_last_time()
        assert asked == 0
        await read(other.id)
        # Twenty results of sixty kilobytes cost what twenty of a word do, but for a few halvings more of an index, and
        # five steps each to pass over one in newer SQLites.
        assert steps <= (1.02 if sqlite3.sqlite_version_info < (3, 46) else 1.06) * runner.since_last_time()[1]
    await backend.read_path(session.id)
    assert runner.since_last_time()[0] == 1
    await backend.close()


async def test_a_context_with_pictures_reads_these_alone() -> None:
    backend = Backend(MemoryRunner(), counted_sources())
    session = await new_session(backend, pictured(PICTURE), artifact(TEXT, "1"), user("stub"))
    messages = (await backend.read_messages(session.id)).messages
    assert [message["role"] for message in messages] == ["user", "user"]
    assert (await Store(backend).verify()).problems == []
    await backend.close()


TEXT_LOSSES = {
    "deleted": "DELETE FROM blobs",
    "damaged": "UPDATE blobs SET data = CAST(X'00' || data AS BLOB)",
    "another": "UPDATE blobs SET data = CAST('another text' AS BLOB)",
}


@inputs("loss", TEXT_LOSSES)
async def test_a_text_that_is_lost_is_named_and_all_else_is_read(tmp_path: Path, loss: str) -> None:
    path = tmp_path / "s.db"
    settings = flue_py.OffloadSettings()
    result: flue_py.JsonObject = {"role": "toolResult", "toolCallId": "c", "toolName": "t", "content": TEXT}
    async with flue_py.open(path) as store:
        session = await store.create_session(id="s")
        await session.append_message({"role": "user", "content": "x"})
        await session.append_message(result, offload=settings)
        before = await session.build_context()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(TEXT_LOSSES[loss]).rowcount == 1
        connection.commit()
    async with flue_py.open(path) as store:
        found = existing(await store.get_session("s"))
        assert await found.build_context() == before
        (listed,) = await found.artifacts.all()
        await raises(CorruptStore, found.artifacts.read(listed.id), match="verify")
        await raises(CorruptStore, found.artifacts.answer_read({"id": "c", "arguments": {"id": listed.id}}))
        (problem,) = (await store.verify()).problems
        assert (problem.kind, problem.where) == ("missing attachment", f"entry {listed.entry_id}")
        # The same result again: what was deleted is there again, and nothing stands in its way.
        await found.append_message(result, offload=settings)
        assert len(await found.artifacts.all()) == 2
        assert ((await store.verify()).problems == []) == (loss == "deleted")


async def test_an_artifact_whose_row_is_lost_is_named_and_a_rescue_does_without_it(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with flue_py.open(path) as store:
        session = await store.create_session(id="s")
        await session.append_message({"role": "user", "content": "x"})
        result: flue_py.JsonObject = {"role": "toolResult", "toolCallId": "c", "content": TEXT}
        appended = await session.append_message(result, offload=flue_py.OffloadSettings())
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("DELETE FROM entries WHERE kind = 'tool_artifact'").rowcount == 1
        connection.commit()
    async with flue_py.open(path) as store:
        kinds = {problem.kind for problem in (await store.verify()).problems}
        assert {"wrong depth", "orphaned attachment"} <= kinds
    report = salvage(path, tmp_path / "new.db")
    async with flue_py.open(tmp_path / "new.db") as rescued:
        found = existing(await rescued.get_session("s"))
        assert await found.get_entry(appended.entry_id) is not None
        assert (await rescued.verify()).problems == []
    assert report.changes or report.losses


async def test_a_rescue_brings_artifacts_along(tmp_path: Path) -> None:
    async with flue_py.open(tmp_path / "s.db") as store:
        session = await store.create_session(id="s")
        result: flue_py.JsonObject = {"role": "toolResult", "toolCallId": "c", "content": TEXT}
        await session.append_message(result, offload=flue_py.OffloadSettings())
        (listed,) = await session.artifacts.all()
    salvage(tmp_path / "s.db", tmp_path / "new.db")
    async with flue_py.open(tmp_path / "new.db") as rescued:
        found = existing(await rescued.get_session("s"))
        assert (await found.artifacts.read(listed.id, length=None)).text == TEXT
        assert (await rescued.verify()).problems == []
