"""Importing files of any format: batches, folders, task sessions in either order, and files that changed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.errors import FlueError, InvalidArgument, LeafConflict, SessionExists, UnreadableFile
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.transfer import imports as unchanged
from flue_py.transfer import source as import_sources
from flue_py.transfer import source as places
from flue_py.transfer.imports import import_file
from tests.checks import raises
from tests.edges.cli_runs import Flue, in_own_process
from tests.formats import test_codex_files as codex
from tests.formats.pi_files import HEADER, every_type
from tests.formats.test_claude_code import SESSION, call, model, result, text, user
from tests.formats.test_codex import META, count, said
from tests.formats.transcripts import (
    CLAUDE,
    CODEX_REAL,
    all_seen,
    as_lines,
    import_lines,
    lines_of,
    rows_are_accounted_for,
    seen_at_once,
)
from tests.tables import inputs
from tests.values import existing

TALK = [
    user("u1", None),
    model("a1", "u1", "m1", call("t1"), 10),
    result("r1", "a1", "t1"),
    model("a2", "r1", "m2", text(), 20),
    user("u2", "a2"),
]


async def test_every_row_of_the_real_transcripts_is_accounted_for(tmp_path: Path) -> None:
    for name in (CLAUDE, CODEX_REAL):
        _, report = await seen_at_once(tmp_path, lines_of(name))
        assert rows_are_accounted_for(report)


@pytest.mark.parametrize("name", [CLAUDE, CODEX_REAL])
async def test_the_size_of_a_batch_does_not_matter(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = await seen_at_once(tmp_path, lines_of(name))
    for size in (1, 3):
        monkeypatch.setattr(import_sources, "_ROWS_AT_ONCE", size)
        assert (await seen_at_once(tmp_path, lines_of(name)))[0] == expected


@pytest.mark.parametrize("at_once", [1, 4])
async def test_a_pi_file_of_many_batches_gives_the_same_result(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = {"type": "label", "id": "l9", "parentId": None, "timestamp": HEADER["timestamp"], "targetId": "f0000001"}
    lines = as_lines([HEADER, {**early, "label": "from above"}, *every_type()[1:]])
    expected, _ = await seen_at_once(tmp_path, lines)
    monkeypatch.setattr(import_sources, "_ROWS_AT_ONCE", at_once)
    assert (await seen_at_once(tmp_path, lines))[0] == expected


@pytest.mark.parametrize("batches", [1, 2, 5])
async def test_an_import_that_broke_off_goes_on_where_it_stopped(
    batches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = lines_of(CLAUDE)
    expected, _ = await seen_at_once(tmp_path, lines)
    monkeypatch.setattr(import_sources, "_ROWS_AT_ONCE", 5)
    done = 0
    original = Session.import_entries

    async def failing(self: Session, *arguments: Any, **options: Any) -> Any:
        nonlocal done
        done += 1
        if done == batches:
            raise OSError("the disk is full")
        return await original(self, *arguments, **options)

    async with flue_py.open(":memory:") as store:
        with monkeypatch.context() as patched:
            patched.setattr(Session, "import_entries", failing)
            await raises(OSError, import_lines(store, tmp_path, lines), match="the disk is full")
        report = await import_lines(store, tmp_path, lines)
        assert not report.leaf_kept
        assert await all_seen(store) == expected


@pytest.mark.parametrize("begun", [0, 4])
async def test_a_file_that_is_imported_twice_at_a_time_is_named(
    begun: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = as_lines([HEADER, *every_type()])
    owner, name = (Session, "import_entries") if begun else (Store, "import_session")
    original = getattr(owner, name)

    async def late(self: Any, *arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(owner, name, original)
        await import_lines(store, tmp_path, lines)
        return await original(self, *arguments, **options)

    async with flue_py.open(":memory:") as store:
        if begun:
            await import_lines(store, tmp_path, lines[:begun])
        monkeypatch.setattr(owner, name, late)
        error = LeafConflict if begun else SessionExists
        await raises(error, import_lines(store, tmp_path, lines), match="^session.jsonl: session .* import it again")
        assert not (await import_lines(store, tmp_path, lines)).changed


async def test_a_message_that_grew_after_it_was_taken_is_replaced_and_paid_once(tmp_path: Path) -> None:
    begun = [user("u1", None), model("a1", "u1", "m1", text("Let me see."), 1)]
    whole = [*begun, model("a2", "a1", "m1", call("t1"), 100), result("r1", "a2", "t1"), user("u2", "r1")]
    expected, _ = await seen_at_once(tmp_path, as_lines(whole))
    async with flue_py.open(":memory:") as store:
        first = await import_lines(store, tmp_path, as_lines(begun))
        assert first.leaf_id == "a1"
        await import_lines(store, tmp_path, as_lines(whole))
        assert await all_seen(store) == expected
        assert expected[SESSION].spent_tokens == 209


async def test_a_message_that_was_built_on_before_it_was_complete_stays_as_it_was(tmp_path: Path) -> None:
    begun = [user("u1", None), model("a1", "u1", "m1", text("Let me see."), 1)]
    whole = [*begun, model("a2", "a1", "m1", call("t1"), 100), result("r1", "a2", "t1"), user("u2", "r1")]
    async with flue_py.open(":memory:") as store:
        await import_lines(store, tmp_path, as_lines(begun))
        session = existing(await store.get_session(SESSION))
        await session.append_message({"role": "user", "content": "from here"})
        report = await import_lines(store, tmp_path, as_lines(whole))
        assert report.leaf_kept
        assert any("stays as it was" in note.text for note in report.repaired)
        await session.refresh()
        assert [entry.id for entry in await session.get_active_path(leaf="u2")] == ["u1", "a1", "r1", "u2"]
        assert (await store.verify()).problems == []
        assert not (await import_lines(store, tmp_path, as_lines(whole))).changed


async def test_an_answer_that_was_built_on_before_its_tokens_were_counted_is_paid(tmp_path: Path) -> None:
    begun = [META, said("user", "one"), said("assistant", "two")]
    whole = [*begun, count(50, output=4), said("user", "three")]
    async with flue_py.open(":memory:") as store:
        await import_lines(store, tmp_path, as_lines(begun), finish=True)
        session = await found(store, "s1")
        await session.append_message({"role": "user", "content": "from here"})
        for _ in range(2):
            await import_lines(store, tmp_path, as_lines(whole), finish=True)
            assert (await store.usage(session)).total.total_tokens == 54


@pytest.mark.parametrize("parent_first", [True, False])
async def test_task_sessions_are_linked_in_whichever_order_files_come(parent_first: bool, tmp_path: Path) -> None:
    side = {"isSidechain": True, "agentId": "abc"}
    files = [
        ("main.jsonl", as_lines(TALK)),
        ("agent-abc.jsonl", as_lines([user("s1", None, "look", **side), model("s2", "s1", "m9", text(), **side)])),
    ]
    async with flue_py.open(":memory:") as store:
        for name, lines in files if parent_first else files[::-1]:
            await import_lines(store, tmp_path, lines, name)
        for name, lines in files:
            assert not (await import_lines(store, tmp_path, lines, name)).changed
        parent = existing(await store.get_session(SESSION))
        assert [(link.child_id, link.task_id) for link in await parent.tasks.links()] == [(f"{SESSION}:abc", "abc")]
        (task,) = (await store.list_sessions(kind="task")).sessions
        assert task.id == f"{SESSION}:abc"
        deleted = await store.delete_session_tree(parent)
        assert set(deleted.session_ids) == {SESSION, f"{SESSION}:abc"}


async def found(store: flue_py.Store, session_id: str) -> Session:
    return existing(await store.get_session(session_id))


def thread(name: str, parent: str | None, *more: dict[str, Any]) -> list[bytes]:
    """A rollout of Codex, of a sub-agent where it has a parent."""
    spawned = {"subagent": {"thread_spawn": {"parent_thread_id": parent, "depth": 1}}}
    meta = {"id": name, "cwd": "/w", "source": "cli" if parent is None else spawned}
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"to {name}"}]}
    rows = [("session_meta", meta), ("response_item", said), *(("response_item", item) for item in more)]
    return as_lines([{"timestamp": "2026-06-05T04:58:20.653Z", "type": kind, "payload": item} for kind, item in rows])


CALLED: dict[str, Any] = {"type": "function_call", "name": "spawn_agent", "call_id": "c1", "arguments": "{}"}
STARTED: dict[str, Any] = {"type": "function_call_output", "call_id": "c1", "output": '{"agent_id": "child"}'}

GO_ON: dict[str, Any] = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
async def test_threads_of_sub_agents_are_tasks_that_began_where_they_were_spawned(
    order: tuple[int, ...], tmp_path: Path
) -> None:
    files = [thread("top", None, CALLED, STARTED, GO_ON), thread("child", "top"), thread("grandchild", "child")]
    async with flue_py.open(":memory:") as store:
        for number in order:
            await import_lines(store, tmp_path, files[number], f"{number}.jsonl")
        for number in order:
            assert not (await import_lines(store, tmp_path, files[number], f"{number}.jsonl")).changed
        tasks = (await store.list_sessions(kind="task")).sessions
        assert {info.id for info in tasks} == {"child", "grandchild"}
        top = await found(store, "top")
        (link,) = await top.tasks.links()
        (call,) = [entry for entry in await top.get_tree() if entry.role == "assistant"]
        assert (link.child_id, link.entry_id) == ("child", call.id)
        assert [link.parent_id for link in await (await found(store, "grandchild")).tasks.parents()] == ["child"]
        # As deep as it is nested, whichever came first: a task of the grandchild is the third one down.
        grandchild = await found(store, "grandchild")
        third = await grandchild.tasks.create(task_id="third")
        assert third.metadata["depth"] == 3
        deleted = await store.delete_session_tree("top")
        assert set(deleted.session_ids) == {"top", "child", "grandchild", third.id}
        assert (await store.verify()).problems == []


@pytest.mark.parametrize("parent_first", [True, False])
async def test_a_side_chain_began_at_the_message_that_called_its_agent(parent_first: bool, tmp_path: Path) -> None:
    side = {"isSidechain": True, "agentId": "abc"}
    result_row = result("r1", "a1", "t1", toolUseResult={"agentId": "abc", "status": "completed"})
    main = [user("u1", None), model("a1", "u1", "m1", call("t1")), result_row, model("a2", "r1", "m2", text())]
    files = [
        ("main.jsonl", as_lines(main)),
        ("agent-abc.jsonl", as_lines([user("s1", None, "look", **side), model("s2", "s1", "m9", text(), **side)])),
    ]
    async with flue_py.open(":memory:") as store:
        if parent_first:
            # As it was while the agent was at work, and afterwards.
            await import_lines(store, tmp_path, as_lines(main[:2]), "main.jsonl")
        for name, lines in files if parent_first else files[::-1]:
            await import_lines(store, tmp_path, lines, name)
        await import_lines(store, tmp_path, *reversed(files[0]))
        parent = await found(store, SESSION)
        assert [(link.task_id, link.entry_id) for link in await parent.tasks.links()] == [("abc", "a1")]


@inputs("words, title", [("API Error Handling", "API Error Handling"), ("API Error: 401 {}", None)])
async def test_a_title_that_says_that_no_title_could_be_made_is_none(
    words: str, title: str | None, tmp_path: Path
) -> None:
    rows = [user("u1", None), model("a1", "u1", "m1", text()), {"type": "summary", "summary": words, "leafUuid": "a1"}]
    async with flue_py.open(":memory:") as store:
        await import_lines(store, tmp_path, as_lines(rows), f"{SESSION}.jsonl")
        assert (await found(store, SESSION)).info.auto_title == title


async def test_the_title_of_an_agents_session_is_what_the_file_beside_it_says(tmp_path: Path) -> None:
    async with flue_py.open(":memory:") as store:
        for agent, about, title in (("a5", '{"description": "Read the parser"}', "Read the parser"), ("a6", "{", None)):
            side = {"isSidechain": True, "agentId": agent}
            (tmp_path / f"agent-{agent}.meta.json").write_text(about)
            rows = as_lines([user(f"s{agent}", None, "## Goal", **side)])
            await import_lines(store, tmp_path, rows, f"agent-{agent}.jsonl")
            assert (await store.find_session(f"{SESSION}:{agent}")).info.auto_title == title


@pytest.mark.parametrize("order", [["main", "agent"], ["agent", "main"], ["begun", "agent", "main"]])
async def test_an_agent_that_goes_on_below_a_row_of_its_parent_began_there(order: list[str], tmp_path: Path) -> None:
    side = {"isSidechain": True, "agentId": "acompact-5f"}
    agent = [user("s1", "u2", "Summarize this.", **side), model("s2", "s1", "m9", text("All of it."), **side)]
    files = {"begun": as_lines(TALK[:4]), "main": as_lines(TALK), "agent": as_lines(agent)}
    names = {"agent": "agent-acompact-5f.jsonl"}
    async with flue_py.open(":memory:") as store:
        for name in order:
            report = await import_lines(store, tmp_path, files[name], names.get(name, "main.jsonl"))
            assert report.repaired == ()
        (link,) = await (await found(store, SESSION)).tasks.links()
        assert (link.child_id, link.entry_id) == (f"{SESSION}:acompact-5f", "u2")
        before = await all_seen(store)
        for name in order:
            assert not (await import_lines(store, tmp_path, files[name], names.get(name, "main.jsonl"))).changed
        assert await all_seen(store) == before
        assert (await store.verify()).problems == []


async def test_a_file_of_the_same_session_that_goes_on_is_put_below_it(tmp_path: Path) -> None:
    async with flue_py.open(":memory:") as store:
        await import_lines(store, tmp_path, as_lines(TALK), "part-1.jsonl")
        more = as_lines([model("a3", "u2", "m3", text(), 5), user("u3", "a3")])
        report = await import_lines(store, tmp_path, more, "part-2.jsonl")
        assert (report.leaf_id, report.leaf_kept) == ("u3", False)
        session = existing(await store.get_session(SESSION))
        path = [entry.id for entry in await session.get_active_path()]
        assert path == ["u1", "a1", "r1", "a2", "u2", "a3", "u3"]
        assert not (await import_lines(store, tmp_path, more, "part-2.jsonl")).changed


async def test_messages_that_a_resumed_session_repeats_are_paid_once(tmp_path: Path) -> None:
    other = "22222222-2222-4222-8222-222222222222"
    async with flue_py.open(":memory:") as store:
        await import_lines(store, tmp_path, as_lines(TALK), "a.jsonl")
        await import_lines(store, tmp_path, as_lines([{**row, "sessionId": other} for row in TALK]), "b.jsonl")
        spent = {info.id: info.spent_tokens for info in (await store.list_sessions()).sessions}
        assert (spent[SESSION], spent[other]) == (248, 0)


async def test_a_rollout_whose_beginning_changed_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    rows = [META, said("user", "one"), said("assistant", "two"), said("user", "three")]
    async with flue_py.open(":memory:") as store:
        await import_lines(store, tmp_path, as_lines(rows))
        before = await all_seen(store)
        changed = [META, said("user", "other"), *rows[2:], said("assistant", "four")]
        for lines in (as_lines(changed), as_lines(changed[:3])):
            await raises(UnreadableFile, import_lines(store, tmp_path, lines), match="changed")
        assert await all_seen(store) == before


async def test_what_was_deleted_stays_deleted_unless_it_is_to_be_imported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_sources, "_ROWS_AT_ONCE", 2)
    parent, child = tmp_path / f"{SESSION}.jsonl", tmp_path / "agent-a1.jsonl"
    parent.write_bytes(b"".join(as_lines(TALK)))
    rows = [user("k1", None), model("k2", "k1", "m9", text(), 5)]
    child.write_bytes(b"".join(as_lines([{**row, "agentId": "a1", "isSidechain": True} for row in rows])))
    listed = tmp_path / "list.json"  # it has no paid call
    listed.write_text('[{"role": "user", "content": "hello"}]')
    async with flue_py.open(tmp_path / "s.db") as store, flue_py.open(tmp_path / "copy.db") as copy:

        async def all_of_it(into: flue_py.Store, *, again: bool = False) -> list[bool]:
            reports = [await import_file(into, path, finish=True, again=again) for path in (parent, child, listed)]
            assert all(report.changed != report.sessions[0].deleted for report in reports)
            return [report.sessions[0].deleted for report in reports]

        async def bill(of: flue_py.Store) -> list[tuple[str, int, int]]:
            sessions = (await of.list_sessions(limit=10)).sessions
            return sorted((each.id, each.spent_tokens, each.entry_count) for each in sessions)

        assert await all_of_it(store) == [False, False, False]
        before, usage = await bill(store), (await store.usage()).total
        assert len(before) == 3
        fork = await (await store.find_session(SESSION)).fork(at="a1")
        for name, _, _ in before:
            await store.delete_session_tree(name)
        assert await all_of_it(store) == [True, True, True]
        assert [name for name, _, _ in await bill(store)] == [fork.id]
        await flue_py.copy_store(store, copy)
        assert await all_of_it(copy) == [True, True, True]
        # What the fork has kept stays with who paid for it first; the rest is the session's own again.
        await store.delete_session_tree(fork)
        assert await all_of_it(store, again=True) == [False, False, False]
        assert await bill(store) == before
        assert (await store.usage()).total == usage
        assert (await store.verify()).problems == []
        assert not (await import_file(store, parent, finish=True)).changed


async def test_what_was_deleted_stays_deleted_in_its_scope_alone(tmp_path: Path) -> None:
    rows = {"unpaid": [user("u1", None)], "paid": TALK}
    # What is imported into a scope, and what that does; the session is deleted after it was created.
    steps = [("a", "created"), ("a", "deleted"), ("b", "created"), ("b", "deleted"), ("a", "deleted"), ("", "created")]
    wrong = []
    for name, lines in rows.items():
        async with flue_py.open(tmp_path / f"{name}.db") as store:
            for scope, expected in steps:
                report = await import_lines(store, tmp_path, as_lines(lines), scope=scope)
                (session,) = report.sessions
                got = "deleted" if session.deleted else "created" if session.created else "there"
                wrong += [(name, scope, got)] if got != expected else []
                if session.created:
                    await store.delete_session_tree(session.session_id)
            assert ((await store.files()), (await store.info()).documents) == ((), 0)
            async with flue_py.open(":memory:") as copy:
                await flue_py.copy_store(store, copy)
                for scope in ("a", "b", ""):
                    report = await import_lines(copy, tmp_path, as_lines(lines), scope=scope)
                    wrong += [] if report.sessions[0].deleted else [(name, scope, "in the copy")]
            assert (await store.verify()).problems == []
    assert wrong == []


async def test_another_scope_does_not_get_the_session(tmp_path: Path) -> None:
    async with flue_py.open(":memory:") as store:
        await import_lines(store, tmp_path, as_lines(TALK), scope="mine")
        before = await all_seen(store)
        for other in (store, store.in_scope("yours")):
            with pytest.raises(SessionExists, match="in scope 'mine'; import the file into that scope, or delete"):
                await import_lines(other, tmp_path, as_lines(TALK))
        assert await all_seen(store) == before


async def test_what_cannot_be_imported_is_refused_in_words(tmp_path: Path) -> None:
    async with flue_py.open(":memory:") as store:
        for content, words in (
            (b"", "is empty"),
            (b"{}\n", "looks like none of pi, noumen, claude-code, codex"),
            ("\ufeff{}".encode("utf-16-le"), "is UTF-16"),
        ):
            await raises(UnreadableFile, import_lines(store, tmp_path, [content]), match=words)
        await raises(UnreadableFile, import_file(store, tmp_path / "missing.jsonl"), match="cannot be read")
        await raises(UnreadableFile, import_file(store, tmp_path), match="cannot be read")
        await raises(InvalidArgument, import_file(store, tmp_path, "word"), match="one of pi")
        wrong: Any = 7
        for arguments in ((wrong, "auto"), (tmp_path, wrong)):
            await raises(FlueError, import_file(store, *arguments))


async def test_progress_is_told_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_sources, "_ROWS_AT_ONCE", 10)
    told: list[tuple[int, int]] = []
    async with flue_py.open(":memory:") as store:
        await import_lines(store, tmp_path, lines_of(CLAUDE), progress=lambda done, size: told.append((done, size)))
    size = (tmp_path / "session.jsonl").stat().st_size
    assert told[-1] == (size, size)
    assert len(told) > 2
    assert told == sorted(told)


# -- the command --------------------------------------------------------------------------------------------------


def test_a_last_message_is_held_back_until_finish_or_more(flue: Flue) -> None:
    file = flue.write(as_lines(TALK[:2]), "talk.jsonl")
    (report,) = flue.json("import", "claude-code", str(file))
    assert (report["heldBackRows"], report["heldBackFromLine"], report["added"]) == (1, 2, 1)
    assert "--finish takes them" in "\n".join(flue.lines("import", "auto", str(file)))
    (report,) = flue.json("import", "claude-code", str(file), "--finish")
    assert (report["heldBackRows"], report["added"], report["leafId"]) == (0, 1, "a1")
    assert flue.json("usage", SESSION)["output"] == 10


@pytest.mark.parametrize("name", ["claude-code", "claude_code", "Claude", "auto"])
def test_a_format_has_more_than_one_spelling(name: str, flue: Flue) -> None:
    (report,) = flue.json("import", name, str(flue.write(as_lines(TALK))))
    assert (report["format"], report["added"]) == ("claude-code", 5)


def test_a_folder_is_searched_and_other_files_are_passed_over(flue: Flue) -> None:
    folder = flue.folder / "many"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.jsonl").write_bytes(b"".join(as_lines(TALK)))
    (folder / "deep" / "b.jsonl").write_bytes(b"".join(lines_of(CODEX_REAL)))
    (folder / "deep" / "c.jsonl").write_bytes(b"".join(as_lines([HEADER])))
    (folder / "notes.jsonl").write_bytes(b'{"other": 1}\n')
    (folder / "picture.png").write_bytes(b"\x89PNG")
    reports = flue.json("import", str(folder))
    assert [report["format"] for report in reports] == ["claude-code", "codex", "pi"]
    assert all(report["created"] for report in reports)
    only = flue.json("import", "codex", str(folder))
    assert [(report["format"], report["changed"]) for report in only] == [("codex", False)]


def test_the_usual_places_are_found(flue: Flue) -> None:
    place = flue.folder / ".claude" / "projects" / "-w"
    place.mkdir(parents=True)
    (place / f"{SESSION}.jsonl").write_bytes(b"".join(as_lines(TALK)))
    found = json.loads(flue.run("import", "--discover", "--json", env={"HOME": str(flue.folder)}).stdout)
    assert [report["sessionId"] for report in found] == [SESSION]
    nothing = flue.folder / "nobody"
    nothing.mkdir()
    said_so = flue.run("import", "--discover", env={"HOME": str(nothing)}).stdout
    assert "no session files were found" in said_so
    flue.run("import", code=2)


def test_a_report_for_people_names_what_became_of_rows(flue: Flue) -> None:
    lines = [*lines_of(CLAUDE), b"\n", b'{"type":"torn']
    words = "\n".join(flue.lines("import", "auto", str(flue.write(lines))))
    assert "51 entries" in words
    assert "34 rows merged" in words
    assert "skipped line 86" in words


def test_nothing_but_the_report_is_written_where_no_terminal_is(flue: Flue) -> None:
    file = flue.write(lines_of(CLAUDE))
    done = in_own_process("--db", str(flue.database), "import", "auto", str(file))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_session_document_of_the_reference_is_imported(flue: Flue) -> None:
    entry = {"type": "message", "timestamp": "2026-01-01T00:00:00.000Z"}
    entries = [
        {**entry, "id": "a", "parentId": None, "message": {"role": "user", "content": "hi"}, "source": "prompt"},
        {**entry, "id": "b", "parentId": "a", "message": {"role": "user", "content": "other"}},
        {**entry, "id": "c", "parentId": "a", "message": {"role": "user", "content": "more"}},
    ]
    document = {"version": 3, "entries": entries, "leafId": "b", "metadata": {"x": 1}, "createdAt": "2026-01-01"}
    file = flue.folder / "talk.json"
    file.write_text(json.dumps(document, indent=2))
    (report,) = flue.json("import", "auto", str(file))
    assert (report["format"], report["sessionId"], report["leafId"]) == ("flue", "talk", "b")
    assert flue.json("show", "talk")["metadata"]["x"] == 1
    assert [message["content"] for message in flue.json("context", "talk")] == ["hi", "other"]
    assert not flue.json("import", "flue", str(file))[0]["changed"]
    file.write_text("{")
    assert "not a JSON document" in flue.run("import", "flue", str(file), code=1).stderr


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that imports have read, where one that was imported a moment ago is remembered, too."""
    names: list[str] = []
    start = import_sources.ImportSource.start

    def noted(self: import_sources.ImportSource) -> None:
        names.append(self.path.name)
        start(self)

    monkeypatch.setattr(unchanged, "_SETTLED_NS", -(10**18))
    monkeypatch.setattr(import_sources.ImportSource, "start", noted)
    return names


