"""Going on in another program: the file holds the context, is put once, and says nothing of usage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import flue_py
from flue_py.core.json import JsonObject
from flue_py.errors import InvalidArgument
from flue_py.formats.registry import export_names
from flue_py.sessions.session import Session
from flue_py.transfer import write_continuation
from tests.checks import raises
from tests.formats.transcripts import CLAUDE, CODEX_MADE, CODEX_REAL, import_lines, lines_of
from tests.programs.talks import DOT, TALK, WITHOUT_PICTURES, texts_in
from tests.tables import inputs
from tests.values import existing

PROGRAMS = export_names(resumed=True)


async def talk(store: flue_py.Store) -> Session:
    session = await store.create_session(cwd="/home/dev/the demo", title="A made-up talk")
    for message in TALK:
        await session.append_message(message)
    return session


async def words_of(session: Session) -> list[str]:
    """Return what is said in the context, without reasoning and prompts: texts, calls, results."""
    context = await session.build_context()
    return texts_in([message for message in context if message["role"] not in ("system", "developer")])


@inputs("program", PROGRAMS)
async def test_a_program_goes_on_with_what_the_model_sees(tmp_path: Path, program: str) -> None:
    async with flue_py.open(":memory:") as store:
        session = await talk(store)
        kept = (await session.get_active_path())[-2].id
        await session.append_compaction("They looked at two files.", first_kept_entry_id=kept, tokens_before=900)
        await session.append_message({"role": "user", "content": "And then?"})
        await session.append_message({"role": "assistant", "content": "Nothing more.", "model": "m"})
        report = await write_continuation(session, program, home=tmp_path)
        assert report.is_new
        assert report.path.stat().st_mode & 0o777 == 0o600
        assert report.path.is_relative_to(tmp_path)
        assert report.line.startswith("cd '/home/dev/the demo' && ")
        assert any("not in the context" in str(note) for note in report.notes) is (program != "pi")
        calls = (await store.usage()).total.calls
        there = await flue_py.import_file(store, report.path)
        # pi keeps ids: what it adds to the file goes on with the session itself.
        assert (there.session_id == session.id) is (program == "pi")
        assert (await store.usage()).total.calls == calls, "each call is paid once"
        assert (await store.verify()).problems == []
        expected = [text for text in await words_of(session) if text != DOT or program not in WITHOUT_PICTURES]
        assert any("pictures" in str(note) for note in report.notes) is (program in WITHOUT_PICTURES)
    async with flue_py.open(":memory:") as other:
        back = await flue_py.import_file(other, report.path)
        copy = existing(await other.get_session(back.session_id))
        assert (back.format, back.skipped, copy.info.cwd) == (program, (), "/home/dev/the demo")
        assert await words_of(copy) == expected


@inputs("program", [name for name in PROGRAMS if name != "pi"])
async def test_ids_and_names_of_tools_go_out_as_the_program_can_send_them(tmp_path: Path, program: str) -> None:
    call = {"type": "toolCall", "id": "c" * 70, "name": "file system.read_file", "arguments": {}}
    result = {"role": "toolResult", "toolCallId": "c" * 70, "toolName": "file system.read_file", "content": "ok"}
    said: list[JsonObject] = [{"role": "user", "content": "Read."}, {"role": "assistant", "content": [call]}, result]
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        await session.append_messages(said)
        report = await write_continuation(session, program, home=tmp_path)
    text = report.path.read_text()
    assert ("file_system.read_file" if program == "gemini-cli" else "file_system_read_file") in text
    assert ("file system" in text, "c" * 70 in text) == (False, program == "gemini-cli")
    assert any("ids or names of tool calls were changed" in str(note) for note in report.notes)


@inputs("program", PROGRAMS)
async def test_a_session_is_put_once_for_each_leaf(tmp_path: Path, program: str) -> None:
    async with flue_py.open(":memory:") as store:
        session = await talk(store)
        first = await write_continuation(session, program, home=tmp_path)
        with first.path.open("a") as file:
            file.write('{"type": "of the program"}\n')
        there = first.path.read_bytes()
        again = await write_continuation(session, program, home=tmp_path)
        assert (again.path, again.line, again.is_new) == (first.path, first.line, False)
        assert first.path.read_bytes() == there
        earlier = (await session.get_active_path())[2].id
        other = await write_continuation(session, program, leaf=earlier, home=tmp_path)
        assert other.is_new
        assert other.path != first.path
        assert (await session.refresh()).leaf_id != earlier, "the session itself stays as it is"


@inputs("program", PROGRAMS)
@inputs("name", [CLAUDE, CODEX_REAL, CODEX_MADE])
async def test_a_real_session_goes_on_elsewhere(tmp_path: Path, program: str, name: str) -> None:
    async with flue_py.open(":memory:") as store:
        before = await import_lines(store, tmp_path, lines_of(name), finish=True)
        session = existing(await store.get_session(before.session_id))
        report = await write_continuation(session, program, home=tmp_path)
        expected = await words_of(session)
        await flue_py.import_file(store, report.path, finish=True)
        assert (await store.verify()).problems == []
    async with flue_py.open(":memory:") as other:
        back = await flue_py.import_file(other, report.path, finish=True)
        copy = existing(await other.get_session(back.session_id))
        assert (set(expected) - set(await words_of(copy)), back.skipped) == (set(), ())


async def test_a_file_beside_is_written_once_too(tmp_path: Path, store: flue_py.Store) -> None:
    session = await talk(store)
    first = await write_continuation(session, "kimi", home=tmp_path)
    state = first.path.parents[2] / "state.json"
    assert (state.stat().st_mode & 0o777, json.loads(state.read_text())["title"]) == (0o600, "A made-up talk")
    state.write_text("of the program")
    first.path.unlink()
    assert (await write_continuation(session, "kimi", home=tmp_path)).is_new
    assert state.read_text() == "of the program"


async def test_the_folders_that_programs_are_told_of_are_heeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: flue_py.Store
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(tmp_path / "pi"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    session = await talk(store)
    codex, claude, pi = [await write_continuation(session, name) for name in ("codex", "claude-code", "pi")]
    assert pi.path.is_relative_to(tmp_path / "pi" / "sessions")
    assert codex.path.is_relative_to(tmp_path / "codex" / "sessions")
    assert claude.path.parent == tmp_path / "claude" / "projects" / "-home-dev-the-demo"
    await raises(InvalidArgument, write_continuation(session, "flue"), match="program: 'flue' is not one of")


async def test_a_folder_that_nobody_would_name_so_goes_nowhere_else(tmp_path: Path, store: flue_py.Store) -> None:
    for number, folder in enumerate(("../../etc", "/a\n/b", "~root", "x" * 300)):
        session = await store.create_session(cwd=folder)
        await session.append_message({"role": "user", "content": str(number)})
        for program in PROGRAMS:
            try:
                report = await write_continuation(session, program, home=tmp_path)
            except flue_py.StoreUnavailable:
                continue
            assert ".." not in report.path.parts
            assert report.path.is_relative_to(tmp_path)
            json.loads(report.path.read_text().splitlines()[0])
