"""Make the sessions of Mistral Vibe: ``python -m tests.programs.make_vibe VIBE FOLDER [NAME]``.

The program runs against a model on loopback, with a home in ``FOLDER``. The store is kept after each run, as
``FOLDER/states/N``; ``FOLDER/sent.json`` has the messages of each request.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.programs.loopback import Model, Request, Turn
from tests.programs.made import pack

CONFIG = """active_model = "made"
enable_telemetry = false
enable_update_checks = false
enable_auto_update = false
[[providers]]
name = "loop"
api_base = "{url}/v1"
api_key_env_var = "LOOP_KEY"
api_style = "openai"
backend = "generic"
[[models]]
name = "made-up"
provider = "loop"
alias = "made"
auto_compact_threshold = 30000
"""


def choose(request: Request) -> Turn:
    """Answer by the last message."""
    last = request.body["messages"][-1]
    text = json.dumps(last.get("content"))
    if last["role"] == "tool":
        return Turn("AAA, and hi.")
    if "both" in text and "summary" not in text.lower():
        return Turn("Reading.", [("read_file", {"path": "a.txt"}), ("bash", {"command": "echo hi"})], "Look at both.")
    if "fails" in text and "summary" not in text.lower():
        return Turn("made-up refusal", status=400)
    return Turn("Much." if "Much" in text else "An answer.", input=40000 if "Much" in text else 1000)


def main(program: Path, folder: Path, name: str | None) -> None:
    work, home = folder / "work", folder / "home"
    work.mkdir(parents=True)
    (home / ".vibe").mkdir(parents=True)
    (work / "a.txt").write_text("AAA\n")
    with Model(choose=choose) as model:
        (home / ".vibe/config.toml").write_text(CONFIG.format(url=model.url))
        env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8", "LOOP_KEY": "none"}
        prompts = ("Say both.", "Thanks.", "This fails.", "Much.", "After it.", "At the end.")
        for number, prompt in enumerate(prompts):
            command = [str(program), "--trust", "--yolo", *(["-c"] if number else []), "-p", prompt]
            result = subprocess.run(command, check=False, cwd=work, env=env, capture_output=True, timeout=60)
            print(prompt, result.returncode, result.stdout[-80:], result.stderr[-200:])
            shutil.copytree(home / ".vibe/logs/session/unified", folder / f"states/{number}")
    sent = [request.body["messages"][1:] for request in model.requests]
    (folder / "sent.json").write_text(json.dumps(sent))
    if name is not None:
        patterns = ("CURRENT", "meta.json", "generations/*/manifest.json", "generations/*/checkpoint.json", "chunks/*")
        wanted = [f"states/*/*/{pattern}" for pattern in (*patterns, "generations/*/projection-state.json")]
        print(pack(folder, name, ["sent.json", *wanted]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
