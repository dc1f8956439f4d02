"""Items of a Codex rollout are exported as Responses items: each whole, or left out with the reason."""

from __future__ import annotations

import json
from typing import Any

from flue_py.core.kinds import COMPACTION
from flue_py.formats.codex import CodexReader
from flue_py.formats.kit import Exported, ParsedSession
from flue_py.formats.lists import export_anthropic, export_openai_chat, export_openai_responses
from tests.formats.pi_files import HEADER, parse_pi
from tests.formats.transcripts import CODEX_MADE, CODEX_REAL, as_lines, lines_of
from tests.formats.trees import context_of, items_of
from tests.tables import inputs

Item = dict[str, Any]
NAMESPACE = {"type": "namespace", "name": "mcp__w", "tools": [{"type": "function", "name": "f", "parameters": {}}]}
USER: Item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
ENCRYPTED = "gAAAAABpencrypted="
ITEMS: list[Item] = [
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
    {**USER, "id": "msg_1"},
    {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}],
    },
    {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "https://x.y/z.png"}]},
    {"type": "reasoning", "summary": [], "encrypted_content": ENCRYPTED},
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "**A**"}],
        "encrypted_content": "b",
    },
    {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "**A**"}, {"type": "summary_text", "text": "**B**"}],
        "content": [{"type": "reasoning_text", "text": "raw"}],
        "encrypted_content": "c",
    },
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Looking."}],
        "phase": "commentary",
        "end_turn": False,
    },
    {"type": "function_call", "name": "exec_command", "arguments": '{"cmd":"ls"}', "call_id": "c1"},
    {"type": "function_call_output", "call_id": "c1", "output": "a.txt"},
    {"type": "function_call", "id": "fc_2", "namespace": "mcp__w", "name": "f", "arguments": "{}", "call_id": "c2"},
    {
        "type": "function_call_output",
        "call_id": "c2",
        "output": [
            {"type": "input_text", "text": "seen"},
            {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
        ],
    },
    {"type": "custom_tool_call", "status": "completed", "call_id": "c3", "name": "apply_patch", "input": "*** Begin"},
    {"type": "custom_tool_call_output", "call_id": "c3", "name": "apply_patch", "output": "Done!"},
    {
        "type": "local_shell_call",
        "call_id": "c4",
        "status": "completed",
        "action": {"type": "exec", "command": ["ls"], "env": None},
    },
    {"type": "function_call_output", "call_id": "c4", "output": "a.txt"},
    {
        "type": "tool_search_call",
        "call_id": "c5",
        "status": "completed",
        "execution": "client",
        "arguments": {"query": "weather"},
    },
    {"type": "tool_search_output", "call_id": "c5", "status": "completed", "execution": "client", "tools": [NAMESPACE]},
    {"type": "tool_search_call", "id": "tsc_6", "execution": "server", "arguments": {"goal": "g"}},
    {"type": "tool_search_output", "id": "tso_6", "execution": "server", "tools": [NAMESPACE]},
    {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "news"}},
    {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AA=="},
    {"type": "function_call", "name": "secret", "arguments": "{}", "call_id": "c7"},
    {
        "type": "function_call_output",
        "call_id": "c7",
        "output": [{"type": "encrypted_content", "encrypted_content": "d"}, {"type": "input_text", "text": "seen"}],
    },
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Done."}],
        "phase": "final_answer",
    },
]


def rollout(items: list[Item], provider: str = "openai") -> list[bytes]:
    """Return the lines of a rollout with these items."""
    meta = {"id": "s1", "cwd": "/w", "model_provider": provider}
    rows: list[Any] = [{"timestamp": "2026-06-05T04:58:20.653Z", "type": "session_meta", "payload": meta}]
    rows += [{"timestamp": "2026-06-05T04:58:21.000Z", "type": "response_item", "payload": item} for item in items]
    return as_lines(rows)


def parsed(lines: list[bytes]) -> ParsedSession:
    """Return the session of a rollout."""
    reader = CodexReader("rollout.jsonl")
    for number, line in enumerate(lines, 1):
        reader.feed(number, line)
    (part,) = reader.finish(take_all=True)
    return ParsedSession(part.format, part.version, part.session, part.entries, part.leaves[-1], {}, reader.report())


def exported(items: list[Item], provider: str = "openai") -> Exported:
    """Return the items that a rollout of items goes out as."""
    return export_openai_responses(items_of(parsed(rollout(items, provider))))


def test_every_item_goes_out_whole() -> None:
    out = exported(ITEMS)
    assert out.value == ITEMS
    assert out.notes == ()


@inputs("name", [CODEX_REAL, CODEX_MADE])
def test_the_items_of_the_real_rollouts_go_out_whole(name: str) -> None:
    lines = lines_of(name)
    rows = [json.loads(line) for line in lines if line.strip()]
    known = {"message", "reasoning", "function_call", "function_call_output"}
    items = [row["payload"] for row in rows if row["type"] == "response_item" and row["payload"]["type"] in known]
    out = export_openai_responses(items_of(parsed(lines)))
    assert out.value == items
    assert out.notes == ()


