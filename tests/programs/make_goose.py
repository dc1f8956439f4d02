"""Make the sessions of Goose: ``python -m tests.programs.make_goose GOOSE FOLDER [NAME]``.

GOOSE is the binary (npm ``@aaif/goose-binary-linux-x64``), FOLDER a new home. The database is kept after each step, as
SQL, with the messages of the last request of the step; of each session at the end, the document that it exports.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from tests.programs.loopback import Model, Request, Turn
from tests.programs.made import pack

OLD = [
    {"working_dir": "/tmp/w", "description": "Old one", "message_count": 2, "accumulated_total_tokens": 30}
    | {"accumulated_input_tokens": 20, "accumulated_output_tokens": 10},
    {"role": "user", "created": 1742900000, "content": [{"type": "text", "text": "Hello."}]},
    {"role": "assistant", "created": 1742900001, "content": [{"type": "text", "text": "Hi."}]},
]
READING = Turn(
    "Reading.", [("shell", {"command": "cat a.txt"}), ("shell", {"command": "exit 3"})], "Two files.", reasoning=5
)
TURNS = {
    "read both": READING,
    "delegate": Turn(calls=[("delegate", {"instructions": "Count the fruit."})]),
    "fails": Turn("made-up failure", status=400),
    "no such": Turn(calls=[("shell", {"command": "echo one"}), ("no_such_tool", {"x": 1})], input=1200),
}


def choose(request: Request) -> Turn:
    """Answer by the last words of a person."""
    messages = request.body["messages"]
    words = json.dumps(messages[-1])
    if not request.has_tools:
        is_summary = "summarize" in words
        return Turn("They are apples." if is_summary else "Fruit notes", input=70, cached=0, output=9)
    if "waits" in words:
        time.sleep(4)
    turn = next((turn for sign, turn in TURNS.items() if sign in words and "tool_result" not in words), None)
    return turn or Turn(f"Answer {len(messages)}.", input=1000 + 10 * len(messages), output=10)


def main(program: Path, home: Path, name: str | None) -> None:
    """Run the program step by step."""
    work, sessions, kept = home / "work", home / ".local/share/goose/sessions", home / "kept"
    for folder in (work, sessions, kept, home / ".config/goose"):
        folder.mkdir(parents=True)
    (work / "a.txt").write_text("apples\n")
    (home / ".config/goose/config.yaml").write_text("GOOSE_TELEMETRY_ENABLED: false\n")
    (kept / "20250325_200615.jsonl").write_text("".join(json.dumps(row) + "\n" for row in OLD))
    (sessions / "20250325_200615.jsonl").write_text((kept / "20250325_200615.jsonl").read_text())
    editor = home / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/And now/And then/" "$1"\n')
    editor.chmod(0o755)
    sent: dict[str, object] = {}
    with Model(choose=choose) as model:
        env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb", "GOOSE_MODE": "auto"}
        env |= {"GOOSE_DISABLE_KEYRING": "1", "ANTHROPIC_API_KEY": "none", "OPENAI_API_KEY": "none"}
        env |= {"ANTHROPIC_HOST": model.url, "OPENAI_HOST": model.url, "GOOSE_PROVIDER": "anthropic"}
        env |= {"GOOSE_MODEL": "claude-sonnet-4-5", "VISUAL": str(editor), "EDITOR": str(editor)}

        def keep(step: str) -> None:
            number = f"{len(list(kept.glob('*.sql'))):02d}"
            with closing(sqlite3.connect(sessions / "sessions.db")) as database:
                # Long, and the same in all: the list of extensions.
                database.execute("UPDATE sessions SET extension_data = '{}'")
                dump = [line for line in database.iterdump() if "provider_inventory" not in line]
            (kept / f"{number} {step}.sql").write_text("\n".join(dump))
            asked = [request for request in model.requests if request.has_tools]
            sent[f"{number} {step}"] = [
                message for message in asked[-1].body["messages"] if message["role"] != "system"
            ]

        def run(step: str, *arguments: str, stdin: str = "", **more: str) -> None:
            command = [str(program), *arguments]
            subprocess.run(
                command, check=False, cwd=work, env=env | more, input=stdin.encode(), capture_output=True, timeout=60
            )
            keep(step)

        first = f"{datetime.now(UTC):%Y%m%d}_1"
        there = ("--session-id", first)
        run("read", "run", "-t", "Please read both files.")
        run("resumed", "run", "-r", "-t", "And now?")
        run("forked", "session", "-r", "--fork", *there, stdin="In the fork.\n/exit\n")
        run("edited", "session", "-r", "--edit", *there, stdin="After the edit.\n/exit\n")
        run("compacted", "run", "-r", *there, "-t", "/compact")
        run("went on", "run", "-r", *there, "-t", "After the compaction.")
        run("by itself", "run", "-r", *there, "-t", "Once more.", GOOSE_AUTO_COMPACT_THRESHOLD="0.001")
        run("delegated", "run", "-n", "By hand", "-t", "Please delegate.")
        run("failed", "run", "-t", "This fails.")
        command = [str(program), "run", "-r", "-t", "This waits."]
        process = subprocess.Popen(command, cwd=work, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        process.wait(20)
        keep("aborted")
        run("no tool", "run", "-t", "Use no such tool.", GOOSE_PROVIDER="openai", GOOSE_MODEL="gpt-4o")
        run("cleared", "session", "-r", *there, stdin="/clear\nAfter all.\n/exit\n")
        with closing(sqlite3.connect(sessions / "sessions.db")) as database:
            names = [row[0] for row in database.execute("SELECT id FROM sessions ORDER BY rowid")]
        (kept / "export").mkdir()
        for each in names:
            export = [str(program), "session", "export", "--session-id", each, "--format", "json"]
            subprocess.run([*export, "-o", str(kept / "export" / f"{each}.json")], check=True, env=env, timeout=60)
    (kept / "sent.json").write_text(json.dumps(sent, indent=0))
    if name is not None:
        print(pack(kept, name, []))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(os.path.abspath(sys.argv[2])), sys.argv[3] if len(sys.argv) > 3 else None)
