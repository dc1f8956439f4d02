#!/usr/bin/env bash
# session-migrate 0.12.0 (PyPI), which moves sessions between eighteen coding agents: turns that were taken back in Codex or in
# Kimi Code are part of the conversation again, in whatever they are moved to.
#
# Behaviour seen: Codex (to 0.144, which this release names as the one it knows, and later ones with `history_mode` legacy)
# writes `thread_rolled_back` with a number of turns, Kimi Code (wire 1.5) `context.undo` with a count, and both leave the rows
# of the turns in the file, before it. session-migrate knows neither row: it leaves the row out, and keeps the turns. Here the
# second of three turns was taken back, and the third put in its place: in the session of Claude Code that is made of it, the
# prompt "Keep the till." follows on "I deleted it.". With sessions of Claude Code, Pi and Qwen Code it does go by the
# branch that is in use. What it reports is one among the rows without a counterpart in the target: for Codex
# `opaque:thread_rolled_back`, for Kimi Code `opaque:kimi_runtime_record`, the name that every `llm.request` has too.
#
# Needs Python 3.11 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check session-migrate==0.12.0
export HOME=$work PATH="$work/venv/bin:$PATH"
cat >move.py <<'PY'
import json
import subprocess
from pathlib import Path

AT, TIME = "2026-11-27T22:10:00.000Z", 1795899760020
ID = "01a21f0e-c516-76e3-a197-a7b113c848b4"
TURNS = [("Look at the till.", "I looked."), ("Delete the till.", "I deleted it."), ("Keep the till.", "I keep it.")]


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))


def codex():
    """A file of Codex, in which the second turn was taken back."""

    def row(kind, **payload):
        return {"timestamp": AT, "type": kind, "payload": payload}

    def turn(question, answer):
        asked = [{"type": "input_text", "text": question}]
        said = [{"type": "output_text", "text": answer}]
        return [
            row("response_item", type="message", role="user", content=asked),
            row("event_msg", type="user_message", message=question),
            row("event_msg", type="agent_message", message=answer),
            row("response_item", type="message", role="assistant", content=said),
        ]

    about = {"id": ID, "timestamp": AT, "cwd": "/home/ann/shop", "originator": "codex_cli_rs", "source": "cli"}
    rows = [row("session_meta", **about, cli_version="0.144.4", model_provider="openai")]
    rows += [*turn(*TURNS[0]), *turn(*TURNS[1])]
    rows += [row("event_msg", type="thread_rolled_back", num_turns=1), *turn(*TURNS[2])]
    write(Path(f"rollout-2026-11-27T22-10-00-{ID}.jsonl"), rows)
    return f"rollout-2026-11-27T22-10-00-{ID}.jsonl"


def kimi():
    """A session of Kimi Code, in which the second turn was taken back."""

    def row(kind, **fields):
        return {"type": kind, "agentId": "main", **fields, "time": TIME}

    def turn(question, answer):
        content = [{"type": "text", "text": question}]
        message = {"role": "user", "content": content, "toolCalls": [], "origin": {"kind": "user"}}
        step = f"step-of-{answer}"
        part = {"type": "content.part", "stepUuid": step, "part": {"type": "text", "text": answer}}
        return [
            row("context.append_message", message=message),
            row("context.append_loop_event", event={"type": "step.begin", "uuid": step}),
            row("context.append_loop_event", event=part),
            row("context.append_loop_event", event={"type": "step.end", "uuid": step, "finishReason": "end_turn"}),
        ]

    folder = Path(f"session_{ID}")
    rows = [{"type": "metadata", "protocol_version": "1.5", "created_at": TIME}, *turn(*TURNS[0]), *turn(*TURNS[1])]
    write(folder / "agents/main/wire.jsonl", [*rows, row("context.undo", count=1), *turn(*TURNS[2])])
    agents = {"main": {"type": "main", "homedir": str((folder / "agents/main").resolve())}}
    state = {"id": folder.name, "version": 2, "cwd": "/home/ann/shop", "archived": False, "agents": agents}
    (folder / "state.json").write_text(json.dumps(state | {"createdAt": TIME, "updatedAt": TIME}))
    return folder.name


def texts(content):
    return [content] if isinstance(content, str) else [block["text"] for block in content]


for name, source in (("codex", codex()), ("kimi", kimi())):
    target = Path(f"{name}-as-claude.jsonl")
    command = ["session-migrate", "convert", source, "--format", name, "--to", "claude", "--output", str(target)]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    said = [text for row in rows if "message" in row for text in texts(row["message"]["content"])]
    print(f"{name}:", " | ".join(said))
    print("left out:", told["dropped_events"])
PY
venv/bin/python move.py | tee seen
diff seen - <<'SEEN'
codex: Look at the till. | I looked. | Delete the till. | I deleted it. | Keep the till. | I keep it.
left out: {'opaque:thread_rolled_back': 1}
kimi: Look at the till. | I looked. | Delete the till. | I deleted it. | Keep the till. | I keep it.
left out: {'opaque:kimi_runtime_record': 1}
SEEN