def test_a_search_for_tools_and_what_it_found_stay_together() -> None:
    session = parsed(rollout(ITEMS))
    said = context_of(session)
    (call,) = [part for message in said for part in message["content"] if part.get("id") == "c5"]
    assert (call["type"], call["name"], call["arguments"]) == ("toolCall", "tool_search", {"query": "weather"})
    (result,) = [message for message in said if message.get("toolCallId") == "c5"]
    assert (result["role"], result["toolName"], result["content"]) == ("toolResult", "tool_search", [NAMESPACE])
    chat = export_openai_chat(items_of(session))
    assert "a tool result whose call is not in the context" not in str(chat.notes)


def test_a_call_that_has_no_output_gets_one_of_the_kind_that_the_api_asks_for() -> None:
    calls = [item for item in ITEMS if item["type"] in ("custom_tool_call", "local_shell_call", "tool_search_call")][:3]
    value: Any = exported([USER, *calls]).value
    assert [(item["type"], item["call_id"]) for item in value[4:]] == [
        ("custom_tool_call_output", "c3"),
        ("function_call_output", "c4"),
        ("tool_search_output", "c5"),
    ]


def test_what_cannot_be_taken_back_is_told_with_the_reason() -> None:
    bare = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    out = exported([USER, bare, {"type": "function_call_output", "call_id": "nobody", "output": "x"}])
    assert out.value == [USER]
    assert [str(note) for note in out.notes] == [
        "left out: a tool result whose call is not in the context",
        "left out: reasoning without its encrypted content, without which OpenAI does not take it back",
    ]
    out = exported([USER, *ITEMS[4:6], ITEMS[20]], "azure")
    assert [str(note) for note in out.notes] == [
        "left out: reasoning that OpenAI did not sign (2 times)",
        "left out: an item 'web_search_call' of a provider other than OpenAI",
    ]
    out = exported([USER, ITEMS[8], {"type": "mcp_tool_call_output", "call_id": "c1", "output": {"odd": [1]}}])
    assert out.value == [USER, ITEMS[8], {"type": "function_call_output", "call_id": "c1", "output": '{"odd":[1]}'}]
    assert [str(note) for note in out.notes] == [
        "an item 'mcp_tool_call_output', which the API is not sent, goes out as the output of a function",
        "an output that is neither text nor parts goes out as its JSON text",
    ]


def test_what_the_provider_kept_of_the_conversation_before_a_compaction_goes_out() -> None:
    kept = {"type": "compaction", "encrypted_content": "e"}
    row = {"timestamp": "2026-06-05T04:58:22.000Z", "type": "compacted", "payload": {"message": ""}}
    row["payload"]["replacement_history"] = [USER, kept]  # type: ignore[index]
    session = parsed([*rollout([USER, ITEMS[-1]]), *as_lines([row])])
    assert session.entries[-1].kind == COMPACTION
    value: Any = export_openai_responses(items_of(session)).value
    assert value[1:] == [USER, kept]
    assert "a part 'compaction' of an answer" not in str(export_anthropic(items_of(session)).value)


def test_calls_and_reasoning_that_pi_had_with_openai_go_out_under_the_ids_that_openai_gave() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"}
    answer = {
        "role": "assistant",
        "api": "openai-codex-responses",
        "provider": "openai-codex",
        "content": [
            {"type": "thinking", "thinking": "", "thinkingSignature": json.dumps(reasoning)},
            {"type": "toolCall", "id": "call_1|fc_1", "name": "read", "arguments": {}},
        ],
    }
    result = {"role": "toolResult", "toolCallId": "call_1|fc_1", "content": [{"type": "text", "text": "x"}]}
    row = {"type": "message", "timestamp": "2026-01-05T10:00:01.000Z"}
    rows = [
        HEADER,
        {**row, "id": "a", "parentId": None, "message": {**answer, "timestamp": 1}},
        {**row, "id": "b", "parentId": "a", "message": {**result, "timestamp": 2}},
    ]
    out = export_openai_responses(items_of(parse_pi(as_lines(rows))))
    assert out.value == [
        reasoning,
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "x"},
    ]
    assert out.notes == ()


def test_fields_of_a_strangers_message_say_nothing_of_its_item() -> None:
    row = {"type": "message", "timestamp": "2026-01-05T10:00:01.000Z", "id": "a", "parentId": None}
    message = {
        "role": "user",
        "content": "hi",
        "item": {"type": "reasoning", "role": "x", "content": 1},
        "timestamp": 1,
    }
    out = export_openai_responses(items_of(parse_pi(as_lines([HEADER, {**row, "message": message}]))))
    assert out.value == [{"type": "message", "role": "user", "content": "hi"}]
