"""A summary is asked for by the last request and one message more, so that most of it is in the provider's cache."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import flue_py.sync
from flue_py import InvalidArgument, Session, Store, SummaryFailed
from flue_py.agents.conversation import Conversation
from flue_py.agents.guard import CompactionGuard
from flue_py.compaction import CompactionSettings
from flue_py.compaction.modes import LEAST_CACHED
from flue_py.context.tokens import counter_for
from flue_py.core.entries import Pairing
from flue_py.core.json import JsonObject, encode_json
from flue_py.core.model import FunctionModel, ModelReply, ModelRequest
from flue_py.errors import ContextOverflow
from flue_py.providers import LIMITS, wire_request
from flue_py.providers.lists import Said
from tests.adapters.messages.contexts import TRANSCRIPTS
from tests.checks import raises
from tests.formats.transcripts import lines_of
from tests.sessions.talk import user
from tests.tables import inputs
from tests.values import existing

MODEL = "claude-sonnet-5"
SYSTEM = "You are a coding agent."
TOOLS: tuple[JsonObject, ...] = (
    {"name": "read", "description": "Read a file.", "parameters": {"type": "object", "properties": {}}},
)
SETTINGS = CompactionSettings(keep_recent_tokens=600, user_words_share=0)


class Asked:
    """A model that keeps what it is asked, and answers in turn."""

    def __init__(self, *answers: ModelReply | str | Exception, name: str = MODEL, **more: Any) -> None:
        self.requests: list[ModelRequest] = []
        self._answers = [*answers] or ["## Task\nTell the answers."]
        self.model = FunctionModel(self._answer, name, **more)

    def _answer(self, request: ModelRequest) -> ModelReply | str:
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def assistant(text: str) -> JsonObject:
    return {"role": "assistant", "content": text, "provider": "anthropic", "model": MODEL}


async def talk(session: Session, turns: int = 30) -> None:
    for number in range(turns):
        await session.append_message(user(f"question {number} " + "why? " * 150))
        await session.append_message(assistant(f"answer {number} " + "thus. " * 50))


def as_sent(request: ModelRequest) -> bytes:
    """Return a request in the order of a provider's cache: tools, system, messages."""
    parts = [*request.tools, {"system": request.system}, *request.messages]
    return b"".join(encode_json(part, "request")[0].encode() for part in parts)


def compacting(asked: Asked, session: Session, **more: Any) -> Any:
    given = {"settings": SETTINGS, "mode": "llm", "system": SYSTEM, "tools": TOOLS, **more}
    return session.compact(asked.model, **given)


async def test_the_request_is_the_last_one_and_a_message_more(session: Session) -> None:
    await talk(session)
    answer = existing(await session.context.latest_assistant())
    sent = ModelRequest(tuple(await session.build_context(leaf=answer.parent_id)), SYSTEM, TOOLS)
    asked = Asked()
    done = await compacting(asked, session, instructions="mind the questions")

    (request,) = asked.requests
    assert as_sent(request).startswith(as_sent(sent))
    assert len(request.messages) == len(sent.messages) + 2
    assert (request.system, request.tools, request.purpose) == (SYSTEM, TOOLS, "compaction")
    prompt = str(request.messages[-1]["content"])
    assert request.messages[-1]["role"] == "user"
    assert prompt.endswith("\n\nmind the questions")
    kept = [item for item in await session.build_context_entries() if item.kind == "message"]
    assert f"The last {len(kept)} messages stay in sight; the first of them is of role user and begins: " in prompt
    assert "question " in prompt
    assert done.summary is not None
    assert done.summary.startswith("## Task\nTell the answers.")
    assert done.notes == ()
    assert len(done.calls) == 1


async def test_where_nothing_stays_the_last_request_says_so(session: Session) -> None:
    await talk(session)
    asked = Asked()
    assert (await compacting(asked, session, settings=None)).notes == ()
    prompt = str(asked.requests[0].messages[-1]["content"])
    assert "This message is the first that stays in sight. Everything before that will be replaced" in prompt
    assert len(await session.build_context()) == 1


async def test_a_guard_and_a_conversation_ask_so_too(session: Session, store: Store) -> None:
    await talk(session)
    asked = Asked()
    guard = CompactionGuard(store, session, asked.model, settings=SETTINGS, system=SYSTEM, tools=TOOLS)
    assert (await guard.compact()).outcome == "compacted"
    await talk(session)
    conversation = Conversation(store, session)
    assert (await conversation.compact(asked.model, settings=SETTINGS, system=SYSTEM, tools=TOOLS)).reason is None
    assert [(request.system, request.tools) for request in asked.requests] == [(SYSTEM, TOOLS)] * 2


