#!/usr/bin/env bash
# Goose 1.52.0 (npm @aaif/goose-binary-linux-x64), provider openai: words that arrive in one chunk with calls are lost.
#
# Behaviour seen: a streamed chunk may have `content` and `tool_calls` in one delta. Goose runs the call, and takes the
# words neither into its database nor into its next request, where the content of the answer is null. Where the words
# come in a chunk before, both have them.
#
# Needs Linux on x86-64, npm with a registry (290 MB), and Python 3.8. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund --prefix . @aaif/goose-binary-linux-x64@1.52.0 >/dev/null
chmod +x node_modules/@aaif/goose-binary-linux-x64/bin/goose
cat >run.py <<'PY'
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CALL = {"index": 0, "id": "call_1", "type": "function"}
CALL["function"] = {"name": "shell", "arguments": json.dumps({"command": "echo one"})}
WORDS = "I look first."
IN_ONE, APART = [{"content": WORDS, "tool_calls": [CALL]}], [{"content": WORDS}, {"tool_calls": [CALL]}]


def run(first):
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            has_tools = bool(body.get("tools"))
            asked.extend([body["messages"]] if has_tools else [])
            deltas = first if has_tools and len(asked) == 1 else [{"content": "Done."}]
            finish = "tool_calls" if deltas is first else "stop"
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            head = {"id": f"c{len(asked)}", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
            for delta, reason in [*((d, None) for d in deltas), ({}, finish)]:
                choice = {"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": reason}
                self.wfile.write(b"data: " + json.dumps({**head, "choices": [choice]}).encode() + b"\n\n")
            usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
            self.wfile.write(b"data: " + json.dumps({**head, "choices": [], "usage": usage}).encode() + b"\n\n")
            self.wfile.write(b"data: [DONE]\n\n")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home = "home%d" % (first is APART)
    env = {"PATH": "/usr/bin:/bin", "HOME": sys.argv[1] + "/" + home, "LANG": "C.UTF-8", "GOOSE_PROVIDER": "openai"}
    env.update(GOOSE_MODEL="gpt-4o", OPENAI_API_KEY="none", GOOSE_DISABLE_KEYRING="1", GOOSE_MODE="auto")
    env["OPENAI_HOST"] = "http://127.0.0.1:%d" % server.server_address[1]
    program = sys.argv[1] + "/node_modules/@aaif/goose-binary-linux-x64/bin/goose"
    command = [program, "run", "--no-session", "-t", "Say one."]
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
    server.shutdown()
    answer = next(message for message in asked[-1] if message["role"] == "assistant")
    return answer.get("content"), [call["id"] for call in answer["tool_calls"]]


seen = run(IN_ONE), run(APART)
print("in one chunk:", *seen[0], "| in two:", *seen[1])
sys.exit(seen != ((None, ["call_1"]), (WORDS, ["call_1"])))
PY
mkdir home0 home1
python3 run.py "$work"
