"""What artifacts cost a context, and what a store says where the text of one is lost."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import flue_py
from flue_py.db.backend import Backend
from flue_py.db.salvage.rebuild import salvage
from flue_py.db.sqlite.runner import MemoryRunner
from flue_py.errors import CorruptStore
from flue_py.sessions.store import Store
from tests.contract.documents import TEXT, artifact
from tests.samples import PICTURE, add, new_session, pictured, talk, user
from tests.sources import counted_sources
from tests.tables import inputs

pytestmark = pytest.mark.anyio


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
        # Twenty results of sixty kilobytes cost what twenty of a word do, but for a few halvings more of an index.
        assert steps <= 1.02 * runner.since_last_time()[1]
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


LOSSES = {
    "deleted": "DELETE FROM blobs",
    "damaged": "UPDATE blobs SET data = CAST(X'00' || data AS BLOB)",
    "another": "UPDATE blobs SET data = CAST('another text' AS BLOB)",
}


@inputs("loss", LOSSES)
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
        assert connection.execute(LOSSES[loss]).rowcount == 1
        connection.commit()
    async with flue_py.open(path) as store:
        found = await store.get_session("s")
        assert found is not None
        assert await found.build_context() == before
        (listed,) = await found.artifacts.all()
        with pytest.raises(CorruptStore, match="verify"):
            await found.artifacts.read(listed.id)
        with pytest.raises(CorruptStore):
            await found.artifacts.answer_read({"id": "c", "arguments": {"id": listed.id}})
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
        found = await rescued.get_session("s")
        assert found is not None
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
        found = await rescued.get_session("s")
        assert found is not None
        assert (await found.artifacts.read(listed.id, length=None)).text == TEXT
        assert (await rescued.verify()).problems == []
