"""The command that shows what an agent is sent."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from flue_py import sync
from flue_py.context.settings import context_schema
from flue_py.core.json import JsonObject, JsonValue
from tests.edges.cli_runs import Flue
from tests.tables import inputs

SETTINGS = {
    "epoch_tokens": 0,
    "microcompact": {"keep": 2, "tools": ["read", "bash", "edit", "write"]},
    "agents": {"Reviewer": {"window": {"text_only": True, "max_tail_messages": 5}}},
}


@pytest.fixture
def flue(tmp_path: Path) -> Flue:
    (tmp_path / "agents.json").write_text(json.dumps(SETTINGS), encoding="utf-8")
    return Flue(tmp_path)


@pytest.fixture
def real(flue: Flue) -> str:
    """The id of a real session, which is imported once for all rows of a table."""
    return flue.import_real()


def test_what_an_agent_is_sent_is_explained_by_step_and_by_entry(flue: Flue, tmp_path: Path) -> None:
    session = flue.import_real()
    given = ["context", session, "--explain", "--agent", "reviewer", "--settings", str(tmp_path / "agents.json")]
    told = flue.json(*given)
    entries = told["entries"]
    assert [each["entryId"] for each in entries] == [
        each["entryId"] for each in flue.json("context", session, "--explain")["entries"]
    ]
    assert [step["name"] for step in told["steps"]] == ["text_only", "max_tail_messages", "tool_pairs", "microcompact"]
    assert {each["sent"] for each in entries} <= {"whole", "cut", "out", "replaced"}
    assert sum(each["sent"] != "out" for each in entries) == 5
    freed = sum(change["tokensBefore"] - change["tokensAfter"] for each in entries for change in each["changes"])
    assert told["tokensBefore"] - told["tokensAfter"] == freed == sum(step["tokensFreed"] for step in told["steps"]) > 0
    assert (told["agent"], told["target"], told["repairs"], told["broken"]) == ("reviewer", None, [], [])

    lines = flue.lines(*given)
    assert lines[0].startswith(f"{len(entries)} messages for reviewer: ")
    shown = [line for line in lines if line.startswith(entries[0]["entryId"])]
    assert len(shown) == 1
    assert "out" in shown[0]
    assert "text_only" in " ".join(lines)

    # The view of the last messages moves: the request before the last answer began with others.
    assert any(line.startswith("it begins otherwise than the request before it: ") for line in lines)
    assert told["breakSinceLastAnswer"]["entryId"] in [each["entryId"] for each in entries]
    assert flue.json("context", session, "--explain")["breakSinceLastAnswer"] is None
    assert "it begins with all of the request before it" in flue.lines("context", session, "--explain")


def test_a_request_of_a_provider_is_printed_and_its_repairs_explained(flue: Flue, tmp_path: Path) -> None:
    session = flue.import_real()
    request = flue.json("context", session, "--target", "openai-chat")
    assert {message["role"] for message in request["messages"]} <= {"system", "user", "assistant", "tool"}
    assert json.loads("\n".join(flue.lines("context", session, "--target", "openai-chat"))) == request
    told = flue.json("context", session, "--explain", "--target", "anthropic")
    assert told["target"] == "anthropic"
    assert told["steps"] == []
    assert any("no step is asked for" in line for line in flue.lines("context", session, "--explain"))


def test_what_is_repaired_is_not_called_whole_and_what_no_entry_is_behind_is_told(flue: Flue) -> None:
    said = [
        ("user", "Go."),
        ("mem\x1b[31m", "odd"),
        ("user", " "),
        ("assistant", [{"type": "text", "text": "Well \n"}]),
    ]
    at = {"timestamp": "2026-01-01T00:00:00.000Z"}
    rows: list[dict[str, object]] = [{"type": "session", "version": 3, "id": "repaired", "cwd": "/", **at}]
    for number, (role, content) in enumerate(said):
        message = {"role": role, "content": content, "timestamp": 1}
        before = f"e{number - 1}" if number else None
        rows.append({"type": "message", "id": f"e{number}", "parentId": before, "message": message, **at})
    session = flue.import_rows(rows)
    told = flue.json("context", session, "--explain", "--target", "anthropic")
    assert [entry["sent"] for entry in told["entries"]] == ["whole", "repaired", "repaired", "whole"]
    (beside,) = [repair["what"] for repair in told["repairs"] if repair["entryId"] is None]
    lines = flue.lines("context", session, "--explain", "--target", "anthropic")
    assert f"for anthropic: {beside}" in lines
    assert not any("\x1b" in line for line in lines)
    assert sum(" repaired " in line for line in lines) == 2


def test_marks_are_of_what_the_model_is_sent_that_is_asked(flue: Flue) -> None:
    with sync.open(flue.database) as store:
        session = store.create_session()
        session.append_message({"role": "user", "content": "Why?"})
        thought: JsonObject = {"type": "thinking", "thinking": "hm", "thinkingSignature": "c2ln"}
        said: JsonObject = {"type": "text", "text": "So."}
        by: JsonObject = {"provider": "anthropic", "model": "claude-sonnet-4-5"}
        session.append_message({"role": "assistant", "content": [thought, said], **by})
        session.append_message({"role": "user", "content": "And now?"})

    def sent(*options: str) -> list[str]:
        told = flue.json("context", session.id, "--explain", *options)
        return [entry["sent"] for entry in told["entries"]]

    assert sent("--target", "anthropic") == ["whole"] * 3
    assert sent("--target", "anthropic", "--model", "anthropic:claude-sonnet-4-5") == ["whole"] * 3
    assert sent("--target", "anthropic", "--model", "claude-opus-4-5") == ["whole", "repaired", "whole"]
    assert sent("--model", "claude-opus-4-5") == ["whole"] * 3
    request = flue.json("context", session.id, "--target", "anthropic", "--model", "claude-opus-4-5")
    assert request["messages"][1]["content"] == [said]
    told = flue.json("context", session.id, "--explain", "--model", "gpt-5")
    assert told["counter"] == "tiktoken:o200k_base"


def test_the_schema_needs_no_session(flue: Flue) -> None:
    assert flue.json("context", "--schema") == context_schema()


@inputs(
    ("text", "problem"),
    [
        ('{"window": {"max_turn_age": -1}}', "window.max_turn_age"),
        ("[1]", "it has no JSON object"),
        ("{", "it has no JSON object"),
        ("\udcff", "it has no JSON object"),
        (" " * 1_000_001, "more than 1,000,000 bytes"),
        (None, "No such file"),
    ],
)
def test_wrong_settings_are_named(flue: Flue, real: str, tmp_path: Path, text: str | None, problem: str) -> None:
    file = tmp_path / "wrong.json"
    if text is not None:
        file.write_bytes(text.encode(errors="surrogateescape"))
    said = flue.run("context", real, "--explain", "--settings", str(file), code=1).stderr
    assert problem in said


@inputs(
    "given",
    [
        ["--agent", "A"], ["--settings", "f"], ["--system", "f"], ["--tools", "f"], ["--model", "gpt-5"],
        ["--explain", "--last", "3"], ["--target", "gemini", "--count"],
    ],
)  # fmt: skip
def test_options_that_do_not_go_together_are_refused(flue: Flue, given: list[str]) -> None:
    assert "--explain" in flue.run("context", "some", *given, code=2).stderr


SYSTEM = "Be brief. \u00e4\n"
TOOLS: list[JsonObject] = [{"name": "read_file", "description": "Read.", "input_schema": {"type": "object"}}]


@pytest.fixture
def beside(tmp_path: Path) -> list[str]:
    (tmp_path / "system.txt").write_text(SYSTEM, encoding="utf-8", newline="")
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS), encoding="utf-8")
    return ["--system", str(tmp_path / "system.txt"), "--tools", str(tmp_path / "tools.json")]


def test_reasoning_is_whole_beside_what_it_was_produced_under(flue: Flue, beside: list[str]) -> None:
    thought: JsonObject = {"type": "thinking", "thinking": "hm", "thinkingSignature": "signed"}
    said: list[JsonValue] = [thought, {"type": "text", "text": "So."}]
    with sync.open(flue.database) as store:
        session = store.create_session()
        session.append_message({"role": "user", "content": "Why?"})
        digest = session.request("anthropic", system=SYSTEM, tools=TOOLS).prefix_digest
        answer: JsonObject = {"role": "assistant", "provider": "anthropic", "content": said}
        session.append_message(answer, produced_under=digest)
        wanted = session.request("anthropic", system=SYSTEM, tools=TOOLS)

    def sent(*options: str) -> list[str]:
        told = flue.json("context", session.id, "--explain", "--target", "anthropic", *options)
        return [entry["sent"] for entry in told["entries"]]

    assert sent(*beside) == ["whole", "whole"]
    assert sent() == sent(*beside[:2]) == sent(*beside[2:]) == ["whole", "repaired"]
    printed = flue.json("context", session.id, "--target", "anthropic", *beside)
    assert printed == {"system": wanted.system, "tools": TOOLS, "messages": wanted.messages}
    assert "signed" in json.dumps(printed)
    told = flue.json("context", session.id, "--explain", *beside)
    assert told["breakSinceLastAnswer"] is None
    assert "tools" not in flue.json("context", session.id, "--target", "anthropic")


@inputs(
    ("option", "data", "problem"),
    [
        ("--system", b"\xff", "it is no text in UTF-8"), ("--system", b" " * 1_000_001, "more than 1,000,000 bytes"),
        ("--system", None, "No such file"), ("--tools", b"{}", "it has no JSON list, but {}"),
        ("--tools", b"[", "it has no JSON list"), ("--tools", b'[{"a": NaN}]', "it has no JSON list (NaN is not JSON)"),
        ("--tools", b"[" * 100_000, "it has no JSON list"),
        ("--tools", b'[{}, "read"]', "[1] is no definition of a tool, but 'read'"),
        ("--tools", b"[]" + b" " * 1_000_000, "more than 1,000,000 bytes"), ("--tools", None, "No such file"),
    ],
)  # fmt: skip
def test_wrong_files_of_what_stands_beside_are_named(
    flue: Flue, real: str, tmp_path: Path, option: str, data: bytes | None, problem: str
) -> None:
    file = tmp_path / "wrong"
    if data is not None:
        file.write_bytes(data)
    said = flue.run("context", real, "--explain", option, str(file), code=1).stderr
    assert problem in " ".join(said.split())
    assert f"{option} {file}" in "".join(said.split("\n"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@inputs("option", ["--settings", "--system", "--tools"])
def test_a_pipe_and_a_folder_are_refused_and_not_waited_for(flue: Flue, real: str, tmp_path: Path, option: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, problem in {"pipe": "it is a pipe or a device", "": "Is a directory"}.items():
        said = flue.run("context", real, "--explain", option, str(tmp_path / name), code=1).stderr
        assert problem in " ".join(said.split())
