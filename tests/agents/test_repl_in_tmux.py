"""`flue-py repl` in a real terminal, with a provider on the loopback interface."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.needed import is_required, needs

needs("agents", "pydantic_ai", "prompt_toolkit", "openai")

import flue_py.sync
from tests.models.servers import KEY, Answer, chunks, completion, provider
from tests.terminal import Terminal, run

if shutil.which("tmux") is None and not is_required("agents"):
    pytest.skip("tmux is not installed", allow_module_level=True)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()


def say(terminal: Terminal, text: str, reply: str) -> None:
    terminal.type(text)
    terminal.press("Enter")
    terminal.sees(reply)


def test_nothing_that_was_said_is_lost_with_a_turn_or_with_the_process(tmp_path: Path, terminal: Terminal) -> None:
    database = tmp_path / "a.db"

    def answer(number: int, *texts: str) -> Answer:
        return Answer(chunks(*texts).replace(b"chatcmpl-1", b"chatcmpl-%d" % number))

    def cut_off(number: int, *texts: str) -> Answer:
        sent = chunks(*texts, ends=False).replace(b"chatcmpl-1", b"chatcmpl-%d" % number)
        return Answer(sent, promised=1, pauses=True)

    with provider() as server:
        server.answers = [
            answer(1, "Hello", " there."),
            cut_off(2, "Half an"),
            answer(3, "All fine."),
            cut_off(4, "Lost with", " the process"),
            answer(5, "Again whole."),
            Answer(completion('{"name": "style", "text": "Short answers."}')),
        ]
        call = ["--db", str(database), "repl", "--base-url", f"{server.url}/v1"]
        run(terminal, *call, "--model", "openai-chat:gpt-5", before=f"OPENAI_API_KEY={KEY}")
        terminal.sees("\n1>")
        say(terminal, "Hi", "Hello there.")
        say(terminal, "A long one", "Half an")
        terminal.press("C-c")
        terminal.sees("Interrupted.")
        say(terminal, "And now", "All fine.")
        with flue_py.sync.open(database) as store:
            (info,) = store.list_sessions().sessions
        say(terminal, "Do go on", "the process")
        os.kill(terminal.child(), signal.SIGKILL)
        terminal.sees("ended 137")
        run(terminal, *call, "--resume", info.id[:8], before=f"OPENAI_API_KEY={KEY}")
        terminal.sees("/retry sends it again")
        say(terminal, "/retry", "Again whole.")
        say(terminal, "/quit", f"flue-py show {info.id} --history")
        terminal.sees("Remembered style: Short answers.\nended 0")
    with flue_py.sync.open(database) as store:
        session = store.find_session(info.id)
        path = [entry for entry in session.get_active_path() if entry.kind == "message"]
        assert [entry.role for entry in path] == ["user", "assistant"] * 4
        assert [turn.fields["content"] for turn in session.turns()] == ["Hi", "A long one", "And now", "Do go on"]
        assert "Half an" in str(path[3].fields)
        assert "Again whole." in str(path[7].fields)
        assert not store.verify().problems
    assert not any(KEY.encode() in file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
