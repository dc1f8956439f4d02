"""What sources say about a session, and what an agent is told when the session goes on with it."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py import IdempotencyConflict, InvalidArgument, LeafConflict, Session, Store, context
from tests.checks import raises
from tests.tables import inputs
from tests.values import existing


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with flue_py.open(":memory:", prices=False) as opened:
        yield opened
        assert (await opened.verify()).problems == []


@pytest.fixture
async def session(store: Store, tmp_path: Path) -> Session:
    session = await store.create_session(cwd=str(tmp_path), metadata={"objective": "green", "brief": {"steps": [1, 2]}})
    await session.append_message({"role": "user", "content": "Make the build green."})
    return session


async def said(session: Session, *sources: str, own: dict[str, context.SourceReader] | None = None) -> list[str]:
    """Return what the sources say: the text of each, or why there is none."""
    found = await session.context.gather(agent="Coder", settings={"spec": {"sources": [*sources]}}, sources=own)
    by_source = {each.source: each.text for each in found.sections} | {each.source: each.why for each in found.skipped}
    return [by_source[each] for each in sources]


async def test_the_sources_of_the_package_read_what_the_session_has_stored(session: Session, tmp_path: Path) -> None:
    (tmp_path / "PLAN.md").write_text("1. read the log\n", encoding="utf-8")
    assert (
        await said(session, "session_context", "changes_recent", "brief_field:owner") == ["it has nothing to say"] * 3
    )
    await session.marks.register("rules", "Keep the API.", kind="instructions")
    call = {"type": "toolCall", "id": "c1", "name": "write_file", "arguments": {"path": "parse.py"}}
    await session.append_message({"role": "assistant", "agent": "Coder", "content": [call]})
    await session.append_message({"role": "toolResult", "toolCallId": "c1", "content": "ok"})
    assert await said(session, "changes_recent") == ["it has nothing to say"], "the turn is in progress"
    await session.append_message({"role": "assistant", "agent": "Coder", "content": "Done."})
    found = await said(
        session, "session_context", "changes_recent:1", "brief_field:objective", "brief_field:STEPS", "file:PLAN.md"
    )
    assert found[0] == "### rules\nKeep the API."
    assert found[1].splitlines()[1:] == ["  Files written:", "    - parse.py"]
    assert found[2:] == ["green", "[1, 2]", "1. read the log"]


async def test_files_outside_of_the_folder_and_what_is_no_text_are_skipped(session: Session, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_text("token")
    (inside / "link").symlink_to(tmp_path / "secret")
    (inside / "binary").write_bytes(b"a\0b")
    (inside / "latin").write_bytes(b"caf\xe9")
    os.mkfifo(inside / "pipe")
    names = [
        "file:../secret", "file:link", f"file:{tmp_path}/secret", "file:binary", "file:pipe", "file:none", "file:.",
    ]  # fmt: skip
    found = await said(session, *names, "file:latin", own={"file": context.file_source(inside)})
    for why, part in zip(
        found,
        ["outside", "outside", "outside", "not text", "not a regular file", "No such file", "", "caf\ufffd"],
        strict=True,
    ):
        assert part in why
        assert "token" not in why


async def test_files_of_a_program_take_the_place_of_what_is_stored(session: Session, tmp_path: Path) -> None:
    (tmp_path / "context.md").write_text("We chose sqlite.")
    (tmp_path / "brief.json").write_text(json.dumps({"objective": "red"}))
    log = {"entries": [{"agent": "Coder", "gitCommits": [name]} for name in ("one", "two", "three", "four")]}
    (tmp_path / "changes.json").write_text(json.dumps(log))
    (tmp_path / "broken.json").write_text("{")
    own = {
        "session_context": context.session_context_file(tmp_path / "context.md"),
        "brief_field": context.brief_file(tmp_path / "brief.json"),
        "Changes_Recent": context.changes_file(tmp_path / "changes.json"),
        "broken": context.brief_file(tmp_path / "broken.json"),
    }
    found = await said(
        session, "session_context", "brief_field:objective", "changes_recent", "changes_recent:0", "broken:x", own=own
    )
    assert found[:2] == ["We chose sqlite.", "red"]
    assert [found[2].count("Coder"), found[3].count("Coder")] == [4, 1]
    assert "not JSON" in found[4]


async def test_sources_of_an_application_may_wait_and_one_that_fails_is_reported(session: Session) -> None:
    seen: list[context.Asked] = []

    async def tickets(asked: context.Asked) -> str | None:
        seen.append(asked)
        return f"open: {asked.parameter}"

    class Board:
        async def __call__(self, asked: context.Asked) -> str | None:
            return "the board"

    def wrong(asked: context.Asked) -> str | None:
        raise ValueError("no board")

    own: dict[str, Any] = {"tickets": tickets, "board": Board(), "wrong": wrong, "number": lambda asked: 7}
    found = await said(session, "tickets:mine", "board", "wrong", "number", "unknown", own=own)
    assert found[:2] == ["open: mine", "the board"]
    assert ["no board" in found[2], "not a text" in found[3], found[4]] == [True, True, "no source has this name"]
    assert [(asked.agent, len(asked.context), asked.session.id) for asked in seen] == [("Coder", 1, session.id)]


async def test_no_error_of_a_source_gets_past_the_request(session: Session) -> None:
    class Unsayable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def unsayable(asked: context.Asked) -> str | None:
        raise Unsayable

    async def late(asked: context.Asked) -> str | None:
        return "late"

    def later(asked: context.Asked) -> Any:
        return late(asked)

    def none_left(asked: context.Asked) -> str | None:
        return next(iter([]))

    own: dict[str, Any] = {"unsayable": unsayable, "none_left": none_left, "later": later}
    found = await said(session, "unsayable", "none_left", "later", own=own)
    assert found == ["it failed: 'Unsayable'", "it failed: 'StopIteration'", "late"]


async def test_a_request_tells_what_was_gathered_and_all_of_a_turn_the_same(session: Session) -> None:
    settings = context.ContextSettings.model_validate({"agents": {"coder": {"spec": {"sources": ["tickets"]}}}})
    answers = iter(["first", "second"])
    own: dict[str, context.SourceReader] = {"tickets": lambda asked: next(answers)}
    gathered = await session.context.gather(agent="Coder", settings=settings, sources=own)
    for _ in range(2):
        sent = await session.request("anthropic", agent="Coder", settings=settings, sources=own, gathered=gathered)
        assert "## tickets\\nfirst" in json.dumps(sent.messages)
    fresh = await session.request("anthropic", agent="Coder", settings=settings, sources=own)
    assert "second" in json.dumps(fresh.messages)
    assert "tickets" not in json.dumps((await session.request(agent="Reviewer", settings=settings)).messages)
    attempts = await session.context.attempts(agent="Coder", settings=settings, gathered=gathered)
    async for attempt in attempts:
        with attempt:
            assert "first" in json.dumps(attempt.request.messages)


HANDOFF = {"agents": {"Reviewer": {"handoff": ["brief_field:objective", "own_history", "tickets"]}}}


async def test_a_handoff_is_appended_to_what_all_agents_see(session: Session) -> None:
    before = session.leaf_id
    found = await session.context.append_handoff("Reviewer", settings=HANDOFF)
    assert found.appended is not None
    assert found.gathered is not None
    assert [str(each) for each in found.gathered.skipped] == ["tickets: no source has this name"]
    [*_, message] = await session.build_context()
    assert message["role"] == "user"
    text = "[HANDOFF CONTEXT — assembled for Reviewer]\n\n## Task: objective\ngreen"
    assert message["content"] == [{"type": "text", "text": text}]
    assert found.appended.parent_id == before
    assert len(await session.turns()) == 1, "nobody has said it"


async def test_a_handoff_of_nothing_appends_nothing(session: Session) -> None:
    before = await session.refresh()
    settings = {"agents": {"Reviewer": {"handoff": ["own_history", "changes_recent"]}}}
    assert (await session.context.append_handoff("Reviewer", settings=settings)).appended is None
    assert (await session.context.append_handoff("Coder", settings=settings)).appended is None
    assert (await session.refresh()).revision == before.revision


async def test_a_handoff_that_is_tried_again_asks_no_source(session: Session) -> None:
    answers = iter(["once"])
    own: dict[str, context.SourceReader] = {"tickets": lambda asked: next(answers)}
    first = await session.context.append_handoff("Reviewer", settings=HANDOFF, sources=own, idempotency_key="h1")
    again = await session.context.append_handoff("Reviewer", settings=HANDOFF, sources=own, idempotency_key="h1")
    assert first.appended is not None
    assert again.appended is not None
    assert (again.appended.entry_ids, again.gathered) == (first.appended.entry_ids, None)
    assert (first.appended.replayed, again.appended.replayed) == (False, True)
    for settings in ({"handoff": ["brief_field:objective"]}, {}):
        with pytest.raises(IdempotencyConflict):
            await session.context.append_handoff("Coder", settings=settings, idempotency_key="h1")
    await session.append_message({"role": "user", "content": "Hi."}, idempotency_key="h2")
    await raises(IdempotencyConflict, session.context.append_handoff("Coder", settings=HANDOFF, idempotency_key="h2"))


async def test_a_handoff_that_is_tried_again_by_another_handle_says_where_that_is(
    store: Store, session: Session
) -> None:
    other = existing(await store.get_session(session.id))
    first = await session.context.append_handoff("Reviewer", settings=HANDOFF, idempotency_key="h1")
    assert first.appended is not None
    await other.context.append_handoff("Reviewer", settings=HANDOFF, idempotency_key="h1")
    assert other.leaf_id == first.appended.entry_ids[0]


async def test_a_handoff_meets_another_writer(store: Store, session: Session) -> None:
    other = existing(await store.get_session(session.id))
    await other.append_message({"role": "user", "content": "Wait."})
    await raises(LeafConflict, session.context.append_handoff("Reviewer", settings=HANDOFF))
    rebased = await session.context.append_handoff("Reviewer", settings=HANDOFF, on_conflict="rebase")
    assert rebased.appended is not None
    assert rebased.appended.parent_id == other.leaf_id


@inputs(
    ("arguments", "wrong"),
    [
        ({"sources": {"a:b": lambda asked: ""}}, "'a:b' is not a name"),
        ({"sources": {"a": "text"}}, "'text' is not a function"),
        ({"sources": ["a"]}, "should be functions by their names"),
        ({"gathered": "text"}, "gathered: should be what gather_context returns"),
    ],
)
async def test_wrong_arguments_are_refused(session: Session, arguments: dict[str, Any], wrong: str) -> None:
    await raises(InvalidArgument, session.request(**arguments), match=wrong)


@inputs("agent", ["", "two\nlines", None, 7])
async def test_a_handoff_is_for_an_agent_with_a_name(session: Session, agent: Any) -> None:
    await raises(InvalidArgument, session.context.append_handoff(agent, settings=HANDOFF), match="agent:")
