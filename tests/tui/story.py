"""A database with everything that the browser shows: the same ids, times and texts in every run."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import flue_py
from flue_py.core.json import JsonObject
from flue_py.sessions import store as opening
from tests.docs.pages import Counting

KEY = "ghp_" + "Ab1" * 12
"""In the form of a token of GitHub; nobody's."""


def user(text: str, at: int = 1) -> JsonObject:
    return {"role": "user", "content": text, "timestamp": at}


def answer(text: str, *, calls: tuple[JsonObject, ...] = (), at: int = 1) -> JsonObject:
    return {
        "role": "assistant",
        "content": [{"type": "text", "text": text}, *calls],
        "provider": "anthropic",
        "model": "claude-sonnet-4-5",
        "stopReason": "toolUse" if calls else "stop",
        "timestamp": at,
        "usage": {
            "input": 1200, "output": 80, "cacheRead": 30, "cacheWrite": 0, "totalTokens": 1310,
            "cost": {"input": 0.0036, "output": 0.0012, "cacheRead": 0.00001, "cacheWrite": 0, "total": 0.00481},
        },
    }  # fmt: skip


def result(text: str) -> JsonObject:
    return {"role": "toolResult", "toolCallId": "c1", "toolName": "read_log", "content": text, "isError": False}


async def tell(path: Path) -> None:
    """Make the database: two projects, branches, marks, a compaction, a fork, a task, a secret."""
    counting = Counting()
    with patch.object(opening, "random_id", counting.id), patch.object(opening, "now_us", counting.now_us):
        async with flue_py.open(path) as store:
            await _red_build(store)
            other = await store.create_session(title="Write the release notes", cwd="/srv/website")
            await other.append_messages(
                [user("Write the notes for 2.0."), answer("Here they are: faster and smaller.")]
            )
            nowhere = await store.create_session(key="scratch")
            await nowhere.append_message(user("今日はログを見ます 👀 [bold]not bold[/bold] \x1b[31mnot red"))


async def _red_build(store: flue_py.Store) -> None:
    session = await store.create_session(
        title="Why is the build red?", cwd="/srv/shop", metadata={"imported": {"format": "claude-code"}}
    )
    call: JsonObject = {"type": "toolCall", "id": "c1", "name": "read_log", "arguments": {"path": "ci/log.txt"}}
    await session.append_messages(
        [
            user("Why is the build red?"),
            answer("I read the log.", calls=(call,)),
            result("test_login: timeout after 30 s"),
            answer("**One test** times out:\n\n- `test_login`\n- it waits for a clock"),
        ]
    )
    first = await session.append_message(user("Fix it."))
    await session.append_message(answer("Fixed by waiting for the answer instead."))
    await session.marks.set_label(first.entry_id, "the fix")
    await session.marks.pin(first.entry_id)
    path = await session.get_active_path()
    await session.move_leaf(to=path[3].id)
    await session.append_messages([user(f"Deploy it with GITHUB_TOKEN={KEY}"), answer("Deployed.")])
    fork = await session.fork(title="What if we drop the test?")
    await fork.append_message(user("Drop the test."))
    task = await session.tasks.create(task_id="review", title="Review the fix")
    await task.append_message(user("Review the fix."))
    await task.tasks.end("done", summary="The fix is right.")
    await session.append_compaction(
        "## Goal\nA green build.\n\n## Done\nThe test waits for the answer.",
        first_kept_entry_id=(await session.get_active_path())[-1].id,
        tokens_before=4_000,
    )
    await session.append_messages([user("Is it green now?"), answer("Yes, since 12:00.")])
