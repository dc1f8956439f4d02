"""What settings leave of the messages of a framework: what no step has changed is the object that came in."""

from __future__ import annotations

from typing import Any

import pytest

from tests.adapters.needed import needs

needs("messages", "langchain_core")
needs("messages", "pydantic_ai")

from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from pydantic_ai import Agent
from pydantic_ai import messages as theirs
from pydantic_ai.models.function import AgentInfo, FunctionModel

from flue_py.adapters.messages import sent_to_langchain, sent_to_pydantic_ai
from flue_py.errors import InvalidArgument

CLEARED = "[tool result cleared to save context]"
SETTINGS: dict[str, Any] = {
    "epoch_tokens": 0,
    "microcompact": {"keep": 0, "tools": ["read"]},
    "agents": {"Reviewer": {"window": {"text_only": True, "max_replay_chars": 4}, "microcompact": None}},
}


def langchain() -> list[Any]:
    call = {"name": "read", "args": {"path": "a.py"}, "id": "c1"}
    return [
        SystemMessage("Be brief.", id="s"),
        HumanMessage("Why?", id="h"),
        RemoveMessage(id="gone"),
        AIMessage("I look.", tool_calls=[call], id="a", response_metadata={"model": "m"}),
        ToolMessage("line " * 100, tool_call_id="c1", name="read", id="t", artifact={"path": "a.py"}),
        AIMessage("It hangs.", id="b"),
        HumanMessage("Sure?", id="i"),
    ]


def test_langchain_gets_back_its_own_messages_and_shorter_ones_in_the_places_of_others() -> None:
    given = langchain()
    sent = sent_to_langchain(SETTINGS)(given)
    assert [each is was for each, was in zip(sent, given, strict=True)] == [True, True, True, True, False, True, True]
    assert sent[4] == given[4].model_copy(update={"content": CLEARED})
    assert given == langchain(), "what came in is as it was"


def test_langchain_for_another_agent() -> None:
    given = langchain()
    sent = sent_to_langchain(SETTINGS, agent="reviewer")(given)
    assert [each.id for each in sent] == ["h", "gone", "a", "b", "i"]
    assert (sent[2].content, sent[2].tool_calls, sent[2].response_metadata) == (
        "I lo\n[...truncated — 3 chars omitted to reduce context size...]",
        [],
        {"model": "m"},
    )


def history() -> list[theirs.ModelMessage]:
    call = theirs.ToolCallPart("read", {"path": "a.py"}, "c1", id="x")
    return [
        theirs.ModelRequest(
            [theirs.SystemPromptPart("Be brief."), theirs.UserPromptPart("Why?")], instructions="Never lie."
        ),
        theirs.ModelResponse([theirs.TextPart("I look."), call], model_name="m", provider_response_id="r1"),
        theirs.ModelRequest([theirs.ToolReturnPart("read", "line " * 100, "c1", metadata={"n": 1})]),
        theirs.ModelResponse([theirs.TextPart("It hangs.")]),
        theirs.ModelRequest([theirs.UserPromptPart("Sure?")], instructions="Never lie."),
    ]


def test_pydantic_ai_gets_back_its_own_messages_and_shorter_ones_in_the_places_of_others() -> None:
    given = history()
    sent = sent_to_pydantic_ai(SETTINGS)(given)
    assert [each is was for each, was in zip(sent, given, strict=True)] == [True, True, False, True, True]
    [was], [part] = given[2].parts, sent[2].parts
    assert isinstance(part, theirs.ToolReturnPart)
    assert isinstance(was, theirs.ToolReturnPart)
    assert (part.content, part.tool_call_id, part.metadata, part.timestamp) == (CLEARED, "c1", {"n": 1}, was.timestamp)


def test_pydantic_ai_for_another_agent() -> None:
    given = history()
    sent = sent_to_pydantic_ai(SETTINGS, agent="Reviewer")(given)
    assert [each.kind for each in sent] == ["request", "response", "response", "request"]
    [asked] = sent[0].parts
    assert asked is given[0].parts[1]
    assert isinstance(sent[0], theirs.ModelRequest)
    assert sent[0].instructions == "Never lie."
    answer = sent[1]
    assert isinstance(answer, theirs.ModelResponse)
    assert (answer.model_name, answer.provider_response_id, len(answer.parts)) == ("m", "r1", 1)
    assert sent[3] is given[4]


async def test_an_agent_of_pydantic_ai_calls_it_before_each_request() -> None:
    from pydantic_ai.capabilities import ProcessHistory

    seen: list[list[theirs.ModelMessage]] = []

    def answer(messages: list[theirs.ModelMessage], info: AgentInfo) -> theirs.ModelResponse:
        seen.append(list(messages))
        return theirs.ModelResponse([theirs.TextPart("Yes.")])

    agent = Agent(FunctionModel(answer), capabilities=[ProcessHistory(sent_to_pydantic_ai(SETTINGS))])
    result = await agent.run("And now?", message_history=history())
    assert result.output == "Yes."
    returned = [part for message in seen[0] for part in message.parts if isinstance(part, theirs.ToolReturnPart)]
    assert [part.content for part in returned] == [CLEARED]


@pytest.mark.parametrize("make", [sent_to_langchain, sent_to_pydantic_ai])
def test_wrong_settings_are_refused_before_anything_is_sent(make: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"microcompact\.keep"):
        make({"microcompact": {"keep": -1}})
    with pytest.raises(InvalidArgument, match="spec: is read from a session"):
        make({"spec": {"sources": ["session_context"]}})
    with pytest.raises(InvalidArgument, match="agent"):
        make({}, agent=7)
    assert make({})([]) == []


