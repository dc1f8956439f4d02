"""In every format, tokens that a file does not report are unknown after an import, and a reported zero is zero."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flue_py
from flue_py.transfer.imports import import_file
from tests.formats.transcripts import as_lines
from tests.tables import inputs

AT = "2026-01-14T00:00:00.000Z"
Usage = dict[str, Any]


def claude_code(usage: Usage) -> list[Any]:
    every = {"isSidechain": False, "sessionId": "11111111-1111-4111-8111-111111111111", "cwd": "/w", "timestamp": AT}
    answer = {"id": "m", "role": "assistant", "model": "x", "content": [{"type": "text", "text": "b"}], "usage": usage}
    return [
        {"type": "user", "uuid": "u", "parentUuid": None, "message": {"role": "user", "content": "a"}, **every},
        {"type": "assistant", "uuid": "a", "parentUuid": "u", "message": answer, **every},
    ]


def codex(usage: Usage) -> list[Any]:
    def item(kind: str, **payload: Any) -> Any:
        return {"timestamp": AT, "type": kind, "payload": payload}

    return [
        item("session_meta", id="s", timestamp=AT, cwd="/w", originator="codex", cli_version="1"),
        item("response_item", type="message", role="user", content=[{"type": "input_text", "text": "a"}]),
        item("response_item", type="message", role="assistant", content=[{"type": "output_text", "text": "b"}]),
        item("event_msg", type="token_count", info={"total_token_usage": usage, "last_token_usage": usage}),
    ]


def pi(usage: Usage) -> list[Any]:
    def message(own: str, parent: str | None, **fields: Any) -> Any:
        return {"type": "message", "id": own, "parentId": parent, "timestamp": AT, "message": fields}

    return [
        {"type": "session", "version": 3, "id": "s", "timestamp": AT, "cwd": "/w"},
        message("a", None, role="user", content="a"),
        message("b", "a", role="assistant", content=[{"type": "text", "text": "b"}], usage=usage),
    ]


def noumen(usage: Usage) -> list[Any]:
    every = {"parentUuid": None, "sessionId": "demo", "timestamp": AT, "type": "message"}
    return [
        {**every, "uuid": "u", "message": {"role": "user", "content": "a"}},
        {**every, "uuid": "a", "message": {"role": "assistant", "content": "b", "usage": usage}},
    ]


def anthropic(usage: Usage) -> Any:
    answer = {
        "type": "message", "id": "m", "role": "assistant", "model": "x", "content": [{"type": "text", "text": "b"}],
        "stop_reason": "end_turn", "usage": usage,
    }  # fmt: skip
    return [{"role": "user", "content": "a"}, answer]


def openai_chat(usage: Usage) -> Any:
    return [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "usage": usage}]


def openai_responses(usage: Usage) -> Any:
    said = {"type": "message", "id": "m", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "b", "annotations": []}]}  # fmt: skip
    return {"id": "resp_1", "object": "response", "model": "x", "output": [said], "usage": usage}


def fuseraft(usage: Usage) -> Any:
    said = {"Role": "assistant", "Content": "b", "AgentName": "D", "TurnIndex": 0, "Timestamp": AT, "Usage": usage}
    return {
        "SessionId": "0a0b0c0d", "Task": "a", "StartedAt": AT, "LastUpdatedAt": AT, "IsComplete": True, "TurnIndex": 1,
        "ConfigPath": "c.yaml", "Messages": [said],
    }  # fmt: skip


ANTHROPIC = {"input_tokens": 5, "output_tokens": 3}
OF_CACHE = {"cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
OPENAI = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
CODEX = {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8}
CACHE = {"cacheRead", "cacheWrite", "cacheWrite5m"}
ALL = CACHE | {"cacheWrite1h", "reasoning"}

CASES = [
    ("claude-code", claude_code, ANTHROPIC, ALL),
    ("claude-code", claude_code, {**ANTHROPIC, **OF_CACHE}, {"cacheWrite1h", "reasoning"}),
    (
        "claude-code",
        claude_code,
        {**ANTHROPIC, **OF_CACHE, "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}},
        {"reasoning"},
    ),
    ("codex", codex, CODEX, ALL),
    ("codex", codex, {**CODEX, "cached_input_tokens": 0}, ALL - {"cacheRead"}),
    (
        "codex",
        codex,
        {**CODEX, "cached_input_tokens": 0, "reasoning_output_tokens": 0},
        ALL - {"cacheRead", "reasoning"},
    ),
    ("pi", pi, {"input": 5, "output": 3, "totalTokens": 8}, ALL),
    ("pi", pi, {"input": 5, "output": 3, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 8}, ALL - CACHE),
    ("pi", pi, {"input": 5, "output": 3, "cacheWrite1h": 0, "reasoning": 0}, {"cacheRead"}),
    ("noumen", noumen, OPENAI, ALL),
    ("noumen", noumen, {**OPENAI, "prompt_tokens_details": {"cached_tokens": 0}}, ALL - {"cacheRead"}),
    ("anthropic", anthropic, ANTHROPIC, ALL),
    ("anthropic", anthropic, {**ANTHROPIC, **OF_CACHE}, {"cacheWrite1h", "reasoning"}),
    ("openai-chat", openai_chat, OPENAI, ALL),
    ("openai-chat", openai_chat, {**OPENAI, "completion_tokens_details": {"reasoning_tokens": 0}}, ALL - {"reasoning"}),
    ("openai-responses", openai_responses, CODEX, ALL),
    (
        "openai-responses",
        openai_responses,
        {**CODEX, "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}},
        ALL - {"cacheRead", "reasoning"},
    ),
    ("fuseraft-run", fuseraft, {"InputTokens": 5, "OutputTokens": 3, "TotalTokens": 8}, ALL),
    ("fuseraft-run", fuseraft, {"InputTokens": 5, "OutputTokens": 3, "ReasoningTokens": 0}, ALL - {"reasoning"}),
]


@inputs(("format", "file", "usage", "unknown"), CASES)
async def test_an_import_passes_on_the_numbers_that_a_file_names_and_no_other(
    format: str,  # noqa: A002
    file: Callable[[Usage], Any],
    usage: Usage,
    unknown: set[str],
    tmp_path: Path,
) -> None:
    made = file(usage)
    is_lines = format in ("claude-code", "codex", "pi", "noumen")
    place = tmp_path / ("session.jsonl" if is_lines else "session.json")
    place.write_bytes(b"".join(as_lines(made)) if is_lines else json.dumps(made).encode())
    async with flue_py.open(":memory:", prices=False) as store:
        session_id = (await import_file(store, place, format, finish=True)).session_id
        known = (await store.usage(session_id)).total.known
    assert {name for name, count in known.items() if count is None} == unknown
    assert {name: count for name, count in known.items() if count} == {"input": 5, "output": 3, "totalTokens": 8}
