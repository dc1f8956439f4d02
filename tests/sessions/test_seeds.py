"""What the documents say that the project was made from, where a default or an exact rule was another."""

from __future__ import annotations

import pytest

from flue_py import JsonObject, Session, Store
from flue_py.compaction import CompactionSettings
from flue_py.runtime.conversation import Conversation
from flue_py.runtime.defaults import RUN_DEFAULTS
from flue_py.runtime.guard import CompactionGuard
from tests.sessions.talk import user

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("target", ["memory"], indirect=True)]

SMALL = CompactionSettings(keep_recent_tokens=40, user_words_share=0)


def called(name: str, tool: str, path: str, text: str, *, failed: bool = False) -> list[JsonObject]:
    call: JsonObject = {"type": "toolCall", "id": name, "name": tool, "arguments": {"path": path}}
    return [
        {"role": "assistant", "content": [call], "agentName": "Dev"},
        {"role": "toolResult", "toolCallId": name, "content": [{"type": "text", "text": text}], "isError": failed},
    ]


async def test_changes_are_read_from_what_is_stored_whatever_was_compacted(session: Session) -> None:
    wrote = [
        each for n in range(5) for each in (user(f"go {n}"), *called(f"w{n}", "write_file", f"f{n}.py", "ok " * 300))
    ]
    await session.append_messages([*wrote, user("end " * 100)])
    settings = {"agents": {"T": {"handoff": ["changes_recent"], "spec": {"sources": ["changes_recent"]}}}}
    before = (await session.gather_context(agent="T", settings=settings)).text("H")
    assert all(f"f{n}.py" in before for n in range(5)), "all of them, where no number is named"
    assert (await session.compact(mode="intent", settings=SMALL)).appended is not None
    assert (await session.gather_context(agent="T", settings=settings)).text("H") == before
    assert (await session.append_handoff("T", settings=settings)).appended is not None


async def test_a_call_that_failed_has_modified_nothing(session: Session) -> None:
    wrong = called("p", "patch_file", "auth.go", "oldText not found", failed=True)
    right = [*called("w", "write_file", "new.go", "ok " * 300), *called("r", "read_file", "auth.go", "text " * 300)]
    await session.append_messages([user("q " * 300), *wrong, *right, user("end " * 80)])
    done = await session.compact(mode="intent", settings=SMALL)
    assert (done.summary or "").partition("<read-files>")[2] == (
        "\nauth.go\n</read-files>\n\n<modified-files>\nnew.go\n</modified-files>"
    )


async def test_long_results_of_a_turn_are_stored_beside_the_history_unless_that_is_switched_off(
    session: Session, store: Store
) -> None:
    for offload, is_stub in ((True, True), (False, False)):

        async def answers(context: list[JsonObject]) -> list[JsonObject]:
            done: JsonObject = {"role": "assistant", "content": "read"}
            return [*called(f"c{len(context)}", "read_file", "x", "z" * 40_001), done]

        await Conversation(store, session, offload=offload).take_turn("go", answers)
        assert ("offloaded" in str((await session.build_context())[-2])) is is_stub


async def test_the_defaults_of_a_run_compact_after_fifty_turns_and_keep_ten(session: Session, store: Store) -> None:
    guard = CompactionGuard(store, session, mode="intent", **RUN_DEFAULTS)
    outcomes = []
    for n in range(50):
        answer: JsonObject = {"role": "assistant", "content": "a" * 3_000}
        await session.append_messages([user(f"q{n}"), *called(f"c{n}", "read_file", f"f{n}", "x"), answer])
        outcomes.append((await guard.after_call()).outcome)
    assert outcomes == ["nothing"] * 49 + ["compacted"]
    said = [message["content"] for message in await session.build_context() if message["role"] == "user"]
    assert said[1:] == [f"q{n}" for n in range(40, 50)]

    async def sent(context: list[JsonObject]) -> int:
        return len(str(context[-1]["content"]))

    assert 2_000 < await guard.call(sent) < 2_200