ONE_IS_KEPT: dict[str, Any] = {"epoch_tokens": 0, "microcompact": {"keep": 1, "tools": ["read"]}}


def test_langchain_sends_no_reasoning_that_a_step_has_since_made_stale() -> None:
    def answers(number: int) -> list[Any]:
        blocks: list[Any] = [
            {"type": "thinking", "thinking": "Hm.", "signature": f"s{number}"},
            {"type": "text", "text": "I look."},
            {"type": "server_tool_use", "id": f"w{number}", "name": "web_search", "input": {"query": "a.py"}},
            {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {"path": "a.py"}},
        ]
        call = {"name": "read", "args": {"path": "a.py"}, "id": f"c{number}"}
        told = {"model_provider": "anthropic"}
        asked = AIMessage(blocks, tool_calls=[call], response_metadata=told, id=f"a{number}")
        return [asked, ToolMessage("line " * 100, tool_call_id=f"c{number}", name="read")]

    send = sent_to_langchain(ONE_IS_KEPT)
    given: list[Any] = [HumanMessage("Why?")]
    send(given)
    given += answers(1)
    assert send(given) == given
    given += answers(2)
    sent = send(given)
    assert sent[1] is given[1]
    assert sent[2].content == CLEARED
    assert sent[3] == given[3].model_copy(update={"content": given[3].content[1:]}), "nothing else is lost"


def test_langchain_takes_the_blocks_of_a_shorter_answer_for_standard_ones() -> None:
    blocks: list[Any] = [
        {"type": "text", "text": "I look. " * 20},
        {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.py"}},
    ]
    call = {"name": "read", "args": {"path": "a.py"}, "id": "c1"}
    told = {"model_provider": "anthropic"}
    given = [HumanMessage("Why?"), AIMessage(blocks, tool_calls=[call], response_metadata=told, id="a")]
    given += [ToolMessage("x", tool_call_id="c1", name="read"), AIMessage("So."), HumanMessage("And?")]
    sent = sent_to_langchain({"epoch_tokens": 0, "superseded": {"text_chars": 7}})(given)
    assert [each is was for each, was in zip(sent, given, strict=True)] == [True, False, True, True, True]
    answer = sent[1]
    assert isinstance(answer, AIMessage)
    assert [block["type"] for block in answer.content_blocks] == ["text", "tool_call"]
    assert (answer.id, answer.tool_calls) == ("a", [{**call, "type": "tool_call"}])
    assert answer.response_metadata == {"model_provider": "anthropic", "output_version": "v1"}


@pytest.mark.parametrize("keeps", [True, False])
async def test_pydantic_ai_sends_no_reasoning_that_a_step_has_since_made_stale(keeps: bool) -> None:
    from pydantic_ai.capabilities import ProcessHistory

    seen: list[list[str | None]] = []
    searched: list[int] = []

    def answer(messages: list[theirs.ModelMessage], info: AgentInfo) -> theirs.ModelResponse:
        searched.append(sum(part.part_kind == "builtin-tool-call" for message in messages for part in message.parts))
        parts = [part for message in messages for part in message.parts if isinstance(part, theirs.ThinkingPart)]
        seen.append([part.signature for part in parts])
        number = len(seen)
        thought = theirs.ThinkingPart("Hm.", signature=f"s{number}", provider_name="anthropic")
        said: Any = (
            theirs.TextPart("So.") if number > 2 else theirs.ToolCallPart("read", {"path": "a.py"}, f"c{number}")
        )
        search = theirs.NativeToolCallPart("web_search", {"query": "a.py"}, f"w{number}", provider_name="anthropic")
        found = theirs.NativeToolReturnPart("web_search", [], f"w{number}", provider_name="anthropic")
        return theirs.ModelResponse([thought, search, found, said], provider_name="anthropic")

    send = sent_to_pydantic_ai({**ONE_IS_KEPT, "keep_stale_reasoning": keeps})
    agent = Agent(FunctionModel(answer), capabilities=[ProcessHistory(send)])

    @agent.tool_plain
    def read(path: str) -> str:
        return "line " * 100

    first = await agent.run("Why?")
    await agent.run("Sure?", message_history=first.all_messages())
    every = [[], ["s1"], ["s1", "s2"], ["s1", "s2", "s3"]]
    assert seen == (every if keeps else [[], ["s1"], ["s1"], ["s1", "s3"]])
    assert searched == [0, 1, 2, 3], "nothing else is lost"


def test_pydantic_ai_sends_no_id_by_which_openai_would_look_for_reasoning_that_is_not_there() -> None:
    def answers(number: int) -> list[theirs.ModelMessage]:
        thought = theirs.ThinkingPart("", id=f"rs_{number}", signature=f"encrypted {number}", provider_name="openai")
        call = theirs.ToolCallPart("read", {"path": "a.py"}, f"c{number}", id=f"fc_{number}", provider_name="openai")
        result = theirs.ToolReturnPart("read", "line " * 100, f"c{number}")
        return [theirs.ModelResponse([thought, call], provider_name="openai"), theirs.ModelRequest([result])]

    send = sent_to_pydantic_ai(ONE_IS_KEPT)
    given: list[theirs.ModelMessage] = [theirs.ModelRequest([theirs.UserPromptPart("Why?")])]
    send(given)
    given += answers(1)
    assert send(given) == given
    given += answers(2)
    sent = send(given)
    assert sent[1] is given[1]
    [part] = sent[3].parts
    assert isinstance(part, theirs.ToolCallPart)
    assert (part.tool_call_id, part.args, part.id) == ("c2", {"path": "a.py"}, None)
