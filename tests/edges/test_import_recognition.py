"""The format of a file is recognised by what only that format has, wherever it is; and what a refusal says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.errors import UnreadableFile
from flue_py.formats.registry import OTHERS, program_by_content
from tests.checks import raises
from tests.edges.cli_runs import Flue
from tests.formats.pi_files import HEADER
from tests.formats.test_claude_code import user
from tests.formats.test_codex import META
from tests.formats.transcripts import CLAUDE, CODEX_MADE, CODEX_REAL, as_lines, lines_of
from tests.tables import inputs

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


@inputs("item", RESPONSES_ONLY, ids=lambda item: str(item.get("type", "part")))
@inputs("before", [TALK, LONG], ids=["short", "long"])
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


@inputs(
    ("data", "said"),
    [
        (
            b"SQLite format 3\0" + b"\0" * 100,
            "looks like a SQLite database: use flue-py unbundle for a bundle, flue-py --db for a store",
        ),
        (b"\x1f\x8b\x08\0", "it is compressed: unpack it first"),
    ],
)
async def test_files_of_ours_that_are_not_to_be_imported_are_known(data: bytes, said: str, tmp_path: Path) -> None:
    for format_name in ("auto", "pi"):
        await raises(UnreadableFile, taken_for(tmp_path, data, format_name), match=said)


async def test_a_file_of_the_right_format_that_is_refused_does_not_look_like_itself(tmp_path: Path) -> None:
    run = {"SessionId": "not hex", "Task": "t", "ConfigPath": "c", "Messages": []}
    await raises(UnreadableFile, taken_for(tmp_path, run, "fuseraft-run"), match=r"eight hex characters$")


BEGINNINGS: dict[str, list[Any] | Any] = {
    "Continue": {"sessionId": "s", "title": "t", "workspaceDirectory": "/w", "history": [{"message": TALK[0]}]},
    "Kimi CLI (events)": [{"type": "metadata", "protocol_version": "1.9"}, {"type": "user", "role": "user"}],
    "Mistral Vibe (parts of a store)": json.dumps(
        [{"message": TALK[0], "source": "history", "turn_index": 0}]
    ).encode(),
}


async def test_a_file_of_a_program_without_a_format_is_refused_by_name(tmp_path: Path) -> None:
    wrong = []
    signed = {each.name for each in OTHERS if each.sign is not None}
    readable = set(BEGINNINGS) - signed
    assert not readable, f"{readable} have a format now, or no sign in OTHERS: delete their lines in BEGINNINGS"
    for name, rows in BEGINNINGS.items():
        data = b"".join(as_lines(rows if isinstance(rows, list) else [rows]))
        for format_name in ("auto", "claude-code", "codex"):
            try:
                wrong.append((name, format_name, await taken_for(tmp_path, data, format_name)))
            except UnreadableFile as error:
                if f"is a file of {name}, which no format reads" not in str(error):
                    wrong.append((name, format_name, str(error)))
    heads = [b"".join(lines_of(file))[:65536] for file in (CLAUDE, CODEX_REAL, CODEX_MADE)]
    wrong += [("ours", "", str(named)) for head in heads if (named := program_by_content(head)) is not None]
    assert (wrong, signed) == ([], set(BEGINNINGS))


async def test_a_list_whose_items_are_no_messages_is_no_list_of_them(tmp_path: Path) -> None:
    for items in ([{"said": TALK[0]}], [{"said": TALK[0]}, {"said": LONG[0]}], {"messages": [{"row": TALK[0]}]}):
        await raises(UnreadableFile, taken_for(tmp_path, items), match="looks like none of")
    assert await taken_for(tmp_path, [{"odd": 1}, *TALK]) == "openai-chat"


async def test_a_transcript_is_claude_codes_although_its_first_message_is_damaged(tmp_path: Path) -> None:
    rows = [user("u1", None, "hi"), user("u2", "u1", "again")]
    rows[0]["message"] = {"role": "user"}
    file = tmp_path / "s.jsonl"
    file.write_bytes(b"".join(as_lines(rows)))
    async with flue_py.open(":memory:") as store:
        assert (await flue_py.import_file(store, file)).format == "claude-code"


def test_every_program_that_is_there_and_cannot_be_read_is_named(tmp_path: Path) -> None:
    flue, home = Flue(tmp_path), tmp_path / "home"
    for program in OTHERS:
        path = home / program.files[0].removeprefix("~/").replace("**/", "a/").replace("[zZ]", "z").replace("*", "x-y")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"SQLite format 3\0" if path.suffix in (".db", ".vscdb") else b"{}")
    done = flue.run("import", "--discover", env={"HOME": str(home)})
    named = [each.name for each in OTHERS if not each.is_part]
    missing = [name for name in named if f"{name}: 1 file in its usual places" not in done.stderr]
    inside = flue.run("import", "auto", str(home))
    missing += [name for name in named if f"{name}: 1 file passed over" not in inside.stderr]
    missing += [each.name for each in OTHERS if each.is_part and each.name in done.stderr + inside.stderr]
    assert not missing
    assert json.loads(flue.run("import", "--discover", "--json", env={"HOME": str(home)}).stdout) == []