@inputs(("chars", "is_whole"), [(200, False), (100_000, True)])
async def test_where_settings_change_what_is_sent_a_transcript_is(
    session: Session, store: Store, chars: int, is_whole: bool
) -> None:
    await talk(session)
    call: JsonObject = {"type": "toolCall", "id": "c", "name": "read", "arguments": {}}
    await session.append_message({**assistant(""), "content": [call]})
    await session.append_message(
        {"role": "toolResult", "toolCallId": "c", "toolName": "read", "content": "line " * 300}
    )
    await session.append_message(assistant("read"))
    context = {"window": {"max_tool_result_chars": chars}}
    asked = Asked()
    guard = CompactionGuard(store, session, asked.model, settings=SETTINGS, system=SYSTEM, tools=TOOLS, context=context)
    done = await guard.compact()
    assert done.result is not None
    await session.undo()
    conversation = Conversation(store, session, context=context)
    again = await conversation.compact(asked.model, settings=SETTINGS, mode="llm", system=SYSTEM, tools=TOOLS)
    why = ("the summary was made from a transcript: what is sent is not the context as it is",)
    assert done.result.notes == again.notes == (() if is_whole else why)
    assert {request.system == SYSTEM for request in asked.requests} == {is_whole}


async def test_reasoning_behind_another_beginning_is_not_sent_there_either(session: Session, store: Store) -> None:
    thought: JsonObject = {"type": "thinking", "thinking": "hm", "thinkingSignature": "signed"}
    stale = {**assistant(""), "content": [thought, {"type": "text", "text": "so"}]}
    await session.append_message(user("first"))
    await session.append_message(stale, produced_under="0" * 32)
    await talk(session)
    asked = Asked()
    guard = CompactionGuard(store, session, asked.model, settings=SETTINGS, system=SYSTEM, tools=TOOLS)
    assert await session.context.latest_assistant() is not None
    sent: list[list[JsonObject]] = []

    async def ask(messages: list[JsonObject]) -> None:
        sent.append(messages)

    await guard.call(ask)
    assert (await guard.compact()).outcome == "compacted"
    (request,) = asked.requests
    assert as_sent(request).startswith(as_sent(ModelRequest(tuple(sent[0]), SYSTEM, TOOLS)))
    assert "signed" not in str(request.messages)


async def test_what_no_provider_takes_is_not_sent_to_a_model_of_the_callers_own_either(session: Session) -> None:
    await talk(session, 2)
    dead: JsonObject = {"type": "toolCall", "id": "dead", "name": "read", "arguments": {"path": "a"}}
    done: JsonObject = {"type": "toolCall", "id": "done", "name": "read", "arguments": {"path": "b"}}
    result: JsonObject = {"role": "toolResult", "toolName": "read", "content": "b says", "isError": False}
    await session.append_messages(
        [
            {**assistant(""), "content": [dead, done]},
            {**result, "toolCallId": "done"},
            {**result, "toolCallId": "never called"},
            user(" "),
            {**assistant(""), "content": []},
        ]
    )
    await talk(session)
    asked = Asked()
    given = await session.build_context()
    assert (await compacting(asked, session)).notes == ()
    (request,) = asked.requests
    pairing = Pairing(request.messages)
    assert pairing.unpaired == set()
    assert [len(results) for results in pairing.results.values()] == [1, 1]
    assert all(message["role"] == "toolResult" or str(message["content"]).strip(" []") for message in request.messages)
    for target in LIMITS:
        raw = wire_request(target, map(Said, given), model=MODEL)
        sent = wire_request(target, map(Said, request.messages[:-1]), model=MODEL)
        assert sent.messages == raw.messages


async def test_the_second_one_brings_the_notes_before_it_up_to_date(session: Session) -> None:
    await talk(session)
    asked = Asked()
    await compacting(asked, session)
    await talk(session, 20)
    done = await compacting(asked, session)
    assert done.appended is not None
    assert done.notes == ()
    assert "begins with notes of what happened before" in str(asked.requests[1].messages[-1]["content"])
    assert "[Context Summary]" in str(asked.requests[1].messages[0]["content"])
    assert "begins with notes" not in str(asked.requests[0].messages[-1]["content"])


Change = Callable[[Session], Any]


async def open_call(session: Session) -> None:
    part = {"type": "toolCall", "id": "call-1", "name": "read", "arguments": {"path": "a.py"}}
    await session.append_message({**assistant(""), "content": [part]})


