"""Makes the files of Gemini CLI for its tests: ``python -m tests.programs.make_gemini_cli COMMAND FOLDER``.

``COMMAND`` is the program (npm @google/gemini-cli), with Node 22 first in PATH; below ``FOLDER`` is its made-up home.
"""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import subprocess
import sys
import termios
import time
from pathlib import Path

from tests.programs.loopback import JsonObject, Model, Request, Turn
from tests.programs.made import pack

SETTINGS = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "general": {"disableAutoUpdate": True}}
ENTER, UP, CLEAR = "\r", "\x1b[A", "\x15"


def answer_to(request: Request) -> Turn:
    """Return the answer to the last thing that was said."""
    contents = request.body.get("contents") or [{}]
    last = contents[-1].get("parts") or [{}]
    said = " ".join(part.get("text", "") for part in last)
    tools = json.dumps(request.body.get("tools"))
    if not request.has_tools:
        return Turn("Two files were read; they have AAA and BBB.", input=700, cached=0, output=11)
    if "functionResponse" in last[0]:
        return Turn("They have what they have.", input=1500, cached=900, output=12)
    if "complete_task" in tools:
        return Turn("Looked.", [("complete_task", {"result": "There are two files."})], input=300, cached=0, output=9)
    if "Read" in said:
        calls: list[tuple[str, JsonObject]] = [("read_file", {"file_path": f"{name}.txt"}) for name in "ab"]
        return Turn("Reading both.", calls, thoughts="**Looking** at the files.", output=30, reasoning=5)
    if "agent" in said:
        return Turn("Asking.", [("invoke_agent", {"agent_name": "generalist", "prompt": "Look around."})])
    if "fail" in said:
        return Turn(status=400)
    return Turn(f"You said: {said[-40:]}", input=1600, cached=1000, output=8)


def run(command: Path, home: Path, work: Path, url: str, *arguments: str, keys: list[str] | None = None) -> None:
    """Run the program: with a prompt, or at a terminal with these keys, each followed by a pause."""
    path = f"{command.parent}:{os.environ['PATH']}"
    words = {"HOME": str(home), "LANG": "C.UTF-8", "PATH": path, "TERM": "xterm-256color"}
    environment = words | {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "made-up"}
    line = [str(command), "--skip-trust", "-y", "-m", "gemini-2.5-flash", *arguments]
    if keys is None:
        subprocess.run(line, cwd=work, env=environment, stdin=subprocess.DEVNULL, timeout=100, check=False)
        return
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (45, 120))
    with subprocess.Popen(line, cwd=work, env=environment, stdin=slave, stdout=slave, stderr=slave) as process:
        for key in ["", *keys]:
            if key == ENTER:
                time.sleep(0.7)
            os.write(master, key.encode())
            end = time.monotonic() + (9 if key == "" else 2.5)
            while time.monotonic() < end:
                if select.select([master], [], [], 0.1)[0]:
                    data = os.read(master, 65536)
                    if "-v" in sys.argv:
                        sys.stdout.buffer.write(data)
        process.terminate()


def main(command: Path, folder: Path) -> None:
    """Run the sessions, and pack the files that they leave."""
    home, work = folder / "home", folder / "work"
    (home / ".gemini").mkdir(parents=True)
    work.mkdir()
    (home / ".gemini/settings.json").write_text(json.dumps(SETTINGS))
    for name, text in (("a", "AAA\n"), ("b", "BBB\n")):
        (work / f"{name}.txt").write_text(text)
    chats, kept = home / ".gemini/tmp/work", folder / "kept/.gemini/tmp/work"
    typed = [key for line in ("Read them.", "What else", "/rewind") for key in (line, ENTER)]
    typed += [UP, ENTER, ENTER, CLEAR, "Something else.", ENTER, "Please fail.", ENTER, "/chat save saved", ENTER]
    typed += ["/compress", ENTER, "", "And now", ENTER, "/quit", ENTER]
    with Model(choose=answer_to) as model:

        def step(*arguments: str, keys: list[str] | None = None) -> None:
            run(command, home, work, model.url, *arguments, keys=keys)
            # The program deletes files of sessions that were resumed when it is started anew.
            shutil.copytree(chats, kept, dirs_exist_ok=True)

        time.sleep(61 - time.time() % 60)
        step("-p", "Read a.txt and b.txt.")
        first = next(chats.glob("chats/session-*.jsonl"))
        step("--resume", "latest", "-p", "Thanks.")
        step("--session-file", str(first), "-p", "And elsewhere")
        time.sleep(61 - time.time() % 60)
        (work / "c.txt").write_text("CCC\n")
        name = json.loads(first.read_text().partition("\n")[0])["sessionId"]
        step("--resume", name, "-p", "Once more.")
        step("-p", "Ask an agent.")
        step(keys=typed)
    sent = [request.body.get("contents") for request in model.requests if request.has_tools]
    (folder / "kept/sent.json").write_text(json.dumps(sent))
    patterns = ["sent.json", ".gemini/tmp/**/*.json*", ".gemini/tmp/*/.project_root"]
    print(pack(folder / "kept", "gemini-cli-0.61.0", patterns))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
