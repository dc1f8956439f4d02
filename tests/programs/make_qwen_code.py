"""Sessions of Qwen Code, written by the program itself: ``python -m tests.programs.make_qwen_code PROGRAM NODE``.

``PROGRAM`` is the path of ``qwen``, ``NODE`` the folder of its node. The requests that it sent last are packed as well.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.programs.loopback import Model, Request, Turn
from tests.programs.made import pack

WORK = Path("/tmp/qwen-made")
HOME, PROJECT = WORK / "home", WORK / "demo"
MAIN = "c0000000-0000-4000-8000-0000000000e1"
SHORT = "c0000000-0000-4000-8000-0000000000e2"
GEMINI = "c0000000-0000-4000-8000-0000000000e3"
STARTED: list[str] = []
"""Requests for the answer that is empty the first time."""

LONG_TEXT = "A long story of many words that says nothing at all. " * 60


def chosen(request: Request) -> Turn:
    """Return the answer to a request, by the last words in it."""
    work = {"description": "look", "subagent_type": "general-purpose", "run_in_background": False}
    messages = request.body.get("messages") or request.body.get("contents", [])
    content, number = messages[-1].get("content") or messages[-1].get("parts"), len(messages)
    words = content if isinstance(content, str) else content[-1].get("text", "")
    if "summarizes a con" in words or not request.has_tools:
        return Turn("<state_snapshot>They read two files.</state_snapshot>", input=1900, cached=0, output=14)
    if words.startswith("HANG"):
        time.sleep(6)
    if words.startswith("READ"):
        files = [("read_file", {"file_path": str(PROJECT / name)}) for name in ("a.txt", "b.txt")]
        return Turn("Reading.", files, "Two files.", output=25, reasoning=5)
    if words.startswith("DELEGATE"):
        return Turn("", [("agent", {**work, "prompt": "NEST it"}), ("agent", {**work, "prompt": "LOOK at b.txt"})])
    if words.startswith("NEST"):
        return Turn("", [("agent", {**work, "prompt": "LOOK at a.txt"})])
    if words.startswith("EMPTY"):
        STARTED.append(words)
        return Turn("" if len(STARTED) == 1 else "At last.", output=3)
    if words.startswith("LOOK"):
        return Turn("", [("read_file", {"file_path": str(PROJECT / "a.txt")})], input=700, cached=0)
    if words.startswith("BREAK"):
        return Turn("made-up failure", status=400)
    if words.startswith("LONG"):
        return Turn(LONG_TEXT, input=2000, output=900)
    return Turn(f"Answer {number}.", input=1000 + number)


class Program:
    """Qwen Code with a home of its own and a model on loopback."""

    def __init__(self, program: str, node: str, model: Model) -> None:
        self._program = program
        self.provider = "openai"
        self._about = {"PATH": f"{node}:/usr/bin:/bin", "HOME": str(HOME), "LANG": "C.UTF-8"}
        self._about |= {"OPENAI_BASE_URL": f"{model.url}/v1", "OPENAI_API_KEY": "x", "OPENAI_MODEL": "made-up"}
        self._about |= {"GOOGLE_GEMINI_BASE_URL": model.url, "GEMINI_API_KEY": "x", "GEMINI_MODEL": "made-up"}

    def run(self, *words: str, stop_after: float = 0) -> None:
        """Run it once; ``stop_after`` interrupts it after seconds."""
        process = self._begun(*words)
        try:
            process.wait(stop_after or 120)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(30)

    def _begun(self, *words: str, **pipes: Any) -> subprocess.Popen[str]:
        line = [self._program, "--auth-type", self.provider, "-y", *words]
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        about: Any = {"cwd": PROJECT, "env": self._about, "text": True, "start_new_session": True, **quiet, **pipes}
        return subprocess.Popen(line, **about)

    def talk(self, *requests: tuple[str, dict[str, Any]]) -> None:
        """Send requests of the Agent Client Protocol to one process; those of a session name the one it made."""
        process = self._begun("--acp", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        session: dict[str, Any] = {}
        first = ("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        for number, (method, fields) in enumerate((first, ("session/new", {"mcpServers": []}), *requests)):
            params = {"cwd": str(PROJECT), **fields, **session}
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            answer = next(row for row in map(json.loads, process.stdout) if row.get("id") == number)
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            session = {"sessionId": answer["result"]["sessionId"]} if method == "session/new" else session
        process.stdin.close()
        process.wait(30)


def prompt(text: str) -> tuple[str, dict[str, Any]]:
    """Return a request that says a text."""
    return "session/prompt", {"prompt": [{"type": "text", "text": text}]}


def main(program: str, node: str) -> None:
    """Make the sessions, and pack them."""
    shutil.rmtree(WORK, ignore_errors=True)
    for folder in (HOME, PROJECT):
        folder.mkdir(parents=True)
    (PROJECT / "a.txt").write_text("hello a\n")
    (PROJECT / "b.txt").write_text("hello b\n")
    with Model(choose=chosen) as model:
        qwen = Program(program, node, model)
        qwen.run("--session-id", MAIN, "-p", "READ both")
        qwen.run("-c", "-p", "DELEGATE it")
        qwen.run("-c", "-p", "EMPTY at first")
        qwen.run("-c", "-p", "BREAK it")
        qwen.run("-c", "-p", "HANG now", stop_after=4)
        qwen.run("-c", "-p", "and then?")
        qwen.run("-c", "--fork-session", "-p", "in the fork")
        qwen.run("--session-id", SHORT, "-p", "LONG one")
        qwen.run("--resume", SHORT, "-p", "READ both")
        qwen.run("--resume", SHORT, "-p", "/compress")
        qwen.run("--resume", SHORT, "-p", "go on")
        qwen.provider = "gemini"
        qwen.run("--session-id", GEMINI, "-p", "READ both")
        qwen.provider = "openai"
        qwen.talk(
            prompt("first"),
            prompt("second"),
            ("renameSession", {"title": "Two words"}),
            ("rewindSession", {"targetTurnIndex": 1}),
            prompt("another second"),
        )
        sent = [[_short(message) for message in request.body.get("messages", ())] for request in model.requests]
    (HOME / "sent.json").write_text(json.dumps(sent))
    pack(
        HOME,
        "qwen-code-0.24.4",
        [".qwen/projects/*/chats/*", ".qwen/projects/*/subagents/*/*", ".qwen/usage/*", "*.json"],
    )


def _short(message: dict[str, Any]) -> list[Any]:
    """Return the role of a message, its texts, cut, and the ids of its calls, or of the call that it answers."""
    content = message.get("content") or ""
    texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    calls = [call["id"] for call in message.get("tool_calls", ())]
    return [message["role"], [text[:60] for text in texts if text], message.get("tool_call_id") or calls]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
