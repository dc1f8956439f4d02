"""Sessions of Cline's command line, as it writes them: ``python -m tests.programs.make_cline PROGRAM VERSION``.

The program runs in a terminal of tmux, against a model on loopback. Each state of the files is kept, with the requests.
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

PLACE = Path("/tmp/cline-made")
HOME, WORK, SOCKET = PLACE / "home", PLACE / "work", "cline-made"
SESSIONS = HOME / ".cline/data/sessions"
SUMMARY = Turn("## Goal\nA made-up summary.", input=50, cached=0, output=4)
ANSWERS = {
    "SUBTASK": Turn("Sub looks.", [("read_files", {"files": [{"path": f"{WORK}/a.txt"}]})], input=300, cached=100),
    "FILES": Turn(
        "Two files.", [("read_files", {"files": [{"path": f"{WORK}/{name}.txt"}]}) for name in "ab"], thoughts="Think."
    ),
    "EDIT": Turn("Edit.", [("run_commands", {"commands": ["echo more >> a.txt"]})]),
    "SPAWN": Turn("Spawn.", [("spawn_agent", {"systemPrompt": "Be short.", "task": "SUBTASK look"})]),
    "FAIL": Turn("made-up refusal", status=400),
}
"""Answers by a word of the last message. A key is pressed, everything else is typed."""
STEPS = (
    *("key Escape", "FILES please", "EDIT please", "SPAWN please", "And now?", "/compact", "After", "/fork", "key y"),
    *("In the fork", "/undo", "key Enter", "key Enter", "key C-u", "FAIL now", "Again", "SLOW now", "key Escape"),
    "Last",
)


def made(program: Path, version: str) -> Path:
    """Run the program, and return the packed file."""
    shutil.rmtree(PLACE, ignore_errors=True)
    WORK.mkdir(parents=True)
    for name, text in (("a.txt", "hello\n"), ("b.txt", "there\n")):
        (WORK / name).write_text(text)
    environment = {"PATH": os.environ["PATH"], "HOME": str(HOME), "LANG": "C.UTF-8", "TERM": "xterm-256color"}

    def run(*words: str | Path) -> None:
        subprocess.run(words, env=environment, cwd=WORK, check=False, stdin=subprocess.DEVNULL, capture_output=True)

    author = ("-c", "user.name=made", "-c", "user.email=made@example.org")
    for words in (("init", "-q"), ("add", "."), (*author, "commit", "-qm", "files")):
        run("git", *words)
    states: list[dict[str, Any]] = []
    answered = 0

    def choose(request: Request) -> Turn:
        nonlocal answered
        _keep(states)
        if not request.has_tools:
            return SUMMARY
        last = json.dumps(request.body["messages"][-1])
        word = next((word for word in ANSWERS if word in last and "spawn_agent" not in last), None)
        if word is not None:
            return ANSWERS[word]
        if "SLOW" in last:
            time.sleep(6)
        answered += 1
        return Turn(f"Answer {answered}.")

    def tmux(*words: str) -> None:
        run("tmux", "-L", SOCKET, *words)

    with Model(choose=choose) as model:
        run(program, "auth", "-p", "openai", "-k", "key", "-m", "made-up", "-b", f"{model.url}/v1")
        tmux("new-session", "-d", "-x", "120", "-y", "40", f"{program} -i")
        time.sleep(5)
        for step in STEPS:
            if step.startswith("key "):
                tmux("send-keys", step[4:])
            else:
                tmux("send-keys", "-l", step)
                time.sleep(1)
                tmux("send-keys", "Enter")
            time.sleep(2 if step.startswith(("key", "SLOW")) else 4)
            _keep(states)
        first = min(path.name for path in SESSIONS.iterdir())
        tmux("kill-server")
        for words, typed in (
            (f"--id {first}", ("Resumed",)),
            ("--compaction basic", ("EDIT please", "/compact", "Shorter")),
        ):
            time.sleep(3)
            tmux("new-session", "-d", "-x", "120", "-y", "40", f"{program} {words} -i")
            time.sleep(9)
            tmux("send-keys", "Escape")
            for text in typed:
                time.sleep(2)
                tmux("send-keys", "-l", text)
                time.sleep(2)
                tmux("send-keys", "Enter")
            time.sleep(6)
            tmux("kill-server")
            _keep(states)
        requests = [request.body.get("messages", [])[1:] for request in model.requests]
    time.sleep(3)
    _end_hub()
    folder = PLACE / "packed"
    folder.mkdir()
    for name, value in (("states.json", states), ("requests.json", requests)):
        (folder / name).write_text(json.dumps(value))
    return pack(folder, f"cline-{version}", [])


def _keep(states: list[dict[str, Any]]) -> None:
    """Keep the files of the sessions as they are now, if they have changed."""
    state = {}
    for path in sorted(SESSIONS.glob("*/*.json")):
        try:
            value = json.loads(path.read_text())
        except ValueError:
            continue
        if "system_prompt" in value:
            value["system_prompt"] = value["system_prompt"][:60]
        value.pop("pid", None)
        state[str(path.relative_to(SESSIONS))] = value
    if state and (not states or states[-1] != state):
        states.append(state)


def _end_hub() -> None:
    """End the process that the program leaves behind."""
    listed = subprocess.run(("ps", "-eo", "pid,args"), capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        if "--cline-hub-daemon" in line and str(WORK) in line:
            os.kill(int(line.split()[0]), signal.SIGTERM)


if __name__ == "__main__":
    print(made(Path(sys.argv[1]).absolute(), sys.argv[2]))
