#!/usr/bin/env bash
# ccusage 20.0.24 (npm) on a database of Goose 1.52.0 (npm @aaif/goose-binary-linux-x64): cached tokens are billed in full.
#
# Behaviour seen: Goose books each call in the table `usage_ledger`: input, of which `cache_read_tokens` came from the
# cache, output, and a `cost` that takes account of it. ccusage reads the sums of input and output alone: it reports no
# cache reads, and gives the cached tokens the price of new ones. A call of 100,000 tokens, 90,000 of them cached, costs
# 0.1376 US dollars by Goose's own ledger, and 0.2501 by ccusage: the more is cached, the more the bill is too high.
#
# Needs Linux on x86-64, Node.js 20 with npm, a registry (300 MB) and Python 3. Exits 1 if the behaviour is another one.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund --prefix . @aaif/goose-binary-linux-x64@1.52.0 ccusage@20.0.24 >npm.log 2>&1 ||
    { cat npm.log; exit 2; }
chmod +x node_modules/@aaif/goose-binary-linux-x64/bin/goose
mkdir home
cat >run.py <<'PY'
import json
import os
import sqlite3
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
        for delta, reason in (({"role": "assistant", "content": "Done."}, None), ({}, "stop")):
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            self.wfile.write(b"data: " + json.dumps({**head, "choices": [choice]}).encode() + b"\n\n")
        cached = 90_000 if body.get("tools") else 0
        usage = {"prompt_tokens": 100_000 if cached else 0, "completion_tokens": 10 if cached else 0}
        usage |= {"total_tokens": sum(usage.values()), "prompt_tokens_details": {"cached_tokens": cached}}
        self.wfile.write(b"data: " + json.dumps({**head, "choices": [], "usage": usage}).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")


work = Path(sys.argv[1])
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
env = {"PATH": "/usr/bin:/bin", "HOME": f"{work}/home", "LANG": "C.UTF-8", "GOOSE_PROVIDER": "openai"}
env |= {"GOOSE_MODEL": "gpt-4o", "OPENAI_API_KEY": "none", "GOOSE_DISABLE_KEYRING": "1", "GOOSE_MODE": "auto"}
env["OPENAI_HOST"] = f"http://127.0.0.1:{server.server_address[1]}"
goose = f"{work}/node_modules/@aaif/goose-binary-linux-x64/bin/goose"
silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
subprocess.run([goose, "run", "-t", "Say done."], env=env, check=True, timeout=120, cwd=work, **silent)
server.shutdown()
database = sqlite3.connect(work / "home/.local/share/goose/sessions/sessions.db")
columns = "sum(input_tokens), sum(cache_read_tokens), sum(output_tokens), round(sum(cost), 4)"
ledger = database.execute(f"SELECT {columns} FROM usage_ledger").fetchone()
command = [f"{work}/node_modules/.bin/ccusage", "goose", "session", "--json", "--offline"]
home = {"HOME": f"{work}/home", "PATH": os.environ["PATH"]}
totals = json.loads(subprocess.run(command, env=home, check=True, capture_output=True).stdout)["totals"]
names = ("inputTokens", "cacheReadTokens", "outputTokens", "totalCost")
bill = tuple(round(totals[name], 4) for name in names)
print("input, cache reads, output, dollars: Goose", *ledger, "| ccusage", *bill)
sys.exit(ledger != (100_000, 90_000, 10, 0.1376) or bill != (100_000, 0, 10, 0.2501))
PY
python3 run.py "$work"
