"""Names that nobody could type or show: refused for new sessions and entries, still found if already stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

import flue_py
from flue_py.core.entries import NewEntry
from tests.earlier import names_unchecked
from tests.tables import inputs

pytestmark = pytest.mark.anyio

BAD = ["a\x1b[31m", "\x07", "a\x7f", "a\x9bb"]


@inputs("bad", BAD)
async def test_new_names_with_control_characters_are_refused_and_shown_escaped(bad: str) -> None:
    async with flue_py.open(":memory:") as store, flue_py.open(":memory:", ids=lambda: bad) as drawn:
        session = await store.create_session(id="fine")
        for what, make in (
            ("session id", lambda: store.create_session(id=bad)),
            ("key", lambda: store.create_session(key=bad)),
            ("key", lambda: store.open_session(bad, mode="get_or_create")),
            ("scope", lambda: store.create_session(scope=bad)),
            ("key", lambda: session.fork(key=bad)),
            ("key", lambda: session.tasks.create(task_id="t", key=bad)),
            ("task_id", lambda: session.tasks.create(task_id=bad)),
        ):
            with pytest.raises(flue_py.InvalidArgument) as refused:
                await make()
            assert str(refused.value) == f"{what}: {bad!r} holds a control character; leave it out"
        entry = flue_py.InvalidEntry
        with pytest.raises(entry, match="control character"):
            await session.import_entries([replace(NewEntry.custom("note", {}), id=bad)], leaf=None)
        made = await drawn.create_session(id="fine")
        with pytest.raises(flue_py.InvalidArgument, match="control character"):
            await made.append_message({"role": "user", "content": "x"})
        assert (await store.list_sessions()).sessions == (session.info,)
        assert (await session.refresh()).entry_count == 0


async def test_tabs_and_line_ends_and_every_letter_are_no_control_characters() -> None:
    async with flue_py.open(":memory:") as store:
        for name in ("a\tb", "a\nb", "日本 💥", "a/b:c"):
            assert (await store.create_session(id=name, key=name, scope=name)).id == name


@inputs("bad", BAD)
async def test_a_store_that_has_such_names_goes_on_as_it_was(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "store.db"
    with names_unchecked():
        async with flue_py.open(path) as store:
            session = await store.create_session(id=bad, key=bad, scope=bad)
            await session.import_entries([replace(NewEntry.custom("note", {}), id=bad)], leaf=bad)
    async with flue_py.open(path) as store:
        by_id = await store.get_session(bad, scope=bad)
        assert by_id is not None
        by_key = await store.open_session(bad, scope=bad, mode="get_or_create")
        assert by_id.id == by_key.id == bad
        assert [entry.id for entry in await by_key.get_active_path()] == [bad]
        await by_key.append_message({"role": "user", "content": "more"})
        fork = await by_key.fork()
        await fork.tasks.create(task_id="t")
        assert {problem.kind for problem in (await store.verify()).problems} == {"unusable id"}


def rows_of(*rows: dict[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


HEADER: dict[str, object] = {"type": "session", "version": 3, "id": "pi-1", "timestamp": "2026-01-01T00:00:00Z"}
ROW: dict[str, object] = {"type": "message", "parentId": None, "timestamp": "2026-01-01T00:00:00Z"}
SAID = {"message": {"role": "user", "content": "x"}}


@inputs("bad", BAD)
async def test_an_import_leaves_out_such_rows_says_so_and_refuses_such_sessions(tmp_path: Path, bad: str) -> None:
    file = tmp_path / "file.jsonl"
    async with flue_py.open(":memory:") as store:
        file.write_text(rows_of(HEADER, {**ROW, "id": bad, **SAID}, {**ROW, "id": "b", "parentId": bad, **SAID}))
        report = await flue_py.import_file(store, file, "pi")
        assert [note.line for note in report.skipped] == [2]
        assert repr(bad) in str(report.skipped[0])
        assert [note.line for note in report.repaired] == [3]
        file.write_text(rows_of({**HEADER, "id": bad}, {**ROW, "id": "b", **SAID}))
        with pytest.raises(flue_py.UnreadableFile, match="cannot be used; nothing was imported") as refused:
            await flue_py.import_file(store, file, "pi")
        assert repr(bad) in str(refused.value)
        file.write_text(rows_of({**HEADER, "id": "pi-2"}, {**ROW, "id": "b", **SAID}))
        with pytest.raises(flue_py.InvalidArgument, match="control character"):
            await flue_py.import_file(store, file, "pi", scope=bad)
        assert len((await store.list_sessions()).sessions) == 1


@inputs("bad", BAD)
async def test_a_row_of_claude_code_is_given_another_id_and_the_report_says_so(tmp_path: Path, bad: str) -> None:
    file = tmp_path / "file.jsonl"
    row: dict[str, object] = {"type": "user", "sessionId": "s1", "timestamp": "2026-01-01T00:00:00Z", **SAID}
    file.write_text(rows_of({**row, "uuid": "a", "parentUuid": None}, {**row, "uuid": bad, "parentUuid": "a"}))
    async with flue_py.open(":memory:") as store:
        report = await flue_py.import_file(store, file, "claude-code")
        assert [(note.line, repr(bad) in note.text) for note in report.repaired] == [(2, True)]
        session = await store.find_session("s1")
        first, second = await session.get_active_path()
        assert (first.id, second.parent_id) == ("a", "a")
        assert second.id.isprintable()
