"""The export command, and imports of the same formats."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.errors import EntryNotFound, InvalidArgument
from flue_py.formats.flue import parse_session_document
from flue_py.sessions.session import Session
from tests.checks import raises
from tests.edges.cli_runs import REAL_ID, Flue, in_session
from tests.formats.pi_files import SESSION_ID, as_lines, every_type, real_lines
from tests.formats.test_fuseraft import HISTORY, USAGE, checkpoint, snapshot, text, turn
from tests.formats.test_noumen import boundary, row, said, summary
from tests.formats.trees import document
from tests.tables import inputs

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "list"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
    {"role": "assistant", "content": "One file."},
]
HI = [{"role": "user", "content": "hi"}]
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}


def imported(flue: Flue, format_name: str, data: bytes, name: str) -> dict[str, Any]:
    file = flue.folder / name
    file.write_bytes(data)
    (report,) = flue.json("import", format_name, str(file))
    return dict(report)


def test_a_pi_file_goes_out_as_it_came_in(flue: Flue) -> None:
    flue.import_every_type()
    result = flue.run("export", "pi", SESSION_ID[:4])
    assert [json.loads(line) for line in result.stdout.splitlines()] == every_type()
    assert result.stderr == ""


@pytest.mark.slow
def test_the_real_session_goes_out_and_in_again_with_the_same_contexts(flue: Flue, tmp_path: Path) -> None:
    session_id = flue.import_real()
    file = tmp_path / "out.jsonl"
    flue.run("export", "pi", session_id, "--output", str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    other = Flue(tmp_path / "other")
    other.folder.mkdir()
    other.run("import", "pi", str(file))
    ids = [item["id"] for item in flue.json("show", session_id, "--path")]
    assert [item["id"] for item in other.json("show", session_id, "--path")] == ids
    for leaf in (ids[300], ids[-1]):
        assert other.json("context", REAL_ID, "--leaf", leaf) == flue.json("context", REAL_ID, "--leaf", leaf)
    assert other.json("usage", REAL_ID) == flue.json("usage", REAL_ID)
    assert len(real_lines()) == len(file.read_bytes().splitlines())


def test_a_leaf_can_be_chosen_and_the_stored_one_stays(flue: Flue) -> None:
    flue.import_every_type()
    before = flue.json("show", SESSION_ID)
    rows = [json.loads(line) for line in flue.run("export", "pi", SESSION_ID, "--leaf", "h0000").stdout.splitlines()]
    assert rows[-1]["id"] == "h0000001"
    messages = json.loads(flue.run("export", "openai-chat", SESSION_ID, "--leaf", "r0000").stdout)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user"]
    assert flue.json("show", SESSION_ID) == before


def test_the_document_of_the_reference_has_tree_leaf_and_metadata(flue: Flue) -> None:
    flue.import_every_type()
    result = flue.run("export", "flue", SESSION_ID)
    found = parse_session_document(json.loads(result.stdout))
    assert [entry.id for entry in found.entries] == [item["id"] for item in every_type()[1:]]
    assert found.leaf_id == "f0000001"
    assert "left out: the title" in result.stderr.splitlines()


def test_what_was_changed_here_goes_out_and_what_cannot_is_said(flue: Flue) -> None:
    flue.import_every_type()

    async def change(session: Session) -> None:
        await session.set_title("Renamed")
        await session.marks.set_label("u0000002", "second")
        await session.append_message({"role": "user", "content": "one more"})
        await session.append_message({"role": "assistant", "content": "a slip"})
        await session.remove_leaf_message(str(session.leaf_id))
        await session.tasks.create(task_id="t1", title="part")

    in_session(flue, change)
    file = flue.folder / "out.jsonl"
    result = flue.run("export", "pi", SESSION_ID, "--output", str(file))
    assert result.stdout == f"{file}: {file.stat().st_size:,} bytes\n"
    assert result.stderr.splitlines() == ["left out: a link to a task session", "left out: a retracted entry"]
    other = Flue(flue.folder / "other")
    other.folder.mkdir()
    (report,) = other.json("import", "pi", str(file))
    shown = other.json("show", SESSION_ID)
    assert shown["title"] == "Renamed"
    *before, last = flue.json("context", SESSION_ID)
    assert [*before, {**last, "timestamp": 0}] == [
        {**message, "timestamp": 0} if message["content"] == "one more" else message
        for message in other.json("context", SESSION_ID)
    ]
    assert report["skipped"] == []
    flue_document = json.loads(flue.run("export", "flue", SESSION_ID).stdout)
    (link,) = flue_document["metadata"]["taskSessions"]
    assert link["taskId"] == "t1"
    assert flue.json("show", SESSION_ID)["metadata"] == flue_document["metadata"]


@pytest.mark.parametrize(
    ("format_name", "value"),
    [
        ("openai-chat", CHAT),
        ("anthropic", [*HI, {"role": "assistant", "content": [{"type": "text", "text": "yes"}]}]),
        ("openai-responses", [*HI, CALL, {"type": "function_call_output", "call_id": "c", "output": "x"}]),
    ],
)
def test_a_list_comes_in_by_itself_and_goes_out_as_it_was(flue: Flue, format_name: str, value: list[Any]) -> None:
    report = imported(flue, "auto" if format_name == "openai-chat" else format_name, document(value), "list.json")
    assert report["format"] == format_name
    session_id = flue.json("sessions")[0]["id"]
    result = flue.run("export", format_name, session_id)
    assert json.loads(result.stdout) == value
    assert result.stderr == ""
    again = imported(flue, format_name, document(value), "list.json")
    assert (again["changed"], again["added"]) == (False, 0)
    longer = imported(flue, format_name, document([*value, {"role": "user", "content": "and?"}]), "list.json")
    assert (longer["added"], longer["created"]) == (1, False)
    assert flue.json("context", session_id)[-1]["content"] == "and?"
    assert flue.json("verify")["problems"] == []


def test_a_snapshot_that_was_written_anew_moves_the_leaf_unless_somebody_went_on_here(flue: Flue) -> None:
    name = "repl-a87569bcd7b0.json"
    imported(flue, "auto", document(snapshot(*HISTORY)), name)
    imported(flue, "auto", document(snapshot(*HISTORY[:1], text("user", "rewound"))), name)
    assert [message["content"] for message in flue.json("context", "a87569")] == ["You are helpful.", "rewound"]

    async def go_on(session: Session) -> None:
        await session.append_message({"role": "user", "content": "from here"})

    in_session(flue, go_on, "a87569bcd7b0")
    report = imported(flue, "auto", document(snapshot(*HISTORY[:1], text("user", "rewound"), text("user", "on"))), name)
    assert (report["added"], report["leafKept"]) == (1, True)
    assert flue.json("context", "a87569")[-1]["content"] == "from here"


def test_a_checkpoint_goes_on_after_compactions_and_counts_every_call_once(flue: Flue) -> None:
    old = [turn(number, f"turn {number}", Usage=USAGE) for number in range(4)]
    summed = turn(1, "Summed.", AgentName="System", Role="user", IsCompactionSummary=True)
    summed["Timestamp"] = "2026-05-27T10:30:00Z"
    anew = {**summed, "Timestamp": "2026-05-27T10:50:00Z", "Content": "Summed again."}
    for messages in (old, [summed, *old[2:], turn(40, "later")], [anew, turn(55, "last")]):
        report = imported(flue, "auto", document(checkpoint(*messages)), "a3f92c1d.json")
        assert report["format"] == "fuseraft-run"
    texts = [message["content"] for message in flue.json("context", "a3f92c1d")]
    assert texts == [[{"type": "text", "text": "[Context Summary]\n\nSummed again."}], "last"]
    assert flue.json("sessions")[0]["spentTokens"] == 4 * 4510
    assert flue.json("verify")["problems"] == []


def test_a_noumen_file_comes_in_by_itself_and_grows(flue: Flue) -> None:
    rows = [said("u1", "one"), row("ai-title", title="AI"), boundary(), summary("s1", "sum"), said("u2", "two")]
    assert imported(flue, "auto", b"".join(as_lines(rows)), "demo.jsonl")["format"] == "noumen"
    rows += [row("custom-title", title="Mine"), said("u3", "three")]
    assert imported(flue, "auto", b"".join(as_lines(rows)), "demo.jsonl")["added"] == 2
    assert flue.json("show", "demo")["title"] == "Mine"
    assert [message["content"] for message in flue.json("context", "demo")[1:]] == ["two", "three"]


def test_a_file_that_is_there_is_not_written_over(flue: Flue) -> None:
    flue.import_every_type()
    file = flue.folder / "out.json"
    file.write_text("precious")
    result = flue.run("export", "flue", SESSION_ID, "--output", str(file), code=1)
    assert "is there already; name another file" in result.stderr
    assert file.read_text() == "precious"
    missing = flue.run("export", "flue", SESSION_ID, "--output", str(flue.folder / "no" / "out.json"), code=1)
    assert len(missing.stderr.splitlines()) == 1
    assert "out.json' cannot be made: No such file or directory" in missing.stderr


def test_unknown_sessions_formats_and_leaves_are_one_line(flue: Flue) -> None:
    flue.import_every_type()
    assert "no session" in flue.run("export", "pi", "nobody", code=4).stderr
    assert "openai-chat" in flue.run("export", "word", SESSION_ID, code=2).stderr
    assert len(flue.run("export", "pi", SESSION_ID, "--leaf", "zz", code=4).stderr.splitlines()) == 1


def test_python_gets_the_value_and_the_notes(flue: Flue) -> None:
    flue.import_every_type()

    async def look(session: Session) -> None:
        exported = await flue_py.export_session(session, "anthropic", leaf="u0000001")
        assert exported.value == [{"role": "user", "content": [{"type": "text", "text": "Add a parser"}]}]
        assert "left out: the title" in [str(note) for note in exported.notes]
        rows = (await flue_py.export_session(session, "pi")).value
        assert isinstance(rows, list)
        assert len(rows) == len(every_type())
        with pytest.raises(
            InvalidArgument,
            match="is not one of pi, claude-code, codex, kimi, gemini-cli, copilot-cli, opencode, mistral-vibe, flue",
        ):
            await flue_py.export_session(session, "word")
        await raises(EntryNotFound, flue_py.export_session(session, "pi", leaf="nobody"))

    in_session(flue, look)


# -- the transcript command -------------------------------------------------------------------------------------------


def test_a_transcript_is_printed_written_and_continued(flue: Flue, tmp_path: Path) -> None:
    session = flue.import_every_type()
    printed = flue.run("export", "markdown", session).stdout
    assert printed.startswith("# Transcript: ")
    path = tmp_path / "t.md"
    report = flue.json("export", "markdown", session, "--output", str(path))
    assert report["outcome"] == "new"
    assert path.read_text() == printed
    assert "is there already" in flue.run("export", "markdown", session, "--output", str(path), code=1).stderr
    assert "unchanged" in flue.run("export", "markdown", session, "--output", str(path), "--append").stdout
    assert "new" in flue.run("export", "markdown", session, "--output", str(path), "--overwrite").stdout
    at_first = flue.run("export", "markdown", session, "--leaf", "u0000001", "--tasks").stdout
    assert at_first.count("\n## ") == 1


@inputs(
    "options",
    [
        ["--append"],
        ["--overwrite"],
        ["--json"],
        ["--output", "x", "--tasks"],
        ["--output", "x", "--append", "--overwrite"],
    ],
)
def test_options_that_do_not_go_together_are_refused(flue: Flue, options: list[str]) -> None:
    session = flue.import_every_type()
    assert "see flue-py export --help" in flue.run("export", "markdown", session, *options, code=2).stderr
