"""The files by which programs go on with a session, whichever program it began in.

Each holds the context: the messages that a model is sent. They say nothing of usage: the calls were paid for where
they were made, and a bill over both files has each of them once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import count
from uuid import uuid5

from flue_py.core.entries import from_microseconds
from flue_py.core.json import JsonObject, JsonValue, without
from flue_py.core.kinds import Shape
from flue_py.formats.kit import FILE, Continuation, Exported, SessionTree, id_elsewhere, iso_time, json_line
from flue_py.providers import lists
from flue_py.providers.base import Leftovers, blocks_of, fields_of, limits_of, listed, objects_in, only
from flue_py.providers.openai_chat import arguments_from_text
from flue_py.providers.request import with_fitting_calls

_STEP_US = 1_000
"""Rows that follow each other are this far apart in time: programs sort by it."""
_OWN_PROMPT = "the system prompt, since the program has one of its own"
_UNKNOWN_MODEL = "unknown"


def _exported(
    name: str,
    rows: list[JsonObject],
    place: str,
    session: SessionTree,
    left: Leftovers,
    *commands: tuple[str, ...],
    beside: Mapping[str, JsonObject] | None = None,
) -> Exported:
    texts = {path: f"{json_line(value)}\n" for path, value in (beside or {}).items()}
    text = "".join(f"{json_line(row)}\n" for row in rows)
    continuation = Continuation(place, commands, session.info.cwd, texts)
    return Exported(name, text, left.notes(), is_rows=True, continuation=continuation)


def _said(target: Shape, session: SessionTree, left: Leftovers, model: str | None = None) -> Iterator[lists.Said]:
    """Yield the messages of the context, with ids and names of calls as the API takes them that the program calls."""
    limits = limits_of(target, model)
    for said in lists.said_in(session.context()):
        yield with_fitting_calls(said, limits, left, as_items=target == "openai-responses")


# Claude Code: a row for each message, a chain by `parentUuid`.


def export_claude_code(session: SessionTree) -> Exported:
    """Return a session as Claude Code resumes it. O(entries)."""
    left, own_id, folder = Leftovers(), id_elsewhere(session), session.info.cwd or "/"
    system, messages = lists.anthropic_list(_said("anthropic", session, left), left, is_sent=True)
    if system is not None:
        left.note(_OWN_PROMPT)
    models, rows = _models(session, left.places), list[JsonObject]()
    about: JsonObject = {"isSidechain": False, "userType": "external", "cwd": folder, "version": "2.1.332"}
    for number, message in enumerate(messages):
        for part, row_message in enumerate(_row_messages(message, f"{own_id}-{number}", models.get(number))):
            row: JsonObject = {"parentUuid": rows[-1]["uuid"] if rows else None, **about, "sessionId": str(own_id)}
            row |= {"type": row_message["role"], "message": row_message, "uuid": str(uuid5(own_id, f"{number}.{part}"))}
            rows.append({**row, "timestamp": iso_time(session.info.active_us + len(rows) * _STEP_US)})
    if (title := session.info.title or session.info.auto_title) is not None:
        rows.append({"type": "custom-title", "customTitle": title, "sessionId": str(own_id)})
    folder_name = re.sub(r"[^A-Za-z0-9]", "-", folder)
    place = f"~/.claude/projects/{folder_name}/{own_id}.jsonl"
    return _exported("claude-code", rows, place, session, left, ("claude", "--resume", str(own_id)))


def _row_messages(message: JsonObject, name: str, model: str | None) -> list[JsonObject]:
    """Return the messages of the rows for one: a block of an answer each, as the program writes them."""
    if message["role"] != "assistant":
        return [message]
    blocks = blocks_of(message.get("content"))
    whole: JsonObject = {"id": f"msg_{name}", "type": "message", "role": "assistant", "model": model or _UNKNOWN_MODEL}
    calls = any(block.get("type") == "tool_use" for _, block in objects_in([*blocks]))
    end: JsonObject = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    return [{**whole, "content": [block], **end} for block in blocks]


def _models(session: SessionTree, places: dict[str | None, int]) -> dict[int, str]:
    """Return the models of answers, by their places in the list."""
    models: dict[int, str] = {}
    for item in session.context():
        model = item.data.get("model")
        if item.entry.id in places and isinstance(model, str):
            models[places[item.entry.id]] = model
    return models


# Codex: a header, and a row for each item.


def export_codex(session: SessionTree) -> Exported:
    """Return a session as Codex resumes it. O(entries)."""
    left, own_id, began_us = Leftovers(), str(id_elsewhere(session)), session.info.active_us
    header: JsonObject = {"id": own_id, "timestamp": iso_time(began_us), "cwd": session.info.cwd or "/"}
    header |= {"originator": "flue-py", "cli_version": "0.171.0", "source": "cli"}
    items = lists.responses_list(_said("openai-responses", session, left), left, is_complete=True, is_sent=True)
    payloads: list[tuple[str, JsonObject]] = [("session_meta", header)]
    for item in items:
        if item.get("role") == "system":
            left.note(_OWN_PROMPT)
        else:
            payloads.append(("response_item", _item(item)))
    rows: list[JsonObject] = [
        {"timestamp": iso_time(began_us + number * _STEP_US), "type": kind, "payload": payload}
        for number, (kind, payload) in enumerate(payloads)
    ]
    if session.info.title is not None:
        left.note("the title, which the program keeps elsewhere")
    moment = from_microseconds(began_us)
    place = f"~/.codex/sessions/{moment:%Y/%m/%d}/rollout-{moment:%Y-%m-%dT%H-%M-%S}-{own_id}.jsonl"
    return _exported("codex", rows, place, session, left, ("codex", "resume", own_id))


def _item(item: JsonObject) -> JsonObject:
    """Return an item with its content as a list: Codex passes over a message whose content is a text."""
    content = item.get("content")
    if not isinstance(content, str):
        return {"type": "message", **item}
    part: JsonObject = {"type": "output_text" if item.get("role") == "assistant" else "input_text", "text": content}
    return {"type": "message", **item, "content": [part]}


# Qwen Code: a row for each content of the Gemini API, a chain by `parentUuid`.


def export_qwen_code(session: SessionTree) -> Exported:
    """Return a session as Qwen Code resumes it. O(entries)."""
    left, own_id, folder = Leftovers(), id_elsewhere(session), session.info.cwd or "/"
    # It speaks to its models in the form of OpenAI, whatever its rows look like.
    system, contents = lists.gemini_list(_said("openai-chat", session, left), left)
    if system is not None:
        left.note(_OWN_PROMPT)
    rows: list[JsonObject] = []

    def add(kind: str, fields: JsonObject) -> None:
        row: JsonObject = {"uuid": str(uuid5(own_id, str(len(rows)))), "parentUuid": rows[-1]["uuid"] if rows else None}
        row |= {"sessionId": str(own_id), "timestamp": iso_time(session.info.active_us + len(rows) * _STEP_US)}
        rows.append({**row, "type": kind, "cwd": folder, "version": "0.24.4", **fields})

    for content in contents:
        # The mark of a signature is for the API alone.
        parts = [without(part, "thoughtSignature") for _, part in objects_in(listed(content.get("parts")))]
        is_result = any("functionResponse" in part for part in parts)
        kind = "assistant" if content.get("role") == "model" else "tool_result" if is_result else "user"
        add(kind, {"message": {"role": content.get("role"), "parts": [*parts]}})
    if (title := session.info.title or session.info.auto_title) is not None:
        source = "auto" if session.info.title is None else "manual"
        add("system", {"subtype": "custom_title", "systemPayload": {"customTitle": title, "titleSource": source}})
    folder_name = re.sub(r"[^A-Za-z0-9]", "-", folder)
    place = f"~/.qwen/projects/{folder_name}/chats/{own_id}.jsonl"
    return _exported("qwen-code", rows, place, session, left, ("qwen", "--resume", str(own_id)))


# Gemini CLI: a header, and a row for each content of its API.

_IGNORED = ("/", "?", "<session_context>", "<hook_context>")
"""The beginnings of messages that the program does not send again."""


def export_gemini_cli(session: SessionTree) -> Exported:
    """Return a session as Gemini CLI begins one with it. O(entries)."""
    left, own_id, start = Leftovers(), id_elsewhere(session), session.info.active_us
    system, contents = lists.gemini_list(_said("gemini", session, left), left)
    if system is not None:
        left.note(_OWN_PROMPT)
    folder = session.info.cwd or "/"
    place: JsonObject = {"projectHash": sha256(folder.encode(errors="replace")).hexdigest(), "directories": [folder]}
    times: JsonObject = {"startTime": iso_time(start), "lastUpdated": iso_time(start + len(contents) * _STEP_US)}
    rows: list[JsonObject] = [{"sessionId": str(own_id), **place, **times, "kind": "main"}]
    for number, content in enumerate(contents):
        parts = [part for _, part in objects_in(listed(content.get("parts")))]
        text = "".join(str(part.get("text", "")) for part in parts).strip()
        is_answer = content.get("role") == "model"
        if not is_answer and text.startswith(_IGNORED):
            left.note("a message that begins like a command, which the program does not send", content)
        fields: JsonObject = {"type": "gemini" if is_answer else "user", "content": [*parts]}
        moment = iso_time(start + number * _STEP_US)
        rows.append({"id": str(uuid5(own_id, str(number))), "timestamp": moment, **fields})
    if (title := session.info.title or session.info.auto_title) is not None:
        rows.append({"$set": {"summary": title}})
    # Where the program keeps its own, it deletes files.
    path = f"~/.gemini/flue-py/{own_id}.jsonl"
    return _exported("gemini-cli", rows, path, session, left, ("gemini", "--session-file", FILE))


# OpenCode: the document that `opencode import` takes: messages with parts, a result in the part of its call.

_UNKNOWN: JsonObject = {"providerID": "unknown", "modelID": "unknown"}


def export_opencode(session: SessionTree) -> Exported:
    """Return a session as OpenCode imports it. O(entries)."""
    left, own_id, folder = Leftovers(), id_elsewhere(session), session.info.cwd or "/"
    own, start = own_id.hex[:18], session.info.active_us // 1_000
    session_id, numbers = f"ses_{own_id.hex[:26]}", count()
    messages: list[JsonValue] = []
    spoken = lists.speakers_only(_said("anthropic", session, left), left)
    said = lists.with_own_ids(lists.answered(lists.joined_answers(spoken), left), left)
    results = {str(one.message.get("toolCallId")): one for one in said if one.role == "toolResult"}
    asked = ""
    # The program goes on with the model of the last prompt.
    models = [_opencode_model(one.message) for one in said if one.role == "assistant"]
    last = next((model for model in reversed(models) if model != _UNKNOWN), _UNKNOWN)
    for one in said:
        left.at = one.entry_id
        if one.role == "system":
            left.note(_OWN_PROMPT)
        if one.role not in ("user", "assistant"):
            continue
        number = next(numbers)
        message_id, moment = f"msg_{number:08}{own}", start + number
        beside: JsonObject = {"id": message_id, "sessionID": session_id, "agent": "build"}
        if one.role == "user":
            asked = message_id
            info: JsonObject = {"role": "user", "time": {"created": moment}, "model": last}
        else:
            info = {
                "role": "assistant",
                "parentID": asked or message_id,
                "time": {"created": moment, "completed": moment},
            }
            info |= {"mode": "build", "path": {"cwd": folder, "root": "/"}, "cost": 0, "tokens": _NO_TOKENS}
            info |= _opencode_model(one.message)
        parts: list[JsonValue] = [
            {"id": f"prt_{next(numbers):08}{own}", "sessionID": session_id, "messageID": message_id, **part}
            for part in _opencode_parts(one, results, moment, left)
        ]
        messages.append({"info": beside | info, "parts": parts})
    left.at = None
    title = session.info.title or session.info.auto_title or "Continued"
    head: JsonObject = {"id": session_id, "slug": own, "projectID": "global", "directory": folder, "title": title}
    head |= {"version": "1.18.33", "time": {"created": start, "updated": start + len(messages)}}
    text = json_line({"info": head, "messages": messages}) + "\n"
    # Where the program keeps its own, every file of this kind is taken for one.
    place = f"~/.local/state/opencode/flue-py/{session_id}.json"
    commands = (("opencode", "import", FILE), ("opencode", "-s", session_id))
    return Exported("opencode", text, left.notes(), continuation=Continuation(place, commands, session.info.cwd))


def _opencode_model(message: JsonObject) -> JsonObject:
    provider, model = message.get("provider"), message.get("model")
    is_known = isinstance(provider, str) and isinstance(model, str)
    return {"providerID": provider, "modelID": model} if is_known else _UNKNOWN


_NO_TOKENS: JsonObject = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}


def _opencode_parts(
    one: lists.Said, results: Mapping[str, lists.Said], moment: int, left: Leftovers
) -> Iterator[JsonObject]:
    for _, part in objects_in(blocks_of(one.message.get("content"))):
        match part:
            case {"type": "text", "text": str(text)}:
                yield {"type": "text", "text": text}
            case {"type": "image", "data": str(data)}:
                kind = str(part.get("mimeType"))
                yield {"type": "file", "mime": kind, "filename": "picture", "url": f"data:{kind};base64,{data}"}
            case {"type": "thinking"}:
                left.note("reasoning, which only its own provider takes", part)
            case {"type": "toolCall", "id": str(call_id)}:
                result = results[call_id].message
                pieces = [piece for _, piece in objects_in(blocks_of(result.get("content")))]
                text = "".join(str(piece.get("text") or "") for piece in pieces if piece.get("type") == "text")
                if any(piece.get("type") != "text" for piece in pieces):
                    left.note("pictures of the result of a tool", result)
                state: JsonObject = {"input": part.get("arguments") or {}, "metadata": {}}
                state["time"] = {"start": moment, "end": moment}
                if result.get("isError"):
                    state |= {"status": "error", "error": text}
                else:
                    state |= {"status": "completed", "output": text, "title": ""}
                yield {"type": "tool", "tool": str(part.get("name")), "callID": call_id, "state": state}
            case _:
                left.note("a part that the program has no form for", part)


# Copilot CLI: a header, and a row for each message, call and result. Kimi Code: a row for each message.


_ChatMessage = tuple[JsonObject, str, list[str], bool]


def _chat(session: SessionTree, left: Leftovers, model: str | None = None) -> Iterator[_ChatMessage]:
    """Yield the chat messages of a context: each with its text, the URLs of its pictures, and whether a tool failed."""
    said = lists.with_own_ids([*_said("openai-chat", session, left, model)], left)
    failed = {one.message.get("toolCallId") for one in said if one.message.get("isError") is True}
    # Chat messages have no place for that, and would name it as left out.
    said = [one.with_message(without(one.message, "isError")) for one in said]
    for message in lists.chat_list(said, left):
        if message["role"] in ("system", "developer"):
            left.note(_OWN_PROMPT)
            continue
        parts = [part for _, part in objects_in(blocks_of(message.get("content")))]
        text = "\n".join(str(part["text"]) for part in parts if part.get("type") == "text")
        pictures = [str(fields_of(part.get("image_url")).get("url")) for part in parts if "image_url" in part]
        yield message, text, pictures, message.get("tool_call_id") in failed


def export_copilot_cli(session: SessionTree) -> Exported:
    """Return a session as Copilot CLI resumes it. O(entries)."""
    left, own_id, start = Leftovers(), id_elsewhere(session), session.info.active_us
    rows: list[JsonObject] = []

    def add(kind: str, data: JsonObject) -> None:
        about: JsonObject = {"id": str(uuid5(own_id, str(len(rows)))), "parentId": rows[-1]["id"] if rows else None}
        rows.append({"type": kind, "data": data, **about, "timestamp": iso_time(start + len(rows) * _STEP_US)})

    head: JsonObject = {"sessionId": str(own_id), "version": 1, "producer": "flue-py", "copilotVersion": "1.0.102"}
    add("session.start", {**head, "startTime": iso_time(start), "context": {"cwd": session.info.cwd or "/"}})
    for message, text, pictures, has_failed in _chat(session, left):
        if message["role"] == "tool":
            end: JsonObject = {"toolCallId": message["tool_call_id"], "success": not has_failed}
            name, key = ("error", "message") if has_failed else ("result", "content")
            add("tool.execution_complete", {**end, name: {key: text}})
        elif message["role"] == "user":
            blobs = [match.groupdict() for url in pictures if (match := _DATA_URL.match(url))]
            files: list[JsonValue] = [{"type": "blob", **blob} for blob in blobs]
            add("user.message", {"content": text, "attachments": files})
        else:
            calls: list[JsonValue] = [
                {"toolCallId": call["id"], "name": call["name"], "arguments": arguments_from_text(call["arguments"])}
                for call in _calls(message)
            ]
            add("assistant.message", {"content": text, "messageId": str(uuid5(own_id, text)), "toolRequests": calls})
    if session.info.title is not None:
        left.note("the title, which the program keeps elsewhere")
    place = f"~/.copilot/session-state/{own_id}/events.jsonl"
    return _exported("copilot-cli", rows, place, session, left, ("copilot", "--resume", str(own_id)))


def _calls(message: JsonObject) -> Iterator[JsonObject]:
    for _, call in objects_in(message.get("tool_calls")):
        yield {"type": "function", "id": call["id"], **fields_of(call.get("function"))}


_DATA_URL = re.compile(r"data:(?P<mimeType>[\w/+.-]+);base64,(?P<data>.*)", re.DOTALL)


def export_kimi(session: SessionTree) -> Exported:
    """Return a session as Kimi Code resumes it. O(entries)."""
    left, own_id, folder = Leftovers(), id_elsewhere(session), session.info.cwd or "/"
    start = session.info.active_us // 1_000
    rows: list[JsonObject] = [{"type": "metadata", "protocol_version": "1.5", "created_at": start}]
    for message, text, pictures, has_failed in _chat(session, left):
        parts: list[JsonValue] = [{"type": "text", "text": text}] if text else []
        parts += [{"type": "image_url", "imageUrl": {"url": url}} for url in pictures]
        value: JsonObject = {"role": message["role"], "content": parts, "toolCalls": [*_calls(message)]}
        value |= {"toolCallId": message["tool_call_id"]} if message["role"] == "tool" else {}
        value |= {"isError": True} if has_failed else {}
        value |= {"id": f"msg_{own_id.hex[:18]}{len(rows):08}"}
        value |= {"origin": {"kind": "user"}} if message["role"] == "user" else {}
        moment = start + len(rows)
        rows.append({"type": "context.append_message", "agentId": "main", "message": value, "time": moment})
    title = session.info.title or session.info.auto_title or "Continued"
    name, times = f"session_{own_id}", {"createdAt": start, "updatedAt": start + len(rows)}
    about: JsonObject = {"id": name, "version": 2, "cwd": folder, "title": title, "agents": {"main": {"type": "main"}}}
    about |= {"isCustomTitle": session.info.title is not None, "custom": {}, "archived": False, **times}
    name_of_folder = re.sub(r"[^A-Za-z0-9._-]", "-", folder.rpartition("/")[2])[:60]
    digest = sha256(folder.encode(errors="replace")).hexdigest()[:12]
    place = f"~/.kimi-code/sessions/wd_{name_of_folder}_{digest}/{name}/agents/main/wire.jsonl"
    return _exported("kimi", rows, place, session, left, ("kimi", "-S", name), beside={"../../state.json": about})


# Mistral Vibe: a row for each message, as version 2 wrote them: later ones take such a session over to resume it.


def export_mistral_vibe(session: SessionTree) -> Exported:
    """Return a session as Mistral Vibe resumes it. O(entries)."""
    left, own_id, start = Leftovers(), str(id_elsewhere(session)), session.info.active_us
    rows: list[JsonObject] = []
    names: dict[JsonValue, JsonValue] = {}
    for message, text, pictures, has_failed in _chat(session, left, "mistral"):
        names |= {call["id"]: call["name"] for call in _calls(message)}
        named: JsonObject = {"name": names.get(message["tool_call_id"])} if message["role"] == "tool" else {}
        rows.append({**only(message, "role", "tool_calls", "tool_call_id"), "content": text, **named})
        if has_failed:
            left.note("that a tool failed", message)
        if pictures:
            left.note("pictures, with which the program resumes no session", message)
    title = session.info.title or session.info.auto_title
    about: JsonObject = {"session_id": own_id, "title": title, "username": "flue-py", "total_messages": len(rows)}
    about |= {"title_source": "auto" if session.info.title is None else "manual"}
    about |= {"start_time": iso_time(start), "end_time": iso_time(start), "git_commit": None, "git_branch": None}
    about["environment"] = {"working_directory": session.info.cwd or "/"}
    place = f"~/.vibe/logs/session/session_{own_id}_{own_id[:8]}/messages.jsonl"
    command = ("vibe", "--resume", own_id)
    return _exported("mistral-vibe", rows, place, session, left, command, beside={"meta.json": about})
