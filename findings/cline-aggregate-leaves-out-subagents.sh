#!/usr/bin/env bash
# cline 3.0.65 (npm, Node 22): the sum that is to include sub-agents leaves them out.
#
# Its types say of a session's usage: "`usage` is root/lead-agent usage; `aggregateUsage` includes teammates and
# subagents" (@cline/core, ClineCore.d.ts). Behaviour seen: a session whose agent runs one sub-agent makes three calls,
# two of its own of 1000 tokens, one of 300 by the sub-agent. `cline --json` prints 2000 for both, and the header
# (ID.json) keeps 2000 for both: the call of the sub-agent is in its own file (agent_ID.messages.json) alone, and budgets
# or reports by `aggregateUsage` miss it.
#
# Needs Python 3.10 and npm with a registry; the model is made up, on loopback. The process that the program leaves
# behind is ended. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir node program home folder
(cd node && npm install --silent node@22.23.3 >/dev/null 2>&1)
export PATH="$work/node/node_modules/.bin:$PATH"
(cd program && npm install --silent cline@3.0.65 >/dev/null 2>&1)
cat >run.py <<'PY'
import json
import os
import signal
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

calls = []


class Model(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        last = json.dumps(body["messages"][-1])
        delta, tokens = {"role": "assistant", "content": "Done."}, 1000
        if "please" in last:
            arguments = json.dumps({"systemPrompt": "Be short.", "task": "SUBTASK"})
            function = {"name": "spawn_agent", "arguments": arguments}
            delta["tool_calls"] = [{"index": 0, "id": "c1", "type": "function", "function": function}]
        elif "SUBTASK" in last:
            tokens = 300
        calls.append(tokens)
        finish = "tool_calls" if "tool_calls" in delta else "stop"
        usage = {"prompt_tokens": tokens, "completion_tokens": 20, "total_tokens": tokens + 20}
        head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "made-up"}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for choices, more in (
            ([{"index": 0, "delta": delta, "finish_reason": None}], {}),
            ([{"index": 0, "delta": {}, "finish_reason": finish}], {}),
            ([], {"usage": usage}),
        ):
            self.wfile.write(f"data: {json.dumps({**head, 'choices': choices, **more})}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")


server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
work = Path.cwd()
environment = {"PATH": os.environ["PATH"], "HOME": f"{work}/home", "LANG": "C.UTF-8"}


def cline(*words):
    program = f"{work}/program/node_modules/.bin/cline"
    made = subprocess.run(
        (program, *words), env=environment, cwd=work / "folder", stdin=subprocess.DEVNULL, capture_output=True, timeout=120
    )
    return made.stdout.decode()


try:
    cline("auth", "-p", "openai", "-k", "key", "-m", "made-up", "-b", f"http://127.0.0.1:{server.server_port}/v1")
    lines = [line for line in cline("--json", "Spawn, please").splitlines() if '"run_result"' in line]
finally:
    listed = subprocess.run(("ps", "-eo", "pid,args"), capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        if "--cline-hub-daemon" in line and str(work) in line:
            os.kill(int(line.split()[0]), signal.SIGTERM)
(header,) = [path for path in (work / "home").glob(".cline/data/sessions/*/*.json") if "messages" not in path.name]
kept = json.loads(header.read_text())["metadata"]
(agent,) = (work / "home").glob(".cline/data/sessions/*/agent_*.messages.json")
own = [message["metrics"]["inputTokens"] for message in json.loads(agent.read_text())["messages"] if "metrics" in message]
print("calls", *sorted(calls))
for place, value in (("printed", json.loads(lines[-1])), ("kept", kept)):
    print(place, value["usage"]["inputTokens"], value["aggregateUsage"]["inputTokens"])
print("sub-agent", *own)
PY
seen=$(python3 run.py)
printf '%s\n' "$seen"
[ "$seen" = "calls 300 1000 1000
printed 2000 2000
kept 2000 2000
sub-agent 300" ]
