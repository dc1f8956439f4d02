#!/usr/bin/env bash
# claude-monitor 4.0.0 and claude-code-log 1.7.0 (PyPI): of an answer that Claude Code wrote as several rows, both count
# the output tokens of the first row.
#
# Claude Code writes a row for each block of an answer, under one message id and one request id. The first was written
# while the answer came, and its `output_tokens` is the count at that time; the last row has the whole (1 and 334 here, as
# in real files). Behaviour seen: both readers pass over repeated requests, and so keep the first count: 1 output token.
# claude-monitor also takes tokens written to the cache for an hour for those of five minutes, at 1.25 times the price of
# input where they cost twice: a million of them with Sonnet is 3.75 dollars instead of 6.
#
# Needs Python 3.11 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check claude-monitor==4.0.0 claude-code-log==1.7.0
export HOME=$work TZ=UTC
mkdir -p .claude/projects/-repo
cat >rows.py <<'PY'
import json
from datetime import datetime, timezone

SESSION = "5e2f3c1a-0000-4000-8000-000000000001"
now = datetime.now(timezone.utc).replace(microsecond=0).isoformat().replace("+00:00", "Z")
row = {"sessionId": SESSION, "cwd": "/repo", "version": "2.1.332", "userType": "external", "isSidechain": False}
row |= {"timestamp": now}
written = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 1_000_000}
usage = {"input_tokens": 10, "cache_creation_input_tokens": 1_000_000, "cache_read_input_tokens": 0}
usage |= {"cache_creation": written, "service_tier": "standard"}
answer = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6", "stop_reason": None}


def assistant(uuid, parent, block, count):
    message = {**answer, "content": [block], "usage": {**usage, "output_tokens": count}}
    return {**row, "type": "assistant", "uuid": uuid, "parentUuid": parent, "requestId": "req_1", "message": message}


def user(uuid, parent, content):
    message = {"role": "user", "content": content}
    return {**row, "type": "user", "uuid": uuid, "parentUuid": parent, "message": message}


call = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "/repo/notes.txt"}}
rows = [
    user("u1", None, "What is in notes.txt?"),
    assistant("a1", "u1", {"type": "text", "text": "I will read it."}, 1),
    assistant("a2", "a1", call, 334),
    user("u2", "a2", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "milk"}]),
]
with open(f".claude/projects/-repo/{SESSION}.jsonl", "w") as file:
    file.writelines(json.dumps(row) + "\n" for row in rows)
PY
venv/bin/python rows.py
venv/bin/claude-monitor --view daily --output json --once 2>/dev/null >monitor.json
venv/bin/claude-code-log .claude/projects/-repo >/dev/null 2>&1
{
    venv/bin/python -c 'import json
seen = json.load(open("monitor.json"))["local"]
print("claude-monitor:", seen["tokens"]["output_tokens"], "output tokens,", round(seen["cost_usd"], 2), "dollars")'
    printf 'claude-code-log: '
    grep -o "Input: [^<]*" .claude/projects/-repo/combined_transcripts.html
} | tee seen
diff seen - <<'SEEN'
claude-monitor: 1 output tokens, 3.75 dollars
claude-code-log: Input: 10 | Output: 1 | Cache Creation: 1000000
SEEN
