"""The events command: JSON lines for other programs, followed, killed and gone on from."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

import flue_py
from flue_py.cli.main import INTERRUPTED, NOT_FOUND, READER_GONE
from flue_py.render.views import event_row
from tests.edges.cli_runs import COMMAND, Flue
from tests.postgres import NewDatabase
from tests.tables import inputs

GUARD_SECONDS = 120
"""Turns a test that hangs into one that fails."""


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        new_database: NewDatabase = request.getfixturevalue("new_store_database")
        return new_database()
    return str(tmp_path / "sessions.db")


def events_of(flue: Flue, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in flue.run("events", *arguments).stdout.splitlines()]


INTERRUPTIBLE = [
    *COMMAND[:-1],
    f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {COMMAND[-1]}",
]
"""What a shell starts in the background ignores an interruption, and so would what the tests start then."""


@contextmanager
def started(
    target: str, *arguments: str, stdout: int | IO[bytes] = subprocess.PIPE
) -> Iterator[subprocess.Popen[bytes]]:
    """Have another process tell events; it is ended at the end, also where a test fails."""
    command = [*INTERRUPTIBLE, "--db", target, "events", *arguments]
    with subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def test_each_event_is_a_line_with_its_session(flue: Flue) -> None:
    session = flue.import_every_type()
    fork = flue.json("fork", session)["id"]
    events = events_of(flue)
    assert {event["session"] for event in events} == {session, fork}
    assert all(list(event)[:4] == ["id", "session", "time", "type"] for event in events)
    assert {"session_created", "turn_start", "answer", "tool_call", "tool_result", "compaction"} <= {
        event["type"] for event in events
    }
    assert all(None not in list(event.values())[3:] for event in events)
    assert events_of(flue, "--session", fork) == [event for event in events if event["session"] == fork]
    assert events_of(flue, "--scope", "nobody") == []
    assert "nobody" in flue.run("events", "--session", "nobody", code=NOT_FOUND).stderr


def test_it_goes_on_behind_an_event_or_a_file(flue: Flue, tmp_path: Path) -> None:
    session = flue.import_every_type()
    events = events_of(flue)
    assert events_of(flue, "--after", events[3]["id"]) == events[4:]
    file = tmp_path / "events.jsonl"
    file.write_bytes(flue.run("events").stdout_bytes)
    assert events_of(flue, "--after-file", str(file)) == []
    # A line that was cut off is told again.
    file.write_bytes(file.read_bytes()[:-5])
    assert events_of(flue, "--after-file", str(file)) == events[-1:]
    flue.run("append", session, "more")
    assert [event["type"] for event in events_of(flue, "--after-file", str(file))] == [events[-1]["type"], "turn_start"]


def test_a_line_without_an_end_is_not_written_behind(flue: Flue, tmp_path: Path) -> None:
    flue.import_every_type()
    file, lines = tmp_path / "events.jsonl", flue.run("events").stdout_bytes
    follow = ("--after-file", str(file))
    file.write_bytes(lines[:-5])
    with file.open("ab") as written, started(str(flue.database), *follow, stdout=written) as process:
        errors = process.communicate(timeout=GUARD_SECONDS)[1]
    assert (process.returncode, len(errors.splitlines()), file.read_bytes()) == (1, 1, lines[:-5])
    file.write_bytes(lines[: lines[:-1].rindex(b"\n") + 1])
    with file.open("ab") as written, started(str(flue.database), *follow, stdout=written) as process:
        assert process.wait(GUARD_SECONDS) == 0
    assert file.read_bytes() == lines


def test_the_deletion_of_a_session_that_is_named_is_told(flue: Flue, tmp_path: Path) -> None:
    session = flue.import_every_type()
    file = tmp_path / "events.jsonl"
    file.write_bytes(flue.run("events", "--session", session).stdout_bytes)
    flue.run("rm", session, "--yes")
    (gone,) = events_of(flue, "--session", session, "--after-file", str(file))
    assert (gone["type"], gone["session"]) == ("session_deleted", session)
    flue.run("events", "--session", session, code=NOT_FOUND)


@inputs("text", ["5\n", "{}\n", "{\n", '{"id": 5}\n', '{"id": "x"}\n', "[" * 50_000 + "\n"])
def test_a_file_that_has_no_events_is_one_line_of_error(flue: Flue, tmp_path: Path, text: str) -> None:
    flue.import_every_type()
    file = tmp_path / "odd.jsonl"
    file.write_text(text)
    for name in (str(file), str(tmp_path), str(tmp_path / "none")):
        result = flue.run("events", "--after-file", name, code=1)
        assert (result.stdout, len(result.stderr.splitlines())) == ("", 1)


@pytest.mark.thorough(but=["sqlite"])
def test_each_event_is_written_once_however_often_the_follower_is_killed(target: str, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    rounds = 3

    def has(wanted: str) -> Callable[[], bool]:
        return lambda: wanted.encode() in file.read_bytes()

    with flue_py.sync.open(target, durability="normal") as store:
        first = store.create_session(key="first")
        doomed, of_budget = [], ""
        for number in range(rounds):
            with (
                file.open("ab") as written,
                started(
                    target, "--follow", *(["--after-file", str(file)] if number else []), stdout=written
                ) as follower,
            ):
                try:
                    other = store.create_session(key=f"other-{number}")
                    doomed.append(store.create_session())
                    budget = store.set_budget(first, tokens=1 + number)
                    of_budget = f"{budget.id}:{budget.created_us}"
                    wait_until(has(doomed[-1].id))
                    for each in range(10):
                        first.append_message({"role": "user", "content": f"{number}.{each}"})
                        other.append_message({"role": "assistant", "content": f"{number}.{each}"})
                        if each == 5:
                            store.delete_session_tree(doomed[-1])
                            with first.money.budgeted(tokens=1):
                                pass
                    if number < rounds - 1:
                        wait_until(has(f'"words":"{number}.5"'))
                    else:
                        wait_until(has(f"{of_budget}:{rounds}:budget_exceeded"))
                finally:
                    follower.kill()
        lines = file.read_bytes().splitlines(keepends=True)
        assert all(line.endswith(b"\n") for line in lines)
        told: list[Any] = [json.loads(line) for line in lines]
        told += [event_row(event) for event in store.events(after=[row["id"] for row in told])]
        ids = [row["id"] for row in told]
        assert len(set(ids)) == len(ids)
        of_doomed = [f"{each.id}:{each.info.created_us}" for each in doomed]
        of_amount = f"{of_budget}:{rounds}:"
        lasting = {name for name in ids if not name.startswith((*of_doomed, of_budget))}
        assert lasting | {name for name in ids if name.startswith(of_amount)} == {event.id for event in store.events()}
        for name in of_doomed:
            assert [each for each in ids if each.startswith(name)] == [f"{name}:0:0", f"{name}:session_deleted"]
        assert [row["words"] for row in told if row["session"] == first.id and row["type"] == "turn_start"] == [
            f"{number}.{each}" for number in range(rounds) for each in range(10)
        ]
        assert store.verify().problems == []


def wait_until(is_so: Callable[[], bool]) -> None:
    stopped = threading.Event()
    guard = threading.Timer(GUARD_SECONDS, stopped.set)
    guard.start()
    while not stopped.is_set() and not is_so():
        stopped.wait(0.01)
    guard.cancel()
    assert is_so()


@pytest.mark.parametrize("number", [signal.SIGINT])
def test_a_follower_that_is_interrupted_ends_with_a_whole_line(target: str, number: int) -> None:
    with flue_py.sync.open(target, durability="normal") as store:
        store.create_session().append_message({"role": "user", "content": "a"})
        with started(target, "--follow") as follower:
            assert follower.stdout is not None
            lines = [follower.stdout.readline(), follower.stdout.readline()]
            follower.send_signal(number)
            rest, errors = follower.communicate(timeout=GUARD_SECONDS)
    assert [json.loads(line)["type"] for line in lines] == ["session_created", "turn_start"]
    assert (follower.returncode, rest) == (INTERRUPTED, b"")
    assert len(errors.splitlines()) == 1


BETWEEN_A_CALL_AND_ITS_AWAIT = f"""
import contextlib, os, signal
leave, signals = contextlib.aclosing.__aexit__, [signal.SIGINT]

