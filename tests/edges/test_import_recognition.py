"""The format of a file is recognised by what only that format has, wherever it is; and what a refusal says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.errors import UnreadableFile
from tests.formats.pi_files import HEADER
from tests.formats.test_claude_code import user
from tests.formats.test_codex import META
from tests.formats.transcripts import as_lines

pytestmark = pytest.mark.anyio

TALK: list[dict[str, Any]] = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
LONG: list[dict[str, Any]] = [{"role": "user", "content": "word " * 50_000}, *TALK[1:]]
RESPONSES_ONLY: list[dict[str, Any]] = [
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "x"},
    {"type": "custom_tool_call_output", "call_id": "c", "output": "x"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    {"type": "tool_search_output", "call_id": "c", "tools": []},
    {"type": "local_shell_call", "call_id": "c", "action": {}},
    {"type": "image_generation_call", "id": "ig_1", "result": ""},
    {"type": "mcp_call", "id": "mcp_1", "name": "f"},
    {"type": "reasoning", "summary": []},
    {"role": "user", "content": [{"type": "input_image", "image_url": "https://x.y/z.png"}]},
    {"role": "user", "content": [{"type": "input_file", "file_id": "f"}]},
]


async def taken_for(folder: Path, value: Any, format: str = "auto") -> str:  # noqa: A002
    """Return the format that a file is imported as."""
    file = folder / "list.json"
    file.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    async with flue_py.open(":memory:") as store:
        return (await flue_py.import_file(store, file, format)).format


@pytest.mark.parametrize("item", RESPONSES_ONLY, ids=lambda item: str(item.get("type", "part")))
@pytest.mark.parametrize("before", [TALK, LONG], ids=["short", "long"])
async def test_any_type_that_only_responses_have_decides(
    item: dict[str, Any], before: list[dict[str, Any]], tmp_path: Path
) -> None:
    assert await taken_for(tmp_path, [*before, item]) == "openai-responses"


async def test_blocks_that_only_anthropic_has_decide_however_late_they_come(tmp_path: Path) -> None:
    use = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}
    for before in (TALK[:1], LONG[:1]):
        assert await taken_for(tmp_path, [*before, use]) == "anthropic"
        assert await taken_for(tmp_path, {"messages": [*before, use]}) == "anthropic"


async def test_chat_messages_stay_chat_whatever_they_talk_about(tmp_path: Path) -> None:
    quoted = json.dumps([*RESPONSES_ONLY, {"type": "tool_use"}])
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": quoted}}
    for before in (TALK, LONG):
        talk = [*before, {"role": "user", "content": quoted}, {"role": "assistant", "tool_calls": [call]}]
        assert await taken_for(tmp_path, talk) == "openai-chat"
        assert await taken_for(tmp_path, {"messages": talk}) == "openai-chat"


async def test_a_file_that_is_refused_says_which_format_it_looks_like(tmp_path: Path) -> None:
    files: dict[str, bytes] = {
        "pi": b"".join(as_lines([HEADER])),
        "claude-code": b"".join(as_lines([user("u1", None)])),
        "codex": b"".join(as_lines([META])),
        "openai-chat": json.dumps(TALK).encode(),
        "flue": b'{"version":3,"entries":[],"leafId":null,"metadata":{},"createdAt":"2026-01-05T10:00:00.000Z"}',
    }
    for true, data in files.items():
        for wrong in ("pi", "codex", "noumen", "fuseraft-repl", "fuseraft-run"):
            if wrong == true:
                continue
            with pytest.raises(UnreadableFile, match=f"; it looks like {true}: use flue-py import {true}, or auto"):
                await taken_for(tmp_path, data, wrong)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"SQLite format 3\0" + b"\0" * 100, "looks like a SQLite database, perhaps a store: use flue-py --db"),
        (b"\x1f\x8b\x08\0", "it is compressed, as bundles are: use flue-py unbundle"),
    ],
)
async def test_files_of_ours_that_are_not_to_be_imported_are_known(data: bytes, said: str, tmp_path: Path) -> None:
    for format_name in ("auto", "pi"):
        with pytest.raises(UnreadableFile, match=said):
            await taken_for(tmp_path, data, format_name)


async def test_a_file_of_the_right_format_that_is_refused_does_not_look_like_itself(tmp_path: Path) -> None:
    run = {"SessionId": "not hex", "Task": "t", "ConfigPath": "c", "Messages": []}
    with pytest.raises(UnreadableFile, match=r"eight hex characters$"):
        await taken_for(tmp_path, run, "fuseraft-run")
