#!/usr/bin/env bash
# usagesniffer 1.4.0 (PyPI): an answer of Claude Code is billed once for each of its blocks, and cached tokens of Codex and
# Gemini CLI are billed twice.
#
# Behaviour seen: (1) Claude Code (2.1) writes a row for each block of an answer, under one message id, each with the usage of
# the whole answer. All rows are added: a million tokens of input and 10,000 of output, with words and two calls, are three
# million and 30,000, and cost 9.45 dollars, where an answer of one block costs 3.15. (2) The input of Codex and Gemini CLI
# has the cached tokens in it. It is charged in full, and the cached part once more at a tenth: a million, 900,000 of them
# cached, is 2.725 dollars with GPT-5; at a tenth for these alone it is 0.475. (3) Gemini CLI writes an answer that calls a
# tool twice under one id, the second time with the call: 2.50 dollars for 1.25. The README says that "real totals always
# come straight from the logs", and that only the split into thinking, tools and skills is an estimate.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check usagesniffer==1.4.0
export HOME=$work TZ=UTC
cat >rows.py <<'PY'
import json
import subprocess
from pathlib import Path

MILLION = 1_000_000
TIME = "2026-11-27T22:10:00.000Z"


def write(path, rows):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))


def claude_code(*blocks):
    """The rows of one answer of Claude Code."""
    usage = {"input_tokens": MILLION, "output_tokens": 10_000}
    head = {"type": "message", "role": "assistant", "id": "msg_1", "model": "claude-sonnet-4-5", "usage": usage}
    row = {"type": "assistant", "requestId": "req_1", "sessionId": "one", "timestamp": TIME}
    return [row | {"uuid": f"row{at}", "message": head | {"content": [block]}} for at, block in enumerate(blocks)]


def codex():
    usage = {"input_tokens": MILLION, "cached_input_tokens": 900_000, "output_tokens": 0, "reasoning_output_tokens": 0}
    info = {"total_token_usage": usage, "last_token_usage": usage}
    rows = [("session_meta", {"id": "two", "cwd": "/repo"}), ("turn_context", {"model": "gpt-5"})]
    rows.append(("event_msg", {"type": "token_count", "info": info}))
    return [{"timestamp": TIME, "type": kind, "payload": payload} for kind, payload in rows]


def gemini_cli():
    tokens = {"input": MILLION, "output": 0, "cached": 0, "thoughts": 0, "tool": 0, "total": MILLION}
    answer = {"id": "three-1", "timestamp": TIME, "type": "gemini", "content": "I look.", "tokens": tokens}
    call = {"id": "call", "name": "read_file", "args": {}, "status": "success", "timestamp": TIME}
    head = {"sessionId": "three", "projectHash": "0", "startTime": TIME, "lastUpdated": TIME, "kind": "main"}
    answer["model"] = "gemini-2.5-pro"
    return [head, answer, answer | {"toolCalls": [call]}]


def show(name):
    out = subprocess.run(["venv/bin/usagesniffer", "export"], capture_output=True, text=True, check=True).stdout
    totals, cost = (json.loads(out)[key] for key in ("totals", "cost"))
    print(name, totals["input"], totals["cache_read"], totals["output"], f"{cost['total']:.3f} dollars")


def three_rows():
    call = {"type": "tool_use", "name": "Bash", "input": {}}
    return claude_code({"type": "text", "text": "I look."}, call | {"id": "call1"}, call | {"id": "call2"})


CASES = {
    "Claude Code, one block:": (".claude/projects/-repo/one.jsonl", claude_code({"type": "text", "text": "Done."})),
    "Claude Code, three blocks:": (".claude/projects/-repo/one.jsonl", three_rows()),
    "Codex, cached:": (".codex/sessions/2026/11/27/rollout-2026-11-27T22-10-00-two.jsonl", codex()),
    "Gemini CLI, a call:": (".gemini/tmp/repo/chats/session-2026-11-27T22-10-three.jsonl", gemini_cli()),
}
for name, (path, rows) in CASES.items():
    write(path, rows)
    show(name)
    Path(path).unlink()
PY
venv/bin/python rows.py | tee seen
diff seen - <<'SEEN'
Claude Code, one block: 1000000 0 10000 3.150 dollars
Claude Code, three blocks: 3000000 0 30000 9.450 dollars
Codex, cached: 1000000 900000 0 2.725 dollars
Gemini CLI, a call: 2000000 0 0 2.500 dollars
SEEN
