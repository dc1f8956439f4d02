#!/usr/bin/env bash
# agent-session-otel 0.2.0 (PyPI): where Claude Code used a sub-agent, the question and the answer of the session are dropped; and
# usage is exported once per block with Claude Code, twice with Codex.
#
# Behaviour seen: it makes OpenTelemetry traces of the files of coding agents; "the whole point of this tool is to not lose
# data", says its code. (1) A span's id is made of the session and the line's number. The rows of a sub-agent have the session of
# the one who called it, in a file of their own, which is read first: a row of the session that has the number of one of these is
# a duplicate, and skipped; its README says that ids are made so, and nothing of sub-agents. Here the user's question is gone,
# and the answer with its usage, all that the user saw. The root span counts "duplicate_events_skipped". (2) What is left of the
# caller gets the time after the sub-agent's last row, a microsecond apart, though their rows have times. (3) Claude Code writes
# a row per block of an answer, each with the usage of all of it, and each row becomes a `gen_ai.usage` of its own: two calls of
# 1,000 tokens in, one with thinking, words and a call, have 4,000. The message's id, which would tell, is not exported. (4)
# Codex writes a call's usage twice, as `token_usage_record` and as `token_count`, and both are exported: 1,000 tokens are 2,000.
#
# Needs Python 3.9 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check 'agent-session-otel[otel]==0.2.0' opentelemetry-sdk==1.45.2
export HOME=$work
cat >files.py <<'PY'
import json
from pathlib import Path

SESSION = "11111111-1111-4111-8111-111111111111"
CODEX = "22222222-2222-4222-8222-222222222222"
USAGE = {"input_tokens": 1000, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 20}


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


class Transcript:
    """Rows of Claude Code, each after the one before it."""

    def __init__(self, start, agent=None):
        self.rows, self.start, self.agent = [], start, agent

    def add(self, kind, message):
        number = len(self.rows)
        name = f"{self.agent or 'main'}-{number}"
        row = {"type": kind, "uuid": name, "parentUuid": self.rows[-1]["uuid"] if self.rows else None, "sessionId": SESSION}
        row |= {"timestamp": f"2026-11-01T10:00:{self.start + number:02d}.000Z", "version": "2.1.332", "cwd": "/project"}
        row |= {"isSidechain": bool(self.agent), "message": message} | ({"agentId": self.agent} if self.agent else {})
        self.rows.append(row)

    def user(self, content):
        self.add("user", {"role": "user", "content": content})

    def answer(self, name, *blocks):
        for block in blocks:
            message = {"id": name, "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [block]}
            self.add("assistant", {**message, "usage": USAGE})


def text(words):
    return {"type": "text", "text": words}


def call(name, tool):
    return {"type": "tool_use", "id": name, "name": tool, "input": {}}


def result(name, words):
    return [{"type": "tool_result", "tool_use_id": name, "content": words}]


main = Transcript(0)
main.user("Where is the key?")
main.answer("msg_1", {"type": "thinking", "thinking": "Someone has to look.", "signature": "s"}, text("I send one."), call("t1", "Task"))
main.start = 30
main.user(result("t1", "under the mat"))
main.answer("msg_2", text("Under the mat."))
write(Path("alone/-project") / f"{SESSION}.jsonl", main.rows)
write(Path("helped/-project") / f"{SESSION}.jsonl", main.rows)

agent = Transcript(10, "a1")
agent.user("Look for the key.")
agent.answer("msg_3", call("t2", "Glob"))
agent.user(result("t2", "mat"))
agent.answer("msg_4", call("t3", "Read"))
agent.user(result("t3", "a key"))
agent.answer("msg_5", text("It is under the mat."))
agent.answer("msg_6", text("I am sure."))
write(Path("helped/-project") / SESSION / "subagents" / "agent-a1.jsonl", agent.rows)

used = {"input_tokens": 1000, "cached_input_tokens": 0, "output_tokens": 20, "reasoning_output_tokens": 0, "total_tokens": 1020}
said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Here."}]}
payloads = [
    ("session_meta", {"id": CODEX, "timestamp": "2026-11-01T10:00:00.000Z", "cwd": "/project", "cli_version": "0.171.0"}),
    ("response_item", said),
    ("token_usage_record", {"response_id": "resp_1", "usage": used, "thread_token_usage": used}),
    ("event_msg", {"type": "token_count", "info": {"total_token_usage": used, "last_token_usage": used}}),
]
rows = [{"timestamp": f"2026-11-01T10:00:0{i}.000Z", "type": kind, "payload": payload} for i, (kind, payload) in enumerate(payloads)]
write(Path("codex/2026/11/01") / f"rollout-2026-11-01T10-00-00-{CODEX}.jsonl", rows)
PY
cat >show.py <<'PY'
import json
import sys
from datetime import datetime, timezone

spans = sorted(json.load(open("traces.json"))["spans"], key=lambda span: span["start_time_unix_nano"])
told = [span["attributes"] for span in spans]
skipped = [attributes["asot.duplicate_events_skipped"] for attributes in told if "asot.duplicate_events_skipped" in attributes]
tokens = sum(attributes.get("gen_ai.usage.input_tokens", 0) for attributes in told)
print(f"{sys.argv[1]}: {tokens} tokens in, {skipped[0]} events skipped")
for span, attributes in zip(spans, told):
    words = attributes.get("gen_ai.input.messages") or attributes.get("gen_ai.output.messages")
    words = json.loads(words)[0]["parts"][0]["content"] if words else attributes.get("gen_ai.tool.call.result")
    if words:
        at = datetime.fromtimestamp(span["start_time_unix_nano"] / 1e9, timezone.utc).strftime("%S.%f")
        print(f"  {at} {span['name']}: {words}")
PY
python3 files.py
export_of() {
  rm -f traces.json
  venv/bin/agent-session-otel export --claude-code-root "$1" --codex-root "$2" --include-content --format json --output traces.json \
    >export.log 2>&1 || { cat export.log; exit 2; }
  venv/bin/python show.py "$3"
}
{
  export_of alone none "no sub-agent, 2 calls"
  export_of helped none "a sub-agent, 2 calls and its 4"
  export_of none codex "Codex, 1 call"
} | tee seen
diff seen - <<'SEEN'
no sub-agent, 2 calls: 4000 tokens in, 0 events skipped
  00.000000 chat: Where is the key?
  01.000000 chat claude-sonnet-4-5: Someone has to look.
  02.000000 chat claude-sonnet-4-5: I send one.
  03.000000 execute_tool Task: under the mat
  35.000000 chat claude-sonnet-4-5: Under the mat.
a sub-agent, 2 calls and its 4: 5000 tokens in, 5 events skipped
  10.000000 chat: Look for the key.
  11.000000 execute_tool Glob: mat
  13.000000 execute_tool Read: a key
  15.000000 chat claude-sonnet-4-5: It is under the mat.
  16.000000 chat claude-sonnet-4-5: I am sure.
  16.000001 chat claude-sonnet-4-5: Someone has to look.
  16.000002 chat claude-sonnet-4-5: I send one.
  16.000004 execute_tool Task: under the mat
Codex, 1 call: 2000 tokens in, 0 events skipped
  01.000000 chat: Here.
SEEN
