#!/usr/bin/env bash
# agent-session-bridge 0.5.0 (PyPI), which makes a session of one coding agent one of another: of a session of Codex the edits
# are lost, and turns that were taken back are in it again. "lossless conversion (no warnings)", it says.
#
# Behaviour seen: (1) its reader of Codex knows the calls `function_call` and `function_call_output`. Codex writes calls of
# `apply_patch`, the tool that it edits files with, as `custom_tool_call` and `custom_tool_call_output`: both are left out, for
# each target, and also from Codex to Codex. The agent that goes on reads that the file says 7, then that it is 19, and no
# edit between. (2) All rows `event_msg` are left out as repetitions; but `thread_rolled_back` repeats nothing: it says that
# the last turns were taken back. Here one was, and another prompt was put in its place: in the converted session the new
# prompt follows on the answer that was taken back. Its README lists what is lost, "reported per conversion"; neither is there.
#
# Needs Python 3.11 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check agent-session-bridge==0.5.0
export HOME=$work
cat >rollout.py <<'PY'
import json
from pathlib import Path

AT = "2026-11-27T22:10:00.000Z"
PATCH = "*** Begin Patch\n*** Update File: till.py\n@@\n-TAX = 7\n+TAX = 19\n*** End Patch\n"


def row(kind, **payload):
    return {"timestamp": AT, "type": kind, "payload": payload}


def item(kind, **fields):
    return row("response_item", type=kind, **fields)


def turn(question, answer, *calls):
    """The rows of a turn, as Codex writes them: what was said is there twice, as an item and as an event."""
    asked = item("message", role="user", content=[{"type": "input_text", "text": question}])
    said = item("message", role="assistant", content=[{"type": "output_text", "text": answer}])
    heard, shown = {"type": "user_message", "message": question}, {"type": "agent_message", "message": answer}
    return [asked, row("event_msg", **heard), *calls, row("event_msg", **shown), said]


about = {"id": "01a21f0e-c516-76e3-a197-a7b113c848b4", "timestamp": AT, "cwd": "/home/ann/shop", "source": "cli"}
rows = [
    row("session_meta", **about, originator="codex_cli_rs", cli_version="0.144.4", model_provider="openai"),
    *turn(
        "Put the tax to 19.",
        "It is 19.",
        item("function_call", name="exec_command", arguments='{"cmd": "cat till.py"}', call_id="call_1"),
        item("function_call_output", call_id="call_1", output="TAX = 7"),
        item("custom_tool_call", name="apply_patch", input=PATCH, call_id="call_2", status="completed"),
        item("custom_tool_call_output", call_id="call_2", output="Success. Updated till.py"),
    ),
    *turn("Delete the till.", "I deleted it."),
    row("event_msg", type="thread_rolled_back", num_turns=1),
    *turn("Keep the till.", "I keep it."),
]
Path("rollout.jsonl").write_text("".join(json.dumps(each, separators=(",", ":")) + "\n" for each in rows))
PY
cat >shown.py <<'PY'
import json
from pathlib import Path


def texts(content):
    """What a message of Claude Code says, calls, or gives back."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for block in blocks:
        kind = block["type"]
        yield block["text"] if kind == "text" else f"({block['name']})" if kind == "tool_use" else f"({block['content']})"


rows = [json.loads(line) for line in Path("claude.jsonl").read_text().splitlines()]
print(" | ".join(text for each in rows for text in texts(each["message"]["content"])))
PY
venv/bin/python rollout.py
convert() { venv/bin/session-bridge convert --from codex --no-handshake rollout.jsonl "$@" 2>&1 | sed '/^$/d'; }
{
  convert --to claude-code -o claude.jsonl
  venv/bin/python shown.py
  convert --to codex -o codex.jsonl >notes
  echo "Codex to Codex: $(grep -c apply_patch codex.jsonl || true) edits, $(grep -c rolled_back codex.jsonl || true) turns taken back"
} | tee seen
diff seen - <<'SEEN'
wrote 8 records -> claude.jsonl
lossless conversion (no warnings).
Put the tax to 19. | (exec_command) | (TAX = 7) | It is 19. | Delete the till. | I deleted it. | Keep the till. | I keep it.
Codex to Codex: 0 edits, 0 turns taken back
SEEN
