"""Messages in a provider's own form: how they are converted, what is refused, and that they convert back unchanged."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flue_py
from flue_py import InvalidEntry, Session, Store
from flue_py.core.entries import NewEntry, entry_of_message
from flue_py.core.json import JsonObject
from flue_py.core.messages import AssistantMessage, ToolResultMessage
from flue_py.core.sessions import ConvertedMessage
from flue_py.providers.base import Leftovers
from flue_py.providers.lists import gemini_list, said_in
from flue_py.sessions.write import incoming_messages
from tests.checks import raises
from tests.effort import examples
from tests.formats.test_list_round_trips import anthropic_lists, chat_lists, responses_lists, same
from tests.tables import inputs
from tests.values import existing

CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
CHAT: list[JsonObject] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "q"}, {"type": "image_url", "image_url": {"url": "x:y"}}]},
    {
        "role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None, "model": "m",
        "usage": {"input": 5, "output": 1, "totalTokens": 6},
    },
    {"role": "tool", "tool_call_id": "c1", "content": "big"},
    {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
]  # fmt: skip
ANTHROPIC: list[JsonObject] = [
    {"role": "user", "content": "q"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "d"},
            {"type": "tool_use", "id": "t1", "name": "read", "input": {}},
            {"type": "tool_use", "id": "t2", "name": "list", "input": {"a": 1.0}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "one", "is_error": True},
            {
                "type": "tool_result",
                "tool_use_id": "t2",
                "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}],
            },
            {"type": "text", "text": "and now?"},
            {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
]
GEMINI: list[JsonObject] = [
    {"role": "user", "parts": [{"text": "q"}, {"inlineData": {"mimeType": "image/png", "data": "QUJD"}}]},
    {
        "role": "model",
        "parts": [
            {"text": "hm", "thought": True},
            {"functionCall": {"name": "read", "args": {"path": "a"}}, "thoughtSignature": "c2ln"},
            {"functionCall": {"name": "read", "args": {}}},
        ],
    },
    {
        "role": "user",
        "parts": [
            {"functionResponse": {"name": "read", "response": {"error": "no such file"}}},
            {"functionResponse": {"name": "read", "response": {"lines": [1, 2.0]}}},
            {"text": "and now?"},
        ],
    },
    {"role": "model", "parts": [{"text": "done", "thoughtSignature": "c2ln"}]},
    {"parts": [{"fileData": {"mimeType": "application/pdf", "fileUri": "https://example.org/a.pdf"}}]},
]
RESPONSES: list[JsonObject] = [
    {"role": "user", "content": [{"type": "input_text", "text": "q"}, {"type": "input_image", "image_url": "x:y"}]},
    {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "secret"},
    {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{ "path": "a" }', "id": "fc_1"},
    {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "***"},
    {"type": "function_call_output", "call_id": "c1", "output": "one"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done", "annotations": []}]},
    {"role": "user", "content": "thanks"},
]


async def roles(session: Session) -> list[str]:
    return [item.role for item in await session.build_context_entries()]


async def exported(session: Session, shape: str) -> Any:
    return json.loads((await flue_py.export_session(session, shape)).text)


async def test_a_chat_exchange_becomes_a_call_and_its_result(session: Session) -> None:
    appended = await session.append_messages(CHAT)
    assert [each.index for each in appended.converted] == [1, 2, 3]
    assert {each.shape for each in appended.converted} == {"openai-chat"}
    assert appended.converted[2] == ConvertedMessage(3, "openai-chat", (appended.entry_ids[3],))
    _, asked, called, answered, said = await session.get_active_path()
    assert asked.fields["content"] == [{"type": "text", "text": "q"}, {"type": "image", "url": "x:y"}]
    assert isinstance(called.message, AssistantMessage)
    assert called.fields["content"] == [{"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a"}}]
    assert called.usage.total_tokens == 6
    assert isinstance(answered.message, ToolResultMessage)
    assert (answered.message.tool_call_id, answered.message.tool_name) == ("c1", "read")
    assert said.fields == CHAT[4]
    effect = await session.marks.exclude(answered.id)
    assert effect.entry_ids == (called.id, answered.id)
    assert await roles(session) == ["developer", "user", "assistant"]
    assert len(await session.turns()) == 1


async def test_an_anthropic_message_may_become_several_of_ours(session: Session) -> None:
    appended = await session.append_messages(ANTHROPIC)
    ids = appended.entry_ids
    assert appended.converted == (
        ConvertedMessage(1, "anthropic", (ids[1],)),
        ConvertedMessage(2, "anthropic", (ids[2], ids[3], ids[4])),
    )
    assert await roles(session) == ["user", "assistant", "toolResult", "toolResult", "user", "assistant"]
    assert (await session.marks.exclude(ids[2])).entry_ids == (ids[1], ids[2])
    assert [entry.id for entry in await session.turns()] == [ids[0], ids[4]]


async def test_a_content_of_gemini_may_become_several_of_ours(session: Session) -> None:
    appended = await session.append_messages(GEMINI)
    assert [(each.shape, len(each.entry_ids)) for each in appended.converted] == [
        ("gemini", count) for count in (1, 1, 3, 1, 1)
    ]
    assert await roles(session) == ["user", "assistant", "toolResult", "toolResult", "user", "assistant", "user"]
    called, first, second = (await session.get_active_path())[1:4]
    calls = called.fields["content"]
    assert isinstance(calls, list)
    assert calls[1:] == [
        {
            "type": "toolCall", "id": "call:read:0", "name": "read", "arguments": {"path": "a"},
            "thoughtSignature": "c2ln",
        },
        {"type": "toolCall", "id": "call:read:1", "name": "read", "arguments": {}},
    ]  # fmt: skip
    assert (first.fields["toolCallId"], first.fields["isError"]) == ("call:read:0", True)
    assert (second.fields["toolCallId"], second.fields["content"]) == ("call:read:1", '{"lines": [1, 2.0]}')
    assert (await session.marks.exclude(first.id)).entry_ids == (called.id, first.id)


async def test_what_gemini_reports_to_have_used_is_counted(session: Session) -> None:
    usage: JsonObject = {"promptTokenCount": 10, "candidatesTokenCount": 2, "thoughtsTokenCount": 3}
    content: JsonObject = {"role": "model", "parts": [{"text": "done"}]}
    await session.append_message({**content, "usage": usage, "model": "large-1"})
    (item,) = await session.build_context_entries()
    assert (item.entry.usage.input, item.entry.usage.output) == (10, 5)
    assert (item.data["provider"], item.data["model"]) == ("google", "large-1")
    assert gemini_list(said_in([item]), Leftovers()).messages[-1] == content


async def test_a_response_that_comes_alone_answers_its_call(store: Store, session: Session) -> None:
    for content in GEMINI:
        await session.append_message(content)
    assert (await store.verify()).problems == []
    assert gemini_list(said_in(await session.build_context_entries()), left := Leftovers()).messages == GEMINI
    assert left.notes() == ()


async def test_an_item_of_responses_becomes_a_message(session: Session) -> None:
    appended = await session.append_messages(RESPONSES)
    assert [each.index for each in appended.converted] == [0, 1, 2, 3, 4, 5, 6]
    assert await roles(session) == ["user", *["assistant"] * 3, *["toolResult"] * 2, "assistant", "user"]
    assert (await session.marks.exclude(appended.entry_ids[2])).entry_ids == (
        appended.entry_ids[2],
        appended.entry_ids[4],
    )


@pytest.mark.parametrize(
    ("messages", "shape"), [(CHAT, "openai-chat"), (ANTHROPIC, "anthropic"), (RESPONSES, "openai-responses")]
)
async def test_hand_made_messages_come_out_as_they_went_in(
    session: Session, messages: list[JsonObject], shape: str
) -> None:
    before = json.dumps(messages)
    await session.append_messages(messages)
    assert json.dumps(messages) == before
    assert same(await exported(session, shape), messages)


async def test_marks_for_the_cache_come_out_of_a_session_as_they_went_in(session: Session) -> None:
    marked: list[JsonObject] = [{**message} for message in ANTHROPIC]
    content = marked[0]["content"]
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    marked[0]["content"] = [*blocks[:-1], {**cast("JsonObject", blocks[-1]), "cache_control": {"type": "ephemeral"}}]
    await session.append_messages(marked)
    assert same(await exported(session, "anthropic"), marked)


async def test_what_a_message_of_results_alone_says_of_itself_is_kept(session: Session) -> None:
    call: JsonObject = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    result: JsonObject = {"type": "tool_result", "tool_use_id": "t", "content": "done"}
    messages: list[JsonObject] = [
        {"role": "assistant", "content": [call, {**call, "id": "u"}]},
        {"role": "user", "content": [result, {**result, "tool_use_id": "u"}], "name": "runner"},
    ]
    appended = await session.append_messages(messages)
    extras = [await session.get_entry(entry_id) for entry_id in appended.entry_ids]
    assert [entry.extra_fields for entry in extras if entry is not None] == [{}, {"message": {"name": "runner"}}, {}]


async def test_a_retried_message_gives_the_same_result(store: Store, session: Session) -> None:
    first = await session.append_messages(ANTHROPIC, idempotency_key="k")
    again = await session.append_messages(ANTHROPIC, idempotency_key="k")
    assert again.replayed
    assert (again.entry_ids, again.converted) == (first.entry_ids, first.converted)
    other = existing(await store.get_session(session.id))
    await raises(flue_py.IdempotencyConflict, other.append_messages(ANTHROPIC[:-1], idempotency_key="k"))


async def test_messages_of_ours_are_taken_as_they_are(session: Session) -> None:
    messages: list[JsonObject] = [
        {"role": "user", "content": "q", "type": "human", "timestamp": 5},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "", "thinkingSignature": "s", "signature": "x"},
                {"type": "toolCall", "id": "c", "name": "f", "arguments": {}},
                {"type": "image", "data": "QUJD", "mimeType": "image/png"},
                {"type": "tool_use", "id": 1},
            ],
            "tool_calls": [],
        },
        {"role": "toolResult", "toolCallId": "c", "content": [{"type": "document", "source": {}}]},
        {"role": "bashExecution", "command": "ls", "output": "", "content": None},
        {"role": "user", "content": [{"type": "text", "text": "t", "cache_control": {"type": "ephemeral"}}]},
    ]
    appended = await session.append_messages(messages)
    assert appended.converted == ()
    path = await session.get_active_path()
    assert [entry.fields for entry in path] == messages
    assert all(entry.extra is None for entry in path)


@inputs(
    ("message", "path"),
    [
        ({"role": "tool", "content": "x"}, "tool_call_id: is missing"),
        ({"role": "tool", "tool_call_id": "c"}, "content: should be"),
        ({"role": "function", "name": "f", "content": "x"}, "role: calls without an id"),
        ({"role": "assistant", "content": None, "function_call": {"name": "f"}}, "function_call: calls without an id"),
        ({"role": "assistant", "tool_calls": {}}, "tool_calls: should be a list"),
        ({"role": "assistant", "tool_calls": [CALL, {**CALL, "id": 5}]}, r"tool_calls\[1\].id: should be a string"),
        ({"role": "assistant", "tool_calls": [{**CALL, "function": {}}]}, r"tool_calls\[0\].function.name: is missing"),
        ({"role": "assistant", "tool_calls": [{"id": "c", "type": "mcp"}]}, r"tool_calls\[0\].type: 'mcp'"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {}}]},
            r"content\[0\].image_url.url: is missing",
        ),
        ({"role": "assistant", "content": [{"type": "tool_use", "name": "f"}]}, r"content\[0\].id: is missing"),
        ({"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f"}]}, r"content\[0\].input"),
        ({"role": "user", "content": [{"type": "tool_use", "id": "c", "name": "f"}]}, r"content\[0\].type: a tool_use"),
        ({"role": "assistant", "content": [{"type": "tool_result"}]}, r"content\[0\].type: a tool_result stands"),
        ({"role": "user", "content": [{"type": "tool_result"}]}, r"content\[0\].tool_use_id: is missing"),
        ({"role": "user", "content": [{"type": "image", "source": "x"}]}, r"content\[0\].source: should be"),
        ({"type": "function_call", "call_id": "c", "name": "f"}, "arguments: is missing"),
        ({"type": "function_call_output", "call_id": "c"}, "output: should be"),
        ({"type": "banana"}, "type: 'banana'"),
        ({"type": "message", "content": "x"}, "role: is missing"),
        (
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}, {"type": "input_text"}]},
            r"content\[1\]: a part of openai-responses",
        ),
        ({"role": "assistant", "content": [{"type": "tool_use"}], "tool_calls": [CALL]}, "content: holds parts"),
        ({"contents": [{"parts": []}]}, "contents: is a whole request to Gemini"),
        ({"role": "model", "parts": [{"text": 5}]}, r"parts\[0\].text: should be a string"),
        ({"role": "model", "parts": ["x"]}, r"parts\[0\]: should be an object"),
        (
            {"role": "model", "parts": [{"text": "x", "functionCall": {"name": "f"}}]},
            r"parts\[0\]: has text and function",
        ),
        ({"role": "model", "parts": [{"functionCall": {}}]}, r"parts\[0\].functionCall.name: should be"),
        (
            {"role": "model", "parts": [{"function_call": {"name": "f", "id": 5}}]},
            r"parts\[0\].functionCall.id: should",
        ),
        ({"role": "model", "parts": [{"functionResponse": {"name": "f"}}]}, r"parts\[0\].functionResponse: stands in"),
        ({"role": "user", "parts": [{"functionCall": {"name": "f"}}]}, r"parts\[0\].functionCall: stands in"),
        ({"role": "user", "parts": [{"inlineData": "x"}, {"text": ""}]}, r"parts\[0\].inlineData: should be an object"),
        ({"role": "user"}, "content: is missing"),
        ({"role": "user", "content": None}, "content: is missing"),
        ({"role": "system"}, "content: is missing"),
        ({"role": "toolResult", "content": "x"}, "toolCallId: is missing"),
        ({"role": "toolResult", "toolCallId": None, "content": "x"}, "toolCallId: is missing"),
        ({"role": "user", "content": [{"type": "text"}]}, r"content\[0\].text: is missing"),
        (ToolResultMessage(content="x"), "toolCallId: is missing"),
    ],
)
async def test_what_cannot_be_converted_or_lacks_a_field_is_refused_with_its_path(
    session: Session, message: Any, path: str
) -> None:
    await raises(InvalidEntry, session.append_message(message), match=rf"^message\.{path}")
    with pytest.raises(InvalidEntry, match=rf"^messages\[1\]\.{path}"):
        await session.append_messages([{"role": "user", "content": "q"}, message])
    assert session.leaf_id is None


async def test_a_role_that_is_a_slip_is_refused_with_the_one_that_is_meant(session: Session) -> None:
    slips = {"assistent": "assistant", "Assistant": "assistant", "usr": "user", "sytem": "system", "tools": "tool"}
    slips |= {"tool_result": "toolResult", "toolresult": "toolResult", "develper": "developer"}
    wrong = []
    for role, meant in slips.items():
        try:
            await session.append_message({"role": role, "content": "x"})
        except InvalidEntry as error:
            wrong += [] if f"'{role}' is no role; did you mean '{meant}'?" in str(error) else [str(error)]
        else:
            wrong.append(role)
    assert not wrong
    assert session.leaf_id is None
    for role in ("reviewer", "memory", "custom", "customer", "bashExecution", "critic"):
        await session.append_message({"role": role, "content": "x"})


@inputs("kind", ["message", "compaction", "branch_summary", "exclusion"])
async def test_a_kind_with_a_method_of_its_own_is_no_custom_kind(session: Session, kind: str) -> None:
    await raises(InvalidEntry, session.append_custom(kind, {}), match=f"kind: '{kind}' has")
    assert session.leaf_id is None


async def test_an_entry_that_is_no_message_says_so(session: Session) -> None:
    await session.append_custom("note", {})
    (entry,) = await session.get_active_path()
    with pytest.raises(flue_py.InvalidArgument, match="of kind note, not a message"):
        _ = entry.message


@examples(15)
@given(messages=chat_lists())
def test_any_chat_list_comes_out_as_it_went_in(messages: list[dict[str, Any]]) -> None:
    # Roles and texts alone are ours: only where something is of this form is the rest taken for it, too.
    messages += [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "refusal": None}]
    assert same(appended_and_exported(messages, "openai-chat"), messages)


@examples(15)
@given(messages=anthropic_lists())
def test_any_anthropic_list_comes_out_as_it_went_in(messages: list[dict[str, Any]]) -> None:
    assert same(appended_and_exported(messages, "anthropic"), messages)


@examples(15)
@given(items=responses_lists())
def test_any_list_of_responses_comes_out_as_it_went_in(items: list[dict[str, Any]]) -> None:
    # By itself a message without a type is one of ours.
    items = [{"type": "message", **item} if "role" in item else item for item in items]
    assert same(appended_and_exported(items, "openai-responses"), items)


def appended_and_exported(messages: list[dict[str, Any]], shape: str) -> Any:
    with flue_py.sync.open(":memory:", prices=False) as store:
        session = store.create_session()
        session.append_messages(messages)
        return json.loads(flue_py.sync.export_session(session, shape).text)


TOOLS: list[JsonObject] = [
    {"type": "message", "role": "user", "content": "q"},
    {"type": "local_shell_call", "id": "ls", "call_id": "c1", "action": {"type": "exec", "command": ["ls"]}},
    {"type": "local_shell_call_output", "id": "c1", "output": "a.py"},
    {"type": "shell_call", "call_id": "c2", "action": {"commands": ["ls"]}, "status": "completed"},
    {"type": "shell_call_output", "call_id": "c2", "output": [{"stdout": "x", "stderr": "", "outcome": {}}]},
    {"type": "computer_call", "call_id": "c3", "id": "cc", "action": {"type": "screenshot"}},
    {
        "type": "computer_call_output", "call_id": "c3",
        "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,QUJD"},
    },
    {"type": "apply_patch_call", "call_id": "c4", "operation": {"type": "delete_file", "path": "a"}},
    {"type": "apply_patch_call_output", "call_id": "c4", "status": "completed"},
    {"type": "tool_search_call", "call_id": "c5", "execution": "client", "arguments": {"goal": "g"}},
    {"type": "tool_search_output", "call_id": "c5", "execution": "client", "status": "completed", "tools": []},
]  # fmt: skip


async def test_tools_that_the_api_defines_are_calls_with_results_too(session: Session) -> None:
    appended = await session.append_messages(TOOLS)
    assert await roles(session) == ["user", *["assistant", "toolResult"] * 5]
    assert len(await session.turns()) == 1
    names = [entry.fields.get("toolName") for entry in await session.get_active_path() if entry.role == "toolResult"]
    assert names == ["local_shell", "shell", "computer", "apply_patch", "tool_search"]
    assert (await flue_py.export_session(session, "openai-responses")).notes == ()
    assert same(await exported(session, "openai-responses"), TOOLS)
    assert (await session.marks.exclude(appended.entry_ids[4])).entry_ids == appended.entry_ids[3:5]


ODD = st.sampled_from([None, True, 5, "", "x", [], ["x"], {}, [{}], {"type": []}, [{"type": {}}], [[]]])


@given(data=st.data(), message=st.sampled_from([*CHAT, *ANTHROPIC, *RESPONSES, *TOOLS, *GEMINI]))
def test_whatever_stands_in_a_field_is_taken_or_refused_by_an_error_of_ours(
    data: st.DataObject, message: JsonObject
) -> None:
    message = json.loads(json.dumps(message))
    places: list[tuple[Any, Any]] = []
    waiting: list[Any] = [message]
    while waiting:
        held = waiting.pop()
        for key in held if isinstance(held, dict) else range(len(held)):
            places.append((held, key))
            if isinstance(held[key], (dict, list)):
                waiting.append(held[key])
    for held, key in data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=2)):
        held[key] = data.draw(ODD)
    try:
        entries = incoming_messages([message], None).entries
    except InvalidEntry:
        return
    assert entries
    assert all(entry.kind == "message" for entry in entries)


@inputs(
    ("message", "path", "form"),
    [
        (CHAT[2], "message.tool_calls", "openai-chat"),
        (CHAT[3], "message.role", "openai-chat"),
        (CHAT[1], "message.content[1].type", "openai-chat"),
        (ANTHROPIC[1], "message.content[0].type", "anthropic"),
        (ANTHROPIC[2], "message.content[0].type", "anthropic"),
        ({"role": "assistant", "content": "a", "stop_reason": "end_turn"}, "message.stop_reason", "anthropic"),
        (GEMINI[2], "message.parts", "gemini"),
        (RESPONSES[2], "message.type", "openai-responses"),
        (RESPONSES[6], "message.content[0].type", "openai-responses"),
    ],
)
def test_the_builder_of_one_entry_refuses_a_message_of_a_provider(message: JsonObject, path: str, form: str) -> None:
    with pytest.raises(InvalidEntry) as refused:
        NewEntry.message(message)
    assert str(refused.value).startswith(f"{path}: is of the form {form}, ")
    # An entry that is taken from a file is kept as it is there.
    if "role" in message and "content" in message:
        assert json.loads(entry_of_message(message).payload) == message


@inputs("message", [CHAT[0], ANTHROPIC[0], ANTHROPIC[3], RESPONSES[7]])
def test_the_builder_of_one_entry_takes_what_is_the_same_in_every_form(message: JsonObject) -> None:
    assert json.loads(NewEntry.message(message).payload) == message
