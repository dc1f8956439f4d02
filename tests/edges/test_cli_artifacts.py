"""flue-py artifacts: list, show."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest

import flue_py.sync
from flue_py import JsonObject, OffloadSettings
from tests.edges.cli_runs import Flue
from tests.tables import inputs

TEXT = "".join(f"line {number} of \x1b[31mred\x1b[0m é\n" for number in range(2_000))


@pytest.fixture
def flue(tmp_path: Path) -> Flue:
    """A database whose session has two artifacts, the first of them twice."""
    flue = Flue(tmp_path)
    with flue_py.sync.open(flue.database) as store:
        session = store.create_session(id="alpha", key="triage")
        store.create_session(id="beta")
        for call_id, path, text in (("c1", "src/a.py", TEXT), ("c2", "src/b\n.py", TEXT[::-1]), ("c3", "c", TEXT)):
            part: JsonObject = {"type": "toolCall", "id": call_id, "name": "read", "arguments": {"path": path}}
            result: JsonObject = {"role": "toolResult", "toolCallId": call_id, "toolName": "read", "content": text}
            session.append_messages([{"role": "assistant", "content": [part]}, result], offload=OffloadSettings())
    return flue


def test_artifacts_are_listed_with_what_they_are_of(flue: Flue) -> None:
    first, second, again = flue.json("artifacts", "list", "triage")
    assert first["id"] == again["id"] != second["id"]
    assert [each["hint"] for each in (first, second, again)] == ["path=src/a.py", "path=src/b .py", "path=c"]
    assert {**first, "createdAt": "", "entryId": "", "id": ""} == {
        "id": "", "tool": "read", "hint": "path=src/a.py", "characters": len(TEXT), "callId": "c1", "entryId": "",
        "createdAt": "",
    }  # fmt: skip
    head, *lines = flue.lines("artifacts", "list", "triage")
    assert head.split() == ["artifact", "characters", "made", "tool"]
    assert lines[0].startswith(f"{first['id']}  {len(TEXT):>10,}")
    assert lines[1].endswith("read | path=src/b .py")
    assert flue.lines("artifacts", "list", "beta") == ["there are no artifacts"]
    assert flue.json("artifacts", "list", "beta") == []


def test_an_artifact_is_shown_whole_in_part_and_by_lines(flue: Flue) -> None:
    artifact = flue.json("artifacts", "list", "triage")[0]["id"]
    shown = flue.json("artifacts", "show", "triage", artifact)
    assert (shown["text"], shown["start"], shown["end"], shown["artifact"]["id"]) == (TEXT, 0, len(TEXT), artifact)
    assert flue.json("artifacts", "show", "triage", artifact[:5]) == shown
    part = flue.json("artifacts", "show", "triage", artifact, "--start", "30", "--length", "40")
    assert (part["text"], part["end"], part["firstLine"]) == (TEXT[30:70], 70, TEXT[:30].count("\n") + 1)
    found = flue.json("artifacts", "show", "triage", artifact, "--grep", "LINE 199")
    assert [line["number"] for line in found["found"]] == [200, *range(1991, 2001)]

    lines = flue.lines("artifacts", "show", "triage", artifact, "--grep", "line 199", "--length", "60")
    assert lines[0] == "200: line 199 of \ufffd[31mred\ufffd[0m é"
    assert lines[-1].startswith("(9 more lines; go on with --start ")
    assert flue.lines("artifacts", "show", "triage", artifact, "--grep", "nothing") == ["nothing found"]
    assert len(flue.lines("artifacts", "show", "triage", artifact)) == 2_000
    assert "\x1b" not in flue.run("artifacts", "show", "triage", artifact).stdout


def test_the_entry_of_an_artifact_is_shown_by_its_text(flue: Flue, tmp_path: Path) -> None:
    artifact = flue.json("artifacts", "list", "triage")[0]
    lines = flue.lines("show", "triage", artifact["entryId"])
    assert lines[-1] == "line 1999 of \ufffd[31mred\ufffd[0m é"
    assert f'  "artifact": "{artifact["id"]}",' in lines
    assert len(lines) > 2_000
    page = tmp_path / "page.html"
    flue.run("export", "html", "triage", "--output", str(page))
    said = page.read_text(encoding="utf-8")
    assert "line 1999 of " in said
    assert b64encode(TEXT.encode()).decode()[:200] not in said
    listed = [line for line in flue.lines("show", "triage", "--path") if "artifact" in line.split()[2:3]]
    assert [line.split()[2:] for line in listed] == [["artifact", "read"]] * 3


@inputs(
    ("arguments", "code", "said"),
    [
        (["nothing"], 4, "sees no artifact 'nothing'"),
        ([""], 4, "sees no artifact ''"),
        (["{id}", "--grep", ""], 1, "grep: '' is not words of one line"),
        (["{id}", "--start", "-1"], 2, "--start"),
        (["{id}", "--length", "0"], 2, "--length"),
    ],
)
def test_what_cannot_be_shown_is_said(flue: Flue, arguments: list[str], code: int, said: str) -> None:
    artifact = flue.json("artifacts", "list", "triage")[0]["id"]
    filled = [artifact if each == "{id}" else each for each in arguments]
    assert said in flue.run("artifacts", "show", "triage", *filled, code=code).stderr