async def early_exclusion(session: Session) -> None:
    await session.marks.exclude((await session.get_active_path())[4].id)


async def large_question(session: Session) -> None:
    await session.append_message(user("log " * 20_000))


async def another_model(session: Session) -> None:
    """Nothing that was sent to one model is in the cache of another."""
    path = await session.get_active_path()
    await session.rewind(to=path[0].id)
    for entry in path[1:]:
        await session.append_message(
            {**entry.fields, **({"model": "claude-opus-5"} if entry.role == "assistant" else {})}
        )
    await session.append_custom("model_change", {"provider": "anthropic", "modelId": MODEL})


async def copies(session: Session) -> None:
    """What was copied was sent elsewhere, if at all."""
    answers = [entry for entry in await session.get_active_path() if entry.role == "assistant"]
    source = await session.fork()
    await session.rewind(to=answers[0].id)
    path = [entry.id for entry in await source.get_active_path()]
    await session.branches.cherry_pick(path[path.index(answers[0].id) + 1 :], source=source)


async def failure(session: Session) -> None:
    """A request that failed was more than the window holds, perhaps, and is in no cache."""
    await session.append_message(user("log " * 5_000))
    await session.append_message({**assistant(""), "stopReason": "error"})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (open_call, "a call of a tool is without its result"),
        (early_exclusion, "tokens would be in the cache"),
        (large_question, "tokens would be in the cache"),
        (another_model, f"{MODEL} has answered nothing that is still in the context"),
        (copies, "tokens would be in the cache"),
        (failure, "tokens would be in the cache"),
    ],
)
async def test_where_it_cannot_be_a_transcript_is_sent_and_a_note_says_why(
    session: Session, change: Change, why: str
) -> None:
    await talk(session)
    await change(session)
    asked = Asked()
    done = await compacting(asked, session)
    (note,) = done.notes
    assert note.startswith("the summary was made from a transcript: ")
    assert why in note
    assert done.summary is not None
    assert all("<conversation>" in str(request.messages) and not request.tools for request in asked.requests)


async def test_an_answer_of_another_model_in_between_does_not_matter(session: Session) -> None:
    await talk(session)
    await session.append_messages([user("quick"), {**assistant("Yes."), "model": "claude-haiku-4-5"}])
    await session.append_custom("model_change", {"provider": "anthropic", "modelId": MODEL})
    asked = Asked()
    assert (await compacting(asked, session)).notes == ()
    assert asked.requests[0].tools == TOOLS


@inputs(
    ("minutes", "usage", "is_cold"), [(4, {}, False), (6, {}, True), (50, {"cacheWrite1h": 9}, False), (70, {}, True)]
)
async def test_what_the_provider_no_longer_keeps_is_not_counted_on(
    target: str, minutes: int, usage: JsonObject, is_cold: bool
) -> None:
    now = [datetime(2026, 11, 25, tzinfo=UTC)]
    async with flue_py.open(target, clock=lambda: now[0]) as store:
        session = await store.create_session()
        await talk(session)
        await session.append_messages(
            [user("quick"), {**assistant("Yes."), "usage": {"input": 5, "output": 1, **usage}}]
        )
        now[0] += timedelta(minutes=minutes)
        asked = Asked()
        done = await compacting(asked, session)
        why = f"what was sent last is kept for 5 minutes, and {minutes} have passed"
        assert done.notes == ((f"the summary was made from a transcript: {why}",) if is_cold else ())
        assert (
            await session.compactions.price("compact", system=SYSTEM, tools=TOOLS, settings=SETTINGS)
        ).is_warm is not is_cold
        assert (await store.verify()).problems == []


@inputs(
    ("model", "why"),
    [
        ({"name": "another"}, f"the session's model is {MODEL}, and another is asked"),
        ({"provider": "bedrock"}, "the session's provider is anthropic, and bedrock is asked"),
        ({"context_window": 9_000}, "do not fit into a window of 9,000"),
    ],
)
async def test_another_model_gets_a_transcript(session: Session, model: dict[str, Any], why: str) -> None:
    await talk(session)
    asked = Asked(**model)
    done = await compacting(asked, session)
    assert why in done.notes[0]
    assert "<conversation>" in str(asked.requests[0].messages)
    assert done.appended is not None


