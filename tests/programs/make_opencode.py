"""Sessions of OpenCode, made by the real program with a made-up model.

``python -m tests.programs.make_opencode PROGRAM FOLDER [NAME]``: PROGRAM is the path of ``opencode`` (npm opencode-ai,
with Node 22 first in PATH) or of ``kilo`` (npm @kilocode/cli-linux-x64), FOLDER a new folder for its home. With NAME
the database is packed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.programs.loopback import Model, Request, Turn
from tests.programs.made import pack

MODEL = {"providerID": "loop", "modelID": "made-up"}
SUMMARY = "## Goal\nRead the notes. They say: apples, pears."
ANSWERS = {
    "read both": Turn(
        "I read them.",
        calls=[("bash", {"command": "cat a.txt", "description": "Prints a"}), ("read", {"filePath": "b.txt"})],
        thoughts="Two files.",
        reasoning=5,
    ),
    "fail": Turn("made-up failure", status=400),
    "wrong tool": Turn("", calls=[("read", {"filePath": "missing.txt"})], input=1300, output=8),
    "delegate": Turn(
        "", calls=[("task", {"description": "Count fruit", "prompt": "Count the fruit.", "subagent_type": "general"})]
    ),
    "Count the fruit.": Turn("Two kinds.", input=300, cached=0, output=7),
}


def answer(request: Request, waiting: threading.Event) -> Turn:
    """Return the turn for a request, by the last words in it."""
    messages = request.body.get("messages", [])
    last = messages[-1] if messages else {}
    words = json.dumps(last.get("content"))
    if not request.has_tools:
        return Turn(SUMMARY, input=900, cached=0, output=30) if "summary" in words else Turn("Fruit notes", input=50)
    if "wait" in words and last.get("role") == "user":
        waiting.wait(20)
    found = next((turn for said, turn in ANSWERS.items() if said in words and last.get("role") == "user"), None)
    return found or Turn(f"Answer {len(messages)}.", input=1000 + 10 * len(messages), output=10)


class Server:
    """The program's server, and calls to it."""

    def __init__(self, program: Path, home: Path, model: Model) -> None:
        self.work = home / "work"
        config = home / ".config" / program.name
        for folder in (self.work, config):
            folder.mkdir(parents=True, exist_ok=True)
        (self.work / "a.txt").write_text("apples\n")
        (self.work / "b.txt").write_text("pears\n")
        cost = {"input": 3, "output": 15, "cache_read": 0.3}
        made_up = {"name": "Made up", "limit": {"context": 100_000, "output": 1000}, "cost": cost, "reasoning": True}
        options = {"baseURL": f"{model.url}/v1", "apiKey": "made-up"}
        provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"made-up": made_up}}
        settings = {"provider": {"loop": provider}, "model": "loop/made-up", "small_model": "loop/made-up"}
        settings |= {"autoupdate": False, "share": "disabled", "permission": {"*": "allow"}}
        (config / f"{program.name}.json").write_text(json.dumps(settings))
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
        env |= {f"{name}_DISABLE_MODELS_FETCH": "1" for name in ("OPENCODE", "KILO")}
        self._process = subprocess.Popen(
            [program, "serve", "--port", "0"],
            cwd=self.work,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._url = next(found[0] for line in self._process.stdout if (found := re.search(r"http://\S+", line)))

    def close(self) -> None:
        """End the program, which takes a while to end by itself."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def post(self, path: str, body: Any, method: str = "POST") -> Any:
        """Call the server."""
        headers = {"content-type": "application/json"}
        data = json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.loads(response.read() or b"null")

    def say(self, session: str, text: str) -> Any:
        """Send a prompt, and wait for the answer."""
        return self.post(f"/session/{session}/message", {"parts": [{"type": "text", "text": text}]})


def run(server: Server, waiting: threading.Event) -> None:
    """Make the sessions."""

    def created(**fields: Any) -> str:
        return str(server.post("/session", fields)["id"])

    first = created()
    server.say(first, "Please read both files.")
    second = server.say(first, "And now?")["info"]["parentID"]
    third = server.say(first, "One more, please.")["info"]["parentID"]
    fork = server.post(f"/session/{first}/fork", {"messageID": third})["id"]
    server.say(fork, "In the fork.")
    server.post(f"/session/{first}/revert", {"messageID": second})
    server.say(first, "After the revert.")
    server.post(f"/session/{first}", {"title": "Named by hand"}, method="PATCH")
    parent = created(title="Delegation")
    server.say(parent, "Please delegate.")
    compacted = created()
    server.say(compacted, "Please read both files.")
    server.say(compacted, "Go on.")
    server.post(f"/session/{compacted}/summarize", MODEL)
    server.say(compacted, "After the compaction.")
    odd = created()
    with suppress(OSError):
        server.say(odd, "Please fail.")
    server.say(odd, "Use the wrong tool.")
    body = {"parts": [{"type": "text", "text": "Please wait."}]}
    server.post(f"/session/{odd}/prompt_async", body)
    time.sleep(1)
    server.post(f"/session/{odd}/abort", {})
    waiting.set()
    server.say(odd, "After the abort.")
    open_revert = created()
    undone = server.say(open_revert, "Keep this.")
    undone = server.say(open_revert, "Take this back.")["info"]["parentID"]
    server.post(f"/session/{open_revert}/revert", {"messageID": undone})


def without_prompts(request: Request) -> list[Any]:
    """Return the messages of a request without those of the system, which are long."""
    return [message for message in request.body["messages"] if message["role"] != "system"]


def main() -> None:
    """Run the program, and pack its database."""
    program, home = Path(sys.argv[1]), Path(sys.argv[2])
    waiting = threading.Event()
    with Model(choose=lambda request: answer(request, waiting)) as model:
        server = Server(program, home, model)
        try:
            run(server, waiting)
        finally:
            server.close()
    if len(sys.argv) > 3:
        packed = home / "packed"
        packed.mkdir()
        with sqlite3.connect(home / ".local" / "share" / program.name / f"{program.name}.db") as database:
            database.execute("VACUUM INTO ?", (str(packed / f"{program.name}.db"),))
        messages = [without_prompts(request) for request in model.requests if request.has_tools]
        (packed / "requests.json").write_text(json.dumps(messages))
        print(pack(packed, sys.argv[3], []))


if __name__ == "__main__":
    main()
