"""Make the logs of llm: ``python -m tests.programs.make_llm LLM OLDER FOLDER [NAME]``.

``OLDER`` is of a version before 0.36, and ``LLM`` goes on with its database. Both run against a model on loopback, with
their databases in ``FOLDER``; ``FOLDER/sent.json`` has the last requests.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.programs.loopback import Model, Request, Turn
from tests.programs.made import pack

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
FORK = """
import sqlite_utils
from llm.logs import LogStore
store = LogStore(sqlite_utils.Database({database!r}))
first = next(store.db.query("select * from turns order by rowid"))
store.fork(first["tip_message_hash"], name="A fork", forked_from=first["thread_id"])
"""


def choose(request: Request) -> Turn:
    """Answer by the last message."""
    messages = request.body["messages"]
    text = json.dumps(messages[-1]["content"])
    if messages[-1]["role"] == "tool":
        return Turn("The tools answered.", input=1400, cached=1000, output=12)
    if "both" in text:
        return Turn("Looking.", [("llm_version", {}), ("llm_time", {})], "Look at both.", reasoning=8)
    if "fails" in text:
        return Turn("made-up refusal", status=400)
    return Turn(f"Answer {len(messages)}.", input=2000, cached=1500, output=30)


def main(program: Path, older: Path, folder: Path, name: str | None) -> None:
    folder = folder.absolute()
    user = folder / "llm"
    user.mkdir(parents=True)
    (folder / "f.txt").write_text("A fragment.\n")
    (folder / "p.png").write_bytes(base64.b64decode(PICTURE))
    with Model(choose=choose) as model:
        fields = {"model_id": "made-up", "model_name": "made-up-1", "api_base": f"{model.url}/v1"}
        text = json.dumps([fields | {"supports_tools": True, "vision": True}])
        (user / "extra-openai-models.yaml").write_text(text)
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "LLM_USER_PATH": str(user)}
        env |= {"OPENAI_API_KEY": "none"}
        sent: dict[str, object] = {}

        def run(where: Path, *arguments: str, stdin: bytes = b"") -> None:
            command = [str(where), *arguments]
            done = subprocess.run(
                command, check=False, cwd=folder, env=env, capture_output=True, input=stdin, timeout=60
            )
            print(*arguments[-2:], done.stdout[-60:], done.stderr[-200:])
            if model.requests:
                sent[arguments[-1]] = model.requests[-1].body["messages"]

        def talk(where: Path, sign: str) -> None:
            new = ("-m", "made-up")
            run(where, *new, "-s", "Be brief.", f"One{sign}.")
            run(where, "-c", f"Two{sign}.")
            run(where, *new, "-T", "llm_version", "-T", "llm_time", f"Say both{sign}.")
            run(where, "-c", f"And then{sign}?")
            run(where, *new, "-f", "f.txt", "-a", "p.png", f"Look{sign}.")
            run(where, "-c", f"This fails{sign}.")
            picture = base64.b64decode(PICTURE)
            run(where, *new, "-a", "-", "-s", "See.", f"A piped picture{sign}.", stdin=picture)

        talk(older, " before")
        shutil.copyfile(user / "logs.db", folder / "older.db")
        run(program, "-c", "Go on since.")
        talk(program, "")
        run(program, "-m", "made-up", "-s", "Be brief.", "One.")
        script = FORK.format(database=str(user / "logs.db"))
        subprocess.run([str(program.with_name("python")), "-c", script], check=True, env=env)
    (folder / "sent.json").write_text(json.dumps(sent, indent=0))
    shutil.move(user / "logs.db", folder / "logs.db")
    if name is not None:
        print(pack(folder, name, ["sent.json", "*.db"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else None)
