"""What a provider would refuse of a history is changed in the request, and what it takes stays as it is."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from flue_py.providers.base import LIMITS, limits_of
from flue_py.providers.lists import Said
from flue_py.providers.request import CONTINUE, WireRequest, convert, wire_request
from flue_py.providers.rules import broken_rules

USER: dict[str, Any] = {"role": "user", "content": "q"}
SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
TEXT = {"type": "text", "text": "a"}


def request(target: str, *messages: dict[str, Any], **given: Any) -> WireRequest:
    return wire_request(target, [Said(each, entry_id=f"e{number}") for number, each in enumerate(messages)], **given)


def answer(*parts: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "provider": "anthropic", "content": [*parts], **fields}


def call(arguments: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": "c1", "name": "read", "arguments": arguments, **fields}


def result(content: Any = "r") -> dict[str, Any]:
    return {"role": "toolResult", "toolCallId": "c1", "toolName": "read", "content": content}


def sent_arguments(found: WireRequest) -> Any:
    for message in found.messages:
        held: Any = message
        if held.get("type") in ("function_call", "custom_tool_call"):
            return held.get("arguments", held.get("input"))
        for each in held.get("tool_calls") or ():
            return each[each["type"]].get("arguments", each[each["type"]].get("input"))
        for part in (*(held.get("parts") or ()), *(held["content"] if isinstance(held.get("content"), list) else ())):
            if "functionCall" in part or part.get("type") == "tool_use":
                return part["functionCall"]["args"] if "functionCall" in part else part["input"]
    raise AssertionError("no call")


def test_arguments_are_an_object_or_the_text_of_one() -> None:
    wrong = []
    for given, as_text, as_object in (
        ({"a": 1}, '{"a":1}', {"a": 1}), (None, "{}", {}), ('{"a": 1}', '{"a": 1}', {"a": 1}),
        ('{"a": "b', '{"arguments":"{\\"a\\": \\"b"}', {"arguments": '{"a": "b'}),
        ('{"a": NaN}', '{"arguments":"{\\"a\\": NaN}"}', {"arguments": '{"a": NaN}'}),
        ("", '{"arguments":""}', {"arguments": ""}), ("[1]", '{"arguments":"[1]"}', {"arguments": "[1]"}),
        ([1], '{"arguments":[1]}', {"arguments": [1]}), (7, '{"arguments":7}', {"arguments": 7}),
    ):  # fmt: skip
        for target in LIMITS:
            found = request(target, USER, answer(call(given)), result())
            right = as_text if target.startswith("openai") else as_object
            is_repaired = any("not an object" in each.what for each in found.repairs)
            if sent_arguments(found) != right or found.broken or is_repaired == (as_object in ({"a": 1}, {})):
                wrong.append((target, given, sent_arguments(found), found.broken))
    assert wrong == []


def test_the_text_for_a_tool_of_a_form_of_its_own_stays_text() -> None:
    said = (USER, answer(call("*** Begin", customTool=True)), {**result(), "customTool": True})
    assert {target: sent_arguments(request(target, *said)) for target in LIMITS} == {
        "anthropic": {"arguments": "*** Begin"}, "openai-chat": "*** Begin", "openai-responses": "*** Begin",
        "gemini": {"arguments": "*** Begin"},
    }  # fmt: skip


def test_a_tool_that_anthropic_runs_has_its_call_and_its_result() -> None:
    called = {**call({}), "caller": {"type": "code_execution_20260120", "tool_id": "s1"}}
    mcp = {**SEARCH, "type": "mcp_tool_use"}
    done, advice = {**FOUND, "type": "mcp_tool_result"}, {**FOUND, "type": "advisor_tool_result"}
    wrong = []
    for name, said, kinds in (
        ("a call that was cut off", [USER, answer(TEXT, SEARCH), USER], ["text"]),
        ("a call alone", [USER, answer(SEARCH), USER], []),
        ("of an MCP server", [USER, answer(TEXT, mcp), USER], ["text"]),
        ("of one, with its result", [USER, answer(mcp, done), USER], ["mcp_tool_use", "mcp_tool_result"]),
        ("beside a call of ours", [USER, answer(SEARCH, call({})), result()], ["tool_use"]),
        ("called by it", [USER, answer(SEARCH, called), result()], ["server_tool_use", "tool_use"]),
        (
            "called by it, which is answered",
            [USER, answer(SEARCH, called), result(), answer(FOUND), USER],
            ["server_tool_use", "tool_use", "web_search_tool_result"],
        ),
        ("in two messages", [USER, answer(SEARCH), answer(FOUND), USER], ["server_tool_use", "web_search_tool_result"]),
        ("an advisor", [USER, answer(SEARCH, advice), USER], ["server_tool_use", "advisor_tool_result"]),
        ("a result alone", [USER, answer(FOUND, TEXT), USER], ["text"]),
        ("a pause", [USER, answer(TEXT, SEARCH)], ["text", "server_tool_use"]),
    ):  # fmt: skip
        found = request("anthropic", *said, model="claude-opus-5")
        sent = [block["type"] for each in found.messages if each["role"] == "assistant" for block in each["content"]]  # type: ignore[index,call-overload,union-attr]
        was = sum(len(each["content"]) for each in said if each["role"] == "assistant")
        is_repaired = any("without its result" in each.what for each in found.repairs)
        if sent != kinds or found.broken or is_repaired == (len(sent) == was):
            wrong.append((name, sent, found.repairs, found.broken))
    assert wrong == []


def test_an_answer_stands_last_for_models_that_go_on_with_one() -> None:
    wrong = []
    for model, takes in {
        None: True, "claude-3-5-sonnet-20241022": True, "claude-opus-4-20250514": True, "kimi-k3": True,
        "claude-sonnet-4@20250514": True, "anthropic/claude-opus-4.5": True, "claude-haiku-4-5-20251001": True,
        "claude-opus-4-6": False, "us.anthropic.claude-sonnet-4-6-v1:0": False, "anthropic/claude-opus-4.6": False,
        "claude-opus-5": False, "claude-fable-5-1": False, "claude-opus-latest": False,
    }.items():  # fmt: skip
        for found in (
            request("anthropic", USER, answer({"type": "text", "text": "a "}), model=model),
            request("anthropic", USER, answer({"type": "text", "text": "a "}, **({"model": model} if model else {}))),
        ):
            last = found.messages[-1]
            right = {"role": "assistant", "content": [TEXT]} if takes else {"role": "user", "content": CONTINUE}
            if last != right or found.broken or len(found.repairs) != 1:
                wrong.append((model, found.messages))
        limits = limits_of("anthropic", model)
        messages = [USER, {"role": "assistant", "content": "a"}]
        if bool(broken_rules("anthropic", messages, limits=limits)) == takes:
            wrong.append((model, messages))
    assert wrong == []


def test_a_system_message_in_the_middle_stays_where_the_model_takes_it() -> None:
    system = {"role": "system", "content": "s"}
    front = "system messages from within the conversation stand at its beginning"
    moved = "a system message stands behind the message of the user that follows it, as the API asks"
    begun = "a message of the user stands before a system message, which the API asks for"
    wrong = []
    for said, model, roles, repairs in (
        ([USER, system], None, "us", []),
        ([system, USER, system, answer(TEXT), USER], "claude-opus-4-8", "usau", []),
        ([USER, system, answer(TEXT), USER], "claude-opus-4-6", "uau", [front]),
        ([USER, system, answer(TEXT), USER], "kimi-k3", "uau", [front]),
        ([USER, answer(TEXT), system, USER], "claude-opus-5", "uaus", [moved]),
        ([USER, answer(TEXT), system, USER, answer(TEXT), USER], "claude-opus-5", "uausau", [moved]),
        ([USER, answer(TEXT), system], "claude-opus-5", "uaus", [begun]),
        ([USER, system, system, answer(TEXT), USER], "claude-opus-5", "usau", []),
        ([USER, answer(call({})), system, result()], "claude-opus-5", "uaus", None),
    ):
        found = request("anthropic", *said, model=model)
        sent = "".join(str(each["role"])[0] for each in found.messages)
        told = [each.what for each in found.repairs]
        if sent != roles or found.broken or (repairs is not None and told != repairs):
            wrong.append((sent, roles, told, found.broken))
    assert wrong == []


def test_what_the_newest_api_takes_comes_back() -> None:
    tool = {"type": "tool_reference", "tool_name": "read"}
    added = {"role": "user", "content": [TEXT, {"type": "tool_addition", "tool": tool}]}
    removed = {"role": "user", "content": [TEXT, {"type": "tool_removal", "tool": tool}]}
    hop = {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}
    said = [added, answer(TEXT, hop, TEXT), removed]
    found = request("anthropic", *said, model="claude-opus-5")
    assert [each["content"] for each in found.messages] == [each["content"] for each in said]
    assert found.repairs == found.broken == ()


def test_no_id_binds_an_item_of_responses_to_reasoning_that_is_not_sent() -> None:
    user: dict[str, Any] = {"type": "message", "role": "user", "content": "q"}
    text = {"type": "output_text", "text": "a", "annotations": []}
    said: dict[str, Any] = {
        "type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text],
    }  # fmt: skip
    thought: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "g"}
    called: dict[str, Any] = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"}
    custom: dict[str, Any] = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c", "name": "f", "input": "x"}
    output: dict[str, Any] = {"type": "function_call_output", "call_id": "c", "output": "r"}
    written: dict[str, Any] = {"type": "custom_tool_call_output", "call_id": "c", "output": "r"}
    compacted: dict[str, Any] = {"type": "compaction", "id": "cmp_1", "encrypted_content": "g"}
    wrong = []
    for items, ids in (
        ([user, said, user], []),
        ([user, called, output, said, user], []),
        ([user, custom, written], []),
        ([user, thought, said, user], ["rs_1", "msg_1"]),
        ([user, thought, called, output, said, user], ["rs_1", "fc_1", "msg_1"]),
        ([user, thought, said, user, said, user], ["rs_1", "msg_1"]),
        ([user, said, compacted, user], ["cmp_1"]),
        ([user, thought, compacted, said, user], ["rs_1", "cmp_1"]),
    ):
        names: dict[str, str] = {}
        history = [Said(*pair) for each in items for pair in convert(each, "openai-responses", names)]
        found = wire_request("openai-responses", history, model="gpt-5.4")
        bare = [{name: value for name, value in each.items() if name != "id"} for each in items]
        sent = [{name: value for name, value in each.items() if name != "id"} for each in found.messages]
        if [each["id"] for each in found.messages if "id" in each] != ids or sent != bare or found.broken:
            wrong.append((items, found.messages))
    assert wrong == []


def test_pictures_and_documents_go_out_as_what_their_bytes_are() -> None:
    heads = {
        "image/png": b"\x89PNG\r\n\x1a\n\0\0", "image/jpeg": b"\xff\xd8\xff\xe0\0\x10JFIF",
        "image/gif": b"GIF89a\1\0\1\0",
        "image/webp": b"RIFF\x1a\0\0\0WEBPVP8L", "image/bmp": b"BM:\0\0\0\0\0\0\0", "image/tiff": b"II*\0\1\0",
        "image/heic": b"\0\0\0\x18ftypheic\0\0", "image/svg+xml": b"<svg xmlns='x'>", "application/pdf": b"%PDF-1.7\n",
        None: b"<html>not found", "text": b"",
    }  # fmt: skip
    wrong = []
    for target, limits in LIMITS.items():
        for real, head in heads.items():
            data = b64encode(head).decode()
            for declared in (real, "image/png", "IMAGE/JPEG", "application/octet-stream"):
                image = {"type": "image", "data": data, "mimeType": declared}
                inline = {"type": "image", "url": f"data:{declared};base64,{data}"}
                for part in (image, inline) if declared else (image,):
                    for said in (
                        [{"role": "user", "content": [TEXT, part]}],
                        [USER, answer(call({})), result([TEXT, part])],
                    ):
                        found = request(target, *said)
                        sent = json.dumps(found.messages)
                        types = set(re.findall(r"image/[a-z+]+(?=[\";])|application/pdf", sent))
                        right = {real} if real in limits.image_types else set()
                        is_there = bool(data) and data in sent
                        if found.broken or is_there != bool(right) or (is_there and types != right):
                            wrong.append((target, real, declared, types, found.broken))
            file = {"type": "file", "data": data, "mimeType": "application/pdf", "filename": "a"}
            found = request(target, {"role": "user", "content": [TEXT, file]})
            is_sent = bool(data) and data in json.dumps(found.messages)
            is_pdf = "application/pdf" in json.dumps(found.messages)
            if found.broken or (is_sent and is_pdf) != (real == "application/pdf"):
                wrong.append((target, "file", real, found.messages))
            file = {"type": "file", "data": data, "mimeType": "image/png", "filename": "a"}
            found = request(target, {"role": "user", "content": [TEXT, file]})
            is_sent = bool(data) and data in json.dumps(found.messages)
            if found.broken or is_sent != (real in {*limits.image_types, "application/pdf"}):
                wrong.append((target, "picture", real, found.messages, found.broken))
            file = {"type": "file", "data": data, "mimeType": "application/octet-stream", "filename": "a"}
            found = request(target, {"role": "user", "content": [TEXT, file]})
            if real in ("application/pdf", "image/png") and (found.broken or real not in json.dumps(found.messages)):
                wrong.append((target, "octets", real, found.messages))
    assert wrong == []