async def test_who_does_not_say_what_goes_with_a_request_gets_a_transcript(session: Session) -> None:
    await talk(session)
    for more in ({"system": None}, {"tools": None}, {"system": None, "tools": None}):
        asked = Asked()
        done = await compacting(asked, session, **more)
        assert done.notes == ()
        assert "<conversation>" in str(asked.requests[0].messages)
        await session.undo()
    await raises(InvalidArgument, compacting(Asked(), session, system=5), match="system")
    await raises(InvalidArgument, compacting(Asked(), session, tools="read"), match="tools")


async def test_a_request_that_is_too_long_after_all_is_a_transcript_and_other_failures_change_nothing(
    session: Session,
) -> None:
    await talk(session)
    before = await session.build_context()
    await raises(SummaryFailed, compacting(Asked(OSError("down")), session))
    assert await session.build_context() == before
    asked = Asked(ContextOverflow("too long"), "short notes")
    done = await compacting(asked, session)
    assert "too long for the model" in done.notes[0]
    assert done.summary is not None
    assert done.summary.startswith("short notes")
    assert len(asked.requests) == 2


async def test_calls_in_the_answer_are_not_made(session: Session) -> None:
    await talk(session)
    call: JsonObject = {"type": "toolCall", "id": "call-9", "name": "read", "arguments": {}}
    text: JsonObject = {"type": "text", "text": "short notes"}
    both = ModelReply(({"role": "assistant", "content": [text, call], "stopReason": "toolUse"},))
    done = await compacting(Asked(both), session)
    assert done.summary is not None
    assert done.summary.startswith("short notes")
    assert done.notes == ()
    await session.undo()

    only = ModelReply(({"role": "assistant", "content": [call], "stopReason": "toolUse"},))
    asked = Asked(only, "from a transcript")
    done = await compacting(asked, session)
    assert done.summary is not None
    assert done.summary.startswith("from a transcript")
    assert "called tools instead" in done.notes[0]
    assert len(done.calls) == 2


@pytest.mark.thorough(but=["codex"])
@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_most_of_the_request_is_in_the_cache_over_real_transcripts(name: str, tmp_path: Path) -> None:
    file = tmp_path / "session.jsonl"
    file.write_bytes(b"".join(lines_of(name)))
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    with flue_py.sync.open(":memory:", prices=False, clock=lambda: now[0]) as store:
        (imported,) = flue_py.sync.import_file(store, file).sessions
        session = existing(store.get_session(imported.session_id))
        path = session.get_active_path()
        shares = []
        for entry in path[:: max(len(path) // 25, 1)]:
            # It is compacted as soon as it was written.
            now[0] = datetime.fromtimestamp(entry.created_us / 1_000_000, UTC)
            if found := aligned_share(session, entry.id):
                shares.append(found)
    assert all(found >= LEAST_CACHED for found in shares)
    # Of a conversation of a few lines, nothing is to be compacted.
    assert shares or len(path) < 20


def aligned_share(session: flue_py.sync.Session, leaf: str) -> float | None:
    """Compact a fork at a leaf; return the share of the request that was sent before, None for a transcript."""
    fork = session.fork(at=leaf)
    model = fork.settings().model
    answer = fork.context.latest_assistant()
    asked = Asked("short notes", name=model or "unknown")
    done = fork.compact(asked.model, mode="llm", settings=SETTINGS, system=SYSTEM, tools=TOOLS)
    for request in asked.requests:
        assert_taken(request)
    if not asked.requests or done.notes:
        return None
    assert answer is not None
    (request,) = asked.requests
    sent = ModelRequest(tuple(session.build_context(leaf=answer.parent_id)), SYSTEM, TOOLS)
    assert_begins_as_sent(sent, request)
    return share(sent, request, model)


def assert_begins_as_sent(sent: ModelRequest, request: ModelRequest) -> None:
    """Assert that every provider is sent the same beginning, of whose last message there may now be more."""
    assert (request.system, request.tools) == (sent.system, sent.tools)
    for target in LIMITS:
        before, now = (
            encode_json({"messages": wire_request(target, map(Said, each.messages)).messages}, "request")[0]
            for each in (sent, request)
        )
        closed = before.rstrip("]}")
        assert now.startswith(closed[: closed.rindex('"')] if closed else before)


def assert_taken(request: ModelRequest) -> None:
    """Assert that every provider takes a request, aligned or with a transcript."""
    for target in LIMITS:
        assert wire_request(target, map(Said, request.messages)).broken == ()


def share(sent: ModelRequest, request: ModelRequest, model: str | None) -> float:
    counter = counter_for(model)
    before, now = (sum(counter.count(message) for message in each.messages) for each in (sent, request))
    return before / now
