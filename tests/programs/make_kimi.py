"""Make the sessions of Kimi Code: ``python -m tests.programs.make_kimi KIMI FOLDER [NAME]``, Node 22 first in PATH.

The program runs against a model on loopback, with a home in ``FOLDER``. The messages that it sent are in ``sent.json``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.programs.loopback import Model, Request, Turn
from tests.programs.made import pack

MODEL = "__kimi_env_model__"
ABORTED = threading.Event()


def choose(request: Request) -> Turn:
    """Answer by the last words of a person, if nothing was answered since."""
    messages = request.body["messages"]
    texts = [message["content"] for message in messages if message["role"] != "system"]
    last = next((text for text in reversed(texts) if not str(text).startswith("<system-reminder>")), "")
    if messages[-1]["role"] == "tool":
        return Turn("Both were read." if len(texts) % 2 else "The tool answered.", input=1400, cached=1000, output=12)
    last = "handoff summary" if "handoff summary" in str(last) else str(last).rpartition("\n\n")[2]
    if last == "handoff summary":
        return Turn("The user had two files read: AAA and BBB.", input=3000, cached=0, output=70)
    if "both" in last:
        calls = [("Read", {"path": "a.txt"}), ("Read", {"path": "b.txt"})]
        return Turn("Reading.", calls, "Look at both.", reasoning=8)
    if "agent" in last:
        return Turn("Asking.", [("Agent", {"prompt": "Say what is in both files.", "description": "Read files"})])
    if "fails" in last:
        return Turn("made-up refusal", status=400)
    if "waits" in last:
        ABORTED.wait(10)
    return Turn(f"Answer to: {last}", input=2000, cached=1500, output=30)


class Kimi:
    """The program, its home, and its server."""

    def __init__(self, program: Path, folder: Path, model: Model) -> None:
        self.program, self.home, self.work = program, folder / "home", folder / "work"
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8"} | {
            "KIMI_MODEL_NAME": "made-up", "KIMI_MODEL_API_KEY": "none", "KIMI_MODEL_BASE_URL": f"{model.url}/v1",
            "KIMI_MODEL_PROVIDER_TYPE": "openai", "KIMI_CODE_NO_AUTO_UPDATE": "1", "KIMI_DISABLE_TELEMETRY": "1",
        }  # fmt: skip
        self.url = ""

    def run(self, *arguments: str) -> str:
        """Run a command, and return its output."""
        command = [str(self.program), *arguments]
        result = subprocess.run(
            command, check=False, cwd=self.work, env=self.env, capture_output=True, text=True, timeout=90
        )
        return result.stdout + result.stderr

    def session(self, *arguments: str) -> str:
        """Run a prompt, and return the session's id."""
        return re.findall(r"session_[0-9a-f-]{36}", self.run(*arguments))[-1]

    def serve(self) -> subprocess.Popen[bytes]:
        """Start the server, and wait until it answers."""
        arguments = ["web", "--port", "58991", "--no-open", "--dangerous-bypass-auth"]
        command = [str(self.program), *arguments]
        silent = subprocess.DEVNULL
        server = subprocess.Popen(command, cwd=self.work, env=self.env, stdout=silent, stderr=silent)
        self.url = "http://127.0.0.1:58991/api/v1"
        for _ in range(100):
            try:
                self.post("GET", "/sessions")
                break
            except OSError:
                time.sleep(0.1)
        return server

    def post(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the server."""
        data = None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"content-type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def prompt(self, session: str, text: str) -> None:
        """Send a prompt, and wait until it was answered."""
        fields = {"content": [{"type": "text", "text": text}], "permission_mode": "auto", "model": MODEL}
        self.post("POST", f"/sessions/{session}/prompts", fields)
        self.wait(session)

    def wait(self, session: str) -> None:
        """Wait until a session does nothing."""
        time.sleep(0.3)
        while self.post("GET", f"/sessions/{session}")["data"]["busy"]:
            time.sleep(0.1)
        time.sleep(0.3)


def shorten(home: Path) -> None:
    """Cut system prompts and tools, which are of the program, out of the files."""
    for path in home.glob(".kimi-code/sessions/**/wire.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in rows:
            if "systemPrompt" in row:
                row["systemPrompt"] = row["systemPrompt"][:60]
            if row["type"] == "llm.tools_snapshot":
                row["tools"] = [{"name": tool["name"]} for tool in row["tools"]]
        path.write_text("".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n" for row in rows))


def main(program: Path, folder: Path, name: str | None) -> None:
    (folder / "work").mkdir(parents=True)
    (folder / "home").mkdir()
    (folder / "work/a.txt").write_text("AAA\n")
    (folder / "work/b.txt").write_text("BBB\n")
    names: dict[str, str] = {}
    with Model(choose=choose) as model:
        kimi = Kimi(program, folder, model)
        names["plain"] = kimi.session("-p", "Say what is in both files.")
        kimi.session("-c", "-p", "Thanks.")
        names["agent"] = kimi.session("-p", "Let an agent look.")
        names["fork"] = re.findall(r"session_[0-9a-f-]{36}", kimi.run("fork", "-y", names["plain"]))[0]
        kimi.session("-S", names["fork"], "-p", "Go on in the fork.")
        server = kimi.serve()
        try:
            plain, workspace = names["plain"], kimi.post("GET", f"/sessions/{names['plain']}")["data"]["workspace_id"]
            create = {"workspace_id": workspace, "title": "A title of a person", "metadata": {"cwd": str(kimi.work)}}
            names["edited"] = edited = kimi.post("POST", "/sessions", create)["data"]["id"]
            for text in ("Say what is in both files.", "The second.", "The third."):
                kimi.prompt(edited, text)
            kimi.post("POST", f"/sessions/{edited}:undo", {"count": 1})
            kimi.prompt(edited, "Another third.")
            kimi.post("POST", f"/sessions/{edited}:undo", {"count": 2})
            kimi.prompt(edited, "Another second.")
            kimi.prompt(edited, "This fails.")
            kimi.prompt(edited, "After it.")
            kimi.post("POST", f"/sessions/{edited}:compact", {})
            kimi.wait(edited)
            kimi.prompt(edited, "After the compaction.")
            fields = {"content": [{"type": "text", "text": "This waits."}], "permission_mode": "auto", "model": MODEL}
            kimi.post("POST", f"/sessions/{edited}/prompts", fields)
            time.sleep(1)
            kimi.post("POST", f"/sessions/{edited}:abort", {})
            ABORTED.set()
            kimi.wait(edited)
            kimi.prompt(edited, "At the end.")
            kimi.prompt(plain, "And now?")
            kimi.post("POST", f"/sessions/{plain}:undo", {"count": 2})
            kimi.prompt(plain, "Once more.")
            kimi.post("POST", f"/sessions/{plain}/profile", {"title": "Renamed"})
            time.sleep(0.5)
        finally:
            server.terminate()
            server.wait(20)
        sent = [request.body["messages"][1:] for request in model.requests]
    (folder / "sent.json").write_text(json.dumps({"names": names, "sent": sent}))
    shorten(folder / "home")
    if name is not None:
        print(
            pack(folder, name, ["sent.json", "home/.kimi-code/sessions/**/wire.jsonl", "home/**/session_*/state.json"])
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