def test_a_file_that_is_as_it_was_is_not_read_again_and_one_that_is_not_is(
    flue: Flue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: list[str]
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    talk, document = folder / f"{SESSION}.jsonl", folder / "list.json"
    talk.write_bytes(b"".join(as_lines([*TALK, user("u3", "u2")])))
    document.write_text('[{"role": "user", "content": "hello"}]')
    first = flue.json("import", str(folder), "--finish")
    assert [report["added"] for report in first] == [6, 1]

    def again(*options: str) -> tuple[list[str], Any]:
        read.clear()
        reports = flue.json("import", str(folder), *options)
        return [*read], reports

    with monkeypatch.context() as forgetful:
        forgetful.setattr(unchanged.ImportedFiles, "report", lambda *_: None)
        _, whole = again("--finish")
    assert again("--finish") == ([], whole)
    assert not any(report["changed"] for report in whole)
    assert again()[0] == [talk.name, "list.json"]
    assert again("--finish")[0] == [talk.name, "list.json"]
    assert again("--finish")[0] == []
    # In place, of the same length, and with the time that it had.
    before = document.stat()
    document.write_text('[{"role": "user", "content": "HELLO"}]')
    os.utime(document, ns=(before.st_atime_ns, before.st_mtime_ns))
    names, reports = again("--finish")
    assert (names, reports[1]["changed"]) == (["list.json"], True)
    # What is gone is looked at again.
    flue.run("rm", reports[1]["sessionId"], "--yes")
    names, reports = again("--finish")
    assert (names, [report["sessions"][0]["deleted"] for report in reports]) == (["list.json"], [False, True])
    assert again("--finish", "--again")[1][1]["created"]
    talk.write_bytes(talk.read_bytes() + b"".join(as_lines([user("u4", "u3")])))
    assert [report["added"] for report in again("--finish")[1]] == [1, 0]
    # Another session of the id, of another file of it, has more, and has nothing of this one.
    flue.run("rm", SESSION, "--yes")
    other = tmp_path / "other.jsonl"
    other.write_bytes(b"".join(as_lines([user(f"n{at}", f"n{at - 1}" if at else None) for at in range(20)])))
    assert flue.json("import", str(other), "--finish", "--again")[0]["added"] == 20
    names, reports = again("--finish")
    assert (names, reports[0]["alreadyThere"]) == ([talk.name], 0)
    assert flue.json("info")["documents"] == 0


def test_a_rollout_is_read_again_where_it_changed_or_what_it_goes_on_from_or_its_name(
    flue: Flue, tmp_path: Path, read: list[str]
) -> None:
    paths = codex.write(tmp_path)
    thread_of = {path.name: next(thread for thread in codex.SENT if f"-{thread}" in path.name) for path in paths}

    def again(code: int = 0) -> list[str]:
        read.clear()
        flue.json("import", str(tmp_path), code=code)
        return sorted({thread_of[name] for name in read})

    assert again() == sorted(codex.SENT)
    assert again() == []
    index, one = tmp_path / "session_index.jsonl", {"id": codex.FORK_OF_FORK, "thread_name": "mine"}
    index.write_text(json.dumps(one))
    assert again() == [codex.FORK_OF_FORK]
    titles = {row["id"]: row["title"] for row in flue.json("sessions")}
    assert titles[codex.FORK_OF_FORK] == "mine"
    assert again() == []
    index.unlink()
    assert again() == [codex.FORK_OF_FORK]
    # The source of all but one grows, is archived, and is not there: until it is, what goes on from it is read.
    first, archived = paths[0].parent / codex.names_of(codex.SOURCE)[0], tmp_path / "archived_sessions"
    of_source = sorted({*codex.SENT} - {codex.COMPACTED})
    first.write_text(codex.FILES[first.name] + "{}\n")
    assert (again(), again()) == (of_source, [])
    archived.mkdir()
    first.rename(archived / first.name)
    assert (again(), again()) == (of_source, [])
    archived.rename(tmp_path / "elsewhere")
    assert (again(code=1), again(code=1)) == (of_source, of_source)


@pytest.mark.skipif(sys.platform != "linux", reason="file names are Unicode there")
def test_a_file_whose_name_is_no_text_is_remembered_as_well(
    flue: Flue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: list[str]
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for number, name in enumerate((b"x\xff.jsonl", b"x\xfe.jsonl", b"x%FF.jsonl", "x\ufffd.jsonl".encode())):
        rows = [{**row, "uuid": f"{number}", "sessionId": f"{SESSION[:-1]}{number}"} for row in TALK[:1]]
        Path(os.fsdecode(os.path.join(os.fsencode(folder), name))).write_bytes(b"".join(as_lines(rows)))
    first, *later = [flue.json("import", str(folder), "--finish") for _ in range(4)]
    assert [report["changed"] for report in first] == [True] * 4
    assert [report["changed"] for again in later for report in again] == [False] * 12
    read.clear()
    with monkeypatch.context() as looking:
        looking.setattr(places, "_beginning", lambda path: read.append(path.name))
        assert len(flue.json("import", str(folder), "--finish")) == 4
    assert read == []
    # What cannot be remembered is read again, and imported.
    monkeypatch.setattr(unchanged, "encode_json", lambda *_: (_ for _ in ()).throw(InvalidArgument("too deep")))
    assert len(flue.json("import", str(folder), "--finish", "--again")) == 4
