"""Commands that a person ran: stored as an exchange, seen by the model, by exports and by compaction as any other."""

from __future__ import annotations

import pytest

from flue_py import InvalidArgument, PathSettings, Session, Store
from flue_py.transfer import export_session
from tests.sessions.talk import assistant, user
from tests.tables import inputs

pytestmark = pytest.mark.anyio


async def test_a_command_is_a_message_of_the_user_a_call_and_its_result(session: Session) -> None:
    landed = await session.append_shell("pytest -q", "1 failed\n", 1)
    path = await session.get_active_path()
    assert [entry.id for entry in path] == list(landed.entry_ids)
    assert [(entry.role, entry.source) for entry in path] == [
        ("user", "shell"),
        ("assistant", "shell"),
        ("toolResult", "shell"),
    ]
    said, called, result = await session.build_context()
    call = path[1].id
    assert said == {"role": "user", "content": [{"type": "text", "text": "pytest -q"}]}
    assert called["content"] == [
        {"type": "toolCall", "id": call, "name": "bash", "arguments": {"command": "pytest -q"}}
    ]
    assert result == {
        "role": "toolResult",
        "toolCallId": call,
        "toolName": "bash",
        "content": [{"type": "text", "text": "1 failed\n\n\nCommand exited with code 1"}],
        "details": {"command": "pytest -q", "exitCode": 1},
        "isError": True,
    }
    assert session.revision == 1


@inputs(
    ("output", "code", "text"),
    [("ok", 0, "ok"), ("", 0, "(no output)"), (" \n", None, "(no output)\n\nCommand was cancelled")],
)
async def test_the_model_reads_how_it_ended(session: Session, output: str, code: int | None, text: str) -> None:
    await session.append_shell("make", output, code)
    result = (await session.build_context())[-1]
    assert (result["content"], result["isError"]) == ([{"type": "text", "text": text}], code != 0)


async def test_the_same_command_twice_is_two_calls_and_a_retry_is_one(session: Session) -> None:
    await session.append_shell("date", "now", 0)
    await session.append_shell("date", "now", 0)
    once = await session.append_shell("date", "now", 0, idempotency_key="k")
    again = await session.append_shell("date", "now", 0, idempotency_key="k")
    assert (again.entry_ids, again.replayed) == (once.entry_ids, True)
    results = [message for message in await session.build_context() if message["role"] == "toolResult"]
    assert len({str(message["toolCallId"]) for message in results}) == len(results) == 3


async def test_no_model_is_taken_for_who_ran_it(session: Session) -> None:
    await session.append_messages([user("hi"), {**assistant("hello"), "provider": "p", "model": "m"}])
    await session.append_shell("ls", "a", 0)
    assert await session.settings() == PathSettings(None, "p", "m")
    assert session.info.spent_tokens == (await session.money.aggregate_usage_since(None)).usage.total_tokens


@inputs("form", ["pi", "flue", "openai-chat", "openai-responses", "anthropic"])
async def test_it_goes_out_as_an_exchange_in_every_format(session: Session, store: Store, form: str) -> None:
    await session.append_messages([user("hi"), assistant("hello")])
    await session.append_shell("ls -l", "total 0", 0)
    text = (await export_session(session, form)).text
    assert "ls -l" in text
    assert "total 0" in text


async def test_several_commands_of_a_batch_land_with_it_and_once(session: Session, store: Store) -> None:
    async def write() -> tuple[str, ...]:
        async with store.atomic(idempotency_key="once") as tx:
            first = tx.append_shell(session, "ls", "a", 0)
            tx.append_shell(session, "rm a", "", 1, on_conflict="rebase")
            assert len(first.entry_ids) == 3
        return first.entry_ids

    assert await write() == await write()
    assert [message["role"] for message in await session.build_context()] == ["user", "assistant", "toolResult"] * 2


@inputs("odd", [("", "", 0), (None, "", 0), ("ls", None, 0), ("ls", "", "0"), ("ls", "", True), ("ls", "", 0.5)])
async def test_what_is_no_command_is_refused(session: Session, odd: tuple[str, str, int]) -> None:
    with pytest.raises(InvalidArgument):
        await session.append_shell(*odd)
    assert await session.get_active_path() == []
