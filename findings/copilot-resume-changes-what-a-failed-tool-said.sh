#!/usr/bin/env bash
# GitHub Copilot CLI 1.0.102 (npm, linux-x64): after a resume the model is told other words of a failed tool than before.
#
# Behaviour seen: the tool `view` is called for a file that is not there. In the same run the model is sent "Path PATH does not
# exist. Please provide a valid path."; `events.jsonl` keeps `error.message` alone, "Path does not exist", and a resumed
# session sends that. The advice and the path are lost, and the prefix of the request is another one, so that nothing behind
# the failed call is read from the provider's cache.
#
# Needs npm, Python 3 and a registry. Exits 1 if the behaviour is another one.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"; mkdir home project
npm install --silent --no-fund --no-audit @github/copilot@1.0.102 >npm.log 2>&1 || { cat npm.log; exit 2; }
[ -x node_modules/@github/copilot-linux-x64/copilot ] || { echo "the program is there for linux-x64 only"; exit 2; }
cat >run.py <<'PY'
import json, os, subprocess, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

work = Path(sys.argv[1])
sent = []

class Model(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        messages = json.loads(self.rfile.read(int(self.headers["content-length"])))["messages"]
        sent.append([message["content"] for message in messages if message["role"] == "tool"])
        call = {"name": "view", "arguments": json.dumps({"path": str(work / "project/none.txt")})}
        call = {"index": 0, "id": "call_1", "type": "function", "function": call}
        delta = {"role": "assistant", "content": "Answer."} if sent[-1] else {"role": "assistant", "tool_calls": [call]}
        choice = {"index": 0, "delta": delta, "finish_reason": "stop" if sent[-1] else "tool_calls"}
        chunk = {"id": f"chatcmpl-{len(sent)}", "object": "chat.completion.chunk", "created": 1, "model": "made-up"}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
        for event in ({**chunk, "choices": [choice]}, {**chunk, "choices": [], "usage": usage}):
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
env = {"PATH": os.environ["PATH"], "HOME": str(work / "home"), "LANG": "C.UTF-8", "COPILOT_OFFLINE": "true"}
env |= {"COPILOT_PROVIDER_BASE_URL": f"http://127.0.0.1:{server.server_address[1]}/v1"}
env |= {"COPILOT_PROVIDER_API_KEY": "none", "COPILOT_MODEL": "made-up"}
name = "11111111-1111-4111-8111-111111111111"
for words in (["-p", "Read none.txt.", "--session-id", name], ["-p", "And now?", "--resume", name]):
    command = [work / "node_modules/@github/copilot-linux-x64/copilot", "--allow-all-tools", *words]
    subprocess.run(command, cwd=work / "project", env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
(before,), (after,) = sent[1], sent[2]
before = before.replace(str(work), "")
print(f"Copilot CLI 1.0.102: in the same run: {before!r}; after a resume: {after!r}")
expected = "Path /project/none.txt does not exist. Please provide a valid path.", "Path does not exist"
sys.exit((before, after) != expected)
PY
python3 run.py "$work"
