#!/usr/bin/env bash
# claude-agent-sdk 0.2.189 (PyPI) on a session that @anthropic-ai/claude-code 2.1.332 (npm, Node 22) has compacted.
#
# Behaviour seen: a compaction keeps the last message word for word, by naming its uuid (`preservedMessages`); its row is
# not written again. (1) `get_session_messages` shows the summary and what came after it, without the kept message.
# (2) `fork_session` gives every row a new uuid, but leaves the old ones in `preservedMessages`, where they now name no
# row of the file. So Claude Code, when it resumes the fork, sends the summary without the kept message; when it resumes
# the original, and a fork of its own (`--fork-session`), it sends both. Nothing warns.
#
# Needs Python 3.10 with venv, npm and registries. The model is a server on loopback. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); cd "$work"
trap 'kill "${server:-}" 2>/dev/null || true; rm -rf "$work"' EXIT
npm install --silent --no-fund --no-audit node@22.23.3 @anthropic-ai/claude-code@2.1.332 >npm.log 2>&1 || { cat npm.log; exit 2; }
PATH=$work/node_modules/.bin:$PATH node node_modules/@anthropic-ai/claude-code/install.cjs >/dev/null
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check claude-agent-sdk==0.2.189
cat >server.py <<'PY'
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Model(BaseHTTPRequestHandler):
    """Answers with the number of the request, or a summary, and keeps the messages that it was sent."""

    def log_message(self, *args):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.split("?")[0] != "/v1/messages":
            return self.answer("application/json", '{"input_tokens": 1000}')
        with open("sent.jsonl", "a") as file:
            file.write(json.dumps(body["messages"]) + "\n")
        number = sum(1 for _ in open("sent.jsonl"))
        text = "<summary>They counted.</summary>" if "summary" in json.dumps(body["messages"][-1]) else f"Answer {number}."
        usage = {"input_tokens": 1000, "output_tokens": 33}
        message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": body["model"], "usage": usage}
        events = [
            {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "stop_sequence": None}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ]
        self.answer("text/event-stream", "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events))

    def answer(self, kind, text):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
print(server.server_port, flush=True)
server.serve_forever()
PY
mkdir home project
python3 server.py >port & server=$!
until [ -s port ]; do sleep 0.1; done
claude_code() {
    (cd project && env -i PATH="$work/node_modules/.bin:/usr/bin:/bin" HOME="$work/home" LANG=C.UTF-8 ANTHROPIC_API_KEY=dummy \
        ANTHROPIC_BASE_URL="http://127.0.0.1:$(cat ../port)" CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 DISABLE_TELEMETRY=1 \
        DISABLE_AUTOUPDATER=1 claude "$@" </dev/null >/dev/null)
}
claude_code -p "Count to one."
claude_code -c -p "Count to two."
claude_code -c -p "/compact"
original=$(basename home/.claude/projects/*/*.jsonl .jsonl)
cat >fork.py <<'PY'
import sys

import claude_agent_sdk

session = sys.argv[1]
messages = str([message.message for message in claude_agent_sdk.get_session_messages(session)])
open("read", "w").write(f"summary {messages.count('They counted.')}, kept message {messages.count('Answer 2.')}")
print(claude_agent_sdk.fork_session(session).session_id)
PY
fork=$(HOME=$work/home venv/bin/python fork.py "$original")
last_sent() {
    echo "$1: summary $(tail -n 1 sent.jsonl | grep -c "They counted." || true), kept message $(tail -n 1 sent.jsonl | grep -c "Answer 2." || true)"
}
seen=$(
    echo "get_session_messages: $(cat read)"
    claude_code -p --resume "$fork" "Count to three."; last_sent "resumed after fork_session"
    claude_code -p --resume "$original" --fork-session "Count to three."; last_sent "resumed with --fork-session"
    claude_code -p --resume "$original" "Count to three."; last_sent "resumed, the original"
)
printf '%s\n' "$seen"
[ "$seen" = "get_session_messages: summary 1, kept message 0
resumed after fork_session: summary 1, kept message 0
resumed with --fork-session: summary 1, kept message 1
resumed, the original: summary 1, kept message 1" ]