def interrupted(self, *exception):
    leaving = leave(self, *exception)
    while signals:
        os.kill(os.getpid(), signals.pop())
    return leaving

contextlib.aclosing.__aexit__ = interrupted
{INTERRUPTIBLE[-1]}
"""


def test_an_interruption_before_an_await_is_one_line_of_error(flue: Flue) -> None:
    flue.import_every_type()
    command = [*INTERRUPTIBLE[:-1], BETWEEN_A_CALL_AND_ITS_AWAIT, "--db", str(flue.database), "events"]
    run = subprocess.run(command, capture_output=True, check=False, timeout=GUARD_SECONDS)
    assert run.returncode == INTERRUPTED
    assert len(run.stderr.splitlines()) == 1


def test_a_follower_whose_reader_goes_away_ends_at_its_next_line(target: str) -> None:
    with flue_py.sync.open(target, durability="normal") as store:
        session = store.create_session()
        with started(target, "--follow") as follower:
            assert follower.stdout is not None
            assert follower.stdout.readline().endswith(b"\n")
            follower.stdout.close()
            session.append_message({"role": "user", "content": "a"})
            assert follower.stderr is not None
            errors = follower.stderr.read()
            assert (follower.wait(GUARD_SECONDS), errors) == (READER_GONE, b"")


def test_no_line_is_cut_by_an_interruption_in_the_midst_of_an_export(flue: Flue) -> None:
    with flue_py.sync.open(flue.database, durability="normal") as store:
        for _ in range(3):
            store.create_session().append_messages(
                [{"role": "user", "content": "x" * 100 + str(number)} for number in range(2_000)]
            )
    ours, theirs = os.pipe()
    with started(str(flue.database), stdout=theirs) as export:
        os.close(theirs)
        with os.fdopen(ours, "rb") as reader:
            text = reader.read(1_000)
            export.send_signal(signal.SIGINT)
            text += reader.read()
        export.communicate(timeout=GUARD_SECONDS)
    assert export.returncode == INTERRUPTED
    assert text.endswith(b"\n")
    assert [json.loads(line)["session"] for line in text.splitlines()]
