#!/usr/bin/env bash
# Goose 1.52.0 (npm @aaif/goose-binary-linux-x64): `session export` and `session import` are no copy of a failed call.
#
# Behaviour seen: where a call fails before its tool runs (here: a tool that there is not), each export puts `-32603: `
# before the error that the database has, and each import does so once more. After two copies of a session its error
# says `-32603: ` four times before the code that it began with; the model is told all of it when the copy goes on.
#
# Needs Linux on x86-64, npm with a registry (290 MB), and Python 3.8. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund --prefix . @aaif/goose-binary-linux-x64@1.52.0 >/dev/null
chmod +x node_modules/@aaif/goose-binary-linux-x64/bin/goose
cat >run.py <<'PY'
import json
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORK = sys.argv[1]
CALL = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "no_such_tool", "arguments": "{}"}}
asked = []


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        asked.extend([1] if body.get("tools") else [])
        is_first = bool(body.get("tools")) and len(asked) == 1
        delta = {"tool_calls": [CALL]} if is_first else {"content": "Done."}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
        usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
        for part in (
            {"choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if is_first else "stop"}]},
            {"choices": [], "usage": usage},
        ):
            self.wfile.write(b"data: " + json.dumps({**head, **part}).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
HOME = WORK + "/home"
env = {"PATH": "/usr/bin:/bin", "HOME": HOME, "LANG": "C.UTF-8", "GOOSE_PROVIDER": "openai", "GOOSE_MODEL": "gpt-4o"}
env.update(OPENAI_API_KEY="none", GOOSE_DISABLE_KEYRING="1", GOOSE_MODE="auto")
env["OPENAI_HOST"] = "http://127.0.0.1:%d" % server.server_address[1]


def goose(*words):
    command = [WORK + "/node_modules/@aaif/goose-binary-linux-x64/bin/goose", *words]
    done = subprocess.run(
        command, env=env, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )
    return done.stdout


def errors(messages):
    parts = (part for message in messages for part in message if part.get("type") == "toolResponse")
    return [part["toolResult"]["error"] for part in parts]


def stored():
    with closing(sqlite3.connect(HOME + "/.local/share/goose/sessions/sessions.db")) as database:
        rows = database.execute("SELECT session_id, content_json FROM messages ORDER BY id").fetchall()
    last = rows[-1][0]
    return last, errors(json.loads(text) for name, text in rows if name == last)


goose("run", "-n", "one", "-t", "Do it.")
seen = []
for number in range(3):
    name, said = stored()
    document = goose("session", "export", "--session-id", name, "--format", "json")
    exported = errors(message["content"] for message in json.loads(document)["conversation"])
    seen += [said, exported]
    with open(WORK + "/copy.json", "w") as file:
        file.write(document)
    goose("session", "import", WORK + "/copy.json")
server.shutdown()
for place, said in zip(["session", "export", "first copy", "export", "second copy", "export"], seen):
    print(f"{place}: {said[0]}")
first = seen[0][0]
sys.exit(seen != [["-32603: " * times + first] for times in range(6)] or not first.startswith("-32600: "))
PY
mkdir home
python3 run.py "$work"
