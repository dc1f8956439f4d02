"""The commands that a script writes with: new, append, task, compact; and their exit codes."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from flue_py import errors
from flue_py.cli import command as given
from flue_py.cli import compact, main
from flue_py.cli.main import BAD_INPUT, BUSY, CHANGED, FAILED, NOT_FOUND, REFUSED, TAKEN, exit_code_of
from tests.edges.cli_runs import COMMAND, Flue, runner
from tests.postgres import NewDatabase
from tests.tables import inputs

ANSWERS: dict[str, Any] = {
    "ours": {"role": "assistant", "content": "Well."},
    "anthropic": {"role": "assistant", "content": [{"type": "text", "text": "Well."}], "stop_reason": "end_turn"},
    "openai-chat": {"role": "assistant", "content": "Well.", "refusal": None},
    "openai-responses": {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Well."}]},
    "gemini": {"role": "model", "parts": [{"text": "Well."}]},
}

BAD = {
    "nothing": b"", "half": b'{"role": "user", ', "a number": b"5",
    "no list of objects": b'[{"role": "user", "content": "x"}, 5]', "an empty list": b"[]",
    "no UTF-8": b'{"role": "user", "content": "\xff"}', "no JSON": b'{"role": "user", "content": NaN}',
    "no role": b'{"content": "x"}', "the second is none": b'[{"role": "user", "content": "x"}, {"role": 5}]',
    "deep": b"[" * 100_000,
    "a completion of two answers": b'{"choices": [{"message": {"content": "x"}}, {"message": {"content": "y"}}]}',
}  # fmt: skip


def given_to(flue: Flue, data: bytes, *arguments: str, code: int = 0) -> str:
    """Run a command with standard input; return what it printed."""
    done = runner().invoke(main, ["--db", str(flue.database), *arguments], input=data, prog_name="flue-py")
    assert done.exit_code == code, (done.exit_code, done.stdout, done.stderr)
    assert len(done.stderr.splitlines()) == (1 if code else 0), done.stderr
    return done.stdout.strip()


def verified(flue: Flue) -> None:
    assert flue.json("verify")["problems"] == []


def test_new_makes_a_private_database_and_prints_the_id_alone(flue: Flue) -> None:
    flue.database = flue.folder / "folder" / "sessions.db"
    session = flue.run("new", "--key", "talk", "--title", "A talk", "--project", str(flue.folder)).stdout.strip()
    assert stat.S_IMODE(flue.database.stat().st_mode) == 0o600
    assert stat.S_IMODE(flue.database.parent.stat().st_mode) == 0o700
    row = flue.json("show", "talk")
    assert (row["id"], row["title"], row["cwd"]) == (session, "A talk", str(flue.folder))
    assert "exists" in flue.run("new", "--key", "talk", code=TAKEN).stderr
    assert flue.run("new", "--key", "talk", "--if-missing").stdout.strip() == session
    assert flue.json("new", "--key", "talk", "--scope", "other")["id"] != session
    assert "--key" in flue.run("new", "--if-missing", code=2).stderr
    verified(flue)


def test_append_prints_the_leaf_that_the_next_one_expects(flue: Flue) -> None:
    flue.run("new", "--key", "talk")
    assert flue.run("show", "talk", "--print-leaf").stdout == "\n"
    first = flue.run("append", "talk", "Hello", "--expected", "").stdout.strip()
    assert flue.run("show", "talk", "--print-leaf").stdout.strip() == first
    second = given_to(flue, b"Well,\nhello.\n", "append", "talk", "-", "--role", "assistant", "--expected", first)
    assert [entry["id"] for entry in flue.json("show", "talk", "--path")] == [first, second]
    assert flue.json("context", "talk")[1]["content"] == "Well,\nhello.\n"
    assert "--print-leaf" in flue.run("show", "talk", first, "--print-leaf", code=2).stderr
    verified(flue)


@inputs("form", ANSWERS)
def test_an_answer_in_any_form_is_appended_and_asked_for_again_in_that_form(flue: Flue, form: str) -> None:
    flue.run("append", form, "Hello", "--create")
    given_to(flue, json.dumps(ANSWERS[form]).encode(), "append", form)
    field = {"gemini": "contents", "openai-responses": "input"}.get(form, "messages")
    request = flue.json("context", form, *([] if form == "ours" else ["--target", form]))
    said = request if form == "ours" else request[field]
    assert "Well." in json.dumps(said[1])
    verified(flue)


def test_requests_have_the_names_of_their_provider(flue: Flue) -> None:
    flue.run("append", "talk", "Hello", "--create")
    prompt = flue.folder / "prompt.txt"
    prompt.write_text("Be brief.")
    names = {
        form: set(flue.json("context", "talk", "--target", form, "--system", str(prompt)))
        for form in ("anthropic", "openai-chat", "openai-responses", "gemini")
    }
    assert names == {
        "anthropic": {"system", "messages"},
        "openai-chat": {"messages"},
        "openai-responses": {"input"},
        "gemini": {"systemInstruction", "contents"},
    }


@inputs("data", BAD.values(), ids=BAD)
def test_bad_input_writes_nothing(flue: Flue, data: bytes) -> None:
    given_to(flue, data, "append", "talk", "--create", code=BAD_INPUT)
    assert not flue.database.exists()


@inputs("data", BAD.values(), ids=BAD)
def test_bad_input_leaves_a_session_as_it_is(flue: Flue, data: bytes) -> None:
    flue.run("append", "talk", "Hello", "--create")
    before = flue.json("show", "talk")
    given_to(flue, data, "append", "talk", code=BAD_INPUT)
    assert flue.json("show", "talk") == before


def test_text_that_is_none_is_bad_input_too(flue: Flue) -> None:
    for data in (b"", b" \n", b"\xff"):
        given_to(flue, data, "append", "talk", "-", "--create", code=BAD_INPUT)
    assert "empty" in flue.run("append", "talk", "", "--create", code=BAD_INPUT).stderr
    assert not flue.database.exists()


def test_input_is_read_up_to_a_bound(flue: Flue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given, "MOST_BYTES_OF_INPUT", 100)
    flue.run("append", "talk", "Hello", "--create")
    given_to(flue, b"x" * 100, "append", "talk", "-")
    given_to(flue, b"x" * 101, "append", "talk", "-", code=BAD_INPUT)
    given_to(flue, b" " * 101, "append", "talk", code=BAD_INPUT)
    given_to(flue, b"x" * 101, "memory", "add", "a", "-", code=BAD_INPUT)
    assert len(flue.json("show", "talk", "--path")) == 2


def test_append_makes_nothing_unless_told(flue: Flue) -> None:
    flue.run("append", "talk", "Hello", code=FAILED)
    assert not flue.database.exists()
    flue.run("new", "--key", "other")
    flue.run("append", "talk", "Hello", code=NOT_FOUND)
    assert len(flue.json("sessions")) == 1
    flue.run("append", "talk", "Hello", "--create")
    flue.run("append", "talk", "Hello again", "--create")
    assert flue.json("show", "talk")["messageCount"] == 2
    assert stat.S_IMODE(flue.database.stat().st_mode) == 0o600
    flue.run("append", "talk", "x", "--create", "--expected", "leaf", code=2)
    flue.run("append", "new", "x", "--create", "--idempotency-key", "k" * 2_000, code=FAILED)
    assert len(flue.json("sessions")) == 2


def test_a_moved_leaf_is_code_5_a_branch_or_below_what_is_there(flue: Flue) -> None:
    first = flue.run("append", "talk", "Hello", "--create").stdout.strip()
    second = flue.run("append", "talk", "More").stdout.strip()
    assert "leaf" in flue.run("append", "talk", "Late", "--expected", first, code=CHANGED).stderr
    assert flue.run("show", "talk", "--print-leaf").stdout.strip() == second
    branch = flue.json("append", "talk", "Late", "--expected", first, "--on-conflict", "branch")
    assert (branch["parentId"], branch["leafId"], branch["onBranch"]) == (first, second, True)
    rebased = flue.json("append", "talk", "Late", "--expected", first, "--on-conflict", "rebase")
    assert (rebased["parentId"], rebased["leafId"]) == (second, rebased["entryId"])
    before = flue.json("show", "talk")
    flue.run("append", "talk", "Late", "--expected", first, "--note-conflict", code=CHANGED)
    after = flue.json("show", "talk")
    assert {name for name in after if after[name] != before[name]} <= {"revision", "updatedAt"}
    (line, *_) = flue.json("log", "talk")
    leaf = rebased["entryId"]
    refused = f"append refused: it builds on leaf '{first}', and the leaf is '{leaf}'"
    assert (line["what"], line["by"], line["why"]) == ("metadata", "flue-py", refused)
    event = json.loads(flue.run("events").stdout.splitlines()[-1])
    assert (event["type"], event["by"], event["why"]) == ("session_changed", "flue-py", refused)
    flue.run("append", "talk", "In time", "--expected", leaf, "--note-conflict")
    assert flue.json("log", "talk")[0]["what"] == "append"
    flue.run("task", "talk", "t", "--expected", first, code=CHANGED)
    flue.run("compact", "talk", "--expected", first, code=CHANGED)
    verified(flue)


def test_a_script_writes_to_postgres_alike(new_store_database: NewDatabase) -> None:
    flue = Flue(Path())
    flue.database = new_store_database()  # type: ignore[assignment]
    flue.run("new", "--key", "talk")
    first = flue.run("append", "talk", "Hello", "--expected", "").stdout.strip()
    flue.run("append", "talk", "Late", "--expected", "", code=CHANGED)
    flue.run("new", "--key", "talk", code=TAKEN)
    given_to(flue, BAD["half"], "append", "talk", code=BAD_INPUT)
    given_to(flue, json.dumps(ANSWERS["anthropic"]).encode(), "append", "talk", "--expected", first)
    task = flue.run("task", "talk", "t").stdout.strip()
    assert flue.json("show", "talk")["tasks"][0]["sessionId"] == task
    assert len(flue.json("context", "talk", "--target", "anthropic")["messages"]) == 2
    verified(flue)


def test_a_key_is_done_once_and_other_content_is_code_6(flue: Flue) -> None:
    once = flue.json("append", "talk", "Hello", "--create", "--idempotency-key", "1")
    again = flue.json("append", "talk", "Hello", "--create", "--idempotency-key", "1")
    assert (once["entryId"], once["replayed"], again["replayed"]) == (again["entryId"], False, True)
    flue.run("append", "talk", "Other", "--idempotency-key", "1", code=TAKEN)
    assert len(flue.json("show", "talk", "--path")) == 1


def test_a_task_is_made_once_and_ends(flue: Flue) -> None:
    flue.run("append", "talk", "Hello", "--create")
    task = flue.run("task", "talk", "t1", "--title", "Look", "--key", "look").stdout.strip()
    assert flue.run("task", "talk", "t1").stdout.strip() == task
    flue.run("append", "look", "Done.", "--role", "assistant")
    flue.run("task", "talk", "t1", "--end", "done", "--summary", "found it")
    (link,) = flue.json("show", "talk")["tasks"]
    assert (link["sessionId"], link["status"], link["summary"]) == (task, "done", "found it")
    flue.run("task", "talk", "t2", "--end", "failed", code=NOT_FOUND)
    flue.run("task", "talk", "t1", "--summary", "x", code=2)
    flue.run("task", "talk", "t1", "--end", "done", "--title", "x", code=2)
    deep = task
    for level in range(2, 5):
        deep = flue.run("task", deep, f"t{level}").stdout.strip()
    flue.run("task", deep, "too-deep", code=REFUSED)
    verified(flue)


def test_what_was_compacted_meanwhile_is_code_5(flue: Flue, monkeypatch: pytest.MonkeyPatch) -> None:
    flue.run("append", "talk", "Hello", "--create")
    assert flue.run("compact", "talk").exit_code == 0  # nothing to do
    monkeypatch.setattr(compact, "_MEANWHILE", (flue.json("compact", "talk")["reason"],))
    flue.run("compact", "talk", code=CHANGED)


def test_every_error_has_one_code() -> None:
    made = {
        errors.LeafConflict("s", None, "x"): CHANGED, errors.RevisionConflict("s", 1, 2): CHANGED,
        errors.SessionExists("s"): TAKEN, errors.IdempotencyConflict("s", "k"): TAKEN, errors.StoreBusy("busy"): BUSY,
        errors.OutcomeUnknown("lost"): BUSY, errors.RateLimited("wait"): BUSY,
        errors.TaskDepthExceeded("deep"): REFUSED, errors.ModelRefused("no"): REFUSED,
        errors.EntryNotFound("s", "e"): NOT_FOUND, errors.AmbiguousId("a", ("ab", "ac")): NOT_FOUND,
        errors.InvalidEntry("no"): BAD_INPUT, errors.InvalidArgument("no"): FAILED, errors.CorruptStore("odd"): FAILED,
    }  # fmt: skip
    assert {str(error): exit_code_of(error) for error in made} == {str(error): code for error, code in made.items()}


@pytest.mark.thorough
def test_many_processes_make_one_session_and_append_each_its_own(flue: Flue) -> None:
    def started(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, "--db", str(flue.database), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    made = [started("new", "--key", "talk", "--if-missing") for _ in range(4)]
    assert len({process.communicate(timeout=60)[0] for process in made}) == 1
    writers = [started("append", "talk", f"message {number}") for number in range(4)]
    ids = [process.communicate(timeout=60)[0].strip() for process in writers]
    assert {entry["id"] for entry in flue.json("show", "talk", "--path")} == set(ids)
    verified(flue)
