"""What a turn owes whose program died."""

from __future__ import annotations

from typing import Any

import pytest

from flue_py import Store

pytestmark = pytest.mark.anyio

ASKED: dict[str, Any] = {"role": "user", "content": "fix"}
FAILED: dict[str, Any] = {"role": "assistant", "content": [], "stopReason": "error"}
PAUSED: dict[str, Any] = {
    "role": "assistant", "stop_reason": "pause_turn",
    "content": [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}],
}  # fmt: skip
DONE: dict[str, Any] = {"role": "assistant", "content": "done"}
WRITTEN: dict[str, Any] = {"role": "user", "content": "<system-reminder>be brief</system-reminder>"}


def calling(*ids: str, **fields: str) -> dict[str, Any]:
    calls = [{"type": "toolCall", "id": id, "name": "read", "arguments": {"path": id}} for id in ids]
    return {"role": "assistant", "content": calls, **fields}


def result(id: str) -> dict[str, Any]:
    return {"role": "toolResult", "toolCallId": id, "content": "ok"}


TURNS: dict[str, tuple[list[dict[str, Any]], int | None, list[str]]] = {
    "nothing was said": ([], None, []),
    "only a system message": ([{"role": "system", "content": "You fix."}], None, []),
    "a user": ([ASKED], 0, []),
    "an answer": ([ASKED, DONE], None, []),
    "a second user": ([ASKED, DONE, ASKED], 2, []),
    "a call": ([ASKED, calling("a")], None, ["a"]),
    "one call of two": ([ASKED, calling("a", "b"), result("a")], None, ["b"]),
    "calls in two messages": ([ASKED, calling("a"), calling("b"), result("b")], None, ["a"]),
    "every result": ([ASKED, calling("a", "b"), result("b"), result("a")], 3, []),
    "an id again": ([ASKED, calling("a"), result("a"), calling("a")], None, ["a"]),
    "one message that calls twice by an id": ([ASKED, calling("a", "a"), result("a")], None, ["a"]),
    "a failed answer": ([ASKED, FAILED], 0, []),
    "an aborted answer with a call": ([ASKED, calling("a", stopReason="aborted")], 0, []),
    "the result of an aborted call": ([ASKED, calling("a", stopReason="aborted"), result("a")], 0, []),
    "a failed answer to results": ([ASKED, calling("a"), result("a"), FAILED], 2, []),
    "an answer after calls": ([ASKED, calling("a"), result("a"), DONE], None, []),
    "a paused answer": ([ASKED, PAUSED], 1, []),
    "a paused answer of ours": ([ASKED, {**DONE, "stopReason": "pause_turn"}, WRITTEN], 1, []),
    "a paused answer after calls": ([ASKED, calling("a"), result("a"), PAUSED], 3, []),
    "what follows a paused answer": ([ASKED, PAUSED, DONE], None, []),
    "a call that a paused answer makes": ([ASKED, calling("a", stopReason="pause_turn")], None, ["a"]),
    "a user instead of results": ([ASKED, calling("a"), ASKED], 2, []),
    "a reminder after an answer": ([ASKED, DONE, WRITTEN], None, []),
    "a reminder after a user": ([ASKED, WRITTEN], 0, []),
}


async def test_what_is_owed_is_the_results_of_calls_or_an_answer(store: Store) -> None:
    wrong = []
    for name, (messages, unanswered, calls) in TURNS.items():
        session = await store.create_session()
        ids = (await session.append_messages(messages)).entry_ids
        found = await session.pending()
        told = None if found.unanswered is None else ids.index(found.unanswered.id)
        if (told, [call.id for call in found.calls]) != (unanswered, calls):
            wrong.append((name, found))
        if found.is_over is not (unanswered is None and not calls):
            wrong.append((name, found))
        wrong += [(name, found) for call in found.calls if (call.name, call.arguments) != ("read", {"path": call.id})]
    assert wrong == []


async def test_a_call_names_the_entry_that_it_is_in_and_a_leaf_says_what_was_owed_there(store: Store) -> None:
    session = await store.create_session()
    asked, calls, _ = (await session.append_messages([ASKED, calling("a"), result("a")])).entry_ids
    (call,) = (await session.pending(leaf=calls)).calls
    assert call.entry_id == calls
    unanswered = (await session.pending(leaf=asked)).unanswered
    assert unanswered is not None
    assert unanswered.id == asked


async def test_what_a_person_ran_in_a_shell_and_what_is_excluded_is_not_owed(store: Store) -> None:
    session = await store.create_session()
    await session.append_messages([ASKED, DONE])
    await session.append_shell("ls", "a.py", 0)
    assert (await session.pending()).is_over
    again = (await session.append_message(ASKED)).entry_ids[0]
    await session.append_custom("note", {"text": "by hand"})
    assert not (await session.pending()).is_over
    await session.marks.exclude(again)
    assert (await session.pending()).is_over
